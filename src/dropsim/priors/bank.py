"""A bank of recordings: the frames that a motion field plays, in one file without code.

The file is a safetensors file of integers: positions in tenths of a millimetre, rotations as rotation vectors in fifths
of a milliradian, both as differences from frame to frame, which zip and git pack to a third. Mirror images are not
stored.
"""

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from dropsim.body.rotations import heading, rotmat_to_rotvec, unitquat_to_rotmat
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.compute.jit import cache_folder
from dropsim.files.cache import cached
from dropsim.files.names import suggestion
from dropsim.files.weights import errors_of, read_number, read_weights, write_weights
from dropsim.motion.motion import Motion

TAGS = ("walk", "run", "turn", "stand", "jump", "crouch", "ground", "dance", "sport", "other")
"""What clips show; a clip can have several."""
TENTHS = 10_000.0
"""Units of a position in a metre."""
FIFTHS = 5_000.0
"""Units of a rotation vector in a radian: rotations are exact to 0.006 degrees."""
UNPACKED = 1
"""Version of the unpacked frames that are kept: to be counted up when they change."""
MAX_CLIPS = 100_000
"""Largest number of clips that a file may have."""
SPREAD, ASTRIDE = 0.8, 0.35
"""Hands and feet of somebody who stands calmly are no farther apart than this [m]: arms hang, and feet are about as far
apart as hips."""
STILL, SLOW, FAST = 0.12, (0.8, 1.6), 2.2
"""Speeds of people who stand (at most), walk (between) and run (at least) [m/s]."""
LOW, CROUCHED, UPRIGHT = 0.45, 0.7, 0.8
"""Height of the pelvis of people on the ground (below), crouching (below) and upright (above) [m]."""
ERECT = 0.9
"""Share of the head's height at rest above which somebody is erect; walking and running lower it by some
centimetres."""
EVERYDAY = ("walk", "run", "turn", "stand")
"""Tags of what everybody does."""
STEADY = 30
"""Frames of its clip that a start has before it ends, and over which people who walk or run go straight on."""
STRAIGHT = 0.15
"""Share of their speed by which people who go straight on at one speed get off their way, faster or slower: about 9
degrees."""
STAY, SWAY, ROAMING = 2.0, 0.04, 0.3
"""People stay if the pelvis gets no farther than the second within the first [s], and roam beyond the third [m]."""
MIDDLE = (0.1, 0.7, 0.25)
"""Middle of the feet: shares of the way from the ankles to the balls of the feet, and least share of the way from one
ankle to the other. Quiet stance has the centre of mass about 5 cm before the ankles, at 0.4 (Winter 2009)."""


@dataclass(frozen=True)
class ClipInfo:
    """One recording of a bank."""

    name: str
    source: str
    """Data set, e.g. CMU."""
    licence: str
    tags: tuple[str, ...]
    frames: int

    def __post_init__(self) -> None:
        _check_tags(self.tags)


def _check_tags(tags: Sequence[str]) -> None:
    for tag in tags:
        if tag not in TAGS:
            raise ValueError(f"there is no tag {tag!r}: {suggestion(tag, TAGS)}")


def _both(part: str) -> list[int]:
    """Return the left and the right one of two joints."""
    return [joint_index(f"left_{part}"), joint_index(f"right_{part}")]


