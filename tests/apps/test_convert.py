"""`dropsim convert`: by the endings, whole or not at all, and bad input is one line and exit code 2."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.motion.amass import write_amass
from dropsim.motion.bvh import read_bvh, write_bvh
from dropsim.motion.motion import Event
from dropsim.motion.reading import read_motion
from dropsim.motion.synthetic import stepping_clip

CLIP = stepping_clip(0.5)


@pytest.fixture
def clip_bvh(tmp_path: Path) -> Path:
    write_bvh(CLIP, tmp_path / "clip.bvh")
    return tmp_path / "clip.bvh"


@pytest.fixture
def clip_npz(tmp_path: Path) -> Path:
    write_amass(CLIP, tmp_path / "clip.npz")
    return tmp_path / "clip.npz"


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the one line that a refused conversion prints."""
    capsys.readouterr()
    assert convert(*arguments) == 2
    output = capsys.readouterr()
    assert "wrote" not in output.out
    assert output.err.startswith("dropsim: ")
    assert output.err.count("\n") == 1
    assert "Traceback" not in output.err
    return output.err


# BVH has ten decimals less than float64: a tenth of a micrometre and 1e-6 degrees, below 1e-5 m at the joints.
@pytest.mark.parametrize("chain", [("a.npz",), ("a.bvh",), ("a.npz", "b.bvh", "c.npz"), ("a.NPZ", "b.BVH")])
def test_chains_of_conversions_keep_the_motion(
    tmp_path: Path, clip_bvh: Path, capsys: pytest.CaptureFixture[str], chain: tuple[str, ...]
):
    current = clip_bvh
    for name in chain:
        assert convert(current, tmp_path / name) == 0
        current = tmp_path / name
    assert "15 frames at 30 frames per second" in capsys.readouterr().out
    back = read_motion(current, CLIP.skeleton)
    np.testing.assert_allclose(back.joints, CLIP.joints, rtol=0, atol=1e-5)
    np.testing.assert_allclose(back.q, CLIP.q, rtol=0, atol=1e-5)
    assert back.fps == CLIP.fps


def test_another_rate(tmp_path: Path, clip_npz: Path):
    assert convert(clip_npz, tmp_path / "out.bvh", "--fps", 60) == 0
    take = read_bvh(tmp_path / "out.bvh")
    # 15 frames are 14 steps, each of which becomes two.
    assert (take.fps, len(take)) == (60.0, 29)
    assert convert(tmp_path / "out.bvh", tmp_path / "back.npz", "--fps", 30) == 0
    np.testing.assert_allclose(read_motion(tmp_path / "back.npz", CLIP.skeleton).joints, CLIP.joints, rtol=0, atol=1e-5)


@pytest.mark.parametrize("up", ["y", "z"])
@pytest.mark.parametrize("unit", [0.01, 1.0])
def test_axes_and_units_of_both_files(tmp_path: Path, clip_npz: Path, up: str, unit: float):
    assert convert(clip_npz, tmp_path / "out.bvh", "--out-up", up, "--out-unit", unit) == 0
    take = read_bvh(tmp_path / "out.bvh")
    height = take.translations[:, 0, "xyz".index(up)] * unit
    np.testing.assert_allclose(height, CLIP.root[:, 2], rtol=0, atol=1e-6)
    assert convert(tmp_path / "out.bvh", tmp_path / "back.npz", "--up", up, "--unit", unit) == 0
    np.testing.assert_allclose(read_motion(tmp_path / "back.npz", CLIP.skeleton).joints, CLIP.joints, rtol=0, atol=1e-5)


def test_a_users_own_map(tmp_path: Path, clip_bvh: Path):
    text = clip_bvh.read_text()
    names = [line.split()[1] for line in text.splitlines() if line.split()[0] in ("ROOT", "JOINT")]
    for name in names:
        text = text.replace(f" {name}\n", f" bone{names.index(name)}\n")
    (tmp_path / "odd.bvh").write_text(text)
    (tmp_path / "odd.toml").write_text("[joints]\n" + "\n".join(f'{name} = "bone{i}"' for i, name in enumerate(names)))
    assert convert(tmp_path / "odd.bvh", tmp_path / "new" / "out.npz", "--rig", tmp_path / "odd.toml") == 0
    np.testing.assert_allclose(
        read_motion(tmp_path / "new" / "out.npz", CLIP.skeleton).joints, CLIP.joints, rtol=0, atol=1e-4
    )


# --- what is refused before anything is written


def test_the_input_is_never_overwritten(tmp_path: Path, clip_bvh: Path, capsys: pytest.CaptureFixture[str]):
    before = clip_bvh.read_bytes()
    (tmp_path / "symbolic.bvh").symlink_to(clip_bvh)
    os.link(clip_bvh, tmp_path / "hard.bvh")
    for out in (clip_bvh, tmp_path / "." / "clip.bvh", tmp_path / "symbolic.bvh", tmp_path / "hard.bvh"):
        assert "is the input itself" in refused(capsys, clip_bvh, out)
    assert clip_bvh.read_bytes() == before


def test_what_a_simulation_recorded_survives(tmp_path: Path):
    forces = np.zeros((15, 22, 3))
    forces[3:6, 9, 0] = 250.0
    rich = replace(
        CLIP, external_forces=forces, energies={"contact": np.arange(15.0)}, events=(Event("push", 0.1, 0.1),)
    )
    write_amass(rich, tmp_path / "rich.npz", seed=2**53 + 1)
    assert convert(tmp_path / "rich.npz", tmp_path / "out.csv") == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["spine3 external force x [N]"]) for row in rows] == forces[:, 9, 0].tolist()
    assert [float(row["energy contact [m^2]"]) for row in rows] == list(range(15))
    assert [row["event push [0 or 1]"] for row in rows] == ["1" if 3 <= frame < 6 else "0" for frame in range(15)]
    assert {row["seed"] for row in rows} == {str(2**53 + 1)}
    assert convert(tmp_path / "rich.npz", tmp_path / "again.npz") == 0
    with np.load(tmp_path / "again.npz") as arrays:
        assert arrays["seed"] == 2**53 + 1


def test_a_seed_of_another_kind_is_left_out(tmp_path: Path):
    np.savez(tmp_path / "other.npz", seed=np.array(["a", "b"]), **VALID)  # pyright: ignore[reportArgumentType]
    assert convert(tmp_path / "other.npz", tmp_path / "out.csv") == 0
    assert "seed" not in (tmp_path / "out.csv").read_text()


VALID = {"poses": np.zeros((2, 156)), "trans": np.zeros((2, 3)), "mocap_framerate": np.array(30.0)}


def test_a_damaged_file_leaves_what_was_there(tmp_path: Path, clip_bvh: Path, capsys: pytest.CaptureFixture[str]):
    # What else can be damaged is tested with the readers.
    clip_bvh.write_text(clip_bvh.read_text()[:-100])
    (tmp_path / "out.npz").write_bytes(b"kept")
    # Names the file and the line.
    assert refused(capsys, clip_bvh, tmp_path / "out.npz").startswith(f"dropsim: {clip_bvh}:")
    assert (tmp_path / "out.npz").read_bytes() == b"kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip.bvh", "out.npz"]


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, clip_bvh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "out.npz")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    assert "No space left" in refused(capsys, clip_bvh, tmp_path / "out.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["clip.bvh"]
