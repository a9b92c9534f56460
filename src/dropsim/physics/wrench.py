"""The root wrench, the change of momentum that no contact force explains, and the soft correction that reduces it.

After DROP (Jiang et al. 2023), section 6, and ManipNet (Zhang et al. 2021). Symbols are those of docs/notation.md.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.joints import BEYOND, CHILDREN, FLESH, JOINTS, NUM_JOINTS, PARENTS, joint_index
from dropsim.body.kinematics import copy
from dropsim.body.rotations import normalize
from dropsim.body.skeleton import BodyArrays, Skeleton, flat
from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Solids, beyond_planes, nearest_within, of_person, own_friction, slide_of
from dropsim.physics.nnls import solve
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.solver import solve_positive
from dropsim.physics.vectors import Vector, cross, dot, minus, over, part, plus, row, size, times, write

Array = Any
"""numba knows the types."""
_FEET = tuple(joint_index(f"{side}_{name}") for side in ("left", "right") for name in ("ankle", "foot"))
_GROUP = np.array([0 if joint in _FEET else 1 for joint in range(NUM_JOINTS)])
"""Joints that share a largest load: feet, and all others."""
_SOLE = {"ankle": ((-0.28, 0.2), (-0.28, -0.2)), "foot": ((0.0, 0.29), (0.0, -0.29), (0.46, 0.0))}
"""Points of the sole that bear forces, by what touches: ahead of the joint and across, over the length from ankle to
ball.

They are at 0.8 of what the skinned body's sole spans, whose heel ends 4.6 cm behind the ankle and is 6.4 cm wide, and
whose toes end 7.6 cm beyond the ball, which is 9.6 cm wide: the edge of a sole bears little.
"""
_BEARING = [_SOLE[JOINTS[j].split("_")[1]] if j in _FEET else ((0.0, 0.0),) for j in range(NUM_JOINTS)]
_NUM_POINTS = np.array([len(points) for points in _BEARING])
_POINTS = np.array([(*points, *(((0.0, 0.0),) * (3 - len(points)))) for points in _BEARING])
_MOST_EDGES = 4 * int(_NUM_POINTS.sum())
_UP = np.array([0.0, 0.0, 1.0])
_BEYOND, _FLESH, _PARENTS = np.array(BEYOND), np.array(FLESH), np.array(PARENTS)
STICKS, SLIDES = 1.0, 3.0
"""Feet that move slower than the first on average over a frame stand during it, as one that lands within it; from the
second on they slide [m/s]. The bank's recordings are explained as well with this as without."""
MARGIN = 0.02
"""Gap up to which a sphere can bear a contact force [m]: about the noise of recorded feet."""
HAIR = 1e-9
"""How much farther than needed is searched, so that rounding loses nothing [m]."""
DRIFT_TIME = 0.5
"""Time over which unexplained changes of velocity are added up [s]."""
IMPACT = 8.0
"""Largest load on anything that hits the ground [body weights]: hips bear 5.6 to 8.6 kN in falls (Robinovitch et al.
1991)."""
LARGEST_WRENCH = 1.5
"""Root wrench from which on candidates are equally impossible [body weights]."""


class Fit(NamedTuple):
    """Constants of the fits of a body's contact forces, and of the soft correction."""

    body_weight: float
    """[N]"""
    scale: float
    """Makes a moment [N m] comparable with a force [N]: one over the arm [1/m]."""
    friction: float
    """Friction coefficient of surfaces that set none."""
    soles: bool
    """Whether bodies bear forces all over soles, toes, palms and flesh, or only below their joints."""
    limits: np.ndarray
    """Most that feet, and all other joints, bear together [N]."""
    corrects: bool
    """Whether motion that contact does not explain is softly corrected."""
    bound: float
    """Unexplained velocity that may add up before it is corrected [m/s]; with 0 each step is corrected on its own."""
    threshold: float
    """Excess of the root wrench that is left alone [body weights]."""
    weight: float
    """Strength of the correction, w_p."""
    cap: float
    """Farthest that the correction moves any joint [m]."""


