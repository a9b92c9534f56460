"""Planes and shapes that joints' spheres can touch: signed distances, normals, velocities and friction.

Kernels take them as `Solids`: rows as in `shapes`, the same for everyone (a leading dimension of 1) or one set per
person. A friction of NaN is the simulator's own.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.kinematics import copy
from dropsim.body.skeleton import flat
from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.physics.shapes import (
    BALL,
    BOUND,
    BOX,
    CENTRE,
    FRICTION,
    MESH,
    PATCH,
    PLANE,
    SEEN,
    SIZES,
    TURN,
    Mesh,
    Triangles,
    Way,
    joined,
    shape_distance,
    shape_entry,
    velocity_at,
)
from dropsim.physics.vectors import Vector, dot, minus, part, plus, row, size, write

Array = Any
"""numba knows the types."""
GRIP_GAP = 0.003
"""A sphere this near to a surface rests on it [m]."""
FAR = 1e9
"""Distance at which nothing is touched [m]."""


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

    shapes: np.ndarray
    mesh: Triangles
    """Triangles of all meshes."""

    def only(self, people: slice) -> "Solids":
        """Return what some people can touch."""
        return self if len(self.shapes) == 1 else Solids(self.shapes[people], self.mesh)

    @property
    def flat(self) -> bool:
        """Whether there are only planes and patches of them."""
        return bool((self.shapes[..., 0] >= PLANE).all())


@dataclass(frozen=True, eq=False)
class Plane:
    """A half-space: the ground, level or tilted, still or moving."""

    normal: Float[np.ndarray, "*b 3"]
    """Unit vector out of the ground."""
    offset: Float[np.ndarray, "*b"]
    """Height of the plane along its normal [m]."""
    angular_velocity: Float[np.ndarray, "*b 3"]
    """Angular velocity of a plane that tilts about `pivot` [rad/s]."""
    velocity: Float[np.ndarray, "*b 3"]
    """Velocity of the pivot [m/s]."""
    pivot: Float[np.ndarray, "*b 3"]
    friction: Float[np.ndarray, "*#b"] = field(default_factory=lambda: np.array(math.nan))
    """Friction coefficient of soles on it; NaN is the simulator's own."""
    meshes: ClassVar[tuple[Mesh, ...]] = ()

    @classmethod
    def ground(cls) -> "Plane":
        """Return the level floor z = 0."""
        return _GROUND

    @classmethod
    def stacked(cls, planes: Sequence["Plane"]) -> "Plane":
        """Stack planes along a new last batch dimension, such as time."""
        planes = [replace(plane, friction=np.broadcast_to(plane.friction, plane.offset.shape)) for plane in planes]
        axes = {name: -2 if name in _VECTORS else -1 for name in vars(planes[0])}
        return cls(**{name: np.stack([getattr(plane, name) for plane in planes], axes[name]) for name in axes})

    def map(self, vectors: Callable[[np.ndarray], np.ndarray], scalars: Callable[[np.ndarray], np.ndarray]) -> "Plane":
        """Change the batch dimensions of every part."""
        changed = {name: vectors(getattr(self, name)) for name in _VECTORS}
        friction = scalars(self.friction) if self.friction.ndim else self.friction
        return Plane(**changed, offset=np.asarray(scalars(self.offset)), friction=np.asarray(friction))

    @property
    def rows(self) -> Float[np.ndarray, "*b 1 25"]:
        """Numbers that kernels take."""
        offset, friction = np.asarray(self.offset)[..., None], self.friction[..., None]
        moving = (self.velocity, self.angular_velocity)
        bounds = np.array([FAR, 1.0])
        return _as_row(np.array([PLANE]), self.normal, self.pivot, offset, np.zeros(8), *moving, friction, bounds)

    def distance(self, points: Float[np.ndarray, "*b n 3"]) -> Float[np.ndarray, "*b n"]:
        """Return how far points are above the plane [m]."""
        return (points * self.normal[..., None, :]).sum(-1) - self.offset[..., None]


def _as_row(*parts: np.ndarray) -> Float[np.ndarray, "*b 1 25"]:
    """Put the numbers of a collider after each other; parts without batch dimensions are the same for everyone."""
    shape = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return np.concatenate([np.broadcast_to(part, (*shape, part.shape[-1])) for part in parts], -1)[..., None, :]


_VECTORS = ("normal", "angular_velocity", "velocity", "pivot")
"""Fields of a plane that are vectors."""
_GROUND = Plane(np.array([0.0, 0.0, 1.0]), np.zeros(()), np.zeros(3), np.zeros(3), np.zeros(3))


