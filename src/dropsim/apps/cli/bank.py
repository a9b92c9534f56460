"""`dropsim bank`: recordings to a bank for the motion field."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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

    action: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="build|info")]]
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
        if self.action not in ("build", "info"):
            use = "use `dropsim bank build FOLDER` or `dropsim bank info FILE`"
            raise ValueError(f"there is no `dropsim bank {self.action}`: {use}")
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
