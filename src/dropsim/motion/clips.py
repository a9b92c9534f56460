"""The data set: a folder of recordings turned into clean, labelled clips at one rate, split by person.

Bad frames are masked, so that a recording becomes its runs of good frames. Whoever needs recordings (training sets,
banks) reads them by `read_clips`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from dropsim.body.skeleton import Skeleton
from dropsim.files.atomic import atomic_path
from dropsim.motion import cmu
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.contacts import UPRIGHT, grounded, label_contacts, on_floor, out_of_floor, sphere_heights
from dropsim.motion.defects import intact, mend
from dropsim.motion.motion import Motion
from dropsim.motion.reading import ENDINGS, read_recording
from dropsim.motion.retarget import RigMap

FPS = 30.0
"""Rate of the training data [Hz]."""
MIN_SECONDS = 1.0
"""A shorter run of good frames is left out [s]."""
MAX_STEP = 0.5
"""A joint that moves further than this in a frame has jumped [m]; 15 m/s."""
MAX_KINK = 0.4
"""A joint whose step changes by more than this from one frame to the next has jumped [m]; 360 m/s^2."""
MARGIN = 2
"""Frames on either side of a jump or of a broken pose that are left out too."""
MAX_FLOAT_SECONDS = 0.9
"""Longer than this with nothing near the floor is no flight but something to stand on [s]."""
FLOAT_HEIGHT = 0.10
"""[m]"""
SINK_HEIGHT, LOW_SINK_HEIGHT = 0.12, 0.25
"""Deeper than this in the floor is no floor: for people on their feet, and for those who lie, sit or crawl [m]."""
MAX_SINK_SECONDS = 0.3
LOW = 0.45
"""People whose pelvis is lower than this are on the ground: they lie, sit, kneel, crawl or squat [m]."""

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
    (
        "sport",
        r"basketball|soccer|golf|baseball|football|frisbee|box(ing)?\b|punch|kick|block|throw|catch|dribble|sword|martial",
    ),
    ("walk", r"walk|march|step|stride|stroll|wander|navigate|carry|suitcase|defensive|follow path"),
    (
        "stand",
        r"stand|wait|talk|story|wave|gesture|signal|direct|phone|static|pose|stretch|drink|wash|teapot|range ?of ?motion|conversation",
    ),
)
"""Motion categories and the words of a description that tell them, the first match counting."""

UNSEEN_SUPPORT = re.compile(
    r"\b(seat|stool|chair|motor ?cycle|swim\w*|climb\w*|ladder|stairs?|steps? up|ledge|playground|ropes?|beam|skateboard|vacation)\b"
)
"""Words of a description that tell of a support that the recording does not show."""
SITTING = re.compile(r"\b(sits?|sitting)\b")
SITTING_HEIGHT = 0.3
"""Whoever sits with the pelvis lower than this sits on the ground; others sit on something that the recording does not
show [m]."""
UNSEEN = "not flat: leans or sits on something unseen"


@dataclass(frozen=True)
class Clip:
    """One line of the index: a run of good frames, or the frames of a recording that were left out for one reason."""

    name: str
    """Of the recording, with @ and the first frame where it has several runs."""
    person: str
    category: str
    frames: int
    held_out: bool
    left_out: str = ""
    """Why these frames are not in the data set; empty where they are."""
    recording: str = ""
    """The file's name without its ending."""
    start: int = 0
    """The first frame, counted at the data set's rate."""
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


