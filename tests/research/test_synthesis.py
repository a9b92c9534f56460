"""Data sets: drawn by a seed and an index alone, judged, whole after any kill, and readable by anybody."""

import functools
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dropsim.apps.cli import main
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane
from dropsim.research import processes
from dropsim.research.synthesis import dataset as dataset_module
from dropsim.research.synthesis.clip import Clip, Recipe, simulated
from dropsim.research.synthesis.dataset import clips_path, here, in_processes, make_shard, manifest_path, synthesize
from dropsim.research.synthesis.distribution import READY, distribution
from dropsim.research.synthesis.schema import ROWS, read_motions, rows_of, schema_of
from dropsim.scene import Push, Solid, run
from dropsim.scene.files import read_scene

NUM = 16
OPTIONS = ("--count", "56", "--seconds", "0.3", "--samples", "2", "--shard-size", "16")
COMMAND = (sys.executable, "-c", "import sys; from dropsim.apps.cli import main; sys.exit(main())", "synthesize")


def recipe(**changes) -> Recipe:
    options = {"count": 56, "seconds": 0.3, "samples": 2, "shard_size": 16, **changes}
    return Recipe(options.pop("distribution", None) or distribution("mixed"), **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """A data set made in one go: 56 clips in four shards, the last of them partial."""
    out = tmp_path_factory.mktemp("undisturbed") / "data"
    synthesize(recipe(), out, here)
    return out


def contents(out: Path) -> dict[str, str]:
    """Every file of a data set but its lock, by its hash."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- distributions


def test_a_clip_depends_on_the_seed_and_its_index_alone():
    mixed = distribution("mixed")
    backward = {i: mixed.draw(3, i) for i in reversed(range(50))}
    assert [mixed.draw(3, i) for i in range(50)] == [backward[i] for i in range(50)]
    assert mixed.draw(4, 7) != mixed.draw(3, 7)
    assert len({backward[i].seed for i in backward}) == 50


def test_categories_come_as_often_as_they_weigh():
    # 10 in all, so a push is 0.4 of 200 clips; three standard deviations of that share are 0.104, and of 0.1 are 0.064.
    mixed = distribution("mixed")
    found = Counter(mixed.draw(0, i).category for i in range(200))
    assert found["push"] / 200 == pytest.approx(0.4, abs=0.104)
    assert found["calm"] / 200 == pytest.approx(0.1, abs=0.064)


def test_tables_belong_to_their_categories():
    mixed = distribution("mixed")
    kinds = {"push": {"Push"}, "ball": {"Throw"}, "trip": {"Trip"}, "tilt": set(), "calm": set()}
    for i in range(100):
        drawn = mixed.draw(0, i)
        assert {type(e).__name__ for e in drawn.setup.scene.elements} == kinds[drawn.category]
        assert bool(drawn.setup.scene.ground.tilts) == (drawn.category == "tilt")
        assert drawn.category != "trip" or drawn.setup.scene.people[0].start in ("walk", "run")


def test_values_are_drawn_within_their_ends_and_units(tmp_path: Path):
    text = """
        [[push]]
        count = 2
        direction = { between = [80, 100] }
        newtons = { between = ["0.1 kN", "200 N"] }
        start = { one_of = ["500 ms", 1.0], weights = [0, 1] }
        [[drag]]
        path = [[0, 0, 0, { between = ["50 cm", 1] }], [{ between = [1, 2] }, 0, 0, 1]]
        [ground]
        pivot = [{ between = [-1, 1] }, 2]
    """
    found = distribution(written(tmp_path, text))
    forces, heights = list[float](), list[float]()
    for i in range(100):
        drawn = found.draw(1, i)
        *pushes, drag = drawn.setup.scene.elements
        assert [push.start for push in pushes] == [1.0, 1.0]
        assert all(push.force[0] < 0 and abs(push.force[1]) < 0.2 * -push.force[0] for push in pushes)
        forces += [drawn.values["push.0.newtons"], drawn.values["push.1.newtons"]]
        heights.append(drag.path[0][3])
        assert -1 <= drawn.setup.scene.ground.pivot[0] <= 1
        assert drawn.setup.scene.ground.pivot[1] == 2
    assert 100 <= min(forces) < 110 < 190 < max(forces) <= 200
    assert 0.5 <= min(heights) < 0.55 < 0.95 < max(heights) <= 1


def test_whole_numbers_are_drawn_with_both_ends(tmp_path: Path):
    found = distribution(written(tmp_path, "[[push]]\ncount = { between = [0, 2] }\n"))
    assert Counter(len(found.draw(0, i).setup.scene.elements) for i in range(90)).keys() == {0, 1, 2}


def test_a_scenario_and_a_scene_file_are_distributions_too(tmp_path: Path):
    assert isinstance(distribution("push").draw(0, 0).setup.scene.elements[0], Push)
    assert main(["run", "push", "--save", str(tmp_path / "push.toml")]) == 0
    from_file, ready = distribution(str(tmp_path / "push.toml")).draw(0, 5), distribution("push").draw(0, 5)
    assert from_file.setup == ready.setup


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[pusch]]", "line 1: a distribution of scenes has no 'pusch': did you mean 'push'?"),
        ("[[push]]\nnewton = 3", "line 2: push has no field 'newton': did you mean 'newtons'?"),
        ("[[push]]\ncuont = 3", "line 2: push has no field 'cuont': did you mean 'count'?"),
        ("[push]", "line 1: write [[push]] in two brackets"),
        ("push = [1]", "line 1: push is a table"),
        (
            "[[push]]\nduration = { betwen = [1, 2] }",
            "line 2: push duration is drawn by between, or by one_of with weights, not by 'betwen'",
        ),
        (
            "[[push]]\nduration = { between = [2, 1] }",
            "line 2: push duration is drawn between 2 and 1: put the smaller first",
        ),
        ("[[push]]\nduration = { between = [1] }", "line 2: push duration needs two ends"),
        (
            "[[push]]\nduration = { between = [0, 1] }",
            "line 1: push duration has to be in (0, inf)",
        ),
        ('[[push]]\nduration = { between = ["1 m", 2] }', "line 2: push duration is a number [s]"),
        ("[[push]]\nforce = { between = [1, 2] }", "line 2: push force is no single number"),
        ("[[push]]\npart = { one_of = [] }", "line 2: push part needs a list of 1 to 256 options"),
        (f"[[push]]\nstart = {{ one_of = [{'1, ' * 300}] }}", "line 2: push start needs a list of 1 to 256 options"),
        (f"[[push]]\ncount = {{ between = [0, 0x{'f' * 1500}] }}", "line 2: push count is a whole number below 2^63"),
        ("[categories]\n" + "".join(f"c{i} = 1\n" for i in range(1000)), "line 1: categories is a table"),
        ("ground = 3\n[[tilt]]", "line 1: ground is a table"),
        (f"[[push]]\nforce = {'[' * 300}{']' * 300}", "is nested too deeply"),
        ('[[push]]\npart = { one_of = ["torso", "tail"] }', "line 1: there is no joint 'tail'"),
        ('[[push]]\npart = { one_of = ["torso", 3] }', "line 2: push part is text in quotes"),
        (
            '[[push]]\npart = { one_of = ["torso"], weights = [1, 2] }',
            "line 2: push part needs a weight for each of its 1 options",
        ),
        ('[[push]]\npart = { one_of = ["torso"], weights = [0] }', "line 2: push part needs weights of 0 or more"),
        ("[[push]]\ncount = 1.5", "line 2: push count is a whole number"),
        ("[[push]]\ncount = -1", "line 2: push count is from 0 to 64, not -1"),
        (
            '[categories]\npush = 1\n[[push]]\ncategory = "pusch"',
            "line 4: [categories] has no 'pusch': did you mean 'push'?",
        ),
        ('[[push]]\ncategory = "push"', "line 2: [categories] has no 'push'"),
        ("[categories]\npush = -1", "line 1: categories needs weights of 0 or more"),
        ("categories = 3", "line 1: categories is a table"),
        ("seconds = { between = [1, 2] }", "line 1: seconds is the same for all clips"),
        ("[simulator]\nnum_samples = { one_of = [1, 2] }", "line 2: simulator num_samples is the same for all clips"),
        ('[[person]]\nstart = { one_of = ["walk", "wlak"] }', "line 2: there is no start 'wlak': did you mean 'walk'?"),
        ("[[tilt]]\nroll = { between = [-60, 0] }", "line 1: the ground tilts by at most 45 degrees"),
        ("[[tilt]]\ncount = 2", "line 1: the ground tilts once in a clip"),
        ("[gates]\nbone_eror = 3", "line 2: gates has no field 'bone_eror': did you mean 'bone_error'?"),
        ("[gates]\nbone_error = 0", "line 1: gates need a bone error above 0"),
        ("[[push]", "line 1: is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, capsys, text: str, message: str):
    out = tmp_path / "out"
    assert main(["synthesize", "--count", "4", "--out", str(out), "--scene", written(tmp_path, text)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--count", "0"), "a data set has from 1 to"),
        (("--scene", "mxied"), "there is no distribution or scenario 'mxied': did you mean 'mixed'?"),
        (("--shard-size", "0"), "a file has from 1 to"),
        (("--seconds", "0"), "seconds must be above 0 and at most 3600"),
        (("--samples", "0"), "num_samples has to be between 1 and 4096"),
        (("--workers", "0"), "give from 1 to 1024 processes"),
        (("--seed", "-1"), "a seed is a whole number from 0"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, capsys, options: tuple[str, ...], message: str):
    assert main(["synthesize", "--count", "4", "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- what is in a data set


@pytest.mark.parametrize("name", ["mixed", "objects"])
def test_a_clip_is_the_same_to_the_last_bit_whichever_others_are_simulated_with_it(name: str):
    made = recipe(distribution=distribution(name), count=12, seconds=1.0)
    together = simulated(made, range(12))
    for i, clip in enumerate(together):
        [alone] = simulated(made, [i])
        assert isinstance(clip, Clip)
        assert isinstance(alone, Clip)
        for one, other in zip(clip.motions, alone.motions, strict=True):
            np.testing.assert_array_equal(one.joints, other.joints)
            np.testing.assert_array_equal(one.contact_forces, other.contact_forces)


def test_every_clip_is_there_once(undisturbed: Path):
    tables = [pq.read_table(path) for path in sorted((undisturbed / "clips").iterdir())]
    assert [table.num_rows for table in tables] == [16, 16, 16, 8]
    assert [i for table in tables for i in table["clip"].to_pylist()] == list(range(56))
    assert json.loads((undisturbed / "manifest.json").read_text())["kept"] == 56


def test_any_reader_takes_the_folder_as_it_is(undisturbed: Path):
    whole = pq.read_table(undisturbed / "clips")
    assert whole.num_rows == 56
    frames = whole["num_frames"].to_pylist()
    assert set(frames) == {9}
    for name, (shape, _) in ROWS.items():
        size = 9
        for part in shape.split()[1:]:
            size *= int(part)
        assert set(pa.compute.list_value_length(whole[name]).to_pylist()) == {size}, name
    about = json.loads(whole.schema.metadata[b"dropsim"])
    assert about["skeleton"]["joints"][0] == "pelvis"
    assert about["recipe"]["count"] == 56


@pytest.mark.parametrize("name", READY)
def test_ready_distributions_have_every_category(name: str):
    found = distribution(name)
    assert {found.draw(0, index).category for index in range(200)} == set(found.weights)


def test_rows_hold_the_tracks_of_objects():
    drawn = next(d for d in (distribution("objects").draw(0, i) for i in range(100)) if d.category == "boxes")
    motion = stepping_clip(0.3)
    track = Solid(
        "crate",
        np.zeros((3, 3)),
        np.zeros((1, 3), int),
        np.ones((len(motion), 3)),
        np.tile(np.eye(3), (len(motion), 1, 1)),
    )
    ground = Plane.stacked([Plane.ground()] * len(motion))
    table = rows_of([Clip(drawn, (motion,), ground, (track,))], schema_of(motion.skeleton, motion.fps, {}))
    (found,) = table["objects"].to_pylist()[0]
    assert found["name"] == "crate"
    assert found["centres"] == [1.0] * 3 * len(motion)
    assert found["rotations"] == [0.0] * 3 * len(motion)


def test_the_columns_are_documented(undisturbed: Path):
    page = (Path(__file__).parents[2] / "docs" / "synthesis.md").read_text(encoding="utf-8")
    for name in pq.read_schema(next((undisturbed / "clips").iterdir())).names:
        assert f"| {name} |" in page, f"docs/synthesis.md says nothing of {name}"


def test_motions_come_back_whole(undisturbed: Path):
    rows = list(read_motions(undisturbed))
    assert len(rows) == 56
    for row, motion in rows:
        # Joints lie where root and rotations put them, but for single precision and for what inverse kinematics leaves.
        np.testing.assert_allclose(motion.skeleton.forward(motion.q, motion.root), motion.joints, rtol=0, atol=2e-2)
        np.testing.assert_array_equal(motion.joints[:, 0], motion.root)
        assert motion.wrench_before.shape == motion.wrench_after.shape == (9,)
        assert {"rigidity", "contact", "kinematic", "momentum"} <= motion.energies.keys()
        assert ("pin" in motion.energies) <= (row["category"] == "trip")
        assert [event.name.split()[0] for event in motion.events][:1] == {
            "push": ["push"],
            "ball": ["ball"],
            "trip": ["trip"],
        }.get(row["category"], [])


def test_a_row_holds_the_scene_that_makes_it_again(undisturbed: Path, tmp_path: Path):
    # The row's own scene, run alone, is the same clip to the last bit of the file, which holds single precision.
    for row, motion in list(read_motions(undisturbed))[:6]:
        setup = read_scene(Path(written(tmp_path, row["scene"])))
        assert setup.seed == row["seed"]
        world = setup.world()
        alone = run(world, setup.num_frames(world.fps), setup.seed).motions[0]
        np.testing.assert_array_equal(alone.joints.astype(np.float32), motion.joints)


@pytest.mark.slow
def test_what_is_drawn_later_does_not_change_what_was_drawn_before(undisturbed: Path, tmp_path: Path):
    # Another count ends within another group, and other shards hold other clips: the first are the same to the last
    # bit.
    make_shard(recipe(count=60, shard_size=64), tmp_path, 0)
    longer = pq.read_table(clips_path(tmp_path, 0)).slice(0, 56)
    assert longer.replace_schema_metadata().equals(pq.read_table(undisturbed / "clips").replace_schema_metadata())


# --- gates


VIOLENT = """
[[push]]
direction = "left"
newtons = { one_of = [0, 1e9] }
start = 0.1
"""


@pytest.mark.slow
def test_clips_that_diverge_are_counted_and_left_out(tmp_path: Path):
    made = recipe(distribution=distribution(written(tmp_path, VIOLENT)), count=NUM, seconds=0.3)
    found = synthesize(made, tmp_path / "out", here)
    violent = [i for i in range(NUM) if made.drawn(i).values["push.0.newtons"] == 1e9]
    assert 0 < len(violent) < NUM
    assert found.rejected == {"diverged": len(violent)}
    assert found.kept == NUM - len(violent)
    assert pq.read_table(tmp_path / "out" / "clips")["clip"].to_pylist() == [i for i in range(NUM) if i not in violent]
    rejected = json.loads(manifest_path(tmp_path / "out", 0).read_text())["rejected"]
    assert [r["index"] for r in rejected] == violent
    assert all(r["category"] == "any" and r["detail"] for r in rejected)


@pytest.mark.parametrize(("gate", "reason"), [("bone_error = 1e-12", "bone error"), ("penetration = 0", "penetration")])
def test_gates_of_the_file_are_used(tmp_path: Path, gate: str, reason: str):
    strict = recipe(distribution=distribution(written(tmp_path, f"[gates]\n{gate}\n")), count=NUM)
    found = synthesize(strict, tmp_path / "out", here)
    assert found.rejected.keys() == {reason}
    assert found.rejected[reason] + found.kept == NUM
    assert pq.read_table(tmp_path / "out" / "clips").num_rows == found.kept


@pytest.mark.slow
def test_a_scene_that_cannot_be_is_left_out_alone(tmp_path: Path):
    text = "[[person]]\n[[person]]\nposition = [0, { between = [0, 3] }]\n"
    found = synthesize(
        recipe(distribution=distribution(written(tmp_path, text)), count=NUM, seconds=0.2), tmp_path / "out", here
    )
    assert 0 < found.rejected["refused"] < NUM
    table = pq.read_table(tmp_path / "out" / "clips")
    assert table.num_rows == 2 * found.kept
    assert set(table["person"].to_pylist()) == {0, 1}


# --- kills, workers, resuming


def wait_for(happened: Callable[[], bool], process: subprocess.Popen, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened() and process.poll() is None:
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


def shards_done(out: Path) -> int:
    return len(list((out / "shards").glob("*.json"))) if (out / "shards").is_dir() else 0


def half_written(out: Path) -> bool:
    return any(out.glob("clips/.clips-*/*.parquet"))


def descendants(pid: int) -> list[tuple[int, str]]:
    """Every process below one, with its command line."""
    parents, lines = dict[int, int](), dict[int, str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue

    def is_below(one: int) -> bool:
        return one in parents and (parents[one] == pid or is_below(parents[one]))

    return [(one, lines[one]) for one in lines if is_below(one)]


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_files(undisturbed: Path, tmp_path: Path):
    # Two processes that have a shard half written, one that has just finished another, and one in the middle again.
    out, rng = tmp_path / "data", random.Random(0)
    for workers in (2, 1, 1):
        before = shards_done(out)
        finished = functools.partial(lambda before: shards_done(out) > before, before)
        process = subprocess.Popen(
            [*COMMAND, *OPTIONS, "--out", str(out), "--workers", str(workers)], stderr=subprocess.DEVNULL
        )
        wait_for(finished if workers == 1 and before else functools.partial(half_written, out), process)
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert shards_done(out) < recipe().num_shards
    assert main(["synthesize", *OPTIONS, "--out", str(out), "--workers", "1"]) == 0
    assert contents(out) == contents(undisturbed)
    assert not [path for folder in ("", "clips", "shards") for path in (out / folder).glob(".*-*")]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker to kill in /proc")
@pytest.mark.slow
def test_the_shard_of_a_killed_worker_is_made_again(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "data"
    process = subprocess.Popen(
        [*COMMAND, *OPTIONS, "--out", str(out), "--workers", "2"], stderr=subprocess.PIPE, text=True
    )
    workers = list[int]()

    def a_worker_is_busy() -> bool:
        if half_written(out):
            workers[:] = [pid for pid, line in descendants(process.pid) if "spawn_main" in line]
        return bool(workers)

    wait_for(a_worker_is_busy, process)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert contents(out) == contents(undisturbed)


@pytest.mark.slow
def test_a_worker_that_is_killed_again_and_again_ends_the_run(tmp_path: Path, monkeypatch):
    # As if memory ran out: every worker of shard 1 is killed.
    monkeypatch.setattr(dataset_module, "make_shard", deadly_shard)
    monkeypatch.setattr(processes, "RETRIES", 1)
    with pytest.raises(
        ValueError, match=r"shard 1: its worker was killed 2 times, .*: run the same command again with fewer --workers"
    ):
        list(in_processes(2, recipe(), tmp_path, [0, 1, 2]))


def deadly_shard(made, out, shard) -> None:
    if shard == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_an_error_of_a_worker_is_told_with_its_shard(tmp_path: Path):
    (tmp_path / "clips").write_text("a file where a folder should be")
    with pytest.raises(ValueError, match=r"shard 0: .*clips"):
        list(in_processes(1, recipe(), tmp_path, [0]))


def test_a_shard_is_made_on_one_thread(tmp_path: Path, monkeypatch):
    seen = list[int]()
    monkeypatch.setattr(
        dataset_module, "simulated", lambda *_: seen.extend(info["num_threads"] for info in threadpool_info()) or []
    )
    with threadpool_limits(2):
        make_shard(recipe(count=1), tmp_path, 0)
    assert set(seen) == {1}


@pytest.mark.slow
def test_two_workers_make_the_same_files_as_one(undisturbed: Path, tmp_path: Path):
    result = subprocess.run(
        [*COMMAND, *OPTIONS, "--out", str(tmp_path / "two"), "--workers", "2"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "56 clips in" in result.stdout
    assert re.search(r"56 of 56 clips, \d+ per minute, 0 min left", result.stderr)
    assert contents(tmp_path / "two") == contents(undisturbed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--seed", "1"), "was begun with --seed 0, and not with --seed 1"),
        (("--samples", "3"), "was begun with --samples 2, and not with --samples 3"),
        (("--count", "57"), "was begun with --count 56, and not with --count 57"),
        (("--scene", "push"), "was begun with another distribution of scenes"),
    ],
)
def test_a_changed_option_is_refused(undisturbed: Path, capsys, changed: tuple[str, ...], message: str):
    before = contents(undisturbed)
    assert main(["synthesize", *OPTIONS, "--out", str(undisturbed), *changed]) == 2
    assert message in capsys.readouterr().err
    assert contents(undisturbed) == before


def test_a_data_set_that_is_complete_is_left_as_it_is(undisturbed: Path):
    before = contents(undisturbed)
    assert main(["synthesize", *OPTIONS, "--out", str(undisturbed)]) == 0
    assert contents(undisturbed) == before


def test_a_shard_that_is_cut_off_is_made_again(tmp_path: Path):
    out = tmp_path / "data"
    made = recipe(count=NUM, seconds=0.2)
    synthesize(made, out, here)
    before = contents(out)
    with clips_path(out, 0).open("r+b") as file:
        file.truncate(100)
    synthesize(made, out, here)
    assert contents(out) == before
    manifest_path(out, 0).write_text("{")
    synthesize(made, out, here)
    assert contents(out) == before


def test_a_folder_of_other_things_is_refused(tmp_path: Path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["synthesize", *OPTIONS, "--out", str(tmp_path)]) == 2
    assert "holds something other than a data set" in capsys.readouterr().err
    assert main(["synthesize", *OPTIONS, "--out", str(tmp_path / "notes.txt")]) == 2
    assert "is a file: give a folder" in capsys.readouterr().err


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path):
    def again(made, out, shards):
        with pytest.raises(ValueError, match="another run is writing to it"):
            synthesize(made, out, here)
        return here(made, out, shards)

    synthesize(recipe(count=1), tmp_path / "out", again)


def test_what_ctrl_c_leaves_half_written_is_swept_away(tmp_path: Path):
    def interrupted(made, out, shards):
        (out / "clips" / ".clips-0000000-half").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesize(recipe(count=1), tmp_path / "out", interrupted)
    assert not list((tmp_path / "out" / "clips").iterdir())


# --- Ray


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds what runs on the machine to kill in /proc")
@pytest.mark.ray
def test_ray_survives_the_loss_of_a_machine(undisturbed: Path, tmp_path: Path):
    # A cluster of two on one machine: the head, and another node that dies with all that runs on it while it makes a
    # shard.
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    out, options = tmp_path / "ray", {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    try:
        raylet = cluster.add_node(**options).all_processes["raylet"][0].process.pid
        process = subprocess.Popen(
            [*COMMAND, *OPTIONS, "--out", str(out), "--ray", cluster.address], stderr=subprocess.PIPE, text=True
        )

        def on_the_node() -> list[tuple[int, str]]:
            return descendants(raylet)

        wait_for(lambda: any(line.startswith("ray::make_shard") for _, line in on_the_node()), process)
        assert process.poll() is None, process.communicate()[1]
        for pid in (raylet, *(pid for pid, _ in on_the_node())):
            os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=180)
    finally:
        cluster.shutdown()
    assert process.returncode == 0, said
    assert contents(out) == contents(undisturbed)


@pytest.mark.ray
def test_without_a_cluster_ray_says_so(tmp_path: Path):
    pytest.importorskip("ray")
    command = [*COMMAND, *OPTIONS, "--out", str(tmp_path / "out"), "--ray", "auto"]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "RAY_ADDRESS": ""})
    assert result.returncode == 2
    assert "there is no Ray cluster at 'auto'" in result.stderr
