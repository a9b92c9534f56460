"""The live simulation: one table of commands, its clock, its files, and the browser app in a real browser."""

import asyncio
import contextlib
import copy
import gzip
import json
import math
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from clients import NullViewer, standing, wait_until

from dropsim.apps.cli import EXIT_ERROR, EXIT_INTERRUPTED, main
from dropsim.apps.cli.view import View
from dropsim.apps.outputs import files_of
from dropsim.apps.viewer.commands import BOX, COMMANDS, GO, MAX_BALLS, MAX_OBJECTS, MAX_TILT, PAINT, TAKE, do, warm_up
from dropsim.apps.viewer.loop import MAX_COMMANDS, Commands, Loop, Status
from dropsim.apps.viewer.panel import typed_scene
from dropsim.apps.viewer.session import Session, Shot
from dropsim.apps.viewer.steering import CROUCHING, RUNNING, WALKING, Goal, Grab, steering_inputs
from dropsim.body.skeleton import joint_index
from dropsim.motion.reading import read_motion
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.scene import Box, Ground, Patch, Person, Pin, Push, Scene, StiffJoint, Throw, World
from dropsim.scene import run as run_world
from dropsim.scene.files import Setup, read_scene, scene_text
from dropsim.scene.scenarios import SCENARIOS, scenario

WRIST = joint_index("right_wrist")
DOWN = (0.0, 0.0, -1.0)


@pytest.fixture
def session(simulator: Simulator) -> Session:
    return standing(simulator)


def run(session: Session, frames: int) -> Shot:
    for _ in range(frames):
        session.tick()
    return session.shown


def apart(one: Shot, other: Shot) -> float:
    """Largest distance between the same joints of two frames [m]."""
    return float(np.linalg.norm(one.people.x - other.people.x, axis=-1).max())


def kinds(session: Session) -> list[type]:
    return [type(element) for element in session.scene.elements]


def crates(shot: Shot) -> dict[int, np.ndarray]:
    """Centres of the loose boxes, by key."""
    return {key: solid.centre for key, solid in shot.objects.items() if solid.name == "crate"}


# --- the table of commands

EYE, FLOORWARD = (1.0, -2.0, 3.0), (0.0, 1.0, -1.0)
BEFORE = [("pause", True), ("put_box", (1.0, 0.5, 0.0)), ("paint_ice", (0.0, 3.0, 0.0))]
AFTER: dict[str, tuple[list[tuple], Callable[[Session], object]]] = {
    "pause": ([("pause", 1)], lambda s: s.paused),
    "pause, and again": ([("pause",), ("pause",)], lambda s: not s.paused),
    "step": ([("step",), ("step",)], lambda s: (s.paused, s.shown.frame) == (True, 12)),
    "slow": ([("slow", 0.25)], lambda s: s.pace == 0.25),
    "slower than is allowed": ([("slow", 0)], lambda s: s.pace == 0.05),
    "look back": ([("look_back", -0.2)], lambda s: (s.paused, s.shown.frame) == (True, 4)),
    "look back too far": ([("look_back", 1000.0)], lambda s: s.shown.frame == 0),
    "look back, and go on": ([("look_back", 0.2), ("pause", False)], lambda s: s.shown.frame == 10),
    "cut": ([("cut", -0.3, -0.2)], lambda s: (s.cut, s.shown.frame) == ((1, 4), 1)),
    "cut, and move an end": (
        [("cut", -0.3, 0.0), ("cut", -0.1, -0.3)],
        lambda s: (s.cut, s.shown.frame) == ((1, 7), 7),
    ),
    "hold a limb": (
        [("hold_limb", "m", 0, WRIST, (0.0, 0.0, 9.0), (0.5, 0.5, 1.0), 99)],
        lambda s: s.grabs == {"m": Grab(WRIST, s.grabs["m"].share, (0.5, 0.5, 1.0), largest=99.0)},
    ),
    "let go": ([("hold_limb", "m", 0, 3, EYE, EYE), ("let_go", "m"), ("let_go", "m")], lambda s: not s.grabs),
    # Somebody of the bank faces +y, give or take, so that left is -x.
    "push": ([("push", "left", 100.0)], lambda s: s.items[-1].element.force == pytest.approx((-100, 0, 0), abs=30)),
    "push ahead": ([("push", "front", 99)], lambda s: s.items[-1].element.force == pytest.approx((0, 99, 0), abs=30)),
    "a push ends": ([("push", "left", 9.0, 0.1), *[("step",)] * 6], lambda s: not s.items and s.events),
    "throw from there": (
        [("throw", (4.0, 0.0, 1.5), "head")],
        lambda s: next(iter(s.tick().objects.values())).centre == pytest.approx((4.0, 0.0, 1.5), abs=0.5),
    ),
    # From inside the person and from below the floor they start beside and above.
    "throw from anywhere": ([("throw", (0.0, 0.0, 1.2)), ("throw", (0.0, 3.0, -50.0))], lambda s: len(s.items) == 2),
    "throw too many": ([("throw",)] * 9, lambda s: len(s.tick().objects) == MAX_BALLS),
    "trip": ([("trip", "Left")], lambda s: s.events[-1].name == "trip left"),
    "tilt": ([("tilt", 500.0, -500.0)], lambda s: s.tilt == (MAX_TILT, -MAX_TILT)),
    "a tilt stays": ([("tilt", 9, 0), ("restart",)], lambda s: not s.ground.level),
    "put a box, seen at once": ([BEFORE[1]], lambda s: (kinds(s), len(crates(s.shown))) == ([Box], 1)),
    "a box stands and bears another": (
        [BEFORE[1], ("click", BOX, (1.1, 0.4, 3.0), DOWN), *[("step",)] * 10],
        lambda s: sorted(float(c[2]) for c in crates(s.shown).values()) == pytest.approx([0.2, 0.6], abs=5e-3),
    ),
    "boxes and ice stay": ([*BEFORE, ("restart",)], lambda s: kinds(s) == [Box, Patch]),
    "take all away": ([*BEFORE, ("take_away",)], lambda s: (kinds(s), s.shown.objects) == ([], {})),
    "take away": ([*BEFORE, ("take_away", (0.0, 0.0, 3.0), FLOORWARD)], lambda s: kinds(s) == [Box]),
    "click to go": ([("click", GO, EYE, FLOORWARD)], lambda s: s.goals == {0: Goal(place=(1.0, 1.0))}),
    "click to put": ([("click", BOX, EYE, FLOORWARD)], lambda s: s.scene.elements[0].position == (1.0, 1.0, 0.0)),
    "click to paint": ([("click", PAINT, EYE, FLOORWARD)], lambda s: kinds(s) == [Patch]),
    "click to take": ([BEFORE[1], ("click", TAKE, (1.0, 0.5, 3.0), DOWN)], lambda s: not kinds(s)),
    "click at the sky": ([("click", BOX, EYE, (0.0, 1.0, 0.0))], lambda s: not kinds(s)),
    "walk": ([("walk", 99.0, 450.0)], lambda s: s.goals == {0: Goal(4.0, 90.0)}),
    "walk, or not": ([("walk",), ("walk", 1.0, 0.0, None, False)], lambda s: not s.goals),
    "a walk stays": ([("walk", 1.0), ("restart",)], lambda s: s.goals == {0: Goal(1.0)}),
    "go there": ([("go_to", 2.0, 2.0)], lambda s: s.tick().goals == ((2.0, 2.0),)),
    "a goal is reached": ([("go_to", 0.0, 0.0)], lambda s: (s.tick().goals, s.shown.steered) == ((), (0,))),
    "a goal does not stay": ([("go_to", 2.0, 2.0), ("restart",)], lambda s: not s.goals),
    "free": ([("walk",), ("free", 0)], lambda s: not s.goals),
    "crouch": ([("crouch",)], lambda s: s.crouched == {0}),
    "come up": ([("crouch",), ("crouch",), ("crouch", 0)], lambda s: not s.crouched),
    "jump": ([("crouch",), ("jump",)], lambda s: (s.crouched, set(s.jumping)) == (set(), {0})),
    "stiffen": ([("stiffen", True), ("restart",)], lambda s: [type(i.element) for i in s.items] == [StiffJoint]),
    "unbend": ([("stiffen", True), ("stiffen", False)], lambda s: not s.items),
    "switch": ([("switch", "contact", False)], lambda s: "contact" not in s.tick().values),
    "load": (
        [("stiffen", 1), ("load", scenario("two-people"))],
        lambda s: (s.stiff, len(s.shown.people.x)) == (False, 2),
    ),
    "a scene has its own prior": ([("load", Setup(prior="other"))], lambda s: s.prior_name == "other"),
    "the next has the chosen": ([("load", Setup(prior="other")), ("load", Setup())], lambda s: s.prior_name == "field"),
    "use": ([("use", "other")], lambda s: (s.prior_name, s.time) == ("other", 0.0)),
    "begin": ([("begin", "walk", 1000, 7)], lambda s: (len(s.scene.people), s.setup.seed) == (6, 7)),
    "people who are gone do nothing": (
        [("begin", None, 2), ("crouch", True, 1), ("walk", 1.0, 0.0, 1), ("begin", None, 1)],
        lambda s: (s.crouched, s.goals) == (set(), {}),
    ),
    "ghost": ([("begin", None, None, None, True)], lambda s: s.tick().ghosts is not None),
    "hold a box": (
        [BEFORE[1], ("hold_box", "m", None, (1.2, 0.5, 0.3), EYE)],
        lambda s: s.grabs["m"].point == pytest.approx((0.2, 0.0, 0.1)),
    ),
    "hold on to a point of a box": (
        [BEFORE[1], ("hold_box", "m", None, (1.3, 0.5, 0.3), EYE), ("hold_box", "m", None, EYE, (1.6, 0.5, 1.0))],
        lambda s: (s.grabs["m"].point, s.grabs["m"].pointer) == (pytest.approx((0.2, 0.0, 0.1)), (1.6, 0.5, 1.0)),
    ),
}
"""Commands to somebody who has stood for ten frames, and what holds afterwards; None is the key of the only box."""


