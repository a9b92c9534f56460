"""Non-negative least squares for small problems: the contact forces that come nearest to a change of momentum."""

import math
from typing import Any, NamedTuple

import numpy as np

from dropsim.compute.jit import inlined_kernel, kernel

Array = Any
"""numba knows the types."""
ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Relative to its factors, a sum of a few products is as good as zero below this. Columns that are equal would take
turns for ever otherwise."""
FINE, ENDLESS, NOT_FINITE = 0, 1, 2
"""Results of a least-squares problem."""


def check(status: int) -> None:
    """Raise what went wrong in a kernel."""
    if status == NOT_FINITE:
        raise ValueError(
            "a least-squares problem has numbers that are not finite: "
            "look for NaN in the positions, velocities or forces"
        )
    if status == ENDLESS:
        raise RuntimeError("a least-squares problem did not come to an end")


class Factors(NamedTuple):
    """A least-squares problem and the triangular factor of the columns in the fit."""

    A: np.ndarray
    """Columns of the problem, as rows."""
    b: np.ndarray
    ridge: float
    order: np.ndarray
    """Columns, those in the fit first, in the order of their factor."""
    R: np.ndarray
    reflections: np.ndarray
    scales: np.ndarray
    B: np.ndarray
    """Right-hand side after the reflections."""


@kernel
def solve(A: Array, b: Array, n: int, ridge: float, x: Array) -> int:
    """Write x >= 0 that minimises |A^T x - b|^2, of which A holds the n columns as rows; return what it came to.

    A^T x is unique; if columns depend on each other, x is not. A ridge above zero adds (ridge s |x|)^2, with s the norm
    of the longest column, and so picks the smallest x: the optimality conditions are then off by ridge^2 s^2 x, which
    is 1e-12 at ridge = 1e-6. With a ridge, the search starts at x, which has to be 0 or more: from the solution of a
    similar problem it is short.

    Lawson and Hanson's algorithm NNLS (1974, chapter 23): order[:passive] are the columns in the least-squares fit, in
    the order of their triangular factor; the others are zero. A column's row of the ridge comes into the problem with
    the column. So each column adds one row, and its reflection, which clears what is below the diagonal, acts on as
    many rows as the problem has, and one: that is little work, however many columns there are.
    """
    num_rows, longest, size = len(b), 0.0, 0.0
    for r in range(num_rows):
        size += b[r] * b[r]
    for j in range(n):
        square = 0.0
        for r in range(num_rows):
            square += A[j, r] * A[j, r]
        longest = max(longest, square) if math.isfinite(square) else square
    if not math.isfinite(longest + size):
        for j in range(n):
            x[j] = 0.0
        return NOT_FINITE
    ridge, size = ridge * math.sqrt(longest), ROUNDING * math.sqrt(size)
    R, reflections, scales = np.empty((n, num_rows + n)), np.empty((n, num_rows + 1)), np.empty(n)
    B, z, w, order = np.empty(num_rows + n), np.empty(num_rows + n), np.empty(n), np.empty(n, dtype=np.int64)
    passive, f = np.int64(0), Factors(A, b, ridge, order, R, reflections, scales, B)
    for j in range(n):
        order[j] = j
        if x[j] > 0.0 and ridge > 0.0:
            order[j], order[passive] = order[passive], j
            _append(j, passive, f)
            passive += 1
        else:
            x[j] = 0.0
    _reflect_all(passive, f)
    passive, steps = _fit(f, passive, 100 * n, x, z)
    while passive < n:
        # What the fit leaves: the rows behind the triangle, reflected back.
        for k in range(passive + num_rows):
            z[k] = B[k] if k >= passive else 0.0
        for k in range(passive - 1, -1, -1):
            _reflect(reflections[k], scales[k], k, z)
        for k in range(passive, n):
            j, total, length = order[k], 0.0, 0.0
            for r in range(num_rows):
                total += A[j, r] * z[r]
                length += A[j, r] * A[j, r]
            w[j] = total if total > size * math.sqrt(length) else 0.0
        enters = False
        while not enters:
            largest, where = 0.0, -1
            for k in range(passive, n):
                if w[order[k]] > largest:
                    largest, where = w[order[k]], k
            if where < 0:
                break
            j = order[where]
            above = _append(j, passive, f)
            # Far enough from the span of those that are in?
            if (above + abs(R[passive, passive]) * 0.01) - above > 0.0:
                for k in range(passive, passive + num_rows + 1):
                    z[k] = B[k]
                _reflect(reflections[passive], scales[passive], passive, z)
                enters = z[passive] / R[passive, passive] > 0.0
            if enters:
                order[where], order[passive] = order[passive], j
            w[j] = 0.0
        if not enters:
            break
        _reflect(reflections[passive], scales[passive], passive, B)
        passive += 1
        passive, more = _fit(f, passive, 100 * n - steps, x, z)
        steps += more
        if steps >= 100 * n:
            return ENDLESS
    return FINE


@kernel
def _fit(f: Factors, passive: int, most: int, x: Array, z: Array) -> tuple[int, int]:
    """Move x to the least-squares fit of the passive columns, and take those out that come to zero on the way.

    Return how many are left, and how many steps it took, of `most`.
    """
    order, R, B = f.order, f.R, f.B
    for step in range(most):
        for k in range(passive):
            z[k] = B[k]
        for k in range(passive - 1, -1, -1):
            z[k] /= R[k, k]
            for r in range(k):
                z[r] -= z[k] * R[k, r]
        alpha, leaving = 2.0, -1
        for k in range(passive):
            if z[k] <= 0.0:
                share = -x[order[k]] / (z[k] - x[order[k]])
                if share < alpha:
                    alpha, leaving = share, k
        if leaving < 0:
            for k in range(passive):
                x[order[k]] = z[k]
            return passive, step + 1
        for k in range(passive):
            x[order[k]] += alpha * (z[k] - x[order[k]])
        x[order[leaving]] = 0.0
        passive = _drop(f, passive, x)
    return passive, most


@kernel
def _append(j: int, k: int, f: Factors) -> float:
    """Make column j the k-th of the factor, and its reflection; return how long it is above the diagonal."""
    column, reflections, scales = f.A[j], f.reflections, f.scales
    num_rows, new = len(f.b), f.R[k]
    for r in range(num_rows + k + 1):
        new[r] = 0.0
    for r in range(num_rows):
        new[r] = column[r]
    new[num_rows + k] += f.ridge
    for i in range(k):
        _reflect(reflections[i], scales[i], i, new)
    above, largest, total = 0.0, 0.0, 0.0
    for r in range(k):
        above += new[r] * new[r]
    for r in range(k, k + num_rows + 1):
        reflections[k, r - k] = new[r]
        largest = max(largest, abs(new[r]))
    scales[k] = 0.0
    if largest > 0.0:
        for r in range(k, k + num_rows + 1):
            total += (new[r] / largest) ** 2
        size = largest * math.sqrt(total)
        if new[k] > 0.0:
            size = -size
        reflections[k, 0] = new[k] - size
        new[k] = size
        scales[k] = reflections[k, 0] * size
    return math.sqrt(above)


@inlined_kernel
def _reflect(reflection: Array, scale: float, first: int, vector: Array) -> None:
    """Reflect some rows of a vector, from the first on, in place."""
    if scale >= 0.0:
        return
    total = 0.0
    for r in range(len(reflection)):
        total += vector[first + r] * reflection[r]
    total /= scale
    for r in range(len(reflection)):
        vector[first + r] += total * reflection[r]


@kernel
def _drop(f: Factors, passive: int, x: Array) -> int:
    """Take columns that came to zero out of the fit, factor those behind them again, and return the number left."""
    left, same, order = 0, True, f.order
    for k in range(passive):
        j = order[k]
        if x[j] <= 0.0:
            x[j], same = 0.0, False
            continue
        order[k], order[left] = order[left], j
        if not same:
            _append(j, left, f)
        left += 1
    _reflect_all(left, f)
    return left


@kernel
def _reflect_all(passive: int, f: Factors) -> None:
    """Write the right-hand side as the passive columns' reflections leave it."""
    b, B = f.b, f.B
    for k in range(len(B)):
        B[k] = b[k] if k < len(b) else 0.0
    for k in range(passive):
        _reflect(f.reflections[k], f.scales[k], k, B)
