"""What every exporter asks of its motions, and the skinned body that it hangs on them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import roma
import torch
from jaxtyping import Float, UInt8, UInt32
from torch import Tensor

from dropsim.body.mesh import Body
from dropsim.motion.motion import Motion

COLORS = ((90, 160, 190), (226, 132, 62), (120, 170, 90), (190, 110, 170), (215, 185, 80), (120, 125, 200))
"""One for each person in a file, as sRGB in [0, 255]; after the last they begin again."""

R_ZUP_YUP = np.array(((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0)))
"""From a world with y up to ours: (x, y, z) becomes (x, -z, y)."""


def linear_color(color: tuple[int, int, int]) -> list[float]:
    """Return an sRGB colour in [0, 255] as light in [0, 1], which glTF and USD count in."""
    return [((channel / 255 + 0.055) / 1.055) ** 2.4 for channel in color]


def array(values: Tensor) -> np.ndarray:
    """Return a tensor as a float64 array."""
    return values.detach().to("cpu", torch.float64).numpy()


def checked(motions: Motion | Sequence[Motion], path: Path) -> list[Motion]:
    """Return the people that go into one file, or raise with what stands in the way."""
    people = [motions] if isinstance(motions, Motion) else list(motions)
    if not people:
        raise ValueError(f"{path}: there is no motion to write")
    for motion in people:
        if motion.root.ndim != 2:
            batch = tuple(motion.root.shape[:-2])
            raise ValueError(f"{path}: this motion has people in a batch of shape {batch}: pick one, or pass a list of single ones")
        if len(motion) == 0:
            raise ValueError(f"{path}: the motion has no frames")
        if not 0 < motion.fps < math.inf:
            raise ValueError(f"{path}: the motion has {motion.fps} frames per second: expected a positive number")
        if not all(bool(values.isfinite().all()) for values in (motion.root, motion.q, motion.joints)):
            raise ValueError(f"{path}: the motion holds values that are not finite, so it was not written")
    if len(rates := sorted({motion.fps for motion in people})) > 1:
        listed = " and ".join(f"{rate:g}" for rate in rates)
        raise ValueError(f"{path}: one file has one rate, and these motions have {listed} frames per second: resample them first")
    return people


def single(motions: Motion | Sequence[Motion], path: Path) -> Motion:
    """Return the one person of a file that holds no more."""
    people = checked(motions, path)
    if len(people) > 1:
        raise ValueError(f"{path}: a {path.suffix} file holds one person, and here are {len(people)}: write them one by one")
    return people[0]


def names(people: Sequence[Motion]) -> list[str]:
    """Return a name for each person in a file: person, or person_1 and so on."""
    return ["person"] if len(people) == 1 else [f"person_{number}" for number in range(1, len(people) + 1)]


def facts(motion: Motion, seed: int | None) -> dict[str, Any]:
    """Return what a file may say about a person beside the frames, in plain JSON types."""
    events = [{"name": event.name, "start": float(event.start), "duration": float(event.duration)} for event in motion.events]
    given = {"fps": float(motion.fps), "frames": len(motion), "name": motion.name, "seed": seed, "events": events}
    return {key: value for key, value in given.items() if value not in (None, "", [])}


def quaternions_xyzw(rotations: Float[Tensor, "t *b 3 3"]) -> Float[np.ndarray, "t *b 4"]:
    """Return unit quaternions whose sign does not jump from frame to frame, so that a reader may blend them as they are."""
    q = array(roma.rotmat_to_unitquat(rotations.detach().to("cpu", torch.float64)))
    jumps = np.where((q[1:] * q[:-1]).sum(-1, keepdims=True) < 0, -1.0, 1.0)
    q[1:] *= np.cumprod(jumps, axis=0)
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Rig:
    """A body in the pose that a file's skin is bound to: the rest pose, y up and facing +z, with the sole at y = 0 below the pelvis."""

    bind: Float[np.ndarray, "22 3"]
    """Joints [m]; their axes are those of the world."""
    vertices: Float[np.ndarray, "v 3"]
    """[m]"""
    normals: Float[np.ndarray, "v 3"]
    faces: UInt32[np.ndarray, "f 3"]
    joints: UInt8[np.ndarray, "v 4"]
    """Which joints move a vertex; 0 where the weight is 0, as glTF has it."""
    weights: Float[np.ndarray, "v 4"]
    """Sum to one."""

    @classmethod
    def of(cls, motion: Motion, body: Body | None) -> "Rig":
        """Return a body, the shipped one unless given, fitted to a person's bones."""
        body = (Body.shipped() if body is None else body).fitted(motion.skeleton)
        rest, vertices = array(motion.skeleton.rest), array(body.vertices)
        ground = np.array((rest[0, 0], vertices[:, 1].min(), rest[0, 2]))
        weights = array(body.weights).astype(np.float32)
        weights /= weights.sum(-1, keepdims=True)
        joints = np.where(weights > 0, body.joints.cpu().numpy(), 0).astype(np.uint8)
        faces = body.faces.cpu().numpy().astype(np.uint32)
        normals = array(body.normals(body.vertices)).astype(np.float32)
        # A vertex in no face, or in faces without area; glTF wants unit length of it all the same.
        normals[np.linalg.norm(normals, axis=-1) < 0.5] = (0.0, 1.0, 0.0)
        return cls(rest - ground, (vertices - ground).astype(np.float32), normals, faces, joints, weights)
