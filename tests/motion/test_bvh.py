"""BVH in and out: what a good file means, round trips, and every bad file a sentence that names the line."""

import math
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.body.skeleton import JOINTS, PARENTS, Skeleton
from dropsim.motion import bvh
from dropsim.motion.bvh import Y_TO_Z_UP, RigMotion, read_bvh, write_bvh
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip

VALID = """\
HIERARCHY
ROOT Hips
{
  OFFSET 1 2 3
  CHANNELS 6 Xposition Yposition Zposition Zrotation Xrotation Yrotation
  JOINT Leg
  {
    OFFSET 0 -1 0
    CHANNELS 3 Zrotation Yrotation Xrotation
    End Site
    {
      OFFSET 0 -1 0
    }
  }
}
MOTION
Frames: 2
Frame Time: 0.0333333
10 20 30 0 0 0 0 0 90
10 20 31 90 0 0 0 0 0
"""


def read_text(folder: Path, text: str | bytes) -> RigMotion:
    path = folder / "take.bvh"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_bvh(path)


def positions(source: RigMotion) -> np.ndarray:
    return source.positions(source.global_rotations())


def changed(old: str, new: str) -> str:
    assert VALID.count(old) >= 1
    return VALID.replace(old, new, 1)


# --- what a good file means


def test_hierarchy_channels_and_rate(tmp_path: Path):
    source = read_text(tmp_path, VALID)
    assert (source.rig.names, source.rig.parents) == (("Hips", "Leg", "Leg_end"), (-1, 0, 1))
    assert (source.fps, source.name, len(source)) == (30.0, "take", 2)
    # Positions replace the root's offset. A quarter turn of the leg about x takes -y to -z; one of the hips about z
    # takes -y to +x.
    expected = [[[10, 20, 30], [10, 19, 30], [10, 19, 29]], [[10, 20, 31], [11, 20, 31], [12, 20, 31]]]
    np.testing.assert_allclose(positions(source), np.array(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["XYZ", "XZY", "YXZ", "YZX", "ZXY", "ZYX"])
def test_channels_in_any_order(tmp_path: Path, order: str):
    names = " ".join(f"{axis}rotation" for axis in order)
    text = changed("Zrotation Yrotation Xrotation", names).replace("0 0 90", "10 20 30")
    # The first channel is the outermost turn: R = R_1 R_2 R_3.
    expected = np.eye(3)
    for axis, angle in zip(order, (10.0, 20.0, 30.0), strict=True):
        vector = np.zeros(3)
        vector["XYZ".index(axis)] = math.radians(angle)
        expected = expected @ rotvec_to_rotmat(vector)
    np.testing.assert_allclose(read_text(tmp_path, text).rotations[0, 1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("HIERARCHY", "\ufeffHIERARCHY", id="byte order mark"),
        pytest.param("MOTION", "motion", id="lower case motion"),
        pytest.param("ROOT Hips\n{", "Root Hips {", id="brace on the joint's line"),
        pytest.param("    }\n  }\n}", "}}}".replace("}", "} "), id="closing braces together"),
        pytest.param("End Site", "End", id="End"),
        pytest.param("End Site", "End Site toes", id="named End Site"),
        pytest.param("  OFFSET 1 2 3", "\toffset\t1\t2.0\t+3e0\t", id="tabs and number spellings"),
        pytest.param("Zrotation Yrotation Xrotation", "ZROTATION yrotation XRotation", id="channels' case"),
        pytest.param("Frames: 2", "FRAMES :\t2", id="space before the colon"),
        pytest.param("Frame Time: 0.0333333", "frame time:0.033333", id="frame time"),
        pytest.param("0 0 0\n", "0 0 0\n\n\n \t\n", id="blank lines at the end"),
        pytest.param("\n", "\r\n", id="first line CRLF"),
    ],
)
def test_spellings_that_mean_the_same(tmp_path: Path, old: str, new: str):
    expected, source = read_text(tmp_path, VALID), read_text(tmp_path, changed(old, new))
    assert (source.rig.names, source.fps) == (expected.rig.names, expected.fps)
    assert np.array_equal(positions(source), positions(expected))


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_line_endings(tmp_path: Path, ending: str, last: str):
    text = (VALID.rstrip("\n") + last).replace("\n", ending)
    assert np.array_equal(positions(read_text(tmp_path, text.encode())), positions(read_text(tmp_path, VALID)))


def test_joints_with_positions_and_with_few_rotations(tmp_path: Path):
    text = changed("CHANNELS 3 Zrotation Yrotation Xrotation", "CHANNELS 3 Yposition Xrotation Xposition").replace(
        "0 0 90", "-3 90 4"
    )
    source = read_text(tmp_path, text)
    # The leg lies at (4, -3, 0) from the hips, z from its offset, and its end a quarter turn about x further.
    np.testing.assert_allclose(
        positions(source)[0, 1:], np.array([[14.0, 17.0, 30.0], [14.0, 17.0, 29.0]]), rtol=0, atol=1e-12
    )
    still = (
        changed("CHANNELS 3 Zrotation Yrotation Xrotation", "CHANNELS 0")
        .replace(" 0 0 90", "")
        .replace("90 0 0 0 0 0", "90 0 0")
    )
    assert np.array_equal(read_text(tmp_path, still).rotations[:, 1], np.tile(np.eye(3), (2, 1, 1)))


def test_repeated_names_are_told_apart(tmp_path: Path):
    end = "    End Site\n    {\n      OFFSET 0 -1 0\n    }\n"
    assert read_text(tmp_path, changed(end, 3 * end)).rig.names[2:] == (
        "Leg_end",
        "Leg_end_duplicate2",
        "Leg_end_duplicate3",
    )
    assert read_text(tmp_path, changed("JOINT Leg", "JOINT Hips")).rig.names == (
        "Hips",
        "Hips_duplicate2",
        "Hips_duplicate2_end",
    )


def test_names_with_spaces_and_in_other_encodings(tmp_path: Path):
    assert read_text(tmp_path, changed("JOINT Leg", "JOINT Left Leg")).rig.names[1] == "Left_Leg"
    assert read_text(tmp_path, changed("JOINT Leg", "JOINT Hüfte").encode("latin-1")).rig.names[1] == "H\\xfcfte"


# The rate is the roundest one that the digits of the frame time allow; NTSC's is no whole number and stays.
RATES = (
    "0.0333333 30, 0.033333 30, 0.0333 30, 3.3333333e-2 30, .00833333 120, 0.0083333 120, 0.0166666 60, 0.016683 59.94"
)
RATES += ", 0.0333667 29.97, 0.04 25, 0.0416667 24, 1 1, 2 0.5"


@pytest.mark.parametrize("frame_time_and_rate", RATES.split(", "))
def test_frame_rates(tmp_path: Path, frame_time_and_rate: str):
    frame_time, fps = frame_time_and_rate.split()
    assert read_text(tmp_path, changed("0.0333333", frame_time)).fps == float(fps)


# --- round trips


def through_file(motion: Motion, path: Path, **options: object) -> Motion:
    write_bvh(motion, path, **options)  # pyright: ignore[reportArgumentType]
    # What a reader without our maps does: the rest frame turned back to y up, the world to z up, metres.
    source, unit = read_bvh(path), float(options.get("unit", 1.0))  # pyright: ignore[reportArgumentType]
    order = [source.rig.names.index(name) for name in JOINTS]
    R_file, R_world = (Y_TO_Z_UP, np.eye(3)) if options.get("up") == "z" else (np.eye(3), Y_TO_Z_UP)
    q = R_file.T @ source.rotations[:, order] @ R_file
    q[:, 0] = R_world @ source.rotations[:, order[0]] @ R_file
    return Motion.from_rotations(motion.skeleton, source.fps, source.translations[:, order[0]] @ R_world.T * unit, q)


# A tenth of a micrometre for positions, 1e-6 degrees over at most eight joints of a metre for angles: far below 1e-5 m.
@pytest.mark.parametrize(("up", "unit"), [("y", 1.0), ("z", 1.0), ("y", 0.01), ("y", 0.0254), ("z", 1000.0)])
def test_random_poses_round_trip(
    tmp_path: Path, random_rotations: Callable[..., np.ndarray], rng: np.random.Generator, up: str, unit: float
):
    root = 100 * rng.standard_normal((50, 3))
    motion = Motion.from_rotations(Skeleton.adult(), 30.0, root, random_rotations(50, 22))
    back = through_file(motion, tmp_path / "out.bvh", up=up, unit=unit)
    np.testing.assert_allclose(back.joints, motion.joints, rtol=0, atol=1e-6)
    np.testing.assert_allclose(back.q, motion.q, rtol=0, atol=1e-7)


# Where the middle angle is a quarter turn, only the sum of the other two is determined; the product must be exact all
# the same.
@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1e-7, 1e-5, -1e-8])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gimbal_lock_round_trips(tmp_path: Path, random_rotations: Callable[..., np.ndarray], tilt: float, sign: float):
    def turn(*vector: float) -> np.ndarray:
        return rotvec_to_rotmat(np.array(vector))

    q = random_rotations(1, 22)
    q[0, 1:] = turn(0, 0, 0.7) @ turn(sign * (math.pi / 2 + tilt), 0, 0) @ turn(0, 0.4, 0)
    motion = Motion.from_rotations(Skeleton.adult(), 30.0, np.zeros((1, 3)), q)
    np.testing.assert_allclose(through_file(motion, tmp_path / "out.bvh").q, q, rtol=0, atol=1e-7)


