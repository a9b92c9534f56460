"""Gives any autoregressive human motion model a body that obeys physics.

The names in `__all__` are the public interface: they stay as they are between releases that do not say otherwise.
Everything else can be imported from its module and may move. Names load their modules when they are first used, so
`import dropsim` takes no time.

    Simulator.shipped()                       the simulator with the prior and the pose model of the package
    Scene, Person, Push, Throw, ... World     who and what is in a world; `run(world, num_frames, seeds)` gives a `Rollout` of `Motion`s
    scenario, read_scene, write_scene         the ready scenes, and scenes as files
    read_motion, write                        motions from BVH and AMASS npz, and to BVH, npz, GLB, USD, CSV and HTML
    Prior, State, Candidates, Streams         for a motion model of your own; CVAEPrior and ClipPrior are two
    Energy, Frame, Target                     for an energy of your own
    Element, SceneContext, StepInputs         for something of your own in a scene
    Skeleton, Motion, metrics                 a body, frames over time, and measures of them
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dropsim.body.skeleton import Skeleton
    from dropsim.compute.random import Streams
    from dropsim.export import write
    from dropsim.motion.motion import Motion
    from dropsim.motion.reading import read_motion
    from dropsim.physics import metrics
    from dropsim.physics.energy import Energy, Frame, Target
    from dropsim.physics.options import SimulatorOptions
    from dropsim.physics.step import Simulator, StepInputs
    from dropsim.priors.cvae import CVAEPrior
    from dropsim.priors.intent import Intent
    from dropsim.priors.prior import Candidates, Prior, State
    from dropsim.priors.recording import ClipPrior
    from dropsim.scene import (
        Ball,
        Dodge,
        Drag,
        Element,
        Follow,
        Ground,
        Obstacle,
        Person,
        Pin,
        Push,
        Rollout,
        Scene,
        SceneContext,
        StiffJoint,
        Throw,
        Trip,
        World,
        run,
    )
    from dropsim.scene.files import read_scene, write_scene
    from dropsim.scene.scenarios import scenario

_WHERE = {
    "body.skeleton": ["Skeleton"],
    "compute.random": ["Streams"],
    "export": ["write"],
    "motion.motion": ["Motion"],
    "motion.reading": ["read_motion"],
    "physics": ["metrics"],
    "physics.energy": ["Energy", "Frame", "Target"],
    "physics.options": ["SimulatorOptions"],
    "physics.step": ["Simulator", "StepInputs"],
    "priors.cvae": ["CVAEPrior"],
    "priors.intent": ["Intent"],
    "priors.prior": ["Candidates", "Prior", "State"],
    "priors.recording": ["ClipPrior"],
    "scene": [
        "Ball", "Dodge", "Drag", "Element", "Follow", "Ground", "Obstacle", "Person", "Pin", "Push", "Rollout", "Scene", "SceneContext",
        "StiffJoint", "Throw", "Trip", "World", "run",
    ],
    "scene.files": ["read_scene", "write_scene"],
    "scene.scenarios": ["scenario"],
}  # fmt: skip
"""The public names by module."""
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

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
    "Intent",
    "Motion",
    "Obstacle",
    "Person",
    "Pin",
    "Prior",
    "Push",
    "Rollout",
    "Scene",
    "SceneContext",
    "Simulator",
    "SimulatorOptions",
    "Skeleton",
    "State",
    "StepInputs",
    "StiffJoint",
    "Streams",
    "Target",
    "Throw",
    "Trip",
    "World",
    "metrics",
    "read_motion",
    "read_scene",
    "run",
    "scenario",
    "write",
    "write_scene",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'dropsim' has no attribute {name!r}")
    module = f"dropsim.{_MODULES[name]}"
    found = (
        importlib.import_module(f"{module}.{name}")
        if name == "metrics"
        else getattr(importlib.import_module(module), name)
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
