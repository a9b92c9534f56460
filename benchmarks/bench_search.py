"""Speed and exactness of the search for the nearest recorded frames, on queries of simulated people who stand, walk, run and are pushed."""

import argparse
import time
from unittest import mock

import numpy as np

from dropsim.physics.step import Simulator
from dropsim.priors.motion_field import MotionField
from dropsim.priors.search import SearchIndex
from dropsim.scene import Follow, Person, Push, Scene, World, run

K = 64


def queries_of(field: MotionField, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return queries and weights of people in the simulator, in random order."""
    asked = []
    nearest = SearchIndex.nearest

    def listening(self: SearchIndex, *query: np.ndarray) -> np.ndarray:
        asked.append(query[:2])
        return nearest(self, *query)

    simulator = Simulator(field)
    with mock.patch.object(SearchIndex, "nearest", listening):
        for start, speed in (("stand", 0.0), ("walk", 1.2), ("run", 3.0)):
            for newtons in (0.0, 900.0):
                push = (Push.toward("left", newtons=newtons, part="torso", start=1.0, duration=0.1),) if newtons else ()
                world = World(Scene((Person(start),), (Follow(((0.0, 0.0, speed),)), *push)), simulator)
                run(world, 90, range(seeds))
    order = np.random.default_rng(0).permutation(sum(len(queries) for queries, _ in asked))
    queries, weights = (np.concatenate(parts)[order] for parts in zip(*asked, strict=True))
    return queries, weights


def brute_force(rows: np.ndarray, query: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the nearest rows by comparing with all of them, in double precision."""
    distances = (weights * (rows.astype(np.float64) - query) ** 2).sum(1)
    return np.lexsort((np.arange(len(rows)), distances))[:K]


def main() -> None:
    """Print a few lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bank", nargs="?", help="a .bank file; the shipped one unless given")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--exact", type=int, default=200, help="queries that are compared with brute force")
    arguments = parser.parse_args()
    field = MotionField.open(arguments.bank) if arguments.bank else MotionField.shipped()
    queries, weights = queries_of(field, arguments.seeds)
    index = field._index[1]
    rows, everybody = index.features, np.zeros(len(queries), dtype=np.int64)
    print(f"{len(rows):,} rows of {rows.shape[1]} features, {len(queries):,} queries, K = {K}")
    one = []
    for i in range(min(1000, len(queries))):
        began = time.perf_counter()
        index.nearest(queries[i : i + 1], weights[i : i + 1], everybody[:1], K)
        one.append(time.perf_counter() - began)
    print(
        f"one query: median {1e3 * np.median(one):.3f} ms, mean {1e3 * np.mean(one):.3f} ms, 95 % {1e3 * np.quantile(one, 0.95):.3f} ms"
    )
    many = []
    for _ in range(20):
        began = time.process_time()
        index.nearest(queries[:256], weights[:256], everybody[:256], K)
        many.append(time.process_time() - began)
    print(
        f"{len(queries[:256])} queries: median {1e3 * np.median(many):.1f} ms, best {1e3 * min(many):.1f} ms of one core"
    )
    count = min(arguments.exact, len(queries))
    found = index.nearest(queries[:count], weights[:count], everybody[:count], K)
    # In single precision two rows that are equally far to seven digits can change places.
    same = [len(set(brute_force(rows, queries[i], weights[i])) & set(found[i])) for i in range(count)]
    print(f"brute force finds the same rows: {np.mean(same) / K:.5f} of them in {count} queries")


if __name__ == "__main__":
    main()
