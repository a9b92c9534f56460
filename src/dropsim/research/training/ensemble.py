"""Training of the motion prior by its own rollouts: two samples of the same future are scored against the recorded one.

Two people start in one recorded state and roll on, each from their own samples, as at run time. They are scored as
weather forecasts are, by the energy score (Gneiting and Raftery 2007): S = (|a - t| + |b - t|) / 2 - |a - b| / 2 for
samples a, b and what was recorded, t. It is smallest in expectation only if samples are distributed as the recordings
are, so neither their mean nor their spread is biased, and nobody is taught to come back to one recording of many that
might have been. There is no encoder and no divergence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dropsim.body.skeleton import joint_index
from dropsim.priors.cvae import CVAEPrior, CVAEShape
from dropsim.research.training.displaced import POOL_SIZE, POOL_STEPS, Pool, displaced, returning_target
from dropsim.research.training.frames import (
    INTENT_SECONDS,
    Frames,
    Window,
    draw_by,
    normalise,
    recorded_window,
    transition,
)
from dropsim.research.training.loop import Trainer
from dropsim.research.training.network import (
    CVAENetwork,
    Local,
    compose_kinematic,
    heading,
    recentred,
    state_vector,
    widened,
)


@dataclass(frozen=True)
class EnsembleOptions:
    """How the prior is trained by its rollouts."""

    latent: int = 32
    width: int = 512
    """Of the hidden layers."""
    trunk: tuple[int, ...] = ()
    """Hidden widths and the number of features of a network that is computed once a frame; empty: none."""
    batch: int = 128
    """Recorded starts at a time; each has two samples."""
    window: int = 8
    """Frames that gradients pass through."""
    mean_age: int = 24
    """Frames that a start is followed for on average; after every window it may end."""
    displaced: float = 0.25
    """Share of the batch that starts off the recordings. It follows the most similar recording for one window."""
    surprising: float = 0.3
    """Share of the batch whose starts are drawn by how much they turn, speed up or slow down; their intent is never
    hidden."""
    hidden: float = 0.4
    """Share of the others whose intent is hidden altogether."""
    part_hidden: float = 0.25
    """Chance that velocity, facing or height of an intent is hidden if the rest is not."""
    return_half_life: float = 0.2
    """Of a displacement from the recording [s]."""
    lasting: float = 0.85
    """Share of a displaced velocity that lasts to the next frame."""
    learning_rate: float = 3e-4
    """At the start; it falls to a hundredth along a cosine."""
    temperature: float = 0.7
    """Spread of a sample at run time, stored with the weights: at 1 rollouts jitter and skate more than recordings."""
    guidance: float = 2.0
    """How much an intent counts at run time, stored with the weights: 2 suits minutes of training; after two hours
    walkers are too fast."""
    ema: float = 0.998
    seed: int = 0


FAIR = 0.95
"""Share of the fair score: at 1, one sample that is right makes up for another that is anywhere (Lang et al. 2024)."""
SMOOTH = 0.02
"""Distances are rounded off below this [cm]: they have no gradient at zero."""
WEIGHTS = {"root": 4.0, "step": 1.0, "pose": 0.12, "place": 0.6, "feet": 5.0, "turns": 3.0, "mode": 1.0}
"""Of the parts of the loss; each is then of order one in the middle of a window."""
SKATE_HEIGHT = 0.03
"""A foot below this counts as standing, the more the lower it is [m]: the height of the measured foot skate."""
_FEET = [joint_index(name) for name in ("left_ankle", "right_ankle", "left_foot", "right_foot")]
_FLAT = torch.tensor([1.0, 1.0, 0.0])


@dataclass(frozen=True, eq=False)
class Ensemble:
    """The batch: where each start is in the recordings, and the two people who left it; first all the first people, then all the second."""

    start: Int[Tensor, "b"]
    mirrored: Bool[Tensor, "b"]
    age: Int[Tensor, "b"]
    """Frames since the start."""
    hidden: Bool[Tensor, "b 3"]
    """Whether velocity, facing and height of the intent are hidden."""
    off: Bool[Tensor, "b"]
    """Whether the start is off the recording."""
    state: Local
    """Of the people, each in the heading frame of their own root."""
    R: Float[Tensor, "p 3 3"]
    """From that frame to the start's."""
    origin: Float[Tensor, "p 3"]
    """Of that frame in the start's [m]."""

    def put(self, index: Int[Tensor, "i"], part: "Ensemble") -> "Ensemble":
        """Return a copy with some starts replaced."""
        people = torch.cat((index, index + len(self.start)))
        rows = {name: getattr(self, name).index_copy(0, index, getattr(part, name)) for name in _STARTS}
        places = {name: getattr(self, name).index_copy(0, people, getattr(part, name)) for name in ("R", "origin")}
        return Ensemble(**rows, state=self.state.put(people, part.state), **places)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, for a checkpoint."""
        return {**{name: getattr(self, name) for name in (*_STARTS, "R", "origin")}, **vars(self.state)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Ensemble":
        """Build it from what `tensors` returned."""
        state = Local(*(tensors[name] for name in ("root", "q", "joints", "velocity")))
        return cls(**{name: tensors[name] for name in (*_STARTS, "R", "origin")}, state=state)


_STARTS = ("start", "mirrored", "age", "hidden", "off")


def energy_score(people: Float[Tensor, "p *f"], recorded: Float[Tensor, "b *f"]) -> Float[Tensor, "b"]:
    """Score two samples, one after the other along the first dimension, against what was recorded."""
    first, second = people.flatten(1).chunk(2)
    recorded = recorded.flatten(1)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return ((a - b).square().sum(-1) + SMOOTH**2).sqrt()

    return 0.5 * (distance(first, recorded) + distance(second, recorded) - FAIR * distance(first, second))


def _sliding(before: Float[Tensor, "*b 22 3"], after: Float[Tensor, "*b 22 3"]) -> Float[Tensor, "*b 4 2"]:
    """Return horizontal steps of the feet, weighted by how low they are [cm]."""
    step = 100 * (after - before)[..., _FEET, :2]
    height = torch.maximum(before[..., _FEET, 2], after[..., _FEET, 2])
    return step * (2 - 2 ** (height / SKATE_HEIGHT).clamp(0, 1)).unsqueeze(-1)


class EnsembleTrainer(Trainer[CVAENetwork]):
    """The motion prior in training by its rollouts."""

    warm_up, max_gradient = 100, 5.0

    def __init__(self, frames: Frames, options: EnsembleOptions, total_steps: int) -> None:
        """Start from random weights."""
        torch.manual_seed(options.seed)
        decoder, prior = (options.width,) * (2 if options.trunk else 3), (options.width,) * (1 if options.trunk else 2)
        self.cvae = CVAENetwork(
            CVAEShape(options.latent, decoder, prior, kinematic=True, intent=True, trunk=options.trunk)
        )
        for mlp in (self.cvae.decoder, self.cvae.prior):
            torch.nn.init.normal_(mlp.last.weight, std=0.01)
            torch.nn.init.zeros_(mlp.last.bias)
        self.frames, self.body = frames, frames.body
        self.rng = torch.Generator().manual_seed(options.seed)
        self.freedom = normalise(self.cvae, frames, self.rng)
        super().__init__(self.cvae, self.cvae, options, total_steps)
        self.surprises = _surprises(frames)
        self.ensemble = self._fresh(torch.arange(options.batch))

    def weights_of(self, path: Path) -> Mapping[str, Tensor]:
        """Read a checkpoint, or a prior's own file, which may take no intent."""
        if path.suffix != ".safetensors":
            return super().weights_of(path)
        return widened(CVAEPrior.load(path).network, self.cvae)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "ensemble": self.ensemble.tensors()}

    def resume(self, state: Mapping[str, Any]) -> None:
        super().resume(state)
        self.ensemble = Ensemble.of(state["ensemble"])
        if int(self.ensemble.start.max()) >= len(self.frames.last):
            raise ValueError("it belongs to other data")

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.rng)

    def _fresh(self, slots: Int[Tensor, "i"]) -> Ensemble:
        """Start again in some slots: first those off the recordings, then the surprising ones, then the others."""
        options, count = self.options, len(slots)
        off = slots < round(options.displaced * options.batch)
        surprising = ~off & (slots < round((options.displaced + options.surprising) * options.batch))
        start = self.frames.draw(count, self.rng)
        start = torch.where(surprising, self.frames.starts[draw_by(self.surprises, count, self.rng)], start)
        mirrored = self._uniform(count) < 0.5
        hidden = (self._uniform(count, 3) < options.part_hidden) | (self._uniform(count, 1) < options.hidden)
        hidden[surprising, :2] = False
        state = transition(self.frames, start, mirrored).now
        index = off.nonzero().squeeze(-1)
        if len(index):
            moved = displaced(state[index], self.body, self.freedom, self.rng)
            start[index], mirrored[index] = self._pool().match(moved, self.frames, start[index], mirrored[index])
            state = state.put(index, moved)
        return Ensemble(
            start, mirrored, torch.zeros_like(start), hidden, off, state.map(lambda values: torch.cat((values, values))),
            torch.eye(3).repeat(2 * count, 1, 1), (self.body.rest[0] * _FLAT).repeat(2 * count, 1),
        )  # fmt: skip

    def _pool(self) -> Pool:
        """Return the recorded frames to match with: others every POOL_STEPS, drawn by the step's number, so that runs can be resumed."""
        number = self.step_count // POOL_STEPS
        if self._pooled is None or self._pooled[0] != number:
            rng = torch.Generator().manual_seed(1_000_003 * self.options.seed + number)
            self._pooled = (number, Pool.drawn(self.frames, POOL_SIZE, rng))
        return self._pooled[1]

    _pooled: tuple[int, Pool] | None = None

    def _spent(self, ensemble: Ensemble) -> Bool[Tensor, "b"]:
        """Tell starts that were followed long enough, or whose clip ends before the next window does."""
        options, at = self.options, ensemble.start + ensemble.age
        ended = at + options.window > self.frames.last[ensemble.start]
        return ended | (self._uniform(options.batch) < options.window / options.mean_age) | ensemble.off

    def _again(self, spent: Bool[Tensor, "b"]) -> tuple[Int[Tensor, "i"], Ensemble]:
        index = spent.nonzero().squeeze(-1)
        return index, self._fresh(index)

    def step(self) -> dict[str, float]:
        """Advance everybody by a window and the weights by one step; return the parts of the loss."""
        ensemble, window, body = self.ensemble, self.options.window, self.body
        recorded = self._recorded(ensemble)
        known = torch.where(ensemble.hidden[:, [0, 0, 1, 1, 2]].unsqueeze(1), torch.nan, recorded.intents)
        intents = torch.cat((known, known))
        state, R, origin = ensemble.state, ensemble.R, ensemble.origin
        rest = body.rest[0] * _FLAT
        joints = [(state.joints - rest) @ R.transpose(-1, -2) + origin.unsqueeze(1)]
        parts = dict[str, Tensor]()
        for k in range(window):
            features = self.cvae.features(
                self.cvae.normalized(state_vector(state, body.rest[0]), _turned(intents[:, k], R))
            )
            mean, log_variance = self.cvae.latent(features)
            z = mean + (0.5 * log_variance.clamp(-8, 4)).exp() * torch.randn(mean.shape, generator=self.rng)
            frame = compose_kinematic(state, self.cvae.decode(features, z), self.cvae, body, self.frames.fps)
            joints.append((frame.joints - rest) @ R.transpose(-1, -2) + origin.unsqueeze(1))
            q = torch.cat(((R @ frame.q[:, 0]).unsqueeze(1), frame.q[:, 1:]), dim=1)
            made = _scores(joints[-2:], joints[0], q, recorded, k)
            if k == 0:
                made["mode"] = self._mode(state, features, mean, joints[0], recorded, R, origin)
            for name, value in made.items():
                parts[name] = parts.get(name, 0) + value * WEIGHTS[name] / (1 if name == "mode" else window)
            origin = origin + (R @ (frame.root * _FLAT - rest).unsqueeze(-1)).squeeze(-1)
            R = R @ heading(frame.q[:, 0]).transpose(-1, -2)
            state = recentred(frame, body)
        loss = torch.stack(list(parts.values())).sum()
        self.descend(loss)
        moved = replace(
            ensemble, age=ensemble.age + window, state=state.map(Tensor.detach), R=R.detach(), origin=origin.detach()
        )
        with torch.no_grad():
            self.ensemble = moved.put(*self._again(self._spent(moved)))
        return {name: float(value.detach()) for name, value in {**parts, "loss": loss}.items()}

    def _mode(
        self, state: Local, features: Tensor, mean: Tensor, joints: Tensor, recorded: Window, R: Tensor, origin: Tensor
    ) -> Float[Tensor, ""]:
        """Return the mean distance of the mode's joints from the recorded ones, of starts on the recording [cm]."""
        index = (self.ensemble.age == 0).nonzero().squeeze(-1)
        mode = compose_kinematic(
            state[index], self.cvae.decode(features[index], mean[index]), self.cvae, self.body, self.frames.fps
        )
        miss = 100 * (mode.joints - recorded.joints[index, 1])
        return (miss.square().sum(-1) + SMOOTH**2).sqrt().mean(-1).sum() / max(1, len(index)) * 3

    @torch.no_grad()
    def _recorded(self, ensemble: Ensemble) -> Window:
        """Return what was recorded in the window; those who start off the recording follow it with an offset that fades."""
        recorded = recorded_window(
            self.frames, ensemble.start, ensemble.start + ensemble.age, ensemble.mirrored, self.options.window
        )
        index = ensemble.off.nonzero().squeeze(-1)
        if not len(index):
            return recorded
        joints, q = self._returns(ensemble.state[index], ensemble.start[index], ensemble.mirrored[index])
        return replace(
            recorded, joints=recorded.joints.index_copy(0, index, joints), q=recorded.q.index_copy(0, index, q)
        )

    def _returns(
        self, state: Local, at: Int[Tensor, "i"], mirrored: Bool[Tensor, "i"]
    ) -> tuple[Float[Tensor, "i w 22 3"], Float[Tensor, "i w 22 3 3"]]:
        """Return the way of displaced people to their recording, in the heading frame of their start."""
        options, body = self.options, self.body
        rest, R = body.rest[0] * _FLAT, torch.eye(3).repeat(len(at), 1, 1)
        origin = rest.repeat(len(at), 1)
        joints, q, extra = [state.joints], [state.q], None
        for k in range(options.window):
            step = transition(self.frames, at + k, mirrored)
            extra = state.velocity - step.now.velocity if extra is None else options.lasting * extra
            moving = replace(state, velocity=step.now.velocity + extra)
            then = returning_target(
                step, moving, body, half_life=options.return_half_life, lasting=options.lasting, fps=self.frames.fps
            )
            joints.append((then.joints - rest) @ R.transpose(-1, -2) + origin.unsqueeze(1))
            q.append(torch.cat(((R @ then.q[:, 0]).unsqueeze(1), then.q[:, 1:]), dim=1))
            origin = origin + (R @ (then.root * _FLAT - rest).unsqueeze(-1)).squeeze(-1)
            R = R @ heading(then.q[:, 0]).transpose(-1, -2)
            state = recentred(then, body)
        return torch.stack(joints, dim=1), torch.stack(q, dim=1)


