"""Different scenes side by side do what each of them does alone."""

from dataclasses import replace

import pytest
import torch

from dropsim.control.planner import Planner
from dropsim.physics.step import Simulator
from dropsim.priors.cvae import CVAEPrior
from dropsim.scene import Follow, Ground, Obstacle, Person, Pin, Push, Scene, StiffJoint, Throw, Trip, World, run
from dropsim.scene import batches as batch_scenes
from dropsim.scene.batches import _cost_in
from dropsim.scene.files import SimulatorOptions

NUM_FRAMES = 24
SMALL = Planner(num_rollouts=4, horizon=4)
SCENES = (
    Scene(elements=(Push.toward("left", 300.0, start=0.2),), planner=SMALL),
    Scene((Person("run", (1.0, 2.0), 30.0),), (Trip(start=0.0), Trip("left_ankle", start=0.1)), planner=SMALL),
    Scene(elements=(Throw(start=0.0, distance=1.5),), ground=Ground(((0.2, 0.0, 0.0), (0.6, 15.0, 5.0))), planner=SMALL),
    Scene(elements=(Obstacle((0.0, 0.6, 0.0), 0.2), Follow(((0.0, 1.0, 1.0),))), planner=SMALL),
    Scene(elements=(Pin(start=0.1), Pin("head", start=0.2, weight=30.0)), planner=SMALL),
    Scene(ground=Ground(((0.0, 10.0, 0.0), (1.0, 0.0, 0.0)), (0.5, 0.5)), planner=SMALL),
    Scene(planner=SMALL),
    Scene(elements=(StiffJoint(),), planner=SMALL),
)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return SimulatorOptions(num_samples=4).simulator(CVAEPrior.shipped())


def test_every_world_does_what_it_does_alone(simulator: Simulator):
    # Rounding differs between a batch and its members, by 1e-6 after two seconds; anything that leaks between worlds is far larger.
    # Seeds at which nobody comes so near to a threshold, such as the range of motion's, that rounding decides.
    seeds = list(range(60, 60 + len(SCENES)))
    world, start = batch_scenes(SCENES, simulator, seeds)
    together = run(world, NUM_FRAMES, seeds, start=start)
    for i, (scene, seed) in enumerate(zip(SCENES, seeds, strict=True)):
        alone = run(World(scene, simulator), NUM_FRAMES, seed)
        motion = alone.motions[0]
        torch.testing.assert_close(together.motions[0].joints[i], motion.joints, rtol=0, atol=1e-5)
        torch.testing.assert_close(together.motions[0].external_forces[i], motion.external_forces, rtol=0, atol=0.1)
        for name, values in motion.energies.items():
            # A world with two pins reports the last of them alone, and both side by side.
            if not (name == "pin" and len(scene.elements) > 1):
                torch.testing.assert_close(together.motions[0].energies[name][i], values, rtol=1e-3, atol=1e-6)
        normal = alone.ground.normal.expand(NUM_FRAMES, 3)
        torch.testing.assert_close(together.ground.normal[i], normal, rtol=0, atol=1e-12)
        torch.testing.assert_close(together.ground.offset[i], alone.ground.offset.expand(NUM_FRAMES), rtol=0, atol=1e-5)


def test_two_people_stay_in_their_worlds(simulator: Simulator):
    people = (Person(), Person(position=(0.4, 1.2), facing=180.0))
    scenes = [Scene(people, (Push.toward("front", 300.0, start=0.1, person=i), Pin(start=0.2, person=1 - i)), get_up=False) for i in (0, 1)]
    world, start = batch_scenes(scenes, simulator, [1, 2])
    together = run(world, 12, [1, 2], start=start)
    for i, scene in enumerate(scenes):
        alone = run(World(scene, simulator), 12, i + 1)
        for person in (0, 1):
            torch.testing.assert_close(together.motions[person].joints[i], alone.motions[person].joints, rtol=0, atol=1e-5)


@pytest.mark.parametrize("other", [Scene((Person(), Person(position=(3.0, 0.0)))), Scene(get_up=False), Scene(planner=SMALL)])
def test_scenes_that_cannot_share_a_batch_are_refused(simulator: Simulator, other: Scene):
    with pytest.raises(ValueError, match="side by side need as many people"):
        batch_scenes([Scene(), other], simulator, [0, 1])


def test_a_seed_decides_whatever_the_neighbours(simulator: Simulator):
    calm = replace(SCENES[0], elements=())
    runs = []
    for scenes in ([SCENES[0], calm], [SCENES[0], SCENES[2]]):
        world, start = batch_scenes(scenes, simulator, [5, 6])
        runs.append(run(world, 12, [5, 6], start=start).motions[0].joints[0])
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=1e-5)


def test_a_cost_is_asked_of_its_own_worlds_people_by_their_numbers_there():
    # Of worlds of two people each, the second holds those who are 2 and 3 in all: 0 and 1 to it.
    inside = _cost_in(1, 2, lambda joints, people: (10.0 + people.double()).unsqueeze(-1).expand(joints.shape[:2]))
    costs = inside(torch.zeros(3, 4, 5, 22, 3).double(), torch.tensor([1, 2, 3]))
    assert costs.tolist() == [[0.0] * 4, [10.0] * 4, [11.0] * 4]
