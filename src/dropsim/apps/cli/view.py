"""`dropsim view` and `dropsim live`: the simulation in the browser, or streamed to Unity, Unreal, Blender or Godot."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dropsim.apps.cli.arguments import (
    THE_SCENES,
    ModelOptions,
    PriorOptions,
    RandomOptions,
    optional,
    read_setup,
)

if TYPE_CHECKING:
    from dropsim.apps.viewer.loop import Loop
    from dropsim.apps.viewer.session import Session
    from dropsim.priors.prior import Prior


@dataclass(frozen=True, kw_only=True)
class LiveOptions(RandomOptions, ModelOptions):
    """Options of live worlds."""

    scene: Annotated[tyro.conf.Positional[str | None], optional("NAME|FILE.toml", "somebody alone")] = None
    """A ready scenario, which `dropsim scenarios` lists, or a scene file."""
    people: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Number of people."""
    start: Annotated[str | None, optional("NAME", THE_SCENES)] = None
    """Motion of everybody at the start: stand, walk, run or crouch; a wrong name lists what else the prior has."""
    vmc: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")] = "127.0.0.1:39539"
    """Address that the first person is streamed to; each further one goes to a port that is 10 higher."""
    seconds: Annotated[float | None, optional("S", "until Ctrl-C")] = None
    """Time until it ends [s]."""

    def open_session(self, *priors: str) -> "Session":
        """Return a session at the start of the chosen scene, with priors to choose from."""
        from dropsim.apps.viewer.commands import MAX_PEOPLE, do
        from dropsim.apps.viewer.session import Session
        from dropsim.physics.step import Simulator
        from dropsim.priors.named import SHIPPED, open_pose
        from dropsim.scene.files import Setup, changed

        if self.people is not None and not 1 <= self.people <= MAX_PEOPLE:
            raise ValueError(f"--people: a live world has 1 to {MAX_PEOPLE} people, not {self.people}")
        setup = Setup() if self.scene is None else read_setup(self.scene)
        options = {"simulator.method": self.method, "simulator.num_samples": self.samples, "seed": self.seed}
        given = [(path, str(value)) for path, value in options.items() if value is not None]
        setup = changed(setup, given) if given else setup
        # A shipped prior is the scene's alone; a file is there for other scenes too.
        from_scene = () if setup.prior in (None, *SHIPPED) else (setup.prior,)
        choice = openers(priors or from_scene, self.body or setup.body)
        session = Session(
            Simulator(next(iter(choice.values()))(), pose=open_pose(self.pose or setup.pose)), priors=choice
        )
        do(session, "load", replace(setup, prior=None if priors or from_scene else setup.prior))
        if self.people is not None or self.start is not None:
            do(session, "begin", people=self.people, start=self.start)
        return session

    def prepare(self) -> None:
        """Refuse a wrong time, and say that kernels are compiled, before anything long."""
        from dropsim.apps.cli.progress import tell_of_compiling

        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ValueError(f"--seconds has to be above 0, and is {self.seconds:g}")
        tell_of_compiling()

    def compiled_session(self, *priors: str) -> "Session":
        """Return a session at its start, with all compiled and loaded that commands need, before anybody watches."""
        from dropsim.apps.cli.progress import compiling
        from dropsim.apps.viewer.commands import warm_up

        session = self.open_session(*priors)
        with compiling():
            session.tick()
            warm_up(session)
        session.restart()
        return session

    def serve(self, loop: "Loop") -> None:
        """Run a live world until Ctrl-C, or for the seconds that were asked for."""
        try:
            loop.start()
            loop.wait(self.seconds)
        finally:
            loop.stop()


@dataclass(frozen=True, kw_only=True)
class View(LiveOptions):
    """Show a person in the browser whom you can push with the mouse, throw balls at and trip.

    Examples: dropsim view, and then open http://127.0.0.1:8080; dropsim view two-people --port 9000. The live link to
    the address of --vmc is switched on in the app; `dropsim live` streams without a browser.
    """

    prior: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="(default: field)")
    ] = ()
    """Motion priors to choose from: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth; it begins with the first."""
    port: int = 8080
    """Port of the page; 0 for any that is free."""
    host: str = "127.0.0.1"
    """Address to listen at: 127.0.0.1 for this machine only, or 0.0.0.0 for everybody on the network."""

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self.prepare()
        from dropsim.apps.live import Address, LinkOptions
        from dropsim.apps.viewer.app import Browser
        from dropsim.apps.viewer.loop import Commands, Loop
        from dropsim.apps.viewer.server import refuse_busy

        # Before anything is compiled.
        refuse_busy(self.host, self.port)
        link = LinkOptions(Address.read(self.vmc))
        session = self.compiled_session(*self.prior)
        # The first browser starts it.
        session.paused = True
        commands = Commands()
        browser = Browser(session, commands, host=self.host, port=self.port, link=link)
        loop = Loop(session, browser, commands)
        try:
            warn_if_public(self.host, browser.port, "watch and steer")
            name = "localhost" if self.host == "0.0.0.0" else self.host
            print(f"open http://{name}:{browser.port} (Ctrl-C ends it)", flush=True)
            self.serve(loop)
        finally:
            browser.close()
        print(f"{loop.status.frames} frames, {loop.status.late} late")


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
        from dropsim.apps.live import LISTEN_PORT, Address, Link, LinkOptions, Listener, osc
        from dropsim.apps.viewer.loop import Loop

        osc()
        options = LinkOptions(Address.read(self.vmc), self.rate, self.bundle, self.travel, self.hip_height)
        # Before anything is compiled: a mistyped host is told at once.
        options.to.socket_address()
        listen = None if self.listen is None else Address.read(self.listen, port=LISTEN_PORT)
        session = self.compiled_session(*([] if self.prior is None else [self.prior]))
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


def warn_if_public(host: str, port: int, can: str) -> None:
    """Warn that others than this machine can do something."""
    from dropsim.apps.viewer.server import LOCAL_HOSTS

    if host not in LOCAL_HOSTS:
        who = f"anybody who can reach {host} port {port} can {can} this"
        print(f"dropsim: WARNING: {who}: there is no password", file=sys.stderr)


def openers(names: tuple[str, ...], body: str | Path | None) -> "dict[str, Callable[[], Prior]]":
    """Return priors to choose from, each opened when it is first wanted: the given ones, then the package's.

    They are called by their files' names; files of two training runs often share one. A body is for HuMoR's checkpoint.
    """
    from functools import cache, partial

    from dropsim.priors.named import SHIPPED, is_checkpoint, open_prior

    if body is not None and not any(map(is_checkpoint, names)):
        raise ValueError("a body is for HuMoR's checkpoint: give its best_model.pth as a prior, or leave the body out")
    priors: dict[str, Callable[[], Prior]] = {}
    for given in (*names, *(name for name in SHIPPED if name not in names)):
        opened = partial(open_prior, given, body=body if is_checkpoint(given) else None)
        priors[Path(given).name if Path(given).name not in priors else given] = cache(opened)
    return priors
