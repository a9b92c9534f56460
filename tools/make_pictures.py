"""Make the pictures of the README, the documentation and the app's gallery: one that moves, and one for each scenario.

Run: python tools/make_pictures.py [hero | NAME ...]

Without a name, all of them, in about five minutes on one core. To be run again when the weights or the simulator
change.
"""

import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image

from dropsim import Motion, run, scenario
from dropsim.apps.outputs import stage_of
from dropsim.files.atomic import atomic_path
from dropsim.physics import metrics
from dropsim.render import Camera, Stage, Style, draw_frame, follow
from dropsim.scene.files import changed
from dropsim.scene.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
GALLERY = ROOT / "src" / "dropsim" / "assets" / "scenarios"
MOMENTS = {
    "push": 2.45, "push-small": 2.4, "push-large": 3.0, "projectiles": 2.0, "projectiles-dodge": 2.1, "two-people": 1.8, "two-runners": 0.8,
    "follow": 4.5, "follow-run": 4.4, "lead-by-hand": 3.0, "lead-by-hand-run": 2.0, "trip": 1.6, "tilt": 3.2, "stiff-knee": 2.2,
    "backflip-push": 2.0, "stairs": 2.6, "stand-still": 1.0, "crowd": 1.5,
}  # fmt: skip
"""When there is most to see [s]; other scenarios are shown in their middle."""
SIDES = {"wall": -115, "stairs": -100, "carry": -60}
"""Where the camera is if the person would hide what there is to see, counterclockwise from where the person faces
[degrees]."""
THUMBNAIL = Style(size=(320, 240))
HERO = Style(size=(600, 450))
HERO_FPS = 15.0
HERO_FROM, HERO_SECONDS = 1.0, 8.0
"""Where the picture that moves begins, and where it ends [s]."""


def stumbler() -> Motion:
    """Return the person of the scenario `push`, which the demo runs; raise if it does not stumble and walk on."""
    setup = changed(scenario("push"), [("seconds", f"{HERO_SECONDS}")])
    world = setup.world()
    motion = run(world, setup.num_frames(world.fps), setup.seed).motions[0]
    if metrics.fallen(motion).any() or float(metrics.root_speed(motion)[-30:].mean()) < 0.4:
        raise ValueError("the person of the scenario push does not walk on: choose another seed for it")
    return motion


def make_hero() -> None:
    """Write the picture that moves."""
    stage = Stage((stumbler(),)).resampled(HERO_FPS)
    cameras = follow(stage, camera=Camera(azimuth=stage.azimuth(), distance=4.2))
    frames = range(round(HERO_FROM * HERO_FPS), len(stage))
    pictures = [draw_frame(stage, i, camera=cameras[i], style=HERO) for i in frames]
    options = {"save_all": True, "append_images": pictures[1:], "duration": round(1000 / HERO_FPS), "loop": 0}
    with atomic_path(IMAGES / "stumble.webp") as temporary:
        pictures[0].save(temporary, format="WEBP", quality=70, method=4, **options)
    _say(IMAGES / "stumble.webp")


def make_thumbnail(name: str) -> None:
    """Write the picture of a scenario, for the documentation and for the app."""
    moment = MOMENTS.get(name, SCENARIOS[name].seconds / 2)
    setup = changed(SCENARIOS[name], [("seconds", str(moment + 0.1))])
    world = setup.world()
    stage = stage_of(setup, run(world, setup.num_frames(world.fps), setup.seed))
    index, side = min(round(moment * world.fps), len(stage) - 1), SIDES.get(name)
    camera = None if side is None else follow(stage, camera=Camera(azimuth=stage.azimuth(side)))[index]
    picture = draw_frame(stage, index, camera=camera, style=replace(THUMBNAIL, forces=True))
    save_picture(picture, IMAGES / f"{name}.webp")
    save_picture(picture, GALLERY / f"{name}.webp")


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a still picture."""
    with atomic_path(path) as temporary:
        picture.save(temporary, format="WEBP", quality=80, method=6)
    _say(path)


def _say(path: Path) -> None:
    print(f"wrote {path}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for one in sys.argv[1:] or ["hero", *SCENARIOS]:
        make_hero() if one == "hero" else make_thumbnail(one)
