"""What is simulated for the paper's claims, chunk by chunk."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dropsim.body.skeleton import joint_index
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.trials import Body, Trial, all_energies, simulate_trials, survivors
from dropsim.scene import Drag, Follow, run
from dropsim.scene.files import Setup
from dropsim.scene.scenarios import scenario


@dataclass(frozen=True)
class EnergyChunk(Chunk):
    """Pushed people, and their energies and root wrenches in every frame."""

    name: str
    body: Body
    trials: tuple[Trial, ...]
    num_frames: int
    keep_motion: bool = False
    """Whether the motions themselves are kept too."""

    @property
    def label(self) -> str:
        return f"{self.name}-{self.trials[0].seed:06d}"

    def run(self) -> Arrays:
        """Simulate; rows are the trials that went through, in order."""
        motion, finished = simulate_trials(self.body.simulator(), self.trials, self.num_frames)
        if motion is None:
            return {"finished": finished}
        assert motion.wrench_before is not None
        assert motion.wrench_after is not None
        arrays = {f"energy_{name}": values for name, values in all_energies(motion).items()} | {
            "finished": finished,
            "wrench_before": motion.wrench_before,
            "wrench_after": motion.wrench_after,
            "upright": metrics.upright(motion),
            "fallen": metrics.fallen(motion),
        }
        kept = KEPT if self.keep_motion else ()
        return arrays | {f"motion_{name}": getattr(motion, name).astype(np.float32) for name in kept}


KEPT = ("root", "q", "joints", "external_forces", "contact_forces")
"""What is kept of a motion."""


@dataclass(frozen=True)
class FollowChunk(Chunk):
    """People who follow a path, by themselves or led by the hand: where they were, and where they should have been."""

    scenario: str
    seeds: tuple[int, ...]
    body: Body
    seconds: float
    """How long [s]."""
    rollouts: int
    """That the planner looks ahead over."""

    @property
    def label(self) -> str:
        return f"{self.scenario}-{self.seeds[0]:06d}"

    def run(self) -> Arrays:
        """Simulate; rows are the seeds that went through, in order."""
        setup = scenario(self.scenario)
        scene = replace(setup.scene, planner=replace(setup.scene.planner, num_rollouts=self.rollouts))
        setup = replace(setup, scene=scene, seconds=self.seconds, simulator=self.body.options)
        world = setup.world(self.body.simulator().prior)
        frames = setup.num_frames(world.fps)
        motion, finished = survivors(self.seeds, lambda seeds: run(world, frames, seeds).motions[0])
        arrays: Arrays = {"finished": finished, "wanted": _wanted_velocity(setup, frames, world.fps)}
        if motion is None:
            return arrays
        found = {"root": motion.root[..., :2], "upright": metrics.upright(motion)}
        drags = [element for element in setup.scene.elements if isinstance(element, Drag)]
        return arrays | found | ({"hand_gap": _gap(motion, drags[0])} if drags else {})


def _wanted_velocity(setup: Setup, frames: int, fps: float) -> np.ndarray:
    """Return the velocity that is asked for in every frame [m/s]."""
    (follow,) = (element for element in setup.scene.elements if isinstance(element, Follow))
    return np.array([follow.velocity_at(i / fps) for i in range(frames)])


def _gap(motion: Motion, drag: Drag) -> np.ndarray:
    """Return how far the led joint is from its target in every frame [m]."""
    joint = motion.joints[..., joint_index(drag.joint), :]
    origin = joint[..., :1, :] if drag.relative else 0.0
    targets = np.stack([drag.target(i / motion.fps) for i in range(len(motion))])
    return np.linalg.norm(joint - origin - targets, axis=-1)


def merged(chunks: Sequence[Arrays]) -> Arrays:
    """Put the rows of several chunks into one; a chunk in which everybody diverged adds none."""
    whole = [chunk for chunk in chunks if "upright" in chunk]
    if not whole:
        raise ValueError("every simulated person diverged: nothing can be measured with these weights")
    arrays = {
        name: np.concatenate([chunk[name] for chunk in (chunks if name == "finished" else whole)]) for name in whole[0]
    }
    # What is asked for is the same for everybody.
    return arrays | {name: whole[0][name] for name in ("wanted",) if name in whole[0]}
