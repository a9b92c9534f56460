"""How people move, in one table: who falls, where they stand, how they answer pushes and trips, get up and hold themselves."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.files.tables import shown
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.report import counted_table
from dropsim.research.evaluation.response import (
    LOST_RANGE,
    WAY_SHARE,
    Found,
    ResponseProtocol,
    Row,
    branch_rows,
    cells_of,
    ways_up,
)
from dropsim.research.evaluation.response_runs import BallChunk, BankChunk, BranchChunk, RecordedChunk, TripChunk
from dropsim.research.evaluation.steering import (
    SETTLED,
    TASKS,
    TURNS,
    WINDOW,
    RecordedPaces,
    SteeringProtocol,
    measured,
    people_of,
)
from dropsim.research.evaluation.trials import Body

IMPULSES = (0.15, 0.7, 1.3, 2.0)
"""Pushes of standing people [N s/kg]."""
PUSHED_SECONDS = 6.8
"""Time from a push that is simulated [s]: 6 s to stop in, and half a second more in which people who stopped have to
stay."""
PARTS = ("push", "walk-perturb", "getup", "trips", "balls", "recorded")
"""Parts of the response protocol."""
AWAY = 0.3
"""People who are told to stand may end this far away [m]."""
FLIP = 45.0
"""A bone that turns farther about itself within a frame flips [degrees]."""
RESAMPLES = 100
STYLES = ("style_speed", "skate", "jerk")
STOPS: Mapping[float, tuple[str, str, str]] = {
    0.7: ("at most 1.2", "at most 2.5", "at most 0.7"), 1.3: ("at most 1.8", "at most 3", "at most 1.3"),
}  # fmt: skip
"""Targets of stop time (median and nine of ten) [s] and stop distance [m] by impulse."""
ANSWERS: Mapping[float, tuple[str, str]] = {
    0.15: ("at most 10 %", "0"), 0.7: ("at least 80 %", "at most 2 %"), 1.3: ("", ""), 2.0: ("", "30 to 95 %"),
}  # fmt: skip
"""Targets of the shares who step and who fall by impulse."""
FALLS: Mapping[str, tuple[str, str]] = {
    "tilt": ("at most 10 %", "the ground tilts by 25 degrees and back"), "slip": ("20 to 60 %", "first slip of older adults: 44 % (Pai)"),
    "trip-curb": ("20 to 70 %", "a curb of 10 cm that is not seen"), "follow": ("0", "steering alone fells nobody"),
    "follow-run": ("0", "steering alone fells nobody"), "lead-by-hand": ("0", "the hand is led by 80 N at most"),
    "lead-by-hand-run": ("at most 10 %", "the hand is led by 80 N at most"),
}  # fmt: skip
"""Target and law of the share who fall, by scenario."""
SCENES = tuple(FALLS)


@dataclass(frozen=True)
class Statistic:
    """One number about how people move.

    The error of a share is a quarter of Wilson's interval of two standard errors, which is not 0 for nobody or
    everybody; that of the worst cell is the standard error of its mean; all others are the standard deviation over 100
    bootstrap samples of the people.
    """

    name: str
    value: float
    unit: str
    people: int
    """Number of people, or of windows or clips of recordings."""
    error: float
    """Sampling error, in the unit."""
    target: str = ""
    """Value to reach; empty for numbers without one."""
    law: str = ""
    """Law or recorded fact by which the number is read."""


@dataclass(frozen=True)
class BehaviourProtocol:
    """People of each kind: those of the steering and of the response protocol."""

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
        return cls._of(
            {"people": 96, "seconds": 24.0, "seeds": 64}, {"people": 21, "others": 128, "trips": 64, "balls": 8}, seed
        )

    @classmethod
    def _of(cls, steering: Mapping[str, Any], response: Mapping[str, Any], seed: int) -> "BehaviourProtocol":
        pushes = ResponseProtocol(
            impulses=IMPULSES, moving_impulses=(), seconds=PUSHED_SECONDS, parts=PARTS, seed=seed, **response
        )
        return cls(SteeringProtocol(**steering, scenarios=SCENES, seed=seed), pushes)

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work, the longest first."""
        pushes = [chunk for chunk in self.response.chunks(body) if not _only_twins(chunk)]
        return [*self.steering.roams(body), *self.steering.scenes(body), *pushes, BankChunk(body)]


