"""The frames that our conditional VAE's outputs stand for, compiled: one for every sample of every person."""

from typing import Any

import numpy as np

from dropsim.body.joints import NUM_JOINTS
from dropsim.body.kinematics import chain, exp, log_small, product
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
_FIRST_TURN = 6 + 3 * NUM_JOINTS
"""Place in a memory of the angular velocities of the body's joints."""
_HISTORY = _FIRST_TURN + 3 * (NUM_JOINTS - 1)
"""Place in a memory of the history."""


@kernel
def compose_kinematic(
    now: Array,
    H: Array,
    output: Array,
    scale: Array,
    carry: Array,
    free: Array,
    held: Array,
    mean: Array,
    body: Array,
    then: Array,
) -> None:
    """Write K next frames of each person: the network's steps on top of what velocities and the pull carry on.

    `now` and `then` are joints, rotations and memories, `mean` is the mean posture and how much of the way to it each
    joint goes in a frame, `body` is the offsets of the joints, the frame rate and the share of a running mean that a
    frame replaces. Joints follow by kinematics, velocities by differences. Rotations about axes that the recorded
    joints do not have, such as a knee's own axis, are put back to where the recordings hold them.
    """
    x, q, memory = now
    offsets, fps, pace = body
    posture, pull = mean
    carried, step = np.empty(3 + 3 * NUM_JOINTS), np.empty(3 + 3 * NUM_JOINTS)
    turn, world = np.empty((3, 3)), np.empty((NUM_JOINTS, 3, 3))
    for i in range(len(x)):
        R = H[i]
        for c in range(3):
            carried[c] = R[c, 0] * memory[i, 0] + R[c, 1] * memory[i, 1] + R[c, 2] * memory[i, 2]
            carried[3 + c] = R[c, 0] * memory[i, 3] + R[c, 1] * memory[i, 4] + R[c, 2] * memory[i, 5]
        carried[6:] = memory[i, _FIRST_TURN:_HISTORY]
        for c in range(len(carried)):
            carried[c] *= carry[c] / fps
        for j in range(1, NUM_JOINTS):
            product(posture[j], q[i, j].T, turn)
            a, b, c = log_small(turn)
            carried[3 + 3 * j] += pull[j] * a
            carried[4 + 3 * j] += pull[j] * b
            carried[5 + 3 * j] += pull[j] * c
        for k in range(output.shape[1]):
            next_x, next_q, next_memory = then[0][i, k], then[1][i, k], then[2][i, k]
            for c in range(len(step)):
                step[c] = carried[c] + scale[c] * output[i, k, c]
            _to_world(R, step, 0)
            _to_world(R, step, 3)
            for j in range(NUM_JOINTS):
                at = 3 + 3 * j
                exp(step[at], step[at + 1], step[at + 2], turn)
                product(turn, q[i, j], next_q[j])
                if free[j, 0] * free[j, 1] * free[j, 2] < 1:
                    a, b, c = log_small(next_q[j])
                    exp(
                        free[j, 0] * a + held[j, 0], free[j, 1] * b + held[j, 1], free[j, 2] * c + held[j, 2], next_q[j]
                    )
            for c in range(3):
                next_x[0, c] = x[i, 0, c] + step[c]
            chain(next_q, offsets, world, next_x)
            for c in range(6):
                next_memory[c] = fps * step[c]
            for j in range(NUM_JOINTS):
                for c in range(3):
                    next_memory[6 + 3 * j + c] = fps * (next_x[j, c] - x[i, j, c])
                    if j > 0:
                        next_memory[_FIRST_TURN + 3 * (j - 1) + c] = fps * free[j, c] * step[3 + 3 * j + c]
            for c in range(6):
                next_memory[_HISTORY + c] = next_memory[c] - memory[i, c]
                average = memory[i, _HISTORY + 6 + c]
                next_memory[_HISTORY + 6 + c] = average + pace * (next_memory[c] - average)
            next_memory[_HISTORY + 12 : _HISTORY + 15] = memory[i, _HISTORY + 12 : _HISTORY + 15]
            for c in range(_FIRST_TURN, _HISTORY):
                next_memory[_HISTORY + 15 + c - _FIRST_TURN] = next_memory[c] - memory[i, c]


@kernel
def _to_world(H: Array, vectors: Array, at: int) -> None:
    """Turn the vector at a place out of the heading frame, in place."""
    a, b, c = vectors[at], vectors[at + 1], vectors[at + 2]
    for r in range(3):
        vectors[at + r] = H[0, r] * a + H[1, r] * b + H[2, r] * c