class Start(NamedTuple):
    """People at a step's start."""

    x: np.ndarray
    """Joints (n 22 3) [m]."""
    v: np.ndarray
    """Velocities of the joints (n 22 3) [m/s]."""
    forces: np.ndarray
    """External forces on the joints (n 22 3) [N]."""
    loads: np.ndarray
    """Those of them that people carry and count on (n 22 3) [N]."""
    spin: np.ndarray
    """Rate of angular momentum that bodies have besides that of their particles (n 3) [N m]."""
    body: BodyArrays
    fit: Fit
    h: float
    """Length of the step [s]."""


@functools.lru_cache(maxsize=16)
def fit_of(skeleton: Skeleton, options: SimulatorOptions, bound: float = 0.0) -> Fit:
    """Return the constants of a body's fits and of its correction, with a bound on the drift [m/s]."""
    weight = GRAVITY * float(skeleton.masses.sum())
    limits = weight * np.array([options.largest_load, options.largest_bearing])
    correction = (options.correct, bound, options.threshold, options.correction_weight, options.correction_cap)
    return Fit(weight, 1 / options.moment_arm, options.friction, options.soles, limits, *correction)


class Support(NamedTuple):
    """What can bear a contact force during a step, seen from its start."""

    near: np.ndarray
    """Spheres within the contact margin of something (n 22)."""
    normals: np.ndarray
    """Unit vectors toward the body (n 22 3)."""
    friction: np.ndarray
    """Of what they touch (n 22)."""
    sliding: np.ndarray
    """Unit vectors along which they slide over it, so that friction acts against them; shorter for those that hardly
    slide (n 22 3)."""


class Aim(NamedTuple):
    """What a step starts from: the inertial target, and what can bear forces."""

    y: np.ndarray
    """Where momentum, external forces, gravity and the ground's reaction take the particles (n 22 3) [m]."""
    support: Support
    chosen: np.ndarray
    """Candidates at which the iterations start (n)."""
    ways: np.ndarray
    """How far the ground's reaction moves the body within the step, along the contacts' normals and along their
    surfaces (n 2) [m]."""


@kernel
def centre_of_mass(x: Array, masses: Array) -> tuple[float, Vector]:
    """Return a person's mass and centre of mass."""
    total, centre = 0.0, (0.0, 0.0, 0.0)
    for j in range(len(masses)):
        total += masses[j]
    for j in range(len(masses)):
        centre = plus(centre, row(x, j), masses[j] / total)
    return total, centre


@kernel
def momentum_rate(start: Start, i: int, after: Array, forces: Array, centre: Vector, b: Array) -> None:
    """Write b of eqs. (12) and (13): person i's rates of momentum on the way to `after`, less gravity and forces.

    Accelerations are ((after - x) / h - v) / h; moments are about the centre of mass of x, with the arms of x.
    """
    x, v, masses, h = start.x[i], start.v[i], start.body.masses, start.h
    b[:] = 0.0
    for j in range(NUM_JOINTS):
        at = row(x, j)
        acceleration = over(minus(over(minus(row(after, j), at), h), row(v, j)), h)
        add_force(times(masses[j], acceleration), minus(at, centre), b)
        b[2] += masses[j] * GRAVITY
    for j in range(NUM_JOINTS):
        add_force(times(-1.0, row(forces, j)), minus(row(x, j), centre), b)
    for k in range(3):
        b[3 + k] += start.spin[i, k]


@kernel
def add_force(force: Vector, arm: Vector, b: Array) -> None:
    """Add a force at an arm to a wrench."""
    moment = cross(arm, force)
    for k in range(3):
        b[k] += force[k]
        b[3 + k] += moment[k]


