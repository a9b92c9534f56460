"""The prior that follows a recording: the paper's mock prior for the back flip."""

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.motion.motion import Motion
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.prior import Candidate, Candidates, Prior, State, Streams


class ClipPrior(Prior):
    """Proposes the next frame of a recording, and from a given frame on hands over to another prior.

    Its memory is the number of the present frame, and then whatever the other prior remembers.
    """

    def __init__(self, motion: Motion, *, then: CVAEPrior | None = None, handover: int | None = None) -> None:
        """Follow motion; at frame `handover`, or at its end, `then` takes over, and without it the last frame stays."""
        if motion.root.ndim != 2:
            raise ValueError("a clip prior follows one recording: pick one person out of the batch first")
        if then is not None and motion.fps != then.fps:
            motion = motion.resampled(then.fps)
        if handover is not None and not 1 <= handover < len(motion):
            raise ValueError(f"cannot hand over at frame {handover}: the recording has frames 1 to {len(motion) - 1} to choose from")
        self.motion, self.then, self.handover = motion, then, len(motion) - 1 if handover is None else handover
        self.skeleton, self.fps, self.name = motion.skeleton, motion.fps, f"clip {motion.name}".strip()

    def start(self) -> State:
        """Return the recording's first frame."""
        first = self.motion
        v = (first.joints[1] - first.joints[0]) * self.fps if len(first) > 1 else torch.zeros_like(first.joints[0])
        return State(first.joints[0], v, first.q[0], self._remember(torch.tensor(0)))

    def _remember(self, frame: Tensor) -> Float[Tensor, "*b m"]:
        """Return the memory of a frame: its number, and the velocities with which the other prior would go on from it."""
        count = frame.to(torch.float64).unsqueeze(-1)
        if self.then is None:
            return count
        at = frame.clamp(min=1)
        parts = [self.then.start_from(self.motion, int(i)).memory for i in at.reshape(-1)]
        return torch.cat((count, torch.stack(parts).reshape(*frame.shape, -1)), dim=-1)

    def sample(self, state: State, num_samples: int, rng: Streams) -> Candidates:
        """Propose the recording's next frame, or what the other prior proposes where it has taken over."""
        frame = state.memory[..., 0].round().long()
        coming = (frame + 1).clamp(max=len(self.motion) - 1)
        following = Candidates(
            self.motion.joints[coming].unsqueeze(-3), self.motion.q[coming].unsqueeze(-4), self._remember(coming).unsqueeze(-2)
        )
        if self.then is None:
            return following
        free = frame >= self.handover
        if not free.any():
            return following
        inner = State(state.x, state.v, state.q, state.memory[..., 1:])
        other = self.then.sample(inner, num_samples, rng)
        counted = torch.cat((state.memory[..., None, :1].expand(*other.memory.shape[:-1], 1), other.memory), dim=-1)

        def choose(a: Tensor, b: Tensor) -> Tensor:
            return torch.where(free.reshape(*free.shape, *([1] * (a.ndim - free.ndim))), a, b.expand_as(a))

        return Candidates(choose(other.x, following.x), choose(other.q, following.q), choose(counted, following.memory))

    def commit(self, chosen: Candidate, x: Float[Tensor, "*b 22 3"], q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b m"]:
        """Keep the frame count, and let the other prior take back its own part."""
        if self.then is None:
            return chosen.memory
        inner = self.then.commit(Candidate(chosen.x, chosen.q, chosen.memory[..., 1:]), x, q)
        return torch.cat((chosen.memory[..., :1], inner), dim=-1)

    def apply_impulse(self, memory: Float[Tensor, "*b m"], change: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b m"]:
        """Let the other prior notice."""
        return memory if self.then is None else torch.cat((memory[..., :1], self.then.apply_impulse(memory[..., 1:], change)), dim=-1)

    def recall(self, before: State, x: Float[Tensor, "*b 22 3"], q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b m"]:
        """Keep the frame count, and let the other prior remember its own part."""
        if self.then is None:
            return before.memory
        inner = self.then.recall(State(before.x, before.v, before.q, before.memory[..., 1:]), x, q)
        return torch.cat((before.memory[..., :1], inner), dim=-1)
