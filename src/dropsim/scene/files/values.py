"""Values in a scene file: numbers with and without units, text, and rows of them."""

import math
import re
import tomllib
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Value = Any
"""A number, text, a truth value, or a list of such; or the type of one."""

_UNITS: dict[str, dict[str, float]] = {
    "s": {"s": 1, "ms": 1000, "min": 1 / 60},
    "m": {"m": 1, "cm": 100, "mm": 1000},
    "kg": {"kg": 1, "g": 1000},
    "N": {"N": 1, "kN": 0.001},
    "m/s": {"m/s": 1, "cm/s": 100, "km/h": 3.6},
    "degrees": {"degrees": 1, "degree": 1, "deg": 1, "°": 1, "rad": math.pi / 180},
    "N/m": {"N/m": 1, "kN/m": 0.001},
    "N s/m": {"N s/m": 1, "Ns/m": 1},
}
"""For every unit of a field, how many of which units make one of it."""


@dataclass(frozen=True)
class Key:
    """A key of a table."""

    wanted: Any
    """Its type."""
    doc: str = ""
    """What it is, with its unit in brackets, or the units of a row's columns; the last is that of all columns that follow."""

    @property
    def units(self) -> tuple[str, ...]:
        """The units that its documentation gives."""
        return tuple(unit for unit in re.findall(r"\[([^\]]+)\]", self.doc) if unit in _UNITS)

    def read(self, raw: object, what: str) -> Value:
        """Return a value of the key's type, or say what it should be."""
        return _converted(self.wanted, raw, self.units, what)


def _converted(wanted: Value, raw: object, units: Sequence[str], what: str) -> Value:
    options = [option for option in typing.get_args(wanted) if option is not type(None)]
    if typing.get_origin(wanted) in (types.UnionType, typing.Union):
        return _converted(options[0], raw, units, what)
    if isinstance(raw, Spoken):
        raw = str(raw) if wanted is str else _parsed(str(raw))
    if wanted is bool:
        if not isinstance(raw, bool):
            raise ValueError(f"{what} is true or false, not {_shown(raw)}")
        return raw
    if wanted is str:
        if not isinstance(raw, str):
            raise ValueError(f"{what} is text in quotes, not {_shown(raw)}")
        return raw
    if wanted is int:
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise ValueError(f"{what} is a whole number, not {_shown(raw)}")
        return raw
    if wanted is float:
        return _number(raw, units[0] if units else None, what)
    return _row(options, raw, units, what)


def _row(options: Sequence[Value], raw: object, units: Sequence[str], what: str) -> tuple[Value, ...]:
    """Read a list: of as many rows as there are, or of a number for each column."""
    rows = options[-1] is ...
    size = "rows" if rows else f"{len(options)} numbers"
    if not isinstance(raw, list) or not (rows or len(raw) == len(options)):
        raise ValueError(f"{what} is a list of {size} in brackets, not {_shown(raw)}")
    if rows:
        return tuple(_converted(options[0], row, units, f"{what} row {i}") for i, row in enumerate(raw))
    of_column = [units[min(i, len(units) - 1) :][:1] for i in range(len(raw))]
    return tuple(_converted(option, value, unit, what) for option, value, unit in zip(options, raw, of_column, strict=True))


_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*?)\s*", re.IGNORECASE)


def _number(raw: object, unit: str | None, what: str) -> float:
    """Read a number, or one with a unit."""
    right = f"a number [{unit}]" if unit else "a plain number"
    if isinstance(raw, str):
        match = _QUANTITY.fullmatch(raw)
        if match is None:
            raise ValueError(f"{what} is {right}, not {_shown(raw)}")
        given = " ".join(match[2].split())
        if given and (unit is None or given not in _UNITS[unit]):
            others = f", such as {match[1]} {next(iter(_UNITS[unit]))!s}" if unit else ""
            raise ValueError(f"{what} is {right}{others}, and {given!r} is no unit of it")
        raw = float(match[1]) / (_UNITS[unit][given] if given and unit else 1)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError(f"{what} is {right}, not {_shown(raw)}")
    if not abs(raw) <= 1e300:
        raise ValueError(f"{what} is a finite number, not {_shown(raw)}")
    return float(raw)


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 40 else f"{text[:37]}..."


class Spoken(str):
    """What somebody typed for a key: text, or a number or list in TOML's spelling."""

    __slots__ = ()


def _parsed(text: str) -> object:
    """Read a value in TOML's spelling; what is none is text."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text
