"""Kernels of the motion field: what people want as the search takes it, and what speaks against each of the recordings found."""

import math
from typing import Any, NamedTuple

import numpy as np

from dropsim.body.joints import NUM_JOINTS
from dropsim.compute.jit import kernel
from dropsim.priors.bank import STILL
from dropsim.priors.field_kernels import HEAD, LOW, project

Array = Any
"""numba knows the types."""
NUM_COMPONENTS = 24
"""Principal components of the features that are searched: 97 % of the variance of everyday motion."""
SPEED_SCALE, HEIGHT_SCALE, STANDING = 1.5, 4.0, 0.85
"""A difference of 1.5 m/s counts like a metre of the features, one of 25 cm in height too; heights count from 0.85
m."""
ROAM_SCALE = 0.3
"""Excursion of people who are to stand that counts like a metre of the features [m]: about a foot's length."""
WEIGHTS = np.array([1.5, 1.5, 1.0, 1.0, 0.6, 1.0])
"""Weights of the intent's parts: velocity (two), sine and cosine of the turn, height, excursion."""
NUM_INTENT = len(WEIGHTS)
ROAM = 5
"""Column of the excursion."""
BALANCE = NUM_COMPONENTS + NUM_INTENT
"""Column from which on the two of the balance are."""
NUM_COLUMNS = BALANCE + 2
FALL = math.e
"""Growth of a fall until a foot lands a third of a second later, by which the search weighs how far people are out of
balance."""
LARGEST_TURN = 1.2
"""Turn within the time ahead that is asked for at most [rad]: recorded people hardly turn faster."""
UPRIGHT = 0.88
"""Height of the pelvis of somebody who walks or stands, on the recordings' body [m]."""
LATELY, CATCH_UP, LAG = 4.0, 1.0, 0.6
"""A lag is forgotten within 2 s, people would like to make it up within 1 s, and none is remembered beyond 30 cm."""
REACTION = 0.2
"""Time between losing balance and doing something about it [s]: pushed walkers answer with the ankle after 0.2 s (Hof
et al. 2010)."""
UNSTEADY = 0.05
"""Distance from which on people notice that they are out of balance [m]: toes and the ball of the foot hold less than
that."""
AT_REST = 0.7
"""People get up once their joints are slower than this on average [m/s]."""
HASTE = 4.0
"""Cost of each second until a recording is upright, for people who get up [m^2/s]: without it they rock to and fro."""
FALL_TIME = 0.3
"""A body falls like a pendulum of this time constant, sqrt(l / g) for l = 0.9 m [s]."""
JUMPING = 1.05
"""Height of the pelvis that people only reach in the air, on the recordings' body [m]: those who want to be higher
jump."""
MOMENT = 15
"""Frames of a recording that count as one moment, of which only one is a candidate: about a step."""
ROW, BEHIND, SHAKEN, RISING, NUM_REMEMBERED = 0, slice(1, 3), 3, 4, 5
"""Columns of the memory: the recorded frame that is followed, how far people lag behind [m], for how many frames they
were out of balance, and whether they get up."""
ANY, GOING, JUMPS, GETTING_UP, NUM_SETS = 0, 1, 2, 3, 4
"""Sets of frames that can be followed: by anybody, to go or stand, to jump, and to get up."""
BACK_SPEED = 0.5
"""Fastest that people go back to their place [m/s]."""
_ANKLES = (7, 8)
_BEHIND = BEHIND.start


class Taste(NamedTuple):
    """What counts for and against a candidate, next to the squared distance of the features [m^2]."""

    going_on: float
    """Bonus of the recording that is followed."""
    catch: float
    """Weight of how far the body is out of balance when the recording's next foot lands."""
    noise: float
    """Mean of the chance that is added to all others."""


