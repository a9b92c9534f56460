"""Chunks of the push protocol: what became of each person, as numbers."""

from dataclasses import dataclass

import numpy as np

from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.mujoco_ragdoll import tracked
from dropsim.research.evaluation.trials import ALONE, TRACKED, Body, Trial, frames_of, prior_alone, simulate_trials
from dropsim.research.evaluation.windows import window_features

PREVIEW = 105
"""Frames from the push on of which every third is kept, to tell responses apart: 0.5 s of push and 3 s after."""
EVERY = 3


@dataclass(frozen=True)
class PushChunk(Chunk):
    """Pushed people under one method."""

    method: str
    body: Body
    trials: tuple[Trial, ...]
    num_frames: int

    @property
    def label(self) -> str:
        return f"push-{self.method}-{self.trials[0].seed:06d}"

    def run(self) -> Arrays:
        """Simulate; rows are the trials that went through, in order."""
        simulator = self.body.simulator()
        if self.method == ALONE:
            motion = prior_alone(simulator.prior, self.trials, self.num_frames)
            finished = np.asarray(np.isfinite(motion.joints).all((-1, -2, -3)))
            motion = motion.map(lambda values: values[finished])
        elif self.method == TRACKED:
            motion, finished = tracked(simulator, self.trials, self.num_frames)
        else:
            motion, finished = simulate_trials(simulator, self.trials, self.num_frames)
        if motion is None or not finished.any():
            return {"finished": finished}
        return {"finished": finished, **measured(motion, [t for t, f in zip(self.trials, finished, strict=True) if f])}


def measured(motion: Motion, trials: list[Trial]) -> Arrays:
    """Measure each person of a batch by their own push."""
    first, end = frames_of(trials, end=False), frames_of(trials, end=True)
    after = np.minimum(end + round(metrics.RECOVERY * motion.fps), len(motion))
    return {
        "recovered": metrics.recovered(motion, end),
        "fell": metrics.fell(motion, first),
        "got_up": metrics.got_up(motion, first),
        "seconds_to_recover": metrics.seconds_to_recover(motion, end),
        "steps": metrics.footfalls(motion, first) - metrics.footfalls(motion, after),
        "spin": metrics.spin_while_lying(motion, first),
        "deepest_mm": -1000 * sphere_heights(motion)[..., 1:, :].min((-1, -2)),
        "bone_error_percent": metrics.bone_error_percent(motion),
        "centre": motion.skeleton.centre_of_mass(motion.joints).astype(np.float32),
        "joints": np.stack([_preview(x, trial.first) for x, trial in zip(motion.joints, trials, strict=True)]).astype(
            np.float32
        ),
        "features": np.stack(
            [_features(motion.map(lambda v, i=i: v[i]), trial.end) for i, trial in enumerate(trials)]
        ).astype(np.float32),
    }


def _preview(joints: np.ndarray, first: int) -> np.ndarray:
    """Return every third frame from a push on; the last is repeated if there are too few."""
    return joints[np.minimum(np.arange(first, first + PREVIEW, EVERY), len(joints) - 1)]


def _features(motion: Motion, end: int) -> np.ndarray:
    """Return the windows of a second after a push's end, as many for everybody."""
    seconds = int((len(motion) - 1 - 2 * motion.fps) / motion.fps)
    start = min(end, len(motion) - 1 - round(seconds * motion.fps))
    return window_features(motion.slice(start, start + round(seconds * motion.fps) + 1))


def rows_of(arrays: Arrays) -> list[Arrays | None]:
    """Take a result apart: the numbers of each trial, or None if it diverged."""
    finished = arrays["finished"]
    named = {name: values for name, values in arrays.items() if name != "finished"}
    rows = np.cumsum(finished) - 1
    return [
        {name: np.asarray(values[row]) for name, values in named.items()} if done else None
        for row, done in zip(rows, finished, strict=True)
    ]
