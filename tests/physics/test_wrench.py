"""Laws of the root wrench, of the ground's reaction, of the soft correction and of cylinder inertia."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from dropsim.body.rotations import exp, normalize
from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, PARENTS, Skeleton, joint_index
from dropsim.files.units import GRAVITY
from dropsim.motion.motion import Motion
from dropsim.motion.synthetic import FACING_Y, stepping_clip
from dropsim.physics import wrench
from dropsim.physics.contact import Plane, solids
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.wrench import cylinder_angular_rate, root_wrench_of_motion

H = 1 / 30
SKELETON = Skeleton.adult()
MASS = float(SKELETON.masses.sum())
WEIGHT = GRAVITY * MASS
G, UP = np.array([0.0, 0.0, -GRAVITY]), np.array([0.0, 0.0, 1.0])
FEET = (7, 8, 10, 11)
# Rates are differences of terms m x / h^2 of about 7e4 kg/s^2 times metres: 66 of them round by about 66 * 2e-16 * 7e4
# = 1e-9 N.
NEWTON = 1e-8
# The ridge that spreads the load leaves the fit off by some 1e-6 of the demand (test_nnls); demands here are up to 1e4 N.
FIT = 0.02
PLAIN = {
    "moment_arm": 1.0, "correction_weight": 1.0, "correction_cap": 0.02, "threshold": 0.05,
    "largest_load": 1e6, "largest_bearing": 1e6, "soles": False,
}  # fmt: skip
"""Moments weigh as at one metre, contacts bear what they are asked to, and act below the joints."""
FAR = 1e6
"""A cap that is none."""


def standing_pose():
    q = np.tile(np.eye(3), (NUM_JOINTS, 1, 1))
    q[0] = FACING_Y
    return q, np.array([0.0, 0.0, SKELETON.standing_height])


def standing():
    return SKELETON.forward(*standing_pose())


def touching(*joints):
    mask = np.zeros(NUM_JOINTS, dtype=np.bool_)
    mask[list(joints)] = True
    return mask


def sizes_of(residual):
    """Norms of force and moment [body weights]."""
    return (
        np.stack((np.linalg.norm(residual[..., :3], axis=-1), np.linalg.norm(residual[..., 3:], axis=-1)), -1) / WEIGHT
    )


class Steps:
    """Steps of n people from x with velocity v to `after`, on a level floor at the joints of a mask."""

    def __init__(self, x, v, after, mask, *, skeleton=SKELETON, **options):
        self.x, self.v, self.after = (np.ascontiguousarray(np.atleast_3d(part.T).T) for part in (x, v, after))
        self.skeleton, self.options = skeleton, SimulatorOptions(**{**PLAIN, **options})
        near = np.ascontiguousarray(np.broadcast_to(mask, self.x.shape[:-1]))
        friction = np.full(self.x.shape[:-1], self.options.friction)
        normals = np.ascontiguousarray(np.broadcast_to(UP, self.x.shape))
        self.support = wrench.Support(near, normals, friction, np.zeros(self.x.shape))
        self.points = self.x - skeleton.radii[:, None] * UP

    def explain(self, forces=None, *, after=None):
        """Return contact forces and residual."""
        forces = np.zeros(self.x.shape) if forces is None else np.ascontiguousarray(np.atleast_3d(forces.T).T)
        return wrench.explain(self.start(forces), self.after if after is None else after, self.support)

    def start(self, forces, bound=0.0):
        fit = wrench.fit_of(self.skeleton, self.options, bound)
        return start_of(self.x, self.v, forces, np.zeros(self.x.shape), self.skeleton, fit)

    def balance(self, *, drift=None, bound=0.0):
        """Return how far each joint is moved by the correction, and the root wrench before [body weights]."""
        drift, start = np.zeros((len(self.x), 6)) if drift is None else drift, self.start(np.zeros(self.x.shape), bound)
        out, before = wrench.balance(start, self.after, self.support, drift)
        return out - self.after, before


def start_of(x, v, forces, loads, skeleton, fit):
    return wrench.Start(x, v, forces, loads, np.zeros((len(x), 3)), skeleton.arrays, fit, H)


def demand_of(x, v, after):
    """Return the rates of momentum that a person's step asks for."""
    demand, nothing, fit = np.empty(6), np.zeros(x[None].shape), wrench.fit_of(SKELETON, SimulatorOptions())
    _, centre = wrench.centre_of_mass(x, SKELETON.masses)
    wrench.momentum_rate(
        start_of(x[None], v[None], nothing, nothing, SKELETON, fit), 0, after, nothing[0], centre, demand
    )
    return demand


