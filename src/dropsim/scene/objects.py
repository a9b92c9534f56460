"""The ground and patches of it, balls that fly, obstacles to trip over, and bags to carry."""

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp, normalize, plane_basis
from dropsim.body.skeleton import flat, joint_index
from dropsim.compute.jit import kernel
from dropsim.control.leaning import lean_against, leaning
from dropsim.files.units import GRAVITY, Degrees, Kilograms, Metres, MetresPerSecond, Newtons, NewtonsPerMetre, Seconds
from dropsim.physics.contact import Plane, Rows, Shape, friction_patch
from dropsim.physics.shapes import BALL
from dropsim.physics.step import StepInputs
from dropsim.physics.vectors import add, dot, minus, over, plus, row, size, times, write
from dropsim.scene.element import Element, SceneContext, Solid, check_numbers, check_rows, height_of, interpolated
from dropsim.scene.perturbations import ahead_of, held_at
from dropsim.scene.solids import box_mesh

Array = Any
"""numba knows the types."""
PASSES_OVER = 0.35
"""A heel this high above the ground passes over what people trip over [m]."""
_ALONG = np.array([1.0, 1.0, 0.0])
"""Takes the horizontal part of a vector."""


@dataclass(frozen=True)
class Ground:
    """The floor: level, tilted, or tilting in time about a point."""

    tilts: tuple[tuple[Seconds, Degrees, Degrees], ...] = ()
    """Rows of time [s], roll (about +y) and pitch (about +x) [degrees], linear between them; level if there are
    none."""
    pivot: tuple[Metres, Metres] | None = None
    """Point of the floor about which it tilts; under the first person when the tilt begins unless given."""
    friction: float | None = None
    """Friction coefficient of soles on it: rubber 0.8, wet tiles 0.3, ice 0.05; the simulator's unless given."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.tilts:
            return
        check_rows("the ground", self.tilts, "time [s], roll, pitch [degrees]")
        steepest = max(abs(angle) for row in self.tilts for angle in row[1:])
        if steepest > 45:
            raise ValueError(f"the ground tilts by at most 45 degrees, not {steepest:g}")

    def normal_at(self, time: float) -> Float[np.ndarray, "3"]:
        """Return the unit vector out of the ground."""
        roll, pitch = np.radians(interpolated(self.tilts, time)) if self.tilts else (0.0, 0.0)
        return exp(np.array([pitch, roll, 0.0]))[:, 2]

    def plane(self, time: float, h: float, pivot: Float[np.ndarray, "*w 3"]) -> Plane:
        """Return the ground at a time, and the velocity with which it got there within a step."""
        friction = np.array(math.nan if self.friction is None else self.friction)
        if not self.tilts:
            return Plane.ground() if self.friction is None else replace(Plane.ground(), friction=friction)
        now, before = self.normal_at(time), self.normal_at(max(0.0, time - h))
        spin = np.cross(before, now) / h  # a small rotation from one normal to the other
        normal, spin = (np.broadcast_to(vector, pivot.shape) for vector in (now, spin))
        return Plane(normal, np.asarray((now * pivot).sum(-1)), spin, np.zeros_like(pivot), pivot, friction)

    def pivot_at(
        self, frame: int, fps: float, before: Float[np.ndarray, "*w 3"], here: Float[np.ndarray, "*w 3"]
    ) -> Float[np.ndarray, "*w 3"]:
        """Return the point about which it tilts [m]: its own, or `here`, under the first person, until it begins to."""
        if self.pivot is not None:
            return np.broadcast_to(np.array((*self.pivot, 0.0)), here.shape)
        return here if frame < self.start * fps - 1e-6 else before

    @property
    def level(self) -> bool:
        """True if it is level at all times."""
        return not self.tilts

    @property
    def start(self) -> float:
        """Time at which it begins to tilt [s]; at once if it is not level before the first row either."""
        if not self.tilts:
            return math.inf
        return 0.0 if any(self.tilts[0][1:]) else self.tilts[0][0]


SHEET = 0.002
"""Height at which a patch is drawn [m]."""


@dataclass(frozen=True)
class Patch(Element[Plane]):
    """A rectangle of the ground, seen from above, with a friction of its own, such as ice or a wet floor."""

    position: tuple[Metres, Metres] = (0.0, 2.0)
    """Middle."""
    size: tuple[Metres, Metres] = (1.0, 1.0)
    """Sizes along x and y, before it is turned."""
    facing: Degrees = 0.0
    """Angle, counterclockwise seen from above."""
    friction: float = 0.05
    """Friction coefficient of soles on it: rubber 0.8, wet tiles 0.3, ice 0.05."""

    def __post_init__(self) -> None:
        check_numbers(self, size="(0, inf)")

    def begin(self, context: SceneContext) -> Plane:
        return context.ground

    def act(self, memory: Plane | None, context: SceneContext) -> tuple[Plane, StepInputs]:
        """Change the friction; its memory is the ground that it lies on."""
        del memory
        return context.ground, StepInputs(colliders=(self.collider,))

    def solids(self, memory: Plane | None) -> tuple[Solid, ...]:
        """Return a sheet that lies on the ground, to be drawn."""
        ground, (x, y) = memory or Plane.ground(), np.array(self.size) / 2
        normal, here = ground.normal, np.broadcast_to(self.position, (*ground.normal.shape[:-1], 2))
        centre = np.concatenate((here, height_of(ground, here[..., None, :])), -1) + SHEET * normal
        R = np.swapaxes(plane_basis(normal), -1, -2) @ exp(np.array([0.0, 0.0, math.radians(self.facing)]))
        corners = np.array([(-x, -y, 0.0), (x, -y, 0.0), (x, y, 0.0), (-x, y, 0.0)])
        return (Solid("patch", corners, np.array([(0, 1, 2), (0, 2, 3)]), centre, R),)

    @functools.cached_property
    def collider(self) -> Rows:
        """Its rectangle and friction as people touch it."""
        return friction_patch(
            np.array(self.position), np.array(self.size) / 2, math.radians(self.facing), self.friction
        )


@dataclass(frozen=True, eq=False)
class Flight:
    """A ball on its way."""

    centre: Float[np.ndarray, "*w 3"]
    velocity: Float[np.ndarray, "*w 3"]
    force: Float[np.ndarray, "*w 3"]
    """Mean force of the people on it during the last frame [N]."""


NUM_SUBSTEPS = 16
"""Steps of a ball within a frame: it is stiffer than a frame is short."""
MOST_MOVES = 50
"""Moves that bring a ball out of people who stand where it is thrown, from one joint after the other."""
BOUNCE = 0.7
"""Share of its speed that a ball keeps when it bounces off the floor."""


class Flying(Element[Flight]):
    """A ball that flies from a time on; it pushes people and is pushed by them, falls and bounces."""

    label: ClassVar[str] = "ball"

    radius: float
    mass: float
    stiffness: float
    start: float

    def __post_init__(self) -> None:
        check_numbers(
            self, radius="(0, 2]", mass="(0, 1000]", stiffness="(0, inf)", distance="(0.5, inf)", speed="(0.5, inf)"
        )
        if self.stiffness / NUM_SUBSTEPS**2 > 900 * self.mass:
            raise ValueError(
                f"a ball of {self.mass:g} kg cannot have a stiffness of {self.stiffness:g} N/m: it would bounce ever faster"
            )

    @abstractmethod
    def _thrown(self, context: SceneContext) -> Flight:
        """Return where it begins, and how fast."""

    def act(self, memory: Flight | None, context: SceneContext) -> tuple[Flight | None, StepInputs]:
        if memory is None and context.frame >= round(self.start * context.fps):
            memory = self._thrown(context)
        if memory is None:
            return None, StepInputs()
        memory, forces = _fly(self, memory, context)
        return memory, StepInputs(forces=forces)

    def solids(self, memory: Flight | None) -> tuple[Solid, ...]:
        return () if memory is None else (Solid.sphere(self.radius, memory.centre, memory.velocity),)


def _fly(ball: Flying, flight: Flight, context: SceneContext) -> tuple[Flight, Float[np.ndarray, "*w p 22 3"]]:
    """Advance a ball by a frame and return the mean forces on the people."""
    people, ground = context.people, context.ground
    centre, velocity = (np.array(vector, order="C") for vector in (flight.centre, flight.velocity))
    forces, normal = np.zeros(people.x.shape), np.broadcast_to(ground.normal, centre.shape)
    offset = np.broadcast_to(ground.offset, centre.shape[:-1])
    planes = flat(np.concatenate((normal, offset[..., None]), -1), 1)
    law = (ball.radius, ball.mass, ball.stiffness, context.h / NUM_SUBSTEPS)
    crowd = (flat(people.x, 3), flat(people.v, 3), context.skeleton.radii)
    _bounce(crowd, planes, law, flat(centre, 1), flat(velocity, 1), flat(forces, 3))
    return Flight(centre, velocity, -forces.sum((-3, -2))), forces


@kernel
def _bounce(
    crowd: tuple[Array, Array, Array],
    planes: Array,
    law: tuple[float, float, float, float],
    centre: Array,
    velocity: Array,
    forces: Array,
) -> None:
    """Advance a ball of each world by a frame, in place, and add the mean forces on the people.

    They are f = k d along the line of centres, and the opposite on the ball.
    """
    (x, v, radii), (radius, mass, stiffness, h) = crowd, law
    for w in range(len(x)):
        c, u, n = row(centre, w), row(velocity, w), row(planes, w)
        for i in range(NUM_SUBSTEPS):
            push = (0.0, 0.0, 0.0)
            for p in range(x.shape[1]):
                for j in range(x.shape[2]):
                    away, reach = minus(plus(row(x[w, p], j), row(v[w, p], j), i * h), c), radii[j] + radius
                    distance = size(away)
                    if distance < reach:
                        force = times(stiffness * (reach - distance) / max(distance, 1e-6), away)
                        push = plus(push, force)
                        add(forces[w, p], j, over(force, NUM_SUBSTEPS))
            u = (u[0] - h * push[0] / mass, u[1] - h * push[1] / mass, u[2] - h * (GRAVITY + push[2] / mass))
            c = plus(c, u, h)
            below, sinking = radius - (dot(c, n) - planes[w, 3]), dot(u, n)
            if below > 0 and sinking < 0:
                u = minus(u, times((1 + BOUNCE) * sinking, n))
            c = plus(c, n, max(below, 0.0))
        write(centre, w, c)
        write(velocity, w, u)


NEAREST = 1.5
"""Smallest distance from which a ball is thrown that comes from a point [m]."""
INSIDE = 0.02
"""Depth to which a ball may be in somebody when it is thrown [m]."""


def _clear_of_people(centre: Float[np.ndarray, "*w 3"], radius: float, context: SceneContext) -> np.ndarray:
    """Return the centre of a ball, moved out of people who have come to its place."""
    joints = context.people.x.reshape(*centre.shape[:-1], -1, 3)
    reach = np.tile(context.skeleton.radii + radius, context.batch[-1])
    for _ in range(MOST_MOVES):
        away = centre[..., None, :] - joints
        depth = reach - np.linalg.norm(away, axis=-1)
        if depth.max() <= INSIDE:
            break
        worst = depth.argmax(-1)[..., None]
        way = normalize(np.take_along_axis(away, worst[..., None], -2)[..., 0, :] + np.array([0.0, 0.0, 1e-6]))
        centre = centre + np.maximum(np.take_along_axis(depth, worst, -1), 0.0) * way
    return centre


@dataclass(frozen=True)
class Ball(Flying):
    """A ball that is thrown at a time; it pushes people and is pushed by them, falls and bounces."""

    position: tuple[Metres, Metres, Metres] = (0.0, 4.0, 1.2)
    """Centre at the start."""
    velocity: tuple[MetresPerSecond, MetresPerSecond, MetresPerSecond] = (0.0, -8.0, 2.0)
    """Velocity at the start."""
    radius: Metres = 0.15
    mass: Kilograms = 3.0
    stiffness: NewtonsPerMetre = 8000.0
    """Contact force per depth."""
    start: Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        height = self.position[2]
        if height < self.radius:
            raise ValueError(f"a ball at {height:g} m is in the floor: give at least its radius, {self.radius:g} m")

    def begin(self, context: SceneContext) -> Flight | None:
        if self.start * context.fps >= 1:
            return None
        flight = self._thrown(context)
        moved = float(np.linalg.norm(flight.centre - np.array(self.position), axis=-1).max())
        if moved > 0:
            raise ValueError(f"the ball that starts at {self.position} is inside a person: move it by {moved:.2f} m")
        return flight

    def _thrown(self, context: SceneContext) -> Flight:
        centre, velocity = (
            np.broadcast_to(np.array(v), (*context.batch[:-1], 3)) for v in (self.position, self.velocity)
        )
        return Flight(_clear_of_people(centre, self.radius, context), velocity, np.zeros_like(centre))


@dataclass(frozen=True)
class Throw(Flying):
    """A ball thrown at a person from some distance, so that it would hit a joint if the person went on as before."""

    joint: str = "spine3"
    angle: Degrees = 0.0
    """Direction that it comes from, counterclockwise from the person's front."""
    distance: Metres = 4.0
    speed: MetresPerSecond = 8.0
    """Speed toward the joint, apart from the person's own and from what gravity needs."""
    radius: Metres = 0.15
    mass: Kilograms = 3.0
    stiffness: NewtonsPerMetre = 8000.0
    """Contact force per depth."""
    start: Seconds = 1.0
    person: int = 0
    origin: tuple[Metres, Metres, Metres] | None = None
    """Point from which it comes, instead of the angle; a point beyond `distance` only gives the direction."""

    def __post_init__(self) -> None:
        joint_index(self.joint)
        super().__post_init__()

    def _thrown(self, context: SceneContext) -> Flight:
        """Aim: the flight lasts distance over speed; meanwhile the person goes on and the ball falls."""
        aim = context.people.x[..., self.person, joint_index(self.joint), :]
        pace = context.people.v[..., self.person, 0, :] * _ALONG
        ahead = ahead_of(context.people.q[..., self.person, :, :, :])
        c, s = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        x, y = ahead[..., 0], ahead[..., 1]
        side, far = np.stack((c * x - s * y, s * x + c * y, 0 * x), -1), self.distance
        if self.origin is not None:
            way = self.origin - aim
            far = np.clip(np.linalg.norm(way, axis=-1, keepdims=True), NEAREST, self.distance)
            # From the joint itself it comes as if there were no origin.
            side = normalize(way + 1e-6 * side)
        last = far / self.speed
        centre = aim + far * side
        centre[..., 2] = np.maximum(centre[..., 2], context.floor[..., self.person] + self.radius)
        velocity = (aim + last * pace - centre) / last + 0.5 * GRAVITY * last * np.array([0.0, 0.0, 1.0])
        return Flight(_clear_of_people(centre, self.radius, context), velocity, np.zeros_like(centre))


