"""Small linear algebra, one person after the other; the twins of dropsim.physics.nnls and dropsim.physics.solver."""

import math
from typing import Any

import numpy as np

from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, PARENTS
from dropsim.compute.jit import kernel
from dropsim.physics.contact import deepest, push_out_one

Array = Any
"""numba knows the types."""
FINE, ENDLESS, NOT_FINITE = 0, 1, 2
"""What a least-squares problem came to."""
_PARENTS = np.array(PARENTS)
_siblings = [[s for s in CHILDREN[PARENTS[c]] if 0 < s < c] if c else [] for c in range(NUM_JOINTS)]
_meeting = [([PARENTS[c]] if PARENTS[c] > 0 else []) + _siblings[c] for c in range(NUM_JOINTS)]
_NUM_MEETING = np.array([len(m) for m in _meeting])
_MEETING = np.array([(*m, *([0] * (3 - len(m)))) for m in _meeting])
"""For each bone, by its far joint: the bones nearer to the root that it shares a joint with."""


@kernel
def nnls(F: Array, scale: Array, b: Array, active: Array, ridge: float, c: Array) -> int:
    """Do what dropsim.physics.nnls does, with the rows of F and b scaled; return FINE, or what went wrong."""
    num_rows, num_columns = F.shape[1], F.shape[2]
    A, B = np.empty((num_columns, num_rows + num_columns)), np.empty(num_rows + num_columns)
    columns = np.empty(num_columns, dtype=np.int64)
    found, w, z = np.empty(num_columns), np.empty(num_columns), np.empty(num_rows + num_columns)
    order, status = np.empty(num_columns, dtype=np.int64), FINE
    for i in range(len(F)):
        n, longest = 0, 0.0
        for j in range(num_columns):
            c[i, j] = 0.0
            if active[i, j]:
                square = 0.0
                for r in range(num_rows):
                    value = scale[r] * F[i, r, j]
                    A[n, r] = value
                    square += value * value
                longest = max(longest, square) if math.isfinite(square) else square
                columns[n] = j
                n += 1
        size = longest
        for r in range(num_rows):
            size += b[i, r]
        if not math.isfinite(size):
            status = NOT_FINITE
        if n == 0 or status == NOT_FINITE:
            continue
        m = num_rows
        for r in range(num_rows):
            B[r] = scale[r] * b[i, r]
        if ridge > 0:
            m += n
            for j in range(n):
                for r in range(num_rows, m):
                    A[j, r] = 0.0
                A[j, num_rows + j] = ridge * math.sqrt(longest)
            for r in range(num_rows, m):
                B[r] = 0.0
        if not _lawson_hanson(A, B, m, n, found, w, z, order):
            status = ENDLESS
        for j in range(n):
            c[i, columns[j]] = found[j]
    return status


@kernel
def _lawson_hanson(A: Array, B: Array, m: int, n: int, x: Array, w: Array, z: Array, order: Array) -> bool:
    """Lawson & Hanson's algorithm NNLS (1974, chapter 23), A by columns; A and B are overwritten.

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


@kernel
def global_step(y: Array, constant: Array, A: Array, weights: Array, always: Array, p: Array, active: Array, x: Array) -> None:
    """Do what System.solve does, for x - y, which is small: so far from the origin nothing is rounded away.

    The rows of all energies stand one below the other; those that always apply are in the constant matrix already.
    """
    left = np.empty((NUM_JOINTS, NUM_JOINTS))
    for i in range(len(y)):
        left[:] = constant
        x[i] = 0.0
        for r in range(len(A)):
            if not always[r] and not active[i, r]:
                continue
            px, py, pz = p[i, r, 0], p[i, r, 1], p[i, r, 2]
            for j in range(NUM_JOINTS):
                px, py, pz = px - A[r, j] * y[i, j, 0], py - A[r, j] * y[i, j, 1], pz - A[r, j] * y[i, j, 2]
            for j in range(NUM_JOINTS):
                if A[r, j] != 0.0:
                    value = weights[r] * A[r, j]
                    x[i, j, 0] += value * px
                    x[i, j, 1] += value * py
                    x[i, j, 2] += value * pz
                    if not always[r]:
                        for k in range(NUM_JOINTS):
                            left[j, k] += value * A[r, k]
        _solve_one(left, x[i])
        for j in range(NUM_JOINTS):
            for c in range(3):
                x[i, j, c] += y[i, j, c]


@kernel
def _solve_one(L: Array, x: Array) -> None:
    """Solve a symmetric positive definite system with three right-hand sides in place, by Cholesky's factors."""
    n = len(L)
    for k in range(n):
        L[k, k] = math.sqrt(L[k, k])
        inverse = 1.0 / L[k, k]
        # The upper triangle, by rows: the factor is its transpose.
        for c in range(k + 1, n):
            L[k, c] *= inverse
        for r in range(k + 1, n):
            factor = L[k, r]
            if factor != 0.0:
                for c in range(r, n):
                    L[r, c] -= factor * L[k, c]
    for k in range(n):
        inverse = 1.0 / L[k, k]
        for c in range(3):
            x[k, c] *= inverse
        for r in range(k + 1, n):
            for c in range(3):
                x[r, c] -= L[k, r] * x[k, c]
    for k in range(n - 1, -1, -1):
        for r in range(k + 1, n):
            for c in range(3):
                x[k, c] -= L[k, r] * x[r, c]
        inverse = 1.0 / L[k, k]
        for c in range(3):
            x[k, c] *= inverse


