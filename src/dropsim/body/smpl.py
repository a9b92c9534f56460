"""Rest joints out of a user's own SMPL, SMPL+H or SMPL-X model file, without running anything that a pickle asks for."""

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.files.npz import read_npz, real_numbers, require

NUM_JOINTS = 22
"""The first joints of SMPL's order, which SMPL+H and SMPL-X share."""
MAX_BYTES = 1 << 30
"""Largest pickle that is read; SMPL-X's is half as large."""
MAX_VERTICES = 200_000
CONVERT = (
    "where you trust the file, load it with pickle.load(file, encoding='latin1') and save "
    "numpy.savez('model.npz', v_template=numpy.array(d['v_template']), J_regressor=d['J_regressor'].toarray())"
)
"""What to do with a pickle that is not read here."""

Value = Any
"""Whatever a pickle may hold."""
Array = np.ndarray


def read_rest_joints(path: Path) -> Float[np.ndarray, "22 3"]:
    """Return the template body's first 22 joints [m], J_regressor x v_template; y up, facing +z, left = +x."""
    match path.suffix.lower():
        case ".npz":
            arrays = read_npz(path, lambda name: name in ("J_regressor", "v_template"))
            regressor, template = (require(path, arrays, name) for name in ("J_regressor", "v_template"))
        case ".pkl" | ".pickle":
            regressor, template = _read_pickle(path)
        case _:
            raise ValueError(f"{path}: an SMPL model file ends in .npz or .pkl")
    if template.ndim != 2 or template.shape[1] != 3 or not 0 < len(template) <= MAX_VERTICES:
        raise ValueError(f"{path}: 'v_template' has shape {template.shape}: expected (vertices, 3)")
    if regressor.ndim != 2 or len(regressor) < NUM_JOINTS or regressor.shape[1] != len(template):
        raise ValueError(
            f"{path}: 'J_regressor' has shape {regressor.shape}: expected ({NUM_JOINTS} joints or more, {len(template)} vertices)"
        )
    weights = real_numbers(path, "J_regressor", regressor[:NUM_JOINTS], limit=1e3)
    joints = weights @ real_numbers(path, "v_template", template, limit=1e3)
    pelvis, left_hip, right_hip, head = joints[[0, 1, 2, 15]]
    if not (0.3 < head[1] - pelvis[1] < 1.5 and 0.02 < left_hip[0] - right_hip[0] < 0.5):
        raise ValueError(f"{path}: these joints are no SMPL body: expected metres, y up, the left side along +x and SMPL's joint order")
    return joints


@dataclass(eq=False)
class _Made:
    """Stands for an object that a pickle asks to be made; it is never made, only what was said of it is kept."""

    kind: str
    """The dotted name of a class or function."""
    args: tuple[Any, ...] = ()
    state: Any = None


@dataclass(frozen=True)
class _Name:
    """Stands for a class or function that a pickle names."""

    dotted: str


_ARRAY_MAKERS = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_BUFFER_MAKERS = ("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer")
_SPARSE = ("csc_matrix", "csr_matrix", "csc_array", "csr_array")
_HARMLESS = frozenset((
    *_ARRAY_MAKERS, *_BUFFER_MAKERS, "numpy.ndarray", "numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
    "_codecs.encode", "copy_reg._reconstructor", "copyreg._reconstructor", "__builtin__.object", "builtins.object", "__builtin__.set",
    "builtins.set", "collections.OrderedDict",
    *(f"scipy.sparse.{module}{name}" for name in _SPARSE for module in ("", f"{name[:3]}.", f"_{name[:3]}.")),
))  # fmt: skip
"""What SMPL's own pickles name, besides chumpy's arrays. Nothing of it is imported or called; any other name means another kind of file."""

_LITERALS = frozenset((
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
))  # fmt: skip
_MARK = object()


class _RefusedError(Exception):
    """The pickle holds something that SMPL files do not."""


