"""A world of people, ground and things."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.rotations import exp
from dropsim.control.getting_up import Fallen, next_wish
from dropsim.control.planner import Planner
from dropsim.motion.motion import Event
from dropsim.physics.collider import Plane
from dropsim.physics.step import External, Report, Simulator, apply_impulse
from dropsim.priors.cvae import CVAEPrior, turn_memory
from dropsim.priors.prior import Candidates, State, Streams
from dropsim.priors.recording import ClipPrior
from dropsim.scene.element import Balls, Element, Goal, StepInputs, SceneContext
from dropsim.scene.meeting import NEAR, moved_apart, neighbours
from dropsim.scene.objects import Ground, height_of

STANDING_SEED = 1
"""Of the start that people who get up end in."""


@dataclass(frozen=True)
class Person:
    """Where somebody starts, and doing what."""

    start: str = "walk"
    """A category of the bank of starts."""
    position: tuple[float, float] = (0.0, 0.0)
    """[m]"""
    facing: float = 0.0
    """Counterclockwise from +y, seen from above [degrees]."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not all(map(math.isfinite, (*self.position, self.facing))):
            raise ValueError("a person needs finite numbers for its position and facing")


@dataclass(frozen=True)
class Scene:
    """Who and what is in a world, and what happens."""

    people: tuple[Person, ...] = (Person(),)
    elements: tuple[Element[Any], ...] = ()
    ground: Ground = field(default_factory=Ground)
    get_up: bool = True
    """Whether people who have fallen come to rest and get up; without, the prior goes on with them as it can."""
    planner: Planner = field(default_factory=Planner)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.people:
            raise ValueError("a scene needs at least one person")
        for element in self.elements:
            for person in element.people():
                if not 0 <= person < len(self.people):
                    name = type(element).__name__.lower()
                    raise ValueError(f"{name} is for person {person}, and the scene has people 0 to {len(self.people) - 1}")

    @property
    def events(self) -> tuple[Event, ...]:
        """All that happens, for exports."""
        return tuple(event for element in self.elements for event in element.events)


@dataclass(frozen=True, eq=False)
class Plan:
    """Frames that people have decided on."""

    frames: Candidates
    """Along the candidates' dimension."""
    people: Bool[Tensor, "*w p"]
    """Who has a plan."""
    since: int
    """Frame at which it was made."""


@dataclass(frozen=True, eq=False)
class WorldState:
    """A world at one frame."""

    frame: int
    people: State
    """x has the shape *w p 22 3."""
    memories: tuple[object, ...]
    """Of the elements."""
    pivot: Float[Tensor, "*w 3"] | None = None
    """Of a ground that has begun to tilt [m]."""
    plan: Plan | None = None
    fallen: Fallen | None = None
    """Who lies or gets up, where people do."""


