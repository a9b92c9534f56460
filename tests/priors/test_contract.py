"""The contract of a prior, over every prior."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from random_priors import batch, tiny

from dropsim.body.rotations import exp, heading, transpose
from dropsim.compute.random import Streams
from dropsim.motion.contacts import label_contacts
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.step import Simulator, StepInputs
from dropsim.priors.bank import Bank, ClipInfo
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import MotionField
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidates, Prior, State
from dropsim.priors.recording import ClipPrior
from dropsim.priors.rollout import roll_out

CLIP = stepping_clip(2.0)
FRAMES = (5, 20, 33)
# The networks compute in single precision on numbers of order one; a state passes through a few such operations.
CLOSE = {"rtol": 0.0, "atol": 2e-5}


class Coasting(Prior):
    """A user's own prior, with nothing but the one method: goes on as it is, with noise."""

    def __init__(self) -> None:
        self.skeleton, self.fps, self.name = CLIP.skeleton, CLIP.fps, "coasting"

    def propose(self, state, num, rng, intent=None):
        del intent
        x = (state.x + state.v.mean(-2, keepdims=True) / self.fps)[..., None, :, :] + np.zeros((num, 1, 1))
        x[..., 1:, :, :] += 0.01 * rng.normal(num - 1, 1, 3)
        q, memory = (
            np.repeat(state.q[..., None, :, :, :], num, axis=-4),
            np.repeat(state.memory[..., None, :], num, axis=-2),
        )
        return Candidates(x, q, memory)


