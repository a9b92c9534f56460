"""Reading arrays out of npz archives that may come from anywhere: no pickles, nothing larger than said."""

import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dropsim.files.atomic import errors_of
from dropsim.files.limits import Budget


def read_npz(path: str | Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """Load the arrays whose names are wanted; their sizes are known from the headers before anything is unpacked."""
    arrays = dict[str, np.ndarray]()
    # numpy warns of headers that Python 2 wrote; they are fine.
    with errors_of(path), warnings.catch_warnings(action="ignore"):
        budget = Budget(Path(path))
        with _any_error_means("not an npz archive, or cut off"):
            archive = zipfile.ZipFile(path)
        with archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if info.filename.endswith(".npy") and wanted(name):
                    if name in arrays:
                        raise ValueError(f"holds two arrays {name!r}")
                    arrays[name] = _read_array(archive, info, name, budget)
    return arrays


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, budget: Budget) -> np.ndarray:
    damage = f"the array {name!r} is damaged: copy or download the file again"
    with _any_error_means(damage), archive.open(info) as member:
        # Later versions have headers of up to 4 GB, for structured arrays of thousands of fields.
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    if dtype.hasobject:
        raise ValueError(
            f"{name!r} holds pickled objects, which could run code and are not read: if you trust the "
            f"file, load it with allow_pickle=True, and save {name!r} as a plain array with numpy.savez"
        )
    budget.take(*shape, itemsize=max(dtype.itemsize, 8))
    with _any_error_means(damage), archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


@contextmanager
def _any_error_means(message: str) -> Iterator[None]:
    """Raise a message for the dozen types of errors that zipfile, zlib, numpy and its tokenizer raise for damage."""
    try:
        yield
    except Exception:
        raise ValueError(message) from None


def require(path: Path, arrays: dict[str, np.ndarray], name: str, *, hint: str = "") -> np.ndarray:
    """Return an array, or raise with the names that the archive does hold."""
    if name not in arrays:
        with zipfile.ZipFile(path) as archive:
            names = [member.removesuffix(".npy") for member in archive.namelist()[:30]]
        held = ", ".join(filter(str.isprintable, names)) or "nothing"
        raise ValueError(f"{path}: has no {name!r}{hint}; it holds {held}"[:600])
    return arrays[name]


def real_numbers(
    path: Path, name: str, array: np.ndarray, shape: tuple[int | None, ...] | None = None, *, limit: float
) -> np.ndarray:
    """Return an array as float64, or raise where it has another shape, holds no numbers, or one beyond the limit.

    Lengths that are None in the shape are those of the file, but not zero.
    """
    if shape is not None:
        lengths = zip(array.shape, shape, strict=False)
        fits = [have == want or (want is None and have > 0) for have, want in lengths]
        if array.ndim != len(shape) or not all(fits):
            expected = ", ".join("any" if length is None else str(length) for length in shape)
            raise ValueError(f"{path}: {name!r} has shape {array.shape}: expected ({expected})")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {name!r} should hold numbers, not {array.dtype}")
    values = np.asarray(array, dtype=np.float64)
    bad = ~(np.abs(values) <= limit)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{path}: {name!r} holds {values[where]} at {list(where)}: expected finite numbers up to {limit:g}"
        )
    return values
