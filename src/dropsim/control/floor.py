"""Ground at another height than zero: priors know people on a level floor at z = 0.

Over ramps, curbs and steps the prior is asked as if the ground under each foot were that floor, and its proposals are
put back onto the ground: the body at the height of the floor, each foot at its own, with the knee between.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton, flat
from dropsim.compute.jit import kernel
from dropsim.physics.contact import GRIP_GAP, Solids, is_beyond, of_person, ray
from dropsim.physics.shapes import BALL, CENTRE, PLANE, SEEN, SIZES, TURN, Triangles, shape_distance
from dropsim.physics.step import Stage
from dropsim.physics.vectors import dot, minus, over, plus, row, size, write
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, Landings, State

Array = Any
"""numba knows the types."""
LEGS = np.array([(1, 4, 7, 10), (2, 5, 8, 11)])
"""Hip, knee, ankle and toes, left and right."""
STEP = 0.4
"""Highest step that people take [m]: what is higher is a wall."""
DEEP = 20.0
"""Depth to which people look for ground [m]."""
FAR = 1e8
"""Depth below which shapes are placeholders [m]."""
SIGHT = np.array([0.08, 0.16, 0.24, 0.32])
LIFT = np.array([1.0, 0.8, 0.5, 0.2])
"""Times ahead at which a swinging foot sees the ground that it goes over [s], and how much of a rise it makes up for by
then."""
FLOOR_HALF_LIFE, FOOT_HALF_LIFE = 0.12, 0.05
"""Half-lives with which the floor of the body, and that of a foot, follow an edge in the ground [s]; slopes are
followed at once."""
EARLY = 2.0
"""Power by which a foot rises to a higher landing place: (1 - t)^2 of the rise is left after a share t of the way."""
SOLE = np.array([-0.03, 0.0, 0.13, 0.19])
"""Points of a foot that have to be on one level, from the ankle to the tip of the toes; the heel may stick out [m]."""
EVEN = 0.02
"""Difference in height up to which ground is level [m]."""
LANDING, CLEARANCE = 0.12, 0.03
"""Time before landing until which a foot that goes up a step has extra height [s], and that height [m]."""
TIP = 0.03
"""Length of the toes beyond their joint [m]."""
TRY, NUM_TRIES = 0.02, 12
"""Spacing [m] and number of the places before and behind the proposed one at which a foot tries to stand level."""
RISE, CLIMB = 0.2, 2.0
"""Height from which a tread is taken only if a lower one is out of reach [m], and the metres of a shorter or longer step
that a metre more of height is worth."""
UPRIGHT, LOW = 0.65, 0.45
"""Heights of the pelvis between which feet are put onto the ground one by one more and more [m]: not for people who
lie."""
REACH = 0.998
"""Largest share of a leg's length that is used."""
BRAKE = 1.5
"""Deceleration of people before a wall [m/s^2]."""
NOTICE = 0.6
"""Time from the first touch of something that is not seen until people step over it [s]: with the next step."""
REACTION = 0.5
"""Time between the decision to stop and its beginning [s]: about a step of somebody who walks."""
ROOM = 0.45
"""Distance of the pelvis from a wall at which people stop [m]."""
NEAR = 0.05
"""Distance before the face of something at which its ground is looked up [m]."""
CLIMBING, STRETCH = 0.3, 1.0
"""Speed at which people rise on stairs [m/s], 1.6 steps of 17 cm a second and a little more, and the way ahead that
they look at for it [m]."""
CROUCHING, ERECT = 0.15, 0.96
"""Time constant in which people lower and raise their bodies to crouch [s]: a squat takes about a second. And the share
of its height in the rest pose at which people who stand and walk carry the pelvis."""
UNSEEN = 1e-3
"""Depth [m] and speed [m/s] of a crouch that has ended."""
DEEPEST, STRIDE = 0.56, 0.2
"""Share of its height in the rest pose at which people who crouch carry the pelvis at least, and by how much higher they
have it for each m/s of speed [s]: the knee of the leg behind would hit the floor."""
LOOK = (0.5, 1.1)
"""Heights above the floor at which people see walls [m]."""


def lowered(state: State, floor: Float[np.ndarray, "*b"]) -> State:
    """Return people with their ground at height zero."""
    return replace(state, x=state.x - np.stack((0 * floor, 0 * floor, floor), -1)[..., None, :])


