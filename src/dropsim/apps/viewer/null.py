"""A viewer without a screen that records what it is shown, for tests and headless runs."""

from collections import deque

from dropsim.apps.viewer.loop import Status, Viewer
from dropsim.apps.viewer.shot import Shot

KEEP = 10_000
"""Frames and messages that are remembered."""


class NullViewer(Viewer):
    """Keeps the shown frames and messages."""

    def __init__(self) -> None:
        self.shots: deque[Shot] = deque(maxlen=KEEP)
        self.said: deque[str] = deque(maxlen=KEEP)
        self.status = Status()
        self.closed = False

    def show(self, shot: Shot, status: Status) -> None:
        self.shots.append(shot)
        self.status = status

    def say(self, message: str) -> None:
        self.said.append(message)

    def close(self) -> None:
        self.closed = True
