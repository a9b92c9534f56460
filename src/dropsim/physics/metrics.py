"""Measures of motion quality: pure functions of a Motion, batched over its leading dimensions, in the unit that the name says.

Moments are counted in frames: `since` and `end` are one number for everybody, or one for each. The Frechet distance, which compares sets
of motions, is in `evaluation.windows`, and speed, which depends on the machine, in `evaluation.speed`.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import Skeleton
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics.wrench import root_wrench_of_motion
from dropsim.priors.pose import PosePrior

FEET = (7, 8, 10, 11)
TOES = (10, 11)
TOLERANCE = 0.005
"""How far a sphere may be off the floor and still count as touching it [m]."""
LOW = 0.05
"""A foot whose sphere is lower than this should not slide [m] (GMD); up to here a sphere can bear a contact force too."""
SLIDING = 0.5
"""Faster than this it does [m/s] (GMD)."""
RECOVERY = 3.0
"""Time after a push's end at which people have recovered or not [s] (after PDP)."""
GET_UP = 8.0
"""Time within which the fallen may get up [s]."""
LIFTED, LANDED = 0.04, 0.02
"""A foot is lifted when ankle and toes are higher than the first above where they stand, and has landed below the second [m]."""
HUMAN_SINK = 0.10
"""Deepest that any joint sphere of a human roll-out may go below the floor [m]."""
HUMAN_SPEED = 12.0
"""Fastest that any joint of a human roll-out may move [m/s]."""


def penetration_mm(motion: Motion) -> Float[Tensor, "*b"]:
    """Mean depth of the lowest joint sphere below the floor beyond 5 mm (PhysDiff)."""
    return 1000 * (-(sphere_heights(motion).amin(-1) + TOLERANCE)).clamp(min=0).mean(-1)


def float_mm(motion: Motion) -> Float[Tensor, "*b"]:
    """Mean height of the lowest joint sphere above the floor beyond 5 mm (PhysDiff)."""
    return 1000 * (sphere_heights(motion).amin(-1) - TOLERANCE).clamp(min=0).mean(-1)


def skate_mm(motion: Motion) -> Float[Tensor, "*b"]:
    """Mean horizontal step of the lowest joint while it stays within 5 mm of the floor (PhysDiff)."""
    heights = sphere_heights(motion)
    lowest = heights.argmin(-1)[..., :-1, None]
    touching = heights.gather(-1, heights.argmin(-1, keepdim=True)).squeeze(-1)[..., :-1].abs() < TOLERANCE
    touching &= heights[..., 1:, :].gather(-1, lowest).squeeze(-1).abs() < TOLERANCE
    step = motion.joints.diff(dim=-3)[..., :2].norm(dim=-1).gather(-1, lowest).squeeze(-1)
    return 1000 * (step * touching).sum(-1) / len(motion)


def foot_skate(motion: Motion) -> Float[Tensor, "*b"]:
    """Mean horizontal speed of the toes, weighted by 2 - 2^(h / 3 cm) of their height above the floor [m/s] (DART)."""
    heights = sphere_heights(motion)[..., list(TOES)]
    height = torch.maximum(heights[..., 1:, :], heights[..., :-1, :])
    weight = 2 - 2 ** (height / 0.03).clamp(0, 1)
    speed = motion.joints[..., list(TOES), :2].diff(dim=-3).norm(dim=-1) * motion.fps
    return (speed * weight).mean((-1, -2))


def skating_ratio(motion: Motion) -> Float[Tensor, "*b"]:
    """Share of the steps from frame to frame in which a toe stays below 5 cm and moves faster than 0.5 m/s (GMD)."""
    low = sphere_heights(motion)[..., list(TOES)] < LOW
    speed = motion.joints[..., list(TOES), :2].diff(dim=-3).norm(dim=-1) * motion.fps
    return (low[..., 1:, :] & low[..., :-1, :] & (speed > SLIDING)).any(-1).double().mean(-1)


def jerk(motion: Motion) -> Float[Tensor, "*b"]:
    """Mean norm of the third difference of the joints [m/s^3] (DART)."""
    return motion.joints.diff(n=3, dim=-3).norm(dim=-1).mean((-1, -2)) * motion.fps**3


def bone_error_percent(motion: Motion) -> Float[Tensor, "*b"]:
    """Largest relative error of a bone's length over the motion."""
    return 100 * motion.skeleton.bone_error(motion.joints).amax(-1)


