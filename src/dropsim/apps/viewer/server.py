"""viser's server on our terms: at exactly one port, for its own page only, and with our head in that page."""

import base64
import contextlib
import errno
import functools
import gzip
import importlib.resources
import importlib.util
import io
import json
import logging
import math
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dropsim.scene.scenarios import SCENARIOS

if TYPE_CHECKING:
    import viser

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that nobody else can reach."""
CLOSE_TIMEOUT = 1.0
"""Time for a browser to answer a goodbye [s]; a silent one would otherwise hold up the end of the app by 10 s."""
MAX_TEXT = 50_000
"""Characters that a browser may write into a control."""
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32' fill='none' stroke='%232a7fb8' "
    "stroke-width='4' stroke-linecap='round'%3E%3Ccircle cx='20' cy='6' r='3'/%3E"
    "%3Cpath d='M18 12l-5 8 6 3-2 7M13 20l-7 4M9 12h9l6 5'/%3E%3C/svg%3E"
)
"""Icon of the browser's tab: somebody who runs."""


def start_server(host: str, port: int) -> "viser.ViserServer":
    """Start viser at exactly this host and port, silently, and without public share links."""
    refuse_busy(host, port)
    import viser

    with contextlib.redirect_stdout(io.StringIO()), _our_page(host in LOCAL_HOSTS):
        server = viser.ViserServer(host=host, port=port, label="dropsim", verbose=False)
    # A client may ask for a public tunnel to this server: never.
    server.request_share_url = lambda verbose=True: None
    _accept_values_only(server._websock_server)

    async def joined(client: "viser.ClientHandle") -> None:
        _accept_values_only(client._websock_connection)

    server.on_client_connect(joined)
    # A hostile client could fill the log.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    return server


@contextlib.contextmanager
def _our_page(local: bool) -> Iterator[None]:
    """Make a server that starts inside this block refuse other web pages, and serve viser's page with our head.

    viser has no setting for it. `local` is whether only this machine can reach it.
    """
    import websockets.asyncio.server as websockets_server

    serve = websockets_server.serve

    def guarded(*args: Any, process_request: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401
        def answer(connection: Any, request: Any) -> Any:  # noqa: ANN401
            if not is_own_page(request.headers, local=local):
                return connection.respond(403, "dropsim: only its own page may use this server\n")
            response = process_request(connection, request)
            if response is not None and response.headers.get("Content-Type", "").startswith("text/html"):
                response.body = with_head(response.body)
                for name, value in (("Content-Length", str(len(response.body))), ("Content-Encoding", "identity")):
                    del response.headers[name]
                    response.headers[name] = value
            return response

        return serve(*args, process_request=answer, close_timeout=CLOSE_TIMEOUT, **options)

    websockets_server.serve = guarded
    try:
        yield
    finally:
        websockets_server.serve = serve


@functools.lru_cache(maxsize=2)
def with_head(page: bytes) -> bytes:
    """Return viser's page, which may be compressed, with our title, icon, keys and help."""
    html = (gzip.decompress(page) if page.startswith(b"\x1f\x8b") else page).decode()
    head = f"<script>window.dropsimScenarios = {gallery()};</script>\n"
    head += (importlib.resources.files("dropsim") / "assets" / "viewer.html").read_text(encoding="utf-8")
    html = html.replace("<title>Viser</title>", "<title>dropsim</title>", 1).replace("<head>", f"<head>\n{head}", 1)
    return re.sub(r'<link\s+rel="icon"[^>]*>', f'<link rel="icon" href="{ICON}" />', html, count=1).encode()


def gallery() -> str:
    """Return names, sentences and pictures of the scenarios, as JSON that can stand in a page."""
    pictures = importlib.resources.files("dropsim") / "assets" / "scenarios"
    rows = []
    for name, setup in SCENARIOS.items():
        picture = pictures / f"{name}.webp"
        content = base64.b64encode(picture.read_bytes()).decode() if picture.is_file() else ""
        rows.append((name, setup.description, f"data:image/webp;base64,{content}"))
    return json.dumps(rows).replace("<", "\\u003c")


def is_own_page(headers: Mapping[str, str], *, local: bool) -> bool:
    """Tell whether a request comes from a page of this server, or from no page at all: browsers always name that page.

    A local server only accepts this machine's own names, so that a foreign domain that resolves to it (DNS rebinding)
    is refused.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    try:
        named = urlsplit(f"//{host}").hostname
        page = host if origin is None else urlsplit(origin).netloc
    except ValueError:
        return False
    return page.lower() == host.lower() and (not local or named in LOCAL_HOSTS)


def _accept_values_only(connection: Any) -> None:  # noqa: ANN401, viser's server or one of its connections
    """Let browsers set a control's value to another of its kind, and nothing else; viser itself would take any.

    Files are refused whole: nothing here takes one, and viser would keep them all.
    """
    from viser._messages import FileTransferPart, FileTransferStartUpload, GuiUpdateMessage

    def checked(handler: Any) -> Callable[..., Any]:  # noqa: ANN401, a method of viser's
        controls = handler.__self__._gui_input_handle_from_uuid

        async def handle(client_id: Any, message: Any) -> None:  # noqa: ANN401
            control = controls.get(message.uuid)
            updates = message.updates if isinstance(message.updates, dict) else {"?": None}
            if control is not None and set(updates) <= {"value"} and is_alike(updates.get("value"), control.value):
                await handler(client_id, message)

        return handle

    handlers = connection._incoming_handlers
    handlers[GuiUpdateMessage][:] = map(checked, handlers[GuiUpdateMessage])
    for kind in (FileTransferStartUpload, FileTransferPart):
        handlers.pop(kind, None)


def is_alike(new: object, old: object) -> bool:
    """Tell whether a value is of another's kind: a finite number, a text of bounded length, a switch, or such a pair."""
    if isinstance(old, tuple):
        return isinstance(new, list | tuple) and len(new) == len(old) and all(map(is_alike, new, old))
    if isinstance(old, bool) or isinstance(new, bool):
        return isinstance(old, bool) and isinstance(new, bool)
    if isinstance(old, int | float):
        return isinstance(new, int | float) and math.isfinite(new)
    return isinstance(new, str) and isinstance(old, str) and len(new) <= MAX_TEXT


def refuse_busy(host: str, port: int) -> None:
    """Try the port before long work: viser would silently take the next one, or wait forever for an unknown host."""
    if importlib.util.find_spec("viser") is None:
        raise ValueError("the browser app needs viser: run `pip install 'dropsim[app]'`")
    if not 0 <= port <= 65535:
        raise ValueError(f"a port is a number from 0 to 65535, not {port}")
    try:
        options = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
        family, kind, proto, _, address = socket.getaddrinfo(host, port, **options)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror:
        use = "use 127.0.0.1 for this machine only, or 0.0.0.0 for everybody"
        raise ValueError(f"there is no host {host!r}: {use}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "choose another with --port, or --port 0 for any that is free"
            raise ValueError(f"port {port} is in use: {remedy}") from None
        raise ValueError(f"cannot listen at {host} port {port}: {error.strerror or error}") from None
