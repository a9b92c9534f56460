"""Recorded frames as tensors: all clips end to end, drawn with balanced categories, mirrored half of the time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import MIRROR, NUM_JOINTS, Skeleton
from dropsim.motion.clips import Clip
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.motion.motion import Motion
from dropsim.priors.cvae import NUM_CONTACTS, difference_memory
from dropsim.research.training.network import (
    Body,
    CVAENetwork,
    Local,
    heading,
    log_small,
    mirrored_rotations,
    root_and_body_velocity,
    state_vector,
    turn_memory,
)

_MIRROR = torch.tensor(MIRROR)
_MIRROR_CONTACTS = torch.tensor([CONTACT_JOINTS.index(MIRROR[j]) for j in CONTACT_JOINTS])
INTENT_SECONDS = 2 / 3
"""A recorded person's intent is where they are this much later [s]."""
NUM_MEASURED = 20_000
"""Recorded transitions that means and scales are measured from."""
HELD = 0.012
"""A joint whose rotation about an axis varies less than this in the recordings does not turn about it [rad]."""
BALANCE = 0.35
"""A category of a source is drawn in proportion to its minutes to this power: 1 is as recorded, 0 all alike."""


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
    """All frames of some clips, end to end, in single precision."""

    skeleton: Skeleton
    body: Body
    """The same as tensors."""
    root: Float[Tensor, "n 3"]
    q: Float[Tensor, "n 22 3 3"]
    joints: Float[Tensor, "n 22 3"]
    velocity: Float[Tensor, "n m"]
    """The prior's memory at each frame, in the world: differences from the frame before."""
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
        if any(m.touching is None for _, m in clips):
            raise ValueError("some clips have no contact labels: build the data set with `dropsim data build`")
        motions = [motion for _, motion in clips]
        if not all(np.isfinite(values).all() for m in motions for values in (m.root, m.q, m.joints)):
            raise ValueError("the data holds NaN or infinite values: build it again with `dropsim data build`")
        starts, weights, last, end = [], [], [], 0
        for motion, weight in zip(motions, category_weights(clips), strict=True):
            begin, end = end, end + len(motion)
            last.append(torch.full((len(motion),), end - 1))
            starts.append(torch.arange(begin + 1, max(begin + 1, end - 1)))
            weights.append(torch.full((len(starts[-1]),), weight, dtype=torch.float64))
        weight = torch.cat(weights)
        if len(weight) == 0:
            raise ValueError("no clip has 3 frames: build a data set of longer recordings")
        skeleton = motions[0].skeleton
        return cls(
            skeleton=skeleton,
            body=Body.of(skeleton),
            root=_joined([m.root for m in motions]),
            q=_joined([m.q for m in motions]),
            joints=_joined([m.joints for m in motions]),
            velocity=_joined([_velocity(m) for m in motions]),
            contacts=_joined([m.touching[:, CONTACT_JOINTS] for m in motions if m.touching is not None]),
            last=torch.cat(last),
            starts=torch.cat(starts),
            edges=weight.cumsum(0) / weight.sum(),
            fps=motions[0].fps,
        )

    def draw(self, count: int, rng: torch.Generator) -> Int[Tensor, "count"]:
        """Draw start frames."""
        return self.starts[draw_by(self.edges, count, rng)]


def _joined(parts: Sequence[np.ndarray]) -> Tensor:
    """Join arrays end to end; floating numbers in single precision."""
    kind = np.bool_ if parts[0].dtype == np.bool_ else np.float32
    return torch.from_numpy(np.concatenate([part.astype(kind) for part in parts]))


def _velocity(motion: Motion) -> Float[np.ndarray, "t m"]:
    """Return the prior's memory at every frame; the first repeats the second."""
    memory = difference_memory(motion.joints[:-1], motion.q[:-1], motion.joints[1:], motion.q[1:], motion.fps)
    return np.concatenate((memory[:1], memory))


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
    """What the person is about to do, as the prior's input: mean velocity [m/s], then facing and height of the pelvis
    [m] at that time; NaN if the clip ends before."""


def transition(frames: Frames, at: Int[Tensor, "b"], mirrored: Bool[Tensor, "b"]) -> Transition:
    """Gather frames at and at + 1, some of them mirrored, in the heading frame of the first."""
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
    joints = (joints - (root[:, :1] * flat).unsqueeze(-2)) @ H.transpose(-1, -2) + frames.body.rest[0] * flat
    q = torch.cat((H.unsqueeze(2) @ q[:, :, :1], q[:, :, 1:]), dim=2)
    velocity = turn_memory(velocity, H)
    now, then = (Local(joints[:, i, 0], q[:, i], joints[:, i], velocity[:, i]) for i in (0, 1))
    return Transition(
        now, then, contacts[:, 1], contacts[:, 0] & contacts[:, 1], _intent(frames, at, mirrored, H[:, 0])
    )


def normalise(cvae: CVAENetwork, frames: Frames, rng: torch.Generator) -> Float[Tensor, "22 3"]:
    """Measure means and scales of states and deltas in recordings; return how freely joints turn about each axis."""
    at = frames.draw(NUM_MEASURED, rng)
    recorded = transition(frames, at, torch.zeros(len(at), dtype=torch.bool))
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


def _intent(
    frames: Frames, at: Int[Tensor, "b"], mirrored: Bool[Tensor, "b"], H: Float[Tensor, "b 3 3"]
) -> Float[Tensor, "b 5"]:
    """Look ahead in the recordings; H turns into the heading frame."""
    count = round(INTENT_SECONDS * frames.fps)
    later = torch.minimum(at + count, frames.last[at])
    flip = torch.where(mirrored, -1.0, 1.0).unsqueeze(-1)
    gone = (frames.root[later] - frames.root[at]) * frames.fps / count
    # The body faces along the second row of its heading, and its mirror image along the mirrored row.
    facing = heading(frames.q[later, 0])[:, 1]
    vectors = torch.stack((gone, facing), dim=1)
    vectors = torch.cat((flip.unsqueeze(-1) * vectors[..., :1], vectors[..., 1:]), dim=-1) @ H.transpose(-1, -2)
    intent = torch.cat((vectors[..., :2].flatten(1), frames.root[later, 2:]), dim=-1)
    return torch.where((later - at == count).unsqueeze(-1), intent, torch.nan)


def _mirrored_velocity(velocity: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
    """Reflect a memory in x = 0: velocities flip their x, angular velocities their y and z."""
    vectors = velocity.unflatten(-1, (-1, 3))
    linear, angular = torch.tensor([-1.0, 1.0, 1.0]), torch.tensor([1.0, -1.0, -1.0])
    joints = (vectors[..., 2 : 2 + NUM_JOINTS, :] * linear)[..., _MIRROR, :]
    turns = (vectors[..., 2 + NUM_JOINTS :, :] * angular)[..., _MIRROR[1:] - 1, :]
    return torch.cat((vectors[..., :1, :] * linear, vectors[..., 1:2, :] * angular, joints, turns), dim=-2).flatten(-2)
