"""Seconds of video drawn and encoded a second on one core, by painter, body and size, beside the ray-caster in the same run."""

import os

# Before Mesa starts: the picture is drawn by one thread.
os.environ["LP_NUM_THREADS"] = "1"

import tempfile
import time
from pathlib import Path
from typing import Literal

import torch

from dropsim.motion.motion import Motion
from dropsim.render import Painter, RayCaster, Style, best_painter, missing_gl, video
from dropsim.motion.synthetic import stepping_clip

SIZES = ((640, 480), (1280, 720))
FRAMES = 30


def video_seconds(motion: Motion, painter: Painter, size: tuple[int, int], body: Literal["skin", "capsules"]) -> float:
    """Return the seconds of video that are drawn and encoded in a second, warm."""
    with tempfile.TemporaryDirectory() as folder:
        path, style = Path(folder) / "clip.mp4", Style(size=size, body=body)
        video(motion.slice(0, 2), path, style=style, painter=painter)
        began = time.perf_counter()
        video(motion, path, style=style, painter=painter)
        return len(motion) / motion.fps / (time.perf_counter() - began)


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    motion = stepping_clip(2.0).slice(0, FRAMES)
    if (why := missing_gl()) is not None:
        print(why)
    print("| size | painter | body | video/drawing [s/s] | frames/s | times the ray-caster |")
    print("|---|---|---|---|---|---|")
    for size in SIZES:
        slowest = video_seconds(motion, RayCaster(), size, "capsules")
        rows = [("ray-caster", "capsules", slowest)]
        if why is None:
            bodies: tuple[Literal["skin", "capsules"], ...] = ("capsules", "skin")
            rows += [("OpenGL", body, video_seconds(motion, best_painter(), size, body)) for body in bodies]
        for name, body, rate in rows:
            print(f"| {size[0]} x {size[1]} | {name} | {body} | {rate:.2f} | {rate * motion.fps:.1f} | {rate / slowest:.2f} |")


if __name__ == "__main__":
    main()
