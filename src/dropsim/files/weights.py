"""Our own weights as safetensors: arrays and a little JSON, never code; all claims are checked."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from dropsim.files.atomic import errors_of
from dropsim.files.cache import map_safetensors, save_safetensors
from dropsim.files.limits import Budget, read_json

MAX_LAYERS = 64
"""Most hidden layers that a network may have."""
MAX_SIZE = 1 << 20
"""Largest size of a layer or a code."""
Record = TypeVar("Record")


def write_weights(path: str | Path, kind: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Write arrays with the metadata that describes the network they belong to."""
    plain = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    save_safetensors(plain, Path(path), {"dropsim": json.dumps({"kind": kind, **metadata}, sort_keys=True)})


def read_weights(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays and metadata, or raise with what the file is instead. All numbers are finite."""
    with errors_of(path):
        if not Path(path).is_file():
            raise ValueError("it is not there: give a .safetensors file that dropsim wrote")
        budget, (mapped, texts) = Budget(Path(path)), map_safetensors(Path(path))
        metadata = read_json(texts.get("dropsim", "{}"))
        if (other := metadata.get("kind")) != kind:
            raise ValueError(f"it holds {str(other or 'weights of unknown origin')[:60]}, not {kind}")
        for name, value in mapped.items():
            budget.take(value.nbytes, itemsize=1)
            if not np.isfinite(value).all():
                raise ValueError(f"{name[:60]} holds values that are not finite")
        return {name: np.array(value) for name, value in mapped.items()}, metadata


def read_record(metadata: Mapping[str, Any], name: str, record: type[Record]) -> Record:
    """Build a dataclass of sizes, switches and factors from metadata."""
    values = metadata.get(name)
    if not isinstance(values, Mapping):
        raise ValueError(f"it does not say the {name} of its network: train it again")
    known = {field.name for field in fields(record)}  # pyright: ignore[reportArgumentType]
    if strange := sorted(str(key) for key in values if key not in known):
        raise ValueError(f"its {name} has an entry {strange[0][:60]!r}, which this version does not know")
    for key, value in values.items():
        numbers = value if isinstance(value, list) else [value]
        is_sane = all(isinstance(number, int | float) and 0 <= number <= MAX_SIZE for number in numbers)
        if not is_sane or len(numbers) > MAX_LAYERS:
            raise ValueError(f"invalid {name}.{key}: {str(value)[:60]}")
    try:
        return msgspec.convert(values, record)
    except msgspec.ValidationError as error:
        raise ValueError(f"invalid {name}: {error}") from None


def read_number(
    metadata: Mapping[str, Any], name: str, default: float | None = None, *, low: float, high: float
) -> float:
    """Return a number of the metadata that has to be between two bounds."""
    value = metadata.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"its {name} is {str(value)[:60]}: expected a number from {low:g} to {high:g}")
    return float(value)


def require_shapes(tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise with the first array that is missing, has the wrong shape or does not belong there."""
    for name in sorted(shapes.keys() | tensors.keys()):
        if name not in tensors:
            raise ValueError(f"the weights lack {name}")
        if name not in shapes:
            raise ValueError(f"the weights hold {name[:60]}, which this network does not have")
        if tensors[name].shape != shapes[name]:
            raise ValueError(f"{name} has shape {tensors[name].shape}, the network needs {shapes[name]}")
        if tensors[name].dtype.kind != "f":
            raise ValueError(f"{name} holds {tensors[name].dtype} numbers, the network needs floating point")
