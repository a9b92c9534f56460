"""A prior on its own: frames follow frames with no body and no world."""

import torch

from dropsim.motion.motion import Motion
from dropsim.priors.prior import Prior, State, Streams


def roll_out(prior: Prior, start: State, num_frames: int, rng: Streams, *, mode: bool = False) -> Motion:
    """Return num_frames frames from a start, the start being the first; sampled, or always the prior's mode."""
    x, q = [start.x], [start.q]
    state = start
    for _ in range(num_frames - 1):
        candidates = prior.sample(state, 1 if mode else 2, rng)
        chosen = candidates.pick(torch.full(state.x.shape[:-2], 0 if mode else 1, dtype=torch.long))
        v = (chosen.x - state.x) * prior.fps
        state = State(chosen.x, v, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
        x.append(state.x)
        q.append(state.q)
    joints = torch.stack(x, dim=-3)
    return Motion(prior.skeleton, prior.fps, joints[..., 0, :], torch.stack(q, dim=-4), joints, name=prior.name)