@pytest.fixture
def steps(rng):
    """Thirty steps of a body in disarray: start, velocity, end."""
    x = standing() + 0.1 * rng.standard_normal((30, NUM_JOINTS, 3))
    v = rng.standard_normal((30, NUM_JOINTS, 3))
    return x, v, x + H * v + 0.01 * rng.standard_normal((30, NUM_JOINTS, 3))


STILL = np.zeros((NUM_JOINTS, 3))

# The pieces


def momentum_map(x, masses):
    """Return B, which takes the displacements of all joints to the change of the momenta's rates: m / h^2 and m / h^2 r x."""
    arms = x - masses @ x / masses.sum()
    B = np.zeros((6, NUM_JOINTS, 3))
    for j in range(NUM_JOINTS):
        B[:3, j] = masses[j] / H**2 * np.eye(3)
        B[3:, j] = masses[j] / H**2 * np.cross(np.eye(3), arms[j])
    return B.reshape(6, -1)


def test_momentum_rate_is_the_finite_difference(steps):
    # P' = sum m a and L' = sum m r x a with a = ((x - x_t) / h - v_t) / h and r at x_t, less the pull of gravity, joint
    # by joint.
    x_t, v_t, x = steps
    for i in range(len(x)):
        mass, centre = wrench.centre_of_mass(x_t[i], SKELETON.masses)
        assert mass == pytest.approx(MASS)
        np.testing.assert_allclose(centre, SKELETON.centre_of_mass(x_t[i]), rtol=0, atol=1e-14)
        found = demand_of(x_t[i], v_t[i], x[i])
        acceleration = ((x[i] - x_t[i]) / H - v_t[i]) / H
        linear = (SKELETON.masses[:, None] * (acceleration - G)).sum(0)
        angular = (SKELETON.masses[:, None] * np.cross(x_t[i] - centre, acceleration)).sum(0)
        np.testing.assert_allclose(found, [*linear, *angular], rtol=0, atol=NEWTON)
        # It is affine in where the joints go.
        change = momentum_map(x_t[i], SKELETON.masses) @ (x[i] - x_t[i] - H * v_t[i]).ravel()
        at_rest = demand_of(x_t[i], v_t[i], x_t[i] + H * v_t[i])
        np.testing.assert_allclose(found - at_rest, change, rtol=0, atol=NEWTON)


def fitted(b, x, near, normals, *, radii=SKELETON.radii, centre=None, support=None, **options):
    """Fit the contact forces of one person to a demand."""
    forces, residual = np.empty((NUM_JOINTS, 3)), np.empty(6)
    centre = tuple(SKELETON.centre_of_mass(x) if centre is None else centre)
    fit = wrench.fit_of(SKELETON, SimulatorOptions(**{**PLAIN, **options}))
    support = support or support_of(near, np.broadcast_to(normals, x.shape), np.full(NUM_JOINTS, fit.friction))
    nothing = np.zeros((1, NUM_JOINTS, 3))
    start = start_of(x[None], nothing, nothing, nothing, SKELETON, fit)
    start = start._replace(body=start.body._replace(radii=radii))
    wrench.fit_contacts(start, 0, support, centre, b, forces, residual)
    return forces, residual


def support_of(near, normals, friction, sliding=None):
    """Return the support of one person; nothing slides unless told."""
    sliding = np.zeros(normals.shape) if sliding is None else sliding
    return wrench.Support(*(np.ascontiguousarray(part[None]) for part in (near, normals, friction, sliding)))


