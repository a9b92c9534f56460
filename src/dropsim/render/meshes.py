"""Triangles of what is in a picture: round cones, and skinned people."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.mesh import Body
from dropsim.body.rotations import plane_basis
from dropsim.body.skeleton import Skeleton
from dropsim.render.snapshot import Figure, Parts


class Mesh(NamedTuple):
    """Triangles with what their corners look like."""

    surface: Float[np.ndarray, "n 10"]
    """Place in the world [m], normal, colour or place in the rest pose [m], and number of the outfit; -1 has a
    colour."""
    lift: Float[np.ndarray, "n"]
    """How much nearer than it is a corner counts in the depth buffer [m]."""
    faces: Int[np.ndarray, "m 3"]
    """Counterclockwise from outside."""

    @classmethod
    def join(cls, meshes: Sequence["Mesh"]) -> "Mesh":
        starts = np.cumsum([0, *(len(mesh.lift) for mesh in meshes)])
        faces = np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts[:-1], strict=True)])
        return cls(
            np.concatenate([mesh.surface for mesh in meshes]), np.concatenate([mesh.lift for mesh in meshes]), faces
        )


def cones(parts: Parts, *, rings: int, segments: int) -> Mesh:
    """Return round cones as triangles."""
    around, share, end, faces = _round_cone(rings, segments)
    axis = np.einsum("nij,nj->ni", parts.squash, parts.far - parts.near)
    length = np.linalg.norm(axis, axis=1)
    unit = np.where(length[:, None] > 1e-9, axis / np.maximum(length, 1e-9)[:, None], (0.0, 0.0, 1.0))
    basis = plane_basis(unit)
    # The cone touches its spheres at this latitude.
    tilt = np.arcsin(np.clip((parts.radii[:, 0] - parts.radii[:, 1]) / np.maximum(length, 1e-6), -1, 1))[:, None]
    top = np.pi / 2
    latitude = np.where(end == 0, -top + share * (tilt + top), tilt + share * (top - tilt))
    out = np.concatenate((np.cos(latitude)[..., None] * around, np.sin(latitude)[..., None]), axis=-1)
    local = out * np.where(end == 0, parts.radii[:, :1], parts.radii[:, 1:])[..., None]
    local[..., 2] += end * length[:, None]
    # From axes that make a part round back to the world.
    places = parts.near[:, None] + local @ np.linalg.inv(basis @ parts.squash).swapaxes(1, 2)
    normals = out @ (basis @ parts.squash)
    count = len(end)
    rows = (
        places.reshape(-1, 3),
        normals.reshape(-1, 3),
        np.repeat(parts.color, count, axis=0),
        np.full((len(parts) * count, 1), -1.0),
    )
    numbered = faces + count * np.arange(len(parts))[:, None, None]
    return Mesh(np.concatenate(rows, axis=1), np.repeat(parts.lift, count), numbered.reshape(-1, 3))


def facets(triangles: Float[np.ndarray, "n 3 3"], color: Float[np.ndarray, "n 3"]) -> Mesh:
    """Return triangles with flat faces."""
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-12)
    n = len(triangles)
    rows = (
        triangles.reshape(-1, 3),
        np.repeat(normals, 3, axis=0),
        np.repeat(color, 3, axis=0),
        np.full((3 * n, 1), -1.0),
    )
    return Mesh(np.concatenate(rows, axis=1), np.zeros(3 * n), np.arange(3 * n).reshape(n, 3))


@functools.cache
def _round_cone(num_rings: int, segments: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return cosine and sine about the axis, the share of the way along an end's cap, which end, and the triangles."""
    angle = np.tile(np.arange(segments) * 2 * np.pi / segments, 2 * num_rings)
    share = np.repeat(np.tile(np.linspace(0, 1, num_rings), 2), segments)
    end = np.repeat((0.0, 1.0), num_rings * segments)
    ring, segment = (v.ravel() for v in np.meshgrid(np.arange(2 * num_rings - 1), np.arange(segments), indexing="ij"))
    a, b = ring * segments + segment, ring * segments + (segment + 1) % segments
    faces = np.stack((a, b, a + segments, b, b + segments, a + segments), axis=1).reshape(-1, 3)
    return np.stack((np.cos(angle), np.sin(angle)), axis=1), share, end, faces


@functools.lru_cache(maxsize=16)
def _fitted(skeleton: Skeleton) -> tuple[Body, Float[np.ndarray, "v 3"]]:
    body = Body.shipped().fitted(skeleton)
    return body, body.normals(body.vertices)


def skinned(figure: Figure, outfit: int) -> Mesh:
    """Return a person's skin, dressed in an outfit."""
    body, normals = _fitted(figure.skeleton)
    shift = figure.joints - np.einsum("jab,jb->ja", figure.R_world, figure.skeleton.rest)
    maps = np.concatenate((figure.R_world, shift[..., None]), axis=-1).reshape(-1, 12)
    blended = (body.blend @ maps).reshape(-1, 3, 4)
    places = np.einsum("vij,vj->vi", blended[..., :3], body.vertices) + blended[..., 3]
    rows = (
        places,
        np.einsum("vij,vj->vi", blended[..., :3], normals),
        body.vertices,
        np.full((len(places), 1), float(outfit)),
    )
    return Mesh(np.concatenate(rows, axis=1), np.zeros(len(places)), body.faces)
