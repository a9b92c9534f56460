"""People and objects as every exporter takes them, and the skinned body of each person."""

import math
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


def checked(motions: Motion | Sequence[Motion], path: Path) -> list[Motion]:
    """Return the people that go into one file, or raise with the reason why they cannot."""
    people = [motions] if isinstance(motions, Motion) else list(motions)
    if not people:
        raise ValueError(f"{path}: there is no motion to write")
    for motion in people:
        if motion.root.ndim != 2:
            batch = tuple(motion.root.shape[:-2])
            raise ValueError(f"{path}: the motion is a batch of shape {batch}: pick one, or pass a list of single ones")
        if len(motion) == 0:
            raise ValueError(f"{path}: the motion has no frames")
        if not 0 < motion.fps < math.inf:
            raise ValueError(f"{path}: the motion has {motion.fps} frames per second: expected a positive number")
        if not all(np.isfinite(values).all() for values in (motion.root, motion.q, motion.joints)):
            raise ValueError(f"{path}: the motion holds values that are not finite, so it was not written")
    rates = sorted({motion.fps for motion in people})
    if len(rates) > 1:
        listed = " and ".join(f"{rate:g}" for rate in rates)
        raise ValueError(f"{path}: one file has one rate, not {listed} frames per second: resample the motions first")
    return people


def single(motions: Motion | Sequence[Motion], path: Path) -> Motion:
    """Return the one person of a file that can hold only one."""
    people = checked(motions, path)
    if len(people) > 1:
        raise ValueError(f"{path}: a {path.suffix} file holds one person, not {len(people)}: write them one by one")
    return people[0]


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
        people, ground = checked(motions, path), Plane.ground() if ground is None else ground
        frames = max(map(len, people))
        if ground.normal.ndim > 1 and ground.normal.shape[:-1] != (frames,):
            raise ValueError(f"{path}: the ground needs one plane, or one for each of the motion's {frames} frames")
        for solid in objects:
            if solid.centre.shape != (frames, 3):
                raise ValueError(f"{path}: the {solid.name} needs a place for each of {frames} frames: pick one world")
            lasting = solid.at_all_times()
            if not (solid.there.any() and np.isfinite(lasting.centre).all() and np.isfinite(lasting.rotation).all()):
                raise ValueError(f"{path}: the {solid.name} has places that are not finite, so nothing was written")
        bent = list[Motion]()
        for motion in people:
            until = slice(len(motion))
            below = ground.map(
                lambda v, at=until: v[at] if v.ndim > 1 else v, lambda s, at=until: s[at] if s.ndim else s
            )
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
    faces: UInt32[np.ndarray, "f 3"]
    joints: UInt8[np.ndarray, "v 4"]
    """The joints that move each vertex; 0 where the weight is 0, as glTF has it."""
    weights: Float[np.ndarray, "v 4"]
    """Sum to one."""
    pieces: tuple[Piece, ...]
    """Parts of one colour each: clothes, skin and hair, or the whole body. `faces` are those of all pieces, one after
    the other."""

    @classmethod
    def of(cls, motion: Motion, body: Body | None, number: int) -> "Rig":
        """Return a body fitted to a person's bones: the shipped one, dressed as person `number`, or the given one."""
        rest = motion.skeleton.rest
        if body is None:
            person = dressed(Body.shipped().fitted(motion.skeleton), number)
            vertices, normals, pieces = person.vertices, person.normals, person.pieces
            joints = np.argsort(-person.blend, axis=-1, kind="stable")[:, :4]
            weights = np.take_along_axis(person.blend, joints, -1)
        else:
            body = body.fitted(motion.skeleton)
            vertices, normals, joints, weights = body.vertices, body.normals(body.vertices), body.joints, body.weights
            pieces = (Piece("body", SHIRTS[number % len(SHIRTS)], body.faces),)
        ground = np.array((rest[0, 0], vertices[:, 1].min(), rest[0, 2]))
        weights = weights.astype(np.float32)
        weights /= weights.sum(-1, keepdims=True)
        joints = np.where(weights > 0, joints, 0).astype(np.uint8)
        normals = normals.astype(np.float32)
        # A vertex in no face, or in faces without area; glTF wants unit length of it all the same.
        normals[np.linalg.norm(normals, axis=-1) < 0.5] = (0.0, 1.0, 0.0)
        faces = np.concatenate([piece.faces for piece in pieces]).astype(np.uint32)
        return cls(rest - ground, (vertices - ground).astype(np.float32), normals, faces, joints, weights, pieces)
