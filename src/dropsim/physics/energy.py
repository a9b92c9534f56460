"""The contract of a projective energy, E(x) = w/2 min_p |A x - p|^2, and the frame that energies see.

Inside the solver people have exactly one batch dimension, n.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import Skeleton
from dropsim.physics.contact import Solids


@dataclass(frozen=True, eq=False)
class Frame:
    """What is known while one frame is being solved."""

    skeleton: Skeleton
    h: float
    """Step [s]."""
    x: Float[np.ndarray, "n 22 3"]
    """Joints at the step's start, x_t [m]."""
    y: Float[np.ndarray, "n 22 3"]
    """Inertial target [m]."""
    twist: Float[np.ndarray, "n 22 3 3"]
    """Local rotations that inverse kinematics takes its twists from: those of the reference candidate."""
    candidates: Float[np.ndarray, "n k 22 3"]
    """The prior's candidates for the joints [m]."""
    solids: Solids
    """What can be touched, as it will be at the step's end."""

    @functools.cached_property
    def twists(self) -> Float[np.ndarray, "n 22 3 3"]:
        """Those twists; every iteration asks for them."""
        return self.skeleton.twists(self.twist)


@dataclass(frozen=True, eq=False)
class Target:
    """Where an energy wants A x to be."""

    p: Float[np.ndarray, "n m 3"]
    """Projection of A x onto the energy's manifold [m]."""
    active: Bool[np.ndarray, "n m"] | None = None
    """Rows that apply; None means all of them."""


class Energy(ABC):
    """A preference about the next frame: a linear map A of the joints, and a projection p onto where A x should be.

    Weights are relative to M / h^2 (see docs/architecture.md): the solver minimises 1/2 (x - y)^T M (x - y) + sum w/2
    |A x - p|^2 with M scaled to a mean of one, so values are in m^2.
    """

    name: str
    weight: float
    always: bool = False
    """Whether all rows always apply, so that A^T A can be added up once."""

    @abstractmethod
    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        """Return A, the same for x, y and z."""

    @abstractmethod
    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        """Return the point of the energy's manifold that is nearest to A x."""

    def value(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Float[np.ndarray, "n"]:
        """Return w/2 |A x - p|^2 over the rows that apply [m^2]."""
        target = self.project(x, frame)
        squares = ((self.matrix(frame.skeleton) @ x - target.p) ** 2).sum(-1)
        return 0.5 * self.weight * (squares if target.active is None else squares * target.active).sum(-1)


def check_energy(energy: Energy, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
    """Return an energy's matrix, or raise with what is wrong with the energy."""
    name, weight = getattr(energy, "name", None), getattr(energy, "weight", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"{type(energy).__name__} needs a name: a string that reports show")
    if not isinstance(weight, int | float) or not 0 <= weight < np.inf:
        raise ValueError(f"the energy {name!r} needs a weight of 0 or more, not {weight!r}")
    A = np.asarray(energy.matrix(skeleton), dtype=np.float64)
    if A.ndim != 2 or A.shape[1] != len(skeleton.masses) or not np.isfinite(A).all():
        raise ValueError(f"the matrix of the energy {name!r} has to be m x 22 finite numbers, and is {A.shape}")
    return np.ascontiguousarray(A)


def check_target(energy: Energy, target: object, num: int, rows: int) -> Target:
    """Return what a user's energy projected to, or raise with what is wrong with it."""
    if not isinstance(target, Target):
        raise ValueError(f"project of the energy {energy.name!r} has to return a Target, not {type(target).__name__}")
    active = True if target.active is None else target.active
    try:
        for values, shape in ((target.p, (num, rows, 3)), (active, (num, rows))):
            np.broadcast_to(values, shape)
    except ValueError:
        raise ValueError(
            f"p and active of the energy {energy.name!r} have to be {num} x {rows} x 3 and {num} x {rows}, "
            f"as its matrix has {rows} rows, and p is {np.shape(target.p)}"
        ) from None
    if not np.isfinite(np.sum(target.p)):
        applied = target.p if target.active is None else np.where(target.active[..., None], target.p, 0.0)
        if not np.isfinite(applied).all():
            raise ValueError(f"p of the energy {energy.name!r} holds numbers that are not finite")
    return target
