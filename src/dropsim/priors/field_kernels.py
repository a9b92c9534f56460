"""Kernels of the motion field: features of people, and what the recordings do next applied to a body's own pose."""

import math
from typing import Any, NamedTuple

import numpy as np

from dropsim.body.joints import MIRROR, NUM_JOINTS, PARENTS
from dropsim.body.kinematics import chain, copy, product, product_transposed, swing
from dropsim.body.skeleton import BodyArrays
from dropsim.compute.jit import inlined_kernel, kernel
from dropsim.files.units import GRAVITY

Array = Any
"""numba knows the types."""
_PARENTS, _MIRROR = np.array(PARENTS), np.array(MIRROR)
LEGS = np.array([(1, 4, 7, 10), (2, 5, 8, 11)])
"""Hip, knee, ankle and toes, left and right."""
HEAD = 15
_ORIGIN = np.zeros(3)
WEIGHTS = np.ones(NUM_JOINTS)
WEIGHTS[[0, 7, 8, 10, 11]] = 2.0
WEIGHTS[[18, 19, 20, 21]] = 0.5
"""Weights of the joints in the features: what carries the body counts twice, arms half."""
LOOK_AHEAD = 0.15
"""Seconds for which velocities count like displacements in the features [s]."""
HELD = 0.03
"""Feet that are to stand and are no higher than this above the floor keep their place, as far as the leg reaches [m];
others come down."""
GROUNDED = 0.05
"""Feet no higher than this above the floor bear the body [m]."""
SEATED = 0.35
"""Below this height of the pelvis people do not stand on their feet [m]."""
LOW = 0.6
"""Below this height of the pelvis people are on the way to the ground [m]."""
ABSORBS = 0.15
"""Time constant in which legs absorb a difference in height and its velocity [s]: about half of a runner's stance."""
LEG_SPEED = 4.0
"""Speed at which a leg is brought to the recorded height of its foot, at most [m/s]: feet of sprinters come down so
fast."""
STRAIGHT = 0.98
"""Share of a leg's length from which on it straightens ever more slowly: the knee is bent by 23 degrees there."""
LONGEST = 0.9995
"""Share of a leg's length to which it is stretched at most: the knee keeps its side."""
FASTEST_TURN = 4.4
"""Speed at which the pelvis turns toward the recording's at most [rad/s]: recorded ones turn slower in 99 % of all
frames."""
NUM_FEATURES = 6 * NUM_JOINTS + 3


class Frames(NamedTuple):
    """Recorded frames; rows count through the frames, and then through their mirror images."""

    root: np.ndarray
    """Pelvis, on a floor at z = 0 (n 3) [m]."""
    quaternions: np.ndarray
    """Local rotations, the first in the world (n 22 4), (x, y, z, w)."""
    standing: np.ndarray
    """Feet that stand, left and right (n 2)."""
    last: np.ndarray
    """Last frame of each frame's clip (n)."""
    lands: np.ndarray
    """Frame from each one on in which a foot stands (n 2); -1 if it is not known or takes long."""


class People(NamedTuple):
    """People who are asked for their next frames, and what they notice of themselves."""

    x: np.ndarray
    """Joints (n 22 3) [m]."""
    v: np.ndarray
    """Velocities of the joints (n 22 3) [m/s]."""
    q: np.ndarray
    """Local rotations (n 22 3 3)."""
    memory: np.ndarray
    """Memory of the field (n m)."""
    yaws: np.ndarray
    """Headings, about z from +y (n) [rad]."""
    falls: np.ndarray
    """How far they are out of balance, in the heading frame and on the recordings' body (n 2) [m]."""
    shaken: np.ndarray
    """Number of frames for which they were out of balance (n)."""
    late: np.ndarray
    """True while a person is off balance but within the reaction time (n)."""
    rising: np.ndarray
    """True for people who get up (n)."""
    behind: np.ndarray
    """How far they lag behind the velocity asked for (n 2) [m]."""

    @classmethod
    def of(cls, x: Array, v: Array, q: Array, memory: Array) -> "People":
        """Return people who have not noticed anything yet."""
        n = len(x)
        late, rising = (np.zeros(n, dtype=np.bool_) for _ in range(2))
        return cls(x, v, q, memory, np.zeros(n), np.zeros((n, 2)), np.zeros(n), late, rising, np.zeros((n, 2)))


