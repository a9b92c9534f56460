"""`dropsim run`: people in a scene, simulated and written to files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import optional
from dropsim.files.atomic import refuse_read_only

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.physics.collider import Plane
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
    "seconds": "seconds",
    "seed": "seed",
}
"""Options that stand for a field of the scene."""
THE_SCENES = "the scene's own"


@dataclass(frozen=True)
class Run:
    """Simulate a scene and write its motions (npz, bvh), a report (md) and a strip of pictures (png).

    Examples: dropsim run trip --seed 3; dropsim run push --part torso --newtons 250 --direction left; dropsim run my-scene.toml --out out
    """

    scene: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME|FILE.toml")]
    """A ready scenario, which `dropsim scenarios` lists, or a scene file."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH=VALUE")] = ()
    """Change any field of the scene, e.g. --set push.0.part=hand, or push.part for all pushes. May be repeated."""
    save: Annotated[Path | None, optional("FILE.toml", "simulate")] = None
    """Write the scene to this .toml file, to be edited, instead of simulating it."""
    start: Annotated[str | None, optional("NAME", THE_SCENES)] = None
    """What everybody is doing: stand, walk, run, jump, turn, crouch, get up, dance or sport."""
    part: Annotated[str | None, optional("NAME", THE_SCENES)] = None
    """Where pushes act: pelvis, torso, hand, foot, or a joint's name."""
    newtons: Annotated[float | None, optional("N", THE_SCENES)] = None
    """How strong pushes are [N]."""
    direction: Annotated[str | None, optional("NAME|DEGREES", THE_SCENES)] = None
    """Where pushes drive the person: front, back, left, right, or degrees counterclockwise from the front."""
    at: Annotated[float | None, optional("S", THE_SCENES)] = None
    """When pushes begin [s]."""
    duration: Annotated[float | None, optional("S", THE_SCENES)] = None
    """How long pushes last [s]."""
    seconds: Annotated[float | None, optional("S", THE_SCENES)] = None
    """How long to simulate [s]."""
    samples: Annotated[int | None, optional("K", THE_SCENES)] = None
    """Candidates of the prior a frame."""
    seed: Annotated[int | None, optional("INT", THE_SCENES)] = None
    """Of everything random: the same seed gives the same motion."""
    out: Path = Path("out")
    """Folder to write to."""
    picture: bool = True
    """Also draw a strip of pictures."""

    def run(self) -> None:
        """Simulate, write, and say what was written."""
        setup = self._setup()
        if self.save is not None:
            from dropsim.scene.files import write_scene

            write_scene(setup, self.save)
            print(f"wrote {self.save}: run it with `dropsim run {self.save}`")
            return
        from dropsim.apps.cli.progress import bar, tell_of_compiling
        from dropsim.scene import WorldDivergedError, run

        world = setup.world()
        start = world.start(setup.seed)
        self.out.mkdir(parents=True, exist_ok=True)
        refuse_read_only(self.out)
        failure: WorldDivergedError | None = None
        tell_of_compiling()
        with bar("frames") as advance:
            try:
                take = run(world, setup.num_frames(world.fps), setup.seed, start=start, watch=advance)
            except WorldDivergedError as error:
                failure, take = error, error.take
        text, written = write_take(setup, take, self.out, picture=self.picture)
        print(text)
        print(f"wrote {', '.join(written)} to {self.out}")
        if failure is not None:
            raise ValueError(f"{failure}; the frames up to there are in {self.out}")

    def _setup(self) -> "Setup":
        """Read or look up the scene, and change what the options say."""
        from dropsim.scene.files import changed, read_scene
        from dropsim.scene.scenarios import scenario

        setup = read_scene(Path(self.scene)) if self.scene.lower().endswith(".toml") else scenario(self.scene)
        options = {path: (f"--{name}", str(value)) for name, path in SHORT.items() if (value := getattr(self, name)) is not None}
        for one in self.set:
            path, equals, value = one.partition("=")
            if not equals:
                raise ValueError(f"--set {one}: write a path, = and a value, such as --set push.part=hand")
            options[path.strip()] = (f"--set {path.strip()}", value.strip())
        return changed(setup, [(path, value) for path, (_, value) in options.items()], said=lambda path: f"{options[path][0]}: ")


