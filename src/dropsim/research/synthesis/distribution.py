"""A distribution of scenes: a scene file in which any value of a person, a thing or an event may be drawn anew for every clip."""

import hashlib
import importlib.resources
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dropsim.files.names import suggestion
from dropsim.priors.starts import StartBank
from dropsim.research.synthesis.drawing import Chance, Chooser, Corner, Draw, checked_weights, most_options
from dropsim.scene import Ground
from dropsim.scene.files import Setup
from dropsim.scene.files.reading import Document, Lines, Place, object_of, parse_toml, read_toml, setup_of
from dropsim.scene.files.schema import MANY, SHORTS, keys_of, single_tables, top_keys
from dropsim.scene.files.values import Key
from dropsim.scene.files.writing import scene_text
from dropsim.scene.scenarios import SCENARIOS, scenario

READY = ("mixed", "pushes", "calm")
"""Distributions that come with the package."""
ANY = "any"
"""Category of the clips of a file that has no categories."""
MOST = 64
"""Copies of a table in one clip."""


@dataclass(frozen=True)
class Tilt:
    """A ground that tilts, stays so for a while and comes back: an easier way to say the rows of [ground] tilts."""

    start: float = 1.5
    """[s]"""
    rise: float = 1.0
    """How long it takes to tilt, and to come back [s]."""
    hold: float = 1.0
    """How long it stays tilted [s]."""
    roll: float = 0.0
    """About +y [degrees]."""
    pitch: float = 0.0
    """About +x [degrees]."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not (self.start >= 0 and self.rise > 0 and self.hold > 0):
            raise ValueError("a tilt starts at 0 s or later, and rises and holds for longer than 0 s")
        if max(abs(self.roll), abs(self.pitch)) > 45:
            raise ValueError(f"the ground tilts by at most 45 degrees, not {self.roll:g} and {self.pitch:g}")

    def rows(self) -> list[list[float]]:
        """Return the ground's rows of time, roll and pitch."""
        times = (self.start, self.start + self.rise, self.start + self.rise + self.hold, self.start + 2 * self.rise + self.hold)
        angles = ((0.0, 0.0), (self.roll, self.pitch), (self.roll, self.pitch), (0.0, 0.0))
        return [[time, *pair] for time, pair in zip(times, angles, strict=True)]


@dataclass(frozen=True)
class Gates:
    """What a clip must not be worse than."""

    bone_error: float = 1.0
    """Largest error of a bone's length at any frame, as a share of it [%]."""
    penetration: float = 10.0
    """Deepest that a joint's sphere is in the ground at any frame but the first, which is the prior's own [mm]."""

    def __post_init__(self) -> None:
        """Refuse gates that nothing passes."""
        if not (self.bone_error > 0 and self.penetration >= 0):
            raise ValueError("gates need a bone error above 0 % and a penetration of 0 mm or more")


TABLES: Mapping[str, type] = {**MANY, "tilt": Tilt}
"""Tables in two brackets."""
EXTRA: Mapping[str, Key] = {"count": Key(int), "category": Key(str)}
"""Keys that a table in two brackets has besides its own."""
OWN = ("categories", "gates")
"""Tables that a scene does not have."""


@dataclass(frozen=True)
class Drawn:
    """One clip's scene."""

    index: int
    seed: int
    """Of the clip's own random numbers."""
    category: str
    setup: Setup
    values: Mapping[str, Any] = field(default_factory=dict)
    """What was drawn, by dotted paths of the scene, such as push.0.newtons."""


