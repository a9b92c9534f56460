"""Random scenes of people and objects, and what holds in all: finite numbers, nobody inside a solid, nothing below the ground."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton
from dropsim.physics.contact import Collider, Plane, Shape, Spheres, nearest_surface
from dropsim.physics.shapes import BOX
from dropsim.physics.step import Simulator
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.trials import Body
from dropsim.scene import (
    Box,
    Carry,
    Cylinder,
    Element,
    Obstacle,
    Patch,
    Person,
    Ramp,
    Scene,
    Stairs,
    Terrain,
    Throw,
    World,
    WorldState,
    batch_scenes,
)
from dropsim.scene.loose import BodyState, is_loose
from dropsim.scene.solids import SolidObject

MOST_OBJECTS, MOST_PEOPLE = 20, 4
BATCH = 25
"""Scenes of a chunk, all with as many people."""
AREA = 4.0
"""Objects are placed within this distance of the middle [m]."""
PERSONAL_SPACE = 0.5
"""Nothing starts nearer than this to somebody [m]."""
ALLEY = 0.7
"""Between solid objects, so that people are never squeezed into less than they are wide [m]."""
KINDS = (
    "box", "moving", "crate", "crate", "cylinder", "ramp", "stairs", "terrain", "patch", "stone", "ball", "throw", "carry",
)  # fmt: skip
DEEP, BELOW = 0.02, 0.02
"""How deep people may be in something solid, and objects below the ground [m]."""


@dataclass
class Placing:
    """Draws the objects of a scene and keeps them apart."""

    rng: np.random.Generator
    people: tuple[Person, ...]
    circles: list[tuple[float, float, float]] = field(default_factory=list)
    """Around solid objects: x, y and radius [m]."""

    def place(self, radius: float, *, solid: bool) -> tuple[float, float] | None:
        """Return a free place for an object of a radius, or None if none is found soon."""
        for _ in range(20):
            x, y = self.rng.uniform(-AREA, AREA, 2).tolist()
            free = all(math.dist((x, y), p.position) > radius + PERSONAL_SPACE for p in self.people)
            if free and all(math.dist((x, y), (a, b)) > radius + r + (ALLEY if solid else 0.05) for a, b, r in self.circles):
                self.circles.append((x, y, radius))
                return x, y
        return None

    def one_of(self, *options: Any) -> Any:  # noqa: ANN401
        """Draw one of some values."""
        return options[int(self.rng.integers(len(options)))]

    def element(self) -> Element[Any] | None:
        """Draw an object."""
        rng, turn = self.rng, float(self.rng.uniform(0, 360))
        friction, unseen = self.one_of(None, 0.05, 0.3, 1.0), bool(rng.random() < 0.3)
        own = {"facing": turn, "friction": friction, "unseen": unseen}
        kind = self.one_of(
            "box", "moving", "crate", "crate", "cylinder", "ramp", "stairs", "terrain", "patch", "stone", "ball", "throw", "carry"
        )
        size = rng.uniform((0.2, 0.2, 0.05), (1.5, 1.5, 2.0)).tolist()
        radius = math.hypot(*size[:2]) / 2
        match kind:
            case "box" if at := self.place(radius, solid=True):
                return Box((*at, 0.0), tuple(size), **own)
            case "moving" if at := self.place(radius + 0.8, solid=True):
                angle, way = math.radians(turn), float(rng.uniform(0.1, 0.7))
                end = (at[0] + way * math.cos(angle), at[1] + way * math.sin(angle), 0.0, float(rng.uniform(-45, 45)))
                return Box(size=tuple(size), friction=friction, unseen=unseen, path=((0.0, *at, 0.0, 0.0), (0.9, *end)))
            case "crate" if at := self.place(0.4, solid=False):
                size = rng.uniform(0.1, 0.55, 3).tolist()
                return Box((*at, self.one_of(0.0, float(rng.uniform(0, 1)))), tuple(size), turn, mass=float(10 ** rng.uniform(-0.3, 2)))
            case "cylinder" if at := self.place(radius, solid=True):
                return Cylinder((*at, 0.0), radius, size[2], **own)
            case "ramp" if at := self.place(2.3, solid=True):
                angle = math.radians(turn)
                edge = (at[0] + 1.5 * math.sin(angle), at[1] - 1.5 * math.cos(angle))
                return Ramp(edge, float(rng.uniform(3, 25)), length=2.0, width=2.0, landing=1.0, **own)
            case "stairs" if at := self.place(2.0, solid=True):
                angle = math.radians(turn)
                edge = (at[0] + math.sin(angle), at[1] - math.cos(angle))
                return Stairs(edge, int(rng.integers(1, 5)), float(rng.uniform(0.05, 0.2)), width=2.0, landing=1.0, **own)
            case "terrain" if at := self.place(1.5, solid=True):
                heights = tuple(tuple(row) for row in rng.uniform(0, 0.25, (5, 5)).tolist())
                return Terrain(at, (2.0, 2.0), heights, **own)
            case "patch":
                return Patch(tuple(rng.uniform(-AREA, AREA, 2).tolist()), tuple(size[:2]), turn, friction or 0.8)
            case "stone" if at := self.place(0.2, solid=True):
                return Obstacle((*at, 0.0), float(rng.uniform(0.05, 0.2)), friction)
            case "ball" if at := self.place(0.2, solid=False):
                r = float(rng.uniform(0.05, 0.2))
                return Obstacle((*at, r + self.one_of(0.0, float(rng.uniform(0, 1)))), r, friction, float(10 ** rng.uniform(-0.5, 1)))
            case "throw":
                speed, mass = float(rng.uniform(3, 20)), float(rng.uniform(0.2, 5))
                return Throw(self.one_of("spine3", "head", "left_knee"), turn, 6.0, speed, mass=mass, start=float(rng.uniform(0, 0.5)))
            case "carry" if not any(c == (math.inf, 0.0, 0.0) for c in self.circles):
                self.circles.append((math.inf, 0.0, 0.0))  # one load is enough
                return Carry(float(rng.uniform(1, 15)), self.one_of("left", "right", "both"))
            case _:
                return None


def random_scene(seed: int, num_people: int) -> Scene:
    """Return a scene of 1 to 20 objects; people stand 1.5 m or more apart."""
    rng = np.random.default_rng((seed, num_people))
    corners = [(0.0, 0.0), (2.0, 0.3), (-0.2, 2.0), (2.1, 2.2)]
    starts = [("stand", 0.0), ("walk", 1.2), ("run", 2.5)]
    people = list[Person]()
    for i in range(num_people):
        start, speed = starts[int(rng.integers(3))]
        people.append(Person(start, corners[i], float(rng.uniform(0, 360)), speed))
    placing, wanted = Placing(rng, tuple(people)), int(rng.integers(1, MOST_OBJECTS + 1))
    found = [element for _ in range(8 * wanted) if (element := placing.element()) is not None][:wanted]
    return Scene(tuple(people), tuple(found))


def possible_scene(seed: int, num_people: int, simulator: Simulator) -> Scene:
    """Return a random scene in which nobody starts inside something or somebody."""
    for attempt in range(100):
        scene = random_scene(seed + attempt * 2**41, num_people)
        try:
            World(scene, simulator).start(seed)
        except ValueError:
            continue
        return scene
    raise ValueError(f"no scene of {num_people} people was found for the seed {seed}")


@dataclass(frozen=True)
class RandomChunk(Chunk):
    """Some random scenes with as many people."""

    body: Body
    first: int
    """Seed of the first scene."""
    count: int
    num_people: int
    seconds: float

    @classmethod
    def all(cls, body: Body, count: int, seconds: float, seed: int) -> list["RandomChunk"]:
        """Return so many scenes in chunks, with 1 to 4 people in turn."""
        firsts = range(0, count, BATCH)
        return [cls(body, seed + i, min(BATCH, count - i), 1 + i // BATCH % MOST_PEOPLE, seconds) for i in firsts]

    @property
    def label(self) -> str:
        return f"random-{self.first:06d}"

    def run(self) -> Arrays:
        simulator, seeds = self.body.simulator(), [self.first + i for i in range(self.count)]
        scenes = [possible_scene(seed, self.num_people, simulator) for seed in seeds]
        objects = np.array([len(scene.elements) for scene in scenes])
        world, now = batch_scenes(scenes, simulator, seeds)
        rng, states = world.streams(seeds), [now]
        for _ in range(round(self.seconds * world.fps)):
            now, _ = world.step(now, rng)
            states.append(now)
        laws = [Laws.of(scene, states, i, simulator.skeleton, world.fps) for i, scene in enumerate(scenes)]
        return {"objects": objects, "people": np.full(self.count, self.num_people), **{
            name: np.array([getattr(law, name) for law in laws]) for name in ("finite", "solid", "loose", "lowest")
        }}  # fmt: skip


@dataclass(frozen=True)
class Laws:
    """What is judged of a scene, over all frames but the first, which is the prior's own."""

    finite: bool
    solid: float
    """Farthest that somebody is inside the ground or an object that gives way to nobody [m]."""
    loose: float
    """Farthest that somebody is inside a loose object [m]."""
    lowest: float
    """Lowest point of an object that moves, above the ground [m]."""

    @classmethod
    def of(cls, scene: Scene, states: Sequence[WorldState], world: int, skeleton: Skeleton, fps: float) -> "Laws":
        """Judge one world of a batch."""
        people = np.stack([state.people.x[world] for state in states[1:]])
        memories: Any = [state.memories[0][world] for state in states[1:]]  # pyright: ignore[reportIndexIssue]
        still = list[Collider]([Plane.ground()])
        solid, loose, lowest = 0.0, 0.0, math.inf
        for k, element in enumerate(scene.elements):
            over_time = [(frame / fps, people[frame - 1], memory[k]) for frame, memory in enumerate(memories, start=1)]
            if is_loose(element):
                for _, here, own in over_time:
                    collider, reach = _as_collider(element, own)
                    loose, lowest = max(loose, inside([collider], here, skeleton)), min(lowest, float(own.x[2]) - reach)
            elif isinstance(element, SolidObject) and element.path:
                solid = max(solid, *(inside(element.shapes(time, 1 / fps), here, skeleton) for time, here, _ in over_time))
            elif isinstance(element, SolidObject):
                still += element.shapes(0.0, 1 / fps)
            elif isinstance(element, Obstacle):
                still.append(Spheres(np.array([element.position]), np.array([element.radius]), np.zeros((1, 3))))
            elif isinstance(element, Throw):
                shown = [balls for _, _, own in over_time if (balls := element.balls(own)) is not None]
                lowest = min([lowest, *(float((balls.centres[..., 2] - balls.radii).min()) for balls in shown)])
        finite = bool(np.isfinite(people).all()) and not math.isnan(lowest)
        return cls(finite, max(solid, inside(still, people, skeleton)), loose, lowest)


