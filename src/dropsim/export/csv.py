"""CSV: one row a frame, for spreadsheets and for people without Python."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import JOINTS
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Event, Motion

Column = tuple[str, str, np.ndarray]
"""Header with the unit, format, and a value for each frame."""


def write_csv(motion: Motion, path: Path, *, seed: int | None = None) -> None:
    """Write one person as a table whose first line names the columns and their units: world z up, metres, newtons.

    Columns for what the motion does not have are left out. Events are columns of 0 and 1; the seed stands in every row.
    """
    columns = list(_columns(motion, seed))
    if bad := next((header for header, _, values in columns if not np.isfinite(values).all()), None):
        raise ValueError(f"{path}: {bad!r} holds values that are not finite, so it was not written")
    rows = zip(*(values.tolist() for _, _, values in columns), strict=True)
    formats = [form for _, form, _ in columns]
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header for header, _, _ in columns)
        writer.writerows([form % value for form, value in zip(formats, row, strict=True)] for row in rows)


def _columns(motion: Motion, seed: int | None) -> Iterator[Column]:
    frames = np.arange(len(motion))
    yield "time [s]", "%.6f", frames / motion.fps
    yield "frame", "%d", frames
    yield from _vectors("{joint} {axis} [m]", "%.6f", motion.joints)
    if motion.touching is not None:
        for j, joint in enumerate(JOINTS):
            yield f"{joint} contact [0 or 1]", "%d", motion.touching[:, j].astype(int)
    if motion.contact_forces is not None:
        yield from _vectors("{joint} contact force {axis} [N]", "%.4f", motion.contact_forces)
    if motion.external_forces is not None:
        yield from _vectors("{joint} external force {axis} [N]", "%.4f", motion.external_forces)
    for name, values in sorted(motion.energies.items()):
        yield f"energy {name} [m^2]", "%.9g", values
    for when, wrench in (("before", motion.wrench_before), ("after", motion.wrench_after)):
        if wrench is not None:
            yield f"root wrench {when} correction [body weights]", "%.6f", wrench
    for name in dict.fromkeys(event.name for event in motion.events):
        yield f"event {name} [0 or 1]", "%d", _active([event for event in motion.events if event.name == name], motion)
    if seed is not None:
        yield "seed", "%d", np.full(len(motion), seed, dtype=np.int64)


def _vectors(header: str, form: str, values: Float[np.ndarray, "t 22 3"]) -> Iterator[Column]:
    for j, joint in enumerate(JOINTS):
        for i, axis in enumerate("xyz"):
            yield header.format(joint=joint, axis=axis), form, values[:, j, i]


def _active(events: list[Event], motion: Motion) -> np.ndarray:
    """Return for each frame whether one of the events is going on; the shortest lasts one frame."""
    active = np.zeros(len(motion), dtype=int)
    for event in events:
        # Rounded, because 123 / 30 * 30 < 123 in floating point.
        first, last = (round(at * motion.fps, 6) for at in (event.start, event.start + event.duration))
        start = int(np.ceil(first))
        active[max(start, 0) : max(int(np.ceil(last)), start + 1, 0)] = 1
    return active
