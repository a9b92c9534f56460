"""One contract for every energy, the paper's, the editing ones and a user's own; and what spheres touch."""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.control.following import Planted
from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import wrench
from dropsim.physics.contact import (
    GRIP_GAP,
    Marks,
    Plane,
    Shape,
    contact_targets,
    deepest,
    friction_patch,
    nearest_surface,
    of_person,
    push_out,
    solids,
)
from dropsim.physics.energies import (
    CentreOfMassVelocity,
    CollinearEnergy,
    Contact,
    Kinematic,
    MaskedEnergy,
    Pin,
    RangeOfMotion,
    Rigidity,
    Spring,
    nearest_candidate,
)
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import BALL
from dropsim.physics.solver import System
from dropsim.priors.pose import PosePrior

SKELETON = Skeleton.adult()
H = 1 / 30


def turned(x, angle, shift):
    return x @ exp(np.array([0.0, 0.0, angle])).T + shift


@pytest.fixture
def poses():
    """Joints, candidates and rotations of eight frames of a person, bent and displaced so that every energy has something to say."""
    rng = np.random.default_rng(3)
    motion = stepping_clip(1.0)
    at = np.arange(0, 24, 3)
    x_t, q = motion.joints[at], motion.q[at]
    x = x_t + 0.03 * rng.standard_normal(x_t.shape) - np.array([0.0, 0.0, 0.05])
    return x, x_t, q, x_t[:, None] + 0.04 * rng.standard_normal((len(at), 5, NUM_JOINTS, 3))


def frame_of(x_t, q, candidates, colliders=None):
    return Frame(SKELETON, H, x_t, x_t, q, candidates, solids(colliders or (Plane.ground(),), x_t.shape[:1]))


class Held(Energy):
    """A user's own energy, in a handful of lines: the head stays at a height."""

    name = "held"
    weight = 2.0

    def matrix(self, skeleton):
        row = np.zeros((1, NUM_JOINTS))
        row[0, 15] = 1.0
        return row

    def project(self, x, frame):
        goal = x[:, 15:16].copy()
        goal[..., 2] = 1.5
        return Target(goal)


ENERGIES = {
    "rigidity": lambda: Rigidity(),
    "contact": lambda: Contact(),
    "range_of_motion": lambda: RangeOfMotion(PosePrior(PosePrior.shipped().network, limit=2.0)),
    "kinematic": lambda: Kinematic(),
    "com_velocity": lambda: CentreOfMassVelocity(np.array([1.2, 0.3])),
    "pin": lambda: Pin("left_ankle", np.array([0.1, 0.2, 0.3])),
    "spring": lambda: Spring("left_hip", "left_ankle", 0.8),
    "collinear": lambda: CollinearEnergy("left_hip", "left_knee", "left_ankle"),
    "planted": lambda: Planted(),
    "user": lambda: Held(),
}
EVERY = pytest.mark.parametrize("name", ENERGIES)


def residual(energy, x, frame):
    target = energy.project(x, frame)
    miss = energy.matrix(SKELETON) @ x - target.p
    return miss if target.active is None else miss * target.active[..., None]


@EVERY
def test_value_is_half_weight_times_squared_residual(name, poses):
    x, x_t, q, candidates = poses
    energy, frame = ENERGIES[name](), frame_of(x_t, q, candidates)
    expected = 0.5 * energy.weight * (residual(energy, x, frame) ** 2).sum((-1, -2))
    assert expected.max() > 0, "or this would show nothing"
    np.testing.assert_allclose(energy.value(x, frame), expected, rtol=1e-12, atol=1e-15)
    # The solver's own sum over its rows comes to the same.
    np.testing.assert_allclose(
        System([energy], SKELETON).values(x, frame)[energy.name], expected, rtol=1e-12, atol=1e-15
    )


