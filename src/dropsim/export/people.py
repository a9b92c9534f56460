"""People and objects as every exporter takes them, and the skinned body of each person."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8, UInt32

from dropsim.body.clothes import SHIRTS, Color, Piece, dressed
from dropsim.body.mesh import Body
from dropsim.body.rotations import rotmat_to_unitquat
from dropsim.export.stage import Stage
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.scene.element import Solid

GREY: Color = (0.70, 0.71, 0.73)
BALL_COLOR: Color = (0.82, 0.22, 0.20)
OBJECT_COLORS: dict[str, Color] = {
    "patch": (0.72, 0.87, 0.96),
    "crate": (0.78, 0.62, 0.42),
    "terrain": (0.60, 0.68, 0.52),
    "ball": BALL_COLOR,
    "obstacle": BALL_COLOR,
}
"""Colours of objects by their kinds, as sRGB; others are grey."""

R_ZUP_YUP = np.array(((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0)))
"""Rotation from a world with y up to ours: (x, y, z) becomes (x, -z, y)."""


def linear_color(color: Color) -> list[float]:
    """Return an sRGB colour as light, which glTF and USD count in; both are in [0, 1]."""
    return [((channel + 0.055) / 1.055) ** 2.4 for channel in color]


def named_objects(objects: Sequence[Solid]) -> list[tuple[str, Solid]]:
    """Return each object with its name in a file: box_1, box_2, ramp_1 and so on."""
    kinds = [solid.name for solid in objects]
    return [(f"{solid.name}_{kinds[: i + 1].count(solid.name)}", solid) for i, solid in enumerate(objects)]


def object_color(name: str) -> Color:
    """Return the colour of a kind of object."""
    return OBJECT_COLORS.get(name, GREY)


def named_people(stage: Stage, body: Body | None) -> Iterator[tuple[str, Motion, "Rig"]]:
    """Return each person's name, person or person_1 and so on, motion with hands bent out of the ground, and body."""
    for number, motion in enumerate(stage.people):
        name = "person" if len(stage.people) == 1 else f"person_{number + 1}"
        yield name, stage.lifted(motion), Rig.of(motion, body, number)


def facts(motion: Motion, seed: int | None) -> dict[str, Any]:
    """Return what a file may say about a person besides the frames, in plain JSON types."""
    events = [
        {"name": event.name, "start": float(event.start), "duration": float(event.duration)} for event in motion.events
    ]
    given = {"fps": float(motion.fps), "frames": len(motion), "name": motion.name, "seed": seed, "events": events}
    return {key: value for key, value in given.items() if value not in (None, "", [])}


def quaternions_xyzw(rotations: Float[np.ndarray, "t *b 3 3"]) -> Float[np.ndarray, "t *b 4"]:
    """Return unit quaternions whose sign does not jump from frame to frame, so that a reader may blend them."""
    q = rotmat_to_unitquat(rotations)
    jumps = np.where((q[1:] * q[:-1]).sum(-1, keepdims=True) < 0, -1.0, 1.0)
    q[1:] *= np.cumprod(jumps, axis=0)
    return q


@dataclass(frozen=True, eq=False)
class Rig:
    """A body in the pose that a skin is bound to: at rest, y up, facing +z, with the sole at y = 0 below the pelvis."""

    bind: Float[np.ndarray, "22 3"]
    """Joints [m]; their axes are those of the world."""
    vertices: Float[np.ndarray, "v 3"]
    """Vertices of the skin [m]."""
    normals: Float[np.ndarray, "v 3"]
    blend: Float[np.ndarray, "v 22"]
    """Shares of the joints that move each vertex; they sum to one."""
    pieces: tuple[Piece, ...]
    """Parts of one colour each: clothes, skin and hair, or the whole body."""

    @classmethod
    def of(cls, motion: Motion, body: Body | None, number: int) -> "Rig":
        """Return a body fitted to a person's bones: the shipped one, dressed as person `number`, or the given one."""
        rest = motion.skeleton.rest
        if body is None:
            skin = dressed(Body.shipped().fitted(motion.skeleton), number)
            normals, pieces = skin.normals, skin.pieces
        else:
            skin = body.fitted(motion.skeleton)
            normals, pieces = skin.normals(skin.vertices), (Piece("body", SHIRTS[number % len(SHIRTS)], skin.faces),)
        ground = np.array((rest[0, 0], skin.vertices[:, 1].min(), rest[0, 2]))
        normals = normals.astype(np.float32)
        # A vertex in no face, or in faces without area; glTF wants unit length of it all the same.
        normals[np.linalg.norm(normals, axis=-1) < 0.5] = (0.0, 1.0, 0.0)
        return cls(rest - ground, (skin.vertices - ground).astype(np.float32), normals, skin.blend, pieces)

    @property
    def faces(self) -> UInt32[np.ndarray, "f 3"]:
        """Triangles of all pieces, one after the other."""
        return np.concatenate([piece.faces for piece in self.pieces]).astype(np.uint32)

    def strongest(self) -> tuple[UInt8[np.ndarray, "v 4"], Float[np.ndarray, "v 4"]]:
        """Return the four joints that move each vertex, 0 where the weight is 0, as glTF has it, and their weights."""
        joints = np.argsort(-self.blend, axis=-1, kind="stable")[:, :4]
        weights = np.take_along_axis(self.blend, joints, -1).astype(np.float32)
        weights /= weights.sum(-1, keepdims=True)
        return np.where(weights > 0, joints, 0).astype(np.uint8), weights


def write_objects(objects: Sequence[Solid], path: Path, fps: float) -> None:
    """Write an npz archive: names, fps, and NAME/vertices, faces, centres [m] and rotations to the world's axes."""
    named = named_objects(objects)
    arrays = {"names": np.array([name for name, _ in named]), "fps": np.array(fps)}
    for name, solid in named:
        arrays |= {f"{name}/vertices": solid.vertices, f"{name}/faces": solid.faces}
        arrays |= {f"{name}/centres": solid.centre, f"{name}/rotations": solid.rotation}
    # An open file, because numpy adds its ending to a name that lacks it.
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
