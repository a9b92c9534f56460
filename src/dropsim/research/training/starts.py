"""Start states of recordings: to measure with, and the bank that is shipped. No torch here."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.joints import joint_index
from dropsim.body.rotations import heading
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.cvae import difference_memory, turn_memory
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import Prior, State
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


NUM_STARTS = 16
"""States of a category."""
_ANKLES = [joint_index(f"{side}_ankle") for side in ("left", "right")]
SINK = 0.03
"""Depth of a sphere in the floor that is allowed at a state [m]."""


@dataclass(frozen=True, eq=False)
class _Recent:
    """The second before each frame of a recording; for frames of the first second, that second."""

    speed: Float[np.ndarray, "t"]
    """Horizontal speed of the pelvis [m/s]."""
    speed_now: Float[np.ndarray, "t"]
    """Horizontal speed over the last fifth of the second [m/s]."""
    turn: Float[np.ndarray, "t"]
    """Mean rate of the heading [rad/s]."""
    stir: Float[np.ndarray, "t"]
    """Mean speed of the joints [m/s]."""
    flight: Float[np.ndarray, "t"]
    """Largest height of the lowest sphere above the floor [m]."""
    ankles: Float[np.ndarray, "t"]
    """Largest height of an ankle [m]."""
    pelvis: Float[np.ndarray, "t"]
    """Height of the pelvis now, as a share of its height when standing."""
    upright: Bool[np.ndarray, "t"]
    """True for people who are upright now."""
    upright_later: Bool[np.ndarray, "t"]
    """True for people who are upright at some time from now on."""

    @classmethod
    def of(cls, motion: Motion) -> "_Recent":
        """Measure a recording."""
        span = round(motion.fps)

        def padded(values: np.ndarray) -> np.ndarray:
            """Repeat the first value, so that there is one for every frame."""
            return np.pad(values, (len(motion) - len(values), 0), mode="edge")

        def last_second(values: np.ndarray) -> np.ndarray:
            return np.lib.stride_tricks.sliding_window_view(values, span)

        def speed(frames: int) -> np.ndarray:
            moved = motion.root[frames:, :2] - motion.root[:-frames, :2]
            return padded(np.linalg.norm(moved, axis=-1) * motion.fps / frames)

        lowest = (motion.joints[..., 2] - motion.skeleton.radii).min(-1)
        stir = padded(np.linalg.norm(np.diff(motion.joints, axis=0), axis=-1).mean(-1) * motion.fps)
        upright = metrics.upright(motion)
        return cls(
            speed=speed(span),
            speed_now=speed(max(1, span // 5)),
            turn=padded(last_second(metrics.turn_rate(motion)).mean(-1)),
            stir=padded(last_second(stir).mean(-1)),
            flight=padded(last_second(lowest).max(-1)),
            ankles=padded(last_second(motion.joints[:, _ANKLES, 2].max(-1)).max(-1)),
            pelvis=motion.root[:, 2] / motion.skeleton.standing_height,
            upright=upright,
            upright_later=np.logical_or.accumulate(upright[::-1])[::-1],
        )


Fit = Callable[[_Recent], Bool[np.ndarray, "t"]]
FITS: dict[str, Fit] = {
    "stand": lambda r: r.upright & (r.speed < 0.15) & (r.speed_now < 0.15) & (r.stir < 0.3),
    "walk": lambda r: r.upright & (r.speed > 0.6) & (r.speed_now > 0.6) & (r.speed < 2.0) & (abs(r.turn) < 0.6),
    "run": lambda r: r.upright & (r.speed > 2.2) & (r.speed_now > 2.2) & (abs(r.turn) < 0.6) & (r.ankles < 0.7),
    "jump": lambda r: (r.pelvis > 0.75) & (r.flight > 0.06) & (r.speed < 2.2),
    "turn": lambda r: r.upright & (abs(r.turn) > 0.8) & (r.speed < 2.0),
    "crouch": lambda r: (r.pelvis < 0.8) & (r.pelvis > 0.4) & (r.speed < 1.0),
    "get up": lambda r: (r.pelvis < 0.45) & r.upright_later,
    "dance": lambda r: r.upright & (r.stir > 0.5) & (r.speed < 2.2),
    "sport": lambda r: r.upright & (r.stir > 0.5) & (r.speed < 2.2),
}
"""Categories of the bank, and what the second before a state must have been like to deserve the name."""


def make_starts(clips: Clips, *, seed: int = 0, pose: PosePrior | None = None) -> StartBank:
    """Choose states of recordings that fit their category's name, of as many clips as there are.

    States are out of the floor and, if a pose model is given, in its range. A category without such a state is left
    out.
    """
    rng, bank = np.random.default_rng(seed), dict[str, State]()
    for name, fits in FITS.items():
        each = [_fitting_states(motion, fits, pose, rng) for clip, motion in clips if clip.category == name]
        each = [states for _, states in sorted(zip(rng.random(len(each)), each, strict=True), key=lambda pair: pair[0])]
        # The first of every clip, then the second, ...
        ranked = [state for round_ in itertools.zip_longest(*each) for state in round_ if state is not None]
        if ranked:
            bank[name] = stacked(ranked[:NUM_STARTS])
    if not bank:
        raise ValueError("no recording shows what its category says: give recordings of more categories")
    return StartBank(bank, clips[0][1].skeleton)


def _fitting_states(motion: Motion, fits: Fit, pose: PosePrior | None, rng: np.random.Generator) -> list[State]:
    """Return states of a recording, at least half a second apart and in random order, at which it fits a name."""
    step = round(motion.fps / 2)
    if len(motion) <= 4 * step:
        return []
    good = fits(_Recent.of(motion))
    good &= (motion.skeleton.radii - motion.joints[..., 2]).max(-1) < SINK
    if pose is not None:
        good &= pose.norm(motion.q) <= pose.limit
    frames = rng.permutation([frame for frame in range(2 * step, len(motion), step) if good[frame]]).tolist()
    return [placed(_state(motion, int(frame)), motion.skeleton.radii) for frame in frames[:NUM_STARTS]]


def _state(motion: Motion, frame: int) -> State:
    (x0, q0), (x, q) = ((motion.joints[i], motion.q[i]) for i in (frame - 1, frame))
    return State(x, (x - x0) * motion.fps, q, difference_memory(x0, q0, x, q, motion.fps))


def placed(state: State, radii: Float[np.ndarray, "22"]) -> State:
    """Move a state above the origin, out of the floor, and turn it to face +y."""
    H = heading(state.q[..., 0, :, :])
    origin = state.x[..., 0, :].copy()
    origin[..., 2] = np.minimum((state.x[..., 2] - radii).min(-1), 0)
    back = H.swapaxes(-1, -2)
    q = state.q.copy()
    q[..., 0, :, :] = H @ q[..., 0, :, :]
    return State((state.x - origin[..., None, :]) @ back, state.v @ back, q, turn_memory(state.memory, H))
