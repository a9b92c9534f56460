"""The ablation's table and figure as files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dropsim.files.tables import shown, write_csv
from dropsim.research.evaluation.ablation import AblationOptions, AblationRow, default_of, panels
from dropsim.research.evaluation.plots import new_figure, save_figure
from dropsim.research.evaluation.report import Section, counted_table, machine, write_json, write_page, write_text

COLUMNS = {
    "setting": "setting", "value": "value", "people": "people", "recovered": "recovered", "fell": "fell", "fell_unpushed": "fell unpushed",
    "kinematic_before": "E_kin before [m^2]", "kinematic_recovery": "E_kin in 100-150 [m^2]", "root_wrench": "root wrench, 95 % [bw]",
    "skate": "skate [m/s]", "penetration_mm": "penetration [mm]", "jerk": "jerk [m/s^3]", "out_of_range_percent": "out of range [%]",
    "frechet": "Frechet to default", "frames_per_second": "frames/s a core",
}  # fmt: skip
"""Fields of a row and their headers."""
SHARES = ("recovered", "fell", "fell_unpushed")
DRAWN = {
    "recovered": "recovered",
    "kinematic_recovery": "E_kin in 100-150 [m²]",
    "frames_per_second": "frames/s a core",
}


def table_rows(rows: Sequence[AblationRow]) -> list[list[str]]:
    """Lay the rows out under a header."""

    def cell(row: AblationRow, name: str) -> str:
        value = getattr(row, name)
        if isinstance(value, str):
            return value
        return "" if name == "value" and row.setting == "default" else shown(value, ".0%" if name in SHARES else ".3g")

    return [list(COLUMNS.values()), *([cell(row, name) for name in COLUMNS] for row in rows)]


def table(rows: Sequence[AblationRow]) -> str:
    """Lay the rows out in Markdown."""
    return counted_table(table_rows(rows), sum(row.diverged for row in rows))


def write_ablation_report(rows: Sequence[AblationRow], options: AblationOptions, folder: Path) -> list[Path]:
    """Write the table (Markdown, CSV, JSON), a figure and a page, and return the files."""
    paths = [folder / f"ablation.{ending}" for ending in ("md", "csv", "json", "png", "html")]
    facts = machine() | {name: str(value) for name, value in asdict(options).items()}
    write_text(paths[0], table(rows))
    write_csv(paths[1], list(asdict(rows[0])), [tuple(asdict(row).values()) for row in rows])
    write_json(paths[2], {"rows": [asdict(row) for row in rows], "made_by": facts})
    _draw(rows, paths[3])
    section = Section("One setting changed at a time", table=table_rows(rows), picture=paths[3])
    write_page(paths[4], "What each setting does", facts, [section])
    return paths


def _draw(rows: Sequence[AblationRow], path: Path) -> None:
    """Recovery, E_kin and speed over the value of every setting that is a number."""
    found = panels(rows)
    figure, grid = new_figure(len(DRAWN), max(1, len(found)), size=(2.6 * max(1, len(found)), 6.6), sharey="row")
    for column, (name, points) in enumerate(found.items()):
        for axes, (measure, label) in zip(grid[:, column], DRAWN.items(), strict=True):
            axes.plot([value for value, _ in points], [getattr(row, measure) for _, row in points], marker=".")
            axes.axvline(default_of(name), color="gray", linestyle=":", linewidth=0.9)
            axes.set(
                xscale="symlog",
                yscale="linear" if measure == "recovered" else "log",
                ylabel=label if column == 0 else "",
            )
        grid[0, column].set(title=name, ylim=(-0.02, 1.02))
    save_figure(figure, path, vector=True)
