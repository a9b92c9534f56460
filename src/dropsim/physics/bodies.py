"""Loose boxes and balls: rigid bodies that are pushed, kicked and stacked, fall over and come to rest.

Sequential impulses with Coulomb friction (Catto 2005) at short substeps. People's spheres take part as particles that
keep their velocity but for the impulses; those impulses are then forces on the people.
"""

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
NEARBY = 0.005
"""Distance at which surfaces are looked at, besides what they may move in a substep [m]."""
SHALLOW, NUM_ROUNDS = 0.01, 4
"""Depth in people at which bodies make way [m], and the rounds in which they do so."""
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


class Here(NamedTuple):
    """One world: bodies (n), and people's spheres (s = 22 p)."""

    bodies: Bodies
    x: np.ndarray
    R: np.ndarray
    v: np.ndarray
    w: np.ndarray
    at: np.ndarray
    """Centres of people's spheres (s 3) [m]."""
    pace: np.ndarray
    """Their velocities (s 3) [m/s]."""
    impulse: np.ndarray
    """Impulses that people got so far (s 3) [N s]."""
    radii: np.ndarray
    response: np.ndarray
    solids: Solids


class Contacts(NamedTuple):
    """Contacts of bodies in a substep; arrays hold as many as may be needed."""

    num: np.ndarray
    """Number of contacts (1)."""
    pair: np.ndarray
    """Body, and what it touches: a body, STATIC, or a person's sphere (c 2)."""
    point: np.ndarray
    """Places (c 3) [m]."""
    normal: np.ndarray
    """Unit vectors toward the first body (c 3)."""
    surface: np.ndarray
    """Velocities of static surfaces (c 3) [m/s]."""
    rub: np.ndarray
    """Impulses along the surface so far (c 3) [N s]."""
    load: np.ndarray
    """Impulses along the normal so far (c) [N s]."""
    friction: np.ndarray
    """Friction coefficients (c)."""
    leave: np.ndarray
    """Velocities along the normal to leave with (c) [m/s]."""


class Manifold(NamedTuple):
    """Points at which two boxes touch, and space to find them."""

    points: np.ndarray
    depths: np.ndarray
    scratch: np.ndarray


@inlined_kernel
def _vector(a: Array) -> Vector:
    return a[0], a[1], a[2]


@inlined_kernel
def _dot(a: Array, b: Array) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inlined_kernel
def _add(a: Array, b: Array, scale: float) -> Vector:
    """Return a + scale b."""
    return a[0] + scale * b[0], a[1] + scale * b[1], a[2] + scale * b[2]


@inlined_kernel
def _times(scale: float, a: Array) -> Vector:
    return scale * a[0], scale * a[1], scale * a[2]


@inlined_kernel
def _cross(a: Array, b: Array) -> Vector:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inlined_kernel
def _size(a: Array) -> float:
    return math.sqrt(_dot(a, a))


@inlined_kernel
def _apart(a: Array, b: Array) -> float:
    return _size(_add(a, b, -1.0))


@inlined_kernel
def _axis(R: Array, k: int) -> Vector:
    return R[0, k], R[1, k], R[2, k]


@inlined_kernel
def _write(out: Array, a: Array) -> None:
    out[0], out[1], out[2] = a[0], a[1], a[2]


@kernel
def _here(states: BodyState, bodies: Bodies, crowd: Crowd, solids: Solids, world: int) -> Here:
    count, joints = crowd.x.shape[1], crowd.x.shape[2]
    at = crowd.x[world].copy().reshape(count * joints, 3)
    pace = crowd.v[world].copy().reshape(count * joints, 3)
    around = of_person(solids, world * count)
    x, R, v, w = states.x[world], states.R[world], states.v[world], states.w[world]
    return Here(bodies, x, R, v, w, at, pace, np.zeros(at.shape), crowd.radii, crowd.response, around)


