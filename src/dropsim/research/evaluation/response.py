"""The response protocol: do pushes arrive, do people step when people step, fall when people fall, and get up again?

Standing, walking and running people get short pushes of many sizes from all sides; walkers are kicked again and again,
and others are thrown over, tripped and hit by balls. Every pushed person has a twin who is not pushed, with
the same random numbers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.compute.random import Streams
from dropsim.research.evaluation.harness import Arrays, Body, Chunk, Watch, check_seed, chunks_of, run_chunks
from dropsim.research.evaluation.people import (
    SPEEDS,
    Branch,
    Shove,
    measure_recordings,
    push_branches,
    throw_ball,
    trip,
)
from dropsim.research.evaluation.report import Report, Statistic, report_statistics, resampled, share

PARTS = ("push", "walk-perturb", "getup", "trips", "balls", "recorded")
BATCH = 256
"""Branches that are simulated together, about."""
LOST_RANGE = (0.3, 1.3)
"""Impulses over which the velocity lost is judged [N s/kg]."""
THROW = 3.2
"""Impulse that throws people over: 450 N for half a second [N s/kg]."""
WAYS_APART = 0.25
"""Ways of getting up differ when joints are this far apart on average [m]."""
WAY_SHARE = 0.05
"""Share of the people from which on a way of getting up counts."""
FLIP = 45.0
"""Turn of a bone about itself within a frame beyond which it flips [degrees]."""
STOPS: Mapping[float, tuple[str, str, str]] = {
    0.7: ("at most 1.2", "at most 2.5", "at most 0.7"),
    1.3: ("at most 1.8", "at most 3", "at most 1.3"),
}
"""Targets of stop time (median and nine of ten) [s] and stop distance [m] by impulse."""
ANSWERS: Mapping[float, tuple[str, str]] = {
    0.15: ("at most 10 %", "0"),
    0.7: ("at least 80 %", "at most 2 %"),
    2.0: ("", "30 to 95 %"),
}
"""Targets of the shares of people who step and who fall by impulse."""
PUSHED = "push stand"
"""Name of the table of standing people who are pushed."""


@dataclass(frozen=True)
class ResponseProtocol:
    """Perturbations, and numbers of people."""

    people: int = 64
    """People in each cell of a start, an impulse and a direction."""
    starts: tuple[str, ...] = tuple(SPEEDS)
    """People who are pushed: they stand, walk or run."""
    impulses: tuple[float, ...] = (0.15, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0)
    """Impulses of 0.1 s over the mass [N s/kg]."""
    directions: tuple[int, ...] = tuple(range(0, 360, 45))
    """Directions in which they drive people, counterclockwise from the front [degrees]."""
    seconds: float = 4.0
    """Time from a push that is simulated [s]."""
    others: int = 256
    """People who are kicked while they walk, and who are thrown over."""
    getup_seconds: float = 12.0
    """Time from the throw that is simulated [s]: the fallen have eight to get up."""
    trips: int = 32
    balls: int = 16
    """People for each start and direction at whom balls are thrown."""
    ball_angles: tuple[float, ...] = (0.0, 90.0, 180.0, 270.0)
    """Directions from which balls come, counterclockwise from the front [degrees]."""
    recorded: int = 100
    """Clips of the bank that are measured for comparison."""
    seed: int = 0
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if unknown := set(self.parts) - set(PARTS):
            raise ValueError(f"the response protocol has no part {min(unknown)!r}: choose among {', '.join(PARTS)}")
        if min(self.people, self.others, self.trips, self.balls) < 1:
            raise ValueError("the response protocol needs at least one person")

    @classmethod
    def quick(cls, **given: Any) -> "ResponseProtocol":  # noqa: ANN401
        """Return a small version within about a minute and a half of CPU time."""
        pushes = {"impulses": (0.15, 0.7, 2.0), "directions": (0, 90, 180, 270)}
        few = {"people": 8, "others": 16, "trips": 16, "balls": 4, "recorded": 40}
        return cls(**{"seconds": 3.0, **pushes, **few, **given})

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work."""
        return [chunk for part in PARTS if part in self.parts for chunk in self._part(part, body)]

    def _part(self, part: str, body: Body) -> Iterator[Chunk]:
        match part:
            case "push":
                for start in self.starts:
                    yield from self._pushes(body, start)
            case "walk-perturb" | "getup":
                yield from self._drawn(part, body)
            case "trips":
                yield from chunks_of("trips", trip, body, self._seeds(self.trips))
            case "balls":
                for start, angle in product(("stand", "walk"), self.ball_angles):
                    yield from chunks_of("balls", throw_ball, body, self._seeds(self.balls), start=start, angle=angle)
            case _:
                yield from chunks_of("recorded", measure_recordings, body, range(self.recorded), self.recorded)

    def _seeds(self, count: int) -> list[int]:
        return [self.seed + i for i in range(count)]

    def _pushes(self, body: Body, start: str) -> Iterator[Chunk]:
        """Yield people who each get every push, and none."""
        shoves = [Shove(impulse, degrees) for impulse, degrees in product(self.impulses, self.directions)]
        cases = [(), *((shove,) for shove in shoves)]
        seeds, size = self._seeds(self.people), max(1, BATCH // len(cases))
        for some in (seeds[i : i + size] for i in range(0, self.people, size)):
            branches = [Branch(person, case) for case in cases for person in range(len(some))]
            options = {"start": start, "branches": branches, "num_frames": round(self.seconds * 30) + 1}
            yield Chunk(f"push {start}", push_branches, body, tuple(some), options)

    def _drawn(self, part: str, body: Body) -> Iterator[Chunk]:
        """Yield people who each get shoves of their own, an equal number of each start."""
        starts, seconds = (("stand", "walk"), self.getup_seconds) if part == "getup" else (("walk",), 15.0)
        frames, seeds = round(seconds * 30) + 1, self._seeds(max(1, self.others // len(starts)))
        for start, first in product(starts, range(0, len(seeds), BATCH // 4)):
            some = seeds[first : first + BATCH // 4]
            branches = [Branch(i, self._shoves(part, Streams(10_000_019 + seed))) for i, seed in enumerate(some)]
            options = {"start": start, "branches": branches, "num_frames": frames}
            yield Chunk(part, push_branches, body, tuple(some), options)

    def _shoves(self, part: str, rng: Streams) -> tuple[Shove, ...]:
        if part == "getup":
            return (Shove(THROW, 360 * float(rng.uniform()), 15),)
        # Walk-Perturb: up to 0.5 m/s every second for 15 s (BeyondMimic, Diffuse-CLoC).
        drawn = enumerate(rng.uniform(15, 2).tolist())
        return tuple(Shove(0.5 * size, 360 * turn, 1, 30 * i, "body") for i, (size, turn) in drawn)


def evaluate_response(
    body: Body, protocol: ResponseProtocol, folder: Path, *, workers: int = 1, watch: Watch = None
) -> Report:
    """Run the protocol in chunks that are saved in a folder."""
    tables = run_chunks(protocol.chunks(body), folder, workers=workers, watch=watch)
    others = f"{protocol.others} in each other part, {protocol.trips} trips"
    caption = f"{protocol.people} people in each cell, {others}"
    title = "Answers to pushes, kicks, throws, trips and balls"
    statistics = [*response_statistics(tables), *_more_statistics(tables)]
    return report_statistics("response", title, statistics, protocol, caption, tables)


def response_statistics(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield the statistics of the parts that were run."""
    if "fell" in tables.get(PUSHED, ()):
        yield from _pushes(tables)
    if "fell" in tables.get("walk-perturb", ()):
        law = "published: BeyondMimic 0 %, Diffuse-CLoC 16 % (second-hand)"
        yield share("Walk-Perturb: fell", tables["walk-perturb"]["fell"], "at most 2 %", law)
    if "trips" in tables:
        trips = {key: values[tables["trips"]["caught"]] for key, values in tables["trips"].items()}
        yield share("trip: fell", trips["fell"], "25 to 60 %", "older adults tripped at a walk: 10 of 61 (Pai)")
        law = "momentum carries people on over a caught foot"
        yield resampled("trip: speed kept", "ratio", trips["speed_kept"], np.mean, law=law)
    if "balls" in tables:
        balls = {key: values[tables["balls"]["hit"]] for key, values in tables["balls"].items()}
        yield share("ball: fell", balls["fell"], law="8 kg at 8 m/s, about 0.9 N s/kg")
        yield resampled("ball: largest mismatch", "ratio", balls["mismatch"], np.max, law="0: action is reaction")
    if "fell" in tables.get("getup", ()):
        yield from _falls(tables)
    ledgers = {"pushed people": tables.get(PUSHED, {}), "recordings": tables.get("recorded", {})}
    for name, people in ledgers.items():
        if "ledger" in people:
            yield from _ledgers(name, people["ledger"])


def _lost(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield the velocity that pushes lose: impulse over mass less the change of velocity, 0.1 s after the push's end."""
    cells = list[np.ndarray]()
    for people in (people for name, people in tables.items() if name.startswith("push ") and "lost" in people):
        keys = np.stack((people["impulse"], people["degrees"]), -1)
        for impulse, degrees in dict.fromkeys(map(tuple, keys.tolist())):
            if LOST_RANGE[0] <= impulse <= LOST_RANGE[1]:
                cells.append(people["lost"][(keys == (impulse, degrees)).all(-1)])
    if cells:
        worst = max(cells, key=lambda lost: abs(float(np.mean(lost))))
        lost = abs(float(np.mean(worst)))
        error = float(np.std(worst, ddof=1) / len(worst) ** 0.5) if len(worst) > 1 else math.nan
        name, law = "pushes: velocity lost, worst cell", "feet brake by 1.5 to 2 m/s^2 without a step"
        yield Statistic(name, lost, "m/s", len(worst), error, "at most 0.25", law)


def _pushes(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield how standing people answer pushes of 0.1 s from eight sides; stops are of people who do not fall."""
    yield from _lost(tables)
    people = tables[PUSHED]
    for impulse in dict.fromkeys(people["impulse"][people["impulse"] > 0].tolist()):
        some = people["impulse"] == impulse
        yield from _answers(impulse, {key: values[some] for key, values in people.items() if key != "finished"})


def _answers(impulse: float, people: Arrays) -> Iterator[Statistic]:
    """Yield the answers to one impulse."""
    name, stepped, fell = f"push {impulse:g} N s/kg", people["stepped"], people["fell"]
    (median, late, distance), (few, falls) = STOPS.get(impulse, ("", "", "")), ANSWERS.get(impulse, ("", ""))
    mild, strong = "recovered by one or two steps within about a second", "beyond one step of young women (Wojcik 1999)"
    law = mild if impulse < 1.6 else strong
    yield share(f"{name}: stepped", stepped, few, "steps begin at 0.2 (backward) to 0.4 N s/kg (after Hof)")
    if impulse > 0.4:
        changed = "a changed step from 0.3 s on (Hof 2010)"
        yield resampled(f"{name}: first step", "s", people["lift_off"][stepped], np.median, law=changed)
    time, way = people["stop_time"][~fell], people["stop_distance"][~fell]
    yield resampled(f"{name}: stop time, median", "s", time, np.median, median, law)
    yield resampled(f"{name}: stop time, nine of ten", "s", time, lambda t: np.quantile(t, 0.9), late, "6 s is never")
    yield resampled(f"{name}: stop distance, median", "m", way, np.median, distance, law)
    yield share(f"{name}: fell", fell, falls, "one step recovers from 0.87 to 1.6 N s/kg (Wojcik 1999)")


def _falls(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield how people fall and get up again."""
    down = {key: values[tables["getup"]["fell"]] for key, values in tables["getup"].items() if key != "finished"}
    rises, spins = down["rise"][np.isfinite(down["rise"]).all((1, 2, 3))].astype(float), down["spin"]
    yield share("thrown over: got up", down["got_up"], "at least 95 %", "upright within 8 s")

    def ways(some: np.ndarray) -> int:
        return int((np.array(ways_up(some)) >= WAY_SHARE).sum())

    law = "people get up in several ways, as recorded"
    yield resampled("thrown over: ways of getting up", "ways", rises, ways, law=law)
    law = "bodies on the floor do not whirl (DROP 8.6)"
    yield resampled("thrown over: largest spin", "rad/s", spins[np.isfinite(spins)], np.max, "at most 8", law)
    parts = [tables[name] for name in (PUSHED, "walk-perturb", "getup") if "fell" in tables.get(name, ())]
    flips = np.concatenate([part["twist"][part["fell"]] > FLIP for part in parts])
    name = f"falls: shin or foot turns by {FLIP:g} degrees in a frame"
    yield share(name, flips, "at most 2 %", "no recording does")


def _ledgers(name: str, ledger: np.ndarray) -> Iterator[Statistic]:
    """Yield the 99th percentile of unexplained impulses of half a second."""
    pushed = name == "pushed people"
    law = "momentum changes by forces only" if pushed else "what measuring recordings costs"
    parts = (("linear", "m/s", "at most 0.1"), ("angular", "rad/s", "below the recordings'"))
    for i, (part, unit, target) in enumerate(parts):
        label, values = f"ledger of {name}: {part}", ledger[..., i]
        yield resampled(label, unit, values, lambda some: np.quantile(some, 0.99), target if pushed else "", law)


def _more_statistics(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield what only the response protocol reports."""
    for start in SPEEDS:
        people = tables.get(f"push {start}", {})
        for impulse in dict.fromkeys(people["impulse"].tolist()) if start != "stand" and "fell" in people else ():
            law = "recovered within two steps (Hof 2010)" if 0 < impulse <= 0.7 else ""
            target = "at most 3 %" if (start, impulse) == ("walk", 0.7) else ""
            fell = people["fell"][people["impulse"] == impulse]
            yield share(f"{start}, push {impulse:g} N s/kg: fell", fell, target, law)
    if "trips" in tables:
        first = tables["trips"]["hands_first"][tables["trips"]["forward"] & tables["trips"]["caught"]]
        yield share("trip, falls forward: hands before head", first, "at least 80 %")
    if "balls" in tables:
        lost = tables["balls"]["lost"][tables["balls"]["hit"]]
        yield resampled("ball: velocity lost", "m/s", lost, np.mean, "-0.25 to 0.25")


def ways_up(rises: np.ndarray) -> list[float]:
    """Return the shares of people who get up in ways that differ, by clusters of distant joints, the largest first."""
    if len(rises) < 2:
        return [1.0] * len(rises)
    from scipy.cluster.hierarchy import fcluster, linkage

    apart = [np.linalg.norm(rises[i] - rises[i + 1 :], axis=-1).mean((-1, -2)) for i in range(len(rises) - 1)]
    labels = fcluster(linkage(np.concatenate(apart), "average"), WAYS_APART, "distance")
    return sorted((np.bincount(labels)[1:] / len(rises)).tolist(), reverse=True)
