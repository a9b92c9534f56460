"""A viewer that shows nothing and remembers everything, for tests and for runs without a screen."""

from collections import deque

from dropsim.apps.viewer.loop import Status, Viewer
from dropsim.apps.viewer.shot import Shot

KEEP = 10_000
"""Frames and messages that are remembered."""


class NullViewer(Viewer):
    """The browser's interface without a browser."""

    def __init__(self) -> None:
        self.shots: deque[Shot] = deque(maxlen=KEEP)
        self.said: deque[str] = deque(maxlen=KEEP)
        self.status = Status()
        self.closed = False

    def show(self, shot: Shot, status: Status) -> None:
        """Remember the frame."""
        self.shots.append(shot)
        self.status = status

    def say(self, message: str) -> None:
        """Remember the message."""
        self.said.append(message)

    def close(self) -> None:
        """Remember that it is over."""
        self.closed = True
