"""Retargeting: a source rig's motion onto our skeleton, by global orientations with rest-pose alignment."""

import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import apply, rotmat_to_rotvec, rotvec_to_rotmat, swing, transpose
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.files.atomic import errors_of
from dropsim.motion import cmu
from dropsim.motion.bvh import Y_TO_Z_UP, Rig, RigMotion
from dropsim.motion.motion import Motion
from dropsim.motion.structure import SURE, find_person, leftness

OPTIONAL = frozenset(name for name in JOINTS if re.match("spine|neck|head|.*foot|.*collar", name))
"""Joints that a rig may lack; they then move with their parent."""

MAX_MAP_BYTES = 1_000_000
"""Largest file that maps joints [bytes]."""
MAX_REST_SWING = 2.1
"""Largest bend of a bone of a rest pose from ours [rad]; else a frame of the motion serves instead."""

AXES = {"x": np.roll(np.eye(3), 1, axis=1), "y": Y_TO_Z_UP, "z": np.eye(3)}
"""The rotation that takes a world with this axis up into ours (z up)."""
BVH_UP = "y"
"""Vertical axis of most BVH files, for rigs that tell none."""

Number = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Names = str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
"""Spellings of a joint's name; the first that a rig has counts."""


class Between(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place between two joints of a rig."""

    between: tuple[str, str]
    share: Number
    """Share of the way from the first to the second."""


class RigMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Source joints that drive ours; a map file has these fields but for the name."""

    joints: Mapping[str, Names | Between]
    """Positions in the reference pose."""
    rotations: Mapping[str, Names] = {}
    """Joints of the orientations that do not come from the joint of the position."""
    repair: Literal["", "cmu"] = ""
    """A known conversion's faults to mend first."""
    up: Literal["x", "y", "z"] | None = None
    """Vertical axis of all files on this rig; None where they differ."""
    unit: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    """Metres per unit of all files on this rig; None where they differ."""
    only_with: Names = ()
    """Joints that tell this rig from others of similar names; without them the map is not tried."""
    lengths: Mapping[str, Number] = {}
    """Lengths of bones by which to tell it from rigs of the same names, in the file's unit, to three decimals."""
    standing: Mapping[str, tuple[Number, Number, Number]] = {}
    """Global orientations of the file's joints in a standing pose, as rotation vectors [degrees], where the zero pose
    is none."""
    name: str = ""


def spellings(names: Names | Between) -> tuple[str, ...]:
    """Return the names of joints in an entry of a map."""
    return (names,) if isinstance(names, str) else names.between if isinstance(names, Between) else names


_PREFIX = re.compile(r"^(def[-_]|org[-_]|bip\d+[-_ ]|[mf]_avg_)")


def plain(name: str) -> str:
    """Reduce a joint's name to lower-case letters and digits, without namespace and DEF-, ORG-, Bip01 or m_avg_."""
    return re.sub(r"[\W_]", "", _PREFIX.sub("", name.rpartition(":")[2].lower()))


def read_rig_map(path: Path) -> RigMap:
    """Read a user's own map from a TOML file."""
    if path.stat().st_size > MAX_MAP_BYTES:
        raise ValueError(f"{path}: has more than {MAX_MAP_BYTES / 1e6:g} MB: this is no map of joints")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None
    with errors_of(path):
        return _parse_rig_map(str(path), table)


_KNOWN = (
    "dropsim cmu accad 100style mixamo lafan1 bandai humanoid unreal rokoko xsens daz daz9 vroid biped smpl mmd o3de"
)


@functools.cache
def known_rig_maps() -> tuple[RigMap, ...]:
    """Return the maps that the package brings, the most particular first."""
    folder = resources.files("dropsim").joinpath("assets/rigs")
    texts = {name: folder.joinpath(f"{name}.toml").read_text(encoding="utf-8") for name in _KNOWN.split()}
    return tuple(_parse_rig_map(name, tomllib.loads(text)) for name, text in texts.items())


def _parse_rig_map(name: str, table: dict[str, Any]) -> RigMap:
    for key, value in table.items():
        # Entry by entry, so that a fault is reported with its joint.
        for entry in [{joint: part} for joint, part in value.items()] if isinstance(value, dict) else [value]:
            where = ".".join((key, *entry)) if isinstance(entry, dict) else key
            try:
                msgspec.convert({"joints": {}, key: entry}, RigMap)
            except msgspec.ValidationError as error:
                form = "a joint's name, a list of names, or { between = [A, B], share = 0.5 }"
                raise ValueError(f"{where}: {error}; our joints have {form}") from None
    rig_map = msgspec.convert({"joints": {}, "name": name} | table, RigMap)
    for joint in (*rig_map.joints, *rig_map.rotations):
        joint_index(joint)
    if missing := [joint for joint in JOINTS if joint not in rig_map.joints and joint not in OPTIONAL]:
        raise ValueError(f"the map says nothing of {', '.join(missing)}")
    return rig_map


class Match:
    """A rig map resolved against a rig's joints; what could not be found is in `missing`."""

    def __init__(self, rig: Rig, rig_map: RigMap) -> None:
        """Look up the rig's joints by their plain names."""
        self.rig_map = rig_map
        index = {plain(name): j for j, name in reversed(list(enumerate(rig.names)))}

        def find(names: Names) -> int | None:
            return next((index[plain(name)] for name in spellings(names) if plain(name) in index), None)

        marks = {name: find(name) for name in (*spellings(rig_map.only_with), *rig_map.lengths)}
        self.has_marks = None not in marks.values() and all(
            abs(np.linalg.norm(rig.offsets[marks[name]]) - length) < 1e-3 for name, length in rig_map.lengths.items()
        )
        """Whether the rig has the joints and lengths that tell it from others of similar names."""
        self.positions: list[tuple[int, int, float] | None] = []
        """Places of our joints: a share of the way from one of the rig's joints to another."""
        self.drivers: list[int | None] = []
        """Joints of the rig that ours turn with."""
        self.missing: list[str] = []
        for joint in JOINTS:
            source = rig_map.joints.get(joint, ())
            share = source.share if isinstance(source, Between) else 0.0
            ends = [find(name) for name in (source.between if isinstance(source, Between) else (source, source))]
            ends = [end for end in ends if end is not None]
            place = (ends[0], ends[1], share) if len(ends) == 2 else None
            turned, driver = rig_map.rotations.get(joint), place[0] if place else None
            # A joint that has an orientation but no place of its own stays at rest in the reference pose.
            if turned and (ends or not source):
                driver = find(turned)
            self.positions.append(place)
            self.drivers.append(driver)
            if joint not in OPTIONAL and (place is None or driver is None):
                self.missing.append(f"{joint} ({' or '.join(spellings(turned or () if place else source))})")
        self.joints = {j: rig.names[at[0]] for j, at in zip(JOINTS, self.positions, strict=True) if at}
        """The rig's joint at each of ours that was matched."""

    def points(self, positions: Float[np.ndarray, "t n 3"]) -> Float[np.ndarray, "t 22 3"]:
        """Pick our joints out of the rig's; those that it lacks are NaN."""
        points = np.full((len(positions), NUM_JOINTS, 3), np.nan)
        for j, where in enumerate(self.positions):
            if where is not None:
                a, b, share = where
                points[:, j] = (1 - share) * positions[:, a] + share * positions[:, b]
        return points


BY_STRUCTURE = "by structure"
REMEDY = "Write a map with `dropsim rig FILE --save map.toml`, correct it, and pass it with --rig"


def match_source(source: RigMotion, rig_map: RigMap | None = None) -> Match:
    """Return the match of a file's rig, or raise with its fault."""
    match, fault = guess_rig(source, rig_map)
    if fault:
        raise ValueError(f"{fault}. The file has {', '.join(source.rig.names[:40])}. {REMEDY}")
    return match


def guess_rig(source: RigMotion, rig_map: RigMap | None = None) -> tuple[Match, str]:
    """Return the best match of a rig, by its names or else by its structure, and its fault, empty if it is usable."""
    matches = [Match(source.rig, one) for one in ([rig_map] if rig_map else known_rig_maps())]
    matches = [match for match in matches if rig_map or match.has_marks]

    def misfit(match: Match) -> tuple[int, bool, int]:
        is_general = not (match.rig_map.only_with or match.rig_map.lengths)
        return len(match.missing), is_general, match.positions.count(None)

    best = min(matches, key=misfit)
    if not best.missing:
        return best, _objection(source, best)
    known, name = ", ".join(match.rig_map.name for match in matches), best.rig_map.name
    few = ", ".join(best.missing[:4]) + (f" and {len(best.missing) - 4} others" if len(best.missing) > 4 else "")
    fits = f"none of the known rigs ({known}) fits this hierarchy; nearest is {name}"
    fault = f"{f'the map {name} does not fit this hierarchy' if rig_map else fits}, without a match for {few}"
    person = None if rig_map else find_person(source.rig, _zero_offsets(source), _poses(source))
    if person is None:
        return best, fault
    joints, sides_from = person
    shown = Match(source.rig, RigMap({ours: source.rig.names[j] for ours, j in joints.items()}, name=BY_STRUCTURE))
    if sides_from != "nothing" and not shown.missing:
        return shown, _objection(source, shown)
    return min(shown, best, key=lambda match: len(match.missing)), fault


def _zero_offsets(source: RigMotion) -> Float[np.ndarray, "n 3"]:
    """Return the joints' usual translations from their parents; some files have a bone's length in its channels."""
    return np.concatenate((source.rig.offsets[:1], np.median(source.translations[:, 1:], axis=0)))


def _poses(source: RigMotion) -> Float[np.ndarray, "t n 3"]:
    """Return the joints in the zero pose and in 50 frames of the motion at most."""
    some = np.unique(np.linspace(0, len(source) - 1, 50).astype(int))
    translations = np.concatenate((_zero_offsets(source)[None], source.translations[some]))
    rotations = np.concatenate((source.rig.rotations[None], source.rotations[some]))
    poses = replace(source, translations=translations, rotations=rotations)
    return poses.positions(poses.global_rotations())


_BONES = (("hip", "knee"), ("knee", "ankle"), ("ankle", "foot"), ("shoulder", "elbow"), ("elbow", "wrist"))


def _objection(source: RigMotion, match: Match) -> str:
    """Return what no person has, such as limbs in the wrong order, or left and right swapped; empty for a person."""
    fault = _wrong_order(source.rig, match) or _wrong_shape(match.points(_poses(source)))
    for joint in ("left_hip", "left_shoulder"):
        fault = fault.replace(f"{joint} ", f"{joint} ({match.joints.get(joint)}) ")
    name = match.rig_map.name
    which = "what the rig's structure shows" if name == BY_STRUCTURE else f"the map {name}"
    return fault and f"{which} is not a person: {fault}"


def _wrong_order(rig: Rig, match: Match) -> str:
    """Return the first limb whose joints hang on each other in another order than a person's."""
    at = {name: where[0] for name, where in zip(JOINTS, match.positions, strict=True) if where and not where[2]}

    def hangs(low: str, high: str) -> bool:
        joint = at[low]
        while joint not in (-1, at[high]):
            joint = rig.parents[joint]
        return joint >= 0

    for side in ("left", "right"):
        for high, low in ((f"{side}_{a}", f"{side}_{b}") for a, b in _BONES):
            if high in at and low in at and not hangs(low, high):
                return f"{low} ({match.joints[low]}) does not hang on {high} ({match.joints[high]})"
        if f"{side}_hip" in at and "spine3" in at and hangs(f"{side}_hip", "spine3"):
            return f"it stands on its head: {side}_hip hangs on spine3 ({match.joints['spine3']})"
    return ""


def _wrong_shape(points: Float[np.ndarray, "t 22 3"]) -> str:
    """Return what no person's body has: four legs, limbs of other proportions, or left and right swapped."""
    zero = points[0]
    hips, shoulders, ankles = zero[1:3].mean(0), zero[16:18].mean(0), zero[7:9].mean(0)
    trunk, legs, arms = shoulders - hips, ankles - hips, zero[20:22].mean(0) - shoulders
    if abs(_cosine(trunk, legs)) < 0.5 and _cosine(arms, legs) > 0.7:
        return "it has four legs: its spine is level, and what would be its arms points down like its legs"
    for words, (a, b, least, largest) in BUILD.items():
        over, under = (float(np.linalg.norm(zero[one] - zero[other])) for one, other in (a, b))
        if over > 0 and under > 0 and not least < over / under < largest:
            return f"its {words.format(over / under)}"
    # A zero pose that stands tells, whatever people do in the recording: some walk on their hands, or have a foot that
    # flips.
    stands = _cosine(trunk, legs) < -0.8 and abs(_cosine(trunk, (zero[10:12] - zero[7:9]).sum(0))) < 0.8
    points = points[:1] if stands else points[1:]
    up = points[:, 16:18].mean(1) - points[:, 1:3].mean(1)
    toes = np.nan_to_num(points[:, 10:12] - points[:, 7:9])
    toes = (toes + 2 * points[:, 4:6] - points[:, 1:3] - points[:, 7:9]).sum(1)
    if np.isfinite(up).all() and np.isfinite(toes).all():
        legs, arms = (leftness(points[:, j] - points[:, j + 1], up, toes) for j in (1, 16))
        if legs < -SURE:
            return "left and right are swapped: left_hip is on the right of the spine and the toes"
        if arms < -SURE:
            return "the arms are swapped: left_shoulder is on the side of right_hip"
    return ""


def _cosine(a: Float[np.ndarray, "3"], b: Float[np.ndarray, "3"]) -> float:
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))