@dataclass
class _Machine:
    """A pickle machine that cannot call: where a pickle asks for a call or an import, it pushes a record of the request."""

    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self, data: bytes) -> Value:
        """Return what the pickle describes: plain containers, numbers, strings and records."""
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name in _LITERALS:
                self.stack.append(argument)
            elif opcode.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[opcode.name]())
            elif opcode.name in _STEPS:
                _STEPS[opcode.name](self, argument)
            elif opcode.name not in ("PROTO", "FRAME"):
                raise _RefusedError(f"the pickle instruction {opcode.name}")
        raise ValueError("no end")

    def pop_to_mark(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise ValueError("no mark")

    def pop_many(self, count: int) -> tuple[Any, ...]:
        """Take the last few, in the order in which they were pushed."""
        if len(self.stack) < count:
            raise ValueError("the stack is empty")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def name(self, module: Value, name: Value) -> None:
        """Push a name, if it is one that SMPL's files have."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("not a name")
        dotted = f"{module}.{name}"
        if dotted not in _HARMLESS and not dotted.startswith("chumpy."):
            raise _RefusedError(repr(dotted[:80]))
        self.stack.append(_Name(dotted))

    def make(self, name: Value, args: Value) -> None:
        """Push the record of an object."""
        if not isinstance(name, _Name) or not isinstance(args, tuple):
            raise ValueError("a call of something that is no name")
        if name.dotted.endswith("._reconstructor") and args and isinstance(args[0], _Name):
            name, args = args[0], ()
        self.stack.append(_Made(name.dotted, args))

    def extend(self, items: list[Any] | tuple[Any, ...]) -> None:
        """Append to the list on top of the stack."""
        if not isinstance(self.stack[-1], list):
            raise ValueError("not a list")
        self.stack[-1].extend(items)

    def update(self, items: list[Any] | tuple[Any, ...]) -> None:
        """Add pairs to the dictionary on top of the stack; keys are strings or numbers, since nested tuples can take forever to hash."""
        target = self.stack[-1]
        if isinstance(target, _Made):
            # An OrderedDict's items, or a class's with items of its own.
            target.state = target.state or {}
            target = target.state
        keys, values = items[::2], items[1::2]
        if not isinstance(target, dict) or len(keys) != len(values) or not all(isinstance(key, str | int | bytes) for key in keys):
            raise ValueError("not a dictionary")
        target.update(zip(keys, values, strict=True))

    def build(self) -> None:
        """Keep an object's state."""
        made, state = self.pop_many(2)
        if not isinstance(made, _Made):
            raise ValueError("a state of something that is no object")
        made.state = state
        self.stack.append(made)


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "MARK": lambda: _MARK,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
}
"""Instructions that push something and take nothing."""


def _dict(machine: _Machine) -> None:
    items = machine.pop_to_mark()
    machine.stack.append({})
    machine.update(items)


def _instance(machine: _Machine, argument: Value) -> None:
    args = tuple(machine.pop_to_mark())
    machine.name(*argument.split(" ", 1))
    machine.make(machine.stack.pop(), args)


def _object(machine: _Machine) -> None:
    name, *args = machine.pop_to_mark()
    machine.make(name, tuple(args))