def test_the_fit_is_the_nearest_wrench_that_contact_can_give(steps):
    # Against scipy's least squares over the same edges: cos(k) t1 + sin(k) t2 + n / mu at the points where the spheres
    # touch, t1 along the tangential part of the force that is asked for.
    x_t, _, _ = steps
    rng = np.random.default_rng(1)
    for i in range(10):
        near, normals = rng.random(NUM_JOINTS) < 0.3, normalize(rng.standard_normal((NUM_JOINTS, 3)) + 2 * UP)
        centre, b = SKELETON.centre_of_mass(x_t[i]), WEIGHT * rng.standard_normal(6)
        _, residual = fitted(b, x_t[i], near, normals, moment_arm=0.5, friction=0.6)
        t = normalize(b[:3] - (normals @ b[:3])[:, None] * normals)
        s = np.cross(normals, t)
        edges = np.stack([normals / 0.6 + way for way in (t, s, -t, -s)], 1)[near]
        arms = (x_t[i] - SKELETON.radii[:, None] * normals - centre)[near]
        F = (
            np.concatenate((edges, 2 * np.cross(np.broadcast_to(arms[:, None], edges.shape), edges)), -1)
            .reshape(-1, 6)
            .T
        )
        scale = np.array([1.0] * 3 + [2.0] * 3)
        assert np.linalg.norm(scale * residual) == pytest.approx(scipy.optimize.nnls(F, scale * b)[1], abs=FIT)


# The root wrench


def test_standing_still_is_explained_by_the_floor():
    # At rest over its feet the floor carries the body: nothing is left over, the forces sum to the weight, push, and
    # share the load evenly between left and right.
    x = standing()
    (forces,), residual = Steps(x, STILL, x, touching(*FEET)).explain()
    assert np.linalg.norm(residual) < FIT
    np.testing.assert_allclose(forces.sum(0), -MASS * G, rtol=0, atol=FIT)
    assert (forces[:, 2] >= 0).all()
    assert (forces[~touching(*FEET)] == 0).all()
    np.testing.assert_allclose(forces[[7, 10], 2], forces[[8, 11], 2], rtol=0, atol=1e-3)


def test_forces_and_what_they_leave_are_the_change_of_momentum_and_stay_in_their_cones(steps):
    # Newton and Euler for the body as a whole, with contact forces at the points where spheres touch.
    x_t, v_t, x = steps
    step = Steps(x_t, v_t, x, touching(*FEET, 20), friction=0.5)
    forces, residual = step.explain()
    arms = step.points - SKELETON.centre_of_mass(x_t)[:, None]
    given = np.concatenate((forces.sum(1), np.cross(arms, forces).sum(1)), -1)
    demand = [demand_of(*step) for step in zip(x_t, v_t, x, strict=True)]
    np.testing.assert_allclose(given + residual, demand, rtol=0, atol=NEWTON)
    assert (np.linalg.norm(forces[..., :2], axis=-1) <= 0.5 * forces[..., 2] + NEWTON).all()


def test_the_floor_pushes_and_never_pulls():
    # A body that accelerates downward faster than gravity, at 2 g, would need the floor to pull with one body weight.
    x = standing()
    forces, residual = Steps(x, STILL, x + 2 * H * H * G, touching(*FEET)).explain()
    assert np.abs(forces).max() < FIT
    np.testing.assert_allclose(residual[0, :3], MASS * G, rtol=0, atol=FIT)


def test_external_forces_are_accounted_for(rng):
    # In the air under known forces each particle follows f = m a, so contact has nothing to explain, in force or in
    # moment.
    x_t, v_t, forces = standing(), rng.standard_normal((NUM_JOINTS, 3)), 100 * rng.standard_normal((NUM_JOINTS, 3))
    step = Steps(x_t, v_t, x_t + H * v_t + H * H * (forces / SKELETON.masses[:, None] + G), touching())
    assert np.linalg.norm(step.explain(forces)[1]) < NEWTON
    np.testing.assert_allclose(step.explain()[1][0, :3], forces.sum(0), rtol=0, atol=NEWTON)


def test_contacts_bear_no_more_than_they_can():
    # A body that is to rise with 9 g asks its contacts for ten body weights: feet give the largest load, hands and hips
    # the bearing.
    x = standing()
    for joints, most in ((FEET, 4.0), ((20, 21), 1.0)):
        limits = {"largest_load": 4.0, "largest_bearing": 1.0, "moment_arm": 1e3}
        (forces,), (residual,) = Steps(x, STILL, x - 9 * H * H * G, touching(*joints), **limits).explain()
        assert float(forces.sum(0)[2]) == pytest.approx(most * WEIGHT, rel=1e-6)
        np.testing.assert_allclose(forces.sum(0) + residual[:3], [0.0, 0.0, 10 * WEIGHT], rtol=0, atol=1e-9 * WEIGHT)


