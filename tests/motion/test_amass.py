"""AMASS npz in and out: every layout, round trips with the extras, and every bad file a sentence."""

import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropsim.body.rotations import normalize, rotvec_to_rotmat
from dropsim.body.skeleton import Skeleton
from dropsim.files import limits
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.bvh import write_bvh
from dropsim.motion.motion import Event, Motion
from dropsim.motion.reading import Person, read_person
from dropsim.motion.synthetic import stepping_clip

SKELETON = Skeleton.adult()
NUM_FRAMES = 4


def amass(width: int = 156, **changes: Any) -> dict[str, Any]:
    """What a small AMASS file holds; a change to None takes a key away."""
    rng = np.random.default_rng(0)
    arrays = {
        "poses": rng.normal(size=(NUM_FRAMES, width)),
        "trans": rng.normal(size=(NUM_FRAMES, 3)),
        "betas": np.zeros(16),
        "gender": np.array("female"),
        "mocap_framerate": np.array(120.0),
    }
    return {name: value for name, value in (arrays | changes).items() if value is not None}


def saved(folder: Path, arrays: dict[str, Any]) -> Path:
    path = folder / "clip.npz"
    np.savez(path, **arrays)
    return path


# --- what a good file means


@pytest.mark.parametrize("width", [66, 72, 156, 165])
def test_every_layout_begins_with_the_body(tmp_path: Path, width: int):
    arrays = amass(width)
    motion = read_amass(saved(tmp_path, arrays), SKELETON)
    expected = rotvec_to_rotmat(arrays["poses"][:, :66].reshape(NUM_FRAMES, 22, 3))
    assert (motion.fps, motion.name, len(motion)) == (120.0, "clip", NUM_FRAMES)
    np.testing.assert_allclose(motion.q, expected, rtol=0, atol=1e-12)
    # SMPL's model origin is not its pelvis: J0 of the skeleton is between them.
    np.testing.assert_allclose(motion.root, arrays["trans"] + SKELETON.rest[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.joints, SKELETON.forward(expected, motion.root), rtol=0, atol=1e-12)


def test_separate_arrays_of_newer_files(tmp_path: Path):
    whole = amass(165)
    parts = amass(
        poses=None,
        root_orient=whole["poses"][:, :3],
        pose_body=whole["poses"][:, 3:66],
        pose_hand=np.zeros((NUM_FRAMES, 90)),
    )
    parts["trans"] = whole["trans"]
    joints = read_amass(saved(tmp_path, whole), SKELETON).joints
    assert np.array_equal(read_amass(saved(tmp_path, parts), SKELETON).joints, joints)


@pytest.mark.parametrize("rate", [np.array(60), np.array([60.0]), np.array(60.0, dtype=np.float32)])
def test_both_spellings_of_the_rate(tmp_path: Path, rate: np.ndarray):
    assert read_amass(saved(tmp_path, amass(mocap_framerate=rate)), SKELETON).fps == 60.0
    assert read_amass(saved(tmp_path, amass(mocap_framerate=None, mocap_frame_rate=rate)), SKELETON).fps == 60.0


def test_single_precision_and_objects_elsewhere(tmp_path: Path):
    arrays = amass(poses=np.zeros((2, 156), dtype=np.float32), trans=np.ones((2, 3), dtype=np.float32))
    # What is not needed is not looked at.
    arrays["labels"] = np.array([{"a": 1}], dtype=object)
    motion = read_amass(saved(tmp_path, arrays), SKELETON)
    assert motion.q.dtype == np.float64
    assert np.array_equal(motion.q, np.tile(np.eye(3), (2, 22, 1, 1)))


def test_other_tools_joints_and_contacts_are_left_alone(tmp_path: Path):
    # Keys of these names exist in the field with other shapes and meanings; only our own files' are restored.
    motion = read_amass(
        saved(tmp_path, amass(joints=np.zeros((NUM_FRAMES, 24, 3)), contacts=np.zeros((NUM_FRAMES, 9)))), SKELETON
    )
    assert motion.touching is None
    assert float(SKELETON.bone_error(motion.joints).max()) < 1e-9


# --- round trips


def recorded(rotations: np.ndarray, rng: np.random.Generator) -> Motion:
    """A motion with everything that can be recorded along."""

    def noise(*shape: int) -> np.ndarray:
        return np.asarray(rng.standard_normal((len(rotations), *shape)))

    motion = Motion.from_rotations(SKELETON, 29.97, 100 * noise(3), rotations)
    return replace(
        motion,
        joints=motion.joints + 0.01 * noise(22, 3),
        touching=noise(22) > 0,
        contact_forces=100 * noise(22, 3),
        external_forces=noise(22, 3),
        wrench_before=noise(),
        wrench_after=noise(),
        energies={"contact": noise(), "range of motion": noise()},
        events=(Event("push", 0.1, 0.5), Event("Stoß", 0.2)),
    )


# Everything is float64 in the file; the way over rotation vectors costs a few roundings.
def test_a_motion_with_extras_round_trips(
    tmp_path: Path, random_rotations: Callable[..., np.ndarray], rng: np.random.Generator
):
    motion = recorded(random_rotations(20, 22), rng)
    write_amass(motion, tmp_path / "out.npz", seed=7)
    back = read_amass(tmp_path / "out.npz", SKELETON)
    assert (back.fps, back.events, back.name) == (motion.fps, motion.events, "out")
    for name in ("root", "q", "joints", "contact_forces", "external_forces", "wrench_before", "wrench_after"):
        np.testing.assert_allclose(getattr(back, name), getattr(motion, name), rtol=0, atol=1e-9, err_msg=name)
    assert back.touching is not None
    assert motion.touching is not None
    assert np.array_equal(back.touching, motion.touching)
    assert set(back.energies) == set(motion.energies)
    for name, energy in motion.energies.items():
        assert np.array_equal(back.energies[name], energy)


# Half turns are where rotation vectors jump.
@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-8, math.pi - 1e-9, math.pi])
def test_small_and_half_turns_round_trip(tmp_path: Path, angle: float):
    axes = normalize(np.random.default_rng(1).standard_normal((22, 3)))
    motion = Motion.from_rotations(SKELETON, 30.0, np.zeros((1, 3)), rotvec_to_rotmat(angle * axes)[None])
    write_amass(motion, tmp_path / "out.npz")
    np.testing.assert_allclose(read_amass(tmp_path / "out.npz", SKELETON).q, motion.q, rtol=0, atol=1e-9)


