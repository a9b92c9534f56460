"""A skinned human mesh that moves with the 22 joints."""

import functools
import importlib.resources
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.rotations import apply, normalize
from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, Skeleton, joint_index
from dropsim.files.weights import read_weights

KIND = "body mesh"
BLOCK_EASE = 0.1
"""Ease with which pelvis and chest follow their joints when a mesh is fitted [m]: narrow hips make no narrow pelvis."""
_FEET = {joint_index("left_ankle"): joint_index("left_foot"), joint_index("right_ankle"): joint_index("right_foot")}


@functools.cache
def shipped_arrays() -> dict[str, np.ndarray]:
    """Return the file of the shipped body: the mesh, and how clothes cut it."""
    with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "body.safetensors") as path:
        return read_weights(path, KIND)[0]


@dataclass(frozen=True, eq=False)
class Body:
    """A skinned human mesh on the 22 joints."""

    skeleton: Skeleton
    """The vertices are in its rest pose."""
    vertices: Float[np.ndarray, "v 3"]
    """Rest pose [m]; y up, facing +z, left = +x."""
    faces: Int[np.ndarray, "f 3"]
    """Triangles, counterclockwise from outside."""
    blend: Float[np.ndarray, "v 22"]
    """Shares of the joints that move each vertex; they sum to 1."""

    @classmethod
    def shipped(cls) -> "Body":
        """Return the neutral adult that comes with dropsim, on Skeleton.adult()."""
        arrays = shipped_arrays()
        vertices, weights = (np.asarray(arrays[name], dtype=np.float64) for name in ("vertices", "weights"))
        faces, joints = (np.asarray(arrays[name], dtype=np.int64) for name in ("faces", "joints"))
        blend = np.zeros((len(vertices), NUM_JOINTS))
        np.add.at(blend, (np.arange(len(blend))[:, None], joints), weights)
        return cls(Skeleton.adult(), vertices, faces, blend)

    def fitted(self, skeleton: Skeleton) -> "Body":
        """Return the same mesh on a skeleton of other proportions, whose rest pose is a T-pose too.

        Every vertex moves by its joints' blend of linear maps: lengths follow the bones, thickness the collision
        spheres, and the soles stay level.
        """
        stretch = np.stack([_stretch(j, self.skeleton, skeleton) for j in range(NUM_JOINTS)])
        shift = skeleton.rest - apply(stretch, self.skeleton.rest)
        return replace(self, skeleton=skeleton, vertices=self._moved(stretch, shift))

    def skinned(
        self, q: Float[np.ndarray, "*b 22 3 3"], joints: Float[np.ndarray, "*b 22 3"]
    ) -> Float[np.ndarray, "*b v 3"]:
        """Return world vertices [m] from local rotations and world joints [m], by linear blend skinning."""
        R_world = self.skeleton.global_rotations(q)
        return self._moved(R_world, joints - apply(R_world, self.skeleton.rest))

    def _moved(
        self, linear: Float[np.ndarray, "*b 22 3 3"], shift: Float[np.ndarray, "*b 22 3"]
    ) -> Float[np.ndarray, "*b v 3"]:
        """Move each vertex by its blend of the joints' affine maps."""
        maps = np.concatenate((linear, shift[..., None]), axis=-1)
        blended = (self.blend @ maps.reshape(*maps.shape[:-2], 12)).reshape(*maps.shape[:-3], -1, 3, 4)
        return apply(blended[..., :3], self.vertices) + blended[..., 3]

    def normals(self, vertices: Float[np.ndarray, "*b v 3"]) -> Float[np.ndarray, "*b v 3"]:
        """Return outward unit normals at posed vertices: the mean of the faces' around them, by area."""
        a, b, c = (vertices[..., corner, :] for corner in self.faces.T)
        normal, total = np.cross(b - a, c - a), np.zeros(vertices.shape)
        for corner in self.faces.T:
            np.add.at(np.moveaxis(total, -2, 0), corner, np.moveaxis(normal, -2, 0))
        return normalize(total)


def _stretch(joint: int, old: Skeleton, new: Skeleton) -> Float[np.ndarray, "3 3"]:
    """Return the linear map about a joint that takes its old bones to the new ones.

    Ridge regression S = argmin sum |S a - b|^2 + ease^2 |S - g I|^2 over the bones a -> b, with g the ratio of the
    radii.
    """
    scale = new.radii[joint] / old.radii[joint]
    children = list(CHILDREN[joint])
    a, b = old.offsets[children], new.offsets[children]
    if joint in _FEET:
        # Forward and down separately, so that the sole stays level; down to the sole, where the ball's sphere ends.
        down = np.array([0.0, 1.0, 0.0])
        a, b = (
            np.concatenate((bone * (1 - down), (bone - s.radii[_FEET[joint]]) * down))
            for bone, s in ((a, old), (b, new))
        )
    ease = (BLOCK_EASE if len(children) > 1 else 1e-6) ** 2
    return (b.T @ a + ease * scale * np.eye(3)) @ np.linalg.inv(a.T @ a + ease * np.eye(3))
