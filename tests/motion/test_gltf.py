"""Characters in GLB files: read, changed, and written back with everything else as it was."""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clients import gltf_issues, joints_in_blender

from dropsim.apps.cli import main
from dropsim.body.rotations import exp, rotmat_to_unitquat
from dropsim.body.skeleton import JOINTS, NUM_JOINTS
from dropsim.export import write
from dropsim.files.gltf import Glb
from dropsim.motion.gltf import read_glb
from dropsim.motion.motion import Motion
from dropsim.motion.retarget import known_rig_maps, read_rig_map, retarget, spellings
from dropsim.motion.synthetic import stepping_clip

STEPS = stepping_clip(1.0)
LAST = np.float32(STEPS.duration)
MIXAMO = next(rig_map for rig_map in known_rig_maps() if rig_map.name == "mixamo")


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 12)[0]
    return json.loads(data[20 : 20 + length]), data[28 + length :]


def pack(path: Path, document: dict[str, Any], blob: bytes) -> Path:
    text = json.dumps(document).encode()
    chunks = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(blob), b"BIN\0") + blob
    path.write_bytes(struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks)
    return path


@pytest.fixture(scope="module")
def character(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody of another make: Mixamo's names, an armature in centimetres, a finger, and a second animation."""
    folder = tmp_path_factory.mktemp("glb")
    write(STEPS, folder / "ours.glb")
    glb = Glb.read(folder / "ours.glb")
    nodes, skin, (walk,) = glb.json["nodes"], glb.json["skins"][0], glb.json["animations"]
    for node in nodes:
        if node["name"] in JOINTS:
            node["translation"] = [100 * v for v in node["translation"]]
            node["name"] = f"mixamorig:{spellings(MIXAMO.joints[node['name']])[0]}"
    armature = next(node for node in nodes if node["name"] == "person")
    armature |= {"name": "Armature", "scale": [0.01, 0.01, 0.01]}
    # The pelvis' path in centimetres too, and a finger in the skin.
    path = next(c for c in walk["channels"] if c["target"]["path"] == "translation")
    sampler = walk["samplers"][path["sampler"]]
    sampler["output"] = glb.add(np.float32(100) * glb.values(sampler["output"]))
    hand = next(node for node in nodes if node["name"] == "mixamorig:LeftHand")
    hand["children"] = [len(nodes)]
    nodes.append({"name": "mixamorig:LeftHandIndex1", "translation": [8.0, 0.0, 0.0]})
    skin["joints"].append(len(nodes) - 1)
    matrices = glb.values(skin["inverseBindMatrices"])
    skin["inverseBindMatrices"] = glb.add(np.concatenate((matrices, matrices[-1:])))
    finger = np.tile(rotmat_to_unitquat(exp(np.array([0.5, 0.0, 0.0]))).astype(np.float32), (2, 1))
    times = glb.add(np.array([0.0, LAST], np.float32), bounds=True)
    keys = {"input": times, "output": glb.add(finger)}
    target = {"node": len(nodes) - 1, "path": "rotation"}
    curl = {"name": "curl", "channels": [{"sampler": 0, "target": target}], "samplers": [keys]}
    glb.json["animations"].append(curl)
    walk["name"] = "walk"
    walk["channels"].append({"sampler": len(walk["samplers"]), "target": target})
    walk["samplers"].append(dict(keys))
    (folder / "character.glb").write_bytes(glb.data())
    return folder / "character.glb"


def test_a_character_is_read_as_it_moves(character: Path):
    recording = retarget(read_glb(character), None)
    assert recording.read_as.startswith("rig mixamo, y up (glTF's)")
    # Single precision in centimetres.
    np.testing.assert_allclose(recording.motion.joints, STEPS.joints, rtol=0, atol=1e-6)
    assert recording.motion.fps == STEPS.fps


def test_nothing_changes_where_nothing_was_changed(character: Path, tmp_path: Path):
    recording = retarget(read_glb(character), None)
    assert recording.fit is not None
    recording.fit.write(recording.motion, tmp_path / "back.glb")
    before, after = parts(character), parts(tmp_path / "back.glb")
    assert after[0] == before[0]
    assert after[1][: len(before[1])] == before[1]


@pytest.fixture
def changed(character: Path, tmp_path: Path, rng: np.random.Generator) -> tuple[Path, Motion]:
    recording = retarget(read_glb(character), None)
    assert recording.fit is not None
    m = recording.motion
    twice = Motion.concatenate([m, m])
    q = twice.q @ exp(0.2 * rng.standard_normal((len(twice), NUM_JOINTS, 3)))
    motion = Motion.from_rotations(m.skeleton, m.fps, twice.root + 0.1, q)
    recording.fit.write(motion, tmp_path / "back.glb")
    return tmp_path / "back.glb", motion


def test_a_changed_motion_comes_back(changed: tuple[Path, Motion]):
    path, motion = changed
    again = retarget(read_glb(path), None).motion
    np.testing.assert_allclose(again.joints, motion.joints, rtol=0, atol=1e-5)


def test_mesh_materials_fingers_and_other_animations_are_untouched(character: Path, changed: tuple[Path, Motion]):
    before, after = parts(character), parts(changed[0])
    for key in ("meshes", "materials", "skins", "nodes", "scenes", "scene", "asset"):
        assert after[0][key] == before[0][key]
    assert after[0]["animations"][1] == before[0]["animations"][1]
    assert after[0]["accessors"][: len(before[0]["accessors"])] == before[0]["accessors"]
    # All old numbers are where they were, but for the padding at their end.
    assert after[1][: len(before[1])] == before[1]
    source, again = read_glb(character), read_glb(changed[0])
    finger = source.rig.names.index("mixamorig:LeftHandIndex1")
    np.testing.assert_allclose(again.rotations[: len(source), finger], source.rotations[:, finger], rtol=0, atol=1e-6)


def test_the_command_writes_the_character(character: Path, tmp_path: Path):
    assert main(["clean", str(character), str(tmp_path / "out.glb"), "--strength", "strict"]) == 0
    assert parts(tmp_path / "out.glb")[0]["meshes"] == parts(character)[0]["meshes"]


def test_an_animation_by_name(character: Path):
    # The finger alone: everything else stands in the rest pose.
    source = read_glb(character, animation="curl")
    others = [j for j, name in enumerate(source.rig.names) if not name.endswith("Index1")]
    assert np.abs(source.rotations[:, others] - source.rig.rotations[others]).max() < 1e-6
    with pytest.raises(ValueError, match="no animation 'dance' that moves its character; its animations: walk, curl"):
        read_glb(character, animation="dance")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d, b: b"glTX" + d[4:], "not a GLB file"),
        (lambda d, b: d[:100], "cut off"),
        (lambda d, b: d[: len(d) - 2000], "cut off"),
        (lambda d, b: b"", "not a GLB file"),
    ],
)
def test_damaged_files_get_a_sentence(character: Path, tmp_path: Path, damage: Any, message: str):
    path = tmp_path / "bad.glb"
    path.write_bytes(damage(character.read_bytes(), b""))
    with pytest.raises(ValueError, match=message) as error:
        read_glb(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["skins"][0]["joints"].append(10_000), "damaged"),
        (lambda d: d.pop("skins"), "no skinned character"),
        (lambda d: d.pop("animations"), "no animation that moves its character; its animations: none"),
        (lambda d: d["nodes"][2].update(children=[1]), "two parents"),
        (lambda d: d["accessors"][-1].update(count=-3), "lie outside"),
        (lambda d: d["accessors"][-1].update(count="many"), "damaged"),
        (lambda d: d["bufferViews"][-2].update(byteStride=0), "lie outside the file"),
        (lambda d: d["bufferViews"][-2].update(byteOffset=-8), "lie outside the file"),
        (lambda d: d.update(nodes=7), "damaged"),
        (lambda d: d["nodes"][1].update(translation=[1, "a", 2]), r"at `\$.nodes\[1\].translation"),
        (lambda d: d["accessors"][-1].update(count=10**6), "lie outside the file"),
        (lambda d: d["nodes"][1].update(scale=[1, 2, 3]), "scaled unevenly"),
        (lambda d: d["nodes"][1].update(rotation=[0, 0, 0, 0]), "zero norm"),
        (lambda d: d["buffers"][0].update(uri="other.bin"), "one GLB"),
    ],
)
def test_documents_that_lie_get_a_sentence(character: Path, tmp_path: Path, change: Any, message: str):
    document, blob = parts(character)
    change(document)
    with pytest.raises(ValueError, match=message):
        read_glb(pack(tmp_path / "bad.glb", document, blob))