class Recorded(NamedTuple):
    """What is known of every frame and mirror image, and of the bank's people."""

    rows: np.ndarray
    """Those that are searched."""
    mean: np.ndarray
    basis: np.ndarray
    codes: np.ndarray
    falling: np.ndarray
    growth: np.ndarray
    """Factor by which a fall grows until the next foot lands (r)."""
    rise: np.ndarray
    """Time until people who are not upright will be (r) [s]."""
    allowed: np.ndarray
    """Frames of each set (4 r)."""
    last: np.ndarray
    """Last frame of each frame's clip."""
    radii: np.ndarray
    """Of the bank's body [m]."""
    gets_up: bool
    """Whether somebody gets up from the ground."""


class Seen(NamedTuple):
    """People as the field sees them: as large as the bank's."""

    x: np.ndarray
    """Joints (n 22 3) [m]."""
    v: np.ndarray
    """Velocities of the joints (n 22 3) [m/s]."""
    yaws: np.ndarray
    """Headings, about z from +y (n) [rad]."""
    feats: np.ndarray
    """Features (n f)."""
    falls: np.ndarray
    """How far people are out of balance, in the heading frame (n 2) [m]."""
    memory: np.ndarray
    """Memory of the field (n m)."""
    scale: float
    """Size of the bank's body relative to theirs."""
    fps: float
    """Frame rate [Hz]."""
    reaction: float
    """Time for which people who are off balance go on as before [frames]."""


class Wanted(NamedTuple):
    """Intents of people, at their own size; NaN where they leave it open."""

    velocity: np.ndarray
    """Velocity over the ground (n 2) [m/s]."""
    facing: np.ndarray
    """Horizontal unit vector (n 2)."""
    height: np.ndarray
    """Height of the pelvis (n) [m]."""
    place: np.ndarray
    """Place to stand at (n 2) [m]."""
    ahead: float
    """Time within which a place is reached and that velocities are of [s]."""


class Queries(NamedTuple):
    """What people want, and what they are about."""

    codes: np.ndarray
    """Queries: components of the features, and the intent (n c)."""
    weights: np.ndarray
    """Which columns of the queries count: unknown intents do not (n c)."""
    which: np.ndarray
    """Sets of frames among which they search (n)."""
    late: np.ndarray
    """True while a person is off balance but within the reaction time (n)."""
    rising: np.ndarray
    """True for people who get up (n)."""
    shaken: np.ndarray
    """For how many frames they were out of balance (n)."""
    behind: np.ndarray
    """How far they lag behind (n 2) [m]."""

    @classmethod
    def empty(cls, n: int) -> "Queries":
        """Return room for what n people want."""
        codes, weights = (np.empty((n, NUM_COLUMNS), dtype=np.float32) for _ in range(2))
        late, rising = (np.empty(n, dtype=np.bool_) for _ in range(2))
        return cls(codes, weights, np.empty(n, dtype=np.int64), late, rising, np.empty(n), np.empty((n, 2)))


