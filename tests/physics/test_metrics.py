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


# --- the floor


def test_a_still_person_on_the_floor_has_no_fault():
    for metric in (
        metrics.penetration_mm,
        metrics.float_mm,
        metrics.foot_skate,
        metrics.jerk,
        metrics.bone_error_percent,
    ):
        close(metric(STILL), 0.0, tolerance=1e-8)


@pytest.mark.parametrize(
    ("height", "sunk", "afloat"), [(-0.02, 15.0, 0.0), (0.03, 0.0, 25.0), (0.004, 0.0, 0.0), (-0.004, 0.0, 0.0)]
)
def test_penetration_and_float_count_beyond_5_mm(height: float, sunk: float, afloat: float):
    motion = standing(path(z=height))
    close(metrics.penetration_mm(motion), sunk)
    close(metrics.float_mm(motion), afloat)


def test_penetration_is_a_mean_over_all_frames():
    # A quarter of the frames 2 cm deep, a quarter 3 cm high, the others on the floor.
    z = np.zeros(T)
    z[:15], z[15:30] = -0.02, 0.03
    close(metrics.penetration_mm(standing(path(z=z))), 15.0 / 4)
    close(metrics.float_mm(standing(path(z=z))), 25.0 / 4)


def test_the_lowest_sphere_counts_whichever_it_is():
    joints = STILL.joints.copy()
    joints[:, 20, 2] = float(SKELETON.radii[20]) - 0.1  # a hand 10 cm in the floor
    close(metrics.penetration_mm(replace(STILL, joints=joints)), 95.0)


# --- sliding


def test_skate_of_a_body_that_slides():
    # 0.6 m/s along x and 0.8 m/s along y are 1 m/s: 1000/30 mm from each frame to the next; the last frame has no next
    # one.
    sliding = standing(path(0.6 * TIME, 0.8 * TIME))
    close(metrics.foot_skate(sliding), 1.0)


def test_falling_straight_down_is_no_skate():
    close(metrics.foot_skate(standing(path(z=-TIME))), 0.0)


@pytest.mark.parametrize(
    ("height", "weight"), [(0.0, 1.0), (0.015, 2 - math.sqrt(2)), (0.03, 0.0), (0.1, 0.0), (-0.1, 1.0)]
)
def test_foot_skate_is_weighted_by_height(height: float, weight: float):
    # 2 - 2^(h / 3 cm) between 0 and 3 cm: 1 on the floor, 2 - sqrt 2 half-way, 0 from there on.
    close(metrics.foot_skate(standing(path(2 * TIME, z=height))), 2 * weight)


def test_foot_skate_takes_the_higher_of_two_frames_and_the_mean_of_two_feet():
    up = 0.015 * (np.arange(T) % 2)
    close(metrics.foot_skate(standing(path(TIME, z=up))), 2 - math.sqrt(2))
    joints = standing(path(TIME)).joints.copy()
    joints[:, 10] = joints[:1, 10]  # one foot stays
    close(metrics.foot_skate(replace(STILL, joints=joints)), 0.5)


# --- smoothness and bones


@pytest.mark.parametrize("fps", [30.0, 120.0])
def test_jerk_of_a_cubic_is_its_third_derivative(fps: float):
    # x = 2 t^3 has the third derivative 12, and the third difference of a cubic is exactly 12 h^3; with y = -1.5 t^3
    # (9) it is 15 in all.
    time = np.arange(40) / fps
    motion = standing(path(2 * time**3 + time, -1.5 * time**3 + 4 * time**2, time=time), fps=fps)
    # Rounding: 1e-16 of a coordinate of 1 m times fps^3.
    close(metrics.jerk(motion), 15.0, tolerance=1e-15 * 10 * fps**3)


def test_bone_error_is_the_largest_of_any_bone_and_frame():
    joints = STILL.joints.copy()
    # Out along the forearm by 3 % of its length in one frame, and by 1 % in another.
    forearm = joints[:, 20] - joints[:, 18]
    joints[7, 20] += 0.03 * forearm[7]
    joints[9, 20] -= 0.01 * forearm[9]
    close(metrics.bone_error_percent(replace(STILL, joints=joints)), 3.0)


# --- the way


@pytest.mark.parametrize("fps", [30.0, 60.0, 25.0])
def test_speed_and_turn_rate_of_a_circle_do_not_depend_on_the_rate(fps: float):
    # 1.2 m/s in a straight line, and a turn of 0.7 rad/s on the spot.
    time = np.arange(round(2 * fps)) / fps
    walking = standing(path(1.2 * time, z=0.1 * time, time=time), fps=fps)
    close(metrics.root_speed(walking), 1.2)
    for rate in (0.7, -0.7):
        turning = standing(path(time=time), fps=fps, turn=rate * time)
        close(metrics.turn_rate(turning), rate)
        close(metrics.root_speed(turning).max(), 0.0)


