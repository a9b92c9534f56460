"""Algorithm 1 of the paper: one frame, and a loop of them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.body.joints import JOINTS, LEAVES, NUM_JOINTS
from dropsim.body.kinematics import damp
from dropsim.body.skeleton import Skeleton, flat
from dropsim.compute.jit import compile_once
from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics import settle as settling
from dropsim.physics import wrench
from dropsim.physics.contact import Collider, Solids, nearest_surface, solids
from dropsim.physics.energies import Contact, Kinematic, RangeOfMotion, Rigidity, nearest_candidate
from dropsim.physics.energy import Energy, Frame
from dropsim.physics.options import SimulatorOptions
from dropsim.physics.solver import System, squared_distance, system_of
from dropsim.physics.wrench import Aim
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Candidate, Candidates, Prior, State

BUILT_IN = ("rigidity", "contact", "range_of_motion", "kinematic", "momentum", "kinematic_mode")
"""Names of energies that a user's own cannot have."""
FASTEST_TWIST = 10.0
"""Speed at which bones turn about themselves at most [rad/s]: the 99.9th percentile of shins and feet in the shipped
bank."""
_LIMBS = np.array([name.endswith(("knee", "ankle", "foot", "elbow", "wrist")) for name in JOINTS])
_LEAVES = np.array(LEAVES)


class Stage:
    """Something that changes what the prior is asked or what it proposes: a floor at another height, a plan, a load."""

    def query(self, state: State) -> State:
        """Return the state that the prior sees."""
        return state

    def change(self, candidates: Candidates) -> Candidates:
        """Return the candidates that the solver sees."""
        return candidates


@dataclass(frozen=True, eq=False)
class StepInputs:
    """All that the world does to people during one step; `*b` are the people's batch dimensions."""

    forces: Float[np.ndarray, "*b 22 3"] | None = None
    """External forces on the joints [N]."""
    loads: Float[np.ndarray, "*b 22 3"] | None = None
    """Those of them that people carry and count on: the ground's reaction answers them [N]."""
    colliders: Sequence[Collider] = ()
    """What can be touched, as it will be at the step's end."""
    energies: Sequence[Energy] = ()
    """Energies of the scene, next to the simulator's own."""
    stages: Sequence[Stage] = ()
    """Changes of the prior's proposals, in their order."""
    intent: Intent | None = None
    """What people want to do."""
    holds: settling.Holds | None = None
    """Joints that are held by a bounded force."""
    shared: bool = False
    """Whether the people along the last batch dimension share a world and can touch each other."""
    immovable: Callable[[Float[np.ndarray, "*b 22 3"]], Sequence[Collider]] | None = None
    """What tells, for joints that have settled, which objects cannot make way for people: they settle once more, out of
    these."""

    @classmethod
    def merged(cls, parts: Sequence["StepInputs"]) -> "StepInputs":
        """Add up what several elements of a scene do."""
        forces = [part.forces for part in parts if part.forces is not None]
        loads = [part.loads for part in parts if part.loads is not None]
        return cls(
            forces=functools.reduce(np.add, forces) if forces else None,
            loads=functools.reduce(np.add, loads) if loads else None,
            colliders=[c for part in parts for c in part.colliders],
            energies=[e for part in parts for e in part.energies],
            stages=[s for part in parts for s in part.stages],
            intent=Intent.merged([part.intent for part in parts]),
            holds=settling.Holds.merged([part.holds for part in parts if part.holds is not None]),
            shared=any(part.shared for part in parts),
            immovable=next((part.immovable for part in parts if part.immovable is not None), None),
        )


