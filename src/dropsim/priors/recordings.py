"""Banks out of folders of recordings: read, tagged, and, for the shipped one, chosen for coverage."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import heading
from dropsim.motion.clips import Clip, build, load, words_of
from dropsim.motion.cmu import clip_table
from dropsim.motion.contacts import sphere_heights
from dropsim.motion.motion import Motion
from dropsim.motion.posture import Posture
from dropsim.motion.retarget import RigMap
from dropsim.priors.bank import FAST, LOW, STILL, TAGS, Bank, ClipInfo
from dropsim.priors.field_queries import NUM_COMPONENTS, NUM_INTENT
from dropsim.priors.motion_field import frames_of, index_of

SOURCES = {
    "cmu": ("CMU", "free for all uses, not to be resold as such"),
    "accad": ("ACCAD", "CC BY 3.0"),
    "100style": ("100STYLE", "CC BY 4.0"),
    "o3de": ("O3DE", "Apache-2.0 or MIT"),
}
"""Data sets by the rig that tells them, and their licences."""
TURNING = 1.0
"""Speed of the heading of people who turn [rad/s]."""
SHARE = 0.15
"""Share of a clip's frames that does something for the clip to have its tag."""
CROUCHING = 0.72
"""Height of the pelvis below which somebody crouches [m]."""
BALANCE = re.compile(
    r"side ?step|backward|walk ?back|stand to|to stand|dodge|retreat|advance|duck|stumbl|trip|push|slip|balance|lean"
    r"|stop|start|shift|turn around|hop|bounce|sway|stagger|limp",
    re.IGNORECASE,
)
"""Words of recordings that show how people keep or get back their balance, and start, stop and change direction: chosen
first too."""
STYLED = re.compile(
    r"styl|weird|baby|jackson|mummy|frankenstein|zombie|\bcat\b|chicken|drunk|flip|breakdanc|acrobat|gymnast|basketball"
    r"|dribble|punch|kick|salsa|danc|mickey|monkey|robot|clumsy|childish|cartwheel|wounded|hopscotch|obstacles [12]"
    r"|martial|capoeira|form \d|roundhouse|crescent|uppercut|jab|hook|backfist|cross (left|right)|victory|taunt|stance"
    r"|football|offensive|defensive|feint|fake|evasive|drive"
    r"|pivot|quarrel|box"
    # Mimes, exercises, moods, two people and bodies that carry something: arms are busy, and balance is not that of
    # somebody who goes.
    r"|wash|window|teapot|traffic|wav(e|ing)|phone|broom|swing|chop|drink|smok|soda|bottle|jack|twist|squat|stretch"
    r"|range ?of ?motion|conversation|gesture|shake|five|whip|link|hold hands|clean|bow\b|curtsey|ache|hurt|scared"
    r"|ghetto|sexy|macho|cool|shy|attitude|stern|happy|excited|stomach|synchronized|soldier|march|navigate|suitcase"
    r"|careful|search|object|pregnant|stumbles into|limp|reach"
    # ACCAD's takes D and E: ready to fight, boxing and dodging.
    r"|\b[DE]\d+\b",
    re.IGNORECASE,
)
"""Words of recordings in which people act, dance, do sports or have their hands full: they do not move like that when
they are pushed."""


def tags_of(motion: Motion, category: str) -> tuple[str, ...]:
    """Return what a clip shows, by its name and by the motion itself."""
    root, fps = motion.root, motion.fps
    speed = np.linalg.norm(np.gradient(_smooth(root[:, :2], 15), 1 / fps, axis=0), axis=-1)
    ahead = heading(motion.q[:, 0])[:, 1, :2]
    yaw = np.unwrap(np.arctan2(-ahead[:, 0], ahead[:, 1]))
    upright = root[:, 2] > CROUCHING
    doing = {
        "stand": upright & (speed < 2 * STILL),
        "walk": upright & (speed > 0.5) & (speed < FAST),
        "run": upright & (speed > FAST),
        "turn": upright & (np.abs(np.gradient(_smooth(yaw[:, None], 15)[:, 0], 1 / fps)) > TURNING),
        "crouch": (root[:, 2] < CROUCHING) & (root[:, 2] > LOW),
        "ground": root[:, 2] < LOW,
        "jump": sphere_heights(motion).min(-1) > 0.08,
    }
    tags = {tag for tag, frames in doing.items() if frames.mean() > (SHARE if tag != "jump" else 0.05)}
    named = "ground" if category == "get up" else category if category in TAGS else "other"
    # A name decides what motion cannot tell; what it says of walking and standing the motion tells better.
    if named in ("dance", "sport", "jump", "ground", "other") or not tags:
        tags.add(named)
    return tuple(tag for tag in TAGS if tag in tags)


