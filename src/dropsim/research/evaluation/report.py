"""A report as one self-contained page, its tables, and the machine that it was made on."""

import base64
import datetime
import html
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from dropsim.files.atomic import atomic_path
from dropsim.files.tables import markdown

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
img{max-width:100%;border:1px solid #ddd}table{border-collapse:collapse;font-size:13px}
td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}
.reproduced{color:#0a7a2f}.not{color:#b3261e}.open{color:#777}dt{font-weight:600}"""


def machine() -> dict[str, str]:
    """Say on what the numbers were made."""
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
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    text: Sequence[str] = ()
    """Paragraphs."""
    mark: str = ""
    """A word next to the title: reproduced, not reproduced, not run."""
    picture: Path | None = None
    table: Sequence[Sequence[str]] = ()
    """Rows, the first being the header."""


@dataclass(frozen=True)
class Bound:
    """What a number is judged by."""

    low: float | int
    high: float | int
    people: str
    """What real people do, with the source, or how the number is to be read."""


def number_rows(numbers: Mapping[str, object], bounds: Mapping[str, Bound]) -> list[list[str]]:
    """Lay the main numbers out next to their bars, under a header."""
    flat = {}
    for name, value in numbers.items():
        flat |= {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, Mapping) else {name: value}
    rows = [["number", "here", "bar", "", "real people, or how to read it"]]
    for name, value in flat.items():
        bound = bounds.get(name)
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        if bound is None or not isinstance(value, float | int) or math.isnan(value):
            rows.append([name, text, "", "", "" if bound is None else bound.people])
            continue
        bar = f"{bound.low:g} to {bound.high:g}" if bound.low else f"at most {bound.high:g}"
        rows.append([name, text, bar, "holds" if bound.low <= value <= bound.high else "misses", bound.people])
    return rows


def counted_table(rows: Sequence[Sequence[str]], diverged: int) -> str:
    """Lay rows out in Markdown, the first being the header, and say how many people they leave out."""
    note = f"\n{diverged} people are not counted because their simulation could not go on.\n" if diverged else ""
    return f"{markdown(rows)}\n{note}"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_page(path: Path, title: str, facts: Mapping[str, object], sections: Sequence[Section]) -> None:
    """Write one HTML file with its pictures inside."""
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts.items())
    body = "\n".join(_section(section) for section in sections)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title><style>{STYLE}</style></head><body>'
        f"<h1>{_text(title)}</h1>\n{body}\n<h2>How it was made</h2><table>{rows}</table></body></html>\n"
    )
    write_text(path, page)


def write_json(path: Path, value: object) -> None:
    """Write JSON, with null for what is not a finite number."""
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def plain(value: object) -> object:
    """Replace what JSON has no number for by null."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    return html.escape(str(value))


def _section(section: Section) -> str:
    color = {"reproduced": "reproduced", "not reproduced": "not"}.get(section.mark, "open")
    mark = f' <small class="{color}">{_text(section.mark)}</small>' if section.mark else ""
    parts = [f"<h2>{_text(section.title)}{mark}</h2>", *(f"<p>{_text(line)}</p>" for line in section.text)]
    if section.table:
        head, *rows = section.table
        lines = [
            "".join(f"<th>{_text(cell)}</th>" for cell in head),
            *("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows),
        ]
        parts.append(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")
    if section.picture is not None:
        data = base64.b64encode(section.picture.read_bytes()).decode("ascii")
        parts.append(f'<img alt="{_text(section.title)}" src="data:image/png;base64,{data}">')
    return "\n".join(parts)
