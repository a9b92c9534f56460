"""The solver of projective dynamics: local projections of every energy, and one global solve."""

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.kinematics import copy
from dropsim.body.skeleton import Skeleton
from dropsim.compute.jit import kernel
from dropsim.physics.energy import Energy, Frame, check_energy, check_target
from dropsim.physics.vectors import add, dot, plus, row, times, write

Array = Any
"""numba knows the types."""


class System:
    """The global step, eq. (4): (M + sum w A^T A) x = M y + sum w A^T p, with M scaled to a mean of one.

    Every A acts alike on x, y and z, so the system is 22 x 22 with three right-hand sides. It is in double precision:
    single loses two per cent of the momentum in a second. The rows of all energies stand one below the other.
    """

    def __init__(self, energies: Sequence[Energy], skeleton: Skeleton) -> None:
        self.energies = tuple(energies)
        self.mass = skeleton.masses / skeleton.masses.mean()
        matrices = [check_energy(energy, skeleton) for energy in self.energies]
        ends = np.cumsum([0, *map(len, matrices)])
        self.rows = [slice(int(start), int(end)) for start, end in pairwise(ends)]
        weights = np.concatenate(
            [np.full(len(A), float(e.weight)) for e, A in zip(self.energies, matrices, strict=True)]
        )
        always = np.concatenate([np.full(len(A), e.always) for e, A in zip(self.energies, matrices, strict=True)])
        self.matrix = Rows.of(np.concatenate(matrices), weights, always)
        constant = np.diag(self.mass)
        for energy, A in zip(self.energies, matrices, strict=True):
            if energy.always:
                constant += energy.weight * A.T @ A
        self.constant = constant

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """The local step: let every energy project; return p and which rows apply."""
        num = len(self.matrix.A)
        p, active = np.empty((len(x), num, 3)), np.ones((len(x), num), dtype=np.bool_)
        for energy, rows in zip(self.energies, self.rows, strict=True):
            target = check_target(energy, energy.project(x, frame), len(x), rows.stop - rows.start)
            p[:, rows] = target.p
            if target.active is not None:
                active[:, rows] = target.active
        return p, active

    def iterate(self, x: Float[np.ndarray, "n 22 3"], frame: Frame, num: int) -> Float[np.ndarray, "n 22 3"]:
        """Take some local and global steps from x."""
        for _ in range(num):
            p, active = self.project(x, frame)
            x = np.empty(x.shape)
            _global_step(frame.y, self.constant, self.matrix, p, active, x)
        return x

    def values(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> dict[str, Float[np.ndarray, "n"]]:
        """Return the value of each energy at x, by name [m^2]; energies of one name, such as two pins, are added up."""
        p, active = self.project(x, frame)
        each, values = np.empty(active.shape), dict[str, np.ndarray]()
        _row_values(x, self.matrix, p, active, each)
        for energy, rows in zip(self.energies, self.rows, strict=True):
            value = each[:, rows].sum(-1)
            values[energy.name] = values[energy.name] + value if energy.name in values else value
        return values


@functools.lru_cache(maxsize=8)
def system_of(energies: tuple[Energy, ...], skeleton: Skeleton) -> System:
    """Return the system of some energies, made once."""
    return System(energies, skeleton)


class Rows(NamedTuple):
    """The rows of all energies, with a list of those entries that are not zero."""

    A: np.ndarray
    """(m 22)."""
    first: np.ndarray
    """Where a row's entries start in the list, and where the last one's end (m + 1)."""
    joints: np.ndarray
    """Columns of the entries."""
    entries: np.ndarray
    weights: np.ndarray
    always: np.ndarray
    """Which rows are in the constant matrix (m)."""

    @classmethod
    def of(cls, A: Float[np.ndarray, "m 22"], weights: Float[np.ndarray, "m"], always: Bool[np.ndarray, "m"]) -> "Rows":
        """List the entries."""
        rows, joints = np.nonzero(A)
        return cls(A, np.searchsorted(rows, np.arange(len(A) + 1)), joints, A[rows, joints], weights, always)


@kernel
def _global_step(y: Array, constant: Array, rows: Rows, p: Array, active: Array, x: Array) -> None:
    """Write the minimisers for given projections.

    Solved for x - y, which is small: so nothing is rounded away far from the origin. Rows that always apply are in the
    constant matrix.
    """
    left = np.empty((NUM_JOINTS, NUM_JOINTS))
    A, first, joints, entries, weights, always = rows
    for i in range(len(y)):
        copy(constant, left)
        aims, target, out = p[i], y[i], x[i]
        out[:] = 0.0
        for r in range(len(A)):
            if not active[i, r]:
                continue
            pull = row(aims, r)
            for e in range(first[r], first[r + 1]):
                pull = plus(pull, row(target, joints[e]), -entries[e])
            for e in range(first[r], first[r + 1]):
                j, value = joints[e], weights[r] * entries[e]
                add(out, j, times(value, pull))
                if not always[r]:
                    for k in range(NUM_JOINTS):
                        left[j, k] += value * A[r, k]
        _solve(left, out)
        for j in range(NUM_JOINTS):
            add(out, j, row(target, j))


@kernel
def _solve(L: Array, x: Array) -> None:
    """Solve a symmetric positive definite system with three right-hand sides in place, by Cholesky's factors.

    Most entries of the factor are zero as long as a body's joints are coupled along its bones only.
    """
    n = len(L)
    for k in range(n):
        L[k, k] = math.sqrt(L[k, k])
        inverse = 1.0 / L[k, k]
        # The upper triangle, by rows: the factor is its transpose.
        for c in range(k + 1, n):
            L[k, c] *= inverse
        pivot = times(inverse, row(x, k))
        write(x, k, pivot)
        for r in range(k + 1, n):
            factor = L[k, r]
            if factor != 0.0:
                for c in range(r, n):
                    L[r, c] -= factor * L[k, c]
                add(x, r, times(-factor, pivot))
    for k in range(n - 1, -1, -1):
        pivot = row(x, k)
        for r in range(k + 1, n):
            pivot = plus(pivot, row(x, r), -L[k, r])
        write(x, k, times(1.0 / L[k, k], pivot))


@kernel
def _row_values(x: Array, rows: Rows, p: Array, active: Array, out: Array) -> None:
    _, first, joints, entries, weights, _ = rows
    for i in range(len(x)):
        here, aims = x[i], p[i]
        for r in range(len(weights)):
            out[i, r] = 0.0
            if active[i, r]:
                off = times(-1.0, row(aims, r))
                for e in range(first[r], first[r + 1]):
                    off = plus(off, row(here, joints[e]), entries[e])
                out[i, r] = 0.5 * weights[r] * dot(off, off)


def squared_distance(
    x: Float[np.ndarray, "n 22 3"], y: Float[np.ndarray, "n 22 3"], weights: Float[np.ndarray, "22"] | float = 1.0
) -> Float[np.ndarray, "n"]:
    """Return the sum over the joints of their squared distances, weighed or not [m^2]."""
    return (weights * ((x - y) ** 2).sum(-1)).sum(-1)