class Rules(NamedTuple):
    """Options of a motion field for one body."""

    h: float
    """Length of a frame [s]."""
    scale: float
    """Size of the body relative to the recordings'."""
    fade: float
    """Share of an offset from the recording that is gone after a frame."""
    fade_rising: float
    """The same for people who get up."""
    going_on: float
    """Bonus of the recording that is followed [m^2]."""
    catch: float
    """Weight of how far the body is out of balance when the recording's next foot lands."""
    noise: float
    """Mean of the chance that is added to the cost of all others [m^2]."""
    reaction: float
    """Time for which people who are off balance go on as before [frames]."""


@inlined_kernel
def load(frames: Frames, row: int, root: Array, quaternions: Array) -> None:
    """Write a recorded frame or its mirror image, by reflection in the plane x = 0."""
    n = len(frames.root)
    at = row % n
    if row < n:
        for c in range(3):
            root[c] = frames.root[at, c]
        for j in range(NUM_JOINTS):
            for c in range(4):
                quaternions[j, c] = frames.quaternions[at, j, c]
        return
    root[0], root[1], root[2] = -frames.root[at, 0], frames.root[at, 1], frames.root[at, 2]
    for j in range(NUM_JOINTS):
        m = _MIRROR[j]
        quaternions[j, 0], quaternions[j, 3] = frames.quaternions[at, m, 0], frames.quaternions[at, m, 3]
        quaternions[j, 1], quaternions[j, 2] = -frames.quaternions[at, m, 1], -frames.quaternions[at, m, 2]


@inlined_kernel
def times(a: Array, b: Array, out: Array) -> None:
    """Out = a b; out may be one of them."""
    ax, ay, az, aw, bx, by, bz, bw = a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]
    out[0] = aw * bx + ax * bw + ay * bz - az * by
    out[1] = aw * by - ax * bz + ay * bw + az * bx
    out[2] = aw * bz + ax * by - ay * bx + az * bw
    out[3] = aw * bw - ax * bx - ay * by - az * bz


@inlined_kernel
def turned(a: Array, x: float, y: float, z: float, at: Array, out: Array) -> None:
    """Out = at + the vector (x, y, z) turned by a quaternion of any length."""
    ax, ay, az, aw = a[0], a[1], a[2], a[3]
    s = 2.0 / (ax * ax + ay * ay + az * az + aw * aw)
    tx, ty, tz = s * (ay * z - az * y), s * (az * x - ax * z), s * (ax * y - ay * x)
    out[0] = at[0] + x + aw * tx + ay * tz - az * ty
    out[1] = at[1] + y + aw * ty + az * tx - ax * tz
    out[2] = at[2] + z + aw * tz + ax * ty - ay * tx


@kernel
def to_matrix(a: Array, out: Array) -> None:
    """Write the rotation matrix of a quaternion of any length."""
    x, y, z, w = a[0], a[1], a[2], a[3]
    s = 2.0 / (x * x + y * y + z * z + w * w)
    out[0, 0], out[0, 1], out[0, 2] = 1.0 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)
    out[1, 0], out[1, 1], out[1, 2] = s * (x * y + w * z), 1.0 - s * (x * x + z * z), s * (y * z - w * x)
    out[2, 0], out[2, 1], out[2, 2] = s * (x * z - w * y), s * (y * z + w * x), 1.0 - s * (x * x + y * y)


@kernel
def to_quaternion(R: Array, out: Array) -> None:
    """Write the unit quaternion of a rotation matrix (Shepperd 1978)."""
    trace = R[0, 0] + R[1, 1] + R[2, 2]
    if trace > 0.0:
        s = 2.0 * math.sqrt(trace + 1.0)
        out[0] = (R[2, 1] - R[1, 2]) / s
        out[1] = (R[0, 2] - R[2, 0]) / s
        out[2] = (R[1, 0] - R[0, 1]) / s
        out[3] = 0.25 * s
        return
    i = 0
    if R[1, 1] > R[0, 0]:
        i = 1
    if R[2, 2] > R[i, i]:
        i = 2
    j, k = (i + 1) % 3, (i + 2) % 3
    s = 2.0 * math.sqrt(max(1.0 + R[i, i] - R[j, j] - R[k, k], 1e-12))
    out[i], out[j], out[k] = 0.25 * s, (R[j, i] + R[i, j]) / s, (R[k, i] + R[i, k]) / s
    out[3] = (R[k, j] - R[j, k]) / s


