"""Training of the pose model: an auto-encoder whose codes are short for natural poses and long for unnatural ones.

Every step sees recorded poses, slightly shaken, and others with a few joints turned out of the range that the
recordings have. Recorded poses are rebuilt from the directions of their codes, with a little noise, in place of a VAE's
divergence. Disturbed poses get codes beyond the limit whose directions stand for the same pose with each joint taken
back to the nearest recorded rotation: the range of motion as a projection. A plain VAE, with one vector for both, had
to choose between rebuilding poses and telling them apart.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dropsim.body import rotations
from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, Skeleton
from dropsim.motion.clips import Clip, load
from dropsim.motion.contacts import UPRIGHT
from dropsim.motion.defects import intact
from dropsim.motion.motion import Motion
from dropsim.priors import pose as run_time
from dropsim.priors.pose import NUM_BODY, PosePrior, PoseShape
from dropsim.research.training.frames import category_weights, draw_by
from dropsim.research.training.loop import Budget, Progress, Trainer, train
from dropsim.research.training.network import (
    Body,
    PoseNetwork,
    arrays_of,
    exp,
    flatten_pose,
    log_small,
    mirrored_rotations,
)

LIMIT = PosePrior.limit
QUALITY_POSES = 4096
"""Upright poses of a source that a model is judged by."""
ROBUST = 300.0
"""Where the loss of a pose turns from square to root [cm^2]."""


@dataclass(frozen=True)
class PoseOptions:
    """How the pose model is trained."""

    width: int = 384
    """Width of the encoder's and the decoder's hidden layers."""
    radius_width: int = 256
    """Width of the hidden layers that give the code's norm."""
    batch: int = 256
    """Recorded poses a step, and as many disturbed ones."""
    learning_rate: float = 2e-3
    """Learning rate at the start; it falls to a hundredth along a cosine."""
    representatives: int = 1024
    """Rotations that stand for the range of a joint."""
    ema: float = 0.999
    seed: int = 0


ROTATIONS = 30.0
"""Weight of a rotation's error, next to that of the joints in square centimetres."""
BLUR = 0.02
"""Noise on the code's direction, so that near codes are near poses [rad]."""
INSIDE = 20.0
"""Weight of keeping recorded poses in range."""
SHAKE = math.radians(8.0)
"""Noise on the recorded poses; as much off a recording is still natural [rad]."""
SLACK = 0.015
"""Distance by which a joint may be off its place while the pose is still natural [m]. On short bones this allows more
than the noise and the tolerance: the simulator solves for joints and derives rotations from them."""
NATURAL_NORM = 5.2
"""Norm of the code that recorded poses are kept below in training."""
IN_RANGE = 0.999
"""Share of every source's recorded poses that the limit is set for afterwards."""
TOLERANCE = math.radians(10.0)
"""Angle by which a joint may be out of the recorded range, besides the slack, while the pose may be in range [rad]."""
SUPPORT = 3
"""People of one source who must have a rotation before it counts as in range; all of them in sources of fewer."""


def random_rotations(shape: Sequence[int], rng: torch.Generator) -> Float[Tensor, "*s 3 3"]:
    """Draw rotations spread evenly over all that there are."""
    quaternions = nn.functional.normalize(torch.randn(*shape, 4, generator=rng, dtype=torch.float64), dim=-1)
    return torch.from_numpy(rotations.unitquat_to_rotmat(quaternions.numpy())).float()


def shaken(
    q: Float[Tensor, "b 22 3 3"], angles: Float[Tensor, "21"], rng: torch.Generator
) -> Float[Tensor, "b 22 3 3"]:
    """Turn every body joint by about its angle [rad] or less; some poses more than others."""
    turns = angles[:, None] * torch.randn(len(q), NUM_BODY, 3, generator=rng) * torch.rand(len(q), 1, 1, generator=rng)
    return torch.cat((q[:, :1], q[:, 1:] @ exp(turns)), 1)


def slack_angles(skeleton: Skeleton) -> Float[Tensor, "21"]:
    """Return how far each body joint turns when the joint after it is off by the slack [rad]; 0 for leaves."""
    after = [[float(skeleton.lengths[child]) for child in CHILDREN[joint]] for joint in range(1, NUM_JOINTS)]
    return torch.tensor([math.atan(SLACK / min(lengths)) if lengths else 0.0 for lengths in after])