def _runs(flags: Bool[np.ndarray, "t"]) -> list[tuple[int, int]]:
    """Return first and one past last of every stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _long_runs(flags: Bool[np.ndarray, "t"], longest: float) -> Bool[np.ndarray, "t"]:
    """Keep the stretches of true values that are longer than so many frames."""
    kept = np.zeros_like(flags)
    for start, stop in _runs(flags):
        kept[start:stop] = stop - start > longest
    return kept


def _widened(flags: Bool[np.ndarray, "t"], margin: int) -> Bool[np.ndarray, "t"]:
    return (
        np.convolve(flags, np.ones(2 * margin + 1), "same") > 0.5
        if len(flags) > 2 * margin
        else np.full_like(flags, flags.any())
    )


def _pose_faults(motion: Motion) -> dict[str, Bool[np.ndarray, "t"]]:
    """Return the frames that are wrong whatever the floor is."""
    step = np.diff(motion.joints, axis=0)
    jumps = np.zeros(len(motion), dtype=bool)
    far = np.linalg.norm(step, axis=-1).max(-1) > MAX_STEP
    jumps[1:] |= far
    jumps[:-1] |= far
    jumps[1:-1] |= np.linalg.norm(np.diff(step, axis=0), axis=-1).max(-1) > MAX_KINK
    return {JUMPS: _widened(jumps, MARGIN), BROKEN: _widened(~intact(motion.q), MARGIN)}


def find_faults(motion: Motion) -> dict[str, Bool[np.ndarray, "t"]]:
    """Return the frames of a motion on z = 0 that are no data, by reason; a frame has one reason at most."""
    lowest = sphere_heights(motion).min(-1)
    deepest = np.where(motion.root[:, 2] > UPRIGHT, SINK_HEIGHT, LOW_SINK_HEIGHT)
    found = _pose_faults(motion) | {
        FLOATS: _long_runs(lowest > FLOAT_HEIGHT, MAX_FLOAT_SECONDS * motion.fps),
        SINKS: _long_runs(lowest < -deepest, MAX_SINK_SECONDS * motion.fps),
    }
    good = ~_any(found)
    found[SHORT] = good & ~_long_runs(good, MIN_SECONDS * motion.fps)
    seen = np.zeros(len(motion), dtype=bool)
    for reason, flags in found.items():
        found[reason], seen = flags & ~seen, seen | flags
    return found


def _any(faults: dict[str, Bool[np.ndarray, "t"]]) -> Bool[np.ndarray, "t"]:
    return np.logical_or.reduce(list(faults.values()))


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


def reason_to_skip(name: str) -> str:
    """Return why a recording is left out without being read, or nothing."""
    info = cmu.clip_table().get(name)
    if info is None:
        return ""
    subject = cmu.subject(name)
    if subject in cmu.DEMONSTRATION_SUBJECTS:
        return "kept: for the back-flip demonstration"
    if cmu.is_for_evaluation(name) and subject not in cmu.EVALUATION_SUBJECTS:
        return "duplicate of a clip that priors are judged by"
    if info.is_duplicate and not cmu.is_for_evaluation(name):
        return f"duplicate of {info.duplicate_of}"
    if subject in cmu.NOT_FLAT:
        return "not flat: this person's recordings are on steps, slopes, equipment or in water"
    words = words_of(name).lower()
    if UNSEEN_SUPPORT.search(words) or (subject == cmu.STEPS and re.search(r"\b(up|down)\b", words)):
        return UNSEEN
    return ""


def category_of_name(name: str) -> str:
    """Return the motion category that a recording's name tells, through CMU's table where it is in there."""
    return _person_and_category(name)[1]


def _is_held_out(name: str, person: str, people: frozenset[str]) -> bool:
    return person in people or (name in cmu.clip_table() and cmu.subject(name) in cmu.EVALUATION_SUBJECTS)


def read_on_floor(path: str | Path) -> Motion:
    """Read a motion file onto our skeleton, at the data set's rate and on the floor z = 0."""
    motion = read_recording(path, Skeleton.adult()).motion.resampled(FPS)
    return out_of_floor(grounded(on_floor(motion)))


