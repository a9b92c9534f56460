"""HuMoR's public checkpoint (Rempe et al. 2021) as a prior: its weights by their own names, put into our network."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dropsim.body.skeleton import Skeleton
from dropsim.files.checkpoints import read_checkpoint, require_tensors
from dropsim.priors.cvae import STATE_SIZE, CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.network import MLP

_BODY_MODELS = ("male_bm.", "female_bm.", "neutral_bm.")
"""SMPL bodies that a checkpoint may carry along."""


def humor_prior(path: str | Path, skeleton: Skeleton, *, joints_from_kinematics: bool = False) -> CVAEPrior:
    """Read HuMoR's checkpoint (`best_model.pth`) for a body; nothing in the file is run.

    HuMoR was trained on SMPL bodies: `Skeleton.from_smpl` gives the one that suits it.
    """
    path = Path(path)
    checkpoint = read_checkpoint(path)
    state = checkpoint.get("model") if isinstance(checkpoint, Mapping) else None
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} has no entry 'model', so it is not a checkpoint of HuMoR")
    state = {str(name).removeprefix("module."): value for name, value in state.items()}
    shape = CVAEShape(joints_from_kinematics=joints_from_kinematics)
    layout = {theirs: (ours, size) for theirs, ours, size in _layout(shape)}
    if strangers := [name for name in state if name not in layout and not name.startswith(_BODY_MODELS)]:
        raise ValueError(f"{path} holds {strangers[0][:100]}, which HuMoR does not have")
    tensors = require_tensors(path, state, {name: size for name, (_, size) in layout.items()}, "HuMoR")
    network = CVAENetwork.from_tensors(shape, {layout[name][0]: tensor for name, tensor in tensors.items()})
    return CVAEPrior(network, skeleton, name="humor")


def _layout(shape: CVAEShape) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Give HuMoR's name, our name and the shape of every tensor: its linear layers are at every third place, group norms after them."""
    networks = (
        (
            "encoder",
            MLP.tensor_shapes("encoder", (2 * STATE_SIZE, *shape.prior, 2 * shape.latent)),
        ),  # for training only
        ("prior_net", MLP.tensor_shapes("prior", shape.prior_widths)),
        ("decoder", MLP.tensor_shapes("decoder", shape.decoder_widths, shape.latent)),
    )
    for network, sizes in networks:
        for ours, size in sizes.items():
            _, kind, index, part = ours.split(".")
            yield f"{network}.net.{3 * int(index) + (kind == 'norms')}.{part}", ours, size
