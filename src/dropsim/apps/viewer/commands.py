"""Commands to a live world: one table that the panel, keys, OSC messages, programs and tests share.

A command is a function of the session and of arguments that are checked by their names. `do` carries it out; a command
that is refused with a ValueError changes nothing.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dropsim.apps.viewer.session import MAX_PARTS, PARTS, Item, Session
from dropsim.apps.viewer.steering import LONGEST_JUMP, WALKING, BoxGrab, Goal, Grab, Point, first_hit
from dropsim.body.skeleton import NUM_JOINTS, PARENTS
from dropsim.files.names import suggestion
from dropsim.priors.prior import Prior
from dropsim.priors.recording import ClipPrior
from dropsim.scene import DIRECTIONS, Box, Element, Patch, Person, Push, SceneContext, StiffJoint, Throw, Trip
from dropsim.scene.files import Setup
from dropsim.scene.perturbations import ahead_of

MAX_PEOPLE = 6
MAX_BALLS, BALL_LIFE = 6, 12.0
"""Balls at once (throwing one more removes the oldest), and the time that each stays [s]."""
TRIP_LIFE = 8.0
"""Time for which an obstacle waits for the foot [s]."""
MAX_OBJECTS, MAX_GRABS = 20, 8
"""Loose boxes and patches of ice, and hands on something, at once."""
MAX_TILT, MAX_SPEED = 30.0, 4.0
"""Largest roll and pitch of the ground [degrees], and speed of people who are steered [m/s]."""
FARTHEST = 50.0
"""Largest distance from the first person at which people are sent and objects are put [m]."""
ICE = 0.05
"""Friction of ice."""
SPACING = 1.3
"""Distance between neighbours at the start [m]."""
MIN_SLOPE = 0.02
"""Slope of a ray that points at the floor and not at the horizon."""
GO, BOX, PAINT, TAKE = "the person goes there", "puts a box", "paints ice", "takes away"
"""Effects of a click on the floor."""
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("paused", "low", "on", "stiff", "ghost"), (False, True)),
    **dict.fromkeys(("x", "y", "degrees", "seconds_ago", "first_ago", "last_ago"), (-1e6, 1e6)),
    **dict.fromkeys(("newtons", "largest"), (0.0, 2000.0)),
    **dict.fromkeys(("roll", "pitch"), (-MAX_TILT, MAX_TILT)),
    "duration": (1 / 30, 2.0),
    "speed": (0.0, MAX_SPEED),
    "ball_speed": (2.0, 20.0),
    "ball_mass": (0.2, 30.0),
    "box_size": (0.1, 1.0),
    "box_mass": (0.5, 100.0),
    "ice_size": (0.2, 5.0),
    "pace": (0.05, 1.0),
    "people": (1, MAX_PEOPLE),
    "seed": (0, 2**31),
    "bone": (1, NUM_JOINTS - 1),
}
"""Ranges of arguments that are numbers [N, s, m/s, degrees, m, kg]; numbers beyond them are clipped."""
NAMES = {"direction": tuple(DIRECTIONS), "foot": ("left", "right"), "energy": PARTS, "does": (GO, BOX, PAINT, TAKE)}
"""Arguments that are one of a few names, in small or capital letters."""
POINTS = ("origin", "way", "place", "held", "pointer")
"""Arguments that are points or directions in the world [m]."""


def checked(name: str, *arguments: object, **options: object) -> partial[object]:
    """Return a command with its arguments, or raise a ValueError if the table has no such command or refuses them."""
    if name not in COMMANDS:
        raise ValueError(f"there is no command {name!r}: {suggestion(name, COMMANDS)}")
    work = COMMANDS[name]
    try:
        given = inspect.signature(work).bind(None, *arguments, **options).arguments
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    # None is everybody, or the present value.
    return partial(work, **{k: v if v is None else _checked(k, v) for k, v in list(given.items())[1:]})


def _checked(name: str, value: Any) -> Any:  # noqa: ANN401
    if name in RANGES:
        low, high = RANGES[name]
        flagged = isinstance(value, bool) and not isinstance(low, bool)
        if flagged or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} needs a finite number")
        return type(low)(min(max(value, low), high))
    if name in NAMES:
        if str(value).lower() not in NAMES[name]:
            raise ValueError(f"there is no {name} {str(value)[:40]!r}: use {', '.join(NAMES[name])}")
        return str(value).lower()
    if name in POINTS:
        if np.shape(value) != (3,) or not np.isfinite(value).all():
            raise ValueError(f"{name} needs three finite numbers")
        return tuple(map(float, value))
    return value


def do(session: Session, name: str, *arguments: object, **options: object) -> None:
    """Carry out a command; an error leaves everything as it was."""
    work, before = checked(name, *arguments, **options), dict(vars(session))
    person, last = work.keywords.get("person"), len(session.scene.people) - 1
    if person is not None and not (isinstance(person, int) and 0 <= person <= last):
        raise ValueError(f"there is no person {person}: there are people 0 to {last}")
    try:
        work(session)
    except Exception:
        vars(session).clear()
        vars(session).update(before)
        raise


# --- time


def pause(session: Session, paused: bool | None = None) -> None:
    """Pause or resume, or change between the two; resuming goes back to the newest frame."""
    session.paused = not session.paused if paused is None else bool(paused)
    if not session.paused:
        session.looking = session.cut = None


def step(session: Session) -> None:
    """Pause and advance by one frame."""
    session.paused, session.cut = True, None
    session.tick()


def slow(session: Session, pace: float) -> None:
    """Set the speed relative to real time."""
    session.pace = pace


def look_back(session: Session, seconds_ago: float) -> None:
    """Pause and show an earlier frame of the buffer."""
    session.looking, session.paused = _index(session, seconds_ago), True


def cut(session: Session, first_ago: float, last_ago: float) -> None:
    """Pause and cut out a part of the buffer, by the times of its ends before now; show the end that moved."""
    first, last = sorted((_index(session, first_ago), _index(session, last_ago)))
    was = session.cut or (0, len(session.shots) - 1)
    session.looking, session.cut, session.paused = first if first != was[0] else last, (first, last), True


def _index(session: Session, seconds_ago: float) -> int:
    """Return a position in the buffer."""
    return max(0, len(session.shots) - 1 - round(min(abs(seconds_ago), session.seconds) * session.fps))


# --- hands


def hold_limb(
    session: Session, who: object, person: int, bone: int, held: Point, pointer: Point, largest: float = 400.0
) -> None:
    """Hold a limb at a point, or move the hand that holds it; `bone` is the joint at its far end."""
    known = session.grabs.get(who)
    far, near = session.shown.people.x[person, [bone, PARENTS[bone]]]
    way = far - near
    share = float(np.clip((np.array(held) - near) @ way / max(way @ way, 1e-9), 0.0, 1.0))
    if isinstance(known, Grab) and (known.person, known.bone) == (person, bone):
        share = known.share
    _hold(session, who, Grab(bone, share, pointer, person, largest), "drag")


def hold_box(session: Session, who: object, key: int, held: Point, pointer: Point, largest: float = 400.0) -> None:
    """Hold a loose box at a point, or move the hand that holds it; `key` is its number in `Shot.objects`."""
    known, box = session.grabs.get(who), session.shown.objects.get(key)
    if session.loose_box(key) is None or box is None:
        raise ValueError("there is no loose box to hold")
    # The view may have moved since the mouse went down, so the point can be a little off.
    touched = box.rotation.T @ (np.array(held) - box.centre)
    point = _triple(np.clip(touched, box.vertices.min(0), box.vertices.max(0)))
    if isinstance(known, BoxGrab) and known.key == key:
        point = known.point
    _hold(session, who, BoxGrab(key, point, pointer, largest), "drag box")


def _hold(session: Session, who: object, grab: Grab | BoxGrab, name: str) -> None:
    if who not in session.grabs:
        if len(session.grabs) >= MAX_GRABS:
            raise ValueError(f"{MAX_GRABS} hands hold something already")
        session.note(name)
    session.grabs = {**session.grabs, who: grab}


def let_go(session: Session, who: object) -> None:
    """Release what this holder has grabbed."""
    session.grabs = {other: grab for other, grab in session.grabs.items() if other != who}


# --- perturbations


def push(
    session: Session,
    direction: str,
    newtons: float = 200.0,
    duration: float = 0.3,
    person: int = 0,
    part: str = "torso",
) -> None:
    """Push a person toward their own front, back, left or right."""
    x, y = ahead_of(session.now.people.q[person]).tolist()
    turn = math.radians(DIRECTIONS[direction])
    c, s = math.cos(turn) * newtons, math.sin(turn) * newtons
    force = (c * x - s * y, s * x + c * y, 0.0)
    session.perturb(Push(part, force, start=session.time, duration=duration, person=person), duration)
    session.note(f"push {part}", duration)


def throw(
    session: Session,
    origin: Point | None = None,
    joint: str = "spine3",
    person: int = 0,
    ball_speed: float = 8.0,
    ball_mass: float = 3.0,
) -> None:
    """Throw a ball that will hit a joint if the person keeps their velocity; by default from the front."""
    ball = Throw(joint, origin=origin, speed=ball_speed, mass=ball_mass, start=session.time, person=person)
    balls = [item for item in session.items if isinstance(item.element, Throw) and item.until is not None]
    oldest = balls[: max(0, len(balls) + 1 - MAX_BALLS)]
    session.rebuild([item for item in session.items if item not in oldest])
    session.perturb(ball, BALL_LIFE)
    session.note("ball")


def trip(session: Session, foot: str = "right", person: int = 0) -> None:
    """Put an obstacle in the way of a foot's next swing."""
    session.rebuild([item for item in session.items if item.until is None or not isinstance(item.element, Trip)])
    session.perturb(Trip(f"{foot}_ankle", start=session.time, person=person), TRIP_LIFE)
    session.note(f"trip {foot}")


