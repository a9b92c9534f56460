"""Reliability in small: random pushes and scenes keep the laws, and damaged files are read or refused in a line."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.random_scenes import BELOW, DEEPEST, Laws, drawn_scenes, measure_scenes
from dropsim.research.evaluation.reliability import (
    READERS,
    Reader,
    ReliabilityOptions,
    evaluate_reliability,
    failures_of,
    fuzz,
    mutant,
)
from dropsim.scene import Push, batch_scenes
from dropsim.scene.files import read_scene

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_scenes_have_everything():
    scenes = [setup.scene for setup, _ in drawn_scenes("chaos", range(60))]
    assert {len(scene.people) for scene in scenes} == {1, 2, 3, 4}
    kinds = {type(element).__name__ for scene in scenes for element in scene.elements}
    assert " ".join(sorted(kinds)) == "Ball Box Carry Cylinder Obstacle Patch Push Ramp Stairs Terrain Throw Trip"
    assert {scene.ground.level for scene in scenes} == {True, False}
    shoved = [setup.scene.elements[0] for setup, _ in drawn_scenes("shoves", range(200))]
    pushes = [element for element in shoved if isinstance(element, Push)]
    assert 1300 < max(np.linalg.norm(push.force) for push in pushes) <= 1500
    assert min(push.force[2] for push in pushes) < -300
    assert len({push.part for push in pushes}) > 15


def test_random_pushes_and_scenes_have_no_failures(tmp_path: Path):
    report = evaluate_reliability(Body.of(8), ReliabilityOptions(pushes=8, scenes=8, mutants=0), tmp_path)
    rows = [row[:3] for row in report.tables["reliability"].rows]
    assert rows == [["what", "tried", "failures"], ["pushes", "8", "0"], ["scenes", "8", "0"]]


def test_a_scene_has_the_same_laws_alone():
    few, alone = (measure_scenes(Body.of(2), numbers, source="chaos") for numbers in ((4, 5), (5,)))
    assert {name: values[1] for name, values in few.items()} == {name: values[0] for name, values in alone.items()}


@pytest.mark.parametrize("name", ["box_under_wrist", "shoulder_in_corner"])
def test_a_scene_that_broke_a_law_once_keeps_it(name):
    setup = read_scene(FIXTURES / f"{name}.toml")
    world, now = batch_scenes([setup.scene], Body.of(64).simulator(), [setup.seed])
    rng, states = world.streams([setup.seed]), [now]
    for _ in range(setup.num_frames(world.fps)):
        now, _ = world.step(now, rng)
        states.append(now)
    law = Laws.of(world, setup.scene, states, 0)
    assert law.depth < DEEPEST["chaos"]
    assert law.lowest > -BELOW


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, ""),
        ({"speed": [np.nan]}, "not finite"),
        ({"depth": [0.025]}, "too deep"),
        ({"depth": [0.025], "deepest": [0.03]}, ""),  # a single push may press somebody 3 cm into the ground
        ({"lowest": [-0.1]}, "below the ground"),
        ({"bones": [2.5]}, "broken bones"),
        ({"speed": [99.0]}, "too fast"),
    ],
)
def test_faults_are_seen(values, fault):
    good = {"depth": [0.0], "lowest": [0.0], "bones": [0.1], "speed": [9.0], "deepest": [0.02], "number": [7]}
    laws = {key: np.array(each) for key, each in (good | values).items()}
    # With its number a scene that fails can be run again alone.
    assert failures_of("scenes", laws) == ([f"chaos 7: {fault}"] if fault else [])


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name: str):
    counted = fuzz(name, READERS[name], 25, seed=1)
    assert counted.failures == 0, counted.examples


@pytest.mark.parametrize("error", [KeyError("no sentence"), ValueError("two\nlines")])
def test_what_is_neither_read_nor_refused_is_counted(error):
    def read(path: Path) -> None:
        if path.read_bytes() != b"whole":
            raise error

    counted = fuzz("broken", Reader(".txt", read, lambda path: path.write_bytes(b"whole")), 20)
    assert counted.failures == 20 - counted.details["read"]
    assert counted.failures > 10


def test_mutants_differ_and_come_back():
    one, other, again = (mutant(b"0123456789" * 20, np.random.default_rng(i)) for i in (0, 1, 0))
    assert one != other
    assert one == again
