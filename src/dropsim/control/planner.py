"""Look-ahead over a prior's own samples: of many roll-outs the one is kept that a cost likes best."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dropsim.priors.prior import Candidates, Prior, State, Streams

Cost = Callable[[Float[Tensor, "n r t 22 3"], Int[Tensor, "n"]], Float[Tensor, "n r"]]
"""Takes the joints of r roll-outs of t frames of n people, and which people they are; the smallest wins."""


@dataclass(frozen=True)
class Planner:
    """How far and how often one looks ahead."""

    num_rollouts: int = 64
    horizon: int = 16
    """Frames that each roll-out lasts."""
    every: int = 4
    """Frames after which one looks again."""

    def __post_init__(self) -> None:
        if min(self.num_rollouts, self.horizon, self.every) < 1 or self.every > self.horizon:
            raise ValueError("a planner needs at least one roll-out of at least one frame, and a horizon as long as it keeps to a plan")

    def plan(self, prior: Prior, state: State, cost: Cost, people: Int[Tensor, "n"], rng: Streams) -> Candidates:
        """Return the first frames of each person's best roll-out, `every` of them along the candidates' dimension."""
        count, n = self.num_rollouts, len(state.x)
        many = state.map(lambda values: values.unsqueeze(1).expand(n, count, *values.shape[1:]))
        streams, frames = rng.copies(count), list[Candidates]()
        for _ in range(self.horizon):
            chosen = prior.explore(many, streams)
            frames.append(Candidates(chosen.x, chosen.q, chosen.memory))
            v = (chosen.x - many.x) * prior.fps
            many = State(chosen.x, v, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
        costs = cost(torch.stack([f.x for f in frames], dim=2), people)
        best = costs.nan_to_num(nan=torch.inf).argmin(dim=1)
        rows = torch.arange(n)

        def keep(parts: list[Tensor]) -> Tensor:
            return torch.stack([part[rows, best] for part in parts[: self.every]], dim=1)

        return Candidates(keep([f.x for f in frames]), keep([f.q for f in frames]), keep([f.memory for f in frames]))
