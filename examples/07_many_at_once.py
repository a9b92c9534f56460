"""Sixteen people pushed at once, in one batch, and a table of the people who fell.

Run: python examples/07_many_at_once.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

from dropsim import Person, Push, Scene, Simulator, World, metrics, run

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

seeds = range(16)
simulator = Simulator.shipped(num_samples=32)
lines = ["newtons,seed,fell,moved_m"]
for newtons in (150.0, 450.0):
    scene = Scene((Person("walk"),), (Push.toward("left", newtons=newtons, start=0.3),))
    # One world for each seed; the motions have a leading dimension.
    motion = run(World(scene, simulator), num_frames=40, seeds=seeds).motions[0]
    fell = metrics.fallen(motion).any(-1)
    moved = np.linalg.norm(motion.root[:, -1] - motion.root[:, 9], axis=-1)
    lines += [f"{newtons:g},{seed},{int(fell[i])},{float(moved[i]):.3f}" for i, seed in enumerate(seeds)]
    print(f"{newtons:g} N: {int(fell.sum())} of {len(seeds)} fell within a second")
(out / "07_many.csv").write_text("\n".join(lines) + "\n")
print(f"wrote {out / '07_many.csv'}")