@kernel
def advance(states: BodyState, bodies: Bodies, crowd: Crowd, solids: Solids, h: float, forces: Array) -> bool:
    """Move the bodies of every world by a frame, in place; write the mean forces on people [N]; return if any is awake.

    Bodies that rest long enough sleep until somebody or something that moves comes near.
    """
    anything = False
    for world in range(len(states.x)):
        here, still = _here(states, bodies, crowd, solids, world), states.still[world]
        near = _near_people(here, h)
        awake = np.nonzero(_awake(here, still, near, h))[0]
        if len(awake) == 0:
            continue
        anything = True
        _advance_world(here, awake, near, h)
        forces[world] = (here.impulse / h).reshape(forces.shape[1:])
        for i in awake:
            rests = _size(here.v[i]) <= AT_REST and _size(here.w[i]) * _reach(bodies, i) <= AT_REST
            still[i] = still[i] + 1 if rests else 0
    return anything


@kernel
def _advance_world(here: Here, members: Array, near: Array, h: float) -> None:
    """Move the bodies that are awake by a frame, and the people near them along."""
    touched = near.any()
    fastest = 0.0
    for i in members:
        fastest = max(fastest, _size(here.v[i]) + _reach(here.bodies, i) * _size(here.w[i]))
    for p in range(len(here.at) if touched else 0):
        fastest = max(fastest, _size(here.pace[p]))
    way = h * (fastest + GRAVITY * h)
    substeps = min(max(math.ceil(way / SUBSTEP_WAY), FEWEST_SUBSTEPS), MOST_SUBSTEPS)
    dt, most = h / substeps, len(members) * (MOST_CONTACTS + (len(here.at) if touched else 0))
    contacts, before = _room(most), _room(most)
    manifold = Manifold(np.empty((16, 3)), np.empty(16), np.empty((2, 16, 3)))
    held = np.empty(len(here.x) + 1, np.bool_)
    for _ in range(substeps):
        for i in members:
            here.v[i, 2] -= GRAVITY * dt
        contacts.num[0] = 0
        # Static surfaces come last in every iteration, so that they have the last word: between somebody heavy and the
        # ground, iterations for a light body take long to agree.
        for i in members:
            for p in range(len(here.at) if near[i] else 0):
                _touch_person(here, i, p, dt, contacts)
        for m in range(len(members)):
            for k in members[m + 1 :]:
                _touch_body(here, members[m], k, dt, contacts, manifold)
        for i in members:
            _touch_statics(here, i, dt, contacts, manifold)
        _solve(here, contacts, before)
        held[:] = False
        for c in range(contacts.num[0]):
            for i in contacts.pair[c]:
                held[max(i, STATIC)] = True  # the last one is for what is no body
        contacts, before = before, contacts
        for i in members:
            _write(here.x[i], _add(here.x[i], here.v[i], dt))
            if not held[i]:
                here.x[i, 2] += 0.5 * GRAVITY * dt * dt  # what flies is on its parabola, however long a substep is
            _spin(here.R[i], here.w[i], dt)
        for p in range(len(here.at) if touched else 0):
            _write(here.at[p], _add(here.at[p], here.pace[p], dt))


@kernel
def _room(most: int) -> Contacts:
    pair, point, normal = np.empty((most, 2), np.int64), np.empty((most, 3)), np.empty((most, 3))
    surface, rub = np.empty((most, 3)), np.empty((most, 3))
    load, friction, leave = np.empty(most), np.empty(most), np.empty(most)
    return Contacts(np.zeros(1, np.int64), pair, point, normal, surface, rub, load, friction, leave)


@kernel
def _solve(here: Here, contacts: Contacts, before: Contacts) -> None:
    """Iterate the impulses of a substep until none of them changes a velocity."""
    for c in range(contacts.num[0]):
        _start_warm(here, contacts, c, before)
    for _ in range(MOST_ITERATIONS):
        change = 0.0
        for c in range(contacts.num[0]):
            change = max(change, _push(here, contacts, c))
        if change < CONVERGED:
            break


