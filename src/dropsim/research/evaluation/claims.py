"""The paper's eight results and its first hypothesis as verdicts: a number, a bound, and whether it is met.

Criteria are chosen so that a prior with random weights fails them; the reason is the comment at each. Nothing is
reproduced by people who do not stay on their feet until they are pushed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dropsim.motion.clips import index_of, read_clip
from dropsim.physics import metrics
from dropsim.research.evaluation.harness import Arrays

KINDS = ("run", "jump")
CLIPS, FRAMES = 12, 300
"""Number of recordings of each kind, spread over all that there are, and their length at most [frames]."""
Recorded = Mapping[str, Sequence[np.ndarray]]
"""Root wrenches of recordings by kind, with masses at the joints and with solid bones (2 x frames), force and moment as
one [body weights]; without the first frame and the last."""


def measure_recordings(folder: Path) -> Recorded:
    """Measure runs and jumps of a built data set."""
    recorded = dict[str, list[np.ndarray]]()
    for kind in KINDS:
        clips = [clip for clip in index_of(folder) if clip.category == kind]
        count = min(CLIPS, len(clips))
        for clip in (clips[i * len(clips) // count] for i in range(count)):
            motion = read_clip(folder, clip)
            start = max(0, (len(motion) - FRAMES) // 2)  # people may wait at the ends
            middle = motion.slice(start, start + FRAMES)
            wrenches = [metrics.root_wrench(middle, cylinders=solid)[1:-1] for solid in (False, True)]
            recorded.setdefault(kind, []).append(np.linalg.norm(wrenches, axis=-1))
    if not recorded:
        raise ValueError(f"{folder}: holds no running or jumping by the index of the data set")
    return recorded


PUSHED = (63, 78)
"""Frames of the push: the paper's."""
FOLLOWS = {"follow": 0.0, "follow-run": 0.0, "lead-by-hand": 0.3, "lead-by-hand-run": 0.8}
"""Scenarios, and how far a led hand may be off on average [m]: an arm's reach at a walk, and more at a run."""
BEFORE = slice(10, PUSHED[0])
"""Frames without a push; the first few still come from the start state."""
DURING = slice(PUSHED[0] + 1, PUSHED[1] + 1)
"""Frames that the push makes: it acts from frame 63 to the next, and so on."""
STEPPING = slice(PUSHED[1] + 1, PUSHED[1] + 31)
"""The second after it."""
RECOVERY = slice(100, 150)
"""The paper's frames of recovery."""
END = slice(-30, None)
"""The last second."""
FPS = 30.0
SETTLE = 1.5
"""Time after a turn of the path that is left out of the speed [s]."""
RETURNING = ("kinematic", "momentum", "range_of_motion", "contact", "rigidity")
"""Energies that have to return."""
TINY = 1e-6
"""Energy that counts as none [m^2]: a millimetre."""
STEADY = 0.9
"""Smallest share of people who have not fallen when the push begins."""
BACK = 1.25
"""Energies within this ratio of the unperturbed level are back."""
RISE = 2.0
"""A rise is at least this ratio."""
LESS = 0.30
"""Share by which the manifold lowers E_kin, as the paper says."""
WORSE = 5.0
"""Ratio by which energies are higher without contact and range of motion, as the paper says."""
NOTICEABLE, ALIKE = 0.1, 0.9
"""A root wrench that is not zero [body weights], and the correlation of curves that are similar."""
SPEED_ERROR, FOLLOWING = 0.15, 0.75
"""Largest relative error of a follower's speed, and smallest share of people who follow."""
ROUGHLY, SMALL = 10.0, 0.1
"""Ratio within which energies roughly agree, and the share of its peak under a push below which an energy is small."""
PAPER_FPS = 10.0


BOUNDS = {
    "pushed-walk": f"every energy at the end at most 1 x its 95th percentile before the push; three rise by {RISE:g}",
    "back-to-level": f"E_kin and physics at most {BACK:g} x the level before the push, and half of the people upright by "
    "themselves",
    "manifold": f"E_kin lower by {LESS:g} than to the mode of the same frames, and than with the mode alone, in frames "
    "100-150",
    "ablation": f"final E_kin and physics at least {WORSE:g} x without contact and range of motion",
    "recorded-wrench": f"95th percentile at least {NOTICEABLE:g} body weights; points and cylinders correlate by {ALIKE:g}",
    "corrected-wrench": "95th percentile at most 1 x the recorded runs', and lower than without the correction",
    "following": f"{FOLLOWING:.0%} of the people of each scenario never fall, are within {SPEED_ERROR:.0%} of the speed, "
    "and have a led hand within 0.3 m (0.8 m at a run)",
    "speed": f"at least {PAPER_FPS:g} frames a second",
    "agreement": f"unpushed, E_kin and physics within {ROUGHLY:g} x of each other, each at most {SMALL:g} x its peak under "
    "a push",
}
"""What the number of each claim is compared with."""
UNPUSHED = ("recorded-wrench", "following", "speed")
"""Claims that are not about pushed people, who have to be on their feet until then."""


