"""AMASS npz: a person's frames as SMPL parameters, which most of the field's tools read."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.files.atomic import atomic_path
from dropsim.files.npz import read_npz, real_numbers, require
from dropsim.motion.motion import Event, Motion

Arrays = dict[str, np.ndarray]

POSE_WIDTHS = {66: "body only", 72: "SMPL", 156: "SMPL+H", 165: "SMPL-X"}
"""Numbers a frame in `poses`; the first 66 are the root's and the 21 body joints' rotation vectors in all of them."""
RATES = ("mocap_framerate", "mocap_frame_rate")
"""Both spellings of the frame rate that AMASS has used."""
MAX_RATE = 10_000.0
"""Highest frame rate [Hz]."""
MAX_VALUE = 1e6
"""Largest number [rad or m]."""
MAX_EXTRA = 1e12
"""Largest force or energy [N or 1]."""

MAX_BETAS = 400
_EXTRAS: Mapping[str, tuple[int, ...]] = {
    "joints": (NUM_JOINTS, 3),
    "contacts": (NUM_JOINTS,),
    "contact_forces": (NUM_JOINTS, 3),
    "external_forces": (NUM_JOINTS, 3),
    "root_wrench": (2,),
}
"""Keys that we add to AMASS's, with the shape of one frame."""
_ENERGY = "energy_"
_REST = "rest_joints"
"""The skeleton's rest joints; the mark of a file that we wrote, since other tools have keys named joints and contacts
too."""
_NEEDED = {"poses", "root_orient", "pose_body", "trans", *RATES, *_EXTRAS, _REST, "event_names", "event_times"}


def read_amass(path: str | Path, skeleton: Skeleton) -> Motion:
    """Read an AMASS file of the SMPL, SMPL+H or SMPL-X layout onto a skeleton; hands, face and body shape are left out.

    The pelvis is trans + skeleton.rest[0]. From our own files, contacts, forces, energies and events come back too, and
    the joints that a simulator solved where the skeleton is the one that was written.
    """
    path = Path(path)
    arrays = read_npz(path, lambda name: name in _NEEDED or name.startswith(_ENERGY))
    fps = _frame_rate(path, arrays)
    rotvecs = _body_pose(path, arrays)
    trans = real_numbers(path, "trans", require(path, arrays, "trans"), (len(rotvecs), 3), limit=MAX_VALUE)
    q = rotvec_to_rotmat(rotvecs.reshape(-1, NUM_JOINTS, 3))
    motion = Motion.from_rotations(skeleton, fps, trans + skeleton.rest[0], q, name=path.stem)
    return _with_extras(path, arrays, motion) if _REST in arrays else motion


def read_betas(path: str | Path) -> Float[np.ndarray, "k"]:
    """Return the shape of an AMASS file's person."""
    path = Path(path)
    betas = require(path, read_npz(path, lambda name: name == "betas"), "betas").reshape(-1)
    return real_numbers(path, "betas", betas[:MAX_BETAS], limit=100.0)


def _frame_rate(path: Path, arrays: Arrays) -> float:
    name = next((rate for rate in RATES if rate in arrays), None)
    if name is None:
        raise ValueError(f"{path}: has no frame rate: add an array {RATES[0]!r} with the frames per second")
    values = real_numbers(path, name, arrays[name], limit=MAX_RATE)
    if values.size != 1 or values.item() <= 0:
        raise ValueError(f"{path}: {name!r} should be one positive number of frames per second")
    return float(values.item())


def _body_pose(path: Path, arrays: Arrays) -> Float[np.ndarray, "t 66"]:
    """Return the rotation vectors of the 22 joints, from `poses` or from the newer files' separate arrays."""
    if "poses" not in arrays and "root_orient" in arrays and "pose_body" in arrays:
        root = real_numbers(path, "root_orient", arrays["root_orient"], (None, 3), limit=MAX_VALUE)
        body = real_numbers(path, "pose_body", arrays["pose_body"], (len(root), 63), limit=MAX_VALUE)
        return np.concatenate((root, body), axis=1)
    poses = require(path, arrays, "poses", hint=" (nor 'root_orient' and 'pose_body')")
    if poses.ndim != 2 or poses.shape[1] not in POSE_WIDTHS:
        known = ", ".join(f"{width} ({layout})" for width, layout in POSE_WIDTHS.items())
        raise ValueError(f"{path}: 'poses' has shape {poses.shape}: expected frames of {known} numbers")
    return real_numbers(path, "poses", poses[:, :66], (None, 66), limit=MAX_VALUE)