@kernel
def yaw_of(R: Array) -> float:
    """Return the angle about z of a body's facing, from +y counterclockwise, by where its right side points."""
    return math.atan2(-R[1, 0], -R[0, 0])


@kernel
def features(x: Array, v: Array, yaw: float, out: Array) -> None:
    """Write a person's features: joints around the pelvis in the heading frame, velocities as displacements, the root's velocity."""
    c, s = math.cos(yaw), math.sin(yaw)
    for j in range(NUM_JOINTS):
        w = WEIGHTS[j]
        dx, dy = x[j, 0] - x[0, 0], x[j, 1] - x[0, 1]
        out[3 * j], out[3 * j + 1], out[3 * j + 2] = w * (c * dx + s * dy), w * (c * dy - s * dx), w * x[j, 2]
        at, w = 3 * (NUM_JOINTS + j), w * LOOK_AHEAD
        out[at] = w * (c * v[j, 0] + s * v[j, 1])
        out[at + 1] = w * (c * v[j, 1] - s * v[j, 0])
        out[at + 2] = w * v[j, 2]
    at = 6 * NUM_JOINTS
    out[at], out[at + 1], out[at + 2] = c * v[0, 0] + s * v[0, 1], c * v[0, 1] - s * v[0, 0], v[0, 2]


@kernel
def features_of_frames(
    frames: Frames, body: BodyArrays, fps: float, out: Array, falling: Array, heads: Array, yaws: Array
) -> None:
    """Write the features of all frames and mirror images, how far they are out of balance, head heights and headings.

    Velocities are differences from the frame before.
    """
    root, quaternions, v = np.empty(3), np.empty((NUM_JOINTS, 4)), np.empty((NUM_JOINTS, 3))
    q, world = np.empty((NUM_JOINTS, 3, 3)), np.empty((NUM_JOINTS, 3, 3))
    now, past, balance, one = np.empty((NUM_JOINTS, 3)), np.empty((NUM_JOINTS, 3)), np.empty(2), np.empty(NUM_FEATURES)
    n = len(frames.root)
    for row in range(2 * n):
        load(frames, row, root, quaternions)
        for j in range(NUM_JOINTS):
            to_matrix(quaternions[j], q[j])
        for c in range(3):
            now[0, c] = root[c]
        chain(q, body.offsets, world, now)
        yaws[row], heads[row] = yaw_of(q[0]), now[HEAD, 2]
        starts = row % n == 0 or frames.last[row % n - 1] != frames.last[row % n]
        for j in range(NUM_JOINTS):
            for c in range(3):
                v[j, c] = 0.0 if starts else (now[j, c] - past[j, c]) * fps
        features(now, v, yaws[row], one)
        overbalance(now, v, yaws[row], body.masses, body.radii, balance)
        falling[row, 0], falling[row, 1] = balance[0], balance[1]
        for k in range(NUM_FEATURES):
            out[row, k] = one[k]
        copy(now, past)


@kernel
def landings(
    people: People, rows: Array, frames: Frames, body: BodyArrays, rules: Rules, seconds: Array, places: Array
) -> None:
    """Write when and where the feet of people who follow recordings will stand; what is off the recording now fades."""
    now_root, now_q, then_root, then_q = np.empty(3), np.empty((NUM_JOINTS, 4)), np.empty(3), np.empty((NUM_JOINTS, 4))
    R, above, here, there = np.empty((3, 3)), np.empty(4), np.empty(3), np.empty(3)
    n = len(frames.root)
    for i in range(len(rows)):
        row, x = rows[i], people.x[i]
        if row < 0:
            continue
        load(frames, row, now_root, now_q)
        to_matrix(now_q[0], R)
        yaw = yaw_of(people.q[i, 0]) - yaw_of(R)
        for side in range(2):
            lands = frames.lands[row % n, side if row < n else 1 - side]
            if lands < 0:
                continue
            frames_left, ankle = lands - row % n, LEGS[side, 2]
            load(frames, row + frames_left, then_root, then_q)
            _ankle(now_q, LEGS[side], body, above, here)
            _ankle(then_q, LEGS[side], body, above, there)
            ox, oy = _about_z(yaw, here[0], here[1])
            tx, ty = rules.scale * (then_root[0] - now_root[0]), rules.scale * (then_root[1] - now_root[1])
            tx, ty = _about_z(yaw, tx + there[0], ty + there[1])
            left = (1.0 - rules.fade) ** frames_left
            seconds[i, side] = rules.h * frames_left
            places[i, side, 0] = x[0, 0] + tx + left * (x[ankle, 0] - x[0, 0] - ox)
            places[i, side, 1] = x[0, 1] + ty + left * (x[ankle, 1] - x[0, 1] - oy)


