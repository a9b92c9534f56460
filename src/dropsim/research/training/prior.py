"""Training of the motion prior, a conditional VAE: particles roll through the recordings and learn to come back.

A particle starts on a recorded frame, often displaced, and goes on from its own predictions. Its target is the
recording, approached with a half-life from where the particle is, so that the model learns smooth returns from states
that no recording has. Every optimisation step advances a batch of particles by one frame, at which gradients are cut.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from dropsim.priors.cvae import NUM_CONTACTS, CVAEPrior, CVAEShape
from dropsim.priors.prior import State
from dropsim.priors.rollout import roll_out
from dropsim.research.training.displaced import displaced, returning_target
from dropsim.research.training.frames import Frames, Transition, normalise, transition
from dropsim.research.training.loop import Budget, Progress, Trainer, resuming, train
from dropsim.research.training.network import (
    MLP,
    Body,
    CVAENetwork,
    Local,
    arrays_of,
    compose_kinematic,
    fill,
    log_small,
    recentred,
    state_vector,
)
from dropsim.research.training.starts import held_out_starts


@dataclass(frozen=True)
class PriorOptions:
    """How the prior is trained; the defaults are the recipe of the shipped weights."""

    latent: int = 32
    width: int = 512
    """Width of the hidden layers."""
    intent: bool = False
    """Give the network the recorded people's intents as an input."""
    batch: int = 256
    learning_rate: float = 8e-4
    """Learning rate at the start; it falls to a hundredth along a cosine."""
    target_kl: float = 6.0
    """Divergence of the posterior from the conditional prior that a controller on its weight holds [nats a frame]."""
    max_age: int = 30
    """Frames that a particle rolls on from its own predictions, at the end of the ramp."""
    ramp: float = 0.2
    """Share of the training over which the rollouts grow to max_age."""
    displaced: float = 0.35
    """Share of the particles that start off the recording."""
    shoved: float = 0.01
    """Chance per frame that a rolling particle is displaced again."""
    clean: float = 0.3
    """Share of the batch that starts on a new recorded frame, undisplaced, at every step."""
    sampled: float = 0.25
    """Share of the particles that go on from a sample of the conditional prior instead of the posterior."""
    temperature: float = 0.8
    """Spread of a sample at run time, stored with the weights: at 1 rollouts jitter and skate more than recordings."""
    ema: float = 0.999
    seed: int = 0


ROBUST = 2.0
"""Size at which a part of the loss turns from square to root [cm^2]."""
STILL = 0.009
"""Distance to the target below which a standing foot should not move at all [m]."""
LOST = 0.5
"""Distance of the joints from the recording beyond which a particle starts again elsewhere [m]."""
HIDDEN = 0.4
"""Share of the intents that are hidden."""
ENCODER_STEPS = 200
"""Steps for the encoder alone if the weights to start from have none."""
QUALITY_PEOPLE, QUALITY_SECONDS = 96, 6.0
"""Rollouts that a checkpoint is judged by, and their length [s]."""
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


def _robust(loss: Float[Tensor, "i"]) -> Float[Tensor, ""]:
    """Average a loss that grows like a root from some size on, so that lost particles do not drown the others."""
    return (2 * ROBUST * ((1 + loss / ROBUST).sqrt() - 1)).sum() / max(1, len(loss))


def _slide(state: Local, predicted: Local, target: Local, standing: Bool[Tensor, "i 9"]) -> Float[Tensor, "i"]:
    """Return the squared horizontal steps of feet that stand in the recording and whose target hardly moves [cm^2]."""
    still = standing[:, _FOOT_CONTACTS] & ((target.joints - state.joints)[:, _FOOT_JOINTS].norm(dim=-1) < STILL)
    step = 100 * (predicted.joints - state.joints)[:, _FOOT_JOINTS, :2]
    return 2.0 * (step.square().sum(-1) * still).sum(-1)


def _losses(
    state: Local, predicted: Local, logits: Tensor, target: Local, recorded: Transition, body: Body
) -> dict[str, Tensor]:
    """Return the parts of the reconstruction loss; lengths are in centimetres, so that they are of order one."""
    miss = (100 * (predicted.joints - target.joints)).square().sum(-1)
    turn_miss = (predicted.q - target.q).square().sum((-1, -2))
    foot_miss = (miss[:, _FOOT_JOINTS] * recorded.standing[:, _FOOT_CONTACTS]).sum(-1)
    sunk, already = ((100 * (body.radii - frame.joints[..., 2] - 0.01)).clamp(min=0) for frame in (predicted, target))
    return {
        "joints": _robust(miss.sum(-1)),
        "rotations": _robust(300 * turn_miss.sum(-1)),
        "feet": _robust(3.0 * foot_miss),
        "slide": _robust(_slide(state, predicted, target, recorded.standing)),
        "sunk": _robust((sunk - already).clamp(min=0).square().sum(-1)),
        "contact": nn.functional.binary_cross_entropy_with_logits(logits, recorded.touching.float()),
    }