@pytest.mark.parametrize("fps", [1.0, 30.0, 49.0, 59.94, 60000 / 1001])
def test_rates_round_trip(tmp_path: Path, fps: float):
    assert math.isclose(through_file(stepping_clip(0.1, fps), tmp_path / "out.bvh").fps, fps, rel_tol=4e-16)


# (x, y, z) of our world in the file, and of the rest frame (y up) in the file: the zero pose stands upright in both
# kinds.
@pytest.mark.parametrize(("up", "world", "rest"), [("y", Y_TO_Z_UP.T, np.eye(3)), ("z", np.eye(3), Y_TO_Z_UP)])
def test_file_stands_upright_with_our_bones(tmp_path: Path, up: str, world: np.ndarray, rest: np.ndarray):
    motion = stepping_clip()
    write_bvh(motion, tmp_path / "out.bvh", up=up)
    source = read_bvh(tmp_path / "out.bvh")
    order = [source.rig.names.index(name) for name in JOINTS]
    np.testing.assert_allclose(source.rig.offsets[order], motion.skeleton.offsets @ rest.T, rtol=0, atol=1e-7)
    assert [source.rig.names[source.rig.parents[j]] for j in order[1:]] == [JOINTS[p] for p in PARENTS[1:]]
    np.testing.assert_allclose(positions(source)[:, order], motion.joints @ world.T, rtol=0, atol=1e-6)