@kernel
def fit_contacts(
    start: Start, i: int, support: Support, centre: Vector, b: Array, forces: Array, residual: Array
) -> None:
    """Write the contact forces of person i nearest to giving a rate of momentum b, eq. (11), and the unexplained rest.

    Each contact has the four edges of a pyramid inscribed in its friction cone, one of them along the tangential force
    that is asked for; moments weigh at an arm. What slides has less of the cone the faster it is, and in the end only
    forces from none to full friction against the way that it slides.
    """
    x, fit, near, friction = start.x[i], start.fit, support.near[i], support.friction[i]
    A, joint, n = np.empty((_MOST_EDGES, 6)), np.empty(_MOST_EDGES, dtype=np.int64), 0
    scaled, asked = np.empty(6), part(b, 0)
    for j in range(NUM_JOINTS):
        if not near[j]:
            continue
        normal, slide = row(support.normals[i], j), row(support.sliding[i], j)
        t, length = _along_foot(x, j, normal, fit.soles)
        s, sticks, tangential = cross(normal, t), 1.0 - size(slide), plus(asked, normal, -dot(asked, normal))
        along = over(tangential, size(tangential)) if size(tangential) > 1e-9 else t
        across = cross(normal, along)
        ways = (along, across, times(-1.0, along), times(-1.0, across))
        for p in range(_NUM_POINTS[j] if length > 0.0 else 1):
            in_sole = plus(times(_POINTS[j, p, 0], t), s, _POINTS[j, p, 1])
            arm = minus(plus(plus(row(x, j), normal, -start.body.radii[j]), in_sole, length), centre)
            for e in range(4):
                edge = plus(times(sticks, ways[e]), slide, -float(e % 2))
                edge = plus(edge, over(normal, friction[j]))
                write(A, n, edge)
                write(A, n, times(fit.scale, cross(arm, edge)), 3)
                joint[n] = j
                n += 1
    for r in range(6):
        scaled[r] = b[r] * (1.0 if r < 3 else fit.scale)
    shares, load = np.empty(n), np.zeros(2)
    solve(A, scaled, n, shares)
    for k in range(n):
        load[_GROUP[joint[k]]] += shares[k] / friction[joint[k]]  # every edge has the part 1 / mu along its normal
    forces[:] = 0.0
    for k in range(n):
        group = _GROUP[joint[k]]
        given = shares[k] * fit.limits[group] / max(load[group], fit.limits[group])
        for r in range(6):
            scaled[r] -= given * A[k, r]
        for r in range(3):
            forces[joint[k], r] += given * A[k, r]
    for r in range(6):
        residual[r] = scaled[r] / (1.0 if r < 3 else fit.scale)


@kernel
def _along_foot(x: Array, j: int, normal: Vector, soles: bool) -> tuple[Vector, float]:
    """Return a unit vector in the surface, and the foot's length from ankle to ball if it points to the toes, or 0."""
    if soles and _NUM_POINTS[j] > 1:
        ankle, toe = (j, j + 3) if j < 9 else (j - 3, j)
        d = minus(row(x, toe), row(x, ankle))
        length = size(d)
        d = plus(d, normal, -dot(d, normal))
        flat = size(d)
        if flat >= 0.3 * length:  # a foot that stands upright on its toes or heel has no sole on the ground
            return over(d, flat), length
    # Across the axis in which the normal is smallest, the first of equals.
    a, b, c = abs(normal[0]), abs(normal[1]), abs(normal[2])
    axis = (1.0, 0.0, 0.0) if a <= b and a <= c else (0.0, 1.0, 0.0) if b <= c else (0.0, 0.0, 1.0)
    across = cross(normal, axis)
    return over(across, max(size(across), 1e-12)), 0.0


