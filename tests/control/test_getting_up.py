"""Getting up with a prior that knows nobody on the ground."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.compute.random import Streams
from dropsim.control.getting_up import get_up
from dropsim.motion.contacts import sphere_heights
from dropsim.physics import metrics
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import State
from dropsim.scene import Person, Scene, World, run

STEADY = 15
"""Frames for which people who got up are upright."""


@pytest.fixture(scope="module")
def prior() -> CVAEPrior:
    return CVAEPrior.shipped()


def lying(prior: CVAEPrior) -> State:
    """A batch of one who lies flat on the back, at rest."""
    q = np.tile(np.eye(3), (22, 1, 1))
    q[0] = exp(np.array([0.0, math.pi, 0.0])) @ np.diag([-1.0, 1.0, -1.0])
    x = prior.skeleton.forward(q, np.zeros(3))
    x[:, 2] -= (x[:, 2] - prior.skeleton.radii).min()
    return State(x[None], np.zeros_like(x[None]), q[None], np.zeros((1, prior.network.shape.memory_size)))


def test_people_who_lie_get_up_on_the_floor_and_whole(prior):
    world = World(Scene((Person("stand"),)), Simulator(prior, options=SimulatorOptions(num_samples=8)))
    motion = run(
        world, 150, range(2), start=world.start_from(lying(prior).map(lambda v: np.repeat(v[None], 2, 0)))
    ).motions[0]
    assert metrics.fallen(motion)[:, 0].all()
    assert metrics.sustained(metrics.upright(motion), STEADY).any()
    assert float(metrics.bone_error_percent(motion).max()) < 1.0
    assert float(sphere_heights(motion)[:, 1:].min()) > -0.02


def test_people_who_stand_are_left_to_the_prior(prior):
    assert get_up(None, prior.start("walk", seed=[1, 2]), prior, Streams([0, 1]), None) is None


def test_a_prior_of_another_rate_goes_on_as_it_can(prior):
    slow = CVAEPrior(prior.network, prior.skeleton, fps=prior.fps / 2)
    assert get_up(None, lying(prior), slow, Streams([0]), None) is None


def test_of_two_people_only_the_one_who_lies_is_changed_and_as_alone(prior):
    up, down = prior.start("walk", seed=[1]), lying(prior)
    both = State(*(np.concatenate(pair) for pair in zip(vars(up).values(), vars(down).values(), strict=True)))
    stage, stage_alone = get_up(None, both, prior, Streams([0, 1]), None), get_up(None, down, prior, Streams([1]), None)
    assert stage is not None
    memory, memory_alone = stage.remember(np.array([3, 2]), 4), stage_alone.remember(np.array([2]), 4)
    assert np.isnan(memory[0]).all()
    np.testing.assert_array_equal(memory[1], memory_alone[0])
    own = prior.propose(both, 4, Streams([0, 1]))
    changed, alone = stage.change(own), stage_alone.change(prior.propose(down, 4, Streams([1])))
    for name in ("x", "q", "memory"):
        np.testing.assert_array_equal(getattr(changed, name)[0], getattr(own, name)[0])
        np.testing.assert_array_equal(getattr(changed, name)[1], getattr(alone, name)[0])
    # The field's mode is the first, and is again behind it, where the iterations of priors start that do not at the mode.
    for i in range(2):
        np.testing.assert_array_equal(changed.x[1, i], stage.proposals.x[0, 0])
    np.testing.assert_array_equal(memory[1], stage.memory[0, 1])


def test_the_field_proposes_until_people_are_on_their_feet(prior):
    memory = get_up(None, lying(prior), prior, Streams([1]), None).remember(np.array([0]), 8)
    state = prior.start("stand", seed=[1])
    half_up = replace(state, x=state.x - np.array([0.0, 0.0, 0.3]))
    assert get_up(None, half_up, prior, Streams([1]), None) is None
    assert get_up(memory, half_up, prior, Streams([1]), None) is not None
    assert get_up(memory, state, prior, Streams([1]), None) is None
