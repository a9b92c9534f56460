"""A step never wakes the threads of OpenMP, whatever the environment: they spin, and on busy cores that takes a thousand times as long."""

import os
import subprocess
import sys

import pytest

from dropsim.compute import threads

STEP = """
import os, torch
from dropsim.priors.prior import Streams
from dropsim.priors.cvae import CVAEPrior
from dropsim.physics.step import External, Simulator

def step(people=32):
    class Watched(CVAEPrior):
        def commit(self, *args):
            seen.append(torch.get_num_threads())
            return super().commit(*args)
    seen, shipped = [], CVAEPrior.shipped()
    seeds = list(range(people))
    Simulator(Watched(shipped.network, shipped.skeleton)).step(shipped.start("walk", seed=seeds), External(), Streams(seeds))
    return seen

def tasks():
    return len(os.listdir("/proc/self/task"))
"""


def run(code: str, **variables: str | None) -> str:
    """Run some lines in a fresh interpreter, as a user of the library would, with these variables or without them."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", threads.VARIABLE)
    env = {name: value for name, value in os.environ.items() if name not in names} | {k: v for k, v in variables.items() if v is not None}
    done = subprocess.run([sys.executable, "-c", STEP + code], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
@pytest.mark.parametrize("omp", [None, "8"])
def test_a_step_makes_no_threads(omp):
    # 32 people x 64 samples: products large enough for MKL to share among threads, which the control at the end shows.
    code = """
before = torch.get_num_threads()
torch.set_num_threads(max(before, 2))
alone, seen = tasks(), step()
print(seen, tasks() - alone, torch.get_num_threads() == max(before, 2), os.environ["OMP_WAIT_POLICY"])
torch.randn(2048, 544) @ torch.randn(544, 512)
print(tasks() - alone > 0)
"""
    assert run(code, OMP_NUM_THREADS=omp).split("\n") == ["[1] 0 True PASSIVE", "True"]


def test_a_worker_forked_from_a_process_with_threads_steps_too():
    # A child has none of its parent's threads, and OpenMP would wait for them for ever.
    code = """
torch.randn(2048, 544) @ torch.randn(544, 512)
child = os.fork()
if child == 0:
    step()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code, OMP_NUM_THREADS="4") == "7"


def test_the_users_own_choice():
    assert run("print(step(1), os.environ['OMP_WAIT_POLICY'])", DROPSIM_THREADS="2", OMP_WAIT_POLICY="ACTIVE") == "[2] ACTIVE"


def test_a_wrong_choice_is_refused(monkeypatch):
    for wrong in ("0", "many", "-1"):
        threads.limit.cache_clear()
        monkeypatch.setenv(threads.VARIABLE, wrong)
        with pytest.raises(ValueError, match="number of threads"):
            threads.limit()
    threads.limit.cache_clear()
