"""A recipe: everything that the content of a data set depends on, and nothing else."""

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dropsim.research.synthesis.distribution import Distribution, Drawn
from dropsim.scene.files import Setup

MAX_COUNT = 10**10


@dataclass(frozen=True)
class Recipe:
    """A distribution, a seed, and how many clips of what length."""

    distribution: Distribution
    count: int
    """Clips to simulate; those that do not pass the gates are left out of the shards."""
    seed: int = 0
    seconds: float | None = None
    """Length of a clip [s]; the distribution's own unless given."""
    samples: int | None = None
    """Candidates of the prior a frame; the distribution's own unless given."""
    shard_size: int = 64
    """Clips of a shard."""
    prior: str | None = None
    """As `open_prior` takes it; the distribution's own unless given."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise ValueError(f"a data set has from 1 to {MAX_COUNT} clips, not {self.count}")
        if not 0 <= self.seed < 2**62:
            raise ValueError(f"a seed is a whole number from 0 to 2^62, not {self.seed}")
        if not 1 <= self.shard_size <= MAX_COUNT:
            raise ValueError(f"a file has from 1 to {MAX_COUNT} clips, not {self.shard_size}: give another shard size")
        self.drawn(0)  # refuses seconds and samples that cannot be

    @property
    def num_shards(self) -> int:
        """Shards of the whole data set."""
        return math.ceil(self.count / self.shard_size)

    def clips_of(self, shard: int) -> range:
        """Return the indices of a shard's clips."""
        return range(shard * self.shard_size, min(self.count, (shard + 1) * self.shard_size))

    def drawn(self, index: int) -> Drawn:
        """Return a clip's scene with the length and the samples that were asked for."""
        drawn = self.distribution.draw(self.seed, index)
        return replace(drawn, setup=self._changed(drawn.setup))

    def _changed(self, setup: Setup) -> Setup:
        if self.seconds is not None:
            setup = replace(setup, seconds=self.seconds)
        if self.samples is not None:
            setup = replace(setup, simulator=replace(setup.simulator, num_samples=self.samples))
        return setup if self.prior is None else replace(setup, prior=self.prior, body=None)

    def identity(self) -> dict[str, Any]:
        """Return what the content depends on, as plain data by the names of the options."""
        return {
            "dropsim": version("dropsim"),
            "scene": json.loads(json.dumps([[table.name, table.values] for table in self.distribution.tables])),
            "count": self.count,
            "seed": self.seed,
            "seconds": self.seconds,
            "samples": self.samples,
            "shard_size": self.shard_size,
            "prior": None if self.prior is None else _identified(self.prior),
        }


@functools.cache
def _identified(prior: str) -> str:
    """Return a prior's name; a file's with a part of its hash, since another file may come to have the same name."""
    path = Path(prior)
    return f"{prior} ({hashlib.sha256(path.read_bytes()).hexdigest()[:12]})" if path.is_file() else prior


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Say how two recipes differ, as the end of a sentence; None if they do not."""
    for name in dict.fromkeys((*old, *new)):
        before, now = old.get(name), new.get(name)
        if before != now:
            option = name if name == "dropsim" else f"--{name.replace('_', '-')}"
            other = "another distribution of scenes (--scene)"
            return f"with {other}" if name == "scene" else f"with {option} {before}, and not with {option} {now}"
    return None
