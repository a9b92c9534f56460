"""Trained weights: ours as safetensors (tensors and a little JSON, never code), other people's as checkpoints that run nothing."""

import json
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from dropsim.files.atomic import atomic_path


def write_weights(path: Path, kind: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors with the metadata that tells how to build their network."""
    plain = {k: v.contiguous() for k, v in tensors.items()}
    with atomic_path(path) as temporary:
        safetensors.torch.save_file(plain, temporary, metadata={"dropsim": json.dumps({"kind": kind, **metadata}, sort_keys=True)})
        temporary.chmod(0o644)  # safetensors makes its files readable for their owner alone


def read_weights(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and metadata, or raise with what the file is instead."""
    if not path.is_file():
        raise ValueError(f"{path} is not there: give a .safetensors file of our own kind")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("dropsim", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a safetensors file of ours: {error}") from None
    if metadata.get("kind") != kind:
        raise ValueError(f"{path} holds {metadata.get('kind') or 'weights of unknown origin'}, not {kind}")
    return tensors, metadata


def load_weights(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Fill a network, or raise with the first key or shape that does not fit."""
    expected = network.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise ValueError(f"{path}: the weights lack {name}")
        if name not in expected:
            raise ValueError(f"{path}: the weights hold {name}, which this network has not")
        if tensors[name].shape != expected[name].shape:
            raise ValueError(f"{path}: {name} has shape {tuple(tensors[name].shape)}, the network needs {tuple(expected[name].shape)}")
        if not tensors[name].isfinite().all():
            raise ValueError(f"{path}: {name} holds values that are not finite")
    network.load_state_dict(dict(tensors))


_IGNORED = (
    "numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
    "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint", "pytorch_lightning.callbacks.early_stopping.EarlyStopping",
    "pytorch_lightning.callbacks.lr_logger.LearningRateLogger", "pytorch_lightning.callbacks.lr_monitor.LearningRateMonitor",
)  # fmt: skip
"""Names that training tools leave in a checkpoint beside the weights (a best loss, a callback's state): nothing here needs them."""


def _stand_in(dotted: str) -> type:
    """Return an empty class under another's name, which takes whatever a checkpoint says and does nothing."""
    module, _, name = dotted.rpartition(".")

    def ignore(self: object, *_: object) -> None:
        del self

    return type(name, (), {"__module__": module, "__init__": ignore, "__setstate__": ignore})


def read_checkpoint(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read a PyTorch checkpoint without running anything that it asks for, or raise with what is wrong with it."""
    if not path.is_file():
        raise ValueError(f"{path} is not there: give the checkpoint file")
    try:
        # torch warns of pickles that it would not have written; the errors below say all.
        with warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals([_stand_in(name) for name in _IGNORED]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"(?:GLOBAL|class|global) ([\w.]+\.\w+)", str(error))
        if named is None:
            raise ValueError(f"{path} is not a PyTorch checkpoint, or a damaged one") from None
        raise ValueError(f"{path} was not loaded: it asks for {named[1]}, which could run code, and a file of weights need not") from None
    except OSError:
        raise
    except Exception:  # a damaged file fails in many ways
        raise ValueError(f"{path} is not a PyTorch checkpoint, or a damaged one") from None


def require_tensors(path: Path, state: object, shapes: Mapping[str, tuple[int, ...]], kind: str) -> dict[str, Tensor]:
    """Return the named tensors of a checkpoint in single precision, or raise with the first that is missing or does not fit."""
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} holds no weights by name, so it is no checkpoint of {kind}")
    for name, shape in shapes.items():
        value = state.get(name)
        if not isinstance(value, Tensor):
            raise ValueError(f"{path} has no tensor {name}, so it is no checkpoint of {kind}")
        if value.shape != shape:
            raise ValueError(f"{path}: {name} has shape {tuple(value.shape)}, {kind} needs {shape}")
        if not (value.is_floating_point() and value.isfinite().all()):
            raise ValueError(f"{path}: {name} holds values that are not finite numbers")
    return {name: state[name].float() for name in shapes}
