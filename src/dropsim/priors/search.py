"""Exact search for the recorded frames that are nearest to a query.

Frames change slowly, so a few consecutive frames of a clip fit into a small box. Such runs are the leaves of a binary
tree of boxes, in which similar runs are near each other. The distance to a box is at most the distance to any frame
inside: nodes are visited nearest first, and those farther than the K-th best frame so far are not looked at.
"""

import functools
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32

from dropsim.compute.jit import inlined_fast_kernel, kernel

RUN = 3
"""Frames in a run: longer runs have larger boxes, shorter ones more of them."""
ROUNDING = 1.0 + 1e-5
"""Factor by which rounding may bring the distance to a box above that to a frame inside."""
FEW = 32
"""Runs that are divided along the column in which they differ most, and no better: there are many such parts."""
NUM_BUCKETS = 192
"""Buckets of the queue: a power of two is divided into eight, so they span 2^24 in squared distance."""
FIRST_BUCKET = (127 - 14) << 3
"""Number of the first bucket, in which everything below 2^-14 is."""
NO_ROW = -1
_NOT_FINITE, _NO_SUCH_SET = 1, 2


class Nearest(NamedTuple):
    """The nearest rows of each query, nearest first."""

    rows: Int32[np.ndarray, "n k"]
    """Row numbers; -1 if there are fewer than k."""
    distances: Float32[np.ndarray, "n k"]
    """Weighted squared distances; infinite if there are fewer than k."""


class Filter(NamedTuple):
    """Sets of allowed rows, as `SearchIndex.filter` makes them."""

    rows: Bool[np.ndarray, "f n"]
    nodes: Bool[np.ndarray, "f m"]
    """Nodes that hold an allowed row."""


class Tree(NamedTuple):
    """Arrays of an index as kernels take them."""

    features: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    links: np.ndarray


