"""Frames a second of batched forward and swing-twist inverse kinematics on one core."""

import time
from collections.abc import Callable

import numpy as np

from dropsim.body.skeleton import Skeleton
from dropsim.files.tables import markdown
from dropsim.motion.synthetic import stepping_clip

BATCHES = (1, 100, 10_000)


def best_seconds(call: Callable[[], object], budget: float = 0.5) -> float:
    """Return the least time of a call within a budget, warm [s]."""
    call()
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print a table."""
    clip, rng, skeleton = stepping_clip(4.0), np.random.default_rng(0), Skeleton.adult()
    rows = [("frames at a time", "forward [frames/s]", "inverse [frames/s]")]
    for batch in BATCHES:
        frames, others = rng.integers(len(clip), size=(2, batch))
        q, root, joints, twists = clip.q[frames], clip.root[frames], clip.joints[frames], clip.q[others]
        forward = batch / best_seconds(lambda q=q, root=root: skeleton.forward(q, root))
        inverse = batch / best_seconds(lambda joints=joints, twists=twists: skeleton.inverse(joints, twist_from=twists))
        rows.append((str(batch), f"{forward:,.0f}", f"{inverse:,.0f}"))
    print(markdown(rows))


if __name__ == "__main__":
    main()
