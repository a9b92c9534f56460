"""Planes, spheres and shapes that joints' spheres can touch: signed distances, normals, velocities and friction.

Kernels take them as `Solids`: rows of planes (normal, offset, angular velocity, velocity, pivot, friction), of spheres
(centre, radius, velocity, friction) and of patches on the planes (centre, half sizes, cosine and sine of the turn,
friction), and of boxes, cylinders and meshes (see `shapes`), the same for everyone (a leading dimension of 1) or one
set per person. A friction of NaN is the simulator's own.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import BEYOND, FLESH, NUM_JOINTS, PARENTS
from dropsim.body.skeleton import flat
from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.physics import shapes as forms
from dropsim.physics.shapes import (
    NO_TRIANGLES,
    Mesh,
    Triangles,
    shape_distance,
    shape_entry,
    to_local,
    turned,
    velocity_at,
)

Array = Any
"""numba knows the types."""
_BEYOND, _FLESH, _PARENTS = np.array(BEYOND), np.array(FLESH), np.array(PARENTS)
STICKS, SLIDES = 1.0, 3.0
"""Feet that move slower than the first on average over a frame stand during it, as one that lands within it; from the
second on they slide [m/s]. The bank's recordings are explained as well with this as without."""
Found = tuple[float, float, float, float, float, float, float, float]
"""Distance, normal, velocity and friction of a surface."""
HAIR = 1e-9
"""How much farther than needed is searched, so that rounding loses nothing [m]."""
GRIP_GAP = 0.003
"""A sphere this near to a surface rests on it [m]."""


class Touch(NamedTuple):
    """How bodies touch: what counts as near, and how much of a body there is."""

    margin: float
    """Gap up to which a sphere can bear a contact force [m]."""
    friction: float
    """Friction coefficient of surfaces that set none."""
    soles: bool
    """Whether bodies bear forces all over soles, toes, palms and flesh, or only below their joints."""


class Marks(NamedTuple):
    """Contacts of a person's spheres within a frame."""

    touching: np.ndarray
    """Spheres that were inside something (22)."""
    sliding: np.ndarray
    """Spheres that slide although friction acts (22)."""
    pressed: np.ndarray
    """Way by which each was pushed out so far (22) [m]."""
    rubbed: np.ndarray
    """Way along the surface that friction has undone so far (22) [m]."""


class Solids(NamedTuple):
    """Everything that can be touched during a step."""

    planes: np.ndarray
    spheres: np.ndarray
    patches: np.ndarray
    shapes: np.ndarray
    mesh: Triangles
    """Of all meshes."""

    def only(self, people: slice) -> "Solids":
        """Return what some people can touch."""
        rows = (rows if len(rows) == 1 else rows[people] for rows in self[:4])
        return Solids(*rows, self.mesh)  # pyright: ignore[reportCallIssue]


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
    friction: Float[np.ndarray, "*#b"] = field(default_factory=lambda: np.array(math.nan))
    """Of soles on it: largest tangential force over the normal one; NaN is the simulator's own."""

    @classmethod
    def ground(cls) -> "Plane":
        """Return the level floor z = 0."""
        return _GROUND

    @classmethod
    def stacked(cls, planes: Sequence["Plane"]) -> "Plane":
        """Stack planes along a new last batch dimension, such as time."""
        vectors = [
            np.stack([getattr(plane, name) for plane in planes], -2)
            for name in ("normal", "angular_velocity", "velocity", "pivot")
        ]
        offsets = np.stack([plane.offset for plane in planes], -1)
        friction = np.stack([np.broadcast_to(plane.friction, plane.offset.shape) for plane in planes], -1)
        return cls(vectors[0], offsets, *vectors[1:], friction)  # pyright: ignore[reportCallIssue]

    def map(self, vectors: Callable[[np.ndarray], np.ndarray], scalars: Callable[[np.ndarray], np.ndarray]) -> "Plane":
        """Change the batch dimensions of every part."""
        turning = (vectors(self.angular_velocity), vectors(self.velocity), vectors(self.pivot))
        return Plane(
            vectors(self.normal),
            np.asarray(scalars(self.offset)),
            *turning,
            np.asarray(scalars(self.friction) if self.friction.ndim else self.friction),
        )

    @property
    def rows(self) -> Float[np.ndarray, "*b 1 14"]:
        """As kernels take it."""
        parts = (
            self.normal,
            self.offset[..., None],
            self.angular_velocity,
            self.velocity,
            self.pivot,
            self.friction[..., None],
        )
        shape = np.broadcast_shapes(*(p.shape[:-1] for p in parts))
        return np.concatenate([np.broadcast_to(p, (*shape, p.shape[-1])) for p in parts], -1)[..., None, :]

    def surface(self, points: Float[np.ndarray, "*b n 3"]) -> "Surface":
        """Return distance, normal and velocity at some points."""
        normal = self.normal[..., None, :]
        distance = (points * normal).sum(-1) - self.offset[..., None]
        spin = np.cross(self.angular_velocity[..., None, :], points - self.pivot[..., None, :])
        velocity, friction = (
            spin + self.velocity[..., None, :],
            np.broadcast_to(self.friction[..., None], distance.shape),
        )
        return Surface(distance, np.broadcast_to(normal, points.shape), velocity, friction)


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
    friction: float = math.nan
    """Of soles on them; NaN is the simulator's own."""

    @property
    def rows(self) -> Float[np.ndarray, "*b s 8"]:
        """As kernels take them."""
        radii, friction = (
            np.broadcast_to(v, (*self.centres.shape[:-1], 1)) for v in (self.radii[:, None], self.friction)
        )
        return np.concatenate((self.centres, radii, np.broadcast_to(self.velocities, self.centres.shape), friction), -1)


