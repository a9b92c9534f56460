"""What the prior learns of forces that act on the body."""

import numpy as np
import pytest
from loops import simulate

from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.compute.random import Streams
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator, StepInputs, proposed_memory
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidates, State
from dropsim.priors.recording import ClipPrior

CHANGE = np.array([0.3, -0.2, 0.0])


class Unaware(CVAEPrior):
    """Does not notice that it is pushed."""

    def apply_impulse(self, memory, change):
        del change
        return memory


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


def test_a_prior_without_velocities_does_not_notice():
    memory = np.zeros((4, 0))
    assert PassivePrior(Skeleton.adult()).apply_impulse(memory, np.tile(CHANGE, (4, 1))) is memory


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


def test_people_go_with_a_hit_whether_their_prior_notices_it_or_not(prior):
    # 1500 N for a frame give 70 kg 0.7 m/s; feet can brake by about 2 m/s^2, which leaves more than half of the way
    # within 0.6 s.
    people = list(range(12))
    start = prior.start("walk", seed=people)
    joint = joint_index("spine3")

    def along(simulator: Simulator, newtons: float) -> np.ndarray:
        def world(frame: int, state: State) -> StepInputs:
            forces = np.zeros_like(state.x)
            forces[:, joint, 0] = newtons if frame == 5 else 0.0
            return StepInputs(forces=forces, colliders=(Plane.ground(),))

        motion = simulate(simulator, start, 25, Streams(people), world=world)
        return prior.skeleton.centre_of_mass(motion.joints)[:, -1, 0]

    aware, unaware = (
        Simulator(
            kind(prior.network, prior.skeleton, temperature=prior.temperature), options=SimulatorOptions(num_samples=8)
        )
        for kind in (CVAEPrior, Unaware)
    )
    moved = [np.median(along(s, 1500.0) - along(s, 0.0)) for s in (aware, unaware)]
    free = 1500.0 / prior.fps / prior.skeleton.masses.sum() * 19 / prior.fps
    assert 0.5 * free < min(moved) <= max(moved) < 1.2 * free
