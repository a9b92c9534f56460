"""Rest joints of a user's own SMPL, SMPL+H or SMPL-X file; nothing that a pickle asks for is imported or called."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.files.npz import read_npz, real_numbers, require

MAX_BYTES = 1 << 30
"""Largest pickle that is read; SMPL-X's is half as large."""
MAX_VERTICES = 200_000
CONVERT = (
    "if you trust the file, load it with pickle.load(file, encoding='latin1') and save "
    "numpy.savez('model.npz', v_template=numpy.array(d['v_template']), J_regressor=d['J_regressor'].toarray())"
)


def read_rest_joints(path: str | Path, betas: Float[np.ndarray, "k"] | None = None) -> Float[np.ndarray, "22 3"]:
    """Return a body's first 22 joints [m], J_regressor (v_template + shapedirs betas); y up, facing +z, left = +x.

    Without betas it is the template body. Of more betas than the file has directions, the first count.
    """
    path = Path(path)
    names = ("J_regressor", "v_template") if betas is None else ("J_regressor", "v_template", "shapedirs")
    match path.suffix.lower():
        case ".npz":
            arrays = read_npz(path, lambda name: name in names)
            regressor, template, *shapes = (require(path, arrays, name) for name in names)
        case ".pkl" | ".pickle":
            regressor, template, *shapes = _read_pickle(path, names)
        case _:
            raise ValueError(f"{path}: an SMPL model file ends in .npz or .pkl")
    if template.ndim != 2 or template.shape[1] != 3 or not 0 < len(template) <= MAX_VERTICES:
        raise ValueError(f"{path}: 'v_template' has shape {template.shape}: expected (vertices, 3)")
    if regressor.ndim != 2 or len(regressor) < NUM_JOINTS or regressor.shape[1] != len(template):
        expected = f"({NUM_JOINTS} joints or more, {len(template)} vertices)"
        raise ValueError(f"{path}: 'J_regressor' has shape {regressor.shape}: expected {expected}")
    weights = real_numbers(path, "J_regressor", regressor[:NUM_JOINTS], limit=1e3)
    joints = weights @ real_numbers(path, "v_template", template, limit=1e3)
    if betas is not None:
        directions = shapes[0]
        if directions.ndim != 3 or directions.shape[:2] != template.shape:
            expected = f"({len(template)}, 3, directions)"
            raise ValueError(f"{path}: 'shapedirs' has shape {directions.shape}: expected {expected}")
        if not (np.isfinite(betas).all() and np.abs(betas).max(initial=0) < 100):
            raise ValueError("betas should be finite and below 100: they count standard deviations")
        num = min(len(betas), directions.shape[2])
        directions = real_numbers(path, "shapedirs", directions[..., :num], limit=1e3)
        joints = joints + np.einsum("jv,vck,k->jc", weights, directions, betas[:num], optimize=True)
    pelvis, left_hip, right_hip, head = joints[[0, 1, 2, 15]]
    if not (0.3 < head[1] - pelvis[1] < 1.5 and 0.02 < left_hip[0] - right_hip[0] < 0.5):
        expected = "metres, y up, the left side along +x and SMPL's joint order"
        raise ValueError(f"{path}: these joints are no SMPL body: expected {expected}")
    return joints


_SPARSE = ("csc_matrix", "csr_matrix", "csc_array", "csr_array")
_NAMES = {"numpy.ndarray", "numpy.dtype", "_codecs.encode", "collections.OrderedDict"}
_NAMES |= {f"{module}.{name}" for module in ("__builtin__", "builtins") for name in ("object", "set")}
_NAMES |= {"copy_reg._reconstructor", "copyreg._reconstructor"}
_NAMES |= {f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")}
_NAMES |= {"numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"}
_NAMES |= {f"scipy.sparse.{module}{name}" for name in _SPARSE for module in ("", f"{name[:3]}.", f"_{name[:3]}.")}
"""Names in SMPL's own pickles, besides chumpy's arrays; a file with any other name is refused."""


class _Dict(dict[Any, Any]):
    __slots__ = ()

    def __setitem__(self, key: object, value: object) -> None:
        # Nested tuples can take forever to hash.
        if not isinstance(key, str | int | bytes):
            raise TypeError("not a plain key")
        super().__setitem__(key, value)


class _Stub:
    """Stands for an object that a pickle asks for, and only keeps what the pickle says about it."""

    kind: ClassVar[str] = ""
    """Dotted name of the class or function."""
    args: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *args: object) -> "_Stub":
        self = super().__new__(cls)
        self.args = args
        return self

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.state = _Dict() if self.state is None else self.state
        self.state[key] = value


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, in Python: names become stubs, and no opcode takes more memory than the file has bytes."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    fault = "not a pickle, or cut off"

    def find_class(self, module: str, name: str) -> type[_Stub]:
        dotted = f"{module}.{name}"
        if dotted not in _NAMES and not module.startswith("chumpy."):
            self.fault = f"asks for {dotted[:80]!r}, which no SMPL file needs and which is not run here"
            raise pickle.UnpicklingError
        return type("_Stub", (_Stub,), {"kind": dotted})

    def _load_dict(self) -> None:
        items, table = self.pop_mark(), _Dict()
        for key, value in zip(items[::2], items[1::2], strict=True):
            table[key] = value
        self.append(table)

    dispatch[pickle.EMPTY_DICT[0]] = lambda self: self.append(_Dict())
    dispatch[pickle.DICT[0]] = _load_dict
    # The standard one makes room for as many bytes as the file claims to have.
    dispatch[pickle.BYTEARRAY8[0]] = dispatch[pickle.BINBYTES8[0]]
    # Sets hash what they hold.
    for opcode in (pickle.EMPTY_SET, pickle.FROZENSET, pickle.EXT1, pickle.EXT2, pickle.EXT4):
        del dispatch[opcode[0]]


