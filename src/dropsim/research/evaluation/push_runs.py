"""Chunks of the push protocol: what became of each person, as numbers."""

from dataclasses import dataclass

import numpy as np
import torch

from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.cvae import CVAEPrior
from dropsim.research.evaluation.chunks import Arrays, Chunk
from dropsim.research.evaluation.trials import Body, Trial, frames_of, prior_alone, simulate_trials
from dropsim.research.evaluation.windows import window_features

PREVIEW = 105
"""Frames from the push on whose joints are kept, of every third, to tell responses apart: 0.5 s of push and 3 s after."""
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
        """Begins the name of its file."""
        return f"push-{self.method}-{self.trials[0].seed:06d}"

    def run(self) -> Arrays:
        """Simulate; rows are the trials that went through, in order."""
        simulator = self.body.simulator()
        if self.method == ALONE:
            assert isinstance(simulator.prior, CVAEPrior)
            motion = prior_alone(simulator.prior, self.trials, self.num_frames)
            finished = motion.joints.isfinite().flatten(1).all(-1)
            motion = Motion(motion.skeleton, motion.fps, motion.root[finished], motion.q[finished], motion.joints[finished])
        else:
            motion, finished = simulate_trials(simulator, self.trials, self.num_frames)
        if motion is None or not finished.any():
            return {"finished": finished.numpy()}
        return {"finished": finished.numpy(), **measured(motion, [t for t, f in zip(self.trials, finished.tolist(), strict=True) if f])}


ALONE = "prior alone"
"""The method without a body."""


def measured(motion: Motion, trials: list[Trial]) -> Arrays:
    """Measure each person of a batch by its own push."""
    first, end = frames_of(trials, end=False), frames_of(trials, end=True)
    after = (end + round(metrics.RECOVERY * motion.fps)).clamp(max=len(motion))
    numbers = {
        "recovered": metrics.recovered(motion, end),
        "fell": metrics.fell(motion, first),
        "got_up": metrics.got_up(motion, first),
        "seconds_to_recover": metrics.seconds_to_recover(motion, end),
        "steps": metrics.footfalls(motion, first) - metrics.footfalls(motion, after),
        "spin": metrics.spin_while_lying(motion, first),
        "deepest_mm": -1000 * sphere_heights(motion)[..., 1:, :].amin((-1, -2)),
        "bone_error_percent": metrics.bone_error_percent(motion),
        "centre": motion.skeleton.centre_of_mass(motion.joints).float(),
        "joints": torch.stack([_preview(motion.joints[i], int(frame)) for i, frame in enumerate(first)]).float(),
        "features": torch.stack([_features(motion, i, int(frame)) for i, frame in enumerate(end)]).float(),
    }
    return {name: values.numpy() for name, values in numbers.items()}


def _preview(joints: torch.Tensor, first: int) -> torch.Tensor:
    """Return every third frame from a push on, the last again where there are too few."""
    at = torch.arange(first, first + PREVIEW, EVERY).clamp(max=len(joints) - 1)
    return joints[at]


def _features(motion: Motion, person: int, end: int) -> torch.Tensor:
    """Return the windows of a second after a push's end, as many for everybody."""
    seconds = int((len(motion) - 1 - 2 * motion.fps) / motion.fps)
    start = min(end, len(motion) - 1 - round(seconds * motion.fps))
    one = Motion(motion.skeleton, motion.fps, motion.root[person], motion.q[person], motion.joints[person])
    return window_features(one.slice(start, start + round(seconds * motion.fps) + 1))


def rows_of(chunk: PushChunk, arrays: Arrays) -> list[tuple[Trial, int | None]]:
    """Pair every trial with its row, or with nothing where it diverged."""
    rows = np.cumsum(arrays["finished"]) - 1
    return [(trial, int(row) if done else None) for trial, row, done in zip(chunk.trials, rows, arrays["finished"], strict=True)]
