"""Every compiled kernel gives what its twin in torch gives, to rounding, and stands aside where it must."""

import dataclasses
import os
import pickle
import subprocess
import sys

import pytest
import torch

from dropsim.body.rotations import exp
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.compute import arrays as kernels
from dropsim.physics.collider import Collider, Plane, Spheres, Surface, nearest_surface, push_out
from dropsim.physics.energies.kinematic import Kinematic, nearest_candidate
from dropsim.physics.energies.physical import Contact, RangeOfMotion, Rigidity
from dropsim.physics.energy import Frame
from dropsim.physics.nnls import nnls
from dropsim.physics.solver import STRETCHED, System, inertial_target, restore_lengths, rigid_acceleration, settle, squared_distance
from dropsim.physics.step import External, Simulator, simulate
from dropsim.physics.wrench import Contacts, RootWrench, root_wrench, soft_correction, wrench_problem
from dropsim.priors.cvae import CVAENetwork, CVAEPrior, CVAEShape
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import State, Streams

SKELETON = Skeleton.adult()
H = 1 / 30
# A few dozen operations on numbers of up to some metres, in double precision.
ROUNDING = 1e-12


@pytest.fixture
def twins(monkeypatch):
    """Run something compiled, and again in torch."""

    def both(work):
        assert kernels.installed()
        compiled = work()
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "installed", lambda: False)
            return compiled, work()

    return both


@pytest.fixture
def people(random_rotations, rng):
    """Five poses of small turns at every joint, near the floor, some joints below it, bones a little off their lengths."""
    q = exp(0.4 * torch.randn(5, NUM_JOINTS, 3, generator=rng, dtype=torch.float64))
    q[:, 0] = random_rotations(5)
    root = 0.4 * torch.randn(5, 3, generator=rng, dtype=torch.float64) + torch.tensor([0.0, 0.0, 0.6], dtype=torch.float64)
    x = SKELETON.forward(q, root)
    return x + 0.005 * torch.randn(x.shape, generator=rng, dtype=torch.float64), q


def plane(*normal, speed=0.0):
    normal = torch.tensor(normal, dtype=torch.float64)
    zero = torch.zeros_like(normal)
    return Plane(normal / normal.norm(dim=-1, keepdim=True), zero[..., 0], zero + 0.1 * speed, zero + speed, zero + 0.3)


def balls(rng, *batch):
    centres, speeds = torch.randn(2, *batch, 4, 3, generator=rng, dtype=torch.float64)
    return Spheres(0.5 * centres, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64), speeds)


def worlds(rng):
    """Nothing, the floor, a moving slope, one plane for each person, balls for everybody and for each, and all of them."""
    slope = plane(0.1, 0.0, 1.0, speed=0.2).map(lambda v: v.expand(5, 3), lambda s: s.expand(5))
    each = dataclasses.replace(slope, offset=0.1 * torch.randn(5, generator=rng, dtype=torch.float64))
    yield ()
    yield (Plane.ground(),)
    yield (plane(0.3, -0.1, 1.0, speed=0.5),)
    yield (each,)
    yield (balls(rng),)
    yield (Plane.ground(), each, balls(rng), balls(rng, 5))


