"""Time of one sample of K = 64 candidates, by the number of characters, beside its matrix products at this machine's sgemm peak."""

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from dropsim.prior import State, Streams
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.skeleton import Skeleton
from dropsim.synthetic import stepping_clip

K = 64
CHARACTERS = (1, 256)


def median_seconds(call: Callable[[], object], budget: float = 3.0) -> float:
    """Return the median time of a call within a budget, after two calls to warm up [s]."""
    times, end = [], time.perf_counter() + budget
    for _ in range(2):
        call()
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_flops() -> float:
    """Return what a product of two square matrices reaches here, the best of some [flop/s]."""
    n = 1024
    a, b = torch.randn(n, n), torch.randn(n, n)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


def network_flops(shape: CVAEShape, characters: int) -> int:
    """Count the matrix products of one sample: the state's part of the first layer once per character, the rest once per candidate."""
    prior = (shape.state_size, *shape.prior, 2 * shape.latent)
    once = sum(a * b for a, b in itertools.pairwise(prior)) + shape.state_size * shape.decoder[0]
    decoder = (0, *shape.decoder, shape.output_size)
    each = sum((a + shape.latent) * b for a, b in itertools.pairwise(decoder))
    return 2 * characters * (once + K * each)


def load_prior() -> CVAEPrior:
    """Return the shipped prior, or a random network of its sizes where the package has none."""
    try:
        return CVAEPrior.shipped()
    except ValueError as error:
        print(f"random weights: {error}")
        shape = CVAEShape(latent=32, decoder=(512, 512, 512), prior=(512, 512), kinematic=True)
        torch.manual_seed(0)
        return CVAEPrior(CVAENetwork(shape), Skeleton.adult())


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    prior = load_prior()
    clip = stepping_clip(2.0)
    peak = peak_flops()
    print(f"sgemm peak {peak / 1e9:.0f} GFLOP/s on one thread; {prior.network.shape}")
    print(f"{'characters':>10}{'sample(64) ms':>15}{'products ms':>13}{'ratio':>7}{'characters/s':>14}")
    for characters in CHARACTERS:
        one = prior.start_from(clip, 20)
        state = State(*(getattr(one, f).expand(characters, *getattr(one, f).shape).contiguous() for f in ("x", "v", "q", "memory")))
        rng = Streams(list(range(characters)))
        seconds = median_seconds(lambda state=state, rng=rng: prior.sample(state, K, rng))
        # Measured again beside each, because other work on the machine comes and goes.
        peak = max(peak, peak_flops())
        least = network_flops(prior.network.shape, characters) / peak
        print(f"{characters:10}{1e3 * seconds:15.2f}{1e3 * least:13.2f}{seconds / least:7.1f}{characters / seconds:14.0f}")


if __name__ == "__main__":
    main()
