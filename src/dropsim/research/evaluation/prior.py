"""How good a motion prior is, on people that it never saw: one step, rollouts, windows, and the recovery test."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dropsim.compute.random import Streams
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.physics.step import Simulator
from dropsim.priors.motion_field import MotionField
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Prior, State
from dropsim.priors.rollout import roll_out
from dropsim.research.evaluation.recovery import Recovery, measure_recovery
from dropsim.research.evaluation.report import plain
from dropsim.research.evaluation.steering import activity, roam
from dropsim.research.evaluation.trials import check_seed, joined, survivors
from dropsim.research.evaluation.windows import all_features, alternate_features, frechet
from dropsim.research.training.starts import draw_frames, stacked

CHUNK = 64
"""People at a time: more are no faster, and this keeps the memory small."""


@dataclass(frozen=True)
class PriorEvaluation:
    """What is measured, and how much of it."""

    rollouts: int = 256
    """Sampled rollouts, and as many for the recovery test."""
    seconds: float = 10.0
    """Length of a rollout [s]."""
    seed: int = 0
    num_samples: int = 64
    """K: candidates of the one-step error and of the recovery test."""
    one_step_frames: int = 4096
    """Recorded frames whose next one is predicted; all of them if there are fewer."""
    diversity_samples: int = 8
    """Rollouts from the same start."""
    diversity_seconds: float = 2.0
    """Length of those [s]."""
    simulated: int = 64
    """People in the simulator; 0 measures the prior alone."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.rollouts < 2 or not 2 <= self.seconds <= 3600:
            raise ValueError(
                f"cannot judge by {self.rollouts} rollouts of {self.seconds:g} s: take at least 2 of at least 2 s"
            )
        if self.num_samples < 1 or self.one_step_frames < 1 or self.diversity_samples < 2:
            raise ValueError("num_samples and one_step_frames must be at least 1, diversity_samples at least 2")


@dataclass(frozen=True)
class OneStep:
    """Distance of the predicted from the recorded next frame, mean over joints and frames [mm]."""

    mode_mm: float
    best_mm: float
    """Of the nearest candidate."""
    coasting_mm: float
    """Of constant velocity: x_t + (x_t - x_{t-1})."""


SPEED_CLASSES = (0.2, 0.8, 1.5, 2.2, 3.2, math.inf)
"""Limits of the speeds by which a bias is told [m/s]."""


@dataclass(frozen=True)
class SpeedBias:
    """How much faster than recorded people the prior goes on in a frame, along the recorded way, as an acceleration."""

    speeds: str
    """[m/s]"""
    frames: int
    bias: float
    """[m/s^2]"""
    error: float
    """Standard error [m/s^2]."""


@dataclass(frozen=True)
class Quality:
    """What a set of motions is like, each motion weighing the same."""

    human_share: float
    """Share that stays human to the end (`metrics.human`)."""
    human_in_range_share: float
    """Share that stays human and whose pose is never out of range for a second in a row; NaN without a pose model."""
    upright_share: float
    """Share that is upright at the end."""
    out_of_range_percent: float
    """Share of the frames whose pose code is longer than 6; NaN without a pose model."""
    skate: float
    """Foot skate, median [m/s]."""
    skate_mean: float
    """Foot skate, mean [m/s]."""
    penetration_mm: float
    float_mm: float
    jerk: float
    """[m/s^3]"""
    standing: float
    """Share of the time at less than 0.2 m/s."""
    walking: float
    """Share of the time between 0.2 and 2.2 m/s."""
    running: float
    """Share of the time at more than 2.2 m/s."""
    turning: float
    """Share of the time at more than 1 rad/s."""
    height_drift: float
    """Mean height of the pelvis in the last second less that in the first [m]; motions of 2 s or more."""

    @classmethod
    def of(cls, motions: Sequence[Motion], pose: PosePrior | None) -> "Quality":
        """Measure motions of any length."""
        rows = [_measure(motion, pose) for motion in motions]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        known = {name: values[~np.isnan(values)] for name, values in columns.items()}
        means = {name: float(values.mean()) if len(values) else math.nan for name, values in known.items()}
        return cls(**means, skate=float(np.median(known["skate_mean"])))


