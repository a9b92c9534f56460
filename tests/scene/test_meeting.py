"""People who run into each other."""

import torch

from dropsim.body.skeleton import Skeleton
from dropsim.physics.collider import Plane
from dropsim.physics.step import Report, Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import State
from dropsim.scene import Person, Scene, World, WorldState
from dropsim.scene.meeting import moved_apart, neighbours

BODY = Skeleton.adult()
FLOOR = Plane.ground()


def two(gap: float) -> State:
    """Two people of the bank, with their hips that far apart, off the floor."""
    one = CVAEPrior.shipped().start("walk", seed=[1, 2])
    x = one.x - one.x[:, :1] + torch.tensor([[[0.0, 0.0, 3.0]], [[gap, 0.05, 3.0]]], dtype=torch.float64)
    return State(x, one.v, one.q, one.memory)


def apart(state: State, body: Skeleton = BODY) -> tuple[torch.Tensor, torch.Tensor]:
    near = neighbours(state.x)
    assert near is not None
    return moved_apart(state.x, state.x, near, body, FLOOR, friction=0.8, h=1 / 30)


def deepest(x: torch.Tensor) -> float:
    reach = BODY.radii.unsqueeze(-1) + BODY.radii
    return float((reach - (x[0].unsqueeze(1) - x[1].unsqueeze(0)).norm(dim=-1)).max())


def test_people_who_overlap_are_moved_apart():
    state = two(0.2)
    x, _ = apart(state)
    assert deepest(state.x) > 0.08
    assert deepest(x) < 0.02
    assert float(BODY.bone_error(x).max()) < 1e-3


def test_what_one_gains_in_momentum_the_other_loses():
    # Newton's third law: the impulses of a pair are opposite, and restoring lengths changes no momentum.
    state = two(0.2)
    x, forces = apart(state)
    assert forces.abs().max() > 100
    assert torch.allclose(forces.sum((0, 1)), torch.zeros(3, dtype=torch.float64), atol=1e-9)
    gained = (BODY.masses.unsqueeze(-1) * (x - state.x)).sum(-2)
    assert gained[0, 0] < -0.1 < 0.1 < gained[1, 0]
    assert torch.allclose(gained[0], -gained[1], atol=1e-9)


def test_people_who_do_not_touch_stay_where_they_are():
    state = two(1.2)
    x, forces = apart(state)
    assert x is state.x
    assert not forces.any()


def test_people_far_apart_are_no_neighbours():
    assert neighbours(two(3.0).x) is None
    assert neighbours(two(3.0).x[:1]) is None


def test_only_mutual_neighbours_push_in_a_crowd():
    start = CVAEPrior.shipped().start("stand", seed=0)
    # So close that the first, whose nearest are the next four, overlaps the fifth, whose nearest are two on either side.
    places = torch.tensor([[0.1 * i, 0.02 * i, 2.0] for i in range(9)], dtype=torch.float64)
    x = (start.x - start.x[:1]).unsqueeze(0) + places.unsqueeze(1)
    near = neighbours(x)
    assert near is not None
    assert near.shape == (9, 4)
    _, forces = moved_apart(x, x, near, BODY, FLOOR, friction=0.8, h=1 / 30)
    assert torch.allclose(forces.sum((0, 1)), torch.zeros(3, dtype=torch.float64), atol=1e-8)


def test_worlds_side_by_side_are_what_each_is_alone():
    close, far = two(0.25), two(0.9)
    x = torch.stack((close.x, far.x))
    near = neighbours(x)
    assert near is not None
    together, _ = moved_apart(x, x, near, BODY, FLOOR, friction=0.8, h=1 / 30)
    assert torch.allclose(together[0], apart(close)[0], atol=1e-12)
    assert torch.allclose(together[1], apart(far)[0], atol=1e-12)


def test_bodies_are_moved_as_a_whole():
    # Joint by joint, a few light limbs would take most of it.
    state = two(0.2)
    x, _ = apart(state)
    moved = (x - state.x)[..., 0]
    assert (moved[0] < 0).all()
    assert (moved[1] > 0).all()
    assert moved.abs().amax() < 4 * moved.abs().median()


def test_equally_deep_overlaps_push_both_alike():
    # Mirror images of each other, so that left and right touch alike.
    rest = BODY.forward(torch.eye(3, dtype=torch.float64).expand(22, 3, 3), torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64))
    back = rest * torch.tensor([1.0, 1.0, -1.0]) + torch.tensor([0.0, 0.0, 6.0])
    x = torch.stack((rest[:, [0, 2, 1]], back[:, [0, 2, 1]] + torch.tensor([0.03, 0.15, 0.0], dtype=torch.float64)))
    near = neighbours(x)
    assert near is not None
    _, forces = moved_apart(x, x, near, BODY, FLOOR, friction=0.8, h=1 / 30)
    assert forces.abs().max() > 100
    assert torch.allclose(forces.sum((0, 1)), torch.zeros(3, dtype=torch.float64), atol=1e-6)


def test_the_prior_hears_of_the_meeting():
    state = two(0.2)
    world = World(Scene((Person(), Person(position=(5.0, 0.0)))), Simulator.shipped(num_samples=2))
    none, zero = torch.zeros(2, 22, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    report = Report({}, zero.long(), none[..., 0] > 0, none, none, none[:, 0, :2], zero)
    moved, after = world._apart(WorldState(0, state, ()), state, report, FLOOR)
    change = moved.memory[:, :2] - state.memory[:, :2]
    assert change[0, 0] < -0.1
    torch.testing.assert_close(change, after.external_forces.sum(-2)[:, :2] / (float(BODY.masses.sum()) * world.fps))
    torch.testing.assert_close(change[0], -change[1])
