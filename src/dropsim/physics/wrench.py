"""The root wrench, the change of momentum that no contact force explains, and the soft correction that reduces it.

After DROP (Jiang et al. 2023), section 6, and ManipNet (Zhang et al. 2021). Symbols are those of docs/notation.md.
"""

import functools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.joints import CHILDREN, JOINTS, NUM_JOINTS, PARENTS, joint_index
from dropsim.body.kinematics import copy
from dropsim.body.rotations import normalize
from dropsim.body.skeleton import BodyArrays, Skeleton, flat
from dropsim.compute.jit import kernel
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Solids, Touch, near_spheres, of_person
from dropsim.physics.nnls import FINE, check, solve
from dropsim.physics.options import SimulatorOptions

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
_MORE_POINTS = int(_NUM_POINTS.sum()) - NUM_JOINTS
_UP = np.array([0.0, 0.0, 1.0])
DRIFT_TIME = 0.5
"""Time over which unexplained changes of velocity are added up [s]."""
IMPACT = 8.0
"""Largest load on anything that hits the ground [body weights]: hips bear 5.6 to 8.6 kN in falls (Robinovitch et al.
1991)."""
LARGEST_WRENCH = 1.5
"""Root wrench from which on candidates are equally impossible [body weights]."""


class Fit(NamedTuple):
    """What every fit of a body's contact forces takes."""

    body_weight: float
    """[N]"""
    scale: float
    """Makes a moment [N m] comparable with a force [N]: one over the arm [1/m]."""
    touch: Touch
    num_edges: int
    """Edges of the pyramid in the friction cone."""
    ridge: float
    limits: np.ndarray
    """Most that feet, and all other joints, bear together [N]."""


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
    body: BodyArrays
    fit: Fit
    h: float
    """Length of the step [s]."""


class Correction(NamedTuple):
    """How the soft correction acts."""

    acts: bool
    """Whether it acts at all."""
    bound: float
    """Unexplained velocity that may add up before it is corrected [m/s]."""
    threshold: float
    weight: float
    cap: float
    """[m]"""


@functools.lru_cache(maxsize=16)
def fit_of(skeleton: Skeleton, options: SimulatorOptions) -> Fit:
    """Return the constants of a body's fits."""
    weight = GRAVITY * float(skeleton.masses.sum())
    limits = weight * np.array([options.largest_load, options.largest_bearing])
    touch = Touch(options.contact_margin, options.friction, options.soles)
    return Fit(weight, 1 / options.moment_arm, touch, options.friction_edges, options.ridge, limits)


def correction_of(options: SimulatorOptions, bound: float) -> Correction:
    """Return the constants of the correction, with a bound on the drift [m/s]."""
    return Correction(options.correct, bound, options.threshold, options.correction_weight, options.correction_cap)


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
    shares: np.ndarray
    """Forces along the edges of the friction cones in the last fit, from which the next one starts, as those of a step
    are alike; one row for all if they are not (n m)."""


def no_shares(num: int, options: SimulatorOptions) -> Float[np.ndarray, "n m"]:
    """Return the shares of nobody's contacts yet, with room for all that can touch."""
    return np.zeros((num, (NUM_JOINTS + _MORE_POINTS) * options.friction_edges))


@kernel
def centre_of_mass(x: Array, masses: Array, out: Array) -> float:
    """Write a person's centre of mass and return the mass."""
    total = 0.0
    for j in range(len(masses)):
        total += masses[j]
    out[:] = 0.0
    for j in range(len(masses)):
        for c in range(3):
            out[c] += masses[j] / total * x[j, c]
    return total


@kernel
def momentum_rate(x: Array, v: Array, after: Array, masses: Array, h: float, centre: Array, b: Array) -> None:
    """Write b of eqs. (12) and (13): the rates of linear and angular momentum when x with velocity v goes to `after`, less gravity.

    Accelerations are ((after - x) / h - v) / h; moments are about the centre of mass of x, with the arms of x.
    """
    b[:] = 0.0
    for j in range(len(masses)):
        ax, ay, az = ((after[j, 0] - x[j, 0]) / h - v[j, 0]) / h, ((after[j, 1] - x[j, 1]) / h - v[j, 1]) / h, 0.0
        az = ((after[j, 2] - x[j, 2]) / h - v[j, 2]) / h
        add_force(masses[j] * ax, masses[j] * ay, masses[j] * az, x[j], centre, 1.0, b)
        b[2] += masses[j] * GRAVITY


