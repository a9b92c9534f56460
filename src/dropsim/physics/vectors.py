"""Vectors of three numbers in kernels, as tuples: to count the references to views takes longer than the arithmetic."""

import math
from typing import Any

from dropsim.compute.jit import inlined_kernel

Array = Any
"""numba knows the types."""
Vector = tuple[float, float, float]


@inlined_kernel
def row(rows: Array, i: int, first: int = 0) -> Vector:
    """Return three numbers of a row of an array, from the first on."""
    return rows[i, first], rows[i, first + 1], rows[i, first + 2]


@inlined_kernel
def part(values: Array, first: int) -> Vector:
    """Return three numbers of an array, from the first on."""
    return values[first], values[first + 1], values[first + 2]


@inlined_kernel
def write(rows: Array, i: int, a: Vector, first: int = 0) -> None:
    """Write three numbers of a row of an array, from the first on."""
    rows[i, first], rows[i, first + 1], rows[i, first + 2] = a


@inlined_kernel
def add(rows: Array, i: int, a: Vector, first: int = 0) -> None:
    """Add to three numbers of a row of an array, from the first on."""
    rows[i, first] += a[0]
    rows[i, first + 1] += a[1]
    rows[i, first + 2] += a[2]


@inlined_kernel
def minus(a: Vector, b: Vector) -> Vector:
    """Return a - b."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@inlined_kernel
def plus(a: Vector, b: Vector, scale: float = 1.0) -> Vector:
    """Return a + scale b."""
    return a[0] + scale * b[0], a[1] + scale * b[1], a[2] + scale * b[2]


@inlined_kernel
def times(scale: float, a: Vector) -> Vector:
    """Return scale a."""
    return scale * a[0], scale * a[1], scale * a[2]


@inlined_kernel
def over(a: Vector, divisor: float) -> Vector:
    """Return a / divisor."""
    return a[0] / divisor, a[1] / divisor, a[2] / divisor


@inlined_kernel
def dot(a: Vector, b: Vector) -> float:
    """Return the scalar product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inlined_kernel
def cross(a: Vector, b: Vector) -> Vector:
    """Return the vector product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inlined_kernel
def size(a: Vector) -> float:
    """Return the length of a vector."""
    return math.sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2])


@inlined_kernel
def velocity_of(v: Vector, w: Vector, arm: Vector) -> Vector:
    """Return the velocity of a point of a rigid body, at an arm from where the body has the velocity v."""
    return (
        v[0] + w[1] * arm[2] - w[2] * arm[1],
        v[1] + w[2] * arm[0] - w[0] * arm[2],
        v[2] + w[0] * arm[1] - w[1] * arm[0],
    )
