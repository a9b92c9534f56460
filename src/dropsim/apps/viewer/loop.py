"""The clock of the live app: a thread that simulates and shows a frame every 1/30 s, and obeys commands in between."""

import gc
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from dropsim.apps.viewer.commands import do
from dropsim.apps.viewer.session import Session, Shot

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

SPARE, COST_DECAY = 0.004, 0.95
"""Time to spare for each frame [s], which begins as late as its cost allows, so that keys count at once; and the share
of the expected cost that stays from frame to frame."""
PAUSED_PERIOD = 0.25
"""Time between two pictures while it is paused [s]."""
MAX_COMMANDS = 1000
"""Length of the queue; further commands are dropped."""
MAX_BEHIND = 5
"""If the clock is more frames behind than this, it skips them."""
MAX_BREAKS = 3
"""Failures in a row after which the loop pauses."""


class Commands:
    """Queue of commands, filled from any thread."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[Session], object]] = queue.SimpleQueue()

    def do(self, name: str, *arguments: object, **options: object) -> bool:
        """Queue a command of the table; False if the queue is full."""
        return self.put(lambda session: do(session, name, *arguments, **options))

    def put(self, work: Callable[[Session], object]) -> bool:
        """Queue something to do in the simulation's thread, between two frames; False if the queue is full."""
        if self._waiting.qsize() >= MAX_COMMANDS:
            return False
        self._waiting.put(work)
        return True

    def ask(self, question: Callable[[Session], Answer], timeout: float = 30.0) -> Answer:
        """Call a function in the simulation's thread and return its result."""
        answer = Future[Answer]()

        def answered(session: Session) -> None:
            try:
                answer.set_result(question(session))
            except Exception as error:  # raised again in the caller's thread
                answer.set_exception(error)

        if not self.put(answered):
            raise ValueError("the simulation is too busy: try again")
        return answer.result(timeout)

    def take(self, timeout: float = 0.0) -> Callable[[Session], object] | None:
        """Return the next command, or None if none arrives within `timeout` [s]."""
        try:
            return self._waiting.get(timeout=timeout)
        except queue.Empty:
            return None


@dataclass(frozen=True)
class Status:
    """State of the loop."""

    paused: bool = False
    frames: int = 0
    """Number of frames shown so far, pauses excluded."""
    late: int = 0
    """Number of frames that were not ready in time or shown more than a frame late."""


class Viewer(ABC):
    """Shows a live session. `show` is called by the simulation's thread, `say` by any thread."""

    @abstractmethod
    def show(self, shot: Shot, status: Status) -> None:
        """Show a frame; called at the frame rate."""

    @abstractmethod
    def say(self, message: str) -> None:
        """Show a message to the viewers."""

    def close(self) -> None:  # noqa: B027, some have nothing to release
        """Release everything; nothing is shown afterwards."""


@dataclass(eq=False)
class Loop:
    """Runs a session in real time. Errors are reported to the viewer; the loop goes on."""

    session: Session
    viewer: Viewer
    commands: Commands = field(default_factory=Commands)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._frames = self._late = self._breaks = self._unseen = 0
        self._thread = threading.Thread(target=self._run, name="simulate", daemon=True)

    def start(self) -> None:
        # A full garbage collection takes as long as ten frames: exclude everything that is loaded by now.
        gc.collect()
        gc.freeze()
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the loop stops, or for `seconds`."""
        self._stop.wait(seconds)

    def stop(self) -> None:
        """Stop, and wait for the thread to finish."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)
        gc.unfreeze()

    @property
    def status(self) -> Status:
        return Status(self.session.paused, self._frames, self._late)

    def _run(self) -> None:
        due, cost, shown = time.perf_counter(), 1.0 / self.session.fps, -PAUSED_PERIOD
        while not self._stop.is_set():
            period = 1.0 / (self.session.fps * self.session.pace)
            obeyed = self._obey_until(due if self.session.paused else due - min(1.5 * cost + SPARE, period))
            began = time.perf_counter()
            if self.session.paused:
                # Shown now and then also if nothing was done: browsers come, and panels follow with a delay.
                if obeyed or began - shown > PAUSED_PERIOD:
                    self._show(self.session.shown)
                    shown = began
                due = max(due, began - period) + period
                continue
            shot = self._tick()
            cost = max(COST_DECAY * cost, time.perf_counter() - began)
            self._stop.wait(max(0.0, due - time.perf_counter()))
            behind = time.perf_counter() - due
            # Skipped frames count as late, every one of them.
            missed = int(behind / period) if behind > MAX_BEHIND * period else 0
            self._frames += 1 + missed
            self._late += missed + (shot is None or behind > period)
            due += (1 + missed) * period
            if shot is not None:
                self._show(shot)

    def _obey_until(self, end: float) -> bool:
        """Carry out commands until a time, and those that are there by then; tell whether there were any."""
        for count in range(MAX_COMMANDS):
            command = self.commands.take(max(0.0, end - time.perf_counter()))
            if command is None:
                return count > 0
            try:
                command(self.session)
            except ValueError as error:
                self.viewer.say(_sentence(error))
            except Exception:
                log.exception("a command failed")
                self.viewer.say("That did not work: see the terminal for the reason.")
        return True

    def _tick(self) -> Shot | None:
        """Advance by a frame, or begin again if that fails."""
        try:
            shot = self.session.tick()
        except Exception as error:
            if not isinstance(error, ValueError):
                log.exception("a frame failed")
            self._begin_again(error)
            return None
        self._breaks = 0
        return shot

    def _begin_again(self, error: Exception) -> None:
        self._breaks += 1
        try:
            self.session.restart()
            self.viewer.say(f"The simulation could not go on ({_sentence(error)}), so it began again.")
        except Exception:
            log.exception("the restart failed")
            self._breaks = MAX_BREAKS
        if self._breaks >= MAX_BREAKS:
            self._breaks, self.session.paused = 0, True
            remedy = "choose another start or switch the energies on"
            self.viewer.say(f"The simulation breaks again and again, so it is paused: {remedy}.")

    def _show(self, shot: Shot) -> None:
        try:
            self.viewer.show(shot, self.status)
            self._unseen = 0
        except Exception:
            # Log once, not thirty times a second.
            if self._unseen == 0:
                log.exception("a frame could not be shown")
            self._unseen += 1


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
