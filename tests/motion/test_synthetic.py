"""The stepping clip looks human, and the somersault obeys physics."""

import numpy as np
import pytest

from dropsim.body.rotations import heading
from dropsim.body.skeleton import joint_index
from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import CADENCE, LIFT, somersault_clip, stepping_clip

CLIP = stepping_clip(4.0, 30.0)
SIDES = pytest.mark.parametrize(("side", "other"), [("left", "right"), ("right", "left")])


def track(name):
    return CLIP.joints[:, joint_index(name)]


def test_the_lowest_sphere_touches_the_ground_in_every_frame():
    # By construction, to rounding: a foot is always planted and nothing is ever below it.
    lowest = (CLIP.joints[..., 2] - CLIP.skeleton.radii).min(-1)
    assert np.abs(lowest).max() < 1e-12


@SIDES
def test_a_step_is_a_persons(side, other):
    # A foot is up for half of its cycle; in the other half neither the heel nor the ball of the foot moves.
    hip, knee, ankle, foot = (track(f"{side}_{part}") for part in ("hip", "knee", "ankle", "foot"))
    planted = ankle[:, 2] < ankle[:, 2].min() + 1e-9
    assert 0.4 < planted.mean() < 0.6
    for part in (ankle, foot):
        assert np.linalg.norm(part[planted] - part[planted][0], axis=-1).max() < 1e-9
    # The foot in the air reaches its height, to what a sample every 1/30 s can miss of sin^2 at its top.
    missed = (np.pi * CADENCE / 30) ** 2
    assert LIFT * (1 - missed) - 1e-9 <= float(ankle[:, 2].max() - ankle[:, 2].min()) <= LIFT + 1e-9
    # The person faces +y: knees are in front of the line from hip to ankle, and arms swing against the legs.
    assert (knee[:, 1] > np.maximum(hip[:, 1], ankle[:, 1]) + 0.01).all()
    highest = ankle[:, 2].argmax()
    assert track(f"{other}_wrist")[highest, 1] > track(f"{side}_wrist")[highest, 1] + 0.2


def test_it_stands_upright_and_faces_y():
    assert np.allclose(heading(CLIP.q[:, 0]), np.eye(3), atol=1e-12)
    assert (track("head")[:, 2] > 1.4).all()
    # Left is -x for someone who faces +y with z up.
    assert (track("left_shoulder")[:, 0] < track("right_shoulder")[:, 0]).all()


@pytest.mark.parametrize(
    ("seconds", "fps"), [(0.0, 30.0), (-1.0, 30.0), (1.0, 0.0), (float("inf"), 30.0), (float("nan"), 30.0)]
)
def test_nonsense_is_refused(seconds, fps):
    with pytest.raises(ValueError, match="two positive numbers"):
        stepping_clip(seconds, fps)


# --- the somersault


FLIP = somersault_clip()
TIME = np.arange(len(FLIP)) / FLIP.fps
FLYING = (TIME > 1.32) & (TIME < 2.02)


def test_its_flight_is_ballistic_and_the_floor_only_pushes():
    # Second differences of a parabola are exact.
    acceleration = np.diff(FLIP.skeleton.centre_of_mass(FLIP.joints), n=2, axis=0) * FLIP.fps**2
    inside = FLYING[:-2] & FLYING[2:]
    gravity = np.tile([0.0, 0.0, -GRAVITY], (int(inside.sum()), 1))
    np.testing.assert_allclose(acceleration[inside], gravity, rtol=0, atol=1e-6)
    grounded = ~FLYING[:-2] & ~FLYING[2:] & ~FLYING[1:-1]
    assert (acceleration[grounded, 2] > -GRAVITY).all()


def test_the_pelvis_turns_backward_once():
    up = FLIP.q[:, 0, :, 1]
    step = np.arctan2(up[:-1, 2] * -up[1:, 1] + up[:-1, 1] * up[1:, 2], (up[:-1] * up[1:]).sum(-1))
    assert float(step.sum()) == pytest.approx(2 * np.pi, abs=1e-9)
    assert (step[FLYING[:-1]] > 0).all()
    assert np.allclose(FLIP.q[-1, 0], FLIP.q[0, 0], atol=1e-9)


def test_its_feet_stand_on_the_floor_before_and_after():
    # Rotations by a whole turn are rounded at 1e-8.
    heights = (FLIP.joints[..., 2] - FLIP.skeleton.radii).min(-1)
    assert heights.min() > -1e-6
    assert np.abs(heights[~FLYING]).max() < 1e-6
    assert heights[FLYING].max() > 1.0
    toes = FLIP.joints[:, [10, 11]]
    for there in (TIME <= 1.32, TIME >= 2.02):
        assert np.linalg.norm(toes[there] - toes[there][:1], axis=-1).max() < 1e-6


def test_a_short_one_ends_in_the_middle():
    short = somersault_clip(1.5)
    assert len(short) == 45
    assert np.array_equal(short.joints, FLIP.joints[:45])
