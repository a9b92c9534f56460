"""Glitches that are found and mended, and feet that stand."""

from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.joints import joint_index
from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.motion.contacts import FEET, on_floor, sphere_heights
from dropsim.motion.feet import Tolerance, _drift_by, stances, standing
from dropsim.motion.glitches import ROOT, Glitch, find_glitches, without_glitches
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.motion_field import MotionField

STEPS = stepping_clip(4.0)
EXACT = Tolerance(0.0, 0.0)


def shifted(motion: Motion, shift: np.ndarray) -> Motion:
    return replace(motion, root=motion.root + shift, joints=motion.joints + shift[:, None])


def test_a_good_clip_has_no_glitches():
    assert find_glitches(STEPS) == []


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("joint", ["left_elbow", "spine2", "right_knee"])
def test_a_turned_joint_is_found_and_mended(joint: str, length: int):
    q, j = STEPS.q.copy(), joint_index(joint)
    q[40 : 40 + length, j] = q[40 : 40 + length, j] @ rotvec_to_rotmat(np.array([0.0, 0.7, 0.3]))
    spoilt = Motion.from_rotations(STEPS.skeleton, STEPS.fps, STEPS.root, q)
    (found,) = find_glitches(spoilt)
    assert (found.joint, found.start, found.stop) == (j, 40, 40 + length)
    assert found.size == pytest.approx(np.hypot(0.7, 0.3), rel=0.3)
    mended = without_glitches(spoilt, [found])
    # A cubic over six frames of a stepping person.
    assert np.linalg.norm(mended.joints - STEPS.joints, axis=-1).max() < 0.02
    keep = np.r_[0:40, 40 + length : len(STEPS)]
    np.testing.assert_array_equal(mended.q[keep], spoilt.q[keep])


def test_a_jump_of_the_whole_body():
    shift = np.zeros((len(STEPS), 3))
    shift[70:73] = (0.1, 0.0, 0.05)
    (found,) = find_glitches(shifted(STEPS, shift))
    assert (found.joint, found.start, found.stop) == (ROOT, 70, 73)
    assert found.described() == "frames 70 to 72: the pelvis jumps by 11 cm and back"
    assert Glitch(joint_index("head"), 5, 6, 0.5).described() == "frame 5: head turns by 29 degrees and back"
    assert np.linalg.norm(without_glitches(shifted(STEPS, shift), [found]).root - STEPS.root, axis=-1).max() < 0.01


def test_a_lasting_change_is_no_glitch():
    shift = np.zeros((len(STEPS), 3))
    shift[70:] = (0.1, 0.0, 0.0)
    assert find_glitches(shifted(STEPS, shift)) == []


def test_stances_of_somebody_who_steps_on_the_spot():
    found = stances(STEPS)
    assert {s.foot for s in found} == {0, 1}
    for s in found:
        assert s.slid < 0.01
        assert abs(s.lifted) < 0.01


def test_a_foot_that_is_at_two_heights_for_as_long_at_each_does_not_stand():
    # The median of its heights is between them, so no frame is near it.
    high = np.zeros((len(STEPS), 3))
    high[:, 2] = 0.024 * (np.arange(len(STEPS)) % 2)
    still = Motion.from_rotations(
        STEPS.skeleton, STEPS.fps, STEPS.root[:1] + high, np.repeat(STEPS.q[:1], len(STEPS), 0)
    )
    assert stances(still) == []


@pytest.mark.parametrize("height", [0.03, -0.03])
def test_floating_and_sinking_people_are_put_on_the_floor(height: float):
    shift = np.zeros((len(STEPS), 3))
    shift[:, 2] = height * np.clip(np.arange(len(STEPS)) / 30 - 1, 0, 1)
    cleaned, wrong = standing(shifted(STEPS, shift), EXACT)
    assert wrong
    held = np.zeros((len(STEPS), 2), bool)
    for s in stances(STEPS):
        held[s.start : s.stop, s.foot] = True
    assert np.abs(sphere_heights(cleaned)[:, FEET][held]).mean() < 0.001
    assert np.linalg.norm(cleaned.joints - STEPS.joints, axis=-1).mean() < 0.01