@dataclass(frozen=True, eq=False)
class World:
    """A scene and the simulator that moves its people. Worlds with leading dimensions `*w` run side by side, each with its own people."""

    scene: Scene
    simulator: Simulator
    opening: Simulator | None = None
    """Moves the people of a scene that follows a recording, up to the frame at which the recording hands over."""

    def _simulator_at(self, frame: int) -> Simulator:
        return self.opening if self.opening and self._follows(frame) else self.simulator

    def _follows(self, frame: int) -> bool:
        """Whether people follow a recording at a frame."""
        prior = self.simulator.prior
        return isinstance(prior, ClipPrior) and (prior.then is None or frame < prior.handover)

    @property
    def fps(self) -> float:
        """[Hz]."""
        return self.simulator.prior.fps

    def start(self, seeds: Sequence[int] | int) -> WorldState:
        """Put everybody at their places: one world, or one for each seed."""
        prior, people = self.simulator.prior, self.scene.people
        if isinstance(prior, ClipPrior):
            if len(people) > 1:
                raise ValueError("a scene that follows a recording has one person")
            one = prior.start()
            count = () if isinstance(seeds, int) else (len(seeds),)
            state = one.map(lambda values: values.expand(*count, 1, *values.shape).clone())
        else:
            if not isinstance(prior, CVAEPrior):
                raise ValueError(f"the bank of starts belongs to the shipped prior, not to {prior.name}: use World.start_from with a state")
            parts = [_placed(prior.start(p.start, seed=_seeds_of(seeds, i)), p) for i, p in enumerate(people)]
            dim = 0 if isinstance(seeds, int) else 1
            state = State(*(torch.stack([getattr(s, name) for s in parts], dim=dim) for name in ("x", "v", "q", "memory")))
        return self.start_from(state)

    def start_from(self, people: State) -> WorldState:
        """Start with given states of everybody, *w p."""
        if people.x.shape[-3] != len(self.scene.people):
            raise ValueError(f"the scene has {len(self.scene.people)} people, and {people.x.shape[-3]} states were given")
        _refuse_overlap(people, self.simulator)
        moment = SceneContext(0, self.fps, people, self.simulator.prior.skeleton, self.scene.ground.plane(0.0, 1 / self.fps, _origin(people)))
        return WorldState(0, people, tuple(element.begin(moment) for element in self.scene.elements))

    def streams(self, seeds: Sequence[int] | int) -> Streams:
        """Return the random numbers of everybody."""
        count = len(self.scene.people)
        if isinstance(seeds, int):
            return Streams([_person_seed(seeds, i) for i in range(count)])
        return Streams([_person_seed(s, i) for s in seeds for i in range(count)]).unflatten(len(seeds), count)

    def ground(self, now: WorldState, time: float) -> Plane:
        """Return the ground at a time."""
        pivot = _origin(now.people) if now.pivot is None else now.pivot
        return self.scene.ground.plane(time, 1 / self.fps, pivot)

    def grounds(self, states: Sequence[WorldState]) -> Plane:
        """Return the ground at every frame, along a dimension before the vector's."""
        return Plane.stacked([self.ground(state, state.frame / self.fps) for state in states])

    def step(self, now: WorldState, rng: Streams, *, also: Sequence[StepInputs] = ()) -> tuple[WorldState, Report]:
        """Advance everybody and everything by a frame; `also` is what somebody outside does, such as a viewer's mouse."""
        now = self._with_pivot(now)
        ground = self.ground(now, (now.frame + 1) / self.fps)
        moment = SceneContext(now.frame, self.fps, now.people, self.simulator.prior.skeleton, ground, self.balls(now))
        acted = [element.act(memory, moment) for element, memory in zip(self.scene.elements, now.memories, strict=True)]
        influences = [*(influence for _, influence in acted), *also]
        forces = sum((i.forces for i in influences if i.forces is not None), start=moment.no_forces())
        fallen, rising = self._rising(now, ground)
        plan = self._planned(now, [g for i in influences for g in i.goals], ground, rng)
        wish, wishing = _merged(plan, now.frame, rising, fallen)
        external = External(
            forces=forces,
            colliders=(_per_person(ground), *(c for i in influences for c in i.colliders)),
            energies=[e for i in influences for e in i.energies],
            floor=None if self.scene.ground.level else height_of(ground, now.people.x[..., 0, :2]),
            plan=wish,
            planned=wishing,
            held=_any_of([i.held for i in influences]),
            stiff=_any_of([i.stiff for i in influences]),
        )
        people, report = self._simulator_at(now.frame).step(now.people, external, rng)
        people, report = self._apart(now, people, report, ground)
        return WorldState(now.frame + 1, people, tuple(memory for memory, _ in acted), now.pivot, plan, fallen), report

    def balls(self, now: WorldState) -> list[Balls]:
        """Return all spheres in the world."""
        shown = (element.balls(memory) for element, memory in zip(self.scene.elements, now.memories, strict=True))
        return [balls for balls in shown if balls is not None]

    def _with_pivot(self, now: WorldState) -> WorldState:
        """Settle what the ground tilts about, when it begins to."""
        return replace(now, pivot=self.scene.ground.settled(now.pivot, _origin(now.people), now.frame, self.fps))

    def _apart(self, now: WorldState, people: State, report: Report, ground: Plane) -> tuple[State, Report]:
        """Move people out of each other."""
        near = neighbours(people.x)
        if near is None:
            return people, report
        simulator, h = self.simulator, 1 / self.fps
        skeleton = simulator.prior.skeleton
        x, forces = moved_apart(people.x, now.people.x, near, skeleton, _per_person(ground), friction=simulator.friction, h=h)
        if x is people.x:
            return people, report
        memory = apply_impulse(simulator.prior, people.memory, forces)
        moved = State(x, (x - now.people.x) * self.fps, skeleton.inverse(x, twist_from=people.q), memory)
        return moved, replace(report, external_forces=report.external_forces + forces)

    def _planned(self, now: WorldState, goals: Sequence[Goal], ground: Plane, rng: Streams) -> Plan | None:
        """Look ahead anew every few frames, for those who have a goal."""
        planner, batch = self.scene.planner, now.people.x.shape[:-2]
        if now.frame % planner.every:
            return now.plan
        if self._follows(now.frame):
            return None
        wanted = torch.zeros(batch, dtype=torch.bool)
        for goal in goals:
            wanted |= goal.people
        if not wanted.any():
            return None
        index = wanted.reshape(-1).nonzero().squeeze(-1)
        prior, flat = self.simulator.prior, now.people.flat()[index]
        floor = height_of(ground, now.people.x[..., 0, :2]).reshape(-1)[index]
        lift = torch.nn.functional.pad(floor.unsqueeze(-1), (2, 0)).unsqueeze(-2)

        def cost(joints: Tensor, people: Tensor) -> Tensor:
            total = torch.zeros(joints.shape[:2], dtype=joints.dtype)
            for goal in goals:
                mine = goal.people.reshape(-1)[people].unsqueeze(-1)
                total = total + torch.where(mine, goal.cost(joints, people), 0.0)
            return total

        found = planner.plan(prior, replace(flat, x=flat.x - lift), cost, index, rng.pick(index.tolist()))
        found = replace(found, x=found.x + lift.unsqueeze(-3))

        def spread(values: Tensor) -> Tensor:
            whole = values.new_zeros(wanted.numel(), *values.shape[1:])
            whole[index] = values
            return whole.reshape(*batch, *values.shape[1:])

        return Plan(Candidates(spread(found.x), spread(found.q), spread(found.memory)), wanted, now.frame)

    @functools.cached_property
    def _standing(self) -> Float[Tensor, "22 3 3"] | None:
        """How somebody stands who has got up: as somebody of the bank of starts, where there is one."""
        prior = self.simulator.prior
        prior = prior.then if isinstance(prior, ClipPrior) else prior
        try:
            return prior.start("stand", seed=STANDING_SEED).q if isinstance(prior, CVAEPrior) else None
        except ValueError:  # the bank belongs to the shipped prior
            return None

    def _rising(self, now: WorldState, ground: Plane) -> tuple[Fallen | None, Candidates | None]:
        """Return who lies or gets up, and how."""
        prior = self.simulator.prior
        if not self.scene.get_up or self._follows(now.frame):
            return None, None
        floor = height_of(ground, now.people.x[..., 0, :2])
        return next_wish(now.fallen or Fallen.nobody(now.people), now.people, floor, prior, self._standing)


