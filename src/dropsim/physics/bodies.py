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
from dropsim.physics.shapes import BOUND, BOX, box_distance, shape_distance, to_local, turned

Array = Any
"""numba knows the types."""
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
    num_members, joints = len(members), len(radii)
    way = h * _fastest(members, v, w, bodies, near, pace, h)
    substeps = min(max(math.ceil(way / SUBSTEP_WAY), FEWEST_SUBSTEPS), MOST_SUBSTEPS)
    dt, touched = h / substeps, near[members].any()
    most = num_members * (MOST_CONTACTS + (len(at) if touched else 0))
    contacts = Contacts(np.empty((most, 2), np.int64), np.empty((most, 4, 3)), np.empty((most, 4)))
    before, known = Contacts(np.empty((most, 2), np.int64), np.empty((most, 4, 3)), np.empty((most, 4))), 0
    points, depths, normal, scratch = np.empty((16, 3)), np.empty(16), np.empty(3), np.empty((2, 16, 3))
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
            for p in range(len(at) if near[i] else 0):
                num = _touch_person(i, p, x, R, v, w, bodies, at, pace, radii[p % joints], dt, contacts, num)
        for m in range(num_members):
            for k in members[m + 1 :]:
                num = _touch_each_other(
                    members[m], k, x, R, v, w, bodies, dt, contacts, num, points, depths, normal, scratch
                )
        for m in range(num_members):
            if low[m]:
                own = Solids(here.planes, here.spheres, here.patches, rows[m][: counts[m]], here.mesh)
                num = _touch_statics(
                    members[m], x, R, v, w, bodies, own, dt, contacts, num, points, depths, normal, scratch
                )
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
                deepest, mx, my, mz = SHALLOW, 0.0, 0.0, 0.0
                for p in range(count * joints):
                    radius = crowd.radii[p % joints]
                    if _size(at[p] - x[i]) > _reach(i, bodies) + radius:
                        continue
                    d, nx, ny, nz = _out_of_body(i, at[p], x, R, bodies)
                    if radius - d > deepest:
                        deepest, mx, my, mz = radius - d, -nx, -ny, -nz
                stuck[world, i] = deepest > SHALLOW + HAIR
                if not stuck[world, i] or done == NUM_ROUNDS:
                    break
                far = deepest - SHALLOW
                fx, fy, fz = _free_way(i, x, R, bodies, here, far * mx, far * my, far * mz)
                x[i, 0], x[i, 1], x[i, 2] = x[i, 0] + fx, x[i, 1] + fy, x[i, 2] + fz
                states.still[world, i] = 0
    return stuck.any()


@kernel
def _free_way(
    i: int, x: Array, R: Array, bodies: Bodies, here: Solids, mx: float, my: float, mz: float
) -> tuple[float, float, float]:
    """Return the part of a way that takes a body no farther than up to static surfaces; along these it goes on."""
    num_planes, num_spheres = len(here.planes), len(here.spheres)
    for k in range(num_planes + num_spheres + len(here.shapes)):
        if k < num_planes:
            plane = here.planes[k]
            nx, ny, nz = plane[0], plane[1], plane[2]
            d = x[i, 0] * nx + x[i, 1] * ny + x[i, 2] * nz - plane[3]
        elif k < num_planes + num_spheres:
            ball = here.spheres[k - num_planes]
            nx, ny, nz = x[i, 0] - ball[0], x[i, 1] - ball[1], x[i, 2] - ball[2]
            length = max(math.sqrt(nx * nx + ny * ny + nz * nz), 1e-9)
            d, nx, ny, nz = length - ball[3], nx / length, ny / length, nz / length
        else:
            row = here.shapes[k - num_planes - num_spheres]
            reach = _reach(i, bodies) + math.sqrt(mx * mx + my * my + mz * mz)
            if (x[i, 0] - row[4]) ** 2 + (x[i, 1] - row[5]) ** 2 + (x[i, 2] - row[6]) ** 2 > (row[BOUND] + reach) ** 2:
                continue
            lx, ly, lz = to_local(x[i, 0], x[i, 1], x[i, 2], row)
            d, lx, ly, lz = shape_distance(lx, ly, lz, row, here.mesh, reach)
            nx, ny, nz = turned(lx, ly, lz, row)
        extent = bodies.half[i, 0]
        if bodies.kind[i] == BOX:
            extent = 0.0
            for c in range(3):
                extent += bodies.half[i, c] * abs(R[i, 0, c] * nx + R[i, 1, c] * ny + R[i, 2, c] * nz)
        beyond = -(mx * nx + my * ny + mz * nz) - max(d - extent, 0.0)
        if beyond > 0:
            mx, my, mz = mx + beyond * nx, my + beyond * ny, mz + beyond * nz
    return mx, my, mz


