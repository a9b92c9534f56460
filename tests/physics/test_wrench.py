"""Laws of the root wrench, of its soft correction and of cylinder inertia."""

import math
from dataclasses import replace

import pytest
import roma
import torch

from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import FACING_Y, stepping_clip
from dropsim.physics.wrench import (
    GRAVITY,
    Contacts,
    WrenchOptions,
    contact_basis,
    contact_fit,
    cylinder_angular_rate,
    momentum_map,
    root_wrench,
    root_wrench_of_motion,
    soft_correction,
    wrench_problem,
)

H = 1 / 30
SKELETON = Skeleton.adult()
WEIGHT = GRAVITY * float(SKELETON.masses.sum())
G = torch.tensor([0.0, 0.0, -GRAVITY], dtype=torch.float64)
UP = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
FEET = [7, 8, 10, 11]
# Rates are differences of terms m x / h^2 of about 7e4 kg/s^2 times metres: 66 of them round by about 66 * 2e-16 * 7e4 = 1e-9 N.
NEWTON = 1e-8
# The ridge that spreads the load leaves the fit off by 1e-10 of the demand (test_nnls); demands here are up to 1e4 N.
FIT = 1e-6


def standing_pose():
    q = torch.eye(3, dtype=torch.float64).repeat(NUM_JOINTS, 1, 1)
    q[0] = torch.tensor(FACING_Y, dtype=torch.float64)
    return q, torch.tensor([0.0, 0.0, SKELETON.standing_height], dtype=torch.float64)


def standing():
    return SKELETON.forward(*standing_pose())


def touching(*joints):
    mask = torch.zeros(NUM_JOINTS, dtype=torch.bool)
    mask[list(joints)] = True
    return mask


def on_floor(x, mask):
    return Contacts.of_spheres(x, SKELETON.radii, mask.expand(x.shape[:-1]), UP.expand_as(x))


PLAIN = {"length": 1.0, "weight": 1.0, "cap": 0.02, "largest_load": 1e6, "largest_bearing": 1e6}
"""Moments weigh as at one metre, and contacts bear what they are asked to."""


def problem_at(x, v, mask, **options):
    return wrench_problem(x, v, on_floor(x, mask), masses=SKELETON.masses, h=H, options=WrenchOptions(**{**PLAIN, **options}))


def noise(rng, *shape, scale=1.0):
    return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.fixture
def steps(rng):
    """Thirty steps of a body in disarray: start, velocity, end."""
    x = standing() + noise(rng, 30, NUM_JOINTS, 3, scale=0.1)
    v = noise(rng, 30, NUM_JOINTS, 3)
    return x, v, x + H * v + noise(rng, 30, NUM_JOINTS, 3, scale=0.01)


# The pieces


@pytest.mark.parametrize("num", [3, 4, 8, 13])
@pytest.mark.parametrize("friction", [0.3, 0.8])
def test_edges_lie_on_the_friction_cone(num, friction, rng):
    # Coulomb: on the cone's surface the tangential force is mu times the normal one. The edges go around it evenly, and sum to its axis.
    normals = noise(rng, 5, NUM_JOINTS, 3)
    normals = normals / normals.norm(dim=-1, keepdim=True)
    edges = contact_basis(normals, friction, num)
    along = (edges * normals.unsqueeze(-2)).sum(-1)
    tangential = (edges - along.unsqueeze(-1) * normals.unsqueeze(-2)).norm(dim=-1)
    torch.testing.assert_close(tangential, friction * along, rtol=1e-13, atol=0)
    torch.testing.assert_close(edges.sum(-2), num * normals / friction, rtol=0, atol=1e-13 * num)


def test_four_edges_are_manipnets():
    # n / mu + t1, n / mu + t2 and their opposites, not normalised.
    edges = contact_basis(UP[None], 0.5, 4)[0]
    expected = {(1, 0, 2), (-1, 0, 2), (0, 1, 2), (0, -1, 2)}
    assert {tuple(round(float(value), 12) + 0.0 for value in edge) for edge in edges} == expected


