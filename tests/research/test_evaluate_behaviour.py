"""The behaviour statistics' errors, sizes and command; tests/behaviour has the statistics themselves."""

import json
import math

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.research.evaluation import behaviour
from dropsim.research.evaluation.behaviour import Behaviour, BehaviourProtocol
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.report import Statistic, resampled, share
from dropsim.research.evaluation.steering import FALLS


def test_the_error_of_a_share_is_binomial_and_not_zero_for_nobody():
    many = share("half", [True, False] * 500)
    assert many.value == 0.5
    assert many.error == pytest.approx(math.sqrt(0.25 / 1000), rel=0.01)
    # Wilson's interval of two standard errors for none of n reaches to 4 / (n + 4).
    assert share("nobody", [False] * 60).error == pytest.approx(4 / 64 / 4)
    assert math.isnan(share("nothing", []).value)


def test_the_error_of_a_mean_is_its_standard_error(rng):
    values = rng.normal(3.0, 2.0, 400)
    mean = resampled("mean", "m", values, np.mean)
    assert (mean.value, mean.people) == (values.mean(), 400)
    assert mean.error == pytest.approx(2.0 / 20, rel=0.3)
    assert mean == resampled("mean", "m", values, np.mean)


def test_sizes_are_in_proportion_and_nobody_is_simulated_for_nothing():
    protocol = BehaviourProtocol.sized(8, seed=3)
    assert (protocol.steering.people, protocol.steering.seeds, protocol.response.others) == (24, 8, 32)
    chunks = protocol.chunks(Body.of(2, "field"))
    pushes = [chunk for chunk in chunks if chunk.name.startswith("push ")]
    assert {chunk.options["start"] for chunk in pushes} == {"stand"}
    assert len({repr(chunk) for chunk in chunks}) == len(chunks)
    assert all(min(chunk.people) >= 3 for chunk in pushes)


def test_the_command_prints_and_writes_the_table(tmp_path, monkeypatch, capsys):
    rows = (
        share("walk: fell", [False] * 8, "0", "nobody touches them"),
        Statistic("jerk", math.nan, "ratio", 0, math.nan),
    )
    monkeypatch.setattr(behaviour, "evaluate_behaviour", lambda body, protocol, folder, **_: Behaviour(protocol, rows))
    assert main(["evaluate", "behaviour", "--quick", "--out", str(tmp_path), "--json", str(tmp_path / "n.json")]) == 0
    assert "| walk: fell | 0 | % |" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "n.json").read_text())
    assert numbers["protocol"]["steering"]["scenarios"] == list(FALLS)
    assert [one["value"] for one in numbers["statistics"]] == [0.0, None]
    assert {"behaviour.json", "behaviour.md"} <= {path.name for path in tmp_path.iterdir()}
