"""A conditional VAE over transitions in HuMoR's form: state in the heading frame, a learned Gaussian over the latent, deltas out."""

import functools
import importlib.resources
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dropsim.body.rotations import exp, heading, log_small
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute import arrays as kernels
from dropsim.compute.threads import single_threaded
from dropsim.files.weights import load_weights, read_weights, write_weights
from dropsim.motion.motion import Motion
from dropsim.priors.prior import Candidate, Candidates, Prior, State, Streams
from dropsim.priors.starts import StartBank

NUM_BODY = NUM_JOINTS - 1
STATE_SIZE = 339
"""trans 3, trans_vel 3, root_orient 9, root_orient_vel 3, pose_body 189, joints 66, joints_vel 66."""
POSE_VELOCITY_SIZE = 3 * NUM_BODY
NUM_CONTACTS = 9
VELOCITY_SIZE = 3 + 3 + 3 * NUM_JOINTS
"""HuMoR's memory: trans_vel, root_orient_vel, joints_vel."""
_LINEAR = torch.ones(VELOCITY_SIZE // 3, 1, dtype=torch.float64).index_fill(0, torch.tensor(1), 0.0)
"""Which of its vectors are velocities of points."""


@dataclass(frozen=True)
class CVAEShape:
    """Sizes and variants of a conditional VAE; the defaults are HuMoR's."""

    latent: int = 48
    decoder: tuple[int, ...] = (1024, 1024, 512)
    """Hidden widths."""
    prior: tuple[int, ...] = (1024, 1024, 1024, 1024)
    """Hidden widths."""
    groups: int = 16
    """Of every group normalisation."""
    kinematic: bool = False
    """Ours: joints come from the rotations by forward kinematics and velocities from differences, so that neither can drift apart.
    The state then also holds the body's angular velocities, and the network's deltas are added to those of constant velocity."""
    joints_from_kinematics: bool = False
    """HuMoR's Qual variant: joints by forward kinematics of the predicted rotations instead of the predicted joints."""

    @property
    def state_size(self) -> int:
        """Width of the network's input."""
        return STATE_SIZE + (POSE_VELOCITY_SIZE if self.kinematic else 0)

    @property
    def output_size(self) -> int:
        """Width of the decoder's output: deltas and contact logits."""
        deltas = 3 + 3 + POSE_VELOCITY_SIZE
        return deltas + NUM_CONTACTS + (0 if self.kinematic else 3 + 3 + 2 * 3 * NUM_JOINTS)

    @property
    def memory_size(self) -> int:
        """Width of what the prior keeps between frames: velocities, and HuMoR's drift of trans from the pelvis."""
        return self.velocity_size + (0 if self.kinematic else 3)

    @property
    def velocity_size(self) -> int:
        """Width of the velocities in the memory."""
        return VELOCITY_SIZE + (POSE_VELOCITY_SIZE if self.kinematic else 0)


CACHED_ROWS = 512
"""Rows that go through the decoder together; what one layer says of them takes a megabyte."""
_NOTHING = np.empty((0, 0), dtype=np.float32)


class MLP(nn.Module):
    """Linear, GroupNorm, ReLU blocks and a plain linear end; a second input may be concatenated before every linear layer."""

    def __init__(self, size_in: int, hidden: tuple[int, ...], size_out: int, *, groups: int, skip: int = 0) -> None:
        """Build the layers; `skip` is the width of the input that every layer sees."""
        super().__init__()
        widths = (size_in, *hidden)
        self.linears = nn.ModuleList(nn.Linear(a + skip, b) for a, b in zip(widths, (*hidden, size_out), strict=True))
        self.norms = nn.ModuleList(nn.GroupNorm(groups, b) for b in hidden)

    def forward(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:
        """Run the blocks."""
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = torch.relu(norm(linear(x)))
        return self.linears[-1](x)

    def forward_shared(self, x: Float[Tensor, "b i"], skip: Float[Tensor, "b k s"]) -> Float[Tensor, "b k o"]:
        """Run K values of the skipped input against one x each, computing the part of the first layer that sees x once."""
        b, k, s = skip.shape
        flat = skip.reshape(b * k, s)
        first = self.linears[0]
        assert isinstance(first, nn.Linear)
        size_in = x.shape[-1]
        shared = nn.functional.linear(x, first.weight[:, :size_in], first.bias)
        hidden = nn.functional.linear(flat, first.weight[:, size_in:]).unflatten(0, (b, k)) + shared.unsqueeze(1)
        h = torch.relu(self.norms[0](hidden.flatten(0, 1)))
        for linear, norm in zip(self.linears[1:-1], list(self.norms)[1:], strict=True):
            h = torch.relu(norm(linear(torch.cat((h, flat), dim=-1))))
        return self.linears[-1](torch.cat((h, flat), dim=-1)).unflatten(0, (b, k))


class CompiledMLP:
    """The same, with kernels around the multiplications; made once, of weights that do not change any more."""

    def __init__(self, mlp: MLP, size_in: int) -> None:
        """Take the weights; beyond `size_in` the first layer's belong to the second input."""
        linears = [linear for linear in mlp.linears if isinstance(linear, nn.Linear)]
        norms = [norm for norm in mlp.norms if isinstance(norm, nn.GroupNorm)]
        self._arrays = [(kernels.constant(linear.weight), kernels.constant(linear.bias)) for linear in linears]
        widths = [size_in, *(linear.in_features for linear in linears[1:])]
        self._packed = [
            kernels.PackedLinear(n.weight.detach()[:, :width], n.bias.detach()) for n, width in zip(linears, widths, strict=True)
        ]
        self._norms = [(kernels.constant(n.weight), kernels.constant(n.bias), n.num_groups, n.eps) for n in norms]
        self._skipped = linears[0].weight.detach()[:, size_in:].T.contiguous()

    def forward(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:
        """Do what MLP.forward does."""
        return self._run(self._layer(0, x), x[:, :0], _NOTHING)

    def forward_shared(self, x: Float[Tensor, "b i"], skip: Float[Tensor, "b k s"]) -> Float[Tensor, "b k o"]:
        """Do what MLP.forward_shared does, for some people at a time, so that what lies between two layers stays in the cache."""
        (b, k, _), shared, flat = skip.shape, kernels.constant(self._layer(0, x)), skip.flatten(0, 1)
        people = max(1, CACHED_ROWS // k)
        if b <= people:
            return self._run(flat @ self._skipped, flat, shared).unflatten(0, (b, k))
        out = torch.empty(b, k, len(self._arrays[-1][1]))
        for start in range(0, b, people):
            codes = skip[start : start + people].flatten(0, 1)
            out[start : start + people] = self._run(codes @ self._skipped, codes, shared[start : start + people]).unflatten(0, (-1, k))
        return out

    def _run(self, hidden: Float[Tensor, "r h"], skip: Float[Tensor, "r s"], shared: np.ndarray) -> Float[Tensor, "r o"]:
        """Run all that comes after the first linear layer."""
        from dropsim.priors.network import norm_relu

        skipped = kernels.constant(skip)
        for i, norm in enumerate(self._norms):
            h = torch.empty(hidden.shape[0], hidden.shape[1] + skip.shape[1])
            norm_relu(hidden.numpy(), shared, *norm, skipped, h.numpy())
            hidden, shared = self._layer(i + 1, h), _NOTHING
        return hidden

    def _layer(self, index: int, x: Float[Tensor, "r i"]) -> Float[Tensor, "r o"]:
        if len(x) > kernels.FEW:
            return self._packed[index](x)
        from dropsim.priors.network import dense

        out = torch.empty(len(x), len(self._arrays[index][1]))
        dense(kernels.constant(x), *self._arrays[index], 1.0, out.numpy())
        return out


class CVAENetwork(nn.Module):
    """The conditional prior and the decoder, with the normalisation of what they see and say."""

    state_mean: Tensor
    state_scale: Tensor
    output_scale: Tensor
    carry: Tensor
    """Ours: the share of each velocity (trans, root, body) that lasts to the next frame."""
    free: Tensor
    """Ours: 1 where a joint turns about an axis, 0 where the recordings hold it."""
    held: Tensor
    """Ours: the rotation about those axes, and 0 about the others [rad]."""

    def __init__(self, shape: CVAEShape) -> None:
        """Build with random weights and no normalisation."""
        super().__init__()
        self.shape = shape
        self.prior = MLP(shape.state_size, shape.prior, 2 * shape.latent, groups=shape.groups)
        self.decoder = MLP(shape.state_size, shape.decoder, shape.output_size, groups=shape.groups, skip=shape.latent)
        self.register_buffer("state_mean", torch.zeros(shape.state_size))
        self.register_buffer("state_scale", torch.ones(shape.state_size))
        self.register_buffer("output_scale", torch.ones(shape.output_size))
        if shape.kinematic:
            self.register_buffer("carry", torch.ones(6 + POSE_VELOCITY_SIZE))
            self.register_buffer("free", torch.ones(NUM_JOINTS, 3))
            self.register_buffer("held", torch.zeros(NUM_JOINTS, 3))

    @functools.cached_property
    def hinges(self) -> Int[Tensor, "i"]:
        """Ours: the joints that do not turn about every axis."""
        return (self.free < 1).any(dim=-1).nonzero().squeeze(-1)

    def normalized(self, state: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
        """Bring a state to zero mean and unit variance."""
        return (state - self.state_mean) / self.state_scale

    def latent(self, seen: Float[Tensor, "b s"]) -> tuple[Float[Tensor, "b z"], Float[Tensor, "b z"]]:
        """Return mean and log-variance of the conditional prior for a normalised state."""
        mean, log_variance = self.prior(seen).chunk(2, dim=-1)
        return mean, log_variance

    def decode(self, seen: Float[Tensor, "b s"], z: Float[Tensor, "b k z"]) -> Float[Tensor, "b k o"]:
        """Return deltas and contact logits for K latents of each normalised state."""
        return self.decoder.forward_shared(seen, z) * self.output_scale


@dataclass(frozen=True, eq=False)
class Local:
    """A frame in the heading frame of some root: the body faces +y, its trans stands above the origin."""

    root: Float[Tensor, "*b 3"]
    """Pelvis [m]; for HuMoR trans plus the pelvis' constant offset, which drifts away from the predicted joints."""
    q: Float[Tensor, "*b 22 3 3"]
    joints: Float[Tensor, "*b 22 3"]
    velocity: Float[Tensor, "*b m"]
    """The velocities of the prior's memory in this frame: trans_vel, root_orient_vel, joints_vel, and for our variant pose_vel."""


def turn_memory(memory: Float[Tensor, "*b m"], R: Float[Tensor, "*#b 3 3"]) -> Float[Tensor, "*b m"]:
    """Turn the velocities in a memory by R; the body's own angular velocities are in their parents' frames and stay."""
    vectors = memory[..., :VELOCITY_SIZE].unflatten(-1, (-1, 3))
    turned = (vectors @ R.transpose(-1, -2)).flatten(-2)
    return torch.cat((turned, memory[..., VELOCITY_SIZE:]), dim=-1)


def state_vector(frame: Local, pelvis_offset: Float[Tensor, "3"]) -> Float[Tensor, "*b s"]:
    """Lay a local frame out as HuMoR does; for our variant the body's angular velocities follow.

    trans is not the pelvis but the pelvis less a constant offset of the body shape (SMPL's J0).
    """
    v = frame.velocity
    return torch.cat(
        (
            frame.root - pelvis_offset, v[..., :3], frame.q[..., 0, :, :].flatten(-2), v[..., 3:6], frame.q[..., 1:, :, :].flatten(-3),
            frame.joints.flatten(-2), v[..., 6:],
        ),
        dim=-1,
    )  # fmt: skip


def difference_memory(
    root: Float[Tensor, "*#b 3"], q: Float[Tensor, "*#b 22 3 3"], joints: Float[Tensor, "*#b 22 3"], next_frame: Local, fps: float
) -> Float[Tensor, "*b m"]:
    """Return the memory of our variant: velocities from one frame to the next, by differences."""
    turns = log_small(next_frame.q @ q.transpose(-1, -2)) * fps
    trans_velocity, joint_velocity = (next_frame.root - root) * fps, (next_frame.joints - joints) * fps
    return torch.cat((trans_velocity, turns[..., 0, :], joint_velocity.flatten(-2), turns[..., 1:, :].flatten(-2)), dim=-1)


def compose_kinematic(frame: Local, output: Float[Tensor, "*b o"], network: CVAENetwork, skeleton: Skeleton, fps: float) -> Local:
    """Apply the network's deltas on top of what the velocities carry on; joints follow by kinematics, velocities by differences.

    Rotations about axes that the recorded joints do not have, such as a knee's own axis, are put back to where the recordings hold them.
    """
    h = 1.0 / fps
    velocity = torch.cat((frame.velocity[..., :6], frame.velocity[..., VELOCITY_SIZE:]), dim=-1)
    step = h * network.carry * velocity + output[..., : velocity.shape[-1]]
    root = frame.root + step[..., :3]
    turns = step[..., 3:].unflatten(-1, (NUM_JOINTS, 3))
    q = exp(turns) @ frame.q
    hinges = network.hinges
    held = exp(network.free[hinges] * log_small(q[..., hinges, :, :]) + network.held[hinges])
    q = q.index_copy(q.ndim - 3, hinges, held)
    joints = skeleton.forward(q, root)
    angular = turns * network.free * fps
    memory = torch.cat(
        (step[..., :3] * fps, angular[..., 0, :], ((joints - frame.joints) * fps).flatten(-2), angular[..., 1:, :].flatten(-2)), dim=-1
    )
    return Local(root, q, joints, memory)


def compose_regressed(frame: Local, output: Float[Tensor, "*b o"]) -> Local:
    """Apply HuMoR's deltas: everything is added, rotations are R_next = exp(delta) R."""
    v = frame.velocity
    root = frame.root + output[..., :3]
    turns = torch.cat((output[..., 6:9], output[..., 12:75]), dim=-1).unflatten(-1, (NUM_JOINTS, 3))
    q = exp(turns) @ frame.q
    joints = frame.joints + output[..., 75:141].unflatten(-1, (NUM_JOINTS, 3))
    memory = v + torch.cat((output[..., 3:6], output[..., 9:12], output[..., 141:207]), dim=-1)
    return Local(root, q, joints, memory)


@dataclass(frozen=True, eq=False)
class _Constants:
    """What the kernels take from the network and the skeleton, in double precision."""

    mean: np.ndarray
    scale: np.ndarray
    output_scale: np.ndarray
    carry: np.ndarray
    free: np.ndarray
    held: np.ndarray
    offsets: np.ndarray
    rest_root: np.ndarray


@functools.cache
def _spread(temperature: float, num: int) -> Float[Tensor, "k 1"]:
    return torch.linspace(temperature, max(1.0, temperature), num).unsqueeze(-1)


class CVAEPrior(Prior):
    """A trained conditional VAE as a motion prior: our weights, or HuMoR's."""

    def __init__(
        self, network: CVAENetwork, skeleton: Skeleton, *, fps: float = 30.0, name: str = "cvae", temperature: float = 1.0
    ) -> None:
        """Wrap a network; it is put into evaluation mode and its weights are frozen. The first sample has this temperature."""
        self.network = network.eval().requires_grad_(False)
        self.skeleton, self.fps, self.name, self.temperature = skeleton, fps, name, temperature
        self._skeleton32 = skeleton.to(torch.float32)
        self._buffers = kernels.Buffers()

    @classmethod
    def shipped(cls) -> "CVAEPrior":
        """Return the model that comes with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "prior.safetensors") as path:
            if not path.exists():
                raise ValueError("this package holds no weights of the motion prior: train them with `dropsim train prior`")
            return cls.load(path)

    @classmethod
    @single_threaded
    def load(cls, path: Path) -> "CVAEPrior":
        """Read weights that `save` wrote."""
        tensors, metadata = read_weights(path, "cvae")
        sizes: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in metadata["shape"].items()}
        network = CVAENetwork(CVAEShape(**sizes))
        load_weights(network, tensors, path)
        body, temperature = Skeleton.adult(height=metadata["height"]), metadata.get("temperature", 1.0)
        return cls(network, body, fps=metadata["fps"], name=path.stem, temperature=temperature)

    @classmethod
    def from_humor(cls, path: Path, skeleton: Skeleton, *, joints_from_kinematics: bool = False) -> "CVAEPrior":
        """Read HuMoR's public checkpoint for a body of the user's own."""
        from dropsim.priors.humor import humor_prior

        return humor_prior(path, skeleton, joints_from_kinematics=joints_from_kinematics)

    def save(self, path: Path) -> None:
        """Write the weights as safetensors, with what is needed to build the network again."""
        height = round(float(self.skeleton.lengths[4]) / (0.530 - 0.285), 6)
        metadata = {"shape": asdict(self.network.shape), "fps": self.fps, "height": height, "temperature": self.temperature}
        write_weights(path, "cvae", self.network.state_dict(), metadata)

    def _to_local(self, state: State) -> tuple[Local, Float[Tensor, "*b 3 3"], Float[Tensor, "*b 3"]]:
        """Return the state in its heading frame, the turn that led there and the pelvis' place on the ground."""
        H, size = heading(state.q[..., 0, :, :]), self.network.shape.velocity_size
        root = state.x[..., 0, :]
        if not self.network.shape.kinematic:
            root = root + state.memory[..., size:]
        flat = torch.tensor([1.0, 1.0, 0.0]).to(state.x)
        origin, offset = root * flat, self.skeleton.rest[0].to(state.x) * flat
        joints, root = ((p - origin.unsqueeze(-2)) @ H.transpose(-1, -2) + offset for p in (state.x, root.unsqueeze(-2)))
        q = torch.cat((H.unsqueeze(-3) @ state.q[..., :1, :, :], state.q[..., 1:, :, :]), dim=-3)
        local = Local(root.squeeze(-2), q, joints, turn_memory(state.memory[..., :size], H))
        single = Local(*(t.to(torch.float32) for t in (local.root, local.q, local.joints, local.velocity)))
        return single, H, origin - (H.transpose(-1, -2) @ offset.unsqueeze(-1)).squeeze(-1)

    @single_threaded
    def sample(self, state: State, num_samples: int, rng: Streams) -> Candidates:
        """Propose num_samples next frames, the first being the prior's mode."""
        if num_samples < 1:
            raise ValueError(f"the prior cannot give {num_samples} samples: ask for at least 1")
        # The first sample is as calm as a motion should be; the others reach further, for a body that was pushed to find one near.
        draws = rng.normal(num_samples - 1, self.network.shape.latent)
        noise = draws.new_zeros(*draws.shape[:-2], num_samples, draws.shape[-1])
        torch.mul(draws, _spread(self.temperature, num_samples - 1), out=noise[..., 1:, :])
        return self.decode(state, noise)

    @single_threaded
    def explore(self, state: State, rng: Streams) -> Candidate:
        """Propose one next frame for somebody who looks ahead, with the full spread of the model."""
        candidates = self.decode(state, rng.normal(1, self.network.shape.latent))
        return Candidate(candidates.x.squeeze(-3), candidates.q.squeeze(-4), candidates.memory.squeeze(-2))

    @single_threaded
    def decode(self, state: State, noise: Float[Tensor, "*b k z"]) -> Candidates:
        """Propose the next frames that standard normal noise in the latent stands for."""
        if self.network.shape.kinematic and self.network.state_mean.is_cpu and kernels.serve(state.x, state.q, state.memory):
            return self._decode_compiled(state, noise)
        local, H, origin = self._to_local(state)
        batch, k = noise.shape[:-2], noise.shape[-2]
        seen = self.network.normalized(state_vector(local, self._skeleton32.rest[0]).reshape(-1, self.network.shape.state_size))
        mean, log_variance = self.network.latent(seen)
        z = mean.unsqueeze(1) + (0.5 * log_variance).exp().unsqueeze(1) * noise.reshape(-1, k, noise.shape[-1])
        output = self.network.decode(seen, z).reshape(*batch, k, -1)
        now = Local(local.root.unsqueeze(-2), local.q.unsqueeze(-4), local.joints.unsqueeze(-3), local.velocity.unsqueeze(-2))
        if self.network.shape.kinematic:
            then = compose_kinematic(now, output, self.network, self._skeleton32, self.fps)
        else:
            then = compose_regressed(now, output)
            if self.network.shape.joints_from_kinematics:
                then = replace(then, joints=self._skeleton32.forward(then.q, then.root))
        back = H.transpose(-1, -2).unsqueeze(-3)
        joints = then.joints.to(state.x) @ back.transpose(-1, -2) + origin[..., None, None, :]
        q = then.q.to(state.x)
        q = torch.cat((back.unsqueeze(-3) @ q[..., :1, :, :], q[..., 1:, :, :]), dim=-3)
        memory = turn_memory(then.velocity.to(state.x), back)
        if not self.network.shape.kinematic:
            drift = (then.root - then.joints[..., 0, :]).to(state.x).unsqueeze(-2)
            memory = torch.cat((memory, (drift @ back.transpose(-1, -2)).squeeze(-2)), dim=-1)
        return Candidates(joints, q, memory)

    def _decode_compiled(self, state: State, noise: Float[Tensor, "*b k z"]) -> Candidates:
        from dropsim.priors.network import codes, compose, local_state

        batch, k, size = noise.shape[:-2], noise.shape[-2], self.network.shape.memory_size
        body = (NUM_JOINTS, 3)
        now = (kernels.array(state.x, *body), kernels.array(state.q, *body, 3), kernels.array(state.memory, size))
        people, constants = len(now[0]), self._constants
        H, seen = np.empty((people, 3, 3)), torch.empty(people, self.network.shape.state_size)
        local_state(*now, constants.rest_root, constants.mean, constants.scale, H, seen.numpy())
        z = torch.empty(people, k, self.network.shape.latent)
        latent, decoder = self._compiled
        codes(kernels.constant(latent.forward(seen)), kernels.array(noise, k, z.shape[-1]), z.numpy())
        output = kernels.constant(decoder.forward_shared(seen, z))
        found = Candidates(*(self._buffers.take(*batch, k, *rows) for rows in (body, (*body, 3), (size,))))
        then = (kernels.array(found.x, k, *body), kernels.array(found.q, k, *body, 3), kernels.array(found.memory, k, size))
        compose(
            *now, H, output, constants.output_scale, constants.carry, constants.free, constants.held, constants.offsets, self.fps, *then
        )
        return found

    @functools.cached_property
    def _compiled(self) -> tuple[CompiledMLP, CompiledMLP]:
        size = self.network.shape.state_size
        return CompiledMLP(self.network.prior, size), CompiledMLP(self.network.decoder, size)

    @functools.cached_property
    def _constants(self) -> "_Constants":
        network, skeleton = self.network, self.skeleton
        parts = (
            network.state_mean,
            network.state_scale,
            network.output_scale,
            network.carry,
            network.free,
            network.held,
            skeleton.offsets,
            skeleton.rest[0],
        )
        return _Constants(*(kernels.constant(part.double()) for part in parts))

    @functools.cached_property
    def _bank(self) -> StartBank:
        return StartBank.shipped()

    def start(self, category: str, *, seed: Sequence[int] | int = 0) -> State:
        """Return a state of the shipped bank to go on from, e.g. "walk", above the origin and facing +y; seeds give a batch."""
        state = self._bank.draw(category, seed)
        if state.memory.shape[-1] != self.network.shape.memory_size:
            raise ValueError(f"the shipped start states belong to the shipped prior, not to {self.name}: use start_from with a motion")
        return state

    def start_from(self, motion: Motion, frame: int) -> State:
        """Return the state of a recorded or generated motion at a frame, with velocities by differences from the frame before."""
        if motion.fps != self.fps:
            motion = motion.resampled(self.fps)
        if not 1 <= frame < len(motion):
            raise ValueError(f"cannot start at frame {frame}: give one from 1 to {len(motion) - 1}, so that there is a frame before it")
        (x0, q0), (x, q) = ((motion.joints[..., i, :, :], motion.q[..., i, :, :, :]) for i in (frame - 1, frame))
        before = State(x0, torch.zeros_like(x0), q0, x0[..., 0, :0])
        return State(x, (x - x0) * self.fps, q, self.recall(before, x, q))

    def apply_impulse(self, memory: Float[Tensor, "*b m"], change: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b m"]:
        """Add the change to the velocities of the root and of all joints."""
        moved = memory[..., :VELOCITY_SIZE].unflatten(-1, (-1, 3)) + change.unsqueeze(-2) * _LINEAR.to(memory)
        return torch.cat((moved.flatten(-2), memory[..., VELOCITY_SIZE:]), dim=-1)

    def recall(self, before: State, x: Float[Tensor, "*b 22 3"], q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b m"]:
        """Return velocities by differences from a state."""
        now, shape = Local(x[..., 0, :], q, x, x[..., 0, :0]), self.network.shape
        memory = difference_memory(before.x[..., 0, :], before.q, before.x, now, self.fps)
        return nn.functional.pad(memory[..., : shape.velocity_size], (0, shape.memory_size - shape.velocity_size))
