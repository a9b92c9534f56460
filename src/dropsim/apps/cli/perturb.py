"""`dropsim perturb`: a recording whose person is pushed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import ModelOptions, OutputOptions, PriorName, RigOptions, optional, refuse_output

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.motion.retarget import Recording
    from dropsim.scene import Push

LONGEST = 3600.0
"""[s]"""
AFTERWARD = 4.0
"""Time to simulate after the push begins, unless one is given [s]."""


@dataclass(frozen=True, kw_only=True)
class Perturb(OutputOptions, ModelOptions, RigOptions):
    """Push the person of a recording; from then on the motion prior decides what they do.

    Example: dropsim perturb flip.bvh --newtons 300 --direction left --at 1.5. Writes CLIP_pushed as npz, bvh, md and
    png into a folder. The person has the proportions of the input BVH, and the new one is on its rig: same joints,
    rate, axes and unit, the same frames before the push, and fingers and props as they were. For a GLB it is a GLB with
    the same mesh, materials and other animations.
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CLIP")]
    """Motion to read, .bvh, .glb or .npz."""
    part: str = "torso"
    """Body part that is pushed: pelvis, torso, hand, foot, or a joint's name."""
    newtons: float = 250.0
    """Strength of the push [N]."""
    direction: str = "left"
    """Direction of the push, as the person faces then: front, back, left, right, or degrees counterclockwise from the
    front."""
    at: float = 2.0
    """When the push begins, inside the recording [s]."""
    duration: float = 0.5
    """Duration of the push [s]."""
    seconds: Annotated[float | None, optional("S", "until 4 s after the push begins")] = None
    """Length of the simulation [s]."""
    prior: PriorName = "field"
    """The motion prior: field, cvae, a .bank or .safetensors file, a folder of recordings, or HuMoR's
    best_model.pth."""
    samples: Annotated[int | None, optional("K", "the prior's own")] = None
    """Candidates of the prior a frame."""
    seed: int = 0
    """Seed of everything random: the same seed gives the same motion."""
    height: Annotated[float | None, optional("M", "by the rig's bones; 1.70 for AMASS files")] = None
    """Height of the person [m]."""
    mass: Annotated[float | None, optional("KG", "usual for the height")] = None
    """Mass of the person [kg]."""
    smpl: Annotated[Path | None, optional("FILE", "an adult of average proportions")] = None
    """Your own SMPL, SMPL+H or SMPL-X model file: people of AMASS files have the shape that their betas say."""

    def run(self) -> None:
        """Read, simulate, write, and say what happened."""
        import math
        from dataclasses import replace

        from dropsim.apps.cli.progress import bar, tell_of_compiling
        from dropsim.motion.reading import Person, read_person
        from dropsim.physics.options import SimulatorOptions
        from dropsim.physics.step import DivergedError, Simulator
        from dropsim.priors.named import for_body, open_pose, open_prior
        from dropsim.scene import Scene
        from dropsim.scene.cleaning import checked, own_floor, perturb

        seconds = self.at + AFTERWARD if self.seconds is None else self.seconds
        if not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
            raise ValueError(f"seconds must be between 0 and {LONGEST:g}, not {seconds:g}")
        self._push()  # refuses a wrong push before a long file is read
        prior, pose = open_prior(self.prior, body=self.body), open_pose(self.pose)
        source = read_person(self.input, Person(self.height, self.mass, self.smpl), **self.reading())
        body = source.motion.skeleton
        print(f"read {self.input}: {source.read_as}; a person of {body.height:.2f} m and {body.masses.sum():.0f} kg")
        original = checked(source.motion) if source.fit is None else own_floor(source.motion)
        options = SimulatorOptions(num_samples=self.samples)
        free = Simulator(for_body(prior, original.skeleton), options=options, pose=pose)
        recording = original.resampled(prior.fps)
        scene = Scene(elements=(self._push(self._turned(recording)),))
        self.out.mkdir(parents=True, exist_ok=True)
        for path in self._files().values():
            refuse_output(path, self.input)
        failure: DivergedError | None = None
        tell_of_compiling()
        with bar("frames") as advance:
            try:
                motion = perturb(
                    recording, scene, free, handover=self.at, seconds=seconds, seed=self.seed, watch=advance
                )
            except DivergedError as error:
                if error.motion is None:
                    raise
                failure, motion = error, error.motion
        self._write(replace(motion, name=f"{self.input.stem}_pushed"), recording)
        self._write_rigged(motion, original, source)
        print(f"wrote {', '.join(path.name for path in self._files().values())} to {self.out}")
        if failure is not None:
            raise ValueError(f"{failure}; the frames up to there are in {self.out}")

    def _files(self) -> dict[str, Path]:
        rigged = "glb" if self.input.suffix.lower() == ".glb" else "bvh"
        endings = ("npz", rigged, "md", "png") if self.picture else ("npz", rigged, "md")
        return {ending: self.out / f"{self.input.stem}_pushed.{ending}" for ending in endings}

    def _turned(self, recording: "Motion") -> float:
        """Return the direction that the person of the recording faces when the push begins [degrees from +y]."""
        import math

        from dropsim.scene.perturbations import ahead_of

        frame = round(self.at * recording.fps)
        if not 1 <= frame < len(recording):
            inside = f"the recording goes on from 0 to {recording.duration:.2f} s: choose a time inside it"
            raise ValueError(f"{self.input}: the push begins at {self.at:g} s, and {inside}")
        x, y = ahead_of(recording.q[frame]).tolist()
        return math.degrees(math.atan2(y, x)) - 90.0

    def _push(self, turned: float = 0.0) -> "Push":
        """Return the push on somebody who faces a direction [degrees from +y]."""
        from dropsim.scene import Push
        from dropsim.scene.perturbations import degrees_of

        direction = str(degrees_of(self.direction) + turned)
        return Push.toward(direction, self.newtons, part=self.part, start=self.at, duration=self.duration)

    def _write(self, motion: "Motion", recording: "Motion") -> None:
        """Write the motion, the report and the pictures."""
        from dropsim.apps.cli.run import report_of
        from dropsim.motion.amass import write_amass
        from dropsim.physics.contact import Plane
        from dropsim.render import contact_sheet
        from dropsim.research.evaluation.report import write_text
        from dropsim.scene import Rollout
        from dropsim.scene.cleaning import FEW_FRAMES, quality_of, table_of

        files = self._files()
        write_amass(motion, files["npz"], seed=self.seed)
        label = f"{self.input.name}, {self.newtons:g} N {self.direction} on the {self.part} at {self.at:g} s."
        text = report_of(motion.name, label, Rollout((motion,), (), Plane.ground()))
        until = min(len(motion), round(self.at * motion.fps) + 1)
        if until >= FEW_FRAMES:
            followed, shown = motion.slice(0, until), recording.slice(0, until)
            columns = {"recording": quality_of(shown, shown), "followed": quality_of(followed, shown)}
            text += f"\nUntil the push:\n\n{table_of(columns)}\n"
        write_text(files["md"], text)
        if self.picture:
            contact_sheet([motion], files["png"], frames=24, labels=[label])
        print(text)

    def _write_rigged(self, motion: "Motion", original: "Motion", source: "Recording") -> None:
        """Write the motion onto the input's own rig, or onto our joints where it has none."""
        from dropsim.motion.bvh import write_bvh
        from dropsim.scene.cleaning import continued

        if source.fit is None:
            return write_bvh(motion, self._files()["bvh"])
        output, raised = self._files()[source.fit.ending[1:]], original.root[0] - source.motion.root[0]
        return source.fit.write(continued(original, motion, self.at), output, raised=raised)