@dataclass(frozen=True, eq=False)
class Bank:
    """Recordings on one body at one rate, on a floor at z = 0."""

    skeleton: Skeleton
    fps: float
    """[Hz]"""
    clips: tuple[ClipInfo, ...]
    root: Float32[np.ndarray, "n 3"]
    """Pelvis [m]."""
    quaternions: Float32[np.ndarray, "n 22 4"]
    """Local rotations, the first in the world, (x, y, z, w)."""
    standing: Bool[np.ndarray, "n 2"]
    """Feet that stand, left and right."""
    digest: str = ""
    """Hash of the file that it was read from, by which to keep what is made of it; empty if there is none."""

    def __len__(self) -> int:
        return len(self.root)

    @functools.cached_property
    def first(self) -> Int[np.ndarray, "n"]:
        """First frame of each frame's clip."""
        return self.last - np.repeat(self._lengths, self._lengths) + 1

    @functools.cached_property
    def last(self) -> Int[np.ndarray, "n"]:
        """Last frame of each frame's clip."""
        return np.repeat(np.cumsum(self._lengths) - 1, self._lengths)

    @property
    def _lengths(self) -> Int[np.ndarray, "c"]:
        return np.array([clip.frames for clip in self.clips])

    def tagged(self, *tags: str) -> Bool[np.ndarray, "n"]:
        """Mark the frames of clips that have one of some tags."""
        has = [any(tag in clip.tags for tag in tags) for clip in self.clips]
        return np.repeat(has, self._lengths)

    @functools.cached_property
    def speed(self) -> np.ndarray:
        """Of each frame's pelvis over the ground, over the second around it [m/s]."""
        now = np.arange(len(self))
        before, after = np.maximum(now - 15, self.first), np.minimum(now + 15, self.last)
        way = np.linalg.norm(self.root[after, :2] - self.root[before, :2], axis=-1)
        return way / np.maximum(after - before, 1) * self.fps

    def motion(self, clip: int, *, seconds: float | None = None) -> Motion:
        """Return a recording, or its first seconds."""
        first, frames = sum(info.frames for info in self.clips[:clip]), self.clips[clip].frames
        rows = slice(first, first + (frames if seconds is None else min(round(seconds * self.fps), frames)))
        q = unitquat_to_rotmat(self.quaternions[rows].astype(np.float64))
        return Motion.from_rotations(
            self.skeleton, self.fps, self.root[rows].astype(np.float64), q, name=self.clips[clip].name
        )

    def starts(self, category: str) -> Int[np.ndarray, "s"]:
        """Return frames at which somebody stands, walks, runs, crouches or is on the ground, or of clips with a tag."""
        return _starts(self, category)

    def _find_starts(self, category: str) -> Int[np.ndarray, "s"]:
        now, speed, height = np.arange(len(self)), self.speed, self.root[:, 2]
        doing = {
            "stand": (speed < STILL) & (height > UPRIGHT),
            "walk": (speed > SLOW[0]) & (speed < SLOW[1]) & (height > UPRIGHT),
            "run": (speed > FAST) & (height > UPRIGHT),
            "crouch": (height > LOW) & (height < CROUCHED),
            "ground": height < LOW,
        }
        for tag in TAGS:
            doing.setdefault(tag, self.tagged(tag) & (height > CROUCHED))
        if category not in doing:
            raise ValueError(f"there is no start {category!r}: {suggestion(category, tuple(doing))}")
        long = doing[category] & (now > self.first) & (now + STEADY < self.last)
        plain = long.copy()
        if category in EVERYDAY:
            plain &= ~self.tagged(*(tag for tag in TAGS if tag not in EVERYDAY))
            plain &= (self.standing.all(1) & (self.excursion < SWAY)) if category == "stand" else True
            plain[plain] = self._erect(np.flatnonzero(plain), calm=category != "run", astride=category != "stand")
            if category in ("walk", "run"):
                plain[plain] = self._steady(np.flatnonzero(plain))
        for choice in (plain, long):
            if choice.any():
                return np.flatnonzero(choice)
        raise ValueError(
            f"nobody in this bank does {category!r}: start from another category, or build a bank that has it"
        )

    @property
    def erect(self) -> float:
        """Height of the head above which somebody neither bows nor crouches [m]."""
        up = self.skeleton.rest[:, 1]
        return float(ERECT * (up[joint_index("head")] - up.min()))

    def _erect(self, rows: Int[np.ndarray, "r"], *, calm: bool, astride: bool) -> Bool[np.ndarray, "r"]:
        """Tell the frames in which somebody neither bows nor crouches nor raises a hand above the head.

        Calm people also let their hands hang; those who are not astride stand with their feet below them.
        """
        joints = self._joints(rows)
        head, hands, feet = joints[:, [joint_index("head")], 2], joints[:, _both("wrist")], joints[:, _both("ankle")]
        erect = (head[:, 0] > self.erect) & (hands[..., 2] < head).all(1)
        if calm:
            erect &= (hands[..., 2] < joints[:, [joint_index("spine2")], 2]).all(1)
            erect &= np.linalg.norm(hands[:, 0] - hands[:, 1], axis=-1) < SPREAD
        if not astride:
            erect &= np.linalg.norm(feet[:, 0] - feet[:, 1], axis=-1) < ASTRIDE
        return erect

    def _steady(self, rows: Int[np.ndarray, "r"]) -> Bool[np.ndarray, "r"]:
        """Tell the frames around which somebody goes straight ahead at one speed for a second."""
        before = np.maximum(rows - STEADY // 2, self.first[rows])
        after = np.minimum(rows + STEADY // 2, self.last[rows])
        turns = heading(unitquat_to_rotmat(self.quaternions[rows, 0].astype(np.float64)))
        halves = (
            (self.root[b] - self.root[a]).astype(np.float64) / np.maximum(b - a, 1)[:, None]
            for a, b in ((before, rows), (rows, after))
        )
        (right, ahead), (then_right, then_ahead) = ((turns @ way[..., None])[:, :2, 0].T for way in halves)
        straight = (np.abs(right) < STRAIGHT * ahead) & (np.abs(then_right) < STRAIGHT * then_ahead)
        return straight & (np.abs(then_ahead - ahead) < STRAIGHT * ahead)

    @functools.cached_property
    def excursion(self) -> Float32[np.ndarray, "n"]:
        """Farthest that the pelvis of each frame gets over the ground within the next two seconds [m].

        It is infinite if the clip ends before, and for people who are not in balance over the middle of both feet: they
        cannot stay.
        """
        now, span = np.arange(len(self)), round(STAY * self.fps)
        far = np.zeros(len(self), dtype=np.float32)
        for k in range(1, span + 1):
            way = self.root[np.minimum(now + k, self.last), :2] - self.root[:, :2]
            far = np.maximum(far, np.linalg.norm(way, axis=-1))
        still = np.flatnonzero((now + span <= self.last) & (far < ROAMING) & self.standing.all(1))
        stays = np.full(len(self), np.inf, dtype=np.float32)
        stays[still] = np.where(self._balanced(still), far[still], np.inf)
        return stays

    def _balanced(self, rows: Int[np.ndarray, "r"]) -> Bool[np.ndarray, "r"]:
        """Tell the frames in which the centre of mass is over the middle of the feet, where ankles hold it either way."""
        joints = self._joints(rows)
        centre = self.skeleton.centre_of_mass(joints)[:, None, :2]
        ankles, balls = joints[:, _both("ankle"), :2], joints[:, _both("foot"), :2]
        heel, across = ankles.mean(1, keepdims=True), ankles[:, 1:] - ankles[:, :1]
        along = balls.mean(1, keepdims=True) - heel
        ahead, aside = (
            ((centre - start) * way).sum(-1) / (way**2).sum(-1)
            for start, way in ((heel, along), (ankles[:, :1], across))
        )
        return ((ahead > MIDDLE[0]) & (ahead < MIDDLE[1]) & (aside > MIDDLE[2]) & (aside < 1 - MIDDLE[2]))[:, 0]

    def _joints(self, rows: Int[np.ndarray, "r"]) -> Float[np.ndarray, "r 22 3"]:
        rotations = unitquat_to_rotmat(self.quaternions[rows].astype(np.float64))
        return self.skeleton.forward(rotations, self.root[rows].astype(np.float64))

    @classmethod
    def of(cls, motions: Sequence[tuple[Motion, ClipInfo, Bool[np.ndarray, "_ 22"]]]) -> "Bank":
        """Build a bank of motions with their descriptions and contact labels; all have one body and one rate."""
        if not motions:
            raise ValueError("a bank needs at least one recording of at least a second")
        first, clips = motions[0][0], tuple(info for _, info, _ in motions)
        root = np.concatenate([motion.root for motion, _, _ in motions])
        rotvec = rotmat_to_rotvec(np.concatenate([motion.q for motion, _, _ in motions]))
        touching = np.concatenate([contacts for _, _, contacts in motions])
        standing = touching[:, _both("ankle")] | touching[:, _both("foot")]
        frames = _unpacked_frames(*_packed(root, rotvec))
        return cls(first.skeleton, first.fps, clips, *frames, standing)

    def picked(self, clips: Sequence[int]) -> "Bank":
        """Return a bank of some of the clips."""
        rows = np.concatenate([np.flatnonzero(self.first == first) for first in np.unique(self.first)[list(clips)]])
        infos = tuple(self.clips[i] for i in clips)
        return Bank(self.skeleton, self.fps, infos, self.root[rows], self.quaternions[rows], self.standing[rows])

    def chosen(self, *, only: Sequence[str] = (), without: Sequence[str] = ()) -> "Bank":
        """Return a bank of the clips that have one of some tags, if any are given, and none of others: styles to choose or to forbid."""
        _check_tags((*only, *without))
        wanted = [not (only and set(only).isdisjoint(clip.tags)) for clip in self.clips]
        clips = [i for i, clip in enumerate(self.clips) if wanted[i] and set(without).isdisjoint(clip.tags)]
        if not clips:
            raise ValueError(
                "no clip of this bank has tags like that: `dropsim bank info` lists the minutes of each tag"
            )
        return self.picked(clips)

    def write(self, path: str | Path) -> None:
        """Write the bank to a file."""
        xyz, w = self.quaternions[..., :3].astype(np.float64), self.quaternions[..., 3:].astype(np.float64)
        sine = np.maximum(np.linalg.norm(xyz, axis=-1, keepdims=True), 1e-12)
        root, rotations = _packed(self.root.astype(np.float64), xyz * (2 * np.arctan2(sine, w) / sine))
        lines = [json.dumps([c.name, c.source, c.licence, c.tags, c.frames]) for c in self.clips]
        tensors = {
            "root": np.diff(root, axis=0, prepend=0).astype(np.int32),
            "rotations": np.diff(rotations, axis=0, prepend=np.int16(0)).astype(np.int16),
            "standing": self.standing.astype(np.uint8),
            "clips": np.frombuffer("\n".join(lines).encode(), dtype=np.uint8),
        }
        body = {name: getattr(self.skeleton, name) for name in _BODY}
        write_weights(path, "bank", tensors | body, {"fps": self.fps, "version": 1})

    @classmethod
    def open(cls, path: str | Path) -> "Bank":
        """Read a bank; what the file says is checked before it is used.

        Unpacked frames are kept in the user's cache folder and mapped into memory from the second time on.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"{path} is not there: give a .bank file, which `dropsim bank build` makes")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        arrays = cached(cache_folder() / "banks" / f"{digest}-{UNPACKED}.safetensors", lambda: unpacked(path))
        skeleton, clips = Skeleton(*(arrays[name] for name in _BODY)), _read_table(arrays["clips"].tobytes())
        root, quaternions, standing = (arrays[name] for name in ("root", "quaternions", "standing"))
        return cls(skeleton, float(arrays["fps"]), clips, root, quaternions, standing, digest)

    def info(self) -> dict[str, Any]:
        """Return how much of what is in the bank."""

        def minutes(part: Bool[np.ndarray, "n"]) -> float:
            return float(part.sum() / self.fps / 60)

        sources = np.repeat([clip.source for clip in self.clips], self._lengths)
        sizes = {"frames": len(self), "clips": len(self.clips), "minutes": len(self) / self.fps / 60, "fps": self.fps}
        return sizes | {
            "minutes by tag": {tag: minutes(self.tagged(tag)) for tag in TAGS},
            "minutes by source": {str(source): minutes(sources == source) for source in np.unique(sources)},
            "minutes on the ground": minutes(self.root[:, 2] < LOW),
        }


_starts = functools.lru_cache(maxsize=32)(Bank._find_starts)
"""Starts of a bank in a category: everybody of a batch asks for them."""
_BODY = {"rest": (NUM_JOINTS, 3), "masses": (NUM_JOINTS,), "radii": (NUM_JOINTS,)}


def unpacked(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a bank's file, with frames as a bank has them; all that the file says is checked."""
    tensors, metadata = read_weights(path, "bank")
    with errors_of(path):
        fps = read_number(metadata, "fps", low=1.0, high=1000.0)
        table = tensors.get("clips", np.zeros(0, dtype=np.uint8))
        frames = sum(clip.frames for clip in _read_table(table.tobytes()))
        shapes = {"root": (frames, 3), "rotations": (frames, NUM_JOINTS, 3), "standing": (frames, 2)}
        shapes |= {"clips": (table.size,), **_BODY}
        for name, shape in shapes.items():
            kind = np.dtype(_KINDS.get(name, np.float64))
            if name not in tensors or (tensors[name].shape, tensors[name].dtype) != (shape, kind):
                raise ValueError(f"its clips need {name} of shape {shape} and type {kind}, which it does not hold")
        root = np.cumsum(tensors["root"], axis=0, dtype=np.int64)
        if np.abs(root).max() > 1e4 * TENTHS:
            raise ValueError("its people are farther than 10 km away")
        body = {name: tensors[name] for name in _BODY}
        Skeleton(**body)
        root, quaternions = _unpacked_frames(root, np.cumsum(tensors["rotations"], axis=0, dtype=np.int16))
        standing, rate = tensors["standing"].astype(np.bool_), np.array(fps)
        return body | {"root": root, "quaternions": quaternions, "standing": standing, "clips": table, "fps": rate}


_KINDS = {"root": np.int32, "rotations": np.int16, "standing": np.uint8, "clips": np.uint8}


def _packed(root: np.ndarray, rotvec: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return frames as whole numbers of a file's units, before differences are taken."""
    return np.rint(TENTHS * root).astype(np.int64), np.rint(FIFTHS * rotvec).astype(np.int16)


def _unpacked_frames(root: np.ndarray, rotations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and quaternions in single precision."""
    rotvec = rotations.astype(np.float32) / np.float32(FIFTHS)
    half = 0.5 * np.linalg.norm(rotvec, axis=-1, keepdims=True)
    quaternions = np.concatenate((0.5 * np.sinc(half / np.float32(np.pi)) * rotvec, np.cos(half)), -1)
    return (root / TENTHS).astype(np.float32), quaternions.astype(np.float32)


def _read_table(text: bytes) -> tuple[ClipInfo, ...]:
    """Return the clips of a table with a line for each."""
    if text.count(b"\n") >= MAX_CLIPS:
        raise ValueError(f"it has more than {MAX_CLIPS} clips")
    try:
        rows = [json.loads(line) for line in text.split(b"\n")]
        clips = tuple(
            ClipInfo(*[str(text)[:200] for text in texts], tags=tuple(tags), frames=frames)
            for *texts, tags, frames in rows
        )
    except (ValueError, TypeError, RecursionError):
        clips = ()
    if not all(type(clip.frames) is int and clip.frames >= 2 for clip in clips) or not clips:
        raise ValueError("its table of clips is damaged")
    return clips