def tell(session: Session, name: str, *arguments: object) -> None:
    if name == "hold_box":
        arguments = (arguments[0], next(iter(crates(session.shown))), *arguments[2:])
    do(session, name, *arguments)


def test_a_command_does_what_it_says(simulator: Simulator):
    priors = dict.fromkeys(("field", "other"), lambda: simulator.prior)
    first = Session(simulator, Setup(scene=Scene((Person("stand"),))), priors=priors)
    run(first, 10)
    wrong = []
    for row, (commands, holds) in AFTER.items():
        session = copy.copy(first)
        session._shots = first._shots.copy()
        for command in commands:
            tell(session, *command)
        if not holds(session):
            wrong.append(row)
        session.tick()
    assert wrong == []
    assert {command[0] for commands, _ in AFTER.values() for command in commands} == set(COMMANDS)


REFUSED: list[tuple[tuple, str]] = [
    (("fly",), "fly"),
    (("push",), "direction"),
    (("push", "up"), "up"),
    (("push", "left", math.inf), "newtons"),
    (("push", "left", True), "newtons"),
    (("push", "left", 9.0, 0.3, 1), "person 1"),
    (("hold_limb", "m", 0, WRIST, (math.nan, 0.0, 0.0), EYE), "held"),
    (("hold_limb", "m", 4, WRIST, EYE, EYE), "person 4"),
    (("hold_limb", "m", 0, WRIST, (0.0, 0.0), EYE), "held"),
    (("hold_box", "m", 0, EYE, EYE), "box"),
    (("throw", (0.0, math.nan, 1.0)), "origin"),
    (("throw", None, "tail"), "tail"),
    (("throw", None, "head", 0, math.nan), "ball_speed"),
    (("trip", "third"), "foot"),
    (("put_box", (0.0, 0.0, 0.0)), r"\w"),  # somebody stands there
    (("put_box", (0.0, math.nan, 0.0)), "place"),
    (("paint_ice", (math.inf, 0.0, 0.0)), "place"),
    (("take_away", (0.0, 0.0, 5.0), DOWN), "patch"),
    (("click", "sings", EYE, DOWN), "does"),
    (("tilt", math.nan, 0.0), "roll"),
    (("walk", math.inf), "speed"),
    (("walk", 1.0, 0.0, 1), "person 1"),
    (("go_to", math.nan, 0.0), "x"),
    (("crouch", True, 1), "person 1"),
    (("crouch", "deep"), "low"),
    (("slow", math.nan), "pace"),
    (("look_back", math.nan), "seconds_ago"),
    (("cut", math.nan, 0.0), "first_ago"),
    (("begin", "fly", 2), "fly"),
    (("use", "yours"), "yours"),
]


def test_what_makes_no_sense_is_refused_and_changes_nothing(session: Session):
    still = run(session, 3)
    session.restart()
    before = dict(vars(session))
    for command, word in REFUSED:
        with pytest.raises(ValueError, match=word):
            do(session, *command)
        assert {name for name, value in vars(session).items() if value is not before[name]} == set(), command
    assert np.array_equal(run(session, 3).people.x, still.people.x)


LIMITS: list[tuple[list[tuple], tuple]] = [
    ([("paint_ice", (0.0, float(i), 0.0)) for i in range(MAX_OBJECTS)], ("put_box", (1.0, 0.5, 0.0))),
    ([("hold_limb", who, 0, WRIST, EYE, EYE) for who in range(8)], ("hold_limb", "one more", 0, WRIST, EYE, EYE)),
    ([("tilt", 10.0, 0.0), *[("step",)] * 30], ("put_box", (1.0, 0.5, 0.0))),
]


@pytest.mark.parametrize(("before", "command"), LIMITS)
def test_there_are_limits(session: Session, before: list[tuple], command: tuple):
    for one in before:
        do(session, *one)
    with pytest.raises(ValueError, match=r"\w"):
        do(session, *command)


# --- what happens to people


def test_restart_reproduces_exactly(session: Session):
    first = run(session, 20)
    do(session, "push", "left", 300.0)
    run(session, 5)
    warm_up(session)  # changes nothing
    do(session, "restart")
    assert session.time == 0.0
    assert np.array_equal(run(session, 20).people.x, first.people.x)
    do(session, "begin", seed=1)
    assert apart(run(session, 20), first) > 0.001


def test_a_hand_draws_the_limb_toward_the_pointer(session: Session):
    still = run(session, 15)
    session.restart()
    wrist = session.shown.people.x[0, WRIST]
    do(session, "hold_limb", "mouse", 0, WRIST, wrist, np.add(wrist, (0.6, 0.0, 0.2)), largest=150.0)
    assert (run(session, 15).people.x - still.people.x)[0, WRIST, 0] > 0.02
    # 1500 N/m over 0.6 m is more than 150 N: the first force is the largest allowed.
    shot = session.shots[1]
    assert np.linalg.norm(shot.pulls[0][1]) == pytest.approx(150.0)
    np.testing.assert_allclose(shot.report.external_forces[0].sum(0), shot.pulls[0][1], rtol=1e-7)
    # A hand on the middle of a bone draws both ends.
    forces = Grab(WRIST, 0.25, (0.0, 5.0, 1.0)).forces(shot.people.x, shot.people.v)
    ends = np.linalg.norm(forces[0, [WRIST, joint_index("right_elbow")]], axis=-1)
    np.testing.assert_allclose(ends, (100.0, 300.0))


