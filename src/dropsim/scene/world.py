"""A world of people, ground and objects."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import joint_index
from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.control.floor import Footing, FootingStage, crouch, lowered, noticed
from dropsim.control.getting_up import RiseStage, get_up
from dropsim.control.planner import Plan, Planner, make_plan
from dropsim.files.units import Degrees, Metres, MetresPerSecond
from dropsim.motion.motion import Event
from dropsim.physics.contact import Collider, Plane, Shape, Solids, colliders_by_world, solids
from dropsim.physics.settle import NEAR
from dropsim.physics.step import Report, Simulator, Stage, StepInputs
from dropsim.priors.intent import Intent
from dropsim.priors.prior import State
from dropsim.priors.recording import ClipPrior
from dropsim.scene.batches import stack_inputs
from dropsim.scene.element import Element, SceneContext, height_of
from dropsim.scene.loose import LooseObjects
from dropsim.scene.objects import Ground
from dropsim.scene.solids import SolidObject

HIGHEST_START = 1.6
"""People who start over something that is up to about this high start on top of it [m]."""

FEET = (joint_index("left_ankle"), joint_index("right_ankle"))
STILL, AT_REST = 0.05, 0.25
"""Velocities below the first are asked of people who are to stand, and below the second they have come to rest
[m/s]."""
AWAY = 0.3
"""People whose feet are farther than this from their place, about a foot's length, stand where they come to rest next
[m]."""


@dataclass(frozen=True)
class Person:
    """Start of a person: activity, position and speed."""

    start: str = "walk"
    """A category of the prior's starts."""
    position: tuple[Metres, Metres] = (0.0, 0.0)
    facing: Degrees = 0.0
    """Direction, counterclockwise from +y seen from above."""
    speed: MetresPerSecond | None = None
    """Speed in that direction, 0 to stand, while nothing in the scene says otherwise; by default people do as recorded
    ones do."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (*self.position, self.facing, self.speed or 0.0))):
            raise ValueError("a person needs finite numbers for its position, facing and speed")


def intent_of(people: Sequence[Person]) -> Intent | None:
    """Return what people want who have a speed."""
    if all(person.speed is None for person in people):
        return None
    turn = np.radians([person.facing for person in people])
    speed = np.array([np.nan if person.speed is None else person.speed for person in people])
    return Intent.toward(speed[:, None] * np.stack((-np.sin(turn), np.cos(turn)), -1))


@dataclass(frozen=True)
class Scene:
    """People, ground and elements of a world."""

    people: tuple[Person, ...] = (Person(),)
    elements: tuple[Element[Any], ...] = ()
    ground: Ground = field(default_factory=Ground)
    get_up: bool = True
    """True if people who fell get up, whatever their prior knows; without, the prior goes on with them as it can."""
    planner: Planner = field(default_factory=Planner)
    """Steers people whose prior takes no intent."""

    def __post_init__(self) -> None:
        for name, kind in (("people", Person), ("elements", Element)):
            given = getattr(self, name)
            if isinstance(given, kind):
                object.__setattr__(self, name, (given,))
            elif not all(isinstance(one, kind) for one in given):
                raise ValueError(f"the {name} of a scene are a tuple of {kind.__name__}s")
        if not self.people:
            raise ValueError("a scene needs at least one person")
        for element in self.elements:
            for person in element.people():
                if not 0 <= person < len(self.people):
                    name = type(element).__name__.lower()
                    raise ValueError(
                        f"{name} is for person {person}, and the scene has people 0 to {len(self.people) - 1}"
                    )

    def events_of(self, person: int) -> tuple[Event, ...]:
        """Return the events of a person, for exports."""
        mine = (element for element in self.elements if person in (element.people() or (person,)))
        return tuple(event for element in mine for event in element.events)


@dataclass(frozen=True, eq=False)
class WorldState:
    """A world at one frame."""

    frame: int
    people: State
    """x has the shape *w p 22 3."""
    memories: tuple[Any, ...]
    """Memories of the elements; if worlds have scenes of their own, a tuple of them for each world."""
    pivot: Float[np.ndarray, "*w 3"] | None = None
    """Point about which the ground tilts [m]."""
    plan: Plan | None = None
    rising: Float[np.ndarray, "*w p m"] | None = None
    """Memory that the motion field has of people who lie or rise with another prior; NaN for others."""
    footing: Footing | None = None
    """The ground under people who are on more than a plane."""
    around: Solids | None = None
    """Solids as people know them, if there is more than a plane."""
    places: Float[np.ndarray, "*w p 2"] | None = None
    """Places of people who stand, between their feet [m]; NaN for others."""
    crouch: Float[np.ndarray, "*w p 2"] | None = None
    """Depth by which people have lowered their bodies [m]; None if nobody has."""


@dataclass(frozen=True, eq=False)
class World:
    """A scene and the simulator that moves its people; a batch of worlds has leading dimensions `*w`."""

    scene: Scene
    simulator: Simulator
    opening: Simulator | None = None
    """Moves the people of a scene that follows a recording, up to the frame at which the recording hands over."""
    scenes: tuple[Scene, ...] = ()
    """Scenes of the worlds along one leading dimension, if they differ; all have the planner and get_up of `scene`."""

    def _follows(self, frame: int) -> bool:
        """Tell whether people follow a recording at a frame."""
        prior = self.simulator.prior
        return isinstance(prior, ClipPrior) and (prior.then is None or frame < prior.handover)

    @property
    def fps(self) -> float:
        """Frame rate [Hz]."""
        return self.simulator.prior.fps

    def start(self, seeds: Sequence[int] | int) -> WorldState:
        """Put everyone at their places: one world, or one for each seed."""
        prior, people = self.simulator.prior, self.scene.people
        if self.scenes and not isinstance(seeds, int):
            starts = [World(s, self.simulator).start(k) for s, k in zip(self.scenes, seeds, strict=True)]
            parts = zip(*(vars(one.people).values() for one in starts), strict=True)
            return self.start_from(State(*(np.stack(part) for part in parts)))
        if isinstance(prior, ClipPrior):
            if len(people) > 1:
                raise ValueError("a scene that follows a recording has one person")
            count = () if isinstance(seeds, int) else (len(seeds),)
            state = prior.start().map(lambda values: np.broadcast_to(values, (*count, 1, *values.shape)).copy())
        else:
            parts = [
                _placed(prior.start(p.start, _seeds_of(seeds, i)), p, self.simulator) for i, p in enumerate(people)
            ]
            dim = 0 if isinstance(seeds, int) else 1
            state = State(*(np.stack([getattr(s, name) for s in parts], dim) for name in ("x", "v", "q", "memory")))
        # Tilted ground has people at its own height from the start.
        ground, here = self.scene.ground, _origin(state)
        if not ground.level:
            plane = ground.plane(0.0, 1 / self.fps, ground.pivot_at(0, self.fps, here, here))
            state = lowered(state, -height_of(plane, state.x[..., 0, :2]))
        return self.start_from(self._on_objects(state))

    def _on_objects(self, state: State) -> State:
        """Put people who start on top of something onto it; loose objects bear nobody."""
        still = (e for e in self.scene.elements if isinstance(e, SolidObject) and not e.loose)
        shapes = tuple(s for e in still for s in e.shapes(0.0, 1 / self.fps) if isinstance(s, Shape))
        if not shapes:
            return state
        batch = state.x.shape[:-2]
        ground = self.scene.ground.plane(0.0, 1 / self.fps, _origin(state))
        # To look down from, and not where feet go next: nobody starts on what is ahead of them.
        above = lowered(replace(state, v=np.zeros_like(state.v)), np.full(batch, -HIGHEST_START))
        footing = Footing.under(above, solids((_per_person(ground), *shapes), batch), None, 1 / self.fps)
        rise = footing.floor - height_of(ground, state.x[..., 0, :2])
        return lowered(state, -np.where(rise > 1e-6, rise, 0.0))

    def start_from(self, people: State) -> WorldState:
        """Start with given states of everyone, *w p."""
        if people.x.shape[-3] != len(self.scene.people):
            raise ValueError(
                f"the scene has {len(self.scene.people)} people, and {people.x.shape[-3]} states were given"
            )
        if not all(np.isfinite(values).all() for values in (people.x, people.v, people.q)):
            raise ValueError("a start state holds numbers that are not finite")
        _refuse_overlap(people, self.simulator)
        ground = self._plane(0.0, _origin(people))
        context = SceneContext(0, self.fps, people, self.simulator.skeleton, ground)
        memories = [tuple(e.begin(here) for e in loose.elements) for loose, here in self._parts(context)]
        return WorldState(0, people, self._remembered(memories))

    def streams(self, seeds: Sequence[int] | int) -> Streams:
        """Return the random numbers of everyone."""
        count = len(self.scene.people)
        if isinstance(seeds, int):
            return Streams([_person_seed(seeds, i) for i in range(count)])
        return Streams([_person_seed(s, i) for s in seeds for i in range(count)]).unflatten(len(seeds), count)

    def ground(self, now: WorldState, time: float) -> Plane:
        """Return the ground at a time."""
        return self._plane(time, _origin(now.people) if now.pivot is None else now.pivot)

    def grounds(self, states: Sequence[WorldState]) -> Plane:
        """Return the ground at every frame, along a dimension before the vector's."""
        return Plane.stacked([self.ground(state, state.frame / self.fps) for state in states])

    def step(self, now: WorldState, rng: Streams, *, also: Sequence[StepInputs] = ()) -> tuple[WorldState, Report]:
        """Advance everyone and everything by a frame; `also` is what somebody outside does, such as a viewer's mouse."""
        now = replace(now, pivot=self._pivot(now))
        ground = self.ground(now, (now.frame + 1) / self.fps)
        follows = self._follows(now.frame)
        simulator = self.opening if self.opening and follows else self.simulator
        context = SceneContext(
            now.frame, self.fps, now.people, simulator.skeleton, ground, (), now.footing, now.around, simulator.options
        )
        memories, acted = self._act(now.memories, context)
        inputs = StepInputs.merged([self._wanted, acted, *also])
        if inputs.intent is not None and inputs.intent.height.shape != context.batch:
            inputs = replace(inputs, intent=inputs.intent.broadcast(*context.batch))
        colliders = (_per_person(ground), *inputs.colliders)
        around = solids(colliders, context.batch)
        context = self._around(context, around)
        scripted = simulator.options.scripts
        if context.around is not None and not follows and scripted:
            inputs = replace(inputs, intent=_clear(inputs.intent, context))
        places = depth = None
        if inputs.intent is not None and scripted:
            places = _places(now, inputs.intent)
            depth = crouch(now.crouch, inputs.intent, simulator.skeleton.standing_height, context.h)
            inputs = replace(inputs, intent=_upright(inputs.intent, places, simulator.skeleton))
        plan = self._plan(now, inputs.intent, context, rng) if scripted and not follows else None
        footing = context.footing
        if now.crouch is not None and scripted:
            level = footing or Footing.level(*context.batch)
            footing = level.crouched(now.people, now.crouch[..., 0], now.crouch[..., 1])
        floor = [] if footing is None else [FootingStage(footing, now.people, simulator.skeleton, context.h)]
        up = self._get_up(now, floor, inputs.intent, rng) if scripted and not follows else None
        stages = [*([plan.stage(now.frame)] if plan else []), *([up] if up else []), *floor, *inputs.stages]
        stages = stages if scripted else []

        def immovable(x: Float[np.ndarray, "*w p 22 3"]) -> tuple[Collider, ...]:
            moved = replace(now.people, x=x, v=(x - now.people.x) * self.fps)
            return self._after(memories, replace(context, people=moved, around=around))[1]

        inputs = replace(inputs, colliders=colliders, stages=stages, shared=True, immovable=immovable)
        people, report = simulator.step(now.people, inputs, rng)
        rising = None if up is None else up.remember(report.chosen, simulator.num_samples)
        memories, _ = self._after(memories, replace(context, people=people, around=around))
        return WorldState(
            now.frame + 1, people, memories, now.pivot, plan, rising, context.footing, context.around, places, depth
        ), report

    def _act(self, memories: tuple[Any, ...], context: SceneContext) -> tuple[tuple[Any, ...], StepInputs]:
        """Let the elements act and loose objects move; return the memories, and what all that does to people."""
        changed, inputs = list[tuple[Any, ...]](), list[StepInputs]()
        for world, (loose, here) in enumerate(self._parts(context)):
            pairs = list(zip(loose.elements, memories[world] if self.scenes else memories, strict=True))
            here = replace(here, objects=[solid for element, memory in pairs for solid in element.solids(memory)])
            acted = [element.act(memory, here) for element, memory in pairs]
            colliders = (_per_person(here.ground), *(c for _, done in acted for c in done.colliders))
            moved, pushed = loose.move([memory for memory, _ in acted], here, colliders)
            changed.append(moved)
            inputs.append(StepInputs.merged([*(done for _, done in acted), pushed]))
        return self._remembered(changed), stack_inputs(inputs, context) if self.scenes else inputs[0]

    def _after(self, memories: tuple[Any, ...], context: SceneContext) -> tuple[tuple[Any, ...], tuple[Collider, ...]]:
        """Return the memories once people have moved, and the loose objects that cannot make way for them."""
        if not any(loose.places for loose in self._loose):
            return memories, ()
        changed, stuck = list[tuple[Any, ...]](), list[tuple[int, Collider]]()
        for world, (loose, here) in enumerate(self._parts(context)):
            moved, colliders = loose.let_through(memories[world] if self.scenes else memories, here)
            changed.append(moved)
            stuck += [(world, collider) for collider in colliders]
        colliders = colliders_by_world(tuple(stuck), context.batch) if self.scenes else tuple(c for _, c in stuck)
        return self._remembered(changed), colliders

    def _parts(self, context: SceneContext) -> Iterator[tuple[LooseObjects, SceneContext]]:
        """Return the elements of each scene, and what they see."""
        for world, loose in enumerate(self._loose):
            yield loose, context.of_world(world) if self.scenes and loose.elements else context

    def _remembered(self, memories: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        return tuple(memories) if self.scenes else memories[0]

    @functools.cached_property
    def _loose(self) -> tuple[LooseObjects, ...]:
        return tuple(LooseObjects(scene.elements) for scene in self.scenes or (self.scene,))

    @functools.cached_property
    def _grounds(self) -> tuple[Ground, ...]:
        """Ground of all worlds, or of each if they differ."""
        grounds = tuple(scene.ground for scene in self.scenes or (self.scene,))
        return grounds if len(set(grounds)) > 1 else grounds[:1]

    def _plane(self, time: float, pivot: Float[np.ndarray, "*w 3"]) -> Plane:
        if len(self._grounds) == 1:
            return self._grounds[0].plane(time, 1 / self.fps, pivot)
        return Plane.stacked([g.plane(time, 1 / self.fps, p) for g, p in zip(self._grounds, pivot, strict=True)])

    def _pivot(self, now: WorldState) -> Float[np.ndarray, "*w 3"]:
        here = _origin(now.people)
        before = here if now.pivot is None else now.pivot
        if len(self._grounds) == 1:
            return self._grounds[0].pivot_at(now.frame, self.fps, before, here)
        rows = zip(self._grounds, before, here, strict=True)
        return np.stack([ground.pivot_at(now.frame, self.fps, *places) for ground, *places in rows])

    @functools.cached_property
    def _wanted(self) -> StepInputs:
        """Velocities that people have of their own."""
        if not self.scenes:
            return StepInputs(intent=intent_of(self.scene.people))
        wanted = [intent_of(s.people) or Intent.unknown(len(s.people)) for s in self.scenes]
        parts = (np.stack([getattr(one, name) for one in wanted]) for name in ("velocity", "facing", "height"))
        intent = Intent(*parts)
        return StepInputs(intent=intent if intent.known.any() else None)

    def _around(self, context: SceneContext, around: Solids) -> SceneContext:
        """Look for the ground under people's feet, if there is more than a level plane."""
        if around.flat and all(ground.level for ground in self._grounds):
            return context if context.around is None else replace(context, footing=None, around=None)
        around = noticed(context.people, self.simulator.skeleton, around, context.around, context.h)
        landings = self.simulator.prior.landings(context.people)
        return replace(
            context, footing=Footing.under(context.people, around, context.footing, context.h, landings), around=around
        )

    def _plan(self, now: WorldState, intent: Intent | None, context: SceneContext, rng: Streams) -> Plan | None:
        """Look ahead every few frames for people who want something, if the prior does not take intents itself."""
        if self.simulator.prior.takes_intent:
            return None
        if now.frame % self.scene.planner.every:
            return now.plan
        if intent is None:
            return None
        return make_plan(
            self.scene.planner, self.simulator.prior, lowered(now.people, context.floor), intent, now.frame, rng
        )

    def _get_up(self, now: WorldState, floor: Sequence[Stage], intent: Intent | None, rng: Streams) -> RiseStage | None:
        """Ask the motion field for people who lie, if the prior knows nobody on the ground."""
        if not self.scene.get_up or self.simulator.prior.gets_up:
            return None
        seen = functools.reduce(lambda state, stage: stage.query(state), floor, now.people)
        return get_up(now.rising, seen, self.simulator.prior, rng, intent)


def _places(now: WorldState, intent: Intent) -> Float[np.ndarray, "*w p 2"]:
    """Return the places of people who are told to stand: where their feet are when they come to rest, until something drives them away."""
    x, v = now.people.x, now.people.v
    feet = x[..., FEET, :2].mean(-2)
    before = np.full(feet.shape, np.nan) if now.places is None else now.places
    lost = ~(np.linalg.norm(feet - before, axis=-1) < AWAY)
    rests = lost & (np.linalg.norm(v[..., 0, :2], axis=-1) < AT_REST)
    places = np.where(rests[..., None], feet, np.where(lost[..., None], np.nan, before))
    return np.where((np.linalg.norm(intent.velocity, axis=-1) < STILL)[..., None], places, np.nan)


def _upright(intent: Intent, places: Float[np.ndarray, "*w p 2"], skeleton: Skeleton) -> Intent:
    """Return intents as priors take them: with places, and without heights below standing, to which bodies are lowered."""
    return replace(
        intent, place=places, height=np.where(intent.height < skeleton.standing_height, np.nan, intent.height)
    )


def _clear(intent: Intent | None, context: SceneContext) -> Intent:
    """Return intents that stop before walls, also those of people who want nothing in particular."""
    given = Intent.unknown(*context.batch) if intent is None else intent
    return replace(given, velocity=context.clear_of_walls(np.broadcast_to(given.velocity, (*context.batch, 2))))


def _per_person(plane: Plane) -> Plane:
    """Give a plane of each world a dimension for its people."""
    return plane if plane.normal.ndim == 1 else plane.map(lambda v: v[..., None, :], lambda s: s[..., None])


def _origin(people: State) -> Float[np.ndarray, "*w 3"]:
    """Return the place on the level floor under the first person."""
    return people.x[..., 0, 0, :] * np.array([1.0, 1.0, 0.0])


def _person_seed(seed: int, person: int) -> int:
    """Give everyone in a world other random numbers; the first person has the world's own."""
    return seed + 1_000_003 * person


def _seeds_of(seeds: Sequence[int] | int, person: int) -> list[int] | int:
    return _person_seed(seeds, person) if isinstance(seeds, int) else [_person_seed(s, person) for s in seeds]


def _placed(state: State, person: Person, simulator: Simulator) -> State:
    """Turn and move a start state to where a person starts."""
    R = exp(np.array([0.0, 0.0, math.radians(person.facing)]))
    shift = np.array((*person.position, 0.0))
    q = np.concatenate((R @ state.q[..., :1, :, :], state.q[..., 1:, :, :]), -3)
    return State(state.x @ R.T + shift, state.v @ R.T, q, simulator.prior.turn_memory(state.memory, R))


def _refuse_overlap(people: State, simulator: Simulator) -> None:
    """Refuse two people in one place."""
    x, radii = people.x, simulator.skeleton.radii
    count = x.shape[-3]
    for i in range(count):
        for j in range(i + 1, count):
            if np.linalg.norm(x[..., i, 0, :] - x[..., j, 0, :], axis=-1).min() > NEAR:
                continue
            apart = np.linalg.norm(x[..., i, :, None, :] - x[..., j, None, :, :], axis=-1)
            gap = float((apart - radii[:, None] - radii).min())
            if gap < -0.03:
                raise ValueError(f"people {i} and {j} start inside each other by {-gap:.2f} m: move one of them away")


def batch_scenes(
    scenes: Sequence[Scene], simulator: Simulator, seeds: Sequence[int], *, opening: Simulator | None = None
) -> tuple[World, WorldState]:
    """Return a world for each scene and seed, along one leading dimension, and its start; `opening` as World has it.

    The scenes have the same number of people, planner and get_up; people, objects, ground and what happens are each
    scene's own. The objects of a run are in its `by_world`; events are the scenes'.
    """
    if len({(len(s.people), s.planner, s.get_up) for s in scenes}) > 1:
        raise ValueError(
            "scenes in a batch need the same number of people, planner and get_up: run them in groups that have"
        )
    world = World(scenes[0], simulator, opening, tuple(scenes))
    return world, world.start(list(seeds))
