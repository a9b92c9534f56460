"""The prior that follows a recording, and the one that wants nothing."""

import numpy as np
import pytest
from random_priors import batch, tiny

from dropsim.compute.random import Streams
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.intent import Intent
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Prior
from dropsim.priors.recording import ClipPrior
from dropsim.priors.rollout import roll_out

CLIP = stepping_clip(2.0)


def test_a_clip_is_followed_exactly():
    prior = ClipPrior(CLIP)
    motion = roll_out(prior, prior.start(), len(CLIP), Streams(0), mode=True)
    assert np.array_equal(motion.joints, CLIP.joints)
    assert np.array_equal(motion.q, CLIP.q)


def test_a_clip_stays_at_its_end():
    short = CLIP.slice(0, 4)
    prior = ClipPrior(short)
    motion = roll_out(prior, prior.start(), 7, Streams(0), mode=True)
    assert np.array_equal(motion.joints[3:], np.broadcast_to(short.joints[3:], (4, 22, 3)))


def test_a_clip_hands_over_at_the_frame():
    ours = tiny(kinematic=True)
    prior = ClipPrior(CLIP, then=ours, handover=20)
    motion = roll_out(prior, prior.start(), 30, Streams(0), mode=True)
    assert np.array_equal(motion.joints[:21], CLIP.joints[:21])
    alone = roll_out(ours, Prior.start_from(ours, CLIP, 20), 10, Streams(0), mode=True)  # of two frames
    assert np.array_equal(motion.joints[20:], alone.joints)
    assert np.abs(motion.joints[21] - CLIP.joints[21]).max() > 1e-4


def test_people_who_still_follow_do_not_notice_people_who_were_handed_over():
    # The random numbers of a person who follows stay untouched, so that their motion after the handover is the one they
    # have alone.
    prior = ClipPrior(CLIP, then=tiny(kinematic=True), handover=20)
    late, early = (prior.start_from(CLIP, frame) for frame in (30, 15))
    together = roll_out(prior, batch([late, early]), 15, Streams([1, 2]))
    alone = roll_out(prior, early, 15, Streams(2))
    assert np.array_equal(together.joints[1], alone.joints)


def test_the_intent_reaches_the_prior_that_takes_over():
    seen = []

    class Listening(type(tiny(kinematic=True))):
        def propose(self, state, num, rng, intent=None):
            seen.append(intent)
            return super().propose(state, num, rng, intent)

    ours = tiny(kinematic=True)
    prior = ClipPrior(CLIP, then=Listening(ours.network, ours.skeleton), handover=20)
    state = batch([prior.start_from(CLIP, frame) for frame in (5, 30)])
    prior.propose(state, 2, Streams([0, 1]), Intent.toward(np.array([[1.0, 0.0], [0.0, 2.0]])))
    assert np.array_equal(seen[0].velocity, [[0.0, 2.0]])


@pytest.mark.parametrize("handover", [0, len(CLIP)])
def test_a_handover_outside_the_clip_is_refused(handover):
    with pytest.raises(ValueError, match="cannot hand over"):
        ClipPrior(CLIP, then=tiny(kinematic=True), handover=handover)


def test_a_clip_prior_follows_one_person():
    crowd = type(CLIP)(CLIP.skeleton, CLIP.fps, CLIP.root[None], CLIP.q[None], CLIP.joints[None])
    with pytest.raises(ValueError, match="one recording"):
        ClipPrior(crowd)


def test_a_clip_prior_starts_from_its_own_recording_only():
    with pytest.raises(ValueError, match="its own recording only"):
        ClipPrior(CLIP).start_from(stepping_clip(1.0), 5)


def test_a_clip_of_another_rate_is_resampled_for_the_prior_that_takes_over():
    prior = ClipPrior(CLIP.resampled(60.0), then=tiny(kinematic=True))
    assert prior.fps == 30.0
    assert len(prior.motion) == len(CLIP)


def test_a_crowd_starts_in_the_same_frame():
    state = ClipPrior(CLIP).start("", [3, 4])
    assert state.x.shape == (2, 22, 3)
    assert np.array_equal(state.x[0], state.x[1])


def test_a_passive_body_stays():
    prior = PassivePrior(CLIP.skeleton)
    state = prior.start_at_rest(CLIP.joints[3], CLIP.q[3])
    assert not state.v.any()
    candidates = prior.propose(state, 8, Streams(0))
    assert np.array_equal(candidates.x[0], state.x)
    assert np.array_equal(candidates.q[0], state.q)