@kernel
def make_way(states: BodyState, bodies: Bodies, crowd: Crowd, solids: Solids, stuck: Array) -> bool:
    """Move bodies, in place, out of people who went farther into them than their velocities said.

    The impulses are there in the next frame; here a body only gets out of the way, and not into the ground or what
    stands around. Write which ones are stuck between people and that (worlds n), and return whether any is.
    """
    for world in range(len(states.x)):
        here = _here(states, bodies, crowd, solids, world)
        for i in range(len(here.x)):
            for done in range(NUM_ROUNDS + 1):
                deepest, way = SHALLOW, (0.0, 0.0, 0.0)
                for p in range(len(here.at)):
                    radius = here.radii[p % len(here.radii)]
                    if _apart(here.at[p], here.x[i]) > _reach(bodies, i) + radius:
                        continue
                    d, n = _out_of_body(here, i, here.at[p])
                    if radius - d > deepest:
                        deepest, way = radius - d, _times(-1.0, n)
                stuck[world, i] = deepest > SHALLOW + HAIR
                if not stuck[world, i] or done == NUM_ROUNDS:
                    break
                free = _free_way(here, i, _times(deepest - SHALLOW, way))
                _write(here.x[i], _add(here.x[i], free, 1.0))
                states.still[world, i] = 0
    return stuck.any()


@kernel
def _free_way(here: Here, i: int, way: Vector) -> Vector:
    """Return the part of a way that takes a body no farther than up to static surfaces; along these it goes on."""
    x, around = _vector(here.x[i]), here.solids
    for plane in around.planes:
        way = _kept_out(here, i, _dot(x, plane) - plane[3], _vector(plane), way)
    for ball in around.spheres:
        out = _add(x, ball, -1.0)
        length = max(_size(out), 1e-9)
        way = _kept_out(here, i, length - ball[3], _times(1 / length, out), way)
    for row in around.shapes:
        reach = _reach(here.bodies, i) + _size(way)
        if _apart(x, row[4:7]) < row[BOUND] + reach:
            lx, ly, lz = to_local(x[0], x[1], x[2], row)
            d, lx, ly, lz = shape_distance(lx, ly, lz, row, around.mesh, reach)
            way = _kept_out(here, i, d, turned(lx, ly, lz, row), way)
    return way


@kernel
def _kept_out(here: Here, i: int, d: float, n: Vector, way: Vector) -> Vector:
    """Return a way without what leads a body into a surface at a distance d from its centre."""
    half, extent = here.bodies.half[i], here.bodies.half[i, 0]
    if here.bodies.kind[i] == BOX:
        extent = 0.0
        for k in range(3):
            extent += half[k] * abs(_dot(_axis(here.R[i], k), n))
    return _add(way, n, max(-_dot(way, n) - max(d - extent, 0.0), 0.0))


@kernel
def _reach(bodies: Bodies, i: int) -> float:
    """Return how far a body reaches from its centre [m]."""
    return _size(bodies.half[i]) if bodies.kind[i] == BOX else bodies.half[i, 0]


@kernel
def _near_people(here: Here, h: float) -> Array:
    """Return which bodies somebody may reach within a frame."""
    near = np.zeros(len(here.x), dtype=np.bool_)
    for i in range(len(near)):
        reach = _reach(here.bodies, i) + TOUCHING + h * (_size(here.v[i]) + GRAVITY * h)
        for p in range(len(here.at)):
            radius = here.radii[p % len(here.radii)]
            near[i] = near[i] or _apart(here.at[p], here.x[i]) < reach + radius + h * _size(here.pace[p])
    return near


@kernel
def _awake(here: Here, still: Array, near: Array, h: float) -> Array:
    """Return which bodies may move within a frame: those that moved lately or may be reached by people or by these."""
    moves, around = False, here.solids
    for row in around.planes:
        moves = moves or row[4:10].any()
    for row in around.shapes:
        moves = moves or row[16:22].any()
    for row in around.spheres:
        moves = moves or row[4:7].any()
    awake = near | (still < FRAMES_TO_SLEEP) | moves
    spreads = True
    while spreads:
        spreads = False
        for i in range(len(awake)):
            reach = _reach(here.bodies, i) + 0.05 + h * (_size(here.v[i]) + GRAVITY * h)
            for k in range(len(awake)):
                if awake[i] and not awake[k] and _apart(here.x[i], here.x[k]) < reach + _reach(here.bodies, k):
                    awake[k] = spreads = True
    return awake


