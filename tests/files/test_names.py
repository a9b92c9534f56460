"""Mistyped names are answered with what was meant."""

import pytest

from dropsim.body.skeleton import JOINTS
from dropsim.files.names import nearest_name, suggestion


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("left_ankel", "left_ankle"),
        ("LeftAnkle", "left_ankle"),
        ("RIGHT-KNEE", "right_knee"),
        ("pelvsi", "pelvis"),
        ("xyzzy", None),
    ],
)
def test_the_nearest_joint(typed, meant):
    assert nearest_name(typed, JOINTS) == meant


def test_where_nothing_is_near_everything_is_listed():
    assert suggestion("xyzzy", ["walk", "run"]) == "use one of walk, run"
    assert suggestion("wlak", ["walk", "run"]) == "did you mean 'walk'?"
