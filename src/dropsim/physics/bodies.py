"""Loose boxes and balls: rigid bodies that are pushed, kicked and stacked, fall over and come to rest.

Sequential impulses with Coulomb friction (Catto 2005) at short substeps. People's spheres take part as particles that
keep their velocity but for the impulses; those impulses are then forces on the people.
"""

# pyright: reportPossiblyUnboundVariable=false

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.files.units import GRAVITY
from dropsim.physics.contact import HAIR, Solids, nearest, nearest_within, of_person
from dropsim.physics.shapes import BOUND, BOX, FRICTION, box_distance, shape_distance, to_local, turned

Array = Any
"""numba knows the types."""
Vector = tuple[float, float, float]
Axes = tuple[Vector, Vector, Vector]
Box = tuple[Vector, Axes, Vector]
"""Centre, own axes and half sizes."""
State = tuple[Array, Array, Array, Array]
"""Positions, rotations, velocities and angular velocities of a world's bodies."""
People = tuple[Array, Array, Array, Array, Array]
"""Places of a world's spheres, their velocities and the impulses that they got; radii and response of a body."""
BALL = 3
"""Kind of a body, next to shapes.BOX."""
SUBSTEP_WAY, FEWEST_SUBSTEPS, MOST_SUBSTEPS = 0.006, 4, 16
"""Largest way of a body in a substep [m], and the fewest and most substeps of a frame: 3 m/s and more take all."""
MOST_ITERATIONS = 200
"""Limit of iterations in a substep: between somebody of 40 kg and the ground, a box of 1 kg takes about a hundred."""
CONVERGED = 1e-4
"""Change of velocity below which the iterations end [m/s]."""
SAME_CONTACT = 0.02
"""Distance below which contacts of two bodies in two substeps are one [m]."""
SLOP = 0.0005
"""Depth that is left alone, so that contacts do not come and go [m]."""
RECOVERY = 0.1
"""Share of a depth that a substep takes back."""
FASTEST_RECOVERY = 0.5
"""Largest velocity with which a depth is taken back [m/s]."""
BOUNCING = 0.3
"""Speed below which impacts do not bounce [m/s]."""
AT_REST, FRAMES_TO_SLEEP = 0.01, 15
"""Speed of a body at rest [m/s], and frames at rest after which it sleeps: what falls is that slow for one at most."""
TOUCHING = 0.1
"""Distance from a person's sphere at which a body is looked at more closely [m]."""
MARGIN = 0.01
"""Distance at which bodies and surfaces are looked for, besides what may move within a frame [m]."""
SHALLOW, NUM_ROUNDS = 0.01, 4
"""Depth in people at which bodies make way [m], and the rounds in which they do so."""
NEARBY = 0.005
"""Distance at which contacts are looked for, besides what may move in a substep [m]."""
MOST_CONTACTS = 64
"""Limit of a body's contacts, without those with people: a box has up to 8 with each body."""
STATIC = -1
"""Index of surfaces that give way to nobody; people's spheres are counted on from -2."""


class Bodies(NamedTuple):
    """Properties of rigid bodies that do not change."""

    kind: np.ndarray
    """shapes.BOX or BALL (n)."""
    half: np.ndarray
    """Half the edges of a box; the radius of a ball three times (n 3) [m]."""
    mobility: np.ndarray
    """Inverse masses (n) [1/kg]."""
    ease: np.ndarray
    """Inverse moments of inertia about their own axes (n 3) [1/(kg m^2)]."""
    friction: np.ndarray
    """Friction coefficient of each body; a pair uses the smaller one (n)."""
    bounce: np.ndarray
    """Share of the speed that an impact gives back (n)."""


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
    still: Int[np.ndarray, "*b"]
    """Number of frames for which it has been at rest."""

    @classmethod
    def at_rest(cls, x: np.ndarray, R: np.ndarray, batch: tuple[int, ...]) -> "BodyState":
        """Return a body that does not move, in every world."""
        zero, still = np.zeros((*batch, 3)), np.zeros(batch, dtype=np.int64)
        return cls(np.tile(x, (*batch, 1)), np.tile(R, (*batch, 1, 1)), zero, zero, still)


class Crowd(NamedTuple):
    """People as bodies meet them."""

    x: np.ndarray
    """Joints (worlds p 22 3) [m]."""
    v: np.ndarray
    """Their velocities [m/s]."""
    radii: np.ndarray
    """Radii of the joints' spheres (22) [m]."""
    response: np.ndarray
    """Change of joint j's velocity by a unit impulse on joint k (22 22) [1/kg]."""


class Contacts(NamedTuple):
    """Where bodies touch, in a substep."""

    who: np.ndarray
    """Body, and what it touches (c 2)."""
    vectors: np.ndarray
    """Point, normal toward the first body, velocity of a static surface, impulse along the surface so far (c 4 3)."""
    numbers: np.ndarray
    """Gap, friction, velocity to leave with, impulse along the normal so far (c 4)."""


class Manifold(NamedTuple):
    """Points at which two boxes touch, and space to find them."""

    points: np.ndarray
    depths: np.ndarray
    scratch: np.ndarray


