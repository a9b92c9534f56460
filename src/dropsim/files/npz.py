"""Reading arrays out of npz archives that may come from anywhere: no pickles, nothing larger than said, errors in one sentence."""

import math
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

MAX_BYTES = 2 << 30
"""Largest sum of the arrays that are loaded from one archive [bytes]."""


def read_npz(path: str | Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """Load the arrays whose names are wanted; what each would take in memory is known from its header before anything is unpacked."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file")
    arrays: dict[str, np.ndarray] = {}
    budget = MAX_BYTES
    # numpy warns of headers that Python 2 wrote; they are fine.
    with path.open("rb") as file, _open_archive(path, file) as archive, warnings.catch_warnings(action="ignore"):
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if not info.filename.endswith(".npy") or not wanted(name):
                continue
            if name in arrays:
                raise ValueError(f"{path}: holds two arrays {name!r}")
            budget -= _size_in_memory(path, archive, info, budget)
            try:
                with archive.open(info) as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            except Exception:
                # zipfile, zlib, numpy and the tokenizer that it reads headers with raise a dozen types; each of them
                # means damage.
                raise ValueError(f"{path}: the array {name!r} is damaged: copy or download the file again") from None
    return arrays


def _open_archive(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except Exception:
        raise ValueError(f"{path}: not an npz archive, or cut off") from None


def _size_in_memory(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: int) -> int:
    """Return the bytes that an array takes, by its header; raise where it holds objects or is larger than the budget or the member."""
    name = info.filename.removesuffix(".npy")
    try:
        with archive.open(info) as member:
            # Later versions have headers of up to 4 GB, for structured arrays of thousands of fields.
            if np.lib.format.read_magic(member) != (1, 0):
                raise ValueError
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if any(length < 0 for length in shape):
            raise ValueError
    except Exception:
        raise ValueError(f"{path}: the array {name!r} is damaged: copy or download the file again") from None
    if dtype.hasobject:
        raise ValueError(
            f"{path}: {name!r} holds pickled objects, which could run code and are not read: where you trust the file, load it with "
            f"allow_pickle=True, turn {name!r} into a plain array, and save it again with numpy.savez"
        )
    size = math.prod(shape) * dtype.itemsize
    if size > budget:
        raise ValueError(
            f"{path}: its arrays take over {MAX_BYTES >> 30} GB, with {name!r} of shape {shape}: cut the recording into pieces"
        )
    if size > info.file_size:
        raise ValueError(f"{path}: the array {name!r} is cut off: copy or download the file again")
    return size


def npz_names(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in an archive that read_npz could open."""
    with zipfile.ZipFile(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def require(path: Path, arrays: dict[str, np.ndarray], name: str, *, hint: str = "") -> np.ndarray:
    """Return an array, or raise with the names that the archive does hold."""
    if name not in arrays:
        held = ", ".join(name for name in npz_names(path)[:30] if name.isprintable()) or "nothing"
        raise ValueError(f"{path}: has no {name!r}{hint}; it holds {held}"[:600])
    return arrays[name]


def real_numbers(path: Path, name: str, array: np.ndarray, *, limit: float) -> np.ndarray:
    """Return an array as float64, or raise where it holds no numbers, or one that is not finite or beyond the limit."""
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