def test_contacts_lie_on_the_spheres(rng):
    # A sphere touches a surface at one radius from its centre, against the normal; a standing body's toes touch the floor at z = 0.
    x, normals = standing(), noise(rng, NUM_JOINTS, 3)
    normals = normals / normals.norm(dim=-1, keepdim=True)
    contacts = Contacts.of_spheres(x, SKELETON.radii, touching(*FEET), normals)
    torch.testing.assert_close(((contacts.points - x) * normals).sum(-1), -SKELETON.radii, rtol=0, atol=1e-15)
    torch.testing.assert_close((contacts.points - x).norm(dim=-1), SKELETON.radii, rtol=0, atol=1e-15)
    assert on_floor(x, touching(*FEET)).points[[10, 11], 2].abs().max() < 1e-15


def test_momentum_map_is_the_finite_difference(steps):
    # P' = sum m a and L' = sum m r x a with a = ((x - x_t) / h - v_t) / h and r at x_t, less the pull of gravity, joint by joint.
    x_t, v_t, x = steps
    B, a = momentum_map(x_t, v_t, SKELETON.masses, H)
    rates = (B @ x.flatten(-2).unsqueeze(-1)).squeeze(-1) - a
    centre = SKELETON.centre_of_mass(x_t)
    for i in range(len(x)):
        linear, angular = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        for j, mass in enumerate(SKELETON.masses):
            acceleration = ((x[i, j] - x_t[i, j]) / H - v_t[i, j]) / H
            linear += mass * (acceleration - G)
            angular += mass * torch.linalg.cross(x_t[i, j] - centre[i], acceleration)
        torch.testing.assert_close(rates[i], torch.cat((linear, angular)), rtol=0, atol=NEWTON)


# The root wrench


@pytest.mark.parametrize("num_edges", [3, 4, 8])
def test_standing_still_is_explained_by_the_floor(num_edges):
    # At rest over its feet the floor carries the body: nothing is left over, the forces sum to the weight, push, and share the load evenly
    # between left and right.
    x = standing()
    wrench = root_wrench(problem_at(x, torch.zeros_like(x), touching(*FEET), num_edges=num_edges), x)
    assert wrench.residual.norm() < FIT
    torch.testing.assert_close(wrench.forces.sum(-2), -float(SKELETON.masses.sum()) * G, rtol=0, atol=FIT)
    torch.testing.assert_close(wrench.reaction, wrench.forces.sum(-2), rtol=0, atol=NEWTON)
    assert (wrench.forces[..., 2] >= 0).all()
    assert (wrench.forces[~touching(*FEET)] == 0).all()
    torch.testing.assert_close(wrench.forces[[7, 10], 2], wrench.forces[[8, 11], 2], rtol=0, atol=1e-3)


def test_forces_give_the_explained_wrench_and_stay_in_their_cones(steps):
    # Newton and Euler for the body as a whole: contact forces at the contact points sum to F c in force and in moment.
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET, 20), friction=0.5)
    wrench = root_wrench(problem, x)
    arms = on_floor(x_t, touching(*FEET, 20)).points - SKELETON.centre_of_mass(x_t).unsqueeze(-2)
    moment = torch.linalg.cross(arms, wrench.forces).sum(-2)
    torch.testing.assert_close(torch.cat((wrench.forces.sum(-2), moment), -1), wrench.explained, rtol=0, atol=NEWTON)
    assert (wrench.forces[..., :2].norm(dim=-1) <= 0.5 * wrench.forces[..., 2] + NEWTON).all()
    assert (wrench.c >= 0).all()


@pytest.mark.parametrize("mask", [touching(), touching(*FEET)], ids=["in the air", "beside the floor"])
def test_free_fall_needs_nothing(mask, rng):
    # x = x_t + h v_t + h^2 g: gravity alone. Contacts that could push do not.
    x_t, v_t = standing(), noise(rng, NUM_JOINTS, 3)
    wrench = root_wrench(problem_at(x_t, v_t, mask), x_t + H * v_t + H * H * G)
    assert wrench.residual.norm() < NEWTON
    assert wrench.forces.abs().max() < NEWTON


