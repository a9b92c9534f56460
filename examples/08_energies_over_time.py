"""The energies while somebody is pushed, drawn over time, as in the paper's figure of them.

Run: pip install 'dropsim[evaluate]'; python examples/08_energies_over_time.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

try:
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit("this example needs matplotlib: pip install 'dropsim[evaluate]'")

from dropsim import Person, Push, Scene, Simulator, World, run

plt.switch_backend("Agg")
out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

push = Push.toward("left", newtons=250.0, start=1.0)
motion = run(World(Scene((Person("walk"),), (push,)), Simulator.shipped()), num_frames=90, seeds=7).motions[0]

time = np.arange(len(motion)) / motion.fps
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(8, 6))
for name in ("kinematic", "momentum", "contact", "range_of_motion"):
    above.semilogy(time, np.maximum(motion.energies[name], 1e-8), label=name)
for wrench, name in ((motion.wrench_before, "before the correction"), (motion.wrench_after, "after it")):
    below.plot(time, wrench, label=name)
for axes, label in ((above, "energy [m$^2$]"), (below, "root wrench [body weights]")):
    axes.axvspan(push.start, push.start + push.duration, color="0.9")
    axes.set_ylabel(label)
    axes.legend(loc="upper left", fontsize="small")
below.set_xlabel("time [s]")
figure.savefig(out / "08_energies.png", dpi=100)
plt.close(figure)
print(f"wrote {out / '08_energies.png'}")
