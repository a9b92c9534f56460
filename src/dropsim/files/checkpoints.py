"""Other people's PyTorch checkpoints, read without running anything that they ask for."""

import pickle
import re
import warnings
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_CALLBACKS = "model_checkpoint.ModelCheckpoint early_stopping.EarlyStopping lr_logger.LearningRateLogger"
_CALLBACKS += " lr_monitor.LearningRateMonitor"
_IGNORED = ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
_IGNORED += tuple(f"pytorch_lightning.callbacks.{name}" for name in _CALLBACKS.split())
"""Names that training tools leave in a checkpoint next to the weights; not needed here."""

_DICTS = ("pytorch_lightning.utilities.parsing.AttributeDict", "lightning_fabric.utilities.data.AttributeDict")
"""Dicts under other names."""


class _Ignored:
    """Takes whatever a checkpoint says and does nothing."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


def load_checkpoint(path: str | Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return what a PyTorch checkpoint holds, tensors as torch's, or raise with what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not there: give the checkpoint file")
    try:
        import torch
    except ImportError:
        raise ValueError(f"reading {path} needs PyTorch: run `pip install 'dropsim[train]'`") from None
    _check_archive(path)
    stand_ins = [(_Ignored, name) for name in _IGNORED] + [(OrderedDict, name) for name in _DICTS]
    try:
        # torch warns of pickles that it would not have written; the errors below say all.
        allowed: Any = torch.serialization.safe_globals
        with warnings.catch_warnings(action="ignore"), allowed(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a damaged file fails in many ways
        named = re.search(r"GLOBAL ([\w.]+)|(?:class|global|function) ([\w.]+\.\w+)", str(error))
        if named is None or not isinstance(error, pickle.UnpicklingError):
            raise ValueError(f"{path} is not a PyTorch checkpoint, or it is damaged") from None
        asked = f"{path} was not loaded: it asks for {named[1] or named[2]}"
        raise ValueError(f"{asked}, which could run code; weights do not need that") from None


def _check_archive(path: Path) -> None:
    """Compare the check sums of a zip archive, which torch does not; older checkpoints are no archives."""
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            name = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError, ValueError):
        name = "its table of contents"
    if name is not None:
        part = repr(name[:100])  # a damaged name may have anything in it
        raise ValueError(f"{path} is damaged: {part} does not match its check sum; copy or download the file again")


def read_checkpoint(path: str | Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return the content of a PyTorch checkpoint with numpy arrays as tensors, in single precision if not integers."""
    try:
        return _as_arrays(Path(path), load_checkpoint(path), "the checkpoint")
    except RecursionError:
        raise ValueError(f"{path} is not a checkpoint of a network: its contents are nested too deeply") from None


def _as_arrays(path: Path, value: Any, name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:
            raise ValueError(f"{path}: {name} is a sparse, quantized or meta tensor; only plain tensors can be read")
        plain = value.detach()
        return (plain.float() if plain.is_floating_point() else plain).resolve_conj().numpy()
    if isinstance(value, Mapping):
        return {key: _as_arrays(path, part, str(key)[:100]) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_arrays(path, part, name) for part in value]
    return value


def require_tensors(
    path: Path, state: object, shapes: Mapping[str, tuple[int, ...]], kind: str
) -> dict[str, np.ndarray]:
    """Return the named arrays of a checkpoint, or raise with the first that is missing or does not fit."""
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} holds no weights by name, so it is not a checkpoint of {kind}")
    for name, shape in shapes.items():
        value = state.get(name)
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{path} has no tensor {name}, so it is not a checkpoint of {kind}")
        if value.shape != shape:
            raise ValueError(f"{path}: {name} has shape {value.shape}, {kind} needs {shape}")
        if (
            value.dtype.kind != "f"
            or not np.isfinite(value).all()
            or (name.endswith("running_var") and value.min() < 0)
        ):
            raise ValueError(f"{path}: {name} holds values that are not finite, or a negative variance")
    return {name: state[name] for name in shapes}
