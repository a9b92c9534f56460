"""Banks of recordings: what is written comes back, and whatever else a file may hold is refused in one sentence."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.body.rotations import unitquat_to_rotmat
from dropsim.compute.random import Streams
from dropsim.files.weights import read_weights, write_weights
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import somersault_clip, stepping_clip
from dropsim.priors.bank import Bank, ClipInfo
from dropsim.priors.motion_field import MotionField

WALK = ClipInfo("step", "ours", "MIT", ("walk", "turn"), 0)
JUMP = ClipInfo("flip", "theirs", "CC BY 4.0", ("jump",), 0)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DROPSIM_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def motions() -> list[Motion]:
    return [stepping_clip(seconds=4.0), somersault_clip(seconds=3.0)]


@pytest.fixture(scope="module")
def bank(motions: list[Motion]) -> Bank:
    parts = []
    for motion, info in zip(motions, (WALK, JUMP), strict=True):
        touching = motion.joints[..., 2] < 0.12
        parts.append((motion, ClipInfo(info.name, info.source, info.licence, info.tags, len(motion)), touching))
    return Bank.of(parts)


@pytest.fixture
def path(bank: Bank, tmp_path: Path) -> Path:
    bank.write(tmp_path / "some.bank")
    return tmp_path / "some.bank"


def test_what_is_written_comes_back(bank: Bank, motions: list[Motion], path: Path):
    for found in (Bank.open(path), Bank.open(str(path))):
        assert found.clips == bank.clips
        assert found.fps == 30.0
        np.testing.assert_array_equal(found.skeleton.rest, motions[0].skeleton.rest)
        root, q = (np.concatenate([getattr(motion, name) for motion in motions]) for name in ("root", "q"))
        # Tenths of a millimetre, and fifths of a milliradian along three axes.
        assert np.abs(found.root - root).max() <= 0.51e-4
        turned = np.einsum("nkij,nkil->nkjl", unitquat_to_rotmat(found.quaternions.astype(np.float64)), q)
        angle = np.arccos(np.clip(0.5 * (np.trace(turned, axis1=-2, axis2=-1) - 1), -1, 1))
        assert np.degrees(angle).max() < 0.01
        np.testing.assert_array_equal(found.standing, bank.standing)


def test_writing_again_changes_nothing(path: Path, tmp_path: Path):
    Bank.open(path).write(tmp_path / "again.bank")
    assert (tmp_path / "again.bank").read_bytes() == path.read_bytes()


def test_frames_know_their_clips(bank: Bank, motions: list[Motion]):
    first, second = map(len, motions)
    assert len(bank) == first + second
    np.testing.assert_array_equal(np.unique(bank.last), [first - 1, first + second - 1])
    np.testing.assert_array_equal(np.flatnonzero(bank.tagged("jump")), np.arange(first, first + second))
    assert bank.tagged("walk", "jump").all()
    picked = bank.picked([1])
    assert [clip.name for clip in picked.clips] == ["flip"]
    np.testing.assert_array_equal(picked.root, bank.root[first:])
    info = bank.info()
    assert info["minutes by tag"]["turn"] == pytest.approx(first / 1800)
    assert info["minutes by source"] == {"ours": pytest.approx(first / 1800), "theirs": pytest.approx(second / 1800)}


def test_tags_and_starts_that_are_not_there(bank: Bank):
    with pytest.raises(ValueError, match=r"there is no tag 'walking': did you mean 'walk'\?"):
        ClipInfo("a", "b", "c", ("walking",), 3)
    with pytest.raises(ValueError, match="there is no start 'fly'"):
        bank.starts("fly")
    with pytest.raises(ValueError, match="nobody in this bank does 'ground'"):
        bank.starts("ground")
    with pytest.raises(ValueError, match="at least one recording"):
        Bank.of([])


def test_the_index_is_kept(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    def proposed(field: MotionField) -> np.ndarray:
        return field.propose(field.start("stand"), 8, Streams(0)).x

    fresh = proposed(MotionField.open(path))
    assert len(list((cache / "banks").glob("*.safetensors"))) == 2
    monkeypatch.setattr("dropsim.priors.motion_field.index_of", lambda *_: pytest.fail("the index was there already"))
    monkeypatch.setattr("dropsim.priors.bank.read_weights", lambda *_: pytest.fail("the frames were there already"))
    np.testing.assert_array_equal(proposed(MotionField.open(path)), fresh)


def test_a_damaged_cache_is_made_again(path: Path, cache: Path):
    fresh = Bank.open(path)
    [file] = (cache / "banks").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:1000])
    np.testing.assert_array_equal(Bank.open(path).quaternions, fresh.quaternions)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"root": None}, "root"),
        ({"clips": None}, "table of clips is damaged"),
        ({"root": np.zeros((0, 3), np.int32)}, "root of shape"),
        ({"root": np.zeros((210, 3))}, "root of shape"),
        ({"root": np.full((210, 3), 2**30, np.int32)}, "farther than 10 km"),
        ({"rotations": np.zeros((209, 22, 3), np.int16)}, "rotations of shape"),
        ({"clips": np.frombuffer(b'["a", "b", "c", ["walk"], 7]', np.uint8)}, "root of shape"),
        ({"clips": np.frombuffer(b'["a", "b", "c", ["walk"], -7]', np.uint8)}, "table of clips is damaged"),
        ({"clips": np.frombuffer(b'["a", "b", "c", ["fly"], 210]', np.uint8)}, "table of clips is damaged"),
        ({"clips": np.frombuffer(b"[" * 100_000, np.uint8)}, "table of clips is damaged"),
        ({"clips": np.frombuffer(b"\xff\xfe", np.uint8)}, "table of clips is damaged"),
        ({"clips": np.frombuffer(b"\n" * 200_000, np.uint8)}, "more than 100000 clips"),
        ({"masses": np.zeros(22)}, "masses"),
        ({"rest": np.full((22, 3), np.nan)}, "not finite"),
    ],
)
def test_files_that_lie_are_refused(path: Path, change: dict[str, np.ndarray | None], says: str):
    tensors, metadata = read_weights(path, "bank")
    changed = {name: value for name, value in {**tensors, **change}.items() if value is not None}
    write_weights(path, "bank", changed, {name: value for name, value in metadata.items() if name != "kind"})
    with pytest.raises(ValueError, match=says) as refusal:
        Bank.open(path)
    assert str(refusal.value).startswith(f"{path}")
    assert "\n" not in str(refusal.value)


def test_what_is_no_bank_is_refused(path: Path, tmp_path: Path):
    content = path.read_bytes()
    write_weights(tmp_path / "weights.bank", "cvae", {"a": np.zeros(3)}, {})
    write_weights(tmp_path / "rate.bank", "bank", read_weights(path, "bank")[0], {"fps": "fast", "version": 1})
    (tmp_path / "folder.bank").mkdir()
    for name, made in (
        ("empty", b""),
        ("cut", content[:-5]),
        ("long", b"\xff" * 8 + content[8:]),
        ("text", b"hello, world"),
    ):
        (tmp_path / f"{name}.bank").write_bytes(made)
    for name in ("weights", "rate", "folder", "empty", "cut", "long", "text", "missing"):
        with pytest.raises(ValueError, match=f"{name}.bank") as refusal:
            Bank.open(tmp_path / f"{name}.bank")
        assert "\n" not in str(refusal.value)


def test_tags_choose_and_forbid():
    clip = stepping_clip(2.0)
    standing = np.zeros((len(clip), 22), dtype=np.bool_)
    named = (("one", ("walk",)), ("two", ("walk", "dance")), ("three", ("stand",)))
    bank = Bank.of([(clip, ClipInfo(name, "ours", "MIT", tags, len(clip)), standing) for name, tags in named])
    assert [clip.name for clip in bank.chosen(only=("walk",)).clips] == ["one", "two"]
    assert [clip.name for clip in bank.chosen(without=("dance",)).clips] == ["one", "three"]
    assert [clip.name for clip in bank.chosen(only=("walk",), without=("dance",)).clips] == ["one"]
    with pytest.raises(ValueError, match="no clip of this bank"):
        bank.chosen(only=("jump",))
    with pytest.raises(ValueError, match="there is no tag 'danse'"):
        bank.chosen(without=("danse",))
