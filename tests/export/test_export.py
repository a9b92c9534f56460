"""Exporters: one contract for all of them, and each read back by its own library."""

import base64
import builtins
import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clients import gltf_issues, joints_in_blender
from scipy.spatial.transform import Rotation

from dropsim.body.mesh import Body
from dropsim.body.rotations import exp
from dropsim.body.skeleton import JOINTS, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.export import ENDINGS, write
from dropsim.files import atomic as files
from dropsim.motion.amass import read_amass
from dropsim.motion.motion import Event, Motion
from dropsim.motion.reading import read_motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane
from dropsim.scene import Solid

LIBRARIES = {".html": "viser", ".usd": "pxr", ".usda": "pxr", ".usdc": "pxr"}
EVERY_ENDING = pytest.mark.parametrize("ending", list(ENDINGS))
WITH_LIBRARY = pytest.mark.parametrize("ending", list(LIBRARIES))
SKINNED = (".glb", *LIBRARIES)
EVERY_SKINNED = pytest.mark.parametrize("ending", SKINNED)

Y_FROM_Z = np.array(((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0)))
"""Our world to glTF's: up is y."""


def recorded(seconds: float = 0.5) -> Motion:
    """A stepping person who turns upside down, with everything that a simulator records."""
    clip = stepping_clip(seconds)
    turn = np.linspace(0.0, 4.0, len(clip))
    q = clip.q.copy()
    q[:, 0] = exp(turn[:, None] * np.array([1.0, 0.0, 0.0])) @ q[:, 0]
    forces = np.random.default_rng(0).normal(size=(2, len(clip), NUM_JOINTS, 3)) * 100
    motion = Motion.from_rotations(clip.skeleton, clip.fps, clip.root, q, name="clip")
    forced = replace(motion, touching=forces[0, ..., 2] > 0, contact_forces=forces[0], external_forces=forces[1])
    return replace(
        forced,
        wrench_before=np.abs(forces[0, :, 0, 0]),
        wrench_after=np.abs(forces[0, :, 0, 1]),
        energies={"contact": turn, "rigidity": turn * 1e-7},
        events=(Event("push torso", 0.1, 0.1), Event("ball, hit", 0.3)),
    )


CLIP = recorded()


def boxes() -> Body:
    """A body of one box a bone, shared by the bone's two joints."""
    skeleton = Skeleton.adult()
    corners = np.array([(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    sides = np.array(((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)))
    box = np.concatenate((sides[:, [0, 1, 2]], sides[:, [0, 2, 3]]))
    near, far = skeleton.rest[list(PARENTS[1:])], skeleton.rest[1:]
    size = np.abs(far - near) / 2 + 0.6 * skeleton.radii[1:, None]
    vertices = ((near + far) / 2)[:, None] + corners * size[:, None]
    faces = box + 8 * np.arange(NUM_JOINTS - 1)[:, None, None]
    eye = np.eye(NUM_JOINTS)
    blend = np.repeat(0.7 * eye[list(PARENTS[1:])] + 0.3 * eye[1:], 8, axis=0)
    # And a vertex in no face, which has no normal.
    vertices, blend = (np.concatenate((rows, rows[:1])) for rows in (vertices.reshape(-1, 3), blend))
    return Body(skeleton, vertices, faces.reshape(-1, 3), blend)


BODY = boxes()


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Path]:
    def run(motions: Any, ending: str, name: str = "out", **options: Any) -> Path:
        if ending in LIBRARIES:
            pytest.importorskip(LIBRARIES[ending])
        path = tmp_path / f"{name}{ending}"
        write(motions, path, body=BODY, **options)
        return path

    return run


# --- the contract


@EVERY_ENDING
def test_writes_one_file_and_says_nothing(
    export: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], ending: str
):
    before = [values.copy() for values in (CLIP.root, CLIP.q, CLIP.joints)]
    path = export(CLIP, ending, seed=3)
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]
    # The motion is not changed, and gives the same bytes again; endings in capitals and missing folders are fine.
    for was, values in zip(before, (CLIP.root, CLIP.q, CLIP.joints), strict=True):
        np.testing.assert_array_equal(values, was)
    again = tmp_path / "new" / "deep" / f"OUT{ending.upper()}"
    write(CLIP, str(again), body=BODY, seed=3)
    assert again.read_bytes() == path.read_bytes()
    assert export(CLIP.slice(4, 5), ending, "one_frame").exists()
    assert capfd.readouterr() == ("", "")


