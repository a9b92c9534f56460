"""Data sets: drawn by a seed and an index alone, judged, whole after any kill, and readable by anybody."""

import functools
import hashlib
import json
import math
import os
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

from dropsim.apps.cli import main
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane
from dropsim.research import processes
from dropsim.research.synthesis import dataset as dataset_module
from dropsim.research.synthesis.clip import Clip, Recipe, simulated
from dropsim.research.synthesis.dataset import clips_path, manifest_path, synthesize
from dropsim.research.synthesis.distribution import READY, distribution
from dropsim.research.synthesis.schema import ROWS, read_motions, rows_of, schema_of
from dropsim.scene import Push, Solid, run
from dropsim.scene.files import read_scene

NUM = 8
OPTIONS = ("--count", "56", "--seconds", "0.3", "--samples", "2", "--shard-size", "16")
COMMAND = (sys.executable, "-c", "import sys; from dropsim.apps.cli import main; sys.exit(main())", "synthesize")


def recipe(**changes) -> Recipe:
    options = {"count": 56, "seconds": 0.3, "samples": 2, "shard_size": 16, **changes}
    return Recipe(options.pop("distribution", None) or distribution("mixed"), **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """A data set made in one go: 56 clips in four shards, the last of them partial."""
    out = tmp_path_factory.mktemp("undisturbed") / "data"
    synthesize(recipe(), out)
    return out


def contents(out: Path) -> dict[str, str]:
    """Every file of a data set, by its hash."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- distributions


def test_a_clip_depends_on_the_seed_and_its_index_alone():
    mixed = distribution("mixed")
    backward = {i: mixed.draw(3, i) for i in reversed(range(20))}
    assert [mixed.draw(3, i) for i in range(20)] == [backward[i] for i in range(20)]
    assert mixed.draw(4, 7) != mixed.draw(3, 7)
    assert len({backward[i].seed for i in backward}) == 20


def test_categories_come_as_often_as_they_weigh_with_their_tables():
    clips = [distribution("mixed").draw(0, i) for i in range(200)]
    # 10 in all, so a push is 0.4 of 200 clips; three standard deviations of that share are 0.104, and of 0.1 are 0.064.
    counts = Counter(drawn.category for drawn in clips)
    assert counts["push"] / 200 == pytest.approx(0.4, abs=0.104)
    assert counts["calm"] / 200 == pytest.approx(0.1, abs=0.064)
    kinds = {"push": {"Push"}, "ball": {"Throw"}, "trip": {"Trip"}, "tilt": set(), "calm": set()}
    for drawn in clips[:100]:
        assert {type(e).__name__ for e in drawn.setup.scene.elements} == kinds[drawn.category]
        assert bool(drawn.setup.scene.ground.tilts) == (drawn.category == "tilt")
        assert drawn.category != "trip" or drawn.setup.scene.people[0].start in ("walk", "run")


def test_values_are_drawn_within_their_ends_and_units(tmp_path: Path):
    text = """
        [[push]]
        count = { between = [0, 2] }
        direction = { between = [80, 100] }
        newtons = { between = ["0.1 kN", "200 N"] }
        start = { one_of = ["500 ms", 1.0], weights = [0, 1] }
        [[drag]]
        path = [[0, 0, 0, { between = ["50 cm", 1] }], [{ between = [1, 2] }, 0, 0, 1]]
        [ground]
        pivot = [{ between = [-1, 1] }, 2]
    """
    found = distribution(written(tmp_path, text))
    forces, heights, counts = list[float](), list[float](), set[int]()
    for i in range(100):
        drawn = found.draw(1, i)
        *pushes, drag = drawn.setup.scene.elements
        counts.add(len(pushes))
        assert all(push.start == 1.0 for push in pushes)
        assert all(push.force[0] < 0 and abs(push.force[1]) < 0.2 * -push.force[0] for push in pushes)
        forces += [drawn.values[f"push.{k}.newtons"] for k in range(len(pushes))]
        heights.append(drag.path[0][3])
        assert -1 <= drawn.setup.scene.ground.pivot[0] <= 1
        assert drawn.setup.scene.ground.pivot[1] == 2
    assert counts == {0, 1, 2}
    assert 100 <= min(forces) < 110 < 190 < max(forces) <= 200
    assert 0.5 <= min(heights) < 0.55 < 0.95 < max(heights) <= 1


def test_a_scenario_and_a_scene_file_are_distributions_too(tmp_path: Path):
    assert main(["run", "push", "--save", str(tmp_path / "push.toml")]) == 0
    from_file, ready = (distribution(name).draw(0, 5).setup for name in (str(tmp_path / "push.toml"), "push"))
    assert from_file == ready
    assert isinstance(ready.scene.elements[0], Push)


IN_PUSH = (
    "newton = 3",
    "duration = { between = [2, 1] }",
    'duration = { between = ["1 m", 2] }',
    "force = { between = [1, 2] }",
    f"start = {{ one_of = [{'1, ' * 300}] }}",
    f"count = {{ between = [0, 0x{'f' * 1500}] }}",
    'part = { one_of = ["torso"], weights = [1, 2] }',
    "count = -1",
)
"""Second lines of a file that begins with [[push]]."""
IN_FILE = {
    "[[pusch]]": "line 1",
    "[[push]]\nduration = { between = [0, 1] }": "line 1: push duration",
    f"[[push]]\nforce = {'[' * 300}{']' * 300}": "nested",
    '[categories]\npush = 1\n[[push]]\ncategory = "pusch"': "line 4",
    "[categories]\n" + "".join(f"c{i} = 1\n" for i in range(1000)): "line 1: categories",
    "ground = 3\n[[tilt]]": "line 1: ground",
    "seconds = { between = [1, 2] }": "line 1: seconds",
    "[simulator]\nnum_samples = { one_of = [1, 2] }": "line 2: simulator num_samples",
    '[[person]]\nstart = { one_of = ["walk", "wlak"] }': "line 2",
    "[[tilt]]\nroll = { between = [-60, 0] }": "line 1",
    "[gates]\nbone_eror = 3": "line 2: gates",
}
"""Files, and what says where the mistake is."""


def refused(capsys, out: Path, *options: str) -> str:
    assert main(["synthesize", "--count", "4", "--out", str(out), *options]) == 2
    assert not out.exists()
    return capsys.readouterr().err


def test_options_that_cannot_be_are_refused(tmp_path: Path, capsys):
    for options in ("--count 0", "--scene mxied", "--seconds 0", "--workers 0"):
        assert refused(capsys, tmp_path / "out", *options.split()).count("\n") == 1


def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, capsys):
    pushes = {f"[[push]]\n{line}": "line 2: push" for line in IN_PUSH}
    for text, where in (IN_FILE | pushes).items():
        said = refused(capsys, tmp_path / "out", "--scene", written(tmp_path, text))
        assert where in said, text
        assert said.count("\n") == 1


# --- what is in a data set


def test_a_clip_is_the_same_to_the_last_bit_whichever_others_are_simulated_with_it():
    made = recipe(distribution=distribution("objects"), count=12, seconds=0.3)
    together = [clip for clip in simulated(made, range(12)) if isinstance(clip, Clip)]
    assert len(together) == 12
    for clip in {clip.drawn.category: clip for clip in together}.values():
        [alone] = simulated(made, [clip.drawn.index])
        assert isinstance(alone, Clip)
        for one, other in zip(clip.motions, alone.motions, strict=True):
            np.testing.assert_array_equal(one.joints, other.joints)
            np.testing.assert_array_equal(one.contact_forces, other.contact_forces)


def test_every_clip_is_there_once_for_any_reader(undisturbed: Path):
    shards = [pq.read_table(path).num_rows for path in sorted((undisturbed / "clips").iterdir())]
    assert shards == [16, 16, 16, 8]
    assert json.loads((undisturbed / "manifest.json").read_text())["kept"] == 56
    whole = pq.read_table(undisturbed / "clips")
    assert whole["clip"].to_pylist() == list(range(56))
    assert set(whole["num_frames"].to_pylist()) == {9}
    page = (Path(__file__).parents[2] / "docs" / "synthesis.md").read_text(encoding="utf-8")
    for name in whole.schema.names:
        assert f"| {name} |" in page, f"docs/synthesis.md says nothing of {name}"
    for name, (shape, _) in ROWS.items():
        size = 9 * math.prod(int(part) for part in shape.split()[1:])
        assert set(pa.compute.list_value_length(whole[name]).to_pylist()) == {size}, name
    about = json.loads(whole.schema.metadata[b"dropsim"])
    assert about["skeleton"]["joints"][0] == "pelvis"
    assert about["recipe"]["count"] == 56


def test_ready_distributions_have_every_category():
    for name in READY:
        scenes = distribution(name)
        assert {scenes.draw(0, index).category for index in range(100)} == set(scenes.weights)


def test_rows_hold_the_tracks_of_objects():
    drawn = next(d for d in (distribution("objects").draw(0, i) for i in range(100)) if d.category == "boxes")
    motion = stepping_clip(0.3)
    still = np.tile(np.eye(3), (len(motion), 1, 1))
    track = Solid("crate", np.zeros((3, 3)), np.zeros((1, 3), int), np.ones((len(motion), 3)), still)
    ground = Plane.stacked([Plane.ground()] * len(motion))
    table = rows_of([Clip(drawn, (motion,), ground, (track,))], schema_of(motion.skeleton, motion.fps, {}))
    (found,) = table["objects"].to_pylist()[0]
    assert found["name"] == "crate"
    assert found["centres"] == [1.0] * 3 * len(motion)
    assert found["rotations"] == [0.0] * 3 * len(motion)


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
        happens = row["category"] in ("push", "ball", "trip")
        assert [event.name.split()[0] for event in motion.events][:1] == ([row["category"]] if happens else [])


def test_a_row_holds_the_scene_that_makes_it_again(undisturbed: Path, tmp_path: Path):
    # The row's own scene, run alone, is the same clip to the last bit of the file, which holds single precision.
    for row, motion in list(read_motions(undisturbed))[:3]:
        setup = read_scene(Path(written(tmp_path, row["scene"])))
        assert setup.seed == row["seed"]
        world = setup.world()
        alone = run(world, setup.num_frames(world.fps), setup.seed).motions[0]
        np.testing.assert_array_equal(alone.joints.astype(np.float32), motion.joints)


# --- gates


LEFT_OUT = {
    "diverged": "[[push]]\ndirection = 'left'\nnewtons = { one_of = [0, 1e9] }\nstart = 0.1",
    "refused": "[[person]]\n[[person]]\nposition = [0, { between = [0, 1.2] }]",
    "bone error": "[gates]\nbone_error = 1e-12",
    "penetration": "[gates]\npenetration = 0",
}
"""Files by the reason for which clips are left out."""


@pytest.mark.parametrize(("reason", "text"), LEFT_OUT.items())
def test_clips_that_fail_are_counted_and_left_out(tmp_path: Path, reason: str, text: str):
    made = recipe(distribution=distribution(written(tmp_path, text)), count=NUM)
    totals = synthesize(made, tmp_path / "out")
    rejected = json.loads(manifest_path(tmp_path / "out", 0).read_text())["rejected"]
    indices = [one["index"] for one in rejected]
    assert totals.rejected == {reason: len(indices)}
    assert all(one["reason"] == reason and one["detail"] for one in rejected)
    clips = set(pq.read_table(tmp_path / "out" / "clips")["clip"].to_pylist())
    assert len(clips) == totals.kept
    assert sorted([*clips, *indices]) == list(range(NUM))
    if reason == "diverged":
        assert indices == [i for i in range(NUM) if made.drawn(i).values["push.0.newtons"] == 1e9]
    assert clips or reason not in ("diverged", "refused")


# --- kills, workers, resuming


def wait_for(happened: Callable[[], bool], process: subprocess.Popen, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened() and process.poll() is None:
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


def started(out: Path, *options: str) -> subprocess.Popen:
    command = [*COMMAND, *OPTIONS, "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def half_written(out: Path) -> bool:
    return any(out.glob("clips/.clips-*/*.parquet"))


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_files(undisturbed: Path, tmp_path: Path):
    # Two processes that have a shard half written.
    out = tmp_path / "data"
    process = started(out, "--workers", "2")
    wait_for(functools.partial(half_written, out), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert len(list((out / "shards").glob("*.json"))) < recipe().num_shards
    assert main(["synthesize", *OPTIONS, "--out", str(out), "--workers", "1"]) == 0
    assert contents(out) == contents(undisturbed)
    assert not [path for folder in ("", "clips", "shards") for path in (out / folder).glob(".*-*")]


def test_a_worker_that_is_killed_ends_the_run_with_a_sentence():
    # As if memory ran out.
    with pytest.raises(ValueError, match="a worker was killed"):
        list(processes.in_processes(2, os._exit, [1, 1], str))


def test_an_error_of_a_worker_is_told_with_its_shard(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(dataset_module, "make_shard", interrupted_by(OSError("disk full")))
    with pytest.raises(ValueError, match="shard 0: disk full"):
        synthesize(recipe(count=1), tmp_path / "out")


def interrupted_by(error: BaseException) -> Callable[..., None]:
    def make_shard(made, out, shard) -> None:
        (out / "clips" / ".clips-0000000-half").mkdir()
        raise error

    return make_shard


@pytest.mark.parametrize("changed", [(), ("--count", "57"), ("--scene", "push")])
def test_a_changed_option_is_refused(undisturbed: Path, capsys, changed: tuple[str, ...]):
    before = contents(undisturbed)
    # A complete data set is left as it is.
    assert main(["synthesize", *OPTIONS, "--out", str(undisturbed), *changed]) == (2 if changed else 0)
    assert not changed or changed[0] in capsys.readouterr().err
    assert contents(undisturbed) == before


def test_a_shard_that_is_cut_off_is_made_again(tmp_path: Path):
    out = tmp_path / "data"
    made = recipe(count=3, seconds=0.1)
    synthesize(made, out)
    before = contents(out)
    with clips_path(out, 0).open("r+b") as file:
        file.truncate(100)
    synthesize(made, out)
    assert contents(out) == before
    manifest_path(out, 0).write_text("{")
    synthesize(made, out)
    assert contents(out) == before


def test_a_folder_of_other_things_is_refused(tmp_path: Path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["synthesize", *OPTIONS, "--out", str(tmp_path)]) == 2
    assert "holds something other than a data set" in capsys.readouterr().err
    assert main(["synthesize", *OPTIONS, "--out", str(tmp_path / "notes.txt")]) == 2
    assert "is a file: give a folder" in capsys.readouterr().err


def test_what_ctrl_c_leaves_half_written_is_swept_away(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(dataset_module, "make_shard", interrupted_by(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        synthesize(recipe(count=1), tmp_path / "out")
    assert not list((tmp_path / "out" / "clips").iterdir())


# --- Ray


@pytest.mark.ray
def test_ray_makes_the_same_files_and_says_when_there_is_no_cluster(undisturbed: Path, tmp_path: Path):
    pytest.importorskip("ray")
    process = started(tmp_path / "ray", "--ray", "local", "--workers", "1")
    _, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    assert contents(tmp_path / "ray") == contents(undisturbed)
    command = [*COMMAND, *OPTIONS, "--out", str(tmp_path / "out"), "--ray", "auto"]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "RAY_ADDRESS": ""})
    assert result.returncode == 2
    assert "there is no Ray cluster at 'auto'" in result.stderr
