"""Who makes the shards: this process, several, or a Ray cluster. What is made does not depend on it."""

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing.synchronize import Event
from pathlib import Path

from dropsim.research.synthesis.recipe import Recipe
from dropsim.research.synthesis.shard import is_done, make_shard


class Workers(ABC):
    """Makes shards in any order."""

    @abstractmethod
    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        """Yield the number of every shard as it is done."""


@dataclass(frozen=True)
class Here(Workers):
    """This process, one shard after the other."""

    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        """Make them in order."""
        for shard in shards:
            make_shard(recipe, out, shard)
            yield shard


@dataclass(frozen=True)
class Processes(Workers):
    """Several processes of this machine, each on one thread."""

    num: int

    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        """Keep every process busy with a shard."""
        waiting = iter(shards)
        # Spawned, since a fork would inherit torch's threads in whatever state they are.
        context = multiprocessing.get_context("spawn")
        stop = context.Event()
        pool = ProcessPoolExecutor(self.num, mp_context=context, initializer=_begin_worker, initargs=(stop,))
        try:
            running = {pool.submit(make_shard, recipe, out, shard): shard for shard in islice(waiting, 2 * self.num)}
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    shard = running.pop(future)
                    future.result()
                    running |= {pool.submit(make_shard, recipe, out, other): other for other in islice(waiting, 1)}
                    yield shard
        except BrokenProcessPool:
            why = "a worker was ended from outside, perhaps for want of memory"
            raise ValueError(f"{why}: start again to go on, with fewer workers") from None
        finally:
            # On an error or Ctrl-C nobody waits for shards that are half made.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(stop: Event) -> None:
    """Use one thread, and end when told to or with the process that started this one, even where that is killed."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
    parent = multiprocessing.parent_process()
    assert parent is not None
    for end in (parent.join, stop.wait):
        threading.Thread(target=_exit_after, args=(end,), daemon=True).start()


def _exit_after(end: Callable[[], object]) -> None:
    end()
    os._exit(1)


RETRIES = 5
"""How often Ray makes a shard anew whose worker or machine went away."""


@dataclass(frozen=True)
class OnRay(Workers):
    """A Ray cluster: a task for each shard. The folder has to be one that all machines see."""

    address: str
    """local starts Ray on this machine; auto finds the cluster that it belongs to; else the cluster's address."""
    num: int
    """Processes of a local Ray."""

    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        """Keep the whole cluster busy."""
        ray = _imported_ray()
        _connect(ray, self.address, self.num)
        try:
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(_make_on_ray)
            shared, waiting = ray.put(recipe), iter(shards)
            running = {}
            while True:
                # The cluster may grow and shrink meanwhile.
                room = max(2, int(2 * ray.cluster_resources().get("CPU", 1))) - len(running)
                running |= {task.remote(shared, str(out.absolute()), shard): shard for shard in islice(waiting, max(0, room))}
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1)
                yield _finished(ray, done[0], out, running.pop(done[0]))
        finally:
            ray.shutdown()


def _make_on_ray(recipe: Recipe, out: str, shard: int) -> None:
    import torch

    torch.set_num_threads(1)
    make_shard(recipe, Path(out), shard)


def _imported_ray():  # noqa: ANN202 - a module that may not be installed
    try:
        import ray
    except ImportError:
        raise ValueError('Ray is not installed: pip install "dropsim[ray]", or leave --ray out') from None
    return ray


def _connect(ray, address: str, num: int) -> None:  # noqa: ANN001 - a module
    quiet = {"log_to_driver": False, "logging_level": "error", "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its new default, which Ray would otherwise announce
    try:
        if address == "local":
            ray.init(address="local", num_cpus=num, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ValueError(f"there is no Ray cluster at {address!r} ({str(error).splitlines()[0]}): start one, or use --ray local") from None


def _finished(ray, task: object, out: Path, shard: int) -> int:  # noqa: ANN001 - a module
    """Return the shard's number, having seen that it is there."""
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise ValueError(f"shard {shard}: {error.cause}") from None
    except ray.exceptions.RayError as error:
        raise ValueError(f"shard {shard} failed {RETRIES + 1} times on Ray, at last with: {str(error).splitlines()[0]}") from None
    if not is_done(out, shard):
        raise ValueError(f"shard {shard} was made on another machine and is not in {out} here: give a folder that all machines share")
    return shard
