"""The data set: categories, faults, and a build that reports, resumes and never crashes on a file."""

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.body.skeleton import joint_index
from dropsim.motion import cmu
from dropsim.motion.amass import write_amass
from dropsim.motion.bvh import write_bvh
from dropsim.motion.clips import (
    BROKEN,
    CATEGORIES,
    FLOATS,
    FPS,
    JUMPS,
    SHORT,
    SINKS,
    Clip,
    build,
    category_of,
    find_faults,
    load,
    read_clips,
    report,
    words_of,
)
from dropsim.motion.contacts import label_contacts, sphere_heights
from dropsim.motion.defects import intact, mend
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip

CLIP = stepping_clip(2.0)


def lifted(motion: Motion, height: np.ndarray) -> Motion:
    """Lift every frame by its height [m]."""
    by = np.pad(height[:, None], ((0, 0), (2, 0)))
    return replace(motion, root=motion.root + by, joints=motion.joints + by[:, None])


def frames(motion: Motion, *ranges: tuple[float, float], value: float) -> np.ndarray:
    """A height per frame: the value between some times [s], else 0."""
    time = np.arange(len(motion)) / motion.fps
    inside = np.zeros(len(motion), dtype=bool)
    for start, stop in ranges:
        inside |= (time >= start - 1e-6) & (time < stop - 1e-6)
    return value * inside


# --- categories


DESCRIPTIONS = {
    "walk": "walk; DRAGBADLEGWALK; drunk walk; a stroll; walk with avoidance",
    "turn": "Walk, veer left; walk 90 degree turn",
    "run": "run/jog; startrun",
    "jump": "forward jump; backflip",
    "dance": "salsa dance",
    "get up": "get up from ground laying on back; lie down; roll on the side",
    "sport": "boxing; swordplay",
    "crouch": "picking up a box; bow",
    "stand": "stand still",
    # Words inside words, each of them in CMU's table or close to it.
    "other": "; chicken; playing the piano; alien; flying; chopping; shopping; elbow to shoulder; footfalls",
}


@pytest.mark.parametrize("category", DESCRIPTIONS)
def test_categories_from_descriptions(category: str):
    for description in DESCRIPTIONS[category].split("; "):
        assert category_of(description) == category, description


def test_categories_from_names():
    for name, category in {"Male1_A8_CrouchToLie": "get up", "Male2_B10_WalkTurnLeft45": "turn"}.items():
        assert category_of(words_of(name)) == category


def test_every_category_occurs_in_the_table():
    found = {category_of(info.description) for info in cmu.clip_table().values()}
    assert found == {name for name, _ in CATEGORIES} | {"other"}


# --- faults


def reasons(motion: Motion) -> dict[str, int]:
    """Frames that are left out, by reason."""
    return {reason: int(flags.sum()) for reason, flags in find_faults(motion).items() if flags.any()}


def test_a_good_clip_has_no_fault():
    assert reasons(CLIP) == {}
    # Flights of 0.8 s are jumps, and 12 cm for a moment is a marker that slipped.
    assert reasons(lifted(CLIP, frames(CLIP, (0.5, 1.3), value=0.3))) == {}
    assert reasons(lifted(CLIP, frames(CLIP, (0.5, 0.7), value=-0.2))) == {}


LONG = stepping_clip(6.0)


@pytest.mark.parametrize(
    ("motion", "expected"),
    [
        # 30 frames last 29/30 s.
        pytest.param(CLIP.slice(0, 30), {SHORT: 30}, id="short"),
        pytest.param(CLIP.slice(0, 1), {SHORT: 1}, id="one frame"),
        # The frames before and after the jump, and the margin of two on either side.
        pytest.param(lifted(LONG, frames(LONG, (3.0, 9.0), value=0.51)), {JUMPS: 6, FLOATS: 87}, id="jump"),
        pytest.param(lifted(LONG, frames(LONG, (2.0, 3.0), value=0.3)), {FLOATS: 30}, id="floating"),
        pytest.param(lifted(LONG, frames(LONG, (2.0, 2.4), value=-0.2)), {SINKS: 12}, id="sinking"),
        # Between two faults there is too little left.
        pytest.param(
            lifted(LONG, frames(LONG, (2.0, 2.4), (3.0, 3.4), value=-0.2)), {SINKS: 24, SHORT: 18}, id="between"
        ),
    ],
)
def test_every_fault_has_its_reason_and_its_frames(motion: Motion, expected: dict[str, int]):
    assert reasons(motion) == expected


