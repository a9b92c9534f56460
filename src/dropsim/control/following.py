"""The simulator that follows a recording closely."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.contacts import CONTACT_GAP
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.metrics import FEET
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.step import Simulator
from dropsim.priors.recording import ClipPrior

_FEET = list(FEET)


@dataclass(frozen=True, eq=False)
class Planted(Energy):
    """Feet on the floor stand still until the recording has gone on by some slack, and then follow it at that distance.

    The slack fades as the recorded foot leaves the floor, so that nothing jumps.
    """

    weight: float = 100.0
    slack: float = 0.02
    """On the floor [m]."""
    gap: float = CONTACT_GAP
    """Height at which no slack is left [m]."""
    name: str = field(default="planted", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return np.eye(NUM_JOINTS)[_FEET]

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        """Stay in place, or within the slack of the recording, at the recording's height."""
        radii = frame.skeleton.radii[_FEET]
        here, recorded = frame.x[:, _FEET], frame.candidates[:, 0, _FEET]
        slack = self.slack * np.clip(1 - (recorded[..., 2] - radii) / self.gap, 0, 1)
        back = (here - recorded)[..., :2]
        held = back * (slack / np.maximum(np.maximum(slack, np.linalg.norm(back, axis=-1)), 1e-12))[..., None]
        height = np.maximum(recorded[..., 2], radii)
        return Target(np.concatenate((recorded[..., :2] + held, height[..., None]), -1), slack > 0)


def clip_simulator(prior: ClipPrior) -> Simulator:
    """Return the simulator that follows a recording within 3 cm and takes from it what no body does.

    Compared with the defaults, which give way to a push, the recording pulls four times as strongly, its feet stand,
    and the root wrench is corrected gently but down to nothing: a strong correction carries a recorded flight, whose
    noise is many times gravity, far away.
    """
    options = SimulatorOptions(
        kinematic_weight=12.0, correction_weight=0.7, drift=0.0, num_samples=1, num_iterations=6, leaf_damping=0.0
    )
    return Simulator(prior, options=options, energies=(Planted(),))
