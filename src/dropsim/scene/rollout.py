"""A run of a world through time, and what was seen of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dropsim.compute.random import Streams
from dropsim.motion.motion import Motion
from dropsim.physics.contact import Plane
from dropsim.physics.step import DivergedError, Report, stack_frames
from dropsim.scene.batches import EveryWorld
from dropsim.scene.element import Element
from dropsim.scene.world import World, WorldState

FARTHEST = 1e4
"""People who are farther than this from the middle of the world have diverged [m]."""
WAITING = -50.0
"""What is below this height waits for its turn [m]."""


@dataclass(frozen=True, eq=False)
class Track:
    """A sphere at every frame."""

    centres: Float[np.ndarray, "*w t 3"]
    """[m]; NaN before it is there."""
    velocities: Float[np.ndarray, "*w t 3"]
    """[m/s]"""
    radii: Float[np.ndarray, "1"]
    """[m]"""
    flying: bool = True
    """Whether it is thrown; obstacles are not."""


@dataclass(frozen=True, eq=False)
class SolidTrack:
    """A solid object at every frame."""

    name: str
    """What it is, such as box."""
    vertices: Float[np.ndarray, "v 3"]
    """In its own axes [m]."""
    faces: Int[np.ndarray, "f 3"]
    """Counterclockwise seen from outside."""
    centres: Float[np.ndarray, "*w t 3"]
    """Of its own axes [m]; NaN before it is there, and when it is gone."""
    rotations: Float[np.ndarray, "*w t 3 3"]
    """From its own axes to the world's."""

    @property
    def there(self) -> Bool[np.ndarray, "*w t"]:
        """At which frames it is there."""
        return np.asarray(np.isfinite(self.centres).all(-1))

    def at_all_times(self) -> "SolidTrack":
        """Return an object that waits where it begins and stays where it ends."""
        there, count = self.there, self.centres.shape[-2]
        first, last = np.argmax(there, -1), count - 1 - np.argmax(there[..., ::-1], -1)
        at = np.clip(np.arange(count), first[..., None], last[..., None])[..., None]
        centres, rotations = (
            np.take_along_axis(self.centres, at, -2),
            np.take_along_axis(self.rotations, at[..., None], -3),
        )
        return replace(self, centres=centres, rotations=rotations)


@dataclass(frozen=True, eq=False)
class Rollout:
    """What was seen of a world: its people's motions, and what else there was to see."""

    motions: tuple[Motion, ...]
    """One for each person; several worlds are batch dimensions of each."""
    balls: tuple[Track, ...]
    """Every sphere at every frame."""
    ground: Plane
    """At every frame, along a dimension before the vector's."""
    solids: tuple[SolidTrack, ...] = ()
    """Every solid object at every frame."""
    by_world: tuple[tuple[SolidTrack, ...], ...] = ()
    """Everything but people of each world, at all times, if the worlds are of different scenes."""

    @property
    def objects(self) -> tuple[SolidTrack, ...]:
        """Everything but people as triangles, for exporters."""
        return (*self.solids, *_as_solids(self.balls))


def _as_solids(tracks: Sequence[Track]) -> list[SolidTrack]:
    """Return every sphere that is there at some time as triangles."""
    found = (as_solid(track.centres, float(track.radii[0]), flying=track.flying) for track in tracks)
    return [track for track in found if track.there.any()]


def as_solid(centres: Float[np.ndarray, "*w t 3"], radius: float, *, flying: bool) -> SolidTrack:
    """Return a sphere as triangles."""
    rings, turns = np.meshgrid(np.linspace(0, np.pi, 13), np.arange(24) * np.pi / 12, indexing="ij")
    points = np.stack((np.sin(rings) * np.cos(turns), np.sin(rings) * np.sin(turns), np.cos(rings)), -1).reshape(-1, 3)
    index = np.arange(len(points)).reshape(rings.shape)
    a, b, c, d = index[:-1], np.roll(index, -1, 1)[:-1], index[1:], np.roll(index, -1, 1)[1:]
    upper, lower = np.stack((a, c, d), -1), np.stack((a, d, b), -1)  # at the poles one of the two has no area
    faces = np.concatenate((upper[:-1].reshape(-1, 3), lower[1:].reshape(-1, 3)))
    centres, rotations = (
        np.where(centres[..., 2:] > WAITING, centres, np.nan),
        np.tile(np.eye(3), (*centres.shape[:-1], 1, 1)),
    )
    return SolidTrack("ball" if flying else "obstacle", radius * points, faces, centres, rotations)


