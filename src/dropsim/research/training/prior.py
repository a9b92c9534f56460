"""Training of the motion prior, a conditional VAE: particles roll through the recordings and learn to go on like them.

A particle starts on a recorded frame, often displaced, and goes on from its own predictions. Some roam on samples of the
prior first, as at run time, for longer and longer stretches as training goes on; then each finds its place in its
recording again. At the end of a clip it goes on in another that is like its own state, since most clips are much shorter
than the time after which slow drifts show. From where it is, a way back to the recording is the target of the next
frames, and gradients pass through all of them, so that a small error that adds up, such as a brake, is seen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dropsim.body.skeleton import NUM_JOINTS
from dropsim.compute.random import Streams
from dropsim.motion.clips import load
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.physics import metrics
from dropsim.priors import cvae as run_time
from dropsim.priors.cvae import MEMORY_SIZE, NUM_CONTACTS, CVAEPrior, CVAEShape
from dropsim.priors.prior import State
from dropsim.priors.rollout import roll_out
from dropsim.research.training.displaced import displaced, way_back
from dropsim.research.training.frames import Frames, Window, normalise, window_at
from dropsim.research.training.loop import Budget, Progress, Trainer, train
from dropsim.research.training.network import (
    FLAT,
    MLP,
    Batch,
    Body,
    CVAENetwork,
    Local,
    arrays_of,
    compose_kinematic,
    heading,
    log_small,
    recentred,
    sent,
    state_vector,
)
from dropsim.research.training.starts import held_out_starts


@dataclass(frozen=True)
class PriorOptions:
    """How the prior is trained; the defaults are the recipe of the shipped weights."""

    latent: int = 32
    width: int = 256
    """Width of the hidden layers."""
    batch: int = 192
    window: int = 4
    """Frames that gradients pass through, at the end of the ramp."""
    learning_rate: float = 1e-3
    """Learning rate at the start; it falls to a hundredth along a cosine."""
    target_kl: float = 6.0
    """Divergence of the posterior from the conditional prior that a controller on its weight holds [nats a frame]."""
    shown: float = 0.5
    """Share of the particles that are shown their target, through the posterior; the others go on by the prior's mode."""
    max_age: int = 1800
    """Frames after which a particle starts again."""
    roaming: float = 0.5
    """Share of the others that roam by samples before a window."""
    max_roam: int = 8
    """Longest time that they roam, at the end of the ramp [frames]."""
    ramp: float = 0.6
    """Share of the training over which windows and roaming grow."""
    displaced: float = 0.35
    """Share of the particles that start off the recording."""
    shoved: float = 0.05
    """Chance per window that a rolling particle is displaced again."""
    clean: float = 0.3
    """Chance per window that a particle that is shown its target starts again."""
    ended: float = 0.003
    """Chance per window that another one does."""
    hidden: float = 0.4
    """Share of the particles whose intent is hidden."""
    part_hidden: float = 0.3
    """Chance that velocity, facing or height of an intent is hidden if the rest is not."""
    temperature: float = 0.1
    """Smallest spread of a sample at run time, stored with the weights: at 1 rollouts jitter more than recordings."""
    ema: float = 0.999
    seed: int = 0


SMOOTH = 0.03
"""Distance below which the loss is a square [cm]."""
STILL = 0.009
"""Distance to the target below which a standing foot should not move at all [m]."""
NEAR = 3
"""Frames on either side of a particle's place in its recording among which it finds its place again."""
LOST = 0.25
"""Mean distance of the joints from the recording beyond which a particle goes on in another, or starts again [m]."""
POOL = 8_000
"""Recorded frames among which a particle at the end of its clip finds one to go on from."""
POOL_STEPS = 300
"""Steps after which other frames are drawn for that."""
POOL_ROOM = 30
"""Frames that are left of their clips."""
VELOCITY_WEIGHT = 0.15
"""Weight of the joints' velocities against their places when states are compared [s]."""
QUALITY_PEOPLE, QUALITY_SECONDS = 96, 6.0
"""Rollouts that a checkpoint is judged by, and their length [s]."""
WAY = slice(MEMORY_SIZE + 12, MEMORY_SIZE + 15)
"""Place of the way in a memory."""
_FOOT_CONTACTS = [3, 4, 5, 6]
_FOOT_JOINTS = [CONTACT_JOINTS[i] for i in _FOOT_CONTACTS]


