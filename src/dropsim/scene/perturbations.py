"""What is done to a person: pushed, dragged, held, led, stiffened."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dropsim.body.rotations import heading
from dropsim.body.skeleton import JOINTS, PARENTS, joint_index
from dropsim.motion.motion import Event
from dropsim.physics.energies.editing import CentreOfMassVelocity, Spring, CollinearEnergy
from dropsim.physics.energies.editing import Pin as PinEnergy
from dropsim.scene.element import (
    Element,
    For,
    Goal,
    StepInputs,
    SceneContext,
    check_finite,
    check_rows,
    check_time,
    check_weight,
    force_on,
    interpolated,
    joints_of,
)

DIRECTIONS = {"front": 0.0, "left": 90.0, "back": 180.0, "right": 270.0}
"""Degrees from the direction that the person faces at the start, counterclockwise seen from above: where the push drives it."""
WALKING_HEIGHT = 0.87
"""Of the pelvis, as a share of its height in the rest pose, below which somebody who walks sinks."""


@dataclass(frozen=True)
class Push(Element[None]):
    """A force on a body part for a while, shared evenly by its joints."""

    part: str = "torso"
    """A body part (pelvis, torso, hand, foot) or a joint."""
    force: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """World [N]; a person from the bank of starts faces +y."""
    start: float = 2.0
    """[s]"""
    duration: float = 0.5
    """[s]; the paper's pushes last 15 frames."""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        joints_of(self.part)
        check_finite("a push", *self.force, self.start, self.duration)
        check_time("a push", self.start, self.duration)

    @classmethod
    def toward(
        cls, direction: str, newtons: float, *, part: str = "torso", start: float = 2.0, duration: float = 0.5, person: int = 0
    ) -> "Push":
        """Push horizontally toward front, back, left, right, or an angle in degrees counterclockwise from the front."""
        if not math.isfinite(newtons) or newtons < 0:
            raise ValueError(f"a push needs a force of 0 N or more, not {newtons:g}: turn the direction instead of the sign")
        angle = math.radians(degrees_of(direction) + 90.0)
        return cls(part, (newtons * math.cos(angle), newtons * math.sin(angle), 0.0), start, duration, person)

    def people(self) -> tuple[int, ...]:
        """Return who is pushed."""
        return (self.person,)

    def act(self, memory: None, moment: SceneContext) -> tuple[None, StepInputs]:
        """Push while it lasts."""
        if not moment.during(self.start, self.duration):
            return memory, StepInputs()
        force = torch.tensor(self.force, dtype=torch.float64)
        return memory, StepInputs(forces=force_on(moment, self.person, joints_of(self.part), force))

    @property
    def events(self) -> tuple[Event, ...]:
        """Name it for exports."""
        return (Event(f"push {self.part}", self.start, self.duration),)


def degrees_of(direction: str) -> float:
    """Return a direction's angle counterclockwise from the front [degrees]."""
    try:
        degrees = DIRECTIONS[direction] if direction in DIRECTIONS else float(direction)
        if not math.isfinite(degrees):
            raise ValueError
    except ValueError:
        raise ValueError(f"there is no direction {direction!r}: use {', '.join(DIRECTIONS)} or degrees from the front") from None
    return degrees


@dataclass(frozen=True)
class Drag(Element[Tensor]):
    """A joint drawn by a spring and damper toward a point that moves: a constraint by force, as a hand that is led."""

    joint: str = "right_wrist"
    path: tuple[tuple[float, float, float, float], ...] = ()
    """Rows of time [s] and point [m]; linear between them."""
    stiffness: float = 300.0
    """[N/m]"""
    damping: float = 40.0
    """[N s/m]"""
    largest: float = 200.0
    """The most that it draws [N]."""
    relative: bool = False
    """Whether the points are relative to where the joint is when the path begins."""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        joint_index(self.joint)
        check_rows("a drag", self.path, 4, "time [s], x, y, z [m]")
        check_finite("a drag", self.stiffness, self.damping, self.largest)
        if not (self.stiffness > 0 and self.damping >= 0 and self.largest > 0):
            raise ValueError("a drag needs a positive stiffness and a largest force, and no negative damping")

    def people(self) -> tuple[int, ...]:
        """Return who is dragged."""
        return (self.person,)

    def target(self, time: float) -> Float[Tensor, "3"]:
        """Return the point at a time, before what it may be relative to [m]."""
        return interpolated(self.path, time)

    def act(self, memory: Tensor | None, moment: SceneContext) -> tuple[Tensor | None, StepInputs]:
        """Draw the joint from the path's first time to its last."""
        first, last = self.path[0][0], self.path[-1][0]
        if not moment.during(first, last - first):
            return memory, StepInputs()
        joint = joint_index(self.joint)
        x, v = moment.people.x[..., self.person, joint, :], moment.people.v[..., self.person, joint, :]
        if memory is None:
            memory = x if self.relative else torch.zeros_like(x)
        point = memory + self.target(moment.time + moment.h)
        pace = (self.target(moment.time + moment.h) - self.target(moment.time)) * moment.fps
        force = self.stiffness * (point - x) + self.damping * (pace - v)
        force = force * (self.largest / force.norm(dim=-1, keepdim=True).clamp(min=self.largest))
        return memory, StepInputs(forces=force_on(moment, self.person, (joint,), force))

    @property
    def events(self) -> tuple[Event, ...]:
        """Name it for exports."""
        return (Event(f"drag {self.joint}", self.path[0][0], self.path[-1][0] - self.path[0][0]),)


