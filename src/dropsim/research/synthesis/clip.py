"""Recipes, which hold all that the content of a data set depends on, and clips, simulated in batches and judged."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
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
from dropsim.research.evaluation.harness import Amounts, digest_of, in_halves
from dropsim.research.synthesis.distribution import Distribution, Drawn, Gates
from dropsim.scene import Rollout, Solid, World, WorldDivergedError, above_ground, batch_scenes, run
from dropsim.scene.files import Setup


@dataclass(frozen=True)
class Recipe(Amounts):
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
        super().__post_init__()
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
        changes: dict[str, Any] = {} if self.seconds is None else {"seconds": self.seconds}
        if self.samples is not None:
            changes["simulator"] = replace(drawn.setup.simulator, num_samples=self.samples)
        if self.prior is not None:
            changes |= {"prior": self.prior, "body": None}
        return replace(drawn, setup=replace(drawn.setup, **changes))

    def identity(self) -> dict[str, Any]:
        """Return what the content depends on, as plain data by the names of the options."""
        names = ("count", "seed", "seconds", "samples", "shard_size")
        return {
            "dropsim": version("dropsim"),
            "scene": json.loads(json.dumps([[table.name, table.values] for table in self.distribution.tables])),
            **{name: getattr(self, name) for name in names},
            # With a part of the file's digest, since another file may come to have the same name.
            "prior": self.prior and f"{self.prior} {digest_of(Path(self.prior))[:12]}".strip(),
        }


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the options, or dropsim's version, in which two recipes differ."""
    names = (name for name in {**old, **new} if old.get(name) != new.get(name))
    return ", ".join(name if name == "dropsim" else f"--{name.replace('_', '-')}" for name in names)


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
        for some, rollout in in_halves(drawn, _rolled_out):
            for i, one in enumerate(some):
                outcomes[one.index] = _judged(one, i, rollout, recipe.distribution.gates)
    return [outcomes[index] for index in indices]


def _rolled_out(drawn: Sequence[Drawn]) -> Rollout:
    """Simulate scenes as one batch."""
    template, seeds = template_of(drawn[0].setup), [one.seed for one in drawn]
    scenes = [one.setup.scene for one in drawn]
    world, start = batch_scenes(scenes, template.simulator, seeds, opening=template.opening)
    return run(world, drawn[0].setup.num_frames(world.fps), seeds, start=start)


def _judged(drawn: Drawn, i: int, rollout: Rollout | ValueError, gates: Gates) -> Clip | Rejected:
    """Take one clip out of a batch, if it passes the gates."""
    if isinstance(rollout, ValueError):
        reason = "diverged" if isinstance(rollout, WorldDivergedError) else "refused"
        return Rejected(drawn.index, drawn.category, reason, str(rollout))
    motions = tuple(_motion_of(motion, i, drawn, person) for person, motion in enumerate(rollout.motions))
    clip = Clip(drawn, motions, _ground_of(rollout.ground, i, len(motions[0])), rollout.by_world[i])
    for name, unit in (("bone_error", "%"), ("penetration", "mm")):
        value = getattr(clip, name)
        if not value <= getattr(gates, name):
            return Rejected(drawn.index, drawn.category, name.replace("_", " "), f"{value:.3g} {unit}")
    return clip


def template_of(setup: Setup) -> World:
    """Return a world with the simulators that all clips of a distribution share."""
    shared = {name: getattr(setup, name) for name in ("clip", "handover", "prior", "body", "pose", "simulator")}
    return _world_of(Setup(**shared))


_world_of = functools.lru_cache(maxsize=4)(Setup.world)


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