def turned(angle):
    return exp(np.array([0.0, 0.0, angle]))


@pytest.mark.parametrize(("angle", "shift"), [(0.0, 50.0), (0.7, 0.0), (2.0, 3.0), (4.0, -20.0)])
def test_sizes_do_not_depend_on_the_place_or_the_direction(angle, shift, steps):
    # Physics has no preferred place or direction, and pyramids turn with what is asked for. Positions of 50 m round by
    # 1e-14 m, which is 1e-9 N after the division by h^2.
    x_t, v_t, x = steps
    R, move = turned(angle), np.array([shift, -2 * shift, 0.0])
    here = Steps(x_t, v_t, x, touching(*FEET)).explain()[1]
    there = Steps(x_t @ R.T + move, v_t @ R.T, x @ R.T + move, touching(*FEET)).explain()[1]
    np.testing.assert_allclose(sizes_of(here), sizes_of(there), rtol=0, atol=2 * FIT / WEIGHT)


# The ground's reaction in the inertial target


def aimed(x, v, *candidates, react, costs=None, weight=1.0, forces=None, loads=None, height=0.0, **options):
    """Return y, the candidates that are chosen and what is near, on a floor at a height."""
    o = SimulatorOptions(**{**PLAIN, **options})
    floor = solids((replace(Plane.ground(), offset=np.array(height)),), ())
    costs = np.zeros((len(x), len(candidates))) if costs is None else np.array(costs)
    forces, loads = (np.zeros(x.shape) if given is None else given for given in (forces, loads))
    start = start_of(x, v, forces, loads, SKELETON, wrench.fit_of(SKELETON, o))
    aim = wrench.aim(start, np.stack(candidates, 1), costs, weight, floor, react)
    return aim.y, aim.chosen, aim.support.near


def test_the_cheapest_candidate_is_chosen_physics_included():
    # Standing still costs contact nothing; to rise with 2 g from no knees and to hover away sideways cost a wrench. A
    # cost of the prior outweighs a wrench of one body weight from the weight on, and a candidate that is led by is
    # followed whatever it costs.
    x = standing()[None]
    aside = x + H * H * 1.5 * GRAVITY * np.array([1.0, 0.0, 0.0])
    assert aimed(x, 0 * x, aside, x, react=True)[1] == 1
    _, residual = Steps(x, 0 * x, aside, aimed(x, 0 * x, aside, react=True)[2][0]).explain()
    cost = float(np.sum((residual / WEIGHT) ** 2))
    assert 0.1 < cost < wrench.LARGEST_WRENCH**2
    for more, chosen in ((0.99, 1), (1.01, 0)):
        assert aimed(x, 0 * x, aside, x, react=True, costs=[[0.0, more * cost]])[1] == chosen
        assert aimed(x, 0 * x, aside, x, react=True, costs=[[0.0, more * cost]], weight=0.0)[1] == 0
    assert aimed(x, 0 * x, aside, x, react=True, costs=[[-np.inf, 0.0]])[1] == 0
    # Of candidates that all cost infinitely much, one is followed all the same.
    for cost in (np.inf, np.nan):
        y, chosen, _ = aimed(x, 0 * x, aside, x, react=True, costs=[[cost, cost]])
        assert chosen == 0
        assert np.isfinite(y).all()


def test_the_ground_answers_a_load_and_not_a_push():
    # Standing still with 40 N in each hand, contact bears body and load, so that y is what it is without; the same
    # force as a push takes the body with it: its centre goes down by h^2 f / m.
    x, forces = standing()[None], np.zeros((1, NUM_JOINTS, 3))
    forces[0, [20, 21], 2] = -40.0  # a hand on each side, so that the moment is small
    at_rest = np.zeros_like(x)
    mass = SKELETON.masses / SKELETON.masses.sum()
    carried, _, _ = aimed(x, at_rest, x, react=True, forces=forces, loads=forces)
    plain, _, _ = aimed(x, at_rest, x, react=True)
    pushed, _, _ = aimed(x, at_rest, x, react=True, forces=forces)
    fall = H * H * 80.0 / SKELETON.masses.sum()
    assert abs((mass @ (carried - plain)[0])[2]) < 0.1 * fall
    assert (mass @ (pushed - plain)[0])[2] == pytest.approx(-fall, rel=1e-9)


