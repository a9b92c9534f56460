"""Defects of recordings: poses that no body has, and the few of them that can be mended."""

import math

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat, transpose
from dropsim.body.skeleton import CHILDREN, JOINTS, joint_index

LARGEST_ANGLE = {"hip": 180, "knee": 165, "ankle": 110, "foot": 90, "spine1": 135, "spine2": 60, "spine3": 60}
LARGEST_ANGLE |= {"neck": 105, "head": 90, "collar": 60, "shoulder": 180, "elbow": 160, "wrist": 135}
"""Largest angles from the rest pose [degrees]; joints beyond them are defects, such as a foot that flips.

Hips and shoulders have no limit: bent and twisted together they reach any angle."""
LARGEST_KNEE_BACK = 15.0
"""Angle by which a sound recorded knee is bent to the front at most [degrees]."""


_SMALLEST_COSINE = np.cos(np.deg2rad([180.0] + [LARGEST_ANGLE[name.partition("_")[2] or name] for name in JOINTS[1:]]))


def intact(q: Float[np.ndarray, "*b 22 3 3"]) -> Bool[np.ndarray, "*b"]:
    """Tell recorded poses from defects of the recording."""
    cosine = (np.trace(q, axis1=-2, axis2=-1) - 1) / 2
    knees = q[..., [joint_index("left_knee"), joint_index("right_knee")], :, :]
    bend = (knees[..., 2, 1] - knees[..., 1, 2]) / 2
    return (cosine >= _SMALLEST_COSINE - 1e-6).all(-1) & (bend > -math.sin(math.radians(LARGEST_KNEE_BACK))).all(-1)


_MENDABLE = tuple(j for j, name in enumerate(JOINTS) if not CHILDREN[j] or name.endswith("collar"))


def mend(q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b 22 3 3"]:
    """Turn hands, toes, heads and collar bones back to their largest angle.

    A flipped hand moves no joint of ours, and a solver that blames the collar bone for the arm moves the shoulder by a
    few centimetres. All other orientations stay as they are in the world.
    """
    mended = q.copy()
    for j in _MENDABLE:
        rotvec = rotmat_to_rotvec(q[..., j, :, :])
        angle = np.linalg.norm(rotvec, axis=-1, keepdims=True)
        largest = np.arccos(_SMALLEST_COSINE[j])
        if (angle <= largest).all():
            continue
        mended[..., j, :, :] = rotvec_to_rotmat(rotvec * np.minimum(1, largest / np.maximum(angle, 1e-12)))
        for child in CHILDREN[j]:
            mended[..., child, :, :] = transpose(mended[..., j, :, :]) @ q[..., j, :, :] @ q[..., child, :, :]
    return mended
