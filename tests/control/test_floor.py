"""Tests of what people do with the ground: how deep they crouch."""

import numpy as np
import pytest

from dropsim.control.floor import CROUCHING, STRIDE, crouch
from dropsim.priors.intent import Intent

H = 1 / 30


def test_people_who_walk_crouch_less_deep():
    intent = Intent(np.array([[0.0, 0.0], [0.0, 1.0]]), np.full((2, 2), np.nan), np.full(2, 0.3))
    crouched, depths = None, [np.zeros(2)]
    for _ in range(60):
        crouched = crouch(crouched, intent, 1.0, H)
        assert crouched is not None
        depths.append(crouched[:, 0])
    # They go down and no further, and what drives a critically damped spring at most is its first pull.
    assert np.diff(depths, axis=0).min() >= 0.0
    assert np.abs(np.diff(depths, n=2, axis=0)).max() <= 1.01 * depths[-1].max() * (H / CROUCHING) ** 2
    assert depths[-1][0] - depths[-1][1] == pytest.approx(STRIDE * 1.0, abs=1e-3)
