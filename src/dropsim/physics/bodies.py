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
from dropsim.physics.contact import Solids, is_beyond, nearest_within, of_person
from dropsim.physics.shapes import (
    BOX,
    CENTRE,
    FRICTION,
    SIZES,
    SPIN,
    TURN,
    VELOCITY,
    ball_distance,
    box_distance,
    shape_distance,
    to_local,
    turned,
)
from dropsim.physics.vectors import (
    Vector,
    add,
    cross,
    dot,
    minus,
    over,
    part,
    plus,
    row,
    size,
    times,
    velocity_of,
    write,
)

Array = Any
"""numba knows the types."""
Axes = tuple[Vector, Vector, Vector]
Box = tuple[Vector, Axes, Vector]
"""Centre, own axes and half sizes."""
State = tuple[Array, Array, Array, Array]
"""Positions, rotations, velocities and angular velocities of a world's bodies."""
People = tuple[Array, Array, Array, Array]
"""Places of a world's spheres, their velocities and the impulses that they got; radii and response of a body."""
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
"""Distance at which bodies are looked for, besides what may move within a frame [m]."""
SHALLOW, HAIR, NUM_ROUNDS = 0.01, 1e-9, 4
"""Depth in people at which bodies make way, a little for rounding [m], and the rounds in which they do so."""
NEARBY = 0.005
"""Distance at which contacts are looked for, besides what may move in a substep [m]."""
MOST_CONTACTS = 64
"""Limit of a body's contacts, without those with people: a box has up to 8 with each body."""
STATIC = -1
"""Index of surfaces that give way to nobody; people's spheres are counted on from -2."""


class Bodies(NamedTuple):
    """Properties of rigid bodies that do not change."""

    kind: np.ndarray
    """Kind: shapes.BOX or BALL (n)."""
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
        at, pace = crowd.x[world].copy().reshape(count * joints, 3), np.zeros((count * joints, 2, 3))
        pace[:, 0] = crowd.v[world].copy().reshape(count * joints, 3)
        near = _near_people(x, v, bodies, at, pace, crowd.radii, h)
        awake = _awake(x, v, still, near, bodies, here, h)
        if not awake.any():
            continue
        anything = True
        travel = 2 * h * _fastest(np.nonzero(awake)[0], v, w, bodies, near, pace, h)
        first = _islands(awake, near, x, bodies, travel)
        people = (at, pace, crowd.radii, crowd.response)
        for i in range(len(x)):
            if first[i] == i:
                _advance_island(np.nonzero(first == i)[0], (x, R, v, w), bodies, near, people, here, h)
        forces[world] = (pace[:, 1] / h).reshape(forces.shape[1:])
        for i in np.nonzero(awake)[0]:
            moves = size(row(v, i)) > AT_REST or size(row(w, i)) * _reach(i, bodies) > AT_REST
            still[i] = 0 if moves else still[i] + 1
    return anything


@kernel
def _fastest(members: Array, v: Array, w: Array, bodies: Bodies, near: Array, pace: Array, h: float) -> float:
    """Return the speed of the fastest of some bodies, and of people near them, by the frame's end [m/s]."""
    speed, touched = 0.0, False
    for i in members:
        speed = max(speed, size(row(v, i)) + _reach(i, bodies) * size(row(w, i)))
        touched = touched or near[i]
    for p in range(len(pace) if touched else 0):
        speed = max(speed, size(row(pace[p], 0)))
    return speed + GRAVITY * h


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
                if awake[k] and first[k] < 0 and ((near[j] and near[k]) or _gap(j, k, x, bodies) < MARGIN + travel):
                    first[k], waiting[num] = i, k
                    num += 1
    return first


@inlined_kernel
def _gap(i: int, k: int, x: Array, bodies: Bodies) -> float:
    """Return the distance between the spheres around two bodies [m]."""
    return size(minus(row(x, i), row(x, k))) - _reach(i, bodies) - _reach(k, bodies)


