"""A user's own SMPL file: rest joints out of npz and pickles of every age, and no code of a pickle ever runs."""

import io
import os
import pickle
import sys
import time
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.body.smpl import read_rest_joints

REST = Skeleton.adult(height=1.6).rest


def model(num_joints: int = 24) -> dict[str, Any]:
    """A body of the SMPL kind: each joint is the mean of two vertices, and those after the 22nd lie in the hands."""
    joints = np.concatenate((REST, np.repeat(REST[20:21], num_joints - NUM_JOINTS, axis=0)))
    spread = np.random.default_rng(0).normal(size=joints.shape, scale=0.05)
    regressor = 0.5 * np.concatenate((np.eye(num_joints), np.eye(num_joints)), axis=1)
    return {
        "v_template": np.concatenate((joints + spread, joints - spread)),
        "J_regressor": regressor,
        "bs_type": "lrotmin",
        "f": np.arange(6),
    }


def saved(folder: Path, content: bytes) -> Path:
    path = folder / "model.pkl"
    path.write_bytes(content)
    return path


# --- good files


@pytest.mark.parametrize("num_joints", [24, 52, 55], ids=["SMPL", "SMPL+H", "SMPL-X"])
def test_npz(tmp_path: Path, num_joints: int):
    np.savez(tmp_path / "model.npz", **model(num_joints))
    np.testing.assert_allclose(read_rest_joints(tmp_path / "model.npz"), REST, rtol=0, atol=1e-12)


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    "kind", [np.asarray, np.asfortranarray, scipy.sparse.csc_matrix, scipy.sparse.csr_matrix, scipy.sparse.csc_array]
)
def test_pickles_of_every_protocol(tmp_path: Path, protocol: int, kind: Callable[..., Any]):
    content = model() | {"J_regressor": kind(model()["J_regressor"])}
    path = saved(tmp_path, pickle.dumps(content, protocol))
    np.testing.assert_allclose(read_rest_joints(path), REST, rtol=0, atol=1e-12)
    path = saved(tmp_path, pickle.dumps(OrderedDict(content), protocol))
    np.testing.assert_allclose(read_rest_joints(path), REST, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f8"])
def test_number_types(tmp_path: Path, dtype: str):
    content = {
        name: value.astype(dtype) if name in ("v_template", "J_regressor") else value for name, value in model().items()
    }
    # Single precision near one.
    np.testing.assert_allclose(read_rest_joints(saved(tmp_path, pickle.dumps(content))), REST, rtol=0, atol=1e-6)


@pytest.fixture
def chumpy() -> Iterator[type]:
    """Stand-in for the library whose arrays are in SMPL's own pickles; it is gone when they are read."""

    class Ch:
        """Keeps its values in x, next to book-keeping that holds a set."""

        def __init__(self, x: Any) -> None:
            self.x, self._dirty_vars, self._itr, self._depends_on_deps = x, {"x"}, None, {}

        def __setstate__(self, state: object) -> None:
            raise AssertionError("chumpy ran")

    Ch.__module__, Ch.__qualname__ = "chumpy.ch", "Ch"
    package, module = types.ModuleType("chumpy"), types.ModuleType("chumpy.ch")
    module.Ch = Ch  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules |= {"chumpy": package, "chumpy.ch": module}
    yield Ch
    del sys.modules["chumpy"], sys.modules["chumpy.ch"]


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2's strings, and the modules under their names of that time."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_as_string(self, obj: bytes) -> None:
        self.write(b"T" + len(obj).to_bytes(4, "little") + obj)

    dispatch[bytes] = save_as_string
    dispatch[str] = lambda self, obj: self.save_as_string(obj.encode("latin-1"))


def python2_dumps(content: object, protocol: int) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol).dump(content)
    data = buffer.getvalue()
    for new, old in {
        b"numpy._core": b"numpy.core",
        b"sparse._cs": b"sparse.cs",
        b"cbuiltins\n": b"c__builtin__\n",
        b"ccopyreg": b"ccopy_reg",
    }.items():
        data = data.replace(new, old)
    return data


@pytest.mark.parametrize("protocol", [1, 2])
def test_python_2_with_scipy_and_chumpy(tmp_path: Path, chumpy: Callable[..., Any], protocol: int):
    content = model()
    content |= {
        "v_template": chumpy(content["v_template"]),
        "J_regressor": scipy.sparse.csc_matrix(content["J_regressor"]),
    }
    data = python2_dumps(content, protocol)
    assert b"c__builtin__\nset" in data
    assert b"cscipy.sparse.csc\ncsc_matrix" in data
    np.testing.assert_allclose(read_rest_joints(saved(tmp_path, data)), REST, rtol=0, atol=1e-12)


