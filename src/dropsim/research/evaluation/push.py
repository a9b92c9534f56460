"""The push protocol: people who walk, run and stand are pushed with many forces from many sides, and the outcomes are counted.

Baselines get the same pushes: the prior alone, moved as a free body would be, a ragdoll without a prior, and, where
MuJoCo is installed, a body there that tracks the unpushed motion by springs and dampers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from dropsim.files.tables import shown
from dropsim.files.units import GRAVITY
from dropsim.physics import metrics
from dropsim.research.evaluation import mujoco_ragdoll
from dropsim.research.evaluation.chunks import Arrays, run_chunks
from dropsim.research.evaluation.push_runs import PushChunk, rows_of
from dropsim.research.evaluation.report import counted_table
from dropsim.research.evaluation.trials import (
    ALONE,
    FULL,
    NO_PRIOR,
    RAGDOLL,
    TRACKED,
    Body,
    Trial,
    batched,
    check_seed,
    toward,
)
from dropsim.research.evaluation.windows import NUM_FEATURES, frechet
from dropsim.scene.element import joints_of
from dropsim.scene.perturbations import degrees_of

YIELD_FRAMES = 2
"""Frames within which a pushed body gives way."""
UNPUSHED = "unpushed"
KEYS = ("newtons", "direction", "part", "start", "moment")
"""What groups of people may have in common."""
GROUPS = (("newtons",), *(("newtons", key) for key in KEYS[1:]))
FPS = 30.0


@dataclass(frozen=True)
class PushProtocol:
    """Who is pushed, how, and how often: everything with everything."""

    newtons: tuple[float, ...] = (100.0, 200.0, 300.0, 450.0, 700.0)
    directions: tuple[str, ...] = ("front", "45", "left", "135", "back", "225", "right", "315")
    """Names, or degrees counterclockwise from the front."""
    parts: tuple[str, ...] = ("torso",)
    starts: tuple[str, ...] = ("walk", "run", "stand")
    moments: tuple[float, ...] = (1.0, 1.5)
    """When the push begins: half a second is half a stride, the other foot's turn [s]."""
    seeds: int = 2
    """States of each start."""
    responses: int = 2
    """Times that each is pushed in the same way, with other random numbers."""
    duration: float = 0.5
    """[s]"""
    get_up_seconds: float = metrics.GET_UP
    """Time after the push's end that is simulated, for the fallen to get up [s]."""
    seed: int = 0
    baselines: bool = True
    """Whether the baselines are pushed too."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        lists = (self.newtons, self.directions, self.parts, self.starts, self.moments)
        if not all(lists) or min(self.seeds, self.responses) < 1:
            raise ValueError(
                "a push protocol needs at least one force, direction, part, start, moment, seed and response"
            )
        for part, direction in product(self.parts, self.directions):
            joints_of(part)
            degrees_of(direction)
        if not all(math.isfinite(n) and n >= 0 for n in self.newtons):
            raise ValueError(
                f"a push needs a force of 0 N or more, not {min(self.newtons):g}: turn the direction instead of the sign"
            )
        if not all(0 <= moment <= 60 for moment in self.moments) or not 1 / FPS <= self.duration <= 10:
            raise ValueError("a push begins from 0 to 60 s after the start and lasts up to 10 s")

    @property
    def num_frames(self) -> int:
        """Length of a run."""
        return round((max(self.moments) + self.duration + max(metrics.RECOVERY, self.get_up_seconds)) * FPS) + 1

    def people(self) -> list[Trial]:
        """Return everybody unpushed, in the order of starts, seeds and responses."""
        trials = []
        for (kind, start), own, again in product(enumerate(self.starts), range(self.seeds), range(self.responses)):
            start_seed = self.seed + 1000 * kind + own
            trials.append(Trial(start, start_seed + 100_000 * again, start_seed=start_seed))
        return trials

    def trials(self) -> list[tuple["Case", Trial]]:
        """Return every case and who is pushed in it."""
        cases = []
        frames = max(1, round(self.duration * FPS))
        for newtons, direction, part, moment in product(self.newtons, self.directions, self.parts, self.moments):
            force, first = toward(degrees_of(direction), newtons), round(moment * FPS)
            for number, person in enumerate(self.people()):
                trial = replace(person, force=force, part=part, first=first, frames=frames)
                cases.append((Case(newtons, direction, part, person.start, moment, number), trial))
        return cases


@dataclass(frozen=True)
class Case:
    """How somebody is pushed."""

    newtons: float
    direction: str
    part: str
    start: str
    moment: float
    """[s]"""
    person: int
    """Counted through `PushProtocol.people`."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one push."""

    method: str
    case: Case
    trial: Trial
    numbers: Arrays | None
    """As `push_runs.measured`; None if the simulation could not go on."""


