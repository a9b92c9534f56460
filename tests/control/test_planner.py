"""Looking ahead: of many rollouts the cheapest is followed, and nothing else depends on it."""

from dataclasses import dataclass

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.compute.random import Streams
from dropsim.control.planner import IntentCost, Plan, Planner, make_plan
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, Prior, State

SKELETON = Skeleton.adult()
CLIP = stepping_clip(2.0)


@dataclass
class Wanderer(Prior):
    """Glides by a random step in every frame; remembers how many it took."""

    name: str = "wanderer"
    fps: float = 30.0

    def __post_init__(self) -> None:
        self.skeleton = SKELETON

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        steps = 0.1 * rng.normal(num, 1, 3)
        steps[..., 0, :, :] = 0.0  # its mode stays
        x = state.x[..., None, :, :] + steps
        q = np.broadcast_to(state.q[..., None, :, :, :], (*x.shape[:-2], NUM_JOINTS, 3, 3))
        return Candidates(x, q, np.broadcast_to((state.memory + 1)[..., None, :], (*x.shape[:-2], 1)))


def crowd(n: int) -> State:
    x = np.arange(n).reshape(n, 1, 1) + np.zeros((n, NUM_JOINTS, 3))
    return State(x, np.zeros_like(x), np.broadcast_to(np.eye(3), (n, NUM_JOINTS, 3, 3)), np.zeros((n, 1)))


class Along:
    """Wants each person to get far along an axis of its own, and keeps what it was shown."""

    def __init__(self, axes: list[int]) -> None:
        self.axes, self.seen = axes, np.empty(0)

    def __call__(self, joints: np.ndarray) -> np.ndarray:
        self.seen = joints
        return -np.stack([joints[i, :, -1, 0, self.axes[i]] for i in range(len(joints))])


def test_the_best_rollout_is_followed():
    planner, cost = Planner(num_rollouts=20, horizon=6, every=3), Along([0, 1, 2])
    plan = planner.plan(Wanderer(), crowd(3), cost, Streams([1, 2, 3]))
    assert cost.seen.shape == (3, 20, 6, NUM_JOINTS, 3)
    for i in range(3):
        best = int(cost.seen[i, :, -1, 0, i].argmax())
        assert np.array_equal(plan.x[i], cost.seen[i, best, :3])
        assert plan.memory[i].ravel().tolist() == [1.0, 2.0, 3.0]
    assert plan.x.shape == (3, 3, NUM_JOINTS, 3)
    assert plan.q.shape == (3, 3, NUM_JOINTS, 3, 3)


def test_the_seed_decides():
    planner = Planner(8, 4, 2)

    def x(seeds: list[int]) -> np.ndarray:
        return planner.plan(Wanderer(), crowd(len(seeds)), Along([0] * 3), Streams(seeds)).x

    assert np.array_equal(x([1, 2, 3]), x([1, 2, 3]))
    assert not np.array_equal(x([1, 2, 3])[0], x([4, 2, 3])[0])
    # Everybody has their own random numbers: alone or among others makes no difference.
    assert np.array_equal(x([1, 2, 3])[:1], x([1]))
    assert not np.array_equal(x([1, 2, 3])[1:], x([1, 4, 5])[1:])


def test_a_cost_that_is_not_a_number_never_wins():
    def cost(joints: np.ndarray) -> np.ndarray:
        values = -joints[:, :, -1, 0, 0]
        return np.where(values == values.min(), np.nan, values)

    seen, planner = Along([0]), Planner(10, 3, 1)
    planner.plan(Wanderer(), crowd(1), seen, Streams([7]))
    plan = planner.plan(Wanderer(), crowd(1), cost, Streams([7]))
    second = seen.seen[0, :, -1, 0, 0].argsort()[-2]
    assert np.array_equal(plan.x[0, 0], seen.seen[0, second, 0])


@pytest.mark.parametrize("fields", [{"num_rollouts": 0}, {"horizon": 0}, {"every": 0}, {"every": 9, "horizon": 8}])
def test_planners_that_cannot_be(fields: dict):
    with pytest.raises(ValueError, match="a planner needs"):
        Planner(**fields)


# Plans of people who want something


def test_only_people_who_want_something_look_ahead_and_only_they_draw():
    people, seeds = crowd(6), list(range(6))
    velocity = np.full((6, 2), np.nan)
    velocity[[1, 4]] = [0.0, 2.0]
    rng = Streams(seeds)
    plan = make_plan(Planner(4, 3, 2), Wanderer(), people, Intent.toward(velocity), 10, rng)
    assert plan is not None
    assert plan.people.tolist() == [False, True, False, False, True, False]
    assert plan.since == 10
    # The others' random numbers are as they were, and what somebody plans does not depend on who else plans.
    assert np.array_equal(rng.normal(3)[[0, 2, 3, 5]], Streams(seeds).normal(3)[[0, 2, 3, 5]])
    alone = make_plan(Planner(4, 3, 2), Wanderer(), people[[4]], Intent.toward(velocity[[4]]), 10, Streams([4]))
    assert np.array_equal(plan.frames.x[4], alone.frames.x[0])
    assert make_plan(Planner(4, 3, 2), Wanderer(), people, Intent.unknown(6), 10, rng) is None


