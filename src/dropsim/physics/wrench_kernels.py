"""The root wrench, one person after the other; the twins of functions in dropsim.physics.wrench."""

import math
from typing import Any

import numpy as np

from dropsim.compute.jit import kernel
from dropsim.physics.linear import nnls

Array = Any
"""numba knows the types."""


@kernel
def problem(
    x: Array, v: Array, masses: Array, points: Array, normals: Array, friction: float, h: float, gravity: float,
    B: Array, a: Array, r: Array, edges: Array, F: Array,
) -> None:  # fmt: skip
    """Do what wrench.wrench_problem does."""
    num, num_edges = x.shape[1], edges.shape[2]
    total = 0.0
    for j in range(num):
        total += masses[j]
    cosines, sines = np.empty(num_edges), np.empty(num_edges)
    for e in range(num_edges):
        cosines[e], sines[e] = math.cos(e * (2 * math.pi / num_edges)), math.sin(e * (2 * math.pi / num_edges))
    centre, t1, t2, edge = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    for i in range(len(x)):
        for c in range(3):
            centre[c] = 0.0
            for j in range(num):
                centre[c] += masses[j] / total * x[i, j, c]
        a[i] = 0.0
        B[i] = 0.0
        for j in range(num):
            share = masses[j] / h**2
            rx, ry, rz = x[i, j, 0] - centre[0], x[i, j, 1] - centre[1], x[i, j, 2] - centre[2]
            r[i, j, 0], r[i, j, 1], r[i, j, 2] = rx, ry, rz
            for c in range(3):
                B[i, c, 3 * j + c] = share
            B[i, 3, 3 * j + 1], B[i, 3, 3 * j + 2] = -share * rz, share * ry
            B[i, 4, 3 * j], B[i, 4, 3 * j + 2] = share * rz, -share * rx
            B[i, 5, 3 * j], B[i, 5, 3 * j + 1] = -share * ry, share * rx
            px, py, pz = x[i, j, 0] + h * v[i, j, 0], x[i, j, 1] + h * v[i, j, 1], x[i, j, 2] + h * v[i, j, 2]
            a[i, 0] += share * px
            a[i, 1] += share * py
            a[i, 2] += share * pz
            a[i, 3] += share * (ry * pz - rz * py)
            a[i, 4] += share * (rz * px - rx * pz)
            a[i, 5] += share * (rx * py - ry * px)
            n = normals[i, j]
            _perpendicular(n, t1)
            _cross(n, t1, t2)
            qx, qy, qz = points[i, j, 0] - centre[0], points[i, j, 1] - centre[1], points[i, j, 2] - centre[2]
            for e in range(num_edges):
                for c in range(3):
                    edge[c] = cosines[e] * t1[c] + sines[e] * t2[c] + n[c] / friction
                    edges[i, j, e, c] = edge[c]
                    F[i, c, j * num_edges + e] = edge[c]
                F[i, 3, j * num_edges + e] = qy * edge[2] - qz * edge[1]
                F[i, 4, j * num_edges + e] = qz * edge[0] - qx * edge[2]
                F[i, 5, j * num_edges + e] = qx * edge[1] - qy * edge[0]
        a[i, 2] -= gravity * total


@kernel
def _cross(a: Array, b: Array, out: Array) -> None:
    out[0], out[1], out[2] = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@kernel
def _perpendicular(a: Array, out: Array) -> None:
    """Cross with the axis in which a is smallest, the first of equals."""
    if abs(a[0]) <= abs(a[1]) and abs(a[0]) <= abs(a[2]):
        out[0], out[1], out[2] = 0.0, a[2], -a[1]
    elif abs(a[1]) <= abs(a[2]):
        out[0], out[1], out[2] = -a[2], 0.0, a[0]
    else:
        out[0], out[1], out[2] = a[1], -a[0], 0.0
    size = max(math.sqrt(out[0] ** 2 + out[1] ** 2 + out[2] ** 2), 1e-12)
    out[0], out[1], out[2] = out[0] / size, out[1] / size, out[2] / size


@kernel
def demand(B: Array, a: Array, r: Array, x: Array, forces: Array, out: Array) -> None:
    """Write b = B x - a, less external forces, of which there may be none; B has few entries that are not zero."""
    for i in range(len(x)):
        b = out[i]
        for row in range(6):
            b[row] = -a[i, row]
        for j in range(x.shape[1]):
            px, py, pz = x[i, j, 0], x[i, j, 1], x[i, j, 2]
            for c in range(3):
                b[c] += B[i, c, 3 * j + c] * x[i, j, c]
            b[3] += B[i, 3, 3 * j + 1] * py + B[i, 3, 3 * j + 2] * pz
            b[4] += B[i, 4, 3 * j] * px + B[i, 4, 3 * j + 2] * pz
            b[5] += B[i, 5, 3 * j] * px + B[i, 5, 3 * j + 1] * py
            if len(forces) > 0:
                fx, fy, fz = forces[i, j, 0], forces[i, j, 1], forces[i, j, 2]
                rx, ry, rz = r[i, j, 0], r[i, j, 1], r[i, j, 2]
                b[0] -= fx
                b[1] -= fy
                b[2] -= fz
                b[3] -= ry * fz - rz * fy
                b[4] -= rz * fx - rx * fz
                b[5] -= rx * fy - ry * fx


