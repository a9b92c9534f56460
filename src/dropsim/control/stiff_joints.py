"""Joints that do not bend: the bends are taken out of the prior's candidates.

A leg that cannot bend would go through the floor as it swings. As people with a stiff knee do, it is swung outward.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import exp, heading, swing, transpose
from dropsim.body.skeleton import CHILDREN, Skeleton, joint_index
from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates

UPRIGHT = 0.5
"""Share of its length that a straight leg reaches down at least when it is swung out: nobody who lies does that."""
FARTHEST_OUT = math.radians(25.0)
"""Largest angle by which a stiff leg is swung outward."""
STANDING = 0.03
"""Height of the lower of ankle and toes of a foot that stands [m]."""
_CHILD = [children[0] if children else joint for joint, children in enumerate(CHILDREN)]
_SINGLE = np.array([len(children) == 1 for children in CHILDREN])
"""Joints that carry one bone; for the others only the energies take the bend out."""
_LEGS = tuple(
    (side, *(joint_index(f"{name}_{part}") for part in ("hip", "knee", "ankle", "foot"))) for name, side in (("left", -1.0), ("right", 1.0))
)


@dataclass(frozen=True, eq=False)
class StiffStage(Stage):
    """Straighten some joints of every candidate."""

    stiff: Bool[np.ndarray, "*b 22"]
    skeleton: Skeleton
    floor: Float[np.ndarray, "*b"]
    """Height of the ground under each person [m]."""
    share: float = 1.0
    """How far the bend is taken out: a joint that stiffens while bent does so over some frames."""

    def change(self, candidates: Candidates, reference: int) -> Candidates:
        del reference
        stiff, skeleton = self.stiff, self.skeleton
        root, height = candidates.x[..., 0, :], np.broadcast_to(self.floor[..., None], candidates.x.shape[:-2])
        straight = _toward(candidates.q, _straight(skeleton), self.share)
        q = np.where((stiff & _SINGLE)[..., None, :, None, None], straight, candidates.q)
        x = skeleton.forward(q, root)
        for side, hip, knee, ankle, foot in _LEGS:
            if stiff[..., knee].any():
                turned = _swung_out(x, q, side, (hip, ankle, foot), height, self.share) @ q[..., hip, :, :]
                q[..., hip, :, :] = np.where(stiff[..., knee, None, None, None], turned, q[..., hip, :, :])
                x = skeleton.forward(q, root)
        return Candidates(np.where(np.any(stiff, -1, keepdims=True)[..., None, None], x, candidates.x), q, candidates.memory)


def _straight(skeleton: Skeleton) -> Float[np.ndarray, "22 3 3"]:
    """Return local rotations that make every joint's bone continue its parent's; identity in the rest pose for knees and elbows."""
    return swing(skeleton.offsets[_CHILD], skeleton.offsets)


def _toward(q: Float[np.ndarray, "*c 22 3 3"], goal: Float[np.ndarray, "22 3 3"], share: float) -> Float[np.ndarray, "*c 22 3 3"]:
    if share >= 1:
        return np.broadcast_to(goal, q.shape)
    from dropsim.body.rotations import slerp_rotmat

    return slerp_rotmat(q, goal, share)


def _swung_out(
    x: Float[np.ndarray, "*c 22 3"], q: Float[np.ndarray, "*c 22 3 3"], side: float, leg: tuple[int, int, int],
    floor: Float[np.ndarray, "*c"], share: float,
) -> Float[np.ndarray, "*c 3 3"]:  # fmt: skip
    """Return the turn of a hip, in the pelvis' frame, that lifts a straight leg out of the floor."""
    hip, ankle, foot = leg
    lift = np.maximum(floor + STANDING - x[..., [ankle, foot], 2].min(-1), 0)
    facing = heading(q[..., 0, :, :])
    across, ahead = side * facing[..., 0, :], facing[..., 1, :]
    down = x[..., ankle, :] - x[..., hip, :]
    out, drop = (down * across).sum(-1), -down[..., 2]
    angle = np.arccos(np.clip((drop - lift) / np.hypot(out, drop), -1, 1)) - np.arctan2(out, drop)
    angle = np.where((lift > 0) & (drop > UPRIGHT * np.linalg.norm(down, axis=-1)), angle, 0.0)
    turn = exp(-side * share * np.clip(angle, 0, FARTHEST_OUT)[..., None] * ahead)
    pelvis = q[..., 0, :, :]
    return transpose(pelvis) @ turn @ pelvis
