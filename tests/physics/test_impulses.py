"""What the prior learns of forces that act on the body."""

import numpy as np
import pytest

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.step import proposed_memory
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import Candidates
from dropsim.priors.recording import ClipPrior

CHANGE = np.array([0.3, -0.2, 0.0])


@pytest.fixture(scope="module")
def prior() -> CVAEPrior:
    return CVAEPrior.shipped()


def test_an_impulse_is_added_to_the_velocities_of_points_only(prior):
    memory = prior.start("walk", seed=[0, 1]).memory
    added = prior.apply_impulse(memory, np.stack((CHANGE, CHANGE))) - memory
    vectors = added[..., :72].reshape(2, 24, 3)
    np.testing.assert_allclose(vectors[:, 0], [CHANGE] * 2, rtol=0, atol=1e-12)
    assert (vectors[:, 1] == 0).all()
    np.testing.assert_allclose(vectors[:, 2:], np.broadcast_to(CHANGE, (2, NUM_JOINTS, 3)), rtol=0, atol=1e-12)
    assert (added[..., 72:] == 0).all()


def test_a_clip_passes_the_impulse_on_to_the_prior_that_takes_over(prior):
    clip = ClipPrior(stepping_clip(1.0), then=prior, handover=10)
    memory = clip.start().memory
    found = clip.apply_impulse(memory, CHANGE)
    assert found[0] == memory[0]
    assert np.array_equal(found[1:], prior.apply_impulse(memory[1:], CHANGE))


def test_the_change_is_the_impulse_over_the_mass_along_the_ground(prior):
    state = prior.start("walk", seed=[0])
    candidates = Candidates(state.x[:, None], state.q[:, None], state.memory[:, None])
    forces = np.zeros((1, NUM_JOINTS, 3))

    def remembered() -> np.ndarray:
        return proposed_memory(prior, candidates.pick(0), state.x, state.q, forces)

    assert np.array_equal(remembered(), prior.commit(candidates.pick(0), state.x, state.q))
    calm = remembered()
    forces[:, 9] = [70.0, 0.0, 500.0]
    expected = 70.0 / (float(prior.skeleton.masses.sum()) * prior.fps)
    np.testing.assert_allclose((remembered() - calm)[0, :3], [expected, 0.0, 0.0], rtol=0, atol=1e-12)
