"""Colliders: what a joint's sphere can touch, as signed distances."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.compute import arrays as kernels
from dropsim.physics.wrench import GRAVITY


@dataclass(frozen=True, eq=False)
class Surface:
    """The nearest surface as seen from some points."""

    distance: Float[Tensor, "*b n"]
    """From the point to the surface, negative inside [m]."""
    normal: Float[Tensor, "*b n 3"]
    """Out of the collider, of unit length."""
    velocity: Float[Tensor, "*b n 3"]
    """Of the surface at its nearest point [m/s]."""


class Collider(ABC):
    """A solid that gives way to nobody, at one moment in time."""

    @abstractmethod
    def surface(self, points: Float[Tensor, "*b n 3"]) -> Surface:
        """Return the signed distance, normal and velocity of the surface at given points."""


def _like(value: Tensor, points: Tensor) -> Tensor:
    return value.to(points)


@dataclass(frozen=True, eq=False)
class Plane(Collider):
    """A half-space: the ground, level or tilted, still or moving."""

    normal: Float[Tensor, "*b 3"]
    """Unit vector out of the ground."""
    offset: Float[Tensor, "*b"]
    """Height of the plane along its normal [m]."""
    angular_velocity: Float[Tensor, "*b 3"]
    """Of a plane that tilts about `pivot` [rad/s]."""
    velocity: Float[Tensor, "*b 3"]
    """Of the pivot [m/s]."""
    pivot: Float[Tensor, "*b 3"]

    @classmethod
    def ground(cls) -> "Plane":
        """Return the level floor z = 0."""
        up, zero = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        return cls(up, torch.zeros((), dtype=torch.float64), zero, zero, zero)

    @classmethod
    def stacked(cls, planes: Sequence["Plane"]) -> "Plane":
        """Lay several planes out along a new last batch dimension, such as time."""
        normal, angular, velocity, pivot = (
            torch.stack([getattr(plane, name) for plane in planes], dim=-2) for name in ("normal", "angular_velocity", "velocity", "pivot")
        )
        return cls(normal, torch.stack([plane.offset for plane in planes], dim=-1), angular, velocity, pivot)

    def map(self, vectors: Callable[[Tensor], Tensor], scalars: Callable[[Tensor], Tensor]) -> "Plane":
        """Change the batch dimensions of every part."""
        return Plane(
            vectors(self.normal), scalars(self.offset), vectors(self.angular_velocity), vectors(self.velocity), vectors(self.pivot)
        )

    def surface(self, points: Float[Tensor, "*b n 3"]) -> Surface:
        """Measure along the normal."""
        normal, offset = _like(self.normal, points).unsqueeze(-2), _like(self.offset, points).unsqueeze(-1)
        distance = (points * normal).sum(-1) - offset
        arm = points - _like(self.pivot, points).unsqueeze(-2)
        spin = torch.linalg.cross(_like(self.angular_velocity, points).unsqueeze(-2).expand_as(arm), arm)
        return Surface(distance, normal.expand_as(points), spin + _like(self.velocity, points).unsqueeze(-2))


@dataclass(frozen=True, eq=False)
class Spheres(Collider):
    """Some balls or obstacles; people who meet are no colliders (scene/meeting.py)."""

    centres: Float[Tensor, "*b s 3"]
    radii: Float[Tensor, "s"]
    velocities: Float[Tensor, "*b s 3"]

    def surface(self, points: Float[Tensor, "*b n 3"]) -> Surface:
        """Measure to the nearest of the spheres."""
        centres, velocities = _like(self.centres, points), _like(self.velocities, points)
        apart = points.unsqueeze(-2) - centres.unsqueeze(-3)
        length = apart.norm(dim=-1)
        distance, nearest = (length - _like(self.radii, points)).min(dim=-1)
        where = nearest[..., None, None].expand(*nearest.shape, 1, 3)
        # From the very centre, out is up.
        up = torch.tensor([0.0, 0.0, 1.0]).to(points)
        outward = torch.where(length.unsqueeze(-1) > 1e-9, apart / length.clamp_min(1e-9).unsqueeze(-1), up)
        normal = outward.gather(-2, where).squeeze(-2)
        velocity = velocities.unsqueeze(-3).expand_as(apart).gather(-2, where).squeeze(-2)
        return Surface(distance, normal, velocity)


def nearest_surface(colliders: Sequence[Collider], points: Float[Tensor, "*b n 3"]) -> Surface:
    """Return the nearest of all surfaces for each point; without colliders it is infinitely far away."""
    if (laid_out := served(colliders, points)) is not None:
        from dropsim.physics.contact import surfaces

        found = Surface(*(torch.empty(shape, dtype=torch.float64) for shape in (points.shape[:-1], points.shape, points.shape)))
        num = points.shape[-2]
        out = (kernels.array(found.distance, num), kernels.array(found.normal, num, 3), kernels.array(found.velocity, num, 3))
        surfaces(kernels.array(points, num, 3), *laid_out, *out)
        return found
    if len(colliders) == 1:
        return colliders[0].surface(points)
    far = torch.full_like(points[..., 0], torch.inf)
    best = Surface(far, torch.zeros_like(points), torch.zeros_like(points))
    for collider in colliders:
        other = collider.surface(points)
        nearer = other.distance < best.distance
        best = Surface(
            torch.where(nearer, other.distance, best.distance),
            torch.where(nearer.unsqueeze(-1), other.normal, best.normal),
            torch.where(nearer.unsqueeze(-1), other.velocity, best.velocity),
        )
    return best


@functools.lru_cache(maxsize=8)
def solids(colliders: tuple[Collider, ...], batch: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Lay planes and balls out as the kernels take them, one row for everybody where they are alike; None if there are others."""
    if not all(type(collider) in (Plane, Spheres) for collider in colliders):
        return None
    planes = [
        torch.cat(_level(*_rows(p.normal, p.offset.unsqueeze(-1), p.angular_velocity, p.velocity, p.pivot)), dim=-1).unsqueeze(-2)
        for p in colliders
        if isinstance(p, Plane)
    ]
    balls = [torch.cat(_level(*_rows(s.centres, s.radii.unsqueeze(-1), s.velocities)), dim=-1) for s in colliders if isinstance(s, Spheres)]
    found = []
    for rows, size in ((planes, 13), (balls, 7)):
        if any(r.ndim > 2 for r in rows):
            rows = [r.expand(*batch, *r.shape[-2:]) for r in rows]
        every = torch.cat(rows, dim=-2) if rows else torch.empty(0, size, dtype=torch.float64)
        found.append(kernels.array(every, every.shape[-2], size) if every.numel() else np.empty((1, 0, size)))
    return found[0], found[1]


