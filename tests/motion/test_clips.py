"""The data set: categories, faults, and a build that reports, resumes, does nothing twice and never crashes on a file."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dropsim.apps.cli import main
from dropsim.body.skeleton import Skeleton
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.bvh import write_bvh
from dropsim.motion.clips import CATEGORIES, FPS, Clip, build, category_of, fault_of, load, report
from dropsim.motion.contacts import label_contacts, sphere_heights
from dropsim.motion.motion import Motion, cmu
from dropsim.motion.synthetic import stepping_clip

CLIP = stepping_clip(2.0)


def lifted(motion: Motion, height: torch.Tensor) -> Motion:
    """Lift every frame by its height [m]."""
    by = torch.nn.functional.pad(height.double().unsqueeze(-1), (2, 0))
    return replace(motion, root=motion.root + by, joints=motion.joints + by.unsqueeze(1))


def frames(motion: Motion, *ranges: tuple[float, float], value: float) -> torch.Tensor:
    """A height per frame: the value between some times [s], else 0."""
    time = torch.arange(len(motion)) / motion.fps
    inside = torch.zeros(len(motion), dtype=torch.bool)
    for start, stop in ranges:
        inside |= (time >= start - 1e-6) & (time < stop - 1e-6)
    return value * inside.double()


# --- categories


@pytest.mark.parametrize(
    ("description", "category"),
    [
        ("walk", "walk"),
        ("Walk, veer left", "turn"),
        ("DRAGBADLEGWALK", "walk"),
        ("run/jog", "run"),
        ("startrun", "run"),
        ("forward jump", "jump"),
        ("backflip", "jump"),
        ("salsa dance", "dance"),
        ("get up from ground laying on back", "get up"),
        ("lie down", "get up"),
        ("roll on the side", "get up"),
        ("boxing", "sport"),
        ("picking up a box", "crouch"),
        ("bow", "crouch"),
        ("walk 90 degree turn", "turn"),
        ("stand still", "stand"),
        ("", "other"),
        ("chicken", "other"),
        # Words inside words, each of them in CMU's table or close to it.
        ("playing the piano", "other"),
        ("swordplay", "sport"),
        ("alien", "other"),
        ("flying", "other"),
        ("drunk walk", "walk"),
        ("a stroll", "walk"),
        ("chopping", "other"),
        ("shopping", "other"),
        ("elbow to shoulder", "other"),
        ("walk with avoidance", "walk"),
        ("footfalls", "other"),
    ],
)
def test_categories_from_descriptions(description: str, category: str):
    assert category_of(description) == category


def test_every_category_occurs_in_the_table():
    found = {category_of(info.description) for info in cmu.clip_table().values()}
    assert found == {name for name, _ in CATEGORIES} | {"other"}


# --- faults


def test_a_good_clip_has_no_fault():
    assert fault_of(CLIP) == ""
    # Flights of 0.8 s are jumps, and 12 cm for a moment is a marker that slipped.
    assert fault_of(lifted(CLIP, frames(CLIP, (0.5, 1.3), value=0.3))) == ""
    assert fault_of(lifted(CLIP, frames(CLIP, (0.5, 0.7), value=-0.2))) == ""


@pytest.mark.parametrize(
    ("motion", "reason"),
    [
        # 30 frames last 29/30 s.
        pytest.param(CLIP.slice(0, 30), "shorter than 1 s", id="short"),
        pytest.param(CLIP.slice(0, 1), "shorter than 1 s", id="one frame"),
        pytest.param(lifted(CLIP, frames(CLIP, (1.0, 9.0), value=0.51)), "glitch: a joint jumps", id="jump"),
        pytest.param(lifted(CLIP, frames(CLIP, (0.5, 1.5), value=0.3)), "not flat: stands on something", id="floating"),
        pytest.param(lifted(CLIP, frames(CLIP, (0.5, 0.9), value=-0.2)), "not flat: goes below its floor", id="sinking"),
    ],
)
def test_every_fault_has_its_reason(motion: Motion, reason: str):
    assert fault_of(motion) == reason


def test_one_joint_that_jumps_is_enough():
    joints = CLIP.joints.clone()
    joints[20, 21] += torch.tensor([0.0, 0.0, 0.6])
    assert fault_of(replace(CLIP, joints=joints)) == "glitch: a joint jumps"


def test_flights_do_not_add_up():
    # Twice 0.6 s off the floor, with a step between them.
    long = stepping_clip(4.0)
    assert fault_of(lifted(long, frames(long, (0.5, 1.1), (1.5, 2.1), value=0.3))) == ""


# --- building


def known_clip(wanted: Callable[[cmu.ClipInfo], bool], *, flat: bool = True) -> str:
    return next(name for name, info in cmu.clip_table().items() if wanted(info) and (cmu.subject(name) not in cmu.NOT_FLAT) == flat)


GLITCH = known_clip(lambda info: info.glitch)
DUPLICATE = known_clip(lambda info: info.is_duplicate and not info.glitch)
PLAYGROUND = known_clip(lambda info: not info.is_duplicate and not info.glitch, flat=False)
CHAIR = known_clip(lambda info: "chair" in info.description.partition("(")[0] and not info.is_duplicate and not info.glitch)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three people: good files of both kinds and sizes, and one of everything that is left out."""
    folder = tmp_path / "source"
    (folder / "deeper").mkdir(parents=True)
    write_bvh(lifted(CLIP, torch.full((len(CLIP),), 0.3)), folder / "ann_walk.bvh")
    write_amass(stepping_clip(3.0, fps=60.0), folder / "deeper" / "ann_run.npz")
    write_bvh(stepping_clip(1.5), folder / "deeper" / "bob_jump.BVH", unit=0.01)
    write_bvh(stepping_clip(0.5), folder / "bob_short.bvh")
    write_amass(lifted(CLIP, frames(CLIP, (1.0, 9.0), value=0.6)), folder / "cat_glitch.npz")
    (folder / "cat_empty.bvh").write_text("")
    (folder / "cat_text.npz").write_text("not an archive")
    (folder / "cat_alien.bvh").write_text((folder / "ann_walk.bvh").read_text().replace("left_knee", "tentacle"))
    np.savez(folder / "cat_pickle.npz", poses=np.array([{"a": 1}], dtype=object), trans=np.zeros((1, 3)), mocap_framerate=30.0)
    for name in (GLITCH, DUPLICATE, PLAYGROUND, CHAIR):
        (folder / f"{name}.bvh").write_text("not read at all")
    (folder / "readme.txt").write_text("neither is this")
    return folder