@kernel
def turn_of(m: Vector, x: Array, centre: Vector, masses: Array, arm: float, ridge: float) -> Vector:
    """Solve (arm^2 I + ridge) w = m for w, with I the body's inertia about its centre."""
    inertia, w = np.zeros((3, 3)), np.zeros((3, 3))
    for k in range(3):
        w[k, 0], inertia[k, k] = m[k], ridge
    for j in range(len(masses)):
        away, mass = minus(row(x, j), centre), arm * arm * masses[j]
        for k in range(3):
            inertia[k, k] += mass * dot(away, away)
            for c in range(3):
                inertia[k, c] -= mass * away[k] * away[c]
    solve_positive(inertia, w)
    return w[0, 0], w[1, 0], w[2, 0]


@kernel
def near_spheres(start: Start, i: int, after: Array, here: Solids, support: Support) -> None:
    """Write which spheres of person i can bear a force on the way to `after`, and normals, friction and slides there.

    A slide is shorter than a unit vector if the sphere hardly slides. Without soles, spheres are all there is of a
    body, and none slides. Of a sphere that is not near, nothing else is known.
    """
    x, h, fit, radii = start.x[i], start.h, start.fit, start.body.radii
    near, normals, frictions, sliding = support.near[i], support.normals[i], support.friction[i], support.sliding[i]
    for j in range(NUM_JOINTS):
        # Toes and palms bear what the ball of the foot and the wrist are too high for, and flesh is softer than a
        # sphere.
        p, reach = row(x, j), radii[j]
        bone = minus(p, row(x, _PARENTS[j]))
        if fit.soles:
            reach = max(radii[j] + _FLESH[j], _BEYOND[j] * size(bone))
        limit = MARGIN + reach + HAIR
        near[j], frictions[j] = False, fit.friction
        write(normals, j, (0.0, 0.0, 0.0))
        write(sliding, j, (0.0, 0.0, 0.0))
        if beyond_planes(limit, p, here):
            continue
        surface = nearest_within(limit, p, here)
        if surface.distance >= limit:
            continue
        frictions[j] = own_friction(surface, fit.friction)
        write(normals, j, surface.normal)
        deepest = -radii[j]
        if fit.soles:
            deepest = min(_BEYOND[j] * dot(bone, surface.normal), deepest - _FLESH[j])
            slide, way = slide_of(row(after, j), p, h, surface)
            share = min(max((way / h - STICKS) / (SLIDES - STICKS), 0.0), 1.0) / max(way, 1e-12)
            write(sliding, j, times(share, slide))
        near[j] = surface.distance + deepest < MARGIN


def aim(
    start: Start,
    candidates: Float[np.ndarray, "n k 22 3"],
    costs: Float[np.ndarray, "n k"],
    weight: float,
    solids: Solids,
    react: bool,
) -> Aim:
    """Choose the cheapest candidates, and return where momentum, forces and the ground's reaction lead: y of eq. (1).

    A candidate's own cost grows by the square of its root wrench [body weights], times a weight. The reaction is what
    contact can give of the chosen candidate's change of momentum; it moves the body as a rigid one. External forces do
    not enter, because the person has not met them yet, but for the loads among them, which the person carries:
    reaction and loads move the body together.
    """
    num, shape = len(start.x), start.x.shape
    near = np.empty((num, NUM_JOINTS), dtype=np.bool_)
    support = Support(near, np.empty(shape), np.empty((num, NUM_JOINTS)), np.empty(shape))
    out = Aim(np.empty(shape), support, np.empty(num, dtype=np.int64), np.empty((num, 2)))
    _aim(start, candidates, costs, weight, solids, react, out)
    check_finite(out.y)
    return out


