"""Leaning against a load: recorded people have empty hands."""

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
class LeanStage(Stage):
    """Ask the prior as if people did not lean, and tilt the trunks of its proposals."""

    lean: Float[np.ndarray, "*b"]
    """To the left [rad]."""
    facing: Float[np.ndarray, "*b 3"]
    """Horizontal unit vector."""

    def query(self, state: State) -> State:
        x, q = np.array(state.x, order="C")[..., None, :, :], np.array(state.q, order="C")[..., None, :, :, :]
        return replace(state, x=self._turned(x, 1.0)[..., 0, :, :], q=self._rotated(q, 1.0)[..., 0, :, :, :])

    def change(self, candidates: Candidates) -> Candidates:
        x = self._turned(np.array(candidates.x, order="C"), -1.0)
        return candidates.turned(x, lambda q: self._rotated(np.array(q, order="C"), -1.0))

    def _turned(self, x: Float[np.ndarray, "*b k 22 3"], sign: float) -> Float[np.ndarray, "*b k 22 3"]:
        """Turn joints, in place."""
        _turn_joints(flat(x, 3), WAIST, _beyond(WAIST), sign * flat(self.lean, 0), flat(self.facing, 1))
        return x

    def _rotated(self, q: Float[np.ndarray, "*b k 22 3 3"], sign: float) -> Float[np.ndarray, "*b k 22 3 3"]:
        """Turn rotations, in place."""
        _turn_rotations(flat(q, 4), WAIST, _carrying(WAIST), sign * flat(self.lean, 0), flat(self.facing, 1))
        return q


def leaning(lean: Float[np.ndarray, "*b"], state: State) -> LeanStage:
    """Tilt the trunks of people to the left [rad]."""
    return LeanStage(lean, heading(state.q[..., 0, :, :])[..., 1, :])


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
