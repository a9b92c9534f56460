"""A live simulation without a browser: a world, commands that change it, and its last half minute."""

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.apps.viewer.objects import BoxGrab, first_hit
from dropsim.apps.viewer.shot import Recording, Shot, Sphere
from dropsim.apps.viewer.steering import CROUCHING, JUMPING, LONGEST_JUMP, GoTo, Grab, Walk, aimed, steering_inputs
from dropsim.body.skeleton import joint_index
from dropsim.compute.random import Streams
from dropsim.control.planner import Planner
from dropsim.files.names import suggestion
from dropsim.motion.motion import Event, Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import Report, Simulator, StepInputs, stack_frames
from dropsim.priors.prior import Prior
from dropsim.priors.recording import ClipPrior
from dropsim.scene import (
    DIRECTIONS,
    Ball,
    Box,
    Element,
    Follow,
    Ground,
    Patch,
    Person,
    Push,
    Scene,
    SceneContext,
    Solid,
    StiffJoint,
    Trip,
    World,
    WorldState,
)
from dropsim.scene.element import height_of, interpolated
from dropsim.scene.files import Setup
from dropsim.scene.loose import is_loose
from dropsim.scene.perturbations import ahead_of

MAX_PEOPLE = 6
MAX_BALLS = 6
"""At once; throwing one more removes the oldest."""
BALL_LIFE = 12.0
"""[s]"""
TRIP_LIFE = 8.0
"""How long an obstacle waits for the foot [s]."""
MAX_OBJECTS = 20
"""Loose boxes and patches of ice at once."""
MAX_GRABS = 8
MAX_TILT = 30.0
"""[degrees]"""
TILT_RATE = 15.0
"""[degrees/s]"""
MAX_SPEED = 4.0
"""Of walking and running [m/s]."""
JUMPED = 1.08
"""Height of the pelvis in the air, relative to standing."""
FARTHEST_GOAL = 50.0
"""People are sent, and objects are put, no farther than this from where the first person is [m]."""
ICE = 0.05
"""Friction of ice."""
MIN_SLOPE = 0.02
"""Of a ray that is taken to point at the floor, and not at the horizon."""
MAX_PARTS = 100
"""Of an element: as many numbers of solids and spheres are its own."""
SPACING = 1.3
"""Between neighbours at the start [m]."""
LOST = 30.0
"""A person this far from the ground has left the world [m]."""
LIVE_PLANNER = Planner(num_rollouts=16, horizon=10, every=5)
"""Smaller than a scene's own planner, which takes the time of several frames."""


@dataclass(frozen=True)
class Switches:
    """Which parts of the simulator are on: the paper's ablations."""

    contact: bool = True
    range_of_motion: bool = True
    kinematic: bool = True
    """The motion prior; without it people are ragdolls."""
    correct: bool = True
    """The soft correction of the root wrench."""

    def applied(self, simulator: Simulator) -> Simulator:
        """Return a simulator with these parts; what its own options have switched off stays off."""
        options = simulator.options
        changes = {name: on and getattr(options, name) for name, on in vars(self).items()}
        # The ground's reaction is fitted to the prior's candidates: it would hold a body up even without the prior.
        return simulator.with_options(**changes, react=options.react and self.kinematic)


@dataclass(frozen=True, eq=False)
class _Item:
    """An element of the world and its expiry."""

    element: Element[Any]
    until: int | None = None
    """Frame; None: never."""
    setting: bool = False
    """Whether it comes from a setting, and not from the scene or a command."""
    key: int = field(default_factory=itertools.count().__next__)