def _merged(
    plan: Plan | None, frame: int, rising: Candidates | None, fallen: Fallen | None
) -> tuple[Candidates | None, Bool[Tensor, "*w p"] | None]:
    """Return what people wish for in place of what the prior proposes, and who does: who lies gets up before anything else."""
    planned = None if plan is None else _frame_of(plan, frame)
    if rising is None or fallen is None:
        return planned, None if plan is None else plan.people
    if planned is None or plan is None:
        return rising, fallen.limp_or_rising
    who = fallen.limp_or_rising

    def chosen(own: Tensor, other: Tensor) -> Tensor:
        return torch.where(who.reshape(*who.shape, *([1] * (own.ndim - who.ndim))), own, other)

    both = Candidates(chosen(rising.x, planned.x), chosen(rising.q, planned.q), chosen(rising.memory, planned.memory))
    return both, who | plan.people


def _any_of(masks: Sequence[Bool[Tensor, "..."] | None]) -> Bool[Tensor, "..."] | None:
    """Mark what any mask marks; nothing where there is none."""
    given = [mask for mask in masks if mask is not None]
    return torch.stack(given).any(0) if given else None


def _frame_of(plan: Plan, frame: int) -> Candidates:
    """Return the planned frame that follows a frame."""
    at = frame - plan.since
    f = plan.frames
    return Candidates(f.x[..., at : at + 1, :, :], f.q[..., at : at + 1, :, :, :], f.memory[..., at : at + 1, :])


def _per_person(plane: Plane) -> Plane:
    """Give a plane of each world a dimension for its people."""
    return plane if plane.normal.ndim == 1 else plane.map(lambda v: v.unsqueeze(-2), lambda s: s.unsqueeze(-1))


def _origin(people: State) -> Float[Tensor, "*w 3"]:
    """Return the place on the level floor under the first person."""
    return people.x[..., 0, 0, :] * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)


def _person_seed(seed: int, person: int) -> int:
    """Give everybody in a world other random numbers; the first has the world's own."""
    return seed + 1_000_003 * person


def _seeds_of(seeds: Sequence[int] | int, person: int) -> list[int] | int:
    return _person_seed(seeds, person) if isinstance(seeds, int) else [_person_seed(s, person) for s in seeds]


def _placed(state: State, person: Person) -> State:
    """Turn and move a state of the bank to where a person starts."""
    angle = torch.tensor([0.0, 0.0, math.radians(person.facing)], dtype=torch.float64)
    R = exp(angle)
    shift = torch.tensor((*person.position, 0.0), dtype=torch.float64)
    q = torch.cat((R @ state.q[..., :1, :, :], state.q[..., 1:, :, :]), dim=-3)
    return State(state.x @ R.T + shift, state.v @ R.T, q, turn_memory(state.memory, R))


def _refuse_overlap(people: State, simulator: Simulator) -> None:
    """Refuse two people in one place."""
    x, radii = people.x, simulator.prior.skeleton.radii
    count = x.shape[-3]
    for i in range(count):
        for j in range(i + 1, count):
            near = (x[..., i, 0, :] - x[..., j, 0, :]).norm(dim=-1).min() < NEAR
            if not near:
                continue
            gap = torch.cdist(x[..., i, :, :], x[..., j, :, :]) - radii.unsqueeze(-1) - radii
            if float(gap.min()) < -0.03:
                raise ValueError(f"people {i} and {j} start inside each other by {-float(gap.min()):.2f} m: move one of them away")
