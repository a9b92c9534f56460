"""The live link, received: names, rotations against forward kinematics, left and right, rate; and commands that come back."""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from clients import standing, wait_until
from scipy.spatial.transform import Rotation

from dropsim.apps.cli import EXIT_ERROR, main
from dropsim.apps.live import (
    BONES,
    COMMANDS_PER_SECOND,
    Address,
    Link,
    LinkOptions,
    Listener,
    command_of,
    messages_of,
    packets,
    unity_positions,
)
from dropsim.apps.viewer.loop import Commands, Loop, Status
from dropsim.apps.viewer.session import Session
from dropsim.apps.viewer.steering import Goal
from dropsim.body.skeleton import PARENTS, Skeleton
from dropsim.physics.step import Simulator
from dropsim.scene import Person, Scene
from dropsim.scene.files import Setup

pytest.importorskip("pythonosc", reason="python-osc is not installed: pip install 'dropsim[live]'")

PARENT_BONES = {bone: None if parent < 0 else BONES[parent] for bone, parent in zip(BONES, PARENTS, strict=True)}
UPRIGHT = np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
"""Root orientation of somebody who stands and faces +y."""


@dataclass
class Receiver:
    """A VMC receiver as engines are: it knows Unity's axes and the names of its bones, and nothing of ours."""

    packets: list[tuple[float, list[tuple[str, list]]]] = field(default_factory=list)

    @property
    def messages(self) -> list[tuple[str, list]]:
        return [message for _, some in self.packets for message in some]

    def frames(self) -> list[tuple[float, dict[str, tuple[np.ndarray, np.ndarray]]]]:
        """When each frame was complete, and its root and bones: position and quaternion."""
        found, bones = [], {}
        for when, some in self.packets:
            for address, arguments in some:
                if address in ("/VMC/Ext/Root/Pos", "/VMC/Ext/Bone/Pos"):
                    bones[arguments[0]] = np.array(arguments[1:4]), np.array(arguments[4:])
                elif address == "/VMC/Ext/Blend/Apply":
                    found.append((when, bones))
                    bones = {}
        return found


@contextlib.contextmanager
def receiving(port: int = 0) -> Iterator[tuple[Receiver, int]]:
    receiver, stop = Receiver(), threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("127.0.0.1", port))
        end.settimeout(0.05)

        def receive() -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    packet = end.recv(65536)
                    receiver.packets.append((time.perf_counter(), messages_of(packet)))

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        try:
            yield receiver, end.getsockname()[1]
        finally:
            stop.set()
            thread.join()


