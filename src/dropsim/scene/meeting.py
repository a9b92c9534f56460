"""People who run into each other: after everybody's step, whose spheres overlap are moved apart, by equal and opposite impulses."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.collider import Collider
from dropsim.projective import restore_lengths, settle
from dropsim.skeleton import NUM_JOINTS, Skeleton

NEAR = 2.5
"""Hips farther apart than this cannot touch within a frame [m]."""
NEAREST = 4
"""People near enough to be touched: more than these never fit around one."""
ROUNDS = 6
"""Of moving apart and restoring lengths."""
SHARE = 0.7
"""Of an overlap that one round takes away: spheres overlap several others at once."""


def neighbours(x: Float[Tensor, "*w p 22 3"]) -> Int[Tensor, "*w p n"] | None:
    """Return everybody's nearest others, or nothing where nobody is near anybody."""
    count = x.shape[-3]
    if count < 2:
        return None
    roots = x[..., 0, :]
    apart = (roots.unsqueeze(-2) - roots.unsqueeze(-3)).norm(dim=-1) + 1e6 * torch.eye(count, dtype=roots.dtype)
    if float(apart.min()) > NEAR:
        return None
    return apart.topk(min(count - 1, NEAREST), largest=False).indices


def moved_apart(
    x: Float[Tensor, "*w p 22 3"], x_before: Float[Tensor, "*w p 22 3"], near: Int[Tensor, "*w p n"], skeleton: Skeleton,
    ground: Collider, *, friction: float, h: float,
) -> tuple[Float[Tensor, "*w p 22 3"], Float[Tensor, "*w p 22 3"]]:  # fmt: skip
    """Return everybody apart, and the forces that this takes [N].

    Each pair of spheres is moved by its masses, so that what one gains in momentum the other loses; lengths are restored without changing
    any. Last, nobody is left in the ground.
    """
    masses, start = skeleton.masses.to(x), x
    met = torch.zeros(x.shape[:-2], dtype=torch.bool)
    forces, give = torch.zeros_like(x), (masses.mean() / masses).expand(x.shape[:-1])
    for _ in range(ROUNDS):
        step = _steps_apart(x, near, skeleton)
        moving = (step != 0).any(-1).any(-1)
        if not moving.any():
            break
        met |= moving
        forces = forces + step * (masses / (h * h)).unsqueeze(-1)
        x = torch.where(moving[..., None, None], restore_lengths(x + step, skeleton, give), x)
    if not met.any():
        return start, forces
    settled, _ = settle(x, x_before, skeleton, (ground,), friction=friction, h=h, contact_mobility=1.0, rounds=2)
    return torch.where(met[..., None, None], settled, start), forces


def _steps_apart(x: Float[Tensor, "*w p 22 3"], near: Int[Tensor, "*w p n"], skeleton: Skeleton) -> Float[Tensor, "*w p 22 3"]:
    """Return how far every joint moves out of the spheres of others."""
    batch, num = near.shape[:-1], near.shape[-1]
    index = near.reshape(*batch[:-1], -1, 1, 1).expand(*batch[:-1], -1, NUM_JOINTS, 3)
    others = x.gather(-3, index).reshape(*batch, 1, num * NUM_JOINTS, 3)
    mutual = _mutual(near).repeat_interleave(NUM_JOINTS, dim=-1).unsqueeze(-2)
    radii, masses = skeleton.radii.to(x), skeleton.masses.to(x)
    away = x.unsqueeze(-2) - others
    length = away.norm(dim=-1)
    depth = (radii.unsqueeze(-1) + radii.repeat(num) - length).clamp(min=0) * mutual
    # The lighter of two joints moves farther.
    share = masses.repeat(num) / (masses.unsqueeze(-1) + masses.repeat(num))
    return SHARE * ((depth * share / length.clamp(min=1e-9)).unsqueeze(-1) * away).sum(-2)


def _mutual(near: Int[Tensor, "*w p n"]) -> Bool[Tensor, "*w p n"]:
    """Whether somebody is among the nearest of each of his nearest: only such pairs push each other, or one would push alone."""
    batch, count = near.shape[:-2], near.shape[-2]
    of_others = near.gather(-2, near.reshape(*batch, -1, 1).expand(*batch, -1, near.shape[-1])).reshape(*near.shape, -1)
    me = torch.arange(count).reshape(count, 1, 1)
    return (of_others == me).any(-1)
