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
    vertices, faces = list[str](), array("q")
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            kind = line.lstrip()[:2].rstrip()
            words = line.split() if kind == "f" else []
            if max(len(vertices), len(faces) + 3 * len(words) - 9) > 3 * MAX_TRIANGLES:
                raise ValueError(f"has more than {MAX_TRIANGLES} triangles: simplify the mesh first")
            if kind == "v":
                vertices.append(line)
            elif kind == "f":
                given = [int(word.split("/")[0]) for word in words[1:]]
                corners = [index - 1 if index > 0 else len(vertices) + index for index in given]
                for b, c in pairwise(corners[1:]):
                    faces.extend((corners[0], b, c))
    points = np.loadtxt(vertices, usecols=(1, 2, 3), ndmin=2) if vertices else np.empty((0, 3))
    return Mesh(points, np.array(faces, np.int64).reshape(-1, 3))


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
    (order, parents), nodes = glb.tree(), glb.list("nodes")
    # All at once, since a file may have thousands of nodes.
    turns, scales, shifts = (
        np.array([node.get(name, default) for node in nodes], dtype=float).reshape(len(nodes), len(default))
        for name, default in (("rotation", (0, 0, 0, 1)), ("scale", (1, 1, 1)), ("translation", (0, 0, 0)))
    )
    transforms = np.tile(np.eye(4), (len(nodes), 1, 1))
    transforms[:, :3, :3], transforms[:, :3, 3] = unitquat_to_rotmat(turns) * scales[:, None], shifts
    placed = list[tuple[dict[str, Any], np.ndarray]]()
    for number in order:
        node = nodes[number]
        if "matrix" in node:
            transforms[number] = np.array(node["matrix"], dtype=float).reshape(4, 4).T
        if parents[number] >= 0:
            transforms[number] = transforms[parents[number]] @ transforms[number]
        if "mesh" in node:
            placed.append((glb.item("meshes", node["mesh"]), transforms[number]))
    return placed
