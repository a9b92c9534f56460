"""What people with stiff joints wish for."""

import pytest
import torch

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, joint_index
from dropsim.control.stiff_joints import FARTHEST_OUT, STANDING, straightened
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import metrics
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import Candidates, Streams
from dropsim.scene import run
from dropsim.scene.scenarios import scenario

KNEE, ANKLE, FOOT, HIP = (joint_index(f"right_{part}") for part in ("knee", "ankle", "foot", "hip"))
LEG = [KNEE, ANKLE, FOOT]


@pytest.fixture(scope="module")
def prior() -> CVAEPrior:
    return CVAEPrior.shipped()


@pytest.fixture(scope="module")
def steps(prior: CVAEPrior) -> Candidates:
    """The frames of somebody who steps on the spot, as candidates of one person."""
    clip = stepping_clip(2.0)
    return Candidates(clip.joints, clip.q, torch.zeros(len(clip), 1, dtype=torch.float64))


def only(*joints: int) -> torch.Tensor:
    mask = torch.zeros(NUM_JOINTS, dtype=torch.bool)
    mask[list(joints)] = True
    return mask


def bend(x: torch.Tensor) -> torch.Tensor:
    """Angle of the right knee [rad]."""
    thigh, shank = x[..., KNEE, :] - x[..., HIP, :], x[..., ANKLE, :] - x[..., KNEE, :]
    return torch.acos(torch.nn.functional.cosine_similarity(thigh, shank, dim=-1).clamp(-1, 1))


def test_a_stiff_leg_is_straight_and_nothing_else_moves(prior, steps):
    found = straightened(steps, only(KNEE), prior.skeleton, None)
    assert bend(steps.x).max() > 0.5
    assert bend(found.x).max() < 1e-6
    others = [j for j in range(NUM_JOINTS) if j not in LEG]
    torch.testing.assert_close(found.x[:, others], steps.x[:, others], rtol=0, atol=1e-9)
    assert prior.skeleton.bone_error(found.x).max() < 1e-9


@pytest.mark.parametrize("height", [0.0, 0.4])
def test_a_stiff_leg_is_carried_out_of_the_floor(height, prior, steps):
    # Somebody who stands 8 cm too deep for a straight leg.
    drop = torch.tensor([0.0, 0.0, height - 0.08], dtype=torch.float64)
    low = Candidates(steps.x + drop, steps.q, steps.memory)
    found = straightened(low, only(KNEE), prior.skeleton, torch.tensor(height, dtype=torch.float64))
    # The turn is exact for the ankle; the toes, which it lowers or lifts a little, may stay some millimetres deep.
    assert (found.x[:, [ANKLE, FOOT], 2].amin(-1) - height).min() > STANDING - 0.01
    # A person of the clip faces +y, with the right at +x.
    outward = found.x[:, ANKLE, 0] - found.x[:, HIP, 0]
    assert outward.max() > 0.1
    assert (torch.atan2(outward, found.x[:, HIP, 2] - found.x[:, ANKLE, 2])).max() < FARTHEST_OUT + 0.1


def test_whose_joints_bend_keeps_the_candidates(prior, steps):
    both = Candidates(*(v.expand(2, *v.shape) for v in (steps.x, steps.q, steps.memory)))
    found = straightened(both, torch.stack((only(), only(KNEE))), prior.skeleton, None)
    assert torch.equal(found.x[0], steps.x)
    assert torch.equal(found.q[0], steps.q)
    assert not torch.equal(found.x[1], steps.x)


def test_a_stiff_elbow_is_straight(prior):
    state = prior.start("run", seed=0)
    elbow = joint_index("left_elbow")
    found = straightened(prior.sample(state, 4, Streams(0)), only(elbow), prior.skeleton, None)
    upper, fore = found.x[..., elbow, :] - found.x[..., 16, :], found.x[..., 20, :] - found.x[..., elbow, :]
    assert torch.nn.functional.cosine_similarity(upper, fore, dim=-1).min() > 1 - 1e-9


def test_a_stiff_ankle_is_straight_though_it_is_bent_at_rest(prior, steps):
    found = straightened(steps, only(ANKLE), prior.skeleton, None)
    shank, sole = found.x[..., ANKLE, :] - found.x[..., KNEE, :], found.x[..., FOOT, :] - found.x[..., ANKLE, :]
    assert torch.nn.functional.cosine_similarity(shank, sole, dim=-1).min() > 1 - 1e-9


def test_a_stiff_leg_of_somebody_who_lies_is_not_carried_out(prior, steps):
    q = steps.q[:1].clone()
    q[:, 0] = exp(torch.tensor([torch.pi / 2, 0.0, 0.0], dtype=torch.float64)) @ q[:, 0]
    root = torch.tensor([[0.0, 0.0, 0.02]], dtype=torch.float64)
    lying = Candidates(prior.skeleton.forward(q, root), q, steps.memory[:1])
    found = straightened(lying, only(KNEE), prior.skeleton, None)
    torch.testing.assert_close(found.q[:, HIP], q[:, HIP])


def test_people_walk_on_a_stiff_knee():
    setup = scenario("stiff-knee")
    world = setup.world()
    motion = run(world, 120, [0, 1, 2]).motions[0]
    late = motion.slice(15, 120)
    assert bend(late.joints).max() < 0.35
    assert metrics.root_speed(late).mean(-1).min() > 0.6
    assert not metrics.fallen(motion).any()
    # They neither throw their arms up nor kick: with the bend left in what they wish for, they did within two seconds.
    wrists = late.joints[..., [joint_index("left_wrist"), joint_index("right_wrist")], 2].amax(-1)
    assert (wrists < late.joints[..., joint_index("head"), 2]).all()
    assert late.joints[..., [7, 8], 2].max() < 0.6