BUILD = {
    "thighs are {:.1f} times as long as the legs' lower bones": ((1, 4), (4, 7), 0.35, 2.8),
    "upper arms are {:.1f} times as long as the arms' lower bones": ((16, 18), (18, 20), 0.35, 3.5),
    "arms' upper bones are {:.1f} times as long as the thighs": ((16, 18), (1, 4), 0.25, 2.0),
    "trunk is {:.1f} times as long as the thighs": ((1, 16), (1, 4), 0.3, 3.0),
}
"""Two lengths of a body, by our joints on the left, with the least and the largest ratio of people and cartoons."""


_ANKLES = (joint_index("left_ankle"), joint_index("right_ankle"))
_LOINS, _CHEST = (joint_index("spine1"), joint_index("spine2")), joint_index("spine3")
TRUNK = (joint_index("pelvis"), *_LOINS, _CHEST, joint_index("neck"), joint_index("head"))
"""Joints of which a reference pose tells no lean: people carry the head in front of the neck's base, and some rigs have
the spine behind the hips, while pelvis, chest and face look ahead."""


def _reference_rotations(
    skeleton: Skeleton, points: Float[np.ndarray, "22 3"], *, stands: bool = True
) -> tuple[Float[np.ndarray, "22 3 3"], float]:
    """Pose our skeleton like given points: global rotations, and the largest swing of a bone from its parent's [rad].

    Pelvis, chest, neck and head are level, as are the soles of a pose that stands, and other bones are swung the least
    from their parents.
    """
    R_world = np.empty((NUM_JOINTS, 3, 3))
    largest = 0.0
    known = [bool(np.isfinite(point).all()) for point in points]
    level = _level(points)
    lean = _lean(skeleton, points, level)
    for j in range(NUM_JOINTS):
        R_parent = R_world[PARENTS[j]] if j else level
        children = [c for c in CHILDREN[j] if known[c]]
        R_world[j] = R_parent
        if known[j] and len(children) == 1:
            turn = swing(R_parent @ skeleton.offsets[children[0]], points[children[0]] - points[j])
            largest = max(largest, float(np.linalg.norm(rotmat_to_rotvec(turn))))
            R_world[j] = turn @ R_parent
        if j in TRUNK:
            R_world[j] = level @ lean if j in _LOINS else level
        elif j in _ANKLES and stands and known[j] and children:
            across = np.eye(3) - np.outer(level[:, 1], level[:, 1])
            bone = points[children[0]] - points[j]
            R_world[j] = swing(across @ level @ skeleton.offsets[children[0]], across @ bone) @ level
    return R_world, largest


