"""Planes, boxes, balls and triangle meshes: exact signed distances, and where rays enter.

Kernels take them as rows: kind, three sizes, centre, rotation (from the shape's own axes to the world's, row by row),
velocity, angular velocity, friction, bounding radius, and whether people see it. Sizes are half the edges of a box,
the radius of a ball, and the first node of a mesh. The triangles of all meshes are in one bounding hierarchy. A plane
has its normal instead of sizes, a point that it turns about as its centre, and its offset along the normal instead of a
rotation. A patch of the ground with a friction of its own is nowhere, and has its centre, half sizes and the cosine and
sine of its turn instead of a rotation.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.physics.vectors import Vector, cross, dot, minus, over, part, plus, row, size, times, velocity_of

Array = Any
"""numba knows the types."""
BOX, MESH, BALL, PLANE, PATCH = range(5)
SIZES, CENTRE, TURN, VELOCITY, SPIN, FRICTION, BOUND, SEEN = 1, 4, 7, 16, 19, 22, 23, 24
"""Columns of a row."""
LEAF = 4
"""Triangles of a leaf of the hierarchy."""
FARTHEST = 1e5
"""Largest distance of a vertex from the origin [m]: beyond, the corners of a hand are lost in rounding."""
MAX_TRIANGLES = 500_000


class Triangles(NamedTuple):
    """Triangles in a bounding hierarchy; all have a leading dimension of 1, as everything that all people share."""

    corners: np.ndarray
    """(1 t 3 3) [m]"""
    normals: np.ndarray
    """Normals of the face, the three edges and the three corners, outward (1 t 7 3); zero at the border of an open mesh."""
    bounds: np.ndarray
    """Lowest and highest corners of the nodes (1 n 6) [m]."""
    links: np.ndarray
    """First child (the other is the next one) and 0, or first triangle and their number (1 n 2)."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """A surface of triangles that are counterclockwise seen from outside. It is solid if it is closed."""

    vertices: Float[np.ndarray, "v 3"]
    """[m]"""
    faces: Int[np.ndarray, "f 3"]
    triangles: Triangles = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.faces) <= MAX_TRIANGLES:
            raise ValueError(f"a mesh has 1 to {MAX_TRIANGLES} triangles, not {len(self.faces)}")
        if (
            self.faces.min() < 0
            or self.faces.max() >= len(self.vertices)
            or not (np.abs(self.vertices) < FARTHEST).all()
        ):
            raise ValueError(f"a mesh needs vertices within {FARTHEST / 1000:g} km, and faces that are indices of them")
        object.__setattr__(self, "triangles", _hierarchy(self.vertices.astype(float), self.faces.astype(np.int64)))


def _hierarchy(vertices: np.ndarray, faces: np.ndarray) -> Triangles:
    """Sort triangles into a tree of boxes, split in the middle of the longest side."""
    corners = vertices[faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=-1)
    if not (area > 1e-12).any():
        raise ValueError("a mesh needs triangles that have an area")
    faces, corners = faces[area > 1e-12], corners[area > 1e-12]
    normals = _pseudo_normals(vertices, faces, corners)
    low, high, middle = corners.min(1), corners.max(1), corners.mean(1)
    order, bounds, links, waiting = np.arange(len(faces)), [np.zeros(6)], [(0, 0)], [(0, 0, len(faces))]
    while waiting:
        node, first, end = waiting.pop()
        inside = order[first:end]
        bounds[node] = np.concatenate((low[inside].min(0), high[inside].max(0)))
        if end - first <= LEAF:
            links[node] = (first, end - first)
            continue
        axis = int(np.argmax(np.ptp(middle[inside], axis=0)))
        order[first:end] = inside[np.argsort(middle[inside, axis], kind="stable")]
        links[node] = (len(bounds), 0)
        half = (first + end) // 2
        waiting += [(len(bounds), first, half), (len(bounds) + 1, half, end)]
        bounds += [np.zeros(6), np.zeros(6)]
        links += [(0, 0), (0, 0)]
    return Triangles(corners[order][None], normals[order][None], np.array(bounds)[None], np.array(links)[None])


def _pseudo_normals(vertices: np.ndarray, faces: np.ndarray, corners: np.ndarray) -> Float[np.ndarray, "t 7 3"]:
    """Return normals that tell inside from outside: sums of faces, by angle at corners (Baerentzen and Aanaes 2005)."""
    _, same = np.unique(np.round(vertices, 9), axis=0, return_inverse=True)
    ids = same.reshape(-1)[faces]
    face = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    face /= np.linalg.norm(face, axis=-1, keepdims=True)
    at_corner = np.zeros((len(vertices), 3))
    for k in range(3):
        a, b = corners[:, (k + 1) % 3] - corners[:, k], corners[:, (k + 2) % 3] - corners[:, k]
        cosine = (a * b).sum(-1) / np.maximum(np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-30)
        np.add.at(at_corner, ids[:, k], np.arccos(np.clip(cosine, -1, 1))[:, None] * face)
    ends = np.sort(np.stack((ids, np.roll(ids, -1, 1)), -1), -1).reshape(-1, 2)  # edge k joins the corners k and k + 1
    edges, edge, count = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    at_edge, edge = np.zeros((len(edges), 3)), edge.reshape(-1)
    np.add.at(at_edge, edge, np.repeat(face, 3, axis=0))
    at_edge[count == 1] = 0.0
    at_corner[edges[count == 1]] = 0.0
    return np.concatenate((face[:, None], at_edge[edge].reshape(-1, 3, 3), at_corner[ids]), 1)


@functools.lru_cache(maxsize=8)
def joined(meshes: tuple[Mesh, ...]) -> tuple[Triangles, list[int]]:
    """Return one hierarchy of several meshes, and the first node of each."""
    if not meshes:
        return NO_TRIANGLES, []
    trees = [mesh.triangles for mesh in meshes]
    nodes = np.cumsum([0, *(tree.links.shape[1] for tree in trees)])
    first = np.cumsum([0, *(tree.corners.shape[1] for tree in trees)])
    for i, tree in enumerate(trees):
        starts = np.where(tree.links[..., 1] > 0, first[i], nodes[i])
        trees[i] = tree._replace(links=tree.links + np.stack((starts, 0 * starts), -1))
    return Triangles(*(np.concatenate(arrays, 1) for arrays in zip(*trees, strict=True))), nodes[:-1].tolist()


NO_TRIANGLES = Triangles(
    np.empty((1, 0, 3, 3)), np.empty((1, 0, 7, 3)), np.empty((1, 0, 6)), np.empty((1, 0, 2), dtype=np.int64)
)


Way = tuple[float, Vector]
"""A distance, or a share of a way, and the unit normal there."""
NEVER = (math.inf, (0.0, 0.0, 0.0))
"""Entry of a way that does not enter."""


@inlined_kernel
def to_local(p: Vector, shape: Array) -> Vector:
    """Return a point in a shape's own axes."""
    d = minus(p, part(shape, CENTRE))
    return (
        dot((shape[7], shape[10], shape[13]), d),
        dot((shape[8], shape[11], shape[14]), d),
        dot((shape[9], shape[12], shape[15]), d),
    )


