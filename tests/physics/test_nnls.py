"""Laws of non-negative least squares."""

from itertools import combinations

import numpy as np
import pytest
import scipy.optimize
import torch

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.physics.nnls import nnls
from dropsim.physics.wrench import Contacts, wrench_problem

# The solver orthogonalises at most a few dozen columns, so it rounds by a few hundred units (2e-16) of |b| and of |f_j| c_j.
TOLERANCE = 1e-12


def random_problem(rng, num_columns):
    return torch.randn(6, num_columns, generator=rng, dtype=torch.float64), torch.randn(6, generator=rng, dtype=torch.float64)


def body_problem(rng, num_contacts):
    """Contacts anywhere on a body, on floors, walls and other people; at one of them all columns depend on three others."""
    x = torch.randn(NUM_JOINTS, 3, generator=rng, dtype=torch.float64) * torch.tensor([0.2, 0.2, 0.5], dtype=torch.float64)
    normals = torch.randn(NUM_JOINTS, 3, generator=rng, dtype=torch.float64) * 0.3
    normals[:, 2] += 1
    touching = torch.zeros(NUM_JOINTS, dtype=torch.bool)
    touching[torch.randperm(NUM_JOINTS, generator=rng)[:num_contacts]] = True
    masses = torch.full((NUM_JOINTS,), 70 / 22, dtype=torch.float64)
    normals = normals / normals.norm(dim=-1, keepdim=True)
    problem = wrench_problem(x, torch.zeros_like(x), Contacts(touching, x - 0.05 * normals, normals), masses=masses, h=1 / 30)
    b = torch.tensor([0.0, 0.0, 687.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    b = b + torch.randn(6, generator=rng, dtype=torch.float64) * torch.tensor([200.0, 200, 400, 60, 60, 60], dtype=torch.float64)
    return problem.F[:, touching.repeat_interleave(4)], b


def with_dependent_columns(F, b, rng):
    mix = torch.rand(F.shape[1], F.shape[1], generator=rng, dtype=torch.float64)
    return torch.cat((F, F @ mix, 2 * F, -F[:, :1]), dim=1), b


def badly_scaled(F, b, rng):
    return F * 10.0 ** torch.empty(F.shape[1], dtype=torch.float64).uniform_(-6, 6, generator=rng), 1e4 * b


def cases():
    """2450 problems: every kind of matrix at every size that the wrench has."""
    rng = torch.Generator().manual_seed(0)
    for i in range(350):
        yield "random", random_problem(rng, 1 + i % 88)
        yield "body", body_problem(rng, 1 + i % NUM_JOINTS)
        yield "body on two contacts", body_problem(rng, 2)
        yield "dependent", with_dependent_columns(*random_problem(rng, 1 + i % 8), rng)
        yield "badly scaled", badly_scaled(*random_problem(rng, 1 + i % 88), rng)
        yield "badly scaled body", badly_scaled(*body_problem(rng, 1 + i % NUM_JOINTS), rng)
        F, _ = body_problem(rng, 1 + i % NUM_JOINTS)
        yield "fits exactly", (F, F @ torch.rand(F.shape[1], generator=rng, dtype=torch.float64))


CASES = list(cases())


def assert_optimal(F, b, c, tolerance):
    # The conditions of Karush, Kuhn and Tucker, necessary and sufficient for this convex problem: c >= 0, no column would still reduce
    # the residual, and those in use are orthogonal to it. Rounding is measured by the lengths that the residual is made of.
    assert (c >= 0).all()
    lengths = F.norm(dim=0)
    gradient = F.T @ (b - F @ c) / (lengths * (b.norm() + lengths @ c)).clamp_min(1e-300)
    assert gradient.max() < tolerance
    assert (gradient[c > 0].abs() < tolerance).all()


def test_solutions_satisfy_the_optimality_conditions():
    for _, (F, b) in CASES:
        assert_optimal(F, b, nnls(F, b), TOLERANCE)


def test_residuals_equal_scipys():
    # The residual of a convex problem is unique even where c is not. Both round at the scale of |b| and |f_j| c_j.
    for kind, (F, b) in CASES:
        c = nnls(F, b)
        theirs = torch.from_numpy(scipy.optimize.nnls(F.numpy(), b.numpy())[0])
        scale = b.norm() + F.norm(dim=0) @ (c + theirs)
        assert (F @ (c - theirs)).norm() < 1e-9 * scale, kind


def test_it_finds_what_trying_every_support_finds(rng):
    # Some optimum uses at most six independent columns and is there the ordinary least-squares solution, so the best of the non-negative
    # least-squares solutions over all sets of up to six columns is the optimum.
    for num_columns in (1, 3, 5, 8):
        for _ in range(5):
            F, b = (part.numpy() for part in random_problem(rng, num_columns))
            best = np.linalg.norm(b)
            for size in range(1, min(6, num_columns) + 1):
                for columns in combinations(range(num_columns), size):
                    c = np.linalg.lstsq(F[:, columns], b, rcond=None)[0]
                    if (c >= 0).all():
                        best = min(best, np.linalg.norm(b - F[:, columns] @ c))
            ours = nnls(torch.from_numpy(F), torch.from_numpy(b)).numpy()
            assert np.linalg.norm(b - F @ ours) == pytest.approx(best, abs=1e-13)


def test_inactive_columns_stay_zero_and_do_not_matter(rng):
    F, b = torch.randn(40, 6, 88, generator=rng, dtype=torch.float64), torch.randn(40, 6, generator=rng, dtype=torch.float64)
    active = torch.rand(40, 88, generator=rng) < torch.linspace(0, 1, 40)[:, None]
    c = nnls(F, b, active)
    assert (c[~active] == 0).all()
    assert (c[0] == 0).all()
    for i in range(40):
        assert torch.equal(c[i, active[i]], nnls(F[i][:, active[i]], b[i]))


def test_batch_equals_loop(rng):
    # One problem after the other, so to the last bit.
    F, b = torch.randn(3, 4, 6, 16, generator=rng, dtype=torch.float64), torch.randn(3, 4, 6, generator=rng, dtype=torch.float64)
    c = nnls(F, b)
    assert all(torch.equal(c[i, j], nnls(F[i, j], b[i, j])) for i in range(3) for j in range(4))


@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_nothing_asked_for_is_nothing_done(ridge, rng):
    F, b = random_problem(rng, 8)
    assert torch.equal(nnls(F, torch.zeros_like(b), ridge=ridge), torch.zeros(8, dtype=torch.float64))
    assert torch.equal(nnls(torch.zeros_like(F), b, ridge=ridge), torch.zeros(8, dtype=torch.float64))
    assert nnls(F[:, :0], b, ridge=ridge).shape == (0,)
    assert nnls(F.expand(0, 6, 8), b.expand(0, 6), ridge=ridge).shape == (0, 8)


def test_a_ridge_picks_the_smallest_solution_and_keeps_the_fit():
    # Friction cones of contacts with the floor never oppose each other, so |f_j| c_j is no larger than |b| and the conditions are off by
    # ridge^2 = 1e-12. F c itself moves by that over the square of the least singular value in use, and smaller c never fits better.
    for kind, (F, b) in CASES:
        if kind in ("body", "body on two contacts", "fits exactly"):
            c, plain = nnls(F, b, ridge=1e-6), nnls(F, b)
            assert_optimal(F, b, c, 1e-11)
            assert (F @ (c - plain)).norm() < 1e-8 * b.norm()
            assert c.norm() <= plain.norm() * (1 + 1e-6)


def test_a_ridge_spreads_the_load_over_equal_columns(rng):
    # By symmetry the smallest c has equal entries in equal columns. The ridge's system has the condition 1e6, which costs six digits of
    # sixteen where b can be fitted, and twice as many where it cannot.
    f = torch.rand(6, 1, generator=rng, dtype=torch.float64)
    c = nnls(f.expand(6, 5), 10 * f.squeeze(), ridge=1e-6)
    assert c.numpy() == pytest.approx(2.0, rel=1e-9)
    c = nnls(f.expand(6, 5), 10 * torch.rand(6, generator=rng, dtype=torch.float64), ridge=1e-6)
    assert c.numpy() == pytest.approx(float(c.mean()), rel=1e-3)


def test_other_precisions_are_solved_in_double(rng):
    F, b = random_problem(rng, 12)
    assert torch.equal(nnls(F.float(), b.float()), nnls(F.float().double(), b.float().double()))


def test_bad_input_is_refused(rng):
    F, b = random_problem(rng, 4)
    with pytest.raises(ValueError, match="not finite"):
        nnls(F, b * torch.nan)
    with pytest.raises(ValueError, match="not finite"):
        nnls(F * torch.inf, b)
    with pytest.raises(ValueError, match="negative"):
        nnls(F, b, ridge=-1.0)
