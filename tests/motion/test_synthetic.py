"""The stepping clip looks human: feet stand still on the ground, knees bend to the front, arms swing against the legs."""

import numpy as np
import pytest

from dropsim.body.rotations import heading
from dropsim.body.skeleton import joint_index
from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import CADENCE, LANDING, LIFT, TAKE_OFF, somersault_clip, stepping_clip

CLIP = stepping_clip(4.0, 30.0)
SIDES = pytest.mark.parametrize(("side", "other"), [("left", "right"), ("right", "left")])


def track(name):
    return CLIP.joints[:, joint_index(name)]


def test_length_and_rate():
    assert len(CLIP) == 120
    assert len(stepping_clip(0.5, 120.0)) == 60


def test_the_lowest_sphere_touches_the_ground_in_every_frame():
    # By construction, to rounding: a foot is always planted and nothing is ever below it.
    lowest = (CLIP.joints[..., 2] - CLIP.skeleton.radii).min(-1)
    assert np.abs(lowest).max() < 1e-12


@SIDES
def test_a_planted_foot_stands_still(side, other):
    # A foot is up for half of its cycle; in the other half neither the heel nor the ball of the foot moves, to
    # rounding.
    ankle, foot = track(f"{side}_ankle"), track(f"{side}_foot")
    planted = ankle[:, 2] < ankle[:, 2].min() + 1e-9
    assert 0.4 < planted.mean() < 0.6
    for part in (ankle, foot):
        assert np.linalg.norm(part[planted] - part[planted][0], axis=-1).max() < 1e-9
    # The foot in the air reaches its height, to what a sample every 1/30 s can miss of sin^2 at its top.
    missed = (np.pi * CADENCE / 30) ** 2
    assert LIFT * (1 - missed) - 1e-9 <= float(ankle[:, 2].max() - ankle[:, 2].min()) <= LIFT + 1e-9


@SIDES
def test_knees_bend_to_the_front(side, other):
    # The person faces +y: the knee is in front of the line from hip to ankle.
    hip, knee, ankle = (track(f"{side}_{part}") for part in ("hip", "knee", "ankle"))
    assert (knee[:, 1] > np.maximum(hip[:, 1], ankle[:, 1]) + 0.01).all()


@SIDES
def test_arms_swing_against_the_legs(side, other):
    # When this foot is at its highest, the hand of the other side is in front of this side's.
    highest = track(f"{side}_ankle")[:, 2].argmax()
    assert track(f"{other}_wrist")[highest, 1] > track(f"{side}_wrist")[highest, 1] + 0.2
    # Hands hang below the shoulders and outside of the hips.
    assert (track(f"{side}_wrist")[:, 2] < track(f"{side}_shoulder")[:, 2]).all()
    assert (np.abs(track(f"{side}_wrist")[:, 0]) > np.abs(track(f"{side}_hip")[:, 0]) + 0.05).all()


def test_it_stands_upright_and_faces_y():
    assert np.allclose(heading(CLIP.q[:, 0]), np.eye(3), atol=1e-12)
    assert (track("head")[:, 2] > 1.4).all()
    # Left is -x for someone who faces +y with z up.
    assert (track("left_shoulder")[:, 0] < track("right_shoulder")[:, 0]).all()


def test_it_moves_smoothly():
    # Steps of 0.14 m at 0.9 Hz: d/dt of LIFT sin^2 is at most LIFT 2 pi CADENCE = 0.8 m/s; the swinging hand stays
    # below 3 m/s.
    assert np.linalg.norm(CLIP.velocity(), axis=-1).max() < 3.0


@pytest.mark.parametrize(
    ("seconds", "fps"), [(0.0, 30.0), (-1.0, 30.0), (1.0, 0.0), (float("inf"), 30.0), (float("nan"), 30.0)]
)
def test_nonsense_is_refused(seconds, fps):
    for clip in (stepping_clip, somersault_clip):
        with pytest.raises(ValueError, match="two positive numbers"):
            clip(seconds, fps)


# --- the somersault


FLIP = somersault_clip(4.0, 120.0)
TIME = np.arange(len(FLIP)) / FLIP.fps
FLYING = (TIME > TAKE_OFF) & (TIME < LANDING)
HEIGHTS = FLIP.joints[..., 2] - FLIP.skeleton.radii


