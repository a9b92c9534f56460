"""The paper's claims: their counting on curves made by hand, and their direction in the command's quick version."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.motion.amass import write_amass
from dropsim.motion.synthetic import stepping_clip
from dropsim.research.evaluation import claims
from dropsim.research.evaluation.bench import Row, Timing
from dropsim.research.evaluation.paper import PaperOptions, random_trials, startable
from dropsim.research.evaluation.recordings import Recorded, measure_recordings, spread

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


def test_energies_that_come_back_are_back():
    level = energies(kinematic=(1, 100, 50, 5, 1.2))
    back = claims.back_to_level(level, CALM, level)
    assert back.reproduced
    assert back.number == pytest.approx(1.2)
    assert "back 5 s after the push" in back.finding
    above = energies(kinematic=(1, 100, 50, 5, 1.3))
    away = claims.back_to_level(above, CALM, above)
    assert away.reproduced is False
    assert away.number == pytest.approx(1.3)


def test_one_wild_person_does_not_move_a_median():
    wild = energies(5, kinematic=(1, 100, 50, 5, 1))
    wild["energy_kinematic"][0] = 1e6
    assert claims.back_to_level(wild, CALM, wild).number == pytest.approx(1.0)


def test_those_who_diverged_are_told():
    lost = energies()
    lost["finished"] = np.array([True, True, False, True, True])
    assert "5 motions, 1 diverged" in claims.back_to_level(lost, CALM, lost).finding


def test_the_manifold_is_held_against_the_mean_of_the_same_frames():
    full = energies(kinematic=(1, 10, 10, 0.6, 1), kinematic_mode=(1, 10, 10, 1.0, 1))
    full["energy_kinematic"][:, 100:150], full["energy_kinematic_mode"][:, 100:150] = 0.6, 1.0
    found = claims.manifold(full, energies())
    assert found.number == pytest.approx(0.4)
    assert found.reproduced
    full["energy_kinematic"][:, 100:150] = 0.8
    assert claims.manifold(full, energies()).reproduced is False


@pytest.mark.parametrize(
    ("kinematic", "physics", "number", "reproduced"), [(6, 7, 6, True), (6, 4, 4, False), (0.5, 9, 0.5, False)]
)
def test_both_energies_have_to_be_worse_without_contact(kinematic, physics, number, reproduced):
    found = claims.ablation(CALM, energies(kinematic=(1, 1, 1, 1, kinematic), physics=(1, 1, 1, 1, physics)), {})
    assert found.number == pytest.approx(number)
    assert found.reproduced is reproduced


def test_walks_rise_and_return():
    walk = energies(kinematic=(1, 9, 9, 3, 1), momentum=(1, 9, 5, 1, 1), range_of_motion=(0, 1, 1, 0, 0))
    assert claims.pushed_walk(walk).reproduced
    # Where the pose never leaves its range, that part of the claim does not hold.
    assert claims.pushed_walk(walk | {"energy_range_of_motion": 0 * walk["energy_momentum"]}).reproduced is False
    assert claims.pushed_walk(energies(kinematic=(1, 9, 9, 3, 2), momentum=(1, 9, 5, 1, 1))).reproduced is False


def test_no_single_walk_decides():
    walk = energies(5, kinematic=(1, 9, 9, 3, 1), momentum=(1, 9, 5, 1, 1), range_of_motion=(0, 1, 1, 0, 0))
    walk["energy_kinematic"][0, 180:] = 50.0
    assert claims.pushed_walk(walk).reproduced
    walk["energy_kinematic"][:3, 180:] = 50.0
    assert claims.pushed_walk(walk).reproduced is False
    # Those who fall are another story.
    walk["fallen"][:3, 100] = True
    assert claims.pushed_walk(walk).reproduced


def recorded(kind="run", size=0.5, like=1.0):
    wave = size * (1 + np.sin(np.arange(200)))
    other = wave if like == 1.0 else wave[::-1]
    return Recorded("clip", kind, wave, other)


def test_recordings_that_need_no_help_or_differ_do_not_agree_with_the_paper():
    assert claims.recorded_wrench([recorded(), recorded("jump")]).reproduced
    assert claims.recorded_wrench([recorded(), recorded("jump", size=0.01)]).reproduced is False
    assert claims.recorded_wrench([recorded(like=0.0)]).reproduced is False


def test_without_recordings_nothing_is_claimed():
    wrench = {"wrench_before": np.ones((4, T)), "wrench_after": np.ones((4, T))}
    for claim in (claims.recorded_wrench(None), claims.corrected_wrench(wrench, None)):
        assert claim.reproduced is None
        assert claim.number is None
        assert claim.verdict == "not run"
        assert "--recordings" in claim.finding


def test_the_corrected_wrench_is_held_against_recorded_runs():
    runs = {"wrench_before": np.full((4, T), 3.0), "wrench_after": np.full((4, T), 0.8)}
    assert claims.corrected_wrench(runs, [recorded(size=0.5)]).reproduced  # the wave goes up to 1
    assert claims.corrected_wrench(runs, [recorded(size=0.2), recorded("jump", size=9.0)]).reproduced is False


def followers(speed, wanted=1.2, upright=1.0):
    frames = 240
    way = np.tile([0.0, wanted], (frames, 1))
    way[120:] = [-wanted, 0.0]
    # Two thirds of a second late in every turn, as people are.
    late = np.concatenate((np.zeros((20, 2)), way[:-20])) * speed / wanted
    root = np.tile(np.cumsum(late / 30.0, axis=0), (4, 1, 1))
    up = np.zeros((4, frames), bool)
    up[: round(4 * upright)] = True
    return {"wanted": way[None], "root": root, "upright": up, "finished": np.ones(4, bool)}


def test_speed_along_the_way_leaves_turns_out():
    speed, wanted = claims.speed_along(followers(1.1))
    assert wanted == pytest.approx(1.2)
    assert speed == pytest.approx(1.1)


def test_followers_have_to_keep_up_and_stay_up():
    def judged(slow=1.2, upright=1.0):
        led = {"hand_gap": np.full((4, 240), 0.3)}
        good, fast = followers(1.2, upright=upright), followers(2.5, 2.5)
        return claims.following(
            {"follow": followers(slow), "follow-run": fast, "lead-by-hand": good | led, "lead-by-hand-run": fast | led}
        )

    assert judged().reproduced
    assert "hand 0.30 m off" in judged().finding
    assert judged(slow=0.9).reproduced is False
    assert judged(upright=0.5).reproduced is False


def test_speed_is_that_of_one_person():
    def row(people, seconds):
        return Row(people, 64, *[Timing(seconds, 0.0, seconds)] * 2, {}, 0.0)

    assert claims.real_time(row(1, 0.09), row(25, 1.0)).reproduced
    slow = claims.real_time(row(1, 0.11), row(25, 0.1))
    assert slow.reproduced is False
    assert slow.number == pytest.approx(1 / 0.11)


# --- plan and recordings


def test_fewer_motions_are_the_first_of_more():
    assert random_trials(3, 5) == random_trials(9, 5)[:3]
    assert random_trials(3, 5) != random_trials(3, 6)
    assert all(300 <= np.hypot(*trial.force[:2]) <= 700 and trial.end == 78 for trial in random_trials(50, 0))
    assert all(10 <= np.hypot(*trial.force[:2]) <= 20 for trial in random_trials(50, 0, (10.0, 20.0)))


def people(options):
    tables = {}
    for chunk in options.chunks():
        tables.setdefault(chunk.name, []).extend(chunk.people)
    return tables


def test_the_plan_has_every_motion_in_every_form():
    options = PaperOptions(motions=60, remedies=30)
    counts = {name: len(trials) for name, trials in people(options).items()}
    assert counts | {"full": 60, "calm": 60, "ablated": 60, "mean": 60, "literal": 30, "walk": 8, "follow": 8} == counts
    assert all(trial.force == (0, 0, 0) for trial in people(options)["calm"])
    chunks = options.chunks()
    assert len({repr(chunk) for chunk in chunks}) == len(chunks)
    assert {chunk.body.prior for chunk in chunks} == {"field"}


def test_every_push_is_in_the_range_that_was_asked_for():
    tables = people(PaperOptions(motions=20, newtons=(150.0, 350.0)))
    forces = {name: [np.hypot(*trial.force[:2]) for trial in tables[name]] for name in ("full", "run", "walk")}
    assert all(150 <= force <= 350 for of in forces.values() for force in of)
    assert set(np.round(forces["walk"], 6)) == {250.0}


def test_a_prior_starts_where_it_can():
    assert set(startable("field")) >= {"walk", "run", "stand"}
    trials = random_trials(30, 0, categories=startable("field"))
    assert {trial.start for trial in trials} <= set(startable("field"))


def test_the_prior_agrees_with_physics_in_ordinary_motion():
    # Unpushed a hundredth of the peak under a push.
    calm = energies(kinematic=(0.01,) * 5)
    found = claims.agreement(energies(kinematic=(0.01, 1.0, 0.5, 0.1, 0.01)), calm)
    assert found.number == pytest.approx(0.01)
    assert found.reproduced
    assert not claims.agreement(energies(kinematic=(0.01, 0.1, 0.1, 0.1, 0.01)), calm).reproduced


@pytest.mark.parametrize(
    "bad",
    [
        {"motions": 0},
        {"newtons": (0.0, 10.0)},
        {"newtons": (20.0, 10.0)},
        {"num_samples": 0},
        {"seed": -1},
        {"num_frames": 20},
    ],
)
def test_a_plan_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match=r"at least|whole number|from 1"):
        replace(PaperOptions(), **bad)


def test_a_few_are_spread_over_many():
    assert spread(range(5)) == [0, 1, 2, 3, 4]
    assert spread(range(24)) == list(range(0, 24, 2))
    assert spread([]) == []


@pytest.fixture
def recordings(tmp_path):
    for name in ("run_01", "jump_01", "walk_01"):
        write_amass(stepping_clip(1.0), tmp_path / "recordings" / f"{name}.npz")
    return tmp_path / "recordings"


def test_recordings_are_told_by_their_names(recordings, tmp_path):
    found = measure_recordings(recordings)
    assert [(r.name, r.kind, len(r.points)) for r in found] == [("run_01", "run", 28), ("jump_01", "jump", 28)]
    with pytest.raises(ValueError, match="no such folder"):
        measure_recordings(tmp_path / "nowhere")
    (recordings / "run_01.npz").unlink()
    (recordings / "jump_01.npz").unlink()
    with pytest.raises(ValueError, match="holds no running or jumping"):
        measure_recordings(recordings)


# --- the command


@pytest.mark.slow
def test_the_quick_version_shows_the_direction_of_the_claims(recordings, tmp_path, capsys):
    out = tmp_path / "out"
    command = "evaluate paper --prior cvae --quick --workers 1 --recordings"
    assert main([*command.split(), str(recordings), "--out", str(out)]) == 0
    written = json.loads((out / "paper.json").read_text())
    found = {claim["id"]: claim for claim in written["claims"]}
    ids = "pushed-walk back-to-level manifold ablation recorded-wrench corrected-wrench following speed agreement"
    assert list(found) == ids.split()
    assert {"id", "claim", "number", "bound", "reproduced", "finding", "prior", "newtons"} == set(written["claims"][0])
    # The push shows, and is mostly over at the end; the manifold is nearer than its mode; and all is faster
    # than the paper.
    rows = [line.split(",") for line in (out / "energies.csv").read_text().splitlines()]
    curve = np.array([float(row[3]) for row in rows if row[:2] == ["pushed", "kinematic"]])
    assert curve[64:79].max() > 20 * np.median(curve[10:63])
    assert np.median(curve[-30:]) < curve[64:79].max() / 3
    assert found["manifold"]["number"] > 0.1
    assert found["speed"]["number"] > 10
    assert written["diverged"] == 0
    for name in ("energies", "wrenches", "following"):
        assert all((out / f"{name}.{ending}").stat().st_size > 200 for ending in ("png", "svg", "csv"))
    assert (out / "paper.html").read_text().count("data:image/png;base64,") == 3
    assert capsys.readouterr().out.count("reproduced |") >= 9


def test_bad_input_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    wrong = (["--motions", "0"], ["--workers", "0"], ["--recordings", str(tmp_path / "nowhere")])
    for args in ([], ["--out", str(tmp_path / "file" / "out")], *(["--out", str(tmp_path), *one] for one in wrong)):
        assert main(["evaluate", "paper", *args]) == 2
        error = capsys.readouterr().err
        assert error.startswith("dropsim: ")
        assert "Traceback" not in error
    assert not (tmp_path / "paper.json").exists()
