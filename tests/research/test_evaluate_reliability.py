"""Reliability in small: random pushes and scenes go on, and damaged files are read or refused in a line."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.motion.synthetic import stepping_clip
from dropsim.research.evaluation.fuzz import READERS, Reader, mutant
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.reliability import (
    ReliabilityOptions,
    evaluate_reliability,
    faults_of,
    fuzz,
    random_pushes,
    report_of,
    scene_failures,
    scene_faults,
)


def test_random_pushes_and_scenes_have_no_failures(tmp_path: Path):
    found = evaluate_reliability(Body.of(8), ReliabilityOptions(pushes=25, scenes=16, mutants=0), tmp_path)
    assert [(one.name, one.tried, one.failures) for one in found] == [("pushes", 25, 0), ("scenes", 16, 0)]
    assert [row[0] for row in report_of(found).tables["reliability"].rows] == ["what", "pushes", "scenes"]


def test_the_first_of_more_pushes_are_those_of_fewer():
    assert random_pushes(9, 3)[:4] == random_pushes(4, 3)
    assert random_pushes(4, 3) != random_pushes(4, 4)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name: str):
    found = fuzz(name, READERS[name], 40, seed=1)
    assert found.failures == 0, found.examples


def test_what_is_neither_read_nor_refused_is_found():
    def fail(path: Path) -> None:
        if path.read_bytes() != b"whole":
            raise KeyError("no sentence")

    def mumble(path: Path) -> None:
        if path.read_bytes() != b"whole":
            raise ValueError("two\nlines")

    for read in (fail, mumble):
        found = fuzz("broken", Reader(".txt", read, lambda folder: b"whole"), 20)
        assert found.failures == 20 - found.details["read"]
        assert found.failures > 10


def test_mutants_differ_and_come_back():
    one, other = (mutant(b"0123456789" * 20, np.random.default_rng(i)) for i in (0, 1))
    assert one != other
    assert mutant(b"0123456789" * 20, np.random.default_rng(0)) == one


def test_faults_are_seen():
    clip = stepping_clip(1.0)
    assert not any(bool(flag) for flag in faults_of(clip).values())
    for name, change in (("not finite", np.nan), ("through the floor", 0.5), ("too fast", 3.0)):
        joints = clip.joints.copy()
        joints[5, :, 2] -= change
        moved = clip.map(lambda values: values)
        object.__setattr__(moved, "joints", joints)
        assert bool(faults_of(moved)[name]), name


def test_faults_of_scenes_are_seen():
    good = {"finite": [True], "solid": [0.0], "loose": [0.0], "lowest": [0.0], "bones": [0.1], "speed": [9.0]}
    assert not any(
        bool(flag) for flag in scene_faults({name: np.array(values) for name, values in good.items()}).values()
    )
    bad = {
        "not finite": {"finite": [False]},
        "too deep": {"solid": [0.1]},
        "too deep in a loose object": {"loose": [0.1]},
        "below the ground": {"lowest": [-0.1]},
        "too fast": {"speed": [99.0]},
    }
    for name, values in bad.items():
        assert bool(scene_faults({key: np.array(each) for key, each in (good | values).items()})[name]), name
    # With its seed and the number of its people a scene that fails can be run again alone.
    laws = {key: np.array(2 * each) for key, each in good.items()} | {
        "seed": np.array([7, 8]),
        "people": np.array([3, 3]),
    }
    assert scene_failures(laws | {"solid": np.array([0.0, 0.1])}) == ["scene 8 of 3: too deep"]