@kernel
def _spin(R: Array, w: Array, dt: float) -> None:
    """Turn a rotation by w dt and make it orthonormal again."""
    a = _add(_axis(R, 0), _cross(w, _axis(R, 0)), dt)
    b = _add(_axis(R, 1), _cross(w, _axis(R, 1)), dt)
    a = _times(1 / _size(a), a)
    b = _add(b, a, -_dot(a, b))
    b = _times(1 / _size(b), b)
    c = _cross(a, b)
    for k in range(3):
        R[k, 0], R[k, 1], R[k, 2] = a[k], b[k], c[k]


@inlined_kernel
def _point_velocity(here: Here, i: int, point: Array) -> Vector:
    return _add(here.v[i], _cross(here.w[i], _add(point, here.x[i], -1.0)), 1.0)


@inlined_kernel
def _approach(here: Here, a: int, b: int, point: Array, surface: Array) -> Vector:
    """Return the velocity of a body at a point relative to what it touches; `surface` is that of static surfaces."""
    if b >= 0:
        other = _point_velocity(here, b, point)
    elif b == STATIC:
        other = _vector(surface)
    else:
        other = _vector(here.pace[-2 - b])
    return _add(_point_velocity(here, a, point), other, -1.0)


@kernel
def _note(
    here: Here,
    contacts: Contacts,
    pair: tuple[int, int],
    point: Vector,
    normal: Vector,
    gap: float,
    surface: Vector,
    rough: float,
    dt: float,
) -> None:
    """Note a contact if it is one by the substep's end; the surface has a velocity and a friction `rough`, or NaN."""
    (a, b), bodies, c = pair, here.bodies, contacts.num[0]
    nearing = -_dot(_approach(here, a, b, point, surface), normal)
    if c == len(contacts.pair) or gap > max(nearing, 0.0) * dt:
        return
    friction, bounce = bodies.friction[a], bodies.bounce[a]
    if b >= 0:
        friction, bounce = min(friction, bodies.friction[b]), max(bounce, bodies.bounce[b])
    leave = bounce * nearing if nearing > BOUNCING else 0.0
    if gap > 0 and leave == 0.0:
        leave = -gap / dt
    elif gap < -SLOP:
        leave = max(leave, min(RECOVERY * (-gap - SLOP) / dt, FASTEST_RECOVERY))
    contacts.pair[c, 0], contacts.pair[c, 1] = a, b
    _write(contacts.point[c], point)
    _write(contacts.normal[c], normal)
    _write(contacts.surface[c], surface)
    contacts.rub[c], contacts.load[c], contacts.leave[c] = 0.0, 0.0, leave
    contacts.friction[c] = friction if math.isnan(rough) else min(friction, rough)
    contacts.num[0] = c + 1


@kernel
def _touch_statics(here: Here, i: int, dt: float, contacts: Contacts, manifold: Manifold) -> None:
    """Note where a body touches static surfaces: a ball by its centre, a box by its corners, and by boxes' faces."""
    around, half, x, R = here.solids, here.bodies.half[i], here.x[i], here.R[i]
    reach, pair = _reach(here.bodies, i), (i, STATIC)
    margin = dt * (_size(here.v[i]) + reach * _size(here.w[i])) + NEARBY
    if here.bodies.kind[i] != BOX:
        d, nx, ny, nz, ux, uy, uz, rough = nearest_within(reach + margin, x[0], x[1], x[2], around)
        if d < reach + margin:
            n = (nx, ny, nz)
            _note(here, contacts, pair, _add(x, n, -reach), n, d - reach, (ux, uy, uz), rough, dt)
        return
    plain = Solids(around.planes, around.spheres, around.patches, around.shapes[:0], around.mesh)
    if nearest(x[0], x[1], x[2], plain)[0] < reach + margin:
        for corner in range(8):
            p = _corner(x, R, half, corner)
            d, nx, ny, nz, ux, uy, uz, rough = nearest(p[0], p[1], p[2], plain)
            if d < margin:
                _note(here, contacts, pair, p, (nx, ny, nz), d, (ux, uy, uz), rough, dt)
    for row in around.shapes:
        if _apart(x, row[4:7]) > row[BOUND] + reach + margin:
            continue
        velocity = _vector(row[16:19])
        if row[0] == BOX:
            other = (row[4:7], row[7:16].copy().reshape(3, 3), row[1:4])
            count, n = _box_contacts((x, R, half), other, margin, manifold)
            for c in range(count):
                p = _vector(manifold.points[c])
                _note(here, contacts, pair, p, n, -manifold.depths[c], velocity, row[FRICTION], dt)
            continue
        for corner in range(8):
            p = _corner(x, R, half, corner)
            lx, ly, lz = to_local(p[0], p[1], p[2], row)
            d, lx, ly, lz = shape_distance(lx, ly, lz, row, around.mesh, margin)
            if d < margin:
                _note(here, contacts, pair, p, turned(lx, ly, lz, row), d, velocity, row[FRICTION], dt)