@inlined_kernel
def _about_z(angle: float, x: float, y: float) -> tuple[float, float]:
    """Return a horizontal vector turned about z."""
    c, s = math.cos(angle), math.sin(angle)
    return c * x - s * y, s * x + c * y


@inlined_kernel
def _turn(angle: float, a: Array) -> None:
    """Turn a rotation about z, in place."""
    c, s = math.cos(0.5 * angle), math.sin(0.5 * angle)
    a[0], a[1], a[2], a[3] = c * a[0] - s * a[1], c * a[1] + s * a[0], c * a[2] + s * a[3], c * a[3] - s * a[2]


@inlined_kernel
def _spring(h: float, seconds: float) -> tuple[float, float]:
    """Return what is left of a velocity after a frame of critically damped motion, and the share of an offset that is gone."""
    return max(1.0 - 2.0 * h / seconds, 0.0), (h / seconds) ** 2


@kernel
def follow(
    people: People, rows: Array, frames: Frames, body: BodyArrays, rules: Rules, next_x: Array, next_q: Array
) -> None:
    """Write K next frames of everyone: recorded changes of their own pose, with the offset to the recording fading.

    So does where the pelvis is over the feet on which the recording stands; these keep their place, and the legs reach
    for it.
    """
    ankles, goals, steps, shares = np.empty((2, 3)), np.empty((2, 3)), np.empty((2, 3)), np.empty(2)
    own, then_rotations, world = np.empty((NUM_JOINTS, 4)), np.empty((NUM_JOINTS, 4)), np.empty((NUM_JOINTS, 3, 3))
    now_root, now_q, then_root, then_q = np.empty(3), np.empty((NUM_JOINTS, 4)), np.empty(3), np.empty((NUM_JOINTS, 4))
    R, above, foot, stands = np.empty((3, 3)), np.empty(4), np.empty(3), np.empty(2, dtype=np.bool_)
    n = len(frames.root)
    for i in range(len(rows)):
        x, v = people.x[i], people.v[i]
        fade = rules.fade_rising if people.rising[i] else rules.fade
        seconds = rules.h / math.sqrt(fade) if people.rising[i] else math.sqrt(max(x[0, 2], LOW) / GRAVITY)
        for j in range(NUM_JOINTS):
            to_quaternion(people.q[i, j], own[j])
        for k in range(rows.shape[1]):
            row, p, q = rows[i, k], next_x[i, k], next_q[i, k]
            if k > 0 and row == rows[i, 0]:
                copy(next_x[i, 0], p)
                for j in range(NUM_JOINTS):
                    copy(next_q[i, 0, j], q[j])
                continue
            load(frames, row, now_root, now_q)
            load(frames, row + 1, then_root, then_q)
            to_matrix(now_q[0], R)
            yaw = people.yaws[i] - yaw_of(R)
            _turn(yaw, now_q[0])
            _turn(yaw, then_q[0])
            _blend(own, now_q, then_q, fade, FASTEST_TURN * rules.h, then_rotations)
            at, mirror = row % n, 1.0 if row < n else -1.0
            feet, ox, oy, sine, cosine = 0, 0.0, 0.0, 0.0, 0.0
            for side in range(2):
                _ankle(now_q, LEGS[side], body, above, steps[side])
                _ankle(then_q, LEGS[side], body, above, ankles[side])
                recorded = side if row < n else 1 - side
                lands = frames.lands[at + 1, recorded]
                shares[side] = 1.0 / (lands - at) if lands >= 0 else 0.0
                stands[side] = frames.standing[at, recorded] and frames.standing[at + 1, recorded]
                if stands[side]:
                    # How far the pelvis is from where the recording has it over this foot, a moment later, and how it
                    # is turned over it.
                    ankle, toe = LEGS[side, 2], LEGS[side, 3]
                    o, fx, fy = body.offsets[toe], x[toe, 0] - x[ankle, 0], x[toe, 1] - x[ankle, 1]
                    turned(above, o[0], o[1], o[2], _ORIGIN, foot)
                    sine, cosine = sine + foot[0] * fy - foot[1] * fx, cosine + foot[0] * fx + foot[1] * fy
                    feet += 1
                    ox += x[0, 0] - x[ankle, 0] + ankles[side, 0]
                    oy += x[0, 1] - x[ankle, 1] + ankles[side, 1]
            dx, dy = rules.scale * (then_root[0] - now_root[0]), rules.scale * (then_root[1] - now_root[1])
            dx, dy = _about_z(yaw, dx, dy)
            if feet > 0:
                ox, oy = ox / feet + dx, oy / feet + dy
            # How much faster the body is than the recorded one was on its way here.
            before = frames.root[at - 1 if at > 0 and frames.last[at - 1] == frames.last[at] else at]
            rate = rules.scale / rules.h
            px, py = _about_z(yaw, rate * (now_root[0] - mirror * before[0]), rate * (now_root[1] - before[1]))
            ux, uy, uz = v[0, 0] - px, v[0, 1] - py, v[0, 2] - rate * (now_root[2] - before[2])
            # The pelvis comes back over the feet as a pendulum would that is damped critically, without a jump in its
            # velocity; so does its height, as legs absorb a landing.
            stays, drawn = _spring(rules.h, seconds)
            p[0, 0] = x[0, 0] + dx + stays * rules.h * ux - drawn * ox
            p[0, 1] = x[0, 1] + dy + stays * rules.h * uy - drawn * oy
            # Over both feet it also turns back.
            if feet == 2:
                _turn(drawn * math.atan2(sine, cosine), then_rotations[0])
            stays, drawn = _spring(rules.h, ABSORBS)
            p[0, 2] = x[0, 2] + rules.scale * (then_root[2] - now_root[2]) + stays * rules.h * uz
            p[0, 2] -= drawn * (x[0, 2] - rules.scale * now_root[2])
            for j in range(NUM_JOINTS):
                to_matrix(then_rotations[j], q[j])
            chain(q, body.offsets, world, p)
            sink = 0.0
            for side in range(2):
                height = rules.scale * then_root[2] + ankles[side, 2]
                ankle, step = LEGS[side, 2], steps[side]
                if stands[side]:
                    _point(x, world, p, ankle, LEGS[side, 3])
                elif people.late[i] or shares[side] == 0.0:
                    step[0], step[1] = 0.0, 0.0
                else:
                    # A foot lands as far from the extrapolated centre of mass as the recorded one does.
                    fx, fy = x[ankle, 0] - x[0, 0] - step[0], x[ankle, 1] - x[0, 1] - step[1]
                    fx, fy = fx + shares[side] * (seconds * ux - fx), fy + shares[side] * (seconds * uy - fy)
                    step[0] = p[0, 0] + ankles[side, 0] + fx - p[ankle, 0]
                    step[1] = p[0, 1] + ankles[side, 1] + fy - p[ankle, 1]
                    size = max(math.sqrt(step[0] ** 2 + step[1] ** 2) / (LEG_SPEED * rules.h), 1.0)
                    step[0], step[1] = step[0] / size, step[1] / size
                _foothold(x, p, LEGS[side], body, height, stands[side], step, rules, goals[side])
                if stands[side]:
                    sink = max(sink, _too_far(p, LEGS[side], body, goals[side]))
                else:
                    _come_near(p, LEGS[side], body, shares[side], goals[side])
            for j in range(NUM_JOINTS):
                p[j, 2] -= sink
            for side in range(2):
                _reach(q, world, p, LEGS[side], body, goals[side], stands[side])


