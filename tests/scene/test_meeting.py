"""People who run into each other."""

import math
from itertools import combinations

import numpy as np

from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute.random import Streams
from dropsim.motion.synthetic import stepping_clip
from dropsim.physics.contact import Plane, solids
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.settle import NEAR, settle
from dropsim.physics.step import Simulator, StepInputs
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.passive import PassivePrior
from dropsim.priors.prior import State
from dropsim.scene import Person, Scene, World, run

BODY = Skeleton.adult()
FLOOR = solids((Plane.ground(),), ())
H = 1 / 30
CLIP = stepping_clip(0.5)


def two(gap: float) -> np.ndarray:
    """Two people who stand one behind the other, with their hips that far apart, off the floor."""
    x = CLIP.joints[0] - CLIP.joints[0, 0]
    return x + np.array([[[0.0, 0.0, 3.0]], [[0.02, gap, 3.0]]])


def apart(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Joints, forces, people who met somebody and joints that touch something else."""
    out, touching, forces = settle(x, x, BODY.arrays, FLOOR, np.zeros((len(x), 2)), 0.8, H, len(x))
    return out, forces, forces.any((-1, -2)), touching


def deepest(x: np.ndarray) -> float:
    """How deep any two people of a world are in each other, (*b p 22 3)."""
    reach, pairs = BODY.radii[:, None] + BODY.radii, combinations(np.moveaxis(x, -3, 0), 2)
    return float(
        max((reach - np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], axis=-1)).max() for a, b in pairs)
    )


def test_people_who_overlap_are_moved_apart():
    before = two(0.15)
    x, _, met, _ = apart(before)
    assert deepest(before) > 0.06
    assert deepest(x) < 0.02
    assert float(BODY.bone_error(x).max()) < 2e-3
    assert met.all()


def test_what_one_gains_in_momentum_the_other_loses():
    # Newton's third law: the impulses of a pair are opposite, and restoring lengths changes no momentum. A force F over
    # a step h moves a mass by F h^2 within it.
    before = two(0.15)
    x, forces, _, _ = apart(before)
    assert np.abs(forces).max() > 100
    assert np.abs(forces.sum((0, 1))).max() < 1e-9
    gained = (BODY.masses[:, None] * (x - before)).sum(-2)
    assert gained[0, 1] < -0.1 < 0.1 < gained[1, 1]
    np.testing.assert_allclose(gained[0], -gained[1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(gained, forces.sum(1) * H * H, rtol=0, atol=1e-9)


def test_people_who_do_not_touch_stay_where_they_are():
    for gap in (1.2, NEAR - 0.1, NEAR + 0.1):
        x, forces, met, touching = apart(two(gap))
        np.testing.assert_allclose(x, two(gap), rtol=0, atol=1e-9)
        assert not forces.any()
        assert not met.any()
        assert not touching.any()


def test_bodies_are_moved_as_a_whole():
    # Joint by joint, a few light limbs would take most of it.
    before = two(0.15)
    moved = (apart(before)[0] - before)[..., 1]
    assert (moved[0] < 0).all()
    assert (moved[1] > 0).all()
    assert np.abs(moved).max() < 4 * np.median(np.abs(moved))


def test_somebody_who_is_pushed_into_the_ground_touches_it():
    # One lies a millimetre above the floor, another on top of them and three centimetres into them: the lower one is
    # pushed down.
    q = np.tile(np.eye(3), (NUM_JOINTS, 1, 1))
    lying = BODY.forward(q, np.zeros(3))
    lying[:, 2] += 0.001 - (lying[:, 2] - BODY.radii).min()
    above = lying + np.array([0.0, 0.0, 2 * BODY.radii.max() - 0.03])
    x, _, met, touching = apart(np.stack((lying, above)))
    assert met.all()
    assert touching[0].any()
    assert not touching[1].any()
    assert (x[0, :, 2] - BODY.radii).min() > -0.005


# Within a step


def stepped(state: State, *, shared: bool, forces: np.ndarray | None = None, samples: int = 4):
    simulator = Simulator(CVAEPrior.shipped(), options=SimulatorOptions(num_samples=samples))
    inputs = StepInputs(forces=forces, colliders=(Plane.ground(),), shared=shared)
    return simulator, *simulator.step(state, inputs, Streams([0, 1]))


def overlapping() -> State:
    """Two people on the floor, one in the other's back."""
    state = CVAEPrior.shipped().start("stand", seed=[1, 1])
    return State(state.x + np.array([[[0.0, 0.0, 0.0]], [[0.02, 0.15, 0.0]]]), state.v, state.q, state.memory)


def test_the_report_of_people_who_were_separated_is_about_where_they_are():
    state, forces = overlapping(), np.zeros((2, NUM_JOINTS, 3))
    forces[0, 9] = [100.0, 0.0, 0.0]
    simulator, after, report = stepped(state, shared=True, forces=forces)
    mutual = report.external_forces - forces
    # Equal and opposite to rounding, among thousands of newtons.
    assert np.abs(mutual).max() > 100
    assert np.abs(mutual.sum((0, 1))).max() < 1e-9 * np.abs(mutual).max()
    # Bone errors and velocities are those of the final joints.
    assert np.array_equal(report.bone_error, BODY.bone_error(after.x))
    assert np.array_equal(after.v, (after.x - state.x) / simulator.h)
    assert deepest(after.x) < 0.03 < deepest(state.x)
    # Newton for each body: contact, external and mutual forces leave no more of the change of momentum than the
    # reported root wrench.
    rate = (BODY.masses[:, None] * ((after.v - state.v) / simulator.h + np.array([0.0, 0.0, 9.81]))).sum(1)
    left = np.linalg.norm(rate - (report.contact_forces + report.external_forces).sum(1), axis=-1) / (
        9.81 * BODY.masses.sum()
    )
    assert (left <= report.wrench_after + 1e-9).all()
    # The same step without the other: nobody is moved, and the energies are those of other joints.
    _, alone, before = stepped(state, shared=False, forces=forces)
    assert np.array_equal(before.external_forces, forces)
    assert not np.array_equal(alone.x, after.x)
    for name in ("rigidity", "kinematic", "momentum"):
        assert not np.array_equal(report.energies[name], before.energies[name]), name


def test_rotations_fit_the_joints_of_people_who_were_separated():
    _, after, _ = stepped(overlapping(), shared=True)
    again = BODY.forward(after.q, after.x[:, 0])
    # But for bones that are a little off their lengths, and hips and shoulders, which take the nearest rotation of
    # three bones.
    assert np.linalg.norm(again - after.x, axis=-1).max() < 0.04


def test_the_prior_hears_of_the_meeting():
    # As of any push: the impulse over the mass is added to its velocities along the ground. It has one candidate, so
    # that both take it.
    state = overlapping()
    (_, after, report), (_, alone, _) = (stepped(state, shared=shared, samples=1) for shared in (True, False))
    change = report.external_forces.sum(1)[:, :2] / (BODY.masses.sum() * 30)
    assert np.abs(change).max() > 0.1
    np.testing.assert_allclose((after.memory - alone.memory)[:, :2], change, rtol=0, atol=1e-9)


def test_nobody_is_left_inside_of_somebody_where_five_runners_meet():
    # Arms between trunks: what comes out of one person is pushed back by its own body, the floor or the next person.
    angles = [2 * math.pi * i / 5 for i in range(5)]
    people = [Person("run", (1.3 * math.cos(a), 1.3 * math.sin(a)), math.degrees(a) + 90, speed=3.0) for a in angles]
    world = World(Scene(tuple(people)), Simulator.shipped(num_samples=8))
    together, alone = run(world, 16, [0, 1, 5]), run(world, 16, [5])
    joints, forces = (
        np.stack([getattr(m, name) for m in together.motions], -3) for name in ("joints", "external_forces")
    )
    assert deepest(joints[:, 1:]) < 0.005
    assert np.abs(forces).max() > 100
    assert np.abs(forces.sum((-2, -3))).max() < 1e-8
    assert max(BODY.bone_error(motion.joints).max() for motion in together.motions) < 0.02
    for many, one in zip(together.motions, alone.motions, strict=True):
        assert np.array_equal(many.joints[2:], one.joints)


def test_two_bodies_that_fall_onto_each_other_keep_their_common_momentum():
    # Limp bodies in the air that touch: no ground, so the sum of their momenta changes by gravity alone.
    options = SimulatorOptions(kinematic=False, correct=False, num_samples=1)
    simulator = Simulator(PassivePrior(BODY), options=options, pose=None)
    state = State(two(0.35), np.zeros((2, NUM_JOINTS, 3)), np.stack([CLIP.q[0]] * 2), np.zeros((2, 0)))
    state.v[0, :, 1], state.v[1, :, 1] = 1.0, -1.0
    for step in range(1, 11):
        state, _ = simulator.step(state, StepInputs(shared=True), Streams([0, 1]))
        total = (BODY.masses[:, None] * state.v).sum((0, 1))
        np.testing.assert_allclose(total, [0.0, 0.0, -9.81 * step * H * 2 * BODY.masses.sum()], rtol=0, atol=1e-7)
    assert state.v[0, :, 1].mean() < 0.9
