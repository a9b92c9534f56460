"""Triangles of a picture: objects, arrows and skinned people."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.clothes import Color
from dropsim.body.mesh import Body
from dropsim.body.rotations import normalize, plane_basis
from dropsim.body.skeleton import Skeleton
from dropsim.export.people import object_color
from dropsim.render.snapshot import Arrow, Figure
from dropsim.scene.element import Solid

SHAFT, BARB = 0.012, 0.035
"""Radii of an arrow [m]."""
SIDES = 24
"""Sides of an arrow."""
ARROW_LIFT = 1.0
"""Distance by which an arrow counts as nearer to the camera, so that the body does not hide it [m]."""


class Mesh(NamedTuple):
    """Triangles with what their corners look like."""

    surface: Float[np.ndarray, "n 10"]
    """Place in the world [m], normal, colour or place in the rest pose [m], and number of the outfit; -1 has a
    colour."""
    lift: Float[np.ndarray, "n"]
    """Distance by which a corner counts as nearer than it is in the depth buffer [m]."""
    faces: Int[np.ndarray, "m 3"]
    """Counterclockwise from outside."""

    @classmethod
    def of(
        cls, places: np.ndarray, normals: np.ndarray, faces: np.ndarray, color: Color | np.ndarray, outfit: float = -1.0
    ) -> "Mesh":
        """Return triangles of a colour, or of an outfit on places in the rest pose."""
        ones = np.ones((len(places), 1))
        rows = (places, normals, np.broadcast_to(color, places.shape), outfit * ones)
        return cls(np.concatenate(rows, axis=1), np.zeros(len(places)), faces)

    @classmethod
    def join(cls, meshes: Sequence["Mesh"]) -> "Mesh":
        """Return the triangles of several meshes."""
        starts = np.cumsum([0, *(len(mesh.lift) for mesh in meshes)])
        surface, lift = (np.concatenate(parts) for parts in zip(*(mesh[:2] for mesh in meshes), strict=True))
        return cls(surface, lift, np.concatenate([mesh.faces + starts[i] for i, mesh in enumerate(meshes)]))


def solid_mesh(solid: Solid) -> Mesh:
    """Return an object at one frame, with flat faces unless it is a sphere."""
    corners, faces, color = solid.vertices @ solid.rotation.T, solid.faces, object_color(solid.name)
    if solid.radius:
        return Mesh.of(corners + solid.centre, corners, faces, color)
    corners = corners[faces]
    normals = normalize(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    numbers = np.arange(3 * len(faces)).reshape(-1, 3)
    return Mesh.of(corners.reshape(-1, 3) + solid.centre, np.repeat(normals, 3, axis=0), numbers, color)


def arrow_mesh(arrow: Arrow) -> Mesh:
    """Return an arrow: rings about its axis, of which two neighbours make its shaft and two its head."""
    length = float(np.linalg.norm(arrow.way))
    neck = length - min(0.09, 0.7 * length)
    heights, radii = np.array((0.0, neck, neck, length)), np.array((SHAFT, SHAFT, BARB, 0.002))
    turns = 2 * np.pi * np.arange(SIDES) / SIDES
    around = np.stack((np.cos(turns), np.sin(turns), 0 * turns), -1)
    rings = radii[:, None, None] * around + heights[:, None, None] * np.array((0.0, 0.0, 1.0))
    slopes = np.array((0.0, 0.0, 1.0, 1.0))[:, None, None] * np.array((0.0, 0.0, BARB / (length - neck)))
    a, b = np.arange(SIDES), (np.arange(SIDES) + 1) % SIDES
    faces = [np.stack(corners, -1) for corners in ((a, b, a + SIDES), (b, b + SIDES, a + SIDES))]
    numbered = np.concatenate([face + SIDES * ring for face in faces for ring in (0, 1, 2)])
    basis = plane_basis(arrow.way / length)
    places, normals = (part.reshape(-1, 3) @ basis for part in (rings, around + slopes))
    mesh = Mesh.of(places + arrow.start, normals, numbered, arrow.color)
    return mesh._replace(lift=mesh.lift + ARROW_LIFT)


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
    turned = np.einsum("vij,vj->vi", blended[..., :3], normals)
    return Mesh.of(places, turned, body.faces, body.vertices, float(outfit))
