"""Many people, each pushed in its own way, simulated side by side."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.motion.motion import Motion
from dropsim.physics.collider import Plane
from dropsim.physics.energies.physical import Contact, RangeOfMotion
from dropsim.physics.energy import Frame
from dropsim.physics.step import DivergedError, Simulator
from dropsim.priors.cvae import VELOCITY_SIZE, CVAEPrior
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import State, Streams
from dropsim.scene import Element, Person, Scene, World, run
from dropsim.scene.element import StepInputs, SceneContext, joints_of
from dropsim.scene.files.setup import SimulatorOptions

CHUNK = 25
"""Trials simulated side by side; fixed, so that results do not depend on how many workers there are."""


@dataclass(frozen=True)
class Trial:
    """One person and the push that it gets."""

    start: str
    """A category of the bank of starts."""
    seed: int
    force: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """World [N]; people from the bank face +y."""
    part: str = "torso"
    first: int = 63
    """Frame from which on it acts."""
    frames: int = 15
    """How many frames it lasts; the paper's."""
    start_seed: int | None = None
    """Draws the state to start in; the seed does, unless given, and else only what comes after."""

    @property
    def end(self) -> int:
        """First frame without it."""
        return self.first + self.frames


@dataclass(frozen=True)
class Body:
    """How people are simulated: what an ablation changes, as plain values that name a result and can be handed to another process."""

    options: SimulatorOptions = field(default_factory=SimulatorOptions)
    wish_mode: bool = False
    """Whether the iterations start at the prior's mode, and not at a sample."""
    weights: tuple[tuple[str, float], ...] = ()
    """Weights of energies that differ from the defaults, by name."""
    correction: float | None = None
    """Strength of the soft correction on the ground; the default's unless given."""
    unit_masses: bool = False
    """The paper's equal masses instead of a body's."""
    prior: str | None = None
    """File of the prior's weights; those of the package unless given."""
    prior_digest: str = ""
    """Of that file, so that other weights under the same name make other results."""

    @classmethod
    def of(cls, num_samples: int, weights: Path | None = None) -> "Body":
        """Return the default body with K samples and, where given, the prior of a file."""
        options = SimulatorOptions(num_samples=num_samples)
        if weights is None:
            return cls(options)
        return cls(options, prior=str(weights), prior_digest=hashlib.sha256(weights.read_bytes()).hexdigest())

    def changed(self, **options: bool | int | float) -> "Body":
        """Return the same with other options of the simulator."""
        return replace(self, options=replace(self.options, **options))

    def simulator(self) -> Simulator:
        """Build the simulator."""
        prior = CVAEPrior.shipped() if self.prior is None else CVAEPrior.load(Path(self.prior))
        if self.unit_masses:
            prior = CVAEPrior(
                prior.network, prior.skeleton.with_unit_masses(), fps=prior.fps, name=prior.name, temperature=prior.temperature
            )
        whole = replace(self.options.simulator(prior), wish_mode=self.wish_mode)
        if self.correction is not None:
            whole = replace(whole, wrench=replace(whole.wrench, weight=self.correction))
        return replace(whole, **{name: replace(getattr(whole, name), weight=weight) for name, weight in self.weights})


@dataclass(frozen=True, eq=False)
class Pushes(Element[None]):
    """A push of its own for the person of each world."""

    trials: tuple[Trial, ...]

    def act(self, memory: None, moment: SceneContext) -> tuple[None, StepInputs]:
        """Push whoever's turn it is."""
        forces = moment.no_forces()
        forces[..., 0, :, :] = forces_on_joints(self.trials, moment.frame)
        return memory, StepInputs(forces=forces)


def forces_on_joints(trials: Sequence[Trial], frame: int) -> Float[Tensor, "b 22 3"]:
    """Return the pushes that act from a frame to the next, each shared evenly by the joints of its part [N]."""
    forces = torch.zeros(len(trials), NUM_JOINTS, 3, dtype=torch.float64)
    for i, trial in enumerate(trials):
        if trial.first <= frame < trial.end:
            joints = joints_of(trial.part)
            forces[i, list(joints)] = torch.tensor(trial.force, dtype=torch.float64) / len(joints)
    return forces


def batch_scenes(trials: Sequence[Trial]) -> list[tuple[Trial, ...]]:
    """Split trials into those that are simulated together."""
    return [tuple(trials[i : i + CHUNK]) for i in range(0, len(trials), CHUNK)]


def toward(degrees: float, newtons: float) -> tuple[float, float, float]:
    """Return a horizontal force at an angle counterclockwise from the front of somebody who faces +y [N]."""
    angle = math.radians(degrees + 90.0)
    return newtons * math.cos(angle), newtons * math.sin(angle), 0.0


def starts_of(prior: CVAEPrior, trials: Sequence[Trial]) -> State:
    """Return the state that each trial starts in."""
    states = [prior.start(trial.start, seed=trial.seed if trial.start_seed is None else trial.start_seed) for trial in trials]
    return State(*(torch.stack([getattr(s, name) for s in states]) for name in ("x", "v", "q", "memory")))


