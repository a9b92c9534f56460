"""Values that are drawn: { between = [a, b] } or { one_of = [...], weights = [...] } instead of a plain value."""

import random
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from dropsim.files.names import suggestion
from dropsim.scene.files.schema import Value, plain_type, read_value

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
            value = self.values[path] = (
                self._between(raw, wanted, what) if "between" in raw else self._one_of(raw, what)
            )
            return value
        if isinstance(raw, list):
            return [self.value(one, _part_of(wanted, i), what, f"{path}.{i}") for i, one in enumerate(raw)]
        return raw

    def _between(self, raw: Mapping[str, Any], wanted: Value, what: str) -> float | int | str:
        _refuse_others(raw, ("between",), what)
        ends, (kind, _) = raw["between"], plain_type(wanted)
        if not isinstance(ends, list) or len(ends) != 2:
            raise ValueError(f"{what} needs two ends, as in {{ between = [1, 2] }}")
        if kind not in (int, float, str):
            raise ValueError(f"{what} is no single number: use one_of, or draw the numbers inside its brackets")
        # A direction is text, and degrees are one way to write it.
        low, high = (read_value(float if kind is str else wanted, end, what) for end in ends)
        if not low <= high:
            raise ValueError(f"{what} is drawn between {low:g} and {high:g}: put the smaller first")
        if kind is int:
            return min(high, low + int(self.share() * (high - low + 1)))
        value = low + self.share() * (high - low)
        return f"{value:.6f}" if kind is str else value

    def _one_of(self, raw: Mapping[str, Any], what: str) -> Value:
        _refuse_others(raw, ("one_of", "weights"), what)
        options = raw.get("one_of")
        if not isinstance(options, list) or not 0 < len(options) <= MAX_OPTIONS:
            raise ValueError(f"{what} needs a list of 1 to {MAX_OPTIONS} options, as in {{ one_of = [1, 2] }}")
        weights = raw.get("weights", [1] * len(options))
        if not isinstance(weights, list) or len(weights) != len(options):
            raise ValueError(f"{what} needs a weight for each of its {len(options)} options")
        return options[self.pick(checked_weights(weights, what))]


def checked_weights(weights: Sequence[object], what: str) -> list[float]:
    """Refuse weights that nothing can be drawn by."""
    numbers = [read_value(float, weight, f"{what}: a weight") for weight in weights]
    if min(numbers) < 0 or not sum(numbers) > 0:
        raise ValueError(f"{what} needs weights of 0 or more, not all of them 0")
    return numbers


def most_options(raw: object) -> int:
    """Return the largest number of options of anything that is drawn."""
    if isinstance(raw, Mapping):
        options = raw.get("one_of")
        return max(len(options) if isinstance(options, list) else 2, *map(most_options, raw.values()), 0)
    return max(map(most_options, raw), default=1) if isinstance(raw, list) else 1


def _refuse_others(raw: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in raw:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"{what} is drawn by between, or by one_of with weights, not by {name!r}: {hint}")


def _part_of(wanted: Value, i: int) -> Value:
    """Return the type of a list's i-th part; reading refuses lists where none belongs."""
    options = typing.get_args(kind) if typing.get_origin(kind := plain_type(wanted)[0]) is tuple else ()
    if not options:
        return wanted
    return options[0] if options[-1] is ... else options[min(i, len(options) - 1)]