def test_a_plan_leads_its_people_frame_by_frame(rng):
    def candidates(count: int, memory: np.ndarray) -> Candidates:
        x = rng.standard_normal((2, count, NUM_JOINTS, 3, 4))
        return Candidates(x[..., 0], x[..., 1:], memory)

    frames = candidates(3, np.arange(6.0).reshape(2, 3, 1))
    proposed, plan = candidates(5, np.full((2, 5, 1), -1.0)), Plan(frames, np.array([True, False]), since=8)
    for frame in (8, 9, 10):
        found = plan.stage(frame).change(proposed)
        assert np.array_equal(found.x[0, 0], frames.x[0, frame - 8])
        assert np.array_equal(found.q[0, 0], frames.q[0, frame - 8])
        assert found.memory[0].ravel().tolist() == [frame - 8, -1.0, -1.0, -1.0, -1.0]
        assert found.cost.tolist() == [[-np.inf, 0.0, 0.0, 0.0, 0.0], [0.0] * 5]
        for name in ("x", "q", "memory"):
            assert np.array_equal(getattr(found, name)[1], getattr(proposed, name)[1])
            assert np.array_equal(getattr(found, name)[0, 1:], getattr(proposed, name)[0, 1:])
    assert (proposed.memory == -1).all()


# The cost of an intent


def gliding(velocities: list[tuple[float, float]], *, drop: float = 0.0, turn: float = 0.0) -> np.ndarray:
    """Bodies that face +y, or turned from there, and glide at some velocities for half a second: rollouts of one person."""
    time = np.arange(16).reshape(1, -1, 1, 1) / 30
    way = np.array([(*v, 0.0) for v in velocities]).reshape(-1, 1, 1, 3)
    return (CLIP.joints[0] @ exp(np.array([0.0, 0.0, turn])).T + time * way - np.array([0.0, 0.0, drop]))[None]


def cost_of(intent: Intent, rollouts: np.ndarray) -> np.ndarray:
    return IntentCost(intent, SKELETON, 30.0)(rollouts)[0]


def toward(x: float, y: float) -> Intent:
    return Intent.toward(np.array([[x, y]]))


def test_the_wanted_velocity_costs_least():
    costs = cost_of(toward(0.0, 1.2), gliding([(0.0, 0.0), (0.0, 1.2), (1.2, 0.0), (0.0, 2.4), (0.0, -1.2)]))
    assert int(costs.argmin()) == 1
    # The square of the difference, beside what is the same for all.
    np.testing.assert_allclose(costs[[0, 2, 3]] - costs[1], [1.44, 2.88, 1.44], rtol=0, atol=1e-9)


def test_facing_elsewhere_and_sinking_cost():
    plain = cost_of(toward(0.0, 1.2), gliding([(0.0, 1.2)]))[0]
    assert cost_of(toward(1.2, 0.0), gliding([(1.2, 0.0)]))[0] > plain + 0.1
    assert cost_of(toward(1.2, 0.0), gliding([(1.2, 0.0)], turn=-np.pi / 2))[0] == pytest.approx(plain, abs=1e-9)
    assert cost_of(toward(0.0, 1.2), gliding([(0.0, 1.2)], drop=0.3))[0] > plain + 0.5
    # Who does not look where they go, or hardly moves, may face anywhere.
    anywhere = Intent.toward(np.array([[1.2, 0.0]]), look_ahead=False)
    for intent, rollouts in ((anywhere, gliding([(1.2, 0.0)])), (toward(0.1, 0.0), gliding([(0.1, 0.0)]))):
        assert cost_of(intent, rollouts)[0] == pytest.approx(plain, abs=1e-9)


def test_an_upright_carriage_costs_least():
    usual = gliding([(0.0, 1.2)])
    leaning, waving = usual.copy(), usual.copy()
    leaning[..., joint_index("neck"), 1] += 0.3
    waving[..., joint_index("left_wrist"), 2] = usual[..., joint_index("head"), 2]
    for other in (leaning, waving):
        assert cost_of(toward(0.0, 1.2), other)[0] > cost_of(toward(0.0, 1.2), usual)[0] + 0.05


def test_a_low_pelvis_that_is_wanted_costs_nothing():
    low = Intent(np.array([[0.0, 1.2]]), np.array([[0.0, 1.0]]), np.array([0.5]))
    crouching = gliding([(0.0, 1.2)], drop=0.3)
    assert cost_of(low, crouching)[0] < cost_of(toward(0.0, 1.2), crouching)[0] - 0.5


# Intents


def test_intents_are_merged_by_what_is_known():
    first = Intent.toward(np.array([[1.0, 0.0], [0.0, 2.0], [np.nan, np.nan]]))
    second = Intent(
        np.full((3, 2), np.nan), np.array([[0.0, 1.0], [np.nan] * 2, [np.nan] * 2]), np.array([np.nan, 0.7, np.nan])
    )
    merged = Intent.merged([None, first, second])
    assert merged is not None
    np.testing.assert_array_equal(merged.velocity, first.velocity)
    np.testing.assert_array_equal(merged.facing[0], [0.0, 1.0])
    np.testing.assert_array_equal(merged.facing[1], [0.0, 1.0])
    assert merged.known.tolist() == [True, True, False]
    assert Intent.merged([None]) is None
    assert first.only(np.array([False, True, True])).known.tolist() == [False, True, False]
