"""Laws of non-negative least squares."""

from itertools import combinations

import numpy as np
import pytest
import scipy.optimize

from dropsim.body.rotations import normalize, plane_basis
from dropsim.body.skeleton import NUM_JOINTS
from dropsim.physics.nnls import check, solve

# The solver orthogonalises at most a few dozen columns, so it rounds by a few hundred units (2e-16) of |b| and of |f_j|
# c_j.
TOLERANCE = 1e-12


def nnls(F, b, *, ridge=0.0):
    """Solve one problem."""
    A, c = np.ascontiguousarray(F.T), np.zeros(F.shape[1])
    check(solve(A, np.ascontiguousarray(b), len(A), ridge, c))
    return c


def random_problem(rng, num_columns):
    return rng.standard_normal((6, num_columns)), rng.standard_normal(6)


def body_problem(rng, num_contacts, friction=0.8):
    """Contacts anywhere on a body, on floors, walls and other people; at one of them all columns depend on three others."""
    x = rng.standard_normal((NUM_JOINTS, 3)) * np.array([0.2, 0.2, 0.5])
    normals = normalize(0.3 * rng.standard_normal((num_contacts, 3)) + np.array([0.0, 0.0, 1.0]))
    points = x[rng.permutation(NUM_JOINTS)[:num_contacts]] - 0.05 * normals
    t = plane_basis(normals)[:, 0]
    s = np.cross(normals, t)
    edges = np.stack([normals / friction + way for way in (t, s, -t, -s)], 1)
    moments = np.cross(np.broadcast_to((points - x.mean(0))[:, None], edges.shape), edges)
    b = np.array([0.0, 0.0, 687.0, 0.0, 0.0, 0.0]) + rng.standard_normal(6) * np.array([200.0, 200, 400, 60, 60, 60])
    return np.concatenate((edges, moments), -1).reshape(-1, 6).T, b


def with_dependent_columns(F, b, rng):
    mix = rng.random((F.shape[1], F.shape[1]))
    return np.concatenate((F, F @ mix, 2 * F, -F[:, :1]), axis=1), b


def badly_scaled(F, b, rng):
    return F * 10.0 ** rng.uniform(-6, 6, F.shape[1]), 1e4 * b


def cases():
    """2450 problems: every kind of matrix at every size that the wrench has."""
    rng = np.random.default_rng(0)
    for i in range(350):
        yield "random", random_problem(rng, 1 + i % 88)
        yield "body", body_problem(rng, 1 + i % NUM_JOINTS)
        yield "body on two contacts", body_problem(rng, 2)
        yield "dependent", with_dependent_columns(*random_problem(rng, 1 + i % 8), rng)
        yield "badly scaled", badly_scaled(*random_problem(rng, 1 + i % 88), rng)
        yield "badly scaled body", badly_scaled(*body_problem(rng, 1 + i % NUM_JOINTS), rng)
        F, _ = body_problem(rng, 1 + i % NUM_JOINTS)
        yield "fits exactly", (F, F @ rng.random(F.shape[1]))


CASES = list(cases())


def assert_optimal(F, b, c, tolerance):
    # The conditions of Karush, Kuhn and Tucker, necessary and sufficient for this convex problem: c >= 0, no column
    # would still reduce the residual, and those in use are orthogonal to it. Rounding is measured by the lengths that
    # the residual is made of.
    assert (c >= 0).all()
    lengths = np.linalg.norm(F, axis=0)
    gradient = F.T @ (b - F @ c) / np.maximum(lengths * (np.linalg.norm(b) + lengths @ c), 1e-300)
    assert gradient.max() < tolerance
    assert (np.abs(gradient[c > 0]) < tolerance).all()


def test_solutions_satisfy_the_optimality_conditions():
    for _, (F, b) in CASES:
        assert_optimal(F, b, nnls(F, b), TOLERANCE)


def test_residuals_equal_scipys():
    # The residual of a convex problem is unique even where c is not. Both round at the scale of |b| and |f_j| c_j.
    for kind, (F, b) in CASES:
        c, theirs = nnls(F, b), scipy.optimize.nnls(F, b)[0]
        scale = np.linalg.norm(b) + np.linalg.norm(F, axis=0) @ (c + theirs)
        assert np.linalg.norm(F @ (c - theirs)) < 1e-9 * scale, kind


