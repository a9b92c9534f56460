"""Behaviour in one table: falls, standing, answers to pushes and trips, get-ups, posture and momentum."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dropsim.research.evaluation.harness import Arrays, Body, Chunk, num_diverged
from dropsim.research.evaluation.report import Protocol, Statistic, resampled
from dropsim.research.evaluation.response import ResponseProtocol, response_statistics
from dropsim.research.evaluation.steering import FALLS, SteeringProtocol, steering_statistics

PUSHES = {"starts": ("stand",), "impulses": (0.15, 0.7, 1.3, 2.0), "seconds": 6.8}
"""Standing people who are pushed [N s/kg], and the time that is simulated [s]: 6 s to stop in, and half a second more
in which people have to stay."""


@dataclass(frozen=True)
class BehaviourProtocol(Protocol):
    """Numbers of people: those of the steering and of the response protocol."""

    name: ClassVar = "behaviour"
    title: ClassVar = "How people move"
    steering: SteeringProtocol
    response: ResponseProtocol

    @classmethod
    def of(cls, *, quick: bool = False, people: int | None = None, **given: Any) -> "BehaviourProtocol":  # noqa: ANN401
        """Return the protocol with people in each cell of the pushes and others in proportion; 64, or few if quick."""
        n = people or 64
        steering: dict[str, Any] = {"people": 3 * n, "seeds": n}
        response: dict[str, Any] = {**PUSHES, "people": n, "others": 4 * n, "trips": n, "balls": max(1, n // 4)}
        if quick and people is None:  # about two minutes of CPU time
            steering = {"people": 96, "seconds": 24.0, "seeds": 64}
            response = {**PUSHES, "people": 21, "others": 128, "trips": 64, "balls": 8}
        steered = SteeringProtocol(**steering, scenarios=tuple(FALLS), **given)
        return cls(steered, ResponseProtocol(**response, **given))

    @property
    def caption(self) -> str:
        people = f"{self.steering.people} people for {self.steering.seconds:g} s at each speed"
        return f"{people}, {self.response.people} in each cell of the pushes"

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work."""
        return [*self.steering.chunks(body), *self.response.chunks(body)]

    def statistics(self, tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
        """Yield the statistics that both protocols share, postures, and the number of people who diverged."""
        yield from steering_statistics(tables, self.steering.seconds)
        yield from response_statistics(tables)
        yield from _postures(tables)
        people = sum(len(table["finished"]) for table in tables.values() if "finished" in table)
        diverged, law = float(num_diverged(tables.values())), "a simulation that cannot go on is a defect"
        yield Statistic("diverged people", diverged, "people", people, 0.0, "0", law)


def _postures(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield the pitch of head, pelvis and chest of people who walk upright: simulated and recorded, by source."""
    walkers, bank = tables["walk"]["pitches"], tables["bank"]
    sources = bank["source"][bank["clip"]]
    clips = {source: np.unique(bank["clip"][sources == source]) for source in np.unique(sources).tolist()}
    for i, (part, target) in enumerate((("face", "-8 to 3"), ("pelvis", "-5 to 5"), ("chest", "-8 to 8"))):
        law = "people who walk look ahead" if part == "face" else "people who walk are upright"
        yield resampled(f"walkers: {part} pitch", "degrees", walkers[..., i], np.nanmedian, target, law)
        for source, numbers in clips.items():
            pitches = {number: bank["pitches"][bank["clip"] == number, i] for number in numbers.tolist()}

            def median(some: np.ndarray, pitches: Mapping[int, np.ndarray] = pitches) -> float:
                return float(np.median(np.concatenate([pitches[one] for one in some.tolist()])))

            yield resampled(f"recordings of {source}: {part} pitch", "degrees", numbers, median, target, law)
