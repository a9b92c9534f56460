"""Progress for every command alike: bars, and a word to people who would otherwise wait without one."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compiling the simulator's kernels, once, about 30 s"
PERIOD = 5.0
"""Time between two lines while kernels are compiled [s]."""
LOG_PERIOD = 30.0
"""Time between two lines in place of a bar if there is no terminal [s]."""


def tell_of_compiling() -> None:
    """Say that this run compiles the kernels, unless they are compiled; numba need not be loaded for that."""
    from dropsim.compute.jit import compiled

    if not compiled():
        print(f"dropsim: {COMPILING}", file=sys.stderr, flush=True)


@contextmanager
def compiling() -> Iterator[None]:
    """Say now and then how many kernels are compiled, while something is done for the first time."""
    from dropsim.compute.jit import kernel_folder

    folder, done = kernel_folder(), threading.Event()

    def show() -> None:
        while folder is not None and not done.wait(PERIOD):
            print(f"dropsim: {len(list(folder.rglob('*.nbi')))} kernels compiled", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, or now and then a line in a log, and yield its function advance(done, total)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn(f"[bold]{what}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    progress = Progress(*columns, console=Console(stderr=True))
    task, terminal = progress.add_task(what, total=None), sys.stderr.isatty()
    began = last = time.monotonic()
    before: int | None = None

    def advance(done: int, total: int) -> None:
        nonlocal before, last
        if terminal:
            # Nothing is shown before there is something to count, so that an error stays one line.
            progress.start()
            progress.update(task, completed=done, total=total)
            return
        before, now = done if before is None else before, time.monotonic()
        rate = 60 * (done - before) / max(now - began, 1e-9)
        if rate and now - last > (1.0 if done == total else LOG_PERIOD):
            last, left = now, (total - done) / rate
            line = f"{done} of {total} {what}, {rate:.0f} per minute, {left:.0f} min left"
            print(line, file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()
