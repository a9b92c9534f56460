"""Motion files by their ending."""

from pathlib import Path

from dropsim.body.skeleton import Skeleton
from dropsim.motion.amass import read_amass
from dropsim.motion.bvh import read_bvh
from dropsim.motion.motion import Motion
from dropsim.motion.retarget import RigMap, retarget

ENDINGS = {".bvh": "BVH", ".npz": "AMASS"}
"""The formats that are read, by the file's ending."""


def motion_ending(path: Path) -> str:
    """Return a motion file's ending in lower case, or raise with those that are known."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = " or ".join(f"{known} ({name})" for known, name in ENDINGS.items())
        raise ValueError(f"{path}: a motion file ends in {known}, not in {ending!r}")
    return ending


def read_motion(
    path: Path, skeleton: Skeleton, *, up: str | None = None, unit: float | None = None, rig_map: RigMap | None = None
) -> Motion:
    """Read a motion onto a skeleton. `up`, `unit` [m] and `rig_map` say what a BVH file leaves open; AMASS's are fixed."""
    if motion_ending(path) == ".npz":
        _refuse_bvh_options(path, up=up, unit=unit, map=rig_map)
        return read_amass(path, skeleton)
    take = read_bvh(path)
    try:
        return retarget(take, skeleton, rig_map=rig_map, up=up, unit=unit)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _refuse_bvh_options(path: Path, **options: object) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(f"{path}: an AMASS file is z up and in metres, on SMPL's joints: leave out {' and '.join(given)}")
