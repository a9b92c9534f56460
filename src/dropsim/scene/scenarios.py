"""Ready scenarios: the paper's demonstrations as setups, to be run, changed or written to a file."""

import math
from collections.abc import Mapping
from typing import Any

from dropsim.files.names import nearest_name
from dropsim.scene import (
    Box,
    Carry,
    Dodge,
    Drag,
    Element,
    Follow,
    Ground,
    Obstacle,
    Patch,
    Person,
    Push,
    Ramp,
    Scene,
    Stairs,
    StiffJoint,
    Throw,
    Trip,
)
from dropsim.scene.files import SOMERSAULT, Setup


def scenario(name: str) -> Setup:
    """Return a ready scenario by its name."""
    if name not in SCENARIOS:
        near = nearest_name(name, SCENARIOS)
        hint = f"did you mean {near}?" if near else "`dropsim scenarios` lists them, and a scene file ends in .toml"
        raise ValueError(f"there is no scenario {name!r}: {hint}")
    return SCENARIOS[name]


_SPEEDS = {"stand": 0.0, "walk": 1.2, "run": 2.5}
"""Speeds of people who go straight on while nothing in the scene says otherwise [m/s]."""


def _setup(
    name: str, description: str, start: str = "walk", *elements: Element[Any], seconds: float = 6.0, seed: int = 0
) -> Setup:
    """Return a setup with one person."""
    person = Person(start, speed=_SPEEDS[start])
    return Setup(name=name, description=description, seconds=seconds, seed=seed, scene=Scene((person,), elements))


def _ahead(speed: float, *, person: int = 0, until: float | None = None) -> Follow:
    """Go straight ahead (person 1 comes the other way), and stop at a time."""
    rows = [(0.0, 0.0, -speed if person else speed)]
    return Follow(tuple(rows if until is None else [*rows, (until, 0.0, 0.0)]), person=person)


def _square(speed: float) -> tuple[Follow, Drag]:
    """Return velocities around a square, and the path of a hand that is led along it."""
    follow, every = Follow.square(speed), 4.0
    x = y = 0.0
    rows = [(0.0, 0.0, 0.0, 0.0)]
    for time, along_x, along_y in follow.velocities:
        x, y = x + every * along_x, y + every * along_y
        rows.append((time + every, x, y, 0.0))
    return follow, Drag("right_wrist", tuple(rows), stiffness=200.0, largest=80.0, relative=True, goes_along=True)


def _meeting(start: str, speed: float, position: tuple[float, float], until: float) -> Scene:
    """Return two people who go toward each other."""
    people = (Person(start), Person(start, position, facing=180.0))
    return Scene(people, (_ahead(speed, until=until), _ahead(speed, person=1, until=until)))


def _ring(count: int, radius: float, speed: float, seconds: float) -> Scene:
    """Return people who walk around a circle, one behind the other."""
    people, ways = list[Person](), list[Follow]()
    for i in range(count):
        angle = 2 * math.pi * i / count
        place = round(radius * math.cos(angle), 3), round(radius * math.sin(angle), 3)
        # Facing is measured from +y, which is the direction of the circle at angle 0.
        people.append(Person("walk", place, round(math.degrees(angle), 3)))
        turns = [(0.5 * k, angle + 0.5 * (k + 0.5) * speed / radius) for k in range(round(2 * seconds))]
        ways.append(
            Follow(
                tuple((time, round(-speed * math.sin(a), 3), round(speed * math.cos(a), 3)) for time, a in turns),
                person=i,
            )
        )
    return Scene(tuple(people), tuple(ways))


_THROWS = tuple(
    Throw(joint, angle, distance=6.0, speed=6.0, mass=8.0, start=start)
    for start, angle, joint in (
        (1.0, 70.0, "spine3"), (1.2, 110.0, "head"), (1.4, 20.0, "left_knee"),
        (3.5, -70.0, "spine3"), (3.7, -110.0, "head"), (3.9, -20.0, "right_knee"),
    )
)  # fmt: skip
_TILTS = ((1.5, 0.0, 0.0), (2.0, 25.0, 0.0), (3.5, 25.0, 0.0), (4.0, 0.0, 0.0))
_IN_THE_AIR = Push.toward("left", 250.0, start=1.5, duration=0.3)

_CRATES = tuple(
    Box((x, 2.6, 0.3 * k), (0.4, 0.4, 0.3), facing=10.0 * k, mass=4.0)
    for x, high in ((-0.45, 2), (0.0, 3), (0.45, 2))
    for k in range(high)
)

