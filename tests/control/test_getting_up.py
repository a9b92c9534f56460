"""Lying and getting up."""

from dataclasses import replace

import pytest
import torch

from dropsim.body.skeleton import joint_index
from dropsim.control.getting_up import LIMP_AFTER, NUM_STAGES, WAYS, Fallen, _rotations, next_wish
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import Candidates, State
from dropsim.scene import Person, Push, Scene, World, run
from dropsim.scene.scenarios import scenario


@pytest.fixture(scope="module")
def prior() -> CVAEPrior:
    return CVAEPrior.shipped()


@pytest.fixture(scope="module")
def knocked_down(prior: CVAEPrior) -> Motion:
    """Three people who are pushed over, to the front and to the back."""
    front, back = (Push.toward(direction, 700.0, start=0.2) for direction in ("front", "back"))
    world = World(Scene((Person("stand"), Person("stand", (5.0, 0.0))), (front, replace(back, person=1))), Simulator(prior, num_samples=8))
    first, second = run(world, 260, [3, 4]).motions
    return replace(first, root=torch.cat((first.root, second.root)), q=torch.cat((first.q, second.q)),
                   joints=torch.cat((first.joints, second.joints)), contacts=None, contact_forces=None, external_forces=None,
                   root_wrench=None, energies={})  # fmt: skip


def lying_on(prior: CVAEPrior, side: str) -> State:
    """Somebody who lies flat on the belly or the back, at rest."""
    angle = 0.0 if side == "belly" else torch.pi
    # Rest up to +y, rest front down; on the back it is turned about the long axis.
    q = torch.eye(3, dtype=torch.float64).repeat(22, 1, 1)
    down = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    c, s = torch.cos(torch.tensor(angle)).double(), torch.sin(torch.tensor(angle)).double()
    roll = torch.tensor([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]], dtype=torch.float64)
    q[0] = roll @ down
    x = prior.skeleton.forward(q, torch.zeros(3, dtype=torch.float64))
    x[:, 2] -= (x[:, 2] - prior.skeleton.radii).min()
    return State(x, torch.zeros_like(x), q, torch.zeros(prior.network.shape.memory_size, dtype=torch.float64))


def later(prior: CVAEPrior, state: State, frames: int, floor: float = 0.0) -> tuple[Fallen, Candidates]:
    """What somebody wishes for who has lain there for some frames."""
    fallen, wish = Fallen.nobody(state), None
    for _ in range(frames):
        fallen, wish = next_wish(fallen, state, torch.tensor(floor, dtype=torch.float64), prior)
    assert wish is not None
    return fallen, wish


@pytest.mark.parametrize("way", WAYS)
def test_the_poses_bend_knees_and_elbows_the_human_way(way, prior):
    for pose in way:
        joints = prior.skeleton.forward(_rotations(pose, prior.skeleton), torch.zeros(3, dtype=torch.float64))
        assert prior.skeleton.bone_error(joints) < 1e-9
        for side in ("left", "right"):
            hip, knee, ankle = (joints[joint_index(f"{side}_{part}")] for part in ("hip", "knee", "ankle"))
            # A knee lies to the front of the line from hip to ankle; the pose faces +y and leans by less than a right angle.
            shoulder, elbow, wrist = (joints[joint_index(f"{side}_{part}")] for part in ("shoulder", "elbow", "wrist"))
            for near, middle, far, sign in ((hip, knee, ankle, 1.0), (shoulder, elbow, wrist, -1.0)):
                turn = torch.linalg.cross(middle - near, far - middle)[0]  # about +x, a body's right
                assert sign * -turn > -0.01


def test_who_falls_lies_and_gets_up(knocked_down):
    lay, up = metrics.fallen(knocked_down), metrics.upright(knocked_down)
    assert lay.any(-1).all()
    assert up[:, -1].all()
    # They lie before they rise: at some time the joints move slower than anybody who walks.
    speed = knocked_down.joints.diff(dim=1).norm(dim=-1).mean(-1) * knocked_down.fps
    assert torch.stack([s[low[1:]].min() for s, low in zip(speed, lay, strict=True)]).max() < 0.5