@dataclass(frozen=True, eq=False)
class Particles:
    """The batch: each particle's place in the recordings and its own state."""

    at: Int[Tensor, "b"]
    age: Int[Tensor, "b"]
    """Frames since it started on a recorded one."""
    state: Local
    """State in the heading frame of its own root."""

    def put(self, index: Int[Tensor, "i"], part: "Particles") -> "Particles":
        """Return a copy with some particles replaced."""
        at, age = self.at.index_copy(0, index, part.at), self.age.index_copy(0, index, part.age)
        return Particles(at, age, self.state.put(index, part.state))


class PriorTrainer(Trainer[CVAENetwork]):
    """The motion prior in training."""

    warm_up, max_gradient = 500, 20.0
    encoder_first = 0
    """Steps in which the encoder alone is trained."""

    def __init__(self, frames: Frames, options: PriorOptions) -> None:
        """Start from random weights."""
        torch.manual_seed(options.seed)
        decoder, prior = (options.width,) * 3, (options.width,) * 2
        shape = CVAEShape(options.latent, decoder, prior, kinematic=True, intent=options.intent)
        model = TrainingNetwork(shape, options.width)
        self.frames, self.body, self.cvae, self.posterior = frames, frames.body, model.cvae, model.posterior
        self.rng = torch.Generator().manual_seed(options.seed)
        self.freedom = normalise(self.cvae, frames, self.rng)
        super().__init__(model, model.cvae, options)
        self.log_beta = math.log(0.3)
        fresh = self._fresh(torch.arange(options.batch))
        # Ages are spread from the start, so that particles do not all end together.
        self.particles = replace(fresh, age=torch.randint(0, options.max_age, (options.batch,), generator=self.rng))

    def start_from(self, path: Path) -> None:
        """Take over weights, but not what another run measured of its recordings.

        A prior's own file has no encoder: it is trained first, with everything else held.
        """
        cvae, last = self.cvae, self.cvae.decoder.last
        measured = {name: getattr(cvae, name).clone() for name in ("output_scale", "carry", "free", "held")}
        if path.suffix == ".safetensors":
            tensors, self.encoder_first = CVAEPrior.load(path).network.tensors, ENCODER_STEPS
            with resuming(path):
                fill(cvae, tensors)
        else:
            super().start_from(path)
        with torch.no_grad():
            rescale = cvae.output_scale / measured["output_scale"]
            last.weight.mul_(rescale.unsqueeze(-1))
            last.bias.mul_(rescale)
            for name, values in measured.items():
                getattr(cvae, name).copy_(values)
        self.average.load_state_dict(cvae.state_dict())

    def state(self) -> dict[str, Any]:
        """Add the particles and the weight of the divergence."""
        particles = {"at": self.particles.at, "age": self.particles.age, "state": vars(self.particles.state)}
        beta = {"log_beta": self.log_beta, "encoder_first": self.encoder_first}
        return {**super().state(), "particles": particles, **beta}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Check that the particles are on these recordings."""
        super().resume(state)
        particles = state["particles"]
        self.particles = Particles(particles["at"], particles["age"], Local(**particles["state"]))
        self.log_beta, self.encoder_first = float(state["log_beta"]), int(state["encoder_first"])
        if self._at_end(self.particles.at).any():
            raise ValueError("it belongs to other data")

    def _chance(self, count: int, probability: float) -> Bool[Tensor, "count"]:
        return torch.rand(count, generator=self.rng) < probability

    def _clean(self, slots: Int[Tensor, "i"]) -> Bool[Tensor, "i"]:
        return slots < round(self.options.clean * self.options.batch)

    def _at_end(self, at: Int[Tensor, "b"]) -> Bool[Tensor, "b"]:
        """Tell the last frames of their clips."""
        return at >= self.frames.last[at]

    def _fresh(self, slots: Int[Tensor, "i"]) -> Particles:
        """Start particles for some slots of the batch."""
        at = self.frames.draw(len(slots), self.rng)
        fresh = Particles(at, torch.zeros_like(at), transition(self.frames, at).now)
        return self._displaced(fresh, self._chance(len(slots), self.options.displaced) & ~self._clean(slots))

    def _displaced(self, particles: Particles, chosen: Bool[Tensor, "b"]) -> Particles:
        index = chosen.nonzero().squeeze(-1)
        state = displaced(particles.state[index], self.body, self.freedom, self.rng)
        return replace(particles, state=particles.state.put(index, state))

    def step(self) -> dict[str, float]:
        """Advance every particle by a frame and the weights by one step; return the parts of the loss."""
        options, particles = self.options, self.particles
        self.cvae.requires_grad_(self.step_count >= self.encoder_first)
        free = self._chance(options.batch, options.sampled).nonzero().squeeze(-1)
        recorded = transition(self.frames, particles.at)
        frame, parts = self._predict(particles.state, recorded, free)
        kl, error = parts.pop("kl"), parts.pop("error_mm")
        loss = torch.stack(list(parts.values())).sum() + math.exp(self.log_beta) * kl
        self.descend(loss)
        if self.step_count > self.encoder_first:
            excess = min(float(kl.detach()) / options.target_kl - 1, 5.0)
            self.log_beta = min(max(self.log_beta + 0.01 * excess, -9.0), 4.0)
        with torch.no_grad():
            self._advance(recentred(frame, self.body), recorded.then)
        parts |= {"kl": kl, "loss": loss, "error_mm": error}
        return {name: float(value.detach()) for name, value in parts.items()}

    def _predict(self, state: Local, recorded: Transition, free: Int[Tensor, "i"]) -> tuple[Local, dict[str, Tensor]]:
        """Predict the next frames, in the heading frames of their states, and return them with the parts of the loss.

        They are decoded from the posterior; `free` particles go on from a sample of the conditional prior, as at run
        time.
        """
        options, cvae, fps, intent = self.options, self.cvae, self.frames.fps, recorded.intent

        def sample(mean: Tensor, log_variance: Tensor) -> Tensor:
            return mean + (0.5 * log_variance).exp() * torch.randn(mean.shape, generator=self.rng)

        if options.intent:
            intent = torch.where(self._chance(len(intent), HIDDEN).unsqueeze(-1), torch.nan, intent)
        with torch.no_grad():
            target = returning_target(recorded, state, self.body, fps)
        seen = cvae.normalized(state_vector(state, self.body.rest[0]), intent)
        posterior = self.posterior(seen, state, target, recorded.touching)
        mean, log_variance = cvae.latent(seen)
        prior = (mean, log_variance.clamp(-8, 4))
        output = cvae.decode(seen, sample(*posterior))
        frame = compose_kinematic(state, output, cvae, self.body, fps)
        parts = _losses(state, frame, output[:, -NUM_CONTACTS:], target, recorded, self.body)
        parts["kl"] = _kl(*posterior, *prior).mean()
        parts["error_mm"] = (frame.joints - target.joints).detach().norm(dim=-1).mean() * 1000
        z = sample(prior[0][free], prior[1][free])
        sampled = compose_kinematic(state[free], cvae.decode(seen[free], z), cvae, self.body, fps)
        slide = _slide(state[free], sampled, target[free], recorded.standing[free])
        parts["free slide"] = len(free) / options.batch * _robust(slide)
        return frame.put(free, sampled), parts

    def _advance(self, state: Local, recorded: Local) -> None:
        """Move particles on to their predictions; those that are too old, lost or at the end of a clip start again."""
        options, old, slots = self.options, self.particles, torch.arange(self.options.batch)
        moved = replace(old, at=old.at + 1, age=old.age + 1, state=state.map(Tensor.detach))
        gap = (state.joints - recorded.joints).norm(dim=-1).mean(-1)
        max_age = max(1, round(options.max_age * min(1.0, self.progress / options.ramp)))
        spent = (moved.age >= max_age) | self._at_end(moved.at) | (gap > LOST) | self._clean(slots)
        moved = self._displaced(moved, self._chance(options.batch, options.shoved) & ~spent)
        index = spent.nonzero().squeeze(-1)
        self.particles = moved.put(index, self._fresh(index))


def rollout_quality(prior: CVAEPrior, starts: State) -> dict[str, float]:
    """Measure sampled rollouts: people who stay human and upright, foot skate, speed, and a score to choose by."""
    motion = roll_out(prior, starts, round(QUALITY_SECONDS * prior.fps), Streams(list(range(len(starts.x)))))
    human, upright = float(metrics.human(motion).mean()), float(metrics.upright(motion)[..., -1].mean())
    skate = float(np.median(np.nan_to_num(metrics.foot_skate(motion), nan=10.0)))
    speed = float(np.nan_to_num(metrics.root_speed(motion)).mean())
    return {"human": human, "upright": upright, "skate": skate, "speed": speed, "score": human - skate}


def train_prior(
    data: str | Path,
    out: str | Path,
    options: PriorOptions,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train on a data set until the budget is spent, and return the path of the best weights."""
    frames, unseen = Frames.of(load(Path(data), held_out=False)), load(Path(data), held_out=True)

    def judge(trainer: PriorTrainer) -> tuple[CVAEPrior, dict[str, float]]:
        network = run_time.CVAENetwork(trainer.cvae.shape, arrays_of(trainer.average))
        prior = CVAEPrior(network, frames.skeleton, fps=frames.fps, temperature=trainer.options.temperature)
        return prior, rollout_quality(prior, held_out_starts(unseen, prior, QUALITY_PEOPLE, seed=1))

    if budget.init:  # a network that can already move rolls far from the start
        options = replace(options, ramp=0.05)
    path = Path(out) / "prior.safetensors"
    return train(lambda options: PriorTrainer(frames, options), options, judge, path, budget, watch)
