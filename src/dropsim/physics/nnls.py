"""Non-negative least squares for small problems: the contact forces that come nearest to a change of momentum."""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import flat
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
FINE, ENDLESS, NOT_FINITE = 0, 1, 2
"""What a least-squares problem came to."""


def nnls(
    F: Float[np.ndarray, "*b m n"], b: Float[np.ndarray, "*b m"], active: Bool[np.ndarray, "*b n"] | None = None, *, ridge: float = 0.0
) -> Float[np.ndarray, "*b n"]:
    """Return c >= 0 that minimises |F c - b|^2, with c = 0 in the columns that are not active.

    F c is unique; if columns depend on each other, c is not. A ridge above zero adds (ridge s |c|)^2, s being the norm of the longest
    column, and so picks the smallest c: the optimality conditions are then off by ridge^2 s^2 c, which is 1e-12 at ridge = 1e-6.
    """
    if not ridge >= 0:
        raise ValueError(f"the ridge of a least-squares problem cannot be negative, and is {ridge}")
    active = np.ones((*F.shape[:-2], F.shape[-1]), dtype=np.bool_) if active is None else active
    c = np.zeros((*F.shape[:-2], F.shape[-1]))
    check(_solve_all(flat(F, 2), flat(b, 1), flat(active, 1), ridge, flat(c, 1)))
    return c


def check(status: int) -> None:
    """Raise what went wrong in a kernel."""
    if status == NOT_FINITE:
        raise ValueError("a least-squares problem has numbers that are not finite: look for NaN in the positions, velocities or forces")
    if status == ENDLESS:
        raise RuntimeError("a least-squares problem did not come to an end")


@kernel
def _solve_all(F: Array, b: Array, active: Array, ridge: float, c: Array) -> int:
    num_rows, num_columns = F.shape[1], F.shape[2]
    A, found = np.empty((num_columns, num_rows + num_columns)), np.empty(num_columns)
    columns, status = np.empty(num_columns, dtype=np.int64), FINE
    for i in range(len(F)):
        n = 0
        for j in range(num_columns):
            if active[i, j]:
                for r in range(num_rows):
                    A[n, r] = F[i, r, j]
                columns[n] = j
                n += 1
        status = max(status, solve(A, b[i], n, ridge, found))
        for k in range(n):
            c[i, columns[k]] = found[k]
    return status


@kernel
def solve(A: Array, b: Array, n: int, ridge: float, x: Array) -> int:
    """Solve one problem: A holds n columns as rows, with room for n ridge rows behind the problem's; A is overwritten."""
    num_rows = len(b)
    longest, size = 0.0, 0.0
    for r in range(num_rows):
        size += b[r]
    for j in range(n):
        x[j], square = 0.0, 0.0
        for r in range(num_rows):
            square += A[j, r] * A[j, r]
        longest = max(longest, square) if math.isfinite(square) else square
    if not math.isfinite(longest + size):
        return NOT_FINITE
    if n == 0:
        return FINE
    m = num_rows + (n if ridge > 0 else 0)
    B = np.zeros(m)
    for r in range(num_rows):
        B[r] = b[r]
    for j in range(n):
        for r in range(num_rows, m):
            A[j, r] = 0.0
        if ridge > 0:
            A[j, num_rows + j] = ridge * math.sqrt(longest)
    done = lawson_hanson(A, B, m, n, x, np.empty(n), np.empty(m), np.empty(n, dtype=np.int64))
    return FINE if done else ENDLESS


