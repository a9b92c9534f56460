"""People among objects: on ice, ramps, curbs and stairs, at walls and under loads; and random scenes full of objects."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.skeleton import joint_index
from dropsim.files.tables import shown
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.contact import Collider, Plane, nearest_surface
from dropsim.physics.step import Report
from dropsim.research.evaluation.chunks import Arrays, Chunk, run_chunks
from dropsim.research.evaluation.random_scenes import RandomChunk, random_numbers
from dropsim.research.evaluation.report import counted_table
from dropsim.research.evaluation.steering import merged
from dropsim.research.evaluation.trials import Body, check_seed, joined
from dropsim.scene import Box, Carry, Follow, Patch, Scene, World
from dropsim.scene.rollout import seen
from dropsim.scene.scenarios import SCENARIOS
from dropsim.scene.solids import SolidObject

GROUP = 32
"""People of a chunk."""
FEET = ("left_ankle", "right_ankle", "left_foot", "right_foot")
SLIPPED = 0.03
"""A foot that slides farther than this while it bears on ice slips; shorter slides go unnoticed (Perkins 1978) [m]."""
BEARING = 0.05
"""A foot bears from this share of the body's weight on: a swinging one brushes the ground with less."""
ICE = 0.2
"""Surfaces with less friction are slippery."""
SETTLED = 1.0
"""From when on speed is measured [s]."""
LOADS = (4.0, 8.0, 12.0, 16.0)
"""In the right hand [kg]."""
PLAIN = "plain"
"""The same walkers on a plane."""
OLDER_ADULTS_FELL = 0.44
"""Share of older adults who fell when they slipped for the first time, unprepared (Pai and others 2010)."""


@dataclass(frozen=True)
class ObjectsChunk(Chunk):
    """One person in a scene, with some seeds."""

    body: Body
    name: str
    scene: Scene
    seeds: tuple[int, ...]
    seconds: float

    @property
    def label(self) -> str:
        return f"objects-{self.name}-{self.seeds[0]:06d}"

    def run(self) -> Arrays:
        world = World(self.scene, self.body.simulator())
        people, finished = watched(world, self.seeds, round(self.seconds * world.fps) + 1)
        if people is None:
            return {"finished": finished}
        return {"finished": finished, **people.numbers(self.scene)}


@dataclass(frozen=True, eq=False)
class Watched:
    """Single people of some worlds, and the ground that they were on."""

    motion: Motion
    floor: Float[np.ndarray, "b t"]
    """Height of the ground under each person [m]."""

    def numbers(self, scene: Scene) -> Arrays:
        """Measure everyone."""
        motion, fps = self.motion, self.motion.fps
        above = motion.joints - self.floor[..., None, None] * np.array([0.0, 0.0, 1.0])
        along = motion.root[:, -1, 1] - motion.root[:, round(SETTLED * fps), 1]
        return {
            "fell": metrics.fell(replace(motion, joints=above, root=above[..., 0, :]), 1),
            "deepest_mm": -1000 * depth(motion, scene)[:, 1:].min((-1, -2)),
            "speed": along / (motion.duration - SETTLED),
            "height": self.floor.max(-1),
            "slide": slides(motion, scene),
            "lean_deg": leans(motion)[:, round(SETTLED * fps) :].mean(-1),
            "beyond": beyond(motion, scene),
            "bone_error_percent": metrics.bone_error_percent(motion),
        }


def watched(world: World, seeds: Sequence[int], num_frames: int) -> tuple[Watched | None, Bool[np.ndarray, "b"]]:
    """Run a world with some seeds; if somebody diverges, it is run again in halves, and they are left out."""
    now, rng = world.start(list(seeds)), world.streams(list(seeds))
    states, reports = [now], list[Report]()
    try:
        for _ in range(num_frames - 1):
            now, report = world.step(now, rng)
            states.append(now)
            reports.append(report)
    except ValueError:  # a DivergedError is one
        if len(seeds) == 1:
            return None, np.zeros(1, dtype=bool)
        parts = [watched(world, half, num_frames) for half in (seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :])]
        found = [people for people, _ in parts if people is not None]
        whole = Watched(joined([p.motion for p in found]), np.concatenate([p.floor for p in found])) if found else None
        return whole, np.concatenate([finished for _, finished in parts])
    level = np.zeros(len(seeds))
    floor = np.stack([level if state.footing is None else state.footing.floor[:, 0] for state in states], -1)
    return Watched(seen(world, states, reports).motions[0], floor), np.ones(len(seeds), dtype=bool)


