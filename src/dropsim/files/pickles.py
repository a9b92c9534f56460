"""Pickles read without running them: nothing that they name is imported or called."""

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, ClassVar

MAX_READS = 100_000
"""Most reads of a pickle's opcodes and their arguments: each takes time and memory, whatever the size of the file."""
NEEDED = re.compile(
    r"numpy\.(ndarray|dtype)|numpy\._?core\.(multiarray\.(_reconstruct|scalar)|numeric\._frombuffer)"
    r"|scipy\.sparse\.(_?cs[cr]\.)?cs[cr]_(matrix|array)|chumpy\..*|collections\.OrderedDict|_codecs\.encode"
    r"|(__builtin__|builtins)\.(object|set)|copy_?reg\._reconstructor|torch\.(\w+Storage|_utils\._rebuild_\w+)"
    r"|(pytorch_lightning|lightning_fabric)\..*"
)
"""Names in SMPL's models and PyTorch's checkpoints; a file with any other is refused, since it may be meant to harm."""


class _UnneededError(ValueError):
    """A pickle asks for a name that is not needed."""


class Items(dict[Any, Any]):
    """A dictionary with plain keys: nested tuples can take forever to hash."""

    __slots__ = ()

    def __setitem__(self, key: object, value: object) -> None:
        if not isinstance(key, str | int | bytes | type):
            raise TypeError("not a plain key")
        super().__setitem__(key, value)


class Stub:
    """Stands for an object that a pickle asks for, and only keeps what the pickle says about it."""

    kind: ClassVar[str] = ""
    """Dotted name of the class or function."""
    args: tuple[Any, ...]
    """Arguments of its making."""
    items: Items
    """Entries of a dictionary."""
    state: Any = None

    def __new__(cls, *args: object) -> "Stub":
        self = super().__new__(cls)
        self.args, self.items = args, Items()
        return self

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items[key] = value


class _Opcodes(io.BytesIO):
    """Bytes of a pickle, of which only so many pieces are read."""

    left = MAX_READS

    def read(self, size: int | None = -1) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise pickle.UnpicklingError("too many opcodes")
        return super().read(size)


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, in Python: names become stubs, and no opcode takes more memory than the file has bytes."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]

    def __init__(self, file: _Opcodes) -> None:
        super().__init__(file, encoding="latin-1")
        self.stubs: dict[str, type[Stub]] = {}

    def find_class(self, module: str, name: str) -> type[Stub]:
        dotted = f"{module}.{name}"
        if not NEEDED.fullmatch(dotted):
            raise _UnneededError(f"asks for {dotted[:80]!r}, which could run code and which is not run here")
        if dotted not in self.stubs:
            self.stubs[dotted] = type("Stub", (Stub,), {"kind": dotted})
        return self.stubs[dotted]

    def persistent_load(self, pid: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        return pid

    def _load_dict(self) -> None:
        items, table = self.pop_mark(), Items()
        for key, value in zip(items[::2], items[1::2], strict=True):
            table[key] = value
        self.append(table)

    dispatch[pickle.EMPTY_DICT[0]] = lambda self: self.append(Items())
    dispatch[pickle.DICT[0]] = _load_dict
    # The standard one makes room for as many bytes as the file claims to have.
    dispatch[pickle.BYTEARRAY8[0]] = dispatch[pickle.BINBYTES8[0]]
    # Frames are read opcode by opcode too, so that these are counted.
    dispatch[pickle.FRAME[0]] = lambda self: self.read(8)
    # Sets hash what they hold.
    for opcode in (pickle.EMPTY_SET, pickle.FROZENSET, pickle.EXT1, pickle.EXT2, pickle.EXT4):
        del dispatch[opcode[0]]


def read_pickle(data: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the content of a pickle with objects as stubs, or raise with what a damaged or harmful one is."""
    try:
        return _Unpickler(_Opcodes(data)).load()
    except _UnneededError as error:
        raise ValueError(str(error)) from None
    except Exception:  # a damaged pickle fails in many ways
        raise ValueError("not a pickle, or cut off, or too long for one of arrays") from None
