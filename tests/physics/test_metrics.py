"""Every metric on motions whose answer is known by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.motion import Motion
from dropsim.motion.posture import pitch
from dropsim.motion.synthetic import FACING_Y, stepping_clip
from dropsim.physics import metrics
from dropsim.priors.pose import PosePrior

SKELETON = Skeleton.adult()
T, FPS = 60, 30.0
UP_AXIS = np.array([0.0, 0.0, 1.0])
TIME = np.arange(T) / FPS


def standing(path: np.ndarray, *, fps: float = FPS, turn: np.ndarray | None = None) -> Motion:
    """A person in the rest pose whose soles (the toes' spheres) are at z = 0, moved along a path [m] and turned about z [rad]."""
    q = np.tile(np.eye(3), (len(path), NUM_JOINTS, 1, 1))
    q[:, 0] = FACING_Y
    if turn is not None:
        q[:, 0] = rotvec_to_rotmat(turn[:, None] * UP_AXIS) @ q[:, 0]
    return Motion.from_rotations(SKELETON, fps, path + SKELETON.standing_height * UP_AXIS, q)


def path(
    x: np.ndarray | float = 0.0, y: np.ndarray | float = 0.0, z: np.ndarray | float = 0.0, *, time: np.ndarray = TIME
) -> np.ndarray:
    return np.stack([np.broadcast_to(v, len(time)).astype(float) for v in (x, y, z)], axis=-1)


STILL = standing(path())


def close(value: np.ndarray | float, expected: float, *, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance)


def changed(joint: int, way: np.ndarray | tuple[float, ...], frames: slice = slice(None)) -> Motion:
    """Somebody who stands still, one of whose joints is moved in some frames [m]."""
    joints = STILL.joints.copy()
    joints[frames, joint] += way
    return replace(STILL, joints=joints)


def moving(fps: float, turn: float = 0.0) -> Motion:
    """Somebody who moves at 1.2 m/s, or turns on the spot [rad/s]."""
    time = np.arange(round(2 * fps)) / fps
    return standing(path(0.0 if turn else 1.2 * time, time=time), fps=fps, turn=turn * time)


def cubic(fps: float) -> Motion:
    time = np.arange(40) / fps
    return standing(path(2 * time**3 + time, -1.5 * time**3 + 4 * time**2, time=time), fps=fps)


FOREARM = STILL.joints[0, 20] - STILL.joints[0, 18]
QUARTERS = standing(path(z=np.repeat([-0.02, 0.03, 0.0, 0.0], 15)))
VALUES = [
    *((metric, STILL, 0.0) for metric in (metrics.penetration_mm, metrics.float_mm, metrics.foot_skate, metrics.jerk)),
    # Penetration and float count beyond 5 mm, whichever sphere is the lowest, and are means over the frames.
    *((metrics.penetration_mm, standing(path(z=z)), mm) for z, mm in ((-0.02, 15.0), (0.03, 0.0), (-0.004, 0.0))),
    *((metrics.float_mm, standing(path(z=z)), mm) for z, mm in ((-0.02, 0.0), (0.03, 25.0), (0.004, 0.0))),
    (metrics.penetration_mm, QUARTERS, 15.0 / 4),
    (metrics.float_mm, QUARTERS, 25.0 / 4),
    (metrics.penetration_mm, changed(20, (0.0, 0.0, SKELETON.radii[20] - 0.1 - STILL.joints[0, 20, 2])), 95.0),
    # 0.6 m/s along x and 0.8 m/s along y are 1 m/s; down is no skate. Weights are 2 - 2^(h / 3 cm) between 0 and 3 cm,
    # at the higher of two frames, and both feet count.
    (metrics.foot_skate, standing(path(0.6 * TIME, 0.8 * TIME)), 1.0),
    (metrics.foot_skate, standing(path(z=-TIME)), 0.0),
    *(
        (metrics.foot_skate, standing(path(2 * TIME, z=height)), 2 * weight)
        for height, weight in ((0.015, 2 - math.sqrt(2)), (0.03, 0.0), (0.1, 0.0), (-0.1, 1.0))
    ),
    (metrics.foot_skate, standing(path(TIME, z=0.015 * (np.arange(T) % 2))), 2 - math.sqrt(2)),
    (metrics.foot_skate, changed(10, path(TIME)), 0.5),
    # x = 2 t^3 and y = -1.5 t^3 have the third derivatives 12 and 9, and a cubic's third difference is exact.
    *((metrics.jerk, cubic(fps), 15.0) for fps in (30.0, 120.0)),
    # Out along the forearm by 3 % of its length in one frame.
    (metrics.bone_error_percent, changed(20, 0.03 * FOREARM, slice(7, 8)), 3.0),
    # Speeds do not depend on the rate of frames.
    *((metrics.root_speed, moving(fps), 1.2) for fps in (30.0, 60.0, 25.0)),
    *((metrics.turn_rate, moving(fps, turn), turn) for fps in (30.0, 25.0) for turn in (0.7, -0.7)),
    (metrics.root_speed, moving(30.0, 0.7), 0.0),
    (metrics.foot_skate, standing(path(1.2 * TIME)).resampled(20.0), 1.2),
]


@pytest.mark.parametrize(("metric", "motion", "expected"), VALUES)
def test_values_are_those_known_by_hand(metric, motion: Motion, expected: float):
    close(metric(motion), expected, tolerance=1e-7)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_speed_of_short_motions(count: int):
    short = standing(path(1.2 * TIME)[:count])
    for values, expected in ((metrics.root_speed(short), 1.2), (metrics.turn_rate(short), 0.0)):
        # They use what they have: one value over the whole length, and none of a single frame.
        assert values.shape == (min(1, count - 1),)
        close(values, expected)


# --- up or down


@pytest.mark.parametrize(
    ("pelvis", "head", "is_up", "is_down"),
    [
        (0.76, 0.76, True, False),
        (0.74, 1.0, False, False),
        (1.0, 0.74, False, False),
        (0.46, 0.46, False, False),
        (0.44, 1.0, False, True),
        (1.0, 0.44, False, True),
    ],
)
def test_upright_and_fallen(pelvis: float, head: float, is_up: bool, is_down: bool):
    motion = replace(STILL, joints=STILL.joints.copy())
    motion.joints[:, [0, 15], 2] *= (pelvis, head)
    assert metrics.upright(motion).tolist() == [is_up] * T
    assert metrics.fallen(motion).tolist() == [is_down] * T


# --- human or not


def bad(change: str) -> Motion:
    joints = STILL.joints.copy()
    match change:
        case "NaN":
            joints[30, 21, 0] = np.nan
        case "infinite":
            joints[30, 3, 2] = np.inf
        case "too fast":  # 13 m/s for one frame, of the whole body, so that its bones stay whole
            joints[30:] += np.array([13.0 / FPS, 0, 0])
        case "sunk":
            joints[30] -= np.array([0, 0, 0.11])
        case "hovering":  # a second and a frame at 9 cm
            joints[20:51] += np.array([0, 0, 0.09])
        case "hovering to the end":
            joints[30:] += np.array([0, 0, 0.09])
        case "torn":
            joints[30, 20] = joints[30, 18] + 1.03 * (joints[30, 20] - joints[30, 18])
        case "in the sky":
            # Up by 0.8 m and down again at 2.4 m/s, off the floor for less than a second.
            joints[..., 2] += np.maximum(0.8 - 2.4 * np.abs(TIME - 1), 0)[:, None]
    return replace(STILL, joints=joints)


CHANGES = ("NaN", "infinite", "too fast", "sunk", "hovering", "hovering to the end", "torn", "in the sky")


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_human(change: str):
    assert not metrics.human(bad(change))


def test_what_is_human():
    assert metrics.human(STILL)
    assert metrics.human(stepping_clip(2.0))
    # 11 m/s, 9 cm deep, 0.9 s in the air, bones off by 1 %.
    assert metrics.human(standing(path(11 * TIME)))
    assert metrics.human(standing(path(z=-0.09)))
    jump = np.zeros(T)
    jump[10:37] = 0.09
    assert metrics.human(standing(path(z=jump)))
    assert metrics.human(changed(20, 0.01 * FOREARM, slice(30, 31)))


@pytest.mark.parametrize("count", [2, 5, 29, 30, 31])
def test_motions_of_less_than_a_second(count: int):
    assert metrics.human(STILL.slice(0, count))
    assert not metrics.human(bad("sunk").slice(30, 30 + count))
    # Off the floor for all of it: a second of that is too long, anything less may be a jump.
    assert bool(metrics.human(bad("hovering").slice(20, 20 + count))) == (count < FPS)


# --- pushes


def heights(*shares: float, fps: float = 1.0) -> Motion:
    """A person whose pelvis and head are at these shares of their height, a frame each."""
    joints = STILL.joints[: len(shares)].copy()
    joints[:, [0, 15], 2] *= np.array(shares)[:, None]
    return replace(STILL.slice(0, len(shares)), joints=joints, fps=fps)


UP, BENT, DOWN = 1.0, 0.6, 0.3


@pytest.mark.parametrize(
    ("shares", "fell", "got_up"),
    [
        # At 1 Hz, pushed until frame 1.
        ((UP, BENT, BENT, UP, UP, BENT), False, False),
        ((UP, UP, DOWN, BENT, BENT, UP), True, True),
        ((UP, UP, DOWN, DOWN, DOWN, DOWN), True, False),
        # Whoever lay before the push and not after it did not fall.
        ((DOWN, UP, UP, UP, UP, UP), False, False),
    ],
)
def test_falls_and_getting_up(shares, fell: bool, got_up: bool):
    motion = heights(*shares)
    assert bool(metrics.fell(motion, 1)) == fell
    assert bool(metrics.got_up(motion, 1)) == got_up


def test_getting_up_has_eight_seconds():
    assert metrics.got_up(heights(DOWN, *[DOWN] * 7, UP, UP), 0)
    assert not metrics.got_up(heights(DOWN, *[DOWN] * 8, UP), 0)
    # Bent is not up.
    assert not metrics.got_up(heights(DOWN, BENT, BENT), 0)


def stepping(times: int, fps: float = FPS) -> Motion:
    """A person who lifts the left foot by 10 cm again and again, half a second each, and stands on the right one."""
    time = np.arange(round(times * fps) + 1) / fps
    motion = standing(path(time=time), fps=fps)
    joints = motion.joints.copy()
    joints[:, [7, 10], 2] += np.maximum(0.1 * np.sin(2 * math.pi * time), 0)[:, None]
    return replace(motion, joints=joints)


@pytest.mark.parametrize("fps", [20.0, 30.0, 120.0])
def test_every_foot_that_comes_down_is_a_step(fps: float):
    assert int(metrics.footfalls(stepping(4, fps))) == 4
    # The first comes down at 0.47 s: from 0.6 s on there are three.
    assert int(metrics.footfalls(stepping(4, fps), round(0.6 * fps))) == 3


def test_trembling_and_hovering_are_no_steps():
    assert int(metrics.footfalls(STILL)) == 0
    assert int(metrics.footfalls(standing(path(z=0.03 * (np.arange(T) % 2))))) == 0
    assert int(metrics.footfalls(standing(path(z=0.5)))) == 0


def test_spin_counts_only_while_lying():
    # 3 rad/s about the vertical; lying from the second half on, and there at 6 rad/s.
    angle = np.concatenate((3 * TIME[:30], 3 * TIME[30] + 6 * (TIME[30:] - TIME[30])))
    turning = standing(path(), turn=angle)
    assert np.isnan(metrics.spin_while_lying(turning))
    joints = turning.joints.copy()
    joints[31:, :, 2] *= 0.3
    close(metrics.spin_while_lying(replace(turning, joints=joints)), 6.0, tolerance=1e-6)
    assert np.isnan(metrics.spin_while_lying(replace(turning, joints=joints), T))


def test_standing_needs_no_help_and_hovering_a_body_weight():
    close(metrics.root_wrench(STILL).max(), 0.0, tolerance=1e-6)
    hovering = metrics.root_wrench(standing(path(z=0.2)))
    close(hovering[..., 0], 1.0, tolerance=1e-6)
    # Upward at 2 g while nothing is touched: three body weights, gravity's and the acceleration's two.
    rising = standing(path(z=0.2 + 9.81 * TIME**2))
    close(metrics.root_wrench(rising)[..., 0], 3.0, tolerance=1e-6)


def test_a_push_in_flight_is_explained_by_the_force_that_the_motion_holds():
    # A free body in the rest pose: a_t = (x_{t+1} - 2 x_t + x_{t-1}) / h^2 is gravity, and F / M while the push acts.
    # Forces are stored at the end of the step over which they act, so the force of a_t is that of frame t + 1, and
    # nothing is left unexplained in any frame.
    pushes, mass, h = np.zeros((T, 3)), float(SKELETON.masses.sum()), 1 / FPS
    pushes[20:35] = (300.0, -100.0, 50.0)
    acceleration = pushes[2:] / mass - 9.81 * UP_AXIS
    velocity = np.concatenate((np.zeros((1, 3)), np.cumsum(acceleration * h, axis=0)))
    place = 50 * UP_AXIS + np.concatenate((np.zeros((1, 3)), np.cumsum(velocity * h, axis=0)))
    shares = (SKELETON.masses / mass)[:, None]
    pushed = replace(standing(place), external_forces=pushes[:, None] * shares)
    # Rounding: 1e-15 of 50 m over h^2 and g.
    close(metrics.root_wrench(pushed), 0.0, tolerance=1e-9)


def test_out_of_range_counts_frames():
    pose = PosePrior.shipped()
    broken = STILL.q.copy()
    broken[:15, 4] = rotvec_to_rotmat(np.array([-2.5, 0.0, 0.0]))  # a knee bent forward by far
    close(metrics.out_of_range_percent(STILL, pose), 0.0)
    close(metrics.out_of_range_percent(replace(STILL, q=broken), pose), 25.0)


# --- stopping


def stopping(speed: float, seconds: float, *, after: float = 0.0, length: float = 8.0) -> Motion:
    """Somebody who goes at a speed for a while, and then at another one."""
    time = np.arange(round(length * FPS)) / FPS
    return standing(path(y=speed * np.minimum(time, seconds) + after * np.maximum(time - seconds, 0), time=time))


def test_people_stop_once_their_mean_speed_is_low():
    # 1 m/s until 2 s: the mean over 9 frames is below 0.2 m/s once less than 1.8 frames of the window, which begins 4
    # frames earlier, move.
    motion = stopping(1.0, 2.0)
    close(metrics.seconds_to_stop(motion, 3), (60 - 1 + 4 - 3) / FPS)
    close(metrics.stop_distance(motion, 0, 3), 2.0)
    close(metrics.stop_distance(motion, 15, 18), 1.5)
    assert metrics.seconds_to_stop(STILL, 3) <= 2 / FPS


def test_people_who_go_on_never_stop():
    # 0.22 m/s is no standing, though 0.25 m/s would be after a stop; a shorter motion does not show that somebody
    # stays.
    for motion in (stopping(1.0, 9.0), stopping(1.0, 2.0, after=0.22)):
        close(metrics.seconds_to_stop(motion, 3), 6.0)
    close(metrics.stop_distance(stopping(1.0, 9.0), 0, 3), 6.1)
    close(metrics.seconds_to_stop(STILL.slice(0, 12), 3), 6.0)


def test_a_short_halt_is_no_stop():
    # Half a second below 0.25 m/s takes 15 frames.
    time = np.arange(240) / FPS
    halting = standing(path(y=np.minimum(time, 1.0) + np.maximum(time - 1.4, 0) - np.maximum(time - 3.0, 0), time=time))
    assert metrics.seconds_to_stop(halting, 0) == pytest.approx(3.0, abs=0.15)


# --- posture


@pytest.mark.parametrize("degrees", [-30.0, 0.0, 20.0])
def test_the_pitch_is_how_far_a_joint_looks_up(degrees: float):
    # About the left axis, +x in the body's frame, a positive turn takes forward (+z) down.
    q = STILL.q.copy()
    q[:, 12] = rotvec_to_rotmat(np.array([-math.radians(degrees), 0.0, 0.0]))
    close(pitch(replace(STILL, q=q), "head"), degrees)
    close(pitch(replace(STILL, q=q), "pelvis"), 0.0)


def test_a_twist_is_about_the_bone_only():
    shin = SKELETON.offsets[7] / np.linalg.norm(SKELETON.offsets[7])
    q = STILL.q.copy()
    q[30:, 4] = rotvec_to_rotmat(math.radians(50.0) * shin)
    twist = metrics.bone_twist(replace(STILL, q=q), "left_knee", "left_ankle")
    assert len(twist) == T - 1
    close(twist[29], 50.0, tolerance=1e-6)
    close(np.delete(twist, 29), 0.0, tolerance=1e-5)
    q[30:, 4] = rotvec_to_rotmat(np.cross(shin, (1.0, 0.0, 0.0)))
    close(metrics.bone_twist(replace(STILL, q=q), "left_knee", "left_ankle"), 0.0, tolerance=1e-5)


# --- batches


def since_of(motion: Motion) -> np.ndarray:
    """A frame of everybody's own: 20, or 10 for those who start lower."""
    return np.where(motion.joints[..., 0, 0, 2] < STILL.joints[0, 0, 2] - 0.01, 10, 20)


MEASURES = (
    metrics.penetration_mm, metrics.float_mm, metrics.foot_skate, metrics.jerk, metrics.bone_error_percent,
    metrics.root_speed, metrics.turn_rate, metrics.upright, metrics.fallen, metrics.human,
    metrics.footfalls, metrics.spin_while_lying,
    lambda m: metrics.fell(m, since_of(m)), lambda m: metrics.got_up(m, since_of(m)),
    lambda m: metrics.seconds_to_stop(m, 20), lambda m: metrics.stop_distance(m, 17, 20),
    lambda m: pitch(m, "head"), lambda m: metrics.bone_twist(m, "left_knee", "left_ankle"),
)  # fmt: skip


@pytest.mark.parametrize("metric", MEASURES, ids=lambda metric: metric.__name__)
def test_a_batch_is_its_members(metric):
    members = [
        STILL,
        stepping_clip(2.0),
        standing(path(TIME, z=0.003), turn=TIME),
        standing(path(z=-0.02)),
        *(bad(change) for change in CHANGES),
    ]
    one_by_one = np.stack([metric(m) for m in members])
    stacked = Motion(
        SKELETON, FPS, *(np.stack([getattr(m, name) for m in members]) for name in ("root", "q", "joints"))
    )
    np.testing.assert_allclose(metric(stacked), one_by_one)
    grid = stacked.map(lambda values: values.reshape(2, 6, *values.shape[1:]))
    np.testing.assert_allclose(metric(grid), one_by_one.reshape(2, 6, *one_by_one.shape[1:]))
