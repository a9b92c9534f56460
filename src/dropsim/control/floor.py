"""Ground at another height than zero: priors know people on a level floor at z = 0.

Over ramps, curbs and steps the prior is asked as if the ground under each foot were that floor, and its proposals are
put back onto the ground: the body at the height of the floor, each foot at its own, with the knee between.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton, flat
from dropsim.compute.jit import kernel
from dropsim.physics.contact import GRIP_GAP, Solids, of_person, ray
from dropsim.physics.shapes import BOUND, SEEN, Triangles, shape_distance, to_local
from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates, Landings, State

Array = Any
"""numba knows the types."""
LEGS = np.array([(1, 4, 7, 10), (2, 5, 8, 11)])
"""Hip, knee, ankle and toes, left and right."""
STEP = 0.4
"""Highest step that people take [m]: what is higher is a wall."""
DEEP = 20.0
"""How far down ground is looked for [m]."""
FAR = 1e8
"""What is deeper than this is not there [m]."""
SIGHT = np.array([0.08, 0.16, 0.24, 0.32])
LIFT = np.array([1.0, 0.8, 0.5, 0.2])
"""Times ahead at which a swinging foot sees the ground that it goes over [s], and how much of a rise it makes up for by
then."""
FLOOR_HALF_LIFE, FOOT_HALF_LIFE = 0.12, 0.05
"""In which the floor of the body, and that of a foot, follow an edge in the ground [s]; slopes are followed at once."""
EARLY = 2.0
"""A foot that has to rise is there sooner than it lands: a share of (1 - t)^2 of the rise is left when a share t of the
way is over."""
SOLE = np.array([-0.03, 0.0, 0.13, 0.19])
"""Where a foot has to be on one level, from the ankle to the tip of the toes; the heel may stick out [m]."""
EVEN = 0.02
"""What differs less is level [m]."""
LANDING, CLEARANCE = 0.12, 0.03
"""Until this long before it lands [s], a foot that goes up a step is higher by this than elsewhere [m]."""
TIP = 0.03
"""Of the toes, beyond their joint [m]."""
TRY, NUM_TRIES = 0.02, 12
"""By how much more or less than the prior proposes feet are put down, to be on one level: in steps of [m], and how
many."""
RISE, CLIMB = 0.2, 2.0
"""A higher step is taken only if a lower one is out of reach [m]; a metre more of it counts like so many of a shorter
or longer step."""
UPRIGHT, LOW = 0.65, 0.45
"""Heights of the pelvis between which feet cease to be put onto the ground one by one [m]: people who lie have no use
for it."""
REACH = 0.998
"""Of a leg's length that is used at most."""
BRAKE = 1.5
"""How people slow down before a wall [m/s^2]."""
NOTICE = 0.6
"""Time from the first touch of something that is not seen until people step over it [s]: with the next step."""
REACTION = 0.5
"""Between the decision to stop and its beginning [s]: about a step of somebody who walks."""
ROOM = 0.45
"""From the pelvis to a wall at which people stop [m]."""
NEAR = 0.05
"""How far before the face of something the ground is looked up [m]."""
CLIMBING, STRETCH = 0.3, 1.0
"""How fast people rise on stairs [m/s]: 1.6 steps of 17 cm a second and a little more; and the way ahead that they look
at for it [m]."""
CROUCHING, ERECT = 0.8, 0.96
"""Speed at which people lower and raise their bodies to crouch [m/s], and the share of its height in the rest pose at
which people who stand and walk carry the pelvis."""
LOOK = (0.5, 1.1)
"""Heights above the floor at which people see walls [m]."""


def lowered(state: State, floor: Float[np.ndarray, "*b"]) -> State:
    """Return people with their ground at height zero."""
    return replace(state, x=state.x - np.stack((0 * floor, 0 * floor, floor), -1)[..., None, :])


