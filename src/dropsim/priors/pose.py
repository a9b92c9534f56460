"""A pose VAE as a range of motion: the norm of a pose's code tells how natural it is; long codes are scaled back."""

import importlib.resources
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from dropsim.body import kinematics
from dropsim.body.rotations import dot, normalize, rotmat_to_rotvec
from dropsim.body.skeleton import NUM_JOINTS, flat
from dropsim.files.weights import errors_of, read_number, read_record, read_weights, require_shapes, write_weights
from dropsim.priors.network import MLP, Shapes, Tensors, linear_shapes, random_tensors

NUM_BODY = NUM_JOINTS - 1
NUM_COLUMNS = 6 * NUM_BODY
"""Two columns of every body joint's rotation."""


@dataclass(frozen=True)
class PoseShape:
    """Sizes and variants of a pose VAE; the defaults are ours."""

    encoder: tuple[int, ...] = (256, 256)
    """Hidden widths."""
    decoder: tuple[int, ...] = (256, 256)
    """Hidden widths."""
    radius: tuple[int, ...] = (256, 256)
    """Hidden widths of the part that gives the code's norm, so that its direction says which pose it is and its norm
    how natural; empty for VPoser, whose encoder gives both in one."""
    latent: int = 32
    slope: float = 0.2
    """Slope of the leaky ReLU below zero."""
    rotvecs: bool = False
    """VPoser's input: rotation vectors instead of the first two columns of the rotations."""

    def __post_init__(self) -> None:
        if not 0 <= self.slope <= 1:
            raise ValueError(f"the slope of a leaky ReLU is between 0 and 1, not {self.slope:g}")

    @property
    def input_size(self) -> int:
        """Width of the encoder's input."""
        return 3 * NUM_BODY if self.rotvecs else NUM_COLUMNS

    def layer_shapes(self) -> Shapes:
        """Return the names and shapes of the layers' tensors."""
        shapes = linear_shapes("encoder", (self.input_size, *self.encoder, self.latent))
        shapes |= linear_shapes("decoder", (self.latent, *self.decoder, NUM_COLUMNS))
        return shapes | (linear_shapes("radius", (self.input_size, *self.radius, 1)) if self.radius else {})

    def tensor_shapes(self) -> Shapes:
        """Return the names and shapes of all tensors in a file."""
        return {"input_mean": (self.input_size,), "input_scale": (self.input_size,)} | self.layer_shapes()


class PoseNetwork:
    """The encoder's mean and the decoder: linear layers with leaky ReLUs. `research.training` has its torch twin.

    Ours keeps direction and norm of the code apart, and the decoder sees the direction only. Then an unnatural pose can
    have the direction of the natural pose next to it, whose own code is short, and scaling its code back gives that
    pose.
    """

    def __init__(self, shape: PoseShape, tensors: Tensors) -> None:
        """Build from checked tensors by their names in a file; the input's mean and scale may be left out."""
        size = shape.input_size
        plain = {"input_mean": np.zeros(size), "input_scale": np.ones(size)}
        self.shape, tensors = shape, {name: value.astype(np.float32) for name, value in (plain | dict(tensors)).items()}
        self.tensors = tensors
        mean, scale = tensors["input_mean"], tensors["input_scale"]
        if not (scale > 0).all():
            raise ValueError("the network's input_scale has to be above zero")
        # Layers that take the input as it is, for layers that take it less its mean, over its scale.
        scaled = dict(tensors)
        for part in ("encoder", "radius") if shape.radius else ("encoder",):
            weight = tensors[f"{part}.0.weight"].astype(np.float64) / scale
            scaled[f"{part}.0.weight"] = weight.astype(np.float32)
            scaled[f"{part}.0.bias"] = (tensors[f"{part}.0.bias"] - weight @ mean).astype(np.float32)
        self._encoder, self._decoder, self._radius = (
            MLP(scaled, part, slope=shape.slope) for part in ("encoder", "decoder", "radius")
        )

    @classmethod
    def random(cls, shape: PoseShape, seed: int = 0) -> "PoseNetwork":
        """Return a network that has not learnt anything yet."""
        return cls(shape, random_tensors(shape.layer_shapes(), seed))

    def encode(self, seen: Float32[np.ndarray, "b i"]) -> Float32[np.ndarray, "b z"]:
        """Return the mean of the code for a flattened pose."""
        return self.scaled_code(seen, self.norm(seen)[:, None])

    def scaled_code(
        self, seen: Float32[np.ndarray, "b i"], norm: np.ndarray | np.float32
    ) -> Float32[np.ndarray, "b z"]:
        """Return codes of flattened poses, brought to a norm."""
        return norm * _unit(self._encoder.forward(seen)[:, 0])

    def norm(self, seen: Float32[np.ndarray, "b i"]) -> Float32[np.ndarray, "b"]:
        """Return the norm of that mean; ours has a part for it."""
        if not self.shape.radius:
            return np.linalg.norm(self._encoder.forward(seen)[:, 0], axis=-1)
        radius = self._radius.forward(seen)[:, 0, 0]
        # Softplus; a number that is not finite stays so.
        return np.maximum(radius, 0) + np.log1p(np.exp(-np.abs(radius)))

    def decode(self, z: Float32[np.ndarray, "b z"]) -> Float32[np.ndarray, "b c"]:
        """Return two columns for each body joint, not yet orthonormal."""
        z = _unit(z) * np.float32(math.sqrt(self.shape.latent)) if self.shape.radius else z
        return self._decoder.forward(z)[:, 0]


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-12)


