"""Measures of motion quality: functions of a Motion, batched over its leading dimensions, in the unit of the name.

`since` and `end` are frames: one number for everybody, or one per person. Speed, which depends on the machine, is in
`research.evaluation.bench`.
"""

import functools
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.capsules import deepest_overlap
from dropsim.body.joints import joint_index
from dropsim.body.rotations import normalize, twist_about
from dropsim.body.skeleton import Skeleton, flat
from dropsim.motion.contacts import bearing_heights, sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import wrench
from dropsim.physics.options import SimulatorOptions
from dropsim.priors.pose import PosePrior

FEET = (7, 8, 10, 11)
TOES = (10, 11)
TOLERANCE = 0.005
"""Largest distance from the floor of a sphere that counts as touching it [m]."""
LOW = 0.05
"""Height up to which a sphere can bear a contact force [m]."""
GET_UP = 8.0
"""Time within which people who fell may get up [s]."""
LIFTED, LANDED = 0.04, 0.02
"""A foot is lifted when ankle and toes are higher than the first above where they stand, and has landed below the
second [m]."""
TOUCHING = 0.02
"""Spheres within this of the floor can bear a contact force, in the ledger [m]."""
LEDGER_ARM = 1.0
"""Arm at which a moment weighs as much as a force [m], as in the paper: forces are explained first."""
LEDGER = 0.5
"""Time over which unexplained impulses are summed up [s]."""
STANDING, RUNNING = 0.2, 2.2
"""A person slower than the first stands, one faster than the second runs, between them they walk [m/s]."""
TURNING = 1.0
"""People who turn do it faster than this [rad/s]."""
SLOWER, SLOW = 0.2, 0.25
"""A person stops when slower than the first, and stands while slower than the second [m/s]."""
STOP_WINDOW, STOP_STAYS, STOP_LATEST = 0.3, 0.5, 6.0
"""Time over which the speed of somebody who stops is averaged, for which it stays low, and after which they count as
never stopping [s]."""
HUMAN_SINK = 0.10
"""Deepest that any joint sphere of a human motion may go below the floor [m]."""
HUMAN_SPEED = 12.0
"""Fastest that any joint of a human motion may move [m/s]."""

FrameIndex = int | Int[np.ndarray, "*b"]
"""A frame, the same for everybody or one per person."""
if TYPE_CHECKING:
    Numbers: TypeAlias = Any
    Flags: TypeAlias = Any
    Counts: TypeAlias = Any
else:
    # One value per person; a numpy scalar for a motion without leading dimensions.
    Numbers = Float[np.ndarray, "*b"] | np.floating
    Flags = Bool[np.ndarray, "*b"] | np.bool_
    Counts = Int[np.ndarray, "*b"] | np.integer


def penetration_mm(motion: Motion) -> Numbers:
    """Mean depth of the lowest joint sphere below the floor beyond 5 mm (PhysDiff)."""
    return 1000 * np.maximum(-(sphere_heights(motion).min(-1) + TOLERANCE), 0).mean(-1)


def float_mm(motion: Motion) -> Numbers:
    """Mean height of the lowest joint sphere above the floor beyond 5 mm (PhysDiff)."""
    return 1000 * np.maximum(sphere_heights(motion).min(-1) - TOLERANCE, 0).mean(-1)


def foot_skate(motion: Motion) -> Numbers:
    """Mean horizontal speed of the toes, weighted by 2 - 2^(h / 3 cm) of their height above the floor [m/s] (DART)."""
    heights = sphere_heights(motion)[..., TOES]
    height = np.maximum(heights[..., 1:, :], heights[..., :-1, :])
    speeds = _norm(np.diff(motion.joints[..., TOES, :2], axis=-3)) * motion.fps
    return (speeds * (2 - 2 ** np.clip(height / 0.03, 0, 1))).mean((-1, -2))


@np.errstate(invalid="ignore")
def jerk(motion: Motion) -> Numbers:
    """Mean norm of the third difference of the joints [m/s^3] (DART)."""
    return _norm(np.diff(motion.joints, n=3, axis=-3)).mean((-1, -2)) * motion.fps**3


def bone_error_percent(motion: Motion) -> Numbers:
    """Largest relative error of a bone's length over the motion."""
    return 100 * motion.skeleton.bone_error(motion.joints).max(-1)


