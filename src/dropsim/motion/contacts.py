"""Floor alignment and contact labels for recorded motion."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

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
UPRIGHT = 0.6
"""A person whose pelvis is higher than this above the floor is on their feet [m]."""
LOW_QUANTILE = 0.05
"""Where nobody stands, this share of the frames has its lowest sphere below the floor."""


def sphere_heights(motion: Motion) -> Float[np.ndarray, "*b t 22"]:
    """Height of each joint's sphere above z = 0 [m]."""
    return motion.joints[..., 2] - motion.skeleton.radii


def floor_height(motion: Motion) -> float:
    """Return the height of the floor that a recorded person moves on [m].

    Where the person is upright, that is the median of the lower standing toe, without feet that rest high in the air. Someone who never
    stands (lies, crawls, runs through) has the floor under a low quantile of the lowest sphere of the whole body.
    """
    heights = sphere_heights(motion)
    ground = float(np.quantile(heights.min(-1), LOW_QUANTILE))
    slow = np.linalg.norm(motion.velocity()[:, FEET], axis=-1) < STATIC_SPEED
    standing = np.where(slow, heights[:, FEET], np.inf).min(-1)
    standing = standing[np.isfinite(standing) & (motion.root[:, 2] > ground + UPRIGHT)]
    if len(standing) < 5:
        return ground
    return float(np.median(standing[standing < np.quantile(standing, 0.1) + RAISED]))


def on_floor(motion: Motion) -> Motion:
    """Move a motion vertically so that its floor is z = 0."""
    drop = np.array([0.0, 0.0, floor_height(motion)])
    return replace(motion, root=motion.root - drop, joints=motion.joints - drop)


def with_toes_up(motion: Motion) -> Motion:
    """Bend the ankles so that no toe is below the floor: when a foot pushes off, a marker-based skeleton's toe dips by some centimetres."""
    joints = motion.joints.copy()
    radius, length = motion.skeleton.radii[list(FEET)], motion.skeleton.lengths[list(FEET)]
    ankle, toe = joints[..., ANKLES, :], joints[..., FEET, :]
    # The foot keeps its length and its heading: what it loses in drop it gains in reach.
    drop = np.clip(ankle[..., 2] - radius, -length, length)
    ahead = (toe - ankle)[..., :2]
    ahead = ahead / np.maximum(np.linalg.norm(ahead, axis=-1, keepdims=True), 1e-12)
    raised = ankle + np.concatenate((np.sqrt(length**2 - drop**2)[..., None] * ahead, -drop[..., None]), axis=-1)
    joints[..., FEET, :] = np.where((toe[..., 2] < radius)[..., None], raised, toe)
    q = motion.skeleton.inverse(joints, twist_from=motion.q)
    return replace(motion, q=q, joints=motion.skeleton.forward(q, motion.root))


def label_contacts(motion: Motion) -> Bool[np.ndarray, "*b t 22"]:
    """Mark the joints that touch the floor: slow, and their sphere near it."""
    touching = (np.linalg.norm(motion.velocity(), axis=-1) < CONTACT_SPEED) & (sphere_heights(motion) < CONTACT_GAP)
    return touching & np.isin(np.arange(NUM_JOINTS), CONTACT_JOINTS)