@dataclass(frozen=True, eq=False)
class Caught:
    """Place and time at which a foot is caught."""

    obstacle: Float[np.ndarray, "*w 3"]
    heel: Float[np.ndarray, "*w 3"]
    ahead: Float[np.ndarray, "*w 3"]
    """Direction of the foot's motion, a unit vector along the ground."""
    since: Float[np.ndarray, "*w"]
    """Frame at which it was caught; infinite before that."""


@dataclass(frozen=True)
class Trip(Element[Caught]):
    """An obstacle on the ground that stops the heel for a while when the swinging foot comes to it.

    The heel cannot go on, but down and back. The body can: it loses only what the obstacle's force takes.
    """

    label: ClassVar[str] = "trip {joint}"

    joint: str = "right_ankle"
    """The heel that is caught."""
    obstacle: tuple[Metres, Metres] | None = None
    """Place of the obstacle; right in front of the foot at its first full swing after the start unless given."""
    radius: Metres = 0.05
    """Radius of the half sphere."""
    hold: Seconds = 1.0
    """Time for which the heel is held."""
    largest: Newtons = 250.0
    """Largest force that holds the heel. A swinging leg pulls with what the hip's flexors give, about 120 N m at 0.9 m, and the
    impact with as much again: if more were needed, the foot would slip over the obstacle."""
    start: Seconds = 1.0
    """Earliest time at which an obstacle without a place is put down."""
    person: int = 0

    def __post_init__(self) -> None:
        if not self.joint.endswith(("_ankle", "_foot")):
            raise ValueError(f"people trip with an ankle or a foot, not with {self.joint}")
        joint_index(self.joint)
        check_numbers(self, radius="(0, 0.5]", hold="(0, inf)")

    def begin(self, context: SceneContext) -> Caught:
        heel = context.people.x[..., self.person, joint_index(self.joint), :]
        place = np.broadcast_to(
            np.full(3, np.nan) if self.obstacle is None else np.array((*self.obstacle, 0.0)), heel.shape
        )
        return Caught(place, np.zeros_like(heel), np.zeros_like(heel), np.full(heel.shape[:-1], np.inf))

    def act(self, memory: Caught | None, context: SceneContext) -> tuple[Caught, StepInputs]:
        """Catch the heel when it is about to touch."""
        memory = memory or self.begin(context)
        obstacle, joint = memory.obstacle, joint_index(self.joint)
        x, v = context.people.x[..., self.person, joint, :], context.people.v[..., self.person, joint, :]
        floor, reach = context.floor[..., self.person], self.radius + float(context.skeleton.radii[joint])
        speed = np.linalg.norm(v * _ALONG, axis=-1)
        ahead = v * _ALONG / np.maximum(speed, 1e-6)[..., None]
        if self.obstacle is None and context.frame >= round(self.start * context.fps):
            swinging = (speed > 1.0) & (x[..., 2] - floor < PASSES_OVER) & np.isnan(obstacle).any(-1)
            place = x * _ALONG + (reach + context.h * speed)[..., None] * ahead
            place[..., 2] = floor
            obstacle = np.where(swinging[..., None], place, obstacle)
        if context.footing is None:
            # It lies on the ground also while that tilts: nobody gets between them.
            height = height_of(context.ground, obstacle[..., None, :2])
            obstacle = np.concatenate((obstacle[..., :2], height), -1)
        away = np.linalg.norm((x + context.h * v - obstacle) * _ALONG, axis=-1)
        # A heel above the obstacle touches too: what matters is that it comes to it along the ground.
        touching = (away < reach) & (x[..., 2] - floor < PASSES_OVER) & (speed > 0.2) & np.isinf(memory.since)
        # It comes to rest about half a frame later.
        heel = np.where(touching[..., None], x + 0.5 * context.h * v, memory.heel)
        ahead = np.where(touching[..., None], ahead, memory.ahead)
        memory = Caught(obstacle, heel, ahead, np.where(touching, float(context.frame), memory.since))
        frames = context.frame - memory.since
        held = np.asarray((frames >= 0) & (frames < round(self.hold * context.fps)))
        # Far away while it is not put down yet.
        centre = np.nan_to_num(obstacle, nan=-100.0)[..., None, :]
        centre = np.broadcast_to(centre, (*context.batch, 3))
        inputs = StepInputs(colliders=(Shape(BALL, (float(self.radius), 0.0, 0.0), centre, np.eye(3)),))
        if not held.any():
            return memory, inputs
        holds = held_at(context, self.person, self.joint, memory.heel, self.largest, ahead=memory.ahead, held=held)
        return memory, replace(inputs, holds=holds)

    def solids(self, memory: Caught | None) -> tuple[Solid, ...]:
        return () if memory is None else (Solid.sphere(self.radius, memory.obstacle, name="obstacle"),)