def test_the_ground_tilts_smoothly_under_the_person_and_back(session: Session):
    do(session, "tilt", 10.0, 0.0)
    # 10 degrees at 15 degrees a second.
    assert math.degrees(math.acos(run(session, 10).ground.normal[2])) == pytest.approx(5.0, abs=0.3)
    np.testing.assert_allclose(
        run(session, 15).ground.normal, (math.sin(math.radians(10)), 0.0, math.cos(math.radians(10)))
    )
    normals = np.stack([shot.ground.normal for shot in session.shots])
    assert np.linalg.norm(np.diff(normals, axis=0), axis=-1).max() < math.radians(15.0 / 30) * 1.01
    do(session, "tilt", 0.0, 0.0)
    level = run(session, 25).ground
    # It turned about where the person was, so the floor is about where it was.
    assert (level.normal.tolist(), abs(float(level.offset)) < 0.2) == ([0.0, 0.0, 1.0], True)


def test_a_scene_plays_as_elsewhere(simulator: Simulator):
    pin, push = Pin("right_wrist", start=0.0, target=(-0.4, 0.5, 1.3)), Push.toward("left", 200.0, start=0.1)
    ground = Ground(((0.1, 0.0, 0.0), (0.5, 5.0, 0.0)))
    scene = Scene((Person("stand"),), (pin, push, Throw(start=0.2), StiffJoint()), ground=ground)
    session = Session(simulator, Setup(scene=scene))
    do(session, "begin", ghost=True)
    shown = run(session, 12)
    expected = run_world(World(scene, simulator), 13, 0)
    np.testing.assert_array_equal(shown.people.x[0], expected.motions[0].joints[-1])
    recording = session.recording()
    assert {"push torso", "ball"} <= {event.name for event in recording.motions[0].events}
    for one, other in zip(recording.objects, expected.objects, strict=True):
        np.testing.assert_array_equal(one.centre, other.centre)
    assert shown.ghosts is not None
    assert np.linalg.norm(shown.ghosts.x[0, WRIST] - [-0.4, 0.5, 1.3]) > 0.3


def test_people_of_a_prior_without_intents_are_led_and_do_not_jump():
    prior = CVAEPrior.shipped()
    prior.takes_intent = False
    session = Session(Simulator(prior, options=SimulatorOptions(num_samples=4)))
    do(session, "walk", 1.2, 90.0)
    assert session.goals[0].velocity(np.zeros(2)) == pytest.approx((-1.2, 0.0))
    run(session, 6)
    assert "com_velocity" in session.shown.values
    do(session, "free")
    assert "com_velocity" not in session.tick().values
    with pytest.raises(ValueError, match="cannot jump"):
        do(session, "jump")


def test_people_go_to_a_place_and_crouch(session: Session):
    goal = Goal(1.5, place=(3.0, 0.0))
    np.testing.assert_allclose(goal.velocity(np.zeros(2)), (1.5, 0.0))
    assert not goal.velocity(np.array([2.9, 0.1])).any()
    do(session, "begin", people=2)
    people = session.shown.people
    asked = steering_inputs({1: goal}, {0: CROUCHING}, people, session.prior)
    assert asked.intent is not None
    np.testing.assert_allclose(asked.intent.height, [CROUCHING, np.nan])
    assert np.isnan(asked.intent.velocity[0]).all()
    # Straight to the place, and facing it.
    way = goal.velocity(people.x[1, 0, :2])
    np.testing.assert_allclose(asked.intent.velocity[1], way)
    np.testing.assert_allclose(asked.intent.facing[1], way / np.linalg.norm(way))