@kernel
def _size(vector: Array) -> float:
    return math.sqrt(vector[0] ** 2 + vector[1] ** 2 + vector[2] ** 2)


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
def _add(
    a: int,
    b: int,
    px: float,
    py: float,
    pz: float,
    nx: float,
    ny: float,
    nz: float,
    gap: float,
    friction: float,
    bounce: float,
    ux: float,
    uy: float,
    uz: float,
    x: Array,
    v: Array,
    w: Array,
    dt: float,
    contacts: Contacts,
    num: int,
) -> int:
    """Note a contact if it is one by the substep's end; u is the velocity of a static surface or a person's sphere."""
    if num == len(contacts.who):
        return num
    vectors, numbers = contacts.vectors[num], contacts.numbers[num]
    vectors[0, 0], vectors[0, 1], vectors[0, 2] = px, py, pz
    vectors[1, 0], vectors[1, 1], vectors[1, 2] = nx, ny, nz
    vectors[2, 0], vectors[2, 1], vectors[2, 2] = (ux, uy, uz) if b == STATIC else (0.0, 0.0, 0.0)
    vectors[3] = 0.0
    vx, vy, vz = _point_velocity(a, vectors[0], x, v, w)
    if b >= 0:
        ux, uy, uz = _point_velocity(b, vectors[0], x, v, w)
    nearing = -((vx - ux) * nx + (vy - uy) * ny + (vz - uz) * nz)
    if gap > max(nearing, 0.0) * dt:
        return num
    leave = bounce * nearing if nearing > BOUNCING else 0.0
    if gap > 0 and leave == 0.0:
        leave = -gap / dt
    elif gap < -SLOP:
        leave = max(leave, min(RECOVERY * (-gap - SLOP) / dt, FASTEST_RECOVERY))
    numbers[0], numbers[1], numbers[2], numbers[3] = gap, friction, leave, 0.0
    contacts.who[num, 0], contacts.who[num, 1] = a, b
    return num + 1


