"""A conditional VAE over transitions in HuMoR's form: state in the heading frame, a learned Gaussian over the latent, deltas out."""

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from dropsim.body.rotations import log_small, transpose
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, flat
from dropsim.compute.buffers import Buffers
from dropsim.compute.random import Streams
from dropsim.files.weights import errors_of, read_number, read_record, read_weights, require_shapes, write_weights
from dropsim.priors.cvae_kernels import codes, compose_kinematic, compose_regressed, local_state
from dropsim.priors.intent import Intent
from dropsim.priors.network import MLP
from dropsim.priors.prior import Candidate, Candidates, Prior, State
from dropsim.priors.starts import pop_skeleton, shipped_starts, skeleton_tensors

NUM_BODY = NUM_JOINTS - 1
STATE_SIZE = 339
"""trans 3, trans_vel 3, root_orient 9, root_orient_vel 3, pose_body 189, joints 66, joints_vel 66."""
POSE_VELOCITY_SIZE = 3 * NUM_BODY
NUM_CONTACTS = 9
VELOCITY_SIZE = 3 + 3 + 3 * NUM_JOINTS
"""HuMoR's memory: trans_vel, root_orient_vel, joints_vel."""
_LINEAR = np.ones((VELOCITY_SIZE // 3, 1))
"""Which of its vectors are velocities of points."""
_LINEAR[1] = 0.0
INTENT_SIZE = 5 + 3
"""Velocity 2, facing 2 and height 1 of an intent in the heading frame, and a flag for each of the three that is
known."""


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
    """Ours: joints come from the rotations by forward kinematics and velocities from differences, so that neither can
    drift apart. The state then also holds the body's angular velocities, and the network's deltas are added to those of
    constant velocity."""
    joints_from_kinematics: bool = False
    """HuMoR's Qual variant: joints by forward kinematics of the predicted rotations instead of the predicted joints."""
    intent: bool = False
    """Ours: the input ends with an intent."""
    trunk: tuple[int, ...] = ()
    """Ours: hidden widths, and the number of features at the end, of a network that is computed once a frame. The prior
    and the decoder, which is computed for every sample, then see its features instead of the state, and can be small.
    Empty: both see the state."""

    def __post_init__(self) -> None:
        if not (self.decoder and self.prior):
            raise ValueError("a conditional VAE needs at least one hidden layer in its prior and in its decoder")
        if self.intent and not self.kinematic:
            raise ValueError("a conditional VAE takes an intent only if it is kinematic")
        if odd := [width for width in (*self.decoder, *self.prior, *self.trunk[:-1]) if width % self.groups]:
            raise ValueError(f"a hidden layer of {odd[0]} cannot be normalised in {self.groups} groups of equal size")

    @property
    def state_size(self) -> int:
        """Width of the network's input."""
        return STATE_SIZE + (POSE_VELOCITY_SIZE if self.kinematic else 0) + (INTENT_SIZE if self.intent else 0)

    @property
    def features_size(self) -> int:
        """Width of what the prior and the decoder see."""
        return self.trunk[-1] if self.trunk else self.state_size

    @property
    def output_size(self) -> int:
        """Width of the decoder's output: deltas and contact logits."""
        deltas = 3 + 3 + POSE_VELOCITY_SIZE
        return deltas + NUM_CONTACTS + (0 if self.kinematic else 3 + 3 + 2 * 3 * NUM_JOINTS)

    @property
    def velocity_size(self) -> int:
        """Width of the velocities in the memory."""
        return VELOCITY_SIZE + (POSE_VELOCITY_SIZE if self.kinematic else 0)

    @property
    def memory_size(self) -> int:
        """Width of what the prior keeps between frames: velocities, and HuMoR's drift of trans from the pelvis."""
        return self.velocity_size + (0 if self.kinematic else 3)

    @property
    def prior_widths(self) -> tuple[int, ...]:
        """Widths of the conditional prior's layers, input and output included."""
        return (self.features_size, *self.prior, 2 * self.latent)

    @property
    def decoder_widths(self) -> tuple[int, ...]:
        """Widths of the decoder's layers, input and output included; every layer also sees the latent."""
        return (self.features_size, *self.decoder, self.output_size)

    def buffers(self) -> dict[str, np.ndarray]:
        """Return the constants next to the layers by name, without effect: no normalisation, velocities that last, free joints."""
        size, out = self.state_size, self.output_size
        plain = {"state_mean": np.zeros(size), "state_scale": np.ones(size), "output_scale": np.ones(out)}
        if self.kinematic:
            plain |= {
                "carry": np.ones(6 + POSE_VELOCITY_SIZE),
                "free": np.ones((NUM_JOINTS, 3)),
                "held": np.zeros((NUM_JOINTS, 3)),
            }
        return plain

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the tensors in a file."""
        shapes = {name: value.shape for name, value in self.buffers().items()}
        if self.trunk:
            shapes |= MLP.tensor_shapes("trunk", (self.state_size, *self.trunk))
        shapes |= MLP.tensor_shapes("prior", self.prior_widths)
        return shapes | MLP.tensor_shapes("decoder", self.decoder_widths, self.latent)


@dataclass(frozen=True, eq=False)
class CVAENetwork:
    """The conditional prior and the decoder, with the normalisation of their input and output. `research.training` has its torch twin."""

    shape: CVAEShape
    trunk: MLP | None
    """From a normalised state to the features that the other two see; None: they see the state."""
    prior: MLP
    """From features to mean and log-variance of the latent."""
    decoder: MLP
    """From features and a latent to deltas and contact logits."""
    state_mean: Float[np.ndarray, "s"]
    state_scale: Float[np.ndarray, "s"]
    output_scale: Float[np.ndarray, "o"]
    carry: Float[np.ndarray, "v"]
    """Ours: the share of each velocity (trans, root, body) that lasts to the next frame."""
    free: Float[np.ndarray, "22 3"]
    """Ours: 1 where a joint turns about an axis, 0 where the recordings hold it."""
    held: Float[np.ndarray, "22 3"]
    """Ours: the rotation about those axes, and 0 about the others [rad]."""

    @classmethod
    def from_tensors(cls, shape: CVAEShape, tensors: Mapping[str, np.ndarray]) -> "CVAENetwork":
        """Build from tensors by their names in a file; names, shapes and numbers were checked before. Constants may be left out."""
        constants = CVAEShape(kinematic=True).buffers() | shape.buffers()
        constants = {
            name: np.ascontiguousarray(tensors.get(name, value), dtype=np.float64) for name, value in constants.items()
        }
        if not (constants["state_scale"] > 0).all():
            raise ValueError("the network's state_scale has to be above zero")
        trunk = MLP.from_tensors("trunk", tensors, len(shape.trunk) - 1, groups=shape.groups) if shape.trunk else None
        prior = MLP.from_tensors("prior", tensors, len(shape.prior), groups=shape.groups)
        decoder = MLP.from_tensors("decoder", tensors, len(shape.decoder), groups=shape.groups, skip=shape.latent)
        return cls(shape, trunk, prior, decoder, **constants)

    @classmethod
    def random(cls, shape: CVAEShape, seed: int = 0) -> "CVAENetwork":
        """Return a network that has not learnt anything yet."""
        rng = np.random.default_rng(seed)
        layers = MLP.random(shape.prior_widths, rng, groups=shape.groups).tensors("prior")
        layers |= MLP.random(shape.decoder_widths, rng, groups=shape.groups, skip=shape.latent).tensors("decoder")
        if shape.trunk:
            layers |= MLP.random((shape.state_size, *shape.trunk), rng, groups=shape.groups).tensors("trunk")
        return cls.from_tensors(shape, layers)

    def decode(
        self, seen: Float32[np.ndarray, "b s"], noise: Float[np.ndarray, "b k z"]
    ) -> Float32[np.ndarray, "b k o"]:
        """Return deltas and contact logits for normalised states and standard normal noise in the latent."""
        features = seen if self.trunk is None else self.trunk.forward(seen)
        z = np.empty(noise.shape, dtype=np.float32)
        codes(self.prior.forward(features), noise, z)
        return self.decoder.forward_shared(features, z)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return all numbers in single precision, by their names in a file."""
        constants = {name: getattr(self, name).astype(np.float32) for name in self.shape.buffers()}
        trunk = self.trunk.tensors("trunk") if self.trunk else {}
        return constants | trunk | self.prior.tensors("prior") | self.decoder.tensors("decoder")


def turn_memory(memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "*#b 3 3"]) -> Float[np.ndarray, "*b m"]:
    """Turn the velocities in a memory by R; the body's own angular velocities are in their parents' frames and stay."""
    vectors = memory[..., :VELOCITY_SIZE].reshape(*memory.shape[:-1], -1, 3) @ transpose(R)
    return np.concatenate((vectors.reshape(*vectors.shape[:-2], VELOCITY_SIZE), memory[..., VELOCITY_SIZE:]), axis=-1)


def difference_memory(
    x0: Float[np.ndarray, "*b 22 3"], q0: Float[np.ndarray, "*b 22 3 3"],
    x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"], fps: float,
) -> Float[np.ndarray, "*b m"]:  # fmt: skip
    """Return our variant's memory after a step: velocities by differences of two frames."""
    turns, moves = log_small(q @ transpose(q0)) * fps, (x - x0) * fps
    batch = x.shape[:-2]
    return np.concatenate(
        (moves[..., 0, :], turns[..., 0, :], moves.reshape(*batch, -1), turns[..., 1:, :].reshape(*batch, -1)), axis=-1
    )


def _seen_intent(
    intent: Intent | None, H: Float[np.ndarray, "n 3 3"], mean: Float[np.ndarray, "5"], scale: Float[np.ndarray, "5"]
) -> Float[np.ndarray, "n 8"]:
    """Return intents as the network sees them: in the heading frame, normalised, 0 where unknown, and flags of what is known."""
    people = len(H)
    if intent is None:
        return np.zeros((people, INTENT_SIZE))
    vectors = np.stack((intent.velocity.reshape(-1, 2), intent.facing.reshape(-1, 2)), axis=1) @ transpose(H)[:, :2, :2]
    values = (np.concatenate((vectors.reshape(people, 4), intent.height.reshape(people, 1)), axis=1) - mean) / scale
    known = ~np.isnan(values)
    return np.concatenate((np.where(known, values, 0.0), known[:, [0, 2, 4]]), axis=1)


class CVAEPrior(Prior):
    """A trained conditional VAE as a motion prior: our weights, or HuMoR's."""

    drift = 0.1  # its samples are noisier than recordings: corrected further, people fall with nobody pushing

    def __init__(
        self, network: CVAENetwork, skeleton: Skeleton, *, fps: float = 30.0, name: str = "cvae", temperature: float = 1.0,
        guidance: float = 1.0,
    ) -> None:  # fmt: skip
        """Wrap a network for a body; the spread of the candidates goes from `temperature` for the second one to 1 for the last.

        `guidance` is how much an intent counts: what it changes in the mode is taken this many times (Ho and Salimans
        2022).
        """
        self.network, self.skeleton, self.fps, self.name, self.temperature = network, skeleton, fps, name, temperature
        self.guidance = guidance
        self.takes_intent = network.shape.intent
        self._buffers = Buffers()

    @classmethod
    def shipped(cls) -> "CVAEPrior":
        """Return the model that comes with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "prior.safetensors") as path:
            if not path.exists():
                raise ValueError(
                    "this package holds no weights of the motion prior: train them with `dropsim train prior`"
                )
            prior = cls.load(path)
        prior.name = "cvae"
        return prior

    @classmethod
    def load(cls, path: str | Path) -> "CVAEPrior":
        """Read a prior that `save` wrote. Sizes are compared with the tensors in the file before anything is built from them."""
        path = Path(path)
        tensors, metadata = read_weights(path, "cvae")
        with errors_of(path):
            shape = read_record(metadata, "shape", CVAEShape)
            fps = read_number(metadata, "fps", low=1.0, high=1000.0)
            temperature = read_number(metadata, "temperature", 1.0, low=0.0, high=10.0)
            guidance = read_number(metadata, "guidance", 1.0, low=0.0, high=10.0)
            body = pop_skeleton(tensors)
            if body is None:  # the first edition kept a height alone
                body = Skeleton.adult(height=read_number(metadata, "height", low=0.3, high=3.0))
            require_shapes(tensors, shape.tensor_shapes())
            network = CVAENetwork.from_tensors(shape, tensors)
            return cls(network, body, fps=fps, name=path.stem, temperature=temperature, guidance=guidance)

    @classmethod
    def from_humor(cls, path: str | Path, skeleton: Skeleton, *, joints_from_kinematics: bool = False) -> "CVAEPrior":
        """Read HuMoR's public checkpoint for a body of the user's own."""
        from dropsim.priors.humor import humor_prior

        return humor_prior(path, skeleton, joints_from_kinematics=joints_from_kinematics)

    def save(self, path: str | Path) -> None:
        """Write weights and body as safetensors, with what is needed to build the network again."""
        metadata = {
            "shape": asdict(self.network.shape),
            "fps": self.fps,
            "temperature": self.temperature,
            "guidance": self.guidance,
        }
        write_weights(path, "cvae", self.network.tensors() | skeleton_tensors(self.skeleton), metadata)

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Propose the mode and num - 1 samples."""
        if num < 1:
            raise ValueError(f"the prior cannot give {num} candidates: ask for at least 1")
        noise = np.zeros((*state.x.shape[:-2], num, self.network.shape.latent))
        # The first sample is as calm as a motion should be; later ones reach further, so that a body that was pushed
        # finds one near.
        spread = np.linspace(self.temperature, max(1.0, self.temperature), num - 1)
        np.multiply(rng.normal(num - 1, noise.shape[-1]), spread[:, None], out=noise[..., 1:, :])
        return self.decode(state, noise, intent)

    def explore(self, state: State, rng: Streams) -> Candidate:
        """Propose one next frame for a planner that looks ahead, with the full spread of the model."""
        return self.decode(state, rng.normal(1, self.network.shape.latent)).pick(0)

    def decode(self, state: State, noise: Float[np.ndarray, "*b k z"], intent: Intent | None = None) -> Candidates:
        """Propose the next frames that standard normal noise in the latent stands for."""
        network, shape = self.network, self.network.shape
        now = (flat(state.x, 2), flat(state.q, 3), flat(state.memory, 1))
        if now[2].shape[1] != shape.memory_size:
            raise ValueError(
                f"the state's memory is of another prior than {self.name}: make the state with its start or start_from"
            )
        people, k = len(now[0]), noise.shape[-2]
        H, seen = np.empty((people, 3, 3)), np.empty((people, shape.state_size), dtype=np.float32)
        local_state(*now, self.skeleton.rest[0], network.state_mean, network.state_scale, H, seen)
        if shape.intent:
            size = shape.state_size - INTENT_SIZE
            seen[:, size:] = _seen_intent(intent, H, network.state_mean[size:-3], network.state_scale[size:-3])
        output = network.decode(seen, flat(noise, 2))
        if shape.intent and intent is not None and self.guidance != 1:
            without, mode = seen.copy(), np.zeros((people, 1, shape.latent))
            without[:, -INTENT_SIZE:] = 0.0
            output += np.float32(self.guidance - 1) * (network.decode(seen, mode) - network.decode(without, mode))
        rows = ((NUM_JOINTS, 3), (NUM_JOINTS, 3, 3), (shape.memory_size,))
        then = [self._buffers.take(people, k, *row) for row in rows]
        if shape.kinematic:
            constants = (network.output_scale, network.carry, network.free, network.held, self.skeleton.offsets)
            compose_kinematic(*now, H, output, *constants, self.fps, *then)
        else:
            compose_regressed(
                *now, H, output, network.output_scale, self.skeleton.offsets, shape.joints_from_kinematics, *then
            )
        batch = noise.shape[:-1]
        return Candidates(*(values.reshape(*batch, *values.shape[2:]) for values in then))

    def start(self, category: str, seed: Sequence[int] | int = 0) -> State:
        """Return a state of the shipped bank to go on from, e.g. "walk", above the origin and facing +y; seeds give a batch."""
        state = shipped_starts().draw(category, seed, self.skeleton)
        return State(state.x, state.v, state.q, self._padded(state.memory))

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        return turn_memory(memory, R)

    def apply_impulse(
        self, memory: Float[np.ndarray, "*b m"], change: Float[np.ndarray, "*b 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Add the change to the velocities of the root and of all joints."""
        moved = memory[..., :VELOCITY_SIZE].reshape(*memory.shape[:-1], -1, 3) + change[..., None, :] * _LINEAR
        return np.concatenate((moved.reshape(*moved.shape[:-2], VELOCITY_SIZE), memory[..., VELOCITY_SIZE:]), axis=-1)

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Return velocities by differences from a state."""
        return self._padded(difference_memory(before.x, before.q, x, q, self.fps))

    def _padded(self, velocities: Float[np.ndarray, "*b v"]) -> Float[np.ndarray, "*b m"]:
        """Return our variant's memory as this network's: HuMoR has no body velocities, and a drift, which starts at zero."""
        shape = self.network.shape
        memory = np.zeros((*velocities.shape[:-1], shape.memory_size))
        memory[..., : shape.velocity_size] = velocities[..., : shape.velocity_size]
        return memory
