"""The training run: a budget in minutes or steps, a log, checkpoints to resume from, and the best weights."""

import copy
import json
import math
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    """Go on from the checkpoint in the output folder, if there is one, to the end of the longer one of its budget and
    this."""
    init: Path | None = None
    """Checkpoint of another run whose weights to start from."""

    def progress(self, step: int, seconds: float) -> float:
        """Return the share of the budget that is spent."""
        return step / self.steps if self.steps else seconds / (60 * self.minutes)


class Trainer(ABC, Generic[Exported]):
    """Everything that changes during training, in one place that can be saved and resumed."""

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

    def start_from(self, path: Path) -> None:
        """Take over the weights of another run from its checkpoint."""
        state: Any = load_checkpoint(path)
        with resuming(path):
            self.network.load_state_dict(state["network"])
        self.average.load_state_dict(self.exported.state_dict())

    def state(self) -> dict[str, Any]:
        """Return everything that a resumed run needs."""
        parts = {name: getattr(self, name).state_dict() for name in ("network", "average", "optimizer")}
        return {**parts, "step": self.step_count, "rng": self.rng.get_state(), "options": asdict(self.options)}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        for name in ("network", "average", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.step_count = state["step"]
        self.rng.set_state(state["rng"])


@contextmanager
def resuming(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a checkpoint into one sentence."""
    damage = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
    try:
        yield
    except (OSError, *damage) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} cannot be resumed ({reason}): start again in another folder") from None


def train(
    make: Callable[[Any], Trainer[Any]],
    options: Any,  # noqa: ANN401 - a dataclass
    judge: Callable[[Any], tuple[Any, dict[str, float]]],
    path: Path,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train until the budget is spent, and return the path of the best weights by the "score" that `judge` measures.

    `make` builds a trainer from options, and `judge` a model that can be saved. The checkpoint, the log and the last
    weights are next to `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    saved, best, before = path.with_name("checkpoint.pt"), -math.inf, 0.0
    if budget.resume and saved.exists():
        state: Any = load_checkpoint(saved)
        with resuming(saved):
            trainer = make(type(options)(**state["options"]))
            trainer.resume(state)
            best, before, begun = float(state["best"]), float(state["seconds"]), Budget(**state["budget"])
            budget = Budget(max(budget.minutes, begun.minutes), max(budget.steps, begun.steps))
    else:
        trainer = make(options)
        if budget.init:
            trainer.start_from(budget.init)
    began, quality, saved_at = time.monotonic() - before, dict[str, float](), -1

    def checkpoint() -> None:
        nonlocal best, quality, saved_at
        model, quality = judge(trainer)
        model.save(path.with_name("last.safetensors"))
        if quality["score"] > best:
            best = quality["score"]
            model.save(path)
        limits = {"minutes": budget.minutes, "steps": budget.steps}
        run = {"best": best, "seconds": time.monotonic() - began, "budget": limits}
        with atomic_path(saved) as temporary:
            torch.save({**trainer.state(), **run}, temporary)
        saved_at = trainer.step_count

    sums = dict[str, float]()
    with path.with_name("log.jsonl").open("a", encoding="utf-8") as log:
        while True:
            seconds = time.monotonic() - began
            trainer.progress = budget.progress(trainer.step_count, seconds)
            if trainer.progress >= 1 or seconds >= 60 * budget.minutes:
                break
            for name, value in trainer.step().items():
                sums[name] = sums.get(name, 0.0) + value / LOG_EVERY
            if trainer.step_count % SAVE_EVERY == 0:
                checkpoint()
            if trainer.step_count % LOG_EVERY == 0:
                line = {name: round(value, 4) for name, value in (sums | quality).items()}
                log.write(json.dumps({"step": trainer.step_count, **line}) + "\n")
                log.flush()
                if watch:
                    left = seconds * (1 / max(trainer.progress, 1e-6) - 1)
                    watch(Progress(trainer.step_count, left, sums, quality))
                sums = {}
    if saved_at != trainer.step_count:
        checkpoint()
    return path