@dataclass(frozen=True, eq=False)
class Poses:
    """All intact poses of some clips, to be drawn with the categories of every source balanced."""

    skeleton: Skeleton
    q: Float[Tensor, "n 22 3 3"]
    person: Int[Tensor, "n"]
    """Number of the person whose pose it is."""
    edges: Float[Tensor, "n"]
    """Cumulated probability of the poses."""
    source: Int[Tensor, "n"]
    """Index of the source of each pose."""
    upright: Bool[Tensor, "n"]
    """Poses with the pelvis at the height of people on their feet."""
    sources: tuple[str, ...]
    """Names of the sources."""

    @classmethod
    def of(cls, clips: Sequence[tuple[Clip, Motion]]) -> "Poses":
        """Collect the poses of clips; defects of the recording are left out."""
        q = np.concatenate([motion.q for _, motion in clips])
        whole = intact(q)
        if not whole.any():
            raise ValueError("the data holds no pose that a human can take: build it again with `dropsim data build`")

        def of_poses(each_clip: Sequence[int | float]) -> np.ndarray:
            return np.repeat(each_clip, [len(motion) for _, motion in clips])[whole]

        people, sources = (sorted({getattr(clip, name) for clip, _ in clips}) for name in ("person", "source"))
        weight = of_poses(category_weights(clips)).cumsum()
        upright = np.concatenate([motion.root[:, 2] > UPRIGHT for _, motion in clips])[whole]
        return cls(
            skeleton=clips[0][1].skeleton,
            q=torch.from_numpy(q[whole].astype(np.float32)),
            person=torch.from_numpy(of_poses([people.index(clip.person) for clip, _ in clips])),
            edges=torch.from_numpy(weight / weight[-1]),
            source=torch.from_numpy(of_poses([sources.index(clip.source) for clip, _ in clips])),
            upright=torch.from_numpy(upright),
            sources=tuple(sources),
        )

    def sample(self, of: Bool[Tensor, "n"], count: int) -> Float[Tensor, "count 22 3 3"]:
        """Return some of the marked poses, the same every time, evenly drawn without balance."""
        at = of.nonzero()[:, 0]
        return self.q[at[torch.randperm(len(at), generator=torch.Generator().manual_seed(1))[:count]]]

    def upright_samples(self, count: int) -> dict[str, Float[np.ndarray, "count 22 3 3"]]:
        """Return upright poses of each source that has any, by its name."""
        samples = {name: self.sample((self.source == i) & self.upright, count) for i, name in enumerate(self.sources)}
        return {name: q.double().numpy() for name, q in samples.items() if len(q)}

    def draw(self, count: int, rng: torch.Generator) -> Float[Tensor, "count 22 3 3"]:
        """Draw poses, half of them mirrored."""
        q = self.q[draw_by(self.edges, count, rng)]
        return torch.where(torch.rand(count, 1, 1, 1, generator=rng) < 0.5, mirrored_rotations(q), q)


@dataclass(frozen=True, eq=False)
class JointRange:
    """Rotations that stand for the recorded range of each body joint, spread as evenly as they can be."""

    rotations: Float[Tensor, "21 r 3 3"]
    cover: Float[Tensor, "21"]
    """How far apart they are [rad]: anything in range is within this of one of them."""
    tolerance: Float[Tensor, "21"]
    """How far out of it a joint may be before the pose is unnatural [rad]."""

    @classmethod
    def of(cls, recorded: Poses, options: PoseOptions, rng: torch.Generator) -> "JointRange":
        """Measure the range of recorded poses and their mirror images, leaving out what too few people do."""
        at = draw_by(recorded.edges, 8000, rng)
        poses, people = torch.cat((recorded.q[at], mirrored_rotations(recorded.q[at]))), recorded.person[at].repeat(2)
        member = nn.functional.one_hot(people).float()
        # A source has few people and a posture of its own: none of it is out of range because the other sources differ.
        works_for = torch.zeros(member.shape[1], len(recorded.sources))
        works_for[people, recorded.source[at].repeat(2)] = 1
        needed = works_for.sum(0).clamp(min=1, max=SUPPORT)
        chosen = torch.randperm(len(poses), generator=rng)[: 4 * options.representatives]
        near = 1 + 2 * math.cos(math.radians(10.0))
        spread_out, cover = [], []
        for joint in range(1, NUM_JOINTS):
            all_of_it = poses[:, joint].flatten(1)
            candidates = all_of_it[chosen]
            alike = [(part @ all_of_it.T > near).float() @ member > 0 for part in candidates.split(512)]
            supported = (torch.cat(alike).float() @ works_for >= needed).any(-1)
            if supported.any():
                candidates = candidates[supported]
            spread, gap = _farthest_points(candidates, options.representatives)
            spread_out.append(spread.unflatten(-1, (3, 3)))
            cover.append(gap)
        tolerance = TOLERANCE + slack_angles(recorded.skeleton)
        return cls(torch.stack(spread_out), torch.stack(cover), tolerance)

    def nearest(
        self, rotations: Float[Tensor, "b k 3 3"], joints: Int[Tensor, "k"]
    ) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b k 3 3"]]:
        """Return the angle [rad] to the nearest representative of each joint, and that representative."""
        known = self.rotations[joints]
        trace = torch.einsum("bki,kri->bkr", rotations.flatten(-2), known.flatten(-2))
        best, index = trace.max(-1)
        return ((best - 1) / 2).clamp(-1, 1).acos(), known[torch.arange(len(joints)), index]


