"""The live simulation: what is done to it, its clock, and the browser app in a real browser."""

import contextlib
import gzip
import json
import math
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dropsim.apps.cli import EXIT_ERROR, main
from dropsim.apps.cli.view import View
from dropsim.apps.viewer.downloads import files_of
from dropsim.apps.viewer.editing import typed_scene
from dropsim.apps.viewer.hands import _holding_box
from dropsim.apps.viewer.loop import MAX_COMMANDS, Commands, Loop
from dropsim.apps.viewer.null import NullViewer
from dropsim.apps.viewer.objects import BoxGrab
from dropsim.apps.viewer.panel import BOX, GO, ICE, TAKE
from dropsim.apps.viewer.session import MAX_BALLS, MAX_OBJECTS, MAX_TILT, Session, Switches, people_in_a_row
from dropsim.apps.viewer.shot import Shot
from dropsim.apps.viewer.steering import CROUCHING, RUNNING, WALKING, GoTo, Grab, Walk, steering_inputs
from dropsim.body.clothes import dressed
from dropsim.body.mesh import Body
from dropsim.body.skeleton import joint_index
from dropsim.motion.amass import read_amass
from dropsim.motion.reading import read_motion
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.scene import Box, Follow, Ground, Patch, Person, Pin, Push, Scene, StiffJoint, Throw, World
from dropsim.scene import run as run_world
from dropsim.scene.files import Setup, read_scene
from dropsim.scene.files.writing import scene_text
from dropsim.scene.scenarios import SCENARIOS, scenario

WRIST = joint_index("right_wrist")


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    """A simulator whose kernels are compiled, so that nobody waits for that in a thread."""
    simulator = Simulator.shipped(num_samples=8)
    Session(simulator).tick()
    return simulator


@pytest.fixture
def session(simulator: Simulator) -> Session:
    return Session(simulator, Scene((Person("stand"),)))


def run(session: Session, frames: int) -> Shot:
    for _ in range(frames):
        session.tick()
    return session.shown


def apart(one: Shot, other: Shot) -> float:
    """Largest distance between the same joints of two frames [m]."""
    return float(np.linalg.norm(one.people.x - other.people.x, axis=-1).max())


# --- time


def test_restart_reproduces_exactly(session: Session):
    first = run(session, 20)
    session.push("left", 300.0)
    run(session, 5)
    session.restart()
    assert session.time == 0.0
    assert np.array_equal(run(session, 20).people.x, first.people.x)
    session.begin(seed=1)
    assert apart(run(session, 20), first) > 0.001


def test_step_scrub_and_go_on(session: Session):
    run(session, 10)
    assert session.step().frame == 11
    assert session.paused
    assert session.scrub(-0.2).frame == 5
    assert session.scrub(1000.0).frame == 0
    assert session.shown.frame == 0
    session.pause(False)
    assert session.shown.frame == 11
    session.slow(0.25)
    assert session.pace == 0.25


def test_a_part_of_it_is_cut_out(session: Session):
    run(session, 20)
    session.cut(-0.5, -0.2)
    assert session.paused
    motion = session.recording().motions[0]
    # 15 to 6 frames before the last, both ends among them.
    assert len(motion) == 10
    assert np.array_equal(motion.joints[0], session.shots[5].people.x[0])
    assert np.array_equal(motion.joints[-1], session.shots[14].people.x[0])
    session.cut(-0.2, -0.5)
    assert len(session.recording().motions[0]) == 10
    session.pause(False)
    assert len(session.recording().motions[0]) == 21
    with pytest.raises(ValueError, match="finite"):
        session.cut(math.nan, 0.0)


def test_only_the_last_seconds_are_kept(simulator: Simulator):
    session = Session(simulator, seconds=0.5)
    run(session, 20)
    assert [shot.frame for shot in session.shots] == list(range(6, 21))


def test_warming_up_changes_nothing(session: Session):
    session.warm_up()
    assert session.time == 0.0
    assert not session.shown.solids
    assert np.array_equal(run(session, 3).people.x, run(Session(session.simulator, session.scene), 3).people.x)
    session.load(scenario("backflip-push"))
    session.warm_up()


# --- what is done to people


def test_a_hand_draws_the_limb_toward_the_pointer(session: Session):
    still = run(session, 15)
    session.restart()
    wrist = session.shown.people.x[0, WRIST]
    x, y, z = np.add(wrist, (0.6, 0.0, 0.2)).tolist()
    session.grab("mouse", Grab(WRIST, 1.0, (x, y, z), largest=150.0))
    drawn = run(session, 15)
    assert (drawn.people.x - still.people.x)[0, WRIST, 0] > 0.02
    # 1500 N/m over 0.6 m is more than 150 N: the first force is the largest allowed.
    assert np.linalg.norm(session.shots[1].pulls[0][1]) == pytest.approx(150.0)
    np.testing.assert_allclose(
        session.shots[1].report.external_forces[0, 0].sum(0), session.shots[1].pulls[0][1], rtol=1e-7
    )
    session.let_go("mouse")
    session.let_go("mouse")
    assert not session.tick().pulls


def test_a_hand_on_the_middle_of_a_bone_draws_both_ends(session: Session):
    forces = Grab(WRIST, 0.25, (0.0, 5.0, 1.0)).forces(session.shown.state.people.x, session.shown.state.people.v)
    assert np.linalg.norm(forces[0, 0, WRIST]) / np.linalg.norm(
        forces[0, 0, joint_index("right_elbow")]
    ) == pytest.approx(0.25 / 0.75)
    assert np.linalg.norm(forces.sum((0, 1, 2))) == pytest.approx(400.0)


@pytest.mark.parametrize(
    ("direction", "axis", "sign"), [("left", 0, -1), ("right", 0, 1), ("front", 1, 1), ("back", 1, -1)]
)
def test_pushes_go_where_they_say(session: Session, direction: str, axis: int, sign: int):
    # Somebody of the bank faces +y, give or take, so that left is -x.
    still = run(session, 12)
    session.restart()
    session.push(direction, 300.0)
    pushed = run(session, 12)
    assert sign * float((pushed.people.x - still.people.x)[0, 0, axis]) > 0.02
    report = session.shots[2].report
    assert report is not None
    assert np.linalg.norm(report.external_forces.sum((0, 1, 2))) == pytest.approx(300.0)


def test_a_push_ends(session: Session):
    session.push("left", 100.0, duration=0.1)
    run(session, 8)
    pushed = [bool(shot.report.external_forces.any()) for shot in session.shots[1:]]
    assert pushed == [True] * 3 + [False] * 5
    assert not session._items


def test_a_ball_hits_what_it_is_aimed_at(session: Session):
    session.throw(speed=10.0)
    assert len(session.tick().spheres) == 1
    forces = [run(session, 1).report.external_forces[0, 0] for _ in range(20)]
    hit = np.linalg.norm(forces, axis=-1).max(0)
    assert float(hit.max()) > 100.0
    assert int(hit.argmax()) in [
        joint_index(name) for name in ("spine2", "spine3", "neck", "left_collar", "right_collar")
    ]


def test_balls_come_from_where_one_looks(session: Session):
    session.throw((4.0, 0.0, 1.5), joint="head")
    x, y, z = session.tick().spheres[0].centre
    assert x > 3
    assert abs(y) < 1
    assert z > 1
    # From inside the person and from below the floor they start beside and above.
    session.throw(tuple(session.shown.people.x[0, 9].tolist()))
    session.throw((0.0, 3.0, -50.0))
    run(session, 2)
    for _ in range(10):
        session.throw()
        session.tick()
    assert len(session.tick().spheres) == MAX_BALLS


