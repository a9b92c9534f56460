"""Seconds of video drawn and encoded a second on one core, by size."""

import tempfile
import time
from pathlib import Path

from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.render import Style, video

SIZES = ((640, 480), (1280, 720))
FRAMES = 30


def video_seconds(motion: Motion, style: Style) -> float:
    """Return the seconds of video that are drawn and encoded in a second, after the kernels are compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        video(motion.slice(0, 2), path, style=style)
        began = time.perf_counter()
        video(motion, path, style=style)
        return len(motion) / motion.fps / (time.perf_counter() - began)


def main() -> None:
    """Print a table."""
    motion = stepping_clip(2.0).slice(0, FRAMES)
    print("| size | video/drawing [s/s] | frames/s |")
    print("|---|---|---|")
    for width, height in SIZES:
        rate = video_seconds(motion, Style(size=(width, height)))
        print(f"| {width} x {height} | {rate:.2f} | {rate * motion.fps:.1f} |")


if __name__ == "__main__":
    main()
