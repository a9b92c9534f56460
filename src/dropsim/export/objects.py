"""Objects of a run as arrays: their triangles, and their poses at every frame."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dropsim.export.people import object_names
from dropsim.files.atomic import atomic_path
from dropsim.scene.element import Solid


def write_objects(objects: Sequence[Solid], path: Path, fps: float) -> None:
    """Write an npz archive: names, fps, and NAME/vertices, faces, centres [m] and rotations to the world's axes."""
    arrays = {"names": np.array(object_names(objects)), "fps": np.array(fps)}
    for name, solid in zip(object_names(objects), objects, strict=True):
        arrays |= {f"{name}/vertices": solid.vertices, f"{name}/faces": solid.faces}
        arrays |= {f"{name}/centres": solid.centre, f"{name}/rotations": solid.rotation}
    # An open file, because numpy adds its ending to a name that lacks it.
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