def _smooth(values: Float[np.ndarray, "t c"], width: int) -> Float[np.ndarray, "t c"]:
    """Return running means over some frames."""
    width = min(width, len(values))
    padded = np.pad(values, ((width // 2, width - 1 - width // 2), (0, 0)), mode="edge")
    sums = np.cumsum(np.concatenate((np.zeros((1, values.shape[1])), padded)), axis=0)
    return (sums[width:] - sums[:-width]) / width


def info_of(clip: Clip, motion: Motion) -> ClipInfo:
    """Describe a clip of a data set for a bank."""
    source, licence = SOURCES.get(clip.source, ("own recordings", "the user's own"))
    recording = clip.recording or clip.name
    known = clip_table().get(recording)
    words = known.description if known else words_of(recording)
    styled = source != "O3DE" and (
        STYLED.search(words) or (source == "100STYLE" and not recording.startswith("Neutral"))
    )
    everyday = source == "O3DE" or BALANCE.search(words)
    category = clip.category
    if styled and category != "get up":
        category = "other"
    elif category == "other" and everyday:
        category = "stand"
    return ClipInfo(clip.name, source, licence, tags_of(motion, category), len(motion))


def build_bank(
    folders: Sequence[Path],
    out: Path,
    *,
    rig_map: RigMap | None = None,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Bank, list[Clip]]:
    """Turn folders of recordings into a bank; an interrupted run goes on where it was."""
    work = out.with_name(out.name + ".work")
    entries, parts = list[Clip](), list[tuple[Motion, ClipInfo, Bool[np.ndarray, "t 22"]]]()
    for i, folder in enumerate(folders):
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder of recordings")
        data = folder
        if not (folder / "index.json").exists():
            data = work / f"{i}"
            clips = build(folder, data, rig_map=rig_map, workers=workers, progress=progress)
            if all(clip.left_out for clip in clips):
                shutil.rmtree(work, ignore_errors=True)
                raise ValueError(f"{folder} holds no recording that can be used; {clips[0].name}: {clips[0].left_out}")
            entries += clips
        for clip, motion in load(data, held_out=False):
            assert motion.touching is not None
            parts.append((motion, info_of(clip, motion), motion.touching))
    bank = Bank.of(parts)
    bank.write(out)
    shutil.rmtree(work, ignore_errors=True)
    return bank, entries


NUM_COVERED = 10
"""Leading components of the codes that tell poses apart when a bank is chosen."""
CELL = 0.7
"""Edge of a cell of the features that one recorded frame covers."""
ENOUGH = 3
"""Frames of different clips that a cell takes before it is full."""


ALWAYS, NEVER = "ground", {"dance", "sport", "other"}
"""Tag of clips that are all chosen, because few recordings show people who fall and get up, and tags of those that are
not, such as acrobats: of 32 people who had to get up after a somersault, 66 % were up in time with them on the floor,
and 88 % without."""
STEP = re.compile(r"^(short|medium|large|very large) (side)?step")
"""Words of recordings of single steps, by size and direction, which are all chosen: people who are pushed take such
steps."""
TOO_HARD = ("Acceleration1", "OutofRange1", "Pushes1")
"""O3DE's recordings of hard push-offs and cuts, which are left out: of 96 people who ran for 30 s at 2.5 and 3.5 m/s, 5
and 12 % fell with them and 0 and 2 % without; of 64 who ran around a square, 13 and 5 %."""
FIRST_SHARE = 0.75
"""Share of the time for what is chosen first: all of the above, O3DE's recordings, and how people keep their balance,
start and stop."""


def choose(bank: Bank, *, minutes: float) -> Bank:
    """Choose clips for behaviour and coverage: greedily those that fill most empty cells of the features per frame."""
    codes = index_of(bank, frames_of(bank))[0].codes[: len(bank)]
    cells = np.floor(
        np.concatenate((codes[:, :NUM_COVERED], codes[:, NUM_COMPONENTS : NUM_COMPONENTS + NUM_INTENT - 1]), 1) / CELL
    ).astype(np.int32)
    cells = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    cells_of = [np.unique(cells[bank.first == first]) for first in np.unique(bank.first)]
    filled, budget, chosen = np.zeros(cells.max() + 1, dtype=np.int64), minutes * 60 * bank.fps, list[int]()

    def worth(i: int) -> float:
        return float((1.0 / (1.0 + filled[cells_of[i]]))[filled[cells_of[i]] < ENOUGH].sum()) / bank.clips[i].frames

    def choose_clip(i: int) -> None:
        chosen.append(i)
        filled[cells_of[i]] += 1

    words = [words_of(clip.name.partition("@")[0]) for clip in bank.clips]
    first, others = list[int](), list[int]()
    for i, clip in enumerate(bank.clips):
        if NEVER & set(clip.tags) or clip.name in TOO_HARD:
            continue
        if ALWAYS in clip.tags or clip.source == "O3DE" or STEP.search(words[i]):
            choose_clip(i)
        elif not Posture.of([bank.motion(i)]).bows:
            (first if "crouch" in clip.tags or BALANCE.search(words[i]) else others).append(i)
    for clips, share in ((first, FIRST_SHARE * budget), (others, budget)):
        while clips and sum(bank.clips[i].frames for i in chosen) < share:
            best = max(clips, key=worth)
            if worth(best) == 0.0:
                break
            clips.remove(best)
            choose_clip(best)
    return bank.picked(sorted(chosen))


def postures(bank: Bank) -> dict[str, Posture]:
    """Return the posture of each source's people."""
    clips = [(clip.source, bank.motion(i)) for i, clip in enumerate(bank.clips)]
    return {
        name: Posture.of(motion for source, motion in clips if source == name)
        for name in sorted({source for source, _ in clips})
    }


def card_of(bank: Bank) -> str:
    """Describe a bank in Markdown."""
    info = bank.info()
    low = f"{info['minutes on the ground']:.1f} minutes with the pelvis below {LOW:g} m"
    lines = [
        f"{info['clips']} clips, {info['minutes']:.1f} minutes at {info['fps']:g} Hz; {low}.",
        "",
        "| tag | minutes |",
        "|---|---|",
    ]
    lines += [f"| {tag} | {value:.1f} |" for tag, value in info["minutes by tag"].items()]
    lines += ["", "| source | minutes | posture |", "|---|---|---|"]
    lines += [
        f"| {source} | {info['minutes by source'][source]:.1f} | {posture} |"
        for source, posture in postures(bank).items()
    ]
    return "\n".join(lines) + "\n"
