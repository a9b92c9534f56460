"""Objects of a run as arrays: what they look like, and where they are at every frame."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dropsim.export.people import object_names
from dropsim.files.atomic import atomic_path
from dropsim.scene.rollout import SolidTrack


def write_objects(objects: Sequence[SolidTrack], path: Path, fps: float) -> None:
    """Write an npz archive: names, fps, and NAME/vertices, faces, centres [m] and rotations (from its own axes to the world's)."""
    arrays = {"names": np.array(object_names(objects)), "fps": np.array(fps)}
    for name, track in zip(object_names(objects), objects, strict=True):
        arrays |= {f"{name}/{part}": getattr(track, part) for part in ("vertices", "faces", "centres", "rotations")}
    # An open file, because numpy adds its ending to a name that lacks it.
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