@kernel
def advance(states: BodyState, bodies: Bodies, crowd: Crowd, solids: Solids, h: float, forces: Array) -> bool:
    """Move the bodies of every world by a frame, in place; write the mean forces on people [N]; return if any is awake.

    Bodies that rest long enough sleep until somebody or something that moves comes near. Bodies that cannot meet within
    the frame are moved apart from each other, each such island in as many substeps as its own speed takes.
    """
    count, joints, anything = crowd.x.shape[1], crowd.x.shape[2], False
    for world in range(len(states.x)):
        x, R, v, w = states.x[world], states.R[world], states.v[world], states.w[world]
        here, still = of_person(solids, world * count), states.still[world]
        at, pace = crowd.x[world].copy().reshape(count * joints, 3), crowd.v[world].copy().reshape(count * joints, 3)
        given = np.zeros(at.shape)
        near = _near_people(x, v, bodies, at, pace, crowd.radii, h)
        awake = _awake(x, v, still, near, bodies, here, h)
        if not awake.any():
            continue
        anything = True
        travel = 2 * h * _fastest(np.nonzero(awake)[0], v, w, bodies, near, pace, h)
        first = _islands(awake, near, x, bodies, travel)
        people = (at, pace, given, crowd.radii, crowd.response)
        for i in range(len(x)):
            if first[i] == i:
                members = np.nonzero(first == i)[0]
                _advance_island(members, (x, R, v, w), bodies, near, people, here, h, travel)
        forces[world] = (given / h).reshape(forces.shape[1:])
        for i in np.nonzero(awake)[0]:
            moves = _size(v[i]) > AT_REST or _size(w[i]) * _reach(i, bodies) > AT_REST
            still[i] = 0 if moves else still[i] + 1
    return anything


@kernel
def _fastest(members: Array, v: Array, w: Array, bodies: Bodies, near: Array, pace: Array, h: float) -> float:
    """Return the speed of the fastest of some bodies, and of people near them, by the frame's end [m/s]."""
    found, touched = 0.0, False
    for i in members:
        found, touched = max(found, _size(v[i]) + _reach(i, bodies) * _size(w[i])), touched or near[i]
    for p in range(len(pace) if touched else 0):
        found = max(found, _size(pace[p]))
    return found + GRAVITY * h


@kernel
def _islands(awake: Array, near: Array, x: Array, bodies: Bodies, travel: float) -> Array:
    """Return the first body of each body's island, -1 for those asleep; all bodies near people are one island."""
    first, waiting = np.full(len(x), -1), np.empty(len(x), np.int64)
    for i in range(len(x)):
        if not awake[i] or first[i] >= 0:
            continue
        first[i], waiting[0], num = i, i, 1
        while num > 0:
            num -= 1
            j = waiting[num]
            for k in range(len(x)):
                if awake[k] and first[k] < 0 and ((near[j] and near[k]) or _may_meet(j, k, x, bodies, travel)):
                    first[k], waiting[num] = i, k
                    num += 1
    return first


@kernel
def _may_meet(i: int, k: int, x: Array, bodies: Bodies, travel: float) -> bool:
    """Tell whether two bodies may touch within a frame in which what is between them closes by some way at most."""
    reach = _reach(i, bodies) + _reach(k, bodies) + MARGIN + travel
    return (x[i, 0] - x[k, 0]) ** 2 + (x[i, 1] - x[k, 1]) ** 2 + (x[i, 2] - x[k, 2]) ** 2 < reach**2