@kernel
def add_force(fx: float, fy: float, fz: float, point: Array, centre: Array, sign: float, b: Array) -> None:
    """Add a force at a point to a wrench about a centre."""
    rx, ry, rz = point[0] - centre[0], point[1] - centre[1], point[2] - centre[2]
    b[0] += sign * fx
    b[1] += sign * fy
    b[2] += sign * fz
    b[3] += sign * (ry * fz - rz * fy)
    b[4] += sign * (rz * fx - rx * fz)
    b[5] += sign * (rx * fy - ry * fx)


@kernel
def take_forces(forces: Array, x: Array, centre: Array, b: Array) -> None:
    """Subtract external forces on the joints from a wrench."""
    for j in range(len(x)):
        if forces[j, 0] != 0.0 or forces[j, 1] != 0.0 or forces[j, 2] != 0.0:
            add_force(forces[j, 0], forces[j, 1], forces[j, 2], x[j], centre, -1.0, b)


@kernel
def fit_contacts(
    x: Array, support: Support, i: int, radii: Array, centre: Array, b: Array, fit: Fit, forces: Array, residual: Array
) -> int:
    """Write the contact forces of person i that come nearest to giving a rate of momentum b, eq. (11), and what they leave unexplained.

    Each contact has the edges cos(k) t1 + sin(k) t2 + n / mu of a pyramid inscribed in its friction cone; moments weigh
    at an arm. What slides has less of the cone the faster it is, and in the end only forces from none to full friction
    against the way that it slides.
    """
    near, normals, friction, sliding = support.near[i], support.normals[i], support.friction[i], support.sliding[i]
    most, given = support.shares.shape[1], support.shares[i % len(support.shares)]
    A, edges = np.empty((most, 6)), np.empty((most, 3))
    wrenches, scaled, joint = np.zeros((most, 6)), np.empty(6), np.empty(most, dtype=np.int64)
    n, t, s, point = 0, np.empty(3), np.empty(3), np.empty(3)
    turns = np.empty((fit.num_edges, 2))
    for e in range(fit.num_edges):
        turns[e, 0], turns[e, 1] = (
            math.cos(e * (2 * math.pi / fit.num_edges)),
            math.sin(e * (2 * math.pi / fit.num_edges)),
        )
    for j in range(NUM_JOINTS):
        if not near[j]:
            continue
        normal = normals[j]
        length = _along_foot(x, j, normal, t) if fit.touch.soles else 0.0
        if length == 0.0:
            _perpendicular(normal, t)
        sticks = 1.0 - math.sqrt(sliding[j, 0] ** 2 + sliding[j, 1] ** 2 + sliding[j, 2] ** 2)
        s[0], s[1], s[2] = (
            normal[1] * t[2] - normal[2] * t[1],
            normal[2] * t[0] - normal[0] * t[2],
            normal[0] * t[1] - normal[1] * t[0],
        )
        cosine, sine = b[0] * t[0] + b[1] * t[1] + b[2] * t[2], b[0] * s[0] + b[1] * s[1] + b[2] * s[2]
        size = math.sqrt(cosine * cosine + sine * sine)
        cosine, sine = (cosine / size, sine / size) if size > 1e-9 else (1.0, 0.0)
        for p in range(_NUM_POINTS[j] if length > 0.0 else 1):
            for k in range(3):
                point[k] = x[j, k] - radii[j] * normal[k] + length * (_POINTS[j, p, 0] * t[k] + _POINTS[j, p, 1] * s[k])
            for e in range(fit.num_edges):
                # An edge lies along the force that is asked for, where the pyramid reaches as far as the cone.
                c, d = turns[e, 0] * cosine - turns[e, 1] * sine, turns[e, 0] * sine + turns[e, 1] * cosine
                for k in range(3):
                    edges[n, k] = sticks * (c * t[k] + d * s[k]) - (e % 2) * sliding[j, k] + normal[k] / friction[j]
                add_force(edges[n, 0], edges[n, 1], edges[n, 2], point, centre, 1.0, wrenches[n])
                for r in range(6):
                    A[n, r] = wrenches[n, r] * (1.0 if r < 3 else fit.scale)
                joint[n] = j
                n += 1
    for r in range(6):
        scaled[r] = b[r] * (1.0 if r < 3 else fit.scale)
    status = solve(A, scaled, n, fit.ridge, given)
    forces[:] = 0.0
    for r in range(6):
        residual[r] = b[r]
    if status != FINE:
        return status
    load = np.zeros(2)
    for k in range(n):
        load[_GROUP[joint[k]]] += given[k] / friction[joint[k]]  # every edge has the part 1 / mu along its normal
    for k in range(n):
        group = _GROUP[joint[k]]
        given[k] *= fit.limits[group] / max(load[group], fit.limits[group])
        for r in range(6):
            residual[r] -= given[k] * wrenches[k, r]
        for i in range(3):
            forces[joint[k], i] += given[k] * edges[k, i]
    return FINE


