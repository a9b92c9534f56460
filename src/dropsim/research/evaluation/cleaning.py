"""How well `clean` cleans: recordings and copies of them with known defects, measured against the originals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from dropsim.body.joints import JOINTS, NUM_JOINTS
from dropsim.body.rotations import rotvec_to_rotmat
from dropsim.motion import cmu
from dropsim.motion.contacts import FEET
from dropsim.motion.feet import stances
from dropsim.motion.glitches import ROOT, Glitch
from dropsim.motion.motion import Motion
from dropsim.motion.reading import read_recording
from dropsim.research.evaluation.harness import Watch
from dropsim.research.evaluation.report import Report, Table
from dropsim.scene.cleaning import Cleaned, clean, own_floor, quality_of

SHORTEST, LONGEST = 2.0, 10.0
"""Shorter recordings are left out, mostly sprints, in which no foot stands; of longer ones the middle is taken [s]."""
MANY = 40
"""Recordings, spread evenly over the people."""
DRIFT, RISE = (0.06, 0.18), 0.03
"""Speed of a drifting root [m/s], and height of a floating person above the floor [m]."""
GLITCH_EVERY, GLITCH_FRAMES = 2.0, (1, 4)
"""Time from one glitch to the next [s], and how many frames one lasts."""
GLITCH_TURN, GLITCH_SHIFT = (np.deg2rad(25.0), np.deg2rad(60.0)), (0.08, 0.2)
"""Turn of a joint that jumps [rad], and way of a pelvis that does [m]."""
SKATE, DISTANCE = "foot skate [m/s]", "distance from the recording, mean [cm]"
"""Two of the measures of `dropsim clean`."""
SPOILS = ("as recorded", "drifting", "wandering", "floating", "glitches")
"""Defects that are put in: none, a root that drifts at a constant velocity or at one that turns and swells every few
seconds, a person who rises during the first half (a constant lift would be another floor), and joints that jump."""


def spoil(name: str, motion: Motion, rng: np.random.Generator) -> tuple[Motion, list[Glitch]]:
    """Put a defect into a recording."""
    if name == "glitches":
        return glitchy(motion, rng)
    frames, by = np.arange(len(motion)), np.zeros((len(motion), 3))
    match name:
        case "drifting":
            angle = rng.uniform(0, 2 * np.pi)
            velocity = rng.uniform(*DRIFT) * np.array([np.cos(angle), np.sin(angle), 0.0])
            by = velocity * frames[:, None] / motion.fps
        case "wandering":
            phases, periods, speed = rng.uniform(0, 2 * np.pi, 2), rng.uniform(4.0, 8.0, 2), rng.uniform(*DRIFT)
            velocity = speed * np.cos(2 * np.pi * (frames / motion.fps)[:, None] / periods + phases)
            by[:, :2] = np.cumsum(velocity, axis=0) / motion.fps
        case "floating":
            by[:, 2] = RISE * np.clip(frames / (len(motion) / 2), 0, 1)
    return replace(motion, root=motion.root + by, joints=motion.joints + by[:, None]), []


def glitchy(motion: Motion, rng: np.random.Generator) -> tuple[Motion, list[Glitch]]:
    """Turn one joint, or move the pelvis, for a few frames every two seconds."""
    q, root, glitches = motion.q.copy(), motion.root.copy(), []
    joints = [j for j in range(NUM_JOINTS) if not JOINTS[j].endswith(("collar", "foot"))]
    for second in np.arange(GLITCH_EVERY / 2, motion.duration - 0.5, GLITCH_EVERY):
        start = int((second + rng.uniform(0, 0.5)) * motion.fps)
        stop = start + int(rng.integers(GLITCH_FRAMES[0], GLITCH_FRAMES[1] + 1))
        axis = rng.standard_normal(3)
        axis /= np.linalg.norm(axis)
        if rng.random() < 0.2:
            size, joint = float(rng.uniform(*GLITCH_SHIFT)), ROOT
            root[start:stop] += size * axis
        else:
            size, joint = float(rng.uniform(*GLITCH_TURN)), int(rng.choice(joints))
            q[start:stop, joint] = q[start:stop, joint] @ rotvec_to_rotmat(size * axis)
        glitches.append(Glitch(joint, start, stop, size))
    return Motion.from_rotations(motion.skeleton, motion.fps, root, q, name=motion.name), glitches


def measures_of(motion: Motion, unspoilt: Motion, standing: Bool[np.ndarray, "t 2"]) -> dict[str, float]:
    """Measure a motion next to the unspoilt recording; `standing` says when that recording's feet stand."""
    both = standing[1:] & standing[:-1]
    slides = np.linalg.norm(np.diff(motion.joints[:, FEET, :2], axis=0), axis=-1)[both] * motion.fps
    slide = {"slide of standing feet [m/s]": float(slides.mean())} if len(slides) else {}
    return quality_of(replace(motion, skeleton=unspoilt.skeleton), unspoilt, standing=standing) | slide


