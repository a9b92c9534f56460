"""Scenes: every element keeps one contract, and each does what its name says."""

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dropsim.body.rotations import heading
from dropsim.body.skeleton import JOINTS, NUM_JOINTS, Skeleton, joint_index
from dropsim.compute.random import Streams
from dropsim.control.planner import IntentCost, Planner
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Event
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane, nearest_surface, solids
from dropsim.physics.energy import Frame
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Report, Simulator, StepInputs
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import MotionField
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidates, State
from dropsim.priors.recording import ClipPrior
from dropsim.scene import (
    BODY_PARTS,
    DIRECTIONS,
    Ball,
    Carry,
    Dodge,
    Drag,
    Element,
    Follow,
    Ground,
    Obstacle,
    Person,
    Pin,
    Push,
    Scene,
    SceneContext,
    Solid,
    StiffJoint,
    Throw,
    Trip,
    World,
    run,
)
from dropsim.scene.element import height_of, joints_of

SKELETON = Skeleton.adult()
CLIP = stepping_clip(2.0)
H = 1 / 30
STILL = Simulator(PassivePrior(SKELETON), options=SimulatorOptions(num_samples=1), pose=None)
"""People who want to stay as they are: the cheapest prior."""


def norm(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors, axis=-1)


def standing(*places: tuple[float, float], frame: int = 0, velocity: tuple[float, float] = (0.0, 0.0)) -> State:
    """People who stand at some places and face +y."""
    x = np.stack([CLIP.joints[frame] + np.array((*place, 0.0)) for place in places])
    v = np.zeros_like(x) + np.array((*velocity, 0.0))
    return State(x, v, np.stack([CLIP.q[frame]] * len(places)), np.zeros((len(places), 0)))


def context_of(
    people: State, frame: int = 0, *, objects: Sequence[Solid] = (), ground: Plane | None = None
) -> SceneContext:
    return SceneContext(frame, 30.0, people, SKELETON, ground or Plane.ground(), objects)


def still_run(elements: Sequence[Element[Any]], num_frames: int, people: State | None = None, **options: Any):
    people = standing((0.0, 0.0)) if people is None else people
    scene = Scene((Person(),) * people.x.shape[-3], tuple(elements), **options)
    world = World(scene, STILL)
    return run(world, num_frames, 0, start=world.start_from(people))


def speeds_of(joints: np.ndarray) -> np.ndarray:
    """Of all joints between frames [m/s]."""
    return norm(np.diff(joints, axis=-3)) * 30


# --- the contract

ELEMENTS: tuple[Element[Any], ...] = (
    Push.toward("left", 100.0, start=0.1, duration=0.2),
    Drag(path=((0.1, 0.3, 0.2, 1.0), (0.3, 0.5, 0.2, 1.2))),
    Drag("left_wrist", path=((0.1, 0.0, 0.0, 0.0), (0.3, 0.2, 0.0, 0.2)), relative=True),
    Pin("right_wrist", start=0.1, duration=0.2),
    Pin("left_wrist", (0.4, 0.2, 1.0), start=0.1, duration=0.2),
    Follow(((0.1, 0.0, 1.2), (0.3, 1.0, 0.0))),
    Dodge(),
    StiffJoint(start=0.1),
    Ball((0.0, 1.0, 1.2), (0.0, -8.0, 1.0), start=0.1),
    Throw(distance=1.5, start=0.1),
    Obstacle((0.0, 0.5, 0.0)),
    Trip(start=0.1),
    Trip(obstacle=(0.09, 0.3), start=0.1),
)
EVERY = pytest.mark.parametrize("element", ELEMENTS, ids=lambda e: type(e).__name__)


def concerning(element: Any, person: int) -> Element[Any]:
    """The same for somebody else."""
    return replace(element, person=person)


def arrays(value: object) -> list[np.ndarray]:
    """Every array in a memory."""
    if isinstance(value, np.ndarray):
        return [value]
    if is_dataclass(value) and not isinstance(value, type):
        return [a for f in fields(value) for a in arrays(getattr(value, f.name))]
    return []


def effects(inputs: StepInputs, people: State) -> list[np.ndarray]:
    """All that inputs come to, as numbers with the people's dimensions first."""
    x, batch, flat = people.x, people.x.shape[:-2], people.flat()
    frame = Frame(SKELETON, H, flat.x, flat.x, flat.q, flat.x[:, None], solids((), ()))
    found = [] if inputs.forces is None else [inputs.forces]
    for collider in inputs.colliders:
        surface = nearest_surface([collider], x)
        found += [surface.distance, surface.normal, surface.velocity]
    for energy in inputs.energies:
        target = energy.project(flat.x, frame)
        assert target.active is not None  # an element's energies are for somebody
        for rows in (target.active.astype(float), np.where(target.active[..., None], target.p, 0.0)):
            found.append(rows.reshape(*batch, *rows.shape[1:]))
    for stage in inputs.stages:
        candidates = Candidates(x[..., None, :, :], people.q[..., None, :, :, :], people.memory[..., None, :])
        changed = stage.change(candidates)
        found += [changed.x - candidates.x, changed.q - candidates.q]
    if inputs.intent is not None:
        found += [
            inputs.intent.known.astype(float),
            np.nan_to_num(inputs.intent.velocity),
            np.nan_to_num(inputs.intent.facing),
        ]
    return found


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=True)


