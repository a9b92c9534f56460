"""Laws of the swing-twist split, of the heading and of the exponential map."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from dropsim.body import kinematics
from dropsim.body.rotations import (
    apply,
    exp,
    heading,
    log_small,
    normalize,
    rotmat_to_rotvec,
    rotmat_to_unitquat,
    rotvec_to_rotmat,
    slerp_rotmat,
    swing,
    transpose,
    twist_about,
    unitquat_to_rotmat,
)

EPS = np.finfo(np.float64).eps
# An entry of a swing sums four terms of up to 4, so it rounds by a few units in the last place; a product of two such
# matrices sums three products of those. 32 units cover every law below.
TOLERANCE = 32 * EPS

vectors = arrays("float64", 3, elements=st.floats(-1, 1, allow_subnormal=False)).filter(lambda v: (v**2).sum() > 1e-6)


def assert_rotation(R):
    # R R^T = I and det R = 1.
    assert np.abs(R @ transpose(R) - np.eye(3)).max() < TOLERANCE
    assert np.abs(np.linalg.det(R) - 1).max() < TOLERANCE


@given(vectors, vectors)
def test_swing_takes_a_to_b_by_the_least_rotation(a, b):
    a, b = normalize(a), normalize(b)
    R = swing(a, b)
    assert_rotation(R)
    assert np.linalg.norm(R @ a - b) < TOLERANCE
    # The least rotation turns by the angle between them: trace R = 1 + 2 cos.
    assert abs(np.trace(R) - (1 + 2 * (a @ b))) < 2 * TOLERANCE


@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
def test_swing_is_exact_on_both_sides_of_parallel(rng, off):
    # However near b is to a or to -a, R a = b to rounding: nothing is lost where the bisector or the axis vanishes.
    a = normalize(rng.standard_normal((1000, 3)))
    for sign in (1, -1):
        b = normalize(sign * a + off * rng.standard_normal((1000, 3)))
        R = swing(a, b)
        assert_rotation(R)
        assert np.linalg.norm(apply(R, a) - b, axis=-1).max() < TOLERANCE


def test_swing_ignores_lengths(rng):
    # Directions only: scaling by powers of two is exact in floating point, so the answer may not change by a bit.
    a, b = rng.standard_normal((2, 100, 3))
    assert np.array_equal(swing(4 * a, b / 8), swing(a, b))


def test_rotation_is_swing_times_twist(random_rotations, rng):
    # R = S T with T a = a and S the least rotation taking a to R a.
    R, a = random_rotations(1000), normalize(rng.standard_normal((1000, 3)))
    T = twist_about(R, a)
    assert_rotation(T)
    assert np.linalg.norm(apply(T, a) - a, axis=-1).max() < TOLERANCE
    assert np.abs(swing(a, apply(R, a)) @ T - R).max() < TOLERANCE


def test_heading_turns_the_right_hand_side_to_x(random_rotations):
    # The body's right, -R x, has its horizontal part along +x after the turn, and the turn keeps z.
    R = random_rotations(1000)
    H = heading(R)
    assert_rotation(H)
    right = -(H @ R)[..., 0]
    assert np.abs(right[:, 1]).max() < TOLERANCE
    assert (right[:, 0] > 0).all()
    assert np.array_equal(H[:, :, 2], np.broadcast_to([0.0, 0.0, 1.0], (1000, 3)))


def test_heading_of_someone_on_their_side_is_finite():
    # The right-hand side points straight up: no direction is better than another, and none may be NaN.
    on_side = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    assert np.array_equal(heading(on_side), np.eye(3))


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-8, 1e-5, 1e-2, 0.099, 0.101, 0.999, 1.001, 3.0])
def test_rotation_vectors_go_there_and_back(rng, angle):
    # At any angle, small ones and the borders of the kernel's series included, exp is scipy's, and the logarithms undo
    # it.
    rotvec = angle * normalize(rng.standard_normal((100, 3)))
    R = rotvec_to_rotmat(rotvec)
    assert_rotation(R)
    assert np.abs(R - Rotation.from_rotvec(rotvec).as_matrix()).max() < TOLERANCE
    # Near half a turn the sine in the logarithm is small: 3 rad has 0.14, which costs a factor of 7.
    assert np.abs(rotmat_to_rotvec(R) - rotvec).max() < 10 * TOLERANCE
    assert np.abs(log_small(R) - rotvec).max() < 10 * TOLERANCE
    found = np.empty((100, 3, 3))
    for i in range(100):
        kinematics.exp(*rotvec[i], found[i])
        assert np.abs(np.array(kinematics.log_small(R[i])) - rotvec[i]).max() < 10 * TOLERANCE
    assert np.abs(found - R).max() < TOLERANCE


def test_quaternions_go_there_and_back(random_rotations):
    R = random_rotations(5, 20)
    quaternions = rotmat_to_unitquat(R)
    assert quaternions.shape == (5, 20, 4)
    assert np.abs(unitquat_to_rotmat(quaternions) - R).max() < TOLERANCE
    # (x, y, z, w): no turn is (0, 0, 0, 1).
    assert np.array_equal(rotmat_to_unitquat(np.eye(3)), [0.0, 0.0, 0.0, 1.0])


def test_slerp_goes_a_share_of_the_shortest_way(random_rotations, rng):
    # From a by the turn w: a share s of the way is a exp(s w), for any |w| below half a turn.
    a, w = random_rotations(50), 2.5 * normalize(rng.standard_normal((50, 3)))
    for share in (0.0, 0.3, 1.0):
        assert np.abs(slerp_rotmat(a, a @ exp(w), share) - a @ exp(share * w)).max() < 10 * TOLERANCE
    each = rng.random(50)
    assert np.abs(slerp_rotmat(a, a @ exp(w), each) - a @ exp(each[:, None] * w)).max() < 10 * TOLERANCE
