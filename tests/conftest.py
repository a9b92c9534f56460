"""Settings that hold for every test, and the random inputs that they share."""

import os

# Before BLAS is loaded, and inherited by the xdist workers: two spinning threads on busy cores are far slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

from collections.abc import Callable

import hypothesis
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

hypothesis.settings.register_profile("dropsim", deadline=None, derandomize=True, database=None, max_examples=50)
hypothesis.settings.load_profile("dropsim")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def random_rotations(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Rotations spread evenly over SO(3), of any leading shape."""

    def draw(*shape: int) -> np.ndarray:
        return Rotation.random(int(np.prod(shape)), rng=rng).as_matrix().reshape(*shape, 3, 3)

    return draw
