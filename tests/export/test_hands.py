"""Hands on the ground."""

from itertools import pairwise

import numpy as np
import pytest

from dropsim.body.mesh import Body
from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton, joint_index
from dropsim.export.hands import lifted_hands
from dropsim.physics.contact import Plane

BODY = Skeleton.adult()
WRIST = joint_index("left_wrist")


def hanging(height: float) -> tuple[np.ndarray, np.ndarray]:
    """Somebody whose left arm hangs straight down, with the wrist this high."""
    q = np.tile(np.eye(3), (22, 1, 1))
    q[0] = exp(np.array([np.pi / 2, 0.0, 0.0]))
    q[joint_index("left_shoulder")] = exp(np.array([0.0, 0.0, -np.pi / 2]))
    x = BODY.forward(q, np.zeros(3))
    x[:, 2] += height - x[WRIST, 2]
    return q, x


def lowest_of_hand(q: np.ndarray, x: np.ndarray) -> float:
    """Of the skin that hangs on the left wrist alone [m]."""
    body = Body.shipped()
    return float(body.skinned(q, x)[body.blend[:, WRIST] == 1, 2].min())


@pytest.mark.parametrize("height", [0.03, 0.06, 0.12])
def test_a_hand_bends_out_of_the_ground(height):
    q, x = hanging(height)
    found = lifted_hands(q, x, BODY, Plane.ground())
    assert lowest_of_hand(q, x) < -0.04
    assert lowest_of_hand(found, x) > 0.0
    # In the rest pose the palm faces down, -y: it turns down and not up.
    assert BODY.global_rotations(found)[WRIST][2, 1] > 0.0
    np.testing.assert_allclose(BODY.forward(found, x[0]), x, rtol=0, atol=1e-9)
    others = [j for j in range(22) if j != WRIST]
    np.testing.assert_array_equal(found[others], q[others])


def test_a_hand_bends_steadily_as_its_fingers_cross_the_vertical():
    q, x = hanging(0.03)
    found = []
    for angle in np.linspace(-0.4, 0.4, 41):
        turned = q.copy()
        turned[WRIST] = exp(np.array([0.0, 0.0, angle]))
        found.append(lifted_hands(turned, x, BODY, Plane.ground())[WRIST])
    steps = [float(np.linalg.norm(b - a)) for a, b in pairwise(found)]
    assert 0.01 < max(steps) < 0.3


@pytest.mark.parametrize("height", [0.5, -2.0])
def test_a_hand_in_the_air_or_on_another_ground_stays_as_it_is(height):
    # Far below is somebody on a lower ground: a slope that the file does not know of.
    q, x = hanging(height)
    assert lifted_hands(q, x, BODY, Plane.ground()) is q


def test_the_ground_may_tilt_and_there_may_be_many_frames():
    q, x = hanging(0.03)
    normal = np.array([-0.5, 0.0, 0.75**0.5])
    zero = np.zeros(3)
    slope = Plane(normal, np.asarray(x[WRIST] @ normal - 0.03), zero, zero, zero)
    level = Plane.ground()
    found = lifted_hands(np.stack((q, q)), np.stack((x, x)), BODY, Plane.stacked([level, slope]))
    for frame, plane in enumerate((level, slope)):
        np.testing.assert_allclose(found[frame], lifted_hands(q, x, BODY, plane), rtol=0, atol=1e-12)
    assert not np.allclose(found[0], found[1])
