"""What a live scene has beside the written ones: a hand that draws a limb, and a second world in which nothing is done to anybody."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.skeleton import PARENTS
from dropsim.physics.collider import Plane, Spheres
from dropsim.scene import Balls, Element, MaskedEnergy, Goal, Ground, StepInputs, SceneContext

FAR = 1e6
"""Where spheres are that a ghost does not meet [m]."""


@dataclass(frozen=True)
class Grab:
    """A hand on a limb: a spring and damper from a point of a bone to a point in the world."""

    bone: int
    """The joint at the bone's far end."""
    share: float
    """Where on the bone: 0 at the near end, 1 at the far one."""
    pointer: tuple[float, float, float]
    """World [m]."""
    person: int = 0
    stiffness: float = 1500.0
    """[N/m]"""
    damping: float = 80.0
    """[N s/m]"""
    largest: float = 400.0
    """The most that it draws [N]."""

    def held(self, x: Float[Tensor, "p 22 3"]) -> Float[Tensor, "3"]:
        """Return the point that is held [m], or its velocity from velocities."""
        return torch.lerp(x[self.person, PARENTS[self.bone]], x[self.person, self.bone], self.share)

    def force(self, x: Float[Tensor, "p 22 3"], v: Float[Tensor, "p 22 3"]) -> Float[Tensor, "3"]:
        """Return the force on the limb [N]."""
        pull = self.stiffness * (torch.tensor(self.pointer, dtype=x.dtype) - self.held(x)) - self.damping * self.held(v)
        return pull * (self.largest / pull.norm().clamp(min=self.largest))

    def forces(self, x: Float[Tensor, "w p 22 3"], v: Float[Tensor, "w p 22 3"]) -> Float[Tensor, "w p 22 3"]:
        """Share the force between the bone's ends, in the first world only."""
        forces, force = torch.zeros_like(x), self.force(x[0], v[0])
        forces[0, self.person, self.bone] += self.share * force
        forces[0, self.person, PARENTS[self.bone]] += (1 - self.share) * force
        return forces


@dataclass(frozen=True, eq=False)
class Here(Element[Any]):
    """An element of the first world only: it sees that world as if there were no other, and the ghost's is left alone."""

    element: Element[Any]

    def people(self) -> tuple[int, ...]:
        """Return whom the element concerns."""
        return self.element.people()

    def begin(self, moment: SceneContext) -> Any:  # noqa: ANN401, a memory is the element's own affair
        """Begin the element."""
        return self.element.begin(_first(moment))

    def act(self, memory: Any, moment: SceneContext) -> tuple[Any, StepInputs]:  # noqa: ANN401
        """Let the element act, and keep the ghost out of it."""
        memory, influence = self.element.act(memory, _first(moment))
        return memory, _only_first(influence, len(moment.people.x))

    def balls(self, memory: Any) -> Balls | None:  # noqa: ANN401
        """Show what the element shows."""
        return self.element.balls(memory)


def first_plane(plane: Plane) -> Plane:
    """Return the ground of the first world."""
    return plane if plane.normal.ndim == 1 else plane.map(lambda vectors: vectors[0], lambda scalars: scalars[0])


def _first(moment: SceneContext) -> SceneContext:
    return replace(moment, people=moment.people[0], ground=first_plane(moment.ground))


def _only_first(influence: StepInputs, worlds: int) -> StepInputs:
    """Return an influence on the first of some worlds."""

    def among(values: Tensor, fill: float) -> Tensor:
        """Give the other worlds a value that does nothing."""
        return torch.cat((values.unsqueeze(0), torch.full_like(values, fill).expand(worlds - 1, *values.shape)))

    first = torch.zeros(worlds, 1, dtype=torch.bool)
    first[0] = True
    return StepInputs(
        forces=None if influence.forces is None else among(influence.forces, 0.0),
        energies=[MaskedEnergy(energy, first) for energy in influence.energies],
        # Spheres are where a ghost never comes; nothing else is put into a scene yet.
        colliders=[
            Spheres(among(c.centres, FAR), c.radii, among(c.velocities, 0.0)) if isinstance(c, Spheres) else c for c in influence.colliders
        ],
        goals=[Goal(among(goal.people, 0.0), goal.cost) for goal in influence.goals],
        held=None if influence.held is None else among(influence.held, 0.0),
        stiff=None if influence.stiff is None else among(influence.stiff, 0.0),
    )


@dataclass(frozen=True)
class LiveGround(Ground):
    """A ground that tilts in the first world and is level in the ghost's."""

    def plane(self, time: float, h: float, pivot: Float[Tensor, "*w 3"]) -> Plane:
        """Return the ground of both worlds."""
        plane = super().plane(time, h, pivot)
        if plane.normal.ndim < 2 or len(plane.normal) < 2:
            return plane
        level, zero = torch.tensor([0.0, 0.0, 1.0]).to(plane.normal), torch.zeros(3).to(plane.normal)

        def with_ghost(values: Tensor, ghost: Tensor) -> Tensor:
            return torch.stack((values[0], ghost.to(values)))

        return Plane(
            with_ghost(plane.normal, level), with_ghost(plane.offset, zero[0]), with_ghost(plane.angular_velocity, zero),
            with_ghost(plane.velocity, zero), with_ghost(plane.pivot, zero),
        )  # fmt: skip
