"""People to whom something is done, each in a world of their own, and what they do, as numbers: pushes, trips, balls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.rotations import heading
from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute.random import Streams
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
from dropsim.priors.bank import Bank
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import MotionField
from dropsim.priors.named import open_prior
from dropsim.priors.prior import State
from dropsim.research.evaluation.harness import Arrays, Body, survivors
from dropsim.scene import Element, Person, Scene, SceneContext, StepInputs, Throw, Trip, World, run
from dropsim.scene.element import joints_of
from dropsim.scene.perturbations import ahead_of
from dropsim.scene.rollout import seen

SPEEDS = {"stand": 0.0, "walk": 1.2, "run": 2.5}
"""Speed straight ahead that people of each start want [m/s]."""
JUMPED = 1.08
"""Height of the pelvis in the air, relative to standing."""
LEAD_IN = 1.0
"""Time before the branch, in which people reach the speed they want [s]."""


@dataclass(frozen=True, eq=False)
class Acted(Element[np.ndarray]):
    """Forces on the person of each world and what they want, frame by frame."""

    wanted: Float[np.ndarray, "w v 3"]
    """Velocity [m/s] and height of the pelvis [m], the last ones from then on; NaN if unknown."""
    forces: Float[np.ndarray, "w t 22 3"] | None = None
    """Forces on the joints [N]."""

    @classmethod
    def ahead(cls, speed: float, count: int, forces: Float[np.ndarray, "w t 22 3"] | None = None) -> "Acted":
        """Let everybody go straight ahead; people of the prior's starts face +y."""
        return cls(np.tile((0.0, speed, np.nan), (count, 1, 1)), forces)

    def act(self, memory: np.ndarray | None, context: SceneContext) -> tuple[np.ndarray | None, StepInputs]:
        forces = None
        if self.forces is not None and context.frame < self.forces.shape[1]:
            forces = self.forces[:, context.frame, None]
        wanted = self.wanted[:, min(context.frame, self.wanted.shape[1] - 1), None]
        # As in the app, people who are over the top of their jump land by themselves.
        aloft = JUMPED * context.skeleton.standing_height
        falls = (context.people.x[..., 0, 2] > aloft) & (context.people.v[..., 0, 2] < 0)
        jumped = (wanted[..., 2] > aloft) & (falls if memory is None else falls | memory)
        intent = replace(Intent.toward(wanted[..., :2]), height=np.where(jumped, np.nan, wanted[..., 2]))
        return jumped, StepInputs(forces=forces, intent=intent)


def roam(simulator: Simulator, people: State, acted: Acted, rng: Streams, num_frames: int) -> Motion:
    """Return how people go on from some states."""
    world = World(Scene((Person(),), (acted,)), simulator)
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
) -> Motion:
    """Return the motions of the branches; the first frame is the branch."""
    people, rng = lead
    owners = [branch.person for branch in branches]
    forces = forces_of(branches, people, simulator.skeleton.masses, simulator.prior.fps)
    acted = Acted.ahead(SPEEDS[start], len(branches), forces)
    return roam(simulator, people[owners], acted, rng.branched(owners), num_frames)


AFTER = 3
"""Frames after a push's end at which its effect is judged: 0.1 s."""
STEP_SECONDS = 2.0
"""Time within which a step is a response to a push [s]."""
LEDGER_EVERY = 5
"""Frames from one half second that is looked at to the next."""
RISE = np.arange(-60, 1, 6)
"""Frames of getting up that tell ways apart: the two seconds until a person is upright."""
TWISTED = [
    (f"{side}_{a}", f"{side}_{b}") for a, b in (("knee", "ankle"), ("ankle", "foot")) for side in ("left", "right")
]
"""Shins and feet, whose turn about themselves within a frame is measured."""
BALL_MASS = 8.0
"""Mass of a ball that is thrown at people [kg]."""
NEAR = 0.05
"""A hand or a head this near to the floor has reached it [m]."""


def push_branches(
    body: Body, people: Sequence[tuple[int, Sequence[tuple[Shove, ...]]]], *, start: str, num_frames: int
) -> Arrays:
    """Simulate people of one start, given by their seeds and the shoves of each branch.

    Rows are the first branch of everybody, then the second, and so on. If a branch diverges, all of its person do.
    """
    simulator = body.simulator()

    def together(some: Sequence[tuple[int, Sequence[tuple[Shove, ...]]]]) -> Arrays:
        cases = zip(*(shoves for _, shoves in some), strict=True)
        branches = [Branch(person, shoves) for case in cases for person, shoves in enumerate(case)]
        lead = lead_in(simulator, start, [seed for seed, _ in some])
        return measured(branch_out(simulator, start, lead, branches, num_frames), branches)

    columns = survivors(people, together)
    return columns | {"finished": np.repeat(columns["finished"], len(people[0][1]))}


