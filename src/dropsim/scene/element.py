"""The contract of what is in a scene: it sees the world between two frames, remembers what it has to, and says what it does to people."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.skeleton import JOINTS, Skeleton, joint_index
from dropsim.control.floor import Footing, kept_from_walls
from dropsim.files.names import suggestion
from dropsim.motion.motion import Event
from dropsim.physics.contact import Collider, Plane, Solids
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import StepInputs
from dropsim.priors.prior import State

BODY_PARTS: dict[str, tuple[str, ...]] = {
    "pelvis": ("pelvis",),
    "torso": ("spine1", "spine2", "spine3", "left_collar", "right_collar"),
    "hand": ("right_wrist",),
    "foot": ("right_ankle",),
}
"""Names for where people push; any joint's own name will do too."""


def joints_of(part: str) -> tuple[int, ...]:
    """Return the joints of a body part or the joint of that name."""
    if part not in BODY_PARTS and part not in JOINTS:
        raise ValueError(f"there is no joint {part!r}: {suggestion(part, (*BODY_PARTS, *JOINTS))}")
    return tuple(joint_index(name) for name in BODY_PARTS.get(part, (part,)))


@dataclass(frozen=True, eq=False)
class Balls:
    """Spheres that fly about or lie around."""

    centres: Float[np.ndarray, "*w n 3"]
    """[m]"""
    velocities: Float[np.ndarray, "*w n 3"]
    """[m/s]"""
    radii: Float[np.ndarray, "#n"]
    """[m]"""
    flying: bool = True
    """Whether they are thrown; obstacles are not."""


@dataclass(frozen=True, eq=False)
class Solid:
    """A solid object, to be drawn and exported: triangles that move as one."""

    name: str
    """What it is, such as box."""
    vertices: Float[np.ndarray, "v 3"]
    """In its own axes [m]."""
    faces: Int[np.ndarray, "f 3"]
    """Counterclockwise seen from outside."""
    centre: Float[np.ndarray, "*w 3"]
    """Where its own axes are [m]."""
    rotation: Float[np.ndarray, "*w 3 3"]
    """From its own axes to the world's."""


@dataclass(frozen=True, eq=False)
class SceneContext:
    """What an element of a scene sees: the world between a frame and the next."""

    frame: int
    fps: float
    """[Hz]"""
    people: State
    """Of every world `*w` and person: x has the shape *w p 22 3."""
    skeleton: Skeleton
    ground: Plane
    """As it will be at the frame's end."""
    balls: Sequence[Balls] = ()
    """As they were at the last frame."""
    footing: Footing | None = None
    """The ground under people who are on more than a plane, as it was at the last frame."""
    around: Solids | None = None
    """What can be touched, if there is more than a plane, as it was at the last frame."""
    options: SimulatorOptions = field(default_factory=SimulatorOptions)
    """With which people are moved."""

    @property
    def time(self) -> float:
        """[s]."""
        return self.frame / self.fps

    @property
    def h(self) -> float:
        """[s]."""
        return 1.0 / self.fps

    @property
    def batch(self) -> tuple[int, ...]:
        """Dimensions of worlds and people."""
        return self.people.x.shape[:-2]

    @property
    def floor(self) -> Float[np.ndarray, "*w p"]:
        """Height of the ground under each person [m]."""
        return height_of(self.ground, self.people.x[..., 0, :2]) if self.footing is None else self.footing.floor

    def clear_of_walls(self, velocity: Float[np.ndarray, "*w p 2"]) -> Float[np.ndarray, "*w p 2"]:
        """Return velocities to go at with which people can stop before the walls that they see."""
        return velocity if self.around is None else kept_from_walls(velocity, self.people, self.floor, self.around)

    def during(self, start: float, duration: float) -> bool:
        """Tell whether something that starts at a time and lasts a while acts now, counted in whole frames."""
        # So that the momentum of a push does not depend on how its start falls between frames.
        return 0 <= self.frame - round(start * self.fps) < max(1, round(min(duration, 1e6) * self.fps))

    def only(self, person: int) -> Bool[np.ndarray, "*w p"]:
        """Mark one person of every world."""
        mask = np.zeros(self.batch, dtype=np.bool_)
        mask[..., person] = True
        return mask

    def force_on(
        self, person: int, joints: Sequence[int], force: Float[np.ndarray, "*#w 3"]
    ) -> Float[np.ndarray, "*w p 22 3"]:
        """Share a force evenly among some joints of a person."""
        forces = np.zeros(self.people.x.shape)
        forces[..., person, list(joints), :] = (force / len(joints))[..., None, :]
        return forces