def colliders_of(scene: Scene, time: float, h: float) -> list[Collider]:
    """Return the ground and all objects that give way to nobody."""
    solid = [e for e in scene.elements if isinstance(e, SolidObject) and getattr(e, "mass", None) is None]
    patches = [e.collider for e in scene.elements if isinstance(e, Patch)]
    return [Plane.ground(), *(shape for e in solid for shape in e.shapes(time, h)), *patches]


def depth(motion: Motion, scene: Scene) -> Float[np.ndarray, "b t 22"]:
    """Return how far every joint's sphere is from the nearest surface, negative inside [m]."""
    surface = nearest_surface(colliders_of(scene, 0.0, 1 / motion.fps), motion.joints)
    return surface.distance - motion.skeleton.radii


def slides(motion: Motion, scene: Scene) -> Float[np.ndarray, "b"]:
    """Return how far a foot slid at most while it bore on a slippery surface, without a break [m]."""
    feet = [joint_index(name) for name in FEET]
    friction = nearest_surface(colliders_of(scene, 0.0, 1 / motion.fps), motion.joints[..., feet, :]).friction
    force = np.linalg.norm(np.asarray(motion.contact_forces)[..., feet, :], axis=-1)
    bears = (force > BEARING * GRAVITY * motion.skeleton.masses.sum()) & (np.nan_to_num(friction, nan=1.0) < ICE)
    way = np.linalg.norm(np.diff(motion.joints[..., feet, :2], axis=1), axis=-1)
    slid, longest = np.zeros(bears[:, 0].shape), np.zeros(bears[:, 0].shape)
    for frame in range(way.shape[1]):
        slid = np.where(bears[:, frame] & bears[:, frame + 1], slid + way[:, frame], 0.0)
        longest = np.maximum(longest, slid)
    return longest.max(-1)


def leans(motion: Motion) -> Float[np.ndarray, "b t"]:
    """Return how far the trunk leans to the right [degrees]."""
    joints = {name: motion.joints[..., joint_index(name), :] for name in ("pelvis", "neck", "left_hip", "right_hip")}
    right = (joints["right_hip"] - joints["left_hip"]) * np.array([1.0, 1.0, 0.0])
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    trunk = joints["neck"] - joints["pelvis"]
    return np.degrees(np.arctan2((trunk * right).sum(-1), trunk[..., 2]))


def beyond(motion: Motion, scene: Scene) -> Float[np.ndarray, "b"]:
    """Return how far the pelvis got past the face of a wall across the way, negative before it [m]; NaN without one."""
    walls = [e for e in scene.elements if isinstance(e, Box) and e.size[2] > 0.4 and e.mass is None]
    if not walls:
        return np.full(len(motion.root), math.nan)
    face = walls[0].position[1] - walls[0].size[1] / 2
    return motion.root[..., 1].max(-1) - face


@dataclass(frozen=True)
class ObjectsProtocol:
    """Who meets what."""

    people: int = 64
    """Of each scene."""
    random_scenes: int = 10_000
    seconds: float = 6.0
    """[s]"""
    random_seconds: float = 1.0
    """Of a random scene [s]."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if (
            self.people < 1
            or self.random_scenes < 0
            or not 3 <= self.seconds <= 600
            or not 0.1 <= self.random_seconds <= 600
        ):
            raise ValueError(
                "objects are measured with at least one person, for 3 to 600 s, and random scenes for 0.1 to 600 s"
            )

    @classmethod
    def quick(cls, **given: Any) -> "ObjectsProtocol":  # noqa: ANN401
        """Return a small version."""
        return cls(**{"people": 4, "random_scenes": 16, **given})

    def scenes(self) -> Mapping[str, Scene]:
        """Return the scenes of one walker each."""
        ready = {name: SCENARIOS[name].scene for name in ("slip", "ramp", "curb", "stairs", "trip-curb", "wall")}
        walk = SCENARIOS["carry"].scene
        follow = tuple(e for e in walk.elements if isinstance(e, Follow))
        carried = {f"carry {mass:g} kg": replace(walk, elements=(*follow, Carry(mass))) for mass in LOADS}
        return {PLAIN: replace(walk, elements=follow), **ready, **carried}

    def chunks(self, body: Body) -> list[ObjectsChunk]:
        """Return the walkers."""
        seeds = [self.seed + i for i in range(self.people)]
        groups = [tuple(seeds[i : i + GROUP]) for i in range(0, len(seeds), GROUP)]
        return [
            ObjectsChunk(body, name.replace(" ", "-"), scene, group, self.seconds)
            for name, scene in self.scenes().items()
            for group in groups
        ]


@dataclass(frozen=True)
class Met:
    """What became of the people of one scene."""

    scene: str
    people: int
    diverged: int
    fell: float
    """Share that fell."""
    speed: float
    """Mean speed along the way from the first second on [m/s]."""
    speed_kept: float
    """That over the speed of the same people on a plane."""
    deepest_mm: float
    height: float
    """Median of the highest ground that each stood on [m]."""
    slipped: float
    """Share whose foot slid by more than 3 cm on ice."""
    recovered: float
    """Share of those who did not fall; NaN if nobody slipped."""
    lean_deg: float
    """Mean lean of the trunk to the right, beyond that of the same people on a plane [degrees]."""
    beyond_m: float
    """Farthest that somebody's pelvis got past the face of a wall, negative before it [m]."""


