"""Writing a scene file with comments, and changing fields of a setup by dotted paths."""

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dropsim.files.atomic import atomic_path
from dropsim.files.names import suggestion
from dropsim.scene import DIRECTIONS, MeshObject, Push
from dropsim.scene.element import table_name
from dropsim.scene.files.reading import FILES, Table, is_file, setup_of
from dropsim.scene.files.schema import (
    ELEMENTS,
    MANY,
    MAX_TEXT,
    NAMES,
    SINGLE,
    TOP,
    Key,
    Value,
    keys_of,
    located,
    plain_type,
    same_as,
    shown,
)
from dropsim.scene.files.setup import Setup


def write_scene(setup: Setup, path: Path | str) -> None:
    """Write a scene file with comments that reads back as the same setup."""
    path = Path(path)
    if path.suffix.lower() != ".toml":
        raise ValueError(f"{path}: a scene file ends in .toml")
    if path.is_dir():
        raise ValueError(f"{path}: is a folder: give the name of a file")
    text = scene_text(setup, path.parent)
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


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
    if own := [type(element).__name__ for element in scene.elements if type(element) not in ELEMENTS.values()]:
        raise ValueError(f"a scene file knows no {own[0]}: it holds {', '.join(ELEMENTS)}")
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
    x, y, z = push.force
    newtons = math.hypot(x, y)
    for direction in (*DIRECTIONS, f"{(math.degrees(math.atan2(y, x)) - 90) % 360:g}"):
        for size in (newtons, round(newtons, 6)):
            if z == 0 and Push.toward(direction, size).force == push.force:
                return {"direction": direction, "newtons": size}
    return None


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
        found = tomllib.loads(f"value = {text}") if len(text) < MAX_TEXT else {}
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text


def _targets(tables: list[Table], path: str, said: str) -> list[tuple[Table, str]]:
    """Return the tables and the key that a dotted path stands for; without a number, all tables of its kind."""
    name, *rest = path.split(".")
    own = [table for table in tables if table.name == name and name]
    if name not in NAMES:
        raise ValueError(f"{said}a scene has no {shown(name)}: {suggestion(name, NAMES)}")
    if name not in MANY:
        if len(rest) != len(own):
            raise ValueError(f"{said}write {name}{'.KEY' if own else ''}, and no more")
        return [(own[0], rest[0])] if own else [(tables[0], name)]
    if own and len(rest) == 1 and not rest[0].isdecimal():
        return [(table, rest[0]) for table in own]
    if len(rest) != 2 or not re.fullmatch("[0-9]{1,6}", rest[0]) or int(rest[0]) > len(own):
        one = f"{name}.0.KEY for one of them, {name}.KEY for all, and " if own else ""
        raise ValueError(f"{said}the scene has {len(own)} of {name}: write {one}{name}.{len(own)}.KEY to add one")
    if int(rest[0]) == len(own):
        own.append(Table(name, {}))
        tables.append(own[-1])
    return [(own[int(rest[0])], rest[1])]