@dataclass(frozen=True, eq=False)
class FrictionPatch:
    """A rectangle of the ground with a friction of its own: ice, a wet floor, a rubber mat."""

    centre: Float[np.ndarray, "2"]
    """Seen from above [m]."""
    half: Float[np.ndarray, "2"]
    """Half its sizes along its own x and y [m]."""
    turn: float
    """Of its own axes, counterclockwise seen from above [rad]."""
    friction: float

    @property
    def rows(self) -> Float[np.ndarray, "1 7"]:
        """As kernels take it."""
        return np.array([[*self.centre, *self.half, math.cos(self.turn), math.sin(self.turn), self.friction]])


@dataclass(frozen=True, eq=False)
class Shape:
    """A box, a cylinder or a mesh that gives way to nobody, still or moving."""

    kind: int
    """shapes.BOX, CYLINDER or MESH."""
    sizes: tuple[float, float, float]
    """Half the edges of a box; radius and half the height of a cylinder, along its own z; of a mesh nothing [m]."""
    centre: Float[np.ndarray, "*b 3"]
    """Of the shape's own axes, as it will be at the step's end [m]."""
    rotation: Float[np.ndarray, "*b 3 3"]
    """From the shape's own axes to the world's."""
    velocity: Float[np.ndarray, "*b 3"] = field(default_factory=lambda: np.zeros(3))
    """Of the centre [m/s]."""
    angular_velocity: Float[np.ndarray, "*b 3"] = field(default_factory=lambda: np.zeros(3))
    """[rad/s]"""
    friction: float = math.nan
    """Of soles on it; NaN is the simulator's own."""
    seen: bool = True
    """Whether people see it, and step over it or stop."""
    mesh: Mesh | None = None

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """None or one; the first size of a mesh's row is its place here."""
        return () if self.mesh is None else (self.mesh,)

    @property
    def bound(self) -> float:
        """Farthest that it reaches from its centre [m]."""
        if self.mesh is not None:
            return float(np.linalg.norm(self.mesh.vertices, axis=-1).max())
        return math.hypot(*self.sizes[: 3 if self.kind == forms.BOX else 2])

    @functools.cached_property
    def rows(self) -> Float[np.ndarray, "*b 1 25"]:
        """As kernels take it."""
        batch, flags = self.centre.shape[:-1], np.array([self.friction, self.bound, float(self.seen)])
        turn = self.rotation.reshape(*self.rotation.shape[:-2], 9)
        parts = (
            np.array([float(self.kind), *self.sizes]),
            self.centre,
            turn,
            self.velocity,
            self.angular_velocity,
            flags,
        )
        return np.concatenate([np.broadcast_to(part, (*batch, part.shape[-1])) for part in parts], -1)[..., None, :]


