"""Compiled kernels for the hot path on a CPU, each with a twin in torch that serves everywhere else.

The twin is used where numba is not installed, on other devices, in single precision, where gradients are wanted, and everywhere when
DROPSIM_KERNELS is 0. Both give the same numbers to rounding; tests/test_kernels.py compares them.
"""

import functools
import importlib.util
import os
import sys
from collections import deque

import numpy as np
import torch
from torch import Tensor


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


FEW = 4
"""Rows up to which a linear layer is faster compiled here than as torch's matrix multiplication: it only streams the weights."""


class PackedLinear:
    """A linear layer for many rows whose weights oneDNN has laid out once: at 64 to 512 rows a tenth or more faster.

    Where this build of torch cannot do that, a plain linear layer.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight.contiguous(), bias
        self._packed = _packed(self._weight)

    def __reduce__(self) -> tuple[type["PackedLinear"], tuple[Tensor, Tensor]]:
        return PackedLinear, (self._weight, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x weight^T + bias."""
        if self._packed is None:
            return torch.nn.functional.linear(x, self._weight, self._bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")


_ROWS = 512
"""A guess of how many rows there will be, which oneDNN lays weights out for; others are right too."""


def _packed(weight: Tensor) -> Tensor | None:
    if not (weight.is_cpu and torch.backends.mkldnn.is_available()):
        return None
    try:
        return torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    except (AttributeError, RuntimeError):  # torch makes no promise to keep this operation
        return None


class Buffers:
    """Large arrays that are used again once nobody else holds them: memory fresh from the system takes longer to map than to fill."""

    def __init__(self) -> None:
        self._arrays: deque[np.ndarray] = deque(maxlen=_NUM_BUFFERS)

    def __reduce__(self) -> tuple[type["Buffers"], tuple[()]]:
        return Buffers, ()

    def take(self, *shape: int) -> Tensor:
        """Return a tensor of double precision with any content."""
        for index in range(len(self._arrays)):
            # Two references: the queue's and that of the call itself. A tensor, and every view of it, holds another.
            if self._arrays[index].shape == shape and sys.getrefcount(self._arrays[index]) <= _FREE:
                return torch.from_numpy(self._arrays[index])
        self._arrays.append(np.empty(shape))
        return torch.from_numpy(self._arrays[-1])


_NUM_BUFFERS = 6
"""Two times what a step takes."""
_FREE = 2
