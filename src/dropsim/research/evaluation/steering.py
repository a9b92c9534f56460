"""People whom nobody touches: do they stay up, keep the speed, turn when asked to, and move like recorded people?"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.motion.posture import walking_pitches
from dropsim.physics import metrics
from dropsim.priors.bank import CROUCHED
from dropsim.research.evaluation.harness import Arrays, Body, Chunk, chunks_of, merged, survivors
from dropsim.research.evaluation.people import JUMPED, Acted, bank_of, roam
from dropsim.research.evaluation.report import Protocol, Statistic, resampled, share
from dropsim.research.evaluation.scenarios import run_scenario, state_of_health, turn_errors
from dropsim.scene.scenarios import SCENARIOS

WINDOW = 2.0
"""Speed is net displacement over this time [s]."""
STYLES = ("speed", "skate", "jerk")
"""Measures of how people move over windows of one second."""
STYLE = 1.0
"""Foot skate and jerk are compared over windows of this length: recorded runs are hardly longer [s]."""
SETTLED = 4.0
"""Time from which on people should go as asked [s]."""
Want = tuple[float | int, ...]
"""Time from which on [s] people want a velocity [m/s] and perhaps a height of the pelvis [m]."""
CROUCH, JUMP = 0.55, 1.15
"""Heights that the app asks for [m]."""
TASKS = {"stand": ("stand", 0.0), "walk": ("walk", 1.2), "run": ("run", 2.5), "fast run": ("run", 3.5)}
"""Starts, and the speeds that are asked for [m/s]."""
PITCH_EVERY = 5
"""Frames from one measurement of people's posture to the next."""
NEAR_SPEED = 0.15
"""Recordings this share off a speed are of that speed; standing ones are slower than 0.1 m/s."""
LEAST_WINDOWS = 10
"""Smallest number of windows of recordings that are compared with."""
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
AWAY = 0.3
"""Distance from the start at which people who are told to stand may end [m]."""
NEW_WAY = "0: they go the new way after 1 s"


def roamed(body: Body, seeds: Sequence[int], *, start: str, wants: Sequence[Want], seconds: float) -> Arrays:
    """Simulate people of one start whom nobody touches; each want holds until the next."""
    simulator = body.simulator()
    fps = simulator.prior.fps
    frames = round(seconds * fps) + 1
    wanted = np.full((frames, 3), np.nan)
    for time, x, y, *height in wants:
        wanted[round(time * fps) :] = (x, y, *(height or [np.nan]))

    def together(some: Sequence[int]) -> Arrays:
        acted = Acted(np.tile(wanted, (len(some), 1, 1)))
        motion = roam(simulator, simulator.prior.start(start, list(some)), acted, Streams(list(some)), frames)
        return {
            **state_of_health(motion, motion),
            **paces(motion),
            "turn_errors": turn_errors(motion, wanted[:, :2]),
            "responses": response_times(motion, wanted[:, :2]),
            "pitches": walking_pitches(motion, every=PITCH_EVERY),
            "away": _net_speed(motion) * motion.duration,
            "steps": metrics.footfalls(motion),
            "not_done": not_done(motion, wanted[:, 2]),
        }

    return survivors(seeds, together)


def not_done(motion: Motion, height: Float[np.ndarray, "t"]) -> np.ndarray:
    """Return who did not crouch, as seen in the last second of it, or did not leave the ground to jump."""
    heights = motion.root[:, ~np.isnan(height), 2]
    if np.nanmax(height, initial=0.0) > CROUCHED:
        return heights.max(-1) < JUMPED * motion.skeleton.standing_height
    if not heights.size:
        return np.zeros(len(heights), dtype=np.bool_)
    return heights[:, -round(motion.fps) :].mean(-1) > CROUCHED


