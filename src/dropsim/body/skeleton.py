"""The body: its proportions and masses, forward and swing-twist inverse kinematics."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dropsim.body import kinematics
from dropsim.body.capsules import capsule_radii
from dropsim.body.joints import CHILDREN, JOINTS, LEAVES, MIRROR, NUM_JOINTS, PARENTS, joint_index
from dropsim.body.smpl import read_rest_joints

__all__ = ["BodyArrays", "Skeleton", "flat", "joint_index", "mirrored_rotations"]
__all__ += ["CHILDREN", "JOINTS", "LEAVES", "MIRROR", "NUM_JOINTS", "PARENTS"]
_FLIP = np.array([-1.0, 1.0, 1.0])


def mirrored_rotations(q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b 22 3 3"]:
    """Swap left and right of local rotations, by reflection in the plane x = 0."""
    return (_FLIP[:, None] * q * _FLIP)[..., MIRROR, :, :]


_ADULT = {
    "pelvis": (0.0, 0.575, 0.0, 0.11),
    "spine1": (0.0, 0.630, 0.0, 0.11),
    "spine2": (0.0, 0.695, 0.0, 0.11),
    "spine3": (0.0, 0.750, 0.0, 0.11),
    "neck": (0.0, 0.840, 0.0, 0.06),
    "head": (0.0, 0.905, 0.0, 0.10),
    "hip": (0.052, 0.530, 0.0, 0.08),
    "knee": (0.052, 0.285, 0.0, 0.055),
    "ankle": (0.052, 0.039, 0.0, 0.055),
    "foot": (0.057, 0.015, 0.073, 0.025),
    "collar": (0.043, 0.800, 0.0, 0.07),
    "shoulder": (0.108, 0.818, 0.0, 0.06),
    "elbow": (0.294, 0.818, 0.0, 0.045),
    "wrist": (0.440, 0.818, 0.0, 0.045),
}
"""Places of an adult's joints over the height, and radii of collision spheres, sized to a clothed adult's limbs [m].

y is up from the sole, left = +x. Heights of hip, knee, ankle and shoulder and the lengths of arm and forearm are the
fractions of body height of Drillis & Contini (1966), as printed in Winter, Biomechanics and Motor Control of Human
Movement (4th ed., fig. 4.1). Between them, the spine's joints, the collar bones and the ball of the foot stand where
SMPL's template has them relative to those landmarks.
"""
_ROWS = np.array([_ADULT[name.rpartition("_")[2]] for name in JOINTS])
_ADULT_JOINTS, _ADULT_RADII = _ROWS[:, :3], _ROWS[:, 3]
_ADULT_JOINTS[[name.startswith("right") for name in JOINTS], 0] *= -1
_ADULT_HEIGHT = 1.70
"""Height that the radii belong to [m]."""
_TRUNK = (("pelvis", "spine1", 0.142, 0.3), ("spine1", "spine2", 0.139, 0.5), ("spine2", "spine3", 0.216, 0.7))
_LEG = (("hip", "knee", 0.100, 0.433), ("knee", "ankle", 0.0465, 0.433), ("ankle", "foot", 0.0145, 0.5))
_ARM = (("shoulder", "elbow", 0.028, 0.436), ("elbow", "wrist", 0.016, 0.430), ("wrist", "wrist", 0.006, 0.0))
"""Ends of each segment, its share of the body's mass, and its centre as a share of the way from the first end.

These are Dempster's, as tabulated by Winter (table 4.1)."""


def _segment_masses(body_mass: float) -> Float[np.ndarray, "22"]:
    """Split the body's mass [kg] over the joints so that each segment keeps its mass and its centre along the bone."""
    segments = [*_TRUNK, ("neck", "head", 0.081, 0.8)]
    for side in ("left", "right"):
        segments += [(f"{side}_{near}", f"{side}_{far}", mass, along) for near, far, mass, along in (*_LEG, *_ARM)]
    masses = np.zeros(NUM_JOINTS)
    for near, far, mass, along in segments:
        masses[joint_index(near)] += mass * (1 - along)
        masses[joint_index(far)] += mass * along
    # The collar bones carry a part of the thorax, so that no particle is massless.
    for collar in ("left_collar", "right_collar"):
        masses[joint_index(collar)] += 0.02
        masses[joint_index("spine3")] -= 0.02
    return body_mass * masses / masses.sum()


def _span(rest: Float[np.ndarray, "22 3"]) -> float:
    """Return the way from the balls of the feet up to the head in the T-pose [m]."""
    return float(rest[15, 1] - rest[[10, 11], 1].mean())