def read_clips(
    path: str | Path, *, held_out: Iterable[str] = (), rig_map: RigMap | None = None
) -> list[tuple[Clip, Motion | None]]:
    """Read a recording as its runs of good frames on the floor, with labelled contacts; what is left out has no motion.

    People whom priors are judged by are held out, and so are those that are named. `rig_map` is for BVH files.
    """
    path = Path(path)
    name, people = path.stem, frozenset(held_out)
    person, category = _person_and_category(name)
    clip = Clip(name, person, category, 0, _is_held_out(name, person, people), recording=name)
    if reason := reason_to_skip(name):
        return [(replace(clip, left_out=reason), None)]
    recording = read_recording(path, Skeleton.adult(), rig_map=rig_map if path.suffix.lower() == ".bvh" else None)
    motion = recording.motion.resampled(FPS)
    motion = Motion.from_rotations(motion.skeleton, FPS, motion.root, mend(motion.q), name=name)
    motion = on_floor(motion, ~_any(_pose_faults(motion)))
    person, category = _person_and_category(name, recording.rig)
    clip = replace(
        clip, person=person, category=category, held_out=_is_held_out(name, person, people), read_as=recording.read_as
    )
    if SITTING.search(words_of(name).lower()) and np.quantile(motion.root[:, 2], 0.05) > SITTING_HEIGHT:
        return [(replace(clip, frames=len(motion), left_out=UNSEEN), None)]
    faults = find_faults(motion)
    low = motion.root[:, 2] < LOW
    left_out = [
        replace(clip, frames=int(flags.sum()), left_out=reason, start=int(flags.argmax()), low=int((low & flags).sum()))
        for reason, flags in faults.items()
        if flags.any()
    ]
    runs = _runs(~_any(faults))
    parts: list[tuple[Clip, Motion | None]] = [(entry, None) for entry in left_out]
    for start, stop in runs:
        part = out_of_floor(grounded(motion.slice(start, stop)))
        low_frames = int((part.root[:, 2] < LOW).sum())
        called = name if len(runs) == 1 else f"{name}@{start}"
        entry = replace(clip, name=called, frames=len(part), start=start, low=low_frames)
        parts.append((entry, replace(part, touching=label_contacts(part), name=called)))
    return parts


def _build_one(source: Path, folder: Path, held_out: frozenset[str], rig_map: RigMap | None) -> list[Clip]:
    """Write a recording's runs of good frames, and return all its lines of the index."""
    try:
        parts = read_clips(source, held_out=held_out, rig_map=rig_map)
        for clip, motion in parts:
            if motion is not None:
                write_amass(motion, folder / f"{clip.name}.npz")
    except (ValueError, OSError) as error:
        person = source.stem.partition("_")[0]
        return [Clip(source.stem, person, "other", 0, False, f"unreadable: {error}", source.stem)]
    return [clip for clip, _ in parts]


def _build_each(
    files: Sequence[Path], folder: Path, held_out: frozenset[str], rig_map: RigMap | None, workers: int
) -> Iterator[list[Clip]]:
    if workers <= 1:
        yield from (_build_one(file, folder, held_out, rig_map) for file in files)
        return
    pool = ProcessPoolExecutor(workers)
    try:
        for job in as_completed([pool.submit(_build_one, file, folder, held_out, rig_map) for file in files]):
            yield job.result()
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, only what has begun is waited for


def build(
    source: str | Path,
    out: str | Path,
    *,
    held_out: Iterable[str] = (),
    rig_map: RigMap | None = None,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Clip, ...]:
    """Turn a folder of BVH or AMASS files into a data set; recordings that are there already are not read again."""
    source, out = Path(source), Path(out)
    made = out.resolve()
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in ENDINGS and made not in p.resolve().parents)
    if not files:
        raise ValueError(f"{source} holds no .bvh or .npz files")
    if clashes := [name for name, count in Counter(f.stem for f in files).items() if count > 1]:
        raise ValueError(f"{source} holds two files named {clashes[0]}: give each clip a name of its own")
    folder, journal = out / "clips", out / "journal.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    people = frozenset(held_out)
    # A recording is read once: the journal is appended to as recordings come in, and says so after a kill.
    done = _read_journal(journal)
    todo = [
        f
        for f in files
        if f.stem not in done or not all(c.left_out or (folder / f"{c.name}.npz").exists() for c in done[f.stem])
    ]
    with journal.open("a", encoding="utf-8") as log:
        if todo and journal.stat().st_size:
            log.write("\n")  # a killed run may have left half a line
        for count, clips in enumerate(_build_each(todo, folder, people, rig_map, workers), start=1):
            done[clips[0].recording] = clips
            log.write(json.dumps({"edition": EDITION, "clips": [asdict(c) for c in clips]}) + "\n")
            log.flush()
            if progress:
                progress(count, len(todo))
    clips = tuple(replace(c, held_out=_is_held_out(c.recording, c.person, people)) for f in files for c in done[f.stem])
    _write_changed(out / "index.json", json.dumps([asdict(c) for c in clips], indent=0) + "\n")
    _write_changed(out / "report.md", report(clips))
    return clips


