"""No prior: the body has no wishes of its own."""

import torch

from dropsim.body.skeleton import Skeleton
from dropsim.priors.prior import Candidates, Prior, State, Streams


class PassivePrior(Prior):
    """Proposes to stay; with the kinematic energy switched off this makes a ragdoll."""

    def __init__(self, skeleton: Skeleton, *, fps: float = 30.0) -> None:
        """Remember the body and the rate."""
        self.skeleton, self.fps, self.name = skeleton, fps, "passive"

    def sample(self, state: State, num_samples: int, rng: Streams) -> Candidates:
        """Return the present frame, once."""
        del num_samples, rng
        return Candidates(state.x.unsqueeze(-3), state.q.unsqueeze(-4), state.memory.unsqueeze(-2))

    def start_at_rest(self, x: torch.Tensor, q: torch.Tensor) -> State:
        """Return a state at rest."""
        return State(x, torch.zeros_like(x), q, x.new_zeros(*x.shape[:-2], 0))
