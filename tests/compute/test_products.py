"""Matrix products whose rows do not notice each other."""

import numpy as np
import pytest

from dropsim.compute.products import Linear


def layer(size_in: int, size_out: int) -> tuple[np.ndarray, np.ndarray, Linear]:
    rng = np.random.default_rng(size_in + size_out)
    weight, bias = (rng.normal(size=size).astype(np.float32) for size in ((size_out, size_in), (size_out,)))
    return weight, bias, Linear(weight, bias)


@pytest.mark.parametrize("rows", [1, 3, 4, 6, 11, 64])
@pytest.mark.parametrize(("size_in", "size_out"), [(1, 1), (5, 16), (32, 78), (402, 512), (7, 33)])
def test_it_is_the_plain_product(rows, size_in, size_out):
    weight, bias, linear = layer(size_in, size_out)
    x = np.random.default_rng(rows).normal(size=(rows, size_in)).astype(np.float32)
    exact, largest = x.astype(float) @ weight.T + bias, (np.abs(x) @ np.abs(weight).T + np.abs(bias)).max()
    # Each of n additions in single precision rounds by at most 6e-8 of the partial sum.
    np.testing.assert_allclose(linear(x), exact, rtol=0, atol=6e-8 * (size_in + 1) * largest)


@pytest.mark.parametrize("size_in", [5, 544])
def test_a_row_is_the_same_to_the_last_bit_whatever_the_others(size_in):
    _, _, linear = layer(size_in, 70)
    x = np.random.default_rng(0).normal(size=(64, size_in)).astype(np.float32)
    together = linear(x)
    for part in (slice(0, 1), slice(63, 64), slice(3, 8), slice(10, 50)):
        assert np.array_equal(linear(x[part]), together[part])


def test_rows_start_from_their_groups_row():
    weight, _, linear = layer(12, 20)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(15, 12)).astype(np.float32)
    plus = linear(rng.normal(size=(3, 12)).astype(np.float32))
    expected = np.repeat(plus.astype(float), 5, axis=0) + x.astype(float) @ weight.T
    np.testing.assert_allclose(linear(x, plus=plus), expected, rtol=0, atol=1e-5)