@inlined_kernel
def _corner(x: Array, R: Array, half: Array, corner: int) -> Vector:
    point = _vector(x)
    for k in range(3):
        point = _add(point, _axis(R, k), half[k] if corner >> k & 1 else -half[k])
    return point


@kernel
def _touch_body(here: Here, i: int, k: int, dt: float, contacts: Contacts, manifold: Manifold) -> None:
    """Note where two bodies touch."""
    bodies, x, still = here.bodies, here.x, (0.0, 0.0, 0.0)
    margin = dt * _apart(here.v[i], here.v[k]) + NEARBY
    if _apart(x[i], x[k]) > _reach(bodies, i) + _reach(bodies, k) + margin:
        return
    if bodies.kind[i] == BOX and bodies.kind[k] == BOX:
        boxes = (x[i], here.R[i], bodies.half[i]), (x[k], here.R[k], bodies.half[k])
        count, n = _box_contacts(boxes[0], boxes[1], margin, manifold)
        for c in range(count):
            p = _vector(manifold.points[c])
            _note(here, contacts, (i, k), p, n, -manifold.depths[c], still, math.nan, dt)
        return
    ball, other = (i, k) if bodies.kind[k] == BOX else (k, i)
    d, n = _out_of_body(here, other, x[ball])
    _note(here, contacts, (ball, other), _add(x[ball], n, -d), n, d - bodies.half[ball, 0], still, math.nan, dt)


@kernel
def _touch_person(here: Here, i: int, p: int, dt: float, contacts: Contacts) -> None:
    """Note where a body touches a person's sphere."""
    d, n = _out_of_body(here, i, here.at[p])
    gap = d - here.radii[p % len(here.radii)]
    if gap < TOUCHING:
        # Seen from the body, the normal points away from the person.
        point, still = _add(here.at[p], n, -d), (0.0, 0.0, 0.0)
        _note(here, contacts, (i, -2 - p), point, _times(-1.0, n), gap, still, math.nan, dt)


@kernel
def _out_of_body(here: Here, i: int, p: Array) -> tuple[float, Vector]:
    """Return the distance from a body to a point, and the normal toward it."""
    away, R, half = _add(p, here.x[i], -1.0), here.R[i], here.bodies.half[i]
    if here.bodies.kind[i] != BOX:
        length = max(_size(away), 1e-9)
        return length - half[0], _times(1 / length, away)
    local = _dot(_axis(R, 0), away), _dot(_axis(R, 1), away), _dot(_axis(R, 2), away)
    d, x, y, z = box_distance(local[0], local[1], local[2], half[0], half[1], half[2])
    return d, _add(_add(_times(x, _axis(R, 0)), _axis(R, 1), y), _axis(R, 2), z)


@inlined_kernel
def _mobility(here: Here, i: int, point: Vector, n: Vector) -> float:
    """Return the velocity along n at a point of a body by a unit impulse along n [1/kg]."""
    arm, total = _cross(_add(point, here.x[i], -1.0), n), here.bodies.mobility[i]
    for k in range(3):
        total += here.bodies.ease[i, k] * _dot(_axis(here.R[i], k), arm) ** 2
    return total


@inlined_kernel
def _ease(here: Here, a: int, b: int, point: Vector, n: Vector) -> float:
    """Return the relative velocity along n by a unit impulse between two sides of a contact [1/kg]."""
    ease = _mobility(here, a, point, n)
    if b >= 0:
        ease += _mobility(here, b, point, n)
    elif b < STATIC:
        joint = (-2 - b) % len(here.response)
        ease += here.response[joint, joint]
    return ease


