"""The ragdoll's energies: rigid bones, contact, range of motion."""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import best_turn
from dropsim.body.skeleton import NUM_JOINTS, PARENTS, Skeleton
from dropsim.compute import arrays as kernels
from dropsim.physics.collider import nearest_surface
from dropsim.physics.energy import Energy, Frame, FrameArrays, Target, Work
from dropsim.priors.pose import PosePrior

BRACES = ((1, 2), (1, 3), (2, 3), (12, 13), (12, 14), (13, 14))
"""Pairs that hold the children of the pelvis and of the chest in shape, so that these two are blocks and not loose hubs."""
_RODS = tuple((c, PARENTS[c]) for c in range(1, NUM_JOINTS)) + BRACES
_RODS_ENDS = np.array(_RODS)
_RODS_A = torch.zeros(len(_RODS), NUM_JOINTS, dtype=torch.float64)
for _row, (_a, _b) in enumerate(_RODS):
    _RODS_A[_row, _a], _RODS_A[_row, _b] = 1.0, -1.0


@dataclass(frozen=True, eq=False)
class Rigidity(Energy):
    """Bones as strong springs (Liu et al. 2013): p is each rod's direction at its rest length."""

    weight: float = 1.0
    stiffness: float = 60.0
    """How much stronger than the weight says the springs are."""
    name: str = field(default="rigidity", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Rods as differences of their ends."""
        del skeleton
        return self.stiffness**0.5 * _RODS_A

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Scale each rod to its rest length."""
        incidence = _RODS_A.to(x)
        rods = incidence @ x
        lengths = (incidence @ frame.skeleton.rest.to(x)).norm(dim=-1, keepdim=True)
        return Target(self.stiffness**0.5 * rods * (lengths / rods.norm(dim=-1, keepdim=True).clamp_min(1e-9)))

    def write(self, work: Work, frame: Frame, arrays: FrameArrays, at: int) -> bool:
        """Do the same, compiled."""
        del arrays
        from dropsim.physics.contact import scaled_rods

        scaled_rods(work.joints, _RODS_ENDS, frame.skeleton.arrays.rest, self.stiffness**0.5, work.p, at)
        return True


@dataclass(frozen=True, eq=False)
class Contact(Energy):
    """Particles that would be inside something stay where they were along it and come out to its surface.

    Static friction, as in the paper: the target is x_t carried along by the surface, moved along the normal until it touches.
    """

    weight: float = 3.0
    name: str = field(default="contact", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Every particle for itself."""
        return torch.eye(NUM_JOINTS, dtype=skeleton.rest.dtype)

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Stick tangentially, touch normally."""
        surface = nearest_surface(frame.colliders, x)
        gap = surface.distance - frame.skeleton.radii.to(x)
        carried = frame.x + frame.h * surface.velocity
        # The tangent plane at x stands for the surface: exact for planes, and for balls at the step of one frame.
        height = ((carried - x) * surface.normal).sum(-1) + gap
        touching = gap < 0
        return Target(torch.where(touching.unsqueeze(-1), carried - height.unsqueeze(-1) * surface.normal, x), touching)

    def write(self, work: Work, frame: Frame, arrays: FrameArrays, at: int) -> bool:
        """Do the same, compiled."""
        from dropsim.physics.contact import contact_target

        radii = frame.skeleton.arrays.radii
        contact_target(work.joints, arrays.x, radii, arrays.planes, arrays.balls, frame.h, work.p, work.active, at)
        return False


@dataclass(frozen=True, eq=False)
class RangeOfMotion(Energy):
    """Poses that no person can take are drawn back to the nearest that one can: pose codes beyond the limit are scaled to it.

    Inside the range the projection is x itself, so the rows do not apply there.
    """

    pose: PosePrior
    weight: float = 3.0
    longest_pull: float = 0.03
    """Farthest that one frame draws a joint [m]: a limp body far out of the range is drawn back and not thrown."""
    name: str = field(default="range_of_motion", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """All particles about their middle: a pose has no place, so this energy moves nobody as a whole."""
        return torch.eye(NUM_JOINTS, dtype=skeleton.rest.dtype) - 1.0 / NUM_JOINTS

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Pose the body inside the range."""
        skeleton = frame.skeleton
        q = skeleton.inverse(x, frame.twist)
        out = self.pose.norm(q) > self.pose.limit
        active = out.unsqueeze(-1).expand(x.shape[:-1])
        if not out.any():
            return Target(x, active)
        return Target(self._posed(q, x, skeleton), active)

    def _posed(self, q: Float[Tensor, "*b 22 3 3"], x: Float[Tensor, "*b 22 3"], skeleton: Skeleton) -> Float[Tensor, "*b 22 3"]:
        posed = skeleton.forward(self.pose.project(q), x[..., 0, :])
        here, posed = (p - p.mean(dim=-2, keepdim=True) for p in (x, posed))
        # Turned to lie on the body as well as it can: a pose has no orientation either, and limbs that give way must not spin the trunk.
        pull = posed @ best_turn(posed, here, skeleton.masses.to(x)).transpose(-1, -2) - here
        length = pull.norm(dim=-1, keepdim=True)
        return here + pull * (self.longest_pull / length.clamp(min=self.longest_pull))

    def write(self, work: Work, frame: Frame, arrays: FrameArrays, at: int) -> bool:
        """Do the same, compiled."""
        from dropsim.body.kinematics import inverse

        q, skeleton, rows = torch.empty(*work.x.shape, 3, dtype=torch.float64), frame.skeleton, (NUM_JOINTS, 3)
        inverse(work.joints, arrays.twist, skeleton.arrays.offsets, kernels.array(q, *rows, 3))
        out = kernels.array(self.pose.norm(q)) > self.pose.limit
        work.active[:, at : at + NUM_JOINTS] = out[:, None]
        if out.any():
            work.p[:, at : at + NUM_JOINTS] = kernels.array(self._posed(q, work.x, skeleton), *rows)
        return False