def response_times(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b n"]:
    """Return the times from each change of the wanted velocity until it is reached [s].

    Reached is 80 % of it along the new way, or slower than 0.2 m/s for a stop. The velocity is that of the centre of
    mass, averaged over the 0.3 s around a frame; the time to the next change stands for never.
    """
    centre, span = motion.skeleton.centre_of_mass(motion.joints)[..., :2], round(0.3 * motion.fps)
    velocity = (centre[..., span:, :] - centre[..., :-span, :]) * motion.fps / span
    changes = np.flatnonzero((np.diff(wanted, axis=0) != 0).any(-1)) + 1
    times = [np.zeros((*motion.root.shape[:-2], 0))]
    for change, end in pairwise([*changes.tolist(), len(motion)]):
        actual, new = velocity[..., change - span // 2 : end - span // 2, :], wanted[change]
        there = actual @ new >= 0.8 * new @ new if new.any() else np.linalg.norm(actual, axis=-1) < 0.2
        times.append(np.where(there.any(-1), there.argmax(-1), end - change)[..., None] / motion.fps)
    return np.concatenate(times, -1)


def paces(motion: Motion) -> Arrays:
    """Return the speed of windows of two seconds, end to end, and speed, foot skate and jerk of those of one second."""
    styles = [_windowed(motion, STYLE, how) for how in (_net_speed, metrics.foot_skate, metrics.jerk)]
    return {"speed": _windowed(motion, WINDOW, _net_speed), "style": np.stack(styles, -1)}


def _windowed(motion: Motion, seconds: float, measure: Callable[[Motion], Any]) -> np.ndarray:
    span = round(seconds * motion.fps)
    values = [measure(motion.slice(i * span, (i + 1) * span + 1)) for i in range((len(motion) - 1) // span)]
    return np.stack(values, -1) if values else np.zeros((*motion.root.shape[:-2], 0))


def _net_speed(motion: Motion) -> np.ndarray:
    return np.asarray(np.linalg.norm(motion.root[..., -1, :2] - motion.root[..., 0, :2], axis=-1) / motion.duration)


def recorded_paces(motions: Sequence[Motion]) -> Float[np.ndarray, "n 3"]:
    """Return speed, foot skate and jerk of one-second windows of recordings in which people are upright."""
    rows = [np.zeros((0, 3))]
    for motion in motions:
        up = _windowed(motion, STYLE, lambda part: metrics.upright(part).all(-1)).astype(bool)
        rows.append(paces(motion)["style"][up])
    return np.concatenate(rows)


def style_ratio(style: str, people: Float[np.ndarray, "*b 3"], recorded: np.ndarray, speed: float) -> float:
    """Return the median foot skate or jerk of people at a speed over that of recordings; NaN if there are none.

    Recordings are those of that speed, or the ten that are nearest to it.
    """
    off, k = np.abs(recorded[:, 0] - speed), STYLES.index(style)
    recorded = recorded[off <= max(np.sort(off)[:LEAST_WINDOWS].max(initial=0.0), _band(speed))]
    near = np.abs(people[..., 0] - speed) <= _band(speed)
    if not (len(recorded) and near.any()):
        return math.nan
    return float(np.median(people[..., k][near]) / np.median(recorded[:, k]))


def _band(speed: float) -> float:
    return max(0.1, NEAR_SPEED * speed)


def measure_bank(body: Body, nothing: Sequence[int]) -> Arrays:
    """Measure paces of all recordings of a bank, and how people hold themselves who walk in it."""
    del nothing
    bank = bank_of(body)
    motions = [bank.motion(i) for i in range(len(bank.clips))]
    pitches = [walking_pitches(motion, every=PITCH_EVERY) for motion in motions]
    pitches = [values[np.isfinite(values[:, 0])] for values in pitches]
    return {
        "paces": recorded_paces(motions),
        "pitches": np.concatenate(pitches),
        "clip": np.repeat(np.arange(len(motions)), [len(values) for values in pitches]),
        "source": np.array([info.source for info in bank.clips]),
    }


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 6 <= self.seconds <= 3600:
            raise ValueError(f"people go straight on for 6 s to an hour, not for {self.seconds:g} s")

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
    for key, name, unit in (("deepest_mm", "depth in the ground", "mm"), ("bone_error_percent", "error of bones", "%")):
        worst = max(tables, key=lambda one: tables[one][key].max())
        yield resampled(f"largest {name} ({worst})", unit, tables[worst][key], np.max)
    worst = max(tables, key=lambda one: np.quantile(tables[one]["overlap_mm"], 0.99))
    overlap = tables[worst]["overlap_mm"]
    yield resampled(f"self-overlap, 99th percentile ({worst})", "mm", overlap, lambda some: np.quantile(some, 0.99))


def steering_statistics(tables: Mapping[str, Arrays], seconds: float) -> Iterator[Statistic]:
    """Yield the statistics of people whom nobody touches, of manoeuvres and of scenarios, next to recorded paces."""
    for task, (start, asked) in TASKS.items():
        people = tables[task]
        if "fell" not in people:
            continue
        name = f"{task} {asked:g} m/s" if asked else task
        target = "at most 1 %" if start == "run" else "0"
        yield share(f"{name}: fell undisturbed", people["fell"], target, f"nobody touches them for {seconds:g} s")
        yield from _walking(name, asked, people, tables["bank"]["paces"]) if asked else _standing(name, people, seconds)
    turned = merged([tables[name] for name in TURNS]).get("turn_errors", np.zeros(0))
    yield resampled("turn of 90 degrees: error", "degrees", turned, np.mean, "at most 12", NEW_WAY)
    yield from _manoeuvres(tables)
    for scene in FALLS:
        if "fell" in tables.get(f"scenario {scene}", ()):
            yield from _scene(scene, tables[f"scenario {scene}"])


def _standing(name: str, people: Arrays, seconds: float) -> Iterator[Statistic]:
    law, settled = "told to stand, feet stay", people["speed"][:, round(SETTLED / WINDOW) :]
    yield share(f"{name}: ended more than {AWAY} m away", people["away"] > AWAY, "0", law)
    yield resampled(f"{name}: farthest end", "m", people["away"], np.max, f"at most {AWAY}", law)
    yield resampled(f"{name}: speed", "m/s", settled, np.mean, "at most 0.03", "sway of millimetres")
    steps, law = people["steps"] * 60 / seconds, "shifting a foot now and then is fine"
    yield resampled(f"{name}: steps", "1/min", steps, np.mean, law=law)


def _walking(name: str, asked: float, people: Arrays, recorded: np.ndarray) -> Iterator[Statistic]:
    speed = people["speed"]
    late = speed[:, 4] if speed.shape[1] > 4 else speed[:, -1]
    law = "1: the speed asked for, after 8 s"
    yield resampled(f"{name}: speed kept", "ratio", late / asked, np.mean, law=law)
    law = "1: that of the bank's recordings of this speed"
    for style, label in (("skate", "foot skate"), ("jerk", "jerk")):

        def ratio(rows: np.ndarray, style: str = style) -> float:
            return style_ratio(style, rows, recorded, asked)

        yield resampled(f"{name}: {label}", "ratio", people["style"], ratio, law=law)


def _manoeuvres(tables: Mapping[str, Arrays]) -> Iterator[Statistic]:
    """Yield statistics of people who crouch, jump, start, stop and turn; response times are of people who stay up."""
    for name, (_, wants, _) in MANOEUVRES.items():
        yield share(f"{name}: fell", tables[name].get("fell", ()), "0", "steering alone fells nobody")
        if any(len(want) > 3 for want in wants):
            yield share(f"{name}: not done", tables[name].get("not_done", ()), "0", "people do as told")
    law = "80 % of the new velocity, or below 0.2 m/s"
    for name, (manoeuvre, target) in RESPONSES.items():
        people = tables[manoeuvre]
        if "fell" in people:
            times = people["responses"][~people["fell"], 0]
            yield resampled(f"{name}: response", "s", times, np.median, f"at most {target:g}", law)


def _scene(scene: str, people: Arrays) -> Iterator[Statistic]:
    yield share(f"{scene}: fell", people["fell"], *FALLS[scene])
    if scene.startswith("follow"):
        yield resampled(f"{scene}: turn error", "degrees", people["turn_error_deg"], np.mean, "at most 12", NEW_WAY)
    if scene.startswith("lead"):
        target = "at most 0.3" if scene == "lead-by-hand" else "at most 0.8"
        yield resampled(f"{scene}: hand off", "m", people["hand_m"], np.mean, target, FALLS[scene][1])
