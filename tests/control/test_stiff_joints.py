"""What people with stiff joints are proposed, and how they walk."""

import math

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.compute.random import Streams
from dropsim.control.stiff_joints import FARTHEST_OUT, STANDING, StiffStage
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import metrics
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import Candidates
from dropsim.scene import Person, Scene, StiffJoint, World, run
from dropsim.scene.scenarios import scenario

SKELETON = Skeleton.adult()
KNEE, ANKLE, FOOT, HIP = (joint_index(f"right_{part}") for part in ("knee", "ankle", "foot", "hip"))
LEG = [KNEE, ANKLE, FOOT]
HIGH = -10.0
"""A floor so low that no leg reaches it."""


@pytest.fixture(scope="module")
def steps() -> Candidates:
    """The frames of somebody who steps on the spot, as candidates of one person."""
    clip = stepping_clip(2.0)
    return Candidates(clip.joints, clip.q, np.zeros((len(clip), 1)))


def only(*joints: int) -> np.ndarray:
    mask = np.zeros(NUM_JOINTS, dtype=np.bool_)
    mask[list(joints)] = True
    return mask


def straightened(candidates: Candidates, stiff: np.ndarray, floor: float = HIGH, share: float = 1.0) -> Candidates:
    return StiffStage(stiff, SKELETON, np.full(stiff.shape[:-1], floor), share).change(candidates, 0)


def angle_of(x: np.ndarray, a: int, b: int, c: int) -> np.ndarray:
    """Angle between two bones that meet at a joint [rad]; 0 is straight."""
    near, far = x[..., b, :] - x[..., a, :], x[..., c, :] - x[..., b, :]
    cosine = (near * far).sum(-1) / np.linalg.norm(near, axis=-1) / np.linalg.norm(far, axis=-1)
    return np.arccos(np.clip(cosine, -1, 1))


def test_a_stiff_leg_is_straight_and_nothing_else_moves(steps):
    found = straightened(steps, only(KNEE))
    assert angle_of(steps.x, HIP, KNEE, ANKLE).max() > 0.5
    assert angle_of(found.x, HIP, KNEE, ANKLE).max() < 1e-6
    others = [j for j in range(NUM_JOINTS) if j not in LEG]
    np.testing.assert_allclose(found.x[:, others], steps.x[:, others], rtol=0, atol=1e-9)
    assert SKELETON.bone_error(found.x).max() < 1e-9
    assert found.memory is steps.memory


def test_a_joint_that_stiffens_is_straightened_by_its_share(steps):
    bends = [angle_of(straightened(steps, only(KNEE), share=share).x, HIP, KNEE, ANKLE) for share in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(bends[0], angle_of(steps.x, HIP, KNEE, ANKLE), rtol=0, atol=1e-6)
    bent = bends[0] > 0.3
    np.testing.assert_allclose(bends[1][bent], 0.5 * bends[0][bent], rtol=0.05)


@pytest.mark.parametrize("height", [0.0, 0.4])
def test_a_stiff_leg_is_swung_out_of_the_floor(height, steps):
    # Somebody who stands 8 cm too deep for a straight leg.
    low = Candidates(steps.x + np.array([0.0, 0.0, height - 0.08]), steps.q, steps.memory)
    found = straightened(low, only(KNEE), height)
    # The turn is exact for the ankle; the toes, which it lowers or lifts a little, may stay some millimetres deep.
    assert (found.x[:, [ANKLE, FOOT], 2].min(-1) - height).min() > STANDING - 0.01
    # A person of the clip faces +y, with the right at +x.
    outward = found.x[:, ANKLE, 0] - found.x[:, HIP, 0]
    assert outward.max() > 0.1
    assert np.arctan2(outward, found.x[:, HIP, 2] - found.x[:, ANKLE, 2]).max() < FARTHEST_OUT + 0.1


def test_people_whose_joints_bend_keep_their_candidates(steps):
    both = Candidates(*(np.stack((v, v)) for v in (steps.x, steps.q, steps.memory)))
    found = straightened(both, np.stack((only(), only(KNEE))))
    assert np.array_equal(found.x[0], steps.x)
    assert np.array_equal(found.q[0], steps.q)
    assert not np.array_equal(found.x[1], steps.x)
    assert np.array_equal(both.q[1], steps.q)


def test_a_stiff_elbow_is_straight():
    prior, elbow = CVAEPrior.shipped(), joint_index("left_elbow")
    found = straightened(prior.propose(prior.start("run", seed=0), 4, Streams(0)), only(elbow))
    assert angle_of(found.x, 16, elbow, 20).max() < 1e-6


def test_a_stiff_ankle_is_straight_though_it_is_bent_at_rest(steps):
    assert angle_of(straightened(steps, only(ANKLE)).x, KNEE, ANKLE, FOOT).max() < 1e-6


def test_a_stiff_leg_of_somebody_who_lies_is_not_swung_out(steps):
    q = steps.q[:1].copy()
    q[:, 0] = exp(np.array([math.pi / 2, 0.0, 0.0])) @ q[:, 0]
    lying = Candidates(SKELETON.forward(q, np.array([[0.0, 0.0, 0.02]])), q, steps.memory[:1])
    assert np.array_equal(straightened(lying, only(KNEE), 0.0).q[:, HIP], q[:, HIP])


@pytest.mark.slow
def test_people_walk_on_a_stiff_knee():
    motion = run(scenario("stiff-knee").world(), 120, [0, 1]).motions[0]
    late = motion.slice(15, 120)
    assert angle_of(late.joints, HIP, KNEE, ANKLE).max() < 0.35
    assert metrics.root_speed(late).mean(-1).min() > 0.6
    assert not metrics.fallen(motion).any()
    # They neither throw their arms up nor kick: with the bend left in the candidates, they did within two seconds.
    wrists = late.joints[..., [joint_index("left_wrist"), joint_index("right_wrist")], 2].max(-1)
    assert (wrists < late.joints[..., joint_index("head"), 2]).all()
    assert late.joints[..., [7, 8], 2].max() < 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("limb", "most"), [(("right_hip", "right_ankle"), 10.0), (("left_shoulder", "left_wrist"), 8.5)])
def test_a_limb_that_is_bent_when_it_stiffens_does_not_snap(limb, most):
    # Runners bend knees and elbows by up to a right angle and more, and move their limbs at up to 8 m/s. Straightened at once, a leg here
    # snaps at 19 m/s and an arm at 9.8 m/s.
    world = World(
        Scene((Person("run"),), (StiffJoint(*limb, start=0.5),)), Simulator(CVAEPrior.shipped(), options=SimulatorOptions(num_samples=8))
    )
    motion = run(world, 60, list(range(8))).motions[0]
    a, b = map(joint_index, limb)
    middle = {ANKLE: KNEE, joint_index("left_wrist"): joint_index("left_elbow")}[b]
    bends = angle_of(motion.joints, a, middle, b)
    assert bends[:, 15].max() > 0.8
    upright = ~metrics.fallen(motion).any(-1)  # an arm that is caught below a body cannot be straight
    assert upright.sum() >= 6
    assert bends[upright, -15:].max() < 0.6
    speeds = np.linalg.norm(np.diff(motion.joints, axis=-3), axis=-1) * motion.fps
    assert speeds[:, 14:].max() < most
