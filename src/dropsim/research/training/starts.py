"""Start states: recorded ones to train and measure with, and the bank that our own model makes. No torch here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.rotations import heading
from dropsim.compute.random import Streams
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.cvae import CVAEPrior, turn_memory
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Prior, State
from dropsim.priors.rollout import roll_out
from dropsim.priors.starts import StartBank

Clips = Sequence[tuple[Clip, Motion]]


def draw_frames(clips: Clips, count: int, seed: int) -> list[tuple[int, int]]:
    """Draw places to start at, clip and frame, taking turns over the categories; the same for the same seed."""
    rng = np.random.default_rng(seed)
    names = sorted({clip.category for clip, _ in clips})
    groups = [[i for i, (clip, _) in enumerate(clips) if clip.category == name] for name in names]
    chosen = [int(rng.choice(groups[i % len(groups)])) for i in range(count)]
    return [(i, int(rng.integers(1, len(clips[i][1])))) for i in chosen]


def stacked(states: Sequence[State]) -> State:
    """Put states into one batch."""
    return State(*(np.stack([getattr(s, f.name) for s in states]) for f in fields(State)))


def held_out_starts(clips: Clips, prior: Prior, count: int, seed: int) -> State:
    """Return start states spread over clips and categories, the same for the same seed."""
    return stacked([prior.start_from(clips[i][1], frame) for i, frame in draw_frames(clips, count, seed)])


@dataclass(frozen=True)
class StartOptions:
    """How the bank is made."""

    count: int = 16
    """States per category."""
    batch: int = 64
    """Rollouts at a time."""
    rounds: int = 12
    """Batches to try before a category is left with fewer."""
    seed: int = 0


EARLIEST, LATEST, END = 1.0, 4.0, 7.0
"""Times of a rollout between which a state is taken, and its end, so that people have time to get up [s]."""
SINK = 0.03
"""Depth of a sphere in the floor that is allowed at a state and on average in the second before [m]."""


@dataclass(frozen=True, eq=False)
class _Recent:
    """The second before each frame of some rollouts; for frames of the first second, that second."""

    speed: Float[np.ndarray, "b t"]
    """Horizontal speed of the pelvis [m/s]."""
    speed_now: Float[np.ndarray, "b t"]
    """Horizontal speed over the last fifth of the second [m/s]."""
    turn: Float[np.ndarray, "b t"]
    """Mean rate of the heading [rad/s]."""
    stir: Float[np.ndarray, "b t"]
    """Mean speed of the joints [m/s]."""
    flight: Float[np.ndarray, "b t"]
    """Largest height of the lowest sphere above the floor [m]."""
    pelvis: Float[np.ndarray, "b t"]
    """Height of the pelvis now, as a share of its height when standing."""
    upright: Bool[np.ndarray, "b t"]
    """True for people who are upright now."""
    upright_later: Bool[np.ndarray, "b t"]
    """True for people who are upright at some time from now on."""

    @classmethod
    def of(cls, motion: Motion) -> "_Recent":
        """Measure rollouts."""
        span = round(motion.fps)

        def padded(values: np.ndarray) -> np.ndarray:
            """Repeat the first value, so that there is one for every frame."""
            return np.pad(values, ((0, 0), (len(motion) - values.shape[-1], 0)), mode="edge")

        def last_second(values: np.ndarray) -> np.ndarray:
            return np.lib.stride_tricks.sliding_window_view(values, span, axis=-1)

        def speed(frames: int) -> np.ndarray:
            moved = motion.root[:, frames:, :2] - motion.root[:, :-frames, :2]
            return padded(np.linalg.norm(moved, axis=-1) * motion.fps / frames)

        lowest = (motion.joints[..., 2] - motion.skeleton.radii).min(-1)
        stir = padded(np.linalg.norm(np.diff(motion.joints, axis=-3), axis=-1).mean(-1) * motion.fps)
        upright = metrics.upright(motion)
        return cls(
            speed=speed(span),
            speed_now=speed(max(1, span // 5)),
            turn=padded(last_second(metrics.turn_rate(motion)).mean(-1)),
            stir=padded(last_second(stir).mean(-1)),
            flight=padded(last_second(lowest).max(-1)),
            pelvis=motion.root[..., 2] / motion.skeleton.standing_height,
            upright=upright,
            upright_later=np.logical_or.accumulate(upright[:, ::-1], axis=-1)[:, ::-1],
        )


Fit = Callable[[_Recent], Bool[np.ndarray, "b t"]]
FITS: dict[str, Fit] = {
    "stand": lambda r: r.upright & (r.speed < 0.15) & (r.speed_now < 0.15) & (r.stir < 0.3),
    "walk": lambda r: r.upright & (r.speed > 0.6) & (r.speed_now > 0.6) & (r.speed < 2.0) & (abs(r.turn) < 0.6),
    "run": lambda r: r.upright & (r.speed > 2.2) & (r.speed_now > 2.2),
    "jump": lambda r: (r.pelvis > 0.75) & (r.flight > 0.06) & (r.speed < 2.2),
    "turn": lambda r: r.upright & (abs(r.turn) > 0.8) & (r.speed < 2.0),
    "crouch": lambda r: (r.pelvis < 0.8) & (r.pelvis > 0.4) & (r.speed < 1.0),
    "get up": lambda r: (r.pelvis < 0.45) & r.upright_later,
    "dance": lambda r: r.upright & (r.stir > 0.5) & (r.speed < 2.2),
    "sport": lambda r: r.upright & (r.stir > 0.5) & (r.speed < 2.2),
}
"""Categories of the bank, and what the second before a state must have been like to deserve the name."""


def make_starts(
    prior: CVAEPrior,
    clips: Clips,
    options: StartOptions,
    progress: Callable[[int, int], None] | None = None,
    *,
    pose: PosePrior | None = None,
) -> StartBank:
    """Roll the model out from recordings of each category, and keep states, seconds later, that fit its name.

    No state is a copy of a recorded frame. States are human and, if a pose model is given, in its range. A category for
    which the model gives no such state is left out.
    """
    if not prior.network.shape.kinematic:
        raise ValueError("start states are made by our own kind of prior: train one with `dropsim train prior`")
    bank: dict[str, State] = {}
    for done, (name, fits) in enumerate(FITS.items()):
        frames = _recorded_frames([motion for clip, motion in clips if clip.category == name], fits)
        states: list[State] = []
        for round_ in range(options.rounds if frames else 0):
            seed = options.seed + 1000 * (done * options.rounds + round_)
            chosen = np.random.default_rng(seed).integers(len(frames), size=options.batch)
            starts = stacked([prior.start_from(*frames[i]) for i in chosen])
            rolled = roll_out(prior, starts, round(END * prior.fps), Streams([seed + i for i in range(options.batch)]))
            states += _fitting_states(prior, rolled, fits, pose)
            if len(states) >= options.count:
                break
        if states:
            bank[name] = stacked(states[: options.count])
        if progress:
            progress(done + 1, len(FITS))
    if not bank:
        raise ValueError(
            "no rollout of this prior gave a start: train it longer, or give recordings of more categories"
        )
    return StartBank(bank, prior.skeleton)


def _recorded_frames(motions: Sequence[Motion], fits: Fit) -> list[tuple[Motion, int]]:
    """Return frames of each recording, at least half a second apart, at which it fits its category's name itself."""
    frames = []
    for motion in motions:
        step = round(motion.fps / 2)
        if len(motion) > 4 * step:
            good = fits(_Recent.of(motion.map(lambda values: values[None])))[0]
            frames += [(motion, frame) for frame in range(2 * step, len(motion), step) if good[frame]]
    return frames


