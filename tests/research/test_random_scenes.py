"""Random scenes: what is drawn, and laws that hold in all of them."""

import numpy as np
import pytest

from dropsim.research.evaluation.harness import Body
from dropsim.research.evaluation.random_scenes import (
    BELOW,
    DEEP,
    MOST_OBJECTS,
    Laws,
    measure_scenes,
    possible_scene,
    random_push,
    random_scene,
)
from dropsim.research.evaluation.reliability import failures_of
from dropsim.scene import Ball, Push, Trip, World, batch_scenes

BODY = Body.of(8)


def test_scenes_are_drawn_by_their_seed():
    assert random_scene(3, 2) == random_scene(3, 2)
    scenes = [random_scene(seed, 1 + seed % 4) for seed in range(60)]
    assert scenes[0] != scenes[4]
    assert {len(scene.people) for scene in scenes} == {1, 2, 3, 4}
    assert all(scene.elements for scene in scenes if scene.ground.level)
    assert all(len(scene.elements) <= MOST_OBJECTS for scene in scenes)
    assert max(len(scene.elements) for scene in scenes) > 15
    assert len({type(element) for scene in scenes for element in scene.elements}) == 12  # every kind
    assert {Push, Ball, Trip} < {type(element) for scene in scenes for element in scene.elements}
    assert {scene.ground.level for scene in scenes} == {True, False}


def test_pushes_are_drawn_by_their_seed():
    assert random_push(3) == random_push(3)
    pushes = [push for seed in range(200) for push in random_push(seed).elements if isinstance(push, Push)]
    sizes = [np.linalg.norm(push.force) for push in pushes]
    assert 1300 < max(sizes) <= 1500
    assert min(push.force[2] for push in pushes) < -300
    assert len({push.part for push in pushes}) > 20


@pytest.mark.parametrize("num_people", [0, 1, 4])
def test_random_scenes_keep_the_laws(num_people):
    # Numbers are finite, nobody is deeper than 2 cm in something solid, and no object is below the ground. `dropsim
    # evaluate reliability` runs thousands of them.
    seeds = [100 * num_people + i for i in range(5)]
    laws = measure_scenes(BODY, seeds, num_people=num_people, seconds=0.5)
    assert laws["seed"].tolist() == seeds
    assert failures_of(laws) == []


ONCE_BROKEN = [(77_000_704, 1, 1.5), (77_000_879, 4, 1.1)]
"""Scenes with a box between a wrist and the ground, and with a shoulder in the corner between ground and terrain."""


@pytest.mark.parametrize(("seed", "num_people", "seconds"), ONCE_BROKEN)
def test_a_scene_that_broke_a_law_once_keeps_it_in_a_batch_as_alone(seed, num_people, seconds):
    simulator = Body.of(64).simulator()
    scenes = [possible_scene(seed + i, num_people, simulator) for i in range(2)]
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
    assert law.depth < DEEP
    assert law.lowest > -BELOW
