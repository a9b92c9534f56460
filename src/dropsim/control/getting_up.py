"""Lying and getting up, for priors that have never seen people on the ground.

People who fell go limp until the body comes to rest, and then rise through a few poses that we wrote down: from the belly over hands and
knees and one knee, from the back over sitting and squatting. These frames take the place of the reference candidate: contact, bones, range
of motion and momentum act as always, and somebody who is pushed while rising falls again.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.rotations import exp, rotmat_to_rotvec, slerp_rotmat, transpose
from dropsim.body.skeleton import NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.control.floor import lowered, raised
from dropsim.control.planner import ReplaceStage
from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import FACING_Y
from dropsim.physics import metrics
from dropsim.priors.prior import Candidates, Prior, State

Direction = tuple[float, float, float]
"""Outward, to the front, up; of any length."""

LIMP_AFTER = 3
"""Frames that somebody lies before going limp."""
KEPT_SPEED = 0.7
"""Share of their velocity that limp limbs keep from one frame to the next."""
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
    """How far everyone is with lying and getting up."""

    frames: Int[np.ndarray, "*b"]
    """Since somebody fell; zero for people on their feet."""
    stage: Int[np.ndarray, "*b"]
    """Number of the pose that is being reached for; -1 for a limp body."""
    seconds: Float[np.ndarray, "*b"]
    """In this stage [s]."""
    way: Int[np.ndarray, "*b"]
    """From the belly or from the back."""
    facing: Float[np.ndarray, "*b 3 3"]
    """Turns a pose that faces +y to where somebody will face."""
    begin: Float[np.ndarray, "*b 22 3 3"]
    """Local rotations at the stage's beginning."""
    pelvis: Float[np.ndarray, "*b 3 3"]
    """Orientation that the pelvis should have by now."""

    @classmethod
    def nobody(cls, state: State) -> "Fallen":
        """Return everyone on their feet."""
        none = np.zeros(state.x.shape[:-2], dtype=np.int64)
        eye = np.broadcast_to(np.eye(3), (*none.shape, 3, 3))
        return cls(none, none + _LIMP, none.astype(np.float64), none, eye, state.q, eye)

    @property
    def limp_or_rising(self) -> Bool[np.ndarray, "*b"]:
        """People whose reference is not the prior's."""
        return self.frames > LIMP_AFTER


def get_up(
    fallen: Fallen, state: State, floor: Float[np.ndarray, "*b"], prior: Prior, standing: Float[np.ndarray, "22 3 3"] | None = None
) -> tuple[Fallen, ReplaceStage | None]:
    """Return how far everyone is one frame later, and the change of the proposals for people who lie or rise, if there are any.

    `standing` are the local rotations of somebody who stands facing +y, from which the prior goes on well.
    """
    skeleton, h = prior.skeleton, 1.0 / prior.fps
    if not (fallen.frames.any() or metrics.lying(state.x, skeleton, floor).any()):
        return fallen, None  # nobody is on the ground
    x = lowered(state, floor).x
    fallen = _advanced(fallen, x, state, skeleton, h)
    if not fallen.limp_or_rising.any():
        return fallen, None
    q = _rising_pose(fallen, skeleton, standing)
    limp = x + KEPT_SPEED * h * (state.v + h * np.array([0.0, 0.0, -GRAVITY]))
    rising = (fallen.stage >= 0)[..., None, None]
    joints = np.where(rising, _on_the_ground(skeleton.forward(q, np.zeros_like(x[..., 0, :])), x, skeleton), limp)
    q = np.where(rising[..., None], q, skeleton.inverse(limp, state.q))
    fallen = replace(fallen, pelvis=q[..., 0, :, :])
    frame = raised(Candidates(joints[..., None, :, :], q[..., None, :, :, :], np.zeros((*x.shape[:-2], 1, 0))), floor)
    memory = prior.recall(state, frame.x[..., 0, :, :], q)
    return fallen, ReplaceStage(replace(frame, memory=memory[..., None, :]), fallen.limp_or_rising)


def _advanced(fallen: Fallen, x: Float[np.ndarray, "*b 22 3"], state: State, skeleton: Skeleton, h: float) -> Fallen:
    """Count on, and let everyone who is through with a stage begin the next."""
    low = metrics.lying(x, skeleton) & (_gaps(x, skeleton)[..., _NOT_FEET] < LYING_GAP).any(-1)
    rising = fallen.stage >= 0
    turned = np.linalg.norm(rotmat_to_rotvec(transpose(state.q[..., 0, :, :]) @ fallen.pelvis), axis=-1)
    knocked = rising & (turned > KNOCKED_OVER) & low
    durations, _ = _ways(skeleton)
    seconds = fallen.seconds + h
    steady = np.where(fallen.stage == NUM_STAGES - 1, STEADY_SECONDS, 0.0)
    reached = rising & (seconds > durations[fallen.way, np.maximum(fallen.stage, 0)] + steady)
    up = reached & (fallen.stage == NUM_STAGES - 1)
    frames = np.where(((rising & ~knocked) | low) & ~up, fallen.frames + 1, 0)
    frames = np.where(knocked, 1 + LIMP_AFTER, frames)
    still = np.linalg.norm(state.v, axis=-1).mean(-1) < AT_REST
    rested = (frames > REST_SECONDS / h) & (still | (frames > LONGEST_REST / h))
    begins = ~rising & rested & (frames > 0)
    stage = np.where(begins, 0, np.where(rising & (frames > 0) & ~knocked, fallen.stage + reached, _LIMP))
    again = begins | reached
    front = state.q[..., 0, :, 2]
    way = np.where(begins, (front[..., 2] > 0).astype(np.int64), fallen.way)
    facing = np.where(begins[..., None, None], _facing(x, front, way), fallen.facing)
    begin = np.where(again[..., None, None, None], state.q, fallen.begin)
    return Fallen(frames, stage, np.where(again | (stage < 0), 0.0, seconds), way, facing, begin, fallen.pelvis)