def test_on_other_bones_the_joints_follow_the_rotations(
    tmp_path: Path, random_rotations: Callable[..., np.ndarray], rng: np.random.Generator
):
    write_amass(recorded(random_rotations(5, 22), rng), tmp_path / "out.npz")
    tall = Skeleton.adult(height=1.9)
    motion = read_amass(tmp_path / "out.npz", tall)
    assert motion.contact_forces is not None
    assert float(tall.bone_error(motion.joints).max()) < 1e-9


def test_what_the_fields_tools_look_for(tmp_path: Path):
    motion = stepping_clip()
    write_amass(motion, tmp_path / "out.npz", seed=3)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        shapes = {name: file[name].shape for name in ("poses", "trans", "betas", "joints")}
        frames = len(motion)
        assert shapes == {"poses": (frames, 156), "trans": (frames, 3), "betas": (16,), "joints": (frames, 22, 3)}
        assert not file["poses"][:, 66:].any()
        assert (str(file["gender"]), float(file["mocap_framerate"]), int(file["seed"])) == ("neutral", 30.0, 3)


def test_writer_refuses_what_is_not_one_finite_person(tmp_path: Path):
    motion = stepping_clip(0.1)
    with pytest.raises(ValueError, match="one person"):
        write_amass(
            Motion.from_rotations(SKELETON, 30.0, np.stack([motion.root] * 4), np.stack([motion.q] * 4)),
            tmp_path / "out.npz",
        )
    with pytest.raises(ValueError, match="64 bits"):
        write_amass(motion, tmp_path / "out.npz", seed=2**70)
    with pytest.raises(ValueError, match="not finite"):
        write_amass(replace(motion, energies={"contact": np.full((len(motion),), math.nan)}), tmp_path / "out.npz")
    assert not list(tmp_path.iterdir())


