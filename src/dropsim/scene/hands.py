"""Hands on the ground: they bend at the wrist, so that fingers, which no joint of ours moves, do not go into it."""

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import exp
from dropsim.body.skeleton import PARENTS, Skeleton, joint_index
from dropsim.physics.collider import Plane

HAND = 0.18
"""From the wrist to the finger tips [m]."""
THICKNESS = 0.03
"""Gap that the line to the finger tips keeps from the ground, for the palm's thickness [m]."""
FARTHEST_BACK = 2.0
"""Largest angle by which a hand bends back, of which 0.4 make the relaxed fingers flat [rad]."""
PALM_UP = (-0.8, -0.5)
"""Upward part of the direction out of the back of a hand that is left alone, for it would have to bend forward; and where that begins."""
_WRISTS = [joint_index("left_wrist"), joint_index("right_wrist")]
_FOREARMS = [PARENTS[wrist] for wrist in _WRISTS]
_FINGERS = torch.nn.functional.normalize(torch.tensor([[1.0, -0.42, 0.08], [-1.0, -0.42, 0.08]], dtype=torch.float64), dim=-1)
"""Where the relaxed fingers of the skinned body point in the rest pose, left and right."""
_BACKS = torch.nn.functional.normalize(torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64) - _FINGERS[:, 1:2] * _FINGERS, dim=-1)
"""Out of the back of each hand, at a right angle to the fingers."""


def lifted_hands(
    q: Float[Tensor, "*b 22 3 3"], joints: Float[Tensor, "*b 22 3"], skeleton: Skeleton, ground: Plane
) -> Float[Tensor, "*b 22 3 3"]:
    """Return local rotations with hands bent back as far as brings them out of the ground; no joint moves."""
    surface = ground.surface(joints[..., _WRISTS, :])
    if not (surface.distance < HAND + THICKNESS).any():
        return q
    turns = skeleton.global_rotations(q)
    hands = turns[..., _WRISTS, :, :]
    fingers, backs = ((hands @ way.to(q).unsqueeze(-1)).squeeze(-1) for way in (_FINGERS, _BACKS))
    rise, back = ((way * surface.normal).sum(-1) for way in (fingers, backs))
    least = (THICKNESS - surface.distance) / HAND
    # Bent by an angle the fingers rise as rise cos(angle) + back sin(angle).
    size = torch.hypot(rise, back).clamp(min=1e-6)
    angle = torch.asin((least / size).clamp(-1, 1)) - torch.atan2(rise, back)
    angle = torch.where(rise < least, angle.clamp(0, FARTHEST_BACK), 0.0) * ((back - PALM_UP[0]) / (PALM_UP[1] - PALM_UP[0])).clamp(0, 1)
    bent = exp(torch.linalg.cross(fingers, backs) * angle.unsqueeze(-1)) @ hands
    local = torch.where((angle > 0)[..., None, None], turns[..., _FOREARMS, :, :].transpose(-1, -2) @ bent, q[..., _WRISTS, :, :])
    return q.index_copy(q.ndim - 3, torch.tensor(_WRISTS, device=q.device), local)
