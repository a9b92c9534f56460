"""The motion prior as an energy: the distance to the nearest of its candidates."""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute import arrays as kernels
from dropsim.physics.energy import Energy, Frame, FrameArrays, Target, Work


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
        nearest = nearest_candidate(frame.manifold, x)
        return Target(frame.manifold.take_along_dim(nearest[..., None, None, None], dim=-3).squeeze(-3))

    def write(self, work: Work, frame: Frame, arrays: FrameArrays, at: int) -> bool:
        """Do the same, compiled."""
        del frame
        from dropsim.priors.network import nearest

        nearest(arrays.manifold, work.joints, np.empty(len(work.joints), dtype=np.int64), work.p, at)
        return True


def nearest_candidate(candidates: Float[Tensor, "*b k 22 3"], x: Float[Tensor, "*b 22 3"]) -> Int[Tensor, "*b"]:
    """Return the index of the candidate nearest to x in joint space, the first of equals."""
    if not kernels.serve(candidates, x):
        return (candidates - x.unsqueeze(-3)).square().sum((-1, -2)).argmin(-1)
    from dropsim.priors.network import nearest

    index, k, rows = torch.empty(x.shape[:-2], dtype=torch.long), candidates.shape[-3], (NUM_JOINTS, 3)
    joints = kernels.array(x, *rows)
    every = kernels.array(candidates.expand(*x.shape[:-2], k, *rows), k, *rows)
    nearest(every, joints, kernels.array(index), np.empty(joints.shape), 0)
    return index