@dataclass(frozen=True, eq=False)
class Footing:
    """The ground under people and under each of their feet."""

    floor: Float[np.ndarray, "*b"]
    """That of the body as a whole [m]."""
    feet: Float[np.ndarray, "*b 2"]
    """Under the left and the right foot [m]."""
    slopes: Float[np.ndarray, "*b 2 2"]
    """How much that rises along x and along y."""
    rate: Float[np.ndarray, "*b"]
    """With which the floor rises under the person [m/s]."""
    share: Float[np.ndarray, "*b"]
    """How much feet are put onto their own ground: 1 for people who are upright, 0 for those who lie."""
    lifts: Float[np.ndarray, "*b 2"]
    """With which the ground under each foot rises, but for slopes [m/s]."""
    ways: Float[np.ndarray, "*b 2 2"]
    """How far feet go within the step, beyond what the prior proposes, to land on a tread and not on its edge [m]."""
    room: Float[np.ndarray, "*b 2"]
    """How far the toes can go ahead before they are at the face of a step that they are not above yet [m]."""

    def __getitem__(self, world: int) -> "Footing":
        """Pick a world out of a batch."""
        return Footing(*(values[world] for values in vars(self).values()))

    @classmethod
    def level(cls, *batch: int) -> "Footing":
        """Return the footing of people on a level floor at height zero."""
        feet, ways = np.zeros((*batch, 2)), np.zeros((*batch, 2, 2))
        return cls(
            np.zeros(batch), feet, ways, np.zeros(batch), np.ones(batch), feet, ways, np.full((*batch, 2), np.inf)
        )

    def crouched(self, state: State, depth: Float[np.ndarray, "*b"], rate: Float[np.ndarray, "*b"]) -> "Footing":
        """Return the footing of people whose bodies are lower than their feet have them, by a depth [m] that grows [m/s]."""
        floor = self.floor - depth
        share = np.clip((state.x[..., 0, 2] - floor - LOW) / (UPRIGHT - LOW), 0.0, 1.0)
        return replace(self, floor=floor, rate=self.rate - rate, share=np.where(depth > 0.0, share, self.share))

    @classmethod
    def found(
        cls, state: State, solids: Solids, before: "Footing | None", h: float, landings: Landings | None = None
    ) -> "Footing":
        """Look for the ground with rays; edges are followed over some frames, from the footing before."""
        batch = state.x.shape[:-2]
        if landings is None:
            landings = Landings(np.full((*batch, 2), np.nan), np.full((*batch, 2, 2), np.nan))
        shapes = ((), (2,), (2, 2), (), (), (2,), (2, 2), (2,))
        footing = cls(*(np.empty((*batch, *shape)) for shape in shapes))
        arrays = [flat(values, values.ndim - len(batch)) for values in vars(footing).values()]
        known = before is not None
        last = footing if before is None else before
        memory = (flat(np.array(last.floor), 0), flat(np.array(last.feet), 1))
        ahead = (flat(landings.seconds, 1), flat(landings.ankles, 2))
        _find_footing(flat(state.x, 2), flat(state.v, 2), solids, known, memory, ahead, h, _Ground(*arrays))
        return footing


def crouch(
    depth: Float[np.ndarray, "*b"] | None, height: Float[np.ndarray, "*b"], standing: float, h: float
) -> Float[np.ndarray, "*b"] | None:
    """Return how far people have lowered their bodies a step later [m], for wanted heights of the pelvis or NaN; None if nobody has."""
    before = np.zeros(height.shape) if depth is None else depth
    goal = np.maximum(ERECT * standing - np.where(np.isnan(height), standing, height), 0.0)
    after = before + np.clip(goal - before, -CROUCHING * h, CROUCHING * h)
    return after if after.any() or before.any() else None


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
            row = shapes[i, k]
            touched = row[SEEN] > 0.0
            for j in range(0 if touched else x.shape[1]):
                reach = radii[j] + GRIP_GAP
                px, py, pz = to_local(x[i, j, 0], x[i, j, 1], x[i, j, 2], row)
                near = px * px + py * py + pz * pz < (row[BOUND] + reach) ** 2
                touched = touched or (near and shape_distance(px, py, pz, row, mesh, reach)[0] < reach)
            row[SEEN] = min(row[SEEN] + share, 1.0) if touched else 0.0


class _Ground(NamedTuple):
    """A Footing as kernels take it: people along one dimension."""

    floor: np.ndarray
    feet: np.ndarray
    slopes: np.ndarray
    rate: np.ndarray
    share: np.ndarray
    lifts: np.ndarray
    ways: np.ndarray
    room: np.ndarray