@kernel
def _aim(start: Start, candidates: Array, costs: Array, weight: float, solids: Solids, react: bool, out: Aim) -> None:
    x, v, forces, loads, _, body, fit, h = start
    y, support, chosen, ways = out
    b, fitted, residual = np.empty(6), np.empty((NUM_JOINTS, 3)), np.empty(6)
    reaction, bearing, open_costs = np.empty(6), np.empty((NUM_JOINTS, 3)), np.empty(costs.shape[1])
    for i in range(len(x)):
        here, (total, centre) = of_person(solids, i), centre_of_mass(x[i], body.masses)
        cheapest, last = math.inf, -1
        for k in range(len(open_costs)):  # numba takes a second to compile `open_costs[:] = costs[i]`
            open_costs[k] = costs[i, k]
        while True:
            k = np.argmin(open_costs)
            if last >= 0 and not open_costs[k] < cheapest:  # no wrench makes up for that
                break
            first, last, open_costs[k] = last < 0, k, math.inf
            near_spheres(start, i, candidates[i, k], here, support)
            momentum_rate(start, i, candidates[i, k], loads[i], centre, b)
            fit_contacts(start, i, support, centre, b, fitted, residual)
            cost = costs[i, k] + weight * min(_size(residual, fit), LARGEST_WRENCH) ** 2
            if first or cost < cheapest:
                cheapest, chosen[i] = cost, k
                for r in range(6):
                    reaction[r] = b[r] - residual[r]
                copy(fitted, bearing)
        if last != chosen[i]:
            near_spheres(start, i, candidates[i, chosen[i]], here, support)
        ways[i] = 0.0
        if react:
            ways[i, 0], ways[i, 1] = _load(bearing, support.near[i], support.normals[i], h * h / total)
        for j in range(NUM_JOINTS):
            add_force(row(loads[i], j), minus(row(x[i], j), centre), reaction)
        push, spin = over(part(reaction, 0), total), turn_of(part(reaction, 3), x[i], centre, body.masses, 1.0, 0.0)
        for j in range(NUM_JOINTS):
            at, carried = row(x[i], j), -1.0 if react else 0.0
            ax, ay, az = over(plus(row(forces[i], j), row(loads[i], j), carried), body.masses[j])
            acceleration = (ax, ay, az - GRAVITY)
            if react:
                acceleration = plus(acceleration, plus(push, cross(spin, minus(at, centre))))
            write(y[i], j, plus(plus(at, row(v[i], j), h), acceleration, h * h))


@kernel
def _size(residual: Array, fit: Fit) -> float:
    """Return the size of a root wrench, moments at the arm [body weights]."""
    total = 0.0
    for r in range(6):
        total += (residual[r] * (1.0 if r < 3 else fit.scale)) ** 2
    return math.sqrt(total) / fit.body_weight


@kernel
def _load(forces: Array, near: Array, normals: Array, scale: float) -> tuple[float, float]:
    """Return the sum of contact forces along their normals, and the size of the sum of the rest, times a scale."""
    load, rest = 0.0, (0.0, 0.0, 0.0)
    for j in range(NUM_JOINTS):
        if near[j]:
            normal, force = row(normals, j), row(forces, j)
            along = dot(force, normal)
            load += along
            rest = plus(plus(rest, force), normal, -along)
    return scale * load, scale * size(rest)


def explain(
    start: Start, after: Float[np.ndarray, "n 22 3"], support: Support
) -> tuple[Float[np.ndarray, "n 22 3"], Float[np.ndarray, "n 6"]]:
    """Return the contact forces of a step to `after`, and the root wrench that they leave [N, N m]."""
    fitted, residual = np.empty(after.shape), np.empty((len(after), 6))
    _explain(start, after, support, fitted, residual)
    check_finite(residual)
    return fitted, residual


def check_finite(values: np.ndarray) -> None:
    """Raise an error if a fit came to numbers that are not finite."""
    if not np.isfinite(values.sum()):
        raise ValueError("a contact fit is not finite: look for NaN in the positions, velocities or forces")


@kernel
def _explain(start: Start, after: Array, support: Support, fitted: Array, residual: Array) -> None:
    b = np.empty(6)
    for i in range(len(after)):
        _, centre = centre_of_mass(start.x[i], start.body.masses)
        momentum_rate(start, i, after[i], start.forces[i], centre, b)
        fit_contacts(start, i, support, centre, b, fitted[i], residual[i])