# --- bad files

NAN = np.zeros((NUM_FRAMES, 156))
NAN[2, 5] = np.nan
OURS = {"rest_joints": SKELETON.rest}

BAD: list[tuple[dict[str, Any], str]] = [
    (amass(poses=None), "has no 'poses' (nor 'root_orient' and 'pose_body'); it holds trans, betas, gender"),
    (amass(poses=None, root_orient=np.zeros((4, 3))), "has no 'poses'"),
    (amass(trans=None), "has no 'trans'"),
    (amass(mocap_framerate=None), "add an array 'mocap_framerate'"),
    ({}, "has no frame rate"),
    *((amass(mocap_framerate=np.array(rate)), "one positive number") for rate in (0.0, -30.0, [30.0, 60.0])),
    *((amass(mocap_framerate=np.array(rate)), "'mocap_framerate' holds") for rate in (np.nan, 1e9)),
    (amass(mocap_framerate=np.array("30")), "should hold numbers"),
    (amass(100), "'poses' has shape (4, 100): expected frames of 66 (body only), 72 (SMPL), 156 (SMPL+H)"),
    (amass(poses=np.zeros((4, 22, 3))), "'poses' has shape (4, 22, 3)"),
    (amass(poses=np.array(1.0)), "'poses' has shape ()"),
    (amass(poses=np.zeros((0, 156)), trans=np.zeros((0, 3))), "'poses' has shape (0, 66): expected (any, 66)"),
    (amass(trans=np.zeros((3, 3))), "'trans' has shape (3, 3): expected (4, 3)"),
    (amass(poses=None, root_orient=np.zeros((4, 3)), pose_body=np.zeros((4, 69))), "'pose_body' has shape (4, 69)"),
    (amass(poses=NAN), "'poses' holds nan at [2, 5]"),
    (amass(trans=np.full((4, 3), 1e30)), "'trans' holds 1e+30"),
    *((amass(trans=np.zeros((4, 3), kind)), "should hold numbers") for kind in (complex, "M8[s]", [("x", "f8")], "U1")),
    (amass(poses=np.zeros((4, 156), dtype=object)), "'poses' holds pickled objects"),
    (amass(mocap_framerate=np.array({"fps": 30}, dtype=object)), "as a plain array with numpy.savez"),
    (amass(**OURS, contacts=np.zeros((4, 9))), "'contacts' has shape (4, 9): expected (4, 22)"),
    (amass(**OURS, energy_contact=np.zeros(3)), "'energy_contact' has shape (3,)"),
    (amass(rest_joints=np.zeros((24, 3))), "'rest_joints' has shape (24, 3)"),
    (amass(**OURS, event_names=np.array(["push"])), "has no 'event_times'"),
    (amass(**OURS, event_names=np.zeros(1), event_times=np.zeros((1, 2))), "should be text"),
]