@kernel
def _awake(x: Array, v: Array, still: Array, near: Array, bodies: Bodies, here: Solids, h: float) -> Array:
    """Return which bodies may move within a frame: those that moved lately or may be reached by people or by these."""
    moves = here.planes[:, 4:10].any() or here.shapes[:, VELOCITY : SPIN + 3].any()
    awake = near | (still < FRAMES_TO_SLEEP) | moves
    changed = True
    while changed:
        changed = False
        for i in range(len(x)):
            for k in range(len(x)):
                if awake[i] and not awake[k] and _gap(i, k, x, bodies) < 0.05 + _way_of(i, v, h):
                    awake[k] = changed = True
    return awake


@inlined_kernel
def _way_of(i: int, v: Array, h: float) -> float:
    """Return how far a body may get within a frame [m]."""
    return h * (size(row(v, i)) + GRAVITY * h)


@kernel
def _near_people(x: Array, v: Array, bodies: Bodies, people: Array, pace: Array, radii: Array, h: float) -> Array:
    """Return which bodies somebody may reach within a frame."""
    near = np.zeros(len(x), dtype=np.bool_)
    for i in range(len(x)):
        reach = _reach(i, bodies) + TOUCHING + _way_of(i, v, h)
        for p in range(len(people)):
            within = reach + radii[p % len(radii)] + h * size(row(pace[p], 0))
            near[i] = near[i] or size(minus(row(people, p), row(x, i))) < within
    return near


@kernel
def _advance_island(
    members: Array, state: State, bodies: Bodies, near: Array, people: People, here: Solids, h: float
) -> None:
    """Move some bodies by a frame, and the people near them along; add the impulses that people get to theirs."""
    (x, R, v, w), (at, pace, radii, response) = state, people
    way = h * _fastest(members, v, w, bodies, near, pace, h)
    substeps = min(max(math.ceil(way / SUBSTEP_WAY), FEWEST_SUBSTEPS), MOST_SUBSTEPS)
    dt, touched, known = h / substeps, near[members].any(), 0
    most = len(members) * (MOST_CONTACTS + (len(at) if touched else 0))
    contacts = Contacts(np.empty((most, 2), np.int64), np.empty((most, 4, 3)), np.empty((most, 4)))
    before = Contacts(np.empty((most, 2), np.int64), np.empty((most, 4, 3)), np.empty((most, 4)))
    manifold = Manifold(np.empty((16, 3)), np.empty(16), np.empty((2, 16, 3)))
    held = np.empty(len(x) + 1, np.bool_)
    for _ in range(substeps):
        num = 0
        # What gives way to nobody comes last in every iteration, so that it has the last word: between somebody heavy
        # and the ground, iterations for a light body take long to agree.
        for i in members:
            v[i, 2] -= GRAVITY * dt
        for i in members:
            within = _reach(i, bodies) + TOUCHING
            for p in range(len(at) if near[i] else 0):
                if size(minus(row(at, p), row(x, i))) < within + radii[p % len(radii)]:
                    num = _touch_person(i, p, state, bodies, people, dt, contacts, num)
        for m in range(len(members)):
            for k in members[m + 1 :]:
                num = _touch_each_other(members[m], k, state, bodies, dt, contacts, num, manifold)
        for i in members:
            num = _touch_statics(i, state, bodies, here, dt, contacts, num, manifold)
        for c in range(num):
            if _start_warm(c, contacts, before, known):
                impulse = plus(times(contacts.numbers[c, 3], row(contacts.vectors[c], 1)), row(contacts.vectors[c], 3))
                _give(c, impulse, x, R, v, w, bodies, pace, response, contacts)
        for _ in range(MOST_ITERATIONS):
            change = 0.0
            for c in range(num):
                change = max(change, _push(c, x, R, v, w, bodies, pace, response, contacts))
            if change < CONVERGED:
                break
        held[:] = False
        for c in range(num):
            for i in contacts.who[c]:
                held[max(i, STATIC)] = True  # the last one is for what is no body
        contacts, before, known = before, contacts, num
        for i in members:
            add(x, i, times(dt, row(v, i)))
            if not held[i]:
                x[i, 2] += 0.5 * GRAVITY * dt * dt  # what flies is on its parabola, however long a substep is
            _spin(R[i], row(w, i), dt)
        for p in range(len(at) if touched else 0):
            add(at, p, times(dt, row(pace[p], 0)))


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
                    if size(minus(row(at, p), row(x, i))) <= _reach(i, bodies) + radius:
                        d, n = _out_of_body(i, row(at, p), x, R, bodies)
                        if radius - d > deepest:
                            deepest, way = radius - d, times(-1.0, n)
                stuck[world, i] = deepest > SHALLOW + HAIR
                if not stuck[world, i] or done == NUM_ROUNDS:
                    break
                add(x, i, _free_way(i, x, R, bodies, here, times(deepest - SHALLOW, way)))
                states.still[world, i] = 0
    return stuck.any()