def played(element: Element[Any], people: State, frames: int = 12) -> list[list[np.ndarray]]:
    """What an element does to people who move on steadily, frame by frame, and what it remembers."""
    ball = Solid.sphere(0.15, np.array([0.1, 3.0, 1.2]), np.array([0.0, -6.0, 1.0]))
    memory = element.begin(context_of(people))
    seen = []
    for frame in range(frames):
        here = people.x + frame * H * people.v
        now = context_of(replace(people, x=here), frame, objects=(ball,))
        memory, inputs = element.act(memory, now)
        seen.append([*arrays(memory), *effects(inputs, now.people)])
    return seen


@EVERY
def test_an_element_changes_nothing_but_returns_its_memory(element: Element[Any]):
    people = standing((0.0, 0.0), velocity=(0.0, 1.5))
    x, v, q = people.x.copy(), people.v.copy(), people.q.copy()
    first, again = played(element, people), played(element, people)
    assert np.array_equal(people.x, x)
    assert np.array_equal(people.v, v)
    assert np.array_equal(people.q, q)
    for a, b in zip(first, again, strict=True):
        assert len(a) == len(b)
        assert all(map(same, a, b))
    memory = element.begin(context_of(people))
    for frame in range(8):
        before = [a.copy() for a in arrays(memory)]
        after, _ = element.act(memory, context_of(people, frame))
        assert all(map(same, before, arrays(memory)))
        memory = after


@EVERY
def test_nothing_acts_outside_its_time(element: Element[Any]):
    if isinstance(element, Dodge | Obstacle):
        pytest.skip("has no time of its own")
    people = standing((0.0, 0.0), velocity=(0.0, 1.5))
    _, inputs = element.act(element.begin(context_of(people)), context_of(people, 0))
    assert inputs.forces is None or not inputs.forces.any()
    if not isinstance(element, Follow):
        assert not inputs.energies


@EVERY
def test_only_people_that_there_are(element: Element[Any]):
    if not hasattr(element, "person"):
        assert element.people() == ()
        return
    assert element.people() == (0,)
    stranger = concerning(element, 2)
    with pytest.raises(ValueError, match=r"is for person 2, and the scene has people 0 to 1$"):
        Scene((Person(), Person(position=(3.0, 0.0))), (stranger,))
    with pytest.raises(ValueError, match="is for person -1"):
        Scene(elements=(concerning(element, -1),))


@pytest.mark.parametrize("second", [False, True])
@EVERY
def test_somebody_else_is_left_alone(element: Element[Any], second: bool):
    # What is for one person has no row, force or goal for another; balls and obstacles are there for all.
    if not hasattr(element, "person"):
        pytest.skip("is there for everybody")
    element = concerning(element, int(second))
    people = standing((0.0, 0.0), (3.0, 0.0), velocity=(0.0, 1.5))
    memory = element.begin(context_of(people))
    for frame in range(6):
        memory, inputs = element.act(memory, context_of(people, frame))
        for rows in effects(replace(inputs, colliders=()), people):
            assert not rows[int(not second)].any()


BAD = (math.nan, math.inf, -math.inf)
PATH = ((0.0, 0.0, 0.0, 1.0), (1.0, 0.0, 0.0, 1.0))
NUMBERS: list[tuple[type, str, tuple[float, ...]]] = [
    (Push, "start", (*BAD, -0.1)),
    (Push, "duration", (*BAD, 0.0)),
    (Drag, "stiffness", (*BAD, 0.0)),
    (Drag, "damping", (*BAD, -1.0)),
    (Drag, "largest", (math.nan, 0.0)),
    (Pin, "weight", (*BAD, -1.0)),
    (Pin, "start", (*BAD, -1.0)),
    (Pin, "duration", (math.nan, 0.0)),
    (Dodge, "speed", (*BAD, 0.0)),
    (Dodge, "reach", (*BAD, 0.0)),
    (StiffJoint, "weight", (*BAD, -1.0)),
    (StiffJoint, "start", (*BAD, -1.0)),
    *((kind, "radius", (*BAD, 0.0, 11.0)) for kind in (Ball, Throw, Obstacle, Trip)),
    *((kind, "mass", (*BAD, 0.0)) for kind in (Ball, Throw)),
    (Throw, "speed", (*BAD, 0.1)),
    (Throw, "distance", (*BAD, 0.1)),
    (Trip, "hold", (*BAD, 0.0)),
    (Person, "facing", BAD),
]
"""Numbers that a field refuses, with its name in the message."""
ROWS: list[tuple[type, dict[str, Any], str]] = [
    *((Push, {"force": (bad, 0.0, 0.0)}, "force") for bad in BAD),
    *((Drag, {"path": (PATH[0], (1.0, 0.0, bad, 1.0))}, "path") for bad in BAD),
    *((Pin, {"target": (0.0, bad, 0.0)}, "target") for bad in BAD),
    *((Follow, {"velocities": ((0.0, bad, 0.0),)}, "velocities") for bad in BAD),
    *((Ball, {"velocity": (bad, 0.0, 0.0)}, "velocity") for bad in BAD),
    *((Obstacle, {"position": (bad, 0.0, 0.0)}, "position") for bad in BAD),
    *((Trip, {"obstacle": (bad, 0.0)}, "obstacle") for bad in BAD),
    *((Ground, {"tilts": ((0.0, 0.0, 0.0), (1.0, bad, 0.0))}, "tilts") for bad in BAD),
    *((Ground, {"tilts": ((0.0, 0.0, 0.0), (1.0, 5.0, 0.0)), "pivot": (bad, 0.0)}, "pivot") for bad in BAD),
    *((Person, {"position": (bad, 0.0)}, "position") for bad in BAD),
    (Push, {"part": "tail"}, "there is no joint 'tail'"),
    (Drag, {}, "2 or more rows of 4 numbers"),
    (Drag, {"path": PATH[:1]}, "2 or more rows"),
    (Drag, {"path": (PATH[0], PATH[0])}, "times that grow"),
    (Pin, {"joint": "tail"}, "there is no joint"),
    (Follow, {"velocities": ()}, "rows of 3 numbers"),
    (Follow, {"velocities": ((1.0, 1.0, 0.0), (1.0, 0.0, 1.0))}, "times that grow"),
    (StiffJoint, {"joint_b": "right_hip"}, "no single joint between them"),
    (Ball, {"position": (0.0, 0.0, 0.1)}, "in the floor"),
    (Ball, {"mass": 0.01}, "it would bounce ever faster"),
    (Trip, {"joint": "left_wrist"}, "an ankle or a foot"),
    (Trip, {"joint": "middle_foot"}, "there is no joint"),
    (Ground, {"tilts": ((0.0, 0.0, 0.0),)}, "2 or more rows"),
    (Ground, {"tilts": ((0.0, 0.0, 0.0), (1.0, 50.0, 0.0))}, "at most 45 degrees"),
    (Scene, {"people": ()}, "at least one person"),
    (Planner, {"every": 0}, "at least one rollout"),
    (Planner, {"every": 5, "horizon": 4}, "as long as it keeps to a plan"),
]


