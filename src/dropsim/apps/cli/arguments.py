"""How arguments look in the help."""

from typing import Annotated

import tyro


def optional(metavar: str, otherwise: str) -> object:
    """Annotate an argument whose default is None: what to give, and what holds when nothing is given."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


PriorName = Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
"""The motion prior: cvae, field, a .safetensors or .bank file, or a folder of recordings; `dropsim.priors.named.open_prior` reads it."""
