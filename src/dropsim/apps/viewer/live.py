"""What a live scene adds to a scripted one: hands that pull limbs, and a second, undisturbed world for the ghost."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import PARENTS
from dropsim.physics.collider import Plane, Spheres
from dropsim.scene import Balls, Element, Goal, Ground, MaskedEnergy, SceneContext, StepInputs

FAR = 1e6
"""Where spheres are put that must not touch the ghost [m]."""


@dataclass(frozen=True)
class Grab:
    """A hand on a limb: a spring and damper between a point of a bone and a point in the world."""

    bone: int
    """The joint at the bone's far end."""
    share: float
    """Point on the bone: 0 at the near end, 1 at the far end."""
    pointer: tuple[float, float, float]
    """World [m]."""
    person: int = 0
    stiffness: float = 1500.0
    """[N/m]"""
    damping: float = 80.0
    """[N s/m]"""
    largest: float = 400.0
    """Largest force [N]."""

    def held(self, x: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "3"]:
        """Position of the held point [m]; given velocities, its velocity."""
        return (1 - self.share) * x[self.person, PARENTS[self.bone]] + self.share * x[self.person, self.bone]

    def force(self, x: Float[np.ndarray, "p 22 3"], v: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "3"]:
        """Force on the limb [N]."""
        pull = self.stiffness * (np.array(self.pointer) - self.held(x)) - self.damping * self.held(v)
        return pull * (self.largest / max(float(np.linalg.norm(pull)), self.largest))

    def forces(self, x: Float[np.ndarray, "w p 22 3"], v: Float[np.ndarray, "w p 22 3"]) -> Float[np.ndarray, "w p 22 3"]:
        """Forces on the joints [N]: shared between the bone's ends, in the first world only."""
        forces, force = np.zeros_like(x), self.force(x[0], v[0])
        forces[0, self.person, self.bone] += self.share * force
        forces[0, self.person, PARENTS[self.bone]] += (1 - self.share) * force
        return forces


@dataclass(frozen=True, eq=False)
class Here(Element[Any]):
    """Restricts an element to the first world; the ghost's world is left alone."""

    element: Element[Any]

    def people(self) -> tuple[int, ...]:
        return self.element.people()

    def begin(self, context: SceneContext) -> Any:  # noqa: ANN401, a memory is the element's own affair
        return self.element.begin(_first(context))

    def act(self, memory: Any, context: SceneContext) -> tuple[Any, StepInputs]:  # noqa: ANN401
        memory, inputs = self.element.act(memory, _first(context))
        return memory, _only_first(inputs, len(context.people.x))

    def balls(self, memory: Any) -> Balls | None:  # noqa: ANN401
        return self.element.balls(memory)


def first_plane(plane: Plane) -> Plane:
    """Ground of the first world."""
    return plane if plane.normal.ndim == 1 else plane.map(lambda vectors: vectors[0], lambda scalars: scalars[0])


def _first(context: SceneContext) -> SceneContext:
    return replace(context, people=context.people[0], ground=first_plane(context.ground))


def _only_first(inputs: StepInputs, worlds: int) -> StepInputs:
    """Restrict step inputs to the first of several worlds."""

    def among(values: np.ndarray, fill: float) -> np.ndarray:
        """Fill the other worlds with a neutral value."""
        all_worlds = np.full((worlds, *values.shape), fill, dtype=values.dtype)
        all_worlds[0] = values
        return all_worlds

    first = np.zeros((worlds, 1), dtype=bool)
    first[0] = True
    return StepInputs(
        forces=None if inputs.forces is None else among(inputs.forces, 0.0),
        energies=[MaskedEnergy(energy, first) for energy in inputs.energies],
        # Spheres are moved out of the ghost's reach; elements add no other colliders.
        colliders=[
            Spheres(among(c.centres, FAR), c.radii, among(c.velocities, 0.0)) if isinstance(c, Spheres) else c for c in inputs.colliders
        ],
        goals=[Goal(among(goal.people, 0.0), goal.cost) for goal in inputs.goals],
        held=None if inputs.held is None else among(inputs.held, 0.0),
        stiff=None if inputs.stiff is None else among(inputs.stiff, 0.0),
    )


@dataclass(frozen=True)
class LiveGround(Ground):
    """A ground that tilts in the first world and stays level in the ghost's."""

    def plane(self, time: float, h: float, pivot: Float[np.ndarray, "*w 3"]) -> Plane:
        plane = super().plane(time, h, pivot)
        if plane.normal.ndim < 2 or len(plane.normal) < 2:
            return plane
        level, zero = np.array([0.0, 0.0, 1.0]), np.zeros(3)
        return Plane(
            np.stack((plane.normal[0], level)), np.stack((plane.offset[0], zero[0])), np.stack((plane.angular_velocity[0], zero)),
            np.stack((plane.velocity[0], zero)), np.stack((plane.pivot[0], zero)),
        )  # fmt: skip
