"""The ready scenarios with many seeds: who falls, how deep people go into the floor and into themselves, and whether bones hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.trials import Body, joined, survivors
from dropsim.scene import above_ground, run
from dropsim.scene.scenarios import SCENARIOS

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
        world = setup.world(self.body.simulator().prior)

        def together(seeds: Sequence[int]) -> Motion:
            rollout = run(world, setup.num_frames(world.fps), list(seeds))
            motions = rollout.motions if setup.scene.ground.level else [above_ground(m, rollout.ground) for m in rollout.motions]
            return joined([motion.map(lambda values: values[:, None]) for motion in motions], axis=1)

        motion, finished = survivors(self.seeds, together)
        finished = np.repeat(finished, len(setup.scene.people))
        if motion is None:
            return {"finished": finished}
        return {"finished": finished, **state_of_health(motion.map(lambda values: values.reshape(-1, *values.shape[2:])))}


def state_of_health(motion: Motion) -> Arrays:
    """Measure what every simulated person is judged by."""
    return {
        "fell": metrics.fell(motion, 1),
        "got_up": metrics.got_up(motion, 1),
        "spin": metrics.spin_while_lying(motion, 1),
        "deepest_mm": -1000 * sphere_heights(motion)[..., 1:, :].min((-1, -2)),
        "bone_error_percent": metrics.bone_error_percent(motion),
        "overlap_mm": metrics.self_overlap_mm(motion)[..., 1::EVERY].astype(np.float32),
    }
