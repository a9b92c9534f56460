"""What tests of live worlds share."""

import pytest

from dropsim.apps.viewer.session import Session
from dropsim.physics.step import Simulator


@pytest.fixture(scope="session")
def simulator() -> Simulator:
    """A simulator whose kernels are compiled, so that nobody waits for that in a thread."""
    simulator = Simulator.shipped(num_samples=8)
    Session(simulator).tick()
    return simulator