def agree(compiled, twin, tolerance=ROUNDING):
    for a, b in zip(compiled, twin, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_kinematics(twins, people, random_rotations, rng):
    x, q = people
    agree(*twins(lambda: (SKELETON.inverse(x, q), SKELETON.forward(q, x[:, 0]), SKELETON.bone_error(x))))
    # Far beyond what people can do, bones folded back included.
    wild = random_rotations(50, NUM_JOINTS)
    joints, source = SKELETON.forward(wild, torch.zeros(50, 3, dtype=torch.float64)), random_rotations(NUM_JOINTS).expand_as(wild)
    agree(*twins(lambda: (SKELETON.inverse(joints, source),)))


def test_a_collapsed_bone_keeps_its_rotation_in_both(twins, people):
    x, q = people
    x = x.clone()
    x[:, 7] = x[:, 4]
    agree(*twins(lambda: (SKELETON.inverse(x, q),)))


def test_surfaces_contact_and_settling(twins, people, rng):
    x, _ = people
    before = x + 0.02 * torch.randn(x.shape, generator=rng, dtype=torch.float64)
    for colliders in worlds(rng):
        frame = Frame(SKELETON, H, before, x, x.new_zeros(5, NUM_JOINTS, 3, 3), x.unsqueeze(1), colliders)

        def work(colliders=colliders, frame=frame):
            surface = nearest_surface(colliders, x)
            pushed = push_out(x, before, SKELETON.radii, colliders, friction=0.8, h=H)
            target = Contact().project(x, frame)
            settled = settle(x, before, SKELETON, colliders, friction=0.8, h=H, contact_mobility=0.05, rounds=4)
            return surface.distance, surface.normal, surface.velocity, *pushed, target.p, target.active, *settled

        agree(*twins(work))


def test_a_collider_of_the_users_own_is_asked_itself(people):
    class Ceiling(Collider):
        def surface(self, points):
            return Surface(2 - points[..., 2], -torch.eye(3, dtype=torch.float64)[2].expand_as(points), torch.zeros_like(points))

    x, _ = people
    assert torch.equal(nearest_surface((Ceiling(),), x).distance, 2 - x[..., 2])


def test_contacts_of_the_step(twins, people, rng):
    x, _ = people
    simulator = Simulator(CVAEPrior.shipped(), contact_margin=0.3)
    for colliders in worlds(rng):
        external = External(colliders=colliders)

        def work(external=external):
            found = simulator._touching(x, external)
            return found.touching, found.points, found.normals

        agree(*twins(work))


def test_distances(twins, people, rng):
    x, _ = people
    y = x + torch.randn(x.shape, generator=rng, dtype=torch.float64)
    agree(*twins(lambda: (squared_distance(x, y), squared_distance(x, y, SKELETON.masses))))


@pytest.mark.parametrize("num", [1, 4, 5])
def test_the_norm_of_a_pose(twins, people, random_rotations, num):
    pose, wild = PosePrior.shipped(), random_rotations(num, NUM_JOINTS)
    # Sums of some hundred products in single precision, of norms of up to a hundred.
    agree(*twins(lambda: (pose.norm(people[1][:num]), pose.norm(wild) / 10)), tolerance=2e-5)


def test_lengths_and_rigid_acceleration(twins, people, rng):
    x, _ = people
    mobility = 0.1 + torch.rand(5, NUM_JOINTS, generator=rng, dtype=torch.float64)
    wrench = 100 * torch.randn(5, 6, generator=rng, dtype=torch.float64)
    agree(
        *twins(lambda: (restore_lengths(x, SKELETON, mobility), rigid_acceleration(wrench, x - x.mean(1, keepdim=True), SKELETON.masses)))
    )


def test_the_global_step_and_the_energies(twins, people, rng):
    x, q = people
    y = x + 0.02 * torch.randn(x.shape, generator=rng, dtype=torch.float64)
    pose = PosePrior(PosePrior.shipped().network, limit=2.0)
    manifold = x.unsqueeze(1) + 0.1 * torch.randn(5, 7, NUM_JOINTS, 3, generator=rng, dtype=torch.float64)
    frame = Frame(SKELETON, H, x, y, q, manifold, (Plane.ground(),))
    system = System([Rigidity(), Contact(), RangeOfMotion(pose), Kinematic()], SKELETON)

    targets = [energy.project(x, frame) for energy in system.energies]
    assert targets[1].active.any()
    assert targets[2].active.any()

    def work():
        # A frame remembers how the kernels see it.
        again = dataclasses.replace(frame)
        wished = nearest_candidate(manifold, x)
        return system.iterate(x, again, 1), system.iterate(x, again, 4), *system.values(x, again).values(), wished

    agree(*twins(work))


@pytest.mark.parametrize("num_edges", [3, 4, 6])
@pytest.mark.parametrize("standing", [False, True])
def test_the_root_wrench(twins, people, rng, num_edges, standing):
    x, _ = people
    v, forces = torch.randn(2, *x.shape, generator=rng, dtype=torch.float64)
    options = dataclasses.replace(Simulator(object.__new__(CVAEPrior)).wrench, num_edges=num_edges)
    touching = torch.rand(5, NUM_JOINTS, generator=rng) < 0.3 * standing
    normals = torch.nn.functional.normalize(torch.randn(x.shape, generator=rng, dtype=torch.float64), dim=-1)
    contacts = Contacts.of_spheres(x, SKELETON.radii, touching, normals)
    after = x + H * v + 0.002 * torch.randn(x.shape, generator=rng, dtype=torch.float64)

    def work():
        problem = wrench_problem(x, v, contacts, masses=SKELETON.masses, h=H, options=options)
        wished, found = root_wrench(problem, after), root_wrench(problem, after, forces=10 * forces)
        return (
            problem.B, problem.a, problem.r, problem.edges, problem.F, found.residual, found.explained, found.explained + found.residual,
            soft_correction(problem, after, found), soft_correction(problem, after, found, wished=wished, forces=10 * forces),
        )  # fmt: skip

    # b is a difference of rates of up to 1e5 N m, each a sum of 66: 1e5 x 66 x 1e-16. How the load is spread over contacts that serve
    # alike is not compared: a ridge of 1e-6 leaves it open to 1e-4.
    agree(*twins(work), tolerance=1e-9)


def test_least_squares_that_are_not_finite_are_refused_alike(twins):
    F, b = torch.ones(6, 4, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    for bad in ((F * torch.nan, b), (F, b * torch.inf)):

        def work(bad=bad):
            with pytest.raises(ValueError, match="not finite"):
                nnls(*bad)
            return ()

        twins(work)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("samples", [1, 33, 64])
def test_the_prior(twins, batch, samples):
    prior = CVAEPrior.shipped()
    seeds = list(range(6))[: max(1, torch.Size(batch).numel())]
    state = prior.start("walk", seed=seeds).map(lambda part: part.reshape(*batch, *part.shape[1:]))
    streams = [Streams(seeds).unflatten(*batch) for _ in range(2)]
    compiled, twin = twins(lambda: prior.sample(state, samples, streams.pop()))
    # The twin rounds to single precision at every step: 6e-8 of numbers up to a metre and some; velocities are 30 times as large.
    agree((compiled.x, compiled.q, compiled.memory / 30), (twin.x, twin.q, twin.memory / 30), tolerance=1e-6)


def test_large_turns_of_the_prior_are_exact_too(twins):
    torch.manual_seed(0)
    network = CVAENetwork(CVAEShape(latent=4, decoder=(32,), prior=(32,), kinematic=True))
    network.output_scale.fill_(4.0)
    prior, shipped = CVAEPrior(network, SKELETON), CVAEPrior.shipped()
    state, streams = shipped.start("run", seed=[0, 1]), [Streams([0, 1]) for _ in range(2)]
    compiled, twin = twins(lambda: prior.sample(state, 5, streams.pop()))
    # Joints that turn nearly half a turn magnify single precision: of 40 random networks, half are within 9e-6 and all within 6e-5.
    agree((compiled.x, compiled.q), (twin.x, twin.q), tolerance=1e-4)


def test_a_step_is_the_same_step(twins):
    prior = CVAEPrior.shipped()
    simulator = Simulator(prior, range_of_motion=RangeOfMotion(PosePrior.shipped()))
    state = prior.start("walk", seed=[0, 1, 2])
    streams = [Streams([0, 1, 2]) for _ in range(2)]
    (a, report), (b, twin) = twins(lambda: simulator.step(state, External(), streams.pop()))
    agree((a.x, a.q, a.v / 30), (b.x, b.q, b.v / 30), tolerance=2e-6)
    agree((report.chosen, report.contacts), (twin.chosen, twin.contacts))
    agree((report.root_wrench, *report.energies.values()), (twin.root_wrench, *twin.energies.values()), tolerance=2e-6)


class SameForBoth(CVAEPrior):
    """The shipped prior, always compiled, so that two runs see the very same candidates."""

    def sample(self, state, num_samples, rng):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "installed", lambda: True)
            return super().sample(state, num_samples, rng)


def pushed(prior, num_frames, seeds=(0, 1, 2)):
    """Run walking people who are pushed sideways at the chest in the frames 3 to 10."""
    simulator = Simulator(prior, range_of_motion=RangeOfMotion(PosePrior.shipped()))
    start = CVAEPrior.shipped().start("walk", seed=list(seeds))
    force = torch.zeros(len(seeds), NUM_JOINTS, 3, dtype=torch.float64)
    force[:, 9, 0] = torch.tensor([150.0, 400.0, 800.0], dtype=torch.float64)[: len(seeds)]
    return simulate(simulator, start, num_frames, Streams(list(seeds)), world=lambda i, _: External(force if 3 <= i < 10 else None))


def test_a_pushed_simulation_is_the_same_apart_from_the_prior(twins):
    shipped = CVAEPrior.shipped()
    prior = SameForBoth(shipped.network, shipped.skeleton, temperature=shipped.temperature)
    a, b = twins(lambda: pushed(prior, 16))
    assert a.contacts is not None
    assert a.contacts.any()
    # Rounding alone, 1e-16 of metres, which a frame hands on to the next: seen are 2e-14 m. Some dozen frames later a difference is
    # large enough to change the last digit of what the network sees in single precision.
    agree((a.joints, a.q, a.root_wrench), (b.joints, b.q, b.root_wrench), tolerance=1e-10)
    assert torch.equal(a.contacts, b.contacts)


def test_a_pushed_simulation_is_the_same_before_chaos_sets_in(twins):
    a, b = twins(lambda: pushed(CVAEPrior.shipped(), 16))
    # Candidates differ by 1e-7 in each frame, which adds up; after thirty frames another candidate is the nearest, and two ways part.
    agree((a.joints, a.q), (b.joints, b.q), tolerance=3e-5)
    assert torch.equal(a.contacts, b.contacts)


def test_gradients_and_single_precision_go_through_torch(people):
    x, q = people
    q = q.clone().requires_grad_()
    (grad,) = torch.autograd.grad(SKELETON.forward(q, x[:, 0]).sum(), q)
    assert grad.abs().max() > 0
    assert SKELETON.forward(q.detach().float(), x[:, 0].float()).dtype == torch.float32


def test_a_buffer_is_used_again_only_when_nobody_holds_it():
    buffers = kernels.Buffers()
    first = buffers.take(3, 4)
    view = first[1:]
    address = first.data_ptr()
    assert buffers.take(3, 4).data_ptr() != address
    del first
    assert buffers.take(3, 4).data_ptr() != address
    del view
    taken = [buffers.take(3, 4) for _ in range(2)]
    assert address in [t.data_ptr() for t in taken]
    assert buffers.take(2, 4).shape == (2, 4)
    assert pickle.loads(pickle.dumps(buffers)).take(1).shape == (1,)


@pytest.mark.parametrize("packable", [True, False])
def test_a_packed_linear_layer_is_the_plain_one_and_survives_pickling(rng, monkeypatch, packable):
    if not packable:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    weight, bias = torch.randn(7, 12, generator=rng), torch.randn(7, generator=rng)
    layer = kernels.PackedLinear(weight[:, :9], bias)
    for rows in (1, 5, 600):
        x = torch.randn(rows, 9, generator=rng)
        plain = torch.nn.functional.linear(x, weight[:, :9], bias)
        # Sums of nine products of a few units, rounded to 6e-8.
        agree((layer(x), pickle.loads(pickle.dumps(layer))(x)), (plain, plain), tolerance=1e-5)


def test_the_switch_turns_kernels_off():
    code = "from dropsim import kernels; import sys; sys.exit(int(kernels.installed()))"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "DROPSIM_KERNELS": "0"}, check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1