class Footing(NamedTuple):
    """The ground under people and under each of their feet; `*b` are the people's batch dimensions."""

    floor: Float[np.ndarray, "*b"]
    """Height of the ground of the body as a whole [m]."""
    feet: Float[np.ndarray, "*b 2"]
    """Height of the ground under the left and the right foot [m]."""
    slopes: Float[np.ndarray, "*b 2 2"]
    """Rise of that ground along x and along y."""
    rate: Float[np.ndarray, "*b"]
    """Velocity with which the floor rises under the person [m/s]."""
    share: Float[np.ndarray, "*b"]
    """Share by which feet are put onto their own ground: 1 for people who are upright, 0 for those who lie."""
    lifts: Float[np.ndarray, "*b 2"]
    """Velocity with which the ground under each foot rises, but for slopes [m/s]."""
    ways: Float[np.ndarray, "*b 2 2"]
    """Way of feet within the step, beyond what the prior proposes, to land on a tread and not on its edge [m]."""
    room: Float[np.ndarray, "*b 2"]
    """Way that toes can go ahead before they are at the face of a step that they are not above yet [m]."""

    @classmethod
    def level(cls, *batch: int) -> "Footing":
        """Return the footing of people on a level floor at height zero."""
        zero = cls(*(np.zeros((*batch, *shape)) for shape in ((), (2,), (2, 2), (), (), (2,), (2, 2), (2,))))
        return zero._replace(share=np.ones(batch), room=np.full((*batch, 2), np.inf))

    def crouched(self, state: State, depth: Float[np.ndarray, "*b"], rate: Float[np.ndarray, "*b"]) -> "Footing":
        """Return the footing of people whose bodies are lowered over their feet by a depth [m] that grows [m/s]."""
        floor = self.floor - depth
        share = np.clip((state.x[..., 0, 2] - floor - LOW) / (UPRIGHT - LOW), 0.0, 1.0)
        return self._replace(floor=floor, rate=self.rate - rate, share=np.where(depth > 0.0, share, self.share))

    def flat(self) -> "Footing":
        """Return the same with people along one dimension."""
        dims = np.ndim(self.floor)
        return Footing(*(flat(np.asarray(values), np.ndim(values) - dims) for values in self))

    @classmethod
    def under(
        cls, state: State, solids: Solids, before: "Footing | None", h: float, landings: Landings | None = None
    ) -> "Footing":
        """Look for the ground under people with rays; edges are followed over some frames, from the footing before."""
        batch = state.x.shape[:-2]
        if landings is None:
            landings = Landings(np.full((*batch, 2), np.nan), np.full((*batch, 2, 2), np.nan))
        footing, known = cls.level(*batch), before is not None
        last, ahead = (before or footing).flat(), (flat(landings.seconds, 1), flat(landings.ankles, 2))
        _find_footing(flat(state.x, 2), flat(state.v, 2), solids, known, last, ahead, h, footing.flat())
        return footing


def crouch(
    before: Float[np.ndarray, "*b 2"] | None, intent: Intent, standing: float, h: float
) -> Float[np.ndarray, "*b 2"] | None:
    """Return how far people have lowered their bodies a step later [m], and how fast [m/s]; None if nobody has.

    They come to the depth that they want as a critically damped spring does, without a jump in their velocity.
    """
    before = np.zeros((*intent.height.shape, 2)) if before is None else before
    depth, rate = before[..., 0], before[..., 1]
    least = DEEPEST * standing + STRIDE * np.nan_to_num(np.linalg.norm(intent.velocity, axis=-1))
    height = np.where(np.isnan(intent.height), standing, np.maximum(intent.height, least))
    goal = np.maximum(ERECT * standing - height, 0.0)
    faster = ((goal - depth) / CROUCHING - 2 * rate) / CROUCHING
    after = np.stack((depth + h * rate, rate + h * faster), -1)
    after[(goal == 0.0) & (np.abs(after).max(-1) < UNSEEN)] = 0.0
    return after if after.any() else None


def noticed(state: State, skeleton: Skeleton, around: Solids, before: Solids | None, h: float) -> Solids:
    """Return what is around people as they know it: what is not seen is known some time after they first touch it."""
    if (around.shapes[..., SEEN] != 0.0).all():
        return around
    x = flat(state.x, 2)
    shapes = np.array(np.broadcast_to(around.shapes, (len(x), *around.shapes.shape[1:])))
    if before is not None and before.shapes.shape == shapes.shape:
        shapes[..., SEEN] = np.maximum(shapes[..., SEEN], before.shapes[..., SEEN])
    _notice(x, skeleton.radii, around.mesh, h / NOTICE, shapes)
    return around._replace(shapes=shapes)


