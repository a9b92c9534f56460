"""Floor alignment and contact labels for recorded motion."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.motion import Motion
from dropsim.skeleton import NUM_JOINTS, joint_index

CONTACT_JOINTS = (0, 4, 5, 7, 8, 10, 11, 20, 21)
"""HuMoR's nine: hips, knees, ankles, toes, hands."""
FEET = (joint_index("left_foot"), joint_index("right_foot"))

CONTACT_SPEED = 0.6
"""A joint that touches moves slower than this [m/s] (HuMoR's threshold)."""
CONTACT_GAP = 0.03
"""A joint that touches has its sphere within this of the floor [m]."""
STATIC_SPEED = 0.15
"""A foot slower than this is taken to stand [m/s]."""
CLUSTER = 0.02
"""Standing heights within this of each other belong to one level [m]."""


def sphere_heights(motion: Motion) -> Float[Tensor, "*b t 22"]:
    """Height of each joint's sphere above z = 0 [m]."""
    return motion.joints[..., 2] - motion.skeleton.radii.to(motion.joints)


def floor_height(motion: Motion) -> float:
    """Return the height on which the feet stand: the lowest level that holds at least half as many standing frames as the fullest one [m]."""
    heights = sphere_heights(motion)
    standing = heights[:, FEET][motion.velocity()[:, FEET].norm(dim=-1) < STATIC_SPEED].sort().values
    if len(standing) < 5:  # nobody stands still: the floor is what the lowest sphere comes down to
        return float(heights.amin(dim=-1).quantile(0.05))
    counts = torch.searchsorted(standing, standing + CLUSTER) - torch.arange(len(standing))
    low = standing[int((counts >= 0.5 * counts.max()).nonzero()[0])]
    level = standing[(standing >= low) & (standing <= low + CLUSTER)]
    return float(level.median())


def on_floor(motion: Motion) -> Motion:
    """Move a motion vertically so that its feet stand on z = 0."""
    drop = torch.tensor([0.0, 0.0, floor_height(motion)]).to(motion.root)
    return replace(motion, root=motion.root - drop, joints=motion.joints - drop)


def label_contacts(motion: Motion) -> Bool[Tensor, "*b t 22"]:
    """Mark the joints that touch the floor: slow, and their sphere near it."""
    touching = (motion.velocity().norm(dim=-1) < CONTACT_SPEED) & (sphere_heights(motion) < CONTACT_GAP)
    labelled = torch.zeros(NUM_JOINTS, dtype=torch.bool)
    labelled[list(CONTACT_JOINTS)] = True
    return touching & labelled
