"""The contract of what is in a scene: it sees a moment, remembers what it has to, and says what it does to the people."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.skeleton import JOINTS, Skeleton, joint_index
from dropsim.control.planner import Cost
from dropsim.files.names import suggestion
from dropsim.motion.motion import Event
from dropsim.physics.collider import Collider, Plane
from dropsim.physics.energy import Energy, Frame, Target
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

    centres: Float[Tensor, "*w n 3"]
    """[m]"""
    velocities: Float[Tensor, "*w n 3"]
    """[m/s]"""
    radii: Float[Tensor, "#n"]
    """[m]"""
    flying: bool = True
    """Whether they are thrown, and not obstacles."""


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

    @property
    def time(self) -> float:
        """[s]."""
        return self.frame / self.fps

    @property
    def h(self) -> float:
        """[s]."""
        return 1.0 / self.fps

    def during(self, start: float, duration: float) -> bool:
        """Tell whether something that starts at a time and lasts a while acts now, counted in whole frames."""
        # So that the momentum of a push does not depend on how its start falls between frames.
        return 0 <= self.frame - round(start * self.fps) < max(1, round(min(duration, 1e6) * self.fps))

    def only(self, person: int) -> Bool[Tensor, "*w p"]:
        """Mark one person of every world."""
        mask = torch.zeros(self.people.x.shape[:-2], dtype=torch.bool)
        mask[..., person] = True
        return mask

    def no_forces(self) -> Float[Tensor, "*w p 22 3"]:
        """Return forces of zero on everybody, to be filled in."""
        return torch.zeros_like(self.people.x)


@dataclass(frozen=True, eq=False)
class Goal:
    """Something that people look ahead for."""

    people: Bool[Tensor, "*w p"]
    """Whose goal it is."""
    cost: Cost
    """People are counted through all worlds."""


@dataclass(frozen=True, eq=False)
class StepInputs:
    """What an element does during one frame."""

    forces: Float[Tensor, "*w p 22 3"] | None = None
    """On the joints [N]."""
    energies: Sequence[Energy] = ()
    colliders: Sequence[Collider] = ()
    goals: Sequence[Goal] = ()
    held: Bool[Tensor, "*w p"] | None = None
    """Who is held with a force that nobody knows."""
    stiff: Bool[Tensor, "*w p 22"] | None = None
    """Joints that do not bend."""


Memory = TypeVar("Memory")


class Element(ABC, Generic[Memory]):
    """Something in a scene. Its own fields say what it is; what changes is kept in a memory that the world hands back to it."""

    def people(self) -> tuple[int, ...]:
        """Return the people that it concerns, so that a scene can refuse those that it does not have."""
        return ()

    def begin(self, moment: SceneContext) -> Memory | None:
        """Return its memory at the start, refusing a start that cannot be."""
        del moment

    @abstractmethod
    def act(self, memory: Memory | None, moment: SceneContext) -> tuple[Memory | None, StepInputs]:
        """Return its memory after the frame, and what it does during it."""

    def balls(self, memory: Memory | None) -> Balls | None:
        """Return the spheres that it has in the world, to be drawn and to be seen by others."""
        del memory

    @property
    def events(self) -> tuple[Event, ...]:
        """Name what happens and when, for exports."""
        return ()


@dataclass(frozen=True, eq=False)
class MaskedEnergy(Energy):
    """An energy for some of the people only."""

    energy: Energy
    people: Bool[Tensor, "*b"]
    name: str = field(init=False)
    weight: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.energy.name)
        object.__setattr__(self, "weight", self.energy.weight)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Return the energy's own."""
        return self.energy.matrix(skeleton)

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Switch the rows off for the others."""
        target = self.energy.project(x, frame)
        rows = self.people.unsqueeze(-1).expand(target.p.shape[:-1])
        return replace(target, active=rows if target.active is None else rows & target.active)


def check_finite(what: str, *numbers: float) -> None:
    """Refuse NaN and infinity."""
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{what} needs finite numbers")


def check_time(what: str, start: float, duration: float = 1.0) -> None:
    """Refuse times before the start and durations of nothing."""
    if not (math.isfinite(start) and start >= 0 and duration > 0):
        raise ValueError(f"{what} starts at 0 s or later and lasts longer than 0 s, not {start:g} s and {duration:g} s")


def check_weight(what: str, weight: float) -> None:
    """Refuse weights that would push away or blow up."""
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"{what} needs a weight above 0, not {weight:g}")


def check_rows(what: str, rows: Sequence[Sequence[float]], width: int, content: str) -> None:
    """Refuse a path in time that is too short, has the wrong number of columns or does not go forward."""
    if len(rows) < 2:
        raise ValueError(f"{what} needs a path of at least two rows ({content}), not {len(rows)}")
    if any(len(row) != width for row in rows):
        raise ValueError(f"{what} needs rows of {width} numbers: {content}")
    check_finite(what, *(value for row in rows for value in row))
    if any(b[0] <= a[0] for a, b in pairwise(rows)):
        raise ValueError(f"{what} needs times that grow from row to row")


def interpolated(rows: Sequence[Sequence[float]], time: float) -> Float[Tensor, "n"]:
    """Return the values of a path (time first) at a time: linear between rows, held before the first and after the last."""
    table = torch.tensor(rows, dtype=torch.float64)
    times = table[:, 0].contiguous()
    i = int(torch.searchsorted(times, torch.tensor(time, dtype=torch.float64)).clamp(1, len(rows) - 1))
    share = ((time - times[i - 1]) / (times[i] - times[i - 1])).clamp(0, 1)
    return torch.lerp(table[i - 1, 1:], table[i, 1:], share)


def force_on(moment: SceneContext, person: int, joints: Sequence[int], force: Float[Tensor, "*#w 3"]) -> Float[Tensor, "*w p 22 3"]:
    """Share a force evenly among some joints of a person."""
    forces = moment.no_forces()
    forces[..., person, list(joints), :] = (force / len(joints)).unsqueeze(-2).to(forces)
    return forces
