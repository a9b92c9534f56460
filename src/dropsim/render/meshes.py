"""Triangles of a picture: objects, arrows and skinned people."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.clothes import Color
from dropsim.body.mesh import Body
from dropsim.body.rotations import plane_basis
from dropsim.body.skeleton import Skeleton
from dropsim.export.people import object_color
from dropsim.render.snapshot import Arrow, Figure
from dropsim.scene.element import Solid, revolved_mesh

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
    corners, normals = (solid.vertices, solid.vertices) if solid.radius else solid.flat_faces()
    faces = solid.faces if solid.radius else np.arange(len(corners)).reshape(-1, 3)
    places, normals = corners @ solid.rotation.T + solid.centre, normals @ solid.rotation.T
    return Mesh.of(places, normals, faces, object_color(solid.name))


def arrow_mesh(arrow: Arrow) -> Mesh:
    """Return an arrow: rings about its axis, of which two neighbours make its shaft and two its head."""
    length = float(np.linalg.norm(arrow.way))
    neck = length - min(0.09, 0.7 * length)
    heights, radii = np.array((0.0, neck, neck, length)), np.array((SHAFT, SHAFT, BARB, 0.002))
    rings, faces = revolved_mesh(radii, heights, SIDES)
    basis, normals = plane_basis(arrow.way / length), rings / np.repeat(radii, SIDES)[:, None]
    normals[:, 2] = np.repeat((0.0, 0.0, 1.0, 1.0), SIDES) * (BARB / (length - neck))
    mesh = Mesh.of(rings @ basis + arrow.start, normals @ basis, faces, arrow.color)
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
