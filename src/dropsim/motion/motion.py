"""Motion: frames over time, the one currency between the parts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import slerp_rotmat
from dropsim.body.skeleton import MIRROR, Skeleton, mirrored_rotations


@dataclass(frozen=True)
class Event:
    """Something that happened to the person, for exports and plots."""

    name: str
    """What it was, e.g. push."""
    start: float
    """Seconds from the motion's first frame [s]."""
    duration: float = 0.0
    """[s]"""


_TIME_OF_EXTRAS = {
    "touching": -2, "contact_forces": -3, "external_forces": -3, "wrench_before": -1, "wrench_after": -1,
}  # fmt: skip
"""The time axis of what is recorded along with a motion."""


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
    """On the person between the frame before and this one [N]; fitted to the motion, up to the simulator's contact
    margin away."""
    external_forces: Float[np.ndarray, "*b t 22 3"] | None = None
    """On the person between the frame before and this one [N]."""
    wrench_before: Float[np.ndarray, "*b t"] | None = None
    """Root wrench before the soft correction: change of momentum that contact does not explain [body weights]."""
    wrench_after: Float[np.ndarray, "*b t"] | None = None
    """The same after the correction [body weights]."""
    energies: Mapping[str, Float[np.ndarray, "*b t"]] = field(default_factory=dict)
    """Value of each energy by name."""
    events: tuple[Event, ...] = ()
    name: str = ""
    """Where it came from, for messages."""

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

    def _map_extras(self, change: Callable[[np.ndarray, int], np.ndarray]) -> dict[str, object]:
        """Apply a change to every per-frame extra; the change is told the time axis."""
        mapped: dict[str, object] = {
            k: None if (v := getattr(self, k)) is None else change(v, dim) for k, dim in _TIME_OF_EXTRAS.items()
        }
        mapped["energies"] = {k: change(v, -1) for k, v in self.energies.items()}
        return mapped

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> "Motion":
        """Apply a change of the leading dimensions to every part, e.g. `motion.map(lambda values: values[0])` for one person of a batch."""
        extras = self._map_extras(lambda values, _: change(values))
        return replace(self, root=change(self.root), q=change(self.q), joints=change(self.joints), **extras)

    def slice(self, start: int, stop: int) -> "Motion":
        """Return frames start to stop, as Python slices count them; events move along."""
        start, stop, _ = slice(start, stop).indices(len(self))
        if stop <= start:
            raise ValueError(f"frames {start} to {stop} hold nothing: the motion has {len(self)} frames")

        def cut(v: np.ndarray, dim: int) -> np.ndarray:
            return v[(..., slice(start, stop), *[slice(None)] * (-dim - 1))]

        shift = start / self.fps
        # Rounded, because 123 / 30 * 30 < 123 in floating point.
        events = tuple(
            replace(e, start=e.start - shift) for e in self.events if start <= round(e.start * self.fps, 6) < stop
        )
        return replace(
            self,
            root=cut(self.root, -2),
            q=cut(self.q, -4),
            joints=cut(self.joints, -3),
            events=events,
            **self._map_extras(cut),
        )

    @classmethod
    def concatenate(cls, motions: Sequence["Motion"]) -> "Motion":
        """Join motions of one rate and one skeleton end to end; an extra survives where all of them have it."""
        first = motions[0]
        if any(m.fps != first.fps for m in motions):
            raise ValueError(
                f"cannot join motions at {sorted({m.fps for m in motions})} frames per second: resample them to one rate first"
            )
        starts = [sum(len(m) for m in motions[:i]) / first.fps for i in range(len(motions))]
        events = tuple(replace(e, start=e.start + t) for m, t in zip(motions, starts, strict=True) for e in m.events)

        def join(name: str, dim: int) -> np.ndarray | None:
            parts = [getattr(m, name) for m in motions]
            return None if any(p is None for p in parts) else np.concatenate(parts, dim)

        extras = {k: join(k, dim) for k, dim in _TIME_OF_EXTRAS.items()}
        names = set.intersection(*(set(m.energies) for m in motions))
        return replace(
            first,
            root=join("root", -2),
            q=join("q", -4),
            joints=join("joints", -3),
            energies={k: np.concatenate([m.energies[k] for m in motions], -1) for k in sorted(names)},
            events=events,
            **extras,
        )

    def mirrored(self) -> "Motion":
        """Swap left and right by reflection in the plane x = 0."""
        flip = np.array([-1.0, 1.0, 1.0])

        def swap(v: np.ndarray | None) -> np.ndarray | None:
            return None if v is None else (v * flip)[..., MIRROR, :]

        return replace(
            self,
            root=self.root * flip,
            q=mirrored_rotations(self.q),
            joints=(self.joints * flip)[..., MIRROR, :],
            touching=None if self.touching is None else self.touching[..., MIRROR],
            contact_forces=swap(self.contact_forces),
            external_forces=swap(self.external_forces),
        )

    def resampled(self, fps: float) -> "Motion":
        """Return it at another rate: positions and forces by linear interpolation, rotations by slerp, contacts by nearest frame."""
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

        q = slerp_rotmat(self.q.take(low, -4), self.q.take(high, -4), share[:, None])
        root = blend(self.root, -2)
        # Bones keep their length: kinematic joints come from the rotations, and only a simulator's residual is
        # interpolated.
        residual = blend(self.joints - self.skeleton.forward(self.q, self.root), -3)
        joints = self.skeleton.forward(q, root) + residual
        return replace(self, fps=fps, root=root, q=q, joints=joints, **self._map_extras(blend))

    def velocity(self) -> Float[np.ndarray, "*b t 22 3"]:
        """Return joint velocities [m/s] by central differences, one-sided at the ends."""
        if len(self) < 2:
            return np.zeros_like(self.joints)
        return np.gradient(self.joints, 1 / self.fps, axis=-3)
