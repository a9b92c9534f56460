"""Random numbers: one counter-based stream per person, so everyone draws the same numbers alone and in any batch."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float


class Streams:
    """One stream of random numbers per person."""

    def __init__(self, seeds: Sequence[int] | int) -> None:
        """Start a stream per seed; a single number starts one person without a batch dimension."""
        self.batch = () if isinstance(seeds, int) else (len(seeds),)
        self.generators = [
            np.random.Generator(np.random.Philox(key=seed % 2**64))
            for seed in ([seeds] if isinstance(seeds, int) else seeds)
        ]
        self._copies: tuple[int, ...] = ()

    def normal(self, *shape: int) -> Float[np.ndarray, "..."]:
        """Draw standard normal numbers of the given shape for everyone."""
        return self._draw(np.random.Generator.standard_normal, shape)

    def uniform(self, *shape: int) -> Float[np.ndarray, "..."]:
        """Draw numbers between 0 and 1 of the given shape for everyone."""
        return self._draw(np.random.Generator.random, shape)

    def _draw(self, draw: Callable[..., np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        drawn = np.empty((len(self.generators), *self._copies, *shape))
        for i, generator in enumerate(self.generators):
            drawn[i] = draw(generator, (*self._copies, *shape))
        return drawn.reshape((*self.batch, *self._copies, *shape))

    def unflatten(self, *batch: int) -> "Streams":
        """Return the same streams for a batch of another shape."""
        return self._with(self.generators, batch, self._copies)

    def pick(self, index: Sequence[int]) -> "Streams":
        """Return the streams of some people, counted through all batch dimensions."""
        return self._with([self.generators[i] for i in index], (len(index),), self._copies)

    def branched(self, index: Sequence[int]) -> "Streams":
        """Return copies of the streams of some people, one each time that somebody is named."""
        return self._with([copy.deepcopy(self.generators[i]) for i in index], (len(index),), self._copies)

    def copies(self, count: int) -> "Streams":
        """Return streams for a batch that holds everyone count times, along a last batch dimension."""
        return self._with(self.generators, self.batch, (*self._copies, count))

    def _with(
        self, generators: Sequence[np.random.Generator], batch: tuple[int, ...], copies: tuple[int, ...]
    ) -> "Streams":
        other = Streams([])
        other.generators, other.batch, other._copies = list(generators), batch, copies
        return other
