"""Take a ready scene, change it, write it to a file that people can edit, and run the file; the ball goes into the picture too.

Run: python examples/02_scene_file.py [FOLDER]
"""

import sys
from pathlib import Path

from dropsim import read_scene, run, scenario, write_scene
from dropsim.render import Stage, contact_sheet
from dropsim.scene.files import changed

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

setup = changed(
    scenario("projectiles"),
    [("throw.mass", "12 kg"), ("throw.0.speed", "30 km/h"), ("throw.0.start", "0.5"), ("seconds", "2")],
)
write_scene(setup, out / "02_balls.toml")

setup = read_scene(out / "02_balls.toml")
world = setup.world()
rollout = run(world, setup.num_frames(world.fps), seeds=setup.seed)
contact_sheet(
    [Stage(rollout.motions, objects=rollout.objects, ground=rollout.ground)],
    out / "02_balls.png",
    frames=8,
    labels=["balls of 12 kg"],
)
print(f"wrote {out / '02_balls.toml'} and {out / '02_balls.png'}")
