"""VPoser's public checkpoints (Pavlakos et al. 2019), versions 1 and 2, as our pose network."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dropsim.files.checkpoints import read_checkpoint, require_tensors
from dropsim.priors.network import EPSILON, Shapes, Tensors
from dropsim.priors.pose import NUM_COLUMNS, PoseNetwork, PoseShape

WIDTH, LATENT = 512, 32
Affine = tuple[np.ndarray, np.ndarray]
"""Weight and bias of a linear layer."""


def vposer_network(path: str | Path) -> PoseNetwork:
    """Read a checkpoint, or the one in a folder that VPoser comes in."""
    file = _checkpoint_file(Path(path))
    state = read_checkpoint(file)
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        return _version_2(file, state["state_dict"])
    return _version_1(file, state)


def _checkpoint_file(path: Path) -> Path:
    """Return the checkpoint in one of VPoser's folders, the last by name; a file is returned as it is."""
    if not path.is_dir():
        return path
    files = sorted(p for folder in (path / "snapshots", path) for p in folder.glob("*") if p.suffix in (".ckpt", ".pt"))
    if not files:
        raise ValueError(f"{path} holds no VPoser checkpoint: put a .ckpt or .pt file in it or in its folder snapshots")
    return files[-1]


def _sizes(norms: Mapping[str, int], linears: Mapping[str, tuple[int, int]]) -> Shapes:
    """Return the shapes of a checkpoint's tensors, from widths of batch normalisations and sizes of linear layers."""
    sizes: Shapes = {}
    for name, size in norms.items():
        sizes |= {f"{name}.{part}": (size,) for part in ("weight", "bias", "running_mean", "running_var")}
    for name, (size_in, size_out) in linears.items():
        sizes |= {f"{name}.weight": (size_out, size_in), f"{name}.bias": (size_out,)}
    return sizes


def _version_1(path: Path, state: object) -> PoseNetwork:
    """Read norm, linear, leaky ReLU, norm, linear, leaky ReLU, mean."""
    w, z = WIDTH, LATENT
    enc, dec = "bodyprior_enc_", "bodyprior_dec_"
    linears = {f"{enc}fc1": (63, w), f"{enc}fc2": (w, w), f"{enc}mu": (w, z), f"{enc}logvar": (w, z)}
    linears |= {f"{dec}fc1": (z, w), f"{dec}fc2": (w, w), f"{dec}out": (w, NUM_COLUMNS)}
    tensors = require_tensors(path, state, _sizes({f"{enc}bn1": 63, f"{enc}bn2": w}, linears), "VPoser")
    encoder = [
        _after_norm(tensors, f"{enc}bn1", f"{enc}fc1"),
        _after_norm(tensors, f"{enc}bn2", f"{enc}fc2"),
        _affine(tensors, f"{enc}mu"),
    ]
    decoder = [_affine(tensors, f"{dec}{name}") for name in ("fc1", "fc2", "out")]
    return _network(PoseShape((w, w), (w, w), (), z, slope=0.2, rotvecs=True), encoder, decoder)


def _version_2(path: Path, state: Mapping[str, object]) -> PoseNetwork:
    """Read norm, linear, leaky ReLU, norm, then three linear layers with nothing between them, which are one."""
    w, z = WIDTH, LATENT
    enc, dec = "vp_model.encoder_net.", "vp_model.decoder_net."
    linears = {f"{enc}2": (63, w), f"{enc}6": (w, w), f"{enc}7": (w, w), f"{enc}8.mu": (w, z), f"{enc}8.logvar": (w, z)}
    linears |= {f"{dec}0": (z, w), f"{dec}3": (w, w), f"{dec}5": (w, NUM_COLUMNS)}
    tensors = require_tensors(path, state, _sizes({f"{enc}1": 63, f"{enc}4": w}, linears), "VPoser")
    tail = _after_norm(tensors, f"{enc}4", f"{enc}6")
    for name in ("7", "8.mu"):
        weight, bias = _affine(tensors, enc + name)
        tail = (weight @ tail[0], weight @ tail[1] + bias)
    decoder = [_affine(tensors, dec + name) for name in ("0", "3", "5")]
    encoder = [_after_norm(tensors, f"{enc}1", f"{enc}2"), tail]
    return _network(PoseShape((w,), (w, w), (), z, slope=0.01, rotvecs=True), encoder, decoder)


def _affine(tensors: Tensors, linear: str) -> Affine:
    return tensors[f"{linear}.weight"].astype(np.float64), tensors[f"{linear}.bias"].astype(np.float64)


def _after_norm(tensors: Tensors, norm: str, linear: str) -> Affine:
    """Return the linear layer that a trained batch normalisation and the linear layer after it amount to."""
    gain, shift, mean, variance = (
        tensors[f"{norm}.{part}"].astype(np.float64) for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gain / np.sqrt(variance + EPSILON)
    weight, bias = _affine(tensors, linear)
    return weight * scale, bias + weight @ (shift - mean * scale)


def _network(shape: PoseShape, encoder: list[Affine], decoder: list[Affine]) -> PoseNetwork:
    layers = (*(array for layer in (*encoder, *decoder) for array in layer),)
    return PoseNetwork(shape, dict(zip(shape.layer_shapes(), layers, strict=True)))
