"""One frame of a stage as numbers to draw: people, round cones and the floor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.clothes import HAIR, SHIRTS, SKIN, TROUSERS, Color
from dropsim.body.skeleton import PARENTS, Skeleton, joint_index
from dropsim.export.hands import lifted_hands
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.render.camera import Point
from dropsim.render.stage import BLUE, RED, Stage

TEAL, ORANGE = (0.11, 0.62, 0.60), (0.96, 0.55, 0.16)
GHOST = (0.48, 0.58, 0.84)
GHOST_OPACITY, GHOST_APART = 0.45, 0.25
"""Opacity of a ghost, and the mean distance of its joints from the nearest person's at which it is reached [m]; nearer,
it is less."""

METRES_PER_NEWTON, LONGEST_ARROW = 1e-3, 1.5
SHAFT, BARB = 0.012, 0.035
"""Radii of an arrow [m]."""
ARROW_LIFT = 1.0
"""How much nearer to the camera an arrow counts than it is, so that the body does not hide it [m]."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Round cones in the world, one a row: a sphere at either end and the cone tangent to both [m]."""

    near: Float[np.ndarray, "n 3"]
    far: Float[np.ndarray, "n 3"]
    radii: Float[np.ndarray, "n 2"]
    """At either end [m]."""
    color: Float[np.ndarray, "n 3"]
    squash: Float[np.ndarray, "n 3 3"]
    """The symmetric linear map that makes a flattened part round."""
    lift: Float[np.ndarray, "n"]
    """How much nearer to the camera a part counts than it is, so that less hides it [m]."""

    @classmethod
    def round(
        cls, near: np.ndarray, far: np.ndarray, radii: np.ndarray, color: np.ndarray, *, lift: float = 0.0
    ) -> "Parts":
        """Return parts that are not flattened."""
        n = len(near)
        arrays = (
            np.asarray(v, dtype=float).reshape(n, width) for v, width in ((near, 3), (far, 3), (radii, 2), (color, 3))
        )
        return cls(*arrays, squash=np.tile(np.eye(3), (n, 1, 1)), lift=np.full(n, lift))

    @classmethod
    def join(cls, groups: Sequence["Parts"]) -> "Parts":
        names = ("near", "far", "radii", "color", "squash", "lift")
        return cls(*(np.concatenate([getattr(group, name) for group in groups]) for name in names))

    def __len__(self) -> int:
        return len(self.near)


NOTHING = Parts.round(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 2)), np.zeros((0, 3)))


class _Segment(NamedTuple):
    """A part of a body made of capsules: radii in collision radii of its joints, offsets in metres of an adult in its joints' own axes."""

    near: str
    far: str
    near_radius: float
    far_radius: float
    color: Color | None
    """None is the person's shirt."""
    near_offset: Point = (0.0, 0.0, 0.0)
    """In the rest pose the axes are x left, y up, z forward."""
    far_offset: Point = (0.0, 0.0, 0.0)
    flat: int = 0
    """The axis of the far joint along which it is flattened."""
    thickness: float = 1.0
    """How thick it is along that axis, as a share of its width."""


def _side(side: str, color: Color) -> tuple[_Segment, ...]:
    """Return the limbs of one side."""
    hip, knee, ankle, foot, collar, shoulder, elbow, wrist = (
        f"{side}_{joint}" for joint in ("hip", "knee", "ankle", "foot", "collar", "shoulder", "elbow", "wrist")
    )
    zero, calf, heel, toes = (0.0, 0.0, 0.0), (0.0, -0.13, -0.018), (0.0, -0.033, -0.040), (0.0, -0.004, 0.060)
    x = 1.0 if side == "left" else -1.0
    palm, fingers, thumb = (0.065 * x, 0.0, 0.0), (0.13 * x, 0.0, 0.005), (0.07 * x, -0.01, 0.05)
    shoe = (0.5 * color[0], 0.5 * color[1], 0.5 * color[2])
    return (
        _Segment(hip, hip, 1.10, 1.08, TROUSERS, (0.0, -0.02, 0.0), (0.0, -0.13, 0.0)),
        _Segment(hip, knee, 1.04, 1.00, color, (0.0, -0.04, 0.0)),
        _Segment(knee, knee, 1.00, 1.02, color, zero, calf),
        _Segment(knee, ankle, 1.02, 0.62, color, calf),
        _Segment(ankle, ankle, 0.64, 0.60, shoe, zero, heel),
        _Segment(ankle, foot, 0.62, 1.60, shoe, (0.0, -0.01, 0.012), zero, 1, 0.68),
        _Segment(foot, foot, 1.60, 1.30, shoe, zero, toes, 1, 0.62),
        _Segment(collar, shoulder, 0.90, 0.88, None, (0.0, -0.01, 0.0)),
        _Segment("neck", shoulder, 0.75, 0.70, None, (0.0, -0.005, -0.005)),
        _Segment(shoulder, elbow, 0.96, 0.90, color),
        _Segment(elbow, wrist, 0.92, 0.62, color),
        _Segment(wrist, wrist, 0.62, 0.85, SKIN, zero, palm, 1, 0.6),
        _Segment(wrist, wrist, 0.85, 0.50, SKIN, palm, fingers, 1, 0.5),
        _Segment(wrist, wrist, 0.35, 0.28, SKIN, (0.02 * x, 0.0, 0.02), thumb),
    )