def test_people_jump_and_land(simulator: Simulator):
    session = standing(simulator, "walk")
    do(session, "walk")
    run(session, 15)
    do(session, "jump")
    run(session, 75)
    assert not session.jumping
    people = np.stack([shot.people.x[0] for shot in session.shots])
    soles = [joint_index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")]
    # The lowest joint of a standing foot, the ball of it, is 3 cm above the floor.
    assert people[:, soles, 2].min(-1).max() > 0.07
    assert people[-1, 0, 2] > 0.8 * simulator.skeleton.standing_height


def test_a_saved_scene_holds_what_was_done_and_plays_it_again(session: Session, tmp_path: Path):
    do(session, "load", scenario("backflip-push"))
    warm_up(session)
    with pytest.raises(ValueError, match="follows a recording"):
        do(session, "begin", people=2)
    run(session, 2)
    do(session, "load", scenario("push"))
    do(session, "push", "right", 120.0)
    do(session, "put_box", (1.00049, 2.5, 1e-16))
    do(session, "paint_ice", (0.0, 4.0, 0.0))
    run(session, 3)
    [(name, content)] = files_of(session.recording(), "toml")
    (tmp_path / name).write_bytes(content)
    again = read_scene(tmp_path / name)
    assert [type(element) for element in again.scene.elements] == [Push, Box, Patch, Push]
    assert again.scene.elements[1].position == (1.0, 2.5, 0.0)  # to a millimetre, as people write it
    typed = typed_scene(scene_text(session.played_setup(), Path()))
    assert typed.scene.elements == again.scene.elements
    expected = session.shown.people.x
    do(session, "load", again)
    assert np.array_equal(run(session, 3).people.x, expected)


def test_a_saved_scene_has_the_steering_and_its_length(session: Session):
    run(session, 30)
    do(session, "walk", 1.0, 90.0)
    run(session, 30)
    do(session, "go_to", 0.0, 3.0)
    run(session, 15)
    setup = session.recording().setup
    assert setup.seconds == pytest.approx(2.5)
    [follow] = setup.scene.elements
    times = [row[0] for row in follow.velocities]
    assert times[:3] == pytest.approx([0.0, 1.0, 2.0])
    assert follow.velocity_at(1.5) == pytest.approx((-1.0, 0.0))
    assert typed_scene(scene_text(setup, Path())).scene.elements == setup.scene.elements


def test_a_scene_is_typed_but_names_no_files():
    for name, setup in SCENARIOS.items():
        assert typed_scene(scene_text(setup, Path())).scene.elements == setup.scene.elements, name
    for text, says in (
        ("[[person]]\n" * 10, "at most 9 people"),
        ('clip = "/etc/passwd"', "names a file"),
        ('prior = "secret.bank"', "names a file"),
        ('[[mesh]]\nfile = "room.obj"', "names a file"),
        ("person = [3]", "the scene"),
        ("[[push]]\nnewton = 3", "line 2"),
        ("#" * 30_000, "characters"),
        # Small texts, much work.
        ("[[stairs]]\nnum_steps = 50\n" * 2, "at most 60 elements"),
        ('[[push]]\nnewtons = 1\ndirection = "left"\n' * 61, "at most 60 elements"),
        ("[simulator]\nnum_iterations = 50", "at most 20 iterations"),
        ("[simulator]\nnum_samples = 4096", "at most 256 samples"),
    ):
        with pytest.raises(ValueError, match=says):
            typed_scene(text)


def test_without_the_prior_nothing_holds_the_body_up(session: Session):
    # The reaction of the ground is fitted to the prior's candidates, so it goes with the prior: with it, this
    # person stands for seconds.
    do(session, "switch", "kinematic", False)
    fallen = run(session, 30)
    assert float(fallen.people.x[0, 15, 2]) < 1.2
    assert "kinematic" not in fallen.values
    do(session, "switch", "kinematic", True)
    session.restart()
    assert float(run(session, 30).people.x[0, 15, 2]) > 1.3


def test_the_ghost_goes_with_the_person_until_something_is_done(simulator: Simulator):
    session = Session(simulator)
    alone = run(session, 25)
    do(session, "begin", ghost=True)
    shot = run(session, 10)
    assert shot.ghosts is not None
    assert np.array_equal(shot.people.x, shot.ghosts.x)
    wrist = shot.people.x[0, WRIST]
    for command in (("push", "left", 400.0), ("throw",), ("stiffen", True), ("tilt", 8.0, 0.0)):
        do(session, *command)
    do(session, "hold_limb", "mouse", 0, WRIST, wrist, np.add(wrist, (1.0, 0.0, 0.0)))
    shot = run(session, 15)
    assert shot.ghosts is not None
    assert np.linalg.norm(shot.people.x - shot.ghosts.x, axis=-1).max() > 0.05
    # The ghost is where the person would be.
    assert np.array_equal(alone.people.x, shot.ghosts.x)


# --- boxes


def test_a_hand_carries_a_box_lets_it_fall_and_pushes_people_with_it(session: Session):
    do(session, "put_box", (1.2, 0.0, 0.0), box_mass=8.0)
    [key] = crates(session.shown)
    do(session, "hold_box", "mouse", key, (1.2, 0.0, 0.4), (1.6, 1.0, 1.2))
    shot = run(session, 30)
    np.testing.assert_allclose(crates(shot)[key], (1.6, 1.0, 1.0), atol=0.02)
    # The force that holds it there is its weight.
    np.testing.assert_allclose(shot.pulls[0][1], (0.0, 0.0, 8.0 * 9.81), atol=5.0)
    do(session, "let_go", "mouse")
    assert not session.tick().pulls
    # 0.8 m of fall take 0.4 s, 12 frames.
    assert float(crates(run(session, 20))[key][2]) < 0.4
    do(session, "restart")
    [key] = crates(session.shown)
    do(session, "hold_box", "mouse", key, (1.2, 0.0, 0.3), (-1.0, 0.0, 0.8))
    shot, before = run(session, 20), session.shots[0]
    assert max(float(np.abs(s.report.external_forces).max()) for s in session.shots[1:]) > 20.0
    assert float((shot.people.x - before.people.x)[0, 0, 0]) < -0.05
    do(session, "take_away")
    assert not session.grabs


# --- priors


def test_another_prior_begins_again_and_keeps_the_settings(tmp_path: Path):
    """Two priors of the user's own: the shipped one, which drifts to the side, and the same for another rate."""
    path, prior = tmp_path / "mine.safetensors", CVAEPrior.shipped()
    prior.network.tensors["decoder.linears.3.bias"][0] += 0.5
    prior.save(path)
    prior.fps = 20.0
    prior.save(tmp_path / "slow.safetensors")
    session = View(samples=8, start="stand").open_session(str(path), str(tmp_path / "slow.safetensors"))
    do(session, "switch", "contact", False)
    mine = run(session, 10)
    do(session, "use", "cvae")
    assert session.time == 0.0
    shipped = run(session, 10)
    assert "contact" not in shipped.values
    assert apart(mine, shipped) > 0.001
    with pytest.raises(ValueError, match="another body or rate"):
        do(session, "use", "slow.safetensors")
    do(session, "use", "mine.safetensors")
    assert np.array_equal(run(session, 10).people.x, mine.people.x)


# --- files


def test_the_buffer_goes_out_as_motions(simulator: Simulator):
    session = Session(simulator, seconds=1.0)
    run(session, 20)
    do(session, "push", "left", 100.0, duration=0.2)
    run(session, 25)
    assert [shot.frame for shot in session.shots] == list(range(16, 46))
    motion = session.recording().motions[0]
    assert len(motion) == 30
    assert np.array_equal(motion.joints[-1], session.shown.people.x[0])
    # The buffer begins at frame 16, and the push came after frame 20.
    assert [(event.name, event.start) for event in motion.events] == [("push torso", pytest.approx(4 / 30))]
    assert motion.wrench_before is not None
    assert "kinematic" in motion.energies
    # 15 to 6 frames before the last, both ends among them.
    do(session, "cut", -0.5, -0.2)
    part = session.recording().motions[0]
    assert np.array_equal(part.joints, motion.joints[14:24])
    do(session, "pause", False)
    assert len(session.recording().motions[0]) == 30


def test_files_read_back(session: Session, tmp_path: Path):
    with pytest.raises(ValueError, match="nothing to save yet"):
        files_of(session.recording(), "bvh")
    do(session, "begin", people=2)
    run(session, 3)
    do(session, "put_box", (1.0, 1.5, 0.0))
    do(session, "paint_ice", (0.0, 2.0, 0.0))
    do(session, "throw")
    run(session, 4)
    do(session, "take_away", (1.0, 1.5, 3.0), DOWN)
    run(session, 3)
    recording = session.recording()
    with pytest.raises(ValueError, match="there are no 'exe' files"):
        files_of(recording, "exe")
    files = {name: content for kind in ("bvh", "npz", "glb") for name, content in files_of(recording, kind)}
    people = [f"scene_{i}.{kind}" for kind in ("bvh", "npz") for i in (0, 1)]
    assert list(files) == [*people, "scene_objects.npz", "scene.glb"]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name in people:
        saved = read_motion(tmp_path / name, session.simulator.skeleton)
        expected = recording.motions[int(name[6])].joints
        np.testing.assert_allclose(saved.joints, expected, rtol=0, atol=0.03 if name.endswith("bvh") else 1e-3)
    glb = files["scene.glb"]
    document = json.loads(glb[20 : 20 + struct.unpack("<I", glb[12:16])[0]])
    assert {"crate_1", "patch_1", "ball_1"} < {node["name"] for node in document["nodes"]}
    # Each was put there after the start, so a size of zero hides it before that.
    assert sum(channel["target"]["path"] == "scale" for channel in document["animations"][0]["channels"]) == 3
    with np.load(tmp_path / "scene_objects.npz") as objects:
        there = {name: np.isfinite(objects[f"{name}/centres"]).all(-1).nonzero()[0] for name in objects["names"]}
    # The frame at which they were put down shows them at once; the ball flies from the next on.
    spans = {name: (frames[0], frames[-1]) for name, frames in there.items()}
    assert spans == {"crate_1": (3, 6), "patch_1": (3, 10), "ball_1": (4, 10)}


# --- the clock


@contextlib.contextmanager
def running(session: Session, viewer: NullViewer | None = None) -> Iterator[tuple[Loop, NullViewer]]:
    loop = Loop(session, viewer or NullViewer())
    loop.start()
    try:
        yield loop, loop.viewer
    finally:
        loop.stop()


def test_it_runs_pauses_and_goes_on(session: Session):
    with running(session) as (loop, viewer):
        wait_until(lambda: len(viewer.shots) > 5)
        loop.commands.do("pause", True)
        wait_until(
            lambda: viewer.status.paused and viewer.shots[-1].frame == loop.commands.ask(lambda s: s.shown.frame)
        )
        frame = viewer.shots[-1].frame
        time.sleep(0.3)
        assert viewer.shots[-1].frame == frame
        loop.commands.do("look_back", 0.1)
        wait_until(lambda: viewer.shots[-1].frame == frame - 3)
        loop.commands.do("step")
        wait_until(lambda: viewer.shots[-1].frame == frame + 1)
        loop.commands.do("pause", False)
        wait_until(lambda: viewer.shots[-1].frame > frame + 5)
        assert 0 <= loop.status.late <= loop.status.frames


def test_what_goes_wrong_does_not_stop_it(
    session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> Shot:
        raise RuntimeError("not so")

    class Blind(NullViewer):
        show = broken

    with running(session) as (loop, viewer):
        loop.commands.put(broken)
        loop.commands.do("push", "up")
        wait_until(lambda: len(viewer.said) >= 2)
        assert "did not work" in viewer.said[0]
        assert "there is no direction 'up'" in viewer.said[1]
        with pytest.raises(RuntimeError, match="not so"):
            loop.commands.ask(broken)
        wait_until(lambda: len(viewer.shots) > 3)
        # A state that is no number breaks the simulation: it begins again.
        loop.commands.ask(lambda s: s.now.people.x.fill(np.nan))
        wait_until(lambda: any("began again" in said for said in viewer.said))
        count = len(viewer.shots)
        wait_until(lambda: len(viewer.shots) > count + 3)
        assert np.isfinite(viewer.shots[-1].people.x).all()
    with running(session, Blind()) as (loop, _):
        wait_until(lambda: loop.commands.ask(lambda s: s.shown.frame) > 5)
    monkeypatch.setattr(session, "tick", broken)
    with running(session) as (_, viewer):
        wait_until(lambda: any("again and again" in said for said in viewer.said))
        assert session.paused
    assert "a command failed" in caplog.text
    assert "could not be shown" in caplog.text


def test_a_picture_that_stands_still_counts_every_stroke(session: Session):
    class Slow(NullViewer):
        def show(self, shot: Shot, status: object) -> None:
            time.sleep(1.0 if len(self.shots) == 5 else 0.0)
            self.shots.append(shot)

    began = time.perf_counter()
    with running(session, Slow()) as (loop, viewer):
        wait_until(lambda: len(viewer.shots) > 10)
        status, lasted = loop.status, time.perf_counter() - began
    # A second is 30 strokes, of which one showed its frame; the clock has never struck more often than it should.
    assert status.late >= 28
    assert status.frames <= 30 * lasted + 1


def test_too_many_commands_are_dropped():
    commands = Commands()
    assert all(commands.do("restart") for _ in range(MAX_COMMANDS))
    assert not commands.do("restart")
    assert commands.take() is not None
    assert commands.do("restart")


def test_a_mouse_that_lets_go_has_let_go():
    pytest.importorskip("viser")
    from dropsim.apps.viewer.hands import Hands

    browser, box, commands = MagicMock(), MagicMock(), []
    room = [True, True, False, True]
    browser.commands.do = lambda name, *_, **__: commands.append(name) or room[len(commands) - 1]
    hands = Hands(browser)
    hands.listen_to_box(box, 0)
    drag = box.on_drag.return_value.call_args.args[0]
    # A move that comes after the end holds nothing; and a release for which there is no room is sent again.
    for phase in ("start", "update", "end", "update", "update"):
        points = {"start_position": (0.0, 0.0, 0.0), "end_position": (1.0, 0.0, 0.0)}
        asyncio.run(drag(SimpleNamespace(client_id=0, phase=phase, **points)))
        hands.tell()
    assert commands == ["hold_box", "hold_box", "let_go", "let_go"]


def test_a_key_steers_somebody_who_is_there_when_it_is_obeyed(session: Session):
    pytest.importorskip("viser")
    from dropsim.apps.viewer.hands import Keys

    browser, queue = MagicMock(), []
    browser.commands.put = queue.append
    keys, client = Keys(browser), SimpleNamespace(client_id=0)
    for words in (["person", "2"], ["crouch"]):
        keys._press(client, words)
    # The second person has gone since: the next scene has one.
    queue[0](session)
    assert session.crouched == {0}


# --- the command


def test_a_port_in_use_is_refused(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("viser")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["view", "--port", str(taken.getsockname()[1])]) == EXIT_ERROR
    assert "is in use" in capsys.readouterr().err


def test_it_serves_until_its_time_or_ctrl_c_and_warns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("viser")
    options = "--host 0.0.0.0 --port 0 --seconds 0.5 --samples 8 --people 2"
    command = ["view", "push", *options.split()]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "open http://localhost:" in out
    assert "late" in out
    assert "WARNING: anybody who can reach" in err

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "wait", interrupted)
    assert main(command) == EXIT_INTERRUPTED
    assert "late" not in capsys.readouterr().out
    assert {thread.name for thread in threading.enumerate()} & {"simulate", "vmc"} == set()


# --- a real browser

SECONDS = 120.0
"""Time that a busy machine has for whatever the page or the simulation does [s]."""


@dataclass
class Page:
    """A page in a headless browser that shows a live simulation."""

    page: Any
    loop: Loop
    viewer: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    count: int = 0

    def settle(self) -> None:
        """Wait until the page shows the newest frame, where the mouse meets what is drawn, if the world is paused."""
        shown = self.loop.commands.ask(lambda s: s.shown, SECONDS)
        wait_until(lambda: self.viewer.drawn is shown or not self.loop.session.paused)
        # The panel's title comes after all that was sent before it.
        self.count += 1
        self.viewer.server.gui.set_panel_label(f"mark {self.count}")
        self.page.get_by_text(f"mark {self.count}", exact=True).first.wait_for()
        for _ in range(2):
            self.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")

    def look_from(self, eye: tuple[float, ...], look: tuple[float, ...]) -> None:
        """Move the camera, and wait until the page says that it is there."""
        [client] = self.viewer.server.get_clients().values()
        heard = threading.Event()
        client.camera.on_update(lambda _: heard.set())
        client.camera.position, client.camera.look_at = eye, look
        wait_until(lambda: heard.is_set() and np.allclose(client.camera.position, eye, atol=1e-3))

    def until(self, condition: Callable[[Session], object]) -> None:
        wait_until(lambda: self.loop.commands.ask(condition, SECONDS))

    def do(self, *command: Any, times: int = 1) -> None:
        for _ in range(times):
            self.loop.commands.ask(lambda s: do(s, *command), SECONDS)
        self.settle()

    def on_screen(self, point: np.ndarray) -> tuple[float, float]:
        """Project a point of the world onto the page [pixels]; the picture ends where the panel begins."""
        from viser.transforms import SO3

        [client] = self.viewer.server.get_clients().values()
        camera, height = client.camera, self.page.viewport_size["height"]
        R = SO3(np.asarray(camera.wxyz)).as_matrix()
        x, y, z = R.T @ (point - np.array(self.viewer._figures.origin) - np.asarray(camera.position))
        focal = height / 2 / math.tan(camera.fov / 2)
        return height * camera.aspect / 2 + focal * x / z, height / 2 + focal * y / z

    def drag(self, point: np.ndarray) -> None:
        """Press the mouse on a point of the world and move it up and to the right."""
        u, v = self.on_screen(point)
        self.page.mouse.move(u, v)
        self.settle()  # the page finds what is under the mouse when it draws
        self.page.mouse.down()
        for far in (10, 30, 60):
            self.page.mouse.move(u + far, v - far)
            self.settle()

    def control(self, label: str) -> Any:
        return self.page.get_by_text(label, exact=True).locator("xpath=../../..").locator("input")

    def choose(self, label: str, option: str) -> None:
        self.control(label).first.click()
        self.page.get_by_role("option", name=option, exact=True).click()


FLAGS = "--headless --no-sandbox --use-angle=swiftshader --enable-unsafe-swiftshader --disable-background-networking --no-first-run"


@contextlib.contextmanager
def served(session: Session) -> Iterator[tuple[Loop, object]]:
    from dropsim.apps.viewer.app import Browser

    class Drawn(Browser):
        """The app's viewer, which also says which frame it has drawn last."""

        drawn: Shot | None = None

        def show(self, shot: Shot, status: Status) -> None:
            super().show(shot, status)
            self.drawn = shot

    commands = Commands()
    viewer = Drawn(session, commands, port=0)
    loop = Loop(session, viewer, commands)
    loop.start()
    try:
        yield loop, viewer
    finally:
        loop.stop()
        viewer.close()


@contextlib.contextmanager
def page_of(session: Session, **options: Any) -> Iterator[Page]:
    """Open the app in a browser; options are those of Playwright's new_page."""
    pytest.importorskip("viser")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine: `make system` installs it as root on Debian")
    with served(session) as (loop, viewer), playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS.split())
        try:
            page = browser.new_page(**{"viewport": {"width": 820, "height": 560}, **options})
            page.set_default_timeout(1000 * SECONDS)
            opened = Page(page, loop, viewer)
            page.on("request", lambda request: opened.requests.append(request.url))
            page.on("pageerror", lambda error: opened.errors.append(str(error)))
            # Without a graphics card a picture takes a quarter of a second; few pixels take a quarter of that.
            page.goto(f"http://127.0.0.1:{viewer.port}/?fixedDpr=0.25")
            # The help card greets whoever comes for the first time.
            page.get_by_role("button", name="Start", exact=True).click()
            page.get_by_role("dialog", name="Help").wait_for(state="hidden")
            opened.do("pause", True)
            yield opened
            assert opened.errors == []
        finally:
            browser.close()


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_real_browser(tmp_path: Path, simulator: Simulator):
    priors = dict.fromkeys(("field", "other"), lambda: simulator.prior)
    session = Session(simulator, Setup(scene=Scene((Person("stand"),))), priors=priors)
    warm_up(session)
    with page_of(session) as page:
        use_keys(page)
        use_scenes(page)
        use_mouse(page)
        use_panel(page, tmp_path)
        right = page.page.get_by_text("Look back [s]").bounding_box()["x"]
        everybody_is_in_the_picture(page, ("follow-run", "stairs", "crowd"), right=right)
        # Nothing was asked of anybody else.
        own = f"http://127.0.0.1:{page.viewer.port}/"
        assert [url for url in page.requests if not url.startswith((own, f"blob:{own}", "data:"))] == []
        assert page.requests


