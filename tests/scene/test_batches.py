"""Different scenes in one batch do what each of them does alone, to the last bit."""

import numpy as np
import pytest

from dropsim.control.planner import Planner
from dropsim.physics.energy import Energy, Target
from dropsim.physics.shapes import TURN
from dropsim.physics.step import Simulator, StepInputs
from dropsim.scene import (
    Ball,
    Box,
    Dodge,
    Drag,
    Element,
    Follow,
    Ground,
    Obstacle,
    Person,
    Pin,
    Push,
    Rollout,
    Scene,
    Stairs,
    StiffJoint,
    Throw,
    Trip,
    World,
    batch_scenes,
    run,
)

NUM_FRAMES = 30
SMALL = Planner(num_rollouts=4, horizon=4)
AHEAD, LOOSE = Follow(((0.0, 0.0, 1.2),)), Obstacle((0.1, 1.3, 0.11), 0.11, mass=0.4)
SCENES = (
    Scene(elements=(Push.toward("left", 300.0, start=0.2),), planner=SMALL),
    Scene((Person("run", (1.0, 2.0), 30.0),), (Trip(start=0.0), Trip("left_ankle", start=0.1)), planner=SMALL),
    Scene(
        elements=(Throw(start=0.0, distance=1.5),), ground=Ground(((0.2, 0.0, 0.0), (0.6, 15.0, 5.0))), planner=SMALL
    ),
    Scene(elements=(Obstacle((0.0, 0.6, 0.0), 0.2), Follow(((0.0, 1.0, 1.0),))), planner=SMALL),
    Scene(elements=(Pin(start=0.1), Pin("head", start=0.2, weight=30.0)), planner=SMALL),
    Scene(ground=Ground(((0.0, 10.0, 0.0), (1.0, 0.0, 0.0)), (0.5, 0.5)), planner=SMALL),
    Scene(planner=SMALL),
    Scene(elements=(AHEAD, Stairs((0.0, 0.8), width=6.0)), planner=SMALL),
    Scene(elements=(AHEAD, Box((0.0, 0.7, 0.0), (1.4, 0.4, 0.4), mass=2.0), LOOSE), planner=SMALL),
    Scene(elements=(AHEAD, Box((0.0, 0.7, 0.0), (1.4, 0.4, 0.4), mass=8.0), LOOSE), planner=SMALL),
    Scene(elements=(StiffJoint(start=0.3),), planner=SMALL),
    Scene(
        elements=(Drag(path=((0.1, 0.4, 0.3, 1.1), (0.7, 0.6, 0.6, 1.3))), Ball((0.1, 2.0, 1.2)), Dodge()),
        planner=SMALL,
    ),
)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return Simulator.shipped(num_samples=4)


def assert_same(together: Rollout, alone: Rollout, world: int) -> None:
    for many, one in zip(together.motions, alone.motions, strict=True):
        for name in ("joints", "q", "touching", "contact_forces", "external_forces", "wrench_before", "wrench_after"):
            assert np.array_equal(getattr(many, name)[world], getattr(one, name)), name
        for name, values in one.energies.items():
            assert np.array_equal(many.energies[name][world], values), name
    num_frames = len(alone.motions[0])
    for name, shape in (("normal", (num_frames, 3)), ("offset", (num_frames,))):
        kept = getattr(together.ground, name)
        kept = kept[world] if kept.ndim > len(shape) else kept
        assert np.array_equal(np.broadcast_to(kept, shape), np.broadcast_to(getattr(alone.ground, name), shape)), name
    for track, same in zip(alone.objects, together.by_world[world], strict=True):
        assert np.array_equal(track.at_all_times().centre, same.centre)
        assert np.array_equal(track.at_all_times().rotation, same.rotation)


@pytest.mark.slow
def test_every_world_does_what_it_does_alone(simulator: Simulator):
    seeds = list(range(60, 60 + len(SCENES)))
    world, start = batch_scenes(SCENES, simulator, seeds)
    together = run(world, NUM_FRAMES, seeds, start=start)
    for i, (scene, seed) in enumerate(zip(SCENES, seeds, strict=True)):
        assert_same(together, run(World(scene, simulator), NUM_FRAMES, seed), i)


def test_two_people_stay_in_their_worlds(simulator: Simulator):
    people = (Person(), Person(position=(0.4, 1.2), facing=180.0))
    scenes = [
        Scene(people, (Push.toward("front", 300.0, start=0.1, person=i), Pin(start=0.2, person=1 - i)), get_up=False)
        for i in (0, 1)
    ]
    world, start = batch_scenes(scenes, simulator, [1, 2])
    together = run(world, 12, [1, 2], start=start)
    for i, scene in enumerate(scenes):
        assert_same(together, run(World(scene, simulator), 12, i + 1), i)


def test_worlds_that_hold_the_same_energies_in_another_order_are_as_alone_too(simulator: Simulator):
    # Sums have the order of each world's own energies, or the last bit would differ.
    acts = (Pin(start=0.0), Follow(((0.0, 1.0, 1.0),)), Pin("head", start=0.0, weight=30.0), StiffJoint())
    scenes = [Scene(elements=elements, planner=SMALL) for elements in (acts, acts[::-1], (acts[2], acts[0]))]
    world, start = batch_scenes(scenes, simulator, [0, 1, 2])
    together = run(world, 12, [0, 1, 2], start=start)
    for i, scene in enumerate(scenes):
        assert_same(together, run(World(scene, simulator), 12, i), i)


class NearFloor(Energy):
    """The head no higher than a metre above what is below it: an energy that looks at what can be touched."""

    name, weight = "near_floor", 5.0

    def matrix(self, skeleton):
        return np.eye(22)[[15]]

    def project(self, x, frame):
        low = x[:, 15:16].copy()
        shapes = np.broadcast_to(frame.solids.shapes, (len(x), *frame.solids.shapes.shape[1:]))
        low[..., 2] = np.minimum(low[..., 2], shapes[:, :1, TURN] + 1.0)
        return Target(low)


class Low(Element[None]):
    def act(self, memory, context):
        return memory, StepInputs(energies=(NearFloor(),))


def test_an_energy_of_ones_own_sees_its_own_world(simulator: Simulator):
    tilts = [Ground(((0.0, 0.0, angle), (1.0, 0.0, angle)), (0.0, -4.0)) for angle in (5.0, 10.0)]
    scenes = [Scene(elements=(Low(),), ground=ground, planner=SMALL) for ground in tilts]
    world, start = batch_scenes(scenes, simulator, [0, 1])
    together = run(world, 6, [0, 1], start=start)
    for i, scene in enumerate(scenes):
        assert_same(together, run(World(scene, simulator), 6, i), i)


@pytest.mark.parametrize(
    "other", [Scene((Person(), Person(position=(3.0, 0.0)))), Scene(get_up=False), Scene(planner=SMALL)]
)
def test_scenes_that_cannot_share_a_batch_are_refused(simulator: Simulator, other: Scene):
    with pytest.raises(ValueError, match="scenes in a batch need the same number of people, planner and get_up"):
        batch_scenes([Scene(), other], simulator, [0, 1])
