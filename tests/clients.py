"""Real programs that read our files, where they can be run: Khronos' glTF validator, Blender, and USD's own checks."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropsim.apps.viewer.loop import Status, Viewer
from dropsim.apps.viewer.session import Session, Shot
from dropsim.physics.step import Simulator
from dropsim.scene import Person, Scene
from dropsim.scene.files import Setup


def _validator() -> Path | None:
    """Return the npm package gltf-validator: where DROPSIM_GLTF_VALIDATOR says, or in a node_modules folder above this file."""
    given = os.environ.get("DROPSIM_GLTF_VALIDATOR")
    places = (
        [Path(given)]
        if given
        else [folder / "node_modules" / "gltf-validator" for folder in Path(__file__).resolve().parents]
    )
    return next((place for place in places if (place / "package.json").exists()), None)


def gltf_issues(path: Path) -> dict[str, Any]:
    """Return what Khronos' validator says of a GLB file."""
    folder, node = _validator(), shutil.which("node")
    if folder is None or node is None:
        pytest.skip("needs node and `npm install gltf-validator`, or its folder in DROPSIM_GLTF_VALIDATOR")
    script = (
        "const [folder, file] = process.argv.slice(-2);"
        "require(folder).validateBytes(new Uint8Array(require('fs').readFileSync(file)))"
        ".then(report => console.log(JSON.stringify(report.issues)));"
    )
    done = subprocess.run(
        [node, "-e", script, "--", str(folder.resolve()), str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


# Debian's Blender 3.4 runs on Python 3.11 and NumPy 1.24; its importers still open BVH files in the mode rU, and use
# np.bool.
LOOK = """
import bpy, builtins, json, os, sys
import numpy as np

np.bool = bool
plain_open = builtins.open
builtins.open = lambda file, mode="r", *rest, **options: plain_open(file, mode.replace("U", ""), *rest, **options)

path, action, bones, frames = json.loads(sys.argv[-1])
bpy.ops.wm.read_factory_settings(use_empty=True)
bpy.context.scene.render.fps = 30
if path.endswith(".glb"):
    bpy.ops.import_scene.gltf(filepath=path)
else:
    bpy.ops.import_anim.bvh(filepath=path, axis_forward="-Z", axis_up="Y")
rig = next(o for o in bpy.data.objects if o.type == "ARMATURE")
if action:
    rig.animation_data_create().action = next(a for a in bpy.data.actions if a.name.startswith(action))
out = []
for frame in frames:
    bpy.context.scene.frame_set(frame)
    out.append([list(rig.matrix_world @ rig.pose.bones[name].head) for name in bones])
print("FOUND" + json.dumps(out), flush=True)
os._exit(0)  # Blender as a module crashes when Python takes it down
"""


def joints_in_blender(path: Path, bones: Sequence[str], frames: Sequence[int], *, action: str = "") -> np.ndarray:
    """Import a file into Blender and return where the bones begin in some frames [m], z up."""
    python, blender = os.environ.get("DROPSIM_BLENDER_PYTHON"), shutil.which("blender")
    if python is not None:
        command = [python, "-c", LOOK]
    elif blender is not None:
        command = [blender, "--background", "--factory-startup", "--python-exit-code", "3", "--python-expr", LOOK, "--"]
    else:
        pytest.skip(
            "needs Debian's blender and python3-numpy, or in DROPSIM_BLENDER_PYTHON a Python with the module bpy"
        )
    question = json.dumps([str(path), action, list(bones), list(frames)])
    done = subprocess.run([*command, question], capture_output=True, text=True, check=False)
    if "No module named 'numpy'" in done.stderr + done.stdout:
        pytest.skip("Blender's Python has no numpy: install Debian's python3-numpy")
    assert "FOUND" in done.stdout, done.stdout + done.stderr
    return np.array(json.loads(done.stdout.partition("FOUND")[2].splitlines()[0]))


def wait_until(condition: Callable[[], object], seconds: float = 120.0, what: str = "") -> None:
    """Wait for something that another thread or program does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain {what}"
        time.sleep(0.02)


def standing(simulator: Simulator, start: str = "stand") -> Session:
    """Return a live world of somebody who stands, or does something else at the start."""
    return Session(simulator, Setup(scene=Scene((Person(start),))))


class NullViewer(Viewer):
    """A viewer without a screen that remembers frames and messages."""

    def __init__(self) -> None:
        self.shots, self.said, self.status = list[Shot](), list[str](), Status()

    def show(self, shot: Shot, status: Status) -> None:
        self.shots.append(shot)
        self.status = status

    def say(self, message: str) -> None:
        self.said.append(message)
