"""The last half minute as files, in memory."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from dropsim.apps.viewer.session import Recording
from dropsim.scene.files import write_scene

KINDS = ("bvh", "glb", "npz", "mp4", "toml")
"""File formats that can be saved."""


def files_of(recording: Recording, kind: str, **film: Any) -> list[tuple[str, bytes]]:  # noqa: ANN401, as video has them
    """Return names and contents: one file for everybody, or one per person if the format holds only one.

    `film` are options of `dropsim.render.video`: the camera, and what is told of the progress.
    """
    if kind not in KINDS:
        raise ValueError(f"there are no {kind!r} files to save: use one of {', '.join(KINDS)}")
    motions, seed, name = recording.motions, recording.setup.seed, recording.setup.name
    if len(motions[0]) < 2:
        raise ValueError("there is nothing to save yet: let it run for a moment")
    from dropsim.export import write
    from dropsim.export.objects import write_objects
    from dropsim.render import Stage, Style, video

    paths = list[Path]()
    with tempfile.TemporaryDirectory(prefix="dropsim-") as folder:
        path = Path(folder) / f"{name}.{kind}"
        if kind == "mp4":
            people = [replace(motion, name=f"person {i}") for i, motion in enumerate(motions, start=1)]
            stage = Stage(people, recording.ghost, recording.objects, recording.ground)
            video(stage, path, style=Style(size=(848, 480)), **film)
        elif kind == "toml":
            write_scene(recording.setup, path)
        elif kind == "glb":
            write(motions, path, ground=recording.ground, seed=seed, objects=recording.objects)
        else:
            for number, motion in enumerate(motions, start=1):
                paths.append(path if len(motions) == 1 else path.with_stem(f"{name}_person_{number}"))
                write(motion, paths[-1], seed=None if kind == "bvh" else seed)
        if kind == "npz" and recording.solids:
            paths.append(path.with_stem(f"{name}_objects"))
            write_objects(recording.objects, paths[-1], motions[0].fps)
        return [(one.name, one.read_bytes()) for one in paths or [path]]
