"""The response protocol: do pushes arrive, do people step when people step, fall when people fall, and get up again?

Standing, walking and running people get short pushes of many sizes from all sides; walkers get PDP's pushes, everybody
gets kicks, and others are thrown over, tripped and hit by balls. Every pushed person has a twin who is not pushed, with
the same random numbers.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.compute.random import Streams
from dropsim.files.tables import shown
from dropsim.files.units import GRAVITY
from dropsim.research.evaluation.branches import SPEEDS, Branch, Shove
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.push_runs import rows_of
from dropsim.research.evaluation.report import counted_table
from dropsim.research.evaluation.response_runs import BallChunk, BranchChunk, RecordedChunk, TripChunk
from dropsim.research.evaluation.scenarios import ScenarioChunk
from dropsim.research.evaluation.trials import ALONE, FULL, RAGDOLL, Body, check_seed
from dropsim.scene.scenarios import SCENARIOS

PARTS = ("push", "baselines", "pdp", "kicks", "walk-perturb", "getup", "trips", "balls", "overlap", "recorded")
BATCH = 256
"""Branches that are simulated together, about."""
LOST_RANGE = (0.3, 1.3)
"""Impulses over which the velocity lost is judged [N s/kg]."""
PDP_FORCE = (0.0745, 0.15)
"""Smallest and largest force of PDP's pushes [body weights]."""
THROW = 3.2
"""Impulse that throws people over: 450 N for half a second [N s/kg]."""
WAYS_APART = 0.25
"""Ways of getting up differ when joints are this far apart on average [m]."""
WAY_SHARE = 0.05
"""A way of getting up that fewer take is none."""