KEPT = {"ann_walk": 60, "ann_run": 90, "bob_jump": 45}
"""Frames at 30 Hz: 3 s at 60 Hz are 179 steps of 1/60 s, so 89 of 1/30 s."""


def snapshot(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("*")) if p.is_file()}


def counting(calls: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda count, total: calls.append((count, total))


def test_build_keeps_what_is_good_and_says_why_the_rest_is_not(source: Path, tmp_path: Path):
    out, calls = tmp_path / "out", list[tuple[int, int]]()
    clips = {c.name: c for c in build(source, out, held_out=["bob"], workers=1, progress=counting(calls))}
    assert sorted(clips) == sorted(p.stem for p in source.rglob("*") if p.suffix.lower() in (".bvh", ".npz"))
    assert calls == [(i, 13) for i in range(1, 14)]
    assert {name: c.frames for name, c in clips.items() if not c.left_out} == KEPT
    assert {c.person for c in clips.values() if c.held_out} == {"bob"}
    assert (clips["ann_walk"].category, clips["ann_run"].category, clips["bob_jump"].category) == ("walk", "run", "jump")
    reasons = {name: c.left_out for name, c in clips.items() if c.left_out}
    assert reasons["bob_short"] == "shorter than 1 s"
    assert reasons["cat_glitch"] == "glitch: a joint jumps"
    assert reasons[GLITCH] == "glitch: marked in CMU's table"
    assert reasons[DUPLICATE] == f"duplicate of {cmu.clip_table()[DUPLICATE].duplicate_of}"
    assert reasons[PLAYGROUND].startswith("not flat: this person's")
    assert reasons[CHAIR] == "not flat: leans or sits on something unseen"
    for name, words in {
        "cat_empty": "empty or cut off",
        "cat_text": "not an npz",
        "cat_alien": "left_knee",
        "cat_pickle": "pickled",
    }.items():
        assert reasons[name].startswith("unreadable: ")
        assert words in reasons[name]
        assert "\n" not in reasons[name]
    assert sorted(p.stem for p in (out / "clips").iterdir()) == sorted(KEPT)


def test_built_clips_stand_on_the_floor_at_one_rate_with_their_contacts(source: Path, tmp_path: Path):
    build(source, tmp_path / "out", workers=1)
    for clip, motion in load(tmp_path / "out"):
        assert (motion.fps, len(motion)) == (FPS, clip.frames)
        # The stepping clip's soles are on z = 0, and the files carry 1e-6.
        assert abs(float(sphere_heights(motion).min())) < 1e-5
        assert motion.contacts is not None
        assert torch.equal(motion.contacts, label_contacts(motion))
        assert motion.contacts[:, [10, 11]].any(-1).all()


def test_the_report_counts_what_there_is(source: Path, tmp_path: Path):
    build(source, tmp_path / "out", held_out=["bob"], workers=1)
    text = (tmp_path / "out" / "report.md").read_text()
    # 195 frames at 30 Hz are 0.0018 h; bob's 45 are 0.025 min.
    assert "3 clips, 0.00 h at 30 Hz, 2 people; 10 clips left out." in text
    assert "Held out: bob (0.0 min)." in text
    assert "| walk | 1 | 0.0 |" in text
    assert "- unreadable: 4\n" in text
    assert "- glitch: 2\n" in text
    assert "- not flat: 2\n" in text
    assert "- cat_glitch: glitch: a joint jumps\n" in text
    hours = [Clip("a_1", "a", "walk", 108_000, False), Clip("a_2", "a", "walk", 54_000, False), Clip("b_1", "b", "run", 1800, True)]
    text = report([*hours, Clip("c_1", "c", "run", 900, True, "glitch: x")])
    assert "3 clips, 1.52 h at 30 Hz, 2 people; 1 clips left out." in text
    assert "Held out: b (1.0 min)." in text
    assert "| walk | 2 | 90.0 |" in text
    assert "Held out: nobody (0.0 min)." in report(hours[:2])


def test_a_second_run_does_nothing(source: Path, tmp_path: Path):
    out, calls = tmp_path / "out", list[tuple[int, int]]()
    first = build(source, out, workers=1)
    before = snapshot(out)
    assert build(source, out, workers=1, progress=counting(calls)) == first
    assert calls == []
    assert snapshot(out) == before


def test_only_what_is_new_is_built(source: Path, tmp_path: Path):
    out, calls = tmp_path / "out", list[tuple[int, int]]()
    build(source, out, workers=1)
    before = snapshot(out / "clips")
    write_bvh(CLIP, source / "dan_walk.bvh")
    clips = build(source, out, held_out=["ann"], workers=1, progress=counting(calls))
    assert calls == [(1, 1)]
    after = snapshot(out / "clips")
    assert {k: v for k, v in after.items() if k != "dan_walk.npz"} == before
    # The split is made anew every time, without touching the clips.
    assert {c.person for c in clips if c.held_out} == {"ann"}
    assert {c.person for c, _ in load(out, held_out=True)} == {"ann"}


@pytest.mark.parametrize("cut", [1, 30])
def test_a_killed_run_goes_on_where_it_was(source: Path, tmp_path: Path, cut: int):
    out, calls = tmp_path / "out", list[tuple[int, int]]()
    whole = build(source, out, workers=1)
    # The kill came while the last line of the journal was being written, before the index.
    journal = out / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines() if line]
    last = json.loads(lines[-1])["name"]
    journal.write_text("\n".join(lines)[:-cut])
    (out / "index.json").unlink()
    before = snapshot(out / "clips")
    assert build(source, out, workers=1, progress=counting(calls)) == whole
    assert calls == [(1, 1)]
    assert {k: v for k, v in snapshot(out / "clips").items() if k != f"{last}.npz"} == {
        k: v for k, v in before.items() if k != f"{last}.npz"
    }
    # What the second run wrote behind the half line counts.
    assert build(source, out, workers=1, progress=counting(calls)) == whole
    assert calls == [(1, 1)]


