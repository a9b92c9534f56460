"""Measures of motion quality: pure functions of a Motion, batched over its leading dimensions, in the unit that the name says."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.data.contacts import sphere_heights
from dropsim.motion import Motion
from dropsim.skeleton import Skeleton

FEET = (7, 8, 10, 11)
TOES = (10, 11)
TOLERANCE = 0.005
"""How far a sphere may be off the floor and still count as touching it [m]."""
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


def jerk(motion: Motion) -> Float[Tensor, "*b"]:
    """Mean norm of the third difference of the joints [m/s^3] (DART)."""
    return motion.joints.diff(n=3, dim=-3).norm(dim=-1).mean((-1, -2)) * motion.fps**3


def bone_error_percent(motion: Motion) -> Float[Tensor, "*b"]:
    """Largest relative error of a bone's length over the motion."""
    return 100 * motion.skeleton.bone_error(motion.joints).amax(-1)


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
