"""Tables, keys and values of scene files, read off the dataclasses."""

import ast
import functools
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union

from dropsim import scene
from dropsim.control.planner import Planner
from dropsim.files.units import Unit
from dropsim.physics.options import METHODS, SimulatorOptions
from dropsim.scene.element import table_name
from dropsim.scene.files.setup import Setup

Value = Any
"""A number, a text, true or false, or a list of those; or the type of one."""
MAX_NUMBER = 1e12
"""Products of a few numbers stay finite."""
MAX_ROWS = 10_000
MAX_TEXT = 2000
"""Characters of a text."""
MAX_MESSAGE = 600
"""Characters of an error message, not counting where the mistake is."""


class Key(NamedTuple):
    """A key of a table."""

    wanted: Value
    """Its type; units are annotations of it."""
    doc: str = ""

    @property
    def comment(self) -> str:
        """What it means, with its unit."""
        kind, unit = plain_type(self.wanted)
        while typing.get_origin(kind) is tuple:
            kind, unit = plain_type(typing.get_args(kind)[0])
        if unit is None or "[" in self.doc:
            return self.doc
        return f"{self.doc.rstrip('.')} [{unit.name}]." if self.doc else f"[{unit.name}]"


def plain_type(wanted: Value) -> tuple[Value, Unit | None]:
    """Return the first type of a union without annotations, and its unit."""
    if typing.get_origin(wanted) is Annotated:
        return wanted.__origin__, next((unit for unit in wanted.__metadata__ if isinstance(unit, Unit)), None)
    if typing.get_origin(wanted) in (Union, UnionType):
        return plain_type(next(option for option in typing.get_args(wanted) if option is not NoneType))
    return wanted, None


_KINDS = {bool: "true or false", int: "a whole number", str: "text in quotes"}


def read_value(wanted: Value, raw: object, what: str) -> Value:
    """Return a value of a type, or say what it should be; `what` begins that sentence."""
    kind, unit = plain_type(wanted)
    if kind is float:
        return _number(raw, unit, what)
    if typing.get_origin(kind) is tuple:
        return _row(typing.get_args(kind), raw, what)
    if type(raw) is not kind:
        raise ValueError(f"{what} is {_KINDS[kind]}, not {shown(raw)}")
    if isinstance(raw, int) and abs(raw) >= 2**63:
        raise ValueError(f"{what} is a whole number below 2^63, not {shown(raw)}")
    if isinstance(raw, str) and len(raw) > MAX_TEXT:
        raise ValueError(f"{what} has {len(raw)} characters: write at most {MAX_TEXT}")
    return raw


def _row(options: Sequence[Value], raw: object, what: str) -> tuple[Value, ...]:
    """Read a list: of any number of rows, or of one number per column."""
    rows = options[-1] is ...
    if not isinstance(raw, list | tuple) or not (rows or len(raw) == len(options)):
        content = "rows" if rows else f"{len(options)} numbers"
        raise ValueError(f"{what} is a list of {content} in brackets, not {shown(raw)}")
    if len(raw) > MAX_ROWS:
        raise ValueError(f"{what} has {len(raw)} rows: give at most {MAX_ROWS}")
    return tuple(
        read_value(options[0 if rows else i], value, f"{what} row {i}" if rows else what) for i, value in enumerate(raw)
    )


_QUANTITY = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(.*)", re.IGNORECASE)


def _number(raw: object, unit: Unit | None, what: str) -> float:
    """Read a number, or a text of a number and a unit."""
    right = f"a number [{unit.name}]" if unit else "a plain number"
    if isinstance(raw, str) and (match := _QUANTITY.fullmatch(" ".join(raw.split()))):
        factors = {"": 1.0, **({unit.name: 1.0, **unit.others} if unit else {})}
        if (given := match[2].strip()) not in factors:
            example = f", such as {match[1]} {unit.name}" if unit else ""
            raise ValueError(f"{what} is {right}{example}, and {shown(given)} is no unit of it")
        raw = float(match[1]) / factors[given]
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError(f"{what} is {right}, not {shown(raw)}")
    if not abs(raw) <= MAX_NUMBER:
        raise ValueError(f"{what} is {right} of at most {MAX_NUMBER:g}, not {shown(raw)}")
    return float(raw)


