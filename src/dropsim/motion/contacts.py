"""Floor alignment and contact labels for recorded motion."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import gaussian_filter1d

from dropsim.body.joints import BEYOND, FLESH
from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, PARENTS, joint_index
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion

CONTACT_JOINTS = (0, 4, 5, 7, 8, 10, 11, 20, 21)
"""HuMoR's nine: hips, knees, ankles, toes, hands."""
FEET = (joint_index("left_foot"), joint_index("right_foot"))
ANKLES = (joint_index("left_ankle"), joint_index("right_ankle"))

CONTACT_SPEED = 0.6
"""Fastest that a joint in contact moves [m/s] (HuMoR's threshold)."""
CONTACT_GAP = 0.03
"""Largest gap between the floor and the sphere of a joint in contact [m]."""
STATIC_SPEED = 0.15
"""Fastest that a standing foot moves [m/s]."""
RAISED = 0.08
"""Height above the lowest still feet from which a still foot is in the air [m]."""
UPRIGHT = 0.6
"""Height of the pelvis above which a person is on their feet [m]."""
LOW_QUANTILE = 0.05
"""Share of the frames whose lowest sphere is below the floor where nobody stands."""


def runs(flags: Bool[np.ndarray, "t"]) -> list[tuple[int, int]]:
    """Return first and one past last of every stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def sphere_heights(motion: Motion) -> Float[np.ndarray, "*b t 22"]:
    """Height of each joint's sphere above z = 0 [m]."""
    return motion.joints[..., 2] - motion.skeleton.radii


def bearing_heights(motion: Motion) -> Float[np.ndarray, "*b t 22"]:
    """Height above z = 0 of what bears a body [m]: each joint's sphere with the flesh around it, or toes and palms."""
    bones = motion.joints[..., 2] - motion.joints[..., PARENTS, 2]
    return motion.joints[..., 2] + np.minimum(np.array(BEYOND) * bones, -motion.skeleton.radii - FLESH)


def floor_height(motion: Motion, frames: Bool[np.ndarray, "t"] | None = None) -> float:
    """Return the height of the floor that a recorded person moves on [m], by all frames or by those that are marked.

    Where the person is upright, that is the median of the lower standing toe, without feet that rest high in the air.
    Someone who never stands (lies, crawls, runs through) has the floor under a low quantile of the lowest sphere of the
    whole body.
    """
    marked = np.ones(len(motion), dtype=bool) if frames is None or not frames.any() else frames
    heights = sphere_heights(motion)
    ground = float(np.quantile(heights[marked].min(-1), LOW_QUANTILE))
    slow = np.linalg.norm(motion.velocity()[:, FEET], axis=-1) < STATIC_SPEED
    standing = np.where(slow, heights[:, FEET], np.inf).min(-1)
    standing = standing[marked & np.isfinite(standing) & (motion.root[:, 2] > ground + UPRIGHT)]
    if len(standing) < 5:
        return ground
    return float(np.median(standing[standing < np.quantile(standing, 0.1) + RAISED]))


def on_floor(motion: Motion, frames: Bool[np.ndarray, "t"] | None = None) -> Motion:
    """Move a motion vertically so that its floor is z = 0; `frames` marks those to find it by."""
    drop = np.array([0.0, 0.0, floor_height(motion, frames)])
    return replace(motion, root=motion.root - drop, joints=motion.joints - drop)


LOW_BONES = tuple(joint_index(f"{side}_{part}") for part in ("elbow", "wrist", "foot") for side in ("left", "right"))
"""Far ends of the bones that are turned out of the floor, a parent before its child."""


def out_of_floor(motion: Motion) -> Motion:
    """Turn arms and feet so that no elbow, hand or toe is below the floor.

    When a foot pushes off, a marker-based skeleton's toe dips by some centimetres, and arms that lie on the floor dip
    where ours are longer or thicker than the person's. A bone keeps its length and its heading: what it loses in drop
    it gains in reach.
    """
    joints = motion.joints.copy()
    for far in LOW_BONES:
        near, radius, length = joints[..., PARENTS[far], :], motion.skeleton.radii[far], motion.skeleton.lengths[far]
        below = joints[..., far, 2] < radius
        if not below.any():
            continue
        drop = np.clip(near[..., 2] - radius, -length, length)
        ahead = (joints[..., far, :] - near)[..., :2]
        ahead = ahead / np.maximum(np.linalg.norm(ahead, axis=-1, keepdims=True), 1e-12)
        raised = near + np.concatenate((np.sqrt(length**2 - drop**2)[..., None] * ahead, -drop[..., None]), axis=-1)
        shift = np.where(below[..., None], raised - joints[..., far, :], 0.0)
        moved = [far, *CHILDREN[far]]
        joints[..., moved, :] += shift[..., None, :]
    q = motion.skeleton.inverse(joints, twist_from=motion.q)
    return replace(motion, q=q, joints=motion.skeleton.forward(q, motion.root))


LOADED = 0.6
"""Share of gravity that something bears of a body that touches the floor, by how its centre of mass is accelerated."""
GROUND_SECONDS = 0.2
"""Standard deviation of the weights by which heights are averaged over time [s]: about half a step."""
GROUND_RANGE = (-0.25, 0.12)
"""Lowest and highest place above the floor of a body that the floor bears [m]."""


def grounded(motion: Motion) -> Motion:
    """Shift frames vertically so that bodies that something bears touch the floor, and are not in it.

    A recorded floor fits the toes of people who stand; other feet, knees and backs are as thick as ours, not as the
    person's. People who are not in free fall touch something: the shift is the height of the lowest sphere (in the floor:
    of trunk and legs, as arms and feet can be turned) in frames in which the centre of mass does not fall freely,
    averaged over time.
    """
    heights = sphere_heights(motion)
    bendable = np.isin(np.arange(NUM_JOINTS), LOW_BONES)
    gap = np.clip(np.maximum(heights.min(-1), 0) + np.minimum(heights[..., ~bendable].min(-1), 0), *GROUND_RANGE)
    centre = gaussian_filter1d(motion.skeleton.centre_of_mass(motion.joints)[..., 2], 1.0, mode="nearest")
    falls = np.diff(centre, 2, prepend=centre[:1], append=centre[-1:]) * motion.fps**2 / GRAVITY
    loaded = (falls + 1 > LOADED) + 1e-6  # frames that follow nothing else follow all
    shift = np.zeros_like(motion.root)
    shift[:, 2] = _averaged(gap * loaded, motion.fps) / _averaged(loaded, motion.fps)
    return replace(motion, root=motion.root - shift, joints=motion.joints - shift[:, None, :])


def _averaged(values: Float[np.ndarray, "t"], fps: float) -> Float[np.ndarray, "t"]:
    return gaussian_filter1d(values, GROUND_SECONDS * fps, mode="nearest")


def label_contacts(motion: Motion) -> Bool[np.ndarray, "*b t 22"]:
    """Mark the joints that touch the floor: slow, and their sphere near it."""
    touching = (np.linalg.norm(motion.velocity(), axis=-1) < CONTACT_SPEED) & (sphere_heights(motion) < CONTACT_GAP)
    return touching & np.isin(np.arange(NUM_JOINTS), CONTACT_JOINTS)
