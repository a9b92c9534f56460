"""People, a ghost, objects and the ground over time, as pictures and files show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dropsim.body.rotations import normalize
from dropsim.export.hands import lifted_hands
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.scene.element import Solid


@dataclass(frozen=True, eq=False)
class Stage:
    """One world with everyone and everything in it, at one rate."""

    people: Sequence[Motion]
    """A person whose motion ends early stands still. Each gets a colour of their own."""
    ghost: Motion | None = None
    """A translucent person, e.g. the first one without the push."""
    objects: Sequence[Solid] = ()
    """Objects with a pose for each frame, as a Rollout has them; not drawn at frames where it is not finite."""
    ground: Plane = field(default_factory=Plane.ground)
    """One plane, or with a leading dimension one for each frame, as a Rollout has it. Its squares move with its
    pivot."""

    def __post_init__(self) -> None:
        if not self.people:
            raise ValueError("there is no motion: give at least one motion")
        everyone = (*self.people, *([] if self.ghost is None else [self.ghost]))
        for motion in everyone:
            _check(motion)
        rates = sorted({motion.fps for motion in everyone})
        if len(rates) > 1:
            raise ValueError(f"motions at {rates} frames per second do not fit together: resample them to one rate")
        for solid in self.objects:
            if solid.centre.shape != (len(self), 3) or solid.rotation.shape != (len(self), 3, 3):
                raise ValueError(f"the {solid.name} needs a place for each of the motion's {len(self)} frames")
            if not 0 <= solid.radius < math.inf:
                raise ValueError(f"the {solid.name} needs a positive radius, not {solid.radius:g}")
        if self.ground.normal.ndim > 2 or (self.ground.normal.ndim == 2 and len(self.ground.normal) != len(self)):
            raise ValueError(f"the ground needs one plane, or one for each of the motion's {len(self)} frames")
        length = np.linalg.norm(self.ground.normal, axis=-1)
        if not (np.isfinite(self.ground.offset).all() and np.allclose(length, 1.0)):
            raise ValueError("the ground needs a finite offset and a normal of unit length")

    def __len__(self) -> int:
        """Count the frames of the longest motion."""
        return max(len(motion) for motion in self.people)

    @property
    def fps(self) -> float:
        """Frames per second [Hz]."""
        return self.people[0].fps

    def azimuth(self, left: float = 55.0) -> float:
        """Return the angle of a camera that stands to the left of the first person's front, counterclockwise from +x [degrees]."""
        right_x, right_y = (-self.people[0].q[0, 0, :2, 0]).tolist()
        return math.degrees(math.atan2(right_y, right_x)) + 90 + left

    def plane(self, index: int | slice) -> Plane:
        """Return the ground at a frame, or at some."""
        return self.ground.map(lambda v: v[index] if v.ndim > 1 else v, lambda s: np.asarray(s[index]) if s.ndim else s)

    def lifted(self, motion: Motion) -> Motion:
        """Return a person's motion with hands bent out of the ground."""
        below = self.plane(slice(len(motion)))
        return replace(motion, q=lifted_hands(motion.q, motion.joints, motion.skeleton, below))

    def at(self, index: int) -> "Stage":
        """Return the stage at one frame, with the objects that are there; forces end with a person's motion."""

        def pose(motion: Motion) -> Motion:
            last = min(index, len(motion) - 1)
            frame = motion.slice(last, last + 1)
            return frame if last == index else replace(frame, contact_forces=None, external_forces=None)

        return replace(
            self,
            people=tuple(map(pose, self.people)),
            ghost=None if self.ghost is None else pose(self.ghost),
            objects=[solid.at(slice(index, index + 1)) for solid in self.objects if solid.there[index]],
            ground=self.plane(index),
        )

    def resampled(self, fps: float) -> "Stage":
        """Return the stage at another rate."""
        if fps == self.fps:
            return self
        last = len(self) - 1
        at = np.minimum(np.arange(int(last / self.fps * fps + 1e-6) + 1) * (self.fps / fps), last)
        low = at.astype(int)
        high, share = np.minimum(low + 1, last), at - low

        def blend(path: np.ndarray, dims: int) -> np.ndarray:
            if path.ndim == dims:
                return path
            return path[low] + (path[high] - path[low]) * share.reshape(-1, *([1] * dims))

        ground = self.ground.map(lambda vectors: blend(vectors, 1), lambda scalars: blend(scalars, 0))
        # Rotations are those of the nearest frame: at display rates nobody sees the difference.
        nearest = np.where(share < 0.5, low, high)
        objects = [replace(s, centre=blend(s.centre, 1), rotation=s.rotation[nearest]) for s in self.objects]
        return replace(
            self,
            people=tuple(motion.resampled(fps) for motion in self.people),
            ghost=None if self.ghost is None else self.ghost.resampled(fps),
            objects=objects,
            ground=replace(ground, normal=normalize(ground.normal)),
        )


def as_stage(shown: Stage | Motion) -> Stage:
    """Return a stage as it is, and a motion alone on a level floor."""
    return shown if isinstance(shown, Stage) else Stage((shown,))


def _check(motion: Motion) -> None:
    if motion.root.ndim != 2:
        raise ValueError(f"the motion is a batch of shape {tuple(motion.root.shape[:-2])}: pick one of it first")
    if len(motion) == 0:
        raise ValueError("the motion has no frames")
    if not 0 < motion.fps < math.inf:
        raise ValueError(f"the motion has {motion.fps} frames per second: expected a positive number")
    finite = (
        np.isfinite(motion.root).all(1) & np.isfinite(motion.joints).all((1, 2)) & np.isfinite(motion.q).all((1, 2, 3))
    )
    if not finite.all():
        raise ValueError(f"the motion is not finite from frame {int(finite.argmin())} on: cut it there first")
