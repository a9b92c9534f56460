"""Several priors as one: their candidates in one manifold. The kinematic energy asks for the nearest one, whoever proposed it."""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidate, Candidates, Prior, State


class Mixture(Prior):
    """Candidates of several priors, in equal shares; the mode is the first prior's.

    The memory holds everybody's, side by side. A prior whose candidate was not taken recalls its memory from the frame
    that was.
    """

    def __init__(self, *priors: Prior) -> None:
        """Mix priors of one body and rate; each must be able to recall its memory from two frames, as for `start_from`."""
        if not priors:
            raise ValueError("a mixture needs at least one prior")
        first = priors[0]
        for other in priors[1:]:
            if other.fps != first.fps or not _same_body(other.skeleton, first.skeleton):
                raise ValueError(
                    f"{first.name} and {other.name} cannot be mixed: they have another body or rate than each other"
                )
        self.priors, self.name = priors, "+".join(prior.name for prior in priors)
        self.fps, self.skeleton, self.starts_at_mode = first.fps, first.skeleton, first.starts_at_mode
        self.takes_intent = any(prior.takes_intent for prior in priors)
        self.num_samples = sum(prior.num_samples for prior in priors)
        self.drift = max(prior.drift for prior in priors)
        rest = self.skeleton.rest
        alone = State(rest, np.zeros_like(rest), np.broadcast_to(np.eye(3), (len(rest), 3, 3)), np.zeros(0))
        self._ends = np.cumsum([prior.recall(alone, alone.x, alone.q).shape[-1] for prior in priors])

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Propose each prior's share of `num` candidates, the first prior's mode first."""
        if num < 1:
            raise ValueError(f"the prior cannot give {num} candidates: ask for at least 1")
        own, found = self._split(state.memory), list[Candidates]()
        for i, prior in enumerate(self.priors):
            if share := (num + len(self.priors) - 1 - i) // len(self.priors):
                made = prior.propose(State(state.x, state.v, state.q, own[i]), share, rng, intent)
                found.append(Candidates(made.x, made.q, self._joined(i, state, made), made.cost))
        return Candidates(*(np.concatenate([getattr(part, name) for part in found], axis=axis) for name, axis in _AXES))

    def explore(self, state: State, rng: Streams) -> Candidate:
        """Let the first prior explore."""
        made = self.priors[0].explore(State(state.x, state.v, state.q, self._split(state.memory)[0]), rng)
        return Candidate(made.x, made.q, self._joined(0, state, made))

    def _joined(self, owner: int, state: State, made: Candidate | Candidates) -> Float[np.ndarray, "*c m"]:
        """Return everybody's memory if one prior's candidates are taken."""
        batch, dims = made.x.shape[:-2], state.x.ndim - 2

        def repeated(values: np.ndarray) -> np.ndarray:
            rows = values.shape[dims:]
            return np.broadcast_to(
                values.reshape(*values.shape[:dims], *(1,) * (len(batch) - dims), *rows), (*batch, *rows)
            )

        parts = [
            made.memory
            if i == owner
            else prior.recall(State(state.x, state.v, state.q, own).map(repeated), made.x, made.q)
            for i, (prior, own) in enumerate(zip(self.priors, self._split(state.memory), strict=True))
        ]
        return np.concatenate(parts, axis=-1)

    def _split(self, memory: Float[np.ndarray, "*b m"]) -> list[Float[np.ndarray, "*b o"]]:
        if memory.shape[-1] == 0:  # somebody who is about to start
            return [memory] * len(self.priors)
        if memory.shape[-1] != self._ends[-1]:
            raise ValueError(
                f"the state's memory is of another prior than {self.name}: make the state with its start or start_from"
            )
        return [memory[..., start:end] for start, end in itertools.pairwise((0, *self._ends))]

    def commit(
        self, chosen: Candidate, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        parts = zip(self.priors, self._split(chosen.memory), strict=True)
        return np.concatenate([prior.commit(Candidate(chosen.x, chosen.q, own), x, q) for prior, own in parts], axis=-1)

    def apply_impulse(
        self, memory: Float[np.ndarray, "*b m"], change: Float[np.ndarray, "*b 3"]
    ) -> Float[np.ndarray, "*b m"]:
        parts = zip(self.priors, self._split(memory), strict=True)
        return np.concatenate([prior.apply_impulse(own, change) for prior, own in parts], axis=-1)

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        return np.concatenate(
            [prior.turn_memory(own, R) for prior, own in zip(self.priors, self._split(memory), strict=True)], axis=-1
        )

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        parts = zip(self.priors, self._split(before.memory), strict=True)
        return np.concatenate(
            [prior.recall(State(before.x, before.v, before.q, own), x, q) for prior, own in parts], axis=-1
        )

    def start(self, category: str, seed: Sequence[int] | int = 0) -> State:
        """Start where the first prior does; the others recall their memory from the velocities."""
        state = self.priors[0].start(category, seed)
        before = State(state.x - state.v / self.fps, state.v, state.q, state.x[..., 0, :0])
        others = [prior.recall(before, state.x, state.q) for prior in self.priors[1:]]
        return State(state.x, state.v, state.q, np.concatenate([state.memory, *others], axis=-1))


_AXES = (("x", -3), ("q", -4), ("memory", -2), ("cost", -1))
"""Of the candidates' parts: the axis that counts candidates."""


def _same_body(a: Skeleton, b: Skeleton) -> bool:
    return np.allclose(a.rest, b.rest, atol=1e-4) and np.allclose(a.radii, b.radii, atol=1e-4)
