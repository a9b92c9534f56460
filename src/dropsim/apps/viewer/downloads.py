"""The last half minute as files, in memory."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from dropsim.apps.viewer.session import Recording
from dropsim.physics.contact import Plane
from dropsim.scene import Solid
from dropsim.scene.files import write_scene

KINDS = ("bvh", "glb", "npz", "mp4", "toml")
"""File formats that can be saved."""


def files_of(recording: Recording, kind: str) -> list[tuple[str, bytes]]:
    """Return names and contents: one file for everybody, or one per person if the format holds only one."""
    if kind not in KINDS:
        raise ValueError(f"there are no {kind!r} files to save: use one of {', '.join(KINDS)}")
    if len(recording.shots) < 2:
        raise ValueError("there is nothing to save yet: let it run for a moment")
    from dropsim.export import write
    from dropsim.export.objects import write_objects

    seed, motions, paths = recording.setup.seed, recording.motions, list[Path]()
    with tempfile.TemporaryDirectory(prefix="dropsim-") as folder:
        path = Path(folder) / f"dropsim.{kind}"
        if kind == "mp4":
            _write_film(recording, path)
        elif kind == "toml":
            write_scene(recording.setup, path)
        elif kind == "glb":
            write(motions, path, ground=_ground(recording), seed=seed, objects=objects_of(recording))
        else:
            for number, motion in enumerate(motions, start=1):
                paths.append(path if len(motions) == 1 else path.with_stem(f"dropsim_person_{number}"))
                write(motion, paths[-1], seed=None if kind == "bvh" else seed)
        if kind == "npz" and any(shot.solids for shot in recording.shots):
            paths.append(path.with_stem("dropsim_objects"))
            write_objects(objects_of(recording), paths[-1], motions[0].fps)
        return [(one.name, one.read_bytes()) for one in paths or [path]]


def _ground(recording: Recording) -> Plane:
    return Plane.stacked([shot.ground for shot in recording.shots])


def _write_film(recording: Recording, path: Path) -> None:
    from dropsim.render import Stage, Style, video

    people = [replace(motion, name=f"person {i}") for i, motion in enumerate(recording.motions, start=1)]
    stage = Stage(people, recording.ghost, objects_of(recording), _ground(recording))
    video(stage, path, style=Style(size=(848, 480)))


def objects_of(recording: Recording) -> list[Solid]:
    """Return every solid object, ball and obstacle on its path."""
    frames = [{**shot.solids, **shot.spheres} for shot in recording.shots]
    objects = []
    for key, solid in {key: solid for frame in frames for key, solid in frame.items()}.items():
        centres, turns = np.full((len(frames), 3), np.nan), np.tile(np.eye(3), (len(frames), 1, 1))
        for i, frame in enumerate(frames):
            if key in frame:
                centres[i], turns[i] = frame[key].centre, frame[key].rotation
        objects.append(replace(solid, centre=centres, rotation=turns))
    return objects
