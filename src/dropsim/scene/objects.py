"""What there is in a world besides people: ground, balls, obstacles."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.rotations import exp
from dropsim.body.skeleton import joint_index
from dropsim.motion.motion import Event
from dropsim.physics.collider import Plane, Spheres
from dropsim.physics.energies.editing import Pin as PinEnergy
from dropsim.physics.wrench import GRAVITY
from dropsim.scene.element import Balls, Element, MaskedEnergy, StepInputs, SceneContext, check_finite, check_rows, check_time, interpolated
from dropsim.scene.perturbations import ahead_of


@dataclass(frozen=True)
class Ground:
    """The floor: level, tilted, or tilting in time about a point."""

    tilts: tuple[tuple[float, float, float], ...] = ()
    """Rows of time [s], roll (about +y) and pitch (about +x) [degrees], linear between them; level where there are none."""
    pivot: tuple[float, float] | None = None
    """Point of the floor about which it tilts [m]; under the first person when the tilt begins unless given."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.tilts:
            check_rows("the ground", self.tilts, 3, "time [s], roll, pitch [degrees]")
            steepest = max(abs(angle) for row in self.tilts for angle in row[1:])
            if steepest > 45:
                raise ValueError(f"the ground tilts by at most 45 degrees, not {steepest:g}")
        check_finite("the ground", *(self.pivot or ()))

    def normal_at(self, time: float) -> Float[Tensor, "3"]:
        """Return the unit vector out of the ground."""
        roll, pitch = interpolated(self.tilts, time) if self.tilts else torch.zeros(2, dtype=torch.float64)
        turn = torch.stack((pitch.deg2rad(), roll.deg2rad(), torch.zeros((), dtype=torch.float64)))
        return exp(turn)[:, 2]

    def plane(self, time: float, h: float, pivot: Float[Tensor, "*w 3"]) -> Plane:
        """Return the ground at a time, and the velocity with which it got there within a step."""
        if not self.tilts:
            return Plane.ground()
        now, before = self.normal_at(time), self.normal_at(max(0.0, time - h))
        # Small rotation from one normal to the other.
        spin = torch.linalg.cross(before, now) / h
        normal = now.expand_as(pivot)
        return Plane(normal, (normal * pivot).sum(-1), spin.expand_as(pivot), torch.zeros_like(pivot), pivot)

    def settled(
        self, pivot: Float[Tensor, "*w 3"] | None, here: Float[Tensor, "*w 3"], frame: int, fps: float
    ) -> Float[Tensor, "*w 3"] | None:
        """Return what it tilts about, from when it begins to; `here` is the place under the first person [m]."""
        if pivot is not None or frame < self.start * fps - 1:
            return pivot
        return here if self.pivot is None else torch.tensor((*self.pivot, 0.0), dtype=torch.float64).expand_as(here)

    @property
    def level(self) -> bool:
        """Whether it is level at all times."""
        return not self.tilts

    @property
    def start(self) -> float:
        """When it begins to tilt [s]; at once where it is not level before the first row either."""
        if not self.tilts:
            return math.inf
        return 0.0 if any(self.tilts[0][1:]) else self.tilts[0][0]


def height_of(plane: Plane, place: Float[Tensor, "*w p 2"]) -> Float[Tensor, "*w p"]:
    """Return the height of the ground under some places [m]."""
    normal, offset = plane.normal.unsqueeze(-2), plane.offset.unsqueeze(-1)
    return (offset - (normal[..., :2] * place).sum(-1)) / normal[..., 2]


@dataclass(frozen=True, eq=False)
class Flight:
    """A ball on its way."""

    centre: Float[Tensor, "*w 3"]
    velocity: Float[Tensor, "*w 3"]
    force: Float[Tensor, "*w 3"]
    """Mean force of the people on it during the last frame [N]."""


NUM_SUBSTEPS = 16
"""Steps of a ball within a frame: it is stiffer than a frame is short."""
BOUNCE = 0.7
"""Share of its speed that a ball keeps when it bounces off the floor."""


