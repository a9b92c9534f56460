"""Mouse and keys of the viewers: each drag, click and key becomes a command to the simulation."""

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.apps.viewer.commands import MAX_GRABS, do
from dropsim.apps.viewer.figures import BONES
from dropsim.apps.viewer.steering import RUNNING, WALKING
from dropsim.body.skeleton import JOINTS
from dropsim.scene.scenarios import SCENARIOS

if TYPE_CHECKING:
    import viser

    from dropsim.apps.viewer.app import Browser
    from dropsim.apps.viewer.session import Session

log = logging.getLogger(__name__)

SAME_CLICK = 0.3
"""A click on the floor this soon after one on a limb is the same one [s]."""
STICK_RESTS, STICK_RUNS = 0.2, 0.97
"""Deflections of the thumb stick below which people stand and above which they run."""


class Hands:
    """The mouse: drags of limbs and boxes, and clicks on limbs and on the floor."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self._holds: dict[int, tuple[str, tuple[int, ...], tuple[float, ...], tuple[float, ...]]] = {}
        """Command of each client that holds something, its arguments, and where the mouse began and is."""
        self._holders = set[int]()
        """Clients whose hold the simulation knows of."""
        self._hit = (0, 0.0)
        """Client that clicked on a limb last, and when."""
        # Its stubs do not know asynchronous callbacks, which keep the order of events.
        on_click: Any = browser.server.scene.on_click
        on_click()(_guarded(lambda event: self._click_floor(event, WALKING)))
        on_click(modifier="shift")(_guarded(lambda event: self._click_floor(event, RUNNING)))

    def tell(self) -> None:
        """Send what everybody holds now, from one thread; a resting mouse stays at its place while the view moves."""
        holds = self._holds.copy()
        for who, (name, what, *points) in holds.items():
            held, pointer = (self._browser.in_world(point) for point in points)
            if self._browser.commands.do(name, who, *what, held, pointer, largest=self._browser.panel.drag.value):
                self._holders.add(who)
        for who in self._holders - holds.keys():
            if self._browser.commands.do("let_go", who):
                self._holders.discard(who)

    def listen_to_limbs(self, limbs: "viser.BatchedMeshHandle", person: int) -> None:
        """Drag a limb to pull it; click it to throw a ball at it."""
        self._listen_to_drags(limbs, "hold_limb", lambda event: (person, BONES[event.instance_index]))
        limbs.on_click(_guarded(lambda event: self._click_limb(event, person)))

    def listen_to_box(self, box: "viser.MeshHandle", key: int) -> None:
        """Drag a loose box; `key` is its number in `Shot.solids`."""
        self._listen_to_drags(box, "hold_box", lambda _: (key,))

    def _listen_to_drags(self, handle: Any, name: str, what: Callable[[Any], tuple[int, ...]]) -> None:  # noqa: ANN401
        def drag(event: Any) -> None:  # noqa: ANN401, viser's event is generic in its handle
            who = event.client_id
            if event.phase == "end":
                self._holds.pop(who, None)
                return
            held, pointer = (tuple(map(float, point)) for point in (event.start_position, event.end_position))
            # Only its start begins a drag: one that was refused then, or has ended, does not come back.
            starts = event.phase == "start" and len(self._holds) < MAX_GRABS
            if (starts or who in self._holds) and np.isfinite((held, pointer)).all():
                self._holds[who] = name, what(event), held, pointer

        handle.on_drag("left")(_guarded(drag))

    def _click_limb(self, event: Any, person: int) -> None:  # noqa: ANN401
        self._hit = event.client_id, time.monotonic()
        ball = {name: handle.value for name, handle in self._browser.panel.ball.items()}
        origin = self._browser.in_world(event.ray_origin)
        self._browser.commands.do("throw", origin, JOINTS[BONES[event.instance_index]], person, **ball)

    def _click_floor(self, event: Any, speed: float) -> None:  # noqa: ANN401
        """Do what the panel says that a click does; viser also reports clicks on limbs here, a moment later."""
        client, when = self._hit
        if client == event.client_id and time.monotonic() - when < SAME_CLICK:
            return
        origin, way = self._browser.in_world(event.ray_origin), tuple(map(float, event.ray_direction))
        options = {name: handle.value for name, handle in self._browser.panel.click.items()}
        self._browser.keys.steer(event.client_id, "click", origin=origin, way=way, speed=speed, **options)


class Keys:
    """The keys and the thumb stick of each browser, which steer a person as its own camera sees it."""

    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self._ways: dict[int, tuple[float, float, float]] = {}
        """Direction of each client, to the right and ahead, of length one at most, and the speed [m/s]."""
        self._people: dict[int, int] = {}
        """Person that each client has chosen."""
        field = browser.server.gui.add_text("dropsim keys", "", visible=False)
        field.on_update(_guarded(lambda event: self._press(event.client, str(event.target.value).split()[1:])))
        browser.server.on_client_connect(_guarded(self._join))
        browser.server.on_client_disconnect(_guarded(self._leave))

    def _join(self, client: "viser.ClientHandle") -> None:
        def turned(_: object) -> None:
            if any(self._ways.get(client.client_id, ())[:2]):
                self._walk(client)

        client.camera.on_update(_guarded(turned))

    def _leave(self, client: "viser.ClientHandle") -> None:
        if any(self._ways.pop(client.client_id, ())[:2]):
            self.steer(client.client_id, "walk", 0.0)
        self._people.pop(client.client_id, None)

    def steer(self, client_id: int, name: str, *arguments: object, **options: object) -> None:
        """Queue a command to the person whom a client has chosen; if there is no such person then, to the first."""
        chosen = self._people.get(client_id, 0)

        def work(session: "Session") -> None:
            do(session, name, *arguments, person=chosen if chosen < len(session.scene.people) else 0, **options)

        self._browser.commands.put(work)

    def _press(self, client: "viser.ClientHandle | None", words: list[str]) -> None:
        """Do what the page sent: what is held down now, or a key that was pressed."""
        if client is None:
            return
        command = self._browser.commands.do
        match words:
            case ["hold", *keys]:
                x, y = (float(a in keys) - float(b in keys) for a, b in (("right", "left"), ("up", "down")))
                far = max(1.0, math.hypot(x, y))
                self._ways[client.client_id] = x / far, y / far, RUNNING if "shift" in keys else WALKING
                self._walk(client)
            case ["stick", right, ahead]:
                x, y = (min(max(float(value), -1.0), 1.0) for value in (right, ahead))
                self._ways[client.client_id] = x, y, RUNNING if math.hypot(x, y) > STICK_RUNS else WALKING
                self._walk(client)
            case ["person", number]:
                self._people[client.client_id] = int(number) - 1
            case ["crouch" | "jump" | "free" as name]:
                self.steer(client.client_id, name)
            case ["pause" | "restart" as name]:
                command(name)
            case ["begin"] if self._browser.watching == 1:
                command("restart")
            case ["scenario", name] if name in SCENARIOS:
                command("load", SCENARIOS[name])
            case ["follow"]:
                self._browser.panel.toggle_follow()

    def _walk(self, client: "viser.ClientHandle") -> None:
        """Go where the keys point on the client's screen; stand if they point nowhere."""
        x, y, speed = self._ways[client.client_id]
        far = math.hypot(x, y)
        look = np.asarray(client.camera.look_at) - np.asarray(client.camera.position)
        degrees = math.degrees(math.atan2(-look[0], look[1]) + math.atan2(-x, y))
        self.steer(client.client_id, "walk", speed * far if far > STICK_RESTS else 0.0, degrees)


def _guarded(work: Callable[[Any], None]) -> Any:  # noqa: ANN401, its stubs do not know asynchronous callbacks
    """Return a callback that ignores malformed messages of a browser; asynchronous ones keep their order."""

    async def guarded(event: Any) -> None:  # noqa: ANN401
        try:
            work(event)
        except (TypeError, ValueError, IndexError, OverflowError):
            log.debug("ignored a malformed message", exc_info=True)

    return guarded