@kernel
def _notice(x: Array, radii: Array, mesh: Triangles, share: float, shapes: Array) -> None:
    """Add a share to how well people know what they have touched, in place."""
    for i in range(len(x)):
        for k in range(shapes.shape[1]):
            shape = shapes[i, k]
            touched = shape[SEEN] > 0.0
            for j in range(0 if touched else x.shape[1]):
                p, reach = row(x[i], j), radii[j] + GRIP_GAP
                if not touched and not is_beyond(p, reach, shape):
                    touched = shape_distance(p, shape, mesh, reach)[0] < reach
            shape[SEEN] = min(shape[SEEN] + share, 1.0) if touched else 0.0


@kernel
def _find_footing(
    x: Array, v: Array, solids: Solids, known: bool, last: Footing, ahead: tuple[Array, Array], h: float, out: Footing
) -> None:
    """Write the ground under people, from where it was last and where feet will land, if that is known."""
    floor, feet, slopes, rate, share, lifts, ways, room = out
    last_floor, last_feet, (seconds, places) = last.floor, last.feet, ahead
    keep_floor, keep_foot = 0.5 ** (h / FLOOR_HALF_LIFE), 0.5 ** (h / FOOT_HALF_LIFE)
    for i in range(len(x)):
        here = of_person(solids, i)
        if _is_level(here):  # as exactly as for people who have no footing
            continue
        lowest = min(x[i, 7, 2], x[i, 8, 2], x[i, 10, 2], x[i, 11, 2])
        base = last_floor[i] if known else lowest
        target, sx, sy = 0.0, 0.0, 0.0
        for f in range(2):
            ankle, toe = LEGS[f, 2], LEGS[f, 3]
            height, gx, gy = _ground(x[i, ankle, 0], x[i, ankle, 1], base + STEP, here)
            other, ox, oy = _ground(x[i, toe, 0], x[i, toe, 1], base + STEP, here)
            if other > height:  # a foot stands on the higher end
                height, gx, gy = other, ox, oy
            guess = last_feet[i, f] + h * (gx * v[i, ankle, 0] + gy * v[i, ankle, 1]) if known else height
            swings = seconds[i, f] > 0.5 * h
            farthest, there, level = math.inf, height, last_feet[i, 1 - f] if known else base
            if swings:
                # Where the foot will stand: a little nearer or farther than the prior has it, if an edge would be under
                # it there.
                dx, dy = x[i, toe, 0] - x[i, ankle, 0], x[i, toe, 1] - x[i, ankle, 1]
                length = max(math.sqrt(dx * dx + dy * dy), 1e-6)
                ux, uy = dx / length, dy / length
                more, there = _foothold(places[i, f, 0], places[i, f, 1], ux, uy, level, base + STEP, here)
                ways[i, f, 0] = more * dx / length * h / seconds[i, f]
                ways[i, f, 1] = more * dy / length * h / seconds[i, f]
                px = places[i, f, 0] + more * dx / length - x[i, ankle, 0]
                py = places[i, f, 1] + more * dy / length - x[i, ankle, 1]
                there -= gx * px + gy * py
                farthest = math.sqrt(px * px + py * py)
            climbs = there > height + EVEN
            rise, speed = 0.0, math.sqrt(v[i, toe, 0] ** 2 + v[i, toe, 1] ** 2)
            for k in range(len(SIGHT)):
                ahead = min(SIGHT[k], farthest / max(speed, 1e-6))
                px, py = x[i, toe, 0] + ahead * v[i, toe, 0], x[i, toe, 1] + ahead * v[i, toe, 1]
                along = gx * (px - x[i, toe, 0]) + gy * (py - x[i, toe, 1])  # a slope is not a rise
                rise = max(rise, LIFT[k] * (_ground(px, py, base + STEP, here)[0] - height - along))
            height += rise
            feet[i, f] = height + keep_foot * (guess - height)
            if swings:
                # It is there early if that is higher, and late if it is lower.
                quick = EARLY if there > guess else 1.0
                if climbs and seconds[i, f] > LANDING:
                    there += CLEARANCE
                planned = guess + min(quick * h / seconds[i, f], 1.0) * (there - guess)
                feet[i, f] = max(planned, feet[i, f] if height > guess else planned)
            if known:
                lifts[i, f] = (feet[i, f] - guess) / h
            if swings:
                room[i, f] = _room(x[i, ankle], x[i, toe], feet[i, f] + h * lifts[i, f], base + STEP, here)
            slopes[i, f, 0], slopes[i, f, 1] = gx, gy
            target, sx, sy = target + 0.5 * feet[i, f], sx + 0.5 * gx, sy + 0.5 * gy
        rate[i] = sx * v[i, 0, 0] + sy * v[i, 0, 1]
        floor[i] = target
        if known:
            floor[i] += keep_floor * (last_floor[i] + h * rate[i] - target)
            rate[i] = (floor[i] - last_floor[i]) / h
        share[i] = min(max((x[i, 0, 2] - floor[i] - LOW) / (UPRIGHT - LOW), 0.0), 1.0)


