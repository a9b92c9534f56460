"""Reliability in small: random pushes and scenes keep the laws, and damaged files are read or refused in a line."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.research.evaluation import reliability
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.random_scenes import BELOW, DEEPEST, Laws, drawn_scenes, measure_scenes
from dropsim.research.evaluation.reliability import Reader, ReliabilityProtocol, fuzz
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
    report = ReliabilityProtocol(pushes=8, scenes=8, mutants=0).evaluate(Body.of(8), tmp_path)
    rows = [(one["name"], one["people"], one["value"]) for one in report.numbers["statistics"]]
    assert rows == [("pushes: failures", 8, 0.0), ("scenes: failures", 8, 0.0)]


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
    (one,) = ReliabilityProtocol().statistics({"scenes": laws})
    assert (one.value, one.law) == ((1.0, f"7 {fault}") if fault else (0.0, ""))


@pytest.mark.parametrize(
    "name", ["scene", "mesh obj", "bank", "pose weights", "cvae weights", "distribution", "checkpoint"]
)
def test_damaged_files_are_read_or_refused(name: str):
    # tests/files/test_hostile.py has the other readers.
    assert not fuzz(Body(), range(25), reader=name)["error"].tolist()


@pytest.mark.parametrize("error", [KeyError("no sentence"), ValueError("two\nlines")])
def test_what_is_neither_read_nor_refused_is_counted(error, monkeypatch):
    def read(path: Path) -> None:
        if path.read_bytes() != b"whole":
            raise error

    broken = Reader(".txt", read, lambda path: path.write_bytes(b"whole"))
    monkeypatch.setattr(reliability, "READERS", {"broken": broken})
    table = fuzz(Body(), range(20), reader="broken")
    assert table["failed"].sum() > 10
    (one,) = ReliabilityProtocol().statistics({"files: broken": table})
    assert one.value == table["failed"].mean()
    assert repr(error) in one.law
