"""Loose objects of a scene: boxes and balls with a mass, which people push, kick and knock over."""

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.skeleton import Skeleton, flat
from dropsim.physics.bodies import Bodies, advance
from dropsim.physics.contact import Collider, solids
from dropsim.physics.energies import Rigidity
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import BOX
from dropsim.physics.step import StepInputs
from dropsim.scene.element import Element, SceneContext


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
        return cls(np.tile(x, (*batch, 1)), np.tile(R, (*batch, 1, 1)), np.zeros((*batch, 3)), np.zeros((*batch, 3)), still)


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


def move_loose(
    elements: Sequence[Element[Any]], memories: Sequence[Any], context: SceneContext, colliders: Sequence[Collider]
) -> tuple[list[Any], StepInputs]:
    """Move the loose objects of a scene by a frame; return the memories of all elements, and the forces on the people."""
    memories = list(memories)
    loose = [i for i, e in enumerate(elements) if is_loose(e)]
    if not loose:
        return memories, StepInputs()
    batch = context.batch[:-1]
    states = [memories[i] for i in loose]
    parts = [np.stack([getattr(s, name) for s in states], len(batch)) for name in ("x", "R", "v", "w")]
    x, R, v, w = (flat(part, 3 if part.ndim == len(batch) + 3 else 2).copy() for part in parts)
    still = flat(np.stack([s.still for s in states], len(batch)), 1).copy()
    people, pace = flat(context.people.x, 3), flat(context.people.v, 3)
    forces = np.zeros(people.shape)
    around = solids(tuple(colliders), context.batch)
    bodies = _bodies_of([elements[i] for i in loose])
    advance(x, R, v, w, still, bodies, people, pace, context.skeleton.radii, response_of(context.skeleton), around, context.h, forces)
    for k, i in enumerate(loose):
        memories[i] = BodyState(*(part[:, k].reshape((*batch, *part.shape[2:])) for part in (x, R, v, w, still)))
    return memories, StepInputs(forces=forces.reshape(context.people.x.shape))


@functools.lru_cache(maxsize=8)
def response_of(skeleton: Skeleton) -> Float[np.ndarray, "22 22"]:
    """Return how an impulse on one joint changes the velocities of all joints within a step [1/kg].

    The body as a whole moves as its mass says. Against that, joints give way as the solver lets them: by the inverse of its matrix
    M + sum w A^T A, in which bones take the neighbours along and the prior holds on to its pose.
    """
    options, masses = SimulatorOptions(), skeleton.masses
    A = Rigidity(options.rigidity_weight).matrix(skeleton)
    S = np.diag(masses / masses.mean() + options.kinematic_weight) + options.rigidity_weight * A.T @ A
    apart = np.eye(len(masses)) - masses / masses.sum()  # takes the motion of the centre of mass away
    return apart @ np.linalg.inv(S) @ apart.T / masses.mean() + 1 / masses.sum()


def _bodies_of(elements: Sequence[Any]) -> Bodies:
    kinds, halves, frictions = zip(*(e.body() for e in elements), strict=True)
    mass, half = np.array([e.mass for e in elements], dtype=float), np.array(halves, dtype=float)
    square = half**2
    boxes = mass[:, None] / 3 * (square.sum(-1, keepdims=True) - square)
    inertia = np.where(np.array(kinds)[:, None] == BOX, boxes, 0.4 * mass[:, None] * square)
    bounce = np.array([e.bounce for e in elements], dtype=float)
    return Bodies(np.array(kinds, dtype=np.int64), half, 1 / mass, 1 / inertia, np.array(frictions, dtype=float), bounce)
