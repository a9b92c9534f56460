"""Lying and getting up: what people wish for while they lie, where the prior, which has seen hardly anybody lie, knows nothing.

Who has fallen goes limp until the body has come to rest, and then rises through a few poses that we wrote down: from the belly over hands
and knees and one knee, from the back over sitting and squatting. These are wishes like the prior's samples: contact, bones, range of
motion and momentum have their say, and somebody who is pushed while rising falls again.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import roma
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.motion.synthetic import FACING_Y
from dropsim.physics import metrics
from dropsim.physics.wrench import GRAVITY
from dropsim.priors.prior import Candidates, Prior, State

Direction = tuple[float, float, float]
"""Outward, to the front, up; of any length."""

LIMP_AFTER = 3
"""Frames that somebody lies before going limp."""
KEPT_SPEED = 0.7
"""Share of their velocity that limp limbs wish to keep from one frame to the next."""
REST_SECONDS = 0.6
"""Shortest time to lie [s]."""
LONGEST_REST = 2.5
"""Time after which somebody gets up even from a body that still moves [s]."""
AT_REST = 0.4
"""Mean speed of the joints of a body at rest [m/s]."""
SUPPORT_GAP = 0.03
"""Gap up to which a sphere counts as resting on the ground [m]."""
STEADY_SECONDS = 0.3
"""Time to stand before the prior goes on [s]."""
LYING_GAP = 0.1
"""Gap up to which something other than a foot tells somebody who lies from somebody who crouches [m]."""
KNOCKED_OVER = 1.2
"""Angle between the pelvis and where it should be beyond which somebody who rises has fallen again [rad]."""


@dataclass(frozen=True)
class Leg:
    """Directions of a leg's bones."""

    thigh: Direction
    shank: Direction
    foot: Direction


@dataclass(frozen=True)
class Arm:
    """Directions of an arm's bones."""

    upper: Direction
    fore: Direction


@dataclass(frozen=True)
class Pose:
    """A pose on the way up."""

    seconds: float
    """Time to reach it from the pose before [s]."""
    pelvis: float
    """Forward lean [rad]."""
    chest: float
    head: float
    left: tuple[Leg, Arm]
    right: tuple[Leg, Arm]


_HANGING = Arm((0.15, 0.05, -1.0), (0.05, 0.25, -1.0))
_STANDING = Leg((0.03, 0.05, -1.0), (0.0, -0.05, -1.0), (0.1, 1.0, -0.3))


def _both(leg: Leg, arm: Arm) -> tuple[tuple[Leg, Arm], tuple[Leg, Arm]]:
    """Do the same on both sides."""
    return (leg, arm), (leg, arm)


FROM_BELLY = (
    Pose(
        0.9, 1.35, 1.25, 0.7,
        *_both(Leg((0.1, 0.2, -1.0), (0.0, -1.0, -0.05), (0.0, -0.8, -0.6)), Arm((0.1, 0.1, -1.0), (0.0, 0.1, -1.0))),
    ),
    Pose(
        0.8, 0.45, 0.4, 0.2,
        (Leg((0.12, 1.0, 0.05), (0.0, -0.1, -1.0), (0.1, 1.0, -0.3)), Arm((0.1, 0.7, -0.8), (0.0, 0.8, -0.3))),
        (Leg((0.05, 0.1, -1.0), (0.0, -1.0, -0.15), (0.0, -0.5, -0.8)), Arm((0.2, 0.1, -1.0), (0.0, 0.6, -0.8))),
    ),
    Pose(
        0.6, 0.55, 0.55, 0.2,
        (Leg((0.08, 0.75, -0.65), (0.0, -0.3, -1.0), (0.1, 1.0, -0.3)), Arm((0.15, 0.4, -1.0), (0.0, 0.6, -0.6))),
        (Leg((0.05, 0.1, -1.0), (0.0, -0.75, -0.65), (0.0, 0.45, -0.9)), Arm((0.2, 0.0, -1.0), (0.0, 0.5, -0.9))),
    ),
    Pose(0.7, 0.05, 0.05, 0.0, *_both(_STANDING, _HANGING)),
)  # fmt: skip
"""Over hands and knees, one knee and a lunge."""

