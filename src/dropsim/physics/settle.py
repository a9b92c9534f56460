"""Settling: people come out of objects, out of themselves and out of each other, and bones keep their lengths."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.capsules import CAPSULES, PAIRS, overlap
from dropsim.body.joints import CHILDREN, NUM_JOINTS, PARENTS
from dropsim.body.kinematics import copy
from dropsim.body.skeleton import BodyArrays
from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.physics.contact import Marks, Solids, deepest, of_person, push_out
from dropsim.physics.energies import BRACES
from dropsim.physics.vectors import Vector, add, dot, minus, over, plus, row, size, times, write

Array = Any
"""numba knows the types."""
ROUNDS = 4
"""Rounds of pushing out and restoring lengths: a neck between a head and shoulders that lie on the floor takes
several."""
MOST_ROUNDS = 128
"""Rounds for people who are still too deep or stretched after the usual ones."""
DEEP = 0.005
"""Depth that the usual rounds may leave [m]."""
STRETCHED = 0.002
"""Relative error of a bone's length that the usual rounds may leave."""
CONTACT_MOBILITY = 0.05
"""Mobility of a joint in contact when bones are brought back to length, relative to a free one."""
CLOSE = 0.05
"""Capsules of one body that are farther apart than this do not come to overlap while it settles [m]."""
COMING_OUT = 0.3
"""Speed at which capsules that overlap already, such as crossed legs of a recording, come out of each other [m/s]."""
FASTEST_HOLD = 6.0
"""Speed at which a joint is brought to where it is held, at most [m/s]: bones stretched farther within a frame do not
come back."""
HOLD_ROUNDS = 8
"""Most rounds in which a hold that takes too large a force is loosened; two or three are usual."""
HOLD_ITERATIONS = 6
"""Newton steps on the bones of a body whose joint is held: an ankle is moved by up to a quarter of a shin."""
_PARENTS, _BRACES = np.array(PARENTS), np.array(BRACES)
_siblings = [[s for s in CHILDREN[PARENTS[c]] if 0 < s < c] if c else [] for c in range(NUM_JOINTS)]
_meeting = [([PARENTS[c]] if PARENTS[c] > 0 else []) + _siblings[c] for c in range(NUM_JOINTS)]
_NUM_MEETING = np.array([len(m) for m in _meeting])
_MEETING = np.array([(*m, *([0] * (3 - len(m)))) for m in _meeting])
"""For each bone, by its far joint: the bones nearer to the root that it shares a joint with."""


def settle(
    x: Float[np.ndarray, "n 22 3"],
    before: Float[np.ndarray, "n 22 3"],
    body: BodyArrays,
    solids: Solids,
    load: Float[np.ndarray, "n 2"],
    friction: float,
    h: float,
    people: int = 1,
    moved: Bool[np.ndarray, "n"] | None = None,
) -> tuple[Float[np.ndarray, "n 22 3"], Bool[np.ndarray, "n 22"], Float[np.ndarray, "n 22 3"]]:
    """Push people out of objects, themselves and each other and restore bones' lengths, in turns.

    Return joints, touching ones and the forces between people [N]. Joints in contact give less than their inverse
    masses say, by a factor, unless they slide or the person meets somebody. `load` is what the ground's reaction gives
    each person already, along the normals and along the surfaces, as ways [m]. `friction` is that of surfaces that set
    none, and `people` is the number of those who share a world, in rows one after the other. Worlds in which nobody
    has moved are left as they are; by default everybody has.
    """
    forces, touching = np.zeros(x.shape), np.zeros(x.shape[:-1], dtype=np.bool_)
    out, moved = np.array(x), np.ones(len(x), dtype=np.bool_) if moved is None else moved
    _settle(out, before, body, solids, load, friction, h, people, (moved, touching, forces))
    return out, touching, forces