def places(value: Any) -> list[tuple[Any, Any]]:
    """All containers of a JSON document with all their keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in items for place in [(value, key), *places(part)]]


ODD = (None, True, -1, 0.5, 2**31, 2**63, 10**400, 1e300, float("nan"), "x", [], {}, [[]], [{}], {"a": 1})


def test_values_of_odd_types_get_a_sentence(character: Path, tmp_path: Path, rng: np.random.Generator):
    text = json.dumps(parts(character)[0])
    for _ in range(25):
        document = json.loads(text)
        # First a part of the document, so that nodes do not outweigh all else.
        part = document[rng.choice(["nodes", "skins", "animations", "accessors", "bufferViews", "buffers"])]
        container, key = [(document, "nodes"), *places(part)][rng.integers(len(places(part)) + 1)]
        container[key] = ODD[rng.integers(len(ODD))]
        with contextlib.suppress(ValueError):
            recording = retarget(read_glb(pack(tmp_path / "odd.glb", document, parts(character)[1])), None)
            assert recording.fit is not None
            moved = Motion.concatenate([recording.motion, recording.motion])
            recording.fit.write(moved, tmp_path / "back.glb")


def test_names_inject_nothing_into_maps_and_terminals(
    character: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    document, blob = parts(character)
    finger = next(node for node in document["nodes"] if node["name"].endswith("Index1"))
    finger["name"] = '\n[rotations]\nhead = "Hips"\n\x1b[31m'
    pack(tmp_path / "odd.glb", document, blob)
    assert main(["rig", str(tmp_path / "odd.glb"), "--save", str(tmp_path / "map.toml")]) == 0
    assert not read_rig_map(tmp_path / "map.toml").rotations
    document["animations"] = [{"name": "\x1b[31m", "channels": [], "samplers": []}]
    assert main(["rig", str(pack(tmp_path / "odd.glb", document, blob))]) == 2
    out = capsys.readouterr()
    assert "\x1b" not in out.out + out.err + (tmp_path / "map.toml").read_text()


def test_khronos_validator_has_no_objection(character: Path, changed: tuple[Path, Motion]):
    before, after = (gltf_issues(path) for path in (character, changed[0]))
    assert before["numErrors"] == after["numErrors"] == 0
    assert before["numWarnings"] == after["numWarnings"]


def test_blender_shows_the_same_person(changed: tuple[Path, Motion]):
    path, motion = changed
    bones = [f"mixamorig:{spellings(MIXAMO.joints[joint])[0]}" for joint in JOINTS]
    found = joints_in_blender(path, bones, (0, 10, 50), action="walk")
    np.testing.assert_allclose(found, motion.joints[[0, 10, 50]], rtol=0, atol=1e-3)
