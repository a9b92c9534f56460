"""People whom nobody touches: do they stay up, keep the speed, turn when asked to, and move like recorded people?"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dropsim.research.evaluation.harness import Arrays, Body, Chunk, chunks_of, merged
from dropsim.research.evaluation.measures import WINDOW, style_ratio
from dropsim.research.evaluation.people import Want, measure_bank, roamed, run_scenario
from dropsim.research.evaluation.report import Protocol, Statistic, resampled, share
from dropsim.scene.scenarios import SCENARIOS

SETTLED = 4.0
"""Time from which on people should go as asked [s]."""
CROUCH, JUMP = 0.55, 1.15
"""Heights that the app asks for [m]."""
TASKS = {"stand": ("stand", 0.0), "walk": ("walk", 1.2), "run": ("run", 2.5), "fast run": ("run", 3.5)}
"""Starts, and the speeds that are asked for [m/s]."""
DIAGONAL = 2.5 * math.sqrt(0.5)
"""Component of a run at 45 degrees [m/s]."""
MANOEUVRES: Mapping[str, tuple[str, tuple[Want, ...], float]] = {
    "crouch": ("stand", ((0, 0, 0), (1, 0, 0, CROUCH)), 6.0),
    "crouch-walk": ("stand", ((0, 0, 0), (1, 0, 0.6, CROUCH)), 6.0),
    "crouch and up": ("stand", ((0, 0, 0), (1, 0, 0, CROUCH), (3.5, 0, 0)), 6.0),
    "jump": ("stand", ((0, 0, 0), (1, 0, 0, JUMP), (2.5, 0, 0)), 5.0),
    "jump from a walk": ("walk", ((0, 0, 1.2), (1, 0, 1.2, JUMP), (2.5, 0, 1.2)), 5.0),
    "zigzag": ("run", tuple((1.5 * i, DIAGONAL * (-1) ** i, DIAGONAL) for i in range(6)), 9.0),
    "stop and reverse": ("walk", ((0, 0, 1.2), (2, 0, 0), (4, 0, -1.2)), 7.0),
    "start": ("stand", ((0, 0, 0), (1, 0, 1.2)), 4.0),
    "reversal": ("walk", ((0, 0, 1.2), (2, 0, -1.2)), 6.0),
    "turn at a walk": ("walk", ((0, 0, 1.2), (4, -1.2, 0)), 7.0),
    "turn at a run": ("run", ((0, 0, 2.5), (4, -2.5, 0)), 7.0),
}
"""Starts, what people want, and how long [s]; people face +y at the start, and then where they go."""
TURNS = ("turn at a walk", "turn at a run")
RESPONSES = {
    "start": ("start", 0.25),
    "stop": ("stop and reverse", 0.6),
    "turn of 90 degrees": ("turn at a walk", 0.9),
    "reversal": ("reversal", 1.3),
}
"""Manoeuvres whose first change of velocity is timed, and the longest median to reach [s]."""
FALLS = {
    "tilt": ("at most 10 %", "the ground tilts by 25 degrees and back"),
    "slip": ("20 to 60 %", "first slip of older adults: 44 % (Pai)"),
    "trip-curb": ("20 to 70 %", "a curb of 10 cm that is not seen"),
    "follow": ("0", "steering alone fells nobody"),
    "follow-run": ("0", "steering alone fells nobody"),
    "lead-by-hand": ("0", "the hand is led by 80 N at most"),
    "lead-by-hand-run": ("at most 10 %", "the hand is led by 80 N at most"),
}
"""Target and law of the share of people who fall, by scenario."""
HANDS = {"lead-by-hand": "at most 0.3", "lead-by-hand-run": "at most 0.8"}
"""Targets of the mean distance of a led hand [m]."""
AWAY = 0.3
"""Distance from the start at which people who are told to stand may end [m]."""
NEW_WAY = "0: they go the new way after 1 s"


@dataclass(frozen=True)
class SteeringProtocol(Protocol):
    """Numbers of people who are asked for something."""

    name: ClassVar = "steering"
    title: ClassVar = "People whom nobody touches"
    people: int = 64
    """People of each speed."""
    seconds: float = 60.0
    """Time for which they go straight on [s]."""
    seeds: int = 32
    """Seeds of each scenario."""
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    seed: int = 0

    few: ClassVar = {
        "people": 8,
        "seconds": 12.0,
        "seeds": 2,
        "scenarios": ("follow", "follow-run", "lead-by-hand", "projectiles", "projectiles-dodge"),
    }

    @property
    def caption(self) -> str:
        return f"{self.people} people for {self.seconds:g} s, {self.seeds} seeds of each scenario"

    def chunks(self, body: Body) -> list[Chunk]:
        """Return the people who go straight on, those of the manoeuvres, the scenarios, and the bank."""
        straight = {name: (start, ((0, 0, speed),), self.seconds) for name, (start, speed) in TASKS.items()}
        people, seeds = ([self.seed + i for i in range(count)] for count in (self.people, self.seeds))
        chunks = list[Chunk]()
        for name, (start, wants, seconds) in {**straight, **MANOEUVRES}.items():
            chunks += chunks_of(name, roamed, body, people, start=start, wants=wants, seconds=seconds)
        for name in self.scenarios:
            chunks += chunks_of(f"scenario {name}", run_scenario, body, seeds, scenario=name)
        return [*chunks, Chunk("bank", measure_bank, body, ())]

    def statistics(self, tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
        """Yield the shared statistics, and those of the health of everybody."""
        yield from steering_statistics(tables, self.seconds)
        yield from _health({name: people for name, people in tables.items() if "overlap_mm" in people})


def _health(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield falls in other scenarios, and the worst bodies of all: depth, bones, overlap with themselves."""
    for name, people in tables.items():
        scene = name.removeprefix("scenario ")
        if scene != name and scene not in FALLS:
            yield share(f"{scene}: fell", people["fell"])
            if "hits" in people:
                yield resampled(f"{scene}: hits", "hits", people["hits"], np.mean)
    for column, name, unit, q in (
        ("deepest_mm", "largest depth in the ground", "mm", 1.0),
        ("bone_error_percent", "largest error of bones", "%", 1.0),
        ("overlap_mm", "self-overlap, 99th percentile", "mm", 0.99),
    ):
        worst = max(tables, key=lambda one: np.quantile(tables[one][column], q))
        yield resampled(f"{name} ({worst})", unit, tables[worst][column], partial(np.quantile, q=q))


