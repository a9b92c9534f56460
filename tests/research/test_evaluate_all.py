"""Reports, all evaluations on one page, and the tables of the documentation, which are those of its results.json."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import evaluate
from dropsim.apps.cli import main as dropsim
from dropsim.research.evaluation import report
from dropsim.research.evaluation.behaviour import BehaviourProtocol
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.report import Panel, Report, Statistic, Table, resampled, share, statistic_rows
from dropsim.research.evaluation.steering import FALLS, SteeringProtocol

PAGE = Path(__file__).parents[2] / "docs" / "reproducing.md"
COMMANDS = ("Behaviour", "Response", "Steering", "Prior", "Paper", "Reliability")


def small(name: str) -> Report:
    tables = {name: Table("What & who", [["a", "b"], ["1", "2"]]), "more": Table("More", [["c"], ["3"]], detail=True)}
    curve = Panel("curve", {"y": (np.arange(3.0), 2 * np.arange(3.0))}, axes={"yscale": "log"})
    return Report(name, "Title", tables, {"x": math.nan}, SteeringProtocol(), "64 people", 3, {name: [curve]})


def test_a_report_is_the_same_in_every_file(tmp_path):
    pytest.importorskip("matplotlib")
    written = small("steering").write(tmp_path, tmp_path / "copy.json")
    assert {path.name for path in written} == {*(f"steering.{e}" for e in ("json", "md", "png")), "copy.json"}
    numbers = json.loads((tmp_path / "copy.json").read_text())
    assert (tmp_path / "steering.json").read_text() == (tmp_path / "copy.json").read_text()
    assert (numbers["x"], numbers["protocol"]["people"], numbers["diverged"]) == (None, 64, 3)
    text = (tmp_path / "steering.md").read_text()
    assert all(part in text for part in ("| 1 | 2 |", "| 3 |", "3 people are not counted"))
    assert "| 3 |" not in small("steering").text()
    assert (tmp_path / "steering.csv").read_text().splitlines()[2] == "curve,y,1,2"


def test_errors_are_binomial_or_standard_errors(rng):
    many = share("half", [True, False] * 500)
    assert (many.value, many.error) == (0.5, pytest.approx(math.sqrt(0.25 / 1000), rel=0.01))
    # Wilson's interval of two standard errors for none of n reaches to 4 / (n + 4).
    assert share("nobody", [False] * 60).error == pytest.approx(4 / 64 / 4)
    assert math.isnan(share("nothing", []).value)
    values = rng.normal(3.0, 2.0, 400)
    mean = resampled("mean", "m", values, np.mean)
    assert (mean.value, mean.people, mean.error) == (values.mean(), 400, pytest.approx(2.0 / 20, rel=0.3))
    assert mean == resampled("mean", "m", values, np.mean)
    # A quarter of Wilson's interval for one of two: sqrt(1/8 + 1/4) / 3 = 0.20.
    (_, row) = statistic_rows([share("walk: fell", [True, False], "0", "nobody touches them")])
    assert row == ["walk: fell", "50", "%", "20", "2", "0", "nobody touches them"]


def test_the_tables_of_the_documentation_are_those_of_its_numbers():
    text = PAGE.read_text(encoding="utf-8")
    results = json.loads(PAGE.with_name("results.json").read_text(encoding="utf-8"))
    assert text == report.filled(text, results), "run `dropsim evaluate all --out DIR --docs docs/reproducing.md` again"
    assert report.NOT_MEASURED not in text
    assert all(f"<!-- table: {name} -->" in text for part in results.values() for name in part["tables"])
    assert PAGE.with_name("model-card.md").read_text().count("<!-- table: prior -->") == 1


def test_a_page_is_filled_and_says_what_is_missing(tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("steering", "response"):
        small(name).write(tmp_path / name)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: steering -->\nold\n<!-- end -->\n<!-- table: prior -->\n<!-- end -->\nafter\n")
    written = report.write_summary(tmp_path, docs=page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{report.NOT_MEASURED}\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert "64 people; dropsim" in text
    assert written == [tmp_path / "report.html", tmp_path / "results.json", tmp_path / "results.json", page]
    everything = (tmp_path / "report.html").read_text()
    assert (everything.count("What &amp; who"), everything.count("data:image/png;base64,")) == (2, 2)
    assert "http" not in everything
    with pytest.raises(ValueError, match="no block"):
        report.fill_tables(page, {}, required="dance")


def test_the_command_runs_every_part_in_proportion(tmp_path, monkeypatch, capsys):
    ran = {}
    for part in COMMANDS:
        monkeypatch.setattr(getattr(evaluate, part), "run", lambda self: ran.update({type(self).__name__: self}))
    command = ["evaluate", "all", "--out", str(tmp_path)]
    assert dropsim([*command, "--quick", "--recordings", str(tmp_path), "--people", "8"]) == 0
    assert tuple(ran) == COMMANDS
    assert all(part.quick and part.prior == "field" and part.out.parent == tmp_path for part in ran.values())
    assert ran["Prior"].data == ran["Paper"].recordings == tmp_path
    assert "report.html" in capsys.readouterr().out
    sizes = (ran["Response"].people, ran["Steering"].seeds, ran["Prior"].simulated, ran["Paper"].motions)
    assert (*sizes, ran["Reliability"].pushes) == (8, 4, 8, 32, 1200)
    ran.clear()
    assert dropsim(command) == 0
    assert "Prior" not in ran
    assert dropsim([*command, "--people", "0"]) == 2


# --- the behaviour protocol: tests/behaviour has the statistics themselves


def test_behaviour_is_in_proportion_and_nobody_is_simulated_for_nothing():
    protocol = BehaviourProtocol.of(people=8, seed=3)
    assert (protocol.steering.people, protocol.steering.seeds, protocol.response.others) == (24, 8, 32)
    chunks = protocol.chunks(Body.of(2, "field"))
    pushes = [chunk for chunk in chunks if chunk.name.startswith("push ")]
    assert {chunk.options["start"] for chunk in pushes} == {"stand"}
    assert len({repr(chunk) for chunk in chunks}) == len(chunks)
    assert all(seed >= 3 for chunk in pushes for seed, _ in chunk.people)


def test_the_behaviour_command_prints_and_writes_the_table(tmp_path, monkeypatch, capsys):
    rows = [share("walk: fell", [False] * 8, "0", "nobody touches them"), Statistic("jerk", math.nan, "ratio", 0, 0.0)]
    monkeypatch.setattr(BehaviourProtocol, "statistics", lambda self, tables: rows)
    monkeypatch.setattr(report, "run_chunks", lambda chunks, folder, **how: {})
    assert (
        dropsim(["evaluate", "behaviour", "--quick", "--out", str(tmp_path), "--json", str(tmp_path / "n.json")]) == 0
    )
    assert "| walk: fell | 0 | % |" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "n.json").read_text())
    assert numbers["protocol"]["steering"]["scenarios"] == list(FALLS)
    assert [one["value"] for one in numbers["statistics"]] == [0.0, None]
