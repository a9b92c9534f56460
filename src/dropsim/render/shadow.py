"""The shadow that a bright sky casts: soft, and darkest where something touches the floor."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.render.stage import Floor


class Square(NamedTuple):
    """A part of the floor, in its own coordinates."""

    corner: Float[np.ndarray, "2"]
    """Where it starts [m]."""
    side: float
    """[m]"""

    @classmethod
    def around(cls, places: Float[np.ndarray, "n 2"], *, margin: float = 1.0) -> "Square":
        """Return a square that holds some places and a margin [m] about them."""
        corner = places.min(0) - margin
        return cls(corner, float((places.max(0) + margin - corner).max()))


def sky_shadow(
    floor: Floor, square: Square, points: Float[np.ndarray, "n 3"], radii: Float[np.ndarray, "n"], *, texels: int
) -> Float[np.ndarray, "texels texels"]:
    """Return how dark the floor is, from 0 to 1 by x and y, zero on the square's rim so that everything further out may read the rim.

    A ball darkens a Gaussian below it that widens and pales with its height; a sum of separable Gaussians is one matrix product.
    """
    axes, shift = floor.frame()
    along = points @ axes.T + shift
    spread = 0.6 * radii + 0.25 * np.maximum(along[:, 2], radii)
    ticks = (np.arange(texels) + 0.5) * square.side / texels
    x, y = (np.exp(-0.5 * ((ticks[:, None] + square.corner[i] - along[:, i]) / spread) ** 2) for i in range(2))
    # In strips too small for BLAS to wake its threads: waiting for them on busy cores takes longer than the whole picture.
    density = (x * (0.7 * radii / spread) ** 2).reshape(-1, 8, len(radii)) @ y.T
    shadow = 1 - np.exp(-density.reshape(texels, texels).astype(np.float32))
    shadow[[0, -1]] = shadow[:, [0, -1]] = 0.0
    return shadow