def steering_statistics(tables: Mapping[str, Arrays], seconds: float) -> Iterator[Statistic]:
    """Yield the statistics of people whom nobody touches, of manoeuvres and of scenarios, next to recorded paces."""
    tables = {name: people for name, people in tables.items() if name == "bank" or "fell" in people}
    for task, (start, asked) in TASKS.items():
        if task in tables:
            name, people = f"{task} {asked:g} m/s" if asked else task, tables[task]
            target = "at most 1 %" if start == "run" else "0"
            yield share(f"{name}: fell undisturbed", people["fell"], target, f"nobody touches them for {seconds:g} s")
            if asked:
                yield from _walking(name, asked, people, tables["bank"]["paces"])
            else:
                yield from _standing(name, people, seconds)
    turned = merged([tables[name] for name in TURNS if name in tables]).get("turn_errors", np.zeros(0))
    yield resampled("turn of 90 degrees: error", "degrees", turned, np.mean, "at most 12", NEW_WAY)
    for name, (_, wants, _) in MANOEUVRES.items():
        people = tables.get(name, {"fell": np.zeros(0), "not_done": np.zeros(0)})
        yield share(f"{name}: fell", people["fell"], "0", "steering alone fells nobody")
        if any(len(want) > 3 for want in wants):
            yield share(f"{name}: not done", people["not_done"], "0", "people do as told")
    law = "80 % of the new velocity, or below 0.2 m/s"
    for name, (manoeuvre, target) in RESPONSES.items():
        if manoeuvre in tables:  # of people who stay up
            times = tables[manoeuvre]["responses"][~tables[manoeuvre]["fell"], 0]
            yield resampled(f"{name}: response", "s", times, np.median, f"at most {target:g}", law)
    for scene, (target, law) in FALLS.items():
        if people := tables.get(f"scenario {scene}"):
            yield share(f"{scene}: fell", people["fell"], target, law)
            if "turn_error_deg" in people and scene not in HANDS:
                errors = people["turn_error_deg"]
                yield resampled(f"{scene}: turn error", "degrees", errors, np.mean, "at most 12", NEW_WAY)
            if scene in HANDS:
                yield resampled(f"{scene}: hand off", "m", people["hand_m"], np.mean, HANDS[scene], law)


def _standing(name: str, people: Arrays, seconds: float) -> Iterator[Statistic]:
    law, settled = "told to stand, feet stay", people["speed"][:, round(SETTLED / WINDOW) :]
    yield share(f"{name}: ended more than {AWAY} m away", people["away"] > AWAY, "0", law)
    yield resampled(f"{name}: farthest end", "m", people["away"], np.max, f"at most {AWAY}", law)
    yield resampled(f"{name}: speed", "m/s", settled, np.mean, "at most 0.03", "sway of millimetres")
    steps, law = people["steps"] * 60 / seconds, "shifting a foot now and then is fine"
    yield resampled(f"{name}: steps", "1/min", steps, np.mean, law=law)


def _walking(name: str, asked: float, people: Arrays, recorded: np.ndarray) -> Iterator[Statistic]:
    late = people["speed"][:, min(4, people["speed"].shape[1] - 1)]
    law = "1: the speed asked for, after 8 s"
    yield resampled(f"{name}: speed kept", "ratio", late / asked, np.mean, law=law)
    law = "1: that of the bank's recordings of this speed"
    for style, label in (("skate", "foot skate"), ("jerk", "jerk")):

        def ratio(rows: np.ndarray, style: str = style) -> float:
            return style_ratio(style, rows, recorded, asked)

        yield resampled(f"{name}: {label}", "ratio", people["style"], ratio, law=law)
