"""Energies: the ragdoll's own (rigid bones, contact, range of motion), the prior's, and those that edit a motion."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.joints import NUM_JOINTS, PARENTS, joint_index
from dropsim.body.kinematics import inverse
from dropsim.body.skeleton import Skeleton, flat
from dropsim.compute.jit import kernel
from dropsim.physics.contact import contact_targets
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.priors.pose import PosePrior

Array = Any
"""numba knows the types."""
BRACES = ((1, 2), (1, 3), (2, 3), (12, 13), (12, 14), (13, 14))
"""Pairs that hold the children of the pelvis and of the chest in shape, so that these two are blocks and not loose
hubs."""
_RODS = np.array((*((c, PARENTS[c]) for c in range(1, NUM_JOINTS)), *BRACES))


def _differences(pairs: Int[np.ndarray, "m 2"]) -> Float[np.ndarray, "m 22"]:
    eye = np.eye(NUM_JOINTS)
    return eye[pairs[:, 0]] - eye[pairs[:, 1]]


@dataclass(frozen=True, eq=False)
class Rigidity(Energy):
    """E_1: bones as strong springs (Liu et al. 2013); p is each rod's direction at its rest length."""

    weight: float = 60.0
    braces: bool = True
    """Also hold pelvis and chest in shape."""
    name: str = field(default="rigidity", init=False)
    always: bool = field(default=True, init=False)

    @property
    def _rods(self) -> Int[np.ndarray, "m 2"]:
        return _RODS if self.braces else _RODS[: -len(BRACES)]

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return _differences(self._rods)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        (a, b), rest = self._rods.T, frame.skeleton.rest
        return Target(_scaled(x[:, a] - x[:, b], np.linalg.norm(rest[a] - rest[b], axis=-1)))


def _scaled(rods: Float[np.ndarray, "n m 3"], lengths: Float[np.ndarray, "*l"]) -> Float[np.ndarray, "n m 3"]:
    """Return rods along the same directions with some lengths [m]."""
    return rods * (lengths / np.maximum(np.linalg.norm(rods, axis=-1), 1e-9))[..., None]


