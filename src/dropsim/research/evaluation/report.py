"""The report of every evaluation as Markdown, JSON and figures, and one self-contained page of all of them."""

import base64
import datetime
import html
import json
import math
import os
import platform
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dropsim.files.atomic import atomic_path, write_text
from dropsim.files.tables import markdown, shown, write_csv
from dropsim.research.evaluation.harness import Amounts, Arrays, Body, Chunk, Watch, num_diverged, run_chunks

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
    spans: Sequence[tuple[float, float] | tuple[int, int]] = ()
    """Ranges of the abscissa that are shaded."""


Figure = Sequence[Panel]
"""Panels next to each other."""


def draw(figure: Figure, path: Path, *, columns: int | None = None) -> Path:
    """Draw panels as PNG, in one row unless given, and write their curves as CSV; return the PNG."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise ValueError("figures need matplotlib: install it with `pip install 'dropsim[evaluate]'`") from None
    across = columns or len(figure)
    down = math.ceil(len(figure) / across)
    drawn = Canvas(figsize=(5.5 * across, 3.4 * down), layout="constrained")
    rows = list[tuple[str, str, float, float]]()
    for axes, panel in zip(drawn.subplots(down, across, squeeze=False).flat, figure, strict=False):
        lowest = FLOOR if panel.axes.get("yscale") == "log" else -math.inf
        for label, (x, y) in panel.curves.items():
            axes.plot(x, np.maximum(y, lowest), label=label, linewidth=1.2)
            rows += [(panel.title, label, float(a), float(b)) for a, b in zip(x, y, strict=True)]
        for span in panel.spans:
            axes.axvspan(*span, color="red", alpha=0.15)
        axes.set(title=panel.title, **panel.axes)
        axes.legend(fontsize=7)
    with atomic_path(path) as temporary:
        drawn.savefig(temporary, dpi=110)
    write_csv(path.with_suffix(".csv"), ("panel", "curve", "x", "y"), rows)
    return path


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
img{max-width:100%;border:1px solid #ddd}table{border-collapse:collapse;font-size:13px}
td{border:1px solid #ccc;padding:.2rem .5rem}tr:first-child{font-weight:bold}"""
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
    path = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", path.read_text(encoding="utf-8")) if path.exists() else []
    return next(iter(names), platform.processor() or "unknown processor")


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


class Protocol(Amounts):
    """People to simulate, and their statistics; a dataclass of the numbers of people."""

    name: ClassVar[str]
    title: ClassVar[str]

    @property
    @abstractmethod
    def caption(self) -> str:
        """Numbers of people, in words."""

    @abstractmethod
    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work."""

    @abstractmethod
    def statistics(self, tables: Mapping[str, Arrays]) -> Iterable[Statistic]:
        """Return the statistics of the tables of all chunks."""

    def evaluate(self, body: Body, folder: Path, *, workers: int = 1, watch: Watch = None) -> "Report":
        """Run all chunks, saved in a folder, and report the statistics in one table."""
        tables = run_chunks(self.chunks(body), folder, workers=workers, watch=watch)
        statistics = list(self.statistics(tables))
        numbers = {"statistics": [asdict(one) for one in statistics]}
        rows = {self.name: Table(self.title, statistic_rows(statistics))}
        return Report(self.name, self.title, rows, numbers, self, self.caption, num_diverged(tables.values()))


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
        about = {
            "diverged": self.diverged,
            "made_by": made_by,
            "caption": f"{self.caption}; dropsim {made_by['dropsim']}, {made_by['made']}.",
            "tables": {name: {"title": t.title, "rows": t.rows} for name, t in self.tables.items() if not t.detail},
        }
        return {**self.numbers, **({} if self.protocol is None else {"protocol": asdict(self.protocol)}), **about}

    def write(self, folder: Path | None, copy: Path | None = None) -> list[Path]:
        """Write Markdown, JSON and figures into a folder, and the JSON also elsewhere; return the files."""
        values, paths = self.as_json(), [] if copy is None else [copy]
        if folder is not None:
            paths.append(folder / f"{self.name}.json")
        for path in paths:
            write_json(path, values)
        if folder is not None:
            paths.append(folder / f"{self.name}.md")
            write_text(paths[-1], self.text(detail=True))
            paths += [draw(figure, folder / f"{name}.png") for name, figure in self.figures.items()]
        return paths


def write_json(path: Path, value: object) -> None:
    """Write JSON, with null for numbers that are not finite."""
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def plain(value: object) -> Any:  # noqa: ANN401
    """Return what JSON has of a value, with None for numbers that are not finite."""
    return json.loads(json.dumps(value, default=str), parse_constant=lambda name: None)


def write_page(path: Path, tables: Iterable[Table], pictures: Iterable[Path]) -> None:
    """Write one HTML file with its tables and pictures inside."""
    title, how = "dropsim, evaluated", Table("How it was made", [["what", ""], *map(list, machine().items())])
    parts = [f"<h1>{title}</h1>"]
    for table in (*tables, how):
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.rows)
        cells = "".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(f"<h2>{html.escape(table.title)}</h2><table>{cells}</table>")
    for picture in pictures:
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        name = html.escape(picture.relative_to(path.parent).with_suffix("").as_posix())
        parts.append(f'<h2>{name}</h2><img alt="" src="data:image/png;base64,{data}">')
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    write_text(path, f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n')


# --- Everything on one page, and the tables of the documentation.


def write_summary(folder: Path, *, docs: Path | None = None) -> list[Path]:
    """Write report.html and results.json of the reports in the subfolders; also fill the tables of a page of docs.

    The page's own results.json, next to it, has its tables only.
    """
    files = [path for path in sorted(folder.glob("*/*.json")) if path.parent.name == path.stem]
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}
    tables = [Table(**table) for part in results.values() for table in part["tables"].values()]
    pictures = [path for part in results for path in sorted((folder / part).rglob("*.png"))]
    paths = [folder / "report.html", folder / "results.json"]
    write_page(paths[0], tables, pictures)
    write_json(paths[1], results)
    if docs is not None:
        results = {name: {key: part[key] for key in ("caption", "tables")} for name, part in results.items()}
        paths += [docs.with_name("results.json"), docs]
        write_json(paths[2], results)
        fill_tables(docs, results)
    return paths


def filled(text: str, results: Mapping[str, Any]) -> str:
    """Return a page with the tables of results between its marks."""
    tables = {name: (part["caption"], table) for part in results.values() for name, table in part["tables"].items()}

    def table(match: re.Match[str]) -> str:
        body = NOT_MEASURED
        if match[1] in tables:
            caption, table = tables[match[1]]
            body = f"{caption}\n\n{markdown(table['rows'])}"
        return f"<!-- table: {match[1]} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def fill_tables(path: Path, results: Mapping[str, Any], required: str = "") -> None:
    """Rewrite the tables of a page; a required one has to have its place there."""
    text, mark = path.read_text(encoding="utf-8"), f"<!-- table: {required} -->"
    if required and mark not in text:
        raise ValueError(f"{path} has no block to fill: put the lines {mark} and <!-- end --> into it")
    write_text(path, filled(text, results))
