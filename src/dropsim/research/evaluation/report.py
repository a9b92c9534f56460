"""The report of every evaluation: tables, numbers and figures as Markdown, JSON and one self-contained page."""

import base64
import datetime
import html
import json
import math
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.files.atomic import atomic_path
from dropsim.files.tables import markdown, shown, write_csv
from dropsim.research.evaluation.harness import Arrays, num_diverged

FLOOR = 1e-9
"""Smallest value that a logarithmic axis shows."""


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes."""

    title: str
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """Abscissae and values by label."""
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of matplotlib's axes, such as xlabel and yscale."""
    spans: Sequence[tuple[int, int]] = ()
    """Ranges of the abscissa that are shaded."""


Figure = Sequence[Panel]
"""Panels next to each other."""


def draw(figure: Figure, path: Path) -> Path:
    """Draw panels as PNG, and write their curves as CSV; return the PNG."""
    drawn, (row,) = new_figure(1, len(figure))
    rows = list[tuple[str, str, float, float]]()
    for axes, panel in zip(row, figure, strict=True):
        lowest = FLOOR if panel.axes.get("yscale") == "log" else -math.inf
        for label, (x, y) in panel.curves.items():
            axes.plot(x, np.maximum(y, lowest), label=label, linewidth=1.2)
            rows += [(panel.title, label, float(a), float(b)) for a, b in zip(x, y, strict=True)]
        for span in panel.spans:
            axes.axvspan(*span, color="red", alpha=0.15)
        axes.set(title=panel.title, **panel.axes)
        axes.legend(fontsize=7)
    save_figure(drawn, path)
    write_csv(path.with_suffix(".csv"), ("panel", "curve", "x", "y"), rows)
    return path


def new_figure(rows: int, columns: int, *, sharex: bool = False) -> tuple[Any, Any]:
    """Return an empty figure and its axes, rows x columns."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("figures need matplotlib: install it with `pip install 'dropsim[evaluate]'`") from None
    figure = Figure(figsize=(5.5 * columns, 3.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex)


def save_figure(figure: Any, path: Path) -> None:  # noqa: ANN401 - not loaded here
    """Write a PNG; the same figure makes the same file."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=110)


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
img{max-width:100%;border:1px solid #ddd}table{border-collapse:collapse;font-size:13px}
td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}"""
RESAMPLES = 100
"""Bootstrap samples for the error of a statistic."""
NOT_MEASURED = "Not measured yet with this version."
Rows = Sequence[Sequence[str]]
"""Rows of a table, the first being the header."""


def machine() -> dict[str, str]:
    """Return what the numbers were made on and when."""
    return {
        "dropsim": version("dropsim"),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "scipy")),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")


@dataclass(frozen=True)
class Statistic:
    """One number about how people move.

    The error of a share is a quarter of Wilson's interval of two standard errors, which is not 0 for nobody or
    everybody; that of the worst cell is the standard error of its mean; all others are the standard deviation over 100
    bootstrap samples of the people.
    """

    name: str
    value: float
    unit: str
    people: int
    """Number of people, or of windows or clips of recordings."""
    error: float
    """Sampling error, in the unit."""
    target: str = ""
    """Value to reach; empty for numbers without one."""
    law: str = ""
    """Law or recorded fact by which the number is read."""


def share(name: str, flags: np.ndarray | Sequence[Any], target: str = "", law: str = "") -> Statistic:
    """Return the share of people for whom something holds; its error is a quarter of Wilson's interval of two sigma."""
    n = len(flags)
    if not n:
        return Statistic(name, math.nan, "share", 0, math.nan, target, law)
    p = float(np.mean(flags))
    return Statistic(name, p, "share", n, math.sqrt(p * (1 - p) / n + 1 / n**2) / (1 + 4 / n), target, law)


def resampled(
    name: str, unit: str, values: np.ndarray, measure: Callable[..., Any], target: str = "", law: str = ""
) -> Statistic:
    """Return a measure of the rows of an array, with its standard deviation over bootstrap samples of them."""
    n = len(values)
    if not n:
        return Statistic(name, math.nan, unit, 0, math.nan, target, law)
    draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    error = np.std([float(measure(values[draw])) for draw in draws])
    return Statistic(name, float(measure(values)), unit, n, float(error), target, law)


def statistic_rows(statistics: Sequence[Statistic]) -> list[list[str]]:
    """Lay statistics out under a header; shares are in percent."""
    rows = [["statistic", "value", "unit", "error", "people", "target", "law or recorded fact"]]
    for one in statistics:
        scale, unit = (100, "%") if one.unit == "share" else (1, one.unit)
        numbers = [shown(scale * one.value), unit, shown(scale * one.error, ".2g")]
        rows.append([one.name, *numbers, str(one.people), one.target, one.law])
    return rows


def report_statistics(
    name: str,
    title: str,
    statistics: Sequence[Statistic],
    protocol: object,
    caption: str,
    tables: Mapping[str, Arrays],
) -> "Report":
    """Return a report of one table of statistics; `tables` of the harness tell how many people diverged."""
    numbers = {"statistics": [asdict(one) for one in statistics]}
    rows = {name: Table(title, statistic_rows(statistics))}
    return Report(name, title, rows, numbers, protocol, caption, num_diverged(tables.values()))


