"""A conditional VAE over transitions in HuMoR's form: state in the heading frame, a Gaussian latent, deltas out."""

import importlib.resources
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32

from dropsim.body.rotations import exp, heading, log_small, transpose
from dropsim.body.skeleton import NUM_JOINTS, Skeleton, flat
from dropsim.compute.random import Streams
from dropsim.files.weights import errors_of, read_number, read_record, read_weights, require_shapes, write_weights
from dropsim.motion.motion import Motion
from dropsim.priors.cvae_kernels import compose
from dropsim.priors.intent import Intent
from dropsim.priors.network import MLP, Shapes, Tensors, mlp_shapes, random_tensors
from dropsim.priors.prior import Candidate, Candidates, Prior, State

NUM_BODY = NUM_JOINTS - 1
STATE_SIZE = 339
"""Width of HuMoR's state: trans, trans_vel, root_orient 9, root_orient_vel, pose_body 189, joints 66, joints_vel 66."""
POSE_VELOCITY_SIZE = 3 * NUM_BODY
NUM_CONTACTS = 9
VELOCITY_SIZE = 3 + 3 + 3 * NUM_JOINTS
"""Width of HuMoR's memory: trans_vel, root_orient_vel, joints_vel."""
MEMORY_SIZE = VELOCITY_SIZE + POSE_VELOCITY_SIZE
"""Width of the velocities in our memory; a history follows."""
ROOT_HISTORY_SIZE = 6 + 6 + 3
"""Width of the root's history: change of its velocities since the frame before, their running mean, and its way: the
velocity that was asked for last, or the running mean at the start."""
HISTORY_SIZE = ROOT_HISTORY_SIZE + POSE_VELOCITY_SIZE
"""Width of a history: the root's, and the change of the body's angular velocities."""
PACE = 1 / 15
"""Share of a running mean that a frame replaces."""
UNLIKELY = 0.3
"""Cost of a sample one standard deviation off the mode in every number of the latent [m^2]."""
PACE_FRAMES = 60
"""Frames of a recording that the running mean is worked out from."""
WIDEST_TURN = np.radians(40.0)
"""Angle between where people go and where they are told to go within the next two thirds of a second [rad]: recorded
people hardly turn faster, and people who were told to turn by 90 degrees at once fell."""
GOES = 0.3
"""Speed from which on people go somewhere [m/s]."""
_WAY = slice(MEMORY_SIZE + 12, MEMORY_SIZE + 15)
"""Place of the way in a memory."""
INTENT_SIZE = 5 + 3
"""Width of an intent: velocity 2, facing 2 and height 1 in the heading frame, and flags of what is known."""
_BODY = {"rest": (NUM_JOINTS, 3), "masses": (NUM_JOINTS,), "radii": (NUM_JOINTS,)}
"""Shapes of a skeleton's arrays in a file."""
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Joints, rotations and memories of some people."""


@dataclass(frozen=True)
class CVAEShape:
    """Sizes and variants of a conditional VAE; the defaults are HuMoR's."""

    latent: int = 48
    decoder: tuple[int, ...] = (1024, 1024, 512)
    """Hidden widths."""
    prior: tuple[int, ...] = (1024, 1024, 1024, 1024)
    """Hidden widths."""
    groups: int = 16
    """Groups of every group normalisation."""
    kinematic: bool = False
    """Ours: joints come from the rotations by forward kinematics and velocities from differences, so that neither can
    drift apart, and the network's deltas are added to those of constant velocity. The state then also holds the body's
    angular velocities and a history: how velocities changed since the frame before, where the root went lately, and its
    way. The input ends with an intent."""
    joints_from_kinematics: bool = False
    """HuMoR's Qual variant: joints by forward kinematics of the predicted rotations instead of the predicted joints."""

    def __post_init__(self) -> None:
        if not (self.decoder and self.prior):
            raise ValueError("a conditional VAE needs at least one hidden layer in its prior and in its decoder")
        if odd := [width for width in (*self.decoder, *self.prior) if width % self.groups]:
            raise ValueError(f"a hidden layer of {odd[0]} cannot be normalised in {self.groups} groups of equal size")

    @property
    def state_size(self) -> int:
        """Width of the network's input."""
        return STATE_SIZE + (POSE_VELOCITY_SIZE + HISTORY_SIZE + INTENT_SIZE if self.kinematic else 0)

    @property
    def output_size(self) -> int:
        """Width of the decoder's output: deltas and contact logits."""
        deltas = 3 + 3 + POSE_VELOCITY_SIZE
        return deltas + NUM_CONTACTS + (0 if self.kinematic else 3 + 3 + 2 * 3 * NUM_JOINTS)

    @property
    def memory_size(self) -> int:
        """Width of the memory: velocities; ours of the body's joints too, HuMoR's a drift of trans from the pelvis."""
        return MEMORY_SIZE + HISTORY_SIZE if self.kinematic else VELOCITY_SIZE + 3

    def constants(self) -> dict[str, np.ndarray]:
        """Return the constants next to the layers without effect: no normalisation, lasting velocities, free joints."""
        size, out = self.state_size, self.output_size
        plain = {"state_mean": np.zeros(size), "state_scale": np.ones(size), "output_scale": np.ones(out)}
        if self.kinematic:
            plain["carry"] = np.ones(6 + POSE_VELOCITY_SIZE)
            plain |= {"free": np.ones((NUM_JOINTS, 3)), "held": np.zeros((NUM_JOINTS, 3))}
            plain |= {"posture": np.zeros((NUM_JOINTS, 3)), "pull": np.zeros(NUM_JOINTS)}
        return plain

    def layer_shapes(self) -> Shapes:
        """Return the names and shapes of the layers' tensors; every layer of the decoder also sees the latent."""
        prior = mlp_shapes("prior", (self.state_size, *self.prior, 2 * self.latent))
        return prior | mlp_shapes("decoder", (self.state_size, *self.decoder, self.output_size), self.latent)

    def tensor_shapes(self) -> Shapes:
        """Return the names and shapes of all tensors in a file."""
        return {name: value.shape for name, value in self.constants().items()} | self.layer_shapes()