def _lean(
    skeleton: Skeleton, points: Float[np.ndarray, "22 3"], level: Float[np.ndarray, "3 3"]
) -> Float[np.ndarray, "3 3"]:
    """Return the turn of the loins that puts the upper body as far before the hips as some points have it."""
    between = skeleton.rest[_CHEST] - skeleton.rest[_LOINS[0]]
    upper = np.nanmean(points[[_CHEST, 16, 17]], axis=0)
    ahead = (upper - points[1:3].mean(0)) @ level[:, 2] * skeleton.leg_length / _leg_length(points)
    return swing(between, between + np.array([0.0, 0.0, ahead]))


def _level(points: Float[np.ndarray, "22 3"]) -> Float[np.ndarray, "3 3"]:
    """Return the orientation of a standing person: left by the hips, up along the axis of the pose, if any."""
    rise = _rise(points)
    axis = _axis(rise)
    up = rise / np.linalg.norm(rise) if axis is None else np.eye(3)["xyz".index(axis)]
    left = points[1] - points[2]
    left = left - (left @ up) * up
    left = left / np.linalg.norm(left)
    return np.stack((left, up, np.cross(left, up)), -1)


def _axis(rise: Float[np.ndarray, "3"]) -> str | None:
    """Return the axis along which somebody stands; None if there is none."""
    return "xyz"[int(rise.argmax())] if rise.max() > 0.8 * np.linalg.norm(rise) else None


