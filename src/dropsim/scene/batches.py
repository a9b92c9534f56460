"""Inputs of different worlds as those of one batch: a batch is many times faster than its members."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.skeleton import Skeleton
from dropsim.physics.contact import colliders_by_world
from dropsim.physics.energy import Energy, Frame, Target
from dropsim.physics.settle import Holds
from dropsim.physics.step import Stage, StepInputs
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, State
from dropsim.scene.element import SceneContext


def stack_inputs(parts: Sequence[StepInputs], context: SceneContext) -> StepInputs:
    """Put together what happens in each world of a batch."""
    nothing, nobody = np.zeros(context.people.x.shape[1:]), Intent.unknown(context.batch[-1])
    colliders = tuple((world, collider) for world, part in enumerate(parts) for collider in part.colliders)
    energies = [(world, energy) for world, part in enumerate(parts) for energy in part.energies]
    stages = tuple((world, stage) for world, part in enumerate(parts) for stage in part.stages)
    forces, loads = (
        np.stack([nothing if getattr(part, name) is None else getattr(part, name) for part in parts])
        for name in ("forces", "loads")
    )
    intents = [(part.intent or nobody).broadcast(context.batch[-1]) for part in parts]
    # Places are the world's to give.
    intent = Intent(*(np.stack([getattr(i, name) for i in intents]) for name in ("velocity", "facing", "height")))
    holds = [part.holds or Holds.nothing(context.batch[-1]) for part in parts]
    return StepInputs(
        forces=forces,
        loads=loads,
        colliders=colliders_by_world(colliders, context.batch),
        energies=[WorldsEnergy(tuple(alike), context.batch[-1]) for alike in _alike(energies, context.skeleton)],
        stages=[WorldsStage(stages)] if stages else (),
        intent=intent if intent.known.any() else None,
        holds=Holds(*map(np.stack, zip(*holds, strict=True))) if any(part.holds for part in parts) else None,
    )


@dataclass(frozen=True, eq=False)
class WorldsStage(Stage):
    """Stages that each act in one world."""

    parts: tuple[tuple[int, Stage], ...]

    def query(self, state: State) -> State:
        state = state.map(np.array)
        for world, stage in self.parts:
            seen = stage.query(state[world])
            for name, values in vars(state).items():
                values[world] = getattr(seen, name)
        return state

    def change(self, candidates: Candidates) -> Candidates:
        parts = [np.array(values) for values in (candidates.x, candidates.q, candidates.memory, candidates.cost)]
        for world, stage in self.parts:
            changed = stage.change(Candidates(*(values[world] for values in parts)))
            for values, new in zip(parts, (changed.x, changed.q, changed.memory, changed.cost), strict=True):
                values[world] = new
        return Candidates(*parts)


def _alike(energies: Sequence[tuple[int, Energy]], skeleton: Skeleton) -> list[list[tuple[int, Energy]]]:
    """Group energies of one name, weight and matrix in different worlds, so that every world's own keep their order.

    Sums then have the same order in a batch and alone, and so the same last bit.
    """
    kinds, groups, after = list[tuple[str, float, bytes]](), list[list[tuple[int, Energy]]](), dict[int, int]()
    for world, energy in energies:
        kind = (energy.name, energy.weight, energy.matrix(skeleton).tobytes())
        at = next((i for i in range(after.get(world, 0), len(kinds)) if kinds[i] == kind), len(kinds))
        if at == len(kinds):
            kinds.append(kind)
            groups.append([])
        groups[at].append((world, energy))
        after[world] = at + 1
    return groups


@dataclass(frozen=True, eq=False)
class WorldsEnergy(Energy):
    """Energies of one name, weight and matrix, each in a world of its own."""

    parts: tuple[tuple[int, Energy], ...]
    """Worlds, and the energies there."""
    count: int
    """People in a world."""

    name: str = field(init=False)
    weight: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.parts[0][1].name)
        object.__setattr__(self, "weight", self.parts[0][1].weight)

    def matrix(self, skeleton: Skeleton) -> Float[np.ndarray, "m 22"]:
        return self.parts[0][1].matrix(skeleton)

    def project(self, x: Float[np.ndarray, "n 22 3"], frame: Frame) -> Target:
        num = len(self.matrix(frame.skeleton))
        p, active = np.zeros((len(x), num, 3)), np.zeros((len(x), num), dtype=np.bool_)
        for world, energy in self.parts:
            mine = slice(world * self.count, (world + 1) * self.count)
            here = {name: getattr(frame, name)[mine] for name in ("x", "y", "twist", "candidates")}
            target = energy.project(x[mine], replace(frame, **here, solids=frame.solids.only(mine)))
            p[mine] = target.p
            active[mine] = True if target.active is None else target.active
        return Target(p, active)
