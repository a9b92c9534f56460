"""The data set: a folder of recordings turned into clean, labelled clips at one rate, split by person."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from dropsim.body.skeleton import Skeleton
from dropsim.files.atomic import atomic_path
from dropsim.motion.amass import read_amass, write_amass
from dropsim.motion.contacts import label_contacts, on_floor, sphere_heights, with_toes_up
from dropsim.motion.defects import intact
from dropsim.motion.motion import Motion, cmu
from dropsim.motion.reading import ENDINGS, read_motion

FPS = 30.0
"""Rate of the training data [Hz]."""
MIN_SECONDS = 1.0
MAX_STEP = 0.5
"""A joint that moves further than this in a frame has jumped [m]; 15 m/s."""
MAX_FLOAT_SECONDS = 0.9
"""Longer than this with nothing near the floor is no flight but something to stand on [s]."""
FLOAT_HEIGHT = 0.10
SINK_HEIGHT = 0.12
MAX_SINK_SECONDS = 0.3
MAX_BROKEN = 0.1
"""Share of the frames whose pose may be a defect of the recording."""

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
    r"\b(sits?|sitting|seat|stool|chair|motor ?cycle|swim\w*|climb\w*|ladder|stairs?|steps? up|ledge|playground|ropes?|beam|skateboard"
    r"|vacation)\b"
)
"""Words of a description that tell of a support that the recording does not show."""


@dataclass(frozen=True)
class Clip:
    """One line of the index."""

    name: str
    person: str
    category: str
    frames: int
    held_out: bool
    left_out: str = ""
    """Why the clip is not in the data set; empty where it is."""


def category_of(description: str) -> str:
    """Return the motion category that a description's words tell."""
    text = description.lower()
    return next((name for name, pattern in CATEGORIES if re.search(pattern, text)), "other")


def _longest_run(flags: Tensor) -> int:
    """Count the longest stretch of true values."""
    padded = torch.cat((torch.zeros(1), flags.float(), torch.zeros(1)))
    starts, stops = (padded.diff() > 0).nonzero(), (padded.diff() < 0).nonzero()
    return int((stops - starts).max()) if len(starts) else 0


def fault_of(motion: Motion) -> str:
    """Return why a motion that stands on z = 0 is no training data, or nothing."""
    if motion.duration < MIN_SECONDS:
        return f"shorter than {MIN_SECONDS:g} s"
    if float((motion.joints.diff(dim=0)).norm(dim=-1).max()) > MAX_STEP:
        return "glitch: a joint jumps"
    if float(intact(motion.q).double().mean()) < 1 - MAX_BROKEN:
        return "broken: joints turned further than any body's"
    lowest = sphere_heights(motion).amin(dim=-1)
    if _longest_run(lowest > FLOAT_HEIGHT) > MAX_FLOAT_SECONDS * motion.fps:
        return "not flat: stands on something"
    if _longest_run(lowest < -SINK_HEIGHT) > MAX_SINK_SECONDS * motion.fps:
        return "not flat: goes below its floor"
    return ""


def _described(name: str) -> tuple[str, str, str]:
    """Return a clip's person, description and, where the table knows one, the reason to leave it out."""
    person, _, _ = name.partition("_")
    info = cmu.clip_table().get(name)
    if info is None:
        return person, name.replace("_", " "), ""
    own, _, _ = info.description.partition("(")
    if info.glitch:
        return person, own, "glitch: marked in CMU's table"
    if info.is_duplicate:
        return person, own, f"duplicate of {info.duplicate_of}"
    if cmu.subject(name) in cmu.NOT_FLAT:
        return person, own, "not flat: this person's recordings are on steps, slopes, equipment or in water"
    description = own if category_of(own) != "other" else info.description
    if UNSEEN_SUPPORT.search(own.lower()):
        return person, description, "not flat: leans or sits on something unseen"
    return person, description, ""


def category_of_name(name: str) -> str:
    """Return the motion category that a clip's name tells, through CMU's table where it is in there."""
    return category_of(_described(name)[1])


def read_recording(source: Path) -> Motion:
    """Read a motion file onto our skeleton, at the data set's rate and with its feet on z = 0."""
    return with_toes_up(on_floor(read_motion(source, Skeleton.adult()).resampled(FPS)))


def _build_one(source: Path, target: Path, held_out: frozenset[str]) -> Clip:
    torch.set_num_threads(1)
    person, description, fault = _described(source.stem)
    clip = Clip(source.stem, person, category_of(description), 0, person in held_out, fault)
    if fault:
        return clip
    motion = read_recording(source)
    if fault := fault_of(motion):
        return replace(clip, frames=len(motion), left_out=fault)
    write_amass(replace(motion, contacts=label_contacts(motion)), target)
    return replace(clip, frames=len(motion))