def test_hovering_needs_one_body_weight():
    # At rest with nothing to stand on: the magical force is the weight, upward through the centre of mass.
    x = standing()
    wrench = root_wrench(problem_at(x, torch.zeros_like(x), touching()), x)
    torch.testing.assert_close(wrench.linear, torch.tensor([0.0, 0.0, WEIGHT], dtype=torch.float64), rtol=0, atol=NEWTON)
    torch.testing.assert_close(wrench.sizes, torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=0, atol=NEWTON / WEIGHT)


def test_the_floor_pushes_and_never_pulls():
    # A body that accelerates downward faster than gravity, at 2 g, would need the floor to pull with one body weight.
    x = standing()
    wrench = root_wrench(problem_at(x, torch.zeros_like(x), touching(*FEET)), x + 2 * H * H * G)
    assert wrench.forces.abs().max() < FIT
    torch.testing.assert_close(wrench.linear, float(SKELETON.masses.sum()) * G, rtol=0, atol=FIT)


@pytest.mark.parametrize("friction", [0.3, 0.8])
def test_friction_bounds_a_standing_start(friction):
    # Sliding sideways as a rigid whole along +x with acceleration s needs the force M s through the centre of mass. With contacts all
    # around at its height there are no moments, and the floor gives at most mu M g of it: t1 and t2 are x and y for a level floor.
    x = standing()
    level = torch.full((NUM_JOINTS, 3), 0.0, dtype=torch.float64)
    centre = SKELETON.centre_of_mass(x)
    angles = torch.arange(NUM_JOINTS, dtype=torch.float64) * (math.pi / 2)
    points = centre + torch.stack((angles.cos(), angles.sin(), level[:, 0]), -1)
    contacts = Contacts(touching(0, 1, 2, 3), points, UP.expand(NUM_JOINTS, 3))
    problem = wrench_problem(
        x,
        torch.zeros_like(x),
        contacts,
        masses=SKELETON.masses,
        h=H,
        options=WrenchOptions(**{**PLAIN, "friction": friction, "length": 1e3}),
    )
    possible = x + 0.99 * friction * GRAVITY * H * H * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert root_wrench(problem, possible).residual.norm() < FIT
    # Beyond it the nearest force of the cone is left: with demand (s, g) it lies off the edge (mu, 1) by |s - mu g| / sqrt(1 + mu^2).
    beyond = x + 2 * friction * GRAVITY * H * H * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    expected = WEIGHT * friction / math.sqrt(1 + friction**2)
    assert float(root_wrench(problem, beyond).linear.norm()) == pytest.approx(expected, rel=1e-6)


def test_external_forces_are_accounted_for(rng):
    # In the air under known forces each particle follows f = m a, so contact has nothing to explain, in force or in moment.
    x_t, v_t, forces = standing(), noise(rng, NUM_JOINTS, 3), noise(rng, NUM_JOINTS, 3, scale=100.0)
    x = x_t + H * v_t + H * H * (forces / SKELETON.masses.unsqueeze(-1) + G)
    problem = problem_at(x_t, v_t, touching())
    assert root_wrench(problem, x, forces=forces).residual.norm() < NEWTON
    torch.testing.assert_close(root_wrench(problem, x).linear, forces.sum(-2), rtol=0, atol=NEWTON)


def test_contact_fit_is_the_nearest_wrench_that_contact_can_give(steps, rng):
    # No other non-negative coefficients come nearer, at the arm of the options.
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET), length=0.5)
    b = root_wrench(problem, x).residual + root_wrench(problem, x).explained
    wrench = contact_fit(problem, b)
    scale = torch.tensor([1.0] * 3 + [2.0] * 3, dtype=torch.float64)
    best = (scale * wrench.residual).norm(dim=-1)
    for size in (1e-3, 0.1, 10.0, 100.0):
        other = (wrench.c + noise(rng, *wrench.c.shape, scale=size)).clamp(min=0) * problem.touching.unsqueeze(-1)
        given = (problem.F @ other.flatten(-2).unsqueeze(-1)).squeeze(-1)
        assert ((scale * (b - given)).norm(dim=-1) > best - FIT).all()


