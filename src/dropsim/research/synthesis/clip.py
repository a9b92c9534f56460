"""Clips: simulated in batches, and judged."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.contact import Plane
from dropsim.physics.step import BUILT_IN
from dropsim.research.synthesis.distribution import Drawn, Gates
from dropsim.research.synthesis.recipe import Recipe
from dropsim.scene import Solid, World, WorldDivergedError, above_ground, batch_scenes, run
from dropsim.scene.files import Setup

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
