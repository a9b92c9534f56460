"""People whom nobody touches: whether they stay up, go as fast as they are asked to, turn when asked to, and move like recorded people."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
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
from dropsim.priors.bank import CROUCHED
from dropsim.priors.prior import State
from dropsim.research.evaluation.branches import JUMPED, Acted
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.push_runs import rows_of
from dropsim.research.evaluation.report import Bound, counted_table, number_rows
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
Want = tuple[float, float, float, float]
"""Time from which on [s] people want a velocity [m/s] and a height of the pelvis [m]; NaN for none in particular."""
CROUCH, JUMP = 0.55, 1.15
"""Heights that the app asks for [m]."""
TASKS: Mapping[str, tuple[str, float]] = {
    "stand": ("stand", 0.0),
    "walk": ("walk", 1.2),
    "run": ("run", 2.5),
    "fast run": ("run", 3.5),
}
"""Starts, and the speeds that are asked for [m/s]."""
PITCH_EVERY = 5
"""Frames from one measurement of people's posture to the next."""
NEAR_SPEED = 0.15
"""Recordings this share off a speed are of that speed; standing ones are slower than 0.1 m/s."""
LEAST_WINDOWS = 10
"""At least so many windows of recordings are compared with."""


def _wants(*rows: tuple[float | int, ...]) -> tuple[Want, ...]:
    return tuple(tuple(map(float, (*row, math.nan)[:4])) for row in rows)  # pyright: ignore[reportReturnType]


MANOEUVRES: Mapping[str, tuple[str, tuple[Want, ...], float]] = {
    "crouch": ("stand", _wants((0, 0, 0), (1, 0, 0, CROUCH)), 6.0),
    "crouch-walk": ("stand", _wants((0, 0, 0), (1, 0, 0.6, CROUCH)), 6.0),
    "crouch and up": ("stand", _wants((0, 0, 0), (1, 0, 0, CROUCH), (3.5, 0, 0)), 6.0),
    "jump": ("stand", _wants((0, 0, 0), (1, 0, 0, JUMP), (2.5, 0, 0)), 5.0),
    "jump from a walk": ("walk", _wants((0, 0, 1.2), (1, 0, 1.2, JUMP), (2.5, 0, 1.2)), 5.0),
    "zigzag": (
        "run",
        _wants(*((1.5 * i, 2.5 * math.sqrt(0.5) * (-1) ** i, 2.5 * math.sqrt(0.5)) for i in range(6))),
        9.0,
    ),
    "stop and reverse": ("walk", _wants((0, 0, 1.2), (2, 0, 0), (4, 0, -1.2)), 7.0),
    "start": ("stand", _wants((0, 0, 0), (1, 0, 1.2)), 4.0),
    "reversal": ("walk", _wants((0, 0, 1.2), (2, 0, -1.2)), 6.0),
    "turn at a walk": ("walk", _wants((0, 0, 1.2), (4, -1.2, 0)), 7.0),
    "turn at a run": ("run", _wants((0, 0, 2.5), (4, -2.5, 0)), 7.0),
}
"""Starts, what people want, and how long [s]; people face +y at the start, and then where they go."""
TURNS = ("turn at a walk", "turn at a run")
RESPONSES: Mapping[str, tuple[str, float]] = {
    "start": ("start", 0.25), "stop": ("stop and reverse", 0.6), "turn of 90 degrees": ("turn at a walk", 0.9),
    "reversal": ("reversal", 1.3),
}  # fmt: skip
"""Manoeuvres whose first change of velocity is timed, and the longest median to reach [s]."""
MANOEUVRE_BOUNDS = {
    **{f"{name}: {what}": Bound(0, 0, "share") for name in MANOEUVRES for what in ("fell", "not done")},
    **{f"{name}: response [s]": Bound(0, target, "median") for name, (_, target) in RESPONSES.items()},
}


@dataclass(frozen=True)
class RoamChunk(Chunk):
    """People of one start who want something, and whom nobody touches."""

    body: Body
    name: str
    start: str
    wants: tuple[Want, ...]
    """Each holds until the next."""
    seeds: tuple[int, ...]
    seconds: float

    @property
    def label(self) -> str:
        return f"roam-{self.name.replace(' ', '-')}-{self.seeds[0]:06d}"

    def run(self) -> Arrays:
        simulator = self.body.simulator()
        fps = simulator.prior.fps
        frames = round(self.seconds * fps) + 1
        wanted = np.full((frames, 3), np.nan)
        for time, *want in self.wants:
            wanted[round(time * fps) :] = want

        def together(seeds: Sequence[int]) -> Motion:
            people = simulator.prior.start(self.start, list(seeds))
            return roam(simulator, people, np.tile(wanted, (len(seeds), 1, 1)), Streams(list(seeds)), frames)

        motion, finished = survivors(self.seeds, together)
        if motion is None:
            return {"finished": finished}
        return {
            "finished": finished, **state_of_health(motion), **paces(motion), "turn_errors": turn_errors(motion, wanted[:, :2]),
            "responses": response_times(motion, wanted[:, :2]), "pitches": walking_pitches(motion, every=PITCH_EVERY),
            "away": _net_speed(motion) * motion.duration, "steps": metrics.footfalls(motion),
            "penetration_mm": metrics.penetration_mm(motion), "not_done": not_done(motion, wanted[:, 2]),
        }  # fmt: skip


