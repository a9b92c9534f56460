"""Where the light of a picture comes from, and the maps that its shadows are drawn into."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dropsim.render.camera import Camera, View, plane_basis
from dropsim.render.snapshot import Snapshot
from dropsim.render.shadow import Square

SUN_TEXELS, FLOOR_TEXELS = 768, 256
"""Sides of the sun's depth map and of the map of shadows on the floor."""
SUN_AZIMUTH, SUN_ELEVATION = 65.0, 52.0
"""Counterclockwise from the camera, and above the horizon [degrees]: shadows fall to the back and the side."""
SHADOW_REACH = 7.0
"""What is further than this from the camera's target casts no shadow [m]."""
NEAR, FAR = 0.1, 400.0
"""Of the depth buffer [m]."""


@dataclass(frozen=True, eq=False)
class Light:
    """The sun, and what casts shadows."""

    points: Float[np.ndarray, "n 3"]
    """Middles of the balls that stand for everything near enough to cast a shadow [m]."""
    radii: Float[np.ndarray, "n"]
    sun: Float[np.ndarray, "3"]
    """Unit vector towards it."""
    sun_map: Float[np.ndarray, "4 4"]
    """From the world to the sun's depth map."""
    texel: float
    """Of that map [m]."""
    floor_map: Float[np.ndarray, "4 4"]
    """From the world along the sun's rays onto a square of the floor."""
    square: Square

    @classmethod
    def of(cls, moment: Snapshot, camera: Camera) -> "Light":
        """Let the sun shine over the camera's shoulder."""
        points, radii = moment.balls()
        near = np.linalg.norm(points - camera.target, axis=1) < SHADOW_REACH
        if near.any():
            points, radii = points[near], radii[near]
        a, e = math.radians(camera.azimuth + SUN_AZIMUTH), math.radians(SUN_ELEVATION)
        sun = np.array((math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)))
        axes, shift = moment.floor.frame()
        along, rays = points @ axes.T + shift, axes @ sun
        # Where the sun is low above a steep floor, shadows end somewhere all the same.
        slant = rays[:2] / max(float(rays[2]), 0.2)
        square = Square.around(np.concatenate((along[:, :2], along[:, :2] - slant * np.maximum(along[:, 2:], 0.0))), margin=0.8)
        sun_map, texel = _sun_map(sun, points, radii)
        return cls(points, radii, sun, sun_map, texel, _floor_map(slant, square) @ homogeneous(axes, shift), square)


def _sun_map(
    sun: Float[np.ndarray, "3"], points: Float[np.ndarray, "n 3"], radii: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "4 4"], float]:
    """Return the map from the world to the sun's depth map, and a texel's size [m]."""
    axes = plane_basis(sun)
    along = points @ axes.T
    # Wider than the joints, for hands, toes and hair; in steps, so that the shadow's texels do not swim.
    reach = math.ceil(4 * (float((along.max(0) - along.min(0)).max()) / 2 + float(radii.max()) + 0.4)) / 4
    texel = 2 * reach / SUN_TEXELS
    middle = np.round((along.min(0) + along.max(0)) / 2 / texel) * texel
    scale = np.diag((1 / reach, 1 / reach, -1 / reach))
    return homogeneous(scale @ axes, -scale @ middle), texel


def _floor_map(slant: Float[np.ndarray, "2"], square: Square) -> Float[np.ndarray, "4 4"]:
    """Return the map along the sun's rays from the floor's coordinates onto a square of it."""
    flat = np.array(((1.0, 0.0, -slant[0]), (0.0, 1.0, -slant[1]), (0.0, 0.0, 0.0))) * (2 / square.side)
    return homogeneous(flat, np.array((*(-2 * square.corner / square.side - 1), 0.0)))


def clip_matrix(view: View) -> Float[np.ndarray, "4 4"]:
    """Return the map from the world to clip space, the picture's top row at the bottom."""
    lens = np.zeros((4, 4))
    lens[0, 0], lens[1, 1] = 2 * view.focal / view.width, -2 * view.focal / view.height
    lens[2, 2:] = (FAR + NEAR) / (FAR - NEAR), -2 * FAR * NEAR / (FAR - NEAR)
    lens[3, 2] = 1.0
    return lens @ homogeneous(view.axes, -view.axes @ view.eye)


def homogeneous(linear: Float[np.ndarray, "3 3"], shift: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    """Return an affine map as one matrix."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = linear, shift
    return matrix
