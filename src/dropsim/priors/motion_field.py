"""The motion field: a prior out of recordings, with no training (after Lee et al. 2010 and Clavet 2016).

The K recorded frames nearest to the body's own state and to what it wants are found, and the candidates are what those
people did next. The query is the simulated body, so a push is felt at once.
"""

import functools
import hashlib
import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from dropsim.body.skeleton import NUM_JOINTS, Skeleton, flat
from dropsim.compute.jit import cache_folder, kernel_hash
from dropsim.compute.random import Streams
from dropsim.files.kept import kept
from dropsim.priors import field_kernels as kernels
from dropsim.priors.bank import EVERYDAY, TAGS, Bank
from dropsim.priors.field_queries import (
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
    Seen,
    Taste,
    Wanted,
    weigh,
    write_queries,
)
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, Landings, LazyCandidates, Prior, State
from dropsim.priors.search import Filter, SearchIndex

AHEAD = 20
"""Frames ahead at which recordings tell what they are about to do: where, how turned, and how high the person is
then."""
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
CLIP_END = 12
"""Frames before a clip's end that are not proposed any more."""
_NO_ROTATIONS = np.empty((0, 0, NUM_JOINTS, 3, 3))


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
    def open(cls, path: str | Path, skeleton: Skeleton | None = None) -> "MotionField":
        """Return the field of a bank, for a body; the bank's own unless given."""
        bank = Bank.open(path)
        return cls(bank, skeleton or bank.skeleton)

    @functools.cached_property
    def _frames(self) -> kernels.Frames:
        return frames_of(self.bank)

    @functools.cached_property
    def _body(self) -> kernels.Body:
        s = self.skeleton
        return kernels.Body(s.offsets, s.lengths, s.radii, s.leg_length / self.bank.skeleton.leg_length)

    @functools.cached_property
    def _pull(self) -> kernels.Pull:
        h = 1 / self.fps
        return kernels.Pull(h, *(1 - 0.5 ** (h / time) for time in (self.half_life, EFFORT)))

    @functools.cached_property
    def _index(self) -> "FieldIndex":
        return FieldIndex.of_bank(self.bank, self._frames)

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        batch, index = state.x.shape[:-2], self._index
        x, v, q, memory = flat(state.x, 2), flat(state.v, 2), flat(state.q, 3), flat(state.memory, 1)
        n = len(x)
        queries, feats = Queries.empty(n), np.empty((n, kernels.NUM_FEATURES))
        yaws, falls = np.empty(n), np.empty((n, 2))
        # The bank's people have their own size: positions and velocities are compared at theirs.
        scale = 1.0 / self._body.scale
        sized = scale * x, scale * v
        kernels.features_of_people(*sized, q, self.skeleton.masses, scale * self.skeleton.radii, feats, yaws, falls)
        intent = Intent.unknown(*batch) if intent is None else intent
        place = np.full((n, 2), np.nan) if intent.place is None else intent.place.reshape(-1, 2)
        velocity = intent.velocity.reshape(-1, 2)
        facing = intent.facing.reshape(-1, 2)
        height = intent.height.reshape(-1)
        wanted = Wanted(velocity, facing, height, place, AHEAD / self.fps)
        seen = Seen(*sized, yaws, feats, falls, memory, scale, self.fps, self.reaction * self.fps)
        write_queries(seen, wanted, self._recorded, queries)
        found, _ = index.search.nearest(
            queries.codes, self.num_found, weights=queries.weights, filter=self._sets, which=queries.which
        )
        rows, costs = np.empty((n, num), dtype=np.int64), np.empty((n, num))
        remembered, draws = np.empty((n, num, NUM_REMEMBERED)), rng.uniform(num).reshape(n, num)
        taste = Taste(self.going_on, self.catch, self.noise)
        weigh(seen, queries, found, draws, self._recorded, taste, rows, costs, remembered)
        next_x = np.empty((n, num, NUM_JOINTS, 3))
        people = kernels.People(x, v, q, yaws, queries.late, queries.rising)
        kernels.follow(people, rows, self._frames, self._body, self._pull, next_x, _NO_ROTATIONS)
        rotations = functools.partial(self._rotations, people, rows)
        next_x, remembered, costs = (part.reshape(*batch, *part.shape[1:]) for part in (next_x, remembered, costs))
        return LazyCandidates(next_x, remembered, costs, rotations)

    def landings(self, state: State) -> Landings:
        batch, x, memory = state.x.shape[:-2], flat(state.x, 2), flat(state.memory, 1)
        seconds, ankles, yaws = np.full((len(x), 2), np.nan), np.full((len(x), 2, 2), np.nan), np.empty(len(x))
        kernels.headings_of_people(flat(state.q, 3), yaws)
        rows = memory[:, ROW].astype(np.int64)
        kernels.landings(x, yaws, rows, self._frames, self._body.scale, self._steps, self._pull, seconds, ankles)
        return Landings(seconds.reshape(*batch, 2), ankles.reshape(*batch, 2, 2))

    @functools.cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Where recorded ankles are seen from above, and which way people face."""
        n = len(self.bank)
        ankles, yaws = np.empty((n, 2, 2)), np.empty(n)
        kernels.ankles_of_frames(self._frames, self._body, ankles)
        kernels.headings(self._frames, yaws)
        return ankles, yaws

    def _rotations(
        self, people: kernels.People, rows: Int[np.ndarray, "n k"], asked: Int[np.ndarray, "*b s"]
    ) -> Float[np.ndarray, "*b s 22 3 3"]:
        """Return the rotations of some candidates, by their numbers."""
        rows = rows[np.arange(len(rows))[:, None], asked.reshape(len(rows), -1)]
        x, q = np.empty((*rows.shape, NUM_JOINTS, 3)), np.empty((*rows.shape, NUM_JOINTS, 3, 3))
        kernels.follow(people, rows, self._frames, self._body, self._pull, x, q)
        return q.reshape(*asked.shape, NUM_JOINTS, 3, 3)

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        memory = np.array(memory)
        memory[..., BEHIND] = memory[..., BEHIND] @ R[:2, :2].T
        return memory

    @functools.cached_property
    def _recorded(self) -> Recorded:
        """What the choice of recordings takes."""
        index, bank = self._index, self.bank
        n = len(bank)
        # The next frame in which a foot lands that was in the air.
        landing = bank.standing & ~bank.standing[np.maximum(np.arange(n) - 1, bank.first)]
        lands = _next(landing).min(1)
        seconds = np.where(lands <= bank.last, np.minimum((lands - np.arange(n)) / bank.fps, LANDS), LANDS)
        growth = np.tile(np.exp(seconds / FALL_TIME), 2)
        rise = np.minimum(self._until_upright, NEVER)
        codes = (index.rows, index.mean, index.basis, index.codes_of_frames, index.falling, growth, rise)
        return Recorded(*codes, self._allowed, self._frames.last, bank.skeleton.radii, self.gets_up)

    @functools.cached_property
    def _tall(self) -> tuple[float, float]:
        """Heights of pelvis and head of somebody who stands, on the recordings' body [m]."""
        up, radii = self.bank.skeleton.rest[:, 1], self.bank.skeleton.radii
        return float(up[0] - (up - radii).min()), float(up[kernels.HEAD] - (up - radii).min())

    @functools.cached_property
    def _until_upright(self) -> Float[np.ndarray, "r"]:
        """Time until each frame, and mirror image, is upright [s]; infinite if it never is."""
        n, height, heads = len(self.bank), self.bank.root[:, 2], self._index.heads[: len(self.bank)]
        then = _next(((height > UP * self._tall[0]) & (heads > UP * self._tall[1]))[:, None])[:, 0]
        return np.tile(np.where(then <= self.bank.last, (then - np.arange(n)) / self.fps, np.inf), 2)

    @functools.cached_property
    def gets_up(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether somebody in the bank gets up from the ground."""
        return bool(
            (np.isfinite(self._until_upright) & (np.tile(self.bank.root[:, 2], 2) < DOWN * self._tall[0])).any()
        )

    @functools.cached_property
    def _allowed(self) -> Bool[np.ndarray, "4 r"]:
        """Frames, and mirror images, that can be followed: by anybody, to go or stand, jump, and get up."""
        bank = self.bank
        erect = self._index.heads > bank.erect
        everyday = np.tile(~bank.tagged(*(tag for tag in TAGS if tag not in EVERYDAY)), 2) & erect
        height = bank.root[:, 2]
        top = height[np.minimum(np.arange(len(bank))[:, None] + np.arange(AHEAD + 1), bank.last[:, None])].max(1)
        jumping = np.tile((top > JUMPING) & (top > height), 2)
        rising = np.isfinite(self._until_upright) & (self._until_upright > 0)
        every = np.ones(len(everyday), dtype=np.bool_)
        return np.stack(
            [some if some[self._index.rows].any() else every for some in (every, everyday, jumping, rising)]
        )

    @functools.cached_property
    def _sets(self) -> Filter:
        return self._index.search.filter(self._allowed[:, self._index.rows])

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        del before, q
        return np.broadcast_to(np.where(np.arange(NUM_REMEMBERED) == ROW, -1.0, 0.0), (*x.shape[:-2], NUM_REMEMBERED))

    def start(self, category: str, seed: Sequence[int] | int = 0) -> State:
        """Return somebody of the recordings above the origin, facing +y."""
        seeds = [seed] if isinstance(seed, int) else list(seed)
        choices = self.bank.starts(category)
        rows = np.array([choices[int(Streams(s).uniform() * len(choices))] for s in seeds])
        x, q = (np.empty((2, len(rows), NUM_JOINTS, *rest)) for rest in ((3,), (3, 3)))
        for past in range(2):
            kernels.poses(self._frames, rows - past, rows, self._body, x[past], q[past])
        # Nobody starts inside the floor: recorded feet are a little lower now and then.
        x[..., 2] += np.maximum((self.skeleton.radii - x[0, ..., 2]).max(-1), 0.0)[:, None]
        memory = np.zeros((len(rows), NUM_REMEMBERED))
        memory[:, ROW] = rows
        state = State(x[0], (x[0] - x[1]) * self.fps, q[0], memory)
        return state[0] if isinstance(seed, int) else state


def _next(happens: Bool[np.ndarray, "n c"]) -> Int[np.ndarray, "n c"]:
    """Return the frame from each one on in which something happens; beyond the last one if it does not."""
    n = len(happens)
    return np.minimum.accumulate(np.where(happens, np.arange(n)[:, None], 10 * n)[::-1])[::-1]


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


@dataclass(frozen=True, eq=False)
class FieldIndex:
    """The searched frames of a bank: their features as principal components, next to what they are about to do."""

    rows: Int[np.ndarray, "r"]
    """Frames, and their mirror images counted on."""
    mean: Float[np.ndarray, "f"]
    basis: Float[np.ndarray, "f c"]
    codes_of_frames: np.ndarray
    """Of every frame and mirror image, in single precision."""
    falling: np.ndarray
    """How far every frame and mirror image is out of balance, in the heading frame [m]."""
    heads: np.ndarray
    """Height of the head in every frame and mirror image [m]."""
    search: SearchIndex

    @classmethod
    def of_bank(cls, bank: Bank, frames: kernels.Frames) -> "FieldIndex":
        """Return the index of a bank; that of a file is built once and kept in the user's cache folder."""

        def make() -> dict[str, np.ndarray]:
            index = cls.of(frames, bank)
            own = {name: getattr(index, field) for name, field in _KEPT.items()}
            return own | index.search.arrays

        if not bank.digest:
            return cls.of(frames, bank)
        # It is the index of this code and no other's.
        code = hashlib.sha256(Path(__file__).read_bytes() + kernel_hash().encode()).hexdigest()[:16]
        found = kept(cache_folder() / "banks" / f"{bank.digest}-{code}.safetensors", make)
        own = {field: found.pop(name) for name, field in _KEPT.items()}
        return cls(**own, search=SearchIndex(**found))

    @classmethod
    def of(cls, frames: kernels.Frames, bank: Bank) -> "FieldIndex":
        """Build the index of all frames."""
        n, skeleton, fps = len(frames.root), bank.skeleton, bank.fps
        every = np.arange(2 * n)
        first = np.concatenate(([True], frames.last[1:] != frames.last[:-1]))
        feats = np.empty((2 * n, kernels.NUM_FEATURES), dtype=np.float32)
        before = np.where(np.concatenate((first, first)), every, every - 1)
        falling, heads = np.empty((2 * n, 2), dtype=np.float32), np.empty(2 * n, dtype=np.float32)
        kernels.features_of_frames(
            frames, every, before, skeleton.offsets, skeleton.masses, skeleton.radii, fps, feats, falling, heads
        )
        mean = feats.mean(0, dtype=np.float64)
        sample = feats[:: max(1, len(feats) // 40_000)] - mean
        _, vectors = np.linalg.eigh(sample.T @ sample)
        basis = np.ascontiguousarray(vectors[:, ::-1][:, :NUM_COMPONENTS])
        intents = recorded_intents(frames, fps, bank.excursion) * WEIGHTS
        codes = np.concatenate(((feats - mean) @ basis, intents, FALL * falling), 1).astype(np.float32)
        usable = (np.arange(n) < frames.last - CLIP_END) & ~first
        rows = np.flatnonzero(np.concatenate((usable, usable)))
        clips = np.concatenate((frames.last, frames.last + n))[rows]
        return cls(rows, mean, basis, codes, falling, heads, SearchIndex.build(codes[rows], clips))


_KEPT = {name: name for name in ("rows", "mean", "basis", "falling", "heads")} | {"codes": "codes_of_frames"}
"""Names of an index' arrays in a file, next to those of its search."""


def _intent_columns(
    across: np.ndarray, along: np.ndarray, turn: np.ndarray, height: np.ndarray, roam: np.ndarray
) -> np.ndarray:
    way, turns = (across / SPEED_SCALE, along / SPEED_SCALE), (np.sin(turn), np.cos(turn) - 1)
    return np.stack((*way, *turns, HEIGHT_SCALE * (height - STANDING), roam / ROAM_SCALE), -1)


def recorded_intents(
    frames: kernels.Frames, fps: float, excursion: Float32[np.ndarray, "n"]
) -> Float[np.ndarray, "r 6"]:
    """Return what each recorded frame, and its mirror image, is about to do within the time ahead."""
    n = len(frames.root)
    now = np.arange(n)
    then = np.minimum(now + AHEAD, frames.last)
    seconds = np.maximum(then - now, 1) / fps
    yaw = np.empty(n)
    kernels.headings(frames, yaw)
    c, s = np.cos(yaw), np.sin(yaw)
    way = (frames.root[then, :2] - frames.root[now, :2]).astype(np.float64)
    across, along = (c * way[:, 0] + s * way[:, 1]) / seconds, (c * way[:, 1] - s * way[:, 0]) / seconds
    turn = (yaw[then] - yaw + np.pi) % (2 * np.pi) - np.pi
    height = frames.root[then, 2].astype(np.float64)
    roam = np.minimum(excursion, FARTHEST_ROAM)
    return np.concatenate(
        (_intent_columns(across, along, turn, height, roam), _intent_columns(-across, along, -turn, height, roam))
    )
