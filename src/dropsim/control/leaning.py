"""What recordings on a level floor with empty hands do not have: leaning against a load, and arms held out on ground that tilts."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.kinematics import copy, product, product_transposed
from dropsim.body.kinematics import exp as turn
from dropsim.body.rotations import heading
from dropsim.body.skeleton import PARENTS, Skeleton, flat, joint_index
from dropsim.compute.jit import kernel
from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates, State

Array = Any
"""numba knows the types."""
WAIST = joint_index("spine1")
HAND_OUT = 0.3
"""From the middle of the body to a hand that hangs [m]."""
SHARE = 0.3
"""Of a load's moment that the trunk makes up for by leaning; for the rest the feet shift the pressure."""


def lean_against(mass: float, skeleton: Skeleton) -> float:
    """Return how far people lean away from a load in one hand [rad]: the trunk's moment about the waist makes up for the load's."""
    above = _beyond(WAIST)
    upper = float(skeleton.masses[above].sum())
    arm = float((skeleton.masses[above] * (skeleton.rest[above, 1] - skeleton.rest[WAIST, 1])).sum()) / upper
    return float(np.arctan2(SHARE * mass * HAND_OUT, upper * arm))


@dataclass(frozen=True, eq=False)
class TurnStage(Stage):
    """Ask the prior as if people did not turn some joints about the way that they face, and turn those of its proposals."""

    angle: Float[np.ndarray, "*b"]
    """[rad]"""
    facing: Float[np.ndarray, "*b 3"]
    """Horizontal unit vector."""
    sides: tuple[tuple[int, float], ...]
    """Joints beyond which everything is turned, and by how many times the angle."""

    def query(self, state: State) -> State:
        x, q = np.array(state.x, order="C")[..., None, :, :], np.array(state.q, order="C")[..., None, :, :, :]
        self._turn(x, -1.0)
        return replace(state, x=x[..., 0, :, :], q=self._turned(q, -1.0)[..., 0, :, :, :])

    def change(self, candidates: Candidates, reference: int) -> Candidates:
        del reference
        x = np.array(candidates.x, order="C")
        self._turn(x, 1.0)
        return candidates.turned(x, lambda q: self._turned(np.array(q, order="C"), 1.0))

    def _turn(self, x: Float[np.ndarray, "*b k 22 3"], sign: float) -> None:
        """Turn joints, in place."""
        for joint, times in self.sides:
            _turn_joints(flat(x, 3), joint, _beyond(joint), sign * times * flat(self.angle, 0), flat(self.facing, 1))

    def _turned(self, q: Float[np.ndarray, "*b k 22 3 3"], sign: float) -> Float[np.ndarray, "*b k 22 3 3"]:
        """Turn rotations, in place."""
        for joint, times in self.sides:
            _turn_rotations(flat(q, 4), joint, _carrying(joint), sign * times * flat(self.angle, 0), flat(self.facing, 1))
        return q


def leaning(lean: Float[np.ndarray, "*b"], state: State) -> TurnStage:
    """Tilt the trunks of people to the left [rad]."""
    return TurnStage(lean, _facing(state), ((WAIST, -1.0),))


def bracing(out: Float[np.ndarray, "*b"], state: State) -> TurnStage:
    """Hold the arms of people out, away from the body [rad]."""
    return TurnStage(out, _facing(state), ((joint_index("left_shoulder"), 1.0), (joint_index("right_shoulder"), -1.0)))


def _facing(state: State) -> Float[np.ndarray, "*b 3"]:
    return heading(state.q[..., 0, :, :])[..., 1, :]


@kernel
def _turn_joints(x: Array, joint: int, beyond: Array, angle: Array, axis: Array) -> None:
    """Turn what is beyond a joint about an axis, in place; whoever is not turned stays exactly as without."""
    R = np.empty((3, 3))
    for i in range(len(x)):
        if angle[i] == 0.0:
            continue
        turn(angle[i] * axis[i, 0], angle[i] * axis[i, 1], angle[i] * axis[i, 2], R)
        for k in range(x.shape[1]):
            p = x[i, k]
            for j in beyond:
                dx, dy, dz = p[j, 0] - p[joint, 0], p[j, 1] - p[joint, 1], p[j, 2] - p[joint, 2]
                for c in range(3):
                    p[j, c] = p[joint, c] + R[c, 0] * dx + R[c, 1] * dy + R[c, 2] * dz


@kernel
def _turn_rotations(q: Array, joint: int, carrying: Array, angle: Array, axis: Array) -> None:
    """Turn a joint's rotation so that everything beyond it turns about an axis in the world, in place."""
    R, above, turned, other = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    for i in range(len(q)):
        if angle[i] == 0.0:
            continue
        turn(angle[i] * axis[i, 0], angle[i] * axis[i, 1], angle[i] * axis[i, 2], R)
        for k in range(q.shape[1]):
            copy(q[i, k, carrying[0]], above)
            for j in carrying[1:]:
                product(above, q[i, k, j], other)
                copy(other, above)
            product(above, q[i, k, joint], other)
            product(R, other, turned)
            product_transposed(above, turned, q[i, k, joint])


def _chain(joint: int) -> list[int]:
    """Return a joint and those that carry it, the pelvis first."""
    return [] if joint < 0 else [*_chain(PARENTS[joint]), joint]


@functools.cache
def _carrying(joint: int) -> np.ndarray:
    """Return the joints that carry a joint, the pelvis first."""
    return np.array(_chain(PARENTS[joint]))


@functools.cache
def _beyond(joint: int) -> np.ndarray:
    """Return the joints that a joint moves."""
    return np.array([other for other in range(len(PARENTS)) if other != joint and joint in _chain(other)])