@kernel
def _settle(
    x: Array,
    before: Array,
    body: BodyArrays,
    solids: Solids,
    load: Array,
    friction: float,
    h: float,
    count: int,
    out: tuple[Array, Array, Array],
) -> None:
    given, touching, forces = out
    give, bounds = np.empty(NUM_JOINTS), np.empty((len(CAPSULES), 4))
    pressed, rubbed, sliding = np.empty(x.shape[:2]), np.empty(x.shape[:2]), np.empty(NUM_JOINTS, dtype=np.bool_)
    close, allowed = np.empty((len(x), len(PAIRS)), dtype=np.int64), np.empty((len(x), len(PAIRS)))
    num_close, inside = np.empty(len(x), dtype=np.int64), np.zeros(len(x))
    met, moved = np.zeros(len(x), dtype=np.bool_), np.zeros(len(x), dtype=np.bool_)
    for i in range(len(x)):
        pressed[i], rubbed[i] = 0.0, load[i, 1]
    for first in range(0, len(x), count):
        world = slice(first, first + count)
        if not given[world].any():
            continue
        for done in range(MOST_ROUNDS):
            # A body that is pressed against the floor or somebody is rather inside of itself. A joint in a corner, out
            # of which a round pushes it to one side, goes to and fro between both while it gives less than its
            # neighbours.
            usual, last, settled = done < ROUNDS, 4 * done >= 3 * MOST_ROUNDS, True
            if not usual and count > 1:
                separate(x[world], body, done < ROUNDS + WHOLE_ROUNDS, h, forces[world], moved[world])
            for i in range(first, first + count):
                here, met[i] = of_person(solids, i), met[i] or moved[i]
                whole = not usual and not moved[i] and inside[i] < DEEP and _stretch(x[i], body.lengths) < STRETCHED
                if whole and deepest(x[i], body.radii, here) < DEEP:
                    continue
                settled = False
                if done == 0 or moved[i]:
                    num_close[i] = close_pairs(x[i], before[i], body, h, bounds, close[i], allowed[i])
                marks = Marks(touching[i], sliding, pressed[i], rubbed[i])
                push_out(x[i], before[i], body.radii, here, friction, load[i, 0], h, marks)
                for j in range(NUM_JOINTS):
                    stands = touching[i, j] and not sliding[j] and not last and not met[i]
                    give[j] = body.mobility[j] * (CONTACT_MOBILITY if stands else 1.0)
                inside[i] = 0.0 if last else keep_apart(x[i], body.capsules, give, close[i], num_close[i], allowed[i])
                _brace(x[i], body.offsets, give)
                restore_person(x[i], body.lengths, give, 2)
            if settled:
                break


@kernel
def close_pairs(
    x: Array, before: Array, body: BodyArrays, h: float, bounds: Array, close: Array, allowed: Array
) -> int:
    """Write which pairs of a person's capsules may come to overlap while the person settles; return their number.

    Also write how deep they may be in each other: what overlapped before comes out at a speed.
    """
    for c in range(len(CAPSULES)):
        a, b = row(x, CAPSULES[c, 0]), row(x, CAPSULES[c, 1])
        middle = times(0.5, plus(a, b))
        write(bounds, c, middle)
        bounds[c, 3] = size(minus(middle, a)) + max(body.capsules[c, 0], body.capsules[c, 1])
    num = 0
    for i in range(len(PAIRS)):
        one, other = PAIRS[i, 0], PAIRS[i, 1]
        apart, reach = minus(row(bounds, one), row(bounds, other)), bounds[one, 3] + bounds[other, 3] + CLOSE
        if dot(apart, apart) < reach * reach and overlap(x, body.capsules, i)[0] > -CLOSE:
            close[num], allowed[num] = i, max(overlap(before, body.capsules, i)[0] - COMING_OUT * h, 0.0)
            num += 1
    return num


@kernel
def keep_apart(x: Array, radii: Array, give: Array, close: Array, num: int, allowed: Array) -> float:
    """Move a person's overlapping capsules apart, and return how much too deep the deepest were in each other [m].

    A pair is pushed apart along the line between the nearest points of its axes, by the least displacement weighted by
    mobilities: equal and opposite impulses along one line, so that with inverse masses both momenta stay what they
    were.
    """
    worst = 0.0
    for i in range(num):
        pair = close[i]
        depth, s, t, nx, ny, nz = overlap(x, radii, pair)
        depth -= allowed[i]
        if not depth > 0.0:
            continue
        worst = max(worst, depth)
        one, other = CAPSULES[PAIRS[pair, 0]], CAPSULES[PAIRS[pair, 1]]
        a, b, c, d = one[0], one[1], other[0], other[1]
        wa, wb, wc, wd = give[a] * (1 - s), give[b] * s, give[c] * (1 - t), give[d] * t
        way = times(depth / (wa * (1 - s) + wb * s + wc * (1 - t) + wd * t), (nx, ny, nz))
        add(x, a, times(wa, way))
        add(x, b, times(wb, way))
        add(x, c, times(-wc, way))
        add(x, d, times(-wd, way))
    return worst


@kernel
def _brace(x: Array, offsets: Array, give: Array) -> None:
    """Bring the braces of a person's pelvis and chest back to their lengths: bones, which no floor bends.

    As with the bones, ends are pulled along the brace in proportion to their mobilities.
    """
    for k in range(len(_BRACES)):
        a, b = _BRACES[k]
        rod = minus(row(x, a), row(x, b))
        rest, length = size(minus(row(offsets, a), row(offsets, b))), size(rod)
        pull = times((length - rest) / (length * (give[a] + give[b])), rod)
        add(x, a, times(-give[a], pull))
        add(x, b, times(give[b], pull))