class BodyArrays(NamedTuple):
    """A body as kernels take it."""

    offsets: np.ndarray
    lengths: np.ndarray
    masses: np.ndarray
    radii: np.ndarray
    mobility: np.ndarray
    """Inverse masses, relative to the mean mass."""
    capsules: np.ndarray
    """Radii of the capsules at their two ends (14 2)."""


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A person's bones in the rest pose, with masses and collision spheres at the joints."""

    rest: Float[np.ndarray, "22 3"]
    """Rest joints [m]; SMPL's T-pose frame: y up, facing +z, left = +x. The first row is SMPL's J0: pelvis = trans +
    rest[0]."""
    masses: Float[np.ndarray, "22"]
    """Particle masses [kg]."""
    radii: Float[np.ndarray, "22"]
    """Collision spheres [m]."""
    offsets: Float[np.ndarray, "22 3"] = field(init=False, repr=False)
    """Rest vector from the parent [m]; zero for the root."""
    lengths: Float[np.ndarray, "22"] = field(init=False, repr=False)
    """Bone length from the parent [m]; zero for the root."""
    arrays: BodyArrays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("rest", "masses", "radii"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        for name, low, high in (("rest", -1e3, 1e3), ("masses", 1e-6, 1e6), ("radii", 1e-9, 1e3)):
            values = getattr(self, name)
            if not ((low <= values) & (values <= high)).all():
                raise ValueError(f"invalid {name} of a skeleton: expected {low:g} to {high:g} [m or kg] for each joint")
        offsets = self.rest - self.rest[np.maximum(PARENTS, 0)]
        lengths = np.linalg.norm(offsets, axis=-1)
        if not lengths[1:].min() > 0:
            joint = JOINTS[1 + int(lengths[1:].argmin())]
            raise ValueError(f"the bone to {joint} has no length: two joints of the skeleton are at one place")
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "lengths", lengths)
        mobility, capsules = self.masses.mean() / self.masses, capsule_radii(self.height)
        arrays = BodyArrays(offsets, lengths, self.masses, self.radii, mobility, capsules)
        object.__setattr__(self, "arrays", arrays)

    @classmethod
    def adult(cls, *, height: float = 1.70, body_mass: float = 70.0) -> "Skeleton":
        """Return an adult of average proportions, with anthropometric masses that sum to body_mass [kg]."""
        if not (0.3 <= height <= 3.0 and 1.0 <= body_mass <= 1000.0):
            raise ValueError(f"an adult of {height:g} m and {body_mass:g} kg: give 0.3 to 3 m and 1 to 1000 kg")
        joints = height * _ADULT_JOINTS
        # SMPL's model origin lies 0.22 m above its pelvis; keeping that makes `trans` mean what AMASS's readers expect.
        rest = joints - joints[0] + np.array([0.0, -0.22, 0.03])
        return cls(rest, _segment_masses(body_mass), _ADULT_RADII * height / _ADULT_HEIGHT)

    @classmethod
    def from_smpl(
        cls, path: str | Path, *, betas: Float[np.ndarray, "k"] | None = None, body_mass: float | None = 70.0
    ) -> "Skeleton":
        """Return the bones of a user's own SMPL, SMPL+H or SMPL-X file (npz or pkl), with an adult's build.

        `betas` are a person's shape; without them it is the template body. For body_mass=None the mass follows from the
        height. A pickle is read without running what it asks for.
        """
        return cls.adult().with_bones(read_rest_joints(Path(path), betas), body_mass=body_mass)

    def with_mass(self, body_mass: float) -> "Skeleton":
        """Return the same body with another mass [kg]."""
        return self.with_bones(self.rest, body_mass=body_mass)

    def with_bones(self, rest: Float[np.ndarray, "22 3"], *, body_mass: float | None = None) -> "Skeleton":
        """Return the same build with other rest joints [m]: spheres in proportion to the height.

        The mass [kg] is in proportion to its square unless given: people of all heights have about the same body mass
        index (Quetelet's law).
        """
        span, before = _span(rest), _span(self.rest)
        mass = self.masses.sum() * (span / before) ** 2 if body_mass is None else body_mass
        return type(self)(rest, mass * self.masses / self.masses.sum(), self.radii * span / before)

    def with_unit_masses(self) -> "Skeleton":
        """Return the same body with its mass spread evenly over the particles: the paper's M = I, in kilograms."""
        return type(self)(self.rest, np.full(NUM_JOINTS, self.masses.sum() / NUM_JOINTS), self.radii)

    @property
    def height(self) -> float:
        """Height of the person [m]: as an adult's of the same span."""
        return _span(self.rest) / _span(_ADULT_JOINTS)

    @property
    def leg_length(self) -> float:
        """Hip to ankle along the bones [m]."""
        return float(self.lengths[4] + self.lengths[7])

    @property
    def standing_height(self) -> float:
        """Height of the pelvis above the sole in the rest pose [m]."""
        return float(self.rest[0, 1] - (self.rest[:, 1] - self.radii).min())

    def global_rotations(self, q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b 22 3 3"]:
        """Chain local rotations from the root outwards."""
        world = np.empty(q.shape)
        joints = np.zeros(q.shape[:-1])
        root = np.zeros((math.prod(q.shape[:-3]), 3))
        kinematics.forward(flat(q, 3), root, self.offsets, flat(joints, 2), flat(world, 3))
        return world

    def forward(
        self, q: Float[np.ndarray, "*#b 22 3 3"], root: Float[np.ndarray, "*#b 3"]
    ) -> Float[np.ndarray, "*b 22 3"]:
        """Return world joints [m] from local rotations, the root's in the world, and the pelvis position [m]."""
        q = np.broadcast_to(q, (*np.broadcast_shapes(q.shape[:-3], root.shape[:-1]), NUM_JOINTS, 3, 3))
        joints, root = np.empty(q.shape[:-1]), np.broadcast_to(root, (*q.shape[:-3], 3))
        kinematics.forward(flat(q, 3), flat(root, 1), self.offsets, flat(joints, 2), kinematics.NO_ROTATIONS)
        return joints

    def inverse(
        self, joints: Float[np.ndarray, "*b 22 3"], twist_from: Float[np.ndarray, "*#b 22 3 3"]
    ) -> Float[np.ndarray, "*b 22 3 3"]:
        """Return local rotations whose bones point along the given joints (HybrIK's swing-twist inverse kinematics).

        Swings come from the bone directions, twists and leaf rotations from another pose's local rotations; the joints
        with several children (pelvis, spine3) take the least-squares rotation over them. Lengths are ignored, so
        stretched bones do no harm.
        """
        q, twists = np.empty((*joints.shape, 3)), self.twists(flat(np.broadcast_to(twist_from, (*joints.shape, 3)), 3))
        kinematics.inverse(flat(joints, 2), twists, self.offsets, flat(q, 3))
        return q

    def follow(
        self,
        joints: Float[np.ndarray, "n 22 3"],
        twist_from: Float[np.ndarray, "n 22 3 3"],
        last: Float[np.ndarray, "n 22 3 3"],
        most: float,
    ) -> Float[np.ndarray, "n 22 3 3"]:
        """Return local rotations like `inverse`, of bodies that had the rotations `last` a frame before: no bone flips.

        Each bone goes the shortest way to its new direction, and turns about itself toward the other pose's twist by at
        most an angle [rad]. Knees, ankles and elbows are hinges: if they are bent, thighs, shins and upper arms are
        twisted so that shins bend back, feet and forearms forward, to within what recorded ones deviate.
        """
        q = np.empty((*joints.shape, 3))
        kinematics.follow(joints, self.twists(twist_from), last, self.offsets, most, q)
        return q

    def twists(self, q: Float[np.ndarray, "n 22 3 3"]) -> Float[np.ndarray, "n 22 3 3"]:
        """Return local rotations without the swings of their bones: what inverse kinematics takes from another pose."""
        out = np.empty(q.shape)
        kinematics.twists(q, self.offsets, out)
        return out

    def bone_error(self, joints: Float[np.ndarray, "*b 22 3"]) -> Float[np.ndarray, "*b"]:
        """Largest relative error of a bone's length."""
        lengths = np.linalg.norm(joints - joints[..., np.maximum(PARENTS, 0), :], axis=-1)
        return np.asarray((np.abs(lengths - self.lengths)[..., 1:] / self.lengths[1:]).max(-1))

    def centre_of_mass(self, joints: Float[np.ndarray, "*b 22 3"]) -> Float[np.ndarray, "*b 3"]:
        """Mass-weighted mean of the joints [m]."""
        return (self.masses[:, None] * joints).sum(-2) / self.masses.sum()


def flat(values: np.ndarray, trailing: int) -> np.ndarray:
    """Return an array with all dimensions but the trailing ones as one, contiguous, and a view where possible."""
    lead = values.ndim - trailing
    # A read-only array, such as a broadcast one, would be another type to numba, and every kernel would be compiled
    # again for it.
    if not (values.flags.c_contiguous and values.flags.writeable):
        values = values.copy()
    # Not -1: a trailing dimension may be empty, such as the memory of a prior that has none.
    return values.reshape(math.prod(values.shape[:lead]), *values.shape[lead:])
