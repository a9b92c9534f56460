"""Make a film of each ready scenario, and a contact sheet of it to look at.

Run: python tools/make_videos.py FOLDER [NAME ...] [--size WxH]

Without a name, all of them, at 1280x720, in about ten minutes on one core. FOLDER gets NAME.mp4 and NAME.png.
"""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from dropsim import run
from dropsim.apps.cli.render import size_of
from dropsim.apps.outputs import stage_of
from dropsim.render import Style, contact_sheet, video
from dropsim.scene.scenarios import SCENARIOS, scenario

SHEET_FRAMES = 12


@dataclass(frozen=True)
class Options:
    """Films of ready scenarios."""

    folder: tyro.conf.Positional[Path]
    """Where to write to; made when it is missing."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME")] = ()
    """Scenarios; all of them unless given."""
    size: str = "1280x720"
    """Width x height [pixels]."""


def make_video(name: str, folder: Path, style: Style) -> None:
    """Simulate a scenario with its own seed, and write its film and its sheet."""
    setup = scenario(name)
    world = setup.world()
    stage = stage_of(setup, run(world, setup.num_frames(world.fps), setup.seed))
    began = time.perf_counter()
    video(stage, folder / f"{name}.mp4", style=replace(style, caption=setup.description))
    lasted = time.perf_counter() - began
    contact_sheet([stage], folder / f"{name}.png", frames=SHEET_FRAMES, columns=6, labels=[setup.description])
    seconds = len(stage) / stage.fps
    print(f"{name}: {seconds:.1f} s of video, {seconds / lasted:.2f} of them drawn and encoded a second", flush=True)


def main() -> None:
    """Make the films that were asked for."""
    options = tyro.cli(Options, description=__doc__)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or tuple(SCENARIOS):
        make_video(name, options.folder, Style(size=size_of(options.size)))


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"make_videos: {error}")
