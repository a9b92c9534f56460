"""The body as capsules between joints, which keep apart when it runs into itself.

A capsule's radius changes linearly between its two joints. Collision spheres are no measure for it: those of the ankles
reach down to the sole. Hands beyond the wrist are not covered.
"""

import math
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import PARENTS, joint_index
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
_TRUNK = {
    ("pelvis", "spine2"): (0.100, 0.095),
    ("spine2", "spine3"): (0.100, 0.110),
    ("left_shoulder", "right_shoulder"): (0.060, 0.060),
    ("neck", "head"): (0.055, 0.075),
}
_LIMBS = {
    ("shoulder", "elbow"): (0.045, 0.035),
    ("elbow", "wrist"): (0.034, 0.023),
    ("hip", "knee"): (0.080, 0.050),
    ("knee", "ankle"): (0.046, 0.026),
    ("ankle", "foot"): (0.040, 0.024),
}
"""Radii at the two ends, for an adult of 1.70 m [m]: the line through the lower quartiles of the skin's distances from
the bone, along the body mesh in its rest pose; of the chest below the armpits. The median would be too thick: limbs are
flattest on the inside, where they meet, and flesh gives way."""
_SIDES = ("left", "right")
_ENDS = _TRUNK | {(f"{side}_{a}", f"{side}_{b}"): radii for side in _SIDES for (a, b), radii in _LIMBS.items()}
CAPSULES = np.array([[joint_index(near), joint_index(far)] for near, far in _ENDS])
"""Joints at the two ends of each capsule: trunk, shoulders and head first, then arm and leg of each side."""
_RADII = np.array(list(_ENDS.values()))
_HEIGHT = 1.70


def capsule_radii(height: float) -> Float[np.ndarray, "c 2"]:
    """Return the radii of the capsules at their two ends, for a body of a height [m]."""
    return _RADII * (height / _HEIGHT)


def _way_up(joint: int) -> list[int]:
    return [joint] if joint == 0 else [joint, *_way_up(PARENTS[joint])]


def _bones_between(a: int, b: int) -> int:
    """Count the bones on the way from one joint to another."""
    return len(set(_way_up(a)) ^ set(_way_up(b)))


def _may_meet(one: int, other: int) -> bool:
    """Whether two capsules can run into each other: not both of the trunk, and at least two bones apart."""
    apart = min(_bones_between(a, b) for a in CAPSULES[one].tolist() for b in CAPSULES[other].tolist())
    return other >= len(_TRUNK) and apart >= 2


PAIRS = np.array([pair for pair in combinations(range(len(CAPSULES)), 2) if _may_meet(*pair)])
"""Capsules that have to keep apart."""


@kernel
def closest(p: Array, q: Array, r: Array, s: Array) -> tuple[float, float]:
    """Return the nearest points of the segments p q and r s as shares of the way (Ericson 2005, section 5.1.9)."""
    a = b = c = e = f = 0.0
    for k in range(3):
        d1, d2, w = q[k] - p[k], s[k] - r[k], p[k] - r[k]
        a += d1 * d1
        e += d2 * d2
        b += d1 * d2
        c += d1 * w
        f += d2 * w
    slope = a * e - b * b
    along = min(max((b * f - c * e) / slope, 0.0), 1.0) if slope > 1e-12 else 0.0
    across = (b * along + f) / e
    if across < 0.0:
        return min(max(-c / a, 0.0), 1.0), 0.0
    if across > 1.0:
        return min(max((b - c) / a, 0.0), 1.0), 1.0
    return along, across


@kernel
def overlap(x: Array, radii: Array, pair: int) -> tuple[float, float, float, float, float, float]:
    """Return how deep the capsules of a pair are in each other [m], negative if they are apart, and where.

    "Where" is the nearest points of their axes, as shares of the ways, and the unit vector from the second to the first.
    """
    one, other = PAIRS[pair, 0], PAIRS[pair, 1]
    a, b, c, d = CAPSULES[one, 0], CAPSULES[one, 1], CAPSULES[other, 0], CAPSULES[other, 1]
    s, t = closest(x[a], x[b], x[c], x[d])
    nx = x[a, 0] + s * (x[b, 0] - x[a, 0]) - x[c, 0] - t * (x[d, 0] - x[c, 0])
    ny = x[a, 1] + s * (x[b, 1] - x[a, 1]) - x[c, 1] - t * (x[d, 1] - x[c, 1])
    nz = x[a, 2] + s * (x[b, 2] - x[a, 2]) - x[c, 2] - t * (x[d, 2] - x[c, 2])
    length = max(math.sqrt(nx * nx + ny * ny + nz * nz), 1e-9)
    reach = radii[one, 0] + s * (radii[one, 1] - radii[one, 0])
    reach = reach + radii[other, 0] + t * (radii[other, 1] - radii[other, 0])
    return reach - length, s, t, nx / length, ny / length, nz / length


@kernel
def deepest_overlap(x: Array, radii: Array, out: Array) -> None:
    """Write how deep each body's capsules are in each other at most [m]; zero if they keep apart."""
    for n in range(len(x)):
        out[n] = 0.0
        for i in range(len(PAIRS)):
            out[n] = max(out[n], overlap(x[n], radii, i)[0])
