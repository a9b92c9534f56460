"""`dropsim bank` and `dropsim data`: recordings to a bank for the motion field, or to training data."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import RigMapFile, optional, read_map

FEW_SECONDS = 60.0
"""Duration of recordings below which a bank is too small to move by [s]."""


@dataclass(frozen=True)
class BankCommand:
    """Make a bank of recordings that people move by, or say what is in one.

    Examples: dropsim bank build MY_BVH --out mine.bank, then dropsim run push --prior mine.bank; dropsim bank info
    mine.bank. Every BVH or AMASS file of a rig that dropsim reads is resampled to 30 Hz, put on our body and on the
    floor, labelled and tagged; bad frames are left out. An interrupted build goes on where it was.
    """

    action: tyro.conf.Positional[Literal["build", "info"]]
    """Build a bank, or print the contents of some."""
    sources: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of .bvh or .npz files; for info, banks."""
    out: Path = Path("recordings.bank")
    """File that build writes."""
    minutes: Annotated[float | None, optional("M", "all")] = None
    """Choose at most so many minutes, for coverage and against redundancy."""
    rig: RigMapFile = None
    """File that maps the joints of the BVH files to ours, as `dropsim rig` writes it."""
    workers: int = os.cpu_count() or 1
    """Processes."""

    def run(self) -> None:
        """Build a bank, or print what is in some."""
        if not self.sources:
            raise ValueError(f"name at least one {'bank' if self.action == 'info' else 'folder of recordings'}")
        if self.action == "build":
            return self._build()
        from dropsim.priors.bank import Bank
        from dropsim.priors.recordings import card_of

        for path in self.sources:
            print(f"{path}: {card_of(Bank.open(path))}")
        return None

    def _build(self) -> None:
        from dropsim.apps.cli.progress import bar
        from dropsim.motion.clips import report
        from dropsim.priors.recordings import build_bank, card_of, choose, postures

        if self.minutes is not None and not 0 < self.minutes <= 1e6:
            raise ValueError(f"minutes has to be above 0, not {self.minutes:g}")
        rig_map = read_map(self.rig)
        with bar("recordings") as advance:
            bank, entries = build_bank(self.sources, self.out, rig_map=rig_map, workers=self.workers, progress=advance)
        if self.minutes is not None:
            bank = choose(bank, minutes=self.minutes)
            bank.write(self.out)
        if entries:
            print(report(entries).partition("\n## Files")[0])
        for entry in entries:
            if entry.left_out.startswith("unreadable"):
                print(f"{entry.name}: {entry.left_out}")
        print(card_of(bank))
        for source, posture in postures(bank).items():
            if posture.remedy:
                print(f"{source}: {posture}; {posture.remedy}")
        if len(bank) < FEW_SECONDS * bank.fps:
            few = (
                f"{len(bank) / bank.fps:.0f} s of recordings are few: people repeat them and cannot recover from pushes"
            )
            print(f"warning: {few}; give minutes of walks, turns and steps")
        size = self.out.stat().st_size
        print(f"wrote {self.out}: {size / 1e6:.1f} MB, {size / len(bank):.0f} bytes a frame")


@dataclass(frozen=True)
class Data:
    """Turn a folder of BVH or AMASS files into training data at 30 Hz.

    Example: dropsim data build CMU_BVH DATA --held-out 05,12. Floors are aligned, contacts labelled, bad frames masked,
    and the data split by person. CMU's people 02, 08, 09, 27, 47, 76, 82, 118 and 138 are always held out: priors are
    judged by them.
    """

    action: Annotated[tyro.conf.Positional[Literal["build"]], tyro.conf.arg(metavar="build")]
    """Action; `build` is all there is."""
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RECORDINGS")]
    """Folder of .bvh or .npz files."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATA")]
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