@kernel
def _advance_island(
    members: Array, state: State, bodies: Bodies, near: Array, people: People, here: Solids, h: float, travel: float
) -> None:
    """Move some bodies by a frame, and the people near them along; add the impulses that people get to theirs."""
    (x, R, v, w), (at, pace, given, radii, response) = state, people
    num_members = len(members)
    way = h * _fastest(members, v, w, bodies, near, pace, h)
    substeps = min(max(math.ceil(way / SUBSTEP_WAY), FEWEST_SUBSTEPS), MOST_SUBSTEPS)
    dt, touched = h / substeps, near[members].any()
    most = num_members * (MOST_CONTACTS + (len(at) if touched else 0))
    contacts = Contacts(np.empty((most, 2), np.int64), np.empty((most, 4, 3)), np.empty((most, 4)))
    before, known = Contacts(np.empty((most, 2), np.int64), np.empty((most, 4, 3)), np.empty((most, 4))), 0
    manifold = Manifold(np.empty((16, 3)), np.empty(16), np.empty((2, 16, 3)))
    held = np.empty(len(x) + 1, np.bool_)
    rows, counts, low = (
        np.empty((num_members, *here.shapes.shape)),
        np.zeros(num_members, np.int64),
        np.zeros(num_members, np.bool_),
    )
    for m in range(num_members):
        counts[m], low[m] = _surroundings(members[m], x, bodies, here, h, travel, rows[m])
    for _ in range(substeps):
        num = 0
        # What gives way to nobody comes last in every iteration, so that it has the last word: between somebody heavy
        # and the ground, iterations for a light body take long to agree.
        for i in members:
            v[i, 2] -= GRAVITY * dt
        for i in members:
            within = _reach(i, bodies) + TOUCHING
            for p in range(len(at) if near[i] else 0):
                if _size(_plus(_row(at, p), _row(x, i), -1.0)) < within + radii[p % len(radii)]:
                    num = _touch_person(i, p, state, bodies, people, dt, contacts, num)
        for m in range(num_members):
            for k in members[m + 1 :]:
                num = _touch_each_other(members[m], k, state, bodies, dt, contacts, num, manifold)
        for m in range(num_members):
            if low[m]:
                own = Solids(here.planes, here.spheres, here.patches, rows[m][: counts[m]], here.mesh)
                num = _touch_statics(members[m], state, bodies, own, dt, contacts, num, manifold)
        for c in range(num):
            _start_warm(c, x, R, v, w, bodies, pace, given, response, contacts, before, known)
        for _ in range(MOST_ITERATIONS):
            change = 0.0
            for c in range(num):
                change = max(change, _push(c, x, R, v, w, bodies, pace, given, response, contacts))
            if change < CONVERGED:
                break
        held[:] = False
        for c in range(num):
            for i in contacts.who[c]:
                held[max(i, STATIC)] = True  # the last one is for what is no body
        contacts, before, known = before, contacts, num
        for i in members:
            for k in range(3):
                x[i, k] += dt * v[i, k]
            if not held[i]:
                x[i, 2] += 0.5 * GRAVITY * dt * dt  # what flies is on its parabola, however long a substep is
            _spin(R[i], w[i], dt)
        for p in range(len(at) if touched else 0):
            for k in range(3):
                at[p, k] += dt * pace[p, k]


@kernel
def make_way(states: BodyState, bodies: Bodies, crowd: Crowd, solids: Solids, stuck: Array) -> bool:
    """Move bodies, in place, out of people who went farther into them than their velocities said.

    The impulses are there in the next frame; here a body only gets out of the way, and not into the ground or what
    stands around. Write which ones are stuck between people and that (worlds n), and return whether any is.
    """
    count, joints = crowd.x.shape[1], crowd.x.shape[2]
    for world in range(len(states.x)):
        here, at = of_person(solids, world * count), crowd.x[world].copy().reshape(count * joints, 3)
        x, R = states.x[world], states.R[world]
        for i in range(len(x)):
            for done in range(NUM_ROUNDS + 1):
                deepest, way = SHALLOW, (0.0, 0.0, 0.0)
                for p in range(count * joints):
                    radius = crowd.radii[p % joints]
                    if _size(at[p] - x[i]) > _reach(i, bodies) + radius:
                        continue
                    d, n = _out_of_body(i, at[p], x, R, bodies)
                    if radius - d > deepest:
                        deepest, way = radius - d, _times(-1.0, n)
                stuck[world, i] = deepest > SHALLOW + HAIR
                if not stuck[world, i] or done == NUM_ROUNDS:
                    break
                _write(x, i, _plus(x[i], _free_way(i, x, R, bodies, here, _times(deepest - SHALLOW, way)), 1.0))
                states.still[world, i] = 0
    return stuck.any()


@kernel
def _free_way(i: int, x: Array, R: Array, bodies: Bodies, here: Solids, way: Vector) -> Vector:
    """Return the part of a way that takes a body no farther than up to static surfaces; along these it goes on."""
    at = _row(x, i)
    for plane in here.planes:
        way = _stopped(i, R, bodies, _dot(at, plane) - plane[3], (plane[0], plane[1], plane[2]), way)
    for ball in here.spheres:
        out = _plus(at, ball, -1.0)
        length = max(_size(out), 1e-9)
        way = _stopped(i, R, bodies, length - ball[3], _times(1 / length, out), way)
    for row in here.shapes:
        reach = _reach(i, bodies) + _size(way)
        if _size(_plus(at, row[4:7], -1.0)) <= row[BOUND] + reach:
            lx, ly, lz = to_local(at[0], at[1], at[2], row)
            d, lx, ly, lz = shape_distance(lx, ly, lz, row, here.mesh, reach)
            way = _stopped(i, R, bodies, d, turned(lx, ly, lz, row), way)
    return way


@kernel
def _stopped(i: int, R: Array, bodies: Bodies, d: float, n: Vector, way: Vector) -> Vector:
    """Return a way without what leads a body into a surface at a distance d from its centre."""
    extent = bodies.half[i, 0]
    if bodies.kind[i] == BOX:
        extent = _extent(_axes(R, i), _row(bodies.half, i), n)
    return _plus(way, n, max(-_dot(way, n) - max(d - extent, 0.0), 0.0))


@inlined_kernel
def _size(a: Array) -> float:
    return math.sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2])


@kernel
def _reach(i: int, bodies: Bodies) -> float:
    """Return how far a body reaches from its centre [m]."""
    return _size(bodies.half[i]) if bodies.kind[i] == BOX else bodies.half[i, 0]


