"""Progress for every command alike: bars, and a word to people who would otherwise wait without one."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compiling the simulator's kernels, once, about 30 s"
KERNELS = 110
"""Number of kernels that a step compiles, about."""
PERIOD = 10.0
"""Time between two lines where there is no terminal [s]."""


def tell_of_compiling() -> None:
    """Say that this run compiles the kernels, unless they are compiled; numba need not be loaded for that."""
    from dropsim.compute.jit import compiled

    if not compiled():
        print(f"dropsim: {COMPILING}", file=sys.stderr, flush=True)


@contextmanager
def compiling() -> Iterator[None]:
    """Show how far the compilation is while a first step is made."""
    from dropsim.compute.jit import compiled, kernel_folder

    folder = kernel_folder()
    if folder is None or compiled():
        yield
        return
    done, terminal = threading.Event(), sys.stderr.isatty()

    def show() -> None:
        began = time.monotonic()
        while not done.wait(0.5 if terminal else PERIOD):
            count = sum(1 for _ in folder.rglob("*.nbi"))
            line = f"dropsim: {count} of about {KERNELS} kernels, {time.monotonic() - began:.0f} s"
            print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        if terminal:
            print(file=sys.stderr)


@contextmanager
def told_if_long(message: str, seconds: float = 2.0) -> Iterator[None]:
    """Say why it takes long, once it does."""
    timer = threading.Timer(seconds, lambda: print(f"dropsim: {message}", file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def bar(what: str, *, rate: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, with the rate per minute if asked, and yield its function advance(done, total)."""
    from rich import progress as rich
    from rich.console import Console

    columns = [rich.TextColumn(f"[bold]{what}"), rich.BarColumn(), rich.MofNCompleteColumn()]
    if rate:
        columns.append(rich.TextColumn("{task.fields[rate]}"))
    progress = rich.Progress(*columns, rich.TimeRemainingColumn(), console=Console(stderr=True))
    task = progress.add_task(what, total=None, rate="-/min")

    def advance(done: int, total: int) -> None:
        # Nothing is shown before there is something to count, so that an error stays one line.
        progress.start()
        speed = progress.tasks[0].speed
        progress.update(task, completed=done, total=total, rate=f"{60 * speed:.0f}/min" if speed else "-/min")

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()
