"""The benchmark's arithmetic and its command."""

import contextlib
import json
from dataclasses import replace

import pytest
import threadpoolctl

from dropsim.apps.cli import main
from dropsim.apps.cli.progress import KERNELS
from dropsim.research.evaluation.bench import Bench, Row, Timing, bench, first_run_seconds


def test_rates():
    stages = {"prior": Timing(0.01, 0.0, 0.009)}
    row = Row(4, 64, Timing(0.02, 0.001, 0.018), Timing(0.025, 0.0, 0.02), stages)
    assert (row.fps, row.world_fps) == pytest.approx((200.0, 160.0))
    numbers = Bench("cvae", [row, replace(row, people=1)], {"peak_memory": 90.0}).as_json()
    assert numbers["peak_memory"] == 90.0
    assert numbers["world_fps_one"] == pytest.approx(40.0)
    assert numbers["world_fps_256"] is None  # not measured here
    assert json.loads(json.dumps(numbers))["rows"][0]["stages"]["prior"]["median"] == 0.01


def test_a_short_run_has_every_stage_and_leaves_the_threads_alone():
    with threadpoolctl.threadpool_limits(2):
        before = threadpoolctl.threadpool_info()
        found = bench("cvae", people=(1, 2), samples=(4,), seconds=0.01, first_run=False)
        assert threadpoolctl.threadpool_info() == before
    assert [(r.people, r.samples) for r in found.rows] == [(1, 4), (2, 4)]
    for row in found.rows:
        assert list(row.stages) == ["prior", "aim", "iterate", "balance", "settle", "pose", "explain"]
        # Measured while the step runs, they fill most of it; their medians may come from other runs.
        assert sum(stage.processor for stage in row.stages.values()) < 2 * row.step.processor
    assert found.numbers["peak_memory"] > 0
    assert len(found.table()) == 3


@pytest.mark.slow
def test_a_first_run_compiles_in_a_cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryDirectory", lambda: contextlib.nullcontext(str(tmp_path)))
    imports, compilation, processor = first_run_seconds()
    assert 0 < imports < compilation
    assert 0 < processor < 1.1 * compilation
    # What the progress of a first run counts up to.
    assert sum(1 for _ in tmp_path.rglob("*.nbi")) == pytest.approx(KERNELS, rel=0.2)


def test_the_quick_command_writes_its_numbers(tmp_path, capsys):
    command = "bench --quick --prior cvae --seconds 0.01 --no-first-run --json"
    assert main([*command.split(), str(tmp_path / "b.json")]) == 0
    found = json.loads((tmp_path / "b.json").read_text())
    keys = {"fps_one", "fps_one_processor", "world_fps_one", "world_fps_256"}
    keys |= {"import_seconds", "compile_seconds", "mujoco_seconds_per_second", "peak_memory", "rows"}
    assert keys <= set(found)
    one, many = (row for row in found["rows"] if row["samples"] == 64)
    assert found["fps_one"] == pytest.approx(1 / one["step"]["median"])
    assert found["world_fps_256"] == pytest.approx(256 / many["world"]["median"])
    assert "World frames/s" in capsys.readouterr().out
