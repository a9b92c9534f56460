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
from jaxtyping import Float

from dropsim.apps.viewer.steering import CROUCHING, JUMPING, BoxGrab, Goal, Grab, steering_inputs
from dropsim.control.planner import Planner
from dropsim.motion.motion import Event, Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import Report, Simulator, StepInputs, stack_frames
from dropsim.priors.prior import Prior, State
from dropsim.priors.recording import ClipPrior
from dropsim.scene import Box, Element, Follow, Ground, Rollout, Scene, SceneContext, Solid, StiffJoint, World
from dropsim.scene.element import height_of, interpolated
from dropsim.scene.files import Setup
from dropsim.scene.rollout import over_time

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
Way = tuple[int, float, float, float, bool]
"""Goals: a person sent on at a velocity, or (False) released: person, time [s] and velocity [m/s]."""
CHANGED, AT_ONCE = 0.1, 1000.0
"""Change of a velocity that is remembered [m/s], and the acceleration of people who are told one [m/s^2]."""
PARTS = ("contact", "range_of_motion", "kinematic", "correct")
"""Options of the simulator that can be switched off; without the kinematic energy people are ragdolls."""
LIVE_PLANNER = Planner(num_rollouts=16, horizon=10, every=5)
"""Smaller than a scene's own planner, which takes the time of several frames."""


@dataclass(frozen=True, eq=False)
class Shot:
    """Everything that is shown of one frame."""

    frame: int
    time: float
    """Time since the start [s]."""
    people: State
    ghosts: State | None
    """The same people, undisturbed."""
    report: Report | None
    """Report of the step that led here; the start has none."""
    ground: Plane
    objects: Mapping[int, Solid]
    """Balls, boxes, ramps and everything else that is there, by a number that stays from frame to frame."""
    pulls: tuple[tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]], ...]
    """Points where hands hold something [m], and their forces [N]."""
    goals: tuple[tuple[float, float], ...]
    """Places that people are sent to and have not reached [m]."""
    steered: tuple[int, ...] = ()
    """People who are told something."""

    @property
    def values(self) -> dict[str, float]:
        """The first person's energies [m^2], and root wrench before and after correction [body weights]."""
        if self.report is None:
            return {}
        wrench = {"root wrench": self.report.wrench_before, "root wrench left": self.report.wrench_after}
        return {name: float(values[0]) for name, values in (*self.report.energies.items(), *wrench.items())}


@dataclass(frozen=True, eq=False)
class Recording(Rollout):
    """The last half minute, to be written to files."""

    ghost: Motion | None = None
    """Ghost of the first person."""
    setup: Setup = field(default_factory=Setup)
    """The scene from its start."""


