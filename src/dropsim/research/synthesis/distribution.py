"""A distribution of scenes: a scene file in which values of people, objects and events may be drawn for every clip."""

import hashlib
import importlib.resources
import random
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from dropsim.files.names import suggestion
from dropsim.files.units import Degrees, Millimetres, Percent, Seconds
from dropsim.priors.bank import TAGS
from dropsim.scene import files
from dropsim.scene.files import MANY, SINGLE, Key, Setup, Table, Value, shown
from dropsim.scene.scenarios import SCENARIOS, scenario

MAX_OPTIONS = 256


@dataclass(frozen=True)
class Draw:
    """Replaces what is to be drawn by plain values, and keeps a record of them."""

    source: random.Random | int
    """Draws by chance; a number takes ends and options in turn instead, to try a file's extremes."""
    values: dict[str, Any] = field(default_factory=dict)
    """Drawn values by dotted paths."""

    def share(self) -> float:
        """Return a number from 0 to less than 1."""
        # Of Python's generator only `random()` is promised to stay the same.
        return self.source % 2 * (1 - 2**-53) if isinstance(self.source, int) else self.source.random()

    def pick(self, weights: Sequence[float]) -> int:
        """Return the index of one of several options."""
        if isinstance(self.source, int):
            return self.source % len(weights)
        at = self.share() * sum(weights)
        last = max(i for i, weight in enumerate(weights) if weight > 0)
        return next((i for i, until in enumerate(accumulate(weights)) if at < until), last)

    def value(self, raw: object, wanted: Value, what: str, path: str) -> Value:
        """Return a plain value of a type; `what` begins sentences about it."""
        if isinstance(raw, Mapping):
            between = "between" in raw
            known = ("between",) if between else ("one_of", "weights")
            for name in (name for name in raw if name not in known):
                hint = suggestion(name, known)
                raise ValueError(f"{what} is drawn by between, or by one_of with weights, not by {name!r}: {hint}")
            self.values[path] = self._between(raw["between"], wanted, what) if between else self._one_of(raw, what)
            return self.values[path]
        if isinstance(raw, list):
            return [self.value(one, _part_of(wanted, i), what, f"{path}.{i}") for i, one in enumerate(raw)]
        return raw

    def _between(self, ends: object, wanted: Value, what: str) -> float | int | str:
        kind, _ = files.plain_type(wanted)
        if not isinstance(ends, list) or len(ends) != 2:
            raise ValueError(f"{what} needs two ends, as in {{ between = [1, 2] }}")
        if kind not in (int, float, str):
            raise ValueError(f"{what} is no single number: use one_of, or draw the numbers inside its brackets")
        # A direction is text, and degrees are one way to write it.
        low, high = (files.read_value(float if kind is str else wanted, end, what) for end in ends)
        if not low <= high:
            raise ValueError(f"{what} is drawn between {low:g} and {high:g}: put the smaller first")
        if kind is int:
            return min(high, low + int(self.share() * (high - low + 1)))
        value = low + self.share() * (high - low)
        return f"{value:.6f}" if kind is str else value

    def _one_of(self, raw: Mapping[str, Any], what: str) -> Value:
        options = raw.get("one_of")
        if not isinstance(options, list) or not 0 < len(options) <= MAX_OPTIONS:
            raise ValueError(f"{what} needs a list of 1 to {MAX_OPTIONS} options, as in {{ one_of = [1, 2] }}")
        weights = raw.get("weights", [1] * len(options))
        if not isinstance(weights, list) or len(weights) != len(options):
            raise ValueError(f"{what} needs a weight for each of its {len(options)} options")
        return options[self.pick(checked_weights(weights, what))]


def checked_weights(weights: Sequence[object], what: str) -> list[float]:
    """Refuse weights that nothing can be drawn by."""
    numbers = [files.read_value(float, weight, f"{what}: a weight") for weight in weights]
    if min(numbers) < 0 or not sum(numbers) > 0:
        raise ValueError(f"{what} needs weights of 0 or more, not all of them 0")
    return numbers


def most_options(raw: object) -> int:
    """Return the largest number of options of anything that is drawn."""
    if isinstance(raw, Mapping):
        options = raw.get("one_of")
        return max(len(options) if isinstance(options, list) else 2, *map(most_options, raw.values()), 0)
    return max(map(most_options, raw), default=1) if isinstance(raw, list) else 1


def _part_of(wanted: Value, i: int) -> Value:
    """Return the type of a list's i-th part; reading refuses lists where none belongs."""
    options = typing.get_args(kind) if typing.get_origin(kind := files.plain_type(wanted)[0]) is tuple else ()
    if not options:
        return wanted
    return options[0] if options[-1] is ... else options[min(i, len(options) - 1)]