def shown(raw: object) -> str:
    """Return a value for a message, cut short."""
    text = repr(raw)
    return text if len(text) <= 40 else f"{text[:37]}..."


@contextmanager
def located(where: str) -> Iterator[None]:
    """Begin error messages with the place of the mistake, and keep them short."""
    try:
        yield
    except RecursionError:
        raise ValueError(f"{where}is nested too deeply") from None
    except ValueError as error:
        text = str(error)
        raise ValueError(where + (text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}...")) from None


@functools.cache
def keys_of(cls: type) -> Mapping[str, Key]:
    """Return the keys of a dataclass' table: its fields, except those that are tables of their own."""
    hints, docs = typing.get_type_hints(cls, include_extras=True), dict[str, str]()
    for base in reversed(cls.__mro__):
        docs |= _docs_of(base)
    plain = [f for f in fields(cls) if f.init and _is_plain(hints[f.name])]
    return {f.name: Key(hints[f.name], docs.get(f.name, "")) for f in sorted(plain, key=lambda f: f.kw_only is True)}


def _is_plain(wanted: Value) -> bool:
    """Tell whether a type is made of numbers, text and rows of them."""
    kind, _ = plain_type(wanted)
    if typing.get_origin(kind) is tuple:
        return all(map(_is_plain, typing.get_args(kind)))
    return kind in (bool, int, float, str, ...)


def _docs_of(cls: type) -> Mapping[str, str]:
    """Return the line under each field in the source; nothing if there is no source."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):
        return {}
    assert isinstance(node, ast.ClassDef)
    return {
        line.target.id: " ".join(str(ast.literal_eval(below.value)).split())
        for line, below in pairwise(node.body)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr)
    }


SHORTS: Mapping[type, tuple[Callable[..., Any], str]] = {
    scene.Push: (scene.Push.toward, "force"),
    scene.Follow: (scene.Follow.square, "velocities"),
    SimulatorOptions: (SimulatorOptions.of_method, ""),
}
"""Class methods whose arguments a table may have instead of a field; a method only sets what other fields start from."""


@functools.cache
def short_keys(cls: type) -> Mapping[str, Key]:
    """Return the keys that replace a field: arguments of the class method that are no fields themselves."""
    if cls not in SHORTS:
        return {}
    make, own = SHORTS[cls][0], keys_of(cls)
    hints = typing.get_type_hints(make, include_extras=True)
    parameters = inspect.signature(make).parameters.values()
    names = [one.name for one in parameters if one.name not in own and one.kind is not one.VAR_KEYWORD]
    return {name: Key(hints[name], inspect.getdoc(make) or "" if name == names[0] else "") for name in names}


def same_as(cls: type, key: str) -> tuple[str, ...]:
    """Return the keys that say the same as a key in another way, or that it sets."""
    if cls is SimulatorOptions:
        return tuple(METHODS["paper"]) if key == "method" else ()
    field, others = SHORTS[cls][1] if cls in SHORTS else "", short_keys(cls)
    return tuple(others) if key == field else (field,) if key in others else ()


_CLASSES = [getattr(scene, name) for name in scene.__all__ if isinstance(getattr(scene, name), type)]
ELEMENTS: Mapping[str, type[scene.Element[Any]]] = {
    table_name(cls): cls for cls in _CLASSES if issubclass(cls, scene.Element) and not inspect.isabstract(cls)
}
"""Tables of elements."""
MANY: Mapping[str, type] = {"person": scene.Person, **ELEMENTS}
"""Tables in two brackets, of which there may be several."""
SINGLE: Mapping[str, type] = {"ground": scene.Ground, "planner": Planner, "simulator": SimulatorOptions}
"""Tables in one bracket."""
TOP: Mapping[str, Key] = {**keys_of(Setup), **keys_of(scene.Scene)}
"""Keys above all tables."""
NAMES = (*TOP, *SINGLE, *MANY)


def all_keys(cls: type) -> Mapping[str, Key]:
    """Return all keys of a dataclass' table."""
    return {**keys_of(cls), **short_keys(cls)}
