"""BVH: Biovision's text format, a tree of named joints and one line of channel values a frame."""

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, TextIO

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import apply, euler_to_rotmat
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, Skeleton
from dropsim.files.atomic import errors_of, write_text
from dropsim.files.limits import Budget
from dropsim.files.names import printable
from dropsim.motion.motion import Motion

MAX_LINE = 1 << 20
"""Longest line that is read [characters]; a frame of 10,000 channels fits."""
MAX_NAME = 1000
"""Longest name of a joint [characters]."""
MAX_JOINTS = 2000
MAX_VALUE = 1e9
"""Largest number [degrees or file units]; beyond it a number is a mistake, and products of such numbers overflow."""
FRAME_TIMES = (1e-5, 100.0)
"""Shortest and longest time from one frame to the next [s]."""
SAME = 1e-8
"""Largest difference of rotations and translations that count as unchanged."""


@dataclass(frozen=True, eq=False)
class Rig:
    """A source file's tree of joints, in its own units and axes.

    End sites count as joints, named after their parent with `_end`.
    """

    names: tuple[str, ...]
    """All different: the second joint of one name has `_duplicate2` added."""
    parents: tuple[int, ...]
    """Index of each joint's parent, which comes before its children; -1 for the root."""
    offsets: Float[np.ndarray, "n 3"]
    """Vector from the parent, in the parent's frame in the zero pose."""
    rotations: Float[np.ndarray, "n 3 3"] = field(default_factory=lambda: np.eye(3)[None])
    """Rotations relative to the parents in the zero pose; none in a BVH file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rotations", np.broadcast_to(self.rotations, (len(self.names), 3, 3)))


class SourceFile(ABC):
    """A file that frames on its rig can be written back into."""

    ending: ClassVar[str]
    up: ClassVar[str | None] = None
    """Vertical axis of all files of this format; None where they differ."""

    @abstractmethod
    def write_back(self, motion: "RigMotion", path: Path, *, source: "RigMotion") -> None:
        """Write frames into a copy of the file."""


@dataclass(frozen=True, eq=False)
class RigMotion:
    """Frames on a file's own rig."""

    rig: Rig
    fps: float
    """Frame rate [Hz]."""
    translations: Float[np.ndarray, "t n 3"]
    """Vectors from the parents, in the parents' frames, in the file's unit."""
    rotations: Float[np.ndarray, "t n 3 3"]
    """Rotations relative to the parents."""
    name: str = ""
    """File name without its ending."""
    movable: tuple[bool, ...] | None = None
    """Joints whose translation can be animated; None means all of them."""
    file: SourceFile | None = None

    def __len__(self) -> int:
        return len(self.translations)

    def global_rotations(self) -> Float[np.ndarray, "t n 3 3"]:
        """Return rotations from the joints' frames to the world."""
        R_world = np.empty_like(self.rotations)
        for j, parent in enumerate(self.rig.parents):
            R_world[:, j] = self.rotations[:, j] if parent < 0 else R_world[:, parent] @ self.rotations[:, j]
        return R_world

    def positions(self, R_world: Float[np.ndarray, "t n 3 3"]) -> Float[np.ndarray, "t n 3"]:
        """Return global joint positions, in the file's unit and axes, from the global rotations."""
        points = np.empty_like(self.translations)
        for j, parent in enumerate(self.rig.parents):
            step = self.translations[:, j]
            points[:, j] = step if parent < 0 else points[:, parent] + apply(R_world[:, parent], step)
        return points


def unique_name(name: str, names: Container[str]) -> str:
    """Return a printable name that no other joint has: end sites share theirs, and some exporters repeat them."""
    name = printable(name)
    copies = (f"{name}_duplicate{number}" for number in itertools.count(2))
    return next(copy for copy in itertools.chain((name,), copies) if copy not in names)


