"""Figures as files; matplotlib is loaded when the first one is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.files.atomic import atomic_path
from dropsim.files.tables import write_csv

FLOOR = 1e-9
"""Smallest value that a logarithmic axis shows."""


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes."""

    title: str
    curves: Mapping[str, np.ndarray | tuple[np.ndarray, np.ndarray]]
    """Values by label, over their index or with their abscissae first."""
    x: str = "frame"
    y: str = ""
    marker: str = ""
    """Marker of the points, such as "."; no lines are drawn with "o"."""
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of matplotlib's axes, such as yscale."""
    spans: Sequence[tuple[int, int]] = ()
    """Ranges of the abscissa that are shaded."""
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges of the ordinate that are shaded, by label."""

    def points(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return abscissae and values by label."""
        return {k: v if isinstance(v, tuple) else (np.arange(len(v)), v) for k, v in self.curves.items()}


Figure = Sequence[Panel]
"""Panels next to each other."""


def draw(figure: Figure, path: Path) -> Path:
    """Draw panels as PNG, and write their curves as CSV; return the PNG."""
    drawn, (row,) = new_figure(1, len(figure))
    for axes, panel in zip(row, figure, strict=True):
        log = panel.axes.get("yscale") == "log"
        for label, (x, y) in panel.points().items():
            line = {"linestyle": "", "markersize": 2} if panel.marker == "o" else {"linewidth": 1.2}
            axes.plot(x, np.maximum(y, FLOOR) if log else y, label=label, marker=panel.marker, **line)
        for span in panel.spans:
            axes.axvspan(*span, color="red", alpha=0.15)
        for label, (low, high) in panel.bands.items():
            axes.axhspan(low, high, color="gray", alpha=0.2, label=label)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, **panel.axes)
        if panel.curves:
            axes.legend(fontsize=7)
    save_figure(drawn, path)
    rows = []
    for panel in figure:
        for label, (x, y) in panel.points().items():
            rows += [(panel.title, label, float(a), float(b)) for a, b in zip(x, y, strict=True)]
    write_csv(path.with_suffix(".csv"), ("panel", "curve", "x", "y"), rows)
    return path


def new_figure(
    rows: int,
    columns: int,
    *,
    size: tuple[float, float] | None = None,
    **axes: Any,  # noqa: ANN401
) -> tuple[Any, Any]:
    """Return an empty figure and its axes, rows x columns; a size is in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("figures need matplotlib: install it with `pip install 'dropsim[evaluate]'`") from None
    figure = Figure(figsize=size or (5.0 * columns, 3.6 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **axes)


def save_figure(figure: Any, path: Path) -> None:  # noqa: ANN401 - not loaded here
    """Write a PNG; the same figure makes the same file."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=110)
