"""Recorded frames as tensors: all clips and their mirror images end to end, drawn with balanced categories."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.signal import lfilter
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.clips import Clip
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.motion.motion import Motion
from dropsim.priors.cvae import NUM_CONTACTS, PACE
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
PULL_SECONDS = 2.0
"""Time constant with which joints are pulled to the recordings' mean posture, if the network does not object [s]."""
BALANCE = 0.5
"""Power of its minutes by which a category of a source is drawn: 1 is as recorded, 0 all alike."""
CHUNK = 20_000
"""Frames that shapes are worked out from at a time."""


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
    pace: Float[Tensor, "n 6"]
    """Running means of the root's velocities [m/s, rad/s]."""
    first: Int[Tensor, "n"]
    """Index of the first frame of the clip that a frame belongs to."""
    last: Int[Tensor, "n"]
    """Index of the last frame of that clip."""
    starts: Int[Tensor, "s"]
    """Frames with two before and one after them in their clip."""
    edges: Float[Tensor, "s"]
    """Cumulated probability of the starts."""
    fps: float

    @classmethod
    def of(cls, clips: Sequence[tuple[Clip, Motion]]) -> "Frames":
        """Lay out clips."""
        rows, starts, weights, end = [], [], [], 0
        for mirrored in (False, True):
            for (_, recorded), weight in zip(clips, category_weights(clips), strict=True):
                motion = recorded.mirrored() if mirrored else recorded
                if motion.touching is None:
                    raise ValueError("some clips have no contact labels: build the data set with `dropsim data build`")
                begin, end = end, end + len(motion)
                root, q = torch.from_numpy(motion.root).float(), torch.from_numpy(motion.q).float()
                contacts = torch.from_numpy(motion.touching[:, CONTACT_JOINTS])
                ends = torch.tensor([[begin, end - 1]]).expand(len(motion), 2)
                rows.append((root, q, contacts, _pace(root, q, motion.fps), ends))
                starts.append(torch.arange(begin + 2, max(begin + 2, end - 1)))
                weights.append(torch.full((len(starts[-1]),), weight, dtype=torch.float64))
        weight = torch.cat(weights)
        if len(weight) == 0:
            raise ValueError("no clip has 4 frames: build a data set of longer recordings")
        root, q, contacts, pace, ends = (torch.cat(parts) for parts in zip(*rows, strict=True))
        skeleton, fps = clips[0][1].skeleton, clips[0][1].fps
        body, edges = Body.of(skeleton), weight.cumsum(0) / weight.sum()
        return cls(skeleton, body, root, q, contacts, pace, ends[:, 0], ends[:, 1], torch.cat(starts), edges, fps)

    def draw(self, count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
        """Draw start frames."""
        return self.starts[draw_by(self.edges, count, rng)]

    def shapes(self) -> Float[Tensor, "n 22 3"]:
        """Return the joints in each frame's heading frame, with the root above the origin, in half precision [m]."""
        parts = []
        for root, q in zip(self.root.split(CHUNK), self.q.split(CHUNK), strict=True):
            joints = self.body.forward(q, root) - (root * FLAT).unsqueeze(1)
            parts.append((joints @ heading(q[:, 0]).transpose(-1, -2)).half())
        return torch.cat(parts)


def _pace(root: Float[Tensor, "t 3"], q: Float[Tensor, "t 22 3 3"], fps: float) -> Float[Tensor, "t 6"]:
    """Return running means of the root's velocity and angular velocity; the first frame has the second one's."""
    turn = log_small(q[1:, 0] @ q[:-1, 0].transpose(-1, -2))
    velocity = torch.cat((root.diff(dim=0), turn), dim=-1).numpy() * fps
    if not len(velocity):
        return torch.zeros(len(root), 6)
    mean = lfilter([PACE], [1, PACE - 1], velocity, axis=0, zi=(1 - PACE) * velocity[:1])[0]
    return torch.from_numpy(np.concatenate((mean[:1], mean)).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Window:
    """Some recorded frames in a row, in the heading frame of the first."""

    now: Local
    """The first frame, with its memory."""
    root: Float[Tensor, "b w 3"]
    """Pelvis of the frames after the first [m]."""
    q: Float[Tensor, "b w 22 3 3"]
    joints: Float[Tensor, "b w 22 3"]
    touching: Bool[Tensor, "b w 9"]
    """Contacts of the frames after the first."""
    standing: Bool[Tensor, "b w 9"]
    """Contacts of them and of the frame before each."""
    intent: Float[Tensor, "b w 5"]
    """Intents as the prior's input, of all frames but the last: the mean velocity until some time later [m/s], facing
    and height of the pelvis at that time [m]; NaN if the clip ends before."""


def window_at(frames: Frames, at: Int[Tensor, "b"], count: int) -> Window:
    """Gather frames at to at + count in the heading frame of the first, with its velocities and their history."""
    index, fps = at.unsqueeze(1) + torch.arange(-2, count + 1), frames.fps
    root, q, contacts = frames.root[index], frames.q[index], frames.contacts[index[:, 2:]]
    H = heading(q[:, 2, 0])
    back = H.transpose(-1, -2)
    root = (root - root[:, 2:3] * FLAT) @ back + frames.body.rest[0] * FLAT
    q = torch.cat((H[:, None, None] @ q[:, :, :1], q[:, :, 1:]), dim=2)
    joints = frames.body.forward(q, root)
    turns = log_small(q[:, 1:3] @ q[:, :2].transpose(-1, -2)) * fps
    moves = joints[:, :3].diff(dim=1) * fps
    before, velocity = torch.cat((moves[:, :, :1], turns[:, :, :1], moves, turns[:, :, 1:]), dim=2).flatten(2).unbind(1)
    change = root_and_body_velocity(velocity) - root_and_body_velocity(before)
    pace = (frames.pace[at].unflatten(-1, (2, 3)) @ back).flatten(1)
    memory = torch.cat((velocity, change[:, :6], pace, pace[:, :3], change[:, 6:]), dim=-1)
    return Window(
        Local(root[:, 2], q[:, 2], joints[:, 2], memory),
        root[:, 3:],
        q[:, 3:],
        joints[:, 3:],
        contacts[:, 1:],
        contacts[:, 1:] & contacts[:, :-1],
        _intent(frames, index[:, 2:-1], back),
    )


def normalise(cvae: CVAENetwork, frames: Frames, rng: torch.Generator) -> Float[Tensor, "22 3"]:
    """Measure means and scales of states and deltas in recordings; return how freely joints turn about each axis."""
    at = frames.draw(NUM_MEASURED, rng)
    recorded = window_at(frames, at, 1)
    now = recorded.now
    intent = recorded.intent[:, 0]
    known = ~intent.isnan().any(-1)
    vectors = torch.cat((state_vector(now, frames.body.rest[0]), intent), dim=-1)[known]
    cvae.state_mean[: vectors.shape[-1]] = vectors.mean(0)
    # Entries that hardly change, such as the body's own place, are not blown up.
    cvae.state_scale[: vectors.shape[-1]] = vectors.std(0).clamp(min=0.02)
    before = root_and_body_velocity(now.velocity)
    turn = log_small(recorded.q[:, 0] @ now.q.transpose(-1, -2))
    after = torch.cat((recorded.root[:, 0] - now.root, turn.flatten(1)), dim=-1) * frames.fps
    scale = torch.cat(((after - before).std(0) / frames.fps, torch.ones(NUM_CONTACTS)))
    cvae.output_scale.copy_(scale.clamp(min=0.003))
    cvae.carry.copy_(((before * after).mean(0) / before.square().mean(0).clamp(min=1e-6)).clamp(0, 1))
    turn = log_small(now.q)
    spread = turn.std(0)
    cvae.free.copy_((spread > HELD) | (torch.arange(NUM_JOINTS) == 0).unsqueeze(-1))
    cvae.held.copy_(torch.where(cvae.free > 0, 0.0, turn.mean(0)))
    cvae.posture.copy_(turn.mean(0))
    cvae.pull[1:] = 1 / (PULL_SECONDS * frames.fps)
    return (spread / 0.2).clamp(0.1, 1.0) * cvae.free


def _intent(frames: Frames, at: Int[Tensor, "b w"], back: Float[Tensor, "b 3 3"]) -> Float[Tensor, "b w 5"]:
    """Look ahead in the recordings; `back` turns rows into the heading frame."""
    count = round(INTENT_SECONDS * frames.fps)
    later = torch.minimum(at + count, frames.last[at])
    gone = (frames.root[later] - frames.root[at]) * frames.fps / count
    # The body faces along the second row of its heading.
    velocity, facing = (vectors @ back for vectors in (gone, heading(frames.q[later, 0])[..., 1, :]))
    intent = torch.cat((velocity[..., :2], facing[..., :2], frames.root[later, 2:]), dim=-1)
    return torch.where((later - at == count).unsqueeze(-1), intent, torch.nan)