def add_drift(
    drift: Float[np.ndarray, "n 6"], residual: Float[np.ndarray, "n 6"], start: Start
) -> Float[np.ndarray, "n 6"]:
    """Return the unexplained velocity of half a second after a step with a root wrench [m/s]; moments at the arm."""
    scales = np.array([1.0, 1.0, 1.0, start.fit.scale, start.fit.scale, start.fit.scale])
    return (1.0 - start.h / DRIFT_TIME) * drift + GRAVITY * start.h * residual * scales / start.fit.body_weight


def balance(
    start: Start, solved: Float[np.ndarray, "n 22 3"], support: Support, drift: Float[np.ndarray, "n 6"]
) -> tuple[Float[np.ndarray, "n 22 3"], Float[np.ndarray, "n"]]:
    """Return solutions moved so that contact explains more of them, eq. (14), and the root wrench before that.

    With e the excess of the root wrench in body weights, and u = g h^2 the way that one body weight moves a body within
    a step:

        dx = argmin |dx|^2_M / m + w_p |u e + J dx|^2

    J maps displacements to the change of u e. M weighs by mass, so dx is a rigid motion, which stretches no bone: -u
    w_p / (1 + w_p) of the force, and the turn -u s z about the centre with (w_p s^2 I / m + 1) z = w_p e, s the scale
    of moments.
    """
    out, (_, residual) = np.array(solved), explain(start, solved, support)
    if start.fit.corrects:
        _correct(start, add_drift(drift if start.fit.bound else 0.0 * drift, residual, start), out)
    return out, np.linalg.norm(residual, axis=-1) / start.fit.body_weight


@kernel
def _correct(start: Start, drifts: Array, out: Array) -> None:
    """Move people, in place, by their drift beyond the bound: residuals that alternate pass, their sum does not."""
    fit, u, strength, s = start.fit, GRAVITY * start.h * start.h, start.fit.weight, start.fit.scale
    ways = np.empty((NUM_JOINTS, 3))
    for i in range(len(out)):
        x, (total, centre) = start.x[i], centre_of_mass(start.x[i], start.body.masses)
        push, turn = _excess(part(drifts[i], 0), fit.bound, start.h), _excess(part(drifts[i], 3), fit.bound, start.h)
        if not math.sqrt(dot(push, push) + dot(turn, turn)) > fit.threshold:
            continue
        spin = turn_of(times(strength, turn), x, centre, start.body.masses, s * math.sqrt(strength / total), 1.0)
        farthest, push = 0.0, times(strength / (1 + strength), push)
        for j in range(NUM_JOINTS):
            write(ways, j, times(-u, plus(push, cross(spin, minus(row(x, j), centre)), s)))
            farthest = max(farthest, size(row(ways, j)))
        share = min(fit.cap / max(farthest, 1e-30), 1.0)
        for j in range(NUM_JOINTS):
            write(out[i], j, plus(row(out[i], j), row(ways, j), share))


@inlined_kernel
def _excess(drift: Vector, bound: float, h: float) -> Vector:
    """Return the part of a drift beyond a bound [body weights]."""
    return times(max(1.0 - bound / max(size(drift), 1e-30), 0.0) / (GRAVITY * h), drift)


def root_wrench_of_motion(
    motion: Motion,
    contacts: Bool[np.ndarray, "*b t 22"],
    *,
    cylinders: bool = False,
    options: SimulatorOptions | None = None,
) -> Float[np.ndarray, "*b t 2"]:
    """Return the unexplained force and moment of every frame on level ground, as sizes [body weights, at 1 m].

    The first and the last frame repeat their neighbours.
    """
    residual = unexplained_of_motion(motion, contacts, cylinders=cylinders, options=options)
    sizes = np.linalg.norm(residual.reshape(*residual.shape[:-1], 2, 3), axis=-1)
    sizes /= GRAVITY * motion.skeleton.masses.sum()
    return np.concatenate((sizes[..., :1, :], sizes, sizes[..., -1:, :]), -2)


