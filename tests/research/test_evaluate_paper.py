"""The paper's claims: their counting on curves made by hand, and their direction in the command's quick version."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.motion.amass import write_amass
from dropsim.motion.clips import Clip
from dropsim.motion.synthetic import stepping_clip
from dropsim.research.evaluation import claims, paper
from dropsim.research.evaluation.claims import measure_recordings
from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.paper import PaperOptions, Trial, push_toward, random_trials

T = 240


def energies(people=4, *, kinematic=None, **others):
    """Return energies; each is given before the push, during it, in the second after, in recovery and at the end."""
    names = ("kinematic", "kinematic_mode", "momentum", "contact", "range_of_motion", "rigidity", "physics")
    levels = dict.fromkeys(names, (1.0,) * 5) | ({} if kinematic is None else {"kinematic": kinematic}) | others
    curves = {}
    for name, (before, during, stepping, recovery, end) in levels.items():
        curve = np.full(T, before, dtype=float)
        curve[63:79], curve[79:109], curve[109:180], curve[180:] = during, stepping, recovery, end
        curves[f"energy_{name}"] = np.tile(curve, (people, 1))
    flags = {
        "fallen": np.zeros((people, T), bool),
        "upright": np.ones((people, T), bool),
        "finished": np.ones(people, bool),
    }
    return curves | flags


CALM = energies()


@pytest.mark.parametrize(
    ("end", "upright", "number", "reproduced"),
    [
        ({}, True, 1.2, True),
        ({"kinematic": 1.3}, True, 1.3, False),
        ({"physics": 2.0}, True, 2.0, False),  # every energy has to return
        ({}, False, 1.2, False),  # so do those of people who lie
    ],
)
def test_energies_that_come_back_are_back(end, upright, number, reproduced):
    people = energies(5, kinematic=(1, 100, 50, 5, 1.2))
    for name, value in end.items():
        people[f"energy_{name}"][:, 180:] = value
    people["upright"][:, -1] = upright
    people["energy_kinematic"][0] = 1e6  # one wild person does not move a median
    back = claims.back_to_level(people)
    assert back.number == pytest.approx(number)
    assert back.reproduced is reproduced


def test_the_manifold_is_held_against_the_mode_of_the_same_frames_and_alone():
    full = energies(kinematic=(1, 10, 10, 0.6, 1), kinematic_mode=(1, 10, 10, 1.0, 1))
    full["energy_kinematic"][:, 100:150], full["energy_kinematic_mode"][:, 100:150] = 0.6, 1.0
    assert claims.manifold(full, CALM).number == pytest.approx(0.4)
    assert claims.manifold(full, CALM).reproduced
    # Samples that scatter are near to anything; people with the mode alone are as near.
    assert claims.manifold(full, energies(kinematic=(0.6,) * 5)).reproduced is False
    full["energy_kinematic"][:, 100:150] = 0.8
    assert claims.manifold(full, CALM).reproduced is False


@pytest.mark.parametrize(
    ("kinematic", "physics", "number", "reproduced"), [(6, 7, 6, True), (6, 4, 4, False), (0.5, 9, 0.5, False)]
)
def test_both_energies_have_to_be_worse_without_contact(kinematic, physics, number, reproduced):
    found = claims.ablation(CALM, energies(kinematic=(1, 1, 1, 1, kinematic), physics=(1, 1, 1, 1, physics)))
    assert found.number == pytest.approx(number)
    assert found.reproduced is reproduced


def test_walks_rise_and_return():
    walk = energies(5, kinematic=(1, 9, 9, 3, 1), momentum=(1, 9, 5, 1, 1), range_of_motion=(0, 1, 1, 0, 0))
    assert claims.pushed_walk(walk).reproduced
    # Where the pose never leaves its range, that part of the claim does not hold.
    assert claims.pushed_walk(walk | {"energy_range_of_motion": 0 * walk["energy_momentum"]}).reproduced is False
    for name in claims.RETURNING:
        away = walk | {f"energy_{name}": walk[f"energy_{name}"].copy()}
        away[f"energy_{name}"][:3, 180:] = 50.0
        assert claims.pushed_walk(away).reproduced is False
        # Those who fall are another story.
        fallen = walk["fallen"].copy()
        fallen[:3, 100] = True
        assert claims.pushed_walk(away | {"fallen": fallen}).reproduced
    assert claims.pushed_walk(walk | {"fallen": np.ones((5, T), bool)}).reproduced is False


def recorded(like=1.0, **sizes):
    wave = 1 + np.sin(np.arange(200))
    return {kind: [size * np.stack((wave, wave if like == 1.0 else wave[::-1]))] for kind, size in sizes.items()}


def test_wrenches_are_held_against_recordings():
    assert claims.recorded_wrench(recorded(run=0.5, jump=0.5)).reproduced
    assert claims.recorded_wrench(recorded(run=0.5, jump=0.01)).reproduced is False
    assert claims.recorded_wrench(recorded(like=0.0, run=0.5)).reproduced is False
    after, before, lower = ({"wrench": np.full((4, T), size)} for size in (0.8, 3.0, 0.5))
    assert claims.corrected_wrench(after, before, recorded(run=0.5)).reproduced  # the wave goes up to 1
    assert claims.corrected_wrench(after, before, recorded(run=0.2, jump=9.0)).reproduced is False
    assert claims.corrected_wrench(after, lower, recorded(run=0.5)).reproduced is False  # it made them worse
    for claim in (claims.recorded_wrench({}), claims.corrected_wrench(after, before, {})):
        assert (claim.reproduced, claim.number, claim.verdict) == (None, None, "not run")
        assert "--recordings" in claim.finding


def followers(speed, wanted=1.2, hand=None):
    frames = 240
    way = np.tile([0.0, wanted], (frames, 1))
    way[120:] = [-wanted, 0.0]
    # Two thirds of a second late in every turn, as people are.
    late = np.concatenate((np.zeros((20, 2)), way[:-20])) * speed / wanted
    root = np.tile(np.cumsum(late / 30.0, axis=0), (4, 1, 1))
    people = {"wanted": way[None], "root": root, "fallen": np.zeros((4, frames), bool), "finished": np.ones(4, bool)}
    return people if hand is None else people | {"hand_gap": np.full((4, frames), hand)}


def test_followers_have_to_keep_up_stay_up_and_keep_the_hand():
    speeds, wanted = claims.speeds_along(followers(1.1))
    assert wanted == pytest.approx(1.2)
    assert speeds == pytest.approx([1.1] * 4)
    tables = {
        "follow": followers(1.2),
        "follow-run": followers(2.5, 2.5),
        "lead-by-hand": followers(1.2, hand=0.2),
        "lead-by-hand-run": followers(2.5, 2.5, hand=0.7),
    }
    assert claims.following(tables).reproduced
    assert "hand 0.20 m off" in claims.following(tables).finding
    assert claims.following(tables | {"follow": followers(0.9)}).reproduced is False
    assert claims.following(tables | {"lead-by-hand": followers(1.2, hand=0.4)}).reproduced is False
    tables["follow"]["fallen"][:2, 30] = True
    assert claims.following(tables).number == pytest.approx(0.5)
    assert claims.following(tables).reproduced is False


def test_the_prior_agrees_with_physics_in_ordinary_motion():
    pushed = energies(kinematic=(1, 100, 50, 1, 1), physics=(1, 100, 50, 1, 1))
    assert claims.agreement(pushed, energies(kinematic=(0.5,) * 5)).number == pytest.approx(2.0)
    assert claims.agreement(pushed, energies(kinematic=(0.5,) * 5)).reproduced
    assert claims.agreement(pushed, energies(kinematic=(0.05,) * 5)).reproduced is False  # not of one size
    assert claims.agreement(CALM, CALM).reproduced is False  # not small


def test_nothing_is_reproduced_by_people_who_fall_before_the_push():
    walk = energies(kinematic=(1, 9, 9, 3, 1), momentum=(1, 9, 5, 1, 1), range_of_motion=(0, 1, 1, 0, 0))
    tables = dict.fromkeys(("full", "walk", "longer", "calm", "mean", "ablated"), walk)
    tables |= {name: {"wrench": np.full((4, T), size)} for name, size in (("run", 0.5), ("run-uncorrected", 1.0))}
    tables |= {name: followers(1.2, hand=0.2 if reach else None) for name, reach in claims.FOLLOWS.items()}
    judged = claims.judge(tables, recorded(run=0.5), 9.0)
    assert judged["back-to-level"].reproduced
    assert judged["speed"].reproduced is False
    fallen = walk | {"fallen": np.ones((4, T), bool)}
    judged = claims.judge(tables | {"full": fallen}, recorded(run=0.5), 100.0)
    still = {name for name, claim in judged.items() if claim.reproduced}
    assert still == {"recorded-wrench", "following", "speed"}
    assert "100% fall before they are pushed" in judged["back-to-level"].finding


# --- plan and recordings


def test_fewer_motions_are_the_first_of_more():
    assert random_trials(3, 5) == random_trials(9, 5)[:3]
    assert random_trials(3, 5) != random_trials(3, 6)
    assert all(300 <= np.hypot(*trial.push.force[:2]) <= 700 for trial in random_trials(50, 0))
    assert all(10 <= np.hypot(*trial.push.force[:2]) <= 20 for trial in random_trials(50, 0, (10.0, 20.0)))


def test_a_push_acts_in_the_papers_frames(monkeypatch):
    motions = []
    monkeypatch.setattr(paper, "all_energies", lambda motion: motions.append(motion) or {})
    trials = [Trial(1, "stand", push_toward(degrees, 300.0)) for degrees in (90.0, 270.0)]
    numbers = paper.measure_energies(Body.of(2), trials, num_frames=85, get_up=False)
    assert numbers["finished"].all()
    forces = motions[0].external_forces.sum(-2)
    # A frame has the force of the step that led to it.
    assert np.flatnonzero(np.abs(forces).max((0, 2)) > 1).tolist() == list(range(64, 79))
    np.testing.assert_allclose(forces[:, 70], [[-300.0, 0.0, 0.0], [300.0, 0.0, 0.0]], atol=1e-6)
    moved = motions[0].root[:, -1, 0] - motions[0].root[:, 0, 0]
    assert moved[0] < -0.02 < 0.02 < moved[1]


def people(options):
    tables = {}
    for chunk in options.chunks(Body.of(options.num_samples, options.prior, method=options.method)):
        tables.setdefault(chunk.name, []).extend(chunk.people)
    return tables


def test_the_plan_has_every_motion_in_every_form():
    options = PaperOptions(motions=60, longer=30, method="paper")
    counts = {name: len(trials) for name, trials in people(options).items()}
    assert counts | {"full": 60, "calm": 60, "ablated": 60, "mean": 60, "longer": 30, "walk": 8, "follow": 8} == counts
    assert all(trial.push.force == (0, 0, 0) for trial in people(options)["calm"])
    chunks = options.chunks(Body.of(4, method="paper"))
    assert len({repr(chunk) for chunk in chunks}) == len(chunks)
    assert not any(chunk.body.options.settle for chunk in chunks)
    assert [chunk.options["get_up"] for chunk in chunks if chunk.name == "longer"] == [False, False]
    assert options.name == "field-paper-300-700N"


@pytest.mark.parametrize("bad", [{"motions": 0}, {"newtons": (20.0, 10.0)}])
def test_a_plan_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match=r"at least|whole number"):
        replace(PaperOptions(), **bad)


@pytest.fixture
def recordings(tmp_path):
    clip, rows = stepping_clip(1.0), []
    for name in ("run", "jump", "walk"):
        write_amass(clip, tmp_path / "recordings" / "clips" / f"{name}_01.npz")
        rows.append(asdict(Clip(f"{name}_01", "01", name, len(clip))))
    (tmp_path / "recordings" / "index.json").write_text(json.dumps(rows))
    return tmp_path / "recordings"


def test_runs_and_jumps_are_measured(recordings, tmp_path):
    shapes = {kind: [curves.shape for curves in some] for kind, some in measure_recordings(recordings).items()}
    assert shapes == {"run": [(2, 28)], "jump": [(2, 28)]}
    with pytest.raises(ValueError, match="is not a data set"):
        measure_recordings(tmp_path / "nowhere")
    (recordings / "index.json").write_text(json.dumps([asdict(Clip("walk_01", "01", "walk", 30))]))
    with pytest.raises(ValueError, match="holds no running or jumping"):
        measure_recordings(recordings)


# --- the command


@pytest.mark.slow
def test_the_quick_version_shows_the_direction_of_the_claims(recordings, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(PaperOptions, "few", {**PaperOptions.few, "motions": 3, "walks": 1})
    command = "evaluate paper --prior cvae --also random --quick --workers 1 --recordings"
    assert main([*command.split(), str(recordings), "--out", str(out)]) == 0
    written = json.loads((out / "paper.json").read_text())
    judged = {(claim["prior"], claim["id"]): claim for claim in written["claims"]}
    ids = "pushed-walk back-to-level manifold ablation recorded-wrench corrected-wrench following speed agreement"
    assert [name for prior, name in judged if prior == "cvae"] == ids.split()
    # The push shows, and is mostly over at the end; and all is faster than the paper.
    rows = [line.split(",") for line in (out / "cvae-300-700N" / "energies.csv").read_text().splitlines()]
    curve = np.array([float(row[3]) for row in rows if row[:2] == ["pushed", "kinematic"]])
    assert curve[64:79].max() > 20 * np.median(curve[10:63])
    assert judged["cvae", "speed"]["number"] > 10
    # Random weights reproduce nothing that depends on how people move; two pushed people may come back by chance.
    passed = {name for (prior, name), claim in judged.items() if prior == "random" and claim["reproduced"]}
    assert passed <= {"recorded-wrench", "speed", "back-to-level"}
    assert written["diverged"] == 0
    assert len([*out.rglob("*.png")]) == 2
    assert capsys.readouterr().out.count("reproduced |") >= 9


def test_bad_input_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    wrong = (["--motions", "0"], ["--workers", "0"], ["--recordings", str(tmp_path / "nowhere")])
    for args in (["--out", str(tmp_path / "file" / "out")], *(["--out", str(tmp_path), *one] for one in wrong)):
        assert main(["evaluate", "paper", *args]) == 2
        error = capsys.readouterr().err
        assert error.startswith("dropsim: ")
        assert "Traceback" not in error
    assert not (tmp_path / "paper.json").exists()