_BODY = (
    _Segment("left_hip", "right_hip", 1.06, 1.06, TROUSERS),
    _Segment("pelvis", "spine1", 1.16, 1.05, TROUSERS, (0.0, -0.02, 0.0), (0.0, 0.0, 0.0), 2, 0.82),
    _Segment("spine1", "spine3", 1.06, 1.38, None, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 2, 0.74),
    _Segment("neck", "head", 0.90, 0.50, SKIN, (0.0, -0.02, -0.01)),
    _Segment("head", "head", 0.68, 0.90, SKIN, (0.0, 0.012, 0.028), (0.0, 0.072, 0.005), 0, 0.84),
    _Segment("head", "head", 0.80, 0.91, HAIR, (0.0, 0.045, -0.028), (0.0, 0.086, -0.014), 0, 0.88),
    _Segment("head", "head", 0.14, 0.17, SKIN, (0.0, 0.065, 0.092), (0.0, 0.036, 0.103)),
    *_side("left", TEAL),
    *_side("right", ORANGE),
)
_NEAR, _FAR = (
    np.array([joint_index(name) for name in names]) for names in zip(*((s.near, s.far) for s in _BODY), strict=True)
)
_OFFSETS = np.array([(s.near_offset, s.far_offset) for s in _BODY])
_RADII = np.array([(s.near_radius, s.far_radius) for s in _BODY])
_FLAT = np.array([s.flat for s in _BODY])
_STRETCH = np.array([1 / s.thickness - 1 for s in _BODY])
_IS_SHIRT = np.array([s.color is None for s in _BODY])
_COLORS = np.array([s.color or SHIRTS[0] for s in _BODY])


