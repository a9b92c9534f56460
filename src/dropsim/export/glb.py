"""GLB: glTF 2.0 in one binary file, with skinned bodies and their animation; Blender, Unity, Unreal and browsers read it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dropsim.body.mesh import Body
from dropsim.body.skeleton import CHILDREN, JOINTS, NUM_JOINTS, PARENTS
from dropsim.export.people import COLORS, R_ZUP_YUP, Rig, array, checked, facts, linear_color, names, quaternions_xyzw
from dropsim.files.atomic import atomic_path
from dropsim.motion.motion import Motion

if TYPE_CHECKING:
    import pygltflib

_HALF = float(np.sqrt(0.5))
_YUP_FROM_ZUP_XYZW = [-_HALF, 0.0, 0.0, _HALF]
_ZUP_FROM_YUP_XYZW = [_HALF, 0.0, 0.0, _HALF]


def write_glb(motions: Motion | Sequence[Motion], path: Path, *, body: Body | None = None, seed: int | None = None) -> None:
    """Write people as skinned meshes with 22 joints each, y up and in metres, all in one animation.

    Above each pelvis a node turns our z-up world into glTF's; below it the numbers are ours. Without the animation the people stand in
    the T-pose and face +z, as glTF and humanoid importers expect. Joints that a simulator solved off the bones are written as their
    rotations have them. `extras` of that node hold the rate, the events and the seed.
    """
    people = checked(motions, path)
    try:
        import pygltflib
    except ImportError as error:
        raise ValueError("writing GLB needs pygltflib: run `pip install 'dropsim[export]'`") from error
    file = _File(pygltflib.GLTF2(asset=pygltflib.Asset(version="2.0", generator=f"dropsim {version('dropsim')}"), scene=0))
    file.gltf.animations = [pygltflib.Animation(name="motion")]
    for number, (name, motion) in enumerate(zip(names(people), people, strict=True)):
        _add_person(file, motion, Rig.of(motion, body), name, COLORS[number % len(COLORS)], seed)
    data = _finished(file)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


@dataclass(frozen=True, eq=False)
class _File:
    """A glTF document and its binary chunk while they grow."""

    gltf: "pygltflib.GLTF2"
    top: list[int] = field(default_factory=list)
    """Nodes without a parent."""
    blob: bytearray = field(default_factory=bytearray)


def _accessor(file: _File, values: np.ndarray, kind: str, *, target: int | None = None, bounds: bool = False) -> int:
    """Append an array, one row an element, and return its accessor."""
    import pygltflib

    component = {"float32": pygltflib.FLOAT, "uint32": pygltflib.UNSIGNED_INT, "uint8": pygltflib.UNSIGNED_BYTE}[values.dtype.name]
    data = values.tobytes()
    file.gltf.bufferViews.append(pygltflib.BufferView(buffer=0, byteOffset=len(file.blob), byteLength=len(data), target=target))
    file.blob.extend(data + bytes(-len(data) % 4))
    accessor = pygltflib.Accessor(bufferView=len(file.gltf.bufferViews) - 1, componentType=component, count=len(values), type=kind)
    if bounds:
        rows = values.reshape(len(values), -1)
        accessor.min, accessor.max = rows.min(0).tolist(), rows.max(0).tolist()
    file.gltf.accessors.append(accessor)
    return len(file.gltf.accessors) - 1


def _finished(file: _File) -> bytes:
    import pygltflib

    file.gltf.scenes = [pygltflib.Scene(nodes=file.top)]
    file.gltf.buffers = [pygltflib.Buffer(byteLength=len(file.blob))]
    file.gltf.set_binary_blob(bytes(file.blob))
    return b"".join(file.gltf.save_to_bytes())


def _add_person(file: _File, motion: Motion, rig: Rig, name: str, color: tuple[int, int, int], seed: int | None) -> None:
    """Add a mesh, a skin, the nodes of the joints and their channels."""
    import pygltflib

    gltf = file.gltf
    axes, pelvis = len(gltf.nodes), len(gltf.nodes) + 1
    gltf.nodes.append(pygltflib.Node(name=name, rotation=_YUP_FROM_ZUP_XYZW, children=[pelvis], extras=facts(motion, seed)))
    offsets = rig.bind - rig.bind[[max(parent, 0) for parent in PARENTS]]
    offsets[0] = R_ZUP_YUP @ rig.bind[0]
    for j, joint in enumerate(JOINTS):
        children = [pelvis + child for child in CHILDREN[j]]
        gltf.nodes.append(pygltflib.Node(name=joint, translation=offsets[j].tolist(), children=children))
    gltf.nodes[pelvis].rotation = _ZUP_FROM_YUP_XYZW
    gltf.nodes.append(pygltflib.Node(name=f"{name}_body", mesh=len(gltf.meshes), skin=len(gltf.skins)))
    # At the top, because a parent's place does not move a skinned mesh.
    file.top.extend((axes, len(gltf.nodes) - 1))
    gltf.skins.append(
        pygltflib.Skin(
            name=name, skeleton=axes, joints=list(range(pelvis, pelvis + NUM_JOINTS)), inverseBindMatrices=_inverse_bind(file, rig)
        )
    )
    gltf.meshes.append(pygltflib.Mesh(name=f"{name}_body", primitives=[_primitive(file, rig)]))
    surface = pygltflib.PbrMetallicRoughness(baseColorFactor=[*linear_color(color), 1.0], metallicFactor=0.0, roughnessFactor=0.8)
    gltf.materials.append(pygltflib.Material(name=name, pbrMetallicRoughness=surface, alphaCutoff=None))
    _add_channels(file, motion, pelvis)


def _inverse_bind(file: _File, rig: Rig) -> int:
    matrices = np.tile(np.eye(4, dtype=np.float32), (NUM_JOINTS, 1, 1))
    # Column by column.
    matrices[:, 3, :3] = -rig.bind
    return _accessor(file, matrices, "MAT4")


def _primitive(file: _File, rig: Rig) -> "pygltflib.Primitive":
    import pygltflib

    vertex, index = pygltflib.ARRAY_BUFFER, pygltflib.ELEMENT_ARRAY_BUFFER
    return pygltflib.Primitive(
        attributes=pygltflib.Attributes(
            POSITION=_accessor(file, rig.vertices, "VEC3", target=vertex, bounds=True),
            NORMAL=_accessor(file, rig.normals, "VEC3", target=vertex),
            JOINTS_0=_accessor(file, rig.joints, "VEC4", target=vertex),
            WEIGHTS_0=_accessor(file, rig.weights, "VEC4", target=vertex),
        ),
        indices=_accessor(file, rig.faces.reshape(-1), "SCALAR", target=index),
        material=len(file.gltf.materials),
    )


def _add_channels(file: _File, motion: Motion, pelvis: int) -> None:
    """Add the pelvis' path and every joint's rotation to the animation."""
    import pygltflib

    animation = file.gltf.animations[0]
    times = _accessor(file, (np.arange(len(motion)) / motion.fps).astype(np.float32), "SCALAR", bounds=True)
    turns = quaternions_xyzw(motion.q).astype(np.float32)
    curves = [(pelvis, "translation", array(motion.root).astype(np.float32))]
    curves += [(pelvis + j, "rotation", np.ascontiguousarray(turns[:, j])) for j in range(NUM_JOINTS)]
    for node, property_, values in curves:
        output = _accessor(file, values, f"VEC{values.shape[1]}")
        animation.samplers.append(pygltflib.AnimationSampler(input=times, output=output, interpolation="LINEAR"))
        target = pygltflib.AnimationChannelTarget(node=node, path=property_)
        animation.channels.append(pygltflib.AnimationChannel(sampler=len(animation.samplers) - 1, target=target))