class TrainingNetwork(nn.Module):
    """The network that is exported, and the posterior's encoder, which only training needs."""

    def __init__(self, shape: CVAEShape, width: int) -> None:
        """Build with random weights; the decoder starts at constant velocity."""
        super().__init__()
        self.cvae = CVAENetwork(shape)
        target = 3 + 2 * 3 * NUM_JOINTS + NUM_CONTACTS
        self.encoder = MLP((shape.state_size + target, width, width, 2 * shape.latent), shape.groups)
        for mlp in (self.cvae.decoder, self.cvae.prior, self.encoder):
            nn.init.normal_(mlp.last.weight, std=0.01)
            nn.init.zeros_(mlp.last.bias)

    def posterior(
        self, seen: Float[Tensor, "b s"], state: Local, target: Local, touching: Bool[Tensor, "b 9"]
    ) -> tuple[Float[Tensor, "b z"], Float[Tensor, "b z"]]:
        """Return mean and log-variance of the latent that leads from a state to a target."""
        turn = log_small(target.q @ state.q.transpose(-1, -2))
        # Scaled to order one.
        change = (20 * (target.root - state.root), 10 * turn.flatten(1), 20 * (target.joints - state.joints).flatten(1))
        mean, log_variance = self.encoder(torch.cat((seen, *change, touching.float()), -1)).chunk(2, -1)
        return mean, log_variance.clamp(-8, 4)


def _kl(mean: Tensor, log_variance: Tensor, mean_to: Tensor, log_variance_to: Tensor) -> Tensor:
    """Return the divergence of one diagonal Gaussian from another [nats], summed over the latent."""
    ratio = (log_variance - log_variance_to).exp() + (mean - mean_to).square() * (-log_variance_to).exp()
    return 0.5 * (ratio - 1 - log_variance + log_variance_to).sum(-1)


def _likeness(frame: Local) -> Float[Tensor, "b d"]:
    """Return what states are compared by: places and velocities of the joints."""
    velocities = frame.velocity[:, 6 : 6 + 3 * NUM_JOINTS]
    return torch.cat((frame.joints.flatten(1), VELOCITY_WEIGHT * velocities), dim=-1)


def _length(squares: Tensor) -> Tensor:
    """Return the root of squares, rounded off near zero."""
    return (squares + SMOOTH**2).sqrt() - SMOOTH


def _slide(state: Local, predicted: Local, target: Local, standing: Bool[Tensor, "i 9"]) -> Float[Tensor, ""]:
    """Return the horizontal steps of feet that stand in the recording and whose target hardly moves [cm]."""
    still = standing[:, _FOOT_CONTACTS] & ((target.joints - state.joints)[:, _FOOT_JOINTS].norm(dim=-1) < STILL)
    step = 100 * (predicted.joints - state.joints)[:, _FOOT_JOINTS, :2]
    return (_length(step.square().sum(-1)) * still).sum(-1).mean()


def _sunk(predicted: Local, target: Local, body: Body) -> Float[Tensor, ""]:
    """Return how much deeper than the target's the joints' spheres are in the floor [cm]."""
    sunk, already = ((100 * (body.radii - frame.joints[..., 2] - 0.01)).clamp(min=0) for frame in (predicted, target))
    return (sunk - already).clamp(min=0).sum(-1).mean()