@kernel
def _free_way(i: int, x: Array, R: Array, bodies: Bodies, here: Solids, way: Vector) -> Vector:
    """Return the part of a way that takes a body no farther than up to static surfaces; along these it goes on."""
    at = row(x, i)
    for plane in here.planes:
        way = _stopped(i, R, bodies, dot(at, part(plane, 0)) - plane[3], part(plane, 0), way)
    for shape in here.shapes:
        reach = _reach(i, bodies) + size(way)
        if not is_beyond(at, reach, shape):
            d, n = shape_distance(to_local(at, shape), shape, here.mesh, reach)
            way = _stopped(i, R, bodies, d, turned(n, shape), way)
    return way


@kernel
def _stopped(i: int, R: Array, bodies: Bodies, d: float, n: Vector, way: Vector) -> Vector:
    """Return a way without what leads a body into a surface at a distance d from its centre."""
    extent = bodies.half[i, 0]
    if bodies.kind[i] == BOX:
        extent = _extent(_axes(R, i), row(bodies.half, i), n)
    return plus(way, n, max(-dot(way, n) - max(d - extent, 0.0), 0.0))


@kernel
def _reach(i: int, bodies: Bodies) -> float:
    """Return how far a body reaches from its centre [m]."""
    return size(row(bodies.half, i)) if bodies.kind[i] == BOX else bodies.half[i, 0]


@kernel
def _spin(R: Array, w: Vector, dt: float) -> None:
    """Turn a rotation by w dt and make it orthonormal again."""
    axes = (R[0, 0], R[1, 0], R[2, 0]), (R[0, 1], R[1, 1], R[2, 1])
    a, b = plus(axes[0], cross(w, axes[0]), dt), plus(axes[1], cross(w, axes[1]), dt)
    a = over(a, size(a))
    b = plus(b, a, -dot(a, b))
    b = over(b, size(b))
    c = cross(a, b)
    for k in range(3):
        R[k, 0], R[k, 1], R[k, 2] = a[k], b[k], c[k]


@inlined_kernel
def _point_velocity(i: int, p: Vector, x: Array, v: Array, w: Array) -> Vector:
    return velocity_of(row(v, i), row(w, i), minus(p, row(x, i)))


@kernel
def _note(
    pair: tuple[int, int],
    point: Vector,
    n: Vector,
    gap: float,
    law: tuple[float, float],
    u: Vector,
    state: State,
    dt: float,
    contacts: Contacts,
    num: int,
) -> int:
    """Note a contact if it is one by the substep's end, and return how many there are.

    `law` is friction and bounce, u the velocity of a static surface or a person's sphere.
    """
    (a, b), (friction, bounce), (x, _, v, w) = pair, law, state
    if num == len(contacts.who):
        return num
    other = _point_velocity(b, point, x, v, w) if b >= 0 else u
    nearing = -dot(minus(_point_velocity(a, point, x, v, w), other), n)
    if gap > max(nearing, 0.0) * dt:
        return num
    leave = bounce * nearing if nearing > BOUNCING else 0.0
    if gap > 0 and leave == 0.0:
        leave = -gap / dt
    elif gap < -SLOP:
        leave = max(leave, min(RECOVERY * (-gap - SLOP) / dt, FASTEST_RECOVERY))
    vectors, numbers = contacts.vectors[num], contacts.numbers[num]
    write(vectors, 0, point)
    write(vectors, 1, n)
    write(vectors, 2, u)
    write(vectors, 3, (0.0, 0.0, 0.0))
    numbers[0], numbers[1], numbers[2], numbers[3] = gap, friction, leave, 0.0
    contacts.who[num, 0], contacts.who[num, 1] = a, b
    return num + 1


