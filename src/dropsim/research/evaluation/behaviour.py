"""Behaviour in one table: falls, standing, answers to pushes and trips, get-ups, posture and momentum."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.research.evaluation.harness import Arrays, Body, Chunk, Watch, num_diverged, run_chunks
from dropsim.research.evaluation.report import Report, Statistic, report_statistics, resampled
from dropsim.research.evaluation.response import ResponseProtocol, response_statistics
from dropsim.research.evaluation.steering import (
    FALLS,
    SteeringProtocol,
    measure_bank,
    steering_statistics,
)

IMPULSES = (0.15, 0.7, 1.3, 2.0)
"""Pushes of standing people [N s/kg]."""
PUSHED_SECONDS = 6.8
"""Time from a push that is simulated [s]: 6 s to stop in, and half a second more in which people have to stay."""
PARTS = ("push", "walk-perturb", "getup", "trips", "balls", "recorded")
"""Parts of the response protocol."""


@dataclass(frozen=True)
class BehaviourProtocol:
    """Numbers of people: those of the steering and of the response protocol."""

    steering: SteeringProtocol
    response: ResponseProtocol

    @classmethod
    def sized(cls, people: int = 64, seed: int = 0) -> "BehaviourProtocol":
        """Return the protocol with this number of people in each cell of the pushes, and others in proportion."""
        few = {"people": people, "others": 4 * people, "trips": people, "balls": max(1, people // 4)}
        return cls._of({"people": 3 * people, "seeds": people}, few, seed)

    @classmethod
    def quick(cls, seed: int = 0) -> "BehaviourProtocol":
        """Return a small version within about two minutes of CPU time."""
        steering = {"people": 96, "seconds": 24.0, "seeds": 64}
        return cls._of(steering, {"people": 21, "others": 128, "trips": 64, "balls": 8}, seed)

    @classmethod
    def _of(cls, steering: Mapping[str, Any], response: Mapping[str, Any], seed: int) -> "BehaviourProtocol":
        pushes = {"starts": ("stand",), "impulses": IMPULSES, "seconds": PUSHED_SECONDS, "parts": PARTS, "seed": seed}
        steered = SteeringProtocol(**steering, scenarios=tuple(FALLS), seed=seed)
        return cls(steered, ResponseProtocol(**pushes, **response))

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work, the longest first."""
        return [*self.steering.chunks(body), *self.response.chunks(body), Chunk("bank", measure_bank, body, ())]


@dataclass(frozen=True)
class Behaviour:
    """The statistics of a run."""

    protocol: BehaviourProtocol
    statistics: tuple[Statistic, ...]

    def report(self) -> Report:
        """Lay the statistics out."""
        steering, pushes = self.protocol.steering, self.protocol.response.people
        people = f"{steering.people} people for {steering.seconds:g} s at each speed"
        caption = f"{people}, {pushes} in each cell of the pushes"
        return report_statistics("behaviour", "How people move", self.statistics, self.protocol, caption, {})


def evaluate_behaviour(
    body: Body, protocol: BehaviourProtocol, folder: Path, *, workers: int = 1, watch: Watch = None
) -> Behaviour:
    """Run the protocol in chunks that are saved in a folder, and sum them up."""
    tables = run_chunks(protocol.chunks(body), folder, workers=workers, watch=watch)
    people = sum(len(table["finished"]) for table in tables.values() if "finished" in table)
    law = "a simulation that cannot go on is a defect"
    diverged = float(num_diverged(tables.values()))
    statistics = (
        *steering_statistics(tables, protocol.steering.seconds, tables["bank"]["paces"]),
        *response_statistics(tables),
        *_postures(tables),
        Statistic("diverged people", diverged, "people", people, 0.0, "0", law),
    )
    return Behaviour(protocol, statistics)


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
