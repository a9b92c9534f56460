"""Feet that stand: when they do, how far off they are, and legs that hold them in place."""

import functools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import gaussian_filter1d, maximum_filter1d

from dropsim.body.rotations import apply, dot, normalize, rotmat_to_rotvec, rotvec_to_rotmat, swing
from dropsim.body.skeleton import Skeleton
from dropsim.motion.contacts import ANKLES, FEET, RAISED, STATIC_SPEED, UPRIGHT, runs
from dropsim.motion.motion import Motion

HIPS, KNEES = (1, 2), (4, 5)
SLOW, STILL = 0.4, STATIC_SPEED
"""Speeds that a standing foot never reaches, and that it is below at some time [m/s]."""
RUNNING = 2.0
"""Speed of the pelvis above which these grow with it [m/s]: a runner's foot stands for three frames at 30 Hz."""
LOW = 0.03
"""Height of a standing foot above the floor at most [m]."""
LEVEL = 0.01
"""Distance from its median height at the ends of a stance at most [m]."""
SHORTEST = 0.1
"""Duration of the shortest stance, and twice that of the shortest gap between two [s]."""
BLEND = 0.2
"""Time in which a foot goes from its own path to the place where it stands, and back [s]."""
STEADY = 0.15
"""Width over which the pelvis follows the feet [s]."""
DRIFT_WINDOW, FLOOR_WIDTH = 0.75, 0.4
"""Half of the window of the drift's median, and width of the floor's average [s]."""
NATURAL_DRIFT = 0.05
"""Drift of good recordings, root mean square over a clip [m/s]: 24 of 25, by 150 recordings of 90 people, are below."""
CREEP = 0.02
"""Share of the pelvis' velocity at which flat feet of the same 150 creep along: soles roll and shoes give."""
ROLLING = 0.1
"""Difference of speed between heel and ball of a foot that stands flat at most [m/s]."""
HEEL = 0.15
"""Angle about the ball by which a leg that does not reach lifts the heel before the pelvis goes down [rad]; 2 cm."""
STRAIGHT = 0.99
"""Share of its length to which a leg is stretched at most, unless the recording stretches it further."""
REACH = 3.0
"""Number of widths at which an average ends."""


_gaussian = functools.partial(gaussian_filter1d, axis=0, mode="nearest", truncate=REACH)


def _hysteresis(core: Bool[np.ndarray, "t"], wide: Bool[np.ndarray, "t"], least: int) -> list[tuple[int, int]]:
    """Return the runs of the wide condition in which the narrow one holds somewhere; short gaps are closed."""
    joined: list[tuple[int, int]] = []
    for start, stop in runs(core | wide):
        if joined and start - joined[-1][1] <= least // 2:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return [(start, stop) for start, stop in joined if stop - start >= least and core[start:stop].any()]


def with_own_ankles(motion: Motion) -> Motion:
    """Return a motion with ankle spheres no larger than the ankles' height while the feet stand flat: rigs differ."""
    skeleton, still = motion.skeleton, np.linalg.norm(motion.velocity(), axis=-1) < STILL
    radii = skeleton.radii.copy()
    for toe, ankle in zip(FEET, ANKLES, strict=True):
        flat = still[:, toe] & still[:, ankle] & (motion.joints[:, toe, 2] < radii[toe] + RAISED)
        if flat.any():
            rise = float(np.median(motion.joints[flat, ankle, 2] - motion.joints[flat, toe, 2]))
            radii[ankle] = np.clip(radii[toe] + rise, radii[toe], radii[ankle])
    return replace(motion, skeleton=Skeleton(skeleton.rest, skeleton.masses, radii))


@dataclass(frozen=True)
class Tolerance:
    """Errors that are left as they are."""

    slide: float
    """Distance of a standing foot from its place that is not corrected [m]."""
    height: float
    """Distance of a standing foot from the floor that is not corrected [m]."""
    share: float = 1.0
    """Share of each correction that is applied."""


def _drift_of(motion: Motion) -> tuple[Float[np.ndarray, "t 2"], Float[np.ndarray, "t"]]:
    """Return the drift of the whole body [m/s], zero where it is natural, and the height of the standing feet [m]."""
    joints, V, radii = motion.joints, motion.velocity(), motion.skeleton.radii
    time, toe, ankle = np.arange(len(motion)), list(FEET), list(ANKLES)
    height = joints[:, toe, 2] - radii[toe]
    slow = (np.linalg.norm(V[:, toe], axis=-1) < SLOW) & (np.abs(height) < RAISED)
    # Ball and heel move alike: the foot is not rolling.
    flat = slow & (np.linalg.norm(V[:, toe] - V[:, ankle], axis=-1) < ROLLING)
    v, when = V[:, toe, :2][flat], np.nonzero(flat)[0]
    drift = _drift_by((v - CREEP * V[when, 0, :2]) / (1 - CREEP), when, len(motion), DRIFT_WINDOW * motion.fps)
    standing = np.where(slow & (motion.root[:, 2:] > UPRIGHT), height, np.inf).min(-1)
    seen = np.isfinite(standing)
    if not seen.any():
        return drift, np.zeros(len(motion))
    return drift, _gaussian(np.interp(time, time[seen], standing[seen]), FLOOR_WIDTH * motion.fps)


