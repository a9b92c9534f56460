"""The contract of a prior, over every prior; and what each promises beyond it."""

from dataclasses import dataclass

import pytest
import torch

from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.cvae import VELOCITY_SIZE, CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Prior, State, Streams
from dropsim.priors.recording import ClipPrior
from dropsim.priors.rollout import roll_out

CLIP = stepping_clip(2.0)
FRAMES = (5, 20, 33)
# The networks compute in single precision on numbers of order one; a state passes through a few such operations.
CLOSE = {"rtol": 0.0, "atol": 2e-5}


def tiny(**variant) -> CVAEPrior:
    """A random network whose deltas are of the size of a frame's."""
    torch.manual_seed(0)
    network = CVAENetwork(CVAEShape(latent=4, decoder=(32, 32), prior=(32,), groups=4, **variant))
    network.output_scale.fill_(0.01)
    return CVAEPrior(network, Skeleton.adult())


@dataclass(frozen=True)
class Case:
    prior: Prior
    states: list[State]


def case_of(name: str) -> Case:
    if name == "passive":
        prior = PassivePrior(CLIP.skeleton)
        return Case(prior, [prior.start_at_rest(CLIP.joints[f], CLIP.q[f]) for f in FRAMES])
    if name.startswith("clip"):
        prior = ClipPrior(CLIP, then=tiny(kinematic=True), handover=20) if name == "clip, then ours" else ClipPrior(CLIP)
        motion, states, state = CLIP, [], prior.start()
        for frame in range(1, max(FRAMES) + 1):
            chosen = prior.sample(state, 1, Streams(0)).pick(torch.tensor(0))
            state = State(chosen.x, (chosen.x - state.x) * motion.fps, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
            if frame in FRAMES:
                states.append(state)
        return Case(prior, states)
    variants = {"ours": {"kinematic": True}, "humor": {}, "humor, joints by kinematics": {"joints_from_kinematics": True}}
    prior = tiny(**variants[name])
    return Case(prior, [prior.start_from(CLIP, f) for f in FRAMES])


CVAES = ("ours", "humor", "humor, joints by kinematics")
EVERY = (*CVAES, "clip", "clip, then ours", "passive")
every_prior = pytest.mark.parametrize("case", EVERY, indirect=True)
every_cvae = pytest.mark.parametrize("case", CVAES, indirect=True)


@pytest.fixture
def case(request) -> Case:
    return case_of(request.param)


def batch(states):
    return State(*(torch.stack([getattr(s, f) for s in states]) for f in ("x", "v", "q", "memory")))


@every_prior
def test_candidates_are_frames_of_the_same_body(case):
    state = batch(case.states)
    candidates = case.prior.sample(state, 5, Streams([1, 2, 3]))
    k = candidates.x.shape[1]
    assert 1 <= k <= 5  # a prior without chance has one
    assert candidates.x.shape == (3, k, 22, 3)
    assert candidates.q.shape == (3, k, 22, 3, 3)
    assert candidates.memory.shape == (3, k, state.memory.shape[-1])
    assert candidates.x.dtype == state.x.dtype
    assert candidates.x.isfinite().all()
    torch.testing.assert_close(candidates.q @ candidates.q.transpose(-1, -2), torch.eye(3).expand_as(candidates.q).double(), **CLOSE)
    chosen = candidates.pick(torch.zeros(3, dtype=torch.long))
    assert case.prior.commit(chosen, chosen.x, chosen.q).shape == state.memory.shape


@every_prior
def test_the_first_candidate_is_the_mode_whatever_the_chance(case):
    state = case.states[1]
    alone = case.prior.sample(state, 1, Streams(7))
    among = case.prior.sample(state, 6, Streams(8))
    for name in ("x", "q", "memory"):
        torch.testing.assert_close(getattr(among, name)[0], getattr(alone, name)[0], **CLOSE)


@every_prior
def test_the_same_seed_gives_the_same_candidates(case):
    state = batch(case.states)
    first, again = (case.prior.sample(state, 4, Streams([3, 4, 5])) for _ in range(2))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.memory, again.memory)


@every_cvae
def test_another_seed_gives_other_candidates(case):
    first, other = (case.prior.sample(case.states[0], 3, Streams(seed)).x for seed in (0, 1))
    assert torch.equal(first[0], other[0])
    assert (first[1:] - other[1:]).abs().amax() > 1e-4
    assert (first[1] - first[2]).abs().amax() > 1e-4


@every_prior
def test_a_batch_is_what_its_members_are_alone(case):
    seeds = [11, 12, 13]
    rng, alone = Streams(seeds), [Streams(seed) for seed in seeds]
    for _ in range(2):  # the second draw goes on in each stream
        together = case.prior.sample(batch(case.states), 4, rng)
        for i, state in enumerate(case.states):
            single = case.prior.sample(state, 4, alone[i])
            k = single.x.shape[0]  # in a batch, a clip that has not handed over repeats its one frame
            for name in ("x", "q", "memory"):
                torch.testing.assert_close(getattr(together, name)[i, :k], getattr(single, name), **CLOSE)


