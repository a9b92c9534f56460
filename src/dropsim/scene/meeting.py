"""People who run into each other: after everybody's step, whose spheres overlap are moved apart, by equal and opposite impulses."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.physics.collider import Collider
from dropsim.physics.solver import restore_lengths, settle

NEAR = 2.5
"""Hips farther apart than this cannot touch within a frame [m]."""
NEAREST = 4
"""People near enough to be touched: more than these never fit around one."""
WHOLE_ROUNDS = 2
"""Of moving whole bodies apart: moved joint by joint alone, people who meet lift each other's legs and arms and wrestle."""
ROUNDS = 4
"""Of moving joints apart and restoring lengths."""
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

    First whole bodies are moved, along the ground, by their deepest overlap; then each pair of spheres by its masses. So what one gains in
    momentum the other loses; lengths are restored without changing any. Last, nobody is left in the ground.
    """
    masses, start = skeleton.masses.to(x), x
    met = torch.zeros(x.shape[:-2], dtype=torch.bool)
    forces, give = torch.zeros_like(x), (masses.mean() / masses).expand(x.shape[:-1])
    for done in range(WHOLE_ROUNDS + ROUNDS):
        away, depth = _overlaps(x, near, skeleton)
        if not depth.any():
            break
        step, acting = (_whole_steps if done < WHOLE_ROUNDS else _joint_steps)(away, depth, skeleton)
        moving = (acting != 0).any(-1).any(-1)
        met |= moving
        forces = forces + acting / (h * h)
        x = torch.where(moving[..., None, None], restore_lengths(x + step, skeleton, give), x)
    if not met.any():
        return start, forces
    settled, _ = settle(x, x_before, skeleton, (ground,), friction=friction, h=h, contact_mobility=1.0, rounds=2)
    return torch.where(met[..., None, None], settled, start), forces


def _whole_steps(
    away: Float[Tensor, "*w p 22 n 22 3"], depth: Float[Tensor, "*w p 22 n 22"], skeleton: Skeleton
) -> tuple[Float[Tensor, "*w p 1 3"], Float[Tensor, "*w p 22 3"]]:
    """Return how far everybody moves along the ground out of their deepest overlaps, and mass times that, at the joints that touch."""
    deepest = depth.amax((-3, -1), keepdim=True)
    # Equally deep ones count alike, so that both of a pair see the same.
    chosen = ((depth == deepest) & (deepest > 0)).to(depth)
    chosen = chosen / chosen.sum((-3, -1), keepdim=True).clamp(min=1)
    along = away * torch.tensor([1.0, 1.0, 0.0], dtype=away.dtype, device=away.device)
    steps = 0.5 * SHARE * ((chosen * deepest).unsqueeze(-1) * along).sum((-3, -2))
    return steps.sum(-2, keepdim=True), skeleton.masses.sum().to(steps) * steps


def _joint_steps(
    away: Float[Tensor, "*w p 22 n 22 3"], depth: Float[Tensor, "*w p 22 n 22"], skeleton: Skeleton
) -> tuple[Float[Tensor, "*w p 22 3"], Float[Tensor, "*w p 22 3"]]:
    """Return how far every joint moves out of the spheres of others, and mass times that."""
    masses = skeleton.masses.to(depth)
    # The lighter of two joints moves farther.
    share = masses / (masses.unsqueeze(-1) + masses)
    steps = SHARE * ((depth * share.unsqueeze(-2)).unsqueeze(-1) * away).sum((-2, -3))
    return steps, masses.unsqueeze(-1) * steps


def _overlaps(
    x: Float[Tensor, "*w p 22 3"], near: Int[Tensor, "*w p n"], skeleton: Skeleton
) -> tuple[Float[Tensor, "*w p 22 n 22 3"], Float[Tensor, "*w p 22 n 22"]]:
    """Return the direction from every joint of others to every own, and how deep their spheres overlap [m]."""
    batch, num = near.shape[:-1], near.shape[-1]
    index = near.reshape(*batch[:-1], -1, 1, 1).expand(*batch[:-1], -1, NUM_JOINTS, 3)
    others = x.gather(-3, index).reshape(*batch, 1, num, NUM_JOINTS, 3)
    away = x[..., None, None, :] - others
    length, radii = away.norm(dim=-1), skeleton.radii.to(x)
    depth = (radii[:, None, None] + radii - length).clamp(min=0) * _mutual(near)[..., None, :, None]
    return away / length.clamp(min=1e-9).unsqueeze(-1), depth


def _mutual(near: Int[Tensor, "*w p n"]) -> Bool[Tensor, "*w p n"]:
    """Whether somebody is among the nearest of each of his nearest: only such pairs push each other, or one would push alone."""
    batch, count = near.shape[:-2], near.shape[-2]
    of_others = near.gather(-2, near.reshape(*batch, -1, 1).expand(*batch, -1, near.shape[-1])).reshape(*near.shape, -1)
    me = torch.arange(count).reshape(count, 1, 1)
    return (of_others == me).any(-1)
