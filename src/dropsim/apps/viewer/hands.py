"""What viewers do with mouse and keys: each becomes a command to the simulation."""

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dropsim.apps.viewer.figures import BONES, Grabbed
from dropsim.apps.viewer.loop import Command, Commands
from dropsim.apps.viewer.objects import BoxGrab
from dropsim.apps.viewer.session import MAX_GRABS, Session
from dropsim.apps.viewer.steering import RUNNING, WALKING, Grab, Walk
from dropsim.body.skeleton import JOINTS, PARENTS
from dropsim.scene.files import Setup
from dropsim.scene.scenarios import SCENARIOS

if TYPE_CHECKING:
    import viser

    from dropsim.apps.viewer.app import Browser

log = logging.getLogger(__name__)

Point = tuple[float, ...]
"""Of the browser's scene, x, y and z [m]."""
SAME_CLICK = 0.3
"""A click on the floor this soon after one on a limb is the same one [s]."""
STICK_RESTS, STICK_RUNS = 0.2, 0.97
"""Deflections of the thumb stick below which people stand and above which they run."""


class Hands(Grabbed):
    """The mouse: drags of limbs and boxes, and clicks on limbs and on the floor."""

    def __init__(self, server: "viser.ViserServer", commands: Commands, browser: "Browser") -> None:
        self._commands, self._browser = commands, browser
        self._holds: dict[object, Command] = {}
        self._hit = (0, 0.0)
        """Client that clicked on a limb last, and when."""
        # Its stubs do not know asynchronous callbacks, which keep the order of events.
        on_click: Any = server.scene.on_click

        def send(speed: float) -> Any:  # noqa: ANN401
            async def clicked(event: Any) -> None:  # noqa: ANN401
                _guarded(lambda: self._click_floor(event, speed))

            return clicked

        on_click()(send(WALKING))
        on_click(modifier="shift")(send(RUNNING))

    def go_along(self) -> None:
        """Keep a resting mouse at its place on the screen while the view moves."""
        for hold in list(self._holds.values()):
            self._commands.put(hold)

    def listen(self, limbs: "viser.BatchedMeshHandle", person: int) -> None:
        """Drag a limb to pull it; click it to throw a ball at it."""

        def holding(event: Any, held: Point, pointer: Point) -> Command:  # noqa: ANN401, viser's event is generic in its handle
            return _holding(event.client_id, person, BONES[event.instance_index], held, pointer, self._browser)

        async def clicked(event: Any) -> None:  # noqa: ANN401
            _guarded(lambda: self._click(event, person))

        self._listen_to_drags(limbs, holding)
        limbs.on_click(clicked)

    def listen_to_box(self, box: "viser.MeshHandle", key: int) -> None:
        """Drag a loose box."""

        def holding(event: Any, held: Point, pointer: Point) -> Command:  # noqa: ANN401
            return _holding_box(event.client_id, key, held, pointer, self._browser)

        self._listen_to_drags(box, holding)

    def _listen_to_drags(
        self, handle: "viser.MeshHandle | viser.BatchedMeshHandle", holding: Callable[[Any, Point, Point], Command]
    ) -> None:
        async def dragged(event: Any) -> None:  # noqa: ANN401
            _guarded(lambda: self._drag(event, holding))

        handle.on_drag("left")(dragged)

    def _drag(self, event: Any, holding: Callable[[Any, Point, Point], Command]) -> None:  # noqa: ANN401
        who = event.client_id
        if event.phase == "end":
            self._holds.pop(who, None)
            self._commands.put(lambda session: session.let_go(who))
            return
        held, pointer = (tuple(float(v) for v in point) for point in (event.start_position, event.end_position))
        if not all(map(math.isfinite, (*held, *pointer))):
            return
        hold = holding(event, held, pointer)
        if who in self._holds or len(self._holds) < MAX_GRABS:
            self._holds[who] = hold
        self._commands.put(hold)

    def _click(self, event: Any, person: int) -> None:  # noqa: ANN401
        self._hit = event.client_id, time.monotonic()
        bone = BONES[event.instance_index]
        origin = np.asarray(event.ray_origin, dtype=float) + np.array(self._browser.origin)
        self._commands.put(self._browser.panel.throwing(tuple(origin.tolist()), JOINTS[bone], person))

    def _click_floor(self, event: Any, speed: float) -> None:  # noqa: ANN401
        """Do what the panel says that a click does; viser also reports clicks on limbs here, a moment later."""
        client, when = self._hit
        if client == event.client_id and time.monotonic() - when < SAME_CLICK:
            return
        origin = (np.asarray(event.ray_origin, dtype=float) + np.array(self._browser.origin)).tolist()
        way, person = (
            np.asarray(event.ray_direction, dtype=float).tolist(),
            self._browser.keys.person_of(event.client_id),
        )
        self._commands.put(self._browser.panel.clicking(origin, way, person, speed))


