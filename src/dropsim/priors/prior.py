"""The contract of a motion prior: an autoregressive model that proposes K candidates of the next frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dropsim.body.skeleton import Skeleton


class Streams:
    """One stream of random numbers per character, so that a batch draws what its members would draw alone."""

    def __init__(self, seeds: Sequence[int] | int) -> None:
        """Start a stream per seed; a single number starts one character without a batch dimension."""
        self.batch = () if isinstance(seeds, int) else (len(seeds),)
        self.generators = [torch.Generator().manual_seed(seed) for seed in ([seeds] if isinstance(seeds, int) else seeds)]
        self._copies: tuple[int, ...] = ()

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        """Draw standard normal numbers of the given shape for every character."""
        return self._draw(torch.randn, shape)

    def uniform(self, *shape: int) -> Float[Tensor, "..."]:
        """Draw numbers between 0 and 1 of the given shape for every character."""
        return self._draw(torch.rand, shape)

    def _draw(self, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        draws = torch.stack([draw((*self._copies, *shape), generator=g) for g in self.generators])
        return draws.reshape(*self.batch, *self._copies, *shape)

    def unflatten(self, *batch: int) -> "Streams":
        """Return the same streams for a batch of another shape."""
        return self._with(self.generators, batch, self._copies)

    def pick(self, index: Sequence[int]) -> "Streams":
        """Return the streams of some characters, counted through all batch dimensions."""
        return self._with([self.generators[i] for i in index], (len(index),), self._copies)

    def copies(self, count: int) -> "Streams":
        """Return streams for a batch in which every character is there count times, along a last batch dimension."""
        return self._with(self.generators, self.batch, (*self._copies, count))

    def _with(self, generators: Sequence[torch.Generator], batch: tuple[int, ...], copies: tuple[int, ...]) -> "Streams":
        other = Streams([])
        other.generators, other.batch, other._copies = list(generators), batch, copies
        return other


@dataclass(frozen=True, eq=False)
class State:
    """A character at one frame: what the simulator advances and what the prior sees."""

    x: Float[Tensor, "*b 22 3"]
    """World joints [m]."""
    v: Float[Tensor, "*b 22 3"]
    """Joint velocities of the last step, (x_t - x_{t-1}) / h [m/s]."""
    q: Float[Tensor, "*b 22 3 3"]
    """Local rotations."""
    memory: Float[Tensor, "*b m"]
    """What the prior remembers of its own, e.g. its predicted velocities."""

    def __getitem__(self, index: int | slice | Tensor) -> "State":
        """Pick characters out of a batch."""
        return self.map(lambda values: values[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> "State":
        """Apply a change of the batch dimensions to every part."""
        return State(change(self.x), change(self.v), change(self.q), change(self.memory))

    def flat(self) -> "State":
        """Return all characters along one batch dimension."""
        dims = self.x.ndim - 2
        return self.map(lambda values: values.reshape(-1, *values.shape[dims:]))


@dataclass(frozen=True, eq=False)
class Candidates:
    """K proposals of the next frame; the first is the prior's mode."""

    x: Float[Tensor, "*b k 22 3"]
    """World joints [m]."""
    q: Float[Tensor, "*b k 22 3 3"]
    """Local rotations."""
    memory: Float[Tensor, "*b k m"]

    def pick(self, index: Int[Tensor, "*b"]) -> "Candidate":
        """Return one candidate per character."""

        def at(values: Tensor) -> Tensor:
            if index.ndim == 0:  # a copy, so that who keeps it does not keep all the others
                return values[int(index)].clone()
            trailing = values.ndim - index.ndim - 1
            where = index.reshape(*index.shape, 1, *([1] * trailing)).expand(*index.shape, 1, *values.shape[index.ndim + 1 :])
            return values.gather(index.ndim, where).squeeze(index.ndim)

        return Candidate(at(self.x), at(self.q), at(self.memory))


@dataclass(frozen=True, eq=False)
class Candidate:
    """One chosen proposal per character."""

    x: Float[Tensor, "*b 22 3"]
    q: Float[Tensor, "*b 22 3 3"]
    memory: Float[Tensor, "*b m"]


class Prior(ABC):
    """An autoregressive motion model."""

    name: str
    """For reports."""
    fps: float
    """Rate at which it was made [Hz]."""
    skeleton: Skeleton
    """Body that its joints belong to."""

    @abstractmethod
    def sample(self, state: State, num_samples: int, rng: Streams) -> Candidates:
        """Propose num_samples next frames, the first being the mode."""

    def explore(self, state: State, rng: Streams) -> "Candidate":
        """Propose one next frame for somebody who looks ahead: rather bold than likely."""
        candidates = self.sample(state, 2, rng)
        last = torch.full(state.x.shape[:-2], candidates.x.shape[-3] - 1, dtype=torch.long)
        return candidates.pick(last)

    def commit(self, chosen: Candidate, x: Float[Tensor, "*b 22 3"], q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b m"]:
        """Take back the solved frame and return the memory for the next query; by default the chosen candidate's own.

        The paper keeps the prior's predicted velocities: overwriting them with solved ones destabilises it.
        """
        del x, q
        return chosen.memory

    def apply_impulse(self, memory: Float[Tensor, "*b m"], change: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b m"]:
        """Return a memory after the world has changed the velocity of the whole body [m/s]; by default the prior does not notice."""
        del change
        return memory

    def recall(self, before: State, x: Float[Tensor, "*b 22 3"], q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b m"]:
        """Return the memory of somebody who went on from a state to a frame that the prior did not propose; by default the state's own."""
        del x, q
        return before.memory
