"""Boxes, cylinders and triangle meshes: exact signed distances, and where rays enter.

Kernels take them as rows: kind, three sizes, centre, rotation (from the shape's own axes to the world's, row by row),
velocity, angular velocity, friction, bounding radius, and whether people see it. Sizes are half the edges of a box,
radius and half the height (along its own z) of a cylinder, and the first node of a mesh. The triangles of all meshes
are in one bounding hierarchy.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
BOX, CYLINDER, MESH = 0, 1, 2
WIDTH = 25
"""Numbers of a row."""
SIZES, CENTRE, TURN, VELOCITY, SPIN, FRICTION, BOUND, SEEN = 1, 4, 7, 16, 19, 22, 23, 24
"""Columns of a row."""
LEAF = 4
"""Triangles of a leaf of the hierarchy."""
FARTHEST = 1e5
"""Of a vertex from the origin [m]: beyond, single corners of a hand are lost in rounding."""
MAX_TRIANGLES = 500_000


class Triangles(NamedTuple):
    """Triangles in a bounding hierarchy; all have a leading dimension of 1, as everything that all people share."""

    corners: np.ndarray
    """(1 t 3 3) [m]"""
    normals: np.ndarray
    """Of the face, the three edges and the three corners, outward (1 t 7 3); zero at the border of an open mesh."""
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
    """Return normals that tell inside from outside: sums over faces, by angle at corners (Baerentzen and Aanaes 2005)."""
    _, same = np.unique(np.round(vertices, 9), axis=0, return_inverse=True)
    ids = same.reshape(-1)[faces]
    face = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    face /= np.linalg.norm(face, axis=-1, keepdims=True)
    found = np.zeros((len(faces), 7, 3))
    found[:, 0] = face
    at_corner, at_edge, borders = (
        np.zeros((len(vertices), 3)),
        dict[tuple[int, int], np.ndarray](),
        dict[tuple[int, int], int](),
    )
    for k in range(3):
        a, b = corners[:, (k + 1) % 3] - corners[:, k], corners[:, (k + 2) % 3] - corners[:, k]
        cosine = (a * b).sum(-1) / np.maximum(np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-30)
        np.add.at(at_corner, ids[:, k], np.arccos(np.clip(cosine, -1, 1))[:, None] * face)
    edges = np.sort(np.stack((ids, np.roll(ids, -1, 1)), -1), -1)  # edge k joins the corners k and k + 1
    for t in range(len(faces)):
        for k in range(3):
            key = (int(edges[t, k, 0]), int(edges[t, k, 1]))
            at_edge[key] = at_edge.get(key, 0.0) + face[t]
            borders[key] = borders.get(key, 0) + 1
    open_corners = {corner for key, count in borders.items() if count == 1 for corner in key}
    for t in range(len(faces)):
        for k in range(3):
            key = (int(edges[t, k, 0]), int(edges[t, k, 1]))
            found[t, 1 + k] = at_edge[key] if borders[key] > 1 else 0.0
            found[t, 4 + k] = 0.0 if int(ids[t, k]) in open_corners else at_corner[ids[t, k]]
    return found


def joined(meshes: list[Triangles]) -> tuple[Triangles, list[int]]:
    """Return one hierarchy of several meshes, and the first node of each."""
    if not meshes:
        return NO_TRIANGLES, []
    nodes = np.cumsum([0, *(m.links.shape[1] for m in meshes)])
    first = np.cumsum([0, *(m.corners.shape[1] for m in meshes)])
    links = [
        np.where(m.links[..., 1:] > 0, m.links + np.array([first[i], 0]), m.links + np.array([nodes[i], 0]))
        for i, m in enumerate(meshes)
    ]
    parts = (np.concatenate([getattr(m, name) for m in meshes], 1) for name in ("corners", "normals", "bounds"))
    return Triangles(*parts, np.concatenate(links, 1)), [int(n) for n in nodes[:-1]]  # pyright: ignore[reportCallIssue]


NO_TRIANGLES = Triangles(
    np.empty((1, 0, 3, 3)), np.empty((1, 0, 7, 3)), np.empty((1, 0, 6)), np.empty((1, 0, 2), dtype=np.int64)
)


@kernel
def to_local(x: float, y: float, z: float, row: Array) -> tuple[float, float, float]:
    """Return a point in a shape's own axes."""
    dx, dy, dz = x - row[4], y - row[5], z - row[6]
    return (
        row[7] * dx + row[10] * dy + row[13] * dz,
        row[8] * dx + row[11] * dy + row[14] * dz,
        row[9] * dx + row[12] * dy + row[15] * dz,
    )


