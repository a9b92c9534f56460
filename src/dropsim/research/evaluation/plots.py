"""Figures as files; matplotlib is loaded when the first one is drawn."""

from pathlib import Path
from typing import Any

from dropsim.files.atomic import atomic_path

FLOOR = 1e-9
"""Smallest value that a logarithmic axis shows."""


def new_figure(rows: int, columns: int, *, size: tuple[float, float] | None = None, **axes: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return an empty figure and its axes, rows x columns; a size is in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("figures need matplotlib: install it with `pip install 'dropsim[evaluate]'`") from None
    figure = Figure(figsize=size or (5.0 * columns, 3.6 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **axes)


def save_figure(figure: Any, path: Path, *, vector: bool = False) -> None:  # noqa: ANN401 - matplotlib is not loaded here
    """Write a PNG, and an SVG next to it if wanted; the same figure makes the same files."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=110)
    if vector:
        import matplotlib as mpl

        with mpl.rc_context({"svg.hashsalt": path.stem}), atomic_path(path.with_suffix(".svg")) as temporary:
            figure.savefig(temporary, metadata={"Date": None})
