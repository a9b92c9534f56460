"""Loose boxes and balls: rigid bodies that are pushed, kicked and stacked, fall over and come to rest.

Sequential impulses with Coulomb friction (Catto 2005) at short substeps. People's spheres take part as particles that
keep their velocity but for the impulses; those impulses are then forces on the people. All that takes part is a row as
in `shapes`, with five more columns: inverse mass, three inverse moments of inertia, and bounce.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.files.units import GRAVITY
from dropsim.physics.contact import Solids, friction_at, is_beyond, of_person
from dropsim.physics.shapes import (
    BALL,
    BOUND,
    BOX,
    CENTRE,
    FRICTION,
    SEEN,
    SIZES,
    SPIN,
    TURN,
    VELOCITY,
    Triangles,
    shape_distance,
    to_local,
    turned,
    velocity_at,
)
from dropsim.physics.vectors import Vector, add, cross, dot, minus, part, plus, row, size, times, write

Array = Any
"""numba knows the types."""
MOBILITY, EASE, BOUNCE = 25, 26, 29
"""Columns of a row after those of a shape: inverse mass [1/kg], inverse moments of inertia about the shape's own axes
[1/(kg m^2)], and the share of the speed that an impact gives back. What gives way to nobody has zeros."""
POINT, NORMAL, RUBBED, PRESSED, GAP, ROUGHNESS, LEAVE, GIVE = 0, 3, 6, 9, 10, 11, 12, 13
"""Columns of a contact: point [m], normal toward the body, impulses along the surface and along the normal so far
[N s], gap, negative inside [m], friction, velocity to leave with [m/s], inverse of the mass that is pushed [1/kg]."""
MOST_POINTS = 8
"""Limit of the points at which two touch: the corners of a box, or of one rectangle clipped to another."""
SUBSTEP_WAY, FEWEST_SUBSTEPS, MOST_SUBSTEPS = 0.006, 8, 16
"""Largest way of a body in a substep [m], and the fewest and most substeps of a frame: 3 m/s and more take all."""
MOST_ITERATIONS = 200
"""Limit of iterations in a substep: between somebody of 40 kg and the ground, a box of 1 kg takes about a hundred."""
CONVERGED = 1e-4
"""Change of velocity below which the iterations end [m/s]."""
SLOP = 0.0005
"""Depth that is left alone, so that contacts do not come and go [m]."""
RECOVERY, FASTEST_RECOVERY = 0.1, 0.5
"""Share of a depth that a substep takes back, and the largest velocity with which it does so [m/s]."""
BOUNCING = 0.3
"""Speed below which impacts do not bounce [m/s]."""
AT_REST = 0.01
"""Speed below which a body stays where it is [m/s]: a body that falls is that slow for less than a frame."""
MARGIN, NEARBY = 0.05, 0.005
"""Distances at which pairs and contacts are looked for, besides what may move in a frame and in a substep [m]."""
SHALLOW, HAIR, NUM_ROUNDS = 0.01, 1e-9, 4
"""Depth in people at which bodies make way, a little for rounding [m], and the rounds in which they do so."""


def body_rows(
    kind: Int[np.ndarray, "n"],
    half: Float[np.ndarray, "n 3"],
    mass: Float[np.ndarray, "n"],
    friction: Float[np.ndarray, "n"],
    bounce: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "n 30"]:
    """Return rows of bodies of some masses [kg]; a ball's half sizes [m] are its radius three times."""
    square, boxes = half**2, kind == BOX
    rows = np.zeros((len(kind), BOUNCE + 1))
    rows[:, 0], rows[:, FRICTION], rows[:, BOUNCE], rows[:, MOBILITY] = kind, friction, bounce, 1 / mass
    rows[:, SIZES : SIZES + 3], rows[:, BOUND] = half, np.where(boxes, np.linalg.norm(half, axis=-1), half[:, 0])
    inertia = np.where(boxes[:, None], (square.sum(-1, keepdims=True) - square) / 3, 0.4 * square)
    rows[:, EASE : EASE + 3] = 1 / (mass[:, None] * inertia)
    return rows


class BodyState(NamedTuple):
    """Poses and velocities of one body in every world `*b`, or of all bodies (worlds n)."""

    x: Float[np.ndarray, "*b 3"]
    """Centre [m]."""
    R: Float[np.ndarray, "*b 3 3"]
    """Rotation from its own axes to the world's."""
    v: Float[np.ndarray, "*b 3"]
    """Velocity [m/s]."""
    w: Float[np.ndarray, "*b 3"]
    """Angular velocity [rad/s]."""


