"""Other people's PyTorch checkpoints, read without PyTorch and without running anything that they ask for."""

import functools
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.files.atomic import errors_of
from dropsim.files.limits import Budget, strided
from dropsim.files.pickles import Stub, read_pickle

_KINDS = {"Float": "<f4", "Double": "<f8", "Half": "<f2", "Long": "<i8", "Int": "<i4", "Short": "<i2"}
_KINDS |= {"Char": "i1", "Byte": "u1", "Bool": "?", "BFloat16": "<u2"}
Storages = Callable[[str], bytes]
"""Function from a key to the numbers of some tensors."""


def load_checkpoint(path: str | Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the content of a checkpoint of our own training, tensors as torch's."""
    import torch

    with errors_of(path):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise ValueError("was not loaded: it is damaged, or asks for what could run code") from None


def read_checkpoint(path: str | Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the content of a PyTorch checkpoint with numpy arrays as tensors, in single precision if not integers.

    Objects that are neither tensors nor plain containers, which training tools leave there, become None.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} is not there: give the checkpoint file")
    with errors_of(path), path.open("rb") as file:
        budget = Budget(path)
        if file.read(2) != b"PK":
            raise ValueError("was not written by PyTorch 1.6 or later, or is damaged: load it there and save it again")
        archive = zipfile.ZipFile(file)

        def read(name: str) -> bytes:
            budget.take(archive.getinfo(name).file_size, itemsize=1)
            return archive.read(name)

        folder = next(name for name in archive.namelist() if name.endswith("data.pkl")).removesuffix("data.pkl")
        storages = functools.cache(lambda key: read(f"{folder}data/{key}"))
        return _plain(read_pickle(read(f"{folder}data.pkl")), storages, budget, {})


def _plain(value: Any, storages: Storages, budget: Budget, done: dict[int, Any]) -> Any:  # noqa: ANN401
    """Return arrays and plain containers; those that are `done`, by their ids, may be in many places."""
    if id(value) in done:
        return done[id(value)]
    kind = value.kind if isinstance(value, Stub) else ""
    if kind in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"):
        return done.setdefault(id(value), _tensor(value, storages, budget))
    if kind == "torch._utils._rebuild_parameter":
        return _plain(value.args[0], storages, budget, done)
    if isinstance(value, Stub):
        value = value.items or None
    if isinstance(value, dict):
        table = done.setdefault(id(value), {})
        table.update((key, _plain(part, storages, budget, done)) for key, part in value.items())
        return table
    if isinstance(value, list | tuple):
        row = done.setdefault(id(value), [])
        row.extend(_plain(part, storages, budget, done) for part in value)
        return row
    return None if isinstance(value, type) else value


def _tensor(stub: Stub, storages: Storages, budget: Budget) -> np.ndarray:
    (_, storage, key, *_), offset, shape, strides = stub.args[:4]
    name = storage.kind.removeprefix("torch.").removesuffix("Storage")
    budget.take(*shape)
    size = np.dtype(_KINDS[name]).itemsize
    values = strided(storages(key), _KINDS[name], offset * size, shape, [size * stride for stride in strides])
    if name == "BFloat16":
        return (values.astype("<u4") << 16).view("<f4")
    return values.astype(np.float32) if values.dtype.kind == "f" else values


def require_tensors(
    path: Path, state: object, shapes: Mapping[str, tuple[int, ...]], kind: str
) -> dict[str, np.ndarray]:
    """Return the named arrays of a checkpoint, or raise with the first that is missing or does not fit."""
    state = state if isinstance(state, Mapping) else {}
    for name, shape in shapes.items():
        value = state.get(name)
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{path} has no tensor {name}, so it is not a checkpoint of {kind}")
        if value.shape != shape:
            raise ValueError(f"{path}: {name} has shape {value.shape}, {kind} needs {shape}")
        if value.dtype.kind != "f" or not np.isfinite(value).all() or ("running_var" in name and value.min() < 0):
            raise ValueError(f"{path}: {name} holds values that are not finite, or a negative variance")
    return {name: state[name] for name in shapes}