@kernel
def _along_foot(x: Array, j: int, normal: Array, out: Array) -> float:
    """Write the unit vector from heel to toes in the surface, and return the foot's length from ankle to ball; 0 for other joints."""
    if _NUM_POINTS[j] == 1:
        return 0.0
    ankle, toe = (j, j + 3) if j < 9 else (j - 3, j)
    dx, dy, dz = x[toe, 0] - x[ankle, 0], x[toe, 1] - x[ankle, 1], x[toe, 2] - x[ankle, 2]
    length, up = math.sqrt(dx * dx + dy * dy + dz * dz), dx * normal[0] + dy * normal[1] + dz * normal[2]
    dx, dy, dz = dx - up * normal[0], dy - up * normal[1], dz - up * normal[2]
    flat = math.sqrt(dx * dx + dy * dy + dz * dz)
    if flat < 0.3 * length:  # a foot that stands upright on its toes or heel has no sole on the ground
        return 0.0
    out[0], out[1], out[2] = dx / flat, dy / flat, dz / flat
    return length


@kernel
def _perpendicular(a: Array, out: Array) -> None:
    """Cross with the axis in which a is smallest, the first of equals."""
    if abs(a[0]) <= abs(a[1]) and abs(a[0]) <= abs(a[2]):
        out[0], out[1], out[2] = 0.0, a[2], -a[1]
    elif abs(a[1]) <= abs(a[2]):
        out[0], out[1], out[2] = -a[2], 0.0, a[0]
    else:
        out[0], out[1], out[2] = a[1], -a[0], 0.0
    size = max(math.sqrt(out[0] ** 2 + out[1] ** 2 + out[2] ** 2), 1e-12)
    out[0], out[1], out[2] = out[0] / size, out[1] / size, out[2] / size


@kernel
def turn_of(
    mx: float, my: float, mz: float, x: Array, centre: Array, masses: Array, arm: float, ridge: float, out: Array
) -> None:
    """Solve (arm^2 I + ridge) out = m with I the body's inertia about its centre, by cofactors."""
    xx = yy = zz = xy = yz = zx = 0.0
    for j in range(len(masses)):
        m, rx, ry, rz = masses[j], x[j, 0] - centre[0], x[j, 1] - centre[1], x[j, 2] - centre[2]
        xx += m * (ry * ry + rz * rz)
        yy += m * (rx * rx + rz * rz)
        zz += m * (rx * rx + ry * ry)
        xy -= m * rx * ry
        yz -= m * ry * rz
        zx -= m * rz * rx
    s = arm * arm
    xx, yy, zz, xy, yz, zx = s * xx + ridge, s * yy + ridge, s * zz + ridge, s * xy, s * yz, s * zx
    a, b, c = yy * zz - yz * yz, yz * zx - xy * zz, xy * yz - yy * zx
    d, e, f = xx * zz - zx * zx, xy * zx - xx * yz, xx * yy - xy * xy
    determinant = xx * a + xy * b + zx * c
    mx, my, mz = mx / determinant, my / determinant, mz / determinant
    out[0], out[1], out[2] = a * mx + b * my + c * mz, b * mx + d * my + e * mz, c * mx + e * my + f * mz


@kernel
def _fit_step(
    start: Start,
    i: int,
    after: Array,
    forces: Array,
    support: Support,
    centre: Array,
    b: Array,
    fitted: Array,
    residual: Array,
) -> int:
    """Write the rate of momentum of person i who goes to `after`, the contact forces, and the root wrench they leave."""
    momentum_rate(start.x[i], start.v[i], after, start.body.masses, start.h, centre, b)
    take_forces(forces, start.x[i], centre, b)
    return fit_contacts(start.x[i], support, i, start.body.radii, centre, b, start.fit, fitted, residual)


