"""The first thing to try after installing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dropsim.apps.cli.arguments import THE_SCENES, optional


@dataclass(frozen=True)
class Demo:
    """Push a walking person, and write the motion, a report and a strip of pictures.

    Example: dropsim demo --seed 2
    """

    out: Path = Path("out")
    """Folder to write to; made when it is missing."""
    seed: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Seed of everything random: another seed is another person."""
    force: bool = False
    """Replace the files of another run."""

    def run(self) -> None:
        """Run the push scene with its defaults."""
        from dropsim.apps.cli.run import Run

        Run(scene="push", seed=self.seed, out=self.out, force=self.force).run()
