"""Bounds on what a file may ask for, checked before memory is taken: a few bytes can claim anything."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FREE, RATIO = 64 << 20, 16
"""Memory that the content of any file may take [bytes], and that of a large file in sizes of the file."""


class Budget:
    """Memory that the content of a file may take, in proportion to the file: what is shared counts every time."""

    def __init__(self, path: Path, max_bytes: int = 2 << 30) -> None:
        """Refuse what is no file, or a file that is too large; `max_bytes` is the largest size that is read."""
        size = path.stat().st_size
        if not path.is_file():
            raise ValueError("not a file")
        if size > max_bytes:
            raise ValueError(f"larger than {max_bytes / 1e9:.1g} GB: simplify it or cut it into pieces")
        self.left = max(FREE, RATIO * size)

    def take(self, *shape: int, itemsize: int = 8) -> None:
        """Count an array before it is made; sizes are numbers that the file states."""
        for length in shape:
            if not isinstance(length, int) or length < 0:
                raise ValueError("its sizes are no whole numbers or lie outside the file: it is damaged")
            itemsize *= length
        self.left -= itemsize
        if self.left < 0:
            raise ValueError("asks for far more memory than its size: it is damaged, or cut it into pieces")


def read_json(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object that is part of a file."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError("its JSON part cannot be read: it is damaged, or another kind of file")
    return values


def strided(
    data: bytes | bytearray, dtype: str, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> np.ndarray:
    """Return a copy of an array inside some bytes; offset and strides [bytes] must not leave them."""
    plain = all(type(number) is int and number >= 0 for number in (offset, *shape, *strides))
    end = offset + sum(step * (length - 1) for step, length in zip(strides, shape, strict=True)) if plain else 0
    if not plain or (0 not in shape and end + np.dtype(dtype).itemsize > len(data)):
        raise ValueError("its numbers lie outside the file: it is damaged")
    return np.zeros(shape, dtype) if 0 in shape else np.ndarray(shape, dtype, data, offset, strides).copy()


def tree_order(children: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return nodes so that parents come first, and the parent of each node, -1 at the top.

    Nodes with two parents, and rings, are refused: walking them could take for ever.
    """
    parents = [-1] * len(children)
    for number, below in enumerate(children):
        for child in below:
            if child < 0 or parents[child] >= 0:
                raise ValueError("a node has two parents: the file is damaged")
            parents[child] = number
    order = [number for number, parent in enumerate(parents) if parent < 0]
    for number in order:
        order.extend(children[number])
    if len(order) < len(parents):
        raise ValueError("a node is its own parent: the file is damaged")
    return order, parents