def simulate_trials(simulator: Simulator, trials: Sequence[Trial], num_frames: int) -> tuple[Motion | None, Bool[Tensor, "b"]]:
    """Return the motions of the trials that went through to the end, along a batch dimension, and which these are."""

    def together(some: Sequence[Trial]) -> Motion:
        # Who has no prior has no wish to get up either.
        world = World(Scene((Person(),), (Pushes(tuple(some)),), get_up=simulator.kinematic is not None), simulator)
        state = starts_of(_cvae(simulator), some).map(lambda values: values.unsqueeze(1))
        return run(world, num_frames, [trial.seed for trial in some], start=world.start_from(state)).motions[0]

    return survivors(trials, together)


Item = TypeVar("Item")


def survivors(items: Sequence[Item], simulate: Callable[[Sequence[Item]], Motion]) -> tuple[Motion | None, Bool[Tensor, "b"]]:
    """Simulate items side by side; one that diverges stops the others, so they are run again in halves until it is alone, and left out."""
    try:
        return simulate(items), torch.ones(len(items), dtype=torch.bool)
    except DivergedError:
        if len(items) == 1:
            return None, torch.zeros(1, dtype=torch.bool)
    middle = len(items) // 2
    parts = [survivors(half, simulate) for half in (items[:middle], items[middle:])]
    motions = [motion for motion, _ in parts if motion is not None]
    return (joined(motions) if motions else None), torch.cat([finished for _, finished in parts])


def _cvae(simulator: Simulator) -> CVAEPrior:
    if not isinstance(simulator.prior, CVAEPrior):
        raise ValueError(f"the bank of starts belongs to the shipped prior, not to {simulator.prior.name}")
    return simulator.prior


def joined(motions: Sequence[Motion]) -> Motion:
    """Put batches of people of one length into one batch."""

    def cat(name: str) -> Tensor | None:
        parts = [getattr(m, name) for m in motions]
        return None if any(part is None for part in parts) else torch.cat(parts)

    names = ("root", "q", "joints", "contacts", "contact_forces", "external_forces", "root_wrench")
    energies = {k: torch.cat([m.energies[k] for m in motions]) for k in motions[0].energies}
    return replace(motions[0], **{name: cat(name) for name in names}, energies=energies)


def prior_alone(prior: CVAEPrior, trials: Sequence[Trial], num_frames: int) -> Motion:
    """Return what the prior makes of the same pushes without a body: everybody is moved and sped up as a free body of its mass would be."""
    mass = float(prior.skeleton.masses.sum())
    rng, state, h = Streams([trial.seed for trial in trials]), starts_of(prior, trials), 1 / prior.fps
    x, q = [state.x], [state.q]
    for frame in range(num_frames - 1):
        chosen = prior.sample(state, 2, rng).pick(torch.ones(len(trials), dtype=torch.long))
        change = h * forces_on_joints(trials, frame).sum(-2) / mass
        memory = prior.commit(chosen, chosen.x, chosen.q)
        # The memory opens with the velocities of the root, its turning, and the joints: the prior goes on from what it was given.
        push = torch.cat((change, torch.zeros_like(change), change.repeat(1, NUM_JOINTS)), dim=-1)
        memory = torch.cat((memory[:, :VELOCITY_SIZE] + push.to(memory), memory[:, VELOCITY_SIZE:]), dim=-1)
        joints = chosen.x + h * change.unsqueeze(-2)
        state = State(joints, (joints - state.x) / h, chosen.q, memory)
        x.append(state.x)
        q.append(state.q)
    joints = torch.stack(x, dim=-3)
    return Motion(prior.skeleton, prior.fps, joints[..., 0, :], torch.stack(q, dim=-4), joints, name=f"{prior.name} alone")


def all_energies(motion: Motion) -> Mapping[str, Float[Tensor, "*b t"]]:
    """Return a simulated motion's energies with those that were switched off measured too, alike for all [m^2].

    Contact and range of motion are taken at the frames themselves; physics is the sum of all but the prior's.
    """
    frame = Frame(
        motion.skeleton, 1 / motion.fps, motion.joints[..., :-1, :, :], motion.joints[..., 1:, :, :], motion.q[..., 1:, :, :, :],
        motion.joints[..., 1:, None, :, :], (Plane.ground(),),
    )  # fmt: skip
    values = dict(motion.energies)
    for energy in (Contact(), RangeOfMotion(PosePrior.shipped())):
        after = energy.value(motion.joints[..., 1:, :, :], frame)
        values[energy.name] = torch.cat((after[..., :1], after), dim=-1)
    values["physics"] = torch.stack([values[k] for k in ("momentum", "rigidity", "contact", "range_of_motion")]).sum(0)
    return values


def frames_of(trials: Sequence[Trial], *, end: bool) -> Int[Tensor, "b"]:
    """Return the frame at which each push begins or has ended."""
    return torch.tensor([trial.end if end else trial.first for trial in trials], dtype=torch.long)
