"""The benchmark's arithmetic and its command."""

import contextlib
import json
from dataclasses import replace

import pytest
import threadpoolctl

from dropsim.apps.cli import main
from dropsim.apps.cli.progress import KERNELS
from dropsim.body.skeleton import Skeleton
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.research.evaluation.bench import Bench, Row, Timing, bench, first_run_seconds, keep_history, prior_flops

MACHINE = {"sgemm_gflops": 90.0, "copy_gigabytes": 10.0}


def test_the_floor_counts_every_multiplication_once():
    # prior: 402 x 8 + 8 x 8 (mean and log-variance of 4); decoder: the state's part 402 x 8 once, then for each sample
    # 4 x 8 of the latent and (8 + 4) x 78. Two operations for each.
    shape = CVAEShape(latent=4, decoder=(8,), prior=(8,), groups=2, kinematic=True)
    prior = CVAEPrior(CVAENetwork.random(shape), Skeleton.adult())
    once, each = 402 * 8 + 8 * 8 + 402 * 8, 4 * 8 + 12 * 78
    assert prior_flops(prior, 3, 5) == 2 * 3 * (once + 5 * each)


def test_ratios_and_rates():
    stages = {"prior": Timing(0.01, 0.0, 0.009)}
    row = Row(4, 64, Timing(0.02, 0.001, 0.018), Timing(0.025, 0.0, 0.02), stages, 1000.0, 0.005)
    assert row.ratio == pytest.approx(0.018 / 0.005)
    assert (row.fps, row.world_fps) == pytest.approx((200.0, 160.0))
    found = Bench("cvae", [row, replace(row, people=1)], MACHINE).as_json()
    assert found["sgemm_gflops"] == 90.0
    assert found["world_fps_one"] == pytest.approx(40.0)
    assert found["ratio_256"] is None  # not measured here
    assert json.loads(json.dumps(found))["rows"][0]["stages"]["prior"]["median"] == 0.01
    # A prior without matrix products has no floor.
    bare = Bench("field", [replace(row, floor=None)], MACHINE)
    assert bare.as_json()["rows"][0]["ratio"] is None
    assert "floor" not in bare.table()[0]


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
        assert row.floor is not None
        assert row.step.processor > row.floor > 0
        assert row.memory > 0
    assert found.numbers["sgemm_gflops"] > 0
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
    keys = {"fps_one", "fps_one_processor", "ratio_one", "ratio_256", "world_fps_one", "world_fps_256", "sgemm_gflops"}
    keys |= {"import_seconds", "compile_seconds", "mujoco_seconds_per_second", "peak_memory", "copy_gigabytes", "rows"}
    assert keys <= set(found)
    one, many = (row for row in found["rows"] if row["samples"] == 64)
    assert found["fps_one"] == pytest.approx(1 / one["step"]["median"])
    assert found["world_fps_256"] == pytest.approx(256 / many["world"]["median"])
    assert found["ratio_256"] == pytest.approx(many["step"]["processor"] / many["floor"])
    # The floor is the least that a step can take; and 256 people are 256 times the products.
    assert found["ratio_one"] > 1
    assert many["floor"] == pytest.approx(256 * one["floor"])
    assert "World frames/s" in capsys.readouterr().out


def test_the_history_compares_with_the_machine(tmp_path):
    # Two milliseconds a person where sgemm does 90 GFLOP/s are 180 MFLOP, and where copies do 10 GB/s 20 MB.
    row = Row(4, 64, Timing(0.01, 0.0, 0.008), Timing(0.01, 0.0, 0.008), {}, 1000.0)
    entry = Bench("field", [row], MACHINE).entry()
    assert entry["megaflops"] == {"4 x 64": pytest.approx(180.0)}
    assert entry["megabytes"] == {"4 x 64": pytest.approx(20.0)}
    path = tmp_path / "history.jsonl"
    assert keep_history(path, entry) == ["4 x 64: 180.0 MFLOP a person, the first of its kind"]
    slower = entry | {"megaflops": {"4 x 64": 270.0}}
    assert keep_history(path, slower) == ["4 x 64: 270.0 MFLOP a person, 1.50 x the last 1"]
    assert keep_history(path, entry | {"prior": "cvae"}) == ["4 x 64: 180.0 MFLOP a person, the first of its kind"]
    assert len(path.read_text().splitlines()) == 3
    path.write_text("[1]\n")
    with pytest.raises(ValueError, match="is not a history"):
        keep_history(path, entry)