def test_skeleton_of_an_smpl_file(tmp_path: Path):
    np.savez(tmp_path / "model.npz", **model())
    skeleton, like = (
        Skeleton.from_smpl(tmp_path / "model.npz", body_mass=60.0),
        Skeleton.adult(height=1.6, body_mass=60.0),
    )
    np.testing.assert_allclose(skeleton.rest, like.rest, rtol=0, atol=1e-12)
    np.testing.assert_allclose(skeleton.radii, like.radii, rtol=0, atol=1e-12)
    np.testing.assert_allclose(skeleton.masses, like.masses, rtol=0, atol=1e-12)


# --- malicious pickles


class _Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __call__(self) -> None:
        """Only so that it may stand where pickle wants a function."""

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.args


def refusal(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the callers check the text
        read_rest_joints(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    assert len(sentence) < 700 + len(str(path))
    return sentence


ATTACKS: dict[str, Callable[[str], object]] = {
    "os.system": lambda target: _Call(os.system, f"touch {target}"),
    "eval": lambda target: _Call(eval, f"open({target!r}, 'w')"),
    "exec": lambda target: _Call(exec, f"open({target!r}, 'w')"),
    "open": lambda target: _Call(open, target, "w"),
    "getattr of a getattr": lambda target: _Call(
        _Call(getattr, _Call(getattr, _Call(__import__, "os"), "path"), "os"), target
    ),  # pyright: ignore[reportArgumentType]
    "numpy.savetxt": lambda target: _Call(np.savetxt, target, [1.0]),
    "numpy.memmap": lambda target: _Call(np.memmap, target, "u1", "w+", 0, (4,)),
    "Path.touch": lambda target: _Call(Path.touch, Path(target)),
    "pickle in a pickle": lambda target: _Call(pickle.loads, pickle.dumps(_Call(open, target, "w"))),
}


@pytest.mark.parametrize("protocol", [0, 4])
@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused(tmp_path: Path, attack: str, protocol: int):
    target = tmp_path / "ran"
    payload = ATTACKS[attack](str(target))
    for content in (payload, model() | {"v_template": payload}, model() | {"posedirs": payload}, [payload, model()]):
        sentence = refusal(saved(tmp_path, pickle.dumps(content, protocol)))
        assert "could run code and which is not run here" in sentence
    assert not target.exists()


ARRAY = b"cnumpy._core.multiarray\n_reconstruct\n"
NO_PICKLE = "not a pickle, or cut off"
RAW: dict[str, tuple[bytes, str]] = {
    "global": (b"cos\nsystem\n(S'true'\ntR.", "asks for 'os.system'"),
    "instance": (b"(S'true'\nios\nsystem\n.", "asks for 'os.system'"),
    "object": (b"(cos\nsystem\nS'true'\no.", "asks for 'os.system'"),
    "new object": (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85\x81.", "asks for 'os.system'"),
    "stack global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "asks for 'os.system'"),
    "an object that chumpy imports": (b"}S'J_regressor'\ncchumpy.ch\nos.system\n(S'true'\ntRs.", "is no array"),
    "extension": (b"\x80\x02\x82\x01.", NO_PICKLE),
    "persistent id": (b"Pabc\n.", "holds no dictionary"),
    "buffer out of band": (b"\x80\x05\x97.", NO_PICKLE),
    "a state for a function": (ARRAY + b"}S'__code__'\nNsb.", NO_PICKLE),
    "a state for a dictionary": (b"}}S'a'\nNsb.", NO_PICKLE),
    "a call of a string": (b"S'os'\n)R.", NO_PICKLE),
    "nothing": (b"", NO_PICKLE),
    "unknown memory": (b"h\x05.", NO_PICKLE),
    "text": (b"HIERARCHY\nROOT Hips\n", NO_PICKLE),
    "a number of 5000 digits": (b"I" + b"9" * 5000 + b"\n.", NO_PICKLE),
    "a memory index that would fill the memory": (b"\x80\x02Nr\xff\xff\xff\x7f.", "holds no dictionary"),
    "bytes that are not there": (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", NO_PICKLE),
    "a byte array that is not there": (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".", NO_PICKLE),
    "a set": (b"\x80\x04\x8f(K\x01\x90.", NO_PICKLE),
    "other keys": (pickle.dumps({"weights": 1, 5: 2}), "has no 'J_regressor'; it holds weights"),
    "no template": (pickle.dumps({"J_regressor": np.eye(22)}), "has no 'v_template'"),
    "list for an array": (pickle.dumps(model() | {"v_template": [[0.0, 0.0, 0.0]]}), "'v_template' is no array"),
    "array of objects": (pickle.dumps(model() | {"v_template": np.array([None])}), "'v_template' is no array"),
    "other sparse format": (pickle.dumps(model() | {"J_regressor": scipy.sparse.coo_matrix(np.eye(3))}), "coo_matrix"),
}


@pytest.mark.parametrize("case", RAW)
def test_raw_pickles_are_one_sentence(tmp_path: Path, case: str):
    content, message = RAW[case]
    assert message in refusal(saved(tmp_path, content))


def test_growing_pickles_end_soon(tmp_path: Path):
    begin = time.process_time()
    # A tuple of itself twice, sixty times over: as a key its hash, and as a name its text, would never be done.
    nested = b"\x80\x02)" + 60 * b"2\x86"
    assert "not a pickle" in refusal(saved(tmp_path, b"\x80\x02}" + nested[2:] + b"Ns."))
    assert "not a pickle" in refusal(saved(tmp_path, b"\x80\x04" + nested[2:] + b"2\x93."))
    assert "no dictionary" in refusal(saved(tmp_path, nested + b"."))
    # A list that holds itself.
    assert "is no array" in refusal(saved(tmp_path, b"}S'J_regressor'\n]q\x002asS'v_template'\nh\x00s."))
    assert time.process_time() - begin < 5


def sparse_with(**changes: Any) -> bytes:
    matrix = scipy.sparse.csc_matrix(model()["J_regressor"])
    matrix.__dict__.update(changes)
    return pickle.dumps(model() | {"J_regressor": matrix})


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.full(48, 24, dtype=np.int32)},
        {"indices": np.full(48, -1, dtype=np.int32)},
        {"indptr": np.full(49, 1 << 30, dtype=np.int32)},
        {"indptr": np.array([0, 48], dtype=np.int32)},
        {"indptr": np.array([0, 2**40] + [0] * 46 + [48])},
        # The differences of these wrap around to counts that are not negative.
        {"indptr": np.array([0, 2**31 - 1, -(2**31)] + [-(2**31) + 1] * 45 + [48], dtype=np.int32)},
        {"data": np.zeros(3)},
        {"_shape": (24, 10**9)},
        {"_shape": (-1, -1)},
        {"_shape": "ab"},
    ],
)
def test_sparse_matrices_out_of_range(tmp_path: Path, changes: dict[str, Any]):
    assert "'J_regressor' is no array" in refusal(saved(tmp_path, sparse_with(**changes)))


# --- other bad files


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v_template": np.zeros((48, 2))}, "'v_template' has shape (48, 2)"),
        (
            {"v_template": np.zeros((47, 3))},
            "'J_regressor' has shape (24, 48): expected (22 joints or more, 47 vertices)",
        ),
        ({"J_regressor": np.zeros((16, 48))}, "'J_regressor' has shape (16, 48)"),
        ({"J_regressor": np.zeros(48)}, "'J_regressor' has shape (48,)"),
        ({"v_template": np.full((48, 3), np.nan)}, "'v_template' holds nan"),
        ({"v_template": 1000 * model()["v_template"]}, "expected finite numbers up to 1000|no SMPL body"),
        ({"v_template": 100 * model()["v_template"]}, "no SMPL body: expected metres"),
        ({"v_template": model()["v_template"] * [-1, 1, 1]}, "the left side along +x"),
        ({"v_template": model()["v_template"][:, [0, 2, 1]]}, "y up"),
        ({"v_template": np.array(None)}, "pickled objects"),
    ],
)
def test_bodies_that_are_none(tmp_path: Path, changes: dict[str, Any], message: str):
    np.savez(tmp_path / "model.npz", **(model() | changes))
    sentence = refusal(tmp_path / "model.npz")
    assert any(part in sentence for part in message.split("|"))


def test_paths(tmp_path: Path):
    np.savez(tmp_path / "model.npz", **model())
    np.testing.assert_allclose(read_rest_joints(str(tmp_path / "model.npz")), REST, rtol=0, atol=1e-12)
    assert "ends in .npz or .pkl" in refusal(tmp_path / "model.txt")
    (tmp_path / "folder.pkl").mkdir()
    assert "not a file" in refusal(tmp_path / "folder.pkl")
    with pytest.raises(FileNotFoundError):
        read_rest_joints(tmp_path / "missing.pkl")
