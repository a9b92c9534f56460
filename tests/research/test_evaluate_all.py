"""All evaluations on one page, and the tables of the documentation, which are those of its results.json."""

import json
from pathlib import Path

import pytest

from dropsim.apps.cli import evaluate
from dropsim.apps.cli import main as dropsim
from dropsim.research.evaluation import report
from dropsim.research.evaluation.report import Panel, Report, Table, column_rows, share, statistic_rows
from dropsim.research.evaluation.steering import SteeringProtocol

PAGE = Path(__file__).parents[2] / "docs" / "reproducing.md"
COMMANDS = ("Behaviour", "Response", "Steering", "Prior", "Paper", "Reliability")


def small(name: str) -> Report:
    tables = {name: Table("What & who", [["a", "b"], ["1", "2"]]), "more": Table("More", [["c"], ["3"]], detail=True)}
    figures = {
        name: [Panel("curve", {"y": (1.0 * report.np.arange(3), 2.0 * report.np.arange(3))}, axes={"yscale": "log"})]
    }
    return Report(name, "Title", tables, {"x": float("nan")}, SteeringProtocol(), "64 people", 3, figures)


def test_a_report_is_the_same_in_every_file(tmp_path):
    pytest.importorskip("matplotlib")
    written = small("steering").write(tmp_path, tmp_path / "copy.json")
    assert {path.name for path in written} == {f"steering.{end}" for end in ("json", "md", "html", "png")} | {
        "copy.json"
    }
    numbers = json.loads((tmp_path / "copy.json").read_text())
    assert (tmp_path / "steering.json").read_text() == (tmp_path / "copy.json").read_text()
    assert (numbers["x"], numbers["protocol"]["people"], numbers["diverged"]) == (None, 64, 3)
    text = (tmp_path / "steering.md").read_text()
    assert "| 1 | 2 |" in text
    assert "| 3 |" in text
    assert "3 people are not counted" in text
    assert "| 3 |" not in small("steering").text()
    page = (tmp_path / "steering.html").read_text()
    assert "What &amp; who" in page
    assert page.count("data:image/png;base64,") == 1
    assert "http" not in page
    assert (tmp_path / "steering.csv").read_text().splitlines()[2] == "curve,y,1,2"


def test_rows_have_the_formats_of_their_columns():
    rows = column_rows({"name": "name", "n": "n|.1f", "none": "none|g"}, [{"name": "a", "n": 0.25}, {"name": "b"}])
    assert rows == [["name", "n"], ["a", "0.2"], ["b", ""]]
    # A quarter of Wilson's interval of two standard errors for one of two: sqrt(1/8 + 1/4) / 3 = 0.20.
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
    small("steering").write(tmp_path / "steering")
    small("response").write(tmp_path / "response")
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- table: steering -->\nlong ago\n<!-- end -->\n<!-- table: prior -->\n<!-- end -->\nafter\n"
    )
    written = report.write_summary(tmp_path, docs=page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{report.NOT_MEASURED}\n<!-- end -->\nafter\n")
    assert "long ago" not in text
    assert "64 people; dropsim" in text
    assert written == [tmp_path / "report.html", tmp_path / "results.json", tmp_path / "results.json", page]
    assert (tmp_path / "report.html").read_text().count("What &amp; who") == 2
    with pytest.raises(ValueError, match="no block"):
        report.fill_tables(page, {}, required="dance")


@pytest.fixture
def ran(monkeypatch):
    commands = {}
    for part in COMMANDS:
        monkeypatch.setattr(getattr(evaluate, part), "run", lambda self: commands.update({type(self).__name__: self}))
    return commands


def test_the_command_runs_every_part(tmp_path, ran, capsys):
    assert dropsim(["evaluate", "all", "--out", str(tmp_path), "--quick", "--recordings", str(tmp_path)]) == 0
    assert tuple(ran) == COMMANDS
    assert all(part.quick and part.prior == "field" and part.out.parent == tmp_path for part in ran.values())
    assert ran["Prior"].data == ran["Paper"].recordings == tmp_path
    assert "report.html" in capsys.readouterr().out
    ran.clear()
    assert dropsim(["evaluate", "all", "--out", str(tmp_path)]) == 0
    assert "Prior" not in ran


def test_fewer_people_are_fewer_everywhere(tmp_path, ran):
    command = ["evaluate", "all", "--out", str(tmp_path), "--recordings", str(tmp_path)]
    assert dropsim([*command, "--people", "8"]) == 0
    sizes = (ran["Response"].people, ran["Steering"].seeds, ran["Prior"].simulated, ran["Paper"].motions)
    assert (*sizes, ran["Reliability"].pushes) == (8, 4, 8, 32, 1200)
    assert dropsim([*command, "--people", "0"]) == 2