def test_the_ground_tilts_smoothly_under_the_person_and_back(session: Session):
    session.tilt_to(10.0, 0.0)
    # 10 degrees at 15 degrees a second.
    assert math.degrees(math.acos(run(session, 10).ground.normal[2])) == pytest.approx(5.0, abs=0.3)
    tilted = run(session, 15)
    assert math.degrees(math.acos(tilted.ground.normal[2])) == pytest.approx(10.0, abs=1e-6)
    assert tilted.ground.normal[0] > 0
    normals = np.stack([shot.ground.normal for shot in session.shots])
    assert np.linalg.norm(np.diff(normals, axis=0), axis=-1).max() < math.radians(15.0 / 30) * 1.01
    session.tilt_to(0.0, 0.0)
    level = run(session, 25)
    assert level.ground.normal.tolist() == [0.0, 0.0, 1.0]
    # It turned about where the person was, so the floor is about where it was.
    assert abs(float(level.ground.offset)) < 0.2


def test_trip_lays_an_obstacle_and_a_stiff_knee_stays_straight(simulator: Simulator):
    session = Session(simulator)
    session.stiffen(True)
    shot = run(session, 30)
    hip, ankle = (shot.people.x[0, joint_index(name)] for name in ("right_hip", "right_ankle"))
    rest = simulator.prior.skeleton.rest
    straight = np.linalg.norm(rest[joint_index("right_hip")] - rest[joint_index("right_ankle")])
    assert np.linalg.norm(hip - ankle) > 0.95 * straight
    session.restart()
    session.stiffen(False)
    session.trip("right")
    shot = run(session, 40)
    assert [sphere.flying for sphere in shot.spheres] == [False]


@pytest.mark.parametrize("ghost", [False, True])
def test_whoever_is_held_is_held_as_in_a_scene(simulator: Simulator, ghost: bool):
    # The change of momentum of who is held is not corrected, in the browser as elsewhere: the same frames, but for the
    # rounding of batches.
    scene = Scene((Person("stand"),), (Pin("right_wrist", start=0.0, target=(-0.4, 0.5, 1.3)),))
    session = Session(simulator, scene)
    session.show_ghost(ghost)
    shown = run(session, 12)
    expected = run_world(World(scene, simulator), 13, [0]).motions[0].joints[0, -1]
    np.testing.assert_allclose(shown.people.x[0], expected, rtol=0, atol=1e-6)
    assert np.linalg.norm(shown.people.x[0, WRIST] - [-0.4, 0.5, 1.3]) < 0.2
    if shown.ghosts is not None:
        assert np.linalg.norm(shown.ghosts.x[0, WRIST] - [-0.4, 0.5, 1.3]) > 0.3


@pytest.mark.parametrize("ghost", [False, True])
def test_a_stiff_knee_is_stiff_as_in_a_scene(simulator: Simulator, ghost: bool):
    scene = Scene((Person("walk"),), (StiffJoint(),))
    session = Session(simulator, scene)
    session.show_ghost(ghost)
    expected = run_world(World(scene, simulator), 13, [0]).motions[0].joints[0, -1]
    np.testing.assert_allclose(run(session, 12).people.x[0], expected, rtol=0, atol=1e-6)


def test_people_of_a_prior_without_intents_are_led():
    session = Session(Simulator(CVAEPrior.shipped(), options=SimulatorOptions(num_samples=4)))
    session.steer(Walk(1.2, 90.0))
    assert session.goals[0].velocity(np.zeros(2)) == pytest.approx((-1.2, 0.0))
    run(session, 6)
    assert "com_velocity" in session.shown.values
    session.steer(None)
    assert "com_velocity" not in session.tick().values


def test_people_go_to_a_place_and_crouch(simulator: Simulator):
    goal = GoTo(3.0, 0.0, speed=1.5)
    np.testing.assert_allclose(goal.velocity(np.zeros(2)), (1.5, 0.0))
    assert not goal.velocity(np.array([2.9, 0.1])).any()
    people = Session(simulator, Scene(people_in_a_row(2, "stand"))).shown.state.people
    asked = steering_inputs({1: goal}, {0: CROUCHING}, people, simulator.prior)
    assert asked.intent is not None
    np.testing.assert_allclose(asked.intent.height, [[CROUCHING, np.nan]])
    assert np.isnan(asked.intent.velocity[0, 0]).all()
    # Straight to the place, and facing it.
    way = goal.velocity(people.x[0, 1, 0, :2])
    np.testing.assert_allclose(asked.intent.velocity[0, 1], way)
    np.testing.assert_allclose(asked.intent.facing[0, 1], way / np.linalg.norm(way))


