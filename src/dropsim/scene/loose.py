"""Loose objects of a scene: boxes and balls with a mass, which people push, kick and knock over."""

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

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

    @classmethod
    def at_rest(cls, x: np.ndarray, R: np.ndarray, batch: tuple[int, ...]) -> "BodyState":
        """Return an object that does not move, in every world."""
        return cls(np.tile(x, (*batch, 1)), np.tile(R, (*batch, 1, 1)), np.zeros((*batch, 3)), np.zeros((*batch, 3)))


class Loose(Element[Any]):
    """An element that may be a loose object: it is one if it has a mass, and its memory is a BodyState then."""

    mass: float | None
    bounce: float

    @abstractmethod
    def body(self) -> tuple[int, tuple[float, float, float], float]:
        """Return its kind, half its sizes [m], and its friction."""


def move_loose(
    elements: Sequence[Element[Any]], memories: Sequence[Any], context: SceneContext, colliders: Sequence[Collider]
) -> tuple[list[Any], StepInputs]:
    """Move the loose objects of a scene by a frame; return the memories of all elements, and the forces on the people."""
    memories = list(memories)
    loose = [i for i, e in enumerate(elements) if isinstance(e, Loose) and e.mass is not None]
    if not loose:
        return memories, StepInputs()
    batch = context.batch[:-1]
    states = [memories[i] for i in loose]
    parts = [np.stack([getattr(s, name) for s in states], len(batch)) for name in ("x", "R", "v", "w")]
    x, R, v, w = (flat(part, 3 if part.ndim == len(batch) + 3 else 2).copy() for part in parts)
    people, pace = flat(context.people.x, 3), flat(context.people.v, 3)
    forces = np.zeros(people.shape)
    around = solids(tuple(colliders), context.batch)
    bodies = _bodies_of([elements[i] for i in loose])
    advance(x, R, v, w, bodies, people, pace, context.skeleton.radii, joint_masses(context.skeleton), around, context.h, forces)
    for k, i in enumerate(loose):
        memories[i] = BodyState(*(part[:, k].reshape(*batch, *part.shape[2:]) for part in (x, R, v, w)))
    return memories, StepInputs(forces=forces.reshape(context.people.x.shape))


@functools.lru_cache(maxsize=8)
def joint_masses(skeleton: Skeleton) -> Float[np.ndarray, "22"]:
    """Return the mass with which each joint meets something: a force over its acceleration within a step [kg].

    Bones take the neighbours along and the prior holds on to its pose, so that it is more than the joint's own: one over the diagonal of
    the inverse of the solver's matrix M + sum w A^T A.
    """
    options, mean = SimulatorOptions(), skeleton.masses.mean()
    A = Rigidity(options.rigidity_weight).matrix(skeleton)
    S = np.diag(skeleton.masses / mean + options.kinematic_weight) + options.rigidity_weight * A.T @ A
    return mean / np.diag(np.linalg.inv(S))


def _bodies_of(elements: Sequence[Any]) -> Bodies:
    kinds, halves, frictions = zip(*(e.body() for e in elements), strict=True)
    mass, half = np.array([e.mass for e in elements], dtype=float), np.array(halves, dtype=float)
    square = half**2
    boxes = mass[:, None] / 3 * (square.sum(-1, keepdims=True) - square)
    inertia = np.where(np.array(kinds)[:, None] == BOX, boxes, 0.4 * mass[:, None] * square)
    bounce = np.array([e.bounce for e in elements], dtype=float)
    return Bodies(np.array(kinds, dtype=np.int64), half, 1 / mass, 1 / inertia, np.array(frictions, dtype=float), bounce)
