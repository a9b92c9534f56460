"""Simulations of people, each in a world of their own, who are asked for something, pushed, tripped or hit by balls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.motion.posture import walking_pitches
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
from dropsim.priors.bank import Bank
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import MotionField
from dropsim.priors.named import open_prior
from dropsim.priors.prior import State
from dropsim.research.evaluation import measures
from dropsim.research.evaluation.harness import Arrays, Body, survivors
from dropsim.research.evaluation.measures import AFTER, JUMPED, state_of_health
from dropsim.scene import Element, Person, Scene, SceneContext, StepInputs, Throw, Trip, World, above_ground, run
from dropsim.scene.element import joints_of
from dropsim.scene.perturbations import ahead_of
from dropsim.scene.rollout import seen
from dropsim.scene.scenarios import scenario as ready_scenario

SPEEDS = {"stand": 0.0, "walk": 1.2, "run": 2.5}
"""Speed straight ahead that people of each start want [m/s]."""
LEAD_IN = 1.0
"""Time before the branch, in which people reach the speed they want [s]."""
LEDGER_EVERY, PITCH_EVERY = 5, 5
"""Frames from one measurement of momentum and of posture to the next."""
TWISTED = [
    (f"{side}_{a}", f"{side}_{b}") for a, b in (("knee", "ankle"), ("ankle", "foot")) for side in ("left", "right")
]
"""Shins and feet, whose turn about themselves within a frame is measured."""
BALL_MASS = 8.0
"""Mass of a ball that is thrown at people [kg]."""
AT_ONCE = 1e6
"""Acceleration of people who are asked to turn at once [m/s^2]."""
Want = tuple[float | int, ...]
"""Time from which on [s] people want a velocity [m/s] and perhaps a height of the pelvis [m]."""


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


# --- People who are asked for something


def roamed(body: Body, seeds: Sequence[int], *, start: str, wants: Sequence[Want], seconds: float) -> Arrays:
    """Simulate people of one start whom nobody touches; each want holds until the next."""
    simulator = body.simulator()
    fps = simulator.prior.fps
    frames = round(seconds * fps) + 1
    wanted = np.full((frames, 3), np.nan)
    for time, x, y, *height in wants:
        wanted[round(time * fps) :] = (x, y, *(height or [np.nan]))

    def together(some: Sequence[int]) -> Arrays:
        acted = Acted(np.tile(wanted, (len(some), 1, 1)))
        motion = roam(simulator, simulator.prior.start(start, list(some)), acted, Streams(list(some)), frames)
        return {
            **state_of_health(motion, motion),
            **measures.paces(motion),
            "turn_errors": measures.turn_errors(motion, wanted[:, :2]),
            "responses": measures.response_times(motion, wanted[:, :2]),
            "pitches": walking_pitches(motion, every=PITCH_EVERY),
            "away": measures.net_speed(motion) * motion.duration,
            "steps": metrics.footfalls(motion),
            "not_done": measures.not_done(motion, wanted[:, 2]),
        }

    return survivors(seeds, together)


def run_scenario(body: Body, seeds: Sequence[int], *, scenario: str) -> Arrays:
    """Run a scenario with some seeds; a row for each seed and person."""
    setup = replace(ready_scenario(scenario), simulator=body.options)
    # People turn at once, without a ramp: that is how turns are judged.
    elements = [replace(e, acceleration=AT_ONCE) if measures.turns_sharply(e) else e for e in setup.scene.elements]
    scene = replace(setup.scene, elements=tuple(elements))
    setup = replace(setup, scene=scene)
    world, people = setup.world(body.simulator().prior), len(scene.people)

    def together(some: Sequence[int]) -> Arrays:
        rollout = run(world, setup.num_frames(world.fps), list(some))
        motions, ground = rollout.motions, None if scene.ground.level else rollout.ground
        health = [state_of_health(m, m if ground is None else above_ground(m, ground)) for m in motions]
        rows = {name: np.stack([one[name] for one in health], 1) for name in health[0]}
        led = measures.followed(motions[0], scene) if people == 1 else {}
        return {name: values.reshape(-1, *values.shape[2:]) for name, values in rows.items()} | led

    columns = survivors(seeds, together)
    return columns | {"finished": np.repeat(columns["finished"], people)}


# --- Pushes: people lead in; then the same person goes on under many perturbations, with the same random numbers.


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


Shoves = tuple[Shove, ...]
"""Shoves of a branch; the unperturbed twin has none."""


def push_branches(body: Body, people: Sequence[tuple[int, Sequence[Shoves]]], *, start: str, num_frames: int) -> Arrays:
    """Simulate people of one start, given by their seeds and the shoves of each branch.

    Rows are the first branch of everybody, then the second, and so on. If a branch diverges, all of its person do.
    """
    simulator = body.simulator()

    def together(some: Sequence[tuple[int, Sequence[Shoves]]]) -> Arrays:
        cases = zip(*(cases for _, cases in some), strict=True)
        branches = [(person, shoves) for case in cases for person, shoves in enumerate(case)]
        return measured(branch_out(simulator, start, [seed for seed, _ in some], branches, num_frames), branches)

    columns = survivors(people, together)
    return columns | {"finished": np.repeat(columns["finished"], len(people[0][1]))}


def branch_out(
    simulator: Simulator, start: str, seeds: Sequence[int], branches: Sequence[tuple[int, Shoves]], num_frames: int
) -> Motion:
    """Let people begin what they want, and return the motions of the branches; the first frame is the branch."""
    world = World(Scene((Person(start),), (Acted.ahead(SPEEDS[start], len(seeds)),)), simulator)
    rng, now = world.streams(list(seeds)), world.start(list(seeds))
    for _ in range(round(LEAD_IN * world.fps)):
        now, _ = world.step(now, rng)
    owners = [person for person, _ in branches]
    people = now.people.map(lambda values: values[:, 0])[owners]
    forces = forces_of([shoves for _, shoves in branches], people.q, simulator.skeleton.masses, world.fps)
    acted = Acted.ahead(SPEEDS[start], len(branches), forces)
    return roam(simulator, people, acted, rng.branched(owners), num_frames)


def forces_of(
    branches: Sequence[Shoves], q: Float[np.ndarray, "w 22 3 3"], masses: Float[np.ndarray, "22"], fps: float
) -> Float[np.ndarray, "w t 22 3"]:
    """Return the forces from the branch on [N]; shoves are relative to where people face there."""
    length = max((shove.first + shove.frames for shoves in branches for shove in shoves), default=0)
    forces = np.zeros((len(branches), length, NUM_JOINTS, 3))
    for row, shoves, pose in zip(forces, branches, q, strict=True):
        for shove in shoves:
            size, way = shove.forces(masses, fps)[:, None], direction(pose, shove.degrees)
            row[shove.first : shove.first + shove.frames] += size * way
    return forces


def direction(q: Float[np.ndarray, "*b 22 3 3"], degrees: float | int) -> Float[np.ndarray, "*b 3"]:
    """Return the horizontal unit vector at an angle counterclockwise from where somebody faces."""
    ahead, angle = ahead_of(q), np.radians(degrees)
    x, y = ahead[..., 0], ahead[..., 1]
    return np.stack((np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y, 0 * x), -1)


def measured(motion: Motion, branches: Sequence[tuple[int, Shoves]]) -> Arrays:
    """Measure each branch, against the unperturbed twin if there is one."""
    rows = {person: row for row, (person, shoves) in enumerate(branches) if not shoves}
    twins = [rows.get(person, -1) for person, _ in branches]
    shoves = [shoves or (Shove(0, 0, frames=0),) for _, shoves in branches]
    start = np.array([min(shove.first for shove in some) for some in shoves])
    end = np.array([max(shove.first + shove.frames for shove in some) for some in shoves])
    step = metrics.first_step(motion)
    stepped = measures.answered(motion, step, np.array(twins))
    return {
        "fell": metrics.fell(motion, 1),
        "got_up": metrics.got_up(motion, 1),
        "spin": metrics.spin_while_lying(motion, 1),
        "impulse": np.array([some[0].impulse for some in shoves], dtype=float),
        "degrees": np.array([some[0].degrees for some in shoves], dtype=float),
        "lost": np.array([_lost(motion, row, branches[row][1], twin) for row, twin in enumerate(twins)]),
        "stepped": stepped,
        "lift_off": np.where(stepped, step[:, 0] / motion.fps, np.nan),
        "ledger": metrics.ledger(motion)[..., ::LEDGER_EVERY, :].astype(np.float32),
        "stop_time": metrics.seconds_to_stop(motion, end),
        "stop_distance": metrics.stop_distance(motion, start, end),
        "twist": np.max([metrics.bone_twist(motion, *bone) for bone in TWISTED], axis=(0, -1)),
        "rise": measures.getting_up(motion).astype(np.float32),
    }


def _lost(motion: Motion, row: int, shoves: Shoves, twin: int) -> float:
    """Return the push's impulse over the mass less the velocity that it changed 0.1 s after its end [m/s].

    NaN without a twin.
    """
    if twin < 0 or len(shoves) != 1:
        return float("nan")
    (shove,) = shoves
    at = shove.first + shove.frames + AFTER
    centre = motion.skeleton.centre_of_mass(motion.joints[[row, twin]][:, at - 1 : at + 1])
    change = np.diff(centre, axis=1)[:, 0] * motion.fps
    return shove.impulse - float((change[0] - change[1]) @ direction(motion.q[row, 0], shove.degrees))


# --- Trips and balls


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
    return measures.tripped(seen(world, states, reports).motions[0], np.asarray(caught))


def throw_ball(body: Body, seeds: Sequence[int], *, start: str, angle: float) -> Arrays:
    """Throw a heavy ball at people."""
    throw = Throw("spine3", angle, speed=8.0, mass=BALL_MASS, start=1.0)
    simulator, ahead = body.simulator(), Acted.ahead(SPEEDS[start], len(seeds))
    hit, calm = (
        run(World(Scene((Person(start),), elements), simulator), 75, list(seeds))
        for elements in ((ahead, throw), (ahead,))
    )
    (ball,) = hit.balls
    return measures.struck(hit.motions[0], calm.motions[0], ball.velocity, BALL_MASS)


# --- Recordings


def bank_of(body: Body) -> Bank:
    """Return the bank of a body's prior, or the shipped one for priors without a bank."""
    prior = open_prior(body.prior)
    return prior.bank if isinstance(prior, MotionField) else MotionField.shipped().bank


def measure_momentum(body: Body, clips: Sequence[int]) -> Arrays:
    """Measure the momentum of some clips, spread over the bank, for at most ten seconds each."""
    bank = bank_of(body)
    chosen = np.linspace(0, len(bank.clips) - 1, len(clips)).astype(int).tolist()
    motions = [bank.motion(i, seconds=10.0) for i in chosen]
    return {"ledger": np.concatenate([metrics.ledger(motion)[::LEDGER_EVERY] for motion in motions])}


def measure_bank(body: Body, nobody: Sequence[int]) -> Arrays:
    """Measure paces of all recordings of a bank, and how people hold themselves who walk in it."""
    del nobody
    bank = bank_of(body)
    motions = [bank.motion(i) for i in range(len(bank.clips))]
    pitches = [walking_pitches(motion, every=PITCH_EVERY) for motion in motions]
    pitches = [values[np.isfinite(values[:, 0])] for values in pitches]
    return {
        "paces": measures.recorded_paces(motions),
        "pitches": np.concatenate(pitches),
        "clip": np.repeat(np.arange(len(motions)), [len(values) for values in pitches]),
        "source": np.array([info.source for info in bank.clips]),
    }