_ALL = [
    # Of sixteen people, twelve stumble and walk on as this one does.
    _setup("push", "A walking person is pushed to the left.", "walk", Push.toward("left", 250.0), seed=12),
    _setup("push-small", "A walking person is pushed weakly; one step makes up for it.", "walk", Push.toward("left", 100.0)),
    _setup("push-large", "A walking person is pushed hard.", "walk", Push.toward("left", 300.0)),
    # Of eight people, seven are hit less if they dodge; the one of seed 0 is not.
    _setup("projectiles", "Balls of 8 kg fly at a walking person, three at a time.", "walk", _ahead(1.0), *_THROWS, seed=1),
    _setup("projectiles-dodge", "The same balls, and the person dodges them.", "walk", Dodge(), *_THROWS, seed=1),
    Setup("two-people", "Two people walk slowly into each other.", scene=_meeting("walk", 0.8, (0.15, 3.0), 2.5)),
    Setup("two-runners", "Two people run into each other.", 4.0, scene=_meeting("run", 2.5, (0.05, 3.5), 1.5)),
    _setup("follow", "A person walks around a square at 1.2 m/s and turns every 4 s.", "walk", _square(1.2)[0], seconds=16.0),
    _setup("follow-run", "A person runs around a square at 2.5 m/s and turns every 4 s.", "run", _square(2.5)[0], seconds=16.0),
    _setup("lead-by-hand", "A person is led around a square by the right hand at 1.2 m/s.", "walk", *_square(1.2), seconds=16.0),
    _setup("lead-by-hand-run", "A person is led around a square by the right hand at 2.5 m/s.", "run", *_square(2.5), seconds=16.0),
    _setup("trip", "An obstacle holds a running person's heel for a second.", "run", Trip(start=0.5), seed=10),
    Setup("tilt", "The ground tilts sideways and back while a person walks.", scene=Scene(elements=(_ahead(1.0),), ground=Ground(_TILTS))),
    _setup("stiff-knee", "A person walks with a right knee that does not bend.", "walk", _ahead(1.0), StiffJoint(), seed=2),
    Setup(
        "backflip-push", "A person is pushed during a back somersault; --set clip=FILE takes a recording instead.", 8.0,
        clip=SOMERSAULT, handover=_IN_THE_AIR.start, scene=Scene(elements=(_IN_THE_AIR,)),
    ),
    # Person 0 of eight lurches before it gets there; this one walks as the others do.
    _setup("slip", "A walking person steps onto ice.", "walk", _ahead(1.2), Patch((0.0, 3.0), (2.0, 2.0), friction=0.05), seed=7),
    _setup("ramp", "A person walks up a ramp of 12 degrees.", "walk", _ahead(1.2), Ramp((0.0, 2.0), 12.0, width=4.0, landing=4.0), seed=8),
    _setup("curb", "A person walks over a curb of 10 cm.", "walk", _ahead(1.2), Box((0.0, 3.5, 0.0), (5.0, 2.0, 0.1)), seed=7),
    _setup(
        "trip-curb", "A person does not see a curb of 10 cm.", "walk",
        _ahead(1.2), Box((0.0, 3.5, 0.0), (5.0, 2.0, 0.1), unseen=True), seed=7,
    ),
    _setup("wall", "A person stops in front of a wall.", "walk", _ahead(1.2), Box((0.0, 4.0, 0.0), (4.0, 0.2, 1.2)), seed=7),
    _setup(
        "boxes", "A person walks into stacked boxes of 4 kg and kicks a ball.", "walk",
        _ahead(1.2), Obstacle((0.1, 1.4, 0.11), 0.11, mass=0.4), *_CRATES, seed=7,
    ),
    _setup("carry", "A person carries a bag of 8 kg in the right hand.", "walk", _ahead(1.2), Carry(8.0)),
    _setup("stairs", "A person walks up four steps.", "walk", _ahead(1.0), Stairs((0.0, 2.0), width=4.0, landing=8.0), seconds=8.0),
    _setup("stand-still", "A person stands.", "stand"),
    Setup("crowd", "Nine people walk in a ring.", scene=_ring(9, 2.2, 1.0, 6.0)),
]  # fmt: skip
SCENARIOS: Mapping[str, Setup] = {setup.name: setup for setup in _ALL}
"""All ready scenarios by name."""
