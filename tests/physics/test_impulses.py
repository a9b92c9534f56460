"""What the prior learns of forces that act on the body."""

import pytest
import torch

from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.step import External, Simulator, apply_impulse, simulate
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import State, Streams
from dropsim.priors.recording import ClipPrior

CHANGE = torch.tensor([0.3, -0.2, 0.0], dtype=torch.float64)


class Unaware(CVAEPrior):
    """Does not notice that it is pushed."""

    def apply_impulse(self, memory, change):
        del change
        return memory


@pytest.fixture(scope="module")
def prior() -> CVAEPrior:
    return CVAEPrior.shipped()


def test_a_jolt_is_added_to_the_velocities_of_points_only(prior):
    memory = prior.start("walk", seed=[0, 1]).memory
    added = prior.apply_impulse(memory, CHANGE.expand(2, 3)) - memory
    vectors = added[..., :72].unflatten(-1, (24, 3))
    torch.testing.assert_close(vectors[:, 0], CHANGE.expand(2, 3))
    assert (vectors[:, 1] == 0).all()
    torch.testing.assert_close(vectors[:, 2:], CHANGE.expand(2, NUM_JOINTS, 3))
    assert (added[..., 72:] == 0).all()


def test_a_clip_passes_the_jolt_on_to_who_takes_over(prior):
    clip = ClipPrior(stepping_clip(1.0), then=prior, handover=10)
    memory = clip.start().memory
    found = clip.apply_impulse(memory, CHANGE)
    assert found[0] == memory[0]
    torch.testing.assert_close(found[1:], prior.apply_impulse(memory[1:], CHANGE))


def test_a_prior_without_velocities_does_not_notice():
    passive = PassivePrior(Skeleton.adult())
    memory = torch.zeros(4, 0, dtype=torch.float64)
    assert passive.apply_impulse(memory, CHANGE.expand(4, 3)) is memory


def test_the_change_is_the_impulse_over_the_mass_along_the_ground(prior):
    memory = prior.start("walk", seed=0).memory
    forces = torch.zeros(NUM_JOINTS, 3, dtype=torch.float64)
    forces[9] = torch.tensor([70.0, 0.0, 500.0])
    found = (apply_impulse(prior, memory, forces) - memory)[:3]
    expected = 70.0 / (float(prior.skeleton.masses.sum()) * prior.fps)
    torch.testing.assert_close(found, torch.tensor([expected, 0.0, 0.0], dtype=torch.float64))
    assert apply_impulse(prior, memory, torch.zeros_like(forces)) is memory


def test_who_notices_a_hit_goes_farther_with_it(prior):
    people = list(range(12))
    start = prior.start("walk", seed=people)
    joint = joint_index("spine3")

    def along(simulator: Simulator, newtons: float) -> torch.Tensor:
        def world(frame: int, state: State) -> External:
            forces = torch.zeros_like(state.x)
            forces[:, joint, 0] = newtons if frame == 5 else 0.0
            return External(forces=forces)

        motion = simulate(simulator, start, 25, Streams(people), world=world)
        return prior.skeleton.centre_of_mass(motion.joints)[:, -1, 0]

    aware, unaware = (
        Simulator(kind(prior.network, prior.skeleton, temperature=prior.temperature), num_samples=8) for kind in (CVAEPrior, Unaware)
    )
    moved = [(along(s, 1500.0) - along(s, 0.0)).median() for s in (aware, unaware)]
    assert moved[0] > 1.2 * moved[1] > 0.0