@dataclass(frozen=True, eq=False)
class Contact(Energy):
    """E_2: particles that would be inside something stay where they were along it and come out to its surface.

    Static friction, as in the paper: the target is x_t carried along by the surface, moved along the normal until it
    touches. What friction cannot hold slides: a step along the surface is undone by at most friction times the depth
    and g h^2.
    """

    weight: float = 3.0
    friction: float = 0.8
    """Friction coefficient of surfaces that set none; if infinite, everything sticks."""
    name: str = field(default="contact", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return np.eye(NUM_JOINTS)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        p, active = np.empty(x.shape), np.empty(x.shape[:-1], dtype=np.bool_)
        contact_targets(x, frame.x, frame.skeleton.radii, frame.solids, self.friction, frame.h, p, active)
        return Target(p, active)


@dataclass(frozen=True, eq=False)
class RangeOfMotion(Energy):
    """E_3: poses that no person can take are drawn back to the nearest natural one, eq. (15), codes within the limit.

    A stop without bounce, like that of a joint at its end. Joints go back by the share by which the code is too long,
    which is zero at the limit, and a joint that already goes back as fast is not pulled: the stop takes outward
    velocity away and throws nothing back.
    """

    pose: PosePrior
    weight: float = 3.0
    return_time: float = 0.13
    """Time in which joints go back by that share [s]; in one frame, limbs would be thrown."""
    gentle: bool = True
    """False draws the whole body to the natural pose at once, as in the paper."""
    name: str = field(default="range_of_motion", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        """Take all particles about their middle: a pose has no place, so this energy moves nobody as a whole."""
        return np.eye(NUM_JOINTS) - (1.0 / NUM_JOINTS if self.gentle else 0.0)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        q, p, active = np.empty((*x.shape, 3)), np.zeros(x.shape), np.zeros(x.shape[:-1], dtype=np.bool_)
        inverse(x, frame.twists, frame.skeleton.offsets, q)
        norm = self.pose.norm(q)
        out = np.flatnonzero(norm > self.pose.limit)
        if not len(out):
            return Target(p, active)
        natural = frame.skeleton.forward(self.pose.scaled_back(q[out]), x[out, 0])
        p[out], active[out] = natural, True
        if self.gentle:
            # All is turned to lie on the body: a pose has no orientation. Progress since the step's start counts.
            here = x[out] - x[out].mean(-2, keepdims=True)
            way, done = _turned_onto(natural, here) - here, here - _turned_onto(frame.x[out], here)
            share = (1 - self.pose.limit / norm[out]) * min(1.0, frame.h / self.return_time)
            progress = (way * done).sum(-1) / np.maximum((way * way).sum(-1), 1e-18)
            p[out] = _turned_onto(here + np.clip(share[:, None] - progress, 0.0, 1.0)[..., None] * way, here)
        return Target(p, active)


def _turned_onto(points: Float[np.ndarray, "n 22 3"], body: Float[np.ndarray, "n 22 3"]) -> Float[np.ndarray, "n 22 3"]:
    """Return points about their middle, turned to be nearest to others in least squares: then pulls have no moment."""
    points = points - points.mean(-2, keepdims=True)
    U, _, V = np.linalg.svd(points.swapaxes(-1, -2) @ body)
    U[..., -1] *= np.sign(np.linalg.det(U @ V))[..., None]
    return points @ (U @ V)


@dataclass(frozen=True, eq=False)
class Kinematic(Energy):
    """E_kin, eq. (10): p is the prior's candidate nearest to x."""

    weight: float = 3.0
    name: str = field(default="kinematic", init=False)
    always: bool = field(default=True, init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return np.eye(NUM_JOINTS)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        return Target(frame.candidates[np.arange(len(x)), nearest_candidate(frame.candidates, x)])


def nearest_candidate(
    candidates: Float[np.ndarray, "*b k 22 3"], x: Float[np.ndarray, "*b 22 3"]
) -> Int[np.ndarray, "*b"]:
    """Return the index of the candidate nearest to x in joint space, the first of equals."""
    index = np.empty(x.shape[:-2], dtype=np.int64)
    _nearest(flat(candidates, 3), flat(x, 2), index.reshape(-1))
    return index


@kernel
def _nearest(candidates: Array, x: Array, index: Array) -> None:
    for i in range(len(x)):
        best = np.inf
        index[i] = 0
        for k in range(candidates.shape[1]):
            total = 0.0
            for j in range(NUM_JOINTS):
                for c in range(3):
                    apart = candidates[i, k, j, c] - x[i, j, c]
                    total += apart * apart
                if total >= best:
                    break
            if total < best:
                best, index[i] = total, k


def _per_person(values: Float[np.ndarray, "*b c"]) -> Float[np.ndarray, "n c"]:
    """Return values as n or 1 rows."""
    return values.reshape(-1, values.shape[-1])


@dataclass(frozen=True, eq=False)
class CentreOfMassVelocity(Energy):
    """E_com, eq. (16): the centre of mass moves at a target velocity, horizontally; the vertical is left alone."""

    velocity: Float[np.ndarray, "*b 2"]
    """Horizontal target [m/s]."""
    weight: float = 1.0
    name: str = field(default="com_velocity", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        """Return one row: the particles' shares of the body's mass, scaled so that the weight acts on all of it."""
        return NUM_JOINTS**0.5 * (skeleton.masses / skeleton.masses.sum())[None]

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        goal = frame.skeleton.centre_of_mass(x)
        goal[:, :2] = frame.skeleton.centre_of_mass(frame.x)[:, :2] + frame.h * _per_person(self.velocity)
        return Target(NUM_JOINTS**0.5 * goal[:, None])


@dataclass(frozen=True, eq=False)
class Pin(Energy):
    """A joint held at a point."""

    joint: str
    target: Float[np.ndarray, "*b 3"]
    """World [m]."""
    weight: float = 100.0
    name: str = field(default="pin", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return np.eye(NUM_JOINTS)[[joint_index(self.joint)]]

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        return Target(np.broadcast_to(_per_person(self.target)[:, None], (len(x), 1, 3)))


@dataclass(frozen=True, eq=False)
class Spring(Energy):
    """Two joints kept at a distance: a stiff knee is a spring from hip to ankle at the length of the straight leg."""

    joint_a: str
    joint_b: str
    length: float | Float[np.ndarray, "*b"]
    """[m]"""
    weight: float = 30.0
    name: str = field(default="spring", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return _differences(np.array([[joint_index(self.joint_a), joint_index(self.joint_b)]]))

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        rod = x[:, joint_index(self.joint_a)] - x[:, joint_index(self.joint_b)]
        return Target(_scaled(rod[:, None], np.asarray(self.length).reshape(-1, 1)))


@dataclass(frozen=True, eq=False)
class CollinearEnergy(Energy):
    """A joint on the line between two others, at its place in the straight limb: a knee between hip and ankle."""

    joint_a: str
    middle: str
    joint_b: str
    weight: float = 30.0
    name: str = field(default="collinear", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        a, m, b = (joint_index(name) for name in (self.joint_a, self.middle, self.joint_b))
        near, far = (np.linalg.norm(skeleton.rest[m] - skeleton.rest[end]) for end in (a, b))
        row = np.zeros((1, NUM_JOINTS))
        row[0, m], row[0, a], row[0, b] = 1.0, -far / (near + far), -near / (near + far)
        return row

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        return Target(np.zeros((len(x), 1, 3)))


@dataclass(frozen=True, eq=False)
class MaskedEnergy(Energy):
    """An energy for some of the people only."""

    energy: Energy
    people: Bool[np.ndarray, "*b"]
    name: str = field(init=False)
    weight: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.energy.name)
        object.__setattr__(self, "weight", self.energy.weight)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return self.energy.matrix(skeleton)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        target = self.energy.project(x, frame)
        rows = np.broadcast_to(self.people.reshape(-1, 1), (len(x), target.p.shape[-2]))
        return Target(target.p, rows if target.active is None else rows & target.active)