def root_wrench(motion: Motion, *, cylinders: bool = False) -> Float[np.ndarray, "*b t 2"]:
    """Force and moment that no contact explains, in body weights and body weights at 1 m (DROP, ManipNet).

    Whatever is within 5 cm of level ground may bear a force, as in the simulator, so that recordings and simulations
    compare. The external forces that the motion holds are accounted for. Masses are points at the joints, or bones are
    solid cylinders.
    """
    return wrench.root_wrench_of_motion(motion, sphere_heights(motion) < LOW, cylinders=cylinders)


def ledger(motion: Motion) -> Float[np.ndarray, "*b w 2"]:
    """Return the unexplained impulse of every half second: over the mass [m/s], and as spin [rad/s].

    The first is the larger of its horizontal and its vertical part. An acceleration spans three frames (x_{t-1} - 2 x_t
    + x_{t+1}), so whatever is within 2 cm of level ground in one of them may bear a force, in the friction cone. Forces
    and moments [N, N m] are fitted together, as in the paper: a moment weighs as at 1 m.
    """
    low = bearing_heights(motion) < TOUCHING
    low = np.roll(low, 1, axis=-2) | low | np.roll(low, -1, axis=-2)  # the ends, which wrap around, are not looked at
    skeleton, h, x = motion.skeleton, 1 / motion.fps, motion.joints[..., 1:-1, :, :]
    residual = wrench.unexplained_of_motion(
        motion, low, options=SimulatorOptions(moment_arm=LEDGER_ARM, largest_bearing=wrench.IMPACT)
    )
    turns = np.linalg.solve(_inertia(x, skeleton), residual[..., 3:, None])[..., 0]
    rates = np.concatenate((residual[..., :3] / skeleton.masses.sum(), turns), -1)
    sums = np.cumsum(np.concatenate((np.zeros_like(rates[..., :1, :]), rates * h), -2), -2)
    span = min(round(LEDGER * motion.fps), rates.shape[-2])
    impulse = sums[..., span:, :] - sums[..., :-span, :]
    linear = np.maximum(_norm(impulse[..., :2]), np.abs(impulse[..., 2]))
    return np.stack((linear, _norm(impulse[..., 3:])), -1)


def _inertia(x: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton) -> Float[np.ndarray, "*b 3 3"]:
    """Return a body's inertia about its centre of mass [kg m^2]."""
    arms = x - skeleton.centre_of_mass(x)[..., None, :]
    second = np.einsum("j,...ja,...jb->...ab", skeleton.masses, arms, arms)
    return np.trace(second, axis1=-2, axis2=-1)[..., None, None] * np.eye(3) - second


def self_overlap_mm(motion: Motion) -> Float[np.ndarray, "*b t"]:
    """Deepest overlap of the body's own capsules that should keep apart, in every frame."""
    depth = np.empty(motion.joints.shape[:-2])
    deepest_overlap(flat(motion.joints, 2), motion.skeleton.arrays.capsules, depth.reshape(-1))
    return 1000 * depth


def out_of_range_percent(motion: Motion, pose: PosePrior) -> Numbers:
    """Share of the frames whose pose code is longer than the pose model's limit, 6 (DROP)."""
    return 100 * (pose.norm(motion.q) > pose.limit).mean(-1)


def root_speed(motion: Motion) -> Float[np.ndarray, "*b t"]:
    """Horizontal speed of the pelvis over half a second [m/s]; shorter motions use what they have."""
    span = min(len(motion) - 1, round(motion.fps / 2))
    place = motion.root[..., :2]
    return _norm(place[..., span:, :] - place[..., :-span, :]) * motion.fps / span


def turn_rate(motion: Motion) -> Float[np.ndarray, "*b t"]:
    """Counterclockwise turn rate of the heading over half a second [rad/s]; shorter motions use what they have."""
    span = min(len(motion) - 1, round(motion.fps / 2))
    left = motion.q[..., 0, :2, 0]
    before, after = left[..., :-span, :], left[..., span:, :]
    sine = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    return np.arctan2(sine, (before * after).sum(-1)) * motion.fps / span


def upright(motion: Motion) -> Bool[np.ndarray, "*b t"]:
    """Head and pelvis above 0.75 of their standing height."""
    return above(motion.joints, motion.skeleton, 0.75).all(-1)  # pyright: ignore[reportReturnType]


def fallen(motion: Motion) -> Bool[np.ndarray, "*b t"]:
    """Pelvis or head below 0.45 of its standing height."""
    return lying(motion.joints, motion.skeleton)


