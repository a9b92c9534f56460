"""`dropsim perturb`: a recording whose person is pushed."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import RigOptions, SimulationOptions, optional, refuse_output

if TYPE_CHECKING:
    from dropsim.motion.motion import Motion
    from dropsim.scene import Push

LONGEST = 3600.0
"""[s]"""
AFTERWARD = 4.0
"""Time to simulate after the push begins, unless one is given [s]."""


@dataclass(frozen=True, kw_only=True)
class Perturb(SimulationOptions, RigOptions):
    """Push the person of a recording; from then on the motion prior decides what they do.

    Example: dropsim perturb flip.bvh --newtons 300 --direction left --at 1.5. Writes CLIP_pushed as npz, bvh, md and
    png into a folder. The person has the proportions of the input BVH, and the new one is on its rig: same joints,
    rate, axes and unit, the same frames before the push, and fingers and props as they were. For a GLB it is a GLB with
    the same mesh, materials and other animations.
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CLIP")]
    """Motion to read, .bvh, .glb or .npz."""
    seconds: Annotated[float | None, optional("S", "until 4 s after the push begins")] = None
    """Length of the simulation [s]."""
    height: Annotated[float | None, optional("M", "by the rig's bones; 1.70 for AMASS files")] = None
    """Height of the person [m]."""
    mass: Annotated[float | None, optional("KG", "usual for the height")] = None
    """Mass of the person [kg]."""
    smpl: Annotated[Path | None, optional("FILE", "an adult of average proportions")] = None
    """Your own SMPL, SMPL+H or SMPL-X model file: people of AMASS files have the shape that their betas say."""

    def run(self) -> None:
        """Read, simulate, write, and say what happened."""
        from dropsim.apps.cli.progress import bar, tell_of_compiling
        from dropsim.motion.bvh import write_bvh
        from dropsim.motion.reading import Person, read_person
        from dropsim.physics.options import SimulatorOptions
        from dropsim.physics.step import DivergedError, Simulator
        from dropsim.priors.named import for_body, open_pose, open_prior
        from dropsim.scene import Scene
        from dropsim.scene.cleaning import checked, continued, own_floor, perturb

        at = 2.0 if self.at is None else self.at
        seconds = at + AFTERWARD if self.seconds is None else self.seconds
        if not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
            raise ValueError(f"seconds must be between 0 and {LONGEST:g}, not {seconds:g}")
        self._push(at)  # refuses a wrong push before a long file is read
        prior, pose = open_prior(self.prior or "field", body=self.body), open_pose(self.pose)
        source = read_person(self.input, Person(self.height, self.mass, self.smpl), **self.reading())
        body = source.motion.skeleton
        print(f"read {self.input}: {source.read_as}; a person of {body.height:.2f} m and {body.masses.sum():.0f} kg")
        original = checked(source.motion) if source.fit is None else own_floor(source.motion)
        options = SimulatorOptions(num_samples=self.samples)
        free = Simulator(for_body(prior, original.skeleton), options=options, pose=pose)
        recording = original.resampled(prior.fps)
        push, label = self._push(at, recording)
        rigged = "glb" if self.input.suffix.lower() == ".glb" else "bvh"
        endings = ("npz", rigged, "md", "png") if self.picture else ("npz", rigged, "md")
        files = [self.out / f"{self.input.stem}_pushed.{ending}" for ending in endings]
        self.out.mkdir(parents=True, exist_ok=True)
        for path in files:
            refuse_output(path, self.input)
        failure: DivergedError | None = None
        tell_of_compiling()
        with bar("frames") as advance:
            how = {"handover": at, "seconds": seconds, "seed": self.seed or 0, "watch": advance}
            try:
                motion = perturb(recording, Scene(elements=(push,)), free, **how)
            except DivergedError as error:
                if error.motion is None:
                    raise
                failure, motion = error, error.motion
        motion = replace(motion, name=f"{self.input.stem}_pushed")
        self._write(motion, recording.slice(0, round(at * motion.fps) + 1), label, files)
        # Onto the input's own rig, or onto our joints if it has none.
        if source.fit is None:
            write_bvh(motion, files[1])
        else:
            raised = original.root[0] - source.motion.root[0]
            source.fit.write(continued(original, motion, at), files[1], raised=raised)
        print(f"wrote {', '.join(path.name for path in files)} to {self.out}")
        if failure is not None:
            raise ValueError(f"{failure}; the frames up to there are in {self.out}")

    def _push(self, at: float, recording: "Motion | None" = None) -> "tuple[Push, str]":
        """Return the push at a time [s], turned as the person of the recording faces then, and a sentence on it."""
        from dropsim.scene import Push
        from dropsim.scene.perturbations import ahead_of, degrees_of

        part, way = self.part or "torso", self.direction or "left"
        newtons, turned = 250.0 if self.newtons is None else self.newtons, 0.0
        if recording is not None:
            frame = round(at * recording.fps)
            if not 1 <= frame < len(recording):
                inside = f"the recording goes on from 0 to {recording.duration:.2f} s: choose a time inside it"
                raise ValueError(f"{self.input}: the push begins at {at:g} s, and {inside}")
            x, y = ahead_of(recording.q[frame]).tolist()
            turned = math.degrees(math.atan2(y, x)) - 90.0
        lasts = 0.5 if self.duration is None else self.duration
        push = Push.toward(str(degrees_of(way) + turned), newtons, part=part, start=at, duration=lasts)
        return push, f"{self.input.name}, {newtons:g} N {way} on the {part} at {at:g} s."

    def _write(self, motion: "Motion", shown: "Motion", label: str, files: list[Path]) -> None:
        """Write the motion, the report and the pictures; `shown` is the recording up to the push."""
        from dropsim.apps.outputs import report_of
        from dropsim.files.atomic import write_text
        from dropsim.motion.amass import write_amass
        from dropsim.physics.contact import Plane
        from dropsim.render import contact_sheet
        from dropsim.scene import Rollout
        from dropsim.scene.cleaning import FEW_FRAMES, quality_of, table_of

        write_amass(motion, files[0], seed=self.seed or 0)
        text = report_of(motion.name, label, Rollout((motion,), (), Plane.ground()))
        until = min(len(motion), len(shown))
        if until >= FEW_FRAMES:
            shown = shown.slice(0, until)
            columns = {"recording": quality_of(shown, shown), "followed": quality_of(motion.slice(0, until), shown)}
            text += f"\nUntil the push:\n\n{table_of(columns)}\n"
        write_text(files[2], text)
        for path in files[3:]:
            contact_sheet([motion], path, frames=24, labels=[label])
        print(text)
