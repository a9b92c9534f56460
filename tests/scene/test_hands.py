"""Hands on the ground."""

from itertools import pairwise

import pytest
import torch

from dropsim.body.mesh import Body
from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton, joint_index
from dropsim.physics.collider import Plane
from dropsim.scene.hands import lifted_hands

BODY = Skeleton.adult()
WRIST = joint_index("left_wrist")


def hanging(height: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Somebody whose left arm hangs straight down, with the wrist this high."""
    q = torch.eye(3, dtype=torch.float64).repeat(22, 1, 1)
    q[0] = exp(torch.tensor([torch.pi / 2, 0.0, 0.0], dtype=torch.float64))
    q[joint_index("left_shoulder")] = exp(torch.tensor([0.0, 0.0, -torch.pi / 2], dtype=torch.float64))
    x = BODY.forward(q, torch.zeros(3, dtype=torch.float64))
    x[:, 2] += height - x[WRIST, 2]
    return q, x


def lowest_of_hand(q: torch.Tensor, x: torch.Tensor) -> float:
    """Of the skin that hangs on the left wrist alone [m]."""
    body = Body.shipped()
    held = ((body.weights == 1) & (body.joints == WRIST)).any(-1)
    return float(body.skinned(q, x)[held, 2].min())


@pytest.mark.parametrize("height", [0.03, 0.06, 0.12])
def test_a_hand_bends_out_of_the_ground(height):
    q, x = hanging(height)
    found = lifted_hands(q, x, BODY, Plane.ground())
    assert lowest_of_hand(q, x) < -0.04
    assert lowest_of_hand(found, x) > 0.0
    torch.testing.assert_close(BODY.forward(found, x[0]), x, rtol=0, atol=1e-9)
    others = [j for j in range(22) if j != WRIST]
    assert torch.equal(found[others], q[others])


def test_a_hand_bends_steadily_as_its_fingers_cross_the_vertical():
    q, x = hanging(0.03)
    found = []
    for angle in torch.linspace(-0.4, 0.4, 41, dtype=torch.float64):
        turned = q.clone()
        turned[WRIST] = exp(torch.tensor([0.0, 0.0, float(angle)], dtype=torch.float64))
        found.append(lifted_hands(turned, x, BODY, Plane.ground())[WRIST])
    steps = [float((b - a).norm()) for a, b in pairwise(found)]
    assert 0.01 < max(steps) < 0.3


def test_the_palm_turns_down_and_not_up():
    q, x = hanging(0.03)
    found = lifted_hands(q, x, BODY, Plane.ground())
    # In the rest pose the palm faces down, -y.
    assert BODY.global_rotations(found)[WRIST][2, 1] > 0.8


def test_a_hand_in_the_air_stays_as_it_is():
    q, x = hanging(0.5)
    assert lifted_hands(q, x, BODY, Plane.ground()) is q


def test_the_ground_may_tilt_and_there_may_be_many_frames():
    q, x = hanging(0.03)
    normal = torch.tensor([-0.5, 0.0, 0.75**0.5], dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    slope = Plane(normal, (x[WRIST] * normal).sum() - 0.03, zero, zero, zero)
    level = Plane.ground()
    found = lifted_hands(torch.stack((q, q)), torch.stack((x, x)), BODY, Plane.stacked([level, slope]))
    for frame, plane in enumerate((level, slope)):
        torch.testing.assert_close(found[frame], lifted_hands(q, x, BODY, plane))
    assert not torch.allclose(found[0], found[1])
