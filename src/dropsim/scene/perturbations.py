"""Perturbations of a person: push, drag, pin, follow, dodge, stiff joint."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import heading
from dropsim.body.skeleton import JOINTS, PARENTS, joint_index
from dropsim.files.units import (
    Metres,
    MetresPerSecond,
    MetresPerSecond2,
    Newtons,
    NewtonSecondsPerMetre,
    NewtonsPerMetre,
    Seconds,
)
from dropsim.motion.motion import Event
from dropsim.physics.energies import CentreOfMassVelocity, CollinearEnergy, MaskedEnergy, Spring
from dropsim.physics.energies import Pin as PinEnergy
from dropsim.physics.settle import Holds
from dropsim.physics.step import StepInputs
from dropsim.priors.intent import Intent
from dropsim.scene.element import Element, SceneContext, check_numbers, check_rows, interpolated, joints_of

DIRECTIONS = {"front": 0.0, "left": 90.0, "back": 180.0, "right": 270.0}
"""Degrees from the direction that the person faces at the start, counterclockwise seen from above: where the push
drives it."""
STIFFENING = 0.5
"""Time in which a joint stiffens [s]: a bent knee that straightened at once would snap."""


@dataclass(frozen=True)
class Push(Element[None]):
    """A force on a body part for a while, shared evenly by its joints."""

    label: ClassVar[str] = "push {part}"

    part: str = "torso"
    """A body part (pelvis, torso, hand, foot) or a joint."""
    force: tuple[Newtons, Newtons, Newtons] = (0.0, 0.0, 0.0)
    """Force in the world's axes; a person from the bank of starts faces +y."""
    start: Seconds = 2.0
    duration: Seconds = 0.5
    """The paper's pushes last 15 frames."""
    person: int = 0

    def __post_init__(self) -> None:
        joints_of(self.part)
        check_numbers(self)

    @classmethod
    def toward(
        cls,
        direction: str,
        newtons: Newtons,
        *,
        part: str = "torso",
        start: Seconds = 2.0,
        duration: Seconds = 0.5,
        person: int = 0,
    ) -> "Push":
        """Push horizontally toward front, back, left, right, or an angle in degrees counterclockwise from the front."""
        if not 0 <= newtons < math.inf:
            raise ValueError(f"a push needs a force of 0 N or more, not {newtons:g}: turn the direction, not the sign")
        angle = math.radians(degrees_of(direction) + 90.0)
        return cls(part, (newtons * math.cos(angle), newtons * math.sin(angle), 0.0), start, duration, person)

    def act(self, memory: None, context: SceneContext) -> tuple[None, StepInputs]:
        if not context.during(self.start, self.duration):
            return memory, StepInputs()
        return memory, StepInputs(forces=context.force_on(self.person, joints_of(self.part), np.array(self.force)))


def degrees_of(direction: str) -> float:
    """Return a direction's angle counterclockwise from the front [degrees]."""
    try:
        degrees = DIRECTIONS[direction] if direction in DIRECTIONS else float(direction)
    except ValueError:
        degrees = math.nan
    if not math.isfinite(degrees):
        known = ", ".join(DIRECTIONS)
        raise ValueError(f"there is no direction {direction!r}: use {known} or degrees from the front")
    return degrees


@dataclass(frozen=True)
class Drag(Element[np.ndarray]):
    """A joint drawn by a spring and damper toward a point that moves: a constraint by force, as a hand that is led."""

    joint: str = "right_wrist"
    path: tuple[tuple[Seconds, Metres, Metres, Metres], ...] = ()
    """Rows of time [s] and point [m]; linear between them."""
    stiffness: NewtonsPerMetre = 300.0
    damping: NewtonSecondsPerMetre = 40.0
    largest: Newtons = 200.0
    """Largest force of the spring and damper."""
    relative: bool = False
    """True if points are relative to the joint's place when the path begins."""
    goes_along: bool = False
    """True if the person wants to go where the point will be a second later."""
    person: int = 0

    def __post_init__(self) -> None:
        joint_index(self.joint)
        check_numbers(self, stiffness="(0, inf)", damping="[0, inf)")
        check_rows("a drag", self.path, "time [s], x, y, z [m]")

    def target(self, time: float) -> Float[np.ndarray, "3"]:
        """Return the point at a time, before what it may be relative to [m]."""
        return interpolated(self.path, time)

    def act(self, memory: np.ndarray | None, context: SceneContext) -> tuple[np.ndarray | None, StepInputs]:
        """Draw the joint from the path's first time to its last."""
        first, last = self.path[0][0], self.path[-1][0]
        if not context.during(first, last - first):
            return memory, StepInputs()
        joint = joint_index(self.joint)
        x, v = context.people.x[..., self.person, joint, :], context.people.v[..., self.person, joint, :]
        if memory is None:
            memory = x if self.relative else np.zeros_like(x)
        now, soon = self.target(context.time), self.target(context.time + context.h)
        force = self.stiffness * (memory + soon - x) + self.damping * ((soon - now) * context.fps - v)
        force = force * (self.largest / np.maximum(np.linalg.norm(force, axis=-1, keepdims=True), self.largest))
        velocity, people = np.zeros((*context.batch, 2)), context.only(self.person)
        velocity[..., self.person, :] = (memory + self.target(context.time + 1.0) - x)[..., :2]
        intent = Intent.toward(velocity).only(people) if self.goes_along else None
        return memory, StepInputs(forces=context.force_on(self.person, (joint,), force), intent=intent)

    @property
    def events(self) -> tuple[Event, ...]:
        return (Event(f"drag {self.joint}", self.path[0][0], self.path[-1][0] - self.path[0][0]),)


