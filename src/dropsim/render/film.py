"""Pictures, contact sheets and videos of a stage."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dropsim.compute.threads import single_threaded
from dropsim.export.stage import Stage, as_stage
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.render import raster
from dropsim.render.camera import Camera, View, floor_axes, follow
from dropsim.render.light import cast
from dropsim.render.meshes import Mesh, arrow_mesh, arrows_of, skinned, solid_mesh

Progress = Callable[[int, int], None]
"""Called with the frames done and their number."""
MIN_SIDE, MAX_PIXELS = 16, 3840 * 2160
"""Least side and largest area of a picture [pixels]."""
MAX_FPS = 240.0
"""Largest rate of a video [Hz]."""


@dataclass(frozen=True)
class Style:
    """Size and content of a picture."""

    size: tuple[int, int] = (640, 480)
    """Width and height [pixels]; of one cell in a contact sheet."""
    forces: bool = True
    """Draw contact forces as blue arrows and external forces as red ones, a metre for 1000 N."""
    caption: str = ""
    """A line of text at the top."""

    def __post_init__(self) -> None:
        width, height = self.size
        if min(width, height) < MIN_SIDE or width * height > MAX_PIXELS:
            raise ValueError(
                f"cannot draw a picture of {width} x {height}: give sides from {MIN_SIDE} pixels, up to 3840 x 2160 in all"
            )


PLAIN, CELL = Style(), Style(size=(218, 260))
SIGHT = 3.4
"""Range of sight before fog, in distances of the camera from its target."""
FASTEST_GIF = 50.0
"""Browsers slow down a GIF whose frames are shorter than 20 ms [Hz]."""

GHOST_OPACITY, GHOST_APART = 0.45, 0.25
"""Opacity of a ghost, and the mean distance of its joints from the nearest person's at which it is reached [m]; nearer,
it is less."""
Writer = Callable[[Path, Iterator[Image.Image], tuple[int, int], float], None]
HEADER = 22
"""Height of the line above a row of a contact sheet [pixels]."""


def draw_frame(shown: Stage | Motion, index: int, *, camera: Camera | None = None, style: Style = PLAIN) -> Image.Image:
    """Draw one frame, from a camera or else as a video's would see it."""
    stage = as_stage(shown)
    if not 0 <= index < len(stage):
        raise ValueError(f"there is no frame {index}: the motion has {len(stage)}")
    camera = camera or follow(stage)[index]
    picture = paint(stage.at(index), camera, style)
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
        cameras = follow(stage, camera=Camera(azimuth=stage.azimuth(), distance=4.2))
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


@single_threaded
def paint(stage: Stage, camera: Camera, style: Style) -> Image.Image:
    """Return a picture of a stage of one frame."""
    view, people = View.of(camera, *style.size), [stage.lifted(pose) for pose in stage.people]
    bodies = [skinned(pose, number) for number, pose in enumerate(people)]
    solid = Mesh.join([*bodies, *map(solid_mesh, stage.objects)])
    light, shadows = cast(stage, solid, camera, view.eye)
    rays, ground = view.rays(), view.ground(*floor_axes(stage.ground))
    picture = np.empty((view.height, view.width, 3), np.uint8)
    raster.draw_floor(picture, rays, ground, SIGHT * camera.distance, shadows.dark, shadows.square)
    arrows = [arrow_mesh(*arrow) for pose in people if style.forces for arrow in arrows_of(pose)]
    layers = [(Mesh.join([solid, *arrows]), 1.0)]
    if stage.ghost is not None:
        layers.append((skinned(stage.lifted(stage.ghost), None), _ghost_opacity(stage.ghost, people)))
    fine = View.of(camera, 2 * view.width, 2 * view.height)
    floor, nearness = fine.ground(*floor_axes(stage.ground))[2], np.zeros((fine.height, fine.width), np.float32)
    for mesh, opacity in layers:
        owner = np.zeros(nearness.shape, np.int32)
        points = fine.projected(mesh.surface[:, :3], mesh.lift)
        raster.rasterize(points, mesh.faces, -1, floor, nearness, owner)
        raster.shade(picture, (owner, nearness, points), mesh[::2], light, opacity)
    return Image.fromarray(picture)


def _ghost_opacity(ghost: Motion, people: Sequence[Motion]) -> float:
    """Let a ghost appear as it moves away from the person it coincides with."""
    apart = min(float(np.linalg.norm(pose.joints[0] - ghost.joints[0], axis=1).mean()) for pose in people)
    return GHOST_OPACITY * min(apart / GHOST_APART, 1.0)


def writer_for(path: Path, size: tuple[int, int]) -> Writer:
    """Return what writes a video with a name's ending, or raise where it could not, before anything is drawn."""
    ending = path.suffix.lower()
    if ending not in (".mp4", ".gif"):
        raise ValueError(f"cannot write a video as {path.name!r}: use a name that ends in .mp4 or .gif")
    if ending == ".gif":
        return _write_gif
    try:
        import av  # noqa: F401
    except ImportError as error:
        raise ValueError("writing mp4 needs PyAV: run `pip install 'dropsim[video]'`, or write a .gif") from error
    if size[0] % 2 or size[1] % 2:
        raise ValueError(f"an mp4 needs an even width and height, got {size[0]} x {size[1]}")
    return _write_mp4


def _write_mp4(path: Path, pictures: Iterator[Image.Image], size: tuple[int, int], fps: float) -> None:
    import av

    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream(
            "libx264", rate=Fraction(fps).limit_denominator(1001), options={"crf": "18", "preset": "veryfast"}
        )
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        # One thread: the same bytes on every machine, and drawing is slower than encoding anyway.
        stream.thread_count = 1
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())


def _write_gif(path: Path, pictures: Iterator[Image.Image], size: tuple[int, int], fps: float) -> None:
    first = next(pictures).quantize(256)
    rest = [picture.quantize(palette=first, dither=Image.Dither.NONE) for picture in pictures]
    # A GIF counts in hundredths of a second: spread the rounding, or 30 frames a second play 10 % too fast.
    ends = [round(100 * i / fps) for i in range(len(rest) + 2)]
    durations = [10 * (end - start) for start, end in pairwise(ends)]
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=durations, loop=0)
