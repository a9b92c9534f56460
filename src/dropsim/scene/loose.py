"""Loose objects of a scene: boxes and balls with a mass, which people push, kick and knock over."""

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.skeleton import Skeleton, flat
from dropsim.physics.bodies import Bodies, advance, make_way
from dropsim.physics.contact import Collider, Shape, Spheres, solids
from dropsim.physics.energies import Rigidity
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import BOX
from dropsim.physics.step import StepInputs
from dropsim.scene.element import Element, SceneContext

NOWHERE = np.array([0.0, 0.0, -1e9])
"""Where nobody touches anything [m]."""


@dataclass(frozen=True, eq=False)
class BodyState:
    """Where a loose object is, and how it moves."""

    x: Float[np.ndarray, "*w 3"]
    """Centre [m]."""
    R: Float[np.ndarray, "*w 3 3"]
    """From its own axes to the world's."""
    v: Float[np.ndarray, "*w 3"]
    """[m/s]"""
    w: Float[np.ndarray, "*w 3"]
    """[rad/s]"""
    still: Int[np.ndarray, "*w"]
    """Frames for which it has been at rest."""

    @classmethod
    def at_rest(cls, x: np.ndarray, R: np.ndarray, batch: tuple[int, ...]) -> "BodyState":
        """Return an object that does not move, in every world."""
        still = np.zeros(batch, dtype=np.int64)
        return cls(
            np.tile(x, (*batch, 1)), np.tile(R, (*batch, 1, 1)), np.zeros((*batch, 3)), np.zeros((*batch, 3)), still
        )


class Loose(Element[Any]):
    """An element that may be a loose object: it is one if it has a mass, and its memory is a BodyState then."""

    mass: float | None
    bounce: float

    @abstractmethod
    def body(self) -> tuple[int, tuple[float, float, float], float]:
        """Return its kind, half its sizes [m], and its friction."""


def is_loose(element: Element[Any]) -> bool:
    """Whether an element is moved by what touches it."""
    return isinstance(element, Loose) and element.mass is not None