def use_keys(page: Page) -> None:
    """Steer people as the camera sees them; time stands still meanwhile."""
    ui = page.page
    assert ui.title() == "dropsim"
    page.settle()
    [client] = page.viewer.server.get_clients().values()
    look = np.asarray(client.camera.look_at) - np.asarray(client.camera.position)
    up = math.degrees(math.atan2(-look[0], look[1]))
    for key, speed, turn in (("w", WALKING, 0.0), ("Shift", RUNNING, 0.0), ("ArrowLeft", RUNNING, 45.0)):
        ui.keyboard.down(key)
        walk = Goal(speed, up + turn)
        page.until(lambda s, walk=walk: near_to(s.goals.get(0), walk))
    for key in ("Shift", "w", "ArrowLeft"):
        ui.keyboard.up(key)
    page.until(lambda s: s.goals[0].speed == 0.0)
    for people in ({0}, set()):
        ui.keyboard.press("c")
        page.until(lambda s, people=people: s.crouched == people)
    ui.keyboard.press(" ")
    page.until(lambda s: s.jumping)
    ui.keyboard.press("Escape")
    page.until(lambda s: not s.goals)
    # Keys that are typed into a field steer nobody; a dropdown does not keep them.
    page.control("Seed").first.click()
    ui.keyboard.press("c")
    page.settle()
    assert not page.loop.commands.ask(lambda s: s.crouched)
    for label, pace in (("1/2", 0.5), ("1", 1.0)):
        page.choose("Speed", label)
        page.until(lambda s, pace=pace: s.pace == pace)
    wait_until(lambda: ui.evaluate("() => document.activeElement === document.body"))
    ui.keyboard.press("c")
    page.until(lambda s: s.crouched == {0})
    # It says that it is paused, and P goes on.
    assert ui.locator("body.dropsim-paused").count() == 1
    ui.keyboard.press("p")
    page.until(lambda s: not s.paused and s.shown.frame > 3)
    wait_until(lambda: ui.locator("body.dropsim-paused").count() == 0)
    ui.get_by_role("button", name="Pause").click()
    page.until(lambda s: s.paused)
    ui.get_by_role("button", name="Play", exact=True).wait_for()


