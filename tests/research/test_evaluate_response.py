"""The response protocol in small: its measures against mechanics, its twins, and the command."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import FACING_Y, stepping_clip
from dropsim.physics import metrics
from dropsim.research.evaluation import measures, people
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.measures import ways_up
from dropsim.research.evaluation.people import Shove, branch_out, forces_of
from dropsim.research.evaluation.response import ResponseProtocol

G = 9.81


def standing(seconds=2.0):
    """Return somebody who does not move, soles on the floor."""
    clip = stepping_clip(seconds)
    low = (clip.joints[0, :, 2] - clip.skeleton.radii).min()
    joints = np.broadcast_to(clip.joints[0] - (0, 0, low), clip.joints.shape).copy()
    return replace(clip, joints=joints, root=joints[:, 0], q=np.broadcast_to(clip.q[0], clip.q.shape).copy())


def moved(motion, way):
    return replace(motion, joints=motion.joints + way[:, None], root=motion.root + way)


# --- the ledger

TIME = np.arange(60)[:, None] / 30
FALL = (0, 0, 30) - 0.5 * G * TIME**2 * (0, 0, 1)
"""Free fall from 30 m; discrete second differences of a parabola are exact."""
LEDGERS = {
    # Contact carries the weight.
    "stands": (0 * TIME * (1, 0, 0), 0.0, (0, 1e-5)),
    # 1 m above the floor, at rest against gravity: g for half a second comes from nowhere.
    "floats": (0 * TIME + (0, 0, 1), 0.0, (G / 2 * (1 - 1e-9), G / 2 * (1 + 1e-9))),
    "flies": (0.3 * TIME * (1, 0, 0) + FALL, 0.0, (0, 1e-8)),
    # 0.5 m/s^2 sideways in the air, without and with an external force.
    "speeds up": (0.25 * TIME**2 * (1, 0, 0) + FALL, 0.0, (0.2499999, 0.2500001)),
    "is pulled": (0.25 * TIME**2 * (1, 0, 0) + FALL, 0.5, (0, 1e-8)),
    # mu = 0.8 on level ground gives at most 0.8 g sideways with the weight, so 1.5 g leaves 0.7 g for half a second.
    # The fit may press by d more than the weight to get 0.8 d of it: (0.7 g - 0.8 d)^2 + d^2 is least for d = 0.34 g,
    # which leaves 0.43 g.
    "slides": (0.75 * G * TIME**2 * (1, 0, 0), 0.0, (0.42 * G / 2, 0.71 * G / 2)),
}
"""Way [m], external acceleration sideways [m/s^2], and the unexplained change of velocity of half a second [m/s]."""


@pytest.mark.parametrize("case", LEDGERS)
def test_the_ledger_has_what_no_force_explains(case):
    way, pulled, (low, high) = LEDGERS[case]
    motion = moved(standing(), way)
    forces = np.broadcast_to(pulled * motion.skeleton.masses[:, None] * (1.0, 0.0, 0.0), motion.joints.shape)
    linear, angular = np.moveaxis(metrics.ledger(replace(motion, external_forces=forces)), -1, 0)
    assert low <= linear.min() <= linear.max() <= high
    # Gravity and forces that are shared by mass act at the centre.
    assert case in ("stands", "slides") or angular.max() < 1e-8


# --- steps


def test_the_first_step_is_the_first_that_lifts_and_lands():
    clip = stepping_clip(4.0)
    lift, land, foot = metrics.first_step(clip, 5).tolist()
    heights = clip.joints[:, (7, 8), 2]
    assert 5 <= lift < land < len(clip)
    assert heights[(lift + land) // 2, foot] > heights[lift, foot] + metrics.LIFTED
    assert metrics.footfalls(clip, lift) - metrics.footfalls(clip, land + 1) >= 1
    assert (metrics.first_step(standing()) == -1).all()


def batch(*motions):
    parts = ([getattr(motion, name) for motion in motions] for name in ("root", "q", "joints"))
    return Motion(motions[0].skeleton, motions[0].fps, *map(np.stack, parts)) if len(motions) > 1 else motions[0]


def test_a_step_that_the_twin_takes_too_is_no_answer():
    stepping, still = stepping_clip(2.0), standing()
    both = batch(stepping, still, stepping)
    step = metrics.first_step(both)
    for twin, answers in ((1, [True, False, True]), (2, [False] * 3), (-1, [False] * 3)):
        assert measures.answered(both, step, np.array([twin] * 3)).tolist() == answers


# --- velocity lost


def test_a_push_that_arrives_is_not_lost_and_one_that_is_braked_is():
    # Pushed to the left (90 degrees) by 1 m/s: -x for somebody who faces +y.
    calm = standing()
    q = calm.q.copy()
    q[:, 0] = FACING_Y
    calm = replace(calm, q=q)
    time = np.maximum(np.arange(60) - 3, 0)[:, None] / 30
    free, braked = (moved(calm, speed * time * (-1, 0, 0)) for speed in (1.0, 0.4))
    shove = (Shove(1.0, 90),)
    branches = [(0, ()), (0, shove), (0, shove), (1, shove)]
    lost = people.measured(batch(calm, free, braked, free), branches)["lost"]
    np.testing.assert_allclose(lost, [math.nan, 0.0, 0.6, math.nan], atol=1e-9)


# --- branches


def test_a_twin_goes_on_as_if_nobody_had_branched_and_a_push_acts_at_once():
    simulator = Body.of(2, "field").simulator()
    branches = [(0, ()), (1, ()), (0, ()), (0, (Shove(1.0, 90),))]
    motion = branch_out(simulator, "walk", (0, 1), branches, 8)
    np.testing.assert_array_equal(motion.joints[0], motion.joints[2])
    assert np.abs(motion.joints[0] - motion.joints[1]).max() > 1e-3
    np.testing.assert_array_equal(motion.joints[0, 0], motion.joints[3, 0])
    assert motion.joints[3, 4, 0, 0] < motion.joints[0, 4, 0, 0] - 0.01


def test_shoves_are_relative_to_where_people_face_and_add_up_to_their_impulse():
    simulator = Body.of(2, "field").simulator()
    start = simulator.prior.start("stand", [0])
    turned = start.map(np.copy)
    turned.q[:, 0] = rotvec_to_rotmat(np.array([0.0, 0.0, math.pi / 2])) @ start.q[:, 0]
    masses = simulator.skeleton.masses
    for part in ("torso", "body"):
        branch = [(Shove(0.7, 0, part=part, first=2),)]
        ahead, left = (
            forces_of(branch, state.q, masses, 30.0).sum((0, 1, 2)) / 30 / masses.sum() for state in (start, turned)
        )
        assert np.linalg.norm(ahead) == pytest.approx(0.7)
        np.testing.assert_allclose(left, (-ahead[1], ahead[0], 0), atol=1e-9)
        assert ahead[1] > 0.5


# --- falls, trips, balls


def test_ways_up_are_counted_by_how_far_they_are_apart():
    rng = np.random.default_rng(0)
    ways = np.zeros((20, 5, 22, 3))
    ways[12:, ..., 2] = 0.5
    ways[19:, ..., 0] = 2.0
    shares = ways_up(ways + 0.01 * rng.normal(size=ways.shape))
    np.testing.assert_allclose(shares, [0.6, 0.35, 0.05])


def test_who_is_caught_and_goes_on_keeps_the_speed():
    calm, time = standing(), np.arange(60)[:, None] / 30
    on, stopped = moved(calm, 2.0 * time * (0, 1, 0)), moved(calm, 2.0 * np.minimum(time, 1.0) * (0, 1, 0))
    trips = measures.tripped(batch(on, stopped, on), np.array([30.0, 30.0, np.inf]))
    np.testing.assert_allclose(trips["speed_kept"][:2], [1, 0], atol=1e-9)
    assert trips["caught"].tolist() == [True, True, False]
    assert not trips["fell"].any()


def test_a_ball_gives_what_it_loses():
    # 8 kg stopped from 7 m/s in one frame: 56 N s, of which the person of 70 kg has 0.3 m/s instead of 0.8.
    calm, time = standing(3.0), np.maximum(np.arange(90) - 30, 0)[:, None] / 30
    person = batch(moved(calm, 0.3 * time * (0, 1, 0)))
    mass = calm.skeleton.masses.sum()
    forces = np.zeros(calm.joints.shape)
    forces[31, 9] = (0, 56 * 30, 0)
    hit = replace(person, external_forces=forces).map(lambda values: values[None])
    velocity = np.zeros((1, 90, 3))
    velocity[0, :31, 1] = 7.0
    velocity[..., 2] = -G * np.arange(90) / 30
    hits = measures.struck(hit, calm.map(lambda values: values[None]), velocity, 8.0)
    assert hits["mismatch"][0] < 1e-9
    assert hits["lost"][0] == pytest.approx(56 / mass - 0.3)


# --- the whole


def test_every_table_has_its_statistics(rng):
    # Two people, unpushed and pushed by 0.7 N s/kg to two sides; the second falls when pushed.
    impulse, pushed = np.array([0, 0, 0.7, 0.7, 0.7, 0.7]), np.array([False, True] * 3) & (np.arange(6) > 1)
    people = {"impulse": impulse, "degrees": np.array([0, 0, 0, 0, 90, 90]), "fell": pushed, "stepped": impulse > 0}
    people |= {"lost": 0.1 * impulse, "lift_off": np.full(6, 0.3), "got_up": pushed, "twist": 90.0 * pushed}
    people |= {"stop_time": np.arange(6.0), "stop_distance": np.arange(6.0), "spin": np.full(6, 3.0)}
    people |= {"ledger": rng.random((6, 4, 2)), "rise": np.zeros((6, 11, 22, 3))}
    trips = {"caught": np.array([True, True, False]), "speed_kept": np.array([0.5, 0.7, 9.0])}
    trips |= {name: np.array([True, False, True]) for name in ("fell", "forward", "hands_first")}
    balls = {"hit": np.array([True, False]), "fell": np.array([False, True])}
    balls |= {"mismatch": np.array([0.0, 1.0]), "lost": np.array([0.1, 9.0])}
    tables = dict.fromkeys(("push stand", "push walk", "walk-perturb", "getup"), people)
    tables |= {"trips": trips, "balls": balls, "recorded": {"ledger": np.ones((9, 2))}}
    tables["push run"] = {"finished": np.zeros(6, bool)}
    rows = {one.name: one.value for one in ResponseProtocol(impulses=(0.7,)).statistics(tables)}
    expected = {"pushes: velocity lost, worst cell": 0.07, "push 0.7 N s/kg: stepped": 1.0, "trip: fell": 0.5}
    expected |= {"push 0.7 N s/kg: first step": 0.3, "push 0.7 N s/kg: stop time, median": 3.0}
    expected |= {"push 0.7 N s/kg: fell": 0.5, "walk, push 0 N s/kg: fell": 0.0, "walk, push 0.7 N s/kg: fell": 0.5}
    expected |= {"trip: speed kept": 0.6, "trip, falls forward: hands before head": 1.0, "ball: fell": 0.0}
    expected |= {"ball: largest mismatch": 0.0, "ball: velocity lost": 0.1, "thrown over: got up": 1.0}
    expected |= {"thrown over: ways of getting up": 1.0, "falls: shin or foot turns by 45 degrees in a frame": 1.0}
    expected |= {"ledger of recordings: linear": 1.0, "Walk-Perturb: fell": 1 / 3}
    assert {name: rows[name] for name in expected} == pytest.approx(expected)
    assert not any(name.startswith("run") for name in rows)


def test_the_command_runs_the_parts_that_are_asked_for(tmp_path, monkeypatch):
    tiny = {"people": 1, "others": 1, "impulses": (0.7,), "directions": (0, 90), "seconds": 0.7, "recorded": 2}
    monkeypatch.setattr(ResponseProtocol, "few", tiny)
    command = "evaluate response --quick --prior field --samples 2 --workers 1 --only push recorded"
    assert main([*command.split(), "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "response.json").read_text())
    assert written["protocol"]["parts"] == ["push", "recorded"]
    statistics = {one["name"]: one for one in written["statistics"]}
    assert statistics["walk, push 0.7 N s/kg: fell"]["people"] == 2  # one person, two directions
    assert "| pushes: velocity lost, worst cell |" in (tmp_path / "response.md").read_text()
    assert main([*command.replace("push", "dance").split(), "--out", str(tmp_path)]) == 2
