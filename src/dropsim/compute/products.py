"""Matrix products in single precision that give every row the same numbers, whatever other rows there are.

A BLAS chooses the order of its sums by the number of rows, so a person in a batch would part from the same person
alone. Here each number is summed in the order of the columns.
"""

from typing import Any

import numpy as np
from jaxtyping import Float32

from dropsim.compute.jit import contracted_kernel

Array = Any
"""numba knows the types."""


class Linear:
    """A linear layer, x weight^T + bias."""

    def __init__(self, weight: Float32[np.ndarray, "o i"], bias: Float32[np.ndarray, "o"]) -> None:
        """Lay the weights out so that a row of them belongs to one column of x."""
        self.weight = np.ascontiguousarray(weight.T)
        self.bias = np.ascontiguousarray(bias[None])

    def __call__(
        self, x: Float32[np.ndarray, "r i"], plus: Float32[np.ndarray, "p o"] | None = None
    ) -> Float32[np.ndarray, "r o"]:
        """Return x weight^T + bias, or x weight^T + plus, whose first row belongs to the first r / p rows of x."""
        out = np.empty((len(x), self.weight.shape[1]), dtype=np.float32)
        multiply(np.ascontiguousarray(x), self.weight, self.bias if plus is None else plus, out)
        return out


@contracted_kernel
def multiply(x: Array, weight: Array, start: Array, out: Array) -> None:
    """Write start + x weight; the rows of x and out belong to the rows of `start` in groups of equal size."""
    size, (num_columns, width) = len(x) // len(start), weight.shape
    for r in range(len(x)):
        for c in range(width):
            out[r, c] = start[r // size, c]
    # Eight columns at a time, so that the sums are read and written an eighth as often.
    whole = num_columns - num_columns % 8
    for k in range(0, whole, 8):
        for r in range(len(x)):
            row = x[r]
            factors = (row[k], row[k + 1], row[k + 2], row[k + 3], row[k + 4], row[k + 5], row[k + 6], row[k + 7])
            for c in range(width):
                total = out[r, c]
                for i in range(8):
                    total += factors[i] * weight[k + i, c]
                out[r, c] = total
    for k in range(whole, num_columns):
        for r in range(len(x)):
            for c in range(width):
                out[r, c] += x[r, k] * weight[k, c]
