"""The motion field: a prior out of recordings, with no training (after Lee et al. 2010 and Clavet 2016).

The K recorded frames nearest to the body's own state and to what it wants are found, and the candidates are what those
people did next. The query is the simulated body, so a push is felt at once.
"""

import functools
import importlib.resources
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.rotations import apply, heading, unitquat_to_rotmat
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, flat
from dropsim.compute.jit import cache_folder, kernel_hash
from dropsim.compute.random import Streams
from dropsim.files.cache import cached
from dropsim.motion.motion import Motion
from dropsim.priors import field_kernels as kernels
from dropsim.priors.bank import EVERYDAY, TAGS, Bank
from dropsim.priors.field_queries import (
    AHEAD,
    BEHIND,
    FALL,
    FALL_TIME,
    HEIGHT_SCALE,
    JUMPING,
    NUM_COMPONENTS,
    NUM_REMEMBERED,
    REACTION,
    ROAM_SCALE,
    ROW,
    SPEED_SCALE,
    STANDING,
    WEIGHTS,
    Queries,
    Recorded,
    Wanted,
    weigh,
    write_queries,
)
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, Landings, Prior, State
from dropsim.priors.search import SearchIndex

UP, DOWN = 0.75, 0.45
"""Shares of their standing heights above which pelvis and head are of somebody upright, and below which the pelvis is of
somebody who lies."""
EFFORT = 0.13
"""Half-life of the offset between body and recording for people who get up [s]: with that of people who walk, one in five
stays down."""
NEVER = 10.0
"""Time that counts for recordings that do not get up [s]: longer than those who do take."""
LANDS = 1.0
"""Feet are known to land within this time [s]: longer in the air is no step."""
FARTHEST_ROAM = 1.0
"""Excursions beyond this count alike [m]; so do those of frames near a clip's end, after which nobody knows."""
PAST = 30
"""Frames of a recording before a start that priors with a memory of how people moved are given."""
CLIP_END = 12
"""Frames before a clip's end that are not proposed any more."""


