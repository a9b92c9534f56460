"""Loose objects of a scene: boxes and balls with a mass, which people push, kick and knock over."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.skeleton import Skeleton, flat
from dropsim.physics.bodies import BodyState, Crowd, advance, body_rows, make_way
from dropsim.physics.contact import Collider, Rows, solids
from dropsim.physics.energies import Rigidity
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import CENTRE, FRICTION, SEEN, SPIN, TURN, VELOCITY
from dropsim.physics.step import StepInputs
from dropsim.scene.element import Element, SceneContext

NOWHERE = np.array([0.0, 0.0, -1e9])
"""Place where nobody touches anything [m]."""


@dataclass(frozen=True, eq=False)
class LooseObjects:
    """The loose objects of a scene, which are moved all at once."""

    elements: tuple[Element[Any], ...]
    """All elements of the scene."""

    @functools.cached_property
    def places(self) -> tuple[int, ...]:
        """Indices of the loose elements."""
        return tuple(i for i, element in enumerate(self.elements) if element.loose)

    @functools.cached_property
    def bodies(self) -> Float[np.ndarray, "n 30"]:
        """Shapes, masses and surfaces, which do not change."""
        elements: list[Any] = [self.elements[i] for i in self.places]
        kind, half, friction = (np.array(values) for values in zip(*(e.body() for e in elements), strict=True))
        mass, bounce = (np.array([getattr(e, name) for e in elements], dtype=float) for name in ("mass", "bounce"))
        return body_rows(kind, half.astype(float), mass, friction.astype(float), bounce)

    def move(
        self, memories: Sequence[Any], context: SceneContext, colliders: Sequence[Collider]
    ) -> tuple[tuple[Any, ...], StepInputs]:
        """Move them by a frame; return the memories of all elements, and the forces on the people."""
        if not self.places:
            return tuple(memories), StepInputs()
        rows, crowd, forces = self._stacked(memories), crowd_of(context), np.zeros(context.people.x.shape)
        advance(rows, crowd, solids(tuple(colliders), context.batch), context.h, forces.reshape(crowd.x.shape))
        return self._put_back(memories, rows), StepInputs(forces=forces)

    def let_through(
        self, memories: Sequence[Any], context: SceneContext
    ) -> tuple[tuple[Any, ...], tuple[Collider, ...]]:
        """Move them out of people who have moved into them; return the memories of all elements, and what is stuck.

        Objects are moved before people, whom they expect to keep their velocities; a leg that swings changes its own by
        3 m/s in a frame. What is stuck between somebody and the ground or a wall cannot make way: people have to, and
        get it as colliders.
        """
        if not self.places or context.around is None:
            return tuple(memories), ()
        rows = self._stacked(memories)
        stuck = np.zeros(rows.shape[:2], dtype=np.bool_)
        any_stuck = make_way(rows, crowd_of(context), context.around, stuck)
        memories = self._put_back(memories, rows)
        if not any_stuck:
            return memories, ()
        shapes = rows[..., : SEEN + 1].copy()
        shapes[~stuck, CENTRE:TURN], shapes[..., SEEN] = NOWHERE, 1.0
        return memories, (Rows(shapes.reshape(*context.batch[:-1], 1, *shapes.shape[1:])),)

    def _stacked(self, memories: Sequence[Any]) -> Float[np.ndarray, "w n 30"]:
        """Return their rows in each world."""
        states = [memories[i] for i in self.places]
        *worlds, _ = states[0].x.shape
        moving = np.stack([np.concatenate((s.x, s.R.reshape(*worlds, 9), s.v, s.w), -1) for s in states], -2)
        rows = np.tile(self.bodies, (math.prod(worlds), 1, 1))
        rows[..., CENTRE:FRICTION] = moving.reshape(-1, *moving.shape[-2:])
        return rows

    def _put_back(self, memories: Sequence[Any], rows: Float[np.ndarray, "w n 30"]) -> tuple[Any, ...]:
        """Return memories with their states replaced."""
        changed, worlds = list(memories), memories[self.places[0]].x.shape[:-1]
        for k, i in enumerate(self.places):
            x, R, v, w = np.split(rows[:, k].reshape(*worlds, -1), (CENTRE, TURN, VELOCITY, SPIN, FRICTION), -1)[1:5]
            changed[i] = BodyState(x, R.reshape(*worlds, 3, 3), v, w)
        return tuple(changed)


def crowd_of(context: SceneContext) -> Crowd:
    """Return the people as loose objects meet them."""
    response = response_of(context.skeleton, context.options)
    people, shape = context.people, (-1, context.batch[-1] * NUM_JOINTS, 3)
    x, v = flat(people.x, 3).reshape(shape), flat(people.v, 3).reshape(shape)
    return Crowd(x, v, context.skeleton.radii, response)


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
