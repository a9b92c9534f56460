"""The laws that the simulator holds, and Algorithm 1 around them."""

import math

import pytest
import torch

from dropsim.body.rotations import exp
from dropsim.body.skeleton import Skeleton
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.collider import Plane
from dropsim.physics.energies.editing import Pin
from dropsim.physics.energies.physical import Rigidity
from dropsim.physics.energy import Frame
from dropsim.physics.solver import System, restore_lengths, rigid_acceleration
from dropsim.physics.step import DivergedError, External, Simulator, simulate
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidates, Prior, State, Streams
from dropsim.priors.recording import ClipPrior

H = 1 / 30
NOWHERE = External(colliders=())


def standing(height=0.0, *, skeleton=None):
    motion = stepping_clip(0.2)
    skeleton = skeleton or motion.skeleton
    shift = torch.tensor([0.0, 0.0, height], dtype=torch.float64)
    return PassivePrior(skeleton).start_at_rest(motion.joints[0].double() + shift, motion.q[0].double())


def ragdoll(skeleton=None, **options):
    prior = PassivePrior(skeleton or Skeleton.adult())
    return Simulator(prior, kinematic=None, react=False, correct=False, num_samples=1, **options)


def lying(normal=(0.0, 0.0, 1.0)):
    """A body at rest on its back on a plane through the origin with the given normal."""
    skeleton = Skeleton.adult()
    q = torch.eye(3, dtype=torch.float64).repeat(22, 1, 1)
    tilt = math.atan2(normal[0], normal[2])
    q[0] = exp(torch.tensor([0.0, tilt, 0.0], dtype=torch.float64)) @ exp(torch.tensor([0.0, 0.0, 0.3], dtype=torch.float64))
    x = skeleton.forward(q, torch.zeros(3, dtype=torch.float64))
    up = torch.tensor(normal, dtype=torch.float64)
    x = x - (x @ up - skeleton.radii).min() * up
    return PassivePrior(skeleton).start_at_rest(x, q)


def momentum(skeleton, state):
    return (skeleton.masses.unsqueeze(-1) * state.v).sum(0)


def test_free_fall_is_exact():
    # Implicit Euler: v_n = -g n h and x_n = x_0 - g h^2 n (n + 1) / 2, for every particle alike.
    start = standing(5.0)
    motion = simulate(ragdoll(), start, 21, Streams(0), world=lambda i, s: NOWHERE)
    n = torch.arange(21, dtype=torch.float64)
    fall = -9.81 * H * H * n * (n + 1) / 2
    expected = start.x + fall[:, None, None] * torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    assert (motion.joints - expected).abs().max() < 1e-9