@dataclass(frozen=True, eq=False)
class MotionField(Prior):
    """Proposes what recorded people in nearly the same state did next."""

    bank: Bank
    skeleton: Skeleton
    half_life: float = 0.18
    """In which the offset between the body and the recording halves [s]."""
    going_on: float = 0.15
    """Bonus of the recording that is followed over others [m^2]."""
    catch: float = 1.0
    """Weight of how far people will be out of balance when the recording's next foot lands."""
    noise: float = 0.05
    """Mean of the chance in the cost of other recordings [m^2], by which seeds differ."""
    reaction: float = REACTION
    """Time for which people who are off balance go on as before [s]."""
    num_found: int = 32
    """Nearest frames among which candidates are found."""
    num_samples: int = 8
    """More candidates make no visible difference: they are what recorded people did next, applied to the same pose."""
    name: str = "field"
    starts_at_mode: bool = True
    takes_intent: bool = True
    fps: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fps", self.bank.fps)

    @classmethod
    def shipped(cls) -> "MotionField":
        """Return the field of the recordings that come with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "recordings.bank") as path:
            return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> "MotionField":
        """Return the field of a bank, for the bank's own body."""
        bank = Bank.open(path)
        return cls(bank, bank.skeleton)

    @property
    def _frames(self) -> kernels.Frames:
        return frames_of(self.bank)

    @property
    def _index(self) -> tuple[Recorded, SearchIndex]:
        return kept_index(self.bank)

    @functools.cached_property
    def _rules(self) -> kernels.Rules:
        h, scale = 1 / self.fps, self.skeleton.leg_length / self.bank.skeleton.leg_length
        fade, rising = (1 - 0.5 ** (h / time) for time in (self.half_life, EFFORT))
        return kernels.Rules(h, scale, fade, rising, self.going_on, self.catch, self.noise, self.reaction * self.fps)

    @property
    def gets_up(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether somebody in the bank gets up from the ground."""
        return bool(self._index[0].gets_up[0])

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        batch, (recorded, search) = state.x.shape[:-2], self._index
        n, body, rules = math.prod(batch), self.skeleton.arrays, self._rules
        people = _people(state)
        intent = Intent.unknown(*batch) if intent is None else intent
        place = np.full((n, 2), np.nan) if intent.place is None else flat(intent.place, 1)
        wanted = Wanted(flat(intent.velocity, 1), flat(intent.facing, 1), flat(intent.height, 0), place)
        queries = Queries.empty(n)
        write_queries(people, body, wanted, recorded, rules, queries)
        nearest = search.nearest(queries.codes, queries.weights, queries.which, self.num_found)
        rows, costs, memory = np.empty((n, num), np.int64), np.empty((n, num)), np.empty((n, num, NUM_REMEMBERED))
        weigh(people, queries, nearest, rng.uniform(num).reshape(n, num), recorded, rules, rows, costs, memory)
        x, q = np.empty((n, num, NUM_JOINTS, 3)), np.empty((n, num, NUM_JOINTS, 3, 3))
        kernels.follow(people, rows, self._frames, body, rules, x, q)
        return Candidates(*(part.reshape(*batch, *part.shape[1:]) for part in (x, q, memory, costs)))

    def landings(self, state: State) -> Landings:
        batch, people = state.x.shape[:-2], _people(state)
        seconds, ankles = np.full((len(people.x), 2), np.nan), np.full((len(people.x), 2, 2), np.nan)
        rows = people.memory[:, ROW].astype(np.int64)
        kernels.landings(people, rows, self._frames, self.skeleton.arrays, self._rules, seconds, ankles)
        return Landings(seconds.reshape(*batch, 2), ankles.reshape(*batch, 2, 2))

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        memory = np.array(memory)
        memory[..., BEHIND] = memory[..., BEHIND] @ R[:2, :2].T
        return memory

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        del before, q
        return np.broadcast_to(np.where(np.arange(NUM_REMEMBERED) == ROW, -1.0, 0.0), (*x.shape[:-2], NUM_REMEMBERED))

    def start(self, category: str, seed: Sequence[int] | int = 0) -> State:
        """Return somebody of the recordings above the origin, facing +y."""
        rows = self._start_rows(category, seed, 1)
        motion = self._until(rows, 1)
        x, v = motion.joints[:, 1], (motion.joints[:, 1] - motion.joints[:, 0]) * self.fps
        x[..., 2] += self._lift(x)
        memory = np.zeros((len(rows), NUM_REMEMBERED))
        memory[:, ROW] = rows
        state = State(x, v, motion.q[:, 1], memory)
        return state[0] if isinstance(seed, int) else state

    def recording(self, category: str, seed: Sequence[int] | int = 0) -> Motion:
        """Return the last second of a recording before a start, which is above the origin and faces +y."""
        motion = self._until(self._start_rows(category, seed, PAST), PAST)
        root, q = motion.root.copy(), motion.q
        root[..., 2] += self._lift(motion.joints[:, -1])
        root, q = (root[0], q[0]) if isinstance(seed, int) else (root, q)
        return Motion.from_rotations(self.skeleton, self.fps, root, q)

    def _start_rows(self, category: str, seed: Sequence[int] | int, past: int) -> Int[np.ndarray, "n"]:
        """Draw a start for each seed, with so many frames of its clip before it."""
        choices = self.bank.starts(category)
        choices = choices[choices - self.bank.first[choices] >= past]
        seeds = [seed] if isinstance(seed, int) else seed
        return np.array([choices[int(Streams(s).uniform() * len(choices))] for s in seeds])

    def _until(self, rows: Int[np.ndarray, "n"], past: int) -> Motion:
        """Return some frames until the starts, which are above the origin and face +y."""
        root, quaternions = (
            values[rows[:, None] + np.arange(-past, 1)].astype(np.float64) for values in self._frames[:2]
        )
        q = unitquat_to_rotmat(quaternions)
        turn = heading(q[:, -1:, 0])
        q[:, :, 0] = turn @ q[:, :, 0]
        root = self._rules.scale * apply(turn, root - [1.0, 1.0, 0.0] * root[:, -1:])
        return Motion.from_rotations(self.skeleton, self.fps, root, q)

    def _lift(self, x: Float[np.ndarray, "n 22 3"]) -> Float[np.ndarray, "n 1"]:
        """Return by how much people start higher: recorded feet are inside the floor now and then."""
        return np.maximum((self.skeleton.radii - x[..., 2]).max(-1), 0.0)[:, None]


@functools.lru_cache(maxsize=4)
def shipped_field(skeleton: Skeleton) -> MotionField:
    """Return the shipped field for a body."""
    return replace(MotionField.shipped(), skeleton=skeleton)


def _people(state: State) -> kernels.People:
    return kernels.People.of(flat(state.x, 2), flat(state.v, 2), flat(state.q, 3), flat(state.memory, 1))


@functools.lru_cache(maxsize=2)
def frames_of(bank: Bank) -> kernels.Frames:
    """Return a bank's frames as kernels take them, without what is faster than people move.

    Gait laboratories cut joint data off at about 6 Hz (Winter 2009): the weights 1/4, 1/2, 1/4 do at 30 Hz.
    """
    now = np.arange(len(bank))
    before, after = np.maximum(now - 1, bank.first), np.minimum(now + 1, bank.last)
    root = 0.5 * bank.root + 0.25 * (bank.root[before] + bank.root[after])
    quaternions, own = 0.5 * bank.quaternions, bank.quaternions
    for others in (own[before], own[after]):
        quaternions += 0.25 * np.where((others * own).sum(-1, keepdims=True) < 0, -others, others)
    quaternions /= np.linalg.norm(quaternions, axis=-1, keepdims=True)
    lands = _next(bank.standing)
    soon = (lands <= bank.last[:, None]) & (lands - now[:, None] < LANDS * bank.fps)
    return kernels.Frames(
        root.astype(np.float32), quaternions.astype(np.float32), bank.standing, bank.last, np.where(soon, lands, -1)
    )


def _next(happens: Bool[np.ndarray, "n c"]) -> Int[np.ndarray, "n c"]:
    """Return the frame from each one on in which something happens; beyond the last one if it does not."""
    n = len(happens)
    return np.minimum.accumulate(np.where(happens, np.arange(n)[:, None], 10 * n)[::-1])[::-1]


@functools.lru_cache(maxsize=2)
def kept_index(bank: Bank) -> tuple[Recorded, SearchIndex]:
    """Return the index of a bank; that of a file is built once and kept in the user's cache folder."""
    parts = Recorded, SearchIndex

    def make() -> dict[str, np.ndarray]:
        built = index_of(bank, frames_of(bank))
        return {name: np.ascontiguousarray(values) for part in built for name, values in part._asdict().items()}

    # It is the index of this code and no other's.
    path = cache_folder() / "banks" / f"{bank.digest}-{kernel_hash()}.safetensors"
    arrays = cached(path, make) if bank.digest else make()
    recorded, search = ({name: arrays[name] for name in part._fields} for part in parts)
    return Recorded(**recorded), SearchIndex(**search)


def index_of(bank: Bank, frames: kernels.Frames) -> tuple[Recorded, SearchIndex]:
    """Return what is known of all frames and mirror images, and the search among those that are proposed."""
    n, skeleton, fps = len(bank), bank.skeleton, bank.fps
    now, starts = np.arange(n), np.arange(n) == bank.first
    feats = np.empty((2 * n, kernels.NUM_FEATURES), dtype=np.float32)
    falling, heads, yaws = np.empty((2 * n, 2), dtype=np.float32), np.empty(2 * n, dtype=np.float32), np.empty(2 * n)
    kernels.features_of_frames(frames, skeleton.arrays, fps, feats, falling, heads, yaws)
    mean = feats.mean(0, dtype=np.float64)
    sample = feats[:: max(1, len(feats) // 40_000)] - mean
    _, vectors = np.linalg.eigh(sample.T @ sample)
    basis = np.ascontiguousarray(vectors[:, ::-1][:, :NUM_COMPONENTS])
    intents = _intents(bank, frames, yaws[:n]) * WEIGHTS
    codes = np.concatenate(((feats - mean) @ basis, intents, FALL * falling), 1).astype(np.float32)
    rows = np.flatnonzero(np.tile((now < bank.last - CLIP_END) & ~starts, 2))
    # The next frame in which a foot lands that was in the air, and in which somebody is upright.
    lands = _next(bank.standing & ~bank.standing[np.maximum(now - 1, bank.first)]).min(1)
    seconds = np.where(lands <= bank.last, np.minimum((lands - now) / fps, LANDS), LANDS)
    tall = skeleton.rest[[0, kernels.HEAD], 1] - (skeleton.rest[:, 1] - skeleton.radii).min()
    upright = _next(((bank.root[:, 2] > UP * tall[0]) & (heads[:n] > UP * tall[1]))[:, None])[:, 0]
    until_upright = np.tile(np.where(upright <= bank.last, (upright - now) / fps, np.inf), 2)
    low = np.tile(bank.root[:, 2], 2) < DOWN * tall[0]
    allowed = _allowed(bank, heads, until_upright, rows)
    growth, rise = np.tile(np.exp(seconds / FALL_TIME), 2), np.minimum(until_upright, NEVER)
    gets_up = np.array([(np.isfinite(until_upright) & low).any()])
    clips = np.concatenate((bank.last, bank.last + n))[rows]
    recorded = Recorded(rows, mean, basis, codes, falling, growth, rise, allowed, bank.last, gets_up)
    return recorded, SearchIndex.build(codes[rows], clips, allowed[:, rows])


def _allowed(bank: Bank, heads: np.ndarray, until_upright: np.ndarray, rows: np.ndarray) -> Bool[np.ndarray, "4 r"]:
    """Return the frames that can be followed: by anybody, to go or stand, jump, and get up."""
    other = bank.tagged(*(tag for tag in TAGS if tag not in EVERYDAY))
    everyday = np.tile(~other, 2) & (heads > bank.erect)
    height = bank.root[:, 2]
    top = height[np.minimum(np.arange(len(bank))[:, None] + np.arange(AHEAD + 1), bank.last[:, None])].max(1)
    jumping = np.tile((top > JUMPING) & (top > height), 2)
    rising = np.isfinite(until_upright) & (until_upright > 0)
    every = np.ones(len(everyday), dtype=np.bool_)
    return np.stack([some if some[rows].any() else every for some in (every, everyday, jumping, rising)])


def _intents(bank: Bank, frames: kernels.Frames, yaw: Float[np.ndarray, "n"]) -> Float[np.ndarray, "r 6"]:
    """Return what each recorded frame, and its mirror image, is about to do within the time ahead."""
    now = np.arange(len(bank))
    then = np.minimum(now + AHEAD, bank.last)
    seconds = np.maximum(then - now, 1) / bank.fps
    c, s = np.cos(yaw), np.sin(yaw)
    x, y = (frames.root[then, :2] - frames.root[now, :2]).astype(np.float64).T
    across, along = (c * x + s * y) / seconds / SPEED_SCALE, (c * y - s * x) / seconds / SPEED_SCALE
    turn = (yaw[then] - yaw + np.pi) % (2 * np.pi) - np.pi
    height = HEIGHT_SCALE * (frames.root[then, 2].astype(np.float64) - STANDING)
    roam = np.minimum(bank.excursion, FARTHEST_ROAM) / ROAM_SCALE
    columns = np.stack((across, along, np.sin(turn), np.cos(turn) - 1, height, roam), -1)
    return np.concatenate((columns, columns * [-1, 1, -1, 1, 1, 1]))
