"""How an argument that may be left out looks in the help."""

import tyro


def optional(metavar: str, otherwise: str) -> object:
    """Annotate an argument whose default is None: what to give, and what holds when nothing is given."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")
