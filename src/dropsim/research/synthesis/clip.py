"""Clips: simulated in groups, and judged."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.collider import Plane
from dropsim.priors.cvae import CVAEPrior
from dropsim.research.synthesis.distribution import Drawn, Gates
from dropsim.research.synthesis.recipe import GROUP, Recipe
from dropsim.scene import World, WorldDivergedError, WorldState, above_ground, run
from dropsim.scene import batches as batch_scenes
from dropsim.scene.files import Setup, SimulatorOptions


@dataclass(frozen=True, eq=False)
class Clip:
    """What became of the people of one scene."""

    drawn: Drawn
    motions: tuple[Motion, ...]
    """Of each person."""
    ground: Plane
    """At every frame."""

    @property
    def index(self) -> int:
        """Of the clip in the data set."""
        return self.drawn.index

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
        return max(1000 * max(0.0, -float(sphere_heights(motion)[1:].min())) if len(motion) > 1 else 0.0 for motion in self.above)


@dataclass(frozen=True)
class Rejected:
    """A clip that is left out, and why."""

    index: int
    category: str
    reason: str
    """refused (the scene cannot be), diverged, bone error, or penetration."""
    detail: str


def clips_of_group(recipe: Recipe, group: int) -> list[Clip | Rejected]:
    """Return the clips of a group in the order of their indices; all are simulated even where the data set ends within the group."""
    drawn, outcomes = list[Drawn](), dict[int, Clip | Rejected]()
    for index in range(group * GROUP, (group + 1) * GROUP):
        try:
            drawn.append(recipe.drawn(index))
        except ValueError as error:
            outcomes[index] = Rejected(index, "", "refused", str(error))
    for count in sorted({len(d.setup.scene.people) for d in drawn}):
        alike = [d for d in drawn if len(d.setup.scene.people) == count]
        for found in _simulated(alike):
            outcome = found if isinstance(found, Rejected) else judged(found, recipe.distribution.gates)
            outcomes[outcome.index] = outcome
    return [outcomes[index] for index in sorted(outcomes) if index < recipe.count]


def judged(clip: Clip, gates: Gates) -> Clip | Rejected:
    """Return the clip where it passes the gates."""
    for reason, value, limit, unit in (
        ("bone error", clip.bone_error, gates.bone_error, "%"), ("penetration", clip.penetration, gates.penetration, "mm"),
    ):  # fmt: skip
        if not value <= limit:
            return Rejected(clip.drawn.index, clip.drawn.category, reason, f"{value:.3g} {unit}")
    return clip


def _simulated(drawn: Sequence[Drawn]) -> Iterator[Clip | Rejected]:
    """Simulate scenes side by side, without those whose start cannot be."""
    begun, refused = list[Drawn](), list[Rejected]()
    for one in drawn:
        try:
            _begun([one])
            begun.append(one)
        except ValueError as error:
            refused.append(Rejected(one.index, one.category, "refused", str(error)))
    yield from refused
    if begun:
        yield from _run(begun)


def _run(drawn: Sequence[Drawn]) -> Iterator[Clip | Rejected]:
    """Run scenes side by side; where one of them cannot go on, each alone, so that it takes nobody with it."""
    world, start = _begun(drawn)
    try:
        take = run(world, drawn[0].setup.num_frames(world.fps), [d.seed for d in drawn], start=start)
    except WorldDivergedError as error:
        if len(drawn) == 1:
            yield Rejected(drawn[0].index, drawn[0].category, "diverged", str(error))
        else:
            for one in drawn:
                yield from _run([one])
        return
    for i, one in enumerate(drawn):
        motions = tuple(_motion_of(motion, i, one) for motion in take.motions)
        yield Clip(one, motions, _ground_of(take.ground, i, len(motions[0])))


@functools.cache
def _prior() -> CVAEPrior:
    return CVAEPrior.shipped()


def template_of(setup: Setup) -> World:
    """Return a world with the simulators that all clips of a distribution share."""
    return _template(setup.simulator, setup.clip, setup.handover)


@functools.lru_cache(maxsize=4)
def _template(options: SimulatorOptions, clip: str | None, handover: float | None) -> World:
    return Setup(clip=clip, handover=handover, simulator=options).world(_prior())


def _begun(drawn: Sequence[Drawn]) -> tuple[World, WorldState]:
    """Put scenes side by side."""
    world = template_of(drawn[0].setup)
    return batch_scenes([d.setup.scene for d in drawn], world.simulator, [d.seed for d in drawn], opening=world.opening)


SCENE_ENERGIES = ("pin", "com_velocity", "spring", "straight")
"""Energies that a scene may add; those of a neighbour in the group are no clip's own."""


def _motion_of(motion: Motion, i: int, drawn: Drawn) -> Motion:
    """Take one clip's motion out of a group."""
    own = motion.map(lambda values: values[i])
    energies = {name: values for name, values in own.energies.items() if name not in SCENE_ENERGIES or values.any()}
    return replace(own, energies=energies, events=drawn.setup.scene.events)


def _ground_of(ground: Plane, i: int, num_frames: int) -> Plane:
    """Take one clip's ground out of a group, whose grounds are alike where they are all level."""
    if ground.normal.ndim > 2:
        return ground.map(lambda vectors: vectors[i], lambda scalars: scalars[i])
    return ground.map(lambda vectors: vectors.expand(num_frames, 3), lambda scalars: scalars.expand(num_frames))