@inlined_kernel
def _kick_body(here: Here, i: int, point: Vector, j: Vector) -> None:
    _write(here.v[i], _add(here.v[i], j, here.bodies.mobility[i]))
    arm = _cross(_add(point, here.x[i], -1.0), j)
    for k in range(3):
        axis = _axis(here.R[i], k)
        _write(here.w[i], _add(here.w[i], axis, here.bodies.ease[i, k] * _dot(axis, arm)))


@inlined_kernel
def _kick(here: Here, a: int, b: int, point: Vector, j: Vector) -> None:
    """Give a body an impulse at a point, and the other side, a body or somebody's joint, the opposite."""
    _kick_body(here, a, point, j)
    if b >= 0:
        _kick_body(here, b, point, _times(-1.0, j))
    elif b < STATIC:
        joint = (-2 - b) % len(here.response)
        _write(here.impulse[-2 - b], _add(here.impulse[-2 - b], j, -1.0))
        for k in range(len(here.response)):
            pace = here.pace[-2 - b - joint + k]
            _write(pace, _add(pace, j, -here.response[k, joint]))


@inlined_kernel
def _push(here: Here, contacts: Contacts, c: int) -> float:
    """Bring the velocity at a contact to what it should be: along the normal, then along the surface up to friction.

    Return the larger of the two changes [m/s].
    """
    a, b = contacts.pair[c, 0], contacts.pair[c, 1]
    point, n, rub = _vector(contacts.point[c]), _vector(contacts.normal[c]), _vector(contacts.rub[c])
    ease = _ease(here, a, b, point, n)
    along = _dot(_approach(here, a, b, point, contacts.surface[c]), n)
    load = max(contacts.load[c] + (contacts.leave[c] - along) / ease, 0.0)
    change = ease * abs(load - contacts.load[c])
    _kick(here, a, b, point, _times(load - contacts.load[c], n))
    contacts.load[c] = load
    slip = _approach(here, a, b, point, contacts.surface[c])
    slip = _add(slip, n, -_dot(slip, n))
    speed = _size(slip)
    if speed < 1e-12:
        return change
    ease = _ease(here, a, b, point, _times(1 / speed, slip))
    wanted = _add(rub, slip, -1 / ease)
    length, most = _size(wanted), contacts.friction[c] * load
    if length > most:
        wanted = _times(most / length, wanted)
    j = _add(wanted, rub, -1.0)
    _write(contacts.rub[c], wanted)
    _kick(here, a, b, point, j)
    return max(change, ease * _size(j))


@kernel
def _start_warm(here: Here, contacts: Contacts, c: int, before: Contacts) -> None:
    """Begin with the impulses of the substep before, so that what rests stays at rest; impacts start from nothing."""
    a, b, point, n = contacts.pair[c, 0], contacts.pair[c, 1], _vector(contacts.point[c]), _vector(contacts.normal[c])
    if contacts.leave[c] > FASTEST_RECOVERY:
        return
    best, same = SAME_CONTACT, -1
    for o in range(before.num[0]):
        if before.pair[o, 0] == a and before.pair[o, 1] == b:
            apart = _apart(before.point[o], point)
            if apart < best:
                best, same = apart, o
    if same < 0:
        return
    before.pair[same, 0] = -1  # nobody else's
    rub = _add(before.rub[same], n, -_dot(before.rub[same], n))
    contacts.load[c] = before.load[same]
    _write(contacts.rub[c], rub)
    _kick(here, a, b, point, _add(rub, n, contacts.load[c]))


Box = tuple[Array, Array, Array]
"""Centre, rotation and half sizes."""


@kernel
def _extent(R: Array, half: Array, n: Vector) -> float:
    """Return how far a box reaches from its centre along a direction [m]."""
    total = 0.0
    for k in range(3):
        total += half[k] * abs(_dot(_axis(R, k), n))
    return total


