"""A body keeps out of itself: momentum, bones and the floor hold at the same time."""

import numpy as np
import pytest
from loops import simulate

from dropsim.body.capsules import CAPSULES, PAIRS, deepest_overlap
from dropsim.body.joints import NUM_JOINTS, joint_index
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import metrics
from dropsim.physics import settle as settling
from dropsim.physics.contact import solids
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import State

H = 1 / 30
SKELETON = Skeleton.adult()
CAPSULE_RADII = SKELETON.arrays.capsules


def depth(x):
    out = np.empty(1)
    deepest_overlap(x[None], CAPSULE_RADII, out)
    return out[0]


def crossed(by):
    """Standing joints, and the same with the left shin moved toward the right one."""
    x = stepping_clip(0.2).joints[0]
    legs = [joint_index(f"left_{name}") for name in ("knee", "ankle", "foot")]
    gap = x[joint_index("right_ankle")] - x[joint_index("left_ankle")]
    y = x.copy()
    y[legs] += by * gap / np.linalg.norm(gap)
    settling.restore_person(y, SKELETON.lengths, SKELETON.arrays.mobility, 8)
    return x, y


def settled(x, before, colliders=()):
    around = solids(colliders, ())
    return settling.settle(x[None], before[None], SKELETON.arrays, around, np.zeros((1, 2)), 0.8, H)[0][0]


def test_pushing_capsules_apart_keeps_both_momenta(rng):
    # A pair is pushed along one line with opposite signs, in proportion to inverse masses: sum m dx = 0 and sum m x
    # cross dx = 0. The second holds to first order in dx, for pairs that are taken one after the other.
    for pair in range(len(PAIRS)):
        a, b, c, d = *CAPSULES[PAIRS[pair, 0]], *CAPSULES[PAIRS[pair, 1]]
        x = SKELETON.rest + 0.01 * rng.standard_normal((NUM_JOINTS, 3))
        x[[c, d]] += (x[[a, b]].mean(0) - x[[c, d]].mean(0)) + 0.02 * rng.standard_normal(3)
        y = x.copy()
        pushed = settling.keep_apart(y, CAPSULE_RADII, SKELETON.arrays.mobility, np.array([pair]), 1, np.zeros(1))
        moved = SKELETON.masses[:, None] * (y - x)
        assert pushed > 0.0
        assert np.linalg.norm(moved.sum(0)) < 1e-12
        assert np.linalg.norm(np.cross(x, moved).sum(0)) < 1e-12


def test_crossed_shins_come_apart_in_the_air():
    before, x = crossed(0.16)
    assert depth(before) == 0.0
    assert depth(x) > 0.02
    out = settled(x, before)
    assert depth(out) < settling.DEEP
    assert SKELETON.bone_error(out) < settling.STRETCHED
    np.testing.assert_allclose(SKELETON.centre_of_mass(out), SKELETON.centre_of_mass(x), atol=1e-12)


def test_what_overlaps_already_comes_out_at_a_speed():
    # A start out of a recording may be in itself; thrown out within a frame, its legs would fly apart.
    _, x = crossed(0.16)
    expected = depth(x) - settling.COMING_OUT * H
    assert depth(settled(x, x)) == pytest.approx(expected, abs=settling.DEEP)
    for _ in range(1 + int(depth(x) / (settling.COMING_OUT * H))):
        x = settled(x, x)
    assert depth(x) < settling.DEEP


def test_a_limp_body_that_is_thrown_keeps_out_of_itself():
    # No prior, no range of motion: limbs fly wherever the fall throws them.
    options = SimulatorOptions(kinematic=False, correct=False, num_samples=1)
    simulator, prior = Simulator(PassivePrior(SKELETON), options=options, pose=None), PassivePrior(SKELETON)
    start = prior.start_at_rest(np.stack([stepping_clip(0.2).joints[0]] * 6), np.stack([stepping_clip(0.2).q[0]] * 6))
    spread = np.random.default_rng(0).normal(0.0, 1.5, (6, NUM_JOINTS, 3))
    motion = simulate(simulator, State(start.x, start.v + spread, start.q, start.memory), 90, Streams(0))
    assert np.quantile(metrics.self_overlap_mm(motion), 0.99) < 10.0
    assert SKELETON.bone_error(motion.joints).max() < 0.01
    assert (motion.joints[..., 2] - SKELETON.radii).min() > -0.02