def refused(export: Callable[..., Path], tmp_path: Path, motions: Any, ending: str, **options: Any) -> str:
    """Return the sentence that refuses a motion, with not even a folder left behind."""
    with pytest.raises(ValueError, match="out") as error:
        export(motions, ending, "new/out", **options)
    assert list(tmp_path.iterdir()) == []
    assert "\n" not in str(error.value)
    return str(error.value)


def with_nan(field: str) -> Motion:
    broken = getattr(CLIP, field).copy()
    broken[7] = np.nan
    return replace(CLIP, **{field: broken})


TWO = Motion.from_rotations(CLIP.skeleton, 30.0, np.stack((CLIP.root, CLIP.root)), np.stack((CLIP.q, CLIP.q)))
REFUSED = [
    *((with_nan(field), "not finite") for field in ("root", "q", "joints")),
    (TWO, r"\(2,\)"),
    ([], "no motion"),
    (Motion.from_rotations(CLIP.skeleton, 30.0, CLIP.root[:0], CLIP.q[:0]), "no frames"),
    (replace(CLIP, fps=0.0), "frames per second"),
]


@EVERY_ENDING
def test_motions_that_no_file_holds_are_refused(export: Callable[..., Path], tmp_path: Path, ending: str):
    for motions, sentence in REFUSED:
        assert re.search(sentence, refused(export, tmp_path, motions, ending))


@EVERY_ENDING
def test_a_failed_write_leaves_what_was_there(
    export: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
):
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / f"out{ending}").write_bytes(b"kept")
    with pytest.raises(OSError, match="out"):  # a file where a folder would have to be
        export(CLIP, ending, f"out{ending}/out")
    monkeypatch.setattr(files.os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        export(CLIP, ending)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(f"out{ending}", b"kept")]


def test_unknown_endings_are_told_the_known_ones(tmp_path: Path):
    for ending in (".fbx", "", ".gltf"):
        with pytest.raises(ValueError, match="use one of") as error:
            write(CLIP, tmp_path / f"out{ending}")
        assert all(known in str(error.value) for known in ENDINGS)
    assert list(tmp_path.iterdir()) == []


@EVERY_ENDING
def test_what_only_some_formats_hold(export: Callable[..., Path], tmp_path: Path, ending: str):
    if ending == ".bvh":
        assert export(CLIP, ending, up="z", unit=0.01).exists()
        (tmp_path / "out.bvh").unlink()
    else:
        assert "leave out up and unit" in refused(export, tmp_path, CLIP, ending, up="z", unit=0.01)
    if ending in SKINNED:
        assert "frames per second" in refused(export, tmp_path, [CLIP.resampled(60.0), CLIP], ending)
        assert export([CLIP, CLIP.slice(0, 5)], ending).exists()
    else:
        assert "holds one person, not 2" in refused(export, tmp_path, [CLIP, CLIP], ending)


@WITH_LIBRARY
def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str):
    real_import = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == LIBRARIES[ending]:
            raise ImportError(name)
        return real_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"run `pip install 'dropsim\["):
        write(CLIP, tmp_path / f"out{ending}", body=BODY)
    assert list(tmp_path.iterdir()) == []


def test_the_shipped_body_is_the_default(tmp_path: Path):
    write(CLIP, tmp_path / "out.glb")
    glb = Glb(tmp_path / "out.glb")
    # Dressed: hair, skin, shirt and trousers, on the body's own vertices and new ones along the seams.
    assert len(glb.attribute("POSITION")) > len(Body.shipped().vertices)
    primitives = glb.gltf.meshes[0].primitives
    assert len({glb.gltf.materials[one.material].pbrMetallicRoughness.baseColorFactor[0] for one in primitives}) == 4