READY = ("mixed", "pushes", "calm", "objects", "shoves", "chaos")
"""Distributions that come with the package."""
ANY = "any"
"""Category of the clips of a file without categories."""
MAX_CATEGORIES = 64
MAX_COPIES = 64
"""Copies of a table in one clip."""


@dataclass(frozen=True)
class Tilt:
    """A ground that tilts, stays tilted and comes back: an easier way to write the rows of [ground] tilts."""

    start: Seconds = 1.5
    rise: Seconds = 1.0
    """How long it takes to tilt, and to come back."""
    hold: Seconds = 1.0
    """How long it stays tilted."""
    roll: Degrees = 0.0
    """About +y."""
    pitch: Degrees = 0.0
    """About +x."""

    def __post_init__(self) -> None:
        if not (self.start >= 0 and self.rise > 0 and self.hold > 0):
            raise ValueError("a tilt starts at 0 s or later, and rises and holds for longer than 0 s")
        if max(abs(self.roll), abs(self.pitch)) > 45:
            raise ValueError(f"the ground tilts by at most 45 degrees, not {self.roll:g} and {self.pitch:g}")

    def rows(self) -> list[list[float]]:
        """Return the ground's rows of time, roll and pitch."""
        up, down = self.start + self.rise, self.start + self.rise + self.hold
        tilted = [self.roll, self.pitch]
        return [[self.start, 0.0, 0.0], [up, *tilted], [down, *tilted], [down + self.rise, 0.0, 0.0]]


@dataclass(frozen=True)
class Gates:
    """The worst that a clip may be."""

    bone_error: Percent = 1.0
    """Largest error of a bone's length at any frame, as a share of it."""
    penetration: Millimetres = 10.0
    """Deepest that a joint's sphere is in the ground at any frame but the first, which is the prior's own."""

    def __post_init__(self) -> None:
        if not (self.bone_error > 0 and self.penetration >= 0):
            raise ValueError("gates need a bone error above 0 % and a penetration of 0 mm or more")


TABLES: Mapping[str, type] = {**MANY, "tilt": Tilt}
"""Tables in two brackets."""
OWN: Mapping[str, type] = {"categories": dict, "gates": Gates}
"""Tables that a scene does not have."""
EXTRA: Mapping[str, Key] = {"count": Key(int), "category": Key(str)}
"""Keys that a table in two brackets has besides its own."""


@dataclass(frozen=True)
class Drawn:
    """One clip's scene."""

    index: int
    seed: int
    """Seed of the clip's random numbers."""
    category: str
    setup: Setup
    values: Mapping[str, Any] = field(default_factory=dict)
    """Drawn values by dotted paths of the scene, such as push.0.newtons."""


@dataclass(frozen=True)
class Distribution:
    """Scenes to draw from; plain data, so that it can be sent to other processes and machines."""

    name: str
    tables: tuple[Table, ...]
    folder: str
    """Folder that recordings are relative to."""

    @property
    def gates(self) -> Gates:
        """Bounds that clips have to keep."""
        return next((files.object_of(Gates, table) for table in self.tables if table.name == "gates"), Gates())

    @property
    def weights(self) -> Mapping[str, float]:
        """How often each category is drawn."""
        table = next((table for table in self.tables if table.name == "categories"), Table("categories", {ANY: 1}))
        what = f"{table.where()}categories"
        if not 0 < len(table.values) <= MAX_CATEGORIES:
            remedy = f"write [categories] and below it 1 to {MAX_CATEGORIES} names and weights, such as push = 2"
            raise ValueError(f"{what} is a table: {remedy}")
        return dict(zip(table.values, checked_weights(list(table.values.values()), what), strict=True))

    def draw(self, seed: int, index: int) -> Drawn:
        """Return the scene of a clip, which depends on the seed and its index alone."""
        clip_seed = int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:8]) >> 2
        draw, weights = Draw(random.Random(clip_seed)), self.weights
        category = list(weights)[draw.pick(list(weights.values()))]
        setup = files.setup_of(self._drawn(category, draw), Path(self.folder), self.name)
        return Drawn(index, clip_seed, category, replace(setup, seed=clip_seed), draw.values)

    def check(self) -> None:
        """Try both ends of every range and every option once, to find mistakes before anything is simulated."""
        _ = self.gates
        for table in self.tables:
            for category in _categories_of(table):
                if category not in self.weights:
                    hint = suggestion(category, self.weights)
                    raise ValueError(f"{table.where('category')}[categories] has no {category!r}: {hint}")
        for category in self.weights:
            for number in range(max(2, *(most_options(table.values) for table in self.tables))):
                tables = self._drawn(category, Draw(number))
                setup = files.setup_of(tables, Path(self.folder), self.name)
                people = (table for table in tables if table.name == "person")
                for table, person in zip(people, setup.scene.people, strict=False):
                    if setup.clip is None and person.start not in TAGS:
                        hint = suggestion(person.start, TAGS)
                        raise ValueError(f"{table.where('start')}there is no start {person.start!r}: {hint}")

    def _drawn(self, category: str, draw: Draw) -> list[Table]:
        """Return one clip's tables with plain values."""
        counts, tables = Counter[str](), list[Table]()
        for table in self.tables:
            if table.name in OWN or category not in (_categories_of(table) or (category,)):
                continue
            if table.name in TABLES:
                for _ in range(_count(draw, table)):
                    tables.append(_plain(draw, table, f"{table.name}.{counts[table.name]}"))
                    counts[table.name] += 1
                continue
            shared = [] if table.name == "ground" else [k for k, v in table.values.items() if isinstance(v, Mapping)]
            if shared:
                name = f"{table.name} {shared[0]}".strip()
                raise ValueError(f"{table.where(shared[0])}{name} is the same for all clips: write one value")
            tables.append(_plain(draw, table, "ground") if table.name == "ground" else table)
        return _with_tilt(tables)


