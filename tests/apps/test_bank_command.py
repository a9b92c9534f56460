"""`dropsim bank`: from a folder of recordings to a person who moves by them."""

from pathlib import Path

import pytest

from dropsim.apps.cli import main
from dropsim.export import write
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.motion_field import MotionField
from dropsim.priors.named import open_prior


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DROPSIM_CACHE", str(tmp_path / "cache"))
    recordings = tmp_path / "mocap"
    recordings.mkdir()
    write(stepping_clip(3.0), recordings / "my_walk.bvh")
    (recordings / "broken.bvh").write_text("HIERARCHY\nnothing\n")
    return recordings


def test_a_folder_becomes_a_bank_and_says_what_it_could_not_read(folder, tmp_path, capsys):
    out = tmp_path / "mine.bank"
    assert main(["bank", "build", str(folder), "--out", str(out), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "broken: unreadable" in said
    assert "bytes a frame" in said
    assert "warning: 3 s of recordings are few" in said
    assert not list(tmp_path.glob("*.work"))
    assert main(["bank", "info", str(out)]) == 0
    assert "1 clips" in capsys.readouterr().out


def test_a_folder_of_only_broken_files_is_named_with_a_reason(folder, tmp_path, capsys):
    (folder / "my_walk.bvh").unlink()
    assert main(["bank", "build", str(folder), "--out", str(tmp_path / "mine.bank"), "--workers", "1"]) == 2
    said = capsys.readouterr().err
    assert f"dropsim: {folder} holds no recording that can be used; broken: unreadable" in said
    assert ".work" not in said


def test_a_folder_is_a_prior(folder):
    prior = open_prior(folder)
    assert isinstance(prior, MotionField)
    assert [clip.name for clip in prior.bank.clips] == ["my_walk"]
