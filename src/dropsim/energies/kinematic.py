"""The motion prior as an energy: the distance to the nearest of its candidates."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dropsim import kernels
from dropsim.energy import Energy, Frame, Target
from dropsim.skeleton import NUM_JOINTS, Skeleton


@dataclass(frozen=True, eq=False)
class Kinematic(Energy):
    """E_kin: p is the candidate nearest to x."""

    weight: float = 3.0
    name: str = field(default="kinematic", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """All particles."""
        return torch.eye(NUM_JOINTS, dtype=skeleton.rest.dtype)

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Search the candidates."""
        return Target(nearest_candidate(frame.manifold, x)[1])


def nearest_candidate(
    candidates: Float[Tensor, "*b k 22 3"], x: Float[Tensor, "*b 22 3"]
) -> tuple[Int[Tensor, "*b"], Float[Tensor, "*b 22 3"]]:
    """Return the index of the candidate nearest to x in joint space, the first of equals, and that candidate."""
    if not kernels.serve(candidates, x):
        index = (candidates - x.unsqueeze(-3)).square().sum((-1, -2)).argmin(-1)
        return index, candidates.take_along_dim(index[..., None, None, None], dim=-3).squeeze(-3)
    from dropsim.kernels.network import nearest

    index, found = torch.empty(x.shape[:-2], dtype=torch.long), torch.empty(x.shape, dtype=torch.float64)
    k, rows = candidates.shape[-3], (NUM_JOINTS, 3)
    every = kernels.array(candidates.expand(*x.shape[:-2], k, *rows), k, *rows)
    nearest(every, kernels.array(x, *rows), kernels.array(index), kernels.array(found, *rows))
    return index, found