@EVERY
def test_one_global_step_minimises_the_quadratic(name, poses):
    # With p held fixed, M (x - y) + w A^T (A x - p) = 0 at the minimum of 1/2 |x - y|^2_M + w/2 |A x - p|^2.
    x, x_t, q, candidates = poses
    energy, frame = ENERGIES[name](), frame_of(x_t, q, candidates)
    system, target, A = System([energy], SKELETON), energy.project(x, frame), energy.matrix(SKELETON)
    after = system.iterate(x, frame, 1)
    miss = A @ after - target.p
    miss = miss if target.active is None else miss * target.active[..., None]
    gradient = system.mass[:, None] * (after - frame.y) + energy.weight * A.T @ miss
    assert np.abs(gradient).max() < 1e-11


# Moving and turning the world about z changes no value; pin and com_velocity speak of places and directions in the
# world.
@pytest.mark.parametrize(
    "name", ["rigidity", "range_of_motion", "kinematic", "spring", "collinear", "planted", "contact"]
)
def test_invariant_to_moving_and_turning_the_world(name, poses):
    x, x_t, q, candidates = poses
    energy, shift = ENERGIES[name](), np.array([3.0, -2.0, 0.0])
    moved_q = q.copy()
    moved_q[:, 0] = exp(np.array([0.0, 0.0, 0.7])) @ q[:, 0]
    moved = frame_of(turned(x_t, 0.7, shift), moved_q, turned(candidates, 0.7, shift))
    # The pose model runs in single precision.
    tolerance = 1e-6 if name == "range_of_motion" else 1e-12
    here, there = energy.value(x, frame_of(x_t, q, candidates)), energy.value(turned(x, 0.7, shift), moved)
    np.testing.assert_allclose(here, there, rtol=1e-6, atol=tolerance)


def test_a_straight_limb_has_its_middle_where_its_bones_meet(poses):
    # Along the line from hip to ankle, after the thigh's share of the leg; off it by d, the value is w/2 d^2.
    _, x_t, q, candidates = poses
    x, (thigh, shank) = x_t.copy(), SKELETON.lengths[[4, 7]]
    x[:, 4] = x[:, 1] + thigh / (thigh + shank) * (x[:, 7] - x[:, 1])
    energy, frame = ENERGIES["collinear"](), frame_of(x_t, q, candidates)
    assert energy.value(x, frame).max() < 1e-20
    x[:, 4, 0] += 0.1
    np.testing.assert_allclose(energy.value(x, frame), 0.5 * energy.weight * 0.01, rtol=1e-9)


def test_planted_feet_stay_within_the_slack_of_the_recording(poses):
    # A recorded foot on the floor may be a slack away from where it stands; one that is as high as the gap is followed
    # as it is.
    _, x_t, q, candidates = poses
    feet, energy = [7, 8, 10, 11], Planted(slack=0.02, gap=0.03)
    recorded = candidates.copy()
    recorded[:, 0, feet, 2] = SKELETON.radii[feet]
    recorded[:, 0, feet, :2] = x_t[:, feet, :2] + np.array([0.05, 0.0])
    target = energy.project(x_t, frame_of(x_t, q, recorded))
    assert target.active.all()
    np.testing.assert_allclose(target.p[..., :2], x_t[:, feet, :2] + np.array([0.03, 0.0]), rtol=0, atol=1e-12)
    recorded[:, 0, feet, 2] += 0.015
    half = energy.project(x_t, frame_of(x_t, q, recorded))
    np.testing.assert_allclose(half.p[..., 0], x_t[:, feet, 0] + 0.04, rtol=0, atol=1e-12)
    recorded[:, 0, feet, 2] += 0.015 + 1e-9
    assert not energy.project(x_t, frame_of(x_t, q, recorded)).active.any()


def test_rigidity_is_zero_exactly_on_rest_lengths(poses):
    _, x_t, q, candidates = poses
    frame = frame_of(x_t, q, candidates)
    assert Rigidity().value(x_t, frame).max() < 1e-20
    assert Rigidity().value(1.1 * x_t, frame).min() > 1e-3