@kernel
def lawson_hanson(A: Array, B: Array, m: int, n: int, x: Array, w: Array, z: Array, order: Array) -> bool:
    """Lawson and Hanson's algorithm NNLS (1974, chapter 23), A by columns; A and B are overwritten. Return whether it came to an end.

    order[:passive] are the columns in the least-squares fit, in the order of their triangular factor; the others are zero.
    """
    for j in range(n):
        x[j], order[j] = 0.0, j
    passive, steps = 0, 0
    while passive < n and passive < m:
        for k in range(passive, n):
            j = order[k]
            total = 0.0
            for r in range(passive, m):
                total += A[j, r] * B[r]
            w[j] = total
        taken, up = -1, 0.0
        while True:
            largest, where = 0.0, -1
            for k in range(passive, n):
                if w[order[k]] > largest:
                    largest, where = w[order[k]], k
            if where < 0:
                break
            j = order[where]
            before = A[j, passive]
            up = _householder(A[j], passive, m)
            above = 0.0
            for r in range(passive):
                above += A[j, r] * A[j, r]
            above = math.sqrt(above)
            # Far enough from the span of those taken before?
            if (above + abs(A[j, passive]) * 0.01) - above > 0.0:
                for r in range(m):
                    z[r] = B[r]
                _reflect(A[j], up, passive, m, z)
                if z[passive] / A[j, passive] > 0.0:
                    taken = j
                    order[where], order[passive] = order[passive], j
                    break
            A[j, passive] = before
            w[j] = 0.0
        if taken < 0:
            break
        for r in range(m):
            B[r] = z[r]
        for k in range(passive + 1, n):
            _reflect(A[taken], up, passive, m, A[order[k]])
        passive += 1
        for r in range(passive, m):
            A[taken, r] = 0.0
        w[taken] = 0.0
        while True:
            for r in range(m):
                z[r] = B[r]
            for k in range(passive - 1, -1, -1):
                column = A[order[k]]
                z[k] /= column[k]
                for r in range(k):
                    z[r] -= z[k] * column[r]
            steps += 1
            if steps > 100 * n:
                return False
            alpha, leaving = 2.0, -1
            for k in range(passive):
                if z[k] <= 0.0:
                    share = -x[order[k]] / (z[k] - x[order[k]])
                    if share < alpha:
                        alpha, leaving = share, k
            if leaving < 0:
                break
            for k in range(passive):
                x[order[k]] += alpha * (z[k] - x[order[k]])
            while leaving >= 0:
                passive = _drop(A, B, n, order, passive, leaving, x)
                leaving = -1
                for k in range(passive):
                    if x[order[k]] <= 0.0:
                        leaving = k
                        break
        for k in range(passive):
            x[order[k]] = z[k]
    return True


@kernel
def _householder(column: Array, pivot: int, m: int) -> float:
    """Make the reflection that clears a column below its pivot, as H12 does; return the part that the column has no room for."""
    largest = 0.0
    for r in range(pivot, m):
        largest = max(largest, abs(column[r]))
    if largest == 0.0:
        return 0.0
    total = 0.0
    for r in range(pivot, m):
        total += (column[r] / largest) ** 2
    size = largest * math.sqrt(total)
    if column[pivot] > 0.0:
        size = -size
    up = column[pivot] - size
    column[pivot] = size
    return up


@kernel
def _reflect(column: Array, up: float, pivot: int, m: int, vector: Array) -> None:
    """Apply that reflection."""
    scale = up * column[pivot]
    if scale >= 0.0:
        return
    total = vector[pivot] * up
    for r in range(pivot + 1, m):
        total += vector[r] * column[r]
    if total == 0.0:
        return
    total /= scale
    vector[pivot] += total * up
    for r in range(pivot + 1, m):
        vector[r] += total * column[r]


@kernel
def _drop(A: Array, B: Array, n: int, order: Array, passive: int, leaving: int, x: Array) -> int:
    """Take a column out of the fit and make the factor triangular again by Givens rotations; return how many are left."""
    gone = order[leaving]
    x[gone] = 0.0
    for k in range(leaving + 1, passive):
        j = order[k]
        order[k - 1] = j
        a, b = A[j, k - 1], A[j, k]
        size = math.hypot(a, b)
        cosine, sine = (a / size, b / size) if size > 0.0 else (0.0, 1.0)
        for column in range(n):
            upper, lower = A[column, k - 1], A[column, k]
            A[column, k - 1], A[column, k] = cosine * upper + sine * lower, cosine * lower - sine * upper
        A[j, k - 1], A[j, k] = size, 0.0
        upper, lower = B[k - 1], B[k]
        B[k - 1], B[k] = cosine * upper + sine * lower, cosine * lower - sine * upper
    order[passive - 1] = gone
    return passive - 1
