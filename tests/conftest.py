"""Settings that hold for every test, and the random inputs that they share."""

import os

# Before torch is imported, and inherited by the xdist workers: two spinning threads on busy cores are far slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

from collections.abc import Callable

import hypothesis
import pytest
import roma
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("dropsim", deadline=None, derandomize=True, database=None, max_examples=50)
hypothesis.settings.load_profile("dropsim")


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def random_rotations(rng: torch.Generator) -> Callable[..., torch.Tensor]:
    """Rotations spread evenly over SO(3), of any leading shape, in float64."""

    def draw(*shape: int) -> torch.Tensor:
        quaternions = torch.randn(*shape, 4, generator=rng, dtype=torch.float64)
        return roma.unitquat_to_rotmat(quaternions / quaternions.norm(dim=-1, keepdim=True))

    return draw
