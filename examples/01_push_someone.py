"""Push a walking person and save the motion as BVH, with a strip of pictures.

Run: python examples/01_push_someone.py [FOLDER]
"""

import sys
from pathlib import Path

from dropsim import Person, Push, Scene, Simulator, World, run, write
from dropsim.render import contact_sheet

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

scene = Scene((Person("walk"),), (Push.toward("left", newtons=250.0, part="torso", start=0.7),))
motion = run(World(scene, Simulator.shipped()), num_frames=90, seeds=7).motions[0]

write(motion, out / "01_pushed.bvh")
contact_sheet([motion], out / "01_pushed.png", frames=12, labels=["250 N to the left, for half a second"])
print(f"wrote {out / '01_pushed.bvh'} and {out / '01_pushed.png'}: {len(motion)} frames")
