"""States that no recording has, and what they should do next: displaced frames, their way back, and the recording that fits them best."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dropsim.body.skeleton import NUM_JOINTS, joint_index
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.priors.cvae import VELOCITY_SIZE
from dropsim.research.training.frames import Frames, Transition, transition
from dropsim.research.training.network import Body, Local, exp, log_small, recentred, root_and_body_velocity


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
    return recentred(Local(root + lift, q, joints + lift[:, None], frame.velocity + noise * (uniform(1) < 0.6)), body)


def returning_target(
    recorded: Transition, state: Local, body: Body, *, half_life: float, lasting: float, fps: float
) -> Local:
    """Return the next recorded frame, moved by what is left after one frame of the state's offset from the present one.

    Offsets fade with a half-life [s]. Of a difference in velocity a share `lasting` acts on the next frame, so that a
    shove is not undone at once. If the recording stands on a foot, places are compared at that foot: the way back never
    asks a standing foot to slide.
    """
    fade = 2 ** (-1 / (fps * half_life))
    now, then = recorded.now, recorded.then
    weight = recorded.standing[:, [5, 6]].float() + 0.5 * recorded.standing[:, [3, 4]].float()
    feet = [CONTACT_JOINTS[i] for i in (5, 6)]
    gap = (state.joints - now.joints)[:, feet, :2]
    shift = (weight.unsqueeze(-1) * gap).sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-6)
    shift = nn.functional.pad(shift, (0, 1))
    change = lasting / fps * root_and_body_velocity(state.velocity - now.velocity)
    turn = log_small(state.q @ now.q.transpose(-1, -2))
    q = exp(fade * turn + change[:, 3:].unflatten(-1, (NUM_JOINTS, 3))) @ then.q
    root = then.root + shift + fade * (state.root - now.root - shift) + change[:, :3]
    return Local(root, q, body.forward(q, root), then.velocity)


_JOINT_WEIGHTS = torch.ones(NUM_JOINTS, 1)
for _name, _weight in (
    ("pelvis", 2.0),
    ("left_foot", 2.0),
    ("right_foot", 2.0),
    ("left_wrist", 0.5),
    ("right_wrist", 0.5),
):
    _JOINT_WEIGHTS[joint_index(_name)] = _weight
POOL_SIZE = 32_768
"""Recorded frames that displaced states are matched with."""
POOL_STEPS = 500
"""Steps of training after which they are drawn again."""
_VELOCITY_SECONDS = 0.15
"""A difference in velocity counts as much as the distance that it makes in this time [s]."""


def features(frame: Local) -> Float[Tensor, "b f"]:
    """Return the numbers by which states are compared: weighted joints and joint velocities in the heading frame."""
    velocity = frame.velocity[:, 6:VELOCITY_SIZE].unflatten(-1, (NUM_JOINTS, 3))
    return torch.cat((_JOINT_WEIGHTS * frame.joints, _VELOCITY_SECONDS * _JOINT_WEIGHTS * velocity), dim=-1).flatten(1)


@dataclass(frozen=True, eq=False)
class Pool:
    """A random sample of the recorded frames, to find the one that is most like a displaced state."""

    at: Int[Tensor, "p"]
    mirrored: Bool[Tensor, "p"]
    features: Float[Tensor, "p f"]

    @classmethod
    def drawn(cls, frames: Frames, count: int, rng: torch.Generator) -> "Pool":
        at = frames.draw(count, rng)
        mirrored = torch.rand(count, generator=rng) < 0.5
        return cls(at, mirrored, features(transition(frames, at, mirrored).now))

    def match(
        self, state: Local, frames: Frames, at: Int[Tensor, "b"], mirrored: Bool[Tensor, "b"]
    ) -> tuple[Int[Tensor, "b"], Bool[Tensor, "b"]]:
        """Return the recorded frame nearest to each state, and whether it is mirrored; its own frame if none of the pool is nearer."""
        wanted = features(state)
        own = (wanted - features(transition(frames, at, mirrored).now)).square().sum(-1)
        best, index = (self.features.square().sum(-1) - 2 * wanted @ self.features.T).min(-1)
        nearer = best + wanted.square().sum(-1) < own
        return torch.where(nearer, self.at[index], at), torch.where(nearer, self.mirrored[index], mirrored)
