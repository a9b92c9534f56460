"""The browser app: viser's server, what it draws, and what viewers do with mouse and controls."""

import contextlib
import logging
import math
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dropsim.apps.live import Link, LinkOptions
from dropsim.apps.outputs import files_of
from dropsim.apps.viewer.figures import Figures, in_view
from dropsim.apps.viewer.hands import Hands, Keys
from dropsim.apps.viewer.loop import Commands, Status, Viewer
from dropsim.apps.viewer.panel import Panel
from dropsim.apps.viewer.server import start_server
from dropsim.apps.viewer.session import Session, Shot
from dropsim.body.rotations import normalize
from dropsim.export.html import stop_server
from dropsim.render import Camera
from dropsim.render.camera import floor_height

if TYPE_CHECKING:
    import viser

log = logging.getLogger(__name__)

PLOT_PERIOD, TELL_PERIOD = 0.2, 0.5
"""Times between two updates of the plots and of the status line [s]."""
CLIENTS_AT_FULL_RATE = 4
"""Each client costs time in every frame. With more clients the picture updates less often; the simulation keeps its
pace."""
CAMERA_DISTANCE, LOOK_HEIGHT, LOWEST_EYE = 3.6, 0.85, 0.2
"""Distance of the camera from the people, and heights above the floor of the point that it looks at, and of a camera at
least [m]."""
ARMS, FRAME = 0.9, 0.85
"""Reach of a body around its pelvis [m], and the share of the picture that people stay in."""


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
        self._num_people = len(session.scene.people)
        self._link_options, self._link = link or LinkOptions(), None
        self._hands = Hands(self)
        self._figures = Figures(self.server, session.simulator.prior.skeleton, self._hands)
        self.panel = Panel(self, session)
        self.keys = Keys(self)
        self._saver, self._saving = ThreadPoolExecutor(1, thread_name_prefix="save"), False
        self._shown = self._plotted = self._told = 0.0
        self._frame, self._begun = 0, False
        self._framed = dict[int, float]()
        """Clients whose camera was moved to where it sees the people who are there now, and their pictures' aspect."""
        # Look from the front and left of people who face +y.
        camera, angle = self.server.initial_camera, math.radians(90 + 50)
        camera.fov = math.radians(42)
        camera.look_at = (0.0, 0.0, LOOK_HEIGHT)
        camera.position = (CAMERA_DISTANCE * math.cos(angle), CAMERA_DISTANCE * math.sin(angle), 1.7)
        self.server.on_client_connect(self._join)

    async def _join(self, _: object) -> None:
        """Begin when the first browser is there."""
        if not self._begun:
            self._begun = True
            self.commands.do("pause", False)

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
        link = self._link
        if len(shot.people.x) != self._num_people:
            self._num_people = len(shot.people.x)
            self._framed = dict.fromkeys(self._framed, 0.0)
        if link is not None and not status.paused:
            link.show(shot, status)
        self.panel.remember(shot)
        self._hands.tell()
        self._frame += 1
        if not status.paused and self._frame % (1 + self.watching // (CLIENTS_AT_FULL_RATE + 1)):
            return
        self._shot = shot
        with self.server.atomic():
            # Whoever looks back sees one frame and not the way to it.
            look = self.panel.look
            self._figures.draw(shot, look, math.inf if status.paused else min(0.1, now - self._shown))
            if look.follow:
                self._frame_people(shot)
            if status.paused or now - self._plotted > PLOT_PERIOD:
                self._plotted = now
                self.panel.plot()
                self._figures.clear_view(shot, filter(None, map(self.eye, self.server.get_clients().values())))
            if status.paused or now - self._told > TELL_PERIOD:
                self._told = now
                self.panel.tell(shot, status)
        self._shown = now

    def _frame_people(self, shot: Shot) -> None:
        """Move cameras back, and up from the floor, until everybody is in the picture.

        A single person is framed once in each shape of the picture, and may then be looked at from as near as one likes.
        """
        people, origin = in_view(shot)[:, 0], np.array(self._figures.origin)
        for client in self.server.get_clients().values():
            camera, known = client.camera, self._framed.get(client.client_id)
            try:
                eye, look, aspect = np.asarray(camera.position), np.asarray(camera.look_at), round(camera.aspect, 2)
            except AssertionError:  # it has not told where it is yet
                continue
            if known is None:  # it may not have come to where it begins
                eye, look = self.server.initial_camera.position, self.server.initial_camera.look_at
            slope = FRAME * math.tan(camera.fov / 2)
            needed = distance_to_see(people - origin, eye, look, (slope * aspect, slope))
            far = float(np.linalg.norm(eye - look))
            nearest = max(CAMERA_DISTANCE, needed) if known != aspect else max(far, needed) if len(people) > 1 else far
            goal = look + (eye - look) * nearest / max(far, 1e-3)
            x, y, z = (goal + origin).tolist()
            goal[2] += max(0.0, floor_height(shot.ground, x, y) + LOWEST_EYE - z)
            self._framed[client.client_id] = aspect
            if np.linalg.norm(goal - camera.position) > 0.01:
                camera.position = goal
                camera.look_at = look

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

    def camera(self, client: "viser.ClientHandle") -> Camera:
        """Return a camera for films that sees people from where a client does."""
        x, y, z = np.asarray(client.camera.position) - np.asarray(client.camera.look_at)
        far = math.hypot(x, y)
        turn, rise = math.degrees(math.atan2(y, x)), math.degrees(math.atan2(z, far))
        return Camera(
            azimuth=turn, elevation=rise, distance=math.hypot(far, z), field_of_view=math.degrees(client.camera.fov)
        )

    def save(self, client: "viser.ClientHandle", kind: str) -> None:
        """Write a file while the simulation goes on, and send it to the client."""
        if self._saving:
            client.add_notification("dropsim", "A file is being written already: wait for it.", auto_close_seconds=5.0)
            return
        self._saving = True
        note = client.add_notification("dropsim", f"Writing the {kind}.", loading=True, with_close_button=False)
        camera = self.camera(client)

        def progress(done: int, total: int) -> None:
            if done % 10 == 0:
                note.body = f"Drawing the film: {done} of {total} frames."

        def write() -> None:
            try:
                recording = self.commands.ask(lambda session: session.recording())
                for name, content in files_of(recording, kind, camera=camera, progress=progress):
                    client.send_file_download(name, content, save_immediately=True)
                note.body = "Saved."
            except (ValueError, OSError) as error:
                note.body = str(error)
            except Exception:
                log.exception("a file could not be written")
                note.body = "The file could not be written: see the terminal for the reason."
            finally:
                note.loading, note.with_close_button, note.auto_close_seconds = False, True, 6.0
                self._saving = False

        self._saver.submit(write)


Vector = Float[np.ndarray, "3"]


def distance_to_see(people: Float[np.ndarray, "n 3"], eye: Vector, look: Vector, slopes: tuple[float, float]) -> float:
    """Return the distance from the point that a camera looks at from which it sees everybody [m].

    `slopes` are half the width and half the height of the picture at a distance of one metre.
    """
    ahead = normalize(look - eye)
    right = normalize(np.cross(ahead, (1e-6, 0.0, 1.0)))
    x, y, z = np.stack((right, np.cross(right, ahead), ahead)) @ (people - look).T
    return float(np.maximum((np.abs(x) + ARMS) / slopes[0] - z, (np.abs(y) + ARMS) / slopes[1] - z).max())
