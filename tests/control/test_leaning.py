"""Leaning against a load."""

import numpy as np
import pytest

from dropsim.body.skeleton import joint_index
from dropsim.control.leaning import HAND_OUT, SHARE, lean_against, leaning
from dropsim.motion.synthetic import stepping_clip
from dropsim.priors.prior import Candidates, State

CLIP = stepping_clip(0.5)
PEOPLE = State(CLIP.joints[:3], np.zeros_like(CLIP.joints[:3]), CLIP.q[:3], np.zeros((3, 0)))
HEAD, LEFT, RIGHT = (joint_index(name) for name in ("head", "left_hip", "right_hip"))


def test_trunks_lean_to_the_left_and_bones_keep_their_lengths():
    lean = 0.2
    x, q = CLIP.joints[:3], CLIP.q[:3]
    found = leaning(np.full(3, lean), PEOPLE).change(Candidates(x[:, None], q[:, None], np.zeros((3, 1, 0))))
    assert CLIP.skeleton.bone_error(found.x).max() < 1e-9
    np.testing.assert_allclose(CLIP.skeleton.forward(found.q, found.x[..., 0, :]), found.x, atol=1e-9)
    left = x[:, LEFT] - x[:, RIGHT]
    assert (((found.x[:, 0, HEAD] - x[:, HEAD]) * left).sum(-1) > 0).all()
    np.testing.assert_array_equal(found.x[:, 0, [LEFT, RIGHT, 7, 8]], x[:, [LEFT, RIGHT, 7, 8]])


def test_the_prior_is_asked_about_people_who_stand_upright():
    x, q = CLIP.joints[:3], CLIP.q[:3]
    stage = leaning(np.full(3, 0.2), PEOPLE)
    tilted = stage.change(Candidates(x[:, None], q[:, None], np.zeros((3, 1, 0))))
    asked = stage.query(State(tilted.x[:, 0], np.zeros_like(x), tilted.q[:, 0], np.zeros((3, 0))))
    np.testing.assert_allclose(asked.x, x, atol=1e-12)
    np.testing.assert_allclose(asked.q, q, atol=1e-12)


def test_the_trunk_makes_up_for_its_share_of_a_loads_moment():
    # Moments about the waist: SHARE m_load arm = M_trunk h tan(lean), so twice the load needs twice the tangent.
    one, two = (np.tan(lean_against(mass, CLIP.skeleton)) for mass in (5.0, 10.0))
    assert two == pytest.approx(2 * one)
    assert SHARE * HAND_OUT > 0
