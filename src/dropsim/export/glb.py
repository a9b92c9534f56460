"""GLB: glTF 2.0 in one binary file, with skinned bodies and their animation, for Blender, Unity, Unreal and browsers."""

import json
import struct
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.body.clothes import Color
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, PARENTS
from dropsim.export.people import R_ZUP_YUP, Exported, Rig, facts, linear_color, object_color, quaternions_xyzw
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.scene.element import Solid

_HALF = float(np.sqrt(0.5))
_YUP_FROM_ZUP_XYZW = [-_HALF, 0.0, 0.0, _HALF]
_ZUP_FROM_YUP_XYZW = [_HALF, 0.0, 0.0, _HALF]
_COMPONENTS = {"float32": 5126, "uint32": 5125, "uint8": 5121}
_VERTICES, _INDICES = 34962, 34963
"""glTF's numbers for kinds of data."""
Curve = tuple[int, str, np.ndarray, str]
"""Node, property, value at every frame, and interpolation."""


def write_glb(exported: Exported, path: Path) -> None:
    """Write people as skinned meshes with 22 joints each, y up and in metres, and objects as meshes, in one animation.

    Above each pelvis a node turns our z-up world into glTF's; below it the numbers are ours. Without the animation the
    people stand in the T-pose and face +z, as glTF and humanoid importers expect. Joints that a simulator solved off
    the bones are written as their rotations have them. `extras` of that node hold the rate, the events and the seed.
    """
    file = _File()
    for name, motion, rig in exported.named_people():
        file.add_person(motion, rig, name, exported.seed)
    for name, solid in exported.named_objects():
        file.add_object(solid, name, exported.people[0].fps)
    data = file.data()
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


