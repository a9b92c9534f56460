"""The search finds exactly what comparing with every row finds."""

from dataclasses import replace

import numpy as np
import pytest

from dropsim.priors.search import Nearest, SearchIndex

COLUMNS = 13


def walks(num_rows: int, seed: int = 0, num_clips: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Features that change slowly, as motion does, in clips of different lengths."""
    rng = np.random.default_rng(seed)
    clips = np.sort(rng.integers(num_clips, size=num_rows))
    rows = 0.1 * rng.normal(size=(num_rows, COLUMNS)).cumsum(0) * np.linspace(1.0, 0.1, COLUMNS)
    return rows.astype(np.float32), clips


def check_nearest(
    found: Nearest,
    i: int,
    rows: np.ndarray,
    query: np.ndarray,
    weights: np.ndarray | float = 1.0,
    allowed: np.ndarray | None = None,
) -> None:
    """Compare what was found with the distances of every row, but for rounding; equal rows come by their numbers."""
    distances = (weights * (rows.astype(float) - query.astype(np.float32)) ** 2).sum(1)
    distances = distances if allowed is None else np.where(allowed, distances, np.inf)
    num = found.rows.shape[1]
    expected = np.r_[np.sort(distances), np.full(num, np.inf)][:num]
    np.testing.assert_allclose(found.distances[i], expected, rtol=1e-5, atol=1e-9)
    there = found.rows[i][np.isfinite(expected)]
    np.testing.assert_allclose(distances[there], expected[np.isfinite(expected)], rtol=1e-5, atol=1e-9)
    assert len(set(there.tolist())) == len(there)
    assert (found.rows[i][~np.isfinite(expected)] == -1).all()
    ties = np.flatnonzero(np.diff(found.distances[i][: len(there)]) == 0)
    assert (there[ties] < there[ties + 1]).all()


def queries_near(rows: np.ndarray, num: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rows[rng.integers(len(rows), size=num)] + rng.normal(size=(num, COLUMNS)) * rng.choice(
        [0.0, 0.1, 1.0, 10.0], (num, 1)
    )


@pytest.mark.parametrize("num_rows", [1, 7, 8, 65, 3000])
@pytest.mark.parametrize("num", [1, 16, 100])
def test_finds_what_comparing_with_every_row_finds(num_rows: int, num: int):
    rows, clips = walks(num_rows)
    queries = queries_near(rows, 40)
    found = SearchIndex.build(rows, clips).nearest(queries, num)
    for i, query in enumerate(queries):
        check_nearest(found, i, rows, query)


def test_weights_of_each_query():
    rows, clips = walks(2000)
    index, queries = SearchIndex.build(rows, clips), queries_near(rows, 60)
    weights = np.random.default_rng(3).choice([0.0, 0.3, 1.0, 7.0], queries.shape)
    weights[0] = 0.0  # nothing counts, so everything is equally near
    found, shared = index.nearest(queries, 20, weights=weights), index.nearest(queries, 20, weights=weights[1:2])
    np.testing.assert_array_equal(found.rows[0], np.arange(20))
    for i, query in enumerate(queries):
        check_nearest(found, i, rows, query, weights[i])
        check_nearest(shared, i, rows, query, weights[1])


def test_only_allowed_rows():
    rows, clips = walks(2000)
    index, queries = SearchIndex.build(rows, clips), queries_near(rows, 30)
    allowed = np.stack((np.isin(clips, (1, 4)), np.arange(len(rows)) % 97 == 0, np.zeros(len(rows), bool)))
    which = np.arange(len(queries)) % 3
    found = index.nearest(queries, 30, filter=index.filter(allowed), which=which)
    for i, query in enumerate(queries):
        check_nearest(found, i, rows, query, allowed=allowed[which[i]])
    one = index.nearest(queries, 30, filter=index.filter(allowed[0]))
    np.testing.assert_array_equal(one.rows[0], found.rows[0])


def test_equal_rows_come_in_order_of_their_numbers():
    rows, clips = walks(60)
    rows, clips = np.tile(rows, (40, 1)), np.repeat(np.arange(40), 60)
    found = SearchIndex.build(rows, clips).nearest(rows[:3], 50)
    for i in range(3):
        np.testing.assert_array_equal(found.rows[i, :40], np.arange(i, 2400, 60))
        check_nearest(found, i, rows, rows[i])


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


@pytest.mark.parametrize("number", [-100_000, -1, 0, 3, 100_000])
def test_a_damaged_index_is_refused(number: int):
    # The kernel does not look whether a number is inside its array: one that is not would end the process.
    rows, clips = walks(300)
    index = SearchIndex.build(rows, clips)
    for at in range(4):
        damaged = index.links.copy()
        damaged[7 * at, at % 2] = number
        if number != index.links[7 * at, at % 2]:
            with pytest.raises(ValueError, match="damaged"):
                replace(index, links=damaged)
