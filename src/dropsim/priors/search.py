"""Exact search for the recorded frames that are nearest to a query.

Motion matching compares a query with every frame of a bank. Two properties of motion make that fast without losing
exactness:

- Frames change slowly, so eight consecutive frames of a clip fit into a small box. Such runs are the leaves of a tree, and eight children
  make a node. Ward's clustering puts runs into one node that are alike: the same phase of another step rather than the next half second.
- The distance to a box is at most the distance to any frame inside. Nodes are visited nearest first, and the search ends when no box is
  as near as the K-th best frame.

Boxes are rounded outward to 16 bits, which halves what has to be read and changes nothing in the result. Distances are
sums in single precision in a fixed order; since rounding keeps order, the distance to a box is never above that of a
frame inside, to the last bit.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32, UInt8, UInt32
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dropsim.compute.jit import kernel

LANES = 8
"""Frames in a run, children of a node, and columns that are summed before looking whether the sum is too large
already."""
MAX_CLUSTERED = 512
"""Runs that are clustered together: Ward's method takes time and memory with the square of it."""
NUM_BUCKETS = 192
"""Of the queue: a power of two is divided into eight, so they span 2^24 in squared distance."""
FIRST_BUCKET = (127 - 14) << 3
"""All that is below 2^-14 shares the first bucket."""
NO_ROW = -1
_NOT_FINITE, _NO_SUCH_SET = 1, 2


class Nearest(NamedTuple):
    """The nearest rows of each query, nearest first."""

    rows: Int32[np.ndarray, "n k"]
    """Row numbers; -1 if there are fewer than k."""
    distances: Float32[np.ndarray, "n k"]
    """Weighted squared distances; infinite if there are fewer than k."""


