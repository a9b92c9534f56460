"""Start states: from recordings, to train and measure with, and the bank that ships, which our own model makes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dropsim.body.rotations import heading
from dropsim.motion.clips import Clip
from dropsim.motion.motion import Motion
from dropsim.physics import metrics
from dropsim.priors.cvae import CVAEPrior, turn_memory
from dropsim.priors.pose import PosePrior
from dropsim.priors.prior import State, Streams
from dropsim.priors.rollout import roll_out
from dropsim.priors.starts import StartBank

Clips = Sequence[tuple[Clip, Motion]]


def draw_frames(clips: Clips, count: int, seed: int) -> list[tuple[int, int]]:
    """Draw places to start at, clip and frame, taking turns over the categories; the same for the same seed."""
    rng = torch.Generator().manual_seed(seed)
    by_category: dict[str, list[int]] = {}
    for i, (clip, _) in enumerate(clips):
        by_category.setdefault(clip.category, []).append(i)
    names = sorted(by_category)
    places = []
    for i in range(count):
        group = by_category[names[i % len(names)]]
        chosen = group[int(torch.randint(len(group), (), generator=rng))]
        places.append((chosen, int(torch.randint(1, len(clips[chosen][1]), (), generator=rng))))
    return places


def stacked(states: Sequence[State]) -> State:
    """Put states into one batch."""
    return State(*(torch.stack([getattr(s, f.name) for s in states]) for f in fields(State)))


def held_out_starts(clips: Clips, prior: CVAEPrior, count: int, seed: int) -> State:
    """Return start states spread over clips and categories, the same for the same seed."""
    return stacked([prior.start_from(clips[i][1], frame) for i, frame in draw_frames(clips, count, seed)])


@dataclass(frozen=True)
class StartOptions:
    """How the bank is made."""

    count: int = 16
    """States per category."""
    batch: int = 64
    """Roll-outs at a time."""
    rounds: int = 12
    """Batches to try before a category is left with fewer."""
    seed: int = 0


EARLIEST, LATEST, END = 1.0, 4.0, 7.0
"""A state is taken between the first two times of a roll-out, which goes on to the third, so that people can get up [s]."""
SINK = 0.03
"""Deepest that a sphere may be in the floor at a state and, on average, in the second before [m]; a state is lifted by that much."""


@dataclass(frozen=True, eq=False)
class _Recent:
    """What the second before each frame of some roll-outs was like; the first second repeats its end."""

    speed: Float[Tensor, "b t"]
    """Horizontal, of the pelvis [m/s]."""
    speed_now: Float[Tensor, "b t"]
    """The same over the last fifth of the second [m/s]."""
    turn: Float[Tensor, "b t"]
    """Mean rate of the heading [rad/s]."""
    stir: Float[Tensor, "b t"]
    """Mean speed of the joints [m/s]."""
    flight: Float[Tensor, "b t"]
    """Highest that the lowest sphere was above the floor [m]."""
    pelvis: Float[Tensor, "b t"]
    """Height of the pelvis now, as a share of its height when standing."""
    upright: Bool[Tensor, "b t"]
    """Now."""
    upright_later: Bool[Tensor, "b t"]
    """At some time from now to the roll-out's end."""

    @classmethod
    def of(cls, motion: Motion) -> "_Recent":
        """Measure roll-outs."""
        span = round(motion.fps)

        def last_second(values: Tensor) -> Tensor:
            means = torch.nn.functional.avg_pool1d(values.float().unsqueeze(1), span, 1).squeeze(1)
            return torch.nn.functional.pad(means, (len(motion) - means.shape[-1], 0), mode="replicate")

        def speed(frames: int) -> Tensor:
            moved = motion.root[:, frames:, :2] - motion.root[:, :-frames, :2]
            return torch.nn.functional.pad(moved.norm(dim=-1) * motion.fps / frames, (frames, 0), mode="replicate")

        lowest = (motion.joints[..., 2] - motion.skeleton.radii.to(motion.joints)).amin(-1)
        flight = torch.nn.functional.pad(lowest.unfold(-1, span, 1).amax(-1), (span - 1, 0), mode="replicate")
        stir = torch.nn.functional.pad(motion.joints.diff(dim=-3).norm(dim=-1).mean(-1) * motion.fps, (1, 0), mode="replicate")
        upright = metrics.upright(motion)
        later = upright.flip(-1).cummax(-1).values.flip(-1)
        pelvis = motion.root[..., 2] / motion.skeleton.standing_height
        return cls(
            speed(span), speed(max(1, span // 5)), last_second(metrics.turn_rate(motion)), last_second(stir), flight, pelvis, upright, later
        )


Fit = Callable[[_Recent], Bool[Tensor, "b t"]]
FITS: dict[str, Fit] = {
    "stand": lambda r: r.upright & (r.speed < 0.15) & (r.speed_now < 0.15) & (r.stir < 0.3),
    "walk": lambda r: r.upright & (r.speed > 0.6) & (r.speed_now > 0.6) & (r.speed < 2.0) & (r.turn.abs() < 0.6),
    "run": lambda r: r.upright & (r.speed > 2.2) & (r.speed_now > 2.2),
    "jump": lambda r: (r.pelvis > 0.75) & (r.flight > 0.06) & (r.speed < 2.2),
    "turn": lambda r: r.upright & (r.turn.abs() > 0.8) & (r.speed < 2.0),
    "crouch": lambda r: (r.pelvis < 0.8) & (r.pelvis > 0.4) & (r.speed < 1.0),
    "get up": lambda r: (r.pelvis < 0.45) & r.upright_later,
    "dance": lambda r: r.upright & (r.stir > 0.5) & (r.speed < 2.2),
    "sport": lambda r: r.upright & (r.stir > 0.5) & (r.speed < 2.2),
}
"""Categories of the bank, and what the second before a state must have been like to deserve the name."""


def make_starts(
    prior: CVAEPrior, clips: Clips, options: StartOptions, progress: Callable[[int, int], None] | None = None, *,
    pose: PosePrior | None = None,
) -> StartBank:  # fmt: skip
    """Roll the model out from recordings of each category and keep states, seconds later, that are human and fit the category's name.

    No state is a copy of a recorded frame. Where a pose model is given, poses out of its range are not kept. A category in which
    the model gives no state to keep is left out.
    """
    if not prior.network.shape.kinematic:
        raise ValueError("start states are made by our own kind of prior: train one with `dropsim train prior`")
    bank: dict[str, State] = {}
    for done, (name, fits) in enumerate(FITS.items()):
        frames = _recorded_frames([motion for clip, motion in clips if clip.category == name], fits)
        found: list[State] = []
        for round_ in range(options.rounds if frames else 0):
            seed = options.seed + 1000 * (done * options.rounds + round_)
            rng = torch.Generator().manual_seed(seed)
            chosen = [frames[i] for i in torch.randint(len(frames), (options.batch,), generator=rng).tolist()]
            starts = stacked([prior.start_from(motion, frame) for motion, frame in chosen])
            rolled = roll_out(prior, starts, round(END * prior.fps), Streams([seed + i for i in range(options.batch)]))
            found += _fitting_states(prior, rolled, fits, pose)
            if len(found) >= options.count:
                break
        if found:
            bank[name] = stacked(found[: options.count])
        if progress:
            progress(done + 1, len(FITS))
    if not bank:
        raise ValueError("no roll-out of this prior gave a state to start from: train it longer, or give recordings of more categories")
    return StartBank(bank)


def _recorded_frames(motions: Sequence[Motion], fits: Fit) -> list[tuple[Motion, int]]:
    """Return a few frames of each recording, a half second apart at least, at which it fits its category's name itself."""
    frames = []
    for motion in motions:
        step = round(motion.fps / 2)
        if len(motion) > 4 * step:
            good = fits(_Recent.of(motion.map(lambda values: values.unsqueeze(0))))[0]
            frames += [(motion, frame) for frame in range(2 * step, len(motion), step) if good[frame]]
    return frames


def _fitting_states(prior: CVAEPrior, rolled: Motion, fits: Fit, pose: PosePrior | None) -> list[State]:
    """Return at most one state of each roll-out that stays human for another second: the middle one of those that fit.

    The last one would be where the roll-out ceases to fit.
    """
    second = round(rolled.fps)
    sunk = (rolled.skeleton.radii.to(rolled.joints) - rolled.joints[..., 2]).amax(-1)
    good = fits(_Recent.of(rolled)) & (sunk < SINK)
    if pose is not None:
        good &= pose.norm(rolled.q) <= pose.limit
    good[:, : round(EARLIEST * rolled.fps)] = False
    good[:, round(LATEST * rolled.fps) + 1 :] = False
    states = []
    for i in good.any(-1).nonzero().squeeze(-1).tolist():
        frame = int(good[i].nonzero().median())
        one = rolled.map(lambda values, i=i: values[i])
        sinks = float(metrics.penetration_mm(one.slice(frame - second, frame + 1))) > 1000 * SINK
        if not sinks and metrics.human(one.slice(0, frame + second)):
            states.append(placed(prior.start_from(one, frame), rolled.skeleton.radii))
    return states


def placed(state: State, radii: Float[Tensor, "22"]) -> State:
    """Move a state above the origin, out of the floor, and turn it to face +y."""
    H = heading(state.q[..., 0, :, :])
    origin = state.x[..., 0, :] * torch.tensor([1.0, 1.0, 0.0]).to(state.x)
    origin[..., 2] = (state.x[..., 2] - radii.to(state.x)).amin(-1).clamp(max=0)
    back = H.transpose(-1, -2)
    q = torch.cat((H.unsqueeze(-3) @ state.q[..., :1, :, :], state.q[..., 1:, :, :]), dim=-3)
    return State((state.x - origin.unsqueeze(-2)) @ back, state.v @ back, q, turn_memory(state.memory, H))