FROM_BACK = (
    Pose(
        0.8, -0.35, 0.15, 0.2,
        *_both(Leg((0.15, 0.75, 0.65), (0.0, 0.45, -0.9), (0.1, 1.0, -0.3)), Arm((0.35, -0.5, -0.8), (0.1, -0.45, -0.9))),
    ),
    Pose(
        0.7, 0.75, 1.0, 0.3,
        *_both(Leg((0.3, 0.95, 0.15), (0.0, -0.55, -0.85), (0.2, 1.0, -0.3)), Arm((0.1, 0.8, -0.6), (0.0, 1.0, -0.2))),
    ),
    Pose(
        0.5, 0.65, 0.65, 0.2,
        *_both(Leg((0.12, 0.75, -0.65), (0.0, -0.5, -0.85), (0.1, 1.0, -0.3)), Arm((0.1, 0.5, -0.9), (0.0, 0.6, -0.7))),
    ),
    Pose(0.6, 0.05, 0.05, 0.0, *_both(_STANDING, _HANGING)),
)  # fmt: skip
"""Over sitting, a squat and half a squat."""

WAYS = (FROM_BELLY, FROM_BACK)
NUM_STAGES = len(FROM_BELLY)
_LIMP = -1


@dataclass(frozen=True, eq=False)
class Fallen:
    """How far everybody is with lying and getting up."""

    frames: Int[Tensor, "*b"]
    """Since somebody lay; zero for those who stand."""
    stage: Int[Tensor, "*b"]
    """Number of the pose that is being reached for; -1 for a limp body."""
    seconds: Float[Tensor, "*b"]
    """In this stage [s]."""
    way: Int[Tensor, "*b"]
    """From the belly or from the back."""
    facing: Float[Tensor, "*b 3 3"]
    """Turns a pose that faces +y to where somebody will face."""
    begin: Float[Tensor, "*b 22 3 3"]
    """Local rotations at the stage's beginning."""
    wished: Float[Tensor, "*b 3 3"]
    """Orientation that the pelvis should have by now."""

    @classmethod
    def nobody(cls, state: State) -> "Fallen":
        """Return everybody on their feet."""
        none = torch.zeros(state.x.shape[:-2], dtype=torch.long)
        eye = torch.eye(3, dtype=state.q.dtype).expand(*none.shape, 3, 3)
        return cls(none, none + _LIMP, none.double(), none, eye, state.q, eye)

    @property
    def limp_or_rising(self) -> Bool[Tensor, "*b"]:
        """Whose wish is not the prior's."""
        return self.frames > LIMP_AFTER


def next_wish(
    fallen: Fallen, state: State, floor: Float[Tensor, "*b"], prior: Prior, standing: Float[Tensor, "22 3 3"] | None = None
) -> tuple[Fallen, Candidates | None]:
    """Return how far everybody is one frame on, and what those who lie or rise wish for; nothing where nobody does.

    `standing` are the local rotations of somebody who stands facing +y, from which the prior goes on well.
    """
    skeleton, h = prior.skeleton, 1.0 / prior.fps
    lift = torch.nn.functional.pad(floor.unsqueeze(-1), (2, 0)).unsqueeze(-2)
    x = state.x - lift
    fallen = _advanced(fallen, x, state, skeleton, h)
    if not fallen.limp_or_rising.any():
        return fallen, None
    q = _rising_pose(fallen, skeleton, standing)
    limp = x + KEPT_SPEED * h * (state.v + h * torch.tensor([0.0, 0.0, -GRAVITY], dtype=x.dtype))
    rising = (fallen.stage >= 0)[..., None, None]
    joints = torch.where(rising, _on_the_ground(skeleton.forward(q, torch.zeros_like(x[..., 0, :])), x, skeleton), limp)
    q = torch.where(rising.unsqueeze(-1), q, skeleton.inverse(limp, twist_from=state.q))
    fallen = replace(fallen, wished=q[..., 0, :, :])
    joints = joints + lift
    memory = prior.recall(state, joints, q)
    return fallen, Candidates(joints.unsqueeze(-3), q.unsqueeze(-4), memory.unsqueeze(-2))


