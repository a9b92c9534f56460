"""`dropsim live`: people streamed to Unity, Unreal, Blender or Godot."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import BodyFile, optional


@dataclass(frozen=True)
class Live:
    """Stream people to Unity, Unreal, Blender or Godot by the VMC protocol, as fast as they move.

    Examples: dropsim live; dropsim live two-people --vmc 192.168.1.20:39539 --rate 60; dropsim live --listen 39540, to
    be steered by OSC. docs/live.md shows how to receive it.
    """

    scene: Annotated[tyro.conf.Positional[str | None], optional("NAME|FILE.toml", "somebody alone")] = None
    """A ready scenario, which `dropsim scenarios` lists, or a scene file."""
    vmc: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")] = "127.0.0.1:39539"
    """Where the first person goes; each further one goes to a port that is 10 higher."""
    seconds: Annotated[float | None, optional("S", "until Ctrl-C")] = None
    """How long to stream [s]."""
    rate: Literal[30, 60] = 30
    """Poses a second; 60 puts one in the middle of every two."""
    bundle: bool = True
    """Several messages in a packet; some receivers want one message in each."""
    travel: Literal["root", "hips"] = "root"
    """What moves through the world: the character's root, or its hips, for receivers that ignore the root, such as
    Godot's."""
    hip_height: Annotated[float | None, optional("M", "0.98, our body's")] = None
    """How high your character's hips are at rest [m]; positions are scaled to it."""
    listen: Annotated[str | None, optional("[HOST:]PORT", "off")] = None
    """Take steering, pushes and restarts by OSC at this port, e.g. 39540; from this machine only, unless a host is
    given."""
    seed: Annotated[int | None, optional("INT", "the scene's own")] = None
    """Of everything random."""
    people: Annotated[int | None, optional("INT", "the scene's own")] = None
    """How many people."""
    start: Annotated[str | None, optional("NAME", "the scene's own")] = None
    """What they are doing at first: stand, walk, run or crouch; what else there is depends on the prior, and a wrong
    name lists it."""
    prior: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = "field"
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""
    body: BodyFile = None
    """SMPL's file of the body that HuMoR was trained on."""

    def run(self) -> None:
        """Stream until Ctrl-C."""
        from dropsim.apps.cli.progress import compiling, tell_of_compiling
        from dropsim.apps.cli.view import View

        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ValueError(f"--seconds has to be above 0, and is {self.seconds:g}")
        tell_of_compiling()
        from dropsim.apps.live import LISTEN_PORT, Address, Link, LinkOptions, Listener, osc, said_by
        from dropsim.apps.viewer.loop import Loop
        from dropsim.apps.viewer.server import LOCAL_HOSTS

        osc()
        options = LinkOptions(Address.read(self.vmc), self.rate, self.bundle, self.travel, self.hip_height)
        # Before anything is compiled: a mistyped host is told at once.
        options.to.socket_address()
        listen = None if self.listen is None else Address.read(self.listen, port=LISTEN_PORT)
        session = View(
            self.scene, seed=self.seed, people=self.people, start=self.start, prior=(self.prior,), body=self.body
        ).session()
        with compiling():
            session.tick()
        session.restart()
        link = Link(session.simulator.skeleton, options)
        loop, listener = Loop(session, link), None
        try:
            if listen is not None:
                listener = Listener(
                    listen, loop.commands, lambda message: print(f"dropsim: {message}", file=sys.stderr)
                )
                if listen.host not in LOCAL_HOSTS:
                    print(
                        f"dropsim: WARNING: anybody who can reach {listen} can steer this: there is no password",
                        file=sys.stderr,
                    )
            print(f"streaming {said_by(session, options)} by VMC, {self.rate} Hz (Ctrl-C ends it)", flush=True)
            if listener is not None:
                print(f"listening for OSC at {listen}", flush=True)
            loop.start()
            loop.wait(self.seconds)
        finally:
            loop.stop()
            if listener is not None:
                listener.close()
            link.close()
        print(f"{loop.status.frames} frames, {loop.status.late} late, {link.sent} packets")