@kernel
def restore_lengths(x: Array, lengths: Array, mobility: Array, iterations: int, out: Array) -> None:
    """Do what projective.restore_lengths does."""
    direction, S, tension = np.empty((NUM_JOINTS, 3)), np.empty((NUM_JOINTS, NUM_JOINTS)), np.empty(NUM_JOINTS)
    for i in range(len(x)):
        out[i] = x[i]
        _restore_one(out[i], lengths, mobility[i], iterations, direction, S, tension)


@kernel
def _stretch(x: Array, lengths: Array) -> float:
    """Return the largest relative error of one person's bones."""
    worst = 0.0
    for c in range(1, NUM_JOINTS):
        parent = _PARENTS[c]
        dx, dy, dz = x[c, 0] - x[parent, 0], x[c, 1] - x[parent, 1], x[c, 2] - x[parent, 2]
        error = abs(math.sqrt(dx * dx + dy * dy + dz * dz) - lengths[c]) / lengths[c]
        if not error <= worst:
            worst = error
    return worst


@kernel
def settle(
    x: Array, before: Array, radii: Array, planes: Array, balls: Array, friction: float, h: float, bearing: float, grip_gap: float,
    lengths: Array, mobility: Array, contact_mobility: float, rounds: int, most_rounds: int, deep: float, stretched: float,
    out: Array, touching: Array,
) -> None:  # fmt: skip
    """Do what projective.settle does."""
    direction, S, tension = np.empty((NUM_JOINTS, 3)), np.empty((NUM_JOINTS, NUM_JOINTS)), np.empty(NUM_JOINTS)
    give = np.empty(NUM_JOINTS)
    for i in range(len(x)):
        k, m = (i if len(planes) > 1 else 0), (i if len(balls) > 1 else 0)
        out[i] = x[i]
        touching[i] = False
        for done in range(most_rounds):
            whole = done >= rounds and _stretch(out[i], lengths) < stretched
            if whole and deepest(out[i], radii, planes[k], balls[m]) < deep:
                break
            push_out_one(out[i], before[i], radii, planes[k], balls[m], friction, h, bearing, grip_gap, touching[i])
            for j in range(NUM_JOINTS):
                give[j] = mobility[j] * (contact_mobility if touching[i, j] else 1.0)
            _restore_one(out[i], lengths, give, 2, direction, S, tension)


