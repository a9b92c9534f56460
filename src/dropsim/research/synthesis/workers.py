"""Where the shards are made: in this process, in several, or on a Ray cluster. The result does not depend on it."""

import functools
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from dropsim.research import processes
from dropsim.research.synthesis.dataset import is_done, make_shard
from dropsim.research.synthesis.recipe import Recipe


def here(recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
    """Make shards in this process, one after the other."""
    for shard in shards:
        make_shard(recipe, out, shard)
        yield shard


def in_processes(num: int, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
    """Make shards in several processes of this machine; if one is killed, others make its shard again."""
    return processes.in_processes(num, functools.partial(make_shard, recipe, out), shards, "shard {}".format)


def on_ray(address: str, num: int, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
    """Make shards on a Ray cluster, with a task for each. All machines have to see the folder.

    The address `local` starts Ray on this machine with some processes, and `auto` finds the machine's cluster.
    """
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError:
        raise ValueError('Ray is not installed: pip install "dropsim[scale]", or leave --ray out') from None
    _connect(ray, address, num)
    try:
        task = ray.remote(num_cpus=1, max_retries=processes.RETRIES)(make_shard)
        shared, waiting, running = ray.put(recipe), iter(shards), dict[object, int]()
        while True:
            # The cluster may grow and shrink meanwhile.
            room = max(2, int(2 * ray.cluster_resources().get("CPU", 1))) - len(running)
            running |= {task.remote(shared, out.absolute(), shard): shard for shard in islice(waiting, max(0, room))}
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            shard = running.pop(done[0])
            try:
                ray.get(done[0])
            except RayTaskError as error:
                raise ValueError(f"shard {shard}: {error.cause}") from None
            except RayError as error:
                last = str(error).splitlines()[0]
                raise ValueError(
                    f"shard {shard} failed {processes.RETRIES + 1} times on Ray, the last time with: {last}"
                ) from None
            if not is_done(out, shard):
                lost = f"shard {shard} was made on another machine and is not in {out} here"
                raise ValueError(f"{lost}: give a folder that all machines share")
            yield shard
    finally:
        ray.shutdown()


def _connect(ray, address: str, num: int) -> None:  # noqa: ANN001 - a module
    options = {"log_to_driver": False, "logging_level": "error", "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
    if address == "local":
        options |= {"num_cpus": num, "include_dashboard": False}
    # Its new default, which Ray would otherwise announce.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"there is no Ray cluster at {address!r} ({reason}): start one, or use --ray local") from None