@dataclass(frozen=True, eq=False)
class Figure:
    """A person at one frame."""

    skeleton: Skeleton
    joints: Float[np.ndarray, "22 3"]
    R_world: Float[np.ndarray, "22 3 3"]
    shirt: Color

    @classmethod
    def of(cls, motion: Motion, index: int, shirt: Color, ground: Plane) -> "Figure":
        """Take a frame of a motion, or the last one after its end, with hands bent out of the ground."""
        index = min(index, len(motion) - 1)
        skeleton, joints = motion.skeleton, motion.joints[index]
        return cls(
            skeleton, joints, skeleton.global_rotations(lifted_hands(motion.q[index], joints, skeleton, ground)), shirt
        )

    def capsules(self) -> Parts:
        """Return the body as round cones."""
        size, radii = self.skeleton.leg_length / (0.491 * 1.70), self.skeleton.radii
        near, far = (
            self.joints[at] + size * np.einsum("nij,nj->ni", self.R_world[at], _OFFSETS[:, end])
            for end, at in ((0, _NEAR), (1, _FAR))
        )
        axis = self.R_world[_FAR, :, _FLAT]
        squash = np.eye(3) + _STRETCH[:, None, None] * axis[:, :, None] * axis[:, None, :]
        color = np.where(_IS_SHIRT[:, None], np.array(self.shirt), _COLORS)
        return Parts(
            near, far, _RADII * np.stack((radii[_NEAR], radii[_FAR]), axis=1), color, squash, np.zeros(len(near))
        )

    def balls(self) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"]]:
        """Return the centres and radii of balls that stand for the body in its soft shadow: at the joints and halfway along the bones."""
        radii, parents = self.skeleton.radii, np.array(PARENTS[1:])
        middles, middle_radii = (self.joints[1:] + self.joints[parents]) / 2, (radii[1:] + radii[parents]) / 2
        return np.concatenate((self.joints, middles)), np.concatenate((radii, middle_radii))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything in one picture."""

    people: tuple[Figure, ...]
    ghost: Figure | None
    ghost_opacity: float
    spheres: Parts
    arrows: Parts
    floor: Plane
    triangles: Float[np.ndarray, "n 3 3"]
    """Of solid objects [m]."""
    triangle_colors: Float[np.ndarray, "n 3"]

    @classmethod
    def of(cls, stage: Stage, index: int, *, forces: bool) -> "Snapshot":
        floor = stage.plane(index)
        people = tuple(
            Figure.of(motion, index, SHIRTS[i % len(SHIRTS)], floor) for i, motion in enumerate(stage.people)
        )
        ghost = None if stage.ghost is None else Figure.of(stage.ghost, index, GHOST, floor)
        arrows = [_force_arrows(motion, index) for motion in stage.people if forces and index < len(motion)]
        here = [(sphere.path[index], sphere) for sphere in stage.spheres]
        there = [(centre, sphere) for centre, sphere in here if np.isfinite(centre).all()]
        centres = np.array([centre for centre, _ in there]).reshape(-1, 3)
        radii, colors = (
            np.array([[s.radius] * 2 for _, s in there]).reshape(-1, 2),
            np.array([s.color for _, s in there]).reshape(-1, 3),
        )
        spheres = Parts.round(centres, centres, radii, colors)
        solid = [(s.vertices @ s.rotations[index].T + s.centres[index])[s.faces] for s in stage.solids]
        shown = [
            (corners, s.color) for corners, s in zip(solid, stage.solids, strict=True) if np.isfinite(corners).all()
        ]
        triangles = np.concatenate([np.zeros((0, 3, 3)), *(corners for corners, _ in shown)])
        dyes = np.concatenate([np.zeros((0, 3)), *(np.tile(color, (len(corners), 1)) for corners, color in shown)])
        return cls(
            people,
            ghost,
            _ghost_opacity(people, ghost),
            spheres,
            Parts.join([NOTHING, *arrows]),
            floor,
            triangles,
            dyes,
        )

    def balls(self) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"]]:
        """Return the centres and radii of balls that stand for everything with a shadow."""
        points, radii = zip(*(figure.balls() for figure in self.people), strict=True)
        return np.concatenate((*points, self.spheres.near)), np.concatenate((*radii, self.spheres.radii[:, 0]))


def _ghost_opacity(people: Sequence[Figure], ghost: Figure | None) -> float:
    """Let a ghost appear as it moves away from the person it coincides with."""
    if ghost is None:
        return 0.0
    apart = min(float(np.linalg.norm(figure.joints - ghost.joints, axis=1).mean()) for figure in people)
    return GHOST_OPACITY * min(apart / GHOST_APART, 1.0)


def _force_arrows(motion: Motion, index: int) -> Parts:
    joints, groups = motion.joints[index], [NOTHING]
    if motion.contact_forces is not None:
        groups.append(_arrows(joints, motion.contact_forces[index], BLUE))
    if motion.external_forces is not None:
        groups.append(_arrows(*resultants(joints, motion.external_forces[index]), RED))
    return Parts.join(groups)


def resultants(joints: Float[np.ndarray, "22 3"], forces: Float[np.ndarray, "22 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Merge a push on several neighbouring joints: for each run of bones with like forces, return its middle and the sum."""
    group = list(range(len(joints)))
    for child, parent in enumerate(PARENTS):
        if parent >= 0 and np.any(forces[child]) and np.allclose(forces[child], forces[parent], rtol=0.05):
            group[child] = group[parent]
    members = [np.flatnonzero(np.array(group) == g) for g in sorted(set(group))]
    return np.stack([joints[m].mean(0) for m in members]), np.stack([forces[m].sum(0) for m in members])


def _arrows(starts: Float[np.ndarray, "n 3"], forces: Float[np.ndarray, "n 3"], color: Color) -> Parts:
    """Return arrows for forces [N], from the points where they act."""
    newtons = np.linalg.norm(forces, axis=1, keepdims=True)
    drawn = (newtons[:, 0] > 1) & np.isfinite(newtons[:, 0])
    if not drawn.any():
        return NOTHING
    starts, forces, newtons = starts[drawn], forces[drawn], newtons[drawn]
    length = np.minimum(newtons * METRES_PER_NEWTON, LONGEST_ARROW)
    direction = forces / newtons
    tips = starts + length * direction
    necks = tips - np.minimum(0.09, 0.7 * length) * direction
    n = len(starts)
    pieces = ((starts, necks, (SHAFT, SHAFT)), (necks, tips, (BARB, 0.002)))
    return Parts.join(
        [Parts.round(a, b, np.tile(radii, (n, 1)), np.tile(color, (n, 1)), lift=ARROW_LIFT) for a, b, radii in pieces]
    )