class CVAENetwork:
    """The conditional prior and the decoder, and the constants around them. `research.training` has its torch twin."""

    carry: Float[np.ndarray, "v"]
    """Ours: share of each velocity (trans, root, body) that lasts to the next frame."""
    free: Float[np.ndarray, "22 3"]
    """Ours: 1 where a joint turns about an axis, 0 where the recordings hold it."""
    held: Float[np.ndarray, "22 3"]
    """Ours: rotation about those axes, and 0 about the others [rad]."""
    posture: Float[np.ndarray, "22 3"]
    """Ours: the recordings' mean posture, as rotation vectors [rad]."""
    pull: Float[np.ndarray, "22"]
    """Ours: share of the turn to the mean posture that a joint makes in a frame before the network adds to it. Without
    it, small errors add up until the pose is unlike any recording."""
    state_mean: Float[np.ndarray, "s"]
    state_scale: Float[np.ndarray, "s"]
    output_scale: Float[np.ndarray, "o"]

    def __init__(self, shape: CVAEShape, tensors: Tensors) -> None:
        """Build from checked tensors by their names in a file; constants may be left out."""
        self.shape = shape
        self.tensors = {name: value.astype(np.float32) for name, value in (shape.constants() | dict(tensors)).items()}
        for name in shape.constants():
            setattr(self, name, self.tensors[name].astype(np.float64))
        if not (self.state_scale > 0).all():
            raise ValueError("the network's state_scale has to be above zero")
        self.prior = MLP(self.tensors, "prior", groups=shape.groups)
        self.decoder = MLP(self.tensors, "decoder", groups=shape.groups, skip=shape.latent)

    @classmethod
    def random(cls, shape: CVAEShape, seed: int = 0) -> "CVAENetwork":
        """Return a network that has not learnt anything yet."""
        return cls(shape, random_tensors(shape.layer_shapes(), seed))

    def decode(
        self, seen: Float32[np.ndarray, "b s"], noise: Float[np.ndarray, "b k z"]
    ) -> Float32[np.ndarray, "b k o"]:
        """Return deltas and contact logits for normalised states and standard normal noise in the latent."""
        mean, log_variance = np.split(self.prior.forward(seen), 2, axis=-1)
        return self.decoder.forward(seen, mean + np.exp(0.5 * log_variance) * noise.astype(np.float32))


