"""Features of one-second windows, and the Frechet distance between two sets of them."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import heading
from dropsim.motion.motion import Motion

NUM_FEATURES = 32
SECONDS = 1.0
FRAMES = 10
"""Frames that are looked at in a window."""
VELOCITY_SCALE = 0.2
"""Weighs a velocity of 1 m/s like a distance of 0.2 m [s]."""
PROJECTION_SEED = 20231


def window_features(motion: Motion) -> Float[Tensor, "*b w f"]:
    """Return the features of the windows of a second, end to end, that a motion holds.

    Each frame's joints, and its joints' velocities, are seen from its own root: turned to face +y, the pelvis above the origin. Ten
    frames of a window go through a fixed random projection to 32 numbers.
    """
    span = round(SECONDS * motion.fps)
    count = (len(motion) - 1) // span
    back = heading(motion.q[..., :-1, 0, :, :]).transpose(-1, -2)
    ground = motion.root * torch.tensor([1.0, 1.0, 0.0]).to(motion.root)
    joints = (motion.joints - ground.unsqueeze(-2))[..., :-1, :, :] @ back
    velocity = (motion.joints.diff(dim=-3) * motion.fps) @ back
    frames = torch.cat((joints.flatten(-2), VELOCITY_SCALE * velocity.flatten(-2)), dim=-1)
    inside = torch.linspace(0, span - 1, FRAMES).round().long()
    at = span * torch.arange(count).unsqueeze(-1) + inside
    windows = frames[..., at, :].flatten(-2).double()
    rng = torch.Generator().manual_seed(PROJECTION_SEED)
    size = windows.shape[-1]
    return windows @ (torch.randn(size, NUM_FEATURES, generator=rng, dtype=torch.float64) / size**0.5)


def frechet(a: Float[Tensor, "n f"], b: Float[Tensor, "m f"]) -> float:
    """Distance between Gaussians fitted to two sets: |mean_a - mean_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2))."""
    if min(len(a), len(b)) < 2:
        return float("nan")
    cov_a, cov_b = a.T.cov(), b.T.cov()
    values, vectors = torch.linalg.eigh(cov_a)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    # C_a C_b has the eigenvalues of the symmetric C_a^(1/2) C_b C_a^(1/2).
    cross = torch.linalg.eigvalsh(root @ cov_b @ root).clamp(min=0).sqrt().sum()
    # Of a set and itself it is nothing but rounding, which may be below zero.
    return max(0.0, float((a.mean(0) - b.mean(0)).square().sum() + cov_a.trace() + cov_b.trace() - 2 * cross))


def all_features(motions: Sequence[Motion]) -> Float[Tensor, "n f"]:
    """Return the features of every window of some motions; those that are too short add none."""
    return torch.cat([window_features(m).reshape(-1, NUM_FEATURES) for m in motions])


def alternate_features(motions: Sequence[Motion]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n f"]]:
    """Return the features of every other window, and of the windows after those."""
    parts = [window_features(m) for m in motions]
    return torch.cat([p[: len(p) // 2 * 2 : 2] for p in parts]), torch.cat([p[1 : len(p) // 2 * 2 : 2] for p in parts])
