"""Laws of atomic writing: all or nothing, and no litter."""

import pytest

from dropsim.files.atomic import atomic_path, refuse_read_only


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