@kernel
def _awake(x: Array, v: Array, still: Array, near: Array, bodies: Bodies, here: Solids, h: float) -> Array:
    """Return which bodies may move within a frame: those that moved lately or may be reached by people or by these."""
    moves = False
    for row in here.planes:
        moves = moves or row[4:10].any()
    for row in here.shapes:
        moves = moves or row[16:22].any()
    for row in here.spheres:
        moves = moves or row[4:7].any()
    awake = near.copy()
    for i in range(len(x)):
        awake[i] = awake[i] or moves or still[i] < FRAMES_TO_SLEEP
    found = True
    while found:
        found = False
        for i in range(len(x)):
            for k in range(len(x)):
                if awake[i] and not awake[k]:
                    apart = math.sqrt((x[i, 0] - x[k, 0]) ** 2 + (x[i, 1] - x[k, 1]) ** 2 + (x[i, 2] - x[k, 2]) ** 2)
                    if apart < _reach(i, bodies) + _reach(k, bodies) + 0.05 + h * (_size(v[i]) + GRAVITY * h):
                        awake[k] = found = True
    return awake


@kernel
def _near_people(x: Array, v: Array, bodies: Bodies, people: Array, pace: Array, radii: Array, h: float) -> Array:
    """Return which bodies somebody may reach within a frame."""
    near = np.zeros(len(x), dtype=np.bool_)
    for i in range(len(x)):
        reach = _reach(i, bodies) + TOUCHING + h * (_size(v[i]) + GRAVITY * h)
        for p in range(len(people)):
            apart = (people[p, 0] - x[i, 0]) ** 2 + (people[p, 1] - x[i, 1]) ** 2 + (people[p, 2] - x[i, 2]) ** 2
            if apart < (reach + radii[p % len(radii)] + h * _size(pace[p])) ** 2:
                near[i] = True
                break
    return near


@kernel
def _surroundings(
    i: int, x: Array, bodies: Bodies, here: Solids, h: float, travel: float, rows: Array
) -> tuple[int, bool]:
    """Write the shapes that a body may reach within a frame; return how many, and whether it may reach any surface."""
    reach, count = _reach(i, bodies) + MARGIN + travel, 0
    for k in range(len(here.shapes)):
        row = here.shapes[k]
        nearing = h * (_size(row[16:19]) + row[BOUND] * _size(row[19:22]))
        if (x[i, 0] - row[4]) ** 2 + (x[i, 1] - row[5]) ** 2 + (x[i, 2] - row[6]) ** 2 < (
            reach + row[BOUND] + nearing
        ) ** 2:
            rows[count] = row
            count += 1
    plain = Solids(here.planes, here.spheres, here.patches, here.shapes[:0], here.mesh)
    return count, count > 0 or nearest(x[i, 0], x[i, 1], x[i, 2], plain)[0] < reach


@kernel
def _spin(R: Array, w: Array, dt: float) -> None:
    """Turn a rotation by w dt and make it orthonormal again."""
    for c in range(3):
        a, b, d = R[0, c], R[1, c], R[2, c]
        R[0, c], R[1, c], R[2, c] = (
            a + dt * (w[1] * d - w[2] * b),
            b + dt * (w[2] * a - w[0] * d),
            d + dt * (w[0] * b - w[1] * a),
        )
    size = math.sqrt(R[0, 0] ** 2 + R[1, 0] ** 2 + R[2, 0] ** 2)
    for k in range(3):
        R[k, 0] /= size
    along = R[0, 0] * R[0, 1] + R[1, 0] * R[1, 1] + R[2, 0] * R[2, 1]
    for k in range(3):
        R[k, 1] -= along * R[k, 0]
    size = math.sqrt(R[0, 1] ** 2 + R[1, 1] ** 2 + R[2, 1] ** 2)
    for k in range(3):
        R[k, 1] /= size
    R[0, 2], R[1, 2], R[2, 2] = (
        R[1, 0] * R[2, 1] - R[2, 0] * R[1, 1],
        R[2, 0] * R[0, 1] - R[0, 0] * R[2, 1],
        R[0, 0] * R[1, 1] - R[1, 0] * R[0, 1],
    )


@inlined_kernel
def _point_velocity(i: int, p: Array, x: Array, v: Array, w: Array) -> tuple[float, float, float]:
    rx, ry, rz = p[0] - x[i, 0], p[1] - x[i, 1], p[2] - x[i, 2]
    return (
        v[i, 0] + w[i, 1] * rz - w[i, 2] * ry,
        v[i, 1] + w[i, 2] * rx - w[i, 0] * rz,
        v[i, 2] + w[i, 0] * ry - w[i, 1] * rx,
    )


