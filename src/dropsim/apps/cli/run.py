"""`dropsim run`: people in a scene, simulated and written to files."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import THE_SCENES, ModelOptions, OutputOptions, optional, read_setup
from dropsim.files.atomic import refuse_read_only

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.physics.contact import Plane
    from dropsim.render import Stage
    from dropsim.scene import Rollout
    from dropsim.scene.files import Setup

SHORT = {
    "start": "person.start",
    "part": "push.part",
    "newtons": "push.newtons",
    "direction": "push.direction",
    "at": "push.start",
    "duration": "push.duration",
    "samples": "simulator.num_samples",
    "method": "simulator.method",
    "seconds": "seconds",
    "seed": "seed",
    "prior": "prior",
    "body": "body",
    "pose": "pose",
}
"""Options that stand for a field of the scene."""
SCENE_TITLE = "## The scene"
"""Title of the part of a report from which a run can be repeated."""
ENDINGS = (".bvh", ".npz", ".png", ".md", ".mp4", ".gif", ".glb", ".toml")
"""Endings of files, where a folder is wanted."""


@dataclass(frozen=True, kw_only=True)
class Run(OutputOptions, ModelOptions):
    """Simulate a scene and write its motions (npz, bvh), a report (md) and a strip of pictures (png).

    Files are named after the scene, and after the seed if it is not the scene's own. Ctrl-C keeps the frames so far.
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
    part: Annotated[str | None, optional("NAME", THE_SCENES)] = None
    """Body part that is pushed: pelvis, torso, hand, foot, or a joint's name."""
    newtons: Annotated[float | None, optional("N", THE_SCENES)] = None
    """Strength of pushes [N]."""
    direction: Annotated[str | None, optional("NAME|DEGREES", THE_SCENES)] = None
    """Direction of pushes: front, back, left, right, or degrees counterclockwise from the front."""
    at: Annotated[float | None, optional("S", THE_SCENES)] = None
    """Time at which pushes begin [s]."""
    duration: Annotated[float | None, optional("S", THE_SCENES)] = None
    """Duration of pushes [s]."""
    seconds: Annotated[float | None, optional("S", THE_SCENES)] = None
    """Length of the simulation [s]."""
    samples: Annotated[int | None, optional("K", THE_SCENES)] = None
    """Candidates of the prior a frame."""
    seed: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Seed of everything random: the same seed gives the same motion."""
    prior: Annotated[str | None, optional("NAME|FILE", "the scene's own, else field")] = None
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""
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
        setup = self._setup()
        stem = setup.name if setup.seed == read_setup(self.scene).seed else f"{setup.name}-{setup.seed}"
        self._refuse_output(setup, stem)
        if self.body is not None:
            from dropsim.priors.named import prior_name

            prior_name(setup.prior or "field", self.body)  # refuses a body that is of no use
        from dropsim.scene import RunInterrupted, WorldDivergedError, run

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
        print(text)
        print(f"wrote {', '.join(written)} to {self.out}")
        if isinstance(failure, RunInterrupted):
            frames = f"the {len(rollout.motions[0])} frames so far"
            print(f"dropsim: interrupted; {frames} are in {self.out}", file=sys.stderr)
            raise failure
        if failure is not None:
            raise ValueError(f"{failure}; the frames up to there are in {self.out}")

    def _refuse_output(self, setup: "Setup", stem: str) -> None:
        """Refuse a folder that is none, and files of another run."""
        if self.out.suffix.lower() in ENDINGS or (self.out.exists() and not self.out.is_dir()):
            raise ValueError(f"--out {self.out}: give a folder; the files in it are named after the scene")
        others = [self.out / name for name in (f"{stem}.md", f"{stem}.npz", f"{stem}_0.npz")]
        others = [path for path in others if path.exists()]
        if others and not self.force and _scene_of(self.out / f"{stem}.md") != _scene_block(setup):
            remedy = "choose another folder with --out, or replace it with --force"
            raise ValueError(f"{others[0]} is of another run: {remedy}")

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


def _scene_block(setup: "Setup") -> str:
    """Return the scene as it stands at the end of a report."""
    from dropsim.scene.files.writing import scene_text

    return f"{SCENE_TITLE}\n\n```toml\n{scene_text(setup, Path().resolve()).strip()}\n```\n"


def _scene_of(report: Path) -> str | None:
    """Return the scene of a report that is there."""
    try:
        _, title, scene = report.read_text(encoding="utf-8").partition(SCENE_TITLE)
    except (OSError, UnicodeDecodeError):
        return None
    return title + scene


def write_rollout(setup: "Setup", rollout: "Rollout", out: Path, stem: str, *, picture: bool) -> tuple[str, list[str]]:
    """Write everybody's motion, the report and the pictures; return the report and the names of the files."""
    from dataclasses import replace

    from dropsim.export.objects import write_objects
    from dropsim.motion.amass import write_amass
    from dropsim.motion.bvh import write_bvh
    from dropsim.render import contact_sheet
    from dropsim.research.evaluation.report import write_text

    written = list[str]()
    for i, motion in enumerate(rollout.motions):
        name = stem if len(rollout.motions) == 1 else f"{stem}_{i}"
        write_amass(replace(motion, name=name), out / f"{name}.npz", seed=setup.seed)
        write_bvh(replace(motion, name=name), out / f"{name}.bvh")
        written += [f"{name}.npz", f"{name}.bvh"]
    (out / f"{stem}_objects.npz").unlink(missing_ok=True)
    if rollout.solids:
        write_objects(rollout.objects, out / f"{stem}_objects.npz", rollout.motions[0].fps)
        written.append(f"{stem}_objects.npz")
    text = report_of(stem, setup.description, rollout)
    write_text(out / f"{stem}.md", f"{text}\n{_scene_block(setup)}")
    written.append(f"{stem}.md")
    # Never next to a picture of another run.
    (out / f"{stem}.png").unlink(missing_ok=True)
    if picture:
        contact_sheet(
            [stage_of(setup, rollout)], out / f"{stem}.png", frames=12, labels=[setup.description or setup.name]
        )
        written.append(f"{stem}.png")
    return text, written


