"""The camera, its view of a picture's size, the floor in it, and cameras that follow people."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import plane_basis
from dropsim.export.stage import Stage, as_stage
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane

Point = tuple[float, float, float]
NEAREST = 0.1
"""Least depth of what is drawn [m]."""
ARMS = 0.5
"""Distance from the hips to the farthest part of a walking person [m]."""


@dataclass(frozen=True)
class Camera:
    """A perspective camera that looks at a point, with world z up in the picture."""

    target: Point = (0.0, 0.0, 0.9)
    """The point in the middle of the picture [m]."""
    azimuth: float = 30.0
    """Angle of the camera around the target, counterclockwise from +x [degrees]; -90 is behind a person who faces +y."""
    elevation: float = 14.0
    """Angle of the camera above the target's level [degrees]."""
    distance: float = 5.0
    """Distance from the target [m]."""
    field_of_view: float = 27.0
    """Angle across the picture's shorter side [degrees]."""


@dataclass(frozen=True, eq=False)
class View:
    """A camera with a picture: its place and axes in the world, and its lens in pixels."""

    eye: Float[np.ndarray, "3"]
    axes: Float[np.ndarray, "3 3"]
    """Right, up and forward as rows."""
    focal: float
    """Focal length [pixels]."""
    centre: tuple[float, float]
    """Column and row that the camera looks along."""
    width: int
    height: int

    @classmethod
    def of(cls, camera: Camera, width: int, height: int) -> "View":
        """Point a camera at its target."""
        a, e = math.radians(camera.azimuth), math.radians(camera.elevation)
        forward = -np.array((math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)))
        right = np.array((-math.sin(a), math.cos(a), 0.0))
        focal = 0.5 * min(width, height) / math.tan(math.radians(camera.field_of_view) / 2)
        axes = np.stack((right, np.cross(right, forward), forward))
        return cls(
            np.array(camera.target) - camera.distance * forward, axes, focal, (width / 2, height / 2), width, height
        )

    def projected(self, points: Float[np.ndarray, "n 3"], lift: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n 3"]:
        """Return column, row and nearness, the inverse depth [1/m], of points; not a number where they are at the eye or behind it.

        A lifted point counts as nearer to the eye than it is by `lift` [m].
        """
        seen = (points - self.eye) @ self.axes.T
        depth = np.where(seen[:, 2] > NEAREST, seen[:, 2], np.nan)
        lifted = depth * np.maximum(1 - lift / np.linalg.norm(seen, axis=1), 0.1)
        column, row = self.centre[0] + self.focal * seen[:, 0] / depth, self.centre[1] - self.focal * seen[:, 1] / depth
        return np.column_stack((column, row, 1 / lifted))

    def rays(self) -> Float[np.ndarray, "3 3"]:
        """Return the map from a pixel (column, row, 1) to the direction of its ray, one metre deep."""
        x, y = self.centre
        return self.axes.T @ (np.array(((1.0, 0.0, -x), (0.0, -1.0, y), (0.0, 0.0, self.focal))) / self.focal)

    def ground(self, axes: Float[np.ndarray, "3 3"], shift: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
        """Return the map from a pixel (column, row, 1) to its place on the floor (x, y, 1) over its depth [m].

        `axes` and `shift` take the world to the floor's coordinates: a ray o + depth d meets the floor at depth -o_z /
        d_z.
        """
        rays, (x, y, height) = axes @ self.rays(), axes @ self.eye + shift
        height = math.copysign(max(abs(height), 1e-6), height)
        return np.stack((rays[0] - x / height * rays[2], rays[1] - y / height * rays[2], -rays[2] / height))


def floor_axes(floor: Plane) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]]:
    """Return A and b such that A p + b is the place of p along the floor's squares and its height above the floor."""
    axes = plane_basis(floor.normal)
    return axes, np.array((*(floor.pivot - axes @ floor.pivot)[:2], -float(floor.offset)))


def floor_height(floor: Plane, x: float, y: float) -> float:
    """Return its z at a place [m]; a wall counts as level."""
    normal_x, normal_y, up = floor.normal.tolist()
    return (float(floor.offset) - normal_x * x - normal_y * y) / up if up > 0.2 else float(floor.offset)


def follow(shown: Stage | Motion, *, camera: Camera | None = None, half_life: float = 0.25) -> list[Camera]:
    """Return a camera for each frame that keeps its angle and tracks people over the ground, smoothed by half_life [s].

    The default camera stands in front of the first person's left, as they face in the first frame. It stands further
    back where people are apart, up to six metres from their middle.
    """
    stage = as_stage(shown)
    camera = camera or Camera(azimuth=stage.azimuth())
    height = 0.92 * max(motion.skeleton.standing_height for motion in stage.people)
    paths = np.stack([_padded(motion.root[:, :2], len(stage)) for motion in stage.people])
    middle = (paths.min(0) + paths.max(0)) / 2
    others = (
        paths if stage.ghost is None else np.concatenate((paths, _padded(stage.ghost.root[:, :2], len(stage))[None]))
    )
    spread = np.linalg.norm(others - middle, axis=-1).max(0).clip(max=6.0)
    ground = [floor_height(stage.plane(i), *middle[i].tolist()) for i in range(len(stage))]
    if any(not solid.radius for solid in stage.objects):  # on which people may stand
        lowest = np.stack([_padded(motion.joints[..., 2].min(-1), len(stage)) for motion in stage.people]).min(0)
        ground = np.maximum(ground, _smoothed(lowest[:, None], 2 * half_life * stage.fps)[:, 0] - 0.1)
    track = _smoothed(np.column_stack((middle, ground, spread)), half_life * stage.fps)
    slope = math.tan(math.radians(camera.field_of_view / 2))
    # People at the side are within the picture's width, with their arms.
    return [
        replace(camera, target=(x, y, z + height), distance=max(camera.distance, (apart + ARMS) / slope))
        for x, y, z, apart in track.tolist()
    ]


def _padded(values: np.ndarray, frames: int) -> np.ndarray:
    """Hold the last value until a number of frames is reached."""
    return values[np.minimum(np.arange(frames), len(values) - 1)]


def _smoothed(path: Float[np.ndarray, "t n"], half_life: float) -> Float[np.ndarray, "t n"]:
    reach = max(1, round(2 * half_life))
    weights = np.exp2(-np.square(np.arange(-reach, reach + 1) / half_life))
    padded = np.pad(path, ((reach, reach), (0, 0)), mode="edge")
    return np.stack([np.convolve(column, weights / weights.sum(), mode="valid") for column in padded.T], axis=1)
