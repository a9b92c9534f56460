"""Glitches: a joint or the whole body jumps away for a few frames and back."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import JOINTS, NUM_JOINTS
from dropsim.body.rotations import rotmat_to_rotvec, rotvec_to_rotmat, transpose
from dropsim.motion.motion import Motion

LONGEST = 0.2
"""Duration of the longest glitch [s]; longer jumps may be meant."""
LEAST_TURN, LEAST_SHIFT = np.deg2rad(12.0), 0.04
"""Smallest jumps from frame to frame, beyond the motion around them, that are glitches [rad, m]."""
UNUSUAL = 3.0
"""Least size of a glitch's jumps, over the change of step that a tenth of the clip exceeds."""
SHARP = 0.4
"""Largest difference of the steps next to the jumps and between them, as a share of the jumps."""
ROOT = -1


@dataclass(frozen=True)
class Glitch:
    """A few frames in which a joint is somewhere else."""

    joint: int
    """Or ROOT for the path of the pelvis."""
    start: int
    stop: int
    """The frame after the last."""
    size: float
    """The smaller of the jumps away and back [rad, or m for the path]."""

    def described(self, first: int = 0) -> str:
        """Say what happens in which frames; `first` is the number of our first frame in the file."""
        turns = f"{JOINTS[self.joint]} turns by {np.rad2deg(self.size):.0f} degrees"
        what = f"the pelvis jumps by {100 * self.size:.0f} cm" if self.joint == ROOT else turns
        start, last = first + self.start, first + self.stop - 1
        frames = f"frame {start}" if start == last else f"frames {start} to {last}"
        return f"{frames}: {what} and back"


def find_glitches(motion: Motion, *, unusual: float = UNUSUAL) -> list[Glitch]:
    """Return the glitches of a recording, in order.

    Frames s to e - 1 are one where the steps into s and into e differ from the steps around them by more than any other
    step does, and where the frames s - 1 and e fit together without those between.
    """
    if len(motion) < 4:
        return []
    turns = rotmat_to_rotvec(transpose(motion.q[:-1]) @ motion.q[1:])
    glitches = _jumps(np.diff(motion.root, axis=0), ROOT, LEAST_SHIFT, unusual, motion.fps)
    for joint in range(NUM_JOINTS):
        glitches += _jumps(turns[:, joint], joint, LEAST_TURN, unusual, motion.fps)
    return sorted(glitches, key=lambda glitch: (glitch.start, glitch.joint))


def _jumps(steps: Float[np.ndarray, "t 3"], joint: int, least: float, unusual: float, fps: float) -> list[Glitch]:
    changes = np.linalg.norm(np.diff(steps, axis=0), axis=-1)
    limit = max(least, unusual * float(np.quantile(changes, 0.9)))
    # Beyond the ends, the motion goes on as it did.
    padded = np.concatenate((steps[:1], steps[:1], steps, steps[-1:], steps[-1:]))
    glitches: list[Glitch] = []
    seen = np.zeros(len(steps) + 1, bool)
    for length in range(1, max(1, round(LONGEST * fps)) + 1):
        if length + 1 >= len(steps):
            break
        # Two steps before the glitch, the one into it, those inside, the one out of it, and two after.
        seven = np.stack([padded[k : len(padded) - length - 4 + k] for k in range(length + 5)])
        usual = (seven[1] + seven[-2]) / 2
        off = np.linalg.norm(seven - usual, axis=-1)
        size = np.minimum(off[2], off[-3])
        opposed = np.linalg.norm(seven[2] + seven[-3] - 2 * usual, axis=-1) < 0.5 * size
        # Fast motion swells and ebbs; a glitch is sharp.
        sharp = np.delete(off, (2, length + 2), axis=0).max(0) < SHARP * size
        for k in np.flatnonzero((size > limit) & opposed & sharp):
            start, stop = int(k) + 1, int(k) + 1 + length
            if not seen[start:stop].any():
                seen[start:stop] = True
                glitches.append(Glitch(joint, start, stop, float(size[k])))
    return glitches


def without_glitches(motion: Motion, glitches: list[Glitch]) -> Motion:
    """Return a motion whose glitches are bridged by cubics, with the velocities before and after."""
    q, root = motion.q.copy(), motion.root.copy()
    for glitch in glitches:
        a, b, last = glitch.start - 1, glitch.stop, len(motion) - 1
        if glitch.joint == ROOT:
            root[glitch.start : b] = root[a] + _bridge(
                b - a, root[a] - root[max(a - 1, 0)], root[b] - root[a], root[min(b + 1, last)] - root[b]
            )
            continue
        R = q[:, glitch.joint]
        steps = (max(a - 1, 0), a), (a, b), (b, min(b + 1, last))
        before, across, after = (rotmat_to_rotvec(R[i].T @ R[j]) for i, j in steps)
        R[glitch.start : b] = R[a] @ rotvec_to_rotmat(_bridge(b - a, before, across, after))
    joints = motion.skeleton.forward(q, root) if glitches else motion.joints
    return replace(motion, q=q, root=root, joints=joints)


def _bridge(
    num: int, before: Float[np.ndarray, "3"], across: Float[np.ndarray, "3"], after: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "t 3"]:
    """Return the way to `across` in `num` frames, without its ends, with given steps a frame before and after."""
    u = (np.arange(1, num) / num)[:, None]
    return u * u * (3 - 2 * u) * across + num * (u * (1 - u) ** 2 * before - u * u * (1 - u) * after)
