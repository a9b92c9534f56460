"""GLB: glTF 2.0 in one binary file, with skinned bodies and their animation; Blender, Unity, Unreal and browsers read it."""

import json
import struct
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.body.mesh import Body
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, PARENTS
from dropsim.export.people import (
    R_ZUP_YUP,
    Rig,
    facts,
    linear_color,
    names,
    object_color,
    object_names,
    quaternions_xyzw,
)
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion
from dropsim.scene.rollout import SolidTrack

_HALF = float(np.sqrt(0.5))
_YUP_FROM_ZUP_XYZW = [-_HALF, 0.0, 0.0, _HALF]
_ZUP_FROM_YUP_XYZW = [_HALF, 0.0, 0.0, _HALF]
_COMPONENTS = {"float32": 5126, "uint32": 5125, "uint8": 5121}
_VERTICES, _INDICES = 34962, 34963
"""glTF's numbers for kinds of data."""


def write_glb(
    people: Sequence[Motion],
    path: Path,
    *,
    body: Body | None = None,
    seed: int | None = None,
    objects: Sequence[SolidTrack] = (),
) -> None:
    """Write people as skinned meshes with 22 joints each, y up and in metres, all in one animation, and objects as meshes that move.

    Above each pelvis a node turns our z-up world into glTF's; below it the numbers are ours. Without the animation the
    people stand in the T-pose and face +z, as glTF and humanoid importers expect. Joints that a simulator solved off
    the bones are written as their rotations have them. `extras` of that node hold the rate, the events and the seed.
    """
    file = _File()
    for number, (name, motion) in enumerate(zip(names(people), people, strict=True)):
        file.add_person(motion, Rig.of(motion, body, number), name, seed)
    for name, track in zip(object_names(objects), objects, strict=True):
        file.add_object(track, name, people[0].fps)
    data = file.data()
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


