"""Kernels of rotations and of the body's chain, one person after the other."""

import math
from typing import Any

import numpy as np

from dropsim.body.joints import CHILDREN, NUM_JOINTS, PARENTS
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
_PARENTS = np.array(PARENTS)
_NUM_CHILDREN = np.array([len(c) for c in CHILDREN])
_CHILDREN = np.array([(*c, *([-1] * (3 - len(c)))) for c in CHILDREN])
_NEARLY_OPPOSED = -0.5
_EPS = float(np.finfo(np.float64).eps)
_SIDE = np.array([{1: -1.0, 2: -1.0, 4: 1.0, 5: 1.0, 16: 1.0, 17: 1.0}.get(j, 0.0) for j in range(NUM_JOINTS)])
"""For joints whose bone has a hinge at its end: whether it bends forward (feet and forearms) or back (shins) as the
bone is twisted."""
_OFF_HINGE = np.array([math.radians({1: 15, 2: 15, 4: 45, 5: 45, 16: 70, 17: 70}.get(j, 0)) for j in range(NUM_JOINTS)])
"""Largest bend to the side of that [rad]: 99th percentiles of all sources of the shipped bank."""
_STRAIGHT, _BENT = math.sin(math.radians(10)), math.sin(math.radians(20))
"""Sines of bends between which a hinge begins to tell how the bone is twisted."""
_MAX_SQUARES = 60
"""Squarings after which eigenvalues that are still left are equal: any of their eigenvectors will do."""


@kernel
def copy(A: Array, out: Array) -> None:
    """Copy a matrix element by element: numba takes seconds to compile `out[:] = A`."""
    for r in range(A.shape[0]):
        for c in range(A.shape[1]):
            out[r, c] = A[r, c]


@kernel
def product(A: Array, B: Array, out: Array) -> None:
    """Out = A B; out is neither of them."""
    for r in range(3):
        for c in range(3):
            out[r, c] = A[r, 0] * B[0, c] + A[r, 1] * B[1, c] + A[r, 2] * B[2, c]


@kernel
def product_transposed(A: Array, B: Array, out: Array) -> None:
    """Out = A^T B; out is neither of them."""
    for r in range(3):
        for c in range(3):
            out[r, c] = A[0, r] * B[0, c] + A[1, r] * B[1, c] + A[2, r] * B[2, c]