def root_wrench(motion: Motion, *, cylinders: bool = False) -> Float[Tensor, "*b t 2"]:
    """Force and moment that no contact explains, in body weights and body weights at 1 m (DROP, ManipNet).

    Whatever is within 5 cm of level ground may bear a force, as in the simulator, so that recordings and simulations compare. Masses are
    points at the joints, or bones solid cylinders.
    """
    return root_wrench_of_motion(motion, sphere_heights(motion) < LOW, cylinders=cylinders)


def out_of_range_percent(motion: Motion, pose: PosePrior) -> Float[Tensor, "*b"]:
    """Share of the frames whose pose code is longer than the pose model's limit, 6 (DROP)."""
    return 100 * (pose.norm(motion.q) > pose.limit).double().mean(-1)


def root_speed(motion: Motion) -> Float[Tensor, "*b t"]:
    """Horizontal speed of the pelvis over half a second [m/s]; shorter motions use what they have."""
    span = min(len(motion) - 1, round(motion.fps / 2))
    place = motion.root[..., :2]
    return (place[..., span:, :] - place[..., :-span, :]).norm(dim=-1) * motion.fps / span


def turn_rate(motion: Motion) -> Float[Tensor, "*b t"]:
    """Rate at which the pelvis' heading turns, counterclockwise, over half a second [rad/s]; shorter motions use what they have."""
    span = min(len(motion) - 1, round(motion.fps / 2))
    left = motion.q[..., 0, :2, 0]
    before, after = left[..., :-span, :], left[..., span:, :]
    sine = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    return torch.atan2(sine, (before * after).sum(-1)) * motion.fps / span


def upright(motion: Motion) -> Bool[Tensor, "*b t"]:
    """Head and pelvis above 0.75 of their standing height."""
    return _raised(motion, 0.75).all(-1)


def fallen(motion: Motion) -> Bool[Tensor, "*b t"]:
    """Pelvis or head below 0.45 of its standing height."""
    return lying(motion.joints, motion.skeleton)


def lying(joints: Float[Tensor, "*b 22 3"], skeleton: Skeleton) -> Bool[Tensor, "*b"]:
    """Pelvis or head below 0.45 of its standing height above z = 0."""
    return ~above(joints, skeleton, 0.45).all(-1)


def _raised(motion: Motion, share: float) -> Bool[Tensor, "*b t 2"]:
    return above(motion.joints, motion.skeleton, share)


def above(joints: Float[Tensor, "*b 22 3"], skeleton: Skeleton, share: float) -> Bool[Tensor, "*b 2"]:
    """Whether the pelvis and the head are above a share of their height in the rest pose."""
    sole = (skeleton.rest[:, 1] - skeleton.radii).min()
    standing = (skeleton.rest[[0, 15], 1] - sole).to(joints)
    return joints[..., [0, 15], 2] > share * standing


def human(motion: Motion) -> Bool[Tensor, "*b"]:
    """Whether a motion stays human to its end: finite, bones whole, on the floor and not through it, at human speeds."""
    joints = motion.joints
    finite = joints.isfinite().all(-1).all(-1).all(-1)
    height = joints[..., 0, 2]
    lowest = sphere_heights(motion).amin(-1)
    fast = joints.diff(dim=-3).norm(dim=-1).amax((-1, -2)) * motion.fps > HUMAN_SPEED
    tall = (height < 1.6).all(-1) & (lowest > -HUMAN_SINK).all(-1)
    # A second off the floor is no jump; a motion that is shorter can only jump.
    span = round(motion.fps)
    off = torch.nn.functional.pad((lowest > 0.08).float().reshape(-1, 1, len(motion)), (0, max(0, span - len(motion))))
    hovering = torch.nn.functional.avg_pool1d(off, span, 1).amax((-1, -2)) > 0.99
    return finite & tall & ~fast & ~hovering.reshape(finite.shape) & (bone_error_percent(motion) < 2.0)


