"""HuMoR's public checkpoint (Rempe et al. 2021) as a prior: its weights by their own names, put into our network."""

from collections.abc import Mapping
from pathlib import Path

from dropsim.body.skeleton import Skeleton
from dropsim.files.checkpoints import read_checkpoint, require_tensors
from dropsim.priors.cvae import STATE_SIZE, CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.network import mlp_shapes

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
    layout = humor_layout(shape)
    if strangers := [name for name in state if name not in layout and not name.startswith(_BODY_MODELS)]:
        raise ValueError(f"{path} holds {strangers[0][:100]}, which HuMoR does not have")
    tensors = require_tensors(path, state, {name: size for name, (_, size) in layout.items()}, "HuMoR")
    ours = {layout[name][0]: tensor for name, tensor in tensors.items() if not name.startswith("encoder.")}
    return CVAEPrior(CVAENetwork(shape, ours), skeleton, name="humor")


def humor_layout(shape: CVAEShape) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return our name and the shape of every tensor by HuMoR's name; it has an encoder too, for training only."""
    layout = {}
    encoder = mlp_shapes("encoder", (2 * STATE_SIZE, *shape.prior, 2 * shape.latent))
    for ours, size in (encoder | shape.layer_shapes()).items():
        network, kind, index, part = ours.replace("prior.", "prior_net.").split(".")
        # Linear layers are at every third place of a network, group norms after them.
        layout[f"{network}.net.{3 * int(index) + (kind == 'norms')}.{part}"] = (ours, size)
    return layout