@kernel
def aim(
    start: Start,
    candidates: Array,
    costs: Array,
    weight: float,
    solids: Solids,
    react: bool,
    support: Support,
    chosen: Array,
    ways: Array,
    y: Array,
) -> int:
    """Choose the cheapest candidates, and write where momentum, forces and the ground's reaction lead: y of eq. (1).

    A candidate's own cost grows by the square of its root wrench [body weights], times a weight. The reaction is what
    contact can give of the chosen candidate's change of momentum; it moves the body as a rigid one. External forces do
    not enter, because the person has not met them yet, but for the loads among them, which the person carries:
    reaction and loads move the body together. `ways` is how far the reaction moves the body within the step, along the
    contacts' normals and along their surfaces [m].
    """
    x, v, forces, loads, body, fit, h = start
    centre, b, fitted, spin, residual = np.empty(3), np.empty(6), np.empty((NUM_JOINTS, 3)), np.empty(3), np.empty(6)
    reaction, bearing, status = np.empty(6), np.empty((NUM_JOINTS, 3)), FINE
    open_costs = np.empty(costs.shape[1])
    for i in range(len(x)):
        near, normals, here = support.near[i], support.normals[i], of_person(solids, i)
        total = centre_of_mass(x[i], body.masses, centre)
        open_costs[:], cheapest, last = costs[i], math.inf, -1
        while True:
            k = np.argmin(open_costs)
            if last >= 0 and not open_costs[k] < cheapest:  # no wrench makes up for that
                break
            first, last, open_costs[k] = last < 0, k, math.inf
            _meet(start, i, candidates[i, k], here, support)
            fault = _fit_step(start, i, candidates[i, k], loads[i], support, centre, b, fitted, residual)
            status = max(status, fault)
            cost = costs[i, k] + weight * min(_size(residual, fit), LARGEST_WRENCH) ** 2
            if first or cost < cheapest:
                cheapest, chosen[i] = cost, k
                for r in range(6):
                    reaction[r] = b[r] - residual[r]
                copy(fitted, bearing)
        if last != chosen[i]:
            _meet(start, i, candidates[i, chosen[i]], here, support)
        if react:
            _load(bearing, near, normals, h * h / total, ways[i])
        else:
            ways[i] = 0.0
        for j in range(NUM_JOINTS):
            add_force(loads[i, j, 0], loads[i, j, 1], loads[i, j, 2], x[i, j], centre, 1.0, reaction)
        turn_of(reaction[3], reaction[4], reaction[5], x[i], centre, body.masses, 1.0, 0.0, spin)
        for j in range(NUM_JOINTS):
            rx, ry, rz = x[i, j, 0] - centre[0], x[i, j, 1] - centre[1], x[i, j, 2] - centre[2]
            turned = (spin[1] * rz - spin[2] * ry, spin[2] * rx - spin[0] * rz, spin[0] * ry - spin[1] * rx)
            for k in range(3):
                acceleration = (forces[i, j, k] - (loads[i, j, k] if react else 0.0)) / body.masses[j] - (
                    GRAVITY if k == 2 else 0.0
                )
                if react:
                    acceleration += reaction[k] / total + turned[k]
                y[i, j, k] = x[i, j, k] + h * v[i, j, k] + h * h * acceleration
    return status


@kernel
def _meet(start: Start, i: int, after: Array, here: Solids, support: Support) -> None:
    """Write what of person i can bear a force on the way to a candidate."""
    near, normals, friction, sliding = support.near[i], support.normals[i], support.friction[i], support.sliding[i]
    x, radii, touch = start.x[i], start.body.radii, start.fit.touch
    near_spheres(x, after, start.h, radii, here, touch, near, normals, friction, sliding)


@kernel
def _size(residual: Array, fit: Fit) -> float:
    """Return the size of a root wrench, moments at the arm [body weights]."""
    total = 0.0
    for r in range(6):
        total += (residual[r] * (1.0 if r < 3 else fit.scale)) ** 2
    return math.sqrt(total) / fit.body_weight