@kernel
def _note(
    pair: tuple[int, int],
    point: Vector,
    n: Vector,
    gap: float,
    law: tuple[float, float],
    u: Vector,
    moving: tuple[Array, Array, Array],
    dt: float,
    contacts: Contacts,
    num: int,
) -> int:
    """Note a contact if it is one by the substep's end, and return how many there are.

    `law` is friction and bounce, u the velocity of a static surface or a person's sphere, `moving` x, v and w.
    """
    (a, b), (friction, bounce), (x, v, w) = pair, law, moving
    if num == len(contacts.who):
        return num
    other = _point_velocity(b, point, x, v, w) if b >= 0 else u
    nearing = -_dot(_plus(_point_velocity(a, point, x, v, w), other, -1.0), n)
    if gap > max(nearing, 0.0) * dt:
        return num
    leave = bounce * nearing if nearing > BOUNCING else 0.0
    if gap > 0 and leave == 0.0:
        leave = -gap / dt
    elif gap < -SLOP:
        leave = max(leave, min(RECOVERY * (-gap - SLOP) / dt, FASTEST_RECOVERY))
    vectors, numbers = contacts.vectors[num], contacts.numbers[num]
    _write(vectors, 0, point)
    _write(vectors, 1, n)
    _write(vectors, 2, u)
    _write(vectors, 3, (0.0, 0.0, 0.0))
    numbers[0], numbers[1], numbers[2], numbers[3] = gap, friction, leave, 0.0
    contacts.who[num, 0], contacts.who[num, 1] = a, b
    return num + 1


@kernel
def _touch_statics(
    i: int, state: State, bodies: Bodies, here: Solids, dt: float, contacts: Contacts, num: int, manifold: Manifold
) -> int:
    """Note where a body touches static surfaces: a ball by its centre, a box by its corners, and by boxes' faces."""
    (x, R, v, w), half, pair, law = state, _row(bodies.half, i), (i, STATIC), (bodies.friction[i], bodies.bounce[i])
    reach, at, axes, moving = _reach(i, bodies), _row(x, i), _axes(R, i), (x, v, w)
    margin = dt * (_size(v[i]) + reach * _size(w[i])) + NEARBY
    if bodies.kind[i] != BOX:
        d, nx, ny, nz, ux, uy, uz, rough = nearest_within(reach + margin, at[0], at[1], at[2], here)
        if d >= reach + margin:
            return num
        n, law = (nx, ny, nz), (_rougher(law[0], rough), law[1])
        return _note(pair, _plus(at, n, -half[0]), n, d - half[0], law, (ux, uy, uz), moving, dt, contacts, num)
    plain = Solids(here.planes, here.spheres, here.patches, here.shapes[:0], here.mesh)
    for corner in range(8):
        p = _corner(at, axes, half, corner)
        above = math.inf
        for plane in here.planes:
            above = min(above, _dot(p, plane) - plane[3])
        if above < margin or len(here.spheres):
            d, nx, ny, nz, ux, uy, uz, rough = nearest(p[0], p[1], p[2], plain)
            if d < margin:
                own = _rougher(law[0], rough), law[1]
                num = _note(pair, p, (nx, ny, nz), d, own, (ux, uy, uz), moving, dt, contacts, num)
    for row in here.shapes:
        apart = (at[0] - row[4]) ** 2 + (at[1] - row[5]) ** 2 + (at[2] - row[6]) ** 2
        if apart > (row[BOUND] + reach + margin) ** 2:
            continue
        own, velocity = (_rougher(law[0], row[FRICTION]), law[1]), (row[16], row[17], row[18])
        if row[0] == BOX:
            turn = (row[7], row[10], row[13]), (row[8], row[11], row[14]), (row[9], row[12], row[15])
            other = (row[4], row[5], row[6]), turn, (row[1], row[2], row[3])
            count, n = _box_contacts((at, axes, half), other, margin, manifold)
            for c in range(count):
                p, gap = _row(manifold.points, c), -manifold.depths[c]
                num = _note(pair, p, n, gap, own, velocity, moving, dt, contacts, num)
            continue
        for corner in range(8):
            p = _corner(at, axes, half, corner)
            lx, ly, lz = to_local(p[0], p[1], p[2], row)
            d, lx, ly, lz = shape_distance(lx, ly, lz, row, here.mesh, margin)
            if d < margin:
                num = _note(pair, p, turned(lx, ly, lz, row), d, own, velocity, moving, dt, contacts, num)
    return num


@inlined_kernel
def _rougher(friction: float, other: float) -> float:
    """Return the friction of a pair, the smaller one; NaN is that of a surface without its own."""
    return friction if math.isnan(other) else min(friction, other)


@inlined_kernel
def _corner(centre: Vector, axes: Axes, half: Vector, corner: int) -> Vector:
    x = half[0] if corner & 1 else -half[0]
    y = half[1] if corner & 2 else -half[1]
    return _plus(_plus(_plus(centre, axes[0], x), axes[1], y), axes[2], half[2] if corner & 4 else -half[2])


@kernel
def _touch_each_other(
    i: int, k: int, state: State, bodies: Bodies, dt: float, contacts: Contacts, num: int, manifold: Manifold
) -> int:
    """Note where two bodies touch."""
    x, R, v, w = state
    moving, still = (x, v, w), (0.0, 0.0, 0.0)
    margin = dt * _size(_plus(v[i], v[k], -1.0)) + NEARBY
    if _size(_plus(x[i], x[k], -1.0)) > _reach(i, bodies) + _reach(k, bodies) + margin:
        return num
    law = min(bodies.friction[i], bodies.friction[k]), max(bodies.bounce[i], bodies.bounce[k])
    if bodies.kind[i] == BOX and bodies.kind[k] == BOX:
        first = _row(x, i), _axes(R, i), _row(bodies.half, i)
        second = _row(x, k), _axes(R, k), _row(bodies.half, k)
        count, n = _box_contacts(first, second, margin, manifold)
        for c in range(count):
            p, gap = _row(manifold.points, c), -manifold.depths[c]
            num = _note((i, k), p, n, gap, law, still, moving, dt, contacts, num)
        return num
    ball, other = (i, k) if bodies.kind[k] == BOX else (k, i)
    d, n = _out_of_body(other, x[ball], x, R, bodies)
    point, gap = _plus(x[ball], n, -d), d - bodies.half[ball, 0]
    return _note((ball, other), point, n, gap, law, still, moving, dt, contacts, num)


