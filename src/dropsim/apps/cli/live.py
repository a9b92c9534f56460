"""`dropsim live`: people streamed to Unity, Unreal, Blender or Godot."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Literal

from dropsim.apps.cli.arguments import PriorOptions, optional
from dropsim.apps.cli.view import LiveOptions, warn_if_public


@dataclass(frozen=True, kw_only=True)
class Live(LiveOptions, PriorOptions):
    """Stream people to Unity, Unreal, Blender or Godot by the VMC protocol, as fast as they move.

    Examples: dropsim live; dropsim live two-people --vmc 192.168.1.20:39539 --rate 60; dropsim live --listen 39540, to
    be steered by OSC. docs/live.md shows how to receive it.
    """

    rate: Literal[30, 60] = 30
    """Poses a second; 60 puts one in the middle of every two."""
    bundle: bool = True
    """Several messages in a packet; some receivers want one message in each."""
    travel: Literal["root", "hips"] = "root"
    """Bone that moves through the world: the root, or the hips for receivers that ignore the root, such as Godot's."""
    hip_height: Annotated[float | None, optional("M", "0.98, our body's")] = None
    """Height of your character's hips at rest [m]; positions are scaled to it."""
    listen: Annotated[str | None, optional("[HOST:]PORT", "off")] = None
    """Take steering, pushes and restarts by OSC at this port, e.g. 39540; from this machine only, unless a host is
    given."""

    def run(self) -> None:
        """Stream until Ctrl-C."""
        self.prepare()
        from dropsim.apps.cli.progress import compiling
        from dropsim.apps.live import LISTEN_PORT, Address, Link, LinkOptions, Listener, osc
        from dropsim.apps.viewer.loop import Loop

        osc()
        options = LinkOptions(Address.read(self.vmc), self.rate, self.bundle, self.travel, self.hip_height)
        # Before anything is compiled: a mistyped host is told at once.
        options.to.socket_address()
        listen = None if self.listen is None else Address.read(self.listen, port=LISTEN_PORT)
        session = self.open_session(*([] if self.prior is None else [self.prior]))
        with compiling():
            session.tick()
        session.restart()
        with ExitStack() as closing:
            link = Link(session.simulator.skeleton, options)
            closing.callback(link.close)
            loop, num = Loop(session, link), len(session.scene.people)
            ports = ", ".join(map(str, options.ports(num)))
            if listen is not None:
                listener = Listener(listen, loop.commands, lambda text: print(f"dropsim: {text}", file=sys.stderr))
                closing.callback(listener.close)
                warn_if_public(listen.host, listen.port, "steer")
            who = f"{num} {'person' if num == 1 else 'people'} to {options.to.host} port {ports}"
            print(f"streaming {who} by VMC, {self.rate} Hz (Ctrl-C ends it)", flush=True)
            if listen is not None:
                print(f"listening for OSC at {listen}", flush=True)
            self.serve(loop)
        print(f"{loop.status.frames} frames, {loop.status.late} late, {link.sent} packets")