def network(pose: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stand for somebody's network: the step of the root and a turn of every joint, out of a pose in its heading frame and noise."""
    seen = np.tanh(pose[..., None, :] + z.sum(-1, keepdims=True))
    return 0.01 * seen[..., :3], 0.01 * seen[..., : 22 * 3].reshape(*seen.shape[:-1], 22, 3)


class Wrapped(Prior):
    """A network as docs/your-own-prior.md wraps it."""

    def __init__(self) -> None:
        self.skeleton, self.fps, self.name = CLIP.skeleton, CLIP.fps, "wrapped"

    def propose(self, state, num, rng, intent=None):
        z = np.zeros((*state.x.shape[:-2], num, 8))
        z[..., 1:, :] = rng.normal(num - 1, 8)
        H = heading(state.q[..., 0, :, :])
        pose = (state.x - state.x[..., :1, :]) @ transpose(H)
        step, turns = network(pose.reshape(*pose.shape[:-2], 66), z)
        q = state.q[..., None, :, :, :] @ exp(turns)
        x = self.skeleton.forward(q, state.x[..., None, 0, :] + step @ H)
        return Candidates(x, q, np.repeat(state.memory[..., None, :], num, axis=-2))


def bank_of() -> Bank:
    motion = stepping_clip(4.0)
    return Bank.of([(motion, ClipInfo("step", "ours", "MIT", ("walk",), len(motion)), label_contacts(motion))])


@dataclass(frozen=True)
class Case:
    prior: Prior
    states: list[State]


def case_of(name: str) -> Case:
    if name.startswith("clip"):
        prior = (
            ClipPrior(CLIP, then=tiny(kinematic=True), handover=20) if name == "clip, then ours" else ClipPrior(CLIP)
        )
        return Case(prior, [prior.start_from(CLIP, f) for f in FRAMES])
    made = {
        "shipped": CVAEPrior.shipped,
        "ours": lambda: tiny(kinematic=True),
        "humor": tiny,
        "humor, joints by kinematics": lambda: tiny(joints_from_kinematics=True),
        "passive": lambda: PassivePrior(CLIP.skeleton),
        "a user's": Coasting,
        "a user's network": Wrapped,
        "field": lambda: MotionField(bank_of(), CLIP.skeleton),
    }
    prior = made[name]()
    return Case(prior, [prior.start_from(CLIP, f) for f in FRAMES])


CVAES = ("shipped", "ours", "humor", "humor, joints by kinematics")
EVERY = (*CVAES, "clip", "clip, then ours", "passive", "a user's", "a user's network", "field")
every_prior = pytest.mark.parametrize("case", EVERY, indirect=True)
every_cvae = pytest.mark.parametrize("case", CVAES, indirect=True)


@pytest.fixture(scope="module")
def case(request) -> Case:
    return case_of(request.param)


@every_prior
def test_candidates_are_frames_of_the_same_body(case):
    state = batch(case.states)
    candidates = case.prior.propose(state, 5, Streams([1, 2, 3]))
    k = candidates.x.shape[1]
    assert 1 <= k <= 5  # a prior without chance has one
    assert candidates.x.shape == (3, k, 22, 3)
    assert candidates.q.shape == (3, k, 22, 3, 3)
    assert candidates.memory.shape == (3, k, state.memory.shape[-1])
    assert all(
        values.dtype == np.float64 and np.isfinite(values).all()
        for values in (candidates.x, candidates.q, candidates.memory)
    )
    np.testing.assert_allclose(
        candidates.q @ transpose(candidates.q), np.broadcast_to(np.eye(3), candidates.q.shape), **CLOSE
    )
    chosen = candidates.pick(np.zeros(3, dtype=np.int64))
    assert case.prior.commit(chosen, chosen.x, chosen.q).shape == state.memory.shape
    assert case.prior.recall(state, chosen.x, chosen.q).shape == state.memory.shape
    assert case.prior.apply_impulse(state.memory, np.ones((3, 3))).shape == state.memory.shape
    assert case.prior.explore(state, Streams([1, 2, 3])).x.shape == (3, 22, 3)


@every_prior
def test_a_state_is_not_changed(case):
    state = batch(case.states)
    before = {name: values.copy() for name, values in vars(state).items()}
    candidates = case.prior.propose(state, 3, Streams([1, 2, 3]))
    case.prior.recall(state, candidates.x[:, 0], candidates.q[:, 0])
    case.prior.apply_impulse(state.memory, np.ones((3, 3)))
    for name, values in before.items():
        assert np.array_equal(getattr(state, name), values)


@every_prior
def test_the_first_candidate_is_the_mode_whatever_the_chance(case):
    state = case.states[1]
    alone = case.prior.propose(state, 1, Streams(7))
    among = case.prior.propose(state, 6, Streams(8))
    for name in ("x", "q", "memory"):
        assert np.array_equal(getattr(among, name)[0], getattr(alone, name)[0])


@pytest.mark.parametrize("case", [*CVAES, "a user's", "a user's network"], indirect=True)
def test_another_seed_gives_other_candidates(case):
    first, other = (case.prior.propose(case.states[0], 3, Streams(seed)).x for seed in (0, 1))
    assert np.array_equal(first[0], other[0])
    assert np.abs(first[1:] - other[1:]).max() > 1e-4
    assert np.abs(first[1] - first[2]).max() > 1e-4


@every_prior
@pytest.mark.parametrize("num", [1, 7, 64])
def test_somebody_in_a_batch_gets_what_they_get_alone_to_the_last_bit(case, num):
    seeds = [11, 12, 13]
    rng, alone = Streams(seeds), [Streams(seed) for seed in seeds]
    for _ in range(2):  # the second draw goes on in each stream
        together = case.prior.propose(batch(case.states), num, rng)
        for i, state in enumerate(case.states):
            single = case.prior.propose(state, num, alone[i])
            k = single.x.shape[0]  # in a batch, a clip that has not handed over repeats its one frame
            for name in ("x", "q", "memory"):
                assert np.array_equal(getattr(together, name)[i, :k], getattr(single, name))


@every_prior
def test_batches_of_any_shape(case):
    state = batch([*case.states, *case.states])
    square = state.map(lambda values: values.reshape(2, 3, *values.shape[1:]))
    seeds = list(range(6))
    together, wide = (
        case.prior.propose(state, 3, Streams(seeds)),
        case.prior.propose(square, 3, Streams(seeds).unflatten(2, 3)),
    )
    assert np.array_equal(wide.x.reshape(together.x.shape), together.x)


def turned(prior: Prior, state: State, R: np.ndarray, shift: np.ndarray) -> State:
    """The same person elsewhere: turned about z and moved over the ground."""
    q = np.concatenate((R @ state.q[..., :1, :, :], state.q[..., 1:, :, :]), axis=-3)
    return State(state.x @ R.T + shift, state.v @ R.T, q, prior.turn_memory(state.memory, R))


@pytest.mark.parametrize("case", [*CVAES, "passive", "a user's network", "field"], indirect=True)
@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0, -3.1])
def test_the_world_can_be_moved_and_turned(case, angle):
    R = exp(np.array([0.0, 0.0, angle]))
    shift = np.array([3.0, -2.0, 0.0])
    state = case.states[2]
    here = case.prior.propose(state, 4, Streams(5))
    there = case.prior.propose(turned(case.prior, state, R, shift), 4, Streams(5))
    expected = turned(case.prior, State(here.x, here.x, here.q, here.memory), R, shift)
    np.testing.assert_allclose(there.x, expected.x, **CLOSE)
    np.testing.assert_allclose(there.q, expected.q, **CLOSE)
    np.testing.assert_allclose(
        there.memory, expected.memory, rtol=0, atol=30 * CLOSE["atol"]
    )  # velocities: differences times 30 Hz


@every_prior
def test_a_start_from_a_motion_is_its_frame_with_the_velocity_that_led_there(case):
    for frame, state in zip(FRAMES, case.states, strict=True):
        assert np.array_equal(state.x, CLIP.joints[frame])
        assert np.array_equal(state.q, CLIP.q[frame])
        np.testing.assert_allclose(
            state.v, (CLIP.joints[frame] - CLIP.joints[frame - 1]) * CLIP.fps, rtol=0, atol=1e-12
        )


@every_prior
def test_a_start_needs_a_frame_before_it(case):
    for frame in (-1, 0, len(CLIP)):
        with pytest.raises(ValueError, match="give one from 1 to 59"):
            case.prior.start_from(CLIP, frame)