def test_angles_do_not_jump(tmp_path: Path):
    # Two full turns about the vertical in 60 frames: 12 degrees a frame.
    spin = rotvec_to_rotmat(np.linspace(0, 4 * math.pi, 61)[:, None] * np.array([0.0, 0.0, 1.0]))
    still = stepping_clip(0.01)
    q = np.tile(still.q[:1], (61, 1, 1, 1))
    q[:, 0] = spin @ q[:, 0]
    path = tmp_path / "out.bvh"
    write_bvh(Motion.from_rotations(still.skeleton, 30.0, np.zeros((61, 3)), q), path)
    frames = np.array([[float(word) for word in line.split()] for line in path.read_text().splitlines()[-61:]])
    assert float(np.abs(np.diff(frames, axis=0)).max()) < 12.1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"up": "x"}, "y or z up"), *(({"unit": u}, "positive") for u in (0.0, math.nan, math.inf))],
)
def test_writer_refuses_options(tmp_path: Path, options: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        through_file(stepping_clip(0.1), tmp_path / "out.bvh", **options)


def test_writer_refuses_what_is_not_one_finite_person(tmp_path: Path):
    motion = stepping_clip(0.1)
    crowd = Motion.from_rotations(motion.skeleton, 30.0, np.stack([motion.root] * 4), np.stack([motion.q] * 4))
    with pytest.raises(ValueError, match="one person"):
        write_bvh(crowd, tmp_path / "out.bvh")
    motion.root[1, 1] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        write_bvh(motion, tmp_path / "out.bvh")
    assert not list(tmp_path.iterdir())


# --- bad files


BAD: dict[str, tuple[str | bytes, int, str]] = {
    "empty": ("", 1, "the file ends where HIERARCHY should come"),
    "binary": (bytes(range(256)) * 50, 1, "not a BVH file"),
    "UTF-16": (VALID.encode("utf-16"), 1, "not saved as plain text"),
    "no MOTION": (VALID[: VALID.index("MOTION")], 15, "the file ends where a joint or MOTION should come"),
    "unclosed brace": (changed("  }\n}\nMOTION", "  }\nMOTION"), 15, "found 'MOTION'"),
    "one brace too many": (changed("}\nMOTION", "}\n}\nMOTION"), 16, "found '}'"),
    "two roots": (changed("MOTION", "ROOT Other\n{\nMOTION"), 16, "one ROOT"),
    "joint before the root": (changed("ROOT", "JOINT"), 2, "one ROOT"),
    "long name": (changed("JOINT Leg", f"JOINT {'x' * 2000}"), 6, "found 'JOINT xxx"),
    "joint in an end site": (changed("      OFFSET 0 -1 0", "OFFSET 0 -1 0\nJOINT Foot"), 13, "End Site"),
    "no channels": ("HIERARCHY\nROOT a\n{\nOFFSET 0 0 0\nCHANNELS 0\n}\nMOTION\n", 7, "nothing that moves"),
    "no brace": (changed("ROOT Hips\n{\n", "ROOT Hips\n"), 3, "an opening brace, found 'OFFSET 1 2 3'"),
    "no OFFSET": (changed("  OFFSET 1 2 3\n", ""), 4, "expected OFFSET"),
    "word in OFFSET": (changed("OFFSET 1 2 3", "OFFSET 1 two 3"), 4, "found 'two'"),
    "no CHANNELS": (changed("    CHANNELS 3 Zrotation Yrotation Xrotation\n", ""), 9, "expected CHANNELS"),
    "huge channel count": (changed("CHANNELS 3", f"CHANNELS {'9' * 5000}"), 9, "expected CHANNELS"),
    "unknown channel": (changed("Xrotation\n    End", "Wrotation\n    End"), 9, "expected CHANNELS"),
    "channel twice": (changed("Xrotation\n    End", "Yrotation\n    End"), 9, "each once"),
    "no Frames": (changed("Frames: 2\n", ""), 17, "expected 'Frames:'"),
    "Frames is a word": (changed("Frames: 2", "Frames: two"), 17, "found 'Frames: two'"),
    "Frames has 5000 digits": (changed("Frames: 2", f"Frames: {'9' * 5000}"), 17, "expected 'Frames:'"),
    "zero frames": (changed("Frames: 2", "Frames: 0"), 17, "one or more"),
    "far too many frames": (changed("Frames: 2", "Frames: 9999999999"), 17, "more memory than its size"),
    "many frames claimed": (changed("Frames: 2", "Frames: 6000"), 20, "frame 3 of 6000"),
    "cut in a frame": (VALID[:-8], 20, "5 values instead of the 9"),
    "a value too many": (VALID[:-1] + " 0\n", 20, "10 values"),
    "no Frame Time": (changed("Frame Time: 0.0333333\n", ""), 18, "expected 'Frame Time:'"),
    "frame time zero": (changed("0.0333333", "0"), 18, "such as 0.0333333 for 30 Hz"),
    "frame time tiny": (changed("0.0333333", "1e-320"), 18, "such as 0.0333333 for 30 Hz"),
    "NaN in a frame": (changed("20 31", "NaN 31"), 20, "found 'NaN'"),
    "implausible value": (changed("20 31", "20 1e30"), 20, "found '1e30'"),
    "underscore": (changed("20 31", "2_0 31"), 20, "found '2_0'"),
    "decimal comma": (changed("20 31", "20,5 31"), 20, "a decimal point instead of the comma, found '20,5'"),
    "error after blank lines": (changed("10 20 31", "\n\n10 20 x"), 22, "found 'x'"),
    "frames left over": (VALID + "1 2 3 4 5 6 7 8 9\n", 21, "goes on after its 2 frames"),
    "NUL": (changed("20 31", "20\0 31"), 20, r"found '20\x00'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_one_sentence_with_the_line(tmp_path: Path, case: str):
    text, line, message = BAD[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is checked below
        read_text(tmp_path, text)
    sentence = str(caught.value)
    assert sentence.startswith(f"{tmp_path / 'take.bvh'}:{line}: ")
    assert message in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400 + len(str(tmp_path))


def test_folder_pipe_and_missing_file(tmp_path: Path):
    with pytest.raises(ValueError, match="not a file"):
        read_bvh(tmp_path)
    os.mkfifo(tmp_path / "pipe.bvh")
    with pytest.raises(ValueError, match="not a file"):
        read_bvh(tmp_path / "pipe.bvh")
    with pytest.raises(FileNotFoundError):
        read_bvh(tmp_path / "missing.bvh")


def test_two_gigabytes_in_one_line(tmp_path: Path):
    path = tmp_path / "huge.bvh"
    path.write_text(VALID[: VALID.index("10 20 30")])
    os.truncate(path, 2 << 30)
    tracemalloc.start()
    begin = time.process_time()
    with pytest.raises(ValueError, match="not a BVH file"):
        read_bvh(path)
    # Only MAX_LINE characters of it are read: a megabyte, of four bytes each at most, and copies.
    assert tracemalloc.get_traced_memory()[1] < 20 * bvh.MAX_LINE
    tracemalloc.stop()
    assert time.process_time() - begin < 5


# Each of these lines is just short enough to be looked at; quadratic time over a megabyte would be hours.
@pytest.mark.parametrize(
    "line",
    [
        "Frames" + " " * 1_000_000 + "a b",
        "Frames:" + "1" * 1_000_000,
        "Frames: " + "a " * 500_000,
        "1_" * 500_000,
        ": " * 500_000,
        "}" * 9,
    ],
)
def test_long_lines_take_no_quadratic_time(tmp_path: Path, line: str):
    begin = time.process_time()
    for old in ("Frames: 2", "Frame Time: 0.0333333", "10 20 30 0 0 0 0 0 90", "  OFFSET 1 2 3", "MOTION"):
        with pytest.raises(ValueError, match=r"take\.bvh:\d+: "):
            read_text(tmp_path, changed(old, line))
    assert time.process_time() - begin < 10


def test_deep_nesting_and_many_joints(tmp_path: Path):
    def nested(depth: int) -> str:
        joints = "".join(f"JOINT j{i}\n{{\nOFFSET 0 1 0\nCHANNELS 0\n" for i in range(depth))
        braces = "}\n" * (depth + 1)
        root = "HIERARCHY\nROOT r\n{\nOFFSET 0 0 0\nCHANNELS 1 Xrotation\n"
        return f"{root}{joints}{braces}MOTION\nFrames: 1\nFrame Time: 1\n90\n"

    source = read_text(tmp_path, nested(bvh.MAX_JOINTS - 1))
    # A quarter turn of the root takes the whole chain from y to z.
    np.testing.assert_allclose(positions(source)[0, -1], np.array([0.0, 0.0, bvh.MAX_JOINTS - 1]), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="more than"):
        read_text(tmp_path, nested(bvh.MAX_JOINTS))