@kernel
def turned(x: float, y: float, z: float, row: Array) -> tuple[float, float, float]:
    """Return a direction of a shape's own axes in the world."""
    return (
        row[7] * x + row[8] * y + row[9] * z,
        row[10] * x + row[11] * y + row[12] * z,
        row[13] * x + row[14] * y + row[15] * z,
    )


@kernel
def velocity_at(x: float, y: float, z: float, row: Array) -> tuple[float, float, float]:
    """Return the velocity of a shape at a point."""
    dx, dy, dz = x - row[4], y - row[5], z - row[6]
    return (
        row[16] + row[20] * dz - row[21] * dy,
        row[17] + row[21] * dx - row[19] * dz,
        row[18] + row[19] * dy - row[20] * dx,
    )


@kernel
def shape_distance(
    x: float, y: float, z: float, row: Array, mesh: Triangles, within: float
) -> tuple[float, float, float, float]:
    """Return the signed distance of a point in a shape's own axes, infinite beyond `within`, and the outward normal."""
    if row[0] == BOX:
        return box_distance(x, y, z, row[1], row[2], row[3])
    if row[0] == CYLINDER:
        return _to_cylinder(x, y, z, row[1], row[2])
    return _to_mesh(x, y, z, int(row[1]), mesh, within)


@kernel
def box_distance(x: float, y: float, z: float, a: float, b: float, c: float) -> tuple[float, float, float, float]:
    """Return the signed distance from a box of half sizes a, b, c to a point, and the outward normal there."""
    qx, qy, qz = abs(x) - a, abs(y) - b, abs(z) - c
    sx, sy, sz = 1.0 if x >= 0 else -1.0, 1.0 if y >= 0 else -1.0, 1.0 if z >= 0 else -1.0
    if qx <= 0 and qy <= 0 and qz <= 0:
        if qz >= qx and qz >= qy:
            return qz, 0.0, 0.0, sz
        return (qx, sx, 0.0, 0.0) if qx >= qy else (qy, 0.0, sy, 0.0)
    qx, qy, qz = max(qx, 0.0), max(qy, 0.0), max(qz, 0.0)
    length = math.sqrt(qx * qx + qy * qy + qz * qz)
    return length, sx * qx / length, sy * qy / length, sz * qz / length


@kernel
def _to_cylinder(x: float, y: float, z: float, radius: float, half: float) -> tuple[float, float, float, float]:
    across = math.sqrt(x * x + y * y)
    ux, uy = (x / across, y / across) if across > 1e-12 else (1.0, 0.0)
    qr, qz, sz = across - radius, abs(z) - half, 1.0 if z >= 0 else -1.0
    if qr <= 0 and qz <= 0:
        return (qz, 0.0, 0.0, sz) if qz >= qr else (qr, ux, uy, 0.0)
    qr, qz = max(qr, 0.0), max(qz, 0.0)
    length = math.sqrt(qr * qr + qz * qz)
    return length, ux * qr / length, uy * qr / length, sz * qz / length


@kernel
def _to_bounds(x: float, y: float, z: float, bounds: Array) -> float:
    """Return the squared distance to a node's box."""
    dx = max(bounds[0] - x, 0.0, x - bounds[3])
    dy = max(bounds[1] - y, 0.0, y - bounds[4])
    dz = max(bounds[2] - z, 0.0, z - bounds[5])
    return dx * dx + dy * dy + dz * dz