def _losses(
    state: Local, predicted: Local, logits: Tensor, target: Local, recorded: Window, k: int, body: Body
) -> dict[str, Tensor]:
    """Return the parts of the reconstruction loss; lengths are in centimetres, so that they are of order one."""
    miss = 100 * (predicted.joints - target.joints)
    squares = miss.square().sum(-1)
    turn_miss = (30 * (predicted.q - target.q)).square().sum((-1, -2))
    standing = recorded.standing[:, k]
    return {
        "joints": _length(squares).sum(-1).mean(),
        "rotations": 0.1 * _length(turn_miss).sum(-1).mean(),
        "root": 2.0 * miss[:, 0].square().sum(-1).clamp(max=25).mean(),
        "feet": 2.0 * (_length(squares[:, _FOOT_JOINTS]) * standing[:, _FOOT_CONTACTS]).sum(-1).mean(),
        "slide": 18.0 * _slide(state, predicted, target, standing),
        "sunk": _sunk(predicted, target, body),
        "contact": nn.functional.binary_cross_entropy_with_logits(logits, recorded.touching[:, k].float()),
    }


@dataclass(frozen=True, eq=False)
class Particles(Batch):
    """The batch: each particle's place in the recordings and its own state."""

    at: Int[Tensor, "b"]
    age: Int[Tensor, "b"]
    """Frames since it started on a recorded one."""
    hidden: Bool[Tensor, "b 3"]
    """Whether velocity, facing and height of its intent are hidden."""
    shown: Bool[Tensor, "b"]
    """Whether it is shown its target."""
    state: Local
    """State in the heading frame of its own root."""


@dataclass(frozen=True, eq=False)
class Stand:
    """Where particles' heading frames are, seen from those in which a window begins."""

    R: Float[Tensor, "b 3 3"]
    origin: Float[Tensor, "b 3"]
    """Place of the root over the ground [m]."""

    @classmethod
    def first(cls, count: int, body: Body) -> "Stand":
        return cls(torch.eye(3).repeat(count, 1, 1), (body.rest[0] * FLAT).repeat(count, 1))

    def after(self, frame: Local, body: Body) -> "Stand":
        """Return the heading frames of a frame that was predicted in these ones."""
        step = ((frame.root - body.rest[0]) * FLAT).unsqueeze(-1)
        origin = self.origin + (self.R @ step).squeeze(-1)
        return Stand(self.R @ heading(frame.q[:, 0]).transpose(-1, -2), origin)

    def local(self, frames: Local, k: int, body: Body) -> Local:
        """Bring one of some frames from the window's heading frame to these."""
        shift = body.rest[0] * FLAT
        joints = (frames.joints[:, k] - self.origin.unsqueeze(1)) @ self.R + shift
        q = frames.q[:, k]
        q = torch.cat((self.R.transpose(-1, -2).unsqueeze(1) @ q[:, :1], q[:, 1:]), dim=1)
        return Local(joints[:, 0], q, joints, frames.velocity[:, k])

    def intent(self, intent: Float[Tensor, "b 5"]) -> Float[Tensor, "b 5"]:
        """Bring intents to these frames."""
        vectors = intent[:, :4].unflatten(-1, (2, 2)) @ self.R[:, :2, :2].detach()
        return torch.cat((vectors.flatten(1), intent[:, 4:]), dim=-1)