def write_take(setup: "Setup", take: "Take", out: Path, *, picture: bool) -> tuple[str, list[str]]:
    """Write everybody's motion, the report and the pictures; return the report and the names of the files."""
    from dataclasses import replace

    from dropsim.apps.cli.progress import tell_of_simple_figures
    from dropsim.files.atomic import atomic_path
    from dropsim.motion.amass import write_amass
    from dropsim.motion.bvh import write_bvh
    from dropsim.render import contact_sheet

    written = list[str]()
    for i, motion in enumerate(take.motions):
        stem = setup.name if len(take.motions) == 1 else f"{setup.name}_{i}"
        motion = replace(motion, name=stem)
        write_amass(motion, out / f"{stem}.npz", seed=setup.seed)
        write_bvh(motion, out / f"{stem}.bvh")
        written += [f"{stem}.npz", f"{stem}.bvh"]
    text = report_of(setup.name, setup.description, take)
    with atomic_path(out / f"{setup.name}.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    written.append(f"{setup.name}.md")
    if picture:
        contact_sheet([stage_of(setup, take)], out / f"{setup.name}.png", frames=12, labels=[setup.description or setup.name])
        written.append(f"{setup.name}.png")
        tell_of_simple_figures()
    return text, written


def stage_of(setup: "Setup", take: "Take") -> "Stage":
    """Put everybody, the balls and obstacles, the points that joints are drawn to and the ground on a stage."""
    import torch

    from dropsim.body.skeleton import joint_index
    from dropsim.render import Sphere, Stage
    from dropsim.scene import Drag

    spheres = [Sphere(balls.centres, float(balls.radii[0])) for balls in take.balls]
    first = take.motions[0]
    for drag in setup.scene.elements:
        if isinstance(drag, Drag):
            joints = take.motions[drag.person].joints[:, joint_index(drag.joint)]
            begin = round(drag.path[0][0] * first.fps)
            origin = joints[min(begin, len(joints) - 1)] if drag.relative else torch.zeros_like(joints[0])
            path = torch.stack([origin + drag.target(i / first.fps) for i in range(len(joints))])
            path[:begin] = torch.nan
            spheres.append(Sphere(path, 0.06))
    return Stage(take.motions, spheres=spheres, ground=take.ground)


def report_of(name: str, description: str, take: "Take") -> str:
    """Say in a few lines what happened to everybody, measured against the ground as it was."""
    first = take.motions[0]
    lines = [f"# {name}", "", *([description, ""] if description else []), f"{len(first)} frames at {first.fps:g} Hz.", ""]
    for i, motion in enumerate(take.motions):
        lines += _about(motion, take.ground, "The person" if len(take.motions) == 1 else f"Person {i}")
    return "\n".join(lines).rstrip() + "\n"


def _about(motion: "Motion", ground: "Plane", who: str) -> Sequence[str]:
    from dropsim.physics import metrics
    from dropsim.scene import above_ground

    seen = above_ground(motion, ground)
    events = [f"{event.start:g} s {event.name}" for event in motion.events]
    fell, end = bool(metrics.fallen(seen).any()), bool(metrics.upright(seen)[-1])
    lines = [
        f"{who} {'fell' if fell else 'did not fall'} and is {'upright' if end else 'not upright'} at the end.", "",
        "| measure | value |", "|---|---|",
        f"| foot skate [m/s] | {float(metrics.foot_skate(seen)):.3f} |",
        f"| penetration [mm] | {float(metrics.penetration_mm(seen)):.2f} |",
        f"| largest bone error [%] | {float(metrics.bone_error_percent(motion)):.4f} |",
    ]  # fmt: skip
    if motion.root_wrench is not None:
        before, after = motion.root_wrench.mean(0).tolist()
        lines.append(f"| root wrench before, after correction [body weights] | {before:.3f}, {after:.3f} |")
    if motion.external_forces is not None:
        lines.append(f"| largest external force [N] | {float(motion.external_forces.sum(1).norm(dim=-1).max()):.0f} |")
    lines += [f"| energy {name}, mean [m^2] | {float(values.mean()):.3g} |" for name, values in sorted(motion.energies.items())]
    if events and who in ("The person", "Person 0"):
        lines += ["", f"What happened: {', '.join(events)}."]
    return [*lines, ""]
