"""Compiled kernels for the hot path on a CPU, each with a twin in torch that serves everywhere else.

The twin is used where numba is not installed, on other devices, in single precision, where gradients are wanted, and everywhere when
DROPSIM_KERNELS is 0. Both give the same numbers to rounding; tests/test_kernels.py compares them.
"""

import functools
import importlib.util
import os

import numpy as np
import torch
from torch import Tensor

_NO_MASK = np.empty((0, 0), dtype=np.bool_)


@functools.cache
def installed() -> bool:
    """Whether the kernels can be compiled at all."""
    return os.environ.get("DROPSIM_KERNELS", "1") != "0" and importlib.util.find_spec("numba") is not None


def serve(*tensors: Tensor, dtype: torch.dtype = torch.float64) -> bool:
    """Whether a kernel may stand in for its twin: everything on the CPU, in the kernel's precision, and no gradients wanted."""
    if not installed():
        return False
    for t in tensors:  # noqa: SIM110 - three times as fast as all()
        if t.dtype != dtype or not t.is_cpu or (t.requires_grad and torch.is_grad_enabled()):
            return False
    return True


def array(tensor: Tensor, *trailing: int) -> np.ndarray:
    """Return a tensor as a contiguous array with one batch dimension before the trailing ones."""
    return np.ascontiguousarray((tensor.detach() if tensor.requires_grad else tensor).numpy()).reshape(-1, *trailing)


def constant(tensor: Tensor) -> np.ndarray:
    """Return a tensor without batch dimensions as a contiguous array."""
    return tensor.detach().contiguous().numpy()


def mask(active: Tensor | None, *shape: int) -> np.ndarray:
    """Return a mask of a given shape with one batch dimension, or an empty one that stands for none."""
    return _NO_MASK if active is None else array(active.expand(*shape), shape[-1])