@kernel
def _stretch(x: Array, lengths: Array) -> float:
    """Return the largest relative error of a person's bones; NaN counts as large."""
    worst = 0.0
    for c in range(1, NUM_JOINTS):
        error = abs(size(minus(row(x, c), row(x, _PARENTS[c]))) - lengths[c]) / lengths[c]
        if not error <= worst:
            worst = error
    return worst


class Holds(NamedTuple):
    """Joints that something holds by a bounded force: a hand that is gripped, a foot that is caught."""

    points: np.ndarray
    """Where joints are held (*b 22 3); NaN for those that are free [m]."""
    ahead: np.ndarray
    """Unit vectors beyond which joints cannot go (*b 22 3); zero for those that are held in every direction."""
    largest: np.ndarray
    """Most that holds each joint (*b 22) [N]."""

    @classmethod
    def nothing(cls, *batch: int) -> "Holds":
        """Return arrays in which every joint is free."""
        return cls(
            np.full((*batch, NUM_JOINTS, 3), np.nan), np.zeros((*batch, NUM_JOINTS, 3)), np.zeros((*batch, NUM_JOINTS))
        )

    @classmethod
    def merged(cls, parts: Sequence["Holds"]) -> "Holds | None":
        """Put several together; of those of the same joint the last one counts."""
        if not parts:
            return None
        whole = cls(*(np.array(values) for values in parts[0]))
        for part in parts[1:]:
            held = ~np.isnan(part.points[..., 0])
            for all_of_them, own in zip(whole, part, strict=True):
                all_of_them[held] = own[held]
        return whole


@kernel
def hold(x: Array, holds: Holds, body: BodyArrays, h: float, forces: Array) -> None:
    """Bring held joints to their places, and write the forces that this takes [N].

    The rest of the body follows by its bones, as a chain that hangs on the joint: the force is what changes the body's
    momentum, and no more. So bones are brought to their lengths first, which changes none. A place for which the force
    would be too large is reached in part.
    """
    y, give = np.empty((NUM_JOINTS, 3)), np.empty(NUM_JOINTS)
    for i in range(len(x)):
        whole = False
        for j in range(NUM_JOINTS):
            if math.isnan(holds.points[i, j, 0]):
                continue
            point, ahead = row(holds.points[i], j), row(holds.ahead[i], j)
            way, length = _way_back(row(x[i], j), point, ahead)
            if length > 0.0 and not whole:
                restore_person(x[i], body.lengths, body.mobility, HOLD_ITERATIONS)
                whole, (way, length) = True, _way_back(row(x[i], j), point, ahead)
            if length == 0.0:
                continue
            share, force = min(1.0, FASTEST_HOLD * h / length), (0.0, 0.0, 0.0)
            for _ in range(HOLD_ROUNDS):
                copy(x[i], y)
                for k in range(NUM_JOINTS):
                    give[k] = body.mobility[k]
                give[j] = 0.0
                add(y, j, times(share, way))
                restore_person(y, body.lengths, give, HOLD_ITERATIONS)
                force = (0.0, 0.0, 0.0)
                for n in range(NUM_JOINTS):
                    force = plus(force, over(times(body.masses[n], minus(row(y, n), row(x[i], n))), h * h))
                if size(force) <= holds.largest[i, j]:
                    break
                share *= holds.largest[i, j] / size(force)
            copy(y, x[i])
            add(forces[i], j, force)


@inlined_kernel
def _way_back(x: Vector, point: Vector, ahead: Vector) -> tuple[Vector, float]:
    """Return the way of a joint to where it is held, and its length [m]; none if it can still go on."""
    way = minus(point, x)
    if ahead[0] == 0.0 and ahead[1] == 0.0 and ahead[2] == 0.0:
        return way, size(way)
    beyond = max(-dot(way, ahead), 0.0)
    return times(-beyond, ahead), beyond


