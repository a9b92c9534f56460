"""The data set: a folder of recordings turned into clean, labelled clips at one rate, split by person.

Bad frames are masked, so that a recording becomes its runs of good frames; `read_clips` reads them.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from dropsim.body.skeleton import Skeleton
from dropsim.files.atomic import write_text
from dropsim.files.tables import markdown
from dropsim.motion import cmu
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.contacts import UPRIGHT, grounded, label_contacts, on_floor, out_of_floor, runs, sphere_heights
from dropsim.motion.defects import intact, mend
from dropsim.motion.motion import Motion
from dropsim.motion.reading import ENDINGS, read_recording
from dropsim.motion.retarget import RigMap

FPS = 30.0
"""Rate of the training data [Hz]."""
MIN_SECONDS = 1.0
"""Shortest run of good frames [s]."""
MAX_STEP = 0.5
"""Largest step of a joint that did not jump [m]; 15 m/s."""
MAX_KINK = 0.4
"""Largest change of a joint's step from one frame to the next, if it did not jump [m]; 360 m/s^2."""
MARGIN = 2
"""Frames on either side of a jump or of a broken pose that are left out too."""
MAX_FLOAT_SECONDS = 0.9
"""Longest flight [s]; people who are off the floor for longer stand on something."""
FLOAT_HEIGHT = 0.10
"""Height of the lowest sphere of people off the floor [m]."""
SINK_HEIGHT, LOW_SINK_HEIGHT = 0.12, 0.25
"""Deeper than this in the floor is no floor: for people on their feet, and for those who lie, sit or crawl [m]."""
MAX_SINK_SECONDS = 0.3
"""Longest time below the floor [s]."""
LOW = 0.45
"""Height of the pelvis below which people are on the ground: they lie, sit, kneel, crawl or squat [m]."""

JUMPS, BROKEN = "glitch: a joint jumps", "broken: joints turned further than any body's"
FLOATS, SINKS = "not flat: stands on something", "not flat: goes below its floor"
SHORT = f"shorter than {MIN_SECONDS:g} s"

CATEGORIES: tuple[tuple[str, str], ...] = (
    ("get up", r"get(ting)? up|\blay|\blie|\blying|crawl|(?<!st)roll|(?<!foot)fall|floor|slip|summersult|somersault"),
    ("run", r"(?<!d)run|jog|sprint"),
    ("jump", r"jump|(?<!c)(?<!s)hop|leap|skip|flip|cartwheel|acrobat|handstand|kickflip"),
    ("dance", r"(?<!avoi)danc|salsa|arabesque|jete|charleston|lindy|ballet|pirouette|breakdance|spin"),
    ("turn", r"turn|pivot|degree|\b(90|180|270|360)\b|veer|circle|figure ?8|zig ?zag|whirl"),
    ("crouch", r"duck|crouch|sneak|creep|bend|squat|pick|lift|limbo|\bbow|curtsey|scoop"),
    ("sport", r"basketball|soccer|golf|baseball|football|frisbee|box(ing)?\b|punch|kick"),
    ("sport", r"block|throw|catch|dribble|sword|martial"),
    ("walk", r"walk|march|step|stride|stroll|wander|navigate|carry|suitcase|defensive|follow path"),
    ("stand", r"stand|wait|talk|story|wave|gesture|signal|direct|phone|static|pose|stretch|drink"),
    ("stand", r"wash|teapot|range ?of ?motion|conversation"),
)
"""Motion categories and the words of a description that tell them, the first match counting."""

SITTING = re.compile(r"\b(sits?|sitting)\b")
SITTING_HEIGHT = 0.3
"""Height of the pelvis above which people sit on something that the recording does not show [m]."""
UNSEEN = "not flat: leans or sits on something unseen"