def _as_collider(element: Any, state: BodyState) -> tuple[Collider, float]:  # noqa: ANN401
    """Return a loose object as a shape, and how far it reaches below its centre [m]."""
    kind, half, _ = element.body()
    if kind == BOX:
        return Shape(BOX, half, state.x, state.R), float(np.abs(state.R[2]) @ np.array(half))
    return Spheres(state.x[None], np.array(half[:1]), np.zeros((1, 3))), half[0]


def inside(colliders: Sequence[Collider], joints: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton) -> float:
    """Return how far the deepest joint's sphere is inside something [m]."""
    return float(max(0.0, (skeleton.radii - nearest_surface(colliders, joints).distance).max()))


def random_numbers(parts: Sequence[Arrays]) -> dict[str, float | int]:
    """Count the scenes that break a law."""
    if not parts:
        return {}
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {
        "random_scenes": len(found["finite"]),
        "people": int(found["people"].sum()),
        "objects": int(found["objects"].sum()),
        "not_finite": int((~found["finite"]).sum()),
        "somebody_deeper_than_2_cm": int((found["solid"] > DEEP).sum()),
        "deepest_mm": round(1000 * float(found["solid"].max()), 1),
        "deeper_than_2_cm_in_a_loose_object": int((found["loose"] > DEEP).sum()),
        "deepest_in_a_loose_object_mm": round(1000 * float(found["loose"].max()), 1),
        "object_below_the_ground": int((found["lowest"] < -BELOW).sum()),
        "lowest_mm": round(1000 * float(found["lowest"].min()), 1),
    }
