"""How good a motion prior is, on people that it never saw: one step, and rollouts alone and in the simulator."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dropsim.compute.random import Streams
from dropsim.files.tables import shown
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Prior
from dropsim.priors.rollout import roll_out
from dropsim.research.evaluation.harness import Amounts, Arrays, Watch, survivors
from dropsim.research.evaluation.people import Acted, roam
from dropsim.research.evaluation.report import Report, Table, plain
from dropsim.research.training.starts import draw_frames, stacked

SPEED_CLASSES = (0.2, 0.8, 1.5, 2.2, 3.2, math.inf)
"""Limits of the speeds by which a bias is reported [m/s]."""
QUALITY = {
    "human_share": "human to the end|.1%",
    "human_in_range_share": "human, and never in an unnatural pose for 1 s|.1%",
    "upright_share": "upright at the end|.1%",
    "out_of_range_percent": "frames with a pose out of range [%]|.3g",
    "skate": "foot skate, median [m/s]|.3f",
    "skate_mean": "foot skate, mean [m/s]|.3f",
    "penetration_mm": "penetration [mm]|.2f",
    "float_mm": "float [mm]|.1f",
    "jerk": "jerk [m/s^3]|.0f",
    "standing": "standing, below 0.2 m/s|.1%",
    "walking": "walking, 0.2 to 2.2 m/s|.1%",
    "running": "running, above 2.2 m/s|.1%",
    "turning": "turning, above 1 rad/s|.1%",
    "height_drift": "change of pelvis height, first to last second [m]|+.3f",
}
"""Measures of a set of motions, each motion weighing the same: titles and formats."""
CHUNK = 64
"""People at a time: more are no faster, and this keeps the memory small."""
Clips = Sequence[tuple[Clip, Motion]]


@dataclass(frozen=True)
class PriorEvaluation(Amounts):
    """Amounts of all that is measured."""

    few: ClassVar = {"rollouts": 32, "simulated": 8, "one_step_frames": 1024}
    may_be_0: ClassVar = ("seed", "simulated")
    rollouts: int = 256
    """Sampled rollouts."""
    seconds: float = 10.0
    """Length of a rollout [s]."""
    seed: int = 0
    num_samples: int = 64
    """K: candidates of the one-step error."""
    one_step_frames: int = 4096
    """Recorded frames whose next one is predicted; all of them if there are fewer."""
    simulated: int = 64
    """People in the simulator; 0 measures the prior alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollouts < 2 or not 2 <= self.seconds <= 3600:
            what = f"{self.rollouts} rollouts of {self.seconds:g} s"
            raise ValueError(f"cannot judge by {what}: take at least 2 of at least 2 s")


def quality_of(motions: Sequence[Motion], pose: PosePrior) -> dict[str, float]:
    """Measure motions of any length; NaN for measures that no motion gives."""
    rows = [_measure(motion, pose) for motion in motions]
    values = {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}
    known = {name: each[~np.isnan(each)] for name, each in values.items()}
    known["skate"] = np.median(known["skate_mean"], keepdims=True)
    return {name: float(known[name].mean()) if len(known[name]) else math.nan for name in QUALITY}


def _measure(motion: Motion, pose: PosePrior) -> dict[str, Any]:
    """Return the measures of one motion; NaN if the motion is too short for one."""
    second, height = round(motion.fps), motion.root[:, 2]
    # What may last a second cannot be judged in a shorter motion.
    human = metrics.human(motion) if len(motion) >= second else math.nan
    outside = pose.norm(motion.q) > pose.limit
    return {
        "human_share": human,
        "human_in_range_share": human * (not metrics.sustained(outside, second).any()),
        "upright_share": metrics.upright(motion)[-1],
        "out_of_range_percent": 100 * outside.mean(),
        "skate_mean": metrics.foot_skate(motion),
        "penetration_mm": metrics.penetration_mm(motion),
        "float_mm": metrics.float_mm(motion),
        "jerk": metrics.jerk(motion),
        **activity(motion),
        "height_drift": height[-second:].mean() - height[:second].mean() if len(motion) >= 2 * second else math.nan,
    }


def activity(motion: Motion) -> dict[str, np.ndarray]:
    """Return the shares of the time in which people stand, walk, run and turn."""
    speed, turn = metrics.root_speed(motion), np.abs(metrics.turn_rate(motion))
    stands, runs = speed < metrics.STANDING, speed > metrics.RUNNING
    flags = {"standing": stands, "walking": ~stands & ~runs, "running": runs, "turning": turn > metrics.TURNING}
    return {name: np.asarray(flag.mean(-1)) for name, flag in flags.items()}