@dataclass(frozen=True, eq=False)
class Filter:
    """Sets of allowed rows, laid out for the search. Made by `SearchIndex.filter`."""

    nodes: UInt8[np.ndarray, "f nodes"]
    """A bit for each child that holds an allowed row."""
    leaves: UInt8[np.ndarray, "f leaves"]
    """A bit for each allowed row."""


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """Rows of features in a tree of boxes. The arrays can be kept in a file and mapped into memory."""

    columns: Int32[np.ndarray, "d"]
    """Columns of the features in the order in which they are summed: large variance first."""
    leaves: Float32[np.ndarray, "leaves c 8"]
    """Features of eight consecutive rows, column by column; c is d rounded up to a multiple of 8."""
    numbers: Int32[np.ndarray, "leaves 8"]
    """Row numbers; -1 where a run ends early."""
    boxes: UInt32[np.ndarray, "nodes c 8"]
    """Corners of each child's box, of the upper one the upper 16 bits of a single-precision number, below them those of
    the lower one."""
    children: Int32[np.ndarray, "nodes 8"]
    """Node, or -1 - leaf."""
    places: Int32[np.ndarray, "n"]
    """8 x leaf + lane of each row."""

    def __post_init__(self) -> None:
        num_leaves, num_nodes, children = len(self.leaves), len(self.boxes), np.sort(self.children, axis=None)
        inner, outer = children[children > 0], children[children < 0]
        if not (
            np.array_equal(inner, np.arange(1, num_nodes))
            and np.array_equal(outer, np.arange(-num_leaves, 0))
            and np.array_equal(np.sort(self.columns), np.arange(len(self.columns)))
            and np.array_equal(np.flatnonzero(self.numbers != NO_ROW), np.sort(self.places))
            and np.array_equal(self.numbers.reshape(-1)[self.places], np.arange(len(self.places)))
            and self.leaves.shape[1] == self.boxes.shape[1] == _round_up(len(self.columns))
        ):
            raise ValueError("the index of a search is damaged: build it again")

    @classmethod
    def build(cls, features: Float[np.ndarray, "n d"], clips: Int[np.ndarray, "n"]) -> "SearchIndex":
        """Index rows of features; rows of one clip are consecutive frames. Takes about 1.5 s for 200,000 rows."""
        features = np.asarray(features, dtype=np.float32)
        if not len(features) or not np.isfinite(features).all():
            raise ValueError("a search needs at least one row of features, and only finite numbers")
        columns = np.argsort(-features.var(0), kind="stable")
        padded = np.zeros((len(features), _round_up(len(columns))), dtype=np.float32)
        padded[:, : len(columns)] = features[:, columns]
        starts, ends = _runs(clips)
        numbers = starts[:, None] + np.arange(LANES)
        runs = padded[np.minimum(numbers, ends[:, None] - 1)]
        numbers[numbers >= ends[:, None]] = NO_ROW
        lower, upper = runs.min(1), runs.max(1)
        nodes, lower, upper = _cluster(lower, upper)
        # Nodes are numbered from the root on, leaves in the order in which their parents are.
        leaf_order = np.array([child for node in nodes for child in node if child < len(runs)])
        place = np.empty(len(lower), dtype=np.int32)
        place[leaf_order] = -1 - np.arange(len(runs))
        place[[child for node in nodes for child in node if child >= len(runs)]] = np.arange(1, len(nodes))
        boxes = np.zeros((len(nodes), padded.shape[1], LANES), dtype=np.uint32)
        children = np.full((len(nodes), LANES), 0, dtype=np.int32)
        for i, node in enumerate(nodes):
            boxes[i, :, : len(node)] = (_halved(upper[node], 1) << 16 | _halved(lower[node], -1)).T
            children[i, : len(node)] = place[node]
        numbers = numbers[leaf_order]
        places = np.empty(len(features), dtype=np.int32)
        places[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
        return cls(
            columns.astype(np.int32), np.ascontiguousarray(runs[leaf_order].swapaxes(1, 2)), numbers.astype(np.int32),
            boxes, children, places,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.places)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by the fields' names, to be kept in a file; SearchIndex(**arrays) is the same index."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def features(self, rows: Int[np.ndarray, "*b"]) -> Float32[np.ndarray, "*b d"]:
        """Return the features of some rows."""
        place = self.places[rows]
        found = np.empty((*np.shape(rows), len(self.columns)), dtype=np.float32)
        found[..., self.columns] = self.leaves[place // LANES, : len(self.columns), place % LANES]
        return found

    def filter(self, allowed: Bool[np.ndarray, "*f n"]) -> Filter:
        """Lay sets of allowed rows out for the search; takes about 0.5 ms per set and 200,000 rows, so keep it."""
        sets = np.ascontiguousarray(allowed).reshape(-1, len(self))
        found = Filter(
            np.empty((len(sets), len(self.boxes)), np.uint8), np.empty((len(sets), len(self.leaves)), np.uint8)
        )
        for rows, nodes, leaves in zip(sets, found.nodes, found.leaves, strict=True):
            _fill_filter(rows, self.numbers, self.children, self._num_children, nodes, leaves)
        return found

    def nearest(
        self,
        queries: Float[np.ndarray, "n d"],
        num: int,
        *,
        weights: Float[np.ndarray, "#n d"] | None = None,
        filter: Filter | None = None,
        which: Int[np.ndarray, "n"] | None = None,
    ) -> Nearest:
        """Return the `num` rows with the least weighted squared distance to each query; of equal ones those with the lower numbers.

        Weights are of each column of each query, 1 if not given; a column of weight 0 does not count. Only rows that
        pass the filter are found; `which` chooses among several sets of a filter, for each query. A query finds the
        same rows alone and in a batch.
        """
        if queries.shape[1] != len(self.columns):
            raise ValueError(f"a query has {queries.shape[1]} features, and the rows have {len(self.columns)}")
        if num < 1:
            raise ValueError(f"the search finds at least 1 row, not {num}")
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        weights = self._ones if weights is None else np.ascontiguousarray(weights, dtype=np.float32)
        filter = self._everything if filter is None else filter
        which = np.zeros(len(queries), dtype=np.int64) if which is None else np.ascontiguousarray(which, dtype=np.int64)
        if weights.shape not in ((1, queries.shape[1]), queries.shape) or which.shape != queries.shape[:1]:
            raise ValueError(
                "the search takes one row of weights, or one for each query, and one choice of a filter's set for each query"
            )
        if (filter.nodes.shape[1], filter.leaves.shape[1]) != (len(self.boxes), len(self.leaves)):
            raise ValueError("the filter belongs to another index: make it with this one's filter()")
        found = Nearest(np.empty((len(queries), num), dtype=np.int32), np.empty((len(queries), num), dtype=np.float32))
        # Queries that are alike visit the same nodes: one after the other they find them in the cache.
        order = np.argsort(queries[:, self.columns[0]]) if len(queries) > 1 else np.zeros(len(queries), dtype=np.int64)
        fault = _search(
            order, queries, weights, *self._tree, filter.nodes, filter.leaves, which, *self._scratch, *found
        )
        if fault == _NOT_FINITE:
            raise ValueError("a search needs finite queries, and finite weights of at least 0")
        if fault == _NO_SUCH_SET:
            raise ValueError(f"`which` has to choose among {len(filter.nodes)} sets of rows, from 0 on")
        return found

    @functools.cached_property
    def _tree(self) -> tuple[np.ndarray, ...]:
        return self.columns, self.leaves.reshape(-1), self.numbers, self.boxes.reshape(-1), self.children

    @functools.cached_property
    def _scratch(self) -> tuple[np.ndarray, ...]:
        """Memory of the queue. Every child is queued at most once; threads can share it because a kernel holds Python's lock."""
        columns = np.zeros((2, self.leaves.shape[1]), dtype=np.float32)
        entries = np.empty((self.children.size + 1, 4), dtype=np.int32)
        return columns, entries, entries.view(np.float32), np.empty(NUM_BUCKETS, dtype=np.int32)

    @functools.cached_property
    def _ones(self) -> Float32[np.ndarray, "1 d"]:
        return np.ones((1, len(self.columns)), dtype=np.float32)

    @functools.cached_property
    def _num_children(self) -> Int32[np.ndarray, "nodes"]:
        # A node's own number is larger than that of its parent, and the root is nobody's child: 0 pads.
        return np.count_nonzero(self.children, axis=1).astype(np.int32)

    @functools.cached_property
    def _everything(self) -> Filter:
        return self.filter(np.ones(len(self), dtype=bool))


# --- building the tree


def _round_up(count: int) -> int:
    return -(-count // LANES) * LANES


def _runs(clips: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "r"], Int[np.ndarray, "r"]]:
    """Cut clips into runs of at most eight rows."""
    firsts = np.r_[0, np.flatnonzero(np.diff(clips)) + 1]
    lasts = np.r_[firsts[1:], len(clips)]
    starts = np.concatenate([np.arange(first, last, LANES) for first, last in zip(firsts, lasts, strict=True)])
    return starts, np.minimum(np.r_[starts[1:], len(clips)], starts + LANES)


def _cluster(
    lower: Float32[np.ndarray, "r c"], upper: Float32[np.ndarray, "r c"]
) -> tuple[list[list[int]], Float32[np.ndarray, "m c"], Float32[np.ndarray, "m c"]]:
    """Return nodes of up to eight children, the root first, with the boxes of everything; numbers below r are runs."""
    pairs = _pairs(np.concatenate((lower, upper), axis=1))
    num_runs = len(lower)
    lower, upper = (np.concatenate((box, np.empty((len(pairs), box.shape[1]), np.float32))) for box in (lower, upper))
    sizes = [1] * num_runs
    for i, (a, b) in enumerate(pairs, start=num_runs):
        np.minimum(lower[a], lower[b], out=lower[i])
        np.maximum(upper[a], upper[b], out=upper[i])
        sizes.append(sizes[a] + sizes[b])
    spread = np.square(upper - lower).sum(1).tolist()
    nodes = []
    todo = [len(lower) - 1]
    for node in todo:  # grows meanwhile
        children = [node]
        while True:
            # Divide what is too large for one node, then what fits into this one.
            divisible = [c for c in children if sizes[c] > LANES]
            divisible = divisible or [c for c in children if c >= num_runs and len(children) + sizes[c] - 1 <= LANES]
            if not divisible or len(children) == LANES:
                break
            widest = max(divisible, key=spread.__getitem__)
            at = children.index(widest)
            children[at : at + 1] = pairs[widest - num_runs]
        nodes.append(children)
        todo += [c for c in children if c >= num_runs]
    return nodes, lower, upper


def _pairs(points: Float32[np.ndarray, "r c"]) -> list[tuple[int, int]]:
    """Merge points two by two until one is left, by Ward's method within parts and then of parts; the i-th merger gets number r + i."""
    from scipy.cluster.hierarchy import linkage

    merged: list[tuple[int, int]] = []

    def cluster(points: np.ndarray, names: list[int]) -> int:
        if len(names) > 1:
            for a, b, _, _ in linkage(points, "ward"):
                merged.append((names[int(a)], names[int(b)]))
                names.append(num_points + len(merged) - 1)
        return names[-1]

    num_points, parts, todo = len(points), [], [np.arange(len(points))]
    while todo:
        part = todo.pop()
        if len(part) > MAX_CLUSTERED:
            todo += _halves(points, part)
        else:
            parts.append(part)
    roots = [cluster(points[part], part.tolist()) for part in parts]
    cluster(np.stack([points[part].mean(0) for part in parts]), roots)
    return merged


def _halves(
    points: Float32[np.ndarray, "r c"], part: Int[np.ndarray, "p"]
) -> tuple[Int[np.ndarray, "a"], Int[np.ndarray, "b"]]:
    """Divide points into two equally large halves around two means."""
    centred = points[part] - points[part].mean(0)
    order, half = np.argsort(centred[:, centred.var(0).argmax()], kind="stable"), len(part) // 2
    for _ in range(5):
        order = np.argsort(centred @ (centred[order[half:]].mean(0) - centred[order[:half]].mean(0)), kind="stable")
    return part[order[:half]], part[order[half:]]


def _halved(values: Float32[np.ndarray, "*b"], direction: int) -> UInt32[np.ndarray, "*b"]:
    """Return the upper 16 bits of single-precision numbers, rounded up (1) or down (-1)."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    # Cutting rounds toward zero.
    return (bits >> 16) + (((bits & 0xFFFF) != 0) & (np.signbit(values) == (direction < 0)))


# --- searching it: eight lanes at once, which numba does not find by itself

Code = Any
"""A builder or a value of llvmlite, whose own annotations are wrong in places."""
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)


def _everywhere(builder: Code, value: Code) -> Code:
    """Copy a number into all lanes."""
    one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * LANES))


def _load(builder: Code, pointer: Code, kind: ir.VectorType) -> Code:
    loaded = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    loaded.align = 4  # files and numpy do not promise more
    return loaded


def _larger(builder: Code, a: Code, b: Code) -> Code:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _distance_to_rows(builder: Code, data: Callable[[int], Code], column: int, query: Code) -> Code:
    return builder.fsub(_load(builder, data(column * LANES), _FLOATS), query)


def _distance_to_boxes(builder: Code, data: Callable[[int], Code], column: int, query: Code) -> Code:
    corners = _load(builder, data(column * LANES), _INTS)
    lower = builder.bitcast(builder.shl(corners, ir.Constant(_INTS, [16] * LANES)), _FLOATS)
    upper = builder.bitcast(builder.and_(corners, ir.Constant(_INTS, [0xFFFF0000] * LANES)), _FLOATS)
    outside = _larger(builder, builder.fsub(lower, query), builder.fsub(query, upper))
    return _larger(builder, outside, ir.Constant(_FLOATS, [0.0] * LANES))


def _add_columns(distance: Callable[..., Code]) -> Code:
    """Make the function add(data, start, query, weights, column, sums, bound), which calls the code that `distance` writes.

    It adds the weighted squared distances in eight columns to the sums of eight lanes, and returns a bit for each sum
    up to the bound.
    """

    def add(context, data, start, query, weights, column, sums, bound):  # noqa: ANN001, ANN202, types of numba
        del context, start, column, bound
        signature = types.int32(data, types.intp, query, weights, types.intp, sums, types.float32)

        def generate(context, builder, signature, args):  # noqa: ANN001, ANN202
            intp = context.get_value_type(types.intp)

            def pointer(argument: int, *offsets: Code) -> Code:
                array = cgutils.create_struct_proxy(signature.args[argument])(context, builder, args[argument]).data
                return functools.reduce(lambda at, offset: builder.gep(at, [offset]), offsets, array)

            terms = []
            for k in range(LANES):
                query, weight = (_everywhere(builder, builder.load(pointer(i, args[4], intp(k)))) for i in (2, 3))
                difference = distance(builder, lambda offset: pointer(0, args[1], intp(offset)), k, query)
                terms.append(builder.fmul(weight, builder.fmul(difference, difference)))
            while len(terms) > 1:
                terms = [builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
            total = builder.fadd(_load(builder, pointer(5), _FLOATS), terms[0])
            builder.store(total, builder.bitcast(pointer(5), _FLOATS.as_pointer())).align = 4
            near = builder.fcmp_ordered("<=", total, _everywhere(builder, args[6]))
            return builder.zext(builder.bitcast(near, ir.IntType(LANES)), _INT)

        return signature, generate

    return intrinsic(add)


def _write_lowest_bit(context, bits):  # noqa: ANN001, ANN202
    """Return the number of the lowest bit that is set."""
    del context
    return bits(bits), lambda context, builder, signature, args: builder.cttz(args[0], ir.IntType(1)(1))


_add_rows, _add_boxes = _add_columns(_distance_to_rows), _add_columns(_distance_to_boxes)
_lowest_bit: Code = intrinsic(_write_lowest_bit)


@kernel
def _search(
    order: np.ndarray, queries: np.ndarray, weights: np.ndarray, columns: np.ndarray, leaves: np.ndarray, numbers: np.ndarray,
    boxes: np.ndarray, children: np.ndarray, allowed_nodes: np.ndarray, allowed_leaves: np.ndarray, which: np.ndarray,
    padded: np.ndarray, queue: np.ndarray, bounds: np.ndarray, heads: np.ndarray, rows: np.ndarray, distances: np.ndarray,
) -> int:  # fmt: skip
    """Find the nearest rows of all queries, and return what is wrong with them, or 0."""
    sums = np.empty(LANES, dtype=np.float32)
    for n in order:
        if not 0 <= which[n] < len(allowed_nodes):
            return _NO_SUCH_SET
        for i in range(len(columns)):
            padded[0, i], padded[1, i] = queries[n, columns[i]], weights[min(n, len(weights) - 1), columns[i]]
            if not (np.isfinite(padded[0, i]) and 0.0 <= padded[1, i] < np.inf):
                return _NOT_FINITE
        _search_one(
            padded[0], padded[1], leaves, numbers, boxes, children, allowed_nodes[which[n]], allowed_leaves[which[n]],
            queue, bounds, heads, sums, rows[n], distances[n],
        )  # fmt: skip
    return 0


@kernel
def _search_one(
    query: np.ndarray, weights: np.ndarray, leaves: np.ndarray, numbers: np.ndarray, boxes: np.ndarray, children: np.ndarray,
    allowed_nodes: np.ndarray, allowed_leaves: np.ndarray, queue: np.ndarray, bounds: np.ndarray, heads: np.ndarray,
    sums: np.ndarray, rows: np.ndarray, distances: np.ndarray,
) -> None:  # fmt: skip
    """Find the nearest rows of one query.

    Nodes and leaves wait in buckets by their distance, each a linked list. An entry of the queue is the node, or -1 -
    leaf, its distance, and the next entry; `bounds` is the same memory as floating-point numbers. Rows and distances
    are a heap with the worst on top.
    """
    num_columns, num_found, worst = len(query), 0, np.float32(np.inf)
    rows[:], distances[:], heads[:] = NO_ROW, np.inf, -1
    queue[0, 0], bounds[0, 1], queue[0, 2], heads[0] = 0, 0.0, -1, 0
    num_queued, bucket, last = 1, 0, NUM_BUCKETS - 1
    while True:
        while bucket <= last and heads[bucket] < 0:
            bucket += 1
        if bucket > last:
            break
        entry = heads[bucket]
        heads[bucket] = queue[entry, 2]
        if bounds[entry, 1] > worst:
            last = bucket  # what is in later buckets is farther still
            continue
        at, near = queue[entry, 0], np.int32(0)
        sums[:] = 0.0
        if at >= 0:
            for c in range(0, num_columns, LANES):
                near = np.int32(allowed_nodes[at]) & _add_boxes(
                    boxes, (at * num_columns + c) * LANES, query, weights, c, sums, worst
                )
                if near == 0:
                    break
            while near:
                lane = _lowest_bit(near)
                near = np.int32(near & (near - 1))
                queue[num_queued, 0], bounds[num_queued, 1] = children[at, lane], sums[lane]
                # The bits of positive numbers are in the order of the numbers: the exponent and three more bits choose
                # the bucket.
                chosen = min(max((queue[num_queued, 1] >> 20) - FIRST_BUCKET, 0), NUM_BUCKETS - 1)
                queue[num_queued, 2], heads[chosen] = heads[chosen], num_queued
                num_queued, bucket = num_queued + 1, min(bucket, chosen)
        else:
            at = -1 - at
            for c in range(0, num_columns, LANES):
                near = np.int32(allowed_leaves[at]) & _add_rows(
                    leaves, (at * num_columns + c) * LANES, query, weights, c, sums, worst
                )
                if near == 0:
                    break
            while near:
                lane = _lowest_bit(near)
                near = np.int32(near & (near - 1))
                distance, row = sums[lane], numbers[at, lane]
                if num_found < len(rows):
                    _push(distances, rows, num_found, distance, row)
                    num_found += 1
                elif _is_later(distances[0], rows[0], distance, row):
                    _sink(distances, rows, num_found, distance, row)
                else:
                    continue
                if num_found == len(rows):
                    worst = distances[0]
    for end in range(num_found - 1, 0, -1):
        distance, row = distances[end], rows[end]
        distances[end], rows[end] = distances[0], rows[0]
        _sink(distances, rows, end, distance, row)


@kernel
def _is_later(distance: float, row: int, other: float, other_row: int) -> bool:
    """Tell whether a row comes after another one in the order of results."""
    return distance > other or (distance == other and row > other_row)


@kernel
def _push(distances: np.ndarray, rows: np.ndarray, size: int, distance: float, row: int) -> None:
    """Add a row to a heap."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if not _is_later(distance, row, distances[parent], rows[parent]):
            break
        distances[at], rows[at] = distances[parent], rows[parent]
        at = parent
    distances[at], rows[at] = distance, row


@kernel
def _sink(distances: np.ndarray, rows: np.ndarray, size: int, distance: float, row: int) -> None:
    """Replace the top of a heap."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _is_later(distances[child + 1], rows[child + 1], distances[child], rows[child]):
            child += 1
        if not _is_later(distances[child], rows[child], distance, row):
            break
        distances[at], rows[at] = distances[child], rows[child]
        at = child
    distances[at], rows[at] = distance, row


@kernel
def _fill_filter(
    allowed: np.ndarray,
    numbers: np.ndarray,
    children: np.ndarray,
    num_children: np.ndarray,
    nodes: np.ndarray,
    leaves: np.ndarray,
) -> None:
    for leaf in range(len(numbers)):
        found = 0
        for lane in range(LANES):
            if numbers[leaf, lane] >= 0 and allowed[numbers[leaf, lane]]:
                found |= 1 << lane
        leaves[leaf] = found
    for node in range(len(children) - 1, -1, -1):  # children come after their parents
        found = 0
        for lane in range(num_children[node]):
            child = children[node, lane]
            if (nodes[child] if child > 0 else leaves[-1 - child]) != 0:
                found |= 1 << lane
        nodes[node] = found
