"""A figure and a table of numbers for each of the paper's results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.body.skeleton import Skeleton
from dropsim.files.tables import write_csv
from dropsim.motion.motion import Motion
from dropsim.render import Camera, draw_frame, follow
from dropsim.render.film import CELL
from dropsim.render.stage import as_stage, facing
from dropsim.research.evaluation.bench import Speed
from dropsim.research.evaluation.chunks import Arrays
from dropsim.research.evaluation.paper.claims import PAPER_FPS, RECOVERY, shown_walk
from dropsim.research.evaluation.paper.plan import FOLLOWS, PUSHED
from dropsim.research.evaluation.paper.runs import KEPT
from dropsim.research.evaluation.plots import FLOOR, new_figure, save_figure
from dropsim.research.evaluation.recordings import KINDS, Recorded

ENERGIES = {
    "kinematic": ("motion prior", "tab:blue"), "kinematic_mode": ("motion prior, mean only", "tab:green"),
    "momentum": ("momentum", "tab:red"), "contact": ("contact", "tab:orange"), "range_of_motion": ("range of motion", "tab:purple"),
    "rigidity": ("rigidity", "tab:gray"),
}  # fmt: skip
"""Energies as they are drawn."""
STRIP = (20, 63, 70, 78, 88, 100, 115, 135, 160, 200)
"""Frames of the filmstrip, as far as there are as many."""


@dataclass(frozen=True)
class Drawing:
    """Draws into a folder: for a result of some name a PNG, an SVG and a CSV."""

    folder: Path

    def save(self, name: str, figure: Any, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:  # noqa: ANN401
        """Write the three files."""
        save_figure(figure, self.folder / f"{name}.png", vector=True)
        write_csv(self.folder / f"{name}.csv", header, rows)

    def pushed_walk(self, walks: Arrays) -> None:
        """Draw the energies of one walk over a filmstrip of it."""
        index = shown_walk(walks)
        curves = {name: walks[f"energy_{name}"][index] for name in ENERGIES}
        figure, ((axes,), (strip,)) = new_figure(2, 1, size=(11.0, 6.4), height_ratios=(2.2, 1.0))
        _curves(axes, curves)
        axes.set(title="Energies of one walk, pushed at the pelvis", ylabel="energy [m²]")
        pictures, frames = _filmstrip(walk_motion(walks, index))
        strip.imshow(pictures)
        strip.set(
            yticks=[],
            xticks=[(i + 0.5) * CELL.size[0] for i in range(len(frames))],
            xticklabels=[f"frame {i}" for i in frames],
        )
        self.save("pushed-walk", figure, ("frame", *curves), _columns(curves))

    def medians(self, name: str, title: str, arrays: Arrays, beside: Mapping[str, Arrays]) -> None:
        """Draw the medians over many motions, one panel for each form of the method, on one scale."""
        panels = {title: arrays, **beside}
        figure, (row,) = new_figure(1, len(panels), sharey=True)
        columns = {}
        for axes, (label, found) in zip(row, panels.items(), strict=True):
            curves = {energy: np.median(found[f"energy_{energy}"], axis=0) for energy in ENERGIES}
            _curves(axes, curves)
            axes.set(title=f"{label} ({len(found['upright'])} motions)")
            columns |= {f"{label} {energy}": curve for energy, curve in curves.items()}
        row[0].set(ylabel="median energy [m²]")
        self.save(name, figure, ("frame", *columns), _columns(columns))

    def manifold(self, full: Arrays, mean: Arrays) -> None:
        """Draw E_kin to the nearest sample, to the mode of the same frames, and of runs with the mode alone."""
        curves = {
            "manifold": np.median(full["energy_kinematic"], axis=0),
            "mean, same frames": np.median(full["energy_kinematic_mode"], axis=0),
            "mean, runs of its own": np.median(mean["energy_kinematic"], axis=0),
        }
        figure, ((axes,),) = new_figure(1, 1, size=(7.0, 4.0))
        for label, curve in curves.items():
            axes.semilogy(np.maximum(curve, FLOOR), label=label)
        _shade(axes)
        axes.axvspan(RECOVERY.start, RECOVERY.stop, color="tab:green", alpha=0.1, label="frames 100-150")
        axes.set(title="E_kin with the manifold and with the mean", xlabel="frame", ylabel="median E_kin [m²]")
        axes.legend(fontsize=8)
        self.save("manifold", figure, ("frame", *curves), _columns(curves))

    def recorded_wrench(self, recorded: Sequence[Recorded]) -> None:
        """Draw the root wrench of a recording of each kind, with point masses and with cylinders."""
        kinds = [kind for kind in KINDS if any(r.kind == kind for r in recorded)]
        figure, (row,) = new_figure(1, max(1, len(kinds)))
        for axes, kind in zip(row, kinds, strict=False):
            # The one whose size is in the middle, so that it is neither the best nor the worst.
            one = sorted((r for r in recorded if r.kind == kind), key=lambda r: r.points.mean())[
                sum(r.kind == kind for r in recorded) // 2
            ]
            axes.plot(one.points, label="masses at the joints")
            axes.plot(one.cylinders, "--", label="cylinders")
            axes.set(title=f"recorded {kind}: {one.name}", xlabel="frame", ylabel="root wrench [body weights]")
            axes.legend(fontsize=8)
        rows = [
            (r.name, r.kind, i + 1, float(p), float(c))
            for r in recorded
            for i, (p, c) in enumerate(zip(r.points, r.cylinders, strict=True))
        ]
        self.save("recorded-wrench", figure, ("recording", "kind", "frame", "points", "cylinders"), rows)

    def corrected_wrench(self, runs: Arrays, recorded: Sequence[Recorded] | None) -> None:
        """Draw the root wrench of one pushed run, and of all, before and after the correction."""
        figure, ((left, right),) = new_figure(1, 2, sharey=True)
        curves = {f"one run, {part}": runs[f"wrench_{part}"][0] for part in ("before", "after")}
        curves |= {
            f"95th percentile, {part}": np.quantile(runs[f"wrench_{part}"], 0.95, axis=0)
            for part in ("before", "after")
        }
        for axes, label in ((left, "one run,"), (right, "95th percentile,")):
            for part, color in (("before", "tab:red"), ("after", "tab:blue")):
                axes.plot(curves[f"{label} {part}"], color=color, label=f"{part} the correction")
            _shade(axes)
            if running := [r.points for r in recorded or () if r.kind == "run"]:
                high = np.quantile(np.concatenate(running), 0.95)
                axes.axhspan(0, high, color="gray", alpha=0.2, label="recorded runs, up to the 95th percentile")
            axes.set(title=f"pushed: {label.strip(',')}", xlabel="frame")
        left.set(ylabel="root wrench [body weights]")
        left.legend(fontsize=8)
        self.save("corrected-wrench", figure, ("frame", *curves), _columns(curves))

    def following(self, found: Mapping[str, Arrays]) -> None:
        """Draw the paths of people who follow."""
        figure, (row,) = new_figure(1, len(FOLLOWS), size=(14.0, 3.6))
        rows = []
        for axes, (name, speed) in zip(row, FOLLOWS.items(), strict=True):
            path = np.concatenate((np.zeros((1, 2)), np.cumsum(found[name]["wanted"] / 30.0, axis=0)))[
                : found[name]["root"].shape[1]
            ]
            axes.plot(*path.T, "--", color="red", label="the dot")
            for person, root in enumerate(found[name]["root"]):
                axes.plot(*(root - root[0]).T, linewidth=0.8)
                rows += [(name, person, i, float(x), float(y)) for i, (x, y) in enumerate(root - root[0])]
            axes.set(title=f"{name}, {speed:g} m/s", aspect="equal", xlabel="x [m]")
        row[0].set(ylabel="y [m]")
        row[0].legend(fontsize=8)
        self.save("following", figure, ("scenario", "person", "frame", "x", "y"), rows)

    def speed(self, speed: Speed) -> None:
        """Draw the rate of every frame of one person."""
        figure, ((axes,),) = new_figure(1, 1, size=(7.0, 3.2))
        axes.plot([1 / seconds for seconds in speed.frame_seconds], label="one person, one thread")
        axes.axhline(PAPER_FPS, color="black", linestyle="--", label="the paper")
        axes.set(title="Speed", xlabel="frame", ylabel="frames a second", yscale="log")
        axes.legend(fontsize=8)
        self.save("speed", figure, ("frame", "seconds"), list(enumerate(speed.frame_seconds)))


def draw_all(
    found: Mapping[str, Arrays], recorded: Sequence[Recorded] | None, speed: Speed, folder: Path
) -> dict[str, Path]:
    """Draw every result that was run and return the pictures by the name of the claim."""
    drawing = Drawing(folder)
    drawing.pushed_walk(found["walk"])
    drawing.medians("back-to-level", "pushed", found["full"], {"unpushed": found["calm"]})
    drawing.manifold(found["full"], found["mean"])
    drawing.medians("ablation", "full", found["full"], {"no contact, no range of motion": found["ablated"]})
    if recorded:
        drawing.recorded_wrench(recorded)
    drawing.corrected_wrench(found["run"], recorded)
    drawing.following(found)
    drawing.speed(speed)
    names = (
        "pushed-walk",
        "back-to-level",
        "manifold",
        "ablation",
        "recorded-wrench",
        "corrected-wrench",
        "following",
        "speed",
    )
    return {name: folder / f"{name}.png" for name in names if recorded or name != "recorded-wrench"}


def walk_motion(walks: Arrays, index: int) -> Motion:
    """Return one of the walks that were kept."""
    arrays = {name: walks[f"motion_{name}"][index].astype(float) for name in KEPT}
    return Motion(Skeleton.adult(), 30.0, **arrays, name="pushed walk")


def _curves(axes: Any, curves: Mapping[str, np.ndarray]) -> None:  # noqa: ANN401 - matplotlib is not loaded here
    for name, curve in curves.items():
        label, color = ENERGIES[name]
        axes.semilogy(np.maximum(curve, FLOOR), color=color, label=label, linewidth=1.2)
    _shade(axes)
    axes.set(xlabel="frame")
    axes.legend(fontsize=7, loc="upper right")


def _shade(axes: Any) -> None:  # noqa: ANN401
    axes.axvspan(*PUSHED, color="red", alpha=0.15)


def _columns(curves: Mapping[str, np.ndarray]) -> list[tuple[object, ...]]:
    return [(i, *map(float, values)) for i, values in enumerate(zip(*curves.values(), strict=True))]


def _filmstrip(motion: Motion) -> tuple[np.ndarray, list[int]]:
    """Draw some frames next to each other, and return which."""
    stage = as_stage(motion)
    frames = [frame for frame in STRIP if frame < len(motion)]
    cameras = follow(stage, camera=Camera(azimuth=facing(motion) + 55, distance=4.2))
    style = replace(CELL, caption="")
    return np.concatenate(
        [np.asarray(draw_frame(stage, i, camera=cameras[i], style=style)) for i in frames], axis=1
    ), frames
