"""Hands on the ground: they bend at the wrist, so that fingers, which no joint of ours moves, do not go into it."""

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.collider import Plane
from dropsim.rotations import exp
from dropsim.skeleton import PARENTS, Skeleton, joint_index

HAND = 0.18
"""From the wrist to the finger tips [m]."""
THICKNESS = 0.015
"""Gap that finger tips keep from the ground, half of what a finger is thick and half of what it is curled [m]."""
FARTHEST_BACK = 1.5
"""Largest angle by which a hand bends away from the ground [rad]."""
_WRISTS = [joint_index("left_wrist"), joint_index("right_wrist")]
_FOREARMS = [PARENTS[wrist] for wrist in _WRISTS]
_FINGERS = torch.nn.functional.normalize(torch.tensor([[1.0, -0.42, 0.08], [-1.0, -0.42, 0.08]], dtype=torch.float64), dim=-1)
"""Where the relaxed fingers of the skinned body point in the rest pose, left and right."""


def lifted_hands(
    q: Float[Tensor, "*b 22 3 3"], joints: Float[Tensor, "*b 22 3"], skeleton: Skeleton, ground: Plane
) -> Float[Tensor, "*b 22 3 3"]:
    """Return local rotations with the hands bent out of the ground, which moves no joint."""
    surface = ground.surface(joints[..., _WRISTS, :])
    if not (surface.distance < HAND + THICKNESS).any():
        return q
    turns = skeleton.global_rotations(q)
    fingers = (turns[..., _WRISTS, :, :] @ _FINGERS.to(q).unsqueeze(-1)).squeeze(-1)
    rise = (fingers * surface.normal).sum(-1).clamp(-1, 1)
    least = ((THICKNESS - surface.distance) / HAND).clamp(-1, 1)
    angle = (torch.asin(least) - torch.asin(rise)).clamp(0, FARTHEST_BACK)
    axis = torch.linalg.cross(fingers, surface.normal)
    turn = exp(torch.nn.functional.normalize(axis, dim=-1) * angle.unsqueeze(-1)) @ turns[..., _WRISTS, :, :]
    local = turns[..., _FOREARMS, :, :].transpose(-1, -2) @ turn
    return q.index_copy(q.ndim - 3, torch.tensor(_WRISTS), torch.where((angle > 0)[..., None, None], local, q[..., _WRISTS, :, :]))