@dataclass(frozen=True, eq=False)
class Item:
    """An element of the world and its expiry."""

    element: Element[Any]
    until: int | None = None
    """Frame; None: never."""
    key: int = field(default_factory=itertools.count().__next__)

    @property
    def is_loose_box(self) -> bool:
        return isinstance(self.element, Box) and self.element.loose


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
    """Name of the present prior: the scene's own, or else the one that was chosen among `priors`."""
    chosen: str = field(default="", init=False)
    """Name of the prior of scenes that have none of their own."""
    off: frozenset[str] = field(default=frozenset(), init=False)
    """Parts of the simulator that are switched off, out of PARTS: the paper's ablations."""
    goals: Mapping[int, Goal] = field(default_factory=dict, init=False)
    """Goals of people who are steered."""
    crouched: frozenset[int] = field(default=frozenset(), init=False)
    """People who are told to crouch."""
    jumping: Mapping[int, float] = field(default_factory=dict, init=False)
    """People who are told to jump, and the time until which they try [s]."""
    tilt: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    """Target roll about +y and pitch about +x [degrees]."""
    ghost: bool = field(default=False, init=False)
    """Shows a second world in which people are led but not disturbed."""
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
        self.prior_name = self.chosen = next(iter(self.priors), "")
        self.restart()

    def restart(self) -> None:
        """Start again with the same random numbers. Settings, boxes and ice stay; pushes, balls and obstacles go."""
        self.grabs, self.jumping, self.looking, self.cut = {}, {}, None, None
        people = range(len(self.scene.people))
        self.goals = {i: goal for i, goal in self.goals.items() if i in people and goal.place is None}
        self.crouched = self.crouched.intersection(people)
        self.items = tuple(Item(element) for element in self.scene.elements)
        self.events, self.added = tuple[Event, ...](), tuple[Element[Any], ...]()
        self.ways: tuple[Way, ...] = ()
        self.ground: Ground = self.scene.ground
        self._build()
        self._rng, self._ghosts_rng = (self.world.streams(self.setup.seed) for _ in range(2))
        self.now = self.start = self.world.start(self.setup.seed)
        self._ghosts = self._ghosts_world.start_from(self.start.people) if self.ghost else None
        self._shots = deque[Shot]((self._shot(None, ()),), maxlen=max(2, round(self.seconds * self.fps)))
        if self.tilt != (0.0, 0.0):
            self.tilt_ground()

    def tick(self) -> Shot:
        """Advance by a frame and return it; raises ValueError if the simulation breaks."""
        if any(item.until is not None and item.until <= self.now.frame for item in self.items):
            self.rebuild([item for item in self.items if item.until is None or item.until > self.now.frame])
        people, steered = self.now.people, list[StepInputs]()
        hands = [grab for grab in self.grabs.values() if isinstance(grab, Grab)]
        pulls = [(grab.held(people.x), grab.force(people.x, people.v)) for grab in hands]
        pulls += self._move_boxes()
        heights = dict.fromkeys(self.crouched, CROUCHING) | dict.fromkeys(self.jumping, JUMPING)
        if self.goals or heights:
            steered = [steering_inputs(self.goals, heights, people, self.prior)]
        self._note_ways()
        pulled = [StepInputs(forces=grab.forces(people.x, people.v)) for grab in hands]
        now, report = self.world.step(self.now, self._rng, also=[*pulled, *steered])
        pelvis = now.people.x[:, 0]
        height = pelvis[:, 2] - height_of(self.world.ground(now, now.frame / self.fps), pelvis[:, :2])
        if not np.isfinite(now.people.x).all() or (np.abs(height) > LOST).any():
            raise ValueError("a person left the world")
        if self._ghosts is not None:
            self._ghosts, _ = self._ghosts_world.step(self._ghosts, self._ghosts_rng, also=steered)
        self.now, self.looking = now, None
        # People who are over the top of their jump land by themselves.
        over = (height > JUMPED * self.simulator.skeleton.standing_height) & (now.people.v[:, 0, 2] < 0)
        self.jumping = {i: until for i, until in self.jumping.items() if self.time < until and not over[i]}
        self._shots.append(self._shot(report, tuple(pulls)))
        return self._shots[-1]

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
        """The ground."""
        return self.world.ground(self.now, self.time)

    @property
    def stiff(self) -> bool:
        """True if somebody's knee is stiff."""
        return any(isinstance(element, StiffJoint) for element in self.scene.elements)

    # --- recording

    def recording(self) -> Recording:
        """Return the buffer, or the part that was cut out, as motions whose time starts at zero, and the scene.

        The scene has what was done since the start; hands are left out.
        """
        first, last = self.cut or (0, len(self._shots) - 1)
        shots = self.shots[first : last + 1]
        begin, end = shots[0].time, shots[-1].time
        reports = [shot.report for shot in shots[1:] if shot.report is not None]
        everybody = stack_frames(self.simulator, [shot.people for shot in shots], reports)
        motions = []
        for i in range(len(self.scene.people)):
            events = [event for event in (*self.scene.events_of(i), *self.events) if begin <= event.start <= end]
            moved = tuple(replace(event, start=event.start - begin) for event in events)
            motions.append(replace(_person(everybody, i), events=moved))
        ghosts = [shot.ghosts for shot in shots if shot.ghosts is not None]
        ghost = _person(stack_frames(self.simulator, ghosts, ()), 0) if ghosts else None
        ground = Plane.stacked([shot.ground for shot in shots])
        objects = over_time([shot.objects for shot in shots])
        return Recording(tuple(motions), objects, ground, ghost=ghost, setup=self.played_setup())

    def played_setup(self) -> Setup:
        """Return the scene with what was done since the start and how long ago that is, to be written to a file."""
        elements, seconds = (*self.scene.elements, *self.added), round(self.time, 3) or self.setup.seconds
        people = sorted({way[0] for way in self.ways})
        others = tuple(e for e in elements if not (isinstance(e, Follow) and e.person in people))
        led = tuple(Follow(self._rows(i), acceleration=AT_ONCE, person=i) for i in people)
        scene = replace(self.scene, elements=(*others, *led))
        return replace(self.setup, scene=scene, simulator=self.world.simulator.options, seconds=seconds)

    def _note_ways(self) -> None:
        """Remember the velocities that people are told to go at, and those at which they are let go."""
        x, v, last = self.now.people.x[:, 0, :2], self.now.people.v[:, 0, :2], {way[0]: way for way in self.ways}
        for i in sorted({*self.goals, *(person for person, way in last.items() if way[-1])}):
            sent = i in self.goals
            velocity = self.goals[i].velocity(x[i]) if sent else v[i]
            if i not in last or last[i][-1] != sent or np.abs(velocity - last[i][2:4]).max() > CHANGED:
                self.ways = (*self.ways[1 - MOST_EVENTS :], (i, self.time, *velocity.round(2).tolist(), sent))

    def _rows(self, person: int) -> tuple[tuple[float, float, float], ...]:
        """Return times and velocities of somebody who was steered; before that they went as they did."""
        rows = [(round(time, 3), x, y) for i, time, x, y, _ in self.ways if i == person]
        if rows[0][0] == 0.0:
            return tuple(rows)
        before = [shot for shot in self._shots if shot.time <= rows[0][0]] or [self._shots[0]]
        way = before[-1].people.x[person, 0, :2] - self.start.people.x[person, 0, :2]
        x, y = (way / max(before[-1].time, 1 / self.fps)).round(2).tolist()
        return ((0.0, x, y), *rows)

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
        here = self.now.people.x[:, 0, :2]
        height = height_of(self.world.ground(self.now, self.time), here)
        roll, pitch = interpolated(self.ground.tilts, self.time).tolist() if self.ground.tilts else (0.0, 0.0)
        change = max(abs(roll - self.tilt[0]), abs(pitch - self.tilt[1]))
        lasts = max(change / TILT_RATE, 1 / self.fps)
        self.now = replace(self.now, pivot=np.array((*here[0], height[0])))
        self.ground = Ground(((self.time, roll, pitch), (self.time + lasts, *self.tilt)))
        self.rebuild(self.items)
        self.note("tilt", lasts)

    def rebuild(self, items: Sequence[Item]) -> None:
        """Build the world around the same people; elements that stay keep their memory, new ones begin."""
        memories = {item.key: memory for item, memory in zip(self.items, self.now.memories, strict=True)}
        self.items = tuple(items)
        self._build()
        context = SceneContext(self.now.frame, self.fps, self.now.people, self.simulator.skeleton, self.plane)
        begun = (memories[i.key] if i.key in memories else i.element.begin(context) for i in items)
        self.now = replace(self.now, memories=tuple(begun))

    def _build(self) -> None:
        """Build the world, and that of the ghosts."""
        options = self.simulator.options
        # The ground's reaction is fitted to the prior's candidates: it would hold a body up even without the prior.
        react = options.react and "kinematic" not in self.off
        simulator = self.simulator.with_options(**dict.fromkeys(self.off, False), react=react)
        elements = tuple(item.element for item in self.items)
        follows = tuple(element for element in elements if isinstance(element, Follow))
        scene = replace(self.scene, elements=elements, ground=self.ground, planner=LIVE_PLANNER)
        undisturbed = replace(scene, elements=follows, ground=Ground())
        self.world, self._ghosts_world = (World(s, simulator, self.opening) for s in (scene, undisturbed))

    def loose_box(self, key: int) -> int | None:
        """Return the position among the elements of the loose box whose solid has this number."""
        keys = [item.key if item.is_loose_box else None for item in self.items]
        return keys.index(key // MAX_PARTS) if key // MAX_PARTS in keys else None

    def _move_boxes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Let hands move the boxes that they hold; return the held points [m] and the forces [N]."""
        memories, pulls, h = list[Any](self.now.memories), [], 1 / self.fps
        for grab in self.grabs.values():
            if isinstance(grab, BoxGrab) and (at := self.loose_box(grab.key)) is not None:
                element: Any = self.items[at].element
                pulls.append((grab.held(memories[at]), grab.force(memories[at], element.mass, h)))
                memories[at] = grab.moved(memories[at], element.mass, h)
        self.now = replace(self.now, memories=tuple(memories))
        return pulls

    # --- what is shown

    def show_objects(self) -> None:
        """Let the newest frame show objects that were put there or taken away, also while time stands still."""
        self._shots[-1] = replace(self._shots[-1], objects=self.objects())

    def _shot(self, report: Report | None, pulls: tuple[tuple[np.ndarray, np.ndarray], ...]) -> Shot:
        people, places = self.now.people, self.now.people.x[:, 0, :2]
        goals = tuple(g.place for i, g in self.goals.items() if g.place is not None and g.velocity(places[i]).any())
        ghosts = None if self._ghosts is None else self._ghosts.people
        steered = tuple(sorted({*self.goals, *self.crouched, *self.jumping}))
        seen = self.plane, self.objects()
        return Shot(self.now.frame, self.time, people, ghosts, report, *seen, pulls, goals, steered)

    def objects(self) -> dict[int, Solid]:
        """Return everything but people that is there, by number."""
        shown = {}
        for item, memory in zip(self.items, self.now.memories, strict=True):
            for k, solid in enumerate(item.element.solids(memory)):
                if solid.there:
                    shown[MAX_PARTS * item.key + k] = solid
        return shown


def _person(everybody: Motion, person: int) -> Motion:
    return replace(everybody.map(lambda values: values[person]), name="dropsim view")
