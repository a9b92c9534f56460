"""Reading a scene file, with the line of whatever is wrong."""

import dataclasses
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dropsim.files.names import suggestion
from dropsim.scene import Scene
from dropsim.scene.files.schema import ELEMENTS, MANY, SHORTS, keys_of, single_tables, top_keys
from dropsim.scene.files.setup import SOMERSAULT, Setup, refuse_contradictions
from dropsim.scene.files.values import Value

MAX_BYTES = 1_000_000
"""A scene file that is larger is something else."""

Place = tuple[str | int, ...]
"""Where something stands in a document, e.g. ("push", 0, "force")."""


@dataclass(frozen=True)
class Document:
    """A scene's tables, where they come from and in which order."""

    tables: Mapping[str, Any]
    where: Callable[[Place], str]
    """Returns the beginning of a sentence about a place."""
    order: Callable[[Place], int]
    folder: Path
    """To which clips are relative."""
    name: str
    """Where the document gives none."""


def read_scene(path: Path) -> Setup:
    """Read a scene file; what it does not say has the dataclasses' defaults."""
    tables, numbers = read_toml(path)
    lines = Lines(str(path), numbers)
    return setup_of(Document(tables, lines.where, lines.of, path.parent, path.stem))


def read_toml(path: Path) -> tuple[dict[str, Any], Mapping[Place, int]]:
    """Read the tables of a TOML file, and the lines on which they and their keys stand."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{path}: has {size / 1e6:.1f} MB, and a scene file has at most {MAX_BYTES / 1e6:g}")
    try:
        return parse_toml(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text in UTF-8, as TOML has to be") from None
    except (RecursionError, ValueError) as error:
        what, _, at = str(error).partition(" (at ")
        line = re.match(r"line \d+", at)
        raise ValueError(f"{path}{f' {line[0]}' if line else ''}: is not TOML: {what or 'too deep'}") from None


def parse_toml(text: str) -> tuple[dict[str, Any], Mapping[Place, int]]:
    """Return the tables of a text in TOML, and the lines on which they and their keys stand."""
    return tomllib.loads(text), _lines_of(text)


@dataclass(frozen=True)
class Lines:
    """Where things stand in a file."""

    source: str
    """The file, for messages."""
    numbers: Mapping[Place, int]
    """Lines of the tables and keys."""
    origin: Mapping[Place, Place] = field(default_factory=dict)
    """For tables that were made of the file's: those that they were made of."""

    def of(self, place: Place) -> int:
        """Return the line of a place, or of what is nearest around it; 0 where there is none."""
        place = (*self.origin.get(place[:2], place[:2]), *place[2:])
        return next((self.numbers[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self.numbers), 0)

    def where(self, place: Place) -> str:
        """Return the beginning of a sentence about a place."""
        return f"{self.source} line {line}: " if (line := self.of(place)) else f"{self.source}: "


_MASKED = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]*?)\s*\]")


def _lines_of(text: str) -> Mapping[Place, int]:
    """Return the lines of all tables and keys of a TOML text, which its parser does not tell."""

    def mask(match: re.Match[str]) -> str:
        return "" if match[0].startswith("#") else re.sub(r"[^\w\s-]", "", match[0])

    lines: dict[Place, int] = {}
    table: Place = ()
    counts: dict[str, int] = {}
    depth = 0
    for number, line in enumerate(_MASKED.sub(mask, text).split("\n"), start=1):
        header = _HEADER.match(line) if depth == 0 else None
        if header:
            name = header[2]
            if header[1] == "[[":
                counts[name] = counts.get(name, -1) + 1
            table = (*_parts(name), counts[name]) if header[1] == "[[" else _parts(name)
            lines.setdefault(table, number)
            lines.setdefault(table[:1], number)
            continue
        key, equals, _ = line.partition("=")
        if depth == 0 and equals:
            lines.setdefault((*table, *_parts(key)), number)
            lines.setdefault((*table, *_parts(key)[:1]), number)
        depth += sum(map(line.count, "[{")) - sum(map(line.count, "]}"))
    return lines


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in key.split("."))


def setup_of(document: Document) -> Setup:
    """Make the objects, refusing what they do not have."""
    tables, single, top = document.tables, single_tables(), top_keys()
    for name in tables:
        if name not in top and name not in single and name not in MANY:
            raise ValueError(f"{document.where((name,))}a scene has no {name!r}: {suggestion(name, (*top, *single, *MANY))}")
    plain = {name: top[name].read(raw, f"{document.where((name,))}{name}") for name, raw in tables.items() if name in top}
    if (clip := plain.get("clip")) not in (None, SOMERSAULT):
        plain["clip"] = os.path.normpath(document.folder / clip)
    parts = {name: object_of(cls, tables[name], (name,), document) for name, cls in single.items() if name in tables}
    many = {name: _objects(name, tables[name], document) for name in MANY if name in tables}
    elements = sorted((pair for name in ELEMENTS for pair in many.get(name, ())), key=lambda pair: document.order(pair[0]))
    if "person" in many:
        parts["people"] = tuple(person for _, person in many["person"])
    of_scene = {f.name for f in dataclasses.fields(Scene)}
    inside = {name: value for name, value in {**plain, **parts}.items() if name in of_scene}
    outside = {name: value for name, value in {"name": document.name, **plain, **parts}.items() if name not in of_scene}
    names = [f"the {place[0]} in {_of_line(document, place)}" for place, _ in elements]
    with told(document.where(())):
        refuse_contradictions([element for _, element in elements], names)
    for place, element in elements:
        with told(document.where(place)):
            Scene(**{**inside, "elements": (element,)})
    scene = Scene(**{**inside, "elements": tuple(element for _, element in elements)})
    with told(document.where(())):
        return Setup(scene=scene, **outside)


def _of_line(document: Document, place: Place) -> str:
    line = re.search(r"line \d+", document.where(place))
    return line[0] if line else f"place {place[1]}"


@contextmanager
def told(where: str) -> Iterator[None]:
    """Put where it stands before the sentence of an error."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def _objects(name: str, raw: object, document: Document) -> list[tuple[Place, Any]]:
    if not isinstance(raw, list):
        raise ValueError(f"{document.where((name,))}write [[{name}]] in two brackets, since there may be several")
    return [((name, i), object_of(MANY[name], table, (name, i), document)) for i, table in enumerate(raw)]


def object_of(cls: type, raw: object, place: Place, document: Document) -> Value:
    """Make one object of a table."""
    name, where = place[0], document.where(place)
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where}{name} is a table: write [{name}] and its keys below it, each in a line")
    keys, short = keys_of(cls), SHORTS.get(cls)
    known = {**keys, **(short.keys if short else {})}
    values = {}
    for key, value in raw.items():
        at = document.where((*place, key))
        if key not in known:
            raise ValueError(f"{at}{name} has no field {key!r}: {suggestion(key, known)}")
        values[key] = known[key].read(value, f"{at}{name} {key}")
    with told(where):
        if short is None or not (easier := {key: values.pop(key) for key in short.keys if key in values}):
            return cls(**values)
        if short.replaces in values:
            raise ValueError(f"{name} has both {short.replaces!r} and {next(iter(easier))!r}: leave one out")
        if missing := [key for key in short.needed if key not in easier]:
            raise ValueError(f"{name} has {next(iter(easier))!r} and needs {missing[0]!r} too")
        # Together, since a check may be of both.
        shared = {key: value for key, value in values.items() if key in inspect.signature(short.make).parameters}
        return replace(short.make(**easier, **shared), **values)