def test_batch_equals_loop(steps):
    # The same arithmetic in another grouping: summation order moves the demand by 1e-9 N. How the load is spread hangs on a ridge of 1e-6,
    # squared 1e-12, so rounding (2e-16) shows there in the fourth digit: 0.1 N of forces up to about 1 kN.
    x_t, v_t, x = steps
    masks = torch.rand(len(x), NUM_JOINTS, generator=torch.Generator().manual_seed(1)) < 0.3
    batch = problem_at(x_t, v_t, masks, threshold=0.0)
    together = root_wrench(batch, x)
    corrected = soft_correction(batch, x, together)
    for i in range(len(x)):
        alone = problem_at(x_t[i], v_t[i], masks[i], threshold=0.0)
        wrench = root_wrench(alone, x[i])
        torch.testing.assert_close(wrench.residual, together.residual[i], rtol=0, atol=FIT)
        torch.testing.assert_close(wrench.forces, together.forces[i], rtol=0, atol=0.1)
        torch.testing.assert_close(soft_correction(alone, x[i], wrench), corrected[i], rtol=0, atol=1e-10)


def turned(angle):
    return roma.rotvec_to_rotmat(torch.tensor([0.0, 0.0, angle], dtype=torch.float64))


@pytest.mark.parametrize(("quarter_turns", "shift"), [(0, 50.0), (1, 0.0), (2, 3.0), (3, -20.0)])
def test_sizes_do_not_depend_on_the_place_or_the_quarter(quarter_turns, shift, steps):
    # Physics has no preferred place or direction; a pyramid of four edges has the symmetry of the quarter turns. Positions of 50 m round by
    # 1e-14 m, which is 1e-9 N after the division by h^2.
    x_t, v_t, x = steps
    R, move = turned(quarter_turns * math.pi / 2), torch.tensor([shift, -2 * shift, 0.0], dtype=torch.float64)
    here = root_wrench(problem_at(x_t, v_t, touching(*FEET)), x).sizes
    there = root_wrench(problem_at(x_t @ R.T + move, v_t @ R.T, touching(*FEET)), x @ R.T + move).sizes
    torch.testing.assert_close(here, there, rtol=0, atol=2 * FIT / WEIGHT)


def test_many_edges_make_the_direction_immaterial(steps):
    # A pyramid of n edges lies within the cone by a factor cos(pi / n): with 64 a force differs by at most 0.12 %, and the distance to it
    # by no more than that share of the force, here up to about 40 body weights.
    x_t, v_t, x = steps
    R = turned(0.7)
    here = root_wrench(problem_at(x_t, v_t, touching(*FEET), num_edges=64), x)
    there = root_wrench(problem_at(x_t @ R.T, v_t @ R.T, touching(*FEET), num_edges=64), x @ R.T)
    demand = (here.explained + here.residual).norm(dim=-1) / WEIGHT
    assert ((here.residual.norm(dim=-1) - there.residual.norm(dim=-1)).abs() / WEIGHT < 0.0013 * demand).all()


# The soft correction