@kernel
def _box_contacts(first: Box, second: Box, margin: float, manifold: Manifold) -> tuple[int, Vector]:
    """Write where two boxes come nearer than a margin; return how many points, and the normal toward the first box.

    Separating axes; then the face that faces the other box is clipped to it, or the two nearest points of two edges are
    taken.
    """
    (xa, Ra, ha), (xb, Rb, hb) = first, second
    away, best, which, normal = _add(xa, xb, -1.0), math.inf, -1, (0.0, 0.0, 0.0)
    for axis in range(15):
        if axis < 6:
            n = _axis(Ra, axis) if axis < 3 else _axis(Rb, axis - 3)
        else:
            n = _cross(_axis(Ra, (axis - 6) // 3), _axis(Rb, (axis - 6) % 3))
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
        _write(manifold.points[0], _edge_contact(first, second, edges, normal))
        manifold.depths[0] = best
        return 1, normal
    if which < 3:
        return _face_contacts(first, which, second, _times(-1.0, normal), margin, manifold), normal
    return _face_contacts(second, which - 3, first, normal, margin, manifold), normal


@kernel
def _edge_contact(first: Box, second: Box, edges: tuple[int, int], n: Vector) -> Vector:
    """Return the point between the nearest points of an edge of each box."""
    (xa, Ra, ha), (xb, Rb, hb) = first, second
    pa, pb = _vector(xa), _vector(xb)
    for k in range(3):
        if k != edges[0]:
            pa = _add(pa, _axis(Ra, k), -ha[k] if _dot(_axis(Ra, k), n) > 0 else ha[k])
        if k != edges[1]:
            pb = _add(pb, _axis(Rb, k), hb[k] if _dot(_axis(Rb, k), n) > 0 else -hb[k])
    ea, eb, away = _axis(Ra, edges[0]), _axis(Rb, edges[1]), _add(pb, pa, -1.0)
    dot, ua, ub = _dot(ea, eb), _dot(ea, away), _dot(eb, away)
    share = 1 - dot * dot
    s, t = ((ua - dot * ub) / share, (dot * ua - ub) / share) if share > 1e-9 else (0.0, 0.0)
    return _times(0.5, _add(_add(pa, ea, s), _add(pb, eb, t), 1.0))


@kernel
def _face_contacts(box: Box, axis: int, other: Box, out: Vector, margin: float, manifold: Manifold) -> int:
    """Clip the other box's face to a face of a box, out of which `out` points; return how many points are left."""
    (x, R, half), (xo, Ro, ho) = box, other
    against, most = 0, -1.0
    for k in range(3):
        along = abs(_dot(_axis(Ro, k), out))
        if along > most:
            most, against = along, k
    side = -1.0 if _dot(_axis(Ro, against), out) > 0 else 1.0
    u, v = (against + 1) % 3, (against + 2) % 3
    face = _add(xo, _axis(Ro, against), side * ho[against])
    polygon, clipped, num = manifold.scratch[0], manifold.scratch[1], 4
    for k in range(4):
        su, sv = (-1.0 if k == 0 or k == 3 else 1.0), (-1.0 if k < 2 else 1.0)
        _write(polygon[k], _add(_add(face, _axis(Ro, u), su * ho[u]), _axis(Ro, v), sv * ho[v]))
    for turn in range(4):
        e = (axis + 1 + turn // 2) % 3
        way = _times(1.0 if turn % 2 == 0 else -1.0, _axis(R, e))
        limit, count = half[e] + _dot(way, x), 0
        for p in range(num):
            a, b = polygon[p], polygon[(p + 1) % num]
            da, db = _dot(way, a) - limit, _dot(way, b) - limit
            if da <= 0 and count < 16:
                _write(clipped[count], a)
                count += 1
            if (da < 0 < db or db < 0 < da) and count < 16:
                _write(clipped[count], _add(a, _add(b, a, -1.0), da / (da - db)))
                count += 1
        polygon, clipped, num = clipped, polygon, count
    count, top = 0, half[axis] + _dot(out, x)
    for p in range(num):
        depth = top - _dot(out, polygon[p])
        if depth > -margin:
            _write(manifold.points[count], polygon[p])
            manifold.depths[count] = depth
            count += 1
    return count
