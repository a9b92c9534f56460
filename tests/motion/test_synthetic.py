"""The stepping clip looks human, and the somersault obeys physics."""

import numpy as np
import pytest

from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import somersault_clip, stepping_clip

CLIP = stepping_clip(4.0, 30.0)


def test_the_lowest_sphere_touches_the_ground_in_every_frame():
    # By construction, to rounding: a foot is always planted and nothing is ever below it.
    lowest = (CLIP.joints[..., 2] - CLIP.skeleton.radii).min(-1)
    assert np.abs(lowest).max() < 1e-12


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