def turn_memory(memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "*#b 3 3"]) -> Float[np.ndarray, "*b m"]:
    """Turn the vectors in a memory by R; the body's own angular velocities are in their parents' frames and stay."""
    turned = memory.copy()
    drifts = memory.shape[-1] == VELOCITY_SIZE + 3
    for first, last in ((0, VELOCITY_SIZE + 3 * drifts), (MEMORY_SIZE, MEMORY_SIZE + ROOT_HISTORY_SIZE)):
        if memory.shape[-1] >= last:
            vectors = memory[..., first:last].reshape(*memory.shape[:-1], -1, 3) @ transpose(R)
            turned[..., first:last] = vectors.reshape(*memory.shape[:-1], -1)
    return turned


def difference_memory(
    x0: Float[np.ndarray, "*b 22 3"],
    q0: Float[np.ndarray, "*b 22 3 3"],
    x: Float[np.ndarray, "*b 22 3"],
    q: Float[np.ndarray, "*b 22 3 3"],
    fps: float,
) -> Float[np.ndarray, "*b m"]:
    """Return our variant's memory after a step: velocities by differences of two frames."""
    turns, moves = log_small(q @ transpose(q0)) * fps, (x - x0) * fps
    vectors = np.concatenate((moves[..., :1, :], turns[..., :1, :], moves, turns[..., 1:, :]), axis=-2)
    return vectors.reshape(*x.shape[:-2], -1)


