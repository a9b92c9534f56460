"""Different scenes side by side, as one batch of worlds: a batch is many times faster than its members."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import Skeleton
from dropsim.control.planner import Cost
from dropsim.physics.collider import Collider, Plane, Spheres
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.step import Simulator
from dropsim.priors.prior import State
from dropsim.scene.element import Element, Goal, StepInputs, SceneContext
from dropsim.scene.objects import Ground
from dropsim.scene.world import Scene, World, WorldState

NOWHERE = (0.0, 0.0, -1e3)
"""Where a thing is in the worlds that do not have it [m]."""


def batch_scenes(
    scenes: Sequence[Scene], simulator: Simulator, seeds: Sequence[int], *, opening: Simulator | None = None
) -> tuple[World, WorldState]:
    """Return a world for each scene and seed, along one leading dimension, and its start; `opening` as World has it.

    The scenes have as many people and look ahead alike; people, things, ground and what happens are each scene's own. Of a run, spheres and
    events are not kept: they are the scenes'.
    """
    first = scenes[0]
    if any((len(s.people), s.planner, s.get_up) != (len(first.people), first.planner, first.get_up) for s in scenes):
        raise ValueError("scenes side by side need as many people, one planner and one get_up: run them in groups that do")
    ground = Ground() if all(s.ground.level for s in scenes) else Grounds(each=tuple(s.ground for s in scenes))
    world = World(replace(first, elements=(SideBySide(tuple(s.elements for s in scenes)),), ground=ground), simulator, opening)
    starts = [World(replace(s, elements=()), simulator).start(seed).people for s, seed in zip(scenes, seeds, strict=True)]
    return world, world.start_from(State(*(torch.stack([getattr(s, name) for s in starts]) for name in ("x", "v", "q", "memory"))))


@dataclass(frozen=True)
class Grounds(Ground):
    """The grounds of worlds side by side."""

    each: tuple[Ground, ...] = ()

    @property
    def level(self) -> bool:
        """Whether all are level."""
        return all(ground.level for ground in self.each)

    def plane(self, time: float, h: float, pivot: Float[Tensor, "w 3"]) -> Plane:
        """Return all of them at a time."""
        return Plane.stacked([ground.plane(time, h, here) for ground, here in zip(self.each, pivot, strict=True)])

    def settled(self, pivot: Float[Tensor, "w 3"] | None, here: Float[Tensor, "w 3"], frame: int, fps: float) -> Float[Tensor, "w 3"]:
        """Let each pivot stay from when its ground begins to tilt; until then the place under the person serves."""
        before = here if pivot is None else pivot
        rows = []
        for i, ground in enumerate(self.each):
            began = pivot is not None and frame - 1 >= ground.start * fps - 1
            now = ground.settled(before[i] if began else None, here[i], frame, fps)
            rows.append(here[i] if now is None else now)
        return torch.stack(rows)


@dataclass(frozen=True)
class SideBySide(Element[tuple[tuple[object, ...], ...]]):
    """The elements of every world, each of which sees and touches its own world alone."""

    worlds: tuple[tuple[Element[Any], ...], ...]

    def begin(self, moment: SceneContext) -> tuple[tuple[object, ...], ...]:
        """Begin everything in its own world."""
        return tuple(tuple(e.begin(_moment_of(moment, i)) for e in elements) for i, elements in enumerate(self.worlds))

    def act(
        self, memory: tuple[tuple[object, ...], ...] | None, moment: SceneContext
    ) -> tuple[tuple[tuple[object, ...], ...], StepInputs]:  # fmt: skip
        """Let everything act in its own world, and lay the influences out for all worlds."""
        memory = memory or self.begin(moment)
        acted = [list(_acted(elements, memory[i], _moment_of(moment, i))) for i, elements in enumerate(self.worlds)]
        influences = [(i, influence) for i, pairs in enumerate(acted) for _, influence in pairs]
        return tuple(tuple(m for m, _ in pairs) for pairs in acted), _laid_out(influences, moment)


def _acted(
    elements: Sequence[Element[Any]], memories: Sequence[object], moment: SceneContext
) -> Iterator[tuple[object, StepInputs]]:  # fmt: skip
    seen = [balls for e, m in zip(elements, memories, strict=True) if (balls := e.balls(m)) is not None]
    moment = replace(moment, balls=seen)
    for element, memory in zip(elements, memories, strict=True):
        yield element.act(memory, moment)


def _moment_of(moment: SceneContext, world: int) -> SceneContext:
    """Return what one world's elements see, without the leading dimension."""
    ground = moment.ground
    if ground.normal.ndim > 1:
        ground = ground.map(lambda vectors: vectors[world], lambda scalars: scalars[world])
    return replace(moment, people=moment.people[world], ground=ground)


