"""BVH: Biovision's text format, a tree of named joints and one line of channel values a frame."""

import itertools
import math
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, Skeleton
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion

MAX_LINE = 1 << 20
"""Longest line that is read [characters]; a frame of 10,000 channels fits."""
MAX_BLANK_LINES = 10_000
"""In a row; more is a file of nothing."""
MAX_NAME = 1000
MAX_JOINTS = 2000
MAX_POSES = 20_000_000
"""Frames times joints; 2 GB of matrices, or an hour of a 46-joint rig at 120 Hz."""
MAX_VALUE = 1e9
"""Degrees or file units; beyond it a number is a mistake, and products of such numbers overflow."""


@dataclass(frozen=True, eq=False)
class Rig:
    """A source file's tree of joints, in its own units and axes. End sites count as joints, named after their parent with `_end`."""

    names: tuple[str, ...]
    """All different: the second joint of one name has `_duplicate2` added."""
    parents: tuple[int, ...]
    """-1 for the root; a parent comes before its children."""
    offsets: Float[np.ndarray, "n 3"]
    """From the parent, in the zero pose."""


@dataclass(frozen=True, eq=False)
class BvhFrames:
    """A BVH file's frames as they are written, for whoever writes them back."""

    path: Path
    channels: tuple[tuple[str, ...], ...]
    """Of each joint, in lower case."""
    values: Float[np.ndarray, "t c"]
    """Degrees and file units."""


@runtime_checkable
class OtherFile(Protocol):
    """A file that frames on its rig can be written back into."""

    def write_back(self, motion: "RigMotion", path: Path, *, source: "RigMotion") -> None:
        """Write frames into a copy of the file."""


@dataclass(frozen=True, eq=False)
class RigMotion:
    """Frames on a file's own rig."""

    rig: Rig
    fps: float
    """[Hz]"""
    translations: Float[np.ndarray, "t n 3"]
    """From the parent, in the parent's frame, in the file's unit."""
    rotations: Float[np.ndarray, "t n 3 3"]
    """Local."""
    name: str
    """The file's name without its ending."""
    movable: tuple[bool, ...] | None = None
    """Joints whose translation can be animated; None means all of them."""
    bvh: BvhFrames | None = None
    """Where it comes from, if that was a BVH file."""
    glb: "OtherFile | None" = None
    """Where it comes from, if that was a GLB file."""

    def __len__(self) -> int:
        return len(self.translations)

    def global_rotations(self) -> Float[np.ndarray, "t n 3 3"]:
        R_world = np.empty_like(self.rotations)
        for j, parent in enumerate(self.rig.parents):
            R_world[:, j] = self.rotations[:, j] if parent < 0 else R_world[:, parent] @ self.rotations[:, j]
        return R_world

    def positions(self, R_world: Float[np.ndarray, "t n 3 3"]) -> Float[np.ndarray, "t n 3"]:
        """Return global joint positions, in the file's unit and axes, from the global rotations."""
        points = np.empty_like(self.translations)
        for j, parent in enumerate(self.rig.parents):
            step = self.translations[:, j]
            points[:, j] = step if parent < 0 else points[:, parent] + (R_world[:, parent] @ step[..., None])[..., 0]
        return points


class _Lines:
    """Numbered lines of a file, none longer than MAX_LINE, blank ones skipped."""

    def __init__(self, path: Path, lines: Iterator[str]) -> None:
        self.path, self.lines, self.number = path, lines, 0
        self.pieces: deque[list[str]] = deque()

    def error(self, message: str, number: int | None = None) -> ValueError:
        return ValueError(f"{self.path}:{number or self.number}: {message}")

    def next_or_none(self) -> str | None:
        """Return the next line that is not blank."""
        for blank, line in enumerate(self.lines):
            self.number += 1
            if len(line) >= MAX_LINE:
                raise self.error(f"a line of over {MAX_LINE} characters: this is not a BVH file")
            if not line.isspace():
                return line
            if blank >= MAX_BLANK_LINES:
                raise self.error(f"over {MAX_BLANK_LINES} blank lines in a row: this is not a BVH file")
        return None

    def next(self, expected: str) -> str:
        line = self.next_or_none()
        if line is None:
            # Line 1 for an empty file: people look there.
            raise self.error(
                f"the file ends where {expected} should come: it is empty or cut off, so export it again",
                max(self.number, 1),
            )
        return line

    def piece(self, expected: str) -> list[str]:
        """Return the words up to the end of the line or a brace, which is a piece of its own wherever it stands."""
        if not self.pieces:
            words: list[str] = []
            for word in self.next(expected).split():
                if word in ("{", "}"):
                    self.pieces += [words, [word]] if words else [[word]]
                    words = []
                else:
                    words.append(word)
            if words:
                self.pieces.append(words)
        return self.pieces.popleft()

    def numbers(self, words: list[str], count: int, what: str) -> list[float]:
        values = [value for word in words if (value := _number(word)) is not None and abs(value) <= MAX_VALUE]
        if len(words) != count or len(values) != count:
            raise self.error(f"{what} should be {count} plain number{'s' * (count > 1)}, found {_quoted(words)}")
        return values

    def whole(self, word: str, what: str) -> int:
        # Ten digits are enough for anything here, and int() refuses thousands with a message of its own.
        if not (word.isascii() and word.isdecimal() and len(word.lstrip("0")) <= 10):
            raise self.error(f"{what} should be a whole number, found {_quoted([word])}")
        return int(word)