class Outcome(NamedTuple):
    """Our measurement of a claim."""

    number: float | None
    """Number that is compared with the bound; None if it was not measured."""
    reproduced: bool | None
    """True if the bound is met; None if it was not measured."""
    finding: str
    """Measurement in a sentence."""

    @property
    def verdict(self) -> str:
        """Word for the outcome."""
        return "not run" if self.reproduced is None else "reproduced" if self.reproduced else "not reproduced"


def median(people: Arrays, name: str, frames: slice) -> float:
    """Return the median over people of an energy in each frame, and of that the mean over some frames [m^2]."""
    return float(np.median(people[f"energy_{name}"], axis=0)[frames].mean())


def ratio(value: float, to: float) -> float:
    """Return one energy over another; energies that count as none are equal."""
    return max(value, TINY) / max(to, TINY)


def pushed_walk(walks: Arrays) -> Outcome:
    """Judge pushed walks: energies rise at the push, E_kin stays high while stepping, and all return.

    All energies, because E_kin alone returns in people who lie still; medians over walks that stay on their feet.
    """
    up = np.asarray(~walks["fallen"].any(axis=1))
    chosen = {name: values[up if up.any() else slice(None)] for name, values in walks.items() if name != "finished"}
    pose = [float(chosen["energy_range_of_motion"][:, part].max(1).mean()) for part in (BEFORE, DURING, STEPPING)]
    rises = {
        "momentum": _rise(chosen, "momentum", DURING),
        "E_kin after it": _rise(chosen, "kinematic", STEPPING),
        "range of motion": ratio(max(pose[1:]), pose[0]),
    }
    returns = {}
    for name in RETURNING:
        curve = chosen[f"energy_{name}"]
        level = np.maximum(np.quantile(curve[:, BEFORE], 0.95, axis=1), TINY)
        returns[name] = float(np.median(np.maximum(np.median(curve[:, END], axis=1), TINY) / level))
    number, risen = max(returns.values()), ", ".join(f"{name} x {rise:.2g}" for name, rise in rises.items())
    finding = (
        f"{risen}; highest at the end {max(returns, key=lambda name: returns[name])}; {up.sum()} of {len(up)} stay up"
    )
    return Outcome(number, bool(up.any()) and number <= 1.0 and min(rises.values()) >= RISE, finding)


def _rise(people: Arrays, name: str, frames: slice) -> float:
    """Return an energy over its level before the push."""
    return ratio(median(people, name, frames), median(people, name, BEFORE))


def back_to_level(longer: Arrays) -> Outcome:
    """Judge whether the medians over many pushed motions return to their level before the push.

    All energies, and without a script that gets people up: energies of people who lie return too, so that the median
    person has to be upright.
    """
    kinematic, physics = (_rise(longer, name, END) for name in ("kinematic", "physics"))
    upright, seconds = float(longer["upright"][:, -1].mean()), longer["upright"].shape[1] / FPS
    finding = f"after {seconds:.0f} s E_kin x {kinematic:.2g}, physics x {physics:.2g}, {upright:.0%} upright"
    return Outcome(max(kinematic, physics), max(kinematic, physics) <= BACK and upright >= 0.5, finding)


def manifold(full: Arrays, mean: Arrays) -> Outcome:
    """Judge the manifold of K samples against the mode of the same frames, and against people who have the mode alone.

    Samples that scatter lower the first by chance, but not the second.
    """
    with_k = median(full, "kinematic", RECOVERY)
    same = 1 - ratio(with_k, median(full, "kinematic_mode", RECOVERY))
    alone = 1 - ratio(with_k, median(mean, "kinematic", RECOVERY))
    finding = f"lower by {same:.0%} than to the mode, and by {alone:.0%} than with the mode alone"
    return Outcome(min(same, alone), min(same, alone) >= LESS, finding)


def ablation(full: Arrays, ablated: Arrays) -> Outcome:
    """Judge the final energies without contact and range of motion."""
    worse = [ratio(median(ablated, name, END), median(full, name, END)) for name in ("kinematic", "physics")]
    upright = [f"{people['upright'][:, -1].mean():.0%}" for people in (ablated, full)]
    finding = f"E_kin x {worse[0]:.2g}, physics x {worse[1]:.2g}, upright {' against '.join(upright)}"
    return Outcome(min(worse), min(worse) >= WORSE, finding)


def recorded_wrench(recorded: Recorded) -> Outcome:
    """Judge the root wrench of recordings, and points against cylinders."""
    if not recorded:
        return Outcome(None, None, "give recordings with --recordings")
    high = {kind: _high(recorded, kind) for kind in recorded}
    # A curve that does not change correlates with nothing.
    changing = [curves for some in recorded.values() for curves in some if curves.std(axis=1).min() > 0]
    alike = float(np.median([np.corrcoef(curves)[0, 1] for curves in changing]))
    number, parts = min(high.values()), ", ".join(f"{kind} {value:.2f}" for kind, value in high.items())
    finding = f"95th percentile [body weights] of {parts}; correlation {alike:.3f}"
    return Outcome(number, number >= NOTICEABLE and alike >= ALIKE, finding)