def test_they_stay_on_the_floor_and_whole_meanwhile(knocked_down):
    assert float(metrics.bone_error_percent(knocked_down).max()) < 1.0
    assert float(metrics.sphere_heights(knocked_down)[:, 1:].min()) > -0.02
    lying = metrics.fallen(knocked_down)
    off = metrics.sphere_heights(knocked_down).amin(-1)[lying] > 0.05
    assert off.double().mean() < 0.12  # in the fall itself


@pytest.mark.parametrize(("side", "way"), [("belly", 0), ("back", 1)])
def test_the_way_up_follows_the_side_one_lies_on(side, way, prior):
    fallen, _ = later(prior, lying_on(prior, side), 30)
    assert int(fallen.way) == way
    assert int(fallen.stage) >= 0


def test_a_limp_body_sinks_and_keeps_its_shape(prior):
    state = lying_on(prior, "belly")
    _, wish = later(prior, state, LIMP_AFTER + 1)
    step = wish.x[0] - state.x
    assert torch.allclose(step, step[:1].expand_as(step))
    assert step[0, 2] < 0


def test_who_stands_is_left_to_the_prior(prior):
    state = prior.start("walk", seed=[1, 2])
    fallen, wish = next_wish(Fallen.nobody(state), state, torch.zeros(2, dtype=torch.float64), prior)
    assert wish is None
    assert not fallen.limp_or_rising.any()


def test_who_is_knocked_over_while_rising_goes_limp_again(prior):
    fallen, _ = later(prior, lying_on(prior, "belly"), 30)
    assert int(fallen.stage) >= 0
    fallen, wish = next_wish(fallen, lying_on(prior, "back"), torch.zeros((), dtype=torch.float64), prior)
    assert int(fallen.stage) == -1
    assert wish is not None


def test_a_raised_floor_changes_nothing_but_the_height(prior):
    low = lying_on(prior, "back")
    high = replace(low, x=low.x + torch.tensor([0.0, 0.0, 1.5], dtype=torch.float64))
    wishes = []
    for state, floor in ((low, 0.0), (high, 1.5)):
        _, wish = later(prior, state, 35, floor)
        wishes.append(wish.x - torch.tensor([0.0, 0.0, floor], dtype=torch.float64))
    assert torch.allclose(*wishes, atol=1e-9)


def test_every_stage_has_its_time_and_both_ways_are_as_long():
    assert {len(way) for way in WAYS} == {NUM_STAGES}
    assert all(pose.seconds > 0.3 for way in WAYS for pose in way)


@pytest.mark.parametrize("options", [{"wish_mode": True, "num_samples": 8}, {"num_samples": 1}], ids=["the mode", "no samples"])
def test_who_wishes_for_the_mode_gets_up_too(options, prior):
    push = Push.toward("back", 700.0, start=0.2)
    motion = run(World(Scene((Person("stand"),), (push,)), Simulator(prior, **options)), 260, [3, 4]).motions[0]
    assert metrics.lying(motion.joints, prior.skeleton).any(-1).all()
    assert metrics.upright(motion)[:, -1].all()


def test_who_is_pushed_out_of_a_somersault_gets_up():
    setup = scenario("backflip-push")
    world = replace(setup, simulator=replace(setup.simulator, num_samples=8)).world()
    motion = run(world, setup.num_frames(world.fps), [0, 1, 2]).motions[0]
    assert metrics.lying(motion.joints, motion.skeleton).any(-1).all()
    assert metrics.upright(motion)[:, -1].all()
    # Nobody flies off after the landing.
    assert (motion.joints[..., 2] - motion.skeleton.radii).amin(-1)[:, 75:].max() < 0.2
