"""Who makes the shards: this process, several, or a Ray cluster. The result does not depend on it."""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from dropsim.research.synthesis.recipe import Recipe
from dropsim.research.synthesis.shard import is_done, make_shard

RETRIES = 5
"""How often a shard is made again if its worker or machine went away."""


class Workers(ABC):
    """Makes shards in any order."""

    @abstractmethod
    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        """Yield the number of every shard when it is done."""


@dataclass(frozen=True)
class Here(Workers):
    """This process, one shard after the other."""

    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        for shard in shards:
            make_shard(recipe, out, shard)
            yield shard


@dataclass(frozen=True)
class Processes(Workers):
    """Several processes of this machine. If one is killed, a new one makes its shard again."""

    num: int

    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        waiting, lost = deque(shards), Counter[int]()
        started, busy = list[BaseProcess](), dict[Connection, int]()
        try:
            while waiting or busy:
                while waiting and len(busy) < self.num:
                    process, line = _start_worker(recipe, out)
                    started.append(process)
                    _hand_out(line, waiting, busy)
                ready = wait(list(busy))
                for line in [line for line in busy if line in ready]:
                    shard = busy.pop(line)
                    if not _answered(line):
                        lost[shard] += 1
                        if lost[shard] > RETRIES:
                            why = f"shard {shard}: its worker was killed {lost[shard]} times, perhaps because memory ran out"
                            raise ValueError(f"{why}: run the same command again with fewer --workers to go on")
                        waiting.appendleft(shard)
                        continue
                    if waiting:
                        _hand_out(line, waiting, busy)
                    else:
                        line.close()
                    yield shard
        finally:
            # After an error or Ctrl-C nobody waits for shards that are half made.
            for process in started:
                process.terminate()
                process.join()


def _start_worker(recipe: Recipe, out: Path) -> tuple[BaseProcess, Connection]:
    # Spawned, because a fork would inherit threads in whatever state they are in.
    context = multiprocessing.get_context("spawn")
    line, other = context.Pipe()
    process = context.Process(target=_work, args=(other, recipe, out), daemon=True)
    process.start()
    other.close()
    return process, line


def _hand_out(line: Connection, waiting: deque[int], busy: dict[Connection, int]) -> None:
    busy[line] = waiting.popleft()
    with contextlib.suppress(OSError):  # a worker that is gone is noticed when it should answer
        line.send(busy[line])


def _answered(line: Connection) -> bool:
    """Wait for a worker's answer, and raise its error; False means that the worker is gone."""
    try:
        error = line.recv()
    except (EOFError, OSError):
        return False
    if error is not None:
        raise error
    return True


def _work(line: Connection, recipe: Recipe, out: Path) -> None:
    """Make the shards that are asked for, until there are no more or the first process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while True:
        try:
            shard = line.recv()
        except EOFError:
            return
        try:
            make_shard(recipe, out, shard)
        except (OSError, ValueError) as error:
            line.send(ValueError(f"shard {shard}: {error}"))
        except Exception:
            line.send(RuntimeError(f"shard {shard}: {traceback.format_exc()}"))
        else:
            line.send(None)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@dataclass(frozen=True)
class OnRay(Workers):
    """A Ray cluster, with a task for each shard. All machines have to see the folder."""

    address: str
    """local starts Ray on this machine; auto finds the cluster that it belongs to; else the cluster's address."""
    num: int
    """Processes of a local Ray."""

    def make(self, recipe: Recipe, out: Path, shards: Sequence[int]) -> Iterator[int]:
        ray = _imported_ray()
        _connect(ray, self.address, self.num)
        try:
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(_make_on_ray)
            shared, waiting = ray.put(recipe), iter(shards)
            running = {}
            while True:
                # The cluster may grow and shrink meanwhile.
                room = max(2, int(2 * ray.cluster_resources().get("CPU", 1))) - len(running)
                running |= {
                    task.remote(shared, str(out.absolute()), shard): shard for shard in islice(waiting, max(0, room))
                }
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1)
                yield _finished(ray, done[0], out, running.pop(done[0]))
        finally:
            ray.shutdown()


def _make_on_ray(recipe: Recipe, out: str, shard: int) -> None:
    make_shard(recipe, Path(out), shard)


def _imported_ray():  # noqa: ANN202 - a module that may not be installed
    try:
        import ray
    except ImportError:
        raise ValueError('Ray is not installed: pip install "dropsim[scale]", or leave --ray out') from None
    return ray


def _connect(ray, address: str, num: int) -> None:  # noqa: ANN001 - a module
    quiet = {"log_to_driver": False, "logging_level": "error", "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # its new default, which Ray would otherwise announce
    try:
        if address == "local":
            ray.init(address="local", num_cpus=num, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"there is no Ray cluster at {address!r} ({str(error).splitlines()[0]}): start one, or use --ray local"
        ) from None


def _finished(ray, task: object, out: Path, shard: int) -> int:  # noqa: ANN001 - a module
    """Return the shard's number once it is in the folder."""
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise ValueError(f"shard {shard}: {error.cause}") from None
    except ray.exceptions.RayError as error:
        raise ValueError(
            f"shard {shard} failed {RETRIES + 1} times on Ray, the last time with: {str(error).splitlines()[0]}"
        ) from None
    if not is_done(out, shard):
        raise ValueError(
            f"shard {shard} was made on another machine and is not in {out} here: give a folder that all machines share"
        )
    return shard
