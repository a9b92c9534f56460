"""The live link: people as a VMC stream (OSC over UDP) to Unity, Unreal, Blender or Godot, and commands back by OSC."""

import contextlib
import logging
import math
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from dropsim.apps.viewer.commands import checked, do
from dropsim.apps.viewer.loop import Commands, Status, Viewer
from dropsim.apps.viewer.session import Session, Shot
from dropsim.body.joints import JOINTS
from dropsim.body.rotations import rotmat_to_unitquat, slerp_rotmat
from dropsim.body.skeleton import Skeleton

log = logging.getLogger(__name__)

PORT, PORTS_APART = 39539, 10
"""VMC's port, of the first person; 39540 is commonly the way back, so the next person has 39549."""
LISTEN_PORT = 39540
MESSAGES_IN_A_BUNDLE = 12
"""So that a packet stays below the 1500 bytes of an Ethernet frame."""
COMMANDS_PER_SECOND = 60
"""Further commands are dropped."""
BUNDLE, READABLE = b"#bundle\0", re.compile(rb"/[!-~]*\0+,[ifdsTF]*\0")
"""Beginnings of a bundle, and of a message of numbers, texts and switches; the library logs whatever else it meets."""
LARGEST_PACKET = 2048
"""Largest packet of a command [bytes]; longer ones are cut off, and then cannot be read."""

_TRUNK = ("Spine", "Chest", "UpperChest", "Neck", "Head")
_LIMBS = ("UpperLeg", "LowerLeg", "Foot", "Toes", "Shoulder", "UpperArm", "LowerArm", "Hand")
_NAMES = {"pelvis": "Hips", **dict(zip(("spine1", "spine2", "spine3", "neck", "head"), _TRUNK, strict=True))} | {
    f"{side}_{part}": side.capitalize() + name
    for side in ("left", "right")
    for part, name in zip(("hip", "knee", "ankle", "foot", "collar", "shoulder", "elbow", "wrist"), _LIMBS, strict=True)
}
BONES = tuple(_NAMES[joint] for joint in JOINTS)
"""Unity's HumanBodyBones in the order of our joints: one to one, with the same parents."""

# Unity is left-handed: x right, y up, z ahead. Our world has x right, y ahead, z up; the rest pose has x left, y up, z
# ahead.
_WORLD = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
_REST = np.diag([-1.0, 1.0, 1.0])


def unity_rotations(q: Float[np.ndarray, "*b 22 3 3"]) -> Float[np.ndarray, "*b 22 4"]:
    """Return local rotations in Unity's axes, as quaternions (x, y, z, w); the T-pose that faces ahead is the identity.

    Both changes of axes are reflections, W in the world and F in the rest pose: W R F at the root, F R F elsewhere.
    """
    turned = _REST @ q @ _REST
    turned[..., 0, :, :] = _WORLD @ q[..., 0, :, :] @ _REST
    return rotmat_to_unitquat(turned)


def unity_positions(world: Float[np.ndarray, "*b 3"]) -> Float[np.ndarray, "*b 3"]:
    """Return places of the world in Unity's axes [m]."""
    return world @ _WORLD


@dataclass(frozen=True)
class Address:
    """Host and port that packets go to or come from."""

    host: str = "127.0.0.1"
    port: int = PORT

    @classmethod
    def read(cls, text: str, *, port: int = PORT) -> "Address":
        """Read HOST:PORT, HOST or PORT; a missing part is this machine or the given port."""
        host, _, number = text.rpartition(":")
        if not host:
            host, number = ("", number) if number.isdecimal() else (number, "")
        if number and not (number.isdecimal() and 1 <= int(number) <= 65535):
            wanted = f"write HOST:PORT with a port from 1 to 65535, such as 127.0.0.1:{port}"
            raise ValueError(f"{text!r} is no address: {wanted}")
        return cls(host.strip("[]") or cls.host, int(number) if number else port)

    def socket_address(self) -> tuple[socket.AddressFamily, Any]:
        """Return the family and address for sockets, or raise if there is no such host."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
        except (OSError, UnicodeError):
            remedy = "name one that this machine can reach, or 127.0.0.1 for itself"
            raise ValueError(f"there is no host {self.host!r}: {remedy}") from None
        return family, address

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class LinkOptions:
    """Options of the stream."""

    to: Address = Address()
    """Address of the first person; each further one has a port that is 10 higher."""
    rate: Literal[30, 60] = 30
    """Poses a second: as simulated, or with one in the middle of every two, and half a frame later."""
    bundle: bool = True
    """Messages travel in bundles; else each in a packet of its own, which some receivers want."""
    travel: Literal["root", "hips"] = "root"
    """Bone that moves through the world. Godot's receiver ignores the root; Unity's moves no hips unless told to."""
    hip_height: float | None = None
    """Height of the character's hips at rest [m], to which positions are scaled; None for our body's."""

    def __post_init__(self) -> None:
        if self.hip_height is not None and not 0.05 <= self.hip_height <= 10.0:
            raise ValueError(f"hips are 0.05 to 10 m above the floor, not {self.hip_height:g}")

    def ports(self, people: int) -> list[int]:
        """Return everybody's port."""
        return [self.to.port + PORTS_APART * i for i in range(people)]


