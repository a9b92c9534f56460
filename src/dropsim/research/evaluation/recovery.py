"""The come-back test: does a prior return to its own distribution after a shove that no recording has?

The one-step energy of a frame is the squared distance, summed over the joints [m^2], between where the body would coast, x_t + h v_t,
and the nearest of K candidates of the next frame: the kinematic energy E_kin of a body without any physics of its own. v_t is the
velocity of the last step, and at the displaced frame the shoved one. Curves are smoothed over 5 frames. A roll-out is back at the first
time within 2 s from which on its energy stays for 0.5 s within the 95th percentile of all frames of roll-outs from the same starts
without a shove. Runners and jumpers set that limit, and many a shove does not reach it (`left`); held to the limit of its own motion
category, a roll-out has a harder test.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.rotations import exp, normalize
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.cvae import VELOCITY_SIZE
from dropsim.priors.prior import Prior, State, Streams

SHOVE = (0.3, 1.0)
"""Horizontal velocity that the whole body gets, in any direction [m/s]."""
REACH = (0.05, 0.15)
"""How far the furthest joint is moved by bending one to three joints [m]."""
WITHIN = 2.0
"""Time to be back in [s]."""
STAY = 0.5
"""Time to stay there [s]."""
SMOOTH = 5
"""[frames]"""

_BENDS = {0: 3, 1: 4, 2: 5, 3: 6, 4: 7, 5: 8, 6: 9, 9: 12, 13: 16, 14: 17, 16: 18, 17: 19, 18: 20, 19: 21}
"""Joints that bend and the child whose bone they swing: those with enough below them to move something by 15 cm."""


def displaced(state: State, skeleton: Skeleton, rng: Streams) -> State:
    """Bend one to three joints so that the furthest joint moves by 5-15 cm, and shove the whole body by 0.3-1 m/s.

    Bones stay whole. A body that the bend puts into the floor is lifted out of it, as far as it was out before.
    """
    joints = list(_BENDS)
    count = 1 + (3 * rng.uniform(1)).long()
    chosen = rng.uniform(len(joints)).argsort(-1).argsort(-1) < count
    bones = (state.q[..., joints, :, :] @ skeleton.offsets.to(state.q)[list(_BENDS.values())].unsqueeze(-1)).squeeze(-1)
    # About axes across the bone: a twist along it would move nothing.
    axes = torch.linalg.cross(rng.normal(len(joints), 3).to(state.q), normalize(bones)) * chosen.unsqueeze(-1)
    far, fast, where = rng.uniform(3).to(state.x).unbind(-1)
    q, x = _bent(state, skeleton, joints, axes, REACH[0] + (REACH[1] - REACH[0]) * far)
    speed, angle = SHOVE[0] + (SHOVE[1] - SHOVE[0]) * fast, 2 * torch.pi * where
    shove = speed.unsqueeze(-1) * torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)), dim=-1)
    # The memory opens with the velocities of the root, its turning, and the joints.
    on_joints = shove.unsqueeze(-2).expand(*shove.shape[:-1], NUM_JOINTS, 3)
    push = torch.cat((shove, torch.zeros_like(shove), on_joints.flatten(-2)), dim=-1)
    memory = torch.cat((state.memory[..., :VELOCITY_SIZE] + push, state.memory[..., VELOCITY_SIZE:]), dim=-1)
    return State(x, state.v + on_joints, q, memory)


def _bent(
    state: State, skeleton: Skeleton, joints: list[int], axes: Float[Tensor, "*b j 3"], reach: Float[Tensor, "*b"]
) -> tuple[Float[Tensor, "*b 22 3 3"], Float[Tensor, "*b 22 3"]]:
    """Turn joints about the given axes until the furthest joint has moved by reach [m]."""
    radii = skeleton.radii.to(state.x)
    depth = (state.x[..., 2] - radii).amin(-1).clamp(max=0)

    def at(scale: Float[Tensor, "*b"]) -> tuple[Tensor, Tensor]:
        turns = torch.zeros_like(state.x).index_copy(-2, torch.tensor(joints), scale[..., None, None] * axes)
        q = exp(turns) @ state.q
        x = skeleton.forward(q, state.x[..., 0, :])
        lift = (depth - (x[..., 2] - radii).amin(-1)).clamp(min=0)
        return q, x + lift[..., None, None] * torch.tensor([0.0, 0.0, 1.0]).to(x)

    # Joints move about in proportion to the angle, so that a few steps of proportion find it.
    scale = torch.full_like(reach, 0.1)
    for _ in range(20):
        moved = (at(scale)[1] - state.x).norm(dim=-1).amax(-1)
        scale = scale * (reach / moved.clamp(min=1e-6)).clamp(0.5, 2.0)
    return at(scale)


def energy_curves(prior: Prior, start: State, num_frames: int, num_samples: int, rng: Streams) -> tuple[Float[Tensor, "*b t"], Motion]:
    """Roll a prior out, sampled, and return the one-step energy of every frame [m^2] and the motion."""
    states, energies, state = [start], [], start
    for _ in range(num_frames):
        candidates = prior.sample(state, num_samples, rng)
        coasting = state.x + state.v / prior.fps
        energies.append((candidates.x - coasting.unsqueeze(-3)).square().sum((-1, -2)).amin(-1))
        # The second is the first that is sampled; a prior that has only its mode goes on with that.
        chosen = candidates.pick(torch.full(state.x.shape[:-2], min(1, candidates.x.shape[-3] - 1), dtype=torch.long))
        state = State(chosen.x, (chosen.x - state.x) * prior.fps, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
        states.append(state)
    joints = torch.stack([s.x for s in states], dim=-3)
    motion = Motion(prior.skeleton, prior.fps, joints[..., 0, :], torch.stack([s.q for s in states], dim=-4), joints, name=prior.name)
    return torch.stack(energies, dim=-1), motion


def smoothed(curves: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """Average over 5 frames around each, fewer at the ends."""
    return torch.nn.functional.avg_pool1d(curves.unsqueeze(1), SMOOTH, 1, SMOOTH // 2, count_include_pad=False).squeeze(1)


def return_times(curves: Float[Tensor, "b t"], limits: Float[Tensor, "b"], fps: float) -> Float[Tensor, "b"]:
    """Return the time from which on each curve stays within its limit for half a second [s]; infinite where it is later than 2 s."""
    stay = round(STAY * fps)
    inside = (curves <= limits.unsqueeze(-1)).unfold(-1, stay, 1).all(-1)[:, : round(WITHIN * fps) + 1]
    first = inside.float().argmax(-1).to(curves) / fps
    return torch.where(inside.any(-1), first, torch.inf)


@dataclass(frozen=True)
class Returns:
    """How many shoved roll-outs are back within a limit."""

    back_share: float
    """Share that is back within 2 s."""
    left_share: float
    """Share that the shove puts out at all: above the limit within the first 5 frames."""
    calm_share: float
    """Share of the roll-outs without a shove that pass the same test: what can be reached."""
    median_seconds: float
    """Median time until they are back, those that never are counting as never [s]."""

    @classmethod
    def of(cls, shoved: Float[Tensor, "b t"], calm: Float[Tensor, "b t"], limits: Float[Tensor, "b"], fps: float) -> "Returns":
        """Judge curves with and without a shove by a limit for each."""
        times, calm_times = (return_times(curves, limits, fps) for curves in (shoved, single_threaded))
        left = (shoved[:, :SMOOTH] > limits.unsqueeze(-1)).any(-1)
        back, out, calm_back = (float(flags.double().mean()) for flags in (times.isfinite(), left, calm_times.isfinite()))
        return cls(back, out, calm_back, float(times.median()))


@dataclass(frozen=True, eq=False)
class ComeBack:
    """What became of roll-outs that were displaced at their start."""

    limit: float
    """95th percentile of the one-step energy without a shove [m^2]."""
    shoved: Float[Tensor, "b t"]
    """Smoothed energy of the shoved roll-outs [m^2]."""
    calm: Float[Tensor, "b t"]
    """The same without a shove."""
    returns: Returns
    """Judged by the one limit."""
    own_returns: Returns
    """Judged by the 95th percentile of the roll-outs from recordings of the same category."""
    human_share: float
    """Share of the shoved roll-outs that stay human."""


def come_back(
    prior: Prior, starts: State, categories: Sequence[str], *, num_samples: int, seed: int, chunk: int, tick: Callable[[], None]
) -> ComeBack:
    """Roll out from starts as they are and from displaced ones, with the same random numbers; tick twice for each chunk of characters."""
    num_frames = round((WITHIN + STAY) * prior.fps) + SMOOTH
    single_threaded, shoved, human = [], [], []
    for first, last in pairwise([*range(0, len(starts.x), chunk), len(starts.x)]):
        part, seeds = starts[first:last], [seed + 2 * i for i in range(first, last)]
        pushed = displaced(part, prior.skeleton, Streams([s + 1 for s in seeds]))
        calm.append(energy_curves(prior, part, num_frames, num_samples, Streams(seeds))[0])
        tick()
        energies, motion = energy_curves(prior, pushed, num_frames, num_samples, Streams(seeds))
        shoved.append(energies)
        human.append(metrics.human(motion))
        tick()
    # What is not finite is outside of everything.
    calm_curves, shoved_curves = (smoothed(torch.cat(curves).nan_to_num(nan=torch.inf)) for curves in (single_threaded, shoved))
    if not calm_curves.isfinite().any():
        raise ValueError(f"every roll-out of {prior.name} diverged: these weights cannot be measured")
    groups = [torch.tensor([c == name for c in categories]) for name in categories]
    limits = torch.stack([_limit(calm_curves[group]) for group in groups])
    overall = _limit(calm_curves)
    returns, own_returns = (Returns.of(shoved_curves, calm_curves, at, prior.fps) for at in (overall.expand(len(limits)), limits))
    return ComeBack(float(overall), shoved_curves, calm_curves, returns, own_returns, float(torch.cat(human).double().mean()))


def _limit(curves: Float[Tensor, "b t"]) -> Float[Tensor, ""]:
    """95th percentile of what is finite."""
    finite = curves[curves.isfinite()]
    return finite.quantile(0.95) if len(finite) else curves.new_zeros(())
