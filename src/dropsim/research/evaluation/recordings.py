"""Recordings of runs and jumps, and the root wrench that even they have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from dropsim.motion.clips import category_of_name, index_of, read_clip, read_on_floor
from dropsim.motion.motion import Motion
from dropsim.motion.reading import ENDINGS
from dropsim.physics import metrics

KINDS = ("run", "jump")
CLIPS, FRAMES = 12, 300
"""Number of recordings of each kind, spread over all that there are, and their length at most [frames]."""
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Recorded:
    """Root wrench of a recording in every frame but the first and the last, force and moment as one [body weights]."""

    name: str
    kind: str
    points: np.ndarray
    """Wrench with masses at the joints."""
    cylinders: np.ndarray
    """Wrench with solid bones."""

    @property
    def likeness(self) -> float:
        """Correlation of the two curves; NaN if one does not change."""
        changes = min(self.points.std(), self.cylinders.std()) > 0
        return float(np.corrcoef(self.points, self.cylinders)[0, 1]) if changes else float("nan")


def measure_recordings(folder: Path) -> list[Recorded]:
    """Measure runs and jumps of a built data set, or of a folder of BVH or AMASS files named by what they show."""
    recorded = list[Recorded]()
    for kind in KINDS:
        for name, motion in recorded_motions(folder, kind):
            start = max(0, (len(motion) - FRAMES) // 2)  # people may wait at the ends
            middle = motion.slice(start, start + FRAMES)
            wrenches = [metrics.root_wrench(middle, cylinders=solid)[1:-1] for solid in (False, True)]
            recorded.append(Recorded(name, kind, *(np.linalg.norm(wrench, axis=-1) for wrench in wrenches)))
    if not recorded:
        where = "by the index of the data set or by the names of its files"
        raise ValueError(f"{folder}: holds no running or jumping, {where}")
    return recorded


def recorded_motions(folder: Path, kind: str) -> Iterator[tuple[str, Motion]]:
    """Yield a few recordings of a kind with their names."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder of recordings")
    if (folder / "index.json").exists():
        for clip in spread([clip for clip in index_of(folder) if clip.category == kind]):
            yield clip.name, read_clip(folder, clip)
        return
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in ENDINGS]
    for path in spread([path for path in files if category_of_name(path.stem) == kind]):
        yield path.stem, read_on_floor(path)


def spread(items: Sequence[Item]) -> list[Item]:
    """Take a few evenly out of many."""
    count = min(CLIPS, len(items))
    return [items[i * len(items) // count] for i in range(count)]