def _quoted(words: list[str]) -> str:
    """Quote the beginning of a line that may be a megabyte of anything."""
    return repr(" ".join(word[:60] for word in words[:20])[:60])


def _number(word: str) -> float | None:
    """Return a finite number, or None; Python's 1_000 and other scripts' digits are no numbers in a BVH file."""
    if "_" in word or not word.isascii():
        return None
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass
class _Header:
    """What the HIERARCHY part says, as it is being read."""

    names: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    offsets: list[list[float]] = field(default_factory=list)
    channels: list[tuple[str, ...]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    """Which of them are end sites."""
    uses: Counter[str] = field(default_factory=Counter)
    """How often a name was asked for."""

    @property
    def num_channels(self) -> int:
        return sum(map(len, self.channels))

    def add(self, name: str, parent: int, *, is_end: bool) -> None:
        """Add a joint under a name that no other joint has: end sites share theirs, and some exporters repeat them."""
        while name in self.uses:
            self.uses[name] += 1
            name = f"{name}_duplicate{self.uses[name]}"
        self.uses[name] = 1
        if is_end:
            self.ends.add(len(self.names))
        self.names.append(name)
        self.parents.append(parent)


_CHANNELS = {
    f"{axis}{kind}".lower(): (kind, "xyz".index(axis.lower())) for kind in ("position", "rotation") for axis in "XYZ"
}


def _read_hierarchy(lines: _Lines) -> _Header:
    header = _Header()
    if [w.upper() for w in lines.piece("HIERARCHY")] != ["HIERARCHY"]:
        raise lines.error("the file does not begin with HIERARCHY: this is not a BVH file, or not saved as plain text")
    open_joints: list[int] = []
    while True:
        words = lines.piece("a joint or MOTION")
        keyword = words[0].upper()
        if keyword == "MOTION" and len(words) == 1 and not lines.pieces and not open_joints:
            break
        is_end = keyword in ("END", "ENDSITE", "END_SITE")
        if keyword == "}" and open_joints:
            open_joints.pop()
        elif is_end or (keyword in ("ROOT", "JOINT") and len(words) >= 2):
            if (keyword == "ROOT") != (not open_joints) or (keyword == "ROOT" and header.names):
                raise lines.error(
                    f"{words[0]} stands in the wrong place: a BVH file has one ROOT, and all other joints inside it"
                )
            if sum(map(len, words)) > MAX_NAME:
                raise lines.error(f"a joint's name of over {MAX_NAME} characters: this is not a BVH file")
            if len(header.names) >= MAX_JOINTS:
                raise lines.error(f"more than {MAX_JOINTS} joints: this is not a person")
            parent = open_joints[-1] if open_joints else -1
            if parent in header.ends:
                raise lines.error("a joint inside an End Site: close the End Site's brace first")
            open_joints.append(len(header.names))
            header.add(f"{header.names[parent]}_end" if is_end else "_".join(words[1:]), parent, is_end=is_end)
            _read_joint_body(lines, header, is_end=is_end)
        else:
            where = f"inside {header.names[open_joints[-1]][:60]!r} " if open_joints else ""
            raise lines.error(f"expected a joint, an End Site, a brace or MOTION {where}but found {_quoted(words)}")
    if not header.num_channels:
        raise lines.error("no joint has channels: there is nothing that moves in this file")
    return header


def _read_joint_body(lines: _Lines, header: _Header, *, is_end: bool) -> None:
    """Read the opening brace, OFFSET and CHANNELS of the joint named last."""
    if (words := lines.piece("an opening brace")) != ["{"]:
        raise lines.error(f"expected an opening brace, found {_quoted(words)}")
    words = lines.piece("OFFSET")
    if words[0].upper() != "OFFSET":
        raise lines.error(f"expected OFFSET, found {_quoted(words)}")
    header.offsets.append(lines.numbers(words[1:], 3, "OFFSET"))
    if is_end:
        header.channels.append(())
        return
    words = lines.piece("CHANNELS")
    if words[0].upper() != "CHANNELS" or len(words) < 2:
        raise lines.error(f"expected CHANNELS and their count, found {_quoted(words)}")
    channels = tuple(word.lower() for word in words[2:])
    if (count := lines.whole(words[1], "the count after CHANNELS")) != len(channels):
        raise lines.error(f"CHANNELS says {count} but names {len(channels)}")
    if unknown := [word for word in channels if word not in _CHANNELS]:
        raise lines.error(f"unknown channel {_quoted(unknown[:1])}: BVH knows {', '.join(_CHANNELS)}")
    if len(set(channels)) != len(channels):
        raise lines.error("the same channel stands twice")
    header.channels.append(channels)


# For lines with single spaces only: `\s*:?\s*` would take quadratic time over a line of them.
_FRAMES = re.compile(r"frames ?:? ?(\S+)", re.IGNORECASE)
_FRAME_TIME = re.compile(r"frame ?time ?:? ?(\S+)", re.IGNORECASE)

FRAME_TIMES = (1e-5, 100.0)
"""Shortest and longest [s]."""

_CHUNK = 1024
"""Frames parsed at a time: numpy parses them together, and their lines need not all be kept."""


def _read_frames(lines: _Lines, header: _Header) -> tuple[float, Float[np.ndarray, "t c"]]:
    """Read the MOTION part: frames per second and the channel values."""
    words = lines.next("'Frames:'").split()
    if not (match := _FRAMES.fullmatch(" ".join(words))):
        raise lines.error(f"expected 'Frames:' and their count, found {_quoted(words)}")
    count, count_line = lines.whole(match[1], "the count after 'Frames:'"), lines.number
    if count == 0:
        raise lines.error("the file has zero frames: export it again with the animation")
    if count * len(header.names) > MAX_POSES:
        raise lines.error(
            f"{count} frames of {len(header.names)} joints are too many to hold in memory: cut the recording into pieces"
        )
    words = lines.next("'Frame Time:'").split()
    if not (match := _FRAME_TIME.fullmatch(" ".join(words))):
        raise lines.error(f"expected 'Frame Time:' and seconds, found {_quoted(words)}")
    (frame_time,) = lines.numbers([match[1]], 1, "'Frame Time:'")
    if not FRAME_TIMES[0] <= frame_time <= FRAME_TIMES[1]:
        raise lines.error(
            f"a frame time of {frame_time:g} s: give the seconds from one frame to the next, such as 0.0333333 for 30 Hz"
        )
    fps = _roundest_rate(match[1])
    chunks: list[Float[np.ndarray, "t c"]] = []
    for first in range(0, count, _CHUNK):
        rows: list[str] = []
        numbers: list[int] = []
        for frame in range(first, min(first + _CHUNK, count)):
            line = lines.next_or_none()
            if line is None:
                chunks.append(_parse_frames(lines, rows, numbers, header.num_channels))
                raise lines.error(
                    f"the file ends after {frame} of its {count} frames: it is cut off, or line {count_line} counts wrong"
                )
            rows.append(line)
            numbers.append(lines.number)
        chunks.append(_parse_frames(lines, rows, numbers, header.num_channels))
    if (line := lines.next_or_none()) is not None:
        raise lines.error(
            f"the file goes on after its {count} frames with {_quoted(line.split())}: line {count_line} counts wrong"
        )
    return fps, np.concatenate(chunks)


def _parse_frames(lines: _Lines, rows: list[str], numbers: list[int], num_channels: int) -> Float[np.ndarray, "t c"]:
    """Turn lines of numbers into an array, or name the line that is at fault."""
    if not rows:
        return np.empty((0, num_channels))
    try:
        values = np.loadtxt(rows, comments=None, ndmin=2)
    except ValueError:
        values = np.empty((0, 0))
    if values.shape == (len(rows), num_channels) and (np.abs(values) <= MAX_VALUE).all():
        return values
    for row, number in zip(rows, numbers, strict=True):
        words = row.split()
        if len(words) != num_channels:
            raise lines.error(
                f"{len(words)} values in this frame, but the hierarchy has {num_channels} channels", number
            )
        for k, word in enumerate(words):
            value = _number(word)
            if value is None or abs(value) > MAX_VALUE:
                hint = ", which needs a decimal point instead of the comma" if "," in word else ""
                raise lines.error(
                    f"value {k + 1} of this frame should be a plain number, found {_quoted([word])}{hint}", number
                )
    raise lines.error("these frames are not plain numbers", numbers[0])


def _roundest_rate(frame_time: str) -> float:
    """Return the frames per second with the fewest decimals that the frame time, as written, allows: 0.0333333 s means 30 Hz."""
    seconds = float(frame_time)
    exponent = Decimal(frame_time).as_tuple().exponent
    last_digit = 10.0**exponent if isinstance(exponent, int) else 0.0
    for decimals in range(10):
        fps = round(1 / seconds, decimals)
        # A whole unit of the last digit, because some exporters cut digits off instead of rounding.
        if fps > 0 and abs(1 / fps - seconds) <= last_digit and abs(fps * seconds - 1) < 0.01:
            return fps
    return 1 / seconds


def _euler_rotations(order: str, degrees: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return R = R_1 R_2 ..., each about the axis that `order` names: the first channel is the outermost turn."""
    cosines, sines = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    total = None
    for k, name in enumerate(order):
        axis = "XYZ".index(name)
        after, last = (axis + 1) % 3, (axis + 2) % 3
        turn = np.zeros((*degrees.shape[:-1], 3, 3))
        turn[..., axis, axis] = 1.0
        turn[..., after, after] = turn[..., last, last] = cosines[..., k]
        turn[..., last, after], turn[..., after, last] = sines[..., k], -sines[..., k]
        total = turn if total is None else total @ turn
    assert total is not None
    return total


def _posed(
    header: _Header, values: Float[np.ndarray, "t c"]
) -> tuple[Float[np.ndarray, "t n 3"], Float[np.ndarray, "t n 3 3"]]:
    """Return local translations and rotations. Position channels stand in place of the offset, as importers agree."""
    translations = np.tile(np.array(header.offsets), (len(values), 1, 1))
    rotations = np.tile(np.eye(3), (len(values), len(header.names), 1, 1))
    starts = itertools.accumulate(map(len, header.channels), initial=0)
    by_order: dict[str, list[tuple[int, list[int]]]] = {}
    for j, (start, channels) in enumerate(zip(starts, header.channels, strict=False)):
        order, where = "", []
        for k, channel in enumerate(channels, start):
            kind, axis = _CHANNELS[channel]
            if kind == "position":
                translations[:, j, axis] = values[:, k]
            else:
                order += "XYZ"[axis]
                where.append(k)
        if order:
            by_order.setdefault(order, []).append((j, where))
    for order, group in by_order.items():
        rotations[:, [j for j, _ in group]] = _euler_rotations(order, values[:, [where for _, where in group]])
    return translations, rotations


def read_bvh(path: str | Path) -> RigMotion:
    """Read a BVH file of any hierarchy, channel order and rate; errors are ValueErrors that name the file and the line."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file")
    # Names in an unknown encoding become escapes instead of an error; -sig drops the byte order mark of Windows
    # editors.
    with path.open(encoding="utf-8-sig", errors="backslashreplace", newline=None) as file:
        lines = _Lines(path, iter(lambda: file.readline(MAX_LINE), ""))
        header = _read_hierarchy(lines)
        fps, values = _read_frames(lines, header)
    translations, rotations = _posed(header, values)
    rig = Rig(tuple(header.names), tuple(header.parents), np.array(header.offsets))
    movable = tuple(sum(channel.endswith("position") for channel in channels) == 3 for channels in header.channels)
    return RigMotion(
        rig,
        fps,
        translations,
        rotations,
        path.stem,
        movable=movable,
        bvh=BvhFrames(path, tuple(header.channels), values),
    )


def _end_offset(skeleton: Skeleton, joint: int) -> Float[np.ndarray, "3"]:
    """Return the tip of a leaf, for looks: the toes forward, the hand and the head along their bone, about as long as an adult's."""
    length = skeleton.lengths[joint]
    match JOINTS[joint].rpartition("_")[2]:
        case "foot":
            return np.array([0.0, 0.0, 0.5 * length])
        case "head":
            return np.array([0.0, 1.4 * length, 0.0])
        case _:
            return 0.74 * skeleton.offsets[joint]


def _hierarchy_lines(
    skeleton: Skeleton, R_file: Float[np.ndarray, "3 3"], unit: float, decimals: int
) -> tuple[list[str], list[int]]:
    """Return the HIERARCHY part with the T-pose turned by R_file, and the joints in its (depth-first) order."""
    lines: list[str] = ["HIERARCHY"]
    order: list[int] = []

    def offset(vector: Float[np.ndarray, "3"]) -> str:
        return "OFFSET " + " ".join(f"{value / unit:.{decimals}f}" for value in R_file @ vector)

    def add(joint: int, indent: str) -> None:
        inner = indent + "\t"
        order.append(joint)
        position = "" if joint else "Xposition Yposition Zposition "
        lines.extend(
            (
                f"{indent}{'JOINT' if joint else 'ROOT'} {JOINTS[joint]}",
                f"{indent}{{",
                inner + offset(skeleton.offsets[joint]),
            )
        )
        lines.append(f"{inner}CHANNELS {3 if joint else 6} {position}Zrotation Xrotation Yrotation")
        for child in CHILDREN[joint]:
            add(child, inner)
        if not CHILDREN[joint]:
            lines.extend(
                (f"{inner}End Site", f"{inner}{{", inner + "\t" + offset(_end_offset(skeleton, joint)), f"{inner}}}")
            )
        lines.append(f"{indent}}}")

    add(0, "")
    return lines, order


def _euler_degrees(order: str, R: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 3"]:
    """Return the angles of R = R_i(a) R_j(b) R_k(c); where b is a quarter turn, a = 0, and the product is exact all the same."""
    i, j, k = ("XYZ".index(axis) for axis in order)
    sign = 1.0 if (j - i) % 3 == 1 else -1.0
    a = np.arctan2(-sign * R[..., j, k], R[..., k, k])
    b = np.arctan2(sign * R[..., i, k], np.hypot(R[..., j, k], R[..., k, k]))
    # Row j of R_i(a)^T R = R_j(b) R_k(c) holds the sine and the cosine of c alone: no division by cos b.
    cos_a, sin_a = np.cos(a), sign * np.sin(a)
    c = np.arctan2(sign * (cos_a * R[..., j, i] + sin_a * R[..., k, i]), cos_a * R[..., j, j] + sin_a * R[..., k, j])
    return np.rad2deg(np.stack((a, b, c), axis=-1))


Y_TO_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
"""Takes a world with y up into one with z up: (x, y, z) -> (x, -z, y)."""


def write_bvh(motion: Motion, path: str | Path, *, up: str = "y", unit: float = 1.0) -> None:
    """Write one person as BVH: our joint names, rotations as Z, X, Y, the root with six channels.

    With y up the world becomes (x, y, z) -> (x, z, -y), the T-pose faces +z, and joints turn as ours do. With z up the
    world is ours and the T-pose faces -y. Either way the zero pose stands upright in the file. `unit` is metres per
    file unit; Blender takes a unit for a metre. Read back, joints agree to 1e-5 m. Joints that a simulator solved off
    the bones are written as their rotations have them.
    """
    path = Path(path)
    if up not in ("y", "z"):
        raise ValueError(f"a BVH file is written with y or z up, not {up!r}")
    if not 0 < unit < math.inf:
        raise ValueError(f"the unit is a positive number of metres, not {unit}")
    if motion.root.ndim != 2:
        raise ValueError(
            f"a BVH file holds one person, and this motion has {motion.root.shape[:-2]}: write them one by one"
        )
    if not (np.isfinite(motion.root).all() and np.isfinite(motion.q).all()):
        raise ValueError(f"{path}: the motion holds values that are not finite, so it was not written")
    # R_file turns our rest frame (y up) into the file's, R_world our world (z up).
    R_file, R_world = (np.eye(3), Y_TO_Z_UP.T) if up == "y" else (Y_TO_Z_UP, np.eye(3))
    q = R_file @ motion.q @ R_file.T
    q[:, 0] = R_world @ motion.q[:, 0] @ R_file.T
    # A tenth of a micrometre.
    decimals = max(0, 7 + math.ceil(math.log10(unit)))
    lines, order = _hierarchy_lines(motion.skeleton, R_file, unit, decimals)
    # Angles go on past a half turn, so that an editor's curves have no jumps.
    angles = np.unwrap(_euler_degrees("ZXY", q[:, order]).reshape(len(motion), -1), period=360.0, axis=0)
    lines += ["MOTION", f"Frames: {len(motion)}", f"Frame Time: {np.format_float_positional(1 / motion.fps)}"]
    row = " ".join([f"%.{decimals}f"] * 3 + ["%.6f"] * (3 * NUM_JOINTS))
    lines += [
        row % tuple(values) for values in np.concatenate((motion.root @ R_world.T / unit, angles), axis=1).tolist()
    ]
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


SAME = 1e-8
"""Rotations and translations that differ by less are the file's own."""


def write_back(motion: RigMotion, path: str | Path, *, source: RigMotion) -> None:
    """Write frames on the rig of a BVH file: its hierarchy, channels, frame time and decimals.

    What is as it was in the source's frame of the same number keeps the source's own numbers. Frames beyond the
    source's end count from its last one.
    """
    path, file = Path(path), source.bvh
    if file is None:
        raise ValueError(f"{path}: {source.name} was not read from a BVH file, so there is no hierarchy to write onto")
    if not (np.isfinite(motion.translations).all() and np.isfinite(motion.rotations).all()):
        raise ValueError(f"{path}: the motion holds values that are not finite, so it was not written")
    at = np.minimum(np.arange(len(motion)), len(source) - 1)
    values, start = file.values[at], 0
    for j, channels in enumerate(file.channels):
        turned = np.abs(motion.rotations[:, j] - source.rotations[at, j]).max((-1, -2)) > SAME
        shifted = np.abs(motion.translations[:, j] - source.translations[at, j]).max(-1) > SAME
        where = [start + k for k, channel in enumerate(channels) if channel.endswith("rotation")]
        order = "".join(channel[0].upper() for channel in channels if channel.endswith("rotation"))
        if order and turned.any():
            values[:, where] = _continued(order, motion.rotations[:, j], values[:, where], turned)
        for k, channel in enumerate(channels, start):
            if channel.endswith("position"):
                values[shifted, k] = motion.translations[shifted, j, "xyz".index(channel[0])]
        start += len(channels)
    header, frame_time, decimals = _preamble(file.path)
    row = " ".join([f"%.{decimals}f"] * values.shape[1])
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as out,
    ):
        out.writelines(header)
        out.write(f"Frames: {len(values)}\nFrame Time: {frame_time}\n")
        out.writelines(row % tuple(frame) + "\n" for frame in values.tolist())


def _continued(
    order: str, R: Float[np.ndarray, "t 3 3"], own: Float[np.ndarray, "t k"], turned: Bool[np.ndarray, "t"]
) -> Float[np.ndarray, "t k"]:
    """Return angles of the frames that were turned, each of the two ways to write them that is nearer to the frame before."""
    full = order + "".join(axis for axis in "XYZ" if axis not in order)
    angles = _euler_degrees(full, R)
    out = own.copy()
    for frame in np.flatnonzero(turned):
        near = out[frame - 1] if frame else own[frame]
        ways = np.stack((angles[frame], angles[frame] * (1, -1, 1) + 180))[:, : len(order)]
        ways += 360 * np.round((near - ways) / 360)
        out[frame] = ways[np.abs(ways - near).max(-1).argmin()]
    return out


def _preamble(path: Path) -> tuple[list[str], str, int]:
    """Return a BVH file's lines up to MOTION, in their own encoding, its frame time as written, and its decimals, six at least."""
    lines: list[str] = []
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=None) as file:
        while not lines or lines[-1].upper().split()[-2:] not in (["MOTION"], ["}", "MOTION"]):
            line = file.readline(MAX_LINE)
            if not line:
                raise ValueError(f"{path}: was changed while it was being worked on")
            lines.append(line)
        rest = list(
            itertools.islice((line for line in iter(lambda: file.readline(MAX_LINE), "") if not line.isspace()), 3)
        )
    frame_time = next((match[1] for line in rest if (match := _FRAME_TIME.fullmatch(" ".join(line.split())))), None)
    if frame_time is None or len(rest) < 3:
        raise ValueError(f"{path}: was changed while it was being worked on")
    numbers = [word.partition(".")[2] for word in rest[2].split()]
    return lines, frame_time, min(12, max([6, *(len(decimals) for decimals in numbers if decimals.isdecimal())]))
