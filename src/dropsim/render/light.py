"""The sun, and the shadows that sun and sky cast."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import plane_basis
from dropsim.body.skeleton import PARENTS
from dropsim.export.stage import Stage
from dropsim.render import raster
from dropsim.render.camera import Camera, floor_axes
from dropsim.render.meshes import Mesh

SUN_TEXELS, FLOOR_TEXELS = 768, 256
"""Sides of the sun's map and of the map of shadows on the floor."""
SUN_AZIMUTH, SUN_ELEVATION = 65.0, 52.0
"""Angles of the sun, counterclockwise from the camera and above the horizon [degrees]: shadows fall to the back and the side."""
SHADOW_REACH = 7.0
"""Distance from the camera's target beyond which nothing casts a shadow [m]."""
SHARP, SOFT = 1.0, 4.5
"""Blur of the sun's shadow on the floor where something touches it, and far from that [texels]."""


class Shadows(NamedTuple):
    """A map of the shadows on a square of the floor."""

    dark: Float[np.ndarray, "n n 2"]
    """Darkness of the floor by row (y) and column (x), from 0 to 1: without the sky's light, and without the sun's."""
    square: Float[np.ndarray, "3"]
    """Corner and side in the floor's coordinates [m]."""


def balls_of(stage: Stage) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, "n"]]:
    """Return centres and radii of the balls that cast soft shadows: spheres, joints and the middles of bones."""
    parents, spheres = np.array(PARENTS[1:]), [solid for solid in stage.objects if solid.radius]
    points, radii = [s.centre for s in spheres], [np.array([s.radius]) for s in spheres]
    for pose in stage.people:
        joints, sizes = pose.joints[0], pose.skeleton.radii
        points += [joints, (joints[1:] + joints[parents]) / 2]
        radii += [sizes, (sizes[1:] + sizes[parents]) / 2]
    return np.concatenate(points), np.concatenate(radii)


def cast(stage: Stage, mesh: Mesh, camera: Camera, eye: Float[np.ndarray, "3"]) -> tuple[raster.Light, Shadows]:
    """Let the sun shine over the camera's shoulder onto the triangles of one frame that cast shadows."""
    a, e = math.radians(camera.azimuth + SUN_AZIMUTH), math.radians(SUN_ELEVATION)
    sun = np.array((math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)))
    points, radii = balls_of(stage)
    near = np.linalg.norm(points - camera.target, axis=1) < SHADOW_REACH
    if near.any():
        points, radii = points[near], radii[near]
    onto, texel = _onto_sun(sun, points, radii)
    places = mesh.surface[:, :3]
    sun_map = _drawn(places @ onto[:, :3].T + onto[:, 3], mesh, SUN_TEXELS)
    axes, shift = floor_axes(stage.ground)
    light = raster.Light(eye, sun, np.append(axes[2], shift[2]), onto, sun_map, texel)
    # Where the sun is low above a steep floor, shadows end somewhere all the same.
    rays = axes @ sun
    slant = rays[:2] / max(float(rays[2]), 0.2)
    along, places = points @ axes.T + shift, places @ axes.T + shift
    ends = np.concatenate((along[:, :2], along[:, :2] - slant * np.maximum(along[:, 2:], 0.0)))
    corner = ends.min(0) - 0.8
    side = float((ends.max(0) + 0.8 - corner).max())
    fallen = (places[:, :2] - slant * places[:, 2:] - corner) * (FLOOR_TEXELS / side)
    hidden = (_drawn(np.column_stack((fallen, np.ones(len(fallen)))), mesh, FLOOR_TEXELS) > 0).astype(np.float32)
    sky = _sky_shadow(along, radii, corner, side)
    # Sharp where the sky's shadow is dark: there something touches the floor.
    sharp, soft = (_blurred(hidden, sigma) for sigma in (SHARP, SOFT))
    dark = np.stack((sky, soft + np.clip(2.5 * sky, 0.0, 1.0) * (sharp - soft)), axis=-1)
    return light, Shadows(dark, np.append(corner, side))


def _drawn(points: Float[np.ndarray, "n 3"], mesh: Mesh, texels: int) -> Float[np.ndarray, "texels texels"]:
    """Draw what looks towards the sun into a map of nearness."""
    nearness, owner = np.zeros((texels, texels), np.float32), np.zeros((texels, texels), np.int32)
    raster.rasterize(points, mesh.faces, 1, np.zeros(3), nearness, owner)
    return nearness


def _onto_sun(
    sun: Float[np.ndarray, "3"], points: Float[np.ndarray, "n 3"], radii: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "3 4"], float]:
    """Return the map from the world to columns, rows and nearness of the sun's map, and a texel's size [m]."""
    axes = plane_basis(sun)
    along = points @ axes.T
    # Wider than the joints, for hands, toes and hair; in steps, so that the shadow's texels do not swim.
    reach = math.ceil(4 * (float((along.max(0) - along.min(0)).max()) / 2 + float(radii.max()) + 0.4)) / 4
    texel = 2 * reach / SUN_TEXELS
    middle = np.round((along.min(0) + along.max(0)) / 2 / texel) * texel
    scale = np.array((1 / texel, 1 / texel, 1.0))
    return np.column_stack((scale[:, None] * axes, (0.5 * SUN_TEXELS, 0.5 * SUN_TEXELS, reach) - scale * middle)), texel


def _sky_shadow(
    places: Float[np.ndarray, "n 3"], radii: Float[np.ndarray, "n"], corner: Float[np.ndarray, "2"], side: float
) -> Float[np.ndarray, "texels texels"]:
    """Return how dark the floor is under a bright sky, by row and column: soft, and darkest where something touches it.

    A ball darkens a Gaussian below it that widens and pales with its height; a sum of separable Gaussians is one matrix
    product.
    """
    spread = 0.6 * radii + 0.25 * np.maximum(places[:, 2], radii)
    ticks = (np.arange(FLOOR_TEXELS) + 0.5) * side / FLOOR_TEXELS
    x, y = (np.exp(-0.5 * ((ticks[:, None] + corner[i] - places[:, i]) / spread) ** 2) for i in range(2))
    return 1 - np.exp(-((y * (0.7 * radii / spread) ** 2) @ x.T))


def _blurred(values: np.ndarray, sigma: float) -> np.ndarray:
    weights = np.exp(-0.5 * (np.arange(int(2 * sigma + 0.5) + 1) / sigma) ** 2)
    weights /= 2 * weights.sum() - weights[0]
    return raster.blur(raster.blur(values, weights), weights)
