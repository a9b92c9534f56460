"""Algorithm 1 of the paper: one frame, and a loop of them."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.rotations import exp, log_small
from dropsim.body.skeleton import LEAVES, NUM_JOINTS
from dropsim.compute import arrays as kernels
from dropsim.compute.threads import single_threaded
from dropsim.control.stiff_joints import straightened
from dropsim.motion.motion import Motion
from dropsim.physics.collider import GRIP_GAP, Collider, Plane, nearest_surface, served
from dropsim.physics.energies.kinematic import Kinematic, nearest_candidate
from dropsim.physics.energies.physical import Contact, RangeOfMotion, Rigidity
from dropsim.physics.energy import Energy, Frame
from dropsim.physics.nnls import checked
from dropsim.physics.solver import DEEP, MOST_ROUNDS, STRETCHED, System, inertial_target, rigid_acceleration, settle, squared_distance
from dropsim.physics.wrench import GRAVITY, Contacts, WrenchOptions, fit_constants, root_wrench, soft_correction, wrench_problem
from dropsim.priors.cvae import CVAEPrior
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Candidates, Prior, State, Streams
from dropsim.scene.hands import lifted_hands


@dataclass(frozen=True, eq=False)
class External:
    """What the world does to a character during one frame."""

    forces: Float[Tensor, "*b 22 3"] | None = None
    """On the joints [N]."""
    colliders: Sequence[Collider] = (Plane.ground(),)
    """As they will be at the frame's end."""
    energies: Sequence[Energy] = ()
    """Wishes of the scene, beside the simulator's own."""
    floor: Float[Tensor, "*b"] | None = None
    """Height of the ground under each person, which the prior takes for zero [m]."""
    plan: Candidates | None = None
    """One frame for each person to wish for, in place of what the prior proposes."""
    planned: Bool[Tensor, "*b"] | None = None
    """Who has such a plan; everybody where there is nothing to say."""
    held: Bool[Tensor, "*b"] | None = None
    """Who is held by something whose force is not known: their change of momentum cannot be judged, and is not corrected."""
    stiff: Bool[Tensor, "*b 22"] | None = None
    """Joints that do not bend."""


