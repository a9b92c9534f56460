"""A pose VAE as a range of motion: the norm of a pose's code tells how natural it is, and a code that is too long is scaled back."""

import functools
import importlib.resources
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import roma
import torch
from jaxtyping import Float
from torch import Tensor, nn

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute import arrays as kernels
from dropsim.compute.threads import single_threaded
from dropsim.files.weights import load_weights, read_checkpoint, read_weights, require_tensors, write_weights

NUM_BODY = NUM_JOINTS - 1
NUM_COLUMNS = 6 * NUM_BODY
"""Two columns of every body joint's rotation."""
NUM_COMPILED = 3
"""Layers that the compiled norm has."""


_Affine = tuple[Tensor, Tensor]
"""Weight and bias of a linear layer."""


@dataclass(frozen=True)
class PoseShape:
    """Sizes and variants of a pose VAE; the defaults are ours."""

    encoder: tuple[int, ...] = (256, 256)
    """Hidden widths."""
    decoder: tuple[int, ...] = (256, 256)
    """Hidden widths."""
    radius: tuple[int, ...] = (256, 256)
    """Hidden widths of the part that gives the code's norm, so that its direction says which pose it is and its norm how natural;
    empty for VPoser, whose encoder gives both in one."""
    latent: int = 32
    slope: float = 0.2
    """Of the leaky ReLU below zero."""
    rotvecs: bool = False
    """VPoser's input: rotation vectors instead of the first two columns of the rotations."""

    @property
    def input_size(self) -> int:
        """Width of the encoder's input."""
        return 3 * NUM_BODY if self.rotvecs else NUM_COLUMNS


def _linears(widths: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))


