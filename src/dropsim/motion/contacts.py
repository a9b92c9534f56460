"""Floor alignment and contact labels for recorded motion."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, joint_index
from dropsim.motion.motion import Motion

CONTACT_JOINTS = (0, 4, 5, 7, 8, 10, 11, 20, 21)
"""HuMoR's nine: hips, knees, ankles, toes, hands."""
FEET = (joint_index("left_foot"), joint_index("right_foot"))
ANKLES = (joint_index("left_ankle"), joint_index("right_ankle"))

CONTACT_SPEED = 0.6
"""A joint that touches moves slower than this [m/s] (HuMoR's threshold)."""
CONTACT_GAP = 0.03
"""A joint that touches has its sphere within this of the floor [m]."""
STATIC_SPEED = 0.15
"""A foot slower than this is taken to stand [m/s]."""
RAISED = 0.08
"""A still foot that is higher than this above the lowest ones is in the air [m]."""


def sphere_heights(motion: Motion) -> Float[Tensor, "*b t 22"]:
    """Height of each joint's sphere above z = 0 [m]."""
    return motion.joints[..., 2] - motion.skeleton.radii.to(motion.joints)


def floor_height(motion: Motion) -> float:
    """Return the height on which the feet stand: the median of the lower standing toe, leaving out feet that rest high in the air [m]."""
    heights = sphere_heights(motion)
    standing = torch.where(motion.velocity()[:, FEET].norm(dim=-1) < STATIC_SPEED, heights[:, FEET], torch.inf).amin(dim=-1)
    standing = standing[standing.isfinite()]
    if len(standing) < 5:  # nobody stands still: the floor is what the lowest sphere comes down to
        return float(heights.amin(dim=-1).quantile(0.05))
    return float(standing[standing < standing.quantile(0.1) + RAISED].median())


def on_floor(motion: Motion) -> Motion:
    """Move a motion vertically so that its feet stand on z = 0."""
    drop = torch.tensor([0.0, 0.0, floor_height(motion)], dtype=torch.float64).to(motion.root)
    return replace(motion, root=motion.root - drop, joints=motion.joints - drop)


def with_toes_up(motion: Motion) -> Motion:
    """Bend the ankles so that no toe is below the floor: when a foot pushes off, a marker-based skeleton's toe dips by some centimetres."""
    joints = motion.joints.clone()
    radius, length = (v.to(joints)[list(FEET)] for v in (motion.skeleton.radii, motion.skeleton.lengths))
    ankle, toe = joints[..., ANKLES, :], joints[..., FEET, :]
    # The foot keeps its length and its heading: what it loses in drop it gains in reach.
    drop = torch.minimum((ankle[..., 2] - radius).abs(), length) * (ankle[..., 2] - radius).sign()
    reach = (length.square() - drop.square()).sqrt().unsqueeze(-1) * torch.nn.functional.normalize((toe - ankle)[..., :2], dim=-1)
    raised = ankle + torch.cat((reach, -drop.unsqueeze(-1)), dim=-1)
    joints[..., FEET, :] = torch.where((toe[..., 2] < radius).unsqueeze(-1), raised, toe)
    q = motion.skeleton.inverse(joints, twist_from=motion.q)
    return replace(motion, q=q, joints=motion.skeleton.forward(q, motion.root))


def label_contacts(motion: Motion) -> Bool[Tensor, "*b t 22"]:
    """Mark the joints that touch the floor: slow, and their sphere near it."""
    touching = (motion.velocity().norm(dim=-1) < CONTACT_SPEED) & (sphere_heights(motion) < CONTACT_GAP)
    labelled = torch.zeros(NUM_JOINTS, dtype=torch.bool)
    labelled[list(CONTACT_JOINTS)] = True
    return touching & labelled