def use_scenes(page: Page) -> None:
    """Load a scene out of the gallery and change it as text; the panel, the title and the address follow."""
    ui = page.page
    ui.get_by_role("button", name="Open the gallery").click()
    cards = ui.get_by_role("dialog", name="Scenarios").get_by_role("button")
    assert cards.count() == len(SCENARIOS)
    cards.filter(has_text="two-people").click()
    page.until(lambda s: len(s.shown.people.x) == 2)
    page.do("pause", True)
    wait_until(lambda: ui.title() == "two-people · dropsim")
    assert ui.url.endswith("&scenario=two-people")
    wait_until(lambda: page.control("People").last.input_value() == "2")
    ui.keyboard.press("2")
    ui.keyboard.press("c")
    page.until(lambda s: s.crouched == {1})
    ui.get_by_role("button", name="Edit").click()
    text = ui.get_by_role("dialog").get_by_role("textbox")
    assert text.input_value().count("[[person]]") == 2
    # A text that cannot start stays, to be corrected.
    scene = '[[person]]\nstart = "stand"\n[[push]]\nnewtons = 9\ndirection = "left"\nstart = 60\n'
    text.fill(scene.replace("stand", "fly"))
    ui.get_by_role("button", name="Start it").click()
    ui.get_by_text("there is no start 'fly'").first.wait_for()
    assert "fly" in text.input_value()
    text.fill(scene)
    ui.get_by_role("button", name="Start it").click()
    page.until(lambda s: (len(s.scene.people), kinds(s)) == (1, [Push]))
    # The second person, whom the keys steered, is gone: they steer the first.
    text.wait_for(state="hidden")
    ui.keyboard.press("c")
    page.until(lambda s: s.crouched == {0})


def use_mouse(page: Page) -> None:
    """Send, pull, lift, paint and throw, while time stands still."""
    ui, loop = page.page, page.loop
    page.do("load", Setup(scene=Scene((Person("stand"),))))
    page.do("pause", True)
    ui.add_style_tag(content=".mantine-Notification-root { display: none }")  # messages lie over the picture
    page.look_from((3.5, 0.5, 1.2), (0.0, 0.0, 1.0))
    page.settle()
    spot = np.array([0.3, -0.7, 0.0])
    ui.mouse.click(*page.on_screen(spot))
    page.until(lambda s: s.goals)
    assert loop.commands.ask(lambda s: s.goals[0].place) == pytest.approx((0.3, -0.7), abs=0.05)
    page.do("restart")
    page.drag(loop.commands.ask(lambda s: s.shown.people.x[0, joint_index("spine2")]))
    page.until(lambda s: s.grabs)
    page.do("step", times=15)
    dragged = loop.commands.ask(lambda s: s.shown)
    assert dragged.pulls
    ui.mouse.up()
    page.until(lambda s: not s.grabs)
    still = run(standing(loop.session.simulator), 15)
    assert np.linalg.norm((dragged.people.x - still.people.x)[0, joint_index("spine2")]) > 0.05
    assert page.errors == []

    # A click puts a box down, which the mouse then lifts; another paints ice, and a button takes both away.
    page.do("restart")
    ui.get_by_role("tab", name="World").click()
    page.choose("A click", BOX)
    page.settle()
    ui.mouse.click(*page.on_screen(spot))
    page.until(lambda s: crates(s.shown))
    assert loop.commands.ask(lambda s: s.scene.elements[-1].position) == pytest.approx((0.3, -0.7, 0.0), abs=0.05)
    page.choose("A click", PAINT)
    [(key, centre)] = loop.commands.ask(lambda s: crates(s.shown)).items()
    page.settle()
    page.drag(centre)
    page.until(lambda s: s.grabs)
    assert loop.commands.ask(lambda s: [grab.key for grab in s.grabs.values()]) == [key]
    page.do("step", times=15)
    assert loop.commands.ask(lambda s: crates(s.shown)[key][2]) > centre[2] + 0.05
    ui.mouse.up()
    page.until(lambda s: not s.grabs)
    ui.mouse.click(*page.on_screen(np.array([0.0, 1.0, 0.0])))
    page.until(lambda s: Patch in kinds(s))
    ui.get_by_role("button", name="Take all away").click()
    page.until(lambda s: not s.shown.objects)
    page.choose("A click", GO)
    # A click on the body throws a ball, and so does the button.
    page.settle()
    ui.mouse.click(*page.on_screen(loop.commands.ask(lambda s: s.shown.people.x[0, joint_index("spine2")])))
    page.until(lambda s: len(s.items) == 1)
    ui.get_by_role("tab", name="Disturb").click()
    ui.get_by_role("button", name="Throw").click()
    page.until(lambda s: len(s.items) == 2)


