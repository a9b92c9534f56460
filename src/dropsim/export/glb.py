"""GLB: glTF 2.0 in one binary file, with skinned bodies and their animation, for Blender, Unity, Unreal and browsers."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.body.clothes import Color
from dropsim.body.mesh import Body
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, PARENTS
from dropsim.export.people import (
    R_ZUP_YUP,
    Rig,
    facts,
    linear_color,
    named_objects,
    named_people,
    object_color,
    quaternions_xyzw,
)
from dropsim.export.stage import Stage
from dropsim.files.atomic import atomic_path
from dropsim.files.gltf import Glb
from dropsim.motion.motion import Motion
from dropsim.scene.element import Solid

_HALF = float(np.sqrt(0.5))
_YUP_FROM_ZUP_XYZW = [-_HALF, 0.0, 0.0, _HALF]
_ZUP_FROM_YUP_XYZW = [_HALF, 0.0, 0.0, _HALF]
_VERTICES, _INDICES = 34962, 34963
"""glTF's numbers for kinds of data."""
Curve = tuple[int, str, np.ndarray, str]
"""Node, property, value at every frame, and interpolation."""


def write_glb(stage: Stage, path: Path, *, body: Body | None, seed: int | None) -> None:
    """Write people as skinned meshes with 22 joints each, y up and in metres, and objects as meshes, in one animation.

    Above each pelvis a node turns our z-up world into glTF's; below it the numbers are ours. Without the animation the
    people stand in the T-pose and face +z, as glTF and humanoid importers expect. Joints that a simulator solved off
    the bones are written as their rotations have them. `extras` of that node hold the rate, the events and the seed.
    """
    file = _File()
    for name, motion, rig in named_people(stage, body):
        file.add_person(motion, rig, name, seed)
    for name, solid in named_objects(stage.objects):
        file.add_object(solid, name, stage.fps)
    data = file.glb.data()
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


class _File:
    """A glTF document while it grows."""

    def __init__(self) -> None:
        self.top: list[int] = []
        """Nodes without a parent."""
        self.animation: dict[str, Any] = {"name": "motion", "channels": [], "samplers": []}
        asset = {"version": "2.0", "generator": f"dropsim {version('dropsim')}"}
        scenes, animations = [{"nodes": self.top}], [self.animation]
        self.glb = Glb({"asset": asset, "scene": 0, "scenes": scenes, "animations": animations})

    def add(self, name: str, item: dict[str, Any]) -> int:
        """Append an item to one of the document's lists, and return its index."""
        items = self.glb.json.setdefault(name, [])
        items.append(item)
        return len(items) - 1

    def material(self, name: str, color: Color, roughness: float) -> int:
        """Append a surface of one colour."""
        surface = {"baseColorFactor": [*linear_color(color), 1.0], "metallicFactor": 0.0, "roughnessFactor": roughness}
        return self.add("materials", {"name": name, "pbrMetallicRoughness": surface})

    def vertices(self, places: np.ndarray, normals: np.ndarray) -> dict[str, int]:
        """Append vertices, and return them as a primitive's attributes."""
        position = self.glb.add(places, target=_VERTICES, bounds=True)
        return {"POSITION": position, "NORMAL": self.glb.add(normals, target=_VERTICES)}

    def add_person(self, motion: Motion, rig: Rig, name: str, seed: int | None) -> None:
        """Add a mesh, a skin, the nodes of the joints and their channels."""
        pelvis = len(self.glb.list("nodes")) + 1
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
        skin["inverseBindMatrices"] = self.glb.add(inverse_bind)
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
        joints, weights = rig.strongest()
        attributes["JOINTS_0"] = self.glb.add(joints, target=_VERTICES)
        attributes["WEIGHTS_0"] = self.glb.add(weights, target=_VERTICES)
        primitives = list[dict[str, Any]]()
        for piece in rig.pieces:
            indices = self.glb.add(piece.faces.reshape(-1).astype(np.uint32), target=_INDICES)
            material = self.material(f"{name}_{piece.name}", piece.color, 0.8)
            primitives.append({"attributes": attributes, "indices": indices, "material": material})
        return primitives

    def add_object(self, solid: Solid, name: str, fps: float) -> None:
        """Add a mesh with flat faces below a node that turns our world into glTF's, and its channels if it moves."""
        corners, normals = solid.flat_faces()
        attributes = self.vertices(corners.astype(np.float32), normals.astype(np.float32))
        primitive = {"attributes": attributes, "material": self.material(name, object_color(solid.name), 0.9)}
        mesh = self.add("meshes", {"name": name, "primitives": [primitive]})
        lasting, there = solid.at_all_times(), solid.there
        places, turns = lasting.centre.astype(np.float32), quaternions_xyzw(lasting.rotation).astype(np.float32)
        axes = self.add("nodes", {"name": f"{name}_axes", "rotation": _YUP_FROM_ZUP_XYZW})
        pose = {"translation": places[0].tolist(), "rotation": turns[0].tolist()}
        node = self.add("nodes", {"name": name, "mesh": mesh, **pose})
        self.glb.list("nodes")[axes]["children"] = [node]
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
        times = self.glb.add((np.arange(len(curves[0][2])) / fps).astype(np.float32), bounds=True)
        for node, path, values, interpolation in curves:
            sampler = {"input": times, "output": self.glb.add(values), "interpolation": interpolation}
            self.animation["channels"].append(
                {"sampler": len(self.animation["samplers"]), "target": {"node": node, "path": path}}
            )
            self.animation["samplers"].append(sampler)
