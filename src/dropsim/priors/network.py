"""Small networks in single precision: a row's numbers are the same to the last bit, whatever else is in a batch."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from dropsim.compute.jit import fast_kernel, kernel
from dropsim.compute.products import Linear, multiply

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
    """Return the shapes of an `MLP`'s tensors."""
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


def _layers(tensors: Tensors, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return weights and biases of the layers called name.0, name.1, ... in single precision."""
    layers = []
    while f"{name}.{len(layers)}.weight" in tensors:
        layer = f"{name}.{len(layers)}"
        layers.append(tuple(tensors[f"{layer}.{part}"].astype(np.float32) for part in ("weight", "bias")))
    return layers


class MLP:
    """Linear, GroupNorm, ReLU blocks and a linear end; every linear layer may also see a second input."""

    def __init__(self, tensors: Tensors, name: str, groups: int, skip: int = 0) -> None:
        """Take the layers out of named tensors, with `groups` per normalisation and `skip` numbers as second input."""
        (weight, bias), *others = _layers(tensors, f"{name}.linears")
        wide = weight.shape[1] - skip
        self.first, self.second = Linear(weight[:, :wide], bias), Linear(weight[:, wide:], np.zeros_like(bias))
        self.others, self.norms = [Linear(*layer) for layer in others], _layers(tensors, f"{name}.norms")
        self.groups, self.skip = groups, skip

    def forward(
        self, x: Float32[np.ndarray, "b i"], second: Float32[np.ndarray, "b k s"] | None = None
    ) -> Float32[np.ndarray, "b k o"]:
        """Run K second inputs with each x; the part of the first layer that sees x is computed once."""
        b, k = (len(x), 1) if second is None else second.shape[:2]
        shared, people, size_out = self.first(x), max(1, CACHED_ROWS // k), self.others[-1].weight.shape[1]
        codes = np.empty((b * k, self.skip), np.float32) if second is None else second.reshape(b * k, self.skip)
        out = np.empty((b * k, size_out), dtype=np.float32)
        for start in range(0, b, people):
            rows = slice(start * k, (start + people) * k)
            hidden = shared[start : start + people]
            if self.skip:
                hidden = self.second(codes[rows], plus=hidden)
            for layer, (gain, shift) in zip(self.others, self.norms, strict=True):
                seen = np.empty((len(hidden), len(layer.weight)), dtype=np.float32)
                norm_relu(hidden, gain, shift, self.groups, seen)
                seen[:, len(gain) :] = codes[rows]
                hidden = layer(seen)
            out[rows] = hidden
        return out.reshape(b, k, size_out)


@fast_kernel
def norm_relu(x: Array, gain: Array, shift: Array, num_groups: int, out: Array) -> None:
    """Write the group normalisation of the first columns of x, cut off at zero, to those of out."""
    size, zero = len(gain) // num_groups, np.float32(0.0)
    share = np.float32(1.0) / np.float32(size)
    for r in range(len(x)):
        for g in range(num_groups):
            first, last = np.uint64(g * size), np.uint64((g + 1) * size)
            mean, variance = zero, zero
            for c in range(first, last):
                mean += x[r, c]
            mean *= share
            for c in range(first, last):
                variance += (x[r, c] - mean) * (x[r, c] - mean)
            scale = np.float32(1.0) / np.sqrt(variance * share + np.float32(EPSILON))
            for c in range(first, last):
                out[r, c] = max((x[r, c] - mean) * (scale * gain[c]) + shift[c], zero)


class LeakyMLP:
    """Linear layers with leaky ReLUs between them."""

    def __init__(self, tensors: Tensors, name: str, slope: float) -> None:
        """Take the layers out of named tensors; `slope` is that of the leaky ReLUs below zero."""
        layers = [Linear(*layer) for layer in _layers(tensors, name)]
        self.weights, self.biases = tuple(layer.weight for layer in layers), tuple(layer.bias for layer in layers)
        self.slope = np.float32(slope)

    def forward(self, x: Float32[np.ndarray, "b i"]) -> Float32[np.ndarray, "b o"]:
        """Run the layers."""
        return _run_layers(np.ascontiguousarray(x), self.weights, self.biases, self.slope)


@kernel
def _run_layers(x: Array, weights: Array, biases: Array, slope: float) -> Array:
    """Return the last layer's result: one call, since a step asks for a row or two."""
    for layer in range(len(weights)):
        out = np.empty((len(x), weights[layer].shape[1]), np.float32)
        multiply(x, weights[layer], biases[layer], out)
        x = out
        if layer + 1 < len(weights):
            for r in range(len(x)):
                for c in range(x.shape[1]):
                    x[r, c] = max(x[r, c], slope * x[r, c])
    return x
