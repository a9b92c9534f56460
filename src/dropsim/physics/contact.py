"""What a joint's sphere can touch: planes and spheres, as signed distances with normals and velocities.

Kernels take them as `Solids`: rows of planes (normal, offset, angular velocity, velocity, pivot) and of spheres (centre, radius, velocity),
the same for everyone (a leading dimension of 1) or one set per person.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.skeleton import flat
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
GRAVITY = 9.81
"""Downward, along -z [m/s^2]."""
GRIP_GAP = 0.003
"""A sphere this near to a surface rests on it [m]."""


class Solids(NamedTuple):
    """Everything that can be touched during a step."""

    planes: np.ndarray
    spheres: np.ndarray


@dataclass(frozen=True, eq=False)
class Plane:
    """A half-space: the ground, level or tilted, still or moving."""

    normal: Float[np.ndarray, "*b 3"]
    """Unit vector out of the ground."""
    offset: Float[np.ndarray, "*b"]
    """Height of the plane along its normal [m]."""
    angular_velocity: Float[np.ndarray, "*b 3"]
    """Of a plane that tilts about `pivot` [rad/s]."""
    velocity: Float[np.ndarray, "*b 3"]
    """Of the pivot [m/s]."""
    pivot: Float[np.ndarray, "*b 3"]

    @classmethod
    def ground(cls) -> "Plane":
        """Return the level floor z = 0."""
        return _GROUND

    @classmethod
    def stacked(cls, planes: Sequence["Plane"]) -> "Plane":
        """Stack planes along a new last batch dimension, such as time."""
        vectors = [np.stack([getattr(plane, name) for plane in planes], -2) for name in ("normal", "angular_velocity", "velocity", "pivot")]
        return cls(vectors[0], np.stack([plane.offset for plane in planes], -1), *vectors[1:])

    def map(self, vectors: Callable[[np.ndarray], np.ndarray], scalars: Callable[[np.ndarray], np.ndarray]) -> "Plane":
        """Change the batch dimensions of every part."""
        turning = (vectors(self.angular_velocity), vectors(self.velocity), vectors(self.pivot))
        return Plane(vectors(self.normal), np.asarray(scalars(self.offset)), *turning)

    @property
    def rows(self) -> Float[np.ndarray, "*b 1 13"]:
        """As kernels take it."""
        parts = (self.normal, self.offset[..., None], self.angular_velocity, self.velocity, self.pivot)
        shape = np.broadcast_shapes(*(p.shape[:-1] for p in parts))
        return np.concatenate([np.broadcast_to(p, (*shape, p.shape[-1])) for p in parts], -1)[..., None, :]

    def surface(self, points: Float[np.ndarray, "*b n 3"]) -> "Surface":
        """Return distance, normal and velocity at some points."""
        normal = self.normal[..., None, :]
        distance = (points * normal).sum(-1) - self.offset[..., None]
        spin = np.cross(self.angular_velocity[..., None, :], points - self.pivot[..., None, :])
        return Surface(distance, np.broadcast_to(normal, points.shape), spin + self.velocity[..., None, :])


_GROUND = Plane(np.array([0.0, 0.0, 1.0]), np.zeros(()), np.zeros(3), np.zeros(3), np.zeros(3))


@dataclass(frozen=True, eq=False)
class Spheres:
    """Some balls or obstacles that give way to nobody."""

    centres: Float[np.ndarray, "*b s 3"]
    """[m]"""
    radii: Float[np.ndarray, "s"]
    """[m]"""
    velocities: Float[np.ndarray, "*b s 3"]
    """[m/s]"""

    @property
    def rows(self) -> Float[np.ndarray, "*b s 7"]:
        """As kernels take them."""
        radii = np.broadcast_to(self.radii[:, None], (*self.centres.shape[:-1], 1))
        return np.concatenate((self.centres, radii, np.broadcast_to(self.velocities, self.centres.shape)), -1)


Collider = Plane | Spheres


@functools.lru_cache(maxsize=8)
def solids(colliders: tuple[Collider, ...], batch: tuple[int, ...]) -> Solids:
    """Stack colliders as kernels take them; colliders with batch dimensions are broadcast to `batch`."""
    if strange := [type(c).__name__ for c in colliders if not isinstance(c, Plane | Spheres)]:
        raise ValueError(f"people can touch planes and spheres, not a {strange[0]}: build it of Plane and Spheres")
    found = []
    for kind, width in ((Plane, 13), (Spheres, 7)):
        rows = [c.rows for c in colliders if isinstance(c, kind)]
        if any(r.ndim > 2 for r in rows):
            rows = [np.broadcast_to(r, (*batch, *r.shape[-2:])) for r in rows]
        found.append(flat(np.concatenate(rows, -2), 2) if rows else np.empty((1, 0, width)))
    return Solids(*found)


@dataclass(frozen=True, eq=False)
class Surface:
    """The nearest surface as seen from some points."""

    distance: Float[np.ndarray, "*b n"]
    """From the point to the surface, negative inside [m]."""
    normal: Float[np.ndarray, "*b n 3"]
    """Out of the collider, of unit length."""
    velocity: Float[np.ndarray, "*b n 3"]
    """Of the surface at its nearest point [m/s]."""


def nearest_surface(colliders: Sequence[Collider], points: Float[np.ndarray, "*b n 3"]) -> Surface:
    """Return the nearest of all surfaces for each point; without colliders it is infinitely far away."""
    found = Surface(np.empty(points.shape[:-1]), np.empty(points.shape), np.empty(points.shape))
    laid = solids(tuple(colliders), points.shape[:-2])
    _surfaces(flat(points, 2), laid, flat(found.distance, 1), flat(found.normal, 2), flat(found.velocity, 2))
    return found


@kernel
def nearest(x: float, y: float, z: float, planes: Array, spheres: Array) -> tuple[float, float, float, float, float, float, float]:
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
    for k in range(len(spheres)):
        ball = spheres[k]
        dx, dy, dz = x - ball[0], y - ball[1], z - ball[2]
        length = math.sqrt(dx * dx + dy * dy + dz * dz)
        if length - ball[3] < distance:
            distance = length - ball[3]
            # From the very centre, out is up.
            nx, ny, nz = (dx / length, dy / length, dz / length) if length > 1e-9 else (0.0, 0.0, 1.0)
            vx, vy, vz = ball[4], ball[5], ball[6]
    return distance, nx, ny, nz, vx, vy, vz


@kernel
def of_person(rows: Array, i: int) -> Array:
    """Return a person's own rows, or those that are the same for everyone."""
    return rows[i if len(rows) > 1 else 0]


