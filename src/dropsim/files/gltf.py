"""GLB: glTF 2.0's JSON and numbers in one binary file, read with all sizes checked, changed and written."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.files.limits import Budget, read_json, strided, tree_order

MAX_BYTES = 1 << 30
"""Largest file that is read [bytes]."""
MAX_JSON = 16 << 20
"""Longest JSON part that is parsed [bytes]: it takes up to thirty times as much memory."""
MAX_NODES = 20_000
_TYPES: Mapping[int, str] = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_CODES = {np.dtype(name): code for code, name in _TYPES.items()}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
_KINDS = {width: kind for kind, width in _WIDTHS.items()}


Tree = tuple[list[int], list[int]]
"""Nodes so that parents come first, and the parent of each node, -1 at the top."""


class Glb:
    """A glTF document and its binary part; documents that lie raise LookupError, TypeError or ValueError."""

    def __init__(
        self, document: dict[str, Any], blob: bytes = b"", rest: bytes = b"", budget: Budget | None = None
    ) -> None:
        """Start with a document, the numbers that it refers to, chunks of other kinds, and memory for the numbers."""
        self.json = document
        self.blob = bytearray(blob)
        self.rest = rest
        self.budget = budget

    @classmethod
    def read(cls, path: Path, *, max_bytes: int = MAX_BYTES) -> "Glb":
        """Read a file, or raise a ValueError with its fault."""
        budget, data = Budget(path, max_bytes), path.read_bytes()
        if len(data) < 20 or data[:4] != b"glTF" or struct.unpack_from("<I", data, 4)[0] != 2:
            raise ValueError("not a GLB file of glTF 2.0: export it as glTF Binary (.glb)")
        length, kind = struct.unpack_from("<I4s", data, 12)
        if kind != b"JSON" or length > min(MAX_JSON, len(data) - 20):
            raise ValueError("cut off, or damaged at its beginning: export it again")
        document = read_json(data[20 : 20 + length])
        rest, size = data[20 + length :], 0
        if len(rest) >= 8:
            size, kind = struct.unpack_from("<I4s", rest)
            if kind != b"BIN\0" or size > len(rest) - 8:
                raise ValueError("its binary part is cut off: export it again")
        return cls(document, rest[8 : 8 + size], rest[8 + size :], budget)

    def list(self, name: str) -> list[dict[str, Any]]:
        """Return a list of the document, or an empty one."""
        return self.json.get(name, [])

    def item(self, name: str, index: int) -> dict[str, Any]:
        """Return an item of one of the document's lists, which are never counted from the end."""
        if index < 0:
            raise ValueError("a number of an item is negative: the file is damaged")
        return self.list(name)[index]

    def tree(self) -> Tree:
        """Return the order and the parents of the nodes."""
        nodes = self.list("nodes")
        if len(nodes) > MAX_NODES:
            raise ValueError(f"has more than {MAX_NODES} nodes: simplify it first")
        return tree_order([node.get("children", []) for node in nodes])

    def values(self, index: int) -> np.ndarray:
        """Return an accessor's numbers in their own type, one row an element."""
        accessor = self.item("accessors", index)
        view = self.item("bufferViews", accessor["bufferView"])
        external = any("uri" in buffer for buffer in self.list("buffers")[:1])
        if "sparse" in accessor or "extensions" in view or view.get("buffer", 0) != 0 or external:
            raise ValueError("its numbers are compressed or in another file: export it as one GLB without compression")
        dtype, width = _TYPES[accessor["componentType"]], _WIDTHS[accessor["type"]]
        size = np.dtype(dtype).itemsize
        stride, start = view.get("byteStride", size * width), view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
        if stride < size * width:
            raise ValueError("its numbers lie outside the file, or within each other: it is damaged")
        if self.budget is not None:
            self.budget.take(accessor["count"], width)
        return strided(self.blob, dtype, start, (accessor["count"], width), (stride, size))

    def add(self, values: np.ndarray, *, target: int | None = None, bounds: bool = False) -> int:
        """Append numbers behind the old ones, one row an element, and return their accessor."""
        rows = values.reshape(len(values), -1)
        self.blob.extend(bytes(-len(self.blob) % 4))
        view: dict[str, Any] = {"buffer": 0, "byteOffset": len(self.blob), "byteLength": rows.nbytes}
        self.blob.extend(rows.tobytes())
        views, accessors = self.json.setdefault("bufferViews", []), self.json.setdefault("accessors", [])
        views.append(view if target is None else view | {"target": target})
        accessor = {"bufferView": len(views) - 1, "componentType": _CODES[rows.dtype], "count": len(rows)}
        limits = {"min": rows.min(0).tolist(), "max": rows.max(0).tolist()} if bounds else {}
        accessors.append(accessor | {"type": _KINDS[rows.shape[1]]} | limits)
        return len(accessors) - 1

    def data(self) -> bytes:
        """Return the file's bytes."""
        self.blob.extend(bytes(-len(self.blob) % 4))
        self.json.setdefault("buffers", [{}])[0]["byteLength"] = len(self.blob)
        text = json.dumps(self.json, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 4)
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        chunks += struct.pack("<I4s", len(self.blob), b"BIN\0") + self.blob + self.rest
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks
