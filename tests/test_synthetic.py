"""The stepping clip looks human: feet stand still on the ground, knees bend to the front, arms swing against the legs."""

import pytest
import torch

from dropsim.rotations import heading
from dropsim.skeleton import joint_index
from dropsim.synthetic import CADENCE, LIFT, stepping_clip

CLIP = stepping_clip(4.0, 30.0)
SIDES = pytest.mark.parametrize(("side", "other"), [("left", "right"), ("right", "left")])


def track(name):
    return CLIP.joints[:, joint_index(name)]


def test_length_and_rate():
    assert len(CLIP) == 120
    assert len(stepping_clip(0.5, 120.0)) == 60


def test_the_lowest_sphere_touches_the_ground_in_every_frame():
    # By construction, to rounding: a foot is always planted and nothing is ever below it.
    lowest = (CLIP.joints[..., 2] - CLIP.skeleton.radii).amin(dim=-1)
    assert lowest.abs().max() < 1e-12


@SIDES
def test_a_planted_foot_stands_still(side, other):
    # A foot is up for half of its cycle; in the other half neither the heel nor the ball of the foot moves, to rounding.
    ankle, foot = track(f"{side}_ankle"), track(f"{side}_foot")
    planted = ankle[:, 2] < ankle[:, 2].min() + 1e-9
    assert 0.4 < planted.double().mean() < 0.6
    for part in (ankle, foot):
        assert (part[planted] - part[planted][0]).norm(dim=-1).max() < 1e-9
    # The foot in the air reaches its height, to what a sample every 1/30 s can miss of sin^2 at its top.
    missed = (torch.pi * CADENCE / 30) ** 2
    assert LIFT * (1 - missed) - 1e-9 <= float(ankle[:, 2].max() - ankle[:, 2].min()) <= LIFT + 1e-9


@SIDES
def test_knees_bend_to_the_front(side, other):
    # The person faces +y: the knee is in front of the line from hip to ankle.
    hip, knee, ankle = (track(f"{side}_{part}") for part in ("hip", "knee", "ankle"))
    assert (knee[:, 1] > torch.maximum(hip[:, 1], ankle[:, 1]) + 0.01).all()


@SIDES
def test_arms_swing_against_the_legs(side, other):
    # When this foot is at its highest, the hand of the other side is in front of this side's.
    highest = track(f"{side}_ankle")[:, 2].argmax()
    assert track(f"{other}_wrist")[highest, 1] > track(f"{side}_wrist")[highest, 1] + 0.2
    # Hands hang below the shoulders and outside of the hips.
    assert (track(f"{side}_wrist")[:, 2] < track(f"{side}_shoulder")[:, 2]).all()
    assert (track(f"{side}_wrist")[:, 0].abs() > track(f"{side}_hip")[:, 0].abs() + 0.05).all()


def test_it_stands_upright_and_faces_y():
    assert torch.allclose(heading(CLIP.q[:, 0]), torch.eye(3, dtype=torch.float64), atol=1e-12)
    assert (track("head")[:, 2] > 1.4).all()
    # Left is -x for someone who faces +y with z up.
    assert (track("left_shoulder")[:, 0] < track("right_shoulder")[:, 0]).all()


def test_it_moves_smoothly():
    # Steps of 0.14 m at 0.9 Hz: d/dt of LIFT sin^2 is at most LIFT 2 pi CADENCE = 0.8 m/s; the swinging hand stays below 3 m/s.
    assert CLIP.velocity().norm(dim=-1).max() < 3.0


@pytest.mark.parametrize(("seconds", "fps"), [(0.0, 30.0), (-1.0, 30.0), (1.0, 0.0), (float("inf"), 30.0), (float("nan"), 30.0)])
def test_nonsense_is_refused(seconds, fps):
    with pytest.raises(ValueError, match="two positive numbers"):
        stepping_clip(seconds, fps)