def on_all_fours() -> Motion:
    """Somebody in the T-pose who faces the floor, with the hands 3 cm above it and the fingers pointing down."""
    skeleton = Skeleton.adult()
    q = np.tile(np.eye(3), (2, NUM_JOINTS, 1, 1))
    q[:, 0] = exp(np.array([np.pi / 2, 0.0, 0.0]))
    for side, sign in (("left", -1), ("right", 1)):
        q[:, joint_index(f"{side}_shoulder")] = exp(np.array([0.0, 0.0, sign * np.pi / 2]))
    joints = skeleton.forward(q, np.zeros((2, 3)))
    root = np.array([[0.0, 0.0, 0.03 - joints[0, joint_index("left_wrist"), 2]]])
    return Motion.from_rotations(skeleton, 30.0, np.repeat(root, 2, axis=0), q)


def test_hands_are_bent_out_of_the_ground_where_there_is_a_skin_and_nowhere_else(tmp_path: Path):
    motion, wrist = on_all_fours(), joint_index("left_wrist")
    shipped = tmp_path / "shipped.glb"
    low = Plane(np.array([0.0, 0.0, 1.0]), np.array(-1.0), *np.zeros((3, 3)))
    lowest = []
    for ground in (None, Plane.ground(), Plane.stacked([Plane.ground()] * 2), low):
        write(motion, shipped, ground=ground)
        glb = Glb(shipped)
        held = (glb.attribute("JOINTS_0") == wrist).any(1) & (glb.attribute("WEIGHTS_0").max(1) == 1)
        lowest.append(glb.skinned(0)[held, 1].min())
    assert min(lowest[:3]) > 0.0
    assert lowest[3] < -0.04
    write(motion, tmp_path / "own.npz")
    write(motion, tmp_path / "own.bvh")
    np.testing.assert_allclose(read_amass(tmp_path / "own.npz", motion.skeleton).q, motion.q, rtol=0, atol=1e-6)
    np.testing.assert_allclose(read_motion(tmp_path / "own.bvh", motion.skeleton).q, motion.q, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="one for each of the motion's 2 frames"):
        write(motion, shipped, ground=Plane.stacked([low] * 3))


# --- GLB


class Glb:
    """A GLB file evaluated as a viewer does: nodes, channels and skin, nothing of ours."""

    def __init__(self, path: Path) -> None:
        pygltflib = pytest.importorskip("pygltflib")
        gltf = pygltflib.GLTF2.load_binary(str(path))
        assert gltf is not None
        self.gltf = gltf
        self.blob: bytes = gltf.binary_blob()  # pyright: ignore[reportAttributeAccessIssue]

    def array(self, index: int) -> np.ndarray:
        accessor = self.gltf.accessors[index]
        dtype = {5121: np.uint8, 5125: np.uint32, 5126: np.float32}[accessor.componentType]
        width = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}[accessor.type]
        start = self.gltf.bufferViews[accessor.bufferView].byteOffset or 0
        return np.frombuffer(self.blob, dtype, accessor.count * width, start).reshape(accessor.count, width)

    def attribute(self, name: str, mesh: int = 0) -> np.ndarray:
        return self.array(getattr(self.gltf.meshes[mesh].primitives[0].attributes, name))

    def globals(self, frame: int | None) -> np.ndarray:
        """4 x 4 matrices of all nodes at a frame, or in their own pose."""
        local = {
            i: {"translation": node.translation, "rotation": node.rotation} for i, node in enumerate(self.gltf.nodes)
        }
        if frame is not None:
            animation = self.gltf.animations[0]
            for channel in animation.channels:
                values = self.array(animation.samplers[channel.sampler].output)
                local[channel.target.node][channel.target.path] = values[min(frame, len(values) - 1)].tolist()
        world = np.tile(np.eye(4), (len(self.gltf.nodes), 1, 1))

        def visit(node: int, above: np.ndarray) -> None:
            matrix = np.eye(4)
            matrix[:3, :3] = Rotation.from_quat(local[node]["rotation"] or (0.0, 0.0, 0.0, 1.0)).as_matrix()
            matrix[:3, 3] = local[node]["translation"] or (0.0, 0.0, 0.0)
            world[node] = above @ matrix
            for child in self.gltf.nodes[node].children or []:
                visit(child, world[node])

        for node in self.gltf.scenes[0].nodes:
            visit(node, np.eye(4))
        return world

    def joints(self, frame: int | None, person: int = 0) -> np.ndarray:
        nodes = self.gltf.skins[person].joints
        assert [self.gltf.nodes[node].name for node in nodes] == list(JOINTS)
        return self.globals(frame)[nodes, :3, 3]

    def skinned(self, frame: int | None, person: int = 0) -> np.ndarray:
        skin = self.gltf.skins[person]
        inverse_bind = self.array(skin.inverseBindMatrices).reshape(-1, 4, 4).transpose(0, 2, 1)
        maps = self.globals(frame)[skin.joints] @ inverse_bind
        points = np.pad(self.attribute("POSITION", person), ((0, 0), (0, 1)), constant_values=1.0)
        blended = np.einsum(
            "vk,vkij->vij", self.attribute("WEIGHTS_0", person), maps[self.attribute("JOINTS_0", person)]
        )
        return np.einsum("vij,vj->vi", blended, points)[:, :3]