def _laid_out(influences: Sequence[tuple[int, StepInputs]], moment: SceneContext) -> StepInputs:
    forces, held, stiff = moment.no_forces(), *(torch.zeros(moment.people.x.shape[:end], dtype=torch.bool) for end in (-2, -1))
    energies = dict[str, list[tuple[int, Energy]]]()
    colliders, goals = list[Collider](), list[Goal]()
    count = moment.people.x.shape[-3]
    for world, influence in influences:
        if influence.forces is not None:
            forces[world] += influence.forces
        if influence.held is not None:
            held[world] |= influence.held
        if influence.stiff is not None:
            stiff[world] |= influence.stiff
        for energy in influence.energies:
            energies.setdefault(energy.name, []).append((world, energy))
        colliders += [_in_one_world(collider, world, moment) for collider in influence.colliders]
        for goal in influence.goals:
            people = torch.zeros_like(held)
            people[world] = goal.people
            goals.append(Goal(people, _cost_in(world, count, goal.cost)))
    together = [Together(name, tuple(parts), moment.skeleton) for name, parts in energies.items()]
    return StepInputs(forces, together, colliders, goals, *(mask if mask.any() else None for mask in (held, stiff)))


def _in_one_world(collider: Collider, world: int, moment: SceneContext) -> Spheres:
    """Put spheres out of the way of all worlds but their own."""
    if not isinstance(collider, Spheres):
        raise ValueError(f"{type(collider).__name__} cannot stand in one world only: of colliders, spheres can")
    shape = (*moment.people.x.shape[:-2], *collider.centres.shape[-2:])
    centres = torch.tensor(NOWHERE, dtype=collider.centres.dtype).expand(shape).clone()
    velocities = torch.zeros_like(centres)
    centres[world], velocities[world] = collider.centres, collider.velocities
    return Spheres(centres, collider.radii, velocities)


def _cost_in(world: int, count: int, cost: Cost) -> Cost:
    """Return the cost of a world's own people, for people that are counted through all worlds."""

    def inside(joints: Float[Tensor, "n r t 22 3"], people: Int[Tensor, "n"]) -> Float[Tensor, "n r"]:
        mine = (people // count == world).nonzero().squeeze(-1)
        total = torch.zeros(joints.shape[:2], dtype=joints.dtype)
        if len(mine):
            total[mine] = cost(joints[mine], people[mine] - world * count)
        return total

    return inside


@dataclass(frozen=True, eq=False)
class Together(Energy):
    """Energies of one name, each in a world of its own; rows of the matrix carry the roots of their weights."""

    name: str
    parts: tuple[tuple[int, Energy], ...]
    """Worlds, and what is wished for there."""
    skeleton: Skeleton
    weight: float = field(default=1.0, init=False)
    _matrix: Tensor = field(init=False)
    _rows: tuple[slice, ...] = field(init=False)
    """Of each part; parts whose matrices are equal share them, unless they are of one world."""

    def __post_init__(self) -> None:
        matrices, rows = list[Tensor](), list[slice]()
        starts = dict[tuple[bytes, int], int]()
        seen = dict[tuple[bytes, int], int]()
        for world, energy in self.parts:
            A = energy.weight**0.5 * energy.matrix(self.skeleton).double()
            kind = A.numpy().tobytes()
            nth = seen[kind, world] = seen.get((kind, world), -1) + 1
            if (kind, nth) not in starts:
                starts[kind, nth] = sum(map(len, matrices))
                matrices.append(A)
            rows.append(slice(starts[kind, nth], starts[kind, nth] + len(A)))
        object.__setattr__(self, "_matrix", torch.cat(matrices))
        object.__setattr__(self, "_rows", tuple(rows))

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Return all rows."""
        del skeleton
        return self._matrix

    def project(self, x: Float[Tensor, "w p 22 3"], frame: Frame) -> Target:
        """Switch every row off but in the worlds that wish for it."""
        p = x.new_zeros(*x.shape[:-2], len(self._matrix), 3)
        active: Bool[Tensor, "w p m"] = torch.zeros(p.shape[:-1], dtype=torch.bool)
        for (world, energy), rows in zip(self.parts, self._rows, strict=True):
            target = energy.project(x[world], _frame_of(frame, world))
            p[world, :, rows] = energy.weight**0.5 * target.p
            active[world, :, rows] = True if target.active is None else target.active
        return Target(p, active)


def _frame_of(frame: Frame, world: int) -> Frame:
    """Return what one world's energies see; colliders they leave to the simulator's own."""
    pick: Callable[[Tensor], Tensor] = lambda values: values[world]  # noqa: E731
    return replace(frame, x=pick(frame.x), y=pick(frame.y), twist=pick(frame.twist), manifold=pick(frame.manifold), colliders=())