def _farthest_points(candidates: Float[Tensor, "n 9"], count: int) -> tuple[Float[Tensor, "r 9"], Float[Tensor, ""]]:
    """Pick rotations, each the farthest from those before it; return them and the angle that they leave uncovered."""
    at = [0]
    best = candidates @ candidates[0]
    for _ in range(count - 1):
        at.append(int(best.argmin()))
        best = torch.maximum(best, candidates @ candidates[at[-1]])
    return candidates[at], ((best.min() - 1) / 2).clamp(-1, 1).acos()


@dataclass(frozen=True, eq=False)
class Disturbed:
    """Poses with some joints turned away, and where they should come back to."""

    q: Float[Tensor, "b 22 3 3"]
    target: Float[Tensor, "b 22 3 3"]
    """The same poses with each joint moved back to the nearest recorded rotation of it, to half of the tolerance."""
    beyond: Float[Tensor, "b"]
    """How far the worst joint is beyond its recorded range and the tolerance [rad]; negative if all are within them."""


def disturbed(q: Float[Tensor, "b 22 3 3"], within: JointRange, rng: torch.Generator) -> Disturbed:
    """Turn a few joints of each pose by any angle; one pose in twenty is all at random."""
    b, some = len(q), 5
    joints = torch.randperm(NUM_BODY, generator=rng)[:some]
    turned = torch.rand(b, some, generator=rng) < 0.35
    turned[:, 0] = True
    body = q[:, 1:][:, joints]
    # Half of them start from anywhere in the range of the joint, so that all of its edge is seen.
    anywhere = within.rotations[joints, torch.randint(within.rotations.shape[1], (b, some), generator=rng)]
    start = torch.where(torch.rand(b, some, 1, 1, generator=rng) < 0.5, anywhere, body)
    axis = torch.randn(b, some, 3, generator=rng)
    # Half of them about one of the axes, as joints are bent too far.
    main = nn.functional.one_hot(axis.abs().argmax(-1), 3) * axis.sign()
    axis = torch.where(torch.rand(b, some, 1, generator=rng) < 0.5, main, nn.functional.normalize(axis, dim=-1))
    angle = math.pi * torch.rand(b, some, 1, generator=rng) ** 1.5
    away = start @ exp(axis * angle)
    gap, nearest = within.nearest(away, joints)
    excess, tolerance = gap - within.cover[joints], within.tolerance[joints]
    back = log_small(away.transpose(-1, -2) @ nearest)
    snapped = away @ exp(back * ((excess - tolerance / 2).clamp(min=0) / gap.clamp(min=1e-6)).unsqueeze(-1))
    mask = turned[..., None, None]
    moved, target = q.clone(), q.clone()
    moved[:, 1 + joints] = torch.where(mask, away, body)
    target[:, 1 + joints] = torch.where(mask, snapped, body)
    wild = torch.rand(b, generator=rng) < 0.05
    moved[:, 1:] = torch.where(wild[:, None, None, None], random_rotations((b, NUM_BODY), rng), moved[:, 1:])
    target = torch.where(wild[:, None, None, None], q, target)
    beyond = torch.where(turned, excess - tolerance, -math.pi).amax(-1)
    return Disturbed(moved, target, torch.where(wild, math.pi / 2, beyond))