@pytest.fixture
def glb(export: Callable[..., Path]) -> Glb:
    return Glb(export(CLIP, ".glb", seed=3))


# Quaternions in single precision are good to 1e-7 rad, over nine bones of less than 0.5 m: far below 1e-4 m.
def test_glb_joints_are_ours_with_y_up(export: Callable[..., Path]):
    other = Motion.from_rotations(Skeleton.adult(height=1.9), CLIP.fps, CLIP.root[:5] + 1, CLIP.q[:5])
    glb = Glb(export([CLIP, other], ".glb"))
    assert [node.name for node in glb.gltf.nodes if node.mesh is not None] == ["person_1_body", "person_2_body"]
    for person, motion in enumerate((CLIP, other)):
        for frame, joints in enumerate(motion.joints):
            np.testing.assert_allclose(glb.joints(frame, person), joints @ Y_FROM_Z.T, rtol=0, atol=1e-4)


def test_glb_skin_follows_linear_blend_skinning(glb: Glb):
    body = BODY.fitted(CLIP.skeleton)
    for frame in (0, 9):
        ours = body.skinned(CLIP.q[frame], CLIP.joints[frame])
        np.testing.assert_allclose(glb.skinned(frame), ours @ Y_FROM_Z.T, rtol=0, atol=1e-4)
    weights, joints = glb.attribute("WEIGHTS_0"), glb.attribute("JOINTS_0")
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    assert (joints[weights == 0] == 0).all()
    np.testing.assert_allclose(np.linalg.norm(glb.attribute("NORMAL"), axis=1), 1, atol=1e-5)


def test_glb_stands_in_a_t_pose_without_its_animation(glb: Glb):
    # The pose of the bind matrices, so that the skin is where its vertices are; soles on the floor, facing +z with the
    # left at +x.
    points = glb.skinned(None)
    np.testing.assert_allclose(points, glb.attribute("POSITION"), atol=1e-6)
    assert abs(points[:, 1].min()) < 1e-6
    joints = dict(zip(JOINTS, glb.joints(None), strict=True))
    np.testing.assert_allclose(joints["pelvis"][[0, 2]], 0, atol=1e-6)
    assert joints["left_foot"][2] > joints["left_ankle"][2] + 0.05
    assert joints["left_wrist"][0] > 0.5 > -0.5 > joints["right_wrist"][0]
    assert joints["head"][1] > 1.4


