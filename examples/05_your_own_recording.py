"""A recording of your own (BVH of any rig, or AMASS npz), cleaned, and pushed.

Run: python examples/05_your_own_recording.py [FOLDER [FILE]]

Without a file, a clip that our own code makes stands for it.
"""

import sys
from pathlib import Path

from dropsim import Push, Scene, Simulator, read_motion, write
from dropsim.motion.synthetic import stepping_clip
from dropsim.render import contact_sheet
from dropsim.scene.cleaning import checked, clean, perturb, quality_of, table_of

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)
if len(sys.argv) > 2:
    file = Path(sys.argv[2])
else:
    file = out / "05_recording.bvh"
    write(stepping_clip(seconds=2.0), file)

simulator = Simulator.shipped()
prior = simulator.prior
# Joint names of known rigs are found by themselves; for others pass rig_map=read_rig_map(FILE.toml) of
# dropsim.motion.retarget.
recording = checked(read_motion(file, prior.skeleton)).resampled(prior.fps)

cleaned = clean(recording).motion
print(table_of({"before": quality_of(recording, recording), "after": quality_of(cleaned, recording)}))
write(cleaned, out / "05_cleaned.bvh")

push = Push.toward("right", newtons=250.0, start=1.0, duration=0.4)
pushed = perturb(recording, Scene(elements=(push,)), simulator, handover=push.start, seconds=2.5)
write(pushed, out / "05_pushed.bvh")
contact_sheet(
    [recording, pushed], out / "05_pushed.png", frames=8, labels=["recorded", "pushed to the right with 250 N"]
)
print(f"wrote {out / '05_cleaned.bvh'}, {out / '05_pushed.bvh'} and {out / '05_pushed.png'}")
