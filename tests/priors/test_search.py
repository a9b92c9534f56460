"""The search finds exactly what comparing with every row finds."""

import numpy as np
import pytest

from dropsim.priors.search import NO_ROW, SearchIndex

COLUMNS = 13


def index_of(num_rows: int, sets: np.ndarray | None = None) -> tuple[SearchIndex, np.ndarray]:
    """Features that change slowly, as motion does, in clips of different lengths; and the clips."""
    rng = np.random.default_rng(0)
    clips = np.sort(rng.integers(7, size=num_rows))
    rows = 0.1 * rng.normal(size=(num_rows, COLUMNS)).cumsum(0) * np.linspace(1.0, 0.1, COLUMNS)
    sets = np.ones((1, num_rows), dtype=bool) if sets is None else sets
    return SearchIndex.build(rows.astype(np.float32), clips, sets), clips


def search(index: SearchIndex, num: int, count: int, weights: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """Search near some rows, and check with the distances of every row, but for rounding; equal rows by their numbers."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(count, COLUMNS)) * rng.choice([0.0, 0.1, 1.0, 10.0], (count, 1))
    queries = (index.features[rng.integers(len(index.features), size=count)] + noise).astype(np.float32)
    weights = np.ones(queries.shape, np.float32) if weights is None else weights.astype(np.float32)
    which = np.arange(count) % len(index.sets)
    nearest = index.nearest(queries, weights, which, num)
    for i, rows in enumerate(nearest):
        distances = (weights[i] * (index.features.astype(float) - queries[i]) ** 2).sum(1)
        expected = np.sort(distances[index.sets[which[i]]])[:num]
        there = rows[: len(expected)]
        np.testing.assert_allclose(distances[there], expected, rtol=1e-5, atol=1e-9)
        assert index.sets[which[i]][there].all()
        assert len(set(there.tolist())) == len(there)
        assert (rows[len(expected) :] == NO_ROW).all()
        ties = np.flatnonzero(np.diff(distances[there]) == 0)
        assert (there[ties] < there[ties + 1]).all()
        # Alone, a query finds the same rows.
        alone = index.nearest(queries[i : i + 1], weights[i : i + 1], which[i : i + 1], num)
        np.testing.assert_array_equal(alone[0], rows)
    return queries, nearest


@pytest.mark.parametrize("num_rows", [1, 7, 8, 65, 3000])
@pytest.mark.parametrize("num", [1, 16, 100])
def test_finds_what_comparing_with_every_row_finds(num_rows: int, num: int):
    search(index_of(num_rows)[0], num, 40)


def test_weights_of_each_query():
    weights = np.random.default_rng(3).choice([0.0, 0.3, 1.0, 7.0], (60, COLUMNS))
    weights[0] = 0.0  # nothing counts, so everything is equally near
    _, nearest = search(index_of(2000)[0], 20, 60, weights)
    np.testing.assert_array_equal(nearest[0], np.arange(20))


def test_only_allowed_rows():
    clips = index_of(2000)[1]
    few = np.stack((np.isin(clips, (1, 4)), np.arange(2000) % 97 == 0, np.zeros(2000, bool)))
    search(index_of(2000, few)[0], 30, 30)


def test_equal_rows_come_in_order_of_their_numbers():
    rows = np.tile(index_of(60)[0].features, (40, 1))
    index = SearchIndex.build(rows, np.repeat(np.arange(40), 60), np.ones((1, 2400), bool))
    nearest = index.nearest(rows[:3], np.ones((3, COLUMNS), np.float32), np.zeros(3, int), 40)
    np.testing.assert_array_equal(nearest, np.arange(3)[:, None] + np.arange(0, 2400, 60))


def test_numbers_that_are_not_finite_are_refused():
    index, _ = index_of(100)
    with pytest.raises(ValueError, match="finite queries"):
        index.nearest(np.full((2, COLUMNS), np.nan, np.float32), np.ones((2, COLUMNS), np.float32), np.zeros(2, int), 5)
    for rows in (np.full((5, 3), np.inf, np.float32), np.zeros((0, 3), np.float32)):
        with pytest.raises(ValueError, match="at least one row"):
            SearchIndex.build(rows, np.zeros(len(rows), int), np.ones((1, len(rows)), bool))
