"""The push protocol: people who walk, run and stand are pushed with many forces from many sides, and what becomes of them is counted.

Beside the whole method stand two baselines under the same pushes: the prior alone, moved as a free body would be, and a ragdoll without a
prior.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from dropsim.physics import metrics
from dropsim.physics.wrench import GRAVITY
from dropsim.research.evaluation.chunks import Arrays, run_chunks
from dropsim.research.evaluation.push_runs import ALONE, PushChunk, rows_of
from dropsim.research.evaluation.trials import Body, Trial, batch_scenes, toward
from dropsim.research.evaluation.windows import NUM_FEATURES, frechet
from dropsim.scene.element import joints_of
from dropsim.scene.perturbations import degrees_of

YIELD_FRAMES = 2
"""Frames within which a pushed body gives way."""
FULL, RAGDOLL, CALM = "full", "ragdoll", "unpushed"
NO_PRIOR = {"kinematic": False, "range_of_motion": False, "correct": False, "num_samples": 1}
"""Momentum, bones and contact only. The range of motion is left out because it keeps a body without a prior thrashing about."""
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
    """Whether the prior alone and the ragdoll are pushed too."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        lists = (self.newtons, self.directions, self.parts, self.starts, self.moments)
        if not all(lists) or min(self.seeds, self.responses) < 1:
            raise ValueError("a push protocol needs at least one force, direction, part, start, moment, seed and response")
        for part, direction in product(self.parts, self.directions):
            joints_of(part)
            degrees_of(direction)
        if not all(math.isfinite(n) and n >= 0 for n in self.newtons):
            raise ValueError(f"a push needs a force of 0 N or more, not {min(self.newtons):g}: turn the direction instead of the sign")
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
    numbers: Mapping[str, np.ndarray] | None
    """As `push_runs.measured`; nothing where the simulation could not go on."""


@dataclass(frozen=True)
class PushCell:
    """What became of a group of people."""

    method: str
    newtons: float | None
    direction: str | None
    part: str | None
    start: str | None
    moment: float | None
    """What all of the group have in common; nothing where they differ."""
    people: int
    diverged: int
    """People whose simulation could not go on; they count in nothing else."""
    recovered: float
    """Share that is upright three seconds after the push's end."""
    fell: float
    """Share that lay at any time after the push."""
    got_up: float
    """Share of the fallen that were upright again within eight seconds; not a number where nobody fell."""
    seconds_to_recover: float
    """Median time from the push's end until those who recover stay upright [s]; not a number where nobody does."""
    steps: float
    """Mean number of footfalls from the push to three seconds after its end."""
    diversity_m: float
    """Mean pairwise distance of responses to the same push in the same state (APD) [m]; not a number with one response."""
    spin: float
    """95th percentile of the pelvis' angular speed while lying, mean of those who lay [rad/s]; not a number where nobody did."""
    frechet: float
    """Frechet distance of the seconds after the push to those of the same people unpushed, or to recordings."""
    gave_way: float
    """Share whose centre of mass had moved in the force's direction within two frames, against the same people unpushed."""
    travel_m: float
    """Median way of the centre of mass along the force by the push's end, against the same people unpushed [m]."""
    deepest_mm: float
    bone_error_percent: float

    @property
    def body_weights(self) -> float:
        """Force as a share of an adult's weight; not a number where forces differ."""
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
        keys = ("newtons", "direction", "part", "start", "moment")
        return tuple(
            cell for cell in self.cells
            if (method is None or cell.method == method) and all((getattr(cell, key) is not None) == (key in names) for key in keys)
        )  # fmt: skip


GROUPS = (("newtons",), ("newtons", "direction"), ("newtons", "start"), ("newtons", "part"), ("newtons", "moment"))