def test_without_reaction_the_target_is_newtons(rng):
    # y = x + h v + h^2 (f / m + g), eq. (1) in the paper's literal form.
    x, v, forces = (
        standing()[None],
        rng.standard_normal((1, NUM_JOINTS, 3)),
        100 * rng.standard_normal((1, NUM_JOINTS, 3)),
    )
    y, _, near = aimed(x, v, x, react=False, forces=forces)
    np.testing.assert_allclose(y, x + H * v + H * H * (forces / SKELETON.masses[:, None] + G), rtol=0, atol=1e-14)
    assert near[0].tolist() == (x[0, :, 2] - SKELETON.radii < 0.05).tolist()


def test_the_reaction_moves_the_body_as_one_and_gives_it_what_contact_can(rng):
    # Newton and Euler: sum m a is the force, sum r x m a the moment about the centre of mass, and no two joints come
    # nearer. The force is what contact can give of the reference candidate's change of momentum; in the air there is
    # none.
    x = standing()[None] + 0.02 * rng.standard_normal((1, NUM_JOINTS, 3))
    v, arms = 0.1 * rng.standard_normal(x.shape), x[0] - SKELETON.centre_of_mass(x[0])
    reference = x + H * v + 0.004 * rng.standard_normal(x.shape)
    (bare, _, near), (y, _, _) = (aimed(x, v, reference, react=react) for react in (False, True))
    acceleration = (y - bare)[0] / H**2
    _, unexplained = Steps(x, v, reference, near[0]).explain()
    demand = demand_of(x[0], v[0], reference[0])
    gained = SKELETON.masses[:, None] * acceleration
    assert np.linalg.norm(gained.sum(0)) > 0.3 * WEIGHT
    np.testing.assert_allclose(
        [*gained.sum(0), *np.cross(arms, gained).sum(0)], demand - unexplained[0], rtol=0, atol=FIT
    )
    stretching = ((acceleration[:, None] - acceleration) * (arms[:, None] - arms)).sum(-1)
    assert np.abs(stretching).max() < 1e-8
    flying, _, near = aimed(x, v, reference, react=True, height=-3.0)
    assert not near.any()
    np.testing.assert_allclose(flying, bare, rtol=0, atol=1e-14)


# The soft correction