@dataclass(frozen=True, eq=False)
class Rows:
    """Colliders of one kind as kernels take them, such as ones that only some people can touch."""

    kind: type
    rows: Float[np.ndarray, "*b k c"]
    meshes: tuple[Mesh, ...] = ()
    """The first size of a mesh's row is its place here."""


Collider = Plane | Spheres | FrictionPatch | Shape | Rows
_NOWHERE: dict[type, Float[np.ndarray, "c"]] = {
    Plane: np.array([0.0, 0.0, 1.0, -1e9, *([0.0] * 9), math.nan]),
    Spheres: np.array([0.0, 0.0, -1e9, 1e-3, 0.0, 0.0, 0.0, math.nan]),
    FrictionPatch: np.array([0.0, 0.0, -1.0, -1.0, 1.0, 0.0, math.nan]),
    Shape: np.array([0.0, 1e-3, 1e-3, 1e-3, 0.0, 0.0, -1e9, *np.eye(3).ravel(), *([0.0] * 6), math.nan, 1e-2, 0.0]),
}
"""Rows that nobody can touch; as many numbers as each kind has."""


@functools.lru_cache(maxsize=8)
def colliders_by_world(parts: tuple[tuple[int, Collider], ...], batch: tuple[int, int]) -> tuple[Rows, ...]:
    """Return colliders that only the people of their world can touch; `batch` is worlds and people.

    Everyone has as many rows as the world with the most colliders of a kind needs: the others' are nowhere.
    """
    groups: dict[type, dict[int, list[Collider]]] = {}
    for world, collider in parts:
        groups.setdefault(_kind_of(collider), {}).setdefault(world, []).append(collider)
    found = []
    for kind, worlds in groups.items():
        meshes = tuple(dict.fromkeys(mesh for own in worlds.values() for c in own for mesh in _meshes_of(c)))
        places = list(range(len(meshes)))
        stacked = {
            world: _stacked([_rooted(c, meshes, places) for c in own], batch[1:]) for world, own in worlds.items()
        }
        nowhere, most = _NOWHERE[kind], max(rows.shape[-2] for rows in stacked.values())
        rows = np.broadcast_to(nowhere, (*batch, most, len(nowhere))).copy()
        for world, own in stacked.items():
            rows[world, :, : own.shape[-2]] = own
        found.append(Rows(kind, rows, meshes))
    return tuple(found)


@functools.lru_cache(maxsize=8)
def solids(colliders: tuple[Collider, ...], batch: tuple[int, ...]) -> Solids:
    """Stack colliders as kernels take them; colliders with batch dimensions are broadcast to `batch`."""
    if strange := [type(c).__name__ for c in colliders if not isinstance(c, Collider)]:
        raise ValueError(
            f"people can touch planes, spheres and shapes, not a {strange[0]}: build it of Plane, Spheres and Shape"
        )
    meshes = tuple(dict.fromkeys(mesh for c in colliders for mesh in _meshes_of(c)))
    mesh, roots = _joined(meshes)
    found = []
    for kind, nowhere in _NOWHERE.items():
        rows = [_rooted(c, meshes, roots) for c in colliders if _kind_of(c) is kind]
        found.append(flat(_stacked(rows, batch), 2) if rows else np.empty((1, 0, len(nowhere))))
    return Solids(*found, mesh)  # pyright: ignore[reportCallIssue]


@functools.lru_cache(maxsize=8)
def _joined(meshes: tuple[Mesh, ...]) -> tuple[Triangles, list[int]]:
    return forms.joined([mesh.triangles for mesh in meshes]) if meshes else (NO_TRIANGLES, [])


def _kind_of(collider: Collider) -> type:
    return collider.kind if isinstance(collider, Rows) else type(collider)


def _meshes_of(collider: Collider) -> tuple[Mesh, ...]:
    return collider.meshes if isinstance(collider, Shape | Rows) else ()


def _stacked(rows: Sequence[np.ndarray], batch: tuple[int, ...]) -> np.ndarray:
    """Put rows after each other; if some have batch dimensions, all get them."""
    if any(r.ndim > 2 for r in rows):
        rows = [np.broadcast_to(r, (*batch, *r.shape[-2:])) for r in rows]
    return np.concatenate(rows, -2)