@dataclass(frozen=True)
class Pin(Element[Tensor]):
    """A joint held at a point for a while, by an energy."""

    joint: str = "right_wrist"
    target: tuple[float, float, float] | None = None
    """World [m]; where the joint is at the start unless given."""
    start: float = 1.0
    """[s]"""
    duration: float = 1.0
    """[s]"""
    weight: float = 100.0
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        joint_index(self.joint)
        check_time("a pin", self.start, self.duration)
        check_finite("a pin", *(self.target or ()))
        check_weight("a pin", self.weight)

    def people(self) -> tuple[int, ...]:
        """Return who is held."""
        return (self.person,)

    def act(self, memory: Tensor | None, moment: SceneContext) -> tuple[Tensor | None, StepInputs]:
        """Hold the joint while it lasts."""
        if not moment.during(self.start, self.duration):
            return memory, StepInputs()
        if memory is None:
            here = moment.people.x[..., self.person, joint_index(self.joint), :]
            memory = here.clone() if self.target is None else torch.tensor(self.target).to(here).expand_as(here)
        energy = PinEnergy(self.joint, memory.unsqueeze(-2).expand(*moment.people.x.shape[:-2], 3), weight=self.weight)
        people = moment.only(self.person)
        return memory, StepInputs(energies=(MaskedEnergy(energy, people),), held=people)

    @property
    def events(self) -> tuple[Event, ...]:
        """Name it for exports."""
        return (Event(f"pin {self.joint}", self.start, self.duration),)


_WRISTS, _SHOULDERS = ([joint_index(f"{side}_{part}") for side in ("left", "right")] for part in ("wrist", "shoulder"))


@dataclass(frozen=True, eq=False)
class VelocityCost:
    """How far a roll-out is from a wished velocity and an upright carriage, and how far it looks elsewhere than it goes."""

    velocity: Float[Tensor, "n 2"]
    """Of every person, counted through all worlds [m/s]."""
    facing: float = 0.5
    """Weight of the angle between the way that the hips face and the way to go."""
    upright: float = 4.0
    """Weight of sinking below walking height."""
    lean: float = 4.0
    """Weight of one less the cosine of the trunk's angle with the vertical."""
    arms: float = 2.0
    """Weight of wrists above shoulders: people who stand in the recordings wave about [1/m]."""
    fps: float = 30.0
    """[Hz]"""
    height: float = 0.85
    """Least of the pelvis of somebody who walks [m]."""

    @classmethod
    def of(cls, velocity: Float[Tensor, "*w p 2"], moment: SceneContext, *, facing: float = 0.5) -> "VelocityCost":
        """Return the cost for the people of a moment."""
        return cls(velocity.reshape(-1, 2), facing, fps=moment.fps, height=WALKING_HEIGHT * moment.skeleton.standing_height)

    def __call__(self, joints: Float[Tensor, "n r t 22 3"], people: Int[Tensor, "n"]) -> Float[Tensor, "n r"]:
        """Compare the mean velocity, the facing and the carriage at the end, and the height of the pelvis."""
        wished = self.velocity[people].to(joints).unsqueeze(1)
        root = joints[..., 0, :2]
        steps = joints.shape[2] - 1
        mean = (root[:, :, -1] - root[:, :, 0]) * self.fps / max(1, steps)
        cost = (mean - wished).square().sum(-1)
        last = joints[:, :, -1]
        across = (last[..., 1, :] - last[..., 2, :])[..., :2]  # from the right hip to the left
        ahead = torch.stack((across[..., 1], -across[..., 0]), dim=-1)
        speed = wished.norm(dim=-1)
        aligned = (torch.nn.functional.normalize(ahead, dim=-1) * wished).sum(-1) / speed.clamp(min=1e-6)
        cost = cost + self.facing * (1 - aligned) * (speed > 0.2)
        trunk = torch.nn.functional.normalize(last[..., joint_index("neck"), :] - last[..., 0, :], dim=-1)
        raised = (last[..., _WRISTS, 2] - last[..., _SHOULDERS, 2]).clamp(min=0).mean(-1)
        cost = cost + self.lean * (1 - trunk[..., 2]) + self.arms * raised
        return cost + self.upright * (self.height - joints[..., 0, 2]).clamp(min=0).amax(-1)


