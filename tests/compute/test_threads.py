"""A step keeps to one thread, whatever the environment."""

import os
import subprocess
import sys

import pytest

from dropsim.compute import threads

STEP = """
import os, time
import numpy as np
from threadpoolctl import threadpool_info
from dropsim.compute.random import Streams
from dropsim.compute.threads import single_threaded
from dropsim.physics.contact import Plane
from dropsim.physics.step import Simulator, StepInputs

simulator = Simulator.shipped()

def step(people=4):
    seeds = list(range(people))
    state, _ = simulator.step(simulator.prior.start("walk", seed=seeds), StepInputs(colliders=(Plane.ground(),)), Streams(seeds))
    return state

def others():
    "Processor time of all threads but the first [ticks]."
    used = 0
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/stat") as file:
                used += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return used

def blas():
    return sorted({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
"""


def run(code: str, **variables: str | None) -> str:
    """Run some lines in a fresh interpreter, as a user of the library would, with these variables or without them."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", threads.VARIABLE)
    env = {name: value for name, value in os.environ.items() if name not in names} | {
        k: v for k, v in variables.items() if v is not None
    }
    done = subprocess.run(
        [sys.executable, "-c", STEP + code], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are measured in /proc")
def test_a_step_leaves_other_threads_asleep():
    # A large product wakes them, which the control at the end shows.
    code = """
step()
before = others()
for _ in range(5):
    step()
print(others() - before)
a = np.ones((1000, 1000))
for _ in range(5):
    a @ a
print(others() - before > 0 or os.cpu_count() == 1)
"""
    assert run(code).split("\n") == ["0", "True"]


@pytest.mark.slow
def test_a_worker_forked_from_a_process_with_threads_steps_too():
    # A child has none of its parent's threads, and must not wait for them for ever.
    code = """
a = np.ones((1000, 1000))
a @ a
expected = step(4).x
child = os.fork()
if child == 0:
    os._exit(7 if np.array_equal(step(4).x, expected) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code, OMP_NUM_THREADS="4") == "7"


@pytest.mark.slow
@pytest.mark.skipif(os.cpu_count() == 1, reason="BLAS makes no more threads than there are cores")
def test_the_users_own_choice_holds_inside_and_what_was_set_before_outside():
    # Both BLAS libraries, numpy's and scipy's, are limited.
    code = """
import scipy.linalg
inside = single_threaded(blas)
print(blas(), inside(), single_threaded(lambda: inside())(), blas())
"""
    assert run(code, OMP_NUM_THREADS="2") == "[2] [1] [1] [2]"
    assert run(code, OMP_NUM_THREADS="1", DROPSIM_THREADS="2") == "[1] [2] [2] [1]"


def test_an_error_inside_gives_the_threads_back():
    before = [pool["num_threads"] for pool in threads._controller().info()]

    @threads.single_threaded
    def failing() -> None:
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        failing()
    assert [pool["num_threads"] for pool in threads._controller().info()] == before


@pytest.mark.parametrize("wrong", ["0", "many", "-1", "1.5", ""])
def test_a_wrong_choice_is_refused(wrong, monkeypatch):
    monkeypatch.setenv(threads.VARIABLE, wrong)
    with pytest.raises(ValueError, match="number of threads"):
        threads.limit.__wrapped__()
