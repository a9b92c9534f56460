"""Writing a scene file, with comments."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dropsim.files.atomic import atomic_path
from dropsim.scene import Push
from dropsim.scene.files.schema import ELEMENTS, SHORTS, keys_of, single_tables, top_keys
from dropsim.scene.files.setup import SOMERSAULT, Setup, name_of
from dropsim.scene.files.values import Key, Value
from dropsim.scene.perturbations import DIRECTIONS


def document_of(setup: Setup) -> dict[str, Any]:
    """Return a setup's tables; fields that are None are left out."""
    tables: dict[str, Any] = {**_table_of(setup), **_table_of(setup.scene)}
    tables |= {name: _table_of(_part_of(setup, name)) for name in single_tables()}
    for name, item in (*(("person", p) for p in setup.scene.people), *((name_of(type(e)), e) for e in setup.scene.elements)):
        tables.setdefault(name, []).append(_table_of(item))
    return tables


def _part_of(setup: Setup, name: str) -> Value:
    return getattr(setup, name) if hasattr(setup, name) else getattr(setup.scene, name)


def _table_of(item: object) -> dict[str, Any]:
    """Return the keys of an object, in the easier form where that says exactly the same."""
    table = {name: _listed(value) for name in keys_of(type(item)) if (value := getattr(item, name)) is not None}
    if isinstance(item, Push) and (easier := _toward(item)) is not None:
        del table["force"]
        table = {**easier, **table}
    return table


def _listed(value: Value) -> Value:
    return [_listed(one) for one in value] if isinstance(value, tuple) else value


def _toward(push: Push) -> dict[str, Any] | None:
    """Return direction and newtons of a horizontal push, where they make the same force to the last digit."""
    x, y, z = push.force
    newtons = math.hypot(x, y)
    for direction in (*DIRECTIONS, f"{(math.degrees(math.atan2(y, x)) - 90) % 360:g}"):
        for size in (newtons, round(newtons, 6)):
            if z == 0 and Push.toward(direction, size).force == push.force:
                return {"direction": direction, "newtons": size}
    return None


def write_scene(setup: Setup, path: Path) -> None:
    """Write a scene file with comments that reads back as the same setup."""
    if path.suffix.lower() != ".toml":
        raise ValueError(f"{path}: a scene file ends in .toml")
    if path.is_dir():
        raise ValueError(f"{path}: is a folder: give the name of a file")
    if own := [type(element).__name__ for element in setup.scene.elements if type(element) not in ELEMENTS.values()]:
        raise ValueError(f"a scene file knows no {own[0]}: it holds {', '.join(ELEMENTS)}")
    text = scene_text(setup, path.parent)
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def scene_text(setup: Setup, folder: Path) -> str:
    """Return what a scene file says; recordings are relative to the folder."""
    top = {**_table_of(setup), **_table_of(setup.scene)}
    if setup.clip not in (None, SOMERSAULT):
        top["clip"] = os.path.relpath(setup.clip, folder)
    parts = [
        "# A scene of dropsim: run it with `dropsim run`. What is left out has its default.",
        *_written(top, top_keys(), comments=True),
    ]
    seen = set[str]()
    people = [("person", person) for person in setup.scene.people]
    for name, item in (*people, *((name_of(type(element)), element) for element in setup.scene.elements)):
        short = SHORTS.get(type(item))
        keys = {**keys_of(type(item)), **(short.keys if short else {})}
        parts += ["", f"[[{name}]]", *_written(_table_of(item), keys, comments=name not in seen)]
        seen.add(name)
    for name, cls in single_tables().items():
        parts += ["", f"[{name}]", *_written(_table_of(_part_of(setup, name)), keys_of(cls), comments=True)]
    return "\n".join(parts) + "\n"


def _written(table: Mapping[str, Any], keys: Mapping[str, Key], *, comments: bool) -> list[str]:
    lines = []
    for name, value in table.items():
        doc = keys[name].doc if comments else ""
        if isinstance(value, list) and value and isinstance(value[0], list):
            lines += [f"# {doc}"] if doc else []
            lines += [f"{name} = [", *(f"    {_toml(row)}," for row in value), "]"]
        else:
            lines.append(f"{name} = {_toml(value)}{f'  # {doc}' if doc else ''}")
    return lines


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
