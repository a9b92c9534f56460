"""Scene files: a scene, and how it is simulated, as TOML that people read, edit and write.

Tables and keys are the dataclasses' own fields; units come from their types, comments from the lines under them.
Mistakes are named with their line.
"""

import ast
import functools
import inspect
import json
import math
import os
import re
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union

from dropsim import scene
from dropsim.control.planner import Planner
from dropsim.files.atomic import write_text
from dropsim.files.names import suggestion
from dropsim.files.units import Unit
from dropsim.physics.options import METHODS, SimulatorOptions
from dropsim.priors.named import SHIPPED
from dropsim.scene import DIRECTIONS, MeshObject, Push, Scene
from dropsim.scene.element import table_name
from dropsim.scene.setup import SOMERSAULT, Setup

Value = Any
"""A number, a text, true or false, or a list of those; or the type of one."""
MAX_NUMBER = 1e12
"""Products of a few numbers stay finite."""
MAX_NAME = 40
"""Characters by which a mistyped name is compared with the known ones."""
MAX_MESSAGE = 600
"""Characters of an error message, not counting where the mistake is."""


class Key(NamedTuple):
    """A key of a table."""

    wanted: Value
    """Its type; units are annotations of it."""
    doc: str = ""

    @property
    def comment(self) -> str:
        """Comment with the key's meaning and unit."""
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
        raise ValueError(f"{what} is a whole number below 2^63")
    return raw


def _row(options: Sequence[Value], raw: object, what: str) -> tuple[Value, ...]:
    """Read a list: of any number of rows, or of one number per column."""
    rows = options[-1] is ...
    if not isinstance(raw, list | tuple) or not (rows or len(raw) == len(options)):
        content = "rows" if rows else f"{len(options)} numbers"
        raise ValueError(f"{what} is a list of {content} in brackets, not {shown(raw)}")
    if rows:
        return tuple(read_value(options[0], value, f"{what} row {i}") for i, value in enumerate(raw))
    return tuple(read_value(option, value, what) for option, value in zip(options, raw, strict=True))


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
    make, fields_of_cls = SHORTS[cls][0], keys_of(cls)
    hints = typing.get_type_hints(make, include_extras=True)
    parameters = inspect.signature(make).parameters.values()
    names = [one.name for one in parameters if one.name not in fields_of_cls and one.kind is not one.VAR_KEYWORD]
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


MAX_BYTES = 1_000_000
"""Largest scene file [bytes]."""
MAX_TABLES = 1000
"""Most tables of one name."""
_DEEP = re.compile(r"(?<![^\s.,=\[\]{}])(?:[^\s.,=\[\]{}]++[ \t]*+\.[ \t]*+){50}")
"""A key of more parts than any scene has: parsed, every part takes memory, and many take minutes."""
FILES = ("clip", "prior", "body", "pose")
"""Keys whose values are paths, relative to the scene's file."""


@dataclass(frozen=True)
class Table:
    """One table of a scene, and where it is written."""

    name: str
    """Empty for the keys above all tables."""
    values: Any
    place: Callable[[str], str] = lambda key: ""
    """Gives the beginning of a sentence about a key in its file, or for an empty key about the table."""
    places: dict[str, str] = field(default_factory=dict)
    """Beginnings of sentences about keys that are given outside a file; the empty key stands for the table."""

    @property
    def cls(self) -> type:
        return {**SINGLE, **MANY}.get(self.name, Setup)

    @property
    def keys(self) -> Mapping[str, Key]:
        return all_keys(self.cls) if self.name else TOP

    def where(self, key: str = "") -> str:
        """Return the beginning of a sentence about a key or about the table."""
        return self.places.get(key) or self.places.get("") or self.place(key)


def is_file(key: str, value: str | None, folder: Path) -> bool:
    """Tell whether the value of a key is a file or folder; a clip and a prior may also be a name."""
    if key == "prior" and value is not None:
        return Path(value).suffix != "" or (value not in SHIPPED and (folder / value).exists())
    return value is not None and value != SOMERSAULT


def read_scene(path: Path | str) -> Setup:
    """Read a scene file; fields that it leaves out have the dataclasses' defaults."""
    path = Path(path)
    with located(""):
        return setup_of(parse_tables(read_text(path), str(path)), path.parent, path.stem)


