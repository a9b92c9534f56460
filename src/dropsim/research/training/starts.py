"""Start states of recordings, to measure with. No torch here."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.priors.prior import Prior, State

Clips = Sequence[tuple[Clip, Motion]]


def draw_frames(clips: Clips, count: int, seed: int) -> list[tuple[int, int]]:
    """Draw places to start at, clip and frame, taking turns over the categories; the same for the same seed."""
    rng = np.random.default_rng(seed)
    names = sorted({clip.category for clip, _ in clips})
    groups = [[i for i, (clip, _) in enumerate(clips) if clip.category == name] for name in names]
    chosen = [int(rng.choice(groups[i % len(groups)])) for i in range(count)]
    return [(i, int(rng.integers(1, len(clips[i][1])))) for i in chosen]


def stacked(states: Sequence[State]) -> State:
    """Put states into one batch."""
    return State(*(np.stack([getattr(s, f.name) for s in states]) for f in fields(State)))


def held_out_starts(clips: Clips, prior: Prior, count: int, seed: int) -> State:
    """Return start states spread over clips and categories, the same for the same seed."""
    return stacked([prior.start_from(clips[i][1], frame) for i, frame in draw_frames(clips, count, seed)])
