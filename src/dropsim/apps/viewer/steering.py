"""What people at a screen do to a live world: hands that pull limbs, and where they send people."""

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
from dropsim.scene.perturbations import ahead_of

WALKING, RUNNING = 1.3, 3.0
"""Speeds of people who are steered [m/s]."""
CROUCHING = 0.55
"""Height of the pelvis of people who are told to crouch [m]."""
JUMPING, LONGEST_JUMP = 1.15, 1.5
"""Height that people want who are told to jump, which they only reach in the air [m]; so long they try [s]."""
ARRIVED = 0.3
"""People this near to their goal stop [m]."""
SLOWING = 1.2
"""Within which people slow down toward their goal [m]."""
COM_WEIGHT = 0.1
"""Of the energy that draws people along whose prior takes no intent, as a Follow has it."""


@dataclass(frozen=True)
class Grab:
    """A hand on a limb: a spring and damper between a point of a bone and a point in the world."""

    bone: int
    """The joint at the bone's far end."""
    share: float
    """Point on the bone: 0 at the near end, 1 at the far end."""
    pointer: tuple[float, float, float]
    """World [m]."""
    person: int = 0
    stiffness: float = 1500.0
    """[N/m]"""
    damping: float = 80.0
    """[N s/m]"""
    largest: float = 400.0
    """Largest force [N]."""

    def held(self, x: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "3"]:
        """Position of the held point [m]; given velocities, its velocity."""
        return (1 - self.share) * x[self.person, PARENTS[self.bone]] + self.share * x[self.person, self.bone]

    def force(self, x: Float[np.ndarray, "p 22 3"], v: Float[np.ndarray, "p 22 3"]) -> Float[np.ndarray, "3"]:
        """Force on the limb [N]."""
        pull = self.stiffness * (np.array(self.pointer) - self.held(x)) - self.damping * self.held(v)
        return pull * (self.largest / max(float(np.linalg.norm(pull)), self.largest))

    def forces(
        self, x: Float[np.ndarray, "w p 22 3"], v: Float[np.ndarray, "w p 22 3"]
    ) -> Float[np.ndarray, "w p 22 3"]:
        """Forces on the joints [N]: shared between the bone's ends, in the first world only."""
        forces, force = np.zeros_like(x), self.force(x[0], v[0])
        forces[0, self.person, self.bone] += self.share * force
        forces[0, self.person, PARENTS[self.bone]] += (1 - self.share) * force
        return forces


@dataclass(frozen=True)
class Walk:
    """A velocity to go at."""

    speed: float = WALKING
    """[m/s]"""
    direction: float = 0.0
    """Counterclockwise from +y, where people face at the start [degrees]."""

    def velocity(self, place: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
        """World [m/s]."""
        del place
        angle = math.radians(self.direction + 90.0)
        return self.speed * np.array([math.cos(angle), math.sin(angle)])


@dataclass(frozen=True)
class GoTo:
    """A place to go to and to stand at."""

    x: float
    """World [m]."""
    y: float
    speed: float = WALKING
    """[m/s]"""

    def velocity(self, place: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
        """World [m/s]; slower when nearly there."""
        way = np.array([self.x, self.y]) - place
        far = float(np.linalg.norm(way))
        return self.speed * min(1.0, max(far, 0.5) / SLOWING) * way / far if far > ARRIVED else np.zeros(2)


def steering_inputs(
    goals: Mapping[int, Walk | GoTo], heights: Mapping[int, float], people: State, prior: Prior
) -> StepInputs:
    """Return what people who are steered want; everybody goes by where the person of the first world is.

    `heights` are those of the pelvis that some people want [m].
    """
    batch = people.x.shape[:-2]
    velocity, height, led = np.full((*batch, 2), np.nan), np.full(batch, np.nan), np.zeros(batch, dtype=np.bool_)
    for person, goal in goals.items():
        velocity[:, person] = goal.velocity(people.x[0, person, 0, :2])
        led[:, person] = True
    for person, wanted in heights.items():
        height[:, person] = wanted
    going = Intent.toward(velocity)
    intent = Intent(going.velocity, going.facing, height)
    if prior.takes_intent or not led.any():
        return StepInputs(intent=intent)
    pull = CentreOfMassVelocity(np.nan_to_num(velocity), weight=COM_WEIGHT)
    return StepInputs(intent=intent, energies=(MaskedEnergy(pull, led),))


def aimed(
    people: State, person: int, joint: int, origin: Sequence[float] | None, speed: float, reach: Float[np.ndarray, "22"]
) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Return where a ball starts, and the velocity with which it hits a joint of somebody who keeps theirs; by default from the front.

    `reach` is the ball's radius plus those of the joints. It starts on the line to the origin, but clear of people and
    above the floor.
    """
    aim, pace = people.x[person, joint], people.v[person, 0] * [1.0, 1.0, 0.0]
    way = (
        np.array([*(4.0 * ahead_of(people.q[person])), 0.3])
        if origin is None
        else np.asarray(origin, dtype=float) - aim
    )
    far = float(np.linalg.norm(way))
    way = way / far if far > 1e-6 else np.array([0.0, 1.0, 0.0])
    for more in range(20):
        place = aim + (min(max(far, 1.5), 6.0) + 0.5 * more) * way
        # Balls only know the level floor: one from below it starts on it.
        place[2] = max(place[2], float(reach.min()))
        if (np.linalg.norm(people.x - place, axis=-1) - reach).min() > 0.05:
            break
    else:
        raise ValueError("there is no free place to throw a ball from: look from elsewhere")
    last = float(np.linalg.norm(place - aim)) / speed
    return place, (aim + last * pace - place) / last + np.array([0.0, 0.0, 0.5 * GRAVITY * last])