def tilt(session: Session, roll: float, pitch: float) -> None:
    """Tilt the ground smoothly about the first person's place [degrees]."""
    session.tilt = (roll, pitch)
    session.tilt_ground()


# --- boxes and ice: they belong to the scene, so a restart keeps them and a saved scene has them


def put_box(session: Session, place: Point, box_size: float = 0.4, box_mass: float = 8.0) -> None:
    """Put a loose box down; `place` is the middle of its base [m]."""
    corner = (*_nearby(session, place[0], place[1]), round(min(max(place[2], 0.0), 5.0), 3))
    _put_object(session, Box(corner, (box_size, box_size, box_size), mass=box_mass), "box")


def paint_ice(session: Session, place: Point, ice_size: float = 1.0) -> None:
    """Make a square of the floor about a place icy."""
    _put_object(session, Patch(_nearby(session, place[0], place[1]), (ice_size, ice_size), friction=ICE), "ice")


def take_away(session: Session, origin: Point | None = None, way: Point = (0.0, 0.0, -1.0)) -> None:
    """Take away the loose box or the patch that a ray meets first; without a ray, all of them."""
    keys = set(_placed(session))
    if origin is not None:
        hit = first_hit({k: solid for k, solid in session.objects().items() if k // MAX_PARTS in keys}, origin, way)
        if hit is None:
            raise ValueError("there is no loose box and no patch to take away here: click on one")
        keys = {hit // MAX_PARTS}
    for who, grab in session.grabs.items():
        if isinstance(grab, BoxGrab) and grab.key // MAX_PARTS in keys:
            let_go(session, who)
    _set_items(session, [item for item in session.items if item.key not in keys])


def click(
    session: Session,
    does: str,
    origin: Point,
    way: Point,
    person: int = 0,
    speed: float = WALKING,
    box_size: float = 0.4,
    box_mass: float = 8.0,
    ice_size: float = 1.0,
) -> None:
    """Do at the place that a ray meets what a click is set to do; a ray to the sky does nothing."""
    place = pointed_at(session, origin, way)
    if does == TAKE:
        take_away(session, origin, way)
    elif place is not None and does == GO:
        go_to(session, place[0], place[1], speed, person)
    elif place is not None and does == PAINT:
        paint_ice(session, place, ice_size)
    elif place is not None:
        put_box(session, place, box_size, box_mass)


def pointed_at(session: Session, origin: Point, way: Point) -> Point | None:
    """Return the place on the floor, or on top of a loose box, that a ray meets; None if it points at the sky."""
    shot = session.shown
    boxes = {key: solid for key, solid in shot.objects.items() if session.loose_box(key) is not None}
    key = first_hit(boxes, origin, way)
    if key is not None:
        box = boxes[key]
        x, y, _ = box.centre.tolist()
        return x, y, float((box.vertices @ box.rotation.T + box.centre)[:, 2].max())
    eye, along, normal = np.array(origin), np.array(way), shot.ground.normal
    down = -float(normal @ along)
    if down < MIN_SLOPE:
        return None
    return _triple(eye + along * (float(normal @ eye) - float(shot.ground.offset)) / down)


def _placed(session: Session) -> list[int]:
    """Return the keys of loose boxes and patches."""
    return [i.key for i in session.items if isinstance(i.element, Patch) or i.is_loose_box]


def _nearby(session: Session, *place: float) -> tuple[float, float]:
    """Return a place that is not too far from the first person, to a millimetre: it will stand in a file."""
    here = session.now.people.x[0, 0, :2]
    x, y = np.clip(place, here - FARTHEST, here + FARTHEST).round(3).tolist()
    return x, y


def _put_object(session: Session, element: Element[Any], name: str) -> None:
    """Add an object to the scene, if nobody is in its place now or at the start."""
    if len(_placed(session)) >= MAX_OBJECTS:
        raise ValueError(f"there are {MAX_OBJECTS} boxes and patches already: take some away")
    if float(session.plane.normal[2]) < 1 - 1e-9:
        raise ValueError("boxes and ice are put on level ground: set roll and pitch to 0 first")
    for world in (session.now, session.start):
        element.begin(SceneContext(0, session.fps, world.people, session.simulator.skeleton, session.plane))
    _set_items(session, [*session.items, Item(element)])
    session.note(name)


def _set_items(session: Session, items: Sequence[Item]) -> None:
    """Change the elements of the world; those that stay for good are in the scene of every run."""
    elements = tuple(item.element for item in items if item.until is None)
    session.setup = replace(session.setup, scene=replace(session.scene, elements=elements))
    session.rebuild(items)
    session.show_objects()


# --- steering


def walk(
    session: Session, speed: float = WALKING, degrees: float = 0.0, person: int | None = None, on: bool = True
) -> None:
    """Send a person, or everybody, at a velocity, in a direction counterclockwise from +y; or let them go."""
    _steer(session, Goal(speed, math.remainder(degrees, 360.0)) if on else None, person)


def go_to(session: Session, x: float, y: float, speed: float = WALKING, person: int | None = None) -> None:
    """Send a person, or everybody, to a place [m]."""
    _steer(session, Goal(speed, place=_nearby(session, x, y)), person)


def _steer(session: Session, goal: Goal | None, person: int | None = None) -> None:
    """Give a person, or everybody, a goal; None lets them do as they like."""
    people = range(len(session.scene.people)) if person is None else (person,)
    others = {i: other for i, other in session.goals.items() if i not in people}
    session.goals = others if goal is None else others | dict.fromkeys(people, goal)


def free(session: Session, person: int | None = None) -> None:
    """Let a person, or everybody, do as they like."""
    _steer(session, None, person)


def crouch(session: Session, low: bool | None = None, person: int = 0) -> None:
    """Tell a person to crouch or to come up again, or to change between the two."""
    down = person not in session.crouched if low is None else bool(low)
    session.crouched = session.crouched | {person} if down else session.crouched - {person}


def jump(session: Session, person: int = 0) -> None:
    """Tell a person to jump, if the prior knows how."""
    if not session.prior.takes_intent or not can_start(session.prior, "jump"):
        raise ValueError("these people cannot jump: their prior has no recordings of it")
    session.crouched -= {person}
    session.jumping = {person: session.time + LONGEST_JUMP, **session.jumping}


# --- settings


def stiffen(session: Session, stiff: bool) -> None:
    """Make everybody's right knee stiff or free."""
    knees = [Item(StiffJoint(person=i)) for i in range(len(session.scene.people)) if stiff]
    _set_items(session, [*(item for item in session.items if not isinstance(item.element, StiffJoint)), *knees])


def switch(session: Session, energy: str, on: bool) -> None:
    """Switch a part of the simulator on or off."""
    session.off = session.off - {energy} if on else session.off | {energy}
    session.rebuild(session.items)


def load(session: Session, setup: Setup) -> None:
    """Restart with another scene, and let it run."""
    session.tilt, session.goals, session.crouched = (0.0, 0.0), {}, frozenset()
    _open(session, setup, setup.prior or session.chosen)
    pause(session, False)


def use(session: Session, prior: str) -> None:
    """Restart with another prior."""
    if prior not in session.priors:
        raise ValueError(f"there is no prior {prior!r}: {suggestion(str(prior), session.priors)}")
    _open(session, session.setup, prior)
    session.chosen = prior


def _open(session: Session, setup: Setup, name: str) -> None:
    """Restart with a scene and a prior: one of the session's, or the scene's own, or else the present one."""
    old = session.prior
    present = None if setup.prior else old
    world = setup.world(session.priors[name]() if name in session.priors else present)
    new = world.simulator.prior
    if new.fps != old.fps or not np.allclose(new.skeleton.rest, old.skeleton.rest, atol=1e-4):
        raise ValueError(f"{name} has another body or rate than the present prior: start the app with it alone")
    session.setup, session.opening, session.prior_name = setup, world.opening, name
    session.simulator = replace(session.simulator, prior=new, options=setup.simulator)
    session.restart()


def begin(
    session: Session,
    start: str | None = None,
    people: int | None = None,
    seed: int | None = None,
    ghost: bool | None = None,
) -> None:
    """Restart with another number of people, start motion or seed, or with or without a ghost."""
    scene = session.scene
    if (start is not None or people is not None) and isinstance(session.simulator.prior, ClipPrior):
        raise ValueError("this scene follows a recording: it has one person and one start")
    count, doing = people or len(scene.people), start or scene.people[0].start
    if (count, doing) != (len(scene.people), scene.people[0].start):
        elements = tuple(e for e in scene.elements if all(person < count for person in e.people()))
        if session.stiff:
            elements += tuple(StiffJoint(person=i) for i in range(len(scene.people), count))
        scene = replace(scene, people=people_in_a_row(count, doing), elements=elements)
    session.setup = replace(session.setup, scene=scene, seed=session.setup.seed if seed is None else seed)
    session.ghost = session.ghost if ghost is None else bool(ghost)
    session.restart()


def _triple(values: np.ndarray) -> Point:
    x, y, z = values.tolist()
    return x, y, z


def people_in_a_row(people: int, start: str) -> tuple[Person, ...]:
    """Return people in a row, the first in the middle."""
    places = [SPACING * ((i + 1) // 2) * (1 if i % 2 else -1) for i in range(people)]
    return tuple(Person(start, (place, 0.0)) for place in places)


def can_start(prior: Prior, motion: str) -> bool:
    """Tell whether people can start in a motion with a prior."""
    try:
        prior.start(motion)
    except ValueError:
        return False
    return True


def warm_up(session: Session) -> None:
    """Compile what commands need later: while somebody watches, that would stop the picture for half a minute."""
    if isinstance(session.simulator.prior, ClipPrior):  # which moves one person from one start only
        return
    other = Session(session.simulator)
    begin(other, session.scene.people[0].start, people=2)
    put_box(other, (0.0, 2.0, 0.0))
    throw(other)
    trip(other)
    tilt(other, 1.0, 0.0)
    other.tick()


DISTURBING = (pause, step, slow, look_back, cut, hold_limb, hold_box, let_go, push, throw, trip, tilt)
ARRANGING = (put_box, paint_ice, take_away, click, walk, go_to, free, crouch, jump, stiffen, switch, load, use, begin)
COMMANDS: dict[str, Callable[..., object]] = {"restart": Session.restart}
"""Every command, by name."""
COMMANDS |= {work.__name__: work for work in (*DISTURBING, *ARRANGING)}