EDITION = 3
"""Of the way in which recordings are read; what another edition made is made again."""


def _write_changed(path: Path, text: str) -> None:
    """Write a file, unless it says so already."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _read_journal(path: Path) -> dict[str, list[Clip]]:
    """Return the lines of the index by recording."""
    done: dict[str, list[Clip]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            if row["edition"] == EDITION:
                clips = [Clip(**clip) for clip in row["clips"]]
                done[clips[0].recording] = clips
        except (
            json.JSONDecodeError,
            TypeError,
            KeyError,
            IndexError,
        ):  # the last line of a killed run, or another edition's
            continue
    return done


def report(clips: Iterable[Clip]) -> str:
    """Summarise a data set in Markdown: hours, clips, people, categories, and what was left out and why."""
    clips = tuple(clips)
    kept, left_out = [c for c in clips if not c.left_out], [c for c in clips if c.left_out]

    def minutes(chosen: Iterable[Clip]) -> float:
        return sum(c.frames for c in chosen) / FPS / 60

    held = sorted({c.person for c in kept if c.held_out})
    low, lost = (sum(c.low for c in chosen) / FPS for chosen in (kept, left_out))
    lines = [
        "# Data set", "",
        f"{len(kept)} clips, {minutes(kept) / 60:.2f} h at {FPS:g} Hz, {len({c.person for c in kept})} people.",
        f"Held out: {', '.join(held) if held else 'nobody'} ({minutes(c for c in kept if c.held_out):.1f} min).",
        f"Pelvis below {LOW:g} m: {low:.0f} s; another {lost:.0f} s were left out.", "",
        "| category | clips | minutes | pelvis low [s] |", "|---|---|---|---|",
    ]  # fmt: skip
    for category in sorted({c.category for c in kept}):
        chosen = [c for c in kept if c.category == category]
        lines.append(f"| {category} | {len(chosen)} | {minutes(chosen):.1f} | {sum(c.low for c in chosen) / FPS:.0f} |")
    lines += ["", "## Left out", ""]
    reasons = Counter(c.left_out.partition(":")[0] for c in left_out)
    for reason, count in reasons.most_common():
        lines.append(
            f"- {reason}: {count}, {minutes(c for c in left_out if c.left_out.startswith(reason)):.1f} min of what was read"
        )
    lines += ["", "## Rigs", ""]
    files = {c.recording: c.read_as for c in clips if c.read_as}
    for read_as, count in Counter(files.values()).most_common():
        example = f", such as {next(name for name in files if files[name] == read_as)}" if ";" in read_as else ""
        lines.append(f"- {read_as}: {count} files{example}")
    lines += ["", "## Files", ""]
    lines += [f"- {c.recording}: {c.left_out}" + (f" ({c.frames / FPS:.1f} s)" if c.frames else "") for c in left_out]
    return "\n".join(lines) + "\n"


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
    chosen = [c for c in clips if not c.left_out and (held_out is None or c.held_out == held_out)]
    if not chosen:
        raise ValueError(
            f"{folder} holds no clips{'' if held_out is None else ' of held-out people' if held_out else ' of training people'}"
        )
    return chosen


def read_clip(folder: str | Path, clip: Clip) -> Motion:
    """Read one clip of a data set."""
    return read_amass(Path(folder) / "clips" / f"{clip.name}.npz", Skeleton.adult())


def load(folder: str | Path, *, held_out: bool | None = None) -> list[tuple[Clip, Motion]]:
    """Return the clips of a data set with their motions: all, only those of held-out people, or only the others."""
    return [(clip, read_clip(folder, clip)) for clip in index_of(folder, held_out=held_out)]
