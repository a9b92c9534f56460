"""`dropsim clean`: a recording, moved as a body would move."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import optional
from dropsim.files.atomic import refuse_read_only


@dataclass(frozen=True)
class Clean:
    """Clean a recording with physics: feet on the floor and not through it, less skating.

    Example: dropsim clean walk.bvh clean.bvh. The recording is the motion prior, and motion that no contact force explains is reduced.
    Prints measures before and after.
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CLIP")]
    """Motion to read, .bvh or .npz."""
    output: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """File to write, by its ending: .npz, .bvh, .glb, .csv, .html, .usd, .usda or .usdc; made whole or not at all."""
    fps: Annotated[float | None, optional("HZ", "the input's own")] = None
    """Frames per second to resample to."""
    up: Annotated[Literal["x", "y", "z"] | None, optional("x|y|z", "the rig's, or its rest pose's")] = None
    """Which axis of the input BVH points up."""
    unit: Annotated[float | None, optional("M", "the person is scaled to our leg length")] = None
    """Metres per unit of the input BVH."""
    map: Annotated[Path | None, optional("FILE.toml", "found from their names")] = None
    """File that maps the input BVH's joints to ours (docs/conventions.md)."""

    def run(self) -> None:
        """Read, clean, write, and say what changed."""
        from dropsim.apps.cli.progress import bar, tell_of_compiling
        from dropsim.body.skeleton import Skeleton
        from dropsim.export import export_ending, write
        from dropsim.motion.reading import read_recording
        from dropsim.motion.retarget import read_rig_map
        from dropsim.scene.cleaning import checked, clean, quality_of, table_of

        # Before a long file is read.
        export_ending(self.output)
        refuse_unwritable(self.output, self.input)
        rig_map = None if self.map is None else read_rig_map(self.map)
        source = read_recording(self.input, Skeleton.adult(), up=self.up, unit=self.unit, rig_map=rig_map)
        print(f"read {self.input}: {source.read_as}")
        motion = source.motion
        recording = checked(motion if self.fps is None else motion.resampled(self.fps))
        tell_of_compiling()
        with bar("frames") as advance:
            cleaned = clean(recording, watch=advance)
        write(cleaned, self.output)
        print(table_of({"before": quality_of(recording, recording), "after": quality_of(cleaned, recording)}))
        drop = float(motion.root[0, 2] - recording.root[0, 2])
        if abs(drop) > 0:
            print(f"moved the recording by {-100 * drop:.1f} cm along z before, so that its feet stand at z = 0")
        print(f"wrote {self.output}: {len(cleaned)} frames at {cleaned.fps:g} frames per second, {cleaned.duration:.2f} s")


def refuse_unwritable(output: Path, source: Path) -> None:
    """Refuse to write over the file that is read, onto a folder or into one that is not there."""
    if output.exists() and source.exists() and output.samefile(source):
        raise ValueError(f"{output}: is the input itself: write to another file")
    if output.is_dir():
        raise ValueError(f"{output}: is a folder: give the name of a file")
    if not output.parent.is_dir():
        raise ValueError(f"{output.parent}: there is no such folder: make it first")
    refuse_read_only(output)
