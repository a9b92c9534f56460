"""All evaluations on one page, and the tables of the documentation, which are made of the same numbers."""

import html
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dropsim.apps.cli import evaluate
from dropsim.apps.cli import main as dropsim
from dropsim.research.evaluation import summary
from dropsim.research.evaluation.behaviour import Behaviour, BehaviourProtocol, share
from dropsim.research.evaluation.paper.claims import Claim
from dropsim.research.evaluation.push import PushCell
from dropsim.research.evaluation.reliability import Counted, as_json
from dropsim.research.evaluation.report import plain
from dropsim.research.evaluation.response import ResponseCell, ResponseProtocol
from dropsim.research.evaluation.steering import Steering, SteeringProtocol

PAGE = Path(__file__).parents[2] / "docs" / "reproducing.md"
CELL = ResponseCell("full", "stand", 0.7, None, 64, 0, 0.1, 0.01, 0.9, math.nan, 1.5, 0.03)
PUSH = PushCell(
    "full", 100.0, None, None, None, None, 8, 0, 1.0, 0.0, math.nan, 0.0, 1.0, 0.5, math.nan, 0.01, 1.0, 0.1, 1.0, 0.0
)
WALK = {"asked": 1.2, "fell": 0.0, "speed": 1.08, "skate_ratio": 1.1, "jerk_ratio": 1.3}


def results():
    """Return what the parts write, as JSON has it."""
    hits = {
        "projectiles": {"people": 2, "hits": 4.0, "diverged": 0},
        "projectiles-dodge": {"people": 2, "hits": 1.0, "diverged": 0},
    }
    claims = [asdict(Claim("speed", "text", n, "at least 10", n > 10, "found")) | {"prior": p, "newtons": [150.0, 350.0]}
              for p, n in (("field", 300.0), ("cvae", 5.0))]  # fmt: skip
    bias = {"speeds": "0.2-0.8", "frames": 9, "bias": -0.5, "error": None}
    prior = {"frechet_ratio": 2.0, "speed_bias": [bias]}
    prior["activity"] = {"recorded": {"standing": 0.4}, "rolled_out": {"standing": 0.5}}
    found = {
        "behaviour": Behaviour(BehaviourProtocol.quick(), (share("walk: fell", [True, False], "0", "nobody touches them"),)).numbers(),
        "response": {"lost_max": 0.3, "pdp_fell": None, "trips": {"fell": 0.5}, "protocol": asdict(ResponseProtocol()),
                     "cells": [asdict(CELL), asdict(replace(CELL, direction=90))]},
        "steering": Steering(SteeringProtocol(), {"walk": WALK}, 12.0, hits).numbers(),
        "prior": prior,
        "paper": {"claims": claims},
        "push": {"cells": [asdict(PUSH), asdict(replace(PUSH, start="walk"))]},
        "reliability": as_json([Counted("pushes", 5, 1, {"fell": 2, "diverged": 1}, ("example",))]),
    }  # fmt: skip
    return json.loads(json.dumps(plain(found)))


@pytest.fixture
def folder(tmp_path):
    for name, found in results().items():
        path = tmp_path / summary.FILES[name]
        path.parent.mkdir()
        path.write_text(json.dumps(found))
    return tmp_path


def test_the_tables_of_the_documentation_are_those_of_its_numbers():
    text = PAGE.read_text(encoding="utf-8")
    found = json.loads(PAGE.with_name("results.json").read_text(encoding="utf-8"))
    assert text == summary.filled(text, found), "run `dropsim evaluate all --out DIR --docs docs/reproducing.md` again"
    assert all(f"<!-- table: {name} -->" in text for name in summary.TABLES)


def test_every_part_has_its_table(folder):
    page, kept = summary.write_summary(folder)
    text = page.read_text()
    assert all(html.escape(title) in text for _, title, _ in summary.TABLES.values())
    assert set(json.loads(kept.read_text())) == {*summary.FILES, "made_by"}