@kernel
def _out_of_body(i: int, p: Array, x: Array, R: Array, bodies: Bodies) -> tuple[float, Vector]:
    """Return the distance from a body to a point, and the normal toward it."""
    away, axes, half = _plus(p, x[i], -1.0), _axes(R, i), _row(bodies.half, i)
    if bodies.kind[i] != BOX:
        length = max(_size(away), 1e-9)
        return length - half[0], _times(1 / length, away)
    local = _dot(axes[0], away), _dot(axes[1], away), _dot(axes[2], away)
    d, nx, ny, nz = box_distance(local[0], local[1], local[2], half[0], half[1], half[2])
    return d, _plus(_plus(_times(nx, axes[0]), axes[1], ny), axes[2], nz)


@kernel
def _touch_person(
    i: int, p: int, state: State, bodies: Bodies, people: People, dt: float, contacts: Contacts, num: int
) -> int:
    """Note where a body touches a person's sphere."""
    (x, R, v, w), (at, pace, _, radii, _) = state, people
    d, n = _out_of_body(i, at[p], x, R, bodies)
    gap, law = d - radii[p % len(radii)], (bodies.friction[i], bodies.bounce[i])
    if gap > TOUCHING:
        return num
    # Seen from the body, the normal points away from the person.
    point, pair = _plus(at[p], n, -d), (i, -2 - p)
    return _note(pair, point, _times(-1.0, n), gap, law, _row(pace, p), (x, v, w), dt, contacts, num)


@inlined_kernel
def _mobility(i: int, p: Array, nx: float, ny: float, nz: float, x: Array, R: Array, bodies: Bodies) -> float:
    """Return how much velocity along n at a point an impulse along n gives a body."""
    rx, ry, rz = p[0] - x[i, 0], p[1] - x[i, 1], p[2] - x[i, 2]
    cx, cy, cz = ry * nz - rz * ny, rz * nx - rx * nz, rx * ny - ry * nx
    total = bodies.mobility[i]
    for k in range(3):
        along = R[i, 0, k] * cx + R[i, 1, k] * cy + R[i, 2, k] * cz
        total += bodies.ease[i, k] * along * along
    return total


@inlined_kernel
def _kick(
    i: int, p: Array, jx: float, jy: float, jz: float, x: Array, R: Array, v: Array, w: Array, bodies: Bodies
) -> None:
    """Give a body an impulse at a point."""
    m = bodies.mobility[i]
    v[i, 0] += m * jx
    v[i, 1] += m * jy
    v[i, 2] += m * jz
    rx, ry, rz = p[0] - x[i, 0], p[1] - x[i, 1], p[2] - x[i, 2]
    cx, cy, cz = ry * jz - rz * jy, rz * jx - rx * jz, rx * jy - ry * jx
    for k in range(3):
        along = bodies.ease[i, k] * (R[i, 0, k] * cx + R[i, 1, k] * cy + R[i, 2, k] * cz)
        w[i, 0] += along * R[i, 0, k]
        w[i, 1] += along * R[i, 1, k]
        w[i, 2] += along * R[i, 2, k]


@inlined_kernel
def _kick_back(  # noqa: PLR0913 (records cost four times the time here)
    b: int,
    point: Array,
    jx: float,
    jy: float,
    jz: float,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    pace: Array,
    given: Array,
    response: Array,
) -> None:
    """Give the other side of a contact, a body or somebody's joint, the opposite of an impulse."""
    if b >= 0:
        _kick(b, point, -jx, -jy, -jz, x, R, v, w, bodies)
    elif b < STATIC:
        joint = (-2 - b) % len(response)
        first = -2 - b - joint
        given[-2 - b, 0] -= jx
        given[-2 - b, 1] -= jy
        given[-2 - b, 2] -= jz
        for j in range(len(response)):
            share = response[j, joint]
            pace[first + j, 0] -= share * jx
            pace[first + j, 1] -= share * jy
            pace[first + j, 2] -= share * jz


