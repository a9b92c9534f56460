"""A run of a world through time, and what was seen of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from dropsim.motion.motion import Motion
from dropsim.physics.collider import Plane
from dropsim.physics.step import DivergedError, Report, laid_out
from dropsim.priors.prior import Streams
from dropsim.scene.world import World, WorldState

FARTHEST = 1e4
"""Who is farther than this from the middle of the world has diverged [m]."""


@dataclass(frozen=True, eq=False)
class Track:
    """A sphere at every frame."""

    centres: Float[Tensor, "*w t 3"]
    """[m]; not a number before it is there."""
    velocities: Float[Tensor, "*w t 3"]
    """[m/s]"""
    radii: Float[Tensor, "1"]
    """[m]"""
    flying: bool = True
    """Whether it is thrown, and not an obstacle."""


@dataclass(frozen=True, eq=False)
class Take:
    """What was seen of a world: its people's motions, and what else there was to see."""

    motions: tuple[Motion, ...]
    """One for each person; several worlds are batch dimensions of each."""
    balls: tuple[Track, ...]
    """Every sphere at every frame."""
    ground: Plane
    """At every frame, along a dimension before the vector's."""


def above_ground(motion: Motion, ground: Plane) -> Motion:
    """Return a motion with heights above the ground at every frame, which may tilt, in place of heights in the world."""
    joints = motion.joints.clone()
    joints[..., 2] = (motion.joints * ground.normal.unsqueeze(-2)).sum(-1) - ground.offset.unsqueeze(-1)
    return replace(motion, joints=joints, root=joints[..., 0, :])


class WorldDivergedError(DivergedError):
    """A world that could not go on; it keeps what was seen up to there."""

    def __init__(self, message: str, take: Take) -> None:
        """Keep everybody, and the first person's motion as a simulation of one person would."""
        super().__init__(message, take.motions[0])
        self.take = take


def run(
    world: World, num_frames: int, seeds: Sequence[int] | int, *, start: WorldState | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Take:  # fmt: skip
    """Run a world for num_frames frames, its start being the first."""
    if num_frames < 1:
        raise ValueError(f"cannot run {num_frames} frames: ask for at least 1")
    now = start or world.start(seeds)
    rng, states, reports = world.streams(seeds), [now], list[Report]()
    for i in range(num_frames - 1):
        try:
            now, report = _stepped(world, now, rng)
        except ValueError as error:
            raise WorldDivergedError(f"frame {i + 1}: {error}", _seen(world, states, reports)) from error
        states.append(now)
        reports.append(report)
        if watch:
            watch(i + 1, num_frames - 1)
    return _seen(world, states, reports)


def _stepped(world: World, now: WorldState, rng: Streams) -> tuple[WorldState, Report]:
    try:
        now, report = world.step(now, rng)
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
        raise ValueError("what happens is so violent that the equations of motion have no solution") from None
    if not (now.people.x.abs() < FARTHEST).all():
        raise ValueError("somebody was thrown out of the world")
    return now, report


def _seen(world: World, states: Sequence[WorldState], reports: Sequence[Report]) -> Take:
    ground = world.grounds(states)
    return Take(_people(world, states, reports, ground), _spheres(world, states), ground)


def _people(world: World, states: Sequence[WorldState], reports: Sequence[Report], ground: Plane) -> tuple[Motion, ...]:
    """Return the motion of each person of worlds *w p t."""
    below = ground.map(lambda vectors: vectors.unsqueeze(-3), lambda scalars: scalars.unsqueeze(-2))
    whole = replace(laid_out(world.simulator, [s.people for s in states], reports, below), events=world.scene.events)
    dim = whole.root.ndim - 3
    return tuple(whole.map(lambda values, i=i: values.select(dim, i)) for i in range(len(world.scene.people)))


def _spheres(world: World, states: Sequence[WorldState]) -> tuple[Track, ...]:
    """Lay every sphere out in time."""
    batch = states[0].people.x.shape[:-3]
    shown = []
    for i, element in enumerate(world.scene.elements):
        frames = [element.balls(state.memories[i]) for state in states]
        known = next((f for f in frames if f is not None), None)
        if known is None:
            continue
        for k in range(len(known.radii)):
            missing = torch.full((*batch, 3), torch.nan, dtype=torch.float64)
            centres, velocities = (
                torch.stack([missing if f is None else getattr(f, name)[..., k, :].expand(*batch, 3) for f in frames], dim=-2)
                for name in ("centres", "velocities")
            )
            shown.append(Track(centres, velocities, known.radii[k : k + 1], known.flying))
    return tuple(shown)
