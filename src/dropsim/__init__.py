"""Gives any autoregressive human motion model a body that obeys physics.

What stands in `__all__` is the public interface: it stays as it is between releases that do not say otherwise. Everything else can be
imported from its module and may move. Names load their modules when they are first used, so that `import dropsim` takes no time.

    Simulator.shipped()                       the simulator with the prior and the pose model of the package
    Scene, Person, Push, Throw, ... World     who and what is in a world; `run(world, num_frames, seeds)` gives a `Take` of `Motion`s
    scenario, read_scene, write_scene         the ready scenes, and scenes as files
    read_motion, write                        motions from BVH and AMASS npz, and to BVH, npz, GLB, USD, CSV and HTML
    Prior, State, Candidates, Streams         for a motion model of your own; CVAEPrior and ClipPrior are two
    Energy, Frame, Target                     for an energy of your own
    Element, Moment, Influence                for something of your own in a scene
    Skeleton, Motion                          a body, and frames over time
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropsim.data.motions import read_motion
    from dropsim.energy import Energy, Frame, Target
    from dropsim.export import write
    from dropsim.motion import Motion
    from dropsim.prior import Candidates, Prior, State, Streams
    from dropsim.priors.clip import ClipPrior
    from dropsim.priors.cvae import CVAEPrior
    from dropsim.scenarios import scenario
    from dropsim.scene import (
        Ball,
        Dodge,
        Drag,
        Element,
        Follow,
        Ground,
        Influence,
        Moment,
        Obstacle,
        Person,
        Pin,
        Push,
        Scene,
        StiffJoint,
        Take,
        Throw,
        Trip,
        World,
        run,
    )
    from dropsim.scene_file import read_scene, write_scene
    from dropsim.simulator import Simulator
    from dropsim.skeleton import Skeleton

# Read by OpenMP when torch is loaded; why, says dropsim.threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__all__ = [
    "Ball",
    "CVAEPrior",
    "Candidates",
    "ClipPrior",
    "Dodge",
    "Drag",
    "Element",
    "Energy",
    "Follow",
    "Frame",
    "Ground",
    "Influence",
    "Moment",
    "Motion",
    "Obstacle",
    "Person",
    "Pin",
    "Prior",
    "Push",
    "Scene",
    "Simulator",
    "Skeleton",
    "State",
    "StiffJoint",
    "Streams",
    "Take",
    "Target",
    "Throw",
    "Trip",
    "World",
    "read_motion",
    "read_scene",
    "run",
    "scenario",
    "write",
    "write_scene",
]

_MODULES = (
    "scene", "simulator", "motion", "skeleton", "prior", "priors.cvae", "priors.clip", "energy", "scenarios", "scene_file", "export",
    "data.motions",
)  # fmt: skip
"""Where the public names are, the most used first."""


def __getattr__(name: str) -> object:
    """Load a public name when it is first used (PEP 562)."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(importlib.import_module(f"dropsim.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'dropsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
