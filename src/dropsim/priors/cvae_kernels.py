"""What stands before and after a conditional VAE's networks: the state in its heading frame, codes, and the next frames."""

import math
from typing import Any

import numpy as np

from dropsim.body.joints import NUM_JOINTS, PARENTS
from dropsim.body.kinematics import chain, copy, exp, log_small, product
from dropsim.compute.jit import kernel

Array = Any
"""numba knows the types."""
LANES = 32
"""Samples that are worked on side by side."""
PARENT = np.array(PARENTS)
NUM_VELOCITIES = 6 + 3 * NUM_JOINTS
"""Of the root and of all joints; what follows in a memory is something else."""
DELTAS = (0, 6, 12, 75, 3, 9, 141)
"""Where HuMoR's output has the changes of trans, root, body, joints, and of the velocities of trans, root, joints."""


@kernel
def local_state(
    x: Array, q: Array, memory: Array, rest_root: Array, mean: Array, scale: Array, H: Array, seen: Array
) -> None:
    """Write each person's heading H, and the state in the heading frame of the root as the networks see it, normalised.

    HuMoR's root is not the pelvis: its memory ends with the drift of one from the other.
    """
    turned = np.empty((3, 3))
    drifts = memory.shape[1] == NUM_VELOCITIES + 3
    for i in range(len(x)):
        right_x, right_y = -q[i, 0, 0, 0], -q[i, 0, 1, 0]
        size = math.sqrt(right_x * right_x + right_y * right_y)
        cosine, sine = (right_x / size, right_y / size) if size > 1e-8 else (1.0, 0.0)
        R = H[i]
        R[0, 0], R[0, 1], R[0, 2], R[1, 0], R[1, 1], R[1, 2] = cosine, sine, 0.0, -sine, cosine, 0.0
        R[2, 0], R[2, 1], R[2, 2] = 0.0, 0.0, 1.0
        root_x, root_y, root_z = x[i, 0, 0], x[i, 0, 1], x[i, 0, 2]
        if drifts:
            drift = memory[i, NUM_VELOCITIES:]
            root_x, root_y, root_z = root_x + drift[0], root_y + drift[1], root_z + drift[2]
        row = seen[i]
        row[0], row[1], row[2] = 0.0, 0.0, root_z - rest_root[2]
        _turn(R, memory[i], 0, 1, row, 3)
        product(R, q[i, 0], turned)
        at = 6
        for r in range(3):
            for c in range(3):
                row[at] = turned[r, c]
                at += 1
        _turn(R, memory[i], 3, 1, row, at)
        at += 3
        for j in range(1, NUM_JOINTS):
            for r in range(3):
                for c in range(3):
                    row[at] = q[i, j, r, c]
                    at += 1
        for j in range(NUM_JOINTS):
            dx, dy = x[i, j, 0] - root_x, x[i, j, 1] - root_y
            row[at] = cosine * dx + sine * dy + rest_root[0]
            row[at + 1] = cosine * dy - sine * dx + rest_root[1]
            row[at + 2] = x[i, j, 2]
            at += 3
        _turn(R, memory[i], 6, NUM_JOINTS, row, at)
        at += 3 * NUM_JOINTS
        if not drifts:
            for k in range(NUM_VELOCITIES, memory.shape[1]):
                row[at] = memory[i, k]
                at += 1
        for k in range(at):
            row[k] = (row[k] - mean[k]) / scale[k]


@kernel
def _turn(R: Array, vectors: Array, start: int, num: int, out: Array, to: int) -> None:
    for k in range(num):
        a, b, c = vectors[start + 3 * k], vectors[start + 3 * k + 1], vectors[start + 3 * k + 2]
        for r in range(3):
            out[to + 3 * k + r] = R[r, 0] * a + R[r, 1] * b + R[r, 2] * c


@kernel
def codes(latent: Array, noise: Array, z: Array) -> None:
    """Write K codes of each person from mean and log-variance, side by side, and standard normal noise."""
    size = z.shape[2]
    scale = np.empty(size, dtype=np.float32)
    for i in range(len(z)):
        for c in range(size):
            scale[c] = math.exp(np.float32(0.5) * latent[i, size + c])
        for k in range(z.shape[1]):
            for c in range(size):
                z[i, k, c] = latent[i, c] + scale[c] * noise[i, k, c]


