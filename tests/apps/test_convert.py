"""`dropsim convert`: by the endings, whole or not at all; test_command_lines.py has what is refused."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.motion.amass import write_amass
from dropsim.motion.bvh import read_bvh, write_bvh
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


# BVH has ten decimals less than float64: a tenth of a micrometre and 1e-6 degrees, below 1e-5 m at the joints.
@pytest.mark.parametrize("chain", [("a.npz", "b.bvh", "c.npz"), ("a.NPZ", "b.BVH")])
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


@pytest.mark.parametrize(("up", "unit", "fps"), [("y", 0.01, 30), ("z", 1.0, 60)])
def test_axes_units_and_rates_of_both_files(tmp_path: Path, clip_npz: Path, up: str, unit: float, fps: int):
    assert convert(clip_npz, tmp_path / "out.bvh", "--out-up", up, "--out-unit", unit, "--fps", fps) == 0
    take = read_bvh(tmp_path / "out.bvh")
    # 15 frames are 14 steps, each of which becomes two at twice the rate.
    assert (take.fps, len(take)) == (fps, 14 * fps // 30 + 1)
    height = take.translations[:: fps // 30, 0, "xyz".index(up)] * unit
    np.testing.assert_allclose(height, CLIP.root[:, 2], rtol=0, atol=1e-6)
    assert convert(tmp_path / "out.bvh", tmp_path / "back.npz", "--up", up, "--unit", unit, "--fps", 30) == 0
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


def test_the_seed_of_a_simulation_survives(tmp_path: Path):
    write_amass(CLIP, tmp_path / "rich.npz", seed=2**53 + 1)
    for name in ("out.csv", "again.npz"):
        assert convert(tmp_path / "rich.npz", tmp_path / name) == 0
    assert str(2**53 + 1) in (tmp_path / "out.csv").read_text()
    with np.load(tmp_path / "again.npz") as file:
        arrays = dict(file)
    assert arrays["seed"] == 2**53 + 1
    # Other people's files may have a seed of another kind, which is left out.
    np.savez(tmp_path / "other.npz", **arrays | {"seed": np.array(["a", "b"])})
    assert convert(tmp_path / "other.npz", tmp_path / "out.csv") == 0
    assert "seed" not in (tmp_path / "out.csv").read_text()


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, clip_bvh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "out.npz")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    assert convert(clip_bvh, tmp_path / "out.npz") == 2
    assert "No space left" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["clip.bvh"]
