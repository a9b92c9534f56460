"""The balance of momentum around the solve, several kernels in one call: between calls a step of one person waits for Python."""

import math
from typing import Any

import numpy as np

from dropsim.compute.jit import kernel
from dropsim.physics.contact import near_spheres
from dropsim.physics.linear import FINE, rigid_acceleration, settle
from dropsim.physics.wrench_kernels import contact_fit, demand, problem, soft_correction

Array = Any
"""numba knows the types."""


@kernel
def begin(
    x: Array, v: Array, wished: Array, forces: Array, masses: Array, radii: Array, planes: Array, balls: Array,
    margin: float, friction: float, h: float, gravity: float, scale: Array, ridge: float, group: Array, limits: Array,
    touching: Array, B: Array, a: Array, r: Array, edges: Array, F: Array, planned: Array, y: Array,
) -> int:  # fmt: skip
    """Do what the simulator does before it solves: contacts, root wrench of the wish and the target of momentum with its reaction."""
    num = len(x)
    points, normals, fitted = np.empty(x.shape), np.empty(x.shape), np.empty(x.shape)
    b, explained, c = np.empty((num, 6)), np.empty((num, 6)), np.empty((num, F.shape[2]))
    near_spheres(x, radii, planes, balls, margin, touching, points, normals)
    problem(x, v, masses, points, normals, friction, h, gravity, B, a, r, edges, F)
    demand(B, a, r, wished, np.empty((0, x.shape[1], 3)), b)
    status = contact_fit(F, edges, touching, b, scale, ridge, friction, group, limits, c, fitted, explained, planned)
    rigid_acceleration(explained, r, masses, y)
    for i in range(num):
        for j in range(x.shape[1]):
            for k in range(3):
                fall = gravity if k == 2 else 0.0
                y[i, j, k] = x[i, j, k] + h * v[i, j, k] + h * h * (forces[i, j, k] / masses[j] - fall) + h * h * y[i, j, k]
    return status


@kernel
def end(
    x: Array, before: Array, forces: Array, touching: Array, B: Array, a: Array, r: Array, edges: Array, F: Array, planned: Array,
    masses: Array, friction: float, scale: Array, ridge: float, group: Array, limits: Array,
    body_weight: float, u: float, tolerance: float, weight: float, airborne_weight: float, threshold: float, cap: float,
    radii: Array, planes: Array, balls: Array, rubbing: float, h: float, bearing: float, grip_gap: float,
    lengths: Array, mobility: Array, contact_mobility: float, rounds: int, most_rounds: int, deep: float, stretched: float,
    out: Array, contacts: Array, fitted: Array, wrenches: Array,
) -> int:  # fmt: skip
    """Do what the simulator does with a solution: root wrench, soft correction, settling, and the root wrench that is left."""
    num = len(x)
    b, explained, residual, c = np.empty((num, 6)), np.empty((num, 6)), np.empty((num, 6)), np.empty((num, F.shape[2]))
    corrected = np.empty(x.shape)
    demand(B, a, r, x, forces, b)
    status = contact_fit(F, edges, touching, b, scale, ridge, friction, group, limits, c, fitted, explained, residual)
    if status != FINE:
        return status
    _sizes(residual, body_weight, wrenches, 0)
    soft_correction(
        B, touching, masses, residual, planned, forces, scale, body_weight, u, tolerance, weight, airborne_weight, threshold, cap,
        x, corrected,
    )  # fmt: skip
    settle(
        corrected, before, radii, planes, balls, rubbing, h, bearing, grip_gap, lengths, mobility, contact_mobility, rounds, most_rounds,
        deep, stretched, out, contacts,
    )  # fmt: skip
    demand(B, a, r, out, forces, b)
    status = contact_fit(F, edges, touching, b, scale, ridge, friction, group, limits, c, fitted, explained, residual)
    _sizes(residual, body_weight, wrenches, 1)
    return status


@kernel
def _sizes(residual: Array, body_weight: float, out: Array, at: int) -> None:
    for i in range(len(residual)):
        square = 0.0
        for row in range(6):
            square += residual[i, row] * residual[i, row]
        out[i, at] = math.sqrt(square) / body_weight