def _rising_pose(fallen: Fallen, skeleton: Skeleton, standing: Float[np.ndarray, "22 3 3"] | None) -> Float[np.ndarray, "*b 22 3 3"]:
    """Return the local rotations on the way from the stage's beginning to its pose, slow at both ends."""
    durations, poses = _ways(skeleton)
    stage = np.maximum(fallen.stage, 0)
    share = np.clip(fallen.seconds / durations[fallen.way, stage], 0, 1)
    goal = poses[fallen.way, stage]
    if standing is not None:
        goal = np.where((stage == NUM_STAGES - 1)[..., None, None, None], standing, goal)
    goal = np.concatenate((fallen.facing[..., None, :, :] @ goal[..., :1, :, :], goal[..., 1:, :, :]), -3)
    return slerp_rotmat(fallen.begin, goal, (share * share * (3 - 2 * share))[..., None])


def _on_the_ground(
    joints: Float[np.ndarray, "*b 22 3"], now: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton
) -> Float[np.ndarray, "*b 22 3"]:
    """Move a pose so that what now rests on the ground stays where it is, and the lowest sphere touches it."""
    rests = (_gaps(now, skeleton) < SUPPORT_GAP).astype(np.float64)
    rests = np.where(rests.sum(-1, keepdims=True) > 0, rests, 1.0)
    shift = ((now - joints)[..., :2] * rests[..., None]).sum(-2) / rests.sum(-1, keepdims=True)
    lowest = _gaps(joints, skeleton).min(-1, keepdims=True)
    return joints + np.concatenate((shift, -lowest), -1)[..., None, :]


def _facing(x: Float[np.ndarray, "*b 22 3"], front: Float[np.ndarray, "*b 3"], way: Int[np.ndarray, "*b"]) -> Float[np.ndarray, "*b 3 3"]:
    """Return the turn about the vertical to where somebody faces who gets up: past the head from the belly, past the feet from the back."""
    trunk = (x[..., joint_index("neck"), :2] - x[..., 0, :2]) * 3.0
    to = np.where(way[..., None] == 0, trunk, -trunk) + front[..., :2]
    angle = np.arctan2(-to[..., 0], to[..., 1])
    return exp(np.stack((0 * angle, 0 * angle, angle), -1))


def _gaps(x: Float[np.ndarray, "*b 22 3"], skeleton: Skeleton) -> Float[np.ndarray, "*b 22"]:
    """Height of each sphere's lowest point above the ground [m]."""
    return x[..., 2] - skeleton.radii


_NOT_FEET = [j for j in range(NUM_JOINTS) if j not in metrics.FEET]


@functools.lru_cache(maxsize=8)
def _ways(skeleton: Skeleton) -> tuple[Float[np.ndarray, "2 s"], Float[np.ndarray, "2 s 22 3 3"]]:
    """Return the stages' durations [s] and their poses as local rotations of somebody who faces +y."""
    durations = np.array([[pose.seconds for pose in way] for way in WAYS])
    return durations, np.stack([np.stack([_rotations(pose, skeleton) for pose in way]) for way in WAYS])


def _rotations(pose: Pose, skeleton: Skeleton) -> Float[np.ndarray, "22 3 3"]:
    """Lay a pose out in joints, bone by bone, and return its local rotations."""
    facing = np.array(FACING_Y)
    leans = {
        "pelvis": pose.pelvis,
        "spine1": pose.pelvis,
        "spine2": (pose.pelvis + pose.chest) / 2,
        "spine3": pose.chest,
        "neck": pose.head,
    }
    turns = {name: facing @ exp(np.array([lean, 0.0, 0.0])) for name, lean in leans.items()}
    # A bone is turned with the joint that it hangs on: hips with the pelvis, collars and shoulders with the chest.
    carried = {1: "pelvis", 2: "pelvis", 3: "pelvis", 6: "spine1", 9: "spine2", 12: "spine3", 13: "spine3", 14: "spine3", 15: "neck",
               16: "spine3", 17: "spine3"}  # fmt: skip
    aims = {joint_index(name): aim for name, aim in _limb_directions(pose).items()}
    joints = np.zeros((NUM_JOINTS, 3))
    for joint in range(1, NUM_JOINTS):
        offset = skeleton.offsets[joint]
        bone = turns[carried[joint]] @ offset if joint in carried else np.linalg.norm(offset) * aims[joint] / np.linalg.norm(aims[joint])
        joints[joint] = joints[PARENTS[joint]] + bone
    return skeleton.inverse(joints, np.broadcast_to(np.eye(3), (NUM_JOINTS, 3, 3)))


def _limb_directions(pose: Pose) -> Mapping[str, Float[np.ndarray, "3"]]:
    """Return where each limb's bone points in the world, by the joint at its end."""
    found = {}
    for side, outward, (leg, arm) in (("left", -1.0, pose.left), ("right", 1.0, pose.right)):
        bones = {"knee": leg.thigh, "ankle": leg.shank, "foot": leg.foot, "elbow": arm.upper, "wrist": arm.fore}
        for part, (out, front, up) in bones.items():
            found[f"{side}_{part}"] = np.array([outward * out, front, up])
    return found