def test_glb_keys_and_extras(glb: Glb):
    animation = glb.gltf.animations[0]
    np.testing.assert_allclose(glb.array(animation.samplers[0].input)[:, 0], np.arange(len(CLIP)) / CLIP.fps, atol=1e-6)
    assert sorted({channel.target.path or "" for channel in animation.channels}) == ["rotation", "translation"]
    for sampler in animation.samplers[1:]:
        turns = glb.array(sampler.output)
        # Neighbours are on the same side, or readers that blend numbers would swing the long way round.
        assert ((turns[1:] * turns[:-1]).sum(1) > 0).all()
    extras = glb.gltf.nodes[0].extras
    assert (extras["fps"], extras["seed"]) == (30.0, 3)
    assert [event["name"] for event in extras["events"]] == ["push torso", "ball, hit"]


def thrown() -> Solid:
    """A ball that is there from the fourth frame to the sixth from the last, and rises."""
    centres = np.array([[1.0, 2.0, 0.1 * i] for i in range(len(CLIP))])
    centres[:3] = centres[-5:] = np.nan
    return Solid.sphere(0.2, centres)


def test_objects_are_at_their_places_while_they_are_there(export: Callable[..., Path]):
    ball = thrown()
    glb = Glb(export(CLIP, ".glb", objects=[ball]))
    [node] = [i for i, node in enumerate(glb.gltf.nodes) if node.name == "ball_1"]
    [sizes] = [c.sampler for c in glb.gltf.animations[0].channels if (c.target.node, c.target.path) == (node, "scale")]
    sampler = glb.gltf.animations[0].samplers[sizes]
    assert sampler.interpolation == "STEP"
    np.testing.assert_array_equal(glb.array(sampler.output), np.repeat(ball.there[:, None], 3, 1))
    for frame in (0, 3, 5, len(CLIP) - 1):
        place = ball.centre[min(max(frame, 3), len(CLIP) - 6)]
        np.testing.assert_allclose(glb.globals(frame)[node, :3, 3], Y_FROM_Z @ place, rtol=0, atol=1e-6)
    for never in (np.full_like(ball.centre, np.nan), np.where(np.arange(len(CLIP))[:, None] == 6, np.inf, ball.centre)):
        with pytest.raises(ValueError, match="not finite"):
            export(CLIP, ".glb", objects=[replace(ball, centre=never)])
    pytest.importorskip("pxr")
    from pxr import Usd, UsdGeom

    stage = Usd.Stage.Open(str(export(CLIP, ".usdc", objects=[ball])))
    mesh = UsdGeom.Mesh(stage.GetPrimAtPath("/World/ball_1"))
    assert [mesh.ComputeVisibility(frame) != "invisible" for frame in range(len(CLIP))] == ball.there.tolist()
    np.testing.assert_allclose(mesh.ComputeLocalToWorldTransform(4).ExtractTranslation(), ball.centre[4])


@pytest.mark.parametrize("case", ["several", "a single frame", "the shipped body"])
def test_khronos_validator_finds_nothing(export: Callable[..., Path], tmp_path: Path, case: str):
    if case == "the shipped body":
        path = tmp_path / "out.glb"
        write(CLIP, path, seed=3)
    else:
        motions = [CLIP, CLIP.slice(0, 5)] if case == "several" else CLIP.slice(0, 1)
        path = export(motions, ".glb", seed=3, objects=[thrown()] if case == "several" else ())
    assert gltf_issues(path)["messages"] == []


