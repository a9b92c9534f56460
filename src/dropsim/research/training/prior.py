"""Training of the conditional VAE: particles that roll through the recordings, pushed off them and taught to come back.

Every optimisation step advances a batch of particles by one frame. A particle starts on a recorded frame, often displaced, and goes on
from its own prediction; its target is the recording, approached with a half-life from where the particle is, so that the model learns
smooth returns from states that no recording has. Gradients are cut between frames, as in HuMoR.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dropsim.body.rotations import exp, heading, log_small
from dropsim.body.skeleton import NUM_JOINTS, Skeleton
from dropsim.motion.contacts import CONTACT_JOINTS
from dropsim.priors.cvae import (
    MLP,
    NUM_CONTACTS,
    VELOCITY_SIZE,
    CVAENetwork,
    CVAEShape,
    Local,
    compose_kinematic,
    state_vector,
    turn_memory,
)
from dropsim.research.training.frames import Frames, Transition, transition


@dataclass(frozen=True)
class PriorOptions:
    """How the prior is trained."""

    latent: int = 32
    width: int = 512
    batch: int = 256
    learning_rate: float = 8e-4
    """At the start; it falls to a hundredth along a cosine."""
    target_kl: float = 6.0
    """[nats a frame]: a controller on the weight of the divergence holds it there."""
    return_half_life: float = 0.2
    """Of a displacement from the recording [s]."""
    max_age: int = 30
    """Frames that a particle rolls on from its own predictions, at the end of the ramp."""
    ramp: float = 0.2
    """Share of the training over which the roll-outs grow to max_age."""
    displaced: float = 0.35
    """Share of the particles that start off the recording."""
    shoved: float = 0.01
    """Chance per frame that a rolling particle is displaced again."""
    clean: float = 0.3
    """Share of the batch that starts anew on a recorded frame, undisplaced, at every step."""
    temperature: float = 0.8
    """Spread of a sample at run time, stored with the weights: at 1 roll-outs jitter and skate more than recordings."""
    sampled: float = 0.25
    """Share of the particles that go on from a sample of the conditional prior instead of the posterior."""
    ema: float = 0.999
    seed: int = 0


NUM_MEASURED = 20_000
"""Recorded transitions that means and scales are measured from."""


class TrainingNetwork(nn.Module):
    """The network that ships and the encoder that only training needs."""

    def __init__(self, shape: CVAEShape, width: int) -> None:
        """Build with random weights; the decoder starts at constant velocity."""
        super().__init__()
        self.cvae = CVAENetwork(shape)
        target = 3 + 3 * NUM_JOINTS + 3 * NUM_JOINTS + NUM_CONTACTS
        self.encoder = MLP(shape.state_size + target, (width, width), 2 * shape.latent, groups=shape.groups)
        for last in (self.cvae.decoder.linears[-1], self.cvae.prior.linears[-1], self.encoder.linears[-1]):
            assert isinstance(last, nn.Linear)
            nn.init.normal_(last.weight, std=0.01)
            nn.init.zeros_(last.bias)


@dataclass(frozen=True, eq=False)
class Particles:
    """Where each member of the batch is: its place in the recordings and its own state."""

    at: Int[Tensor, "b"]
    mirrored: Bool[Tensor, "b"]
    age: Int[Tensor, "b"]
    state: Local
    """In the heading frame of its own root."""


def _where(mask: Bool[Tensor, "b"], a: Local, b: Local) -> Local:
    def pick(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(mask.reshape(-1, *([1] * (x.ndim - 1))), x, y)

    return Local(pick(a.root, b.root), pick(a.q, b.q), pick(a.joints, b.joints), pick(a.velocity, b.velocity))


LOCAL_FIELDS = ("root", "q", "joints", "velocity")


def _put(frame: Local, index: Int[Tensor, "i"], part: Local) -> Local:
    """Replace some members of a batch."""
    return Local(*(getattr(frame, name).index_copy(0, index, getattr(part, name)) for name in LOCAL_FIELDS))


def _pick(frame: Local, index: Int[Tensor, "i"]) -> Local:
    """Take some members of a batch."""
    return Local(*(getattr(frame, name)[index] for name in LOCAL_FIELDS))


def recentred(frame: Local, skeleton: Skeleton) -> Local:
    """Express a frame in the heading frame of its own root."""
    H = heading(frame.q[..., 0, :, :])
    flat = torch.tensor([1.0, 1.0, 0.0])
    origin, place = frame.root * flat, skeleton.rest[0] * flat
    q = torch.cat((H.unsqueeze(-3) @ frame.q[..., :1, :, :], frame.q[..., 1:, :, :]), dim=-3)
    joints = (frame.joints - origin.unsqueeze(-2)) @ H.transpose(-1, -2) + place
    return Local(joints[..., 0, :], q, joints, turn_memory(frame.velocity, H))


def displaced(frame: Local, skeleton: Skeleton, freedom: Float[Tensor, "22 3"], rng: torch.Generator) -> Local:
    """Push a frame off the recording: bent joints, a tilted and shifted root, and a shove in the velocities.

    `freedom` tells how much each joint's rotation about each axis takes part: a knee is hardly ever twisted.
    """
    b = len(frame.root)

    def normal(*shape: int) -> Tensor:
        return torch.randn(b, *shape, generator=rng)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(b, *shape, generator=rng)

    size = uniform(1, 1) ** 2  # mostly small, now and then large
    bend = normal(NUM_JOINTS, 3) * (uniform(NUM_JOINTS, 1) < 0.4) * (0.01 + 0.25 * size) * freedom
    bend[:, 0] = normal(3) * 0.2 * size[:, 0] * torch.tensor([1.0, 1.0, 0.3])
    q = exp(bend) @ frame.q
    root = frame.root + normal(3) * torch.tensor([0.0, 0.0, 0.04]) * size[:, 0]
    joints = skeleton.forward(q, root)
    sunk = (-(joints[..., 2] - skeleton.radii).amin(-1)).clamp(min=0) * (uniform() < 0.8)
    lift = torch.stack((torch.zeros_like(sunk), torch.zeros_like(sunk), sunk), dim=-1)
    shove = normal(3) * torch.tensor([0.6, 0.6, 0.2]) * uniform(1) ** 2
    spin = normal(NUM_JOINTS, 3) * freedom * uniform(1, 1) ** 3
    jolt = normal(NUM_JOINTS, 3) * 0.3 * uniform(1, 1) ** 3
    noise = torch.cat((shove, spin[:, 0], (jolt + shove[:, None]).flatten(1), spin[:, 1:].flatten(1)), dim=-1)
    return recentred(Local(root + lift, q, joints + lift[:, None], frame.velocity + noise * (uniform(1) < 0.6)), skeleton)


def returning_target(recorded: Transition, state: Local, skeleton: Skeleton, *, half_life: float, fps: float) -> Local:
    """Return the next recorded frame, moved by what is left after one frame of the particle's offset from the present one.

    Offsets fade with a half-life; of a difference in velocity a part lasts, so that a shove is not undone in a single frame. Where the
    recording stands on a foot, places are compared at that foot, so that the way back never asks a standing foot to slide.
    """
    h = 1.0 / fps
    fade = 2 ** (-h / half_life)

    def left(offset: Tensor, velocity: Tensor) -> Tensor:
        return fade * offset + LASTING * h * velocity

    now, then = recorded.now, recorded.then
    weight = recorded.standing[:, [5, 6]].float() + 0.5 * recorded.standing[:, [3, 4]].float()
    feet = [CONTACT_JOINTS[i] for i in (5, 6)]
    gap = (state.joints[:, feet] - now.joints[:, feet])[..., :2]
    shift = (weight.unsqueeze(-1) * gap).sum(1) / weight.sum(1, keepdim=True).clamp(min=1e-6)
    shift = nn.functional.pad(shift, (0, 1))
    root_offset = state.root - now.root - shift
    root_velocity = state.velocity[:, :3] - now.velocity[:, :3]
    turn = log_small(state.q @ now.q.transpose(-1, -2))
    spin = torch.cat((state.velocity[:, 3:6], state.velocity[:, VELOCITY_SIZE:]), -1) - torch.cat(
        (now.velocity[:, 3:6], now.velocity[:, VELOCITY_SIZE:]), -1
    )
    q = exp(left(turn, spin.unflatten(-1, (NUM_JOINTS, 3)))) @ then.q
    root = then.root + shift + left(root_offset, root_velocity)
    return Local(root, q, skeleton.forward(q, root), then.velocity)


def _posterior_input(state: Local, target: Local, touching: Bool[Tensor, "b 9"]) -> Float[Tensor, "b e"]:
    """Lay the change from the state to the target out for the encoder, scaled to order one."""
    turn = log_small(target.q @ state.q.transpose(-1, -2))
    return torch.cat(
        (20 * (target.root - state.root), 10 * turn.flatten(1), 20 * (target.joints - state.joints).flatten(1), touching.float()), dim=-1
    )


def _kl(mean: Tensor, log_variance: Tensor, mean_to: Tensor, log_variance_to: Tensor) -> Tensor:
    """Divergence of one diagonal Gaussian from another [nats], summed over the latent."""
    ratio = (log_variance - log_variance_to).exp() + (mean - mean_to).square() * (-log_variance_to).exp()
    return 0.5 * (ratio - 1 - log_variance + log_variance_to).sum(-1)


HELD = 0.012
"""A joint whose rotation about an axis spreads less than this in the recordings does not turn about it [rad]."""
LASTING = 0.3
"""Part of a difference in velocity from the recording that is still there after a frame."""
ROBUST = 2.0
"""Where a part of the loss turns from square to root [cm^2]."""
STILL = 0.009
"""A standing foot whose target is nearer than this should not move at all [m]."""
_FOOT_CONTACTS = (3, 4, 5, 6)
_FOOT_JOINTS = tuple(CONTACT_JOINTS[i] for i in _FOOT_CONTACTS)


def _robust(loss: Tensor) -> Tensor:
    """Average over the batch, growing like a root beyond a few centimetres, so that lost particles do not drown the others."""
    return (2 * ROBUST * ((1 + loss / ROBUST).sqrt() - 1)).sum() / max(1, len(loss))  # zero, not NaN, of an empty batch


def _slide(state: Local, predicted: Local, target: Local, standing: Bool[Tensor, "i 9"]) -> Float[Tensor, "i"]:
    """Horizontal steps of feet that stand in the recording and whose target hardly moves [cm^2, summed over the feet]."""
    feet = list(_FOOT_JOINTS)
    still = standing[:, list(_FOOT_CONTACTS)] & ((target.joints - state.joints)[:, feet].norm(dim=-1) < STILL)
    step = 100 * (predicted.joints - state.joints)[:, feet, :2]
    return 2.0 * (step.square().sum(-1) * still).sum(-1)


def _losses(state: Local, predicted: Local, logits: Tensor, target: Local, recorded: Transition, skeleton: Skeleton) -> dict[str, Tensor]:
    """Return the parts of the reconstruction loss, each a mean over the batch; lengths are in centimetres so that they are of order one."""
    miss = (100 * (predicted.joints - target.joints)).square().sum(-1)
    turn_miss = (predicted.q - target.q).square().sum((-1, -2))
    foot_miss = (miss[:, list(_FOOT_JOINTS)] * recorded.standing[:, list(_FOOT_CONTACTS)]).sum(-1)
    sunk = (100 * (skeleton.radii - predicted.joints[..., 2] - 0.01)).clamp(min=0)
    already = (100 * (skeleton.radii - target.joints[..., 2] - 0.01)).clamp(min=0)
    return {
        "joints": _robust(miss.sum(-1)),
        "rotations": _robust(300 * turn_miss.sum(-1)),
        "feet": _robust(3.0 * foot_miss),
        "slide": _robust(_slide(state, predicted, target, recorded.standing)),
        "sunk": _robust((sunk - already).clamp(min=0).square().sum(-1)),
        "contact": nn.functional.binary_cross_entropy_with_logits(logits, recorded.touching.float()),
    }


class PriorTrainer:
    """Everything that changes during training, in one place that can be saved and resumed."""

    def __init__(self, frames: Frames, options: PriorOptions, total_steps: int) -> None:
        """Start from random weights."""
        torch.manual_seed(options.seed)
        shape = CVAEShape(latent=options.latent, decoder=(options.width,) * 3, prior=(options.width,) * 2, kinematic=True)
        self.frames, self.options, self.total_steps, self.step_count = frames, options, total_steps, 0
        self.rng = torch.Generator().manual_seed(options.seed)
        self.network = TrainingNetwork(shape, options.width)
        self._normalise()
        self.average = CVAENetwork(shape)
        self.average.load_state_dict(self.network.cvae.state_dict())
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=options.learning_rate, weight_decay=1e-4, fused=True)
        self.log_beta = math.log(0.3)
        fresh = self._fresh(torch.arange(options.batch))
        # Ages are spread from the start, so that particles do not all end together.
        self.particles = replace(fresh, age=torch.randint(0, options.max_age, (options.batch,), generator=self.rng))

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights of another run, but neither its schedule nor what it measured of the recordings."""
        cvae = self.network.cvae
        scale, last = cvae.output_scale.clone(), cvae.decoder.linears[-1]
        assert isinstance(last, nn.Linear)
        own = {name: value for name, value in self.network.state_dict().items() if name.split(".")[-1] in ("carry", "free", "held")}
        self.network.load_state_dict({**weights, **own})
        with torch.no_grad():
            last.weight.mul_((cvae.output_scale / scale).unsqueeze(-1))
            last.bias.mul_(cvae.output_scale / scale)
            cvae.output_scale.copy_(scale)
        self.average.load_state_dict(self.network.cvae.state_dict())

    def _normalise(self) -> None:
        """Measure mean and scale of the state and of the deltas from recorded transitions."""
        at = self.frames.draw(NUM_MEASURED, self.rng)
        recorded = transition(self.frames, at, torch.zeros(len(at), dtype=torch.bool))
        vectors = state_vector(recorded.now, self.frames.skeleton.rest[0])
        cvae, h = self.network.cvae, 1.0 / self.frames.fps
        cvae.state_mean.copy_(vectors.mean(0))
        # Constant entries (the body's own place) get a scale of one, near-constant ones are not blown up.
        cvae.state_scale.copy_(vectors.std(0).clamp(min=0.02))
        now, then = recorded.now.velocity, recorded.then.velocity
        change = h * torch.cat(((then - now)[:, :6], (then - now)[:, VELOCITY_SIZE:]), dim=-1)
        scale = torch.cat((change.std(0), torch.ones(NUM_CONTACTS)))
        cvae.output_scale.copy_(scale.clamp(min=0.003))
        before, after = (torch.cat((v[:, :6], v[:, VELOCITY_SIZE:]), dim=-1) for v in (now, then))
        cvae.carry.copy_(((before * after).mean(0) / before.square().mean(0).clamp(min=1e-6)).clamp(0, 1))
        turn = log_small(recorded.now.q)
        spread = turn.std(0)
        cvae.free.copy_((spread > HELD) | (torch.arange(NUM_JOINTS) == 0).unsqueeze(-1))
        cvae.held.copy_(torch.where(cvae.free > 0, 0.0, turn.mean(0)))
        self.freedom = (spread / 0.2).clamp(0.1, 1.0) * cvae.free

    def _is_clean(self, slots: Int[Tensor, "i"]) -> Bool[Tensor, "i"]:
        return slots < round(self.options.clean * self.options.batch)

    def _fresh(self, slots: Int[Tensor, "i"]) -> Particles:
        """Start particles anew in some places of the batch."""
        count = len(slots)
        at = self.frames.draw(count, self.rng)
        mirrored = torch.rand(count, generator=self.rng) < 0.5
        state = transition(self.frames, at, mirrored).now
        moved = (torch.rand(count, generator=self.rng) < self.options.displaced) & ~self._is_clean(slots)
        return Particles(
            at, mirrored, torch.zeros_like(at), _where(moved, displaced(state, self.frames.skeleton, self.freedom, self.rng), state)
        )

    def _max_age(self) -> int:
        progress = self.step_count / max(1, self.options.ramp * self.total_steps)
        return max(1, round(self.options.max_age * min(1.0, progress)))

    def _learning_rate(self) -> float:
        progress = min(1.0, self.step_count / self.total_steps)
        warm = min(1.0, (self.step_count + 1) / 500)
        return self.options.learning_rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))

    def step(self) -> dict[str, float]:
        """Advance every particle by one frame and the weights by one step; return the parts of the loss."""
        options, skeleton, cvae = self.options, self.frames.skeleton, self.network.cvae
        state = self.particles.state
        recorded = transition(self.frames, self.particles.at, self.particles.mirrored)
        target = returning_target(recorded, state, skeleton, half_life=options.return_half_life, fps=self.frames.fps)
        seen = cvae.normalized(state_vector(state, skeleton.rest[0]))
        mean, log_variance = self.network.encoder(torch.cat((seen, _posterior_input(state, target, recorded.touching)), -1)).chunk(2, -1)
        prior_mean, prior_log_variance = cvae.latent(seen)
        log_variance, prior_log_variance = log_variance.clamp(-8, 4), prior_log_variance.clamp(-8, 4)
        noise = torch.randn(mean.shape, generator=self.rng)
        output = cvae.decode(seen, (mean + (0.5 * log_variance).exp() * noise).unsqueeze(1)).squeeze(1)
        predicted = compose_kinematic(state, output, cvae, skeleton, self.frames.fps)
        parts = _losses(state, predicted, output[:, -NUM_CONTACTS:], target, recorded, skeleton)
        free = (torch.rand(len(mean), generator=self.rng) < options.sampled).nonzero().squeeze(-1)
        sampled = self._sampled(free, seen, prior_mean, prior_log_variance)
        parts["free slide"] = (
            len(free) / len(mean) * _robust(_slide(_pick(state, free), sampled, _pick(target, free), recorded.standing[free]))
        )
        kl = _kl(mean, log_variance, prior_mean, prior_log_variance).mean()
        loss = torch.stack(list(parts.values())).sum() + math.exp(self.log_beta) * kl
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), 20.0)
        if not norm.isfinite():
            raise ValueError(f"training diverged at step {self.step_count}: start again with a smaller learning rate")
        self.optimizer.step()
        self.log_beta = min(max(self.log_beta + 0.01 * (float(kl.detach()) / options.target_kl - 1), -9.0), 4.0)
        with torch.no_grad():
            keep = min(options.ema, (1 + self.step_count) / (10 + self.step_count))
            for old, new in zip(self.average.parameters(), cvae.parameters(), strict=True):
                old.lerp_(new, 1 - keep)
            self._advance(predicted, free, sampled, recorded)
        self.step_count += 1
        error = (predicted.joints - target.joints).detach().norm(dim=-1).mean() * 1000
        return {
            **{k: float(v.detach()) for k, v in parts.items()},
            "kl": float(kl.detach()),
            "loss": float(loss.detach()),
            "error_mm": float(error),
        }

    def _sampled(self, index: Int[Tensor, "i"], seen: Tensor, prior_mean: Tensor, prior_log_variance: Tensor) -> Local:
        """Return where some particles go when the conditional prior is sampled, as at run time."""
        z = prior_mean[index] + (0.5 * prior_log_variance[index]).exp() * torch.randn(len(index), self.options.latent, generator=self.rng)
        output = self.network.cvae.decode(seen[index], z.unsqueeze(1)).squeeze(1)
        return compose_kinematic(_pick(self.particles.state, index), output, self.network.cvae, self.frames.skeleton, self.frames.fps)

    def _advance(self, predicted: Local, free: Int[Tensor, "i"], sampled: Local, recorded: Transition) -> None:
        """Move the particles on to their own prediction, or to a sample of the prior, and start spent ones anew."""
        options, skeleton, old = self.options, self.frames.skeleton, self.particles
        count = len(old.at)
        state = recentred(_put(predicted, free, sampled), skeleton)
        shoved = torch.rand(count, generator=self.rng) < options.shoved
        if shoved.any():
            state = _where(shoved, displaced(state, skeleton, self.freedom, self.rng), state)
        at, age = old.at + 1, old.age + 1
        gap = (state.joints - recorded.then.joints).norm(dim=-1).mean(-1)
        spent = (age >= self._max_age()) | (at >= self.frames.last[at]) | (gap > 0.5) | self._is_clean(torch.arange(count))
        moved = replace(old, at=at, age=age, state=state)
        if not spent.any():
            self.particles = moved
            return
        index = spent.nonzero().squeeze(-1)
        fresh = self._fresh(index)
        merge = {name: getattr(moved, name).index_copy(0, index, getattr(fresh, name)) for name in ("at", "mirrored", "age")}
        self.particles = Particles(**merge, state=_put(state, index, fresh.state))
