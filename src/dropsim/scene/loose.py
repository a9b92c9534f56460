"""Loose objects of a scene: boxes and balls with a mass, which people push, kick and knock over."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import Skeleton, flat
from dropsim.physics.bodies import Bodies, BodyState, Crowd, advance, make_way
from dropsim.physics.contact import Collider, Shape, solids
from dropsim.physics.energies import Rigidity
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import BOX
from dropsim.physics.step import StepInputs
from dropsim.scene.element import Element, SceneContext

NOWHERE = np.array([0.0, 0.0, -1e9])
"""Place where nobody touches anything [m]."""


def is_loose(element: Element[Any]) -> bool:
    """Whether an element is moved by what touches it; its memory is a BodyState then."""
    return getattr(element, "loose", False)


@dataclass(frozen=True, eq=False)
class LooseObjects:
    """The loose objects of a scene, which are moved all at once."""

    elements: tuple[Element[Any], ...]
    """All elements of the scene."""

    @functools.cached_property
    def places(self) -> tuple[int, ...]:
        """Indices of the loose elements."""
        return tuple(i for i, element in enumerate(self.elements) if is_loose(element))

    @functools.cached_property
    def bodies(self) -> Bodies:
        """Shapes, masses and surfaces, which do not change."""
        elements: list[Any] = [self.elements[i] for i in self.places]
        kinds, halves, frictions = (np.array(values) for values in zip(*(e.body() for e in elements), strict=True))
        mass, square = np.array([e.mass for e in elements], dtype=float), halves.astype(float) ** 2
        boxes = mass[:, None] / 3 * (square.sum(-1, keepdims=True) - square)
        inertia = np.where(kinds[:, None] == BOX, boxes, 0.4 * mass[:, None] * square)
        bounce = np.array([e.bounce for e in elements], dtype=float)
        return Bodies(kinds, halves.astype(float), 1 / mass, 1 / inertia, frictions.astype(float), bounce)

    def move(
        self, memories: Sequence[Any], context: SceneContext, colliders: Sequence[Collider]
    ) -> tuple[tuple[Any, ...], StepInputs]:
        """Move them by a frame; return the memories of all elements, and the forces on the people."""
        if not self.places:
            return tuple(memories), StepInputs()
        states, crowd, forces = self._stacked(memories, context), crowd_of(context), np.zeros(context.people.x.shape)
        around = solids(tuple(colliders), context.batch)
        if not advance(states, self.bodies, crowd, around, context.h, flat(forces, 3)):
            return tuple(memories), StepInputs()
        return self._put_back(memories, context, states), StepInputs(forces=forces)

    def let_through(
        self, memories: Sequence[Any], context: SceneContext
    ) -> tuple[tuple[Any, ...], tuple[Collider, ...]]:
        """Move them out of people who have moved into them; return the memories of all elements, and what is stuck.

        Objects are moved before people, whom they expect to keep their velocities; a leg that swings changes its own by
        3 m/s in a frame. What is stuck between somebody and the ground or a wall cannot make way: people have to, and
        get it as colliders.
        """
        if not self.places or context.around is None or not self._anybody_near(memories, context):
            return tuple(memories), ()
        states = self._stacked(memories, context)
        stuck = np.zeros(states.still.shape, dtype=np.bool_)
        any_stuck = make_way(states, self.bodies, crowd_of(context), context.around, stuck)
        memories = self._put_back(memories, context, states)
        return memories, self._as_colliders(memories, stuck.reshape((*context.batch[:-1], -1))) if any_stuck else ()

    def _as_colliders(self, memories: Sequence[Any], which: Bool[np.ndarray, "*w n"]) -> tuple[Collider, ...]:
        """Return some of them as people touch them; in worlds where one is not among these it is nowhere."""
        colliders = list[Collider]()
        for k, i in enumerate(self.places):
            if not which[..., k].any():
                continue
            state, half, friction = memories[i], self.bodies.half[k], float(self.bodies.friction[k])
            at = np.where(which[..., k, None], state.x, NOWHERE)[..., None, :]
            turning = (state.R[..., None, :, :], state.v[..., None, :], state.w[..., None, :])
            colliders.append(Shape(int(self.bodies.kind[k]), tuple(half.tolist()), at, *turning, friction))
        return tuple(colliders)

    def _anybody_near(self, memories: Sequence[Any], context: SceneContext) -> bool:
        """Tell whether somebody is within the sphere around one of them."""
        x, reach = np.array([memories[i].x for i in self.places]), np.linalg.norm(self.bodies.half, axis=-1)
        away = context.people.x - x[..., None, None, :]
        within = reach[(..., *(None,) * (away.ndim - 2))] + context.skeleton.radii
        return bool(((away * away).sum(-1) < within**2).any())

    def _stacked(self, memories: Sequence[Any], context: SceneContext) -> BodyState:
        """Return their states with one dimension for worlds and one for objects."""
        states, dim = [memories[i] for i in self.places], len(context.batch) - 1
        parts = (np.stack(part, dim) for part in zip(*states, strict=True))
        return BodyState(*(part.reshape(-1, *part.shape[dim:]) for part in parts))

    def _put_back(self, memories: Sequence[Any], context: SceneContext, states: BodyState) -> tuple[Any, ...]:
        """Return memories with their states replaced."""
        changed, worlds = list(memories), context.batch[:-1]
        parts = [np.moveaxis(part.reshape(*worlds, *part.shape[1:]), len(worlds), 0) for part in states]
        for k, i in enumerate(self.places):
            changed[i] = BodyState(*(part[k, ...] for part in parts))
        return tuple(changed)


def crowd_of(context: SceneContext) -> Crowd:
    """Return the people as loose objects meet them."""
    response = response_of(context.skeleton, context.options)
    return Crowd(flat(context.people.x, 3), flat(context.people.v, 3), context.skeleton.radii, response)


@functools.lru_cache(maxsize=8)
def response_of(skeleton: Skeleton, options: SimulatorOptions) -> Float[np.ndarray, "22 22"]:
    """Return how an impulse on one joint changes the velocities of all joints within a step [1/kg].

    The body as a whole moves as its mass says. Against that, joints give way as the solver lets them: by the inverse of
    its matrix M + sum w A^T A, in which bones take the neighbours along and the prior holds on to its pose.
    """
    A, masses = Rigidity(options.rigidity_weight, options.braces).matrix(skeleton), skeleton.masses
    held = masses / masses.mean() + options.kinematic * options.kinematic_weight
    S = np.diag(held) + options.rigidity_weight * A.T @ A
    apart = np.eye(len(masses)) - masses / masses.sum()  # takes the motion of the centre of mass away
    return apart @ np.linalg.inv(S) @ apart.T / masses.mean() + 1 / masses.sum()
