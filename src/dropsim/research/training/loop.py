"""The training run: a budget in minutes or steps, a log, checkpoints that can be resumed, and the best weights kept by quality."""

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
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from dropsim.files.atomic import atomic_path
from dropsim.files.checkpoints import load_checkpoint

LOG_EVERY = 200
"""[steps]"""
SAVE_EVERY = 1000
"""[steps]"""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    step: int
    total: int
    seconds_left: float
    parts: dict[str, float]
    """Parts of the loss, averaged since the last report."""
    quality: dict[str, float]
    """As measured at the last checkpoint."""


class Saveable(Protocol):
    """A model that can be written to a file."""

    def save(self, path: Path) -> None: ...


Exported = TypeVar("Exported", bound=nn.Module)


class Trainer(ABC, Generic[Exported]):
    """Everything that changes during training, in one place that can be saved and resumed."""

    warm_up: int
    """Steps over which the learning rate rises."""
    max_gradient: float
    """Norm that gradients are clipped to."""

    rng: torch.Generator
    """All random numbers come from it."""

    def __init__(self, network: nn.Module, exported: Exported, options: Any, total_steps: int) -> None:  # noqa: ANN401 - a dataclass
        """Train `network`; `exported` is the part of it that is exported, with its weights averaged over the last steps."""
        self.network, self._averaged = network, exported
        self.average = copy.deepcopy(exported).requires_grad_(False)
        self.options, self.total_steps, self.step_count = options, total_steps, 0
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=options.learning_rate, weight_decay=1e-4, fused=True
        )

    @abstractmethod
    def step(self) -> dict[str, float]:
        """Take one step and return the parts of the loss."""

    def descend(self, loss: Tensor) -> None:
        """Take one step down the gradient, and update the averaged weights and the count."""
        progress = min(1.0, self.step_count / self.total_steps)
        rate = min(1.0, (self.step_count + 1) / self.warm_up) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * rate
        self.optimizer.zero_grad()
        loss.backward()
        if not nn.utils.clip_grad_norm_(self.network.parameters(), self.max_gradient).isfinite():
            raise ValueError(f"training diverged at step {self.step_count}: start again with a smaller learning rate")
        self.optimizer.step()
        with torch.no_grad():
            keep = min(self.options.ema, (1 + self.step_count) / (10 + self.step_count))
            for old, new in zip(self.average.parameters(), self._averaged.parameters(), strict=True):
                old.lerp_(new, 1 - keep)
        self.step_count += 1

    def weights_of(self, path: Path) -> Mapping[str, Tensor]:
        """Read the weights of another run from its checkpoint."""
        state: Any = load_checkpoint(path)
        with resuming(path):
            return state["network"]

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights of another run."""
        self.network.load_state_dict(weights)
        self.average.load_state_dict(self._averaged.state_dict())

    def state(self) -> dict[str, Any]:
        """Return everything that a resumed run needs."""
        return {
            "network": self.network.state_dict(), "average": self.average.state_dict(), "optimizer": self.optimizer.state_dict(),
            "step": self.step_count, "total": self.total_steps, "rng": self.rng.get_state(), "options": asdict(self.options),
        }  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step_count = state["step"]
        self.rng.set_state(state["rng"])


@contextmanager
def resuming(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a checkpoint into one sentence."""
    try:
        yield
    except (
        OSError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} cannot be resumed ({reason}): start again in another folder") from None


@dataclass(frozen=True)
class Budget:
    """How long to train, and what to start from."""

    minutes: float
    steps: int = 0
    """Exact number of steps, which makes a run reproducible by its seed; 0 takes what fits into the minutes."""
    resume: bool = False
    """Go on from the checkpoint in the output folder, if there is one."""
    init: Path | None = None
    """Checkpoint of another run whose weights to start from."""


def train(
    make: Callable[[Any, int], Trainer[Any]],
    options: Any,  # noqa: ANN401 - a dataclass
    judge: Callable[[Any], tuple[Saveable, dict[str, float]]],
    path: Path,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train until the budget is spent, and return the path of the best weights by the "score" that `judge` measures.

    `make` builds a trainer from options and a number of steps. The checkpoint, the log and the last weights are next to
    `path`.
    """
    deadline = time.monotonic() + 60 * budget.minutes
    path.parent.mkdir(parents=True, exist_ok=True)
    saved, best = path.with_name("checkpoint.pt"), -math.inf
    if budget.resume and saved.exists():
        state: Any = load_checkpoint(saved)
        with resuming(saved):
            trainer = make(type(options)(**state["options"]), state["total"])
            trainer.resume(state)
            best = float(state["best"])
    else:
        trainer = make(options, budget.steps or 10**6)
        if budget.init:
            weights = trainer.weights_of(budget.init)
            with resuming(budget.init):
                trainer.start_from(weights)
        if not budget.steps:
            trainer.total_steps = _steps_for(trainer, budget.minutes)

    def checkpoint() -> dict[str, float]:
        nonlocal best
        model, quality = judge(trainer)
        model.save(path.with_name("last.safetensors"))
        if quality["score"] > best:
            best = quality["score"]
            model.save(path)
        with atomic_path(saved) as temporary:
            torch.save({**trainer.state(), "best": best}, temporary)
        return quality

    _run(trainer, path.with_name("log.jsonl"), deadline, budget.steps == 0 and not budget.resume, checkpoint, watch)
    return path


def _steps_for(trainer: Trainer[Any], minutes: float) -> int:
    """Estimate how many steps fit into the minutes from the speed of the first ones, which count."""
    trial, began = 40, time.monotonic()
    for _ in range(trial):
        trainer.step()
    return max(trial, round(60 * minutes * 0.97 / ((time.monotonic() - began) / trial)))


def _run(
    trainer: Trainer[Any],
    log_path: Path,
    deadline: float,
    adaptive: bool,
    checkpoint: Callable[[], dict[str, float]],
    watch: Callable[[Progress], None] | None,
) -> None:
    """Take steps until all are done or the deadline has passed; log, report and save on the way and at the end.

    An adaptive run estimates its steps again from time to time, so that its schedule ends with the deadline on a busy
    machine too.
    """
    clock, sums, quality, saved = time.monotonic(), dict[str, float](), dict[str, float](), -1
    with log_path.open("a", encoding="utf-8") as log:
        while trainer.step_count < trainer.total_steps and time.monotonic() < deadline:
            for name, value in trainer.step().items():
                sums[name] = sums.get(name, 0.0) + value / LOG_EVERY
            if trainer.step_count % SAVE_EVERY == 0 or trainer.step_count == trainer.total_steps:
                quality, saved = checkpoint(), trainer.step_count
            if trainer.step_count % LOG_EVERY == 0:
                now = time.monotonic()
                pace, clock = (now - clock) / LOG_EVERY, now
                if adaptive:
                    trainer.total_steps = trainer.step_count + max(1, round((deadline - now) / pace))
                left = pace * (trainer.total_steps - trainer.step_count)
                log.write(
                    json.dumps({"step": trainer.step_count, **{k: round(v, 4) for k, v in (sums | quality).items()}})
                    + "\n"
                )
                log.flush()
                if watch:
                    watch(Progress(trainer.step_count, trainer.total_steps, left, dict(sums), quality))
                sums = {}
    if saved != trainer.step_count:
        checkpoint()