def _rooted(collider: Collider, meshes: tuple[Mesh, ...], roots: list[int]) -> np.ndarray:
    """Return a collider's rows, those of meshes with their roots instead of their places among the collider's own."""
    rows, own = collider.rows, _meshes_of(collider)
    if own:
        rows, places = np.array(rows), np.array([roots[meshes.index(mesh)] for mesh in own])
        of_meshes = rows[..., 0] == forms.MESH
        rows[of_meshes, 1] = places[rows[of_meshes, 1].astype(np.int64)]
    return rows


@dataclass(frozen=True, eq=False)
class Surface:
    """The nearest surface as seen from some points."""

    distance: Float[np.ndarray, "*b n"]
    """From the point to the surface, negative inside [m]."""
    normal: Float[np.ndarray, "*b n 3"]
    """Out of the collider, of unit length."""
    velocity: Float[np.ndarray, "*b n 3"]
    """Of the surface at its nearest point [m/s]."""
    friction: Float[np.ndarray, "*b n"]
    """Of soles on it; NaN is the simulator's own."""


def nearest_surface(colliders: Sequence[Collider], points: Float[np.ndarray, "*b n 3"]) -> Surface:
    """Return the nearest of all surfaces for each point; without colliders it is infinitely far away."""
    plain, vectors = points.shape[:-1], points.shape
    found = Surface(np.empty(plain), np.empty(vectors), np.empty(vectors), np.empty(plain))
    laid = solids(tuple(colliders), points.shape[:-2])
    parts = (flat(found.distance, 1), flat(found.normal, 2), flat(found.velocity, 2), flat(found.friction, 1))
    _surfaces(flat(points, 2), laid, *parts)
    return found


@inlined_kernel
def of_person(solids: Solids, i: int) -> Solids:
    """Return a person's own rows, or those that are the same for everyone."""
    planes, spheres = _own(solids.planes, i), _own(solids.spheres, i)
    return Solids(planes, spheres, _own(solids.patches, i), _own(solids.shapes, i), solids.mesh)


@inlined_kernel
def _own(rows: Array, i: int) -> Array:
    return rows[i if len(rows) > 1 else 0]


@inlined_kernel
def nearest(x: float, y: float, z: float, here: Solids) -> Found:
    """Return distance, normal, velocity and friction of the nearest surface, the first of equals."""
    return nearest_within(math.inf, x, y, z, here)


@inlined_kernel
def nearest_within(limit: float, x: float, y: float, z: float, here: Solids) -> Found:
    """Return the same as `nearest`, or the limit as the distance if nothing is nearer: that takes much less time."""
    distance, nx, ny, nz, vx, vy, vz, friction = limit, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, math.nan
    for k in range(len(here.planes)):
        plane = here.planes[k]
        height = x * plane[0] + y * plane[1] + z * plane[2] - plane[3]
        if height < distance:
            distance, nx, ny, nz = height, plane[0], plane[1], plane[2]
            wx, wy, wz = plane[4], plane[5], plane[6]
            dx, dy, dz = x - plane[10], y - plane[11], z - plane[12]
            vx, vy, vz = wy * dz - wz * dy + plane[7], wz * dx - wx * dz + plane[8], wx * dy - wy * dx + plane[9]
            friction = _patched(x, y, plane[13], here.patches)
    found = (distance, nx, ny, nz, vx, vy, vz, friction)
    if len(here.spheres) > 0 or len(here.shapes) > 0:
        return _or_nearer(found, x, y, z, here)
    return found


@inlined_kernel
def beyond_planes(limit: float, x: float, y: float, z: float, here: Solids) -> bool:
    """Tell whether there are only planes, and none within a limit: `nearest_within` finds nothing then.

    That is so for most joints. To hand a scene over takes ten times as long, so callers ask this first.
    """
    planes = here.planes
    for k in range(len(planes)):
        if x * planes[k, 0] + y * planes[k, 1] + z * planes[k, 2] - planes[k, 3] < limit:
            return False
    return len(here.spheres) == 0 and len(here.shapes) == 0


