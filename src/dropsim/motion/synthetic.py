"""Motions made by formula, for demonstrations and tests that need no recording."""

import math

import roma
import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import swing
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, joint_index
from dropsim.motion.motion import Motion

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


def _frame_times(seconds: float, fps: float) -> Float[Tensor, "t"]:
    if not (seconds > 0 and fps > 0 and math.isfinite(seconds * fps)):
        raise ValueError(f"cannot make a clip of {seconds} s at {fps} frames per second: give two positive numbers")
    return torch.arange(max(1, round(seconds * fps)), dtype=torch.float64) / fps


def stepping_clip(seconds: float = 4.0, fps: float = 30.0) -> Motion:
    """Return an average adult stepping in place and facing +y, one foot on the ground at any time and the arms against the legs."""
    time = _frame_times(seconds, fps)
    skeleton = Skeleton.adult()
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


GRAVITY = 9.81
"""Downward [m/s^2]."""
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
"""Hip, knee and ankle of a tucked leg; about rest x, so that the thigh goes to the front and the shank to the back [rad]."""

_FASTEST = 6.0
"""How fast the joints of a leg bend as it leaves the ground and as it comes to it, at most [rad/s]."""


def _curve(time: Float[Tensor, "t"], knots: Knots) -> Float[Tensor, "t"]:
    """Join knots by polynomials of fifth degree that keep their rates and accelerations; still before the first and after the last."""
    table = torch.tensor([(*row, 0.0, 0.0)[:4] for row in knots], dtype=torch.float64)
    at = torch.searchsorted(table[:, 0].contiguous(), time).clamp(1, len(knots) - 1)
    (t0, x0, v0, a0), (t1, x1, v1, a1) = table[at - 1].unbind(-1), table[at].unbind(-1)
    span = t1 - t0
    s = ((time - t0) / span).clamp(0, 1)
    # Powers from the third up make good what the parabola from the first knot misses at the second.
    miss, miss_v, miss_a = x1 - x0 - v0 * span - a0 * span**2 / 2, (v1 - v0 - a0 * span) * span, (a1 - a0) * span**2
    third, fourth, fifth = 10 * miss - 4 * miss_v + miss_a / 2, -15 * miss + 7 * miss_v - miss_a, 6 * miss - 3 * miss_v + miss_a / 2
    return x0 + v0 * span * s + a0 * (span * s) ** 2 / 2 + s**3 * (third + s * (fourth + s * fifth))


def _posed(pitch: Float[Tensor, "t"], legs: Float[Tensor, "t 3"], bends: dict[str, Float[Tensor, "t"]]) -> Float[Tensor, "t 22 3 3"]:
    """Return local rotations in the rest frame of a body that bends to the front and back only."""
    q = torch.eye(3, dtype=torch.float64).expand(len(pitch), NUM_JOINTS, 3, 3).clone()
    q[:, 0] = _turn(_X, -pitch)
    for name in ("spine1", "spine2", "spine3"):
        q[:, joint_index(name)] = _turn(_X, bends["spine"] / 3)
    for name in ("neck", "head"):
        q[:, joint_index(name)] = _turn(_X, bends["neck"] / 2)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        for angle, part in zip(legs.unbind(-1), ("hip", "knee", "ankle"), strict=True):
            q[:, joint_index(f"{side}_{part}")] = _turn(_X, angle)
        hanging = torch.full_like(pitch, -sign * ARM_DOWN)
        q[:, joint_index(f"{side}_shoulder")] = _turn(_X, -bends["shoulder"]) @ _turn(_Z, hanging)
        q[:, joint_index(f"{side}_elbow")] = _turn(_Y, -sign * bends["elbow"])
    return q


def _planted_legs(
    skeleton: Skeleton, time: Float[Tensor, "t"], pitch: Float[Tensor, "t"], bends: dict[str, Float[Tensor, "t"]]
) -> Float[Tensor, "t 3"]:
    """Return the angles of hip, knee and ankle that keep the toes on the ground with the centre of mass on its path."""
    hip, knee, ankle, toe = (joint_index(f"left_{part}") for part in ("hip", "knee", "ankle", "foot"))
    thigh, shank = float(skeleton.lengths[knee]), float(skeleton.lengths[ankle])
    down = bends["toes down"]
    toes = torch.stack(
        (torch.full_like(time, float(skeleton.radii[toe])), skeleton.offsets[toe, 2] - _BACKWARD * (time > TAKE_OFF)), dim=-1
    )
    place = toes - (_turn(_X, down) @ skeleton.offsets[toe])[:, 1:]
    centre = torch.stack((_curve(time, _UP), _curve(time, _AHEAD)), dim=-1)
    legs, pelvis = time.new_zeros(len(time), 3), centre
    for _ in range(60):  # the pelvis moves the centre of mass nearly as far as itself
        to_ankle = _turn(_X, pitch)[:, 1:, 1:] @ (place - pelvis).unsqueeze(-1)
        y, z = (to_ankle.squeeze(-1) - skeleton.offsets[hip, 1:]).unbind(-1)
        reach = (y.square() + z.square()).sqrt()
        at_hip = ((thigh**2 + reach**2 - shank**2) / (2 * thigh * reach)).clamp(-1, 1).acos()
        at_knee = ((thigh**2 + shank**2 - reach**2) / (2 * thigh * shank)).clamp(-1, 1).acos()
        bent = torch.stack((torch.atan2(-z, -y) - at_hip, math.pi - at_knee), dim=-1)
        legs = torch.cat((bent, (down + pitch - _TURN * (time > TAKE_OFF) - bent.sum(-1)).unsqueeze(-1)), dim=-1)
        joints = skeleton.forward(_posed(pitch, legs, bends), torch.nn.functional.pad(pelvis, (1, 0)))
        pelvis = pelvis + centre - skeleton.centre_of_mass(joints)[:, 1:]
    return legs