class Flying(Element[Flight]):
    """A ball that flies from a time on; it pushes people and is pushed by them, falls and bounces."""

    radius: float
    mass: float
    stiffness: float
    start: float

    @abstractmethod
    def _thrown(self, moment: SceneContext) -> Flight:
        """Return where it begins, and how fast."""

    def act(self, memory: Flight | None, moment: SceneContext) -> tuple[Flight | None, StepInputs]:
        """Fly, from its start on."""
        if memory is None and moment.frame >= round(self.start * moment.fps):
            memory = self._thrown(moment)
        if memory is None:
            return None, StepInputs()
        memory, forces = _fly(self, memory, moment)
        return memory, StepInputs(forces=forces)

    def balls(self, memory: Flight | None) -> Balls | None:
        """Show it once it flies."""
        if memory is None:
            return None
        return Balls(memory.centre.unsqueeze(-2), memory.velocity.unsqueeze(-2), torch.tensor([self.radius], dtype=torch.float64))

    @property
    def events(self) -> tuple[Event, ...]:
        """Name it for exports."""
        return (Event("ball", self.start),)


def _fly(ball: Flying, flight: Flight, moment: SceneContext) -> tuple[Flight, Float[Tensor, "*w p 22 3"]]:
    """Advance a ball by a frame and return the mean forces on the people: f = k d along the line of centres, and the opposite on it."""
    h, mass = moment.h / NUM_SUBSTEPS, ball.mass
    x, v = moment.people.x, moment.people.v
    reach = moment.skeleton.radii.to(x) + ball.radius
    centre, velocity = flight.centre, flight.velocity
    total = torch.zeros_like(x)
    down = torch.tensor([0.0, 0.0, -GRAVITY], dtype=x.dtype)
    normal, offset = moment.ground.normal.to(x), moment.ground.offset.to(x)
    for i in range(NUM_SUBSTEPS):
        joints = x + (i * h) * v
        apart = joints - centre[..., None, None, :]
        distance = apart.norm(dim=-1)
        depth = (reach - distance).clamp(min=0)
        forces = (ball.stiffness * depth / distance.clamp(min=1e-6)).unsqueeze(-1) * apart
        total = total + forces / NUM_SUBSTEPS
        velocity = velocity + h * (down - forces.sum((-3, -2)) / mass)
        centre = centre + h * velocity
        below = ball.radius - ((centre * normal).sum(-1) - offset)
        sinking = (velocity * normal).sum(-1)
        bounce = ((below > 0) & (sinking < 0)).unsqueeze(-1)
        velocity = torch.where(bounce, velocity - (1 + BOUNCE) * sinking.unsqueeze(-1) * normal, velocity)
        centre = centre + below.clamp(min=0).unsqueeze(-1) * normal
    return Flight(centre, velocity, -total.sum((-3, -2))), total


def _refuse_inside(what: str, centre: Float[Tensor, "*w 3"], radius: float, moment: SceneContext) -> None:
    """Refuse a ball that starts inside somebody."""
    gap = (moment.people.x - centre[..., None, None, :]).norm(dim=-1) - moment.skeleton.radii.to(centre) - radius
    if (gap < -0.02).any():
        raise ValueError(f"{what} is inside a person: move it away by {-float(gap.min()):.2f} m")


def _check_ball(ball: Flying) -> None:
    check_finite("a ball", ball.radius, ball.mass, ball.stiffness, ball.start)
    check_time("a ball", ball.start)
    if not (0 < ball.radius <= 2 and 0 < ball.mass <= 1000 and ball.stiffness > 0):
        raise ValueError(
            f"a ball has a radius up to 2 m, a mass up to 1000 kg and a positive stiffness, not {ball.radius:g} m, {ball.mass:g} kg"
        )
    if ball.stiffness / NUM_SUBSTEPS**2 > 900 * ball.mass:
        raise ValueError(f"a ball of {ball.mass:g} kg cannot have a stiffness of {ball.stiffness:g} N/m: it would bounce ever faster")


@dataclass(frozen=True)
class Ball(Flying):
    """A ball that is thrown at a time; it pushes people and is pushed by them, falls and bounces."""

    position: tuple[float, float, float] = (0.0, 4.0, 1.2)
    """At its start [m]."""
    velocity: tuple[float, float, float] = (0.0, -8.0, 2.0)
    """At its start [m/s]."""
    radius: float = 0.15
    """[m]"""
    mass: float = 3.0
    """[kg]"""
    stiffness: float = 8000.0
    """Force per depth [N/m]."""
    start: float = 0.0
    """[s]"""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_ball(self)
        check_finite("a ball", *self.position, *self.velocity)
        if self.position[2] < self.radius:
            raise ValueError(f"a ball at a height of {self.position[2]:g} m is in the floor: give at least its radius, {self.radius:g} m")

    def begin(self, moment: SceneContext) -> Flight | None:
        """Refuse to start inside somebody."""
        return self._thrown(moment) if self.start * moment.fps < 1 else None

    def _thrown(self, moment: SceneContext) -> Flight:
        batch = moment.people.x.shape[:-3]
        centre, velocity = (torch.tensor(v, dtype=torch.float64).expand(*batch, 3) for v in (self.position, self.velocity))
        _refuse_inside(f"the ball that starts at {self.position}", centre, self.radius, moment)
        return Flight(centre, velocity, torch.zeros_like(centre))