def _turned(intent: Float[Tensor, "p 5"], R: Float[Tensor, "p 3 3"]) -> Float[Tensor, "p 5"]:
    """Bring intents from the start's frame to people's own."""
    vectors = intent[:, :4].unflatten(-1, (2, 2)) @ R[:, :2, :2].detach()
    return torch.cat((vectors.flatten(1), intent[:, 4:]), dim=-1)


def _scores(
    joints: list[Float[Tensor, "p 22 3"]],
    first: Float[Tensor, "p 22 3"],
    q: Float[Tensor, "p 22 3 3"],
    recorded: Window,
    k: int,
) -> dict[str, Float[Tensor, ""]]:
    """Score one frame of a window; lengths are in centimetres, all in the start's frame."""
    before, after = joints
    then_before, then, then_first = recorded.joints[:, k], recorded.joints[:, k + 1], recorded.joints[:, 0]

    def around(x: Tensor) -> Tensor:
        return x[:, 1:] - x[:, :1]

    scores = {
        "root": energy_score(100 * (after - before)[:, 0], 100 * (then - then_before)[:, 0]),
        "step": energy_score(100 * (around(after) - around(before)), 100 * (around(then) - around(then_before))),
        "pose": energy_score(100 * around(after), 100 * around(then)),
        "place": energy_score(
            torch.cat((100 * (after - first)[:, 0, :2], 100 * after[:, 0, 2:]), -1),
            torch.cat((100 * (then - then_first)[:, 0, :2], 100 * then[:, 0, 2:]), -1),
        ),
        "feet": energy_score(_sliding(before, after), _sliding(then_before, then)),
        "turns": energy_score(q, recorded.q[:, k + 1]),
    }
    return {name: score.mean() for name, score in scores.items()}


def _surprises(frames: Frames) -> Float[Tensor, "s"]:
    """Return the cumulated probability of starts, drawn by how much people turn, speed up or slow down."""
    at, ahead, back = frames.starts, round(INTENT_SECONDS * frames.fps), 5
    later = torch.minimum(at + ahead, frames.last[at])
    earlier = torch.where(frames.last[(at - back).clamp(min=0)] == frames.last[at], (at - back).clamp(min=0), at - 1)
    soon = (frames.root[later] - frames.root[at])[:, :2] * frames.fps / (later - at).unsqueeze(-1)
    now = (frames.root[at] - frames.root[earlier])[:, :2] * frames.fps / (at - earlier).unsqueeze(-1)
    faces, faced = heading(frames.q[later, 0])[:, 1], heading(frames.q[at, 0])[:, 1]
    turned = torch.arccos((faces * faced).sum(-1).clamp(-1, 1))
    weight = torch.diff(frames.edges, prepend=torch.zeros(1, dtype=torch.float64))
    weight = weight * ((soon - now).norm(dim=-1) + 0.7 * turned).clamp(max=3.0).double() * (later - at == ahead)
    return weight.cumsum(0) / weight.sum()