@kernel
def write_queries(seen: Seen, intents: Wanted, recorded: Recorded, out: Queries) -> None:
    """Write queries for people who see, remember and want something."""
    x, v, yaws, feats, falls, memory, scale, fps, reaction = seen
    velocity, facing, height, place, ahead = intents
    project(feats, recorded.mean, recorded.basis, out.codes)
    wanted = np.empty(NUM_INTENT)
    for i in range(len(x)):
        _notice(falls[i], memory[i], reaction, recorded.falling, i, out)
        _lag_behind(v[i, 0, 0] / scale, v[i, 0, 1] / scale, velocity[i], memory[i], 1.0 / fps, out.behind[i])
        wanted[ROAM] = math.nan
        vx, vy = velocity[i, 0] + out.behind[i, 0] / CATCH_UP, velocity[i, 1] + out.behind[i, 1] / CATCH_UP
        if not math.isnan(place[i, 0]) and math.isnan(height[i]) and out.shaken[i] == 0.0:
            # People who stand stay for a while, and go back if they have strayed; first of all they keep their balance.
            wx, wy = place[i, 0] - _middle(x[i], 0) / scale, place[i, 1] - _middle(x[i], 1) / scale
            slower = min(1.0, BACK_SPEED * ahead / max(math.sqrt(wx * wx + wy * wy), 1e-9)) / ahead
            vx, vy, wanted[ROAM] = slower * wx, slower * wy, 0.0
        _in_heading_frame(scale * vx, scale * vy, facing[i], scale * height[i], yaws[i], wanted)
        for k in range(NUM_INTENT):
            known = not math.isnan(wanted[k])
            out.codes[i, NUM_COMPONENTS + k] = wanted[k] * WEIGHTS[k] if known else 0.0
            out.weights[i, NUM_COMPONENTS + k] = 1.0 if known else 0.0
        for k in range(NUM_COMPONENTS):
            out.weights[i, k] = 1.0
        for k in range(2):
            out.codes[i, BALANCE + k], out.weights[i, BALANCE + k] = FALL * falls[i, k], 1.0
        jumps = wanted[4] > HEIGHT_SCALE * (JUMPING - STANDING)
        out.rising[i] = recorded.gets_up and not jumps and _rises(x[i], v[i], memory[i, RISING] > 0)
        pelvis = x[i, 0, 2]
        if jumps:
            out.which[i] = JUMPS
        elif out.rising[i]:
            out.which[i] = GETTING_UP
            out.weights[i, NUM_COMPONENTS:] = 0.0  # any way up will do
        elif pelvis < LOW or pelvis > JUMPING or x[i, HEAD, 2] < pelvis:
            out.which[i] = ANY
        else:
            out.which[i] = GOING


@kernel
def _middle(x: Array, c: int) -> float:
    """Return a coordinate of the place between the feet."""
    return 0.5 * (x[_ANKLES[0], c] + x[_ANKLES[1], c])


@kernel
def _notice(own: Array, memory: Array, reaction: float, recorded: Array, i: int, out: Queries) -> None:
    """Write for how long a person has been farther out of balance than the recorded one, and whether it is too early to react."""
    row = int(memory[ROW])
    unsteady = row >= 0 and _farther(own, recorded[row]) > UNSTEADY
    out.shaken[i] = min(max(memory[SHAKEN] + (1.0 if unsteady else -1.0), 0.0), 2.0 * reaction)
    # Before people react, they go on as they did.
    out.late[i] = unsteady and out.shaken[i] <= reaction


@kernel
def _farther(own: Array, recorded: Array) -> float:
    """Return how much farther a person is out of balance than a recorded one [m]: walking is falling too."""
    far = math.sqrt(own[0] ** 2 + own[1] ** 2)
    return max(far - (own[0] * recorded[0] + own[1] * recorded[1]) / max(far, 1e-9), 0.0)


@kernel
def _lag_behind(vx: float, vy: float, asked: Array, memory: Array, h: float, out: Array) -> None:
    """Write how far a person has lagged behind the velocity asked for, lately [m].

    The nearest recording is rarely as fast as what is asked for, and physics costs some of it: asking for a little more
    makes up.
    """
    out[0], out[1] = 0.0, 0.0
    if math.sqrt(asked[0] ** 2 + asked[1] ** 2) > STILL:
        x = (1.0 - h / LATELY) * memory[_BEHIND] + h * (asked[0] - vx)
        y = (1.0 - h / LATELY) * memory[_BEHIND + 1] + h * (asked[1] - vy)
        size = max(math.sqrt(x * x + y * y) / LAG, 1.0)
        out[0], out[1] = x / size, y / size


@kernel
def _in_heading_frame(vx: float, vy: float, facing: Array, height: float, yaw: float, out: Array) -> None:
    """Write an intent as recorded frames have them; NaN if unknown."""
    # People who want to go or stand somewhere do it upright unless told otherwise.
    if math.isnan(height) and not math.isnan(vx):
        height = UPRIGHT
    c, s = math.cos(yaw), math.sin(yaw)
    across, along = c * vx + s * vy, c * vy - s * vx
    turn = math.atan2(-(c * facing[0] + s * facing[1]), c * facing[1] - s * facing[0])
    if not math.isnan(turn):
        turn = min(max(turn, -LARGEST_TURN), LARGEST_TURN)
    elif math.sqrt(across * across + along * along) < STILL:
        turn = 0.0  # people who stand face where they face unless told otherwise
    out[0], out[1], out[2], out[3] = across / SPEED_SCALE, along / SPEED_SCALE, math.sin(turn), math.cos(turn) - 1.0
    out[4] = HEIGHT_SCALE * (height - STANDING)


