"""Defects of recordings: poses that no body has."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.skeleton import JOINTS, joint_index

LARGEST_ANGLE = {
    "hip": 150, "knee": 165, "ankle": 110, "foot": 90, "spine1": 110, "spine2": 60, "spine3": 60, "neck": 105, "head": 90, "collar": 60,
    "shoulder": 160, "elbow": 160, "wrist": 135,
}  # fmt: skip
"""From the rest pose [degrees]; recorded joints beyond it are defects (a foot that flips by half a turn between two frames), not poses."""
LARGEST_KNEE_BACK = 15.0
"""A recorded knee bent further to the front is a defect [degrees]."""


def intact(q: Float[Tensor, "*b 22 3 3"]) -> Bool[Tensor, "*b"]:
    """Tell recorded poses from defects of the recording."""
    largest = torch.tensor([180.0] + [LARGEST_ANGLE[name.partition("_")[2] or name] for name in JOINTS[1:]]).to(q)
    cosine = (q.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    knees = q[..., [joint_index("left_knee"), joint_index("right_knee")], :, :]
    bend = (knees[..., 2, 1] - knees[..., 1, 2]) / 2
    return (cosine >= largest.deg2rad().cos() - 1e-6).all(-1) & (bend > -math.sin(math.radians(LARGEST_KNEE_BACK))).all(-1)
