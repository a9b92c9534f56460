"""Long evaluations in chunks: each is saved as it finishes, so that an interrupted run goes on where it stopped, on all cores."""

import functools
import hashlib
import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from dropsim.compute import jit
from dropsim.compute.threads import single_threaded
from dropsim.files.atomic import atomic_path

Arrays = dict[str, np.ndarray]
"""What a chunk found, by name."""

PACKAGE = Path(__file__).parents[2]
DECISIVE = (
    "assets/**/*", "research/training/starts.py",
    *(f"{folder}/**/*.py" for folder in ("body", "compute", "control", "motion", "physics", "priors", "scene")),
    *(f"research/evaluation/{name}.py" for name in ("ablation", "branches", "push_runs", "response_runs", "scenarios", "trials")),
    *(f"research/evaluation/{name}.py" for name in ("mujoco_ragdoll", "objects", "random_scenes", "reliability")),
    *(f"research/evaluation/{name}.py" for name in ("steering", "windows", "paper/runs")),
)  # fmt: skip
"""Files of the package on which the result of a chunk depends."""


class Chunk(ABC):
    """A piece of work: a frozen dataclass whose fields say all that its result depends on, and that can be sent to another process."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Begins the name of its file."""

    @abstractmethod
    def run(self) -> Arrays:
        """Do the work."""


def chunk_path(chunk: Chunk, folder: Path) -> Path:
    """Return the file of a chunk's result; its name depends on the work, the code and the weights, so that no stale result is read."""
    digest = hashlib.sha256(f"{fingerprint()} {chunk!r}".encode()).hexdigest()[:16]
    return folder / f"{chunk.label}-{digest}.npz"


@functools.cache
def fingerprint() -> str:
    """Return a digest of the code, the kernels (with the versions that compile them) and the weights that simulate."""
    digest = hashlib.sha256(jit.kernel_hash().encode())
    for path in sorted({path for pattern in DECISIVE for path in PACKAGE.glob(pattern) if path.is_file()}):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def run_chunks(
    chunks: Sequence[Chunk], folder: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None
) -> list[Arrays]:
    """Return what every chunk found, running those whose result is not in the folder yet; the number of workers changes no number.

    `watch` is told how many of the chunks that had to be run are done.
    """
    if workers < 1:
        raise ValueError(f"cannot work with {workers} workers: give at least 1")
    make_writable(folder)
    paths = [chunk_path(chunk, folder) for chunk in chunks]
    todo = [(chunk, path) for chunk, path in zip(chunks, paths, strict=True) if not path.exists()]
    work = (_run(chunk, path) for chunk, path in todo) if min(workers, len(todo)) < 2 else _in_parallel(todo, workers)
    for done, _ in enumerate(work, start=1):
        if watch:
            watch(done, len(todo))
    return [_read(path) for path in paths]


def make_writable(folder: Path) -> None:
    """Make a folder, or raise if nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / "writable") as temporary:
            temporary.touch()
        (folder / "writable").unlink()
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder}: cannot be made, because a file stands in the way: give another folder") from None
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}): give another folder") from None


@single_threaded
def _run(chunk: Chunk, path: Path) -> None:
    arrays = chunk.run()
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]


def _in_parallel(todo: Sequence[tuple[Chunk, Path]], workers: int) -> Iterator[None]:
    # Spawned, because threads do not survive a fork. Ctrl-C ends a worker silently: the parent says what there is to
    # say.
    context, quiet = multiprocessing.get_context("spawn"), (signal.SIGINT, signal.SIG_DFL)
    pool = ProcessPoolExecutor(min(workers, len(todo)), mp_context=context, initializer=signal.signal, initargs=quiet)
    try:
        for future in as_completed([pool.submit(_run, chunk, path) for chunk, path in todo]):
            yield future.result()
    except BrokenProcessPool:
        raise ValueError(
            "a worker process ended too early, perhaps because memory ran out: go on with fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
