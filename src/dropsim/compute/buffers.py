"""Large arrays that are used again: memory fresh from the system takes longer to map than to fill."""

import sys
import threading
from collections import deque

import numpy as np

NUM_BUFFERS = 6
"""Arrays that are kept: two times what a step takes."""
_FREE = 2
"""References to an array that nobody holds: the queue's and that of the count itself. Every view of it holds
another."""


class Buffers:
    """Arrays of double precision; one that was taken is given out again once nobody holds it or a view of it."""

    def __init__(self) -> None:
        self._arrays: deque[np.ndarray] = deque(maxlen=NUM_BUFFERS)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Buffers"], tuple[()]]:
        return Buffers, ()

    def take(self, *shape: int) -> np.ndarray:
        """Return an array with any content."""
        with self._lock:
            for index in range(len(self._arrays)):
                if self._arrays[index].shape == shape and sys.getrefcount(self._arrays[index]) <= _FREE:
                    return self._arrays[index][...]
            self._arrays.append(np.empty(shape))
            return self._arrays[-1][...]
