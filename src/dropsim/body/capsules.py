"""The body as capsules between joints, for telling where it runs into itself.

A capsule's radius changes linearly between its two joints. Collision spheres are no measure for it: those of the ankles reach down to the
sole. Hands beyond the wrist are not covered.
"""

import math
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import PARENTS, joint_index
from dropsim.body.skeleton import Skeleton, flat
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
_TRUNK = (("pelvis", "spine2"), ("spine2", "spine3"), ("left_shoulder", "right_shoulder"), ("neck", "head"))
_LIMBS = (("shoulder", "elbow"), ("elbow", "wrist"), ("hip", "knee"), ("knee", "ankle"), ("ankle", "foot"))
_ENDS = (*_TRUNK, *((f"{side}_{near}", f"{side}_{far}") for side in ("left", "right") for near, far in _LIMBS))
CAPSULES = np.array([[joint_index(near), joint_index(far)] for near, far in _ENDS])
"""Joints at the two ends of each capsule: trunk, shoulders and head first, then arm and leg of each side."""

_RADII = {
    "pelvis": 0.11, "spine2": 0.11, "spine3": 0.11, "neck": 0.06, "head": 0.10, "shoulder": 0.05, "elbow": 0.04, "wrist": 0.03,
    "hip": 0.075, "knee": 0.05, "ankle": 0.035, "foot": 0.03,
}  # fmt: skip
"""Limbs of an adult of 1.70 m [m]: girth / 2 pi (ankle 22 cm, wrist 17 to 19, knee 34, thigh 50), a little less where flesh gives way."""


def capsule_radii(skeleton: Skeleton) -> Float[np.ndarray, "c 2"]:
    """Return the radii of the capsules at their two ends, in proportion to the body's collision spheres [m]."""
    scale = skeleton.radii[0] / _RADII["pelvis"]
    return scale * np.array([[_RADII[name.partition("_")[2] or name] for name in ends] for ends in _ENDS])


def _bones_between(a: int, b: int) -> int:
    """Count the bones on the way from one joint to another."""
    ways = []
    for joint in (a, b):
        way = [joint]
        while way[-1] > 0:
            way.append(PARENTS[way[-1]])
        ways.append(way)
    return min(i + ways[1].index(joint) for i, joint in enumerate(ways[0]) if joint in ways[1])


def _may_meet(one: int, other: int) -> bool:
    """Whether two capsules can run into each other: not both of the trunk, and at least two bones apart."""
    apart = min(_bones_between(a, b) for a in CAPSULES[one].tolist() for b in CAPSULES[other].tolist())
    return other >= len(_TRUNK) and apart >= 2


PAIRS = np.array([pair for pair in combinations(range(len(CAPSULES)), 2) if _may_meet(*pair)])
"""Capsules that have to keep apart."""


@kernel
def closest(p: Array, q: Array, r: Array, s: Array) -> tuple[float, float]:
    """Return how far along the segments p q and r s their nearest points are, as shares of the way (Ericson 2005, section 5.1.9)."""
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
def _deepest(x: Array, radii: Array, capsules: Array, pairs: Array, out: Array) -> None:
    for n in range(len(x)):
        deepest = 0.0
        for i in range(len(pairs)):
            a, b = capsules[pairs[i, 0], 0], capsules[pairs[i, 0], 1]
            c, d = capsules[pairs[i, 1], 0], capsules[pairs[i, 1], 1]
            s, t = closest(x[n, a], x[n, b], x[n, c], x[n, d])
            gap = 0.0
            for k in range(3):
                gap += ((1 - s) * x[n, a, k] + s * x[n, b, k] - (1 - t) * x[n, c, k] - t * x[n, d, k]) ** 2
            one, other = radii[pairs[i, 0]], radii[pairs[i, 1]]
            reach = (1 - s) * one[0] + s * one[1] + (1 - t) * other[0] + t * other[1]
            deepest = max(deepest, reach - math.sqrt(gap))
        out[n] = deepest


def self_overlap(joints: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton, pairs: np.ndarray = PAIRS) -> Float[np.ndarray, "*b"]:
    """Return how deep the capsules of a body that may meet are in each other at most [m]; zero if they keep apart."""
    depth = np.empty(joints.shape[:-2])
    _deepest(flat(joints, 2), capsule_radii(skeleton), CAPSULES, pairs, depth.reshape(-1))
    return depth