def messages_for(
    q: Float[np.ndarray, "22 3 3"], root: Float[np.ndarray, "3"], skeleton: Skeleton, options: LinkOptions
) -> list[tuple[str, list]]:
    """Return the VMC messages of a pose: the root's, and those of the bones, with name, position and quaternion."""
    height, place = skeleton.standing_height, unity_positions(root)
    scale, hips = (options.hip_height or height) / height, np.array([0.0, height, 0.0])
    at_hips = options.travel == "hips"
    at = np.concatenate(((place if at_hips else hips)[None], (skeleton.offsets @ _REST)[1:])) * scale
    origin = np.zeros(3) if at_hips else (place - hips) * scale
    bones = zip(BONES, at.tolist(), unity_rotations(q).tolist(), strict=True)
    return [
        ("/VMC/Ext/Root/Pos", ["root", *origin.tolist(), 0.0, 0.0, 0.0, 1.0]),
        *(("/VMC/Ext/Bone/Pos", [name, *position, *turn]) for name, position, turn in bones),
    ]


def packets(messages: list[tuple[str, list]], *, bundle: bool) -> list[bytes]:
    """Return messages as OSC packets: one each, or in bundles of a few."""
    from pythonosc.osc_bundle_builder import IMMEDIATELY, OscBundleBuilder
    from pythonosc.osc_message_builder import build_msg

    built = [build_msg(address, arguments) for address, arguments in messages]
    if not bundle:
        return [message.dgram for message in built]
    bundles = []
    for first in range(0, len(built), MESSAGES_IN_A_BUNDLE):
        builder = OscBundleBuilder(IMMEDIATELY)
        for message in built[first : first + MESSAGES_IN_A_BUNDLE]:
            builder.add_content(message)
        bundles.append(builder.build().dgram)
    return bundles


class Link(Viewer):
    """Streams people as VMC messages, from a thread of its own: one port for each person."""

    def __init__(self, skeleton: Skeleton, options: LinkOptions) -> None:
        osc()
        self._skeleton, self._options = skeleton, options
        family, self._address = options.to.socket_address()
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.sent = 0
        """Number of packets so far."""
        self._shots: queue.Queue[Shot | None] = queue.Queue(4)
        self._thread = threading.Thread(target=self._stream, name="vmc", daemon=True)
        self._thread.start()

    def show(self, shot: Shot, status: Status) -> None:
        with contextlib.suppress(queue.Full):  # a network that is too slow loses frames
            self._shots.put_nowait(shot)

    def say(self, message: str) -> None:
        log.warning("%s", message)

    def close(self) -> None:
        self._shots.put(None)
        self._thread.join(timeout=5.0)
        self._socket.close()

    def _stream(self) -> None:
        last: Shot | None = None
        while (shot := self._shots.get()) is not None:
            came, people = time.perf_counter(), shot.people
            if self._options.rate == 60 and last is not None and shot.frame == last.frame + 1:
                step = shot.time - last.time
                middle = slerp_rotmat(last.people.q, people.q, 0.5), 0.5 * (last.people.x + people.x)[:, 0]
                self.send(*middle, shot.time - 0.5 * step)
                time.sleep(max(0.0, came + 0.5 * step - time.perf_counter()))
            self.send(people.q, people.x[:, 0], shot.time)
            last = shot

    def send(self, q: Float[np.ndarray, "p 22 3 3"], root: Float[np.ndarray, "p 3"], seconds: float) -> None:
        """Send everybody's pose at a time [s]."""
        host, _, *rest = self._address
        for person, port in enumerate(self._options.ports(len(q))):
            messages = [("/VMC/Ext/OK", [1]), ("/VMC/Ext/T", [seconds])]
            messages += messages_for(q[person], root[person], self._skeleton, self._options)
            # The last one ends a frame; Unreal's VMCLiveLink waits for it.
            for packet in packets([*messages, ("/VMC/Ext/Blend/Apply", [])], bundle=self._options.bundle):
                # Nobody listens, or the network is down: the next frame may get through.
                with contextlib.suppress(OSError, OverflowError):
                    self._socket.sendto(packet, (host, port, *rest))
                    self.sent += 1


