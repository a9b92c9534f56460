"""The same scene with bodies of other sizes and weights, or with the bones of your own SMPL file.

Run: python examples/06_your_own_skeleton.py [FOLDER [SMPL_NEUTRAL.npz]]
"""

import sys
from pathlib import Path

from dropsim import CVAEPrior, Person, Push, Scene, Simulator, Skeleton, World, run
from dropsim.render import contact_sheet

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

bodies = {
    "as shipped: 1.70 m, 70 kg": Skeleton.adult(),
    "1.70 m, 100 kg": Skeleton.adult(body_mass=100.0),
    "1.70 m, 45 kg": Skeleton.adult(body_mass=45.0),
}
if len(sys.argv) > 2:
    bodies["your own SMPL file"] = Skeleton.from_smpl(sys.argv[2])

shipped = CVAEPrior.shipped()
scene = Scene((Person("walk"),), (Push.toward("left", newtons=180.0, start=0.7),))
motions = []
for skeleton in bodies.values():
    prior = CVAEPrior(shipped.network, skeleton, temperature=shipped.temperature)
    motions.append(run(World(scene, Simulator(prior)), num_frames=60, seeds=3).motions[0])
contact_sheet(motions, out / "06_bodies.png", frames=8, labels=[f"{name}: 180 N to the left" for name in bodies])
aside = [float((motion.root[0] - motion.root[-1])[0]) for motion in motions]
print(f"wrote {out / '06_bodies.png'}: moved to the side by {', '.join(f'{a:.2f} m' for a in aside)}")
