"""The response protocol: do pushes arrive, do people step when people step, fall when people fall, and get up again?

Standing, walking and running people get short pushes of many sizes from all sides; walkers are kicked again and again,
and others are thrown over, tripped and hit by balls. Every pushed person has a twin who is not pushed, with
the same random numbers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np

from dropsim.compute.random import Streams
from dropsim.research.evaluation.harness import Arrays, Body, Chunk, chunks_of
from dropsim.research.evaluation.measures import ways_up
from dropsim.research.evaluation.people import SPEEDS, Shove, measure_momentum, push_branches, throw_ball, trip
from dropsim.research.evaluation.report import Protocol, Statistic, resampled, share

PARTS = ("push", "walk-perturb", "getup", "trips", "balls", "recorded")
BATCH = 256
"""Branches that are simulated together, about."""
LOST_RANGE = (0.3, 1.3)
"""Impulses over which the velocity lost is judged [N s/kg]."""
THROW = 3.2
"""Impulse that throws people over: 450 N for half a second [N s/kg]."""
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
class ResponseProtocol(Protocol):
    """Perturbations, and numbers of people."""

    name: ClassVar = "response"
    title: ClassVar = "Answers to pushes, kicks, throws, trips and balls"
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

    few: ClassVar = {
        "people": 8,
        "impulses": (0.15, 0.7, 2.0),
        "directions": (0, 90, 180, 270),
        "seconds": 3.0,
        "others": 16,
        "trips": 16,
        "balls": 4,
        "recorded": 40,
    }

    @classmethod
    def of(cls, *, quick: bool = False, people: int | None = None, **given: Any) -> "ResponseProtocol":  # noqa: ANN401
        """Return the protocol with people in each cell of the pushes, and others in proportion."""
        sizes = {}
        if people is not None:
            sizes = {"people": people, "others": 4 * people, "trips": max(4, people // 2), "balls": max(1, people // 4)}
        return super().of(quick=quick, **{**sizes, **given})

    @property
    def caption(self) -> str:
        return f"{self.people} people in each cell, {self.others} in each other part, {self.trips} trips"

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work."""
        pushes = [(Shove(impulse, degrees),) for impulse, degrees in product(self.impulses, self.directions)]
        cases, chunks = [(), *pushes], list[Chunk]()
        for start in self.starts:
            people = [(seed, cases) for seed in self._seeds(self.people)]
            size, frames = max(1, BATCH // len(cases)), round(self.seconds * 30) + 1
            chunks += chunks_of(f"push {start}", push_branches, body, people, size, start=start, num_frames=frames)
        for part, draw, starts, seconds in (
            ("walk-perturb", _kicks, ("walk",), 15.0),
            ("getup", _throw, ("stand", "walk"), self.getup_seconds),
        ):
            seeds, frames = self._seeds(max(1, self.others // len(starts))), round(seconds * 30) + 1
            people = [(seed, [draw(Streams(10_000_019 + seed))]) for seed in seeds]
            for start in starts:
                chunks += chunks_of(part, push_branches, body, people, BATCH // 4, start=start, num_frames=frames)
        chunks += chunks_of("trips", trip, body, self._seeds(self.trips))
        for start, angle in product(("stand", "walk"), self.ball_angles):
            chunks += chunks_of("balls", throw_ball, body, self._seeds(self.balls), start=start, angle=angle)
        chunks += chunks_of("recorded", measure_momentum, body, range(self.recorded), self.recorded)
        return [chunk for chunk in chunks if chunk.name.partition(" ")[0] in self.parts]

    def _seeds(self, count: int) -> list[int]:
        return [self.seed + i for i in range(count)]

    def statistics(self, tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
        """Yield the shared statistics, and those that only this protocol reports."""
        yield from response_statistics(tables)
        for start, impulse in product(("walk", "run"), (0.0, *self.impulses)):
            if "fell" in (people := tables.get(f"push {start}", {})):
                law = "recovered within two steps (Hof 2010)" if 0 < impulse <= 0.7 else ""
                target = "at most 3 %" if (start, impulse) == ("walk", 0.7) else ""
                fell = people["fell"][people["impulse"] == impulse]
                yield share(f"{start}, push {impulse:g} N s/kg: fell", fell, target, law)
        if trips := tables.get("trips"):
            first = trips["hands_first"][trips["forward"] & trips["caught"]]
            yield share("trip, falls forward: hands before head", first, "at least 80 %")
        if balls := tables.get("balls"):
            yield resampled("ball: velocity lost", "m/s", balls["lost"][balls["hit"]], np.mean, "-0.25 to 0.25")


def _kicks(rng: Streams) -> tuple[Shove, ...]:
    """Draw Walk-Perturb: up to 0.5 m/s every second for 15 s (BeyondMimic, Diffuse-CLoC)."""
    drawn = enumerate(rng.uniform(15, 2).tolist())
    return tuple(Shove(0.5 * size, 360 * turn, 1, 30 * i, "body") for i, (size, turn) in drawn)


def _throw(rng: Streams) -> tuple[Shove, ...]:
    return (Shove(THROW, 360 * float(rng.uniform()), 15),)


def response_statistics(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield the statistics of the parts that were run."""
    fallers = {name: people for name, people in tables.items() if "fell" in people}
    if PUSHED in fallers:
        yield _lost([people for name, people in fallers.items() if name.startswith("push ")])
        yield from _pushes(fallers[PUSHED])
    if "walk-perturb" in fallers:
        law = "published: BeyondMimic 0 %, Diffuse-CLoC 16 % (second-hand)"
        yield share("Walk-Perturb: fell", fallers["walk-perturb"]["fell"], "at most 2 %", law)
    if trips := fallers.get("trips"):
        caught, law = trips["caught"], "momentum carries people on over a caught foot"
        yield share("trip: fell", trips["fell"][caught], "25 to 60 %", "older adults tripped at a walk: 10 of 61 (Pai)")
        yield resampled("trip: speed kept", "ratio", trips["speed_kept"][caught], np.mean, law=law)
    if balls := fallers.get("balls"):
        hit, law = balls["hit"], "0: action is reaction"
        yield share("ball: fell", balls["fell"][hit], law="8 kg at 8 m/s, about 0.9 N s/kg")
        yield resampled("ball: largest mismatch", "ratio", balls["mismatch"][hit], np.max, law=law)
    if "getup" in fallers:
        yield from _falls(fallers)
    targets, laws = ("at most 0.1", "below the recordings'"), "momentum changes by forces only"
    yield from _ledgers("pushed people", tables.get(PUSHED, {}), targets, laws)
    yield from _ledgers("recordings", tables.get("recorded", {}), ("", ""), "what measuring recordings costs")


def _lost(pushed: list[Arrays]) -> Statistic:
    """Return the velocity that pushes lose: impulse over mass less the change of velocity, 0.1 s after the push's end."""
    cells = list[np.ndarray]()
    for people in pushed:
        keys = np.stack((people["impulse"], people["degrees"]), -1)
        for impulse, degrees in dict.fromkeys(map(tuple, keys.tolist())):
            if LOST_RANGE[0] <= impulse <= LOST_RANGE[1]:
                cells.append(people["lost"][(keys == (impulse, degrees)).all(-1)])
    worst = max(cells, key=lambda lost: abs(float(np.mean(lost))), default=np.full(1, math.nan))
    error = float(np.std(worst, ddof=1) / len(worst) ** 0.5) if len(worst) > 1 else math.nan
    law = "feet brake by 1.5 to 2 m/s^2 without a step"
    lost = abs(float(np.mean(worst)))
    return Statistic("pushes: velocity lost, worst cell", lost, "m/s", len(worst), error, "at most 0.25", law)


def _pushes(people: Arrays) -> Iterator[Statistic]:
    """Yield how standing people answer pushes of 0.1 s from eight sides; stops are of people who do not fall."""
    for impulse in dict.fromkeys(people["impulse"][people["impulse"] > 0].tolist()):
        some, name = people["impulse"] == impulse, f"push {impulse:g} N s/kg"
        stepped, fell = people["stepped"][some], people["fell"][some]
        (median, late, distance), (few, falls) = STOPS.get(impulse, ("", "", "")), ANSWERS.get(impulse, ("", ""))
        mild = "recovered by one or two steps within about a second"
        law = mild if impulse < 1.6 else "beyond one step of young women (Wojcik 1999)"
        yield share(f"{name}: stepped", stepped, few, "steps begin at 0.2 (backward) to 0.4 N s/kg (after Hof)")
        if impulse > 0.4:
            lift_off, changed = people["lift_off"][some][stepped], "a changed step from 0.3 s on (Hof 2010)"
            yield resampled(f"{name}: first step", "s", lift_off, np.median, law=changed)
        time, way = people["stop_time"][some][~fell], people["stop_distance"][some][~fell]
        yield resampled(f"{name}: stop time, median", "s", time, np.median, median, law)
        yield resampled(f"{name}: stop time, nine of ten", "s", time, partial(np.quantile, q=0.9), late, "6 s is never")
        yield resampled(f"{name}: stop distance, median", "m", way, np.median, distance, law)
        yield share(f"{name}: fell", fell, falls, "one step recovers from 0.87 to 1.6 N s/kg (Wojcik 1999)")


def _falls(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield how people fall and get up again."""
    thrown = tables["getup"]
    got_up, rises, spins = (thrown[column][thrown["fell"]] for column in ("got_up", "rise", "spin"))
    rises = rises[np.isfinite(rises).all((1, 2, 3))].astype(float)
    yield share("thrown over: got up", got_up, "at least 95 %", "upright within 8 s")

    def ways(some: np.ndarray) -> int:
        return int((np.array(ways_up(some)) >= WAY_SHARE).sum())

    law = "people get up in several ways, as recorded"
    yield resampled("thrown over: ways of getting up", "ways", rises, ways, law=law)
    law = "bodies on the floor do not whirl (DROP 8.6)"
    yield resampled("thrown over: largest spin", "rad/s", spins[np.isfinite(spins)], np.max, "at most 8", law)
    parts = [tables[name] for name in (PUSHED, "walk-perturb", "getup") if name in tables]
    flips = np.concatenate([part["twist"][part["fell"]] > FLIP for part in parts])
    name = f"falls: shin or foot turns by {FLIP:g} degrees in a frame"
    yield share(name, flips, "at most 2 %", "no recording does")


def _ledgers(name: str, people: Arrays, targets: tuple[str, str], law: str) -> Iterator[Statistic]:
    """Yield the 99th percentile of unexplained impulses of half a second."""
    for i, (part, unit) in enumerate((("linear", "m/s"), ("angular", "rad/s"))):
        if "ledger" in people:
            impulses, measure = people["ledger"][..., i], partial(np.quantile, q=0.99)
            yield resampled(f"ledger of {name}: {part}", unit, impulses, measure, targets[i], law)