class Queue(NamedTuple):
    """Nodes that wait, in buckets by their distance, each a linked list of entries."""

    nodes: np.ndarray
    distances: np.ndarray
    """Distance of each entry's node; its bits choose the bucket."""
    following: np.ndarray
    """Next entry of the same bucket; -1 behind the last."""
    heads: np.ndarray
    """First entry of each bucket; -1 if it is empty."""


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Rows of features in a tree of boxes. The arrays can be kept in a file and mapped into memory."""

    features: Float32[np.ndarray, "n d"]
    lower: Float32[np.ndarray, "m d"]
    """Lower corners of the nodes' boxes; the root is the first node."""
    upper: Float32[np.ndarray, "m d"]
    """Upper corners of the nodes' boxes."""
    links: Int32[np.ndarray, "m 2"]
    """First child (the other is the next one) and 0, or first row of a run and their number."""

    def __post_init__(self) -> None:
        leaf = self.links[:, 1] > 0
        runs, children = self.links[leaf], self.links[~leaf, 0]
        ends = np.sort(runs[:, 0]), np.sort(runs.sum(1))
        if not (
            np.array_equal(np.r_[ends[0], len(self)], np.r_[0, ends[1]])
            and np.array_equal(np.sort(children), np.arange(1, len(self.links), 2))
            and (children > np.flatnonzero(~leaf)).all()
            and (self.links >= 0).all()
            and self.lower.shape == self.upper.shape == (len(self.links), self.features.shape[1])
        ):
            raise ValueError("the index of a search is damaged: build it again")

    @classmethod
    def build(cls, features: Float[np.ndarray, "n d"], clips: Int[np.ndarray, "n"]) -> "SearchIndex":
        """Index rows of features; rows of one clip are consecutive frames."""
        features = np.ascontiguousarray(features, dtype=np.float32)
        if not len(features) or not np.isfinite(features).all():
            raise ValueError("a search needs at least one row of features, and only finite numbers")
        starts = _runs(clips)
        low, high = (extreme.reduceat(features, starts, axis=0) for extreme in (np.minimum, np.maximum))
        sizes, corners = np.diff(starts, append=len(features)), np.concatenate((low, high), axis=1)
        parts, links = [np.arange(len(starts))], np.empty((2 * len(starts) - 1, 2), dtype=np.int32)
        lower, upper = (np.empty((len(links), features.shape[1]), dtype=np.float32) for _ in range(2))
        for node, part in enumerate(parts):  # grows meanwhile
            lower[node], upper[node] = low[part].min(0), high[part].max(0)
            links[node] = (len(parts), 0) if len(part) > 1 else (starts[part[0]], sizes[part[0]])
            if len(part) > 1:
                parts += _halves(corners, part)
        return cls(features, lower, upper, links)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by the fields' names, to be kept in a file; SearchIndex(**arrays) is the same index."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def filter(self, allowed: Bool[np.ndarray, "*f n"]) -> Filter:
        """Return sets of allowed rows for the search; keep it, as this takes longer than a query."""
        sets = np.ascontiguousarray(allowed).reshape(-1, len(self))
        nodes = np.empty((len(sets), len(self.links)), dtype=np.bool_)
        _mark_nodes(sets, self.links, nodes)
        return Filter(sets, nodes)

    def nearest(
        self,
        queries: Float[np.ndarray, "n d"],
        num: int,
        *,
        weights: Float[np.ndarray, "#n d"] | None = None,
        filter: Filter | None = None,
        which: Int[np.ndarray, "n"] | None = None,
    ) -> Nearest:
        """Return the `num` rows with the least weighted squared distance to each query; of equal ones the lower numbers.

        Weights are of each column of each query, 1 if not given; a column of weight 0 does not count. Only rows that
        pass the filter are found; `which` chooses among several sets of a filter, for each query. A query finds the
        same rows alone and in a batch.
        """
        if queries.shape[1] != self.features.shape[1]:
            raise ValueError(f"a query has {queries.shape[1]} features, and the rows have {self.features.shape[1]}")
        if num < 1:
            raise ValueError(f"the search finds at least 1 row, not {num}")
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        weights = np.ones((1, queries.shape[1])) if weights is None else weights
        weights = np.ascontiguousarray(weights, dtype=np.float32)
        filter = self._everything if filter is None else filter
        which = np.zeros(len(queries), dtype=np.int64) if which is None else np.ascontiguousarray(which, dtype=np.int64)
        if weights.shape not in ((1, queries.shape[1]), queries.shape) or which.shape != queries.shape[:1]:
            raise ValueError(
                "the search takes one row of weights, or one for each query, and one choice of a filter's set for each"
            )
        if (filter.rows.shape[1], filter.nodes.shape[1]) != (len(self), len(self.links)):
            raise ValueError("the filter belongs to another index: make it with this one's filter()")
        nearest = Nearest(np.empty((len(queries), num), dtype=np.int32), np.empty((len(queries), num), np.float32))
        tree = Tree(self.features, self.lower, self.upper, self.links)
        fault = _search(queries, weights, which, tree, filter, nearest)
        if fault == _NOT_FINITE:
            raise ValueError("a search needs finite queries, and finite weights of at least 0")
        if fault == _NO_SUCH_SET:
            raise ValueError(f"`which` has to choose among {len(filter.rows)} sets of rows, from 0 on")
        return nearest

    @functools.cached_property
    def _everything(self) -> Filter:
        return self.filter(np.ones(len(self), dtype=bool))


def _runs(clips: Int[np.ndarray, "n"]) -> Int[np.ndarray, "r"]:
    """Return the first rows of runs of one clip each."""
    firsts = np.r_[0, np.flatnonzero(np.diff(clips)) + 1]
    return np.concatenate([np.arange(a, b, RUN) for a, b in zip(firsts, np.r_[firsts[1:], len(clips)], strict=True)])


def _halves(points: Float32[np.ndarray, "r c"], part: Int[np.ndarray, "p"]) -> tuple[np.ndarray, np.ndarray]:
    """Divide points into two equally large halves around two means."""
    centred = points[part] - points[part].mean(0)
    order, half = np.argsort(centred[:, centred.var(0).argmax()], kind="stable"), len(part) // 2
    for _ in range(5 if len(part) > FEW else 0):
        order = np.argsort(centred @ (centred[order[half:]].mean(0) - centred[order[:half]].mean(0)), kind="stable")
    return part[order[:half]], part[order[half:]]


