"""The motion prior as an energy: the distance to the nearest of its candidates."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

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
        nearest = (frame.manifold - x.unsqueeze(-3)).square().sum((-1, -2)).argmin(-1)
        return Target(frame.manifold.take_along_dim(nearest[..., None, None, None], dim=-3).squeeze(-3))