@dataclass(frozen=True)
class Throw(Flying):
    """A ball thrown at a person from some distance, so that it would hit a joint if the person went on as it does."""

    joint: str = "spine3"
    angle: float = 0.0
    """Where it comes from, counterclockwise from the person's front [degrees]."""
    distance: float = 4.0
    """[m]"""
    speed: float = 8.0
    """Horizontal [m/s]."""
    radius: float = 0.15
    """[m]"""
    mass: float = 3.0
    """[kg]"""
    stiffness: float = 8000.0
    """Force per depth [N/m]."""
    start: float = 1.0
    """[s]"""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        joint_index(self.joint)
        _check_ball(self)
        check_finite("a throw", self.angle, self.distance, self.speed)
        if not (self.distance > 0.5 and self.speed > 0.5):
            raise ValueError(f"a throw takes at least 0.5 m and 0.5 m/s, not {self.distance:g} m and {self.speed:g} m/s")

    def people(self) -> tuple[int, ...]:
        """Return whom it is thrown at."""
        return (self.person,)

    def _thrown(self, moment: SceneContext) -> Flight:
        """Aim: the flight lasts distance over speed, during which the person goes on and the ball falls."""
        aim = moment.people.x[..., self.person, joint_index(self.joint), :]
        pace = moment.people.v[..., self.person, 0, :] * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
        ahead = ahead_of(moment.people.q[..., self.person, :, :, :])
        turn = math.radians(self.angle)
        c, s = math.cos(turn), math.sin(turn)
        side = torch.stack((c * ahead[..., 0] - s * ahead[..., 1], s * ahead[..., 0] + c * ahead[..., 1]), dim=-1)
        side = torch.nn.functional.pad(side / side.norm(dim=-1, keepdim=True).clamp(min=1e-9), (0, 1))
        last = self.distance / self.speed
        centre = aim + self.distance * side
        centre = torch.cat((centre[..., :2], centre[..., 2:].clamp(min=self.radius)), dim=-1)
        goal = aim + last * pace
        velocity = (goal - centre) / last + torch.tensor([0.0, 0.0, 0.5 * GRAVITY * last], dtype=torch.float64)
        _refuse_inside(f"the ball thrown from {self.distance:g} m", centre, self.radius, moment)
        return Flight(centre, velocity, torch.zeros_like(centre))


@dataclass(frozen=True)
class Obstacle(Element[None]):
    """A sphere that gives way to nobody; with its centre on the floor, half of one."""

    position: tuple[float, float, float] = (0.0, 2.0, 0.0)
    """[m]"""
    radius: float = 0.05
    """[m]"""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_finite("an obstacle", *self.position, self.radius)
        if not 0 < self.radius <= 10:
            raise ValueError(f"an obstacle has a radius between 0 and 10 m, not {self.radius:g}")

    def begin(self, moment: SceneContext) -> None:
        """Refuse to start inside somebody."""
        gap = (moment.people.x - torch.tensor(self.position, dtype=torch.float64)).norm(dim=-1) - moment.skeleton.radii - self.radius
        if (gap < -0.03).any():
            raise ValueError(f"the obstacle at {self.position} is inside a person: move it away by {-float(gap.min()):.2f} m")

    def act(self, memory: None, moment: SceneContext) -> tuple[None, StepInputs]:
        """Be there."""
        return memory, StepInputs(colliders=(_solid(self._balls(), moment),))

    def _balls(self) -> Balls:
        centre = torch.tensor([self.position], dtype=torch.float64)
        return Balls(centre, torch.zeros_like(centre), torch.tensor([self.radius], dtype=torch.float64), flying=False)

    def balls(self, memory: None) -> Balls:
        """Show it."""
        del memory
        return self._balls()


def _solid(balls: Balls, moment: SceneContext) -> Spheres:
    """Return spheres as a collider for everybody in every world."""
    batch = moment.people.x.shape[:-2]
    count = len(balls.radii)
    spread = [v.unsqueeze(-3).expand(*batch, count, 3) for v in (balls.centres, balls.velocities)]
    return Spheres(spread[0], balls.radii, spread[1])


@dataclass(frozen=True, eq=False)
class Caught:
    """Where a foot is caught, and since when."""

    obstacle: Float[Tensor, "*w 3"]
    heel: Float[Tensor, "*w 3"]
    since: Float[Tensor, "*w"]
    """Frame at which it was caught; infinite where it is not yet."""