def test_a_drift_is_taken_off_the_path():
    shift = np.zeros((len(STEPS), 3))
    shift[:, 0] = 0.15 * np.arange(len(STEPS)) / STEPS.fps
    spoilt = shifted(STEPS, shift)
    cleaned, _ = standing(spoilt, EXACT)
    # 60 cm at the end become centimetres.
    assert np.linalg.norm(cleaned.joints - STEPS.joints, axis=-1).mean() < 0.03
    for s in stances(cleaned):
        path = cleaned.joints[s.start : s.stop, FEET[s.foot], :2]
        assert np.linalg.norm(path - path.mean(0), axis=-1).max() < 0.005


def test_short_runs_lose_their_sliding():
    # Recorded runs of less than two seconds, pushed to the side at 0.2 m/s: a runner's foot is hardly ever still.
    bank = MotionField.shipped().bank
    runs = [bank.motion(i) for i, clip in enumerate(bank.clips) if "run" in clip.tags and clip.frames < 60][:12]
    before, after = [], []
    for run in runs:
        shift = np.zeros((len(run), 3))
        shift[:, 0] = 0.2 * np.arange(len(run)) / run.fps
        spoilt = shifted(run, shift)
        slow = np.linalg.norm(run.velocity()[:, FEET], axis=-1) < 0.6
        low = slow & (sphere_heights(run)[:, FEET] < 0.03)
        cleaned, _ = standing(spoilt, Tolerance(0.005, 0.002))
        before.append(np.linalg.norm(spoilt.velocity()[:, FEET][low], axis=-1).mean())
        after.append(np.linalg.norm(cleaned.velocity()[:, FEET][low], axis=-1).mean())
    assert np.mean(after) < 0.5 * np.mean(before)


def test_a_drift_that_turns_is_followed():
    # Round a circle of 25 cm in 8 s: 20 cm/s, and 0 on average.
    steps = on_floor(stepping_clip(8.0))
    angle = 2 * np.pi * np.arange(len(steps)) / len(steps)
    circle = 0.25 * np.stack((np.cos(angle) - 1, np.sin(angle), 0 * angle), axis=-1)
    cleaned, _ = standing(shifted(steps, circle), EXACT)
    # What is left is the chord of what the person does within the window: a fifth.
    assert np.linalg.norm(cleaned.joints - steps.joints, axis=-1).mean() < 0.2 * np.linalg.norm(circle, axis=-1).mean()


def test_feet_that_creep_along_with_a_walk_are_no_drift():
    # 2 cm/s at 1 m/s: good recordings have it.
    v = np.full((90, 2), (0.02, 0.0))
    assert not _drift_by(v, np.arange(90), 90, 22.0).any()


def test_arms_and_trunk_stay_as_they_are_on_the_pelvis():
    shift = np.zeros((len(STEPS), 3))
    shift[:, 1] = 0.02 * np.sin(np.arange(len(STEPS)) / 5)
    cleaned, _ = standing(shifted(STEPS, shift), EXACT)
    above = [j for j in range(22) if j not in (0, 1, 2, 4, 5, 7, 8, 10, 11)]
    np.testing.assert_allclose(cleaned.q[:, above], STEPS.q[:, above], rtol=0, atol=1e-9)


def test_a_foot_that_comes_down_does_not_stand_yet():
    for s in stances(STEPS):
        height = sphere_heights(STEPS)[s.start : s.stop, FEET[s.foot]]
        assert abs(height[0] - np.median(height)) < 0.01
        assert abs(height[-1] - np.median(height)) < 0.01


def test_straight_legs_stay_straight():
    # Standing on straight legs and sliding to the side: the pelvis follows the feet, so the knees hardly bend.
    rest = np.broadcast_to(np.eye(3), (60, 22, 3, 3)).copy()
    rest[:, 0] = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    slide = np.zeros((60, 3))
    slide[:, 2] = STEPS.skeleton.standing_height
    slide[:, 0] = 0.01 * np.sin(np.arange(60) / 10)
    person = Motion.from_rotations(STEPS.skeleton, 30.0, slide, rest)
    cleaned, _ = standing(person, EXACT)
    legs = np.linalg.norm(cleaned.joints[:, (7, 8)] - cleaned.joints[:, (1, 2)], axis=-1)
    assert legs.min() > 0.98 * STEPS.skeleton.leg_length
    toes = cleaned.joints[:, FEET]
    assert np.linalg.norm(toes - toes[:1], axis=-1).max() < 0.002