def sentence_of(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the callers check the text
        read_amass(path, SKELETON)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    assert len(sentence) < 600 + len(str(path))
    return sentence


@pytest.mark.parametrize(("arrays", "message"), BAD)
def test_bad_arrays_are_one_sentence(tmp_path: Path, arrays: dict[str, Any], message: str):
    assert message in sentence_of(saved(tmp_path, arrays))


class _Marker:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_in_an_npz_is_not_run(tmp_path: Path):
    arrays = amass(trans=np.array(_Marker(tmp_path / "ran"), dtype=object))
    assert "could run code" in sentence_of(saved(tmp_path, arrays))
    assert not (tmp_path / "ran").exists()


def npy(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little") + text + body


def header(shape: str, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


MEMBERS: dict[str, tuple[bytes, str]] = {
    "no header": (b"", "damaged"),
    "another file": (b"hello", "damaged"),
    "claims more than it holds": (npy(header("(1000, 156)"), bytes(80)), "damaged"),
    "claims terabytes": (npy(header("(1000000000000, 156)"), bytes(80)), "damaged"),
    "negative shape": (npy(header("(-1, 156)"), bytes(80)), "damaged"),
    "shape is text": (npy(header("'a'"), bytes(80)), "damaged"),
    "header is code": (npy("__import__('os').system('true')"), "damaged"),
    "header of brackets": (npy("(" * 5000), "damaged"),
    "object type in a structure": (npy(header("(4,)", "[('a', '|O')]"), bytes(80)), "pickled objects"),
    "unknown type": (npy(header("(4,)", "'<q9'"), bytes(80)), "damaged"),
    "a gigantic item": (npy(header("(2,)", "'|V2147483647'"), bytes(80)), "damaged"),
    "long headers' version": (npy(header("(4, 156)"), bytes(4992), b"\x02\x00"), "damaged"),
    "unknown version": (npy(header("(4, 156)"), bytes(4992), b"\x09\x00"), "damaged"),
}


@pytest.mark.parametrize("case", MEMBERS)
def test_bad_members_are_one_sentence(tmp_path: Path, case: str):
    member, message = MEMBERS[case]
    path = saved(tmp_path, amass(poses=None))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("poses.npy", member)
    assert message in sentence_of(path)


def test_a_small_file_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # 1 MB stands for 64 MB here.
    monkeypatch.setattr(limits, "FREE", 1 << 20)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **amass(poses=np.zeros((6600, 156))))
    assert path.stat().st_size < 50_000
    assert "cut it into pieces" in sentence_of(path)


def test_not_an_archive(tmp_path: Path):
    path = tmp_path / "clip.npz"
    for content in (b"", b"HIERARCHY\n", bytes(10_000), b"PK\x05\x06", b"PK\x03\x04" + bytes(500)):
        path.write_bytes(content)
        assert "not an npz archive, or cut off" in sentence_of(path)
    assert sentence_of(tmp_path).endswith("not a file")
    with pytest.raises(FileNotFoundError):
        read_amass(tmp_path / "missing.npz", SKELETON)


def test_two_arrays_of_one_name(tmp_path: Path):
    path = saved(tmp_path, amass())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("poses.npy", b"")
    assert "two arrays 'poses'" in sentence_of(path)


# --- the person's own body


def test_the_body_that_betas_describe(tmp_path: Path):
    # A model of 22 vertices, one at each joint, whose first direction makes the person taller by a tenth.
    rest = Skeleton.adult().rest
    np.savez(
        tmp_path / "model.npz", v_template=rest, J_regressor=np.eye(22), shapedirs=np.stack((0.1 * rest, 0 * rest), -1)
    )
    write_amass(stepping_clip(0.3), tmp_path / "clip.npz")
    with np.load(tmp_path / "clip.npz") as file:
        content = dict(file)
    content["betas"] = np.array([2.0, 5.0, 1.0])
    np.savez(tmp_path / "clip.npz", **content)
    body = read_person(tmp_path / "clip.npz", Person(smpl=tmp_path / "model.npz")).motion.skeleton
    np.testing.assert_allclose(body.rest, 1.2 * rest, rtol=1e-12)
    assert body.masses.sum() == pytest.approx(70 * 1.2**2)
    assert read_person(
        tmp_path / "clip.npz", Person(smpl=tmp_path / "model.npz", mass=50.0)
    ).motion.skeleton.masses.sum() == pytest.approx(50)


def test_a_person_of_a_height_and_a_weight(tmp_path: Path):
    write_amass(stepping_clip(0.3), tmp_path / "clip.npz")
    write_bvh(stepping_clip(0.3), tmp_path / "clip.bvh", unit=0.01)
    for name in ("clip.npz", "clip.bvh"):
        body = read_person(tmp_path / name, Person(height=1.2, mass=30.0)).motion.skeleton
        assert body.height == pytest.approx(1.2)
        assert body.masses.sum() == pytest.approx(30.0)
        with pytest.raises(ValueError, match=r"a person of 9 m: give 0\.3 to 3 m"):
            read_person(tmp_path / name, Person(height=9.0))
    with pytest.raises(ValueError, match="an SMPL model is for AMASS files"):
        read_person(tmp_path / "clip.bvh", Person(smpl=tmp_path / "model.npz"))
