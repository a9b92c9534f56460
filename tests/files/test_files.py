"""Laws of atomic writing: all or nothing, and no litter."""

import errno

import numpy as np
import pytest
import safetensors

from dropsim.files.atomic import atomic_path, refuse_read_only
from dropsim.files.cache import cached
from dropsim.files.weights import write_weights


def test_success_puts_the_file_in_place(tmp_path):
    # The folder is made, the extension is kept for writers that look at it, and nothing else is left behind.
    path = tmp_path / "new" / "clip.npz"
    with atomic_path(path) as temporary:
        assert temporary.suffix == ".npz"
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert [p.name for p in path.parent.iterdir()] == ["clip.npz"]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "clip.npz"
    path.write_text("old")

    def write_half() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("the power went out")

    with pytest.raises(RuntimeError, match="power"):
        write_half()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["clip.npz"]


def test_two_writers_do_not_share_a_temporary(tmp_path):
    path = tmp_path / "clip.npz"
    with atomic_path(path) as first, atomic_path(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    # The outer one finishes last.
    assert path.read_text() == "first"


def test_a_folder_that_cannot_be_written_is_named_and_not_the_temporary(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied", str(tmp_path / ".clip-x7"))

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    with pytest.raises(PermissionError) as error, atomic_path(tmp_path / "clip.npz"):
        pass
    assert error.value.filename == str(tmp_path / "clip.npz")
    assert error.value.strerror == "cannot be written: Permission denied"


def test_a_read_only_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    refuse_read_only(tmp_path / "new" / "clip.npz")
    monkeypatch.setattr("os.access", lambda folder, _: folder != tmp_path)
    for path in (tmp_path, tmp_path / "clip.npz", tmp_path / "new" / "clip.npz"):
        with pytest.raises(ValueError, match=rf"{path}: cannot be written, because the folder {tmp_path} is read-only"):
            refuse_read_only(path)


@pytest.mark.parametrize("named", [True, False], ids=["with a name", "without"])
def test_a_full_disk_is_told_by_the_users_name(tmp_path, named):
    path = tmp_path / "clip.npz"
    with pytest.raises(OSError, match="No space left") as error, atomic_path(path) as temporary:
        raise OSError(errno.ENOSPC, "No space left on device", *([str(temporary)] if named else []))
    assert (error.value.filename, error.value.errno) == (str(path), errno.ENOSPC)


def test_errors_about_other_files_stay(tmp_path):
    with pytest.raises(OSError, match=r"^\[Errno 2\] gone: 'other.bvh'$"), atomic_path(tmp_path / "clip.npz"):
        raise FileNotFoundError(2, "gone", "other.bvh")


def test_weights_and_caches_on_a_full_disk(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise safetensors.SafetensorError("Error while serializing: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="No space left") as error:
        write_weights(tmp_path / "my.bank", "bank", {"a": np.zeros(3)}, {})
    assert error.value.filename == str(tmp_path / "my.bank")
    assert cached(tmp_path / "cache.safetensors", lambda: {"a": np.ones(3)})["a"].tolist() == [1, 1, 1]
    assert list(tmp_path.iterdir()) == []