TAKING_UP = 0.5
"""Time that people take to lean against a load [s]."""
HANGING = 0.35
"""Distance from a wrist down to the middle of the bag that it carries [m]."""
_HANDS = {"left": ("left_wrist",), "right": ("right_wrist",), "both": ("left_wrist", "right_wrist")}


@dataclass(frozen=True, eq=False)
class Load:
    """Bags that a person carries."""

    velocity: Float[np.ndarray, "*w 3"]
    """Velocity of the person's centre of mass at the last frame [m/s]."""
    places: Float[np.ndarray, "*w n 3"]
    """Middles of the bags [m]."""
    acceleration: Float[np.ndarray, "*w 3"]
    """Acceleration of the bags [m/s^2]."""


@dataclass(frozen=True)
class Carry(Element[Load]):
    """Bags in one hand or in both: their weight and inertia act at the wrists, and the person has to balance them."""

    label: ClassVar[str] = "carry {mass:g} kg"

    mass: Kilograms = 5.0
    """Mass of all bags together."""
    hand: str = "right"
    """Hand that carries: left, right or both."""
    start: Seconds = 0.0
    """Time at which they are picked up."""
    person: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, mass="(0, 100]")
        if self.hand not in _HANDS:
            raise ValueError(f"a load is carried in the left or the right hand or in both, not in {self.hand!r}")

    def begin(self, context: SceneContext) -> Load:
        masses = context.skeleton.masses
        velocity = (masses[:, None] * context.people.v[..., self.person, :, :]).sum(-2) / masses.sum()
        joints = [joint_index(name) for name in _HANDS[self.hand]]
        places = context.people.x[..., self.person, joints, :] - np.array([0.0, 0.0, HANGING])
        return Load(velocity, places, np.zeros_like(velocity))

    def act(self, memory: Load | None, context: SceneContext) -> tuple[Load, StepInputs]:
        """Pull at the wrists with the weight, and with the inertia of a load that moves with the body as a whole."""
        now = self.begin(context)
        if context.frame < round(self.start * context.fps):
            return now, StepInputs()
        before = memory or now
        # Up to what people feel who jump down a step: impacts are not passed on through an arm.
        change = np.clip((now.velocity - before.velocity) * context.fps, -GRAVITY, GRAVITY)
        # A load heavier than the body would overshoot every frame: the body follows what the load did a frame before.
        share = min(1.0, float(context.skeleton.masses.sum()) / self.mass)
        now = replace(now, acceleration=before.acceleration + share * (change - before.acceleration))
        joints = [joint_index(name) for name in _HANDS[self.hand]]
        load = context.force_on(self.person, joints, -self.mass * (now.acceleration + np.array([0.0, 0.0, GRAVITY])))
        if self.hand == "both":
            return now, StepInputs(forces=load, loads=load)
        side = 1.0 if self.hand == "right" else -1.0
        share = min(1.0, (context.time + context.h - self.start) / TAKING_UP)
        lean = np.zeros(context.batch)
        lean[..., self.person] = share * side * lean_against(self.mass, context.skeleton)
        return now, StepInputs(forces=load, loads=load, stages=[leaning(lean, context.people)])

    def solids(self, memory: Load | None) -> tuple[Solid, ...]:
        if memory is None:
            return ()
        look = box_mesh(np.array([0.06, 0.16, 0.14]))
        *worlds, bags, _ = memory.places.shape
        upright = np.broadcast_to(np.eye(3), (*worlds, 3, 3))
        return tuple(Solid("bag", *look, memory.places[..., k, :], upright) for k in range(bags))