@kernel
def _touch_statics(
    i: int,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    here: Solids,
    dt: float,
    contacts: Contacts,
    num: int,
    points: Array,
    depths: Array,
    normal: Array,
    scratch: Array,
) -> int:
    """Note where a body touches static surfaces: a ball by its centre, a box by its corners, and by boxes' faces."""
    half, mu, bounce = bodies.half[i], bodies.friction[i], bodies.bounce[i]
    reach = math.sqrt(half[0] ** 2 + half[1] ** 2 + half[2] ** 2) if bodies.kind[i] == BOX else half[0]
    margin = (
        dt
        * (
            math.sqrt(v[i, 0] ** 2 + v[i, 1] ** 2 + v[i, 2] ** 2)
            + reach * math.sqrt(w[i, 0] ** 2 + w[i, 1] ** 2 + w[i, 2] ** 2)
        )
        + 0.005
    )
    if bodies.kind[i] != BOX:
        d, nx, ny, nz, ux, uy, uz, own = nearest_within(reach + margin, x[i, 0], x[i, 1], x[i, 2], here)
        if d >= reach + margin:
            return num
        px, py, pz = x[i, 0] - half[0] * nx, x[i, 1] - half[0] * ny, x[i, 2] - half[0] * nz
        rough = mu if math.isnan(own) else min(mu, own)
        return _add(
            i, STATIC, px, py, pz, nx, ny, nz, d - half[0], rough, bounce, ux, uy, uz, x, v, w, dt, contacts, num
        )
    plain = Solids(here.planes, here.spheres, here.patches, here.shapes[:0], here.mesh)
    for corner in range(8):
        a = half[0] if corner & 1 else -half[0]
        b = half[1] if corner & 2 else -half[1]
        c = half[2] if corner & 4 else -half[2]
        px, py, pz = x[i, 0], x[i, 1], x[i, 2]
        px += R[i, 0, 0] * a + R[i, 0, 1] * b + R[i, 0, 2] * c
        py += R[i, 1, 0] * a + R[i, 1, 1] * b + R[i, 1, 2] * c
        pz += R[i, 2, 0] * a + R[i, 2, 1] * b + R[i, 2, 2] * c
        above = math.inf
        for k in range(len(here.planes)):
            above = min(
                above, px * here.planes[k, 0] + py * here.planes[k, 1] + pz * here.planes[k, 2] - here.planes[k, 3]
            )
        if above < margin or len(here.spheres):
            d, nx, ny, nz, ux, uy, uz, own = nearest(px, py, pz, plain)
            if d < margin:
                rough = mu if math.isnan(own) else min(mu, own)
                num = _add(i, STATIC, px, py, pz, nx, ny, nz, d, rough, bounce, ux, uy, uz, x, v, w, dt, contacts, num)
        for k in range(len(here.shapes)):
            row = here.shapes[k]
            if row[0] == BOX or (px - row[4]) ** 2 + (py - row[5]) ** 2 + (pz - row[6]) ** 2 > (row[23] + margin) ** 2:
                continue
            lx, ly, lz = to_local(px, py, pz, row)
            d, lx, ly, lz = shape_distance(lx, ly, lz, row, here.mesh, margin)
            if d < margin:
                nx, ny, nz = turned(lx, ly, lz, row)
                rough = mu if math.isnan(row[22]) else min(mu, row[22])
                num = _add(
                    i,
                    STATIC,
                    px,
                    py,
                    pz,
                    nx,
                    ny,
                    nz,
                    d,
                    rough,
                    bounce,
                    row[16],
                    row[17],
                    row[18],
                    x,
                    v,
                    w,
                    dt,
                    contacts,
                    num,
                )
    for k in range(len(here.shapes)):
        row = here.shapes[k]
        apart = (x[i, 0] - row[4]) ** 2 + (x[i, 1] - row[5]) ** 2 + (x[i, 2] - row[6]) ** 2
        if row[0] != BOX or apart > (row[23] + reach + margin) ** 2:
            continue
        found = box_contacts(
            x[i],
            R[i],
            half,
            row[4:7],
            row[7:16].copy().reshape(3, 3),
            row[1:4],
            margin,
            points,
            depths,
            normal,
            scratch,
        )
        rough = mu if math.isnan(row[22]) else min(mu, row[22])
        for c in range(found):
            p = points[c]
            num = _add(
                i,
                STATIC,
                p[0],
                p[1],
                p[2],
                normal[0],
                normal[1],
                normal[2],
                -depths[c],
                rough,
                bounce,
                row[16],
                row[17],
                row[18],
                x,
                v,
                w,
                dt,
                contacts,
                num,
            )
    return num


