"""Steering by people at a screen: hands on limbs and boxes, goals, and rays of the mouse."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import PARENTS
from dropsim.files.units import GRAVITY
from dropsim.physics.energies import CentreOfMassVelocity, MaskedEnergy
from dropsim.physics.step import StepInputs
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Prior, State
from dropsim.scene import Solid
from dropsim.scene.loose import BodyState

Point = tuple[float, float, float]
"""World [m]."""
WALKING, RUNNING = 1.3, 3.0
"""Speeds of people who are steered [m/s]."""
CROUCHING = 0.55
"""Height of the pelvis of people who are told to crouch [m]."""
JUMPING, LONGEST_JUMP = 1.15, 1.5
"""Height that jumping people want, which they only reach in the air [m]; the time for which they try [s]."""
ARRIVED, SLOWING = 0.3, 1.2
"""Distances to the goal at which people stop, and at which they begin to slow down [m]."""
COM_WEIGHT = 0.1
"""Weight of the energy that draws people whose prior takes no intent, as in a Follow."""
STIFFNESS, DAMPING = 1500.0, 80.0
"""Spring and damper of a hand on a limb [N/m, N s/m]."""
REACHING, FASTEST = 0.1, 5.0
"""Time within which a hand brings a box to the pointer [s], and its largest speed [m/s]."""
CALMING = 0.7
"""Share of its spin that a box in a hand keeps from frame to frame."""


@dataclass(frozen=True)
class Grab:
    """A hand on a limb: a spring and damper between a point of a bone and a point in the world."""

    bone: int
    """The joint at the bone's far end."""
    share: float
    """Point on the bone: 0 at the near end, 1 at the far end."""
    pointer: Point
    person: int = 0
    largest: float = 400.0
    """Largest force [N]."""

    def held(self, x: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "3"]:
        """Position of the held point [m]; given velocities, its velocity."""
        return (1 - self.share) * x[self.person, PARENTS[self.bone]] + self.share * x[self.person, self.bone]

    def force(self, x: Float[np.ndarray, "p 22 3"], v: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "3"]:
        """Force on the limb [N]."""
        pull = STIFFNESS * (np.array(self.pointer) - self.held(x)) - DAMPING * self.held(v)
        return _limited(pull, self.largest)

    def forces(self, x: Float[np.ndarray, "p 22 3"], v: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "p 22 3"]:
        """Forces on the joints [N]: shared between the bone's ends."""
        forces, force = np.zeros_like(x), self.force(x, v)
        forces[self.person, self.bone] += self.share * force
        forces[self.person, PARENTS[self.bone]] += (1 - self.share) * force
        return forces


@dataclass(frozen=True)
class BoxGrab:
    """A hand on a loose box: it carries the box toward a point in the world, with a bounded force."""

    key: int
    """Number of the box in `Shot.solids`."""
    point: Point
    """Held point, in the box's own axes [m]."""
    pointer: Point
    largest: float = 400.0
    """Largest force, on top of the box's weight [N]."""

    def held(self, box: BodyState) -> Float[np.ndarray, "3"]:
        """Position of the held point [m]."""
        return box.x + box.R @ np.array(self.point)

    def force(self, box: BodyState, mass: float, h: float) -> Float[np.ndarray, "3"]:
        """Force that gives the box, within a step, the velocity with which it would reach the pointer [N]."""
        velocity = _limited((np.array(self.pointer) - self.held(box)) / REACHING, FASTEST)
        return _limited(mass / h * (velocity - box.v), self.largest) + np.array([0.0, 0.0, mass * GRAVITY])

    def moved(self, box: BodyState, mass: float, h: float) -> BodyState:
        """Return the box after that force has acted for a step."""
        v = box.v + h / mass * self.force(box, mass, h)
        return box._replace(v=v, w=CALMING * box.w)


def _limited(vector: Float[np.ndarray, "3"], longest: float) -> Float[np.ndarray, "3"]:
    return vector * (longest / max(float(np.linalg.norm(vector)), longest))


@dataclass(frozen=True)
class Goal:
    """A velocity to go at, or a place to go to and to stand at."""

    speed: float = WALKING
    """[m/s]"""
    direction: float = 0.0
    """Counterclockwise from +y, where people face at the start [degrees]."""
    place: tuple[float, float] | None = None
    """Place to go to [m], whatever the direction."""

    def velocity(self, here: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
        """Return the velocity from a place on, in the world [m/s]; slower when nearly there."""
        if self.place is None:
            angle = math.radians(self.direction + 90.0)
            return self.speed * np.array([math.cos(angle), math.sin(angle)])
        way = np.array(self.place) - here
        far = float(np.linalg.norm(way))
        return self.speed * min(1.0, max(far, 0.5) / SLOWING) * way / far if far > ARRIVED else np.zeros(2)


def steering_inputs(goals: Mapping[int, Goal], heights: Mapping[int, float], people: State, prior: Prior) -> StepInputs:
    """Return the intents of steered people; `heights` are those of the pelvis that some people want [m]."""
    num = len(people.x)
    velocity, height, led = np.full((num, 2), np.nan), np.full(num, np.nan), np.zeros(num, dtype=np.bool_)
    for person, goal in goals.items():
        velocity[person], led[person] = goal.velocity(people.x[person, 0, :2]), True
    for person, wanted in heights.items():
        height[person] = wanted
    going = Intent.toward(velocity)
    intent = Intent(going.velocity, going.facing, height)
    if prior.takes_intent or not led.any():
        return StepInputs(intent=intent)
    pull = CentreOfMassVelocity(np.nan_to_num(velocity), weight=COM_WEIGHT)
    return StepInputs(intent=intent, energies=(MaskedEnergy(pull, led),))


def first_hit(
    solids: Mapping[int, Solid], origin: Sequence[float], way: Sequence[float] | np.ndarray, farthest: float = math.inf
) -> int | None:
    """Return the key of the solid that a ray meets first (Moeller and Trumbore 1997); None if it meets none.

    `farthest` is the end of the ray, in multiples of `way`.
    """
    nearest, key_of_nearest = farthest, None
    for key, solid in solids.items():
        a, b, c = (solid.vertices @ solid.rotation.T + solid.centre)[solid.faces.T]
        ab, ac, ao = b - a, c - a, np.array(origin) - a
        across, other = np.cross(way, ac), np.cross(ao, ab)
        volume = (ab * across).sum(-1)
        # A ray along a triangle misses it.
        scale = np.where(volume == 0, math.inf, volume)
        u, v, far = np.array(((ao * across).sum(-1), other @ np.array(way), (ac * other).sum(-1))) / scale
        far = np.where((u >= 0) & (v >= 0) & (u + v <= 1) & (far > 0), far, math.inf).min()
        if far < nearest:
            nearest, key_of_nearest = far, key
    return key_of_nearest
