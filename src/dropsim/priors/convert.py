"""Other people's checkpoints as our own safetensors, which load fast and without torch."""

from pathlib import Path

from dropsim.body.skeleton import Skeleton
from dropsim.priors.humor import humor_prior
from dropsim.priors.pose import PosePrior


def convert_checkpoint(path: str | Path, out: str | Path, skeleton: Skeleton | None = None) -> str:
    """Write HuMoR's or VPoser's checkpoint for `CVAEPrior.load` or `PosePrior.load`; return which of them it was.

    HuMoR's prior is written with its body: give the SMPL body that it was trained on, or it becomes an average adult.
    """
    try:
        humor_prior(path, skeleton or Skeleton.adult()).save(out)
    except ValueError as error:
        if "not a checkpoint of HuMoR" not in str(error):
            raise
        PosePrior.from_vposer(path).save(out)
        return "VPoser"
    return "HuMoR"
