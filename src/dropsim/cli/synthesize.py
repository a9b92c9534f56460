"""`dropsim synthesize`: data sets of people to whom things happen."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from dropsim.synthesis.workers import Workers


@dataclass(frozen=True)
class Synthesize:
    """Make a data set of perturbed motion as sharded Parquet; the same command again goes on where a run was ended.

    Example: dropsim synthesize --count 1000 --scene mixed --out data
    """

    count: int
    """Clips to simulate; those that fail the quality gates are left out and counted."""
    out: Path
    """Folder of the data set."""
    scene: Annotated[str, tyro.conf.arg(metavar="NAME|FILE.toml")] = "mixed"
    """What happens: the ready distribution, a file (docs/synthesis.md), or a scenario or scene file as it is."""
    seed: int = 0
    """Of everything random; a clip depends on it and on its own index alone."""
    workers: int | None = None
    """Processes; as many as there are cores unless given."""
    seconds: float | None = None
    """Length of a clip [s]; the distribution's own unless given."""
    samples: int | None = None
    """K, candidates of the prior a frame; the distribution's own unless given."""
    shard_size: int = 64
    """Clips a file."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="local|auto|ADDRESS")] = None
    """Use Ray: local starts it here, auto finds the cluster of this machine, else a cluster's address."""

    def run(self) -> None:
        """Simulate, write, and say what there is."""
        import importlib.util
        import time

        from dropsim.cli.progress import bar
        from dropsim.synthesis.distribution import distribution
        from dropsim.synthesis.recipe import Recipe
        from dropsim.synthesis.run import synthesize

        if importlib.util.find_spec("pyarrow") is None:
            raise ValueError('Parquet needs pyarrow: pip install "dropsim[scale]"')
        recipe = Recipe(
            distribution(self.scene), self.count, seed=self.seed, seconds=self.seconds, samples=self.samples, shard_size=self.shard_size
        )
        workers = self._workers(recipe.num_shards)
        begun, first = time.monotonic(), list[int]()
        with bar("clips", rate=True) as advance:

            def watch(done: int, total: int) -> None:
                first.append(done)
                advance(done, total)

            found = synthesize(recipe, self.out, workers, watch)
        minutes = (time.monotonic() - begun) / 60
        made = found.clips - first[0]
        print(
            f"{found.kept} clips in {self.out / 'clips'}"
            + (f", {made / minutes:.0f} clips simulated a minute" if made else ", all there before")
        )
        for reason, number in found.rejected.items():
            print(f"{number} left out: {reason}")

    def _workers(self, num_shards: int) -> "Workers":
        import os

        import torch

        from dropsim.synthesis.workers import Here, OnRay, Processes

        if self.workers is not None and not 1 <= self.workers <= 1024:
            raise ValueError(f"--workers {self.workers}: give from 1 to 1024 processes")
        num = min(self.workers or len(os.sched_getaffinity(0)), num_shards)
        if self.ray is not None:
            return OnRay(self.ray, num)
        torch.set_num_threads(1)
        return Here() if num == 1 else Processes(num)
