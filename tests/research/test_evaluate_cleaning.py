"""Cleaning is judged by defects that were put in: each does what it says, and is the same in every run."""

from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.motion.bvh import write_bvh
from dropsim.motion.contacts import on_floor
from dropsim.motion.glitches import ROOT
from dropsim.motion.synthetic import stepping_clip
from dropsim.research.evaluation.cleaning import (
    DISTANCE,
    DRIFT,
    RISE,
    SKATE,
    evaluate_recording,
    recordings,
    spoil,
    table,
)

STEPS = on_floor(stepping_clip(6.0))


def spoilt(name: str):
    return spoil(name, STEPS, np.random.default_rng(3))


def test_a_drift_moves_everything_at_one_velocity():
    by = spoilt("drifting")[0].joints - STEPS.joints
    velocity = np.diff(by, axis=0) * STEPS.fps
    np.testing.assert_allclose(velocity, np.broadcast_to(velocity[0, 0], velocity.shape), atol=1e-9)
    assert DRIFT[0] <= np.linalg.norm(velocity[0, 0]) <= DRIFT[1]


def test_a_floating_person_ends_up_in_the_air():
    rise = spoilt("floating")[0].joints - STEPS.joints
    np.testing.assert_allclose(rise[-1], np.broadcast_to([0.0, 0.0, RISE], (22, 3)), atol=1e-9)
    assert not rise[0].any()


def test_glitches_change_only_their_own_frames_and_joint():
    motion, glitches = spoilt("glitches")
    assert len(glitches) == 3
    changed = np.zeros((len(STEPS), 22), dtype=bool)
    for glitch in glitches:
        if glitch.joint != ROOT:
            changed[glitch.start : glitch.stop, glitch.joint] = True
    np.testing.assert_array_equal(np.abs(motion.q - STEPS.q).max((-1, -2)) > 1e-9, changed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # By their names these are CMU's: 02 is a person on whom nothing is chosen, 07 is not, 01 climbs.
    for name in ("02_01", "07_01", "01_01"):
        write_bvh(STEPS, tmp_path / f"{name}.bvh")
    return tmp_path


def test_the_same_seed_gives_the_same_defects_in_any_company(folder: Path):
    (path,) = recordings(folder, "unseen")
    assert path.stem == "02_01"
    assert [path.stem for path in recordings(folder, "others")] == ["07_01"]
    every = evaluate_recording(path, strength="normal", spoils=("as recorded", "drifting", "glitches"), seed=1)
    (alone,) = evaluate_recording(path, strength="normal", spoils=("glitches",), seed=1)
    (other,) = evaluate_recording(path, strength="normal", spoils=("glitches",), seed=2)
    assert every[2] == alone
    assert other.before != alone.before
    assert every[1].after[SKATE] < every[1].before[SKATE]
    assert every[0].before[DISTANCE] == 0.0
    assert len(table(every)) == len(alone.before) + 2


def test_the_command_prints_the_table_or_what_is_missing(folder: Path, capsys: pytest.CaptureFixture):
    main(["evaluate", "clean", "--recordings", str(folder), "--json", str(folder / "rows.json")])
    assert "1 recordings: 02_01" in capsys.readouterr().out
    assert (folder / "rows.json").exists()
    (folder / "empty").mkdir()
    assert main(["evaluate", "clean", "--recordings", str(folder / "empty")]) == 2
    assert "holds no BVH files of CMU's unseen people" in capsys.readouterr().err