def _rows(numbers: Mapping[str, Any], num_samples: int) -> list[list[str]]:
    """Lay the numbers out, rollouts next to the recordings that they start in."""
    step, rows = numbers["one_step"], [["measure", "prior", "recordings, or what to compare with"]]

    def add(label: str, value: float | None, form: str, compare: float | None, of: str = "") -> None:
        cells = [shown(number, form, otherwise="not measured") for number in (value, compare)]
        rows.append([label, cells[0], f"{cells[1]}{of}"])

    for label, name in (("mode", "mode_mm"), (f"best of {num_samples}", "best_mm")):
        add(f"one-step joint error, {label} [mm]", step[name], ".2f", step["coasting_mm"], " (constant velocity)")
    for name, title in QUALITY.items():
        label, _, form = title.partition("|")
        add(label, numbers["rollouts"][name], form, numbers["recordings"][name])
    for bias in numbers["speed_bias"]:
        if bias["frames"]:
            label = f"speed bias at {bias['speeds']} m/s [m/s^2]"
            add(label, bias["bias"], "+.2f", bias["error"], " (standard error)")
    for name, share in numbers["activity"].get("rolled_out", {}).items():
        add(f"in the simulator, {name}", share, ".1%", numbers["activity"]["recorded"][name])
    return rows


def _ratio(value: float, to: float) -> float:
    return value / to if to > 0 else math.nan


def evaluate_prior(
    prior: Prior, clips: Clips, options: PriorEvaluation, watch: Watch = None, *, simulator: Simulator | None = None
) -> Report:
    """Measure a prior on recordings of people that it never saw; the same numbers for the same seed.

    People are also simulated if there is a simulator.
    """
    clips = [(clip, motion.resampled(prior.fps)) for clip, motion in clips if len(motion) > 4]
    if not clips:
        raise ValueError("there is no recording to measure the prior on: each is shorter than five frames")
    tick = watch or (lambda done, total: None)
    one_step, speed_bias = _one_step(prior, [motion for _, motion in clips], options)
    tick(1, 3)
    places = draw_frames(clips, options.rollouts, options.seed)
    length = round(options.seconds * prior.fps) + 1
    rollouts = list[Motion]()
    for first in range(0, len(places), CHUNK):
        starts = stacked([prior.start_from(clips[i][1], frame) for i, frame in places[first : first + CHUNK]])
        rng = Streams([options.seed + first + i for i in range(len(starts.x))])
        # Where the simulator starts at the mode, the mode goes on: a motion field draws it again when a clip ends.
        with np.errstate(invalid="ignore", over="ignore"):
            motion = roll_out(prior, starts, length, rng, mode=prior.starts_at_mode)
        rollouts += [motion.map(lambda values, i=i: values[i]) for i in range(len(starts.x))]
    tick(2, 3)
    motions = [motion for motion in rollouts if np.isfinite(motion.joints).all()]
    if not motions:
        raise ValueError(f"every rollout of {prior.name} diverged: these weights cannot be measured")
    recordings, pose = [_around(clips[i][1], frame, length) for i, frame in places], PosePrior.shipped()
    generated, recorded = quality_of(motions, pose), quality_of(recordings, pose)
    # Rollouts that are not finite are neither human nor upright.
    for name in ("human_share", "human_in_range_share", "upright_share"):
        generated[name] *= len(motions) / len(rollouts)
    activities = {} if simulator is None else measure_activity(simulator, clips, options)
    tick(3, 3)
    people, minutes = sorted({clip.person for clip, _ in clips}), sum(len(m) for _, m in clips) / prior.fps / 60
    numbers: Any = plain(
        {
            "one_step_ratio_mode": _ratio(one_step["mode_mm"], one_step["coasting_mm"]),
            "one_step_ratio_best": _ratio(one_step["best_mm"], one_step["coasting_mm"]),
            "human_share": generated["human_share"],
            "skate_ratio_alone": _ratio(generated["skate"], recorded["skate"]),
            "penetration_mm": generated["penetration_mm"],
            "activity": activities,
            "one_step": one_step,
            "rollouts": generated,
            "recordings": recorded,
            "speed_bias": speed_bias,
            "prior": prior.name,
            "people": people,
            "minutes": minutes,
        }
    )
    about = f"{len(people)} people ({', '.join(people)}), {minutes:.1f} min of recordings"
    amount = f"{options.rollouts} sampled rollouts of {options.seconds:g} s"
    caption = f"Measured by `dropsim evaluate prior` (seed {options.seed}) on {about}: {amount}"
    table = Table("The motion prior, on people that it never saw", _rows(numbers, options.num_samples))
    return Report("prior", "The motion prior", {"prior": table}, numbers, options, caption)


