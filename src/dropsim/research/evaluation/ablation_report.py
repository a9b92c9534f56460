"""The ablation's table and figure as files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dropsim.files.atomic import atomic_path
from dropsim.research.evaluation.ablation import AblationOptions, AblationRow, panels, row_names
from dropsim.research.evaluation.plots import new_figure, save_figure, write_csv
from dropsim.research.evaluation.report import Section, machine, write_json, write_page

SHOWN = {
    "setting": "setting", "value": "value", "people": "people", "recovered": "recovered", "fell": "fell", "fell_unpushed": "fell unpushed",
    "kinematic_before": "E_kin before [m^2]", "kinematic_recovery": "E_kin in 100-150 [m^2]", "root_wrench": "root wrench, 95 % [bw]",
    "skate": "skate [m/s]", "penetration_mm": "penetration [mm]", "jerk": "jerk [m/s^3]", "out_of_range_percent": "out of range [%]",
    "frechet": "Frechet to default", "frames_per_second": "frames/s a core",
}  # fmt: skip
"""Columns of the table."""
SHARES = ("recovered", "fell", "fell_unpushed")


def table_rows(rows: Sequence[AblationRow]) -> list[list[str]]:
    """Lay the rows out under a header."""
    return [list(SHOWN.values()), *([_shown(row, name) for name in SHOWN] for row in rows)]


def _shown(row: AblationRow, name: str) -> str:
    value = getattr(row, name)
    if name == "value" and row.setting == "default":
        return ""
    if name in SHARES:
        return f"{value:.0%}"
    return value if isinstance(value, str) else f"{value:.3g}"


def table(rows: Sequence[AblationRow]) -> str:
    """Lay the rows out in Markdown."""
    head, *body = table_rows(rows)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in body)]
    if lost := sum(row.diverged for row in rows):
        lines += ["", f"{lost} people are not counted because their simulation could not go on."]
    return "\n".join(lines) + "\n"


def write_ablation_report(rows: Sequence[AblationRow], options: AblationOptions, folder: Path) -> list[Path]:
    """Write the table (Markdown, CSV, JSON), a figure and a page, and return the files."""
    paths = [folder / f"ablation.{ending}" for ending in ("md", "csv", "json", "png", "html")]
    with atomic_path(paths[0]) as temporary:
        temporary.write_text(table(rows), encoding="utf-8")
    write_csv(paths[1], row_names(), [tuple(asdict(row).values()) for row in rows])
    facts = machine() | {name: str(value) for name, value in asdict(options).items()}
    write_json(paths[2], {"rows": [asdict(row) for row in rows], "made_by": facts})
    _draw(rows, options, paths[3])
    write_page(
        paths[4], "What each setting does", facts, [Section("One setting changed at a time", table=table_rows(rows), picture=paths[3])]
    )
    return paths


def _draw(rows: Sequence[AblationRow], options: AblationOptions, path: Path) -> None:
    """Recovery, E_kin and speed over the value of every setting that is a number."""
    found = panels(rows, options)
    figure, grid = new_figure(3, max(1, len(found)), size=(2.6 * max(1, len(found)), 6.6), sharey="row")
    for column, (name, points) in enumerate(found):
        values = [value for value, _ in points]
        usual = options.default_of(name)
        measures = (("recovered", "recovered"), ("kinematic_recovery", "E_kin in 100-150 [m²]"), ("frames_per_second", "frames/s a core"))
        for axes, (measure, label) in zip(grid[:, column], measures, strict=True):
            axes.plot(values, [getattr(row, measure) for _, row in points], marker=".")
            axes.axvline(usual, color="gray", linestyle=":", linewidth=0.9)
            axes.set_xscale("symlog")
            if measure != "recovered":
                axes.set_yscale("log")
            if column == 0:
                axes.set(ylabel=label)
        grid[0, column].set(title=name, ylim=(-0.02, 1.02))
    save_figure(figure, path, vector=True)
