"""Features of one-second windows, and the Frechet distance between two sets of them."""

import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import heading
from dropsim.body.skeleton import NUM_JOINTS
from dropsim.motion.motion import Motion

NUM_FEATURES = 32
SECONDS = 1.0
FRAMES = 10
"""Frames that are looked at in a window."""
VELOCITY_SCALE = 0.2
"""Weighs a velocity of 1 m/s like a distance of 0.2 m [s]."""
PROJECTION_SEED = 20231


def window_features(motion: Motion) -> Float[np.ndarray, "*b w f"]:
    """Return the features of the windows of a second, end to end, that a motion holds.

    Each frame's joints, and its joints' velocities, are seen from its own root: turned to face +y, the pelvis above the
    origin. Ten frames of a window go through a fixed random projection to 32 numbers.
    """
    span = round(SECONDS * motion.fps)
    count = (len(motion) - 1) // span
    back = heading(motion.q[..., :-1, 0, :, :]).swapaxes(-1, -2)
    joints = (motion.joints - (motion.root * (1.0, 1.0, 0.0))[..., None, :])[..., :-1, :, :] @ back
    velocity = (np.diff(motion.joints, axis=-3) * motion.fps) @ back
    frames = np.concatenate((joints, VELOCITY_SCALE * velocity), axis=-2)
    at = span * np.arange(count)[:, None] + np.rint(np.linspace(0, span - 1, FRAMES)).astype(int)
    size = FRAMES * 6 * NUM_JOINTS
    windows = frames[..., at, :, :].reshape(*frames.shape[:-3], count, size)
    return windows @ _projection(size)


@functools.cache
def _projection(size: int) -> Float[np.ndarray, "s f"]:
    """Return normal numbers as torch draws them (Box and Muller, 16 at a time), as the first edition did."""
    drawn = (
        np.random.RandomState(PROJECTION_SEED)
        .randint(0, 2**32, (size * NUM_FEATURES, 2), dtype=np.uint32)
        .astype(np.uint64)
    )
    uniform = ((drawn[:, 0] << 32 | drawn[:, 1]) % 2**53 * 2.0**-53).reshape(-1, 2, 8)
    radius, angle = np.sqrt(-2 * np.log(1 - uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(size, NUM_FEATURES) / size**0.5


def frechet(a: Float[np.ndarray, "n f"], b: Float[np.ndarray, "m f"]) -> float:
    """Distance between Gaussians fitted to two sets: |mean_a - mean_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2))."""
    if min(len(a), len(b)) < 2:
        return float("nan")
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    values, vectors = np.linalg.eigh(cov_a)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    # C_a C_b has the eigenvalues of the symmetric C_a^(1/2) C_b C_a^(1/2).
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ cov_b @ root), 0)).sum()
    # The distance of a set to itself is rounding, which may be below zero.
    return max(0.0, float(np.square(a.mean(0) - b.mean(0)).sum() + cov_a.trace() + cov_b.trace() - 2 * cross))


def all_features(motions: Sequence[Motion]) -> Float[np.ndarray, "n f"]:
    """Return the features of every window of some motions; those that are too short add none."""
    return np.concatenate([window_features(m).reshape(-1, NUM_FEATURES) for m in motions])


def alternate_features(motions: Sequence[Motion]) -> tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "n f"]]:
    """Return the features of every other window, and of the windows after those."""
    parts = [window_features(m) for m in motions]
    even, odd = (np.concatenate([p[i : len(p) // 2 * 2 : 2] for p in parts]) for i in (0, 1))
    return even, odd
