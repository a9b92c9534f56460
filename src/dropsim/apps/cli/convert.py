"""Turn one motion file into another."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import optional

MAX_FPS = 1000.0
"""A slip of the finger beyond it would fill the memory [Hz]."""


@dataclass(frozen=True)
class Convert:
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
    up: Annotated[Literal["x", "y", "z"] | None, optional("x|y|z", "the rig's, or its rest pose's")] = None
    """Which axis of the input BVH points up."""
    unit: Annotated[float | None, optional("M", "the person is scaled to our leg length")] = None
    """Metres per unit of the input BVH."""
    rig: Annotated[Path | None, optional("MAP.toml", "found by themselves")] = None
    """File that maps the input BVH's joints to ours, as `dropsim rig` writes it."""
    out_up: Annotated[Literal["y", "z"] | None, optional("y|z", "y")] = None
    """Which axis of the output BVH points up."""
    out_unit: Annotated[float | None, optional("M", "1, as Blender assumes")] = None
    """Metres per unit of the output BVH."""

    def run(self) -> None:
        """Read, resample, write."""
        from dropsim.body.skeleton import Skeleton
        from dropsim.export import export_ending, write
        from dropsim.motion.reading import read_recording
        from dropsim.motion.retarget import read_rig_map

        # Before a long file is read.
        export_ending(self.output)
        if self.output.exists() and self.output.samefile(self.input):
            raise ValueError(f"{self.output}: is the input itself: write to another file")
        if self.output.is_dir():
            raise ValueError(f"{self.output}: is a folder: give the name of a file")
        if self.fps is not None and not 0 < self.fps <= MAX_FPS:
            raise ValueError(
                f"cannot resample to {self.fps:g} frames per second: give a positive number up to {MAX_FPS:g}"
            )
        rig_map = None if self.rig is None else read_rig_map(self.rig)
        recording = read_recording(self.input, Skeleton.adult(), up=self.up, unit=self.unit, rig_map=rig_map)
        print(f"read {self.input}: {recording.read_as}")
        motion = recording.motion
        if self.fps is not None:
            motion = motion.resampled(self.fps)
        write(motion, self.output, seed=_seed(self.input), up=self.out_up, unit=self.out_unit)
        print(f"wrote {self.output}: {len(motion)} frames at {motion.fps:g} frames per second, {motion.duration:.2f} s")


def _seed(path: Path) -> int | None:
    """Return the seed that a simulation left in its npz file."""
    from dropsim.files.npz import read_npz

    if path.suffix.lower() != ".npz":
        return None
    seed = read_npz(path, lambda name: name == "seed").get("seed")
    # Other people's files may hold something else by that name.
    return int(seed) if seed is not None and seed.ndim == 0 and seed.dtype.kind == "i" else None