@dataclass(frozen=True)
class ResponseProtocol:
    """Who is perturbed, how, and how often."""

    people: int = 64
    """In each cell: of a start, an impulse and a direction."""
    impulses: tuple[float, ...] = (0.15, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0)
    """Of 0.1 s, over the mass, of standing people [N s/kg]."""
    moving_impulses: tuple[float, ...] = (0.15, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0)
    """Of people who walk or run."""
    directions: tuple[int, ...] = tuple(range(0, 360, 45))
    """Degrees counterclockwise from the front: where they drive people."""
    seconds: float = 4.0
    """Time from a push that is simulated [s]."""
    others: int = 256
    """People who get PDP's pushes, kicks, and are thrown over."""
    kick_seconds: float = 30.0
    """[s]"""
    getup_seconds: float = 12.0
    """Time from the throw that is simulated [s]: the fallen have eight to get up."""
    trips: int = 32
    balls: int = 16
    """People for each start and direction at whom balls are thrown."""
    ball_angles: tuple[float, ...] = (0.0, 90.0, 180.0, 270.0)
    """Where balls come from, counterclockwise from the front [degrees]."""
    scenario_seeds: int = 4
    """Seeds of each scenario in which self-overlap is measured."""
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    recorded: int = 100
    """Clips of the bank that are measured for comparison."""
    seed: int = 0
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if unknown := set(self.parts) - set(PARTS):
            raise ValueError(f"the response protocol has no part {min(unknown)!r}: choose among {', '.join(PARTS)}")
        if min(self.people, self.others, self.trips, self.balls, self.scenario_seeds) < 1:
            raise ValueError("the response protocol needs at least one person")

    @classmethod
    def quick(cls, **given: Any) -> "ResponseProtocol":  # noqa: ANN401
        """Return a small version within about a minute and a half of CPU time."""
        small = {
            "people": 16, "impulses": (0.15, 0.3, 0.7, 1.0, 2.0), "moving_impulses": (0.7,), "directions": (0, 90, 180, 270),
            "seconds": 3.0, "others": 16, "kick_seconds": 10.0, "trips": 16, "balls": 4, "scenario_seeds": 1, "recorded": 40,
            "scenarios": ("push", "push-large", "projectiles", "two-people", "trip", "tilt", "follow-run"),
        }  # fmt: skip
        return cls(**{**small, **given})

    def chunks(self, body: Body) -> list[Chunk]:
        """Return all work."""
        makers: Mapping[str, Callable[[Body], Iterator[Chunk]]] = {
            "push": lambda b: self._pushes(b, "push", FULL, self.people),
            "baselines": lambda b: (
                c for m in (ALONE, RAGDOLL) for c in self._pushes(b, "baselines", m, max(1, self.people // 4))
            ),
            "pdp": self._pdp,
            "kicks": self._kicks,
            "walk-perturb": self._walk_perturb,
            "getup": self._thrown,
            "trips": lambda b: (TripChunk(b, seeds) for seeds in _groups(self._seeds(self.trips), 32)),
            "balls": self._balls,
            "recorded": lambda b: iter((RecordedChunk(b, self.recorded),)),
            "overlap": lambda b: (
                ScenarioChunk(b, name, seeds)
                for name in self.scenarios
                for seeds in _groups(self._seeds(self.scenario_seeds), 8)
            ),
        }
        return [chunk for part in PARTS if part in self.parts for chunk in makers[part](body)]

    def _seeds(self, count: int) -> list[int]:
        return [self.seed + i for i in range(count)]

    def _pushes(self, body: Body, part: str, method: str, people: int) -> Iterator[Chunk]:
        for start in SPEEDS:
            impulses = self.impulses if start == "stand" else self.moving_impulses
            shoves = [Shove(impulse, degrees) for impulse, degrees in product(impulses, self.directions)]
            cases = [(), *((shove,) for shove in shoves)]
            frames = round(self.seconds * 30) + 1
            for seeds in _groups(self._seeds(people), max(1, BATCH // len(cases))):
                branches = tuple(Branch(person, case) for case in cases for person in range(len(seeds)))
                yield BranchChunk(part, method, body, start, seeds, branches, frames)

    def _drawn(
        self, part: str, body: Body, starts: Sequence[str], draw: Callable[[Streams], tuple[Shove, ...]], frames: int
    ) -> Iterator[Chunk]:
        """Yield people who each get shoves of their own, an equal number of each start."""
        for start in starts:
            for seeds in _groups(self._seeds(max(1, self.others // len(starts))), BATCH // 4):
                branches = tuple(Branch(i, draw(Streams(10_000_019 + seed))) for i, seed in enumerate(seeds))
                yield BranchChunk(part, FULL, body, start, seeds, branches, frames)

    def _pdp(self, body: Body) -> Iterator[Chunk]:
        low, high = (share * GRAVITY * 0.3 for share in PDP_FORCE)

        def draw(rng: Streams) -> tuple[Shove, ...]:
            size, turn = rng.uniform(2)
            return (Shove(low + size * (high - low), 360 * turn, frames=9),)

        return self._drawn("pdp", body, ("walk",), draw, 6 * 30 + 1)

    def _kicks(self, body: Body) -> Iterator[Chunk]:
        times = range(0, round(self.kick_seconds * 30), 60)
        return self._drawn(
            "kicks", body, tuple(SPEEDS), lambda rng: tuple(Shove(0.5, 360 * float(rng.uniform()), 1, at, "body") for at in times),
            round(self.kick_seconds * 30) + 1,
        )  # fmt: skip

    def _walk_perturb(self, body: Body) -> Iterator[Chunk]:
        """Yield walkers whose velocity changes by up to 0.5 m/s every second for 15 s (BeyondMimic, Diffuse-CLoC)."""

        def draw(rng: Streams) -> tuple[Shove, ...]:
            kicks = rng.uniform(15, 2).tolist()
            return tuple(Shove(0.5 * size, 360 * turn, 1, 30 * i, "body") for i, (size, turn) in enumerate(kicks))

        return self._drawn("walk-perturb", body, ("walk",), draw, 15 * 30 + 1)

    def _thrown(self, body: Body) -> Iterator[Chunk]:
        return self._drawn(
            "getup",
            body,
            ("stand", "walk"),
            lambda rng: (Shove(THROW, 360 * float(rng.uniform()), 15),),
            round(self.getup_seconds * 30) + 1,
        )

    def _balls(self, body: Body) -> Iterator[Chunk]:
        for start, angle in product(("stand", "walk"), self.ball_angles):
            for seeds in _groups(self._seeds(self.balls), 32):
                yield BallChunk(body, start, angle, seeds)


def _groups(items: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(items[i : i + size]) for i in range(0, len(items), size)]


@dataclass(frozen=True)
class ResponseCell:
    """What became of a group of people."""

    method: str
    start: str
    impulse: float
    """[N s/kg]; 0 for the unpushed twins."""
    direction: float | int | None
    """Degrees from the front; None for all."""
    people: int
    diverged: int
    """People whose simulation could not go on; they count in nothing else."""
    lost: float
    """Mean of impulse over mass less the change of velocity along the push, 0.1 s after its end [m/s]."""
    lost_error: float
    """Standard error of that [m/s]."""
    stepped: float
    """Share that steps within 2 s although the unpushed twin does not."""
    first_step: float
    """Median time from the push's start to the lift-off of that step [s]."""
    steps: float
    """Mean number of footfalls."""
    fell: float
    """Share that lay at any time after the push."""


@dataclass(frozen=True, eq=False)
class Response:
    """Everything that was measured."""

    protocol: ResponseProtocol
    cells: tuple[ResponseCell, ...]
    placed: Mapping[float | int, np.ndarray] = field(default_factory=dict)
    """First steps of standing people by the direction of the push: to the right and ahead [m]."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """The main numbers by name, for JSON."""


def evaluate_response(
    body: Body,
    protocol: ResponseProtocol,
    folder: Path,
    *,
    workers: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> Response:
    """Run the protocol in chunks that are kept in a folder."""
    chunks = protocol.chunks(body)
    found = list(zip(chunks, run_chunks(chunks, folder, workers=workers, watch=watch), strict=True))
    pushed = [(chunk, branch, row) for chunk, branch, row in branch_rows(found) if chunk.part in ("push", "baselines")]
    cells = [*cells_of(pushed, by_direction=False), *cells_of(pushed, by_direction=True)]
    placed = {}
    for chunk, branch, row in pushed:
        if row is not None and branch.shoves and (chunk.method, chunk.start) == (FULL, "stand") and row["stepped"]:
            placed.setdefault(branch.shoves[0].degrees, []).append(row["placed"])
    placed = {degrees: np.array(places) for degrees, places in placed.items()}
    return Response(protocol, tuple(cells), placed, _numbers(found, cells))


Found = Sequence[tuple[Chunk, Arrays]]
Row = tuple[BranchChunk, Branch, Arrays | None]


def branch_rows(found: Found) -> Iterator[Row]:
    """Yield every branch with its numbers; None if it diverged."""
    for chunk, arrays in found:
        if isinstance(chunk, BranchChunk):
            for branch, row in zip(chunk.branches, rows_of(arrays), strict=True):
                yield chunk, branch, row


def cells_of(pushed: Sequence[Row], *, by_direction: bool) -> list[ResponseCell]:
    """Sum up pushed people by start and impulse, and by direction."""
    groups: dict[tuple[str, str, float, float | int | None], list[Arrays | None]] = {}
    for chunk, branch, row in pushed:
        if by_direction and not branch.shoves:
            continue
        shove = branch.shoves[0] if branch.shoves else Shove(0.0, 0.0)
        key = (chunk.method, chunk.start, shove.impulse, shove.degrees if by_direction else None)
        groups.setdefault(key, []).append(row)
    return [_cell(*key, rows) for key, rows in groups.items()]


def _cell(
    method: str, start: str, impulse: float, degrees: float | int | None, rows: Sequence[Arrays | None]
) -> ResponseCell:
    whole = [row for row in rows if row is not None]
    lost, lift_off, stepped, steps, fell = (
        np.array([row[name] for row in whole], dtype=float) for name in ("lost", "lift_off", "stepped", "steps", "fell")
    )
    error = float(np.std(lost, ddof=1) / len(lost) ** 0.5) if len(lost) > 1 else math.nan
    timed = lift_off[~np.isnan(lift_off)]
    return ResponseCell(
        method, start, impulse, degrees, len(whole), len(rows) - len(whole), mean(lost), error, mean(stepped),
        float(np.median(timed)) if len(timed) else math.nan, mean(steps), mean(fell),
    )  # fmt: skip


def mean(values: np.ndarray | Sequence[Any]) -> float:
    """Return the mean, or NaN of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def _numbers(found: Found, cells: Sequence[ResponseCell]) -> dict[str, Any]:
    """Return the numbers that the parts that were run give."""
    rows: dict[str, list[Arrays]] = {}
    for chunk, _, row in branch_rows(found):
        if row is not None and chunk.method == FULL:
            rows.setdefault(chunk.part, []).append(row)
    numbers: dict[str, Any] = {}
    if "push" in rows:
        numbers |= _push_numbers(rows["push"], [cell for cell in cells if cell.method == FULL])
    for part in ("pdp", "kicks", "walk-perturb"):
        if part in rows:
            numbers[f"{part.replace('-', '_')}_fell"] = mean([row["fell"] for row in rows[part]])
    if "getup" in rows:
        numbers |= _getup_numbers([row for row in rows["getup"] if row["fell"]])
    for kind, name, measure in ((TripChunk, "trips", _trip_numbers), (BallChunk, "balls", _ball_numbers)):
        if parts := [arrays for chunk, arrays in found if isinstance(chunk, kind)]:
            numbers[name] = measure({key: np.concatenate([part[key] for part in parts]) for key in parts[0]})
    if overlaps := [a["overlap_mm"].ravel() for c, a in found if isinstance(c, ScenarioChunk) and "overlap_mm" in a]:
        numbers["self_overlap_p99_mm"] = float(np.quantile(np.concatenate(overlaps), 0.99))
    for recorded in (arrays for chunk, arrays in found if isinstance(chunk, RecordedChunk)):
        force, moment = np.quantile(recorded["ledger"], 0.99, axis=0).tolist()
        overlap = float(np.quantile(recorded["overlap_mm"], 0.99))
        numbers["recorded"] = {"ledger_p99": force, "ledger_moment_p99": moment, "self_overlap_p99_mm": overlap}
    return numbers


def _push_numbers(rows: Sequence[Arrays], cells: Sequence[ResponseCell]) -> dict[str, Any]:
    """Return what the pushes show; shares of standing people are over all directions."""
    low, high = LOST_RANGE
    single = [cell for cell in cells if cell.direction is not None and low <= cell.impulse <= high]
    worst = max(single, key=lambda cell: abs(cell.lost), default=None)
    standing = {cell.impulse: cell for cell in cells if cell.direction is None and cell.start == "stand"}
    walking = {cell.impulse: cell for cell in cells if cell.direction is None and cell.start == "walk"}
    ledger = np.concatenate([row["ledger"] for row in rows])
    force, moment, strict = np.quantile(ledger, 0.99, axis=0)

    def of(cells: Mapping[float, ResponseCell], impulse: float, name: str) -> float:
        return getattr(cells[impulse], name) if impulse in cells else math.nan

    return {
        "lost_max": math.nan if worst is None else abs(worst.lost),
        "lost_max_at": None
        if worst is None
        else f"{worst.start}, {worst.impulse:g} N s/kg, {worst.direction:g} degrees",
        "ledger_p99": float(force),
        "ledger_moment_p99": float(moment),
        "ledger_same_frame_p99": float(strict),
        "stepped_at_0_15": of(standing, 0.15, "stepped"),
        "stepped_at_0_7": of(standing, 0.7, "stepped"),
        "first_step_median": of(standing, 0.7, "first_step"),
        "fell_at_0_3": of(standing, 0.3, "fell"),
        "fell_at_0_7": of(standing, 0.7, "fell"),
        "fell_at_1_0": of(standing, 1.0, "fell"),
        "fell_at_2_0": of(standing, 2.0, "fell"),
        "fell_walk_0_7": of(walking, 0.7, "fell"),
        "fell_unpushed": {cell.start: cell.fell for cell in cells if cell.impulse == 0},
        "ledger_median": float(np.median(ledger[..., 0])),
        "deepest_mm": float(max(row["deepest_mm"] for row in rows)),
        "bone_error_percent": float(max(row["bone_error_percent"] for row in rows)),
        "self_overlap_pushed_p99_mm": float(np.quantile(np.concatenate([row["overlap_mm"] for row in rows]), 0.99)),
    }


def _getup_numbers(fallen: Sequence[Arrays]) -> dict[str, Any]:
    rises = np.array([row["rise"] for row in fallen if np.isfinite(row["rise"]).all()]).astype(float)
    spins = [row["spin"] for row in fallen if np.isfinite(row["spin"])]
    return {
        "getup_people": len(fallen),
        "getup_share": mean([row["got_up"] for row in fallen]),
        "getup_ways": int((np.array(ways_up(rises)) >= WAY_SHARE).sum()),
        "getup_spin_max": float(max(spins, default=math.nan)),
        "getup_hop_max_m": float(max((row["hop"] for row in fallen), default=math.nan)),
    }


def ways_up(rises: np.ndarray) -> list[float]:
    """Return the shares of people who get up in ways that differ, the most common first: clusters at a mean distance of joints."""
    if len(rises) < 2:
        return [1.0] * len(rises)
    from scipy.cluster.hierarchy import fcluster, linkage

    apart = [np.linalg.norm(rises[i] - rises[i + 1 :], axis=-1).mean((-1, -2)) for i in range(len(rises) - 1)]
    labels = fcluster(linkage(np.concatenate(apart), "average"), WAYS_APART, "distance")
    return sorted((np.bincount(labels)[1:] / len(rises)).tolist(), reverse=True)


def _trip_numbers(people: Arrays) -> dict[str, Any]:
    caught = people["caught"]
    fell, forward = people["fell"][caught], people["forward"][caught]
    return {
        "people": int(caught.sum()),
        "speed_kept": mean(people["speed_kept"][caught]),
        "stumbled_on": mean(~fell),
        "fell": mean(fell),
        "forward_falls": int(forward.sum()),
        "hands_before_head": mean(people["hands_first"][caught][forward]),
    }


def _ball_numbers(people: Arrays) -> dict[str, Any]:
    hit = people["hit"]
    return {
        "people": int(hit.sum()),
        "impulse": mean(people["impulse"][hit]),
        "mismatch_max": float(people["mismatch"][hit].max()) if hit.any() else math.nan,
        "lost": mean(people["lost"][hit]),
        "fell": mean(people["fell"][hit]),
    }


COLUMNS: Mapping[str, Callable[[ResponseCell], str]] = {
    "method": lambda c: c.method,
    "start": lambda c: c.start,
    "impulse [N s/kg]": lambda c: f"{c.impulse:g}",
    "toward [degrees]": lambda c: shown(c.direction, "g"),
    "people": lambda c: str(c.people),
    "lost [m/s]": lambda c: shown(c.lost, "+.2f"),
    "stepped": lambda c: shown(c.stepped, ".0%"),
    "first step [s]": lambda c: shown(c.first_step, ".2f"),
    "steps": lambda c: shown(c.steps, ".1f"),
    "fell": lambda c: shown(c.fell, ".1%"),
}


def table_rows(cells: Sequence[ResponseCell]) -> list[list[str]]:
    """Lay cells out under a header, without columns that are empty in all of them."""
    columns = [[title, *map(show, cells)] for title, show in COLUMNS.items()]
    return [list(row) for row in zip(*(column for column in columns if any(column[1:])), strict=True)]


def table(cells: Sequence[ResponseCell]) -> str:
    """Lay the cells out in Markdown."""
    return counted_table(table_rows(cells), sum(cell.diverged for cell in cells)) if cells else ""


def as_json(response: Response) -> dict[str, Any]:
    """Return all numbers as plain values: the main ones by name, then the cells and the protocol."""
    return {
        **response.numbers,
        "cells": [asdict(cell) for cell in response.cells],
        "protocol": asdict(response.protocol),
    }
