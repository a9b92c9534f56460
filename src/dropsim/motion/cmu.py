"""CMU mocap in the cgspeed BVH conversion: its lost bones, false frame rates and duplicates.

The data used in this project was obtained from mocap.cs.cmu.edu. The database was created with funding from NSF
EIA-0196217.
"""

import csv
import functools
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np

from dropsim.motion.bvh import Rig, RigMotion

HEADER_FPS = 120.0
"""What every original file's header says, true or not [Hz]."""

NOT_FLAT = frozenset((1, 3, 36, 39, 40, 41, 43, 74, 81, 84, 122, 125, 126, 134))
"""Subjects on playgrounds, uneven ground, in the water or on skateboards."""
STEPS = 83
"""Subject of single steps, most of them on level ground; the words of the others say up, down, a ledge or stairs."""


EVALUATION_SUBJECTS = frozenset((2, 8, 9, 27, 47, 76, 82, 118, 138))
"""People whom priors are judged by, so they and whatever duplicates their clips are never in training data or in banks.

They walk, run, jump, turn, march, push and fight, and the first learned prior was trained without them: its numbers
stay comparable.
"""

DEMONSTRATION_SUBJECTS = frozenset((87, 88))
"""People whose back flips show what a prior does with motions that it does not know; for nothing else."""


@dataclass(frozen=True)
class ClipInfo:
    """What is known of a clip beyond its file."""

    description: str
    frames: int
    """In the original file, without its artificial first frame."""
    fps: float
    """The true rate of the original file [Hz]."""
    duplicate_of: str
    """Another clip that holds the same motion, or nothing."""
    glitch: bool
    """Whether the recording jumps."""

    @property
    def is_duplicate(self) -> bool:
        """Whether another clip of the database holds the same motion."""
        return bool(self.duplicate_of)


@functools.cache
def clip_table() -> dict[str, ClipInfo]:
    """Return what is known of each clip, by name such as 02_01."""
    text = resources.files("dropsim").joinpath("assets/cmu_clips.csv").read_text(encoding="utf-8")
    return {
        row["clip"]: ClipInfo(
            row["description"], int(row["frames"]), float(row["fps"]), row["duplicate_of"], row["glitch"] != "0"
        )
        for row in csv.DictReader(text.splitlines())
    }


@functools.cache
def _same_motion() -> dict[str, frozenset[str]]:
    """Return, for each clip that is there more than once, all the names of its motion."""
    groups: dict[str, set[str]] = {}
    for name, info in clip_table().items():
        if info.duplicate_of:
            groups.setdefault(info.duplicate_of, {info.duplicate_of}).add(name)
    return {name: frozenset(group) for group in groups.values() for name in group}


def is_for_evaluation(clip: str) -> bool:
    """Tell whether priors are judged by this motion, under this name or under another."""
    names = _same_motion().get(clip, frozenset((clip,)))
    return any(name in clip_table() and subject(name) in EVALUATION_SUBJECTS for name in names)


def subject(clip: str) -> int:
    """Return the person's number in a clip's name."""
    return int(clip.partition("_")[0])


def repair(source: RigMotion) -> RigMotion:
    """Restore the bones that the conversion lost, drop its artificial first frame, and correct the rate where the header is false."""
    return _true_rate(_without_t_pose(_with_lost_bones(source)))


_LOST = {
    "Neck": "Spine1", "LeftShoulder": "Spine1", "RightShoulder": "Spine1", "LeftFingerBase": "LeftHand", "RightFingerBase": "RightHand",
}  # fmt: skip
"""The joints whose bone was lost, and the bone that its length is known from."""


def _with_lost_bones(source: RigMotion) -> RigMotion:
    # As rigs are matched: without namespace and case.
    index = {name.rpartition(":")[2].lower(): j for j, name in reversed(list(enumerate(source.rig.names)))}
    offsets, translations = source.rig.offsets.copy(), source.translations.copy()
    for name, before in _LOST.items():
        j, known = index.get(name.lower()), index.get(before.lower())
        # A file that somebody has repaired already stays as it is.
        if j is None or known is None or offsets[j].any():
            continue
        bone = offsets[known]
        offsets[j] = 0.5 * bone if before.endswith("Hand") else np.array([0.0, 1.003 * np.linalg.norm(bone), 0.0])
        translations[:, j] = offsets[j]
    return replace(source, rig=Rig(source.rig.names, source.rig.parents, offsets), translations=translations)


def _without_t_pose(source: RigMotion) -> RigMotion:
    """Drop frame 0 where it is the artificial T-pose: a hip turned by exactly nothing, which no recording holds."""
    if (
        len(source) < 2
        or not (source.rotations[0, 0] == np.eye(3)).all()
        or (source.rotations[1, 0] == np.eye(3)).all()
    ):
        return source
    return replace(source, translations=source.translations[1:], rotations=source.rotations[1:])


def _true_rate(source: RigMotion) -> RigMotion:
    info = clip_table().get(source.name)
    if info is None or source.fps != HEADER_FPS or len(source) != info.frames:
        return source
    return replace(source, fps=info.fps)