class PriorTrainer(Trainer[CVAENetwork]):
    """The motion prior in training."""

    warm_up, max_gradient = 500, 20.0

    def __init__(self, frames: Frames, options: PriorOptions) -> None:
        """Start from random weights."""
        torch.manual_seed(options.seed)
        decoder, prior = (options.width,) * 3, (options.width,) * 2
        shape = CVAEShape(options.latent, decoder, prior, kinematic=True)
        model = TrainingNetwork(shape, options.width)
        self.frames, self.body, self.cvae, self.posterior = frames, frames.body, model.cvae, model.posterior
        self.shapes = frames.shapes()
        self.rng = torch.Generator().manual_seed(options.seed)
        self.freedom = normalise(self.cvae, frames, self.rng)
        super().__init__(model, model.cvae, options)
        room = self._room(frames.starts)
        self.roomy = int(frames.starts[room.argmax()])
        """A frame with room for a window after it."""
        if room.max() < 0:
            raise ValueError(f"no clip has {options.window + 3} frames: build a data set of longer recordings")
        self.pool, self.pool_like, self.pool_way = self._pool()
        self.log_beta = math.log(0.3)
        self.particles = self._fresh(torch.arange(options.batch))

    def _chance(self, count: int, probability: float) -> Bool[Tensor, "count"]:
        return torch.rand(count, generator=self.rng) < probability

    def _sample(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        return mean + (0.5 * log_variance).exp() * torch.randn(mean.shape, generator=self.rng)

    def _room(self, at: Int[Tensor, "*i"]) -> Int[Tensor, "*i"]:
        """Return how many frames of the clip are left after a window from some frames on."""
        return self.frames.last[at] - at - self.options.window

    @torch.no_grad()
    def _pool(self) -> tuple[Int[Tensor, "p"], Float[Tensor, "p d"], Float[Tensor, "p 3"]]:
        """Draw frames that particles may go on from, with what they are compared by, and their ways."""
        at = self.frames.draw(POOL, self.rng)
        at = at[self._room(at) >= POOL_ROOM]
        at = at if len(at) else torch.tensor([self.roomy])
        now = window_at(self.frames, at, 1).now
        return at, _likeness(now), now.velocity[:, WAY]

    def _go_on(self, index: Int[Tensor, "i"]) -> None:
        """Let some particles go on in the recordings that are most like their states; restart them if none is."""
        if not len(index):
            return
        some = self.particles[index]
        like = _likeness(some.state)
        best = (self.pool_like.square().sum(1) - 2 * like @ self.pool_like.T).argmin(1)
        gap = (like - self.pool_like[best])[:, : 3 * NUM_JOINTS].unflatten(-1, (-1, 3)).norm(dim=-1).mean(-1)
        velocity = some.state.velocity.clone()
        velocity[:, WAY] = self.pool_way[best]
        state = replace(some.state, velocity=velocity)
        self.particles = self.particles.put(index, replace(some, at=self.pool[best], state=state))
        self._restart(index[~(gap < LOST)])

    def _ramped(self, frames: int) -> int:
        """Return a number of frames that grows to `frames` over the ramp."""
        return max(1, math.ceil(frames * min(1.0, self.progress / self.options.ramp)))

    def _fresh(self, slots: Int[Tensor, "i"]) -> Particles:
        """Start particles on recorded frames, with room for a window, or displaced from them."""
        options, count = self.options, len(slots)
        at = self.frames.draw(8 * count, self.rng).view(8, count)
        good = self._room(at) >= 0
        at = at.gather(0, good.int().argmax(0, keepdim=True))[0]
        at = torch.where(self._room(at) >= 0, at, self.roomy)
        hidden = (torch.rand(count, 3, generator=self.rng) < options.part_hidden) | self._chance(
            count, options.hidden
        ).unsqueeze(-1)
        state = window_at(self.frames, at, 1).now
        index = self._chance(count, options.displaced).nonzero().squeeze(-1)
        if len(index):
            state = state.put(index, displaced(state[index], self.body, self.freedom, self.rng))
        # By place in the batch: those that are shown their target start again much more often than the others.
        return Particles(at, torch.zeros_like(at), hidden, slots < options.shown * options.batch, state)

    def _intents(self, particles: Particles, recorded: Window) -> Float[Tensor, "b w 5"]:
        """Return the recorded intents, but for what is hidden."""
        return torch.where(particles.hidden[:, [0, 0, 1, 1, 2]].unsqueeze(1), torch.nan, recorded.intent)

    @torch.no_grad()
    def _roam(self) -> None:
        """Let some of those that are not shown their targets go on by samples; then all of them find their places."""
        options, cvae, body, particles = self.options, self.cvae, self.body, self.particles
        count = int(torch.randint(1, self._ramped(options.max_roam) + 1, (1,), generator=self.rng))
        able = ~particles.shown & (self._room(particles.at) >= count)
        index = (able & self._chance(options.batch, options.roaming)).nonzero().squeeze(-1)
        if len(index):
            some = particles[index]
            intents = self._intents(some, window_at(self.frames, some.at, count))
            state, stand = some.state, Stand.first(len(index), body)
            for k in range(count):
                intent = stand.intent(intents[:, k])
                state = sent(state, intent)
                seen = cvae.normalized(state_vector(state, body.rest[0]), intent)
                output = cvae.decode(seen, self._sample(*cvae.latent(seen)))
                frame = compose_kinematic(state, output, cvae, body, self.frames.fps)
                stand, state = stand.after(frame, body), recentred(frame, body)
            moved = replace(some, at=some.at + count, age=some.age + count, state=state)
            self.particles = particles.put(index, moved)
        index = (~self.particles.shown & (self.particles.age > 0)).nonzero().squeeze(-1)
        if len(index):
            some = self.particles[index]
            at, gap = self._place(some.state, some.at)
            self.particles = self.particles.put(index, replace(some, at=at))
            self._go_on(index[~(gap < LOST)])

    def _place(self, state: Local, at: Int[Tensor, "i"]) -> tuple[Int[Tensor, "i"], Float[Tensor, "i"]]:
        """Return the frames near some in the recordings that are most like states, and how far off these are."""
        near = at.unsqueeze(1) + torch.arange(-NEAR, NEAR + 1)
        near = near.clamp(min=(self.frames.first[at] + 2).unsqueeze(1)).minimum((at + self._room(at)).unsqueeze(1))
        off = self.shapes[near].float() - (state.joints - self.body.rest[0] * FLAT).unsqueeze(1)
        gap, best = off.norm(dim=-1).mean(-1).min(1)
        return near.gather(1, best.unsqueeze(1)).squeeze(1), gap

    def _restart(self, index: Int[Tensor, "i"]) -> None:
        if len(index):
            self.particles = self.particles.put(index, self._fresh(index))

    def step(self) -> dict[str, float]:
        """Advance every particle by a window and the weights by one step; return the parts of the loss."""
        options = self.options
        if self.step_count % POOL_STEPS == 0:
            self.pool, self.pool_like, self.pool_way = self._pool()
        self._roam()
        particles = self.particles
        recorded = window_at(self.frames, particles.at, self._ramped(options.window))
        with torch.no_grad():
            rolled = ~particles.shown & (particles.age > 0)
            target = way_back(recorded, particles.state, rolled, self.body, self.frames.fps)
        state, parts = self._follow(particles, recorded, target)
        kl, error = parts.pop("kl"), parts.pop("error_mm")
        loss = torch.stack(list(parts.values())).sum() + math.exp(self.log_beta) * kl
        self.descend(loss)
        excess = min(float(kl.detach()) / options.target_kl - 1, 5.0)
        self.log_beta = min(max(self.log_beta + 0.01 * excess, -9.0), 4.0)
        with torch.no_grad():
            self._advance(state.map(Tensor.detach), recorded.root.shape[1])
        parts |= {"kl": kl, "loss": loss, "error_mm": error}
        return {name: float(value.detach()) for name, value in parts.items()}

    def _follow(self, particles: Particles, recorded: Window, path: Local) -> tuple[Local, dict[str, Tensor]]:
        """Predict a window of frames, and return the last state and the parts of the loss."""
        cvae, body, fps, window = self.cvae, self.body, self.frames.fps, recorded.root.shape[1]
        state, stand = particles.state, Stand.first(len(particles.at), body)
        intents, parts = self._intents(particles, recorded), dict[str, Tensor]()
        shown = particles.shown.unsqueeze(-1)
        for k in range(window):
            target = stand.local(path, k, body)
            intent = stand.intent(intents[:, k])
            state = sent(state, intent)
            seen = cvae.normalized(state_vector(state, body.rest[0]), intent)
            posterior = self.posterior(seen, state, target.map(Tensor.detach), recorded.touching[:, k])
            mean, log_variance = cvae.latent(seen)
            prior = (mean, log_variance.clamp(-8, 4))
            output = cvae.decode(seen, torch.where(shown, self._sample(*posterior), mean))
            frame = compose_kinematic(state, output, cvae, body, fps)
            terms = _losses(state, frame, output[:, -NUM_CONTACTS:], target, recorded, k, body)
            terms["kl"] = (_kl(*posterior, *prior) * shown[:, 0]).sum() / shown.sum().clamp(min=1)
            terms["error_mm"] = (frame.joints - target.joints).detach().norm(dim=-1).mean() * 1000
            if k == 0:  # the mode of those that are on their recordings, or near them
                mode = compose_kinematic(state, cvae.decode(seen, mean), cvae, body, fps)
                miss = (100 * (mode.joints - target.joints)).square().sum(-1)
                terms["mode"] = window * ((_length(miss).sum(-1) + 10 * miss[:, 0]) * shown[:, 0]).mean()
            for name, value in terms.items():
                parts[name] = parts.get(name, 0) + value / window
            stand, state = stand.after(frame, body), recentred(frame, body)
        return state, parts

    def _advance(self, state: Local, frames: int) -> None:
        """Move particles on to their predictions; those that are old or at the end of a clip start again."""
        options, old = self.options, self.particles
        moved = replace(old, at=old.at + frames, age=old.age + frames, state=state)
        strange = ~(state.joints.abs().amax((-1, -2)) < 5)
        over = self._room(moved.at) < 0
        spent = (moved.age >= options.max_age) | (over & old.shown) | strange
        ends = torch.where(
            old.shown, self._chance(options.batch, options.clean), self._chance(options.batch, options.ended)
        )
        spent = spent | ends
        index = self._chance(options.batch, options.shoved).nonzero().squeeze(-1)
        if len(index):
            shoved = displaced(state[index], self.body, self.freedom, self.rng)
            moved = replace(moved, state=moved.state.put(index, shoved))
        self.particles = moved
        self._go_on((over & ~spent).nonzero().squeeze(-1))
        self._restart(spent.nonzero().squeeze(-1))


def rollout_quality(prior: CVAEPrior, starts: State) -> dict[str, float]:
    """Measure sampled rollouts: people who stay human and upright, foot skate, and speed."""
    motion = roll_out(prior, starts, round(QUALITY_SECONDS * prior.fps), Streams(list(range(len(starts.x)))))
    human, upright = float(metrics.human(motion).mean()), float(metrics.upright(motion)[..., -1].mean())
    skate = float(np.median(np.nan_to_num(metrics.foot_skate(motion), nan=10.0)))
    speed, second = np.nan_to_num(metrics.root_speed(motion)), round(prior.fps)
    kept = float(speed[..., -second:].mean() / max(speed[..., :second].mean(), 1e-6))
    return {"human": human, "upright": upright, "skate": skate, "speed": float(speed.mean()), "kept": kept}


def train_prior(
    data: str | Path,
    out: str | Path,
    options: PriorOptions,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train on a data set until the budget is spent, and return the path of the weights."""
    frames, unseen = Frames.of(load(Path(data), held_out=False)), load(Path(data), held_out=True)

    def judge(trainer: PriorTrainer) -> tuple[CVAEPrior, dict[str, float]]:
        network = run_time.CVAENetwork(trainer.cvae.shape, arrays_of(trainer.average))
        prior = CVAEPrior(network, frames.skeleton, fps=frames.fps, temperature=trainer.options.temperature)
        return prior, rollout_quality(prior, held_out_starts(unseen, prior, QUALITY_PEOPLE, seed=1))

    path = Path(out) / "prior.safetensors"
    return train(lambda options: PriorTrainer(frames, options), options, judge, path, budget, watch)