class _Lines:
    """Lines of a file as words; blank lines are skipped, and a brace is a line of its own wherever it stands."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path, self.number = path, 0
        self.header: list[str] = []
        """Lines of the hierarchy as they are written."""
        self.is_header = True
        self.words = self._split(file)

    def _split(self, file: TextIO) -> Iterator[list[str]]:
        for line in iter(lambda: file.readline(MAX_LINE), ""):
            self.number += 1
            if len(line) >= MAX_LINE:
                raise self.error(f"a line of over {MAX_LINE} characters: this is not a BVH file")
            if self.is_header and not line.isspace():
                self.header.append(line)
            # A brace is a word of its own; parts of names stay together.
            parts = re.split(r"(?<!\S)([{}])(?!\S)", line) if self.is_header else [line]
            yield from filter(None, map(str.split, parts))

    def error(self, message: str) -> ValueError:
        # Line 1 for an empty file: people look there.
        return ValueError(f"{self.path}:{max(self.number, 1)}: {message}")

    def expected(self, what: str, words: list[str]) -> ValueError:
        # A line may be a megabyte of anything.
        start = " ".join(word[:60] for word in words[:20])[:60]
        return self.error(f"expected {what}, found {start.encode('utf-8', 'replace').decode()!r}")

    def next(self, what: str) -> list[str]:
        words = next(self.words, None)
        if words is None:
            raise self.error(f"the file ends where {what} should come: it is empty or cut off, so export it again")
        return words

    def numbers(self, words: list[str], count: int, what: str) -> np.ndarray:
        """Return plain numbers."""
        if len(words) != count:
            raise self.error(f"{len(words)} values instead of the {count} of {what}")
        values = _plain_numbers(words)
        if values is None:
            wrong = [word for word in words if _plain_numbers([word]) is None][:1]
            hint = ", with a decimal point instead of the comma" if "," in wrong[0] else ""
            raise self.expected(f"plain numbers as {what}{hint}", wrong)
        return values


def _plain_numbers(words: list[str]) -> np.ndarray | None:
    """Return numbers of a sane size, or None; 1_000 and other scripts' digits are none in a BVH file."""
    text = "".join(words)
    try:
        values = np.array([float(word) for word in words])
    except ValueError:
        return None
    return values if text.isascii() and "_" not in text and (np.abs(values) <= MAX_VALUE).all() else None


_CHANNELS = tuple(f"{axis}{kind}" for kind in ("position", "rotation") for axis in "xyz")


def _read_hierarchy(lines: _Lines) -> tuple[Rig, tuple[tuple[str, ...], ...]]:
    """Read the HIERARCHY part: the rig, and the channels of each joint in lower case."""
    if [word.upper() for word in lines.next("HIERARCHY")] != ["HIERARCHY"]:
        raise lines.error("the file does not begin with HIERARCHY: this is not a BVH file, or not saved as plain text")
    names: dict[str, int] = {}
    offsets: list[np.ndarray] = []
    channels: list[tuple[str, ...]] = []
    open_joints: list[int] = []
    ends: set[int] = set()
    while True:
        words = lines.next("a joint or MOTION")
        keyword, name = words[0].upper(), "_".join(words[1:])
        is_end = keyword in ("END", "ENDSITE", "END_SITE")
        if keyword == "MOTION" and not (name or open_joints):
            break
        if keyword == "}" and open_joints:
            open_joints.pop()
            continue
        if not (is_end or (keyword in ("ROOT", "JOINT") and 0 < len(name) <= MAX_NAME)):
            raise lines.expected("a joint with a name, an End Site, a brace or MOTION", words)
        if (keyword == "ROOT") != (not names) or (names and not open_joints) or ends.intersection(open_joints[-1:]):
            raise lines.error(f"{keyword} in the wrong place: one ROOT holds all joints, and an End Site holds none")
        if len(names) >= MAX_JOINTS:
            raise lines.error(f"more than {MAX_JOINTS} joints: this is not a person")
        parent = open_joints[-1] if open_joints else -1
        open_joints.append(len(names))
        if is_end:
            ends.add(len(names))
            name = f"{list(names)[parent]}_end"
        # Names in an unknown encoding have escapes in place of its bytes.
        names[unique_name(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), names)] = parent
        if (words := lines.next("an opening brace")) != ["{"]:
            raise lines.expected("an opening brace", words)
        words = lines.next("OFFSET")
        if words[0].upper() != "OFFSET":
            raise lines.expected("OFFSET", words)
        offsets.append(lines.numbers(words[1:], 3, "OFFSET"))
        channels.append(() if is_end else _read_channels(lines))
    lines.is_header = False
    if not any(channels):
        raise lines.error("no joint has channels: there is nothing that moves in this file")
    return Rig(tuple(names), tuple(names.values()), np.stack(offsets)), tuple(channels)


