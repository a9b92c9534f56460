"""The behaviour protocol's sizes and command; tests/behaviour has the statistics themselves."""

import json
import math

from dropsim.apps.cli import main
from dropsim.research.evaluation import report
from dropsim.research.evaluation.behaviour import BehaviourProtocol
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.report import Statistic, share
from dropsim.research.evaluation.steering import FALLS


def test_sizes_are_in_proportion_and_nobody_is_simulated_for_nothing():
    protocol = BehaviourProtocol.of(people=8, seed=3)
    assert (protocol.steering.people, protocol.steering.seeds, protocol.response.others) == (24, 8, 32)
    chunks = protocol.chunks(Body.of(2, "field"))
    pushes = [chunk for chunk in chunks if chunk.name.startswith("push ")]
    assert {chunk.options["start"] for chunk in pushes} == {"stand"}
    assert len({repr(chunk) for chunk in chunks}) == len(chunks)
    assert all(seed >= 3 for chunk in pushes for seed, _ in chunk.people)


def test_the_command_prints_and_writes_the_table(tmp_path, monkeypatch, capsys):
    rows = [share("walk: fell", [False] * 8, "0", "nobody touches them"), Statistic("jerk", math.nan, "ratio", 0, 0.0)]
    monkeypatch.setattr(BehaviourProtocol, "statistics", lambda self, tables: rows)
    monkeypatch.setattr(report, "run_chunks", lambda chunks, folder, **how: {})
    assert main(["evaluate", "behaviour", "--quick", "--out", str(tmp_path), "--json", str(tmp_path / "n.json")]) == 0
    assert "| walk: fell | 0 | % |" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "n.json").read_text())
    assert numbers["protocol"]["steering"]["scenarios"] == list(FALLS)
    assert [one["value"] for one in numbers["statistics"]] == [0.0, None]
    assert {"behaviour.json", "behaviour.md"} <= {path.name for path in tmp_path.iterdir()}
