"""The benchmark's arithmetic and its command."""

import json
from dataclasses import replace

import pytest
import threadpoolctl

from dropsim.apps.cli import main
from dropsim.compute.jit import VARIABLE
from dropsim.research.evaluation import bench as bench_module
from dropsim.research.evaluation.bench import STAGES, Row, Timing, bench, first_run_seconds, report_of


def test_rates():
    stages = dict.fromkeys(STAGES, Timing(0.01, 0.0, 0.009))
    row = Row(4, 64, Timing(0.02, 0.001, 0.018), Timing(0.025, 0.0, 0.02), stages)
    assert (row.fps, row.world_fps) == pytest.approx((200.0, 160.0))
    numbers = report_of([row, replace(row, people=1)], {"peak_memory": 90.0}).as_json()
    assert numbers["peak_memory"] == 90.0
    assert numbers["world_fps_one"] == pytest.approx(40.0)
    assert numbers["world_fps_256"] is None  # not measured here
    assert numbers["rows"][0]["stages"]["prior"]["median"] == 0.01


def test_a_short_run_has_every_stage_and_leaves_the_threads_alone():
    with threadpoolctl.threadpool_limits(2):
        before = threadpoolctl.threadpool_info()
        found = bench("cvae", people=(1, 2), samples=(4,), seconds=0.01, first_run=False)
        assert threadpoolctl.threadpool_info() == before
    assert [(row["people"], row["samples"]) for row in found.numbers["rows"]] == [(1, 4), (2, 4)]
    for row in found.numbers["rows"]:
        assert list(row["stages"]) == ["prior", "aim", "iterate", "balance", "settle", "pose", "explain"]
        # Measured while the step runs, they fill most of it; their medians may come from other runs.
        assert sum(stage["processor"] for stage in row["stages"].values()) < 2 * row["step"]["processor"]
    assert found.numbers["peak_memory"] > 0
    assert len(found.tables["speed"].rows) == 3


def test_a_first_run_is_timed_in_a_new_process_with_an_empty_cache(monkeypatch, capsys):
    exec(bench_module.FIRST_RUN, {})
    assert len(capsys.readouterr().out.split()) == 3
    numbers = f"import os; print(1.5, len(os.listdir(os.environ[{VARIABLE!r}])), 30)"
    monkeypatch.setattr(bench_module, "FIRST_RUN", numbers)
    assert first_run_seconds() == (1.5, 0.0, 30.0)


def test_the_quick_command_writes_its_numbers(tmp_path, capsys):
    command = "bench --quick --prior cvae --seconds 0.01 --no-first-run --json"
    assert main([*command.split(), str(tmp_path / "b.json")]) == 0
    found = json.loads((tmp_path / "b.json").read_text())
    keys = {"fps_one", "fps_one_processor", "world_fps_one", "world_fps_256"}
    keys |= {"import_seconds", "compile_seconds", "peak_memory", "rows"}
    assert keys <= set(found)
    one, many = (row for row in found["rows"] if row["samples"] == 64)
    assert found["fps_one"] == pytest.approx(1 / one["step"]["median"])
    assert found["world_fps_256"] == pytest.approx(256 / many["world"]["median"])
    assert "World frames/s" in capsys.readouterr().out