@dataclass(frozen=True)
class Distribution:
    """Scenes to draw from. It holds plain data only, so that it goes to other processes and machines as it is."""

    name: str
    tables: Mapping[str, Any]
    """As in the file."""
    lines: Lines
    """Where they stand."""
    folder: str
    """To which recordings are relative."""

    @property
    def gates(self) -> Gates:
        """What clips have to pass."""
        return object_of(Gates, self.tables.get("gates", {}), ("gates",), self._document({}, {}))

    @property
    def weights(self) -> Mapping[str, float]:
        """How often each category is drawn."""
        raw = self.tables.get("categories", {ANY: 1})
        where = self._where(("categories",))
        if not isinstance(raw, Mapping) or not raw:
            raise ValueError(f"{where}categories is a table: write [categories] and below it names and weights, such as push = 2")
        return dict(zip(raw, checked_weights(list(raw.values()), f"{where}categories"), strict=True))

    def draw(self, seed: int, index: int) -> Drawn:
        """Return the scene of a clip, which depends on the seed and its index alone."""
        own = int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:8]) >> 2
        chance = Chance(random.Random(own))
        weights = self.weights
        category = list(weights)[chance.pick(list(weights.values()))]
        made = self._made(category, chance)
        return Drawn(index, own, category, replace(made.setup, seed=own), made.values)

    def check(self) -> None:
        """Try both ends of every range and every option once, so that what is wrong is said before anything is simulated."""
        self._check_names()
        _ = self.gates  # which refuses what cannot be
        bank = StartBank.shipped()
        for category in self.weights:
            for number in range(max(2, most_options(list(self.tables.values())))):
                made = self._made(category, Corner(number))
                for i, person in enumerate(made.setup.scene.people):
                    if made.setup.clip is None and person.start not in bank.categories:
                        at = self._where((*made.origin.get(("person", i), ("person",)), "start"))
                        raise ValueError(f"{at}there is no start {person.start!r}: {suggestion(person.start, bank.categories)}")

    def _check_names(self) -> None:
        """Refuse tables and categories that there are not."""
        known = (*top_keys(), *single_tables(), *TABLES, *OWN)
        for name in self.tables:
            if name not in known:
                raise ValueError(f"{self._where((name,))}a distribution of scenes has no {name!r}: {suggestion(name, known)}")
        for name in TABLES:
            raw = self.tables.get(name, [])
            if not isinstance(raw, list):
                raise ValueError(f"{self._where((name,))}write [[{name}]] in two brackets, since there may be several")
            for i, table in enumerate(raw):
                if not isinstance(table, Mapping):
                    raise ValueError(f"{self._where((name, i))}{name} is a table: write [[{name}]] and its keys below it, each in a line")
                for category in _categories_of(table, self._where((name, i, "category"))):
                    if category not in self.weights:
                        at = self._where((name, i, "category"))
                        raise ValueError(f"{at}[categories] has no {category!r}: {suggestion(category, self.weights)}")

    def _where(self, place: Place) -> str:
        return self.lines.where(place)

    def _document(self, tables: Mapping[str, Any], origin: Mapping[Place, Place]) -> Document:
        """Return tables that were made of the file's, each with the place that it has there."""
        lines = replace(self.lines, origin=origin)
        return Document(tables, lines.where, lines.of, Path(self.folder), self.name)

    def _made(self, category: str, chooser: Chooser) -> "_Made":
        """Decide everything for one clip."""
        draw, origin = Draw(chooser), dict[Place, Place]()
        tables: dict[str, Any] = {
            name: self._fixed(name, raw) for name, raw in self.tables.items() if name not in (*TABLES, *OWN, "ground")
        }
        if "ground" in self.tables:
            tables["ground"] = self._values(draw, Ground, self.tables["ground"], ("ground",), "ground")
        for name in TABLES:
            for i, raw in enumerate(self.tables.get(name, [])):
                if category not in (_categories_of(raw, "") or (category,)):
                    continue
                for _ in range(self._count(chooser, raw, (name, i))):
                    at = (name, len(tables.setdefault(name, [])))
                    origin[at] = (name, i)
                    tables[name].append(self._values(draw, TABLES[name], raw, (name, i), f"{name}.{at[1]}"))
        self._tilt(tables, origin)
        return _Made(setup_of(self._document(tables, origin)), draw.taken, origin)

    def _fixed(self, name: str, raw: object) -> object:
        """Refuse to draw what all clips share."""
        inside = raw.items() if isinstance(raw, Mapping) and name in single_tables() else [("", raw)]
        for key, value in inside:
            if isinstance(value, Mapping):
                raise ValueError(f"{self._where((name, key))}{name} {key}".rstrip() + " is the same for all clips: write one value")
        return raw

    def _values(self, draw: Draw, cls: type, raw: object, place: Place, path: str) -> object:
        """Return a table with plain values."""
        if not isinstance(raw, Mapping):
            return raw  # which reading refuses
        short = SHORTS.get(cls)
        known = {**keys_of(cls), **(short.keys if short else {})}
        values = {}
        for key, value in raw.items():
            at = f"{self._where((*place, key))}{place[0]}"
            if key in EXTRA and cls is not Ground:
                continue
            if key not in known:
                raise ValueError(f"{at} has no field {key!r}: {suggestion(key, (*known, *EXTRA))}")
            values[key] = draw.value(value, known[key], f"{at} {key}", f"{path}.{key}")
        return values

    def _count(self, chooser: Chooser, raw: Mapping[str, Any], place: Place) -> int:
        """Return how many of a table this clip has."""
        if "count" not in raw:
            return 1
        what = f"{self._where((*place, 'count'))}{place[0]} count"
        count = EXTRA["count"].read(Draw(chooser).value(raw["count"], EXTRA["count"], what, "count"), what)
        if not 0 <= count <= MOST:
            raise ValueError(f"{what} is from 0 to {MOST}, not {count}")
        return count

    def _tilt(self, tables: dict[str, Any], origin: Mapping[Place, Place]) -> None:
        """Write a tilt as the ground's rows."""
        tilts = tables.pop("tilt", [])
        for i, raw in enumerate(tilts):
            where = self._where(origin["tilt", i])
            ground = tables.setdefault("ground", {})
            if "tilts" in ground:
                raise ValueError(f"{where}the ground tilts once in a clip: leave out the other tilt, or [ground] tilts")
            ground["tilts"] = object_of(Tilt, raw, ("tilt", i), self._document(tables, origin)).rows()


@dataclass(frozen=True)
class _Made:
    setup: Setup
    values: Mapping[str, Any]
    origin: Mapping[Place, Place]
    """Where tables of the clip stand in the file."""


def _categories_of(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the categories that a table is for; none stands for all."""
    raw = table.get("category", [])
    names = raw if isinstance(raw, list) else [raw]
    return tuple(EXTRA["category"].read(name, f"{where}category") for name in names)


def distribution(source: str) -> Distribution:
    """Return the distribution of a file, or a ready one or a scenario by its name."""
    if source.lower().endswith(".toml"):
        path = Path(source)
        tables, numbers = read_toml(path)
        found = Distribution(path.stem, tables, Lines(source, numbers), str(path.parent.absolute()))
    elif source in READY:
        text = (importlib.resources.files("dropsim") / "assets" / "synthesis" / f"{source}.toml").read_text(encoding="utf-8")
        found = _of_text(source, text)
    elif source in SCENARIOS:
        found = _of_text(source, scene_text(scenario(source), Path()))
    else:
        hint = suggestion(source, (*READY, *SCENARIOS))
        raise ValueError(f"there is no distribution or scenario {source!r}: {hint} A file ends in .toml")
    found.check()
    return found


def _of_text(name: str, text: str) -> Distribution:
    tables, numbers = parse_toml(text)
    return Distribution(name, tables, Lines(name, numbers), "")
