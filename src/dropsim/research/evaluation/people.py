"""People who want something and to whom something is done, each in a world of their own, simulated as one batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics.step import Simulator
from dropsim.priors.intent import Intent
from dropsim.priors.prior import State
from dropsim.research.evaluation.harness import survivors
from dropsim.scene import Element, Person, Scene, SceneContext, StepInputs, World, run
from dropsim.scene.element import joints_of
from dropsim.scene.perturbations import ahead_of

SPEEDS = {"stand": 0.0, "walk": 1.2, "run": 2.5}
"""Speed straight ahead that people of each start want [m/s]."""
JUMPED = 1.08
"""Height of the pelvis in the air, relative to standing."""
LEAD_IN = 1.0
"""Time before the branch, in which people reach the speed they want [s]."""


@dataclass(frozen=True, eq=False)
class Acted(Element[np.ndarray]):
    """Forces on the person of each world and what they want, frame by frame."""

    wanted: Float[np.ndarray, "w v 3"] | None = None
    """Velocity [m/s] and height of the pelvis [m], the last ones from then on; NaN or None if unknown."""
    forces: Float[np.ndarray, "w t 22 3"] | None = None
    """Forces on the joints [N]."""

    @classmethod
    def ahead(cls, speed: float, count: int, forces: Float[np.ndarray, "w t 22 3"] | None = None) -> "Acted":
        """Let everybody go straight ahead; people of the prior's starts face +y."""
        return cls(np.tile((0.0, speed, np.nan), (count, 1, 1)), forces)

    def act(self, memory: np.ndarray | None, context: SceneContext) -> tuple[np.ndarray | None, StepInputs]:
        acts = self.forces is not None and context.frame < self.forces.shape[1]
        forces = self.forces[:, context.frame, None] if acts and self.forces is not None else None
        if self.wanted is None:
            return None, StepInputs(forces=forces)
        wanted = self.wanted[:, min(context.frame, self.wanted.shape[1] - 1), None]
        # As in the app, people who are over the top of their jump land by themselves.
        aloft = JUMPED * context.skeleton.standing_height
        over = (context.people.x[..., 0, 2] > aloft) & (context.people.v[..., 0, 2] < 0)
        jumped = (wanted[..., 2] > aloft) & (over if memory is None else over | memory)
        intent = replace(Intent.toward(wanted[..., :2]), height=np.where(jumped, np.nan, wanted[..., 2]))
        return jumped, StepInputs(forces=forces, intent=intent)


def roam(
    simulator: Simulator, people: State, acted: Acted, rng: Streams, num_frames: int, *, get_up: bool = True
) -> Motion:
    """Return how people go on from some states."""
    world = World(Scene((Person(),), (acted,), get_up=get_up), simulator)
    start = world.start_from(people.map(lambda values: values[:, None]))
    return run(world, num_frames, [], start=start, rng=rng.unflatten(len(people.x), 1)).motions[0]


# --- Branches: people lead in; then the same person goes on under many perturbations, with the same random numbers.


@dataclass(frozen=True)
class Shove:
    """A force for a while."""

    impulse: float | int
    """Impulse over the body's mass [N s/kg]."""
    degrees: float | int
    """Direction in which it drives the person, counterclockwise from where they face at the branch."""
    frames: int = 3
    """Number of frames that it lasts: 0.1 s."""
    first: int = 0
    """Frame from which on it acts, counted from the branch."""
    part: str = "torso"
    """Body part; "body" shares it by mass, so that everything gets the same velocity."""

    def forces(self, masses: Float[np.ndarray, "22"], fps: float) -> Float[np.ndarray, "22"]:
        """Return its size on each joint [N]."""
        total = self.impulse * masses.sum() * fps / self.frames
        if self.part == "body":
            return total * masses / masses.sum()
        joints, shares = list(joints_of(self.part)), np.zeros(NUM_JOINTS)
        shares[joints] = total / len(joints)
        return shares


@dataclass(frozen=True)
class Branch:
    """One of the people, counted from 0, and their shoves; nobody shoves the unperturbed twin."""

    person: int
    shoves: tuple[Shove, ...] = ()


def lead_in(simulator: Simulator, start: str, seeds: Sequence[int]) -> tuple[State, Streams]:
    """Let people begin what they want; return them and their random streams at the branch."""
    world = World(Scene((Person(start),), (Acted.ahead(SPEEDS[start], len(seeds)),)), simulator)
    rng, now = world.streams(list(seeds)), world.start(list(seeds))
    for _ in range(round(LEAD_IN * world.fps)):
        now, _ = world.step(now, rng)
    return now.people.map(lambda values: values[:, 0]), rng


def forces_of(
    branches: Sequence[Branch], people: State, masses: Float[np.ndarray, "22"], fps: float
) -> Float[np.ndarray, "w t 22 3"]:
    """Return the forces from the branch on [N]; shoves are relative to where people face there."""
    length = max((shove.first + shove.frames for branch in branches for shove in branch.shoves), default=0)
    forces = np.zeros((len(branches), length, NUM_JOINTS, 3))
    for row, branch in zip(forces, branches, strict=True):
        for shove in branch.shoves:
            way = direction(people.q[branch.person], shove.degrees)
            row[shove.first : shove.first + shove.frames] += shove.forces(masses, fps)[:, None] * way
    return forces


def direction(q: Float[np.ndarray, "*b 22 3 3"], degrees: float | int) -> Float[np.ndarray, "*b 3"]:
    """Return the horizontal unit vector at an angle counterclockwise from where somebody faces."""
    ahead, angle = ahead_of(q), np.radians(degrees)
    x, y = ahead[..., 0], ahead[..., 1]
    return np.stack((np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y, 0 * x), -1)


def branch_out(
    simulator: Simulator, start: str, lead: tuple[State, Streams], branches: Sequence[Branch], num_frames: int
) -> tuple[Motion | None, Bool[np.ndarray, "w"]]:
    """Return the motions of the branches that went through, and which these are; the first frame is the branch."""
    people, rng = lead
    forces = forces_of(branches, people, simulator.skeleton.masses, simulator.prior.fps)

    def together(some: Sequence[int]) -> Motion:
        owners = [branches[i].person for i in some]
        acted = Acted.ahead(SPEEDS[start], len(some), forces[some])
        return roam(simulator, people[owners], acted, rng.branched(owners), num_frames)

    return survivors(range(len(branches)), together)
