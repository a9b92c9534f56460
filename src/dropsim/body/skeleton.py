"""The body: SMPL's first 22 joints, its proportions and masses, forward and swing-twist inverse kinematics."""

import functools
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import best_turn, swing, twist_about
from dropsim.body.smpl import read_rest_joints
from dropsim.compute import arrays as kernels
from dropsim.files.names import suggestion

JOINTS = (
    "pelvis", "left_hip", "right_hip", "spine1", "left_knee", "right_knee", "spine2", "left_ankle", "right_ankle", "spine3",
    "left_foot", "right_foot", "neck", "left_collar", "right_collar", "head", "left_shoulder", "right_shoulder",
    "left_elbow", "right_elbow", "left_wrist", "right_wrist",
)  # fmt: skip
"""Joint names in SMPL's order."""

PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)
"""Index of each joint's parent; -1 for the root."""

NUM_JOINTS = len(JOINTS)
CHILDREN = tuple(tuple(c for c in range(NUM_JOINTS) if PARENTS[c] == j) for j in range(NUM_JOINTS))
LEAVES = tuple(j for j in range(NUM_JOINTS) if not CHILDREN[j])
MIRROR = tuple(JOINTS.index(name.replace("left", "right") if name.startswith("left") else name.replace("right", "left")) for name in JOINTS)
"""Index of each joint's counterpart on the other side."""


def _depth(joint: int) -> int:
    return 0 if PARENTS[joint] < 0 else 1 + _depth(PARENTS[joint])


LEVELS = tuple(tuple(j for j in range(NUM_JOINTS) if _depth(j) == d) for d in range(1 + max(map(_depth, range(NUM_JOINTS)))))
"""Joints by distance from the root, so that kinematics runs over nine levels instead of 22 joints."""

_CHEST = JOINTS.index("spine3")
_LEVEL_ORDER = tuple(j for level in LEVELS for j in level)
_FROM_LEVEL_ORDER = torch.tensor([_LEVEL_ORDER.index(j) for j in range(NUM_JOINTS)])
_CHAIN = tuple((torch.tensor([above.index(PARENTS[j]) for j in level]), torch.tensor(level)) for above, level in itertools.pairwise(LEVELS))
"""For every level below the root: the places of the parents in the level above, and the joints."""