@inlined_kernel
def turned(a: Vector, shape: Array) -> Vector:
    """Return a direction of a shape's own axes in the world."""
    return dot(part(shape, TURN), a), dot(part(shape, TURN + 3), a), dot(part(shape, TURN + 6), a)


@inlined_kernel
def velocity_at(p: Vector, rows: Array, i: int) -> Vector:
    """Return the velocity of a shape at a point."""
    return velocity_of(row(rows, i, VELOCITY), row(rows, i, SPIN), minus(p, row(rows, i, CENTRE)))


@kernel
def shape_distance(p: Vector, shape: Array, mesh: Triangles, within: float) -> Way:
    """Return the signed distance of a point from a shape, infinite beyond `within`, and the outward normal there."""
    sizes = part(shape, SIZES)
    if shape[0] == PLANE:
        return dot(p, sizes) - shape[TURN], sizes
    p = to_local(p, shape)
    if shape[0] == BOX:
        distance, normal = _box_distance(p, sizes)
    elif shape[0] == BALL:
        distance, normal = size(p) - sizes[0], over(p, size(p)) if size(p) > 1e-9 else (0.0, 0.0, 1.0)
    else:
        distance, normal = _mesh_distance(p, int(sizes[0]), mesh, within)
    return distance, turned(normal, shape)