def _read_pickle(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    """Return arrays from a pickle as SMPL's authors published it: Python 2, scipy and chumpy objects."""
    if path.exists() and (not path.is_file() or path.stat().st_size > MAX_BYTES):
        raise ValueError(f"{path}: not a file of at most {MAX_BYTES >> 30} GB")
    unpickler = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin-1")
    try:
        model = unpickler.load()
    except Exception:  # a damaged pickle fails in many ways
        raise ValueError(f"{path}: {unpickler.fault}; {CONVERT}") from None
    model = model.state if isinstance(model, _Stub) else model
    if not isinstance(model, dict):
        raise ValueError(f"{path}: holds no dictionary: this is no SMPL model file")
    arrays = []
    for name in names:
        if name not in model:
            held = ", ".join(key for key in model if isinstance(key, str))
            raise ValueError(f"{path}: has no {name!r}; it holds {held}"[:600])
        try:
            arrays.append(_array(model[name]))
        except Exception:
            raise ValueError(f"{path}: {name!r} is no array that is understood here; {CONVERT}") from None
    return arrays


def _array(value: Any) -> np.ndarray:  # noqa: ANN401 - whatever a pickle may hold
    """Build the array that a stub describes; any flaw raises."""
    kind, args, state = value.kind, value.args, value.state
    if kind.endswith("._reconstructor"):
        kind = args[0].kind
    if kind.endswith(".multiarray._reconstruct"):
        _, shape, dtype, is_fortran, content = state
        return _from_bytes(content, dtype, shape, "F" if is_fortran else "C")
    if kind.endswith(".numeric._frombuffer"):
        return _from_bytes(*args)
    if kind.endswith(_SPARSE):
        return _from_sparse(state, by_column=".csc_" in kind)
    # A chumpy array that is not computed from others keeps its values in x.
    inner = state["x"]
    if inner.kind.startswith("chumpy."):
        raise ValueError("computed from other arrays")
    return _array(inner)


def _from_bytes(content: Any, dtype: _Stub, shape: tuple[int, ...], order: Any) -> np.ndarray:  # noqa: ANN401
    """Return an array of plain numbers."""
    if isinstance(content, _Stub) and content.kind == "_codecs.encode":
        # Python 3 writes bytes like this for Python 2.
        content = content.args[0]
    if isinstance(content, str):
        content = content.encode("latin-1")
    if dtype.args[0] not in ("f4", "f8", "i4", "i8", "u4", "u8") or not isinstance(content, bytes):
        raise ValueError("not plain numbers")
    big_endian = bool(dtype.state) and dtype.state[1] == ">"
    return np.frombuffer(content, dtype=f"{'>' if big_endian else '<'}{dtype.args[0]}").reshape(shape, order=order)


def _from_sparse(state: dict[str, Any], *, by_column: bool) -> np.ndarray:
    """Return a compressed sparse matrix as a dense array."""
    rows, columns = (int(length) for length in state["_shape" if "_shape" in state else "shape"])
    if not (0 < rows <= 1000 and 0 < columns <= MAX_VERTICES):
        raise ValueError("not a joint regressor")
    numbers, indices, starts = (_array(state[name]) for name in ("data", "indices", "indptr"))
    counts, num_lines = np.diff(starts), columns if by_column else rows
    if not (len(counts) == num_lines and starts[0] == 0 and starts[-1] == len(indices) == len(numbers)):
        raise ValueError("not a compressed matrix")
    if counts.min() < 0 or counts.max() > len(indices) or indices.min() < 0:
        raise ValueError("indices out of range")
    lines, dense = np.repeat(np.arange(num_lines), counts), np.zeros((rows, columns))
    # Checked indexing: numpy raises for an index that is too large.
    np.add.at(dense, (indices, lines) if by_column else (lines, indices), numbers)
    return dense
