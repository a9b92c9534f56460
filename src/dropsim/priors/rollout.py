"""A prior on its own: frames follow frames with no body and no world."""

import numpy as np

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.priors.prior import Prior, State


def roll_out(prior: Prior, start: State, num_frames: int, rng: Streams, *, mode: bool = False) -> Motion:
    """Return num_frames frames, the start being the first; sampled, or always the prior's mode."""
    state, x, q = start, [start.x], [start.q]
    for _ in range(num_frames - 1):
        candidates = prior.propose(state, 1 if mode else 2, rng)
        chosen = candidates.pick(candidates.x.shape[-3] - 1)
        v = (chosen.x - state.x) * prior.fps
        state = State(chosen.x, v, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
        x.append(state.x)
        q.append(state.q)
    joints = np.stack(x, axis=-3)
    return Motion(prior.skeleton, prior.fps, joints[..., 0, :], np.stack(q, axis=-4), joints, name=prior.name)
