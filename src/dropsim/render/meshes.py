"""Triangles of a picture: objects, arrows for forces, and skinned people."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.clothes import Color, dressed
from dropsim.body.mesh import Body
from dropsim.body.rotations import plane_basis
from dropsim.body.skeleton import PARENTS, Skeleton
from dropsim.export.people import object_color
from dropsim.motion.motion import Motion
from dropsim.scene.element import Solid, revolved_mesh

GHOST = (0.48, 0.58, 0.84)
RED, BLUE = (0.90, 0.08, 0.12), (0.15, 0.25, 0.95)
METRES_PER_NEWTON, LONGEST_ARROW = 1e-3, 1.5
SHAFT, BARB = 0.012, 0.035
"""Radii of an arrow [m]."""
SIDES = 24
"""Sides of an arrow."""
ARROW_LIFT = 1.0
"""Distance by which an arrow counts as nearer to the camera, so that the body does not hide it [m]."""


class Mesh(NamedTuple):
    """Triangles with what their corners look like."""

    surface: Float[np.ndarray, "n 10"]
    """Place in the world [m], normal, colour, and number of the smooth piece; -1 has flat faces."""
    lift: Float[np.ndarray, "n"]
    """Distance by which a corner counts as nearer than it is in the depth buffer [m]."""
    faces: Int[np.ndarray, "m 3"]
    """Triangles, counterclockwise from outside."""

    @classmethod
    def of(
        cls, places: np.ndarray, normals: np.ndarray, faces: np.ndarray, look: tuple[float, ...] | np.ndarray
    ) -> "Mesh":
        """Return triangles of a colour and smooth piece, for all corners or one for each."""
        rows = (places, normals, np.broadcast_to(look, (len(places), 4)))
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
    R, centre = solid.rotation[0], solid.centre[0]
    return Mesh.of(corners @ R.T + centre, normals @ R.T, faces, (*object_color(solid.name), -1.0))


def resultants(joints: Float[np.ndarray, "22 3"], forces: Float[np.ndarray, "22 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Merge a push on neighbouring joints: return the middle and the sum of each run of bones with like forces."""
    group = list(range(len(joints)))
    for child, parent in enumerate(PARENTS):
        if parent >= 0 and np.any(forces[child]) and np.allclose(forces[child], forces[parent], rtol=0.05):
            group[child] = group[parent]
    members = [np.flatnonzero(np.array(group) == g) for g in sorted(set(group))]
    return np.stack([joints[m].mean(0) for m in members]), np.stack([forces[m].sum(0) for m in members])


Arrow = tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"], Color]
"""Point where a force acts [m], the vector from there to the tip [m], and the colour."""


def arrows_of(pose: Motion) -> list[Arrow]:
    """Return arrows for the forces above 1 N on a person at one frame."""
    joints, forces = pose.joints[0], list[Arrow]()
    if pose.contact_forces is not None:
        forces += [(at, force, BLUE) for at, force in zip(joints, pose.contact_forces[0], strict=True)]
    if pose.external_forces is not None:
        merged = resultants(joints, pose.external_forces[0])
        forces += [(at, force, RED) for at, force in zip(*merged, strict=True)]
    newtons = [float(np.linalg.norm(force)) for _, force, _ in forces]
    return [
        (at, force * min(METRES_PER_NEWTON, LONGEST_ARROW / size), color)
        for (at, force, color), size in zip(forces, newtons, strict=True)
        if 1 < size < np.inf
    ]


def arrow_mesh(start: Float[np.ndarray, "3"], way: Float[np.ndarray, "3"], color: Color) -> Mesh:
    """Return an arrow: rings about its axis, of which two neighbours make its shaft and two its head."""
    length = float(np.linalg.norm(way))
    neck = length - min(0.09, 0.7 * length)
    heights, radii = np.array((0.0, neck, neck, length)), np.array((SHAFT, SHAFT, BARB, 0.002))
    rings, faces = revolved_mesh(radii, heights, SIDES)
    basis, normals = plane_basis(way / length), rings / np.repeat(radii, SIDES)[:, None]
    normals[:, 2] = np.repeat((0.0, 0.0, 1.0, 1.0), SIDES) * (BARB / (length - neck))
    mesh = Mesh.of(rings @ basis + start, normals @ basis, faces, (*color, -1.0))
    return mesh._replace(lift=mesh.lift + ARROW_LIFT)


@functools.lru_cache(maxsize=16)
def _dressed(skeleton: Skeleton, number: int | None) -> tuple[Mesh, Float[np.ndarray, "v 22"]]:
    """Return the shipped body at rest, dressed as person `number` or as a ghost, and its shares of the joints."""
    body = dressed(Body.shipped().fitted(skeleton), number or 0)
    corners = np.concatenate([piece.faces + k * len(body.vertices) for k, piece in enumerate(body.pieces)])
    used, faces = np.unique(corners, return_inverse=True)
    pieces, vertices = np.divmod(used, len(body.vertices))
    colors = np.array([GHOST if number is None else piece.color for piece in body.pieces])
    looks = np.column_stack((colors[pieces], pieces))
    return Mesh.of(body.vertices[vertices], body.normals[vertices], faces.reshape(-1, 3), looks), body.blend[vertices]


def skinned(pose: Motion, number: int | None) -> Mesh:
    """Return a person at one frame, dressed as person `number`, or a ghost if that is None."""
    skeleton, (rest, blend) = pose.skeleton, _dressed(pose.skeleton, number)
    R_world = skeleton.global_rotations(pose.q[0])
    shift = pose.joints[0] - np.einsum("jab,jb->ja", R_world, skeleton.rest)
    maps = np.concatenate((R_world, shift[..., None]), axis=-1).reshape(-1, 12)
    blended = (blend @ maps).reshape(-1, 3, 4)
    places = np.einsum("vij,vj->vi", blended[..., :3], rest.surface[:, :3]) + blended[..., 3]
    normals = np.einsum("vij,vj->vi", blended[..., :3], rest.surface[:, 3:6])
    return Mesh.of(places, normals, rest.faces, rest.surface[:, 6:])