def test_what_cannot_be_is_refused_in_a_sentence():
    numbers = [(kind, {name: value}, name) for kind, name, values in NUMBERS for value in values]
    for kind, given, message in (*numbers, *ROWS):
        given = (
            {"path": PATH, **given} if kind is Drag and given.keys() & {"stiffness", "damping", "largest"} else given
        )
        with pytest.raises(ValueError, match=message) as error:
            kind(**given)
        assert "\n" not in str(error.value)


class Counting(PassivePrior):
    """Remembers how many frames it has proposed."""

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        candidates = super().propose(state, num, rng, intent)
        return replace(candidates, memory=candidates.memory + 1)


def test_a_plan_is_followed_frame_by_frame_and_made_again_in_time(monkeypatch: pytest.MonkeyPatch):
    # The memory of a planned frame says which frame of the whole run it is: between one plan and the next none is left
    # out or repeated.
    followed, step = list[float](), Simulator.step

    def watched(self: Simulator, state: State, inputs: StepInputs, rng: Streams) -> tuple[State, Report]:
        (stage,) = inputs.stages
        assert stage.plan.people.tolist() == [True]
        followed.append(float(stage.plan.frames.memory[0, stage.at, 0]))
        return step(self, state, inputs, rng)

    monkeypatch.setattr(Simulator, "step", watched)
    scene = Scene(elements=(Follow(((0.0, 0.0, 1.0),)),), planner=Planner(num_rollouts=2, horizon=4, every=3))
    world = World(scene, replace(STILL, prior=Counting(SKELETON)))
    people = replace(standing((0.0, 0.0)), memory=np.zeros((1, 1)))
    run(world, 9, 0, start=world.start_from(people))
    assert followed == [1, 2, 3, 4, 5, 6, 7, 8]


class Obedient(Counting):
    """Takes intents itself, and keeps them."""

    takes_intent = True

    def __init__(self) -> None:
        super().__init__(SKELETON)
        self.told = list[Intent | None]()

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        self.told.append(intent)
        return PassivePrior.propose(self, state, num, rng, intent)


def test_a_prior_that_takes_intents_is_told_and_nobody_plans_for_it():
    prior = Obedient()
    world = World(Scene(elements=(Follow(((0.1, 0.0, 1.2),)),)), replace(STILL, prior=prior))
    now, rng = world.start_from(standing((0.0, 0.0))), world.streams(0)
    for _ in range(5):
        now, _ = world.step(now, rng)
        assert now.plan is None
    assert [told.velocity.tolist() for told in prior.told] == [[[0.0, 0.0]]] * 3 + [[[0.0, 1.2]]] * 2


def test_people_are_put_where_the_scene_says():
    world = World(Scene((Person("walk"), Person("walk", (2.0, 1.0), 90.0))), Simulator.shipped())
    people = world.start(0).people
    np.testing.assert_allclose(people.x[1, 0, :2], np.array([2.0, 1.0]), rtol=0, atol=0.2)
    # Facing 90 degrees to the left of +y is -x.
    ahead = heading(people.q[1, 0])[1, :2]
    assert float(ahead[0]) < -0.95


def test_events_are_those_of_the_person_concerned():
    first, second = (
        Push.toward("left", 100.0, part="hand", start=1.0, duration=0.25),
        Push.toward("left", 100.0, start=0.5, person=1),
    )
    scene = Scene((Person(), Person(position=(3.0, 0.0))), (first, second, Ball((0.0, 5.0, 1.0), start=2.0)))
    assert scene.events_of(0) == (Event("push hand", 1.0, 0.25), Event("ball", 2.0))
    assert scene.events_of(1) == (Event("push torso", 0.5, 0.5), Event("ball", 2.0))
    # The motions of a run have their own as well.
    world = World(scene, STILL)
    rollout = run(world, 3, 0, start=world.start_from(standing((0.0, 0.0), (3.0, 0.0))))
    assert [motion.events for motion in rollout.motions] == [scene.events_of(0), scene.events_of(1)]