def _read_channels(lines: _Lines) -> tuple[str, ...]:
    words = lines.next("CHANNELS")
    channels = tuple(word.lower() for word in words[2:])
    is_known = len(set(channels)) == len(channels) and set(channels) <= set(_CHANNELS)
    if words[0].upper() != "CHANNELS" or words[1:2] != [str(len(channels))] or not is_known:
        raise lines.expected(f"CHANNELS, their count and their names ({', '.join(_CHANNELS)}), each once", words)
    return channels


# For lines with single spaces only: `\s*:?\s*` would take quadratic time over a line of them.
_FRAMES = re.compile(r"frames ?:? ?([0-9]{1,10})", re.IGNORECASE)
_FRAME_TIME = re.compile(r"frame ?time ?:? ?(\S+)", re.IGNORECASE)


def read_bvh(path: str | Path) -> RigMotion:
    """Read a BVH file of any hierarchy, channel order and rate; errors are ValueErrors with the file and the line."""
    path = Path(path)
    with errors_of(path):
        budget = Budget(path)
    # -sig drops the byte order mark of Windows editors.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=None) as file:
        lines = _Lines(path, file)
        rig, channels = _read_hierarchy(lines)
        num_channels = sum(map(len, channels))
        words = lines.next("'Frames:'")
        match = _FRAMES.fullmatch(" ".join(words))
        count = int(match[1]) if match else 0
        if count == 0:
            raise lines.expected("'Frames:' and their number, one or more", words)
        try:
            budget.take(count, len(rig.names), 12)
        except ValueError as error:
            raise lines.error(str(error)) from None
        words = lines.next("'Frame Time:'")
        match = _FRAME_TIME.fullmatch(" ".join(words))
        if not match or _plain_numbers([match[1]]) is None or not FRAME_TIMES[0] <= float(match[1]) <= FRAME_TIMES[1]:
            raise lines.expected("'Frame Time:' and seconds, such as 0.0333333 for 30 Hz", words)
        rows: list[np.ndarray] = []
        for frame in range(count):
            words = lines.next(f"frame {frame + 1} of {count}")
            rows.append(lines.numbers(words, num_channels, "the hierarchy's channels"))
        if next(lines.words, None) is not None:
            raise lines.error(f"the file goes on after its {count} frames: their number or a line is wrong")
    digits = [word.partition(".")[2] for word in words]
    decimals = min(12, max([6, *(len(part) for part in digits if part.isdecimal())]))
    values = np.stack(rows)
    translations, rotations = _posed(rig, channels, values)
    movable = tuple(sum(channel.endswith("position") for channel in joint) == 3 for joint in channels)
    source = BvhFile("".join(lines.header), match[1], decimals, channels, values)
    return RigMotion(rig, _roundest_rate(match[1]), translations, rotations, path.stem, movable, source)


def _roundest_rate(frame_time: str) -> float:
    """Return the frame rate with the fewest decimals that a frame time allows as written: 0.0333333 s means 30 Hz."""
    seconds = float(frame_time)
    exponent = Decimal(frame_time).as_tuple().exponent
    last_digit = 10.0**exponent if isinstance(exponent, int) else 0.0
    for decimals in range(10):
        fps = round(1 / seconds, decimals)
        # A whole unit of the last digit, because some exporters cut digits off instead of rounding.
        if fps > 0 and abs(1 / fps - seconds) <= last_digit and abs(fps * seconds - 1) < 0.01:
            return fps
    return 1 / seconds


