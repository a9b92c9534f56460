"""Late frames of the browser app, what a frame costs, and the time from a key to the frame that shows it.

Over a minute of each row, with the plots on and one client that takes everything and draws nothing: a browser's own
drawing is its machine's affair. On a machine that does other things too, the last column says what would be late if it
did not.
"""

import argparse
import contextlib
import gc
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from dropsim.apps.viewer.app import Browser
from dropsim.apps.viewer.commands import do
from dropsim.apps.viewer.loop import Commands, Loop, Status, Viewer
from dropsim.apps.viewer.session import Session, Shot
from dropsim.physics.step import Simulator
from dropsim.priors.named import open_prior


def made(prior: str, people: int, *, ghost: bool = False, led: bool = False) -> Session:
    """Return a session at its start."""
    session = Session(Simulator(open_prior(prior)))
    do(session, "begin", people=people, ghost=ghost)
    if led:
        do(session, "walk", 1.2)
    return session


CLIENT = """
import sys, viser
from websockets.sync.client import connect
with connect(sys.argv[1], subprotocols=["viser-v" + viser.__version__], max_size=None, compression=None) as server:
    for _ in server:
        pass
"""


@contextlib.contextmanager
def watched(browser: Browser) -> Iterator[None]:
    """Let a client in another process receive everything."""
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, f"ws://127.0.0.1:{browser.port}"], stderr=subprocess.DEVNULL
    )
    try:
        while not browser.watching:
            time.sleep(0.05)
        yield
    finally:
        client.kill()
        client.wait()


def by_the_clock(session: Session, seconds: float) -> tuple[int, int]:
    """Run for a while, and return how many frames there were and how many were late."""
    commands = Commands()
    browser = Browser(session, commands, port=0)
    loop = Loop(session, browser, commands)
    loop.start()
    try:
        with watched(browser):
            # The first frames load and fill what they need.
            while loop.status.frames < 60:
                loop.wait(0.1)
            before = loop.status
            loop.wait(seconds)
            after = loop.status
    finally:
        loop.stop()
        browser.close()
    return after.frames - before.frames, after.late - before.late


class Stopwatch(Viewer):
    """Notes when each frame is shown."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def show(self, shot: Shot, status: Status) -> None:
        """Take the time."""
        self.times[shot.frame] = time.perf_counter()

    def say(self, message: str) -> None:
        """Print a message."""
        print(message)


def latencies(session: Session, keys: int) -> tuple[list[float], list[int]]:
    """Return the times from a command to the showing of the first frame that was simulated after it [s], and the frames shown between."""
    viewer = Stopwatch()
    loop, found, between = Loop(session, viewer), list[float](), list[int]()
    loop.start()
    try:
        while loop.status.frames < 60:
            loop.wait(0.1)
        for k in range(keys):
            pressed, first = time.perf_counter(), list[int]()

            def steer(now: Session, k: int = k, first: list[int] = first) -> None:
                do(now, "walk", 1.3, 90.0 * (k % 4))
                first.append(now.shown.frame + 1)

            loop.commands.put(steer)
            while not first or first[0] not in viewer.times:
                loop.wait(0.002)
            found.append(viewer.times[first[0]] - pressed)
            between.append(sum(pressed < shown < viewer.times[first[0]] for shown in list(viewer.times.values())))
            # At any moment between two frames.
            loop.wait(0.2 + 0.0137 * (k % 7))
    finally:
        loop.stop()
    return found, between


def costs(session: Session, frames: int) -> list[float]:
    """Return the time that each frame takes of one core, to simulate and to show, with all threads of the process [s]."""
    browser = Browser(session, Commands(), port=0)
    found = []
    # As the loop does.
    gc.collect()
    gc.freeze()
    with watched(browser):
        for _ in range(frames):
            began = time.process_time()
            browser.show(session.tick(), Status())
            # The server's thread sends meanwhile, at the pace of real frames.
            time.sleep(max(0.0, 1 / session.fps - (time.process_time() - began)))
            found.append(time.process_time() - began)
    gc.unfreeze()
    browser.close()
    return found[30:]


def late_on_a_free_core(cost: list[float], fps: float) -> int:
    """Count the strokes of the clock without a frame if nothing else ran: a frame begins when the last one has been shown."""
    done, late, shown = 0.0, 0, list[int]()
    for one in cost:
        done = max(done, shown[-1] / fps if shown else 0.0) + one
        stroke = max(math.ceil(done * fps), shown[-1] + 1 if shown else 0)
        late += stroke - shown[-1] - 1 if shown else 0
        shown.append(stroke)
    return late


def row(prior: str, seconds: float, people: int, *, ghost: bool = False, led: bool = False) -> str:
    """Return a row of the table."""
    frames, late = by_the_clock(made(prior, people, ghost=ghost, led=led), seconds)
    session = made(prior, people, ghost=ghost, led=led)
    cost = costs(session, round(seconds * session.fps))
    free = late_on_a_free_core(cost, session.fps)
    what = f"{people}{', ghost' if ghost else ''}{', led' if led else ''}"
    median, slow = statistics.median(cost), sorted(cost)[round(0.99 * (len(cost) - 1))]
    return (
        f"| {what} | {frames} | {100 * late / max(1, frames):.2f} | {1000 * median:.1f} | {1000 * slow:.1f} | "
        f"{100 * free / max(1, len(cost)):.2f} |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each row")
    parser.add_argument("--prior", default="field", help="field, cvae, a .bank or .safetensors file")
    parser.add_argument("--core", type=int, help="pin the process to this core")
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    print(
        "| people | frames | late [%] | CPU a frame, median [ms] | of the slowest 1 % [ms] | late on a free core [%] |"
    )
    print("|---|---|---|---|---|---|")
    for people, ghost, led in ((1, False, False), (1, True, False), (1, False, True), (3, False, False)):
        print(row(arguments.prior, arguments.seconds, people, ghost=ghost, led=led), flush=True)
    times, between = latencies(made(arguments.prior, 1), 60)
    found = sorted(times)
    period = 1000 / made(arguments.prior, 1).fps
    print(
        f"\nfrom a key to its frame: median {1000 * statistics.median(found):.0f} ms, 90 % within {1000 * found[53]:.0f} ms; ",
        end="",
    )
    print(
        f"a frame lasts {period:.0f} ms; in the next frame {between.count(0)} of {len(between)}, one later {between.count(1)}"
    )


if __name__ == "__main__":
    main()