@np.errstate(invalid="ignore", over="ignore")
def _one_step(
    prior: Prior, motions: Sequence[Motion], options: PriorEvaluation
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Predict the frame after each of some recorded frames, drawn evenly from all of them.

    Return the mean distance of the mode, of the nearest candidate and of constant velocity from the recorded joints
    [mm], and the biases of speed.
    """
    frames = [(i, frame) for i, motion in enumerate(motions) for frame in range(1, len(motion) - 1)]
    order = np.random.default_rng(options.seed).permutation(len(frames))
    chosen = [frames[i] for i in sorted(order[: options.one_step_frames])]
    errors, faster, speeds = [], [], []
    for first in range(0, len(chosen), CHUNK):
        part = chosen[first : first + CHUNK]
        state = stacked([prior.start_from(motions[i], frame) for i, frame in part])
        target = np.stack([motions[i].joints[frame + 1] for i, frame in part])
        rng = Streams([options.seed + first + i for i in range(len(part))])
        candidates = prior.propose(state, options.num_samples, rng)
        miss = np.linalg.norm(candidates.x - target[:, None], axis=-1).mean(-1)
        coasting = np.linalg.norm(state.x + state.v / prior.fps - target, axis=-1).mean(-1)
        errors.append(np.stack((miss[:, 0], miss.min(-1), coasting), axis=-1))
        # The way and the speed are those of the last half second. The next frame must not be part of it: people who are
        # about to speed up would be sorted among the faster ones, and the best of all priors would seem slow there.
        way = np.stack([_way(motions[i], frame) for i, frame in part])
        speeds.append(np.linalg.norm(way, axis=-1))
        ahead = (candidates.x[:, :, 0, :2].mean(1) - target[:, 0, :2]) * prior.fps**2
        faster.append((ahead * way).sum(-1) / np.maximum(speeds[-1], 1e-9))
    mode, best, coasting = (1000 * np.concatenate(errors).mean(0)).tolist()
    one_step = {"mode_mm": mode, "best_mm": best, "coasting_mm": coasting}
    return one_step, speed_biases(np.concatenate(speeds), np.concatenate(faster))


def _way(motion: Motion, frame: int) -> np.ndarray:
    """Return the mean velocity over the ground of the half second before a frame [m/s]."""
    first = max(frame - round(motion.fps / 2), 0)
    return (motion.root[frame, :2] - motion.root[first, :2]) * motion.fps / (frame - first)


def speed_biases(speeds: np.ndarray, faster: np.ndarray) -> list[dict[str, Any]]:
    """Return how much faster than recorded people the prior goes on, by speed, with standard errors [m/s^2]."""
    biases = []
    for low, high in pairwise(SPEED_CLASSES):
        some = faster[(speeds >= low) & (speeds < high)]
        error = float(some.std(ddof=1) / len(some) ** 0.5) if len(some) > 1 else math.nan
        name = f"{low:g}-{high:g}" if math.isfinite(high) else f"above {low:g}"
        bias = float(some.mean()) if len(some) else math.nan
        biases.append({"speeds": name, "frames": len(some), "bias": bias, "error": error})
    return biases


def refuse_same_people(prior: Prior, clips: Clips) -> None:
    """Refuse to judge a bank by people who are in it."""
    known = {clip.name.partition("_")[0] for clip in prior.bank.clips} if isinstance(prior, MotionField) else set()
    if same := sorted({clip.person for clip, _ in clips} & known):
        names = ", ".join(same[:5]) + (", ..." if len(same) > 5 else "")
        remedy = "judge it by others, or allow it with --same-people"
        raise ValueError(f"the bank holds people of these recordings ({names}): {remedy}")


def measure_activity(simulator: Simulator, clips: Clips, options: PriorEvaluation) -> dict[str, Any]:
    """Return the activities of people in the simulator whom nobody asks for anything, and of their recordings."""
    places = draw_frames(clips, options.simulated, options.seed)
    length = round(options.seconds * simulator.prior.fps) + 1

    def together(some: Sequence[int]) -> Arrays:
        states = stacked([simulator.prior.start_from(clips[places[i][0]][1], places[i][1]) for i in some])
        wanted = Acted(np.full((len(some), 1, 3), np.nan))
        return activity(roam(simulator, states, wanted, Streams([options.seed + i for i in some]), length))

    people = survivors(range(len(places)), together)
    del people["finished"]
    recorded = [activity(_around(clips[i][1], frame, length)) for i, frame in places]
    means = {name: float(np.mean([one[name] for one in recorded])) for name in recorded[0]}
    return {"recorded": means, "rolled_out": {name: float(values.mean()) for name, values in people.items()}}


def _around(motion: Motion, frame: int, length: int) -> Motion:
    """Return at most `length` frames of a recording from a frame on, or from an earlier one if it ends too soon."""
    start = max(0, min(frame, len(motion) - length))
    return motion.slice(start, start + length)