@kernel
def _gap(x: Array, radii: Array, leg: Array) -> float:
    """Return the height of the lower one of heel and toes above the floor [m]."""
    return min(x[leg[2], 2] - radii[leg[2]], x[leg[3], 2] - radii[leg[3]])


@inlined_kernel
def _blend(own: Array, now: Array, then: Array, fade: float, most: float, out: Array) -> None:
    """Write next rotations: the change from one recorded frame to the next, applied to the body, then some of the way to the recording.

    The pelvis goes at most some angle of that way [rad].
    """
    for j in range(NUM_JOINTS):
        ax, ay, az, aw = then[j, 0], then[j, 1], then[j, 2], then[j, 3]
        bx, by, bz, bw = now[j, 0], now[j, 1], now[j, 2], now[j, 3]
        cx, cy = ax * bw - aw * bx - ay * bz + az * by, ay * bw - aw * by + ax * bz - az * bx
        cz, cw = az * bw - aw * bz - ax * by + ay * bx, aw * bw + ax * bx + ay * by + az * bz
        bx, by, bz, bw = own[j, 0], own[j, 1], own[j, 2], own[j, 3]
        dx, dy = cw * bx + cx * bw + cy * bz - cz * by, cw * by - cx * bz + cy * bw + cz * bx
        dz, dw = cw * bz + cx * by - cy * bx + cz * bw, cw * bw - cx * bx - cy * by - cz * bz
        # The two quaternions of a rotation are the same to us: toward the nearer one.
        alike, share = dx * ax + dy * ay + dz * az + dw * aw, fade
        if j == 0:
            share = min(fade, most / max(2.0 * math.acos(min(abs(alike), 1.0)), most))
        toward = math.copysign(share, alike)
        out[j, 0], out[j, 1] = (1.0 - share) * dx + toward * ax, (1.0 - share) * dy + toward * ay
        out[j, 2], out[j, 3] = (1.0 - share) * dz + toward * az, (1.0 - share) * dw + toward * aw


