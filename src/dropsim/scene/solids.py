"""Solid objects of a scene: boxes (walls and curbs too), ramps, stairs, cylinders, uneven ground and meshes; still, or moving on a path."""

# pyright: reportIncompatibleMethodOverride=false

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp
from dropsim.files.units import Degrees, Kilograms, Metres, Seconds
from dropsim.physics.contact import Shape, nearest_surface
from dropsim.physics.shapes import BOX, CYLINDER, MESH, Mesh
from dropsim.physics.step import StepInputs
from dropsim.scene.element import (
    Element,
    SceneContext,
    Solid,
    check_finite,
    check_friction,
    check_loose,
    check_rows,
    interpolated,
)
from dropsim.scene.loose import BodyState, Loose
from dropsim.scene.mesh_files import read_mesh

Path5 = tuple[tuple[Seconds, Metres, Metres, Metres, Degrees], ...]
DEPTH = 0.5
"""Of what stands on the ground below it [m]: a foot inside of it is nearer to a side or the top than to the bottom."""
SIDES = 32
"""Of a cylinder when it is drawn."""


def box_mesh(half: Float[np.ndarray, "3"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners and the triangles of a box about the origin."""
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half
    quads = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    return corners, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])


def cylinder_mesh(radius: float, half: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners and the triangles of an upright cylinder about the origin."""
    turns = 2 * math.pi * np.arange(SIDES) / SIDES
    ring = np.stack((radius * np.cos(turns), radius * np.sin(turns)), -1)
    points = [np.column_stack((ring, np.full(SIDES, z))) for z in (-half, half)]
    a, b = np.arange(SIDES), (np.arange(SIDES) + 1) % SIDES
    low, high = 2 * SIDES, 2 * SIDES + 1
    faces = [
        np.stack(t, -1)
        for t in (
            (a, b, b + SIDES),
            (a, b + SIDES, a + SIDES),
            (b, a, a * 0 + low),
            (a + SIDES, b + SIDES, a * 0 + high),
        )
    ]
    return np.concatenate((*points, [(0.0, 0.0, -half), (0.0, 0.0, half)])), np.concatenate(faces)


@dataclass(frozen=True)
class Part:
    """A shape of an object, in the object's own axes."""

    kind: int
    sizes: tuple[float, float, float]
    centre: tuple[float, float, float]
    rotation: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """As a rotation vector [rad]."""
    mesh: Mesh | None = None

    @functools.cached_property
    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """Vertices and faces, about the part's own centre."""
        if self.mesh is not None:
            return self.mesh.vertices, self.mesh.faces
        return box_mesh(np.array(self.sizes)) if self.kind == BOX else cylinder_mesh(*self.sizes[:2])

    @functools.cached_property
    def founded(self) -> "Part":
        """The same with a foundation in the ground, if it stands upright on the object's base."""
        (a, b, c), (x, y, z) = self.sizes, self.centre
        half = {BOX: c, CYLINDER: b}.get(self.kind, -1.0)
        if half != z or any(self.rotation):
            return self
        sizes = (a, b, c + DEPTH / 2) if self.kind == BOX else (a, b + DEPTH / 2, c)
        return replace(self, sizes=sizes, centre=(x, y, z - DEPTH / 2))


class SolidObject(Element[float]):
    """Something that gives way to nobody. Its memory is the time, for things that move."""

    facing: float
    friction: float | None
    unseen: bool
    path: Path5

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The shapes that it is made of, about its position."""

    @abstractmethod
    def _origin(self) -> tuple[float, float, float]:
        """Return its position while it has no path [m]."""

    def pose(self, time: float) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        """Return where it is at a time, and how it is turned."""
        *place, turn = interpolated(self.path, time) if self.path else (*self._origin(), self.facing)
        return np.array(place, dtype=float), exp(np.array([0.0, 0.0, math.radians(turn)]))

    def shapes(self, time: float, h: float) -> tuple[Shape, ...]:
        """Return it as colliders at a time, with the velocity with which it got there within a step."""
        return self._still if not self.path else self._shapes(time, h)

    @functools.cached_property
    def _still(self) -> tuple[Shape, ...]:
        return self._shapes(0.0, 1.0)

    def _shapes(self, time: float, h: float) -> tuple[Shape, ...]:
        (place, R), (before, R_before) = self.pose(time), self.pose(time - h)
        turn = R @ R_before.T
        spin = np.array([0.0, 0.0, math.atan2(turn[1, 0], turn[0, 0]) / h])
        made = []
        for part in self.parts if place[2] > 0 else [part.founded for part in self.parts]:
            arm = R @ np.array(part.centre)
            velocity = (place - before) / h + np.cross(spin, arm)
            own = {
                "friction": math.nan if self.friction is None else self.friction,
                "seen": not self.unseen,
                "mesh": part.mesh,
            }
            made.append(
                Shape(part.kind, part.sizes, place + arm, R @ exp(np.array(part.rotation)), velocity, spin, **own)
            )
        return tuple(made)

    def begin(self, context: SceneContext) -> float:
        surface = nearest_surface(self.shapes(0.0, context.h), context.people.x)
        gap = float((surface.distance - context.skeleton.radii).min())
        if gap < -0.05:
            raise ValueError(f"{self._named()} is inside a person: move it away by {-gap:.2f} m")
        return 0.0

    def act(self, memory: float | None, context: SceneContext) -> tuple[float, StepInputs]:
        del memory
        time = context.time + context.h
        return time, StepInputs(colliders=self.shapes(time, context.h)) if self.path else self._standing

    @functools.cached_property
    def _standing(self) -> StepInputs:
        return StepInputs(colliders=self._still)

    def solids(self, memory: float | None) -> tuple[Solid, ...]:
        place, R = self.pose(memory or 0.0)
        name = type(self).__name__.lower()
        return tuple(
            Solid(name, *part.drawn, place + R @ np.array(part.centre), R @ exp(np.array(part.rotation)))
            for part in self.parts
        )

    def _named(self) -> str:
        at = ", ".join(f"{value:g}" for value in self._origin())
        return f"the {type(self).__name__.lower()} at ({at})"

    def _check(self, *numbers: float) -> None:
        what = f"a {type(self).__name__.lower()}"
        check_finite(what, *self._origin(), self.facing, *numbers)
        check_friction(what, self.friction)
        if self.path:
            check_rows(what, self.path, 5, "time [s], x, y, z [m], facing [degrees]")
        if numbers and not 0 < min(numbers) <= max(numbers) <= 1000:
            raise ValueError(f"{what} has sizes above 0 and up to 1000 m, not {min(numbers):g} m")


@dataclass(frozen=True)
class Box(SolidObject, Loose):
    """A box: a curb, a wall, a table; with a mass, a crate that people push and knock over."""

    position: tuple[Metres, Metres, Metres] = (0.0, 2.0, 0.0)
    """Of the middle of its base."""
    size: tuple[Metres, Metres, Metres] = (1.0, 1.0, 1.0)
    """Along x, y and z, before it is turned."""
    facing: Degrees = 0.0
    """Counterclockwise, seen from above."""
    friction: float | None = None
    """Of soles on it; the simulator's own unless given."""
    unseen: bool = False
    """Whether people do not see it: they neither step over it nor stop before they have touched it."""
    path: Path5 = ()
    """Rows of time, position and facing along which it moves; linear between them."""
    mass: Kilograms | None = None
    """Of a box that is loose; without, it gives way to nobody."""
    bounce: float = 0.1
    """Share of its speed that a loose box keeps when it bounces off something."""

    def __post_init__(self) -> None:
        self._check(*self.size)
        check_loose("a box", self.mass, self.bounce)
        if self.mass is not None and self.path:
            raise ValueError("a box has a mass or a path: leave one out")
        if self.mass is not None and min(self.size) < 0.02:
            raise ValueError(f"a loose box has sizes of at least 2 cm, not {100 * min(self.size):g} cm")

    def body(self) -> tuple[int, tuple[float, float, float], float]:
        x, y, z = self.size
        return BOX, (x / 2, y / 2, z / 2), 0.5 if self.friction is None else self.friction

    def begin(self, context: SceneContext) -> "float | BodyState":  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.mass is None:
            return super().begin(context)
        super().begin(context)
        place, R = self.pose(0.0)
        return BodyState.at_rest(place + R @ np.array(self.parts[0].centre), R, context.batch[:-1])

    def act(self, memory: "float | BodyState | None", context: SceneContext) -> tuple["float | BodyState", StepInputs]:
        """Stand in the way; loose boxes are moved by the world, all at once."""
        if self.mass is None:
            return super().act(memory, context)  # pyright: ignore[reportArgumentType]
        return memory if isinstance(memory, BodyState) else self.begin(context), StepInputs()

    def solids(self, memory: "float | BodyState | None") -> tuple[Solid, ...]:
        if not isinstance(memory, BodyState):
            return super().solids(memory)
        return (Solid("crate", *self.parts[0].drawn, memory.x, memory.R),)

    def _origin(self) -> tuple[float, float, float]:
        return self.position

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, z = self.size
        return (Part(BOX, (x / 2, y / 2, z / 2), (0.0, 0.0, z / 2)),)


@dataclass(frozen=True)
class Cylinder(SolidObject):
    """An upright cylinder: a column, a bollard, a drum."""

    position: tuple[Metres, Metres, Metres] = (0.0, 2.0, 0.0)
    """Of the middle of its base."""
    radius: Metres = 0.2
    height: Metres = 1.0
    facing: Degrees = 0.0
    """Counterclockwise, seen from above."""
    friction: float | None = None
    """Of soles on it; the simulator's own unless given."""
    unseen: bool = False
    """Whether people do not see it: they neither step over it nor stop before they have touched it."""
    path: Path5 = ()
    """Rows of time, position and facing along which it moves; linear between them."""

    def __post_init__(self) -> None:
        self._check(self.radius, self.height)

    def _origin(self) -> tuple[float, float, float]:
        return self.position

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (Part(CYLINDER, (self.radius, self.height / 2, 0.0), (0.0, 0.0, self.height / 2)),)


@dataclass(frozen=True)
class Ramp(SolidObject):
    """A plane that rises from an edge on the ground, with a level landing behind it."""

    position: tuple[Metres, Metres] = (0.0, 2.0)
    """Of the middle of its lower edge."""
    slope: Degrees = 10.0
    """Above the level, up to 60 degrees."""
    length: Metres = 3.0
    """Of the slope, seen from above."""
    width: Metres = 2.0
    landing: Metres = 2.0
    """Length of the level part behind it."""
    facing: Degrees = 0.0
    """Where it rises to, counterclockwise from +y."""
    friction: float | None = None
    """Of soles on it; the simulator's own unless given."""
    unseen: bool = False
    """Whether people do not see it."""
    path: Path5 = ()
    """Rows of time, position and facing along which it moves; linear between them."""

    def __post_init__(self) -> None:
        self._check(self.length, self.width, self.landing)
        if not 0 < self.slope <= 60:
            raise ValueError(f"a ramp has a slope above 0 and up to 60 degrees, not {self.slope:g}")

    def _origin(self) -> tuple[float, float, float]:
        return (*self.position, 0.0)

    @property
    def height(self) -> float:
        """Of its upper end [m]."""
        return self.length * math.tan(math.radians(self.slope))

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        angle, height = math.radians(self.slope), self.height
        # A box that is tilted, thick enough to be in the ground at its upper end too, and begins a little before the
        # edge, in the ground.
        long, thick, early = self.length / math.cos(angle), height / math.cos(angle), height * math.sin(angle)
        along, down = (long - early) / 2, -thick / 2
        middle = (
            0.0,
            along * math.cos(angle) - down * math.sin(angle),
            along * math.sin(angle) + down * math.cos(angle),
        )
        slope = Part(BOX, (self.width / 2, (long + early) / 2, thick / 2), middle, (angle, 0.0, 0.0))
        top = Part(
            BOX, (self.width / 2, self.landing / 2, height / 2), (0.0, self.length + self.landing / 2, height / 2)
        )
        return slope, top


@dataclass(frozen=True)
class Stairs(SolidObject):
    """Steps that rise from an edge on the ground; the last one is a landing."""

    position: tuple[Metres, Metres] = (0.0, 2.0)
    """Of the middle of the lowest edge."""
    num_steps: int = 4
    rise: Metres = 0.15
    """Height of a step."""
    run: Metres = 0.32
    """Depth of a step."""
    width: Metres = 2.0
    landing: Metres = 2.0
    """Depth of the last step."""
    facing: Degrees = 0.0
    """Where they rise to, counterclockwise from +y."""
    friction: float | None = None
    """Of soles on them; the simulator's own unless given."""
    unseen: bool = False
    """Whether people do not see them."""
    path: Path5 = ()
    """Rows of time, position and facing along which they move; linear between them."""

    def __post_init__(self) -> None:
        self._check(self.rise, self.run, self.width, self.landing)
        if not 1 <= self.num_steps <= 200:
            raise ValueError(f"stairs have 1 to 200 steps, not {self.num_steps}")

    def _origin(self) -> tuple[float, float, float]:
        return (*self.position, 0.0)

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        made = []
        for i in range(self.num_steps):
            depth, height = self.run if i < self.num_steps - 1 else self.landing, (i + 1) * self.rise
            made.append(Part(BOX, (self.width / 2, depth / 2, height / 2), (0.0, i * self.run + depth / 2, height / 2)))
        return tuple(made)


@dataclass(frozen=True)
class Terrain(SolidObject):
    """Uneven ground: heights on a grid, with triangles between them and walls around."""

    position: tuple[Metres, Metres] = (0.0, 3.0)
    """Of its middle."""
    size: tuple[Metres, Metres] = (4.0, 4.0)
    """Along x and y, before it is turned."""
    heights: tuple[tuple[Metres, ...], ...] = ((0.0, 0.0, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.0))
    """Rows from -y to +y of heights from -x to +x, evenly spaced, none below 0."""
    facing: Degrees = 0.0
    """Counterclockwise, seen from above."""
    friction: float | None = None
    """Of soles on it; the simulator's own unless given."""
    unseen: bool = False
    """Whether people do not see it."""
    path: Path5 = ()
    """Rows of time, position and facing along which it moves; linear between them."""

    def __post_init__(self) -> None:
        self._check(*self.size)
        if len(self.heights) < 2 or len({len(row) for row in self.heights}) != 1 or len(self.heights[0]) < 2:
            raise ValueError("terrain needs at least two rows of at least two heights, all of one length")
        check_finite("terrain", *(height for row in self.heights for height in row))
        if min(min(row) for row in self.heights) < 0:
            raise ValueError("terrain has heights of 0 m or more: it lies on the ground")

    def _origin(self) -> tuple[float, float, float]:
        return (*self.position, 0.0)

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (Part(MESH, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), mesh=height_field(np.array(self.heights), *self.size)),)


def height_field(heights: Float[np.ndarray, "r c"], width: float, length: float) -> Mesh:
    """Return a closed mesh under a grid of heights."""
    rows, columns = heights.shape
    x, y = np.meshgrid(np.linspace(-width / 2, width / 2, columns), np.linspace(-length / 2, length / 2, rows))
    top = np.stack((x, y, heights), -1).reshape(-1, 3)
    bottom = top * [1.0, 1.0, 0.0] - [0.0, 0.0, DEPTH]
    index = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = index[:-1, :-1].ravel(), index[:-1, 1:].ravel(), index[1:, 1:].ravel(), index[1:, :-1].ravel()
    upper = np.concatenate((np.stack((a, b, c), -1), np.stack((a, c, d), -1)))
    border = np.concatenate((index[0, :-1], index[:-1, -1], index[-1, :0:-1], index[:0:-1, 0]))
    after = np.roll(border, -1)
    down = rows * columns
    sides = np.concatenate(
        (np.stack((border + down, after + down, after), -1), np.stack((border + down, after, border), -1))
    )
    return Mesh(np.concatenate((top, bottom)), np.concatenate((upper, upper[:, ::-1] + down, sides)))


@dataclass(frozen=True)
class MeshObject(SolidObject):
    """A surface of triangles from a file: a scanned room, a piece of furniture."""

    file: str = ""
    """An .obj or .glb file, relative to the scene file; of a .glb the geometry alone, y up as glTF has it."""
    position: tuple[Metres, Metres, Metres] = (0.0, 0.0, 0.0)
    scale: float = 1.0
    facing: Degrees = 0.0
    """Counterclockwise, seen from above."""
    friction: float | None = None
    """Of soles on it; the simulator's own unless given."""
    unseen: bool = False
    """Whether people do not see it."""
    path: Path5 = ()
    """Rows of time, position and facing along which it moves; linear between them."""

    def __post_init__(self) -> None:
        self._check(self.scale)
        if not self.file.lower().endswith((".obj", ".glb")):
            raise ValueError(f"a mesh is read from an .obj or .glb file, not from {self.file or 'nothing'!r}")

    def _origin(self) -> tuple[float, float, float]:
        return self.position

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        mesh = _read(self.file, self.scale)
        return (Part(MESH, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), mesh=mesh),)


@functools.lru_cache(maxsize=16)
def _read(file: str, scale: float) -> Mesh:
    mesh = read_mesh(Path(file))
    return mesh if scale == 1.0 else replace(mesh, vertices=scale * mesh.vertices)