@dataclass(frozen=True)
class PushCell:
    """What became of a group of people."""

    method: str
    newtons: float | None
    direction: str | None
    part: str | None
    start: str | None
    moment: float | None
    """What all of the group have in common; None where they differ."""
    people: int
    diverged: int
    """People whose simulation could not go on; they count in nothing else."""
    recovered: float
    """Share that is upright three seconds after the push's end."""
    fell: float
    """Share that lay at any time after the push."""
    got_up: float
    """Share of those who fell that were upright again within eight seconds; NaN if nobody fell."""
    seconds_to_recover: float
    """Median time from the push's end until those who recover stay upright [s]; NaN if nobody does."""
    steps: float
    """Mean number of footfalls from the push to three seconds after its end."""
    diversity_m: float
    """Mean pairwise distance of responses to the same push in the same state (APD) [m]; NaN with one response."""
    spin: float
    """95th percentile of the pelvis' angular speed while lying, mean of those who lay [rad/s]; NaN if nobody did."""
    frechet: float
    """Frechet distance of the seconds after the push to those of the same people unpushed, or to recordings."""
    gave_way: float
    """Share whose centre of mass had moved in the force's direction within two frames, against the same people
    unpushed."""
    travel_m: float
    """Median travel of the centre of mass along the force by the push's end, against the same people unpushed [m]."""
    deepest_mm: float
    bone_error_percent: float

    @property
    def body_weights(self) -> float:
        """Force as a share of an adult's weight; NaN where forces differ."""
        return math.nan if self.newtons is None else self.newtons / (70.0 * GRAVITY)


@dataclass(frozen=True, eq=False)
class PushReport:
    """Everything that was counted."""

    protocol: PushProtocol
    cells: tuple[PushCell, ...]
    """Groups of interest: methods by force, the full method by force and direction, start, part and moment."""
    outcomes: tuple[Outcome, ...]

    def grouped(self, *names: str, method: str | None = FULL) -> tuple[PushCell, ...]:
        """Return the cells in which just these fields are settled."""
        return tuple(
            cell for cell in self.cells
            if (method is None or cell.method == method) and all((getattr(cell, key) is not None) == (key in names) for key in KEYS)
        )  # fmt: skip


def evaluate_push(
    body: Body, protocol: PushProtocol, folder: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None,
    recorded: np.ndarray | None = None,
) -> PushReport:  # fmt: skip
    """Run the protocol, in chunks that are kept in a folder; realism is against recorded windows if these are given."""
    bodies = {FULL: body}
    if protocol.baselines:
        bodies |= {ALONE: body.changed(num_samples=2), RAGDOLL: body.changed(**NO_PRIOR)}
    if protocol.baselines and mujoco_ragdoll.installed():
        bodies[TRACKED] = body
    people, cases = protocol.people(), protocol.trials()
    work = [(UNPUSHED, body, people), *((method, one, [trial for _, trial in cases]) for method, one in bodies.items())]
    chunks = [
        PushChunk(method, one, part, protocol.num_frames) for method, one, trials in work for part in batched(trials)
    ]
    rows = [row for arrays in run_chunks(chunks, folder, workers=workers, watch=watch) for row in rows_of(arrays)]
    unpushed, pushed = rows[: len(people)], iter(rows[len(people) :])
    outcomes = [Outcome(method, case, trial, next(pushed)) for method in bodies for case, trial in cases]
    real = _windows(unpushed) if recorded is None else recorded
    cells = [cell for method in bodies for names in GROUPS for cell in _cells(outcomes, method, names, unpushed, real)]
    return PushReport(protocol, tuple(cells), tuple(outcomes))


def _windows(rows: Sequence[Arrays | None]) -> np.ndarray:
    return np.concatenate([np.zeros((0, NUM_FEATURES)), *(row["features"] for row in rows if row is not None)])


