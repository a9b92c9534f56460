"""Pictures into video files, one at a time."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from PIL import Image

FASTEST_GIF = 50.0
"""Browsers slow down a GIF whose frames are shorter than 20 ms [Hz]."""

Writer = Callable[[Path, Iterator[Image.Image], tuple[int, int], float], None]


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
