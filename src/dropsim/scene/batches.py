"""Different scenes as one batch of worlds: a batch is many times faster than its members."""

# pyright: reportCallIssue=false

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton
from dropsim.physics.contact import Collider, Plane, colliders_by_world
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.settle import Holds
from dropsim.physics.step import Simulator, Stage, StepInputs
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, State
from dropsim.scene.element import Element, SceneContext
from dropsim.scene.loose import LooseObjects
from dropsim.scene.objects import Ground
from dropsim.scene.world import Scene, World, WorldState, intent_of

Memories = tuple[tuple[object, ...], ...]


def batch_scenes(
    scenes: Sequence[Scene], simulator: Simulator, seeds: Sequence[int], *, opening: Simulator | None = None
) -> tuple[World, WorldState]:
    """Return a world for each scene and seed, along one leading dimension, and its start; `opening` as World has it.

    The scenes have the same number of people, planner and get_up; people, objects, ground and what happens are each
    scene's own. The objects of a run are in its `by_world`; events are the scenes'.
    """
    first = scenes[0]
    if any((len(s.people), s.planner, s.get_up) != (len(first.people), first.planner, first.get_up) for s in scenes):
        raise ValueError(
            "scenes in a batch need the same number of people, planner and get_up: run them in groups that have"
        )
    ground = (
        first.ground
        if all(s.ground == first.ground and s.ground.level for s in scenes)
        else Grounds(each=tuple(s.ground for s in scenes))
    )
    wanted = [intent_of(s.people) or Intent.unknown(len(s.people)) for s in scenes]
    together = Intent(*(np.stack([getattr(one, name) for one in wanted]) for name in ("velocity", "facing", "height")))
    everyone = EveryWorld(tuple(s.elements for s in scenes), together)
    people = tuple(replace(person, speed=None) for person in first.people)
    world = World(replace(first, people=people, elements=(everyone,), ground=ground), simulator, opening)
    starts = [World(s, simulator).start(seed).people for s, seed in zip(scenes, seeds, strict=True)]
    return world, world.start_from(
        State(*(np.stack([getattr(s, name) for s in starts]) for name in ("x", "v", "q", "memory")))
    )


@dataclass(frozen=True)
class Grounds(Ground):
    """The ground of each world."""

    each: tuple[Ground, ...] = ()

    @property
    def level(self) -> bool:
        return all(ground.level for ground in self.each)

    def plane(self, time: float, h: float, pivot: Float[np.ndarray, "w 3"]) -> Plane:
        planes = [ground.plane(time, h, here) for ground, here in zip(self.each, pivot, strict=True)]
        vectors = [
            np.stack([getattr(plane, name) for plane in planes])
            for name in ("normal", "angular_velocity", "velocity", "pivot")
        ]
        return Plane(
            vectors[0],
            np.stack([plane.offset for plane in planes]),
            *vectors[1:],
            np.stack([plane.friction for plane in planes]),
        )

    def settled(
        self, pivot: Float[np.ndarray, "w 3"] | None, here: Float[np.ndarray, "w 3"], frame: int, fps: float
    ) -> Float[np.ndarray, "w 3"]:
        """Keep each pivot from when its ground begins to tilt; before that the place under the person serves."""
        before = here if pivot is None else pivot
        rows = []
        for i, ground in enumerate(self.each):
            began = pivot is not None and frame - 1 >= ground.start * fps - 1
            now = ground.settled(before[i] if began else None, here[i], frame, fps)
            rows.append(here[i] if now is None else now)
        return np.stack(rows)


@dataclass(frozen=True)
class EveryWorld(Element[Memories]):
    """The elements of every world, which see and touch their own world alone."""

    worlds: tuple[tuple[Element[Any], ...], ...]
    wanted: Intent | None = None
    """What everyone wants unless an element says otherwise."""

    def begin(self, context: SceneContext) -> Memories:
        return tuple(
            tuple(e.begin(_context_of(context, i)) for e in elements) for i, elements in enumerate(self.worlds)
        )

    def act(self, memory: Memories | None, context: SceneContext) -> tuple[Memories, StepInputs]:
        memory = memory or self.begin(context)
        memories, parts = [], []
        for i, (elements, own) in enumerate(zip(self.worlds, memory, strict=True)):
            if not elements:
                memories.append(())
                continue
            balls = [shown for e, m in zip(elements, own, strict=True) if (shown := e.balls(m)) is not None]
            here = replace(_context_of(context, i), balls=balls)
            acted = [e.act(m, here) for e, m in zip(elements, own, strict=True)]
            colliders = [here.ground, *(c for _, done in acted for c in done.colliders)]
            moved, pushed = self._loose[i].move([m for m, _ in acted], here, colliders)
            memories.append(moved)
            parts += [*((i, done) for _, done in acted), (i, pushed)]
        done = stack_inputs(parts, context)
        wanted = Intent.merged([self.wanted, done.intent])
        return tuple(memories), replace(done, intent=wanted if wanted is not None and wanted.known.any() else None)

    def after(self, memory: Memories | None, context: SceneContext) -> tuple[Memories | None, tuple[Collider, ...]]:
        if memory is None:
            return None, ()
        memories, stuck = [], list[tuple[int, Collider]]()
        for i, (loose, own) in enumerate(zip(self._loose, memory, strict=True)):
            moved, colliders = loose.let_through(own, _context_of(context, i)) if loose.places else (own, ())
            memories.append(moved)
            stuck += [(i, collider) for collider in colliders]
        return tuple(memories), colliders_by_world(tuple(stuck), context.batch) if stuck else ()

    @functools.cached_property
    def _loose(self) -> tuple[LooseObjects, ...]:
        return tuple(LooseObjects(elements) for elements in self.worlds)