def test_kinematic_is_zero_on_a_candidate_and_finds_the_nearest(poses):
    x, x_t, q, candidates = poses
    frame = frame_of(x_t, q, candidates)
    assert Kinematic().value(candidates[:, 3].copy(), frame).max() == 0
    nearest = ((candidates - x[:, None]) ** 2).sum((-1, -2)).argmin(-1)
    assert np.array_equal(Kinematic().project(x, frame).p, candidates[np.arange(len(x)), nearest])
    assert np.array_equal(nearest_candidate(candidates, x), nearest)
    # Of equals the first.
    assert not nearest_candidate(np.repeat(candidates[:, :1], 4, 1), x).any()


def test_contact_sticks_tangentially_and_touches_normally(poses):
    x, x_t, q, candidates = poses
    target = Contact().project(x, frame_of(x_t, q, candidates))
    inside = x[..., 2] < SKELETON.radii
    assert inside.any()
    assert np.array_equal(target.active, inside)
    # On the floor: the place of x_t if friction can hold it there, at the height of the radius.
    depth, slide = SKELETON.radii - x[..., 2], np.linalg.norm((x - x_t)[..., :2], axis=-1)
    held = inside & (slide < 0.8 * depth)
    assert held.any()
    np.testing.assert_allclose(target.p[..., :2][held], x_t[..., :2][held], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        target.p[..., 2][inside], np.broadcast_to(SKELETON.radii, inside.shape)[inside], rtol=0, atol=1e-12
    )


def test_contact_projection_is_idempotent_on_a_tilted_plane(poses):
    _, x_t, q, candidates = poses
    normal, zero = np.array([math.sin(0.2), 0.0, math.cos(0.2)]), np.zeros(3)
    plane = Plane(normal, np.array(0.5), zero, zero, zero)
    frame = frame_of(x_t, q, candidates, (plane,))
    first = Contact().project(x_t, frame)
    touching = plane.distance(first.p) - SKELETON.radii
    assert np.abs(touching[first.active]).max() < 1e-12
    again = Contact().project(first.p - 1e-9 * normal, frame)
    np.testing.assert_allclose(again.p[first.active], first.p[first.active], rtol=0, atol=1e-8)


def test_contact_is_carried_by_a_moving_surface(poses):
    _, x_t, q, candidates = poses
    ground = Plane.ground()
    moving = Plane(ground.normal, np.array(0.2), ground.pivot, np.array([0.6, 0.0, 0.0]), ground.pivot)
    target = Contact().project(x_t, frame_of(x_t, q, candidates, (moving,)))
    assert target.active.any()
    np.testing.assert_allclose((target.p - x_t)[target.active][:, 0], 0.6 * H, rtol=0, atol=1e-12)


def test_range_of_motion_is_zero_inside_and_does_not_move_the_body(poses):
    _, x_t, q, candidates = poses
    energy = RangeOfMotion(PosePrior.shipped())
    assert energy.value(x_t, frame_of(x_t, q, candidates)).max() == 0
    broken = q.copy()
    broken[:, 4] = exp(np.array([-1.8, 0.0, 0.0]))
    broken[:, 18] = exp(np.array([0.0, 2.0, 0.0]))
    x = SKELETON.forward(broken, x_t[:, 0])
    bent = frame_of(x_t, broken, candidates)
    assert (energy.value(x, bent) > 0).all()
    # A pose has neither place nor orientation: the energy's force -w A^T (A x - p) has no resultant and no moment.
    force = -energy.weight * energy.matrix(SKELETON).T @ residual(energy, x, bent)
    assert np.abs(force.sum(-2)).max() < 1e-12
    assert np.abs(np.cross(x, force).sum(-2)).max() < 1e-8