@pytest.mark.parametrize("ending", [".glb", ".bvh"])
def test_blender_puts_the_joints_where_they_are(export: Callable[..., Path], ending: str):
    # Blender counts a BVH file's frames from 1. Single precision, and rotations that it turns into quaternions.
    frames = [0, len(CLIP) // 2, len(CLIP) - 1]
    found = joints_in_blender(export(CLIP, ending), JOINTS, [frame + (ending == ".bvh") for frame in frames])
    np.testing.assert_allclose(found, CLIP.joints[frames], rtol=0, atol=1e-4)


# --- CSV


def test_csv_has_every_quantity_with_its_unit(export: Callable[..., Path]):
    path = export(CLIP, ".csv", seed=3)
    with path.open(newline="") as file:
        header = next(csv.reader(file))
    assert header[:5] == ["time [s]", "frame", "pelvis x [m]", "pelvis y [m]", "pelvis z [m]"]
    assert len(header) == len(set(header))
    table = dict(zip(header, np.loadtxt(path, delimiter=",", skiprows=1).T, strict=True))
    np.testing.assert_allclose(table["time [s]"], np.arange(len(CLIP)) / 30, atol=1e-6)
    assert CLIP.touching is not None
    assert CLIP.contact_forces is not None
    assert CLIP.external_forces is not None
    # Written to a micrometre and to a tenth of a millinewton.
    vectors = [("{} {} [m]", CLIP.joints, 6e-7), ("{} contact force {} [N]", CLIP.contact_forces, 6e-5)]
    vectors.append(("{} external force {} [N]", CLIP.external_forces, 6e-5))
    for j, joint in enumerate(JOINTS):
        np.testing.assert_array_equal(table[f"{joint} contact [0 or 1]"], CLIP.touching[:, j])
        for i, axis in enumerate("xyz"):
            for header, values, error in vectors:
                np.testing.assert_allclose(table[header.format(joint, axis)], values[:, j, i], rtol=0, atol=error)
    for name, values in CLIP.energies.items():
        np.testing.assert_allclose(table[f"energy {name} [m^2]"], values, rtol=1e-8, atol=0)
    for when, wrench in (("before", CLIP.wrench_before), ("after", CLIP.wrench_after)):
        np.testing.assert_allclose(table[f"root wrench {when} correction [body weights]"], wrench, rtol=0, atol=1e-6)
    # Frames 3, 4 and 5 begin in [0.1, 0.2) s; an event without duration has the frame it begins in.
    assert table["event push torso [0 or 1]"].nonzero()[0].tolist() == [3, 4, 5]
    assert table["event ball, hit [0 or 1]"].nonzero()[0].tolist() == [9]
    assert set(table["seed"]) == {3}


def test_csv_of_little_of_events_outside_the_motion_and_of_endless_forces(export: Callable[..., Path], tmp_path: Path):
    endless = np.zeros((len(CLIP), NUM_JOINTS, 3))
    endless[2, 3, 1] = np.inf
    assert "spine1 contact force y [N]" in refused(export, tmp_path, replace(CLIP, contact_forces=endless), ".csv")
    bare = Motion.from_rotations(CLIP.skeleton, CLIP.fps, CLIP.root, CLIP.q)
    assert export(bare, ".csv").read_text().splitlines()[0].count(",") == 1 + 3 * NUM_JOINTS
    motion = replace(CLIP, events=(Event("early", -1.0, 0.5), Event("late", 9.0), Event("long", -1.0, 99.0)))
    rows = list(csv.DictReader(export(motion, ".csv").read_text().splitlines()))
    totals = {name: sum(int(row[f"event {name} [0 or 1]"]) for row in rows) for name in ("early", "late", "long")}
    assert totals == {"early": 0, "late": 0, "long": len(CLIP)}


# --- HTML


def test_html_fetches_nothing(export: Callable[..., Path]):
    page = export(replace(CLIP, name="<b>"), ".html").read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    # Nothing but what is in the page: a policy that names no host, above the first script.
    assert policy[1].startswith("default-src ")
    assert set(policy[1].split()[1:]) == {"'unsafe-inline'", "'unsafe-eval'", "data:", "blob:"}
    assert policy.start() < page.index("<script")
    assert not re.findall(
        r"""(?:src|href|action)\s*=\s*["']?\s*(?:https?:)?//|url\(\s*["']?(?:https?:)?//|@import""", page
    )
    assert "<title>&lt;b&gt;</title>" in page
    assert len(page) < 20e6


def test_html_plays_every_frame_at_the_motions_rate(export: Callable[..., Path]):
    pytest.importorskip("viser")
    import msgspec
    import zstandard

    page = export(CLIP, ".html").read_text(encoding="utf-8")
    embedded = re.search(r'__VISER_EMBED_DATA__="([^"]*)"', page)
    assert embedded is not None
    payload = zstandard.ZstdDecompressor().decompressobj().decompress(base64.b64decode(embedded[1])[8:])
    recording = msgspec.msgpack.decode(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    assert recording["durationSeconds"] == pytest.approx(len(CLIP) / CLIP.fps)
    places = np.full((len(CLIP), NUM_JOINTS, 3), np.nan)
    for time, message in recording["messages"]:
        if message["type"] == "SetBonePositionMessage":
            places[round(time * CLIP.fps) :, message["bone_index"]] = message["position"]
    # Written to a hundredth of a millimetre.
    np.testing.assert_allclose(places, CLIP.joints, rtol=0, atol=2e-5)


# --- USD


@pytest.mark.parametrize("ending", [".usda", ".usd"])
def test_usd_skin_and_joints_are_ours(export: Callable[..., Path], ending: str):
    pytest.importorskip("pxr")
    from pxr import Gf, Usd, UsdGeom, UsdSkel

    path = export(CLIP, ending, seed=2**53 + 1)
    assert path.read_bytes().startswith(b"#usda" if ending == ".usda" else b"PXR-USDC")
    stage = Usd.Stage.Open(str(path))
    assert UsdGeom.GetStageUpAxis(stage) == "Z"
    assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0
    assert (stage.GetTimeCodesPerSecond(), stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (
        30.0,
        0.0,
        len(CLIP) - 1.0,
    )
    person = stage.GetPrimAtPath("/World/person")
    assert person.GetCustomDataByKey("dropsim:seed") == 2**53 + 1
    assert person.GetCustomDataByKey("dropsim:events")["0"]["name"] == "push torso"
    cache = UsdSkel.Cache()
    cache.Populate(UsdSkel.Root(person), Usd.PrimDefaultPredicate)
    skeleton = cache.GetSkelQuery(UsdSkel.Skeleton(stage.GetPrimAtPath("/World/person/skeleton")))
    skin = cache.GetSkinningQuery(stage.GetPrimAtPath("/World/person/body"))
    assert [str(token).rpartition("/")[2] for token in skeleton.GetJointOrder()] == list(JOINTS)
    mesh = UsdGeom.Mesh(stage.GetPrimAtPath("/World/person/body"))
    body = BODY.fitted(CLIP.skeleton)
    for frame in range(0, len(CLIP), 4):
        # Quaternions and points are in single precision there.
        places = [matrix.ExtractTranslation() for matrix in skeleton.ComputeJointSkelTransforms(frame)]
        np.testing.assert_allclose(np.array(places), CLIP.joints[frame], rtol=0, atol=1e-4)
        points = mesh.GetPointsAttr().Get()
        skin.ComputeSkinnedPoints(skeleton.ComputeSkinningTransforms(frame), points, frame)
        np.testing.assert_allclose(np.array(points), body.skinned(CLIP.q[frame], CLIP.joints[frame]), rtol=0, atol=1e-4)
    box = UsdGeom.BBoxCache(0, ["default"]).ComputeWorldBound(person).ComputeAlignedRange()
    assert all(box.Contains(Gf.Vec3d(*joint)) for joint in CLIP.joints.reshape(-1, 3).tolist())
    # The mesh alone, without the skeleton, stands on the floor in the T-pose.
    assert abs(np.array(mesh.GetPointsAttr().Get())[:, 2].min()) < 1e-6


@pytest.mark.parametrize("ending", [".usda", ".usdc"])
def test_usds_own_checks_find_nothing(export: Callable[..., Path], ending: str):
    # The validators that the program usdchecker runs; the program itself is not in the package usd-core.
    pytest.importorskip("pxr")
    from pxr import Usd

    validation = pytest.importorskip("pxr.UsdValidation")
    path = export([CLIP, CLIP.slice(0, 5)] if ending == ".usdc" else CLIP, ending, objects=[thrown()])
    validators = validation.ValidationRegistry().GetOrLoadAllValidators()
    assert len(validators) > 20
    errors = validation.ValidationContext(validators).Validate(Usd.Stage.Open(str(path)))
    assert [error.GetMessage() for error in errors] == []
