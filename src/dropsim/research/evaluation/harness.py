"""The harness of every evaluation: people are simulated in chunks, and their numbers are the columns of one table.

A chunk is saved as it finishes, so that an interrupted run goes on where it stopped; chunks run on all cores.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool

from dropsim.compute import jit
from dropsim.compute.threads import single_threaded
from dropsim.files.atomic import atomic_path, refuse_read_only
from dropsim.motion.motion import Motion
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import DivergedError, Simulator
from dropsim.priors.named import open_pose, open_prior
from dropsim.research.processes import in_processes

Arrays = dict[str, np.ndarray]
"""Columns by name, with a row for every person; `finished` also has rows for people whose simulation diverged."""
Watch = Callable[[int, int], None] | None
"""Hears how many chunks are done, and how many there are to run."""
Item = TypeVar("Item")
PACKAGE = Path(__file__).parents[2]
DECISIVE = (
    "assets/**/*",
    "research/evaluation/*.py",
    "research/training/starts.py",
    *(f"{folder}/**/*.py" for folder in ("body", "compute", "control", "motion", "physics", "priors", "scene")),
)
"""Files of the package on which the result of a chunk depends."""


@dataclass(frozen=True)
class Body:
    """Settings of a simulator, as plain values that name a result and can be sent to another process."""

    options: SimulatorOptions = field(default_factory=SimulatorOptions)
    prior: str = "field"
    """Name, file or folder of the prior, as `open_prior` takes it."""
    pose: str = ""
    """File or folder of the model of poses, as `open_pose` takes it; empty for the package's."""
    digests: tuple[str, str] = ("", "")
    """Digests of the two, so that other numbers under the same name make other results."""

    @classmethod
    def of(cls, num_samples: int | None, prior: str = "field", *, method: str = "default", pose: str = "") -> "Body":
        """Return a body with K samples, a prior, a method (as `SimulatorOptions.of_method` takes it) and poses."""
        options = SimulatorOptions.of_method(method, num_samples=num_samples)
        return cls(options, prior, pose, (_digest(Path(prior)), _digest(Path(pose)) if pose else ""))

    def changed(self, **options: bool | int | float) -> "Body":
        """Return the same with other options of the simulator."""
        return replace(self, options=replace(self.options, **options))

    def simulator(self) -> Simulator:
        """Build the simulator."""
        return Simulator(open_prior(self.prior), options=self.options, pose=open_pose(self.pose or None))


def _digest(path: Path) -> str:
    """Return a digest of a file, or of the names, sizes and times of a folder's files; nothing for another name."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if not path.is_dir():
        return ""
    files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(path.rglob("*"))]
    return hashlib.sha256(repr(files).encode()).hexdigest()


def check_seed(seed: int) -> None:
    """Refuse a seed from which not all seeds of an evaluation can be counted up."""
    if not 0 <= seed < 2**40:
        raise ValueError(f"a seed is a whole number from 0 to 2^40, not {seed}")


@dataclass(frozen=True)
class Chunk:
    """A function that measures some people, and everything that its result depends on."""

    name: str
    """Name of the table to which its rows belong."""
    measure: Callable[..., Arrays]
    """Function of a module, so that it can be sent to another process."""
    body: Body
    people: Sequence[Any]
    """Seeds, or other descriptions of the people."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of the function."""

    def run(self) -> Arrays:
        """Do the work."""
        return self.measure(self.body, self.people, **self.options)

    def path(self, folder: Path) -> Path:
        """Return the file of the result; its name depends on the work, the code and the weights."""
        work = f"{self.measure.__module__}.{self.measure.__qualname__} {self.body} {self.people} {self.options}"
        digest = hashlib.sha256(f"{fingerprint()} {work}".encode()).hexdigest()[:16]
        return folder / f"{self.name.replace(' ', '-')}-{digest}.npz"


def chunks_of(
    name: str, measure: Callable[..., Arrays], body: Body, people: Sequence[Any], size: int = 32, **options: object
) -> list[Chunk]:
    """Split people into chunks of a fixed size, which does not depend on the number of workers."""
    parts = (tuple(people[i : i + size]) for i in range(0, len(people), size))
    return [Chunk(name, measure, body, part, options) for part in parts]


@functools.cache
def fingerprint() -> str:
    """Return a digest of the code, the kernels (with the versions that compile them) and the weights that simulate."""
    digest = hashlib.sha256(jit.kernel_hash().encode())
    for path in sorted({path for pattern in DECISIVE for path in PACKAGE.glob(pattern) if path.is_file()}):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def run_chunks(chunks: Sequence[Chunk], folder: Path, *, workers: int = 1, watch: Watch = None) -> dict[str, Arrays]:
    """Return the tables of all chunks by name, running those whose result is not in the folder yet.

    The number of workers changes no number.
    """
    if workers < 1:
        raise ValueError(f"cannot work with {workers} workers: give at least 1")
    make_writable(folder)
    todo = [chunk for chunk in chunks if not chunk.path(folder).exists()]
    alone = min(workers, len(todo)) < 2
    work = functools.partial(_run, folder)
    finished = map(work, todo) if alone else in_processes(min(workers, len(todo)), work, todo, lambda chunk: chunk.name)
    for done, _ in enumerate(finished, start=1):
        if watch:
            watch(done, len(todo))
    tables: dict[str, list[Arrays]] = {}
    for chunk in chunks:
        tables.setdefault(chunk.name, []).append(_read(chunk.path(folder)))
    return {name: merged(parts) for name, parts in tables.items()}


def merged(parts: Sequence[Arrays]) -> Arrays:
    """Put the rows of chunks under each other; a chunk in which everybody diverged only adds to `finished`."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: np.concatenate([part[name] for part in parts if name in part]) for name in names}


def num_diverged(tables: Iterable[Arrays]) -> int:
    """Count the people whose simulation could not go on."""
    return sum(int((~table["finished"]).sum()) for table in tables if "finished" in table)


def make_writable(folder: Path) -> None:
    """Make a folder, or raise if nothing can be written into it."""
    refuse_read_only(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder}: cannot be made, because a file stands in the way: give another folder") from None


@single_threaded
def _run(folder: Path, chunk: Chunk) -> None:
    arrays = chunk.run()
    with atomic_path(chunk.path(folder)) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def survivors(
    items: Sequence[Item], simulate: Callable[[Sequence[Item]], Motion]
) -> tuple[Motion | None, Bool[np.ndarray, "b"]]:
    """Simulate a batch and return also who finished; if somebody diverges, halves are run again without that person."""
    try:
        return simulate(items), np.ones(len(items), dtype=bool)
    except DivergedError:
        if len(items) == 1:
            return None, np.zeros(1, dtype=bool)
    middle = len(items) // 2
    parts = [survivors(half, simulate) for half in (items[:middle], items[middle:])]
    motions = [motion for motion, _ in parts if motion is not None]
    return (joined(motions) if motions else None), np.concatenate([finished for _, finished in parts])


def joined(motions: Sequence[Motion], axis: int = 0) -> Motion:
    """Put batches of people of one length into one batch, along one of its dimensions."""

    def join(name: str) -> np.ndarray | None:
        parts = [getattr(motion, name) for motion in motions]
        return None if parts[0] is None else np.concatenate(parts, axis)

    names = [f.name for f in fields(Motion) if f.name not in ("skeleton", "fps", "energies", "events", "name")]
    energies = {name: np.concatenate([m.energies[name] for m in motions], axis) for name in motions[0].energies}
    return replace(motions[0], **{name: join(name) for name in names}, energies=energies)