def _advanced(fallen: Fallen, x: Float[Tensor, "*b 22 3"], state: State, skeleton: Skeleton, h: float) -> Fallen:
    """Count on, and let everybody who is through with something begin the next."""
    low = metrics.lying(x, skeleton) & (_gaps(x, skeleton)[..., _NOT_FEET] < LYING_GAP).any(-1)
    rising = fallen.stage >= 0
    turned = roma.rotmat_geodesic_distance(state.q[..., 0, :, :], fallen.wished)
    knocked = rising & (turned > KNOCKED_OVER) & low
    durations, _ = _ways(skeleton)
    seconds = fallen.seconds + h
    steady = torch.where(fallen.stage == NUM_STAGES - 1, STEADY_SECONDS, 0.0)
    reached = rising & (seconds > durations[fallen.way, fallen.stage.clamp(min=0)] + steady)
    up = reached & (fallen.stage == NUM_STAGES - 1)
    frames = torch.where(((rising & ~knocked) | low) & ~up, fallen.frames + 1, 0)
    frames = torch.where(knocked, 1 + LIMP_AFTER, frames)
    still = state.v.norm(dim=-1).mean(-1) < AT_REST
    rested = (frames > REST_SECONDS / h) & (still | (frames > LONGEST_REST / h))
    begins = ~rising & rested & (frames > 0)
    stage = torch.where(begins, 0, torch.where(rising & (frames > 0) & ~knocked, fallen.stage + reached.long(), _LIMP))
    anew = begins | reached
    front = state.q[..., 0, :, 2]
    way = torch.where(begins, (front[..., 2] > 0).long(), fallen.way)
    facing = torch.where(begins[..., None, None], _facing(x, front, way), fallen.facing)
    begin = torch.where(anew[..., None, None, None], state.q, fallen.begin)
    return Fallen(frames, stage, torch.where(anew | (stage < 0), 0.0, seconds), way, facing, begin, fallen.wished)


def _rising_pose(fallen: Fallen, skeleton: Skeleton, standing: Float[Tensor, "22 3 3"] | None) -> Float[Tensor, "*b 22 3 3"]:
    """Return the local rotations on the way from the stage's beginning to its pose, slow at both ends."""
    durations, poses = _ways(skeleton)
    stage = fallen.stage.clamp(min=0)
    share = (fallen.seconds / durations[fallen.way, stage]).clamp(0, 1)
    share = share * share * (3 - 2 * share)
    goal = poses[fallen.way, stage]
    if standing is not None:
        goal = torch.where((stage == NUM_STAGES - 1)[..., None, None, None], standing, goal)
    goal = torch.cat((fallen.facing.unsqueeze(-3) @ goal[..., :1, :, :], goal[..., 1:, :, :]), dim=-3)
    turn = roma.rotmat_to_rotvec(fallen.begin.transpose(-1, -2) @ goal)
    return fallen.begin @ exp(share[..., None, None] * turn)


def _on_the_ground(joints: Float[Tensor, "*b 22 3"], now: Float[Tensor, "*b 22 3"], skeleton: Skeleton) -> Float[Tensor, "*b 22 3"]:
    """Move a pose so that what now rests on the ground stays where it is, and the lowest sphere touches it."""
    rests = (_gaps(now, skeleton) < SUPPORT_GAP).to(now)
    rests = torch.where(rests.sum(-1, keepdim=True) > 0, rests, torch.ones_like(rests))
    shift = ((now - joints)[..., :2] * rests.unsqueeze(-1)).sum(-2) / rests.sum(-1, keepdim=True)
    lowest = _gaps(joints, skeleton).amin(-1, keepdim=True)
    return joints + torch.cat((shift, -lowest), dim=-1).unsqueeze(-2)


