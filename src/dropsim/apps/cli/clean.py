"""`dropsim clean`: a recording without sliding feet and glitches."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import RigOptions, optional, refuse_output
from dropsim.files.names import printable

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.scene.cleaning import Cleaned


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
    """Write measures and findings as Markdown, and the feet before and after as a figure next to it."""
    import numpy as np

    from dropsim.motion.contacts import FEET, sphere_heights
    from dropsim.research.evaluation.plots import new_figure, save_figure
    from dropsim.research.evaluation.report import write_text

    figure, axes = new_figure(2, 2, size=(12.0, 6.0), sharex=True)
    time = np.arange(len(recording)) / recording.fps
    for k, (toe, side) in enumerate(zip(FEET, ("left", "right"), strict=True)):
        for label, motion, color in (("before", recording, "tab:orange"), ("after", cleaned.motion, "tab:blue")):
            speed = np.linalg.norm(motion.velocity()[:, toe, :2], axis=-1)
            axes[0, k].plot(time, 1000 * sphere_heights(motion)[:, toe], color, label=label, linewidth=1)
            axes[1, k].plot(time, speed, color, label=label, linewidth=1)
        for axis in axes[:, k]:
            axis.fill_between(
                time, 0, 1, where=cleaned.standing[:, k], transform=axis.get_xaxis_transform(), color="0.9", linewidth=0
            )
        axes[0, k].set(title=f"{side} foot (grey: stands)", ylabel="above the floor [mm]", ylim=(-40, 120))
        axes[1, k].set(xlabel="time [s]", ylabel="horizontal speed [m/s]", ylim=(0, 1))
        axes[0, k].legend()
    picture = path.with_suffix(".png")
    save_figure(figure, picture)
    held = "\n".join(
        f"- {('left', 'right')[s.foot]} foot, {s.start / recording.fps:.2f} to {(s.stop - 1) / recording.fps:.2f} s: "
        f"{1000 * s.slid:.0f} mm from its place, {1000 * s.lifted:+.0f} mm off the floor"
        for s in cleaned.stances
    )
    write_text(
        path, f"# {name}\n\n{_summary(recording, cleaned, first)}\nStances:\n\n{held}\n\n![feet]({picture.name})\n"
    )