@dataclass(eq=False)
class Session:
    """A world that runs frame by frame and takes commands in between. Not thread-safe: use it from one thread."""

    simulator: Simulator
    scene: Scene = field(default_factory=Scene)
    """Start of every run; its elements act at their times."""
    seed: int = 0
    seconds: float = 30.0
    """Length of the buffer [s]."""
    priors: Mapping[str, Prior] = field(default_factory=dict)
    """Priors to choose from, by name; all for one body and rate."""

    opening: Simulator | None = field(default=None, init=False)
    """Simulator that follows a recording, if the scene starts with one."""
    prior_name: str = field(default="", init=False)
    """Of the prior that was chosen among `priors`, or first of them."""
    switches: Switches = field(default_factory=Switches, init=False)
    goals: dict[int, Walk | GoTo] = field(default_factory=dict, init=False)
    """Where people are told to go; the others do as they like."""
    crouched: set[int] = field(default_factory=set, init=False)
    """People who are told to crouch."""
    jumping: dict[int, float] = field(default_factory=dict, init=False)
    """People who are told to jump, and until when they try [s]."""
    stiff: bool = field(default=False, init=False)
    """Whether everybody's right knee is stiff."""
    tilt: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    """Target roll about +y and pitch about +x [degrees]."""
    ghost: bool = field(default=False, init=False)
    paused: bool = field(default=False, init=False)
    pace: float = field(default=1.0, init=False)
    """Speed relative to real time."""
    grabs: dict[object, Grab | BoxGrab] = field(default_factory=dict, init=False)
    """Hands on limbs and boxes, by holder."""

    def __post_init__(self) -> None:
        self._setup = Setup(scene=self.scene, seed=self.seed)
        self.prior_name = next(iter(self.priors), "")
        self.restart()

    # --- time

    def restart(self) -> None:
        """Start again with the same random numbers. Settings, boxes and ice stay; pushes, balls and obstacles go."""
        self._items, self._events = [_Item(element) for element in self.scene.elements], list[Event]()
        self._added = list[Element[Any]]()
        self._ground: Ground = self.scene.ground
        self.grabs.clear()
        self.jumping.clear()
        self.goals = {
            i: goal for i, goal in self.goals.items() if isinstance(goal, Walk) and i < len(self.scene.people)
        }
        self._world, self._laid = self._built(), tuple(self._items)
        seeds = [self.seed] * self._num_worlds
        self._rng: Streams = self._world.streams(seeds)
        self._now = self._world.start(seeds)
        self._start = self._now.people[0]
        self._shots = deque[Shot]((self._shot(None, ()),), maxlen=max(2, round(self.seconds * self.fps)))
        self._looking: int | None = None
        self._cut: tuple[int, int] | None = None
        self.stiffen(self.stiff)
        if self.tilt != (0.0, 0.0):
            self.tilt_to(*self.tilt)

    def tick(self) -> Shot:
        """Advance by a frame and return it; raises ValueError if the simulation breaks."""
        self._drop_expired()
        people = self._now.people
        hands = [
            grab for grab in self.grabs.values() if isinstance(grab, Grab) and grab.person < len(self.scene.people)
        ]
        pulls = (
            *((grab.held(people.x[0]), grab.force(people.x[0], people.v[0])) for grab in hands),
            *self._move_boxes(),
        )
        also = [StepInputs(forces=grab.forces(people.x, people.v)) for grab in hands]
        heights = dict.fromkeys(self.crouched, CROUCHING) | dict.fromkeys(self.jumping, JUMPING)
        if self.goals or heights:
            also.append(steering_inputs(self.goals, heights, people, self._prior))
        now, report = self._world.step(self._now, self._rng, also=also)
        floor = height_of(self._world.ground(now, now.frame / self.fps), now.people.x[..., 0, :2])
        if not np.isfinite(now.people.x).all() or (np.abs(now.people.x[..., 0, 2] - floor) > LOST).any():
            raise ValueError("a person left the world")
        if self.ghost and not self._disturbed:
            # Rounding differs between rows of a batch and would slowly drive the two worlds apart.
            now = replace(now, people=now.people.map(lambda values: np.repeat(values[:1], len(values), axis=0)))
        self._now, self._looking = now, None
        # People who are over the top of their jump land by themselves.
        over = (now.people.x[0, :, 0, 2] - floor[0] > JUMPED * self.simulator.skeleton.standing_height) & (
            now.people.v[0, :, 0, 2] < 0
        )
        self.jumping = {i: until for i, until in self.jumping.items() if self.time < until and not over[i]}
        shot = self._shot(report, pulls)
        self._shots.append(shot)
        return shot

    @property
    def _disturbed(self) -> bool:
        """Whether anything has disturbed people since the start, or may."""
        return bool(
            self._events or not self._ground.level or any(not isinstance(item.element, Follow) for item in self._items)
        )

    def warm_up(self) -> None:
        """Compile and load what commands need later: compiled while somebody watches, it would stop the picture for half a minute."""
        if isinstance(self.simulator.prior, ClipPrior):  # which moves one person from one start only
            return
        other = Session(self.simulator, Scene(people_in_a_row(2, self.scene.people[0].start)))
        other.put_box((0.0, 2.0, 0.0))
        other.throw()
        other.trip()
        other.tilt_to(1.0, 0.0)
        other.tick()

    def pause(self, paused: bool) -> None:
        """Pause or resume; resuming goes back to the newest frame."""
        self.paused = bool(paused)
        if not self.paused:
            self._looking = self._cut = None

    def step(self) -> Shot:
        """Pause and advance by one frame."""
        self.paused, self._cut = True, None
        return self.tick()

    def slow(self, pace: float) -> None:
        """Set the speed relative to real time."""
        self.pace = _within("the pace", pace, 0.05, 1.0)

    def scrub(self, seconds_ago: float) -> Shot:
        """Pause and show an earlier frame of the buffer."""
        self._looking = self._index(seconds_ago)
        self.paused = True
        return self.shown

    def cut(self, first_ago: float, last_ago: float) -> None:
        """Pause and choose a part of the buffer, by the times of its ends before the newest frame: it is what `recording` returns."""
        ends = sorted((self._index(first_ago), self._index(last_ago)))
        self._cut = ends[0], ends[1]
        self.paused = True

    def _index(self, seconds_ago: float) -> int:
        """Position in the buffer."""
        ago = _within("the time to look back", abs(seconds_ago), 0.0, self.seconds)
        return max(0, len(self._shots) - 1 - round(ago * self.fps))

    @property
    def shown(self) -> Shot:
        """The frame to show: the newest, or the one that `scrub` chose."""
        return self._shots[-1 if self._looking is None else min(self._looking, len(self._shots) - 1)]

    @property
    def shots(self) -> tuple[Shot, ...]:
        """The buffer, oldest first."""
        return tuple(self._shots)

    @property
    def fps(self) -> float:
        """[Hz]."""
        return self.simulator.prior.fps

    @property
    def name(self) -> str:
        """Of the scene that was loaded."""
        return self._setup.name

    @property
    def setup(self) -> Setup:
        """The scene with what was done since the start, to be written to a file; hands and steering are left out."""
        scene = replace(self.scene, elements=(*self.scene.elements, *self._added))
        return replace(
            self._setup, scene=scene, seed=self.seed, simulator=self.switches.applied(self.simulator).options
        )

    @property
    def _prior(self) -> Prior:
        """The motion prior, which may first follow a recording."""
        prior = self.simulator.prior
        return prior.then or prior if isinstance(prior, ClipPrior) else prior

    @property
    def _num_worlds(self) -> int:
        return 2 if self.ghost else 1

    @property
    def time(self) -> float:
        """Since the start [s]."""
        return self._now.frame / self.fps

    # --- perturbations

    def grab(self, who: object, grab: Grab | BoxGrab) -> None:
        """Grab a limb or a loose box, or move the hand that holds it; each holder has one hand."""
        if isinstance(grab, BoxGrab):
            if not all(map(math.isfinite, (*grab.point, *grab.pointer, grab.largest))):
                raise ValueError("a hand needs finite numbers")
            if self._loose_box(grab.key) is None:
                raise ValueError("there is no loose box to hold")
        else:
            self._check_grab(grab)
        if who not in self.grabs:
            if len(self.grabs) >= MAX_GRABS:
                raise ValueError(f"{MAX_GRABS} hands hold something already")
            self._note("drag" if isinstance(grab, Grab) else "drag box")
        self.grabs[who] = grab

    def _check_grab(self, grab: Grab) -> None:
        numbers = (*grab.pointer, grab.share, grab.stiffness, grab.damping, grab.largest)
        if not all(map(math.isfinite, numbers)) or not (0 <= grab.share <= 1 and 1 <= grab.bone < 22):
            raise ValueError("a hand needs a bone, a share of it from 0 to 1 and finite numbers")
        if not 0 <= grab.person < len(self.scene.people):
            raise ValueError(f"there is no person {grab.person} to hold")

    def let_go(self, who: object) -> None:
        """Release what this holder has grabbed."""
        self.grabs.pop(who, None)

    def push(
        self, direction: str, newtons: float = 200.0, *, part: str = "torso", duration: float = 0.3, person: int = 0
    ) -> None:
        """Push a person toward their own front, back, left or right."""
        if direction not in DIRECTIONS:
            raise ValueError(f"there is no direction {direction!r}: use {', '.join(DIRECTIONS)}")
        newtons = _within("the force", newtons, 0.0, 2000.0)
        duration = _within("the duration", duration, 1 / self.fps, 2.0)
        ahead = ahead_of(self._now.people.q[0, self._person(person)])
        turn = math.radians(DIRECTIONS[direction])
        c, s = math.cos(turn) * newtons, math.sin(turn) * newtons
        x, y = ahead.tolist()
        force = (c * x - s * y, s * x + c * y, 0.0)
        element = Push(part, force, start=self.time, duration=duration, person=person)
        self._put(element, duration)
        self._note(f"push {part}", duration)

    def throw(
        self, origin: Sequence[float] | None = None, *, joint: str = "spine3", person: int = 0, speed: float = 8.0, mass: float = 3.0,
        radius: float = 0.15,
    ) -> None:  # fmt: skip
        """Throw a ball that will hit a joint if the person keeps their velocity; by default from the front."""
        speed, mass = _within("the speed", speed, 2.0, 20.0), _within("the mass", mass, 0.2, 30.0)
        if origin is not None and (len(origin) != 3 or not all(map(math.isfinite, origin))):
            raise ValueError("a ball needs a place of three finite numbers")
        people, skeleton = self._now.people[0], self.simulator.skeleton
        place, velocity = aimed(
            people, self._person(person), joint_index(joint), origin, speed, radius + skeleton.radii
        )
        balls = [item for item in self._items if isinstance(item.element, Ball) and item.until is not None]
        for oldest in balls[: max(0, len(balls) + 1 - MAX_BALLS)]:
            self._items.remove(oldest)
        self._put(Ball(_triple(place), _triple(velocity), radius, mass, start=self.time), BALL_LIFE)
        self._note("ball")

    def trip(self, foot: str = "right", *, person: int = 0) -> None:
        """Put an obstacle in the way of a foot's next swing."""
        if foot not in ("left", "right"):
            raise ValueError(f"people have a left and a right foot, not {foot!r}")
        self._items = [item for item in self._items if not (isinstance(item.element, Trip) and item.until is not None)]
        self._put(Trip(f"{foot}_ankle", start=self.time, person=self._person(person)), TRIP_LIFE)
        self._note(f"trip {foot}")

    def tilt_to(self, roll: float, pitch: float) -> None:
        """Tilt the ground smoothly about the first person's place."""
        self.tilt = _within("the roll", roll, -MAX_TILT, MAX_TILT), _within("the pitch", pitch, -MAX_TILT, MAX_TILT)
        plane = self._world.ground(self._now, self.time)
        here = self._now.people.x[..., 0, :2]
        pivot = np.concatenate((here[..., 0, :], height_of(plane, here)[..., :1]), axis=-1)
        start = _angles(self._ground, self.time)
        change = max(abs(a - b) for a, b in zip(start, self.tilt, strict=True))
        lasts = max(change / TILT_RATE, 1 / self.fps)
        self._ground = Ground(((self.time, *start), (self.time + lasts, *self.tilt)))
        self._now = replace(self._now, pivot=pivot)
        self._rebuild()
        self._note("tilt", lasts)

    # --- boxes and ice: they belong to the scene, so a restart keeps them and a saved scene has them

    def put_box(self, place: Sequence[float], *, size: float = 0.4, mass: float = 8.0) -> None:
        """Put a loose box down; `place` is the middle of its base [m]."""
        size, mass = _within("the size", size, 0.1, 1.0), _within("the mass", mass, 0.5, 100.0)
        x, y = self._place(place)
        self._put_object(
            Box((x, y, round(_within("the height", place[2], 0.0, 5.0), 3)), (size, size, size), mass=mass), "box"
        )

    def paint_ice(self, place: Sequence[float], *, size: float = 1.0) -> None:
        """Make a square of the floor about a place icy."""
        size = _within("the size", size, 0.2, 5.0)
        self._put_object(Patch(self._place(place), (size, size), friction=ICE), "ice")

    def take_away(self, origin: Sequence[float], way: Sequence[float]) -> None:
        """Take away the loose box or the patch that a ray meets first."""
        objects = self._objects
        solids = {key: solid for key, solid in self._solids(self._now).items() if key // MAX_PARTS in objects}
        if (key := first_hit(solids, *_ray(origin, way))) is None:
            raise ValueError("there is no loose box and no patch to take away here: click on one")
        self._remove({key // MAX_PARTS})

    def take_all_away(self) -> None:
        """Take away every loose box and every patch."""
        self._remove(set(self._objects))

    def pointed_at(self, origin: Sequence[float], way: Sequence[float]) -> tuple[float, float, float] | None:
        """Return the place on the floor, or on top of a loose box, that a ray meets; None if it points at the sky."""
        eye, along, shot = *_ray(origin, way), self.shown
        boxes = {key: solid for key, solid in shot.solids.items() if self._loose_box(key) is not None}
        if (key := first_hit(boxes, eye, along)) is not None:
            box = boxes[key]
            x, y, _ = box.centre.tolist()
            return x, y, float((box.vertices @ box.rotation.T + box.centre)[:, 2].max())
        down = -float(shot.ground.normal @ along)
        if down < MIN_SLOPE:
            return None
        return _triple(eye + along * (float(shot.ground.normal @ eye) - float(shot.ground.offset)) / down)

    @property
    def _objects(self) -> dict[int, Element[Any]]:
        """Loose boxes and patches, by their items' keys."""
        found = {item.key: item.element for item in self._items}
        return {key: e for key, e in found.items() if isinstance(e, Patch) or (isinstance(e, Box) and is_loose(e))}

    def _loose_box(self, key: int) -> int | None:
        """Return the position of a loose box among the elements; `key` is that of its solid."""
        keys = [item.key if isinstance(item.element, Box) and is_loose(item.element) else None for item in self._laid]
        return keys.index(key // MAX_PARTS) if key // MAX_PARTS in keys else None

    def _place(self, place: Sequence[float]) -> tuple[float, float]:
        x, y, _ = self._now.people.x[0, 0, 0].tolist()
        reach = FARTHEST_GOAL
        put = (_within("the place", at, here - reach, here + reach) for at, here in zip(place[:2], (x, y), strict=True))
        x, y = (round(at, 3) for at in put)  # it will stand in a file that people read
        return x, y

    def _put_object(self, element: Element[Any], name: str) -> None:
        """Add an object to the scene, if nobody is in its place now or at the start."""
        if len(self._objects) >= MAX_OBJECTS:
            raise ValueError(f"there are {MAX_OBJECTS} boxes and patches already: take some away")
        plane = self._plane(self._now)
        if float(plane.normal[2]) < 1 - 1e-9:
            raise ValueError("boxes and ice are put on level ground: set roll and pitch to 0 first")
        for people in (self._now.people[0], self._start):
            element.begin(SceneContext(0, self.fps, people, self.simulator.skeleton, plane))
        self.scene = replace(self.scene, elements=(*self.scene.elements, element))
        self._items.append(_Item(element))
        self._rebuild()
        self._note(name)
        self._show_objects()

    def _remove(self, keys: set[int]) -> None:
        gone = [item for item in self._items if item.key in keys]
        self.scene = replace(
            self.scene, elements=tuple(e for e in self.scene.elements if all(e is not item.element for item in gone))
        )
        self._items = [item for item in self._items if item.key not in keys]
        holding = [who for who, g in self.grabs.items() if isinstance(g, BoxGrab) and g.key // MAX_PARTS in keys]
        for who in holding:
            self.let_go(who)
        self._rebuild()
        self._show_objects()

    def _show_objects(self) -> None:
        """Let the newest frame show what was put there or taken away, also while time stands still."""
        self._shots[-1] = replace(self._shots[-1], solids=self._solids(self._now))

    def _move_boxes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Let hands move the boxes that they hold; return where they hold them [m], and their forces [N]."""
        memories, pulls, h = list(_memories(self._now)), [], 1 / self.fps
        for grab in self.grabs.values():
            if isinstance(grab, BoxGrab) and (at := self._loose_box(grab.key)) is not None:
                element: Any = self._laid[at].element
                box, mass = memories[at], element.mass
                pulls.append((grab.held(box), grab.force(box, mass, h)))
                memories[at] = grab.moved(box, mass, h)
        if pulls:
            self._now = replace(self._now, memories=(tuple(memories), *self._now.memories[1:]))
        return pulls

    # --- settings

    def steer(self, goal: Walk | GoTo | None, *, person: int | None = None) -> None:
        """Send a person, or everybody, at a velocity or to a place; None lets them do as they like."""
        if goal is not None:
            goal = self._allowed(goal)
        for i in range(len(self.scene.people)) if person is None else (self._person(person),):
            if goal is None:
                self.goals.pop(i, None)
            else:
                self.goals[i] = goal

    def _allowed(self, goal: Walk | GoTo) -> Walk | GoTo:
        speed = _within("the speed", goal.speed, 0.0, MAX_SPEED)
        if isinstance(goal, Walk):
            return Walk(speed, _within("the direction", goal.direction, -360.0, 360.0))
        x, y, _ = self._now.people.x[0, 0, 0].tolist()
        return GoTo(
            _within("the place", goal.x, x - FARTHEST_GOAL, x + FARTHEST_GOAL),
            _within("the place", goal.y, y - FARTHEST_GOAL, y + FARTHEST_GOAL), speed,
        )  # fmt: skip

    def crouch(self, low: bool, *, person: int = 0) -> None:
        """Tell a person to crouch, or to come up again."""
        if low:
            self.crouched.add(self._person(person))
        else:
            self.crouched.discard(person)

    def jump(self, *, person: int = 0) -> None:
        """Tell a person to jump, if the prior knows how."""
        person = self._person(person)
        try:
            if not self._prior.takes_intent:
                raise ValueError
            self._prior.start("jump")
        except ValueError:
            raise ValueError("these people cannot jump: their prior has no recordings of it") from None
        self.crouched.discard(person)
        self.jumping.setdefault(person, self.time + LONGEST_JUMP)

    def stiffen(self, stiff: bool) -> None:
        """Make everybody's right knee stiff or free."""
        self.stiff = bool(stiff)
        mine = [item for item in self._items if not item.setting]
        if self.stiff:
            mine += [_Item(StiffJoint(person=i), setting=True) for i in range(len(self.scene.people))]
        if mine != self._items:
            self._items = mine
            self._rebuild()

    def switch(self, switches: Switches) -> None:
        """Switch parts of the simulator on or off."""
        self.switches = switches
        self._rebuild()

    def use(self, prior: str) -> None:
        """Restart with another prior."""
        if prior not in self.priors:
            raise ValueError(f"there is no prior {prior!r}: {suggestion(str(prior), self.priors)}")
        self._begin(self._setup, self.priors[prior], scene=self.scene, seed=self.seed, prior_name=prior)

    def load(self, setup: Setup) -> None:
        """Restart with another scene."""
        self._begin(
            setup,
            self._prior,
            scene=setup.scene,
            seed=setup.seed,
            tilt=(0.0, 0.0),
            stiff=False,
            goals={},
            crouched=set(),
        )

    def _begin(self, setup: Setup, prior: Prior, **changes: Any) -> None:  # noqa: ANN401, fields of its own
        world, own = setup.world(prior), self.simulator
        options = own.options if setup is self._setup else setup.simulator
        simulator = replace(own, prior=world.simulator.prior, options=options)
        self._change(simulator=simulator, opening=world.opening, _setup=setup, **changes)

    def show_ghost(self, ghost: bool) -> None:
        """Restart with or without a ghost: the same people, undisturbed."""
        self._change(ghost=bool(ghost))

    def begin(self, *, start: str | None = None, people: int | None = None, seed: int | None = None) -> None:
        """Restart with another number of people, start motion or seed."""
        scene = self.scene
        if start is not None or people is not None:
            if isinstance(self.simulator.prior, ClipPrior):
                raise ValueError("this scene follows a recording: it has one person and one start")
            count = len(scene.people) if people is None else int(_within("the number of people", people, 1, MAX_PEOPLE))
            doing = scene.people[0].start if start is None else start
            if count != len(scene.people) or doing != scene.people[0].start:
                elements = tuple(e for e in scene.elements if all(person < count for person in e.people()))
                scene = replace(scene, people=people_in_a_row(count, doing), elements=elements)
        new_seed = self.seed if seed is None else int(_within("the seed", seed, 0, 2**31))
        self._change(scene=scene, seed=new_seed)

    def _change(self, **changes: Any) -> None:  # noqa: ANN401, fields of its own
        """Set fields and restart; if that fails, undo everything."""
        before = {**vars(self), "grabs": dict(self.grabs)}
        vars(self).update(changes)
        try:
            self.restart()
        except ValueError:
            vars(self).update(before)
            raise

    # --- recording

    def recording(self) -> Recording:
        """The buffer, or the part of it that `cut` chose, as motions whose time starts at zero."""
        first, last = self._cut or (0, len(self._shots) - 1)
        shots = self.shots[first : last + 1]
        motions = tuple(self._motion(shots, 0, i) for i in range(len(self.scene.people)))
        return Recording(motions, self._motion(shots, 1, 0) if self.ghost else None, shots, self.setup)

    def _motion(self, shots: Sequence[Shot], world: int, person: int) -> Motion:
        reports = [shot.report for shot in shots[1:] if shot.report is not None]
        whole = stack_frames(self.simulator, [shot.state.people for shot in shots], reports)
        first, last = shots[0].time, shots[-1].time
        noted = [*self.scene.events_of(person), *self._events] if world == 0 else []
        events = tuple(replace(event, start=event.start - first) for event in noted if first <= event.start <= last)
        return replace(whole.map(lambda values: values[world, person]), events=events, name="dropsim view")

    # --- rebuilding the world

    def _person(self, person: int) -> int:
        if not 0 <= person < len(self.scene.people):
            raise ValueError(f"there is no person {person}: there are people 0 to {len(self.scene.people) - 1}")
        return person

    def _note(self, name: str, duration: float = 0.0) -> None:
        """Add an event to the recording."""
        self._events = [*self._events[-999:], Event(name, self.time, duration)]

    def _put(self, element: Element[Any], seconds: float) -> None:
        """Add an element for some seconds."""
        self._added = [*self._added[-99:], element]
        self._items.append(_Item(element, self._now.frame + math.ceil(seconds * self.fps) + 1))
        self._rebuild()

    def _drop_expired(self) -> None:
        staying = [item for item in self._items if item.until is None or item.until > self._now.frame]
        if len(staying) < len(self._items):
            self._items = staying
            self._rebuild()

    def _built(self) -> World:
        """World of the current elements, ground and switches; the ghost's is next to it, where people are led but not disturbed."""
        mine = tuple(item.element for item in self._items)
        led = tuple(element for element in mine if isinstance(element, Follow))
        scene = replace(self.scene, elements=mine, ground=self._ground, planner=LIVE_PLANNER)
        scenes = (scene, replace(scene, elements=led, ground=Ground()))[: self._num_worlds]
        return World(scene, self.switches.applied(self.simulator), self.opening, scenes)

    def _rebuild(self) -> None:
        """Rebuild the world around the same people; elements that stay keep their memory, new ones begin."""
        now = self._now
        known = {item.key: memory for item, memory in zip(self._laid, _memories(now), strict=True)}
        self._world, self._laid = self._built(), tuple(self._items)
        context = SceneContext(now.frame, self.fps, now.people[0], self.simulator.skeleton, self._plane(now))
        kept = tuple(known[item.key] if item.key in known else item.element.begin(context) for item in self._laid)
        # What leads the ghost remembers nothing.
        ghosts = (None,) * sum(isinstance(item.element, Follow) for item in self._laid)
        self._now = replace(now, memories=(kept, ghosts)[: self._num_worlds])

    def _plane(self, now: WorldState) -> Plane:
        """Ground of the first world."""
        ground = self._world.ground(now, now.frame / self.fps)
        return ground if ground.normal.ndim == 1 else ground.map(lambda vectors: vectors[0], lambda scalars: scalars[0])

    def _shot(self, report: Report | None, pulls: tuple[tuple[np.ndarray, np.ndarray], ...]) -> Shot:
        now, values = self._now, dict[str, float]()
        if report is not None:
            values = {name: float(value[0, 0]) for name, value in report.energies.items()}
            values["root wrench"], values["root wrench left"] = (
                float(report.wrench_before[0, 0]),
                float(report.wrench_after[0, 0]),
            )
        goals = tuple((goal.x, goal.y) for goal in self.goals.values() if isinstance(goal, GoTo))
        return Shot(
            now.frame,
            now.frame / self.fps,
            now,
            report,
            self._plane(now),
            tuple(self._spheres(now)),
            self._solids(now),
            pulls,
            goals,
            values,
        )

    def _solids(self, now: WorldState) -> dict[int, Solid]:
        return {
            MAX_PARTS * item.key + k: solid
            for item, memory in zip(self._laid, _memories(now), strict=True)
            for k, solid in enumerate(item.element.solids(memory))
            if not solid.radius
        }

    def _spheres(self, now: WorldState) -> list[Sphere]:
        spheres = list[Sphere]()
        for item, memory in zip(self._laid, _memories(now), strict=True):
            for k, ball in enumerate(item.element.solids(memory)):
                if ball.radius and ball.there:
                    thrown = ball.name == "ball"
                    spheres.append(Sphere(MAX_PARTS * item.key + k, _triple(ball.centre), ball.radius, thrown))
        return spheres


def _memories(now: WorldState) -> tuple[Any, ...]:
    """Memories of the first world's elements."""
    return now.memories[0]


def people_in_a_row(people: int, start: str) -> tuple[Person, ...]:
    """People in a row, the first in the middle."""
    places = [SPACING * ((i + 1) // 2) * (1 if i % 2 else -1) for i in range(people)]
    return tuple(Person(start, (place, 0.0)) for place in places)


def _angles(ground: Ground, time: float) -> tuple[float, float]:
    """Roll and pitch at a time [degrees]."""
    if not ground.tilts:
        return 0.0, 0.0
    roll, pitch = interpolated(ground.tilts, time).tolist()
    return roll, pitch


def _triple(values: Float[np.ndarray, "3"]) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z


def _ray(origin: Sequence[float], way: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    ray = np.array((origin, way), dtype=float)
    if ray.shape != (2, 3) or not np.isfinite(ray).all():
        raise ValueError("a ray needs a place and a direction of three finite numbers each")
    return ray[0], ray[1]


def _within(what: str, value: float | int, low: float | int, high: float | int) -> float:
    """Clip a number to its range; refuse anything that is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} needs a finite number")
    return float(min(max(value, low), high))