def _with_extras(path: Path, arrays: Arrays, motion: Motion) -> Motion:
    """Return the motion with what our own writer added."""

    def extra(name: str, frame: tuple[int, ...]) -> np.ndarray:
        return real_numbers(path, name, arrays[name], (len(motion), *frame), limit=MAX_EXTRA)

    extras: dict[str, Any] = {name: extra(name, frame) for name, frame in _EXTRAS.items() if name in arrays}
    if "contacts" in extras:
        extras["touching"] = extras.pop("contacts") != 0
    if "root_wrench" in extras:
        extras["wrench_before"], extras["wrench_after"] = np.moveaxis(extras.pop("root_wrench"), -1, 0)
    rest = real_numbers(path, _REST, arrays[_REST], (NUM_JOINTS, 3), limit=MAX_VALUE)
    if not np.allclose(rest, motion.skeleton.rest, rtol=0, atol=1e-5):
        # On other bones the joints are those of the rotations.
        extras.pop("joints", None)
    extras["energies"] = {name.removeprefix(_ENERGY): extra(name, ()) for name in arrays if name.startswith(_ENERGY)}
    return replace(motion, **extras, events=_events(path, arrays))


def _events(path: Path, arrays: Arrays) -> tuple[Event, ...]:
    if "event_names" not in arrays:
        return ()
    names = arrays["event_names"]
    times = real_numbers(path, "event_times", require(path, arrays, "event_times"), limit=MAX_VALUE)
    if names.dtype.kind != "U" or names.ndim != 1 or times.shape != (len(names), 2):
        raise ValueError(f"{path}: 'event_names' should be text, with a start and a duration each in 'event_times'")
    return tuple(Event(str(name), *map(float, time)) for name, time in zip(names, times, strict=True))


def write_amass(motion: Motion, path: str | Path, *, seed: int | None = None) -> None:
    """Write one person as AMASS npz in the SMPL+H layout, hands flat and betas zero, with the extras under other keys.

    Read back onto the same skeleton, a motion returns to 1e-9 m and rad. `seed` records what a simulation started from.
    """
    path = Path(path)
    if motion.root.ndim != 2:
        people = motion.root.shape[:-2]
        raise ValueError(f"an AMASS file holds one person, and this motion has {people}: write them one by one")
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise ValueError(f"the seed {seed} does not fit into 64 bits")

    frames = {"joints": motion.joints, "contacts": motion.touching, "contact_forces": motion.contact_forces}
    frames["external_forces"] = motion.external_forces
    frames |= {f"{_ENERGY}{name}": value for name, value in motion.energies.items()}
    if motion.wrench_before is not None and motion.wrench_after is not None:
        frames["root_wrench"] = np.stack((motion.wrench_before, motion.wrench_after), axis=-1)
    frames = {name: values for name, values in frames.items() if values is not None}
    if not all(np.isfinite(values).all() for values in (motion.root, motion.q, *frames.values())):
        raise ValueError(f"{path}: the motion holds values that are not finite, so it was not written")
    poses = np.zeros((len(motion), 156))
    poses[:, :66] = rotmat_to_rotvec(motion.q).reshape(len(motion), 66)
    arrays = {
        "poses": poses,
        "trans": motion.root - motion.skeleton.rest[0],
        "betas": np.zeros(16),
        "gender": np.array("neutral"),
        "mocap_framerate": np.array(float(motion.fps)),
        _REST: motion.skeleton.rest,
        **frames,
    }
    if motion.events:
        arrays["event_names"] = np.array([event.name for event in motion.events])
        arrays["event_times"] = np.array([(event.start, event.duration) for event in motion.events])
    if seed is not None:
        arrays["seed"] = np.array(seed, dtype=np.int64)
    # An open file, because numpy adds its ending to a name that lacks it.
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