def not_done(motion: Motion, height: Float[np.ndarray, "t"]) -> np.ndarray:
    """Tell who did not crouch, as seen in the last second of it, or did not leave the ground although told to."""
    told = motion.root[:, ~np.isnan(height), 2]
    if np.nanmax(height, initial=0.0) > CROUCHED:
        return told.max(-1) < JUMPED * motion.skeleton.standing_height
    return told[:, -round(motion.fps) :].mean(-1) > CROUCHED if told.size else np.zeros(len(told), dtype=np.bool_)


def response_times(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b n"]:
    """Return the times from each change of the wanted velocity until 80 % of it along the new way, or until slower than 0.2 m/s [s].

    The velocity is that of the centre of mass, averaged over the 0.3 s around a frame; the time to the next change
    stands for never.
    """
    centre, span = motion.skeleton.centre_of_mass(motion.joints)[..., :2], round(0.3 * motion.fps)
    velocity = (centre[..., span:, :] - centre[..., :-span, :]) * motion.fps / span
    changes = np.flatnonzero((np.diff(wanted, axis=0) != 0).any(-1)) + 1
    times = [np.zeros((*motion.root.shape[:-2], 0))]
    for change, end in pairwise([*changes.tolist(), len(motion)]):
        own, new = velocity[..., change - span // 2 : end - span // 2, :], wanted[change]
        there = own @ new >= 0.8 * new @ new if new.any() else np.linalg.norm(own, axis=-1) < 0.2
        times.append(np.where(there.any(-1), there.argmax(-1), end - change)[..., None] / motion.fps)
    return np.concatenate(times, -1)


def roam(
    simulator: Simulator, people: State, wanted: Float[np.ndarray, "b t 3"], rng: Streams, num_frames: int
) -> Motion:
    """Return how people go on who want some velocities and heights; NaN for nothing in particular."""
    world = World(Scene((Person(),), (Acted(wanted),)), simulator)
    start = world.start_from(people.map(lambda values: values[:, None]))
    return run(world, num_frames, [], start=start, rng=rng.unflatten(len(people.x), 1)).motions[0]


def paces(motion: Motion) -> Arrays:
    """Return the speed of the windows of two seconds, end to end, and speed, foot skate and jerk of those of one second."""
    style = {"style_speed": _net_speed, "skate": metrics.foot_skate, "jerk": metrics.jerk}
    return {"speed": _windowed(motion, WINDOW, _net_speed)} | {
        name: _windowed(motion, STYLE, how) for name, how in style.items()
    }


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
        skate, jerk = (
            float(np.median(people[name][near]) / np.median(recorded[:, i])) for i, name in ((1, "skate"), (2, "jerk"))
        )
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

    def roams(self, body: Body) -> list[RoamChunk]:
        """Return the people who go straight on, and those of the manoeuvres."""
        straight = {name: (start, _wants((0, 0, speed)), self.seconds) for name, (start, speed) in TASKS.items()}
        kinds = {**straight, **MANOEUVRES}
        groups = self._groups(self.people)
        return [
            RoamChunk(body, name, start, wants, some, length)
            for name, (start, wants, length) in kinds.items()
            for some in groups
        ]

    def scenes(self, body: Body) -> list[ScenarioChunk]:
        """Return the scenarios."""
        return [ScenarioChunk(body, name, seeds) for name in self.scenarios for seeds in self._groups(self.seeds)]

    def _groups(self, count: int) -> list[tuple[int, ...]]:
        seeds = [self.seed + i for i in range(count)]
        return [tuple(seeds[i : i + 32]) for i in range(0, count, 32)]


def merged(parts: Sequence[Arrays]) -> tuple[Arrays, int]:
    """Put the rows of chunks together; also count the people who diverged."""
    rows = [row for part in parts for row in rows_of(part)]
    whole = [row for row in rows if row is not None]
    return {name: np.stack([row[name] for row in whole]) for name in (whole[0] if whole else ())}, len(rows) - len(
        whole
    )


def people_of(found: Sequence[tuple[Chunk, Arrays]], name: str) -> tuple[Arrays, int]:
    """Put the rows of a task, a manoeuvre or a scenario together; also count the people who diverged."""
    return merged([arrays for chunk, arrays in found if getattr(chunk, "name", None) == name])


def measured(found: Sequence[tuple[Chunk, Arrays]]) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield names, people's numbers and targets: who fell, who did not do as told, and response times of those who did not fall."""
    for name, (_, wants, _) in MANOEUVRES.items():
        people = people_of(found, name)[0]
        yield f"{name}: fell", people.get("fell", np.zeros(0)), 0.0
        if any(not math.isnan(height) for *_, height in wants):
            yield f"{name}: not done", people.get("not_done", np.zeros(0)), 0.0
    for name, (manoeuvre, target) in RESPONSES.items():
        if people := people_of(found, manoeuvre)[0]:
            yield f"{name}: response [s]", people["responses"][~people["fell"], 0], target


def pace_of(task: str, people: Arrays, diverged: int, recorded: RecordedPaces | None) -> dict[str, Any]:
    """Sum up what people did who were asked for a speed; `speed_kept` is that of seconds 8 to 10 over the speed asked for."""
    numbers = {"task": task, "asked": TASKS[task][1], **scene_numbers(people, diverged)}
    if not people:
        return numbers
    speed, asked = people["speed"], TASKS[task][1]
    late = speed[:, 4] if speed.shape[1] > 4 else speed[:, -1]
    skate, jerk = recorded.ratios(people, asked) if recorded else (math.nan, math.nan)
    return numbers | {
        "speed": float(speed[:, round(SETTLED / WINDOW) :].mean()), "speed_kept": float(late.mean() / asked) if asked else math.nan,
        "skate_ratio": skate, "jerk_ratio": jerk, "penetration_mm": float(people["penetration_mm"].mean()),
    }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Steering:
    """Everything that was measured."""

    protocol: SteeringProtocol
    paces: Mapping[str, Mapping[str, Any]]
    """Of each task."""
    turn_error_deg: float
    """Mean over people who walk and run."""
    scenes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of each scenario."""
    manoeuvres: Mapping[str, float] = field(default_factory=dict)
    """Shares who fell in each and who did not do it, and medians of response times [s]."""

    def numbers(self) -> dict[str, Any]:
        """Return all as plain values for JSON."""
        own = asdict(self)
        return {"scenarios" if name == "scenes" else name: value for name, value in own.items()}


def evaluate_steering(
    body: Body, protocol: SteeringProtocol, folder: Path, *, recorded: RecordedPaces | None = None, workers: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> Steering:  # fmt: skip
    """Run the protocol in chunks that are kept in a folder."""
    chunks = [*protocol.roams(body), *protocol.scenes(body)]
    found = list(zip(chunks, run_chunks(chunks, folder, workers=workers, watch=watch), strict=True))
    straight = {task: pace_of(task, *people_of(found, task), recorded) for task in TASKS}
    turned = [people["turn_errors"] for name in TURNS if (people := people_of(found, name)[0])]
    error = float(np.concatenate(turned).mean()) if turned else math.nan
    scenes = {name: scene_numbers(*people_of(found, name)) for name in protocol.scenarios}
    sums = {name: float((np.median if "[s]" in name else np.mean)(values)) for name, values, _ in measured(found)}
    return Steering(protocol, straight, error, scenes, sums)


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
    means = {
        name: float(people[name].mean())
        for name in ("speed_ratio", "turn_error_deg", "hand_m", "hits")
        if name in people
    }
    return numbers | means


PACE_COLUMNS = {
    "asked": ("asked for [m/s]", "g"), "people": ("people", "g"), "fell": ("fell", ".1%"), "speed": ("speed [m/s]", ".2f"),
    "skate_ratio": ("foot skate", ".2f"), "jerk_ratio": ("jerk", ".2f"), "penetration_mm": ("penetration [mm]", ".2f"),
    "deepest_mm": ("deepest [mm]", ".1f"), "bone_error_percent": ("bones [%]", ".3f"), "diverged": ("diverged", "g"),
}  # fmt: skip
"""Keys of a task's numbers, with their titles and forms; foot skate and jerk are over those of recordings."""
SCENE_COLUMNS = {
    "people": ("people", "g"), "fell": ("fell", ".1%"), "deepest_mm": ("deepest [mm]", ".1f"), "bone_error_percent": ("bones [%]", ".3f"),
    "overlap_p99_mm": ("self-overlap [mm]", ".0f"), "speed_ratio": ("speed, of asked", ".2f"),
    "turn_error_deg": ("turn error [degrees]", ".0f"),
    "hand_m": ("hand off [m]", ".2f"), "hits": ("hits", ".1f"), "diverged": ("diverged", "g"),
}  # fmt: skip
"""Keys of a scenario's numbers, with their titles and forms."""


def scene_rows(
    scenes: Mapping[str, Mapping[str, Any]], columns: Mapping[str, tuple[str, str]] = SCENE_COLUMNS
) -> list[list[str]]:
    """Lay scenarios or tasks out under a header."""
    head = ["scenario" if columns is SCENE_COLUMNS else "task", *(title for title, _ in columns.values())]
    return [
        head,
        *([name, *(shown(n.get(key), form) for key, (_, form) in columns.items())] for name, n in scenes.items()),
    ]


def table(steering: Steering) -> str:
    """Lay all out in Markdown."""
    parts = [counted_table(scene_rows(steering.paces, PACE_COLUMNS), 0)]
    parts += [
        f"Off the way one second after a turn of 90 degrees: {shown(steering.turn_error_deg, '.1f', otherwise='?')} degrees.\n"
    ]
    parts += [counted_table(number_rows(steering.manoeuvres, MANOEUVRE_BOUNDS), 0)]
    parts += [counted_table(scene_rows(steering.scenes), 0)] if steering.scenes else []
    return "\n".join(parts)