@kernel
def _or_nearer(found: Found, x: float, y: float, z: float, here: Solids) -> Found:
    """Return a sphere or a shape if one is nearer than what was found."""
    distance, nx, ny, nz, vx, vy, vz, friction = found
    for k in range(len(here.spheres)):
        ball = here.spheres[k]
        dx, dy, dz = x - ball[0], y - ball[1], z - ball[2]
        length = math.sqrt(dx * dx + dy * dy + dz * dz)
        if length - ball[3] < distance:
            distance = length - ball[3]
            # From the very centre, out is up.
            nx, ny, nz = (dx / length, dy / length, dz / length) if length > 1e-9 else (0.0, 0.0, 1.0)
            vx, vy, vz, friction = ball[4], ball[5], ball[6], ball[7]
    for k in range(len(here.shapes)):
        row = here.shapes[k]
        reach = distance + row[forms.BOUND]
        if (x - row[4]) ** 2 + (y - row[5]) ** 2 + (z - row[6]) ** 2 > max(reach, row[forms.BOUND]) ** 2:
            continue
        lx, ly, lz = to_local(x, y, z, row)
        apart, ux, uy, uz = shape_distance(lx, ly, lz, row, here.mesh, distance)
        if apart < distance:
            distance, friction = apart, row[forms.FRICTION]
            nx, ny, nz = turned(ux, uy, uz, row)
            vx, vy, vz = velocity_at(x, y, z, row)
    return distance, nx, ny, nz, vx, vy, vz, friction


@inlined_kernel
def nearest_on_the_way(limit: float, before: Array, x: float, y: float, z: float, here: Solids, h: float) -> Found:
    """Return the nearest surface within a limit, or that of a shape into which the way from `before` led.

    So nothing gets through a thin wall in one step.

    The tangent plane where the way entered stands for the surface then.
    """
    found = nearest_within(limit, x, y, z, here)
    if len(here.shapes) > 0:
        return _or_entered(found, before, x, y, z, here, h)
    return found


@kernel
def _or_entered(found: Found, before: Array, x: float, y: float, z: float, here: Solids, h: float) -> Found:
    """Return the surface of the shape that was entered first, if that is deeper than what was found."""
    distance, nx, ny, nz, vx, vy, vz, friction = found
    soonest = math.inf
    for k in range(len(here.shapes)):
        row = here.shapes[k]
        # The way relative to the shape, which moves too.
        ux, uy, uz = velocity_at(before[0], before[1], before[2], row)
        bx, by, bz = before[0] + h * ux, before[1] + h * uy, before[2] + h * uz
        way = math.sqrt((x - bx) ** 2 + (y - by) ** 2 + (z - bz) ** 2)
        if (x - row[4]) ** 2 + (y - row[5]) ** 2 + (z - row[6]) ** 2 > (way + row[forms.BOUND]) ** 2:
            continue
        (sx, sy, sz), (ex, ey, ez) = to_local(bx, by, bz, row), to_local(x, y, z, row)
        share, mx, my, mz = shape_entry(sx, sy, sz, ex - sx, ey - sy, ez - sz, row, here.mesh)
        if share >= soonest:
            continue
        inside = (1 - share) * ((ex - sx) * mx + (ey - sy) * my + (ez - sz) * mz)
        if inside < distance:
            soonest, distance, friction = share, inside, row[forms.FRICTION]
            nx, ny, nz = turned(mx, my, mz, row)
            vx, vy, vz = velocity_at(x, y, z, row)
    return distance, nx, ny, nz, vx, vy, vz, friction


@kernel
def ray(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, here: Solids, seen: bool
) -> tuple[float, float, float, float]:
    """Return where the way from a point along d enters something, as a share of d or infinity, and the normal there.

    `seen` leaves out what people do not see or know. What the point is inside of does not count.
    """
    best, nx, ny, nz = math.inf, 0.0, 0.0, 1.0
    for k in range(len(here.planes)):
        plane = here.planes[k]
        height = x * plane[0] + y * plane[1] + z * plane[2] - plane[3]
        sinking = -(dx * plane[0] + dy * plane[1] + dz * plane[2])
        if sinking > 0 and 0 <= height <= sinking * min(best, 1.0):
            best, nx, ny, nz = height / sinking, plane[0], plane[1], plane[2]
    for k in range(len(here.shapes)):
        row = here.shapes[k]
        if seen and row[forms.SEEN] < 1.0:
            continue
        # The point of the way that is nearest to the centre.
        cx, cy, cz = row[4] - x, row[5] - y, row[6] - z
        at = min(max((cx * dx + cy * dy + cz * dz) / (dx * dx + dy * dy + dz * dz), 0.0), 1.0)
        if (cx - at * dx) ** 2 + (cy - at * dy) ** 2 + (cz - at * dz) ** 2 > row[forms.BOUND] ** 2:
            continue
        (sx, sy, sz), (ex, ey, ez) = to_local(x, y, z, row), to_local(x + dx, y + dy, z + dz, row)
        share, mx, my, mz = shape_entry(sx, sy, sz, ex - sx, ey - sy, ez - sz, row, here.mesh)
        if share < best:
            best = share
            nx, ny, nz = turned(mx, my, mz, row)
    return best, nx, ny, nz