def measured(motion: Motion, branches: Sequence[Branch]) -> Arrays:
    """Measure each branch, against the unperturbed twin if there is one."""
    twins = {branch.person: row for row, branch in enumerate(branches) if not branch.shoves}
    shoves = [branch.shoves or (Shove(0, 0, frames=0),) for branch in branches]
    start = np.array([min(shove.first for shove in some) for some in shoves])
    end = np.array([max(shove.first + shove.frames for shove in some) for some in shoves])
    step = metrics.first_step(motion)
    stepped = answered(motion, step, np.array([twins.get(branch.person, -1) for branch in branches]))
    return {
        "fell": metrics.fell(motion, 1),
        "got_up": metrics.got_up(motion, 1),
        "spin": metrics.spin_while_lying(motion, 1),
        "impulse": np.array([some[0].impulse for some in shoves], dtype=float),
        "degrees": np.array([some[0].degrees for some in shoves], dtype=float),
        "lost": np.array([_lost(motion, row, branch, twins.get(branch.person)) for row, branch in enumerate(branches)]),
        "stepped": stepped,
        "lift_off": np.where(stepped, step[:, 0] / motion.fps, np.nan),
        "ledger": metrics.ledger(motion)[..., ::LEDGER_EVERY, :].astype(np.float32),
        "stop_time": metrics.seconds_to_stop(motion, end),
        "stop_distance": metrics.stop_distance(motion, start, end),
        "twist": np.max([metrics.bone_twist(motion, *bone) for bone in TWISTED], axis=(0, -1)),
        "rise": getting_up(motion).astype(np.float32),
    }


def _lost(motion: Motion, row: int, branch: Branch, twin: int | None) -> float:
    """Return the push's impulse over the mass less the velocity that it changed 0.1 s after its end [m/s].

    NaN without a twin.
    """
    if twin is None or len(branch.shoves) != 1:
        return float("nan")
    (shove,) = branch.shoves
    at = shove.first + shove.frames + AFTER
    centre = motion.skeleton.centre_of_mass(motion.joints[[row, twin]][:, at - 1 : at + 1])
    change = np.diff(centre, axis=1)[:, 0] * motion.fps
    return shove.impulse - float((change[0] - change[1]) @ direction(motion.q[row, 0], shove.degrees))


def answered(motion: Motion, step: Int[np.ndarray, "b 3"], twins: Int[np.ndarray, "b"]) -> np.ndarray:
    """Return who steps within two seconds, and before the unperturbed twin lands a step; nobody without a twin."""
    landed, down = step[:, 1], metrics.fallen(motion)
    unperturbed = np.where(landed < 0, len(motion), landed)[twins]
    # Feet of people who lie go up and down too.
    lies = np.where(down.any(-1), down.argmax(-1), len(motion))
    soon = (landed >= 0) & (landed <= STEP_SECONDS * motion.fps) & (landed <= lies)
    return (twins >= 0) & soon & (landed < unperturbed)


def getting_up(motion: Motion) -> Float[np.ndarray, "b n 22 3"]:
    """Return the two seconds until people who fell are upright, as seen from their own root; NaN for all others."""
    down, up = metrics.fallen(motion), metrics.upright(motion)
    first = down.argmax(-1)
    risen = up & (np.arange(len(motion)) > first[:, None]) & down.any(-1)[:, None]  # pyright: ignore[reportIndexIssue]
    frames = np.maximum(risen.argmax(-1)[:, None] + RISE, 0)
    rows = np.arange(len(down))[:, None]
    joints = motion.joints[rows, frames] - (motion.root * (1.0, 1.0, 0.0))[rows, frames][..., None, :]
    joints = joints @ heading(motion.q[rows, frames, 0]).swapaxes(-1, -2)
    return np.where((risen.any(-1))[:, None, None, None], joints, np.nan)


def measure_recordings(body: Body, clips: Sequence[int]) -> Arrays:
    """Measure the momentum of some clips, spread over the bank, for at most ten seconds each."""
    bank = bank_of(body)
    chosen = np.linspace(0, len(bank.clips) - 1, len(clips)).astype(int).tolist()
    motions = [bank.motion(i, seconds=10.0) for i in chosen]
    return {"ledger": np.concatenate([metrics.ledger(motion)[::LEDGER_EVERY] for motion in motions])}


def bank_of(body: Body) -> Bank:
    """Return the bank of a body's prior, or the shipped one for priors without a bank."""
    prior = open_prior(body.prior)
    return prior.bank if isinstance(prior, MotionField) else MotionField.shipped().bank


