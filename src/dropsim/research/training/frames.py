"""Recorded frames laid out for training: one long tensor, balanced sampling over motion categories, mirroring."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.rotations import heading
from dropsim.body.skeleton import MIRROR, NUM_JOINTS, Skeleton, mirrored_rotations
from dropsim.motion.clips import Clip
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.motion.motion import Motion
from dropsim.priors.cvae import Local, difference_memory, turn_memory

_MIRROR = torch.tensor(MIRROR)
_MIRROR_CONTACTS = torch.tensor([CONTACT_JOINTS.index(MIRROR[j]) for j in CONTACT_JOINTS])
BALANCE = 0.35
"""Categories are drawn in proportion to their minutes to this power: 1 is as recorded, 0 all alike."""


@dataclass(frozen=True, eq=False)
class Frames:
    """All frames of some clips, end to end."""

    skeleton: Skeleton
    """In single precision."""
    root: Float[Tensor, "n 3"]
    q: Float[Tensor, "n 22 3 3"]
    joints: Float[Tensor, "n 22 3"]
    velocity: Float[Tensor, "n m"]
    """Memory of our variant at each frame, in the world: differences from the frame before."""
    contacts: Bool[Tensor, "n 9"]
    last: Int[Tensor, "n"]
    """Index of the last frame of the clip that a frame belongs to."""
    starts: Int[Tensor, "s"]
    """Frames that have one before and at least one after them."""
    edges: Float[Tensor, "s"]
    """Cumulated probability of the starts."""
    fps: float

    @classmethod
    def of(cls, clips: Sequence[tuple[Clip, Motion]]) -> "Frames":
        """Lay clips out, balanced by category."""
        if any(m.contacts is None for _, m in clips):
            raise ValueError("some clips have no contact labels: build the data set with `dropsim data build`")
        lengths = torch.tensor([len(m) for _, m in clips])
        ends = lengths.cumsum(0)
        category = [c.category for c, _ in clips]
        minutes = {name: float(sum(int(n) for n, c in zip(lengths, category, strict=True) if c == name)) for name in sorted(set(category))}
        starts, weights, last = [], [], []
        for end, length, name in zip(ends.tolist(), lengths.tolist(), category, strict=True):
            begin = end - length
            last.append(torch.full((length,), end - 1))
            starts.append(torch.arange(begin + 1, end - 1))
            weights.append(torch.full((length - 2,), minutes[name] ** (BALANCE - 1)))
        weight = torch.cat(weights).double()
        frames = cls(
            skeleton=clips[0][1].skeleton.to(torch.float32),
            root=torch.cat([m.root.float() for _, m in clips]),
            q=torch.cat([m.q.float() for _, m in clips]),
            joints=torch.cat([m.joints.float() for _, m in clips]),
            velocity=torch.cat([_velocity(m) for _, m in clips]),
            contacts=torch.cat([m.contacts[:, list(CONTACT_JOINTS)] for _, m in clips if m.contacts is not None]),
            last=torch.cat(last),
            starts=torch.cat(starts),
            edges=weight.cumsum(0) / weight.sum(),
            fps=clips[0][1].fps,
        )
        if not all(values.isfinite().all() for values in (frames.root, frames.q, frames.joints)):
            raise ValueError("the data holds NaN or infinite values: build it again with `dropsim data build`")
        return frames

    def draw(self, count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
        """Draw start frames."""
        # Inverse transform: multinomial is limited to 2^24 categories and slow on half a million.
        at = torch.searchsorted(self.edges, torch.rand(count, generator=rng, dtype=torch.float64)).clamp(max=len(self.edges) - 1)
        return self.starts[at]


def _velocity(motion: Motion) -> Float[Tensor, "t m"]:
    """Return every frame's memory; the first repeats the second."""
    before, now = (
        Local(motion.root[a:b], motion.q[a:b], motion.joints[a:b], motion.root[a:b, :0])
        for a, b in ((0, len(motion) - 1), (1, len(motion)))
    )
    memory = difference_memory(before.root, before.q, before.joints, now, motion.fps).float()
    return torch.cat((memory[:1], memory))


@dataclass(frozen=True, eq=False)
class Transition:
    """A recorded frame and the next one, both in the heading frame of the first."""

    now: Local
    then: Local
    touching: Bool[Tensor, "b 9"]
    """Contacts of the next frame."""
    standing: Bool[Tensor, "b 9"]
    """Contacts of both frames."""


def transition(frames: Frames, at: Int[Tensor, "b"], mirrored: Bool[Tensor, "b"]) -> Transition:
    """Gather frames at and at + 1, mirrored where told, in the heading frame of the first."""
    window = torch.stack((at, at + 1), dim=1)
    root, q, joints, velocity = frames.root[window], frames.q[window], frames.joints[window], frames.velocity[window]
    contacts = frames.contacts[window]
    flip = torch.tensor([-1.0, 1.0, 1.0])
    side = mirrored[:, None, None]
    root = torch.where(side, root * flip, root)
    q = torch.where(side[..., None, None], mirrored_rotations(q), q)
    joints = torch.where(side[..., None], (joints * flip)[:, :, _MIRROR], joints)
    velocity = torch.where(side, _mirrored_velocity(velocity), velocity)
    contacts = torch.where(side, contacts[:, :, _MIRROR_CONTACTS], contacts)
    H = heading(q[:, 0, 0]).unsqueeze(1)
    flat = torch.tensor([1.0, 1.0, 0.0])
    place, origin = frames.skeleton.rest[0] * flat, (root[:, :1] * flat).unsqueeze(-2)
    joints = (joints - origin) @ H.transpose(-1, -2) + place
    q = torch.cat((H.unsqueeze(2) @ q[:, :, :1], q[:, :, 1:]), dim=2)
    velocity = turn_memory(velocity, H)
    now, then = (Local(joints[:, i, 0], q[:, i], joints[:, i], velocity[:, i]) for i in (0, 1))
    return Transition(now, then, contacts[:, 1], contacts[:, 0] & contacts[:, 1])


def _mirrored_velocity(velocity: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
    """Reflect a memory in x = 0: velocities flip their x, angular velocities their y and z."""
    vectors = velocity.unflatten(-1, (-1, 3))
    linear, angular = torch.tensor([-1.0, 1.0, 1.0]), torch.tensor([1.0, -1.0, -1.0])
    joints = (vectors[..., 2 : 2 + NUM_JOINTS, :] * linear)[..., _MIRROR, :]
    turns = (vectors[..., 2 + NUM_JOINTS :, :] * angular)[..., _MIRROR[1:] - 1, :]
    return torch.cat((vectors[..., :1, :] * linear, vectors[..., 1:2, :] * angular, joints, turns), dim=-2).flatten(-2)
