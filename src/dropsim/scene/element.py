"""The contract of an element of a scene: it sees the world between two frames, remembers, and acts on people."""

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.rotations import normalize
from dropsim.body.skeleton import JOINTS, Skeleton, joint_index
from dropsim.control.floor import Footing, kept_from_walls
from dropsim.files.names import suggestion
from dropsim.motion.motion import Event
from dropsim.physics.contact import Plane, Solids
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import StepInputs
from dropsim.priors.prior import State

BODY_PARTS: dict[str, tuple[str, ...]] = {
    "pelvis": ("pelvis",),
    "torso": ("spine1", "spine2", "spine3", "left_collar", "right_collar"),
    "hand": ("right_wrist",),
    "foot": ("right_ankle",),
}
"""Names for where people push; any joint's own name will do too."""


def joints_of(part: str) -> tuple[int, ...]:
    """Return the joints of a body part or the joint of that name."""
    if part not in BODY_PARTS and part not in JOINTS:
        raise ValueError(f"there is no joint {part!r}: {suggestion(part, (*BODY_PARTS, *JOINTS))}")
    return tuple(joint_index(name) for name in BODY_PARTS.get(part, (part,)))


def revolved_mesh(radii: np.ndarray, heights: np.ndarray, sides: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices and the triangles of rings about the z axis, from below; triangles without area are left out."""
    turns = 2 * np.pi * np.arange(sides) / sides
    around = np.stack((np.cos(turns), np.sin(turns), 0 * turns), -1)
    vertices = radii[:, None, None] * around + heights[:, None, None] * np.array((0.0, 0.0, 1.0))
    a = np.arange(len(radii) * sides).reshape(len(radii), sides)
    b, wide = np.roll(a, -1, 1), radii > 0
    lower = np.stack((a[:-1], b[:-1], b[1:]), -1)[wide[:-1]]
    upper = np.stack((a[:-1], b[1:], a[1:]), -1)[wide[1:]]
    return vertices.reshape(-1, 3), np.concatenate((lower, upper)).reshape(-1, 3)


@functools.lru_cache(maxsize=32)
def sphere_mesh(radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices and the triangles of a sphere about the origin."""
    rings = np.linspace(np.pi, 0, 13)
    widths = np.sin(rings) * (np.arange(13) % 12 > 0)  # poles are points
    return revolved_mesh(radius * widths, radius * np.cos(rings), 24)


@dataclass(frozen=True, eq=False)
class Solid:
    """An object with a pose, to be seen, drawn and exported; `*b` are worlds and, in a rollout, frames."""

    name: str
    """Kind of the object, such as box; ball means thrown."""
    vertices: Float[np.ndarray, "v 3"]
    """Vertices in its own axes [m]."""
    faces: Int[np.ndarray, "f 3"]
    """Triangles, counterclockwise seen from outside."""
    centre: Float[np.ndarray, "*b 3"]
    """Origin of its own axes [m]; NaN while it is not there."""
    rotation: Float[np.ndarray, "*b 3 3"]
    """Rotation from its own axes to the world's."""
    velocity: Float[np.ndarray, "*#b 3"] = field(default_factory=lambda: np.zeros(3))
    """Velocity of a sphere's centre [m/s]."""
    radius: float = 0.0
    """Radius of a sphere [m]; 0 for other shapes."""

    @classmethod
    def sphere(
        cls, radius: float, centre: Float[np.ndarray, "*b 3"], velocity: np.ndarray | None = None, name: str = "ball"
    ) -> "Solid":
        """Return a sphere."""
        rotation = np.broadcast_to(np.eye(3), (*centre.shape[:-1], 3, 3))
        velocity = np.zeros(3) if velocity is None else velocity
        return cls(name, *sphere_mesh(radius), centre, rotation, velocity, radius)

    def flat_faces(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the corners of all triangles in its own axes [m], one after the other, and their unit normals."""
        corners = self.vertices[self.faces]
        normals = normalize(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
        return corners.reshape(-1, 3), np.repeat(normals, 3, axis=0)

    @property
    def there(self) -> Bool[np.ndarray, "*b"]:
        """True in the worlds and at the frames where it is there."""
        return np.asarray(np.isfinite(self.centre).all(-1))

    def at(self, frame: int | slice) -> "Solid":
        """Return a single world's object at a frame, or at some."""
        return replace(self, centre=self.centre[frame], rotation=self.rotation[frame], velocity=np.zeros(3))

    def at_all_times(self) -> "Solid":
        """Return an object that waits where it begins and stays where it ends; the last dimension is time."""
        there, count = self.there, self.centre.shape[-2]
        first, last = np.argmax(there, -1), count - 1 - np.argmax(there[..., ::-1], -1)
        at = np.clip(np.arange(count), first[..., None], last[..., None])[..., None]
        centre = np.take_along_axis(self.centre, at, -2)
        return replace(self, centre=centre, rotation=np.take_along_axis(self.rotation, at[..., None], -3))


@dataclass(frozen=True, eq=False)
class SceneContext:
    """The world between a frame and the next, as an element of a scene sees it."""

    frame: int
    fps: float
    """Frame rate [Hz]."""
    people: State
    """States of every world `*w` and person: x has the shape *w p 22 3."""
    skeleton: Skeleton
    ground: Plane
    """Ground as it will be at the frame's end."""
    objects: Sequence[Solid] = ()
    """Everything but people, as it was at the last frame."""
    footing: Footing | None = None
    """The ground under people who are on more than a plane, as it was at the last frame."""
    around: Solids | None = None
    """Solids as they were at the last frame, if there is more than a plane."""
    options: SimulatorOptions = field(default_factory=SimulatorOptions)
    """Options with which people are moved."""

    @property
    def time(self) -> float:
        """Time at the frame [s]."""
        return self.frame / self.fps

    @property
    def h(self) -> float:
        """Length of a frame [s]."""
        return 1.0 / self.fps

    @property
    def batch(self) -> tuple[int, ...]:
        """Dimensions of worlds and people."""
        return self.people.x.shape[:-2]

    @property
    def floor(self) -> Float[np.ndarray, "*w p"]:
        """Height of the ground under each person [m]."""
        return height_of(self.ground, self.people.x[..., 0, :2]) if self.footing is None else self.footing.floor

    def clear_of_walls(self, velocity: Float[np.ndarray, "*w p 2"]) -> Float[np.ndarray, "*w p 2"]:
        """Return velocities to go at with which people can stop before the walls that they see."""
        return velocity if self.around is None else kept_from_walls(velocity, self.people, self.floor, self.around)

    def during(self, start: float, duration: float) -> bool:
        """Tell whether something that starts at a time and lasts a while acts now, counted in whole frames."""
        # So that the momentum of a push does not depend on how its start falls between frames.
        return 0 <= self.frame - round(start * self.fps) < max(1, round(min(duration, 1e6) * self.fps))

    def only(self, person: int) -> Bool[np.ndarray, "*w p"]:
        """Mark one person of every world."""
        mask = np.zeros(self.batch, dtype=np.bool_)
        mask[..., person] = True
        return mask

    def of_world(self, world: int) -> "SceneContext":
        """Return what one world's elements see, without the leading dimension."""
        ground, count = self.ground, self.batch[-1]
        if ground.normal.ndim > 1:
            ground = ground.map(lambda vectors: vectors[world], lambda scalars: scalars[world])
        footing = None if self.footing is None else Footing(*(values[world] for values in self.footing))
        around = None if self.around is None else self.around.only(slice(world * count, (world + 1) * count))
        return replace(self, people=self.people[world], ground=ground, footing=footing, around=around)

    def force_on(
        self, person: int, joints: Sequence[int], force: Float[np.ndarray, "*#w 3"]
    ) -> Float[np.ndarray, "*w p 22 3"]:
        """Share a force evenly among some joints of a person."""
        forces = np.zeros(self.people.x.shape)
        forces[..., person, list(joints), :] = (force / len(joints))[..., None, :]
        return forces


def height_of(plane: Plane, place: Float[np.ndarray, "*w p 2"]) -> Float[np.ndarray, "*w p"]:
    """Return the height of the ground under some places [m]."""
    normal = plane.normal[..., None, :]
    return (plane.offset[..., None] - (normal[..., :2] * place).sum(-1)) / normal[..., 2]


Memory = TypeVar("Memory")


class Element(ABC, Generic[Memory]):
    """Something in a scene. Its fields do not change; what does is a memory that the world hands back to it."""

    label: ClassVar[str] = ""
    """Name of its event, with fields in braces; none if it is empty."""

    @property
    def loose(self) -> bool:
        """True if it is a body that is moved by what touches it; its memory is a BodyState then."""
        return False

    def people(self) -> tuple[int, ...]:
        """Return the people that it concerns, the one in its field `person` if it has that; none means everyone."""
        person = getattr(self, "person", None)
        return () if person is None else (person,)

    def begin(self, context: SceneContext) -> Memory | None:
        """Return its memory at the start, and refuse a start that cannot be."""
        del context

    @abstractmethod
    def act(self, memory: Memory | None, context: SceneContext) -> tuple[Memory | None, StepInputs]:
        """Return its memory after the frame, and what it does during it."""

    def solids(self, memory: Memory | None) -> Sequence[Solid]:
        """Return the objects that it has in the world, to be drawn and to be seen by others."""
        del memory
        return ()

    @property
    def events(self) -> tuple[Event, ...]:
        """Events for exports: `label` with the fields that it names, from its start on."""
        given = vars(self)
        lasting = given.get("duration", given.get("hold", 0.0))
        return (Event(self.label.format_map(given), given["start"], lasting),) if self.label else ()


def table_name(cls: type) -> str:
    """Return the name of a class' table in a scene file, such as stiff_joint for StiffJoint and mesh for MeshObject."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Object")).lower()


LIMITS = {
    "start": "[0, inf)",
    "duration": "(0, inf)",
    "friction": "[0.01, 10]",
    "bounce": "[0, 1]",
    "weight": "(0, inf)",
    "largest": "(0, inf)",
}
"""Intervals of fields that mean the same in all elements: ice has a friction of 0.05, rubber of 0.8."""


def check_numbers(item: Any, **limits: str) -> None:  # noqa: ANN401, any dataclass
    """Refuse numbers of a dataclass that are not finite or not in their interval, such as radius="(0, 2]"."""
    limits = LIMITS | limits
    for each in fields(item):
        interval = limits.get(each.name, "(-inf, inf)")
        for number in _numbers(getattr(item, each.name)):
            if not _within(number, interval):
                needed = "finite" if interval == "(-inf, inf)" else f"in {interval}"
                raise ValueError(f"{table_name(type(item))} {each.name} has to be {needed}, not {number:g}")


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _within(number: float, interval: str) -> bool:
    low, high = map(float, interval[1:-1].split(","))
    at_end = (interval[0] == "[" and number == low) or (interval[-1] == "]" and number == high)
    return low < number < high or at_end


def check_rows(what: str, rows: Sequence[Sequence[float]], content: str, *, least: int = 2) -> None:
    """Refuse a path in time that is too short, has the wrong number of columns or does not go forward."""
    width = content.count(",") + 1
    if len(rows) < least or any(len(row) != width for row in rows):
        raise ValueError(f"{what} needs {least} or more rows of {width} numbers: {content}")
    if any(b[0] <= a[0] for a, b in pairwise(rows)):
        raise ValueError(f"{what} needs times that grow from row to row")


def interpolated(rows: Sequence[Sequence[float]], time: float) -> Float[np.ndarray, "n"]:
    """Return the values of a path (time first) at a time: linear between rows, held at the ends."""
    i = min(max(sum(row[0] < time for row in rows), 1), len(rows) - 1)
    (t0, *a), (t1, *b) = rows[i - 1], rows[i]
    share = min(max((time - t0) / (t1 - t0), 0.0), 1.0)
    return (1 - share) * np.array(a) + share * np.array(b)
