"""Looking ahead: of many roll-outs the one is kept that the cost likes best, and nothing else depends on it."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.control.planner import Planner
from dropsim.priors.prior import Candidates, Prior, State, Streams


@dataclass
class Wanderer(Prior):
    """Glides by a random step in every frame; remembers how many it took."""

    name: str = "wanderer"
    fps: float = 30.0

    def __post_init__(self) -> None:
        self.skeleton = Skeleton.adult()

    def sample(self, state: State, num_samples: int, rng: Streams) -> Candidates:
        steps = 0.1 * rng.normal(num_samples, 1, 3).double()
        steps[..., 0, :, :] = 0.0  # its mode stays
        x = state.x.unsqueeze(-3) + steps
        q = state.q.unsqueeze(-4).expand(*x.shape[:-2], NUM_JOINTS, 3, 3)
        return Candidates(x, q, (state.memory + 1).unsqueeze(-2).expand(*x.shape[:-2], 1))


def crowd(n: int) -> State:
    x = torch.arange(n).double().reshape(n, 1, 1) + torch.zeros(n, NUM_JOINTS, 3).double()
    return State(x, torch.zeros_like(x), torch.eye(3).double().expand(n, NUM_JOINTS, 3, 3), torch.zeros(n, 1).double())


class Along:
    """Likes to get far along an axis of each person's own, and keeps what it was shown."""

    def __init__(self, axes: list[int]) -> None:
        self.axes, self.seen, self.asked = axes, torch.empty(0), torch.empty(0)

    def __call__(self, joints: Tensor, people: Tensor) -> Tensor:
        self.seen, self.asked = joints, people
        return -torch.stack([joints[i, :, -1, 0, self.axes[int(p)]] for i, p in enumerate(people)])


def test_the_best_roll_out_is_kept():
    planner, cost = Planner(num_rollouts=20, horizon=6, every=3), Along([0, 1, 2])
    plan = planner.plan(Wanderer(), crowd(3), cost, torch.arange(3), Streams([1, 2, 3]))
    assert cost.seen.shape == (3, 20, 6, NUM_JOINTS, 3)
    for i in range(3):
        best = int(cost.seen[i, :, -1, 0, i].argmax())
        assert torch.equal(plan.x[i], cost.seen[i, best, :3])
        assert plan.memory[i].flatten().tolist() == [1.0, 2.0, 3.0]
    assert plan.x.shape == (3, 3, NUM_JOINTS, 3)
    assert plan.q.shape == (3, 3, NUM_JOINTS, 3, 3)


def test_people_keep_their_numbers():
    # Of ten people only two look ahead: the cost is told which.
    cost = Along([0] * 4 + [1] * 4 + [2] * 2)
    Planner(num_rollouts=4, horizon=2, every=1).plan(Wanderer(), crowd(2), cost, torch.tensor([4, 9]), Streams([0, 1]))
    assert cost.asked.tolist() == [4, 9]


def test_more_roll_outs_find_no_worse():
    def reached(count: int) -> float:
        plan = Planner(count, horizon=4, every=4).plan(Wanderer(), crowd(1), Along([0]), torch.tensor([0]), Streams([5]))
        return float(plan.x[0, -1, 0, 0])

    # Each a maximum of independent draws, so on average growing; with this seed strictly.
    assert reached(1) < reached(64)


def test_the_seed_decides():
    planner = Planner(8, 4, 2)

    def x(seeds: list[int]) -> Tensor:
        return planner.plan(Wanderer(), crowd(len(seeds)), Along([0] * 3), torch.arange(len(seeds)), Streams(seeds)).x

    assert torch.equal(x([1, 2, 3]), x([1, 2, 3]))
    assert not torch.equal(x([1, 2, 3])[0], x([4, 2, 3])[0])
    # Everybody has their own random numbers: alone or among others makes no difference.
    assert torch.equal(x([1, 2, 3])[:1], x([1]))
    assert torch.equal(x([1, 2, 3])[1:], x([1, 4, 5])[1:]) is False


def test_a_cost_that_is_not_a_number_never_wins():
    def cost(joints: Tensor, people: Tensor) -> Tensor:
        values = -joints[:, :, -1, 0, 0]
        return torch.where(values == values.min(), torch.nan, values)

    seen = Along([0])
    planner = Planner(10, 3, 1)
    planner.plan(Wanderer(), crowd(1), seen, torch.tensor([0]), Streams([7]))
    plan = planner.plan(Wanderer(), crowd(1), cost, torch.tensor([0]), Streams([7]))
    second = seen.seen[0, :, -1, 0, 0].topk(2).indices[1]
    assert torch.equal(plan.x[0, 0], seen.seen[0, int(second), 0])


@pytest.mark.parametrize("fields", [{"num_rollouts": 0}, {"horizon": 0}, {"every": 0}, {"every": 9, "horizon": 8}])
def test_planners_that_cannot_be(fields: dict):
    with pytest.raises(ValueError, match="a planner needs"):
        Planner(**fields)
