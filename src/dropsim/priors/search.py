"""Exact search for the recorded frames that are nearest to a query.

Frames change slowly, so a few consecutive frames of a clip fit into a small box. Such runs are the leaves of a binary
tree of boxes, in which similar runs are near each other. The distance to a box is at most the distance to any frame
inside: nodes are visited nearest first, and those farther than the K-th best frame so far are not looked at. One pass
over the boxes of all runs, blocked and with a warm start, would need half of these lines and takes up to twice as long.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int

from dropsim.compute.jit import inlined_fast_kernel, kernel

Array = Any
"""numba knows the types."""
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
"""Row number in place of those that are missing if fewer rows are allowed than asked for."""


class SearchIndex(NamedTuple):
    """Rows of features in a tree of boxes, and sets of them that a search may be confined to."""

    features: np.ndarray
    """Rows, in single precision (n d)."""
    lower: np.ndarray
    """Lower corners of the nodes' boxes; the root is the first node (m d)."""
    upper: np.ndarray
    """Upper corners of the nodes' boxes (m d)."""
    links: np.ndarray
    """First child (the other is the next one) and 0, or first row of a run and their number (m 2)."""
    sets: np.ndarray
    """Rows of each set (s n)."""
    nodes: np.ndarray
    """Nodes that hold a row of each set (s m)."""

    @classmethod
    def build(
        cls, features: Float32[np.ndarray, "n d"], clips: Int[np.ndarray, "n"], sets: Bool[np.ndarray, "s n"]
    ) -> "SearchIndex":
        """Index rows of features; rows of one clip are consecutive frames."""
        if not len(features) or not np.isfinite(features).all():
            raise ValueError("a search needs at least one row of features, and only finite numbers")
        starts = _runs(clips)
        low, high = (extreme.reduceat(features, starts, axis=0) for extreme in (np.minimum, np.maximum))
        allowed = np.logical_or.reduceat(sets, starts, axis=1)
        sizes, corners = np.diff(starts, append=len(features)), np.concatenate((low, high), axis=1)
        parts, links = [np.arange(len(starts))], np.empty((2 * len(starts) - 1, 2), dtype=np.int32)
        lower, upper = (np.empty((len(links), features.shape[1]), dtype=np.float32) for _ in range(2))
        nodes = np.empty((len(sets), len(links)), dtype=np.bool_)
        for node, part in enumerate(parts):  # grows meanwhile
            lower[node], upper[node] = low[part].min(0), high[part].max(0)
            nodes[:, node] = allowed[:, part].any(1)
            links[node] = (len(parts), 0) if len(part) > 1 else (starts[part[0]], sizes[part[0]])
            if len(part) > 1:
                parts += _halves(corners, part)
        return cls(features, lower, upper, links, sets, nodes)

    def nearest(
        self,
        queries: Float32[np.ndarray, "n d"],
        weights: Float32[np.ndarray, "n d"],
        which: Int[np.ndarray, "n"],
        num: int,
    ) -> Int[np.ndarray, "n k"]:
        """Return the `num` rows with the least weighted squared distance to each query; of equal ones the lower numbers.

        Each query has weights of the columns, of at least 0, and searches one of the sets. It finds the same rows alone
        and in a batch.
        """
        if not np.isfinite(queries).all():
            raise ValueError("a search needs finite queries")
        rows = np.empty((len(queries), num), dtype=np.int32)
        _search(queries, weights, which, self, rows)
        return rows


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
def _search(queries: Array, weights: Array, which: Array, tree: SearchIndex, rows: Array) -> None:
    """Write the nearest rows of all queries."""
    size = len(tree.links)
    # Nodes that wait, their distances, and in buckets by distance the first and following ones; -1 behind the last.
    queue = (
        np.empty(size, np.int32),
        np.empty(size, np.float32),
        np.empty(NUM_BUCKETS, np.int32),
        np.empty(size, np.int32),
    )
    distances = np.empty(rows.shape[1], np.float32)
    for n in np.argsort(queries[:, 0]):  # similar queries visit the same nodes, which are in the cache then
        allowed = tree.sets[which[n]], tree.nodes[which[n]]
        _search_one(queries[n], weights[n], tree, allowed, queue, rows[n], distances)


@kernel
def _search_one(
    query: Array,
    weights: Array,
    tree: SearchIndex,
    allowed: tuple[Array, Array],
    queue: tuple[Array, Array, Array, Array],
    rows: Array,
    distances: Array,
) -> None:
    """Write the nearest rows of one query among allowed rows and nodes, and their distances."""
    allowed_rows, allowed_nodes = allowed
    waiting, waiting_distances, heads, following = queue
    bits, num, bucket = waiting_distances.view(np.int32), 1, 0
    rows[:], distances[:], heads[:] = NO_ROW, np.inf, -1
    waiting[0], waiting_distances[0], following[0], heads[0] = 0, 0.0, -1, 0
    while bucket < NUM_BUCKETS:
        entry = heads[bucket]
        if entry < 0:
            bucket += 1
            continue
        heads[bucket] = following[entry]
        if waiting_distances[entry] > distances[-1] * ROUNDING:
            continue
        first, count = tree.links[waiting[entry]]
        for row in range(first, first + count):
            if allowed_rows[row]:
                distance = _distance(tree.features[row], tree.features[row], query, weights)
                if distance < distances[-1] or (distance == distances[-1] and row < rows[-1]):
                    _insert(distance, row, distances, rows)
        for child in range(first, first + (2 if count == 0 else 0)):
            if not allowed_nodes[child]:
                continue
            waiting_distances[num] = _distance(tree.lower[child], tree.upper[child], query, weights)
            if waiting_distances[num] <= distances[-1] * ROUNDING:
                # The bits of positive numbers are in their order: exponent and three more bits choose the bucket.
                chosen = min(max((bits[num] >> 20) - FIRST_BUCKET, 0), NUM_BUCKETS - 1)
                waiting[num], following[num], heads[chosen] = child, heads[chosen], num
                num, bucket = num + 1, min(bucket, chosen)


@inlined_fast_kernel
def _distance(lower: Array, upper: Array, query: Array, weights: Array) -> float:
    """Return the weighted squared distance of a query to a box, or to a row, which is both corners."""
    total: Any = np.float32(0.0)
    for c in range(len(query)):
        below, above = lower[c] - query[c], query[c] - upper[c]
        outside = below if below > above else above
        outside = outside if outside > np.float32(0.0) else np.float32(0.0)
        total += weights[c] * (outside * outside)
    return total


@kernel
def _insert(distance: float, row: int, distances: Array, rows: Array) -> None:
    """Put a row in its place, of equal ones behind those with lower numbers; the last one drops out."""
    at = len(rows) - 1
    while at > 0 and (distances[at - 1] > distance or (distances[at - 1] == distance and rows[at - 1] > row)):
        distances[at], rows[at] = distances[at - 1], rows[at - 1]
        at -= 1
    distances[at], rows[at] = distance, row
