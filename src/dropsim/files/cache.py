"""A cache of arrays that take long to compute: written to a file once, and mapped into memory from then on.

Mapped arrays are there at once, and processes share their memory. The files are safetensors; nothing in them is run.
"""

import contextlib
import errno
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
MAX_FILES = 12
"""Number of files that a folder keeps, the last used ones."""


def cached(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays in a file, which is written first if it is not there or damaged, and where it can be."""
    with contextlib.suppress(OSError, ValueError), errors_of(path):
        arrays = map_safetensors(path)[0]
        os.utime(path)
        return arrays
    arrays = {name: np.asarray(values, order="C") for name, values in make().items()}
    with contextlib.suppress(OSError):
        save_safetensors(arrays, path)
        files = sorted(path.parent.glob(f"*{path.suffix}"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[MAX_FILES:]:
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
    arrays = dict[str, np.ndarray]()
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(MAX_HEADER, path.stat().st_size):
            raise ValueError("not a safetensors file, or cut off")
        header = read_json(file.read(size))
        # Copy on write, so that kernels see the arrays as they see all others.
        data = np.asarray(np.memmap(file, dtype=np.uint8, mode="c"))[8 + size :]
    metadata = header.pop("__metadata__", {})
    for name, entry in header.items():
        kind, (first, last) = entry["dtype"], entry["data_offsets"]
        dtype = "?" if kind == "BOOL" else f"{kind[0].lower()}{int(kind[1:]) // 8}"
        arrays[name] = data[first:last].view(dtype).reshape(entry["shape"])
    return arrays, metadata