@kernel
def _touch_statics(
    i: int, state: State, bodies: Bodies, here: Solids, dt: float, contacts: Contacts, num: int, manifold: Manifold
) -> int:
    """Note where a body touches static surfaces: a ball by its centre, a box by its corners, and by boxes' faces."""
    (x, R, v, w), half, pair, law = state, row(bodies.half, i), (i, STATIC), (bodies.friction[i], bodies.bounce[i])
    reach, at, axes = _reach(i, bodies), row(x, i), _axes(R, i)
    margin = dt * (size(row(v, i)) + reach * size(row(w, i))) + NEARBY
    if bodies.kind[i] != BOX:
        surface = nearest_within(reach + margin, at, here)
        n, d, law = surface.normal, surface.distance, (_rougher(law[0], surface.friction), law[1])
        if d < reach + margin:
            num = _note(pair, plus(at, n, -half[0]), n, d - half[0], law, surface.velocity, state, dt, contacts, num)
        return num
    ground = Solids(here.planes, here.patches, here.shapes[:0], here.mesh)
    for corner in range(8):
        p = _corner(at, axes, half, corner)
        surface = nearest_within(margin, p, ground)
        if surface.distance < margin:
            rough = _rougher(law[0], surface.friction), law[1]
            num = _note(pair, p, surface.normal, surface.distance, rough, surface.velocity, state, dt, contacts, num)
    for shape in here.shapes:
        if is_beyond(at, reach + margin, shape):
            continue
        rough, velocity = (_rougher(law[0], shape[FRICTION]), law[1]), part(shape, VELOCITY)
        if shape[0] == BOX:
            a, b, c = part(shape, TURN), part(shape, TURN + 3), part(shape, TURN + 6)
            turn = (a[0], b[0], c[0]), (a[1], b[1], c[1]), (a[2], b[2], c[2])
            count, n = _box_contacts(
                (at, axes, half), (part(shape, CENTRE), turn, part(shape, SIZES)), margin, manifold
            )
            for c in range(count):
                p, gap = row(manifold.points, c), -manifold.depths[c]
                num = _note(pair, p, n, gap, rough, velocity, state, dt, contacts, num)
            continue
        for corner in range(8):
            p = _corner(at, axes, half, corner)
            d, n = shape_distance(to_local(p, shape), shape, here.mesh, margin)
            if d < margin:
                num = _note(pair, p, turned(n, shape), d, rough, velocity, state, dt, contacts, num)
    return num


@inlined_kernel
def _rougher(friction: float, other: float) -> float:
    """Return the friction of a pair, the smaller one; NaN is that of a surface without its own."""
    return friction if math.isnan(other) else min(friction, other)


@inlined_kernel
def _corner(centre: Vector, axes: Axes, half: Vector, corner: int) -> Vector:
    x = half[0] if corner & 1 else -half[0]
    y = half[1] if corner & 2 else -half[1]
    return plus(plus(plus(centre, axes[0], x), axes[1], y), axes[2], half[2] if corner & 4 else -half[2])