@pytest.mark.parametrize("weight", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("length", [1.0, 0.4])
def test_the_correction_solves_its_constrained_problem(weight, length, steps):
    # Stationarity of sum (m_j / M) |dx_j / u|^2 + w_p |eps|^2 + lambda (B dx + e - eps) in dx, eps and lambda: 66 + 6 + 6 equations
    # solved at once. A condition number of 1e4 or so costs four of sixteen digits.
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET), weight=weight, length=length, threshold=0.0, cap=math.inf)
    wrench = root_wrench(problem, x)
    rows = torch.tensor([1.0] * 3 + [1 / length] * 3, dtype=torch.float64) / WEIGHT
    B, e = rows.unsqueeze(-1) * problem.B, rows * wrench.residual
    u, shares = GRAVITY * H * H, (SKELETON.masses / SKELETON.masses.sum()).repeat_interleave(3)
    for i in range(len(x)):
        kkt = torch.zeros(78, 78, dtype=torch.float64)
        kkt[:66, :66] = torch.diag(2 * shares / u**2)
        kkt[66:72, 66:72] = 2 * weight * torch.eye(6)
        kkt[72:, :66], kkt[72:, 66:72] = B[i], -torch.eye(6)
        kkt[:72, 72:] = kkt[72:, :72].T
        solution = torch.linalg.solve(kkt, torch.cat((torch.zeros(72, dtype=torch.float64), -e[i])))
        torch.testing.assert_close((soft_correction(problem, x, wrench) - x)[i].flatten(), solution[:66], rtol=0, atol=1e-9)


def test_with_equal_masses_it_is_the_papers():
    # min |x - x_pd|^2 + w |eps|^2 subject to B x - a - F c = eps, in newtons: x = x_pd - B^T (B B^T + I / w)^-1 e. Our w_p measures
    # displacements in u = g h^2 and wrenches in body weights, averaged over 22 joints: w = 22 u^2 w_p / weight^2.
    rng, masses = torch.Generator().manual_seed(3), SKELETON.with_unit_masses().masses
    x_t = standing()
    x = x_t + noise(rng, NUM_JOINTS, 3, scale=0.01)
    options = WrenchOptions(**{**PLAIN, "weight": 2.0, "threshold": 0.0, "cap": math.inf})
    problem = wrench_problem(x_t, torch.zeros_like(x), on_floor(x_t, touching(*FEET)), masses=masses, h=H, options=options)
    wrench = root_wrench(problem, x)
    w = NUM_JOINTS * (GRAVITY * H * H) ** 2 * 2.0 / WEIGHT**2
    B = problem.B
    dx = -B.T @ torch.linalg.solve(B @ B.T + torch.eye(6) / w, wrench.residual)
    torch.testing.assert_close((soft_correction(problem, x, wrench) - x).flatten(), dx, rtol=0, atol=1e-9)


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
def test_the_weight_is_the_share_that_goes(weight):
    # Of a force through the centre of mass w_p / (1 + w_p) goes: hovering, the body drops by that share of g h^2, as one piece.
    x = standing()
    problem = problem_at(x, torch.zeros_like(x), touching(), airborne_weight=weight, threshold=0.0, cap=math.inf)
    moved = soft_correction(problem, x, root_wrench(problem, x))
    torch.testing.assert_close(moved - x, (weight / (1 + weight) * H * H * G).expand_as(x), rtol=0, atol=1e-12)
    assert float(root_wrench(problem, moved).sizes[0]) == pytest.approx(1 / (1 + weight), abs=NEWTON / WEIGHT)


def test_the_correction_is_a_rigid_motion(steps):
    # dx_j = p + w x r_j is perpendicular to the bones in the differences of their ends: no bone's length changes to first order.
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET), threshold=0.0)
    dx = soft_correction(problem, x, root_wrench(problem, x)) - x
    assert dx.norm(dim=-1).amin(dim=-1).max() > 1e-4
    bones, stretch = (v[:, 1:] - v[:, PARENTS[1:]] for v in (x_t, dx))
    assert (bones * stretch).sum(-1).abs().max() < 1e-13


def test_it_lessens_every_root_wrench(steps):
    # With c held fixed the problem is convex with dx = 0 feasible, and a step shortened by the cap stays on the way down; a new fit of c
    # can only lessen the residual further. Where contact explains everything there is nothing to lessen.
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET), threshold=0.0)
    before = root_wrench(problem, x)
    after = root_wrench(problem, soft_correction(problem, x, before))
    unexplained = before.residual.norm(dim=-1) > FIT
    assert unexplained.sum() > 20
    assert (after.residual.norm(dim=-1) < before.residual.norm(dim=-1))[unexplained].all()


