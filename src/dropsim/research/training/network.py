"""The networks in torch, and one torch copy of the functions that training differentiates.

The simulator runs the same networks in numpy (`dropsim.priors`). Tests compare every function here with its numpy
counterpart to 1e-6. Weights have the same names on both sides.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dropsim.body.skeleton import MIRROR, NUM_JOINTS, PARENTS, Skeleton
from dropsim.priors.cvae import HISTORY_SIZE, MEMORY_SIZE, PACE, ROOT_HISTORY_SIZE, VELOCITY_SIZE, CVAEShape
from dropsim.priors.pose import NUM_BODY, NUM_COLUMNS, PoseShape

Part = TypeVar("Part", bound="Batch")
FLAT = torch.tensor([1.0, 1.0, 0.0])
"""Factors that leave what is horizontal of a vector."""


# --- Rotations and the body ---


def exp(rotvec: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Rodrigues' formula, R = I + a [w] + b [w]^2 with a = sin t / t and b = (1 - cos t) / t^2."""
    angle = rotvec.square().sum(-1, keepdim=True).clamp_min(1e-24).sqrt()
    a = torch.sinc(angle / torch.pi)
    b = 0.5 * torch.sinc(angle / (2 * torch.pi)).square()
    x, y, z = rotvec.unbind(-1)
    sx, sy, sz = (a * rotvec).unbind(-1)
    bx, by, bz = (b * rotvec).unbind(-1)
    xx, yy, zz = bx * x, by * y, bz * z
    xy, yz, zx = bx * y, by * z, bz * x
    rows = (1 - yy - zz, xy - sz, zx + sy, xy + sz, 1 - xx - zz, yz - sx, zx - sy, yz + sx, 1 - xx - yy)
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def log_small(R: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 3"]:
    """Return the rotation vector of a turn well below half a circle: the inverse of exp there."""
    axis = 0.5 * torch.stack(
        (R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]), dim=-1
    )
    sine = axis.square().sum(-1, keepdim=True).clamp_min(1e-24).sqrt()
    cosine = 0.5 * (R.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - 1)
    return axis * (torch.atan2(sine, cosine) / sine)


