"""Small networks on arrays of single precision. Whoever else is in a batch, a row's numbers are the same to the last bit."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from dropsim.compute.jit import fast_kernel, kernel
from dropsim.compute.products import Linear, multiply

Array = Any
"""numba knows the types."""
CACHED_ROWS = 128
"""Rows that go through the layers together, so that what lies between two layers stays in the processor's cache."""
EPSILON = 1e-5
"""Added to variances: PyTorch's default."""
Affine = tuple[np.ndarray, np.ndarray]
"""Weight and bias of a linear layer."""
Layers = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], np.float32]
"""Panels and biases of linear layers, and the slope of the leaky ReLUs between them below zero."""


def random_affines(widths: Sequence[int], skip: int, rng: np.random.Generator) -> tuple[Affine, ...]:
    """Draw linear layers between the given widths as PyTorch does: uniform within 1 / sqrt(width of the input)."""
    layers = []
    for a, b in itertools.pairwise(widths):
        bound = 1 / math.sqrt(a + skip)
        layers.append(tuple(rng.uniform(-bound, bound, size=size).astype(np.float32) for size in ((b, a + skip), (b,))))
    return tuple(layers)


@dataclass(frozen=True, eq=False)
class MLP:
    """Linear, GroupNorm, ReLU blocks and a plain linear end; a second input may be concatenated before every linear layer."""

    linears: tuple[Affine, ...]
    norms: tuple[Affine, ...]
    """Gain and shift of each normalisation."""
    groups: int
    """Of every normalisation."""
    skip: int = 0
    """Width of the second input, which follows the first."""

    @staticmethod
    def tensor_shapes(name: str, widths: Sequence[int], skip: int = 0) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the tensors in a file."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (a, b) in enumerate(itertools.pairwise(widths)):
            shapes |= {f"{name}.linears.{i}.weight": (b, a + skip), f"{name}.linears.{i}.bias": (b,)}
        for i, b in enumerate(widths[1:-1]):
            shapes |= {f"{name}.norms.{i}.weight": (b,), f"{name}.norms.{i}.bias": (b,)}
        return shapes

    @classmethod
    def from_tensors(
        cls, name: str, tensors: Mapping[str, np.ndarray], num_hidden: int, *, groups: int, skip: int = 0
    ) -> "MLP":
        """Take the layers out of named tensors that were checked before."""

        def parts(kind: str, count: int) -> tuple[Affine, ...]:
            names = (f"{name}.{kind}.{i}" for i in range(count))
            return tuple(
                (tensors[f"{n}.weight"].astype(np.float32), tensors[f"{n}.bias"].astype(np.float32)) for n in names
            )

        return cls(parts("linears", num_hidden + 1), parts("norms", num_hidden), groups, skip)

    @classmethod
    def random(cls, widths: Sequence[int], rng: np.random.Generator, *, groups: int, skip: int = 0) -> "MLP":
        """Return layers that have not learnt anything yet."""
        norms = tuple((np.ones(b, dtype=np.float32), np.zeros(b, dtype=np.float32)) for b in widths[1:-1])
        return cls(random_affines(widths, skip, rng), norms, groups, skip)

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        """Return the tensors by their names in a file."""
        named: dict[str, np.ndarray] = {}
        for kind, layers in (("linears", self.linears), ("norms", self.norms)):
            for i, (weight, bias) in enumerate(layers):
                named |= {f"{name}.{kind}.{i}.weight": weight, f"{name}.{kind}.{i}.bias": bias}
        return named

    @functools.cached_property
    def _layers(self) -> list[Linear]:
        (weight, bias), *others = self.linears
        return [Linear(weight[:, : weight.shape[1] - self.skip], bias), *(Linear(*layer) for layer in others)]

    @functools.cached_property
    def _skipped(self) -> Linear:
        """The part of the first layer that sees the second input."""
        weight, bias = self.linears[0]
        return Linear(weight[:, weight.shape[1] - self.skip :], np.zeros_like(bias))

    def forward(self, x: Float32[np.ndarray, "b i"]) -> Float32[np.ndarray, "b o"]:
        """Run a network that has no second input."""
        return self._run(self._layers[0](x), x[:, :0])

    def forward_shared(
        self, x: Float32[np.ndarray, "b i"], skip: Float32[np.ndarray, "b k s"]
    ) -> Float32[np.ndarray, "b k o"]:
        """Run K second inputs of each x; the part of the first layer that sees x is computed once."""
        b, k, _ = skip.shape
        shared, people = self._layers[0](x), max(1, CACHED_ROWS // k)
        out = np.empty((b, k, self._layers[-1].size_out), dtype=np.float32)
        for start in range(0, b, people):
            part = slice(start, start + people)
            codes = skip[part].reshape(-1, self.skip)
            out[part] = self._run(self._skipped(codes, plus=shared[part]), codes).reshape(-1, *out.shape[1:])
        return out

    def _run(self, hidden: Float32[np.ndarray, "r w"], skip: Float32[np.ndarray, "r s"]) -> Float32[np.ndarray, "r o"]:
        """Run all that comes after the first linear layer."""
        for layer, (gain, shift) in zip(self._layers[1:], self.norms, strict=True):
            seen = np.empty((len(hidden), layer.size_in), dtype=np.float32)
            norm_relu(hidden, gain, shift, self.groups, EPSILON, skip, seen)
            hidden = layer(seen)
        return hidden[:, : self._layers[-1].size_out]


@fast_kernel
def norm_relu(x: Array, gain: Array, shift: Array, num_groups: int, epsilon: float, skip: Array, out: Array) -> None:
    """Write the group normalisation of the first columns of x, cut off at zero, and behind it the second input."""
    width, zero = len(gain), np.float32(0.0)
    size = width // num_groups
    share = np.float32(1.0) / np.float32(size)
    means, scales = np.empty(num_groups, np.float32), np.empty(num_groups, np.float32)
    # One thing after the other for all groups: a processor works on several groups at a time then.
    for r in range(len(x)):
        for g in range(num_groups):
            total = zero
            for c in range(g * size, (g + 1) * size):
                total += x[r, np.uint64(c)]
            means[g] = total * share
        for g in range(num_groups):
            total, mean = zero, means[g]
            for c in range(g * size, (g + 1) * size):
                total += (x[r, np.uint64(c)] - mean) * (x[r, np.uint64(c)] - mean)
            scales[g] = total * share + np.float32(epsilon)
        for g in range(num_groups):
            scales[g] = np.float32(1.0) / np.sqrt(scales[g])
        for g in range(num_groups):
            mean, scale = means[g], scales[g]
            for c in range(g * size, (g + 1) * size):
                k = np.uint64(c)
                value = (x[r, k] - mean) * (scale * gain[k]) + shift[k]
                out[r, k] = value if value > zero else zero
        for c in range(skip.shape[1]):
            out[r, width + c] = skip[r, c]


@dataclass(frozen=True, eq=False)
class LeakyMLP:
    """Linear layers with leaky ReLUs between them."""

    linears: tuple[Affine, ...]
    slope: float
    """Of the leaky ReLU below zero."""

    @functools.cached_property
    def _layers(self) -> tuple[Linear, ...]:
        return tuple(Linear(*layer) for layer in self.linears)

    @functools.cached_property
    def arrays(self) -> "Layers":
        """The layers as kernels take them."""
        return (
            tuple(layer.panels for layer in self._layers),
            tuple(layer.bias for layer in self._layers),
            np.float32(self.slope),
        )

    @property
    def size_out(self) -> int:
        """Columns of the result."""
        return self._layers[-1].size_out

    def forward(self, x: Float32[np.ndarray, "b i"]) -> Float32[np.ndarray, "b o"]:
        """Run the layers."""
        out = np.empty((len(x), self.size_out), dtype=np.float32)
        run_layers(x, *self.arrays, out)
        return out


@kernel
def run_layers(x: Array, panels: Array, biases: Array, slope: float, out: Array) -> None:
    """Write what linear layers with leaky ReLUs between them make of x."""
    seen = x
    for layer in range(len(panels)):
        found = np.empty((len(x), biases[layer].shape[1]), np.float32)
        multiply(seen, panels[layer], biases[layer], found)
        if layer + 1 < len(panels):
            seen = np.empty((len(x), panels[layer + 1].shape[1]), np.float32)
            for r in range(len(x)):
                for c in range(seen.shape[1]):
                    value = found[r, c]
                    seen[r, c] = max(value, slope * value)
        else:
            for r in range(len(x)):
                for c in range(out.shape[1]):
                    out[r, c] = found[r, c]
