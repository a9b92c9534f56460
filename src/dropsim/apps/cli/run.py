"""`dropsim run`, `demo` and `scenarios`: people in a scene, simulated and written to files."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import THE_SCENES, SimulationOptions, optional, read_setup
from dropsim.files.atomic import refuse_read_only

if TYPE_CHECKING:
    from dropsim.scene.files import Setup

SHORT = {
    "start": "person.start",
    **{name: f"push.{name}" for name in ("part", "newtons", "direction", "duration")},
    "at": "push.start",
    "samples": "simulator.num_samples",
    "method": "simulator.method",
    **{name: name for name in ("seconds", "seed", "prior", "body", "pose")},
}
"""Options that stand for a field of the scene."""
ENDINGS = (".bvh", ".npz", ".png", ".md", ".mp4", ".gif", ".glb", ".toml")
"""Endings of files, where a folder is wanted."""


@dataclass(frozen=True, kw_only=True)
class Run(SimulationOptions):
    """Simulate a scene and write its motions (npz, bvh), a report (md) and a strip of pictures (png).

    Files are named after the scene, and after the seed and the prior that are given. Ctrl-C keeps the frames so far.
    Examples: dropsim run trip --seed 3; dropsim run push --part torso --newtons 250 --direction left; dropsim run
    my-scene.toml --out out
    """

    scene: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME|FILE.toml")]
    """A ready scenario, which `dropsim scenarios` lists, or a scene file."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH=VALUE")] = ()
    """Change any field of the scene, e.g. --set push.0.part=hand, or push.part for all pushes. May be repeated."""
    save: Annotated[Path | None, optional("FILE.toml", "simulate")] = None
    """Write the scene to this .toml file, to be edited, instead of simulating it."""
    start: Annotated[str | None, optional("NAME", THE_SCENES)] = None
    """Motion of everybody at the start: stand, walk, run or crouch; a wrong name lists what else the prior has."""
    seconds: Annotated[float | None, optional("S", THE_SCENES)] = None
    """Length of the simulation [s]."""
    force: bool = False
    """Replace the files of another run."""

    def run(self) -> None:
        """Simulate, write, and say what was written."""
        from dropsim.apps.cli.progress import bar, compiling, tell_of_compiling

        if self.save is not None:
            from dropsim.scene.files import write_scene

            write_scene(self._setup(), self.save)
            print(f"wrote {self.save}: run it with `dropsim run {self.save}`")
            return
        tell_of_compiling()
        from dropsim.apps.outputs import has_scene, write_rollout
        from dropsim.priors.named import prior_name
        from dropsim.scene import RunInterrupted, WorldDivergedError, run

        setup = self._setup()
        other_seed = () if setup.seed == read_setup(self.scene).seed else (str(setup.seed),)
        other_prior = () if self.prior is None else (Path(self.prior).stem,)
        stem = "-".join((setup.name, *other_seed, *other_prior))
        if self.out.suffix.lower() in ENDINGS or (self.out.exists() and not self.out.is_dir()):
            raise ValueError(f"--out {self.out}: give a folder; the files in it are named after the scene")
        others = [self.out / name for name in (f"{stem}.md", f"{stem}.npz", f"{stem}_0.npz")]
        others = [path for path in others if path.exists()]
        if others and not self.force and not has_scene(self.out / f"{stem}.md", setup):
            remedy = "choose another folder with --out, or replace it with --force"
            raise ValueError(f"{others[0]} is of another run: {remedy}")
        if self.body is not None:
            prior_name(setup.prior or "field", self.body)  # refuses a body that is of no use
        _tell_of_missed(setup)
        world = setup.world()
        start = world.start(setup.seed)
        self.out.mkdir(parents=True, exist_ok=True)
        refuse_read_only(self.out)
        failure: WorldDivergedError | RunInterrupted | None = None
        with compiling():
            world.step(start, world.streams(setup.seed))
        with bar("frames") as advance:
            try:
                rollout = run(world, setup.num_frames(world.fps), setup.seed, start=start, watch=advance)
            except (WorldDivergedError, RunInterrupted) as error:
                failure, rollout = error, error.rollout
        text, written = write_rollout(setup, rollout, self.out, stem, picture=self.picture)
        print(f"{text}\nwrote {', '.join(written)} to {self.out}")
        if isinstance(failure, RunInterrupted):
            frames = f"the {len(rollout.motions[0])} frames so far"
            print(f"dropsim: interrupted; {frames} are in {self.out}", file=sys.stderr)
            raise failure
        if failure is not None:
            raise ValueError(f"{failure}; the frames up to there are in {self.out}")

    def _setup(self) -> "Setup":
        """Return the scene with the fields that the options change."""
        from dropsim.scene.files import changed

        options = {path: (f"--{name}", getattr(self, name)) for name, path in SHORT.items()}
        for one in self.set:
            path, equals, value = (part.strip() for part in one.partition("="))
            if not equals:
                raise ValueError(f"--set {one}: write a path, = and a value, such as --set push.part=hand")
            options[path] = (f"--set {path}", value)
        given = [(path, str(value)) for path, (_, value) in options.items() if value is not None]
        return changed(read_setup(self.scene), given, said=lambda path: f"{options[path][0]}: ")


def _tell_of_missed(setup: "Setup") -> None:
    """Say which events come after the end of the run."""
    events = (event for i in range(len(setup.scene.people)) for event in setup.scene.events_of(i))
    for start, name in sorted({(event.start, event.name) for event in events}):
        if start >= setup.seconds:
            end = f"never happens: the run ends at {setup.seconds:g} s"
            print(f"dropsim: {name} at {start:g} s {end}", file=sys.stderr)


@dataclass(frozen=True)
class Demo:
    """Push a walking person, and write the motion, a report and a strip of pictures; and a recording to try things on.

    Example: dropsim demo --seed 2
    """

    out: Path = Path("out")
    """Folder to write to; made when it is missing."""
    seed: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Seed of everything random: another seed is another person."""
    force: bool = False
    """Replace the files of another run."""

    def run(self) -> None:
        """Run the push scene with its defaults, and let somebody walk undisturbed."""
        Run(scene="push", seed=self.seed, out=self.out, force=self.force).run()
        from dropsim.motion.bvh import write_bvh
        from dropsim.scene import run

        walk, sample = read_setup("follow"), self.out / "recordings" / "walk.bvh"
        sample.parent.mkdir(exist_ok=True)
        write_bvh(run(walk.world(), 300, walk.seed).motions[0], sample)
        print(f"wrote {sample}, a recording to push, clean or build a bank from")
        pictures = sorted(self.out.glob("push*.png"), key=lambda path: path.stat().st_mtime)[-1]
        print(f"open {pictures} to see it, or run `dropsim view` and open http://127.0.0.1:8080")


@dataclass(frozen=True)
class Scenarios:
    """List the ready scenarios, with a sentence each.

    Example: dropsim scenarios; then: dropsim run trip, or dropsim view trip
    """

    def run(self) -> None:
        """Print a line for each."""
        from dropsim.scene.scenarios import SCENARIOS

        width = max(map(len, SCENARIOS))
        for name, setup in SCENARIOS.items():
            print(f"{name:{width}}  {setup.description}")
