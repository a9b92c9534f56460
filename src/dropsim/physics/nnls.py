"""Non-negative least squares for small problems: the contact forces that come nearest to a change of momentum."""

from typing import Any

import numpy as np

from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.physics.solver import solve_positive

Array = Any
"""numba knows the types."""
RIDGE = 1e-4
"""Weight of x next to that of the longest column: of all x that fit equally well, the smallest. It changes the fit by
about 1e-8, as little as rounding does."""
MOST_STEPS = 50
"""Limit of Newton steps, and of steps along each of them; four are usual."""


@kernel
def solve(A: Array, b: Array, n: int, x: Array) -> None:
    """Write x >= 0 that minimises |A^T x - b|^2 + |ridge x|^2, of which A has the n columns as rows.

    The problem's dual has no bounds: the rest r = b - A^T x minimises ridge^2 (|r|^2 / 2 - b r) + sum max(a_j r, 0)^2 /
    2, which is convex and piecewise quadratic, and x_j = max(a_j r, 0) / ridge^2. Newton's method with a search along
    each step ends exactly, once a step changes no sign of a_j r.
    """
    rows, longest, rest, H = len(b), 0.0, b.copy(), np.empty((len(b), len(b)))
    step, along = np.empty((rows, 3)), np.empty(n)  # of the step's three columns, the first one counts
    for j in range(n):
        longest = max(longest, _dot(A[j], A[j]))
        x[j] = _dot(A[j], rest)
    ridge = RIDGE * RIDGE * (longest if longest > 0.0 else 1.0)
    for _ in range(MOST_STEPS):
        for k in range(rows):
            step[k, 0] = ridge * (b[k] - rest[k])
            for c in range(rows):
                H[k, c] = ridge if c == k else 0.0
        for j in range(n):
            if x[j] > 0.0:
                for k in range(rows):
                    step[k, 0] -= x[j] * A[j, k]
                    for c in range(k, rows):
                        H[k, c] += A[j, k] * A[j, c]
        solve_positive(H, step)
        slope, curve, ends = 0.0, 0.0, True
        for k in range(rows):
            slope += ridge * (rest[k] - b[k]) * step[k, 0]
            curve += ridge * step[k, 0] * step[k, 0]
        for j in range(n):
            along[j] = 0.0
            for k in range(rows):
                along[j] += A[j, k] * step[k, 0]
            ends = ends and (x[j] + along[j] > 0.0) == (x[j] > 0.0)
        way = 1.0 if ends else _lowest(slope, curve, x, along)
        for k in range(rows):
            rest[k] += way * step[k, 0]
        for j in range(n):
            x[j] = _dot(A[j], rest)
        if ends:
            break
    for j in range(n):
        x[j] = max(x[j], 0.0) / ridge


@inlined_kernel
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for k in range(len(b)):
        total += a[k] * b[k]
    return total


@kernel
def _lowest(slope: float, curve: float, x: Array, along: Array) -> float:
    """Return where slope t + curve t^2 / 2 + sum max(x + t along, 0)^2 / 2 is lowest, within a hundredth."""
    low, high, way = 0.0, 2.0, 1.0
    for _ in range(MOST_STEPS):
        first, second, before = slope + way * curve, curve, way
        for j in range(len(along)):
            push = x[j] + way * along[j]
            if push > 0.0:
                first += push * along[j]
                second += along[j] * along[j]
        low, high = (way, high) if first <= 0.0 else (low, way)
        way -= first / second
        if not low < way < high:
            way = 0.5 * (low + high)
        if abs(way - before) < 0.01 * before:
            break
    return way
