"""Motions made by formula, for demonstrations and tests that need no recording."""

import math

import roma
import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.motion import Motion
from dropsim.rotations import swing
from dropsim.skeleton import NUM_JOINTS, Skeleton, joint_index

FACING_Y = ((-1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
"""Root orientation of a person who stands upright and faces world +y: rest left to -x, rest up to z, rest front to +y."""

CADENCE = 0.9
"""Steps of one foot a second [Hz]."""
LIFT = 0.14
"""Highest point of the ankle above its place on the ground [m]."""
CROUCH = 0.03
"""How far the pelvis hangs below a straight-legged stand while both feet are down [m]."""
RISE = 0.015
"""How far it rises over the standing leg [m]."""
SWAY = 0.04
"""How far it moves over the standing foot [m]."""
TOE_DROP = 0.35
"""Pitch of the lifted foot, toes down [rad]."""
ARM_SWING = 0.45
"""Swing of the arms to the front and back [rad]."""
ARM_DOWN = 1.35
"""From the T-pose's level arms to hanging ones [rad]."""
ELBOW_BEND = 0.5
"""[rad]"""
CHEST_TURN = 0.12
"""Turn of the shoulders with the arms [rad]."""

_X, _Y, _Z = torch.eye(3, dtype=torch.float64)


def _turn(axis: Tensor, angle: Float[Tensor, "t"]) -> Float[Tensor, "t 3 3"]:
    return roma.rotvec_to_rotmat(angle.unsqueeze(-1) * axis)


def _leg(
    thigh: float, shank: float, hip_to_ankle: Float[Tensor, "t 3"], foot: Float[Tensor, "t 3 3"]
) -> tuple[Float[Tensor, "t 3 3"], Float[Tensor, "t 3 3"], Float[Tensor, "t 3 3"]]:
    """Return the hip, knee and ankle rotations that put the ankle there with the knee to the front (law of cosines)."""
    reach = hip_to_ankle.norm(dim=-1)
    at_hip = ((thigh**2 + reach**2 - shank**2) / (2 * thigh * reach)).clamp(-1, 1).acos()
    at_knee = ((thigh**2 + shank**2 - reach**2) / (2 * thigh * shank)).clamp(-1, 1).acos()
    # About rest x, a negative turn brings the thigh to the front and a positive one the shank to the back.
    hip = swing(-_Y, hip_to_ankle) @ _turn(_X, -at_hip)
    knee = _turn(_X, math.pi - at_knee)
    return hip, knee, (hip @ knee).transpose(-1, -2) @ foot


def stepping_clip(seconds: float = 4.0, fps: float = 30.0) -> Motion:
    """Return an average adult stepping in place and facing +y, one foot on the ground at any time and the arms against the legs."""
    if not (seconds > 0 and fps > 0 and math.isfinite(seconds * fps)):
        raise ValueError(f"cannot make a clip of {seconds} s at {fps} frames per second: give two positive numbers")
    skeleton = Skeleton.adult()
    time = torch.arange(max(1, round(seconds * fps)), dtype=torch.float64) / fps
    # The left foot is up in the first half of the cycle, the right foot in the second.
    beat = (2 * math.pi * CADENCE * time).sin()
    pelvis = torch.zeros(len(time), 3, dtype=torch.float64)
    pelvis[:, 0] = -SWAY * beat
    pelvis[:, 1] = skeleton.standing_height - CROUCH + RISE * beat.square()

    q = torch.eye(3, dtype=torch.float64).expand(len(time), NUM_JOINTS, 3, 3).clone()
    for side, sign in (("left", 1.0), ("right", -1.0)):
        joints = [joint_index(f"{side}_{part}") for part in ("hip", "knee", "ankle")]
        hip, knee, ankle = joints
        # Squared, so that the foot leaves the ground and lands without a jump in speed.
        lifted = (sign * beat).clamp_min(0).square()
        place = skeleton.rest[ankle] - skeleton.rest[0] + skeleton.standing_height * _Y
        target = place + LIFT * lifted.unsqueeze(-1) * _Y
        hip_to_ankle = target - pelvis - skeleton.offsets[hip]
        legs = _leg(float(skeleton.lengths[knee]), float(skeleton.lengths[ankle]), hip_to_ankle, _turn(_X, TOE_DROP * lifted))
        q[:, joints] = torch.stack(legs, dim=1)
        q[:, joint_index(f"{side}_shoulder")] = _turn(_X, sign * ARM_SWING * beat) @ _turn(_Z, torch.full_like(beat, -sign * ARM_DOWN))
        q[:, joint_index(f"{side}_elbow")] = _turn(_Y, torch.full_like(beat, -sign * ELBOW_BEND))
    q[:, joint_index("spine3")] = _turn(_Y, CHEST_TURN * beat)

    facing = torch.tensor(FACING_Y, dtype=torch.float64)
    q[:, 0] = facing
    return Motion.from_rotations(skeleton, fps, pelvis @ facing.T, q, name="stepping in place")