def _drift_by(v: Float[np.ndarray, "k 2"], when: np.ndarray, num: int, half: float) -> Float[np.ndarray, "num 2"]:
    """Return the drift of flat feet: none if it is natural, one for all frames if that is enough, else a path."""
    if not len(v):
        return np.zeros((num, 2))
    always = np.median(v, axis=0)
    # Where no flat foot is near, the nearest ones tell. Frames are in order, so a window is a slice.
    time, after = np.arange(num), np.searchsorted(when, np.arange(num)).clip(1, max(len(when) - 1, 1))
    gap = np.minimum(np.abs(when[after - 1] - time), np.abs(when[np.minimum(after, len(when) - 1)] - time))
    reach = np.maximum(half, gap + half / 2)
    first, last = np.searchsorted(when, time - reach), np.searchsorted(when, time + reach, side="right")
    local = _gaussian(np.stack([np.median(v[a:b], axis=0) for a, b in zip(first, last, strict=True)]), half / 4)
    if _rms(local) < NATURAL_DRIFT:
        return np.zeros((num, 2))
    return local if _rms(local - always) > NATURAL_DRIFT else np.tile(always, (num, 1))


def _rms(vectors: Float[np.ndarray, "t 2"]) -> float:
    return float(np.sqrt((vectors**2).sum(-1).mean()))


@dataclass(frozen=True, eq=False)
class Stance:
    """One foot's time on the floor."""

    foot: int
    """0 left, 1 right."""
    start: int
    stop: int
    """The frame after the last."""
    place: Float[np.ndarray, "3"]
    """Place of the ball of the foot [m]."""
    slid: float
    """Farthest that the recorded foot was from the place, horizontally [m]."""
    lifted: float
    """Mean height of the recorded foot above the floor [m]; negative inside it."""


def stances(motion: Motion) -> list[Stance]:
    """Return when and where the balls of the feet stand, by their speed and height."""
    standing, least = list[Stance](), max(2, round(SHORTEST * motion.fps))
    V, radii = motion.velocity(), motion.skeleton.radii
    pace = np.maximum(1.0, _gaussian(np.linalg.norm(V[:, 0, :2], axis=-1), STEADY * motion.fps) / RUNNING)
    for side, toe in enumerate(FEET):
        speed, height = np.linalg.norm(V[:, toe], axis=-1), motion.joints[:, toe, 2] - radii[toe]
        low = height < LOW
        pending = _hysteresis((speed < STILL * pace) & low, (speed < SLOW * pace) & low, least)
        while pending:
            start, stop = _settled(height, *pending.pop())
            if stop - start < least:
                continue
            path = motion.joints[start:stop, toe]
            middle = np.median(path[:, :2], axis=0)
            far = np.linalg.norm(path[:, :2] - middle, axis=-1)
            if far.max() > 2 * LOW:
                # Dragged or pivoted away: two stances, and a step between them.
                fastest = start + int(speed[start:stop].argmax())
                pending += [(a, b) for a, b in ((start, fastest - 1), (fastest + 2, stop)) if b - a >= least]
                continue
            place = np.array([*middle, radii[toe]])
            standing.append(Stance(side, start, stop, place, float(far.max()), float(height[start:stop].mean())))
    return sorted(standing, key=lambda stance: (stance.start, stance.foot))


def _settled(height: Float[np.ndarray, "t"], start: int, stop: int) -> tuple[int, int]:
    """Return a stance without the frames at its ends in which the ball of the foot comes down or goes up."""
    usual = float(np.median(height[start:stop]))
    down = np.flatnonzero(np.abs(height[start:stop] - usual) < LEVEL)
    return (start + int(down[0]), start + int(down[-1]) + 1) if len(down) else (start, start)


def _blended(offsets: Float[np.ndarray, "t 3"], held: Bool[np.ndarray, "t"], width: int) -> Float[np.ndarray, "t 3"]:
    """Fill the frames between those that are held: the offset and its rate fade to nothing.

    By polynomials of fifth degree: place, velocity and acceleration are continuous at both ends. Offsets of two stances
    that are near each other add up.
    """
    out = np.where(held[:, None], offsets, 0.0)
    for start, stop in runs(~held):
        k, gap = np.arange(1, stop - start + 1), stop - start + 1
        fade = min(width, gap) if start and stop < len(out) else width
        if start:
            rate = out[start - 1] - out[start - 2] if start > 1 and held[start - 2] else np.zeros(3)
            out[start:stop] += _fading(k / fade, out[start - 1], fade * rate)
        if stop < len(out):
            rate = out[stop] - out[stop + 1] if stop + 1 < len(out) and held[stop + 1] else np.zeros(3)
            out[start:stop] += _fading((gap - k) / fade, out[stop], fade * rate)
    return out