@kernel
def _ankle(quaternions: Array, leg: Array, body: BodyArrays, above: Array, out: Array) -> None:
    """Write where the recording has an ankle, seen from the pelvis, on this body [m]; `above` is scratch."""
    for c in range(4):
        above[c] = quaternions[0, c]
    for c in range(3):
        out[c] = 0.0
    for k in range(3):
        o = body.offsets[leg[k]]
        turned(above, o[0], o[1], o[2], out, out)
        times(above, quaternions[leg[k]], above)


@kernel
def _foothold(
    x: Array,
    p: Array,
    leg: Array,
    body: BodyArrays,
    height: float,
    stands: bool,
    step: Array,
    rules: Rules,
    goal: Array,
) -> None:
    """Write where an ankle goes: to its recorded height above the floor and by a step; one that stands comes down and keeps its place."""
    ankle, toe = leg[2], leg[3]
    # The ankle's height at which the lower one of heel and toes is on the floor.
    floor = max(body.radii[ankle], body.radii[toe] + p[ankle, 2] - p[toe, 2])
    height = max(height, floor)  # pyright: ignore[reportAssignmentType]
    tx, ty = step[0], step[1]
    if stands:
        gap = max(_gap(x, body.radii, leg), 0.0)
        height = floor + (1.0 - rules.fade) * min(gap, height - floor)
        # Feet turn about the heel or about the toes: the one that moves less stays.
        tx, ty = x[ankle, 0] - p[ankle, 0], x[ankle, 1] - p[ankle, 1]
        ux, uy = x[toe, 0] - p[toe, 0], x[toe, 1] - p[toe, 1]
        if ux * ux + uy * uy < tx * tx + ty * ty:
            tx, ty = ux, uy
        if gap > HELD:
            tx, ty = 0.0, 0.0
    most = LEG_SPEED * rules.h
    tz = min(max(height - p[ankle, 2], -most), max(most, floor - p[ankle, 2]))
    goal[0], goal[1], goal[2] = p[ankle, 0] + tx, p[ankle, 1] + ty, p[ankle, 2] + tz