def evaluate_push(
    body: Body, protocol: PushProtocol, folder: Path, *, workers: int = 1, watch: Callable[[int, int], None] | None = None,
    recorded: torch.Tensor | None = None,
) -> PushReport:  # fmt: skip
    """Run the protocol, in chunks that are kept in a folder; realism is against recorded windows where these are given."""
    bodies = {FULL: body}
    if protocol.baselines:
        bodies |= {ALONE: body.changed(num_samples=2), RAGDOLL: body.changed(**NO_PRIOR)}
    cases = protocol.trials()
    calm = [PushChunk(CALM, body, part, protocol.num_frames) for part in batch_scenes(protocol.people())]
    pushed = [PushChunk(m, b, part, protocol.num_frames) for m, b in bodies.items() for part in batch_scenes([t for _, t in cases])]
    results = run_chunks([*single_threaded, *pushed], folder, workers=workers, watch=watch)
    unpushed = _rows(single_threaded, results[: len(single_threaded)])
    rows = iter(_rows(pushed, results[len(single_threaded) :]))
    outcomes = [Outcome(method, case, trial, next(rows)) for method in bodies for case, trial in cases]
    real = _windows(unpushed) if recorded is None else recorded
    cells = [cell for method in bodies for names in GROUPS for cell in _cells(outcomes, method, names, unpushed, real)]
    return PushReport(protocol, tuple(cells), tuple(outcomes))


def _rows(chunks: Sequence[PushChunk], results: Sequence[Arrays]) -> list[Mapping[str, np.ndarray] | None]:
    """Take the chunks' results apart, a row for each trial."""
    rows = []
    for chunk, arrays in zip(chunks, results, strict=True):
        named = {name: values for name, values in arrays.items() if name != "finished"}
        rows += [
            None if row is None else {name: np.asarray(values[row]) for name, values in named.items()} for _, row in rows_of(chunk, arrays)
        ]
    return rows


def _windows(rows: Iterable[Mapping[str, np.ndarray] | None]) -> torch.Tensor:
    found = [torch.from_numpy(row["features"]).double() for row in rows if row is not None]
    return torch.cat(found) if found else torch.zeros(0, NUM_FEATURES, dtype=torch.float64)


Rows = Sequence[Mapping[str, np.ndarray] | None]


