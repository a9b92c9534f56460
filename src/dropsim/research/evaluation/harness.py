"""The harness of every evaluation: people are simulated in chunks, and their numbers are the columns of one table.

A chunk is saved as it finishes, so that an interrupted run goes on where it stopped; chunks run on all cores.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from dropsim.compute import jit
from dropsim.compute.threads import single_threaded
from dropsim.files.atomic import atomic_path, refuse_read_only
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import DivergedError, Simulator
from dropsim.priors.named import open_pose, open_prior
from dropsim.research.processes import in_processes

Arrays = dict[str, np.ndarray]
"""Columns by name, with a row for every person; `finished` also has rows for people whose simulation diverged."""
Watch = Callable[[int, int], None] | None
"""Hears how many chunks are done, and how many there are to run."""
Item = TypeVar("Item")
Result = TypeVar("Result")
SomeAmounts = TypeVar("SomeAmounts", bound="Amounts")
PACKAGE = Path(__file__).parents[2]
UNRELATED = ("apps", "export", "render")
"""Folders of the package on which the result of a chunk does not depend."""


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
        return cls(options, prior, pose, (digest_of(Path(prior)), digest_of(Path(pose)) if pose else ""))

    def changed(self, **options: bool | int | float) -> "Body":
        """Return the same with other options of the simulator."""
        return replace(self, options=replace(self.options, **options))

    def simulator(self) -> Simulator:
        """Build the simulator."""
        return Simulator(open_prior(self.prior), options=self.options, pose=open_pose(self.pose or None))


def digest_of(path: Path) -> str:
    """Return a digest of a file, or of the names, sizes and times of a folder's files; nothing for another name."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if not path.is_dir():
        return ""
    files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(path.rglob("*"))]
    return hashlib.sha256(repr(files).encode()).hexdigest()


class Amounts:
    """Base of the dataclasses that say how much is simulated or measured."""

    few: ClassVar[Mapping[str, Any]] = {}
    """Amounts of the quick version."""
    may_be_0: ClassVar[tuple[str, ...]] = ("seed",)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name in self.may_be_0 else 1
            if isinstance(value, int) and not least <= value < 2**40:
                raise ValueError(f"{name} has to be a whole number from {least} to 2^40, not {value}")

    @classmethod
    def of(cls: type[SomeAmounts], *, quick: bool = False, **given: Any) -> SomeAmounts:  # noqa: ANN401
        """Return the given amounts; those that are None are as usual, or as in the quick version."""
        amounts = {name: value for name, value in given.items() if value is not None}
        return cls(**{**(cls.few if quick else {}), **amounts})


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
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE)
        if path.is_file() and name.parts[0] not in UNRELATED and path.suffix != ".pyc":
            digest.update(name.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def run_chunks(chunks: Sequence[Chunk], folder: Path, *, workers: int = 1, watch: Watch = None) -> dict[str, Arrays]:
    """Return the tables of all chunks by name, running those whose result is not in the folder yet.

    The number of workers changes no number.
    """
    if workers < 1:
        raise ValueError(f"cannot work with {workers} workers: give at least 1")
    make_writable(folder)
    todo = [chunk for chunk in chunks if not chunk.path(folder).exists()]
    num, work = max(1, min(workers, len(todo))), functools.partial(_run, folder)
    for done, _ in enumerate(in_processes(num, work, todo, lambda chunk: chunk.name), start=1):
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
    arrays = chunk.measure(chunk.body, chunk.people, **chunk.options)
    with atomic_path(chunk.path(folder)) as temporary:
        np.savez_compressed(temporary, **arrays)  # pyright: ignore[reportArgumentType]


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def in_halves(
    items: Sequence[Item], simulate: Callable[[Sequence[Item]], Result], failure: type[ValueError] = ValueError
) -> Iterator[tuple[Sequence[Item], Result | ValueError]]:
    """Simulate items together, or their halves if that fails, until one that fails is alone; yield results in order."""
    try:
        result = simulate(items)
    except failure as error:
        result = error
    if isinstance(result, ValueError) and len(items) > 1:
        middle = len(items) // 2
        for half in (items[:middle], items[middle:]):
            yield from in_halves(half, simulate, failure)
    else:
        yield items, result


def survivors(items: Sequence[Item], measure: Callable[[Sequence[Item]], Arrays]) -> Arrays:
    """Measure people who are simulated together, without those who diverge; `finished` has a row for everybody."""
    parts = list(in_halves(items, measure, DivergedError))
    finished = [not isinstance(part, ValueError) for some, part in parts for _ in some]
    return merged([part for _, part in parts if not isinstance(part, ValueError)]) | {"finished": np.array(finished)}
