"""Values that are drawn: { between = [a, b] } and { one_of = [...], weights = [...] } in place of a plain one."""

import random
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from dropsim.files.names import suggestion
from dropsim.scene.files.values import Key


class Chooser(ABC):
    """Who decides what is drawn."""

    @abstractmethod
    def share(self) -> float:
        """Return how far between two ends, from 0 to less than 1."""

    @abstractmethod
    def pick(self, weights: Sequence[float]) -> int:
        """Return which of several."""


@dataclass(frozen=True)
class Chance(Chooser):
    """Draws by a seed; of Python's generator only `random()`, which is promised to stay as it is."""

    rng: random.Random

    def share(self) -> float:
        """Draw evenly."""
        return self.rng.random()

    def pick(self, weights: Sequence[float]) -> int:
        """Draw by the weights."""
        at = self.rng.random() * sum(weights)
        return next((i for i, until in enumerate(accumulate(weights)) if at < until), max(i for i, w in enumerate(weights) if w > 0))


@dataclass(frozen=True)
class Corner(Chooser):
    """Takes an end or an option by its number, so that a file's extremes can be tried before anything is drawn."""

    number: int

    def share(self) -> float:
        """Take the ends in turn."""
        return self.number % 2 * (1 - 2**-53)

    def pick(self, weights: Sequence[float]) -> int:
        """Take the options in turn."""
        return self.number % len(weights)


@dataclass(frozen=True)
class Draw:
    """One drawing: its options as the file has them, and what was taken."""

    chooser: Chooser
    taken: dict[str, Any] = field(default_factory=dict)
    """What was drawn, by a dotted path."""

    def value(self, raw: object, key: Key, what: str, path: str) -> Any:  # noqa: ANN401 - a number, text, or rows of them
        """Return a plain value, having drawn what is to be drawn; `what` begins a sentence about it."""
        if isinstance(raw, Mapping):
            value = self.taken[path] = self._between(raw, key, what) if "between" in raw else self._one_of(raw, what)
            return value
        if isinstance(raw, list):
            keys = _column_keys(key, len(raw))
            return [self.value(one, of, what, f"{path}.{i}") for i, (one, of) in enumerate(zip(raw, keys, strict=True))]
        return raw

    def _between(self, raw: Mapping[str, Any], key: Key, what: str) -> float | int | str:
        _only(raw, ("between",), what)
        ends = raw["between"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise ValueError(f"{what} needs two ends, as in {{ between = [1, 2] }}")
        wanted = _plain_type(key.wanted)
        if wanted not in (int, float, str):
            raise ValueError(f"{what} is no single number: use one_of, or draw the numbers inside its brackets")
        # A direction is text, and degrees are one way to write it.
        low, high = (Key(int if wanted is int else float, key.doc).read(end, what) for end in ends)
        if not low <= high:
            raise ValueError(f"{what} is drawn between {low:g} and {high:g}: put the smaller first")
        if wanted is int:
            return low + int(self.chooser.share() * (high - low + 1))
        value = low + self.chooser.share() * (high - low)
        return f"{value:.6f}" if wanted is str else value

    def _one_of(self, raw: Mapping[str, Any], what: str) -> Any:  # noqa: ANN401
        _only(raw, ("one_of", "weights"), what)
        options = raw.get("one_of")
        if not isinstance(options, list) or not options:
            raise ValueError(f"{what} needs a list of options, as in {{ one_of = [1, 2] }}")
        weights = raw.get("weights", [1] * len(options))
        if not isinstance(weights, list) or len(weights) != len(options):
            raise ValueError(f"{what} needs a weight for each of its {len(options)} options")
        return options[self.chooser.pick(checked_weights(weights, what))]


def checked_weights(weights: Sequence[object], what: str) -> list[float]:
    """Refuse weights by which nothing can be drawn."""
    numbers = [Key(float).read(weight, f"{what}: a weight") for weight in weights]
    if min(numbers) < 0 or not sum(numbers) > 0:
        raise ValueError(f"{what} needs weights of 0 or more, not all of them 0")
    return numbers


def most_options(raw: object) -> int:
    """Return the largest number of options of anything that is drawn."""
    if isinstance(raw, Mapping):
        options = raw.get("one_of")
        return max((len(options) if isinstance(options, list) else 2, *map(most_options, raw.values())))
    return max(map(most_options, raw), default=1) if isinstance(raw, list) else 1


def _only(raw: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in raw:
        if name not in known:
            raise ValueError(f"{what} is drawn by between, or by one_of with weights, not by {name!r}: {suggestion(name, known)}")


def _plain_type(wanted: Any) -> Any:  # noqa: ANN401 - a type or a form of one
    """Return the first type of a union, as reading does."""
    options = [option for option in typing.get_args(wanted) if option is not type(None)]
    return _plain_type(options[0]) if options and typing.get_origin(wanted) is not tuple else wanted


def _column_keys(key: Key, count: int) -> list[Key]:
    """Return the keys of a list's parts: rows are all alike, columns have units of their own."""
    options = typing.get_args(_plain_type(key.wanted))
    if not options:
        return [key] * count  # no list is wanted here, which reading says better
    if options[-1] is ...:
        return [Key(options[0], key.doc)] * count
    unit: Callable[[int], str] = lambda i: f"[{key.units[min(i, len(key.units) - 1)]}]" if key.units else ""  # noqa: E731
    return [Key(options[min(i, len(options) - 1)], unit(i)) for i in range(count)]