def trip(body: Body, seeds: Sequence[int]) -> Arrays:
    """Catch the heels of runners, and watch them for five seconds."""
    elements = (Acted.ahead(SPEEDS["run"], len(seeds)), Trip(start=1.0))
    world = World(Scene((Person("run"),), elements), body.simulator())
    rng, states, reports = world.streams(list(seeds)), [world.start(list(seeds))], []
    for _ in range(round(5 * world.fps) - 1):
        now, report = world.step(states[-1], rng)
        states.append(now)
        reports.append(report)
    caught = states[-1].memories[1].since  # pyright: ignore[reportAttributeAccessIssue]
    return tripped(seen(world, states, reports).motions[0], np.asarray(caught))


def tripped(motion: Motion, since: Float[np.ndarray, "b"]) -> Arrays:
    """Measure people who trip, by the frame at which the heel is caught; infinite for those who were not."""
    caught = np.isfinite(since)
    at = np.clip(np.where(caught, since, 1), 1, len(motion) - 8).astype(int)
    rows, centre = np.arange(len(at)), motion.skeleton.centre_of_mass(motion.joints)[..., :2]
    velocity = np.diff(centre, axis=-2, prepend=centre[:, :1]) * motion.fps
    before, after = velocity[rows, at], velocity[rows, at + round(0.2 * motion.fps)]
    down = metrics.fallen(motion) & (np.arange(len(motion)) > at[:, None])
    fell, first = down.any(-1), down.argmax(-1)
    ahead = (motion.joints[rows, first, 15] - motion.joints[rows, first, 0])[:, :2]
    low = sphere_heights(motion)[..., (20, 21, 15)] < NEAR
    low &= (np.arange(len(motion)) > at[:, None])[..., None]
    reached = np.where(low.any(-2), low.argmax(-2), len(motion))
    return {
        "caught": caught,
        "speed_kept": (after * before).sum(-1) / np.maximum((before**2).sum(-1), 1e-9),
        "fell": fell,  # pyright: ignore[reportReturnType]
        "forward": fell & ((ahead * before).sum(-1) > 0),
        "hands_first": reached[:, :2].min(-1) < reached[:, 2],
    }


def throw_ball(body: Body, seeds: Sequence[int], *, start: str, angle: float) -> Arrays:
    """Throw a heavy ball at people."""
    throw = Throw("spine3", angle, speed=8.0, mass=BALL_MASS, start=1.0)
    simulator, ahead = body.simulator(), Acted.ahead(SPEEDS[start], len(seeds))
    hit, calm = (
        run(World(Scene((Person(start),), elements), simulator), 75, list(seeds))
        for elements in ((ahead, throw), (ahead,))
    )
    (ball,) = hit.balls
    return struck(hit.motions[0], calm.motions[0], ball.velocity, BALL_MASS)


def struck(motion: Motion, calm: Motion, velocities: Float[np.ndarray, "b t 3"], mass: float) -> Arrays:
    """Measure the first 0.2 s of each hit: impulses on person and ball, and the velocity that is lost 0.1 s later."""
    h, total = 1 / motion.fps, motion.skeleton.masses.sum()
    forces = np.asarray(motion.external_forces).sum(-2)
    acts = np.linalg.norm(forces, axis=-1) > 1e-6
    first = acts.argmax(-1)
    time = np.arange(len(motion))
    acts &= (time >= first[:, None]) & (time < first[:, None] + round(0.2 * motion.fps))
    on_person = (forces * acts[..., None]).sum(-2) * h
    change = np.nan_to_num(np.diff(velocities, axis=-2, prepend=velocities[:, :1])) + np.array([0.0, 0.0, 9.81 * h])
    on_ball = mass * (change * acts[..., None]).sum(-2)
    size = np.maximum(np.linalg.norm(on_person, axis=-1), 1e-9)
    last = np.minimum(len(motion) - 1 - acts[:, ::-1].argmax(-1) + AFTER, len(motion) - 1)
    apart = motion.skeleton.centre_of_mass(motion.joints) - calm.skeleton.centre_of_mass(calm.joints)
    rows = np.arange(len(last))
    faster = apart[rows, last] - apart[rows, last - 1]
    # Over the ground: what a ball pushes people down, the floor takes.
    way = on_person[:, :2] / np.maximum(np.linalg.norm(on_person[:, :2], axis=-1, keepdims=True), 1e-9)
    lost = (on_person[:, :2] / total - faster[:, :2] * motion.fps) * way
    return {
        "hit": acts.any(-1),
        "mismatch": np.linalg.norm(on_person + on_ball, axis=-1) / size,
        "lost": lost.sum(-1),
        "fell": metrics.fell(motion, 1),
    }
