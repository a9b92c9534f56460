"""Recipes, which hold all that the content of a data set depends on, and clips, simulated in batches and judged."""

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.contact import Plane
from dropsim.physics.step import BUILT_IN
from dropsim.research.synthesis.distribution import Distribution, Drawn, Gates
from dropsim.scene import Solid, World, WorldDivergedError, above_ground, batch_scenes, run
from dropsim.scene.files import Setup

MAX_COUNT = 10**10


@dataclass(frozen=True)
class Recipe:
    """A distribution, a seed, and how many clips of what length."""

    distribution: Distribution
    count: int
    """Clips to simulate; those that do not pass the gates are left out of the shards."""
    seed: int = 0
    seconds: float | None = None
    """Length of a clip [s]; the distribution's own unless given."""
    samples: int | None = None
    """Candidates of the prior a frame; the distribution's own unless given."""
    shard_size: int = 64
    """Clips of a shard."""
    prior: str | None = None
    """As `open_prior` takes it; the distribution's own unless given."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise ValueError(f"a data set has from 1 to {MAX_COUNT} clips, not {self.count}")
        if not 0 <= self.seed < 2**62:
            raise ValueError(f"a seed is a whole number from 0 to 2^62, not {self.seed}")
        if not 1 <= self.shard_size <= MAX_COUNT:
            raise ValueError(f"a file has from 1 to {MAX_COUNT} clips, not {self.shard_size}: give another shard size")
        self.drawn(0)  # refuses seconds and samples that cannot be

    @property
    def num_shards(self) -> int:
        """Shards of the whole data set."""
        return math.ceil(self.count / self.shard_size)

    def clips_of(self, shard: int) -> range:
        """Return the indices of a shard's clips."""
        return range(shard * self.shard_size, min(self.count, (shard + 1) * self.shard_size))

    def drawn(self, index: int) -> Drawn:
        """Return a clip's scene with the length and the samples that were asked for."""
        drawn = self.distribution.draw(self.seed, index)
        return replace(drawn, setup=self._changed(drawn.setup))

    def _changed(self, setup: Setup) -> Setup:
        if self.seconds is not None:
            setup = replace(setup, seconds=self.seconds)
        if self.samples is not None:
            setup = replace(setup, simulator=replace(setup.simulator, num_samples=self.samples))
        return setup if self.prior is None else replace(setup, prior=self.prior, body=None)

    def identity(self) -> dict[str, Any]:
        """Return what the content depends on, as plain data by the names of the options."""
        return {
            "dropsim": version("dropsim"),
            "scene": json.loads(json.dumps([[table.name, table.values] for table in self.distribution.tables])),
            "count": self.count,
            "seed": self.seed,
            "seconds": self.seconds,
            "samples": self.samples,
            "shard_size": self.shard_size,
            "prior": None if self.prior is None else _identified(self.prior),
        }


@functools.cache
def _identified(prior: str) -> str:
    """Return a prior's name; a file's with a part of its hash, since another file may come to have the same name."""
    path = Path(prior)
    return f"{prior} ({hashlib.sha256(path.read_bytes()).hexdigest()[:12]})" if path.is_file() else prior


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Say how two recipes differ, as the end of a sentence; None if they do not."""
    for name in dict.fromkeys((*old, *new)):
        before, now = old.get(name), new.get(name)
        if before != now:
            option = name if name == "dropsim" else f"--{name.replace('_', '-')}"
            other = "another distribution of scenes (--scene)"
            return f"with {other}" if name == "scene" else f"with {option} {before}, and not with {option} {now}"
    return None


BATCH = 64
"""Clips that are simulated together: four times as fast as one by one."""


@dataclass(frozen=True, eq=False)
class Clip:
    """A simulated scene: the motions of its people, the ground and the objects."""

    drawn: Drawn
    motions: tuple[Motion, ...]
    """One for each person."""
    ground: Plane
    """At every frame."""
    objects: tuple[Solid, ...] = ()
    """Everything else that could be seen, at every frame."""

    @functools.cached_property
    def above(self) -> tuple[Motion, ...]:
        """The motions with heights above the ground as it was."""
        return tuple(above_ground(motion, self.ground) for motion in self.motions)

    @property
    def bone_error(self) -> float:
        """Largest error of a bone's length [%]."""
        return max(float(metrics.bone_error_percent(motion)) for motion in self.motions)

    @property
    def penetration(self) -> float:
        """Deepest that a joint's sphere is in the ground after the first frame [mm]."""
        return max(1000 * max(0.0, -float(sphere_heights(motion)[1:].min(initial=0.0))) for motion in self.above)