@kernel
def _touch_each_other(
    i: int, k: int, state: State, bodies: Bodies, dt: float, contacts: Contacts, num: int, manifold: Manifold
) -> int:
    """Note where two bodies touch."""
    (x, R, v, _), still = state, (0.0, 0.0, 0.0)
    margin = dt * size(minus(row(v, i), row(v, k))) + NEARBY
    if _gap(i, k, x, bodies) > margin:
        return num
    law = min(bodies.friction[i], bodies.friction[k]), max(bodies.bounce[i], bodies.bounce[k])
    if bodies.kind[i] == BOX and bodies.kind[k] == BOX:
        first = row(x, i), _axes(R, i), row(bodies.half, i)
        second = row(x, k), _axes(R, k), row(bodies.half, k)
        count, n = _box_contacts(first, second, margin, manifold)
        for c in range(count):
            p, gap = row(manifold.points, c), -manifold.depths[c]
            num = _note((i, k), p, n, gap, law, still, state, dt, contacts, num)
        return num
    ball, other = (i, k) if bodies.kind[k] == BOX else (k, i)
    d, n = _out_of_body(other, row(x, ball), x, R, bodies)
    point, gap = plus(row(x, ball), n, -d), d - bodies.half[ball, 0]
    return _note((ball, other), point, n, gap, law, still, state, dt, contacts, num)


@kernel
def _out_of_body(i: int, p: Vector, x: Array, R: Array, bodies: Bodies) -> tuple[float, Vector]:
    """Return the distance from a body to a point, and the normal toward it."""
    away, axes, half = minus(p, row(x, i)), _axes(R, i), row(bodies.half, i)
    if bodies.kind[i] != BOX:
        return ball_distance(away, half[0])
    d, n = box_distance((dot(axes[0], away), dot(axes[1], away), dot(axes[2], away)), half)
    return d, plus(plus(times(n[0], axes[0]), axes[1], n[1]), axes[2], n[2])


@kernel
def _touch_person(
    i: int, p: int, state: State, bodies: Bodies, people: People, dt: float, contacts: Contacts, num: int
) -> int:
    """Note where a body touches a person's sphere."""
    (x, R, _, _), (at, pace, radii, _) = state, people
    d, n = _out_of_body(i, row(at, p), x, R, bodies)
    gap, law = d - radii[p % len(radii)], (bodies.friction[i], bodies.bounce[i])
    if gap > TOUCHING:
        return num
    # Seen from the body, the normal points away from the person.
    point, pair = plus(row(at, p), n, -d), (i, -2 - p)
    return _note(pair, point, times(-1.0, n), gap, law, row(pace[p], 0), state, dt, contacts, num)


@inlined_kernel
def _mobility(i: int, p: Vector, n: Vector, x: Array, R: Array, bodies: Bodies) -> float:
    """Return how much velocity along n at a point an impulse along n gives a body."""
    moment = cross(minus(p, row(x, i)), n)
    total = bodies.mobility[i]
    for k in range(3):
        along = dot((R[i, 0, k], R[i, 1, k], R[i, 2, k]), moment)
        total += bodies.ease[i, k] * along * along
    return total


@inlined_kernel
def _kick(i: int, p: Vector, impulse: Vector, x: Array, R: Array, v: Array, w: Array, bodies: Bodies) -> None:
    """Give a body an impulse at a point."""
    add(v, i, times(bodies.mobility[i], impulse))
    moment = cross(minus(p, row(x, i)), impulse)
    for k in range(3):
        axis = (R[i, 0, k], R[i, 1, k], R[i, 2, k])
        add(w, i, times(bodies.ease[i, k] * dot(axis, moment), axis))


@inlined_kernel
def _give(
    c: int,
    impulse: Vector,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    pace: Array,
    response: Array,
    contacts: Contacts,
) -> None:
    """Give the body of a contact an impulse, and the other side, a body or somebody's joint, the opposite."""
    a, b, point, opposite = contacts.who[c, 0], contacts.who[c, 1], row(contacts.vectors[c], 0), times(-1.0, impulse)
    _kick(a, point, impulse, x, R, v, w, bodies)
    if b >= 0:
        _kick(b, point, opposite, x, R, v, w, bodies)
    elif b < STATIC:
        joint = (-2 - b) % len(response)
        first = -2 - b - joint
        add(pace[-2 - b], 1, opposite)
        for j in range(len(response)):
            add(pace[first + j], 0, times(response[j, joint], opposite))