@kernel
def _box_distance(p: Vector, half: Vector) -> Way:
    """Return the signed distance from a box of some half sizes to a point, and the outward normal there."""
    qx, qy, qz = abs(p[0]) - half[0], abs(p[1]) - half[1], abs(p[2]) - half[2]
    sx, sy, sz = _sign(p[0]), _sign(p[1]), _sign(p[2])
    if qx <= 0 and qy <= 0 and qz <= 0:
        if qz >= qx and qz >= qy:
            return qz, (0.0, 0.0, sz)
        return (qx, (sx, 0.0, 0.0)) if qx >= qy else (qy, (0.0, sy, 0.0))
    qx, qy, qz = max(qx, 0.0), max(qy, 0.0), max(qz, 0.0)
    length = size((qx, qy, qz))
    return length, over((sx * qx, sy * qy, sz * qz), length)


@inlined_kernel
def _sign(x: float) -> float:
    return 1.0 if x >= 0 else -1.0


@inlined_kernel
def _to_bounds(p: Vector, bounds: Array) -> float:
    """Return the squared distance to a node's box."""
    dx = max(bounds[0] - p[0], 0.0, p[0] - bounds[3])
    dy = max(bounds[1] - p[1], 0.0, p[1] - bounds[4])
    dz = max(bounds[2] - p[2], 0.0, p[2] - bounds[5])
    return dx * dx + dy * dy + dz * dz


