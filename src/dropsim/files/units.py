"""Numbers with units: `start: Seconds = 2.0` is a float whose unit scene files know, convert and write."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated


@dataclass(frozen=True)
class Unit:
    """The unit of a field, as metadata of its type."""

    name: str
    others: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Units that a file may use instead, and how many of each make one of this unit."""


Seconds = Annotated[float, Unit("s", {"ms": 1000.0, "min": 1 / 60})]
Metres = Annotated[float, Unit("m", {"cm": 100.0, "mm": 1000.0})]
Kilograms = Annotated[float, Unit("kg", {"g": 1000.0})]
Newtons = Annotated[float, Unit("N", {"kN": 0.001})]
Degrees = Annotated[float, Unit("degrees", {"degree": 1.0, "deg": 1.0, "°": 1.0, "rad": math.pi / 180})]
MetresPerSecond = Annotated[float, Unit("m/s", {"cm/s": 100.0, "km/h": 3.6})]
MetresPerSecond2 = Annotated[float, Unit("m/s^2", {"m/s²": 1.0})]
NewtonsPerMetre = Annotated[float, Unit("N/m", {"kN/m": 0.001})]
NewtonSecondsPerMetre = Annotated[float, Unit("N s/m", {"Ns/m": 1.0})]
Millimetres = Annotated[float, Unit("mm", {"cm": 0.1, "m": 0.001})]
Percent = Annotated[float, Unit("%")]

GRAVITY = 9.81
"""Downward, along -z [m/s^2]."""
