"""The browser app: viser's server, what it draws, and what viewers do with mouse and controls."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from dropsim.apps.live import Link, LinkOptions
from dropsim.apps.viewer.downloads import files_of
from dropsim.apps.viewer.figures import Figures
from dropsim.apps.viewer.hands import Hands, Keys
from dropsim.apps.viewer.loop import Commands, Status, Viewer
from dropsim.apps.viewer.panel import Panel
from dropsim.apps.viewer.server import start_server
from dropsim.apps.viewer.session import Recording, Session, Shot
from dropsim.export.html import stop_server

if TYPE_CHECKING:
    import viser

log = logging.getLogger(__name__)

PLOT_PERIOD, TELL_PERIOD = 0.2, 0.5
"""Times between two updates of the plots and of the status line [s]."""
CLIENTS_AT_FULL_RATE = 4
"""Each client costs time in every frame. With more clients the picture updates less often; the simulation keeps its
pace."""
CAMERA_DISTANCE, FARTHEST_STEP_BACK = 3.6, 1.7
"""Distance of the camera [m], and the largest factor to it on a screen that is higher than wide."""


class Browser(Viewer):
    """Shows the simulation to every connected browser."""

    def __init__(
        self,
        session: Session,
        commands: Commands,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        link: LinkOptions | None = None,
    ) -> None:
        """Serve the app at a host and port; `link` is where the live link streams to when a client switches it on."""
        self.commands, self.server = commands, start_server(host, port)
        self.num_people = len(session.scene.people)
        self._link_options, self._link = link or LinkOptions(), None
        self._hands = Hands(self)
        self._figures = Figures(self.server, session.simulator.prior.skeleton, self._hands)
        self.panel = Panel(self, session)
        self.keys = Keys(self)
        self._saver, self._saving = ThreadPoolExecutor(1, thread_name_prefix="save"), threading.Lock()
        self._shown = self._plotted = self._told = 0.0
        self._frame, self._paused, self._begun = 0, False, False
        # Look from the front and left of people who face +y.
        camera, angle = self.server.initial_camera, math.radians(90 + 50)
        camera.fov = math.radians(42)
        camera.look_at = (0.0, 0.0, 0.85)
        camera.position = (CAMERA_DISTANCE * math.cos(angle), CAMERA_DISTANCE * math.sin(angle), 1.7)
        self.server.on_client_connect(self._join)

    async def _join(self, client: "viser.ClientHandle") -> None:
        """Begin when the first browser is there, and show people whole on a phone that is held upright."""
        if not self._begun:
            self._begun = True
            self.commands.do("pause", False)
        camera = client.camera
        if camera.aspect < 1:  # the field of view is given from top to bottom
            away = np.asarray(camera.position) - np.asarray(camera.look_at)
            camera.position = np.asarray(camera.look_at) + away * min(1 / camera.aspect, FARTHEST_STEP_BACK)

    @property
    def port(self) -> int:
        return self.server.get_port()

    @property
    def watching(self) -> int:
        """Number of connections, including those that have not sent anything yet."""
        return len(self.server._websock_server._client_state_from_id)

    def in_world(self, point: Iterable[float]) -> tuple[float, ...]:
        """Return a point of the browser's scene in the simulated world, which moves in it [m]."""
        return tuple(a + b for a, b in zip(map(float, point), self._figures.origin, strict=True))

    def eye(self, client: "viser.ClientHandle") -> tuple[float, ...] | None:
        """Position of a client's camera in the simulated world [m]; None if it has not told it yet."""
        try:
            return self.in_world(client.camera.position)
        except (AssertionError, ValueError):
            return None

    def show(self, shot: Shot, status: Status) -> None:
        now = time.perf_counter()
        link, self.num_people = self._link, len(shot.people.x)
        if link is not None and not status.paused:
            link.show(shot, status)
        self.panel.remember(shot)
        self._frame += 1
        if not status.paused and self._frame % (1 + self.watching // (CLIENTS_AT_FULL_RATE + 1)):
            return
        self._hands.go_along()
        with self.server.atomic():
            self._figures.draw(shot, self.panel.look, min(0.1, now - self._shown))
            if now - self._plotted > PLOT_PERIOD:
                self._plotted = now
                self.panel.plot()
            if now - self._told > TELL_PERIOD or status.paused != self._paused:
                self._told, self._paused = now, status.paused
                self.panel.tell(shot, status)
        self._shown = now

    def say(self, message: str) -> None:
        for client in self.server.get_clients().values():
            with contextlib.suppress(Exception):
                client.add_notification("dropsim", message, auto_close_seconds=8.0)

    def stream(self, on: bool) -> None:
        """Switch the live link on or off."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if on:
            self._link = Link(self._figures.skeleton, self._link_options)

    def close(self) -> None:
        self.stream(False)
        self._saver.shutdown(wait=False, cancel_futures=True)
        stop_server(self.server)

    def save(self, client: "viser.ClientHandle", kind: str) -> None:
        """Write a file while the simulation goes on, and send it to the client."""
        if not self._saving.acquire(blocking=False):
            client.add_notification("dropsim", "A file is being written already: wait for it.", auto_close_seconds=5.0)
            return
        what = "Drawing the film, which takes a while" if kind == "mp4" else f"Writing the {kind}"
        note = client.add_notification("dropsim", f"{what}.", loading=True, with_close_button=False)

        def write(recording: Recording) -> None:
            try:
                for name, content in files_of(recording, kind):
                    client.send_file_download(name, content, save_immediately=True)
                note.body = "Saved."
            except (ValueError, OSError) as error:
                note.body = str(error)
            except Exception:
                log.exception("a file could not be written")
                note.body = "The file could not be written: see the terminal for the reason."
            finally:
                note.loading, note.with_close_button, note.auto_close_seconds = False, True, 6.0
                self._saving.release()

        def record(session: Session) -> None:
            try:
                self._saver.submit(write, session.recording())
            except BaseException:
                self._saving.release()
                raise

        if not self.commands.put(record):
            self._saving.release()
