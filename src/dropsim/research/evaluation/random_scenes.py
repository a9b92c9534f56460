"""Laws that hold in all scenes of the ready distributions `shoves` and `chaos`.

Numbers are finite, bones are whole, nobody is inside a solid, nothing is below the ground.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dropsim.physics.contact import Collider, Plane, Shape, nearest_surface
from dropsim.physics.shapes import BOX
from dropsim.research.evaluation.harness import Arrays, Body, in_halves
from dropsim.research.synthesis.distribution import distribution
from dropsim.scene import Scene, World, WorldState, batch_scenes
from dropsim.scene.files import Setup
from dropsim.scene.loose import BodyState
from dropsim.scene.objects import Flying
from dropsim.scene.solids import SolidObject

DEEPEST = {"chaos": 0.02, "shoves": 0.03}
"""Largest depth of people in something solid [m], by the distribution of the scenes."""
BELOW = 0.02
"""Largest depth of objects below the ground [m]."""
LONGEST_BONE, FASTEST = 2.0, 40.0
"""Error of a bone's length [%], and speed of a joint beyond which a body is not thrown but broken [m/s]: an impulse of
1500 N for 20 frames gives a hand less."""


def drawn_scenes(name: str, numbers: Sequence[int]) -> list[tuple[Setup, int]]:
    """Return scenes of a ready distribution, each with its number, by which it is drawn again."""
    scenes = distribution(name)
    return [(scenes.draw(0, number).setup, number) for number in numbers]


def measure_scenes(body: Body, numbers: Sequence[int], *, source: str) -> Arrays:
    """Judge scenes of a ready distribution, those of as many people together; a row for each."""
    simulator, laws = body.simulator(), dict[int, Laws]()

    def judge(some: Sequence[tuple[Setup, int]]) -> list[Laws]:
        scenes, seeds = [setup.scene for setup, _ in some], [number for _, number in some]
        world, now = batch_scenes(scenes, simulator, seeds)
        rng, states = world.streams(seeds), [now]
        for _ in range(some[0][0].num_frames(world.fps)):
            now, _ = world.step(now, rng)
            states.append(now)
        return [Laws.of(world, scene, states, i) for i, scene in enumerate(scenes)]

    alike = dict[int, list[tuple[Setup, int]]]()
    for setup, number in drawn_scenes(source, numbers):
        alike.setdefault(len(setup.scene.people), []).append((setup, number))
    for scenes in alike.values():
        for some, judged in in_halves(scenes, judge):
            rows = [Laws()] if isinstance(judged, ValueError) else judged
            laws |= {number: row for (_, number), row in zip(some, rows, strict=True)}
    columns = np.array([laws[number] for number in numbers]).T
    shared = {"number": np.array(numbers), "deepest": np.full(len(numbers), DEEPEST[source])}
    return shared | dict(zip(Laws._fields, columns, strict=True))


def faults_of(laws: Arrays) -> Arrays:
    """Return the faults of each random scene."""
    finite = np.isfinite(laws["speed"])
    worst = {
        "too deep": laws["depth"] > laws["deepest"],
        "below the ground": laws["lowest"] < -BELOW,
        "broken bones": laws["bones"] > LONGEST_BONE,
        "too fast": laws["speed"] > FASTEST,
    }
    return {"not finite": ~finite} | {name: finite & flags for name, flags in worst.items()}


class Laws(NamedTuple):
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
                if element.loose:
                    collider, reach = _as_collider(element, memory)
                    colliders.append(collider)
                    lowest = min(lowest, float(memory.x[2]) - reach)
                elif isinstance(element, SolidObject):
                    colliders += element.shapes(time, h)
                elif isinstance(element, Flying):
                    for ball in element.solids(memory):
                        lowest = min(lowest, float(plane.distance(ball.centre[None]).min()) - ball.radius)
            depth = max(depth, float((skeleton.radii - nearest_surface(colliders, here).distance).max()))
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
    reach = float(np.abs(state.R[2]) @ np.array(half)) if kind == BOX else half[0]
    return Shape(kind, half, state.x, state.R), reach
