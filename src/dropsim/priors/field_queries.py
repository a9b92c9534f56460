"""Kernels of the motion field: what people want as the search takes it, and which of the recordings found they follow."""

import math
from typing import Any, NamedTuple

import numpy as np

from dropsim.body.joints import NUM_JOINTS
from dropsim.compute.jit import kernel
from dropsim.priors.bank import CROUCHED, STILL
from dropsim.priors.field_kernels import HEAD, LOW, project

Array = Any
"""numba knows the types."""
NUM_COMPONENTS = 24
"""Principal components of the features that are searched: 97 % of the variance of everyday motion."""
SPEED_SCALE, HEIGHT_SCALE, STANDING = 1.5, 4.0, 0.85
"""A difference of 1.5 m/s counts like a metre of the features, one of 25 cm in height too; heights count from 0.85 m."""
ROAM_SCALE = 0.3
"""Excursion of people who are to stand that counts like a metre of the features [m]: about a foot's length."""
WEIGHTS = np.array([1.5, 1.5, 1.0, 1.0, 0.6, 1.0])
"""Weights of the intent's parts: velocity (two), sine and cosine of the turn, height, excursion."""
NUM_INTENT = len(WEIGHTS)
ROAM = 5
"""Column of the excursion."""
LARGEST_TURN = 1.2
"""Turn within the time ahead that is asked for at most [rad]: recorded people hardly turn faster."""
UPRIGHT = 0.88
"""Height of the pelvis of somebody who walks or stands, on the recordings' body [m]."""
LATELY, CATCH_UP, LAG = 4.0, 1.0, 0.6
"""A lag is forgotten within 2 s, people would like to make it up within 1 s, and none is remembered beyond 30 cm."""
REACTION, ALERT = 0.2, 0.5
"""Between losing one's balance and doing something about it [s]: pushed walkers answer with the ankle after 0.2 s (Hof et al. 2010). Who
was out of balance for so long stays alert for the second time at most."""
UNSTEADY = 0.05
"""People step who are farther than this out of balance [m]: toes and the ball of the foot hold less than that."""
DOWN = 0.45
"""Share of their standing heights below which pelvis or head are of somebody who lies."""
AT_REST = 0.7
"""People get up once their joints are slower than this on average [m/s]."""
FALL_TIME = 0.3
"""A body falls like a pendulum of this time constant, sqrt(l / g) for l = 0.9 m [s]."""
JUMPING = 1.05
"""Height of the pelvis that people only reach in the air, on the recordings' body [m]: those who want to be higher jump."""
BACK = 15
"""Frames by which nobody goes back within a recording: about a step."""
ROW, AGE, TRACK, BEHIND, SHAKEN, RISING, NUM_REMEMBERED = 0, 1, 2, slice(3, 5), 5, 6, 7
"""Columns of the memory: the recorded frame that is followed, for how many frames, the frame whose intent people have who are told nothing,
how far they lag behind [m], for how many frames they were out of balance, and whether they get up."""
ANY, STEPPING, GOING, JUMPS, GETTING_UP, NUM_SETS = 0, 1, 2, 3, 4, 5
"""Sets of frames that can be followed: by anybody, to step, to go or stand, to jump, and to get up."""
BACK_SPEED = 0.5
"""Fastest that people go back to their place [m/s]."""
_ANKLES = (7, 8)
_BEHIND = BEHIND.start
_NO_SLOWER = 1.0 / (FALL_TIME * SPEED_SCALE)


class Recorded(NamedTuple):
    """What is known of every frame and mirror image, and of the bank's people."""

    rows: np.ndarray
    """Those that are searched."""
    mean: np.ndarray
    basis: np.ndarray
    codes: np.ndarray
    falling: np.ndarray
    allowed: np.ndarray
    """Frames of each set (5 r)."""
    last: np.ndarray
    """Last frame of each frame's clip."""
    radii: np.ndarray
    """Of the bank's body [m]."""
    tall: tuple[float, float]
    """Heights of pelvis and head of somebody who stands, on the bank's body [m]."""
    gets_up: bool
    """Whether somebody gets up from the ground."""


