"""Start states that need no recording: a small bank per motion category, which our own model has made."""

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import roma
import torch

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute.threads import single_threaded
from dropsim.files.names import suggestion
from dropsim.files.weights import read_weights, write_weights
from dropsim.priors.prior import State

_JOINT_VELOCITY = slice(6, 6 + 3 * NUM_JOINTS)
"""Where the joints' velocities stand in a memory."""


@dataclass(frozen=True, eq=False)
class StartBank:
    """States to start from, by category; each stands above the origin and faces +y."""

    states: Mapping[str, State]
    """One batch of states for each category."""

    @classmethod
    def shipped(cls) -> "StartBank":
        """Return the bank that comes with the package."""
        with importlib.resources.as_file(importlib.resources.files("dropsim") / "assets" / "starts.safetensors") as path:
            if not path.exists():
                raise ValueError("this package holds no start states: make them with `dropsim train starts`, or start from a motion")
            return cls.load(path)

    @classmethod
    @single_threaded
    def load(cls, path: Path) -> "StartBank":
        """Read a bank that `save` wrote."""
        tensors, metadata = read_weights(path, "starts")
        try:
            parts = {name: [tensors[f"{name}.{part}"].double() for part in ("x", "q", "memory")] for name in metadata["categories"]}
            return cls({name: _unpacked(*values) for name, values in parts.items()})
        except (KeyError, TypeError, RuntimeError, ValueError):
            raise ValueError(f"{path} is damaged: make the start states again with `dropsim train starts`") from None

    def save(self, path: Path) -> None:
        """Write the bank in single precision, rotations as rotation vectors; velocities follow from the memory."""
        tensors = {}
        for name, state in self.states.items():
            parts = {"x": state.x, "q": roma.rotmat_to_rotvec(state.q), "memory": state.memory}
            tensors |= {f"{name}.{part}": value.float() for part, value in parts.items()}
        write_weights(path, "starts", tensors, {"categories": list(self.states)})

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the motions that one can start in."""
        return tuple(self.states)

    def count(self, category: str) -> int:
        """Count the states of a category."""
        return len(self._batch(category).x)

    def state(self, category: str, index: int) -> State:
        """Return one state of a category."""
        batch = self._batch(category)
        if not 0 <= index < len(batch.x):
            raise ValueError(f"there are {len(batch.x)} states to {category} from: give an index from 0 to {len(batch.x) - 1}, not {index}")
        return batch[index]

    @single_threaded
    def draw(self, category: str, seed: Sequence[int] | int) -> State:
        """Return a random state of a category, or a batch with one state for each seed."""
        batch = self._batch(category)

        def index(one: int) -> int:
            return int(torch.randint(len(batch.x), (), generator=torch.Generator().manual_seed(one)))

        return batch[index(seed)] if isinstance(seed, int) else batch[torch.tensor([index(s) for s in seed], dtype=torch.long)]

    def _batch(self, category: str) -> State:
        if category not in self.states:
            raise ValueError(f"there is no start {category!r}: {suggestion(category, self.states)}")
        return self.states[category]


def _unpacked(x: torch.Tensor, rotvec: torch.Tensor, memory: torch.Tensor) -> State:
    v = memory[:, _JOINT_VELOCITY].unflatten(-1, (NUM_JOINTS, 3))
    if not len(x) == len(rotvec) == len(memory) > 0:
        raise ValueError("the parts of the bank differ in length")
    return State(x.reshape(-1, NUM_JOINTS, 3), v, roma.rotvec_to_rotmat(rotvec.reshape(-1, NUM_JOINTS, 3)), memory)
