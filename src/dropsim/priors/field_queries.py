"""Kernels of the motion field: what people want as the search takes it, and what speaks against each recording found."""

import math
from typing import Any, NamedTuple

import numpy as np

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.skeleton import BodyArrays
from dropsim.compute.jit import kernel
from dropsim.priors.bank import STILL
from dropsim.priors.field_kernels import HEAD, LEGS, LOW, NUM_FEATURES, People, Rules, features, overbalance, yaw_of

Array = Any
"""numba knows the types."""
AHEAD = 20
"""Frames ahead at which recordings tell what they are about to do: where, how turned, and how high the person is
then."""
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
ACCELERATION = 3.3
"""Fastest change of velocity that is asked for [m/s^2]: farther off, an intent would outweigh balance and physics, and
one in eight runners who zigzag at once would fall."""
BACK_SPEED = 0.5
"""Fastest that people go back to their place [m/s]."""
_BEHIND = BEHIND.start


class Recorded(NamedTuple):
    """What is known of every frame and mirror image."""

    rows: np.ndarray
    """Frames that are searched, and their mirror images counted on."""
    mean: np.ndarray
    """Mean of the features (f)."""
    basis: np.ndarray
    """Principal components of the features (f c)."""
    codes: np.ndarray
    """Components of the features, the intent and the balance, in single precision (r c)."""
    falling: np.ndarray
    """How far recorded people are out of balance, in the heading frame (r 2) [m]."""
    growth: np.ndarray
    """Factor by which a fall grows until the next foot lands (r)."""
    rise: np.ndarray
    """Time until people who are not upright will be (r) [s]."""
    allowed: np.ndarray
    """Frames of each set (4 r)."""
    last: np.ndarray
    """Last frame of each frame's clip (n)."""
    gets_up: np.ndarray
    """Whether somebody gets up from the ground (1)."""


class Wanted(NamedTuple):
    """Parts of an intent; NaN where people leave it open."""

    velocity: np.ndarray
    facing: np.ndarray
    height: np.ndarray
    place: np.ndarray


class Queries(NamedTuple):
    """Queries of the search."""

    codes: np.ndarray
    """Components of the features, the intent and the balance (n c)."""
    weights: np.ndarray
    """Weights of these columns: unknown intents do not count (n c)."""
    which: np.ndarray
    """Sets of frames among which people search (n)."""

    @classmethod
    def empty(cls, n: int) -> "Queries":
        """Return room for the queries of n people."""
        codes, weights = np.empty((n, NUM_COLUMNS), np.float32), np.ones((n, NUM_COLUMNS), np.float32)
        return cls(codes, weights, np.full(n, GOING))


@kernel
def write_queries(
    people: People, body: BodyArrays, wanted: Wanted, recorded: Recorded, rules: Rules, out: Queries
) -> None:
    """Write what people notice of themselves, and queries for what they want.

    The bank's people have their own size: positions and velocities are compared at theirs.
    """
    scale, ahead, intent, feats = 1.0 / rules.scale, AHEAD * rules.h, np.empty(NUM_INTENT), np.empty(NUM_FEATURES)
    radii = scale * body.radii
    for i in range(len(people.x)):
        x, v, fall, behind = scale * people.x[i], scale * people.v[i], people.falls[i], people.behind[i]
        people.yaws[i] = yaw_of(people.q[i, 0])
        features(x, v, people.yaws[i], feats)
        overbalance(x, v, people.yaws[i], body.masses, radii, fall)
        _project(feats, recorded.mean, recorded.basis, out.codes[i])
        _notice(people, recorded.falling, rules.reaction, i)
        velocity, place, height = wanted.velocity[i], wanted.place[i], wanted.height[i]
        _lag_behind(people.v[i, 0], velocity, people.memory[i], rules.h, behind)
        intent[ROAM] = math.nan
        ux, uy = people.v[i, 0, 0], people.v[i, 0, 1]
        dx, dy = velocity[0] + behind[0] / CATCH_UP - ux, velocity[1] + behind[1] / CATCH_UP - uy
        share = min(ACCELERATION * ahead / max(math.sqrt(dx * dx + dy * dy), 1e-9), 1.0)
        vx, vy = ux + share * dx, uy + share * dy
        if not math.isnan(place[0]) and math.isnan(height) and people.shaken[i] == 0.0:
            # People who stand stay for a while, and go back if they have strayed; first of all they keep their balance.
            left, right = people.x[i, LEGS[0, 2]], people.x[i, LEGS[1, 2]]
            wx, wy = place[0] - 0.5 * (left[0] + right[0]), place[1] - 0.5 * (left[1] + right[1])
            slower = min(1.0, BACK_SPEED * ahead / max(math.sqrt(wx * wx + wy * wy), 1e-9)) / ahead
            vx, vy, intent[ROAM] = slower * wx, slower * wy, 0.0
        _in_heading_frame(scale * vx, scale * vy, wanted.facing[i], scale * height, people.yaws[i], intent)
        for k in range(NUM_INTENT):
            known = not math.isnan(intent[k])
            out.codes[i, NUM_COMPONENTS + k] = intent[k] * WEIGHTS[k] if known else 0.0
            out.weights[i, NUM_COMPONENTS + k] = 1.0 if known else 0.0
        out.codes[i, BALANCE], out.codes[i, BALANCE + 1] = FALL * fall[0], FALL * fall[1]
        jumps = intent[4] > HEIGHT_SCALE * (JUMPING - STANDING)
        people.rising[i] = recorded.gets_up[0] and not jumps and _rises(x, v, people.memory[i, RISING] > 0)
        if jumps:
            out.which[i] = JUMPS
        elif people.rising[i]:
            out.which[i] = GETTING_UP
            out.weights[i, NUM_COMPONENTS:] = 0.0  # any way up will do
        elif x[0, 2] < LOW or x[0, 2] > JUMPING or x[HEAD, 2] < x[0, 2]:
            out.which[i] = ANY