@dataclass(frozen=True, eq=False)
class Shape:
    """A box, a ball or a mesh that gives way to nobody, still or moving."""

    kind: int
    """shapes.BOX, BALL or MESH."""
    sizes: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Half the edges of a box; the radius of a ball [m]."""
    centre: Float[np.ndarray, "*b 3"] = field(default_factory=lambda: np.zeros(3))
    """Origin of the shape's own axes, as it will be at the step's end [m]."""
    rotation: Float[np.ndarray, "*#b 3 3"] = field(default_factory=lambda: np.eye(3))
    """Rotation from the shape's own axes to the world's."""
    velocity: Float[np.ndarray, "*#b 3"] = field(default_factory=lambda: np.zeros(3))
    """Velocity of the centre [m/s]."""
    angular_velocity: Float[np.ndarray, "*#b 3"] = field(default_factory=lambda: np.zeros(3))
    """Angular velocity [rad/s]."""
    friction: float = math.nan
    """Friction coefficient of soles on it; NaN is the simulator's own."""
    seen: bool = True
    """True if people see it, and step over it or stop."""
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
        return self.sizes[0] if self.kind == BALL else math.hypot(*self.sizes)

    @functools.cached_property
    def rows(self) -> Float[np.ndarray, "*b 1 25"]:
        """Numbers that kernels take."""
        kind, flags = np.array([self.kind, *self.sizes]), np.array([self.friction, self.bound, self.seen])
        turn = self.rotation.reshape(*self.rotation.shape[:-2], 9)
        return _as_row(kind, self.centre, turn, self.velocity, self.angular_velocity, flags)


@dataclass(frozen=True, eq=False)
class Rows:
    """Colliders as kernels take them, such as ones that only some people can touch."""

    rows: Float[np.ndarray, "*b k 25"]
    meshes: tuple[Mesh, ...] = ()


Collider = Plane | Shape | Rows
_NOWHERE = Shape(BOX, (1e-3, 1e-3, 1e-3), np.array([0.0, 0.0, -FAR]), np.eye(3), seen=False).rows
"""A row that nobody can touch."""


def friction_patch(centre: Float[np.ndarray, "2"], half: Float[np.ndarray, "2"], turn: float, friction: float) -> Rows:
    """Return a rectangle of the ground with a friction of its own: ice, a wet floor, a rubber mat.

    `centre` [m] is seen from above, `half` are half its sizes along its own x and y [m], which are turned [rad].
    """
    out = np.array(_NOWHERE)
    out[0, 0], out[0, FRICTION], out[0, SEEN] = PATCH, friction, 1.0
    out[0, TURN : TURN + 6] = [*centre, *half, math.cos(turn), math.sin(turn)]
    return Rows(out)


@functools.lru_cache(maxsize=8)
def colliders_by_world(parts: tuple[tuple[int, Collider], ...], batch: tuple[int, int]) -> tuple[Rows, ...]:
    """Return colliders that only the people of their world can touch; `batch` is worlds and people.

    Everyone has as many rows as the world with the most colliders needs: the others' are nowhere.
    """
    if not parts:
        return ()
    meshes = tuple(dict.fromkeys(mesh for _, collider in parts for mesh in collider.meshes))
    places, worlds = list(range(len(meshes))), dict[int, list[np.ndarray]]()
    for world, collider in parts:
        worlds.setdefault(world, []).append(_rooted(collider, meshes, places))
    stacked = {world: _stacked(rows, batch[1:]) for world, rows in worlds.items()}
    most = max(rows.shape[-2] for rows in stacked.values())
    everyone = np.tile(_NOWHERE, (*batch, most, 1))
    for world, rows in stacked.items():
        everyone[world, :, : rows.shape[-2]] = rows
    return (Rows(everyone, meshes),)


@functools.lru_cache(maxsize=8)
def solids(colliders: tuple[Collider, ...], batch: tuple[int, ...]) -> Solids:
    """Stack colliders as kernels take them; colliders with batch dimensions are broadcast to `batch`."""
    if strange := [type(c).__name__ for c in colliders if not isinstance(c, Collider)]:
        raise ValueError(f"people can touch planes and shapes, not a {strange[0]}: build it of Plane and Shape")
    meshes = tuple(dict.fromkeys(mesh for c in colliders for mesh in c.meshes))
    mesh, roots = joined(meshes)
    rows = [_NOWHERE[:0], *(_rooted(c, meshes, roots) for c in colliders)]
    return Solids(flat(_stacked(rows, batch), 2), mesh)