@inlined_kernel
def _push(
    c: int, x: Array, R: Array, v: Array, w: Array, bodies: Bodies, pace: Array, response: Array, contacts: Contacts
) -> float:
    """Bring the velocity at a contact to what it should be: along the normal, then along the surface up to friction.

    Return the larger of the two changes [m/s].
    """
    a = contacts.who[c, 0]
    b = contacts.who[c, 1]
    numbers = contacts.numbers[c]
    vectors = contacts.vectors[c]
    change = 0.0
    point, n = row(vectors, 0), row(vectors, 1)
    for along_surface in range(2):
        u = _point_velocity(b, point, x, v, w) if b >= 0 else row(vectors, 2)
        if b < STATIC:
            u = row(pace[-2 - b], 0)
        u = minus(_point_velocity(a, point, x, v, w), u)
        speed, way = dot(u, n), n
        if along_surface:
            u = plus(u, n, -speed)
            speed = size(u)
            if speed < 1e-12:
                return change
            way = over(u, speed)
        ease = _mobility(a, point, way, x, R, bodies)
        if b >= 0:
            ease += _mobility(b, point, way, x, R, bodies)
        elif b < STATIC:
            joint = (-2 - b) % len(response)
            ease += response[joint, joint]
        if along_surface:
            rubbed = row(vectors, 3)
            total = plus(rubbed, way, -speed / ease)
            length, most = size(total), numbers[1] * numbers[3]
            total = times(most / length if length > most else 1.0, total)
            impulse = minus(total, rubbed)
            write(vectors, 3, total)
        else:
            pressed = max(numbers[3] + (numbers[2] - speed) / ease, 0.0)
            impulse, numbers[3] = times(pressed - numbers[3], n), pressed
        change = max(change, ease * size(impulse))
        _give(c, impulse, x, R, v, w, bodies, pace, response, contacts)
    return change


@kernel
def _start_warm(c: int, contacts: Contacts, before: Contacts, known: int) -> bool:
    """Begin with the impulses of the substep before, so that what rests stays at rest; impacts start from nothing."""
    a, b, numbers = contacts.who[c, 0], contacts.who[c, 1], contacts.numbers[c]
    if numbers[2] > FASTEST_RECOVERY:
        return False
    point, n = row(contacts.vectors[c], 0), row(contacts.vectors[c], 1)
    nearest, at = SAME_CONTACT, -1
    for o in range(known):
        if before.who[o, 0] == a and before.who[o, 1] == b:
            apart = size(minus(row(before.vectors[o], 0), point))
            if apart < nearest:
                nearest, at = apart, o
    if at < 0:
        return False
    rubbed = row(before.vectors[at], 3)
    numbers[3] = before.numbers[at, 3]
    before.who[at, 0] = -1  # nobody else's
    write(contacts.vectors[c], 3, plus(rubbed, n, -dot(rubbed, n)))
    return True


@inlined_kernel
def _axes(R: Array, i: int) -> Axes:
    return (
        (R[i, 0, 0], R[i, 1, 0], R[i, 2, 0]),
        (R[i, 0, 1], R[i, 1, 1], R[i, 2, 1]),
        (R[i, 0, 2], R[i, 1, 2], R[i, 2, 2]),
    )


@inlined_kernel
def _extent(R: Axes, half: Vector, n: Vector) -> float:
    """Return how far a box reaches from its centre along a direction [m]."""
    return half[0] * abs(dot(R[0], n)) + half[1] * abs(dot(R[1], n)) + half[2] * abs(dot(R[2], n))