@dataclass(frozen=True)
class Follow(Element[None]):
    """A velocity to go at: the person looks ahead for a way to do it, and E_com draws gently."""

    velocities: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 1.2),)
    """Rows of time [s] and horizontal velocity [m/s], each held until the next."""
    weight: float = 0.1
    """Of E_com beside the look-ahead."""
    acceleration: float = 3.0
    """How fast one row's velocity passes into the next [m/s^2]: who runs and turns at once falls."""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.acceleration > 0:
            raise ValueError(f"to follow takes an acceleration above 0 m/s^2, not {self.acceleration:g}")
        if not self.velocities or any(len(row) != 3 for row in self.velocities):
            raise ValueError("to follow takes rows of 3 numbers: time [s], velocity along x and y [m/s]")
        check_finite("to follow", self.weight, *(value for row in self.velocities for value in row))
        if any(b[0] <= a[0] for a, b in pairwise(self.velocities)):
            raise ValueError("to follow takes times that grow from row to row")

    @classmethod
    def square(cls, speed: float, *, every: float = 4.0, seconds: float = 20.0, person: int = 0) -> "Follow":
        """Go round a square, turning left after every so many seconds."""
        if not (speed > 0 and every > 0 and seconds > 0):
            raise ValueError("a square needs a positive speed, time and duration")
        ways = ((0.0, 1.0), (-1.0, 0.0), (0.0, -1.0), (1.0, 0.0))
        rows = [(i * every, *(speed * part for part in ways[i % 4])) for i in range(math.ceil(seconds / every))]
        return cls(tuple((t, x, y) for t, x, y in rows), person=person)

    def people(self) -> tuple[int, ...]:
        """Return who follows."""
        return (self.person,)

    def velocity_at(self, time: float) -> tuple[float, float]:
        """Return the velocity to go at [m/s]."""
        past = [row for row in self.velocities if row[0] <= time + 1e-9]
        if not past:
            return 0.0, 0.0
        since, x, y = past[-1]
        _, x0, y0 = past[-2] if len(past) > 1 else past[-1]
        share = min(1.0, self.acceleration * (time - since) / max(math.hypot(x - x0, y - y0), 1e-9))
        return x0 + share * (x - x0), y0 + share * (y - y0)

    def act(self, memory: None, moment: SceneContext) -> tuple[None, StepInputs]:
        """Look ahead for the velocity, and draw gently."""
        velocity = torch.tensor(self.velocity_at(moment.time), dtype=torch.float64)
        return memory, led_by(velocity.expand(*moment.people.x.shape[:-2], 2), self.weight, moment, moment.only(self.person))

    @property
    def events(self) -> tuple[Event, ...]:
        """Name the turns for exports."""
        return tuple(Event(f"go at ({x:g}, {y:g}) m/s", t) for t, x, y in self.velocities)


def led_by(velocity: Float[Tensor, "*w p 2"], weight: float, moment: SceneContext, people: Tensor) -> StepInputs:
    """Return the goal and the gentle energy of going at a velocity."""
    goal = Goal(people, VelocityCost.of(velocity, moment))
    energies = (MaskedEnergy(CentreOfMassVelocity(velocity, weight=weight), people),) if weight > 0 else ()
    return StepInputs(energies=energies, goals=(goal,))