class Crowd(NamedTuple):
    """People as bodies meet them."""

    x: np.ndarray
    """Joints of all people of a world (worlds s 3) [m]."""
    v: np.ndarray
    """Their velocities [m/s]."""
    radii: np.ndarray
    """Radii of the joints' spheres (22) [m]."""
    response: np.ndarray
    """Change of joint j's velocity by a unit impulse on joint k (22 22) [1/kg]."""


@kernel
def advance(bodies: Array, crowd: Crowd, solids: Solids, h: float, forces: Array) -> None:
    """Move bodies (worlds n 30) by a frame, in place, and write the mean forces on people [N]."""
    for world in range(len(bodies)):
        rows, here = _gather(world, bodies, crowd, solids)
        first, last, impulses = crowd.x.shape[1], crowd.x.shape[1] + bodies.shape[1], forces[world]
        pairs, fastest = _near_pairs(rows, first, last, h)
        substeps = min(max(math.ceil(h * fastest / SUBSTEP_WAY), FEWEST_SUBSTEPS), MOST_SUBSTEPS)
        impulses[:] = 0.0
        _run_substeps(pairs, last, rows, impulses, crowd.response, here, h / substeps, substeps)
        impulses /= h
        for i in range(first, last):
            if max(_speed(bodies[world], i - first), _speed(rows, i)) < AT_REST:
                rows[i, CENTRE:VELOCITY], rows[i, VELOCITY:FRICTION] = bodies[world, i - first, CENTRE:VELOCITY], 0.0
        bodies[world] = rows[first:last]