def test_one_joint_that_jumps_is_enough():
    joints = LONG.joints.copy()
    joints[90, 21] += np.array([0.0, 0.0, 0.6])
    assert reasons(replace(LONG, joints=joints)) == {JUMPS: 7}
    # A kink of 0.45 m is no step of 0.5 m, but no hand turns about in a thirtieth of a second.
    joints = LONG.joints.copy()
    joints[90, 21] += np.array([0.0, 0.0, 0.45])
    assert reasons(replace(LONG, joints=joints))[JUMPS] >= 5


def test_broken_poses_are_masked_and_hands_mended():
    def turned(joint: str, radians: float) -> Motion:
        q = LONG.q.copy()
        q[90:93, joint_index(joint)] = rotvec_to_rotmat(np.array([0.0, radians, 0.0]))
        return Motion.from_rotations(LONG.skeleton, LONG.fps, LONG.root, q)

    assert BROKEN in reasons(turned("left_ankle", 3.0))
    # A hand that flips moves none of our joints: it is turned back to the largest angle of a wrist.
    hand = turned("left_wrist", 3.0)
    mended = mend(hand.q)
    assert intact(mended).all()
    np.testing.assert_allclose(LONG.skeleton.forward(mended, LONG.root), LONG.joints, rtol=0, atol=1e-9)
    # A collar bone too; the arm below it keeps its orientation in the world.
    collar = turned("left_collar", 2.0)
    world, before = (
        LONG.skeleton.global_rotations(q)[:, joint_index("left_shoulder")] for q in (mend(collar.q), collar.q)
    )
    np.testing.assert_allclose(world, before, rtol=0, atol=1e-9)
    assert intact(mend(collar.q))[:90].all()


# --- building


def left_out_as(words: str) -> str:
    return next(name for name, info in cmu.clip_table().items() if info.left_out.startswith(words))


DUPLICATE = left_out_as("duplicate of ")
PLAYGROUND, CHAIR = "01_01", left_out_as("not flat: leans")
FLIP = "88_01"
TWIN = next(
    info.duplicate_of for name, info in cmu.clip_table().items() if info.duplicate_of and name.startswith("82_")
)
"""A clip of somebody else that shows the same as one of a person whom priors are judged by."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of three people, good ones and one of everything that is left out, and the data set."""
    folder = tmp_path_factory.mktemp("built") / "source"
    (folder / "deeper").mkdir(parents=True)
    write_bvh(lifted(CLIP, np.full((len(CLIP),), 0.3)), folder / "ann_walk.bvh")
    write_amass(stepping_clip(3.0, fps=60.0), folder / "deeper" / "ann_run.npz")
    write_bvh(stepping_clip(1.5), folder / "deeper" / "bob_jump.BVH", unit=0.01)
    write_bvh(stepping_clip(0.5), folder / "bob_short.bvh")
    write_amass(lifted(CLIP, frames(CLIP, (1.0, 1.05), value=0.6)), folder / "cat_glitch.npz")
    write_bvh(lifted(LONG, frames(LONG, (2.0, 3.0), value=0.3)), folder / "dan_table.bvh")
    (folder / "cat_empty.bvh").write_text("")
    (folder / "cat_text.npz").write_text("not an archive")
    rig = "HIERARCHY\nROOT tentacle\n{\nOFFSET 0 0 0\nCHANNELS 1 Xrotation\nEnd Site\n{\nOFFSET 0 1 0\n}\n}\n"
    (folder / "cat_alien.bvh").write_text(f"{rig}MOTION\nFrames: 1\nFrame Time: 0.1\n0")
    pickled = np.array([{"a": 1}], dtype=object)
    np.savez(folder / "cat_pickle.npz", poses=pickled, trans=np.zeros((1, 3)), mocap_framerate=30.0)
    for name in (DUPLICATE, PLAYGROUND, CHAIR, FLIP, TWIN):
        (folder / f"{name}.bvh").write_text("not read at all")
    (folder / "readme.txt").write_text("neither is this")
    CALLS.clear()
    build(folder, folder.parent / "out", held_out=["bob"], workers=1, progress=counting(CALLS))
    return folder.parent


