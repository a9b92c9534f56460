"""How fast one person is simulated, next to what the machine's arithmetic can do at the same time."""

import time
from dataclasses import dataclass
from itertools import pairwise

from dropsim.compute.threads import single_threaded
from dropsim.physics.step import Simulator
from dropsim.research.evaluation.bench import sgemm_peak
from dropsim.scene import Person, Scene, World, run


@dataclass(frozen=True)
class Speed:
    """Measured on one thread."""

    frames_per_second: float
    """Of one person."""
    batch_frames_per_second: float
    """Frames of the people of a batch, in all."""
    batch: int
    """How many people."""
    gflops: float
    """Peak of a product of matrices in single precision."""
    frame_seconds: tuple[float, ...]
    """Time that each frame of the one person took [s]."""


@single_threaded
def measure_speed(simulator: Simulator, *, frames: int = 150, batch: int = 25) -> Speed:
    """Time people who walk."""
    world = World(Scene((Person("walk"),)), simulator)
    run(world, 5, 0)  # compiled and warm
    ticks = [time.perf_counter()]
    run(world, frames + 1, 0, watch=lambda done, total: ticks.append(time.perf_counter()))
    began, few = time.perf_counter(), max(2, frames // 10)
    run(world, few + 1, list(range(batch)))
    together = batch * few / (time.perf_counter() - began)
    spent = tuple(after - before for before, after in pairwise(ticks))
    return Speed(len(spent) / sum(spent), together, batch, sgemm_peak(0.1) / 1e9, spent)