@inlined_kernel
def _patched(x: float, y: float, friction: float, patches: Array) -> float:
    """Return the friction of the ground at a place: of patches that overlap, the last one's."""
    for k in range(len(patches)):
        patch = patches[k]
        dx, dy = x - patch[0], y - patch[1]
        if abs(patch[4] * dx + patch[5] * dy) <= patch[2] and abs(patch[4] * dy - patch[5] * dx) <= patch[3]:
            friction = patch[6]
    return friction


@kernel
def _surfaces(
    points: Array, solids: Solids, distance: Array, normals: Array, velocities: Array, friction: Array
) -> None:
    for i in range(len(points)):
        here = of_person(solids, i)
        for j in range(points.shape[1]):
            found = nearest(points[i, j, 0], points[i, j, 1], points[i, j, 2], here)
            distance[i, j], friction[i, j] = found[0], found[7]
            normals[i, j, 0], normals[i, j, 1], normals[i, j, 2] = found[1], found[2], found[3]
            velocities[i, j, 0], velocities[i, j, 1], velocities[i, j, 2] = found[4], found[5], found[6]


@kernel
def near_spheres(
    x: Array,
    after: Array,
    h: float,
    radii: Array,
    here: Solids,
    touch: Touch,
    near: Array,
    normals: Array,
    frictions: Array,
    sliding: Array,
) -> None:
    """Write which of a person's spheres are near to something, the normals and the friction there, and how they slide.

    `sliding` is the way along which a sphere slides that goes to `after`, as a unit vector; shorter for one that hardly
    slides. Without soles, spheres are all there is of a body, and none slides. Of a sphere that is not near, nothing
    else is known.
    """
    margin, friction, whole = touch
    sliding[:] = 0.0
    for j in range(NUM_JOINTS):
        # Toes and palms bear what the ball of the foot and the wrist are too high for, and flesh is softer than a
        # sphere.
        parent, reach = _PARENTS[j], radii[j]
        ax, ay, az = x[j, 0] - x[parent, 0], x[j, 1] - x[parent, 1], x[j, 2] - x[parent, 2]
        if whole:
            reach = max(radii[j] + _FLESH[j], _BEYOND[j] * math.sqrt(ax * ax + ay * ay + az * az))
        limit = margin + reach + HAIR
        if beyond_planes(limit, x[j, 0], x[j, 1], x[j, 2], here):
            near[j], frictions[j] = False, friction
            normals[j, 0] = normals[j, 1] = normals[j, 2] = 0.0
            continue
        found = nearest_within(limit, x[j, 0], x[j, 1], x[j, 2], here)
        near[j] = found[0] < limit and found[0] - radii[j] < margin
        normals[j, 0], normals[j, 1], normals[j, 2] = found[1], found[2], found[3]
        frictions[j] = friction if math.isnan(found[7]) else found[7]
        if not whole or found[0] >= limit:
            continue
        tip = _BEYOND[j] * (ax * found[1] + ay * found[2] + az * found[3])
        near[j] = found[0] + min(tip, -radii[j] - _FLESH[j]) < margin
        sx, sy, sz, way = _slide(after[j, 0], after[j, 1], after[j, 2], x[j], h, found)
        share = min(max((way / h - STICKS) / (SLIDES - STICKS), 0.0), 1.0) / max(way, 1e-12)
        sliding[j, 0], sliding[j, 1], sliding[j, 2] = share * sx, share * sy, share * sz


