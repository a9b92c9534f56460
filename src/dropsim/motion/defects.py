"""Defects of recordings: poses that no body has."""

import math

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import JOINTS, joint_index

LARGEST_ANGLE = {
    "hip": 150, "knee": 165, "ankle": 110, "foot": 90, "spine1": 110, "spine2": 60, "spine3": 60, "neck": 105, "head": 90, "collar": 60,
    "shoulder": 160, "elbow": 160, "wrist": 135,
}  # fmt: skip
"""From the rest pose [degrees]; recorded joints beyond it are defects (a foot that flips by half a turn between two frames), not poses."""
LARGEST_KNEE_BACK = 15.0
"""A recorded knee bent further to the front is a defect [degrees]."""


_SMALLEST_COSINE = np.cos(np.deg2rad([180.0] + [LARGEST_ANGLE[name.partition("_")[2] or name] for name in JOINTS[1:]]))


def intact(q: Float[np.ndarray, "*b 22 3 3"]) -> Bool[np.ndarray, "*b"]:
    """Tell recorded poses from defects of the recording."""
    cosine = (np.trace(q, axis1=-2, axis2=-1) - 1) / 2
    knees = q[..., [joint_index("left_knee"), joint_index("right_knee")], :, :]
    bend = (knees[..., 2, 1] - knees[..., 1, 2]) / 2
    return (cosine >= _SMALLEST_COSINE - 1e-6).all(-1) & (bend > -math.sin(math.radians(LARGEST_KNEE_BACK))).all(-1)
