"""The search finds exactly what comparing with every row finds, to the last bit."""

from dataclasses import fields, replace

import numpy as np
import pytest

from dropsim.priors.search import SearchIndex

COLUMNS = 13


def walks(num_rows: int, seed: int = 0, num_clips: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Features that change slowly, as motion does, in clips of different lengths."""
    rng = np.random.default_rng(seed)
    clips = np.sort(rng.integers(num_clips, size=num_rows))
    rows = 0.1 * rng.normal(size=(num_rows, COLUMNS)).cumsum(0) * np.linspace(1.0, 0.1, COLUMNS)
    return rows.astype(np.float32), clips


def every_row(
    index: SearchIndex,
    rows: np.ndarray,
    query: np.ndarray,
    num: int,
    weights: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compare with every row: eight columns are summed in pairs, in the order of the index, and the sums one after the other."""
    weights = np.ones(COLUMNS, np.float32) if weights is None else weights.astype(np.float32)
    difference = rows - query.astype(np.float32)
    terms = np.zeros((len(rows), -(-COLUMNS // 8) * 8), np.float32)
    terms[:, :COLUMNS] = (weights * (difference * difference))[:, index.columns]
    total = np.zeros(len(rows), np.float32)
    for c in range(0, terms.shape[1], 8):
        a, b, c, d, e, f, g, h = terms[:, c : c + 8].T
        total += ((a + b) + (c + d)) + ((e + f) + (g + h))
    found = [i for i in np.lexsort((np.arange(len(rows)), total)) if allowed is None or allowed[i]][:num]
    missing = num - len(found)
    return np.r_[found, np.full(missing, -1)].astype(int), np.r_[total[found], np.full(missing, np.inf)].astype(
        np.float32
    )


def queries_near(rows: np.ndarray, num: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rows[rng.integers(len(rows), size=num)] + rng.normal(size=(num, COLUMNS)) * rng.choice(
        [0.0, 0.1, 1.0, 10.0], (num, 1)
    )


@pytest.mark.parametrize("num_rows", [1, 7, 8, 65, 3000])
@pytest.mark.parametrize("num", [1, 16, 100])
def test_finds_what_comparing_with_every_row_finds(num_rows: int, num: int):
    rows, clips = walks(num_rows)
    index = SearchIndex.build(rows, clips)
    queries = queries_near(rows, 40)
    found = index.nearest(queries, num)
    for i, query in enumerate(queries):
        expected, distances = every_row(index, rows, query, num)
        np.testing.assert_array_equal(found.rows[i], expected)
        np.testing.assert_array_equal(found.distances[i], distances)


def test_weights_of_each_query():
    rows, clips = walks(2000)
    index = SearchIndex.build(rows, clips)
    queries = queries_near(rows, 60)
    weights = np.random.default_rng(3).choice([0.0, 0.3, 1.0, 7.0], queries.shape)
    weights[0] = 0.0
    found = index.nearest(queries, 20, weights=weights)
    for i, query in enumerate(queries):
        np.testing.assert_array_equal(found.rows[i], every_row(index, rows, query, 20, weights[i])[0])
    # Nothing counts, so everything is equally near.
    np.testing.assert_array_equal(found.rows[0], np.arange(20))
    shared = index.nearest(queries, 20, weights=weights[1:2])
    np.testing.assert_array_equal(shared.rows[2], every_row(index, rows, queries[2], 20, weights[1])[0])


def test_only_allowed_rows():
    rows, clips = walks(2000)
    index = SearchIndex.build(rows, clips)
    queries = queries_near(rows, 30)
    allowed = np.stack((np.isin(clips, (1, 4)), np.arange(len(rows)) % 97 == 0, np.zeros(len(rows), bool)))
    which = np.arange(len(queries)) % 3
    found = index.nearest(queries, 30, filter=index.filter(allowed), which=which)
    for i, query in enumerate(queries):
        np.testing.assert_array_equal(found.rows[i], every_row(index, rows, query, 30, allowed=allowed[which[i]])[0])
    one = index.nearest(queries, 30, filter=index.filter(allowed[0]))
    np.testing.assert_array_equal(one.rows[0], found.rows[0])


def test_equal_rows_come_in_order_of_their_numbers():
    rows, clips = walks(60)
    rows, clips = np.tile(rows, (40, 1)), np.repeat(np.arange(40), 60)
    index = SearchIndex.build(rows, clips)
    found = index.nearest(rows[:3], 50)
    for i in range(3):
        np.testing.assert_array_equal(found.rows[i], every_row(index, rows, rows[i], 50)[0])
        np.testing.assert_array_equal(found.rows[i, :40], np.arange(i, 2400, 60))
    assert not SearchIndex.build(np.ones((1000, 3)), np.zeros(1000, int)).nearest(np.ones((1, 3)), 1000).distances.any()


def test_the_same_alone_and_in_any_batch():
    rows, clips = walks(3000)
    index = SearchIndex.build(rows, clips)
    queries = queries_near(rows, 64)
    together = index.nearest(queries, 32)
    backwards = index.nearest(queries[::-1], 32)
    for i in range(len(queries)):
        alone = index.nearest(queries[i : i + 1], 32)
        for batch, at in ((together, i), (backwards, len(queries) - 1 - i)):
            np.testing.assert_array_equal(alone.rows[0], batch.rows[at])
            np.testing.assert_array_equal(alone.distances[0], batch.distances[at])


def test_features_come_back():
    rows, clips = walks(500)
    index = SearchIndex.build(rows, clips)
    assert len(index) == 500
    np.testing.assert_array_equal(index.features(np.arange(500).reshape(2, -1)), rows.reshape(2, 250, -1))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"queries": np.full((2, COLUMNS), np.nan)}, "finite queries"),
        ({"queries": np.zeros((2, COLUMNS + 1))}, "a query has 14 features"),
        ({"num": 0}, "at least 1 row"),
        ({"weights": np.full((1, COLUMNS), -1.0)}, "weights of at least 0"),
        ({"weights": np.full((1, COLUMNS), np.inf)}, "finite weights"),
        ({"which": np.array([0, 1])}, "among 1 sets"),
        ({"which": np.array([0, -1])}, "among 1 sets"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], says: str):
    rows, clips = walks(100)
    index = SearchIndex.build(rows, clips)
    with pytest.raises(ValueError, match=says):
        index.nearest(**{"queries": np.zeros((2, COLUMNS)), "num": 5, **wrong})


def test_a_filter_of_another_index_is_refused():
    rows, clips = walks(100)
    other = SearchIndex.build(rows[:50], clips[:50]).filter(np.ones(50, bool))
    with pytest.raises(ValueError, match="another index"):
        SearchIndex.build(rows, clips).nearest(rows[:1], 3, filter=other)


def test_rows_without_numbers_are_refused():
    with pytest.raises(ValueError, match="finite numbers"):
        SearchIndex.build(np.full((5, 3), np.inf), np.zeros(5, int))
    with pytest.raises(ValueError, match="at least one row"):
        SearchIndex.build(np.zeros((0, 3)), np.zeros(0, int))


@pytest.mark.parametrize("name", ["columns", "numbers", "children", "places"])
def test_a_damaged_index_is_refused(name: str):
    # The kernel does not look whether a number is inside its array: one that is not would end the process.
    rows, clips = walks(300)
    index = SearchIndex.build(rows, clips)
    assert name in {field.name for field in fields(index)}
    for number in (-100_000, 100_000):
        damaged = getattr(index, name).copy()
        damaged.flat[3] = number
        with pytest.raises(ValueError, match="damaged"):
            replace(index, **{name: damaged})