class Queries(NamedTuple):
    """What people want, and what they are about."""

    codes: np.ndarray
    """Queries: components of the features, and the intent (n c)."""
    weights: np.ndarray
    """Which columns of the queries count: unknown intents do not (n c)."""
    which: np.ndarray
    """Sets of frames among which they search (n)."""
    late: np.ndarray
    """Who has not reacted yet to being out of balance (n)."""
    steps: np.ndarray
    """Who has (n)."""
    rising: np.ndarray
    """Who gets up (n)."""
    shaken: np.ndarray
    """For how many frames they were out of balance (n)."""
    behind: np.ndarray
    """How far they lag behind (n 2) [m]."""

    @classmethod
    def empty(cls, n: int) -> "Queries":
        """Return room for what n people want."""
        codes, weights = (np.empty((n, NUM_COMPONENTS + len(WEIGHTS)), dtype=np.float32) for _ in range(2))
        late, steps, rising = (np.empty(n, dtype=np.bool_) for _ in range(3))
        return cls(codes, weights, np.empty(n, dtype=np.int64), late, steps, rising, np.empty(n), np.empty((n, 2)))


@kernel
def write_queries(
    x: Array, v: Array, scale: float, fps: float, yaws: Array, feats: Array, falls: Array, memory: Array, velocity: Array, facing: Array,
    height: Array, place: Array, ahead: float, track: Array, recorded: Recorded, out: Queries,
) -> None:  # fmt: skip
    """Write what people want who are in some state, remember something and are told a velocity, a facing, a height and a place, or NaN.

    Velocities are those of the time `ahead` [s]. People are as large as the bank's, by a `scale`, and what they are told is not. `falls`
    is how far they are out of balance; `track` is the frame whose intent they have, or -1.
    """
    project(feats, recorded.mean, recorded.basis, out.codes)
    falling, wanted = np.empty(2), np.empty(NUM_INTENT)
    for i in range(len(x)):
        _fall(falls[i], memory[i], fps, recorded.falling, falling, i, out)
        _lag_behind(v[i, 0, 0] / scale, v[i, 0, 1] / scale, velocity[i], memory[i], 1.0 / fps, out.behind[i])
        wanted[ROAM] = math.nan
        if track[i] >= 0:
            for k in range(ROAM):
                wanted[k] = recorded.codes[track[i], NUM_COMPONENTS + k] / WEIGHTS[k]
        else:
            vx, vy = velocity[i, 0] + out.behind[i, 0] / CATCH_UP, velocity[i, 1] + out.behind[i, 1] / CATCH_UP
            if not math.isnan(place[i, 0]) and math.isnan(height[i]) and out.shaken[i] == 0.0:
                # People who stand stay for a while, and go back if they have strayed; first of all they keep their balance.
                wx, wy = place[i, 0] - _middle(x[i], 0) / scale, place[i, 1] - _middle(x[i], 1) / scale
                slower = min(1.0, BACK_SPEED * ahead / max(math.sqrt(wx * wx + wy * wy), 1e-9)) / ahead
                vx, vy, wanted[ROAM] = slower * wx, slower * wy, 0.0
            _in_heading_frame(scale * vx, scale * vy, facing[i], scale * height[i], yaws[i], wanted)
        # The feet have to follow the body first: nobody wants to be slower than a fall along its way.
        speed = math.sqrt(falling[0] ** 2 + falling[1] ** 2) * _NO_SLOWER
        if speed > 0.0:
            wx, wy = falling[0] * _NO_SLOWER / speed, falling[1] * _NO_SLOWER / speed
            more = max(speed - wanted[0] * wx - wanted[1] * wy, 0.0)
            wanted[0], wanted[1] = wanted[0] + more * wx, wanted[1] + more * wy
        for k in range(NUM_INTENT):
            known = not math.isnan(wanted[k])
            out.codes[i, NUM_COMPONENTS + k] = wanted[k] * WEIGHTS[k] if known else 0.0
            out.weights[i, NUM_COMPONENTS + k] = 1.0 if known else 0.0
        for k in range(NUM_COMPONENTS):
            out.weights[i, k] = 1.0
        crouches, jumps = wanted[4] < HEIGHT_SCALE * (CROUCHED - STANDING), wanted[4] > HEIGHT_SCALE * (JUMPING - STANDING)
        out.rising[i] = recorded.gets_up and not crouches and not jumps and _rises(x[i], v[i], memory[i, RISING] > 0, recorded.tall)
        pelvis = x[i, 0, 2]
        if jumps:
            out.which[i] = JUMPS
        elif out.rising[i]:
            out.which[i] = GETTING_UP
            out.weights[i, NUM_COMPONENTS:] = 0.0  # any way up will do
        elif crouches or pelvis < LOW or pelvis > JUMPING or x[i, HEAD, 2] < pelvis:
            out.which[i] = ANY
        elif out.steps[i]:
            out.which[i] = STEPPING
        else:
            out.which[i] = GOING


@kernel
def _middle(x: Array, c: int) -> float:
    """Return a coordinate of the place between the feet."""
    return 0.5 * (x[_ANKLES[0], c] + x[_ANKLES[1], c])