_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.pop_to_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "LIST": lambda m, _: m.stack.append(m.pop_to_mark()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, _: m.stack.append(m.pop_many(1)),
    "TUPLE2": lambda m, _: m.stack.append(m.pop_many(2)),
    "TUPLE3": lambda m, _: m.stack.append(m.pop_many(3)),
    "DICT": lambda m, _: _dict(m),
    "APPEND": lambda m, _: m.extend(m.pop_many(1)),
    "APPENDS": lambda m, _: m.extend(m.pop_to_mark()),
    "SETITEM": lambda m, _: m.update(m.pop_many(2)),
    "SETITEMS": lambda m, _: m.update(m.pop_to_mark()),
    "PUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "BINPUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "LONG_BINPUT": lambda m, i: m.memo.__setitem__(i, m.stack[-1]),
    "MEMOIZE": lambda m, _: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "GET": lambda m, i: m.stack.append(m.memo[i]),
    "BINGET": lambda m, i: m.stack.append(m.memo[i]),
    "LONG_BINGET": lambda m, i: m.stack.append(m.memo[i]),
    "GLOBAL": lambda m, names: m.name(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.name(*m.pop_many(2)),
    "REDUCE": lambda m, _: m.make(*m.pop_many(2)),
    "NEWOBJ": lambda m, _: m.make(*m.pop_many(2)),
    "INST": _instance,
    "OBJ": lambda m, _: _object(m),
    "BUILD": lambda m, _: m.build(),
}
"""Instructions that change the stack. Extension codes, persistent ids, sets and buffers out of band are missing: SMPL has none."""


def _read_pickle(path: Path) -> tuple[Array, Array]:
    """Return J_regressor and v_template from a pickle as SMPL's authors published it: Python 2, scipy and chumpy objects."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: over {MAX_BYTES >> 30} GB: this is no SMPL model file")
    try:
        model = _Machine().run(data)
    except _RefusedError as refused:
        raise ValueError(f"{path}: holds {refused}, which no SMPL file needs and which is not run here; {CONVERT}") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        raise ValueError(f"{path}: not a pickle, or cut off; if Python reads it, {CONVERT}") from None
    if isinstance(model, _Made):
        model = model.state
    if not isinstance(model, dict):
        raise ValueError(f"{path}: holds no dictionary: this is no SMPL model file")
    found = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in model.items()}
    arrays = []
    for name in ("J_regressor", "v_template"):
        if name not in found:
            raise ValueError(f"{path}: has no {name!r}; it holds {', '.join(key for key in found if isinstance(key, str))}"[:600])
        try:
            arrays.append(_array(found[name]))
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError):
            raise ValueError(f"{path}: {name!r} is no array that is understood here; {CONVERT}") from None
    return arrays[0], arrays[1]


def _array(value: Value) -> Array:
    """Return the array that a record describes, built from its bytes by us; any flaw raises."""
    if not isinstance(value, _Made):
        raise ValueError("not an array")
    if value.kind in _ARRAY_MAKERS:
        _, shape, dtype, is_fortran, content = value.state
        return _from_bytes(content, dtype, shape, "F" if is_fortran else "C")
    if value.kind in _BUFFER_MAKERS:
        content, dtype, shape, order = value.args
        return _from_bytes(content, dtype, shape, order)
    if value.kind.startswith("scipy.sparse."):
        return _from_sparse(value)
    # A chumpy array that is not computed from others keeps its values in x.
    inner = value.state["x"]
    if not isinstance(inner, _Made) or inner.kind.startswith("chumpy."):
        raise ValueError("computed from other arrays")
    return _array(inner)


def _from_bytes(content: Value, dtype: Value, shape: Value, order: Value) -> Array:
    """Return an array of plain numbers; numpy's own restoring of arrays and types from a pickle's state is not used."""
    if isinstance(content, _Made) and content.kind == "_codecs.encode":
        # Python 3 writes bytes so for Python 2.
        content = content.args[0]
    if isinstance(content, str):
        content = content.encode("latin-1")
    code = dtype.args[0].decode("ascii") if isinstance(dtype.args[0], bytes) else dtype.args[0]
    if code not in ("f4", "f8", "i4", "i8", "u4", "u8") or not isinstance(content, bytes | bytearray):
        raise ValueError("not plain numbers")
    byte_order = dtype.state[1] if dtype.state else "<"
    big_endian = byte_order in (">", b">")
    # An order in {"C", "F"} and a shape of whole numbers, or numpy raises.
    return np.frombuffer(bytes(content), dtype=f"{'>' if big_endian else '<'}{code}").reshape(shape, order=order)


def _from_sparse(value: _Made) -> Array:
    """Return a compressed sparse matrix as a dense array."""
    state = value.state
    is_column = value.kind.rpartition(".")[2].startswith("csc")
    rows, columns = (int(length) for length in state["_shape" if "_shape" in state else "shape"])
    if not (0 < rows <= 1000 and 0 < columns <= MAX_VERTICES):
        raise ValueError("not a joint regressor")
    numbers, indices, starts = (_array(state[name]) for name in ("data", "indices", "indptr"))
    counts, num_lines = np.diff(starts), columns if is_column else rows
    if (
        len(counts) != num_lines
        or starts[0] != 0
        or counts.min() < 0
        or not starts[-1] == len(indices) == len(numbers)
        or (indices < 0).any()
    ):
        raise ValueError("not a compressed matrix")
    lines = np.repeat(np.arange(num_lines), counts)
    dense = np.zeros((rows, columns))
    # Checked indexing: out of range raises.
    np.add.at(dense, (indices, lines) if is_column else (lines, indices), numbers)
    return dense