@dataclass(frozen=True)
class Rejected:
    """A clip that is left out, and why."""

    index: int
    category: str
    reason: str
    """refused (the scene cannot be), diverged, bone error, or penetration."""
    detail: str


def simulated(recipe: Recipe, indices: Sequence[int]) -> list[Clip | Rejected]:
    """Return clips in the order of their indices, simulated together, which changes none of them."""
    alike, outcomes = dict[int, list[Drawn]](), dict[int, Clip | Rejected]()
    for index in indices:
        try:
            drawn = recipe.drawn(index)
            alike.setdefault(len(drawn.setup.scene.people), []).append(drawn)
        except ValueError as error:
            outcomes[index] = Rejected(index, "", "refused", str(error))
    for drawn in alike.values():
        for outcome in _together(drawn):
            index = outcome.drawn.index if isinstance(outcome, Clip) else outcome.index
            outcomes[index] = judged(outcome, recipe.distribution.gates) if isinstance(outcome, Clip) else outcome
    return [outcomes[index] for index in indices]


def judged(clip: Clip, gates: Gates) -> Clip | Rejected:
    """Return the clip if it passes the gates."""
    for name, unit in (("bone_error", "%"), ("penetration", "mm")):
        value = getattr(clip, name)
        if not value <= getattr(gates, name):
            reason = name.replace("_", " ")
            return Rejected(clip.drawn.index, clip.drawn.category, reason, f"{value:.3g} {unit}")
    return clip


def _together(drawn: Sequence[Drawn]) -> Iterator[Clip | Rejected]:
    """Simulate scenes as one batch; if one cannot start or go on, the halves apart, until it takes nobody with it."""
    template = template_of(drawn[0].setup)
    seeds = [one.seed for one in drawn]
    try:
        world, start = batch_scenes(
            [one.setup.scene for one in drawn], template.simulator, seeds, opening=template.opening
        )
        rollout = run(world, drawn[0].setup.num_frames(world.fps), seeds, start=start)
    except ValueError as error:
        if len(drawn) > 1:
            yield from _together(drawn[: len(drawn) // 2])
            yield from _together(drawn[len(drawn) // 2 :])
        else:
            reason = "diverged" if isinstance(error, WorldDivergedError) else "refused"
            yield Rejected(drawn[0].index, drawn[0].category, reason, str(error))
        return
    for i, one in enumerate(drawn):
        motions = tuple(_motion_of(motion, i, one, person) for person, motion in enumerate(rollout.motions))
        yield Clip(one, motions, _ground_of(rollout.ground, i, len(motions[0])), rollout.by_world[i])


def template_of(setup: Setup) -> World:
    """Return a world with the simulators that all clips of a distribution share."""
    shared = {name: getattr(setup, name) for name in ("clip", "handover", "prior", "body", "pose", "simulator")}
    return _template(Setup(**shared))


@functools.lru_cache(maxsize=4)
def _template(setup: Setup) -> World:
    return setup.world()


def _motion_of(motion: Motion, i: int, drawn: Drawn, person: int) -> Motion:
    """Take one person of one clip out of a batch, without the energies that only scenes of other clips add."""
    alone = motion.map(lambda values: values[i])
    energies = {name: values for name, values in alone.energies.items() if name in BUILT_IN or values.any()}
    return replace(alone, energies=energies, events=drawn.setup.scene.events_of(person))


def _ground_of(ground: Plane, i: int, num_frames: int) -> Plane:
    """Take one clip's ground out of a batch; if all grounds are level, the batch has one for all."""
    if ground.normal.ndim > 2:
        return ground.map(lambda vectors: vectors[i], lambda scalars: scalars[i])
    return ground.map(lambda v: np.broadcast_to(v, (num_frames, 3)), lambda s: np.broadcast_to(s, (num_frames,)))