@pytest.mark.parametrize("weight", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("arm", [1.0, 0.4])
def test_the_correction_solves_its_constrained_problem(weight, arm, steps):
    # Stationarity of sum (m_j / M) |dx_j / u|^2 + w_p |eps|^2 + lambda (B dx + e - eps) in dx, eps and lambda: 66 + 6 +
    # 6 equations solved at once. A condition number of 1e4 or so costs four of sixteen digits.
    x_t, v_t, x = steps
    step = Steps(
        x_t, v_t, x, touching(*FEET), correction_weight=weight, moment_arm=arm, threshold=0.0, correction_cap=FAR
    )
    _, residual = step.explain()
    dx, _ = step.balance()
    rows = np.array([1.0] * 3 + [1 / arm] * 3) / WEIGHT
    u, shares = GRAVITY * H * H, np.repeat(SKELETON.masses / MASS, 3)
    for i in range(len(x)):
        kkt = np.zeros((78, 78))
        kkt[:66, :66] = np.diag(2 * shares / u**2)
        kkt[66:72, 66:72] = 2 * weight * np.eye(6)
        kkt[72:, :66], kkt[72:, 66:72] = rows[:, None] * momentum_map(x_t[i], SKELETON.masses), -np.eye(6)
        kkt[:72, 72:] = kkt[72:, :72].T
        solution = np.linalg.solve(kkt, np.concatenate((np.zeros(72), -rows * residual[i])))
        np.testing.assert_allclose(dx[i].ravel(), solution[:66], rtol=0, atol=1e-9)


def test_with_equal_masses_it_is_the_papers(rng):
    # min |x - x_pd|^2 + w |eps|^2 subject to B x - a - F c = eps, in newtons: x = x_pd - B^T (B B^T + I / w)^-1 e. Our
    # w_p measures displacements in u = g h^2 and wrenches in body weights, averaged over 22 joints: w = 22 u^2 w_p /
    # weight^2.
    equal, x_t = SKELETON.with_unit_masses(), standing()
    x = x_t + 0.01 * rng.standard_normal((NUM_JOINTS, 3))
    options = {"correction_weight": 2.0, "threshold": 0.0, "correction_cap": FAR}
    step = Steps(x_t, STILL, x, touching(*FEET), skeleton=equal, **options)
    w = NUM_JOINTS * (GRAVITY * H * H) ** 2 * 2.0 / WEIGHT**2
    B = momentum_map(x_t, equal.masses)
    expected = -B.T @ np.linalg.solve(B @ B.T + np.eye(6) / w, step.explain()[1][0])
    np.testing.assert_allclose(step.balance()[0].ravel(), expected, rtol=0, atol=1e-9)


def test_small_wrenches_are_left_alone_and_large_ones_capped(steps):
    # Per member of the batch: below the threshold x_pd itself comes back, above it no joint moves farther than the cap,
    # and one does.
    x_t, v_t, x = steps
    x = x_t + H * v_t + H * H * G + np.linspace(0, 1, len(x))[:, None, None] * (x - x_t - H * v_t)
    cap, threshold = 0.002, 0.4
    step = Steps(x_t, v_t, x, touching(*FEET), threshold=threshold, correction_cap=cap)
    dx, before = step.balance()
    moved = np.linalg.norm(dx, axis=-1).max(-1)
    np.testing.assert_allclose(before, np.linalg.norm(step.explain()[1], axis=-1) / WEIGHT, rtol=1e-12)
    small = before <= threshold
    assert 0 < small.sum() < len(x)
    assert (moved[small] == 0).all()
    assert (moved[~small] > 0).all()
    assert moved.max() == pytest.approx(cap, rel=1e-9)
    free = Steps(x_t, v_t, x, touching(*FEET), threshold=threshold, correction_cap=FAR).balance()[0]
    np.testing.assert_allclose(moved, np.minimum(np.linalg.norm(free, axis=-1).max(-1), cap), rtol=1e-9, atol=1e-15)


def test_what_is_unexplained_passes_until_it_adds_up(steps):
    # The drift of half a second, of the body and of its turning, stays within a bound: up to it nothing is corrected,
    # and beyond it by what is too much. A hovering body gains g h a step.
    x_t, v_t, x = steps
    step = Steps(x_t, v_t, x, touching(*FEET), threshold=0.0, correction_cap=FAR)
    assert not step.balance(bound=1e9)[0].any()
    hovering = Steps(standing(), STILL, standing(), touching(), threshold=0.0, correction_cap=FAR)
    gained = GRAVITY * H
    for before, left in ((0.0, gained), (-gained, 0.0), (0.5, 0.5 + gained)):
        drift = np.array([[0.0, 0.0, before / (1 - H / wrench.DRIFT_TIME), 0.0, 0.0, 0.0]])
        dx, _ = hovering.balance(drift=drift, bound=0.1)
        excess = max(abs(left) - 0.1, 0.0)
        np.testing.assert_allclose(
            dx[0], np.broadcast_to([0.0, 0.0, -0.5 * H * excess], dx[0].shape), rtol=0, atol=1e-12
        )


# Cylinders, and the metric over a motion


def turning_frames(axis, angles):
    """A rigid T-pose at three angles about an axis through its centre of mass: joints and world rotations."""
    q, root = standing_pose()
    x = SKELETON.forward(q, root)
    centre = SKELETON.centre_of_mass(x)
    R = exp(np.array(angles)[:, None] * np.array(axis))
    return centre + (x - centre) @ R.swapaxes(-1, -2), R[:, None] @ SKELETON.global_rotations(q)


def points_angular_rate(joints, h):
    arms = joints[1] - SKELETON.centre_of_mass(joints[1])
    acceleration = (joints[0] - 2 * joints[1] + joints[2]) / h**2
    return (SKELETON.masses[:, None] * np.cross(arms, acceleration)).sum(0)


def textbook_inertia():
    """Inertia of the standing body about its centre of mass with solid cylinders for bones [kg m^2]."""
    x = standing()
    centre, eye = SKELETON.centre_of_mass(x), np.eye(3)
    meeting = [float(SKELETON.lengths[j] + SKELETON.lengths[list(CHILDREN[j])].sum()) for j in range(NUM_JOINTS)]
    inertia = np.zeros((3, 3))
    for child in range(1, NUM_JOINTS):
        parent, length = PARENTS[child], float(SKELETON.lengths[child])
        near, far = (float(SKELETON.masses[j]) * length / meeting[j] for j in (parent, child))
        mass, radius = near + far, float(SKELETON.radii[parent] + SKELETON.radii[child]) / 2
        d = (x[child] - x[parent]) / length
        s = (near * x[parent] + far * x[child]) / mass - centre
        across = mass * (3 * radius**2 + length**2) / 12
        inertia += (
            across * eye + (mass * radius**2 / 2 - across) * np.outer(d, d) + mass * (s @ s * eye - np.outer(s, s))
        )
    return inertia


def test_cylinders_obey_eulers_equation():
    # A rigid body about its centre of mass has L' = I w' + w x I w with the textbook's inertia: m (3 radius^2 + L^2) /
    # 12 across a cylinder, m radius^2 / 2 about it, and Steiner's term. Turning by w t + w' t^2 / 2 in steps of h,
    # central differences are off by about (h |w|)^2 / 12 + (h w' / w)^2 of the terms: 1e-6 at h = 1 ms.
    axis, w, w_dot, h = np.array([0.36, 0.48, 0.8]), 3.0, 5.0, 1e-3
    joints, rotations = turning_frames(axis, [w * t + w_dot * t * t / 2 for t in (-h, 0.0, h)])
    rate = points_angular_rate(joints, h) + cylinder_angular_rate(joints, rotations, SKELETON, h)[0]
    inertia = textbook_inertia()
    expected = inertia @ (w_dot * axis) + np.cross(w * axis, inertia @ (w * axis))
    np.testing.assert_allclose(rate, expected, rtol=0, atol=1e-5 * np.linalg.norm(expected))
    # The points alone miss some of it, or this would show nothing.
    assert np.linalg.norm(points_angular_rate(joints, h) - expected) > 0.01 * np.linalg.norm(expected)


@pytest.mark.parametrize("cylinders", [False, True])
def test_a_recording_of_a_somersault_in_flight_is_explained(cylinders):
    # Ballistic centre of mass, steady turn about the principal axis through the sides: gravity does it all.
    time, (q, _) = np.arange(12) / 30, standing_pose()
    frames = np.tile(q, (12, 1, 1, 1))
    frames[:, 0] = exp(4 * time[:, None] * np.array([1.0, 0.0, 0.0])) @ q[0]
    flight = np.stack((time, 0 * time, 2 + 3 * time - GRAVITY / 2 * time**2), -1)
    centres = SKELETON.centre_of_mass(SKELETON.forward(frames, np.zeros((12, 3))))
    motion = Motion.from_rotations(SKELETON, 30.0, flight - centres, frames)
    assert root_wrench_of_motion(motion, np.zeros((12, NUM_JOINTS), dtype=np.bool_), cylinders=cylinders).max() < 1e-9


def test_a_recording_uses_central_differences_and_repeats_its_ends(rng):
    # Frame t of the recording is the step from t to t + 1 with the velocity from t - 1 to t; the external forces of
    # that step are stored with frame t + 1, to which they led.
    motion = replace(stepping_clip(0.5), external_forces=30 * rng.standard_normal((15, NUM_JOINTS, 3)))
    mask = motion.joints[..., 2] - SKELETON.radii < 0.03
    sizes = root_wrench_of_motion(motion, mask, options=SimulatorOptions(**PLAIN))
    assert sizes.shape == (len(motion), 2)
    assert np.array_equal(sizes[0], sizes[1])
    assert np.array_equal(sizes[-1], sizes[-2])
    for t in range(1, len(motion) - 1):
        before, x_t, x = motion.joints[t - 1 : t + 2]
        _, residual = Steps(x_t, (x_t - before) / H, x, mask[t]).explain(motion.external_forces[t + 1])
        np.testing.assert_allclose(sizes[t], sizes_of(residual)[0], rtol=0, atol=FIT / WEIGHT)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="at least 3 frames"):
        root_wrench_of_motion(stepping_clip(0.5).slice(0, 2), np.zeros((2, NUM_JOINTS), dtype=np.bool_))
    x = standing()
    with pytest.raises(ValueError, match="not finite"):
        Steps(x, STILL, x * np.nan, touching(joint_index("left_foot"))).explain()


