"""People whom nobody touches: whether they stay up, go as fast as they are asked to, turn when asked to, and move like recorded people."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.compute.random import Streams
from dropsim.files.tables import shown
from dropsim.motion.motion import Motion
from dropsim.motion.posture import walking_pitches
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
from dropsim.priors.prior import State
from dropsim.research.evaluation.branches import Acted
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.push_runs import rows_of
from dropsim.research.evaluation.report import counted_table
from dropsim.research.evaluation.scenarios import ScenarioChunk, state_of_health, turn_errors
from dropsim.research.evaluation.trials import Body, check_seed, survivors
from dropsim.scene import Person, Scene, World, run
from dropsim.scene.scenarios import SCENARIOS

WINDOW = 2.0
"""Speed is net displacement over this time [s]."""
STYLE = 1.0
"""Foot skate and jerk are compared over windows of this length: recorded runs are hardly longer [s]."""
SETTLED = 4.0
"""From then on people should go as asked [s]."""
TURN_AT = 4.0
"""When the turn is asked for [s]."""
TASKS: Mapping[str, tuple[str, float]] = {"stand": ("stand", 0.0), "walk": ("walk", 1.2), "run": ("run", 2.5), "fast run": ("run", 3.5)}
"""Starts, and the speeds that are asked for [m/s]."""
PITCH_EVERY = 5
"""Frames from one measurement of people's posture to the next."""
NEAR_SPEED = 0.15
"""Recordings this share off a speed are of that speed; standing ones are slower than 0.1 m/s."""
LEAST_WINDOWS = 10
"""At least so many windows of recordings are compared with."""
Row = tuple[float, float, float]


@dataclass(frozen=True)
class RoamChunk(Chunk):
    """People of one start who are asked for velocities, and whom nobody touches."""

    body: Body
    start: str
    velocities: tuple[Row, ...]
    """Rows of time [s] and velocity [m/s], each held until the next."""
    seeds: tuple[int, ...]
    seconds: float

    @property
    def label(self) -> str:
        return f"roam-{self.start}-{self.seeds[0]:06d}"

    def run(self) -> Arrays:
        simulator = self.body.simulator()
        fps = simulator.prior.fps
        frames = round(self.seconds * fps) + 1
        wanted = np.zeros((frames, 2))
        for time, x, y in self.velocities:
            wanted[round(time * fps) :] = (x, y)

        def together(seeds: Sequence[int]) -> Motion:
            people = simulator.prior.start(self.start, list(seeds))
            return roam(simulator, people, np.tile(wanted, (len(seeds), 1, 1)), Streams(list(seeds)), frames)

        motion, finished = survivors(self.seeds, together)
        if motion is None:
            return {"finished": finished}
        turned = turn_errors(motion, wanted) if len(self.velocities) > 1 else np.zeros((finished.sum(), 0))
        return {
            "finished": finished, **state_of_health(motion), **paces(motion), **activity(motion), "turn_errors": turned,
            "away": _net_speed(motion) * motion.duration, "steps": metrics.footfalls(motion),
            "pitches": walking_pitches(motion, every=PITCH_EVERY), "penetration_mm": metrics.penetration_mm(motion),
        }  # fmt: skip


def roam(simulator: Simulator, people: State, wanted: Float[np.ndarray, "b t 2"], rng: Streams, num_frames: int) -> Motion:
    """Return how people go on who want some velocities; NaN for nothing in particular."""
    world = World(Scene((Person(),), (Acted(wanted),)), simulator)
    start = world.start_from(people.map(lambda values: values[:, None]))
    return run(world, num_frames, [], start=start, rng=rng.unflatten(len(people.x), 1)).motions[0]


def paces(motion: Motion) -> Arrays:
    """Return the speed of the windows of two seconds, end to end, and speed, foot skate and jerk of those of one second."""
    style = {"style_speed": _net_speed, "skate": metrics.foot_skate, "jerk": metrics.jerk}
    return {"speed": _windowed(motion, WINDOW, _net_speed)} | {name: _windowed(motion, STYLE, how) for name, how in style.items()}


