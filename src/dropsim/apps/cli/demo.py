"""The first thing to try after installing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dropsim.apps.cli.arguments import THE_SCENES, optional


@dataclass(frozen=True)
class Demo:
    """Push a walking person, and write the motion, a report and a strip of pictures; and a recording to try things on.

    Example: dropsim demo --seed 2
    """

    out: Path = Path("out")
    """Folder to write to; made when it is missing."""
    seed: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Seed of everything random: another seed is another person."""
    force: bool = False
    """Replace the files of another run."""

    def run(self) -> None:
        """Run the push scene with its defaults, and let somebody walk undisturbed."""
        from dropsim.apps.cli.run import Run
        from dropsim.motion.bvh import write_bvh
        from dropsim.scene import run
        from dropsim.scene.scenarios import scenario

        Run(scene="push", seed=self.seed, out=self.out, force=self.force).run()
        walk, sample = scenario("follow"), self.out / "recordings" / "walk.bvh"
        sample.parent.mkdir(exist_ok=True)
        write_bvh(run(walk.world(), 300, walk.seed).motions[0], sample)
        print(f"wrote {sample}, a recording to push, clean or build a bank from")
        pictures = self.out / ("push.png" if self.seed is None else f"push-{self.seed}.png")
        print(f"open {pictures} to see it, or run `dropsim view` and open http://127.0.0.1:8080")