def test_the_torch_path_makes_no_tensors_of_its_own_on_the_cpu():
    # On the meta device only shapes are computed, and a tensor of another device beside them is an error. What looks at numbers cannot be
    # run there: inverse kinematics, the fit of contact forces and the range of motion, which ask whether any joint needs their rare case.
    on_meta, wrench = SKELETON.to("meta"), torch.empty(2, 6, device="meta", dtype=torch.float64)
    x, q = torch.empty(2, NUM_JOINTS, 3, device="meta", dtype=torch.float64), torch.empty(2, NUM_JOINTS, 3, 3, device="meta").double()
    assert on_meta.forward(q, x[:, 0]).is_meta
    assert on_meta.bone_error(x).shape == (2,)
    ground = Plane.ground().map(lambda v: v.to("meta"), lambda s: s.to("meta"))
    assert nearest_surface((ground,), x).normal.is_meta
    assert nearest_surface((ground, ground), x).distance.is_meta
    assert push_out(x, x, on_meta.radii, (ground,), friction=0.8, h=H)[0].is_meta
    assert restore_lengths(x, on_meta, x[..., 0]).is_meta
    y = inertial_target(x, x, x, on_meta.masses, H) + rigid_acceleration(wrench, x, on_meta.masses)
    frame = Frame(on_meta, H, x, y, q, torch.empty(2, 5, NUM_JOINTS, 3, device="meta").double(), (ground,))
    system = System([Rigidity(), Contact(), Kinematic()], on_meta)
    assert system.iterate(x, frame, 2).is_meta
    assert all(value.shape == (2,) for value in system.values(x, frame).values())
    contacts = Contacts.of_spheres(x, on_meta.radii, torch.empty(2, NUM_JOINTS, device="meta", dtype=torch.bool), x)
    problem = wrench_problem(x, x, contacts, masses=on_meta.masses, h=H)
    assert problem.F.shape == (2, 6, 88)
    vars(problem)["body_weight"] = 700.0
    found = RootWrench(wrench, wrench, problem.edges[..., 0], x, 700.0)
    assert soft_correction(problem, x, found, wished=found, forces=x).is_meta


