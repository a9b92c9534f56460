"""The ablation: which settings are tried, how rows are made, and the command in small."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.research.evaluation.ablation import AblationOptions, Setting, _row, _windows, evaluate_ablation, panels
from dropsim.research.evaluation.ablation_report import table
from dropsim.research.evaluation.trials import Body
from dropsim.research.evaluation.windows import NUM_FEATURES


def test_one_setting_is_changed_at_a_time():
    first, *others = AblationOptions().settings()
    assert first.body == Body.of(64)
    # The defaults' own values are not run twice.
    assert all(setting.body != first.body for setting in others)
    assert len({setting.body for setting in others}) == len(others)
    assert {(s.name, s.value) for s in others} >= {
        ("K", 1.0),
        ("K", 256.0),
        ("iterations", 6.0),
        ("correction", 0.0),
        ("unit masses", 1.0),
    }
    assert ("K", 64.0) not in {(s.name, s.value) for s in others}


def chunk(people, *, recovered, seconds=0.01, finished=None):
    values = {
        "recovered": np.arange(people) < recovered * people, "fell": np.zeros(people, bool), "fell_unpushed": np.zeros(people, bool),
        "kinematic_before": np.full(people, 1e-6), "kinematic_recovery": np.arange(people) * 1e-6, "root_wrench": np.full((people, 9), 0.3),
        "skate": np.full(people, 0.1), "penetration_mm": np.zeros(people), "jerk": np.full(people, 50.0),
        "out_of_range_percent": np.full(people, 2.0), "features": np.random.default_rng(0).normal(size=(people, 4, NUM_FEATURES)),
    }  # fmt: skip
    return values | {
        "seconds_a_frame": np.array([seconds]),
        "finished": np.ones(people, bool) if finished is None else finished,
    }


def test_a_row_counts_over_all_chunks():
    parts = [chunk(4, recovered=1.0, finished=np.array([True] * 4 + [False])), chunk(4, recovered=0.5, seconds=0.03)]
    row = _row(Setting("K", 4.0, Body()), parts, _windows(parts))
    assert (row.people, row.diverged) == (8, 1)
    assert row.recovered == 0.75
    assert row.frames_per_second == pytest.approx(1 / 0.02)
    # Of themselves they are no distance away.
    assert row.frechet == pytest.approx(0.0, abs=1e-6)
    assert "1 people are not counted" in table([row])


def test_a_setting_that_diverges_for_everybody_is_a_row_without_numbers():
    lost = {"finished": np.zeros(3, bool), "seconds_a_frame": np.array([0.01])}
    row = _row(Setting("K", 4.0, Body()), [lost], _windows([chunk(4, recovered=1.0)]))
    assert (row.people, row.diverged) == (0, 3)
    assert np.isnan(row.recovered)


def test_the_figure_shows_the_default_among_the_values():
    options = AblationOptions()
    rows = [
        _row(setting, [chunk(2, recovered=1.0)], _windows([chunk(2, recovered=1.0)])) for setting in options.settings()
    ]
    found = panels(rows)
    assert [value for value, _ in found["K"]] == [1.0, 4.0, 16.0, 64.0, 256.0]
    assert found["K"][3][1] is rows[0]
    assert "unit masses" not in found


def test_no_samples_no_ablation():
    with pytest.raises(ValueError, match="at least 1"):
        replace(AblationOptions(), motions=0)
    assert main(["evaluate", "ablation"]) == 2


@pytest.mark.slow
def test_small_runs_show_what_a_setting_does(tmp_path, monkeypatch, capsys):
    small = AblationOptions(
        motions=2,
        num_frames=150,
        samples=(2,),
        iterations=(),
        corrections=(),
        weights=(),
        switches=("no ground reaction",),
    )
    monkeypatch.setattr(AblationOptions, "quick", classmethod(lambda cls: small))
    out = tmp_path / "out"
    assert main(["evaluate", "ablation", "--prior", "cvae", "--quick", "--workers", "1", "--out", str(out)]) == 0
    rows = {row["setting"]: row for row in json.loads((out / "ablation.json").read_text())["rows"]}
    assert set(rows) == {"default", "K", "no ground reaction"}
    # Without the ground's reaction people sink, and E_kin has to hold them up.
    assert rows["no ground reaction"]["kinematic_before"] > 5 * rows["default"]["kinematic_before"]
    # Of fewer samples the nearest is farther.
    assert rows["K"]["kinematic_before"] > rows["default"]["kinematic_before"]
    assert all(
        (out / f"ablation.{ending}").stat().st_size > 200 for ending in ("md", "csv", "json", "png", "svg", "html")
    )
    assert "frames/s a core" in capsys.readouterr().out
    assert evaluate_ablation(small, out / "chunks")[0].people == 2