CALLS = list[tuple[int, int]]()
"""Progress of that build."""


KEPT = {"ann_walk": 60, "ann_run": 90, "bob_jump": 45, "dan_table@0": 60, "dan_table@90": 90}
"""Frames at 30 Hz: 3 s at 60 Hz are 179 steps of 1/60 s, so 89 of 1/30 s."""


def index(folder: Path) -> tuple[Clip, ...]:
    return tuple(Clip(**row) for row in json.loads((folder / "out" / "index.json").read_text()))


def snapshot(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("*")) if p.is_file()}


def counting(calls: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda count, total: calls.append((count, total))


def test_build_keeps_what_is_good_and_says_why_the_rest_is_not(built: Path):
    source, out, clips = built / "source", built / "out", index(built)
    assert {c.recording for c in clips} == {p.stem for p in source.rglob("*") if p.suffix.lower() in (".bvh", ".npz")}
    assert [(i, 15) for i in range(1, 16)] == CALLS
    kept = {c.name: c for c in clips if not c.left_out}
    assert {name: c.frames for name, c in kept.items()} == KEPT
    assert kept["dan_table@90"].start == 90
    assert {c.person for c in clips if c.held_out} == {"bob"}
    assert (kept["ann_walk"].category, kept["ann_run"].category, kept["bob_jump"].category) == ("walk", "run", "jump")
    assert kept["ann_walk"].read_as == "rig dropsim, y up (rest pose)"
    assert kept["ann_run"].read_as == "rig SMPL, z up (AMASS's layout)"
    reasons = {c.recording: c.left_out for c in clips if c.left_out}
    assert reasons["bob_short"] == SHORT
    assert reasons["dan_table"] == FLOATS
    # Two frames of two seconds are elsewhere: 27 before them and 25 after are too few.
    assert {c.left_out: c.frames for c in clips if c.recording == "cat_glitch"} == {JUMPS: 8, SHORT: 52}
    assert reasons[DUPLICATE] == f"duplicate of {cmu.clip_table()[DUPLICATE].duplicate_of}"
    assert reasons[PLAYGROUND].startswith("not flat: this person's")
    assert reasons[CHAIR] == "not flat: leans or sits on something unseen"
    assert reasons[FLIP] == "kept: for the back-flip demonstration"
    assert reasons[TWIN] == "duplicate of a clip that priors are judged by"
    faults = {"empty": "empty or cut off", "text": "not an npz", "alien": "left_knee", "pickle": "pickled"}
    for name, words in ((f"cat_{name}", words) for name, words in faults.items()):
        assert reasons[name].startswith("unreadable: ")
        assert words in reasons[name]
        assert "\n" not in reasons[name]
    assert sorted(p.stem for p in (out / "clips").glob("*.npz")) == sorted(KEPT)


def test_the_report_counts_what_there_is(built: Path, tmp_path: Path):
    folder, calls = shutil.copytree(built, tmp_path / "copy"), list[tuple[int, int]]()
    source, out, first = folder / "source", folder / "out", index(built)
    text = (out / "report.md").read_text()
    assert "3 people at 30 Hz; held out: bob" in text
    # Frames at 30 Hz: an hour and a half of walks, a minute held out, half a minute and 2 s low left out.
    walks = [Clip(f"a_{k}", "a", "walk", frames, False) for k, frames in enumerate((108_000, 54_000))]
    lost = Clip("c_1", "c", "run", 900, True, "glitch: x", low=60)
    counts = report([*walks, Clip("b_1", "b", "run", 1800, True), lost])
    for line in ("| all | 3 | 91.0 | 0 |", "| held out | 1 | 1.0 | 0 |", "| left out: glitch | 1 | 0.5 | 2 |"):
        assert line in counts
    for line in ("cat_glitch: glitch: a joint jumps (0.3 s)", "dan_table: not flat: stands on something (1.0 s)"):
        assert f"- {line}\n" in text
    assert "- rig dropsim, y up (rest pose): 4 files\n" in text
    # A second run reads only what is new.
    before = snapshot(out / "clips")
    write_bvh(CLIP, source / "eve_walk.bvh")
    clips = build(source, out, held_out=["ann"], workers=1, progress=counting(calls))
    assert calls == [(1, 1)]
    assert [replace(clip, held_out=False) for clip in first] == [
        replace(c, held_out=False) for c in clips if c.name != "eve_walk"
    ]
    after = snapshot(out / "clips")
    assert {k: v for k, v in after.items() if not k.startswith("eve_walk")} == before
    # The split is made anew every time, without touching the clips.
    assert {c.person for c in clips if c.held_out} == {"ann"}
    assert {c.person for c, _ in load(out, held_out=True)} == {"ann"}


def test_a_killed_run_goes_on_where_it_was(built: Path, tmp_path: Path):
    folder, calls = shutil.copytree(built, tmp_path / "copy"), list[tuple[int, int]]()
    source, out, whole = folder / "source", folder / "out", index(built)
    # Killed before a recording's last clip, with half of another record written, and before the index.
    (out / "clips" / "ann_walk.json").unlink()
    (out / "clips" / "ann_run.json").write_text('{"edition": 3')
    (out / "clips" / "bob_jump.json").write_text('{"edition": 2, "clips": []}')
    (out / "clips" / "dan_table@0.npz").unlink()
    (out / "index.json").unlink()
    before = snapshot(out / "clips")
    assert build(source, out, held_out=["bob"], workers=1, progress=counting(calls)) == whole
    assert len(calls) == 4
    after = snapshot(out / "clips")
    assert all(after[name] == at for name, at in before.items() if name.startswith("cat"))
    assert build(source, out, held_out=["bob"], workers=1, progress=counting(calls)) == whole
    assert len(calls) == 4


def test_a_full_disk_is_no_fault_of_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_bvh(CLIP, tmp_path / "a_walk.bvh")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dropsim.motion.clips.write_amass", full)
        with pytest.raises(OSError, match="No space left"):
            build(tmp_path, tmp_path / "out", workers=1)
    assert [clip.left_out for clip in build(tmp_path, tmp_path / "out", workers=1)] == [""]


def test_a_file_that_is_gone_is_listed_and_the_output_may_lie_inside_the_source(tmp_path: Path):
    (tmp_path / "a_walk.bvh").symlink_to(tmp_path / "nowhere.bvh")
    write_bvh(CLIP, tmp_path / "b_walk.bvh")
    first = build(tmp_path, tmp_path / "out", workers=1)
    assert [clip.left_out[:12] for clip in first] == ["unreadable: ", ""]
    assert build(tmp_path, tmp_path / "out", workers=1) == first


def test_two_files_of_one_name_are_refused(tmp_path: Path):
    (tmp_path / "deeper").mkdir()
    write_bvh(CLIP, tmp_path / "a_walk.bvh")
    write_amass(CLIP, tmp_path / "deeper" / "a_walk.npz")
    with pytest.raises(ValueError, match="two files named a_walk"):
        build(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(ValueError, match=r"holds no \.bvh or \.npz files"):
        build(tmp_path, tmp_path / "out")
    assert main(["data", "build", str(tmp_path), str(tmp_path / "out")]) == 2
    assert main(["data", "build", str(tmp_path / "nowhere"), str(tmp_path / "out")]) == 2
    assert main(["data", "fetch", str(tmp_path), str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert "is not a folder" in errors[1]
    assert "build" in errors[2]


# --- people who are kept for something else


def test_people_whom_priors_are_judged_by_are_held_out(tmp_path: Path):
    write_bvh(CLIP, tmp_path / "02_01.bvh")
    write_bvh(CLIP, tmp_path / "05_01.bvh")
    # A user's own person 02 is nobody of CMU's.
    write_bvh(CLIP, tmp_path / "02_mine.bvh")
    held_out = {c.name: c.held_out for c in build(tmp_path, tmp_path / "out", workers=1)}
    assert held_out == {"02_01": True, "02_mine": False, "05_01": False}
    assert [c.name for c, _ in load(tmp_path / "out", held_out=True)] == ["02_01"]


def test_no_motion_of_theirs_is_in_training_under_another_name():
    table = cmu.clip_table()
    for name, info in table.items():
        names = {name, info.duplicate_of or name} | {n for n, other in table.items() if other.duplicate_of == name}
        judged = any(cmu.subject(n) in cmu.EVALUATION_SUBJECTS for n in names)
        assert info.for_evaluation >= judged
        if judged and cmu.subject(name) not in cmu.EVALUATION_SUBJECTS:
            assert info.left_out
    assert not table["05_01"].for_evaluation


# --- people on the ground


def test_people_who_lie_are_kept_and_lie_on_the_floor(tmp_path: Path):
    # Three seconds on the back, 30 cm above the file's origin.
    lie = rotvec_to_rotmat(np.array([-1.5, 0.0, 0.0]))
    q = np.repeat(LONG.q[:1], 90, axis=0)
    q[:, 0] = lie @ q[:, 0]
    flat = Motion.from_rotations(LONG.skeleton, 30.0, np.zeros((90, 3)), q)
    write_bvh(lifted(flat, np.full(90, 0.3)), tmp_path / "ann_lie.bvh")
    ((clip, motion),) = read_clips(tmp_path / "ann_lie.bvh")
    assert motion is not None
    assert (clip.frames, clip.low) == (90, 90)
    assert np.abs(sphere_heights(motion).min(-1)).max() < 0.02
    assert motion.joints[:, [0, 3, 6, 9, 15], 2].max() < 0.4


# --- loading


def test_loaded_clips_stand_on_the_floor_at_one_rate_with_their_contacts(built: Path):
    names = {side: {c.name for c, _ in load(built / "out", held_out=side)} for side in (None, True, False)}
    assert names == {None: set(KEPT), True: {"bob_jump"}, False: set(KEPT) - {"bob_jump"}}
    for clip, motion in load(built / "out"):
        assert (motion.fps, len(motion)) == (FPS, clip.frames)
        # The stepping clip's soles are on z = 0, and the files carry 1e-6.
        assert abs(float(sphere_heights(motion).min())) < 1e-5
        assert motion.touching is not None
        assert np.array_equal(motion.touching, label_contacts(motion))
        assert motion.touching[:, [10, 11]].any(-1).all()


def test_what_load_refuses(tmp_path: Path):
    with pytest.raises(ValueError, match=r"is not a data set .*`dropsim data build SRC"):
        load(tmp_path)
    write_bvh(CLIP, tmp_path / "ann_walk.bvh")
    build(tmp_path, tmp_path / "out", workers=1)
    with pytest.raises(ValueError, match="holds no clips of held-out people"):
        load(tmp_path / "out", held_out=True)
    listing = tmp_path / "out" / "index.json"
    for text in ("[]", '[{"name": "a"}]', "{", "7", '[{"name": "a", "new": 1}]'):
        listing.write_text(text)
        with pytest.raises(ValueError, match=r"holds no clips$|index\.json is damaged") as error:
            load(tmp_path / "out")
        assert "\n" not in str(error.value)