@kernel
def _find_footing(
    x: Array,
    v: Array,
    solids: Solids,
    known: bool,
    last: tuple[Array, Array],
    ahead: tuple[Array, Array],
    h: float,
    out: _Ground,
) -> None:
    """Write the ground under people, from where it was last and where feet will land, if that is known."""
    floor, feet, slopes, rate, share, lifts, ways, room = out
    (last_floor, last_feet), (seconds, places) = last, ahead
    keep_floor, keep_foot = 0.5 ** (h / FLOOR_HALF_LIFE), 0.5 ** (h / FOOT_HALF_LIFE)
    for i in range(len(x)):
        here = of_person(solids, i)
        lifts[i], ways[i], room[i] = 0.0, 0.0, math.inf
        if _is_level(here):  # as exactly as for people who have no footing
            floor[i], rate[i], share[i] = 0.0, 0.0, 1.0
            feet[i], slopes[i] = 0.0, 0.0
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
                size = max(math.sqrt(dx * dx + dy * dy), 1e-6)
                more, there = _foothold(
                    places[i, f, 0], places[i, f, 1], dx / size, dy / size, level, base + STEP, here
                )
                ways[i, f, 0] = more * dx / size * h / seconds[i, f]
                ways[i, f, 1] = more * dy / size * h / seconds[i, f]
                px = places[i, f, 0] + more * dx / size - x[i, ankle, 0]
                py = places[i, f, 1] + more * dy / size - x[i, ankle, 1]
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
    size = max(math.sqrt(dx * dx + dy * dy), 1e-6)
    before = _ground(toe[0], toe[1], top, here)[0]
    for k in range(1, NUM_TRIES + 1):
        way = TRY * k
        after = _ground(toe[0] + way * dx / size, toe[1] + way * dy / size, top, here)[0]
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
    least, best, found = math.inf, 0.0, -math.inf
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
            least, best, found = cost, more, height
    for e in range(len(SOLE) if least == math.inf else 0):
        found = max(found, _ground(x + SOLE[e] * ux, y + SOLE[e] * uy, top, here)[0])
    return best, found


@kernel
def _is_level(here: Solids) -> bool:
    """Tell whether the ground is the floor z = 0 and nothing else; what a batch is filled up with is far below."""
    for k in range(len(here.planes)):
        if here.planes[k, 3] > -FAR and (here.planes[k, 2] != 1.0 or here.planes[k, 3] != 0.0):
            return False
    return not (here.shapes[:, 6] > -FAR).any()


