"""People among objects, and random scenes."""

import numpy as np
import pytest

from dropsim.research.evaluation.objects import PLAIN, ObjectsProtocol, evaluate_objects, table
from dropsim.research.evaluation.random_scenes import (
    BELOW,
    DEEP,
    EVENTS,
    MOST_OBJECTS,
    Laws,
    RandomChunk,
    possible_scene,
    random_numbers,
    random_scene,
)
from dropsim.research.evaluation.trials import Body
from dropsim.scene import Ball, Push, Trip, World, batch_scenes

BODY = Body.of(8)


def test_scenes_are_drawn_by_their_seed():
    assert random_scene(3, 2) == random_scene(3, 2)
    scenes = [random_scene(seed, 1 + seed % 4) for seed in range(60)]
    assert scenes[0] != scenes[4]
    assert {len(scene.people) for scene in scenes} == {1, 2, 3, 4}
    assert all(1 <= len(scene.elements) <= MOST_OBJECTS for scene in scenes)
    assert max(len(scene.elements) for scene in scenes) > 15
    assert len({type(element) for scene in scenes for element in scene.elements}) == 9  # every kind
    eventful = [random_scene(seed, 1, EVENTS) for seed in range(60)]
    assert {Push, Ball, Trip} < {type(element) for scene in eventful for element in scene.elements}
    assert {scene.ground.level for scene in eventful} == {True, False}


@pytest.mark.parametrize("num_people", [1, 4])
def test_random_scenes_keep_the_laws(num_people):
    # Numbers are finite, nobody is deeper than 2 cm in something solid, and no object is below the ground. `dropsim
    # evaluate objects` runs thousands of them.
    found = random_numbers([RandomChunk(BODY, 100 * num_people, 5, num_people, 0.5).run()])
    assert found["random_scenes"] == 5
    assert (found["not_finite"], found["somebody_deeper_than_2_cm"], found["object_below_the_ground"]) == (0, 0, 0)


ONCE_BROKEN = [(77_000_704, 1, 1.5), (77_000_879, 4, 1.1)]
"""Scenes with a box between a wrist and the ground, and with a shoulder in the corner between ground and terrain."""


@pytest.mark.parametrize(("seed", "num_people", "seconds"), ONCE_BROKEN)
def test_a_scene_that_broke_a_law_once_keeps_it_in_a_batch_as_alone(seed, num_people, seconds):
    simulator = Body.of(64).simulator()
    scenes = [possible_scene(seed + i, num_people, simulator, EVENTS) for i in range(2)]
    world, now = batch_scenes(scenes, simulator, [seed, seed + 1])
    alone = World(scenes[0], simulator)
    rng, own, same = world.streams([seed, seed + 1]), alone.streams(seed), alone.start(seed)
    states = [now]
    for _ in range(round(seconds * world.fps)):
        (now, _), (same, _) = world.step(now, rng), alone.step(same, own)
        states.append(now)
        assert np.array_equal(now.people.x[0], same.people.x)
        assert np.array_equal(now.people.v[0], same.people.v)
    law = Laws.of(world, scenes[0], states, 0)
    assert law.solid < DEEP
    assert law.loose < DEEP
    assert law.lowest > -BELOW


def test_a_broken_law_is_counted():
    good = {"finite": [True], "solid": [0.0], "loose": [0.0], "lowest": [0.0], "people": [1], "objects": [1]}
    bad = good | {"finite": [False], "solid": [0.03], "lowest": [-0.1]}
    found = random_numbers([{name: np.array(values) for name, values in part.items()} for part in (good, bad)])
    assert (found["not_finite"], found["somebody_deeper_than_2_cm"], found["object_below_the_ground"]) == (1, 1, 1)


@pytest.mark.slow
def test_walkers_meet_every_scene(tmp_path):
    found = evaluate_objects(
        BODY, ObjectsProtocol(people=2, random_scenes=2, seconds=3.0, random_seconds=0.2), tmp_path
    )
    by_name = {met.scene: met for met in found.scenes}
    assert {"slip", "ramp", "curb", "stairs", "trip-curb", "wall", PLAIN} < set(by_name)
    assert all(met.people == 2 and met.deepest_mm < 20 for met in found.scenes)
    assert by_name["wall"].beyond_m < 0
    assert by_name[PLAIN].speed_kept == 1
    assert "| carry 16 kg | 2 |" in table(found)
