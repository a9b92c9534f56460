"""How the kernels are compiled."""

import inspect
from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Compile a function for one core, and keep the machine code beside the source where that can be written."""
    return _compiled(function, fastmath=False)


def summing_kernel(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Compile a function whose sums may be taken in any order, as those of a matrix multiplication are."""
    return _compiled(function, fastmath={"reassoc", "contract"})


def _compiled(function: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401
    # The tests check the types of every function by wrapping it, and numba needs what is inside.
    function = inspect.unwrap(function)
    try:
        return numba.njit(cache=True, error_model="numpy", **options)(function)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(error_model="numpy", **options)(function)
