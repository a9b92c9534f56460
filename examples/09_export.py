"""One motion in every format: Blender, Unity and Unreal (GLB), a page for the browser (HTML), a table (CSV), AMASS (npz), BVH.

Run: pip install 'dropsim[export]'; python examples/09_export.py [FOLDER]
"""

import sys
from pathlib import Path

from dropsim import run, scenario, write
from dropsim.scene.files import changed

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

setup = changed(scenario("push"), [("seconds", "1"), ("push.start", "0.3"), ("simulator.num_samples", "16")])
world = setup.world()
motion = run(world, setup.num_frames(world.fps), seeds=setup.seed).motions[0]
for ending in ("glb", "html", "csv", "npz", "bvh"):
    path = out / f"09_push.{ending}"
    write(motion, path, seed=setup.seed)
    print(f"wrote {path}: {path.stat().st_size / 1000:.0f} kB")
