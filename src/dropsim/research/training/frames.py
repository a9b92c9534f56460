"""Recorded frames as tensors: all clips and their mirror images end to end, drawn with balanced categories."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.clips import Clip
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.motion.motion import Motion
from dropsim.priors.cvae import NUM_CONTACTS
from dropsim.research.training.network import (
    FLAT,
    Body,
    CVAENetwork,
    Local,
    heading,
    log_small,
    root_and_body_velocity,
    state_vector,
)

INTENT_SECONDS = 2 / 3
"""Time after which a recorded person is where their intent led [s]."""
NUM_MEASURED = 20_000
"""Recorded transitions that means and scales are measured from."""
HELD = 0.012
"""Spread of a joint's rotation about an axis below which it does not turn about it [rad]."""
BALANCE = 0.35
"""Power of its minutes by which a category of a source is drawn: 1 is as recorded, 0 all alike."""


def category_weights(clips: Sequence[tuple[Clip, Motion]]) -> list[float]:
    """Return the weight of each clip's frames when the categories of every source are balanced."""
    frames: dict[tuple[str, str], int] = {}
    for clip, motion in clips:
        frames[clip.source, clip.category] = frames.get((clip.source, clip.category), 0) + len(motion)
    return [frames[clip.source, clip.category] ** (BALANCE - 1) for clip, _ in clips]


