"""One contract for every energy, the paper's and the editing ones."""

import math

import pytest
import torch

from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton
from dropsim.control.following import Planted
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.collider import GRIP_GAP, Plane, Spheres, push_out
from dropsim.physics.energies.editing import CentreOfMassVelocity, Pin, Spring, CollinearEnergy
from dropsim.physics.energies.kinematic import Kinematic
from dropsim.physics.energies.physical import Contact, RangeOfMotion, Rigidity
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.wrench import GRAVITY
from dropsim.priors.pose import PosePrior

SKELETON = Skeleton.adult()
H = 1 / 30


def turned(x, angle, shift):
    turn = exp(torch.tensor([0.0, 0.0, angle], dtype=torch.float64))
    return x @ turn.T + shift


@pytest.fixture
def poses():
    """Joints, wishes and rotations of eight frames of a person, bent and displaced so that every energy has something to say."""
    rng = torch.Generator().manual_seed(3)
    motion = stepping_clip(1.0)
    at = torch.arange(0, 24, 3)
    x_t = motion.joints[at].double()
    q = motion.q[at].double()
    x = x_t + 0.03 * torch.randn(x_t.shape, generator=rng, dtype=torch.float64) - torch.tensor([0.0, 0.0, 0.05], dtype=torch.float64)
    manifold = x_t.unsqueeze(1) + 0.04 * torch.randn(len(at), 5, 22, 3, generator=rng, dtype=torch.float64)
    return x, x_t, q, manifold


def frame_of(x_t, q, manifold, colliders=()):
    return Frame(SKELETON, H, x_t, x_t, q, manifold, colliders or (Plane.ground(),))


class Held(Energy):
    """A user's own energy, in a handful of lines: the head stays at a height."""

    name = "held"
    weight = 2.0

    def matrix(self, skeleton):
        row = torch.zeros(1, 22, dtype=torch.float64)
        row[0, 15] = 1.0
        return row

    def project(self, x, frame):
        goal = x[..., 15:16, :].clone()
        goal[..., 2] = 1.5
        return Target(goal)


def pose_prior():
    return PosePrior.shipped()


ENERGIES = {
    "rigidity": lambda: Rigidity(),
    "contact": lambda: Contact(),
    "range_of_motion": lambda: RangeOfMotion(pose_prior()),
    "kinematic": lambda: Kinematic(),
    "com_velocity": lambda: CentreOfMassVelocity(torch.tensor([1.2, 0.3], dtype=torch.float64)),
    "pin": lambda: Pin("left_ankle", torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)),
    "spring": lambda: Spring("left_hip", "left_ankle", 0.8),
    "straight": lambda: CollinearEnergy("left_hip", "left_knee", "left_ankle"),
    "planted": lambda: Planted(),
    "user": lambda: Held(),
}
EVERY = pytest.mark.parametrize("name", ENERGIES)


def residual(energy, x, frame):
    target = energy.project(x, frame)
    miss = energy.matrix(SKELETON) @ x - target.p
    return miss if target.active is None else miss * target.active.unsqueeze(-1)


@EVERY
def test_value_is_half_weight_times_squared_residual(name, poses):
    x, x_t, q, manifold = poses
    energy, frame = ENERGIES[name](), frame_of(x_t, q, manifold)
    expected = 0.5 * energy.weight * residual(energy, x, frame).square().sum((-1, -2))
    torch.testing.assert_close(energy.value(x, frame), expected, rtol=1e-12, atol=1e-15)


@EVERY
def test_batch_equals_loop(name, poses):
    x, x_t, q, manifold = poses
    energy = ENERGIES[name]()
    together = energy.project(x, frame_of(x_t, q, manifold))
    for i in range(len(x)):
        alone = energy.project(x[i], frame_of(x_t[i], q[i], manifold[i]))
        # The pose network runs in single precision, whose products round differently in a batch: 1e-5 m.
        tolerance = 1e-5 if name == "range_of_motion" else 1e-12
        torch.testing.assert_close(together.p[i], alone.p, rtol=0, atol=tolerance)
        if together.active is not None:
            assert torch.equal(together.active[i], alone.active)


@EVERY
def test_gradient_of_the_quadratic(name, poses):
    # With p held fixed, d/dx of w/2 |A x - p|^2 is w A^T (A x - p): what the global step sets to zero.
    x, x_t, q, manifold = (v[0] for v in poses)
    energy, frame = ENERGIES[name](), frame_of(x_t, q, manifold)
    target, A = energy.project(x, frame), energy.matrix(SKELETON)
    free = x.clone().requires_grad_()
    miss = (A @ free - target.p).square().sum(-1)
    (0.5 * energy.weight * (miss if target.active is None else miss * target.active).sum()).backward()
    torch.testing.assert_close(free.grad, energy.weight * A.T @ residual(energy, x, frame), rtol=1e-12, atol=1e-14)


