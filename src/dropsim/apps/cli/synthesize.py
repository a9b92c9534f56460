"""`dropsim synthesize`: data sets of perturbed motion."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import BodyFile, optional

if TYPE_CHECKING:
    from dropsim.research.synthesis.dataset import Workers

LINE_PERIOD = 30.0
"""Time between two lines if there is no terminal for a bar [s]."""


@dataclass(frozen=True)
class Synthesize:
    """Make a data set of perturbed motion as sharded Parquet; the same command resumes a run that was interrupted.

    Example: dropsim synthesize --count 1000 --scene mixed --out data
    """

    count: int
    """Clips to simulate; those that fail the quality gates are left out and counted."""
    out: Path
    """Folder of the data set."""
    scene: Annotated[str, tyro.conf.arg(metavar="NAME|FILE.toml")] = "mixed"
    """A distribution of scenes: a ready one, a file (docs/synthesis.md), or a scenario or scene file."""
    seed: int = 0
    """Seed of everything random; a clip depends only on it and on the clip's index."""
    workers: int | None = None
    """Processes; by default one per core."""
    seconds: float | None = None
    """Length of a clip [s]; by default the distribution's."""
    samples: int | None = None
    """K, candidates of the prior per frame; by default the distribution's."""
    prior: Annotated[str | None, optional("NAME|FILE", "the distribution's")] = None
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""
    body: BodyFile = None
    """SMPL's file of the body that HuMoR was trained on."""
    shard_size: int = 64
    """Clips per file."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="local|auto|ADDRESS")] = None
    """Use Ray: local starts it here, auto finds the cluster of this machine; otherwise a cluster's address."""

    def run(self) -> None:
        import importlib.util

        from dropsim.apps.cli.progress import bar, tell_of_compiling
        from dropsim.priors.named import prior_name
        from dropsim.research.synthesis.clip import Recipe
        from dropsim.research.synthesis.dataset import synthesize
        from dropsim.research.synthesis.distribution import distribution

        if importlib.util.find_spec("pyarrow") is None:
            raise ValueError('Parquet needs pyarrow: pip install "dropsim[scale]"')
        if self.body is not None and self.prior is None:
            raise ValueError("--body is for HuMoR's checkpoint: give it with --prior best_model.pth")
        recipe = Recipe(
            distribution(self.scene),
            self.count,
            seed=self.seed,
            seconds=self.seconds,
            samples=self.samples,
            shard_size=self.shard_size,
            prior=None if self.prior is None else prior_name(self.prior, self.body),
        )
        workers = self._workers(recipe.num_shards)
        tell_of_compiling()
        with bar("clips", rate=True) as advance:
            progress = _Progress(advance)
            totals = synthesize(recipe, self.out, workers, progress.watch)
        rate = f"{progress.per_minute:.0f} clips simulated per minute" if progress.simulated else "all done before"
        print(f"{totals.kept} clips in {self.out / 'clips'}, {rate}")
        for reason, number in totals.rejected.items():
            print(f"{number} left out: {reason}")

    def _workers(self, num_shards: int) -> "Workers":
        import os

        from dropsim.research.synthesis.dataset import here, in_processes, on_ray

        if self.workers is not None and not 1 <= self.workers <= 1024:
            raise ValueError(f"--workers {self.workers}: give from 1 to 1024 processes")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        num = min(self.workers or cores, num_shards)
        if self.ray is not None:
            return partial(on_ray, self.ray, num)
        return here if num == 1 else partial(in_processes, num)


class _Progress:
    """Shows progress: a bar on a terminal, or now and then a line in a log."""

    def __init__(self, advance: Callable[[int, int], None]) -> None:
        self.advance, self.simulated, self.before = advance, 0, -1
        self.began = self.last_line = time.monotonic()

    def watch(self, done: int, total: int) -> None:
        if self.before < 0:
            self.before = done
        self.simulated, now = done - self.before, time.monotonic()
        if sys.stderr.isatty():
            self.advance(done, total)
        elif self.simulated and (now - self.last_line > LINE_PERIOD or done == total):
            self.last_line, rate = now, self.per_minute
            line = f"{done} of {total} clips, {rate:.0f} per minute, {(total - done) / rate:.0f} min left"
            print(line, file=sys.stderr, flush=True)

    @property
    def per_minute(self) -> float:
        return 60 * self.simulated / (time.monotonic() - self.began)
