"""How many threads torch may use while people are simulated.

One is as fast as two for one person. And OpenMP's threads spin while they wait for each other: when the cores are busy with something else,
a step on two of them can take a thousand times as long. So whatever OMP_NUM_THREADS says, a step runs on one thread, or on as many as
DROPSIM_THREADS says; what torch was set to before holds again afterwards. And threads that there are, such as those of a training, wait
asleep: `import dropsim` asks for that where torch is not loaded yet and the user has not said otherwise.
"""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
VARIABLE = "DROPSIM_THREADS"


@functools.cache
def limit() -> int:
    """Return how many threads a step may use."""
    value = os.environ.get(VARIABLE, "1")
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"{VARIABLE} has to be a number of threads, 1 or more, and is {value!r}")
    return int(value)


def single_threaded(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function run on a step's number of threads."""

    @functools.wraps(function)
    def kept(*args: P.args, **kwargs: P.kwargs) -> R:
        before, most = torch.get_num_threads(), limit()
        if before == most:
            return function(*args, **kwargs)
        torch.set_num_threads(most)
        try:
            return function(*args, **kwargs)
        finally:
            torch.set_num_threads(before)

    return kept
