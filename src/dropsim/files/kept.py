"""A cache of arrays that take long to compute: written to a file once, and mapped into memory from then on.

Mapped arrays are there at once, and processes share their memory. The files are safetensors; nothing in them is run.
"""

import contextlib
import errno
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from dropsim.files.atomic import atomic_path, errors_of
from dropsim.files.limits import read_json

MAX_HEADER = 1 << 20
"""Longest header that is parsed [bytes]."""
MAX_KEPT = 12
"""Number of files that a folder keeps, the last used ones."""
_KINDS = {f"{kind.upper()}{8 * size}": np.dtype(f"{kind}{size}") for kind in "ui" for size in (1, 2, 4, 8)}
_KINDS |= {
    "BOOL": np.dtype(bool),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}


def kept(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays in a file, which is written first if it is not there or damaged, and where it can be."""
    with contextlib.suppress(OSError, ValueError), errors_of(path):
        arrays = map_safetensors(path)[0]
        os.utime(path)
        return arrays
    arrays = {name: np.asarray(values, order="C") for name, values in make().items()}
    with contextlib.suppress(OSError):
        save_safetensors(arrays, path)
        files = sorted(path.parent.glob(f"*{path.suffix}"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[MAX_KEPT:]:
            old.unlink(missing_ok=True)
    return arrays


def save_safetensors(arrays: Mapping[str, np.ndarray], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write arrays and a few texts."""
    with atomic_path(path) as temporary:
        try:
            safetensors.numpy.save_file(dict(arrays), temporary, metadata=metadata)
        except safetensors.SafetensorError as error:  # such as a full disk
            raise OSError(errno.EIO, str(error), str(temporary)) from None
        temporary.chmod(0o644)  # safetensors makes its files readable for their owner alone


def map_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of a safetensors file, mapped into memory, and its metadata; writing changes no file."""
    size, arrays = path.stat().st_size, dict[str, np.ndarray]()
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        if start > min(MAX_HEADER, size):
            raise ValueError("not a safetensors file, or cut off")
        header = read_json(file.read(start - 8))
        metadata = header.pop("__metadata__", {})
        # Copy on write, so that kernels see the arrays as they see all others.
        data = np.memmap(file, dtype=np.uint8, mode="c")
    for name, entry in header.items():
        kind, shape = _KINDS[entry["dtype"]], tuple(map(int, entry["shape"]))
        first, last = (start + int(offset) for offset in entry["data_offsets"])
        is_inside = min(shape, default=0) >= 0 and start <= first <= last <= size and first % kind.itemsize == 0
        if not is_inside or math.prod(shape) * kind.itemsize != last - first:
            raise ValueError(f"{name[:60]} lies outside the file, or has another size than it says")
        arrays[name] = np.ndarray(shape, kind, buffer=data, offset=first)
    return arrays, metadata
