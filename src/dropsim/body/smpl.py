"""Rest joints of a user's own SMPL, SMPL+H or SMPL-X file; nothing that a pickle asks for is imported or called."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import NUM_JOINTS
from dropsim.files.atomic import errors_of
from dropsim.files.limits import Budget
from dropsim.files.npz import read_npz, real_numbers, require
from dropsim.files.pickles import Stub, read_pickle

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
    if template.size > 3 * MAX_VERTICES:
        raise ValueError(f"{path}: 'v_template' has shape {template.shape}: expected {MAX_VERTICES} vertices at most")
    template = real_numbers(path, "v_template", template, (None, 3), limit=1e3)
    if regressor.ndim != 2 or len(regressor) < NUM_JOINTS or regressor.shape[1] != len(template):
        expected = f"({NUM_JOINTS} joints or more, {len(template)} vertices)"
        raise ValueError(f"{path}: 'J_regressor' has shape {regressor.shape}: expected {expected}")
    weights = real_numbers(path, "J_regressor", regressor[:NUM_JOINTS], limit=1e3)
    joints = weights @ template
    if betas is not None and len(betas):
        if not (np.isfinite(betas).all() and np.abs(betas).max(initial=0) < 100):
            raise ValueError("betas should be finite and below 100: they count standard deviations")
        directions = np.atleast_1d(shapes[0])[..., : len(betas)]
        directions = real_numbers(path, "shapedirs", directions, (len(template), 3, None), limit=1e3)
        joints = joints + np.einsum("jv,vck,k->jc", weights, directions, betas[: directions.shape[2]], optimize=True)
    pelvis, left_hip, right_hip, head = joints[[0, 1, 2, 15]]
    if not (0.3 < head[1] - pelvis[1] < 1.5 and 0.02 < left_hip[0] - right_hip[0] < 0.5):
        expected = "metres, y up, the left side along +x and SMPL's joint order"
        raise ValueError(f"{path}: these joints are no SMPL body: expected {expected}")
    return joints


_SPARSE = ("csc_matrix", "csr_matrix", "csc_array", "csr_array")


def _read_pickle(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    """Return arrays from a pickle as SMPL's authors published it: Python 2, scipy and chumpy objects."""
    with errors_of(path):
        Budget(path, MAX_BYTES)
        try:
            model = read_pickle(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{error}; {CONVERT}") from None
    model = model.items if isinstance(model, Stub) else model
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
        return _from_sparse(state, kind)
    # A chumpy array that is not computed from others keeps its values in x.
    inner = state["x"]
    if inner.kind.startswith("chumpy."):
        raise ValueError("computed from other arrays")
    return _array(inner)


def _from_bytes(content: Any, dtype: Stub, shape: tuple[int, ...], order: Any) -> np.ndarray:  # noqa: ANN401
    """Return an array of plain numbers."""
    if isinstance(content, Stub) and content.kind == "_codecs.encode":
        # Python 3 writes bytes like this for Python 2.
        content = content.args[0]
    if isinstance(content, str):
        content = content.encode("latin-1")
    if dtype.args[0] not in ("f4", "f8", "i4", "i8", "u4", "u8") or not isinstance(content, bytes):
        raise ValueError("not plain numbers")
    big_endian = bool(dtype.state) and dtype.state[1] == ">"
    return np.frombuffer(content, dtype=f"{'>' if big_endian else '<'}{dtype.args[0]}").reshape(shape, order=order)


def _from_sparse(state: dict[str, Any], kind: str) -> np.ndarray:
    """Return a compressed sparse matrix as a dense array; all its indices are checked."""
    from scipy import sparse

    rows, columns = (int(length) for length in state["_shape" if "_shape" in state else "shape"])
    if not (0 < rows <= 1000 and 0 < columns <= MAX_VERTICES):
        raise ValueError("not a joint regressor")
    numbers, indices, starts = (_array(state[name]) for name in ("data", "indices", "indptr"))
    if starts.min() < 0:  # differences of these could wrap around
        raise ValueError("indices out of range")
    form = sparse.csc_matrix if ".csc_" in kind else sparse.csr_matrix
    matrix = form((numbers, indices, starts), shape=(rows, columns))
    matrix.check_format(full_check=True)
    return matrix.toarray()