def lying(
    joints: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton, floor: Float[np.ndarray, "*b"] | float = 0.0
) -> Flags:
    """Pelvis or head below 0.45 of its standing height above the floor."""
    return ~above(joints, skeleton, 0.45, floor).all(-1)


def above(
    joints: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton, share: float, floor: Float[np.ndarray, "*b"] | float = 0.0
) -> Bool[np.ndarray, "*b 2"]:
    """Whether the pelvis and the head are above a share of their height in the rest pose."""
    return joints[..., (0, 15), 2] - np.asarray(floor)[..., None] > share * _standing(skeleton, (0, 15))


@np.errstate(invalid="ignore")
def human(motion: Motion) -> Flags:
    """Whether a motion stays human to its end: finite, bones whole, on the floor, not through it, at human speeds."""
    joints, lowest = motion.joints, sphere_heights(motion).min(-1)
    finite = np.isfinite(joints).all((-1, -2, -3))
    fast = _norm(np.diff(joints, axis=-3)).max((-1, -2)) * motion.fps > HUMAN_SPEED
    in_bounds = ((joints[..., 0, 2] < 1.6) & (lowest > -HUMAN_SINK)).all(-1)
    # A second off the floor is no jump; a motion that is shorter can only jump.
    hovering = sustained(lowest > 0.08, round(motion.fps)).any(-1)
    return finite & in_bounds & ~fast & ~hovering & (bone_error_percent(motion) < 2.0)


def sustained(flags: Bool[np.ndarray, "*b t"], num: int) -> Bool[np.ndarray, "*b w"]:
    """Whether flags hold for `num` frames in a row, for each frame from which there are as many."""
    if flags.shape[-1] < num:
        return flags[..., :0]
    return np.lib.stride_tricks.sliding_window_view(flags, num, axis=-1).all(-1)  # pyright: ignore[reportReturnType]


def bone_twist(motion: Motion, joint: str, child: str) -> Float[np.ndarray, "*b t"]:
    """Return the angle by which a bone turns about itself from each frame to the next [degrees]."""
    rotations = motion.skeleton.global_rotations(motion.q)[..., joint_index(joint), :, :]
    turns = rotations[..., :-1, :, :].swapaxes(-1, -2) @ rotations[..., 1:, :, :]
    return np.degrees(_angle(twist_about(turns, normalize(motion.skeleton.offsets[joint_index(child)]))))


# --- pushes


def fell(motion: Motion, since: FrameIndex) -> Flags:
    """Whether somebody lay at any time from a frame on."""
    return (fallen(motion) & _from(motion, since)).any(-1)


def got_up(motion: Motion, since: FrameIndex) -> Flags:
    """Whether somebody who lay, from a frame on, was upright within eight seconds after they first did."""
    down = fallen(motion) & _from(motion, since)
    time, first = np.arange(len(motion)), down.argmax(-1)[..., None]
    return down.any(-1) & (upright(motion) & (time > first) & (time <= first + round(GET_UP * motion.fps))).any(-1)


def seconds_to_stop(motion: Motion, end: FrameIndex) -> Numbers:
    """Time from a push's end until somebody stands [s]: below 0.2 m/s, and 0.25 m/s for half a second; 6 for never.

    The speed is that of the centre of mass over the ground, averaged over the 0.3 s around a frame.
    """
    return (_stop_frame(motion, end) - _per_person(motion, end))[..., 0] / motion.fps


def stop_distance(motion: Motion, start: FrameIndex, end: FrameIndex) -> Numbers:
    """Distance of the centre of mass from a push's start to where somebody stands, or is 6 s after its end [m]."""
    centre = motion.skeleton.centre_of_mass(motion.joints)[..., :2]
    frames = np.stack((_per_person(motion, start), np.minimum(_stop_frame(motion, end), len(motion) - 1)), -2)
    first, last = np.moveaxis(np.take_along_axis(centre, frames, -2), -2, 0)
    return np.linalg.norm(last - first, axis=-1)