@kernel
def _rises(x: Array, v: Array, already: bool) -> bool:
    """Tell whether a person gets up: one who is at rest near the ground, until on both feet."""
    speed = 0.0
    for j in range(NUM_JOINTS):
        speed += math.sqrt(v[j, 0] ** 2 + v[j, 1] ** 2 + v[j, 2] ** 2) / NUM_JOINTS
    return x[0, 2] < LOW and (already or speed < AT_REST)


@kernel
def weigh(
    seen: Seen,
    queries: Queries,
    found: Array,
    draws: Array,
    recorded: Recorded,
    taste: Taste,
    chosen: Array,
    costs: Array,
    remembered: Array,
) -> None:
    """Write the frames that candidates follow, the cheapest but for chance first, their costs, and their memories.

    `found` are places among the rows that are searched, nearest first. The recording that is followed is a candidate
    like the others; of one moment of a recording there is one.
    """
    memory, falls = seen.memory, seen.falls
    n, num = len(recorded.last), chosen.shape[1]
    for i in range(len(memory)):
        row = int(memory[i, ROW])
        at = max(row, 0) % n
        goes_on = row >= 0 and at < recorded.last[at] - 1
        stays = goes_on and (recorded.allowed[queries.which[i], row] or queries.late[i])
        count = 0
        if stays:
            chosen[i, 0], costs[i, 0], count = (
                row,
                _cost(row, queries, falls[i], i, recorded, taste.catch) - taste.going_on,
                1,
            )
        for k in range(0 if queries.late[i] and goes_on else found.shape[1]):
            if count == num:
                break
            if found[i, k] < 0:
                continue
            other = recorded.rows[found[i, k]]
            new = not (goes_on and abs(other % n - at) < MOMENT)
            for c in range(count):
                new = new and abs(other % n - chosen[i, c] % n) >= MOMENT
            if new:
                chosen[i, count], costs[i, count] = other, _cost(other, queries, falls[i], i, recorded, taste.catch)
                count += 1
        if count == 0:  # there is nothing but this moment
            chosen[i, 0], costs[i, 0], count = row if goes_on else recorded.rows[found[i, 0]], 0.0, 1
        best = np.argmin(costs[i, :count])
        chosen[i, 0], chosen[i, best] = chosen[i, best], chosen[i, 0]
        costs[i, 0], costs[i, best] = costs[i, best], costs[i, 0]
        for k in range(num):
            if k >= count:
                chosen[i, k], costs[i, k] = chosen[i, 0], math.inf
            elif chosen[i, k] != row:
                costs[i, k] -= taste.noise * math.log(1.0 - draws[i, k])
            then = remembered[i, k]
            then[ROW], then[SHAKEN], then[RISING] = chosen[i, k] + 1, queries.shaken[i], queries.rising[i]
            then[_BEHIND], then[_BEHIND + 1] = queries.behind[i, 0], queries.behind[i, 1]


@kernel
def _cost(row: int, queries: Queries, own: Array, i: int, recorded: Recorded, catch: float) -> float:
    """Return what speaks against following a frame [m^2]: distance of features and intent, and a fall that its next step does not catch."""
    cost = 0.0
    for k in range(BALANCE):
        cost += queries.weights[i, k] * (recorded.codes[row, k] - queries.codes[i, k]) ** 2
    if queries.rising[i]:
        cost += HASTE * recorded.rise[row]
    return (
        cost + catch * queries.weights[i, BALANCE] * (recorded.growth[row] * _farther(own, recorded.falling[row])) ** 2
    )
