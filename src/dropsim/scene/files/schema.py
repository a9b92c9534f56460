"""The tables of a scene file and their keys, read off the dataclasses."""

import ast
import dataclasses
import functools
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dropsim.scene import Ball, Dodge, Drag, Element, Follow, Obstacle, Person, Pin, Push, Scene, StiffJoint, Throw, Trip
from dropsim.scene.files.setup import Setup, name_of
from dropsim.scene.files.values import Key
from dropsim.scene.perturbations import DIRECTIONS


@functools.cache
def keys_of(cls: type) -> Mapping[str, Key]:
    """Return the keys of a dataclass' table: its fields, but for those that are tables of their own."""
    hints, docs = typing.get_type_hints(cls), _docs_of(cls)
    plain = [f.name for f in dataclasses.fields(cls) if f.init and _is_plain(hints[f.name])]
    return {name: Key(hints[name], docs.get(name, "")) for name in plain}


def _is_plain(wanted: object) -> bool:
    """Tell whether a type is of numbers, text and rows of them."""
    if wanted in (bool, int, float, str, type(None), ...):
        return True
    return typing.get_origin(wanted) in (tuple, types.UnionType, typing.Union) and all(map(_is_plain, typing.get_args(wanted)))


def _docs_of(cls: type) -> Mapping[str, str]:
    """Return the line that stands under each field in the source; nothing where there is no source."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except OSError:
        return {}
    assert isinstance(node, ast.ClassDef)
    found: dict[str, str] = {}
    for line, below in pairwise(node.body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
            found[line.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


@dataclass(frozen=True)
class Short:
    """Keys that say what a field is in an easier way."""

    make: Callable[..., Any]
    """The dataclass' own method for it."""
    replaces: str
    """The field that they make."""
    docs: Mapping[str, str]
    """The keys, with units."""

    @functools.cached_property
    def keys(self) -> Mapping[str, Key]:
        """The keys with the types of the method's arguments."""
        hints = typing.get_type_hints(self.make)
        return {name: Key(hints[name], doc) for name, doc in self.docs.items()}

    @property
    def needed(self) -> tuple[str, ...]:
        """The keys that have no default."""
        given = inspect.signature(self.make).parameters
        return tuple(name for name in self.docs if given[name].default is inspect.Parameter.empty)


SHORTS: Mapping[type, Short] = {
    Push: Short(
        Push.toward,
        "force",
        {"direction": f"{', '.join(DIRECTIONS)}, or degrees counterclockwise from the front of who faces +y", "newtons": "[N]"},
    ),
    Follow: Short(Follow.square, "velocities", {"speed": "Round a square [m/s].", "every": "Between turns [s].", "seconds": "In all [s]."}),
}

ELEMENTS: Mapping[str, type[Element[Any]]] = {
    name_of(cls): cls for cls in (Push, Drag, Pin, Ball, Throw, Obstacle, Trip, Follow, Dodge, StiffJoint)
}
"""The elements of a scene by the names of their tables, each of which may be there many times."""
MANY: Mapping[str, type] = {"person": Person, **ELEMENTS}
"""Tables in two brackets."""


@functools.cache
def single_tables() -> Mapping[str, type]:
    """Return the tables in one bracket: the parts of a scene and a setup that are dataclasses."""
    hints: dict[str, Any] = {name: hint for cls in (Scene, Setup) for name, hint in typing.get_type_hints(cls).items()}
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint is not Scene}


@functools.cache
def top_keys() -> Mapping[str, Key]:
    """Return the keys outside of all tables."""
    return {**keys_of(Setup), **keys_of(Scene)}