@dataclass(frozen=True)
class Trip(Element[Caught]):
    """An obstacle on the ground that holds the heel for a while when the swinging foot comes to it."""

    joint: str = "right_ankle"
    """The heel that is caught."""
    obstacle: tuple[float, float] | None = None
    """Where it lies [m]; right in front of the foot at its first full swing after the start unless given."""
    radius: float = 0.05
    """Of the half sphere [m]."""
    hold: float = 1.0
    """How long the heel is held [s]."""
    start: float = 1.0
    """When an obstacle without a place is put down at the earliest [s]."""
    person: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.joint.endswith(("_ankle", "_foot")):
            raise ValueError(f"people trip with an ankle or a foot, not with {self.joint}")
        joint_index(self.joint)
        check_finite("a trip", *(self.obstacle or ()), self.radius, self.hold)
        check_time("a trip", self.start, self.hold)
        if not 0 < self.radius <= 0.5:
            raise ValueError(f"an obstacle to trip over has a radius between 0 and 0.5 m, not {self.radius:g}")

    def people(self) -> tuple[int, ...]:
        """Return who trips."""
        return (self.person,)

    def begin(self, moment: SceneContext) -> Caught:
        """Lay the obstacle, or keep it for later."""
        heel = moment.people.x[..., self.person, joint_index(self.joint), :]
        place = torch.full_like(heel, torch.nan) if self.obstacle is None else torch.tensor((*self.obstacle, 0.0)).to(heel).expand_as(heel)
        return Caught(place, torch.zeros_like(heel), torch.full(heel.shape[:-1], torch.inf, dtype=torch.float64))

    def act(self, memory: Caught | None, moment: SceneContext) -> tuple[Caught, StepInputs]:
        """Catch the heel when it is about to touch."""
        memory = memory or self.begin(moment)
        joint = joint_index(self.joint)
        x, v = moment.people.x[..., self.person, joint, :], moment.people.v[..., self.person, joint, :]
        reach = self.radius + float(moment.skeleton.radii[joint])
        flat = torch.tensor([1.0, 1.0, 0.0]).to(x)
        speed = (v * flat).norm(dim=-1)
        if self.obstacle is None and moment.frame >= round(self.start * moment.fps):
            swinging = (speed > 1.0) & memory.obstacle.isnan().any(-1)
            ahead = v * flat / speed.clamp(min=1e-6).unsqueeze(-1)
            place = x * flat + (reach + moment.h * speed).unsqueeze(-1) * ahead
            memory = replace(memory, obstacle=torch.where(swinging.unsqueeze(-1), place, memory.obstacle))
        away = x + moment.h * v - memory.obstacle
        # A heel above the obstacle touches too: what matters is that it comes to it along the ground.
        touching = ((away * flat).norm(dim=-1) < reach) & (x[..., 2] < 0.35) & (speed > 0.2) & memory.since.isinf()
        memory = replace(
            memory,
            # It comes to rest about half a frame later.
            heel=torch.where(touching.unsqueeze(-1), x + 0.5 * moment.h * v, memory.heel),
            since=torch.where(touching, float(moment.frame), memory.since),
        )
        held = self._held(memory, moment.frame, moment.fps)
        solid = (_solid(self._balls(memory), moment),)
        if not held.any():
            return memory, StepInputs(colliders=solid)
        people = moment.only(self.person)
        people[..., self.person] = held
        target = memory.heel.unsqueeze(-2).expand(*moment.people.x.shape[:-2], 3)
        return memory, StepInputs(energies=(MaskedEnergy(PinEnergy(self.joint, target, weight=1e5), people),), colliders=solid, held=people)

    def _held(self, memory: Caught, frame: int, fps: float) -> Bool[Tensor, "*w"]:
        return (frame >= memory.since) & (frame < memory.since + round(self.hold * fps))

    def balls(self, memory: Caught | None) -> Balls | None:
        """Show the obstacle."""
        return None if memory is None else self._balls(memory)

    def _balls(self, memory: Caught) -> Balls:
        """Return the obstacle, far away where it is not put down yet."""
        centre = memory.obstacle.nan_to_num(nan=-100.0).unsqueeze(-2)
        return Balls(centre, torch.zeros_like(centre), torch.tensor([self.radius], dtype=torch.float64), flying=False)

    @property
    def events(self) -> tuple[Event, ...]:
        """Name it for exports."""
        return (Event(f"trip {self.joint}", self.start, self.hold),)