# Moving and turning the world about z changes no value; contact, pin and com_velocity speak of places and directions in the world.
@pytest.mark.parametrize("name", ["rigidity", "range_of_motion", "kinematic", "spring", "straight", "planted", "contact"])
def test_invariant_to_moving_and_turning_the_world(name, poses):
    x, x_t, q, manifold = poses
    energy, shift = ENERGIES[name](), torch.tensor([3.0, -2.0, 0.0], dtype=torch.float64)
    moved_q = q.clone()
    moved_q[:, 0] = exp(torch.tensor([0.0, 0.0, 0.7], dtype=torch.float64)) @ q[:, 0]
    moved = frame_of(turned(x_t, 0.7, shift), moved_q, turned(manifold, 0.7, shift))
    tolerance = 1e-6 if name == "range_of_motion" else 1e-12
    torch.testing.assert_close(
        energy.value(x, frame_of(x_t, q, manifold)), energy.value(turned(x, 0.7, shift), moved), rtol=1e-6, atol=tolerance
    )


def test_the_weights_are_the_papers():
    # As its section on details has them: 1 for rigidity, 3 for contact, range of motion and the prior; relative to M / h^2 here.
    assert [ENERGIES[name]().weight for name in ("rigidity", "contact", "range_of_motion", "kinematic")] == [1.0, 3.0, 3.0, 3.0]


def test_a_straight_limb_has_its_middle_where_its_bones_meet(poses):
    # Along the line from hip to ankle, after the thigh's share of the leg; off it by d, the value is w/2 d^2.
    _, x_t, q, manifold = poses
    x, (thigh, shank) = x_t.clone(), SKELETON.lengths[[4, 7]]
    x[:, 4] = torch.lerp(x[:, 1], x[:, 7], float(thigh / (thigh + shank)))
    energy, frame = ENERGIES["straight"](), frame_of(x_t, q, manifold)
    assert energy.value(x, frame).max() < 1e-20
    x[:, 4, 0] += 0.1
    torch.testing.assert_close(energy.value(x, frame), torch.full((8,), 0.5 * energy.weight * 0.01, dtype=torch.float64))


def test_planted_feet_stay_within_the_slack_of_the_recording(poses):
    # A recorded foot on the floor may be a slack away from where it stands; one that is as high as the gap is followed as it is.
    _, x_t, q, manifold = poses
    feet, energy = [7, 8, 10, 11], Planted(slack=0.02, gap=0.03)
    wished = manifold.clone()
    wished[:, 0, feet, 2] = SKELETON.radii[feet]
    wished[:, 0, feet, :2] = x_t[:, feet, :2] + torch.tensor([0.05, 0.0], dtype=torch.float64)
    target = energy.project(x_t, frame_of(x_t, q, wished))
    assert target.active is not None
    assert target.active.all()
    expected = x_t[:, feet, :2] + torch.tensor([0.03, 0.0], dtype=torch.float64)
    torch.testing.assert_close(target.p[..., :2], expected, rtol=0, atol=1e-12)
    wished[:, 0, feet, 2] += 0.015
    half = energy.project(x_t, frame_of(x_t, q, wished))
    torch.testing.assert_close(half.p[..., 0], x_t[:, feet, 0] + 0.04, rtol=0, atol=1e-12)
    wished[:, 0, feet, 2] += 0.015 + 1e-9
    high = energy.project(x_t, frame_of(x_t, q, wished))
    assert high.active is not None
    assert not high.active.any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_friction_undoes_a_slide_by_its_share_of_the_way_out(dtype):
    # Coulomb: the normal impulse is the way out d, and what a resting sphere weighs, g h^2; a slide of s is shortened by mu (d + g h^2).
    radii, before = torch.full((4,), 0.1, dtype=dtype), torch.tensor([[0.0, 0.0, 0.1]], dtype=dtype).expand(4, 3)
    x = torch.tensor([[0.05, 0.0, 0.08], [0.0, 0.003, 0.08], [0.05, 0.0, 0.1 + GRIP_GAP / 2], [0.05, 0.0, 0.2]], dtype=dtype)
    out, touching = push_out(x, before, radii, (Plane.ground(),), friction=0.5, h=H)
    weight = GRAVITY * H * H
    slides = [0.05 - 0.5 * (0.02 + weight), 0.0, 0.05 - 0.5 * weight, 0.05]
    expected = torch.tensor([[slides[0], 0, 0.1], [0, 0, 0.1], [slides[2], 0, 0.1 + GRIP_GAP / 2], [slides[3], 0, 0.2]], dtype=dtype)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-7)
    assert touching.tolist() == [True, True, False, False]


def test_rigidity_is_zero_exactly_on_rest_lengths(poses):
    _, x_t, q, manifold = poses
    frame = frame_of(x_t, q, manifold)
    assert Rigidity().value(x_t, frame).max() < 1e-20
    stretched = 1.1 * x_t
    assert Rigidity().value(stretched, frame).min() > 1e-3