@dataclass(frozen=True)
class Pin(Element[np.ndarray]):
    """A joint held at a point for a while: an energy draws it there, and a bounded force keeps it."""

    label: ClassVar[str] = "pin {joint}"

    joint: str = "right_wrist"
    target: tuple[Metres, Metres, Metres] | None = None
    """Point in the world; the joint's place at the start unless given."""
    start: Seconds = 1.0
    duration: Seconds = 1.0
    weight: float = 100.0
    """Weight of the energy."""
    largest: Newtons = 500.0
    """Largest holding force: about that of a hand's grip."""
    person: int = 0

    def __post_init__(self) -> None:
        joint_index(self.joint)
        check_numbers(self, duration="(0, inf]")

    def act(self, memory: np.ndarray | None, context: SceneContext) -> tuple[np.ndarray | None, StepInputs]:
        if not context.during(self.start, self.duration):
            return memory, StepInputs()
        if memory is None:
            here = context.people.x[..., self.person, joint_index(self.joint), :]
            memory = here.copy() if self.target is None else np.broadcast_to(np.array(self.target), here.shape)
        people = context.only(self.person)
        energy = PinEnergy(self.joint, np.broadcast_to(memory[..., None, :], (*context.batch, 3)), weight=self.weight)
        return memory, StepInputs(
            energies=(MaskedEnergy(energy, people),),
            holds=held_at(context, self.person, self.joint, memory, self.largest),
        )


def held_at(
    context: SceneContext,
    person: int,
    joint: str,
    point: Float[np.ndarray, "*w 3"],
    largest: float,
    *,
    ahead: Float[np.ndarray, "*w 3"] | None = None,
    held: np.ndarray | bool = True,
) -> Holds:
    """Hold a joint of a person at a point, or keep it from going `ahead` of it; `held` says in which worlds."""
    holds, at = Holds.nothing(*context.batch), joint_index(joint)
    holds.points[..., person, at, :] = np.where(np.asarray(held)[..., None], point, np.nan)
    holds.ahead[..., person, at, :] = 0.0 if ahead is None else ahead
    holds.largest[..., person, at] = largest
    return holds


