"""Posture: how far pelvis, chest and face of people who walk point up or down."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.joints import joint_index
from dropsim.motion.motion import Motion

WALKING = (0.5, 2.0)
"""Slowest and fastest that a walker's pelvis is over the second around a frame [m/s]."""
UPRIGHT = 0.75
"""Share of the standing height above which pelvis and head are those of somebody upright."""
LOOKS_AHEAD = (-15.0, 10.0)
"""Lowest and highest median pitch of a face that looks ahead [degrees]: walkers look 0 to 10 degrees below the
horizon."""

BOWED = 20.0
"""Median pitch beyond which people bow, look up or stick out the pelvis [degrees]."""


def pitch(motion: Motion, joint: str) -> Float[np.ndarray, "*b t"]:
    """Return the angle of a joint's forward axis above the horizon [degrees]."""
    forward = motion.skeleton.global_rotations(motion.q)[..., joint_index(joint), :, 2]
    return np.degrees(np.arcsin(np.clip(forward[..., 2], -1.0, 1.0)))


def walks(motion: Motion) -> Bool[np.ndarray, "*b t"]:
    """Tell the frames in which people walk upright."""
    now, half = np.arange(len(motion)), round(motion.fps / 2)
    before, after = np.maximum(now - half, 0), np.minimum(now + half, len(motion) - 1)
    way = np.linalg.norm(motion.root[..., after, :2] - motion.root[..., before, :2], axis=-1)
    speed = way * motion.fps / np.maximum(after - before, 1)
    up = motion.skeleton.rest[:, 1] - (motion.skeleton.rest[:, 1] - motion.skeleton.radii).min()
    tall = [joint_index("pelvis"), joint_index("head")]
    return (speed > WALKING[0]) & (speed < WALKING[1]) & (motion.joints[..., tall, 2] > UPRIGHT * up[tall]).all(-1)


def walking_pitches(motion: Motion, *, every: int = 1) -> Float[np.ndarray, "*b n 3"]:
    """Return the pitches of head, pelvis and chest in some frames [degrees]; NaN where people do not walk upright."""
    pitches = np.stack([pitch(motion, joint)[..., ::every] for joint in ("head", "pelvis", "spine3")], -1)
    return np.where(walks(motion)[..., ::every, None], pitches, np.nan)


@dataclass(frozen=True)
class Posture:
    """Median pitches of people who walk upright [degrees], + up; NaN if nobody does."""

    face: float
    pelvis: float
    chest: float
    frames: int
    """Frames of walking."""

    @classmethod
    def of(cls, motions: Iterable[Motion]) -> "Posture":
        """Measure motions together."""
        pitches = np.concatenate([np.zeros((0, 3)), *(walking_pitches(motion) for motion in motions)])
        pitches = pitches[np.isfinite(pitches[:, 0])]
        medians = np.median(pitches, axis=0) if len(pitches) else np.full(3, np.nan)
        face, pelvis, chest = medians.tolist()
        return cls(face, pelvis, chest, len(pitches))

    def __str__(self) -> str:
        if not self.frames:
            return "nobody walks upright"
        where = (
            "at the floor" if self.face < LOOKS_AHEAD[0] else "at the sky" if self.face > LOOKS_AHEAD[1] else "ahead"
        )
        pitches = f"face {self.face:+.0f}, pelvis {self.pelvis:+.0f}, chest {self.chest:+.0f} degrees (+ up)"
        return f"people who walk look {where}: {pitches}"

    @property
    def bows(self) -> bool:
        """Whether people walk with the face, the chest or the pelvis turned far up or down."""
        return bool(self.frames) and max(abs(self.face), abs(self.pelvis), abs(self.chest)) >= BOWED

    @property
    def remedy(self) -> str:
        """Advice for people who look at the floor or the sky; empty for others."""
        if not self.frames or LOOKS_AHEAD[0] <= self.face <= LOOKS_AHEAD[1]:
            return ""
        advice = "if that is not what was recorded, name a pose that looks ahead under [standing] of a map"
        return f"{advice} (`dropsim rig FILE --save map.toml`)"