def draw_by(edges: Float[Tensor, "n"], count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
    """Draw indices by their cumulated probability; torch's multinomial is slow, and limited to 2^24 categories."""
    return torch.searchsorted(edges, torch.rand(count, generator=rng, dtype=torch.float64)).clamp(max=len(edges) - 1)


@dataclass(frozen=True, eq=False)
class Frames:
    """All frames of some clips, end to end, and then those of their mirror images, in single precision."""

    skeleton: Skeleton
    body: Body
    """The skeleton as tensors."""
    root: Float[Tensor, "n 3"]
    q: Float[Tensor, "n 22 3 3"]
    contacts: Bool[Tensor, "n 9"]
    last: Int[Tensor, "n"]
    """Index of the last frame of the clip that a frame belongs to."""
    starts: Int[Tensor, "s"]
    """Frames with one before and one after them in their clip."""
    edges: Float[Tensor, "s"]
    """Cumulated probability of the starts."""
    fps: float

    @classmethod
    def of(cls, clips: Sequence[tuple[Clip, Motion]]) -> "Frames":
        """Lay out clips."""
        if any(motion.touching is None for _, motion in clips):
            raise ValueError("some clips have no contact labels: build the data set with `dropsim data build`")
        if not all(np.isfinite(values).all() for _, motion in clips for values in (motion.root, motion.q)):
            raise ValueError("the data holds NaN or infinite values: build it again with `dropsim data build`")
        root, q, contacts, starts, weights, last, end = [], [], [], [], [], [], 0
        for mirrored in (False, True):
            for (_, recorded), weight in zip(clips, category_weights(clips), strict=True):
                motion = recorded.mirrored() if mirrored else recorded
                assert motion.touching is not None
                root.append(torch.from_numpy(motion.root).float())
                q.append(torch.from_numpy(motion.q).float())
                contacts.append(torch.from_numpy(motion.touching[:, CONTACT_JOINTS]))
                begin, end = end, end + len(motion)
                last.append(torch.full((len(motion),), end - 1))
                starts.append(torch.arange(begin + 1, max(begin + 1, end - 1)))
                weights.append(torch.full((len(starts[-1]),), weight, dtype=torch.float64))
        weight = torch.cat(weights)
        if len(weight) == 0:
            raise ValueError("no clip has 3 frames: build a data set of longer recordings")
        arrays = (torch.cat(parts) for parts in (root, q, contacts, last, starts))
        skeleton, fps = clips[0][1].skeleton, clips[0][1].fps
        return cls(skeleton, Body.of(skeleton), *arrays, edges=weight.cumsum(0) / weight.sum(), fps=fps)

    def draw(self, count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
        """Draw start frames."""
        return self.starts[draw_by(self.edges, count, rng)]


@dataclass(frozen=True, eq=False)
class Transition:
    """A recorded frame and the next one, both in the heading frame of the first."""

    now: Local
    then: Local
    touching: Bool[Tensor, "b 9"]
    """Contacts of the next frame."""
    standing: Bool[Tensor, "b 9"]
    """Contacts of both frames."""
    intent: Float[Tensor, "b 5"]
    """Intent as the prior's input: the mean velocity until some time later [m/s], then facing and height of the pelvis
    at that time [m]; NaN if the clip ends before."""


def transition(frames: Frames, at: Int[Tensor, "b"]) -> Transition:
    """Gather frames at and at + 1 in the heading frame of the first, with velocities by differences."""
    window = at.unsqueeze(1) + torch.arange(-1, 2)
    root, q, contacts = frames.root[window], frames.q[window], frames.contacts[window]
    H = heading(q[:, 1, 0])
    root = (root - root[:, 1:2] * FLAT) @ H.transpose(-1, -2) + frames.body.rest[0] * FLAT
    q = torch.cat((H[:, None, None] @ q[:, :, :1], q[:, :, 1:]), dim=2)
    joints = frames.body.forward(q, root)
    moves, turns = joints.diff(dim=1) * frames.fps, log_small(q[:, 1:] @ q[:, :-1].transpose(-1, -2)) * frames.fps
    velocity = torch.cat((moves[:, :, :1], turns[:, :, :1], moves, turns[:, :, 1:]), dim=2).flatten(2)
    now, then = (Local(root[:, i], q[:, i], joints[:, i], velocity[:, i - 1]) for i in (1, 2))
    return Transition(now, then, contacts[:, 2], contacts[:, 1] & contacts[:, 2], _intent(frames, at, H))


def normalise(cvae: CVAENetwork, frames: Frames, rng: torch.Generator) -> Float[Tensor, "22 3"]:
    """Measure means and scales of states and deltas in recordings; return how freely joints turn about each axis."""
    at = frames.draw(NUM_MEASURED, rng)
    recorded = transition(frames, at)
    vectors = state_vector(recorded.now, frames.body.rest[0])
    if cvae.shape.intent:
        known = ~recorded.intent.isnan().any(-1)
        vectors = torch.cat((vectors, recorded.intent), dim=-1)[known]
    size = vectors.shape[-1]
    cvae.state_mean[:size] = vectors.mean(0)
    # Entries that hardly change, such as the body's own place, are not blown up.
    cvae.state_scale[:size] = vectors.std(0).clamp(min=0.02)
    before, after = (root_and_body_velocity(frame.velocity) for frame in (recorded.now, recorded.then))
    scale = torch.cat(((after - before).std(0) / frames.fps, torch.ones(NUM_CONTACTS)))
    cvae.output_scale.copy_(scale.clamp(min=0.003))
    cvae.carry.copy_(((before * after).mean(0) / before.square().mean(0).clamp(min=1e-6)).clamp(0, 1))
    turn = log_small(recorded.now.q)
    spread = turn.std(0)
    cvae.free.copy_((spread > HELD) | (torch.arange(NUM_JOINTS) == 0).unsqueeze(-1))
    cvae.held.copy_(torch.where(cvae.free > 0, 0.0, turn.mean(0)))
    return (spread / 0.2).clamp(0.1, 1.0) * cvae.free


def _intent(frames: Frames, at: Int[Tensor, "b"], H: Float[Tensor, "b 3 3"]) -> Float[Tensor, "b 5"]:
    """Look ahead in the recordings; H turns into the heading frame."""
    count = round(INTENT_SECONDS * frames.fps)
    later = torch.minimum(at + count, frames.last[at])
    gone = (frames.root[later] - frames.root[at]) * frames.fps / count
    # The body faces along the second row of its heading.
    vectors = torch.stack((gone, heading(frames.q[later, 0])[:, 1]), dim=1) @ H.transpose(-1, -2)
    intent = torch.cat((vectors[..., :2].flatten(1), frames.root[later, 2:]), dim=-1)
    return torch.where((later - at == count).unsqueeze(-1), intent, torch.nan)