@kernel
def _project(features: Array, mean: Array, basis: Array, out: Array) -> None:
    """Write principal components, with sums in a fixed order, so that nobody's depend on the batch."""
    for k in range(basis.shape[1]):
        total = 0.0
        for f in range(len(mean)):
            total += (features[f] - mean[f]) * basis[f, k]
        out[k] = total


@kernel
def _notice(people: People, recorded: Array, reaction: float, i: int) -> None:
    """Write for how long a person has been farther out of balance than the recorded one, and whether it is too early to react."""
    row = int(people.memory[i, ROW])
    unsteady = row >= 0 and _farther(people.falls[i], recorded[row]) > UNSTEADY
    shaken = people.memory[i, SHAKEN] + (1.0 if unsteady else -1.0)
    people.shaken[i] = min(max(shaken, 0.0), 2.0 * reaction)
    # Before people react, they go on as they did.
    people.late[i] = unsteady and people.shaken[i] <= reaction


@kernel
def _farther(own: Array, recorded: Array) -> float:
    """Return how much farther a person is out of balance than a recorded one [m]: walking is falling too."""
    far = math.sqrt(own[0] ** 2 + own[1] ** 2)
    return max(far - (own[0] * recorded[0] + own[1] * recorded[1]) / max(far, 1e-9), 0.0)


@kernel
def _lag_behind(velocity: Array, asked: Array, memory: Array, h: float, out: Array) -> None:
    """Write how far a person has lagged behind the velocity asked for, lately [m].

    The nearest recording is rarely as fast as what is asked for, and physics costs some of it: asking for a little more
    makes up.
    """
    if math.sqrt(asked[0] ** 2 + asked[1] ** 2) > STILL:
        x = (1.0 - h / LATELY) * memory[_BEHIND] + h * (asked[0] - velocity[0])
        y = (1.0 - h / LATELY) * memory[_BEHIND + 1] + h * (asked[1] - velocity[1])
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
    people: People,
    queries: Queries,
    nearest: Array,
    draws: Array,
    recorded: Recorded,
    rules: Rules,
    chosen: Array,
    costs: Array,
    remembered: Array,
) -> None:
    """Write the frames that candidates follow, the cheapest but for chance first, their costs, and their memories.

    `nearest` are places among the rows that are searched. The recording that is followed is a candidate like the
    others; of one moment of a recording there is one.
    """
    n, num = len(recorded.last), chosen.shape[1]
    for i in range(len(chosen)):
        row = int(people.memory[i, ROW])
        at = max(row, 0) % n
        goes_on = row >= 0 and at < recorded.last[at] - 1
        count = 0
        if goes_on and (recorded.allowed[queries.which[i], row] or people.late[i]):
            chosen[i, 0], costs[i, 0] = row, _cost(row, people, queries, i, recorded, rules.catch) - rules.going_on
            count = 1
        for k in range(0 if people.late[i] and goes_on else nearest.shape[1]):
            if count == num or nearest[i, k] < 0:
                break
            other = recorded.rows[nearest[i, k]]
            new = not (goes_on and abs(other % n - at) < MOMENT)
            for c in range(count):
                new = new and abs(other % n - chosen[i, c] % n) >= MOMENT
            if new:
                chosen[i, count], costs[i, count] = other, _cost(other, people, queries, i, recorded, rules.catch)
                count += 1
        if count == 0:  # there is nothing but this moment
            chosen[i, 0], costs[i, 0], count = row if goes_on else recorded.rows[nearest[i, 0]], 0.0, 1
        best = np.argmin(costs[i, :count])
        chosen[i, 0], chosen[i, best] = chosen[i, best], chosen[i, 0]
        costs[i, 0], costs[i, best] = costs[i, best], costs[i, 0]
        for k in range(num):
            if k >= count:
                chosen[i, k], costs[i, k] = chosen[i, 0], math.inf
            elif chosen[i, k] != row:
                costs[i, k] -= rules.noise * math.log(1.0 - draws[i, k])
            then = remembered[i, k]
            then[ROW], then[SHAKEN], then[RISING] = chosen[i, k] + 1, people.shaken[i], people.rising[i]
            then[_BEHIND], then[_BEHIND + 1] = people.behind[i, 0], people.behind[i, 1]


@kernel
def _cost(row: int, people: People, queries: Queries, i: int, recorded: Recorded, catch: float) -> float:
    """Return what speaks against following a frame [m^2]: distance of features and intent, and a fall that its next step does not catch."""
    cost = 0.0
    for k in range(BALANCE):
        cost += queries.weights[i, k] * (recorded.codes[row, k] - queries.codes[i, k]) ** 2
    if people.rising[i]:
        cost += HASTE * recorded.rise[row]
    fall = recorded.growth[row] * _farther(people.falls[i], recorded.falling[row])
    return cost + catch * queries.weights[i, BALANCE] * fall**2
