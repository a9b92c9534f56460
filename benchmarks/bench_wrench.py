"""Time of the root wrench and its parts by batch size and contacts, beside a bare loop over SciPy's solver in the same run."""

import time
from collections.abc import Callable

import scipy.optimize
import torch

from dropsim.physics.nnls import nnls
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.wrench import Contacts, WrenchOptions, root_wrench, soft_correction, wrench_problem

CONTACTS = {4: (7, 8, 10, 11), 8: (4, 5, 7, 8, 10, 11, 20, 21)}
H = 1 / 30
NAMES = ("layout", "fit", "correct", "nnls", "+ ridge", "scipy")


def best_ms(call: Callable[[], object], budget: float = 0.4) -> float:
    """Return the least time of a call within a budget of seconds [ms]."""
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def measure(batch: int, num_contacts: int) -> list[float]:
    """Return the times of laying out, fitting and correcting a step, and of the solver alone, ours and SciPy's [ms]."""
    rng = torch.Generator().manual_seed(0)
    skeleton = Skeleton.adult()
    frames = torch.randint(1, 119, (batch,), generator=rng)
    joints = stepping_clip(4.0).joints.double()
    x_t, v_t = joints[frames], (joints[frames] - joints[frames - 1]) / H
    x = joints[frames + 1] + 0.002 * torch.randn(batch, NUM_JOINTS, 3, generator=rng, dtype=torch.float64)
    touching = torch.zeros(batch, NUM_JOINTS, dtype=torch.bool)
    touching[:, CONTACTS[num_contacts]] = True
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand_as(x_t)
    contacts = Contacts.of_spheres(x_t, skeleton.radii, touching, up)
    options = WrenchOptions(threshold=0.0)

    problem = wrench_problem(x_t, v_t, contacts, masses=skeleton.masses, h=H, options=options)
    wrench = root_wrench(problem, x)
    active = touching.repeat_interleave(4, dim=-1)
    b = wrench.explained + wrench.residual
    pairs = [(F[:, mask].numpy(), target.numpy()) for F, mask, target in zip(problem.F, active, b, strict=True)]
    return [
        best_ms(lambda: wrench_problem(x_t, v_t, contacts, masses=skeleton.masses, h=H, options=options)),
        best_ms(lambda: root_wrench(problem, x)),
        best_ms(lambda: soft_correction(problem, x, wrench)),
        best_ms(lambda: nnls(problem.F, b, active)),
        best_ms(lambda: nnls(problem.F, b, active, ridge=options.ridge)),
        best_ms(lambda: [scipy.optimize.nnls(F, target) for F, target in pairs]),
    ]


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("milliseconds for the whole batch; the ratios are to SciPy's bare loop over the same problems")
    print(f"{'batch':>6}{'contacts':>10}" + "".join(f"{name:>9}" for name in NAMES) + f"{'ratio':>8}{'+ ridge':>8}")
    for num_contacts in CONTACTS:
        for batch in (1, 64, 256, 1024):
            times = measure(batch, num_contacts)
            ratios = "".join(f"{t / times[-1]:8.2f}" for t in times[3:5])
            print(f"{batch:6}{num_contacts:10}" + "".join(f"{t:9.3f}" for t in times) + ratios)


if __name__ == "__main__":
    main()
