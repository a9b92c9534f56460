"""Motion files by their ending."""

from pathlib import Path

from dropsim.body.skeleton import Skeleton
from dropsim.motion.amass import read_amass
from dropsim.motion.bvh import RigMotion, read_bvh
from dropsim.motion.motion import Motion
from dropsim.motion.retarget import Recording, RigMap, retarget

ENDINGS = {".bvh": "BVH", ".npz": "AMASS"}
"""The formats that are read, by the file's ending."""


def motion_ending(path: str | Path) -> str:
    """Return a motion file's ending in lower case, or raise with those that are known."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        known = " or ".join(f"{known} ({name})" for known, name in ENDINGS.items())
        raise ValueError(f"{path}: a motion file ends in {known}, not in {ending!r}")
    return ending


def read_recording(
    path: str | Path, skeleton: Skeleton | None, *, up: str | None = None, unit: float | None = None, rig_map: RigMap | None = None
) -> Recording:
    """Read a motion onto a skeleton, or onto one with the rig's own proportions where None is given, and say how it was understood.

    `up`, `unit` [m] and `rig_map` say what a BVH file leaves open; AMASS's are fixed.
    """
    if motion_ending(path) == ".npz":
        if given := [name for name, value in (("up", up), ("unit", unit), ("map", rig_map)) if value is not None]:
            raise ValueError(f"{path}: an AMASS file is z up and in metres, on SMPL's joints: leave out {' and '.join(given)}")
        return Recording(read_amass(path, skeleton or Skeleton.adult()), "SMPL", "z", "AMASS's layout")
    source = read_bvh(path)
    try:
        return retarget(source, skeleton, rig_map=rig_map, up=up, unit=unit)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_rig_motion(path: str | Path) -> RigMotion:
    """Read a file's motion on its own rig."""
    if motion_ending(path) == ".npz":
        raise ValueError(f"{path}: an AMASS file has SMPL's joints, and no rig of its own")
    return read_bvh(path)


def read_motion(
    path: str | Path, skeleton: Skeleton | None, *, up: str | None = None, unit: float | None = None, rig_map: RigMap | None = None
) -> Motion:
    """Read a motion onto a skeleton; read_recording also says how the file was understood."""
    return read_recording(path, skeleton, up=up, unit=unit, rig_map=rig_map).motion