@kernel
def _fall(own: Array, memory: Array, fps: float, recorded: Array, falling: Array, i: int, out: Queries) -> None:
    """Write how much farther a person is out of balance than who is followed [m], unless it is too early to react.

    Walking is falling too: only what the recording does not have counts.
    """
    row, far, more = int(memory[ROW]), math.sqrt(own[0] ** 2 + own[1] ** 2), 0.0
    wx, wy = own[0] / max(far, 1e-9), own[1] / max(far, 1e-9)
    if row >= 0:
        more = max(far - wx * recorded[row, 0] - wy * recorded[row, 1], 0.0)
    unsteady = more > UNSTEADY
    out.shaken[i] = min(max(memory[SHAKEN] + (1.0 if unsteady else -1.0), 0.0), ALERT * fps)
    # Before people react, they go on as they did.
    out.late[i] = unsteady and out.shaken[i] <= REACTION * fps
    out.steps[i] = unsteady and not out.late[i]
    falling[0], falling[1] = (0.0, 0.0) if out.late[i] else (more * wx, more * wy)


@kernel
def _lag_behind(vx: float, vy: float, asked: Array, memory: Array, h: float, out: Array) -> None:
    """Write how far a person has lagged behind the velocity asked for, lately [m].

    The nearest recording is rarely as fast as what is asked for, and physics costs some of it: asking for a little more makes up.
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
def _rises(x: Array, v: Array, already: bool, tall: tuple[float, float]) -> bool:
    """Tell whether a person gets up: one who lies at rest, until on both feet."""
    pelvis = x[0, 2]
    if already:
        return pelvis < LOW
    speed = 0.0
    for j in range(NUM_JOINTS):
        speed += math.sqrt(v[j, 0] ** 2 + v[j, 1] ** 2 + v[j, 2] ** 2) / NUM_JOINTS
    return (pelvis < DOWN * tall[0] or x[HEAD, 2] < DOWN * tall[1]) and speed < AT_REST


@kernel
def choose(
    memory: Array, queries: Queries, found: Array, gaps: Array, draws: Array, track: Array, recorded: Recorded, choice: int, loyalty: float,
    least_stay: int, chosen: Array, kept: Array,
) -> None:  # fmt: skip
    """Write the frames that candidates follow, the mode's first, and what is remembered then.

    `found` are places among the rows that are searched, nearest first, and `gaps` their distances. What is remembered is the clip that is
    followed, whichever candidate comes nearest: otherwise people whom physics holds back would stay in a moment for ever, and not take the
    step that the recording leads to.
    """
    n, num = len(recorded.last), chosen.shape[1]
    for i in range(len(memory)):
        row = int(memory[i, ROW])
        row, follows = (row, True) if row >= 0 else (1, False)
        at = row % n
        goes_on = follows and at < recorded.last[at] - 1
        gap = 0.0
        for k in range(queries.codes.shape[1]):
            gap += queries.weights[i, k] * (recorded.codes[row, k] - queries.codes[i, k]) ** 2
        young = memory[i, AGE] < least_stay and gap < 4.0 * max(gaps[i, 0], 0.02)
        keeps = goes_on and (gap < loyalty * max(gaps[i, 7], 0.02) or young) and recorded.allowed[queries.which[i], row]
        resolute = queries.late[i] or (queries.rising[i] and memory[i, RISING] > 0 and not queries.steps[i])
        keeps = keeps or (resolute and goes_on)
        drawn = int(draws[i] * min(choice, found.shape[1]))
        first = recorded.rows[found[i, drawn]]
        # Nobody goes back to where they just were: otherwise people stay in a moment for ever, such as before a step.
        keeps = keeps or (goes_on and 0 <= row - first < BACK and recorded.allowed[queries.which[i], row])
        while not keeps and drawn + 1 < found.shape[1] and 0 <= row - first < BACK and found[i, drawn + 1] >= 0:
            drawn += 1
            first = recorded.rows[found[i, drawn]]
        first = row if keeps else first
        chosen[i, 0] = first
        for k in range(1, num):
            chosen[i, k] = first if keeps and queries.late[i] else recorded.rows[found[i, k - 1]]
        kept[i, ROW], kept[i, AGE], kept[i, TRACK] = first + 1, memory[i, AGE] + 1 if keeps else 0, track[i]
        kept[i, _BEHIND], kept[i, _BEHIND + 1] = queries.behind[i, 0], queries.behind[i, 1]
        kept[i, SHAKEN], kept[i, RISING] = queries.shaken[i], queries.rising[i]