@kernel
def _to_mesh(
    x: float, y: float, z: float, root: int, mesh: Triangles, within: float
) -> tuple[float, float, float, float]:
    bounds, links = mesh.bounds[0], mesh.links[0]
    best, at, feature, cx, cy, cz = math.inf, -1, 0, 0.0, 0.0, 0.0
    if (
        not bounds[root, 0] <= x <= bounds[root, 3]
        or not bounds[root, 1] <= y <= bounds[root, 4]
        or not bounds[root, 2] <= z <= bounds[root, 5]
    ):
        # Not inside of it, for sure: what is farther is not looked at.
        best = max(within, 0.0) ** 2
    stack, top = np.empty(64, dtype=np.int64), 1
    stack[0] = root
    while top > 0:
        top -= 1
        node = stack[top]
        if _to_bounds(x, y, z, bounds[node]) >= best:
            continue
        first, count = links[node, 0], links[node, 1]
        if count == 0:
            near = 0 if _to_bounds(x, y, z, bounds[first]) <= _to_bounds(x, y, z, bounds[first + 1]) else 1
            stack[top], stack[top + 1] = first + 1 - near, first + near
            top += 2
            continue
        for t in range(first, first + count):
            px, py, pz, kind = _on_triangle(x, y, z, mesh.corners[0, t])
            square = (x - px) ** 2 + (y - py) ** 2 + (z - pz) ** 2
            if square < best:
                best, at, feature, cx, cy, cz = square, t, kind, px, py, pz
    if at < 0:
        return math.inf, 0.0, 0.0, 1.0
    normal, length = mesh.normals[0, at, feature], math.sqrt(best)
    dx, dy, dz = x - cx, y - cy, z - cz
    face = mesh.normals[0, at, 0]
    if length < 1e-9:
        return 0.0, face[0], face[1], face[2]
    sign = -1.0 if dx * normal[0] + dy * normal[1] + dz * normal[2] < 0 else 1.0
    return sign * length, sign * dx / length, sign * dy / length, sign * dz / length


@kernel
def _on_triangle(x: float, y: float, z: float, corners: Array) -> tuple[float, float, float, int]:
    """Return a triangle's nearest point, and whether it is on the face (0), an edge (1-3) or a corner (4-6); Ericson 2005."""
    ax, ay, az = corners[0, 0], corners[0, 1], corners[0, 2]
    bx, by, bz = corners[1, 0] - ax, corners[1, 1] - ay, corners[1, 2] - az
    cx, cy, cz = corners[2, 0] - ax, corners[2, 1] - ay, corners[2, 2] - az
    px, py, pz = x - ax, y - ay, z - az
    d1, d2 = bx * px + by * py + bz * pz, cx * px + cy * py + cz * pz
    if d1 <= 0 and d2 <= 0:
        return ax, ay, az, 4
    qx, qy, qz = px - bx, py - by, pz - bz
    d3, d4 = bx * qx + by * qy + bz * qz, cx * qx + cy * qy + cz * qz
    if d3 >= 0 and d4 <= d3:
        return ax + bx, ay + by, az + bz, 5
    if d1 * d4 - d3 * d2 <= 0 and d1 >= 0 and d3 <= 0:
        s = d1 / (d1 - d3)
        return ax + s * bx, ay + s * by, az + s * bz, 1
    rx, ry, rz = px - cx, py - cy, pz - cz
    d5, d6 = bx * rx + by * ry + bz * rz, cx * rx + cy * ry + cz * rz
    if d6 >= 0 and d5 <= d6:
        return ax + cx, ay + cy, az + cz, 6
    if d5 * d2 - d1 * d6 <= 0 and d2 >= 0 and d6 <= 0:
        s = d2 / (d2 - d6)
        return ax + s * cx, ay + s * cy, az + s * cz, 3
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    if va <= 0 and d4 >= d3 and d5 >= d6:
        s = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        return ax + bx + s * (cx - bx), ay + by + s * (cy - by), az + bz + s * (cz - bz), 2
    s, t = vb / (va + vb + vc), vc / (va + vb + vc)
    return ax + s * bx + t * cx, ay + s * by + t * cy, az + s * bz + t * cz, 0


@kernel
def shape_entry(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, row: Array, mesh: Triangles
) -> tuple[float, float, float, float]:
    """Return where the way from a point along d enters a shape, in its own axes, as a share of d, and the normal.

    Infinite if it does not enter within d; ways that begin inside do not enter.
    """
    if row[0] == BOX:
        return _into_box(x, y, z, dx, dy, dz, row[1], row[2], row[3])
    if row[0] == CYLINDER:
        return _into_cylinder(x, y, z, dx, dy, dz, row[1], row[2])
    return _into_mesh(x, y, z, dx, dy, dz, int(row[1]), mesh)


@kernel
def _slab(x: float, dx: float, half: float) -> tuple[float, float]:
    """Return when a way enters and leaves |x| <= half."""
    if abs(dx) < 1e-15:
        return (-math.inf, math.inf) if abs(x) <= half else (math.inf, -math.inf)
    a, b = (-half - x) / dx, (half - x) / dx
    return min(a, b), max(a, b)


