"""Solid objects of a scene: boxes, ramps, stairs, cylinders, spheres, uneven ground and meshes; still, moving or loose."""

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp
from dropsim.files.units import Degrees, Kilograms, Metres, Seconds
from dropsim.physics.contact import Shape, nearest_surface
from dropsim.physics.shapes import BALL, BOX, MESH, Mesh
from dropsim.physics.step import StepInputs
from dropsim.scene.element import (
    Element,
    SceneContext,
    Solid,
    check_numbers,
    check_rows,
    interpolated,
    revolved_mesh,
    sphere_mesh,
    table_name,
)
from dropsim.scene.loose import BodyState
from dropsim.scene.mesh_files import read_mesh

Path5 = tuple[tuple[Seconds, Metres, Metres, Metres, Degrees], ...]
DEPTH = 0.5
"""Depth of foundations in the ground [m]: a foot inside an object is nearer to a side or the top than to the bottom."""
SIDES = 32
"""Number of sides of a cylinder."""
DEEPEST_START = 0.05
"""Largest depth of a person in an object at the start [m]."""
SIZE = "(0, 1000]"
LOOSE_MASS = "[0.05, 10000]"
SMALLEST_LOOSE = 0.02
"""Smallest size that substeps can move well [m]."""
ROUGHNESS = 0.5
"""Friction coefficient of loose objects that set none."""
ZERO = np.zeros(3)