@dataclass(frozen=True, eq=False)
class Report:
    """What happened during one frame."""

    energies: Mapping[str, Float[np.ndarray, "*b"]]
    """Value of each energy at the solution, by name [m^2]."""
    chosen: Int[np.ndarray, "*b"]
    """Index of the candidate that was nearest at the end."""
    touching: Bool[np.ndarray, "*b 22"]
    """Joints whose spheres had to be pushed out of something."""
    contact_forces: Float[np.ndarray, "*b 22 3"]
    """Fitted to the motion, not simulated [N]."""
    external_forces: Float[np.ndarray, "*b 22 3"]
    """Of the world, and of people on each other [N]."""
    wrench_before: Float[np.ndarray, "*b"]
    """Change of momentum that contact does not explain, before the correction [body weights]."""
    wrench_after: Float[np.ndarray, "*b"]
    """The same at the end [body weights]."""
    bone_error: Float[np.ndarray, "*b"]
    """Largest relative error of a bone's length."""

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> "Report":
        """Apply a change of the batch dimensions to every part."""
        plain = {name: change(values) for name, values in vars(self).items() if name != "energies"}
        return Report(energies={name: change(values) for name, values in self.energies.items()}, **plain)


@dataclass(frozen=True, eq=False)
class Simulator:
    """A body for a motion prior: projective dynamics in which the prior is one energy."""

    prior: Prior
    options: SimulatorOptions = field(default_factory=SimulatorOptions, kw_only=True)
    pose: PosePrior | None = field(default_factory=PosePrior.shipped, kw_only=True)
    """The model of natural poses behind the range of motion; None is without."""
    energies: Sequence[Energy] = field(default=(), kw_only=True)
    """A user's own, next to the built-in ones."""

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ValueError(f"a simulator takes a Prior first, not {type(self.prior).__name__}")
        for energy in self.energies:
            if getattr(energy, "name", None) in BUILT_IN:
                raise ValueError(f"an energy of your own cannot be called {energy.name!r}: that is a built-in one")
        time = self.options.reaction_time
        if time is not None and isinstance(self.prior, MotionField) and self.prior.reaction != time:
            object.__setattr__(self, "prior", replace(self.prior, reaction=time))

    @classmethod
    def shipped(cls, **options: Any) -> "Simulator":  # noqa: ANN401
        """Return the simulator with the package's own prior and pose model; options are those of SimulatorOptions."""
        return cls(MotionField.shipped(), options=SimulatorOptions(**options))

    def with_options(self, **changes: Any) -> "Simulator":  # noqa: ANN401
        """Return the same simulator with some options changed."""
        return replace(self, options=replace(self.options, **changes))

    @functools.cached_property
    def skeleton(self) -> Skeleton:
        """The body that is simulated."""
        skeleton = self.prior.skeleton
        return skeleton.with_unit_masses() if self.options.unit_masses else skeleton

    @property
    def num_samples(self) -> int:
        """Candidates of the prior a frame."""
        return self.options.num_samples or self.prior.num_samples

    @property
    def h(self) -> float:
        """Length of a step [s]."""
        return 1.0 / self.prior.fps

    @functools.cached_property
    def _energies(self) -> tuple[Energy, ...]:
        """Every energy that is switched on, but for the scene's."""
        o = self.options
        own: list[Energy] = [Rigidity(o.rigidity_weight, o.braces)]
        if o.contact:
            own.append(Contact(o.contact_weight, o.friction if o.slides else np.inf))
        if o.range_of_motion and self.pose is not None:
            own.append(RangeOfMotion(self.pose, o.range_of_motion_weight, gentle=o.gentle_range))
        if o.kinematic:
            own.append(Kinematic(o.kinematic_weight))
        return (*own, *self.energies)

    def step(self, state: State, inputs: StepInputs, rng: Streams) -> tuple[State, Report]:
        """Advance everyone by one frame."""
        with compile_once():
            return self._step(state, inputs, rng)

    def _step(self, state: State, inputs: StepInputs, rng: Streams) -> tuple[State, Report]:
        o, batch, now = self.options, state.x.shape[:-2], self._now(state, inputs)
        around, drift = solids(tuple(inputs.colliders), batch), flat(state.drift, 1)
        system = system_of((*self._energies, *inputs.energies), self.skeleton)

        mode, proposed = self._propose(state, inputs, rng)
        candidates, costs = flat(proposed.x, 3), self._costs(flat(proposed.cost, 1))
        aim = wrench.aim(now, candidates, costs, o.wrench_weight, around, o.react and o.kinematic)
        start = proposed.pick(aim.chosen.reshape(batch))
        candidates = self._let_slip(now, aim, candidates, flat(start.x, 2))
        # A body without a prior twists its limbs as before, and not as a prior that has no say would.
        twist = flat(start.q if o.kinematic else state.q, 3)
        frame = Frame(self.skeleton, self.h, now.x, aim.y, twist, candidates, around)
        first = flat(start.x, 2) + self._given_way(now, aim) if o.kinematic else aim.y
        x = system.iterate(first, frame, o.num_iterations)
        x, before = wrench.balance(now, x, aim.support, drift)
        holding = self._hold(inputs.holds, x)
        known = now._replace(forces=now.forces + holding)
        people = batch[-1] if inputs.shared and batch else 1
        x, touching, pushes = self._settle(known, around, aim, x, drift, people)
        x, again, given = self._give_way(now, inputs, x, batch)
        touching, pushes = touching | again, pushes + holding + given
        chosen = nearest_candidate(candidates, x) if o.nearest_sample else aim.chosen
        followed = start if (chosen == aim.chosen).all() else proposed.pick(chosen.reshape(batch))
        followed = Candidate(flat(followed.x, 2), flat(followed.q, 3), flat(followed.memory, 1))
        q = self._pose(x, followed.q if o.kinematic else twist, flat(state.q, 3))

        external, values = now.forces + pushes, self._values(system, frame, x, mode)
        forces, after, drift = self._explain(now._replace(forces=external), aim, x, drift)
        report = Report(values, chosen, touching, forces, external, before, after, self.skeleton.bone_error(x))
        noticed = external - now.loads if o.tell_prior else np.zeros(x.shape)
        memory = proposed_memory(self.prior, followed, x, q, noticed)

        def unflat(values: np.ndarray) -> np.ndarray:
            return values.reshape((*batch, *values.shape[1:]))

        return State(x, (x - now.x) / self.h, q, memory, drift).map(unflat), report.map(unflat)

    def _propose(self, state: State, inputs: StepInputs, rng: Streams) -> tuple[np.ndarray, Candidates]:
        """Let the prior propose, eq. (9), through the stages; return its mode and the candidates."""
        seen = state
        for stage in inputs.stages:
            seen = stage.query(seen)
        intent = inputs.intent if self.options.tell_prior else None
        candidates = self.prior.propose(seen, self.num_samples, rng, intent)
        mode = candidates.x[..., 0, :, :]
        for stage in inputs.stages:
            candidates = stage.change(candidates)
        if not np.isfinite(candidates.x.sum()):
            raise ValueError("the prior diverged: its candidates are not finite")
        return flat(mode, 2), candidates

    def _now(self, state: State, inputs: StepInputs) -> wrench.Start:
        """Return people and forces as kernels take them."""
        x = flat(state.x, 2)
        forces, loads = (
            np.zeros(x.shape) if given is None else flat(np.broadcast_to(given, state.x.shape), 2)
            for given in (inputs.forces, inputs.loads)
        )
        if not np.isfinite(forces.sum()):
            raise ValueError("an external force is not finite")
        bound = self.prior.drift if self.options.drift is None else self.options.drift
        spin, fit = np.zeros((len(x), 3)), wrench.fit_of(self.skeleton, self.options, bound)
        return wrench.Start(x, flat(state.v, 2), forces, loads, spin, self.skeleton.arrays, fit, self.h)

    def _costs(self, costs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Return the costs of the candidates at which the iterations may start; infinite for the others."""
        if costs.shape[1] == 1:
            return costs
        at_mode, index = self.options.start_at_mode, np.arange(costs.shape[1])
        free = index >= (0 if self.prior.starts_at_mode else 1) if at_mode is None else index == (0 if at_mode else 1)
        return np.where(free | (costs == -np.inf), costs, np.inf)

    def _given_way(self, now: wrench.Start, aim: Aim) -> Float[np.ndarray, "n 22 3"]:
        """Return how far forces from outside move limbs within the step; the ground holds what stands on it.

        Three iterations hardly turn a bone: from a candidate that knows nothing of it, 50 N would move a hand by a
        centimetre.
        """
        forces = now.forces - now.loads
        free = self.options.tell_prior & _LIMBS[:, None] & ~aim.support.near[..., None]
        return np.where(free, self.h**2 / self.skeleton.masses[:, None] * forces, 0.0)

    def _let_slip(
        self, now: wrench.Start, aim: Aim, candidates: np.ndarray, start: np.ndarray
    ) -> Float[np.ndarray, "n k 22 3"]:
        """Return candidates whose feet slip as far as the ground does not hold them.

        People count on the friction of usual ground. The part of the start's contact forces that slippery ground does
        not give is missing at the foot, and moves it by its mass.
        """
        support, o = aim.support, self.options
        slippery = support.near & (support.friction < o.friction)
        if not (o.slides and slippery.any()):
            return candidates
        usual = support._replace(friction=np.maximum(support.friction, o.friction))
        forces, _ = wrench.explain(now._replace(forces=now.loads), start, usual)
        load = (forces * support.normals).sum(-1, keepdims=True)
        along = forces - load * support.normals
        size = np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-9)
        share = np.maximum(1 - support.friction[..., None] * load / size, 0.0)
        missing, out = np.where(slippery[..., None], share, 0.0) * along, np.array(candidates)
        for foot in ([7, 10], [8, 11]):
            slip = self.h**2 / self.skeleton.masses[foot].sum() * missing[:, foot].sum(-2)
            out[:, :, foot] -= slip[:, None, None]
        return out

    def _hold(self, holds: settling.Holds | None, x: Float[np.ndarray, "n 22 3"]) -> Float[np.ndarray, "n 22 3"]:
        """Hold what is held, in place; return the forces that it takes [N]."""
        forces = np.zeros(x.shape)
        if holds is not None:
            holds = settling.Holds(flat(holds.points, 2), flat(holds.ahead, 2), flat(holds.largest, 1))
            settling.hold(x, holds, self.skeleton.arrays, self.h, forces)
        return forces

    def _settle(
        self, now: wrench.Start, around: Solids, aim: Aim, x: np.ndarray, drift: np.ndarray, people: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bring everyone out of objects and out of each other; return joints, touching joints and mutual forces [N].

        Coming out of the floor may take more than contact explains: those people are balanced and settled once more.
        """
        o, body = self.options, self.skeleton.arrays
        if not o.settle:
            return x, aim.support.near, np.zeros(x.shape)
        if not o.contact:
            body = body._replace(capsules=np.zeros_like(body.capsules))  # thin capsules touch nothing
            return settling.settle(x, now.x, body, solids((), ()), aim.ways, o.friction, self.h)
        x, touching, pushes = settling.settle(x, now.x, body, around, aim.ways, o.friction, self.h, people)
        y, _ = wrench.balance(now._replace(forces=now.forces + pushes), x, aim.support, drift)
        moved = (x != y).any((-1, -2))
        if not moved.any():
            return x, touching, pushes
        x, again, more = settling.settle(y, now.x, body, around, aim.ways, o.friction, self.h, people, moved)
        return x, touching | again, pushes + more

    def _give_way(
        self, now: wrench.Start, inputs: StepInputs, x: Float[np.ndarray, "n 22 3"], batch: tuple[int, ...]
    ) -> tuple[np.ndarray, ...]:
        """Move people out of objects that cannot make way; return joints, touching joints and forces [N]."""
        everyone, o = x.reshape(*batch, NUM_JOINTS, 3), self.options
        stuck = () if inputs.immovable is None or not (o.contact and o.settle) else tuple(inputs.immovable(everyone))
        inside = nearest_surface(stuck, everyone).distance < self.skeleton.radii if stuck else np.zeros(x.shape[:-1])
        met = np.asarray(flat(inside, 1).any(-1))
        if not met.any():
            return x, np.zeros(x.shape[:-1], dtype=np.bool_), np.zeros(x.shape)
        unloaded, around = np.zeros((len(x), 2)), solids((*inputs.colliders, *stuck), batch)
        out, touching, _ = settling.settle(x, now.x, self.skeleton.arrays, around, unloaded, o.friction, self.h)
        out = np.where(met[:, None, None], out, x)
        return out, touching & met[:, None], self.skeleton.masses[:, None] * (out - x) / self.h**2

    def _pose(self, x: np.ndarray, twist_from: np.ndarray, last: np.ndarray) -> Float[np.ndarray, "n 22 3 3"]:
        """Return local rotations: swings from x, twists toward the candidate's; leaves turn a little toward rest."""
        if self.options.twist_from_sample:
            q = self.skeleton.inverse(x, twist_from)
        else:
            q = self.skeleton.follow(x, twist_from, last, FASTEST_TWIST * self.h)
        damp(q, _LEAVES, 1 - self.options.leaf_damping)
        return q

    def _values(
        self, system: System, frame: Frame, x: np.ndarray, mode: np.ndarray
    ) -> dict[str, Float[np.ndarray, "n"]]:
        """Return the energies of a solution, by name [m^2]."""
        values, weight = system.values(x, frame), self.options.kinematic_weight * self.options.kinematic
        values["momentum"] = 0.5 * squared_distance(x, frame.y, system.mass)
        values["kinematic_mode"] = 0.5 * weight * squared_distance(x, mode)
        return values

    def _explain(
        self, start: wrench.Start, aim: Aim, x: np.ndarray, drift: Float[np.ndarray, "n 6"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return contact forces [N], the root wrench [body weights] and the drift after a step."""
        # What hits the ground is stopped by more than what people push themselves off with.
        limits = np.maximum(start.fit.limits, wrench.IMPACT * start.fit.body_weight)
        start = start._replace(fit=start.fit._replace(limits=limits))
        forces, residual = wrench.explain(start, x, aim.support)
        size = np.linalg.norm(residual, axis=-1) / start.fit.body_weight
        return forces, size, wrench.add_drift(drift, residual, start)


def proposed_memory(
    prior: Prior, chosen: Candidate, x: np.ndarray, q: np.ndarray, forces: Float[np.ndarray, "n 22 3"]
) -> Float[np.ndarray, "n m"]:
    """Return the prior's memory of a step: its chosen candidate, and the velocity over the ground from external forces.

    Its own velocities stay what it predicted: replaced by solved ones, they destabilise it, as the paper found. But of
    a push it has to know, or it would brake it at once.
    """
    memory = prior.commit(chosen, x, q)
    if not forces.any():
        return memory
    change = forces.sum(-2) / (prior.skeleton.masses.sum() * prior.fps)
    change[..., 2] = 0.0
    return prior.apply_impulse(memory, change)


class DivergedError(ValueError):
    """A simulation that could not go on; it keeps the frames up to there."""

    def __init__(self, message: str, motion: Motion | None) -> None:
        super().__init__(message)
        self.motion = motion


def stack_frames(simulator: Simulator, states: Sequence[State], reports: Sequence[Report]) -> Motion:
    """Stack states and reports in time; the first frame, which nothing led to, repeats what the second reports."""
    joints, q = np.stack([s.x for s in states], -3), np.stack([s.q for s in states], -4)
    motion = Motion(simulator.skeleton, simulator.prior.fps, joints[..., 0, :], q, joints, name=simulator.prior.name)
    if not reports:
        return motion
    reports = [reports[0], *reports]
    zero = np.zeros_like(reports[0].wrench_before)

    def stacked(name: str, axis: int) -> np.ndarray:
        return np.stack([getattr(r, name) for r in reports], axis)

    return replace(
        motion,
        touching=stacked("touching", -2),
        contact_forces=stacked("contact_forces", -3),
        external_forces=stacked("external_forces", -3),
        wrench_before=stacked("wrench_before", -1),
        wrench_after=stacked("wrench_after", -1),
        # What acts only now and then, such as a pin, is zero in the other frames.
        energies={
            k: np.stack([r.energies.get(k, zero) for r in reports], -1)
            for k in dict.fromkeys(k for r in reports for k in r.energies)
        },
    )
