"""A motion model of your own in place of the shipped one: a network in PyTorch, of another shape than ours.

Run: python examples/04_your_own_prior.py [FOLDER]

The network knows one thing, to step in place, and learns it here within a second, so that the example is whole. It sees where in its step
it is, and not how the person moves, so it is no match for a push; the part to copy is `StepPrior`.
"""

import math
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from dropsim import Candidates, Motion, Person, Prior, Push, Scene, Simulator, State, Streams, World, run
from dropsim.render import contact_sheet
from dropsim.body.rotations import exp, heading, log_small
from dropsim.motion.synthetic import CADENCE, stepping_clip

PERIOD = 1 / CADENCE
"""Of two steps [s]."""


class StepNet(nn.Module):
    """Your network, as it is: a phase on the circle and noise in; height, 22 turns and the next phase out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2 + 1, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1 + 22 * 3 + 2))

    def forward(self, phase: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return heights, rotation vectors and phases, of rows."""
        height, turns, phase = self.layers(torch.cat((phase, z), dim=-1)).split((1, 66, 2), dim=-1)
        return height, turns.unflatten(-1, (22, 3)), nn.functional.normalize(phase, dim=-1)


# What dropsim needs:
class StepPrior(Prior):
    """The network as a prior; the phase is the memory that the simulator carries from frame to frame."""

    def __init__(self, net: StepNet, clip: Motion) -> None:
        self.net, self.pose = net.eval().requires_grad_(False), clip.q[0]
        self.skeleton, self.fps, self.name = clip.skeleton, clip.fps, "step"

    def sample(self, state: State, num_samples: int, rng: Streams) -> Candidates:
        """Propose num_samples next frames, the first without noise."""
        z = nn.functional.pad(rng.normal(num_samples - 1, 1), (0, 0, 1, 0)).float()
        phase = state.memory.float().unsqueeze(-2).expand(*z.shape[:-1], 2)
        height, turns, phase = (v.double() for v in self.net(phase, z))
        q = self.pose @ exp(turns)
        # The network knows a person who faces +y at the origin; this one is somewhere and faces some way.
        back = heading(state.q[..., 0, :, :]).transpose(-1, -2)[..., None, None, :, :]
        q = torch.cat((back @ q[..., :1, :, :], q[..., 1:, :, :]), dim=-3)
        place = state.x[..., None, 0, :2].expand(*z.shape[:-1], 2)
        return Candidates(self.skeleton.forward(q, torch.cat((place, height), dim=-1)), q, phase)


def trained(net: StepNet, clip: Motion, steps: int) -> StepNet:
    """Teach the network the clip; noise stands for a phase that is a little ahead or behind."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    turns, count = log_small(clip.q[0].transpose(-1, -2) @ clip.q).float(), round(PERIOD * clip.fps)
    for _ in range(steps):
        z, now = torch.randn(256, 1), torch.randint(count, (256,))
        then = (now + 1 + (2 * z[:, 0]).round().long()) % count
        height, turned, phase = net(circle(now / count), z)
        error = (turned - turns[then]).square().mean() + (height - clip.root[then, 2:].float()).square().mean()
        loss = error + 0.1 * (phase - circle(then / count)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def circle(share: Tensor) -> Tensor:
    """Return points on the unit circle."""
    return torch.stack((torch.cos(2 * math.pi * share), torch.sin(2 * math.pi * share)), dim=-1)


out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
clip = stepping_clip()
prior = StepPrior(trained(StepNet(), clip, steps=800), clip)

world = World(Scene((Person(),), (Push.toward("left", newtons=60.0, start=0.7),)), Simulator(prior, num_samples=16))
begin = State(clip.joints[:1], torch.zeros_like(clip.joints[:1]), clip.q[:1], circle(torch.zeros(1, dtype=torch.float64)))
motion = run(world, num_frames=75, seeds=0, start=world.start_from(begin)).motions[0]
contact_sheet([motion], out / "04_own_prior.png", frames=12, labels=["a network of one's own, pushed with 60 N"])
print(f"wrote {out / '04_own_prior.png'}")
