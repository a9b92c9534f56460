"""Files of a run or of the live app: everybody's motion, a report, pictures; and the stage on which a run is drawn."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dropsim.apps.viewer.session import Recording
from dropsim.body.skeleton import joint_index
from dropsim.export import write
from dropsim.export.people import write_objects
from dropsim.files.atomic import write_text
from dropsim.files.tables import markdown
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.contact import Plane
from dropsim.render import Stage, Style, contact_sheet, video
from dropsim.scene import Drag, Rollout, Solid, above_ground
from dropsim.scene.files import Setup, scene_text, write_scene

SCENE_TITLE = "## The scene"
"""Title of the part of a report from which a run can be repeated."""


def _scene_block(setup: Setup) -> str:
    """Return the scene as it stands at the end of a report."""
    return f"{SCENE_TITLE}\n\n```toml\n{scene_text(setup, Path().resolve()).strip()}\n```\n"


def has_scene(report: Path, setup: Setup) -> bool:
    """Tell whether a report is there and is of a scene."""
    try:
        return report.read_text(encoding="utf-8").endswith(_scene_block(setup))
    except (OSError, UnicodeDecodeError):
        return False


def write_rollout(setup: Setup, rollout: Rollout, out: Path, stem: str, *, picture: bool) -> tuple[str, list[str]]:
    """Write everybody's motion, the report and the pictures; return the report and the names of the files."""
    # No picture or objects of another run stay next to this one's files.
    for name in (f"{stem}_objects.npz", f"{stem}.png"):
        (out / name).unlink(missing_ok=True)
    paths = [path for kind in ("npz", "bvh") for path in _write_each(rollout, out, stem, kind, setup.seed)]
    written = [path.name for path in paths]
    text = report_of(stem, setup.description, rollout)
    write_text(out / f"{stem}.md", f"{text}\n{_scene_block(setup)}")
    written.append(f"{stem}.md")
    if picture:
        label = setup.description or setup.name
        contact_sheet([stage_of(setup, rollout)], out / f"{stem}.png", frames=12, labels=[label])
        written.append(f"{stem}.png")
    return text, written


def stage_of(setup: Setup, rollout: Rollout) -> Stage:
    """Put people, balls, obstacles, the targets of drags and the ground on a stage."""
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


def report_of(name: str, description: str, rollout: Rollout) -> str:
    """Say in a few lines what happened to everybody, measured against the ground as it was."""
    first = rollout.motions[0]
    about = f"{description}\n\n" if description else ""
    parts = [f"# {name}\n\n{about}{len(first)} frames at {first.fps:g} Hz.\n"]
    for i, motion in enumerate(rollout.motions):
        parts.append(_about(motion, rollout.ground, "The person" if len(rollout.motions) == 1 else f"Person {i}"))
    return "\n".join(parts)


def _about(motion: Motion, ground: Plane, who: str) -> str:
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


KINDS = ("bvh", "glb", "npz", "mp4", "toml")
"""File formats that can be saved."""


def files_of(recording: Recording, kind: str, **film: Any) -> list[tuple[str, bytes]]:  # noqa: ANN401, as video has them
    """Return names and contents: one file for everybody, or one per person if the format holds only one.

    `film` are options of `dropsim.render.video`: the camera, and what is told of the progress.
    """
    if kind not in KINDS:
        raise ValueError(f"there are no {kind!r} files to save: use one of {', '.join(KINDS)}")
    motions, seed, name = recording.motions, recording.setup.seed, recording.setup.name
    if len(motions[0]) < 2:
        raise ValueError("there is nothing to save yet: let it run for a moment")
    with tempfile.TemporaryDirectory(prefix="dropsim-") as folder:
        path = Path(folder) / f"{name}.{kind}"
        paths = [path]
        if kind == "mp4":
            people = [replace(motion, name=f"person {i}") for i, motion in enumerate(motions, start=1)]
            stage = Stage(people, recording.ghost, recording.objects, recording.ground)
            video(stage, path, style=Style(size=(848, 480)), **film)
        elif kind == "toml":
            write_scene(recording.setup, path)
        elif kind == "glb":
            write(motions, path, ground=recording.ground, seed=seed, objects=recording.objects)
        else:
            paths = _write_each(recording, path.parent, name, kind, seed)
        return [(one.name, one.read_bytes()) for one in paths]


def _write_each(rollout: Rollout, folder: Path, stem: str, kind: str, seed: int) -> list[Path]:
    """Write a file for each person, numbered if there are several, and with npz the objects; return the files."""
    paths = list[Path]()
    for i, motion in enumerate(rollout.motions):
        name = stem if len(rollout.motions) == 1 else f"{stem}_{i}"
        paths.append(folder / f"{name}.{kind}")
        write(replace(motion, name=name), paths[-1], seed=seed)
    if kind == "npz" and rollout.solids:
        paths.append(folder / f"{stem}_objects.npz")
        write_objects(rollout.objects, paths[-1], rollout.motions[0].fps)
    return paths