@kernel
def contact_targets(
    x: Array, before: Array, radii: Array, solids: Solids, friction: float, h: float, p: Array, active: Array, at: int
) -> None:
    """Project for the contact energy: spheres inside something come out to its surface and stick as far as friction holds.

    The tangent plane at x stands for the surface: exact for planes, and for spheres at the step of one frame. The
    energy's normal force is in proportion to the depth, so its tangential one is bounded by friction times the depth.
    """
    for i in range(len(x)):
        here = of_person(solids, i)
        for j in range(NUM_JOINTS):
            px, py, pz = x[i, j, 0], x[i, j, 1], x[i, j, 2]
            if beyond_planes(radii[j], px, py, pz, here):
                active[i, at + j] = False
                p[i, at + j, 0], p[i, at + j, 1], p[i, at + j, 2] = px, py, pz
                continue
            found = nearest_on_the_way(radii[j], before[i, j], px, py, pz, here, h)
            gap = found[0] - radii[j]
            active[i, at + j] = gap < 0
            if gap < 0:
                mu = friction if math.isnan(found[7]) or math.isinf(friction) else found[7]
                px, py, pz = px - gap * found[1], py - gap * found[2], pz - gap * found[3]
                sx, sy, sz, length = _slide(px, py, pz, before[i, j], h, found)
                undone = min(length, -mu * gap) / max(length, 1e-12)
                px, py, pz = px - undone * sx, py - undone * sy, pz - undone * sz
            p[i, at + j, 0], p[i, at + j, 1], p[i, at + j, 2] = px, py, pz


@inlined_kernel
def _slide(px: float, py: float, pz: float, before: Array, h: float, found: Found) -> tuple[float, float, float, float]:
    """Return a sphere's way along a surface within the step, relative to the surface, and its length."""
    _, nx, ny, nz, vx, vy, vz, _ = found
    sx, sy, sz = px - before[0] - h * vx, py - before[1] - h * vy, pz - before[2] - h * vz
    along = sx * nx + sy * ny + sz * nz
    sx, sy, sz = sx - along * nx, sy - along * ny, sz - along * nz
    return sx, sy, sz, math.sqrt(sx * sx + sy * sy + sz * sz)


@kernel
def push_out(
    x: Array, before: Array, radii: Array, here: Solids, friction: float, bearing: float, h: float, marks: Marks
) -> None:
    """Move a person's spheres out of what they are inside of, with Coulomb friction on the way, and mark them.

    The way out stands for the normal impulse: a step along the surface is undone up to friction times that way (Mueller
    et al. 2007). A sphere that rests on the surface has in addition the impulse that bears the body, as the way
    `bearing` that it would sink without. Marks add up the ways out and the ways undone so far in this frame: however
    often spheres are pushed out, friction is what the whole way out allows.
    """
    touching, sliding, pressed, rubbed = marks
    for j in range(NUM_JOINTS):
        px, py, pz = x[j, 0], x[j, 1], x[j, 2]
        sliding[j] = False
        if beyond_planes(radii[j] + 2 * GRIP_GAP, px, py, pz, here):
            continue
        found = nearest_on_the_way(radii[j] + 2 * GRIP_GAP, before[j], px, py, pz, here, h)
        gap = found[0] - radii[j]
        if gap < 0:
            touching[j] = True
        if gap >= GRIP_GAP:
            continue
        depth, mu = max(-gap, 0.0), friction if math.isnan(found[7]) else found[7]
        pressed[j] += depth
        px, py, pz = px + depth * found[1], py + depth * found[2], pz + depth * found[3]
        sx, sy, sz, length = _slide(px, py, pz, before[j], h, found)
        way = min(length, max(mu * (pressed[j] + bearing) - rubbed[j], 0.0))
        rubbed[j] += way
        sliding[j] = way < length
        undone = way / max(length, 1e-12)
        x[j, 0], x[j, 1], x[j, 2] = px - undone * sx, py - undone * sy, pz - undone * sz


@kernel
def deepest(x: Array, radii: Array, here: Solids) -> float:
    """Return how far a person's deepest sphere is inside something; 0 if none is."""
    found = 0.0
    for j in range(NUM_JOINTS):
        if not beyond_planes(radii[j], x[j, 0], x[j, 1], x[j, 2], here):
            found = max(found, radii[j] - nearest_within(radii[j], x[j, 0], x[j, 1], x[j, 2], here)[0])
    return found