def test_its_flight_is_ballistic():
    # Second differences of a parabola are exact, and those of 1e-13 m of rounding at 120 Hz are 1e-9 m/s^2.
    acceleration = np.diff(FLIP.skeleton.centre_of_mass(FLIP.joints), n=2, axis=0) * FLIP.fps**2
    inside = FLYING[:-2] & FLYING[2:]
    gravity = np.tile([0.0, 0.0, -GRAVITY], (int(inside.sum()), 1))
    np.testing.assert_allclose(acceleration[inside], gravity, rtol=0, atol=1e-6)
    # On the ground it only ever pushes: the floor does not pull. Two seconds of second differences know nothing of the
    # two jolts.
    grounded = ~FLYING[:-2] & ~FLYING[2:] & ~FLYING[1:-1]
    assert (acceleration[grounded, 2] > -GRAVITY).all()


def test_its_angular_momentum_stays_in_flight():
    x = FLIP.joints - FLIP.skeleton.centre_of_mass(FLIP.joints)[:, None]
    # Central differences at 120 Hz of joints that turn at 20 rad/s are wrong by (20 / 120)^2 / 6 = 0.5 %.
    momentum = (FLIP.skeleton.masses[:, None] * np.cross(x[1:-1], (x[2:] - x[:-2]) * FLIP.fps / 2)).sum(1)[:, 0]
    aloft = momentum[FLYING[:-2] & FLYING[2:]]
    assert aloft.min() > 40  # backward, about the body's right, which is +x
    assert aloft.max() - aloft.min() < 0.02 * aloft.mean()


def test_the_pelvis_turns_backward_once():
    up = FLIP.q[:, 0, :, 1]
    step = np.arctan2(up[:-1, 2] * -up[1:, 1] + up[:-1, 1] * up[1:, 2], (up[:-1] * up[1:]).sum(-1))
    assert float(step.sum()) == pytest.approx(2 * np.pi, abs=1e-9)
    assert (step[FLYING[:-1]] > 0).all()
    assert float(step.max()) * FLIP.fps < 15  # rad/s; people manage about as much
    assert np.allclose(FLIP.q[-1, 0], FLIP.q[0, 0], atol=1e-9)


def test_its_feet_stand_on_the_floor_before_and_after():
    # Rotations by a whole turn are rounded at 1e-8.
    assert HEIGHTS.min() > -1e-6
    lowest = HEIGHTS.min(-1)
    assert np.abs(lowest[~FLYING]).max() < 1e-6
    assert lowest[FLYING].max() > 1.0  # a tucked body, high up
    toes = FLIP.joints[:, [10, 11]]
    for there in (TIME <= TAKE_OFF, TIME >= LANDING):
        assert np.linalg.norm(toes[there] - toes[there][:1], axis=-1).max() < 1e-6
    moved = toes[-1] - toes[0]
    assert (moved[:, 1] < -0.2).all()
    assert (moved[:, 1] > -0.5).all()


def test_its_joints_bend_as_a_persons():
    # About rest x, hips bend to the front (negative) and knees to the back; its own left and right do the same.
    def degrees(name: str) -> np.ndarray:
        R = FLIP.q[:, joint_index(name)]
        return np.rad2deg(np.arctan2(R[:, 2, 1], R[:, 1, 1]))

    for side in ("left", "right"):
        hip, knee, ankle = (degrees(f"{side}_{part}") for part in ("hip", "knee", "ankle"))
        assert hip.min() > -135
        assert hip.max() < 20
        assert knee.min() > 3
        assert knee.max() < 145
        assert ankle.min() > -45
        assert ankle.max() < 75
    np.testing.assert_allclose(FLIP.mirrored().joints, FLIP.joints, rtol=0, atol=1e-9)


def test_its_bones_are_exact():
    assert FLIP.skeleton.bone_error(FLIP.joints).max() < 1e-9


def test_it_moves_smoothly_enough():
    # The feet of a tucked body that turns at 12 rad/s, half a metre out, and the hands that swing up: nothing is faster
    # than 12 m/s.
    assert np.linalg.norm(FLIP.velocity(), axis=-1).max() < 12.0


def test_a_short_one_ends_in_the_middle():
    short = somersault_clip(1.5, 30.0)
    assert len(short) == 45
    np.testing.assert_allclose(short.joints, somersault_clip(4.0, 30.0).joints[:45], rtol=0, atol=1e-12)
