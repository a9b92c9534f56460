"""Progress bars, for every command alike, and a word to those who would wait without one."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "kernels"


def tell_of_compiling() -> None:
    """Say that the first run takes longer, where numba will keep what it compiles beside the package and nothing is there yet."""
    if os.environ.get("DROPSIM_KERNELS", "1") == "0" or "NUMBA_CACHE_DIR" in os.environ or not os.access(KERNELS, os.W_OK):
        return
    if not any((KERNELS / "__pycache__").glob("*.nbi")):
        print("dropsim: the inner loops are compiled now, once, which takes about a minute", file=sys.stderr, flush=True)


def tell_of_simple_figures() -> None:
    """Say that pictures were drawn without OpenGL, and why: after the work, so that an error stays one line."""
    from dropsim.render import missing_gl

    if (why := missing_gl()) is not None:
        print(f"dropsim: {why}; drew simple figures instead", file=sys.stderr)


@contextmanager
def bar(what: str, *, rate: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, with how many a minute where that is asked for, and yield the function that moves it: advance(done, total)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{60 * speed:.0f}/min" if speed else "-/min")

    columns = (TextColumn(f"[bold]{what}"), BarColumn(), MofNCompleteColumn(), *([Rate()] if rate else []), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(what, total=None)

    def advance(done: int, total: int) -> None:
        # Nothing is shown before there is something to count, so that an error stays one line.
        progress.start()
        progress.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()
