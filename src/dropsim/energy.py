"""The contract of a projective energy, E(x) = w/2 min_p |A x - p|^2, and the frame that energies see."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.collider import Collider
from dropsim.skeleton import Skeleton


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

    def value(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Float[Tensor, "*b"]:
        """Return w/2 |A x - p|^2 with p projected from x, over the active rows [m^2]."""
        return self.value_of(x, self.project(x, frame), self.matrix(frame.skeleton))

    def value_of(self, x: Float[Tensor, "*b 22 3"], target: Target, A: Float[Tensor, "m 22"]) -> Float[Tensor, "*b"]:
        """Return the value for a projection and a matrix that are there already [m^2]."""
        if target.active is None:
            return 0.5 * self.weight * (A.to(x) @ x - target.p).square().sum((-1, -2))
        return 0.5 * self.weight * ((A.to(x) @ x - target.p).square().sum(-1) * target.active).sum(-1)
