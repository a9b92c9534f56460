"""Arrays that take long to make: made once, kept in a file, and mapped into memory from then on.

Mapped arrays are there at once, and processes share their memory. The files are safetensors; nothing in them is run.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy

from dropsim.files.atomic import atomic_path

MAX_HEADER = 1 << 20
"""Longest header that is parsed [bytes]."""
MAX_KEPT = 12
"""Files that a folder keeps, the last used ones."""
_KINDS = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
    "U64": np.uint64, "I64": np.int64, "F32": np.float32, "F64": np.float64,
}  # fmt: skip


def kept(path: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays in a file, which are made if it is not there or damaged; a folder that cannot be written keeps nothing."""
    with contextlib.suppress(OSError, ValueError):
        found = map_arrays(path)
        os.utime(path)
        return found
    made = {name: np.asarray(values, order="C") for name, values in make().items()}
    with contextlib.suppress(OSError):
        with atomic_path(path) as temporary:
            safetensors.numpy.save_file(made, temporary)
        for old in sorted(path.parent.glob(f"*{path.suffix}"), key=lambda file: file.stat().st_mtime, reverse=True)[
            MAX_KEPT:
        ]:
            old.unlink(missing_ok=True)
    return made


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Map the arrays of a safetensors file into memory; what is written to them is not written to the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(MAX_HEADER, size - 8):
            raise ValueError(f"{path}: not a safetensors file, or cut off")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            entries = {
                str(name): (
                    np.dtype(_KINDS[entry["dtype"]]),
                    tuple(map(int, entry["shape"])),
                    *map(int, entry["data_offsets"]),
                )
                for name, entry in header.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{path}: its header is damaged") from None
        # Copy on write, so that kernels see the arrays as they see all others.
        data = np.memmap(file, dtype=np.uint8, mode="c")
    arrays = {}
    for name, (kind, shape, first, last) in entries.items():
        first, last = first + 8 + length, last + 8 + length
        if not (min(shape, default=0) >= 0 and 8 + length <= first <= last <= size and first % kind.itemsize == 0):
            raise ValueError(f"{path}: {name[:60]} lies outside the file")
        if math.prod(shape) * kind.itemsize != last - first:
            raise ValueError(f"{path}: {name[:60]} has another size than it says")
        arrays[name] = np.ndarray(shape, kind, buffer=data, offset=first)
    return arrays