def met(scene: str, people: Arrays, diverged: int, plain: Arrays) -> Met:
    """Sum up a scene, next to the same people on a plane."""
    if not people:
        return Met(scene, 0, diverged, *[math.nan] * 9)
    usual = float(plain["speed"].mean()) if plain else math.nan
    upright = float(plain["lean_deg"].mean()) if plain else math.nan
    speed, slipped = float(people["speed"].mean()), people["slide"] > SLIPPED
    recovered = float((~people["fell"][slipped].astype(bool)).mean()) if slipped.any() else math.nan
    return Met(
        scene, len(people["fell"]), diverged, float(people["fell"].mean()), speed, speed / usual, float(people["deepest_mm"].max()),
        float(np.median(people["height"])), float(slipped.mean()), recovered, float(people["lean_deg"].mean()) - upright,
        float(people["beyond"].max()),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Objects:
    """Everything that was measured."""

    protocol: ObjectsProtocol
    scenes: tuple[Met, ...]
    random: Mapping[str, float | int] = field(default_factory=dict)

    def numbers(self) -> dict[str, Any]:
        """Return all as plain values for JSON."""
        return {
            "scenes": {m.scene: asdict(m) for m in self.scenes},
            "random": dict(self.random),
            "protocol": asdict(self.protocol),
        }


def evaluate_objects(
    body: Body,
    protocol: ObjectsProtocol,
    folder: Path,
    *,
    workers: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> Objects:
    """Run the protocol in chunks that are kept in a folder."""
    walkers = protocol.chunks(body)
    random = RandomChunk.all(body, protocol.random_scenes, protocol.random_seconds, protocol.seed)
    found = run_chunks([*walkers, *random], folder, workers=workers, watch=watch)
    parts = {
        name: merged([a for c, a in zip(walkers, found, strict=False) if c.name == name.replace(" ", "-")])
        for name in protocol.scenes()
    }
    plain = parts[PLAIN][0]
    scenes = tuple(met(name, *part, plain) for name, part in parts.items())
    return Objects(protocol, scenes, random_numbers(found[len(walkers) :]))


COLUMNS: Mapping[str, Callable[[Met], str]] = {
    "scene": lambda m: m.scene,
    "people": lambda m: str(m.people),
    "fell": lambda m: shown(m.fell, ".1%"),
    "speed [m/s]": lambda m: shown(m.speed, ".2f"),
    "of that on a plane": lambda m: shown(m.speed_kept, ".2f"),
    "deepest [mm]": lambda m: shown(m.deepest_mm, ".1f"),
    "climbed [m]": lambda m: shown(m.height, ".2f"),
    "slipped": lambda m: shown(m.slipped, ".1%") if m.scene == "slip" else "",
    "of these recovered": lambda m: shown(m.recovered, ".1%") if m.scene == "slip" else "",
    "lean [degrees]": lambda m: shown(m.lean_deg, "+.1f"),
    "past the wall [m]": lambda m: shown(m.beyond_m, ".3f") if m.scene == "wall" else "",
}


def table(objects: Objects) -> str:
    """Lay all out in Markdown."""
    rows = [list(COLUMNS), *([show(m) for show in COLUMNS.values()] for m in objects.scenes)]
    parts = [counted_table(rows, sum(m.diverged for m in objects.scenes))]
    slip = next((m for m in objects.scenes if m.scene == "slip"), None)
    if slip is not None:
        parts.append(
            f"Of older adults, {OLDER_ADULTS_FELL:.0%} fell when they slipped for the first time; here {slip.fell:.0%}.\n"
        )
    if objects.random:
        parts.append(" ".join(f"{name.replace('_', ' ')}: {value:g}." for name, value in objects.random.items()) + "\n")
    return "\n".join(parts)
