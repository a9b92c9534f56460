"""`dropsim clean` and `dropsim convert`: a recording without sliding feet and glitches, or in another format."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import RigOptions, optional, refuse_output
from dropsim.files.names import printable

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.scene.cleaning import Cleaned


MAX_FPS = 1000.0
"""A slip of the finger beyond it would fill the memory [Hz]."""


@dataclass(frozen=True, kw_only=True)
class Clean(RigOptions):
    """Clean a recording, or a folder of them: feet that slide, float or sink, and glitches of a few frames.

    Examples: dropsim clean walk.bvh clean.bvh; dropsim clean mocap cleaned --strength strict. A BVH file comes back on
    its own rig: same joints, rate, axes, unit and floor, and frames in which nothing was wrong as they were. A GLB file
    comes back with its mesh, materials and other animations. Prints measures before and after.
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CLIP|FOLDER")]
    """Motion to read, .bvh, .glb or .npz, or a folder of them."""
    output: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """File to write, by its ending: .bvh, .npz, .glb, .csv, .html, .usd, .usda or .usdc; for a folder the folder to
    write to."""
    strength: Literal["gentle", "normal", "strict"] = "normal"
    """Stances that are cleaned: those that slide by 2 cm or are 1 cm off the floor, by 5 mm or 2 mm, or all of them."""
    report: Annotated[Path | None, optional("FILE.md", "none")] = None
    """Also write a report: measures before and after, what was found, and plots next to it."""
    floor: Annotated[float | None, optional("M", "where the feet stand")] = None
    """Height of the floor in the input [m]."""
    fps: Annotated[float | None, optional("HZ", "the input's own")] = None
    """Frames per second to resample to; a BVH file that comes back on its own rig keeps its rate."""

    def run(self) -> None:
        """Read, clean, write, and say what changed."""
        if not self.input.exists():
            raise ValueError(f"{self.input}: there is no such file or folder")
        if self.input.is_dir():
            self._clean_folder()
        else:
            print(self._clean_file(self.input, self.output))

    def _clean_folder(self) -> None:
        """Clean every motion file of a folder into another, under the same names."""
        from dropsim.motion.reading import ALL_ENDINGS

        if self.report is not None:
            raise ValueError("a report is of one file: leave out --report for a folder")
        if self.output.exists() and (not self.output.is_dir() or self.output.samefile(self.input)):
            raise ValueError(f"{self.output}: give another folder to write to")
        files = sorted(path for path in self.input.rglob("*") if path.suffix.lower() in ALL_ENDINGS)
        files = [path for path in files if self.output not in path.parents]
        if not files:
            raise ValueError(f"{self.input} holds no {' or '.join(ALL_ENDINGS)} files")
        failed: list[str] = []
        for path in files:
            try:
                print(self._clean_file(path, self.output / path.relative_to(self.input), brief=True))
            except Exception as error:  # whatever is wrong with one file, the others are cleaned
                print(printable(f"left out: {error or type(error).__name__}"))
                failed.append(path.name)
        if failed:
            few = ", ".join(failed[:5]) + (" and others" if len(failed) > 5 else "")
            raise ValueError(f"{len(failed)} of {len(files)} files could not be cleaned: {few}")

    def _clean_file(self, path: Path, output: Path, *, brief: bool = False) -> str:
        from dropsim.export import export_ending, write
        from dropsim.motion.reading import read_recording
        from dropsim.scene.cleaning import checked, clean, own_floor

        # Before a long file is read.
        ending = export_ending(output)
        refuse_output(output, path)
        source = read_recording(path, None, **self.reading())
        goes_back = source.fit is not None and ending == source.fit.ending
        if goes_back and self.fps is not None:
            remedy = "leave out --fps, or write another format"
            raise ValueError(f"{output}: comes back on its own rig and at its own rate: {remedy}")
        motion = source.motion if self.fps is None else source.motion.resampled(self.fps)
        recording = checked(motion) if source.fit is None and self.floor is None else own_floor(motion, self.floor)
        cleaned = clean(recording, strength=self.strength)
        if goes_back and source.fit is not None:
            source.fit.write(cleaned.motion, output, raised=recording.root[0] - motion.root[0])
        else:
            write(cleaned.motion, output)
        first = source.fit.first if source.fit is not None and self.fps is None else 0
        if self.report is not None:
            write_report(self.report, path.name, recording, cleaned, first)
        if brief:
            return f"{path}: {_found(cleaned)}"
        lines = [f"read {path}: {source.read_as}", _summary(recording, cleaned, first)]
        raised = 0.0 if goes_back else 100 * float(recording.root[0, 2] - motion.root[0, 2])
        if raised:
            lines.append(f"moved the recording by {raised:.1f} cm along z, so that its feet stand at z = 0")
        return "\n".join((*lines, f"wrote {output}: {length_of(cleaned.motion)}"))


def _found(cleaned: "Cleaned") -> str:
    return f"{len(cleaned.glitches)} glitches mended, {len(cleaned.stances)} stances held"


def _summary(recording: "Motion", cleaned: "Cleaned", first: int) -> str:
    from dropsim.scene.cleaning import quality_of, table_of

    before, after = (quality_of(m, recording, standing=cleaned.standing) for m in (recording, cleaned.motion))
    glitches = "\n".join(f"- {glitch.described(first)}" for glitch in cleaned.glitches)
    return f"{table_of({'before': before, 'after': after})}\n\n{_found(cleaned)}\n{glitches}".rstrip() + "\n"


def length_of(motion: "Motion") -> str:
    """Say how long a motion is."""
    return f"{len(motion)} frames at {motion.fps:g} frames per second, {motion.duration:.2f} s"


def write_report(path: Path, name: str, recording: "Motion", cleaned: "Cleaned", first: int) -> None:
    """Write measures and findings as Markdown, and the feet before and after as a figure and a table next to it."""
    import numpy as np

    from dropsim.files.atomic import write_text
    from dropsim.motion.contacts import FEET, sphere_heights
    from dropsim.research.evaluation.report import Panel, draw

    motions, sides = {"before": recording, "after": cleaned.motion}, ("left", "right")
    time, panels = np.arange(len(recording)) / recording.fps, list[Panel]()
    heights = {name: 1000 * sphere_heights(motion) for name, motion in motions.items()}
    speeds = {name: np.linalg.norm(motion.velocity()[..., :2], axis=-1) for name, motion in motions.items()}
    high, fast = {"ylim": (-40, 120)}, {"ylim": (0, 1), "xlabel": "time [s]"}
    for title, values, axes in (("above the floor [mm]", heights, high), ("horizontal speed [m/s]", speeds, fast)):
        for k, toe in enumerate(FEET):
            stands = [(s.start / recording.fps, s.stop / recording.fps) for s in cleaned.stances if s.foot == k]
            curves = {name: (time, value[:, toe]) for name, value in values.items()}
            panels.append(Panel(f"{sides[k]} foot (red: stands), {title}", curves, axes, stands))
    picture = draw(panels, path.with_suffix(".png"), columns=2)
    held = "\n".join(
        f"- {sides[s.foot]} foot, {s.start / recording.fps:.2f} to {(s.stop - 1) / recording.fps:.2f} s: "
        f"{1000 * s.slid:.0f} mm from its place, {1000 * s.lifted:+.0f} mm off the floor"
        for s in cleaned.stances
    )
    write_text(
        path, f"# {name}\n\n{_summary(recording, cleaned, first)}\nStances:\n\n{held}\n\n![feet]({picture.name})\n"
    )


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
