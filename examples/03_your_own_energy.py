"""A wish of your own in the simulator, as a class of two methods: somebody who walks with a hand up.

Run: python examples/03_your_own_energy.py [FOLDER]
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim import Energy, Frame, Person, Scene, Simulator, Skeleton, Target, World, run
from dropsim.render import contact_sheet
from dropsim.body.skeleton import NUM_JOINTS, joint_index

HAND, SHOULDER = joint_index("right_wrist"), joint_index("right_shoulder")


@dataclass(frozen=True, eq=False)
class HandUp(Energy):
    """The right hand at least so high above its shoulder."""

    height: float = 0.35
    """[m]"""
    weight: float = 3.0
    """Beside the prior's, which is 3, and those of contact and range of motion."""
    name: str = "hand_up"

    def matrix(self, skeleton: Skeleton) -> Float[Tensor, "m 22"]:
        """Return A, which takes the vector from the shoulder to the hand out of the joints."""
        row = torch.zeros(1, NUM_JOINTS, dtype=skeleton.rest.dtype)
        row[0, HAND], row[0, SHOULDER] = 1.0, -1.0
        return row

    def project(self, x: Float[Tensor, "*b 22 3"], frame: Frame) -> Target:
        """Return the nearest vector that is high enough; where the hand is up already, the wish does not apply."""
        arm = (x[..., HAND, :] - x[..., SHOULDER, :]).unsqueeze(-2)
        up = torch.cat((arm[..., :2], arm[..., 2:].clamp(min=self.height)), dim=-1)
        return Target(up, active=arm[..., 2] < self.height)


out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)
simulator = Simulator.shipped()
motions = []
for energies in ((), (HandUp(),)):
    world = World(Scene((Person("walk"),)), replace(simulator, energies=energies))
    motions.append(run(world, num_frames=60, seeds=0).motions[0])
heights = [float((motion.joints[30:, HAND] - motion.joints[30:, SHOULDER])[:, 2].mean()) for motion in motions]
contact_sheet(motions, out / "03_hand_up.png", frames=8, labels=["as the prior has it", "with a hand up"])
print(f"wrote {out / '03_hand_up.png'}: the hand is {heights[0]:+.2f} m from its shoulder, and with the wish {heights[1]:+.2f} m")
