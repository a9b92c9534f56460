"""`dropsim data build`: recordings to training data."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Data:
    """Turn a folder of BVH or AMASS files into training data at 30 Hz.

    Example: dropsim data build CMU_BVH DATA --held-out 05,12. Floors are aligned, contacts labelled, bad frames masked,
    and the data split by person. CMU's people 02, 08, 09, 27, 47, 76, 82, 118 and 138 are always held out: priors are
    judged by them.
    """

    action: tyro.conf.Positional[Literal["build"]]
    """Action; `build` is all there is."""
    source: tyro.conf.Positional[Path]
    """Folder of .bvh or .npz files."""
    out: tyro.conf.Positional[Path]
    """Folder of the data set."""
    held_out: str = ""
    """More people to keep out of training, by the part of the file name before the first underscore, separated by
    commas."""
    workers: int = os.cpu_count() or 1
    """Processes."""

    def run(self) -> None:
        """Build, and print the report's first part."""
        from dropsim.apps.cli.progress import bar
        from dropsim.motion.clips import build, report

        if not self.source.is_dir():
            raise ValueError(f"{self.source} is not a folder")
        with bar("clips") as advance:
            people = filter(None, self.held_out.split(","))
            clips = build(self.source, self.out, held_out=people, workers=self.workers, progress=advance)
        print(report(clips).partition("\n## Files")[0])
        print(f"wrote {self.out / 'report.md'}")
