"""An energy of your own in the simulator, as a class of two methods: somebody who walks with a hand up.

Run: python examples/03_your_own_energy.py [FOLDER]
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from dropsim import Energy, Follow, Frame, Person, Scene, Simulator, Skeleton, Target, World, run
from dropsim.body.skeleton import NUM_JOINTS, joint_index
from dropsim.render import contact_sheet

HAND, SHOULDER = joint_index("right_wrist"), joint_index("right_shoulder")


@dataclass(frozen=True, eq=False)
class HandUp(Energy):
    """The right hand at least so high above its shoulder."""

    height: float = 0.2
    """[m]"""
    weight: float = 6.0
    """Twice the prior's, whose arms swing."""
    name: str = "hand_up"

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        """Return A, which takes the vector from the shoulder to the hand out of the joints."""
        row = np.zeros((1, NUM_JOINTS))
        row[0, HAND], row[0, SHOULDER] = 1.0, -1.0
        return row

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        """Return the nearest vector that is high enough; a hand that is up already is left alone."""
        arm = x[:, [HAND]] - x[:, [SHOULDER]]
        low = arm[..., 2] < self.height
        arm[..., 2] = np.maximum(arm[..., 2], self.height)
        return Target(arm, active=low)


out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)
simulator = Simulator.shipped()
motions = []
for energies in ((), (HandUp(),)):
    world = World(Scene((Person("walk"),), (Follow(),)), replace(simulator, energies=energies))
    motions.append(run(world, num_frames=60, seeds=8).motions[0])
heights = [float((motion.joints[30:, HAND] - motion.joints[30:, SHOULDER])[:, 2].mean()) for motion in motions]
contact_sheet(motions, out / "03_hand_up.png", frames=8, labels=["as the prior has it", "with a hand up"])
print(
    f"wrote {out / '03_hand_up.png'}: the hand is {heights[0]:+.2f} m from its shoulder, and with the energy {heights[1]:+.2f} m"
)