def _stacked(rows: Sequence[np.ndarray], batch: tuple[int, ...]) -> np.ndarray:
    """Put rows after each other; if some have batch dimensions, all get them."""
    if any(r.ndim > 2 for r in rows):
        rows = [np.broadcast_to(r, (*batch, *r.shape[-2:])) for r in rows]
    return np.concatenate(rows, -2)


def _rooted(collider: Collider, meshes: tuple[Mesh, ...], roots: list[int]) -> np.ndarray:
    """Return a collider's rows, those of meshes with their roots instead of their places among the collider's own."""
    rows = collider.rows
    if collider.meshes:
        rows, places = np.array(rows), np.array([roots[meshes.index(mesh)] for mesh in collider.meshes])
        of_meshes = rows[..., 0] == MESH
        rows[of_meshes, SIZES] = places[rows[of_meshes, SIZES].astype(np.int64)]
    return rows


class Surface(NamedTuple):
    """The nearest surface as seen from a point; in Python, from points (*b n)."""

    distance: Any
    """Distance from the point to the surface, negative inside [m]."""
    normal: Any
    """Unit vector out of the collider."""
    velocity: Any
    """Velocity of the surface at its nearest point [m/s]."""
    friction: Any
    """Friction of soles on it; NaN is the simulator's own."""


def nearest_surface(colliders: Sequence[Collider], points: Float[np.ndarray, "*b n 3"]) -> Surface:
    """Return the nearest of all surfaces for each point; without colliders it is infinitely far away."""
    out = Surface(*(np.empty(shape) for shape in (points.shape[:-1], points.shape, points.shape, points.shape[:-1])))
    plain = Surface(flat(out.distance, 1), flat(out.normal, 2), flat(out.velocity, 2), flat(out.friction, 1))
    _surfaces(flat(points, 2), solids(tuple(colliders), points.shape[:-2]), plain)
    return out


@kernel
def _surfaces(points: Array, solids: Solids, out: Surface) -> None:
    for i in range(len(points)):
        here = of_person(solids, i)
        for j in range(points.shape[1]):
            surface = nearest_within(math.inf, row(points[i], j), here)
            out.distance[i, j], out.friction[i, j] = surface.distance, surface.friction
            write(out.normal[i], j, surface.normal)
            write(out.velocity[i], j, surface.velocity)


@inlined_kernel
def of_person(solids: Solids, i: int) -> Solids:
    """Return a person's own rows, or those that are the same for everyone."""
    return Solids(solids.shapes[i if len(solids.shapes) > 1 else 0], solids.mesh)


@inlined_kernel
def nearest_within(limit: float, p: Vector, here: Solids) -> Surface:
    """Return the nearest surface, the first of equals; its distance is the limit if nothing is nearer."""
    best = Surface(limit, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), math.nan)
    for k in range(len(here.shapes)):
        shape = here.shapes[k]
        if is_beyond(p, max(best.distance, 0.0), shape):
            continue
        distance, normal = shape_distance(p, shape, here.mesh, best.distance)
        if distance < best.distance:
            velocity = velocity_at(p, here.shapes, k)
            best = Surface(distance, normal, velocity, friction_at(p, shape, here.shapes))
    return best


@inlined_kernel
def friction_at(p: Vector, shape: Array, shapes: Array) -> float:
    """Return the friction of a shape at a place: on the ground, that of the last of the patches there."""
    friction = shape[FRICTION]
    for k in range(len(shapes) if shape[0] == PLANE else 0):
        if shapes[k, 0] == PATCH:
            (x, y, half_x), (half_y, cosine, sine) = row(shapes, k, TURN), row(shapes, k, TURN + 3)
            dx, dy = p[0] - x, p[1] - y
            if abs(cosine * dx + sine * dy) <= half_x and abs(cosine * dy - sine * dx) <= half_y:
                friction = shapes[k, FRICTION]
    return friction


@inlined_kernel
def beyond_planes(limit: float, p: Vector, here: Solids) -> bool:
    """Tell whether there are only planes, and none within a limit: `nearest_within` finds nothing then.

    That is so for most joints. To hand a scene over takes ten times as long, so callers ask this first.
    """
    for k in range(len(here.shapes)):
        if here.shapes[k, 0] < PLANE or dot(p, row(here.shapes, k, SIZES)) - here.shapes[k, TURN] < limit:
            return False
    return True


@inlined_kernel
def is_beyond(p: Vector, reach: float, shape: Array) -> bool:
    """Tell whether a point is farther than a reach from all of a shape."""
    x, y, z = p[0] - shape[4], p[1] - shape[5], p[2] - shape[6]
    return x**2 + y**2 + z**2 > (reach + shape[BOUND]) ** 2


