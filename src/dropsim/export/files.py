"""Motions written by the file's ending."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dropsim.body.mesh import Body
from dropsim.export.csv import write_csv
from dropsim.export.glb import write_glb
from dropsim.export.html import write_html
from dropsim.export.stage import Stage
from dropsim.export.usd import write_usd
from dropsim.files.atomic import errors_of
from dropsim.motion.amass import write_amass
from dropsim.motion.bvh import write_bvh
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.scene.element import Solid

ENDINGS = {
    ".bvh": "BVH",
    ".npz": "AMASS",
    ".glb": "glTF",
    ".csv": "a table",
    ".html": "a page that plays it",
    ".usd": "USD",
    ".usda": "USD as text",
    ".usdc": "USD in binary",
}
"""The formats that are written, by the file's ending."""


def export_ending(path: str | Path) -> str:
    """Return a file's ending in lower case, or raise with those that can be written."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(f"{known} ({name})" for known, name in ENDINGS.items())
        raise ValueError(f"{path}: cannot write a motion to a file that ends in {ending!r}: use one of {known}")
    return ending


def write(
    motions: Motion | Sequence[Motion],
    path: str | Path,
    *,
    body: Body | None = None,
    ground: Plane | None = None,
    seed: int | None = None,
    up: str | None = None,
    unit: float | None = None,
    objects: Sequence[Solid] = (),
) -> None:
    """Write a motion, or several people at one rate into a GLB, HTML or USD file; whole or not at all.

    GLB, HTML and USD carry a skinned body, the shipped one unless given, fitted to each person's bones; its hands are
    bent out of the ground, a Rollout's or else the level floor. The other formats carry the simulator's own joints and
    rotations. `seed` records what a simulation started from. `objects` are a Rollout's, and go into GLB and USD, where
    they are hidden while their centres are NaN. `up` and `unit` [m] are a BVH file's, y up and metres by default; the
    other formats' are fixed.
    """
    path, ending = Path(path), export_ending(path)
    people, lone = (motions,) if isinstance(motions, Motion) else tuple(motions), ending in (".bvh", ".npz", ".csv")
    with errors_of(path):
        if ending != ".bvh" and not (up is None and unit is None):
            raise ValueError("only a BVH file's axes and unit can be chosen: leave out up and unit")
        stage = Stage(
            people, objects=() if lone else objects, ground=Plane.ground() if lone or ground is None else ground
        )
        if lone and len(people) > 1:
            raise ValueError(f"a {ending} file holds one person, not {len(people)}: write them one by one")
        for solid in stage.objects:
            lasting = solid.at_all_times()
            if not (solid.there.any() and np.isfinite(lasting.centre).all() and np.isfinite(lasting.rotation).all()):
                raise ValueError(f"the {solid.name} has places that are not finite, so nothing was written")
    if ending == ".bvh":
        write_bvh(stage.people[0], path, up="y" if up is None else up, unit=1.0 if unit is None else unit)
    elif lone:
        (write_amass if ending == ".npz" else write_csv)(stage.people[0], path, seed=seed)
    else:
        {".html": write_html, ".glb": write_glb}.get(ending, write_usd)(stage, path, body=body, seed=seed)
