"""How arguments look in the help."""

from pathlib import Path
from typing import Annotated

import tyro


def optional(metavar: str, otherwise: str) -> object:
    """Annotate an argument whose default is None: what to give, and what holds when nothing is given."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


PriorName = Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
"""The motion prior, as `dropsim.priors.named.open_prior` takes it."""
BodyFile = Annotated[Path | None, optional("FILE", "none")]
"""SMPL's file (.npz, .pkl) of the body that HuMoR was trained on."""
PoseFile = Annotated[Path | None, optional("FILE|FOLDER", "the package's")]
"""The model of natural poses, as `dropsim.priors.named.open_pose` takes it."""