@dataclass(frozen=True)
class Dodge(Element[None]):
    """The person goes out of the way of balls that come near."""

    speed: float = 2.0
    """[m/s]"""
    reach: float = 0.8
    """Balls that will pass nearer than this are dodged [m]."""
    sight: float = 1.2
    """How far ahead the person sees them come [s]."""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_finite("to dodge", self.speed, self.reach, self.sight)
        if not (self.speed > 0 and self.reach > 0 and self.sight > 0):
            raise ValueError("to dodge takes a positive speed, reach and sight")

    def people(self) -> tuple[int, ...]:
        """Return who dodges."""
        return (self.person,)

    def act(self, memory: None, moment: SceneContext) -> tuple[None, StepInputs]:
        """Go sideways of the balls' ways, away from where they will pass."""
        centre = moment.skeleton.centre_of_mass(moment.people.x)[..., self.person, :2]
        pace = moment.people.v[..., self.person, 0, :2]
        way = torch.zeros_like(centre)
        for balls in moment.balls:
            if not balls.flying:
                continue
            apart = balls.centres[..., :2] - centre.unsqueeze(-2)
            moving = balls.velocities[..., :2] - pace.unsqueeze(-2)
            when = -(apart * moving).sum(-1) / moving.square().sum(-1).clamp(min=1e-6)
            miss = apart + when.clamp(min=0).unsqueeze(-1) * moving
            near = miss.norm(dim=-1)
            coming = (when > 0) & (when < self.sight) & (near < self.reach)
            side = torch.stack((-moving[..., 1], moving[..., 0]), dim=-1)
            side = side / side.norm(dim=-1, keepdim=True).clamp(min=1e-6)
            side = torch.where((side * miss).sum(-1, keepdim=True) > 0, -side, side)
            way = way + (coming.unsqueeze(-1) * side / (0.2 + when.clamp(min=0)).unsqueeze(-1)).sum(-2)
        strength = way.norm(dim=-1, keepdim=True)
        wished = torch.where(strength > 0, self.speed * way / strength.clamp(min=1e-6), 0.0)
        velocity = torch.zeros(*moment.people.x.shape[:-2], 2, dtype=torch.float64)
        velocity[..., self.person, :] = wished
        people = moment.only(self.person)
        people[..., self.person] = (strength > 0).squeeze(-1)
        if not people.any():
            return memory, StepInputs()
        goal = Goal(people, VelocityCost.of(velocity, moment, facing=0.0))
        return memory, StepInputs(energies=(MaskedEnergy(CentreOfMassVelocity(velocity, weight=0.2), people),), goals=(goal,))


@dataclass(frozen=True)
class StiffJoint(Element[None]):
    """A joint that does not bend: a spring between its neighbours at their greatest distance, such as hip and ankle for a knee."""

    joint_a: str = "right_hip"
    joint_b: str = "right_ankle"
    weight: float = 100.0
    start: float = 0.0
    """[s]"""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if joint_index(self.joint_a) == joint_index(self.joint_b):
            raise ValueError(f"a stiff joint needs two different neighbours, not {self.joint_a} twice")
        if PARENTS[PARENTS[joint_index(self.joint_b)]] != joint_index(self.joint_a):
            raise ValueError(f"{self.joint_a} and {self.joint_b} have no single joint between them: give e.g. right_hip and right_ankle")
        check_time("a stiff joint", self.start)
        check_weight("a stiff joint", self.weight)

    def people(self) -> tuple[int, ...]:
        """Return whose joint it is."""
        return (self.person,)

    def act(self, memory: None, moment: SceneContext) -> tuple[None, StepInputs]:
        """Keep the two apart."""
        if moment.time < self.start:
            return memory, StepInputs()
        b = joint_index(self.joint_b)
        bones = moment.skeleton.lengths[b] + moment.skeleton.lengths[PARENTS[b]]
        spring = Spring(self.joint_a, self.joint_b, 0.998 * float(bones), weight=self.weight)
        straight = CollinearEnergy(self.joint_a, JOINTS[PARENTS[b]], self.joint_b, weight=self.weight)
        people = moment.only(self.person)
        stiff = torch.zeros(moment.people.x.shape[:-1], dtype=torch.bool)
        stiff[..., self.person, PARENTS[b]] = True
        return memory, StepInputs(energies=(MaskedEnergy(spring, people), MaskedEnergy(straight, people)), stiff=stiff)


def ahead_of(q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 2"]:
    """Return the horizontal direction that a body faces."""
    return heading(q[..., 0, :, :])[..., 1, :2]
