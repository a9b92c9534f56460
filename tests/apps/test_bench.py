"""The benchmark's arithmetic and its command."""

import json

import pytest
import torch

from dropsim.apps.cli import main
from dropsim.body.skeleton import Skeleton
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.research.evaluation.bench import Bench, Row, Timing, bench, prior_flops


def test_the_floor_counts_every_multiplication_once():
    # prior: 402 x 8 + 8 x 8 (mean and log-variance of 4); decoder: the state's part 402 x 8 once, then for each sample 4 x 8 of the
    # latent and (8 + 4) x 78. Two operations for each.
    shape = CVAEShape(latent=4, decoder=(8,), prior=(8,), groups=2, kinematic=True)
    prior = CVAEPrior(CVAENetwork(shape), Skeleton.adult())
    once, each = 402 * 8 + 8 * 8 + 402 * 8, 4 * 8 + 12 * 78
    assert prior_flops(prior, 3, 5) == 2 * 3 * (once + 5 * each)


def test_ratios_and_rates():
    row = Row(4, 64, Timing(0.02, 0.001, 0.018), {"prior": Timing(0.01, 0.0, 0.009)}, 0.005, 1000.0)
    assert row.ratio == pytest.approx(0.018 / 0.005)
    assert row.fps == pytest.approx(200.0)
    found = Bench([row], 90.0, 1e9, None).to_json()
    assert found["sgemm_gflops"] == 90.0
    assert found["fps_one"] is None  # not measured here
    assert found["ratio_256"] is None
    assert json.loads(json.dumps(found))["rows"][0]["stages"]["prior"]["median"] == 0.01


def test_a_short_run_has_every_stage_and_leaves_the_threads_alone():
    threads = torch.get_num_threads()
    found = bench(people=(1, 2), samples=(4,), seconds=0.01)
    assert torch.get_num_threads() == threads
    assert [(r.people, r.samples) for r in found.rows] == [(1, 4), (2, 4)]
    for row in found.rows:
        assert set(row.stages) == {"prior", "projection", "inverse kinematics", "range of motion", "solve", "wrench"}
        assert row.step.processor > row.floor > 0
        assert row.memory > 0
    assert found.sgemm > 0
    assert found.table().count("\n") == 3


def test_the_quick_command_writes_its_numbers(tmp_path, capsys):
    assert main(["bench", "--quick", "--seconds", "0.01", "--json", str(tmp_path / "b.json")]) == 0
    found = json.loads((tmp_path / "b.json").read_text())
    assert {"fps_one", "ratio_one", "ratio_256", "sgemm_gflops"} <= set(found)
    one, many = found["rows"]
    assert found["fps_one"] == pytest.approx(1 / one["step"]["median"])
    assert found["ratio_256"] == pytest.approx(many["step"]["processor"] / many["floor"])
    # The floor is the least that a step can take; and 256 people are 256 times the multiplications.
    assert found["ratio_one"] > 1
    assert many["floor"] == pytest.approx(256 * one["floor"])
    assert "frames/s" in capsys.readouterr().out


def test_a_wrong_option_is_refused(tmp_path, capsys):
    assert main(["bench", "--json", str(tmp_path / "no" / "b.json")]) == 2
    assert main(["bench", "--seconds", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