def height_of(plane: Plane, place: Float[np.ndarray, "*w p 2"]) -> Float[np.ndarray, "*w p"]:
    """Return the height of the ground under some places [m]."""
    normal = plane.normal[..., None, :]
    return (plane.offset[..., None] - (normal[..., :2] * place).sum(-1)) / normal[..., 2]


Memory = TypeVar("Memory")


class Element(ABC, Generic[Memory]):
    """Something in a scene. Its fields say what it is; what changes is kept in a memory that the world hands back to it."""

    def people(self) -> tuple[int, ...]:
        """Return the people that it concerns; none means everyone."""
        return ()

    def begin(self, context: SceneContext) -> Memory | None:
        """Return its memory at the start, and refuse a start that cannot be."""
        del context

    @abstractmethod
    def act(self, memory: Memory | None, context: SceneContext) -> tuple[Memory | None, StepInputs]:
        """Return its memory after the frame, and what it does during it."""

    def after(self, memory: Memory | None, context: SceneContext) -> tuple[Memory | None, tuple[Collider, ...]]:
        """Return its memory once people have moved, and what of it cannot make way for those who went into it.

        The context has people, and what can be touched, as they are at the frame's end. The step asks for the latter
        before that, when people have settled and their rotations are still those of the last frame; they settle once
        more then.
        """
        del context
        return memory, ()

    def balls(self, memory: Memory | None) -> Balls | None:
        """Return the spheres that it has in the world, to be drawn and to be seen by others."""
        del memory

    def solids(self, memory: Memory | None) -> Sequence[Solid]:
        """Return the solid objects that it has in the world, to be drawn."""
        del memory
        return ()

    @property
    def events(self) -> tuple[Event, ...]:
        """What happens and when, for exports."""
        return ()


def check_finite(what: str, *numbers: float) -> None:
    """Refuse NaN and infinity."""
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{what} needs finite numbers")


def check_time(what: str, start: float, duration: float = 1.0) -> None:
    """Refuse times before the start and empty durations."""
    if not (math.isfinite(start) and start >= 0 and duration > 0):
        raise ValueError(f"{what} starts at 0 s or later and lasts longer than 0 s, not {start:g} s and {duration:g} s")


def check_weight(what: str, weight: float) -> None:
    """Refuse weights that would push away or blow up."""
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"{what} needs a weight above 0, not {weight:g}")


def check_friction(what: str, friction: float | None) -> None:
    """Refuse a friction that no surface has; None is the simulator's own."""
    if friction is not None and not 0.01 <= friction <= 10:
        raise ValueError(f"{what} has a friction between 0.01 and 10, not {friction:g}: ice has 0.05, rubber 0.8")


def check_loose(what: str, mass: float | None, bounce: float) -> None:
    """Refuse a loose object that no substep could move well."""
    if mass is not None and not (0.05 <= mass <= 10_000):
        raise ValueError(f"{what} that is loose has a mass between 0.05 and 10000 kg, not {mass:g}")
    if not 0 <= bounce <= 1:
        raise ValueError(f"{what} keeps a share between 0 and 1 of its speed when it bounces, not {bounce:g}")


def check_rows(what: str, rows: Sequence[Sequence[float]], width: int, content: str) -> None:
    """Refuse a path in time that is too short, has the wrong number of columns or does not go forward."""
    if len(rows) < 2:
        raise ValueError(f"{what} needs a path of at least two rows ({content}), not {len(rows)}")
    if any(len(row) != width for row in rows):
        raise ValueError(f"{what} needs rows of {width} numbers: {content}")
    check_finite(what, *(value for row in rows for value in row))
    if any(b[0] <= a[0] for a, b in pairwise(rows)):
        raise ValueError(f"{what} needs times that grow from row to row")


def interpolated(rows: Sequence[Sequence[float]], time: float) -> Float[np.ndarray, "n"]:
    """Return the values of a path (time first) at a time: linear between rows, held before the first and after the last."""
    i = min(max(sum(row[0] < time for row in rows), 1), len(rows) - 1)
    (t0, *a), (t1, *b) = rows[i - 1], rows[i]
    share = min(max((time - t0) / (t1 - t0), 0.0), 1.0)
    return (1 - share) * np.array(a) + share * np.array(b)