@kernel
def _mark_nodes(allowed: np.ndarray, links: np.ndarray, nodes: np.ndarray) -> None:
    """Write which nodes hold allowed rows; children come after their parents."""
    for f in range(len(allowed)):
        for node in range(len(links) - 1, -1, -1):
            first, count = links[node]
            if count == 0:
                nodes[f, node] = nodes[f, first] or nodes[f, first + 1]
            else:
                nodes[f, node] = allowed[f, first : first + count].any()


@kernel
def _search(
    queries: np.ndarray, weights: np.ndarray, which: np.ndarray, tree: Tree, allowed: Filter, nearest: Nearest
) -> int:
    """Find the nearest rows of all queries, and return what is wrong with them, or 0."""
    size = len(tree.links)
    nodes, following, heads = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(NUM_BUCKETS, np.int32)
    queue = Queue(nodes, np.empty(size, np.float32), following, heads)
    for n in np.argsort(queries[:, 0]):  # similar queries visit the same nodes, which are in the cache then
        query, weight = queries[n], weights[n if len(weights) > 1 else 0]
        if not 0 <= which[n] < len(allowed.rows):
            return _NO_SUCH_SET
        if not (np.isfinite(query).all() and np.isfinite(weight).all() and (weight >= 0.0).all()):
            return _NOT_FINITE
        subset = allowed.rows[which[n]], allowed.nodes[which[n]]
        _search_one(query, weight, tree, subset, queue, nearest.rows[n], nearest.distances[n])
    return 0


@kernel
def _search_one(
    query: np.ndarray,
    weights: np.ndarray,
    tree: Tree,
    allowed: tuple[np.ndarray, np.ndarray],
    queue: Queue,
    rows: np.ndarray,
    distances: np.ndarray,
) -> None:
    """Find the nearest rows of one query among allowed rows and nodes."""
    allowed_rows, allowed_nodes = allowed
    bits, num, bucket = queue.distances.view(np.int32), 1, 0
    rows[:], distances[:], queue.heads[:] = NO_ROW, np.inf, -1
    queue.nodes[0], queue.distances[0], queue.following[0], queue.heads[0] = 0, 0.0, -1, 0
    while bucket < NUM_BUCKETS:
        entry = queue.heads[bucket]
        if entry < 0:
            bucket += 1
            continue
        queue.heads[bucket] = queue.following[entry]
        if queue.distances[entry] > distances[-1] * ROUNDING:
            continue
        first, count = tree.links[queue.nodes[entry]]
        for row in range(first, first + count):
            if allowed_rows[row]:
                distance = _distance(tree.features[row], tree.features[row], query, weights)
                if distance < distances[-1] or (distance == distances[-1] and row < rows[-1]):
                    _insert(distance, row, distances, rows)
        for child in range(first, first + (2 if count == 0 else 0)):
            if not allowed_nodes[child]:
                continue
            queue.distances[num] = _distance(tree.lower[child], tree.upper[child], query, weights)
            if queue.distances[num] <= distances[-1] * ROUNDING:
                # The bits of positive numbers are in their order: exponent and three more bits choose the bucket.
                chosen = min(max((bits[num] >> 20) - FIRST_BUCKET, 0), NUM_BUCKETS - 1)
                queue.nodes[num], queue.following[num], queue.heads[chosen] = child, queue.heads[chosen], num
                num, bucket = num + 1, min(bucket, chosen)


@inlined_fast_kernel
def _distance(lower: np.ndarray, upper: np.ndarray, query: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted squared distance of a query to a box, or to a row, which is both corners."""
    total: Any = np.float32(0.0)
    for c in range(len(query)):
        below, above = lower[c] - query[c], query[c] - upper[c]
        outside = below if below > above else above
        outside = outside if outside > np.float32(0.0) else np.float32(0.0)
        total += weights[c] * (outside * outside)
    return total


@kernel
def _insert(distance: float, row: int, distances: np.ndarray, rows: np.ndarray) -> None:
    """Put a row in its place, of equal ones behind those with lower numbers; the last one drops out."""
    at = len(rows) - 1
    while at > 0 and (distances[at - 1] > distance or (distances[at - 1] == distance and rows[at - 1] > row)):
        distances[at], rows[at] = distances[at - 1], rows[at - 1]
        at -= 1
    distances[at], rows[at] = distance, row
