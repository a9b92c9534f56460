"""Where the picture is taken from."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

Point = tuple[float, float, float]


@dataclass(frozen=True)
class Camera:
    """A perspective camera that looks at a point, with world z up in the picture."""

    target: Point = (0.0, 0.0, 0.9)
    """The point in the middle of the picture [m]."""
    azimuth: float = 30.0
    """Where the camera stands around the target, counterclockwise from +x [degrees]; -90 is behind a person who faces +y."""
    elevation: float = 14.0
    """How far it stands above the target's level [degrees]."""
    distance: float = 5.0
    """From the target [m]."""
    field_of_view: float = 27.0
    """Across the picture's shorter side [degrees]."""


@dataclass(frozen=True, eq=False)
class View:
    """A camera with a picture: its place and axes in the world, and its lens in pixels."""

    eye: Float[np.ndarray, "3"]
    axes: Float[np.ndarray, "3 3"]
    """Right, up and forward as rows."""
    focal: float
    """[pixels]"""
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
        return cls(np.array(camera.target) - camera.distance * forward, axes, focal, (width / 2, height / 2), width, height)

    def cropped(self, rows: slice, columns: slice) -> "View":
        """Return the view through a window of the picture."""
        centre = (self.centre[0] - columns.start, self.centre[1] - rows.start)
        return replace(self, centre=centre, width=columns.stop - columns.start, height=rows.stop - rows.start)

    def pixels(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 2"]:
        """Return the column and row of points in front of the camera."""
        seen = (points - self.eye) @ self.axes.T
        return self.centre + self.focal * seen[:, :2] * (1, -1) / seen[:, 2:]


def plane_basis(normal: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Return two tangents and the unit normal itself as rows (Duff et al. 2017); they are x, y, z for z."""
    x, y, z = normal.tolist()
    sign = math.copysign(1.0, z)
    a = -1 / (sign + z)
    return np.array(((1 + sign * x * x * a, sign * x * y * a, -sign * x), (x * y * a, sign + y * y * a, -y), (x, y, z)))
