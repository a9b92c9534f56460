"""Frames a second of one person and of batches, beside the prior alone in the same run."""

import statistics
import time
from collections.abc import Callable

import torch

from dropsim.energies.physical import RangeOfMotion
from dropsim.pose_prior import PosePrior
from dropsim.prior import State, Streams
from dropsim.priors.cvae import CVAEPrior
from dropsim.simulator import External, Simulator

REPEATS = 20


def median_time(work: Callable[[], object]) -> float:
    """Median of several runs, warm [s]."""
    for _ in range(3):
        work()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    prior = CVAEPrior.shipped()
    simulator = Simulator(prior, range_of_motion=RangeOfMotion(PosePrior.shipped()))
    print("| people | K | step [ms] | frames/s a person | prior alone [ms] | step / prior |")
    print("|---|---|---|---|---|---|")
    for people, samples in ((1, 16), (1, 64), (1, 256), (16, 64), (64, 64)):
        one = prior.start("walk", seed=0)
        start = State(*(torch.stack([v] * people) for v in (one.x, one.v, one.q, one.memory)))
        body = Simulator(prior, range_of_motion=simulator.range_of_motion, num_samples=samples)
        rng, world = Streams(list(range(people))), External()
        step = median_time(lambda body=body, start=start, rng=rng, world=world: body.step(start, world, rng))
        alone = median_time(lambda start=start, samples=samples, rng=rng: prior.sample(start, samples, rng))
        print(f"| {people} | {samples} | {1000 * step:.2f} | {people / step:.0f} | {1000 * alone:.2f} | {step / alone:.2f} |")


if __name__ == "__main__":
    main()