@inlined_kernel
def _given(reach: float, length: float) -> float:
    """Return how far a leg of some length reaches for something: when nearly straight it gives ever less, or knees would snap."""
    bent = STRAIGHT * length
    if reach <= bent:
        return reach
    return bent + (length - bent) * (1.0 - math.exp((bent - reach) / (length - bent)))


@kernel
def _too_far(p: Array, leg: Array, body: BodyArrays, goal: Array) -> float:
    """Return how much lower the hip has to be for a foot that stands to keep its place [m]."""
    hip = p[leg[0]]
    gx, gy, gz = goal[0] - hip[0], goal[1] - hip[1], hip[2] - goal[2]
    across = gx * gx + gy * gy
    length = _given(math.sqrt(across + gz * gz), body.lengths[leg[1]] + body.lengths[leg[2]])
    # A foot that is too far off to be reached from any height is drawn along.
    return max(gz - math.sqrt(length * length - across), 0.0) if across < 0.25 * length * length else 0.0


@kernel
def _come_near(p: Array, leg: Array, body: BodyArrays, soon: float, goal: Array) -> None:
    """Bring the goal of a foot that is too far off for the leg nearer over the ground: it lands nearer, and not late."""
    hip = p[leg[0]]
    gx, gy, gz = goal[0] - hip[0], goal[1] - hip[1], hip[2] - goal[2]
    across, length = math.sqrt(gx * gx + gy * gy), STRAIGHT * (body.lengths[leg[1]] + body.lengths[leg[2]])
    share = min(math.sqrt(max(length * length - gz * gz, 0.0)) / max(across, 1e-9), 1.0)
    share = 1.0 - soon * (1.0 - share)
    goal[0], goal[1] = hip[0] + share * gx, hip[1] + share * gy


@kernel
def _reach(q: Array, world: Array, p: Array, leg: Array, body: BodyArrays, goal: Array, stands: bool) -> None:
    """Let a leg reach for where its ankle goes: thigh and shank swing to their new directions, the foot keeps its own."""
    hip, knee, ankle, toe = leg[0], leg[1], leg[2], leg[3]
    near, far = body.lengths[knee], body.lengths[ankle]
    gx, gy, gz = goal[0] - p[hip, 0], goal[1] - p[hip, 1], goal[2] - p[hip, 2]
    reach = math.sqrt(gx * gx + gy * gy + gz * gz)
    length = min(reach, LONGEST * (near + far)) if stands else _given(reach, near + far)
    gx, gy, gz = gx / reach, gy / reach, gz / reach
    # The knee stays on the side on which it is.
    kx, ky, kz = p[knee, 0] - p[hip, 0], p[knee, 1] - p[hip, 1], p[knee, 2] - p[hip, 2]
    along = kx * gx + ky * gy + kz * gz
    sx, sy, sz = kx - along * gx, ky - along * gy, kz - along * gz
    side = math.sqrt(sx * sx + sy * sy + sz * sz)
    if side < 1e-6:
        return
    forth = (near * near - far * far + length * length) / (2.0 * length)
    out = math.sqrt(max(near * near - forth * forth, 0.0)) / side
    nx, ny, nz = forth * gx + out * sx, forth * gy + out * sy, forth * gz + out * sz
    ax, ay, az = p[ankle, 0] - p[knee, 0], p[ankle, 1] - p[knee, 1], p[ankle, 2] - p[knee, 2]
    _swing(world, hip, (kx, ky, kz), (nx, ny, nz))
    _swing(world, knee, (ax, ay, az), (length * gx - nx, length * gy - ny, length * gz - nz))
    for j, above in ((hip, _PARENTS[hip]), (knee, hip), (ankle, knee)):
        product_transposed(world[above], world[j], q[j])
    for c in range(3):
        shift = p[toe, c] - p[ankle, c]
        p[knee, c] = p[hip, c] + (nx, ny, nz)[c]
        p[ankle, c] = p[hip, c] + length * (gx, gy, gz)[c]
        p[toe, c] = p[ankle, c] + shift


@kernel
def _swing(world: Array, joint: int, a: tuple[float, float, float], b: tuple[float, float, float]) -> None:
    """Turn a joint by the least rotation that takes the direction of a to that of b."""
    S, swung = np.empty((3, 3)), np.empty((3, 3))
    swing(a[0], a[1], a[2], b[0], b[1], b[2], S)
    product(S, world[joint], swung)
    copy(swung, world[joint])