@kernel
def _into_box(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, a: float, b: float, c: float
) -> tuple[float, float, float, float]:
    (x0, x1), (y0, y1), (z0, z1) = _slab(x, dx, a), _slab(y, dy, b), _slab(z, dz, c)
    enters, leaves = max(x0, y0, z0), min(x1, y1, z1)
    if not (0 <= enters <= 1 and enters <= leaves):
        return math.inf, 0.0, 0.0, 0.0
    if enters == x0:
        return enters, (-1.0 if dx > 0 else 1.0), 0.0, 0.0
    if enters == y0:
        return enters, 0.0, (-1.0 if dy > 0 else 1.0), 0.0
    return enters, 0.0, 0.0, (-1.0 if dz > 0 else 1.0)


@kernel
def _into_cylinder(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, radius: float, half: float
) -> tuple[float, float, float, float]:
    z0, z1 = _slab(z, dz, half)
    a, b, c = dx * dx + dy * dy, x * dx + y * dy, x * x + y * y - radius * radius
    r0, r1 = (-math.inf, math.inf) if c <= 0 else (math.inf, -math.inf)
    if a > 1e-15:
        root = b * b - a * c
        r0, r1 = ((-b - math.sqrt(root)) / a, (-b + math.sqrt(root)) / a) if root >= 0 else (math.inf, -math.inf)
    enters, leaves = max(z0, r0), min(z1, r1)
    if not (0 <= enters <= 1 and enters <= leaves):
        return math.inf, 0.0, 0.0, 0.0
    if enters == z0:
        return enters, 0.0, 0.0, (-1.0 if dz > 0 else 1.0)
    return enters, (x + enters * dx) / radius, (y + enters * dy) / radius, 0.0


@kernel
def _into_mesh(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, root: int, mesh: Triangles
) -> tuple[float, float, float, float]:
    bounds, links = mesh.bounds[0], mesh.links[0]
    best, nx, ny, nz = math.inf, 0.0, 0.0, 0.0
    stack, top = np.empty(64, dtype=np.int64), 1
    stack[0] = root
    while top > 0:
        top -= 1
        node = stack[top]
        box = bounds[node]
        enters, leaves = 0.0, min(1.0, best)
        for k in range(3):
            at, way = (x, dx) if k == 0 else (y, dy) if k == 1 else (z, dz)
            middle, half = 0.5 * (box[k] + box[k + 3]), 0.5 * (box[k + 3] - box[k]) + 1e-9
            first, last = _slab(at - middle, way, half)
            enters, leaves = max(enters, first), min(leaves, last)
        if enters > leaves:
            continue
        first, count = links[node, 0], links[node, 1]
        if count == 0:
            stack[top], stack[top + 1] = first, first + 1
            top += 2
            continue
        for t in range(first, first + count):
            share = _into_triangle(x, y, z, dx, dy, dz, mesh.corners[0, t], mesh.normals[0, t, 0])
            if share < best:
                best, nx, ny, nz = share, mesh.normals[0, t, 0, 0], mesh.normals[0, t, 0, 1], mesh.normals[0, t, 0, 2]
    return best, nx, ny, nz


@kernel
def _into_triangle(
    x: float, y: float, z: float, dx: float, dy: float, dz: float, corners: Array, normal: Array
) -> float:
    """Return where a way goes through a triangle from its front to its back, or infinity; Moeller and Trumbore 1997."""
    if dx * normal[0] + dy * normal[1] + dz * normal[2] >= 0:
        return math.inf
    ax, ay, az = corners[0, 0], corners[0, 1], corners[0, 2]
    bx, by, bz = corners[1, 0] - ax, corners[1, 1] - ay, corners[1, 2] - az
    cx, cy, cz = corners[2, 0] - ax, corners[2, 1] - ay, corners[2, 2] - az
    px, py, pz = dy * cz - dz * cy, dz * cx - dx * cz, dx * cy - dy * cx
    determinant = bx * px + by * py + bz * pz
    if abs(determinant) < 1e-18:
        return math.inf
    tx, ty, tz = x - ax, y - ay, z - az
    u = (tx * px + ty * py + tz * pz) / determinant
    qx, qy, qz = ty * bz - tz * by, tz * bx - tx * bz, tx * by - ty * bx
    v = (dx * qx + dy * qy + dz * qz) / determinant
    share = (cx * qx + cy * qy + cz * qz) / determinant
    # A hair wider than the triangle, so that nothing slips through between two.
    return share if u >= -1e-9 and v >= -1e-9 and u + v <= 1 + 1e-9 and 0 <= share <= 1 else math.inf
