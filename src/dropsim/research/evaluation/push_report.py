"""The push protocol's tables and figures as files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dropsim.files.tables import write_csv
from dropsim.research.evaluation.plots import new_figure, save_figure
from dropsim.research.evaluation.push import MEASURES, PushCell, PushReport, table, table_rows
from dropsim.research.evaluation.report import Section, machine, write_page, write_text
from dropsim.scene.perturbations import degrees_of

SHOWN = (("recovered", "Recovered"), ("fell", "Fell"))


def write_push_report(report: PushReport, folder: Path) -> list[Path]:
    """Write the tables (Markdown, CSV, JSON is the caller's), polar plots, heat maps and a page, and return the files."""
    methods = list(dict.fromkeys(cell.method for cell in report.cells))
    paths = [folder / name for name in ("push.md", "push.csv", "trials.csv", "directions.png", "heat.png", "push.html")]
    overview = [cell for method in methods for cell in report.grouped("newtons", method=method)]
    parts = {"By method and force": overview} | {
        f"The full method by force and {name}": report.grouped("newtons", name)
        for name in ("direction", "start", "part", "moment")
    }
    write_text(paths[0], "\n".join(f"## {title}\n\n{table(cells)}" for title, cells in parts.items()))
    write_csv(paths[1], list(asdict(report.cells[0])), [tuple(asdict(cell).values()) for cell in report.cells])
    write_csv(paths[2], _TRIAL_HEADER, _trial_rows(report))
    _draw_directions(report, methods, paths[3])
    _draw_heat(report, paths[4])
    pictures = {"By method and force": paths[3], "The full method by force and direction": paths[4]}
    sections = [
        Section(title, picture=pictures.get(title), table=table_rows(cells)) for title, cells in parts.items() if cells
    ]
    facts = machine() | {name: str(value) for name, value in asdict(report.protocol).items()}
    write_page(paths[5], "People who are pushed", facts, sections)
    return paths


_NUMBERS = MEASURES[:-1]
_TRIAL_HEADER = ("method", "newtons", "direction", "part", "start", "moment", "person", "seed", "diverged", *_NUMBERS)


def _trial_rows(report: PushReport) -> list[tuple[object, ...]]:
    rows = []
    for outcome in report.outcomes:
        numbers = (
            ("",) * len(_NUMBERS)
            if outcome.numbers is None
            else tuple(float(outcome.numbers[name]) for name in _NUMBERS)
        )
        rows.append(
            (outcome.method, *asdict(outcome.case).values(), outcome.trial.seed, outcome.numbers is None, *numbers)
        )
    return rows


def _draw_directions(report: PushReport, methods: Sequence[str], path: Path) -> None:
    """Polar plots by the direction that people are driven in, front up: the share that recovers, one panel for each force."""
    forces = report.protocol.newtons
    figure, (row,) = new_figure(1, len(forces), size=(3.4 * len(forces), 3.9), subplot_kw={"projection": "polar"})
    for axes, newtons in zip(row, forces, strict=True):
        for method in methods:
            cells = [cell for cell in report.grouped("newtons", "direction", method=method) if cell.newtons == newtons]
            cells = sorted(cells, key=lambda cell: degrees_of(cell.direction or "front") % 360)
            angles = [np.radians(degrees_of(cell.direction or "front")) for cell in cells]
            shares = [cell.recovered for cell in cells]
            axes.plot([*angles, *angles[:1]], [*shares, *shares[:1]], marker=".", label=method)
        axes.set_theta_zero_location("N")
        axes.set(ylim=(0, 1.02), title=f"{newtons:g} N", yticks=(0.25, 0.5, 0.75, 1.0), yticklabels=[])
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(methods), fontsize=8)
    save_figure(figure, path, vector=True)


def _draw_heat(report: PushReport, path: Path) -> None:
    """Shares that recover and fall, by force and direction."""
    forces, directions = report.protocol.newtons, report.protocol.directions
    cells: dict[tuple[float | None, str | None], PushCell] = {
        (c.newtons, c.direction): c for c in report.grouped("newtons", "direction")
    }
    figure, (row,) = new_figure(1, len(SHOWN))
    for axes, (name, title) in zip(row, SHOWN, strict=True):
        shares = np.array([[getattr(cells[n, d], name) for d in directions] for n in forces])
        picture = axes.imshow(shares, vmin=0, vmax=1, origin="lower", aspect="auto", cmap="viridis")
        axes.set(title=title, xlabel="driven toward", ylabel="force [N]")
        axes.set(xticks=range(len(directions)), yticks=range(len(forces)), yticklabels=[f"{n:g}" for n in forces])
        axes.set_xticklabels(directions, rotation=45)
        for (i, j), share in np.ndenumerate(shares):
            axes.text(
                j, i, f"{share:.0%}", ha="center", va="center", fontsize=7, color="white" if share < 0.6 else "black"
            )
        figure.colorbar(picture, ax=axes)
    save_figure(figure, path, vector=True)