def _fitting_states(prior: CVAEPrior, rolled: Motion, fits: Fit, pose: PosePrior | None) -> list[State]:
    """Return at most one state of each rollout that stays human for another second: the middle one of those that fit.

    The last one would be where the rollout ceases to fit.
    """
    second = round(rolled.fps)
    sunk = (rolled.skeleton.radii - rolled.joints[..., 2]).max(-1)
    good = fits(_Recent.of(rolled)) & (sunk < SINK)
    if pose is not None:
        good &= pose.norm(rolled.q) <= pose.limit
    good[:, : round(EARLIEST * rolled.fps)] = False
    good[:, round(LATEST * rolled.fps) + 1 :] = False
    states = []
    for i in np.flatnonzero(good.any(-1)):
        fitting = np.flatnonzero(good[i])
        frame = int(fitting[(len(fitting) - 1) // 2])
        one = rolled.map(lambda values, i=i: values[i])
        sinks = float(metrics.penetration_mm(one.slice(frame - second, frame + 1))) > 1000 * SINK
        if not sinks and metrics.human(one.slice(0, frame + second)):
            states.append(placed(prior.start_from(one, frame), rolled.skeleton.radii))
    return states


def placed(state: State, radii: Float[np.ndarray, "22"]) -> State:
    """Move a state above the origin, out of the floor, and turn it to face +y."""
    H = heading(state.q[..., 0, :, :])
    origin = state.x[..., 0, :].copy()
    origin[..., 2] = np.minimum((state.x[..., 2] - radii).min(-1), 0)
    back = H.swapaxes(-1, -2)
    q = state.q.copy()
    q[..., 0, :, :] = H @ q[..., 0, :, :]
    return State((state.x - origin[..., None, :]) @ back, state.v @ back, q, turn_memory(state.memory, H))
