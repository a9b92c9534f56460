"""Random pushes, random scenes of people, objects and events, and what holds in all.

Numbers are finite, bones are whole, nobody is inside a solid, nothing is below the ground.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import JOINTS, Skeleton
from dropsim.physics.contact import Collider, Plane, Shape, nearest_surface
from dropsim.physics.shapes import BOX
from dropsim.physics.step import Simulator
from dropsim.research.evaluation.harness import Arrays, Body
from dropsim.scene import (
    Ball,
    Box,
    Carry,
    Cylinder,
    Element,
    Ground,
    Obstacle,
    Patch,
    Person,
    Push,
    Ramp,
    Scene,
    Stairs,
    Terrain,
    Throw,
    Trip,
    World,
    WorldState,
    batch_scenes,
)
from dropsim.scene.element import BODY_PARTS
from dropsim.scene.loose import BodyState, is_loose
from dropsim.scene.objects import Flying
from dropsim.scene.solids import SolidObject

MOST_OBJECTS = 20
AREA = 4.0
"""Objects are placed within this distance of the middle [m]."""
PERSONAL_SPACE = 0.5
"""Nothing starts nearer than this to somebody [m]."""
ALLEY = 0.7
"""Between solid objects, so that people are never squeezed into less than they are wide [m]."""
SOLIDS = ("box", "moving", "crate", "crate", "cylinder", "ramp", "stairs", "terrain", "patch", "stone")
KINDS = (*SOLIDS, "ball", "throw", "carry", "push", "push", "flying", "trip")
"""Kinds of objects and events that are drawn; those named twice are drawn twice as often."""
MOST_TILT = 25.0
"""Largest tilt of the ground [degrees]."""
PARTS = (*BODY_PARTS, *JOINTS)
"""Body parts and joints that are pushed."""
STARTS, STRONGEST, LONGEST = ("stand", "walk", "run", "crouch"), 1500.0, 20
"""People who get a single push, its force at most [N], that of a car at walking pace, and its most frames."""
DEEP, DEEP_PUSHED, BELOW = 0.02, 0.03, 0.02
"""Depth of people in something solid, in scenes and after a single push, and of objects below the ground [m]."""
LONGEST_BONE, FASTEST = 2.0, 40.0
"""Error of a bone's length [%], and speed of a joint beyond which a body is not thrown but broken [m/s]: an impulse of
1500 N for 20 frames gives a hand less."""


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
            alley = radius + (ALLEY if solid else 0.05)
            if free and all(math.dist((x, y), (a, b)) > r + alley for a, b, r in self.circles):
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
        common = {"facing": turn, "friction": friction, "unseen": unseen}
        kind = self.one_of(*KINDS)
        size = rng.uniform((0.2, 0.2, 0.05), (1.5, 1.5, 2.0)).tolist()
        radius = math.hypot(*size[:2]) / 2
        match kind:
            case "box" if at := self.place(radius, solid=True):
                return Box((*at, 0.0), tuple(size), **common)
            case "moving" if at := self.place(radius + 0.8, solid=True):
                angle, way = math.radians(turn), float(rng.uniform(0.1, 0.7))
                end = (at[0] + way * math.cos(angle), at[1] + way * math.sin(angle), 0.0, float(rng.uniform(-45, 45)))
                return Box(size=tuple(size), friction=friction, unseen=unseen, path=((0.0, *at, 0.0, 0.0), (0.9, *end)))
            case "crate" if at := self.place(0.4, solid=False):
                size = rng.uniform(0.1, 0.55, 3).tolist()
                place = (*at, self.one_of(0.0, float(rng.uniform(0, 1))))
                return Box(place, tuple(size), facing=turn, mass=float(10 ** rng.uniform(-0.3, 2)))
            case "cylinder" if at := self.place(radius, solid=True):
                return Cylinder((*at, 0.0), radius, size[2], **common)
            case "ramp" if at := self.place(2.3, solid=True):
                angle = math.radians(turn)
                edge = (at[0] + 1.5 * math.sin(angle), at[1] - 1.5 * math.cos(angle))
                return Ramp(edge, float(rng.uniform(3, 25)), length=2.0, width=2.0, landing=1.0, **common)
            case "stairs" if at := self.place(2.0, solid=True):
                angle = math.radians(turn)
                edge = (at[0] + math.sin(angle), at[1] - math.cos(angle))
                count, rise = int(rng.integers(1, 5)), float(rng.uniform(0.05, 0.2))
                return Stairs(edge, count, rise, width=2.0, landing=1.0, **common)
            case "terrain" if at := self.place(1.5, solid=True):
                heights = tuple(tuple(row) for row in rng.uniform(0, 0.25, (5, 5)).tolist())
                return Terrain(at, (2.0, 2.0), heights, **common)
            case "patch":
                return Patch(tuple(rng.uniform(-AREA, AREA, 2).tolist()), tuple(size[:2]), turn, friction or 0.8)
            case "stone" if at := self.place(0.2, solid=True):
                return Obstacle((*at, 0.0), float(rng.uniform(0.05, 0.2)), friction=friction)
            case "ball" if at := self.place(0.2, solid=False):
                r = float(rng.uniform(0.05, 0.2))
                place = (*at, r + self.one_of(0.0, float(rng.uniform(0, 1))))
                return Obstacle(place, r, friction=friction, mass=float(10 ** rng.uniform(-0.5, 1)))
            case "throw":
                speed, mass = float(rng.uniform(3, 20)), float(rng.uniform(0.2, 5))
                joint = self.one_of("spine3", "head", "left_knee")
                return Throw(joint, turn, 6.0, speed, mass=mass, start=float(rng.uniform(0, 0.5)))
            case "carry" if not any(c == (math.inf, 0.0, 0.0) for c in self.circles):
                self.circles.append((math.inf, 0.0, 0.0))  # one load is enough
                return Carry(float(rng.uniform(1, 15)), self.one_of("left", "right", "both"))
            case "push":
                force = tuple(rng.uniform((-600, -600, -300), (600, 600, 300)).tolist())
                return Push(self.one_of(*PARTS), force, float(rng.uniform(0, 2)), float(rng.uniform(0.03, 0.6)))
            case "flying":
                x, y, z, *velocity = rng.uniform((-2, -1, 0.5, -5, -5, -2), (2, 3, 3, 5, 5, 4)).tolist()
                return Ball((x, y, z), tuple(velocity), float(rng.uniform(0.05, 0.3)), float(rng.uniform(0.2, 20)))
            case "trip":
                return Trip(start=float(rng.uniform(0.1, 2)))
            case _:
                return None


def random_scene(seed: int, num_people: int) -> Scene:
    """Return a scene of up to 20 objects and events, people 1.5 m or more apart; ground without objects may tilt."""
    rng = np.random.default_rng((seed, num_people))
    corners = [(0.0, 0.0), (2.0, 0.3), (-0.2, 2.0), (2.1, 2.2)]
    starts = [("stand", 0.0), ("walk", 1.2), ("run", 2.5)]
    people = list[Person]()
    for i in range(num_people):
        start, speed = starts[int(rng.integers(3))]
        people.append(Person(start, corners[i], float(rng.uniform(0, 360)), speed))
    placing, wanted = Placing(rng, tuple(people)), int(rng.integers(1, MOST_OBJECTS + 1))
    drawn = [placing.element() for _ in range(8 * wanted)]
    elements = [element for element in drawn if element is not None][:wanted]
    ground = Ground()
    if rng.random() < 0.2:
        roll, pitch = rng.uniform(-MOST_TILT, MOST_TILT, 2).tolist()
        ground = Ground(((0.5, 0.0, 0.0), (1.0, roll, pitch), (2.5, 0.0, 0.0)))
        elements = [e for e in elements if not isinstance(e, SolidObject | Patch)]
    return Scene(tuple(people), tuple(elements), ground)


def random_push(seed: int) -> Scene:
    """Return somebody who is pushed on any part from any side, also from above and below."""
    rng = np.random.default_rng(seed)
    way = rng.normal(size=3)
    force = STRONGEST * rng.random() * way / np.linalg.norm(way)
    start, part = STARTS[rng.integers(len(STARTS))], PARTS[rng.integers(len(PARTS))]
    push = Push(part, tuple(force.tolist()), 0.5, int(rng.integers(1, LONGEST + 1)) / 30)
    return Scene((Person(start),), (push,))


def possible_scene(seed: int, num_people: int, simulator: Simulator) -> Scene:
    """Return a random scene in which nobody starts inside something or somebody; 0 people are one who is pushed."""
    if num_people == 0:
        return random_push(seed)
    for attempt in range(100):
        scene = random_scene(seed + attempt * 2**41, num_people)
        try:
            World(scene, simulator).start(seed)
        except ValueError:
            continue
        return scene
    raise ValueError(f"no scene of {num_people} people was found for the seed {seed}")


def measure_scenes(body: Body, seeds: Sequence[int], *, num_people: int, seconds: float) -> Arrays:
    """Judge random scenes with as many people; a row for each."""
    simulator = body.simulator()
    scenes = [possible_scene(seed, num_people, simulator) for seed in seeds]
    laws = np.array([astuple(law) for law in judged(scenes, simulator, seeds, seconds)])
    columns = {field.name: laws[:, i] for i, field in enumerate(fields(Laws))}
    return {"people": np.full(len(seeds), num_people), "seed": np.array(seeds), **columns}


def faults_of(laws: Arrays) -> Arrays:
    """Return the faults of each random scene."""
    finite = np.isfinite(laws["speed"])
    worst = {
        "too deep": laws["depth"] > np.where(laws["people"] == 0, DEEP_PUSHED, DEEP),
        "below the ground": laws["lowest"] < -BELOW,
        "broken bones": laws["bones"] > LONGEST_BONE,
        "too fast": laws["speed"] > FASTEST,
    }
    return {"not finite": ~finite} | {name: finite & flags for name, flags in worst.items()}


def judged(scenes: Sequence[Scene], simulator: Simulator, seeds: Sequence[int], seconds: float) -> "list[Laws]":
    """Run scenes together and judge each; if one diverges, they are run again in halves."""
    world, now = batch_scenes(scenes, simulator, seeds)
    rng, states = world.streams(seeds), [now]
    try:
        for _ in range(round(seconds * world.fps)):
            now, _ = world.step(now, rng)
            states.append(now)
    except ValueError:  # a DivergedError is one
        if len(scenes) == 1:
            return [Laws()]
        half = len(scenes) // 2
        parts = (slice(half), slice(half, None))
        return [law for part in parts for law in judged(scenes[part], simulator, seeds[part], seconds)]
    return [Laws.of(world, scene, states, i) for i, scene in enumerate(scenes)]


@dataclass(frozen=True)
class Laws:
    """Worst values of a scene over all frames but the first, which is the prior's own."""

    depth: float = math.nan
    """Largest depth of a person in the ground or in an object [m]."""
    lowest: float = math.inf
    """Lowest point of an object that moves, above the ground [m]."""
    bones: float = math.nan
    """Largest relative error of a bone's length [%]."""
    speed: float = math.nan
    """Speed of the fastest joint [m/s]; NaN for a scene that diverged."""

    @classmethod
    def of(cls, world: World, scene: Scene, states: Sequence[WorldState], number: int) -> "Laws":
        """Judge one world of a batch."""
        skeleton, h = world.simulator.skeleton, 1 / world.fps
        people = np.stack([state.people.x[number] for state in states])
        depth, lowest = 0.0, math.inf
        for now, here in zip(states[1:], people[1:], strict=True):
            time, memories = now.frame * h, now.memories[number]
            plane = Plane.ground() if scene.ground.level else _ground_of(world, now, number)
            colliders = list[Collider]([plane])
            for element, memory in zip(scene.elements, memories, strict=True):
                if is_loose(element):
                    collider, reach = _as_collider(element, memory)
                    colliders.append(collider)
                    lowest = min(lowest, float(memory.x[2]) - reach)
                elif isinstance(element, SolidObject):
                    colliders += element.shapes(time, h)
                elif isinstance(element, Flying):
                    for ball in element.solids(memory):
                        lowest = min(lowest, float(plane.distance(ball.centre[None]).min()) - ball.radius)
            depth = max(depth, inside(colliders, here, skeleton))
        if not np.isfinite(people).all() or math.isnan(lowest):
            return cls()
        speed = float(np.linalg.norm(np.diff(people, axis=0), axis=-1).max()) * world.fps
        return cls(depth, lowest, 100 * float(skeleton.bone_error(people).max()), speed)


def _ground_of(world: World, state: WorldState, number: int) -> Plane:
    """Return the ground of one world of a batch."""
    return world.ground(state, state.frame / world.fps).map(
        lambda vectors: vectors[number], lambda scalars: scalars[number]
    )


def _as_collider(element: Any, state: BodyState) -> tuple[Collider, float]:  # noqa: ANN401
    """Return a loose object as a shape, and how far it reaches below its centre [m]."""
    kind, half, _ = element.body()
    if kind == BOX:
        return Shape(BOX, half, state.x, state.R), float(np.abs(state.R[2]) @ np.array(half))
    return Shape(kind, half, state.x, state.R), half[0]


def inside(colliders: Sequence[Collider], joints: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton) -> float:
    """Return how far the deepest joint's sphere is inside something [m]."""
    return float(max(0.0, (skeleton.radii - nearest_surface(colliders, joints).distance).max()))
