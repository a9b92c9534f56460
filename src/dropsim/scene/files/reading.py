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
from dropsim.scene.files.setup import SOMERSAULT, Setup, refuse_contradictions

MAX_BYTES = 1_000_000
MAX_TEXT = 2000
"""Characters of a name, a key or a line of text."""
MAX_TABLES = 1000
"""Tables of one name."""
FILES = ("clip", "prior", "body", "pose")
"""Keys whose values are paths, relative to the scene's file."""
Place = tuple[str | int, ...]
"""Where something is in a file, such as ("push", 0, "force")."""


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
    """Return the tables of a TOML text in its order, first the keys above all tables; `source` and `what` are for messages."""
    lines, raw, known = _lines_of(text, source), _parsed(text, source), (*TOP, *single, *many)

    def line(*at: str | int) -> int:
        return next((lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in lines), 0)

    def where(*at: str | int) -> str:
        return f"{source} line {number}: " if (number := line(*at)) else f"{source}: "

    found = dict[Place, Any]()
    for name, values in raw.items():
        if name not in known:
            raise ValueError(f"{where(name)}{what} has no {shown(name)}: {suggestion(name, known)}")
        if name in many and not isinstance(values, list):
            raise ValueError(f"{where(name)}write [[{name}]] in two brackets, since there may be several")
        if name in many and len(values) > MAX_TABLES:
            raise ValueError(f"{where(name)}there are {len(values)} tables [[{name}]]: write at most {MAX_TABLES}")
        found |= (
            {(name, i): one for i, one in enumerate(values)}
            if name in many
            else {(name,): values}
            if name in single
            else {}
        )
    top = {name: values for name, values in raw.items() if name in TOP}
    tables = [Table("", top, {"": f"{source}: ", **{name: where(name) for name in top}})]
    for at in sorted(found, key=lambda at: line(*at)):
        keys = found[at] if isinstance(found[at], Mapping) else ()
        tables.append(Table(str(at[0]), found[at], {"": where(*at), **{key: where(*at, key) for key in keys}}))
    return tables


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (RecursionError, ValueError) as error:
        what, _, at = str(error).partition(" (at ")
        line = re.match(r"line \d+", at)
        raise ValueError(f"{source}{f' {line[0]}' if line else ''}: is not TOML: {what}") from None


_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)|"(?:\\.|[^"\\\n])*"?|\'[^\'\n]*\'?|#[^\n]*', re.DOTALL
)
_TOKEN = re.compile(r"\n|^[ \t]*(\[\[?)([^\[\]\n]*)\]\]?|^([^=\[\]{}\n]*)=|[\[\]{}]", re.MULTILINE)


def _lines_of(text: str, source: str) -> Mapping[Place, int]:
    """Return the lines of all tables and keys of a TOML text, which its parser does not tell."""
    # Of strings only words and line breaks stay, of comments nothing.
    text = _STRING.sub(lambda match: "" if match[0][0] == "#" else re.sub(r"[^\w\s-]", "", match[0]), text)
    for word in re.finditer(r"[^,=\[\]{}\n]+", text):
        if len(word[0]) > MAX_TEXT:
            line = text.count("\n", 0, word.start()) + 1
            raise ValueError(f"{source} line {line}: a name or a line of text has more than {MAX_TEXT} characters")
    lines, counts = dict[Place, int](), dict[str, int]()
    table: Place = ()
    depth, number = 0, 1
    for token in _TOKEN.finditer(text):
        bracket, header, key = token.groups()
        if token[0] == "\n":
            number += 1
        elif depth or (bracket is None and key is None):
            depth += sum(map(token[0].count, "[{")) - sum(map(token[0].count, "]}"))
        elif bracket:
            name = _first(header)
            if bracket == "[[":
                counts[name] = counts.get(name, -1) + 1
            table = (name, counts[name]) if bracket == "[[" else (name,)
            lines.setdefault((name,), number)
            lines.setdefault(table, number)
        else:
            lines.setdefault((*table, _first(key)), number)
    return lines


def _first(key: str) -> str:
    return key.split(".")[0].strip()


def setup_of(tables: Sequence[Table], folder: Path, name: str) -> Setup:
    """Build a setup; clips are relative to the folder, and the name serves if the tables give none."""
    values = {"name": name, **values_of(tables[0], TOP)}
    for key in FILES:
        if is_file(key, values.get(key), folder):
            values[key] = os.path.normpath(folder / values[key])
    made = [(table, _found(object_of(table.cls, table), folder)) for table in tables[1:]]
    values |= {table.name: one for table, one in made if table.name in SINGLE}
    if people := tuple(one for table, one in made if table.name == "person"):
        values["people"] = people
    inside = {f.name: values.pop(f.name) for f in fields(Scene) if f.name in values}
    elements = [(table, one) for table, one in made if table.name in ELEMENTS]
    names = list[str]()
    for table, element in elements:
        line = re.search(r"line \d+", table.where())
        names.append(f"the {table.name}{f' in {line[0]}' if line else ''}")
        with located(table.where()):  # alone first, so that a mistake gets its line
            Scene(**inside, elements=(element,))
    with located(tables[0].where()):
        scene = Scene(**inside, elements=tuple(element for _, element in elements))
        refuse_contradictions(scene.elements, names)
        return Setup(scene=scene, **values)


def _found(item: Value, folder: Path) -> Value:
    """Return an object with the path of its file from here."""
    return replace(item, file=os.path.normpath(folder / item.file)) if isinstance(item, MeshObject) else item


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
        for key, parameter in inspect.signature(make).parameters.items():
            if parameter.default is parameter.empty and key not in easier:
                raise ValueError(f"{name} has {next(iter(easier))!r} and needs {key!r} too")
        return replace(make(**easier), **values)