@dataclass(frozen=True, eq=False)
class _Reference:
    """A pose of the source rig, and our skeleton in the same pose."""

    R_source: Float[np.ndarray, "n 3 3"]
    R_ours: Float[np.ndarray, "22 3 3"]
    points: Float[np.ndarray, "22 3"]
    """Our joints in it, in the file's unit; NaN where the rig has none."""
    up: str | None
    """The axis along which the pose stands; None where it does not."""


def _rest_pose(rig: Rig, match: Match, skeleton: Skeleton) -> _Reference | None:
    """Return the pose that the map names or the rig's zero pose, or None where no body can take it."""
    pose = RigMotion(rig, 1.0, rig.offsets[None], rig.rotations[None])
    standing = {plain(name): rotvec_to_rotmat(np.deg2rad(angles)) for name, angles in match.rig_map.standing.items()}
    turns = np.tile(np.eye(3), (len(rig.names), 1, 1))
    for j, name in enumerate(rig.names):
        turns[j] = standing.get(plain(name), turns[max(rig.parents[j], 0)])
    R_source = turns @ pose.global_rotations()[0]
    points = match.points(pose.positions(R_source[None]))[0]
    R_ours, bend = _reference_rotations(skeleton, points)
    if bend > MAX_REST_SWING:
        return None
    return _Reference(R_source, R_ours, points, _axis(_rise(points)))


