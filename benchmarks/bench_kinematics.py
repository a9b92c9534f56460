"""Frames a second of batched forward and swing-twist inverse kinematics on one core, in both precisions."""

import time
from collections.abc import Callable

import torch

from dropsim.body.skeleton import Skeleton
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
    torch.set_num_threads(1)
    clip, rng = stepping_clip(4.0), torch.Generator().manual_seed(0)
    print("| frames at a time | precision | forward [frames/s] | inverse [frames/s] |")
    print("|---|---|---|---|")
    for dtype in (torch.float32, torch.float64):
        skeleton = Skeleton.adult().to(dtype)
        for batch in BATCHES:
            frames, others = torch.randint(len(clip), (2, batch), generator=rng)
            q, root, joints, twists = (v.to(dtype) for v in (clip.q[frames], clip.root[frames], clip.joints[frames], clip.q[others]))
            forward = batch / best_seconds(lambda s=skeleton, q=q, root=root: s.forward(q, root))
            inverse = batch / best_seconds(lambda s=skeleton, joints=joints, twists=twists: s.inverse(joints, twist_from=twists))
            print(f"| {batch} | {str(dtype).removeprefix('torch.')} | {forward:,.0f} | {inverse:,.0f} |")


if __name__ == "__main__":
    main()