# --- commands by OSC

MESSAGES = {
    "/dropsim/walk": ("walk", "person speed degrees"),
    "/dropsim/goto": ("go_to", "person x y [speed]"),
    "/dropsim/free": ("free", "person"),
    "/dropsim/crouch": ("crouch", "person low"),
    "/dropsim/push": ("push", "person direction newtons [duration]"),
    "/dropsim/restart": ("restart", ""),
    "/dropsim/pause": ("pause", "paused"),
}
"""Messages by address: the command of the app's table, and its arguments."""


def command_of(address: str, arguments: Sequence[object]) -> Callable[[Session], None]:
    """Return the command of an OSC message, or raise a ValueError that says how it is written.

    People are numbered from 1, as in the app.
    """
    if address not in MESSAGES:
        raise ValueError(f"there is no message {address[:60]!r}: use {', '.join(MESSAGES)}")
    name, written = MESSAGES[address]
    names = [word.strip("[]") for word in written.split()]
    try:
        if not len(names) - written.count("[") <= len(arguments) <= len(names):
            raise ValueError
        options: dict[str, Any] = dict(zip(names, arguments, strict=False))
        if "person" in options:
            number = options["person"]
            if isinstance(number, bool) or number != int(number) or number < 1:
                raise ValueError
            options["person"] = int(number) - 1
        checked(name, **options)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{address} takes {written or 'nothing'}, with people from 1 and finite numbers") from None
    return lambda session: do(session, name, **options)


class Listener:
    """Takes commands by OSC on a UDP port: at a bounded rate, and checked."""

    def __init__(self, at: Address, commands: Commands, say: Callable[[str], None]) -> None:
        osc()
        self._commands, self._say = commands, say
        self._left, self._filled = float(COMMANDS_PER_SECOND), time.monotonic()
        self._said = -math.inf
        self.accepted = self.dropped = 0
        family, address = at.socket_address()
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            reason = error.strerror or error
            raise ValueError(f"cannot listen at {at}: {reason}; choose another port with --listen") from None
        self._socket.settimeout(0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="osc", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._socket.getsockname()[1]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5.0)
        self._socket.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                packet, _ = self._socket.recvfrom(LARGEST_PACKET)
            except OSError:  # nothing came
                continue
            for address, arguments in messages_of(packet):
                self._take(address, arguments)

    def _take(self, address: str, arguments: list[object]) -> None:
        now = time.monotonic()
        self._left = min(float(COMMANDS_PER_SECOND), self._left + COMMANDS_PER_SECOND * (now - self._filled))
        self._filled = now
        if self._left < 1:
            self.dropped += 1
            return
        self._left -= 1
        try:
            command = command_of(address, arguments)
        except ValueError as error:
            self.dropped += 1
            if now - self._said > 1.0:  # a broken sender must not fill the terminal
                self._said = now
                self._say(str(error))
            return
        self.accepted += self._commands.put(command)


def messages_of(packet: bytes) -> list[tuple[str, list[object]]]:
    """Return the messages of an OSC packet, bundled or not, whatever their times; none if it cannot be read.

    Bundles are taken apart here: the library would go back for ever in one whose element has a negative size.
    """
    from pythonosc.osc_message import OscMessage

    messages = list[tuple[str, list[object]]]()
    if packet.startswith(BUNDLE):
        rest = packet[len(BUNDLE) + 8 :]
        while len(rest) > 4 and 0 < (size := int.from_bytes(rest[:4], "big")) <= len(rest) - 4:
            messages += messages_of(rest[4 : 4 + size])
            rest = rest[4 + size :]
    elif READABLE.match(packet):
        with contextlib.suppress(Exception):  # whatever a parser makes of foreign bytes
            message = OscMessage(packet)
            messages.append((message.address, list(message.params)))
    return messages


def osc() -> None:
    """Raise if python-osc is not installed."""
    try:
        import pythonosc  # noqa: F401
    except ImportError as error:
        raise ValueError("the live link needs python-osc: run `pip install 'dropsim[live]'`") from error