class _File:
    """A glTF document and its binary chunk while they grow."""

    def __init__(self) -> None:
        self.top: list[int] = []
        """Nodes without a parent."""
        self.blob = bytearray()
        names = ("nodes", "meshes", "skins", "materials", "accessors", "bufferViews", "channels", "samplers")
        self.lists: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

    def add(self, name: str, item: dict[str, Any]) -> int:
        """Append an item to one of the document's lists, and return its index."""
        self.lists[name].append(item)
        return len(self.lists[name]) - 1

    def data(self) -> bytes:
        """Return the file's content."""
        lists = dict(self.lists)
        animation = {"name": "motion", "channels": lists.pop("channels"), "samplers": lists.pop("samplers")}
        document = {
            "asset": {"version": "2.0", "generator": f"dropsim {version('dropsim')}"},
            "scene": 0,
            "scenes": [{"nodes": self.top}],
            "animations": [animation],
            "buffers": [{"byteLength": len(self.blob)}],
            **lists,
        }
        text = json.dumps(document, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 4)
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        chunks += struct.pack("<I4s", len(self.blob), b"BIN\0") + self.blob
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks

    def accessor(self, values: np.ndarray, kind: str, *, target: int | None = None, bounds: bool = False) -> int:
        """Append an array, one row an element, and return its accessor."""
        data = values.tobytes()
        view = {"buffer": 0, "byteOffset": len(self.blob), "byteLength": len(data)}
        number = self.add("bufferViews", view if target is None else view | {"target": target})
        self.blob.extend(data + bytes(-len(data) % 4))
        component = _COMPONENTS[values.dtype.name]
        accessor = {"bufferView": number, "componentType": component, "count": len(values), "type": kind}
        if bounds:
            rows = values.reshape(len(values), -1)
            accessor |= {"min": rows.min(0).tolist(), "max": rows.max(0).tolist()}
        return self.add("accessors", accessor)

    def material(self, name: str, color: Color, roughness: float) -> int:
        """Append a surface of one colour."""
        surface = {"baseColorFactor": [*linear_color(color), 1.0], "metallicFactor": 0.0, "roughnessFactor": roughness}
        return self.add("materials", {"name": name, "pbrMetallicRoughness": surface})

    def vertices(self, places: np.ndarray, normals: np.ndarray) -> dict[str, int]:
        """Append vertices, and return them as a primitive's attributes."""
        position = self.accessor(places, "VEC3", target=_VERTICES, bounds=True)
        return {"POSITION": position, "NORMAL": self.accessor(normals, "VEC3", target=_VERTICES)}

    def add_person(self, motion: Motion, rig: Rig, name: str, seed: int | None) -> None:
        """Add a mesh, a skin, the nodes of the joints and their channels."""
        pelvis = len(self.lists["nodes"]) + 1
        node = {"name": name, "rotation": _YUP_FROM_ZUP_XYZW, "children": [pelvis], "extras": facts(motion, seed)}
        axes = self.add("nodes", node)
        offsets = rig.bind - rig.bind[[max(parent, 0) for parent in PARENTS]]
        offsets[0] = R_ZUP_YUP @ rig.bind[0]
        for j, joint in enumerate(JOINTS):
            node = {"name": joint, "translation": offsets[j].tolist()}
            node |= {"rotation": _ZUP_FROM_YUP_XYZW} if j == 0 else {}
            self.add("nodes", node | ({"children": [pelvis + child for child in CHILDREN[j]]} if CHILDREN[j] else {}))
        inverse_bind = np.tile(np.eye(4, dtype=np.float32), (NUM_JOINTS, 1, 1))
        inverse_bind[:, 3, :3] = -rig.bind  # by columns
        skin = {"name": name, "skeleton": axes, "joints": list(range(pelvis, pelvis + NUM_JOINTS))}
        skin["inverseBindMatrices"] = self.accessor(inverse_bind, "MAT4")
        mesh = self.add("meshes", {"name": f"{name}_body", "primitives": self._pieces(rig, name)})
        body = self.add("nodes", {"name": f"{name}_body", "mesh": mesh, "skin": self.add("skins", skin)})
        # At the top, because a parent's place does not move a skinned mesh.
        self.top += [axes, body]
        turns = quaternions_xyzw(motion.q).astype(np.float32)
        curves: list[Curve] = [(pelvis, "translation", motion.root.astype(np.float32), "LINEAR")]
        curves += [(pelvis + j, "rotation", turns[:, j], "LINEAR") for j in range(NUM_JOINTS)]
        self._animate(curves, motion.fps)

    def _pieces(self, rig: Rig, name: str) -> list[dict[str, Any]]:
        """Return a primitive for each piece; they share the vertices."""
        attributes = self.vertices(rig.vertices, rig.normals)
        attributes["JOINTS_0"] = self.accessor(rig.joints, "VEC4", target=_VERTICES)
        attributes["WEIGHTS_0"] = self.accessor(rig.weights, "VEC4", target=_VERTICES)
        primitives = list[dict[str, Any]]()
        for piece in rig.pieces:
            indices = self.accessor(piece.faces.reshape(-1).astype(np.uint32), "SCALAR", target=_INDICES)
            material = self.material(f"{name}_{piece.name}", piece.color, 0.8)
            primitives.append({"attributes": attributes, "indices": indices, "material": material})
        return primitives

    def add_object(self, solid: Solid, name: str, fps: float) -> None:
        """Add a mesh with flat faces below a node that turns our world into glTF's, and its channels if it moves."""
        corners = solid.vertices[solid.faces].astype(np.float32)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-20)
        attributes = self.vertices(corners.reshape(-1, 3), np.repeat(normals, 3, axis=0).astype(np.float32))
        primitive = {"attributes": attributes, "material": self.material(name, object_color(solid.name), 0.9)}
        mesh = self.add("meshes", {"name": name, "primitives": [primitive]})
        lasting, there = solid.at_all_times(), solid.there
        places, turns = lasting.centre.astype(np.float32), quaternions_xyzw(lasting.rotation).astype(np.float32)
        axes = self.add("nodes", {"name": f"{name}_axes", "rotation": _YUP_FROM_ZUP_XYZW})
        pose = {"translation": places[0].tolist(), "rotation": turns[0].tolist()}
        node = self.add("nodes", {"name": name, "mesh": mesh, **pose})
        self.lists["nodes"][axes]["children"] = [node]
        self.top.append(axes)
        curves = list[Curve]()
        if max(np.ptp(places, axis=0).max(), np.ptp(turns, axis=0).max()) >= 1e-6:
            curves = [(node, "translation", places, "LINEAR"), (node, "rotation", turns, "LINEAR")]
        if not there.all():  # glTF hides nothing, but a size of zero cannot be seen
            curves.append((node, "scale", np.repeat(there[:, None].astype(np.float32), 3, axis=1), "STEP"))
        self._animate(curves, fps)

    def _animate(self, curves: Sequence[Curve], fps: float) -> None:
        """Add nodes' values at every frame to the animation."""
        if not curves:
            return
        times = self.accessor((np.arange(len(curves[0][2])) / fps).astype(np.float32), "SCALAR", bounds=True)
        for node, path, values, interpolation in curves:
            output = self.accessor(np.ascontiguousarray(values), f"VEC{values.shape[1]}")
            sampler = self.add("samplers", {"input": times, "output": output, "interpolation": interpolation})
            self.add("channels", {"sampler": sampler, "target": {"node": node, "path": path}})