def _plain(draw: Draw, table: Table, path: str) -> Table:
    """Return a table with plain values."""
    known = files.all_keys({**SINGLE, **TABLES}[table.name])
    extra = EXTRA if table.name in TABLES else {}
    values = {}
    for key, raw in table.values.items():
        at = f"{table.where(key)}{table.name}"
        if key not in (*known, *extra):
            raise ValueError(f"{at} has no field {shown(key)}: {suggestion(key, (*known, *extra))}")
        if key in known:
            values[key] = draw.value(raw, known[key].wanted, f"{at} {key}", f"{path}.{key}")
    return replace(table, values=values)


def _count(draw: Draw, table: Table) -> int:
    """Return how many of a table a clip has."""
    what = f"{table.where('count')}{table.name} count"
    count = files.read_value(int, Draw(draw.source).value(table.values.get("count", 1), int, what, "count"), what)
    if not 0 <= count <= MAX_COPIES:
        raise ValueError(f"{what} is from 0 to {MAX_COPIES}, not {count}")
    return count


def _with_tilt(tables: list[Table]) -> list[Table]:
    """Write a tilt as the ground's rows."""
    for tilt in [table for table in tables if table.name == "tilt"]:
        tables.remove(tilt)
        ground = next((table for table in tables if table.name == "ground"), None)
        if ground is None:
            tables.append(ground := Table("ground", {}, tilt.place))
        if "tilts" in ground.values:
            remedy = "leave out the other tilt, or [ground] tilts"
            raise ValueError(f"{tilt.where()}the ground tilts once in a clip: {remedy}")
        ground.values["tilts"] = files.object_of(Tilt, tilt).rows()
    return tables


def _categories_of(table: Table) -> tuple[str, ...]:
    """Return the categories that a table is for; none means all of them."""
    raw = table.values.get("category", []) if table.name in TABLES else []
    names = raw if isinstance(raw, list) else [raw]
    return tuple(files.read_value(str, name, f"{table.where('category')}{table.name} category") for name in names)


def distribution(source: str | Path) -> Distribution:
    """Return the distribution of a file, or a ready one or a scenario by its name."""
    source, folder = str(source), ""
    with files.located(""):
        if source.lower().endswith(".toml"):
            text, folder = files.read_text(Path(source)), str(Path(source).parent.absolute())
        elif source in READY:
            folder_of_ready = importlib.resources.files("dropsim") / "assets" / "synthesis"
            text = (folder_of_ready / f"{source}.toml").read_text(encoding="utf-8")
        elif source in SCENARIOS:
            text = files.scene_text(scenario(source), Path())
        else:
            hint = suggestion(source, (*READY, *SCENARIOS))
            raise ValueError(f"there is no distribution or scenario {source!r}: {hint} A file ends in .toml")
        tables = files.parse_tables(
            text, source, single={**SINGLE, **OWN}, many=TABLES, what="a distribution of scenes"
        )
        for table in tables:
            if not isinstance(table.values, Mapping):
                remedy = f"write [{table.name}] and its keys below it, each on a line"
                raise ValueError(f"{table.where()}{table.name} is a table: {remedy}")
        scenes = Distribution(Path(source).stem if folder else source, tuple(tables), folder)
        scenes.check()
        return scenes