def _posed(
    rig: Rig, channels: Sequence[tuple[str, ...]], values: Float[np.ndarray, "t c"]
) -> tuple[Float[np.ndarray, "t n 3"], Float[np.ndarray, "t n 3 3"]]:
    """Return local translations and rotations. Position channels stand in place of the offset, as importers agree."""
    translations = np.tile(rig.offsets, (len(values), 1, 1))
    rotations = np.tile(np.eye(3), (len(values), len(rig.names), 1, 1))
    for j, start, order, turns in _layout(channels):
        for k, channel in enumerate(channels[j], start):
            if channel.endswith("position"):
                translations[:, j, "xyz".index(channel[0])] = values[:, k]
        if order:
            # The first channel is the outermost turn.
            rotations[:, j] = euler_to_rotmat(order, values[:, turns])
    return translations, rotations


def _layout(channels: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, int, str, list[int]]]:
    """Yield each joint with its first column, the order of its turns, and their columns."""
    start = 0
    for j, joint in enumerate(channels):
        turns = [k for k, channel in enumerate(joint) if channel.endswith("rotation")]
        yield j, start, "".join(joint[k][0].upper() for k in turns), [start + k for k in turns]
        start += len(joint)


@dataclass(frozen=True, eq=False)
class BvhFile(SourceFile):
    """A BVH file's frames as they are written, and what stands around them."""

    header: str
    """Lines up to MOTION."""
    frame_time: str
    decimals: int
    """Number of decimals of the values, six at least."""
    channels: tuple[tuple[str, ...], ...]
    """Channels of each joint, in lower case."""
    values: Float[np.ndarray, "t c"]
    """Channel values [degrees and file units]."""
    ending: ClassVar[str] = ".bvh"

    def write_back(self, motion: RigMotion, path: Path, *, source: RigMotion) -> None:
        """Write frames on the file's rig, with its hierarchy, channels, frame time and decimals.

        Values that did not change since the source's frame of the same number stay as they are written. Frames beyond
        the source's end count from its last one.
        """
        if not (np.isfinite(motion.translations).all() and np.isfinite(motion.rotations).all()):
            raise ValueError(f"{path}: the motion holds values that are not finite, so it was not written")
        at = np.minimum(np.arange(len(motion)), len(source) - 1)
        values = self.values[at]
        for j, start, order, turns in _layout(self.channels):
            turned = np.abs(motion.rotations[:, j] - source.rotations[at, j]).max((-1, -2)) > SAME
            shifted = np.abs(motion.translations[:, j] - source.translations[at, j]).max(-1) > SAME
            if order and turned.any():
                values[:, turns] = _continued(order, motion.rotations[:, j], values[:, turns], turned)
            for k, channel in enumerate(self.channels[j], start):
                if channel.endswith("position"):
                    values[shifted, k] = motion.translations[shifted, j, "xyz".index(channel[0])]
        row = " ".join([f"%.{self.decimals}f"] * values.shape[1])
        rows = "".join(row % tuple(frame) + "\n" for frame in values.tolist())
        text = f"{self.header}Frames: {len(values)}\nFrame Time: {self.frame_time}\n{rows}"
        write_text(path, text)


def _continued(
    order: str, R: Float[np.ndarray, "t 3 3"], written: Float[np.ndarray, "t k"], turned: Bool[np.ndarray, "t"]
) -> Float[np.ndarray, "t k"]:
    """Return angles of turned frames; of the two ways to write them, the one nearer to the frame before."""
    full = order + "".join(axis for axis in "XYZ" if axis not in order)
    angles = _euler_degrees(full, R)
    out = written.copy()
    for frame in np.flatnonzero(turned):
        near = out[frame - 1] if frame else written[frame]
        ways = np.stack((angles[frame], angles[frame] * (1, -1, 1) + 180))[:, : len(order)]
        ways += 360 * np.round((near - ways) / 360)
        out[frame] = ways[np.abs(ways - near).max(-1).argmin()]
    return out


