"""Trained weights as safetensors: tensors and a little JSON, never code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from dropsim.files import atomic_path


def write_weights(path: Path, kind: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors with the metadata that tells how to build their network."""
    plain = {k: v.contiguous() for k, v in tensors.items()}
    with atomic_path(path) as temporary:
        safetensors.torch.save_file(plain, temporary, metadata={"dropsim": json.dumps({"kind": kind, **metadata}, sort_keys=True)})


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
