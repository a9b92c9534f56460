"""The laws that the simulator holds, and Algorithm 1 around them."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from loops import simulate

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute.random import Streams
from dropsim.files.units import GRAVITY
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics import settle as settling
from dropsim.physics.contact import Plane, Shape, solids
from dropsim.physics.energies import BRACES, Pin, Rigidity
from dropsim.physics.energy import Frame
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.shapes import BALL
from dropsim.physics.solver import System
from dropsim.physics.step import BUILT_IN, Simulator, Stage, StepInputs
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.motion_field import MotionField
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import Candidates, State
from dropsim.priors.recording import ClipPrior

H = 1 / 30
norm = functools.partial(np.linalg.norm, axis=-1)
SKELETON = Skeleton.adult()
NOWHERE = StepInputs()
ON_FLOOR = StepInputs(colliders=(Plane.ground(),))


def standing(height=0.0, *, skeleton=SKELETON):
    motion = stepping_clip(0.2)
    return PassivePrior(skeleton).start_at_rest(motion.joints[0] + np.array([0.0, 0.0, height]), motion.q[0])


def ragdoll(skeleton=SKELETON, **options):
    """Bones and contact alone: no prior, no range of motion, no correction."""
    options = SimulatorOptions(kinematic=False, correct=False, num_samples=1, **options)
    return Simulator(PassivePrior(skeleton), options=options, pose=None)


def follower(prior, **options):
    return Simulator(prior, options=SimulatorOptions(num_samples=1, **options))


def slope_of(degrees):
    angle, zero = math.radians(degrees), np.zeros(3)
    return Plane(np.array([math.sin(angle), 0.0, math.cos(angle)]), np.zeros(()), zero, zero, zero)


def lying(plane=Plane.ground()):  # noqa: B008 - planes do not change
    """A body at rest on its back on a plane through the origin."""
    q, up = np.tile(np.eye(3), (NUM_JOINTS, 1, 1)), plane.normal
    q[0] = exp(np.array([0.0, math.atan2(up[0], up[2]), 0.0])) @ exp(np.array([0.0, 0.0, 0.3]))
    x = SKELETON.forward(q, np.zeros(3))
    return PassivePrior(SKELETON).start_at_rest(x - (x @ up - SKELETON.radii).min() * up, q)


def momentum(skeleton, state):
    return (skeleton.masses[:, None] * state.v).sum(0)


# Newton's laws


def test_free_fall_is_exact():
    # Implicit Euler: v_n = -g n h and x_n = x_0 - g h^2 n (n + 1) / 2, for every particle alike.
    start = standing(5.0)
    motion = simulate(ragdoll(), start, 21, Streams(0), world=lambda i, s: NOWHERE)
    n = np.arange(21)
    fall = -9.81 * H * H * n * (n + 1) / 2
    assert np.abs(motion.joints - (start.x + fall[:, None, None] * np.array([0.0, 0.0, 1.0]))).max() < 1e-9


def test_linear_momentum_of_an_unforced_ragdoll_changes_by_gravity_alone(rng):
    # Bones pull both their ends alike, so whatever the limbs do: d(sum m v)/dt = M g.
    start = standing(5.0)
    state, simulator = State(start.x, rng.standard_normal((NUM_JOINTS, 3)), start.q, start.memory), ragdoll()
    before = momentum(SKELETON, state)
    for step in range(1, 31):
        state, _ = simulator.step(state, NOWHERE, Streams(0))
        fallen = np.array([0.0, 0.0, -9.81 * step * H]) * SKELETON.masses.sum()
        assert np.abs(momentum(SKELETON, state) - before - fallen).max() < 1e-9


@pytest.mark.parametrize("unit_masses", [False, True])
def test_a_force_for_a_time_changes_the_momentum_by_their_product(unit_masses):
    # F t = M dv, in newtons under both kinds of masses: 100 N for 15 frames of 1/30 s are 50 N s.
    skeleton = SKELETON.with_unit_masses() if unit_masses else SKELETON
    forces = np.zeros((NUM_JOINTS, 3))
    forces[9] = [100.0, 0.0, 0.0]
    state, simulator = standing(5.0, skeleton=skeleton), ragdoll(skeleton)
    for _ in range(15):
        state, report = simulator.step(state, StepInputs(forces=forces), Streams(0))
        assert np.array_equal(report.external_forces, forces)
    change = momentum(skeleton, state)
    assert abs(float(change[0]) - 50.0) < 1e-9
    assert abs(float(change[1])) < 1e-9


def test_a_limp_body_comes_to_rest_in_its_range_of_motion():
    """Without a prior nothing does work on a body: floor and joints only take energy away, so what fell lies still.

    With a pose model that drew people back by 3 cm a frame wherever they were, joints went on at 0.5 m/s.
    """
    prior, people = MotionField.shipped(), 6
    starts = [prior.start(("stand", "walk", "run")[i % 3], seed=50 + i) for i in range(people)]
    start = State(*(np.stack([getattr(s, name) for s in starts]) for name in ("x", "v", "q", "memory", "drift")))
    topple = np.random.default_rng(7).standard_normal((people, 2))
    start.v[..., :2] += 0.6 * (topple / np.linalg.norm(topple, axis=-1, keepdims=True))[:, None] * start.x[..., 2:]
    simulator = Simulator(prior).with_options(kinematic=False, correct=False, num_samples=1)
    motion = simulate(simulator, start, 361, Streams(range(people)))
    speed = 30 * np.linalg.norm(np.diff(motion.joints[:, 300:], axis=1), axis=-1).mean((-1, -2))
    assert (motion.joints[:, -1, 0, 2] < 0.3).all(), "or they have not fallen"
    # They are down within two seconds, so this is 8 to 10 s after the fall.
    assert speed.mean() < 0.03
    # The range of motion does act on them: without it, limbs come to lie anywhere (a median of 67).
    assert np.median(simulator.pose.norm(motion.q[:, -1])) < 20


@pytest.mark.parametrize(("friction", "slides"), [(0.01, True), (0.8, False)])
def test_one_friction_holds_the_body_and_bounds_its_contact_forces(friction, slides):
    # On 10 degrees, tan 0.18: with next to none a body goes g sin(10 deg) t^2 / 2 = 3.4 m in 2 s, less what is left of
    # friction; and no contact force leaves the cone of the same friction.
    plane = slope_of(10)
    simulator = ragdoll(friction=friction)
    motion = simulate(simulator, lying(plane), 61, Streams(0), world=lambda i, s: StepInputs(colliders=(plane,)))
    slid = np.linalg.norm(motion.joints[-1, 0] - motion.joints[0, 0])
    assert 1.5 < slid < 3.5 if slides else slid < 0.05
    along = motion.contact_forces @ plane.normal
    across = np.linalg.norm(motion.contact_forces - along[..., None] * plane.normal, axis=-1)
    assert along.max() > 10
    assert (across <= friction * along + 1e-6).all()


def test_a_sliding_body_loses_speed_as_coulomb_says():
    # On level ground v(t) = v_0 - mu g t, whatever slides; a limp body also rocks a little.
    start, friction = lying(), 0.3
    ground = replace(Plane.ground(), friction=np.array(friction))
    moving = State(start.x, start.v + np.array([3.0, 0.0, 0.0]), start.q, start.memory)
    motion = simulate(ragdoll(), moving, 22, Streams(0), world=lambda i, s: StepInputs(colliders=(ground,)))
    centre = SKELETON.centre_of_mass(motion.joints)[:, 0]
    lost = 3.0 - (centre[-1] - centre[-2]) / H
    assert lost == pytest.approx(friction * 9.81 * 21 * H, rel=0.25)


def test_bones_keep_their_length_in_a_fall_and_nobody_goes_through_the_floor():
    start = standing(1.0)
    motion = simulate(
        ragdoll(), State(start.x, start.v + np.array([2.0, 1.0, 0.0]), start.q, start.memory), 90, Streams(0)
    )
    assert SKELETON.bone_error(motion.joints).max() < 0.01
    assert (motion.joints[..., 2] - SKELETON.radii).min() > -0.02
    # Pelvis and chest are bones too: no fall bends them by more than a twelfth.
    a, b = np.array(BRACES).T
    rods = np.linalg.norm(motion.joints[..., a, :] - motion.joints[..., b, :], axis=-1)
    np.testing.assert_allclose(
        rods, np.broadcast_to(np.linalg.norm(SKELETON.rest[a] - SKELETON.rest[b], axis=-1), rods.shape), rtol=1 / 12
    )


def restored(x, iterations):
    y = x.copy()
    settling.restore_person(y, SKELETON.lengths, SKELETON.arrays.mobility, iterations)
    return y


def test_restoring_lengths_keeps_both_momenta(rng):
    # Tensions act along the bones on both ends, with opposite signs: sum m dx = 0 and sum m x cross dx = 0.
    x = standing().x + 0.01 * rng.standard_normal((NUM_JOINTS, 3))
    dx = SKELETON.masses[:, None] * (restored(x, 1) - x)
    assert np.linalg.norm(dx.sum(0)) < 1e-12
    assert np.linalg.norm(np.cross(x, dx).sum(0)) < 1e-12
    assert SKELETON.bone_error(restored(x, 4)) < 1e-6


def held(x, joint, point, *, ahead=(0.0, 0.0, 0.0), largest=1e9):
    holds = settling.Holds.nothing(1)
    holds.points[0, joint], holds.ahead[0, joint], holds.largest[0, joint] = point, ahead, largest
    y, forces = x[None].copy(), np.zeros((1, NUM_JOINTS, 3))
    settling.hold(y, holds, SKELETON.arrays, H, forces)
    return y[0], forces[0]


@pytest.mark.parametrize("joint", [8, 20])
def test_holding_a_joint_changes_the_momentum_by_its_force(joint):
    # F h^2 = sum m dx, and the moment is that of F at the joint, to first order in dx.
    x, way = standing().x, np.array([0.0, -0.0004, 0.0003])
    y, forces = held(x, joint, x[joint] + way)
    np.testing.assert_allclose(y[joint], x[joint] + way, atol=1e-12)
    moved = SKELETON.masses[:, None] * (y - x)
    np.testing.assert_allclose(moved.sum(0), H**2 * forces.sum(0), atol=1e-9)
    np.testing.assert_allclose(
        np.cross(x, moved).sum(0), H**2 * np.cross(x[joint], forces[joint]), atol=2e-3 * norm(moved).sum()
    )
    assert np.flatnonzero(forces.any(-1)).tolist() == [joint]
    assert SKELETON.bone_error(y) < 1e-6


def test_a_hold_is_no_stronger_than_it_is():
    x = standing().x
    _, forces = held(x, 8, x[8] + np.array([0.0, -0.15, 0.0]))
    needed = norm(forces[8])
    y, forces = held(x, 8, x[8] + np.array([0.0, -0.15, 0.0]), largest=needed / 3)
    assert norm(forces[8]) <= needed / 3 + 1e-9
    assert 0.0 < norm(y[8] - x[8]) < 0.15


def test_what_cannot_go_ahead_can_go_back():
    x, ahead = standing().x, np.array([0.0, 1.0, 0.0])
    y, forces = held(x, 8, x[8] + 0.1 * ahead, ahead=ahead)
    np.testing.assert_array_equal(y, x)
    assert not forces.any()
    y, forces = held(x, 8, x[8] - 0.1 * ahead + np.array([0.2, 0.0, 0.1]), ahead=ahead)
    np.testing.assert_allclose(y[8] - x[8], -0.1 * ahead, atol=1e-12)
    assert forces[8] @ ahead < 0


def settled(x, colliders):
    around, unloaded = solids(colliders, ()), np.zeros((1, 2))
    out, touching, _ = settling.settle(x[None], x[None], SKELETON.arrays, around, unloaded, 0.8, H)
    return out[0], touching[0]


def test_settling_goes_on_until_the_bones_are_whole(rng):
    # In the air, and so far from whole that Newton's method needs more than the two steps of a round.
    x = SKELETON.forward(np.broadcast_to(np.eye(3), (NUM_JOINTS, 3, 3)), np.array([0.0, 0.0, 5.0]))
    x = x + 0.15 * rng.standard_normal(x.shape)
    assert SKELETON.bone_error(restored(x, 2)) > settling.STRETCHED
    assert SKELETON.bone_error(settled(x, ())[0]) < settling.STRETCHED


def test_settling_brings_a_body_out_of_all_that_it_is_inside_of(rng):
    # Sunk by 6 cm and with a ball in its side: out again, whole, and what had to be pushed is marked.
    x = standing(-0.06).x
    ball = Shape(BALL, (0.1, 0.0, 0.0), x[9] + np.array([0.12, 0.0, 0.05]), np.eye(3))
    out, touching = settled(x, (Plane.ground(), ball))
    assert (SKELETON.radii - out[:, 2]).max() < settling.DEEP
    assert (SKELETON.radii + 0.1 - np.linalg.norm(out - ball.centre, axis=-1)).max() < settling.DEEP
    assert SKELETON.bone_error(out) < settling.STRETCHED
    assert touching[[10, 11, 9]].all()
    assert not touching[[15, 20, 21]].any()


# Algorithm 1


def test_following_a_recording_undisturbed_stays_close_to_it():
    # The kinematic energy is far stronger than what inertia asks of a slow motion: a few millimetres.
    clip = stepping_clip(2.0)
    prior = ClipPrior(clip)
    motion = simulate(follower(prior), prior.start(), len(clip), Streams(0))
    assert np.linalg.norm(motion.joints - clip.joints, axis=-1).mean() < 0.01


def test_a_push_moves_the_body_its_way_within_two_frames():
    prior, forces = ClipPrior(stepping_clip(2.0)), np.zeros((NUM_JOINTS, 3))
    forces[[3, 6, 9]] = [100.0, 0.0, 0.0]
    pushed = StepInputs(forces=forces, colliders=ON_FLOOR.colliders)
    still = simulate(follower(prior), prior.start(), 16, Streams(0))
    moved = simulate(follower(prior), prior.start(), 16, Streams(0), world=lambda i, s: pushed if i >= 10 else ON_FLOOR)
    assert np.array_equal(still.joints[:11], moved.joints[:11])
    assert (moved.joints - still.joints)[12, [3, 6, 9], 0].min() > 1e-3
    assert np.array_equal(moved.external_forces[11], forces)


def test_the_report_is_about_the_joints_that_the_state_has(rng):
    # Bone error, velocity and energies are those of the final joints; forces and root wrench add up to their change of
    # momentum.
    prior = CVAEPrior.shipped()
    simulator = Simulator(prior, options=SimulatorOptions(num_samples=4))
    before = prior.start("run", seed=[0, 1, 2])
    forces = np.zeros(before.x.shape)
    forces[:, 9, 0] = 300.0
    after, report = simulator.step(before, StepInputs(forces=forces, colliders=ON_FLOOR.colliders), Streams([0, 1, 2]))
    assert np.array_equal(report.bone_error, SKELETON.bone_error(after.x))
    assert np.array_equal(after.v, (after.x - before.x) / simulator.h)
    rods = Rigidity(simulator.options.rigidity_weight)
    frame = Frame(SKELETON, simulator.h, before.x, before.x, before.q, before.x[:, None], solids((), (3,)))
    np.testing.assert_allclose(report.energies["rigidity"], rods.value(after.x, frame), rtol=1e-9, atol=1e-15)
    rate = (SKELETON.masses[:, None] * ((after.v - before.v) / simulator.h + np.array([0.0, 0.0, 9.81]))).sum(1)
    left = rate - (report.contact_forces + report.external_forces).sum(1)
    weight = 9.81 * SKELETON.masses.sum()
    assert (np.linalg.norm(left, axis=-1) / weight <= report.wrench_after + 1e-9).all()
    assert report.touching.shape == (3, NUM_JOINTS)


@pytest.mark.parametrize("batch", [(), (1,), (6,), (2, 3)], ids=str)
def test_people_may_have_any_batch_dimensions(batch):
    prior, count = CVAEPrior.shipped(), math.prod(batch)
    state = prior.start("walk", seed=list(range(count))).map(lambda values: values.reshape(*batch, *values.shape[1:]))
    simulator = Simulator(prior, options=SimulatorOptions(num_samples=3))
    found, report = simulator.step(state, ON_FLOOR, Streams(list(range(count))).unflatten(*batch))
    assert found.x.shape == (*batch, NUM_JOINTS, 3)
    assert found.q.shape == (*batch, NUM_JOINTS, 3, 3)
    assert found.memory.shape == state.memory.shape
    assert report.chosen.shape == report.wrench_after.shape == report.energies["contact"].shape == batch


def test_ablations_are_options():
    clip = stepping_clip(1.5)
    prior = ClipPrior(clip)
    full = simulate(follower(prior), prior.start(), 30, Streams(0))
    passive = simulate(follower(prior, kinematic=False, correct=False), prior.start(), 45, Streams(0))
    # Without the prior the body collapses; with it, it does not.
    assert passive.joints[-1, 15, 2] < 0.7 * full.joints[0, 15, 2]
    assert full.joints[-1, 15, 2] > 0.95 * full.joints[0, 15, 2]
    # Without contact and reaction the feet sink below the floor.
    free = simulate(follower(prior, contact=False, react=False, correct=False), prior.start(), 30, Streams(0))
    assert (free.joints[..., 2] - SKELETON.radii).min() < (full.joints[..., 2] - SKELETON.radii).min()
    assert "contact" not in free.energies
    assert set(full.energies) == set(BUILT_IN)
    without = Simulator(prior, pose=None)
    assert "range_of_motion" not in simulate(without, prior.start(), 2, Streams(0)).energies
    # Hovering is explained by nothing; without the correction none of it goes. With it all but the drift, 0.08 of g h =
    # 0.33 m/s, and a twentieth of the rest.
    hovering = StepInputs()
    corrected, loose = (follower(prior, correct=c).step(prior.start(), hovering, Streams(0))[1] for c in (True, False))
    assert corrected.wrench_before == loose.wrench_before > 0.5
    assert corrected.wrench_after < prior.drift * prior.fps / GRAVITY + loose.wrench_after / 20


def test_the_iterations_start_where_the_options_say():
    class Two(PassivePrior):
        """Proposes to stay, and to be a metre to the side."""

        def propose(self, state, num, rng, intent=None):
            x = np.stack((state.x, state.x + np.array([1.0, 0.0, 0.0])), -3)
            return Candidates(x, np.stack((state.q, state.q), -4), np.stack((state.memory, state.memory), -2))

    for at_mode, chosen in ((True, 0), (False, 1), (None, 1)):
        simulator = Simulator(Two(SKELETON), options=SimulatorOptions(start_at_mode=at_mode, correct=False))
        _, report = simulator.step(standing(), ON_FLOOR, Streams(0))
        assert int(report.chosen) == chosen


class Shifted(Stage):
    """Shows the prior somebody 10 m away, and brings back what it proposes."""

    def __init__(self, shift):
        self.shift = np.array([shift, 0.0, 0.0])

    def query(self, state):
        return State(state.x + self.shift, state.v, state.q, state.memory)

    def change(self, candidates):
        return replace(candidates, x=candidates.x - self.shift)


def test_stages_change_what_the_prior_sees_and_proposes():
    prior = CVAEPrior.shipped()
    simulator, state = Simulator(prior, options=SimulatorOptions(num_samples=4)), prior.start("walk", seed=[0])
    plain, _ = simulator.step(state, ON_FLOOR, Streams([0]))
    staged, _ = simulator.step(
        state, StepInputs(colliders=ON_FLOOR.colliders, stages=[Shifted(10.0), Shifted(-3.0)]), Streams([0])
    )
    # A prior does not depend on where people are, but for rounding in single precision.
    np.testing.assert_allclose(staged.x, plain.x, rtol=0, atol=1e-4)
    once, _ = simulator.step(state, StepInputs(colliders=ON_FLOOR.colliders, stages=[OneWay(0.5)]), Streams([0]))
    assert np.abs(once.x - plain.x).max() > 0.01


class OneWay(Shifted):
    """Does not bring back."""

    def change(self, candidates):
        return candidates


def test_people_who_are_held_in_the_air_are_known_to_be_held():
    # Held by both hips and the head, a body hangs at rest: the forces that are reported bear its weight, and nothing is
    # left unexplained.
    prior, one = PassivePrior(SKELETON), standing(1.0)
    holds = settling.Holds.nothing()
    holds.points[[1, 2, 15]], holds.largest[[1, 2, 15]] = one.x[[1, 2, 15]], 5000.0
    state, report = one, None
    for _ in range(30):
        state, report = Simulator(prior).step(state, StepInputs(holds=holds), Streams(0))
    assert report is not None
    assert report.external_forces.sum(0)[2] == pytest.approx(9.81 * SKELETON.masses.sum(), rel=0.1)
    assert norm(state.x[[1, 2, 15]] - one.x[[1, 2, 15]]).max() < 0.02
    assert report.wrench_after < 0.1


def test_what_is_not_finite_is_refused():
    class Broken(PassivePrior):
        def propose(self, state, num, rng, intent=None):
            proposed = super().propose(state, num, rng, intent)
            return Candidates(proposed.x * np.nan, proposed.q, proposed.memory)

    with pytest.raises(ValueError, match="the prior diverged"):
        Simulator(Broken(SKELETON)).step(standing(), ON_FLOOR, Streams(0))
    with pytest.raises(ValueError, match="an external force is not finite"):
        ragdoll().step(standing(), StepInputs(forces=np.full((NUM_JOINTS, 3), np.nan)), Streams(0))


# The solver


def frame_at(state, y):
    one = State(*(v[None] for v in (state.x, state.v, state.q, state.memory)))
    return Frame(SKELETON, H, one.x, y[None], one.q, one.x[:, None], solids((), ()))


def test_energies_of_one_name_are_reported_as_their_sum():
    state = standing()
    pins = [Pin(joint, state.x[0] + 0.1 * i) for i, joint in ((1, "left_wrist"), (2, "right_wrist"))]
    frame = frame_at(state, state.x)
    alone = [float(System([pin], SKELETON).values(frame.x, frame)["pin"][0]) for pin in pins]
    assert min(alone) > 0
    assert float(System(pins, SKELETON).values(frame.x, frame)["pin"][0]) == pytest.approx(sum(alone))


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples has to be between 1 and 4096"),
        ({"friction": 0.0}, "friction has to be between 0.001 and 10, not 0"),
        ({"friction": math.nan}, "friction has to be between 0.001 and 10, not nan"),
        ({"moment_arm": 0.0}, "moment_arm has to be between"),
        ({"contact_weight": -1.0}, "contact_weight has to be between 0"),
        ({"drift": math.inf}, "drift has to be between 0"),
    ],
)
def test_options_that_cannot_be_are_refused_in_a_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        SimulatorOptions(**options)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        Simulator(PassivePrior(SKELETON)).with_options(**options)


@pytest.mark.parametrize("wrong", [None, SKELETON, "cvae", CVAEPrior])
def test_a_prior_that_is_none_is_refused_in_a_sentence(wrong):
    with pytest.raises(ValueError, match=f"a simulator takes a Prior first, not {type(wrong).__name__}"):
        unchecked(wrong)


def unchecked(prior):
    """A simulator as users make it: without the tests' checks of types."""
    simulator = object.__new__(Simulator)
    object.__setattr__(simulator, "prior", prior)
    object.__setattr__(simulator, "energies", ())
    simulator.__post_init__()


def test_an_energy_of_ones_own_has_a_name_of_its_own():
    pin = Pin("head", np.zeros(3))
    object.__setattr__(pin, "name", BUILT_IN[0])
    with pytest.raises(ValueError, match="an energy of your own cannot be called"):
        Simulator(PassivePrior(SKELETON), energies=(pin,))


def test_an_energy_of_ones_own_is_reported_under_its_name():
    prior = ClipPrior(stepping_clip(1.0))
    high = prior.start().x[15] + np.array([0.0, 0.0, 0.1])
    simulator = Simulator(prior, energies=(Pin("head", high, weight=300.0),))
    motion = simulate(simulator, prior.start(), 10, Streams(0))
    assert motion.energies["pin"].shape == (10,)
    plain = simulate(Simulator(prior), prior.start(), 10, Streams(0))
    assert motion.joints[-1, 15, 2] > plain.joints[-1, 15, 2] + 0.01