def _facing(x: Float[Tensor, "*b 22 3"], front: Float[Tensor, "*b 3"], way: Int[Tensor, "*b"]) -> Float[Tensor, "*b 3 3"]:
    """Return the turn about the vertical to where somebody faces who gets up: past the head from the belly, past the feet from the back."""
    trunk = (x[..., joint_index("neck"), :2] - x[..., 0, :2]) * 3.0
    to = torch.where(way.unsqueeze(-1) == 0, trunk, -trunk) + front[..., :2]
    angle = torch.atan2(-to[..., 0], to[..., 1])
    return exp(torch.nn.functional.pad(angle.unsqueeze(-1), (2, 0)))


def _gaps(x: Float[Tensor, "*b 22 3"], skeleton: Skeleton) -> Float[Tensor, "*b 22"]:
    """Height of each sphere's lowest point above the ground [m]."""
    return x[..., 2] - skeleton.radii.to(x)


_NOT_FEET = [j for j in range(NUM_JOINTS) if j not in metrics.FEET]


@functools.lru_cache(maxsize=8)
def _ways(skeleton: Skeleton) -> tuple[Float[Tensor, "2 s"], Float[Tensor, "2 s 22 3 3"]]:
    """Return the stages' durations [s] and their poses as local rotations of somebody who faces +y."""
    durations = torch.tensor([[pose.seconds for pose in way] for way in WAYS], dtype=torch.float64)
    return durations, torch.stack([torch.stack([_rotations(pose, skeleton) for pose in way]) for way in WAYS])


def _rotations(pose: Pose, skeleton: Skeleton) -> Float[Tensor, "22 3 3"]:
    """Lay a pose out in joints, bone by bone, and return its local rotations."""
    facing = torch.tensor(FACING_Y, dtype=torch.float64)
    leans = {
        "pelvis": pose.pelvis,
        "spine1": pose.pelvis,
        "spine2": (pose.pelvis + pose.chest) / 2,
        "spine3": pose.chest,
        "neck": pose.head,
    }
    turns = {name: facing @ exp(torch.tensor([lean, 0.0, 0.0], dtype=torch.float64)) for name, lean in leans.items()}
    # A bone is turned with the joint that it hangs on: hips with the pelvis, collars and shoulders with the chest.
    carried = {1: "pelvis", 2: "pelvis", 3: "pelvis", 6: "spine1", 9: "spine2", 12: "spine3", 13: "spine3", 14: "spine3", 15: "neck",
               16: "spine3", 17: "spine3"}  # fmt: skip
    aims = {joint_index(name): aim for name, aim in _limb_directions(pose).items()}
    joints = torch.zeros(NUM_JOINTS, 3, dtype=torch.float64)
    for joint in range(1, NUM_JOINTS):
        offset = skeleton.offsets[joint].double()
        bone = turns[carried[joint]] @ offset if joint in carried else offset.norm() * aims[joint] / aims[joint].norm()
        joints[joint] = joints[PARENTS[joint]] + bone
    return skeleton.inverse(joints, twist_from=torch.eye(3, dtype=torch.float64).expand(NUM_JOINTS, 3, 3))


def _limb_directions(pose: Pose) -> Mapping[str, Float[Tensor, "3"]]:
    """Return where each limb's bone points in the world, by the joint at its end."""
    found = {}
    for side, outward, (leg, arm) in (("left", -1.0, pose.left), ("right", 1.0, pose.right)):
        bones = {"knee": leg.thigh, "ankle": leg.shank, "foot": leg.foot, "elbow": arm.upper, "wrist": arm.fore}
        for part, (out, front, up) in bones.items():
            found[f"{side}_{part}"] = torch.tensor([outward * out, front, up], dtype=torch.float64)
    return found