def places(bones: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Where an engine puts the bones, out of the messages alone."""
    at, turns = {None: bones["root"][0]}, {None: Rotation.from_quat(bones["root"][1])}
    for bone in BONES:
        above = PARENT_BONES[bone]
        at[bone] = at[above] + turns[above].apply(bones[bone][0])
        turns[bone] = turns[above] * Rotation.from_quat(bones[bone][1])
    return at


def sent(q: np.ndarray, root: np.ndarray, **options: object) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Send one pose through a socket, and return what arrived."""
    with receiving() as (receiver, port):
        link = Link(Skeleton.adult(), LinkOptions(Address(port=port), **options))
        link.send(q[None], root[None], 1.5)
        wait_until(receiver.frames)
        link.close()
    return receiver.frames()[0][1]


def test_the_bones_are_unitys():
    limbs = ("Shoulder", "UpperArm", "LowerArm", "Hand", "UpperLeg", "LowerLeg", "Foot", "Toes")
    trunk = {"Hips", "Spine", "Chest", "UpperChest", "Neck", "Head"}
    assert set(BONES) == trunk | {side + part for side in ("Left", "Right") for part in limbs}
    # As Unity's humanoids are built.
    assert PARENT_BONES["LeftShoulder"] == PARENT_BONES["Neck"] == "UpperChest"
    assert PARENT_BONES["RightToes"] == "RightFoot"


@pytest.mark.parametrize("travel", ["root", "hips"])
@pytest.mark.parametrize("bundle", [True, False])
def test_an_engine_sees_what_forward_kinematics_says(
    random_rotations: Callable[..., np.ndarray], travel: str, bundle: bool
):
    skeleton, q, root = Skeleton.adult(), random_rotations(22), np.array([1.0, -2.0, 0.7])
    bones = sent(q, root, travel=travel, bundle=bundle)
    expected = unity_positions(skeleton.forward(q, root))
    seen = places(bones)
    # OSC's floats have 24 bits, and a chain has at most eight bones.
    np.testing.assert_allclose([seen[bone] for bone in BONES], expected, atol=5e-6)
    standing = np.array([0.0, skeleton.standing_height, 0.0])
    where = {"root": (expected[0] - standing, standing), "hips": (np.zeros(3), expected[0])}[travel]
    np.testing.assert_allclose((bones["root"][0], bones["Hips"][0]), where, atol=1e-6)


def test_left_is_left_and_ahead_is_ahead():
    q, root = np.stack([UPRIGHT, *[np.eye(3)] * 21]), np.array([0.0, 0.0, 1.0])
    bones = sent(q, root)
    for bone in BONES:  # a T-pose that faces ahead is Unity's identity
        np.testing.assert_allclose(bones[bone][1] * np.sign(bones[bone][1][3]), [0.0, 0.0, 0.0, 1.0], atol=1e-7)
    rest = places(bones)  # in Unity a character who faces +z has the left hand at -x
    assert rest["LeftHand"][0] < -0.5 < 0.5 < rest["RightHand"][0]
    assert rest["LeftToes"][2] > rest["LeftFoot"][2]
    np.testing.assert_allclose(unity_positions(np.array([0.0, 3.0, 1.0])), [0.0, 1.0, 3.0])


def test_positions_fit_the_hips_of_the_character():
    q, root = np.stack([UPRIGHT, *[np.eye(3)] * 21]), np.array([4.0, 2.0, Skeleton.adult().standing_height])
    seen = places(sent(q, root, hip_height=0.5))
    half = 0.5 / Skeleton.adult().standing_height
    np.testing.assert_allclose(seen["Hips"], [4.0 * half, 0.5, 2.0 * half], atol=1e-6)
    assert abs(seen["LeftToes"][1]) < 0.03


def test_packets_fit_ethernet_and_a_frame_says_when_it_ends():
    messages = [("/VMC/Ext/OK", [1]), ("/VMC/Ext/T", [0.5])] + [
        ("/VMC/Ext/Bone/Pos", ["RightUpperLeg", *[0.1] * 7])
    ] * 23
    found = packets(messages, bundle=True)
    assert len(found) == 3
    assert max(map(len, found)) < 1400
    assert [message for packet in found for message in messages_of(packet)][2][1][0] == "RightUpperLeg"
    assert len(packets(messages, bundle=False)) == 25


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:39539", Address()),
        ("9000", Address(port=9000)),
        ("studio", Address("studio")),
        ("studio:9", Address("studio", 9)),
        ("[::1]:9", Address("::1", 9)),
    ],
)
def test_addresses(text: str, address: Address):
    assert Address.read(text) == address


# --- a stream


def test_60_hz_has_poses_in_between_and_a_restart_is_a_cut(simulator: Simulator):
    session = Session(simulator)
    with receiving() as (receiver, port):
        link = Link(simulator.skeleton, LinkOptions(Address(port=port), rate=60))
        for i in range(6):
            link.show(session.tick(), Status())
            wait_until(lambda sent=2 * i + 1: len(receiver.frames()) == sent)
        session.restart()
        link.show(session.shown, Status())
        wait_until(lambda: len(receiver.frames()) == 12)
        link.close()
    hips = [bones["root"][0] for _, bones in receiver.frames()]
    np.testing.assert_allclose(hips[1], (hips[0] + hips[2]) / 2, atol=1e-6)
    times = [arguments[0] for address, arguments in receiver.messages if address == "/VMC/Ext/T"]
    np.testing.assert_allclose(np.diff(times)[:10], 1 / 60, atol=1e-6)


def test_everybody_has_a_port(simulator: Simulator):
    session = Session(simulator, Setup(scene=Scene((Person("stand"), Person("stand", (2.0, 0.0))))))
    with receiving() as (first, port), receiving(port + 10) as (second, _):
        link = Link(simulator.skeleton, LinkOptions(Address(port=port)))
        link.show(session.tick(), Status())
        wait_until(lambda: first.frames() and second.frames())
        link.close()
    apart = second.frames()[0][1]["root"][0] - first.frames()[0][1]["root"][0]
    assert apart[0] == pytest.approx(2.0, abs=0.3)