@inlined_kernel
def _push(
    c: int,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    pace: Array,
    given: Array,
    response: Array,
    contacts: Contacts,
) -> float:
    """Bring the velocity at a contact to what it should be: along the normal, then along the surface up to friction.

    Return the larger of the two changes [m/s].
    """
    a, b = contacts.who[c, 0], contacts.who[c, 1]
    point, n, surface, rubbed = (
        contacts.vectors[c, 0],
        contacts.vectors[c, 1],
        contacts.vectors[c, 2],
        contacts.vectors[c, 3],
    )
    numbers, change = contacts.numbers[c], 0.0
    for part in range(2):
        vx, vy, vz = _point_velocity(a, point, x, v, w)
        if b >= 0:
            ux, uy, uz = _point_velocity(b, point, x, v, w)
        elif b == STATIC:
            ux, uy, uz = surface[0], surface[1], surface[2]
        else:
            ux, uy, uz = pace[-2 - b, 0], pace[-2 - b, 1], pace[-2 - b, 2]
        vx, vy, vz = vx - ux, vy - uy, vz - uz
        along = vx * n[0] + vy * n[1] + vz * n[2]
        if part == 0:
            tx, ty, tz = n[0], n[1], n[2]
        else:
            vx, vy, vz = vx - along * n[0], vy - along * n[1], vz - along * n[2]
            slip = math.sqrt(vx * vx + vy * vy + vz * vz)
            if slip < 1e-12:
                return change
            tx, ty, tz = vx / slip, vy / slip, vz / slip
        ease = _mobility(a, point, tx, ty, tz, x, R, bodies)
        if b >= 0:
            ease += _mobility(b, point, tx, ty, tz, x, R, bodies)
        elif b < STATIC:
            joint = (-2 - b) % len(response)
            ease += response[joint, joint]
        if part == 0:
            total = max(numbers[3] + (numbers[2] - along) / ease, 0.0)
            size, numbers[3] = total - numbers[3], total
            jx, jy, jz = size * n[0], size * n[1], size * n[2]
        else:
            gx, gy, gz = rubbed[0] - slip / ease * tx, rubbed[1] - slip / ease * ty, rubbed[2] - slip / ease * tz
            length, most = math.sqrt(gx * gx + gy * gy + gz * gz), numbers[1] * numbers[3]
            share = most / length if length > most else 1.0
            jx, jy, jz = share * gx - rubbed[0], share * gy - rubbed[1], share * gz - rubbed[2]
            rubbed[0], rubbed[1], rubbed[2] = share * gx, share * gy, share * gz
        change = max(change, ease * math.sqrt(jx * jx + jy * jy + jz * jz))
        _kick(a, point, jx, jy, jz, x, R, v, w, bodies)
        _kick_back(b, point, jx, jy, jz, x, R, v, w, bodies, pace, given, response)
    return change


@kernel
def _start_warm(  # noqa: PLR0913 (records cost four times the time here)
    c: int,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    pace: Array,
    given: Array,
    response: Array,
    contacts: Contacts,
    before: Contacts,
    known: int,
) -> None:
    """Begin with the impulses of the substep before, so that what rests stays at rest; impacts start from nothing."""
    a, b, numbers = contacts.who[c, 0], contacts.who[c, 1], contacts.numbers[c]
    if numbers[2] > FASTEST_RECOVERY:
        return
    point, n, rubbed = contacts.vectors[c, 0], contacts.vectors[c, 1], contacts.vectors[c, 3]
    best, at = SAME_CONTACT**2, -1
    for o in range(known):
        if before.who[o, 0] == a and before.who[o, 1] == b:
            p = before.vectors[o, 0]
            apart = (p[0] - point[0]) ** 2 + (p[1] - point[1]) ** 2 + (p[2] - point[2]) ** 2
            if apart < best:
                best, at = apart, o
    if at < 0:
        return
    old = before.vectors[at, 3]
    along = old[0] * n[0] + old[1] * n[1] + old[2] * n[2]
    numbers[3] = before.numbers[at, 3]
    before.who[at, 0] = -1  # nobody else's
    for k in range(3):
        rubbed[k] = old[k] - along * n[k]
    jx, jy, jz = numbers[3] * n[0] + rubbed[0], numbers[3] * n[1] + rubbed[1], numbers[3] * n[2] + rubbed[2]
    _kick(a, point, jx, jy, jz, x, R, v, w, bodies)
    _kick_back(b, point, jx, jy, jz, x, R, v, w, bodies, pace, given, response)


@inlined_kernel
def _row(rows: Array, i: int) -> Vector:
    # Numbers and not a view: counting the references to views takes longer than the arithmetic.
    return rows[i, 0], rows[i, 1], rows[i, 2]


@inlined_kernel
def _dot(a: Array, b: Array) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inlined_kernel
def _plus(a: Array, b: Array, scale: float) -> Vector:
    """Return a + scale b."""
    return a[0] + scale * b[0], a[1] + scale * b[1], a[2] + scale * b[2]


@inlined_kernel
def _times(scale: float, a: Array) -> Vector:
    return scale * a[0], scale * a[1], scale * a[2]


@inlined_kernel
def _cross(a: Array, b: Array) -> Vector:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inlined_kernel
def _axis(R: Array, i: int, k: int) -> Vector:
    return R[i, 0, k], R[i, 1, k], R[i, 2, k]


@inlined_kernel
def _axes(R: Array, i: int) -> Axes:
    return _axis(R, i, 0), _axis(R, i, 1), _axis(R, i, 2)


