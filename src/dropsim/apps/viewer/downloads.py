"""The last half minute as files, in memory."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from dropsim.apps.viewer.shot import Recording
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
    with tempfile.TemporaryDirectory(prefix="dropsim-") as folder:
        path = Path(folder) / f"dropsim.{kind}"
        if kind in ("mp4", "toml"):
            _write_film(recording, path) if kind == "mp4" else write_scene(recording.setup, path)
            return [(path.name, path.read_bytes())]
        from dropsim.export import write
        from dropsim.export.objects import write_objects

        seed, solids, found = recording.setup.seed, _solids(recording), list[Path]()
        if kind == "glb":
            write(recording.motions, path, ground=_ground(recording), seed=seed, objects=[*solids, *_balls(recording)])
            return [(path.name, path.read_bytes())]
        for number, motion in enumerate(recording.motions, start=1):
            found.append(path if len(recording.motions) == 1 else path.with_stem(f"dropsim_person_{number}"))
            write(motion, found[-1], seed=None if kind == "bvh" else seed)
        if kind == "npz" and solids:
            found.append(path.with_stem("dropsim_objects"))
            write_objects([*solids, *_balls(recording)], found[-1], recording.motions[0].fps)
        return [(one.name, one.read_bytes()) for one in found]


def _ground(recording: Recording) -> Plane:
    return Plane.stacked([shot.ground for shot in recording.shots])


def _write_film(recording: Recording, path: Path) -> None:
    from dropsim.render import Stage, Style, video

    people = [replace(motion, name=f"person {i}") for i, motion in enumerate(recording.motions, start=1)]
    objects = [*_solids(recording), *_balls(recording)]
    video(Stage(people, recording.ghost, objects, _ground(recording)), path, style=Style(size=(848, 480)))


def _balls(recording: Recording) -> list[Solid]:
    """Return every ball and obstacle on its path."""
    frames = [{sphere.key: sphere for sphere in shot.spheres} for shot in recording.shots]
    gone = (math.nan,) * 3
    return [
        Solid.sphere(
            sphere.radius,
            np.array([frame[key].centre if key in frame else gone for frame in frames]),
            name="ball" if sphere.flying else "obstacle",
        )
        for key, sphere in {key: sphere for frame in frames for key, sphere in frame.items()}.items()
    ]


def _solids(recording: Recording) -> list[Solid]:
    """Return every solid object on its path."""
    frames = [shot.solids for shot in recording.shots]
    found = []
    for key, solid in {key: solid for frame in frames for key, solid in frame.items()}.items():
        centres, turns = np.full((len(frames), 3), np.nan), np.tile(np.eye(3), (len(frames), 1, 1))
        for i, frame in enumerate(frames):
            if key in frame:
                centres[i], turns[i] = frame[key].centre, frame[key].rotation
        found.append(replace(solid, centre=centres, rotation=turns))
    return found