class Keys:
    """The keys and the thumb stick of each browser, which steer a person as its own camera sees it."""

    def __init__(self, server: "viser.ViserServer", commands: Commands, browser: "Browser") -> None:
        self._commands, self._browser = commands, browser
        self._ways: dict[int, tuple[float, float, float]] = {}
        """Of each client: to the right and ahead, of length one at most, and the speed [m/s]."""
        self._people: dict[int, int] = {}
        field = server.gui.add_text("dropsim keys", "", visible=False)

        async def pressed(event: Any) -> None:  # noqa: ANN401
            if event.client is not None:
                _guarded(lambda: self._press(event.client, str(event.target.value).split()[1:]))

        async def joined(client: "viser.ClientHandle") -> None:
            async def turned(camera: "viser.CameraHandle") -> None:
                del camera
                if any(self._ways.get(client.client_id, ())[:2]):
                    _guarded(lambda: self._walk(client))

            client.camera.on_update(turned)

        async def left(client: "viser.ClientHandle") -> None:
            if any(self._ways.pop(client.client_id, ())[:2]):
                person = self.person_of(client.client_id)
                self._commands.put(lambda session: session.steer(Walk(0.0), person=person))
            self._people.pop(client.client_id, None)

        field.on_update(pressed)
        server.on_client_connect(joined)
        server.on_client_disconnect(left)

    def person_of(self, client_id: int) -> int:
        """Return the person whom a client steers."""
        return self._people.get(client_id, 0)

    def _press(self, client: "viser.ClientHandle", words: list[str]) -> None:
        """Do what the page sent: what is held down now, or a key that was pressed."""
        person, put = self.person_of(client.client_id), self._commands.put
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
            case ["crouch"]:
                put(lambda session: session.crouch(person not in session.crouched, person=person))
            case ["jump"]:
                put(lambda session: session.jump(person=person))
            case ["free"]:
                put(lambda session: session.steer(None, person=person))
            case ["pause"]:
                put(lambda session: session.pause(not session.paused))
            case ["restart"]:
                put(lambda session: session.restart())
            case ["begin"] if self._browser.watching == 1:
                put(lambda session: session.restart())
            case ["scenario", name] if name in SCENARIOS:
                put(showing(SCENARIOS[name]))
            case ["follow"]:
                self._browser.panel.toggle_follow()

    def _walk(self, client: "viser.ClientHandle") -> None:
        """Go where the keys point on the client's screen; stand if they point nowhere."""
        x, y, speed = self._ways[client.client_id]
        far, person = math.hypot(x, y), self.person_of(client.client_id)
        look = np.asarray(client.camera.look_at) - np.asarray(client.camera.position)
        direction = math.degrees(math.atan2(-look[0], look[1]) + math.atan2(-x, y))
        goal = Walk(speed * far if far > STICK_RESTS else 0.0, math.remainder(direction, 360.0))
        self._commands.put(lambda session: session.steer(goal, person=person))


def showing(setup: Setup) -> Command:
    """Return the command that loads a scene and starts it."""

    def show(session: Session) -> None:
        session.load(setup)
        session.pause(False)

    return show


def _holding(who: object, person: int, bone: int, held: Point, pointer: Point, browser: "Browser") -> Command:
    """Return the command that moves a hand; the point it holds on the bone is fixed when the drag starts."""

    def hold(session: Session) -> None:
        x, y, z = (a + b for a, b in zip(pointer, browser.origin, strict=True))
        known = session.grabs.get(who)
        if isinstance(known, Grab) and (known.person, known.bone) == (person, bone):
            session.grab(who, Grab(bone, known.share, (x, y, z), person, largest=browser.panel.largest_drag))
            return
        joints = session.shown.people.x[person]
        near, far = joints[PARENTS[bone]], joints[bone]
        point, way = np.add(held, browser.origin), far - near
        share = float(np.clip((point - near) @ way / max(way @ way, 1e-9), 0.0, 1.0))
        session.grab(who, Grab(bone, share, (x, y, z), person, largest=browser.panel.largest_drag))

    return hold


def _holding_box(who: object, key: int, held: Point, pointer: Point, browser: "Browser") -> Command:
    """Return the command that moves a hand on a box; where it holds the box is fixed when the drag starts."""

    def hold(session: Session) -> None:
        x, y, z = (a + b for a, b in zip(pointer, browser.origin, strict=True))
        known, box = session.grabs.get(who), session.shown.solids.get(key)
        if isinstance(known, BoxGrab) and known.key == key:
            point = known.point
        elif box is not None:
            # The view may have moved since the mouse went down, so the point can be a little off.
            touched = box.rotation.T @ (np.add(held, browser.origin) - box.centre)
            a, b, c = np.clip(touched, box.vertices.min(0), box.vertices.max(0)).tolist()
            point = a, b, c
        else:
            return
        session.grab(who, BoxGrab(key, point, (x, y, z), largest=browser.panel.largest_drag))

    return hold


def _guarded(work: Callable[[], None]) -> None:
    """Ignore malformed messages from a browser."""
    try:
        work()
    except (TypeError, ValueError, IndexError, OverflowError):
        log.debug("ignored a malformed message", exc_info=True)