def test_every_contact_has_its_own_friction(rng):
    # One foot on rubber and one on ice: a sideways demand is met by the one that can; neither leaves its own cone.
    x = np.array(stepping_clip(0.2).joints[0])
    near, friction = np.zeros(NUM_JOINTS, dtype=np.bool_), np.full(NUM_JOINTS, 0.8)
    near[[7, 8, 10, 11]], friction[[7, 10]] = True, 0.05
    b = np.array([0.2 * WEIGHT, 0.0, WEIGHT, 0.0, 0.0, 0.0])
    forces, _ = fitted(b, x, near, UP, support=support_of(near, np.broadcast_to(UP, x.shape), friction))
    assert (np.linalg.norm(forces[:, :2], axis=-1) <= friction * forces[:, 2] + 1e-9).all()
    assert forces[[8, 11], 0].sum() > forces[[7, 10], 0].sum() > 0
    assert np.linalg.norm(forces[[7, 10], :2], axis=-1).sum() == pytest.approx(
        0.05 * forces[[7, 10], 2].sum(), rel=1e-6
    )


@pytest.mark.parametrize("way", [(1.0, 0.0), (0.0, -1.0)])
def test_feet_that_slide_only_brake(way):
    # Coulomb: what slides gets friction against its way and none along it. The fit may take any of it from none to all
    # of the cone.
    x, near = standing(), touching(*FEET)
    sliding = np.zeros((NUM_JOINTS, 3))
    sliding[list(FEET), :2] = way
    support = support_of(near, np.broadcast_to(UP, x.shape), np.full(NUM_JOINTS, 0.8), sliding)
    for along, expected in ((0.3, 0.0), (-0.3, -0.3)):
        b = np.array([along * way[0], along * way[1], 1.0, 0.0, 0.0, 0.0]) * WEIGHT
        forces, _ = fitted(b, x, near, UP, support=support, moment_arm=1e6)
        assert forces[:, :2].sum(0) @ way == pytest.approx(expected * WEIGHT, abs=1e-3 * WEIGHT)
        assert forces[:, 2].sum() == pytest.approx(WEIGHT, rel=1e-3)


