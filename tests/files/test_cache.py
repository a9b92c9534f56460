"""Arrays that are kept in files."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dropsim.files.atomic import errors_of
from dropsim.files.cache import MAX_FILES, cached, map_safetensors

ARRAYS = {
    "flags": np.array([True, False, True]),
    "bytes": np.arange(5, dtype=np.uint8),
    "codes": np.arange(12, dtype=np.int16).reshape(3, 4) - 5,
    "rows": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
    "one": np.array(3.5),
    "none": np.zeros((0, 4)),
}


def refuse() -> dict[str, np.ndarray]:
    raise AssertionError("it was there already")


def test_made_once_and_mapped_from_then_on(tmp_path: Path):
    path = tmp_path / "new" / "arrays.safetensors"
    made = cached(path, lambda: ARRAYS)
    found = cached(path, refuse)
    for arrays in (made, found):
        assert arrays.keys() == ARRAYS.keys()
        for name, expected in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], expected)
            assert (arrays[name].dtype, arrays[name].shape) == (expected.dtype, expected.shape)
            assert arrays[name].flags.aligned
            assert arrays[name].flags.writeable
    found["rows"][:] = 7.0
    np.testing.assert_array_equal(cached(path, refuse)["rows"], ARRAYS["rows"])


def test_made_again_if_damaged(tmp_path: Path):
    path = tmp_path / "arrays.safetensors"
    cached(path, lambda: ARRAYS)
    content = path.read_bytes()
    for damaged in (b"", b"nonsense", content[:40], content[:-1], b"\xff" * 8 + content[8:]):
        path.write_bytes(damaged)
        cached(path, lambda: ARRAYS)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1000000], "data_offsets": [0, 4000000]},
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]},
        {"dtype": "O", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": "x", "data_offsets": [0, 8]},
        [],
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, entry: object):
    path = tmp_path / "arrays.safetensors"
    header = json.dumps({"a": entry}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(ValueError, match=str(path)), errors_of(path):
        map_safetensors(path)


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("")
    np.testing.assert_array_equal(
        cached(tmp_path / "file" / "arrays.safetensors", lambda: ARRAYS)["rows"], ARRAYS["rows"]
    )


def test_the_last_used_files_stay(tmp_path: Path):
    paths = [tmp_path / f"{i}.safetensors" for i in range(MAX_FILES + 3)]
    for i, path in enumerate(paths):
        cached(path, lambda: ARRAYS)
        os.utime(path, (i, i))
        cached(paths[0], lambda: ARRAYS)
    there = {path for path in paths if path.exists()}
    assert len(there) == MAX_FILES
    assert {paths[0], paths[-1]} <= there
