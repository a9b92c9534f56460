"""The solver of projective dynamics: local projections of every energy, and one global solve."""

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.kinematics import copy
from dropsim.body.skeleton import Skeleton
from dropsim.compute.jit import kernel
from dropsim.physics.energy import Energy, Frame, check_energy, check_target
from dropsim.physics.vectors import add, plus, row, times, write

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
        self.matrix, counts = np.concatenate(matrices), [len(A) for A in matrices]
        self.weights = np.repeat([float(energy.weight) for energy in self.energies], counts)
        self.always = np.repeat([bool(energy.always) for energy in self.energies], counts)
        self.constant = np.diag(self.mass)
        for energy, A in zip(self.energies, matrices, strict=True):
            if energy.always:
                self.constant += energy.weight * A.T @ A

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """The local step: let every energy project; return p and which rows apply."""
        num = len(self.matrix)
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
            _global_step(frame.y, self.constant, self.matrix, self.weights, self.always, p, active, x)
        return x

    def values(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> dict[str, Float[np.ndarray, "n"]]:
        """Return the value of each energy at x, by name [m^2]; energies of one name, such as two pins, are added up."""
        p, active = self.project(x, frame)
        values = dict[str, np.ndarray]()
        for energy, rows in zip(self.energies, self.rows, strict=True):
            # One product for each energy: an energy's last bit does not depend on which others there are.
            off = np.where(active[:, rows, None], self.matrix[rows] @ x - p[:, rows], 0.0)
            value = 0.5 * energy.weight * (off * off).sum(-1).sum(-1)
            values[energy.name] = values[energy.name] + value if energy.name in values else value
        return values


@functools.lru_cache(maxsize=8)
def system_of(energies: tuple[Energy, ...], skeleton: Skeleton) -> System:
    """Return the system of some energies, made once."""
    return System(energies, skeleton)


@kernel
def _global_step(
    y: Array, constant: Array, A: Array, weights: Array, always: Array, p: Array, active: Array, x: Array
) -> None:
    """Write the minimisers for given projections.

    Solved for x - y, which is small: so nothing is rounded away far from the origin. Rows that always apply are in the
    constant matrix.
    """
    left = np.empty((NUM_JOINTS, NUM_JOINTS))
    for i in range(len(y)):
        copy(constant, left)
        aims, target, out = p[i], y[i], x[i]
        out[:] = 0.0
        for r in range(len(A)):
            if not active[i, r]:
                continue
            pull = row(aims, r)
            for j in range(NUM_JOINTS):
                if A[r, j] != 0.0:
                    pull = plus(pull, row(target, j), -A[r, j])
            for j in range(NUM_JOINTS):
                value = weights[r] * A[r, j]
                if value != 0.0:
                    add(out, j, times(value, pull))
                    for k in range(0 if always[r] else NUM_JOINTS):
                        left[j, k] += value * A[r, k]
        solve_positive(left, out)
        for j in range(NUM_JOINTS):
            add(out, j, row(target, j))


@kernel
def solve_positive(L: Array, x: Array) -> None:
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


def squared_distance(
    x: Float[np.ndarray, "n 22 3"], y: Float[np.ndarray, "n 22 3"], weights: Float[np.ndarray, "22"] | float = 1.0
) -> Float[np.ndarray, "n"]:
    """Return the sum over the joints of their squared distances, weighed or not [m^2]."""
    return (weights * ((x - y) ** 2).sum(-1)).sum(-1)
