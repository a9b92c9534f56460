"""Retargeting: a source rig's motion onto our skeleton, by global orientations with rest-pose alignment."""

import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, cast

import roma
import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import swing
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, PARENTS, Skeleton
from dropsim.files.names import suggestion
from dropsim.motion.bvh import Rig, Take
from dropsim.motion.motion import Motion, cmu

OPTIONAL = frozenset(("spine1", "spine2", "spine3", "left_foot", "right_foot", "neck", "left_collar", "right_collar", "head"))
"""Joints that a rig may lack; they then move with their parent."""

MAX_MAP_BYTES = 1_000_000
"""Of a file that maps joints."""
MAX_REST_SWING = 2.1
"""A zero pose whose bones are bent further than this from ours [rad] is no rest pose; a frame of the motion serves instead."""

AXES = {
    "y": ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0)),
    "z": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "x": ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)),
}
"""Rows of the rotation that takes a world with this axis up into ours (z up)."""


@dataclass(frozen=True)
class Source:
    """Where one of our joints lies in a source rig: at a joint, or part of the way between two."""

    names: tuple[str, ...]
    """Accepted spellings, the first that the rig has; for a point between two joints, exactly those two."""
    share: float | None = None
    """How far from the first to the second joint."""


@dataclass(frozen=True)
class RigMap:
    """Which source joint drives which of ours."""

    name: str
    joints: Mapping[str, Source]
    """Position in the reference pose."""
    rotations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Orientation, where it does not come from the joint of the position."""
    repair: str = ""
    """A known conversion's faults to mend first; only `cmu` is known."""


def plain(name: str) -> str:
    """Reduce a joint's name to what tells it apart: no namespace, no DEF- or ORG- prefix, no case, no punctuation."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"^(def|org)[-_]", "", name.rpartition(":")[2].lower()))


def read_rig_map(path: Path) -> RigMap:
    """Read a user's own map from a TOML file."""
    if path.stat().st_size > MAX_MAP_BYTES:
        raise ValueError(f"{path}: has more than {MAX_MAP_BYTES / 1e6:g} MB, and a map of joints needs less: this is another file")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None
    return _parse_rig_map(str(path), table)


@functools.cache
def known_rig_maps() -> tuple[RigMap, ...]:
    """Return the maps that the package brings, the most particular first."""
    folder = resources.files("dropsim").joinpath("assets/rigs")
    order = ("dropsim", "cmu", "mixamo", "lafan1", "bandai", "humanoid")
    return tuple(_parse_rig_map(name, tomllib.loads(folder.joinpath(f"{name}.toml").read_text(encoding="utf-8"))) for name in order)


def _parse_rig_map(name: str, table: Mapping[str, Any]) -> RigMap:
    if unknown := sorted(set(table) - {"joints", "rotations", "repair"}):
        raise ValueError(f"{name}: unknown key {unknown[0]!r}: a map has the tables joints and rotations")
    joints, rotations, repair = table.get("joints", {}), table.get("rotations", {}), table.get("repair", "")
    for key, value in (("joints", joints), ("rotations", rotations)):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name}: {key} should be a table of our joints and the file's names for them")
    if repair not in ("", "cmu"):
        raise ValueError(f"{name}: there is no repair {repair!r}: only 'cmu' is known")
    for joint in (*joints, *rotations):
        if joint not in JOINTS:
            raise ValueError(f"{name}: there is no joint {joint!r}: {suggestion(joint, JOINTS)}")
    if missing := [j for j in JOINTS if j not in joints and j not in OPTIONAL]:
        raise ValueError(f"{name}: the map says nothing of {', '.join(missing)}")
    return RigMap(
        name, {j: _parse_source(name, j, v) for j, v in joints.items()}, {j: _names(name, j, v) for j, v in rotations.items()}, repair
    )


