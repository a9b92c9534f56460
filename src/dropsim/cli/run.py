"""`dropsim run`: a person in a scene, simulated and written to files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class Run:
    """Simulate a scene and write its motion (npz, bvh) and a report.

    Example: dropsim run push --start walk --part torso --newtons 250 --direction left --out out
    """

    scene: tyro.conf.Positional[Literal["push"]]
    """Which scene: push is a person who is pushed once."""
    start: str = "walk"
    """What the person is doing, a category of the bank of starts."""
    part: str = "torso"
    """Where the push acts: pelvis, torso, hand, foot, or a joint's name."""
    newtons: float = 250.0
    """How strong the push is [N]."""
    direction: str = "left"
    """Where the push drives the person: front, back, left, right, or degrees counterclockwise from the front."""
    at: float = 2.0
    """When the push begins [s]."""
    duration: float = 0.5
    """How long the push lasts [s]."""
    seconds: float = 6.0
    """How long to simulate [s]."""
    samples: int = 64
    """K, candidates of the prior a frame."""
    seed: int = 0
    out: Path = Path("out")
    """Folder to write to."""
    picture: bool = True
    """Also draw a strip of pictures."""

    def run(self) -> None:
        """Simulate, write, and say what was written."""
        import math
        from dataclasses import replace

        from dropsim.cli.progress import bar
        from dropsim.data.amass import write_amass
        from dropsim.data.bvh import write_bvh
        from dropsim.energies.physical import RangeOfMotion
        from dropsim.files import atomic_path
        from dropsim.pose_prior import PosePrior
        from dropsim.prior import Streams
        from dropsim.priors.cvae import CVAEPrior
        from dropsim.render import contact_sheet
        from dropsim.scene import Push, Scene
        from dropsim.simulator import DivergedError, Simulator, simulate

        if not (math.isfinite(self.seconds) and 0 < self.seconds <= 3600):
            raise ValueError(f"seconds must be between 0 and 3600, not {self.seconds:g}")
        push = Push.toward(self.direction, self.newtons, part=self.part, start=self.at, duration=self.duration)
        prior = CVAEPrior.shipped()
        simulator = Simulator(prior, range_of_motion=RangeOfMotion(PosePrior.shipped()), num_samples=self.samples)
        scene = Scene(pushes=(push,), fps=prior.fps)
        frames, first = round(self.seconds * prior.fps), prior.start(self.start, seed=self.seed)
        self.out.mkdir(parents=True, exist_ok=True)
        failure: DivergedError | None = None
        with bar("frames") as advance:
            try:
                motion = simulate(simulator, first, frames, Streams(self.seed), world=scene, watch=advance)
            except DivergedError as error:
                if error.motion is None:
                    raise
                failure, motion = error, error.motion
        motion = replace(motion, events=scene.events, name=self.scene)
        write_amass(motion, self.out / f"{self.scene}.npz", seed=self.seed)
        write_bvh(motion, self.out / f"{self.scene}.bvh")
        text = report_of(motion, push.start + push.duration)
        with atomic_path(self.out / f"{self.scene}.md") as temporary:
            temporary.write_text(text, encoding="utf-8")
        written = [f"{self.scene}.npz", f"{self.scene}.bvh", f"{self.scene}.md"]
        if self.picture:
            contact_sheet(
                [motion],
                self.out / f"{self.scene}.png",
                frames=12,
                labels=[f"{self.start}, {self.newtons:g} N {self.direction} on the {self.part}"],
            )
            written.append(f"{self.scene}.png")
        print(text)
        print(f"wrote {', '.join(written)} to {self.out}")
        if failure is not None:
            raise ValueError(f"{failure}; the frames up to there are in {self.out}")


def report_of(motion: object, push_end: float) -> str:
    """Say in a few lines what happened to the person."""
    from dropsim import metrics
    from dropsim.motion import Motion

    assert isinstance(motion, Motion)
    assert motion.root_wrench is not None
    after = min(round(push_end * motion.fps), len(motion) - 1)
    fell = bool(metrics.fallen(motion)[after:].any())
    end = "upright" if bool(metrics.upright(motion)[-1]) else "not upright"
    wrench = motion.root_wrench.mean(0)
    lines = [
        f"# {motion.name}", "",
        f"{len(motion)} frames at {motion.fps:g} Hz. The person {'fell' if fell else 'did not fall'} and is {end} at the end.", "",
        "| measure | value |", "|---|---|",
        f"| foot skate [m/s] | {float(metrics.foot_skate(motion)):.3f} |",
        f"| penetration [mm] | {float(metrics.penetration_mm(motion)):.2f} |",
        f"| largest bone error [%] | {float(metrics.bone_error_percent(motion)):.4f} |",
        f"| root wrench before, after correction [body weights] | {float(wrench[0]):.3f}, {float(wrench[1]):.3f} |",
    ]  # fmt: skip
    lines += [f"| energy {name}, mean [m^2] | {float(values.mean()):.3g} |" for name, values in sorted(motion.energies.items())]
    return "\n".join(lines) + "\n"
