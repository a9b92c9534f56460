"""The browser app: viser's server, what it draws, and what viewers do with mouse and controls."""

import contextlib
import io
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from dropsim.apps.viewer.downloads import files_of
from dropsim.apps.viewer.figures import BONES, Figures, Grabbed
from dropsim.apps.viewer.live import Grab
from dropsim.apps.viewer.loop import Command, Commands, Status, Viewer
from dropsim.apps.viewer.panel import Panel
from dropsim.apps.viewer.session import MAX_GRABS, Session
from dropsim.apps.viewer.shot import Recording, Shot
from dropsim.body.skeleton import JOINTS, PARENTS

if TYPE_CHECKING:
    import viser

log = logging.getLogger(__name__)

PLOT_PERIOD = 0.2
"""Between two updates of the plots [s]."""
TELL_PERIOD = 0.5
"""Between two updates of the status line [s]."""
CLIENTS_AT_FULL_RATE = 4
"""Each client costs time in every frame. With more clients the picture updates less often; the simulation keeps its pace."""
CAMERA_DISTANCE = 3.6
"""[m]"""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that nobody else can reach."""


class Browser(Viewer):
    """Shows the simulation to every connected browser."""

    def __init__(self, session: Session, commands: Commands, *, host: str = "127.0.0.1", port: int = 8080) -> None:
        self._commands = commands
        self._server = _server(host, port)
        self._hands = _Hands(commands, self)
        self._figures = Figures(self._server, session.simulator.prior.skeleton, self._hands)
        self.panel = Panel(self._server, commands, session, self._eye, self._save)
        self._saver, self._saving = ThreadPoolExecutor(1, thread_name_prefix="save"), threading.Lock()
        self._shown = self._plotted = self._told = 0.0
        self._frame, self._paused = 0, False
        _set_camera(self._server)

    @property
    def port(self) -> int:
        return self._server.get_port()

    @property
    def origin(self) -> tuple[float, float, float]:
        """Point of the simulated world that is drawn at the browser's origin [m]."""
        return self._figures.origin

    def show(self, shot: Shot, status: Status) -> None:
        now = time.perf_counter()
        self.panel.remember(shot)
        clients = self._num_clients()
        self._frame += 1
        if not status.paused and self._frame % (1 + clients // (CLIENTS_AT_FULL_RATE + 1)):
            return
        self._hands.go_along()
        with self._server.atomic():
            self._figures.draw(shot, self.panel.look, min(0.1, now - self._shown))
            if now - self._plotted > PLOT_PERIOD:
                self._plotted = now
                self.panel.plot()
            if now - self._told > TELL_PERIOD or status.paused != self._paused:
                self._told, self._paused = now, status.paused
                self.panel.tell(shot, Status(status.paused, status.frames, status.late, clients))
        self._shown = now

    def say(self, message: str) -> None:
        for client in self._server.get_clients().values():
            with contextlib.suppress(Exception):
                client.add_notification("dropsim", message, auto_close_seconds=8.0)

    def close(self) -> None:
        self._saver.shutdown(wait=False, cancel_futures=True)
        # viser prints to standard output here.
        with contextlib.redirect_stdout(io.StringIO()):
            self._server.stop()

    def _num_clients(self) -> int:
        """Count the connections, including those that have not sent anything yet."""
        return len(self._server._websock_server._client_state_from_id)

    def _eye(self, client: "viser.ClientHandle") -> tuple[float, float, float] | None:
        """Position of a client's camera in the simulated world [m]."""
        try:
            x, y, z = (np.asarray(client.camera.position) + np.array(self.origin)).tolist()
        except (AssertionError, ValueError):
            return None
        return x, y, z

    def _save(self, client: "viser.ClientHandle", kind: str) -> None:
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

        def recorded(session: Session) -> None:
            try:
                self._saver.submit(write, session.recording())
            except BaseException:
                self._saving.release()
                raise

        if not self._commands.put(recorded):
            self._saving.release()


class _Hands(Grabbed):
    """Mouse drags and clicks on limbs."""

    def __init__(self, commands: Commands, browser: Browser) -> None:
        self._commands, self._browser = commands, browser
        self._holds: dict[object, Command] = {}

    def go_along(self) -> None:
        """Keep a resting mouse at its place on the screen while the view moves."""
        for hold in list(self._holds.values()):
            self._commands.put(hold)

    def listen(self, limbs: "viser.BatchedMeshHandle", person: int) -> None:
        """Drag a limb to pull it; click it to throw a ball at it."""

        async def dragged(event: Any) -> None:  # noqa: ANN401, viser's event is generic in its handle
            _guarded(lambda: self._drag(event, person))

        async def clicked(event: Any) -> None:  # noqa: ANN401
            _guarded(lambda: self._click(event, person))

        limbs.on_drag("left")(dragged)
        limbs.on_click(clicked)

    def _drag(self, event: Any, person: int) -> None:  # noqa: ANN401
        who = event.client_id
        if event.phase == "end":
            self._holds.pop(who, None)
            self._commands.put(lambda session: session.let_go(who))
            return
        bone = BONES[event.instance_index]
        held, pointer = (tuple(float(v) for v in point) for point in (event.start_position, event.end_position))
        if not all(map(math.isfinite, (*held, *pointer))):
            return
        hold = _holding(who, person, bone, held, pointer, self._browser)
        if who in self._holds or len(self._holds) < MAX_GRABS:
            self._holds[who] = hold
        self._commands.put(hold)

    def _click(self, event: Any, person: int) -> None:  # noqa: ANN401
        bone = BONES[event.instance_index]
        origin = np.asarray(event.ray_origin, dtype=float) + np.array(self._browser.origin)
        self._commands.put(self._browser.panel.throwing(tuple(origin.tolist()), JOINTS[bone], person))


def _holding(who: object, person: int, bone: int, held: tuple[float, ...], pointer: tuple[float, ...], browser: Browser) -> Command:
    """Return the command that moves a hand; the point it holds on the bone is fixed when the drag starts."""

    def hold(session: Session) -> None:
        x, y, z = (a + b for a, b in zip(pointer, browser.origin, strict=True))
        known = session.grabs.get(who)
        if known is not None and (known.person, known.bone) == (person, bone):
            session.grab(who, Grab(bone, known.share, (x, y, z), person, largest=browser.panel.largest_drag))
            return
        joints = session.shown.people.x[person]
        near, far = joints[PARENTS[bone]], joints[bone]
        point, way = np.add(held, browser.origin), far - near
        share = float(np.clip((point - near) @ way / max(way @ way, 1e-9), 0.0, 1.0))
        session.grab(who, Grab(bone, share, (x, y, z), person, largest=browser.panel.largest_drag))

    return hold


def _guarded(work: Callable[[], None]) -> None:
    """Ignore malformed messages from a browser."""
    try:
        work()
    except (TypeError, ValueError, IndexError, OverflowError):
        log.debug("ignored a malformed message", exc_info=True)


def _server(host: str, port: int) -> "viser.ViserServer":
    """Start viser at exactly this host and port, silently, and without public share links."""
    try:
        import viser
    except ImportError as error:
        raise ValueError("the browser app needs viser: run `pip install 'dropsim[view]'`") from error
    _refuse_busy(host, port)
    with contextlib.redirect_stdout(io.StringIO()), _own_pages_only(host in LOCAL_HOSTS):
        server = viser.ViserServer(host=host, port=port, label="dropsim", verbose=False)
    if port not in (0, server.get_port()):
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()
        raise ValueError(_busy(port))
    # A client may ask for a public tunnel to this server: never.
    server.request_share_url = lambda verbose=True: None
    _accept_values_only(server)
    # A hostile client could fill the log.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    return server


@contextlib.contextmanager
def _own_pages_only(local: bool) -> Iterator[None]:
    """Make a server that starts inside this block refuse requests from other web pages; viser has no setting for it."""
    import websockets.asyncio.server as websockets_server

    serve = websockets_server.serve

    def guarded(*args: Any, process_request: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401, as websockets has it
        def answer(connection: Any, request: Any) -> Any:  # noqa: ANN401
            if is_own_page(request.headers, local=local):
                return process_request(connection, request)
            return connection.respond(403, "dropsim: only its own page may use this server\n")

        return serve(*args, process_request=answer, **options)

    websockets_server.serve = guarded
    try:
        yield
    finally:
        websockets_server.serve = serve


def is_own_page(headers: Mapping[str, str], *, local: bool) -> bool:
    """Tell whether a request comes from a page of this server, or from no page at all: browsers always name that page.

    A local server only accepts this machine's own names, so that a foreign domain that resolves to it (DNS rebinding) is refused.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    try:
        named = urlsplit(f"//{host}").hostname
        page = host if origin is None else urlsplit(origin).netloc
    except ValueError:
        return False
    return page.lower() == host.lower() and (not local or named in LOCAL_HOSTS)


def _accept_values_only(server: "viser.ViserServer") -> None:
    """Let browsers set a control's value and no other property; viser itself would allow any."""
    from viser._messages import GuiUpdateMessage

    handlers = server._websock_server._incoming_handlers[GuiUpdateMessage]

    def checked(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def handle(client_id: Any, message: Any) -> None:  # noqa: ANN401
            if isinstance(message.updates, dict) and set(message.updates) <= {"value"}:
                await handler(client_id, message)

        return handle

    handlers[:] = [checked(handler) for handler in handlers]


def _busy(port: int) -> str:
    return f"port {port} is in use: choose another with --port, or --port 0 for any that is free"


def _refuse_busy(host: str, port: int) -> None:
    """Try the port first: viser itself would silently take the next one, or wait forever for an unknown host."""
    if not 0 <= port <= 65535:
        raise ValueError(f"a port is a number from 0 to 65535, not {port}")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise ValueError(f"there is no host {host!r}: use 127.0.0.1 for this machine only, or 0.0.0.0 for everybody") from None
        if error.errno in (98, 48, 10048):
            raise ValueError(_busy(port)) from None
        raise ValueError(f"cannot listen at {host} port {port}: {error.strerror or error}") from None


def _set_camera(server: "viser.ViserServer") -> None:
    """Look from the front and left of people who face +y."""
    camera, angle = server.initial_camera, math.radians(90 + 50)
    camera.fov = math.radians(42)
    camera.look_at = (0.0, 0.0, 0.85)
    camera.position = (CAMERA_DISTANCE * math.cos(angle), CAMERA_DISTANCE * math.sin(angle), 1.7)
