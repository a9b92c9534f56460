"""`dropsim view`: the simulation in the browser."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import BodyFile, PoseFile, optional

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
    """What they are doing at first: stand, walk, run or crouch; what else there is depends on the prior, and a wrong
    name lists it."""
    prior: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="(default: field)")
    ] = ()
    """Motion priors to choose from: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth; it begins with the first."""
    body: BodyFile = None
    """SMPL's file of the body that HuMoR was trained on."""
    pose: PoseFile = None
    """The model of natural poses: VPoser's checkpoint or folder, or a .safetensors file."""
    samples: Annotated[int | None, optional("K", "the scene's own")] = None
    """Candidates of the prior a frame."""
    vmc: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")] = "127.0.0.1:39539"
    """Where the live link streams to once it is switched on in the app; `dropsim live` streams without a browser."""
    seconds: Annotated[float | None, optional("S", "until Ctrl-C")] = None
    """How long to serve [s]."""

    def run(self) -> None:
        """Serve until Ctrl-C."""
        from dropsim.apps.cli.progress import compiling, tell_of_compiling, told_if_long

        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ValueError(f"--seconds has to be above 0, and is {self.seconds:g}")
        tell_of_compiling()
        from dropsim.apps.live import Address, LinkOptions
        from dropsim.apps.viewer.app import Browser
        from dropsim.apps.viewer.loop import Commands, Loop
        from dropsim.apps.viewer.server import LOCAL_HOSTS, refuse_busy

        # Before anything is compiled.
        refuse_busy(self.host, self.port)
        link = LinkOptions(Address.read(self.vmc))
        session = self.session()
        # Compile and load everything before anybody watches.
        with compiling():
            session.tick()
        session.restart()
        with told_if_long("compiling what boxes, balls and slopes need, once, about 20 s"):
            session.warm_up()
        # The first browser starts it.
        session.pause(True)
        commands = Commands()
        browser = Browser(session, commands, host=self.host, port=self.port, link=link)
        loop = Loop(session, browser, commands)
        try:
            if self.host not in LOCAL_HOSTS:
                who = f"anybody who can reach {self.host} port {browser.port} can watch and steer this"
                print(f"dropsim: WARNING: {who}: there is no password", file=sys.stderr)
            print(
                f"open http://{'localhost' if self.host == '0.0.0.0' else self.host}:{browser.port} (Ctrl-C ends it)",
                flush=True,
            )
            loop.start()
            loop.wait(self.seconds)
        finally:
            loop.stop()
            browser.close()
        status = loop.status
        print(f"{status.frames} frames, {status.late} late")

    def session(self) -> "Session":
        """Session at the start of the chosen scene."""
        from dataclasses import replace

        from dropsim.apps.viewer.session import MAX_PEOPLE, Session
        from dropsim.physics.step import Simulator
        from dropsim.priors.named import open_pose
        from dropsim.scene.files import Setup, read_scene
        from dropsim.scene.scenarios import scenario

        if self.people is not None and not 1 <= self.people <= MAX_PEOPLE:
            raise ValueError(f"--people: a live world has 1 to {MAX_PEOPLE} people, not {self.people}")
        setup = Setup()
        if self.scene is not None:
            setup = read_scene(Path(self.scene)) if self.scene.lower().endswith(".toml") else scenario(self.scene)
        if self.samples is not None:
            setup = replace(setup, simulator=replace(setup.simulator, num_samples=self.samples))
        if self.seed is not None:
            setup = replace(setup, seed=self.seed)
        given = self.prior or (() if setup.prior is None else (setup.prior,))
        priors = Priors(given, self.body or setup.body)
        session = Session(
            Simulator(next(iter(priors.values())), pose=open_pose(self.pose or setup.pose)), priors=priors
        )
        session.load(setup)
        if self.people is not None or self.start is not None:
            session.begin(people=self.people, start=self.start)
        return session


def _name_of(given: str, taken: Mapping[str, str]) -> str:
    """Return what a prior is called in the app; files of two training runs often share a name."""
    return Path(given).name if Path(given).name not in taken else given


class Priors(Mapping[str, "Prior"]):
    """Priors to choose from, each opened when it is first wanted; they have one body and rate."""

    def __init__(self, given: Sequence[str], body: str | Path | None = None) -> None:
        """Take the given ones in their order, then those that come with the package; a body is HuMoR's."""
        from dropsim.priors.named import SHIPPED, is_checkpoint

        if body is not None and not any(map(is_checkpoint, given)):
            raise ValueError(
                "a body is for HuMoR's checkpoint: give its best_model.pth as a prior, or leave the body out"
            )
        self._given: dict[str, str] = {}
        self._body = body
        for one in (*given, *(name for name in SHIPPED if name not in given)):
            if one in given or _is_shipped(one):
                self._given[_name_of(one, self._given)] = one
        self._opened: dict[str, Prior] = {}

    def __getitem__(self, name: str) -> "Prior":
        if name not in self._opened:
            self._opened[name] = self._open(self._given[name])
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def _open(self, given: str) -> "Prior":
        import numpy as np

        from dropsim.priors.named import is_checkpoint, open_prior

        prior = open_prior(given, body=self._body if is_checkpoint(given) else None)
        first = next(iter(self._opened.values()), None)
        if first is not None and (
            prior.fps != first.fps or not np.allclose(prior.skeleton.rest, first.skeleton.rest, atol=1e-4)
        ):
            raise ValueError(
                f"{given} has another body or rate than the prior that the app began with: start the app with it alone"
            )
        return prior


def _is_shipped(name: str) -> bool:
    """Tell whether the package holds a prior's file; one that was built without the recordings has no motion field."""
    import importlib.resources

    return name != "field" or (importlib.resources.files("dropsim") / "assets" / "recordings.bank").is_file()