def _rise(points: Float[np.ndarray, "*b 22 3"]) -> Float[np.ndarray, "*b 3"]:
    """From the ankles to the shoulders."""
    return points[..., 16:18, :].mean(-2) - points[..., 7:9, :].mean(-2)


def _least_bent_pose(
    points: Float[np.ndarray, "t 22 3"], R_source: Float[np.ndarray, "t n 3 3"], skeleton: Skeleton
) -> _Reference:
    """Return the frame of a motion that is nearest to our rest pose."""
    some = range(0, len(points), max(1, len(points) // 50))
    poses = [(i, *_reference_rotations(skeleton, points[i], stands=False)) for i in some]
    frame, R_ours, _ = min(poses, key=lambda pose: pose[2])
    return _Reference(R_source[frame], R_ours, points[frame], None)


@dataclass(frozen=True, eq=False)
class Fit:
    """Correspondence of a file's rig and our skeleton: the way there, and the way back."""

    source: RigMotion
    """As it was read."""
    skeleton: Skeleton
    drivers: tuple[int | None, ...]
    """The rig's joint that each of ours turns with."""
    alignments: Float[np.ndarray, "22 3 3"]
    """R_ours = R_axes R_source C; the C of each of our joints."""
    R_axes: Float[np.ndarray, "3 3"]
    """From the file's world to ours."""
    scale: float
    """Metres per unit of the file."""
    hips: tuple[tuple[int, int, float], ...]
    """Places of our two hips: a share of the way from one of the rig's joints to another."""
    first: int
    """The source's frame that is our first; a known artificial one before it is not read."""

    def there(self, R_source: Float[np.ndarray, "t n 3 3"], points: Float[np.ndarray, "t n 3"]) -> Motion:
        """Return our motion of global rotations and positions on the file's rig."""
        R_ours = np.empty((len(R_source), NUM_JOINTS, 3, 3))
        for j, driver in enumerate(self.drivers):
            if driver is None:
                R_ours[:, j] = R_ours[:, PARENTS[j]]
            else:
                R_ours[:, j] = self.R_axes @ R_source[:, driver] @ self.alignments[j]
        q = np.concatenate((R_ours[:, :1], transpose(R_ours[:, PARENTS[1:]]) @ R_ours[:, 1:]), axis=1)
        hips = self.scale * self._middle_of_hips(points) @ self.R_axes.T
        root = hips - apply(R_ours[:, 0], self.skeleton.offsets[1:3].mean(0))
        return Motion.from_rotations(self.skeleton, self.source.fps, root, q, name=self.source.name)

    def _middle_of_hips(self, points: Float[np.ndarray, "t n 3"]) -> Float[np.ndarray, "t 3"]:
        return np.mean([(1 - share) * points[:, a] + share * points[:, b] for a, b, share in self.hips], axis=0)

    def back(self, motion: Motion) -> RigMotion:
        """Return a motion of ours, which begins with the file's first frame, on the file's own rig.

        The rig's joints that drive ours take our orientations, R_source = R_axes^T R_ours C^T; all others keep what the
        file has relative to their parents, its last frame where our motion is longer. So the file's own motion comes
        back as it was. Where several of our joints have one driver, the outermost counts. The hips are put where ours
        are.
        """
        source, rig = self.source, self.source.rig
        at = np.minimum(np.arange(self.first + len(motion)), len(source) - 1)
        rotations, translations = source.rotations[at], source.translations[at].copy()
        local, now = rotations.copy(), slice(self.first, None)
        R_ours = motion.skeleton.global_rotations(motion.q)
        driven = {driver: j for j, driver in enumerate(self.drivers) if driver is not None}
        R_world = np.empty_like(rotations[now])
        for j, parent in enumerate(rig.parents):
            R_parent = R_world[:, parent] if parent >= 0 else np.eye(3)
            if j in driven:
                R_world[:, j] = self.R_axes.T @ R_ours[:, driven[j]] @ self.alignments[driven[j]].T
                local[now, j] = np.swapaxes(R_parent, -1, -2) @ R_world[:, j]
            else:
                R_world[:, j] = R_parent @ local[now, j]
        wanted = (motion.root + apply(R_ours[:, 0], motion.skeleton.offsets[1:3].mean(0))) @ self.R_axes / self.scale
        posed = RigMotion(rig, source.fps, translations[now], local[now], source.name)
        by = wanted - self._middle_of_hips(posed.positions(R_world))
        mover = self._mover()
        parent = rig.parents[mover]
        translations[now, mover] += by if parent < 0 else apply(transpose(R_world[:, parent]), by)
        return replace(source, translations=translations, rotations=local)

    def write(self, motion: Motion, path: str | Path, *, raised: Float[np.ndarray, "3"] | float = 0.0) -> None:
        """Write a motion of ours onto the file's rig, moved back by `raised`, its distance from the file's [m]."""
        back = self.back(replace(motion, root=motion.root - raised))
        if self.source.file is None:
            raise ValueError(
                f"{path}: {self.source.name} was not read from a file that frames can be written back into"
            )
        self.source.file.write_back(back, Path(path), source=self.source)

    @property
    def ending(self) -> str:
        """Ending of the files that can be written back."""
        return self.source.file.ending if self.source.file else ""

    def _mover(self) -> int:
        """Return the joint that moves the person: the lowest movable one that has all driven joints below it."""
        parents, movable = self.source.rig.parents, self.source.movable
        below = np.zeros(len(parents), dtype=int)
        for joint in {driver for driver in self.drivers if driver is not None}:
            while joint >= 0:
                below[joint] += 1
                joint = parents[joint]
        whole = [j for j in np.flatnonzero(below == below.max()).tolist() if movable is None or movable[j]]
        return whole[-1] if whole else 0


@dataclass(frozen=True, eq=False)
class Recording:
    """A file's motion on our skeleton, and how the file was understood."""

    motion: Motion
    rig: str
    """The map that fitted the file's joints."""
    up: str
    """The file's vertical axis: x, y or z."""
    up_from: str
    """Source of the vertical axis."""
    fit: Fit | None = None
    """The way back onto the file's rig; None for files that have our joints."""
    stretched: str | None = None
    """The file's axis along which the person is stretched in most frames, where that is another one."""

    @property
    def read_as(self) -> str:
        """Line that says how the file was understood."""
        hint = f"; people lie along {self.stretched}: give --up {self.stretched} if that is wrong"
        return f"rig {self.rig}, {self.up} up ({self.up_from}){hint if self.stretched else ''}"


UNITS = (1.0, 0.01, 0.0254, 0.001)
"""Usual units of files: metres, centimetres, inches, millimetres [m]."""
LEGS = (0.55, 1.15)
"""Legs of people, hip to ankle [m]: by them the unit of a file is told."""


def retarget(
    source: RigMotion,
    skeleton: Skeleton | None,
    *,
    rig_map: RigMap | None = None,
    up: str | None = None,
    unit: float | None = None,
) -> Recording:
    """Return a rig's motion on a skeleton, or on one with the rig's own proportions where None is given.

    Each joint's global orientation follows its source joint, R_ours(t) = R_source(t) C, with C constant and such that
    bones point alike in a reference pose. The hips' path is scaled by the ratio of leg lengths, or by `unit` [m per
    file unit] where given. `up` names the file's vertical axis; without it, the rig's known layout or its rest pose
    tells. The motion does not: people may lie.
    """
    if up is not None and up not in AXES:
        raise ValueError(f"the up axis is x, y or z, not {up!r}")
    if unit is not None and not 0 < unit < math.inf:
        raise ValueError(f"the unit is a positive number of metres, not {unit}")
    match = match_source(source, rig_map)
    read = source
    if match.rig_map.repair == "cmu":
        source = cmu.repair(source)
    usual = Skeleton.adult() if skeleton is None else skeleton
    R_source = source.global_rotations()
    positions = source.positions(R_source)
    points = match.points(positions)
    legs = _leg_length(points[0])
    rest = _rest_pose(source.rig, match, usual)
    known, rest_up = match.rig_map.up, rest.up if rest else None
    gltf_up = source.file.up if source.file else None
    ways = [(up, "as given"), (gltf_up, "glTF's"), (known, "known layout"), (rest_up, "rest pose")]
    ways.append((BVH_UP, "custom, as the zero pose does not stand"))
    axis, up_from = next((axis, how) for axis, how in ways if axis)
    pose = rest or _least_bent_pose(points, R_source, usual)
    if skeleton is None:
        unit = unit or match.rig_map.unit or next((size for size in UNITS if LEGS[0] <= size * legs <= LEGS[1]), None)
        scale = unit or usual.leg_length / legs
        skeleton = _own_skeleton(usual, scale * pose.points, pose.R_ours)
    else:
        scale = unit or skeleton.leg_length / legs
    alignments = np.tile(np.eye(3), (NUM_JOINTS, 1, 1))
    for j, driver in enumerate(match.drivers):
        if driver is not None:
            alignments[j] = pose.R_source[driver].T @ pose.R_ours[j]
    hips = tuple(where for where in match.positions[1:3] if where is not None)
    first, read = len(read) - len(source), replace(read, fps=source.fps)
    fit = Fit(read, skeleton, tuple(match.drivers), alignments, AXES[axis], scale, hips, first)
    # A known layout leaves no doubt.
    stretched = "xyz"[int(np.abs(_rise(points).mean(0)).argmax())] if not (up or known or gltf_up) else axis
    motion = fit.there(R_source, positions)
    return Recording(motion, match.rig_map.name, axis, up_from, fit, stretched if stretched != axis else None)


SHORTEST_BONE = 0.01
"""A rig's bone that is shorter is none; ours then has an adult's length [m]."""


def _own_skeleton(adult: Skeleton, points: Float[np.ndarray, "22 3"], R_ours: Float[np.ndarray, "22 3 3"]) -> Skeleton:
    """Return a skeleton with the bones of a reference pose [m], an adult's where the rig has none."""
    ratio = _leg_length(points) / adult.leg_length
    points = points.copy()
    # Spine joints that the rig lacks lie evenly between those that it has.
    spine = [joint_index(name) for name in ("pelvis", "spine1", "spine2", "spine3", "neck")]
    has = [k for k, j in enumerate(spine) if np.isfinite(points[j]).all()]
    for j, k in zip(spine, range(has[-1] + 1), strict=False):
        points[j] = [np.interp(k, has, points[spine, axis][has]) for axis in range(3)]
    rest = np.zeros((NUM_JOINTS, 3))
    for j in range(1, NUM_JOINTS):
        parent = PARENTS[j]
        bone = R_ours[parent].T @ (points[j] - points[parent])
        if not np.linalg.norm(bone) > SHORTEST_BONE:
            bone = ratio * adult.offsets[j]
            points[j] = points[parent] + R_ours[parent] @ bone
        rest[j] = rest[parent] + bone
    return adult.with_bones(rest - rest[0] + ratio * adult.rest[0])


def _leg_length(points: Float[np.ndarray, "22 3"]) -> float:
    """Hip to ankle along the bones, in the file's unit."""
    length = sum(float(np.linalg.norm(points[a] - points[b])) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8))) / 2
    if not length > 0:
        raise ValueError("the legs have no length: this hierarchy cannot be retargeted")
    return length
