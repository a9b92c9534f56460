"""Motions for demonstrations and tests that need no recording."""

import math
from importlib import resources

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import rotvec_to_rotmat, swing, transpose
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.files.npz import read_npz
from dropsim.motion.motion import Motion

FACING_Y = np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
"""Root orientation of a person who stands upright and faces world +y: rest left to -x, rest up to z, rest front to
+y."""

CADENCE = 0.9
"""Steps of one foot a second [Hz]."""
LIFT = 0.14
"""Highest point of the ankle above its place on the ground [m]."""
CROUCH = 0.03
"""Distance of the pelvis below a straight-legged stand while both feet are down [m]."""
RISE = 0.015
"""Rise of the pelvis over the standing leg [m]."""
SWAY = 0.04
"""Sway of the pelvis over the standing foot [m]."""
TOE_DROP = 0.35
"""Pitch of the lifted foot, toes down [rad]."""
ARM_SWING = 0.45
"""Swing of the arms to the front and back [rad]."""
ARM_DOWN = 1.35
"""Angle from the T-pose's level arms to hanging ones [rad]."""
ELBOW_BEND = 0.5
"""Bend of the elbows [rad]."""
CHEST_TURN = 0.12
"""Turn of the shoulders with the arms [rad]."""

_X, _Y, _Z = np.eye(3)


def _turn(axis: Float[np.ndarray, "3"], angle: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t 3 3"]:
    return rotvec_to_rotmat(angle[..., None] * axis)


def _leg(
    thigh: float, shank: float, hip_to_ankle: Float[np.ndarray, "t 3"], foot: Float[np.ndarray, "t 3 3"]
) -> tuple[Float[np.ndarray, "t 3 3"], Float[np.ndarray, "t 3 3"], Float[np.ndarray, "t 3 3"]]:
    """Return the hip, knee and ankle rotations that put the ankle there with the knee to the front (law of cosines)."""
    reach = np.linalg.norm(hip_to_ankle, axis=-1)
    at_hip = np.arccos(np.clip((thigh**2 + reach**2 - shank**2) / (2 * thigh * reach), -1, 1))
    at_knee = np.arccos(np.clip((thigh**2 + shank**2 - reach**2) / (2 * thigh * shank), -1, 1))
    # About rest x, a negative turn brings the thigh to the front and a positive one the shank to the back.
    hip = swing(-_Y, hip_to_ankle) @ _turn(_X, -at_hip)
    knee = _turn(_X, math.pi - at_knee)
    return hip, knee, transpose(hip @ knee) @ foot


def _frame_times(seconds: float, fps: float) -> Float[np.ndarray, "t"]:
    if not (seconds > 0 and fps > 0 and math.isfinite(seconds * fps)):
        raise ValueError(f"cannot make a clip of {seconds} s at {fps} frames per second: give two positive numbers")
    return np.arange(max(1, round(seconds * fps))) / fps


def stepping_clip(seconds: float = 4.0, fps: float = 30.0) -> Motion:
    """Return an average adult stepping in place and facing +y, one foot on the ground, the arms against the legs."""
    time = _frame_times(seconds, fps)
    skeleton = Skeleton.adult()
    # The left foot is up in the first half of the cycle, the right foot in the second.
    beat = np.sin(2 * math.pi * CADENCE * time)
    pelvis = np.zeros((len(time), 3))
    pelvis[:, 0] = -SWAY * beat
    pelvis[:, 1] = skeleton.standing_height - CROUCH + RISE * beat**2

    q = np.tile(np.eye(3), (len(time), NUM_JOINTS, 1, 1))
    for side, sign in (("left", 1.0), ("right", -1.0)):
        joints = [joint_index(f"{side}_{part}") for part in ("hip", "knee", "ankle")]
        hip, knee, ankle = joints
        # Squared, so that the foot leaves the ground and lands without a jump in speed.
        lifted = np.maximum(sign * beat, 0) ** 2
        place = skeleton.rest[ankle] - skeleton.rest[0] + skeleton.standing_height * _Y
        target = place + LIFT * lifted[:, None] * _Y
        hip_to_ankle = target - pelvis - skeleton.offsets[hip]
        legs = _leg(
            float(skeleton.lengths[knee]), float(skeleton.lengths[ankle]), hip_to_ankle, _turn(_X, TOE_DROP * lifted)
        )
        q[:, joints] = np.stack(legs, axis=1)
        q[:, joint_index(f"{side}_shoulder")] = _turn(_X, sign * ARM_SWING * beat) @ _turn(
            _Z, np.full_like(beat, -sign * ARM_DOWN)
        )
        q[:, joint_index(f"{side}_elbow")] = _turn(_Y, np.full_like(beat, -sign * ELBOW_BEND))
    q[:, joint_index("spine3")] = _turn(_Y, CHEST_TURN * beat)

    q[:, 0] = FACING_Y
    return Motion.from_rotations(skeleton, fps, pelvis @ FACING_Y.T, q, name="stepping in place")


def somersault_clip(seconds: float = 4.0) -> Motion:
    """Return the first seconds of an average adult's tucked back somersault at 30 Hz, facing +y.

    It was computed once: on the ground the legs reach for the feet; in flight the centre of mass is ballistic and the
    angular momentum constant.
    """
    with resources.as_file(resources.files("dropsim") / "assets" / "somersault.npz") as path:
        arrays = read_npz(path, {"root", "q"}.__contains__)
    motion = Motion.from_rotations(Skeleton.adult(), 30.0, arrays["root"], arrays["q"], name="back somersault")
    return motion.slice(0, len(_frame_times(seconds, motion.fps)))
