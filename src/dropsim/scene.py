"""The world around a person: what happens to it, and when."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.collider import Collider, Plane
from dropsim.motion import Event
from dropsim.prior import State
from dropsim.simulator import External
from dropsim.skeleton import NUM_JOINTS, joint_index

BODY_PARTS: dict[str, tuple[str, ...]] = {
    "pelvis": ("pelvis",),
    "torso": ("spine1", "spine2", "spine3", "left_collar", "right_collar"),
    "hand": ("right_wrist",),
    "foot": ("right_ankle",),
}
"""Names for where people push; any joint's own name will do too."""

DIRECTIONS = {"front": 0.0, "left": 90.0, "back": 180.0, "right": 270.0}
"""Degrees from the direction that the person faces at the start, counterclockwise seen from above: where the push drives it."""


def joints_of(part: str) -> tuple[int, ...]:
    """Return the joints of a body part or the joint of that name."""
    return tuple(joint_index(name) for name in BODY_PARTS.get(part, (part,)))


@dataclass(frozen=True)
class Push:
    """A force on a body part for a while, shared evenly by its joints."""

    part: str = "torso"
    """A body part (pelvis, torso, hand, foot) or a joint."""
    force: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """World [N]; a person from the bank of starts faces +y."""
    start: float = 2.0
    """[s]"""
    duration: float = 0.5
    """[s]; the paper's pushes last 15 frames."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        joints_of(self.part)
        if not all(map(math.isfinite, (*self.force, self.start, self.duration))):
            raise ValueError("a push needs finite numbers for its force, start and duration")
        if self.start < 0 or self.duration <= 0:
            raise ValueError(f"a push starts at 0 s or later and lasts longer than 0 s, not {self.start} s and {self.duration} s")

    @classmethod
    def toward(cls, direction: str, newtons: float, *, part: str = "torso", start: float = 2.0, duration: float = 0.5) -> "Push":
        """Push horizontally toward front, back, left, right, or an angle in degrees counterclockwise from the front."""
        if not math.isfinite(newtons) or newtons < 0:
            raise ValueError(f"a push needs a force of 0 N or more, not {newtons:g}: turn the direction instead of the sign")
        try:
            degrees = DIRECTIONS[direction] if direction in DIRECTIONS else float(direction)
            if not math.isfinite(degrees):
                raise ValueError
        except ValueError:
            raise ValueError(f"there is no direction {direction!r}: use {', '.join(DIRECTIONS)} or degrees from the front") from None
        angle = math.radians(degrees + 90.0)
        return cls(part, (newtons * math.cos(angle), newtons * math.sin(angle), 0.0), start, duration)

    def forces_at(self, frame: int, fps: float) -> Float[Tensor, "22 3"]:
        """Return the force on every joint during a frame [N]: from the frame nearest to its start, for its duration in whole frames."""
        forces = torch.zeros(NUM_JOINTS, 3, dtype=torch.float64)
        # Counted in frames, so that its momentum does not depend on how the start falls between them.
        if 0 <= frame - round(self.start * fps) < max(1, round(self.duration * fps)):
            joints = joints_of(self.part)
            forces[list(joints)] = torch.tensor(self.force, dtype=torch.float64) / len(joints)
        return forces

    @property
    def event(self) -> Event:
        """Name it for exports."""
        return Event(f"push {self.part}", self.start, self.duration)


@dataclass(frozen=True)
class Scene:
    """One person's world: what there is to touch, and what happens."""

    pushes: Sequence[Push] = ()
    colliders: Sequence[Collider] = (Plane.ground(),)
    fps: float = 30.0

    def __call__(self, frame: int, state: State) -> External:
        """Return what acts on the person between a frame and the next."""
        total = torch.zeros(NUM_JOINTS, 3, dtype=torch.float64)
        for push in self.pushes:
            total = total + push.forces_at(frame, self.fps)
        return External(forces=total.expand(state.x.shape).clone(), colliders=self.colliders)

    @property
    def events(self) -> tuple[Event, ...]:
        """All that happens, for exports."""
        return tuple(push.event for push in self.pushes)
