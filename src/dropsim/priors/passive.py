"""The prior of a body that wants nothing."""

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, Prior, State


class PassivePrior(Prior):
    """Proposes to stay; with the kinematic energy switched off this makes a ragdoll."""

    def __init__(self, skeleton: Skeleton, *, fps: float = 30.0) -> None:
        """Remember the body and the rate."""
        self.skeleton, self.fps, self.name = skeleton, fps, "passive"

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Return the present frame, once."""
        del num, rng, intent
        return Candidates(state.x[..., None, :, :], state.q[..., None, :, :, :], state.memory[..., None, :])

    def start_at_rest(self, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]) -> State:
        """Return a state at rest."""
        return State(x, np.zeros_like(x), q, np.zeros((*x.shape[:-2], 0)))
