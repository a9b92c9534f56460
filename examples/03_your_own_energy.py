"""An energy and an element of your own: a person walks with one hand up, and in a wind.

Run: python examples/03_your_own_energy.py [FOLDER]
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from dropsim import (
    Element,
    Energy,
    Follow,
    Frame,
    Person,
    Scene,
    SceneContext,
    Simulator,
    Skeleton,
    StepInputs,
    Target,
    World,
    run,
)
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


@dataclass(frozen=True)
class Wind(Element[None]):
    """A wind toward +x that blows on everybody, in gusts."""

    label: ClassVar[str] = "wind of {speed:g} m/s"

    speed: float = 15.0
    """Mean speed [m/s]."""
    start: float = 0.0
    """[s]"""
    duration: float = 10.0
    """[s]"""

    def act(self, memory: None, context: SceneContext) -> tuple[None, StepInputs]:
        """Return the drag on each joint: half the density of air, times the area of the bone above it, times speed squared."""
        if not context.during(self.start, self.duration):
            return memory, StepInputs()
        gust = self.speed * (1.0 + 0.3 * np.sin(2.0 * context.time))
        relative = np.array((gust, 0.0, 0.0)) - context.people.v * (1, 1, 0)
        area = 2.0 * context.skeleton.radii * context.skeleton.lengths
        drag = 0.6 * area[:, None] * np.linalg.norm(relative, axis=-1, keepdims=True) * relative
        return memory, StepInputs(forces=drag)


out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)
simulator = Simulator.shipped()
motions = []
for energies, elements in (((), ()), ((HandUp(),), ()), ((), (Wind(),))):
    world = World(Scene((Person("walk"),), (Follow(), *elements)), replace(simulator, energies=energies))
    motions.append(run(world, num_frames=60, seeds=8).motions[0])
heights = [float((motion.joints[30:, HAND] - motion.joints[30:, SHOULDER])[:, 2].mean()) for motion in motions[:2]]
contact_sheet(motions, out / "03_hand_up.png", frames=8, labels=["as the prior has it", "with a hand up", "in a wind"])
print(
    f"wrote {out / '03_hand_up.png'}: the hand is {heights[0]:+.2f} m from its shoulder, and with the energy {heights[1]:+.2f} m"
)
