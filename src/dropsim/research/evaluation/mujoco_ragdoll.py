"""A baseline from outside: the same body in MuJoCo, whose joints track the motion of the unpushed person by springs and dampers.

Masses, bones and spheres are ours, on MuJoCo's contacts and integrator. Gains and torque limits are those of DeepMimic
(Peng et al. 2018). Nothing balances it: what it shows is what joint torques alone do.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.joints import JOINTS, NUM_JOINTS, PARENTS
from dropsim.body.rotations import log_small, transpose
from dropsim.body.skeleton import Skeleton
from dropsim.motion.motion import Motion
from dropsim.physics.step import Simulator
from dropsim.research.evaluation.trials import Trial, forces_on_joints, simulate_trials

STEP = 0.002
"""[s]"""
FRICTION = 0.8
GAINS = {"spine": (1000.0, 200.0), "neck": (100.0, 50.0), "head": (100.0, 50.0), "collar": (400.0, 100.0), "hip": (500.0, 200.0),
         "knee": (500.0, 150.0), "ankle": (400.0, 90.0), "foot": (50.0, 20.0), "shoulder": (400.0, 100.0), "elbow": (300.0, 60.0),
         "wrist": (30.0, 10.0)}  # fmt: skip
"""Stiffness [N m/rad] and largest torque [N m] by the part of a joint's name; dampers have a tenth of the stiffness."""


def _family(joint: int) -> list[int]:
    return [joint, *(j for child in range(NUM_JOINTS) if PARENTS[child] == joint for j in _family(child))]


ORDER = np.array(_family(0))
"""Our joints in the order of MuJoCo's bodies, each before its children and these before its siblings."""


def installed() -> bool:
    """Whether MuJoCo can be imported."""
    return importlib.util.find_spec("mujoco") is not None


def gains_of(joint: int) -> tuple[float, float]:
    """Return a joint's stiffness and largest torque."""
    return next(gains for part, gains in GAINS.items() if part in JOINTS[joint])


def model_text(skeleton: Skeleton) -> str:
    """Return our body as an MJCF model: a free pelvis, ball joints, a sphere with the joint's mass at each; limbs do not collide."""

    def body(joint: int) -> str:
        x, y, z = skeleton.offsets[joint] if joint else (0.0, 0.0, 0.0)
        own = "<freejoint/>" if joint == 0 else f'<joint type="ball" damping="{gains_of(joint)[0] / 10:g}"/>'
        sphere = f'<geom type="sphere" size="{skeleton.radii[joint]:.6g}" mass="{skeleton.masses[joint]:.6g}"/>'
        inner = "".join(body(child) for child in range(NUM_JOINTS) if PARENTS[child] == joint)
        return f'<body name="{JOINTS[joint]}" pos="{x:.6g} {y:.6g} {z:.6g}">{own}{sphere}{inner}</body>'

    friction = f'<default><geom contype="1" conaffinity="0" friction="{FRICTION} 0.005 0.0001"/></default>'
    plane = '<geom type="plane" size="0 0 1" contype="0" conaffinity="1"/>'
    option = f'<option timestep="{STEP}" integrator="implicitfast"/>'
    return f"<mujoco>{option}{friction}<worldbody>{plane}{body(0)}</worldbody></mujoco>"


def tracked(simulator: Simulator, trials: Sequence[Trial], num_frames: int) -> tuple[Motion | None, np.ndarray]:
    """Return what MuJoCo's body does under each push while it tracks the same person unpushed, and which went through."""
    calm, finished = simulate_trials(simulator, [replace(trial, force=(0.0, 0.0, 0.0)) for trial in trials], num_frames)
    if calm is None:
        return None, finished
    forces = np.stack([forces_on_joints(trials, frame) for frame in range(num_frames)], 1)[finished]
    joints, q = np.empty_like(calm.joints), np.empty_like(calm.q)
    for i in range(len(joints)):
        joints[i], q[i] = _track(calm.map(lambda values, i=i: values[i]), forces[i])
    whole = np.isfinite(joints).all((-1, -2, -3))
    done = finished.copy()
    done[finished] = whole
    motion = Motion(calm.skeleton, calm.fps, joints[whole][..., 0, :], q[whole], joints[whole], name="MuJoCo")
    return (motion if whole.any() else None), done


def _track(goal: Motion, forces: Float[np.ndarray, "t 22 3"]) -> tuple[np.ndarray, np.ndarray]:
    """Simulate one person; return joints and local rotations at the goal's rate."""
    import mujoco  # pyright: ignore[reportMissingImports]

    model: Any = mujoco.MjModel.from_xml_string(model_text(goal.skeleton))
    data: Any = mujoco.MjData(model)
    stiffness, most = np.array([gains_of(joint) for joint in ORDER[1:].tolist()]).T[..., None]
    h, wanted_q = 1 / goal.fps, goal.q[:, ORDER]
    speeds = log_small(transpose(wanted_q[:-1]) @ wanted_q[1:]) / h
    data.qpos[:3], data.qvel[:3] = goal.root[0], (goal.root[1] - goal.root[0]) / h
    quaternions = np.empty((NUM_JOINTS, 4))
    for joint in range(NUM_JOINTS):
        mujoco.mju_mat2Quat(quaternions[joint], wanted_q[0, joint].reshape(-1))
    data.qpos[3:], data.qvel[3:] = quaternions.reshape(-1), speeds[0].reshape(-1)
    per_frame = round(h / STEP)
    model.opt.timestep = h / per_frame
    joints, q = np.empty(goal.joints.shape), np.empty(goal.q.shape)
    for frame in range(len(goal)):
        mujoco.mj_forward(model, data)
        world = data.xmat[1:].reshape(-1, 3, 3)
        joints[frame, ORDER], q[frame, ORDER] = data.xpos[1:], _local(world)
        if frame + 1 == len(goal):
            break
        data.xfrc_applied[1:, :3] = forces[frame, ORDER]
        wanted = stiffness / 10 * speeds[frame, 1:]
        for _ in range(per_frame):
            now = _local(data.xmat[1:].reshape(-1, 3, 3))[1:]
            torque = stiffness * log_small(transpose(now) @ wanted_q[frame + 1, 1:])
            data.qfrc_applied[6:] = (np.clip(torque, -most, most) + wanted).reshape(-1)
            mujoco.mj_step(model, data)
    return joints, q


def _local(world: Float[np.ndarray, "22 3 3"]) -> Float[np.ndarray, "22 3 3"]:
    """Return rotations relative to the parents, all in MuJoCo's order."""
    return np.concatenate((world[:1], transpose(world[_PARENTS_THERE]) @ world[1:]))


_PARENTS_THERE = np.argsort(ORDER)[np.array(PARENTS)[ORDER[1:]]]
