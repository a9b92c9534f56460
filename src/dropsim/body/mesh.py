"""A skinned human mesh that moves with the 22 joints."""

import importlib.resources
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, Skeleton, joint_index
from dropsim.files.weights import read_weights

KIND = "body mesh"
BLOCK_EASE = 0.1
"""How slowly pelvis and chest follow their joints when a mesh is fitted [m]: a hip joint further in does not make a narrow pelvis."""
_FEET = {joint_index("left_ankle"): joint_index("left_foot"), joint_index("right_ankle"): joint_index("right_foot")}


@dataclass(frozen=True, eq=False)
class Body:
    """A skinned human mesh on the 22 joints."""

    skeleton: Skeleton
    """The one whose rest pose the vertices are in."""
    vertices: Float[Tensor, "v 3"]
    """Rest pose [m]; y up, facing +z, left = +x."""
    faces: Int[Tensor, "f 3"]
    """Triangles, counterclockwise from outside."""
    joints: Int[Tensor, "v 4"]
    """The joints that move each vertex."""
    weights: Float[Tensor, "v 4"]
    """Each one's share; they sum to 1."""
    blend: Float[Tensor, "v 22"] = field(init=False, repr=False)
    """The shares of all joints: with it, skinning is one matrix product."""

    def __post_init__(self) -> None:
        blend = self.weights.new_zeros(len(self.weights), NUM_JOINTS).scatter_add(1, self.joints.long(), self.weights)
        object.__setattr__(self, "blend", blend)

    @classmethod
    def shipped(cls) -> "Body":
        """Return the neutral adult that comes with dropsim, on Skeleton.adult()."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "body.safetensors") as path:
            tensors, _ = read_weights(path, KIND)
        vertices, weights = tensors["vertices"].float(), tensors["weights"].float()
        return cls(Skeleton.adult(), vertices, tensors["faces"].long(), tensors["joints"].long(), weights)

    def fitted(self, skeleton: Skeleton) -> "Body":
        """Return the same mesh on a skeleton of other proportions, whose rest pose is a T-pose too.

        Every vertex moves by its joints' blend of linear maps: lengths follow the bones, thickness the collision spheres, and the soles
        stay level.
        """
        old, new = self.skeleton.rest.double(), skeleton.rest.double()
        stretch = torch.stack([_stretch(j, self.skeleton, skeleton) for j in range(NUM_JOINTS)])
        moved = _apply(self.blend.double(), stretch, new - (stretch @ old.unsqueeze(-1)).squeeze(-1), self.vertices.double())
        return replace(self, skeleton=skeleton, vertices=moved.to(self.vertices))

    def skinned(self, q: Float[Tensor, "*b 22 3 3"], joints: Float[Tensor, "*b 22 3"]) -> Float[Tensor, "*b v 3"]:
        """Return world vertices [m] from local rotations and world joints [m], by linear blend skinning."""
        R_world = self.skeleton.global_rotations(q)
        shift = joints - (R_world @ self.skeleton.rest.to(q).unsqueeze(-1)).squeeze(-1)
        return _apply(self.blend.to(q), R_world, shift, self.vertices.to(q))

    def normals(self, vertices: Float[Tensor, "*b v 3"]) -> Float[Tensor, "*b v 3"]:
        """Return outward unit normals at posed vertices: the mean of the faces' around them, by area."""
        a, b, c = (vertices[..., corner, :] for corner in self.faces.unbind(-1))
        normal = torch.linalg.cross(b - a, c - a)
        total = torch.zeros_like(vertices)
        for corner in self.faces.unbind(-1):
            total = total.index_add(-2, corner, normal)
        return torch.nn.functional.normalize(total, dim=-1, eps=1e-30)


def _apply(
    blend: Float[Tensor, "v 22"], linear: Float[Tensor, "*b 22 3 3"], shift: Float[Tensor, "*b 22 3"], points: Float[Tensor, "v 3"]
) -> Float[Tensor, "*b v 3"]:
    """Move each point by its blend of the joints' affine maps."""
    maps = torch.cat((linear, shift.unsqueeze(-1)), dim=-1)
    blended = (blend @ maps.flatten(-2)).unflatten(-1, (3, 4))
    return (blended[..., :3] @ points.unsqueeze(-1)).squeeze(-1) + blended[..., 3]


def _stretch(joint: int, old: Skeleton, new: Skeleton) -> Float[Tensor, "3 3"]:
    """Return the linear map about a joint that takes its old bones to the new ones and scales the rest as the joint's sphere.

    Ridge regression S = argmin sum |S a - b|^2 + ease^2 |S - g I|^2 over the bones a -> b, with g the ratio of the radii.
    """
    scale = (new.radii[joint] / old.radii[joint]).double()
    children = list(CHILDREN[joint])
    a, b = old.offsets[children].double(), new.offsets[children].double()
    if joint in _FEET:
        # Forward and down apart, so that the sole stays level; down to the sole, where the ball's sphere ends.
        level = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        a, b = (
            torch.cat((bone * level, bone * (1 - level) - (1 - level) * s.radii[_FEET[joint]].double())) for bone, s in ((a, old), (b, new))
        )
    ease = (BLOCK_EASE if len(children) > 1 else 1e-6) ** 2
    eye = torch.eye(3, dtype=torch.float64)
    return (b.T @ a + ease * scale * eye) @ torch.linalg.inv(a.T @ a + ease * eye)
