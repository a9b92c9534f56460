"""A run of a world through time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import DivergedError, Report, stack_frames
from dropsim.scene.element import Element, Solid
from dropsim.scene.world import World, WorldState

FARTHEST = 1e4
"""Distance from the middle of the world beyond which people have diverged [m]."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """A run of a world: its people's motions, and the objects and the ground at every frame."""

    motions: tuple[Motion, ...]
    """Motions of the people; several worlds are batch dimensions of each."""
    objects: tuple[Solid, ...]
    """Everything but people that was there at some frame; centres have the shape *w t 3."""
    ground: Plane
    """Ground at every frame, along a dimension before the vector's."""
    by_world: tuple[tuple[Solid, ...], ...] = ()
    """Objects of each world, at all times, if the worlds are of different scenes."""

    @property
    def balls(self) -> tuple[Solid, ...]:
        """Spheres among the objects."""
        return tuple(solid for solid in self.objects if solid.radius > 0)

    @property
    def solids(self) -> tuple[Solid, ...]:
        """Objects that are no spheres."""
        return tuple(solid for solid in self.objects if solid.radius == 0)


def above_ground(motion: Motion, ground: Plane) -> Motion:
    """Return a motion whose heights are those above the ground, which may tilt, at every frame."""
    joints = motion.joints.copy()
    joints[..., 2] = (motion.joints * ground.normal[..., None, :]).sum(-1) - ground.offset[..., None]
    return replace(motion, joints=joints, root=joints[..., 0, :])


class WorldDivergedError(DivergedError):
    """A world that could not go on; it keeps what was seen up to there."""

    def __init__(self, message: str, rollout: Rollout) -> None:
        super().__init__(message, rollout.motions[0])
        self.rollout = rollout


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C in a run; it keeps what was seen up to there."""

    def __init__(self, rollout: Rollout) -> None:
        super().__init__()
        self.rollout = rollout


def run(
    world: World,
    num_frames: int,
    seeds: Sequence[int] | int,
    *,
    start: WorldState | None = None,
    watch: Callable[[int, int], None] | None = None,
    rng: Streams | None = None,
) -> Rollout:
    """Run a world for num_frames frames, its start being the first; a start before frame 0 leads in and is not kept.

    Ctrl-C raises RunInterrupted, a KeyboardInterrupt that has the frames so far.
    """
    if num_frames < 1:
        raise ValueError(f"cannot run {num_frames} frames: ask for at least 1")
    now = start or world.start(seeds)
    rng, states, reports = rng or world.streams(seeds), [now], list[Report]()
    lead_in = max(0, -now.frame)
    try:
        for i in range(num_frames - 1 + lead_in):
            try:
                now, report = world.step(now, rng)
                _require_inside(now)
            except ValueError as error:
                raise WorldDivergedError(f"frame {i + 1 - lead_in}: {error}", seen(world, states, reports)) from error
            states.append(now)
            reports.append(report)
            if watch:
                watch(i + 1, num_frames - 1 + lead_in)
    except KeyboardInterrupt:
        # The last report may be missing if Ctrl-C came between the two.
        states = states[: len(reports) + 1]
        first = lead_in if len(states) > lead_in else 0
        raise RunInterrupted(seen(world, states[first:], reports[first:])) from None
    return seen(world, states[lead_in:], reports[lead_in:])


def _require_inside(now: WorldState) -> None:
    if not (np.abs(now.people.x) < FARTHEST).all():
        raise ValueError("somebody was thrown out of the world: what happens is too violent")


def seen(world: World, states: Sequence[WorldState], reports: Sequence[Report]) -> Rollout:
    """Return what was seen at some frames; there is a report between each and the next."""
    whole = stack_frames(world.simulator, [s.people for s in states], reports)
    dim = whole.root.ndim - 3
    motions = tuple(
        replace(whole.map(lambda values, i=i: values.take(i, dim)), events=world.scene.events_of(i))
        for i in range(len(world.scene.people))
    )
    memories, batch = [state.memories for state in states], states[0].people.x.shape[:-3]
    ground = world.grounds(states)
    if not world.scenes:
        frames = [_objects(world.scene.elements, own) for own in memories]
        return Rollout(motions, over_time(frames, batch), ground)
    tracks = (over_time([_objects(s.elements, own[i]) for own in memories]) for i, s in enumerate(world.scenes))
    return Rollout(motions, (), ground, tuple(tuple(track.at_all_times() for track in own) for own in tracks))


def _objects(elements: Sequence[Element[Any]], memories: Sequence[Any]) -> dict[tuple[int, int], Solid]:
    """Return the objects of a frame, by the numbers of the element and of its object."""
    solids = [element.solids(memory) for element, memory in zip(elements, memories, strict=True)]
    return {(i, k): solid for i, own in enumerate(solids) for k, solid in enumerate(own)}


def over_time(frames: Sequence[Mapping[Any, Solid]], batch: tuple[int, ...] = ()) -> tuple[Solid, ...]:
    """Stack every object that is there at some frame in time; `frames` are the objects of each frame, by number."""
    tracks, last = list[Solid](), {key: solid for frame in frames for key, solid in frame.items()}
    for key in sorted(last):
        gone = replace(last[key], centre=np.full_like(last[key].centre, np.nan))
        here = [frame.get(key, gone) for frame in frames]
        track = replace(
            here[0],
            centre=np.stack([np.broadcast_to(solid.centre, (*batch, 3)) for solid in here], -2),
            rotation=np.stack([np.broadcast_to(solid.rotation, (*batch, 3, 3)) for solid in here], -3),
            velocity=np.stack([np.broadcast_to(solid.velocity, (*batch, 3)) for solid in here], -2),
        )
        tracks += [track] if track.there.any() else []
    return tuple(tracks)
