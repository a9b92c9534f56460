"""The prior that follows a recording: the paper's mock prior for the back flip."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.priors.intent import Intent
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidate, Candidates, Prior, State


class ClipPrior(Prior):
    """Proposes the next frame of a recording, and from a given frame on hands over to another prior.

    Its memory is the number of the present frame, and then whatever the other prior remembers.
    """

    def __init__(self, motion: Motion, *, then: Prior | None = None, handover: int | None = None) -> None:
        """Follow motion; at frame `handover`, or at its end, `then` takes over, and without it the last frame stays."""
        if motion.root.ndim != 2:
            raise ValueError("a clip prior follows one recording: pick one person out of the batch first")
        if then is not None and motion.fps != then.fps:
            motion = motion.resampled(then.fps)
        if handover is not None and not 1 <= handover < len(motion):
            raise ValueError(
                f"cannot hand over at frame {handover}: the recording has frames 1 to {len(motion) - 1} to choose from"
            )
        self.motion, self.then, self.handover = motion, then, len(motion) - 1 if handover is None else handover
        self.skeleton, self.fps, self.name = motion.skeleton, motion.fps, f"clip {motion.name}".strip()
        if then is not None:
            self.drift, self.starts_at_mode = then.drift, then.starts_at_mode
            self.takes_intent, self.gets_up = then.takes_intent, then.gets_up
        self._then = PassivePrior(self.skeleton, fps=self.fps) if then is None else then
        # Memory with which the other prior would go on from each frame; the first two share one.
        x, q, now = motion.joints, motion.q, np.maximum(np.arange(len(motion)), min(1, len(motion) - 1))
        past = np.maximum(now - 1, 0)
        before = State(x[past], np.zeros_like(x), q[past], np.zeros((len(x), 0)))
        count = np.arange(len(motion), dtype=np.float64)[:, None]
        self._memories = np.concatenate((count, self._then.recall(before, x[now], q[now])), axis=-1)

    def start(self, category: str = "", seed: Sequence[int] | int = 0) -> State:
        """Return the recording's first frame; a recording has no categories."""
        del category
        joints, frame = self.motion.joints, np.zeros(() if isinstance(seed, int) else len(seed), dtype=np.int64)
        v = (joints[min(1, len(joints) - 1)] - joints[0]) * self.fps
        v = np.broadcast_to(v, (*frame.shape, *v.shape)).copy()
        return State(joints[frame], v, self.motion.q[frame], self._memories[frame])

    def start_from(self, motion: Motion, frame: int) -> State:
        """Return the state of the recording itself at a frame; from another motion it cannot go on."""
        if motion is not self.motion:
            raise ValueError("a clip prior goes on from its own recording only: make a ClipPrior of the other motion")
        state = super().start_from(motion, frame)
        return State(state.x, state.v, state.q, self._memories[frame])

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Propose the recording's next frame, or what the other prior proposes where it has taken over."""
        frame = np.rint(state.memory[..., 0]).astype(np.int64)
        coming = np.minimum(frame + 1, len(self.motion) - 1)
        x, q, memory = self.motion.joints[coming], self.motion.q[coming], self._memories[coming]
        following = Candidates(x[..., None, :, :], q[..., None, :, :, :], memory[..., None, :])
        free = (frame >= self.handover) & (self.then is not None)
        if not free.any():
            return following
        # Only people who were handed over draw random numbers: the others must not notice who else is in the batch.
        everyone, who = state.flat(), np.flatnonzero(free)
        inner = replace(everyone[who], memory=everyone.memory[who, 1:])
        intent = None if intent is None else intent.pick(who)
        other = self._then.propose(inner, num, rng.pick(who.tolist()), intent)
        count = np.broadcast_to(everyone.memory[who, None, :1], (*other.memory.shape[:-1], 1))
        other = replace(other, memory=np.concatenate((count, other.memory), axis=-1))

        def merge(recorded: np.ndarray, proposed: np.ndarray) -> np.ndarray:
            shape = (*frame.shape, *proposed.shape[1:])
            merged = np.broadcast_to(recorded, shape).reshape(-1, *proposed.shape[1:]).copy()
            merged[who] = proposed
            return merged.reshape(shape)

        return Candidates(*(merge(values, getattr(other, name)) for name, values in vars(following).items()))

    def _changed(self, memory: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return a memory with the other prior's part changed, and the frame count as it is."""
        return np.concatenate((memory[..., :1], change(memory[..., 1:])), axis=-1)

    def commit(
        self, chosen: Candidate, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        return self._changed(chosen.memory, lambda inner: self._then.commit(replace(chosen, memory=inner), x, q))

    def apply_impulse(
        self, memory: Float[np.ndarray, "*b m"], change: Float[np.ndarray, "*b 3"]
    ) -> Float[np.ndarray, "*b m"]:
        return self._changed(memory, lambda inner: self._then.apply_impulse(inner, change))

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        return self._changed(memory, lambda inner: self._then.turn_memory(inner, R))

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        return self._changed(before.memory, lambda inner: self._then.recall(replace(before, memory=inner), x, q))
