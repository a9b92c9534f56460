"""Turn one motion file into another."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import RigOptions, optional, refuse_output

MAX_FPS = 1000.0
"""A slip of the finger beyond it would fill the memory [Hz]."""


@dataclass(frozen=True, kw_only=True)
class Convert(RigOptions):
    """Convert a motion from BVH or AMASS npz to what another program reads, by the file's ending.

    Examples: dropsim convert out/push.npz push.glb; dropsim convert walk.bvh walk.npz --fps 30. The motion goes onto
    our 22 joints. .bvh and .npz lead back here; .glb is for Blender, Unity and Unreal, .usd, .usda and .usdc for USD
    tools, .csv for spreadsheets, .html plays in any browser. docs/exporting.md has their axes, units and common
    mistakes.
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """Motion to read, .bvh, .glb or .npz."""
    output: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """File to write, .bvh, .npz, .glb, .csv, .html, .usd, .usda or .usdc; made whole or not at all."""
    fps: Annotated[float | None, optional("HZ", "the input's own")] = None
    """Frames per second to resample to."""
    out_up: Annotated[Literal["y", "z"] | None, optional("y|z", "y")] = None
    """Axis of the output BVH that points up."""
    out_unit: Annotated[float | None, optional("M", "1, as Blender assumes")] = None
    """Metres per unit of the output BVH."""

    def run(self) -> None:
        """Read, resample, write."""
        from dropsim.apps.cli.clean import length_of
        from dropsim.body.skeleton import Skeleton
        from dropsim.export import export_ending, write
        from dropsim.motion.reading import read_recording

        # Before a long file is read.
        export_ending(self.output)
        refuse_output(self.output, self.input)
        if self.fps is not None and not 0 < self.fps <= MAX_FPS:
            remedy = f"give a positive number up to {MAX_FPS:g}"
            raise ValueError(f"cannot resample to {self.fps:g} frames per second: {remedy}")
        recording = read_recording(self.input, Skeleton.adult(), **self.reading())
        print(f"read {self.input}: {recording.read_as}")
        motion = recording.motion if self.fps is None else recording.motion.resampled(self.fps)
        write(motion, self.output, seed=_seed(self.input), up=self.out_up, unit=self.out_unit)
        print(f"wrote {self.output}: {length_of(motion)}")


def _seed(path: Path) -> int | None:
    """Return the seed that a simulation left in its npz file."""
    from dropsim.files.npz import read_npz

    if path.suffix.lower() != ".npz":
        return None
    seed = read_npz(path, lambda name: name == "seed").get("seed")
    # Other people's files may hold something else by that name.
    return int(seed) if seed is not None and seed.ndim == 0 and seed.dtype.kind == "i" else None