def read_text(path: Path) -> str:
    """Read a text file of bounded size."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: is too large: a scene file has at most {MAX_BYTES / 1e6:g} MB")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text in UTF-8, as TOML has to be") from None


def parse_tables(
    text: str,
    source: str,
    *,
    single: Mapping[str, type] = SINGLE,
    many: Mapping[str, type] = MANY,
    what: str = "a scene",
) -> list[Table]:
    """Return the tables of a TOML text in its order, first the keys above all; `source` and `what` are for messages."""
    raw, known = _parsed(text, source), (*TOP, *single, *many)
    tables = list[tuple[int, Table]]()
    for name, values in raw.items():
        where = _place(source, text, 0, name, "")
        if name not in known:
            raise ValueError(f"{where}{what} has no {shown(name)}: {suggestion(name[:MAX_NAME], known)}")
        if name in many and not isinstance(values, list):
            raise ValueError(f"{where}write [[{name}]] in two brackets, since there may be several")
        alike = values if name in many else [values] if name in single else []
        if len(alike) > MAX_TABLES:
            raise ValueError(f"{where}there are {len(alike)} tables [[{name}]]: write at most {MAX_TABLES}")
        headers = [match.start() for match in re.finditer(rf"^[ \t]*\[+[ \t]*{name}[ \t]*\]", text, re.MULTILINE)]
        # Tables that are written in another way come first.
        starts = headers if len(headers) == len(alike) else [0] * len(alike)
        for start, one in zip(starts, alike, strict=True):
            tables.append((start, Table(name, one, functools.partial(_place, source, text, start, name))))
    top = {name: values for name, values in raw.items() if name in TOP}
    ordered = sorted(tables, key=lambda item: item[0])
    return [Table("", top, functools.partial(_place, source, text, 0, "")), *(table for _, table in ordered)]


def _place(source: str, text: str, start: int, name: str, key: str) -> str:
    """Return the beginning of a sentence about a key, or else its table, with the line at or after a start."""
    for word in filter(None, (key, name)):
        match = re.compile(rf"^[ \t]*\[*[ \t]*{re.escape(word)}[ \t]*[\]=]", re.MULTILINE).search(text, start)
        if match:
            return f"{source} line {text.count(chr(10), 0, match.start()) + 1}: "
    return f"{source}: "


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        if _DEEP.search(text):
            raise RecursionError("nested too deeply")
        return tomllib.loads(text)
    except (RecursionError, ValueError) as error:
        what, _, at = str(error).partition(" (at ")
        line = re.match(r"line \d+", at)
        raise ValueError(f"{source}{f' {line[0]}' if line else ''}: is not TOML: {what}") from None


def setup_of(tables: Sequence[Table], folder: Path, name: str) -> Setup:
    """Build a setup; clips are relative to the folder, and the name serves if the tables give none."""
    values = {"name": name, **values_of(tables[0], TOP)}
    for key in FILES:
        if is_file(key, values.get(key), folder):
            values[key] = os.path.normpath(folder / values[key])
    items = list[tuple[str, Any]]()
    for table in tables[1:]:
        item = object_of(table.cls, table)
        in_folder = isinstance(item, MeshObject)
        items.append((table.name, replace(item, file=os.path.normpath(folder / item.file)) if in_folder else item))
    values |= {name: item for name, item in items if name in SINGLE}
    people = tuple(item for name, item in items if name == "person")
    values |= {"people": people} if people else {}
    inside = {f.name: values.pop(f.name) for f in fields(Scene) if f.name in values}
    with located(tables[0].where()):
        scene = Scene(**inside, elements=tuple(item for name, item in items if name in ELEMENTS))
        return Setup(scene=scene, **values)


def values_of(table: Table, known: Mapping[str, Key]) -> dict[str, Value]:
    """Read the values of a table."""
    for key in table.values:
        if key not in known:
            raise ValueError(
                f"{table.where(key)}{table.name} has no field {shown(key)}: {suggestion(key[:MAX_NAME], known)}"
            )
    return {
        key: read_value(known[key].wanted, raw, f"{table.where(key)}{f'{table.name} {key}'.strip()}")
        for key, raw in table.values.items()
    }


def object_of(cls: type, table: Table) -> Value:
    """Build one object from a table."""
    name = table.name
    if not isinstance(table.values, Mapping):
        raise ValueError(f"{table.where()}{name} is a table: write [{name}] and its keys below it, each on a line")
    values = values_of(table, all_keys(cls))
    easier = {key: values.pop(key) for key in short_keys(cls) if key in values}
    with located(table.where()):
        if not easier:
            return cls(**values)
        make, replaced = SHORTS[cls]
        if replaced in values:
            raise ValueError(f"{name} has both {replaced!r} and {next(iter(easier))!r}: leave one out")
        parameters = inspect.signature(make).parameters
        for key in short_keys(cls):
            if parameters[key].default is inspect.Parameter.empty and key not in easier:
                raise ValueError(f"{name} has {next(iter(easier))!r} and needs {key!r} too")
        return replace(make(**easier), **values)


def write_scene(setup: Setup, path: Path | str) -> None:
    """Write a scene file with comments that reads back as the same setup."""
    path = Path(path)
    if path.suffix.lower() != ".toml":
        raise ValueError(f"{path}: a scene file ends in .toml")
    if path.is_dir():
        raise ValueError(f"{path}: is a folder: give the name of a file")
    text = scene_text(setup, path.parent)
    write_text(path, text)


def scene_text(setup: Setup, folder: Path) -> str:
    """Return the content of a scene file; paths are relative to the folder."""
    top, *tables = _tables_of(setup)
    for key in FILES:
        if is_file(key, value := getattr(setup, key), Path()):
            top.values[key] = os.path.relpath(value, folder)
    parts = [
        "# A scene of dropsim: run it with `dropsim run`. Keys that are left out have their defaults.",
        *_written(top, TOP),
    ]
    seen = set[str]()
    for table in tables:
        if table.name == table_name(MeshObject):
            table.values["file"] = os.path.relpath(table.values["file"], folder)
        header = f"[[{table.name}]]" if table.name in MANY else f"[{table.name}]"
        parts += ["", header, *_written(table, {} if table.name in seen else table.keys)]
        seen.add(table.name)
    return "\n".join(parts) + "\n"


def _tables_of(setup: Setup) -> list[Table]:
    """Return a setup's tables; fields that are None are left out."""
    scene = setup.scene
    unknown = [type(element).__name__ for element in scene.elements if type(element) not in ELEMENTS.values()]
    if unknown:
        raise ValueError(f"a scene file knows no {unknown[0]}: it holds {', '.join(ELEMENTS)}")
    many = (*(("person", person) for person in scene.people), *((table_name(type(e)), e) for e in scene.elements))
    single = ((name, getattr(setup if hasattr(setup, name) else scene, name)) for name in SINGLE)
    return [
        Table("", {**_values_of(setup), **_values_of(scene)}),
        *(Table(name, _values_of(item)) for name, item in (*many, *single)),
    ]