def use_panel(page: Page, folder: Path) -> None:
    """Tilt, change the prior, and save what was cut out in every format."""
    ui, loop = page.page, page.loop
    page.control("Roll [deg]").last.fill("12")
    page.control("Roll [deg]").last.press("Enter")
    page.until(lambda s: s.tilt == (12.0, 0.0))
    ui.get_by_role("tab", name="Scene").click()
    page.choose("Prior", "other")
    page.until(lambda s: (s.prior_name, s.shown.frame) == ("other", 0))
    page.do("step", times=5)
    loop.commands.do("cut", 0.1, 0.0)
    ui.get_by_role("tab", name="Save").click()
    for button, ending in (("BVH", "bvh"), ("GLB", "glb"), ("npz", "npz"), ("MP4", "mp4"), ("Scene (TOML)", "toml")):
        with ui.expect_download() as waiting:
            ui.get_by_role("button", name=button).click()
        assert waiting.value.suggested_filename == f"scene.{ending}"
        waiting.value.save_as(folder / f"saved.{ending}")
        wait_until(lambda: not page.viewer._saving)
    for ending in ("bvh", "npz"):
        assert len(read_motion(folder / f"saved.{ending}", loop.session.simulator.prior.skeleton)) == 4
    assert read_scene(folder / "saved.toml").scene.people[0].start == "stand"
    assert (folder / "saved.glb").read_bytes().startswith(b"glTF")
    assert b"ftyp" in (folder / "saved.mp4").read_bytes()[:12]


@pytest.mark.slow
@pytest.mark.browser
def test_on_a_phone(simulator: Simulator):
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with page_of(Session(simulator), **phone) as page:  # the panel is folded, and there is a thumb stick
        assert page.page.locator("#dropsim-stick").is_visible()
        page.page.get_by_role("button", name="Crouch").tap()
        page.until(lambda s: s.crouched == {0})
        everybody_is_in_the_picture(page, ("push", "wall"), bottom=page.page.viewport_size["height"] - 56)