@kernel
def restore_person(p: Array, lengths: Array, give: Array, iterations: int) -> None:
    """Restore a person's bone lengths in place, by the least displacement (fast projection, Goldenthal et al. 2007).

    Bones pull their two ends along themselves, in proportion to the ends' mobilities: with inverse masses, linear and
    angular momentum stay what they were. Newton's method on the 21 lengths; twice is enough for the errors of one step.
    Bones taken from the ends of the limbs inward fill in nothing.
    """
    direction, tension = np.empty((NUM_JOINTS, 3)), np.empty(NUM_JOINTS)
    S = np.empty((NUM_JOINTS, NUM_JOINTS))  # system of the bones' tensions
    for _ in range(iterations):
        for c in range(1, NUM_JOINTS):
            parent = _PARENTS[c]
            bone = minus(row(p, c), row(p, parent))
            length = size(bone)
            write(direction, c, over(bone, length))
            tension[c] = length - lengths[c]
            S[c, c] = give[c] + give[parent]
        for c in range(1, NUM_JOINTS):
            for k in range(_NUM_MEETING[c]):
                o = _MEETING[c, k]
                # A child hangs on the far end of its parent bone, siblings on the same near end.
                shared = -give[o] if o == _PARENTS[c] else give[_PARENTS[c]]
                S[c, o] = S[o, c] = dot(row(direction, c), row(direction, o)) * shared
        for c in range(NUM_JOINTS - 1, 0, -1):
            for k in range(_NUM_MEETING[c]):
                o = _MEETING[c, k]
                factor = S[c, o] / S[c, c]
                tension[o] -= factor * tension[c]
                for k2 in range(_NUM_MEETING[c]):
                    S[o, _MEETING[c, k2]] -= factor * S[c, _MEETING[c, k2]]
        for c in range(1, NUM_JOINTS):
            for k in range(_NUM_MEETING[c]):
                tension[c] -= S[c, _MEETING[c, k]] * tension[_MEETING[c, k]]
            tension[c] /= S[c, c]
        for c in range(1, NUM_JOINTS):
            pull = times(tension[c], row(direction, c))
            add(p, c, times(-give[c], pull))
            add(p, _PARENTS[c], times(give[_PARENTS[c]], pull))


WHOLE_ROUNDS = 2
"""Rounds of moving whole bodies apart: moved joint by joint alone, people who meet lift each other's limbs and
wrestle."""
SHARE = 0.7
"""Share of an overlap by which whole bodies are moved: spheres overlap several others at once."""
TOUCH = 0.002
"""Depth to which people may be in each other [m]."""
NEAR = 2.5
"""Hips farther apart than this cannot touch within a frame [m]."""


@kernel
def separate(x: Array, body: BodyArrays, whole: bool, h: float, forces: Array, moved: Array) -> None:
    """Move people of one world out of each other in place by equal and opposite impulses; add forces, mark who moved.

    Whole bodies are moved along the ground by their deepest overlap, or each pair of spheres by its masses. One gains
    the momentum that the other loses; lengths are later restored without changing any.
    """
    moved[:] = False
    for a in range(len(x)):
        for b in range(a + 1, len(x)):
            if size(minus(row(x[a], 0), row(x[b], 0))) > NEAR:
                continue
            if whole:
                apart = _move_whole(x[a], x[b], body, h, forces[a], forces[b])
            else:
                apart = _move_joints(x[a], x[b], body, h, forces[a], forces[b])
            moved[a], moved[b] = moved[a] or apart, moved[b] or apart


@inlined_kernel
def _overlap(a: Vector, b: Vector, reach: float) -> tuple[float, Vector]:
    """Return how deep two spheres overlap whose radii add up to a reach, and the unit vector to the first."""
    away = minus(a, b)
    square = dot(away, away)
    if square >= reach * reach:
        return 0.0, (0.0, 0.0, 0.0)
    length = max(math.sqrt(square), 1e-9)
    return reach - length, over(away, length)


@kernel
def _move_whole(one: Array, other: Array, body: BodyArrays, h: float, force: Array, opposite: Array) -> bool:
    """Move two people apart along the ground by their deepest overlap; the momentum goes to the joints that touch."""
    deepest, at, to, out = TOUCH, -1, 0, (0.0, 0.0, 0.0)
    for i in range(NUM_JOINTS):
        for j in range(NUM_JOINTS):
            depth, away = _overlap(row(one, i), row(other, j), body.radii[i] + body.radii[j])
            if depth > deepest:
                deepest, at, to, out = depth, i, j, away
    if at < 0:
        return False
    way, mass = times(0.5 * SHARE * deepest, (out[0], out[1], 0.0)), 0.0
    for k in range(NUM_JOINTS):
        mass += body.masses[k]
        add(one, k, way)
        add(other, k, times(-1.0, way))
    add(force, at, times(mass / (h * h), way))
    add(opposite, to, times(-mass / (h * h), way))
    return True


@kernel
def _move_joints(one: Array, other: Array, body: BodyArrays, h: float, force: Array, opposite: Array) -> bool:
    """Move every two overlapping spheres apart, the lighter one farther."""
    masses, anything = body.masses, False
    for i in range(NUM_JOINTS):
        for j in range(NUM_JOINTS):
            depth, out = _overlap(row(one, i), row(other, j), body.radii[i] + body.radii[j])
            if depth <= TOUCH:
                continue
            anything = True
            way = times(depth * masses[i] * masses[j] / (masses[i] + masses[j]), out)
            add(one, i, over(way, masses[i]))
            add(other, j, over(way, -masses[j]))
            add(force, i, over(way, h * h))
            add(opposite, j, over(way, -h * h))
    return anything