@pytest.mark.parametrize("case", [*CVAES, "passive", "a user's"], indirect=True)
def test_a_motion_of_another_rate_is_resampled_before_the_start(case):
    dense = CLIP.resampled(60.0)
    state = case.prior.start_from(dense, 10)
    np.testing.assert_allclose(state.x, CLIP.joints[10], rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", [*CVAES, "passive", "a user's", "a user's network"], indirect=True)
def test_a_start_of_a_category_stands_on_the_floor_and_faces_forward(case):
    state = case.prior.start("walk", [0, 1, 2])
    low = (state.x[..., 2] - case.prior.skeleton.radii).min(-1)
    assert (np.abs(low) < 0.03).all()
    assert np.abs(state.x[:, 0, :2]).max() < 1e-6
    assert (-state.q[:, 0, 0, 0] > 0.99).all()  # the body's left is world -x
    assert np.array_equal(case.prior.start("walk", 1).x, state.x[1])
    candidates = case.prior.propose(state, 2, Streams([0, 1, 2]))
    assert candidates.memory.shape[-1] == state.memory.shape[-1]


@every_prior
def test_an_intent_changes_the_candidates_of_those_who_take_one(case):
    # Unknown to the last bit as none; a known one leads elsewhere if the prior says that it takes one.
    state = batch(case.states)
    none, unknown, known = (
        case.prior.propose(state, 4, Streams([1, 2, 3]), intent).x
        for intent in (None, Intent.unknown(3), Intent.toward(np.array([[2.0, 0.0], [0.0, -2.0], [-1.0, 0.0]])))
    )
    assert np.array_equal(none, unknown)
    assert case.prior.takes_intent or np.array_equal(none, known)
    assert not case.prior.takes_intent or not np.array_equal(none, known)


@pytest.mark.parametrize("category", ["stand", "walk"])
def test_the_shipped_prior_knows_the_floor(category):
    # Nothing holds the prior up but what it has learnt: a second of its mode sinks a foot's sphere by no more than its
    # radius.
    prior = CVAEPrior.shipped()
    motion = roll_out(prior, prior.start(category, list(range(4))), 30, Streams([0, 1, 2, 3]), mode=True)
    low = (motion.joints[..., 2] - prior.skeleton.radii).min(-1)
    assert low.min() > -0.03
    assert low.max() < 0.08


@every_cvae
def test_no_candidates_and_states_of_another_prior_are_refused(case):
    state = case.states[0]
    with pytest.raises(ValueError, match="at least 1"):
        case.prior.propose(state, 0, Streams(0))
    with pytest.raises(ValueError, match="memory is of another prior"):
        case.prior.propose(State(state.x, state.v, state.q, np.zeros(3)), 2, Streams(0))


def test_one_candidate_is_picked_for_each_person():
    candidates = tiny(kinematic=True).propose(
        batch([tiny(kinematic=True).start_from(CLIP, f) for f in FRAMES]), 4, Streams([0, 1, 2])
    )
    chosen = candidates.pick(np.array([3, 0, 2]))
    assert np.array_equal(chosen.x, candidates.x[[0, 1, 2], [3, 0, 2]])
    assert not np.shares_memory(candidates.pick(1).q, candidates.q)


def class_in_the_docs(name: str, **names: object) -> type[Prior]:
    """Run a class of docs/your-own-prior.md."""
    page = (Path(__file__).parents[2] / "docs" / "your-own-prior.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"```python\n(class {name}\(.*?)```", page, re.DOTALL)
    names |= {"np": np, "Prior": Prior, "State": State, "Candidates": Candidates}
    names |= {"heading": heading, "transpose": transpose, "exp": exp}
    exec(code, names)  # our own documentation
    return names[name]


def test_the_lines_around_a_model_in_the_docs_are_a_prior():
    torch = pytest.importorskip("torch")

    def net(pose, z):
        seen = torch.tanh(pose.flatten(-2).unsqueeze(-2) + z.sum(-1, keepdim=True))
        return 0.01 * seen[..., :3], 0.01 * seen[..., :66].unflatten(-1, (22, 3))

    prior = class_in_the_docs("Wrapped", torch=torch)(net, CLIP.skeleton)
    state = prior.start("stand", [0, 1])
    ours, theirs = Wrapped().propose(state, 3, Streams([0, 1])), prior.propose(state, 3, Streams([0, 1]))
    np.testing.assert_allclose(theirs.x, ours.x, **CLOSE)
    after, _ = Simulator(prior).step(state, StepInputs(), Streams([0, 1]))
    assert np.isfinite(after.x).all()


def test_the_two_priors_in_one_of_the_docs_propose_what_each_would():
    field, ours = MotionField(bank_of(), CLIP.skeleton), tiny(CLIP.skeleton, kinematic=True)
    prior = class_in_the_docs("Both")(field, ours)
    both = prior.propose(prior.start_from(CLIP, 20), 8, Streams(3))
    rng = Streams(3)  # the priors draw one after the other
    # Of two frames, none knows how people came there.
    alone = [part.propose(Prior.start_from(part, CLIP, 20), 4, rng).x for part in (field, ours)]
    assert np.array_equal(both.x, np.concatenate(alone))
    after, _ = Simulator(prior).step(prior.start("walk", [0, 1]), StepInputs(), Streams([0, 1]))
    assert np.isfinite(after.x).all()