@kernel
def compose_kinematic(
    x: Array, q: Array, memory: Array, H: Array, output: Array, output_scale: Array, carry: Array, free: Array, held: Array,
    offsets: Array, fps: float, next_x: Array, next_q: Array, next_memory: Array,
) -> None:  # fmt: skip
    """Write K next frames of each person, in the world: the network's steps on top of what the velocities carry on.

    Joints follow by kinematics, velocities by differences. Rotations about axes that the recorded joints do not have,
    such as a knee's own axis, are put back to where the recordings hold them. Some samples are worked on side by side.
    """
    h, num_step, num_samples = 1.0 / fps, 3 + 3 * NUM_JOINTS, output.shape[1]
    carried, step = np.empty(num_step), np.empty((num_step, LANES))
    turn, then = np.empty((9, LANES)), np.empty((NUM_JOINTS, 9, LANES))
    world, place = np.empty((NUM_JOINTS, 9, LANES)), np.empty((NUM_JOINTS, 3, LANES))
    local_root, one = np.empty((3, 3)), np.empty((3, 3))
    first_joint = 6 + 3 * NUM_JOINTS
    for i in range(len(x)):
        R = H[i]
        product(R, q[i, 0], local_root)
        _turn(R, memory[i], 0, 2, carried, 0)
        for k in range(6, num_step):
            carried[k] = memory[i, first_joint + k - 6]
        for k in range(num_step):
            carried[k] *= h * carry[k]
        for start in range(0, num_samples, LANES):
            num = min(LANES, num_samples - start)
            for lane in range(LANES):
                # Lanes without a sample repeat the last one.
                row = output[i, start + min(lane, num - 1)]
                for k in range(num_step):
                    step[k, lane] = carried[k] + output_scale[k] * row[k]
            for j in range(NUM_JOINTS):
                _exp_lanes(step[3 + 3 * j], step[4 + 3 * j], step[5 + 3 * j], turn, one)
                _times_one(turn, local_root if j == 0 else q[i, j], then[j])
                if free[j, 0] < 1 or free[j, 1] < 1 or free[j, 2] < 1:
                    _hold(then[j], free[j], held[j], one)
            _from_heading(R, then[0], turn)
            for c in range(3):
                for lane in range(LANES):
                    place[0, c, lane] = x[i, 0, c] + (
                        R[0, c] * step[0, lane] + R[1, c] * step[1, lane] + R[2, c] * step[2, lane]
                    )
            copy(then[0], world[0])
            for j in range(1, NUM_JOINTS):
                _link(world[PARENT[j]], then[j], offsets[j], place[PARENT[j]], world[j], place[j])
            for lane in range(num):
                _write_person(
                    x[i],
                    R,
                    step,
                    free,
                    fps,
                    then,
                    place,
                    lane,
                    next_x[i, start + lane],
                    next_q[i, start + lane],
                    next_memory[i, start + lane],
                )


@kernel
def _exp_lanes(x: Array, y: Array, z: Array, out: Array, one: Array) -> None:
    """Do what rotations.exp does, for samples side by side; the series is good to the last digit below a radian."""
    largest = 0.0
    for lane in range(LANES):
        largest = max(largest, x[lane] * x[lane] + y[lane] * y[lane] + z[lane] * z[lane])
    if not largest < 1.0:
        for lane in range(LANES):
            exp(x[lane], y[lane], z[lane], one)
            for r in range(3):
                for c in range(3):
                    out[3 * r + c, lane] = one[r, c]
        return
    for lane in range(LANES):
        vx, vy, vz = x[lane], y[lane], z[lane]
        s = vx * vx + vy * vy + vz * vz
        high = 1 - s * (1 / 110) * (1 - s * (1 / 156) * (1 - s * (1 / 210) * (1 - s * (1 / 272))))
        a = 1 - s * (1 / 6) * (1 - s * (1 / 20) * (1 - s * (1 / 42) * (1 - s * (1 / 72) * high)))
        high = 1 - s * (1 / 132) * (1 - s * (1 / 182) * (1 - s * (1 / 240) * (1 - s * (1 / 306))))
        b = 0.5 - s * (1 / 24) * (1 - s * (1 / 30) * (1 - s * (1 / 56) * (1 - s * (1 / 90) * high)))
        sx, sy, sz = a * vx, a * vy, a * vz
        bx, by, bz = b * vx, b * vy, b * vz
        xx, yy, zz = bx * vx, by * vy, bz * vz
        xy, yz, zx = bx * vy, by * vz, bz * vx
        out[0, lane], out[1, lane], out[2, lane] = 1.0 - yy - zz, xy - sz, zx + sy
        out[3, lane], out[4, lane], out[5, lane] = xy + sz, 1.0 - xx - zz, yz - sx
        out[6, lane], out[7, lane], out[8, lane] = zx - sy, yz + sx, 1.0 - xx - yy


@kernel
def _times_one(A: Array, B: Array, out: Array) -> None:
    """Out = A B, with the same B for all samples."""
    for r in range(3):
        for c in range(3):
            b0, b1, b2 = B[0, c], B[1, c], B[2, c]
            for lane in range(LANES):
                out[3 * r + c, lane] = A[3 * r, lane] * b0 + A[3 * r + 1, lane] * b1 + A[3 * r + 2, lane] * b2


@kernel
def _hold(q: Array, free: Array, held: Array, one: Array) -> None:
    """Put turns about axes that a joint does not have back to where they are held."""
    for lane in range(LANES):
        for r in range(3):
            for c in range(3):
                one[r, c] = q[3 * r + c, lane]
        x, y, z = log_small(one)
        exp(free[0] * x + held[0], free[1] * y + held[1], free[2] * z + held[2], one)
        for r in range(3):
            for c in range(3):
                q[3 * r + c, lane] = one[r, c]