def box_mesh(half: Float[np.ndarray, "3"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners and the triangles of a box about the origin."""
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half
    quads = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    return corners, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])


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
    after, down = np.roll(border, -1), rows * columns
    sides = [np.stack(corner, -1) for corner in ((border + down, after + down, after), (border + down, after, border))]
    return Mesh(np.concatenate((top, bottom)), np.concatenate((upper, upper[:, ::-1] + down, *sides)))


@functools.lru_cache(maxsize=256)
def _drawn(part: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and faces of a shape in its own axes."""
    if part.mesh is not None:
        return part.mesh.vertices, part.mesh.faces
    return sphere_mesh(part.sizes[0]) if part.kind == BALL else box_mesh(np.array(part.sizes))


def _solid(name: str, part: Shape, centre: np.ndarray, rotation: np.ndarray, velocity: np.ndarray = ZERO) -> Solid:
    """Return a part as it is drawn at a place."""
    return Solid(name, *_drawn(part), centre, rotation, velocity, part.sizes[0] if part.kind == BALL else 0.0)


def _with_foundation(part: Shape) -> Shape:
    """Return a part with a foundation in the ground, if it is a box that stands upright on the object's base."""
    x, y, half = part.sizes
    if part.kind != BOX or half != part.centre[2] or part.rotation[2, 2] != 1.0:
        return part
    return replace(part, sizes=(x, y, half + DEPTH / 2), centre=part.centre - [0.0, 0.0, DEPTH / 2])


@dataclass(frozen=True, kw_only=True)
class SolidObject(Element[Any]):
    """An object of solid parts. Its memory is the time, or a BodyState if it has a mass and is loose."""

    facing: Degrees = 0.0
    """Direction, counterclockwise from +y seen from above; ramps and stairs rise there."""
    friction: float | None = None
    """Friction coefficient of soles on it; the simulator's unless given."""
    unseen: bool = False
    """True if people do not see it: they neither step over it nor stop before they have touched it."""
    path: Path5 = ()
    """Rows of time, position and facing along which it moves; linear between them."""

    limits: ClassVar[dict[str, str]] = {}
    """Intervals of its sizes."""

    def __post_init__(self) -> None:
        check_numbers(self, **self.limits)
        if self.path:
            check_rows(f"a {table_name(type(self))}", self.path, "time [s], x, y, z [m], facing [degrees]")

    @abstractmethod
    def _parts(self) -> tuple[Shape, ...]:
        """Return the shapes that it is made of, about its position."""

    @functools.cached_property
    def parts(self) -> tuple[Shape, ...]:
        """Shapes that it is made of, about its position."""
        return self._parts()

    @property
    def loose(self) -> bool:
        return getattr(self, "mass", None) is not None

    def pose(self, time: float) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        """Return its position [m] and rotation at a time [s]."""
        *place, turn = interpolated(self.path, time) if self.path else (*self._origin, self.facing)
        return np.array(place, dtype=float), exp(np.array([0.0, 0.0, math.radians(turn)]))

    @property
    def _origin(self) -> tuple[float, ...]:
        return (*vars(self)["position"], 0.0)[:3]

    def shapes(self, time: float, h: float) -> tuple[Shape, ...]:
        """Return it as colliders at a time, with the velocity with which it got there within a step."""
        return self._at(time, h)[0]

    def _at(self, time: float, h: float) -> tuple[tuple[Shape, ...], tuple[Solid, ...]]:
        return self._placed(time, h) if self.path else self._still

    @functools.cached_property
    def _still(self) -> tuple[tuple[Shape, ...], tuple[Solid, ...]]:
        return self._placed(0.0, 1.0)

    def _placed(self, time: float, h: float) -> tuple[tuple[Shape, ...], tuple[Solid, ...]]:
        """Return its parts at a time as colliders and as they are drawn."""
        (place, R), (before, R_before) = self.pose(time), self.pose(time - h)
        turn = R @ R_before.T
        spin = np.array([0.0, 0.0, math.atan2(turn[1, 0], turn[0, 0]) / h])
        friction = math.nan if self.friction is None else self.friction
        colliders, drawn = list[Shape](), list[Solid]()
        for part in self.parts:
            R_part = R @ part.rotation
            drawn.append(_solid(table_name(type(self)), part, place + R @ part.centre, R_part))
            base = part if place[2] > 0 else _with_foundation(part)
            arm = R @ base.centre
            moving = (place + arm, R_part, (place - before) / h + np.cross(spin, arm), spin)
            colliders.append(Shape(base.kind, base.sizes, *moving, friction, seen=not self.unseen, mesh=base.mesh))
        return tuple(colliders), tuple(drawn)

    def body(self) -> tuple[int, tuple[float, float, float], float]:
        """Return the kind, half the sizes [m] and the friction of a loose object."""
        return self.parts[0].kind, self.parts[0].sizes, ROUGHNESS if self.friction is None else self.friction

    def begin(self, context: SceneContext) -> float | BodyState:
        surface = nearest_surface(self.shapes(0.0, context.h), context.people.x)
        gap = float((surface.distance - context.skeleton.radii).min())
        if gap < -DEEPEST_START:
            at = ", ".join(f"{value:g}" for value in self._origin)
            name = table_name(type(self))
            raise ValueError(f"the {name} at ({at}) is inside a person: move it away by {-gap:.2f} m")
        if not self.loose:
            return 0.0
        place, R = self.pose(0.0)
        place, worlds = place + R @ self.parts[0].centre, context.batch[:-1]
        zero = np.zeros((*worlds, 3))
        return BodyState(np.tile(place, (*worlds, 1)), np.tile(R, (*worlds, 1, 1)), zero, zero)

    def act(self, memory: float | BodyState | None, context: SceneContext) -> tuple[float | BodyState, StepInputs]:
        """Stand in the way; loose objects are moved by the world, all at once."""
        if self.loose:
            return memory if isinstance(memory, BodyState) else self.begin(context), StepInputs()
        time = context.time + context.h
        return time, StepInputs(colliders=self.shapes(time, context.h))

    def solids(self, memory: float | BodyState | None) -> tuple[Solid, ...]:
        if isinstance(memory, BodyState):
            name = "crate" if self.parts[0].kind == BOX else table_name(type(self))
            return (_solid(name, self.parts[0], memory.x, memory.R, memory.v),)
        return self._at(memory or 0.0, 1.0)[1]


@dataclass(frozen=True)
class Box(SolidObject):
    """A box: a curb, a wall, a table; with a mass, a crate that people push and knock over."""

    position: tuple[Metres, Metres, Metres] = (0.0, 2.0, 0.0)
    """Middle of its base."""
    size: tuple[Metres, Metres, Metres] = (1.0, 1.0, 1.0)
    """Sizes along x, y and z, before it is turned."""
    mass: Kilograms | None = field(default=None, kw_only=True)
    """Mass of a loose box; without, it gives way to nobody."""
    bounce: float = field(default=0.1, kw_only=True)
    """Share of its speed that a loose box keeps when it bounces off something."""

    limits: ClassVar = {"size": SIZE, "mass": LOOSE_MASS}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loose and self.path:
            raise ValueError("a box has a mass or a path: leave one out")
        if self.loose and min(self.size) < SMALLEST_LOOSE:
            raise ValueError(f"a loose box has sizes of at least 2 cm, not {100 * min(self.size):g} cm")

    def _parts(self) -> tuple[Shape, ...]:
        x, y, z = self.size
        return (Shape(BOX, (x / 2, y / 2, z / 2), np.array([0.0, 0.0, z / 2])),)


@dataclass(frozen=True)
class Obstacle(SolidObject):
    """A sphere that gives way to nobody; with its centre on the floor, half of one; with a mass, a ball to kick."""

    position: tuple[Metres, Metres, Metres] = (0.0, 2.0, 0.0)
    """Centre."""
    radius: Metres = 0.05
    mass: Kilograms | None = field(default=None, kw_only=True)
    """Mass of a loose ball."""
    bounce: float = field(default=0.6, kw_only=True)
    """Share of its speed that a loose ball keeps when it bounces off something."""
    facing: float = field(default=0.0, init=False)
    unseen: bool = field(default=False, init=False)
    path: Path5 = field(default=(), init=False)

    limits: ClassVar = {"radius": "(0, 10]", "mass": LOOSE_MASS}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loose and self.radius < SMALLEST_LOOSE:
            raise ValueError(f"a loose ball has a radius of at least 2 cm, not {100 * self.radius:g} cm")

    def _parts(self) -> tuple[Shape, ...]:
        return (Shape(BALL, (self.radius, self.radius, self.radius)),)


@dataclass(frozen=True)
class Cylinder(SolidObject):
    """An upright cylinder of 32 sides, as it is drawn: a column, a bollard, a drum."""

    position: tuple[Metres, Metres, Metres] = (0.0, 2.0, 0.0)
    """Middle of its base."""
    radius: Metres = 0.2
    height: Metres = 1.0

    limits: ClassVar = {"radius": SIZE, "height": SIZE}

    def _parts(self) -> tuple[Shape, ...]:
        base = 0.0 if self.pose(0.0)[0][2] > 0 else -DEPTH
        radii, heights = (
            np.array((0.0, self.radius, self.radius, 0.0)),
            np.array((base, base, self.height, self.height)),
        )
        return (Shape(MESH, mesh=Mesh(*revolved_mesh(radii, heights, SIDES))),)


@dataclass(frozen=True)
class Ramp(SolidObject):
    """A plane that rises from an edge on the ground, with a level landing behind it."""

    position: tuple[Metres, Metres] = (0.0, 2.0)
    """Middle of its lower edge."""
    slope: Degrees = 10.0
    """Angle above the level, up to 60 degrees."""
    length: Metres = 3.0
    """Length of the slope, seen from above."""
    width: Metres = 2.0
    landing: Metres = 2.0
    """Length of the level part behind it."""

    limits: ClassVar = {"slope": "(0, 60]", "length": SIZE, "width": SIZE, "landing": SIZE}

    @property
    def height(self) -> float:
        """Height of its upper end [m]."""
        return self.length * math.tan(math.radians(self.slope))

    def _parts(self) -> tuple[Shape, ...]:
        angle, height, half = math.radians(self.slope), self.height, self.width / 2
        # A box that is tilted, thick enough to be in the ground at its upper end too, and begins a little before the
        # edge, in the ground.
        long, thick, early = self.length / math.cos(angle), height / math.cos(angle), height * math.sin(angle)
        along, down = (long - early) / 2, -thick / 2
        y = along * math.cos(angle) - down * math.sin(angle)
        z = along * math.sin(angle) + down * math.cos(angle)
        slope = Shape(
            BOX, (half, (long + early) / 2, thick / 2), np.array([0.0, y, z]), exp(np.array([angle, 0.0, 0.0]))
        )
        middle = np.array([0.0, self.length + self.landing / 2, height / 2])
        return slope, Shape(BOX, (half, self.landing / 2, height / 2), middle)


@dataclass(frozen=True)
class Stairs(SolidObject):
    """Steps that rise from an edge on the ground; the last one is a landing."""

    position: tuple[Metres, Metres] = (0.0, 2.0)
    """Middle of the lowest edge."""
    num_steps: int = 4
    rise: Metres = 0.15
    """Height of a step."""
    run: Metres = 0.32
    """Depth of a step."""
    width: Metres = 2.0
    landing: Metres = 2.0
    """Depth of the last step."""

    limits: ClassVar = {"num_steps": "[1, 200]", "rise": SIZE, "run": SIZE, "width": SIZE, "landing": SIZE}

    def _parts(self) -> tuple[Shape, ...]:
        steps = list[Shape]()
        for i in range(self.num_steps):
            depth, height = self.run if i < self.num_steps - 1 else self.landing, (i + 1) * self.rise
            sizes = (self.width / 2, depth / 2, height / 2)
            steps.append(Shape(BOX, sizes, np.array([0.0, i * self.run + depth / 2, height / 2])))
        return tuple(steps)


@dataclass(frozen=True)
class Terrain(SolidObject):
    """Uneven ground: heights on a grid, with triangles between them and walls around."""

    position: tuple[Metres, Metres] = (0.0, 3.0)
    """Middle."""
    size: tuple[Metres, Metres] = (4.0, 4.0)
    """Sizes along x and y, before it is turned."""
    heights: tuple[tuple[Metres, ...], ...] = ((0.0, 0.0, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.0))
    """Rows from -y to +y of heights from -x to +x, evenly spaced, none below 0."""

    limits: ClassVar = {"size": SIZE, "heights": "[0, inf)"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.heights) < 2 or len({len(row) for row in self.heights}) != 1 or len(self.heights[0]) < 2:
            raise ValueError("terrain needs at least two rows of at least two heights, all of one length")

    def _parts(self) -> tuple[Shape, ...]:
        return (Shape(MESH, mesh=height_field(np.array(self.heights), *self.size)),)


@dataclass(frozen=True)
class MeshObject(SolidObject):
    """A surface of triangles from a file: a scanned room, a piece of furniture."""

    file: str = ""
    """An .obj or .glb file, relative to the scene file; of a .glb the geometry alone, y up as glTF has it."""
    position: tuple[Metres, Metres, Metres] = (0.0, 0.0, 0.0)
    """Origin of the file's axes."""
    scale: float = 1.0

    limits: ClassVar = {"scale": SIZE}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.file.lower().endswith((".obj", ".glb")):
            raise ValueError(f"a mesh is read from an .obj or .glb file, not from {self.file or 'nothing'!r}")

    def _parts(self) -> tuple[Shape, ...]:
        return (Shape(MESH, mesh=_read(self.file, self.scale)),)


@functools.lru_cache(maxsize=16)
def _read(file: str, scale: float) -> Mesh:
    mesh = read_mesh(Path(file))
    return mesh if scale == 1.0 else replace(mesh, vertices=scale * mesh.vertices)
