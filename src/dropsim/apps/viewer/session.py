"""A live simulation without a browser: a world that runs frame by frame, and its last half minute.

`dropsim.apps.viewer.commands` has everything that can be done to it.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dropsim.apps.viewer.shot import Recording, Shot, Sphere
from dropsim.apps.viewer.steering import CROUCHING, JUMPING, BoxGrab, GoTo, Grab, Walk, steering_inputs
from dropsim.compute.random import Streams
from dropsim.control.planner import Planner
from dropsim.motion.motion import Event, Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import Report, Simulator, StepInputs, stack_frames
from dropsim.priors.prior import Prior
from dropsim.priors.recording import ClipPrior
from dropsim.scene import Box, Element, Follow, Ground, Scene, SceneContext, Solid, StiffJoint, World, WorldState
from dropsim.scene.batches import EveryWorld, Grounds
from dropsim.scene.element import height_of, interpolated
from dropsim.scene.files import Setup
from dropsim.scene.loose import is_loose
from dropsim.scene.rollout import WAITING

JUMPED = 1.08
"""Height of the pelvis in the air, relative to standing."""
MAX_PARTS = 100
"""Numbers of solids and spheres that belong to one element."""
LOST = 30.0
"""A person this far from the ground has left the world [m]."""
TILT_RATE = 15.0
"""[degrees/s]"""
MOST_EVENTS, MOST_ADDED = 1000, 100
"""Events and perturbations since the start that are remembered."""
LIVE_PLANNER = Planner(num_rollouts=16, horizon=10, every=5)
"""Smaller than a scene's own planner, which takes the time of several frames."""


@dataclass(frozen=True)
class Switches:
    """Parts of the simulator that are on: the paper's ablations."""

    contact: bool = True
    range_of_motion: bool = True
    kinematic: bool = True
    """The motion prior; without it people are ragdolls."""
    correct: bool = True
    """The soft correction of the root wrench."""

    def applied(self, simulator: Simulator) -> Simulator:
        """Return a simulator with these parts; those that its own options switch off stay off."""
        options = simulator.options
        changes = {name: on and getattr(options, name) for name, on in vars(self).items()}
        # The ground's reaction is fitted to the prior's candidates: it would hold a body up even without the prior.
        return simulator.with_options(**changes, react=options.react and self.kinematic)


@dataclass(frozen=True, eq=False)
class Item:
    """An element of the world and its expiry."""

    element: Element[Any]
    until: int | None = None
    """Frame; None: never."""
    key: int = field(default_factory=itertools.count().__next__)

    @property
    def is_loose_box(self) -> bool:
        return isinstance(self.element, Box) and is_loose(self.element)


