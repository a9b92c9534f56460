"""The clock of the live app: one thread simulates a few frames ahead, another shows a frame every 1/30 s."""

import gc
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from dropsim.apps.viewer.commands import do
from dropsim.apps.viewer.session import Session, Shot

log = logging.getLogger(__name__)

AHEAD = 2
"""Frames simulated before they are shown at most. A frame begins as late as its cost allows, so that keys count at
once; slow frames (planning) begin earlier, so that they do not stop the picture."""
SPARE, COST_KEPT = 0.004, 0.95
"""Time to spare for each frame [s]; the share of the expected cost that stays from frame to frame."""
PAUSED_PERIOD = 0.25
"""Time between two pictures while it is paused [s]."""
MAX_COMMANDS = 1000
"""Length of the queue; further commands are dropped."""
MAX_BEHIND = 5
"""If the clock is more frames behind than this, it skips them."""
MAX_BREAKS = 3
"""Failures in a row after which the loop pauses."""
REMEMBERED = 10_000
"""Frames and messages that a viewer without a screen remembers."""


class Commands:
    """Queue of commands, filled from any thread."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[Session], object]] = queue.Queue(MAX_COMMANDS)

    def do(self, name: str, *arguments: object, **options: object) -> bool:
        """Queue a command of the table; False if the queue is full."""
        return self.put(lambda session: do(session, name, *arguments, **options))

    def put(self, work: Callable[[Session], object]) -> bool:
        """Queue something to do in the simulation's thread, between two frames; False if the queue is full."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            return False
        return True

    def take(self, timeout: float = 0.0) -> Callable[[Session], object] | None:
        """Return the next command, or None if none arrives within `timeout` [s]."""
        try:
            return self._waiting.get(timeout=timeout) if timeout > 0 else self._waiting.get_nowait()
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
    """Shows a live session. `show` is called by the clock's thread, `say` by any thread."""

    @abstractmethod
    def show(self, shot: Shot, status: Status) -> None:
        """Show a frame; called at the frame rate."""

    @abstractmethod
    def say(self, message: str) -> None:
        """Show a message to the viewers."""

    def close(self) -> None:  # noqa: B027, some have nothing to release
        """Release everything; nothing is shown afterwards."""


class NullViewer(Viewer):
    """A viewer without a screen that remembers frames and messages, for tests and headless runs."""

    def __init__(self) -> None:
        self.shots: deque[Shot] = deque(maxlen=REMEMBERED)
        self.said: deque[str] = deque(maxlen=REMEMBERED)
        self.status = Status()

    def show(self, shot: Shot, status: Status) -> None:
        self.shots.append(shot)
        self.status = status

    def say(self, message: str) -> None:
        self.said.append(message)


@dataclass(eq=False)
class Loop:
    """Runs a session in real time. Errors are reported to the viewer; the loop goes on."""

    session: Session
    viewer: Viewer
    commands: Commands = field(default_factory=Commands)

    def __post_init__(self) -> None:
        self._ready = deque[Shot]()
        self._room, self._stop = threading.Condition(), threading.Event()
        self._due, self._cost = 0.0, 1.0 / self.session.fps
        """When the next frame is shown, and its expected cost [s]."""
        self._frames = self._late = self._breaks = self._unseen = 0
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True) for work in (self._simulate, self._show)
        ]

    def start(self) -> None:
        # A full garbage collection takes as long as ten frames: exclude everything that is loaded by now.
        gc.collect()
        gc.freeze()
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the loop stops, or for `seconds`."""
        self._stop.wait(seconds)

    def stop(self) -> None:
        """Stop, and wait for the threads to finish."""
        self._stop.set()
        with self._room:
            self._room.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10.0)
        gc.unfreeze()

    @property
    def status(self) -> Status:
        return Status(self.session.paused, self._frames, self._late)

    def ask(self, question: Callable[[Session], object], timeout: float = 30.0) -> object:
        """Call a function in the simulation's thread and return its result."""
        answer = Future[object]()

        def answered(session: Session) -> None:
            try:
                answer.set_result(question(session))
            except Exception as error:  # raised again in the caller's thread
                answer.set_exception(error)

        if not self.commands.put(answered):
            raise ValueError("the simulation is too busy: try again")
        return answer.result(timeout)

    # --- the simulation's thread

    def _simulate(self) -> None:
        while not self._stop.is_set():
            if self.session.paused:
                # Shown now and then also if nothing was done: browsers come, and panels follow with a delay.
                command = self.commands.take(PAUSED_PERIOD)
                if command is not None:
                    self._obey(command)
                self._offer(self.session.shown)
                continue
            early = self._begin_at() - time.perf_counter()
            command = self.commands.take(min(max(early, 0.0), 0.1))
            if command is not None:
                self._obey(command)
                continue
            if early > 0:
                continue
            with self._room:
                if len(self._ready) >= AHEAD:
                    self._room.wait(0.1)
                    continue
            began = time.perf_counter()
            if self._tick():
                self._cost = max(COST_KEPT * self._cost, time.perf_counter() - began)

    def _begin_at(self) -> float:
        """When to begin the next frame: as late as possible."""
        period = 1.0 / (self.session.fps * self.session.pace)
        return self._due + len(self._ready) * period - min(1.5 * self._cost + SPARE, AHEAD * period)

    def _offer(self, shot: Shot) -> None:
        with self._room:
            if self.session.paused:
                # While paused only the requested frame counts.
                self._ready.clear()
            self._ready.append(shot)

    def _obey(self, command: Callable[[Session], object]) -> None:
        try:
            command(self.session)
        except ValueError as error:
            self.viewer.say(_sentence(error))
        except Exception:
            log.exception("a command failed")
            self.viewer.say("That did not work: see the terminal for the reason.")

    def _tick(self) -> bool:
        """Advance by a frame, or begin again if that fails."""
        try:
            self._offer(self.session.tick())
        except Exception as error:
            if not isinstance(error, ValueError):
                log.exception("a frame failed")
            self._begin_again(error)
            return False
        self._breaks = 0
        return True

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

    # --- the clock's thread

    def _show(self) -> None:
        due = time.perf_counter()
        was_paused = True
        while not self._stop.is_set():
            period = 1.0 / (self.session.fps * self.session.pace)
            due += period
            self._stop.wait(max(0.0, due - time.perf_counter()))
            behind = time.perf_counter() - due
            # Skipped frames count as late, every one of them.
            missed = int(behind / period) if behind > MAX_BEHIND * period else 0
            due += missed * period
            self._due = due + period
            with self._room:
                shot = self._ready.popleft() if self._ready else None
                self._room.notify_all()
            paused = self.session.paused
            # Right after a pause nothing is ready yet: not late.
            if not paused and not was_paused:
                self._frames += 1 + missed
                self._late += missed + (shot is None or behind > period)
            was_paused = paused or (was_paused and shot is None)
            if shot is not None:
                self._show_one(shot)

    def _show_one(self, shot: Shot) -> None:
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