def _only_twins(chunk: Chunk) -> bool:
    return (
        isinstance(chunk, BranchChunk) and chunk.part == "push" and not any(branch.shoves for branch in chunk.branches)
    )


@dataclass(frozen=True)
class Behaviour:
    """Everything that was measured."""

    protocol: BehaviourProtocol
    statistics: tuple[Statistic, ...]

    def numbers(self) -> dict[str, Any]:
        """Return all as plain values for JSON."""
        return {"statistics": [asdict(one) for one in self.statistics], "protocol": asdict(self.protocol)}


def evaluate_behaviour(
    body: Body,
    protocol: BehaviourProtocol,
    folder: Path,
    *,
    workers: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> Behaviour:
    """Run the protocol in chunks that are saved in a folder, and sum them up."""
    chunks = protocol.chunks(body)
    results = list(zip(chunks, run_chunks(chunks, folder, workers=workers, watch=watch), strict=True))
    bank = next(arrays for chunk, arrays in results if isinstance(chunk, BankChunk))
    rows, finished = list(branch_rows(results)), [arrays["finished"] for _, arrays in results if "finished" in arrays]
    statistics = (
        *_undisturbed(results, RecordedPaces(bank["paces"]), protocol.steering.seconds),
        *_manoeuvres(results),
        *_pushes([row for row in rows if row[0].part == "push"]),
        *_perturbed(results, rows),
        *_falls([row for *_, row in rows if row is not None and row["fell"]], [row for chunk, _, row in rows if chunk.part == "getup"]),
        *_postures(results, bank),
        *_ledgers(results, [row for chunk, _, row in rows if chunk.part == "push" and row is not None]),
        Statistic("diverged people", float(sum((~one).sum() for one in finished)), "people", sum(map(len, finished)), 0.0, "0",
                  "a simulation that cannot go on is a defect"),
    )  # fmt: skip
    return Behaviour(protocol, statistics)


def share(name: str, flags: np.ndarray | Sequence[Any], target: str = "", law: str = "") -> Statistic:
    """Return the share of people for whom something holds, with a quarter of Wilson's interval of two standard errors."""
    n = len(flags)
    if not n:
        return Statistic(name, math.nan, "share", 0, math.nan, target, law)
    p = float(np.mean(flags))
    return Statistic(name, p, "share", n, math.sqrt(p * (1 - p) / n + 1 / n**2) / (1 + 4 / n), target, law)


def resampled(
    name: str, unit: str, values: np.ndarray, measure: Callable[..., Any], target: str = "", law: str = ""
) -> Statistic:
    """Return a measure of people, who are the rows of an array, with its standard deviation over bootstrap samples of them."""
    n = len(values)
    if not n:
        return Statistic(name, math.nan, unit, 0, math.nan, target, law)
    draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    error = np.std([float(measure(values[draw])) for draw in draws])
    return Statistic(name, float(measure(values)), unit, n, float(error), target, law)


def _undisturbed(results: Found, recorded: RecordedPaces, seconds: float) -> Iterator[Statistic]:
    """Yield what people do whom nobody touches."""
    for task, (start, asked) in TASKS.items():
        people, _ = people_of(results, task)
        name = f"{task} {asked:g} m/s" if asked else task
        target = "at most 1 %" if start == "run" else "0"
        yield share(f"{name}: fell undisturbed", people["fell"], target, f"nobody touches them for {seconds:g} s")
        speed = people["speed"]
        if not asked:
            feet = "told to stand, feet stay"
            yield share(f"{name}: ended more than {AWAY} m away", people["away"] > AWAY, "0", feet)
            yield resampled(f"{name}: farthest end", "m", people["away"], np.max, f"at most {AWAY}", feet)
            yield resampled(
                f"{name}: speed",
                "m/s",
                speed[:, round(SETTLED / WINDOW) :],
                np.mean,
                "at most 0.03",
                "sway of millimetres",
            )
            yield resampled(
                f"{name}: steps",
                "1/min",
                people["steps"] * 60 / seconds,
                np.mean,
                law="shifting a foot now and then is fine",
            )
            continue
        yield resampled(
            f"{name}: speed kept", "ratio", speed[:, 4] / asked, np.mean, law="1: the speed asked for, after 8 s"
        )
        styles = np.stack([people[key] for key in STYLES], -1)
        for i, style in enumerate(("foot skate", "jerk")):

            def ratio(rows: np.ndarray, i: int = i, asked: float = asked) -> float:
                return recorded.ratios({key: rows[..., k] for k, key in enumerate(STYLES)}, asked)[i]

            yield resampled(
                f"{name}: {style}", "ratio", styles, ratio, law="1: that of the bank's recordings of this speed"
            )
    turned = np.concatenate([people_of(results, name)[0]["turn_errors"] for name in TURNS])
    yield resampled(
        "turn of 90 degrees: error", "degrees", turned, np.mean, "at most 12", "0: they go the new way after 1 s"
    )


def _manoeuvres(results: Found) -> Iterator[Statistic]:
    """Yield what people do who crouch, jump, start, stop and turn, and whom nobody touches."""
    for name, values, target in measured(results):
        if name.endswith("[s]"):
            yield resampled(
                name[:-4], "s", values, np.median, f"at most {target:g}", "80 % of the new velocity, or below 0.2 m/s"
            )
        else:
            yield share(
                name, values, "0", "steering alone fells nobody" if name.endswith("fell") else "people do as told"
            )


def _pushes(rows: Sequence[Row]) -> Iterator[Statistic]:
    """Yield how standing people answer pushes of 0.1 s from eight sides; stops are of people who do not fall."""
    low, high = LOST_RANGE
    worst = max(
        (c for c in cells_of(rows, by_direction=True) if low <= c.impulse <= high), key=lambda cell: abs(cell.lost)
    )
    yield Statistic("pushes: velocity lost, worst cell", abs(worst.lost), "m/s", worst.people, worst.lost_error, "at most 0.25",
                    "feet brake by 1.5 to 2 m/s^2 without a step")  # fmt: skip
    for impulse in IMPULSES:
        people = [
            row for _, branch, row in rows if row is not None and branch.shoves and branch.shoves[0].impulse == impulse
        ]
        stepped, lift_off, fell, time, way = (
            np.array([row[key] for row in people])
            for key in ("stepped", "lift_off", "fell", "stop_time", "stop_distance")
        )
        name, (median, late, distance), (few, falls) = (
            f"push {impulse:g} N s/kg",
            STOPS.get(impulse, ("", "", "")),
            ANSWERS[impulse],
        )
        stands = (
            "recovered by one or two steps within about a second"
            if impulse < 1.6
            else "beyond one step of young women (Wojcik 1999)"
        )
        yield share(f"{name}: stepped", stepped, few, "steps begin at 0.2 (backward) to 0.4 N s/kg (after Hof)")
        if impulse > 0.4:
            yield resampled(
                f"{name}: first step", "s", lift_off[stepped], np.median, law="a changed step from 0.3 s on (Hof 2010)"
            )
        yield resampled(f"{name}: stop time, median", "s", time[~fell], np.median, median, stands)
        yield resampled(
            f"{name}: stop time, nine of ten",
            "s",
            time[~fell],
            lambda times: np.quantile(times, 0.9),
            late,
            "6 s is never",
        )
        yield resampled(f"{name}: stop distance, median", "m", way[~fell], np.median, distance, stands)
        yield share(f"{name}: fell", fell, falls, "one step recovers from 0.87 to 1.6 N s/kg (Wojcik 1999)")


def _perturbed(results: Found, rows: Sequence[Row]) -> Iterator[Statistic]:
    """Yield who falls by kicks, trips and balls, and in scenarios."""
    kicked = [row["fell"] for chunk, _, row in rows if chunk.part == "walk-perturb" and row is not None]
    yield share(
        "Walk-Perturb: fell", kicked, "at most 2 %", "published: BeyondMimic 0 %, Diffuse-CLoC 16 % (second-hand)"
    )
    trips, balls = (_joined(results, kind) for kind in (TripChunk, BallChunk))
    caught, hit = trips["caught"], balls["hit"]
    yield share("trip: fell", trips["fell"][caught], "25 to 60 %", "older adults tripped at a walk: 10 of 61 (Pai)")
    yield resampled(
        "trip: speed kept",
        "ratio",
        trips["speed_kept"][caught],
        np.mean,
        law="momentum carries people on over a caught foot",
    )
    yield share("ball: fell", balls["fell"][hit], law="8 kg at 8 m/s, about 0.9 N s/kg")
    yield resampled("ball: largest mismatch", "ratio", balls["mismatch"][hit], np.max, law="0: action is reaction")
    for scene in SCENES:
        people, _ = people_of(results, scene)
        yield share(f"{scene}: fell", people["fell"], *FALLS[scene])
        if scene.startswith("follow"):
            error = people["turn_error_deg"]
            yield resampled(
                f"{scene}: turn error", "degrees", error, np.mean, "at most 12", "0: they go the new way after 1 s"
            )
        if scene.startswith("lead"):
            target = "at most 0.3" if scene == "lead-by-hand" else "at most 0.8"
            yield resampled(f"{scene}: hand off", "m", people["hand_m"], np.mean, target, FALLS[scene][1])


def _joined(results: Found, kind: type[Chunk]) -> Arrays:
    parts = [arrays for chunk, arrays in results if isinstance(chunk, kind)]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _falls(fallen: Sequence[Arrays], thrown: Sequence[Arrays | None]) -> Iterator[Statistic]:
    """Yield how people fall and get up again."""
    down = [row for row in thrown if row is not None and row["fell"]]
    rises = np.array([row["rise"] for row in down if np.isfinite(row["rise"]).all()], dtype=float)
    spins = np.array([row["spin"] for row in down if np.isfinite(row["spin"])])
    yield share("thrown over: got up", [row["got_up"] for row in down], "at least 95 %", "upright within 8 s")
    ways = resampled(
        "thrown over: ways of getting up", "ways", rises, lambda some: (np.array(ways_up(some)) >= WAY_SHARE).sum()
    )
    yield replace(ways, law="people get up in several ways, as recorded")
    yield resampled(
        "thrown over: largest spin", "rad/s", spins, np.max, "at most 8", "bodies on the floor do not whirl (DROP 8.6)"
    )
    flips = [row["twist"] > FLIP for row in fallen]
    yield share(f"falls: shin or foot turns by {FLIP:g} degrees in a frame", flips, "at most 2 %", "no recording does")


def _postures(results: Found, bank: Arrays) -> Iterator[Statistic]:
    """Yield the pitch of head, pelvis and chest of people who walk upright: simulated ones, and those of each source of the bank."""
    walkers = people_of(results, "walk")[0]["pitches"]
    sources = bank["source"][bank["clip"]]
    clips = {source: np.unique(bank["clip"][sources == source]) for source in np.unique(sources).tolist()}
    parts = (("face", "-8 to 3"), ("pelvis", "-5 to 5"), ("chest", "-8 to 8"))
    for i, (part, target) in enumerate(parts):
        law = "people who walk look ahead" if part == "face" else "people who walk are upright"
        yield resampled(f"walkers: {part} pitch", "degrees", walkers[..., i], np.nanmedian, target, law)
        for source, numbers in clips.items():
            pitches = {number: bank["pitches"][bank["clip"] == number, i] for number in numbers.tolist()}

            def median(some: np.ndarray, pitches: Mapping[int, np.ndarray] = pitches) -> float:
                return float(np.median(np.concatenate([pitches[one] for one in some.tolist()])))

            yield resampled(f"recordings of {source}: {part} pitch", "degrees", numbers, median, target, law)


def _ledgers(results: Found, pushed: Sequence[Arrays]) -> Iterator[Statistic]:
    """Yield the 99th percentile of unexplained impulses of half a second: pushed people's and recordings'."""
    recorded = next(arrays["ledger"] for chunk, arrays in results if isinstance(chunk, RecordedChunk))
    ledgers = {"pushed people": np.stack([row["ledger"] for row in pushed]), "recordings": recorded}
    for name, ledger in ledgers.items():
        for i, (part, unit, target) in enumerate(
            (("linear", "m/s", "at most 0.1"), ("angular", "rad/s", "below the recordings'"))
        ):
            law = "momentum changes by forces only" if name == "pushed people" else "what measuring recordings costs"
            target = target if name == "pushed people" else ""
            yield resampled(
                f"ledger of {name}: {part}", unit, ledger[..., i], lambda some: np.quantile(some, 0.99), target, law
            )


def statistic_rows(statistics: Sequence[Statistic]) -> list[list[str]]:
    """Lay statistics out under a header; shares are in percent."""
    rows = [["statistic", "value", "unit", "error", "people", "target", "law or recorded fact"]]
    for one in statistics:
        value, error, unit = (
            (one.value, one.error, one.unit) if one.unit != "share" else (100 * one.value, 100 * one.error, "%")
        )
        rows.append([one.name, shown(value), unit, shown(error, ".2g"), str(one.people), one.target, one.law])
    return rows


def table(behaviour: Behaviour) -> str:
    """Lay all out in Markdown."""
    return counted_table(statistic_rows(behaviour.statistics), 0)