def _measure(motion: Motion, pose: PosePrior | None) -> dict[str, float]:
    """Return the measures of one motion that a Quality averages; NaN if the motion cannot tell."""
    second = round(motion.fps)
    height = motion.root[:, 2]
    # What may last a second cannot be judged in a shorter motion.
    human = metrics.human(motion) if len(motion) >= second else math.nan
    outside = None if pose is None else pose.norm(motion.q) > pose.limit
    values = {
        "human_share": human,
        "human_in_range_share": math.nan if outside is None else human * (not metrics.sustained(outside, second).any()),
        "upright_share": metrics.upright(motion)[-1],
        "out_of_range_percent": math.nan if outside is None else 100 * outside.mean(),
        "skate_mean": metrics.foot_skate(motion),
        "penetration_mm": metrics.penetration_mm(motion),
        "float_mm": metrics.float_mm(motion),
        "jerk": metrics.jerk(motion),
        **activity(motion),
        "height_drift": height[-second:].mean() - height[:second].mean() if len(motion) >= 2 * second else math.nan,
    }
    return {name: float(value) for name, value in values.items()}


@dataclass(frozen=True, eq=False)
class PriorReport:
    """Everything that was measured, and the motions it was measured on."""

    prior: str
    people: tuple[str, ...]
    minutes: float
    """Of their recordings [min]."""
    options: PriorEvaluation
    one_step: OneStep
    speed_bias: tuple[SpeedBias, ...]
    generated: Quality
    """Of the rollouts that are finite; the others only count as not human."""
    recorded: Quality
    """Of the recordings that the rollouts start in, up to the same length, each as often as a rollout starts in it."""
    frechet: float
    """Between windows of a second of the rollouts and of the recordings."""
    frechet_floor: float
    """The same between every other second of the recordings and the seconds after those; NaN if there are too few."""
    diversity_m: float
    """Mean pairwise distance of rollouts from the same start (APD) [m]."""
    recovery: Recovery
    rollouts: Motion
    categories: tuple[str, ...]
    """Of the recordings that the rollouts start in."""
    recordings: tuple[Motion, ...]
    activity: Mapping[str, Any] = field(default_factory=dict)
    """What people do in the simulator with this prior, and in the recordings."""

    @property
    def skate_ratio(self) -> float:
        """Median foot skate of the rollouts over that of the recordings."""
        return _ratio(self.generated.skate, self.recorded.skate)

    def numbers(self) -> dict[str, Any]:
        """Return what was measured as plain values for JSON: the main ones by name, then rollouts and recordings."""
        step, back = self.one_step, self.recovery
        main = {
            "one_step_ratio_mode": _ratio(step.mode_mm, step.coasting_mm),
            "one_step_ratio_best": _ratio(step.best_mm, step.coasting_mm),
            "human_share": self.generated.human_share,
            "human_in_range_share": self.generated.human_in_range_share,
            "skate_ratio_alone": self.skate_ratio,
            "penetration_mm": self.generated.penetration_mm,
            "out_of_range_percent": self.generated.out_of_range_percent,
            "back_share": back.returns.back_share,
            "frechet": self.frechet,
            "frechet_floor": self.frechet_floor,
            "frechet_ratio": _ratio(self.frechet, self.frechet_floor),
            "diversity_m": self.diversity_m,
        }
        shove = {"energy_limit_m2": back.limit, "human_share": back.human_share}
        shove |= {"one_limit": asdict(back.returns), "limit_by_category": asdict(back.own_returns)}
        nested = {
            "one_step": asdict(step),
            "rollouts": asdict(self.generated),
            "recordings": asdict(self.recorded),
            "come_back": shove,
        }
        nested |= {"speed_bias": [asdict(bias) for bias in self.speed_bias]}
        about = {
            "prior": self.prior,
            "people": list(self.people),
            "minutes": self.minutes,
            "options": asdict(self.options),
        }
        return {name: plain(value) for name, value in {**main, "activity": self.activity, **nested, **about}.items()}


def _ratio(value: float, to: float) -> float:
    return value / to if to > 0 else math.nan


