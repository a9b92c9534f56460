"""The training run: a budget in minutes or steps, a log, checkpoints that can be resumed, and the best weights kept by roll-out quality."""

import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from dropsim.body.skeleton import Skeleton
from dropsim.files.atomic import atomic_path
from dropsim.files.weights import read_checkpoint
from dropsim.motion.clips import load
from dropsim.physics import metrics
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, Local
from dropsim.priors.prior import State, Streams
from dropsim.priors.rollout import roll_out
from dropsim.research.training.frames import Frames
from dropsim.research.training.prior import LOCAL_FIELDS, Particles, PriorOptions, PriorTrainer
from dropsim.research.training.starts import held_out_starts

LOG_EVERY = 200
"""[steps]"""
SAVE_EVERY = 1000
"""[steps]"""
QUALITY_PEOPLE = 96
QUALITY_SECONDS = 6.0


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for the one who watches."""

    step: int
    total: int
    seconds_left: float
    parts: dict[str, float]
    quality: dict[str, float]


@runtime_checkable
class Trainer(Protocol):
    """What a run needs of a model in training."""

    step_count: int
    total_steps: int

    def step(self) -> dict[str, float]:
        """Take one step and return the parts of the loss."""
        ...


def steps_for(trainer: Trainer, minutes: float) -> int:
    """Estimate how many steps fit into the minutes, from the speed of a few that count."""
    trial = 40
    began = time.monotonic()
    for _ in range(trial):
        trainer.step()
    return max(trial, round(60 * minutes * 0.97 / ((time.monotonic() - began) / trial)))


@contextmanager
def resuming(path: Path) -> Iterator[None]:
    """Turn what goes wrong with a checkpoint into a sentence."""
    try:
        yield
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} cannot be resumed ({reason}): start anew in another folder") from None


def run(
    trainer: Trainer, out: Path, *, deadline: float, checkpoint: Callable[[], dict[str, float]], watch: Callable[[Progress], None] | None
) -> None:
    """Take steps until all are done or time.monotonic() is past the deadline; log, watch and call checkpoint on the way and at the end."""
    first, clock, sums, quality, saved = trainer.step_count, time.monotonic(), dict[str, float](), dict[str, float](), -1
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        while trainer.step_count < trainer.total_steps and time.monotonic() < deadline:
            for name, value in trainer.step().items():
                sums[name] = sums.get(name, 0.0) + value / LOG_EVERY
            if trainer.step_count % SAVE_EVERY == 0 or trainer.step_count == trainer.total_steps:
                quality, saved = checkpoint(), trainer.step_count
            if trainer.step_count % LOG_EVERY == 0:
                left = (time.monotonic() - clock) / (trainer.step_count - first) * (trainer.total_steps - trainer.step_count)
                log.write(json.dumps({"step": trainer.step_count, **{k: round(v, 4) for k, v in (sums | quality).items()}}) + "\n")
                log.flush()
                if watch:
                    watch(Progress(trainer.step_count, trainer.total_steps, left, dict(sums), quality))
                sums = {}
    if saved != trainer.step_count:
        checkpoint()


def rollout_quality(prior: CVAEPrior, starts: State) -> dict[str, float]:
    """Measure sampled roll-outs: the share that stays human and upright, foot skate, and one number to choose weights by."""
    motion = roll_out(prior, starts, round(QUALITY_SECONDS * prior.fps), Streams(list(range(len(starts.x)))))
    human = float(metrics.human(motion).double().mean())
    skate = float(metrics.foot_skate(motion).nan_to_num(nan=10.0).median())
    upright = float(metrics.upright(motion)[..., -1].double().mean())
    speed = float(metrics.root_speed(motion).nan_to_num(nan=0.0).mean())
    return {"human": human, "upright": upright, "skate": skate, "speed": speed, "score": human - skate}


def _save(trainer: PriorTrainer, out: Path, best: float) -> None:
    """Write everything that a resumed run needs."""
    p = trainer.particles
    state = {
        "network": trainer.network.state_dict(), "average": trainer.average.state_dict(), "optimizer": trainer.optimizer.state_dict(),
        "particles": {"at": p.at, "mirrored": p.mirrored, "age": p.age, **{k: getattr(p.state, k) for k in LOCAL_FIELDS}},
        "log_beta": trainer.log_beta, "step": trainer.step_count, "total": trainer.total_steps, "rng": trainer.rng.get_state(),
        "options": asdict(trainer.options), "best": best,
    }  # fmt: skip
    with atomic_path(out / "checkpoint.pt") as temporary:
        torch.save(state, temporary)


def _resume(frames: Frames, path: Path) -> tuple[PriorTrainer, float]:
    state: Any = read_checkpoint(path)
    with resuming(path):
        trainer = PriorTrainer(frames, PriorOptions(**state["options"]), state["total"])
        trainer.network.load_state_dict(state["network"])
        trainer.average.load_state_dict(state["average"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        p = dict(state["particles"])
        local = Local(**{k: p.pop(k) for k in LOCAL_FIELDS})
        trainer.particles = Particles(**p, state=local)
        if (trainer.particles.at >= frames.last[trainer.particles.at]).any():
            raise ValueError("it belongs to other data")
        trainer.log_beta, trainer.step_count = state["log_beta"], state["step"]
        trainer.rng.set_state(state["rng"])
        return trainer, state["best"]


def train_prior(
    data: Path, out: Path, *, minutes: float, resume: bool, options: PriorOptions, steps: int = 0,
    init: Path | None = None, watch: Callable[[Progress], None] | None = None,
) -> Path:  # fmt: skip
    """Train until the budget is spent and return the path of the best weights; `init` is another run's checkpoint to start from.

    The schedule is laid out in steps. `steps` fixes their number, which makes a run reproducible by its seed; otherwise it is
    estimated from the minutes and the speed of the first steps.
    """
    deadline = time.monotonic() + 60 * minutes
    frames = Frames.of(load(data, held_out=False))
    held_out = load(data, held_out=True)
    out.mkdir(parents=True, exist_ok=True)
    best = -1e9
    if resume and (out / "checkpoint.pt").exists():
        trainer, best = _resume(frames, out / "checkpoint.pt")
    else:
        # A network that knows how to move can roll far from the start.
        trainer = PriorTrainer(frames, replace(options, ramp=0.05) if init else options, steps or 10**6)
        if init:
            state: Any = read_checkpoint(init)
            with resuming(init):
                trainer.start_from(state["network"])
        if not steps:
            trainer.total_steps = steps_for(trainer, minutes)
    skeleton = Skeleton.adult()
    temperature = trainer.options.temperature
    starts = held_out_starts(held_out, _as_prior(trainer.average, skeleton, temperature), QUALITY_PEOPLE, seed=1)

    def checkpoint() -> dict[str, float]:
        nonlocal best
        prior = _as_prior(trainer.average, skeleton, temperature)
        quality = rollout_quality(prior, starts)
        prior.save(out / "last.safetensors")
        if quality["score"] > best:
            best = quality["score"]
            prior.save(out / "prior.safetensors")
        _save(trainer, out, best)
        return quality

    run(trainer, out, deadline=deadline, checkpoint=checkpoint, watch=watch)
    return out / "prior.safetensors"


def _as_prior(network: CVAENetwork, skeleton: Skeleton, temperature: float) -> CVAEPrior:
    """Return a prior on a copy of the weights, so that training goes on undisturbed."""
    copy = CVAENetwork(network.shape)
    copy.load_state_dict(network.state_dict())
    return CVAEPrior(copy, skeleton, temperature=temperature)
