"""Pictures, contact sheets and videos of a stage."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dropsim.export.stage import Stage, as_stage
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.render.camera import Camera
from dropsim.render.painter import paint
from dropsim.render.snapshot import Snapshot
from dropsim.render.stage import MAX_FPS, Style, facing, follow
from dropsim.render.writers import FASTEST_GIF, writer_for

Progress = Callable[[int, int], None]
"""Called with the frames done and their number."""

PLAIN, CELL = Style(), Style(size=(218, 260))
HEADER = 22
"""Height of the line above a row of a contact sheet [pixels]."""


def draw_frame(shown: Stage | Motion, index: int, *, camera: Camera | None = None, style: Style = PLAIN) -> Image.Image:
    """Draw one frame, from a camera or else as a video's would see it."""
    stage = as_stage(shown)
    if not 0 <= index < len(stage):
        raise ValueError(f"there is no frame {index}: the motion has {len(stage)}")
    camera = camera or follow(stage)[index]
    picture = paint(Snapshot.of(stage, index, forces=style.forces), camera, style.size)
    return _captioned(picture, style.caption) if style.caption else picture


def _captioned(picture: Image.Image, caption: str) -> Image.Image:
    """Write a line at the top left, as large as fits."""
    caption = " ".join(caption.split())
    draw, margin = ImageDraw.Draw(picture), max(4, picture.height // 40)
    size = max(9, picture.height // 24)
    width = draw.textlength(caption, font=ImageFont.load_default(size=size))
    size = max(7, min(size, math.floor(size * (picture.width - 2 * margin) / max(width, 1))))
    draw.text((margin, margin), caption, fill=(45, 48, 56), font=ImageFont.load_default(size=size))
    return picture


def contact_sheet(
    shown: Sequence[Stage | Motion],
    path: str | Path,
    *,
    frames: int = 8,
    columns: int = 12,
    labels: Sequence[str] = (),
    style: Style = CELL,
    progress: Progress | None = None,
) -> None:
    """Write a PNG with evenly spaced frames of each stage in rows; the style's size is that of one frame."""
    path = Path(path)
    if not shown:
        raise ValueError("a contact sheet needs at least one motion")
    if labels and len(labels) != len(shown):
        raise ValueError(f"got {len(labels)} labels for {len(shown)} motions: give one each, or none")
    if frames < 1 or columns < 1:
        raise ValueError(f"a contact sheet needs at least one frame and one column, got {frames} and {columns}")
    if path.suffix.lower() != ".png":
        raise ValueError(f"cannot write a contact sheet as {path.name!r}: use a name that ends in .png")
    stages = [as_stage(one) for one in shown]
    columns, (width, height) = min(frames, columns), style.size
    rows, pitch = math.ceil(frames / columns), (width + 2, height + 2)
    block = HEADER + rows * pitch[1] - 2
    if columns * pitch[0] * block * len(stages) > 200e6:
        raise ValueError(
            f"a contact sheet of {frames} frames of {width} x {height} is too large: ask for fewer or smaller ones"
        )
    sheet = Image.new("RGB", (columns * pitch[0], len(stages) * block), (40, 42, 48))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    for number, stage in enumerate(stages):
        label = labels[number] if labels else style.caption or stage.people[0].name
        draw.text((6, number * block + 3), label, fill="white", font=font)
        cameras = follow(stage, camera=Camera(azimuth=facing(stage.people[0]) + 55, distance=4.2))
        for i, index in enumerate(np.linspace(0, len(stage) - 1, frames).round().astype(int).tolist()):
            left, top = i % columns * pitch[0], number * block + HEADER + i // columns * pitch[1]
            picture = draw_frame(stage, index, camera=cameras[index], style=replace(style, caption=""))
            sheet.paste(picture, (left, top))
            draw.text((left + 5, top + 3), f"{index / stage.fps:.2f} s", fill=(60, 60, 70), font=font)
            if progress is not None:
                progress(number * frames + i + 1, len(stages) * frames)
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")


def video(
    shown: Stage | Motion,
    path: str | Path,
    *,
    fps: float | None = None,
    camera: Camera | None = None,
    style: Style = PLAIN,
    progress: Progress | None = None,
) -> None:
    """Write an mp4 or a gif, by the path's suffix, at the motion's own rate unless `fps` is given."""
    path = Path(path)
    stage = as_stage(shown)
    write = writer_for(path, style.size)
    fps = stage.fps if fps is None else fps
    if not 0 < fps <= MAX_FPS:
        raise ValueError(f"cannot make a video of {fps:g} frames per second: give a positive number up to {MAX_FPS:g}")
    if path.suffix.lower() == ".gif":
        fps = min(fps, FASTEST_GIF)
    stage = stage.resampled(fps)
    pictures = _pictures(stage, follow(stage, camera=camera), style, progress)
    with atomic_path(path) as temporary:
        write(temporary, pictures, style.size, fps)


def _pictures(
    stage: Stage, cameras: Sequence[Camera], style: Style, progress: Progress | None
) -> Iterator[Image.Image]:
    for index, camera in enumerate(cameras):
        yield draw_frame(stage, index, camera=camera, style=style)
        if progress is not None:
            progress(index + 1, len(stage))
