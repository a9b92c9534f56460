"""Reading triangle meshes out of OBJ and GLB files: geometry alone, checked before memory is taken for it."""

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.body.rotations import unitquat_to_rotmat
from dropsim.physics.shapes import MAX_TRIANGLES, Mesh

MAX_BYTES = 200_000_000
_TYPES = {5121: np.uint8, 5123: np.uint16, 5125: np.uint32, 5126: np.float32}
"""glTF's names of number types that positions and indices have."""
_DAMAGED = (LookupError, TypeError, AttributeError, OverflowError, struct.error, json.JSONDecodeError, RecursionError)
"""Errors that damaged files lead to."""


def read_mesh(path: Path) -> Mesh:
    """Read an .obj or .glb file; z is up in an .obj, y in a .glb."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: is larger than {MAX_BYTES / 1e6:g} MB: simplify the mesh first")
    try:
        with np.errstate(invalid="ignore", over="ignore"):  # numbers are checked once they are all there
            return _read_obj(path) if path.suffix.lower() == ".obj" else _read_glb(path)
    except _DAMAGED as error:
        raise ValueError(f"{path}: is not a mesh that can be read ({type(error).__name__}: {error})") from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def _read_obj(path: Path) -> Mesh:
    vertices, faces = list[list[float]](), list[list[int]]()
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            kind, *words = line.split() or [""]
            if kind == "v":
                vertices.append([float(word) for word in words[:3]])
            elif kind == "f":
                given = [int(word.split("/")[0]) for word in words]
                corners = [index - 1 if index > 0 else len(vertices) + index for index in given]
                faces += [[corners[0], b, c] for b, c in pairwise(corners[1:])]
            if len(faces) > MAX_TRIANGLES:
                raise ValueError(f"has more than {MAX_TRIANGLES} triangles: simplify the mesh first")
    if not faces:
        raise ValueError("holds no triangles")
    return Mesh(np.array(vertices), np.array(faces))


def _read_glb(path: Path) -> Mesh:
    content = path.read_bytes()
    magic, _, _ = struct.unpack_from("<4sII", content)
    if magic != b"glTF":
        raise ValueError("is not a binary glTF file")
    length, _ = struct.unpack_from("<I4s", content, 12)
    tree = json.loads(content[20 : 20 + length])
    binary = content[20 + length + 8 :]
    vertices, faces, count = list[np.ndarray](), list[np.ndarray](), 0
    for mesh, T in _placed(tree):
        for primitive in mesh["primitives"]:
            if primitive.get("mode", 4) != 4:
                continue
            points = _accessor(tree, binary, primitive["attributes"]["POSITION"]).astype(float)
            index = np.arange(len(points))
            if "indices" in primitive:
                index = _accessor(tree, binary, primitive["indices"]).reshape(-1)
            if not np.issubdtype(index.dtype, np.integer):
                raise ValueError("has triangles whose corners are not numbered by whole numbers")
            triangles = index[: len(index) // 3 * 3].reshape(-1, 3).astype(np.int64)
            if np.linalg.det(T[:3, :3]) < 0:
                triangles = triangles[:, ::-1]
            faces.append(triangles + count)
            vertices.append(points @ T[:3, :3].T + T[:3, 3])
            count += len(points)
            if sum(map(len, faces)) > MAX_TRIANGLES:
                raise ValueError(f"has more than {MAX_TRIANGLES} triangles: simplify the mesh first")
    if not faces:
        raise ValueError("holds no triangles")
    x, y, z = np.concatenate(vertices).T
    return Mesh(np.stack((x, -z, y), -1), np.concatenate(faces))


def _placed(tree: dict[str, Any]) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Return the meshes of a glTF scene with their transforms."""
    nodes, found = tree.get("nodes", []), list[tuple[dict[str, Any], np.ndarray]]()
    children = {child for node in nodes for child in node.get("children", [])}
    waiting = [(i, np.eye(4), 0) for i in range(len(nodes)) if i not in children]
    while waiting:
        i, T, depth = waiting.pop()
        if depth > 100 or len(found) > 10_000:
            raise ValueError("its nodes are nested too deeply")
        node = nodes[i]
        T = T @ _transform(node)
        if "mesh" in node:
            found.append((tree["meshes"][node["mesh"]], T))
        waiting += [(child, T, depth + 1) for child in node.get("children", [])]
    return found


def _transform(node: dict[str, Any]) -> np.ndarray:
    if "matrix" in node:
        return np.array(node["matrix"], dtype=float).reshape(4, 4).T
    R = unitquat_to_rotmat(np.array(node.get("rotation", (0.0, 0.0, 0.0, 1.0)), dtype=float))
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R * np.array(node.get("scale", (1.0, 1.0, 1.0))), node.get("translation", (0.0, 0.0, 0.0))
    return T


def _accessor(tree: dict[str, Any], binary: bytes, index: int) -> np.ndarray:
    """Return the numbers of an accessor, checked against the file's length."""
    accessor = tree["accessors"][index]
    if "sparse" in accessor or "bufferView" not in accessor:
        raise ValueError("has sparse geometry, which is not read: export it again without")
    view = tree["bufferViews"][accessor["bufferView"]]
    if view.get("buffer", 0) != 0 or "extensions" in view:
        raise ValueError("has compressed or external geometry, which is not read: export it again without")
    kind, width = _TYPES[accessor["componentType"]], {"SCALAR": 1, "VEC3": 3}[accessor["type"]]
    item = np.dtype(kind).itemsize * width
    start, stride = view.get("byteOffset", 0) + accessor.get("byteOffset", 0), view.get("byteStride", item)
    count = accessor["count"]
    if min(start, count, stride) < 0 or stride < item or start + (count - 1) * stride + item > len(binary):
        raise ValueError("refers to numbers beyond its end")
    rows = np.lib.stride_tricks.as_strided(np.frombuffer(binary, np.uint8, offset=start), (count, item), (stride, 1))
    return np.ascontiguousarray(rows).view(kind).reshape(count, width)
