"""Many people, each pushed in their own way, simulated as one batch."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.skeleton import NUM_JOINTS, flat
from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane, solids
from dropsim.physics.energies import Contact, RangeOfMotion
from dropsim.physics.energy import Frame
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import DivergedError, Simulator
from dropsim.priors.intent import Intent
from dropsim.priors.named import open_prior
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Prior, State
from dropsim.research.training.starts import stacked
from dropsim.scene import Element, Person, Scene, SceneContext, StepInputs, World, run
from dropsim.scene.element import joints_of

CHUNK = 25
"""Trials of a batch; fixed, so that a chunk's file does not depend on how many workers there are."""
Item = TypeVar("Item")
FULL, ALONE, RAGDOLL, TRACKED = "full", "prior alone", "ragdoll", "MuJoCo with PD"
"""The simulator, and baselines: the prior without a body, a body without a prior, and one in MuJoCo that tracks the
unpushed motion."""
NO_PRIOR = {"kinematic": False, "range_of_motion": False, "correct": False, "num_samples": 1}
"""Options of a ragdoll: momentum, bones and contact only."""


def check_seed(seed: int) -> None:
    """Refuse a seed from which not all seeds of an evaluation can be counted up."""
    if not 0 <= seed < 2**40:
        raise ValueError(f"a seed is a whole number from 0 to 2^40, not {seed}")


@dataclass(frozen=True)
class Trial:
    """One person and their push."""

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
    """Draws the start state, so that `seed` only draws what comes after; None means `seed`."""

    @property
    def end(self) -> int:
        """First frame without it."""
        return self.first + self.frames


@dataclass(frozen=True)
class Body:
    """How people are simulated, as plain values that name a result and can be sent to another process."""

    options: SimulatorOptions = field(default_factory=SimulatorOptions)
    unit_masses: bool = False
    """The paper's equal masses instead of a body's."""
    prior: str = "field"
    """As `open_prior` takes it: a name, a file or a folder."""
    prior_digest: str = ""
    """Of that file or folder, so that other numbers under the same name make other results."""

    @classmethod
    def of(cls, num_samples: int | None, prior: str = "field") -> "Body":
        """Return the default body with K samples and a prior."""
        return cls(SimulatorOptions(num_samples=num_samples), prior=prior, prior_digest=_digest(Path(prior)))

    def changed(self, **options: bool | int | float) -> "Body":
        """Return the same with other options of the simulator."""
        return replace(self, options=replace(self.options, **options))

    def simulator(self) -> Simulator:
        """Build the simulator."""
        prior = open_prior(self.prior)
        if self.unit_masses:
            object.__setattr__(prior, "skeleton", prior.skeleton.with_unit_masses())
        return Simulator(prior, options=self.options)


def _digest(path: Path) -> str:
    """Return a digest of a file, or of the names, sizes and times of a folder's files; nothing for another name."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = (
        [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(path.rglob("*"))]
        if path.is_dir()
        else []
    )
    return hashlib.sha256(repr(files).encode()).hexdigest() if files else ""


@dataclass(frozen=True, eq=False)
class Pushes(Element[None]):
    """A push of their own for the person of each world."""

    trials: tuple[Trial, ...]

    def act(self, memory: None, context: SceneContext) -> tuple[None, StepInputs]:
        """Push everybody whose turn it is."""
        return memory, StepInputs(forces=forces_on_joints(self.trials, context.frame)[:, None])


def forces_on_joints(trials: Sequence[Trial], frame: int) -> Float[np.ndarray, "b 22 3"]:
    """Return the pushes that act from a frame to the next, each shared evenly by the joints of its part [N]."""
    forces = np.zeros((len(trials), NUM_JOINTS, 3))
    for i, trial in enumerate(trials):
        if trial.first <= frame < trial.end:
            joints = joints_of(trial.part)
            forces[i, list(joints)] = np.array(trial.force) / len(joints)
    return forces


def batched(trials: Sequence[Trial]) -> list[tuple[Trial, ...]]:
    """Split trials into those that are simulated together."""
    return [tuple(trials[i : i + CHUNK]) for i in range(0, len(trials), CHUNK)]


def toward(degrees: float, newtons: float) -> tuple[float, float, float]:
    """Return a horizontal force at an angle counterclockwise from the front of somebody who faces +y [N]."""
    angle = math.radians(degrees + 90.0)
    return newtons * math.cos(angle), newtons * math.sin(angle), 0.0


def starts_of(prior: Prior, trials: Sequence[Trial]) -> State:
    """Return the state that each trial starts in."""
    return stacked(
        [
            prior.start(trial.start, seed=trial.seed if trial.start_seed is None else trial.start_seed)
            for trial in trials
        ]
    )


def simulate_trials(
    simulator: Simulator, trials: Sequence[Trial], num_frames: int
) -> tuple[Motion | None, Bool[np.ndarray, "b"]]:
    """Return the motions of the trials that went through to the end, along a batch dimension, and which these are."""

    def together(some: Sequence[Trial]) -> Motion:
        # Getting up is scripted: a body without a prior must not do it.
        world = World(Scene((Person(),), (Pushes(tuple(some)),), get_up=simulator.options.kinematic), simulator)
        state = starts_of(simulator.prior, some).map(lambda values: values[:, None])
        return run(world, num_frames, [trial.seed for trial in some], start=world.start_from(state)).motions[0]

    return survivors(trials, together)


def survivors(
    items: Sequence[Item], simulate: Callable[[Sequence[Item]], Motion]
) -> tuple[Motion | None, Bool[np.ndarray, "b"]]:
    """Simulate a batch; if somebody diverges, it is run again in halves until that person is alone, and they are left out."""
    try:
        return simulate(items), np.ones(len(items), dtype=bool)
    except DivergedError:
        if len(items) == 1:
            return None, np.zeros(1, dtype=bool)
    middle = len(items) // 2
    parts = [survivors(half, simulate) for half in (items[:middle], items[middle:])]
    motions = [motion for motion, _ in parts if motion is not None]
    return (joined(motions) if motions else None), np.concatenate([finished for _, finished in parts])


def joined(motions: Sequence[Motion], axis: int = 0) -> Motion:
    """Put batches of people of one length into one batch, along one of its dimensions."""

    def join(name: str) -> np.ndarray | None:
        parts = [getattr(motion, name) for motion in motions]
        return None if parts[0] is None else np.concatenate(parts, axis)

    energies = {
        name: np.concatenate([motion.energies[name] for motion in motions], axis) for name in motions[0].energies
    }
    return replace(motions[0], **{name: join(name) for name in _ARRAYS}, energies=energies)


_ARRAYS = [f.name for f in fields(Motion) if f.name not in ("skeleton", "fps", "energies", "events", "name")]


def prior_alone(prior: Prior, trials: Sequence[Trial], num_frames: int) -> Motion:
    """Return what the prior makes of the same pushes without a body: people are moved and sped up as free bodies of their mass."""
    forces = np.stack([forces_on_joints(trials, frame) for frame in range(num_frames)], 1)
    return moved_alone(prior, starts_of(prior, trials), forces, num_frames, Streams([trial.seed for trial in trials]))


def moved_alone(
    prior: Prior,
    start: State,
    forces: Float[np.ndarray, "b t 22 3"],
    num_frames: int,
    rng: Streams,
    intent: Intent | None = None,
) -> Motion:
    """Return the same for people in given states; forces are those from the first frame on."""
    mass, h = float(prior.skeleton.masses.sum()), 1 / prior.fps
    states, taken = [start], 0 if prior.starts_at_mode else 1
    for frame in range(num_frames - 1):
        chosen = prior.propose(states[-1], 2, rng, intent).pick(taken)
        change = h * forces[:, frame].sum(-2) / mass if frame < forces.shape[1] else np.zeros((len(start.x), 3))
        # The prior goes on from the velocity that the push gave.
        memory = prior.apply_impulse(prior.commit(chosen, chosen.x, chosen.q), change)
        x = chosen.x + h * change[:, None]
        states.append(State(x, (x - states[-1].x) / h, chosen.q, memory))
    return motion_of(prior, states, f"{prior.name} alone")


def motion_of(prior: Prior, states: Sequence[State], name: str = "") -> Motion:
    """Return states over time as a motion."""
    joints = np.stack([state.x for state in states], axis=-3)
    return Motion(
        prior.skeleton,
        prior.fps,
        joints[..., 0, :],
        np.stack([s.q for s in states], axis=-4),
        joints,
        name=name or prior.name,
    )


def all_energies(motion: Motion) -> Mapping[str, Float[np.ndarray, "*b t"]]:
    """Return a simulated motion's energies, and those that were switched off as if they had been on [m^2].

    Contact and range of motion are taken at the frames themselves; physics is the sum of all but the prior's.
    """
    before, x, q = (
        flat(motion.joints[..., :-1, :, :], 2),
        flat(motion.joints[..., 1:, :, :], 2),
        flat(motion.q[..., 1:, :, :, :], 3),
    )
    frame = Frame(motion.skeleton, 1 / motion.fps, before, x, q, x[:, None], solids((Plane.ground(),), (len(x),)))
    values = dict(motion.energies)
    for energy in (Contact(), RangeOfMotion(PosePrior.shipped())):
        after = energy.value(x, frame).reshape(*motion.root.shape[:-2], -1)
        values[energy.name] = np.concatenate((after[..., :1], after), axis=-1)
    values["physics"] = np.sum(
        [values[name] for name in ("momentum", "rigidity", "contact", "range_of_motion")], axis=0
    )
    return values


def frames_of(trials: Sequence[Trial], *, end: bool) -> Int[np.ndarray, "b"]:
    """Return the frame at which each push begins or has ended."""
    return np.array([trial.end if end else trial.first for trial in trials])
