"""The recovery test of a prior alone: does it return to its own distribution after a shove that no recording has?

The one-step energy of a frame is the squared distance, summed over the joints [m^2], between where the body would
coast, x_t + h v_t, and the nearest of K candidates of the next frame: the kinematic energy E_kin of a body without any
physics of its own. v_t is the velocity of the last step, and at the displaced frame the shoved one. Curves are smoothed
over 5 frames. A rollout is back at the first time within 2 s from which on its energy stays for 0.5 s within the 95th
percentile of all frames of rollouts from the same starts without a shove. Runners and jumpers set that limit, and many
shoves do not reach it (`left_share`); held to the limit of its own motion category, a rollout has a harder test.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp, normalize
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.prior import Prior, State
from dropsim.research.evaluation.people import motion_of

SHOVE = (0.3, 1.0)
"""Horizontal velocity that the whole body gets, in any direction [m/s]."""
REACH = (0.05, 0.15)
"""Way of the furthest joint when one to three joints are bent [m]."""
WITHIN = 2.0
"""Time to be back in [s]."""
STAY = 0.5
"""Time to stay there [s]."""
SMOOTH = 5
"""Frames over which curves are smoothed."""
CHUNK = 64
"""People at a time: more are no faster, and this keeps the memory small."""

_BENDS = {0: 3, 1: 4, 2: 5, 3: 6, 4: 7, 5: 8, 6: 9, 9: 12, 13: 16, 14: 17, 16: 18, 17: 19, 18: 20, 19: 21}
"""Joints that bend and the child whose bone they swing: those with enough below them to move something by 15 cm."""


def displaced(state: State, prior: Prior, rng: Streams) -> State:
    """Bend one to three joints so that the furthest joint moves by 5-15 cm, and shove the whole body by 0.3-1 m/s.

    Bones stay whole. A body that the bend puts into the floor is lifted out of it, as far as it was out before.
    """
    joints = list(_BENDS)
    count = 1 + (3 * rng.uniform(1)).astype(int)
    chosen = rng.uniform(len(joints)).argsort(-1).argsort(-1) < count
    bones = (state.q[..., joints, :, :] @ prior.skeleton.offsets[list(_BENDS.values())][..., None])[..., 0]
    # About axes across the bone: a twist along it would move nothing.
    axes = np.cross(rng.normal(len(joints), 3), normalize(bones)) * chosen[..., None]
    far, fast, where = np.moveaxis(rng.uniform(3), -1, 0)
    q, x = _bent(state, prior.skeleton, joints, axes, REACH[0] + (REACH[1] - REACH[0]) * far)
    speed, angle = SHOVE[0] + (SHOVE[1] - SHOVE[0]) * fast, 2 * np.pi * where
    shove = speed[..., None] * np.stack((np.cos(angle), np.sin(angle), np.zeros_like(angle)), axis=-1)
    return State(x, state.v + shove[..., None, :], q, prior.apply_impulse(state.memory, shove))


def _bent(
    state: State, skeleton: Skeleton, joints: list[int], axes: Float[np.ndarray, "*b j 3"], reach: metrics.Numbers
) -> tuple[Float[np.ndarray, "*b 22 3 3"], Float[np.ndarray, "*b 22 3"]]:
    """Turn joints about the given axes until the furthest joint has moved by reach [m]."""
    depth = np.minimum((state.x[..., 2] - skeleton.radii).min(-1), 0)

    def at(scale: metrics.Numbers) -> tuple[np.ndarray, np.ndarray]:
        turns = np.zeros_like(state.x)
        turns[..., joints, :] = scale[..., None, None] * axes
        q = exp(turns) @ state.q
        x = skeleton.forward(q, state.x[..., 0, :])
        x[..., 2] += np.maximum(depth - (x[..., 2] - skeleton.radii).min(-1), 0)[..., None]
        return q, x

    # Joints move about in proportion to the angle, so that a few steps of proportion find it.
    scale = np.full_like(reach, 0.1)
    for _ in range(20):
        moved = np.linalg.norm(at(scale)[1] - state.x, axis=-1).max(-1)
        scale = scale * np.clip(reach / np.maximum(moved, 1e-6), 0.5, 2.0)
    return at(scale)


@np.errstate(invalid="ignore", over="ignore")
def energy_curves(
    prior: Prior, start: State, num_frames: int, num_samples: int, rng: Streams
) -> tuple[Float[np.ndarray, "*b t"], Motion]:
    """Roll a prior out, sampled, and return the one-step energy of every frame [m^2] and the motion."""
    states, energies = [start], []
    for _ in range(num_frames):
        state = states[-1]
        candidates = prior.propose(state, num_samples, rng)
        coasting = state.x + state.v / prior.fps
        energies.append(np.square(candidates.x - coasting[..., None, :, :]).sum((-1, -2)).min(-1))
        # The second is the first that is sampled; a prior that has only its mode goes on with that.
        chosen = candidates.pick(min(1, candidates.x.shape[-3] - 1))
        memory = prior.commit(chosen, chosen.x, chosen.q)
        states.append(State(chosen.x, (chosen.x - state.x) * prior.fps, chosen.q, memory))
    return np.stack(energies, axis=-1), motion_of(prior, states)


def smoothed(curves: Float[np.ndarray, "b t"]) -> Float[np.ndarray, "b t"]:
    """Average over 5 frames around each, fewer at the ends."""
    padded = np.pad(curves, ((0, 0), (SMOOTH // 2, SMOOTH // 2)), constant_values=np.nan)
    return np.nanmean(np.lib.stride_tricks.sliding_window_view(padded, SMOOTH, axis=-1), axis=-1)


def return_times(curves: np.ndarray, limits: Float[np.ndarray, "b"], fps: float) -> Float[np.ndarray, "b"]:
    """Return the time from which on each curve stays within its limit for half a second [s]; infinite after 2 s."""
    inside = metrics.sustained(curves <= limits[:, None], round(STAY * fps))[:, : round(WITHIN * fps) + 1]
    return np.where(inside.any(-1), inside.argmax(-1) / fps, np.inf)


def returns_of(shoved: np.ndarray, calm: np.ndarray, limits: Float[np.ndarray, "b"], fps: float) -> dict[str, float]:
    """Judge smoothed curves with and without a shove by a limit for each.

    back_share is the share that is back within 2 s, left_share that which the shove puts above the limit within the
    first 5 frames, calm_share that of the rollouts without a shove that pass the same test; median_seconds counts
    rollouts that are never back as infinite.
    """
    times, calm_times = (return_times(curves, limits, fps) for curves in (shoved, calm))
    left = (shoved[:, :SMOOTH] > limits[:, None]).any(-1)
    flags = {"back_share": np.isfinite(times), "left_share": left, "calm_share": np.isfinite(calm_times)}
    shares = {name: float(values.mean()) for name, values in flags.items()}
    return shares | {"median_seconds": float(np.median(times))}


@dataclass(frozen=True, eq=False)
class Recovery:
    """Outcome of rollouts that were displaced at their start."""

    limit: float
    """95th percentile of the one-step energy without a shove [m^2]."""
    shoved: Float[np.ndarray, "b t"]
    """Smoothed energy of the shoved rollouts [m^2]."""
    calm: Float[np.ndarray, "b t"]
    """The same without a shove."""
    returns: dict[str, float]
    """Numbers of `returns_of`, judged by the one limit."""
    category_returns: dict[str, float]
    """Numbers judged by the 95th percentile of the rollouts from recordings of the same category."""
    human_share: float
    """Share of the shoved rollouts that stay human."""


def measure_recovery(
    prior: Prior, starts: State, categories: Sequence[str], num_samples: int, seed: int, tick: Callable[[], None]
) -> Recovery:
    """Roll out from starts as they are and displaced, with the same random numbers; tick twice for each chunk."""
    num_frames = round((WITHIN + STAY) * prior.fps) + SMOOTH
    calm, shoved, human = [], [], []
    for first, last in pairwise([*range(0, len(starts.x), CHUNK), len(starts.x)]):
        part, seeds = starts[first:last], [seed + 2 * i for i in range(first, last)]
        pushed = displaced(part, prior, Streams([s + 1 for s in seeds]))
        calm.append(energy_curves(prior, part, num_frames, num_samples, Streams(seeds))[0])
        tick()
        energies, motion = energy_curves(prior, pushed, num_frames, num_samples, Streams(seeds))
        shoved.append(energies)
        human.append(metrics.human(motion))
        tick()
    # Curves that are not finite are outside of every limit.
    calm, shoved = (smoothed(np.nan_to_num(np.concatenate(curves), nan=np.inf)) for curves in (calm, shoved))
    if not np.isfinite(calm).any():
        raise ValueError(f"every rollout of {prior.name} diverged: these weights cannot be measured")
    names = np.array(categories)
    limits = np.array([_limit(calm[names == name]) for name in names])
    overall = _limit(calm)
    judged = [returns_of(shoved, calm, at, prior.fps) for at in (np.full(len(limits), overall), limits)]
    return Recovery(overall, shoved, calm, *judged, human_share=float(np.concatenate(human).mean()))


def _limit(curves: Float[np.ndarray, "b t"]) -> float:
    """Return the 95th percentile of finite values."""
    finite = curves[np.isfinite(curves)]
    return float(np.quantile(finite, 0.95)) if len(finite) else 0.0
