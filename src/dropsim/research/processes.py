"""Work in several processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

Job = TypeVar("Job")


def in_processes(
    num: int, work: Callable[[Job], object], jobs: Sequence[Job], say: Callable[[Job], str]
) -> Iterator[Job]:
    """Do jobs in any order and yield each when it is done; a single worker is this process.

    `say` names a job in messages.
    """
    if num == 1:
        for job in jobs:
            with _named(say(job)):
                work(job)
            yield job
        return
    # Spawned, because a fork would inherit threads in whatever state they are in.
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(num, context, _begin_work, (theirs,))
    try:
        running = {pool.submit(work, job): job for job in jobs}
        for future in as_completed(running):
            with _named(say(running[future])):
                future.result()
            yield running[future]
    except BrokenProcessPool:
        why = "a worker was killed, perhaps because memory ran out"
        raise ValueError(f"{why}: run the same command again, with fewer --workers, to go on") from None
    finally:
        # After an error or Ctrl-C nobody waits for jobs that are half done: workers end when this closes.
        ours.close()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _named(job: str) -> Iterator[None]:
    """Put the name of a job before its error."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{job}: {error}") from None


def _begin_work(line: Connection) -> None:
    """Prepare a worker: the first process decides about Ctrl-C, and when it closes the line or is gone, workers end."""

    def end() -> None:
        line.poll(None)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end, daemon=True).start()
