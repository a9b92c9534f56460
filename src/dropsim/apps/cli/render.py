"""`dropsim render`: motions drawn into a video, a picture or a sheet of pictures."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import optional, refuse_output

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.render import Stage, Style

SHEET_COLUMNS = 6


@dataclass(frozen=True)
class Render:
    """Draw motions into a video (mp4, gif) or a picture (png).

    Examples: dropsim render out/push.npz push.mp4 --caption "250 N to the left"; dropsim render out/two-people_0.npz
    out/two-people_1.npz both.gif, for several people in one world; dropsim render out/push.npz sheet.png
    --contact-sheet
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MOTION... OUT")]
    """Motions to read, .npz or .bvh, and last the file to write: .mp4, .gif or .png; made whole or not at all."""
    size: Annotated[str | None, optional("WxH", "640x480, and 218x260 for each frame of a contact sheet")] = None
    """Width x height [pixels], e.g. 1280x720."""
    fps: Annotated[float | None, optional("HZ", "the first motion's own")] = None
    """Frames per second of a video."""
    ghost: Annotated[Path | None, optional("MOTION", "nobody")] = None
    """A motion to show as a translucent person, e.g. the same one without the push."""
    forces: bool = True
    """Draw contact forces (blue) and external forces (red), a metre for 1000 N."""
    caption: str = ""
    """A line of text at the top."""
    contact_sheet: bool = False
    """Write a PNG with a grid of frames instead."""
    frames: int = 12
    """Number of frames on a contact sheet."""
    at: Annotated[float | None, optional("S", "the middle")] = None
    """The moment that a single picture (png) shows [s]."""

    def run(self) -> None:
        """Read, draw, write."""
        output = self._output()
        size = None if self.size is None else size_of(self.size)
        from dataclasses import replace

        from dropsim.apps.cli.progress import bar
        from dropsim.render import Stage, Style, contact_sheet, video
        from dropsim.render.film import CELL, writer_for

        style = CELL if self.contact_sheet else Style()
        style = replace(style, size=size or style.size, forces=self.forces, caption=self.caption)
        if output.suffix.lower() != ".png":
            # Before long files are read.
            writer_for(output, style.size)
        people, ghost = self._motions()
        stage = Stage(people, ghost)
        with bar("frames") as advance:
            if self.contact_sheet:
                contact_sheet([stage], output, frames=self.frames, columns=SHEET_COLUMNS, style=style, progress=advance)
                drawn = f"{self.frames} frames of"
            elif output.suffix.lower() == ".png":
                drawn = _write_picture(stage, self.at, style, output)
            else:
                video(stage, output, fps=self.fps, style=style, progress=advance)
                # As convert counts: from the first frame to the last.
                seconds = (len(stage) - 1) / stage.fps
                drawn = f"{len(stage)} frames at {stage.fps:g} frames per second, {seconds:.2f} s of"
        names, (width, height) = ", ".join(motion.name for motion in people), style.size
        print(f"wrote {output}: {drawn} {names}, {width} x {height}")

    def _output(self) -> Path:
        """Return the file to write, or raise where it cannot be written or does not go with the options."""
        if len(self.files) < 2:
            use = "dropsim render MOTION... OUT.mp4"
            raise ValueError(f"give at least one motion to read, and then the file to write: {use}")
        output, ending = self.files[-1], self.files[-1].suffix.lower()
        if ending not in (".mp4", ".gif", ".png"):
            wanted = "the last file is the one to write and ends in .mp4, .gif or .png"
            raise ValueError(f"{output}: {wanted}, not in {ending!r}")
        if self.contact_sheet and ending != ".png":
            raise ValueError(f"{output}: a contact sheet is a picture: use a name that ends in .png")
        refuse_output(output, *self.files[:-1])
        if self.at is not None and (ending != ".png" or self.contact_sheet):
            raise ValueError("--at is for a single picture: write to a .png, without --contact-sheet")
        return output

    def _motions(self) -> "tuple[tuple[Motion, ...], Motion | None]":
        """Read everybody, at one rate."""
        from dropsim.body.skeleton import Skeleton
        from dropsim.motion.reading import read_motion

        skeleton = Skeleton.adult()
        paths = (*self.files[:-1], *(() if self.ghost is None else (self.ghost,)))
        everyone = [read_motion(path, skeleton) for path in paths]
        everyone = [motion.resampled(everyone[0].fps) for motion in everyone]
        people = tuple(everyone[: len(self.files) - 1])
        return people, None if self.ghost is None else everyone[-1]


def _write_picture(stage: "Stage", at: float | None, style: "Style", output: Path) -> str:
    """Draw the frame nearest to a moment [s], and say which."""
    from dropsim.files.atomic import atomic_path
    from dropsim.render import draw_frame

    end = (len(stage) - 1) / stage.fps
    if at is not None and not 0 <= at <= end:
        raise ValueError(f"there is nothing to see at {at:g} s: the motion lasts from 0 to {end:.2f} s")
    index = len(stage) // 2 if at is None else round(at * stage.fps)
    picture = draw_frame(stage, index, style=style)
    with atomic_path(output) as temporary:
        picture.save(temporary, format="PNG")
    return f"{index / stage.fps:.2f} s into"


def size_of(text: str) -> tuple[int, int]:
    """Read a width and a height."""
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdecimal() and height.isdecimal() and len(text) < 20):
        raise ValueError(f"cannot read the size {text!r}: give a width and a height in pixels, such as 1280x720")
    return int(width), int(height)
