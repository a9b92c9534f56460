"""The contract of a projective energy, E(x) = w/2 min_p |A x - p|^2, and the frame that energies see."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute import arrays as kernels
from dropsim.physics.collider import Collider, served


@dataclass(frozen=True, eq=False)
class FrameArrays:
    """A frame as the kernels take it."""

    x: np.ndarray
    y: np.ndarray
    twist: np.ndarray
    manifold: np.ndarray
    planes: np.ndarray
    balls: np.ndarray


@dataclass(frozen=True, eq=False)
class Work:
    """What the compiled solver works on: where the joints are, and one row below the other what all energies wish for."""

    x: Float[Tensor, "*b 22 3"]
    joints: np.ndarray
    """The same numbers, in the same memory."""
    p: np.ndarray
    active: np.ndarray


@dataclass(frozen=True, eq=False)
class Frame:
    """What is known while one frame is being solved."""

    skeleton: Skeleton
    h: float
    """Step [s]."""
    x: Float[Tensor, "*b 22 3"]
    """Joints at the step's start, x_t [m]."""
    y: Float[Tensor, "*b 22 3"]
    """Inertial target [m]."""
    twist: Float[Tensor, "*b 22 3 3"]
    """Local rotations that inverse kinematics takes its twists from: those of the frame that the prior wishes for."""
    manifold: Float[Tensor, "*b k 22 3"]
    """The prior's candidates for the joints [m]."""
    colliders: Sequence[Collider]
    """As they will be at the step's end."""

    @functools.cached_property
    def arrays(self) -> FrameArrays | None:
        """What the kernels see, or None where they do not serve."""
        laid_out = served(self.colliders, self.x, self.y, self.twist, self.manifold)
        if laid_out is None:
            return None
        batch, k, rows = self.x.shape[:-2], self.manifold.shape[-3], (NUM_JOINTS, 3)
        y, twist = kernels.array(self.y.expand_as(self.x), *rows), kernels.array(self.twist.expand(*batch, *rows, 3), *rows, 3)
        return FrameArrays(
            kernels.array(self.x, *rows), y, twist, kernels.array(self.manifold.expand(*batch, k, *rows), k, *rows), *laid_out
        )


@dataclass(frozen=True, eq=False)
class Target:
    """Where an energy wants A x to be."""

    p: Float[Tensor, "*b m 3"]
    """Projection of A x onto the energy's manifold [m]."""
    active: Bool[Tensor, "*b m"] | None = None
    """Rows that apply; all of them where there is nothing to say."""


class Energy(ABC):
    """A wish about the next frame, written as a linear map A of the joints and a projection p onto where A x should be.

    Weights are relative to M / h^2 (see docs/architecture.md): the solver minimises 1/2 (x - y)^T M (x - y) + sum w/2 |A x - p|^2
    with M scaled to a mean of one, so values are in m^2.
    """

    name: str
    weight: float

    @abstractmethod
    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Return A, which acts alike on x, y and z."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Return the point of the energy's manifold that is nearest to A x."""

    def write(self, work: Work, frame: Frame, arrays: FrameArrays, at: int) -> bool:
        """Write the projection into the compiled solver's rows from `at` on, and return whether all of them always apply.

        By default what `project` says; an energy that has a kernel calls that.
        """
        del arrays
        batch, target = work.x.shape[:-2], self.project(work.x, frame)
        num = target.p.shape[-2]
        work.p[:, at : at + num] = kernels.array(target.p.expand(*batch, num, 3), num, 3)
        work.active[:, at : at + num] = True if target.active is None else kernels.array(target.active.expand(*batch, num), num)
        return target.active is None

    def value(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Float[Tensor, "*b"]:
        """Return w/2 |A x - p|^2 with p projected from x, over the active rows [m^2]."""
        return self.value_of(x, self.project(x, frame), self.matrix(frame.skeleton))

    def value_of(self, x: Float[Tensor, "*b 22 3"], target: Target, A: Float[Tensor, "m 22"]) -> Float[Tensor, "*b"]:
        """Return the value for a projection and a matrix that are there already [m^2]."""
        if target.active is None:
            return 0.5 * self.weight * (A.to(x) @ x - target.p).square().sum((-1, -2))
        return 0.5 * self.weight * ((A.to(x) @ x - target.p).square().sum(-1) * target.active).sum(-1)