def _parse_source(name: str, joint: str, value: object) -> Source:
    if not isinstance(value, Mapping):
        return Source(_names(name, joint, value))
    between, share = value.get("between"), value.get("share")
    if (
        set(value) != {"between", "share"}
        or not isinstance(share, int | float)
        or isinstance(share, bool)
        or not math.isfinite(share)
        or not isinstance(between, list)
        or len(between) != 2
    ):
        raise ValueError(f"{name}: {joint} should be a name, a list of names, or {{ between = [A, B], share = 0.5 }}")
    return Source(_names(name, joint, between), float(share))


def _names(name: str, joint: str, value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{name}: {joint} should be a joint's name or a list of names")
    return tuple(names)


class _Match:
    """A rig map resolved against a rig's joints; what could not be found is in `missing`."""

    def __init__(self, rig: Rig, rig_map: RigMap) -> None:
        self.rig_map = rig_map
        index = {plain(name): j for j, name in reversed(list(enumerate(rig.names)))}

        def find(names: tuple[str, ...]) -> int | None:
            return next((index[plain(n)] for n in names if plain(n) in index), None)

        self.positions: list[tuple[int, int, float] | None] = []
        self.drivers: list[int | None] = []
        self.missing: list[str] = []
        for joint in JOINTS:
            source = rig_map.joints.get(joint, Source(()))
            ends = [find((n,)) for n in source.names] if source.share is not None else [find(source.names)] * 2
            found = [e for e in ends if e is not None]
            if len(found) == 2:
                self.positions.append((found[0], found[1], source.share or 0.0))
                self.drivers.append(find(rig_map.rotations[joint]) if joint in rig_map.rotations else found[0])
                if self.drivers[-1] is None and joint not in OPTIONAL:
                    self.missing.append(f"the rotation of {joint} ({' or '.join(rig_map.rotations[joint])})")
            else:
                self.positions.append(None)
                self.drivers.append(None)
                if joint not in OPTIONAL:
                    self.missing.append(f"{joint} ({' or '.join(source.names)})")

    def points(self, positions: Float[Tensor, "t n 3"]) -> Float[Tensor, "t 22 3"]:
        """Pick our joints out of the rig's; those that it lacks are NaN."""
        columns = []
        for where in self.positions:
            if where is None:
                columns.append(torch.full_like(positions[:, 0], torch.nan))
            else:
                columns.append(torch.lerp(positions[:, where[0]], positions[:, where[1]], where[2]))
        return torch.stack(columns, dim=1)


def match_rig(rig: Rig, rig_map: RigMap | None = None) -> _Match:
    """Find the map that fits a rig, or raise with the joints that could not be matched."""
    matches = [_Match(rig, m) for m in ((rig_map,) if rig_map else known_rig_maps())]
    best = min(matches, key=lambda m: (len(m.missing), m.positions.count(None)))
    if best.missing:
        known = ", ".join(m.rig_map.name for m in matches)
        fits = f"none of the known rigs ({known}) fits this hierarchy; nearest is {best.rig_map.name}"
        few = ", ".join(best.missing[:4]) + (f" and {len(best.missing) - 4} others" if len(best.missing) > 4 else "")
        raise ValueError(
            f"{f'the map {best.rig_map.name} does not fit this hierarchy' if rig_map else fits}, without a match for "
            f"{few}. The file has {', '.join(rig.names[:40])}. "
            f"{'Change the map' if rig_map else 'Write a map (docs/conventions.md) and pass it with --map'}"
        )
    return best


def _reference_rotations(skeleton: Skeleton, points: Float[Tensor, "22 3"]) -> tuple[Float[Tensor, "22 3 3"], float]:
    """Pose our skeleton like given points, each bone swung the least from its parent: global rotations, and the largest swing [rad]."""
    world: list[Tensor] = []
    largest = 0.0
    known = ~points.isnan().any(-1)
    for j in range(NUM_JOINTS):
        R_parent = world[PARENTS[j]] if j else torch.eye(3, dtype=torch.float64)
        children = [c for c in CHILDREN[j] if known[c]]
        if not known[j] or not children:
            world.append(R_parent)
        elif len(children) > 1 or j == 0:
            block = roma.special_procrustes((points[children] - points[j]).T @ skeleton.offsets[children])
            world.append(cast(Tensor, block))
        else:
            rest, posed = R_parent @ skeleton.offsets[children[0]], points[children[0]] - points[j]
            turn = swing(rest, posed)
            largest = max(largest, float(roma.rotmat_to_rotvec(turn).norm()))
            world.append(turn @ R_parent)
    return torch.stack(world), largest


def retarget(take: Take, skeleton: Skeleton, *, rig_map: RigMap | None = None, up: str | None = None, unit: float | None = None) -> Motion:
    """Return a take's motion on our skeleton.

    Each joint's global orientation follows its source joint, R_ours(t) = R_source(t) C, with C constant and such that bones point alike
    in a reference pose. The hips' path is scaled by the ratio of leg lengths, or by `unit` [m per file unit] where given. `up` names the
    file's vertical axis; without it, the axis along which the person mostly stands.
    """
    if up is not None and up not in AXES:
        raise ValueError(f"the up axis is x, y or z, not {up!r}")
    if unit is not None and not 0 < unit < float("inf"):
        raise ValueError(f"the unit is a positive number of metres, not {unit}")
    match = match_rig(take.rig, rig_map)
    if match.rig_map.repair == "cmu":
        take = cmu.repair(take)
    R_source = take.global_rotations()
    points = match.points(take.positions(R_source))
    rest = Take(take.rig, 1.0, take.rig.offsets[None], torch.eye(3, dtype=torch.float64).expand(1, len(take.rig.names), 3, 3), take.name)
    rest_rotations = rest.global_rotations()
    R_reference, bend = _reference_rotations(skeleton, match.points(rest.positions(rest_rotations))[0])
    at_reference = rest_rotations[0]
    if bend > MAX_REST_SWING:
        stride = max(1, len(take) // 50)
        poses = [(i, *_reference_rotations(skeleton, points[i])) for i in range(0, len(take), stride)]
        frame, R_reference, _ = min(poses, key=lambda pose: pose[2])
        at_reference = R_source[frame]
    world = torch.tensor(AXES[up or _standing_axis(points)], dtype=torch.float64)
    R_ours: list[Tensor] = []
    for j, driver in enumerate(match.drivers):
        if driver is None:
            R_ours.append(R_ours[PARENTS[j]])
        else:
            R_ours.append(world @ R_source[:, driver] @ (at_reference[driver].T @ R_reference[j]))
    R_world = torch.stack(R_ours, dim=1)
    q = torch.cat((R_world[:, :1], R_world[:, list(PARENTS[1:])].transpose(-1, -2) @ R_world[:, 1:]), dim=1)
    scale = unit or skeleton.leg_length / _leg_length(points)
    middle_of_hips = scale * points[:, 1:3].mean(dim=1) @ world.T
    root = middle_of_hips - (R_world[:, 0] @ skeleton.offsets[1:3].mean(dim=0))
    return Motion.from_rotations(skeleton, take.fps, root, q, name=take.name)


def _leg_length(points: Float[Tensor, "t 22 3"]) -> float:
    """Hip to ankle along the bones, in the file's unit, as the first frame has it."""
    first = points[0]
    length = sum(float((first[a] - first[b]).norm()) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8))) / 2
    if not length > 0:
        raise ValueError("the legs have no length: this hierarchy cannot be retargeted")
    return length


def _standing_axis(points: Float[Tensor, "t 22 3"]) -> str:
    """Return the axis along which shoulders are above ankles, over the whole take."""
    rise = (points[:, 16:18].mean(1) - points[:, 7:9].mean(1)).mean(0)
    return "xyz"[int(rise.argmax())]
