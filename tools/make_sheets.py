"""Make the sheets of the documentation that show people who are thrown over and get up, and people on ground that tilts.

Run: python tools/make_sheets.py
"""

from pathlib import Path

from PIL import Image

from dropsim import Person, Push, Scene, Simulator, World, run, scenario
from dropsim.apps.outputs import stage_of
from dropsim.files.atomic import atomic_path
from dropsim.physics import metrics
from dropsim.render import Stage, contact_sheet

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = 11


def thrown() -> list[Stage]:
    """Return standing people who are thrown over from four sides, from the push until they are upright again."""
    stages = []
    for side in ("front", "left", "back", "right"):
        push = Push.toward(side, newtons=450.0, part="torso", start=0.5, duration=0.5)
        world = World(Scene((Person("stand", speed=0.0),), (push,)), Simulator.shipped())
        people = run(world, 240, range(8)).motions[0]
        fell = metrics.fallen(people)
        up = [i for i in range(8) if fell[i].any() and metrics.upright(people)[i, -1]]
        stages.append(Stage((people.map(lambda values, i=up[0]: values[i]).slice(15, 210),)))
    return stages


def tilted() -> list[Stage]:
    """Return people of the scenario that tilts the ground."""
    setup = scenario("tilt")
    world = setup.world()
    return [stage_of(setup, run(world, setup.num_frames(world.fps), seed)) for seed in (0, 1)]


def main() -> None:
    """Write both sheets."""
    for name, stages in (("thrown-over", thrown()), ("tilts", tilted())):
        path = IMAGES / f"{name}.png"
        contact_sheet(stages, path, frames=COLUMNS, columns=COLUMNS)
        picture = Image.open(path)
        small = picture.resize((1400, round(1400 * picture.height / picture.width)))
        path.unlink()
        with atomic_path(IMAGES / f"{name}.webp") as temporary:
            small.save(temporary, format="WEBP", quality=80, method=6)


if __name__ == "__main__":
    main()