def test_it_finds_what_trying_every_support_finds(rng):
    # Some optimum uses at most six independent columns and is there the ordinary least-squares solution, so the best of
    # the non-negative least-squares solutions over all sets of up to six columns is the optimum.
    for num_columns in (1, 3, 5, 8):
        for _ in range(5):
            F, b = random_problem(rng, num_columns)
            best = np.linalg.norm(b)
            for size in range(1, min(6, num_columns) + 1):
                for columns in combinations(range(num_columns), size):
                    c = np.linalg.lstsq(F[:, columns], b, rcond=None)[0]
                    if (c >= 0).all():
                        best = min(best, np.linalg.norm(b - F[:, columns] @ c))
            assert np.linalg.norm(b - F @ nnls(F, b)) == pytest.approx(best, abs=1e-13)


def test_a_search_from_another_solution_ends_at_the_same(rng):
    # With a ridge the solution is unique, from wherever the search starts: off by the ridge's rounding.
    for _ in range(50):
        F, b = body_problem(rng, 4)
        A, c = np.ascontiguousarray(F.T), np.abs(nnls(F, b + 100 * rng.standard_normal(6), ridge=1e-3))
        check(solve(A, b, len(A), 1e-3, c))
        np.testing.assert_allclose(c, nnls(F, b, ridge=1e-3), rtol=0, atol=1e-6 * np.linalg.norm(b))


@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_nothing_asked_for_is_nothing_done(ridge, rng):
    F, b = random_problem(rng, 8)
    assert not nnls(F, np.zeros_like(b), ridge=ridge).any()
    assert not nnls(np.zeros_like(F), b, ridge=ridge).any()
    assert nnls(F[:, :0], b, ridge=ridge).shape == (0,)


def test_a_ridge_picks_the_smallest_solution_and_keeps_the_fit():
    # Friction cones of contacts with the floor never oppose each other, so |f_j| c_j is no larger than |b| and the
    # conditions are off by ridge^2 = 1e-12. F c itself moves by that over the square of the least singular value in
    # use, and smaller c never fits better.
    for kind, (F, b) in CASES:
        if kind in ("body", "body on two contacts", "fits exactly"):
            c, plain = nnls(F, b, ridge=1e-6), nnls(F, b)
            assert_optimal(F, b, c, 1e-11)
            assert np.linalg.norm(F @ (c - plain)) < 1e-8 * np.linalg.norm(b)
            assert np.linalg.norm(c) <= np.linalg.norm(plain) * (1 + 1e-6)


def test_a_ridge_spreads_the_load_over_equal_columns(rng):
    # By symmetry the smallest c has equal entries in equal columns. The ridge's system has the condition 1e6, which
    # costs six digits of sixteen where b can be fitted, and twice as many where it cannot.
    f = rng.random((6, 1))
    c = nnls(np.tile(f, 5), 10 * f[:, 0], ridge=1e-6)
    assert c == pytest.approx(2.0, rel=1e-9)
    c = nnls(np.tile(f, 5), 10 * rng.random(6), ridge=1e-6)
    assert c == pytest.approx(float(c.mean()), rel=1e-3)


def test_bad_input_is_refused(rng):
    F, b = random_problem(rng, 4)
    for bad in ((F, b * np.nan), (F * np.inf, b), (F, b * np.inf), (np.where(np.arange(4) == 2, np.nan, F), b)):
        with pytest.raises(ValueError, match="not finite"):
            nnls(*bad)


def test_equal_columns_do_not_take_turns_for_ever():
    # A foot that slides fast has each edge twice. These hardly help, so that rounding decides which of a pair does.
    rows = np.array(
        [
            (0.0, 0.0, 1.25, 0.19068518789594702, 0.2640906066032314, 0.0),
            (
                -0.5303882562109369,
                -0.8477548570627724,
                1.25,
                -0.6269208073633811,
                0.7756165677704381,
                0.2600170229967436,
            ),
            (0.0, 0.0, 1.25, 0.17631463876774944, 0.17027434532484725, 0.0),
            (
                -0.5303882562109369,
                -0.8477548570627724,
                1.25,
                -0.6412913564915786,
                0.6818003064920539,
                0.1902928936662487,
            ),
            (0.0, 0.0, 1.25, 0.25790591365608406, 0.2057851438968479, 0.0),
            (
                -0.5303882562109369,
                -0.8477548570627724,
                1.25,
                -0.559700081603244,
                0.7173111050640545,
                0.24899649844836258,
            ),
        ]
    )
    b = np.array(
        [
            -32.30852973474293,
            7.217230119772074,
            -4.715238915149264,
            -1.098960739152528,
            -9.36384179838249,
            2.9232274544294574,
        ]
    )
    F = rows.reshape(3, 1, 2, 6).repeat(2, 1).reshape(-1, 6).T
    assert_optimal(F, b, nnls(F, b, ridge=1e-6), 1e-10)
