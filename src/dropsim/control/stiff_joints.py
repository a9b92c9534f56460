"""What people with stiff joints wish for: the prior's candidates with the bends taken out.

A leg that cannot bend would go through the floor as it swings. As people do who walk on a stiff knee, it is carried round, outward.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.rotations import exp, heading, swing
from dropsim.body.skeleton import CHILDREN, Skeleton, joint_index
from dropsim.priors.prior import Candidates

UPRIGHT = 0.5
"""Share of its length that a straight leg reaches down at least where it is carried out: nobody who lies does that."""
FARTHEST_OUT = math.radians(25.0)
"""Largest angle by which a stiff leg is carried outward."""
STANDING = 0.03
"""Height of the lower of ankle and toes of a foot that stands [m]."""
_CHILD = [children[0] if children else joint for joint, children in enumerate(CHILDREN)]
_SINGLE = torch.tensor([len(children) == 1 for children in CHILDREN])
"""Joints that one bone hangs on; of the others the energies alone have to take the bend out."""
_LEGS = tuple(
    (side, *(joint_index(f"{name}_{part}") for part in ("hip", "knee", "ankle", "foot"))) for name, side in (("left", -1.0), ("right", 1.0))
)


def straightened(candidates: Candidates, stiff: Bool[Tensor, "*b 22"], skeleton: Skeleton, floor: Float[Tensor, "*b"] | None) -> Candidates:
    """Straighten the stiff joints of every candidate; the floor is at height zero unless given [m]."""
    root = candidates.x[..., 0, :]
    q = torch.where((stiff & _SINGLE.to(stiff.device))[..., None, :, None, None], _straight(skeleton).to(candidates.q), candidates.q)
    x = skeleton.forward(q, root)
    height = torch.zeros_like(x[..., 0, 0]) if floor is None else floor.unsqueeze(-1).expand(x.shape[:-2])
    for side, hip, knee, ankle, foot in _LEGS:
        if stiff[..., knee].any():
            turned = _carried_out(x, q, side, (hip, ankle, foot), height) @ q[..., hip, :, :]
            turned = torch.where(stiff[..., knee, None, None, None], turned, q[..., hip, :, :])
            q = q.index_copy(q.ndim - 3, torch.tensor([hip], device=q.device), turned.unsqueeze(-3))
            x = skeleton.forward(q, root)
    return replace(candidates, x=torch.where(stiff.any(-1)[..., None, None, None], x, candidates.x), q=q)


def _straight(skeleton: Skeleton) -> Float[Tensor, "22 3 3"]:
    """Return local rotations that make every joint's bone go on as its parent's; identity in the rest pose for knees and elbows."""
    offsets = skeleton.offsets
    return swing(offsets[_CHILD], offsets)


def _carried_out(
    x: Float[Tensor, "*c 22 3"], q: Float[Tensor, "*c 22 3 3"], side: float, leg: tuple[int, int, int], floor: Float[Tensor, "*c"]
) -> Float[Tensor, "*c 3 3"]:
    """Return the turn of a hip, in the pelvis' frame, that lifts a straight leg out of the floor."""
    hip, ankle, foot = leg
    lift = (floor + STANDING - x[..., [ankle, foot], 2].amin(-1)).clamp(min=0)
    facing = heading(q[..., 0, :, :])
    across, ahead = side * facing[..., 0, :], facing[..., 1, :]
    down = x[..., ankle, :] - x[..., hip, :]
    out, drop = (down * across).sum(-1), -down[..., 2]
    reach = torch.hypot(out, drop)
    angle = torch.acos(((drop - lift) / reach).clamp(-1, 1)) - torch.atan2(out, drop)
    angle = torch.where((lift > 0) & (drop > UPRIGHT * down.norm(dim=-1)), angle, 0.0)
    turn = exp(-side * angle.clamp(0, FARTHEST_OUT).unsqueeze(-1) * ahead)
    pelvis = q[..., 0, :, :]
    return pelvis.transpose(-1, -2) @ turn @ pelvis
