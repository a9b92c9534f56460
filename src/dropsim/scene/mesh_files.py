"""Reading triangle meshes out of OBJ and GLB files: geometry alone, checked before memory is taken for it."""

from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.body.rotations import unitquat_to_rotmat
from dropsim.files.atomic import errors_of
from dropsim.files.gltf import Glb
from dropsim.files.limits import Budget
from dropsim.physics.shapes import MAX_TRIANGLES, Mesh

MAX_BYTES = 200_000_000


def read_mesh(path: Path) -> Mesh:
    """Read an .obj or .glb file; z is up in an .obj, y in a .glb."""
    with errors_of(path), np.errstate(invalid="ignore", over="ignore"):  # numbers are checked once they are all there
        return _read_obj(path) if path.suffix.lower() == ".obj" else _read_glb(Glb.read(path, max_bytes=MAX_BYTES))


def _read_obj(path: Path) -> Mesh:
    Budget(path, MAX_BYTES)
    vertices, faces = array("d"), array("q")
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            kind, *words = line.split() or [""]
            if kind == "v":
                if len(words) < 3:
                    raise ValueError(f"a vertex has {len(words)} coordinates instead of three: it is damaged")
                vertices.extend(map(float, words[:3]))
            elif kind == "f":
                given = [int(word.split("/")[0]) for word in words]
                corners = [index - 1 if index > 0 else len(vertices) // 3 + index for index in given]
                for b, c in pairwise(corners[1:]):
                    faces.extend((corners[0], b, c))
            if max(len(vertices) // 3, len(faces)) > 3 * MAX_TRIANGLES:
                raise ValueError(f"has more than {MAX_TRIANGLES} triangles: simplify the mesh first")
    return Mesh(np.array(vertices).reshape(-1, 3), np.array(faces, np.int64).reshape(-1, 3))


def _read_glb(glb: Glb) -> Mesh:
    vertices, faces, count = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0
    for mesh, T in _placed(glb):
        for primitive in mesh["primitives"]:
            if primitive.get("mode", 4) != 4:
                continue
            points = glb.values(primitive["attributes"]["POSITION"]).astype(float)
            index = glb.values(primitive["indices"])[:, 0] if "indices" in primitive else np.arange(len(points))
            if not np.issubdtype(index.dtype, np.integer):
                raise ValueError("has triangles whose corners are not numbered by whole numbers")
            triangles = index[: len(index) // 3 * 3].reshape(-1, 3).astype(np.int64)
            if np.linalg.det(T[:3, :3]) < 0:
                triangles = triangles[:, ::-1]
            x, y, z = (points @ T[:3, :3].T + T[:3, 3]).T
            vertices.append(np.stack((x, -z, y), -1))
            faces.append(triangles + count)
            count += len(points)
    return Mesh(np.concatenate(vertices), np.concatenate(faces))


def _placed(glb: Glb) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Return the meshes of a glTF scene with their transforms."""
    order, parents = glb.tree()
    transforms, placed = dict[int, np.ndarray](), list[tuple[dict[str, Any], np.ndarray]]()
    for number in order:
        node = glb.list("nodes")[number]
        transforms[number] = transforms.get(parents[number], np.eye(4)) @ _transform(node)
        if "mesh" in node:
            placed.append((glb.item("meshes", node["mesh"]), transforms[number]))
    return placed


def _transform(node: dict[str, Any]) -> np.ndarray:
    if "matrix" in node:
        return np.array(node["matrix"], dtype=float).reshape(4, 4).T
    R = unitquat_to_rotmat(np.array(node.get("rotation", (0.0, 0.0, 0.0, 1.0)), dtype=float))
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R * np.array(node.get("scale", (1.0, 1.0, 1.0))), node.get("translation", (0.0, 0.0, 0.0))
    return T
