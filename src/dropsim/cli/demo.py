"""The first thing to try after installing."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Demo:
    """Make a short clip of a person stepping in place, by formula, and draw it as a strip of pictures."""

    out: Path = Path("out")
    """Folder to write to; made when it is missing."""
    seconds: float = 1.1
    """Length of the clip [s]; the default is about one full cycle of both feet."""

    def run(self) -> None:
        """Write the strip and say what it shows."""
        from dropsim.render import contact_sheet
        from dropsim.synthetic import stepping_clip

        motion = stepping_clip(self.seconds)
        path = self.out / "stepping.png"
        self.out.mkdir(parents=True, exist_ok=True)
        contact_sheet([motion], path, labels=[motion.name])
        print(f"wrote {path}: {len(motion)} frames of a person stepping in place at {motion.fps:g} frames per second")
        print("The motion is made by formula; there is no physics and no learned model in it yet.")