def test_small_wrenches_are_left_alone_and_large_ones_capped(steps):
    # Per member of the batch: below the threshold x_pd itself comes back, above it no joint moves farther than the cap, and one does.
    x_t, v_t, x = steps
    x = x_t + H * v_t + H * H * G + torch.linspace(0, 1, len(x)).double()[:, None, None] * (x - x_t - H * v_t)
    cap, threshold = 0.003, 0.4
    problem = problem_at(x_t, v_t, touching(*FEET), threshold=threshold, cap=cap)
    wrench = root_wrench(problem, x)
    moved = (soft_correction(problem, x, wrench) - x).norm(dim=-1).amax(dim=-1)
    small = wrench.residual.norm(dim=-1) / WEIGHT <= threshold
    assert 0 < small.sum() < len(x)
    assert (moved[small] == 0).all()
    assert (moved[~small] > 0).all()
    assert moved.max() == pytest.approx(cap, rel=1e-9)
    uncapped = replace(problem, options=replace(problem.options, cap=math.inf))
    free = (soft_correction(uncapped, x, wrench) - x).norm(dim=-1).amax(dim=-1)
    torch.testing.assert_close(moved, free.clamp(max=cap), rtol=1e-9, atol=1e-15)


def test_what_the_prior_wishes_is_tolerated_until_the_body_is_pushed(steps):
    # A body that does as its prior wishes is left alone up to the tolerance; a push of that size uses it up, and in flight there is none.
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET), threshold=0.0, tolerance=0.3)
    wrench = root_wrench(problem, x)
    small = wrench.residual.norm(dim=-1) / WEIGHT <= 0.3
    assert 0 < small.sum() < len(x)
    moved = (soft_correction(problem, x, wrench, wished=wrench) - x).norm(dim=-1).amax(dim=-1)
    assert moved[small].max() < 1e-12
    assert (moved[~small] > 0).all()
    push = torch.zeros_like(x)
    push[:, 9, 0] = 0.3 * WEIGHT
    plain = soft_correction(problem, x, wrench)
    torch.testing.assert_close(soft_correction(problem, x, wrench, wished=wrench, forces=push), plain, rtol=0, atol=1e-12)
    flying = problem_at(x_t, v_t, touching(), threshold=0.0, tolerance=0.3)
    wrench = root_wrench(flying, x)
    torch.testing.assert_close(soft_correction(flying, x, wrench, wished=wrench), soft_correction(flying, x, wrench), rtol=0, atol=1e-12)


def test_contacts_bear_no_more_than_they_can():
    # A body that is to rise with 9 g asks its contacts for ten body weights: feet give the largest load, hands and hips the bearing.
    x = standing()
    up = x - 9 * H * H * G
    for joints, most in ((FEET, 4.0), ((20, 21), 1.0)):
        problem = problem_at(x, torch.zeros_like(x), touching(*joints), largest_load=4.0, largest_bearing=1.0, length=1e3)
        wrench = root_wrench(problem, up)
        assert float(wrench.reaction[2]) == pytest.approx(most * WEIGHT, rel=1e-6)
        torch.testing.assert_close(wrench.forces.sum(0), wrench.reaction, rtol=0, atol=1e-9 * WEIGHT)


def test_no_weight_no_correction(steps):
    x_t, v_t, x = steps
    problem = problem_at(x_t, v_t, touching(*FEET), weight=0.0, threshold=0.0)
    assert torch.equal(soft_correction(problem, x, root_wrench(problem, x)), x)


# Cylinders, and the metric over a motion


def turning_frames(axis, angles):
    """A rigid T-pose at three angles about an axis through its centre of mass: joints and world rotations."""
    q, root = standing_pose()
    x = SKELETON.forward(q, root)
    centre = SKELETON.centre_of_mass(x)
    R = roma.rotvec_to_rotmat(torch.tensor(angles, dtype=torch.float64).unsqueeze(-1) * axis)
    joints = centre + (x - centre) @ R.transpose(-1, -2)
    return joints, R.unsqueeze(1) @ SKELETON.global_rotations(q)