def test_toes_and_palms_bear_what_balls_and_wrists_are_too_high_for():
    # Somebody on tiptoe, feet straight down: the balls of the feet are 7 cm above the floor, and toes go on beyond
    # them.
    x = standing()
    for ankle, toe in ((7, 10), (8, 11)):
        x[toe] = x[ankle] - (0.0, 0.0, SKELETON.lengths[toe])
    x[:, 2] += 0.07 + SKELETON.radii[10] - x[10, 2]
    _, _, near = aimed(x[None], np.zeros((1, NUM_JOINTS, 3)), x[None], react=True, soles=True)
    assert set(np.flatnonzero(near[0])) == {10, 11}


def test_soles_reach_from_the_heels_to_the_toes():
    # A body that stands and is decelerated at g d / height needs the centre of pressure at d ahead of its centre of
    # mass. Below the joints that ends at the balls of the feet; soles end 46 % of the length from ankle to ball
    # farther.
    x = standing()
    centre, height = SKELETON.centre_of_mass(x), SKELETON.centre_of_mass(x)[2]
    ball, length = x[10, 1] - centre[1], np.linalg.norm(x[10] - x[7])

    def left(reach, soles):
        a = np.array([0.0, -GRAVITY * reach / height, 0.0])
        return np.linalg.norm(Steps(x, STILL, x + H * H * a, touching(*FEET), soles=soles).explain()[1]) / WEIGHT

    assert left(ball - 0.03, False) < 1e-3
    assert left(ball + 0.3 * length, False) > 0.01
    assert left(ball + 0.3 * length, True) < 1e-3
    assert left(ball + 0.7 * length, True) > 0.01