def _try_build_one(source: Path, target: Path, held_out: frozenset[str]) -> Clip:
    try:
        return _build_one(source, target, held_out)
    except (ValueError, OSError) as error:
        return Clip(source.stem, source.stem.partition("_")[0], "other", 0, False, f"unreadable: {error}")


def build(
    source: Path, out: Path, *, held_out: Iterable[str] = (), workers: int = 2, progress: Callable[[int, int], None] | None = None
) -> tuple[Clip, ...]:
    """Turn a folder of BVH or AMASS files into a data set; clips that are there already are not made again."""
    made = out.resolve()
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in ENDINGS and made not in p.resolve().parents)
    if not files:
        raise ValueError(f"{source} holds no .bvh or .npz files")
    if clashes := [name for name, count in Counter(f.stem for f in files).items() if count > 1]:
        raise ValueError(f"{source} holds two files named {clashes[0]}: give each clip a name of its own")
    (out / "clips").mkdir(parents=True, exist_ok=True)
    people = frozenset(held_out)
    # A clip is done once: the journal is appended to as clips come in, and says so after a kill.
    journal = out / "journal.jsonl"
    done = {c.name: replace(c, held_out=c.person in people) for c in _read_journal(journal)}
    targets = {f: out / "clips" / f"{f.stem}.npz" for f in files}
    todo = [f for f in files if f.stem not in done or not (done[f.stem].left_out or targets[f].exists())]
    with journal.open("a", encoding="utf-8") as log, ProcessPoolExecutor(max(1, workers)) as pool:
        jobs = [pool.submit(_try_build_one, f, targets[f], people) for f in todo]
        if jobs and journal.stat().st_size:
            log.write("\n")  # a killed run may have left half a line
        for count, job in enumerate(as_completed(jobs), start=1):
            clip = job.result()
            done[clip.name] = clip
            log.write(json.dumps(asdict(clip)) + "\n")
            log.flush()
            if progress:
                progress(count, len(todo))
    clips = tuple(done[f.stem] for f in files)
    _write_changed(out / "index.json", json.dumps([asdict(c) for c in clips], indent=0) + "\n")
    _write_changed(out / "report.md", report(clips))
    return clips


def _write_changed(path: Path, text: str) -> None:
    """Write a file, unless it says so already."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _read_journal(path: Path) -> list[Clip]:
    if not path.exists():
        return []
    clips = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            clips.append(Clip(**json.loads(line)))
        except (json.JSONDecodeError, TypeError):  # the last line of a killed run
            continue
    return clips


def report(clips: Iterable[Clip]) -> str:
    """Summarise a data set in Markdown: hours, clips, people, categories, and what was left out and why."""
    clips = tuple(clips)
    kept = [c for c in clips if not c.left_out]
    frames = sum(c.frames for c in kept)
    held = sorted({c.person for c in kept if c.held_out})
    lines = [
        "# Data set", "",
        f"{len(kept)} clips, {frames / FPS / 3600:.2f} h at {FPS:g} Hz, {len({c.person for c in kept})} people; "
        f"{len(clips) - len(kept)} clips left out.",
        f"Held out: {', '.join(held) if held else 'nobody'} ({sum(c.frames for c in kept if c.held_out) / FPS / 60:.1f} min).", "",
        "| category | clips | minutes |", "|---|---|---|",
    ]  # fmt: skip
    for category in sorted({c.category for c in kept}):
        chosen = [c for c in kept if c.category == category]
        lines.append(f"| {category} | {len(chosen)} | {sum(c.frames for c in chosen) / FPS / 60:.1f} |")
    lines += ["", "## Left out", ""]
    reasons = Counter(c.left_out.partition(":")[0] for c in clips if c.left_out)
    lines += [f"- {reason}: {count}" for reason, count in reasons.most_common()]
    lines += ["", *(f"- {c.name}: {c.left_out}" for c in clips if c.left_out)]
    return "\n".join(lines) + "\n"


def index_of(folder: Path, *, held_out: bool | None = None) -> list[Clip]:
    """Return the index of a data set: all clips, only those of held-out people, or only the others."""
    index = folder / "index.json"
    if not index.exists():
        raise ValueError(f"{folder} is not a data set (it has no index.json): make one with `dropsim data build SRC {folder}`")
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


def read_clip(folder: Path, clip: Clip) -> Motion:
    """Read one clip of a data set."""
    return read_amass(folder / "clips" / f"{clip.name}.npz", Skeleton.adult())


def load(folder: Path, *, held_out: bool | None = None) -> list[tuple[Clip, Motion]]:
    """Return the clips of a data set with their motions: all, only those of held-out people, or only the others."""
    return [(clip, read_clip(folder, clip)) for clip in index_of(folder, held_out=held_out)]
