"""Projective dynamics: the inertial target and the global solve."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.energy import Energy, Target
from dropsim.skeleton import NUM_JOINTS, PARENTS, Skeleton
from dropsim.wrench import GRAVITY


def inertial_target(
    x: Float[Tensor, "*b 22 3"], v: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"], masses: Float[Tensor, "22"], h: float
) -> Float[Tensor, "*b 22 3"]:
    """Return y = x + h v + h^2 (M^-1 f + g): where the particles go if nothing holds them."""
    return x + h * v + h * h * (forces / masses.unsqueeze(-1) + torch.tensor((0.0, 0.0, -GRAVITY), dtype=x.dtype, device=x.device))


def rigid_acceleration(
    wrench: Float[Tensor, "*b 6"], arms: Float[Tensor, "*b 22 3"], masses: Float[Tensor, "22"]
) -> Float[Tensor, "*b 22 3"]:
    """Return the accelerations that a force and a moment about the centre of mass give the particles if the body moves as one [m/s^2]."""
    force, moment = wrench[..., :3], wrench[..., 3:]
    squared = arms.square().sum(-1)[..., None, None] * torch.eye(3).to(arms)
    inertia = (masses[:, None, None] * (squared - arms.unsqueeze(-1) * arms.unsqueeze(-2))).sum(-3)
    spin = torch.linalg.solve(inertia, moment)
    return (force / masses.sum()).unsqueeze(-2) + torch.linalg.cross(spin.unsqueeze(-2).expand_as(arms), arms)


class System:
    """The global step: (M + sum w A^T A) x = M y + sum w A^T p, with M scaled to a mean of one.

    Every A acts alike on x, y and z, so the system is 22 x 22 with three right-hand sides. It is in double precision: single loses
    two per cent of the momentum in a second.
    """

    def __init__(self, energies: Sequence[Energy], skeleton: Skeleton) -> None:
        """Lay out the constant part of the system."""
        self.energies = tuple(energies)
        self.mass = skeleton.masses / skeleton.masses.mean()
        self.matrices = [energy.matrix(skeleton).to(torch.float64) for energy in self.energies]
        self.grams = [energy.weight * A.T @ A for energy, A in zip(self.energies, self.matrices, strict=True)]

    def solve(self, targets: Sequence[Target], y: Float[Tensor, "*b 22 3"]) -> Float[Tensor, "*b 22 3"]:
        """Return the minimiser for given projections."""
        left = torch.diag(self.mass)
        right = self.mass.unsqueeze(-1) * y
        for energy, A, gram, target in zip(self.energies, self.matrices, self.grams, targets, strict=True):
            if target.active is None:
                left = left + gram
                right = right + energy.weight * (A.T @ target.p)
            else:
                rows = energy.weight * target.active.unsqueeze(-1) * A
                left = left + rows.transpose(-1, -2) @ A
                right = right + rows.transpose(-1, -2) @ target.p
        return torch.linalg.solve(left, right)


def restore_lengths(
    x: Float[Tensor, "*b 22 3"], skeleton: Skeleton, mobility: Float[Tensor, "*b 22"], *, iterations: int = 2
) -> Float[Tensor, "*b 22 3"]:
    """Bring every bone back to its length by the least mass-weighted displacement (fast projection, Goldenthal et al. 2007).

    Bones pull their two ends along themselves, in proportion to the ends' mobilities (inverse masses): with the true ones, linear and
    angular momentum stay what they were. Newton's method on the 21 lengths; twice is enough for the errors of one step.
    """
    incidence = _INCIDENCE.to(x)
    lengths = skeleton.lengths[1:].to(x)
    coupling = (incidence * mobility.unsqueeze(-2)) @ incidence.T
    for _ in range(iterations):
        bones = incidence @ x
        length = bones.norm(dim=-1)
        direction = bones / length.unsqueeze(-1)
        system = (direction @ direction.transpose(-1, -2)) * coupling
        tension = torch.linalg.solve(system, length - lengths)
        x = x - mobility.unsqueeze(-1) * (incidence.T @ (tension.unsqueeze(-1) * direction))
    return x


_INCIDENCE = torch.zeros(NUM_JOINTS - 1, NUM_JOINTS, dtype=torch.float64)
"""Rows that take a bone's vector, child less parent, out of the joints."""
for _child in range(1, NUM_JOINTS):
    _INCIDENCE[_child - 1, _child], _INCIDENCE[_child - 1, PARENTS[_child]] = 1.0, -1.0