def pelvis_spin(motion: Motion) -> Float[Tensor, "*b t"]:
    """Angular speed of the pelvis from each frame to the next, one value less than there are frames [rad/s]."""
    turn = motion.q[..., 1:, 0, :, :] @ motion.q[..., :-1, 0, :, :].transpose(-1, -2)
    cosine = (turn.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    return cosine.clamp(-1, 1).arccos() * motion.fps


# --- pushes


Moment = int | Int[Tensor, "*b"]
"""A frame, for everybody or for each."""


def recovered(motion: Motion, end: Moment, *, energy_limit: float | None = None) -> Bool[Tensor, "*b"]:
    """Whether somebody is upright three seconds after a push's end, or E_kin is within a limit [m^2] (after PDP, DROP).

    The limit is the 95th percentile of E_kin without a push. A motion that ends sooner is judged at its end.
    """
    at = _within(motion, end, RECOVERY)
    up = upright(motion).gather(-1, at).squeeze(-1)
    if energy_limit is None:
        return up
    return up | (motion.energies["kinematic"].gather(-1, at).squeeze(-1) <= energy_limit)


def fell(motion: Motion, since: Moment) -> Bool[Tensor, "*b"]:
    """Whether somebody lay at any time from a frame on."""
    return (fallen(motion) & _from(motion, since)).any(-1)


def got_up(motion: Motion, since: Moment) -> Bool[Tensor, "*b"]:
    """Whether somebody who lay, from a frame on, was upright within the eight seconds after it first did."""
    down = fallen(motion) & _from(motion, since)
    time = torch.arange(len(motion), device=down.device)
    first = down.double().argmax(-1, keepdim=True)
    return down.any(-1) & (upright(motion) & (time > first) & (time <= first + round(GET_UP * motion.fps))).any(-1)


def seconds_to_recover(motion: Motion, end: Moment) -> Float[Tensor, "*b"]:
    """Time from a push's end until somebody stays upright, as seen three seconds after it [s]; infinite for those not upright then."""
    last = _within(motion, end, RECOVERY)
    time = torch.arange(len(motion), device=last.device)
    down = ~upright(motion) & _from(motion, end) & (time <= last)
    first = last - torch.as_tensor(end, device=last.device).expand(last.shape[:-1]).unsqueeze(-1)
    settled = (down * (time + 1 - (last - first))).amax(-1).double() / motion.fps
    return torch.where(upright(motion).gather(-1, last).squeeze(-1), settled, torch.inf)


def footfalls(motion: Motion, since: Moment = 0) -> Int[Tensor, "*b"]:
    """Count the steps from a frame on: a foot that was lifted by 4 cm comes within 2 cm of where feet stand."""
    heights = motion.joints[..., FEET, 2] - _standing_feet(motion.skeleton).to(motion.joints)
    # A foot is as low as the lower of its ankle and toes, and between the two heights it is what it was last.
    foot = torch.minimum(heights[..., :2], heights[..., 2:])
    up, down = foot > LIFTED, foot < LANDED
    time = torch.arange(1, len(motion) + 1, device=foot.device).unsqueeze(-1)
    lifted, landed = ((flags * time).cummax(-2).values for flags in (up, down))
    aloft = lifted > landed
    touch = aloft[..., :-1, :] & ~aloft[..., 1:, :] & _from(motion, since)[..., 1:].unsqueeze(-1)
    return touch.sum((-1, -2))


def spin_while_lying(motion: Motion, since: Moment = 0) -> Float[Tensor, "*b"]:
    """95th percentile of the pelvis' angular speed while lying, from a frame on [rad/s]; not a number for who never lies (DROP 8.6)."""
    lies = (fallen(motion) & _from(motion, since))[..., 1:]
    return torch.where(lies, pelvis_spin(motion), torch.nan).nanquantile(0.95, dim=-1)


def diversity_m(joints: Float[Tensor, "*b k t 22 3"]) -> Float[Tensor, "*b"]:
    """Mean distance between the same joint in two of K motions, over all pairs, frames and joints (APD) [m]."""
    pairs = torch.combinations(torch.arange(joints.shape[-4], device=joints.device))
    one, other = (joints.index_select(-4, pairs[:, i]) for i in (0, 1))
    return (one - other).norm(dim=-1).mean((-1, -2, -3))


def _from(motion: Motion, since: Moment) -> Bool[Tensor, "*#b t"]:
    """Mark the frames from one on."""
    since = torch.as_tensor(since, device=motion.root.device)
    return torch.arange(len(motion), device=since.device) >= since.unsqueeze(-1)


def _within(motion: Motion, end: Moment, seconds: float) -> Int[Tensor, "*b 1"]:
    """Return the frame that is some time after one, or the last."""
    end = torch.as_tensor(end, device=motion.root.device).expand(motion.root.shape[:-2]).unsqueeze(-1)
    return (end + round(seconds * motion.fps)).clamp(max=len(motion) - 1)


def _standing_feet(skeleton: Skeleton) -> Float[Tensor, "4"]:
    """Return the heights of ankles and toes above the sole in the rest pose [m]."""
    sole = (skeleton.rest[:, 1] - skeleton.radii).min()
    return skeleton.rest[list(FEET), 1] - sole