def test_a_stream_keeps_its_rate_and_obeys(simulator: Simulator):
    """Seconds of it in real time: the rate, and somebody who stands is walked ahead, pushed and put back by OSC."""
    session = standing(simulator)
    session.tick()
    with receiving() as (receiver, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as remote:
        link = Link(simulator.skeleton, LinkOptions(Address(port=port)))
        loop = Loop(session, link)
        listener = Listener(Address(port=0), loop.commands, lambda _: None)
        loop.start()

        def tell(address: str, *arguments: object) -> None:
            for packet in packets([(address, list(arguments))], bundle=False):
                remote.sendto(packet, ("127.0.0.1", listener.port))

        try:
            tell("/dropsim/walk", 1, 1.3, 0.0)
            wait_until(lambda: session.goals)
            wait_until(lambda: loop.commands.ask(lambda s: s.time) > 3.0, 60)
            # Some people take a step back before they go.
            wait_until(lambda: loop.commands.ask(lambda s: float(s.shown.people.x[0, 0, 1])) > 0.8, 60)
            tell("/dropsim/push", 1, "left", 200.0)
            wait_until(lambda: loop.commands.ask(lambda s: s.recording().motions[0].events))
            tell("/dropsim/restart")
            wait_until(lambda: loop.commands.ask(lambda s: s.time) < 1.0)
        finally:
            loop.stop()
            listener.close()
            link.close()
    times = np.array([when for when, _ in receiver.frames()])
    # Never faster than asked for; a busy machine may be slower.
    assert 0.9 / 30 < np.diff(times)[:80].mean() < 1.0


# --- commands


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("fly", [1]),
        ("walk", []),
        ("walk", [1, math.nan, 0.0]),
        ("walk", [1, "fast", 0.0]),
        ("walk", [0, 1.0, 0.0]),
        ("walk", [1.5, 1.0, 0.0]),
        ("goto", [1, math.inf, 0.0]),
        ("push", [1, "left", True]),
        ("push", [1, "up", 90.0]),
        ("restart", [1, 2]),
    ],
)
def test_nonsense_is_told_how_to_write_it(message: str, arguments: list):
    with pytest.raises(ValueError, match=r"/dropsim/"):
        command_of(f"/dropsim/{message}", arguments)


def test_every_message_of_the_table_works(simulator: Simulator):
    session = standing(simulator)
    for address, arguments, holds in (
        ("walk", [1, 1.0, 30.0], lambda: session.goals == {0: Goal(1.0, 30.0)}),
        ("walk", [1, 340.0, 0.0], lambda: session.goals[0].speed == 4.0),  # nobody walks at the speed of sound
        ("goto", [1, 2.0, 3.0, 1.0], lambda: session.goals == {0: Goal(1.0, place=(2.0, 3.0))}),
        ("free", [1], lambda: not session.goals),
        ("crouch", [1.0, 1], lambda: session.crouched == {0}),
        ("push", [1, "back", 90.0, 0.1], lambda: session.events[-1].duration == 0.1),
        ("restart", [], lambda: not session.events),
        ("pause", [1], lambda: session.paused),
    ):
        command_of(f"/dropsim/{address}", arguments)(session)
        assert holds(), address
    with pytest.raises(ValueError, match="no person"):
        command_of("/dropsim/walk", [2, 1.0, 0.0])(session)


def test_a_flood_and_foreign_bytes_are_dropped(monkeypatch: pytest.MonkeyPatch):
    # The clock of the limit stands still, however long the flood takes.
    monkeypatch.setattr("dropsim.apps.live.time", SimpleNamespace(monotonic=lambda: 0.0))
    commands, said = Commands(), []
    listener = Listener(Address(port=0), commands, said.append)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as remote:
        for junk in (
            b"",
            b"GET / HTTP/1.1\r\n",
            b"#bundle\0" + b"\xff" * 40,
            # An element of -4 bytes, where the library goes round for ever.
            b"#bundle\0" + bytes(8) + b"\xff\xff\xff\xfc/abc",
            b"/dropsim/walk\0\0\0,sss\0",
            b"/a\0\0,f\0\0",
        ):
            remote.sendto(junk, ("127.0.0.1", listener.port))
        (restart,) = packets([("/dropsim/restart", [])], bundle=False)
        for _ in range(3 * COMMANDS_PER_SECOND):
            remote.sendto(restart, ("127.0.0.1", listener.port))
        wait_until(lambda: listener.accepted + listener.dropped >= 2 * COMMANDS_PER_SECOND)
    listener.close()
    # Each piece of junk may have counted as one.
    assert COMMANDS_PER_SECOND - 5 <= listener.accepted <= COMMANDS_PER_SECOND
    assert len(said) <= 1


def test_the_command_streams_and_ends(capsys: pytest.CaptureFixture[str]):
    with receiving() as (receiver, port):
        command = ["live", "stand-still", "--vmc", str(port), "--seconds", "1", "--no-bundle"]
        assert main([*command, "--listen", "0"]) == EXIT_ERROR
        capsys.readouterr()
        began = time.perf_counter()
        assert main(command) == 0
        lasted = time.perf_counter() - began
    assert f"1 person to 127.0.0.1 port {port}" in capsys.readouterr().out
    # A busy machine may send fewer.
    assert 0 < len(receiver.frames()) < 30 * lasted + 1
    assert len(receiver.packets) == len(receiver.messages)
