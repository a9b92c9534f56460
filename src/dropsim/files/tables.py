"""Tables as text."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from dropsim.files.atomic import atomic_path


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Lay rows out in Markdown; the first is the header."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join((head, "|" + "---|" * (head.count(" | ") + 1), *body))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table; numbers keep six digits."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in rows)


def shown(value: float | int | None, form: str = ".3g", *, otherwise: str = "") -> str:
    """Format a number for a table; None and NaN, which were not measured, become `otherwise`."""
    return otherwise if value is None or math.isnan(value) else f"{value:{form}}"