def everybody_is_in_the_picture(
    page: Page, scenes: Sequence[str], right: float = math.inf, bottom: float = math.inf
) -> None:
    """Play scenes while nobody leaves the picture, which ends where the panel begins."""
    size = page.page.viewport_size
    right, bottom = min(right, size["width"]), min(bottom, size["height"])

    def outside() -> list[int]:
        """People of whom some joint is beyond the picture's edges or behind the panel."""
        joints = page.viewer._shot.people.x
        at = np.array([[page.on_screen(joint) for joint in person] for person in joints])
        seen = (at > 0).all(-1) & (at[..., 0] < right) & (at[..., 1] < bottom)
        return np.flatnonzero(~seen.all(-1)).tolist()

    for name in scenes:
        setup = scenario(name)
        page.loop.commands.ask(lambda s, setup=setup: (do(s, "load", setup), do(s, "pause", True)))
        frames = setup.num_frames(30.0)
        for part in range(2):
            page.loop.commands.ask(lambda s, frames=frames: run(s, frames // 2 - 1), timeout=120.0)
            page.do("step")
            wait_until(lambda: not outside(), what=f"{name}, part {part}")
        page.do("look_back", 3.0)
        wait_until(lambda: not outside(), what=f"{name}, looking back")


def near_to(goal: Goal | None, walk: Goal) -> bool:
    same = goal is not None and goal.speed == pytest.approx(walk.speed)
    return same and goal.direction == pytest.approx(walk.direction, abs=1.0)


def test_the_floors_squares_stay_when_it_begins_to_tilt(session: Session):
    pytest.importorskip("viser")
    with served(session) as (loop, viewer):
        loop.stop()
        figures = viewer._figures
        figures.origin = (0.3, 0.4, 0.0)
        # Squares repeat every metre: at the start of a tilt the pivot is anywhere, and the floor is still where it was.
        figures.lay_ground(replace(session.plane, pivot=np.array([0.37, -0.21, 0.0])))
        x, y, z = figures._ground.position
        assert (x - round(x), y - round(y), z) == pytest.approx((0.0, 0.0, -0.002), abs=1e-6)


def test_steps_are_shown_and_filmed(simulator: Simulator):
    pytest.importorskip("viser")
    session = Session(simulator, scenario("stairs"))
    run(session, 2)
    assert len(session.shown.objects) >= 4
    paths = session.recording().objects
    assert len(paths) == len(session.shown.objects)
    assert paths[0].centre.shape == (3, 3)
    with served(session) as (loop, viewer):
        wait_until(lambda: len(viewer._figures.objects) == len(paths))
        loop.commands.do("load", scenario("stand-still"))
        wait_until(lambda: not viewer._figures.objects)


def test_a_push_on_several_joints_is_one_arrow_outside_the_body(session: Session):
    pytest.importorskip("viser")
    from dropsim.apps.viewer.figures import pushes

    do(session, "push", "left", 300.0)
    report, x = session.tick().report, session.shown.people.x
    skeleton = session.simulator.prior.skeleton
    [[start, tip]] = pushes(x, report.external_forces, skeleton)
    # A metre for 1000 N, and no joint's sphere holds the point of it.
    assert float(np.linalg.norm(tip - start)) == pytest.approx(0.3, abs=1e-4)
    assert (np.linalg.norm(x[0] - tip, axis=-1) > skeleton.radii).all()
    assert not len(pushes(x, np.zeros_like(x), skeleton))


# --- hostile clients


def _raw_client(port: int, subprotocol: str | None, *, origin: str | None = None) -> socket.socket:
    """Open a websocket by hand, so that nothing stands in the way of nonsense."""
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    wanted = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    wanted += f"Origin: {origin}\r\n" if origin else ""
    client.sendall(
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{wanted}\r\n".encode()
    )
    return client


def _frame(content: bytes, opcode: int = 2) -> bytes:
    """A masked websocket frame, with a mask of zeros."""
    length = len(content)
    size = struct.pack("!B", 0x80 | length) if length < 126 else struct.pack("!BH", 0x80 | 126, length)
    return struct.pack("!B", 0x80 | opcode) + size + bytes(4) + content


def _nonsense(uuids: list[str]) -> list[bytes]:
    import msgspec

    nan, update = float("nan"), {"type": "GuiUpdateMessage"}
    camera = {"wxyz": (1, 0, 0, 0), "position": (1e300, nan, 0), "look_at": (0, 0, 0), "up_direction": (0, 0, 1)}
    camera |= {"fov": 1.0, "image_height": 1, "image_width": 1, "near": 0.1, "far": 10.0}
    drag = {"button": "left", "modifier": None, "start_screen_pos": (0, 0), "end_screen_pos": (0, 0), "owner": ""}
    drag |= {"name": "/world/limbs_0", "phase": "start", "instance_index": 99}
    drag |= {"start_position": (nan, 0, 0), "end_position": (0, float("inf"), 0)}
    changes = [{"value": value} for value in (nan, "x", None, -1)] + [{"removed": True, "update_cb": 3}]
    messages = [{"type": name} for name in ("NoSuchMessage", "GuiUpdateMessage", 7, "ShareUrlRequest")]
    messages += [{"type": "ViewerCameraMessage", **camera}, {"type": "SceneNodeDragMessage", **drag}]
    messages += [{**update, "uuid": uuid, "updates": change} for uuid in uuids for change in changes]
    broken = [_frame(content) for content in (b"\xff\x00nonsense", b"", b"\x93\x01\x02\x03")]
    broken += [_frame(b"text", 1), b"\x00\x01\x02", b"\xff" * 40]
    return [*broken, *(_frame(msgspec.msgpack.encode(message)) for message in messages)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hostile_clients_do_not_stop_it(session: Session, caplog: pytest.LogCaptureFixture):
    viser = pytest.importorskip("viser")

    def flood(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for _ in range(200):
                client.sendall(_frame(b"\xc1" * 100))

    with served(session) as (loop, viewer), ThreadPoolExecutor(4) as floods, contextlib.ExitStack() as ends:
        wait_until(lambda: loop.commands.ask(lambda s: s.shown.frame) > 3)
        handles = viewer.server.gui._gui_input_handle_from_uuid
        names = [f"viser-v{viser.__version__}" if i % 5 else None for i in range(50)]
        clients = [ends.enter_context(_raw_client(viewer.port, name)) for name in names]
        time.sleep(0.5)
        # Each client is dropped at its first nonsense, so everybody says all of it from where the last one stopped.
        everything = _nonsense(list(handles))
        for i, client in enumerate(clients):
            with contextlib.suppress(OSError):
                for nonsense in everything[i * len(everything) // 50 :][:10]:
                    client.sendall(nonsense)
        # And a flood from threads, while nobody reads what is sent to them.
        before = loop.commands.ask(lambda s: s.shown.frame)
        flooding = floods.map(flood, clients[:4])
        wait_until(lambda: loop.commands.ask(lambda s: s.paused or s.shown.frame > before + 15), 60)
        list(flooding)
        # Whatever they did to the controls, it goes on.
        for command in (("pause", False), ("slow", 1.0), ("restart",)):
            loop.commands.do(*command)
        wait_until(lambda: loop.commands.ask(lambda s: s.shown.frame) > 5, 60)
        assert np.isfinite(loop.commands.ask(lambda s: s.shown.people.x)).all()
        assert viewer.server.request_share_url() is None
        assert not any(handle._impl.removed for handle in handles.values())
    assert "a frame failed" not in caplog.text


ALIKE = [(3, 2.5), ([-3.0, 0.0], (-30.0, 0.0)), ("other", ""), (False, True)]
UNLIKE = [
    ({"a": 1}, 2.5),
    (math.nan, 2.5),
    (True, 1),
    ("on", True),
    ([-3.0], (-30.0, 0.0)),
    ("x" * 100_000, ""),
    (None, ""),
]


def test_browsers_set_values_of_a_controls_own_kind_and_send_no_files():
    pytest.importorskip("viser")
    from viser._messages import FileTransferPart, FileTransferStartUpload

    from dropsim.apps.viewer.server import is_alike, start_server
    from dropsim.export.html import stop_server

    assert [pair for pair in (*ALIKE, *UNLIKE) if is_alike(*pair)] == ALIKE
    server = start_server("127.0.0.1", 0)
    assert not {FileTransferStartUpload, FileTransferPart} & set(server._websock_server._incoming_handlers)
    stop_server(server)


@pytest.mark.parametrize(
    ("host", "origin", "local", "allowed"),
    [
        ("127.0.0.1:80", None, True, True),
        ("127.0.0.1:80", "http://127.0.0.1:80", True, True),
        ("localhost:80", "http://localhost:80", True, True),
        # Another site, another local server, a page in a sandbox or a file, and no address at all.
        ("127.0.0.1:80", "https://evil.example", True, False),
        ("127.0.0.1:80", "http://127.0.0.1:1", True, False),
        ("127.0.0.1:80", "null", True, False),
        ("127.0.0.1:80", "http://[", True, False),
        # A name of somebody else's that leads here; on a network any name will do, as long as the page has it too.
        ("evil.example:80", "http://evil.example:80", True, False),
        ("lab:80", "http://lab:80", False, True),
        ("lab:80", "http://evil.example", False, False),
    ],
)
def test_pages_of_others_are_refused(host: str, origin: str | None, local: bool, allowed: bool):
    pytest.importorskip("viser")
    from dropsim.apps.viewer.server import is_own_page

    assert is_own_page({"Host": host} | ({"Origin": origin} if origin else {}), local=local) == allowed


def test_it_refuses_others_and_ends_at_once_and_silently(session: Session, capsys: pytest.CaptureFixture[str]):
    # Its thread says goodbye on standard output at its very end, so it has to have ended.
    viser = pytest.importorskip("viser")
    with served(session) as (_, viewer):
        with _raw_client(viewer.port, f"viser-v{viser.__version__}", origin="https://evil.example") as other:
            assert other.recv(12) == b"HTTP/1.1 403"
        silent = _raw_client(viewer.port, f"viser-v{viser.__version__}")
        assert silent.recv(12) == b"HTTP/1.1 101"
        thread = viewer.server._websock_server._server_thread
        capsys.readouterr()
    assert not thread.is_alive()
    assert capsys.readouterr().out == ""
    silent.close()


def test_the_page_is_ours():
    viser = pytest.importorskip("viser")
    from dropsim.apps.viewer.server import with_head

    original = (Path(viser.__file__).parent / "client" / "build" / "index.html").read_bytes()
    page = with_head(gzip.compress(original))
    assert page == with_head(original)
    head = page[: page.index(b"</head>")].decode()
    assert "<title>dropsim</title>" in head
    assert "dropsim-help" in head
    assert head.count('rel="icon"') == 1
    # The gallery has a picture of every scenario.
    rows = [f'"{name}", "{setup.description}", "data:image/webp;base64,UklG' for name, setup in SCENARIOS.items()]
    assert [row for row in rows if row not in head] == []
    # Our script comes before viser's, which it has to.
    assert page.index(b"dropsim keys") < page.index(b"<script data-p")


def test_the_panel_shows_what_a_scene_has(simulator: Simulator):
    pytest.importorskip("viser")
    session = Session(simulator, priors=dict.fromkeys(("one", "other"), lambda: simulator.prior))
    with served(session) as (loop, viewer):
        controls = {handle.label: handle for handle in viewer.server.gui._gui_input_handle_from_uuid.values()}

        def shown(*labels: str) -> list[object]:
            return [controls[label].value for label in labels]

        for command in (("tilt", 9.0, 0.0), ("begin", None, None, 5, True), ("use", "other")):
            loop.commands.do(*command)
        wait_until(lambda: shown("Roll [deg]", "Seed", "Prior", "Ghost") == [9.0, 5, "other", True])
        loop.commands.do("load", scenario("stand-still"))
        expected = ["stand-still", "stand", 0.0, scenario("stand-still").seed, "stand-still"]
        wait_until(lambda: shown("Show", "Motion", "Roll [deg]", "Seed", "dropsim scene") == expected)
        wait_until(lambda: viewer.panel.about.content == scenario("stand-still").description)