def test_the_prior_makes_no_tensors_of_its_own_on_the_cpu():
    network = CVAEPrior.shipped().network
    hinges = network.hinges.to("meta")
    network = network.to("meta")
    network.hinges = hinges
    prior = CVAEPrior(network, SKELETON.to("meta"))
    x, q = torch.empty(2, NUM_JOINTS, 3, device="meta", dtype=torch.float64), torch.empty(2, NUM_JOINTS, 3, 3, device="meta").double()
    found = prior.decode(State(x, x, q, torch.empty(2, 135, device="meta").double()), torch.empty(2, 4, 32, device="meta"))
    assert found.x.is_meta
    assert found.x.shape == (2, 4, NUM_JOINTS, 3)
    assert prior.apply_impulse(found.memory[:, 0], x[:, 0]).is_meta


def test_settling_goes_on_until_the_bones_are_whole():
    # In the air, and so far from whole that Newton's method needs more than one round's two steps.
    rest = SKELETON.forward(torch.eye(3, dtype=torch.float64).expand(NUM_JOINTS, 3, 3), torch.tensor([0.0, 0.0, 5.0], dtype=torch.float64))
    x = rest + 0.15 * torch.randn(NUM_JOINTS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"friction": 0.8, "h": H, "contact_mobility": 0.05, "rounds": 1}
    assert SKELETON.bone_error(settle(x, x, SKELETON, (), **options)[0]) > STRETCHED
    for values in (x, x.to(torch.float32)):
        assert SKELETON.bone_error(settle(values, values, SKELETON, (Plane.ground(),), **options)[0]) < STRETCHED