@kernel
def _load(forces: Array, near: Array, normals: Array, scale: float, out: Array) -> None:
    """Write the sum of contact forces along their normals, and the size of the sum of the rest, times a scale."""
    load, rx, ry, rz = 0.0, 0.0, 0.0, 0.0
    for j in range(NUM_JOINTS):
        if near[j]:
            normal, force = normals[j], forces[j]
            along = force[0] * normal[0] + force[1] * normal[1] + force[2] * normal[2]
            load += along
            rx, ry, rz = (
                rx + force[0] - along * normal[0],
                ry + force[1] - along * normal[1],
                rz + force[2] - along * normal[2],
            )
    out[0], out[1] = scale * load, scale * math.sqrt(rx * rx + ry * ry + rz * rz)


@kernel
def balance(
    start: Start, solved: Array, support: Support, correction: Correction, drift: Array, out: Array, wrench: Array
) -> int:
    """Write solutions moved so that contact explains more of them, eq. (14), and the root wrench before that.

    With e the excess of the root wrench in body weights, and u = g h^2 the way that one body weight moves a body within
    a step:

        dx = argmin |dx|^2_M / m + w_p |u e + J dx|^2

    J maps displacements to the change of u e. M weighs by mass, so dx is a rigid motion, which stretches no bone: -u
    w_p / (1 + w_p) of the force, and the turn -u s z about the centre with (w_p s^2 I / m + 1) z = w_p e, s the scale
    of moments.
    """
    centre, b, e = np.empty(3), np.empty(6), np.empty(6)
    fitted, residual, turn = np.empty((NUM_JOINTS, 3)), np.empty(6), np.empty(3)
    x, _, forces, _, body, fit, h = start
    u, status = GRAVITY * h * h, FINE
    for i in range(len(x)):
        total = centre_of_mass(x[i], body.masses, centre)
        fault = _fit_step(start, i, solved[i], forces[i], support, centre, b, fitted, residual)
        status = max(status, fault)
        wrench[i] = _norm(residual) / fit.body_weight
        copy(solved[i], out[i])
        if not correction.acts:
            continue
        _add_drift(drift[i], residual, fit, h, e)
        for part in (e[:3], e[3:]):
            # Residuals that alternate pass: what would carry their sum beyond the bound does not.
            excess = max(1.0 - correction.bound / max(_norm(part), 1e-30), 0.0) / (GRAVITY * h)
            for r in range(3):
                part[r] *= excess
        if not _norm(e) > correction.threshold:
            continue
        strength = correction.weight
        mx, my, mz = strength * e[3], strength * e[4], strength * e[5]
        turn_of(mx, my, mz, x[i], centre, body.masses, fit.scale * math.sqrt(strength / total), 1.0, turn)
        farthest = 0.0
        for j in range(NUM_JOINTS):
            rx, ry, rz = x[i, j, 0] - centre[0], x[i, j, 1] - centre[1], x[i, j, 2] - centre[2]
            share, s = strength / (1 + strength), fit.scale
            fitted[j, 0] = -u * (share * e[0] + s * (turn[1] * rz - turn[2] * ry))
            fitted[j, 1] = -u * (share * e[1] + s * (turn[2] * rx - turn[0] * rz))
            fitted[j, 2] = -u * (share * e[2] + s * (turn[0] * ry - turn[1] * rx))
            farthest = max(farthest, _norm(fitted[j]))
        size = min(correction.cap / max(farthest, 1e-30), 1.0)
        for j in range(NUM_JOINTS):
            for k in range(3):
                out[i, j, k] += size * fitted[j, k]
    return status


@kernel
def _add_drift(drift: Array, residual: Array, fit: Fit, h: float, out: Array) -> None:
    """Write the unexplained velocity of the last half second with that of a step, which has a root wrench [m/s]; moments at the arm."""
    for r in range(6):
        change = GRAVITY * h * residual[r] * (1.0 if r < 3 else fit.scale) / fit.body_weight
        out[r] = (1.0 - h / DRIFT_TIME) * drift[r] + change


@kernel
def _norm(vector: Array) -> float:
    total = 0.0
    for k in range(len(vector)):
        total += vector[k] * vector[k]
    return math.sqrt(total)