def _stop_frame(motion: Motion, end: FrameIndex) -> Int[np.ndarray, "*b 1"]:
    """Return the frame at which somebody stands again after a push's end; 6 s after it for those who never do."""
    centre = motion.skeleton.centre_of_mass(motion.joints)[..., :2]
    span, stays, first = round(STOP_WINDOW * motion.fps), round(STOP_STAYS * motion.fps), _per_person(motion, end)
    speed = _norm(centre[..., span:, :] - centre[..., :-span, :]) * motion.fps / span
    stays_slow = sustained(speed < SLOW, stays)
    frames = np.arange(stays_slow.shape[-1]) + span // 2
    stands = stays_slow & (speed[..., : len(frames)] < SLOWER) & (frames >= first)
    latest = first + round(STOP_LATEST * motion.fps)
    return np.concatenate((np.where(stands, frames, latest), latest), -1).min(-1, keepdims=True)


def footfalls(motion: Motion, since: FrameIndex = 0) -> Counts:
    """Count the steps from a frame on: a foot that was lifted by 4 cm comes within 2 cm of where feet stand."""
    aloft = _aloft(motion)[0]
    return (aloft[..., :-1, :] & ~aloft[..., 1:, :] & _from(motion, since)[..., 1:, None]).sum((-1, -2))


def _aloft(motion: Motion) -> tuple[Bool[np.ndarray, "*b t 2"], Int[np.ndarray, "*b t 2"]]:
    """Return which feet are lifted, and the last frame at which each stood, counted from 1."""
    heights = motion.joints[..., FEET, 2] - _standing(motion.skeleton, FEET)
    # A foot is as low as the lower of its ankle and toes, and between the two heights it is what it was last.
    foot = np.minimum(heights[..., :2], heights[..., 2:])
    time = np.arange(1, len(motion) + 1)[:, None]
    lifted, landed = (np.maximum.accumulate(flags * time, axis=-2) for flags in (foot > LIFTED, foot < LANDED))
    return lifted > landed, landed


def first_step(motion: Motion, since: FrameIndex = 0) -> Int[np.ndarray, "*b 3"]:
    """Return the first step from a frame on: frame of lift-off, frame of landing, and foot (0 left, 1 right).

    All are -1 for people who take none. Lift-off is the last frame at which the foot is within 2 cm of where feet
    stand.
    """
    aloft, stood = _aloft(motion)
    lands = aloft[..., :-1, :] & ~aloft[..., 1:, :]
    lifts = stood[..., :-1, :] - 1
    lands &= lifts >= _per_person(motion, since)[..., None]
    # By lift-off, then by foot; the landing is the frame after.
    order = np.where(lands, 2 * lifts + np.arange(2), 2 * len(motion))
    order = order.reshape(*order.shape[:-2], -1)
    at = order.argmin(-1)
    first = np.stack((np.take_along_axis(order, at[..., None], -1)[..., 0] // 2, at // 2 + 1, at % 2), -1)
    return np.where(lands.any((-1, -2))[..., None], first, -1)  # pyright: ignore[reportIndexIssue]


def spin_while_lying(motion: Motion, since: FrameIndex = 0) -> Numbers:
    """95th percentile of the pelvis' angular speed while lying [rad/s]; NaN for people who never lie (DROP 8.6)."""
    lies = (fallen(motion) & _from(motion, since))[..., 1:]
    pelvis = motion.q[..., 0, :, :]
    spin = _angle(pelvis[..., 1:, :, :] @ pelvis[..., :-1, :, :].swapaxes(-1, -2)) * motion.fps
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        return np.nanquantile(np.where(lies, spin, np.nan), 0.95, axis=-1)


def _angle(turns: Float[np.ndarray, "*n 3 3"]) -> Float[np.ndarray, "*n"]:
    """Return the angles of turns [rad]."""
    return np.arccos(np.clip((np.trace(turns, axis1=-2, axis2=-1) - 1) / 2, -1, 1))


def _norm(vectors: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n"]:
    return np.linalg.norm(vectors, axis=-1)


def _per_person(motion: Motion, frame: FrameIndex) -> Int[np.ndarray, "*b 1"]:
    return np.broadcast_to(np.asarray(frame), motion.root.shape[:-2])[..., None]


def _from(motion: Motion, since: FrameIndex) -> Bool[np.ndarray, "*b t"]:
    """Mark the frames from one on."""
    return np.arange(len(motion)) >= _per_person(motion, since)


@functools.lru_cache(maxsize=16)
def _standing(skeleton: Skeleton, joints: tuple[int, ...]) -> Float[np.ndarray, "n"]:
    """Return the heights of joints above the sole in the rest pose [m]."""
    return skeleton.rest[joints, 1] - (skeleton.rest[:, 1] - skeleton.radii).min()
