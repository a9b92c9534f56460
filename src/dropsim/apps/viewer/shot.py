"""Frames of a live session, and the recording that is made of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import Report
from dropsim.priors.prior import State
from dropsim.scene import Solid
from dropsim.scene.files import Setup


@dataclass(frozen=True, eq=False)
class Sphere:
    """A ball or an obstacle at one frame."""

    centre: Float[np.ndarray, "3"]
    """[m]"""
    radius: float
    """[m]"""
    flying: bool


@dataclass(frozen=True, eq=False)
class Shot:
    """Everything that is shown of one frame."""

    frame: int
    time: float
    """Time since the start [s]."""
    people: State
    ghosts: State | None
    """The same people, undisturbed."""
    report: Report | None
    """Report of the step that led here; the start has none."""
    ground: Plane
    spheres: Mapping[int, Sphere]
    """Balls and obstacles, by a number that stays from frame to frame."""
    solids: Mapping[int, Solid]
    """Boxes, ramps, stairs and other solid objects, by a number that stays from frame to frame."""
    pulls: tuple[tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]], ...]
    """Points where hands hold something [m], and their forces [N]."""
    goals: tuple[tuple[float, float], ...]
    """Places that people are sent to [m]."""

    @property
    def values(self) -> dict[str, float]:
        """The first person's energies [m^2], and root wrench before and after correction [body weights]."""
        if self.report is None:
            return {}
        wrench = {"root wrench": self.report.wrench_before, "root wrench left": self.report.wrench_after}
        return {name: float(values[0]) for name, values in (*self.report.energies.items(), *wrench.items())}


@dataclass(frozen=True, eq=False)
class Recording:
    """The last half minute, to be written to files."""

    motions: tuple[Motion, ...]
    ghost: Motion | None
    """Ghost of the first person."""
    shots: tuple[Shot, ...]
    setup: Setup
    """The scene from its start."""
