"""The ready scenarios with many seeds: who falls, how deep people go into the floor and into themselves, and whether bones hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import joint_index
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.trials import Body, joined, survivors
from dropsim.scene import Drag, Element, Follow, Scene, above_ground, run
from dropsim.scene.objects import Flying
from dropsim.scene.scenarios import SCENARIOS

AT_ONCE = 1e6
"""Acceleration of people who are asked to turn at once [m/s^2]."""
EVERY = 3
"""Of so many frames one is looked at for overlaps."""


@dataclass(frozen=True)
class ScenarioChunk(Chunk):
    """A scenario with some seeds; a row for each seed and person."""

    body: Body
    name: str
    seeds: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"scenario-{self.name}-{self.seeds[0]:06d}"

    def run(self) -> Arrays:
        setup = replace(SCENARIOS[self.name], simulator=self.body.options)
        setup = replace(setup, scene=replace(setup.scene, elements=tuple(_at_once(e) for e in setup.scene.elements)))
        world = setup.world(self.body.simulator().prior)

        heights = list[Motion]()
        """Of those who went through, above ground that may tilt: that is sheared, and says nothing about bones."""

        def together(seeds: Sequence[int]) -> Motion:
            rollout = run(world, setup.num_frames(world.fps), list(seeds))
            motions = (
                rollout.motions
                if setup.scene.ground.level
                else [above_ground(m, rollout.ground) for m in rollout.motions]
            )
            heights.append(_people(motions))
            return _people(rollout.motions)

        motion, finished = survivors(self.seeds, together)
        finished = np.repeat(finished, len(setup.scene.people))
        if motion is None:
            return {"finished": finished}
        led = followed(motion.map(lambda values: values[:, 0]), setup.scene) if len(setup.scene.people) == 1 else {}
        flattened = (one.map(lambda values: values.reshape(-1, *values.shape[2:])) for one in (motion, joined(heights)))
        return {"finished": finished, **state_of_health(*flattened), **led}


def _people(motions: Sequence[Motion]) -> Motion:
    """Put the people of a batch of worlds along a second dimension."""
    return joined([motion.map(lambda values: values[:, None]) for motion in motions], axis=1)


def _at_once(element: Element[Any]) -> Element[Any]:
    """Let people who follow turn at once, without a ramp: that is how turns are judged."""
    return (
        replace(element, acceleration=AT_ONCE)
        if isinstance(element, Follow) and len(element.velocities) > 2
        else element
    )


def followed(motion: Motion, scene: Scene) -> Arrays:
    """Measure people who follow a path, whose hand is led, or at whom balls fly."""
    found: Arrays = {}
    for element in scene.elements:
        if isinstance(element, Follow) and len(element.velocities) > 2:
            wanted = np.array([element.velocity_at(frame / motion.fps) for frame in range(len(motion))])
            found["turn_error_deg"] = turn_errors(motion, wanted).mean(-1)
            found["speed_ratio"] = _straight_speed(motion, wanted)
        if isinstance(element, Drag):
            joint = joint_index(element.joint)
            target = np.array([element.target(frame / motion.fps) for frame in range(len(motion))])
            origin = motion.joints[:, :1, joint] if element.relative else 0.0
            off = np.linalg.norm(motion.joints[:, :, joint] - origin - target, axis=-1)
            found["hand_m"] = off[:, round(2 * motion.fps) :].mean(-1)
    if any(isinstance(element, Flying) for element in scene.elements):
        struck = np.linalg.norm(np.asarray(motion.external_forces).sum(-2), axis=-1) > 1.0
        # A hit is one while it lasts; two balls that hit at the same time are one.
        found["hits"] = (struck[:, 1:] & ~struck[:, :-1]).sum(-1).astype(float)
    return found


def turn_errors(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b n"]:
    """Return the angle between the way asked for and the mean velocity of the half second around one second after each turn [degrees]."""
    turns = np.flatnonzero((np.diff(wanted, axis=0) != 0).any(-1)) + 1
    early, late = round(0.75 * motion.fps), round(1.25 * motion.fps)
    errors = []
    for turn in turns[turns + late < len(motion)].tolist():
        way = motion.root[..., turn + late, :2] - motion.root[..., turn + early, :2]
        x, y = wanted[turn]
        errors.append(
            np.degrees(np.abs(np.arctan2(x * way[..., 1] - y * way[..., 0], x * way[..., 0] + y * way[..., 1])))
        )
    return np.stack(errors, -1) if errors else np.zeros((*motion.root.shape[:-2], 0))


def _straight_speed(motion: Motion, wanted: Float[np.ndarray, "t 2"]) -> Float[np.ndarray, "b"]:
    """Return the net displacement of the two seconds before each turn and before the end, over what was asked for."""
    turns = [*np.flatnonzero((np.diff(wanted, axis=0) != 0).any(-1)).tolist(), len(motion) - 1]
    span = round(2 * motion.fps)
    ways = [
        np.linalg.norm(motion.root[:, t, :2] - motion.root[:, t - span, :2], axis=-1) / 2 / np.linalg.norm(wanted[t])
        for t in turns
    ]
    return np.mean(ways, axis=0)


def state_of_health(motion: Motion, above: Motion | None = None) -> Arrays:
    """Measure what every simulated person is judged by; `above` has heights above ground that is not level."""
    above = motion if above is None else above
    return {
        "fell": metrics.fell(above, 1),
        "got_up": metrics.got_up(above, 1),
        "spin": metrics.spin_while_lying(above, 1),
        "deepest_mm": -1000 * sphere_heights(above)[..., 1:, :].min((-1, -2)),
        "bone_error_percent": metrics.bone_error_percent(motion),
        "overlap_mm": metrics.self_overlap_mm(motion)[..., 1::EVERY].astype(np.float32),
    }