def heading(rotation: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 3 3"]:
    """Return the turn about world z that makes a body with this root orientation face +y."""
    right = -rotation[..., :2, 0]
    norm = right.norm(dim=-1, keepdim=True)
    right = torch.where(norm > 1e-8, right / norm.clamp_min(1e-8), torch.tensor([1.0, 0.0]).to(right))
    cosine, sine = right.unbind(-1)
    zero, one = torch.zeros_like(cosine), torch.ones_like(cosine)
    return torch.stack((cosine, sine, zero, -sine, cosine, zero, zero, zero, one), dim=-1).unflatten(-1, (3, 3))


def mirrored_rotations(q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
    """Swap left and right of local rotations, by reflection in the plane x = 0."""
    flip = torch.tensor([-1.0, 1.0, 1.0]).to(q)
    return (flip[:, None] * q * flip)[..., MIRROR, :, :]


def _levels() -> list[tuple[list[int], list[int]]]:
    """Return the joints by their distance from the root, and the places of their parents among those before."""
    levels, before = [], [0]
    while level := [j for j in range(NUM_JOINTS) if j and PARENTS[j] in before]:
        levels.append((level, [before.index(PARENTS[j]) for j in level]))
        before = level
    return levels


_LEVELS = _levels()
_ORDER = np.argsort([0, *(j for level, _ in _LEVELS for j in level)]).tolist()


@dataclass(frozen=True, eq=False)
class Body:
    """The numbers of a skeleton as tensors."""

    rest: Float[Tensor, "22 3"]
    """Rest joints [m]."""
    offsets: Float[Tensor, "22 3"]
    """Rest vector from the parent [m]."""
    radii: Float[Tensor, "22"]
    """Collision spheres [m]."""

    @classmethod
    def of(cls, skeleton: Skeleton, dtype: torch.dtype = torch.float32) -> "Body":
        return cls(*(torch.tensor(values, dtype=dtype) for values in (skeleton.rest, skeleton.offsets, skeleton.radii)))

    def forward(self, q: Float[Tensor, "*b 22 3 3"], root: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 22 3"]:
        """Return world joints [m] from local rotations and the pelvis position [m]."""
        turns, joints = q[..., :1, :, :], root.unsqueeze(-2)
        every_joint = [joints]
        for level, above in _LEVELS:  # all joints at the same distance from the root at once
            R = turns[..., above, :, :]
            turns = R @ q[..., level, :, :]
            joints = joints[..., above, :] + (R @ self.offsets[level].unsqueeze(-1)).squeeze(-1)
            every_joint.append(joints)
        return torch.cat(every_joint, dim=-2)[..., _ORDER, :]


# --- The state that the motion prior sees, and the frame that it makes ---


@dataclass(frozen=True, eq=False)
class Batch:
    """Base of dataclasses of tensors, or of other batches, that share their first dimension."""

    def map(self: Part, change: Callable[[Tensor], Tensor]) -> Part:
        """Change every tensor."""
        values = (getattr(self, f.name) for f in fields(self))
        return type(self)(*(v.map(change) if isinstance(v, Batch) else change(v) for v in values))

    def __getitem__(self: Part, index: Int[Tensor, "i"] | slice) -> Part:
        """Pick members of the batch."""
        return self.map(lambda values: values[index])

    def put(self: Part, index: Int[Tensor, "i"], part: Part) -> Part:
        """Return a copy with some members replaced."""
        pairs = ((getattr(self, f.name), getattr(part, f.name)) for f in fields(self))
        return type(self)(*(a.put(index, b) if isinstance(a, Batch) else a.index_copy(0, index, b) for a, b in pairs))


@dataclass(frozen=True, eq=False)
class Local(Batch):
    """A batch of frames, each in the heading frame of a root: the body faces +y with its trans above the origin."""

    root: Float[Tensor, "*b 3"]
    """Pelvis [m]."""
    q: Float[Tensor, "*b 22 3 3"]
    joints: Float[Tensor, "*b 22 3"]
    velocity: Float[Tensor, "*b m"]
    """The prior's memory in this frame: velocities of root, root orientation and joints, angular velocities of the
    body's joints."""


def turn_memory(memory: Float[Tensor, "*b m"], R: Float[Tensor, "*#b 3 3"]) -> Float[Tensor, "*b m"]:
    """Turn the velocities in a memory by R; angular ones of the body's joints are in their parents' frames and stay."""
    sizes = [VELOCITY_SIZE, MEMORY_SIZE - VELOCITY_SIZE, ROOT_HISTORY_SIZE, HISTORY_SIZE - ROOT_HISTORY_SIZE]
    parts = memory.split(sizes, dim=-1)
    back = R.transpose(-1, -2)
    turned = [(part.unflatten(-1, (-1, 3)) @ back).flatten(-2) if i % 2 == 0 else part for i, part in enumerate(parts)]
    return torch.cat(turned, dim=-1)


def recentred(frame: Local, body: Body) -> Local:
    """Express a frame in the heading frame of its own root."""
    H, flat = heading(frame.q[..., 0, :, :]), FLAT.to(frame.root)
    q = torch.cat((H.unsqueeze(-3) @ frame.q[..., :1, :, :], frame.q[..., 1:, :, :]), dim=-3)
    joints = (frame.joints - (frame.root * flat).unsqueeze(-2)) @ H.transpose(-1, -2) + body.rest[0] * flat
    return Local(joints[..., 0, :], q, joints, turn_memory(frame.velocity, H))


def state_vector(frame: Local, pelvis_offset: Float[Tensor, "3"]) -> Float[Tensor, "*b s"]:
    """Lay a local frame out in HuMoR's order, followed by the angular velocities of the body's joints."""
    v, q = frame.velocity, frame.q
    root = (frame.root - pelvis_offset, v[..., :3], q[..., 0, :, :].flatten(-2), v[..., 3:6])
    return torch.cat((*root, q[..., 1:, :, :].flatten(-3), frame.joints.flatten(-2), v[..., 6:]), dim=-1)


def root_and_body_velocity(memory: Float[Tensor, "*b m"]) -> Float[Tensor, "*b d"]:
    """Return the velocities that deltas change: of the root, its orientation, and angular ones of the body's joints."""
    return torch.cat((memory[..., :6], memory[..., VELOCITY_SIZE:MEMORY_SIZE]), dim=-1)


def history(before: Float[Tensor, "*b m"], now: Float[Tensor, "*b v"]) -> Float[Tensor, "*b h"]:
    """Return the history after a frame from the memory before it and the velocities now."""
    change = root_and_body_velocity(now) - root_and_body_velocity(before)
    pace, way = before[..., MEMORY_SIZE + 6 : MEMORY_SIZE + ROOT_HISTORY_SIZE].split((6, 3), dim=-1)
    return torch.cat((change[..., :6], pace + PACE * (now[..., :6] - pace), way, change[..., 6:]), dim=-1)


def sent(frame: Local, intent: Float[Tensor, "b 5"]) -> Local:
    """Return people who are on the way that is asked for, if one is; the intent is in their heading frame."""
    before, way, after = frame.velocity.split((MEMORY_SIZE + 12, 3, HISTORY_SIZE - ROOT_HISTORY_SIZE), dim=-1)
    way = torch.where(intent[:, :1].isnan(), way, nn.functional.pad(intent[:, :2], (0, 1)))
    return Local(frame.root, frame.q, frame.joints, torch.cat((before, way, after), dim=-1))


def compose_kinematic(
    frame: Local, output: Float[Tensor, "*b o"], network: "CVAENetwork", body: Body, fps: float
) -> Local:
    """Add the network's deltas to what velocities and the pull to the mean posture carry on.

    Joints follow by kinematics, velocities by differences. Turns about axes that the recorded joints do not have, such
    as a knee's own axis, are put back to where the recordings hold them.
    """
    carried = root_and_body_velocity(frame.velocity)
    step = network.carry * carried / fps + output[..., : carried.shape[-1]]
    root = frame.root + step[..., :3]
    to_mean = network.pull.unsqueeze(-1) * log_small(exp(network.posture) @ frame.q.transpose(-1, -2))
    turns = step[..., 3:].unflatten(-1, (NUM_JOINTS, 3)) + to_mean
    q = exp(turns) @ frame.q
    hinges = network.hinges
    held = exp(network.free[hinges] * log_small(q[..., hinges, :, :]) + network.held[hinges])
    q = q.index_copy(q.ndim - 3, hinges, held)
    joints = body.forward(q, root)
    angular, linear = turns * network.free * fps, (joints - frame.joints) * fps
    memory = torch.cat(
        (step[..., :3] * fps, angular[..., 0, :], linear.flatten(-2), angular[..., 1:, :].flatten(-2)), dim=-1
    )
    return Local(root, q, joints, torch.cat((memory, history(frame.velocity, memory)), dim=-1))


# --- Networks ---


class MLP(nn.Module):
    """Blocks of Linear, GroupNorm and ReLU and a linear end; every linear layer may see a second input."""

    def __init__(self, widths: Sequence[int], groups: int, skip: int = 0) -> None:
        """Build the layers between some widths; `skip` is the width of the second input."""
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a + skip, b) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.GroupNorm(groups, width) for width in widths[1:-1])

    @property
    def last(self) -> nn.Linear:
        return cast(nn.Linear, self.linears[-1])

    def forward(self, x: Float[Tensor, "b i"], skip: Float[Tensor, "b s"] | None = None) -> Float[Tensor, "b o"]:
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = torch.relu(norm(linear(x if skip is None else torch.cat((x, skip), dim=-1))))
        return self.last(x if skip is None else torch.cat((x, skip), dim=-1))


class CVAENetwork(nn.Module):
    """The conditional prior and the decoder of our motion prior, with the normalisation of their input and output."""

    state_mean: Tensor
    state_scale: Tensor
    output_scale: Tensor
    carry: Tensor
    """Share of each velocity (root, root orientation, body joints) that lasts to the next frame."""
    free: Tensor
    """1 where a joint turns about an axis, 0 where the recordings hold it."""
    held: Tensor
    """Rotation about the axes that are held, 0 about the others [rad]."""
    posture: Tensor
    """The recordings' mean posture, as rotation vectors [rad]."""
    pull: Tensor
    """Share of the turn to the mean posture that a joint makes in a frame; 0 for the root."""

    def __init__(self, shape: CVAEShape) -> None:
        """Build with random weights and no normalisation."""
        super().__init__()
        self.shape = shape
        self.prior = MLP((shape.state_size, *shape.prior, 2 * shape.latent), shape.groups)
        self.decoder = MLP((shape.state_size, *shape.decoder, shape.output_size), shape.groups, skip=shape.latent)
        for name, values in shape.constants().items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))

    @property
    def hinges(self) -> Int[Tensor, "i"]:
        """Joints that do not turn about every axis."""
        return (self.free < 1).any(dim=-1).nonzero().squeeze(-1)

    def normalized(self, state: Float[Tensor, "b s"], intent: Float[Tensor, "b 5"]) -> Float[Tensor, "b i"]:
        """Bring a state to zero mean and unit variance; an intent follows, NaN as 0, and flags of what is known."""
        known, size = ~intent.isnan(), state.shape[-1]
        wanted = torch.where(known, (intent - self.state_mean[size:-3]) / self.state_scale[size:-3], 0.0)
        state = (state - self.state_mean[:size]) / self.state_scale[:size]
        return torch.cat((state, wanted, known[:, [0, 2, 4]].to(state)), dim=-1)

    def latent(self, seen: Float[Tensor, "b i"]) -> tuple[Float[Tensor, "b z"], Float[Tensor, "b z"]]:
        """Return mean and log-variance of the latent."""
        mean, log_variance = self.prior(seen).chunk(2, dim=-1)
        return mean, log_variance

    def decode(self, seen: Float[Tensor, "b i"], z: Float[Tensor, "b z"]) -> Float[Tensor, "b o"]:
        """Return deltas and contact logits for a latent."""
        return self.decoder(seen, z) * self.output_scale