@kernel
def _point(x: Array, world: Array, p: Array, ankle: int, toe: int) -> None:
    """Let a foot that stands point where it points: what differs from the recording fades when the foot is in the air."""
    ax, ay = x[toe, 0] - x[ankle, 0], x[toe, 1] - x[ankle, 1]
    bx, by = p[toe, 0] - p[ankle, 0], p[toe, 1] - p[ankle, 1]
    size = math.sqrt((ax * ax + ay * ay) * (bx * bx + by * by))
    if size < 1e-6:
        return
    c, s = (ax * bx + ay * by) / size, (bx * ay - by * ax) / size
    p[toe, 0], p[toe, 1] = p[ankle, 0] + c * bx - s * by, p[ankle, 1] + s * bx + c * by
    for k in range(3):
        wx, wy = world[ankle, 0, k], world[ankle, 1, k]
        world[ankle, 0, k], world[ankle, 1, k] = c * wx - s * wy, s * wx + c * wy


@kernel
def overbalance(x: Array, v: Array, yaw: float, masses: Array, radii: Array, out: Array) -> None:
    """Write how far a person's extrapolated centre of mass is outside of what the feet span [m], in the heading frame (Hof et al. 2005).

    Seen from above, it is where a body comes to rest over that falls like a pendulum; outside of the feet it takes a
    step. It is 0 for people who are in the air or low on the ground.
    """
    out[:] = 0.0
    points, sizes, centre, speed, num = np.empty((4, 2)), np.empty(4), np.zeros(3), np.zeros(2), 0
    for side in range(2):
        for k in range(2, 4):
            joint = LEGS[side, k]
            if x[joint, 2] - radii[joint] < GROUNDED:
                points[num, 0], points[num, 1], sizes[num] = x[joint, 0], x[joint, 1], radii[joint]
                num += 1
    if num == 0 or x[0, 2] < SEATED:
        return
    total = 0.0
    for j in range(NUM_JOINTS):
        total += masses[j]
        for c in range(3):
            centre[c] += masses[j] * x[j, c]
        speed[0] += masses[j] * v[j, 0]
        speed[1] += masses[j] * v[j, 1]
    seconds = math.sqrt(centre[2] / total / GRAVITY)
    _outside(
        (centre[0] + seconds * speed[0]) / total, (centre[1] + seconds * speed[1]) / total, points, sizes, num, out
    )
    c, s = math.cos(yaw), math.sin(yaw)
    out[0], out[1] = c * out[0] + s * out[1], c * out[1] - s * out[0]


@kernel
def _outside(px: float, py: float, points: Array, sizes: Array, num: int, out: Array) -> None:
    """Write the way from the convex hull of up to four discs to a point; 0 if it is inside."""
    for a in range(num):
        for b in range(a):
            for c in range(b):
                u = _side(points[a], points[b], px, py)
                w = _side(points[b], points[c], px, py)
                z = _side(points[c], points[a], px, py)
                if (u >= 0 and w >= 0 and z >= 0) or (u <= 0 and w <= 0 and z <= 0):
                    return
    best = math.inf
    for a in range(num):
        for b in range(a + 1):
            ex, ey = points[b, 0] - points[a, 0], points[b, 1] - points[a, 1]
            square = ex * ex + ey * ey
            along = 0.0
            if square > 0.0:
                along = min(max(((px - points[a, 0]) * ex + (py - points[a, 1]) * ey) / square, 0.0), 1.0)
            dx, dy = px - points[a, 0] - along * ex, py - points[a, 1] - along * ey
            length = math.sqrt(dx * dx + dy * dy)
            gap = length - (1.0 - along) * sizes[a] - along * sizes[b]
            if gap <= 0.0:
                out[0], out[1] = 0.0, 0.0
                return
            if gap < best:
                best = gap
                out[0], out[1] = dx / length * gap, dy / length * gap


@kernel
def _side(a: Array, b: Array, px: float, py: float) -> float:
    """Return on which side of a line from a to b a point is, by sign."""
    return (b[0] - a[0]) * (py - a[1]) - (b[1] - a[1]) * (px - a[0])