def columns_to_rotations(columns: Float[np.ndarray, "*b c"]) -> Float[np.ndarray, "*b 21 3 3"]:
    """Orthonormalise the two columns of each joint (Gram-Schmidt); the third is their cross product."""
    a, b = np.moveaxis(columns.reshape(*columns.shape[:-1], NUM_BODY, 3, 2), -1, 0)
    a = normalize(a)
    b = normalize(b - dot(a, b) * a)
    return np.stack((a, b, np.cross(a, b)), axis=-1)


def flatten_pose(q: Float[np.ndarray, "*b 22 3 3"], shape: PoseShape) -> Float32[np.ndarray, "n i"]:
    """Lay the body's rotations out as the encoder sees them, a row for each pose; the root's is left out."""
    if shape.rotvecs:
        return rotmat_to_rotvec(q[..., 1:, :, :]).reshape(-1, shape.input_size).astype(np.float32)
    seen = np.empty((math.prod(q.shape[:-3]), NUM_COLUMNS), dtype=np.float32)
    kinematics.columns(flat(q, 3), seen)
    return seen


@dataclass(frozen=True, eq=False)
class PosePrior:
    """The range of motion as DROP has it: a pose is natural while its code's norm is below a limit."""

    network: PoseNetwork
    limit: float = 6.0
    """Norm of the code's mean above which a pose is out of range."""

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise ValueError(f"the limit of a pose prior has to be above zero, not {self.limit:g}")

    @classmethod
    def shipped(cls) -> "PosePrior":
        """Return the model that comes with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "pose.safetensors") as path:
            return cls.load(path)

    @classmethod
    def load(cls, path: str | Path) -> "PosePrior":
        """Read weights that `save` wrote; sizes are compared with the file's tensors before anything is built."""
        tensors, metadata = read_weights(path, "pose")
        with errors_of(path):
            shape = read_record(metadata, "shape", PoseShape)
            require_shapes(tensors, shape.tensor_shapes())
            limit = read_number(metadata, "limit", cls.limit, low=1e-6, high=1e6)
            return cls(PoseNetwork(shape, tensors), limit)

    def save(self, path: str | Path) -> None:
        """Write the weights as safetensors, with what is needed to build the network again."""
        write_weights(path, "pose", self.network.tensors, {"shape": asdict(self.network.shape), "limit": self.limit})

    @classmethod
    def from_vposer(cls, path: str | Path) -> "PosePrior":
        """Read a user's own VPoser, version 1 or 2: the checkpoint, or the folder that holds it."""
        from dropsim.priors.vposer import vposer_network

        return cls(vposer_network(path))

    def encode(self, q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b z"]:
        """Return the mean of a pose's code."""
        code = self.network.encode(flatten_pose(q, self.network.shape))
        return code.astype(np.float64).reshape(*q.shape[:-3], self.network.shape.latent)

    def decode(self, z: Float[np.ndarray, "*b z"]) -> Float[np.ndarray, "*b 21 3 3"]:
        """Return the body's rotations that a code stands for."""
        columns = self.network.decode(z.reshape(-1, z.shape[-1]).astype(np.float32))
        return columns_to_rotations(columns.astype(np.float64).reshape(*z.shape[:-1], NUM_COLUMNS))

    def norm(self, q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b"]:
        """Return how far out a pose is; above the limit it is out of range."""
        return self.network.norm(flatten_pose(q, self.network.shape)).astype(np.float64).reshape(q.shape[:-3])

    def scaled_back(self, q: Float[np.ndarray, "n 22 3 3"]) -> Float[np.ndarray, "n 22 3 3"]:
        """Return what the codes of poses out of range say when scaled back to the limit."""
        code = self.network.scaled_code(flatten_pose(q, self.network.shape), np.float32(self.limit))
        return np.concatenate((q[:, :1], self.decode(code)), axis=1)