@dataclass(frozen=True)
class Clip:
    """One line of the index: a run of good frames, or the frames of a recording that were left out for one reason."""

    name: str
    """Name of the recording, with @ and the first frame where it has several runs."""
    person: str
    category: str
    frames: int
    held_out: bool = False
    left_out: str = ""
    """Reason why these frames are not in the data set; empty where they are."""
    recording: str = ""
    """File name without its ending."""
    start: int = 0
    """First frame, counted at the data set's rate."""
    low: int = 0
    """Frames with the pelvis below LOW."""
    read_as: str = ""
    """Rig and up axis of the file."""

    @property
    def source(self) -> str:
        """Rig of the file, which tells collections of recordings apart."""
        return self.read_as.partition(",")[0].removeprefix("rig ") or "unknown"


def category_of(description: str) -> str:
    """Return the motion category that a description's words tell."""
    text = description.lower()
    return next((name for name, pattern in CATEGORIES if re.search(pattern, text)), "other")


def _long_runs(flags: Bool[np.ndarray, "t"], longest: float) -> Bool[np.ndarray, "t"]:
    """Keep the stretches of true values that are longer than so many frames."""
    long = np.zeros_like(flags)
    for start, stop in runs(flags):
        long[start:stop] = stop - start > longest
    return long


def _widened(flags: Bool[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    """Mark MARGIN frames on either side too."""
    return np.convolve(flags, np.ones(2 * MARGIN + 1))[MARGIN : MARGIN + len(flags)] > 0.5


def _pose_faults(motion: Motion) -> dict[str, Bool[np.ndarray, "t"]]:
    """Return the frames that are wrong whatever the floor is."""
    step = np.diff(motion.joints, axis=0)
    jumps = np.zeros(len(motion), dtype=bool)
    far = np.linalg.norm(step, axis=-1).max(-1) > MAX_STEP
    jumps[1:] |= far
    jumps[:-1] |= far
    jumps[1:-1] |= np.linalg.norm(np.diff(step, axis=0), axis=-1).max(-1) > MAX_KINK
    return {JUMPS: _widened(jumps), BROKEN: _widened(~intact(motion.q))}


def find_faults(motion: Motion) -> dict[str, Bool[np.ndarray, "t"]]:
    """Return the frames of a motion on z = 0 that are no data, by reason; a frame has one reason at most."""
    lowest = sphere_heights(motion).min(-1)
    deepest = np.where(motion.root[:, 2] > UPRIGHT, SINK_HEIGHT, LOW_SINK_HEIGHT)
    faults = _pose_faults(motion) | {
        FLOATS: _long_runs(lowest > FLOAT_HEIGHT, MAX_FLOAT_SECONDS * motion.fps),
        SINKS: _long_runs(lowest < -deepest, MAX_SINK_SECONDS * motion.fps),
    }
    good = ~np.any(list(faults.values()), axis=0)
    faults[SHORT] = good & ~_long_runs(good, MIN_SECONDS * motion.fps)
    seen = np.zeros(len(motion), dtype=bool)
    for reason, flags in faults.items():
        faults[reason], seen = flags & ~seen, seen | flags
    return faults


def words_of(name: str) -> str:
    """Return what a recording shows, by CMU's table or by its name."""
    if info := cmu.clip_table().get(name):
        return info.description.partition("(")[0]
    return re.sub(r"_|(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9])(?=[A-Z])", " ", name)


_STYLE_WAYS = {"F": "forward", "B": "backward", "S": "sideways", "W": "walk", "R": "run", "I": "stand", "D": "idle"}


def _person_and_category(name: str, rig: str = "") -> tuple[str, str]:
    person, _, rest = name.partition("_")
    if rig == "100style":  # STYLE_XY, all of one actor
        return "100style", category_of(" ".join(_STYLE_WAYS.get(letter, letter) for letter in rest))
    category, info = category_of(words_of(name)), cmu.clip_table().get(name)
    # What the subject does in general, where the clip's own words say nothing.
    return person, category_of(info.description) if info and category == "other" else category


def read_clips(path: str | Path, *, rig_map: RigMap | None = None) -> list[tuple[Clip, Motion | None]]:
    """Read a recording as its runs of good frames on the floor, with labelled contacts; what is left out has no motion.

    `rig_map` is for BVH files.
    """
    path = Path(path)
    name = path.stem
    clip = Clip(name, *_person_and_category(name), 0, recording=name)
    known = cmu.clip_table().get(name)
    if known and known.left_out:
        return [(replace(clip, left_out=known.left_out), None)]
    recording = read_recording(path, Skeleton.adult(), rig_map=rig_map if path.suffix.lower() == ".bvh" else None)
    motion = recording.motion.resampled(FPS)
    motion = Motion.from_rotations(motion.skeleton, FPS, motion.root, mend(motion.q), name=name)
    motion = on_floor(motion, ~np.any(list(_pose_faults(motion).values()), axis=0))
    person, category = _person_and_category(name, recording.rig)
    clip = replace(clip, person=person, category=category, read_as=recording.read_as)
    if SITTING.search(words_of(name).lower()) and np.quantile(motion.root[:, 2], 0.05) > SITTING_HEIGHT:
        return [(replace(clip, frames=len(motion), left_out=UNSEEN), None)]
    faults = find_faults(motion)

    def left_out(frames: Bool[np.ndarray, "t"], reason: str) -> Clip:
        low = int((frames & (motion.root[:, 2] < LOW)).sum())
        return replace(clip, frames=int(frames.sum()), left_out=reason, start=int(frames.argmax()), low=low)

    parts: list[tuple[Clip, Motion | None]] = []
    parts += [(left_out(flags, reason), None) for reason, flags in faults.items() if flags.any()]
    good = runs(~np.any(list(faults.values()), axis=0))
    for start, stop in good:
        part = out_of_floor(grounded(motion.slice(start, stop)))
        part = replace(part, touching=label_contacts(part), name=name if len(good) == 1 else f"{name}@{start}")
        low = int((part.root[:, 2] < LOW).sum())
        parts.append((replace(clip, name=part.name, frames=len(part), start=start, low=low), part))
    return parts


EDITION = 3
"""Version of the way in which recordings are read; clips of another version are built again."""


def _build_one(source: Path, folder: Path, rig_map: RigMap | None) -> list[Clip]:
    """Write a recording's runs of good frames, and then its lines of the index as a record that this was done."""
    try:
        parts = read_clips(source, rig_map=rig_map)
    except (ValueError, OSError) as error:
        clip = Clip(source.stem, source.stem.partition("_")[0], "other", 0, recording=source.stem)
        parts = [(replace(clip, left_out=f"unreadable: {error}"), None)]
    # Outside: a full disk is no fault of the recording.
    for clip, motion in parts:
        if motion is not None:
            write_amass(motion, folder / f"{clip.name}.npz")
    clips = [clip for clip, _ in parts]
    write_text(folder / f"{source.stem}.json", json.dumps({"edition": EDITION, "clips": [asdict(c) for c in clips]}))
    return clips


def _built_before(source: Path, folder: Path) -> list[Clip] | None:
    """Return the lines of the index of a recording that was built before."""
    try:
        record = json.loads((folder / f"{source.stem}.json").read_text(encoding="utf-8"))
        clips = [Clip(**clip) for clip in record["clips"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    complete = all(clip.left_out or (folder / f"{clip.name}.npz").exists() for clip in clips)
    return clips if complete and record["edition"] == EDITION else None


def build(
    source: str | Path,
    out: str | Path,
    *,
    held_out: Iterable[str] = (),
    rig_map: RigMap | None = None,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Clip, ...]:
    """Turn a folder of BVH or AMASS files into a data set; recordings that are there already are not read again.

    People whom priors are judged by are held out, and so are those that are named.
    """
    source, out = Path(source), Path(out)
    inside = out.resolve()
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in ENDINGS and inside not in p.resolve().parents)
    if not files:
        raise ValueError(f"{source} holds no .bvh or .npz files")
    if clashes := [name for name, count in Counter(f.stem for f in files).items() if count > 1]:
        raise ValueError(f"{source} holds two files named {clashes[0]}: give each clip a name of its own")
    job = functools.partial(_build_one, folder=out / "clips", rig_map=rig_map)
    done = {file: _built_before(file, out / "clips") for file in files}
    todo = [file for file, clips in done.items() if clips is None]
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        each = pool.map(job, todo) if pool else map(job, todo)
        for count, (file, clips) in enumerate(zip(todo, each, strict=True), start=1):
            done[file] = clips
            if progress:
                progress(count, len(todo))
    lines, people = [clip for file in files for clip in done[file] or ()], {*held_out}
    judged = {name for name in cmu.clip_table() if cmu.subject(name) in cmu.EVALUATION_SUBJECTS}
    clips = tuple(replace(c, held_out=c.person in people or c.recording in judged) for c in lines)
    write_text(out / "index.json", json.dumps([asdict(c) for c in clips], indent=0) + "\n")
    write_text(out / "report.md", report(clips))
    return clips


def report(clips: Iterable[Clip]) -> str:
    """Summarise a data set in Markdown: hours, clips, people, categories, and what was left out and why."""
    clips = tuple(clips)
    good, left_out = [c for c in clips if not c.left_out], [c for c in clips if c.left_out]

    groups = {"all": good, "held out": [c for c in good if c.held_out]}
    groups |= {name: [c for c in good if c.category == name] for name in sorted({c.category for c in good})}
    for reason in Counter(c.left_out.partition(":")[0] for c in left_out):
        groups[f"left out: {reason}"] = [c for c in left_out if c.left_out.startswith(reason)]
    table = [("clips of", "number", "minutes", f"pelvis below {LOW:g} m [s]")]
    for name, clips_of in groups.items():
        minutes, low = sum(c.frames for c in clips_of) / FPS / 60, sum(c.low for c in clips_of) / FPS
        table.append((name, str(len(clips_of)), f"{minutes:.1f}", f"{low:.0f}"))
    files = {c.recording: c.read_as for c in clips if c.read_as}
    rigs = [f"- {read_as}: {count} files" for read_as, count in Counter(files.values()).most_common()]
    lost = [f"- {c.recording}: {c.left_out}" + (f" ({c.frames / FPS:.1f} s)" if c.frames else "") for c in left_out]
    people = f"{len({c.person for c in good})} people at {FPS:g} Hz; held out: "
    people += ", ".join(sorted({c.person for c in good if c.held_out})) or "nobody"
    parts = ("# Data set\n", people + "\n", markdown(table), "\n## Rigs\n", *rigs, "\n## Files\n", *lost)
    return "\n".join(parts) + "\n"


def index_of(folder: str | Path, *, held_out: bool | None = None) -> list[Clip]:
    """Return the index of a data set: all clips, only those of held-out people, or only the others."""
    folder = Path(folder)
    index = folder / "index.json"
    if not index.exists():
        raise ValueError(
            f"{folder} is not a data set (it has no index.json): make one with `dropsim data build SRC {folder}`"
        )
    try:
        clips = [Clip(**row) for row in json.loads(index.read_text(encoding="utf-8"))]
    except (ValueError, TypeError):
        raise ValueError(f"{index} is damaged: delete it and run `dropsim data build SRC {folder}` again") from None
    chosen = [c for c in clips if not c.left_out and held_out in (None, c.held_out)]
    if not chosen:
        whose = {None: "", True: " of held-out people", False: " of training people"}[held_out]
        raise ValueError(f"{folder} holds no clips{whose}")
    return chosen


def read_clip(folder: str | Path, clip: Clip) -> Motion:
    """Read one clip of a data set."""
    return read_amass(Path(folder) / "clips" / f"{clip.name}.npz", Skeleton.adult())


def load(folder: str | Path, *, held_out: bool | None = None) -> list[tuple[Clip, Motion]]:
    """Return the clips of a data set with their motions: all, only those of held-out people, or only the others."""
    return [(clip, read_clip(folder, clip)) for clip in index_of(folder, held_out=held_out)]