@pytest.mark.parametrize(("start", "speed"), [("stand", 0.0), ("walk", WALKING)])
def test_people_jump_and_land(simulator: Simulator, start: str, speed: float):
    session = Session(simulator, Scene((Person(start),)))
    session.steer(Walk(speed))
    run(session, 15)
    session.jump()
    run(session, 75)
    assert not session.jumping
    people = np.stack([shot.people.x[0] for shot in session.shots])
    feet = people[:, [joint_index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")], 2].min(
        -1
    )
    # The lowest joint of a standing foot, the ball of it, is 3 cm above the floor.
    assert feet.max() > 0.07
    assert people[-1, 0, 2] > 0.8 * simulator.skeleton.standing_height


def test_people_whose_prior_knows_no_jumps_say_so():
    session = Session(Simulator(CVAEPrior.shipped(), options=SimulatorOptions(num_samples=4)))
    with pytest.raises(ValueError, match="cannot jump"):
        session.jump()


def test_a_goal_ends_with_a_restart_and_a_walk_goes_on(session: Session):
    session.steer(GoTo(2.0, 2.0))
    assert run(session, 2).goals == ((2.0, 2.0),)
    session.restart()
    assert not session.goals
    session.steer(Walk(1.0))
    session.restart()
    assert session.goals == {0: Walk(1.0)}


def test_another_scene_can_be_loaded(session: Session, tmp_path: Path):
    session.stiffen(True)
    session.load(scenario("two-people"))
    assert session.name == "two-people"
    assert run(session, 3).people.x.shape == (2, 22, 3)
    assert not session.stiff
    session.load(scenario("backflip-push"))
    with pytest.raises(ValueError, match="follows a recording"):
        session.begin(people=2)
    run(session, 2)
    session.load(scenario("push"))
    session.push("right", 120.0)
    run(session, 3)
    # A scene that is saved holds what was done, and plays it again.
    [(name, content)] = files_of(session.recording(), "toml")
    (tmp_path / name).write_bytes(content)
    again = read_scene(tmp_path / name)
    assert [type(element) for element in again.scene.elements] == [Push, Push]
    expected = session.shown.people.x
    session.load(again)
    assert np.array_equal(run(session, 3).people.x, expected)


def test_a_scene_is_typed_but_names_no_files():
    for name, setup in SCENARIOS.items():
        again = typed_scene(scene_text(setup, Path()))
        assert again.scene.elements == setup.scene.elements, name
    for text, says in (
        ("[[person]]\n" * 10, "at most 9 people"),
        ('clip = "/etc/passwd"', "names a file"),
        ('prior = "secret.bank"', "names a file"),
        ('[[mesh]]\nfile = "room.obj"', "names a file"),
        ("person = [3]", "the scene"),
        ("[[push]]\nnewton = 3", "line 2"),
        ("#" * 30_000, "characters"),
    ):
        with pytest.raises(ValueError, match=says):
            typed_scene(text)


def test_energies_can_be_switched_off(session: Session):
    session.switch(Switches(kinematic=False, contact=False, range_of_motion=False, correct=False))
    assert {"kinematic", "contact", "range_of_motion"}.isdisjoint(session.tick().values)
    session.switch(Switches())
    assert {"kinematic", "contact", "range_of_motion"} <= set(session.tick().values)


@pytest.mark.parametrize("seed", [0, 3])
def test_without_the_prior_nothing_holds_the_body_up(session: Session, seed: int):
    # The reaction of the ground is fitted to the prior's candidates, so it goes with the prior: with it, these two
    # stand for seconds.
    session.begin(seed=seed)
    session.switch(Switches(kinematic=False))
    assert float(run(session, 30).people.x[0, 15, 2]) < 1.2
    session.switch(Switches())
    session.restart()
    assert float(run(session, 30).people.x[0, 15, 2]) > 1.3


# --- who is there


def test_number_of_people_and_their_start(session: Session):
    session.begin(people=3, start="walk")
    assert session.tick().people.x.shape == (3, 22, 3)
    assert [person.position[0] for person in people_in_a_row(3, "walk")] == pytest.approx([0.0, 1.3, -1.3])
    with pytest.raises(ValueError, match="there is no start 'fly'"):
        session.begin(start="fly", people=1)
    # What could not be leaves everything as it was.
    assert session.tick().people.x.shape == (3, 22, 3)
    assert session.shown.frame == 2


def test_the_ghost_goes_with_the_person_until_something_is_done(simulator: Simulator):
    session = Session(simulator)
    alone = run(session, 10)
    session.show_ghost(True)
    shot = run(session, 10)
    assert shot.ghosts is not None
    assert np.array_equal(shot.people.x, shot.ghosts.x)
    assert apart(shot, alone) < 1e-3
    session.push("left", 400.0)
    session.throw()
    session.stiffen(True)
    session.tilt_to(8.0, 0.0)
    x, y, z = shot.people.x[0, WRIST].tolist()
    session.grab("mouse", Grab(WRIST, 1.0, (x + 1, y, z)))
    shot = run(session, 15)
    assert shot.ghosts is not None
    assert np.linalg.norm(shot.people.x - shot.ghosts.x, axis=-1).max() > 0.05
    # The ghost is where the person would be.
    assert np.linalg.norm(run(Session(simulator), 25).people.x - shot.ghosts.x, axis=-1).max() < 0.01


def test_scripted_scenes_play_in_every_run(simulator: Simulator):
    scene = Scene(elements=(Push.toward("left", 200.0, start=0.1, duration=0.1), Throw(start=0.2), Follow()))
    session = Session(simulator, Scene(scene.people, scene.elements, Ground(((0.1, 0.0, 0.0), (0.5, 5.0, 0.0)))))
    for ghost in (False, True):
        session.show_ghost(ghost)
        shot = run(session, 15)
        assert shot.spheres
        assert float(shot.ground.normal[2]) < 1
        assert {"push torso", "ball"} <= {event.name for event in session.recording().motions[0].events}


# --- boxes and ice

DOWN = (0.0, 0.0, -1.0)


def crates(shot: Shot) -> dict[int, np.ndarray]:
    """Centres of the loose boxes, by key."""
    return {key: solid.centre for key, solid in shot.solids.items() if solid.name == "crate"}


def test_a_box_is_put_down_and_stays_through_a_restart(session: Session):
    session.pause(True)
    session.put_box((1.0, 0.5, 0.0), size=0.4, mass=5.0)
    # It shows at once, also while time stands still.
    [centre] = crates(session.shown).values()
    np.testing.assert_allclose(centre, (1.0, 0.5, 0.2))
    session.restart()
    run(session, 10)
    [centre] = crates(session.shown).values()
    np.testing.assert_allclose(centre, (1.0, 0.5, 0.2), atol=2e-3)
    assert [(type(e), e.mass) for e in session.setup.scene.elements] == [(Box, 5.0)]
    # Pointed at, its top is where the next one goes.
    assert session.pointed_at((1.1, 0.4, 3.0), DOWN) == pytest.approx((1.0, 0.5, 0.4), abs=2e-3)
    session.put_box(session.pointed_at((1.1, 0.4, 3.0), DOWN))
    run(session, 10)
    assert sorted(float(c[2]) for c in crates(session.shown).values()) == pytest.approx([0.2, 0.6], abs=5e-3)


def test_a_hand_carries_a_box_to_the_pointer_and_lets_it_fall(session: Session):
    session.put_box((1.0, 0.5, 0.0), mass=8.0)
    [key] = crates(session.shown)
    session.grab("mouse", BoxGrab(key, (0.0, 0.0, 0.2), (1.6, 1.0, 1.2)))
    shot = run(session, 30)
    np.testing.assert_allclose(crates(shot)[key], (1.6, 1.0, 1.0), atol=0.02)
    # What it takes to hold it there is its weight.
    np.testing.assert_allclose(shot.pulls[0][1], (0.0, 0.0, 8.0 * 9.81), atol=5.0)
    session.let_go("mouse")
    assert not session.tick().pulls
    # 0.8 m of fall take 0.4 s, 12 frames.
    assert float(crates(run(session, 20))[key][2]) < 0.4
    session.take_all_away()
    run(session, 2)
    assert not session.shown.solids
    with pytest.raises(ValueError, match="no loose box"):
        session.grab("mouse", BoxGrab(key, (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)))


def test_a_box_that_is_dragged_into_a_person_pushes_them(session: Session):
    session.put_box((1.2, 0.0, 0.0), mass=20.0, size=0.6)
    [key] = crates(session.shown)
    session.grab("mouse", BoxGrab(key, (0.0, 0.0, 0.0), (-1.0, 0.0, 0.8)))
    still = session.shown.people.x[0, 0, 0]
    shot = run(session, 20)
    assert max(float(np.abs(s.report.external_forces).max()) for s in session.shots[1:]) > 20.0
    assert float(shot.people.x[0, 0, 0]) < still - 0.05


def test_ice_is_painted_and_taken_away_again(simulator: Simulator):
    session = Session(simulator, Scene((Person("walk"),)))
    session.paint_ice((0.0, 3.0, 0.0), size=2.0)
    session.put_box((2.0, 3.0, 0.0))
    assert session.setup.scene.elements[0] == Patch((0.0, 3.0), (2.0, 2.0), friction=0.05)
    run(session, 3)
    # A ray takes the one that it meets.
    session.take_away((0.5, 0.0, 3.0), (0.0, 1.0, -1.0))
    assert [type(e) for e in session.scene.elements] == [Box]
    run(session, 3)
    session.take_away((2.0, 0.0, 3.0), (0.0, 1.0, -1.0))
    assert not session.scene.elements
    assert not session.shown.solids
    session.tick()


def test_boxes_and_ice_are_in_the_text_of_the_scene(session: Session, tmp_path: Path):
    session.put_box((1.0, 0.5, 0.0))
    session.paint_ice((0.0, 2.0, 0.0))
    run(session, 2)
    path = tmp_path / "saved.toml"
    path.write_bytes(files_of(session.recording(), "toml")[0][1])
    assert [type(e) for e in read_scene(path).scene.elements] == [Box, Patch]
    edited = typed_scene(scene_text(session.setup, Path()))
    session.load(edited)
    assert len(run(session, 2).solids) == 2
    assert session.scene.elements == edited.scene.elements


def test_a_hand_holds_a_box_at_a_point_of_it(session: Session):
    session.put_box((1.00049, 0.5, 1e-16))
    assert session.scene.elements[0].position == (1.0, 0.5, 0.0)  # to a millimetre, as people write it
    [key] = crates(session.shown)
    browser = SimpleNamespace(origin=(0.0, 0.0, 0.0), panel=SimpleNamespace(largest_drag=300.0))
    # The mouse went down at the box's side, but the view has moved by 10 cm since.
    _holding_box("mouse", key, (1.3, 0.5, 0.3), (1.5, 0.5, 1.0), browser)(session)
    assert session.grabs["mouse"].point == pytest.approx((0.2, 0.0, 0.1))
    # Later the pointer moves, and the hand holds on to its point.
    _holding_box("mouse", key, (9.0, 9.0, 9.0), (1.6, 0.5, 1.0), browser)(session)
    assert session.grabs["mouse"].point == pytest.approx((0.2, 0.0, 0.1))
    assert (session.grabs["mouse"].pointer, session.grabs["mouse"].largest) == ((1.6, 0.5, 1.0), 300.0)


def test_the_floors_squares_stay_when_it_begins_to_tilt(session: Session):
    pytest.importorskip("viser")
    with served(session) as (loop, viewer):
        loop.stop()
        figures = viewer._figures
        figures.origin = (0.3, 0.4, 0.0)
        # Squares repeat every metre: at the start of a tilt the pivot is anywhere, and the floor is still where it was.
        tilted = session._world.ground(session._now, 0.0).map(lambda v: v[0], lambda s: s[0])
        figures._lay_ground(replace(tilted, pivot=np.array([0.37, -0.21, 0.0])))
        x, y, z = figures._ground.position
        assert (x - round(x), y - round(y), z) == pytest.approx((0.0, 0.0, -0.002), abs=1e-6)


def test_there_is_room_for_so_many_boxes_and_on_level_ground_only(session: Session):
    for i in range(MAX_OBJECTS):
        session.paint_ice((0.0, float(i), 0.0))
    with pytest.raises(ValueError, match="take some away"):
        session.put_box((1.0, 0.5, 0.0))
    session.take_all_away()
    session.tilt_to(10.0, 0.0)
    run(session, 30)
    with pytest.raises(ValueError, match="level"):
        session.put_box((1.0, 0.5, 0.0))


def test_a_click_does_what_the_panel_says(session: Session):
    pytest.importorskip("viser")
    session.pause(True)
    with served(session) as (_, viewer):
        eye, way = (1.0, -2.0, 3.0), (0.0, 1.0, -1.0)
        for what, kinds in ((GO, []), (BOX, [Box]), (ICE, [Box, Patch]), (TAKE, [Patch]), (TAKE, [])):
            viewer.panel._click.value = what
            viewer.panel.clicking(eye, way, 0, 1.3)(session)
            assert [type(e) for e in session.scene.elements] == kinds, what
        assert session.goals == {0: GoTo(1.0, 1.0, 1.3)}
        # At the horizon there is nothing to do.
        viewer.panel._click.value = BOX
        viewer.panel.clicking(eye, (0.0, 1.0, 0.0), 0, 1.3)(session)
        assert not session.scene.elements


# --- what is refused


@pytest.mark.parametrize(
    "command",
    [
        lambda s: s.grab("m", Grab(WRIST, 0.5, (math.nan, 0.0, 0.0))),
        lambda s: s.grab("m", Grab(0, 0.5, (0.0, 0.0, 0.0))),
        lambda s: s.grab("m", Grab(WRIST, 2.0, (0.0, 0.0, 0.0))),
        lambda s: s.grab("m", Grab(WRIST, 0.5, (0.0, 0.0, 0.0), person=4)),
        lambda s: s.push("up"),
        lambda s: s.push("left", math.inf),
        lambda s: s.push("left", person=1),
        lambda s: s.throw((0.0, math.nan, 1.0)),
        lambda s: s.throw(joint="tail"),
        lambda s: s.throw(speed=math.nan),
        lambda s: s.trip("third"),
        lambda s: s.put_box((0.0, 0.0, 0.0)),
        lambda s: s.put_box((0.0, math.nan, 0.0)),
        lambda s: s.paint_ice((math.inf, 0.0, 0.0)),
        lambda s: s.take_away((0.0, 0.0, 5.0), (0.0, 0.0, -1.0)),
        lambda s: s.pointed_at((0.0, math.nan, 5.0), (0.0, 0.0, -1.0)),
        lambda s: s.grab("m", BoxGrab(0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))),
        lambda s: s.tilt_to(math.nan, 0.0),
        lambda s: s.steer(Walk(math.inf, 0.0)),
        lambda s: s.steer(GoTo(math.nan, 0.0)),
        lambda s: s.steer(Walk(), person=1),
        lambda s: s.crouch(True, person=1),
        lambda s: s.slow(math.nan),
        lambda s: s.scrub(math.nan),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(session: Session, command: Callable[[Session], None]):
    still = run(session, 3)
    session.restart()
    with pytest.raises(ValueError, match=r"\w"):
        command(session)
    assert np.array_equal(run(session, 3).people.x, still.people.x)


def test_too_much_is_cut_to_what_is_allowed(session: Session):
    session.tilt_to(500.0, -500.0)
    assert session.tilt == (MAX_TILT, -MAX_TILT)
    session.begin(people=1000)
    assert len(session.scene.people) == 6
    session.slow(0.0)
    assert session.pace > 0


@pytest.fixture
def other_prior(simulator: Simulator, tmp_path: Path) -> Path:
    """A prior of the user's own: the shipped one, which drifts to the side."""
    prior = CVAEPrior.shipped()
    prior.network.tensors["decoder.linears.3.bias"][0] += 0.5
    prior.save(tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


def test_another_prior_begins_again_and_keeps_the_settings(other_prior: Path):
    session = View(prior=(str(other_prior),), samples=8, start="stand").session()
    assert next(iter(session.priors)) == "mine.safetensors"
    session.switch(Switches(contact=False))
    mine = run(session, 10)
    session.use("cvae")
    assert session.time == 0.0
    shipped = run(session, 10)
    assert "contact" not in shipped.values
    assert apart(mine, shipped) > 0.001
    session.use("mine.safetensors")
    assert np.array_equal(run(session, 10).people.x, mine.people.x)
    with pytest.raises(ValueError, match=r"there is no prior 'yours'"):
        session.use("yours")
    assert session.shown.frame == 10


def test_a_prior_for_another_body_is_refused(other_prior: Path, capsys: pytest.CaptureFixture[str]):
    prior = CVAEPrior.load(other_prior)
    prior.fps = 20.0
    prior.save(other_prior)
    session = View(prior=("cvae", str(other_prior)), samples=8).session()
    with pytest.raises(ValueError, match="another body or rate"):
        session.use("mine.safetensors")
    session.tick()
    assert main(["view", "--prior", str(other_prior.with_name("none.safetensors"))]) == EXIT_ERROR
    assert "none.safetensors is not there" in capsys.readouterr().err


# --- files


def test_the_buffer_goes_out_as_motions(simulator: Simulator):
    session = Session(simulator, seconds=1.0)
    run(session, 20)
    session.push("left", 100.0, duration=0.2)
    run(session, 25)
    motion = session.recording().motions[0]
    assert len(motion) == 30
    assert np.array_equal(motion.joints[-1], session.shown.people.x[0])
    # The buffer begins at frame 16, and the push came after frame 20.
    assert [(event.name, event.start) for event in motion.events] == [("push torso", pytest.approx(4 / 30))]
    assert motion.wrench_before is not None
    assert "kinematic" in motion.energies


def test_files_read_back(session: Session, tmp_path: Path):
    with pytest.raises(ValueError, match="nothing to save yet"):
        files_of(session.recording(), "bvh")
    session.begin(people=2)
    session.throw()
    run(session, 5)
    recording = session.recording()
    names = []
    for kind in ("bvh", "npz", "glb"):
        for name, content in files_of(recording, kind):
            (tmp_path / name).write_bytes(content)
            names.append(name)
    assert names == [f"dropsim_person_{i}.{kind}" for kind in ("bvh", "npz") for i in (1, 2)] + ["dropsim.glb"]
    skeleton = session.simulator.prior.skeleton
    np.testing.assert_allclose(
        read_amass(tmp_path / names[2], skeleton).joints, recording.motions[0].joints, rtol=0, atol=1e-3
    )
    assert len(read_motion(tmp_path / names[1], skeleton)) == 6
    with pytest.raises(ValueError, match="there are no 'exe' files"):
        files_of(recording, "exe")


def test_objects_are_in_the_files(session: Session, tmp_path: Path):
    run(session, 3)
    session.put_box((1.0, 0.5, 0.0))
    session.paint_ice((0.0, 2.0, 0.0))
    session.throw()
    run(session, 4)
    session.take_away((1.0, 0.5, 3.0), DOWN)
    run(session, 3)
    [(_, glb)] = files_of(session.recording(), "glb")
    document = json.loads(glb[20 : 20 + struct.unpack("<I", glb[12:16])[0]])
    assert {"crate_1", "patch_1", "ball_1"} < {node["name"] for node in document["nodes"]}
    # Each was put there after the start, so a size of zero hides it before that.
    assert sum(channel["target"]["path"] == "scale" for channel in document["animations"][0]["channels"]) == 3
    names = []
    for name, content in files_of(session.recording(), "npz"):
        (tmp_path / name).write_bytes(content)
        names.append(name)
    assert names == ["dropsim.npz", "dropsim_objects.npz"]
    with np.load(tmp_path / names[1]) as found:
        assert found["names"].tolist() == ["crate_1", "patch_1", "ball_1"]
        there = {
            name: np.isfinite(found[f"{name}/centres"]).all(-1).nonzero()[0][[0, -1]].tolist()
            for name in found["names"]
        }
    # The frame at which they were put down shows them at once; the ball flies from the next on.
    assert there == {"crate_1": [3, 6], "patch_1": [3, 10], "ball_1": [4, 10]}


def test_steps_are_shown_and_filmed(simulator: Simulator):
    pytest.importorskip("viser")
    from dropsim.apps.viewer.downloads import _solids

    session = Session(simulator, scenario("stairs").scene)
    run(session, 2)
    assert len(session.shown.solids) >= 4
    paths = _solids(session.recording())
    assert len(paths) == len(session.shown.solids)
    assert paths[0].centre.shape == (3, 3)
    with served(session) as (loop, viewer):
        wait_until(lambda: len(viewer._figures._solids) == len(paths))
        loop.ask(lambda s: s.load(scenario("stand-still")))
        wait_until(lambda: not viewer._figures._solids)


def test_a_film_of_it(session: Session):
    session.throw()
    session.tilt_to(5.0, 0.0)
    run(session, 2)
    [(name, content)] = files_of(session.recording(), "mp4")
    assert name == "dropsim.mp4"
    assert content[4:8] == b"ftyp"


# --- the clock


@contextlib.contextmanager
def running(session: Session) -> Iterator[tuple[Loop, NullViewer]]:
    viewer = NullViewer()
    loop = Loop(session, viewer)
    loop.start()
    try:
        yield loop, viewer
    finally:
        loop.stop()


def wait_until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def again_until(action: Callable[[], object], condition: Callable[[], object]) -> None:
    """Do something until it works, as people do whose click went astray on a busy machine."""
    for _ in range(5):
        action()
        with contextlib.suppress(AssertionError):
            return wait_until(condition, 15.0)
    return wait_until(condition, 15.0)


def test_it_runs_pauses_and_goes_on(session: Session):
    with running(session) as (loop, viewer):
        wait_until(lambda: len(viewer.shots) > 5)
        loop.ask(lambda s: s.pause(True))
        wait_until(lambda: viewer.status.paused and viewer.shots[-1].frame == loop.ask(lambda s: s.shown.frame))
        frames = [shot.frame for shot in viewer.shots]
        time.sleep(0.3)
        assert [shot.frame for shot in viewer.shots][-1] == frames[-1]
        loop.ask(lambda s: s.scrub(0.1))
        wait_until(lambda: viewer.shots[-1].frame == frames[-1] - 3)
        loop.ask(lambda s: s.step())
        wait_until(lambda: viewer.shots[-1].frame == frames[-1] + 1)
        loop.ask(lambda s: s.pause(False))
        wait_until(lambda: viewer.shots[-1].frame > frames[-1] + 5)
        late = loop.status.late
        assert 0 <= late <= loop.status.frames


def test_what_goes_wrong_does_not_stop_it(session: Session, caplog: pytest.LogCaptureFixture):
    def broken(session: Session) -> None:
        raise RuntimeError("not so")

    with running(session) as (loop, viewer):
        loop.commands.put(broken)
        loop.commands.put(lambda s: s.push("up"))
        wait_until(lambda: len(viewer.said) >= 2)
        assert "did not work" in viewer.said[0]
        assert "there is no direction 'up'" in viewer.said[1]
        with pytest.raises(RuntimeError, match="not so"):
            loop.ask(broken)
        wait_until(lambda: len(viewer.shots) > 3)

        # A state that is no number breaks the simulation: it begins again.
        def poison(session: Session) -> None:
            session._now.people.x[:] = np.nan

        loop.ask(poison)
        wait_until(lambda: any("began again" in said for said in viewer.said))
        count = len(viewer.shots)
        wait_until(lambda: len(viewer.shots) > count + 3)
        assert np.isfinite(viewer.shots[-1].people.x).all()
    assert "a command failed" in caplog.text


def test_it_gives_up_when_it_breaks_again_and_again(session: Session, monkeypatch: pytest.MonkeyPatch):
    def broken() -> Shot:
        raise ValueError("it broke")

    monkeypatch.setattr(session, "tick", broken)
    with running(session) as (_, viewer):
        wait_until(lambda: any("again and again" in said for said in viewer.said))
        assert session.paused


def test_a_viewer_that_fails_does_not_stop_it(session: Session, caplog: pytest.LogCaptureFixture):
    class Broken(NullViewer):
        def show(self, shot: Shot, status: object) -> None:
            raise RuntimeError("no screen")

    loop = Loop(session, Broken())
    loop.start()
    wait_until(lambda: loop.ask(lambda s: s.shown.frame) > 5)
    loop.stop()
    assert "could not be shown" in caplog.text


def test_a_picture_that_stands_still_counts_every_stroke(session: Session):
    class Slow(NullViewer):
        def show(self, shot: Shot, status: object) -> None:
            time.sleep(1.0 if len(self.shots) == 5 else 0.0)
            self.shots.append(shot)

    viewer = Slow()
    loop = Loop(session, viewer)
    began = time.perf_counter()
    loop.start()
    wait_until(lambda: len(viewer.shots) > 10)
    lasted, status = time.perf_counter() - began, loop.status
    loop.stop()
    # A second is 30 strokes, of which one showed its frame; the clock has never struck more often than it should.
    assert status.late >= 28
    assert status.frames <= 30 * lasted + 1


def test_too_many_commands_are_dropped():
    commands = Commands()
    assert all(commands.put(lambda s: None) for _ in range(MAX_COMMANDS))
    assert not commands.put(lambda s: None)
    assert commands.take() is not None
    assert commands.put(lambda s: None)


# --- the command


def test_refusals_are_one_sentence(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("viser")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, says in (
            (["--port", str(port)], f"port {port} is in use"),
            (["--port", "70000"], "0 to 65535"),
            (["--host", "no.such.host.invalid"], "there is no host"),
            (["--start", "fly"], "there is no start 'fly'"),
            (["no-such-scene"], "there is no scenario"),
            (["missing.toml"], "missing.toml"),
        ):
            assert main(["view", *arguments]) == EXIT_ERROR
            error = capsys.readouterr().err
            assert says in error
            assert error.startswith("dropsim: ")
            assert error.count("\n") == 1


def test_it_serves_for_a_while_and_warns(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("viser")
    assert (
        main(
            ["view", "push", "--host", "0.0.0.0", "--port", "0", "--seconds", "0.5", "--samples", "8", "--people", "2"]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert "open http://localhost:" in out
    assert "late" in out
    assert "WARNING: anybody who can reach" in err


@pytest.mark.slow
def test_ctrl_c_ends_it():
    pytest.importorskip("viser")
    import signal

    command = [
        sys.executable,
        "-c",
        "import sys; from dropsim.apps.cli import main; sys.exit(main())",
        "view",
        "--port",
        "0",
        "--samples",
        "8",
    ]
    # Tests that run in the background of a shell inherit that Ctrl-C is ignored.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("open http://127.0.0.1:")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (0, 130)
    assert "Traceback" not in err


# --- a real browser


@dataclass
class Page:
    """A page in a headless browser that shows a live simulation."""

    page: object
    loop: Loop
    viewer: object
    requests: list[str]


FLAGS = [
    "--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking",
    "--no-first-run",
]  # fmt: skip


@contextlib.contextmanager
def served(session: Session) -> Iterator[tuple[Loop, object]]:
    from dropsim.apps.viewer.app import Browser

    commands = Commands()
    viewer = Browser(session, commands, port=0)
    loop = Loop(session, viewer, commands)
    loop.start()
    try:
        yield loop, viewer
    finally:
        loop.stop()
        viewer.close()


@contextlib.contextmanager
def page_of(simulator: Simulator) -> Iterator[Page]:
    """Open the app in a browser."""
    pytest.importorskip("viser")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine: `make system` installs it as root on Debian")
    session = Session(
        simulator, Scene((Person("stand"),)), priors={"cvae": simulator.prior, "other": CVAEPrior.shipped()}
    )
    # Compile what the test needs before anybody waits for it.
    for warm in (Session(simulator, scenario("two-people").scene), session):
        warm.steer(Walk())
        run(warm, 6)
        warm.steer(None)
    session.restart()
    session.warm_up()
    with served(session) as (loop, viewer), playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            opened = browser.new_page(viewport={"width": 1000, "height": 800}, accept_downloads=True)
            opened.set_default_timeout(60_000)
            requests: list[str] = []
            opened.on("request", lambda request: requests.append(request.url))
            opened.goto(f"http://127.0.0.1:{viewer.port}/")
            opened.get_by_role("button", name="Pause").wait_for()
            wait_until(lambda: viewer._server.get_clients(), 60)
            yield Page(opened, loop, viewer, requests)
        finally:
            browser.close()


def on_screen(page: Page, point: np.ndarray) -> tuple[float, float]:
    """Project a point of the world onto the page [pixels]."""
    from viser.transforms import SO3

    [client] = page.viewer._server.get_clients().values()
    camera = client.camera
    R = SO3(np.asarray(camera.wxyz)).as_matrix()
    x, y, z = R.T @ (point - np.array(page.viewer.origin) - np.asarray(camera.position))
    size = page.page.viewport_size
    focal = size["height"] / 2 / math.tan(camera.fov / 2)
    return size["width"] / 2 + focal * x / z, size["height"] / 2 + focal * y / z


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_real_browser(tmp_path: Path, simulator: Simulator):
    # A browser without a graphics card on busy cores loses a click now and then. What is wrong with the app goes wrong
    # twice.
    for chance in range(2):
        folder = tmp_path / str(chance)
        folder.mkdir()
        try:
            with page_of(simulator) as page:
                return use_everything(page, folder, simulator)
        except Exception:
            if chance:
                raise
    return None


def use_everything(page: Page, tmp_path: Path, simulator: Simulator) -> None:
    """Do in the app what people do."""
    ui, loop = page.page, page.loop
    assert ui.title() == "dropsim"

    # The help card greets who comes for the first time.
    ui.get_by_role("dialog", name="Help").wait_for()
    ui.get_by_role("button", name="Start", exact=True).click()
    ui.get_by_role("dialog", name="Help").wait_for(state="hidden")

    # Keys walk as the camera sees it: it looks at -40 degrees from behind, so that up is at -130 degrees.
    ui.keyboard.down("w")
    wait_until(lambda: loop.ask(lambda s: s.goals.get(0)) is not None)
    walk = loop.ask(lambda s: s.goals[0])
    assert (walk.speed, walk.direction) == (pytest.approx(WALKING), pytest.approx(-130.0, abs=1.0))
    ui.keyboard.down("Shift")
    wait_until(lambda: loop.ask(lambda s: s.goals[0].speed) == pytest.approx(RUNNING))
    ui.keyboard.up("Shift")
    ui.keyboard.down("ArrowLeft")
    wait_until(lambda: loop.ask(lambda s: s.goals[0].direction) == pytest.approx(-85.0, abs=1.0))
    ui.keyboard.up("w")
    ui.keyboard.up("ArrowLeft")
    wait_until(lambda: loop.ask(lambda s: s.goals[0].speed) == 0.0)
    ui.keyboard.press("c")
    wait_until(lambda: loop.ask(lambda s: s.crouched) == {0})
    ui.keyboard.press("c")
    wait_until(lambda: not loop.ask(lambda s: s.crouched))
    # How high people jump is tested above; here the key only has to reach them, which a busy machine may tell too late
    # to see.
    jumped = lambda s: bool(s.jumping) or any(shot.people.x[0, 0, 2] > 0.98 for shot in s.shots)  # noqa: E731
    again_until(lambda: ui.keyboard.press(" "), lambda: loop.ask(jumped))
    # A click on the floor sends the person there; while it is paused the view stands still.
    ui.keyboard.press("p")
    wait_until(lambda: loop.ask(lambda s: s.paused))
    time.sleep(0.5)
    # The camera may still be on its way after the person, so that a click meets the floor elsewhere.
    at = (pytest.approx(250, abs=40), pytest.approx(700, abs=40))

    def sent() -> bool:
        goal = loop.ask(lambda s: s.goals[0])
        return isinstance(goal, GoTo) and on_screen(page, np.array([goal.x, goal.y, 0.0])) == at

    again_until(lambda: ui.mouse.click(250, 700), sent)
    ui.keyboard.press("p")
    ui.keyboard.press("Escape")
    wait_until(lambda: not loop.ask(lambda s: s.goals))
    # Keys that are typed into a field steer nobody.
    seed = ui.get_by_text("Seed", exact=True).locator("xpath=../../..").locator("input").first
    seed.click()
    ui.keyboard.press("c")
    time.sleep(0.3)
    assert not loop.ask(lambda s: s.crouched)

    # Another scenario, out of the gallery, and again; the panel, the title and the address follow.
    ui.get_by_role("button", name="Open the gallery").click()
    cards = ui.get_by_role("dialog", name="Scenarios").get_by_role("button")
    assert cards.count() == len(SCENARIOS)
    cards.filter(has_text="two-people").click()
    wait_until(lambda: loop.ask(lambda s: len(s.shown.people.x)) == 2)
    wait_until(lambda: ui.title() == "two-people · dropsim")
    assert ui.url.endswith("?scenario=two-people")
    people = ui.get_by_text("People", exact=True).locator("xpath=../../..").locator("input").last
    wait_until(lambda: people.input_value() == "2")
    ui.get_by_role("button", name="Replay").click()
    wait_until(lambda: loop.ask(lambda s: s.time) < 1.0)
    # It can be changed as text.
    ui.get_by_role("button", name="Edit").click()
    text = ui.get_by_role("dialog").get_by_role("textbox")
    assert text.input_value().count("[[person]]") == 2
    text.fill('[[person]]\nstart = "stand"\n[[push]]\nnewtons = 9\ndirection = "left"\nstart = 60\n')
    ui.get_by_role("button", name="Start it").click()
    wait_until(lambda: loop.ask(lambda s: (len(s.scene.people), [type(e) for e in s.scene.elements])) == (1, [Push]))
    loop.ask(lambda s: s.load(Setup(scene=Scene((Person("stand"),)))))

    # Pause pauses: the button turns into Play, and frames stop.
    pause, play = ui.get_by_role("button", name="Pause"), ui.get_by_role("button", name="Play", exact=True)
    again_until(lambda: None if play.is_visible() else pause.click(), play.is_visible)
    frame = loop.ask(lambda s: s.shown.frame)
    time.sleep(0.3)
    assert loop.ask(lambda s: s.shown.frame) == frame

    # A drag on the right arm: seen from the right, no other limb is before it.
    loop.ask(lambda s: s.restart())
    [client] = page.viewer._server.get_clients().values()
    before = client.camera.update_timestamp
    client.camera.position, client.camera.look_at = (3.5, 0.5, 1.2), (0.0, 0.0, 1.0)
    wait_until(lambda: client.camera.update_timestamp > before)  # the page has turned
    time.sleep(1.0)
    x = loop.ask(lambda s: s.shown.people.x[0])
    forearm, trunk = x[[joint_index("right_elbow"), WRIST]].mean(0), x[joint_index("spine2")]
    for attempt in range(6):  # arms are thin, and a busy machine may draw them only after the mouse went down
        u, v = on_screen(page, forearm if attempt < 2 else trunk)
        ui.mouse.move(u, v)
        time.sleep(0.5 + attempt)
        ui.mouse.down()
        for far in (10, 30, 60, 120):
            ui.mouse.move(u + far, v - far / 2)
            time.sleep(0.1)
        time.sleep(1.0 + attempt)
        if loop.ask(lambda s: s.grabs):
            break
        ui.mouse.up()
    wait_until(lambda: loop.ask(lambda s: s.grabs))
    [grab] = loop.ask(lambda s: list(s.grabs.values()))
    assert grab.person == 0
    for _ in range(15):
        loop.ask(lambda s: s.step())
    dragged = loop.ask(lambda s: s.shown)
    assert dragged.frame == 15
    assert dragged.pulls
    ui.mouse.up()
    wait_until(lambda: not loop.ask(lambda s: s.grabs))
    still = run(Session(simulator, Scene((Person("stand"),))), 15)
    assert np.linalg.norm((dragged.people.x - still.people.x)[0, WRIST]) > 0.05

    # A click puts a box down, which the mouse then lifts; another paints ice, and a button takes both away.
    def a_click(does: str) -> None:
        ui.get_by_text("A click", exact=True).locator("xpath=../../..").locator("input").first.click()
        ui.get_by_role("option", name=does).click()
        wait_until(lambda: page.viewer.panel._click.value == does)

    ui.get_by_role("tab", name="World").click()
    a_click(BOX)
    floor = lambda x, y: on_screen(page, np.array([x, y, 0.0]))  # noqa: E731
    again_until(lambda: ui.mouse.click(*floor(0.3, -0.7)), lambda: loop.ask(lambda s: crates(s.shown)))
    put = loop.ask(lambda s: s.scene.elements[-1])
    assert put.position == pytest.approx((0.3, -0.7, 0.0), abs=0.1)
    a_click(GO)  # so that a drag that goes astray puts no more boxes
    [(key, centre)] = loop.ask(lambda s: crates(s.shown)).items()
    u, v = on_screen(page, centre)

    def lift() -> None:
        ui.mouse.up()
        ui.mouse.move(u, v)
        time.sleep(0.5)
        ui.mouse.down()
        for far in (10, 30, 60, 120):
            ui.mouse.move(u, v - far)
            time.sleep(0.1)

    again_until(lift, lambda: loop.ask(lambda s: s.grabs))
    [grab] = loop.ask(lambda s: list(s.grabs.values()))
    assert isinstance(grab, BoxGrab)
    assert grab.key == key
    for _ in range(15):
        loop.ask(lambda s: s.step())
    assert loop.ask(lambda s: crates(s.shown)[key][2]) > centre[2] + 0.05
    ui.mouse.up()
    wait_until(lambda: not loop.ask(lambda s: s.grabs))
    a_click(ICE)
    painted = lambda s: any(isinstance(e, Patch) for e in s.scene.elements)  # noqa: E731
    again_until(lambda: ui.mouse.click(120, 720), lambda: loop.ask(painted))
    ui.get_by_role("button", name="Take all away").click()
    wait_until(lambda: not loop.ask(lambda s: s.shown.solids))
    a_click(GO)

    ui.get_by_role("tab", name="Disturb").click()
    # The throw button makes a ball, and so does a click on the body.
    ui.get_by_role("button", name="Throw").click()
    wait_until(lambda: len(loop.ask(lambda s: s.step().spheres)) == 1)
    time.sleep(1.0)
    body = lambda: on_screen(page, loop.ask(lambda s: s.shown.people.x[0, joint_index("spine2")]))  # noqa: E731
    again_until(lambda: ui.mouse.click(*body()), lambda: len(loop.ask(lambda s: s.step().spheres)) >= 2)

    # The tilt slider tilts.
    roll = ui.get_by_text("Roll [deg]").locator("xpath=../../..").locator("input").last
    roll.fill("12")
    roll.press("Enter")
    wait_until(lambda: loop.ask(lambda s: s.tilt) == (12.0, 0.0))
    for _ in range(26):
        loop.ask(lambda s: s.step())
    assert math.degrees(math.acos(loop.ask(lambda s: float(s.shown.ground.normal[2])))) == pytest.approx(12.0, abs=1e-6)

    # Another prior can be chosen, and it begins again with it.
    ui.get_by_role("tab", name="Scene").click()
    ui.get_by_text("Prior", exact=True).locator("xpath=../../..").locator("input").first.click()
    ui.get_by_role("option", name="other").click()
    wait_until(lambda: loop.ask(lambda s: s.simulator.prior is s.priors["other"] and s.shown.frame == 0))
    for _ in range(5):
        loop.ask(lambda s: s.step())

    # What is cut out is saved in every format, and reads back.
    loop.ask(lambda s: s.cut(0.1, 0.0))
    ui.get_by_role("tab", name="Save").click()
    for button, ending in (("BVH", "bvh"), ("GLB", "glb"), ("npz", "npz"), ("MP4", "mp4"), ("Scene (TOML)", "toml")):
        with ui.expect_download() as waiting:
            ui.get_by_role("button", name=button).click()
        waiting.value.save_as(tmp_path / f"saved.{ending}")
        wait_until(lambda: not page.viewer._saving.locked())
    for ending in ("bvh", "npz"):
        assert len(read_motion(tmp_path / f"saved.{ending}", simulator.prior.skeleton)) == 4
    assert read_scene(tmp_path / "saved.toml").scene.people[0].start == "stand"
    assert (tmp_path / "saved.glb").read_bytes().startswith(b"glTF")
    assert b"ftyp" in (tmp_path / "saved.mp4").read_bytes()[:12]

    # Nothing was asked of anybody else.
    own = f"http://127.0.0.1:{page.viewer.port}/"
    assert [url for url in page.requests if not url.startswith((own, f"blob:{own}", "data:"))] == []
    assert page.requests

    # On a phone the panel is folded and there is a thumb stick; an address with a scenario opens it.
    browser = ui.context.browser
    ui.close()
    phone = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    phone.set_default_timeout(60_000)
    phone.goto(f"http://127.0.0.1:{page.viewer.port}/?scenario=trip")
    phone.get_by_role("button", name="Start", exact=True).tap()
    wait_until(lambda: loop.ask(lambda s: s.name) == "trip", 60)
    phone.get_by_text("Look back [s]").wait_for(state="hidden")
    assert phone.locator("#dropsim-stick").is_visible()
    phone.get_by_role("button", name="Crouch").tap()
    wait_until(lambda: loop.ask(lambda s: s.crouched) == {0})
    phone.close()


def test_a_push_on_several_joints_is_one_arrow_outside_the_body(session: Session):
    pytest.importorskip("viser")
    from dropsim.apps.viewer.figures import _pushes

    session.push("left", 300.0)
    report, x = session.tick().report, session.shown.people.x
    skeleton = session.simulator.prior.skeleton
    [[start, tip]] = _pushes(x, report.external_forces[0], skeleton)
    # A metre for 1000 N, and no joint's sphere holds the point of it.
    assert float(np.linalg.norm(tip - start)) == pytest.approx(0.3, abs=1e-4)
    assert (np.linalg.norm(x[0] - tip, axis=-1) > skeleton.radii).all()
    assert not _pushes(x, np.zeros_like(x), skeleton).any()


# --- hostile clients


def _raw_client(
    port: int, subprotocol: str | None, *, host: str = "127.0.0.1", origin: str | None = None
) -> socket.socket:
    """Open a websocket by hand, so that nothing stands in the way of nonsense."""
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    wanted = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    wanted += f"Origin: {origin}\r\n" if origin else ""
    client.sendall(
        f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{wanted}\r\n".encode()
    )
    return client


def _frame(content: bytes, opcode: int = 2) -> bytes:
    """A masked websocket frame, with a mask of zeros."""
    size = (
        struct.pack("!B", 0x80 | len(content)) if len(content) < 126 else struct.pack("!BH", 0x80 | 126, len(content))
    )
    return struct.pack("!B", 0x80 | opcode) + size + bytes(4) + content


def _nonsense(uuids: list[str]) -> list[bytes]:
    import msgspec

    def packed(**message: object) -> bytes:
        return _frame(msgspec.msgpack.encode(message))

    limb = {"button": "left", "modifier": None, "start_screen_pos": (0, 0), "end_screen_pos": (0, 0)}
    camera = {
        "wxyz": (1, 0, 0, 0),
        "position": (1e300, float("nan"), 0),
        "fov": 1.0,
        "look_at": (0, 0, 0),
        "up_direction": (0, 0, 1),
    }
    values = (float("nan"), "x", None, -1)
    return [
        _frame(b"\xff\x00nonsense"), _frame(b"text", 1), _frame(b""), b"\x00\x01\x02", b"\xff" * 40,
        packed(type="NoSuchMessage"), packed(type="GuiUpdateMessage"), packed(type=7), _frame(b"\x93\x01\x02\x03"),
        packed(type="ViewerCameraMessage", **camera, image_height=1, image_width=1, near=0.1, far=10.0),
        packed(type="ShareUrlRequest"),
        *(packed(type="GuiUpdateMessage", uuid=uuid, updates={"value": value}) for uuid in uuids for value in values),
        *(packed(type="GuiUpdateMessage", uuid=uuid, updates={"removed": True, "update_cb": 3}) for uuid in uuids),
        packed(
            type="SceneNodeDragMessage", name="/world/limbs_0", owner="", phase="start", instance_index=99, **limb,
            start_position=(float("nan"), 0, 0), end_position=(0, float("inf"), 0),
        ),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hostile_clients_do_not_stop_it(session: Session, caplog: pytest.LogCaptureFixture):
    viser = pytest.importorskip("viser")
    with served(session) as (loop, viewer):
        wait_until(lambda: loop.ask(lambda s: s.shown.frame) > 3)
        uuids = list(viewer._server.gui._gui_input_handle_from_uuid)
        clients = []
        for i in range(50):
            client = _raw_client(viewer.port, f"viser-v{viser.__version__}" if i % 5 else None)
            clients.append(client)
        time.sleep(0.5)
        # Each client is dropped at its first nonsense, so everybody says all of it from where the last one stopped.
        everything = _nonsense(uuids)
        for i, client in enumerate(clients):
            with contextlib.suppress(OSError):
                for nonsense in everything[i * len(everything) // 50 :][:10]:
                    client.sendall(nonsense)
        # And a flood from threads, while nobody reads what is sent to them.
        floods = [threading.Thread(target=_flood, args=(client,)) for client in clients[:4]]
        for flood in floods:
            flood.start()
        before = loop.ask(lambda s: s.shown.frame)
        wait_until(lambda: loop.ask(lambda s: s.paused or s.shown.frame > before + 15), 60)
        for flood in floods:
            flood.join()
        for client in clients:
            client.close()
        # Whatever they did to the controls, it goes on.
        loop.ask(lambda s: (s.pause(False), s.slow(1.0), s.restart()))
        wait_until(lambda: loop.ask(lambda s: s.shown.frame) > 5, 60)
        assert np.isfinite(loop.ask(lambda s: s.shown.people.x)).all()
        assert viewer._server.request_share_url() is None
        assert not any(handle._impl.removed for handle in viewer._server.gui._gui_input_handle_from_uuid.values())
    assert "a frame failed" not in caplog.text


def test_pages_of_others_are_refused(session: Session):
    viser = pytest.importorskip("viser")
    with served(session) as (_, viewer):
        port = viewer.port

        def answer(host: str, origin: str | None) -> bytes:
            with _raw_client(port, f"viser-v{viser.__version__}", host=host, origin=origin) as client:
                return client.recv(12)

        for host, origin in (
            ("127.0.0.1", None), ("127.0.0.1", f"http://127.0.0.1:{port}"), ("localhost", f"http://localhost:{port}"),
        ):  # fmt: skip
            assert answer(host, origin) == b"HTTP/1.1 101"
        # Another site, another local server, a page in a sandbox or a file, and a name of somebody else's that leads
        # here.
        for host, origin in (
            ("127.0.0.1", "https://evil.example"), ("127.0.0.1", "http://127.0.0.1:1"), ("127.0.0.1", "null"),
            ("evil.example", f"http://evil.example:{port}"), ("127.0.0.1", "http://["),
        ):  # fmt: skip
            assert answer(host, origin) == b"HTTP/1.1 403"


def test_it_ends_at_once_and_silently_although_a_client_has_gone_silent(
    session: Session, capsys: pytest.CaptureFixture[str]
):
    # Its thread says goodbye on standard output at its very end, so it has to have ended.
    viser = pytest.importorskip("viser")
    with served(session) as (_, viewer):
        silent = _raw_client(viewer.port, f"viser-v{viser.__version__}")
        assert silent.recv(12) == b"HTTP/1.1 101"
        thread = viewer._server._websock_server._server_thread
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
    head = page[: page.index(b"</head>")]
    assert b"<title>dropsim</title>" in head
    assert b"dropsim-help" in head
    assert head.count(b'rel="icon"') == 1
    # The gallery has a picture of every scenario.
    webp = "data:image/webp;base64,UklG"
    assert [
        name for name, setup in SCENARIOS.items() if f'"{name}", "{setup.description}", "{webp}'.encode() not in head
    ] == []
    # Our script comes before viser's, which it has to.
    assert page.index(b"dropsim keys") < page.index(b"<script data-p")


def test_the_panel_shows_what_a_scene_has(simulator: Simulator):
    pytest.importorskip("viser")
    session = Session(simulator, priors={"one": simulator.prior, "other": simulator.prior})
    with served(session) as (loop, viewer):
        panel = viewer.panel
        loop.ask(lambda s: (s.tilt_to(9.0, 0.0), s.begin(seed=5), s.use("other"), s.show_ghost(True)))
        wait_until(
            lambda: (
                (panel._roll.value, panel._seed.value, panel._prior.value, panel._ghost.value)
                == (9.0, 5, "other", True)
            )
        )
        loop.ask(lambda s: s.load(scenario("stand-still")))
        wait_until(lambda: panel._shown.value == "stand-still" and panel._start.value == "stand")
        assert (panel._roll.value, panel._seed.value) == (0.0, scenario("stand-still").seed)
        assert panel._about.content == scenario("stand-still").description


def test_clothes_cover_the_body():
    body = Body.shipped()
    parts = dressed(body, 0).parts
    assert len({part.color for part in parts}) == 4

    def area(vertices: np.ndarray, faces: np.ndarray) -> float:
        a, b, c = (vertices[faces[:, k]] for k in range(3))
        return float(np.linalg.norm(np.cross(b - a, c - a), axis=-1).sum() / 2)

    # Cutting neither adds nor loses skin.
    assert sum(area(part.vertices, part.faces) for part in parts) == pytest.approx(
        area(body.vertices, body.faces), rel=1e-9
    )
    for part in parts:
        np.testing.assert_allclose(part.blend.sum(-1), 1.0)
        assert ((part.blend > 0).sum(-1) <= 4).all()


def test_on_a_network_a_page_is_known_by_the_name_that_it_was_asked_for():
    pytest.importorskip("viser")
    from dropsim.apps.viewer.server import is_own_page

    assert is_own_page({"Host": "lab:8080", "Origin": "http://lab:8080"}, local=False)
    assert not is_own_page({"Host": "lab:8080", "Origin": "http://evil.example"}, local=False)
    assert not is_own_page({"Host": "lab:8080", "Origin": "http://lab:8080"}, local=True)


def _flood(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for _ in range(200):
            client.sendall(_frame(b"\xc1" * 100))
