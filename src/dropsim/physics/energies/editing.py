"""Energies that edit a motion: a velocity to follow, a joint held in place, a joint stiffened."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.physics.energy import Energy, Frame, Target


@dataclass(frozen=True, eq=False)
class CentreOfMassVelocity(Energy):
    """E_com: the centre of mass moves at a target velocity, horizontally; the vertical is left alone."""

    velocity: Float[Tensor, "*b 2"]
    """Horizontal target [m/s]."""
    weight: float = 1.0
    name: str = field(default="com_velocity", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Return one row, the shares of the particles in the body's mass, scaled so that the weight acts on the body as a whole."""
        masses = skeleton.masses
        return NUM_JOINTS**0.5 * (masses / masses.sum()).unsqueeze(0)

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Put the centre of mass where the target velocity takes it."""
        centre = frame.skeleton.centre_of_mass
        horizontal = centre(frame.x)[..., :2] + frame.h * self.velocity.to(x)
        goal = torch.cat((horizontal, centre(x)[..., 2:]), dim=-1)
        return Target(NUM_JOINTS**0.5 * goal.unsqueeze(-2))


@dataclass(frozen=True, eq=False)
class Pin(Energy):
    """A joint held at a point."""

    joint: str
    target: Float[Tensor, "*b 3"]
    """World [m]."""
    weight: float = 100.0
    name: str = field(default="pin", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Select the joint."""
        row = torch.zeros(1, NUM_JOINTS, dtype=skeleton.rest.dtype)
        row[0, joint_index(self.joint)] = 1.0
        return row

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Return the target."""
        return Target(self.target.to(x).unsqueeze(-2).expand(*x.shape[:-2], 1, 3))


@dataclass(frozen=True, eq=False)
class Spring(Energy):
    """Two joints kept at a distance: a stiff knee is a spring from hip to ankle at the length of the straight leg."""

    joint_a: str
    joint_b: str
    length: float
    """[m]"""
    weight: float = 30.0
    name: str = field(default="spring", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """One end less the other."""
        row = torch.zeros(1, NUM_JOINTS, dtype=skeleton.rest.dtype)
        row[0, joint_index(self.joint_a)], row[0, joint_index(self.joint_b)] = 1.0, -1.0
        return row

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Scale the vector between the joints to the length."""
        rod = x[..., joint_index(self.joint_a), :] - x[..., joint_index(self.joint_b), :]
        return Target((rod * (self.length / rod.norm(dim=-1, keepdim=True).clamp_min(1e-9))).unsqueeze(-2))


@dataclass(frozen=True, eq=False)
class CollinearEnergy(Energy):
    """A joint on the line between two others, at its place in the straight limb: a knee between hip and ankle."""

    joint_a: str
    middle: str
    joint_b: str
    weight: float = 30.0
    name: str = field(default="straight", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """The joint less its place between the others, in proportion to the two bones."""
        a, m, b = (joint_index(name) for name in (self.joint_a, self.middle, self.joint_b))
        near, far = ((skeleton.rest[m] - skeleton.rest[end]).norm() for end in (a, b))
        row = torch.zeros(1, NUM_JOINTS, dtype=skeleton.rest.dtype)
        row[0, m], row[0, a], row[0, b] = 1.0, -far / (near + far), -near / (near + far)
        return row

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Wish for no distance."""
        del frame
        return Target(x.new_zeros(*x.shape[:-2], 1, 3))
