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


def _adult_joints(height: float) -> Float[np.ndarray, "22 3"]:
    """Rest joints of an adult of a given height [m]; y up from the sole, facing +z, left = +x.

    Heights of hip, knee, ankle and shoulder and the lengths of arm and forearm are the fractions of body height of
    Drillis & Contini (1966), as printed in Winter, Biomechanics and Motor Control of Human Movement (4th ed., fig.
    4.1): hip 0.530, knee 0.285, ankle 0.039, shoulder 0.818, upper arm 0.186, forearm 0.146. Between them, the spine's
    joints, the collar bones and the ball of the foot stand where SMPL's template has them relative to those landmarks.
    """
    left = {
        "hip": (0.052, 0.530, 0.0), "knee": (0.052, 0.285, 0.0), "ankle": (0.052, 0.039, 0.0), "foot": (0.057, 0.015, 0.073),
        "collar": (0.043, 0.800, 0.0), "shoulder": (0.108, 0.818, 0.0), "elbow": (0.294, 0.818, 0.0), "wrist": (0.440, 0.818, 0.0),
    }  # fmt: skip
    middle = {"pelvis": 0.575, "spine1": 0.630, "spine2": 0.695, "spine3": 0.750, "neck": 0.840, "head": 0.905}
    rows = []
    for name in JOINTS:
        side, _, part = name.partition("_")
        if part:
            x, y, z = left[part]
            rows.append((x if side == "left" else -x, y, z))
        else:
            rows.append((0.0, middle[name], 0.0))
    return height * np.array(rows)


def _segment_masses(body_mass: float) -> Float[np.ndarray, "22"]:
    """Split the body's mass [kg] over the joints so that each segment keeps its mass and its centre along the bone.

    Mass fractions and centres of mass (share of the way from the proximal joint) are Dempster's, as tabulated by Winter
    (table 4.1).
    """
    segments = [
        ("pelvis", "spine1", 0.142, 0.3),
        ("spine1", "spine2", 0.139, 0.5),
        ("spine2", "spine3", 0.216, 0.7),
        ("neck", "head", 0.081, 0.8),
    ]
    for side in ("left", "right"):
        segments += [
            (f"{side}_hip", f"{side}_knee", 0.100, 0.433), (f"{side}_knee", f"{side}_ankle", 0.0465, 0.433),
            (f"{side}_ankle", f"{side}_foot", 0.0145, 0.5), (f"{side}_shoulder", f"{side}_elbow", 0.028, 0.436),
            (f"{side}_elbow", f"{side}_wrist", 0.016, 0.430), (f"{side}_wrist", f"{side}_wrist", 0.006, 0.0),
        ]  # fmt: skip
    masses = np.zeros(NUM_JOINTS)
    for near, far, mass, along in segments:
        masses[joint_index(near)] += mass * (1 - along)
        masses[joint_index(far)] += mass * along
    # The collar bones carry a part of the thorax, so that no particle is massless.
    for collar in ("left_collar", "right_collar"):
        masses[joint_index(collar)] += 0.02
        masses[joint_index("spine3")] -= 0.02
    return body_mass * masses / masses.sum()


_RADII = {
    "pelvis": 0.11, "hip": 0.08, "spine1": 0.11, "knee": 0.055, "spine2": 0.11, "ankle": 0.055, "spine3": 0.11, "foot": 0.025, "neck": 0.06,
    "collar": 0.07, "head": 0.10, "shoulder": 0.06, "elbow": 0.045, "wrist": 0.045,
}  # fmt: skip
"""Collision spheres at the joints [m], sized to a clothed adult's limbs."""


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
        if not (np.isfinite(self.rest).all() and np.isfinite(self.masses).all() and np.isfinite(self.radii).all()):
            raise ValueError("a skeleton needs finite joints, masses and radii")
        if not (self.masses.min() > 0 and self.radii.min() > 0):
            raise ValueError("a skeleton needs masses and radii above zero")
        if max(np.abs(self.rest).max(), self.radii.max()) > 1e3 or self.masses.min() < 1e-6 or self.masses.max() > 1e6:
            raise ValueError("a skeleton needs joints within a kilometre, and masses from a milligram to 1000 tonnes")
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
        joints = _adult_joints(height)
        # SMPL's model origin lies 0.22 m above its pelvis; keeping that makes `trans` mean what AMASS's readers expect.
        rest = joints - joints[0] + np.array([0.0, -0.22, 0.03])
        radii = np.array([_RADII[name.partition("_")[2] or name] for name in JOINTS])
        return cls(rest, _segment_masses(body_mass), radii * height / 1.70)

    @classmethod
    def from_smpl(
        cls, path: str | Path, *, betas: Float[np.ndarray, "k"] | None = None, body_mass: float | None = 70.0
    ) -> "Skeleton":
        """Return the bones of a user's own SMPL, SMPL+H or SMPL-X file (npz or pkl), with an adult's masses and spheres in proportion.

        `betas` are a person's shape; without them it is the template body. For body_mass=None the mass follows from the
        height. A pickle is read without running what it asks for.
        """
        return cls.adult().with_bones(read_rest_joints(Path(path), betas), body_mass=body_mass)

    def with_mass(self, body_mass: float) -> "Skeleton":
        """Return the same body with another mass [kg]."""
        return self.with_bones(self.rest, body_mass=body_mass)

    def with_bones(self, rest: Float[np.ndarray, "22 3"], *, body_mass: float | None = None) -> "Skeleton":
        """Return the same build with other rest joints [m]: spheres in proportion to the height, the mass [kg] to its square unless given.

        People of all heights have about the same body mass index (Quetelet's law).
        """
        # From the balls of the feet to the head, both in the T-pose.
        span, own = (float(r[15, 1] - r[[10, 11], 1].mean()) for r in (rest, self.rest))
        mass = self.masses.sum() * (span / own) ** 2 if body_mass is None else body_mass
        return type(self)(rest, mass * self.masses / self.masses.sum(), self.radii * span / own)

    def with_unit_masses(self) -> "Skeleton":
        """Return the same body with its mass spread evenly over the particles: the paper's M = I, in kilograms."""
        return type(self)(self.rest, np.full(NUM_JOINTS, self.masses.sum() / NUM_JOINTS), self.radii)

    @property
    def height(self) -> float:
        """Of the person [m]: an adult's, times the ratio of the ways from the balls of the feet to the head in the T-pose."""
        span, usual = (float(r[15, 1] - r[[10, 11], 1].mean()) for r in (self.rest, _adult_joints(1.0)))
        return span / usual

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
        """Return world joints [m] from local rotations (the root's is its world orientation) and the pelvis position [m]."""
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
    """Return an array with all dimensions but the trailing ones as one, contiguous, as kernels take it: a view where that can be."""
    lead = values.ndim - trailing
    # A read-only array, such as a broadcast one, would be another type to numba, and every kernel would be compiled
    # again for it.
    if not (values.flags.c_contiguous and values.flags.writeable):
        values = values.copy()
    # Not -1: a trailing dimension may be empty, such as the memory of a prior that has none.
    return values.reshape(math.prod(values.shape[:lead]), *values.shape[lead:])