@kernel
def _room(ankle: Array, toe: Array, height: float, top: float, here: Solids) -> float:
    """Return how far toes can go ahead before they are at the face of something higher than their own ground [m]."""
    dx, dy = toe[0] - ankle[0], toe[1] - ankle[1]
    length = max(math.sqrt(dx * dx + dy * dy), 1e-6)
    before = _ground(toe[0], toe[1], top, here)[0]
    for k in range(1, NUM_TRIES + 1):
        way = TRY * k
        after = _ground(toe[0] + way * dx / length, toe[1] + way * dy / length, top, here)[0]
        if after > max(before, height) + EVEN:  # steeper than 45 degrees
            return max(way - TRY - TIP, 0.0)
        before = after
    return math.inf


@kernel
def _foothold(x: float, y: float, ux: float, uy: float, level: float, top: float, here: Solids) -> tuple[float, float]:
    """Return how much farther along its direction a foot has to land to be on one level, and the height there.

    Of two treads the one is taken that is nearer to `level`, the ground of the other foot. If none is near, the foot
    lands where it would, on the highest ground under it.
    """
    least, best, there = math.inf, 0.0, -math.inf
    for k in range(2 * NUM_TRIES + 1):
        more = TRY * ((k + 1) // 2) * (-1.0 if k % 2 == 1 else 1.0)
        if abs(more) >= least:
            break
        px, py = x + more * ux, y + more * uy
        height, gx, gy = _ground(px, py, top, here)
        cost = abs(more) + CLIMB * max(abs(height - level) - RISE, 0.0)
        if cost >= least:
            continue
        even = True
        for e in range(len(SOLE)):
            other = _ground(px + SOLE[e] * ux, py + SOLE[e] * uy, top, here)[0] - SOLE[e] * (gx * ux + gy * uy)
            even = even and abs(other - height) < EVEN
        if even:
            least, best, there = cost, more, height
    for e in range(len(SOLE) if least == math.inf else 0):
        there = max(there, _ground(x + SOLE[e] * ux, y + SOLE[e] * uy, top, here)[0])
    return best, there


@kernel
def _is_level(here: Solids) -> bool:
    """Tell whether the ground is the floor z = 0 and nothing else."""
    planes = here.shapes[here.shapes[:, 0] == PLANE]
    return not _has_solids(here) and not ((planes[:, SIZES + 2] != 1.0) | (planes[:, TURN] != 0.0)).any()


@kernel
def _has_solids(here: Solids) -> bool:
    """Tell whether there are shapes that can be ground or walls; what a batch is filled up with is far below."""
    return bool(((here.shapes[:, 0] < BALL) & (here.shapes[:, CENTRE + 2] > -FAR)).any())


@kernel
def _ground(x: float, y: float, top: float, here: Solids) -> tuple[float, float, float]:
    """Return the height of the ground that people see below a point, and how it rises along x and y."""
    share, (nx, ny, nz) = ray((x, y, top), (0.0, 0.0, -DEEP), here, True)
    if not share <= 1.0:
        return top - STEP, 0.0, 0.0
    # What is steeper than 45 degrees is no ground to put a foot on flat.
    return (top - share * DEEP, -nx / nz, -ny / nz) if nz > 0.7 else (top - share * DEEP, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class FootingStage(Stage):
    """Ask the prior as if the ground were a level floor at height zero, and put its proposals back onto the ground."""

    footing: Footing
    state: State
    """People as they are."""
    skeleton: Skeleton
    h: float
    """Length of a step [s]."""

    def query(self, state: State) -> State:
        f, x, v, q = self.footing, np.array(state.x), np.array(state.v), state.q
        _lower(flat(x, 2), flat(v, 2), f.flat(), flat(self.state.x, 2))
        uneven = (np.abs(f.feet - f.floor[..., None]).max(-1) > 1e-6) | (np.abs(f.slopes).max((-1, -2)) > 1e-6)
        if uneven.any():
            q = np.where(uneven[..., None, None, None], self.skeleton.inverse(x, state.q), q)
        return replace(state, x=x, v=v, q=q)

    def change(self, candidates: Candidates) -> Candidates:
        f, x = self.footing, np.array(candidates.x)
        at_end = f._replace(floor=f.floor + self.h * f.rate, feet=f.feet + self.h * f.lifts)
        _raise(flat(x, 3), at_end.flat(), flat(self.state.x, 2))
        return replace(candidates, x=x)


@kernel
def _lower(x: Array, v: Array, footing: Footing, now: Array) -> None:
    """Move people, in place, as if the ground under them and under their feet were a level floor at height zero."""
    floor, _, slopes, rate, share, lifts, _, _ = footing
    for i in range(len(x)):
        _shift_feet(x[i], footing, i, now[i], -1.0)
        for f in range(2):
            for k in range(2, 4):
                foot = v[i, LEGS[f, k]]
                foot[2] -= share[i] * (slopes[i, f, 0] * foot[0] + slopes[i, f, 1] * foot[1] + lifts[i, f] - rate[i])
        for j in range(x.shape[1]):
            x[i, j, 2] -= floor[i]
            v[i, j, 2] -= rate[i]


@kernel
def _raise(x: Array, footing: Footing, now: Array) -> None:
    """Move candidates, in place, from a level floor at height zero to the ground under people and under their feet."""
    for i in range(len(x)):
        for k in range(x.shape[1]):
            for j in range(x.shape[2]):
                x[i, k, j, 2] += footing.floor[i]
            _shift_feet(x[i, k], footing, i, now[i], 1.0)


@kernel
def _shift_feet(x: Array, footing: Footing, i: int, now: Array, sign: float) -> None:
    """Move feet from the floor of the body to their own ground and along their ways, or back down."""
    share = footing.share[i]
    for f in range(2):
        leg, room, ankle, toe = LEGS[f], footing.room[i, f], row(x, LEGS[f, 2]), row(x, LEGS[f, 3])
        gx, gy, heel, ball = footing.slopes[i, f, 0], footing.slopes[i, f, 1], row(now, leg[2]), row(now, leg[3])
        up = footing.feet[i, f] - footing.floor[i] + gx * (ankle[0] - heel[0]) + gy * (ankle[1] - heel[1])
        pitch = gx * (toe[0] - ankle[0]) + gy * (toe[1] - ankle[1])
        wx, wy = (footing.ways[i, f, 0], footing.ways[i, f, 1]) if sign > 0.0 else (0.0, 0.0)
        if sign > 0.0 and room < math.inf:
            dx, dy = ball[0] - heel[0], ball[1] - heel[1]
            length = max(math.sqrt(dx * dx + dy * dy), 1e-6)
            over_room = max(((toe[0] + wx - ball[0]) * dx + (toe[1] + wy - ball[1]) * dy) / length - room, 0.0)
            wx, wy = wx - over_room * dx / length, wy - over_room * dy / length
        _reach(x, leg, sign * share * up, sign * share * pitch, share * wx, share * wy)


@kernel
def _reach(p: Array, leg: Array, up: float, pitch: float, wx: float, wy: float) -> None:
    """Move a foot up and along (wx, wy), with the knee in the plane in which it bends, and turn the toes up."""
    if up == 0.0 and pitch == 0.0 and wx == 0.0 and wy == 0.0:
        return
    hip, knee, ankle, toe = row(p, leg[0]), row(p, leg[1]), row(p, leg[2]), row(p, leg[3])
    thigh, shank, foot = size(minus(knee, hip)), size(minus(ankle, knee)), size(minus(toe, ankle))
    way = minus((ankle[0] + wx, ankle[1] + wy, ankle[2] + up), hip)
    away = max(size(way), 1e-9)
    way = over(way, away)
    reach = min(max(away, abs(thigh - shank) + 1e-6), REACH * (thigh + shank))
    bend = minus(knee, hip)
    bend = plus(bend, way, -dot(bend, way))
    along = (thigh * thigh - shank * shank + reach * reach) / (2 * reach)
    out = math.sqrt(max(thigh * thigh - along * along, 0.0)) / max(size(bend), 1e-9)
    tip = minus(toe, ankle)
    tip = (tip[0], tip[1], tip[2] + pitch)
    write(p, leg[1], plus(plus(hip, way, along), bend, out))
    ankle = plus(hip, way, reach)
    write(p, leg[2], ankle)
    write(p, leg[3], plus(ankle, tip, foot / max(size(tip), 1e-9)))


def kept_from_walls(
    velocity: Float[np.ndarray, "*b 2"], state: State, floor: Float[np.ndarray, "*b"], solids: Solids
) -> Float[np.ndarray, "*b 2"]:
    """Return velocities at which people can stop before walls and climb stairs; those without an intent (NaN) stop too."""
    wanted = np.array(velocity, order="C")
    _keep_from_walls(flat(state.x, 2), flat(state.v, 2), flat(floor, 0), solids, flat(wanted, 1))
    return wanted


@kernel
def _climbing_speed(x: float, y: float, ux: float, uy: float, top: float, here: Solids) -> float:
    """Return how fast people go at most up or down the ground ahead of them [m/s]."""
    steepest, start = 0.0, _ground(x, y, top, here)[0]
    for k in range(1, 5):
        way = 0.25 * k * STRETCH
        height = _ground(x + way * ux, y + way * uy, top + 0.5 * way, here)[0]
        if abs(height - start) < way:  # what is steeper is climbed by nobody
            steepest = max(steepest, abs(height - start) / STRETCH)
    return CLIMBING / max(steepest, 1e-6)


@kernel
def _keep_from_walls(x: Array, v: Array, floor: Array, solids: Solids, wanted: Array) -> None:
    for i in range(len(x)):
        here = of_person(solids, i)
        if not _has_solids(here) or x[i, 0, 2] - floor[i] < LOW:
            continue
        wx, wy = (v[i, 0, 0], v[i, 0, 1]) if math.isnan(wanted[i, 0]) else (wanted[i, 0], wanted[i, 1])
        speed = math.sqrt(wx * wx + wy * wy)
        if speed < 0.1:
            continue
        allowed = _climbing_speed(x[i, 0, 0], x[i, 0, 1], wx / speed, wy / speed, floor[i] + STEP, here)
        if speed > allowed:
            wx, wy, speed = allowed / speed * wx, allowed / speed * wy, allowed
            wanted[i, 0], wanted[i, 1] = wx, wy
        sight = ROOM + REACTION * speed + 0.5 * speed * speed / BRAKE + 0.2
        for k in range(len(LOOK)):
            way = (wx / speed * sight, wy / speed * sight, 0.0)
            share, (nx, ny, nz) = ray((x[i, 0, 0], x[i, 0, 1], floor[i] + LOOK[k]), way, here, True)
            steep = math.sqrt(nx * nx + ny * ny)
            if not share <= 1.0 or nz > 0.7 or steep < 1e-6:
                continue
            # What is lower than a step above the ground in front of it is no wall, but a step among others.
            ux, uy, before = wx / speed, wy / speed, share * sight - NEAR
            px, py = x[i, 0, 0] + before * ux, x[i, 0, 1] + before * uy
            top = _ground(px, py, floor[i] + LOOK[k], here)[0] + STEP
            step = (2 * NEAR * ux, 2 * NEAR * uy, 0.0)
            if floor[i] + LOOK[k] < top and not ray((px, py, top), step, here, True)[0] <= 1.0:
                continue
            toward = -(wx * nx + wy * ny) / steep
            nearing = max(-(v[i, 0, 0] * nx + v[i, 0, 1] * ny) / steep, 0.0)
            # The gap along the normal, when they begin to stop.
            gap = share * sight * toward / speed - ROOM - REACTION * nearing
            allowed = math.sqrt(2 * BRAKE * max(gap, 0.0))
            if toward > allowed:
                wx, wy = wx + (toward - allowed) * nx / steep, wy + (toward - allowed) * ny / steep
                wanted[i, 0], wanted[i, 1] = wx, wy