def turned(state: State, R: torch.Tensor, shift: torch.Tensor) -> State:
    """The same person elsewhere: turned about z and moved over the ground."""
    memory = state.memory
    if memory.shape[-1] >= VELOCITY_SIZE:
        # HuMoR's drift of trans, behind the velocities, is a vector too; our joints' own angular velocities are not.
        size = memory.shape[-1] if memory.shape[-1] == VELOCITY_SIZE + 3 else VELOCITY_SIZE
        vectors = (memory[..., :size].unflatten(-1, (-1, 3)) @ R.T).flatten(-2)
        memory = torch.cat((vectors, memory[..., size:]), dim=-1)
    q = torch.cat((R @ state.q[..., :1, :, :], state.q[..., 1:, :, :]), dim=-3)
    return State(state.x @ R.T + shift, state.v @ R.T, q, memory)


@pytest.mark.parametrize("case", [*CVAES, "passive"], indirect=True)
@pytest.mark.parametrize("angle", [0.4, 2.0, -3.1])
def test_the_world_can_be_moved_and_turned(case, angle):
    R = exp(torch.tensor([0.0, 0.0, angle], dtype=torch.float64))
    shift = torch.tensor([3.0, -2.0, 0.0], dtype=torch.float64)
    state = case.states[2]
    here = case.prior.sample(state, 4, Streams(5))
    there = case.prior.sample(turned(state, R, shift), 4, Streams(5))
    expected = turned(State(here.x, here.x, here.q, here.memory), R, shift)
    torch.testing.assert_close(there.x, expected.x, **CLOSE)
    torch.testing.assert_close(there.q, expected.q, **CLOSE)
    torch.testing.assert_close(there.memory, expected.memory, rtol=0, atol=30 * CLOSE["atol"])  # velocities: differences times 30 Hz


@every_cvae
@pytest.mark.parametrize("number", [0, -1])
def test_no_samples_are_refused(case, number):
    with pytest.raises(ValueError, match="at least 1"):
        case.prior.sample(case.states[0], number, Streams(0))


def test_our_joints_stay_on_their_bones():
    # Joints by forward kinematics: bones are whole to single precision, however long the roll-out.
    prior = tiny(kinematic=True)
    motion = roll_out(prior, prior.start_from(CLIP, 5), 60, Streams(0))
    assert prior.skeleton.bone_error(motion.joints).amax() < 1e-5


def test_our_memory_is_the_velocity_of_the_step():
    # Velocities are differences of the frames, so that starting anew from two frames is going on.
    prior = tiny(kinematic=True)
    motion = roll_out(prior, prior.start_from(CLIP, 5), 4, Streams(0))
    state = prior.start_from(CLIP, 5)
    rng = Streams(0)
    for _ in range(3):
        chosen = prior.sample(state, 2, rng).pick(torch.tensor(1))
        state = State(chosen.x, (chosen.x - state.x) * prior.fps, chosen.q, chosen.memory)
    # Differences of single-precision places, times 30 Hz.
    torch.testing.assert_close(prior.start_from(motion, 3).memory, state.memory, rtol=0, atol=1e-3)


def test_a_start_needs_a_frame_before_it():
    with pytest.raises(ValueError, match="give one from 1 to 59"):
        tiny(kinematic=True).start_from(CLIP, 0)


def test_a_clip_is_followed_exactly():
    prior = ClipPrior(CLIP)
    motion = roll_out(prior, prior.start(), len(CLIP), Streams(0), mode=True)
    assert torch.equal(motion.joints, CLIP.joints)
    assert torch.equal(motion.q, CLIP.q)


def test_a_clip_stays_at_its_end():
    short = CLIP.slice(0, 4)
    prior = ClipPrior(short)
    motion = roll_out(prior, prior.start(), 7, Streams(0), mode=True)
    assert torch.equal(motion.joints[3:], short.joints[3:].expand(4, -1, -1))


def test_a_clip_hands_over_at_the_frame():
    ours = tiny(kinematic=True)
    prior = ClipPrior(CLIP, then=ours, handover=20)
    motion = roll_out(prior, prior.start(), 30, Streams(0), mode=True)
    assert torch.equal(motion.joints[:21], CLIP.joints[:21])
    alone = roll_out(ours, ours.start_from(CLIP, 20), 10, Streams(0), mode=True)
    torch.testing.assert_close(motion.joints[20:], alone.joints, **CLOSE)
    assert (motion.joints[21] - CLIP.joints[21]).abs().amax() > 1e-4


@pytest.mark.parametrize("handover", [0, len(CLIP)])
def test_a_handover_outside_the_clip_is_refused(handover):
    with pytest.raises(ValueError, match="cannot hand over"):
        ClipPrior(CLIP, then=tiny(kinematic=True), handover=handover)


def test_a_clip_prior_follows_one_person():
    crowd = type(CLIP)(CLIP.skeleton, CLIP.fps, CLIP.root[None], CLIP.q[None], CLIP.joints[None])
    with pytest.raises(ValueError, match="one recording"):
        ClipPrior(crowd)


def test_a_passive_body_wishes_to_stay():
    prior = PassivePrior(CLIP.skeleton)
    state = prior.start_at_rest(CLIP.joints[3], CLIP.q[3])
    assert not state.v.any()
    candidates = prior.sample(state, 8, Streams(0))
    assert torch.equal(candidates.x[0], state.x)
    assert torch.equal(candidates.q[0], state.q)
