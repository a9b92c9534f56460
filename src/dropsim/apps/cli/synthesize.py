"""`dropsim synthesize`: data sets of perturbed motion."""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dropsim.apps.cli.arguments import BodyFile, PriorOptions, optional


@dataclass(frozen=True, kw_only=True)
class Synthesize(PriorOptions):
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
    workers: Annotated[int | None, optional("INT", "one per core")] = None
    """Processes."""
    seconds: Annotated[float | None, optional("S", "the distribution's")] = None
    """Length of a clip [s]."""
    samples: Annotated[int | None, optional("K", "the distribution's")] = None
    """Candidates of the prior a frame."""
    body: BodyFile = None
    """SMPL's file of the body that HuMoR was trained on."""
    shard_size: int = 64
    """Clips per file."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="local|auto|ADDRESS")] = None
    """Use Ray: local starts it here, auto finds the cluster of this machine; otherwise a cluster's address."""

    def run(self) -> None:
        """Simulate, and say how many clips there are."""
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
        if self.workers is not None and not 1 <= self.workers <= 1024:
            raise ValueError(f"--workers {self.workers}: give from 1 to 1024 processes")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(self.workers or cores, recipe.num_shards)
        tell_of_compiling()
        with bar("clips") as advance:
            totals = synthesize(recipe, self.out, workers=workers, ray=self.ray, watch=advance)
        print(f"{totals.kept} clips in {self.out / 'clips'}")
        for reason, number in totals.rejected.items():
            print(f"{number} left out: {reason}")
