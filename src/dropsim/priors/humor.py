"""HuMoR's public checkpoint (Rempe et al. 2021) as a prior: its weights by their own names, put into our network."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from dropsim.body.skeleton import Skeleton
from dropsim.files.weights import read_checkpoint, require_tensors
from dropsim.priors.cvae import STATE_SIZE, CVAENetwork, CVAEPrior, CVAEShape

_NETWORKS = {"encoder": "", "prior_net": "prior", "decoder": "decoder"}
"""HuMoR's names and ours; the encoder serves training only."""
_BODY_MODELS = ("male_bm.", "female_bm.", "neutral_bm.")
"""SMPL bodies that a checkpoint may carry along."""


def humor_prior(path: Path, skeleton: Skeleton, *, joints_from_kinematics: bool = False) -> CVAEPrior:
    """Read HuMoR's checkpoint (`best_model.pth`) for a body; nothing in the file is run.

    HuMoR was trained on SMPL bodies: `Skeleton.from_smpl` gives the one that suits it.
    """
    checkpoint = read_checkpoint(path)
    state = checkpoint.get("model") if isinstance(checkpoint, Mapping) else None
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} has no entry 'model', so it is no checkpoint of HuMoR")
    state = {str(name).removeprefix("module."): value for name, value in state.items()}
    shape = CVAEShape(joints_from_kinematics=joints_from_kinematics)
    sizes = {name: size for network in _NETWORKS for name, size in _layer_sizes(network, shape).items()}
    if strangers := [name for name in state if name not in sizes and not name.startswith(_BODY_MODELS)]:
        raise ValueError(f"{path} holds {strangers[0]}, which HuMoR has not")
    tensors = require_tensors(path, state, sizes, "HuMoR")
    network = CVAENetwork(shape)
    network.load_state_dict(network.state_dict() | _renamed(tensors))
    return CVAEPrior(network, skeleton, name="humor")


def _layer_sizes(network: str, shape: CVAEShape) -> dict[str, tuple[int, ...]]:
    """Return HuMoR's names and shapes of one network: linear layers at every third place, group norms after all but the last."""
    skip = shape.latent if network == "decoder" else 0
    hidden = shape.decoder if network == "decoder" else shape.prior
    first = {"encoder": 2 * STATE_SIZE, "prior_net": STATE_SIZE, "decoder": STATE_SIZE}[network]
    widths = (first, *hidden, shape.output_size if network == "decoder" else 2 * shape.latent)
    sizes: dict[str, tuple[int, ...]] = {}
    for i in range(len(widths) - 1):
        sizes |= {f"{network}.net.{3 * i}.weight": (widths[i + 1], widths[i] + skip), f"{network}.net.{3 * i}.bias": (widths[i + 1],)}
    for i, width in enumerate(hidden):
        sizes |= {f"{network}.net.{3 * i + 1}.{part}": (width,) for part in ("weight", "bias")}
    return sizes


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give HuMoR's tensors our names, without the encoder's."""
    ours = {}
    for name, tensor in tensors.items():
        network, _, place, part = name.split(".")
        if _NETWORKS[network]:
            kind = "norms" if int(place) % 3 else "linears"
            ours[f"{_NETWORKS[network]}.{kind}.{int(place) // 3}.{part}"] = tensor
    return ours
