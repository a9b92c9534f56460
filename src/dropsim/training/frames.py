"""Recorded frames laid out for training: one long tensor, balanced sampling over motion categories, mirroring."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.data.clips import Clip
from dropsim.data.contacts import CONTACT_JOINTS
from dropsim.motion import Motion
from dropsim.priors.cvae import Local, difference_memory
from dropsim.rotations import heading
from dropsim.skeleton import MIRROR, Skeleton

MIRROR_CONTACTS = tuple(CONTACT_JOINTS.index(MIRROR[j]) for j in CONTACT_JOINTS)
BALANCE = 0.5
"""Categories are drawn in proportion to their minutes to this power: 1 is as recorded, 0 all alike."""


@dataclass(frozen=True, eq=False)
class Frames:
    """All frames of some clips, end to end."""

    skeleton: Skeleton
    """In single precision."""
    root: Float[Tensor, "n 3"]
    q: Float[Tensor, "n 22 3 3"]
    contacts: Bool[Tensor, "n 9"]
    last: Int[Tensor, "n"]
    """Index of the last frame of the clip that a frame belongs to."""
    starts: Int[Tensor, "s"]
    """Frames that have one before and at least one after them."""
    edges: Float[Tensor, "s"]
    """Cumulated probability of the starts."""

    @classmethod
    def of(cls, clips: Sequence[tuple[Clip, Motion]]) -> "Frames":
        """Lay clips out, balanced by category."""
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
            contacts=torch.cat([m.contacts[:, list(CONTACT_JOINTS)] for _, m in clips if m.contacts is not None]),
            last=torch.cat(last),
            starts=torch.cat(starts),
            edges=weight.cumsum(0) / weight.sum(),
        )
        if not (frames.root.isfinite().all() and frames.q.isfinite().all()):
            raise ValueError("the data holds NaN or infinite values: build it again with `dropsim data build`")
        if len(frames.contacts) != len(frames.root):
            raise ValueError("some clips have no contact labels: build the data set with `dropsim data build`")
        return frames

    def draw(self, count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
        """Draw start frames."""
        # Inverse transform: multinomial is limited to 2^24 categories and slow on half a million.
        at = torch.searchsorted(self.edges, torch.rand(count, generator=rng, dtype=torch.float64)).clamp(max=len(self.edges) - 1)
        return self.starts[at]


@dataclass(frozen=True, eq=False)
class Transition:
    """A recorded frame and the next one, both in the heading frame of the first."""

    now: Local
    then: Local
    touching: Bool[Tensor, "b 9"]
    """Contacts of the next frame."""
    standing: Bool[Tensor, "b 9"]
    """Contacts of both frames."""


def transition(frames: Frames, at: Int[Tensor, "b"], mirrored: Bool[Tensor, "b"], fps: float) -> Transition:
    """Gather frames at - 1, at and at + 1 and express them in the heading frame of the middle one."""
    window = torch.stack((at - 1, at, at + 1), dim=1)
    root, q, contacts = frames.root[window], frames.q[window], frames.contacts[window]
    flip = torch.tensor([-1.0, 1.0, 1.0])
    root = torch.where(mirrored[:, None, None], root * flip, root)
    q = torch.where(mirrored[:, None, None, None, None], (flip[:, None] * q * flip)[:, :, list(MIRROR)], q)
    contacts = torch.where(mirrored[:, None, None], contacts[:, :, list(MIRROR_CONTACTS)], contacts)
    H = heading(q[:, 1, 0])
    place = frames.skeleton.rest[0] * torch.tensor([1.0, 1.0, 0.0])
    origin = root[:, 1] * torch.tensor([1.0, 1.0, 0.0])
    root = (root - origin[:, None]) @ H.transpose(-1, -2) + place
    q = torch.cat((H[:, None, None] @ q[:, :, :1], q[:, :, 1:]), dim=2)
    joints = frames.skeleton.forward(q, root)
    empty = root.new_zeros(len(at), 0)
    now, then = (Local(root[:, i], q[:, i], joints[:, i], empty) for i in (1, 2))
    velocity = difference_memory(root[:, 0], q[:, 0], joints[:, 0], now, fps)
    velocity_then = difference_memory(now.root, now.q, now.joints, then, fps)
    return Transition(
        Local(now.root, now.q, now.joints, velocity), Local(then.root, then.q, then.joints, velocity_then), contacts[:, 2], contacts[:, 1] & contacts[:, 2]
    )
