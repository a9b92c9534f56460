"""Gives any autoregressive human motion model a body that obeys physics.

What stands in `__all__` is the public interface: it stays as it is between releases that do not say otherwise. Everything else can be
imported from its module and may move. Names load their modules when they are first used, so that `import dropsim` takes no time.

    Simulator.shipped()                       the simulator with the prior and the pose model of the package
    Scene, Person, Push, Throw, ... World     who and what is in a world; `run(world, num_frames, seeds)` gives a `Take` of `Motion`s
    scenario, read_scene, write_scene         the ready scenes, and scenes as files
    read_motion, write                        motions from BVH and AMASS npz, and to BVH, npz, GLB, USD, CSV and HTML
    Prior, State, Candidates, Streams         for a motion model of your own; CVAEPrior and ClipPrior are two
    Energy, Frame, Target                     for an energy of your own
    Element, SceneContext, StepInputs                for something of your own in a scene
    Skeleton, Motion                          a body, and frames over time
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropsim.body.skeleton import Skeleton
    from dropsim.export import write
    from dropsim.motion.motion import Motion
    from dropsim.motion.reading import read_motion
    from dropsim.physics.energy import Energy, Frame, Target
    from dropsim.physics.step import Simulator
    from dropsim.priors.cvae import CVAEPrior
    from dropsim.priors.prior import Candidates, Prior, State, Streams
    from dropsim.priors.recording import ClipPrior
    from dropsim.scene import (
        Ball,
        Dodge,
        Drag,
        Element,
        Follow,
        Ground,
        StepInputs,
        SceneContext,
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
    from dropsim.scene.files import read_scene, write_scene
    from dropsim.scene.scenarios import scenario

# Read by OpenMP when torch is loaded; why, says dropsim.compute.threads.
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
    "StepInputs",
    "SceneContext",
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
    "scene", "physics.step", "motion.motion", "body.skeleton", "priors.prior", "priors.cvae", "priors.recording", "physics.energy", "scene.scenarios", "scene.files", "export",
    "motion.reading",
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
