"""The prior that follows a recording: the paper's mock prior for the back flip."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.priors.intent import Intent
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
        count = np.arange(len(motion), dtype=np.float64)[:, None]
        self._memories = count if then is None else np.concatenate((count, self._memories_of(then)), axis=-1)

    def _memories_of(self, then: Prior) -> Float[np.ndarray, "t m"]:
        """Return the memory with which the other prior would go on from each frame; the first two share one."""
        x, q = self.motion.joints, self.motion.q
        if len(x) < 2:
            raise ValueError("a recording of one frame has no velocity to hand over with: give at least two frames")
        inner = then.recall(State(x[:-1], np.zeros_like(x[:-1]), q[:-1], np.zeros((len(x) - 1, 0))), x[1:], q[1:])
        return np.concatenate((inner[:1], inner))

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
        free = frame >= self.handover
        if self.then is None or not free.any():
            return following
        # Only people who were handed over draw random numbers: the others must not notice who else is in the batch.
        everyone, who = state.flat(), np.flatnonzero(free)
        inner = State(everyone.x[who], everyone.v[who], everyone.q[who], everyone.memory[who, 1:])
        if intent is not None:
            intent = intent.pick(who)
        other = self.then.propose(inner, num, rng.pick(who.tolist()), intent)
        count = np.broadcast_to(everyone.memory[who, None, :1], (*other.memory.shape[:-1], 1))

        def merge(recorded: np.ndarray, proposed: np.ndarray) -> np.ndarray:
            shape = (*frame.shape, *proposed.shape[1:])
            merged = np.broadcast_to(recorded, shape).reshape(-1, *proposed.shape[1:]).copy()
            merged[who] = proposed
            return merged.reshape(shape)

        memory = np.concatenate((count, other.memory), axis=-1)
        x, q = merge(following.x, other.x), merge(following.q, other.q)
        return Candidates(x, q, merge(following.memory, memory), merge(following.cost, other.cost))

    def commit(
        self, chosen: Candidate, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Keep the frame count, and let the other prior take back its own part."""
        if self.then is None:
            return chosen.memory
        inner = self.then.commit(Candidate(chosen.x, chosen.q, chosen.memory[..., 1:]), x, q)
        return np.concatenate((chosen.memory[..., :1], inner), axis=-1)

    def apply_impulse(
        self, memory: Float[np.ndarray, "*b m"], change: Float[np.ndarray, "*b 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Let the other prior notice."""
        if self.then is None:
            return memory
        return np.concatenate((memory[..., :1], self.then.apply_impulse(memory[..., 1:], change)), axis=-1)

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Keep the frame count, and let the other prior remember its own part."""
        if self.then is None:
            return before.memory
        inner = self.then.recall(State(before.x, before.v, before.q, before.memory[..., 1:]), x, q)
        return np.concatenate((before.memory[..., :1], inner), axis=-1)
