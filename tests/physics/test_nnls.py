"""Laws of non-negative least squares."""

import numpy as np
import pytest
import scipy.optimize

from dropsim.body.rotations import normalize, plane_basis
from dropsim.body.skeleton import NUM_JOINTS
from dropsim.physics.nnls import solve

# Rounding over the square of the ridge, 1e-16 / 1e-8, and a condition of the columns in use of some hundred.
TOLERANCE = 2e-5


def nnls(F, b):
    """Solve one problem."""
    c = np.zeros(F.shape[1])
    solve(np.ascontiguousarray(F.T), np.ascontiguousarray(b), F.shape[1], c)
    return c


def body_problem(rng, num_contacts, friction=0.8):
    """Contacts anywhere on a body, on floors, walls and other people; at one of them all columns depend on three others."""
    x = rng.standard_normal((NUM_JOINTS, 3)) * np.array([0.2, 0.2, 0.5])
    normals = normalize(0.3 * rng.standard_normal((num_contacts, 3)) + np.array([0.0, 0.0, 1.0]))
    points = x[rng.permutation(NUM_JOINTS)[:num_contacts]] - 0.05 * normals
    t = plane_basis(normals)[:, 0]
    s = np.cross(normals, t)
    edges = np.stack([normals / friction + way for way in (t, s, -t, -s)], 1)
    moments = np.cross(np.broadcast_to((points - x.mean(0))[:, None], edges.shape), edges) / 0.4
    b = np.array([0.0, 0.0, 687.0, 0.0, 0.0, 0.0]) + rng.standard_normal(6) * np.array([200.0, 200, 400, 60, 60, 60])
    return np.concatenate((edges, moments), -1).reshape(-1, 6).T, b


def cases():
    """198 problems: contacts of a body, with columns that depend on others, with a rest and without."""
    rng = np.random.default_rng(0)
    for i in range(66):
        F, b = body_problem(rng, 1 + i % NUM_JOINTS)
        yield "body", F, b
        yield "equal columns", np.concatenate((F, F[:, :3], F[:, :1] + F[:, 1:2]), 1), b
        yield "fits exactly", F, F @ rng.random(F.shape[1])


def test_solutions_are_those_of_scipy_and_satisfy_the_optimality_conditions():
    # The rest of a convex problem is unique even where c is not. The conditions of Karush, Kuhn and Tucker are
    # necessary and sufficient: c >= 0, no column would still reduce the rest, and those in use are orthogonal to it.
    for kind, F, b in cases():
        c, size = nnls(F, b), np.linalg.norm(b)
        assert np.linalg.norm(F @ (c - scipy.optimize.nnls(F, b)[0])) < TOLERANCE * size, kind
        gradient = F.T @ (b - F @ c) / np.linalg.norm(F, axis=0)
        assert (c >= 0).all()
        assert gradient.max() < TOLERANCE * size
        assert np.abs(gradient[c > 0]).max(initial=0.0) < TOLERANCE * size


def test_nothing_asked_for_is_nothing_done(rng):
    F, b = body_problem(rng, 2)
    for problem in ((F, 0 * b), (0 * F, b), (F[:, :0], b)):
        assert not nnls(*problem).any()


def test_the_load_is_spread_over_equal_columns(rng):
    # By symmetry the smallest c has equal entries in equal columns.
    f = rng.random((6, 1))
    assert nnls(np.tile(f, 5), 10 * f[:, 0]) == pytest.approx(2.0, rel=1e-6)
    c = nnls(np.tile(f, 5), 10 * rng.random(6))
    assert c == pytest.approx(float(c.mean()), rel=1e-9)


def test_equal_columns_do_not_take_turns_for_ever():
    # A foot that slides fast has each edge twice. These hardly help, so that rounding decides which of a pair does.
    moments = [(0.191, 0.264, 0.0), (0.176, 0.170, 0.0), (0.258, 0.206, 0.0)]
    moments = [(moment, np.add(moment, (-0.818, 0.511, 0.267))) for moment in moments]
    forces = ((0.0, 0.0, 1.25), (-0.530, -0.848, 1.25))
    columns = [np.concatenate(part) for pair in moments for part in zip(forces, pair, strict=True)]
    F, b = np.repeat(np.array(columns), 2, 0).T, np.array([-32.3, 7.2, -4.7, -1.1, -9.4, 2.9])
    assert np.linalg.norm(F @ (nnls(F, b) - scipy.optimize.nnls(F, b)[0])) < TOLERANCE * np.linalg.norm(b)