@kernel
def _gather(world: int, bodies: Array, crowd: Crowd, solids: Solids) -> tuple[Array, Solids]:
    """Return rows of people's spheres, bodies and what stands around in a world, in this order, and its solids.

    What gives way to nobody comes last, so that it has the last word in every iteration: between somebody heavy and the
    ground, iterations for a light body take long to agree.
    """
    first, joints = crowd.x.shape[1], len(crowd.radii)
    here, last = of_person(solids, world * (first // joints)), first + bodies.shape[1]
    rows = np.zeros((last + len(here.shapes), BOUNCE + 1))
    for p in range(first):
        rows[p, SIZES] = rows[p, BOUND] = crowd.radii[p % joints]
        rows[p, TURN] = rows[p, TURN + 4] = rows[p, TURN + 8] = 1.0
        rows[p, MOBILITY] = crowd.response[p % joints, p % joints]
    rows[:first, 0], rows[:first, FRICTION] = BALL, math.nan
    rows[:first, CENTRE:TURN], rows[:first, VELOCITY:SPIN] = crowd.x[world], crowd.v[world]
    rows[first:last] = bodies[world]
    rows[last:, : SEEN + 1] = here.shapes
    return rows, here


@kernel
def _near_pairs(rows: Array, first: int, last: int, h: float) -> tuple[Array, float]:
    """Return pairs of bodies and all else that may touch within a frame, and the largest speed."""
    fastest, num = 0.0, 0
    for i in range(last):
        fastest = max(fastest, _speed(rows, i) + GRAVITY * h)
    pairs, reach = np.empty(((last - first) * len(rows), 2), np.int64), MARGIN + 2 * h * fastest
    for b in range(len(rows)):
        for a in range(first, last if b < first else min(b, last)):
            if not is_beyond(row(rows, a, CENTRE), rows[a, BOUND] + reach, rows[b]):
                pairs[num, 0], pairs[num, 1] = a, b
                num += 1
    return pairs[:num], fastest


@inlined_kernel
def _speed(rows: Array, i: int) -> float:
    """Return the largest speed that a point of something may have [m/s]."""
    return size(row(rows, i, VELOCITY)) + rows[i, BOUND] * size(row(rows, i, SPIN))


@kernel
def _run_substeps(
    pairs: Array, last: int, rows: Array, impulses: Array, response: Array, here: Solids, dt: float, substeps: int
) -> None:
    """Move bodies, and people along, by some substeps; add up the impulses that people get [N s]."""
    first, counts, jolted = len(impulses), np.zeros(len(pairs), np.int64), True
    # Each pair has its own places for contacts, so that impulses of the substep before are there to start with.
    contacts, live = np.zeros((MOST_POINTS * len(pairs), GIVE + 1)), np.empty(MOST_POINTS * len(pairs), np.int64)
    for _ in range(substeps):
        num, impact = 0, False
        rows[first:last, VELOCITY + 2] -= GRAVITY * dt
        for k in range(len(pairs)):
            a, b, end = pairs[k, 0], pairs[k, 1], MOST_POINTS * k
            margin = NEARBY + dt * (_speed(rows, a) + size(row(rows, b, VELOCITY)))
            if not is_beyond(row(rows, a, CENTRE), rows[a, BOUND] + margin, rows[b]):
                end = _touch(rows[a], rows[b], here.mesh, margin, contacts, end)
            count = end - MOST_POINTS * k
            for c in range(MOST_POINTS * k, end):
                impact = _set_law(contacts, c, a, b, rows, here.shapes, dt) or impact
                if count != counts[k] or jolted:
                    contacts[c, RUBBED : PRESSED + 1] = 0.0
                live[num] = c
                num += 1
            counts[k] = count
        jolted = impact
        for c in live[:num]:
            impulse = plus(row(contacts, c, RUBBED), row(contacts, c, NORMAL), contacts[c, PRESSED])
            _give(contacts, c, pairs, impulse, rows, impulses, response)
        for _ in range(MOST_ITERATIONS):
            change = 0.0
            for c in live[:num]:
                change = max(change, _push(contacts, c, pairs, rows, impulses, response))
            if change < CONVERGED:
                break
        rows[:last, CENTRE:TURN] += dt * rows[:last, VELOCITY:SPIN]
        for i in range(first, last):
            _spin(rows, i, dt)


@kernel
def make_way(bodies: Array, crowd: Crowd, solids: Solids, stuck: Array) -> bool:
    """Move bodies (worlds n 30), in place, out of people who went farther into them than their velocities said.

    The impulses are there in the next frame; here a body only gets out of the way, and not into the ground or what
    stands around. Write which ones are stuck between people and that (worlds n), and return whether any is.
    """
    first, last = crowd.x.shape[1], crowd.x.shape[1] + bodies.shape[1]
    for world in range(len(bodies)):
        rows, here = _gather(world, bodies, crowd, solids)
        contacts = np.empty((MOST_POINTS * len(rows), GIVE + 1))
        for i in range(first, last):
            k, body = i - first, rows[i]
            for done in range(NUM_ROUNDS + 1):
                deepest, way, num = SHALLOW, (0.0, 0.0, 0.0), 0
                for p in range(first):
                    if not is_beyond(row(rows, p, CENTRE), rows[p, BOUND], body):
                        d, n = shape_distance(row(rows, p, CENTRE), body, here.mesh, math.inf)
                        if rows[p, BOUND] - d > deepest:
                            deepest, way = rows[p, BOUND] - d, times(-1.0, n)
                stuck[world, k] = deepest > SHALLOW + HAIR
                if not stuck[world, k] or done == NUM_ROUNDS:
                    break
                way = times(deepest - SHALLOW, way)
                for b in range(last, len(rows)):
                    if not is_beyond(row(rows, i, CENTRE), body[BOUND] + deepest, rows[b]):
                        num = _touch(body, rows[b], here.mesh, deepest, contacts, num)
                for c in range(num):
                    n = row(contacts, c, NORMAL)
                    way = plus(way, n, max(-dot(way, n) - max(contacts[c, GAP], 0.0), 0.0))
                add(rows, i, way, CENTRE)
            bodies[world, k] = body
    return stuck.any()


@kernel
def _spin(rows: Array, i: int, dt: float) -> None:
    """Turn a body by its angular velocity times dt, and make its rotation orthonormal again."""
    w, a, b = row(rows, i, SPIN), _axis(rows[i], 0), _axis(rows[i], 1)
    a, b = plus(a, cross(w, a), dt), plus(b, cross(w, b), dt)
    a = times(1 / size(a), a)
    b = plus(b, a, -dot(a, b))
    b = times(1 / size(b), b)
    c = cross(a, b)
    for k in range(3):
        write(rows, i, (a[k], b[k], c[k]), TURN + 3 * k)


@inlined_kernel
def _axis(body: Array, k: int) -> Vector:
    """Return one of a body's own axes in the world."""
    return body[TURN + k], body[TURN + 3 + k], body[TURN + 6 + k]


@kernel
def _set_law(contacts: Array, c: int, a: int, b: int, rows: Array, static: Array, dt: float) -> bool:
    """Set the friction of a new contact, how it gives way, and the velocity to leave it with; return if it is an impact.

    A pair uses the smaller friction and the larger bounce. NaN is the friction of surfaces that set none.
    """
    point, n, gap = row(contacts, c, POINT), row(contacts, c, NORMAL), contacts[c, GAP]
    friction = friction_at(point, rows[b], static)
    contacts[c, ROUGHNESS] = rows[a, FRICTION] if math.isnan(friction) else min(rows[a, FRICTION], friction)
    contacts[c, GIVE] = _mobility(rows, a, point, n) + _mobility(rows, b, point, n)
    nearing, leave = -dot(minus(velocity_at(point, rows, a), velocity_at(point, rows, b)), n), 0.0
    impact = nearing > max(BOUNCING, gap / dt)
    if impact:
        leave = max(rows[a, BOUNCE], rows[b, BOUNCE]) * nearing
    if gap > 0 and leave == 0.0:
        leave = -gap / dt
    elif gap < -SLOP:
        leave = max(leave, min(RECOVERY * (-gap - SLOP) / dt, FASTEST_RECOVERY))
    contacts[c, LEAVE] = leave
    return impact


@inlined_kernel
def _push(contacts: Array, c: int, pairs: Array, rows: Array, impulses: Array, response: Array) -> float:
    """Bring the velocity at a contact nearer to what it should be, along the normal and, up to friction, the surface.

    Return the larger of the two changes [m/s].
    """
    a, b = pairs[c // MOST_POINTS, 0], pairs[c // MOST_POINTS, 1]
    point, n, before = row(contacts, c, POINT), row(contacts, c, NORMAL), row(contacts, c, RUBBED)
    velocity = minus(velocity_at(point, rows, a), velocity_at(point, rows, b))
    nearing = -dot(velocity, n)
    pressed = max(contacts[c, PRESSED] + (contacts[c, LEAVE] + nearing) / contacts[c, GIVE], 0.0)
    press = pressed - contacts[c, PRESSED]
    slide = plus(velocity, n, nearing)
    way = times(1 / max(size(slide), 1e-12), slide)
    give = _mobility(rows, a, point, way) + _mobility(rows, b, point, way)
    rubbed = plus(before, slide, -1 / give)
    length, most = size(rubbed), contacts[c, ROUGHNESS] * pressed
    rubbed = times(most / length if length > most else 1.0, rubbed)
    rub = minus(rubbed, before)
    contacts[c, PRESSED] = pressed
    write(contacts, c, rubbed, RUBBED)
    _give(contacts, c, pairs, plus(rub, n, press), rows, impulses, response)
    return max(contacts[c, GIVE] * abs(press), give * size(rub))


@inlined_kernel
def _give(
    contacts: Array, c: int, pairs: Array, impulse: Vector, rows: Array, impulses: Array, response: Array
) -> None:
    """Give the body of a contact an impulse, and the opposite to what it touches; a person's other joints go along."""
    a, b, point = pairs[c // MOST_POINTS, 0], pairs[c // MOST_POINTS, 1], row(contacts, c, POINT)
    opposite = times(-1.0, impulse)
    _kick(rows, a, point, impulse)
    if b < len(impulses):
        add(impulses, b, opposite)
        joint = b % len(response)
        for j in range(len(response)):
            add(rows, b - joint + j, times(response[j, joint], opposite), VELOCITY)
    elif rows[b, MOBILITY] > 0:
        _kick(rows, b, point, opposite)


@inlined_kernel
def _kick(rows: Array, i: int, p: Vector, impulse: Vector) -> None:
    """Give a body an impulse at a point."""
    add(rows, i, times(rows[i, MOBILITY], impulse), VELOCITY)
    add(rows, i, _turned_by(rows, i, cross(minus(p, row(rows, i, CENTRE)), impulse)), SPIN)


@inlined_kernel
def _turned_by(rows: Array, i: int, moment: Vector) -> Vector:
    """Return the change of angular velocity by an angular impulse."""
    change = (0.0, 0.0, 0.0)
    for k in range(3):
        axis = rows[i, TURN + k], rows[i, TURN + 3 + k], rows[i, TURN + 6 + k]
        change = plus(change, axis, rows[i, EASE + k] * dot(axis, moment))
    return change


@inlined_kernel
def _mobility(rows: Array, i: int, p: Vector, n: Vector) -> float:
    """Return how much velocity along n at a point an impulse along n gives."""
    if rows[i, EASE] == 0:
        return rows[i, MOBILITY]
    moment = cross(minus(p, row(rows, i, CENTRE)), n)
    return rows[i, MOBILITY] + dot(moment, _turned_by(rows, i, moment))


@kernel
def _touch(a: Array, b: Array, mesh: Triangles, margin: float, contacts: Array, num: int) -> int:
    """Write where a body comes nearer than a margin to something, after `num` contacts; return how many there are then.

    Balls are seen from their centres, two boxes from their faces, and boxes from their corners by anything else.
    """
    if a[0] == BOX and b[0] == BOX:
        return _touch_boxes(a, b, margin, contacts, num)
    sign = 1.0
    if a[0] == BOX and b[0] == BALL:
        a, b, sign = b, a, -1.0
    radius = a[SIZES] if a[0] == BALL else 0.0
    for k in range(8 if a[0] == BOX else 1):
        p = _corner(a, k) if a[0] == BOX else part(a, CENTRE)
        d, n = shape_distance(p, b, mesh, margin + radius)
        if d - radius < margin:
            write(contacts, num, plus(p, n, -radius), POINT)
            write(contacts, num, times(sign, n), NORMAL)
            contacts[num, GAP] = d - radius
            num += 1
    return num


@inlined_kernel
def _corner(box: Array, k: int) -> Vector:
    """Return a corner of a box; the bits of k are its sides."""
    x, y, z = part(box, SIZES)
    return plus(part(box, CENTRE), turned((x if k & 1 else -x, y if k & 2 else -y, z if k & 4 else -z), box))


@inlined_kernel
def _extent(box: Array, n: Vector) -> float:
    """Return how far a box reaches from its centre along a direction [m]."""
    x, y, z = part(box, SIZES)
    return x * abs(dot(_axis(box, 0), n)) + y * abs(dot(_axis(box, 1), n)) + z * abs(dot(_axis(box, 2), n))


@kernel
def _touch_boxes(a: Array, b: Array, margin: float, contacts: Array, num: int) -> int:
    """Write where two boxes come nearer than a margin, as `_touch` does.

    The face that the other box is least behind is the surface; the other box's face against it is clipped to it. Edges
    that cross have the normal of one of their faces.
    """
    away, least, face = minus(part(a, CENTRE), part(b, CENTRE)), math.inf, 0
    for k in range(6):
        n = _axis(a if k < 3 else b, k % 3)
        overlap = _extent(a, n) + _extent(b, n) - abs(dot(away, n))
        if overlap < least:
            least, face = overlap, k
    if least < -margin:
        return num
    box, other, axis = (a, b, face) if face < 3 else (b, a, face - 3)
    out = _axis(box, axis)
    side = 1.0 if dot(minus(part(other, CENTRE), part(box, CENTRE)), out) >= 0 else -1.0
    against = 0
    for k in range(1, 3):
        if abs(dot(_axis(other, k), out)) > abs(dot(_axis(other, against), out)):
            against = k
    polygon, clipped, count = np.empty((64, 3)), np.empty((64, 3)), 4  # more than rounding could ever lead to
    behind = dot(_axis(other, against), out) * side < 0
    for k in range(4):
        u, v = k == 1 or k == 2, k >= 2
        bits = (behind << against) | (u << (against + 1) % 3) | (v << (against + 2) % 3)
        write(polygon, k, to_local(_corner(other, bits), box))
    for turn in range(4):
        e, sign, left = (axis + 1 + turn // 2) % 3, 1.0 - 2.0 * (turn % 2), 0
        for k in range(count):
            p, q = row(polygon, k), row(polygon, (k + 1) % count)
            dp, dq = sign * p[e] - box[SIZES + e], sign * q[e] - box[SIZES + e]
            if dp <= 0:
                write(clipped, left, p)
                left += 1
            if dp < 0 < dq or dq < 0 < dp:
                write(clipped, left, plus(p, minus(q, p), dp / (dp - dq)))
                left += 1
        polygon, clipped, count = clipped, polygon, left
    for k in range(min(count, MOST_POINTS)):
        gap = side * polygon[k, axis] - box[SIZES + axis]
        if gap < margin:
            write(contacts, num, plus(part(box, CENTRE), turned(row(polygon, k), box)), POINT)
            write(contacts, num, times(-side if face < 3 else side, out), NORMAL)
            contacts[num, GAP] = gap
            num += 1
    return num
