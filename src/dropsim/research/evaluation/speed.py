"""How fast one person is simulated, beside what the machine's arithmetic can do in the same moment."""

import time
from dataclasses import dataclass
from itertools import pairwise

import torch

from dropsim.physics.step import Simulator
from dropsim.scene import Person, Scene, World, run

MATRIX = 1024
"""Rows of the matrices whose product measures the machine."""


@dataclass(frozen=True)
class Speed:
    """Measured on one thread."""

    frames_per_second: float
    """Of one person."""
    batch_frames_per_second: float
    """Frames of people who are simulated side by side, in all."""
    batch: int
    """How many."""
    gflops: float
    """Of a product of matrices in single precision, the sgemm peak."""
    frame_seconds: tuple[float, ...]
    """Time that each frame of the one person took [s]."""


def measure_speed(simulator: Simulator, *, frames: int = 150, batch: int = 25) -> Speed:
    """Let people walk and look at the clock."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        world = World(Scene((Person("walk"),)), simulator)
        run(world, 5, 0)  # compiled and warm
        ticks = [time.perf_counter()]
        run(world, frames + 1, 0, watch=lambda done, total: ticks.append(time.perf_counter()))
        began, few = time.perf_counter(), max(2, frames // 10)
        run(world, few + 1, list(range(batch)))
        together = batch * few / (time.perf_counter() - began)
        spent = tuple(after - before for before, after in pairwise(ticks))
        return Speed(len(spent) / sum(spent), together, batch, _gflops(), spent)
    finally:
        torch.set_num_threads(threads)


def _gflops() -> float:
    a = torch.ones(MATRIX, MATRIX)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - began)
    return 2 * MATRIX**3 / best / 1e9