def _euler_degrees(order: str, R: Float[np.ndarray, "*b 3 3"]) -> Float[np.ndarray, "*b 3"]:
    """Return the angles of R = R_i(a) R_j(b) R_k(c); the product is exact also where b is a quarter turn."""
    i, j, k = ("XYZ".index(axis) for axis in order)
    sign = 1.0 if (j - i) % 3 == 1 else -1.0
    a = np.arctan2(-sign * R[..., j, k], R[..., k, k])
    b = np.arctan2(sign * R[..., i, k], np.hypot(R[..., j, k], R[..., k, k]))
    # Row j of R_i(a)^T R = R_j(b) R_k(c) holds the sine and the cosine of c alone: no division by cos b.
    cos_a, sin_a = np.cos(a), sign * np.sin(a)
    c = np.arctan2(sign * (cos_a * R[..., j, i] + sin_a * R[..., k, i]), cos_a * R[..., j, j] + sin_a * R[..., k, j])
    return np.rad2deg(np.stack((a, b, c), axis=-1))


_TIPS = {"foot": (0.0, 0.0, 0.5), "head": (0.0, 1.4, 0.0)}
"""Ends of toes and head, over the length of their bone."""


def _tip(skeleton: Skeleton, joint: int) -> Float[np.ndarray, "3"]:
    """Return the end of a leaf, for looks; hands go on along their bone."""
    tip = _TIPS.get(JOINTS[joint].rpartition("_")[2])
    return 0.74 * skeleton.offsets[joint] if tip is None else skeleton.lengths[joint] * np.array(tip)


def _add_joint(joint: int, indent: str, offsets: Sequence[str], tips: Sequence[str], lines: list[str]) -> list[int]:
    """Write a joint and those below it as lines of the hierarchy, and return them in the order of the file."""
    kind, channels = ("JOINT", "CHANNELS 3") if joint else ("ROOT", "CHANNELS 6 Xposition Yposition Zposition")
    lines.append(f"{indent}{kind} {JOINTS[joint]}\n{indent}{{\n{indent}\t{offsets[joint]}")
    lines.append(f"{indent}\t{channels} Zrotation Xrotation Yrotation")
    order = [joint]
    for child in CHILDREN[joint]:
        order += _add_joint(child, indent + "\t", offsets, tips, lines)
    if not CHILDREN[joint]:
        lines.append(f"{indent}\tEnd Site\n{indent}\t{{\n{indent}\t\t{tips[joint]}\n{indent}\t}}")
    lines.append(f"{indent}}}")
    return order


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
    tips = [_tip(motion.skeleton, joint) for joint in range(NUM_JOINTS)]
    offsets, tips = (
        ["OFFSET " + " ".join(f"{value:.{decimals}f}" for value in row) for row in np.asarray(rows) @ R_file.T / unit]
        for rows in (motion.skeleton.offsets, tips)
    )
    lines = ["HIERARCHY"]
    order = _add_joint(0, "", offsets, tips, lines)
    # Angles go on past a half turn, so that an editor's curves have no jumps.
    angles = _euler_degrees("ZXY", q[:, order]).reshape(len(motion), -1)
    values = np.concatenate((motion.root @ R_world.T / unit, np.unwrap(angles, period=360.0, axis=0)), axis=1)
    lines += ["MOTION", f"Frames: {len(motion)}", f"Frame Time: {np.format_float_positional(1 / motion.fps)}"]
    row = " ".join([f"%.{decimals}f"] * 3 + ["%.6f"] * (3 * NUM_JOINTS))
    lines += [row % tuple(frame) for frame in values.tolist()]
    write_text(path, "\n".join(lines) + "\n")
