"""`dropsim view`: the simulation in the browser."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import optional

if TYPE_CHECKING:
    from dropsim.apps.viewer.session import Session
    from dropsim.priors.prior import Prior


@dataclass(frozen=True)
class View:
    """Show a person in the browser whom you can push with the mouse, throw balls at and trip.

    Examples: dropsim view, and then open http://127.0.0.1:8080; dropsim view two-people --port 9000
    """

    scene: Annotated[tyro.conf.Positional[str | None], optional("NAME|FILE.toml", "somebody alone")] = None
    """A ready scenario, which `dropsim scenarios` lists, or a scene file."""
    port: int = 8080
    """Where the page is; 0 for any that is free."""
    host: str = "127.0.0.1"
    """Who can reach it: this machine only, or 0.0.0.0 for everybody on the network."""
    seed: Annotated[int | None, optional("INT", "the scene's own")] = None
    """Of everything random."""
    people: Annotated[int | None, optional("INT", "the scene's own")] = None
    """How many people."""
    start: Annotated[str | None, optional("NAME", "the scene's own")] = None
    """What they are doing at first: stand, walk, run, jump, turn, crouch, get up, dance or sport."""
    prior: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="(default: the shipped one)")] = ()
    """Motion priors to choose from: field, cvae, a .bank or .safetensors file, or a folder of recordings; it begins with the first."""
    samples: Annotated[int | None, optional("K", "the scene's own")] = None
    """Candidates of the prior a frame."""
    seconds: Annotated[float | None, optional("S", "until Ctrl-C")] = None
    """How long to serve [s]."""

    def run(self) -> None:
        """Serve until Ctrl-C."""
        from dropsim.apps.cli.progress import compiling, tell_of_compiling

        tell_of_compiling()
        from dropsim.apps.viewer.app import Browser
        from dropsim.apps.viewer.loop import Commands, Loop
        from dropsim.apps.viewer.server import LOCAL_HOSTS
        from dropsim.apps.viewer.session import MAX_PEOPLE

        if self.people is not None and not 1 <= self.people <= MAX_PEOPLE:
            raise ValueError(f"--people: the browser app shows 1 to {MAX_PEOPLE} people, not {self.people}")
        session = self._session()
        # Compile and load everything before anybody watches.
        with compiling():
            session.tick()
        session.restart()
        # The first browser starts it.
        session.pause(True)
        commands = Commands()
        browser = Browser(session, commands, host=self.host, port=self.port)
        loop = Loop(session, browser, commands)
        try:
            if self.host not in LOCAL_HOSTS:
                who = f"anybody who can reach {self.host} port {browser.port} can watch and steer this"
                print(f"dropsim: WARNING: {who}: there is no password", file=sys.stderr)
            print(f"open http://{'localhost' if self.host == '0.0.0.0' else self.host}:{browser.port} (Ctrl-C ends it)", flush=True)
            loop.start()
            loop.wait(self.seconds)
        finally:
            loop.stop()
            browser.close()
        status = loop.status
        print(f"{status.frames} frames, {status.late} late")

    def _session(self) -> "Session":
        """Session at the start of the chosen scene."""
        from dataclasses import replace

        from dropsim.apps.viewer.session import Session
        from dropsim.physics.step import Simulator
        from dropsim.scene.files import Setup, read_scene
        from dropsim.scene.scenarios import scenario

        setup = Setup()
        if self.scene is not None:
            setup = read_scene(Path(self.scene)) if self.scene.lower().endswith(".toml") else scenario(self.scene)
        if self.samples is not None:
            setup = replace(setup, simulator=replace(setup.simulator, num_samples=self.samples))
        if self.seed is not None:
            setup = replace(setup, seed=self.seed)
        priors = self._priors()
        session = Session(Simulator(next(iter(priors.values()))), priors=priors)
        session.load(setup)
        if self.people is not None or self.start is not None:
            session.begin(people=self.people, start=self.start)
        return session

    def _priors(self) -> "dict[str, Prior]":
        """Priors to choose from: the given ones in order, then the shipped one."""
        from dropsim.priors.named import open_prior

        shipped = open_prior("cvae")
        found: dict[str, Prior] = {}
        for given in self.prior:
            # Files of two training runs often share a name.
            name = Path(given).name if Path(given).name not in found else given
            found[name] = shipped if given == "cvae" else _fitting(open_prior(given), given, shipped)
        return {**found, "cvae": shipped}


def _fitting(prior: "Prior", name: str, shipped: "Prior") -> "Prior":
    """Refuse a prior with another body or rate than the shipped one, with which it can be exchanged while the app runs."""
    import numpy as np

    if not np.allclose(prior.skeleton.rest, shipped.skeleton.rest, atol=1e-4) or prior.fps != shipped.fps:
        raise ValueError(f"{name}: this prior has another body or rate than the shipped one, which the app offers next to it")
    return prior