def _cells(outcomes: Sequence[Outcome], method: str, names: Sequence[str], unpushed: Rows, real: torch.Tensor) -> list[PushCell]:
    """Group the outcomes of a method by some fields of their cases, in the order in which they come."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.method == method:
            groups.setdefault(tuple(getattr(outcome.case, name) for name in names), []).append(outcome)
    common = dict.fromkeys(("newtons", "direction", "part", "start", "moment"))
    return [_cell(method, common | dict(zip(names, key, strict=True)), group, unpushed, real) for key, group in groups.items()]


def _cell(method: str, common: Mapping[str, object], group: Sequence[Outcome], unpushed: Rows, real: torch.Tensor) -> PushCell:
    whole = [(o, o.numbers) for o in group if o.numbers is not None]
    column = {name: np.array([numbers[name] for _, numbers in whole]) for name in _COUNTED}
    fell, recovered = column["fell"].astype(bool), column["recovered"].astype(bool)
    ways = [way for o, numbers in whole if (way := _way(o.trial, numbers, unpushed[o.case.person])) is not None]
    numbers = {
        "recovered": _mean(recovered),
        "fell": _mean(fell),
        "got_up": _mean(column["got_up"][fell]),
        "seconds_to_recover": _median(column["seconds_to_recover"][recovered]),
        "steps": _mean(column["steps"]),
        "diversity_m": _diversity(whole),
        "spin": _mean(column["spin"][~np.isnan(column["spin"])]),
        "frechet": frechet(_windows([numbers for _, numbers in whole]), real),
        "gave_way": _mean(np.array([at_once > 0 for at_once, _ in ways])),
        "travel_m": _median(np.array([by_the_end for _, by_the_end in ways])),
        "deepest_mm": max(column["deepest_mm"], default=math.nan),
        "bone_error_percent": max(column["bone_error_percent"], default=math.nan),
    }
    counted = {"people": len(whole), "diverged": len(group) - len(whole)}
    return PushCell(method=method, **common, **counted, **{k: float(v) for k, v in numbers.items()})  # pyright: ignore[reportArgumentType]


_COUNTED = ("recovered", "fell", "got_up", "seconds_to_recover", "steps", "spin", "deepest_mm", "bone_error_percent")


def _way(trial: Trial, pushed: Mapping[str, np.ndarray], calm: Mapping[str, np.ndarray] | None) -> tuple[float, float] | None:
    """Return how far the centre of mass is along the force, two frames into the push and at its end, from where it would be [m]."""
    size = np.linalg.norm(trial.force)
    if calm is None or size == 0:
        return None
    moved = (pushed["centre"] - calm["centre"]) @ (np.array(trial.force) / size)
    return float(moved[trial.first + YIELD_FRAMES]), float(moved[min(trial.end, len(moved) - 1)])


def _diversity(whole: Sequence[tuple[Outcome, Mapping[str, np.ndarray]]]) -> float:
    """Return how far responses to the same push in the same state are apart, mean over pushes and states [m]."""
    groups: dict[object, list[np.ndarray]] = {}
    for outcome, numbers in whole:
        groups.setdefault(replace(outcome.trial, seed=0), []).append(numbers["joints"])
    apart = [float(metrics.diversity_m(torch.from_numpy(np.stack(group)).double())) for group in groups.values() if len(group) > 1]
    return _mean(np.array(apart))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else math.nan


COLUMNS: Mapping[str, tuple[str, Callable[[PushCell], str]]] = {
    "method": ("method", lambda c: c.method),
    "newtons": ("force [N]", lambda c: "" if c.newtons is None else f"{c.newtons:g}"),
    "weights": ("[body weights]", lambda c: _number(c.body_weights, 2)),
    "direction": ("toward", lambda c: c.direction or ""),
    "part": ("on the", lambda c: c.part or ""),
    "start": ("start", lambda c: c.start or ""),
    "moment": ("at [s]", lambda c: "" if c.moment is None else f"{c.moment:g}"),
    "people": ("people", lambda c: str(c.people)),
    "gave_way": ("gave way", lambda c: _percent(c.gave_way)),
    "travel_m": ("way [m]", lambda c: _number(c.travel_m, 2)),
    "recovered": ("recovered", lambda c: _percent(c.recovered)),
    "fell": ("fell", lambda c: _percent(c.fell)),
    "got_up": ("got up", lambda c: _percent(c.got_up)),
    "seconds": ("seconds", lambda c: _number(c.seconds_to_recover, 1)),
    "steps": ("steps", lambda c: _number(c.steps, 1)),
    "diversity_m": ("diversity [m]", lambda c: _number(c.diversity_m, 2)),
    "spin": ("spin [rad/s]", lambda c: _number(c.spin, 1)),
    "frechet": ("Frechet", lambda c: _number(c.frechet, 3)),
    "deepest_mm": ("deepest [mm]", lambda c: _number(c.deepest_mm, 1)),
    "bones": ("bones [%]", lambda c: _number(c.bone_error_percent, 3)),
}
"""Headers of the tables, and what stands under them."""


def table_rows(cells: Sequence[PushCell]) -> list[list[str]]:
    """Lay cells out under a header; what is the same nothing in all of them is left out."""
    columns = [(title, [show(cell) for cell in cells]) for title, show in COLUMNS.values()]
    kept = [(title, values) for title, values in columns if any(values)]
    return [[title for title, _ in kept], *([values[i] for _, values in kept] for i in range(len(cells)))]


def table(cells: Sequence[PushCell]) -> str:
    """Lay the cells out in Markdown."""
    head, *rows = table_rows(cells)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    if lost := sum(c.diverged for c in cells):
        lines += ["", f"{lost} people are not counted because their simulation could not go on."]
    return "\n".join(lines) + "\n"


def cell_names() -> list[str]:
    """Return the names of a cell's fields."""
    return [field.name for field in fields(PushCell)]


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.0%}"


def _number(value: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"
