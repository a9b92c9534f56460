"""How people move, as columns of numbers: motions are batches of people, and a column has a row for each."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.rotations import heading
from dropsim.body.skeleton import joint_index
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.bank import CROUCHED
from dropsim.research.evaluation.harness import Arrays
from dropsim.scene import Drag, Follow, Scene
from dropsim.scene.objects import Flying

JUMPED = 1.08
"""Height of the pelvis in the air, relative to standing."""
OVERLAP_EVERY = 3
"""Frames from one measurement of overlaps to the next."""
WINDOW, STYLE_WINDOW = 2.0, 1.0
"""Windows of speed, which is net displacement, and of foot skate and jerk: recorded runs are hardly longer [s]."""
STYLES = ("speed", "skate", "jerk")
"""Measures of windows of one second."""
LEAST_WINDOWS = 10
"""Smallest number of windows of recordings that are compared with."""
STEP_SECONDS = 2.0
"""Time within which a step is a response to a push [s]."""
RISE = np.arange(-60, 1, 6)
"""Frames of getting up that tell ways apart: the two seconds until a person is upright."""
WAYS_APART = 0.25
"""Mean distance of the joints beyond which ways of getting up differ [m]."""
AFTER = 3
"""Frames after the end of a push or a hit at which its effect is judged: 0.1 s."""
NEAR = 0.05
"""Height below which a hand or a head has reached the floor [m]."""


def state_of_health(motion: Motion, above: Motion) -> Arrays:
    """Measure what every simulated person is judged by; `above` is the motion with heights above the ground."""
    return {
        "fell": metrics.fell(above, 1),
        "deepest_mm": -1000 * sphere_heights(above)[..., 1:, :].min((-1, -2)),
        "bone_error_percent": metrics.bone_error_percent(motion),
        "overlap_mm": metrics.self_overlap_mm(motion)[..., 1::OVERLAP_EVERY].astype(np.float32),
    }


# --- People who are asked for something


def turns_sharply(element: object) -> TypeGuard[Follow]:
    """Tell whether an element makes people follow a path with turns."""
    return isinstance(element, Follow) and len(element.velocities) > 2


def followed(motion: Motion, scene: Scene) -> Arrays:
    """Measure people who follow a path, whose hand is led, or at whom balls fly."""
    columns: Arrays = {}
    for element in scene.elements:
        if turns_sharply(element):
            wanted = np.array([element.velocity_at(frame / motion.fps) for frame in range(len(motion))])
            columns["turn_error_deg"] = turn_errors(motion, wanted).mean(-1)
        if isinstance(element, Drag):
            columns["hand_m"] = hand_gap(motion, element)[:, round(2 * motion.fps) :].mean(-1)
    if any(isinstance(element, Flying) for element in scene.elements):
        struck = np.linalg.norm(np.asarray(motion.external_forces).sum(-2), axis=-1) > 1.0
        # A hit is one while it lasts; two balls that hit at the same time are one.
        columns["hits"] = (struck[:, 1:] & ~struck[:, :-1]).sum(-1).astype(float)
    return columns


def hand_gap(motion: Motion, drag: Drag) -> Float[np.ndarray, "*b t"]:
    """Return the distance of the led joint from its target in every frame [m]."""
    joint = motion.joints[..., joint_index(drag.joint), :]
    origin = joint[..., :1, :] if drag.relative else 0.0
    targets = np.stack([drag.target(frame / motion.fps) for frame in range(len(motion))])
    return np.linalg.norm(joint - origin - targets, axis=-1)


def changes_of(wanted: Float[np.ndarray, "t 2"]) -> list[int]:
    """Return the frames at which the wanted velocity changes."""
    return (np.flatnonzero((np.diff(wanted, axis=0) != 0).any(-1)) + 1).tolist()


def turn_errors(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b n"]:
    """Return the angle between the wanted and the actual way one second after each turn [degrees].

    The actual way is the mean velocity of the half second around that time.
    """
    early, late = round(0.75 * motion.fps), round(1.25 * motion.fps)
    errors = [np.zeros((*motion.root.shape[:-2], 0))]
    for turn in (turn for turn in changes_of(wanted) if turn + late < len(motion)):
        way = motion.root[..., turn + late, :2] - motion.root[..., turn + early, :2]
        x, y = wanted[turn]
        angle = np.arctan2(x * way[..., 1] - y * way[..., 0], x * way[..., 0] + y * way[..., 1])
        errors.append(np.degrees(np.abs(angle))[..., None])
    return np.concatenate(errors, -1)


def response_times(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b n"]:
    """Return the times from each change of the wanted velocity until it is reached [s].

    Reached is 80 % of it along the new way, or slower than 0.2 m/s for a stop. The velocity is that of the centre of
    mass, averaged over the 0.3 s around a frame; the time to the next change stands for never.
    """
    centre, span = motion.skeleton.centre_of_mass(motion.joints)[..., :2], round(0.3 * motion.fps)
    velocity = (centre[..., span:, :] - centre[..., :-span, :]) * motion.fps / span
    times = [np.zeros((*motion.root.shape[:-2], 0))]
    for change, end in pairwise([*changes_of(wanted), len(motion)]):
        actual, new = velocity[..., change - span // 2 : end - span // 2, :], wanted[change]
        there = actual @ new >= 0.8 * new @ new if new.any() else np.linalg.norm(actual, axis=-1) < 0.2
        times.append(np.where(there.any(-1), there.argmax(-1), end - change)[..., None] / motion.fps)
    return np.concatenate(times, -1)


def not_done(motion: Motion, height: Float[np.ndarray, "t"]) -> np.ndarray:
    """Return who did not crouch, as seen in the last second of it, or did not leave the ground to jump."""
    heights = motion.root[:, ~np.isnan(height), 2]
    if np.nanmax(height, initial=0.0) > CROUCHED:
        return heights.max(-1) < JUMPED * motion.skeleton.standing_height
    if not heights.size:
        return np.zeros(len(heights), dtype=np.bool_)
    return heights[:, -round(motion.fps) :].mean(-1) > CROUCHED


# --- Pace


def paces(motion: Motion) -> Arrays:
    """Return the speed of windows of two seconds, end to end, and speed, foot skate and jerk of those of one second."""
    styles = [_windowed(motion, STYLE_WINDOW, how) for how in (net_speed, metrics.foot_skate, metrics.jerk)]
    return {"speed": _windowed(motion, WINDOW, net_speed), "style": np.stack(styles, -1)}


def _windowed(motion: Motion, seconds: float, measure: Callable[[Motion], Any]) -> np.ndarray:
    span = round(seconds * motion.fps)
    values = [measure(motion.slice(i * span, (i + 1) * span + 1)) for i in range((len(motion) - 1) // span)]
    return np.stack(values, -1) if values else np.zeros((*motion.root.shape[:-2], 0))


def net_speed(motion: Motion) -> np.ndarray:
    """Return the distance from start to end over the time [m/s]."""
    return np.asarray(np.linalg.norm(motion.root[..., -1, :2] - motion.root[..., 0, :2], axis=-1) / motion.duration)


def recorded_paces(motions: Sequence[Motion]) -> Float[np.ndarray, "n 3"]:
    """Return speed, foot skate and jerk of one-second windows of recordings in which people are upright."""
    rows = [np.zeros((0, 3))]
    for motion in motions:
        up = _windowed(motion, STYLE_WINDOW, lambda part: metrics.upright(part).all(-1)).astype(bool)
        rows.append(paces(motion)["style"][up])
    return np.concatenate(rows)


def style_ratio(style: str, people: Float[np.ndarray, "*b 3"], recorded: np.ndarray, speed: float) -> float:
    """Return the median foot skate or jerk of people at a speed over that of recordings; NaN if there are none.

    Recordings are those within 15 % of that speed, or the ten that are nearest to it.
    """
    off, k, band = np.abs(recorded[:, 0] - speed), STYLES.index(style), max(0.1, 0.15 * speed)
    recorded = recorded[off <= max(np.sort(off)[:LEAST_WINDOWS].max(initial=0.0), band)]
    near = np.abs(people[..., 0] - speed) <= band
    if not (len(recorded) and near.any()):
        return math.nan
    return float(np.median(people[..., k][near]) / np.median(recorded[:, k]))


# --- Pushes, falls, trips and balls


def answered(motion: Motion, step: Int[np.ndarray, "b 3"], twins: Int[np.ndarray, "b"]) -> np.ndarray:
    """Return who steps within two seconds, and before the unperturbed twin lands a step; nobody without a twin."""
    landed, down = step[:, 1], metrics.fallen(motion)
    unperturbed = np.where(landed < 0, len(motion), landed)[twins]
    # Feet of people who lie go up and down too.
    lies = np.where(down.any(-1), down.argmax(-1), len(motion))
    soon = (landed >= 0) & (landed <= STEP_SECONDS * motion.fps) & (landed <= lies)
    return (twins >= 0) & soon & (landed < unperturbed)


def getting_up(motion: Motion) -> Float[np.ndarray, "b n 22 3"]:
    """Return the two seconds until people who fell are upright, as seen from their own root; NaN for all others."""
    down, up = metrics.fallen(motion), metrics.upright(motion)
    first = down.argmax(-1)
    risen = up & (np.arange(len(motion)) > first[:, None]) & down.any(-1)[:, None]  # pyright: ignore[reportIndexIssue]
    frames = np.maximum(risen.argmax(-1)[:, None] + RISE, 0)
    rows = np.arange(len(down))[:, None]
    joints = motion.joints[rows, frames] - (motion.root * (1.0, 1.0, 0.0))[rows, frames][..., None, :]
    joints = joints @ heading(motion.q[rows, frames, 0]).swapaxes(-1, -2)
    return np.where((risen.any(-1))[:, None, None, None], joints, np.nan)


def ways_up(rises: np.ndarray) -> list[float]:
    """Return the shares of people who get up in ways that differ, by clusters of distant joints, the largest first."""
    if len(rises) < 2:
        return [1.0] * len(rises)
    from scipy.cluster.hierarchy import fcluster, linkage

    apart = [np.linalg.norm(rises[i] - rises[i + 1 :], axis=-1).mean((-1, -2)) for i in range(len(rises) - 1)]
    labels = fcluster(linkage(np.concatenate(apart), "average"), WAYS_APART, "distance")
    return sorted((np.bincount(labels)[1:] / len(rises)).tolist(), reverse=True)


def tripped(motion: Motion, since: Float[np.ndarray, "b"]) -> Arrays:
    """Measure people who trip, by the frame at which the heel is caught; infinite for those who were not."""
    caught, time = np.isfinite(since), np.arange(len(motion))
    at = np.clip(np.where(caught, since, 1), 1, len(motion) - 8).astype(int)
    rows, centre = np.arange(len(at)), motion.skeleton.centre_of_mass(motion.joints)[..., :2]
    velocity = np.diff(centre, axis=-2, prepend=centre[:, :1]) * motion.fps
    before, after = velocity[rows, at], velocity[rows, at + round(0.2 * motion.fps)]
    down = metrics.fallen(motion) & (time > at[:, None])
    fell, first = down.any(-1), down.argmax(-1)
    ahead = (motion.joints[rows, first, 15] - motion.joints[rows, first, 0])[:, :2]
    low = (sphere_heights(motion)[..., (20, 21, 15)] < NEAR) & (time > at[:, None])[..., None]
    reached = np.where(low.any(-2), low.argmax(-2), len(motion))
    return {
        "caught": caught,
        "speed_kept": (after * before).sum(-1) / np.maximum((before**2).sum(-1), 1e-9),
        "fell": fell,  # pyright: ignore[reportReturnType]
        "forward": fell & ((ahead * before).sum(-1) > 0),
        "hands_first": reached[:, :2].min(-1) < reached[:, 2],
    }


def struck(motion: Motion, calm: Motion, velocities: Float[np.ndarray, "b t 3"], mass: float) -> Arrays:
    """Measure the first 0.2 s of each hit: impulses on person and ball, and the velocity that is lost 0.1 s later."""
    h, total, time = 1 / motion.fps, motion.skeleton.masses.sum(), np.arange(len(motion))
    forces = np.asarray(motion.external_forces).sum(-2)
    acts = np.linalg.norm(forces, axis=-1) > 1e-6
    first = acts.argmax(-1)
    acts &= (time >= first[:, None]) & (time < first[:, None] + round(0.2 * motion.fps))
    on_person = (forces * acts[..., None]).sum(-2) * h
    change = np.nan_to_num(np.diff(velocities, axis=-2, prepend=velocities[:, :1])) + np.array([0.0, 0.0, 9.81 * h])
    on_ball = mass * (change * acts[..., None]).sum(-2)
    size = np.maximum(np.linalg.norm(on_person, axis=-1), 1e-9)
    last = np.minimum(len(motion) - 1 - acts[:, ::-1].argmax(-1) + AFTER, len(motion) - 1)
    apart = motion.skeleton.centre_of_mass(motion.joints) - calm.skeleton.centre_of_mass(calm.joints)
    rows = np.arange(len(last))
    faster = apart[rows, last] - apart[rows, last - 1]
    # Over the ground: what a ball pushes people down, the floor takes.
    way = on_person[:, :2] / np.maximum(np.linalg.norm(on_person[:, :2], axis=-1, keepdims=True), 1e-9)
    lost = (on_person[:, :2] / total - faster[:, :2] * motion.fps) * way
    return {
        "hit": acts.any(-1),
        "mismatch": np.linalg.norm(on_person + on_ball, axis=-1) / size,
        "lost": lost.sum(-1),
        "fell": metrics.fell(motion, 1),
    }
