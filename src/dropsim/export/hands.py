"""Hands on the ground, for display only: they bend at the wrist, so that the fingers stay out of it.

A Motion holds the simulator's own rotations. Pictures, the app, and the formats that carry a skinned body (GLB, HTML,
USD) bend the hands when they draw or write; BVH, npz and CSV do not.
"""

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import apply, exp, normalize, transpose
from dropsim.body.skeleton import PARENTS, Skeleton, joint_index
from dropsim.physics.contact import Plane

HAND = 0.18
"""Distance from the wrist to the finger tips [m]."""
THICKNESS = 0.03
"""Gap that the line to the finger tips keeps from the ground, for the palm's thickness [m]."""
FARTHEST_BACK = 2.0
"""Largest angle by which a hand bends back, of which 0.4 make the relaxed fingers flat [rad]."""
PALM_UP = (-0.8, -0.5)
"""Upward part of the direction out of the back of a hand that is left alone, for it would have to bend forward; and
where that begins."""
DEEPEST = -0.1
"""A wrist below this stands on some other ground, and its hand is left alone [m]."""
_WRISTS = [joint_index("left_wrist"), joint_index("right_wrist")]
_FOREARMS = [PARENTS[wrist] for wrist in _WRISTS]
_FINGERS = normalize(np.array([[1.0, -0.42, 0.08], [-1.0, -0.42, 0.08]]))
"""Directions of the relaxed fingers of the skinned body in the rest pose, left and right."""
_BACKS = normalize(np.array([0.0, 1.0, 0.0]) - _FINGERS[:, 1:2] * _FINGERS)
"""Directions out of the back of each hand, at a right angle to the fingers."""


def lifted_hands(
    q: Float[np.ndarray, "*b 22 3 3"], joints: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton, ground: Plane
) -> Float[np.ndarray, "*b 22 3 3"]:
    """Return local rotations with hands bent back as far as brings them out of the ground; no joint moves."""
    height = ground.distance(joints[..., _WRISTS, :])
    near = (height > DEEPEST) & (height < HAND + THICKNESS)
    if not near.any():
        return q
    turns = skeleton.global_rotations(q)
    hands = turns[..., _WRISTS, :, :]
    fingers, backs = apply(hands, _FINGERS), apply(hands, _BACKS)
    rise, back = ((way * ground.normal[..., None, :]).sum(-1) for way in (fingers, backs))
    least = (THICKNESS - height) / HAND
    # Bent by an angle the fingers rise as rise cos(angle) + back sin(angle).
    size = np.maximum(np.hypot(rise, back), 1e-6)
    angle = (np.arcsin(np.clip(least / size, -1, 1)) - np.arctan2(rise, back)).clip(0, FARTHEST_BACK)
    angle = np.where(near & (rise < least), angle * np.clip((back - PALM_UP[0]) / (PALM_UP[1] - PALM_UP[0]), 0, 1), 0.0)
    bent = exp(np.cross(fingers, backs) * angle[..., None]) @ hands
    lifted = q.copy()
    lifted[..., _WRISTS, :, :] = np.where(
        (angle > 0)[..., None, None], transpose(turns[..., _FOREARMS, :, :]) @ bent, q[..., _WRISTS, :, :]
    )
    return lifted