def test_range_of_motion_is_a_stop_without_bounce(poses):
    _, x_t, q, candidates = poses
    energy, broken = RangeOfMotion(PosePrior.shipped()), q.copy()
    broken[:, 4] = exp(np.array([-1.8, 0.0, 0.0]))
    bent = SKELETON.forward(broken, x_t[:, 0])
    assert (energy.pose.norm(broken) > energy.pose.limit).all()
    natural = SKELETON.forward(energy.pose.scaled_back(broken), x_t[:, 0])
    still, outward, inward = (
        energy.value(bent, frame_of(bent + way * (natural - bent), broken, candidates)) for way in (0.0, 0.5, -0.5)
    )
    # What goes out is stopped, what stands goes back slowly, and what already goes back fast is left alone.
    assert (outward > 4 * still).all()
    assert (still > 4 * inward).all()
    # At the limit there is no pull: the energy is continuous.
    edge = RangeOfMotion(PosePrior(energy.pose.network, limit=float(energy.pose.norm(broken).min()) * (1 - 1e-3)))
    assert edge.value(bent, frame_of(bent, broken, candidates)).max() < 1e-2 * still.max()


def test_pin_spring_and_velocity_vanish_where_they_should(poses):
    _, x_t, q, candidates = poses
    frame = frame_of(x_t, q, candidates)
    assert Pin("head", x_t[:, 15]).value(x_t, frame).max() == 0
    lengths = np.linalg.norm(x_t[:, 1] - x_t[:, 7], axis=-1)
    assert Spring("left_hip", "left_ankle", lengths).value(x_t, frame).max() < 1e-20
    velocity = np.array([1.2, -0.4])
    assert CentreOfMassVelocity(velocity).value(x_t + H * np.array([*velocity, 0.3]), frame).max() < 1e-20


def test_a_masked_energy_is_for_some_people_only(poses):
    x, x_t, q, candidates = poses
    frame, people = frame_of(x_t, q, candidates), np.arange(8) % 2 == 0
    for inner in (Pin("head", np.zeros(3)), Contact()):
        masked = MaskedEnergy(inner, people)
        assert np.array_equal(masked.value(x, frame), np.where(people, inner.value(x, frame), 0.0))
    # Two worlds of four people each, as a scene has them.
    assert np.array_equal(
        MaskedEnergy(inner, people.reshape(2, 4)).project(x, frame).active, masked.project(x, frame).active
    )


# A user's own energy with a mistake in it gets one sentence.


class Faulty(Held):
    """An energy with something wrong."""

    def __init__(self, **wrong):
        vars(self).update(wrong)

    def project(self, x, frame):
        return self.target(x) if hasattr(self, "target") else super().project(x, frame)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"weight": math.nan}, "needs a weight"),
        ({"weight": None}, "needs a weight"),
        ({"name": ""}, "Faulty needs a name"),
        ({"matrix": lambda skeleton: np.zeros((1, 24))}, "has to be m x 22 finite numbers"),
        ({"matrix": lambda skeleton: np.full((1, 22), np.nan)}, "has to be m x 22 finite numbers"),
    ],
)  # fmt: skip
def test_an_energy_that_cannot_be_is_refused_in_a_sentence(wrong, message):
    with pytest.raises(ValueError, match=message) as error:
        System([Faulty(**wrong)], SKELETON)
    assert "\n" not in str(error.value)


def unchecked(p, active):
    """A target as users make it: without the tests' checks of shapes."""
    target = Target(p)
    object.__setattr__(target, "active", active)
    return target


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda x: None, "has to return a Target"),
        (lambda x: Target(x[:, 14:16]), "have to be 8 x 1 x 3 and 8 x 1"),
        (lambda x: Target(x[:3, 15:16]), "have to be 8 x 1 x 3"),
        (lambda x: Target(np.full((8, 1, 3), np.nan)), "not finite"),
        (lambda x: unchecked(x[:, 15:16], np.ones((8, 3), dtype=bool)), "active of the energy 'held' have to be"),
    ],
)
def test_a_projection_that_cannot_be_is_refused_in_a_sentence(target, message, poses):
    x, x_t, q, candidates = poses
    system, frame = System([Faulty(target=target)], SKELETON), frame_of(x_t, q, candidates)
    with pytest.raises(ValueError, match=message) as error:
        system.iterate(x, frame, 1)
    assert "\n" not in str(error.value)


