"""People who lead in, and then branch: the same person goes on under many perturbations, and under none, with the same random numbers."""

# pyright: reportOptionalSubscript=false

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
from dropsim.research.evaluation.trials import ALONE, FULL, NO_PRIOR, RAGDOLL, moved_alone, survivors
from dropsim.scene import Element, Person, Scene, SceneContext, StepInputs, World, run
from dropsim.scene.element import joints_of
from dropsim.scene.perturbations import ahead_of

SPEEDS = {"stand": 0.0, "walk": 1.2, "run": 2.5}
"""What people of each start want: to go straight ahead at this speed [m/s]."""
JUMPED = 1.08
"""Height of the pelvis in the air, relative to standing."""
LEAD_IN = 1.0
"""Time before the branch, in which people come to what they want [s]."""


@dataclass(frozen=True)
class Shove:
    """A force for a while."""

    impulse: float | int
    """Over the body's mass [N s/kg]."""
    degrees: float | int
    """Where it drives the person, counterclockwise from where they face at the branch."""
    frames: int = 3
    """How long it lasts: 0.1 s."""
    first: int = 0
    """Frame from which on it acts, counted from the branch."""
    part: str = "torso"
    """A body part; "body" shares it by mass, so that everything gets the same velocity."""

    def forces(self, skeleton_masses: Float[np.ndarray, "22"], fps: float) -> Float[np.ndarray, "22"]:
        """Return its size on each joint [N]."""
        total = self.impulse * skeleton_masses.sum() * fps / self.frames
        if self.part == "body":
            return total * skeleton_masses / skeleton_masses.sum()
        joints, shares = list(joints_of(self.part)), np.zeros(NUM_JOINTS)
        shares[joints] = total / len(joints)
        return shares


@dataclass(frozen=True)
class Branch:
    """One of the people, counted from 0, and what happens to them; nothing is the unperturbed twin."""

    person: int
    shoves: tuple[Shove, ...] = ()


@dataclass(frozen=True, eq=False)
class Acted(Element[np.ndarray]):
    """What is done to the person of each world, and what they want, frame by frame."""

    wanted: Float[np.ndarray, "w v 3"]
    """Velocity [m/s] and height of the pelvis [m], the last ones from then on; NaN for people who want nothing in
    particular."""
    forces: Float[np.ndarray, "w t 22 3"] | None = None
    """[N]"""

    @classmethod
    def ahead(cls, speed: float, count: int, forces: Float[np.ndarray, "w t 22 3"] | None = None) -> "Acted":
        """Let everybody go straight ahead; people of the prior's starts face +y."""
        return cls(np.tile((0.0, speed, np.nan), (count, 1, 1)), forces)

    def act(self, memory: np.ndarray | None, context: SceneContext) -> tuple[np.ndarray, StepInputs]:
        acts = self.forces is not None and context.frame < self.forces.shape[1]
        wanted = self.wanted[:, min(context.frame, self.wanted.shape[1] - 1), None]
        # As in the app, people who are over the top of their jump land by themselves.
        aloft = JUMPED * context.skeleton.standing_height
        over = (context.people.x[..., 0, 2] > aloft) & (context.people.v[..., 0, 2] < 0)
        jumped = (wanted[..., 2] > aloft) & (over if memory is None else over | memory)
        intent = replace(Intent.toward(wanted[..., :2]), height=np.where(jumped, np.nan, wanted[..., 2]))
        return jumped, StepInputs(forces=self.forces[:, context.frame, None] if acts else None, intent=intent)


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
    """Return all that happens from the branch on [N]; shoves are relative to where people face there."""
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
    simulator: Simulator,
    start: str,
    people: State,
    rng: Streams,
    branches: Sequence[Branch],
    num_frames: int,
    method: str = FULL,
) -> tuple[Motion | None, Bool[np.ndarray, "w"]]:
    """Return the motions of the branches that went through, and which these are; the first frame is the branch."""
    masses, fps = simulator.skeleton.masses, simulator.prior.fps
    forces = forces_of(branches, people, masses, fps)
    simulator = simulator.with_options(**NO_PRIOR) if method == RAGDOLL else simulator

    def together(some: Sequence[int]) -> Motion:
        owners = [branches[i].person for i in some]
        if method == ALONE:
            wanted = Intent.toward(np.tile((0.0, SPEEDS[start]), (len(some), 1)))
            return moved_alone(simulator.prior, people[owners], forces[some], num_frames, rng.branched(owners), wanted)
        # Getting up is scripted: a body without a prior must not do it.
        scene = Scene((Person(start),), (Acted.ahead(SPEEDS[start], len(some), forces[some]),), get_up=method == FULL)
        world = World(scene, simulator)
        state = world.start_from(people[owners].map(lambda values: values[:, None]))
        return run(world, num_frames, [], start=state, rng=rng.branched(owners).unflatten(len(owners), 1)).motions[0]

    motion, finished = survivors(range(len(branches)), together)
    if method == ALONE and motion is not None:
        finite = np.isfinite(motion.joints).all((-1, -2, -3))
        motion, finished = (motion.map(lambda values: values[finite]) if finite.any() else None), finite
    return motion, finished  # pyright: ignore[reportReturnType]