def column_rows(columns: Mapping[str, str], items: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Lay items out under the titles of their keys, `title|format`, without columns that are empty in all of them."""
    laid = list[list[str]]()
    for key, title in columns.items():
        name, _, form = title.partition("|")
        values = [item.get(key) for item in items]
        cells = [value if isinstance(value, str) else shown(value, form or ".3g") for value in values]
        laid += [[name, *cells]] if any(cells) else []
    return [list(row) for row in zip(*laid, strict=True)]


@dataclass(frozen=True)
class Table:
    """A part of a report."""

    title: str
    rows: Rows
    detail: bool = False
    """True for a table that is written to files and not printed."""


@dataclass(frozen=True)
class Report:
    """The result of an evaluation."""

    name: str
    """Name of the files."""
    title: str
    tables: Mapping[str, Table]
    """Tables by the names that a page of documentation calls them."""
    numbers: Mapping[str, Any]
    """Everything that was measured, as plain values for JSON."""
    protocol: Any = None
    """Dataclass that says how much was measured."""
    caption: str = ""
    """Number of people that the tables are about."""
    diverged: int = 0
    """People whose simulation could not go on; they count in nothing else."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Figures by the names of their files."""
    files: tuple[Path, ...] = ()
    """Files that were written before, such as pictures of people."""

    def text(self, *, detail: bool = False) -> str:
        """Return the tables in Markdown."""
        tables = [table for table in self.tables.values() if detail or not table.detail]
        parts = [f"## {table.title}\n\n{markdown(table.rows)}\n" for table in tables]
        if self.diverged:
            parts.append(f"{self.diverged} people are not counted because their simulation could not go on.\n")
        return "\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return the numbers by name, and then how they were made and the tables."""
        made_by = machine()
        tables = {
            name: {"title": table.title, "rows": table.rows} for name, table in self.tables.items() if not table.detail
        }
        about = {"caption": f"{self.caption}; dropsim {made_by['dropsim']}, {made_by['made']}.", "tables": tables}
        protocol = {} if self.protocol is None else {"protocol": asdict(self.protocol)}
        return {**self.numbers, "diverged": self.diverged, **protocol, "made_by": made_by, **about}

    def write(self, folder: Path | None, *copies: Path | None) -> list[Path]:
        """Write Markdown, JSON, figures and a page into a folder, and the JSON also elsewhere; return the files."""
        values, paths = self.as_json(), [path for path in copies if path is not None]
        if folder is not None:
            paths.append(folder / f"{self.name}.json")
        for path in paths:
            write_json(path, values)
        if folder is None:
            return paths
        text, page = (folder / f"{self.name}.{ending}" for ending in ("md", "html"))
        pictures = [*(draw(figure, folder / f"{name}.png") for name, figure in self.figures.items()), *self.files]
        write_text(text, self.text(detail=True))
        facts = values["made_by"] | values.get("protocol", {})
        write_page(page, self.title, facts, list(self.tables.values()), pictures)
        return [*paths, text, page, *pictures]


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write JSON, with null for numbers that are not finite."""
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def plain(value: object) -> object:
    """Replace numbers that JSON does not have by null."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_page(
    path: Path, title: str, facts: Mapping[str, object], tables: Sequence[Table], pictures: Sequence[Path] = ()
) -> None:
    """Write one HTML file with its tables and pictures inside."""
    parts = [f"<h1>{_text(title)}</h1>"]
    for table in tables:
        parts += [f"<h2>{_text(table.title)}</h2>", _html_table(table.rows)]
    for picture in pictures:
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        parts.append(f'<h2>{_text(picture.stem)}</h2><img alt="" src="data:image/png;base64,{data}">')
    parts += ["<h2>How it was made</h2>", _html_table([[name, str(value)] for name, value in facts.items()], head="td")]
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{STYLE}</style>'
    write_text(path, f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n')


def _text(value: object) -> str:
    return html.escape(str(value))


def _html_table(rows: Rows, head: str = "th") -> str:
    tags = [head, *["td"] * (len(rows) - 1)]
    lines = ("".join(f"<{t}>{_text(cell)}</{t}>" for cell in row) for t, row in zip(tags, rows, strict=True))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


# --- Everything on one page, and the tables of the documentation.


def write_summary(folder: Path, *, docs: Path | None = None) -> list[Path]:
    """Write report.html and results.json of the reports in the subfolders; also fill the tables of a page of docs.

    The page's own results.json, next to it, has its tables only.
    """
    files = [path for path in sorted(folder.glob("*/*.json")) if path.parent.name == path.stem]
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}
    tables = [Table(table["title"], table["rows"]) for part in results.values() for table in part["tables"].values()]
    pictures = [path for part in results for path in sorted((folder / part).glob("*.png"))]
    paths = [folder / "report.html", folder / "results.json"]
    write_page(paths[0], "dropsim, evaluated", machine(), tables, pictures)
    write_json(paths[1], results)
    if docs is not None:
        shown_there = {name: {key: part[key] for key in ("caption", "tables")} for name, part in results.items()}
        write_json(docs.with_name("results.json"), shown_there)
        fill_tables(docs, shown_there)
        paths += [docs.with_name("results.json"), docs]
    return paths


def filled(text: str, results: Mapping[str, Any]) -> str:
    """Return a page with the tables of results between its marks."""
    tables = {
        name: (part["caption"], table["rows"]) for part in results.values() for name, table in part["tables"].items()
    }

    def table(match: re.Match[str]) -> str:
        caption, rows = tables.get(match[1], (NOT_MEASURED, ()))
        body = f"{caption}\n\n{markdown(rows)}" if rows else caption
        return f"<!-- table: {match[1]} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def fill_tables(path: Path, results: Mapping[str, Any], required: str = "") -> None:
    """Rewrite the tables of a page; a required one has to have its place there."""
    text = path.read_text(encoding="utf-8")
    if required and f"<!-- table: {required} -->" not in text:
        raise ValueError(
            f"{path} has no block to fill: put the lines <!-- table: {required} --> and <!-- end --> into it"
        )
    write_text(path, filled(text, results))
