"""States that no recording has, and what they should do next: displaced frames and their way back."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.priors.cvae import MEMORY_SIZE
from dropsim.research.training.frames import Window
from dropsim.research.training.network import Body, Local, exp, log_small, recentred, root_and_body_velocity

RETURN_RATE = 8.0
"""Rate of the critically damped way back to the recording [1/s]; half of a displacement is gone after 0.2 s."""
SHOVE_RATE = 4.0
"""Rate at which a difference of the root's horizontal velocity from the recording fades after a shove [1/s]."""
ERROR_RATE = 12.0
"""The same for a difference that the prior itself made [1/s]."""
WALKS = 0.5
"""Speed of the root from which on people are not held back by the foot that they stand on [m/s]."""


def displaced(frame: Local, body: Body, freedom: Float[Tensor, "22 3"], rng: torch.Generator) -> Local:
    """Push frames off the recording: bent joints, a tilted and lifted root, and a shove in the velocities.

    `freedom` scales how far each joint is turned about each axis: a knee is hardly ever twisted.
    """
    b = len(frame.root)

    def normal(*shape: int) -> Tensor:
        return torch.randn(b, *shape, generator=rng)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(b, *shape, generator=rng)

    size = uniform(1, 1) ** 2  # mostly small, sometimes large
    bend = normal(NUM_JOINTS, 3) * (uniform(NUM_JOINTS, 1) < 0.4) * (0.01 + 0.25 * size) * freedom
    bend[:, 0] = normal(3) * 0.2 * size[:, 0] * torch.tensor([1.0, 1.0, 0.3])
    q = exp(bend) @ frame.q
    root = frame.root + normal(3) * torch.tensor([0.0, 0.0, 0.04]) * size[:, 0]
    joints = body.forward(q, root)
    sunk = (body.radii - joints[..., 2]).amax(-1).clamp(min=0) * (uniform() < 0.8)
    lift = nn.functional.pad(sunk.unsqueeze(-1), (2, 0))
    shove = normal(3) * torch.tensor([0.6, 0.6, 0.2]) * uniform(1) ** 2
    spin = normal(NUM_JOINTS, 3) * freedom * uniform(1, 1) ** 3
    jolt = normal(NUM_JOINTS, 3) * 0.3 * uniform(1, 1) ** 3
    noise = torch.cat((shove, spin[:, 0], (jolt + shove[:, None]).flatten(1), spin[:, 1:].flatten(1)), dim=-1)
    noise = nn.functional.pad(noise * (uniform(1) < 0.6), (0, frame.velocity.shape[-1] - MEMORY_SIZE))
    return recentred(Local(root + lift, q, joints + lift[:, None], frame.velocity + noise), body)


def way_back(recorded: Window, state: Local, rolled: Bool[Tensor, "b"], body: Body, fps: float) -> Local:
    """Return the recorded frames after the first, moved by what is left of the state's offset from the first.

    Offsets and velocities fade like a critically damped spring, so that the way back begins with the state's own
    velocity. The speed over the ground comes back sooner for those who `rolled` on from their own predictions. Places
    of people who hardly move are compared at the foot that they stand on: the way back does not ask it to slide.
    """
    now, count = recorded.now, recorded.root.shape[1]
    time = torch.arange(1, count + 1).unsqueeze(-1) / fps
    fade, coast = (1 + RETURN_RATE * time) * (-RETURN_RATE * time).exp(), time * (-RETURN_RATE * time).exp()
    weight = recorded.standing[:, 0, [5, 6]].float() + 0.5 * recorded.standing[:, 0, [3, 4]].float()
    feet = [CONTACT_JOINTS[i] for i in (5, 6)]
    gap = (state.joints - now.joints)[:, feet, :2]
    shift = (weight.unsqueeze(-1) * gap).sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-6)
    shift = shift * (1 - now.velocity[:, :2].norm(dim=-1, keepdim=True) / WALKS).clamp(min=0)
    shift = nn.functional.pad(shift, (0, 1)).unsqueeze(1)
    extra = root_and_body_velocity(state.velocity - now.velocity).unsqueeze(1)
    turn = log_small(state.q @ now.q.transpose(-1, -2)).unsqueeze(1)
    turns = fade.unsqueeze(-1) * turn + coast.unsqueeze(-1) * extra[..., 3:].unflatten(-1, (NUM_JOINTS, 3))
    q = exp(turns) @ recorded.q
    rate = torch.where(rolled, ERROR_RATE, SHOVE_RATE)[:, None, None]
    gone = ((1 - (-rate * time).exp()) / rate).expand(-1, -1, 2)
    gone = torch.cat((gone, coast.expand(len(gone), -1, -1)), dim=-1)
    offset = (state.root - now.root).unsqueeze(1)
    root = recorded.root + shift + fade * (offset - shift) + gone * extra[..., :3]
    return Local(root, q, body.forward(q, root), state.velocity.unsqueeze(1).expand(-1, count, -1))