def _flying_legs(skeleton: Skeleton, time: Float[Tensor, "t"]) -> Float[Tensor, "t 3"]:
    """Tuck the legs, from where they leave the ground to where they find it."""
    eps = 1e-4
    ends = torch.tensor((TAKE_OFF - eps, TAKE_OFF, LANDING, LANDING + eps), dtype=torch.float64)
    off, last, first, on = _planted_legs(skeleton, ends, _curve(ends, _PITCH), _bends(ends)).tolist()
    # A leg that leaves the ground nearly straight would snap through: muscles brake it.
    knots = [
        ((TAKE_OFF, b, _braked((b - a) / eps)), (_TUCKED, tucked), (_OPENING, tucked), (LANDING, c, _braked((d - c) / eps)))
        for a, b, c, d, tucked in zip(off, last, first, on, _TUCK, strict=True)
    ]
    return torch.stack([_curve(time, one) for one in knots], dim=-1)


def _braked(rate: float) -> float:
    return max(-_FASTEST, min(_FASTEST, rate))


def _flying_pitch(skeleton: Skeleton, time: Float[Tensor, "t"]) -> Float[Tensor, "t"]:
    """Turn the pelvis at (L - L of the bending) / I, as a constant angular momentum L does that brings the whole turn about."""
    fine = torch.linspace(TAKE_OFF, LANDING, 701, dtype=torch.float64)
    step, still = float(fine[1] - fine[0]), torch.zeros_like(fine)
    q = _posed(still, _flying_legs(skeleton, fine), _bends(fine))
    joints = skeleton.forward(q, torch.zeros(len(fine), 3, dtype=torch.float64))
    arms = joints - skeleton.centre_of_mass(joints).unsqueeze(-2)
    speeds = torch.gradient(arms, spacing=step, dim=0)[0]
    inertia = (skeleton.masses * arms[..., 1:].square().sum(-1)).sum(-1)
    bending = -(skeleton.masses * torch.linalg.cross(arms, speeds)[..., 0]).sum(-1)  # backward, as the pitch is
    (start, end) = _curve(fine[[0, -1]], _PITCH).tolist()
    free, given = (torch.trapezoid(part, dx=step) for part in (1 / inertia, bending / inertia))
    rate = ((end - start + given) / free - bending) / inertia
    pitch = start + torch.nn.functional.pad(torch.cumulative_trapezoid(rate, dx=step), (1, 0))
    at = ((time - TAKE_OFF) / step).clamp(0, len(fine) - 1 - 1e-9)
    return torch.lerp(pitch[at.long()], pitch[at.long() + 1], at.frac())


def _bends(time: Float[Tensor, "t"]) -> dict[str, Float[Tensor, "t"]]:
    return {name: _curve(time, knots) for name, knots in _BENDS.items()}


def somersault_clip(seconds: float = 4.0, fps: float = 30.0) -> Motion:
    """Return the first seconds of an average adult's tucked back somersault, facing +y: stand, crouch, fly, land, stand.

    On the ground the centre of mass follows polynomials and the legs reach for the feet. In flight it is ballistic, and the pelvis turns
    as an angular momentum that nothing changes makes it turn.
    """
    time = _frame_times(seconds, fps)
    skeleton = Skeleton.adult()
    flying = (time > TAKE_OFF) & (time < LANDING)
    bends, pitch = _bends(time), torch.where(flying, _flying_pitch(skeleton, time), _curve(time, _PITCH))
    planted = _planted_legs(skeleton, time, pitch, bends)
    q = _posed(pitch, torch.where(flying.unsqueeze(-1), _flying_legs(skeleton, time), planted), bends)
    centre = torch.stack((torch.zeros_like(time), _curve(time, _UP), _curve(time, _AHEAD)), dim=-1)
    pelvis = centre - skeleton.centre_of_mass(skeleton.forward(q, torch.zeros_like(centre)))
    facing = torch.tensor(FACING_Y, dtype=torch.float64)
    q[:, 0] = facing @ q[:, 0]
    return Motion.from_rotations(skeleton, fps, pelvis @ facing.T, q, name="back somersault")