def _values_of(item: object) -> dict[str, Any]:
    """Return the values of an object; a push in the easier form if that says exactly the same."""
    table = {name: value for name in keys_of(type(item)) if (value := getattr(item, name)) is not None}
    if isinstance(item, Push) and (easier := _toward(item)) is not None:
        del table["force"]
        return {**easier, **table}
    return table


def _toward(push: Push) -> dict[str, Any] | None:
    """Return direction and newtons of a horizontal push, if they give the same force to the last digit."""
    x, y, _ = push.force
    angle, newtons = f"{(math.degrees(math.atan2(y, x)) - 90) % 360:g}", round(math.hypot(x, y), 6)
    direction = {f"{degrees:g}": name for name, degrees in DIRECTIONS.items()}.get(angle, angle)
    same = Push.toward(direction, newtons).force == push.force
    return {"direction": direction, "newtons": newtons} if same else None


def _written(table: Table, keys: Mapping[str, Key]) -> Iterator[str]:
    """Write the lines of a table, with the comments of the given keys."""
    for name, value in table.values.items():
        comment = f"# {keys[name].comment}" if name in keys and keys[name].comment else ""
        if isinstance(value, tuple) and value and isinstance(value[0], tuple):
            rows = "".join(f"    {_toml(row)},\n" for row in value)
            yield f"{comment}\n{name} = [\n{rows}]".lstrip()
        else:
            yield f"{name} = {_toml(value)}  {comment}".rstrip()


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, tuple) else repr(value)


def changed(
    setup: Setup, changes: Sequence[tuple[str, str]], *, said: Callable[[str], str] = lambda path: f"{path}: "
) -> Setup:
    """Return a setup with some fields changed: ("push.0.part", "hand"), ("person.start", "run") for everybody, ("seconds", "8").

    A table that comes right after the last of its kind is new. `said` names a path in messages.
    """
    with located(""):
        tables = _tables_of(setup)
        for path, text in changes:
            for table, key in _targets(tables, path, said(path)):
                for other in same_as(table.cls, key):  # the last one given counts
                    table.values.pop(other, None)
                is_text = key in table.keys and plain_type(table.keys[key].wanted)[0] is str
                table.values[key], table.places[key] = text if is_text else _typed(text), said(path)
                if table.name:
                    table.places.setdefault("", said(path))
        return setup_of(tables, Path(), setup.name)


def _typed(text: str) -> object:
    """Read a number or a list as TOML spells it; anything else is text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _targets(tables: list[Table], path: str, said: str) -> list[tuple[Table, str]]:
    """Return the tables and the key that a dotted path stands for; without a number, all tables of its kind."""
    name, *rest = path.split(".")
    alike = [table for table in tables if table.name == name and name]
    if name not in NAMES:
        raise ValueError(f"{said}a scene has no {shown(name)}: {suggestion(name[:MAX_NAME], NAMES)}")
    if name not in MANY:
        if len(rest) != len(alike):
            raise ValueError(f"{said}write {name}{'.KEY' if alike else ''}, and no more")
        return [(alike[0], rest[0])] if alike else [(tables[0], name)]
    if alike and len(rest) == 1 and not rest[0].isdecimal():
        return [(table, rest[0]) for table in alike]
    if len(rest) != 2 or not re.fullmatch("[0-9]{1,6}", rest[0]) or int(rest[0]) > len(alike):
        one = f"{name}.0.KEY for one of them, {name}.KEY for all, and " if alike else ""
        raise ValueError(f"{said}the scene has {len(alike)} of {name}: write {one}{name}.{len(alike)}.KEY to add one")
    if int(rest[0]) == len(alike):
        alike.append(Table(name, {}))
        tables.append(alike[-1])
    return [(alike[int(rest[0])], rest[1])]
