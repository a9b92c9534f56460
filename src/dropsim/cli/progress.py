"""Progress bars, for every command alike."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr and yield the function that moves it: advance(done, total)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"[bold]{what}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
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