@kernel
def _turned(R: Array, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Return R times a vector."""
    return (
        R[0, 0] * x + R[0, 1] * y + R[0, 2] * z,
        R[1, 0] * x + R[1, 1] * y + R[1, 2] * z,
        R[2, 0] * x + R[2, 1] * y + R[2, 2] * z,
    )


@kernel
def _turned_back(R: Array, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Return R^T times a vector."""
    return (
        R[0, 0] * x + R[1, 0] * y + R[2, 0] * z,
        R[0, 1] * x + R[1, 1] * y + R[2, 1] * z,
        R[0, 2] * x + R[1, 2] * y + R[2, 2] * z,
    )


@kernel
def swing(ax: float, ay: float, az: float, bx: float, by: float, bz: float, out: Array) -> None:
    """Write the least rotation that takes the direction of a to that of b; a collapsed one turns nothing.

    With unit vectors and u = a + b: R = I - u u^T / (1 + a.b) + 2 b a^T.
    """
    size = max(math.sqrt(ax * ax + ay * ay + az * az), 1e-12)
    ax, ay, az = ax / size, ay / size, az / size
    size = max(math.sqrt(bx * bx + by * by + bz * bz), 1e-12)
    bx, by, bz = bx / size, by / size, bz / size
    if bx == 0.0 and by == 0.0 and bz == 0.0:
        bx, by, bz = ax, ay, az
    cosine = ax * bx + ay * by + az * bz
    if cosine < _NEARLY_OPPOSED:
        _swing_of_opposed(ax, ay, az, bx, by, bz, out)
        return
    ux, uy, uz = ax + bx, ay + by, az + bz
    scale = 1.0 / (1.0 + cosine)
    sx, sy, sz = ux * scale, uy * scale, uz * scale
    out[0, 0] = 1.0 - sx * ux + 2.0 * bx * ax
    out[0, 1] = -sx * uy + 2.0 * bx * ay
    out[0, 2] = -sx * uz + 2.0 * bx * az
    out[1, 0] = -sy * ux + 2.0 * by * ax
    out[1, 1] = 1.0 - sy * uy + 2.0 * by * ay
    out[1, 2] = -sy * uz + 2.0 * by * az
    out[2, 0] = -sz * ux + 2.0 * bz * ax
    out[2, 1] = -sz * uy + 2.0 * bz * ay
    out[2, 2] = 1.0 - sz * uz + 2.0 * bz * az


@kernel
def swings(a: Array, b: Array, out: Array) -> None:
    """Write the least rotations that take the directions of a to those of b."""
    for i in range(len(a)):
        swing(a[i, 0], a[i, 1], a[i, 2], b[i, 0], b[i, 1], b[i, 2], out[i])


@kernel
def _swing_of_opposed(ax: float, ay: float, az: float, bx: float, by: float, bz: float, out: Array) -> None:
    """Write the swing of unit vectors that are nearly antiparallel, where the short form loses precision.

    It is the half turn about a followed by the half turn about the bisector m of a and b:
    R = (2 m m^T - I)(2 a a^T - I). Where b = -a, any m perpendicular to a serves.
    """
    mx, my, mz = ax + bx, ay + by, az + bz
    size = math.sqrt(mx * mx + my * my + mz * mz)
    if size < 8 * _EPS:
        # Crossing with the axis in which a is smallest is never degenerate.
        if abs(ax) <= abs(ay) and abs(ax) <= abs(az):
            mx, my, mz = 0.0, az, -ay
        elif abs(ay) <= abs(az):
            mx, my, mz = -az, 0.0, ax
        else:
            mx, my, mz = ay, -ax, 0.0
        size = math.sqrt(mx * mx + my * my + mz * mz)
    mx, my, mz = mx / size, my / size, mz / size
    # Where a + b nearly cancels, rounding tilts m along a - b; the true bisector is perpendicular to it.
    hx, hy, hz = 0.5 * (ax - bx), 0.5 * (ay - by), 0.5 * (az - bz)
    along = mx * hx + my * hy + mz * hz
    mx, my, mz = mx - along * hx, my - along * hy, mz - along * hz
    size = max(math.sqrt(mx * mx + my * my + mz * mz), 1e-12)
    mx, my, mz = mx / size, my / size, mz / size
    four = 4.0 * (mx * ax + my * ay + mz * az)
    m, a = (mx, my, mz), (ax, ay, az)
    for r in range(3):
        for c in range(3):
            out[r, c] = four * m[r] * a[c] - 2.0 * m[r] * m[c] - 2.0 * a[r] * a[c]
        out[r, r] += 1.0


@kernel
def best_rotation(M: Array, out: Array) -> None:
    """Write the rotation R with the largest sum of M[r, c] R[c, r] (Horn 1987): exact also for coplanar points.

    With M the sum of a b^T, it brings points a nearest to points b in least squares. Its quaternion is the eigenvector
    of the largest eigenvalue of a symmetric 4 x 4 matrix. Shifted so that no eigenvalue is negative, that matrix is
    squared until only this one is left.
    """
    xx, xy, xz, yx, yy, yz, zx, zy, zz = M[0, 0], M[0, 1], M[0, 2], M[1, 0], M[1, 1], M[1, 2], M[2, 0], M[2, 1], M[2, 2]
    shift = math.sqrt(3.0 * (xx * xx + xy * xy + xz * xz + yx * yx + yy * yy + yz * yz + zx * zx + zy * zy + zz * zz))
    ww, ii, jj, kk = shift + xx + yy + zz, shift + xx - yy - zz, shift + yy - xx - zz, shift + zz - xx - yy
    wi, wj, wk, ij, jk, ki = yz - zy, zx - xz, xy - yx, xy + yx, yz + zy, zx + xz
    if shift == 0.0:
        ww = 1.0
    for _ in range(_MAX_SQUARES):
        s = 1.0 / (ww + ii + jj + kk)
        ww, ii, jj, kk = s * ww, s * ii, s * jj, s * kk
        wi, wj, wk, ij, jk, ki = s * wi, s * wj, s * wk, s * ij, s * jk, s * ki
        # The eigenvalues now add up to one, and these are their squares.
        mixed = wi * wi + wj * wj + wk * wk + ij * ij + jk * jk + ki * ki
        squares = ww * ww + ii * ii + jj * jj + kk * kk + 2.0 * mixed
        ww, ii, jj, kk, wi, wj, wk, ij, jk, ki = (
            ww * ww + wi * wi + wj * wj + wk * wk,
            wi * wi + ii * ii + ij * ij + ki * ki,
            wj * wj + ij * ij + jj * jj + jk * jk,
            wk * wk + ki * ki + jk * jk + kk * kk,
            ww * wi + wi * ii + wj * ij + wk * ki,
            ww * wj + wi * ij + wj * jj + wk * jk,
            ww * wk + wi * ki + wj * jk + wk * kk,
            wi * wj + ii * ij + ij * jj + ki * jk,
            wj * wk + ij * ki + jj * jk + jk * kk,
            wi * wk + ii * ki + ij * jk + ki * kk,
        )
        if squares > 1.0 - 1e-8:  # the others are below 1e-8 of it, and below 1e-16 after this squaring
            break
    # Every column is the eigenvector times one of its parts: take the largest.
    if ww >= ii and ww >= jj and ww >= kk:
        w, x, y, z = ww, wi, wj, wk
    elif ii >= jj and ii >= kk:
        w, x, y, z = wi, ii, ij, ki
    elif jj >= kk:
        w, x, y, z = wj, ij, jj, jk
    else:
        w, x, y, z = wk, ki, jk, kk
    scale = 2.0 / (w * w + x * x + y * y + z * z)
    out[0, 0] = 1.0 - scale * (y * y + z * z)
    out[0, 1] = scale * (x * y - w * z)
    out[0, 2] = scale * (x * z + w * y)
    out[1, 0] = scale * (x * y + w * z)
    out[1, 1] = 1.0 - scale * (x * x + z * z)
    out[1, 2] = scale * (y * z - w * x)
    out[2, 0] = scale * (x * z - w * y)
    out[2, 1] = scale * (y * z + w * x)
    out[2, 2] = 1.0 - scale * (x * x + y * y)


@kernel
def _rotation_of_children(joints: Array, joint: int, offsets: Array, M: Array, out: Array) -> None:
    """Write the rotation R that minimises sum |R rest - posed|^2 over a joint's children."""
    for r in range(3):
        for c in range(3):
            M[r, c] = 0.0
    for k in range(_NUM_CHILDREN[joint]):
        child = _CHILDREN[joint, k]
        for r in range(3):
            for c in range(3):
                M[r, c] += offsets[child, r] * (joints[child, c] - joints[joint, c])
    best_rotation(M, out)


@kernel
def twists(q: Array, offsets: Array, out: Array) -> None:
    """Write local rotations without the swings of their bones, which joints with no or several children keep."""
    moved = np.empty((3, 3))
    for i in range(len(q)):
        for j in range(NUM_JOINTS):
            source = q[i, j]
            if _NUM_CHILDREN[j] != 1:
                copy(source, out[i, j])
                continue
            child = _CHILDREN[j, 0]
            ax, ay, az = offsets[child, 0], offsets[child, 1], offsets[child, 2]
            swing(ax, ay, az, *_turned(source, ax, ay, az), moved)
            product_transposed(moved, source, out[i, j])


@kernel
def inverse(joints: Array, twists: Array, offsets: Array, out: Array) -> None:
    """Swing-twist inverse kinematics (Skeleton.inverse), with given twists."""
    world = np.empty((NUM_JOINTS, 3, 3))
    M, swung = np.empty((3, 3)), np.empty((3, 3))
    for i in range(len(joints)):
        x = joints[i]
        for j in range(NUM_JOINTS):
            q = out[i, j]
            parent = _PARENTS[j]
            if _NUM_CHILDREN[j] == 0:
                copy(twists[i, j], q)
            elif _NUM_CHILDREN[j] > 1:
                _rotation_of_children(x, j, offsets, M, world[j])
                if parent < 0:
                    copy(world[j], q)
                else:
                    product_transposed(world[parent], world[j], q)
            else:
                child = _CHILDREN[j, 0]
                R = world[parent]
                bx, by, bz = x[child, 0] - x[j, 0], x[child, 1] - x[j, 1], x[child, 2] - x[j, 2]
                swing(offsets[child, 0], offsets[child, 1], offsets[child, 2], *_turned_back(R, bx, by, bz), swung)
                product(swung, twists[i, j], q)
                product(R, q, world[j])


@kernel
def follow(joints: Array, twists: Array, last: Array, offsets: Array, most: float, out: Array) -> None:
    """Write local rotations of bodies that were posed as `last`, with twists of another pose (Skeleton.follow)."""
    world, before, joint = np.empty((NUM_JOINTS, 3, 3)), np.empty((NUM_JOINTS, 3, 3)), np.empty((NUM_JOINTS, 3))
    M, moved, wanted, axis = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
    for i in range(len(joints)):
        x = joints[i]
        joint[0] = 0.0
        chain(last[i], offsets, before, joint)
        for j in range(NUM_JOINTS):
            q, parent = out[i, j], _PARENTS[j]
            if _NUM_CHILDREN[j] == 0:
                product_transposed(last[i, j], twists[i, j], M)
                rx, ry, rz = log_small(M)
                share = min(1.0, most / max(math.sqrt(rx * rx + ry * ry + rz * rz), 1e-12))
                exp(share * rx, share * ry, share * rz, M)
                product(last[i, j], M, q)
                continue
            if _NUM_CHILDREN[j] > 1:
                _rotation_of_children(x, j, offsets, M, world[j])
            else:
                child = _CHILDREN[j, 0]
                bx, by, bz = x[child, 0] - x[j, 0], x[child, 1] - x[j, 1], x[child, 2] - x[j, 2]
                size = math.sqrt(offsets[child, 0] ** 2 + offsets[child, 1] ** 2 + offsets[child, 2] ** 2)
                for k in range(3):
                    axis[k] = offsets[child, k] / size
                # As the other pose has it, from this parent.
                swing(axis[0], axis[1], axis[2], *_turned_back(world[parent], bx, by, bz), moved)
                product(moved, twists[i, j], M)
                product(world[parent], M, wanted)
                # As it was, swung along.
                swing(*_turned(before[j], axis[0], axis[1], axis[2]), bx, by, bz, moved)
                product(moved, before[j], M)
                product_transposed(M, wanted, moved)
                rx, ry, rz = moved[2, 1] - moved[1, 2], moved[0, 2] - moved[2, 0], moved[1, 0] - moved[0, 1]
                angle = math.atan2(
                    rx * axis[0] + ry * axis[1] + rz * axis[2], moved[0, 0] + moved[1, 1] + moved[2, 2] - 1.0
                )
                if _SIDE[j] != 0.0:
                    angle += _off_hinge(x, j, child, wanted, axis)
                angle -= 2 * math.pi * round(angle / (2 * math.pi))
                angle = min(max(angle, -most), most)
                exp(angle * axis[0], angle * axis[1], angle * axis[2], moved)
                product(M, moved, world[j])
            if parent < 0:
                copy(world[j], q)
            else:
                product_transposed(world[parent], world[j], q)


@kernel
def _off_hinge(x: Array, j: int, child: int, R: Array, axis: Array) -> float:
    """Return the angle about a bone by which the bone below it bends farther to the side than its hinge lets it."""
    far = _CHILDREN[child, 0]
    ux, uy, uz = _turned_back(R, x[far, 0] - x[child, 0], x[far, 1] - x[child, 1], x[far, 2] - x[child, 2])
    size = math.sqrt(ux * ux + uy * uy + uz * uz)
    # The hinge lets it bend toward d = z, or -z, across the bone; e = axis x d.
    dx, dy, dz = -axis[2] * axis[0], -axis[2] * axis[1], 1.0 - axis[2] * axis[2]
    ex, ey = axis[1], -axis[0]
    scale = _SIDE[j] / (size * math.sqrt(dz))
    along, across = scale * (ux * dx + uy * dy + uz * dz), scale * (ux * ex + uy * ey)
    sure = min(max((math.sqrt(along * along + across * across) - _STRAIGHT) / (_BENT - _STRAIGHT), 0.0), 1.0)
    angle = math.atan2(across, along)
    return sure * (angle - min(max(angle, -_OFF_HINGE[j]), _OFF_HINGE[j]))


@kernel
def chain(q: Array, offsets: Array, world: Array, joints: Array) -> None:
    """Pose one person whose pelvis is at joints[0]: write the global rotations and the joints."""
    copy(q[0], world[0])
    for j in range(1, NUM_JOINTS):
        R = world[_PARENTS[j]]
        product(R, q[j], world[j])
        ax, ay, az = offsets[j, 0], offsets[j, 1], offsets[j, 2]
        for c in range(3):
            joints[j, c] = joints[_PARENTS[j], c] + (R[c, 0] * ax + R[c, 1] * ay + R[c, 2] * az)


NO_ROTATIONS = np.empty((0, NUM_JOINTS, 3, 3))


@kernel
def forward(q: Array, root: Array, offsets: Array, joints: Array, rotations: Array) -> None:
    """Forward kinematics; global rotations are written too unless `rotations` is empty."""
    world = np.empty((NUM_JOINTS, 3, 3))
    for i in range(len(q)):
        joints[i, 0, 0], joints[i, 0, 1], joints[i, 0, 2] = root[i, 0], root[i, 1], root[i, 2]
        chain(q[i], offsets, world, joints[i])
        if len(rotations) > 0:
            for j in range(NUM_JOINTS):
                copy(world[j], rotations[i, j])


@kernel
def exp(x: float, y: float, z: float, out: Array) -> None:
    """Write Rodrigues' formula; small angles by series to the last digit."""
    square = x * x + y * y + z * z
    if square < 0.01:
        s = square
        a = 1 - s * (1 / 6) * (1 - s * (1 / 20) * (1 - s * (1 / 42) * (1 - s * (1 / 72) * (1 - s * (1 / 110)))))
        b = 0.5 - s * (1 / 24) * (1 - s * (1 / 30) * (1 - s * (1 / 56) * (1 - s * (1 / 90) * (1 - s * (1 / 132)))))
    elif square < 1.0:
        s = square
        high = 1 - s * (1 / 110) * (1 - s * (1 / 156) * (1 - s * (1 / 210) * (1 - s * (1 / 272))))
        a = 1 - s * (1 / 6) * (1 - s * (1 / 20) * (1 - s * (1 / 42) * (1 - s * (1 / 72) * high)))
        high = 1 - s * (1 / 132) * (1 - s * (1 / 182) * (1 - s * (1 / 240) * (1 - s * (1 / 306))))
        b = 0.5 - s * (1 / 24) * (1 - s * (1 / 30) * (1 - s * (1 / 56) * (1 - s * (1 / 90) * high)))
    else:
        angle = math.sqrt(square)
        a, b = math.sin(angle) / angle, 2.0 * math.sin(0.5 * angle) ** 2 / square
    sx, sy, sz = a * x, a * y, a * z
    bx, by, bz = b * x, b * y, b * z
    xx, yy, zz = bx * x, by * y, bz * z
    xy, yz, zx = bx * y, by * z, bz * x
    out[0, 0] = 1.0 - yy - zz
    out[0, 1] = xy - sz
    out[0, 2] = zx + sy
    out[1, 0] = xy + sz
    out[1, 1] = 1.0 - xx - zz
    out[1, 2] = yz - sx
    out[2, 0] = zx - sy
    out[2, 1] = yz + sx
    out[2, 2] = 1.0 - xx - yy


@kernel
def log_small(R: Array) -> tuple[float, float, float]:
    """Return the rotation vector of a turn well below half a circle."""
    x, y, z = 0.5 * (R[2, 1] - R[1, 2]), 0.5 * (R[0, 2] - R[2, 0]), 0.5 * (R[1, 0] - R[0, 1])
    sine = math.sqrt(max(x * x + y * y + z * z, 1e-24))
    scale = math.atan2(sine, 0.5 * (R[0, 0] + R[1, 1] + R[2, 2] - 1.0)) / sine
    return x * scale, y * scale, z * scale


@kernel
def columns(q: Array, out: Array) -> None:
    """Write the first two columns of every joint's rotation but the root's, in single precision."""
    for i in range(len(q)):
        at = 0
        for j in range(1, NUM_JOINTS):
            for r in range(3):
                out[i, at], out[i, at + 1] = q[i, j, r, 0], q[i, j, r, 1]
                at += 2


@kernel
def damp(q: Array, joints: Array, share: float) -> None:
    """Turn some joints of each pose toward rest, in place: exp(share log q)."""
    for i in range(len(q)):
        for j in joints:
            x, y, z = log_small(q[i, j])
            exp(share * x, share * y, share * z, q[i, j])
