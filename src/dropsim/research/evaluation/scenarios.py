"""The ready scenarios with many seeds: falls, depth in the floor and in one's own body, and whether bones hold."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import joint_index
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.evaluation.harness import Arrays, Body, survivors
from dropsim.scene import Drag, Element, Follow, Scene, above_ground, run
from dropsim.scene.objects import Flying
from dropsim.scene.scenarios import SCENARIOS

AT_ONCE = 1e6
"""Acceleration of people who are asked to turn at once [m/s^2]."""
EVERY = 3
"""Frames from one measurement of overlaps to the next."""


def run_scenario(body: Body, seeds: Sequence[int], *, scenario: str) -> Arrays:
    """Run a scenario with some seeds; a row for each seed and person."""
    setup = replace(SCENARIOS[scenario], simulator=body.options)
    scene = replace(setup.scene, elements=tuple(_at_once(e) for e in setup.scene.elements))
    setup = replace(setup, scene=scene)
    world, people = setup.world(body.simulator().prior), len(scene.people)

    def together(some: Sequence[int]) -> Arrays:
        rollout = run(world, setup.num_frames(world.fps), list(some))
        motions, ground = rollout.motions, None if scene.ground.level else rollout.ground
        health = [state_of_health(m, m if ground is None else above_ground(m, ground)) for m in motions]
        rows = {name: np.stack([one[name] for one in health], 1) for name in health[0]}
        led = followed(motions[0], scene) if people == 1 else {}
        return {name: values.reshape(-1, *values.shape[2:]) for name, values in rows.items()} | led

    columns = survivors(seeds, together)
    return columns | {"finished": np.repeat(columns["finished"], people)}


def _at_once(element: Element[Any]) -> Element[Any]:
    """Let people who follow turn at once, without a ramp: that is how turns are judged."""
    if isinstance(element, Follow) and len(element.velocities) > 2:
        return replace(element, acceleration=AT_ONCE)
    return element


def followed(motion: Motion, scene: Scene) -> Arrays:
    """Measure people who follow a path, whose hand is led, or at whom balls fly."""
    columns: Arrays = {}
    for element in scene.elements:
        if isinstance(element, Follow) and len(element.velocities) > 2:
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


def turn_errors(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b n"]:
    """Return the angle between the wanted and the actual way one second after each turn [degrees].

    The actual way is the mean velocity of the half second around that time.
    """
    turns = np.flatnonzero((np.diff(wanted, axis=0) != 0).any(-1)) + 1
    early, late = round(0.75 * motion.fps), round(1.25 * motion.fps)
    errors = [np.zeros((*motion.root.shape[:-2], 0))]
    for turn in turns[turns + late < len(motion)].tolist():
        way = motion.root[..., turn + late, :2] - motion.root[..., turn + early, :2]
        x, y = wanted[turn]
        angle = np.arctan2(x * way[..., 1] - y * way[..., 0], x * way[..., 0] + y * way[..., 1])
        errors.append(np.degrees(np.abs(angle))[..., None])
    return np.concatenate(errors, -1)


def state_of_health(motion: Motion, above: Motion) -> Arrays:
    """Measure what every simulated person is judged by; `above` is the motion with heights above the ground."""
    return {
        "fell": metrics.fell(above, 1),
        "deepest_mm": -1000 * sphere_heights(above)[..., 1:, :].min((-1, -2)),
        "bone_error_percent": metrics.bone_error_percent(motion),
        "overlap_mm": metrics.self_overlap_mm(motion)[..., 1::EVERY].astype(np.float32),
    }
