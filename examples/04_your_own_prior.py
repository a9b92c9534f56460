"""A motion model of your own in place of the shipped one: a network in PyTorch, of another shape than ours.

Needs PyTorch: pip install 'dropsim[train]'. Run: python examples/04_your_own_prior.py [FOLDER]

The network knows one thing, to step in place, and learns it here within a second, so that the example is complete. It
sees where in its step it is, and not how the person moves, so it is no match for a push; the part to copy is
`StepPrior`.
"""

import math
import sys
from pathlib import Path

import numpy as np

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    sys.exit("this example needs PyTorch: pip install 'dropsim[train]'")

from dropsim import (
    Candidates,
    Intent,
    Motion,
    Person,
    Prior,
    Push,
    Scene,
    Simulator,
    SimulatorOptions,
    State,
    Streams,
    World,
    run,
)
from dropsim.body.rotations import exp, heading, log_small, transpose
from dropsim.motion.synthetic import CADENCE, stepping_clip
from dropsim.render import contact_sheet

PERIOD = 1 / CADENCE
"""Of two steps [s]."""


class StepNet(nn.Module):
    """Your network, as it is: a phase on the circle and noise in; height, 22 turns and the next phase out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 + 1, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1 + 22 * 3 + 2)
        )

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

    def propose(self, state: State, num: int, rng: Streams, intent: Intent | None = None) -> Candidates:
        """Propose num next frames, the first without noise."""
        z = np.zeros((*state.x.shape[:-2], num, 1))
        z[..., 1:, :] = rng.normal(num - 1, 1)
        phase = np.broadcast_to(state.memory[..., None, :], (*z.shape[:-1], 2))
        # From numpy to torch and back, in the network's precision.
        height, turns, phase = (
            v.double().numpy() for v in self.net(torch.from_numpy(phase.copy()).float(), torch.from_numpy(z).float())
        )
        q = self.pose @ exp(turns)
        # The network knows a person who faces +y at the origin; this one is somewhere and faces some way.
        q[..., 0, :, :] = transpose(heading(state.q[..., 0, :, :]))[..., None, :, :] @ q[..., 0, :, :]
        place = np.broadcast_to(state.x[..., None, 0, :2], (*z.shape[:-1], 2))
        return Candidates(self.skeleton.forward(q, np.concatenate((place, height), axis=-1)), q, phase)


def trained(net: StepNet, clip: Motion, steps: int) -> StepNet:
    """Teach the network the clip; noise stands for a phase that is a little ahead or behind."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    count = round(PERIOD * clip.fps)
    turns, heights = (torch.from_numpy(v).float() for v in (log_small(transpose(clip.q[0]) @ clip.q), clip.root[:, 2:]))
    for _ in range(steps):
        z, now = torch.randn(256, 1), torch.randint(count, (256,))
        then = (now + 1 + (2 * z[:, 0]).round().long()) % count
        height, turned, phase = net(circle(now / count), z)
        error = (turned - turns[then]).square().mean() + (height - heights[then]).square().mean()
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

world = World(
    Scene((Person(),), (Push.toward("left", newtons=60.0, start=0.7),)),
    Simulator(prior, options=SimulatorOptions(num_samples=16)),
)
begin = State(clip.joints[:1], np.zeros((1, 22, 3)), clip.q[:1], np.array([[1.0, 0.0]]))
motion = run(world, num_frames=75, seeds=0, start=world.start_from(begin)).motions[0]
contact_sheet([motion], out / "04_own_prior.png", frames=12, labels=["a network of one's own, pushed with 60 N"])
print(f"wrote {out / '04_own_prior.png'}")
