"""Everyone draws their own random numbers, alone and in any batch."""

import numpy as np

from dropsim.compute.random import Streams

SEEDS = [3, 1, 4, 2**40, -5]


def test_somebody_draws_the_same_numbers_alone_and_in_any_batch():
    batch = Streams(SEEDS)
    normals, uniforms = [batch.normal(2, 3) for _ in range(3)], batch.uniform(4)
    for i, seed in enumerate(SEEDS):
        alone = Streams(seed)
        for drawn in normals:
            assert np.array_equal(alone.normal(2, 3), drawn[i])
        assert np.array_equal(alone.uniform(4), uniforms[i])


def test_a_batch_of_another_shape_and_some_people_of_it():
    drawn = Streams(SEEDS[:4]).unflatten(2, 2).normal(3)
    assert np.array_equal(drawn.reshape(4, 3), Streams(SEEDS[:4]).normal(3))
    assert np.array_equal(Streams(SEEDS).pick([4, 1]).normal(3), Streams([SEEDS[4], SEEDS[1]]).normal(3))
    # People who were picked go on from where they are.
    streams = Streams(SEEDS)
    first = streams.pick([1]).normal(2)[0]
    assert np.array_equal(np.concatenate((first, streams.normal(2)[1])), Streams(SEEDS[1]).normal(4))


def test_copies_of_everyone_draw_different_numbers_in_their_owners_order():
    drawn = Streams(SEEDS).copies(3).normal(2)
    assert drawn.shape == (5, 3, 2)
    assert len(np.unique(drawn)) == drawn.size
    for i, seed in enumerate(SEEDS):
        assert np.array_equal(drawn[i], Streams(seed).copies(3).normal(2))
    assert Streams(1).copies(2).copies(3).normal().shape == (2, 3)
