"""The ready scenarios are all there, and their data fits; `tests/behaviour` says what they do."""

import re
from pathlib import Path

import numpy as np
import pytest

from dropsim.scene import Pin, Scene, run
from dropsim.scene.files import Setup, SimulatorOptions, read_scene
from dropsim.scene.scenarios import SCENARIOS, scenario

NAMES = """push push-small push-large projectiles projectiles-dodge two-people two-runners follow follow-run lead-by-hand lead-by-hand-run
trip tilt stiff-knee backflip-push slip ramp curb trip-curb wall boxes carry stairs stand-still crowd"""


def test_all_demonstrations_of_the_paper_are_there():
    assert set(SCENARIOS) == set(NAMES.split())
    for setup in SCENARIOS.values():
        assert setup.description.endswith(".")
        assert len(setup.description) < 100
        # What is to be seen happens while it lasts.
        events = [event for element in setup.scene.elements for event in element.events]
        assert all(event.start < setup.seconds or event.name.startswith("go at") for event in events)


def test_the_documentation_lists_them(tmp_path: Path):
    text = (Path(__file__).parents[2] / "docs" / "scenes.md").read_text(encoding="utf-8")
    assert all(f"| {name} | {setup.description} |" in text for name, setup in SCENARIOS.items())
    (tmp_path / "example.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    assert len(read_scene(tmp_path / "example.toml").scene.elements) == 2


@pytest.mark.parametrize("name", ["two-people", "two-runners", "crowd"])
def test_nobody_starts_inside_another(name: str):
    # A world refuses to start so.
    world = scenario(name).world()
    assert np.isfinite(world.start(list(range(20))).people.x).all()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("psuh", "did you mean push?"),
        ("two_people", "did you mean two-people?"),
        ("xyzzy", "`dropsim scenarios` lists them"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(name: str, hint: str):
    with pytest.raises(ValueError, match="there is no scenario") as error:
        scenario(name)
    assert hint in str(error.value)


def test_energies_of_a_while_are_zero_at_other_times():
    # A pin from frame 2 on for a frame: the energy is reported with the frame that it leads to.
    pin = Pin(target=(0.0, 0.0, 2.0), start=2 / 30, duration=1 / 30)
    setup = Setup(scene=Scene(elements=(pin,)), simulator=SimulatorOptions(num_samples=2))
    values = run(setup.world(), 6, 0).motions[0].energies["pin"]
    assert np.flatnonzero(values).tolist() == [3]