@kernel
def _ground(x: float, y: float, top: float, here: Solids) -> tuple[float, float, float]:
    """Return the height of the ground that people see below a point, and how it rises along x and y."""
    share, nx, ny, nz = ray(x, y, top, 0.0, 0.0, -DEEP, here, True)
    if not share <= 1.0:
        return top - STEP, 0.0, 0.0
    # What is steeper than 45 degrees is no ground to put a foot on flat.
    return (top - share * DEEP, -nx / nz, -ny / nz) if nz > 0.7 else (top - share * DEEP, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class FootingStage(Stage):
    """Ask the prior as if the ground under each foot were a level floor at height zero, and put its proposals back onto the ground."""

    footing: Footing
    state: State
    """People as they are."""
    skeleton: Skeleton
    h: float
    """Length of a step [s]."""

    def query(self, state: State) -> State:
        x, v, q = np.array(state.x), np.array(state.v), state.q
        _lower(flat(x, 2), flat(v, 2), flat(self.footing.rate, 0), flat(self.footing.lifts, 1), *self._parts)
        if self._uneven.any():
            q = np.where(self._uneven[..., None, None, None], self.skeleton.inverse(x, state.q), q)
        return replace(state, x=x, v=v, q=q)

    def change(self, candidates: Candidates) -> Candidates:
        f, x = self.footing, np.array(candidates.x)
        floor, feet = (
            np.asarray(f.floor + self.h * f.rate),
            np.asarray(f.feet + self.h * f.lifts),
        )  # as they will be at the step's end
        _raise(flat(x, 3), flat(floor, 0), flat(feet, 1), *self._parts[2:], flat(f.ways, 2), flat(f.room, 1))
        return candidates.with_joints(x)

    @functools.cached_property
    def _uneven(self) -> np.ndarray:
        f = self.footing
        return np.asarray(
            (np.abs(f.feet - f.floor[..., None]).max(-1) > 1e-6) | (np.abs(f.slopes).max((-1, -2)) > 1e-6)
        )

    @functools.cached_property
    def _parts(self) -> tuple[np.ndarray, ...]:
        f = self.footing
        return flat(f.floor, 0), flat(f.feet, 1), flat(f.slopes, 2), flat(f.share, 0), flat(self.state.x, 2)


@kernel
def _lower(
    x: Array, v: Array, rate: Array, lifts: Array, floor: Array, feet: Array, slopes: Array, share: Array, now: Array
) -> None:
    """Move people, in place, as if the ground under them and under their feet were a level floor at height zero."""
    nowhere = np.zeros((2, 2))
    for i in range(len(x)):
        _shift_feet(x[i], floor[i], feet[i], slopes[i], share[i], now[i], nowhere, nowhere[0], -1.0)
        for f in range(2):
            for k in range(2, 4):
                foot = v[i, LEGS[f, k]]
                foot[2] -= share[i] * (slopes[i, f, 0] * foot[0] + slopes[i, f, 1] * foot[1] + lifts[i, f] - rate[i])
        for j in range(x.shape[1]):
            x[i, j, 2] -= floor[i]
            v[i, j, 2] -= rate[i]


@kernel
def _raise(
    x: Array, floor: Array, feet: Array, slopes: Array, share: Array, now: Array, ways: Array, room: Array
) -> None:
    """Move candidates, in place, from a level floor at height zero to the ground under people and under their feet."""
    for i in range(len(x)):
        for k in range(x.shape[1]):
            for j in range(x.shape[2]):
                x[i, k, j, 2] += floor[i]
            _shift_feet(x[i, k], floor[i], feet[i], slopes[i], share[i], now[i], ways[i], room[i], 1.0)


@kernel
def _shift_feet(
    x: Array, floor: float, feet: Array, slopes: Array, share: float, now: Array, ways: Array, room: Array, sign: float
) -> None:
    """Move feet from the floor of the body to their own ground, or back."""
    for f in range(2):
        ankle, toe = LEGS[f, 2], LEGS[f, 3]
        gx, gy = slopes[f, 0], slopes[f, 1]
        up = feet[f] - floor + gx * (x[ankle, 0] - now[ankle, 0]) + gy * (x[ankle, 1] - now[ankle, 1])
        pitch = gx * (x[toe, 0] - x[ankle, 0]) + gy * (x[toe, 1] - x[ankle, 1])
        wx, wy = ways[f, 0], ways[f, 1]
        if sign > 0.0 and room[f] < math.inf:
            dx, dy = now[toe, 0] - now[ankle, 0], now[toe, 1] - now[ankle, 1]
            size = max(math.sqrt(dx * dx + dy * dy), 1e-6)
            over = max(
                ((x[toe, 0] + wx - now[toe, 0]) * dx + (x[toe, 1] + wy - now[toe, 1]) * dy) / size - room[f], 0.0
            )
            wx, wy = wx - over * dx / size, wy - over * dy / size
        _reach(x, LEGS[f], sign * share * up, sign * share * pitch, share * wx, share * wy)


@kernel
def _reach(p: Array, leg: Array, up: float, pitch: float, wx: float, wy: float) -> None:
    """Move a foot up and along (wx, wy), with the knee in the plane in which it bends, and turn the toes up."""
    if up == 0.0 and pitch == 0.0 and wx == 0.0 and wy == 0.0:
        return
    hip, knee, ankle, toe = p[leg[0]], p[leg[1]], p[leg[2]], p[leg[3]]
    thigh = math.sqrt((knee[0] - hip[0]) ** 2 + (knee[1] - hip[1]) ** 2 + (knee[2] - hip[2]) ** 2)
    shank = math.sqrt((ankle[0] - knee[0]) ** 2 + (ankle[1] - knee[1]) ** 2 + (ankle[2] - knee[2]) ** 2)
    foot = math.sqrt((toe[0] - ankle[0]) ** 2 + (toe[1] - ankle[1]) ** 2 + (toe[2] - ankle[2]) ** 2)
    ux, uy, uz = ankle[0] + wx - hip[0], ankle[1] + wy - hip[1], ankle[2] + up - hip[2]
    away = max(math.sqrt(ux * ux + uy * uy + uz * uz), 1e-9)
    ux, uy, uz = ux / away, uy / away, uz / away
    reach = min(max(away, abs(thigh - shank) + 1e-6), REACH * (thigh + shank))
    bx, by, bz = knee[0] - hip[0], knee[1] - hip[1], knee[2] - hip[2]
    along = bx * ux + by * uy + bz * uz
    bx, by, bz = bx - along * ux, by - along * uy, bz - along * uz
    bend = math.sqrt(bx * bx + by * by + bz * bz)
    a = (thigh * thigh - shank * shank + reach * reach) / (2 * reach)
    out = math.sqrt(max(thigh * thigh - a * a, 0.0)) / max(bend, 1e-9)
    old = (ankle[0], ankle[1], ankle[2])
    knee[0], knee[1], knee[2] = hip[0] + a * ux + out * bx, hip[1] + a * uy + out * by, hip[2] + a * uz + out * bz
    ankle[0], ankle[1], ankle[2] = hip[0] + reach * ux, hip[1] + reach * uy, hip[2] + reach * uz
    tx, ty, tz = toe[0] - old[0], toe[1] - old[1], toe[2] - old[2] + pitch
    length = foot / max(math.sqrt(tx * tx + ty * ty + tz * tz), 1e-9)
    toe[0], toe[1], toe[2] = ankle[0] + length * tx, ankle[1] + length * ty, ankle[2] + length * tz


def kept_from_walls(
    velocity: Float[np.ndarray, "*b 2"], state: State, floor: Float[np.ndarray, "*b"], solids: Solids
) -> Float[np.ndarray, "*b 2"]:
    """Return velocities to go at with which people can stop before walls and climb stairs; those who want nothing (NaN) stop too."""
    wanted, walled = np.array(velocity, order="C"), np.zeros(velocity.shape[:-1], dtype=np.bool_)
    _keep_from_walls(flat(state.x, 2), flat(state.v, 2), flat(floor, 0), solids, flat(wanted, 1), walled.reshape(-1))
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
def _keep_from_walls(x: Array, v: Array, floor: Array, solids: Solids, wanted: Array, walled: Array) -> None:
    for i in range(len(x)):
        here = of_person(solids, i)
        if len(here.shapes) == 0 or x[i, 0, 2] - floor[i] < LOW:
            continue
        wx, wy = (v[i, 0, 0], v[i, 0, 1]) if math.isnan(wanted[i, 0]) else (wanted[i, 0], wanted[i, 1])
        speed = math.sqrt(wx * wx + wy * wy)
        if speed < 0.1:
            continue
        allowed = _climbing_speed(x[i, 0, 0], x[i, 0, 1], wx / speed, wy / speed, floor[i] + STEP, here)
        if speed > allowed:
            walled[i], wx, wy, speed = True, allowed / speed * wx, allowed / speed * wy, allowed
        sight = ROOM + REACTION * speed + 0.5 * speed * speed / BRAKE + 0.2
        for k in range(len(LOOK)):
            share, nx, ny, nz = ray(
                x[i, 0, 0], x[i, 0, 1], floor[i] + LOOK[k], wx / speed * sight, wy / speed * sight, 0.0, here, True
            )
            size = math.sqrt(nx * nx + ny * ny)
            if not share <= 1.0 or nz > 0.7 or size < 1e-6:
                continue
            # What is lower than a step above the ground in front of it is no wall, but a step among others.
            ux, uy, way = wx / speed, wy / speed, share * sight - NEAR
            px, py = x[i, 0, 0] + way * ux, x[i, 0, 1] + way * uy
            top = _ground(px, py, floor[i] + LOOK[k], here)[0] + STEP
            if (
                floor[i] + LOOK[k] < top
                and not ray(px, py, top, 2 * NEAR * ux, 2 * NEAR * uy, 0.0, here, True)[0] <= 1.0
            ):
                continue
            toward = -(wx * nx + wy * ny) / size
            nearing = max(-(v[i, 0, 0] * nx + v[i, 0, 1] * ny) / size, 0.0)
            gap = (
                share * sight * toward / speed - ROOM - REACTION * nearing
            )  # along the normal, when they begin to stop
            allowed = math.sqrt(2 * BRAKE * max(gap, 0.0))
            if toward > allowed:
                walled[i] = True
                wx, wy = wx + (toward - allowed) * nx / size, wy + (toward - allowed) * ny / size
        if walled[i]:
            wanted[i, 0], wanted[i, 1] = wx, wy