def test_verdicts_follow_from_the_numbers():
    found = results()
    tables = {
        name: {row[0]: list(row[1:]) for row in make(found[part])} for name, (part, _, make) in summary.TABLES.items()
    }
    # A quarter of Wilson's interval of two standard errors for one of two: sqrt(1/8 + 1/4) / 3 = 0.20.
    assert tables["behaviour"]["walk: fell"] == ["50", "%", "20", "2", "0", "nobody touches them"]
    assert tables["response"]["lost_max"][2] == "misses"
    assert tables["response"]["pdp_fell"][2] == ""
    # 1.08 of 1.2 m/s is 0.9 of it; the jerk is 1.3 times that of recordings; one of four balls hits who dodges.
    assert tables["steering"]["walk.speed_ratio"][2] == "misses"
    assert tables["steering"]["walk.skate_ratio"][2] == "holds"
    assert tables["steering"]["walk.jerk_ratio"][2] == "misses"
    assert tables["steering"]["dodged"][:3] == ["0.25", "at most 0.5", "holds"]
    assert tables["paper"]["claim"][1:] == ["field-150-350N", "cvae-150-350N"]
    assert tables["paper"]["speed"][1:] == ["300, reproduced", "5, not reproduced"]
    assert tables["reliability"]["pushes"] == ["5", "1", "2 fell, 1 diverged"]
    assert tables["prior"]["standing"] == ["50.0%", "", "", "40.0% recorded"]
    assert len(summary.TABLES["impulses"][2](found["response"])) == len(summary.TABLES["push"][2](found["push"])) == 2


def test_a_page_is_filled_and_says_what_is_missing(folder, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: steering -->\nmeasured long ago\n<!-- end -->\nafter\n")
    summary.write_summary(folder, docs=page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "long ago" not in text
    assert "64 people for 60 s" in text
    assert text == summary.filled(text, json.loads((tmp_path / "results.json").read_text()))
    assert summary.NOT_MEASURED in summary.filled(text, {})
    with pytest.raises(ValueError, match="no table 'dance'"):
        summary.filled("<!-- table: dance -->\n<!-- end -->", {})


def test_the_command_runs_every_part_once(folder, monkeypatch, capsys):
    ran = []
    for part in ("Behaviour", "Response", "Steering", "Prior", "Paper", "Push", "Reliability"):
        monkeypatch.setattr(
            getattr(evaluate, part), "run", lambda self: ran.append((type(self).__name__, self.quick, self.prior))
        )
    assert (
        dropsim(["evaluate", "all", "--out", str(folder), "--quick", "--prior", "field", "--recordings", str(folder)])
        == 0
    )
    assert ran == [
        (part, True, "field") for part in ("Behaviour", "Response", "Steering", "Prior", "Paper", "Push", "Reliability")
    ]
    assert "report.html" in capsys.readouterr().out
    ran.clear()
    assert dropsim(["evaluate", "all", "--out", str(folder)]) == 0
    assert "Prior" not in [name for name, *_ in ran]


def test_fewer_people_are_fewer_everywhere(folder, monkeypatch):
    ran = {}
    for part in ("Behaviour", "Response", "Steering", "Prior", "Paper", "Push", "Reliability"):
        monkeypatch.setattr(getattr(evaluate, part), "run", lambda self: ran.update({type(self).__name__: self}))
    assert dropsim(["evaluate", "all", "--out", str(folder), "--people", "8", "--recordings", str(folder)]) == 0
    found = (
        ran["Response"].people,
        ran["Steering"].seeds,
        ran["Prior"].simulated,
        ran["Paper"].motions,
        ran["Push"].seeds,
    )
    assert found == (8, 4, 8, 32, 1)
    assert ran["Reliability"].pushes == 1200
    assert dropsim(["evaluate", "all", "--out", str(folder), "--people", "0"]) == 2