def test_speed_is_the_same_after_resampling():
    walking = standing(path(1.2 * TIME))
    for fps in (60.0, 20.0):
        resampled = walking.resampled(fps)
        close(metrics.root_speed(resampled).mean(), metrics.root_speed(walking).mean())
        close(metrics.foot_skate(resampled), 1.2)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_speed_of_short_motions(count: int):
    short = standing(path(1.2 * TIME)[:count])
    for values, expected in ((metrics.root_speed(short), 1.2), (metrics.turn_rate(short), 0.0)):
        # They use what they have: one value over the whole length, and none of a single frame.
        assert values.shape == (min(1, count - 1),)
        close(values, expected)


# --- up or down


def at_share(pelvis: float, head: float) -> Motion:
    """Pelvis and head at shares of their height in the rest pose."""
    joints = STILL.joints.copy()
    joints[:, 0, 2] *= pelvis
    joints[:, 15, 2] *= head
    return replace(STILL, joints=joints)


@pytest.mark.parametrize(
    ("pelvis", "head", "is_up", "is_down"),
    [
        (1.0, 1.0, True, False),
        (0.76, 0.76, True, False),
        (0.74, 1.0, False, False),
        (1.0, 0.74, False, False),
        (0.46, 0.46, False, False),
        (0.44, 1.0, False, True),
        (1.0, 0.44, False, True),
    ],
)
def test_upright_and_fallen(pelvis: float, head: float, is_up: bool, is_down: bool):
    motion = at_share(pelvis, head)
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
    joints = STILL.joints.copy()
    joints[30, 20] = joints[30, 18] + 1.01 * (joints[30, 20] - joints[30, 18])
    assert metrics.human(replace(STILL, joints=joints))


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
    ("shares", "recovered", "fell", "got_up"),
    [
        # At 1 Hz, pushed until frame 1: judged at frame 4.
        ((UP, UP, UP, UP, UP, UP), True, False, False),
        ((UP, BENT, BENT, UP, UP, BENT), True, False, False),
        ((UP, DOWN, UP, BENT, UP, UP), True, True, True),
        ((UP, UP, DOWN, BENT, BENT, UP), False, True, True),
        ((UP, UP, DOWN, DOWN, DOWN, DOWN), False, True, False),
        # Who lay before the push and not after it did not fall.
        ((DOWN, UP, UP, UP, UP, UP), True, False, False),
        # Upright until the frame it is judged at, whatever comes after.
        ((UP, UP, UP, UP, UP, DOWN), True, True, False),
    ],
)
def test_recovery_falls_and_getting_up(shares, recovered: bool, fell: bool, got_up: bool):
    motion = heights(*shares)
    assert bool(metrics.recovered(motion, 1)) == recovered
    assert bool(metrics.fell(motion, 1)) == fell
    assert bool(metrics.got_up(motion, 1)) == got_up


def test_getting_up_has_eight_seconds():
    assert metrics.got_up(heights(DOWN, *[DOWN] * 7, UP, UP), 0)
    assert not metrics.got_up(heights(DOWN, *[DOWN] * 8, UP), 0)
    # Bent is not up.
    assert not metrics.got_up(heights(DOWN, BENT, BENT), 0)


def test_low_energy_is_recovery_too():
    bent = replace(heights(UP, UP, BENT, BENT, BENT), energies={"kinematic": np.array([9.0, 9.0, 9.0, 9.0, 2.0])})
    assert not metrics.recovered(bent, 1)
    assert metrics.recovered(bent, 1, energy_limit=2.0)
    assert not metrics.recovered(bent, 1, energy_limit=1.9)


def test_everybody_may_have_a_push_of_their_own():
    motion = heights(DOWN, UP, DOWN, UP, UP, UP, BENT)
    both = replace(motion, **{k: np.stack([getattr(motion, k)] * 2) for k in ("root", "q", "joints")})
    ends = np.array([0, 3])
    for metric in (
        metrics.recovered,
        metrics.fell,
        metrics.got_up,
        metrics.footfalls,
        metrics.spin_while_lying,
    ):
        np.testing.assert_allclose(metric(both, ends), [metric(motion, int(end)) for end in ends])
    assert metrics.fell(both, ends).tolist() == [True, False]


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

MEASURES = (
    metrics.penetration_mm, metrics.float_mm, metrics.foot_skate, metrics.jerk, metrics.bone_error_percent,
    metrics.root_speed, metrics.turn_rate, metrics.upright, metrics.fallen, metrics.human,
    metrics.footfalls, metrics.spin_while_lying,
    lambda m: metrics.fell(m, 20), lambda m: metrics.got_up(m, 20), lambda m: metrics.recovered(m, 20),
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