@dataclass(frozen=True, eq=False)
class LooseObjects:
    """The loose objects of a scene, which are moved all at once."""

    elements: tuple[Element[Any], ...]
    """All of the scene."""

    @functools.cached_property
    def places(self) -> tuple[int, ...]:
        """Which of the elements are loose."""
        return tuple(i for i, element in enumerate(self.elements) if is_loose(element))

    @functools.cached_property
    def bodies(self) -> Bodies:
        """What does not change of them."""
        return _bodies_of([self.elements[i] for i in self.places])

    def move(
        self, memories: Sequence[Any], context: SceneContext, colliders: Sequence[Collider]
    ) -> tuple[tuple[Any, ...], StepInputs]:
        """Move them by a frame; return the memories of all elements, and the forces on the people."""
        if not self.places:
            return tuple(memories), StepInputs()
        people, pace = flat(context.people.x, 3), flat(context.people.v, 3)
        forces, (x, R, v, w, still) = np.zeros(people.shape), self._stacked(memories, context)
        response = response_of(context.skeleton, context.options)
        radii, around = context.skeleton.radii, solids(tuple(colliders), context.batch)
        if not advance(x, R, v, w, still, self.bodies, people, pace, radii, response, around, context.h, forces):
            return tuple(memories), StepInputs()
        return self._put_back(memories, context, x, R, v, w, still), StepInputs(
            forces=forces.reshape(context.people.x.shape)
        )

    def let_through(
        self, memories: Sequence[Any], context: SceneContext
    ) -> tuple[tuple[Any, ...], tuple[Collider, ...]]:
        """Move them out of people who went into them, once people have moved; return the memories of all elements, and what is stuck.

        Objects are moved before people, whom they expect to keep their velocities; a leg that swings changes its own by
        3 m/s in a frame. What is stuck between somebody and the ground or a wall cannot make way: people have to, and
        get it as colliders.
        """
        if not self.places or context.around is None or not self._anybody_near(memories, context):
            return tuple(memories), ()
        x, R, v, w, still = self._stacked(memories, context)
        stuck = np.zeros(still.shape, dtype=np.bool_)
        any_stuck = make_way(
            x, R, still, self.bodies, flat(context.people.x, 3), context.skeleton.radii, context.around, stuck
        )
        found = self._put_back(memories, context, x, R, v, w, still)
        return found, self._as_colliders(found, stuck.reshape((*context.batch[:-1], -1))) if any_stuck else ()

    def _as_colliders(self, memories: Sequence[Any], which: Bool[np.ndarray, "*w n"]) -> tuple[Collider, ...]:
        """Return some of them as people touch them; in worlds where one is not among these it is nowhere."""
        found = list[Collider]()
        for k, i in enumerate(self.places):
            if not which[..., k].any():
                continue
            own, half, friction = memories[i], self.bodies.half[k], float(self.bodies.friction[k])
            at = np.where(which[..., k, None], own.x, NOWHERE)[..., None, :]
            if self.bodies.kind[k] == BOX:
                turning = (own.R[..., None, :, :], own.v[..., None, :], own.w[..., None, :])
                found.append(Shape(BOX, tuple(half.tolist()), at, *turning, friction))
            else:
                found.append(Spheres(at[..., None, :], half[:1], own.v[..., None, None, :], friction))
        return tuple(found)

    def _anybody_near(self, memories: Sequence[Any], context: SceneContext) -> bool:
        """Tell whether somebody is within the sphere around one of them."""
        x, reach = np.array([memories[i].x for i in self.places]), np.linalg.norm(self.bodies.half, axis=-1)
        away = context.people.x - x[..., None, None, :]
        return bool(
            ((away * away).sum(-1) < (reach[(..., *(None,) * (away.ndim - 2))] + context.skeleton.radii) ** 2).any()
        )

    def _stacked(self, memories: Sequence[Any], context: SceneContext) -> tuple[np.ndarray, ...]:
        """Return the parts of their states with one dimension for worlds and one for objects."""
        dim = len(context.batch) - 1
        parts = (np.array([getattr(memories[i], name) for i in self.places]) for name in ("x", "R", "v", "w", "still"))
        return tuple(
            np.moveaxis(p, 0, dim).reshape((-1, *p.shape[:1], *p.shape[1 + dim :])) if dim else p[None] for p in parts
        )

    def _put_back(self, memories: Sequence[Any], context: SceneContext, *parts: np.ndarray) -> tuple[Any, ...]:
        """Return memories with their states replaced."""
        found, batch = list(memories), context.batch[:-1]
        shaped = [part.reshape((*batch, *part.shape[1:])) for part in parts]
        for k, i in enumerate(self.places):
            found[i] = BodyState(*(part[(*(slice(None),) * len(batch), k, ...)] for part in shaped))
        return tuple(found)


@functools.lru_cache(maxsize=8)
def response_of(skeleton: Skeleton, options: SimulatorOptions) -> Float[np.ndarray, "22 22"]:
    """Return how an impulse on one joint changes the velocities of all joints within a step [1/kg].

    The body as a whole moves as its mass says. Against that, joints give way as the solver lets them: by the inverse of
    its matrix M + sum w A^T A, in which bones take the neighbours along and the prior holds on to its pose.
    """
    A, masses = Rigidity(options.rigidity_weight).matrix(skeleton), skeleton.masses
    S = (
        np.diag(masses / masses.mean() + options.kinematic * options.kinematic_weight)
        + options.rigidity_weight * A.T @ A
    )
    apart = np.eye(len(masses)) - masses / masses.sum()  # takes the motion of the centre of mass away
    return apart @ np.linalg.inv(S) @ apart.T / masses.mean() + 1 / masses.sum()


def _bodies_of(elements: Sequence[Any]) -> Bodies:
    kinds, halves, frictions = zip(*(e.body() for e in elements), strict=True)
    mass, half = np.array([e.mass for e in elements], dtype=float), np.array(halves, dtype=float)
    square = half**2
    boxes = mass[:, None] / 3 * (square.sum(-1, keepdims=True) - square)
    inertia = np.where(np.array(kinds)[:, None] == BOX, boxes, 0.4 * mass[:, None] * square)
    bounce = np.array([e.bounce for e in elements], dtype=float)
    return Bodies(
        np.array(kinds, dtype=np.int64), half, 1 / mass, 1 / inertia, np.array(frictions, dtype=float), bounce
    )
