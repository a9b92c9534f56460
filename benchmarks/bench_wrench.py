"""Time of the root wrench of a step by batch size and contacts, next to a bare loop over SciPy's solver in the same run."""

import time
from collections.abc import Callable

import numpy as np
import scipy.optimize

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import wrench
from dropsim.physics.nnls import nnls
from dropsim.physics.options import SimulatorOptions

CONTACTS = {4: (7, 8, 10, 11), 8: (4, 5, 7, 8, 10, 11, 20, 21)}
H = 1 / 30
NAMES = ("explain", "nnls", "+ ridge", "scipy")


def best_ms(call: Callable[[], object], budget: float = 0.4) -> float:
    """Return the least time of a call within a budget of seconds, warm [ms]."""
    call()
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def measure(batch: int, num_contacts: int) -> list[float]:
    """Return the times of fitting the contact forces of a step, and of the solver alone, ours and SciPy's [ms]."""
    rng, skeleton, options = np.random.default_rng(0), Skeleton.adult(), SimulatorOptions()
    joints = stepping_clip(4.0).joints
    frames = rng.integers(1, len(joints) - 1, batch)
    x, v = joints[frames], (joints[frames] - joints[frames - 1]) / H
    after = joints[frames + 1] + 0.002 * rng.standard_normal(x.shape)
    near = np.zeros((batch, NUM_JOINTS), dtype=np.bool_)
    near[:, CONTACTS[num_contacts]] = True
    normals, friction = np.tile([0.0, 0.0, 1.0], (batch, NUM_JOINTS, 1)), np.full(near.shape, options.friction)
    support = wrench.Support(near, normals, friction, np.zeros(x.shape), wrench.no_shares(batch, options))
    fit, forces, residual = wrench.fit_of(skeleton, options), np.empty(x.shape), np.empty((batch, 6))
    # Problems of the same size as the fits: six equations, four edges for each contact.
    F, b = rng.standard_normal((batch, 6, 4 * num_contacts)), rng.standard_normal((batch, 6))
    active = np.ones((batch, 4 * num_contacts), dtype=np.bool_)
    start = wrench.Start(x, v, np.zeros(x.shape), np.zeros(x.shape), skeleton.arrays, fit, H)
    drift = np.zeros((batch, 6))
    return [
        best_ms(lambda: wrench.explain(start, after, support, drift, forces, residual, np.empty_like(drift))),
        best_ms(lambda: nnls(F, b, active)),
        best_ms(lambda: nnls(F, b, active, ridge=options.ridge)),
        best_ms(lambda: [scipy.optimize.nnls(A, target) for A, target in zip(F, b, strict=True)]),
    ]


def main() -> None:
    """Print the table."""
    print("milliseconds for the whole batch; the ratios are to SciPy's bare loop over the same problems")
    print(f"{'batch':>6}{'contacts':>10}" + "".join(f"{name:>9}" for name in NAMES) + f"{'ratio':>8}{'+ ridge':>8}")
    for num_contacts in CONTACTS:
        for batch in (1, 64, 256, 1024):
            times = measure(batch, num_contacts)
            ratios = "".join(f"{t / times[-1]:8.2f}" for t in times[1:3])
            print(f"{batch:6}{num_contacts:10}" + "".join(f"{t:9.3f}" for t in times) + ratios)


if __name__ == "__main__":
    main()