def test_a_clip_that_somebody_deleted_is_made_again(source: Path, tmp_path: Path):
    out, calls = tmp_path / "out", list[tuple[int, int]]()
    build(source, out, workers=1)
    (out / "clips" / "ann_walk.npz").unlink()
    build(source, out, workers=1, progress=counting(calls))
    assert calls == [(1, 1)]
    assert (out / "clips" / "ann_walk.npz").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_listed(tmp_path: Path):
    write_bvh(CLIP, tmp_path / "a_walk.bvh")
    (tmp_path / "a_walk.bvh").chmod(0)
    (clip,) = build(tmp_path, tmp_path / "out", workers=1)
    assert "Permission" in clip.left_out


def test_a_file_that_is_gone_is_listed(tmp_path: Path):
    (tmp_path / "a_walk.bvh").symlink_to(tmp_path / "nowhere.bvh")
    (clip,) = build(tmp_path, tmp_path / "out", workers=1)
    assert clip.left_out.startswith("unreadable: ")


def test_the_output_may_lie_inside_the_source(tmp_path: Path):
    write_bvh(CLIP, tmp_path / "a_walk.bvh")
    first = build(tmp_path, tmp_path / "out", workers=1)
    assert [c.name for c in first] == ["a_walk"]
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
    assert "data build" in errors[2]


# --- loading


def test_load_takes_sides(source: Path, tmp_path: Path):
    build(source, tmp_path / "out", held_out=["bob"], workers=1)
    names = {side: {c.name for c, _ in load(tmp_path / "out", held_out=side)} for side in (None, True, False)}
    assert names == {None: set(KEPT), True: {"bob_jump"}, False: {"ann_walk", "ann_run"}}
    (clip, motion), *_ = load(tmp_path / "out", held_out=True)
    assert torch.equal(motion.joints, read_amass(tmp_path / "out" / "clips" / "bob_jump.npz", Skeleton.adult()).joints)
    assert clip.frames == len(motion)


def test_what_load_refuses(source: Path, tmp_path: Path):
    with pytest.raises(ValueError, match=r"is not a data set .*`dropsim data build SRC"):
        load(tmp_path)
    build(source, tmp_path / "out", workers=1)
    with pytest.raises(ValueError, match="holds no clips of held-out people"):
        load(tmp_path / "out", held_out=True)
    index = tmp_path / "out" / "index.json"
    for text in ("[]", '[{"name": "a"}]', "{", "7", '[{"name": "a", "new": 1}]'):
        index.write_text(text)
        with pytest.raises(ValueError, match=r"holds no clips$|index\.json is damaged") as error:
            load(tmp_path / "out")
        assert "\n" not in str(error.value)
