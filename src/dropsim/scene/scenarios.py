"""The paper's demonstrations, ready made: each a setup whose defaults show its effect, to be run, changed or written to a file."""

import math
from collections.abc import Mapping
from dataclasses import replace

from dropsim.files.names import nearest_name
from dropsim.scene import Dodge, Drag, Follow, Ground, Person, Push, Scene, StiffJoint, Throw, Trip
from dropsim.scene.files import SOMERSAULT, Setup


def scenario(name: str) -> Setup:
    """Return a ready scenario by its name."""
    if name not in SCENARIOS:
        near = nearest_name(name, SCENARIOS)
        hint = f"did you mean {near}?" if near else "`dropsim scenarios` lists them, and a scene file ends in .toml"
        raise ValueError(f"there is no scenario {name!r}: {hint}")
    return SCENARIOS[name]


def _pushes() -> list[Setup]:
    def push(name: str, description: str, newtons: float) -> Setup:
        return Setup(name=name, description=description, scene=Scene(elements=(Push.toward("left", newtons),)))

    return [
        push("push", "A walking person is pushed once, to the left.", 250.0),
        push("push-small", "A small push on the torso, which a step makes up for.", 150.0),
        push("push-large", "A push on the torso that fells two people in three.", 300.0),
    ]


def _ahead(speed: float, *, person: int = 0, until: float | None = None) -> Follow:
    """Go straight on, or for person 1 straight back, and stop at a time."""
    rows = [(0.0, 0.0, -speed if person else speed)]
    return Follow(tuple(rows if until is None else [*rows, (until, 0.0, 0.0)]), person=person)


def _throw(start: float, angle: float, joint: str) -> Throw:
    return Throw(joint, angle, distance=6.0, speed=6.0, mass=8.0, start=start)


def _projectiles() -> list[Setup]:
    first = (_throw(1.0, 70.0, "spine3"), _throw(1.2, 110.0, "head"), _throw(1.4, 20.0, "left_knee"))
    second = (_throw(3.5, -70.0, "spine3"), _throw(3.7, -110.0, "head"), _throw(3.9, -20.0, "right_knee"))
    hit = Setup(
        name="projectiles",
        description="Balls of 8 kg fly at a walking person, three in the air at once.",
        scene=Scene(elements=(_ahead(1.0), *first, *second)),
    )
    dodge = replace(hit, name="projectiles-dodge", description="The same balls, and the person goes out of their way.")
    return [hit, replace(dodge, scene=Scene(elements=(Dodge(), *first, *second)))]


def _two() -> list[Setup]:
    slow = Scene((Person(), Person(position=(0.15, 3.0), facing=180.0)), (_ahead(0.8, until=2.5), _ahead(0.8, person=1, until=2.5)))
    people = (Person("run"), Person("run", position=(0.05, 3.5), facing=180.0))
    fast = Scene(people, (_ahead(2.5, until=1.5), _ahead(2.5, person=1, until=1.5)))
    return [
        Setup(name="two-people", description="Two people walk slowly into each other.", scene=slow),
        Setup(name="two-runners", description="Two people run into each other.", seconds=4.0, scene=fast),
    ]


def _led() -> list[Setup]:
    return [
        _round("follow", "A person follows a way round a square at 1.2 m/s, turning every 4 s.", "walk", 1.2),
        _round("follow-run", "A person follows a way round a square at 2.5 m/s, turning every 4 s.", "run", 2.5),
        _round("lead-by-hand", "A person is led round a square by the right hand at 1.2 m/s.", "walk", 1.2, by_hand=True),
        _round("lead-by-hand-run", "A person is led round a square by the right hand at 2.5 m/s.", "run", 2.5, by_hand=True),
    ]


def _round(name: str, description: str, start: str, speed: float, *, by_hand: bool = False) -> Setup:
    follow = Follow.square(speed)
    drag = Drag("right_wrist", _corners(follow), stiffness=200.0, largest=80.0, relative=True)
    scene = Scene((Person(start),), (follow, drag) if by_hand else (follow,))
    return Setup(name=name, description=description, seconds=16.0, scene=scene)


def _corners(follow: Follow, *, every: float = 4.0) -> tuple[tuple[float, float, float, float], ...]:
    """Return the path of a point that goes at a follow's velocities, each for as long."""
    x = y = 0.0
    rows = [(0.0, 0.0, 0.0, 0.0)]
    for time, along_x, along_y in follow.velocities:
        x, y = x + every * along_x, y + every * along_y
        rows.append((time + every, x, y, 0.0))
    return tuple(rows)


def _ring(count: int, radius: float) -> tuple[Person, ...]:
    """Place people evenly on a circle, each walking along it."""
    turns = [2 * math.pi * i / count for i in range(count)]
    places = [(round(radius * math.cos(turn), 3), round(radius * math.sin(turn), 3)) for turn in turns]
    # Facing is counted from +y, and at angle 0 the way along the circle is +y.
    return tuple(Person("walk", place, round(math.degrees(turn), 3)) for place, turn in zip(places, turns, strict=True))


def _others() -> list[Setup]:
    tilts = ((1.5, 0.0, 0.0), (2.0, 25.0, 0.0), (3.5, 25.0, 0.0), (4.0, 0.0, 0.0))
    pushed = Push.toward("left", 250.0, start=1.5, duration=0.3)
    return [
        Setup(
            name="trip", description="A running person's heel is caught by an obstacle for a second.",
            scene=Scene((Person("run"),), (Trip(start=0.5),)),
        ),
        Setup(
            name="tilt", description="The platform tilts sideways and comes back while a person walks.",
            scene=Scene(elements=(_ahead(1.0),), ground=Ground(tilts)),
        ),
        Setup(
            name="stiff-knee", description="A person walks with a right knee that does not bend.",
            scene=Scene(elements=(_ahead(1.0), StiffJoint())),
        ),
        Setup(
            name="backflip-push", description="A back somersault is pushed in the air; --set clip=FILE takes a recording instead.",
            seconds=8.0, clip=SOMERSAULT, handover=pushed.start, scene=Scene(elements=(pushed,)),
        ),
        Setup(name="stand-still", description="A person stands, and nothing happens.", scene=Scene((Person("stand"),))),
        Setup(name="crowd", description="Nine people set out from a ring, one behind the other.", scene=Scene(_ring(9, 2.2))),
    ]  # fmt: skip


SCENARIOS: Mapping[str, Setup] = {s.name: s for s in (*_pushes(), *_projectiles(), *_two(), *_led(), *_others())}
"""Every ready scenario by its name."""
