"""The browser app's world, steered by a program: push, throw, tilt, and save what happened.

Run: pip install 'dropsim[view]'; python examples/10_live_without_a_browser.py [FOLDER]
"""

import sys
from pathlib import Path

from dropsim import Simulator, write
from dropsim.apps.viewer.session import Session
from dropsim.render import contact_sheet

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)

session = Session(Simulator.shipped(num_samples=32))
for frame in range(75):
    if frame == 20:
        session.push("left", 200.0)
    if frame == 50:
        session.push("front", 150.0)
    session.tick()
motion = session.recording().motions[0]
write(motion, out / "10_live.bvh")
contact_sheet([motion], out / "10_live.png", frames=8, labels=["pushed by a program"])
print(f"wrote {out / '10_live.bvh'} and {out / '10_live.png'}")
