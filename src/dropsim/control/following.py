"""The simulator that follows a recording closely."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.contacts import CONTACT_GAP
from dropsim.physics import metrics
from dropsim.physics.energies.kinematic import Kinematic
from dropsim.physics.energies.physical import RangeOfMotion
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.step import Simulator
from dropsim.physics.wrench import WrenchOptions
from dropsim.priors.pose import PosePrior
from dropsim.priors.recording import ClipPrior


@dataclass(frozen=True, eq=False)
class Planted(Energy):
    """Feet on the floor stand still until the recording has gone on by some slack, and then follow it at that distance.

    The slack fades as the recorded foot leaves the floor, so that nothing jumps.
    """

    weight: float = 100.0
    slack: float = 0.02
    """On the floor [m]."""
    gap: float = CONTACT_GAP
    """Height at which nothing of it is left [m]."""
    name: str = field(default="planted", init=False)

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Select ankles and toes."""
        return torch.eye(NUM_JOINTS, dtype=skeleton.rest.dtype)[list(metrics.FEET)]

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Stay in place, or within the slack of the recording, at the recording's height."""
        radii = frame.skeleton.radii.to(x)[list(metrics.FEET)]
        here, wished = (joints[..., list(metrics.FEET), :] for joints in (frame.x, frame.manifold[..., 0, :, :]))
        slack = self.slack * (1 - (wished[..., 2] - radii) / self.gap).clamp(0, 1)
        back = (here - wished)[..., :2]
        held = back * (slack / torch.maximum(slack, back.norm(dim=-1)).clamp_min(1e-12)).unsqueeze(-1)
        height = torch.maximum(wished[..., 2], radii)
        return Target(torch.cat((wished[..., :2] + held, height.unsqueeze(-1)), dim=-1), slack > 0)


def clip_simulator(prior: ClipPrior) -> Simulator:
    """Return the simulator that follows a recording within 3 cm and takes from it what no body does.

    Beside the defaults, which give way to a push, the recording pulls four times as strongly, its feet stand, and the root wrench is
    corrected gently but down to nothing: a strong correction carries a recorded flight, whose noise is many times gravity, far away.
    """
    return Simulator(
        prior, range_of_motion=RangeOfMotion(PosePrior.shipped()), kinematic=Kinematic(weight=12.0), energies=(Planted(),),
        wrench=WrenchOptions(weight=0.7, airborne_weight=0.3, tolerance=0.0, threshold=0.0),
        num_samples=1, num_iterations=6, leaf_damping=0.0,
    )  # fmt: skip
