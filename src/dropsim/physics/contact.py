"""Spheres against what they can touch; the twins of functions in dropsim.physics.collider and dropsim.physics.energies.physical.

Planes are rows of normal, offset, angular velocity, velocity and pivot; balls are rows of centre, radius and velocity; for everybody
alike, or for each.
"""

import math
from typing import Any

from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""


@kernel
def _nearest(x: float, y: float, z: float, planes: Array, balls: Array) -> tuple[float, float, float, float, float, float, float]:
    """Return distance, normal and velocity of the nearest surface, the first of equals."""
    distance, nx, ny, nz, vx, vy, vz = math.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(len(planes)):
        plane = planes[k]
        found = x * plane[0] + y * plane[1] + z * plane[2] - plane[3]
        if found < distance:
            distance, nx, ny, nz = found, plane[0], plane[1], plane[2]
            wx, wy, wz = plane[4], plane[5], plane[6]
            dx, dy, dz = x - plane[10], y - plane[11], z - plane[12]
            vx, vy, vz = wy * dz - wz * dy + plane[7], wz * dx - wx * dz + plane[8], wx * dy - wy * dx + plane[9]
    for k in range(len(balls)):
        ball = balls[k]
        dx, dy, dz = x - ball[0], y - ball[1], z - ball[2]
        length = math.sqrt(dx * dx + dy * dy + dz * dz)
        if length - ball[3] < distance:
            distance = length - ball[3]
            # From the very centre, out is up.
            nx, ny, nz = (dx / length, dy / length, dz / length) if length > 1e-9 else (0.0, 0.0, 1.0)
            vx, vy, vz = ball[4], ball[5], ball[6]
    return distance, nx, ny, nz, vx, vy, vz


@kernel
def surfaces(points: Array, planes: Array, balls: Array, distance: Array, normals: Array, velocities: Array) -> None:
    """Do what collider.nearest_surface does."""
    for i in range(len(points)):
        k, m = (i if len(planes) > 1 else 0), (i if len(balls) > 1 else 0)
        for j in range(points.shape[1]):
            found = _nearest(points[i, j, 0], points[i, j, 1], points[i, j, 2], planes[k], balls[m])
            distance[i, j] = found[0]
            normals[i, j, 0], normals[i, j, 1], normals[i, j, 2] = found[1], found[2], found[3]
            velocities[i, j, 0], velocities[i, j, 1], velocities[i, j, 2] = found[4], found[5], found[6]


@kernel
def near_spheres(
    x: Array, radii: Array, planes: Array, balls: Array, margin: float, touching: Array, points: Array, normals: Array
) -> None:
    """Write which spheres are nearer than a margin to something, where, and its normals there."""
    for i in range(len(x)):
        k, m = (i if len(planes) > 1 else 0), (i if len(balls) > 1 else 0)
        for j in range(x.shape[1]):
            found = _nearest(x[i, j, 0], x[i, j, 1], x[i, j, 2], planes[k], balls[m])
            touching[i, j] = found[0] - radii[j] < margin
            for c in range(3):
                normals[i, j, c] = found[c + 1]
                points[i, j, c] = x[i, j, c] - radii[j] * found[c + 1]


@kernel
def contact_target(x: Array, before: Array, radii: Array, planes: Array, balls: Array, h: float, p: Array, active: Array, at: int) -> None:
    """Do what Contact.project does; into rows from `at` on."""
    for i in range(len(x)):
        k, m = (i if len(planes) > 1 else 0), (i if len(balls) > 1 else 0)
        for j in range(x.shape[1]):
            px, py, pz = x[i, j, 0], x[i, j, 1], x[i, j, 2]
            distance, nx, ny, nz, vx, vy, vz = _nearest(px, py, pz, planes[k], balls[m])
            gap = distance - radii[j]
            active[i, at + j] = gap < 0
            if gap < 0:
                cx, cy, cz = before[i, j, 0] + h * vx, before[i, j, 1] + h * vy, before[i, j, 2] + h * vz
                height = (cx - px) * nx + (cy - py) * ny + (cz - pz) * nz + gap
                px, py, pz = cx - height * nx, cy - height * ny, cz - height * nz
            p[i, at + j, 0], p[i, at + j, 1], p[i, at + j, 2] = px, py, pz


@kernel
def push_out_one(
    x: Array, before: Array, radii: Array, planes: Array, balls: Array, friction: float, h: float, bearing: float, grip_gap: float,
    touching: Array,
) -> None:  # fmt: skip
    """Do what collider.push_out does, for one person in place; who was inside is added to those who touch."""
    for j in range(len(x)):
        px, py, pz = x[j, 0], x[j, 1], x[j, 2]
        distance, nx, ny, nz, vx, vy, vz = _nearest(px, py, pz, planes, balls)
        gap = distance - radii[j]
        if gap < 0:
            touching[j] = True
        depth = max(-gap, 0.0)
        impulse = depth + (bearing if gap < grip_gap else 0.0)
        if impulse == 0.0:
            continue
        px, py, pz = px + depth * nx, py + depth * ny, pz + depth * nz
        sx, sy, sz = px - before[j, 0] - h * vx, py - before[j, 1] - h * vy, pz - before[j, 2] - h * vz
        along = sx * nx + sy * ny + sz * nz
        sx, sy, sz = sx - along * nx, sy - along * ny, sz - along * nz
        length = math.sqrt(sx * sx + sy * sy + sz * sz)
        undone = min(length, friction * impulse) / max(length, 1e-12)
        x[j, 0], x[j, 1], x[j, 2] = px - undone * sx, py - undone * sy, pz - undone * sz


@kernel
def deepest(x: Array, radii: Array, planes: Array, balls: Array) -> float:
    """Return how far the deepest sphere of one person is inside something; negative where none is."""
    found = -math.inf
    for j in range(len(x)):
        found = max(found, radii[j] - _nearest(x[j, 0], x[j, 1], x[j, 2], planes, balls)[0])
    return found


@kernel
def push_out(
    x: Array, before: Array, radii: Array, planes: Array, balls: Array, friction: float, h: float, bearing: float, grip_gap: float,
    touching: Array,
) -> None:  # fmt: skip
    """Do what collider.push_out does, in place."""
    for i in range(len(x)):
        k, m = (i if len(planes) > 1 else 0), (i if len(balls) > 1 else 0)
        push_out_one(x[i], before[i], radii, planes[k], balls[m], friction, h, bearing, grip_gap, touching[i])


@kernel
def scaled_rods(x: Array, ends: Array, rest: Array, scale: float, p: Array, at: int) -> None:
    """Do what Rigidity.project does; into rows from `at` on."""
    for r in range(len(ends)):
        a, b = ends[r, 0], ends[r, 1]
        dx, dy, dz = rest[a, 0] - rest[b, 0], rest[a, 1] - rest[b, 1], rest[a, 2] - rest[b, 2]
        length = scale * math.sqrt(dx * dx + dy * dy + dz * dz)
        for i in range(len(x)):
            dx, dy, dz = x[i, a, 0] - x[i, b, 0], x[i, a, 1] - x[i, b, 1], x[i, a, 2] - x[i, b, 2]
            share = length / max(math.sqrt(dx * dx + dy * dy + dz * dz), 1e-9)
            p[i, at + r, 0], p[i, at + r, 1], p[i, at + r, 2] = share * dx, share * dy, share * dz