def _high(recorded: Recorded, kind: str) -> float:
    """Return the 95th percentile of the root wrench of a kind of recordings [body weights]."""
    return float(np.quantile(np.concatenate([points for points, _ in recorded[kind]]), 0.95))


def corrected_wrench(runs: Arrays, uncorrected: Arrays, recorded: Recorded) -> Outcome:
    """Judge whether the soft correction brings the root wrench of pushed runs into the range of recorded ones.

    Both are measured by the same function, which lets joints within 5 cm of the ground bear forces.
    """
    frames = slice(DURING.start, STEPPING.stop)
    after, before = (float(np.quantile(people["wrench"][:, frames], 0.95)) for people in (runs, uncorrected))
    finding = f"{after:.2f} body weights, {before:.2f} without the correction, until 1 s after the push"
    if "run" not in recorded:
        return Outcome(None, None, f"{finding}; give recordings with --recordings")
    high = _high(recorded, "run")
    return Outcome(after / high, after <= min(high, before), f"{finding}; {high:.2f} recorded")


def speeds_along(path: Arrays) -> tuple[np.ndarray, float]:
    """Return each person's mean speed in the direction asked for, a while after each turn, and the speed asked for."""
    wanted = path["wanted"][0]
    size = np.linalg.norm(wanted, axis=1)
    turned = np.concatenate(([True], (np.diff(wanted, axis=0) != 0).any(axis=1)))
    since = np.arange(len(wanted)) - np.maximum.accumulate(np.where(turned, np.arange(len(wanted)), 0))
    settled = (since >= SETTLE * FPS) & (size > 0)
    along = (np.gradient(path["root"], 1 / FPS, axis=1) * (wanted / np.maximum(size, 1e-9)[:, None])).sum(-1)
    return along[:, settled].mean(1), float(size[settled].mean())


def following(tables: Mapping[str, Arrays]) -> Outcome:
    """Judge people who follow a path, by themselves and led by the hand: those who keep up, stay up and keep the hand."""
    shares, parts = list[float](), list[str]()
    for name, reach in FOLLOWS.items():
        people = tables[name]
        speeds, wanted = speeds_along(people)
        follows = ~people["fallen"].any(axis=1) & (np.abs(speeds / wanted - 1) <= SPEED_ERROR)
        hand = ""
        if reach:
            follows &= people["hand_gap"].mean(1) <= reach
            hand = f", hand {people['hand_gap'].mean():.2f} m off"
        shares.append(float(follows.mean()))
        parts.append(f"{name} {shares[-1]:.0%} at {speeds.mean():.2f} of {wanted:g} m/s{hand}")
    return Outcome(min(shares), min(shares) >= FOLLOWING, "; ".join(parts))


def agreement(full: Arrays, calm: Arrays) -> Outcome:
    """Judge the paper's first hypothesis: in ordinary motion E_kin and the physics energies agree, and all are small."""
    usual = [median(calm, name, slice(BEFORE.start, None)) for name in ("kinematic", "physics")]
    peaks = [float(np.median(full[f"energy_{name}"], axis=0).max()) for name in ("kinematic", "physics")]
    number = ratio(max(usual), min(usual))
    small = max(ratio(value, high) for value, high in zip(usual, peaks, strict=True))
    finding = f"E_kin {usual[0]:.2g}, physics {usual[1]:.2g} m^2, at most {small:.2g} x the peak"
    return Outcome(number, number <= ROUGHLY and small <= SMALL, finding)


def judge(tables: Mapping[str, Arrays], recorded: Recorded, fps: float) -> dict[str, Outcome]:
    """Return the outcomes of the eight results, and of the first hypothesis."""
    full = tables["full"]
    outcomes = {
        "pushed-walk": pushed_walk(tables["walk"]),
        "back-to-level": back_to_level(tables["longer"]),
        "manifold": manifold(full, tables["mean"]),
        "ablation": ablation(full, tables["ablated"]),
        "recorded-wrench": recorded_wrench(recorded),
        "corrected-wrench": corrected_wrench(tables["run"], tables["run-uncorrected"], recorded),
        "following": following(tables),
        "speed": Outcome(fps, fps >= PAPER_FPS, f"{fps:.0f} frames a second on one thread"),
        "agreement": agreement(full, tables["calm"]),
    }
    fallen = float(full["fallen"][:, : PUSHED[0]].any(axis=1).mean())
    for name, outcome in outcomes.items():
        if 1 - fallen < STEADY and name not in UNPUSHED and outcome.reproduced:
            finding = f"{fallen:.0%} fall before they are pushed; {outcome.finding}"
            outcomes[name] = outcome._replace(reproduced=False, finding=finding)
    return outcomes
