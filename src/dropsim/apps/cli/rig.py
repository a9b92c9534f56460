"""`dropsim rig`: which joints of a file are which of ours."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dropsim.apps.cli.arguments import RigMapFile, optional, read_map, refuse_output

if TYPE_CHECKING:
    from dropsim.motion.bvh import Rig as FileRig
    from dropsim.motion.retarget import Match


@dataclass(frozen=True)
class Rig:
    """Show which joints of a BVH or GLB file are taken for which of ours, or write that as a map to correct by hand.

    Examples: dropsim rig take.bvh; dropsim rig odd.bvh --save map.toml, then correct map.toml and pass it to clean,
    perturb or convert with --rig map.toml. Joints are found by their names, or else by the structure of the rig: two
    legs and two arms on a spine.
    """

    input: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File to read, .bvh or .glb."""
    save: Annotated[Path | None, optional("MAP.toml", "none")] = None
    """Map to write, filled in as far as the joints were found."""
    rig: RigMapFile = None
    """Map to check against the file."""
    animation: Annotated[str | None, optional("NAME", "the one that moves most joints")] = None
    """Animation of a GLB file."""

    def run(self) -> None:
        """Read, match, and say what was found."""
        from dropsim.files.atomic import write_text
        from dropsim.motion.posture import Posture
        from dropsim.motion.reading import read_rig_motion
        from dropsim.motion.retarget import guess_rig, retarget

        if self.save is not None:
            refuse_output(self.save, self.input)
        source, rig_map = read_rig_motion(self.input, animation=self.animation), read_map(self.rig)
        match, problem = guess_rig(source, rig_map)
        print(_table(match))
        if self.save is not None:
            write_text(self.save, template(match, problem, source.rig, self.input.name))
            print(f"wrote {self.save}: check its lines, then pass it with --rig")
        if problem and self.save is not None:  # a template was asked for and is there: that is no failure
            print(f"not usable yet: {problem}")
            return
        if problem:
            remedy = "write a map with --save map.toml, correct it and pass it with --rig"
            raise ValueError(f"{self.input}: {problem}: {remedy}")
        recording = retarget(source, None, rig_map=rig_map)
        body, unit = recording.motion.skeleton, recording.fit.scale if recording.fit else 1.0
        person = f"a person of {body.height:.2f} m and, of usual build, {body.masses.sum():.0f} kg"
        print(f"{recording.read_as}; {unit:g} m a unit; {person}")
        posture = Posture.of([recording.motion])
        print("; ".join(part for part in (str(posture), posture.remedy) if part))


def _table(match: "Match") -> str:
    from dropsim.body.joints import JOINTS
    from dropsim.files.tables import markdown

    return markdown([("ours", match.rig_map.name), *((joint, match.joints.get(joint, "")) for joint in JOINTS)])


def template(match: "Match", problem: str, rig: "FileRig", name: str) -> str:
    """Return a map as TOML, with the lines that could not be filled in as comments, and the file's joints below."""
    from dropsim.body.joints import JOINTS
    from dropsim.motion.retarget import OPTIONAL

    def line(joint: str) -> str:
        if joint in match.joints:
            return f"{joint} = {json.dumps(match.joints[joint], ensure_ascii=False)}"
        need = "may be left out: it then moves with its parent" if joint in OPTIONAL else "needed"
        return f'# {joint} = "" # {need}'

    depth: list[int] = []
    for parent in rig.parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    problem = f"# Not usable yet: {problem}\n" if problem else ""
    tree = "\n".join(f"# {'  ' * level}{joint}" for level, joint in zip(depth, rig.names, strict=True))
    title = " ".join(name.split())
    lines = "\n".join(map(line, JOINTS))
    begin = f"# Our joints in {title}, found by {match.rig_map.name}. Correct what is wrong.\n{problem}"
    return f"{begin}\n[joints]\n{lines}\n\n# All joints of the file:\n{tree}\n"
