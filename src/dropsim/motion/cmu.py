"""CMU mocap in the cgspeed BVH conversion: its lost bones, false frame rates and duplicates.

The data used in this project was obtained from mocap.cs.cmu.edu. The database was created with funding from NSF
EIA-0196217.
"""

import csv
import functools
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np

from dropsim.motion.bvh import RigMotion

HEADER_FPS = 120.0
"""Rate in every original file's header, true or not [Hz]."""

EVALUATION_SUBJECTS = frozenset((2, 8, 9, 27, 47, 76, 82, 118, 138))
"""People by whom priors are judged; they and all duplicates of their clips are never in training data or in banks.

They walk, run, jump, turn, march, push and fight, and the first learned prior was trained without them: its numbers
stay comparable.
"""


@dataclass(frozen=True)
class ClipInfo:
    """Facts about a clip beyond its file."""

    description: str
    frames: int
    """Number of frames in the original file, without its artificial first one."""
    fps: float
    """True rate of the original file [Hz]."""
    duplicate_of: str
    """Another clip that holds the same motion, or nothing."""
    glitch: bool
    """Whether the recording jumps."""
    for_evaluation: bool
    """Whether priors are judged by this motion, under this name or under another."""
    left_out: str
    """Reason why it is no data for motions on flat ground without props, such as stairs or a chair; else nothing."""


@functools.cache
def clip_table() -> dict[str, ClipInfo]:
    """Return what is known of each clip, by name such as 02_01."""
    text = resources.files("dropsim").joinpath("assets/cmu_clips.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    return {
        name: ClipInfo(words, int(frames), float(fps), same, jumps == "1", judged == "1", left_out)
        for name, words, frames, fps, same, jumps, judged, left_out in rows
    }


def subject(clip: str) -> int:
    """Return the person's number in a clip's name."""
    return int(clip.partition("_")[0])


def repair(source: RigMotion) -> RigMotion:
    """Restore lost bones, drop the artificial first frame, and correct the rate where the header is false."""
    return _true_rate(_without_t_pose(_with_lost_bones(source)))


_LOST = {"Neck": "Spine1", "LeftShoulder": "Spine1", "RightShoulder": "Spine1"} | {
    "LeftFingerBase": "LeftHand",
    "RightFingerBase": "RightHand",
}
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
    return replace(source, rig=replace(source.rig, offsets=offsets), translations=translations)


def _without_t_pose(source: RigMotion) -> RigMotion:
    """Drop frame 0 where it is the artificial T-pose: a hip turned by exactly nothing, which no recording holds."""
    still = [bool((source.rotations[k, 0] == np.eye(3)).all()) for k in range(min(2, len(source)))]
    if still != [True, False]:
        return source
    return replace(source, translations=source.translations[1:], rotations=source.rotations[1:])


def _true_rate(source: RigMotion) -> RigMotion:
    info = clip_table().get(source.name)
    if info is None or source.fps != HEADER_FPS or len(source) != info.frames:
        return source
    return replace(source, fps=info.fps)
