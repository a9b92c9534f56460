"""The last half minute as files, in memory."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dropsim.apps.viewer.shot import Recording
from dropsim.physics.contact import Plane
from dropsim.scene.files import write_scene

if TYPE_CHECKING:
    from dropsim.render.stage import SolidPath

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

        if kind == "glb":
            write(recording.motions, path, ground=_ground(recording), seed=recording.setup.seed)
            return [(path.name, path.read_bytes())]
        found = []
        for number, motion in enumerate(recording.motions, start=1):
            one = path if len(recording.motions) == 1 else path.with_stem(f"dropsim_person_{number}")
            write(motion, one, seed=None if kind == "bvh" else recording.setup.seed)
            found.append((one.name, one.read_bytes()))
        return found


def _ground(recording: Recording) -> Plane:
    return Plane.stacked([shot.ground for shot in recording.shots])


def _write_film(recording: Recording, path: Path) -> None:
    from dropsim.render import Sphere, Stage, Style, video

    shots = recording.shots
    paths: dict[int, np.ndarray] = {}
    radii: dict[int, float] = {}
    for i, shot in enumerate(shots):
        for sphere in shot.spheres:
            where = paths.setdefault(sphere.key, np.full((len(shots), 3), np.nan))
            where[i], radii[sphere.key] = sphere.centre, sphere.radius
    spheres = [Sphere(where, radii[key]) for key, where in paths.items()]
    people = [replace(motion, name=f"person {i}") for i, motion in enumerate(recording.motions, start=1)]
    stage = Stage(people, recording.ghost, spheres, _ground(recording), solids=_solids(recording))
    video(stage, path, style=Style(size=(848, 480)))


def _solids(recording: Recording) -> "list[SolidPath]":
    """Return every solid object on its path."""
    from dropsim.render.stage import COLORS, GREY, SolidPath

    shots, found = recording.shots, []
    for key, solid in {key: solid for shot in shots for key, solid in shot.solids.items()}.items():
        centres, turns = np.full((len(shots), 3), np.nan), np.tile(np.eye(3), (len(shots), 1, 1))
        for i, shot in enumerate(shots):
            if key in shot.solids:
                centres[i], turns[i] = shot.solids[key].centre, shot.solids[key].rotation
        found.append(SolidPath(solid.vertices, solid.faces, centres, turns, COLORS.get(solid.name, GREY)))
    return found
