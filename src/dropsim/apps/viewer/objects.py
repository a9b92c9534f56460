"""Boxes and ice that people at a screen put into a live world: hands on boxes, and what the mouse points at."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dropsim.files.units import GRAVITY
from dropsim.scene import Solid
from dropsim.scene.loose import BodyState

REACHING, FASTEST = 0.1, 5.0
"""A hand aims to bring a box to the pointer within so long [s], but no faster than this [m/s]."""
CALMING = 0.7
"""Share of its spin that a box keeps from frame to frame in somebody's hand."""


@dataclass(frozen=True)
class BoxGrab:
    """A hand on a loose box: it carries the box toward a point in the world, with a bounded force."""

    key: int
    """Of the box, as `Shot.solids` has it."""
    point: tuple[float, float, float]
    """Where it holds the box, in the box's own axes [m]."""
    pointer: tuple[float, float, float]
    """World [m]."""
    largest: float = 400.0
    """Largest force, on top of the box's weight [N]."""

    def held(self, box: BodyState) -> Float[np.ndarray, "3"]:
        """Position of the held point [m]."""
        return box.x + box.R @ np.array(self.point)

    def force(self, box: BodyState, mass: float, h: float) -> Float[np.ndarray, "3"]:
        """Force that gives the box, within a step, the velocity with which it would reach the pointer [N]."""
        velocity = (np.array(self.pointer) - self.held(box)) / REACHING
        velocity = velocity * (FASTEST / max(float(np.linalg.norm(velocity)), FASTEST))
        pull = mass / h * (velocity - box.v)
        return pull * (self.largest / max(float(np.linalg.norm(pull)), self.largest)) + np.array(
            [0.0, 0.0, mass * GRAVITY]
        )

    def moved(self, box: BodyState, mass: float, h: float) -> BodyState:
        """Return the box after that force has acted for a step; it wakes up."""
        v = box.v + h / mass * self.force(box, mass, h)
        return box._replace(v=v, w=CALMING * box.w, still=np.zeros_like(box.still))


def first_hit(solids: Mapping[int, Solid], origin: Float[np.ndarray, "3"], way: Float[np.ndarray, "3"]) -> int | None:
    """Return the key of the solid that a ray meets first (Moeller and Trumbore 1997); None if it meets none."""
    nearest, found = math.inf, None
    for key, solid in solids.items():
        a, b, c = (solid.vertices @ solid.rotation.T + solid.centre)[solid.faces.T]
        ab, ac, ao = b - a, c - a, origin - a
        across, other = np.cross(way, ac), np.cross(ao, ab)
        volume = (ab * across).sum(-1)
        # A ray along a triangle misses it.
        u, v, far = np.array(((ao * across).sum(-1), other @ way, (ac * other).sum(-1))) / np.where(
            volume == 0, math.inf, volume
        )
        hit = (u >= 0) & (v >= 0) & (u + v <= 1) & (far > 0)
        if hit.any() and (least := float(far[hit].min())) < nearest:
            nearest, found = least, key
    return found