def _rows(*parts: Tensor) -> list[Tensor]:
    return [part.double() for part in parts]


def _level(*parts: Tensor) -> list[Tensor]:
    """Give all parts the same leading dimensions."""
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return [part.expand(*shape, part.shape[-1]) for part in parts]


def served(colliders: Sequence[Collider], *tensors: Tensor) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the colliders as kernels take them, or None where those do not serve; the first tensor is of joints."""
    return solids(tuple(colliders), tuple(tensors[0].shape[:-2])) if kernels.serve(*tensors) else None


GRIP_GAP = 0.003
"""A sphere this near to a surface rests on it [m]."""


def push_out(
    x: Float[Tensor, "*b n 3"],
    x_before: Float[Tensor, "*b n 3"],
    radii: Float[Tensor, "n"],
    colliders: Sequence[Collider],
    *,
    friction: float,
    h: float,
) -> tuple[Float[Tensor, "*b n 3"], Bool[Tensor, "*b n"]]:
    """Move spheres that are inside something out to its surface, with Coulomb friction on the way; also return which they were.

    The way out stands for the normal impulse: a step along the surface is undone up to friction times that way (Mueller et al. 2007). A
    sphere that rests on the surface has the impulse that bears its weight besides.
    """
    if (laid_out := served(colliders, x, x_before)) is not None:
        from dropsim.physics.contact import push_out

        out, touching = x.clone(memory_format=torch.contiguous_format), torch.zeros(x.shape[:-1], dtype=torch.bool)
        rows = (x.shape[-2], 3)
        places = (kernels.array(out, *rows), kernels.array(x_before.expand_as(x), *rows), kernels.constant(radii.double()))
        push_out(*places, *laid_out, friction, h, GRAVITY * h * h, GRIP_GAP, kernels.array(touching, rows[0]))
        return out, touching
    surface = nearest_surface(colliders, x)
    gap = surface.distance - radii.to(x)
    depth = (-gap).clamp(min=0)
    x = x + depth.unsqueeze(-1) * surface.normal
    slip = x - x_before - h * surface.velocity
    slip = slip - (slip * surface.normal).sum(-1, keepdim=True) * surface.normal
    length = slip.norm(dim=-1)
    # What a resting sphere would sink within the step if the ground did not bear it.
    impulse = depth + GRAVITY * h * h * (gap < GRIP_GAP).to(x)
    undone = torch.minimum(length, friction * impulse) / length.clamp_min(1e-12)
    return x - undone.unsqueeze(-1) * slip, gap < 0