class _File:
    """A glTF document and its binary chunk while they grow."""

    def __init__(self) -> None:
        self.top: list[int] = []
        """Nodes without a parent."""
        self.blob = bytearray()
        (
            self.nodes,
            self.meshes,
            self.skins,
            self.materials,
            self.accessors,
            self.views,
            self.channels,
            self.samplers,
        ) = (list[dict[str, Any]]() for _ in range(8))

    def data(self) -> bytes:
        document = {
            "asset": {"version": "2.0", "generator": f"dropsim {version('dropsim')}"}, "scene": 0, "scenes": [{"nodes": self.top}],
            "nodes": self.nodes, "meshes": self.meshes, "skins": self.skins, "materials": self.materials,
            "animations": [{"name": "motion", "channels": self.channels, "samplers": self.samplers}], "accessors": self.accessors,
            "bufferViews": self.views, "buffers": [{"byteLength": len(self.blob)}],
        }  # fmt: skip
        text = json.dumps(document, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 4)
        chunks = (
            struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(self.blob), b"BIN\0") + self.blob
        )
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks

    def accessor(self, values: np.ndarray, kind: str, *, target: int | None = None, bounds: bool = False) -> int:
        """Append an array, one row an element, and return its accessor."""
        data = values.tobytes()
        view = {"buffer": 0, "byteOffset": len(self.blob), "byteLength": len(data)}
        self.views.append(view if target is None else view | {"target": target})
        self.blob.extend(data + bytes(-len(data) % 4))
        accessor = {
            "bufferView": len(self.views) - 1,
            "componentType": _COMPONENTS[values.dtype.name],
            "count": len(values),
            "type": kind,
        }
        if bounds:
            rows = values.reshape(len(values), -1)
            accessor |= {"min": rows.min(0).tolist(), "max": rows.max(0).tolist()}
        self.accessors.append(accessor)
        return len(self.accessors) - 1

    def add_person(self, motion: Motion, rig: Rig, name: str, seed: int | None) -> None:
        """Add a mesh, a skin, the nodes of the joints and their channels."""
        axes, pelvis = len(self.nodes), len(self.nodes) + 1
        self.nodes.append(
            {"name": name, "rotation": _YUP_FROM_ZUP_XYZW, "children": [pelvis], "extras": facts(motion, seed)}
        )
        offsets = rig.bind - rig.bind[[max(parent, 0) for parent in PARENTS]]
        offsets[0] = R_ZUP_YUP @ rig.bind[0]
        for j, joint in enumerate(JOINTS):
            node = {"name": joint, "translation": offsets[j].tolist()}
            self.nodes.append(node | ({"children": [pelvis + child for child in CHILDREN[j]]} if CHILDREN[j] else {}))
        self.nodes[pelvis]["rotation"] = _ZUP_FROM_YUP_XYZW
        self.nodes.append({"name": f"{name}_body", "mesh": len(self.meshes), "skin": len(self.skins)})
        # At the top, because a parent's place does not move a skinned mesh.
        self.top += [axes, len(self.nodes) - 1]
        inverse_bind = np.tile(np.eye(4, dtype=np.float32), (NUM_JOINTS, 1, 1))
        inverse_bind[:, 3, :3] = -rig.bind  # by columns
        joints = list(range(pelvis, pelvis + NUM_JOINTS))
        self.skins.append(
            {
                "name": name,
                "skeleton": axes,
                "joints": joints,
                "inverseBindMatrices": self.accessor(inverse_bind, "MAT4"),
            }
        )
        self.meshes.append({"name": f"{name}_body", "primitives": self._primitives(rig)})
        for piece in rig.pieces:
            surface = {
                "baseColorFactor": [*linear_color(piece.color), 1.0],
                "metallicFactor": 0.0,
                "roughnessFactor": 0.8,
            }
            self.materials.append({"name": f"{name}_{piece.name}", "pbrMetallicRoughness": surface})
        self._add_channels(motion, pelvis)

    def add_object(self, track: SolidTrack, name: str, fps: float) -> None:
        """Add a mesh with flat faces, and the channels of one that moves, below a node that turns our world into glTF's."""
        corners = track.vertices[track.faces].astype(np.float32)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-20)
        attributes = {
            "POSITION": self.accessor(corners.reshape(-1, 3), "VEC3", target=_VERTICES, bounds=True),
            "NORMAL": self.accessor(np.repeat(normals, 3, axis=0).astype(np.float32), "VEC3", target=_VERTICES),
        }
        surface = {
            "baseColorFactor": [*linear_color(object_color(track.name)), 1.0],
            "metallicFactor": 0.0,
            "roughnessFactor": 0.9,
        }
        self.meshes.append({"name": name, "primitives": [{"attributes": attributes, "material": len(self.materials)}]})
        self.materials.append({"name": name, "pbrMetallicRoughness": surface})
        lasting, there = track.at_all_times(), track.there
        places, turns = lasting.centres.astype(np.float32), quaternions_xyzw(lasting.rotations).astype(np.float32)
        axes = len(self.nodes)
        self.top.append(axes)
        self.nodes.append({"name": f"{name}_axes", "rotation": _YUP_FROM_ZUP_XYZW, "children": [axes + 1]})
        node = {
            "name": name,
            "mesh": len(self.meshes) - 1,
            "translation": places[0].tolist(),
            "rotation": turns[0].tolist(),
        }
        self.nodes.append(node)
        curves = [("translation", places, "LINEAR"), ("rotation", turns, "LINEAR")]
        if np.ptp(places, axis=0).max() < 1e-6 and np.ptp(turns, axis=0).max() < 1e-6:
            curves = []
        if not there.all():  # glTF hides nothing, but a size of zero cannot be seen
            curves.append(("scale", np.repeat(there[:, None].astype(np.float32), 3, axis=1), "STEP"))
        if curves:
            self._add_curves([(axes + 1, *curve) for curve in curves], fps)

    def _primitives(self, rig: Rig) -> list[dict[str, Any]]:
        """Return one for each piece; they share the vertices, and their materials come next."""
        attributes = {
            "POSITION": self.accessor(rig.vertices, "VEC3", target=_VERTICES, bounds=True),
            "NORMAL": self.accessor(rig.normals, "VEC3", target=_VERTICES),
            "JOINTS_0": self.accessor(rig.joints, "VEC4", target=_VERTICES),
            "WEIGHTS_0": self.accessor(rig.weights, "VEC4", target=_VERTICES),
        }
        found = []
        for number, piece in enumerate(rig.pieces):
            indices = self.accessor(piece.faces.reshape(-1).astype(np.uint32), "SCALAR", target=_INDICES)
            found.append({"attributes": attributes, "indices": indices, "material": len(self.materials) + number})
        return found

    def _add_channels(self, motion: Motion, pelvis: int) -> None:
        """Add the pelvis' path and every joint's rotation to the animation."""
        turns = quaternions_xyzw(motion.q).astype(np.float32)
        curves = [(pelvis, "translation", motion.root.astype(np.float32), "LINEAR")]
        self._add_curves(
            [*curves, *((pelvis + j, "rotation", turns[:, j], "LINEAR") for j in range(NUM_JOINTS))], motion.fps
        )

    def _add_curves(self, curves: Sequence[tuple[int, str, np.ndarray, str]], fps: float) -> None:
        """Add nodes' values at every frame to the animation, with how to get from one to the next."""
        times = self.accessor((np.arange(len(curves[0][2])) / fps).astype(np.float32), "SCALAR", bounds=True)
        for node, path, values, interpolation in curves:
            self.channels.append({"sampler": len(self.samplers), "target": {"node": node, "path": path}})
            output = self.accessor(np.ascontiguousarray(values), f"VEC{values.shape[1]}")
            self.samplers.append({"input": times, "output": output, "interpolation": interpolation})