@inlined_kernel
def _write(rows: Array, i: int, a: Vector) -> None:
    rows[i, 0], rows[i, 1], rows[i, 2] = a


@inlined_kernel
def _extent(R: Axes, half: Vector, n: Vector) -> float:
    """Return how far a box reaches from its centre along a direction [m]."""
    return half[0] * abs(_dot(R[0], n)) + half[1] * abs(_dot(R[1], n)) + half[2] * abs(_dot(R[2], n))


@kernel
def _box_contacts(first: Box, second: Box, margin: float, manifold: Manifold) -> tuple[int, Vector]:
    """Write where two boxes come nearer than a margin; return how many points, and the normal toward the first box.

    Separating axes; then the face that faces the other box is clipped to it, or the two nearest points of two edges are
    taken.
    """
    (xa, Ra, ha), (xb, Rb, hb) = first, second
    away, best, which, normal = _plus(xa, xb, -1.0), math.inf, -1, (0.0, 0.0, 0.0)
    for axis in range(15):
        n = Ra[axis % 3] if axis < 3 else Rb[axis % 3]
        if axis >= 6:
            n = _cross(Ra[(axis - 6) // 3], Rb[(axis - 6) % 3])
            size = _size(n)
            if size < 1e-4:
                continue
            n = _times(1 / size, n)
        along = _dot(away, n)
        overlap = _extent(Ra, ha, n) + _extent(Rb, hb, n) - abs(along)
        if overlap < -margin:
            return 0, normal
        # Faces before edges, unless these are clearly nearer: faces give contacts that hold.
        if overlap < (best if axis < 6 else best - 0.003):
            best, which, normal = overlap, axis, _times(1.0 if along >= 0 else -1.0, n)
    if which >= 6:
        edges = (which - 6) // 3, (which - 6) % 3
        _write(manifold.points, 0, _edge_contact(first, second, edges, normal))
        manifold.depths[0] = best
        return 1, normal
    if which < 3:
        return _face_contacts(first, which, second, _times(-1.0, normal), margin, manifold), normal
    return _face_contacts(second, which - 3, first, normal, margin, manifold), normal


@kernel
def _edge_contact(first: Box, second: Box, edges: tuple[int, int], n: Vector) -> Vector:
    """Return the point between the nearest points of an edge of each box."""
    (xa, Ra, ha), (xb, Rb, hb) = first, second
    pa, pb = xa, xb
    for k in range(3):
        if k != edges[0]:
            pa = _plus(pa, Ra[k], -ha[k] if _dot(Ra[k], n) > 0 else ha[k])
        if k != edges[1]:
            pb = _plus(pb, Rb[k], hb[k] if _dot(Rb[k], n) > 0 else -hb[k])
    ea, eb, away = Ra[edges[0]], Rb[edges[1]], _plus(pb, pa, -1.0)
    dot, ua, ub = _dot(ea, eb), _dot(ea, away), _dot(eb, away)
    share = 1 - dot * dot
    s, t = ((ua - dot * ub) / share, (dot * ua - ub) / share) if share > 1e-9 else (0.0, 0.0)
    return _times(0.5, _plus(_plus(pa, ea, s), _plus(pb, eb, t), 1.0))


@kernel
def _face_contacts(box: Box, axis: int, other: Box, out: Vector, margin: float, manifold: Manifold) -> int:
    """Clip the other box's face to a face of a box, out of which `out` points; return how many points are left."""
    (x, R, half), (xo, Ro, ho) = box, other
    against, most = 0, -1.0
    for k in range(3):
        along = abs(_dot(Ro[k], out))
        if along > most:
            most, against = along, k
    side = -1.0 if _dot(Ro[against], out) > 0 else 1.0
    u, v = (against + 1) % 3, (against + 2) % 3
    face = _plus(xo, Ro[against], side * ho[against])
    polygon, clipped, num = manifold.scratch[0], manifold.scratch[1], 4
    for k in range(4):
        su, sv = (-1.0 if k == 0 or k == 3 else 1.0), (-1.0 if k < 2 else 1.0)
        _write(polygon, k, _plus(_plus(face, Ro[u], su * ho[u]), Ro[v], sv * ho[v]))
    for turn in range(4):
        e = (axis + 1 + turn // 2) % 3
        way = _times(1.0 if turn % 2 == 0 else -1.0, R[e])
        limit, count = half[e] + _dot(way, x), 0
        for p in range(num):
            a, b = _row(polygon, p), _row(polygon, (p + 1) % num)
            da, db = _dot(way, a) - limit, _dot(way, b) - limit
            if da <= 0 and count < 16:
                _write(clipped, count, a)
                count += 1
            if (da < 0 < db or db < 0 < da) and count < 16:
                _write(clipped, count, _plus(a, _plus(b, a, -1.0), da / (da - db)))
                count += 1
        polygon, clipped, num = clipped, polygon, count
    count, top = 0, half[axis] + _dot(out, x)
    for p in range(num):
        depth = top - _dot(out, _row(polygon, p))
        if depth > -margin:
            _write(manifold.points, count, _row(polygon, p))
            manifold.depths[count] = depth
            count += 1
    return count
