"""Motion files by their ending."""

# pyright: reportArgumentType=false

from dataclasses import dataclass, replace
from pathlib import Path

from dropsim.body.skeleton import Skeleton
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
"""Formats of animations that are not read, and that other programs turn into one that is."""

SMALLEST, TALLEST = 0.3, 3.0
"""[m]"""
LIGHTEST, HEAVIEST = 1.0, 1000.0
"""[kg]"""


def motion_ending(path: str | Path) -> str:
    """Return a motion file's ending in lower case, or raise with those that are known."""
    ending = Path(path).suffix.lower()
    if ending not in ALL_ENDINGS:
        known = " or ".join(f"{known} ({name})" for known, name in ALL_ENDINGS.items())
        hint = ": export the animation from Blender as GLB or BVH" if ending in OTHER_ANIMATIONS else ""
        raise ValueError(f"{path}: a motion file ends in {known}, not in {ending!r}{hint}")
    return ending


def read_recording(
    path: str | Path,
    skeleton: Skeleton | None,
    *,
    up: str | None = None,
    unit: float | None = None,
    rig_map: RigMap | None = None,
    animation: str | None = None,
) -> Recording:
    """Read a motion onto a skeleton, or onto one with the rig's own proportions where None is given, and say how it was understood.

    `up`, `unit` [m] and `rig_map` say what a BVH file leaves open; AMASS's are fixed.
    """
    if motion_ending(path) == ".npz":
        options = (("up", up), ("unit", unit), ("map", rig_map), ("animation", animation))
        if given := [name for name, value in options if value is not None]:
            raise ValueError(
                f"{path}: an AMASS file is z up and in metres, on SMPL's joints: leave out {' and '.join(given)}"
            )
        return Recording(read_amass(path, skeleton or Skeleton.adult()), "SMPL", "z", "AMASS's layout")
    source = read_rig_motion(path, animation=animation)
    try:
        return retarget(source, skeleton, rig_map=rig_map, up=up, unit=unit)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Person:
    """What is known of a recording's person beyond the file."""

    height: float | None = None
    """[m]; by the rig's bones and unit unless given."""
    mass: float | None = None
    """[kg]; at a usual build unless given."""
    smpl: Path | None = None
    """An SMPL model file, for the shape that an AMASS file has as betas."""


def read_person(
    path: str | Path,
    person: Person = Person(),  # noqa: B008 - frozen
    *,
    up: str | None = None,
    unit: float | None = None,
    rig_map: RigMap | None = None,
    animation: str | None = None,
) -> Recording:
    """Read a motion onto the body of its own person: the rig's proportions, or those of betas, or an adult's of a height."""
    if person.height is not None and not SMALLEST <= person.height <= TALLEST:
        raise ValueError(f"a person of {person.height:g} m: give {SMALLEST:g} to {TALLEST:g} m")
    if person.mass is not None and not LIGHTEST <= person.mass <= HEAVIEST:
        raise ValueError(f"a person of {person.mass:g} kg: give {LIGHTEST:g} to {HEAVIEST:g} kg")
    if person.smpl is not None and motion_ending(path) != ".npz":
        raise ValueError(f"{path}: an SMPL model is for AMASS files, which have betas: leave it out")
    skeleton = None
    if motion_ending(path) == ".npz":
        shaped = person.smpl is not None
        skeleton = (
            Skeleton.from_smpl(person.smpl, betas=read_betas(path), body_mass=None) if shaped else Skeleton.adult()
        )
        skeleton = _of_height(skeleton, person.height)
    recording = read_recording(path, skeleton, up=up, unit=unit, rig_map=rig_map, animation=animation)
    own = recording.motion.skeleton
    if recording.fit is not None and person.height is not None:
        if unit is not None:
            raise ValueError("the height and the unit say the same: give one of them")
        recording = retarget(
            recording.fit.source, None, rig_map=rig_map, up=up, unit=recording.fit.scale * person.height / own.height
        )
        own = recording.motion.skeleton
    if person.mass is None:
        return recording
    return replace(recording, motion=replace(recording.motion, skeleton=own.with_mass(person.mass)))


def _of_height(skeleton: Skeleton, height: float | None) -> Skeleton:
    return skeleton if height is None else skeleton.with_bones(skeleton.rest * height / skeleton.height)


def read_rig_motion(path: str | Path, *, animation: str | None = None) -> RigMotion:
    """Read a file's motion on its own rig; of a GLB file the animation of a name, or the one that moves most."""
    if animation is not None and motion_ending(path) != ".glb":
        raise ValueError(f"{path}: only a GLB file has animations to choose from")
    if motion_ending(path) == ".npz":
        raise ValueError(f"{path}: an AMASS file has SMPL's joints, and no rig of its own")
    return read_glb(path, animation=animation) if motion_ending(path) == ".glb" else read_bvh(path)


def read_motion(
    path: str | Path,
    skeleton: Skeleton | None,
    *,
    up: str | None = None,
    unit: float | None = None,
    rig_map: RigMap | None = None,
) -> Motion:
    """Read a motion onto a skeleton; read_recording also says how the file was understood."""
    return read_recording(path, skeleton, up=up, unit=unit, rig_map=rig_map).motion
