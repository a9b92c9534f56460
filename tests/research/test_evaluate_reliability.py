"""Reliability in small: random pushes and scenes go on, and damaged files are read or refused in a line."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.reliability import (
    READERS,
    Reader,
    ReliabilityOptions,
    evaluate_reliability,
    failures_of,
    fuzz,
    mutant,
    report_of,
)


def test_random_pushes_and_scenes_have_no_failures(tmp_path: Path):
    found = evaluate_reliability(Body.of(8), ReliabilityOptions(pushes=25, scenes=16, mutants=0), tmp_path)
    assert [(one.name, one.tried, one.failures) for one in found] == [("pushes", 25, 0), ("scenes", 16, 0)]
    assert [row[0] for row in report_of(found).tables["reliability"].rows] == ["what", "pushes", "scenes"]


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
    good = {"depth": [0.0], "lowest": [0.0], "bones": [0.1], "speed": [9.0], "people": [1], "seed": [7]}
    bad = {
        "": {},
        "not finite": {"speed": [np.nan]},
        "too deep": {"depth": [0.025]},
        "below the ground": {"lowest": [-0.1]},
        "broken bones": {"bones": [2.5]},
        "too fast": {"speed": [99.0]},
    }
    for name, values in bad.items():
        laws = {key: np.array(each) for key, each in (good | values).items()}
        # With its seed and the number of its people a scene that fails can be run again alone.
        assert failures_of(laws) == ([f"scene 7 of 1: {name}"] if name else [])
    # A single push may press somebody 3 cm into the ground.
    pushed = {key: np.array(each) for key, each in (good | {"depth": [0.025], "people": [0]}).items()}
    assert failures_of(pushed) == []