@dataclass(frozen=True)
class Row:
    """One recording, spoilt in one way."""

    clip: str
    spoil: str
    unspoilt: Mapping[str, float]
    before: Mapping[str, float]
    after: Mapping[str, float]
    put_in: int = 0
    """Glitches that were put in."""
    mended: int = 0
    """Glitches of those that were mended in all of their frames."""
    others: int = 0
    """Glitches that were mended and not put in."""


def recordings(folder: Path, people: str, many: int = MANY) -> list[Path]:
    """Return BVH files of CMU people, one of each person in turn: of people on whom nothing was chosen, or of others.

    Recordings that CMU's table calls damaged are left out.
    """
    by_person: dict[int, list[Path]] = {}
    for path in sorted(folder.rglob("*.bvh")):
        known = cmu.clip_table().get(path.stem)
        if known is None or known.glitch or known.left_out or known.frames / known.fps < SHORTEST:
            continue
        if known.for_evaluation == (people == "unseen"):
            by_person.setdefault(cmu.subject(path.stem), []).append(path)
    if not by_person:
        raise ValueError(f"{folder}: holds no BVH files of CMU's {people} people, such as 02_01.bvh")
    # Neighbours in number are often of one kind, so each person's are taken in an order of chance.
    ordered = [
        [files[k] for k in np.random.default_rng(person).permutation(len(files))]
        for person, files in sorted(by_person.items())
    ]
    turns = [path for turn in zip_longest(*ordered) for path in turn if path]
    return sorted(turns[:many])


def evaluate_cleaning(files: Sequence[Path], *, strength: str = "normal", seed: int = 0, watch: Watch = None) -> Report:
    """Clean recordings as they are and after each defect was put in."""
    rows: list[Row] = []
    for done, path in enumerate(files):
        rows += evaluate_recording(path, strength=strength, spoils=SPOILS, seed=seed)
        if watch:
            watch(done + 1, len(files))
    tables = {"cleaning": Table("Means over the recordings: unspoilt, before, after", table(rows))}
    caption = f"{len(files)} recordings: {', '.join(path.stem for path in files)}"
    return Report("cleaning", "Cleaning", tables, {"rows": [asdict(row) for row in rows]}, caption=caption)


def evaluate_recording(path: Path, *, strength: str, spoils: Iterable[str], seed: int) -> list[Row]:
    """Clean one recording; the same seed gives it the same defects, whatever else is measured."""
    whole = read_recording(path, None).motion
    most = round(LONGEST * whole.fps)
    start = max(0, (len(whole) - most) // 2)
    unspoilt = own_floor(whole.slice(start, start + most))
    standing = np.zeros((len(unspoilt), 2), dtype=bool)
    for stance in stances(unspoilt):
        standing[stance.start : stance.stop, stance.foot] = True
    at_first = measures_of(unspoilt, unspoilt, standing)
    rows = []
    for name in spoils:
        rng = np.random.default_rng([seed, *path.stem.encode(), *name.encode()])
        spoilt, glitches = spoil(name, unspoilt, rng)
        cleaned = clean(own_floor(spoilt), strength=strength)
        before, after = (measures_of(motion, unspoilt, standing) for motion in (spoilt, cleaned.motion))
        rows.append(Row(path.stem, name, at_first, before, after, *_counted(glitches, cleaned)))
    return rows


def _counted(glitches: Sequence[Glitch], cleaned: Cleaned) -> tuple[int, int, int]:
    mended = {(g.joint, frame) for g in cleaned.glitches for frame in range(g.start, g.stop)}
    whole = sum(all((g.joint, frame) in mended for frame in range(g.start, g.stop)) for g in glitches)
    put_in = {(g.joint, frame) for g in glitches for frame in range(g.start - 1, g.stop + 1)}
    others = sum((g.joint, g.start) not in put_in for g in cleaned.glitches)
    return len(glitches), whole, others


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Lay out means over the recordings, and the glitches."""
    groups = {name: [row for row in rows if row.spoil == name] for name in dict.fromkeys(row.spoil for row in rows)}
    lines = [["measure", *groups]]
    for measure in dict.fromkeys(name for row in rows for name in row.unspoilt):
        cells = []
        for some in groups.values():
            stages = [(row.unspoilt, row.before, row.after) for row in some if measure in row.after]
            means = np.mean([[stage[measure] for stage in each] for each in stages], axis=0)
            cells.append(", ".join(f"{mean:.3g}" for mean in means))
        lines.append([measure, *cells])
    counts = [np.sum([(row.put_in, row.mended, row.others) for row in some], 0) for some in groups.values()]
    cells = [", ".join(map(str, numbers)) for numbers in counts]
    return [*lines, ["glitches: put in, of them mended, others mended", *cells]]
