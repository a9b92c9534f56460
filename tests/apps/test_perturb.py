"""Recordings with a body: cleaned, or followed until a push; and the two commands that do it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dropsim.apps.cli import main
from dropsim.body.skeleton import Skeleton
from dropsim.control.following import Planted
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.bvh import BvhFile, read_bvh, write_bvh
from dropsim.motion.motion import Motion
from dropsim.motion.reading import read_recording
from dropsim.motion.synthetic import somersault_clip, stepping_clip
from dropsim.physics import metrics
from dropsim.physics.contact import Plane, solids
from dropsim.physics.energy import Frame
from dropsim.physics.step import Simulator
from dropsim.scene import Push, Scene
from dropsim.scene.cleaning import checked, clean, continued, perturb, quality_of

STEPS = stepping_clip(1.2)
WORST, SPEED = (
    "distance from the recording, mean of the worst frame [cm]",
    "speed of the feet that the recording has on the floor [m/s]",
)


def spoilt(motion: Motion) -> Motion:
    """A recording that skates to the side at 0.1 m/s and has one foot 2 cm in the floor."""
    shift = np.zeros((len(motion), 3))
    shift[:, 0] = 0.1 * np.arange(len(motion)) / motion.fps
    shift[:, 2] = -0.02
    return replace(motion, root=motion.root + shift, joints=motion.joints + shift[:, None])


# --- cleaning


def test_what_is_in_order_stays_as_it_is():
    # The clip's feet stand by construction.
    cleaned = clean(STEPS, strength="gentle")
    np.testing.assert_array_equal(cleaned.motion.q, STEPS.q)
    np.testing.assert_array_equal(cleaned.motion.root, STEPS.root)
    assert not cleaned.glitches
    assert not cleaned.stances


def test_a_spoilt_recording_gets_better():
    bad = spoilt(STEPS)
    cleaned = clean(bad)
    before, after = (quality_of(m, bad, standing=cleaned.standing) for m in (bad, cleaned.motion))
    assert before["penetration [mm]"] == pytest.approx(15.0)  # 20 mm less the 5 mm that are let pass
    assert after["penetration [mm]"] < 0.5
    assert after["depth of standing feet in the floor [mm]"] < 1.0
    assert after["height of standing feet above the floor [mm]"] < 1.0
    assert before[SPEED] == pytest.approx(0.1, abs=0.02)
    assert after[SPEED] < 0.25 * before[SPEED]
    assert after["root wrench, median [body weights]"] < before["root wrench, median [body weights]"] + 0.02
    assert np.linalg.norm(cleaned.motion.joints - STEPS.joints, axis=-1).mean() < 0.03
    assert float(metrics.bone_error_percent(cleaned.motion)) < 0.01


def test_a_flight_is_no_stance():
    flip = somersault_clip(2.4).slice(30, 72)
    assert quality_of(clean(flip).motion, flip)[WORST] < 3.0


def test_the_floor_is_found():
    # A recording that stands 0.3 m too high is put onto z = 0; one that already stands there is left as it is, to the
    # bit.
    up = np.array([0.0, 0.0, 0.3])
    high = replace(STEPS, root=STEPS.root + up, joints=STEPS.joints + up)
    np.testing.assert_allclose(checked(high).joints, STEPS.joints, rtol=0, atol=1e-9)
    assert checked(STEPS) is STEPS


def test_planted_feet_stay_within_their_slack():
    # On the floor the target is where the foot is up to the slack, and beyond it the recording less the slack; in the
    # air it is idle.
    skeleton, energy, feet = Skeleton.adult(), Planted(slack=0.02), list(metrics.FEET)
    x, level = STEPS.joints[:1], solids((Plane.ground(),), (1,))

    def target(shift):
        return energy.project(x, Frame(skeleton, 1 / 30, x, x, STEPS.q[:1], (x + shift)[:, None], level))

    for off, expected in ((0.01, 0.0), (0.05, 0.03)):
        low = np.maximum(x[0, feet, 2] - skeleton.radii[feet], 0)
        slack = 0.02 * (1 - low / energy.gap)
        moved = (target((off, 0.0, 0.0)).p - x[:, feet])[0, :, 0]
        np.testing.assert_allclose(moved, np.maximum(off - slack, 0), rtol=0, atol=1e-12)
        assert moved.max() < expected + 0.02
    idle = target((0.0, 0.0, 0.2)).active
    assert idle is not None
    assert not idle.any()


# --- perturbing


def test_the_recording_is_followed_until_the_push():
    scene = Scene(elements=(Push.toward("left", 300.0, start=0.5, duration=0.3),))
    shoved = perturb(STEPS, scene, Simulator.shipped(num_samples=4), handover=0.5, seconds=1.0, seed=0)
    assert len(shoved) == 30
    assert quality_of(shoved.slice(0, 16), STEPS.slice(0, 16))[WORST] < 3.0
    # 300 N for 0.3 s on 70 kg: without ground 0.5 s later it would be 0.5 m to the left (-x); legs resist.
    assert shoved.joints[-1, 9, 0] < STEPS.joints[29, 9, 0] - 0.05
    assert [event.name for event in shoved.events] == ["push torso"]
    # Forces of frame i are those that led to it: from frame 16 on, for nine frames, 300 N each.
    total = shoved.external_forces.sum(1)[:, 0]
    np.testing.assert_allclose(total, [0.0] * 16 + [-300.0] * 9 + [0.0] * 5)


# --- the commands


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "steps.npz"
    write_amass(STEPS.slice(0, 24), path)
    return path


def test_clean_writes_what_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture):
    pytest.importorskip("matplotlib")
    write_amass(spoilt(STEPS), tmp_path / "in.npz")
    for name in ("clean.csv", "clean.npz"):
        assert main(["clean", str(tmp_path / "in.npz"), str(tmp_path / name), "--report", str(tmp_path / "r.md")]) == 0
        assert (tmp_path / name).exists()
    text, said = (tmp_path / "r.md").read_text(), capsys.readouterr().out
    for measure in ("measure | before | after |", "foot skate", "penetration", "float", "jerk", "root wrench, median"):
        assert f"| {measure}" in said
        assert f"| {measure}" in text
    assert "left foot, 0.00 to" in text
    assert (tmp_path / "r.png").stat().st_size > 10_000
    assert len(read_amass(tmp_path / "clean.npz", Skeleton.adult())) == len(STEPS)


def values_of(path: Path) -> np.ndarray:
    file = read_bvh(path).file
    assert isinstance(file, BvhFile)
    return file.values


def test_a_bvh_file_comes_back_on_its_own_rig(tmp_path: Path):
    write_bvh(STEPS, tmp_path / "in.bvh", up="z", unit=0.01)
    assert main(["clean", str(tmp_path / "in.bvh"), str(tmp_path / "out.bvh"), "--strength", "gentle"]) == 0
    np.testing.assert_array_equal(values_of(tmp_path / "out.bvh"), values_of(tmp_path / "in.bvh"))


def test_a_folder_is_cleaned_file_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    write_bvh(spoilt(STEPS), tmp_path / "in" / "deep" / "a.bvh")
    write_amass(STEPS, tmp_path / "in" / "b.npz")
    assert main(["clean", str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.*")) == ["a.bvh", "b.npz"]

    def failing(path: Path, *args: object, **options: object) -> object:
        return 1 / 0 if path.stem == "a" else read_recording(path, *args, **options)

    # Whatever is wrong with one file, the others are cleaned.
    (tmp_path / "in" / "c.bvh").write_text("nothing")
    monkeypatch.setattr("dropsim.motion.reading.read_recording", failing)
    assert main(["clean", str(tmp_path / "in"), str(tmp_path / "new")]) == 2
    assert "2 of 3 files could not be cleaned: c.bvh, a.bvh" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["b.npz"]


def test_a_pushed_bvh_file_is_the_same_before_the_push(tmp_path: Path):
    write_bvh(STEPS, tmp_path / "in.bvh")
    options = "--at 0.5 --seconds 1.5 --samples 4 --prior cvae --no-picture --out"
    assert main(["perturb", str(tmp_path / "in.bvh"), *options.split(), str(tmp_path)]) == 0
    before, after = values_of(tmp_path / "in.bvh"), values_of(tmp_path / "in_pushed.bvh")
    # The push begins at frame 15; the simulation is longer than the recording.
    assert len(after) == 45 > len(before)
    np.testing.assert_array_equal(after[:16], before[:16])
    assert np.abs(after[16:] - after[15]).max() > 1.0


def test_a_simulation_goes_on_from_the_recording_without_a_jump():
    shift = np.array([0.02, 0.0, 0.0])
    off = replace(STEPS, root=STEPS.root + shift, joints=STEPS.joints + shift)
    both = continued(STEPS, off, 0.5)
    np.testing.assert_array_equal(both.joints[:16], STEPS.joints[:16])
    # The offset halves every 0.1 s, that is three frames.
    np.testing.assert_allclose(both.root[18] - STEPS.root[18], shift / 2, rtol=0, atol=1e-12)


def test_perturb_writes_four_files(clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "out"
    options = "--at 0.4 --duration 0.2 --newtons 200 --seconds 0.8 --samples 4 --prior cvae --out"
    assert main(["perturb", str(clip), *options.split(), str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        f"steps_pushed.{ending}" for ending in ("bvh", "md", "npz", "png")
    ]
    text = (out / "steps_pushed.md").read_text()
    assert text.strip() in capsys.readouterr().out
    assert "| measure | recording | followed |" in text
    assert len(read_amass(out / "steps_pushed.npz", Skeleton.adult())) == 24


def test_left_is_the_persons_own(tmp_path: Path):
    # A recording turned about z is pushed along with it: the force has the same direction beside the hips.
    c, s = np.cos(2.0), np.sin(2.0)
    R = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    q = np.concatenate((R @ STEPS.q[:, :1], STEPS.q[:, 1:]), axis=1)
    turned = Motion.from_rotations(STEPS.skeleton, STEPS.fps, STEPS.root @ R.T, q)
    write_amass(turned.slice(0, 20), tmp_path / "turned.npz")
    options = "--at 0.3 --seconds 0.5 --samples 2 --prior cvae --no-picture --out"
    assert main(["perturb", str(tmp_path / "turned.npz"), *options.split(), str(tmp_path)]) == 0
    with np.load(tmp_path / "turned_pushed.npz") as file:
        force = file["external_forces"][12].astype(float).sum(0)
    left = turned.joints[9, 1] - turned.joints[9, 2]
    assert force @ left > 0.99 * np.linalg.norm(force) * np.linalg.norm(left)