def test_kinematic_is_zero_on_a_candidate_and_finds_the_nearest(poses):
    x, x_t, q, manifold = poses
    frame = frame_of(x_t, q, manifold)
    assert Kinematic().value(manifold[:, 3], frame).max() == 0
    naive = torch.stack([min(manifold[i], key=lambda c, i=i: float((c - x[i]).square().sum())) for i in range(len(x))])
    assert torch.equal(Kinematic().project(x, frame).p, naive)


def test_contact_sticks_tangentially_and_touches_normally(poses):
    x, x_t, q, manifold = poses
    frame = frame_of(x_t, q, manifold)
    target = Contact().project(x, frame)
    inside = x[..., 2] < SKELETON.radii
    assert inside.any()
    assert torch.equal(target.active, inside)
    # On the floor: the place of x_t, at the height of the radius.
    torch.testing.assert_close(target.p[..., :2][inside], x_t[..., :2][inside], rtol=0, atol=1e-12)
    torch.testing.assert_close(target.p[..., 2][inside], SKELETON.radii.expand_as(inside)[inside], rtol=0, atol=1e-12)


def test_contact_projection_is_idempotent_on_a_tilted_plane(poses):
    _, x_t, q, manifold = poses
    normal = torch.tensor([math.sin(0.2), 0.0, math.cos(0.2)], dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    plane = Plane(normal, torch.tensor(0.5, dtype=torch.float64), zero, zero, zero)
    frame = frame_of(x_t, q, manifold, (plane,))
    first = Contact().project(x_t, frame)
    touching = plane.surface(first.p).distance - SKELETON.radii
    assert touching[first.active].abs().max() < 1e-12
    again = Contact().project(first.p - 1e-9 * normal, frame)
    torch.testing.assert_close(again.p[first.active], first.p[first.active], rtol=0, atol=1e-8)


def test_contact_is_carried_by_a_moving_surface(poses):
    _, x_t, q, manifold = poses
    ground = Plane.ground()
    moving = Plane(
        ground.normal,
        torch.tensor(0.2, dtype=torch.float64),
        ground.pivot,
        torch.tensor([0.6, 0.0, 0.0], dtype=torch.float64),
        ground.pivot,
    )
    target = Contact().project(x_t, frame_of(x_t, q, manifold, (moving,)))
    assert target.active.any()
    torch.testing.assert_close(
        (target.p - x_t)[target.active][:, 0], torch.full((int(target.active.sum()),), 0.6 * H, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_range_of_motion_is_zero_inside_and_does_not_move_the_body(poses):
    _, x_t, q, manifold = poses
    frame, energy = frame_of(x_t, q, manifold), RangeOfMotion(pose_prior())
    assert energy.value(x_t, frame).max() == 0
    broken = q.clone()
    broken[:, 4] = exp(torch.tensor([-1.8, 0.0, 0.0], dtype=torch.float64))
    broken[:, 18] = exp(torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64))
    x = SKELETON.forward(broken, x_t[:, 0])
    bent = frame_of(x_t, broken, manifold)
    assert (energy.value(x, bent) > 0).all()
    # A pose has no place: the rows sum to zero, so the energy's force has no resultant.
    assert (energy.matrix(SKELETON).sum(-1)).abs().max() < 1e-12


def test_pin_spring_and_velocity_vanish_where_they_should(poses):
    _, x_t, q, manifold = poses
    frame = frame_of(x_t, q, manifold)
    assert Pin("head", x_t[:, 15]).value(x_t, frame).max() == 0
    length = float((x_t[0, 1] - x_t[0, 7]).norm())
    assert float(Spring("left_hip", "left_ankle", length).value(x_t[0], frame_of(x_t[0], q[0], manifold[0]))) < 1e-20
    velocity = torch.tensor([1.2, -0.4], dtype=torch.float64)
    step = torch.cat((velocity, torch.tensor([0.3], dtype=torch.float64))) * H
    assert CentreOfMassVelocity(velocity).value(x_t + step, frame).max() < 1e-20


def test_an_unknown_joint_is_named():
    with pytest.raises(ValueError, match="there is no joint 'tail'"):
        Pin("tail", torch.zeros(3, dtype=torch.float64)).matrix(SKELETON)


def test_spheres_measure_to_the_nearest():
    centres = torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]], dtype=torch.float64)
    spheres = Spheres(centres, torch.tensor([0.5, 0.2], dtype=torch.float64), torch.zeros_like(centres))
    surface = spheres.surface(torch.tensor([[0.9, 0.0, 0.0], [1.9, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(surface.distance, torch.tensor([0.4, -0.1, -0.5], dtype=torch.float64))
    torch.testing.assert_close(surface.normal, torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64))
