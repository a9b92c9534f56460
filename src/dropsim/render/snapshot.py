"""One frame of a stage as numbers to draw: people, triangles of objects, arrows and the floor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dropsim.body.clothes import SHIRTS, Color
from dropsim.body.skeleton import PARENTS, Skeleton
from dropsim.export.hands import lifted_hands
from dropsim.export.stage import Stage
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.render.stage import BLUE, RED
from dropsim.scene.element import Solid

GHOST = (0.48, 0.58, 0.84)
GHOST_OPACITY, GHOST_APART = 0.45, 0.25
"""Opacity of a ghost, and the mean distance of its joints from the nearest person's at which it is reached [m]; nearer,
it is less."""
METRES_PER_NEWTON, LONGEST_ARROW = 1e-3, 1.5


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
        q = lifted_hands(motion.q[index], joints, skeleton, ground)
        return cls(skeleton, joints, skeleton.global_rotations(q), shirt)


@dataclass(frozen=True, eq=False)
class Arrow:
    """An arrow for a force."""

    start: Float[np.ndarray, "3"]
    """Point where the force acts [m]."""
    way: Float[np.ndarray, "3"]
    """Vector from there to the tip [m]."""
    color: Color


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything in one picture."""

    people: tuple[Figure, ...]
    ghost: Figure | None
    ghost_opacity: float
    objects: tuple[Solid, ...]
    """Objects that are there."""
    arrows: tuple[Arrow, ...]
    floor: Plane

    @classmethod
    def of(cls, stage: Stage, index: int, *, forces: bool) -> "Snapshot":
        """Take a frame of a stage."""
        floor, moving = stage.plane(index), [motion for motion in stage.people if index < len(motion)]
        people = tuple(Figure.of(m, index, SHIRTS[i % len(SHIRTS)], floor) for i, m in enumerate(stage.people))
        ghost = None if stage.ghost is None else Figure.of(stage.ghost, index, GHOST, floor)
        objects = tuple(solid.at(index) for solid in stage.objects if solid.there[index])
        arrows = tuple(arrow for motion in moving for arrow in _arrows(motion, index)) if forces else ()
        return cls(people, ghost, _ghost_opacity(people, ghost), objects, arrows, floor)

    def balls(self) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"]]:
        """Return centres and radii of the balls that cast soft shadows: spheres, joints and the middles of bones."""
        parents, spheres = np.array(PARENTS[1:]), [solid for solid in self.objects if solid.radius]
        points, radii = [s.centre[None] for s in spheres], [np.array([s.radius]) for s in spheres]
        for figure in self.people:
            joints, sizes = figure.joints, figure.skeleton.radii
            points += [joints, (joints[1:] + joints[parents]) / 2]
            radii += [sizes, (sizes[1:] + sizes[parents]) / 2]
        return np.concatenate(points), np.concatenate(radii)


def _ghost_opacity(people: Sequence[Figure], ghost: Figure | None) -> float:
    """Let a ghost appear as it moves away from the person it coincides with."""
    if ghost is None:
        return 0.0
    apart = min(float(np.linalg.norm(figure.joints - ghost.joints, axis=1).mean()) for figure in people)
    return GHOST_OPACITY * min(apart / GHOST_APART, 1.0)


def resultants(joints: Float[np.ndarray, "22 3"], forces: Float[np.ndarray, "22 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Merge a push on neighbouring joints: return the middle and the sum of each run of bones with like forces."""
    group = list(range(len(joints)))
    for child, parent in enumerate(PARENTS):
        if parent >= 0 and np.any(forces[child]) and np.allclose(forces[child], forces[parent], rtol=0.05):
            group[child] = group[parent]
    members = [np.flatnonzero(np.array(group) == g) for g in sorted(set(group))]
    return np.stack([joints[m].mean(0) for m in members]), np.stack([forces[m].sum(0) for m in members])


def _arrows(motion: Motion, index: int) -> list[Arrow]:
    """Return arrows for a person's forces above 1 N."""
    joints, pairs = motion.joints[index], list[tuple[np.ndarray, np.ndarray, Color]]()
    if motion.contact_forces is not None:
        pairs += [(at, force, BLUE) for at, force in zip(joints, motion.contact_forces[index], strict=True)]
    if motion.external_forces is not None:
        merged = resultants(joints, motion.external_forces[index])
        pairs += [(at, force, RED) for at, force in zip(*merged, strict=True)]
    arrows = list[Arrow]()
    for at, force, color in pairs:
        newtons = float(np.linalg.norm(force))
        if 1 < newtons < np.inf:
            arrows.append(Arrow(at, force * min(METRES_PER_NEWTON, LONGEST_ARROW / newtons), color))
    return arrows