def mirrored_rotations(q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
    """Swap left and right of local rotations, by reflection in the plane x = 0."""
    flip = torch.tensor([-1.0, 1.0, 1.0]).to(q)
    return (flip[:, None] * q * flip)[..., MIRROR, :, :]


def joint_index(name: str) -> int:
    """Return the index of a joint, or raise with the names that exist."""
    if name not in JOINTS:
        raise ValueError(f"there is no joint {name!r}: {suggestion(name, JOINTS)}")
    return JOINTS.index(name)


def _adult_joints(height: float) -> Float[Tensor, "22 3"]:
    """Rest joints of an adult of a given height [m]; y up from the sole, facing +z, left = +x.

    Heights of hip, knee, ankle and shoulder and the lengths of arm and forearm are the fractions of body height of Drillis & Contini
    (1966), as printed in Winter, Biomechanics and Motor Control of Human Movement (4th ed., fig. 4.1): hip 0.530, knee 0.285, ankle 0.039,
    shoulder 0.818, upper arm 0.186, forearm 0.146. Between them, the spine's joints, the collar bones and the ball of the foot stand where
    SMPL's template has them relative to those landmarks.
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
    return height * torch.tensor(rows, dtype=torch.float64)


def _segment_masses(body_mass: float) -> Float[Tensor, "22"]:
    """Split the body's mass [kg] over the joints so that each segment keeps its mass and its centre along the bone.

    Mass fractions and centres of mass (share of the way from the proximal joint) are Dempster's, as tabulated by Winter (table 4.1).
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
    masses = torch.zeros(NUM_JOINTS, dtype=torch.float64)
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


@dataclass(frozen=True, eq=False)
class SkeletonArrays:
    """A skeleton's numbers in double precision."""

    rest: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    masses: np.ndarray
    radii: np.ndarray
    mobility: np.ndarray
    """Inverse masses, beside that of the mean."""


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A person's bones in the rest pose, with masses and collision spheres at the joints."""

    rest: Float[Tensor, "22 3"]
    """Rest joints [m]; SMPL's T-pose frame: y up, facing +z, left = +x. The first row is SMPL's J0: pelvis = trans + rest[0]."""
    masses: Float[Tensor, "22"]
    """Particle masses [kg]."""
    radii: Float[Tensor, "22"]
    """Collision spheres [m]."""
    offsets: Float[Tensor, "22 3"] = field(init=False, repr=False)
    """Rest vector from the parent [m]; zero for the root."""
    lengths: Float[Tensor, "22"] = field(init=False, repr=False)
    """Bone length from the parent [m]; zero for the root."""

    def __post_init__(self) -> None:
        offsets = self.rest - self.rest[[max(p, 0) for p in PARENTS]]
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "lengths", offsets.norm(dim=-1))

    @classmethod
    def adult(cls, *, height: float = 1.70, body_mass: float = 70.0) -> "Skeleton":
        """Return an adult of average proportions, with anthropometric masses that sum to body_mass [kg]."""
        joints = _adult_joints(height)
        # SMPL's model origin lies 0.22 m above its pelvis; keeping that makes `trans` mean what AMASS's readers expect.
        rest = joints - joints[0] + torch.tensor([0.0, -0.22, 0.03], dtype=torch.float64)
        radii = torch.tensor([_RADII[name.partition("_")[2] or name] for name in JOINTS], dtype=torch.float64)
        return cls(rest, _segment_masses(body_mass), radii * height / 1.70)

    @classmethod
    def from_smpl(cls, path: Path, *, body_mass: float = 70.0) -> "Skeleton":
        """Return the bones of a user's own SMPL, SMPL+H or SMPL-X file (npz or pkl), with an adult's masses and spheres in proportion.

        A pickle is read without running what it asks for.
        """
        rest = torch.from_numpy(read_rest_joints(path))
        adult = cls.adult(body_mass=body_mass)
        # From the balls of the feet to the head, both in the T-pose.
        span, adult_span = (float(r[15, 1] - r[[10, 11], 1].mean()) for r in (rest, adult.rest))
        return cls(rest, adult.masses, adult.radii * span / adult_span)

    def with_unit_masses(self) -> "Skeleton":
        """Return the same body with its mass spread evenly over the particles: the paper's M = I, in kilograms."""
        return type(self)(self.rest, torch.full_like(self.masses, float(self.masses.sum()) / NUM_JOINTS), self.radii)

    def to(self, target: torch.dtype | torch.device | str) -> "Skeleton":
        """Return the skeleton in another dtype or on another device."""
        return type(self)(self.rest.to(target), self.masses.to(target), self.radii.to(target))

    @property
    def leg_length(self) -> float:
        """Hip to ankle along the bones [m]."""
        return float(self.lengths[4] + self.lengths[7])

    @property
    def standing_height(self) -> float:
        """Height of the pelvis above the sole in the rest pose [m]."""
        return float(self.rest[0, 1] - (self.rest[:, 1] - self.radii).min())

    def global_rotations(self, q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
        """Chain local rotations from the root outwards."""
        levels = [q[..., :1, :, :]]
        for parents, joints in _CHAIN:
            levels.append(levels[-1][..., parents, :, :] @ q[..., joints, :, :])
        return torch.cat(levels, dim=-3)[..., _FROM_LEVEL_ORDER, :, :]

    def forward(self, q: Float[Tensor, "*b 22 3 3"], root: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 22 3"]:
        """Return world joints [m] from local rotations (the root's is its world orientation) and the pelvis position [m]."""
        if kernels.serve(q, root):
            return self._forward_compiled(q, root)
        R_world = self.global_rotations(q)
        bones = (R_world[..., _PARENT_OR_ROOT, :, :] @ self.offsets.to(q).unsqueeze(-1)).squeeze(-1)
        levels = [root.unsqueeze(-2)]
        for parents, joints in _CHAIN:
            levels.append(levels[-1][..., parents, :] + bones[..., joints, :])
        return torch.cat(levels, dim=-2)[..., _FROM_LEVEL_ORDER, :]

    def inverse(self, joints: Float[Tensor, "*b 22 3"], twist_from: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
        """Return local rotations whose bones point along the given joints (HybrIK's swing-twist inverse kinematics).

        Swings come from the bone directions, twists and leaf rotations from another pose's local rotations; the joints with several
        children (pelvis, spine3) take the least-squares rotation over them. Lengths are ignored, so stretched bones do no harm.
        """
        if kernels.serve(joints, twist_from):
            return self._inverse_compiled(joints, twist_from)
        offsets = self.offsets.to(joints)
        bones = (joints - joints[..., _PARENT_OR_ROOT, :]).unsqueeze(-1)
        twists = twist_about(twist_from[..., _SINGLES, :, :], offsets[_SINGLE_CHILDREN])
        blocks = best_turn(offsets[_BLOCK_CHILDREN], bones[..., _BLOCK_CHILDREN, :, 0])
        world = blocks[..., :1, :, :]
        parts = [world]
        for level in _IK_LEVELS:
            R_parents = world[..., level.parents, :, :]
            R_back = R_parents.transpose(-1, -2)
            directions = (R_back[..., level.single_places, :, :] @ bones[..., level.children, :, :]).squeeze(-1)
            q = swing(offsets[level.children], directions) @ twists[..., level.twists, :, :]
            if level.has_chest:
                q = torch.cat((q, R_back[..., -1:, :, :] @ blocks[..., 1:, :, :]), dim=-3)
            world = R_parents @ q
            parts.append(q)
        parts.append(twist_from[..., _LEAVES, :, :])
        return torch.cat(parts, dim=-3)[..., _FROM_IK_ORDER, :, :]

    def _forward_compiled(self, q: Float[Tensor, "*b 22 3 3"], root: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 22 3"]:
        from dropsim.body.kinematics import forward

        joints = torch.empty(*q.shape[:-3], NUM_JOINTS, 3, dtype=torch.float64)
        rows = (NUM_JOINTS, 3, 3)
        forward(
            kernels.array(q, *rows), kernels.array(root.expand(*q.shape[:-3], 3), 3), self.arrays.offsets, kernels.array(joints, *rows[:-1])
        )
        return joints

    def _inverse_compiled(self, joints: Float[Tensor, "*b 22 3"], twist_from: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
        from dropsim.body.kinematics import inverse

        q, rows = torch.empty(*joints.shape, 3, dtype=torch.float64), (NUM_JOINTS, 3, 3)
        twists = kernels.array(twist_from.expand_as(q), *rows)
        inverse(kernels.array(joints, *rows[:-1]), twists, self.arrays.offsets, kernels.array(q, *rows))
        return q

    @functools.cached_property
    def arrays(self) -> "SkeletonArrays":
        """The body as the kernels take it."""
        parts = (self.rest, self.offsets, self.lengths, self.masses, self.radii, self.masses.mean() / self.masses)
        return SkeletonArrays(*(kernels.constant(part.double()) for part in parts))

    def bone_error(self, joints: Float[Tensor, "*b 22 3"]) -> Float[Tensor, "*b"]:
        """Largest relative error of a bone's length."""
        if kernels.serve(joints):
            from dropsim.physics import linear

            out = torch.empty(joints.shape[:-2], dtype=torch.float64)
            linear.bone_error(kernels.array(joints, NUM_JOINTS, 3), self.arrays.lengths, kernels.array(out))
            return out
        lengths = (joints - joints[..., _PARENT_OR_ROOT, :]).norm(dim=-1)
        target = self.lengths.to(joints)
        return ((lengths - target).abs()[..., 1:] / target[1:]).amax(dim=-1)

    def centre_of_mass(self, joints: Float[Tensor, "*b 22 3"]) -> Float[Tensor, "*b 3"]:
        """Mass-weighted mean of the joints [m]."""
        masses = self.masses.to(joints)
        return (masses.unsqueeze(-1) * joints).sum(-2) / masses.sum()


_PARENT_OR_ROOT = torch.tensor([max(p, 0) for p in PARENTS])
_BLOCK_CHILDREN = torch.tensor((CHILDREN[0], CHILDREN[_CHEST]))
"""The joints that hang on the pelvis and on the chest: three each."""
_LEAVES = torch.tensor(LEAVES)


@dataclass(frozen=True, eq=False)
class _InverseLevel:
    """Joints that inverse kinematics solves together: those with one child at one depth, and the chest last where it is among them."""

    parents: Tensor
    """Place of each joint's parent among the joints of the level above."""
    single_places: Tensor
    """Places in this level of the joints with one child."""
    children: Tensor
    """The one child of each of those."""
    twists: Tensor
    """Place of each of those among all joints with one child."""
    has_chest: bool


def _inverse_levels() -> tuple[tuple[int, ...], tuple[_InverseLevel, ...], tuple[int, ...]]:
    """Return the joints with one child, the levels, and the order in which they are solved."""
    inner = [[j for j in level if CHILDREN[j]] for level in LEVELS]
    ordered = [sorted(level, key=lambda j: len(CHILDREN[j])) for level in inner if level]
    singles = tuple(j for level in ordered[1:] for j in level if len(CHILDREN[j]) == 1)
    levels = []
    for above, level in itertools.pairwise(ordered):
        single = [j for j in level if len(CHILDREN[j]) == 1]
        levels.append(
            _InverseLevel(
                torch.tensor([above.index(PARENTS[j]) for j in level]), torch.tensor([level.index(j) for j in single]),
                torch.tensor([CHILDREN[j][0] for j in single]), torch.tensor([singles.index(j) for j in single]), _CHEST in level,
            )
        )  # fmt: skip
    order = [j for level in ordered for j in level] + list(LEAVES)
    return singles, tuple(levels), tuple(order.index(j) for j in range(NUM_JOINTS))


_single_joints, _IK_LEVELS, _ik_order = _inverse_levels()
_SINGLES, _FROM_IK_ORDER = torch.tensor(_single_joints), torch.tensor(_ik_order)
_SINGLE_CHILDREN = torch.tensor([CHILDREN[j][0] for j in _single_joints])