@kernel
def _mesh_distance(p: Vector, root: int, mesh: Triangles, within: float) -> Way:
    bounds, links = mesh.bounds[0], mesh.links[0]
    best, at, feature, nearest = math.inf, -1, 0, p
    if _to_bounds(p, bounds[root]) > 0.0:
        # Not inside of it, for sure: what is farther is not looked at.
        best = max(within, 0.0) ** 2
    stack, top = np.empty(64, dtype=np.int64), 1
    stack[0] = root
    while top > 0:
        top -= 1
        node = stack[top]
        if _to_bounds(p, bounds[node]) >= best:
            continue
        first, count = links[node, 0], links[node, 1]
        if count == 0:
            near = 0 if _to_bounds(p, bounds[first]) <= _to_bounds(p, bounds[first + 1]) else 1
            stack[top], stack[top + 1] = first + 1 - near, first + near
            top += 2
            continue
        for t in range(first, first + count):
            q, kind = _on_triangle(p, mesh.corners[0, t])
            square = (p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2 + (p[2] - q[2]) ** 2
            if square < best:
                best, at, feature, nearest = square, t, kind, q
    if at < 0:
        return math.inf, (0.0, 0.0, 1.0)
    length, away = math.sqrt(best), minus(p, nearest)
    if length < 1e-9:
        return 0.0, row(mesh.normals[0, at], 0)
    sign = -1.0 if dot(away, row(mesh.normals[0, at], feature)) < 0 else 1.0
    return sign * length, over(times(sign, away), length)


@kernel
def _on_triangle(point: Vector, corners: Array) -> tuple[Vector, int]:
    """Return a triangle's nearest point, and if it is on the face (0), edges (1-3) or corners (4-6); Ericson 2005."""
    a = row(corners, 0)
    b, c, p = minus(row(corners, 1), a), minus(row(corners, 2), a), minus(point, a)
    d1, d2 = dot(b, p), dot(c, p)
    if d1 <= 0 and d2 <= 0:
        return a, 4
    q = minus(p, b)
    d3, d4 = dot(b, q), dot(c, q)
    if d3 >= 0 and d4 <= d3:
        return plus(a, b), 5
    if d1 * d4 - d3 * d2 <= 0 and d1 >= 0 and d3 <= 0:
        return plus(a, b, d1 / (d1 - d3)), 1
    q = minus(p, c)
    d5, d6 = dot(b, q), dot(c, q)
    if d6 >= 0 and d5 <= d6:
        return plus(a, c), 6
    if d5 * d2 - d1 * d6 <= 0 and d2 >= 0 and d6 <= 0:
        return plus(a, c, d2 / (d2 - d6)), 3
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    if va <= 0 and d4 >= d3 and d5 >= d6:
        return plus(plus(a, b), minus(c, b), (d4 - d3) / ((d4 - d3) + (d5 - d6))), 2
    return plus(plus(a, b, vb / (va + vb + vc)), c, vc / (va + vb + vc)), 0


@kernel
def shape_entry(p: Vector, d: Vector, shape: Array, mesh: Triangles) -> Way:
    """Return where the way from a point along d enters a shape, as a share of d, and the normal there.

    Infinite if it does not enter within d; ways that begin inside do not enter. Nothing enters balls: nobody takes them
    for ground or walls, and they are thick enough not to be passed within a step.
    """
    sizes = part(shape, SIZES)
    if shape[0] == PLANE:
        height, sinking = dot(p, sizes) - shape[TURN], -dot(d, sizes)
        return (height / sinking, sizes) if sinking > 0 and 0 <= height <= sinking else NEVER
    start = to_local(p, shape)
    d = minus(to_local(plus(p, d), shape), start)
    if shape[0] == BOX:
        share, normal = _into_box(start, d, sizes)
    else:
        share, normal = _into_mesh(start, d, int(sizes[0]), mesh) if shape[0] == MESH else NEVER
    return share, turned(normal, shape)


@inlined_kernel
def _slab(x: float, dx: float, half: float) -> tuple[float, float]:
    """Return when a way enters and leaves |x| <= half."""
    if abs(dx) < 1e-15:
        return (-math.inf, math.inf) if abs(x) <= half else (math.inf, -math.inf)
    a, b = (-half - x) / dx, (half - x) / dx
    return min(a, b), max(a, b)


@kernel
def _into_box(p: Vector, d: Vector, half: Vector) -> Way:
    (x0, x1), (y0, y1), (z0, z1) = _slab(p[0], d[0], half[0]), _slab(p[1], d[1], half[1]), _slab(p[2], d[2], half[2])
    enters, leaves = max(x0, y0, z0), min(x1, y1, z1)
    if not (0 <= enters <= 1 and enters <= leaves):
        return NEVER
    if enters == x0:
        return enters, (-1.0 if d[0] > 0 else 1.0, 0.0, 0.0)
    if enters == y0:
        return enters, (0.0, -1.0 if d[1] > 0 else 1.0, 0.0)
    return enters, (0.0, 0.0, -1.0 if d[2] > 0 else 1.0)


@kernel
def _into_mesh(p: Vector, d: Vector, root: int, mesh: Triangles) -> Way:
    links, best, normal = mesh.links[0], math.inf, (0.0, 0.0, 0.0)
    stack, top = np.empty(64, dtype=np.int64), 1
    stack[0] = root
    while top > 0:
        top -= 1
        node = stack[top]
        box = mesh.bounds[0, node]
        enters, leaves = 0.0, min(1.0, best)
        for k in range(3):
            middle, half = 0.5 * (box[k] + box[k + 3]), 0.5 * (box[k + 3] - box[k]) + 1e-9
            first, last = _slab(p[k] - middle, d[k], half)
            enters, leaves = max(enters, first), min(leaves, last)
        if enters > leaves:
            continue
        first, count = links[node, 0], links[node, 1]
        if count == 0:
            stack[top], stack[top + 1] = first, first + 1
            top += 2
            continue
        for t in range(first, first + count):
            out = row(mesh.normals[0, t], 0)
            share = _into_triangle(p, d, mesh.corners[0, t]) if dot(d, out) < 0 else math.inf
            if share < best:
                best, normal = share, out
    return best, normal


@kernel
def _into_triangle(p: Vector, d: Vector, corners: Array) -> float:
    """Return where a way goes through a triangle, or infinity; Moeller and Trumbore 1997."""
    a = row(corners, 0)
    b, c, t = minus(row(corners, 1), a), minus(row(corners, 2), a), minus(p, a)
    across = cross(d, c)
    determinant = dot(b, across)
    if abs(determinant) < 1e-18:
        return math.inf
    q = cross(t, b)
    u, v, share = dot(t, across) / determinant, dot(d, q) / determinant, dot(c, q) / determinant
    # A hair wider than the triangle, so that nothing slips through between two.
    return share if u >= -1e-9 and v >= -1e-9 and u + v <= 1 + 1e-9 and 0 <= share <= 1 else math.inf