# What spheres touch


def ball_of(centre, radius: float, velocity=None) -> Shape:
    return Shape(BALL, (float(radius), 0.0, 0.0), centre, np.eye(3), np.zeros(3) if velocity is None else velocity)


def test_of_several_colliders_the_nearest_counts(rng):
    # By brute force, over planes and spheres that are the same for all people and ones that each has their own.
    points = rng.standard_normal((5, NUM_JOINTS, 3))
    up, spin, zero = (np.tile(v, (5, 1)) for v in ([0.0, 0.0, 1.0], [0.1, 0.0, 0.2], [0.0, 0.0, 0.0]))
    each = Plane(up, 0.3 * rng.standard_normal(5), spin, zero, zero)
    centres, radii = rng.standard_normal((5, 4, 3)), np.array([0.1, 0.2, 0.3, 0.4])
    balls = [ball_of(centres[:, k], radii[k]) for k in range(4)]
    found = nearest_surface([each, *balls, Plane.ground()], points)
    apart = points[:, :, None] - centres[:, None]
    distances = np.concatenate(
        (each.distance(points)[..., None], np.linalg.norm(apart, axis=-1) - radii, points[..., 2:]), -1
    )
    np.testing.assert_allclose(found.distance, distances.min(-1), rtol=0, atol=1e-14)
    on_plane = distances.argmin(-1) == 0
    assert on_plane.any()
    turning = np.cross(spin[:, None], points)
    np.testing.assert_allclose(found.velocity[on_plane], turning[on_plane], rtol=0, atol=1e-14)
    assert np.isinf(nearest_surface([], points).distance).all()


def test_what_is_neither_a_plane_nor_a_sphere_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="people can touch planes and shapes, not a str: build it of Plane and Shape"):
        inspect.unwrap(solids)((Plane.ground(), "ceiling"), ())  # without the tests' checks of types


def test_friction_undoes_a_slide_by_its_share_of_the_way_out():
    # Coulomb: the normal impulse is the way out d, and what a resting sphere weighs, g h^2; a slide of s is shortened
    # by mu (d + g h^2).
    x = np.tile([0.0, 0.0, 5.0], (NUM_JOINTS, 1))
    radii, before, touching = np.full(NUM_JOINTS, 0.1), x.copy(), np.zeros(NUM_JOINTS, dtype=np.bool_)
    before[:4] = [0.0, 0.0, 0.1]
    x[:4] = [[0.05, 0.0, 0.08], [0.0, 0.003, 0.08], [0.05, 0.0, 0.1 + GRIP_GAP / 2], [0.05, 0.0, 0.2]]
    ground = solids((Plane.ground(),), ())
    pressed, rubbed, sliding, weight = (
        np.zeros(NUM_JOINTS),
        np.zeros(NUM_JOINTS),
        np.zeros(NUM_JOINTS, dtype=np.bool_),
        GRAVITY * H * H,
    )
    push_out(x, before, radii, of_person(ground, 0), 0.5, weight, H, Marks(touching, sliding, pressed, rubbed))
    slides = [0.05 - 0.5 * (0.02 + weight), 0.0, 0.05 - 0.5 * weight, 0.05]
    expected = [[slides[0], 0, 0.1], [0, 0, 0.1], [slides[2], 0, 0.1 + GRIP_GAP / 2], [slides[3], 0, 0.2]]
    np.testing.assert_allclose(x[:4], expected, rtol=0, atol=1e-12)
    assert touching[:4].tolist() == [True, True, False, False]
    assert sliding[:4].tolist() == [True, False, True, False]
    assert (x[4:] == [0.0, 0.0, 5.0]).all()
    # Once per frame: pushed out again, the slide of what is out already is not shortened again.
    push_out(x, before, radii, of_person(ground, 0), 0.5, weight, H, Marks(touching, sliding, pressed, rubbed))
    np.testing.assert_allclose(x[:4], expected, rtol=0, atol=1e-12)