@dataclass(frozen=True, eq=False)
class Report:
    """What happened during one frame."""

    energies: Mapping[str, Float[Tensor, "*b"]]
    """Value of each energy at the solution, by name [m^2]."""
    chosen: Int[Tensor, "*b"]
    """Index of the prior's candidate that was nearest at the end."""
    contacts: Bool[Tensor, "*b 22"]
    contact_forces: Float[Tensor, "*b 22 3"]
    """Fitted to the motion, not simulated [N]."""
    external_forces: Float[Tensor, "*b 22 3"]
    """[N]"""
    root_wrench: Float[Tensor, "*b 2"]
    """Change of momentum that contact does not explain, before and after the correction [body weights]."""
    bone_error: Float[Tensor, "*b"]
    """Largest relative error of a bone's length."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "Report":
        """Apply a change of the batch dimensions to every part."""
        plain = {name: change(values) for name, values in vars(self).items() if name != "energies"}
        return Report(energies={name: change(values) for name, values in self.energies.items()}, **plain)


@dataclass(frozen=True, eq=False)
class Simulator:
    """A body for a motion prior: projective dynamics in which the prior is one energy. Parts can be replaced, or switched off by None."""

    prior: Prior
    rigidity: Rigidity = field(default_factory=Rigidity)
    contact: Contact | None = field(default_factory=Contact)
    range_of_motion: RangeOfMotion | None = None
    kinematic: Kinematic | None = field(default_factory=Kinematic)
    energies: Sequence[Energy] = ()
    """A user's own, beside these."""
    wrench: WrenchOptions = field(default_factory=WrenchOptions)
    correct: bool = True
    """Whether the root wrench is softly corrected."""
    react: bool = True
    """Whether the ground's reaction enters the momentum target (docs/architecture.md); the paper's literal form is without."""
    num_samples: int = 64
    """K: candidates of the prior, its mode among them."""
    wish_mode: bool = False
    """Whether the iterations start at the prior's mode, as in the paper, and not at a sample. With our prior the mode soon stands still."""
    num_iterations: int = 3
    """Local and global steps a frame."""
    contact_margin: float = 0.05
    """Gap up to which a sphere can bear a contact force [m]; recorded feet, which the prior learnt from, are about as far off the floor."""
    friction: float = 0.8
    """Between a joint's sphere and what it touches, as the body is pushed out of it."""
    leaf_damping: float = 0.03
    """Share by which the rotations of head, hands and toes, which joints do not tell, go back to rest each frame."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.num_samples < 1 or self.num_iterations < 1:
            raise ValueError(f"num_samples and num_iterations must be at least 1, not {self.num_samples} and {self.num_iterations}")

    @classmethod
    def shipped(cls, *, num_samples: int = 64) -> "Simulator":
        """Return the simulator with the motion prior and the pose model that come with the package."""
        return cls(CVAEPrior.shipped(), range_of_motion=RangeOfMotion(PosePrior.shipped()), num_samples=num_samples)

    @single_threaded
    def step(self, state: State, external: External, rng: Streams) -> tuple[State, Report]:
        """Advance one frame."""
        skeleton, h = self.prior.skeleton, 1.0 / self.prior.fps
        forces = torch.zeros_like(state.x) if external.forces is None else external.forces
        candidates = prior_sample(self.prior, state, self.num_samples, rng, external.floor)
        # The wish: a plan or a sample of the prior, or its mode where the paper is followed to the letter or there is no other.
        wish = 0 if self.wish_mode or candidates.x.shape[-3] == 1 else 1
        mode = candidates.x[..., 0, :, :]
        candidates = _with_plan(candidates, wish, external)
        if external.stiff is not None:
            candidates = straightened(candidates, external.stiff, skeleton, external.floor)
        if not math.isfinite(candidates.x.sum()):
            raise ValueError("the prior diverged: its candidates are not finite")
        wished = candidates.x[..., wish, :, :]
        balance = self._balance(state, wished, forces, external)
        frame = Frame(skeleton, h, state.x, balance.y, candidates.q[..., wish, :, :, :], candidates.x, external.colliders)

        system = System((*self._own, *external.energies), skeleton) if external.energies else self._system
        x = system.iterate(wished if self.kinematic else balance.y, frame, self.num_iterations)

        landing = balance.land(x)
        x = landing.x
        chosen = nearest_candidate(candidates.x, x)
        kin = candidates.pick(chosen)
        q = self._damped(skeleton.inverse(x, twist_from=kin.q))
        values = dict(system.values(x, frame))
        values["momentum"] = 0.5 * squared_distance(x, balance.y, system.mass)
        values["kinematic_mode"] = 0.5 * (self.kinematic.weight if self.kinematic else 0.0) * squared_distance(x, mode)
        report = Report(values, chosen, landing.contacts, landing.forces, forces, landing.root_wrench, skeleton.bone_error(x))
        return State(x, (x - state.x) / h, q, apply_impulse(self.prior, self.prior.commit(kin, x, q), external.forces)), report

    def _touching(self, x: Float[Tensor, "*b 22 3"], external: External) -> Contacts:
        """Return the spheres that touch something, or nearly."""
        if (laid_out := served(external.colliders, x)) is not None:
            from dropsim.physics.contact import near_spheres

            found = Contacts(torch.empty(x.shape[:-1], dtype=torch.bool), *(torch.empty(x.shape, dtype=torch.float64) for _ in range(2)))
            rows, radii = (NUM_JOINTS, 3), self.prior.skeleton.arrays.radii
            out = (kernels.array(found.touching, NUM_JOINTS), kernels.array(found.points, *rows), kernels.array(found.normals, *rows))
            near_spheres(kernels.array(x, *rows), radii, *laid_out, self.contact_margin, *out)
            return found
        surface = nearest_surface(external.colliders, x)
        radii = self.prior.skeleton.radii
        return Contacts.of_spheres(x, radii, surface.distance - radii.to(x) < self.contact_margin, surface.normal)

    @property
    def _own(self) -> list[Energy]:
        """Every energy that is switched on, but for the scene's."""
        paper = (self.rigidity, self.contact, self.range_of_motion, self.kinematic)
        return [*(e for e in paper if e is not None), *self.energies]

    @functools.cached_property
    def _system(self) -> System:
        """The global step without the scene's energies, laid out once."""
        return System(self._own, self.prior.skeleton)

    def _balance(self, state: State, wished: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"], external: External) -> "_Balance":
        """Lay out the step's momentum; in a few compiled calls where the simulator is as usual."""
        usual = self.correct and self.react and self.contact is not None and self.kinematic is not None and external.held is None
        alike = state.x.shape == state.v.shape == wished.shape == forces.shape
        solids = served(external.colliders, state.x, state.v, wished, forces, self.prior.skeleton.masses) if usual and alike else None
        if solids is None:
            return _TorchBalance(self, state, wished, forces, external)
        return _CompiledBalance(self, state, wished, forces, solids)

    def _damped(self, q: Float[Tensor, "*b 22 3 3"]) -> Float[Tensor, "*b 22 3 3"]:
        """Turn the leaves a little toward rest."""
        if kernels.serve(q):
            from dropsim.body.kinematics import damp

            damp(kernels.array(q, *q.shape[-3:]), _LEAVES, 1 - self.leaf_damping)
            return q
        leaves = exp((1 - self.leaf_damping) * log_small(q[..., LEAVES, :, :]))
        return q.index_copy(q.ndim - 3, torch.tensor(LEAVES, device=q.device), leaves)


_LEAVES = np.array(LEAVES)
NUM_SETTLE = 4
"""Rounds of pushing out and restoring lengths: a neck between a head and shoulders that lie on the floor takes several."""
CONTACT_MOBILITY = 0.05
"""How much a joint in contact gives when bones are brought back to length, beside a free one."""


@dataclass(frozen=True, eq=False)
class _Landing:
    """Where a solution came to be, and what that says of its momentum."""

    x: Float[Tensor, "*b 22 3"]
    contacts: Bool[Tensor, "*b 22"]
    forces: Float[Tensor, "*b 22 3"]
    """Of the contacts [N]."""
    root_wrench: Float[Tensor, "*b 2"]
    """Before and after the correction [body weights]."""


class _Balance(ABC):
    """The momentum of one step: what it aims at, and what becomes of the solution."""

    y: Float[Tensor, "*b 22 3"]
    """The inertial target, with the reaction of the ground that the prior counts on; what the world adds, the person has not met yet."""

    @abstractmethod
    def land(self, x: Float[Tensor, "*b 22 3"]) -> _Landing:
        """Correct a solution softly and make it whole: nobody inside anything, every bone at its length; joints in contact hardly give."""


class _TorchBalance(_Balance):
    """Step by step, for every simulator."""

    def __init__(
        self, simulator: Simulator, state: State, wished: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"], external: External
    ) -> None:
        masses, self._h = simulator.prior.skeleton.masses.to(state.x), 1.0 / simulator.prior.fps
        self._simulator, self._before, self._forces, self._external = simulator, state.x, forces, external
        touching = simulator._touching(state.x, external)
        self._problem = wrench_problem(state.x, state.v, touching, masses=masses, h=self._h, options=simulator.wrench)
        self._planned = root_wrench(self._problem, wished)
        self.y = inertial_target(state.x, state.v, forces, masses, self._h)
        if simulator.react and simulator.kinematic is not None:
            self.y = self.y + self._h * self._h * rigid_acceleration(self._planned.explained, self._problem.r, masses)

    def land(self, x: Float[Tensor, "*b 22 3"]) -> _Landing:
        """Correct, settle and look again."""
        simulator, problem, held = self._simulator, self._problem, self._external.held
        before = root_wrench(problem, x, forces=self._forces)
        if simulator.correct:
            corrected = soft_correction(problem, x, before, wished=self._planned, forces=self._forces)
            x = corrected if held is None else torch.where(held[..., None, None], x, corrected)
        colliders, rounds = (self._external.colliders, NUM_SETTLE) if simulator.contact else ((), 1)
        options = {"friction": simulator.friction, "h": self._h, "contact_mobility": CONTACT_MOBILITY, "rounds": rounds}
        x, contacts = settle(x, self._before, simulator.prior.skeleton, colliders, **options)
        after = root_wrench(problem, x, forces=self._forces)
        sizes = torch.linalg.vector_norm(torch.stack((before.residual, after.residual), dim=-2), dim=-1) / problem.body_weight
        return _Landing(x, contacts, after.forces, sizes)


class _CompiledBalance(_Balance):
    """The same in two calls, for the usual simulator."""

    def __init__(
        self, simulator: Simulator, state: State, wished: Float[Tensor, "*b 22 3"], forces: Float[Tensor, "*b 22 3"],
        solids: tuple[np.ndarray, np.ndarray],
    ) -> None:  # fmt: skip
        from dropsim.physics.balance import begin

        rows, skeleton, o = (NUM_JOINTS, 3), simulator.prior.skeleton, simulator.wrench
        self._simulator, self._solids, self._h = simulator, solids, 1.0 / simulator.prior.fps
        self._x, self._forces = kernels.array(state.x, *rows), kernels.array(forces, *rows)
        self._fit = fit_constants(skeleton, o)
        num, e = len(self._x), o.num_edges
        sizes = ((6, 3 * NUM_JOINTS), (6,), rows, (*rows[:1], e, 3), (6, e * NUM_JOINTS), (6,))
        self._laid_out = (np.empty((num, NUM_JOINTS), dtype=np.bool_), *(np.empty((num, *size)) for size in sizes))
        self.y = torch.empty(state.x.shape, dtype=torch.float64)
        now = (self._x, kernels.array(state.v, *rows), kernels.array(wished, *rows), self._forces)
        world = (skeleton.arrays.radii, *solids, simulator.contact_margin, o.friction, self._h, GRAVITY)
        checked(begin(*now, self._fit.masses, *world, *self._fit.options, *self._laid_out, kernels.array(self.y, *rows)))

    def land(self, x: Float[Tensor, "*b 22 3"]) -> _Landing:
        """Correct, settle and look again."""
        from dropsim.physics.balance import end

        rows, body, h, o = (NUM_JOINTS, 3), self._simulator.prior.skeleton.arrays, self._h, self._simulator.wrench
        found = _Landing(
            torch.empty(x.shape, dtype=torch.float64),
            torch.empty(x.shape[:-1], dtype=torch.bool),
            torch.empty(x.shape, dtype=torch.float64),
            torch.empty(*x.shape[:-2], 2, dtype=torch.float64),
        )
        correction = (self._fit.body_weight, GRAVITY * h * h, o.tolerance, o.weight, o.airborne_weight, o.threshold, o.cap)
        contact = (body.radii, *self._solids, self._simulator.friction, h, GRAVITY * h * h, GRIP_GAP)
        bones = (body.lengths, body.mobility, CONTACT_MOBILITY, NUM_SETTLE, MOST_ROUNDS * NUM_SETTLE, DEEP, STRETCHED)
        out = (
            kernels.array(found.x, *rows), kernels.array(found.contacts, NUM_JOINTS), kernels.array(found.forces, *rows),
            kernels.array(found.root_wrench, 2),
        )  # fmt: skip
        problem = (kernels.array(x, *rows), self._x, self._forces, *self._laid_out, self._fit.masses, o.friction)
        checked(end(*problem, *self._fit.options, *correction, *contact, *bones, *out))
        return found


def prior_sample(prior: Prior, state: State, num_samples: int, rng: Streams, floor: Float[Tensor, "*b"] | None) -> Candidates:
    """Ask the prior for candidates as if the ground under each person were at height zero."""
    if floor is None:
        return prior.sample(state, num_samples, rng)
    lift = torch.nn.functional.pad(floor.unsqueeze(-1), (2, 0)).unsqueeze(-2)
    candidates = prior.sample(replace(state, x=state.x - lift), num_samples, rng)
    return replace(candidates, x=candidates.x + lift.unsqueeze(-3))


def apply_impulse(prior: Prior, memory: Float[Tensor, "*b m"], forces: Float[Tensor, "*b 22 3"] | None) -> Float[Tensor, "*b m"]:
    """Let the prior know how forces of the world changed the body's velocity over the ground, which it would brake at once otherwise.

    Its own velocities stay what it predicted: replaced by solved ones, they destabilise it, as the paper found.
    """
    if forces is None or not forces.any():
        return memory
    across = torch.tensor([1.0, 1.0, 0.0], dtype=forces.dtype, device=forces.device)
    return prior.apply_impulse(memory, forces.sum(-2) * across / (prior.skeleton.masses.sum() * prior.fps))


def _with_plan(candidates: Candidates, wish: int, external: External) -> Candidates:
    """Put the planned frames in the place of the candidate that is wished for."""
    plan = external.plan
    if plan is None:
        return candidates

    def put(own: Tensor, new: Tensor, trailing: int) -> Tensor:
        k = own.ndim - trailing - 1
        if external.planned is not None:
            new = torch.where(external.planned.reshape(*external.planned.shape, *([1] * (trailing + 1))), new, own.narrow(k, wish, 1))
        return torch.cat((own.narrow(k, 0, wish), new.to(own), own.narrow(k, wish + 1, own.shape[k] - wish - 1)), dim=k)

    return Candidates(put(candidates.x, plan.x, 2), put(candidates.q, plan.q, 3), put(candidates.memory, plan.memory, 1))


class DivergedError(ValueError):
    """A simulation that could not go on; it keeps the frames up to there."""

    def __init__(self, message: str, motion: Motion | None) -> None:
        """Keep the motion so far."""
        super().__init__(message)
        self.motion = motion


def simulate(
    simulator: Simulator, start: State, num_frames: int, rng: Streams, *,
    world: Callable[[int, State], External] | None = None, watch: Callable[[int, int], None] | None = None,
) -> Motion:  # fmt: skip
    """Return num_frames frames from a start, the start being the first; `world` tells what happens between frame i and the next."""
    if num_frames < 1:
        raise ValueError(f"cannot simulate {num_frames} frames: ask for at least 1")
    states, reports = [start], list[Report]()
    for i in range(num_frames - 1):
        external = world(i, states[-1]) if world else External()
        if external.forces is not None and not external.forces.isfinite().all():
            raise DivergedError(f"frame {i + 1}: an external force is not finite", laid_out(simulator, states, reports))
        try:
            state, report = simulator.step(states[-1], external, rng)
        except ValueError as error:
            raise DivergedError(f"frame {i + 1}: {error}", laid_out(simulator, states, reports)) from error
        states.append(state)
        reports.append(report)
        if watch:
            watch(i + 1, num_frames - 1)
    return laid_out(simulator, states, reports)


def laid_out(simulator: Simulator, states: Sequence[State], reports: Sequence[Report], ground: Plane | None = None) -> Motion:
    """Lay states and reports out in time; the first frame, which nothing led to, repeats what the second reports.

    Where the ground of every frame is given, hands are bent out of it.
    """
    skeleton, joints = simulator.prior.skeleton, torch.stack([s.x for s in states], dim=-3)
    q = torch.stack([s.q for s in states], dim=-4)
    q = q if ground is None else lifted_hands(q, joints, skeleton, ground)
    motion = Motion(skeleton, simulator.prior.fps, joints[..., 0, :], q, joints)
    if not reports:
        return motion
    reports = [reports[0], *reports]
    zero = torch.zeros_like(reports[0].root_wrench[..., 0])
    return replace(
        motion,
        contacts=torch.stack([r.contacts for r in reports], dim=-2),
        contact_forces=torch.stack([r.contact_forces for r in reports], dim=-3),
        external_forces=torch.stack([r.external_forces for r in reports], dim=-3),
        root_wrench=torch.stack([r.root_wrench for r in reports], dim=-2),
        # What acts only now and then, such as a pin, is zero in the other frames.
        energies={
            k: torch.stack([r.energies.get(k, zero) for r in reports], dim=-1)
            for k in dict.fromkeys(k for r in reports for k in r.energies)
        },
        name=simulator.prior.name,
    )
