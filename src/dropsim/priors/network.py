"""Small networks in single precision: a row's numbers are the same to the last bit, whatever else is in a batch.

A BLAS chooses the order of its sums by the number of rows; here each number is summed in the order of the columns.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from dropsim.compute.jit import contracted_kernel, fast_kernel, kernel

Array = Any
"""numba knows the types."""
Shapes = dict[str, tuple[int, ...]]
"""Shapes of tensors by their names in a file."""
Tensors = Mapping[str, np.ndarray]
"""Tensors by their names in a file."""
CACHED_ROWS = 128
"""Rows that go through the layers together, so that what lies between two layers stays in the processor's cache."""
EPSILON = 1e-5
"""Number added to variances: PyTorch's default."""


def linear_shapes(name: str, widths: Sequence[int], skip: int = 0) -> Shapes:
    """Return the shapes of linear layers between some widths, all of which see `skip` more numbers."""
    shapes: Shapes = {}
    for i, (size_in, size_out) in enumerate(itertools.pairwise(widths)):
        shapes |= {f"{name}.{i}.weight": (size_out, size_in + skip), f"{name}.{i}.bias": (size_out,)}
    return shapes


def mlp_shapes(name: str, widths: Sequence[int], skip: int = 0) -> Shapes:
    """Return the shapes of the tensors of linear layers with normalisations between them."""
    shapes = linear_shapes(f"{name}.linears", widths, skip)
    for i, width in enumerate(widths[1:-1]):
        shapes |= {f"{name}.norms.{i}.weight": (width,), f"{name}.norms.{i}.bias": (width,)}
    return shapes


def random_tensors(shapes: Shapes, seed: int) -> dict[str, np.ndarray]:
    """Draw layers as PyTorch does, uniform within 1 / sqrt(width of the input); normalisations have no effect."""
    rng, tensors = np.random.default_rng(seed), dict[str, np.ndarray]()
    for name, shape in shapes.items():
        layer, _, part = name.rpartition(".")
        if ".norms." in name:
            tensors[name] = np.full(shape, 1.0 if part == "weight" else 0.0, dtype=np.float32)
        else:
            bound = 1 / math.sqrt(shapes[f"{layer}.weight"][1])
            tensors[name] = rng.uniform(-bound, bound, size=shape).astype(np.float32)
    return tensors


class MLP:
    """Linear layers with leaky ReLUs between them, and maybe a GroupNorm before each of these.

    All layers may also see a second input.
    """

    def __init__(self, tensors: Tensors, name: str, *, slope: float = 0.0, groups: int = 0, skip: int = 0) -> None:
        """Take layers out of named tensors: the slope below zero, groups of the norms, numbers of the second input."""
        self.weights, self.biases = _layers(tensors, f"{name}.linears" if groups else name)
        # Without norms there is one that is not looked at: numba needs a type.
        self.norms = _layers(tensors, f"{name}.norms") if groups else (self.biases[:1], self.biases[:1])
        self.slope, self.groups, self.skip = np.float32(slope), groups, skip

    def forward(
        self, x: Float32[np.ndarray, "b i"], second: Float32[np.ndarray, "b k s"] | None = None
    ) -> Float32[np.ndarray, "b k o"]:
        """Run K second inputs with each x; the part of the first layer that sees x is computed once."""
        second = np.empty((len(x), 1, 0), np.float32) if second is None else np.ascontiguousarray(second)
        out = np.empty((*second.shape[:2], self.weights[-1].shape[1]), np.float32)
        _run(np.ascontiguousarray(x), second, self.weights, self.biases, self.norms, self.groups, self.slope, out)
        return out


def _layers(tensors: Tensors, name: str) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return weights and biases of the layers called name.0, name.1, ...; a row of weights is of one column of x."""
    count = sum(tensor.startswith(f"{name}.") and tensor.endswith(".weight") for tensor in tensors)
    weights, biases = (
        tuple(np.ascontiguousarray(np.atleast_2d(tensors[f"{name}.{i}.{part}"].T), np.float32) for i in range(count))
        for part in ("weight", "bias")
    )
    return weights, biases


@kernel
def _run(
    x: Array, second: Array, weights: Array, biases: Array, norms: Array, num_groups: int, slope: float, out: Array
) -> None:
    """Write the last layer's result, for a few rows after the other."""
    k, skip = second.shape[1], second.shape[2]
    people = max(1, CACHED_ROWS // k)
    for start in range(0, len(x), people):
        seen = x[start : start + people]
        codes = second[start : start + people].reshape((len(seen) * k, skip))
        split, hidden = len(weights[0]) - skip, np.empty((len(codes), weights[0].shape[1]), np.float32)
        shared = np.empty((len(seen), hidden.shape[1]), np.float32)
        _multiply(seen, weights[0][:split], biases[0], shared)
        _multiply(codes, weights[0][split:], shared, hidden)
        for layer in range(1, len(weights)):
            wide = np.empty((len(hidden), hidden.shape[1] + skip), np.float32)
            if num_groups > 0:
                _normalise(hidden, norms[0][layer - 1][0], norms[1][layer - 1][0], num_groups)
            for r in range(len(hidden)):
                for c in range(hidden.shape[1]):
                    wide[r, c] = max(hidden[r, c], slope * hidden[r, c])
                for c in range(skip):
                    wide[r, hidden.shape[1] + c] = codes[r, c]
            hidden = np.empty((len(wide), weights[layer].shape[1]), np.float32)
            _multiply(wide, weights[layer], biases[layer], hidden)
        out[start : start + people] = hidden.reshape((len(seen), k, hidden.shape[1]))


@fast_kernel
def _normalise(x: Array, gain: Array, shift: Array, num_groups: int) -> None:
    """Normalise groups of columns in place."""
    size = len(gain) // num_groups
    share = np.float32(1.0) / np.float32(size)
    for r in range(len(x)):
        for g in range(num_groups):
            first, last = np.uint64(g * size), np.uint64((g + 1) * size)
            mean, variance = np.float32(0.0), np.float32(0.0)
            for c in range(first, last):
                mean += x[r, c]
            mean *= share
            for c in range(first, last):
                variance += (x[r, c] - mean) * (x[r, c] - mean)
            scale = np.float32(1.0) / np.sqrt(variance * share + np.float32(EPSILON))
            for c in range(first, last):
                x[r, c] = (x[r, c] - mean) * (scale * gain[c]) + shift[c]


@contracted_kernel
def _multiply(x: Array, weight: Array, start: Array, out: Array) -> None:
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