def _cells(
    outcomes: Sequence[Outcome], method: str, names: Sequence[str], unpushed: Sequence[Arrays | None], real: np.ndarray
) -> list[PushCell]:
    """Group the outcomes of a method by some fields of their cases, in the order in which they come."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.method == method:
            groups.setdefault(tuple(getattr(outcome.case, name) for name in names), []).append(outcome)
    common = dict.fromkeys(KEYS)
    return [
        _cell(method, common | dict(zip(names, key, strict=True)), group, unpushed, real)
        for key, group in groups.items()
    ]


def _cell(
    method: str,
    common: Mapping[str, object],
    group: Sequence[Outcome],
    unpushed: Sequence[Arrays | None],
    real: np.ndarray,
) -> PushCell:
    whole = [(o, o.numbers) for o in group if o.numbers is not None]
    column = {name: np.array([numbers[name] for _, numbers in whole]) for name in MEASURES}
    fell, recovered = column["fell"].astype(bool), column["recovered"].astype(bool)
    moved = np.array(
        [way for o, numbers in whole if (way := _travel(o.trial, numbers, unpushed[o.case.person]))]
    ).reshape(-1, 2)
    numbers = {
        "recovered": _of(np.mean, recovered),
        "fell": _of(np.mean, fell),
        "got_up": _of(np.mean, column["got_up"][fell]),
        "seconds_to_recover": _of(np.median, column["seconds_to_recover"][recovered]),
        "steps": _of(np.mean, column["steps"]),
        "diversity_m": _diversity(whole),
        "spin": _of(np.mean, column["spin"][~np.isnan(column["spin"])]),
        "frechet": frechet(_windows([numbers for _, numbers in whole]), real),
        "gave_way": _of(np.mean, moved[:, 0] > 0),
        "travel_m": _of(np.median, moved[:, 1]),
        "deepest_mm": _of(np.max, column["deepest_mm"]),
        "bone_error_percent": _of(np.max, column["bone_error_percent"]),
    }
    return PushCell(method=method, **common, people=len(whole), diverged=len(group) - len(whole), **numbers)  # pyright: ignore[reportArgumentType]


MEASURES = ("recovered", "fell", "got_up", "seconds_to_recover", "steps", "spin", "deepest_mm", "bone_error_percent")


def _travel(trial: Trial, pushed: Arrays, unpushed: Arrays | None) -> tuple[float, float] | None:
    """Return how far the centre of mass is along the force, two frames into the push and at its end, from where it would be [m]."""
    size = np.linalg.norm(trial.force)
    if unpushed is None or size == 0:
        return None
    moved = (pushed["centre"] - unpushed["centre"]) @ (np.array(trial.force) / size)
    return float(moved[trial.first + YIELD_FRAMES]), float(moved[min(trial.end, len(moved) - 1)])


def _diversity(whole: Sequence[tuple[Outcome, Arrays]]) -> float:
    """Return how far responses to the same push in the same state are apart, mean over pushes and states [m]."""
    groups: dict[object, list[np.ndarray]] = {}
    for outcome, numbers in whole:
        groups.setdefault(replace(outcome.trial, seed=0), []).append(numbers["joints"].astype(float))
    return _of(np.mean, [float(metrics.diversity_m(np.stack(group))) for group in groups.values() if len(group) > 1])


def _of(measure: Callable[..., object], values: np.ndarray | Sequence[float]) -> float:
    return float(measure(values)) if len(values) else math.nan  # pyright: ignore[reportArgumentType]


COLUMNS: Mapping[str, Callable[[PushCell], str]] = {
    "method": lambda c: c.method,
    "force [N]": lambda c: shown(c.newtons, "g"),
    "[body weights]": lambda c: shown(c.body_weights, ".2f"),
    "toward": lambda c: c.direction or "",
    "on the": lambda c: c.part or "",
    "start": lambda c: c.start or "",
    "at [s]": lambda c: shown(c.moment, "g"),
    "people": lambda c: str(c.people),
    "gave way": lambda c: shown(c.gave_way, ".0%"),
    "way [m]": lambda c: shown(c.travel_m, ".2f"),
    "recovered": lambda c: shown(c.recovered, ".0%"),
    "fell": lambda c: shown(c.fell, ".0%"),
    "got up": lambda c: shown(c.got_up, ".0%"),
    "seconds": lambda c: shown(c.seconds_to_recover, ".1f"),
    "steps": lambda c: shown(c.steps, ".1f"),
    "diversity [m]": lambda c: shown(c.diversity_m, ".2f"),
    "spin [rad/s]": lambda c: shown(c.spin, ".1f"),
    "Frechet": lambda c: shown(c.frechet, ".3f"),
    "deepest [mm]": lambda c: shown(c.deepest_mm, ".1f"),
    "bones [%]": lambda c: shown(c.bone_error_percent, ".3f"),
}
"""Columns of the tables by their header."""


def table_rows(cells: Sequence[PushCell]) -> list[list[str]]:
    """Lay cells out under a header, without columns that are empty in all of them."""
    columns = [[title, *map(show, cells)] for title, show in COLUMNS.items()]
    return [list(row) for row in zip(*(column for column in columns if any(column[1:])), strict=True)]


def table(cells: Sequence[PushCell]) -> str:
    """Lay the cells out in Markdown."""
    return counted_table(table_rows(cells), sum(cell.diverged for cell in cells))