def _fading(
    s: Float[np.ndarray, "t"], value: Float[np.ndarray, "3"], rate: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "t 3"]:
    s = np.clip(s, 0, 1)[:, None]
    return value * (1 - s**3 * (10 - 15 * s + 6 * s * s)) + rate * s * (1 - s * s * (6 - 8 * s + 3 * s * s))


def standing(motion: Motion, tolerance: Tolerance) -> tuple[Motion, list[Stance]]:
    """Return a motion on the floor with its standing feet held in place, and the stances that were changed.

    First the whole body: a drift of the feet that stand is taken off the root's path, and their height off its height.
    Then each foot: the ball stays where it stands, the heel too while it is down, and the foot goes there from its own
    path within 0.2 s. The pelvis follows the feet that stand, smoothly, so that straight legs stay straight; heels and
    knees take the rest.
    """
    drift, floor = _drift_of(motion)
    shift = np.zeros_like(motion.root)
    shift[:, :2] = -tolerance.share * np.cumsum(drift, axis=0) / motion.fps
    if np.abs(floor).max() > tolerance.height:
        shift[:, 2] = -tolerance.share * floor
    motion = _moved(motion, shift)
    wrong = [s for s in stances(motion) if s.slid > tolerance.slide or abs(s.lifted) > tolerance.height]
    toe_offsets, turns = _corrections(motion, wrong, tolerance)
    heights = motion.joints[:, FEET, 2] + toe_offsets[..., 2] - motion.skeleton.radii[list(FEET)]
    toe_offsets[..., 2] += tolerance.share * np.maximum(-heights - tolerance.height, 0)
    if not (toe_offsets.any() or turns.any()):
        return motion, wrong
    return _with_feet(motion, wrong, toe_offsets, turns), wrong


def _moved(motion: Motion, shift: Float[np.ndarray, "t 3"]) -> Motion:
    return replace(motion, root=motion.root + shift, joints=motion.joints + shift[:, None])


def _corrections(
    motion: Motion, wrong: list[Stance], tolerance: Tolerance
) -> tuple[Float[np.ndarray, "t 2 3"], Float[np.ndarray, "t 2 3"]]:
    """Return how far each ball has to move [m], and how each foot has to turn, as a rotation vector."""
    joints, width = motion.joints, max(1, round(BLEND * motion.fps))
    speed, least = np.linalg.norm(motion.velocity(), axis=-1), max(2, round(SHORTEST * motion.fps))
    offsets, turns = np.zeros((len(motion), 2, 3)), np.zeros((len(motion), 2, 3))
    for side, (toe, ankle) in enumerate(zip(FEET, ANKLES, strict=True)):
        foot = joints[:, ankle] - joints[:, toe]
        held, flat = np.zeros(len(motion), bool), np.zeros(len(motion), bool)
        rise = _flat_rise(foot, speed[:, toe], speed[:, ankle])
        for s in (stance for stance in wrong if stance.foot == side):
            held[s.start : s.stop] = True
            offsets[s.start : s.stop, side] = tolerance.share * (s.place - joints[s.start : s.stop, toe])
            down = np.abs(foot[s.start : s.stop, 2] - rise) < LOW / 2
            moving = speed[s.start : s.stop, ankle]
            for a, b in _hysteresis(down & (moving < STILL), down & (moving < SLOW), least):
                span = slice(s.start + a, s.start + b)
                flat[span] = True
                length = motion.skeleton.lengths[toe]
                ahead = normalize(np.array([*foot[span, :2].mean(0), 0.0]))
                lying = np.sqrt(max(length**2 - rise**2, 0)) * ahead + np.array([0.0, 0.0, rise])
                turns[span, side] = tolerance.share * rotmat_to_rotvec(swing(foot[span], lying))
        offsets[:, side] = _blended(offsets[:, side], held, width)
        turns[:, side] = _blended(turns[:, side], flat, width)
    return offsets, turns


def _flat_rise(
    foot: Float[np.ndarray, "t 3"], toe_speed: Float[np.ndarray, "t"], ankle_speed: Float[np.ndarray, "t"]
) -> float:
    """Return how much higher the ankle is than the ball of a foot that stands flat [m]."""
    still = (toe_speed < STILL) & (ankle_speed < STILL)
    return float(np.median(foot[still, 2])) if still.any() else float(np.quantile(foot[:, 2], 0.1))