class PoseTrainer(Trainer[PoseNetwork]):
    """The pose model in training."""

    warm_up, max_gradient = 200, 1000.0

    def __init__(self, poses: Poses, options: PoseOptions) -> None:
        """Start from random weights."""
        torch.manual_seed(options.seed)
        self.rng = torch.Generator().manual_seed(options.seed)
        self.poses, self.body = poses, Body.of(poses.skeleton)
        self.range = JointRange.of(poses, options, self.rng)
        self.shake = SHAKE + slack_angles(poses.skeleton)
        width = (options.width,) * 2
        network = PoseNetwork(PoseShape(width, width, (options.radius_width,) * 2))
        seen = flatten_pose(poses.draw(20000, self.rng))
        network.input_mean.copy_(seen.mean(0))
        # Joints that hardly move are not blown up.
        network.input_scale.copy_(seen.std(0).clamp(min=0.15))
        super().__init__(network, network, options)

    def _rebuilding(
        self, z: Float[Tensor, "b z"], target: Float[Tensor, "b 22 3 3"]
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        """Return the loss of decoding to a target, from joints [cm] and rotations, and the mean joint error [mm]."""
        body, wanted = self.exported.decode(z), target[:, 1:]
        root, origin = torch.eye(3).expand(len(z), 1, 3, 3), torch.zeros(len(z), 3)
        joints, wanted_joints = (self.body.forward(torch.cat((root, q), 1), origin) for q in (body, wanted))
        miss = joints - wanted_joints
        squares = (100 * miss).square().sum((-1, -2)) + ROTATIONS * (body - wanted).square().sum((-1, -2, -3))
        # Grows like a root beyond some centimetres, so that hopeless poses do not drown the others.
        return 2 * ROBUST * ((1 + squares / ROBUST).sqrt() - 1), miss.detach().norm(dim=-1).mean(-1) * 1000

    def step(self) -> dict[str, float]:
        """Take one step on recorded and disturbed poses; return the parts of the loss."""
        half = self.options.batch
        # Shaken poses are rebuilt as they are: new people differ in small ways from those recorded.
        natural, other = shaken(self.poses.draw(2 * half, self.rng), self.shake, self.rng).split(half)
        wrong = disturbed(other, self.range, self.rng)
        q, target = torch.cat((natural, wrong.q)), torch.cat((natural, wrong.target))
        z = self.exported.encode(flatten_pose(q))
        norm = z.norm(dim=-1)
        blur = BLUR * torch.randn(z.shape, generator=self.rng) / math.sqrt(z.shape[-1])
        loss, error = self._rebuilding(nn.functional.normalize(z, dim=-1) + blur, target)
        unnatural = wrong.beyond > 0
        needed = torch.where(unnatural, LIMIT + 0.5 + 2.5 * (wrong.beyond / (math.pi / 4)).clamp(max=1), 0.0)
        parts = {
            "rebuilt": loss[:half].mean(),
            "returned": 0.3 * loss[half:].mean(),
            "inside": INSIDE * (norm[:half] - NATURAL_NORM).clamp(min=0).square().mean(),
            "outside": 5 * (needed - norm[half:]).clamp(min=0).square().mean(),
        }
        self.descend(torch.stack(list(parts.values())).sum())
        parts |= {"error_mm": error[:half].mean(), "returned_mm": error[half:].mean()}
        parts["missed"] = (norm[half:] < LIMIT)[unnatural].float().mean()
        parts["refused"] = (norm[:half] > LIMIT).float().mean()
        return {name: float(value.detach()) for name, value in parts.items()}

    def prior(self) -> PosePrior:
        """Export the average weights, with norms shifted so that the wanted share of every source is in range."""
        network, poses = copy.deepcopy(self.average), self.poses
        with torch.no_grad():
            each = [poses.sample(poses.source == i, 10000) for i in range(len(poses.sources))]
            norms = [network.norm(flatten_pose(torch.cat((q, mirrored_rotations(q))))) for q in each]
            highest = torch.stack([torch.quantile(norm, IN_RANGE) for norm in norms]).max()
            # At the limit, softplus is linear to 0.3 %.
            cast(nn.Linear, network.radius[-1]).bias.sub_(highest - LIMIT)
        return PosePrior(run_time.PoseNetwork(network.shape, arrays_of(network)))


def train_pose(
    data: str | Path,
    out: str | Path,
    options: PoseOptions,
    budget: Budget,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train on a data set until the budget is spent, and return the path of the weights."""
    poses, held_out = (Poses.of(load(Path(data), held_out=held_out)) for held_out in (False, True))
    trained, unseen = poses.upright_samples(QUALITY_POSES), held_out.upright_samples(QUALITY_POSES)
    if not unseen:
        remedy = "hold out other people with `dropsim data build --held-out`"
        raise ValueError(f"nobody who is held out is on their feet: {remedy}")

    def judge(trainer: PoseTrainer) -> tuple[PosePrior, dict[str, float]]:
        """Measure shares out of range and the error of rebuilding."""
        prior, skeleton, q = trainer.prior(), poses.skeleton, np.concatenate(list(unseen.values()))
        samples = {f"out_{name}": some for name, some in trained.items()}
        samples |= {f"out_{name}_held_out": some for name, some in unseen.items()}
        outside = {name: float((prior.norm(some) > prior.limit).mean()) for name, some in samples.items()}
        rebuilt, origin = np.concatenate((q[:, :1], prior.decode(prior.encode(q))), 1), np.zeros((len(q), 3))
        miss = skeleton.forward(rebuilt, origin) - skeleton.forward(q, origin)
        return prior, outside | {"rebuilt_mm": 1000 * float(np.linalg.norm(miss, axis=-1).mean())}

    path = Path(out) / "pose.safetensors"
    return train(lambda options: PoseTrainer(poses, options), options, judge, path, budget, watch)