@dataclass(frozen=True)
class Follow(Element[None]):
    """A velocity to go at: the person's intent, and E_com draws gently."""

    velocities: tuple[tuple[Seconds, MetresPerSecond, MetresPerSecond], ...] = ((0.0, 0.0, 1.2),)
    """Rows of time [s] and horizontal velocity [m/s], each held until the next."""
    weight: float = 0.1
    """Weight of E_com."""
    acceleration: MetresPerSecond2 = 3.0
    """Rate at which one row's velocity passes into the next: people who run and turn at once fall."""
    person: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, acceleration="(0, inf]", weight="[0, inf)")
        check_rows("to follow", self.velocities, "time [s], velocity along x, velocity along y [m/s]", least=1)

    @classmethod
    def square(
        cls, speed: MetresPerSecond, *, every: Seconds = 4.0, seconds: Seconds = 20.0, person: int = 0
    ) -> "Follow":
        """Go round a square, turning left after every so many seconds."""
        if not (speed > 0 and every > 0 and 0 < seconds <= 10_000 * every):
            raise ValueError("a square needs a positive speed, time and duration, and no more than 10000 turns")
        ways = ((0.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (1.0, 0.0))
        rows = [(i * every, *(speed * part for part in ways[i % 4])) for i in range(math.ceil(seconds / every))]
        return cls(tuple((t, x, y) for t, x, y in rows), person=person)

    def velocity_at(self, time: float) -> tuple[float, float]:
        """Return the velocity to go at [m/s]."""
        past = [row for row in self.velocities if row[0] <= time + 1e-9]
        if not past:
            return 0.0, 0.0
        since, x, y = past[-1]
        _, x0, y0 = past[-2] if len(past) > 1 else past[-1]
        share = min(1.0, self.acceleration * (time - since) / max(math.hypot(x - x0, y - y0), 1e-9))
        return x0 + share * (x - x0), y0 + share * (y - y0)

    def act(self, memory: None, context: SceneContext) -> tuple[None, StepInputs]:
        velocity = np.broadcast_to(np.array(self.velocity_at(context.time)), (*context.batch, 2))
        return memory, led_by(context.clear_of_walls(velocity), self.weight, context.only(self.person))

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(Event(f"go at ({x:g}, {y:g}) m/s", t) for t, x, y in self.velocities)


def led_by(
    velocity: Float[np.ndarray, "*w p 2"], weight: float, people: np.ndarray, *, look_ahead: bool = True
) -> StepInputs:
    """Return the intent to go at a velocity, and the gentle energy of it."""
    energies = (MaskedEnergy(CentreOfMassVelocity(velocity, weight=weight), people),) if weight > 0 else ()
    return StepInputs(energies=energies, intent=Intent.toward(velocity, look_ahead=look_ahead).only(people))


@dataclass(frozen=True)
class Dodge(Element[None]):
    """The person goes out of the way of balls that come near."""

    speed: MetresPerSecond = 2.0
    reach: Metres = 0.8
    """Balls that will pass nearer than this are dodged."""
    sight: Seconds = 1.2
    """Time ahead at which the person sees them come."""
    person: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, speed="(0, inf)", reach="(0, inf)", sight="(0, inf)")

    def act(self, memory: None, context: SceneContext) -> tuple[None, StepInputs]:
        """Step aside, away from where the balls will pass."""
        centre = context.skeleton.centre_of_mass(context.people.x)[..., self.person, :2]
        pace = context.people.v[..., self.person, 0, :2]
        way = np.zeros_like(centre)
        for ball in context.objects:
            if ball.name != "ball":
                continue
            apart, moving = ball.centre[..., :2] - centre, ball.velocity[..., :2] - pace
            when = -(apart * moving).sum(-1) / np.maximum((moving**2).sum(-1), 1e-6)
            miss = apart + np.maximum(when, 0)[..., None] * moving
            coming = (when > 0) & (when < self.sight) & (np.linalg.norm(miss, axis=-1) < self.reach)
            side = np.stack((-moving[..., 1], moving[..., 0]), -1)
            side = side / np.maximum(np.linalg.norm(side, axis=-1, keepdims=True), 1e-6)
            side = np.where((side * miss).sum(-1, keepdims=True) > 0, -side, side)
            way = way + coming[..., None] * side / (0.2 + np.maximum(when, 0))[..., None]
        strength = np.linalg.norm(way, axis=-1, keepdims=True)
        velocity, people = np.zeros((*context.batch, 2)), context.only(self.person)
        velocity[..., self.person, :] = self.speed * way / np.maximum(strength, 1e-6)
        people[..., self.person] = strength[..., 0] > 0
        return memory, led_by(velocity, 0.2, people, look_ahead=False) if people.any() else StepInputs()


@dataclass(frozen=True)
class StiffJoint(Element[np.ndarray]):
    """A joint that does not bend: a spring keeps its neighbours, such as hip and ankle, as far apart as they can be."""

    joint_a: str = "right_hip"
    joint_b: str = "right_ankle"
    weight: float = 100.0
    start: Seconds = 0.0
    person: int = 0

    def __post_init__(self) -> None:
        check_numbers(self)
        if PARENTS[PARENTS[joint_index(self.joint_b)]] != joint_index(self.joint_a):
            raise ValueError(
                f"{self.joint_a} and {self.joint_b} have no single joint between them: give e.g. right_hip, right_ankle"
            )

    def act(self, memory: np.ndarray | None, context: SceneContext) -> tuple[np.ndarray | None, StepInputs]:
        """Keep the two ends apart; at first as far as they are, and over half a second as far as they can be."""
        if context.frame < round(self.start * context.fps):
            return memory, StepInputs()
        a, b = joint_index(self.joint_a), joint_index(self.joint_b)
        apart = np.linalg.norm(context.people.x[..., a, :] - context.people.x[..., b, :], axis=-1)
        begin = apart if memory is None else memory
        share = min(1.0, (context.time - self.start + context.h) / STIFFENING)
        longest = 0.998 * float(context.skeleton.lengths[b] + context.skeleton.lengths[PARENTS[b]])
        people = context.only(self.person)
        spring = Spring(self.joint_a, self.joint_b, (1 - share) * begin + share * longest, weight=self.weight)
        collinear = CollinearEnergy(self.joint_a, JOINTS[PARENTS[b]], self.joint_b, weight=self.weight * share**2)
        return begin, StepInputs(energies=(MaskedEnergy(spring, people), MaskedEnergy(collinear, people)))


def ahead_of(q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b 2"]:
    """Return the horizontal direction that a body faces."""
    return heading(q[..., 0, :, :])[..., 1, :2]
