"""Number of threads of BLAS.

A step needs no BLAS: its kernels run on one thread. Benchmarks, evaluation, data sets and pictures need it, on one thread
too, whatever OMP_NUM_THREADS says, or on as many as DROPSIM_THREADS says: threads that wait for each other on busy cores
can be a thousand times slower.
"""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")
VARIABLE = "DROPSIM_THREADS"


@functools.cache
def limit() -> int:
    """Return how many threads BLAS may use."""
    value = os.environ.get(VARIABLE, "1")
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"{VARIABLE} has to be a number of threads, 1 or more, and is {value!r}")
    return int(value)


@functools.cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which has to be loaded to be limited

    return ThreadpoolController()


def single_threaded(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with that number of BLAS threads, and restore the previous setting."""

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=limit()):
            return function(*args, **kwargs)

    return limited