def points_angular_rate(joints, h):
    arms = joints[1] - SKELETON.centre_of_mass(joints[1])
    acceleration = (joints[0] - 2 * joints[1] + joints[2]) / h**2
    return (SKELETON.masses.unsqueeze(-1) * torch.linalg.cross(arms, acceleration)).sum(0)


def test_spinning_steadily_about_a_principal_axis_takes_no_moment():
    # The body mirrors left and right, so the axis through its sides is principal: L = I w stays. Central differences of a circle point to
    # its centre exactly, so only rounding is left: about 1e-16 * 1e3 / s^2 * 10 kg m^2. About a slanted axis a moment is needed.
    sideways = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    slanted = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    for axis, needed in ((sideways, False), (slanted, True)):
        joints, rotations = turning_frames(axis, (-0.2, 0.0, 0.2))
        for rate in (points_angular_rate(joints, H), cylinder_angular_rate(joints, rotations, SKELETON, H)):
            assert (float(rate.norm()) > 0.1) if needed else (float(rate.norm()) < 1e-10)


def textbook_inertia():
    """Inertia of the standing body about its centre of mass with solid cylinders for bones [kg m^2]."""
    x = standing()
    centre, eye = SKELETON.centre_of_mass(x), torch.eye(3, dtype=torch.float64)
    meeting = [float(SKELETON.lengths[j] + SKELETON.lengths[list(CHILDREN[j])].sum()) for j in range(NUM_JOINTS)]
    inertia = torch.zeros(3, 3, dtype=torch.float64)
    for child in range(1, NUM_JOINTS):
        parent, length = PARENTS[child], float(SKELETON.lengths[child])
        near, far = (float(SKELETON.masses[j]) * length / meeting[j] for j in (parent, child))
        mass, radius = near + far, float(SKELETON.radii[parent] + SKELETON.radii[child]) / 2
        d = (x[child] - x[parent]) / length
        s = (near * x[parent] + far * x[child]) / mass - centre
        across = mass * (3 * radius**2 + length**2) / 12
        inertia += across * eye + (mass * radius**2 / 2 - across) * torch.outer(d, d) + mass * (s @ s * eye - torch.outer(s, s))
    return inertia


@pytest.mark.parametrize("axis", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.36, 0.48, 0.8)], ids=["sideways", "upright", "slanted"])
def test_cylinders_obey_eulers_equation(axis):
    # A rigid body about its centre of mass has L' = I w' + w x I w with the textbook's inertia: m (3 radius^2 + L^2) / 12 across a
    # cylinder, m radius^2 / 2 about it, and Steiner's term. Turning by w t + w' t^2 / 2 in steps of h, central differences are off by about
    # (h |w|)^2 / 12 + (h w' / w)^2 of the terms: 1e-6 at h = 1 ms.
    axis, w, w_dot, h = torch.tensor(axis, dtype=torch.float64), 3.0, 5.0, 1e-3
    joints, rotations = turning_frames(axis, [w * t + w_dot * t * t / 2 for t in (-h, 0.0, h)])
    rate = points_angular_rate(joints, h) + cylinder_angular_rate(joints, rotations, SKELETON, h)
    inertia = textbook_inertia()
    expected = inertia @ (w_dot * axis) + torch.linalg.cross(w * axis, inertia @ (w * axis))
    torch.testing.assert_close(rate, expected, rtol=0, atol=1e-5 * float(expected.norm()))
    # The points alone miss some of it, or this would show nothing.
    assert (points_angular_rate(joints, h) - expected).norm() > 0.01 * expected.norm()


def motion_of(root, q):
    return Motion.from_rotations(SKELETON, 30.0, root, q)


