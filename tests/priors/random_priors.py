"""Small random priors and batches of states, for the tests of this folder."""

from collections.abc import Sequence

import numpy as np

from dropsim.body.skeleton import Skeleton
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.prior import State


def tiny(skeleton: Skeleton | None = None, **variant: bool | tuple[int, ...]) -> CVAEPrior:
    """Return a random network whose deltas are of the size of a frame's."""
    shape = CVAEShape(latent=4, decoder=(32, 32), prior=(32,), groups=4, **variant)
    tensors = CVAENetwork.random(shape).tensors
    tensors["output_scale"] = np.full_like(tensors["output_scale"], 0.01)
    return CVAEPrior(CVAENetwork(shape, tensors), skeleton or Skeleton.adult())


def batch(states: Sequence[State]) -> State:
    """Put states into one batch."""
    return State(*(np.stack([getattr(s, f) for s in states]) for f in ("x", "v", "q", "memory")))
