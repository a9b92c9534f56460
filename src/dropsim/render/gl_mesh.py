"""Meshes on the graphics card: round cones, and skinned people."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from dropsim.body.mesh import Body
from dropsim.body.skeleton import Skeleton
from dropsim.render.camera import plane_basis
from dropsim.render.snapshot import Figure, Parts

if TYPE_CHECKING:
    import moderngl


class Programs(NamedTuple):
    """What draws a mesh."""

    picture: "moderngl.Program"
    shadow: "moderngl.Program"


class ConeMesh:
    """A round cone that is drawn many times over."""

    def __init__(self, context: "moderngl.Context", programs: Programs, *, rings: int, segments: int) -> None:
        vertices, indices = _round_cone(rings, segments)
        self._instances = context.buffer(reserve=4 * 28 * 64)
        content = [
            (context.buffer(vertices.tobytes()), "2f 2f", "in_around", "in_along"),
            (self._instances, "3f 9f 9f 3f 3f 1f/i", "in_near", "in_frame", "in_normals", "in_shape", "in_color", "in_lift"),
        ]
        faces = context.buffer(indices.tobytes())
        # A program that only casts shadows has no use for colours: errors about those are skipped.
        self._picture, self._shadow = (context.vertex_array(p, content, index_buffer=faces, skip_errors=True) for p in programs)

    def draw(self, parts: Parts) -> None:
        """Draw parts into the picture."""
        self._render(self._picture, parts)

    def cast(self, parts: Parts) -> None:
        """Draw parts into a map of shadows."""
        self._render(self._shadow, parts)

    def _render(self, array: "moderngl.VertexArray", parts: Parts) -> None:
        if not len(parts):
            return
        data = _instances(parts).astype("f4").tobytes()
        if len(data) > self._instances.size:
            self._instances.orphan(2 * len(data))
        self._instances.write(data)
        array.render(instances=len(parts))


class SkinnedMesh:
    """A person's mesh, in rest and as it was posed last."""

    def __init__(self, context: "moderngl.Context", programs: Programs, skin: "moderngl.Program", skeleton: Skeleton) -> None:
        body = Body.shipped().fitted(skeleton)
        # Kept, so that no other skeleton can have its id while this mesh lives.
        self._skeleton = skeleton
        rest = body.vertices.double()
        bound = torch.cat((rest, body.normals(rest), body.joints.double(), body.weights.double()), dim=-1)
        self._count = len(rest)
        self._bound = context.buffer(bound.numpy().astype("f4").tobytes())
        self._posed = context.buffer(reserve=24 * self._count)
        self._faces = context.buffer(body.faces.numpy().astype("i4").tobytes())
        self._skin = context.vertex_array(skin, [(self._bound, "3f 3f 4f 4f", "in_rest", "in_normal", "in_joints", "in_weights")])
        content = [(self._posed, "3f 3f", "in_position", "in_normal"), (self._bound, "3f 44x", "in_rest")]
        self._picture, self._shadow = (context.vertex_array(p, content, index_buffer=self._faces, skip_errors=True) for p in programs)

    def bones(self, figure: Figure) -> Float[np.ndarray, "22 3 4"]:
        """Return the affine map of every joint, from the rest pose to the world."""
        rest = self._skeleton.rest.detach().cpu().double().numpy()
        shift = figure.joints - np.einsum("jab,jb->ja", figure.R_world, rest)
        return np.concatenate((figure.R_world, shift[..., None]), axis=-1)

    def pose(self) -> None:
        """Move the vertices by the bones that are bound, once for all that is drawn of them."""
        self._skin.transform(self._posed, mode=self._skin.ctx.POINTS, vertices=self._count)

    def draw(self) -> None:
        """Draw it into the picture."""
        self._picture.render()

    def cast(self) -> None:
        """Draw it into a map of shadows."""
        self._shadow.render()

    def release(self) -> None:
        """Free the card's memory."""
        for thing in (self._picture, self._shadow, self._skin, self._bound, self._posed, self._faces):
            thing.release()


def _round_cone(num_rings: int, segments: int) -> tuple[Float[np.ndarray, "v 4"], Int[np.ndarray, "i"]]:
    """Return a round cone's mesh: angle about the axis as cosine and sine, share of the way along an end's cap, and which end."""
    angle = np.arange(segments) * 2 * np.pi / segments
    rings = [(share, end) for end in (0.0, 1.0) for share in np.linspace(0, 1, num_rings).tolist()]
    vertices = [(math.cos(a), math.sin(a), share, end) for share, end in rings for a in angle.tolist()]
    ring, segment = (v.ravel() for v in np.meshgrid(np.arange(len(rings) - 1), np.arange(segments), indexing="ij"))
    a, b = ring * segments + segment, ring * segments + (segment + 1) % segments
    indices = np.stack((a, b, a + segments, b, b + segments, a + segments), axis=1)
    return np.array(vertices, "f4"), indices.ravel().astype("i4")


def _instances(parts: Parts) -> Float[np.ndarray, "n 28"]:
    """Lay out round cones for the card."""
    axis = np.einsum("nij,nj->ni", parts.squash, parts.far - parts.near)
    length = np.linalg.norm(axis, axis=1)
    unit = np.where(length[:, None] > 1e-9, axis / np.maximum(length, 1e-9)[:, None], (0.0, 0.0, 1.0))
    basis = np.stack([plane_basis(u) for u in unit])
    frames, normals = np.linalg.inv(basis @ parts.squash), parts.squash @ basis.transpose(0, 2, 1)
    # By columns, as GLSL's matrices are.
    by_columns = [m.transpose(0, 2, 1).reshape(-1, 9) for m in (frames, normals)]
    return np.column_stack((parts.near, *by_columns, parts.radii, length, parts.color, parts.lift))