@kernel
def _touch_each_other(
    i: int,
    k: int,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    dt: float,
    contacts: Contacts,
    num: int,
    points: Array,
    depths: Array,
    normal: Array,
    scratch: Array,
) -> int:
    a, b = bodies.half[i], bodies.half[k]
    box_i, box_k = bodies.kind[i] == BOX, bodies.kind[k] == BOX
    reach_i = math.sqrt(a[0] ** 2 + a[1] ** 2 + a[2] ** 2) if box_i else a[0]
    reach_k = math.sqrt(b[0] ** 2 + b[1] ** 2 + b[2] ** 2) if box_k else b[0]
    dx, dy, dz = x[i, 0] - x[k, 0], x[i, 1] - x[k, 1], x[i, 2] - x[k, 2]
    speed = math.sqrt((v[i, 0] - v[k, 0]) ** 2 + (v[i, 1] - v[k, 1]) ** 2 + (v[i, 2] - v[k, 2]) ** 2)
    margin, apart = dt * speed + 0.005, math.sqrt(dx * dx + dy * dy + dz * dz)
    if apart > reach_i + reach_k + margin:
        return num
    mu, bounce = min(bodies.friction[i], bodies.friction[k]), max(bodies.bounce[i], bodies.bounce[k])
    if box_i and box_k:
        found = box_contacts(x[i], R[i], a, x[k], R[k], b, margin, points, depths, normal, scratch)
        for c in range(found):
            p = points[c]
            num = _add(
                i,
                k,
                p[0],
                p[1],
                p[2],
                normal[0],
                normal[1],
                normal[2],
                -depths[c],
                mu,
                bounce,
                0.0,
                0.0,
                0.0,
                x,
                v,
                w,
                dt,
                contacts,
                num,
            )
        return num
    if not box_i and not box_k:
        nx, ny, nz = (dx / apart, dy / apart, dz / apart) if apart > 1e-9 else (0.0, 0.0, 1.0)
        px, py, pz = x[k, 0] + b[0] * nx, x[k, 1] + b[0] * ny, x[k, 2] + b[0] * nz
        return _add(
            i, k, px, py, pz, nx, ny, nz, apart - a[0] - b[0], mu, bounce, 0.0, 0.0, 0.0, x, v, w, dt, contacts, num
        )
    box, ball = (i, k) if box_i else (k, i)
    d, nx, ny, nz = _out_of_box(x[ball], x[box], R[box], bodies.half[box])
    radius = bodies.half[ball, 0]
    px, py, pz = x[ball, 0] - d * nx, x[ball, 1] - d * ny, x[ball, 2] - d * nz
    return _add(ball, box, px, py, pz, nx, ny, nz, d - radius, mu, bounce, 0.0, 0.0, 0.0, x, v, w, dt, contacts, num)


@kernel
def _out_of_box(p: Array, x: Array, R: Array, half: Array) -> tuple[float, float, float, float]:
    """Return the distance from a box to a point, and the normal toward it."""
    dx, dy, dz = p[0] - x[0], p[1] - x[1], p[2] - x[2]
    l0 = R[0, 0] * dx + R[1, 0] * dy + R[2, 0] * dz
    l1 = R[0, 1] * dx + R[1, 1] * dy + R[2, 1] * dz
    l2 = R[0, 2] * dx + R[1, 2] * dy + R[2, 2] * dz
    d, m0, m1, m2 = box_distance(l0, l1, l2, half[0], half[1], half[2])
    nx = R[0, 0] * m0 + R[0, 1] * m1 + R[0, 2] * m2
    ny = R[1, 0] * m0 + R[1, 1] * m1 + R[1, 2] * m2
    return d, nx, ny, R[2, 0] * m0 + R[2, 1] * m1 + R[2, 2] * m2


@kernel
def _out_of_body(i: int, p: Array, x: Array, R: Array, bodies: Bodies) -> tuple[float, float, float, float]:
    """Return the distance from a body to a point, and the normal toward it."""
    if bodies.kind[i] == BOX:
        return _out_of_box(p, x[i], R[i], bodies.half[i])
    dx, dy, dz = p[0] - x[i, 0], p[1] - x[i, 1], p[2] - x[i, 2]
    length = max(math.sqrt(dx * dx + dy * dy + dz * dz), 1e-9)
    return length - bodies.half[i, 0], dx / length, dy / length, dz / length


