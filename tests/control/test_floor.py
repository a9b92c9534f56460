"""Tests of what people do with the ground: how deep they crouch."""

import numpy as np
import pytest

from dropsim.control.floor import CROUCHING, STRIDE, crouch
from dropsim.priors.intent import Intent

H = 1 / 30


def test_people_who_walk_crouch_less_deep():
    intent = Intent(np.array([[0.0, 0.0], [0.0, 1.0]]), np.full((2, 2), np.nan), np.full(2, 0.3))
    depth, depths = None, [np.zeros(2)]
    for _ in range(60):
        depth = crouch(depth, intent, 1.0, H)
        assert depth is not None
        depths.append(depth)
    assert np.diff(depths, axis=0).max() <= CROUCHING * H + 1e-12
    assert depths[-1][0] - depths[-1][1] == pytest.approx(STRIDE * 1.0)