def evaluate_prior(
    prior: Prior, clips: Sequence[tuple[Clip, Motion]], options: PriorEvaluation, progress: Callable[[int, int], None] | None = None, *,
    pose: PosePrior | None = None,
) -> PriorReport:  # fmt: skip
    """Measure a prior on recordings of people that it never saw; the same numbers for the same seed."""
    clips = [(clip, motion.resampled(prior.fps)) for clip, motion in clips if len(motion) > 4]
    if not clips:
        raise ValueError("there is no recording to measure the prior on: each is shorter than five frames")
    num_frames = min(options.one_step_frames, sum(len(motion) - 2 for _, motion in clips))
    num_diverse = options.diversity_samples * max(1, options.rollouts // options.diversity_samples)
    total = _chunks(num_frames) + 3 * _chunks(options.rollouts) + _chunks(num_diverse)
    done = itertools.count(1)

    def tick() -> None:
        if progress:
            progress(next(done), total)

    one_step, speed_bias = _one_step(prior, [motion for _, motion in clips], options, tick)
    places = draw_frames(clips, options.rollouts, options.seed)
    starts = stacked([prior.start_from(clips[i][1], frame) for i, frame in places])
    length = round(options.seconds * prior.fps) + 1
    recordings = tuple(_around(clips[i][1], frame, length) for i, frame in places)
    rollouts = _roll_out(prior, starts, length, options.seed, tick)
    finite = np.isfinite(rollouts.joints).all((-1, -2, -3))
    if not finite.any():
        raise ValueError(f"every rollout of {prior.name} diverged: these weights cannot be measured")
    motions = [person(rollouts, i) for i in np.flatnonzero(finite).tolist()]
    quality, shares = Quality.of(motions, pose), ("human_share", "human_in_range_share", "upright_share")
    categories = tuple(clips[i][0].category for i, _ in places)
    return PriorReport(
        prior=prior.name,
        people=tuple(sorted({clip.person for clip, _ in clips})),
        minutes=sum(len(motion) for _, motion in clips) / prior.fps / 60,
        options=options,
        one_step=one_step,
        speed_bias=speed_bias,
        # Rollouts that are not finite are neither human nor upright.
        generated=replace(quality, **{name: float(finite.mean()) * getattr(quality, name) for name in shares}),
        recorded=Quality.of(recordings, pose),
        frechet=frechet(all_features(motions), all_features(recordings)),
        frechet_floor=frechet(*alternate_features(recordings)),
        diversity_m=_diversity(prior, starts, options, tick),
        recovery=measure_recovery(
            prior, starts, categories, num_samples=options.num_samples, seed=options.seed, chunk=CHUNK, tick=tick
        ),
        rollouts=rollouts,
        categories=categories,
        recordings=recordings,
    )


def person(motion: Motion, index: int) -> Motion:
    """Pick one person out of a batch."""
    return motion.map(lambda values: values[index])


def _chunks(count: int) -> int:
    return -(-count // CHUNK)


@np.errstate(invalid="ignore", over="ignore")
def _one_step(
    prior: Prior, motions: Sequence[Motion], options: PriorEvaluation, tick: Callable[[], None]
) -> tuple[OneStep, tuple[SpeedBias, ...]]:
    """Predict the frame after each of some recorded frames, drawn evenly from all of them."""
    frames = [(i, frame) for i, motion in enumerate(motions) for frame in range(1, len(motion) - 1)]
    order = np.random.default_rng(options.seed).permutation(len(frames))
    chosen = [frames[i] for i in sorted(order[: options.one_step_frames])]
    errors, faster, speeds = [], [], []
    for first, last in pairwise([*range(0, len(chosen), CHUNK), len(chosen)]):
        part = chosen[first:last]
        state = stacked([prior.start_from(motions[i], frame) for i, frame in part])
        target = np.stack([motions[i].joints[frame + 1] for i, frame in part])
        candidates = prior.propose(state, options.num_samples, Streams([options.seed + i for i in range(first, last)]))
        miss = np.linalg.norm(candidates.x - target[:, None], axis=-1).mean(-1)
        coasting = np.linalg.norm(state.x + state.v / prior.fps - target, axis=-1).mean(-1)
        errors.append(np.stack((miss[:, 0], miss.min(-1), coasting), axis=-1))
        # The way and the speed are those of the last half second. The next frame must not be part of it: people who are
        # about to speed up would be sorted among the faster ones, and the best of all priors would seem slow there.
        way = np.stack([_way(motions[i], frame) for i, frame in part])
        speeds.append(np.linalg.norm(way, axis=-1))
        ahead = (candidates.x[:, :, 0, :2].mean(1) - target[:, 0, :2]) * prior.fps**2
        faster.append((ahead * way).sum(-1) / np.maximum(speeds[-1], 1e-9))
        tick()
    one_step = OneStep(*(1000 * np.concatenate(errors).mean(0)).tolist())
    return one_step, speed_biases(np.concatenate(speeds), np.concatenate(faster))


def _way(motion: Motion, frame: int) -> np.ndarray:
    """Return the mean velocity over the ground of the half second before a frame [m/s]."""
    first = max(frame - round(motion.fps / 2), 0)
    return (motion.root[frame, :2] - motion.root[first, :2]) * motion.fps / (frame - first)


def speed_biases(speeds: np.ndarray, faster: np.ndarray) -> tuple[SpeedBias, ...]:
    """Sort the frames by speed."""
    found = []
    for low, high in pairwise(SPEED_CLASSES):
        own = faster[(speeds >= low) & (speeds < high)]
        error = float(own.std(ddof=1) / len(own) ** 0.5) if len(own) > 1 else math.nan
        name = f"{low:g}-{high:g}" if math.isfinite(high) else f"above {low:g}"
        found.append(SpeedBias(name, len(own), float(own.mean()) if len(own) else math.nan, error))
    return tuple(found)


def refuse_same_people(prior: Prior, clips: Sequence[tuple[Clip, Motion]]) -> None:
    """Refuse to judge a bank by people who are in it."""
    known = {clip.name.partition("_")[0] for clip in prior.bank.clips} if isinstance(prior, MotionField) else set()
    if same := sorted({clip.person for clip, _ in clips} & known):
        names = ", ".join(same[:5]) + (", ..." if len(same) > 5 else "")
        raise ValueError(
            f"the bank holds people of these recordings ({names}): judge it by others, or allow it with --same-people"
        )


def measure_activity(
    simulator: Simulator, clips: Sequence[tuple[Clip, Motion]], options: PriorEvaluation
) -> dict[str, Any]:
    """Return what people do in the simulator whom nobody asks for anything, and what those did in whose recordings they start."""
    clips = [(clip, motion.resampled(simulator.prior.fps)) for clip, motion in clips if len(motion) > 4]
    places, length = (
        draw_frames(clips, options.simulated, options.seed),
        round(options.seconds * simulator.prior.fps) + 1,
    )

    def together(some: Sequence[int]) -> Motion:
        states = stacked([simulator.prior.start_from(clips[places[i][0]][1], places[i][1]) for i in some])
        nothing = np.full((len(some), 1, 3), np.nan)
        return roam(simulator, states, nothing, Streams([options.seed + i for i in some]), length)

    motion, _ = survivors(range(len(places)), together)
    recorded = [activity(_around(clips[i][1], frame, length)) for i, frame in places]
    rolled_out = {} if motion is None else {name: float(values.mean()) for name, values in activity(motion).items()}
    return {
        "recorded": {name: float(np.mean([one[name] for one in recorded])) for name in recorded[0]},
        "rolled_out": rolled_out,
    }


@np.errstate(invalid="ignore", over="ignore")
def _roll_out(prior: Prior, starts: State, length: int, seed: int, tick: Callable[[], None]) -> Motion:
    """Roll out a part of the batch at a time; each person has random numbers of their own."""
    parts = []
    for first, last in pairwise([*range(0, len(starts.x), CHUNK), len(starts.x)]):
        # Where the simulator starts at the mode, that is what goes on: a motion field draws it anew when a clip ends.
        rng = Streams([seed + i for i in range(first, last)])
        parts.append(roll_out(prior, starts[first:last], length, rng, mode=prior.starts_at_mode))
        tick()
    return joined(parts)


def _around(motion: Motion, frame: int, length: int) -> Motion:
    """Return at most `length` frames of a recording from a frame on, or from an earlier one if it would end too soon."""
    start = max(0, min(frame, len(motion) - length))
    return motion.slice(start, start + length)


def _diversity(prior: Prior, starts: State, options: PriorEvaluation, tick: Callable[[], None]) -> float:
    """Mean pairwise distance of rollouts from the same start, over a few starts [m]."""
    k = options.diversity_samples
    count = max(1, len(starts.x) // k)
    repeated = starts[np.repeat(np.arange(count), k)]
    length = round(options.diversity_seconds * prior.fps) + 1
    joints = _roll_out(prior, repeated, length, options.seed + 10**6, tick).joints
    apart = metrics.diversity_m(joints.reshape(count, k, *joints.shape[1:]))
    known = apart[~np.isnan(apart)]
    return float(known.mean()) if len(known) else math.nan