@kernel
def _from_heading(R: Array, q: Array, spare: Array) -> None:
    """Q = R^T q."""
    copy(q, spare)
    for r in range(3):
        for c in range(3):
            for lane in range(LANES):
                q[3 * r + c, lane] = (
                    R[0, r] * spare[c, lane] + R[1, r] * spare[3 + c, lane] + R[2, r] * spare[6 + c, lane]
                )


@kernel
def _link(above: Array, q: Array, offset: Array, start: Array, world: Array, place: Array) -> None:
    """Go one joint down the chain."""
    ax, ay, az = offset[0], offset[1], offset[2]
    for r in range(3):
        for lane in range(LANES):
            place[r, lane] = start[r, lane] + (
                above[3 * r, lane] * ax + above[3 * r + 1, lane] * ay + above[3 * r + 2, lane] * az
            )
        for c in range(3):
            for lane in range(LANES):
                world[3 * r + c, lane] = (
                    above[3 * r, lane] * q[c, lane]
                    + above[3 * r + 1, lane] * q[3 + c, lane]
                    + above[3 * r + 2, lane] * q[6 + c, lane]
                )


@kernel
def _write_person(
    x: Array, R: Array, step: Array, free: Array, fps: float, q: Array, place: Array, lane: int,
    next_x: Array, next_q: Array, next_memory: Array,
) -> None:  # fmt: skip
    """Write one sample: joints, rotations and velocities; the root's are in the world, a joint's angular one in its parent's frame."""
    ax, ay, az = fps * free[0, 0] * step[3, lane], fps * free[0, 1] * step[4, lane], fps * free[0, 2] * step[5, lane]
    for c in range(3):
        next_memory[c] = fps * (R[0, c] * step[0, lane] + R[1, c] * step[1, lane] + R[2, c] * step[2, lane])
        next_memory[3 + c] = R[0, c] * ax + R[1, c] * ay + R[2, c] * az
    for j in range(NUM_JOINTS):
        for c in range(3):
            next_x[j, c] = place[j, c, lane]
            next_memory[6 + 3 * j + c] = (place[j, c, lane] - x[j, c]) * fps
            for k in range(3):
                next_q[j, c, k] = q[j, 3 * c + k, lane]
    for j in range(1, NUM_JOINTS):
        for c in range(3):
            next_memory[3 + 3 * NUM_JOINTS + 3 * j + c] = fps * free[j, c] * step[3 + 3 * j + c, lane]


@kernel
def compose_regressed(
    x: Array, q: Array, memory: Array, H: Array, output: Array, output_scale: Array, offsets: Array, by_kinematics: bool,
    next_x: Array, next_q: Array, next_memory: Array,
) -> None:  # fmt: skip
    """Write K next frames of each person, in the world, from HuMoR's deltas: everything is added, rotations are exp(delta) R.

    The root moves by itself, and its drift from the pelvis is remembered; by kinematics, it is the pelvis.
    """
    size = output.shape[2]
    delta, moved = np.empty(size), np.empty(size)
    turn, local, one = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    world, root = np.empty((NUM_JOINTS, 3, 3)), np.empty(3)
    trans, orient, body, joints, trans_velocity, orient_velocity, joint_velocity = DELTAS
    for i in range(len(x)):
        R = H[i]
        back = R.T
        for k in range(output.shape[1]):
            for c in range(size):
                delta[c] = output[i, k, c] * output_scale[c]
            _turn(back, delta, 0, size // 3, moved, 0)
            then_x, then_q, then_memory = next_x[i, k], next_q[i, k], next_memory[i, k]
            product(R, q[i, 0], local)
            exp(delta[orient], delta[orient + 1], delta[orient + 2], turn)
            product(turn, local, one)
            product(back, one, then_q[0])
            for j in range(1, NUM_JOINTS):
                at = body + 3 * (j - 1)
                exp(delta[at], delta[at + 1], delta[at + 2], turn)
                product(turn, q[i, j], then_q[j])
            for c in range(3):
                root[c] = x[i, 0, c] + memory[i, NUM_VELOCITIES + c] + moved[trans + c]
                then_memory[c] = memory[i, c] + moved[trans_velocity + c]
                then_memory[3 + c] = memory[i, 3 + c] + moved[orient_velocity + c]
                for j in range(NUM_JOINTS):
                    then_x[j, c] = x[i, j, c] + moved[joints + 3 * j + c]
                    then_memory[6 + 3 * j + c] = memory[i, 6 + 3 * j + c] + moved[joint_velocity + 3 * j + c]
            if by_kinematics:
                then_x[0, 0], then_x[0, 1], then_x[0, 2] = root[0], root[1], root[2]
                chain(then_q, offsets, world, then_x)
            for c in range(3):
                then_memory[NUM_VELOCITIES + c] = root[c] - then_x[0, c]