def above_ground(motion: Motion, ground: Plane) -> Motion:
    """Return a motion with heights above the ground at every frame, which may tilt, in place of heights in the world."""
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
    world: World, num_frames: int, seeds: Sequence[int] | int, *, start: WorldState | None = None,
    watch: Callable[[int, int], None] | None = None, rng: Streams | None = None,
) -> Rollout:  # fmt: skip
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
                now, report = _stepped(world, now, rng)
            except ValueError as error:
                raise WorldDivergedError(f"frame {i + 1 - lead_in}: {error}", seen(world, states, reports)) from error
            states.append(now)
            reports.append(report)
            if watch:
                watch(i + 1, num_frames - 1 + lead_in)
    except KeyboardInterrupt:
        # The last report may be missing if Ctrl-C came between the two.
        states = states[: len(reports) + 1]
        kept = lead_in if len(states) > lead_in else 0
        raise RunInterrupted(seen(world, states[kept:], reports[kept:])) from None
    return seen(world, states[lead_in:], reports[lead_in:])


def _stepped(world: World, now: WorldState, rng: Streams) -> tuple[WorldState, Report]:
    now, report = world.step(now, rng)
    if not (np.abs(now.people.x) < FARTHEST).all():
        raise ValueError("somebody was thrown out of the world: what happens is too violent")
    return now, report


def seen(world: World, states: Sequence[WorldState], reports: Sequence[Report]) -> Rollout:
    """Return what was seen at some frames; there is a report between each and the next."""
    whole = stack_frames(world.simulator, [s.people for s in states], reports)
    dim = whole.root.ndim - 3
    motions = tuple(
        replace(whole.map(lambda values, i=i: values.take(i, dim)), events=world.scene.events_of(i))
        for i in range(len(world.scene.people))
    )
    elements, memories, batch = (
        world.scene.elements,
        [state.memories for state in states],
        states[0].people.x.shape[:-3],
    )
    spheres, solids = _spheres(elements, memories, batch), _solids(elements, memories, batch)
    return Rollout(motions, spheres, world.grounds(states), solids, tuple(_each_world(elements, memories)))


def _each_world(
    elements: Sequence[Element[Any]], memories: Sequence[Sequence[Any]]
) -> Iterator[tuple[SolidTrack, ...]]:
    """Return everything but people of each world of a batch of scenes."""
    for k, every in enumerate(elements):
        for i, own in enumerate(every.worlds if isinstance(every, EveryWorld) else ()):
            kept = [memory[k][i] for memory in memories]
            yield tuple(
                track.at_all_times() for track in (*_solids(own, kept, ()), *_as_solids(_spheres(own, kept, ())))
            )


def _spheres(
    elements: Sequence[Element[Any]], memories: Sequence[Sequence[Any]], batch: tuple[int, ...]
) -> tuple[Track, ...]:
    """Stack every sphere in time."""
    shown = []
    for i, element in enumerate(elements):
        frames = [element.balls(memory[i]) for memory in memories]
        known = next((f for f in frames if f is not None), None)
        if known is None:
            continue
        for k in range(len(known.radii)):
            missing = np.full((*batch, 3), np.nan)
            centres, velocities = (
                np.stack(
                    [
                        missing if f is None else np.broadcast_to(getattr(f, name)[..., k, :], (*batch, 3))
                        for f in frames
                    ],
                    -2,
                )
                for name in ("centres", "velocities")
            )
            shown.append(Track(centres, velocities, known.radii[k : k + 1], known.flying))
    return tuple(shown)


def _solids(
    elements: Sequence[Element[Any]], memories: Sequence[Sequence[Any]], batch: tuple[int, ...]
) -> tuple[SolidTrack, ...]:
    """Stack every solid object in time."""
    tracks = list[SolidTrack]()
    for i, element in enumerate(elements):
        frames = [element.solids(memory[i]) for memory in memories]
        for k, one in enumerate(frames[0]):
            centres = np.stack([np.broadcast_to(f[k].centre, (*batch, 3)) for f in frames], -2)
            rotations = np.stack([np.broadcast_to(f[k].rotation, (*batch, 3, 3)) for f in frames], -3)
            tracks.append(SolidTrack(one.name, one.vertices, one.faces, centres, rotations))
    return tuple(tracks)
