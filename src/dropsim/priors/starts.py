"""Start states that need no recording: a small bank per motion category, which our own model made."""

import functools
import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp, rotmat_to_rotvec, rotvec_to_rotmat
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute.random import Streams
from dropsim.files.names import suggestion
from dropsim.files.weights import errors_of, read_weights, write_weights
from dropsim.priors.prior import State

MEMORY_SIZE = 6 + 3 * NUM_JOINTS + 3 * (NUM_JOINTS - 1)
"""Memory of a prior trained here: velocity and angular velocity of the root, velocities of the joints, angular ones of
the body."""
_JOINT_VELOCITY = slice(6, 6 + 3 * NUM_JOINTS)
_BODY_TURNS = slice(6 + 3 * NUM_JOINTS, MEMORY_SIZE)
_RATE = 30.0
"""Rate of the frames whose differences the velocities are [Hz]."""
_SKELETON = ("rest", "masses", "radii")
AGAIN = "make the start states again with `dropsim train starts`"


@dataclass(frozen=True, eq=False)
class StartBank:
    """States to start from, by category; each stands above the origin and faces +y."""

    states: Mapping[str, State]
    """One batch of states for each category."""
    skeleton: Skeleton = field(default_factory=Skeleton.adult)
    """Body of the states."""

    @classmethod
    def shipped(cls) -> "StartBank":
        """Return the bank that comes with the package."""
        asset = importlib.resources.files("dropsim") / "assets" / "starts.safetensors"
        with importlib.resources.as_file(asset) as path:
            if not path.exists():
                remedy = "make them with `dropsim train starts`, or start from a motion"
                raise ValueError(f"this package holds no start states: {remedy}")
            return cls.load(path)

    @classmethod
    def load(cls, path: str | Path) -> "StartBank":
        """Read a bank that `save` wrote."""
        tensors, metadata = read_weights(path, "starts")
        with errors_of(path):
            skeleton = pop_skeleton(tensors) or Skeleton.adult()
            names = metadata.get("categories")
            if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
                raise ValueError(f"it does not say which categories it holds: {AGAIN}")
            return cls({name: _unpacked(name, tensors) for name in names}, skeleton)

    def save(self, path: str | Path) -> None:
        """Write the bank in single precision, rotations as rotation vectors; velocities follow from the memory."""
        tensors = skeleton_tensors(self.skeleton)
        for name, state in self.states.items():
            parts = {"x": state.x, "q": rotmat_to_rotvec(state.q), "memory": state.memory}
            tensors |= {f"{name}.{part}": value.astype(np.float32) for part, value in parts.items()}
        write_weights(path, "starts", tensors, {"categories": list(self.states)})

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the motions that one can start in."""
        return tuple(self.states)

    def count(self, category: str) -> int:
        """Count the states of a category."""
        return len(self._batch(category).x)

    def draw(self, category: str, seed: Sequence[int] | int, skeleton: Skeleton | None = None) -> State:
        """Return a random state of a category, or a batch with one for each seed, fitted to a body if it is given."""
        batch = self._batch(category)
        index = (Streams(seed).uniform(1) * len(batch.x)).astype(np.int64)[..., 0]
        state = batch[np.asarray(index)].map(np.copy)
        return state if skeleton is None else fitted(state, self.skeleton, skeleton)

    def pair(self, category: str, seed: Sequence[int] | int, skeleton: Skeleton, fps: float) -> tuple[State, State]:
        """Return the frame before a drawn state, and the state, for priors with a memory of another kind."""
        now = self.draw(category, seed, skeleton)
        turns = _turns(now.memory)
        empty = now.memory[..., :0]
        before = State(now.x - now.v / fps, now.v, exp(-turns / fps) @ now.q, empty)
        return before, now

    def _batch(self, category: str) -> State:
        if category not in self.states:
            raise ValueError(f"there is no start {category!r}: {suggestion(category, self.states)}")
        return self.states[category]


def fitted(state: State, old: Skeleton, new: Skeleton) -> State:
    """Give another body the rotations of a state with such a memory.

    The root's velocity grows with the legs, joints and their velocities follow by kinematics, and the lowest sphere is
    as far above the floor, in proportion.
    """
    if np.array_equal(old.rest, new.rest) and np.array_equal(old.radii, new.radii):
        return state
    scale = new.leg_length / old.leg_length
    root, memory = state.x[..., 0, :].copy(), state.memory.copy()
    gap, low = ((x[..., 2] - body.radii).min(-1) for x, body in ((state.x, old), (new.forward(state.q, root), new)))
    root[..., 2] += scale * gap - low
    x = new.forward(state.q, root)
    turns = _turns(memory)
    memory[..., :3] *= scale
    v = (x - new.forward(exp(-turns / _RATE) @ state.q, root - memory[..., :3] / _RATE)) * _RATE
    memory[..., _JOINT_VELOCITY] = v.reshape(*v.shape[:-2], -1)
    return State(x, v, state.q, memory)


def _turns(memory: Float[np.ndarray, "*b m"]) -> Float[np.ndarray, "*b 22 3"]:
    """Return the angular velocities of the root and of the body's joints in a memory [rad/s]."""
    turns = np.concatenate((memory[..., 3:6], memory[..., _BODY_TURNS]), axis=-1)
    return turns.reshape(*memory.shape[:-1], NUM_JOINTS, 3)


@functools.cache
def shipped_starts() -> StartBank:
    """Return the package's bank, read once."""
    return StartBank.shipped()


def skeleton_tensors(skeleton: Skeleton) -> dict[str, np.ndarray]:
    """Return a body by names for a file."""
    return {f"skeleton.{name}": getattr(skeleton, name) for name in _SKELETON}


def pop_skeleton(tensors: dict[str, np.ndarray]) -> Skeleton | None:
    """Take the body out of a file's tensors; files of the first edition have none."""
    parts = [tensors.pop(f"skeleton.{name}", None) for name in _SKELETON]
    if all(part is None for part in parts):
        return None
    rest, masses, radii = (np.zeros(0) if part is None else part.astype(np.float64) for part in parts)
    if not (rest.shape == (NUM_JOINTS, 3) and masses.shape == radii.shape == (NUM_JOINTS,)):
        raise ValueError(f"its skeleton is damaged: expected {NUM_JOINTS} joints, masses and radii")
    return Skeleton(rest, masses, radii)


def _unpacked(name: str, tensors: Mapping[str, np.ndarray]) -> State:
    x, rotvec, memory = (tensors.get(f"{name}.{part}", np.zeros(0)).astype(np.float64) for part in ("x", "q", "memory"))
    count = len(x)
    if not (count > 0 and x.shape == rotvec.shape == (count, NUM_JOINTS, 3) and memory.shape == (count, MEMORY_SIZE)):
        raise ValueError(f"it is damaged: {AGAIN}")
    v = memory[:, _JOINT_VELOCITY].reshape(count, NUM_JOINTS, 3)
    return State(x, v, rotvec_to_rotmat(rotvec), memory)