@kernel
def explain(
    start: Start, after: Array, support: Support, drift: Array, fitted: Array, residual: Array, drifted: Array
) -> int:
    """Write the contact forces of a step to `after`, the root wrench they leave [N, N m], and the drift after it [m/s]."""
    centre, b, status = np.empty(3), np.empty(6), FINE
    for i in range(len(after)):
        centre_of_mass(start.x[i], start.body.masses, centre)
        fault = _fit_step(start, i, after[i], start.forces[i], support, centre, b, fitted[i], residual[i])
        status = max(status, fault)
        _add_drift(drift[i], residual[i], start.fit, start.h, drifted[i])
    return status


def root_wrench_of_motion(
    motion: Motion,
    contacts: Bool[np.ndarray, "*b t 22"],
    *,
    cylinders: bool = False,
    options: SimulatorOptions | None = None,
) -> Float[np.ndarray, "*b t 2"]:
    """Return the norms of the unexplained force and moment of every frame of a motion on level ground [body weights, at 1 m].

    The first and the last frame repeat their neighbours.
    """
    residual = unexplained_of_motion(motion, contacts, cylinders=cylinders, options=options)
    sizes = np.stack((np.linalg.norm(residual[..., :3], axis=-1), np.linalg.norm(residual[..., 3:], axis=-1)), -1)
    sizes /= GRAVITY * motion.skeleton.masses.sum()
    return np.concatenate((sizes[..., :1, :], sizes, sizes[..., -1:, :]), -2)


def unexplained_of_motion(
    motion: Motion,
    contacts: Bool[np.ndarray, "*b t 22"],
    *,
    cylinders: bool = False,
    options: SimulatorOptions | None = None,
) -> Float[np.ndarray, "*b s 6"]:
    """Return the force and moment that no contact explains, in every frame of a motion on level ground but the first and last [N, N m].

    Accelerations are central second differences. External forces that came with the motion are accounted for: those
    between a frame and the next, which the acceleration at the frame shows.
    """
    if len(motion) < 3:
        raise ValueError(
            f"the root wrench needs at least 3 frames for an acceleration, and the motion has {len(motion)}"
        )
    # How the load is spread does not show in the sizes.
    options = replace(options or SimulatorOptions(), ridge=0.0)
    h, skeleton = 1 / motion.fps, motion.skeleton
    before, x, after = motion.joints[..., :-2, :, :], motion.joints[..., 1:-1, :, :], motion.joints[..., 2:, :, :]
    forces = np.zeros(x.shape) if motion.external_forces is None else motion.external_forces[..., 2:, :, :]
    spin = np.zeros((*x.shape[:-2], 3))
    if cylinders:
        spin = cylinder_angular_rate(motion.joints, skeleton.global_rotations(motion.q), skeleton, h)
    friction = np.full(x.shape[:-1], options.friction)
    normals, still = np.broadcast_to(_UP, x.shape), np.zeros(x.shape)
    support = Support(
        flat(contacts[..., 1:-1, :], 1), flat(normals, 2), flat(friction, 1), flat(still, 2), no_shares(1, options)
    )
    residual = np.empty((*x.shape[:-2], 6))
    fit, pushes = fit_of(skeleton, options), flat(forces, 2)
    start = Start(flat(x, 2), flat((x - before) / h, 2), pushes, pushes, skeleton.arrays, fit, h)
    check(_explain_frames(start, flat(after, 2), flat(spin, 1), support, flat(residual, 1)))
    return residual


@kernel
def _explain_frames(start: Start, after: Array, spin: Array, support: Support, residual: Array) -> int:
    """Write the root wrench of steps in which bodies have some more rate of angular momentum, `spin` [N m]."""
    x, v, forces, _, body, fit, h = start
    centre, b, fitted, status = np.empty(3), np.empty(6), np.empty((NUM_JOINTS, 3)), FINE
    for i in range(len(x)):
        centre_of_mass(x[i], body.masses, centre)
        momentum_rate(x[i], v[i], after[i], body.masses, h, centre, b)
        take_forces(forces[i], x[i], centre, b)
        for k in range(3):
            b[3 + k] += spin[i, k]
        support.shares[:] = 0.0
        status = max(status, fit_contacts(x[i], support, i, body.radii, centre, b, fit, fitted, residual[i]))
    return status


def cylinder_angular_rate(
    joints: Float[np.ndarray, "*b t 22 3"], R_world: Float[np.ndarray, "*b t 22 3 3"], skeleton: Skeleton, h: float
) -> Float[np.ndarray, "*b s 3"]:
    """Return the rate of angular momentum that limbs of solid cylinders have beside point masses at the joints [N m], for inner frames.

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
