"""Reading a scene file; mistakes are named with their line."""

import inspect
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dropsim.files.names import suggestion
from dropsim.priors.named import SHIPPED
from dropsim.scene import MeshObject, Scene
from dropsim.scene.files.schema import (
    ELEMENTS,
    MANY,
    SHORTS,
    SINGLE,
    TOP,
    Key,
    Value,
    all_keys,
    located,
    read_value,
    short_keys,
    shown,
)
from dropsim.scene.files.setup import SOMERSAULT, Setup

MAX_BYTES = 1_000_000
MAX_TABLES = 1000
"""Tables of one name."""
FILES = ("clip", "prior", "body", "pose")
"""Keys whose values are paths, relative to the scene's file."""


@dataclass(frozen=True)
class Table:
    """One table of a scene, and where it is written."""

    name: str
    """Empty for the keys above all tables."""
    values: Any
    places: dict[str, str] = field(default_factory=dict)
    """Beginnings of sentences about its keys; the empty key stands for the table itself."""

    @property
    def cls(self) -> type:
        return {**SINGLE, **MANY}.get(self.name, Setup)

    @property
    def keys(self) -> Mapping[str, Key]:
        return all_keys(self.cls) if self.name else TOP

    def where(self, key: str = "") -> str:
        """Return the beginning of a sentence about a key or about the table."""
        return self.places.get(key) or self.places.get("", "")


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
        where = _where(source, text, name)
        if name not in known:
            raise ValueError(f"{where}{what} has no {shown(name)}: {suggestion(name, known)}")
        if name in many and not isinstance(values, list):
            raise ValueError(f"{where}write [[{name}]] in two brackets, since there may be several")
        if name in many and len(values) > MAX_TABLES:
            raise ValueError(f"{where}there are {len(values)} tables [[{name}]]: write at most {MAX_TABLES}")
        alike = values if name in many else [values] if name in single else []
        headers = [match.start() for match in re.finditer(rf"^[ \t]*\[+[ \t]*{name}[ \t]*\]", text, re.MULTILINE)]
        # Tables that are written in another way come first.
        starts = headers if len(headers) == len(alike) else [0] * len(alike)
        for start, one in zip(starts, alike, strict=True):
            keys = one if isinstance(one, Mapping) else ()
            places = {key: _where(source, text, key, start) for key in keys}
            tables.append((start, Table(name, one, {"": _where(source, text, name, start), **places})))
    top = {name: values for name, values in raw.items() if name in TOP}
    places = {"": f"{source}: ", **{name: _where(source, text, name) for name in top}}
    ordered = sorted(tables, key=lambda item: item[0])
    return [Table("", top, places), *(table for _, table in ordered)]


def _where(source: str, text: str, name: str, start: int = 0) -> str:
    """Return the beginning of a sentence about a table or a key, with its line at or after a place in the text."""
    match = re.compile(rf"^[ \t]*\[*[ \t]*{re.escape(name)}[ \t]*[\]=]", re.MULTILINE).search(text, start)
    return f"{source} line {text.count(chr(10), 0, match.start()) + 1}: " if match else f"{source}: "


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
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
        if isinstance(item, MeshObject):
            item = replace(item, file=os.path.normpath(folder / item.file))
        items.append((table.name, item))
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
            raise ValueError(f"{table.where(key)}{table.name} has no field {shown(key)}: {suggestion(key, known)}")
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
