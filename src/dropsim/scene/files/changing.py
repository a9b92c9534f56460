"""Changing fields of a setup by dotted paths."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dropsim.scene.files.reading import Document, Place, setup_of
from dropsim.scene.files.schema import MANY, SHORTS, single_tables, top_keys
from dropsim.scene.files.setup import Setup, name_of
from dropsim.scene.files.values import Spoken
from dropsim.scene.files.writing import document_of


def changed(setup: Setup, changes: Sequence[tuple[str, str]], *, said: Callable[[str], str] = lambda path: f"{path}: ") -> Setup:
    """Return a setup with some fields changed: ("push.0.part", "hand"), ("person.start", "run") for everybody, ("seconds", "8").

    A table that comes right after the last of its kind is new. `said` names a path in messages.
    """
    document = document_of(setup)
    spoken: dict[Place, str] = {}
    for path, text in changes:
        for place in _places_of(path, document, said(path)):
            spoken[place] = said(path)
            _put(document, place, text)
    kinds = [name_of(type(element)) for element in setup.scene.elements]
    numbers = {(kind, kinds[:i].count(kind)): i for i, kind in enumerate(kinds)}

    def where(place: Place) -> str:
        # A check of a whole object may fail for any of the changes to it; the first is named.
        near = (text for at, text in spoken.items() if place and at[: len(place)] == place)
        return spoken.get(place) or next(near, "")

    def order(place: Place) -> int:
        return numbers.get((str(place[0]), int(place[1])), len(numbers))

    return setup_of(Document(document, where, order, Path(), setup.name))


def _places_of(path: str, document: Mapping[str, Any], said: str) -> list[Place]:
    """Return what a dotted path stands for: without a number, that key of every table of its kind."""
    name, *rest = path.split(".")
    if name not in (*MANY, *single_tables(), *top_keys()):
        return [(name,)]
    if name not in MANY:
        if len(rest) != (1 if name in single_tables() else 0):
            raise ValueError(f"{said}write {name}{'.KEY' if name in single_tables() else ''}, and no more")
        return [(name, *rest)]
    count = len(document.get(name, ()))
    if len(rest) == 1 and not rest[0].isdecimal():
        if not count:
            raise ValueError(f"{said}the scene has no {name}: write {name}.0.{rest[0]} to add one")
        return [(name, i, rest[0]) for i in range(count)]
    if len(rest) != 2 or not re.fullmatch("[0-9]{1,6}", rest[0]):
        raise ValueError(f"{said}write {name}.0.KEY for one {name}, or {name}.KEY for all of them")
    if int(rest[0]) > count:
        raise ValueError(f"{said}the scene has {count} of {name}: the next is {name}.{count}")
    return [(name, int(rest[0]), rest[1])]


def _put(document: dict[str, Any], place: Place, text: str) -> None:
    """Put a value in its place; of a field and the keys that say it in an easier way, the last that was given counts."""
    match place:
        case (str(name), int(number), key):
            tables = document.setdefault(name, [])
            tables += [{}] if number == len(tables) else []
            table, short = tables[number], SHORTS.get(MANY[name])
            if short:
                for other in (short.replaces,) if key in short.keys else tuple(short.keys) if key == short.replaces else ():
                    table.pop(other, None)
        case (name, key):
            table = document[str(name)]
        case _:
            (key,), table = place, document
    table[str(key)] = Spoken(text)
