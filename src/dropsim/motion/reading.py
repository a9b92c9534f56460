"""Motion files by their ending."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from dropsim.body.skeleton import Skeleton
from dropsim.files.atomic import errors_of
from dropsim.motion.amass import read_amass, read_betas
from dropsim.motion.bvh import RigMotion, read_bvh
from dropsim.motion.gltf import read_glb
from dropsim.motion.motion import Motion
from dropsim.motion.retarget import Recording, RigMap, retarget

ENDINGS = {".bvh": "BVH", ".npz": "AMASS"}
"""The formats of recordings in folders, by the file's ending."""
ALL_ENDINGS = ENDINGS | {".glb": "glTF"}
"""The formats that are read: recordings, and animated characters."""
OTHER_ANIMATIONS = (".fbx", ".gltf", ".vrm", ".blend", ".dae")
"""Formats of animations that are not read; other programs convert them."""

HEIGHTS, MASSES = (0.3, 3.0), (1.0, 1000.0)
"""Least and greatest height [m] and mass [kg] of a person."""


def motion_ending(path: str | Path) -> str:
    """Return a motion file's ending in lower case, or raise with those that are known."""
    ending = Path(path).suffix.lower()
    if ending not in ALL_ENDINGS:
        known = " or ".join(f"{known} ({name})" for known, name in ALL_ENDINGS.items())
        hint = ": export the animation from Blender as GLB or BVH" if ending in OTHER_ANIMATIONS else ""
        raise ValueError(f"{path}: a motion file ends in {known}, not in {ending!r}{hint}")
    return ending


class ReadAs(TypedDict, total=False):
    """Facts about a file that it leaves open; None means that the file or its rig tells."""

    up: str | None
    """Vertical axis of a BVH file: x, y or z."""
    unit: float | None
    """Metres per unit of a BVH or GLB file."""
    rig_map: RigMap | None
    animation: str | None
    """Animation of a GLB file; the one that moves most joints unless given."""


def read_recording(path: str | Path, skeleton: Skeleton | None, **given: Unpack[ReadAs]) -> Recording:
    """Read a motion onto a skeleton, or onto one with the rig's proportions for None, and say how it was understood."""
    if motion_ending(path) == ".npz":
        if names := [name.removeprefix("rig_") for name, value in given.items() if value is not None]:
            fixed = "an AMASS file is z up and in metres, on SMPL's joints"
            raise ValueError(f"{path}: {fixed}: leave out {' and '.join(names)}")
        return Recording(read_amass(path, skeleton or Skeleton.adult()), "SMPL", "z", "AMASS's layout")
    source = read_rig_motion(path, animation=given.get("animation"))
    with errors_of(path):
        return retarget(source, skeleton, rig_map=given.get("rig_map"), up=given.get("up"), unit=given.get("unit"))


@dataclass(frozen=True)
class Person:
    """Facts about a recording's person beyond the file."""

    height: float | None = None
    """Height [m]; by the rig's bones and unit unless given."""
    mass: float | None = None
    """Mass [kg]; at a usual build unless given."""
    smpl: Path | None = None
    """SMPL model file, for the shape that an AMASS file has as betas."""


def read_person(path: str | Path, person: Person | None = None, **given: Unpack[ReadAs]) -> Recording:
    """Read a motion onto its person's body: the rig's proportions, those of betas, or an adult's of a height."""
    person = person or Person()
    for value, (low, high), name in ((person.height, HEIGHTS, "m"), (person.mass, MASSES, "kg")):
        if value is not None and not low <= value <= high:
            raise ValueError(f"a person of {value:g} {name}: give {low:g} to {high:g} {name}")
    is_amass, skeleton = motion_ending(path) == ".npz", None
    if is_amass:
        skeleton = Skeleton.adult()
        if person.smpl is not None:
            skeleton = Skeleton.from_smpl(person.smpl, betas=read_betas(path), body_mass=None)
        if person.height is not None:
            skeleton = skeleton.with_bones(skeleton.rest * person.height / skeleton.height)
    elif person.smpl is not None:
        raise ValueError(f"{path}: an SMPL model is for AMASS files, which have betas: leave it out")
    recording = read_recording(path, skeleton, **given)
    if recording.fit is not None and person.height is not None:
        if given.get("unit") is not None:
            raise ValueError("the height and the unit say the same: give one of them")
        unit = recording.fit.scale * person.height / recording.motion.skeleton.height
        recording = read_recording(path, None, **given | {"unit": unit})
    if person.mass is None:
        return recording
    heavier = recording.motion.skeleton.with_mass(person.mass)
    return replace(recording, motion=replace(recording.motion, skeleton=heavier))


def read_rig_motion(path: str | Path, *, animation: str | None = None) -> RigMotion:
    """Read a file's motion on its own rig; of a GLB file the animation of a name, or the one that moves most."""
    ending = motion_ending(path)
    if ending == ".glb":
        return read_glb(path, animation=animation)
    if animation is not None:
        raise ValueError(f"{path}: only a GLB file has animations to choose from")
    if ending == ".npz":
        raise ValueError(f"{path}: an AMASS file has SMPL's joints, and no rig of its own")
    return read_bvh(path)


def read_motion(path: str | Path, skeleton: Skeleton | None, **given: Unpack[ReadAs]) -> Motion:
    """Read a motion onto a skeleton; read_recording also says how the file was understood."""
    return read_recording(path, skeleton, **given).motion
