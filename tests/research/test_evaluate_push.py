"""The push protocol in small: its counting on hand-made outcomes, and its direction on real runs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import metrics
from dropsim.research.evaluation import push
from dropsim.research.evaluation.push import Outcome, PushProtocol, evaluate_push, table
from dropsim.research.evaluation.push_report import write_push_report
from dropsim.research.evaluation.push_runs import measured, rows_of
from dropsim.research.evaluation.trials import ALONE, FULL, RAGDOLL, Body, Trial
from dropsim.research.evaluation.windows import NUM_FEATURES

SMALL = PushProtocol(
    newtons=(40.0, 900.0),
    directions=("left", "right"),
    starts=("stand",),
    moments=(0.1,),
    seeds=1,
    responses=2,
    get_up_seconds=3.0,
)


def test_the_pelvis_spins_as_it_is_turned():
    clip = stepping_clip(1.0)
    # A constant turn of 0.1 rad a frame about the vertical is 3 rad/s at 30 Hz.
    q = clip.q.copy()
    q[:, 0] = rotvec_to_rotmat(0.1 * np.arange(len(clip))[:, None] * np.array([0.0, 0.0, 1.0])) @ clip.q[:1, 0]
    np.testing.assert_allclose(metrics.pelvis_spin(replace(clip, q=q)), 3.0, rtol=0, atol=1e-6)


# --- who is pushed


def test_everything_meets_everything():
    protocol = PushProtocol(
        newtons=(100.0, 200.0),
        directions=("left", "30"),
        parts=("torso", "hand"),
        starts=("walk", "run"),
        moments=(0.5, 1.0),
        seeds=3,
        responses=2,
    )
    cases = protocol.trials()
    assert len(cases) == 2 * 2 * 2 * 2 * 2 * 3 * 2
    assert len({case for case, _ in cases}) == len(cases)
    case, trial = cases[-1]
    assert (case.newtons, case.direction, case.part, case.start, case.moment) == (200.0, "30", "hand", "run", 1.0)
    assert np.hypot(*trial.force[:2]) == pytest.approx(200.0)
    assert (trial.first, trial.end) == (30, 45)


def test_responses_share_the_state_and_nothing_else():
    people = PushProtocol(starts=("walk", "run"), seeds=2, responses=3).people()
    assert len({trial.seed for trial in people}) == len(people) == 12
    groups = {(trial.start, trial.start_seed) for trial in people}
    assert len(groups) == 4


def test_every_case_has_its_unpushed_twin():
    people = SMALL.people()
    for case, trial in SMALL.trials():
        twin = people[case.person]
        assert (twin.seed, twin.start, twin.start_seed) == (trial.seed, trial.start, trial.start_seed)
        assert twin.force == (0, 0, 0)


@pytest.mark.parametrize(
    "bad",
    [
        {"seeds": 0},
        {"newtons": ()},
        {"newtons": (-5.0,)},
        {"parts": ("tail",)},
        {"directions": ("up",)},
        {"moments": (-1.0,)},
        {"responses": 0},
        {"seed": -1},
    ],
)
def test_a_protocol_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match=r"\w"):
        replace(SMALL, **bad)


# --- counting


FEATURES = np.random.default_rng(0).normal(size=(3, NUM_FEATURES))


def outcome(
    way=0.0,
    *,
    recovered=True,
    fell=False,
    got_up=False,
    seconds=0.0,
    spin=math.nan,
    apart=0.0,
    newtons=100.0,
    case=0,
    lost=False,
):
    first, end = SMALL.trials()[case]
    centre = np.zeros((60, 3))
    centre[:, 0] = -way  # left of somebody who faces +y is -x
    numbers = {
        "recovered": recovered, "fell": fell, "got_up": got_up, "seconds_to_recover": seconds, "steps": 2, "spin": spin, "deepest_mm": 1.0,
        "bone_error_percent": 0.1, "centre": centre, "joints": np.full((35, 22, 3), apart), "features": FEATURES,
    }  # fmt: skip
    return Outcome(
        FULL, replace(first, newtons=newtons), end, None if lost else {k: np.asarray(v) for k, v in numbers.items()}
    )


CALM = [{"centre": np.zeros((60, 3)), "features": np.zeros((3, NUM_FEATURES))}] * 2


def cell(*outcomes):
    (found,) = push._cells(outcomes, FULL, ("newtons",), CALM, np.zeros((4, NUM_FEATURES)))
    return found


def test_a_cell_counts_its_people():
    found = cell(
        outcome(0.2, seconds=1.0),
        outcome(0.4, seconds=3.0),
        outcome(0.9, recovered=False, fell=True, got_up=True, seconds=math.inf, spin=4.0),
        outcome(-0.1, recovered=False, fell=True, seconds=math.inf, spin=8.0),
        outcome(lost=True),
    )
    assert (found.people, found.diverged) == (4, 1)
    assert (found.recovered, found.fell, found.got_up) == (0.5, 0.5, 0.5)
    assert found.seconds_to_recover == 2.0
    assert found.spin == 6.0
    assert found.gave_way == 0.75
    assert found.travel_m == pytest.approx(0.3)


def test_where_nobody_falls_there_is_nobody_to_get_up():
    found = cell(outcome(), outcome())
    assert math.isnan(found.got_up)
    assert math.isnan(found.spin)
    assert "nan" not in table([found])


def test_nobody_left_is_no_number():
    found = cell(outcome(lost=True))
    assert (found.people, found.diverged) == (0, 1)
    assert math.isnan(found.recovered)
    assert "could not go on" in table([found])


def test_diversity_is_among_responses_to_the_same_push():
    # Cases 0 and 1 are two responses of one person to one push, case 2 is another push.
    same, other = SMALL.trials()[0][1], SMALL.trials()[2][1]
    assert replace(same, seed=0) == replace(SMALL.trials()[1][1], seed=0) != replace(other, seed=0)
    # All joints 1 m apart along each axis: sqrt 3. The third has nobody to be compared with.
    assert cell(
        outcome(apart=0.0), outcome(apart=1.0, case=1), outcome(apart=50.0, case=2)
    ).diversity_m == pytest.approx(math.sqrt(3))
    assert math.isnan(cell(outcome()).diversity_m)


def test_rows_are_those_who_went_through():
    rows = rows_of({"finished": np.array([True, False, True]), "steps": np.array([2, 5])})
    assert rows == [{"steps": 2}, None, {"steps": 5}]


def test_everybody_is_measured_by_their_own_push():
    clip = stepping_clip(6.0)
    joints = clip.joints.copy()
    joints[40:50, :, 2] -= 0.8  # down for a while
    both = Motion(clip.skeleton, clip.fps, joints[:, 0], clip.q, joints).map(lambda values: np.stack([values, values]))
    found = measured(both, [Trial("walk", 0, first=20), Trial("walk", 1, first=60)])
    assert found["fell"].tolist() == [True, False]
    assert found["got_up"].tolist() == [True, False]
    assert found["joints"].shape == (2, 35, 22, 3)
    np.testing.assert_allclose(found["joints"][1, 0], joints[60], atol=1e-6)


# --- real runs


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return evaluate_push(Body.of(8), SMALL, tmp_path_factory.mktemp("chunks"))


def test_a_hard_push_moves_more_than_a_soft_one(report):
    soft, hard = report.grouped("newtons")
    assert soft.people == hard.people == 4
    assert soft.diverged == hard.diverged == 0
    assert hard.gave_way == 1.0
    assert hard.travel_m > 0.2 > soft.travel_m
    assert soft.fell <= hard.fell
    # Never through the floor, and bones keep their length.
    assert max(soft.deepest_mm, hard.deepest_mm) < 20
    assert max(soft.bone_error_percent, hard.bone_error_percent) < 1


def test_a_ragdoll_falls_whatever_the_push_and_the_prior_alone_never_does(report):
    assert all(cell.fell == 1.0 and cell.recovered == 0.0 for cell in report.grouped("newtons", method=RAGDOLL))
    # Nothing knocks over what has no body: that is why a prior alone is no model of a push.
    assert all(cell.fell == 0.0 for cell in report.grouped("newtons", method=ALONE))


def test_groups_add_up(report):
    assert len(report.grouped("newtons", "direction")) == 4
    assert sum(cell.people for cell in report.grouped("newtons", "direction")) == sum(
        cell.people for cell in report.grouped("newtons")
    )
    assert len(report.outcomes) == 3 * len(SMALL.trials())


def test_the_report_has_its_tables_and_figures(report, tmp_path):
    paths = write_push_report(report, tmp_path)
    assert all(path.stat().st_size > 500 for path in paths)
    assert (tmp_path / "directions.svg").exists()
    rows = (tmp_path / "trials.csv").read_text().strip().split("\n")
    assert len(rows) == 1 + len(report.outcomes)
    assert "nan" not in (tmp_path / "push.md").read_text()
    assert (tmp_path / "push.html").read_text().count("data:image/png;base64,") == 2


def test_the_table_has_a_row_for_every_cell(report):
    rows = table(report.grouped("newtons", "direction")).strip().split("\n")
    assert len(rows) == 6
    assert all(row.count("|") == rows[0].count("|") for row in rows)


def test_the_command_writes_numbers(tmp_path, capsys):
    out = tmp_path / "push.json"
    few = [
        "--seeds",
        "1",
        "--responses",
        "1",
        "--newtons",
        "100",
        "--directions",
        "left",
        "--starts",
        "stand",
        "--moments",
        "0.1",
    ]
    assert main(["evaluate", "push", "--quick", "--samples", "2", "--workers", "1", *few, "--json", str(out)]) == 0
    numbers = json.loads(out.read_text())
    assert {cell["method"] for cell in numbers} == {"full", "prior alone", "ragdoll"}
    assert all(0 <= cell["recovered"] <= 1 and math.isfinite(cell["travel_m"]) for cell in numbers)
    assert "gave way" in capsys.readouterr().out


def test_bad_input_is_a_sentence(capsys):
    assert main(["evaluate", "push", "--seeds", "0"]) == 2
    assert main(["evaluate", "push", "--newtons", "-5"]) == 2
    assert main(["evaluate", "push", "--parts", "tail"]) == 2
    assert main(["evaluate", "push", "--samples", "0"]) == 2
    assert main(["evaluate", "prior"]) == 2
    assert "--data" in capsys.readouterr().err
    # An option of another evaluation, silently dropped, would look as if it had been measured.
    assert main(["evaluate", "push", "--rollouts", "8"]) == 2