def _linears(widths: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))


class PoseNetwork(nn.Module):
    """The pose model: an encoder with a part for a code's direction and one for its norm, and a decoder of directions.

    An unnatural pose can then share its direction with the natural pose next to it, and scaling its code back gives
    that pose.
    """

    input_mean: Tensor
    input_scale: Tensor

    def __init__(self, shape: PoseShape) -> None:
        """Build with random weights and no normalisation."""
        super().__init__()
        self.shape = shape
        self.encoder = _linears((shape.input_size, *shape.encoder, shape.latent))
        self.decoder = _linears((shape.latent, *shape.decoder, NUM_COLUMNS))
        self.radius = _linears((shape.input_size, *shape.radius, 1))
        self.register_buffer("input_mean", torch.zeros(shape.input_size))
        self.register_buffer("input_scale", torch.ones(shape.input_size))

    def _run(self, layers: nn.ModuleList, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        *before, last = layers
        for layer in before:
            x = nn.functional.leaky_relu(layer(x), self.shape.slope)
        return last(x)

    def encode(self, seen: Float[Tensor, "*b i"]) -> Float[Tensor, "*b z"]:
        """Return the code of a flattened pose."""
        code = self._run(self.encoder, (seen - self.input_mean) / self.input_scale)
        return nn.functional.normalize(code, dim=-1) * self.norm(seen).unsqueeze(-1)

    def norm(self, seen: Float[Tensor, "*b i"]) -> Float[Tensor, "*b"]:
        """Return the norm of that code."""
        return nn.functional.softplus(self._run(self.radius, (seen - self.input_mean) / self.input_scale)).squeeze(-1)

    def decode(self, z: Float[Tensor, "*b z"]) -> Float[Tensor, "*b 21 3 3"]:
        """Return the rotations of the body's joints for a code of any norm."""
        columns = self._run(self.decoder, nn.functional.normalize(z, dim=-1) * math.sqrt(self.shape.latent))
        # Gram-Schmidt; the third column is the cross product of the first two.
        pair = columns.unflatten(-1, (NUM_BODY, 3, 2))
        first = nn.functional.normalize(pair[..., 0], dim=-1)
        second = nn.functional.normalize(pair[..., 1] - (first * pair[..., 1]).sum(-1, keepdim=True) * first, dim=-1)
        return torch.stack((first, second, torch.linalg.cross(first, second)), dim=-1)


def flatten_pose(q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b i"]:
    """Lay out two columns of every body joint's rotation; the root's is left out."""
    return q[..., 1:, :, :2].flatten(-3)


def arrays_of(network: nn.Module) -> dict[str, np.ndarray]:
    """Return copies of a network's weights by name, for the simulator's twin of it."""
    return {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}
