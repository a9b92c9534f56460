"""Motion: frames over time, the one currency between the parts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import slerp_rotmat
from dropsim.body.skeleton import MIRROR, Skeleton, mirrored_rotations


@dataclass(frozen=True)
class Event:
    """Something that happened to the person, for exports and plots."""

    name: str
    """Kind of event, e.g. push."""
    start: float
    """Time from the motion's first frame [s]."""
    duration: float = 0.0
    """Duration [s]."""


_TIME = {"root": -2, "q": -4, "joints": -3, "touching": -2, "contact_forces": -3, "external_forces": -3} | {
    "wrench_before": -1,
    "wrench_after": -1,
}
"""Time axis of each part of a motion; energies have it last."""


@dataclass(frozen=True, eq=False)
class Motion:
    """A person's frames at a constant rate, with whatever was recorded along.

    World: z up, metres, seconds, right-handed. Leading dimensions `*b` hold independent people; time is the dimension
    before the joints.
    """

    skeleton: Skeleton
    fps: float
    """Frames per second [Hz]."""
    root: Float[np.ndarray, "*b t 3"]
    """Pelvis position [m]."""
    q: Float[np.ndarray, "*b t 22 3 3"]
    """Local rotations; the first is the pelvis' world orientation."""
    joints: Float[np.ndarray, "*b t 22 3"]
    """World joints [m]. Where a simulator solved them they may be off the bones by its stated bone error."""
    touching: Bool[np.ndarray, "*b t 22"] | None = None
    """Joints whose spheres touch something."""
    contact_forces: Float[np.ndarray, "*b t 22 3"] | None = None
    """Forces of contact on the person between the frame before and this one [N]; fitted to the motion, up to the
    simulator's contact margin away."""
    external_forces: Float[np.ndarray, "*b t 22 3"] | None = None
    """Other forces on the person between the frame before and this one [N]."""
    wrench_before: Float[np.ndarray, "*b t"] | None = None
    """Root wrench before the soft correction: change of momentum that contact does not explain [body weights]."""
    wrench_after: Float[np.ndarray, "*b t"] | None = None
    """The same after the correction [body weights]."""
    energies: Mapping[str, Float[np.ndarray, "*b t"]] = field(default_factory=dict)
    """Value of each energy by name."""
    events: tuple[Event, ...] = ()
    name: str = ""
    """Origin, for messages."""

    @classmethod
    def from_rotations(
        cls,
        skeleton: Skeleton,
        fps: float,
        root: Float[np.ndarray, "*b t 3"],
        q: Float[np.ndarray, "*b t 22 3 3"],
        *,
        name: str = "",
    ) -> "Motion":
        """Build a motion whose joints follow from the rotations by forward kinematics."""
        return cls(skeleton, fps, root, q, skeleton.forward(q, root), name=name)

    def __len__(self) -> int:
        """Count the frames."""
        return self.root.shape[-2]

    @property
    def duration(self) -> float:
        """Time from the first frame to the last [s]."""
        return (len(self) - 1) / self.fps

    def _map(self, change: Callable[[np.ndarray, int], np.ndarray]) -> "Motion":
        """Apply a change, which is given the time axis, to every part."""
        parts = {name: getattr(self, name) for name in _TIME}
        parts = {name: change(part, _TIME[name]) for name, part in parts.items() if part is not None}
        return replace(self, **parts, energies={name: change(part, -1) for name, part in self.energies.items()})

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> "Motion":
        """Apply a change of the leading dimensions to every part, e.g. `motion.map(lambda values: values[0])`."""
        return self._map(lambda part, _: change(part))

    def slice(self, start: int, stop: int) -> "Motion":
        """Return frames start to stop, as Python slices count them; events move along."""
        start, stop, _ = slice(start, stop).indices(len(self))
        if stop <= start:
            raise ValueError(f"frames {start} to {stop} hold nothing: the motion has {len(self)} frames")
        # Rounded, because 123 / 30 * 30 < 123 in floating point.
        events = (e for e in self.events if start <= round(e.start * self.fps, 6) < stop)
        events = tuple(replace(e, start=e.start - start / self.fps) for e in events)
        cut = self._map(lambda part, dim: part[(..., slice(start, stop), *[slice(None)] * (-dim - 1))])
        return replace(cut, events=events)

    @classmethod
    def concatenate(cls, motions: Sequence["Motion"]) -> "Motion":
        """Join motions of one rate and one skeleton end to end; an extra survives where all of them have it."""
        first = motions[0]
        if len(rates := {motion.fps for motion in motions}) > 1:
            raise ValueError(
                f"cannot join motions at {sorted(rates)} frames per second: resample them to one rate first"
            )
        starts = [sum(len(m) for m in motions[:i]) / first.fps for i in range(len(motions))]
        events = tuple(replace(e, start=e.start + t) for m, t in zip(motions, starts, strict=True) for e in m.events)

        def join(name: str, dim: int) -> np.ndarray | None:
            parts = [getattr(motion, name) for motion in motions]
            return None if any(part is None for part in parts) else np.concatenate(parts, dim)

        names = sorted(set.intersection(*(set(motion.energies) for motion in motions)))
        energies = {name: np.concatenate([motion.energies[name] for motion in motions], -1) for name in names}
        parts: dict[str, Any] = {name: join(name, dim) for name, dim in _TIME.items()}
        return replace(first, **parts, energies=energies, events=events)

    def mirrored(self) -> "Motion":
        """Swap left and right by reflection in the plane x = 0."""
        flip = np.array([-1.0, 1.0, 1.0])
        vectors = {name: getattr(self, name) for name in ("joints", "contact_forces", "external_forces")}
        vectors = {name: (v * flip)[..., MIRROR, :] for name, v in vectors.items() if v is not None}
        touching = None if self.touching is None else self.touching[..., MIRROR]
        return replace(self, root=self.root * flip, q=mirrored_rotations(self.q), touching=touching, **vectors)

    def resampled(self, fps: float) -> "Motion":
        """Return it at another rate: rotations by slerp, contacts by the nearest frame, all else linearly."""
        if not (fps > 0 and math.isfinite(fps)):
            raise ValueError(f"cannot resample to {fps} frames per second: give a positive number")
        if fps == self.fps:
            return self
        # A hair of slack keeps the last frame when the duration is a whole number of the new frames.
        count = int(self.duration * fps + 1e-6) + 1
        at = np.minimum(np.arange(count) * (self.fps / fps), len(self) - 1)
        low = np.minimum(at.astype(np.int64), max(len(self) - 2, 0))
        high = np.minimum(low + 1, len(self) - 1)
        share = at - low

        def blend(v: np.ndarray, dim: int) -> np.ndarray:
            if v.dtype == np.bool_:
                return v.take(np.rint(at).astype(np.int64), dim)
            weight = share.reshape(-1, *([1] * (-dim - 1)))
            return (1 - weight) * v.take(low, dim) + weight * v.take(high, dim)

        # Bones keep their length: kinematic joints come from the rotations, and only a simulator's residual is
        # interpolated.
        residual = blend(self.joints - self.skeleton.forward(self.q, self.root), -3)
        q = slerp_rotmat(self.q.take(low, -4), self.q.take(high, -4), share[:, None])
        blended = self._map(blend)
        return replace(blended, fps=fps, q=q, joints=self.skeleton.forward(q, blended.root) + residual)

    def velocity(self) -> Float[np.ndarray, "*b t 22 3"]:
        """Return joint velocities [m/s] by central differences, one-sided at the ends."""
        if len(self) < 2:
            return np.zeros_like(self.joints)
        return np.gradient(self.joints, 1 / self.fps, axis=-3)