def test_linear_momentum_of_an_unforced_ragdoll_changes_by_gravity_alone():
    # Bones pull both their ends alike, so whatever the limbs do: d(sum m v)/dt = M g.
    skeleton = Skeleton.adult()
    start = standing(5.0)
    spin = torch.randn(22, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    state = State(start.x, spin, start.q, start.memory)
    simulator = ragdoll(skeleton)
    before = momentum(skeleton, state)
    for step in range(1, 31):
        state, _ = simulator.step(state, NOWHERE, Streams(0))
        fallen = torch.tensor([0.0, 0.0, -9.81 * step * H], dtype=torch.float64) * skeleton.masses.sum()
        assert (momentum(skeleton, state) - before - fallen).abs().max() < 1e-9


@pytest.mark.parametrize("unit_masses", [False, True])
def test_a_force_for_a_time_changes_the_momentum_by_their_product(unit_masses):
    # F t = M dv, in newtons under both kinds of masses: 100 N for 15 frames of 1/30 s are 50 N s.
    skeleton = Skeleton.adult().with_unit_masses() if unit_masses else Skeleton.adult()
    forces = torch.zeros(22, 3, dtype=torch.float64)
    forces[9] = torch.tensor([100.0, 0.0, 0.0])
    state, simulator = standing(5.0, skeleton=skeleton), ragdoll(skeleton)
    for _ in range(15):
        state, _ = simulator.step(state, External(forces=forces, colliders=()), Streams(0))
    change = momentum(skeleton, state)
    assert abs(float(change[0]) - 50.0) < 1e-9
    assert abs(float(change[1])) < 1e-9


def test_a_resting_ragdoll_stays_at_rest():
    # On its back, supported at every heavy joint, nothing has anywhere to go once the body has settled. The neck alone is a straight
    # linkage between two supported ends, which goes down ever more slowly: 2 mm in a second, after 4 s.
    motion = simulate(ragdoll(), lying(), 151, Streams(0))
    moved = (motion.joints[-1] - motion.joints[120]).norm(dim=-1)
    assert moved[12] < 2e-3
    assert torch.cat((moved[:12], moved[13:])).max() < 5e-4
    assert (motion.joints[..., 2] - motion.skeleton.radii).min() > -0.005


def test_a_resting_ragdoll_stays_on_a_slope_with_static_friction():
    # tan(10 deg) = 0.18 < mu = 0.8: it must not slide; frictionless it would go g sin(10 deg) t^2 / 2 = 3.4 m in 2 s.
    slope = math.radians(10)
    normal = (math.sin(slope), 0.0, math.cos(slope))
    zero = torch.zeros(3, dtype=torch.float64)
    plane = Plane(torch.tensor(normal, dtype=torch.float64), torch.zeros((), dtype=torch.float64), zero, zero, zero)
    motion = simulate(ragdoll(), lying(normal), 121, Streams(0), world=lambda i, s: External(colliders=(plane,)))
    slid = (motion.joints[-1] - motion.joints[60]).mean(0).norm()
    assert slid < 0.01


def test_bones_keep_their_length_in_a_fall_and_nobody_goes_through_the_floor():
    start = standing(1.0)
    motion = simulate(ragdoll(), State(start.x, start.v + torch.tensor([2.0, 1.0, 0.0]), start.q, start.memory), 90, Streams(0))
    assert motion.skeleton.bone_error(motion.joints).max() < 0.01
    assert (motion.joints[..., 2] - motion.skeleton.radii).min() > -0.02


def test_restoring_lengths_keeps_both_momenta():
    # Tensions act along the bones on both ends, with opposite signs: sum m dx = 0 and sum m x cross dx = 0.
    skeleton = Skeleton.adult()
    x = standing().x + 0.01 * torch.randn(22, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    after = restore_lengths(x, skeleton, skeleton.masses.mean() / skeleton.masses, iterations=1)
    dx = skeleton.masses.unsqueeze(-1) * (after - x)
    assert dx.sum(0).norm() < 1e-12
    assert torch.linalg.cross(x, dx).sum(0).norm() < 1e-12
    assert skeleton.bone_error(restore_lengths(x, skeleton, skeleton.masses.mean() / skeleton.masses, iterations=4)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_body_that_moves_as_one_gains_the_momenta_of_its_wrench(dtype):
    # Newton and Euler: sum m a is the force, sum r x m a the moment about the centre of mass, and no two joints come nearer.
    skeleton = Skeleton.adult().to(dtype)
    arms = standing().x.to(dtype)
    arms = arms - skeleton.centre_of_mass(arms)
    wrench = torch.tensor([120.0, -40.0, 700.0, 30.0, -55.0, 20.0], dtype=dtype)
    acceleration = rigid_acceleration(wrench, arms, skeleton.masses)
    gained = skeleton.masses.unsqueeze(-1) * acceleration
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    torch.testing.assert_close(gained.sum(0), wrench[:3], rtol=0, atol=tolerance)
    torch.testing.assert_close(torch.linalg.cross(arms, gained).sum(0), wrench[3:], rtol=0, atol=tolerance)
    stretching = ((acceleration[:, None] - acceleration) * (arms[:, None] - arms)).sum(-1)
    assert stretching.abs().max() < tolerance


def test_following_a_recording_undisturbed_stays_close_to_it():
    # The kinematic energy is far stronger than what inertia asks of a slow motion: a few millimetres.
    clip = stepping_clip(2.0)
    prior = ClipPrior(clip)
    motion = simulate(Simulator(prior, num_samples=1), prior.start(), len(clip), Streams(0))
    assert (motion.joints - clip.joints.double()).norm(dim=-1).mean() < 0.01


def test_a_push_moves_the_body_its_way_within_two_frames():
    clip = stepping_clip(2.0)
    prior = ClipPrior(clip)
    forces = torch.zeros(22, 3, dtype=torch.float64)
    forces[[3, 6, 9]] = torch.tensor([100.0, 0.0, 0.0], dtype=torch.float64)

    def world(i, state):
        return External(forces=forces) if i >= 10 else External()

    still = simulate(Simulator(prior, num_samples=1), prior.start(), 16, Streams(0))
    pushed = simulate(Simulator(prior, num_samples=1), prior.start(), 16, Streams(0), world=world)
    assert torch.equal(still.joints[:11], pushed.joints[:11])
    assert (pushed.joints - still.joints)[12, [3, 6, 9], 0].min() > 1e-3
    assert torch.equal(pushed.external_forces[11], forces)


def test_same_seed_same_motion_and_batch_equals_loop():
    clip = stepping_clip(1.0)
    prior = ClipPrior(clip)
    start = prior.start()
    both = State(*(torch.stack((v, v)) for v in (start.x, start.v, start.q, start.memory)))
    simulator = Simulator(prior, num_samples=1)
    alone = simulate(simulator, start, 20, Streams(0))
    assert torch.equal(alone.joints, simulate(simulator, start, 20, Streams(0)).joints)
    together = simulate(simulator, both, 20, Streams([0, 0]))
    # The same operations in another order of rounding, carried over 20 frames.
    torch.testing.assert_close(together.joints[1], alone.joints, rtol=0, atol=1e-9)


def test_ablations_are_fields():
    clip = stepping_clip(1.5)
    prior = ClipPrior(clip)
    full = simulate(Simulator(prior, num_samples=1), prior.start(), 30, Streams(0))
    sunk = ClipPrior(clip.slice(0, 30))
    passive = simulate(Simulator(prior, kinematic=None, react=False, correct=False), prior.start(), 45, Streams(0))
    # Without the prior the body collapses; with it, it does not.
    assert passive.joints[-1, 15, 2] < 0.7 * full.joints[0, 15, 2]
    assert full.joints[-1, 15, 2] > 0.95 * full.joints[0, 15, 2]
    # Without contact and reaction the feet sink below the floor.
    free = simulate(Simulator(sunk, contact=None, react=False, correct=False), sunk.start(), 30, Streams(0))
    assert (free.joints[..., 2] - free.skeleton.radii).min() < (full.joints[..., 2] - full.skeleton.radii).min()
    assert "contact" not in free.energies
    assert "contact" in full.energies


class Broken(Prior):
    """Diverges at its third frame."""

    def __init__(self, inner):
        self.inner, self.skeleton, self.fps, self.name = inner, inner.skeleton, inner.fps, "broken"

    def sample(self, state, num_samples, rng):
        found = self.inner.sample(state, num_samples, rng)
        if state.memory[..., 0] < 3:
            return found
        return Candidates(found.x * torch.nan, found.q, found.memory)


def test_a_diverging_prior_is_named_with_its_frame_and_the_motion_so_far_is_kept():
    inner = ClipPrior(stepping_clip(1.0))
    with pytest.raises(DivergedError, match="frame 4: the prior diverged") as caught:
        simulate(Simulator(Broken(inner)), inner.start(), 20, Streams(0))
    assert len(caught.value.motion) == 4


def test_a_force_that_is_not_finite_is_refused():
    inner = ClipPrior(stepping_clip(1.0))
    bad = torch.full((22, 3), torch.nan, dtype=torch.float64)
    with pytest.raises(DivergedError, match="frame 1: an external force is not finite"):
        simulate(Simulator(inner), inner.start(), 20, Streams(0), world=lambda i, s: External(forces=bad))


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Simulator(ClipPrior(stepping_clip(1.0)), num_samples=0)


def test_stiffer_bones_leave_less_to_restore():
    # One global step from a stretched inertial target: the stiffer the springs, the less of the stretch is left.
    start, skeleton = standing(1.0), Skeleton.adult()
    y = 1.1 * start.x
    frame = Frame(skeleton, H, start.x, y, start.q, start.x.unsqueeze(0), ())
    left = []
    for stiffness in (1.0, 10.0, 1000.0):
        energy = Rigidity(stiffness=stiffness)
        left.append(skeleton.bone_error(System([energy], skeleton).solve([energy.project(y, frame)], y)))
    assert left[0] > left[1] > left[2]


def test_energies_of_one_name_are_reported_as_their_sum():
    state, skeleton = standing(), Skeleton.adult()
    pins = [Pin(joint, state.x[0] + 0.1 * i) for i, joint in ((1, "left_wrist"), (2, "right_wrist"))]
    frame = Frame(skeleton, H, state.x, state.x, state.q, state.x.unsqueeze(0), ())
    alone = [float(System([pin], skeleton).values(state.x, frame)["pin"]) for pin in pins]
    assert min(alone) > 0
    assert float(System(pins, skeleton).values(state.x, frame)["pin"]) == pytest.approx(sum(alone))