@kernel
def _box_contacts(first: Box, second: Box, margin: float, manifold: Manifold) -> tuple[int, Vector]:
    """Write where two boxes come nearer than a margin; return how many points, and the normal toward the first box.

    Separating axes; then the face that faces the other box is clipped to it, or the two nearest points of two edges are
    taken.
    """
    (xa, Ra, ha), (xb, Rb, hb) = first, second
    away, best, which, normal = plus(xa, xb, -1.0), math.inf, -1, (0.0, 0.0, 0.0)
    for axis in range(15):
        n = Ra[axis % 3] if axis < 3 else Rb[axis % 3]
        if axis >= 6:
            n = cross(Ra[(axis - 6) // 3], Rb[(axis - 6) % 3])
            length = size(n)
            if length < 1e-4:
                continue
            n = times(1 / length, n)
        along = dot(away, n)
        overlap = _extent(Ra, ha, n) + _extent(Rb, hb, n) - abs(along)
        if overlap < -margin:
            return 0, normal
        # Faces before edges, unless these are clearly nearer: faces give contacts that hold.
        if overlap < (best if axis < 6 else best - 0.003):
            best, which, normal = overlap, axis, times(1.0 if along >= 0 else -1.0, n)
    if which >= 6:
        edges = (which - 6) // 3, (which - 6) % 3
        write(manifold.points, 0, _edge_contact(first, second, edges, normal))
        manifold.depths[0] = best
        return 1, normal
    if which < 3:
        return _face_contacts(first, which, second, times(-1.0, normal), margin, manifold), normal
    return _face_contacts(second, which - 3, first, normal, margin, manifold), normal


@kernel
def _edge_contact(first: Box, second: Box, edges: tuple[int, int], n: Vector) -> Vector:
    """Return the point between the nearest points of an edge of each box."""
    (xa, Ra, ha), (xb, Rb, hb) = first, second
    pa, pb = xa, xb
    for k in range(3):
        if k != edges[0]:
            pa = plus(pa, Ra[k], -ha[k] if dot(Ra[k], n) > 0 else ha[k])
        if k != edges[1]:
            pb = plus(pb, Rb[k], hb[k] if dot(Rb[k], n) > 0 else -hb[k])
    ea, eb, away = Ra[edges[0]], Rb[edges[1]], plus(pb, pa, -1.0)
    cosine, ua, ub = dot(ea, eb), dot(ea, away), dot(eb, away)
    share = 1 - cosine * cosine
    s, t = ((ua - cosine * ub) / share, (cosine * ua - ub) / share) if share > 1e-9 else (0.0, 0.0)
    return times(0.5, plus(plus(pa, ea, s), plus(pb, eb, t), 1.0))


@kernel
def _face_contacts(box: Box, axis: int, other: Box, out: Vector, margin: float, manifold: Manifold) -> int:
    """Clip the other box's face to a face of a box, out of which `out` points; return how many points are left."""
    (x, R, half), (xo, Ro, ho) = box, other
    against, most = 0, -1.0
    for k in range(3):
        along = abs(dot(Ro[k], out))
        if along > most:
            most, against = along, k
    side = -1.0 if dot(Ro[against], out) > 0 else 1.0
    u, v = (against + 1) % 3, (against + 2) % 3
    face = plus(xo, Ro[against], side * ho[against])
    polygon, clipped, num = manifold.scratch[0], manifold.scratch[1], 4
    for k in range(4):
        su, sv = (-1.0 if k == 0 or k == 3 else 1.0), (-1.0 if k < 2 else 1.0)
        write(polygon, k, plus(plus(face, Ro[u], su * ho[u]), Ro[v], sv * ho[v]))
    for turn in range(4):
        e = (axis + 1 + turn // 2) % 3
        way = times(1.0 if turn % 2 == 0 else -1.0, R[e])
        limit, count = half[e] + dot(way, x), 0
        for p in range(num):
            a, b = row(polygon, p), row(polygon, (p + 1) % num)
            da, db = dot(way, a) - limit, dot(way, b) - limit
            if da <= 0 and count < 16:
                write(clipped, count, a)
                count += 1
            if (da < 0 < db or db < 0 < da) and count < 16:
                write(clipped, count, plus(a, plus(b, a, -1.0), da / (da - db)))
                count += 1
        polygon, clipped, num = clipped, polygon, count
    count, top = 0, half[axis] + dot(out, x)
    for p in range(num):
        depth = top - dot(out, row(polygon, p))
        if depth > -margin:
            write(manifold.points, count, row(polygon, p))
            manifold.depths[count] = depth
            count += 1
    return count