@inlined_kernel
def nearest_on_the_way(limit: float, before: Vector, p: Vector, here: Solids, h: float) -> Surface:
    """Return the nearest surface within a limit, or that of a shape into which the way from `before` led.

    So nothing gets through a thin wall in one step. The tangent plane where the way entered stands for the surface
    then.
    """
    best, soonest = nearest_within(limit, p, here), math.inf
    for k in range(len(here.shapes)):
        shape = here.shapes[k]
        if shape[0] >= PLANE:
            continue
        # The way relative to the shape, which moves too.
        start = plus(before, velocity_at(before, here.shapes, k), h)
        if is_beyond(p, size(minus(p, start)), shape):
            continue
        way = minus(p, start)
        share, normal = shape_entry(start, way, shape, here.mesh)
        inside = (1 - share) * dot(way, normal)
        if share < soonest and inside < best.distance:
            velocity = velocity_at(p, here.shapes, k)
            soonest, best = share, Surface(inside, normal, velocity, shape[FRICTION])
    return best


@kernel
def ray(p: Vector, d: Vector, here: Solids, seen: bool) -> Way:
    """Return where the way from a point along d enters something, as a share of d or infinity, and the normal there.

    `seen` leaves out what people do not see or know. Shapes that the point is inside of do not count, nor do balls.
    """
    best, normal = math.inf, (0.0, 0.0, 1.0)
    for k in range(len(here.shapes)):
        shape = here.shapes[k]
        if seen and shape[SEEN] < 1.0:
            continue
        # The point of the way that is nearest to the centre.
        away = minus(part(shape, CENTRE), p)
        if is_beyond(plus(p, d, min(max(dot(away, d) / dot(d, d), 0.0), 1.0)), 0.0, shape):
            continue
        share, out = shape_entry(p, d, shape, here.mesh)
        if share < best:
            best, normal = share, out
    return best, normal


@kernel
def contact_targets(
    x: Array, before: Array, radii: Array, solids: Solids, friction: float, h: float, targets: Array, active: Array
) -> None:
    """Project for the contact energy: spheres inside something come out to its surface, and stick as friction allows.

    The tangent plane at x stands for the surface: exact for planes, and for spheres at the step of one frame. The
    energy's normal force is in proportion to the depth, so its tangential one is bounded by friction times the depth.
    """
    sliding, ways = np.empty(NUM_JOINTS, dtype=np.bool_), np.empty((2, NUM_JOINTS))
    for i in range(len(x)):
        active[i], ways[:] = False, 0.0
        copy(x[i], targets[i])
        marks = Marks(active[i], sliding, ways[0], ways[1])
        push_out(targets[i], before[i], radii, of_person(solids, i), friction, 0.0, h, marks)


@inlined_kernel
def own_friction(surface: Surface, friction: float) -> float:
    """Return the friction of a surface, or one for surfaces that set none; if that is infinite, for all."""
    return friction if math.isnan(surface.friction) or math.isinf(friction) else surface.friction


@inlined_kernel
def slide_of(p: Vector, before: Vector, h: float, surface: Surface) -> tuple[Vector, float]:
    """Return a sphere's way along a surface within the step, relative to the surface, and its length."""
    way = plus(minus(p, before), surface.velocity, -h)
    way = plus(way, surface.normal, -dot(way, surface.normal))
    return way, size(way)


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
        p, past, limit = row(x, j), row(before, j), radii[j] + 2 * GRIP_GAP
        sliding[j] = False
        if beyond_planes(limit, p, here):
            continue
        surface = nearest_on_the_way(limit, past, p, here, h)
        gap = surface.distance - radii[j]
        if gap < 0:
            touching[j] = True
        if gap >= GRIP_GAP:
            continue
        depth = max(-gap, 0.0)
        pressed[j] += depth
        p = plus(p, surface.normal, depth)
        slide, length = slide_of(p, past, h, surface)
        grip, undone = pressed[j] + bearing, 0.0
        if grip > 0.0:  # friction may be infinite
            undone = min(length, max(own_friction(surface, friction) * grip - rubbed[j], 0.0))
        rubbed[j] += undone
        sliding[j] = undone < length
        write(x, j, plus(p, slide, -undone / max(length, 1e-12)))


@kernel
def deepest(x: Array, radii: Array, here: Solids) -> float:
    """Return how far a person's deepest sphere is inside something; 0 if none is."""
    depth = 0.0
    for j in range(NUM_JOINTS):
        if not beyond_planes(radii[j], row(x, j), here):
            depth = max(depth, radii[j] - nearest_within(radii[j], row(x, j), here).distance)
    return depth
