"""The rotations and joints that our conditional VAE's steps lead to, compiled: one frame for every sample of every person."""

from typing import Any

import numpy as np

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.kinematics import chain, exp, log_small, product
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""


@kernel
def compose(
    x: Array, q: Array, steps: Array, free: Array, held: Array, offsets: Array, next_x: Array, next_q: Array
) -> None:
    """Write K next frames of each person after steps of the pelvis and turns of the joints (n k 1+22 3).

    Joints follow by kinematics. Rotations about axes that the recorded joints do not have, such as a knee's own axis,
    are put back to where the recordings hold them.
    """
    turn, world = np.empty((3, 3)), np.empty((NUM_JOINTS, 3, 3))
    for i in range(len(x)):
        for k in range(steps.shape[1]):
            step, rotations = steps[i, k], next_q[i, k]
            for j in range(NUM_JOINTS):
                exp(step[1 + j, 0], step[1 + j, 1], step[1 + j, 2], turn)
                product(turn, q[i, j], rotations[j])
                f, h = free[j], held[j]
                if f[0] * f[1] * f[2] < 1:
                    a, b, c = log_small(rotations[j])
                    exp(f[0] * a + h[0], f[1] * b + h[1], f[2] * c + h[2], rotations[j])
            for c in range(3):
                next_x[i, k, 0, c] = x[i, 0, c] + step[0, c]
            chain(rotations, offsets, world, next_x[i, k])