class CVAEPrior(Prior):
    """A trained conditional VAE as a motion prior: our weights, or HuMoR's."""

    drift = 0.1  # its samples are noisier than recordings: corrected further, people fall with nobody pushing

    def __init__(
        self,
        network: CVAENetwork,
        skeleton: Skeleton,
        *,
        fps: float = 30.0,
        name: str = "cvae",
        temperature: float = 1.0,
    ) -> None:
        """Wrap a network for a body; candidates spread from `temperature` for the second one to 1 for the last."""
        self.network, self.skeleton, self.fps, self.name, self.temperature = network, skeleton, fps, name, temperature
        self.takes_intent = self.starts_at_mode = network.shape.kinematic

    @classmethod
    def shipped(cls) -> "CVAEPrior":
        """Return the model that comes with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "prior.safetensors") as path:
            prior = cls.load(path)
        prior.name = "cvae"
        return prior

    @classmethod
    def load(cls, path: str | Path) -> "CVAEPrior":
        """Read a prior that `save` wrote; sizes are compared with the file's tensors before anything is built."""
        path = Path(path)
        tensors, metadata = read_weights(path, "cvae")
        with errors_of(path):
            shape = read_record(metadata, "shape", CVAEShape)
            fps = read_number(metadata, "fps", low=1.0, high=1000.0)
            temperature = read_number(metadata, "temperature", 1.0, low=0.0, high=10.0)
            body = [tensors.pop(f"skeleton.{name}", np.zeros(0)).astype(np.float64) for name in _BODY]
            if [part.shape for part in body] != list(_BODY.values()):
                raise ValueError(
                    f"it has no skeleton of {NUM_JOINTS} joints: train it again with `dropsim train prior`"
                )
            require_shapes(tensors, shape.tensor_shapes())
            return cls(CVAENetwork(shape, tensors), Skeleton(*body), fps=fps, name=path.stem, temperature=temperature)

    @classmethod
    def from_humor(cls, path: str | Path, skeleton: Skeleton, *, joints_from_kinematics: bool = False) -> "CVAEPrior":
        """Read HuMoR's public checkpoint for a body of the user's own."""
        from dropsim.priors.humor import humor_prior

        return humor_prior(path, skeleton, joints_from_kinematics=joints_from_kinematics)

    def save(self, path: str | Path) -> None:
        """Write weights and body as safetensors, with what is needed to build the network again."""
        metadata = {"shape": asdict(self.network.shape), "fps": self.fps, "temperature": self.temperature}
        body = {f"skeleton.{name}": getattr(self.skeleton, name) for name in _BODY}
        write_weights(path, "cvae", self.network.tensors | body, metadata)

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Propose the mode and num - 1 samples; people who are asked to go elsewhere turn there bit by bit."""
        if num < 1:
            raise ValueError(f"the prior cannot give {num} candidates: ask for at least 1")
        noise = np.zeros((*state.x.shape[:-2], num, self.network.shape.latent))
        # The first sample is as calm as a motion should be; later ones reach further, so that a body that was pushed
        # finds one near.
        spread = np.linspace(self.temperature, max(1.0, self.temperature), num - 1)
        np.multiply(rng.normal(num - 1, noise.shape[-1]), spread[:, None], out=noise[..., 1:, :])
        if intent is not None and self.network.shape.kinematic:
            intent = _reachable(intent, state.memory[..., MEMORY_SIZE + 6 : MEMORY_SIZE + 8])
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
        if shape.kinematic:
            intent = intent or Intent.unknown(len(now[0]))
            now = (*now[:2], _sent(now[2], intent.velocity.reshape(-1, 2)))
            # People whom nobody sends anywhere go on their way.
            intent = Intent(now[2][:, _WAY][:, :2], intent.facing.reshape(-1, 2), intent.height.reshape(-1))
        H = heading(now[1][:, 0])
        output = network.decode(self._seen(now, H, intent), flat(noise, 2))
        then = (self._stepped if shape.kinematic else self._regressed)(now, H, output * network.output_scale)
        batch = noise.shape[:-1]
        x, q, memory = (values.reshape(*batch, *values.shape[2:]) for values in then)
        # Without a cost, physics would choose among the odd ones those that fall with the body.
        cost = (UNLIKELY if shape.kinematic else 0.0) * (noise**2).mean(-1)
        return Candidates(x, q, memory, cost)

    def _seen(self, now: Arrays, H: Float[np.ndarray, "n 3 3"], intent: Intent | None) -> Float32[np.ndarray, "n s"]:
        """Return the network's input: the state in the heading frame of the root, and an intent, normalised."""
        x, q, memory = now
        network, people = self.network, len(x)
        # HuMoR's root is not the pelvis: its memory ends with the drift of one from the other.
        root = x[:, 0] if network.shape.kinematic else x[:, 0] + memory[:, VELOCITY_SIZE:]
        rest, above = self.skeleton.rest[0], np.array([0.0, 0.0, 1.0])
        joints = (x - (root - root * above)[:, None]) @ transpose(H) + (rest - rest * above)
        velocities = turn_memory(memory, H)
        parts = [(root - rest) * above, velocities[:, :3], H @ q[:, 0], velocities[:, 3:6], q[:, 1:], joints]
        parts.append(velocities[:, 6 : network.shape.memory_size if network.shape.kinematic else VELOCITY_SIZE])
        state = np.concatenate([part.reshape(people, -1) for part in parts], axis=1)
        size = state.shape[1]
        seen = [(state - network.state_mean[:size]) / network.state_scale[:size]]
        if intent is not None and network.shape.kinematic:
            aims = np.stack((intent.velocity.reshape(-1, 2), intent.facing.reshape(-1, 2)), axis=1)
            aims = (aims @ transpose(H)[:, :2, :2]).reshape(people, 4)
            wanted = np.concatenate((aims, intent.height.reshape(people, 1)), axis=1)
            known = ~np.isnan(wanted)
            wanted = (wanted - network.state_mean[size:-3]) / network.state_scale[size:-3]
            seen += [np.where(known, wanted, 0.0), known[:, [0, 2, 4]]]
        return np.concatenate(seen, axis=1, dtype=np.float32)

    def _stepped(self, now: Arrays, H: Float[np.ndarray, "n 3 3"], deltas: Float[np.ndarray, "n k o"]) -> Arrays:
        """Return K next frames: the network's deltas on top of what velocities and the pull carry on."""
        (x, q, memory), network, (n, k, _) = now, self.network, deltas.shape
        velocities = turn_memory(memory, H)
        lasting = np.concatenate((velocities[:, :6], velocities[:, VELOCITY_SIZE:MEMORY_SIZE]), axis=1)
        pull = network.pull[1:, None] * log_small(exp(network.posture[1:]) @ transpose(q[:, 1:]))
        carried = lasting * (network.carry / self.fps)
        carried[:, 6:] += pull.reshape(n, -1)
        steps = (carried[:, None] + deltas[..., : carried.shape[1]]).reshape(n, k, -1, 3)
        steps[:, :, :2] = steps[:, :, :2] @ H[:, None]
        joints, rotations = np.empty((n, k, NUM_JOINTS, 3)), np.empty((n, k, NUM_JOINTS, 3, 3))
        compose(x, q, steps, network.free, network.held, self.skeleton.offsets, joints, rotations)
        moves = np.concatenate((steps[:, :, :2], joints - x[:, None], network.free[1:] * steps[:, :, 2:]), axis=2)
        then = self.fps * moves.reshape(n, k, -1)
        before = np.broadcast_to(memory[:, None], (n, k, memory.shape[1]))
        return joints, rotations, np.concatenate((then, _history(before, then)), axis=-1)

    def _regressed(self, now: Arrays, H: Float[np.ndarray, "n 3 3"], deltas: Float[np.ndarray, "n k o"]) -> Arrays:
        """Return K next frames after HuMoR's deltas, all of which are added; rotations are exp(delta) R."""
        x, q, memory = now
        local = deltas[..., :-NUM_CONTACTS].reshape(*deltas.shape[:2], -1, 3)
        # The order is trans, trans_vel, root_orient, root_orient_vel, pose_body, joints, joints_vel.
        in_world = local @ H[:, None]
        turns = np.concatenate((in_world[:, :, 2:3], local[:, :, 4:25]), axis=2)
        next_q = exp(turns) @ q[:, None]
        root = (x[:, 0] + memory[:, VELOCITY_SIZE:])[:, None] + in_world[:, :, 0]
        by_kinematics = self.network.shape.joints_from_kinematics
        joints = self.skeleton.forward(next_q, root) if by_kinematics else x[:, None] + in_world[:, :, 25:47]
        changes = in_world[:, :, [1, 3, *range(47, 69)]].reshape(*deltas.shape[:2], -1)
        velocities = memory[:, None, :VELOCITY_SIZE] + changes
        return joints, next_q, np.concatenate((velocities, root - joints[:, :, 0]), axis=-1)

    def turn_memory(self, memory: Float[np.ndarray, "*b m"], R: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "*b m"]:
        return turn_memory(memory, R)

    def apply_impulse(
        self, memory: Float[np.ndarray, "*b m"], change: Float[np.ndarray, "*b 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Add the change to the velocities of the root and of all joints."""
        moved = memory.copy()
        moved[..., :3] += change
        moved[..., 6:VELOCITY_SIZE] += np.tile(change, NUM_JOINTS)
        return moved

    def recall(
        self, before: State, x: Float[np.ndarray, "*b 22 3"], q: Float[np.ndarray, "*b 22 3 3"]
    ) -> Float[np.ndarray, "*b m"]:
        """Return velocities by differences from a state, and their history if the state has one."""
        memory = self._padded(difference_memory(before.x, before.q, x, q, self.fps))
        if self.network.shape.kinematic and before.memory.shape[-1] == memory.shape[-1]:
            memory[..., MEMORY_SIZE:] = _history(before.memory, memory)
        return memory

    def start_from(self, motion: Motion, frame: int) -> State:
        """Return the state of a motion at a frame; velocities and their history are those of the frames before."""
        motion, start = motion.resampled(self.fps), super().start_from
        state, first = start(motion, frame), max(1, frame + 1 - PACE_FRAMES)
        if not self.network.shape.kinematic:
            return state
        state = start(motion, first)
        for at in range(first + 1, frame + 1):
            now = start(motion, at)
            state = replace(now, memory=self.recall(state, now.x, now.q))
        state.memory[..., _WAY] = state.memory[..., MEMORY_SIZE + 6 : MEMORY_SIZE + 9]
        return state

    def _padded(self, memory: Float[np.ndarray, "*b v"]) -> Float[np.ndarray, "*b m"]:
        """Return velocities as this network's memory: HuMoR has a drift instead of the body's, ours a steady history."""
        batch = memory.shape[:-1]
        if not self.network.shape.kinematic:
            return np.concatenate((memory[..., :VELOCITY_SIZE], np.zeros((*batch, 3))), axis=-1)
        pace, still = memory[..., :6], np.zeros((*batch, POSE_VELOCITY_SIZE))
        return np.concatenate((memory, np.zeros((*batch, 6)), pace, pace[..., :3], still), axis=-1)


def _history(before: Float[np.ndarray, "*b m"], now: Float[np.ndarray, "*b v"]) -> Float[np.ndarray, "*b h"]:
    """Return the history after a frame from the memory before it and the velocities now."""
    change = now[..., :MEMORY_SIZE] - before[..., :MEMORY_SIZE]
    pace = before[..., MEMORY_SIZE + 6 : MEMORY_SIZE + 12]
    pace = pace + PACE * (now[..., :6] - pace)
    return np.concatenate((change[..., :6], pace, before[..., _WAY], change[..., VELOCITY_SIZE:]), axis=-1)


def _reachable(intent: Intent, pace: Float[np.ndarray, "*b 2"]) -> Intent:
    """Turn velocity and facing so that people who go and are sent on leave their present way by no more than a limit."""
    velocity, facing = (np.broadcast_to(vectors, pace.shape) for vectors in (intent.velocity, intent.facing))
    goes = (np.linalg.norm(pace, axis=-1) > GOES) & (np.linalg.norm(velocity, axis=-1) > GOES)
    across = pace[..., 0] * velocity[..., 1] - pace[..., 1] * velocity[..., 0]
    angle = np.arctan2(across, (pace * velocity).sum(-1))
    back = np.where(goes, np.clip(angle, -WIDEST_TURN, WIDEST_TURN) - angle, 0.0)
    turn = np.zeros((*back.shape, 3))
    turn[..., 2] = back
    R = exp(turn)[..., :2, :2]
    velocity, facing = ((R @ vectors[..., None])[..., 0] for vectors in (velocity, facing))
    return Intent(velocity, facing, intent.height)


def _sent(memory: Float[np.ndarray, "n m"], velocity: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n m"]:
    """Return memories of people who are on the way that is asked for, if one is."""
    sent = memory.copy()
    asked = ~np.isnan(velocity).any(-1)
    sent[asked, _WAY] = np.pad(velocity[asked], ((0, 0), (0, 1)))
    return sent