class PoseNetwork(nn.Module):
    """The encoder's mean and the decoder: linear layers with leaky ReLUs between them.

    Ours keeps direction and norm of the code apart, and the decoder sees the direction only. Then an unnatural pose can have the direction
    of the natural pose next to it, whose own code is short, and scaling its code back gives that pose.
    """

    input_mean: Tensor
    input_scale: Tensor

    def __init__(self, shape: PoseShape) -> None:
        """Build with random weights and no normalisation."""
        super().__init__()
        self.shape = shape
        self.encoder = _linears((shape.input_size, *shape.encoder, shape.latent))
        self.decoder = _linears((shape.latent, *shape.decoder, NUM_COLUMNS))
        self.radius = _linears((shape.input_size, *shape.radius, 1)) if shape.radius else None
        self.register_buffer("input_mean", torch.zeros(shape.input_size))
        self.register_buffer("input_scale", torch.ones(shape.input_size))

    def _run(self, layers: nn.ModuleList, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        *before, last = layers
        for layer in before:
            x = nn.functional.leaky_relu(layer(x), self.shape.slope)
        return last(x)

    def encode(self, seen: Float[Tensor, "*b i"]) -> Float[Tensor, "*b z"]:
        """Return the mean of the code for a flattened pose."""
        normal = (seen - self.input_mean) / self.input_scale
        code = self._run(self.encoder, normal)
        return code if self.radius is None else nn.functional.normalize(code, dim=-1) * self.norm(seen).unsqueeze(-1)

    def norm(self, seen: Float[Tensor, "*b i"]) -> Float[Tensor, "*b"]:
        """Return the norm of that mean; ours has a part for it."""
        if self.radius is None:
            return self.encode(seen).norm(dim=-1)
        normal = (seen - self.input_mean) / self.input_scale
        return nn.functional.softplus(self._run(self.radius, normal)).squeeze(-1)

    def decode(self, z: Float[Tensor, "*b z"]) -> Float[Tensor, "*b c"]:
        """Return two columns for each body joint, not yet orthonormal."""
        if self.radius is not None:
            z = nn.functional.normalize(z, dim=-1) * math.sqrt(self.shape.latent)
        return self._run(self.decoder, z)


def columns_to_rotations(columns: Float[Tensor, "*b c"]) -> Float[Tensor, "*b 21 3 3"]:
    """Orthonormalise the two columns of each joint (Gram-Schmidt); the third is their cross product."""
    pair = columns.unflatten(-1, (NUM_BODY, 3, 2))
    first = nn.functional.normalize(pair[..., 0], dim=-1)
    second = pair[..., 1] - (first * pair[..., 1]).sum(-1, keepdim=True) * first
    second = nn.functional.normalize(second, dim=-1)
    return torch.stack((first, second, torch.linalg.cross(first, second)), dim=-1)


def flatten_pose(q: Float[Tensor, "*b 22 3 3"], shape: PoseShape) -> Float[Tensor, "*b i"]:
    """Lay the body's rotations out as the encoder sees them; the root's is left out."""
    body = q[..., 1:, :, :]
    if shape.rotvecs:
        return roma.rotmat_to_rotvec(body).flatten(-2)
    return body[..., :2].flatten(-3)


@dataclass(frozen=True, eq=False)
class PosePrior:
    """The range of motion as DROP has it: a pose is natural while its code's norm is below a limit."""

    network: PoseNetwork
    limit: float = 6.0
    """Norm of the code's mean above which a pose is out of range."""

    def __post_init__(self) -> None:
        self.network.eval().requires_grad_(False)

    @classmethod
    def shipped(cls) -> "PosePrior":
        """Return the model that comes with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "pose.safetensors") as path:
            return cls.load(path)

    @classmethod
    @single_threaded
    def load(cls, path: Path) -> "PosePrior":
        """Read weights that `save` wrote."""
        tensors, metadata = read_weights(path, "pose")
        try:
            sizes: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in metadata["shape"].items()}
            network = PoseNetwork(PoseShape(**sizes))
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{path} does not tell the sizes of its network: train it again with `dropsim train pose`") from None
        load_weights(network, tensors, path)
        return cls(network, float(metadata.get("limit", cls.limit)))

    def save(self, path: Path) -> None:
        """Write the weights as safetensors, with what is needed to build the network again."""
        write_weights(path, "pose", self.network.state_dict(), {"shape": asdict(self.network.shape), "limit": self.limit})

    @classmethod
    def from_vposer(cls, path: Path) -> "PosePrior":
        """Read a user's own VPoser, version 1 or 2: the checkpoint, or the folder that holds it."""
        path = _vposer_checkpoint(path)
        state = read_checkpoint(path)
        if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
            network = _vposer_2(path, state["state_dict"])
        else:
            network = _vposer_1(path, state)
        return cls(network)

    def encode(self, q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 32"]:
        """Return the mean of a pose's code."""
        return self.network.encode(flatten_pose(q, self.network.shape).float()).to(q.dtype)

    def decode(self, z: Float[Tensor, "*b 32"]) -> Float[Tensor, "*b 21 3 3"]:
        """Return the body's rotations that a code stands for."""
        # Orthonormalised in the caller's precision, so that double stays double.
        return columns_to_rotations(self.network.decode(z.float()).to(z.dtype))

    def norm(self, q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b"]:
        """Return how far out a pose is; above the limit it is out of range."""
        if len(self._radius) == NUM_COMPILED and kernels.serve(q) and q.shape[:-3].numel() <= kernels.FEW:
            return self._norm_compiled(q)
        return self.network.norm(flatten_pose(q, self.network.shape).float()).to(q.dtype)

    def _norm_compiled(self, q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b"]:
        from dropsim.priors.network import code_norm

        out = torch.empty(q.shape[:-3], dtype=torch.float64)
        code_norm(kernels.array(q, NUM_JOINTS, 3, 3), *itertools.chain(*self._radius), self.network.shape.slope, kernels.array(out))
        return out

    @functools.cached_property
    def _radius(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The layers that give the code's norm, with the normalisation of the input in the first; none where the code itself does."""
        if self.network.radius is None:
            return []
        (weight, bias), *others = [(layer.weight, layer.bias) for layer in self.network.radius if isinstance(layer, nn.Linear)]
        scaled = weight.double() / self.network.input_scale
        first = (scaled.float(), (bias - scaled @ self.network.input_mean.double()).float())
        return [(kernels.constant(weight), kernels.constant(bias)) for weight, bias in (first, *others)]

    def project(self, q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
        """Return the poses, those out of range replaced by what their codes say when scaled back to the limit.

        The root's orientation and poses within the range come back as they are.
        """
        norm = self.norm(q)
        outside = norm > self.limit
        if not outside.any():
            return q
        body = q[..., 1:, :, :].clone()
        body[outside] = self.decode(self.encode(q[outside]) * (self.limit / norm[outside]).unsqueeze(-1))
        return torch.cat((q[..., :1, :, :], body), dim=-3)


VPOSER_WIDTH, VPOSER_LATENT = 512, 32
_NORM_EPSILON = 1e-5
"""PyTorch's default for batch normalisation, which both versions use."""


def _vposer_checkpoint(path: Path) -> Path:
    """Return the checkpoint in one of VPoser's folders, the last by name; a file is returned as it is."""
    if not path.is_dir():
        return path
    found = sorted(p for folder in (path / "snapshots", path) for p in folder.glob("*") if p.suffix in (".ckpt", ".pt"))
    if not found:
        raise ValueError(f"{path} holds no VPoser checkpoint: expected a .ckpt or .pt file in it or in its folder snapshots")
    return found[-1]


def _vposer_sizes(norms: Mapping[str, int], linears: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {}
    for name, size in norms.items():
        sizes |= {f"{name}.{part}": (size,) for part in ("weight", "bias", "running_mean", "running_var")}
    for name, (size_in, size_out) in linears.items():
        sizes |= {f"{name}.weight": (size_out, size_in), f"{name}.bias": (size_out,)}
    return sizes


def _vposer_1(path: Path, state: object) -> PoseNetwork:
    """Read version 1: norm, linear, leaky ReLU, norm, linear, leaky ReLU, mean."""
    w, z = VPOSER_WIDTH, VPOSER_LATENT
    enc, dec = "bodyprior_enc_", "bodyprior_dec_"
    linears = {f"{enc}fc1": (63, w), f"{enc}fc2": (w, w), f"{enc}mu": (w, z), f"{enc}logvar": (w, z)}
    linears |= {f"{dec}fc1": (z, w), f"{dec}fc2": (w, w), f"{dec}out": (w, NUM_COLUMNS)}
    tensors = require_tensors(path, state, _vposer_sizes({f"{enc}bn1": 63, f"{enc}bn2": w}, linears), "VPoser")
    encoder = (_after_norm(tensors, f"{enc}bn1", f"{enc}fc1"), _after_norm(tensors, f"{enc}bn2", f"{enc}fc2"), _affine(tensors, f"{enc}mu"))
    decoder = tuple(_affine(tensors, f"{dec}{name}") for name in ("fc1", "fc2", "out"))
    return _filled(PoseShape((w, w), (w, w), (), z, slope=0.2, rotvecs=True), encoder, decoder)


def _vposer_2(path: Path, state: Mapping[str, object]) -> PoseNetwork:
    """Read version 2: norm, linear, leaky ReLU, norm, then three linear layers with nothing between them, which are one."""
    w, z = VPOSER_WIDTH, VPOSER_LATENT
    enc, dec = "vp_model.encoder_net.", "vp_model.decoder_net."
    linears = {f"{enc}2": (63, w), f"{enc}6": (w, w), f"{enc}7": (w, w), f"{enc}8.mu": (w, z), f"{enc}8.logvar": (w, z)}
    linears |= {f"{dec}0": (z, w), f"{dec}3": (w, w), f"{dec}5": (w, NUM_COLUMNS)}
    tensors = require_tensors(path, state, _vposer_sizes({f"{enc}1": 63, f"{enc}4": w}, linears), "VPoser")
    tail = _after_norm(tensors, f"{enc}4", f"{enc}6")
    for name in ("7", "8.mu"):
        weight, bias = _affine(tensors, enc + name)
        tail = (weight @ tail[0], weight @ tail[1] + bias)
    decoder = tuple(_affine(tensors, dec + name) for name in ("0", "3", "5"))
    return _filled(PoseShape((w,), (w, w), (), z, slope=0.01, rotvecs=True), (_after_norm(tensors, f"{enc}1", f"{enc}2"), tail), decoder)


def _affine(tensors: Mapping[str, Tensor], linear: str) -> _Affine:
    return tensors[f"{linear}.weight"].double(), tensors[f"{linear}.bias"].double()


def _after_norm(tensors: Mapping[str, Tensor], norm: str, linear: str) -> _Affine:
    """Return the linear layer that a trained batch normalisation and the linear layer after it amount to."""
    gain, shift, mean, variance = (tensors[f"{norm}.{part}"].double() for part in ("weight", "bias", "running_mean", "running_var"))
    scale = gain / (variance + _NORM_EPSILON).sqrt()
    weight, bias = _affine(tensors, linear)
    return weight * scale, bias + weight @ (shift - mean * scale)


def _filled(shape: PoseShape, encoder: Sequence[_Affine], decoder: Sequence[_Affine]) -> PoseNetwork:
    network = PoseNetwork(shape)
    for layers, values in ((network.encoder, encoder), (network.decoder, decoder)):
        for layer, (weight, bias) in zip(layers, values, strict=True):
            linear = cast(nn.Linear, layer)
            linear.weight.data, linear.bias.data = weight.float(), bias.float()
    return network
