"""The camera, and its view of a picture's size."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Point = tuple[float, float, float]
NEAREST = 0.1
"""Least depth of what is drawn [m]."""


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