def _with_feet(
    motion: Motion, wrong: list[Stance], offsets: Float[np.ndarray, "t 2 3"], turns: Float[np.ndarray, "t 2 3"]
) -> Motion:
    skeleton, joints = motion.skeleton, motion.joints
    toe, ankle, knee, hip = list(FEET), list(ANKLES), list(KNEES), list(HIPS)
    balls = joints[:, toe] + offsets
    ankles = balls + apply(rotvec_to_rotmat(turns), joints[:, ankle] - joints[:, toe])
    bears = np.zeros((len(motion), 2))
    for s in wrong:
        bears[s.start : s.stop, s.foot] = 1.0
    # Where no foot stands, half of what both feet do.
    weights = bears + 0.01
    lead = ((ankles - joints[:, ankle]) * weights[..., None]).sum(1) / weights.sum(1)[:, None]
    shift = _gaussian(lead, STEADY * motion.fps)
    hips = joints[:, hip] + shift[:, None]
    upper, lower = skeleton.lengths[knee], skeleton.lengths[ankle]
    recorded = np.linalg.norm(joints[:, ankle] - joints[:, hip], axis=-1)
    longest = np.maximum(STRAIGHT * (upper + lower), np.minimum(recorded, upper + lower))
    ankles = _raised_heels(hips, ankles, balls, longest)
    down = _drop(hips, np.where(bears[..., None] > 0, ankles, np.nan), longest, motion.fps)
    shift[:, 2] -= down
    hips[..., 2] -= down[:, None]
    moved = _moved(motion, shift)
    joints = moved.joints.copy()
    reach = ankles - hips
    furthest = np.where(bears > 0, upper + lower, longest)
    length = np.clip(np.linalg.norm(reach, axis=-1), np.abs(upper - lower) + 1e-6, furthest)
    along = normalize(reach)
    ankles_now = hips + length[..., None] * along
    # The knee bends where it did; a straight one would bend forward.
    ahead = apply(motion.q[:, 0], np.array([0.0, 0.0, 0.01]))[:, None]
    side = joints[:, knee] - hips + ahead
    side = normalize(side - dot(side, along) * along)
    share = (upper**2 - lower**2 + length**2) / (2 * length)
    joints[:, knee] = hips + share[..., None] * along + np.sqrt(np.maximum(upper**2 - share**2, 0))[..., None] * side
    joints[:, ankle] = ankles_now
    foot = balls - ankles_now
    joints[:, toe] = ankles_now + skeleton.lengths[toe][:, None] * normalize(foot)
    changed = np.abs(joints - motion.joints).max((-1, -2)) > 1e-9
    q = motion.q.copy()
    q[changed] = skeleton.inverse(joints[changed], twist_from=motion.q[changed])
    return replace(moved, q=q, joints=skeleton.forward(q, moved.root))


def _raised_heels(
    hips: Float[np.ndarray, "t 2 3"],
    ankles: Float[np.ndarray, "t 2 3"],
    balls: Float[np.ndarray, "t 2 3"],
    longest: Float[np.ndarray, "t 2"],
) -> Float[np.ndarray, "t 2 3"]:
    """Turn feet about their balls toward the hips, by at most HEEL, where a leg does not reach its ankle."""
    foot, leg = ankles - balls, hips - balls
    length, far = np.linalg.norm(foot, axis=-1), np.linalg.norm(leg, axis=-1)
    along = dot(foot, leg)[..., 0] / (length * far)
    enough = (length**2 + far**2 - longest**2) / (2 * length * far)
    angle = np.clip(np.arccos(np.clip(along, -1, 1)) - np.arccos(np.clip(enough, -1, 1)), 0, HEEL)
    axis = normalize(np.cross(foot, leg))
    return balls + apply(rotvec_to_rotmat(angle[..., None] * axis), foot)


def _drop(
    hips: Float[np.ndarray, "t 2 3"], ankles: Float[np.ndarray, "t 2 3"], longest: Float[np.ndarray, "t 2"], fps: float
) -> Float[np.ndarray, "t"]:
    """Return how far the pelvis has to go down, smoothly, so that the legs reach their ankles, NaN for none [m]."""
    reach = hips - ankles
    across = np.linalg.norm(reach[..., :2], axis=-1)
    upright = np.sqrt(np.maximum(longest**2 - across**2, 0))
    needed = np.nan_to_num(np.maximum(reach[..., 2] - upright, 0)).max(-1)
    if not needed.any():
        return needed
    # The largest within reach of the average, so that the average is nowhere too small.
    width = STEADY / 2 * fps
    return _gaussian(maximum_filter1d(needed, 2 * int(REACH * width + 0.5) + 1, mode="nearest"), width)
