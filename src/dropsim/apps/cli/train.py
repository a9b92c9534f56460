"""`dropsim train prior|pose`: weights of your own, from a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from dropsim.research.training.loop import Progress


@dataclass(frozen=True)
class Train:
    """Train the motion prior or the pose model.

    Example: dropsim train prior --data DATA --out RUN --minutes 120, with data from `dropsim data build`. Needs the
    extra `train`.
    """

    model: tyro.conf.Positional[Literal["prior", "pose"]]
    """The motion prior, or the model of natural poses."""
    data: Path
    """Folder of the data set."""
    out: Path
    """Folder for the weights, the log and the checkpoint."""
    minutes: float = 60.0
    """Time to spend [min]."""
    steps: int = 0
    """Exact number of steps, for a run that its seed reproduces; 0 takes what fits into the minutes."""
    resume: bool = False
    """Go on from the checkpoint in the output folder, until --minutes or --steps are spent in all."""
    threads: int = 1
    """Threads that torch may use."""
    seed: int = 0
    """Seed of everything random."""

    def run(self) -> None:
        """Train, and print a line of progress now and then."""
        if self.minutes <= 0 or self.threads < 1 or self.steps < 0:
            raise ValueError("minutes and threads must be positive, steps not negative")
        print(f"wrote {self._train()}")

    def _train(self) -> Path:
        try:
            import torch
        except ImportError:
            raise ValueError("training needs PyTorch: run `pip install 'dropsim[train]'`") from None
        from dropsim.research.training.loop import Budget
        from dropsim.research.training.pose import PoseOptions, train_pose
        from dropsim.research.training.prior import PriorOptions, train_prior

        torch.set_num_threads(self.threads)
        budget = Budget(self.minutes, self.steps, self.resume)
        if self.model == "prior":
            return train_prior(self.data, self.out, PriorOptions(seed=self.seed), budget, _print_progress)
        return train_pose(self.data, self.out, PoseOptions(seed=self.seed), budget, _print_progress)


def _print_progress(progress: Progress) -> None:
    parts = " ".join(f"{k} {v:.3g}" for k, v in (progress.parts | progress.quality).items())
    hours, seconds = divmod(progress.seconds_left, 3600)
    print(f"step {progress.step}, {hours:.0f}:{seconds // 60:02.0f} h left: {parts}", flush=True)