def _context_of(context: SceneContext, world: int) -> SceneContext:
    """Return what one world's elements see, without the leading dimension."""
    ground = context.ground
    if ground.normal.ndim > 1:
        ground = ground.map(lambda vectors: vectors[world], lambda scalars: scalars[world])
    footing, count = context.footing, context.batch[-1]
    return replace(
        context,
        people=context.people[world],
        ground=ground,
        footing=None if footing is None else footing[world],
        around=None if context.around is None else context.around.only(slice(world * count, (world + 1) * count)),
    )


def stack_inputs(parts: Sequence[tuple[int, StepInputs]], context: SceneContext) -> StepInputs:
    """Put together what happens in some worlds of a batch; parts are worlds and their inputs."""
    forces, loads, holds = (
        np.zeros(context.people.x.shape),
        np.zeros(context.people.x.shape),
        Holds.nothing(*context.batch),
    )
    intent, energies = Intent.unknown(*context.batch), list[tuple[int, Energy]]()
    colliders, stages = list[tuple[int, Collider]](), list[tuple[int, Stage]]()
    for world, part in parts:
        if part.forces is not None:
            forces[world] += part.forces
        if part.loads is not None:
            loads[world] += part.loads
        if part.holds is not None:
            held = ~np.isnan(part.holds.points[..., 0])
            for whole, own in zip(holds, part.holds, strict=True):
                whole[world][held] = own[held]
        if part.intent is not None:
            for name in ("velocity", "facing", "height"):  # places are the world's to give
                whole, own = getattr(intent, name), getattr(part.intent, name)
                whole[world] = np.where(np.isnan(own), whole[world], own)
        energies += [(world, energy) for energy in part.energies]
        colliders += [(world, collider) for collider in part.colliders]
        stages += [(world, stage) for stage in part.stages]
    return StepInputs(
        forces=forces,
        loads=loads,
        colliders=colliders_by_world(tuple(colliders), context.batch),
        energies=[WorldsEnergy(tuple(alike), context.batch[-1]) for alike in _alike(energies, context.skeleton)],
        stages=[WorldsStage(tuple(stages))] if stages else (),
        intent=intent if intent.known.any() else None,
        holds=None if np.isnan(holds.points).all() else holds,
    )


@dataclass(frozen=True, eq=False)
class WorldsStage(Stage):
    """Stages that each act in one world."""

    parts: tuple[tuple[int, Stage], ...]

    def query(self, state: State) -> State:
        state = state.map(np.array)
        for world, stage in self.parts:
            seen = stage.query(state[world])
            for name, values in vars(state).items():
                values[world] = getattr(seen, name)
        return state

    def change(self, candidates: Candidates) -> Candidates:
        parts = [np.array(values) for values in (candidates.x, candidates.q, candidates.memory, candidates.cost)]
        for world, stage in self.parts:
            own = stage.change(Candidates(*(values[world] for values in parts)))
            for values, new in zip(parts, (own.x, own.q, own.memory, own.cost), strict=True):
                values[world] = new
        return Candidates(*parts)


def _alike(energies: Sequence[tuple[int, Energy]], skeleton: Skeleton) -> list[list[tuple[int, Energy]]]:
    """Group energies of one name, weight and matrix in different worlds, so that every world's own keep their order.

    Sums then have the same order in a batch and alone, and so the same last bit.
    """
    kinds, groups, after = list[tuple[str, float, bytes]](), list[list[tuple[int, Energy]]](), dict[int, int]()
    for world, energy in energies:
        kind = (energy.name, energy.weight, energy.matrix(skeleton).tobytes())
        at = next((i for i in range(after.get(world, 0), len(kinds)) if kinds[i] == kind), len(kinds))
        if at == len(kinds):
            kinds.append(kind)
            groups.append([])
        groups[at].append((world, energy))
        after[world] = at + 1
    return groups


@dataclass(frozen=True, eq=False)
class WorldsEnergy(Energy):
    """Energies of one name, weight and matrix, each in a world of its own."""

    parts: tuple[tuple[int, Energy], ...]
    """Worlds, and the energies there."""
    count: int
    """People in a world."""

    name: str = field(init=False)
    weight: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.parts[0][1].name)
        object.__setattr__(self, "weight", self.parts[0][1].weight)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return self.parts[0][1].matrix(skeleton)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        num = len(self.matrix(frame.skeleton))
        p, active = np.zeros((len(x), num, 3)), np.zeros((len(x), num), dtype=np.bool_)
        for world, energy in self.parts:
            mine = slice(world * self.count, (world + 1) * self.count)
            own = {name: getattr(frame, name)[mine] for name in ("x", "y", "twist", "candidates")}
            target = energy.project(x[mine], replace(frame, **own, solids=frame.solids.only(mine)))
            p[mine] = target.p
            active[mine] = True if target.active is None else target.active
        return Target(p, active)
