"""Long evaluations in chunks: each is saved as it finishes, so that an interrupted run goes on where it was, on all cores."""

import functools
import hashlib
import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import torch

from dropsim.files.atomic import atomic_path

Arrays = dict[str, np.ndarray]
"""What a chunk found, by name."""

PACKAGE = Path(__file__).parents[1]
DECISIVE = (
    "*.py", "assets/*", "energies/*.py", "kernels/*.py", "priors/*.py", "scene/*.py", "scene_file/setup.py", "data/contacts.py",
    "evaluation/trials.py", "evaluation/windows.py", "evaluation/paper/runs.py", "evaluation/push_runs.py", "evaluation/ablation.py",
)  # fmt: skip
"""Files of the package on which the result of a chunk depends."""


class Chunk(ABC):
    """A piece of work: a frozen dataclass whose fields say all that its result depends on, and that another process can be handed."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Begins the name of its file."""

    @abstractmethod
    def run(self) -> Arrays:
        """Do the work."""


def chunk_path(chunk: Chunk, folder: Path) -> Path:
    """Return where a chunk's result is kept: the name tells the work and the code apart, so that no old result passes for a new one."""
    digest = hashlib.sha256(f"{fingerprint()} {chunk!r}".encode()).hexdigest()[:16]
    return folder / f"{chunk.label}-{digest}.npz"


@functools.cache
def fingerprint() -> str:
    """Return a digest of the code and the weights that simulate."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in DECISIVE for path in PACKAGE.glob(pattern) if path.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def run_chunks(chunks: Sequence[Chunk], folder: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None) -> list[Arrays]:
    """Return what every chunk found, running those whose result is not in the folder yet; the number of workers changes no number.

    `watch` hears of the chunks that are done among those that had to be run.
    """
    if workers < 1:
        raise ValueError(f"cannot work with {workers} workers: give at least 1")
    make_writable(folder)
    paths = [chunk_path(chunk, folder) for chunk in chunks]
    todo = [(chunk, path) for chunk, path in zip(chunks, paths, strict=True) if not path.exists()]
    work = _one_by_one(todo) if min(workers, len(todo)) < 2 else _side_by_side(todo, workers)
    for done, _ in enumerate(work, start=1):
        if watch:
            watch(done, len(todo))
    return [_read(path) for path in paths]


def make_writable(folder: Path) -> None:
    """Make a folder, or raise where nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / "writable") as temporary:
            temporary.touch()
        (folder / "writable").unlink()
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder}: cannot be made, because a file stands in the way: give another folder") from None
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}): give another folder") from None


def _run(chunk: Chunk, path: Path) -> None:
    """Work on one thread, so that the sums are those of every other machine of this kind, and save the result whole."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        arrays = chunk.run()
    finally:
        torch.set_num_threads(threads)
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]


def _one_by_one(todo: Sequence[tuple[Chunk, Path]]) -> Iterator[None]:
    for chunk, path in todo:
        yield _run(chunk, path)


def _side_by_side(todo: Sequence[tuple[Chunk, Path]], workers: int) -> Iterator[None]:
    # Spawned and not forked: torch's threads do not live through a fork.
    pool = ProcessPoolExecutor(min(workers, len(todo)), mp_context=multiprocessing.get_context("spawn"), initializer=_end_at_once)
    try:
        futures: list[Future[None]] = [pool.submit(_run, chunk, path) for chunk, path in todo]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        raise ValueError("a worker process ended before its time, perhaps for want of memory: go on with fewer --workers") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_at_once() -> None:
    """Let Ctrl-C end a worker without a word: the process that started it says what there is to say."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
