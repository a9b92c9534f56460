"""What people do who are pushed, or stood on ground that tilts: the motion field with the recordings that ship."""

import numpy as np

from dropsim import Ground, Person, Push, Scene, Simulator, World, run
from dropsim.priors.field_queries import ROW, SHAKEN
from dropsim.priors.motion_field import MotionField


def norm(vectors):
    return np.linalg.norm(vectors, axis=-1)


def test_nobody_reacts_before_a_fifth_of_a_second():
    # A push of 1 m/s within 0.1 s: people go on as they did for six frames, so each frame follows the next one of the same recording.
    simulator = Simulator.shipped(num_samples=8)
    push = Push.toward("left", newtons=700.0, part="torso", start=0.5, duration=0.1)
    world = World(Scene((Person("stand", speed=0.0),), (push,)), simulator)
    now, rng = world.start(3), world.streams(3)
    rows, shaken = [], []
    for _ in range(30):
        now, _ = world.step(now, rng)
        rows.append(now.people.memory[0, ROW])
        shaken.append(now.people.memory[0, SHAKEN])
    first = int(np.argmax(np.array(shaken) > 0))
    assert 14 <= first <= 18
    assert (np.diff(rows[first - 1 : first + 6]) == 1).all()


def test_people_crouch_and_spread_their_arms_on_ground_that_tilts():
    level, tilted = (
        run(World(Scene((Person("walk", speed=1.0),), ground=ground), Simulator.shipped(num_samples=16)), 75, [1, 2, 3, 4]).motions[0]
        for ground in (Ground(), Ground(tilts=((0.5, 0.0, 0.0), (1.5, 15.0, 0.0), (2.5, 15.0, 0.0))))
    )
    hands = [norm(m.joints[:, 60:, 20] - m.joints[:, 60:, 21]).mean() for m in (level, tilted)]
    assert hands[1] > hands[0] + 0.1
    legs = [(m.joints[:, 60:, 0, 2] - m.joints[:, 60:, (7, 8), 2].min(-1)).mean() for m in (level, tilted)]
    assert legs[1] < legs[0] - 0.03


def test_walks_and_runs_start_forward():
    field = MotionField.shipped()
    for category, least in (("walk", 0.6), ("run", 1.8)):
        v = field.start(category, list(range(64))).v[:, 0]
        assert (v[:, 1] > np.abs(v[:, 0])).all()
        assert v[:, 1].mean() > least
