"""Memory that is used again."""

import pickle

import numpy as np

from dropsim.compute.buffers import Buffers


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_buffer_is_used_again_only_when_nobody_holds_it():
    buffers = Buffers()
    first = buffers.take(3, 4)
    view, address = first[1:], address_of(first)
    assert address_of(buffers.take(3, 4)) != address
    del first
    assert address_of(buffers.take(3, 4)) != address
    del view
    taken = [buffers.take(3, 4) for _ in range(2)]
    assert address in [address_of(t) for t in taken]
    assert buffers.take(2, 4).shape == (2, 4)
    assert pickle.loads(pickle.dumps(buffers)).take(1).shape == (1,)
