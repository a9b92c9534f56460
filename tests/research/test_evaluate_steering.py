"""People who are asked for speeds and turns: the measures on hand-made motions, and the command in small."""

import math

import numpy as np
import pytest

from dropsim.apps.viewer import session, steering
from dropsim.body.rotations import exp
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.options import SimulatorOptions
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.measures import (
    JUMPED,
    followed,
    paces,
    recorded_paces,
    response_times,
    style_ratio,
    turn_errors,
)
from dropsim.research.evaluation.people import run_scenario
from dropsim.research.evaluation.steering import CROUCH, FALLS, JUMP, MANOEUVRES, TASKS, SteeringProtocol
from dropsim.scene import Drag, Follow, Person, Scene

CLIP = stepping_clip(1.0)


def along(way: np.ndarray, spin: float = 0.0) -> Motion:
    """Return one person in a fixed pose along a path over the ground, in a batch of one."""
    time = np.arange(len(way)) / 30
    q = np.tile(CLIP.q[:1], (len(way), 1, 1, 1))
    q[:, 0] = exp(time[:, None] * spin * np.array([0.0, 0.0, 1.0])) @ q[:, 0]
    root = CLIP.root[0] + np.concatenate((way, np.zeros((len(way), 1))), -1)
    return Motion.from_rotations(CLIP.skeleton, 30.0, root[None], q[None])


def straight(speed: float, seconds: float = 6.0) -> Motion:
    return along(np.arange(round(30 * seconds) + 1)[:, None] / 30 * np.array([0.0, speed]))


def test_speed_is_net_displacement():
    found = paces(straight(1.2))
    np.testing.assert_allclose(found["speed"], 1.2)
    assert (found["speed"].shape, found["style"].shape) == ((1, 3), (1, 6, 3))
    # Once around a circle within the window is no way made.
    turn = 2 * math.pi * np.arange(61) / 60
    assert paces(along(np.stack((np.cos(turn), np.sin(turn)), -1)))["speed"][0, 0] < 1e-9


def test_a_turn_is_judged_a_second_later():
    wanted = np.zeros((91, 2))
    wanted[:30], wanted[30:] = (0.0, 1.0), (-1.0, 0.0)
    # One turns at once, one not at all, one 30 degrees too far.
    for degrees, error in ((180, 0.0), (90, 90.0), (210, 30.0)):
        to = np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
        way = np.concatenate((np.zeros((30, 2)), np.arange(61)[:, None] / 30 * to))
        np.testing.assert_allclose(turn_errors(along(way), wanted), [[error]], atol=1e-6)


def test_responses_are_timed_from_the_change_on():
    # From 1 s on 1 m/s to the left is wanted: one gets there at 1 m/s^2, so that 0.8 m/s are reached after 0.8 s, and
    # stops at once at 3 s.
    wanted = np.repeat([(0.0, 0.0), (-1.0, 0.0), (0.0, 0.0)], [30, 60, 31], axis=0)
    speed = np.minimum(np.maximum(np.arange(121) - 30, 0) / 30, 1.0) * (np.arange(121) < 90)
    found = response_times(along(np.stack((-np.cumsum(speed) / 30, 0 * speed), -1)), wanted)
    np.testing.assert_allclose(found, [[0.8, 0.1]], atol=0.05)
    assert response_times(straight(0.5, 4.0), wanted)[0].tolist() == pytest.approx([2.0, 31 / 30])


def test_heights_are_those_of_the_app():
    assert (CROUCH, JUMP, JUMPED) == (steering.CROUCHING, steering.JUMPING, session.JUMPED)


def test_a_hand_that_lags_is_seen():
    motion = straight(0.9, 10.0)
    way = ((0.0, 0.0, 1.0), (4.0, 0.0, 1.0001), (8.0, 0.0, 1.0))
    drag = Drag("right_wrist", ((0.0, 0.0, 0.0, 0.0), (10.0, 0.0, 10.0, 0.0)), relative=True)
    found = followed(motion, Scene((Person(),), (Follow(way, acceleration=1e6), drag)))
    assert found["turn_error_deg"][0] < 1
    # The target gains 0.1 m/s: on average over seconds 2 to 10, 0.6 m.
    assert found["hand_m"][0] == pytest.approx(0.6, abs=0.01)


def test_recordings_of_the_same_speed_are_compared_with():
    slow, fast = straight(1.2, 20.0), straight(2.5, 20.0)
    windows = [paces(motion)["style"] for motion in (slow, fast)]
    recorded = recorded_paces([m.map(lambda values: values[0]) for m in (slow, fast)])
    assert style_ratio("skate", windows[0], recorded, 1.2) == pytest.approx(1.0)
    # A foot that glides at 2.5 m/s skates 2.5 / 1.2 times as much as one at 1.2 m/s.
    only_slow = recorded_paces([slow.map(lambda values: values[0])])
    assert style_ratio("skate", windows[1], only_slow, 2.5) == pytest.approx(2.5 / 1.2)
    assert math.isnan(style_ratio("jerk", windows[1], recorded_paces([]), 2.5))


BODY = Body(SimulatorOptions(num_samples=2), prior="field")


def test_a_scenario_with_several_people_has_a_row_for_each():
    found = run_scenario(BODY, (0,), scenario="two-people")
    assert len(found["finished"]) == len(found["fell"]) == 2


def test_every_table_has_its_statistics(rng):
    # A table like any chunk's, in which one of two people falls, for everything that is simulated.
    people = {"fell": np.array([True, False]), "not_done": np.array([False, False]), "hand_m": np.array([0.1, 0.3])}
    people |= {"turn_error_deg": np.array([10.0, 20.0]), "turn_errors": np.array([[10.0], [20.0]])}
    people |= {"responses": np.array([[9.0], [0.5]]), "away": np.array([0.1, 0.4]), "steps": np.array([1, 3])}
    people |= {"speed": np.full((2, 6), 1.2), "style": np.tile([1.2, 0.1, 50.0], (2, 12, 1))}
    people |= {name: rng.random((2, 5)) for name in ("deepest_mm", "bone_error_percent", "overlap_mm")}
    tables = dict.fromkeys([*TASKS, *MANOEUVRES, *(f"scenario {name}" for name in FALLS)], people)
    tables |= {"bank": {"paces": np.tile([1.2, 0.2, 100.0], (20, 1))}, "crouch": {"finished": np.array([False])}}
    tables["scenario projectiles"] = people | {"hits": np.array([1.0, 2.0])}
    rows = {one.name: one.value for one in SteeringProtocol(seconds=60.0).statistics(tables)}
    expected = {"stand: fell undisturbed": 0.5, "stand: ended more than 0.3 m away": 0.5, "stand: steps": 2.0}
    expected |= {"walk 1.2 m/s: speed kept": 1.0, "walk 1.2 m/s: foot skate": 0.5, "walk 1.2 m/s: jerk": 0.5}
    expected |= {"turn of 90 degrees: error": 15.0, "jump: not done": 0.0, "stop: response": 0.5, "tilt: fell": 0.5}
    expected |= {"follow: turn error": 15.0, "lead-by-hand: hand off": 0.2, "projectiles: hits": 1.5}
    assert {name: rows[name] for name in expected} == pytest.approx(expected)
    assert math.isnan(rows["crouch: fell"])  # everybody diverged
    assert sum(name.startswith(("largest", "self-overlap")) for name in rows) == 3
