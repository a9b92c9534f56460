"""The browser app's world, driven by a program: walk, turn, be pushed, go to a place; and save what happened.

Run: python examples/10_live_without_a_browser.py [FOLDER]
"""

import sys
from pathlib import Path

from dropsim import Simulator, write
from dropsim.apps.viewer.commands import do
from dropsim.apps.viewer.session import Session
from dropsim.priors.named import open_prior
from dropsim.render import contact_sheet

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

session = Session(Simulator(open_prior("field")))
do(session, "walk", speed=1.3, degrees=0.0)
for frame in range(150):
    if frame == 40:
        do(session, "walk", speed=1.3, degrees=90.0)
    if frame == 70:
        do(session, "push", "left", 150.0)
    if frame == 100:
        do(session, "go_to", x=0.0, y=0.0)
    session.tick()
motion = session.recording().motions[0]
write(motion, out / "10_live.bvh")
contact_sheet([motion], out / "10_live.png", frames=8, labels=["steered and pushed by a program"])
print(f"wrote {out / '10_live.bvh'} and {out / '10_live.png'}")