def unexplained_of_motion(
    motion: Motion,
    contacts: Bool[np.ndarray, "*b t 22"],
    *,
    cylinders: bool = False,
    options: SimulatorOptions | None = None,
) -> Float[np.ndarray, "*b s 6"]:
    """Return the force and moment that no contact explains, in every inner frame of a motion on level ground [N, N m].

    Accelerations are central second differences. External forces that came with the motion are accounted for: those
    between a frame and the next, which the acceleration at the frame shows.
    """
    if len(motion) < 3:
        raise ValueError(
            f"the root wrench needs at least 3 frames for an acceleration, and the motion has {len(motion)}"
        )
    options = options or SimulatorOptions()
    h, skeleton = 1 / motion.fps, motion.skeleton
    before, x, after = motion.joints[..., :-2, :, :], motion.joints[..., 1:-1, :, :], motion.joints[..., 2:, :, :]
    forces = np.zeros(x.shape) if motion.external_forces is None else motion.external_forces[..., 2:, :, :]
    spin = np.zeros((*x.shape[:-2], 3))
    if cylinders:
        spin = cylinder_angular_rate(motion.joints, skeleton.global_rotations(motion.q), skeleton, h)
    num = math.prod(x.shape[:-2])
    normals, friction = np.tile(_UP, (num, NUM_JOINTS, 1)), np.full((num, NUM_JOINTS), options.friction)
    near, still = flat(contacts[..., 1:-1, :], 1), np.zeros((num, NUM_JOINTS, 3))
    support = Support(near, normals, friction, still)
    pushes, velocities = flat(forces, 2), flat((x - before) / h, 2)
    fit = fit_of(skeleton, options)
    start = Start(flat(x, 2), velocities, pushes, pushes, flat(spin, 1), skeleton.arrays, fit, h)
    return explain(start, flat(after, 2), support)[1].reshape(*x.shape[:-2], 6)


def cylinder_angular_rate(
    joints: Float[np.ndarray, "*b t 22 3"], R_world: Float[np.ndarray, "*b t 22 3 3"], skeleton: Skeleton, h: float
) -> Float[np.ndarray, "*b s 3"]:
    """Return the rate of angular momentum of solid cylinders less that of their particles [N m], in inner frames.

    A cylinder of mass m, length L and radius R has second moments m L^2 / 12 along its axis and m R^2 / 4 across it;
    its two end masses have a b / (a + b) L^2 along and nothing across.
    """
    lengths, parents = skeleton.lengths[1:], list(PARENTS[1:])
    meeting = np.array([skeleton.lengths[j] + skeleton.lengths[list(CHILDREN[j])].sum() for j in range(NUM_JOINTS)])
    # A joint's mass belongs to the bones that meet there, in proportion to their lengths; a bone's radius is the mean
    # of its ends'.
    per_length = skeleton.masses / meeting
    near, far = lengths * per_length[parents], lengths * per_length[1:]
    mass, radius = near + far, (skeleton.radii[parents] + skeleton.radii[1:]) / 2
    along, across = mass * lengths**2 / 12 - near * far / mass * lengths**2, mass * radius**2 / 4
    bones = normalize(joints[..., 1:, :] - joints[..., parents, :])
    # A bone turns with the joint at its near end. The rows of the transpose are the axes R e_i.
    axes = R_world[..., parents, :, :].swapaxes(-1, -2)

    def turning(directions: np.ndarray, dim: int) -> np.ndarray:
        """Return d x d^2 d / dt^2 by central differences along the time axis."""
        frames = np.moveaxis(directions, dim, 0)
        return np.moveaxis(np.cross(frames[1:-1], frames[:-2] - 2 * frames[1:-1] + frames[2:]), 0, dim) / h**2

    spin = (across[:, None, None] * turning(axes, -4)).sum((-3, -2))
    return spin + ((along - across)[:, None] * turning(bones, -3)).sum(-2)
