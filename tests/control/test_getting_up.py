"""Lying and getting up."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.body.skeleton import joint_index
from dropsim.control.getting_up import LIMP_AFTER, NUM_STAGES, WAYS, Fallen, _rotations, get_up
from dropsim.control.planner import ReplaceStage
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import State
from dropsim.scene import Person, Push, Scene, World, run
from dropsim.scene.scenarios import scenario


@pytest.fixture(scope="module")
def prior() -> CVAEPrior:
    return CVAEPrior.shipped()


@pytest.fixture(scope="module")
def knocked_down(prior: CVAEPrior) -> Motion:
    """Four people who are pushed over, to the front and to the back."""
    front, back = (Push.toward(direction, 700.0, start=0.2, person=i) for i, direction in enumerate(("front", "back")))
    people = (Person("stand"), Person("stand", (5.0, 0.0)))
    world = World(Scene(people, (front, back)), Simulator(prior, options=SimulatorOptions(num_samples=8)))
    first, second = run(world, 215, [3, 4]).motions
    parts = {name: np.concatenate((getattr(first, name), getattr(second, name))) for name in ("root", "q", "joints")}
    return Motion(prior.skeleton, prior.fps, **parts)


def lying_on(prior: CVAEPrior, side: str) -> State:
    """A batch of one who lies flat on the belly or the back, at rest."""
    # Rest up to +y, rest front down; on the back it is turned about the long axis.
    q = np.tile(np.eye(3), (22, 1, 1))
    q[0] = exp(np.array([0.0, 0.0 if side == "belly" else math.pi, 0.0])) @ np.diag([-1.0, 1.0, -1.0])
    x = prior.skeleton.forward(q, np.zeros(3))
    x[:, 2] -= (x[:, 2] - prior.skeleton.radii).min()
    return State(x[None], np.zeros_like(x[None]), q[None], np.zeros((1, prior.network.shape.memory_size)))


def later(prior: CVAEPrior, state: State, frames: int, floor: float = 0.0) -> tuple[Fallen, ReplaceStage]:
    """How far somebody is, and what is proposed, after lying there for some frames."""
    fallen, stage = Fallen.nobody(state), None
    for _ in range(frames):
        fallen, stage = get_up(fallen, state, np.array([floor]), prior)
    assert stage is not None
    assert stage.people.all()
    return fallen, stage


@pytest.mark.parametrize("way", WAYS)
def test_the_poses_bend_knees_and_elbows_the_human_way(way, prior):
    for pose in way:
        joints = prior.skeleton.forward(_rotations(pose, prior.skeleton), np.zeros(3))
        assert prior.skeleton.bone_error(joints) < 1e-9
        for side in ("left", "right"):
            hip, knee, ankle = (joints[joint_index(f"{side}_{part}")] for part in ("hip", "knee", "ankle"))
            # A knee lies to the front of the line from hip to ankle; the pose faces +y and leans by less than a right angle.
            shoulder, elbow, wrist = (joints[joint_index(f"{side}_{part}")] for part in ("shoulder", "elbow", "wrist"))
            for near, middle, far, sign in ((hip, knee, ankle, 1.0), (shoulder, elbow, wrist, -1.0)):
                turn = np.cross(middle - near, far - middle)[0]  # about +x, a body's right
                assert sign * -turn > -0.01


@pytest.mark.slow
def test_people_who_fall_lie_and_get_up(knocked_down):
    lay, up = metrics.fallen(knocked_down), metrics.upright(knocked_down)
    assert lay.any(-1).all()
    assert up[:, -1].all()
    # They lie before they rise: at some time the joints move slower than anybody who walks.
    speed = np.linalg.norm(np.diff(knocked_down.joints, axis=1), axis=-1).mean(-1) * knocked_down.fps
    assert max(s[low[1:]].min() for s, low in zip(speed, lay, strict=True)) < 0.5


@pytest.mark.slow
def test_they_stay_on_the_floor_and_whole_meanwhile(knocked_down):
    assert float(metrics.bone_error_percent(knocked_down).max()) < 1.0
    assert float(sphere_heights(knocked_down)[:, 1:].min()) > -0.02
    off = sphere_heights(knocked_down).min(-1)[metrics.fallen(knocked_down)] > 0.05
    assert off.mean() < 0.12  # in the fall itself


@pytest.mark.parametrize(("side", "way"), [("belly", 0), ("back", 1)])
def test_the_way_up_follows_the_side_one_lies_on(side, way, prior):
    fallen, _ = later(prior, lying_on(prior, side), 30)
    assert int(fallen.way[0]) == way
    assert int(fallen.stage[0]) >= 0


def test_a_limp_body_sinks_and_keeps_its_shape(prior):
    state = lying_on(prior, "belly")
    _, stage = later(prior, state, LIMP_AFTER + 1)
    step = (stage.frame.x[:, 0] - state.x)[0]
    np.testing.assert_allclose(step, np.broadcast_to(step[:1], step.shape), rtol=0, atol=1e-12)
    assert step[0, 2] < 0


def test_people_who_stand_are_left_to_the_prior(prior):
    state = prior.start("walk", seed=[1, 2])
    fallen, stage = get_up(Fallen.nobody(state), state, np.zeros(2), prior)
    assert stage is None
    assert not fallen.limp_or_rising.any()


def test_of_two_people_only_the_one_who_lies_is_changed(prior):
    up, down = prior.start("walk", seed=[1]), lying_on(prior, "back")
    both = State(*(np.concatenate(pair) for pair in zip(vars(up).values(), vars(down).values(), strict=True)))
    fallen, stage = Fallen.nobody(both), None
    for _ in range(30):
        fallen, stage = get_up(fallen, both, np.zeros(2), prior)
    assert stage is not None
    assert stage.people.tolist() == [False, True]
    alone_fallen, alone = later(prior, down, 30)
    assert np.array_equal(stage.frame.x[1], alone.frame.x[0])
    assert alone_fallen.stage[0] == fallen.stage[1]


def test_somebody_who_is_knocked_over_while_rising_goes_limp_again(prior):
    fallen, _ = later(prior, lying_on(prior, "belly"), 30)
    assert int(fallen.stage[0]) >= 0
    fallen, stage = get_up(fallen, lying_on(prior, "back"), np.zeros(1), prior)
    assert int(fallen.stage[0]) == -1
    assert stage is not None


def test_a_raised_floor_changes_nothing_but_the_height(prior):
    low = lying_on(prior, "back")
    high = replace(low, x=low.x + np.array([0.0, 0.0, 1.5]))
    frames = [later(prior, state, 35, floor)[1].frame.x - np.array([0.0, 0.0, floor]) for state, floor in ((low, 0.0), (high, 1.5))]
    np.testing.assert_allclose(*frames, rtol=0, atol=1e-9)


def test_every_stage_has_its_time_and_both_ways_are_as_long():
    assert {len(way) for way in WAYS} == {NUM_STAGES}
    assert all(pose.seconds > 0.3 for way in WAYS for pose in way)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"start_at_mode": True, "num_samples": 8}, {"num_samples": 1}], ids=["the mode", "no samples"])
def test_people_whose_reference_is_the_mode_get_up_too(options, prior):
    push = Push.toward("back", 700.0, start=0.2)
    simulator = Simulator(prior, options=SimulatorOptions(**options))
    motion = run(World(Scene((Person("stand"),), (push,)), simulator), 210, [3]).motions[0]
    assert metrics.lying(motion.joints, prior.skeleton).any(-1).all()
    assert metrics.upright(motion)[:, -1].all()


@pytest.mark.slow
def test_people_who_are_pushed_out_of_a_somersault_get_up():
    setup = scenario("backflip-push")
    world = replace(setup, simulator=replace(setup.simulator, num_samples=8)).world(
        CVAEPrior.shipped()
    )  # people of the motion field land on their feet
    motion = run(world, setup.num_frames(world.fps), [0, 1]).motions[0]
    assert metrics.lying(motion.joints, motion.skeleton).any(-1).all()
    assert metrics.upright(motion)[:, -1].all()
    # Nobody flies off after the landing.
    assert (motion.joints[..., 2] - motion.skeleton.radii).min(-1)[:, 75:].max() < 0.2