@kernel
def _surfaces(points: Array, solids: Solids, distance: Array, normals: Array, velocities: Array) -> None:
    for i in range(len(points)):
        planes, spheres = of_person(solids.planes, i), of_person(solids.spheres, i)
        for j in range(points.shape[1]):
            found = nearest(points[i, j, 0], points[i, j, 1], points[i, j, 2], planes, spheres)
            distance[i, j] = found[0]
            normals[i, j, 0], normals[i, j, 1], normals[i, j, 2] = found[1], found[2], found[3]
            velocities[i, j, 0], velocities[i, j, 1], velocities[i, j, 2] = found[4], found[5], found[6]


@kernel
def near_spheres(x: Array, radii: Array, planes: Array, spheres: Array, margin: float, near: Array, normals: Array) -> None:
    """Write which of a person's spheres are nearer than a margin to something, and the normals there."""
    for j in range(NUM_JOINTS):
        found = nearest(x[j, 0], x[j, 1], x[j, 2], planes, spheres)
        near[j] = found[0] - radii[j] < margin
        normals[j, 0], normals[j, 1], normals[j, 2] = found[1], found[2], found[3]


@kernel
def contact_targets(x: Array, before: Array, radii: Array, solids: Solids, h: float, p: Array, active: Array, at: int) -> None:
    """Project for the contact energy: spheres inside something stick to it tangentially and touch it normally.

    The tangent plane at x stands for the surface: exact for planes, and for spheres at the step of one frame.
    """
    for i in range(len(x)):
        planes, spheres = of_person(solids.planes, i), of_person(solids.spheres, i)
        for j in range(NUM_JOINTS):
            px, py, pz = x[i, j, 0], x[i, j, 1], x[i, j, 2]
            distance, nx, ny, nz, vx, vy, vz = nearest(px, py, pz, planes, spheres)
            gap = distance - radii[j]
            active[i, at + j] = gap < 0
            if gap < 0:
                cx, cy, cz = before[i, j, 0] + h * vx, before[i, j, 1] + h * vy, before[i, j, 2] + h * vz
                height = (cx - px) * nx + (cy - py) * ny + (cz - pz) * nz + gap
                px, py, pz = cx - height * nx, cy - height * ny, cz - height * nz
            p[i, at + j, 0], p[i, at + j, 1], p[i, at + j, 2] = px, py, pz


@kernel
def push_out(x: Array, before: Array, radii: Array, planes: Array, spheres: Array, friction: float, h: float, touching: Array) -> None:
    """Move a person's spheres that are inside something out to its surface, with Coulomb friction on the way, and mark them.

    The way out stands for the normal impulse: a step along the surface is undone up to friction times that way (Mueller et al. 2007). A
    sphere that rests on the surface has in addition the impulse that bears its weight.
    """
    bearing = GRAVITY * h * h  # what a resting sphere would sink within the step if the ground did not bear it
    for j in range(NUM_JOINTS):
        px, py, pz = x[j, 0], x[j, 1], x[j, 2]
        distance, nx, ny, nz, vx, vy, vz = nearest(px, py, pz, planes, spheres)
        gap = distance - radii[j]
        if gap < 0:
            touching[j] = True
        depth = max(-gap, 0.0)
        impulse = depth + (bearing if gap < GRIP_GAP else 0.0)
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
def deepest(x: Array, radii: Array, planes: Array, spheres: Array) -> float:
    """Return how far a person's deepest sphere is inside something; negative if none is."""
    found = -math.inf
    for j in range(NUM_JOINTS):
        found = max(found, radii[j] - nearest(x[j, 0], x[j, 1], x[j, 2], planes, spheres)[0])
    return found
