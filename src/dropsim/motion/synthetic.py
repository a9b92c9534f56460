"""Motions made by formula, for demonstrations and tests that need no recording."""

import math

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import apply, rotvec_to_rotmat, swing, transpose
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion

FACING_Y = np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
"""Root orientation of a person who stands upright and faces world +y: rest left to -x, rest up to z, rest front to
+y."""

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

_X, _Y, _Z = np.eye(3)


def _turn(axis: Float[np.ndarray, "3"], angle: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t 3 3"]:
    return rotvec_to_rotmat(angle[..., None] * axis)


def _leg(
    thigh: float, shank: float, hip_to_ankle: Float[np.ndarray, "t 3"], foot: Float[np.ndarray, "t 3 3"]
) -> tuple[Float[np.ndarray, "t 3 3"], Float[np.ndarray, "t 3 3"], Float[np.ndarray, "t 3 3"]]:
    """Return the hip, knee and ankle rotations that put the ankle there with the knee to the front (law of cosines)."""
    at_hip, at_knee = _triangle(thigh, shank, np.linalg.norm(hip_to_ankle, axis=-1))
    # About rest x, a negative turn brings the thigh to the front and a positive one the shank to the back.
    hip = swing(-_Y, hip_to_ankle) @ _turn(_X, -at_hip)
    knee = _turn(_X, math.pi - at_knee)
    return hip, knee, transpose(hip @ knee) @ foot


def _triangle(
    thigh: float, shank: float, reach: Float[np.ndarray, "t"]
) -> tuple[Float[np.ndarray, "t"], Float[np.ndarray, "t"]]:
    """Return the angles at the hip and at the knee of a leg whose ankle is `reach` from the hip."""
    at_hip = np.arccos(np.clip((thigh**2 + reach**2 - shank**2) / (2 * thigh * reach), -1, 1))
    return at_hip, np.arccos(np.clip((thigh**2 + shank**2 - reach**2) / (2 * thigh * shank), -1, 1))


def _frame_times(seconds: float, fps: float) -> Float[np.ndarray, "t"]:
    if not (seconds > 0 and fps > 0 and math.isfinite(seconds * fps)):
        raise ValueError(f"cannot make a clip of {seconds} s at {fps} frames per second: give two positive numbers")
    return np.arange(max(1, round(seconds * fps))) / fps


def stepping_clip(seconds: float = 4.0, fps: float = 30.0) -> Motion:
    """Return an average adult stepping in place and facing +y, one foot on the ground at any time and the arms against the legs."""
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


TAKE_OFF, LANDING = 1.32, 2.02
"""When a somersault's feet leave the ground and when they are back [s]."""
_STILL, _CROUCHED, _ABSORBED, _RISEN = 0.35, 1.0, 2.31, 3.2
"""When it begins to crouch, when the crouch and the landing are deepest, and when it stands again [s]."""
_BACKWARD = 0.34
"""How far its feet land behind where they left the ground [m]."""

Knots = tuple[tuple[float, ...], ...]
"""Rows of time [s], value, and where they are not zero its rate and acceleration."""

_RISE, _TRAVEL = 3.15, -0.36
"""Velocity of the centre of mass at the take-off, upward and to the front [m/s]."""
_UP: Knots = (
    (_STILL, 0.965), (_CROUCHED, 0.66, 0.0, 9.0), (TAKE_OFF, 1.09, _RISE, -GRAVITY),
    (LANDING, 1.09 + _RISE * 0.7 - GRAVITY * 0.245, _RISE - GRAVITY * 0.7, -GRAVITY), (_ABSORBED, 0.55, 0.0, 3.0), (_RISEN, 0.965),
)  # fmt: skip
_AHEAD: Knots = (
    (_STILL, 0.045), (_CROUCHED, 0.03), (TAKE_OFF, -0.04, _TRAVEL), (LANDING, -0.04 + 0.7 * _TRAVEL, _TRAVEL), (_ABSORBED, -0.29),
    (_RISEN, -_BACKWARD + 0.045),
)  # fmt: skip
"""The centre of mass above the floor and in front of where the ankles stand first [m]."""
_TURN = 2 * math.pi
_PITCH: Knots = (
    (_STILL, 0.0), (_CROUCHED, -0.75), (TAKE_OFF, 0.25, 6.5), (LANDING, _TURN - 0.75, 4.0), (_ABSORBED, _TURN - 0.75), (_RISEN, _TURN),
)  # fmt: skip
"""Of the pelvis, backward [rad]; between take-off and landing only the ends count."""
_BENDS: dict[str, Knots] = {
    "toes down": ((_STILL, 0.0), (TAKE_OFF - 0.14, 0.0), (TAKE_OFF, 1.0, 5.0), (LANDING, 0.25, -3.0), (LANDING + 0.1, 0.0)),
    "spine": (
        (_STILL, 0.0), (_CROUCHED, 0.35), (TAKE_OFF, -0.25), (1.58, 0.9), (1.78, 0.9), (LANDING, 0.25), (_ABSORBED, 0.35), (_RISEN, 0.0),
    ),
    "neck": (
        (_STILL, 0.0), (_CROUCHED, -0.4), (TAKE_OFF, -0.3), (1.58, 0.3), (1.78, 0.1), (LANDING, -0.3), (_ABSORBED, -0.3), (_RISEN, 0.0),
    ),
    "shoulder": (
        (_STILL, 0.1), (0.7, 0.9), (0.94, -0.7), (TAKE_OFF, 2.2, 7.0), (1.64, 0.9), (1.76, 0.9), (LANDING, 1.4),
        (_ABSORBED, 1.1), (_RISEN, 0.1),
    ),
    "elbow": (
        (_STILL, 0.25), (_CROUCHED, 0.2), (TAKE_OFF, 0.3), (1.60, 1.0), (1.76, 1.0), (LANDING, 0.5), (_ABSORBED, 0.7), (_RISEN, 0.25),
    ),
}  # fmt: skip
"""[rad]; spine and neck to the front, the shoulder from a hanging arm to the front and up."""
_TUCKED, _OPENING = 1.60, 1.76
_TUCK = (-2.15, 2.2, 0.5)
"""Hip, knee and ankle of a tucked leg; about rest x, so that the thigh goes to the front and the shank to the back
[rad]."""

_FASTEST = 6.0
"""How fast the joints of a leg bend as it leaves the ground and as it comes to it, at most [rad/s]."""


def _curve(time: Float[np.ndarray, "t"], knots: Knots) -> Float[np.ndarray, "t"]:
    """Join knots by polynomials of fifth degree that keep their rates and accelerations; still before the first and after the last."""
    table = np.array([(*row, 0.0, 0.0)[:4] for row in knots])
    at = np.clip(np.searchsorted(table[:, 0], time), 1, len(knots) - 1)
    (t0, x0, v0, a0), (t1, x1, v1, a1) = table[at - 1].T, table[at].T
    span = t1 - t0
    s = np.clip((time - t0) / span, 0, 1)
    # Powers from the third up make good what the parabola from the first knot misses at the second.
    miss, miss_v, miss_a = x1 - x0 - v0 * span - a0 * span**2 / 2, (v1 - v0 - a0 * span) * span, (a1 - a0) * span**2
    third, fourth, fifth = (
        10 * miss - 4 * miss_v + miss_a / 2,
        -15 * miss + 7 * miss_v - miss_a,
        6 * miss - 3 * miss_v + miss_a / 2,
    )
    return x0 + v0 * span * s + a0 * (span * s) ** 2 / 2 + s**3 * (third + s * (fourth + s * fifth))


def _posed(
    pitch: Float[np.ndarray, "t"], legs: Float[np.ndarray, "t 3"], bends: dict[str, Float[np.ndarray, "t"]]
) -> Float[np.ndarray, "t 22 3 3"]:
    """Return local rotations in the rest frame of a body that bends to the front and back only."""
    q = np.tile(np.eye(3), (len(pitch), NUM_JOINTS, 1, 1))
    q[:, 0] = _turn(_X, -pitch)
    for name in ("spine1", "spine2", "spine3"):
        q[:, joint_index(name)] = _turn(_X, bends["spine"] / 3)
    for name in ("neck", "head"):
        q[:, joint_index(name)] = _turn(_X, bends["neck"] / 2)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        for angle, part in zip(legs.T, ("hip", "knee", "ankle"), strict=True):
            q[:, joint_index(f"{side}_{part}")] = _turn(_X, angle)
        hanging = np.full_like(pitch, -sign * ARM_DOWN)
        q[:, joint_index(f"{side}_shoulder")] = _turn(_X, -bends["shoulder"]) @ _turn(_Z, hanging)
        q[:, joint_index(f"{side}_elbow")] = _turn(_Y, -sign * bends["elbow"])
    return q


def _planted_legs(
    skeleton: Skeleton,
    time: Float[np.ndarray, "t"],
    pitch: Float[np.ndarray, "t"],
    bends: dict[str, Float[np.ndarray, "t"]],
) -> Float[np.ndarray, "t 3"]:
    """Return the angles of hip, knee and ankle that keep the toes on the ground with the centre of mass on its path."""
    hip, knee, ankle, toe = (joint_index(f"left_{part}") for part in ("hip", "knee", "ankle", "foot"))
    thigh, shank = float(skeleton.lengths[knee]), float(skeleton.lengths[ankle])
    down = bends["toes down"]
    toes = np.stack(
        (np.full_like(time, skeleton.radii[toe]), skeleton.offsets[toe, 2] - _BACKWARD * (time > TAKE_OFF)), axis=-1
    )
    place = toes - apply(_turn(_X, down), skeleton.offsets[toe])[:, 1:]
    centre = np.stack((_curve(time, _UP), _curve(time, _AHEAD)), axis=-1)
    legs, pelvis = np.zeros((len(time), 3)), centre
    for _ in range(60):  # the pelvis moves the centre of mass nearly as far as itself
        to_ankle = _turn(_X, pitch)[:, 1:, 1:] @ (place - pelvis)[..., None]
        y, z = (to_ankle[..., 0] - skeleton.offsets[hip, 1:]).T
        at_hip, at_knee = _triangle(thigh, shank, np.hypot(y, z))
        hips, knees = np.arctan2(-z, -y) - at_hip, math.pi - at_knee
        legs = np.stack((hips, knees, down + pitch - _TURN * (time > TAKE_OFF) - hips - knees), axis=-1)
        joints = skeleton.forward(_posed(pitch, legs, bends), np.pad(pelvis, ((0, 0), (1, 0))))
        pelvis = pelvis + centre - skeleton.centre_of_mass(joints)[:, 1:]
    return legs


def _flying_legs(skeleton: Skeleton, time: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t 3"]:
    """Tuck the legs, from where they leave the ground to where they find it."""
    eps = 1e-4
    ends = np.array((TAKE_OFF - eps, TAKE_OFF, LANDING, LANDING + eps))
    off, last, first, on = _planted_legs(skeleton, ends, _curve(ends, _PITCH), _bends(ends)).tolist()
    # A leg that leaves the ground nearly straight would snap through: muscles brake it.
    knots = [
        (
            (TAKE_OFF, b, _braked((b - a) / eps)),
            (_TUCKED, tucked),
            (_OPENING, tucked),
            (LANDING, c, _braked((d - c) / eps)),
        )
        for a, b, c, d, tucked in zip(off, last, first, on, _TUCK, strict=True)
    ]
    return np.stack([_curve(time, one) for one in knots], axis=-1)


def _braked(rate: float) -> float:
    return max(-_FASTEST, min(_FASTEST, rate))


def _flying_pitch(skeleton: Skeleton, time: Float[np.ndarray, "t"]) -> Float[np.ndarray, "t"]:
    """Turn the pelvis at (L - L of the bending) / I, as a constant angular momentum L does that brings the whole turn about."""
    fine = np.linspace(TAKE_OFF, LANDING, 701)
    step = fine[1] - fine[0]
    q = _posed(np.zeros_like(fine), _flying_legs(skeleton, fine), _bends(fine))
    joints = skeleton.forward(q, np.zeros((len(fine), 3)))
    arms = joints - skeleton.centre_of_mass(joints)[:, None]
    inertia = (skeleton.masses * (arms[..., 1:] ** 2).sum(-1)).sum(-1)
    bending = -(skeleton.masses * np.cross(arms, np.gradient(arms, step, axis=0))[..., 0]).sum(
        -1
    )  # backward, as the pitch is
    start, end = _curve(fine[[0, -1]], _PITCH)
    rate = (
        (end - start + np.trapezoid(bending / inertia, dx=step)) / np.trapezoid(1 / inertia, dx=step) - bending
    ) / inertia
    pitch = start + np.concatenate(([0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * step)))
    return np.interp(time, fine, pitch)


def _bends(time: Float[np.ndarray, "t"]) -> dict[str, Float[np.ndarray, "t"]]:
    return {name: _curve(time, knots) for name, knots in _BENDS.items()}


def somersault_clip(seconds: float = 4.0, fps: float = 30.0) -> Motion:
    """Return the first seconds of an average adult's tucked back somersault, facing +y: stand, crouch, fly, land, stand.

    On the ground the centre of mass follows polynomials and the legs reach for the feet. In flight it is ballistic, and
    the pelvis turns as an angular momentum that nothing changes makes it turn.
    """
    time = _frame_times(seconds, fps)
    skeleton = Skeleton.adult()
    flying = (time > TAKE_OFF) & (time < LANDING)
    bends, pitch = _bends(time), np.where(flying, _flying_pitch(skeleton, time), _curve(time, _PITCH))
    planted = _planted_legs(skeleton, time, pitch, bends)
    q = _posed(pitch, np.where(flying[:, None], _flying_legs(skeleton, time), planted), bends)
    centre = np.stack((np.zeros_like(time), _curve(time, _UP), _curve(time, _AHEAD)), axis=-1)
    pelvis = centre - skeleton.centre_of_mass(skeleton.forward(q, np.zeros_like(centre)))
    q[:, 0] = FACING_Y @ q[:, 0]
    return Motion.from_rotations(skeleton, fps, pelvis @ FACING_Y.T, q, name="back somersault")