@kernel
def _touch_person(
    i: int,
    p: int,
    x: Array,
    R: Array,
    v: Array,
    w: Array,
    bodies: Bodies,
    at: Array,
    pace: Array,
    radius: float,
    dt: float,
    contacts: Contacts,
    num: int,
) -> int:
    here = at[p]
    d, nx, ny, nz = _out_of_body(i, here, x, R, bodies)
    gap = d - radius
    if gap > TOUCHING:
        return num
    # Seen from the body, the normal points away from the person.
    px, py, pz = here[0] - d * nx, here[1] - d * ny, here[2] - d * nz
    mu, bounce, own = bodies.friction[i], bodies.bounce[i], pace[p]
    return _add(
        i, -2 - p, px, py, pz, -nx, -ny, -nz, gap, mu, bounce, own[0], own[1], own[2], x, v, w, dt, contacts, num
    )


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
def _kick_back(
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
def _start_warm(
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


@kernel
def box_contacts(
    xa: Array,
    Ra: Array,
    ha: Array,
    xb: Array,
    Rb: Array,
    hb: Array,
    margin: float,
    points: Array,
    depths: Array,
    normal: Array,
    scratch: Array,
) -> int:
    """Write where two boxes come nearer than a margin, and the normal toward the first; return how many points.

    Separating axes; then the face that faces the other box is clipped to it, or the two nearest points of two edges are
    taken.
    """
    dx, dy, dz = xa[0] - xb[0], xa[1] - xb[1], xa[2] - xb[2]
    best, which, bx, by, bz = math.inf, -1, 0.0, 0.0, 0.0
    for axis in range(15):
        if axis < 3:
            lx, ly, lz = Ra[0, axis], Ra[1, axis], Ra[2, axis]
        elif axis < 6:
            lx, ly, lz = Rb[0, axis - 3], Rb[1, axis - 3], Rb[2, axis - 3]
        else:
            i, k = (axis - 6) // 3, (axis - 6) % 3
            lx, ly, lz = Ra[1, i] * Rb[2, k] - Ra[2, i] * Rb[1, k], Ra[2, i] * Rb[0, k] - Ra[0, i] * Rb[2, k], 0.0
            lz = Ra[0, i] * Rb[1, k] - Ra[1, i] * Rb[0, k]
            size = math.sqrt(lx * lx + ly * ly + lz * lz)
            if size < 1e-4:
                continue
            lx, ly, lz = lx / size, ly / size, lz / size
        reach = 0.0
        for k in range(3):
            reach += ha[k] * abs(Ra[0, k] * lx + Ra[1, k] * ly + Ra[2, k] * lz) + hb[k] * abs(
                Rb[0, k] * lx + Rb[1, k] * ly + Rb[2, k] * lz
            )
        along = dx * lx + dy * ly + dz * lz
        overlap = reach - abs(along)
        if overlap < -margin:
            return 0
        # Faces before edges, unless these are clearly nearer: faces give contacts that hold.
        if overlap < (best if axis < 6 else best - 0.003):
            sign = 1.0 if along >= 0 else -1.0
            best, which, bx, by, bz = overlap, axis, sign * lx, sign * ly, sign * lz
    normal[0], normal[1], normal[2] = bx, by, bz
    if which >= 6:
        return _edge_contact(xa, Ra, ha, xb, Rb, hb, (which - 6) // 3, (which - 6) % 3, best, normal, points, depths)
    if which < 3:
        return _face_contacts(xa, Ra, ha, which, xb, Rb, hb, -1.0, margin, normal, points, depths, scratch)
    return _face_contacts(xb, Rb, hb, which - 3, xa, Ra, ha, 1.0, margin, normal, points, depths, scratch)


@kernel
def _edge_contact(
    xa: Array,
    Ra: Array,
    ha: Array,
    xb: Array,
    Rb: Array,
    hb: Array,
    i: int,
    k: int,
    depth: float,
    n: Array,
    points: Array,
    depths: Array,
) -> int:
    pa, pb = np.empty(3), np.empty(3)
    for c in range(3):
        pa[c], pb[c] = xa[c], xb[c]
    for axis in range(3):
        if axis != i:
            sign = -1.0 if Ra[0, axis] * n[0] + Ra[1, axis] * n[1] + Ra[2, axis] * n[2] > 0 else 1.0
            for c in range(3):
                pa[c] += sign * ha[axis] * Ra[c, axis]
        if axis != k:
            sign = 1.0 if Rb[0, axis] * n[0] + Rb[1, axis] * n[1] + Rb[2, axis] * n[2] > 0 else -1.0
            for c in range(3):
                pb[c] += sign * hb[axis] * Rb[c, axis]
    dot = ua = ub = 0.0
    for c in range(3):
        dot += Ra[c, i] * Rb[c, k]
        ua += Ra[c, i] * (pb[c] - pa[c])
        ub += Rb[c, k] * (pb[c] - pa[c])
    share = 1 - dot * dot
    s, t = ((ua - dot * ub) / share, (dot * ua - ub) / share) if share > 1e-9 else (0.0, 0.0)
    for c in range(3):
        points[0, c] = 0.5 * (pa[c] + s * Ra[c, i] + pb[c] + t * Rb[c, k])
    depths[0] = depth
    return 1


@kernel
def _face_contacts(
    x: Array,
    R: Array,
    h: Array,
    axis: int,
    other: Array,
    Ro: Array,
    ho: Array,
    sign: float,
    margin: float,
    n: Array,
    points: Array,
    depths: Array,
    scratch: Array,
) -> int:
    """Clip the other box's face to a face of a box; sign is that of the way from this box to the other along n."""
    fx, fy, fz = sign * n[0], sign * n[1], sign * n[2]  # out of the reference face
    against, most = 0, -1.0
    for k in range(3):
        along = Ro[0, k] * fx + Ro[1, k] * fy + Ro[2, k] * fz
        if abs(along) > most:
            most, against = abs(along), k
    along = Ro[0, against] * fx + Ro[1, against] * fy + Ro[2, against] * fz
    side = -1.0 if along > 0 else 1.0
    u, v = (against + 1) % 3, (against + 2) % 3
    polygon, clipped, num = scratch[0], scratch[1], 4
    for k in range(4):
        su, sv = (-1.0 if k == 0 or k == 3 else 1.0), (-1.0 if k < 2 else 1.0)
        for c in range(3):
            polygon[k, c] = (
                other[c] + side * ho[against] * Ro[c, against] + su * ho[u] * Ro[c, u] + sv * ho[v] * Ro[c, v]
            )
    for k in range(1, 3):
        e = (axis + k) % 3
        for turn in range(2):
            way, kept = (1.0 if turn == 0 else -1.0), 0
            for p in range(num):
                q = (p + 1) % num
                dp, dq = -h[e], -h[e]
                for c in range(3):
                    dp += way * R[c, e] * (polygon[p, c] - x[c])
                    dq += way * R[c, e] * (polygon[q, c] - x[c])
                if dp <= 0 and kept < 16:
                    clipped[kept] = polygon[p]
                    kept += 1
                if (dp < 0 < dq or dq < 0 < dp) and kept < 16:
                    share = dp / (dp - dq)
                    for c in range(3):
                        clipped[kept, c] = polygon[p, c] + share * (polygon[q, c] - polygon[p, c])
                    kept += 1
            polygon, clipped, num = clipped, polygon, kept
            if num == 0:
                return 0
    found = 0
    for p in range(num):
        depth = h[axis] - (fx * (polygon[p, 0] - x[0]) + fy * (polygon[p, 1] - x[1]) + fz * (polygon[p, 2] - x[2]))
        if depth > -margin:
            for c in range(3):
                points[found, c] = polygon[p, c]
            depths[found] = depth
            found += 1
    return found