@dataclass(eq=False)
class Session:
    """A world that runs frame by frame and takes commands in between. Not thread-safe: use it from one thread."""

    simulator: Simulator
    setup: Setup = field(default_factory=Setup)
    """Start of every run, with the boxes and the ice that were put there; its elements act at their times."""
    seconds: float = 30.0
    """Length of the buffer [s]."""
    priors: Mapping[str, Callable[[], Prior]] = field(default_factory=dict)
    """Functions that open the priors to choose from, by name."""

    opening: Simulator | None = field(default=None, init=False)
    """Simulator that follows a recording, if the scene starts with one."""
    prior_name: str = field(default="", init=False)
    """Name of the prior that was chosen among `priors`, or of the first."""
    switches: Switches = field(default_factory=Switches, init=False)
    goals: Mapping[int, Walk | GoTo] = field(default_factory=dict, init=False)
    """Goals of people who are steered."""
    crouched: frozenset[int] = field(default=frozenset(), init=False)
    """People who are told to crouch."""
    jumping: Mapping[int, float] = field(default_factory=dict, init=False)
    """People who are told to jump, and the time until which they try [s]."""
    stiff: bool = field(default=False, init=False)
    """Makes everybody's right knee stiff."""
    tilt: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    """Target roll about +y and pitch about +x [degrees]."""
    ghost: bool = field(default=False, init=False)
    """Adds a second world in which nothing disturbs the people."""
    paused: bool = field(default=False, init=False)
    pace: float = field(default=1.0, init=False)
    """Speed relative to real time."""
    grabs: Mapping[object, Grab | BoxGrab] = field(default_factory=dict, init=False)
    """Hands on limbs and boxes, by holder."""
    looking: int | None = field(default=None, init=False)
    """Frame of the buffer that is shown; None for the newest."""
    cut: tuple[int, int] | None = field(default=None, init=False)
    """First and last frame of the part of the buffer that was cut out."""

    def __post_init__(self) -> None:
        self.setup = replace(self.setup, simulator=self.simulator.options)
        self.prior_name = next(iter(self.priors), "")
        self.restart()

    def restart(self) -> None:
        """Start again with the same random numbers. Settings, boxes and ice stay; pushes, balls and obstacles go."""
        self.grabs, self.jumping, self.looking, self.cut = {}, {}, None, None
        walks = {i: goal for i, goal in self.goals.items() if isinstance(goal, Walk)}
        self.goals = {i: goal for i, goal in walks.items() if i < len(self.scene.people)}
        self.items = tuple(Item(element) for element in self.scene.elements)
        self.events, self.added = tuple[Event, ...](), tuple[Element[Any], ...]()
        self.ground: Ground = self.scene.ground
        self._build()
        seeds = [self.setup.seed] * self._num_worlds
        self._rng: Streams = self.world.streams(seeds)
        self.now = self.world.start(seeds)
        self.start = self.now.people[0]
        self._shots = deque[Shot]((self._shot(None, ()),), maxlen=max(2, round(self.seconds * self.fps)))
        self.stiffness = tuple(StiffJoint(person=i) for i in range(len(self.scene.people) if self.stiff else 0))
        if self.stiffness:
            self.rebuild([*self.items, *map(Item, self.stiffness)])
        if self.tilt != (0.0, 0.0):
            self.tilt_ground()

    def tick(self) -> Shot:
        """Advance by a frame and return it; raises ValueError if the simulation breaks."""
        if any(item.until is not None and item.until <= self.now.frame for item in self.items):
            self.rebuild([item for item in self.items if item.until is None or item.until > self.now.frame])
        people = self.now.people
        hands = [grab for grab in self.grabs.values() if isinstance(grab, Grab)]
        pulls = [(grab.held(people.x[0]), grab.force(people.x[0], people.v[0])) for grab in hands]
        pulls += self._move_boxes()
        also = [StepInputs(forces=grab.forces(people.x, people.v)) for grab in hands]
        heights = dict.fromkeys(self.crouched, CROUCHING) | dict.fromkeys(self.jumping, JUMPING)
        if self.goals or heights:
            also.append(steering_inputs(self.goals, heights, people, self.prior))
        now, report = self.world.step(self.now, self._rng, also=also)
        x = now.people.x[..., 0, :]
        height = x[..., 2] - height_of(self.world.ground(now, now.frame / self.fps), x[..., :2])
        if not np.isfinite(now.people.x).all() or (np.abs(height) > LOST).any():
            raise ValueError("a person left the world")
        if self.ghost and not self._disturbed:
            # Rounding differs between rows of a batch and would slowly drive the two worlds apart.
            now = replace(now, people=now.people.map(lambda values: np.repeat(values[:1], len(values), axis=0)))
        self.now, self.looking = now, None
        # People who are over the top of their jump land by themselves.
        over = (height[0] > JUMPED * self.simulator.skeleton.standing_height) & (now.people.v[0, :, 0, 2] < 0)
        self.jumping = {i: until for i, until in self.jumping.items() if self.time < until and not over[i]}
        self._shots.append(self._shot(report, tuple(pulls)))
        return self._shots[-1]

    @property
    def _disturbed(self) -> bool:
        """Whether anything has disturbed people since the start, or may."""
        follows = all(isinstance(item.element, Follow) for item in self.items)
        return bool(self.events) or not self.ground.level or not follows

    @property
    def shown(self) -> Shot:
        """The frame to show: the newest, or the one that somebody looks back at."""
        return self._shots[-1 if self.looking is None else min(self.looking, len(self._shots) - 1)]

    @property
    def shots(self) -> tuple[Shot, ...]:
        """The buffer, oldest first."""
        return tuple(self._shots)

    @property
    def fps(self) -> float:
        """[Hz]."""
        return self.simulator.prior.fps

    @property
    def time(self) -> float:
        """Time since the start [s]."""
        return self.now.frame / self.fps

    @property
    def scene(self) -> Scene:
        """The scene at the start, with the boxes and the ice that were put there."""
        return self.setup.scene

    @property
    def prior(self) -> Prior:
        """The motion prior, which may first follow a recording."""
        prior = self.simulator.prior
        return prior.then or prior if isinstance(prior, ClipPrior) else prior

    @property
    def plane(self) -> Plane:
        """Ground of the first world."""
        return self.world.ground(self.now, self.time).map(lambda vectors: vectors[0], lambda scalars: scalars[0])

    @property
    def _num_worlds(self) -> int:
        return 2 if self.ghost else 1

    # --- recording

    def recording(self) -> Recording:
        """Return the buffer, or the part that was cut out, as motions whose time starts at zero, and the scene.

        The scene has what was done since the start; hands and steering are left out.
        """
        first, last = self.cut or (0, len(self._shots) - 1)
        shots = self.shots[first : last + 1]
        motions = tuple(self._motion(shots, 0, i) for i in range(len(self.scene.people)))
        return Recording(motions, self._motion(shots, 1, 0) if self.ghost else None, shots, self.played_setup())

    def played_setup(self) -> Setup:
        """Return the scene with what was done since the start, to be written to a file."""
        scene = replace(self.scene, elements=(*self.scene.elements, *self.added))
        return replace(self.setup, scene=scene, simulator=self.switches.applied(self.simulator).options)

    def _motion(self, shots: Sequence[Shot], world: int, person: int) -> Motion:
        reports = [shot.report for shot in shots[1:] if shot.report is not None]
        whole = stack_frames(self.simulator, [shot.state.people for shot in shots], reports)
        first, last = shots[0].time, shots[-1].time
        noted = [*self.scene.events_of(person), *self.events] if world == 0 else []
        events = tuple(replace(event, start=event.start - first) for event in noted if first <= event.start <= last)
        return replace(whole.map(lambda values: values[world, person]), events=events, name="dropsim view")

    def note(self, name: str, duration: float = 0.0) -> None:
        """Add an event to the recording."""
        self.events = (*self.events[1 - MOST_EVENTS :], Event(name, self.time, duration))

    # --- changes of the world

    def perturb(self, element: Element[Any], seconds: float) -> None:
        """Add an element for some seconds; a scene that is saved has it too."""
        self.added = (*self.added[1 - MOST_ADDED :], element)
        until = self.now.frame + math.ceil(seconds * self.fps) + 1
        self.rebuild([*self.items, Item(element, until)])

    def tilt_ground(self) -> None:
        """Tilt the ground smoothly about the first person's place, from its present angles to `tilt`."""
        here = self.now.people.x[..., 0, :2]
        height = height_of(self.world.ground(self.now, self.time), here)
        roll, pitch = interpolated(self.ground.tilts, self.time).tolist() if self.ground.tilts else (0.0, 0.0)
        change = max(abs(roll - self.tilt[0]), abs(pitch - self.tilt[1]))
        lasts = max(change / TILT_RATE, 1 / self.fps)
        self.now = replace(self.now, pivot=np.concatenate((here[..., 0, :], height[..., :1]), axis=-1))
        self.ground = Ground(((self.time, roll, pitch), (self.time + lasts, *self.tilt)))
        self.rebuild(self.items)
        self.note("tilt", lasts)

    def rebuild(self, items: Sequence[Item]) -> None:
        """Build the world around the same people; elements that stay keep their memory, new ones begin."""
        now = self.now
        memories = {item.key: memory for item, memory in zip(self.items, self._memories, strict=True)}
        self.items = tuple(items)
        self._build()
        context = SceneContext(now.frame, self.fps, now.people[0], self.simulator.skeleton, self.plane)
        mine = tuple(memories[i.key] if i.key in memories else i.element.begin(context) for i in items)
        # Elements that lead the ghost remember nothing.
        ghosts = (None,) * sum(isinstance(item.element, Follow) for item in items)
        self.now = replace(now, memories=((mine, ghosts)[: self._num_worlds],))

    def _build(self) -> None:
        """Build the world; the ghost's is next to it, where people are led but not disturbed."""
        mine = tuple(item.element for item in self.items)
        worlds = (mine, tuple(element for element in mine if isinstance(element, Follow)))[: self._num_worlds]
        ground = Grounds(each=(self.ground, Ground())[: self._num_worlds])
        scene = replace(self.scene, elements=(EveryWorld(worlds),), ground=ground, planner=LIVE_PLANNER)
        self.world = World(scene, self.switches.applied(self.simulator), self.opening)

    @property
    def _memories(self) -> tuple[Any, ...]:
        """Memories of the first world's elements."""
        every_world: Any = self.now.memories[0]
        return every_world[0]

    def loose_box(self, key: int) -> int | None:
        """Return the position among the elements of the loose box whose solid has this number."""
        keys = [item.key if item.is_loose_box else None for item in self.items]
        return keys.index(key // MAX_PARTS) if key // MAX_PARTS in keys else None

    def _move_boxes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Let hands move the boxes that they hold; return the held points [m] and the forces [N]."""
        memories, pulls, h = list(self._memories), [], 1 / self.fps
        for grab in self.grabs.values():
            if isinstance(grab, BoxGrab) and (at := self.loose_box(grab.key)) is not None:
                element: Any = self.items[at].element
                pulls.append((grab.held(memories[at]), grab.force(memories[at], element.mass, h)))
                memories[at] = grab.moved(memories[at], element.mass, h)
        if pulls:
            every_world: Any = self.now.memories[0]
            self.now = replace(self.now, memories=((tuple(memories), *every_world[1:]),))
        return pulls

    # --- what is shown

    def show_objects(self) -> None:
        """Let the newest frame show objects that were put there or taken away, also while time stands still."""
        self._shots[-1] = replace(self._shots[-1], solids=self.solids())

    def _shot(self, report: Report | None, pulls: tuple[tuple[np.ndarray, np.ndarray], ...]) -> Shot:
        now: WorldState = self.now
        goals = tuple((goal.x, goal.y) for goal in self.goals.values() if isinstance(goal, GoTo))
        seen = self.plane, self._spheres(), self.solids()
        return Shot(now.frame, self.time, now, report, *seen, pulls, goals)

    def solids(self) -> dict[int, Solid]:
        """Return the solid objects of the first world, by number."""
        shown = {}
        for item, memory in zip(self.items, self._memories, strict=True):
            for k, solid in enumerate(item.element.solids(memory)):
                shown[MAX_PARTS * item.key + k] = solid
        return shown

    def _spheres(self) -> dict[int, Sphere]:
        shown = {}
        for item, memory in zip(self.items, self._memories, strict=True):
            if (balls := item.element.balls(memory)) is None:
                continue
            for k, (centre, radius) in enumerate(zip(balls.centres, balls.radii, strict=True)):
                if float(centre[2]) > WAITING:
                    shown[MAX_PARTS * item.key + k] = Sphere(centre, float(radius), balls.flying)
        return shown