def test_every_surface_has_its_own_friction():
    # A plane of 0.3 with a patch of ice that is turned by 45 degrees, and a ball of 1.2; what gives none has the
    # simulator's.
    zero = np.zeros(3)
    plane = Plane(np.array([0.0, 0.0, 1.0]), np.zeros(()), zero, zero, zero, np.array(0.3))
    ice = friction_patch(np.array([2.0, 0.0]), np.array([1.0, 0.1]), math.pi / 4, 0.05)
    ball = replace(ball_of(np.array([0.0, 5.0, 0.0]), 0.5), friction=1.2)
    points = np.array([[0.0, 0.0, 0.1], [2.6, 0.6, 0.1], [2.6, 0.0, 0.1], [0.0, 5.0, 0.6]])
    assert nearest_surface([plane, ball, ice], points).friction.tolist() == [0.3, 0.05, 0.3, 1.2]
    assert np.isnan(nearest_surface([Plane.ground()], points).friction).all()


def test_joints_far_from_every_plane_are_left_out_without_a_difference(rng):
    # A sphere far away touches nobody, but with it around, every joint takes the whole search: all that contact writes
    # is the same.
    x = np.concatenate(
        [rng.uniform(-0.5, 0.5, (200, NUM_JOINTS, 2)), rng.uniform(-0.05, 0.3, (200, NUM_JOINTS, 1))], -1
    )
    before, radii = x + 0.02 * rng.standard_normal(x.shape), SKELETON.radii
    ground = Plane(
        np.array([0.6, 0.0, 0.8]), np.array(0.1), np.array([0.0, 0.1, 0.0]), np.array([0.2, 0.0, 0.1]), np.zeros(3)
    )
    ice = friction_patch(np.zeros(2), np.array([0.3, 0.3]), 0.5, 0.1)
    far = ball_of(np.array([0.0, 0.0, 1e4]), 0.1)
    found, zero, fit = [], np.zeros(x.shape), wrench.fit_of(SKELETON, SimulatorOptions())
    start = wrench.Start(before, zero, zero, zero, zero[:, 0], SKELETON.arrays, fit, H)
    for colliders in ((ground, Plane.ground(), ice), (ground, Plane.ground(), ice, far)):
        around = solids(colliders, (len(x),))
        p, active = np.zeros(x.shape), np.zeros(x.shape[:2], dtype=np.bool_)
        contact_targets(x, before, radii, around, 0.8, H, p, active)
        found.append([p, active])
        near, friction = np.zeros(x.shape[:2], dtype=np.bool_), np.zeros(x.shape[:2])
        support = wrench.Support(near, np.zeros(x.shape), friction, np.zeros(x.shape))
        for i in range(len(x)):
            here, out = of_person(around, i), x[i].copy()
            touching, sliding = (np.zeros(NUM_JOINTS, dtype=np.bool_) for _ in range(2))
            pressed, rubbed = np.zeros((2, NUM_JOINTS))
            wrench.near_spheres(start, i, x[i], here, support)
            push_out(out, before[i], radii, here, 0.8, 0.01, H, Marks(touching, sliding, pressed, rubbed))
            lowest = np.array(deepest(x[i], radii, here))
            found[-1] += [out, touching, sliding, pressed, rubbed, lowest]
        found[-1] += support
    assert 0.1 < found[0][1].mean() < 0.9
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