@pytest.mark.parametrize("cylinders", [False, True])
def test_a_recording_of_standing_still_is_explained(cylinders):
    q, root = standing_pose()
    motion = motion_of(root.expand(2, 9, 3), q.expand(2, 9, NUM_JOINTS, 3, 3))
    mask = touching(*FEET).expand(2, 9, NUM_JOINTS)
    assert root_wrench_of_motion(motion, mask, cylinders=cylinders).max() < FIT / WEIGHT
    hovering = root_wrench_of_motion(motion, torch.zeros_like(mask), cylinders=cylinders)
    torch.testing.assert_close(hovering, torch.tensor([1.0, 0.0], dtype=torch.float64).expand(2, 9, 2), rtol=0, atol=1e-9)


@pytest.mark.parametrize("cylinders", [False, True])
def test_a_recording_of_a_somersault_in_flight_is_explained(cylinders):
    # Ballistic centre of mass, steady turn about the principal axis through the sides: gravity does it all.
    time = torch.arange(12, dtype=torch.float64) / 30
    q, _ = standing_pose()
    R = roma.rotvec_to_rotmat(4 * time.unsqueeze(-1) * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    q = torch.cat(((R @ q[0]).unsqueeze(1), q[1:].expand(12, -1, 3, 3)), dim=1)
    flight = torch.stack((time, 0 * time, 2 + 3 * time - GRAVITY / 2 * time**2), -1)
    grounded = SKELETON.forward(q, torch.zeros(12, 3, dtype=torch.float64))
    sizes = root_wrench_of_motion(
        motion_of(flight - SKELETON.centre_of_mass(grounded), q), torch.zeros(12, NUM_JOINTS, dtype=torch.bool), cylinders=cylinders
    )
    assert sizes.max() < 1e-9


def test_a_recording_uses_central_differences_and_repeats_its_ends(rng):
    # Frame t of the recording is the step from t to t + 1 with the velocity from t - 1 to t; external forces belong to frame t.
    motion = replace(stepping_clip(0.5), external_forces=noise(rng, 15, NUM_JOINTS, 3, scale=30.0))
    assert motion.external_forces is not None
    mask = motion.joints[..., 2] - SKELETON.radii < 0.03
    sizes = root_wrench_of_motion(motion, mask, options=WrenchOptions(**PLAIN))
    assert sizes.shape == (len(motion), 2)
    assert torch.equal(sizes[0], sizes[1])
    assert torch.equal(sizes[-1], sizes[-2])
    for t in range(1, len(motion) - 1):
        before, x_t, x = motion.joints[t - 1 : t + 2].double()
        problem = problem_at(x_t, (x_t - before) / H, mask[t])
        expected = root_wrench(problem, x, forces=motion.external_forces[t]).sizes
        torch.testing.assert_close(sizes[t], expected, rtol=0, atol=FIT / WEIGHT)


def test_points_and_cylinders_are_alike_in_everyday_motion():
    # The paper's finding (its figure on the root metric): how a limb's mass is spread hardly shows against the whole body's.
    motion = stepping_clip(2.0)
    mask = motion.joints[..., 2] - SKELETON.radii < 0.03
    points, cylinders = (root_wrench_of_motion(motion, mask, cylinders=choice) for choice in (False, True))
    assert ((points - cylinders).abs().mean(0) < 0.2 * points.mean(0)).all()
    assert not torch.equal(points, cylinders)


# Bad input


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="friction"):
        WrenchOptions(friction=0.0)
    with pytest.raises(ValueError, match="at least 3 edges"):
        WrenchOptions(num_edges=2)
    with pytest.raises(ValueError, match="negative"):
        WrenchOptions(cap=-0.01)
    with pytest.raises(ValueError, match="at least 3 frames"):
        root_wrench_of_motion(stepping_clip(0.5).slice(0, 2), torch.zeros(2, NUM_JOINTS, dtype=torch.bool))
    x = standing()
    with pytest.raises(ValueError, match="not finite"):
        root_wrench(problem_at(x, torch.zeros_like(x), touching(joint_index("left_foot"))), x * torch.nan)