@kernel
def _restore_one(p: Array, lengths: Array, give: Array, iterations: int, direction: Array, S: Array, tension: Array) -> None:
    """Restore one person's lengths in place; bones taken from the ends of the limbs inward fill in nothing."""
    for _ in range(iterations):
        for c in range(1, NUM_JOINTS):
            parent = _PARENTS[c]
            dx, dy, dz = p[c, 0] - p[parent, 0], p[c, 1] - p[parent, 1], p[c, 2] - p[parent, 2]
            length = math.sqrt(dx * dx + dy * dy + dz * dz)
            direction[c, 0], direction[c, 1], direction[c, 2] = dx / length, dy / length, dz / length
            tension[c] = length - lengths[c]
            S[c, c] = give[c] + give[parent]
        for c in range(1, NUM_JOINTS):
            for k in range(_NUM_MEETING[c]):
                o = _MEETING[c, k]
                along = direction[c, 0] * direction[o, 0] + direction[c, 1] * direction[o, 1] + direction[c, 2] * direction[o, 2]
                # A child hangs on the far end of its parent bone, siblings on the same near end.
                S[c, o] = S[o, c] = along * (-give[o] if o == _PARENTS[c] else give[_PARENTS[c]])
        for c in range(NUM_JOINTS - 1, 0, -1):
            for k in range(_NUM_MEETING[c]):
                o = _MEETING[c, k]
                factor = S[c, o] / S[c, c]
                tension[o] -= factor * tension[c]
                for k2 in range(_NUM_MEETING[c]):
                    S[o, _MEETING[c, k2]] -= factor * S[c, _MEETING[c, k2]]
        for c in range(1, NUM_JOINTS):
            for k in range(_NUM_MEETING[c]):
                tension[c] -= S[c, _MEETING[c, k]] * tension[_MEETING[c, k]]
            tension[c] /= S[c, c]
        for c in range(1, NUM_JOINTS):
            parent = _PARENTS[c]
            for k in range(3):
                pull = tension[c] * direction[c, k]
                p[c, k] -= give[c] * pull
                p[parent, k] += give[parent] * pull


@kernel
def rigid_acceleration(wrench: Array, arms: Array, masses: Array, out: Array) -> None:
    """Do what projective.rigid_acceleration does; the 3 x 3 inertia is inverted by its cofactors."""
    total = 0.0
    for j in range(len(masses)):
        total += masses[j]
    for i in range(len(arms)):
        xx = yy = zz = xy = yz = zx = 0.0
        for j in range(arms.shape[1]):
            m, x, y, z = masses[j], arms[i, j, 0], arms[i, j, 1], arms[i, j, 2]
            xx += m * (y * y + z * z)
            yy += m * (x * x + z * z)
            zz += m * (x * x + y * y)
            xy -= m * x * y
            yz -= m * y * z
            zx -= m * z * x
        a, b, c = yy * zz - yz * yz, yz * zx - xy * zz, xy * yz - yy * zx
        d, e, f = xx * zz - zx * zx, xy * zx - xx * yz, xx * yy - xy * xy
        determinant = xx * a + xy * b + zx * c
        mx, my, mz = wrench[i, 3] / determinant, wrench[i, 4] / determinant, wrench[i, 5] / determinant
        wx, wy, wz = a * mx + b * my + c * mz, b * mx + d * my + e * mz, c * mx + e * my + f * mz
        for j in range(arms.shape[1]):
            x, y, z = arms[i, j, 0], arms[i, j, 1], arms[i, j, 2]
            out[i, j, 0] = wrench[i, 0] / total + wy * z - wz * y
            out[i, j, 1] = wrench[i, 1] / total + wz * x - wx * z
            out[i, j, 2] = wrench[i, 2] / total + wx * y - wy * x


@kernel
def row_values(x: Array, A: Array, weights: Array, p: Array, active: Array, out: Array) -> None:
    """Write what each row of each energy adds to its value."""
    for i in range(len(x)):
        for r in range(len(A)):
            out[i, r] = 0.0
            if active[i, r]:
                px, py, pz = -p[i, r, 0], -p[i, r, 1], -p[i, r, 2]
                for j in range(NUM_JOINTS):
                    px, py, pz = px + A[r, j] * x[i, j, 0], py + A[r, j] * x[i, j, 1], pz + A[r, j] * x[i, j, 2]
                out[i, r] = 0.5 * weights[r] * (px * px + py * py + pz * pz)


@kernel
def bone_error(x: Array, lengths: Array, out: Array) -> None:
    """Do what Skeleton.bone_error does."""
    for i in range(len(x)):
        out[i] = _stretch(x[i], lengths)


@kernel
def squared_distance(x: Array, y: Array, weights: Array, out: Array) -> None:
    """Do what projective.squared_distance does."""
    for i in range(len(x)):
        total = 0.0
        for j in range(NUM_JOINTS):
            dx, dy, dz = x[i, j, 0] - y[i, j, 0], x[i, j, 1] - y[i, j, 1], x[i, j, 2] - y[i, j, 2]
            total += weights[j] * (dx * dx + dy * dy + dz * dz)
        out[i] = total