def test_a_motion_of_a_run_holds_the_states_of_its_person():
    scene = Scene((Person(), Person(position=(3.0, 0.0))), (Push.toward("left", 200.0, start=0.0),))
    world = World(scene, Simulator.shipped(num_samples=2))
    now, rng = world.start(0), world.streams(0)
    states = [now]
    for _ in range(4):
        now, _ = world.step(now, rng)
        states.append(now)
    for person, motion in enumerate(run(world, 5, 0).motions):
        assert np.array_equal(motion.joints, np.stack([state.people.x[person] for state in states]))
        assert np.array_equal(motion.q, np.stack([state.people.q[person] for state in states]))


def test_what_a_scene_shows_to_others():
    rollout = still_run([Ball((0.0, 3.0, 1.0), (0.0, 0.0, 0.0), start=0.1)], 6)
    (ball,) = rollout.balls
    assert ball.centre.shape == (6, 3)
    assert np.isnan(ball.centre[:3]).all()
    assert np.isfinite(ball.centre[4:]).all()
    assert rollout.ground.normal.shape == (6, 3)


def test_runs_that_cannot_be_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="at least 1"):
        still_run([], 0)
    with pytest.raises(ValueError, match="2 people, and 1 states"):
        World(Scene((Person(), Person())), STILL).start_from(standing((0.0, 0.0)))
    with pytest.raises(ValueError, match="there is no start 'wlak'"):
        World(Scene((Person("wlak"),)), STILL).start(0)
    with pytest.raises(ValueError, match="has one person"):
        World(Scene((Person(), Person())), Simulator(ClipPrior(CLIP))).start(0)
    with pytest.raises(ValueError, match="not finite"):
        still_run([], 2, replace(standing((0.0, 0.0)), v=np.full((1, NUM_JOINTS, 3), np.nan)))


# --- pushes


def forces_of(push: Push, frame: int = 0, people: State | None = None) -> np.ndarray | None:
    return push.act(None, context_of(standing((0.0, 0.0)) if people is None else people, frame))[1].forces


WAYS = {"front": (0, 1), "left": (-1, 0), "back": (0, -1), "right": (1, 0), "0": (0, 1), "90": (-1, 0), "450": (-1, 0)}


def test_directions_in_the_world():
    # Facing +y, left is -x; degrees run counterclockwise seen from above. A force of 250 N is rounded at 1e-14 of it.
    for direction, (x, y) in WAYS.items():
        assert Push.toward(direction, 250.0).force == pytest.approx((250.0 * x, 250.0 * y, 0.0), abs=1e-9)
    for direction in ("up", "", "lef", "nan", "inf", "-inf", "90deg"):
        with pytest.raises(ValueError, match=r"there is no direction .*: use front, left, back, right or degrees"):
            Push.toward(direction, 100.0)
    for newtons in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="a push needs a force of 0 N or more"):
            Push.toward("left", newtons)
    assert set(DIRECTIONS) == {"front", "left", "back", "right"}


@pytest.mark.parametrize("part", [*BODY_PARTS, "head"])
def test_the_parts_of_a_body_share_the_force(part: str):
    forces = forces_of(Push.toward("60", 300.0, part=part, start=0.0))
    assert forces is not None
    assert float(norm(forces[0].sum(0))) == pytest.approx(300.0)
    touched = np.flatnonzero(forces[0].any(-1)).tolist()
    assert touched == sorted(joints_of(part))
    assert (forces[0, touched] == forces[0, touched][:1]).all()


@pytest.mark.parametrize("duration", [0.5, 0.1, 1 / 30, 0.05, 0.001])
def test_a_push_gives_the_same_momentum_wherever_it_starts(duration: float):
    # The sum of F h over its frames is F t, t in whole frames and at least one, on frames, between them and a rounding
    # error beside them.
    starts = [(k + shift) * H for k in (0, 63) for shift in (0.0, 0.3, 0.7, 1e-12)]
    starts += [63 * H - 1e-12, 0.1 + 0.2, 2.1]
    for start in starts:
        push = Push("pelvis", (100.0, 0.0, 0.0), start, duration)
        given = sum(float(f.sum() * H) for frame in range(90) if (f := forces_of(push, frame)) is not None)
        assert given == pytest.approx(100.0 * max(1, round(duration * 30)) * H)


def test_a_push_moves_a_body_in_free_fall_by_its_momentum():
    # Nothing to touch: F t / m is what the centre of mass gains, exactly, since the internal energies cancel and no
    # correction is needed.
    free = Simulator(
        PassivePrior(SKELETON), options=SimulatorOptions(kinematic=False, contact=False, correct=False), pose=None
    )
    world = World(Scene(elements=(Push("torso", (70.0, 0.0, 0.0), 0.0, 0.2),), get_up=False), free)
    high = standing((0.0, 0.0))
    motion = run(world, 9, 0, start=world.start_from(replace(high, x=high.x + 5.0))).motions[0]
    speed = np.diff(SKELETON.centre_of_mass(motion.joints), axis=0)[-1] * 30
    assert float(speed[0]) == pytest.approx(70.0 * 0.2 / float(SKELETON.masses.sum()), rel=1e-6)


def test_what_happens_at_once_adds_up():
    first, second = Push.toward("left", 100.0, start=0.0, duration=1.0), Push("spine3", (0.0, 0.0, 50.0), 0.1, 1.0)
    motion = still_run([first, second], 6).motions[0]
    assert motion.external_forces is not None
    total = motion.external_forces.sum(1)
    assert total[2].tolist() == pytest.approx([-100.0, 0.0, 0.0], abs=1e-9)
    assert total[5].tolist() == pytest.approx([-100.0, 0.0, 50.0], abs=1e-9)


