"""Motions written by the file's ending."""

from collections.abc import Sequence
from pathlib import Path

from dropsim.body.mesh import Body
from dropsim.export.csv import write_csv
from dropsim.export.glb import write_glb
from dropsim.export.html import write_html
from dropsim.export.people import Exported, single
from dropsim.export.usd import write_usd
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
    if ending == ".bvh":
        write_bvh(single(motions, path), path, up="y" if up is None else up, unit=1.0 if unit is None else unit)
        return
    if up is not None or unit is not None:
        raise ValueError(f"{path}: only a BVH file's axes and unit can be chosen: leave out up and unit")
    if ending == ".npz":
        write_amass(single(motions, path), path, seed=seed)
    elif ending == ".csv":
        write_csv(single(motions, path), path, seed=seed)
    else:
        writer = {".html": write_html, ".glb": write_glb}.get(ending, write_usd)
        writer(Exported.of(motions, path, ground=ground, objects=objects, body=body, seed=seed), path)
