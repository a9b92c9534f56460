"""Laws of the swing-twist split and of the heading."""

import pytest
import roma
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dropsim.body.rotations import heading, normalize, perpendicular, swing, twist_about

EPS = {torch.float32: torch.finfo(torch.float32).eps, torch.float64: torch.finfo(torch.float64).eps}
DTYPES = pytest.mark.parametrize("dtype", EPS, ids=str)
# An entry of a swing sums four terms of up to 4, so it rounds by a few units in the last place; a product of two such matrices sums three
# products of those. 32 units cover every law below.
ULPS = 32

vectors = arrays("float64", 3, elements=st.floats(-1, 1, allow_subnormal=False)).filter(lambda v: (v**2).sum() > 1e-6)


def apply(rotation, vector):
    return (rotation @ vector.unsqueeze(-1)).squeeze(-1)


def assert_rotation(R):
    # R R^T = I and det R = 1.
    tolerance = ULPS * EPS[R.dtype]
    assert (R @ R.transpose(-1, -2) - torch.eye(3, dtype=R.dtype)).abs().max() < tolerance
    assert (torch.linalg.det(R) - 1).abs().max() < tolerance


@given(vectors, vectors)
def test_swing_takes_a_to_b_by_the_least_rotation(a, b):
    a, b = normalize(torch.from_numpy(a)), normalize(torch.from_numpy(b))
    R = swing(a, b)
    assert_rotation(R)
    assert (apply(R, a) - b).norm() < ULPS * EPS[torch.float64]
    # The least rotation turns by the angle between them: trace R = 1 + 2 cos.
    assert abs(torch.trace(R) - (1 + 2 * (a @ b))) < 2 * ULPS * EPS[torch.float64]


@DTYPES
@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
def test_swing_is_exact_on_both_sides_of_parallel(rng, dtype, off):
    # However near b is to a or to -a, R a = b to rounding: nothing is lost where the bisector or the axis vanishes.
    a = normalize(torch.randn(1000, 3, generator=rng, dtype=torch.float64))
    for sign in (1, -1):
        b = normalize(sign * a + off * torch.randn(1000, 3, generator=rng, dtype=torch.float64))
        R = swing(a.to(dtype), b.to(dtype))
        assert_rotation(R)
        assert (apply(R, a.to(dtype)) - b.to(dtype)).norm(dim=-1).max() < ULPS * EPS[dtype]


def test_swing_ignores_lengths(rng):
    # Directions only: scaling by powers of two is exact in floating point, so the answer may not change by a bit.
    a, b = torch.randn(2, 100, 3, generator=rng, dtype=torch.float64)
    assert torch.equal(swing(4 * a, b / 8), swing(a, b))


def test_swing_leaves_a_collapsed_bone_alone():
    # A bone of length zero has no direction: no rotation is the least one.
    a = torch.tensor([0.0, 1.0, 0.0])
    assert torch.equal(swing(a, torch.zeros(3)), torch.eye(3))


@DTYPES
def test_rotation_is_swing_times_twist(random_rotations, rng, dtype):
    # R = S T with T a = a and S the least rotation taking a to R a.
    R = random_rotations(1000).to(dtype)
    a = normalize(torch.randn(1000, 3, generator=rng, dtype=torch.float64)).to(dtype)
    T = twist_about(R, a)
    assert_rotation(T)
    assert (apply(T, a) - a).norm(dim=-1).max() < ULPS * EPS[dtype]
    assert (swing(a, apply(R, a)) @ T - R).abs().max() < ULPS * EPS[dtype]


@given(vectors, st.floats(-3.1, 3.1))
def test_twist_of_a_pure_twist_is_itself(axis, angle):
    a = normalize(torch.from_numpy(axis))
    R = roma.rotvec_to_rotmat(angle * a)
    assert (twist_about(R, a) - R).abs().max() < ULPS * EPS[torch.float64]


def test_batch_equals_loop(random_rotations, rng):
    # Leading dimensions are independent: any batch gives what a loop gives. Kernels may sum in another order, hence the rounding.
    R = random_rotations(2, 3)
    a, b = torch.randn(2, 2, 3, 3, generator=rng, dtype=torch.float64)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(swing(a, b)[i, j], swing(a[i, j], b[i, j]), rtol=0, atol=1e-15)
            torch.testing.assert_close(twist_about(R, a)[i, j], twist_about(R[i, j], a[i, j]), rtol=0, atol=1e-15)
            torch.testing.assert_close(heading(R)[i, j], heading(R[i, j]), rtol=0, atol=1e-15)


def test_one_axis_serves_a_batch(random_rotations):
    # Broadcasting: a shared axis equals the same axis repeated.
    R, axis = random_rotations(4, 5), torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.equal(twist_about(R, axis), twist_about(R, axis.expand(4, 5, 3)))


@given(vectors)
def test_perpendicular_is_a_unit_normal(v):
    a = normalize(torch.from_numpy(v))
    p = perpendicular(a)
    assert abs(p @ a) < 4 * EPS[torch.float64]
    assert abs(p.norm() - 1) < 4 * EPS[torch.float64]


def test_heading_turns_the_right_hand_side_to_x(random_rotations):
    # The body's right, -R x, has its horizontal part along +x after the turn, and the turn keeps z.
    R = random_rotations(1000)
    H = heading(R)
    assert_rotation(H)
    right = -(H @ R)[..., 0]
    assert right[:, 1].abs().max() < ULPS * EPS[torch.float64]
    assert (right[:, 0] > 0).all()
    assert torch.equal(H[:, :, 2], torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(1000, 3))


def test_heading_undoes_a_turn_about_z(random_rotations):
    # heading(Z R) Z = heading(R): where the world was turned, the heading turns back.
    R = random_rotations(100)
    Z = roma.rotvec_to_rotmat(torch.tensor([0.0, 0.0, 0.7], dtype=torch.float64))
    torch.testing.assert_close(heading(Z @ R) @ Z, heading(R), rtol=0, atol=1e-13)


def test_heading_of_someone_on_their_side_is_finite():
    # The right-hand side points straight up: no direction is better than another, and none may be NaN.
    on_side = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    assert torch.equal(heading(on_side), torch.eye(3))