# --- balls


def flown(ball: Ball | Throw, people: State, frames: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Centre and velocity of a ball, and the force on people who stay, after each frame."""
    memory, seen = ball.begin(context_of(people)), []
    for frame in range(frames):
        memory, inputs = ball.act(memory, context_of(people, frame))
        if memory is not None:
            assert inputs.forces is not None
            seen.append((memory.centre, memory.velocity, inputs.forces))
    return seen


@pytest.mark.parametrize(
    "ball",
    [Ball((0.1, 1.5, 1.3), (0.0, -8.0, 1.0)), Ball((1.0, 0.1, 1.0), (-6.0, 0.0, 2.0), mass=1.0), Throw(start=0.0)],
)
def test_a_ball_gives_what_it_loses(ball: Ball | Throw):
    # Newton's third law: in every frame m dv = -F h + m g h, F the mean force on the people; away from the floor
    # nothing else acts.
    seen = flown(ball, standing((0.0, 0.0)), 22)
    hits = 0
    for (_, before, _), (centre, after, forces) in pairwise(seen):
        if float(centre[2]) < ball.radius + 0.3:
            break  # it may bounce
        gained = ball.mass * (after - before) + np.array([0.0, 0.0, ball.mass * GRAVITY * H])
        np.testing.assert_allclose(gained, -forces.sum((-3, -2)) * H, rtol=0, atol=1e-9)
        hits += int(forces.any())
    assert hits > 0


def test_a_bounce_does_not_add_energy():
    # Dropped from 2 m, far from anybody: E = m g z + m v^2 / 2 falls with each bounce. A substep of semi-implicit Euler
    # is wrong by m g h |v| / 2, h = 1/480 s and |v| < 6.3 m/s, which makes 0.07 J per kg.
    ball = Ball((5.0, 5.0, 2.0), (1.0, 0.0, 0.0), mass=2.0)
    seen = flown(ball, standing((0.0, 0.0)), 150)
    energy = np.stack([ball.mass * (GRAVITY * c[2] + v @ v / 2) for c, v, _ in seen])
    assert (np.diff(energy) < 2 * 0.07).all()
    assert energy[-1] < 0.5 * energy[0]
    assert min(float(c[2]) for c, _, _ in seen) >= ball.radius - 1e-9
    assert not any(f.any() for _, _, f in seen)


def test_a_ball_bounces_off_a_tilted_floor():
    ground = Ground(((0.0, 0.0, 20.0), (1.0, 0.0, 20.0)))
    plane = ground.plane(0.5, H, np.zeros(3))
    ball, people = Ball((5.0, 0.0, 1.5), (0.0, 0.0, 0.0)), standing((0.0, 0.0))
    memory = ball.begin(context_of(people))
    for frame in range(30):
        memory, _ = ball.act(memory, context_of(people, frame, ground=plane))
        assert memory is not None
        assert float(memory.centre @ plane.normal - plane.offset) >= ball.radius - 1e-9
    assert memory is not None
    # A floor that rises toward +y throws it back to -y.
    assert float(plane.normal[1]) < 0
    assert float(memory.velocity[1]) < -1


def test_a_ball_inside_somebody_is_refused():
    with pytest.raises(ValueError, match=r"the ball that starts at .* is inside a person: move it by 0\.\d\d m"):
        still_run([Ball((0.0, 0.0, 1.2))], 2)
    with pytest.raises(ValueError, match=r"the obstacle at .* is inside a person"):
        still_run([Obstacle((0.0, 0.0, 1.0))], 2)


@pytest.mark.parametrize(
    "whence",
    [{"angle": 0.0}, {"angle": 90.0}, {"angle": 200.0}, {"origin": (9.0, 9.0, 9.0)}, {"origin": (1.0, -1.7, 1.2)}],
)
@pytest.mark.parametrize("velocity", [(0.0, 0.0), (0.3, 1.4)])
def test_a_throw_hits(whence: dict[str, Any], velocity: tuple[float, float]):
    # At a person who stands, or goes on as it does: the joint is reached after distance / speed.
    throw = Throw(start=0.0, speed=8.0, distance=4.0, **whence)
    people = standing((1.0, -2.0), velocity=velocity)
    memory, struck = throw.begin(context_of(people)), []
    for frame in range(20):
        now = context_of(replace(people, x=people.x + frame * H * people.v), frame)
        memory, inputs = throw.act(memory, now)
        assert inputs.forces is not None
        struck.append(inputs.forces[0])
    first = next(i for i, forces in enumerate(struck) if forces.any())
    assert first <= 16
    trunk = [
        joint_index(name)
        for name in ("spine1", "spine2", "spine3", "neck", "left_collar", "right_collar", "left_shoulder", "left_elbow")
    ]
    arms = [j for j, name in enumerate(JOINTS) if "elbow" in name or "wrist" in name or "shoulder" in name]
    assert struck[first][[*trunk, *arms]].any()


# --- drag, pin, trip, stiff joints


def test_a_drag_pulls_no_harder_than_it_may():
    for far in (0.1, 1.0, 100.0):
        drag = Drag(path=((0.0, far, 0.0, 1.0), (1.0, far, 0.0, 1.0)), largest=120.0)
        _, inputs = drag.act(None, context_of(standing((0.0, 0.0), velocity=(3.0, 0.0))))
        assert inputs.forces is not None
        assert float(norm(inputs.forces).max()) <= 120.0 + 1e-9
        assert np.flatnonzero(inputs.forces[0].any(-1)).tolist() == [joint_index("right_wrist")]


def test_a_drag_is_a_spring_and_a_damper():
    # F = k (p - x) + c (dp/dt - v), with the point where it will be at the frame's end.
    people = standing((0.0, 0.0), velocity=(0.1, 0.0))
    x = people.x[0, joint_index("right_wrist")]
    path = tuple((t, *(x + offset).tolist()) for t, offset in ((0.0, np.zeros(3)), (1.0, np.array([0.0, 0.3, 0.0]))))
    _, inputs = Drag(path=path, stiffness=50.0, damping=7.0).act(None, context_of(people, 6))
    expected = 50.0 * np.array([0.0, 0.3 * 7 * H, 0.0]) + 7.0 * (np.array([0.0, 0.3, 0.0]) - np.array([0.1, 0.0, 0.0]))
    assert inputs.forces is not None
    np.testing.assert_allclose(inputs.forces[0, joint_index("right_wrist")], expected, rtol=0, atol=1e-6)


def test_a_relative_drag_starts_from_where_the_joint_is():
    people = standing((0.0, 0.0))
    drag = Drag(path=((0.1, 0.0, 0.0, 0.0), (1.1, 0.0, 0.0, 0.0)), relative=True, damping=0.0)
    memory, inputs = drag.act(None, context_of(people, 3))
    assert inputs.forces is not None
    assert np.abs(inputs.forces).max() < 1e-9
    moved = replace(people, x=people.x + np.array([0.1, 0.0, 0.0]))
    _, inputs = drag.act(memory, context_of(moved, 4))
    assert inputs.forces is not None
    assert float(inputs.forces.sum((0, 1))[0]) == pytest.approx(-0.1 * drag.stiffness, rel=1e-6)


@pytest.mark.parametrize("target", [None, (0.35, 0.2, 1.0)])
def test_a_pin_holds(target: tuple[float, float, float] | None):
    push = Push.toward("back", 80.0, start=0.2, duration=0.3)
    motion = still_run([Pin("right_wrist", target, start=0.1, duration=0.8), push], 26).motions[0]
    wrist = motion.joints[:, joint_index("right_wrist")]
    goal = wrist[3] if target is None else np.array(target)
    # A given point is reached within a few frames of the pin's start.
    assert norm(wrist[8:] - goal).max() < 0.02
    assert motion.energies["pin"].shape == (26,)


def test_a_stiff_knee_stays_straight():
    people = standing((0.0, 0.0), frame=25)
    # These people want to stay bent, so that it takes a second.
    motion = still_run([StiffJoint("right_hip", "right_ankle")], 36, people).motions[0]
    hip, knee, ankle = (motion.joints[:, joint_index(f"right_{part}")] for part in ("hip", "knee", "ankle"))
    cosine = ((hip - knee) * (ankle - knee)).sum(-1) / norm(hip - knee) / norm(ankle - knee)
    bend = np.degrees(np.pi - np.arccos(np.clip(cosine, -1, 1)))
    assert bend[-1] < 15.0
    assert norm(motion.joints[-1, 1] - motion.joints[-1, 7]) < norm(hip - ankle)[-1]


def test_a_trip_stops_the_heel_and_not_the_body():
    # The obstacle's force is bounded, so within 0.2 s the body loses at most that force times the time, over the mass.
    trip = Trip(start=0.1, hold=0.4, largest=2000.0)
    world = World(Scene((Person("run", speed=2.5),), (trip,)), Simulator.shipped(num_samples=8))
    now, rng = world.start(3), world.streams(3)
    beyond, forces = [], []
    for _ in range(45):
        now, report = world.step(now, rng)
        memory = now.memories[0]
        if np.isfinite(memory.since) and now.frame <= float(memory.since) + 12:
            beyond.append(float((now.people.x[0, joint_index(trip.joint)] - memory.heel) @ memory.ahead))
            forces.append(report.external_forces[0, joint_index(trip.joint)])
    assert len(beyond) == 12
    # It comes to a stop within a frame or two, and is not let past but by the floor and the bones, which settle last.
    assert np.median(beyond[2:]) < 0.02
    assert max(beyond[2:]) < 0.15
    assert norm(np.array(forces)).max() <= 2000.0 * 1.01
    # The obstacle pushes back, never on.
    assert (np.array(forces) @ memory.ahead).max() < 1.0


def test_a_trip_lays_the_obstacle_in_front_of_the_foot():
    people = standing((0.0, 0.0), velocity=(0.0, 1.5))
    trip = Trip(start=0.1)
    memory = trip.begin(context_of(people))
    assert np.isnan(memory.obstacle).all()
    memory, _ = trip.act(memory, context_of(people, 3))
    heel = people.x[0, joint_index("right_ankle")]
    ahead = memory.obstacle - heel
    assert float(memory.obstacle[2]) == 0.0
    assert float(ahead[1]) == pytest.approx(trip.radius + float(SKELETON.radii[8]) + 1.5 * H)
    assert abs(float(ahead[0])) < 1e-9


def test_an_obstacle_lies_on_the_ground_while_it_tilts():
    # By 20 degrees about the y axis through the origin, ground 1 m to the side comes up or goes down by tan(20 degrees)
    # m.
    people, trip = standing((0.0, 0.0)), Trip(obstacle=(1.0, 0.5))
    ground = Ground(((0.0, 20.0, 0.0), (1.0, 20.0, 0.0))).plane(0.5, H, np.zeros(3))
    memory, _ = trip.act(None, replace(context_of(people), ground=ground))
    height = float(height_of(ground, np.array([trip.obstacle]))[0])
    assert abs(height) == pytest.approx(np.tan(np.radians(20.0)))
    assert float(memory.obstacle[2]) == pytest.approx(height)


# --- ground


def test_the_grounds_normal_and_velocity_are_those_of_its_path():
    # Surface velocity along the normal at a point r: -r . dn/dt, by central differences of n; sin(a)/a of a step of 1
    # degree is 5e-5.
    ground, pivot = Ground(((0.0, 0.0, 0.0), (1.0, 12.0, -8.0), (2.0, 0.0, 0.0))), np.array([0.4, -0.3, 0.0])
    points = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.1], [0.4, -0.3, 0.0]])
    for time in (0.3, 0.9, 1.4):
        plane = ground.plane(time, H, pivot)
        rate = (ground.normal_at(time) - ground.normal_at(time - H)) / H
        surface = nearest_surface([plane], points)
        along = (surface.velocity * plane.normal).sum(-1)
        np.testing.assert_allclose(along, -((points - pivot) * rate).sum(-1), rtol=0, atol=0.01 * float(norm(rate)) * 2)
        assert float(norm(plane.normal)) == pytest.approx(1.0)
        np.testing.assert_allclose(surface.distance, (points - pivot) @ plane.normal, rtol=0, atol=1e-12)


def test_roll_and_pitch_tilt_as_they_say():
    # Roll turns about +y: the ground falls toward +x. Pitch turns about +x: it rises toward +y.
    roll = Ground(((0.0, 10.0, 0.0), (1.0, 10.0, 0.0))).normal_at(0.5)
    pitch = Ground(((0.0, 0.0, 10.0), (1.0, 0.0, 10.0))).normal_at(0.5)
    s, c = math.sin(math.radians(10)), math.cos(math.radians(10))
    assert roll.tolist() == pytest.approx([s, 0.0, c])
    assert pitch.tolist() == pytest.approx([0.0, -s, c])
    assert Ground().normal_at(3.0).tolist() == [0.0, 0.0, 1.0]


def test_people_stay_on_a_ground_that_tilts():
    tilt = Ground(((0.1, 0.0, 0.0), (0.6, 0.0, 8.0), (1.1, 0.0, 8.0)))
    rollout = still_run([], 24, ground=tilt)
    joints, ground = rollout.motions[0].joints, rollout.ground
    gap = (joints * ground.normal[:, None]).sum(-1) - ground.offset[:, None] - SKELETON.radii
    assert gap.min(-1)[3:].min() > -0.005
    assert gap.min(-1)[3:].max() < 0.03
    # It tilts about where the person stood when it began.
    np.testing.assert_allclose(ground.pivot[-1, :2], joints[2, 0, :2], rtol=0, atol=0.02)
    assert float(ground.normal[-1, 1]) == pytest.approx(-math.sin(math.radians(8.0)), abs=0.02)


def test_a_ground_that_starts_tilted_does_not_go_along_with_the_person():
    # Not level before its first row either: its pivot is settled at once.
    tilt = Ground(((2.0, 0.0, 5.0), (3.0, 0.0, 5.0)))
    push = Push.toward("front", 200.0, start=0.0, duration=0.5)
    rollout = still_run([push], 10, ground=tilt)
    assert np.abs(rollout.ground.offset[1:] - rollout.ground.offset[1]).max() < 1e-12


TILTED = ((0.0, 0.0, 15.0), (1.0, 0.0, 15.0))
"""From the first frame on."""


@pytest.mark.slow
@pytest.mark.parametrize(("tilts", "pivot"), [(TILTED, (3.0, -4.0)), (((0.0, -10.0, 10.0), (1.0, 0.0, 0.0)), None)])
def test_ground_that_is_tilted_from_the_first_frame_throws_nobody(tilts, pivot):
    # Put at height zero, people would start up to a metre in such ground, or above it, and be thrown at 20 to 66 m/s.
    # Of people who lose their balance on it, a hand or a foot may reach 14 m/s.
    world = World(
        Scene((Person("walk"), Person("stand", (2.0, 1.0))), ground=Ground(tilts, pivot)),
        Simulator.shipped(num_samples=8),
    )
    rollout = run(world, 61, [0, 1])
    for motion in rollout.motions:
        assert speeds_of(motion.joints).max() < 16.0
        gap = (
            (motion.joints * rollout.ground.normal[..., None, :]).sum(-1)
            - rollout.ground.offset[..., None]
            - SKELETON.radii
        )
        assert gap.min(-1)[:, 1:].min() > -0.03


def test_people_start_at_the_height_of_tilted_ground():
    tilted = World(
        Scene((Person("stand"), Person("stand", (0.0, 2.0))), ground=Ground(TILTED, (0.0, -3.0))), Simulator.shipped()
    )
    level = World(Scene((Person("stand"), Person("stand", (0.0, 2.0)))), Simulator.shipped())
    risen = tilted.start(0).people.x - level.start(0).people.x
    expected = math.tan(math.radians(15.0)) * (level.start(0).people.x[:, 0, 1] + 3.0)
    np.testing.assert_allclose(risen[..., 2], np.broadcast_to(expected[:, None], (2, NUM_JOINTS)), rtol=0, atol=1e-9)
    assert not risen[..., :2].any()


# --- several people


def test_two_people_in_one_place_are_refused():
    with pytest.raises(ValueError, match=r"people 0 and 1 start inside each other by 0\.\d\d m: move one of them away"):
        still_run([], 2, standing((0.0, 0.0), (0.1, 0.0)))
    with pytest.raises(ValueError, match="people 1 and 2 start inside each other"):
        still_run([], 2, standing((0.0, 0.0), (5.0, 0.0), (5.0, 0.1)))
    still_run([], 2, standing((0.0, 0.0), (1.2, 0.0)))


# --- intents


def test_velocities_are_held_until_the_next():
    follow = Follow(((0.5, 0.0, 1.2), (2.0, 1.0, 0.0)))
    assert [follow.velocity_at(t) for t in (0.0, 0.5, 1.9, 9.0)] == [(0.0, 0.0), (0.0, 1.2), (0.0, 1.2), (1.0, 0.0)]
    # They pass into each other at the acceleration: here half way.
    half = 2.0 + 0.5 * math.hypot(1.0, 1.2) / follow.acceleration
    assert follow.velocity_at(half) == pytest.approx((0.5, 0.6))


def test_a_square_turns_left():
    rows = Follow.square(1.5, every=2.0, seconds=8.0).velocities
    assert [row[0] for row in rows] == [0.0, 2.0, 4.0, 6.0]
    for (_, ax, ay), (_, bx, by) in pairwise(rows):
        assert math.hypot(bx, by) == pytest.approx(1.5)
        assert ax * by - ay * bx == pytest.approx(1.5**2)
    with pytest.raises(ValueError, match="positive speed"):
        Follow.square(0.0)


@pytest.mark.parametrize(("offset", "sign"), [(0.1, -1.0), (-0.1, 1.0)])
def test_one_dodges_away_from_where_the_ball_will_pass(offset: float, sign: float):
    # A ball that comes along -y and passes on one side: the wanted velocity is to the other, across its way.
    people = standing((0.0, 0.0))
    ball = Solid.sphere(0.15, np.array([offset, 3.0, 1.2]), np.array([0.0, -6.0, 0.0]))
    _, inputs = Dodge(speed=2.0).act(None, context_of(people, objects=(ball,)))
    assert inputs.intent is not None
    assert inputs.intent.known.tolist() == [True]
    assert inputs.intent.velocity[0].tolist() == pytest.approx([2.0 * sign, 0.0], abs=1e-9)
    # They step aside without turning there.
    assert np.isnan(inputs.intent.facing).all()
    time, ways = np.arange(16).reshape(1, -1, 1, 1) * H, np.array([0.0, 1.5 * sign, -1.5 * sign]).reshape(-1, 1, 1, 1)
    rollouts = CLIP.joints[0] + time * ways * np.array([1.0, 0.0, 0.0])
    assert int(IntentCost(inputs.intent, SKELETON, 30.0)(rollouts[None])[0].argmin()) == 1


@pytest.mark.parametrize(
    "ball",
    [
        Solid.sphere(0.15, np.array((3.0, 3.0, 1.2)), np.array((0.0, -6.0, 0.0))),  # passes far away
        Solid.sphere(0.15, np.array((0.0, 3.0, 1.2)), np.array((0.0, 6.0, 0.0))),  # flies off
        Solid.sphere(0.15, np.array((0.0, 9.0, 1.2)), np.array((0.0, -4.0, 0.0))),  # comes too late to be seen
        Solid.sphere(0.15, np.array((0.0, 3.0, 1.2)), np.array((0.0, -6.0, 0.0)), "obstacle"),
    ],
)
def test_nobody_dodges_what_does_not_come(ball: Solid):
    _, inputs = Dodge().act(None, context_of(standing((0.0, 0.0)), objects=(ball,)))
    assert inputs.intent is None
    assert not inputs.energies


def test_a_load_heavier_than_the_body_goes_down_a_slope_no_faster_than_without_friction():
    # Load and body go together: g sin(20 degrees) for 2 s makes 6.7 m/s, and people begin at up to 1.5 m/s.
    light, ground = Skeleton.adult(body_mass=20.0), Ground(((0.0, 20.0, 0.0), (1.0, 20.0, 0.0)), friction=0.05)
    world = World(
        Scene((Person("walk"),), (Carry(100.0, "both"),), ground),
        Simulator(MotionField(MotionField.shipped().bank, light)),
    )
    rollout = run(world, 60, 0)
    speed = norm(np.diff(light.centre_of_mass(rollout.motions[0].joints), axis=0)) * 30
    assert speed.max() < 9.81 * math.sin(math.radians(20)) * 2 + 1.5


@pytest.mark.parametrize(
    "ball", [Ball((0.0, 0.0, 1.0), (0.0, 0.0, 0.0), start=0.1), Throw(distance=0.6, radius=1.0, start=0.1)]
)
def test_a_ball_that_is_thrown_where_somebody_is_begins_beside_them(ball: Ball | Throw):
    rollout = still_run([ball], 8, standing((0.0, 0.0), (0.9, 0.0)))
    (flight,), first = rollout.objects, int(rollout.objects[0].there.argmax())
    joints = np.concatenate([motion.joints[first] for motion in rollout.motions])
    gap = norm(joints - flight.centre[first]) - np.tile(SKELETON.radii, 2) - ball.radius
    assert first == 4
    assert gap.min() > -0.15