@kernel
def contact_fit(
    F: Array, edges: Array, touching: Array, b: Array, scale: Array, ridge: float, friction: float, group: Array, limits: Array,
    c: Array, forces: Array, explained: Array, residual: Array,
) -> int:  # fmt: skip
    """Do what wrench.contact_fit does; groups of joints have limits of what they bear together [N]. Return the status of nnls."""
    num, num_edges = edges.shape[1], edges.shape[2]
    active = np.empty((len(F), num * num_edges), dtype=np.bool_)
    for i in range(len(F)):
        for j in range(num):
            for e in range(num_edges):
                active[i, j * num_edges + e] = touching[i, j]
    status = nnls(F, scale, b, active, ridge, c)
    load = np.empty(len(limits))
    for i in range(len(F)):
        load[:] = 0.0
        for j in range(num):
            for e in range(num_edges):
                load[group[j]] += c[i, j * num_edges + e] / friction
        for j in range(num):
            share = limits[group[j]] / max(load[group[j]], limits[group[j]])
            for e in range(num_edges):
                c[i, j * num_edges + e] *= share
        for row in range(6):
            total = 0.0
            for k in range(num * num_edges):
                total += F[i, row, k] * c[i, k]
            explained[i, row], residual[i, row] = total, b[i, row] - total
        for j in range(num):
            for k in range(3):
                forces[i, j, k] = 0.0
                for e in range(num_edges):
                    forces[i, j, k] += c[i, j * num_edges + e] * edges[i, j, e, k]
    return status


@kernel
def soft_correction(
    B: Array, touching: Array, masses: Array, residual: Array, wished: Array, forces: Array, scale: Array, body_weight: float, u: float,
    tolerance: float, weight: float, airborne_weight: float, threshold: float, cap: float, x: Array, out: Array,
) -> None:  # fmt: skip
    """Do what wrench.soft_correction does; there may be no wish, and no forces."""
    num, total = x.shape[1], 0.0
    for j in range(num):
        total += masses[j]
    e, K, dx = np.empty(6), np.empty((6, 6)), np.empty((num, 3))
    for i in range(len(x)):
        grounded = False
        for j in range(num):
            grounded = grounded or touching[i, j]
        for r in range(6):
            e[r] = scale[r] / body_weight * residual[i, r]
        if len(wished) > 0:
            allowed, pushed = 0.0, 0.0
            for r in range(6):
                allowed += (scale[r] / body_weight * wished[i, r]) ** 2
            if len(forces) > 0:
                for j in range(num):
                    pushed += math.sqrt(forces[i, j, 0] ** 2 + forces[i, j, 1] ** 2 + forces[i, j, 2] ** 2) / body_weight
            most = max(tolerance - pushed, 0.0) if grounded else 0.0
            share = most / max(most, math.sqrt(allowed), 1e-30)
            for r in range(6):
                e[r] -= share * (scale[r] / body_weight * wished[i, r])
        size = 0.0
        for r in range(6):
            size += e[r] * e[r]
        if not math.sqrt(size) > threshold:
            out[i] = x[i]
            continue
        strength = weight if grounded else airborne_weight
        for r in range(6):
            for c in range(6):
                value = 0.0
                for j in range(num):
                    for k in range(3 * j, 3 * j + 3):
                        value += B[i, r, k] * B[i, c, k] * (total / masses[j])
                scaled = (u * scale[r] / body_weight) * (u * scale[c] / body_weight)
                K[r, c] = strength * scaled * value + (1.0 if r == c else 0.0)
            e[r] *= strength
        _solve_six(K, e)
        farthest = 0.0
        for j in range(num):
            square = 0.0
            for c in range(3):
                value = 0.0
                for r in range(6):
                    value += (u * scale[r] / body_weight) * B[i, r, 3 * j + c] * e[r]
                dx[j, c] = -u * value * (total / masses[j])
                square += dx[j, c] * dx[j, c]
            farthest = max(farthest, math.sqrt(square))
        size = min(cap / max(farthest, 1e-30), 1.0)
        for j in range(num):
            for c in range(3):
                out[i, j, c] = x[i, j, c] + size * dx[j, c]


@kernel
def _solve_six(K: Array, b: Array) -> None:
    """Solve a symmetric positive definite system in place."""
    n = len(b)
    for k in range(n):
        for r in range(k + 1, n):
            factor = K[r, k] / K[k, k]
            for c in range(k + 1, n):
                K[r, c] -= factor * K[k, c]
            b[r] -= factor * b[k]
    for k in range(n - 1, -1, -1):
        for c in range(k + 1, n):
            b[k] -= K[k, c] * b[c]
        b[k] /= K[k, k]
