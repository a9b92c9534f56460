"""People and objects as every exporter takes them, and the skinned body of each person."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8, UInt32

from dropsim.body.clothes import SHIRTS, Color, Piece, dressed
from dropsim.body.mesh import Body
from dropsim.body.rotations import rotmat_to_unitquat
from dropsim.export.hands import lifted_hands
from dropsim.export.stage import Stage
from dropsim.files.atomic import errors_of
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
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
"""From a world with y up to ours: (x, y, z) becomes (x, -z, y)."""


def linear_color(color: Color) -> list[float]:
    """Return an sRGB colour as light, which glTF and USD count in; both are in [0, 1]."""
    return [((channel + 0.055) / 1.055) ** 2.4 for channel in color]


def single(motions: Motion | Sequence[Motion], path: Path) -> Motion:
    """Return the one person of a file that can hold only one."""
    with errors_of(path):
        people = Stage(as_people(motions)).people
        if len(people) > 1:
            raise ValueError(f"a {path.suffix} file holds one person, not {len(people)}: write them one by one")
    return people[0]


def as_people(motions: Motion | Sequence[Motion]) -> tuple[Motion, ...]:
    """Return one or several motions as several."""
    return (motions,) if isinstance(motions, Motion) else tuple(motions)


def object_names(objects: Sequence[Solid]) -> list[str]:
    """Return a name for each object in a file: box_1, box_2, ramp_1 and so on."""
    kinds = [solid.name for solid in objects]
    return [f"{kind}_{kinds[: i + 1].count(kind)}" for i, kind in enumerate(kinds)]


def object_color(name: str) -> Color:
    """Return the colour of a kind of object."""
    return OBJECT_COLORS.get(name, GREY)


@dataclass(frozen=True, eq=False)
class Exported:
    """The people and objects of a file with skinned bodies."""

    people: list[Motion]
    """People at one rate, their hands bent out of the ground."""
    objects: Sequence[Solid] = ()
    body: Body | None = None
    """Skinned body of everybody; the shipped one unless given."""
    seed: int | None = None

    @classmethod
    def of(
        cls,
        motions: Motion | Sequence[Motion],
        path: Path,
        *,
        ground: Plane | None = None,
        objects: Sequence[Solid] = (),
        body: Body | None = None,
        seed: int | None = None,
    ) -> "Exported":
        """Check everything that goes into a file; hands are bent out of the ground, the level floor unless given."""
        with errors_of(path):
            stage = Stage(as_people(motions), objects=objects, ground=Plane.ground() if ground is None else ground)
            for solid in objects:
                lasting = solid.at_all_times()
                if not (
                    solid.there.any() and np.isfinite(lasting.centre).all() and np.isfinite(lasting.rotation).all()
                ):
                    raise ValueError(f"the {solid.name} has places that are not finite, so nothing was written")
        bent = list[Motion]()
        for motion in stage.people:
            below = stage.plane(slice(len(motion)))
            bent.append(replace(motion, q=lifted_hands(motion.q, motion.joints, motion.skeleton, below)))
        return cls(bent, objects, body, seed)

    def named_people(self) -> Iterator[tuple[str, Motion, "Rig"]]:
        """Return each person's name, person or person_1 and so on, motion and skinned body."""
        for number, motion in enumerate(self.people):
            name = "person" if len(self.people) == 1 else f"person_{number + 1}"
            yield name, motion, Rig.of(motion, self.body, number)

    def named_objects(self) -> Iterator[tuple[str, Solid]]:
        """Return each object's name, and the object."""
        return zip(object_names(self.objects), self.objects, strict=True)


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
    """[m]"""
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