def stage_of(setup: "Setup", rollout: "Rollout") -> "Stage":
    """Put people, balls, obstacles, the targets of drags and the ground on a stage."""
    import numpy as np

    from dropsim.body.skeleton import joint_index
    from dropsim.render import Stage
    from dropsim.scene import Drag, Solid

    objects, fps = list(rollout.objects), rollout.motions[0].fps
    for drag in setup.scene.elements:
        if isinstance(drag, Drag):
            joint = rollout.motions[drag.person].joints[:, joint_index(drag.joint)]
            begin = round(drag.path[0][0] * fps)
            origin = joint[min(begin, len(joint) - 1)] if drag.relative else 0.0
            path = np.array([origin + drag.target(i / fps) for i in range(len(joint))])
            path[:begin] = np.nan
            objects.append(Solid.sphere(0.06, path))
    return Stage(rollout.motions, objects=objects, ground=rollout.ground)


def report_of(name: str, description: str, rollout: "Rollout") -> str:
    """Say in a few lines what happened to everybody, measured against the ground as it was."""
    first = rollout.motions[0]
    about = f"{description}\n\n" if description else ""
    parts = [f"# {name}\n\n{about}{len(first)} frames at {first.fps:g} Hz.\n"]
    for i, motion in enumerate(rollout.motions):
        parts.append(_about(motion, rollout.ground, "The person" if len(rollout.motions) == 1 else f"Person {i}"))
    return "\n".join(parts)


def _about(motion: "Motion", ground: "Plane", who: str) -> str:
    import numpy as np

    from dropsim.files.tables import markdown
    from dropsim.physics import metrics
    from dropsim.scene import above_ground

    seen = above_ground(motion, ground)
    fell = "fell" if metrics.fallen(seen).any() else "did not fall"
    up = "upright" if metrics.upright(seen)[-1] else "not upright"
    rows = [
        ("measure", "value"),
        ("foot skate [m/s]", f"{metrics.foot_skate(seen):.3f}"),
        ("penetration [mm]", f"{metrics.penetration_mm(seen):.2f}"),
        ("largest bone error [%]", f"{metrics.bone_error_percent(motion):.4f}"),
    ]
    if motion.wrench_before is not None and motion.wrench_after is not None:
        means = f"{motion.wrench_before.mean():.3f}, {motion.wrench_after.mean():.3f}"
        rows.append(("root wrench before, after correction [body weights]", means))
    if motion.external_forces is not None:
        largest = np.linalg.norm(motion.external_forces.sum(1), axis=-1).max()
        rows.append(("largest external force [N]", f"{largest:.0f}"))
    rows += [(f"energy {name}, mean [m^2]", f"{values.mean():.3g}") for name, values in sorted(motion.energies.items())]
    text = f"{who} {fell} and is {up} at the end.\n\n{markdown(rows)}\n"
    events = ", ".join(f"{event.start:g} s {event.name}" for event in motion.events)
    return f"{text}\nWhat happened: {events}.\n" if events else text
