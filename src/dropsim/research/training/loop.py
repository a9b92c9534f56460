"""The training run: a budget in minutes or steps, a log, and checkpoints to resume from."""

import copy
import json
import math
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from dropsim.files.atomic import atomic_path
from dropsim.files.checkpoints import load_checkpoint

LOG_EVERY = 200
"""Steps between two lines of the log."""
SAVE_EVERY = 1000
"""Steps between two checkpoints."""
Exported = TypeVar("Exported", bound=nn.Module)


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    step: int
    seconds_left: float
    parts: dict[str, float]
    """Parts of the loss, averaged since the last report."""
    quality: dict[str, float]
    """Quality as measured at the last checkpoint."""


@dataclass(frozen=True)
class Budget:
    """How long to train, and what to start from."""

    minutes: float
    steps: int = 0
    """Exact number of steps, which makes a run reproducible by its seed; 0 takes what fits into the minutes."""
    resume: bool = False
    """Whether to go on from the checkpoint in the output folder, if there is one; the time before counts."""

    def progress(self, step: int, seconds: float) -> float:
        """Return the share of the budget that is spent."""
        return step / self.steps if self.steps else seconds / (60 * self.minutes)


class Trainer(ABC, Generic[Exported]):
    """Everything that changes during training."""

    warm_up: int
    """Steps over which the learning rate rises."""
    max_gradient: float
    """Norm that gradients are clipped to."""
    progress = 0.0
    """Share of the training that is done; the learning rate falls with it."""
    rng: torch.Generator
    """Source of all random numbers."""

    def __init__(self, network: nn.Module, exported: Exported, options: Any) -> None:  # noqa: ANN401 - a dataclass
        """Train `network`; `exported` is the part of it that is exported, with weights averaged over the last steps."""
        self.network, self.exported, self.options, self.step_count = network, exported, options, 0
        self.average = copy.deepcopy(exported).requires_grad_(False)
        parameters, rate = network.parameters(), options.learning_rate
        self.optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-4, fused=True)

    @abstractmethod
    def step(self) -> dict[str, float]:
        """Take one step and return the parts of the loss."""

    def descend(self, loss: Tensor) -> None:
        """Take one step down the gradient, and update the averaged weights and the count."""
        fall = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * min(1.0, (self.step_count + 1) / self.warm_up) * fall
        self.optimizer.zero_grad()
        loss.backward()
        if not nn.utils.clip_grad_norm_(self.network.parameters(), self.max_gradient).isfinite():
            raise ValueError(f"training diverged at step {self.step_count}: start again with a smaller learning rate")
        self.optimizer.step()
        with torch.no_grad():
            keep = min(self.options.ema, (1 + self.step_count) / (10 + self.step_count))
            for old, new in zip(self.average.parameters(), self.exported.parameters(), strict=True):
                old.lerp_(new, 1 - keep)
        self.step_count += 1

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs; it draws other examples than the run would have."""
        parts = {name: getattr(self, name).state_dict() for name in ("network", "average", "optimizer")}
        return {**parts, "step": self.step_count, "options": asdict(self.options)}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        for name in ("network", "average", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.step_count = int(state["step"])
        self.rng.manual_seed(self.rng.initial_seed() + self.step_count)


def train(
    make: Callable[[Any], Trainer[Any]],
    options: Any,  # noqa: ANN401 - a dataclass
    judge: Callable[[Any], tuple[Any, dict[str, float]]],
    path: Path,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train until the budget is spent, and return the path of the weights.

    `make` builds a trainer from options; `judge` returns a model that can be saved, and its quality. The checkpoint and
    the log are next to `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    saved, before = path.with_name("checkpoint.pt"), 0.0
    if budget.resume and saved.exists():
        trainer, before = _resumed(saved, make, type(options))
    else:
        trainer = make(options)
    began, quality, sums = time.monotonic() - before, dict[str, float](), dict[str, float]()

    def checkpoint() -> dict[str, float]:
        model, quality = judge(trainer)
        model.save(path)
        with atomic_path(saved) as temporary:
            torch.save({**trainer.state(), "seconds": time.monotonic() - began}, temporary)
        return quality

    with path.with_name("log.jsonl").open("a", encoding="utf-8") as log:
        while True:
            seconds = time.monotonic() - began
            trainer.progress = budget.progress(trainer.step_count, seconds)
            if trainer.progress >= 1 or seconds >= 60 * budget.minutes:
                break
            for name, value in trainer.step().items():
                sums[name] = sums.get(name, 0.0) + value / LOG_EVERY
            if trainer.step_count % SAVE_EVERY == 0:
                quality = checkpoint()
            if trainer.step_count % LOG_EVERY == 0:
                line = {name: round(value, 4) for name, value in (sums | quality).items()}
                log.write(json.dumps({"step": trainer.step_count, **line}) + "\n")
                log.flush()
                if watch:
                    left = seconds * (1 / max(trainer.progress, 1e-6) - 1)
                    watch(Progress(trainer.step_count, left, sums, quality))
                sums = {}
    checkpoint()
    return path


def _resumed(path: Path, make: Callable[[Any], Trainer[Any]], kind: type) -> tuple[Trainer[Any], float]:
    """Return the trainer of a checkpoint with options of some kind, and the time that it has trained [s]."""
    state: Any = load_checkpoint(path)
    damage = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
    try:
        trainer = make(kind(**state["options"]))
        trainer.resume(state)
        return trainer, float(state["seconds"])
    except (OSError, *damage) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} cannot be resumed ({reason}): start again in another folder") from None