def _windowed(motion: Motion, seconds: float, measure: Callable[[Motion], Any]) -> np.ndarray:
    span = round(seconds * motion.fps)
    found = [measure(motion.slice(i * span, (i + 1) * span + 1)) for i in range((len(motion) - 1) // span)]
    return np.stack(found, -1) if found else np.zeros((*motion.root.shape[:-2], 0))


def _net_speed(motion: Motion) -> np.ndarray:
    return np.asarray(np.linalg.norm(motion.root[..., -1, :2] - motion.root[..., 0, :2], axis=-1) / motion.duration)


def activity(motion: Motion) -> Arrays:
    """Return the shares of the time in which people stand, walk, run and turn."""
    speed, turn = metrics.root_speed(motion), np.abs(metrics.turn_rate(motion))
    stands, runs = speed < metrics.STANDING, speed > metrics.RUNNING
    flags = {"standing": stands, "walking": ~stands & ~runs, "running": runs, "turning": turn > metrics.TURNING}
    return {name: np.asarray(flag.mean(-1)) for name, flag in flags.items()}


@dataclass(frozen=True, eq=False)
class RecordedPaces:
    """Speed, foot skate and jerk of one-second windows of recordings."""

    windows: Float[np.ndarray, "n 3"]

    @classmethod
    def of(cls, motions: Sequence[Motion]) -> "RecordedPaces":
        """Measure recordings; windows in which somebody is not upright are left out."""
        rows = [np.zeros((0, 3))]
        for motion in motions:
            found = paces(motion)
            up = _windowed(motion, STYLE, lambda part: metrics.upright(part).all(-1)).astype(bool)
            rows.append(np.stack([found[name] for name in ("style_speed", "skate", "jerk")], -1)[up])
        return cls(np.concatenate(rows))

    def ratios(self, people: Arrays, speed: float) -> tuple[float, float]:
        """Return medians of foot skate and jerk of people at a speed over those of recordings; NaN if there are none.

        Recordings are those of that speed, or the ten that are nearest to it.
        """
        off = np.abs(self.windows[:, 0] - speed)
        recorded = self.windows[off <= max(np.sort(off)[:LEAST_WINDOWS].max(initial=0.0), _band(speed))]
        near = np.abs(people["style_speed"] - speed) <= _band(speed)
        if not (len(recorded) and near.any()):
            return math.nan, math.nan
        skate, jerk = (float(np.median(people[name][near]) / np.median(recorded[:, i])) for i, name in ((1, "skate"), (2, "jerk")))
        return skate, jerk


def _band(speed: float) -> float:
    return max(0.1, NEAR_SPEED * speed)


@dataclass(frozen=True)
class SteeringProtocol:
    """Who is asked for what."""

    people: int = 64
    """Of each speed."""
    seconds: float = 60.0
    """[s]"""
    seeds: int = 32
    """Of each scenario."""
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if min(self.people, self.seeds) < 1 or not 6 <= self.seconds <= 3600:
            raise ValueError("steering takes at least one person, one seed and 6 s")

    @classmethod
    def quick(cls, **given: Any) -> "SteeringProtocol":  # noqa: ANN401
        """Return a small version."""
        small = {"people": 8, "seconds": 12.0, "seeds": 2}
        few = ("follow", "follow-run", "lead-by-hand", "projectiles", "projectiles-dodge")
        return cls(**{**small, "scenarios": few, **given})

    def roams(self, body: Body, tasks: Mapping[str, tuple[str, float]] = TASKS) -> list[RoamChunk]:
        """Return the people who go straight on."""
        return [
            RoamChunk(body, start, ((0.0, 0.0, speed),), seeds, self.seconds)
            for start, speed in tasks.values()
            for seeds in self._groups(self.people)
        ]

    def turns(self, body: Body) -> list[RoamChunk]:
        """Return people who are asked for a turn of 90 degrees to the left, walking and running."""
        return [
            RoamChunk(body, start, ((0.0, 0.0, speed), (TURN_AT, -speed, 0.0)), seeds, TURN_AT + 1.5)
            for start, speed in (TASKS["walk"], TASKS["run"])
            for seeds in self._groups(self.people)
        ]

    def scenes(self, body: Body) -> list[ScenarioChunk]:
        """Return the scenarios."""
        return [ScenarioChunk(body, name, seeds) for name in self.scenarios for seeds in self._groups(self.seeds)]

    def _groups(self, count: int) -> list[tuple[int, ...]]:
        seeds = [self.seed + i for i in range(count)]
        return [tuple(seeds[i : i + 32]) for i in range(0, count, 32)]


@dataclass(frozen=True)
class Pace:
    """What people who are asked for a speed do."""

    task: str
    asked: float
    """[m/s]"""
    people: int
    diverged: int
    fell: float
    """Share that fell."""
    speed: float
    """Mean net displacement over two seconds, from the fourth second on [m/s]."""
    speed_kept: float
    """Mean speed in seconds 8 to 10 over the speed asked for; NaN for people who stand."""
    skate_ratio: float
    """Median foot skate over that of recordings of the same speed; NaN without recordings."""
    jerk_ratio: float
    """The same of jerk."""
    penetration_mm: float
    deepest_mm: float
    bone_error_percent: float


def merged(parts: Sequence[Arrays]) -> tuple[Arrays, int]:
    """Put the rows of chunks together; also count the people who diverged."""
    rows = [row for part in parts for row in rows_of(part)]
    whole = [row for row in rows if row is not None]
    return {name: np.stack([row[name] for row in whole]) for name in (whole[0] if whole else ())}, len(rows) - len(whole)


def pace_of(task: str, parts: Sequence[Arrays], recorded: RecordedPaces | None) -> Pace:
    """Sum up what people did who were asked for a speed."""
    asked = TASKS[task][1]
    people, diverged = merged(parts)
    if not people:
        return Pace(task, asked, 0, diverged, *[math.nan] * 8)
    speed = people["speed"]
    late = speed[:, 4] if speed.shape[1] > 4 else speed[:, -1]
    skate, jerk = recorded.ratios(people, asked) if recorded else (math.nan, math.nan)
    return Pace(
        task, asked, len(speed), diverged, float(people["fell"].mean()), float(speed[:, round(SETTLED / WINDOW) :].mean()),
        float(late.mean() / asked) if asked else math.nan, skate, jerk, float(people["penetration_mm"].mean()),
        float(people["deepest_mm"].max()), float(people["bone_error_percent"].max()),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Steering:
    """Everything that was measured."""

    protocol: SteeringProtocol
    paces: tuple[Pace, ...]
    turn_error_deg: float
    """Mean over people who walk and run."""
    scenes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of each scenario."""

    def numbers(self) -> dict[str, Any]:
        """Return all as plain values for JSON."""
        paces = {pace.task: asdict(pace) for pace in self.paces}
        return {"paces": paces, "turn_error_deg": self.turn_error_deg, "scenarios": dict(self.scenes), "protocol": asdict(self.protocol)}


def evaluate_steering(
    body: Body, protocol: SteeringProtocol, folder: Path, *, recorded: RecordedPaces | None = None, workers: int = 1,
    watch: Callable[[int, int], None] | None = None, tasks: Mapping[str, tuple[str, float]] = TASKS,
) -> Steering:  # fmt: skip
    """Run the protocol in chunks that are kept in a folder."""
    chunks = [*protocol.roams(body, tasks), *protocol.turns(body), *protocol.scenes(body)]
    found = list(zip(chunks, run_chunks(chunks, folder, workers=workers, watch=watch), strict=True))
    roams = [(chunk, arrays) for chunk, arrays in found if isinstance(chunk, RoamChunk)]
    straight = [
        pace_of(task, [a for c, a in roams if c.start == start and c.velocities == ((0.0, 0.0, speed),)], recorded)
        for task, (start, speed) in tasks.items()
    ]
    turned, _ = merged([arrays for chunk, arrays in roams if len(chunk.velocities) > 1])
    scenes = {
        name: scene_numbers(*merged([a for c, a in found if isinstance(c, ScenarioChunk) and c.name == name]))
        for name in protocol.scenarios
    }
    error = float(turned["turn_errors"].mean()) if turned else math.nan
    return Steering(protocol, tuple(straight), error, scenes)


def scene_numbers(people: Arrays, diverged: int) -> dict[str, Any]:
    """Sum up a scenario."""
    if not people:
        return {"people": 0, "diverged": diverged}
    numbers = {
        "people": len(people["fell"]),
        "diverged": diverged,
        "fell": float(people["fell"].mean()),
        "deepest_mm": float(people["deepest_mm"].max()),
        "bone_error_percent": float(people["bone_error_percent"].max()),
        "overlap_p99_mm": float(np.quantile(people["overlap_mm"], 0.99)),
    }
    means = {name: float(people[name].mean()) for name in ("speed_ratio", "turn_error_deg", "hand_m", "hits") if name in people}
    return numbers | means


PACE_COLUMNS: Mapping[str, Callable[[Pace], str]] = {
    "asked for": lambda p: f"{p.task}, {p.asked:g} m/s",
    "people": lambda p: str(p.people),
    "fell": lambda p: shown(p.fell, ".1%"),
    "speed [m/s]": lambda p: shown(p.speed, ".2f"),
    "foot skate": lambda p: shown(p.skate_ratio, ".2f"),
    "jerk": lambda p: shown(p.jerk_ratio, ".2f"),
    "penetration [mm]": lambda p: shown(p.penetration_mm, ".2f"),
    "deepest [mm]": lambda p: shown(p.deepest_mm, ".1f"),
    "bones [%]": lambda p: shown(p.bone_error_percent, ".3f"),
}
SCENE_COLUMNS = {
    "people": ("people", "g"), "fell": ("fell", ".1%"), "deepest_mm": ("deepest [mm]", ".1f"), "bone_error_percent": ("bones [%]", ".3f"),
    "overlap_p99_mm": ("self-overlap [mm]", ".0f"), "speed_ratio": ("speed, of asked", ".2f"),
    "turn_error_deg": ("turn error [degrees]", ".0f"),
    "hand_m": ("hand off [m]", ".2f"), "hits": ("hits", ".1f"), "diverged": ("diverged", "g"),
}  # fmt: skip
"""Keys of a scenario's numbers, with their titles and forms."""


def pace_rows(paces: Sequence[Pace]) -> list[list[str]]:
    """Lay paces out under a header; foot skate and jerk are over those of recordings."""
    return [list(PACE_COLUMNS), *([show(pace) for show in PACE_COLUMNS.values()] for pace in paces)]


def scene_rows(scenes: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Lay scenarios out under a header."""
    head = ["scenario", *(title for title, _ in SCENE_COLUMNS.values())]
    return [head, *([name, *(shown(n.get(key), form) for key, (_, form) in SCENE_COLUMNS.items())] for name, n in scenes.items())]


def table(steering: Steering) -> str:
    """Lay all out in Markdown."""
    parts = [counted_table(pace_rows(steering.paces), sum(pace.diverged for pace in steering.paces))]
    parts += [f"Off the way one second after a turn of 90 degrees: {shown(steering.turn_error_deg, '.1f', otherwise='?')} degrees.\n"]
    parts += [counted_table(scene_rows(steering.scenes), 0)] if steering.scenes else []
    return "\n".join(parts)
