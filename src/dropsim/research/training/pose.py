"""Training of the pose model: an auto-encoder whose codes are short for natural poses and long for unnatural ones.

Every step sees recorded poses, slightly shaken, and others with a few joints turned out of the range that the recordings have. Recorded
poses are rebuilt from the directions of their codes, with a little noise, in place of a VAE's divergence. Disturbed poses get codes beyond
the limit whose directions stand for the same pose with each joint taken back to the nearest recorded rotation: the range of motion as a
projection. A plain VAE, with one vector for both, had to choose between rebuilding poses and telling them apart.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import roma
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dropsim.body.rotations import exp, swing
from dropsim.body.skeleton import CHILDREN, NUM_JOINTS, Skeleton, joint_index, mirrored_rotations
from dropsim.files.atomic import atomic_path
from dropsim.motion.clips import Clip, load
from dropsim.motion.defects import intact
from dropsim.motion.motion import Motion
from dropsim.priors.pose import NUM_BODY, PoseNetwork, PosePrior, PoseShape, columns_to_rotations, flatten_pose
from dropsim.research.training.frames import BALANCE
from dropsim.research.training.loop import Progress, resuming, run, steps_for

LIMIT = PosePrior.limit

ELBOW_AXIS = torch.tensor([0.0, -0.88, 0.48]) / math.hypot(0.88, 0.48)
"""About which the left elbow bends in our recordings."""
QUALITY_POSES = 4096
ROBUST = 300.0
"""Where the loss of a pose turns from square to root [cm^2]."""


@dataclass(frozen=True)
class PoseOptions:
    """How the pose model is trained."""

    width: int = 384
    """Of the encoder's and the decoder's hidden layers."""
    radius_width: int = 256
    """Of the hidden layers that give the code's norm."""
    batch: int = 256
    """Recorded poses a step, and as many disturbed ones."""
    learning_rate: float = 2e-3
    """At the start; it falls to a hundredth along a cosine."""
    rotations: float = 30.0
    """Weight of a rotation's error beside that of the joints in square centimetres."""
    blur: float = 0.02
    """Noise on the code's direction [rad], so that near codes are near poses."""
    inside: float = 20.0
    """Weight of keeping recorded poses in range."""
    shake: float = 3.0
    """Noise on the recorded poses [degrees]; as much off a recording is still natural."""
    slack: float = 0.015
    """How far off its place a joint may be and the pose still be natural [m]: on short bones, more than the noise and the tolerance in
    degrees, because the simulator solves for joints and has its rotations from them."""
    natural_norm: float = 5.2
    """Norm of the code that recorded poses are kept below in training."""
    in_range: float = 0.999
    """Share of the recorded poses that the limit is set for afterwards."""
    tolerance: float = 10.0
    """How far out of the recorded range a joint may be, beside the slack, before the pose has to be beyond the limit [degrees]."""
    representatives: int = 1024
    """Rotations that stand for the range of a joint."""
    support: int = 3
    """People who have a rotation, before it counts as in range."""
    ema: float = 0.999
    seed: int = 0


def random_rotations(shape: Sequence[int], rng: torch.Generator) -> Float[Tensor, "*s 3 3"]:
    """Draw rotations spread evenly over all there are."""
    quaternion = torch.randn(*shape, 4, generator=rng)
    return roma.unitquat_to_rotmat(nn.functional.normalize(quaternion, dim=-1))


def shaken(q: Float[Tensor, "b 22 3 3"], angles: Float[Tensor, "21"], rng: torch.Generator) -> Float[Tensor, "b 22 3 3"]:
    """Turn every body joint by about its angle [rad] or less; some poses more than others."""
    turns = angles[:, None] * torch.randn(len(q), NUM_BODY, 3, generator=rng) * torch.rand(len(q), 1, 1, generator=rng)
    return torch.cat((q[:, :1], q[:, 1:] @ exp(turns)), 1)


def slack_angles(skeleton: Skeleton, slack: float) -> Float[Tensor, "21"]:
    """Return how far each body joint turns when the joint after it is off by a distance [m]; nothing where none comes after it."""
    after = [[float(skeleton.lengths[child]) for child in CHILDREN[joint]] for joint in range(1, NUM_JOINTS)]
    return torch.tensor([math.atan(slack / min(lengths)) if lengths else 0.0 for lengths in after])


@dataclass(frozen=True, eq=False)
class Poses:
    """All intact poses of some clips, to be drawn with categories balanced."""

    skeleton: Skeleton
    """In single precision."""
    q: Float[Tensor, "n 22 3 3"]
    person: Int[Tensor, "n"]
    """Number of the person whose pose it is."""
    edges: Float[Tensor, "n"]
    """Cumulated probability of the poses."""

    @classmethod
    def of(cls, clips: Sequence[tuple[Clip, Motion]]) -> "Poses":
        """Lay out the poses of clips, leaving defects of the recording out."""
        people = sorted({clip.person for clip, _ in clips})
        frames = {name: sum(len(m) for c, m in clips if c.category == name) for name in {clip.category for clip, _ in clips}}
        q = torch.cat([motion.q.float() for _, motion in clips])
        if not q.isfinite().all():
            raise ValueError("the data holds NaN or infinite values: build it again with `dropsim data build`")
        kept = intact(q)
        if not kept.any():
            raise ValueError("the data holds no pose that a human can take: build it again with `dropsim data build`")
        person = torch.cat([torch.full((len(motion),), people.index(clip.person)) for clip, motion in clips])
        weight = torch.cat([torch.full((len(motion),), frames[clip.category] ** (BALANCE - 1)).double() for clip, motion in clips])[kept]
        return cls(clips[0][1].skeleton.to(torch.float32), q[kept], person[kept], weight.cumsum(0) / weight.sum())

    def draw(self, count: int, rng: torch.Generator) -> Float[Tensor, "count 22 3 3"]:
        """Draw poses, half of them mirrored."""
        at = torch.searchsorted(self.edges, torch.rand(count, generator=rng, dtype=torch.float64)).clamp(max=len(self.edges) - 1)
        q = self.q[at]
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
        at = torch.randint(len(recorded.q), (8000,), generator=rng)
        poses, people = torch.cat((recorded.q[at], mirrored_rotations(recorded.q[at]))), recorded.person[at].repeat(2)
        member = nn.functional.one_hot(people).float()
        needed = min(options.support, int((member.sum(0) > 0).sum()))
        chosen = torch.randperm(len(poses), generator=rng)[: 4 * options.representatives]
        near = 1 + 2 * math.cos(math.radians(10.0))
        rotations, cover = [], []
        for joint in range(1, NUM_JOINTS):
            all_of_it = poses[:, joint].flatten(1)
            candidates = all_of_it[chosen]
            supported = torch.cat([((part @ all_of_it.T > near).float() @ member > 0).sum(-1) >= needed for part in candidates.split(512)])
            spread, gap = _farthest_points(candidates[supported] if supported.any() else candidates, options.representatives)
            rotations.append(spread.unflatten(-1, (3, 3)))
            cover.append(gap)
        tolerance = math.radians(options.tolerance) + slack_angles(recorded.skeleton, options.slack)
        return cls(torch.stack(rotations), torch.stack(cover), tolerance)

    def nearest(
        self, rotations: Float[Tensor, "b k 3 3"], joints: Int[Tensor, "k"]
    ) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b k 3 3"]]:
        """Return the angle [rad] to the nearest representative of each joint, and that representative; the pelvis does not count."""
        known = self.rotations[joints]
        trace = torch.einsum("bki,kri->bkr", rotations.flatten(-2), known.flatten(-2))
        best, index = trace.max(-1)
        return ((best - 1) / 2).clamp(-1, 1).acos(), known[torch.arange(len(joints)), index]


def _farthest_points(candidates: Float[Tensor, "n 9"], count: int) -> tuple[Float[Tensor, "r 9"], Float[Tensor, ""]]:
    """Pick rotations one by one, each the farthest from those before it; return them and the angle that they leave uncovered."""
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
    """How far the worst joint is out of its recorded range and the tolerance [rad]; negative where all are within them."""


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
    back = roma.rotmat_to_rotvec(away.transpose(-1, -2) @ nearest)
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


class PoseTrainer:
    """Everything that changes during training, in one place that can be saved and resumed."""

    def __init__(self, poses: Poses, options: PoseOptions, total_steps: int) -> None:
        """Start from random weights."""
        torch.manual_seed(options.seed)
        self.rng = torch.Generator().manual_seed(options.seed)
        self.poses, self.options, self.total_steps, self.step_count = poses, options, total_steps, 0
        self.range = JointRange.of(poses, options, self.rng)
        self.shake = math.radians(options.shake) + slack_angles(poses.skeleton, options.slack)
        width = (options.width,) * 2
        self.network = PoseNetwork(PoseShape(width, width, (options.radius_width,) * 2))
        self._normalise()
        self.average = PoseNetwork(self.network.shape)
        self.average.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=options.learning_rate, weight_decay=1e-4, fused=True)

    def _normalise(self) -> None:
        """Measure mean and scale of the input; joints that hardly move are not blown up."""
        seen = flatten_pose(self.poses.draw(20000, self.rng), self.network.shape)
        self.network.input_mean.copy_(seen.mean(0))
        self.network.input_scale.copy_(seen.std(0).clamp(min=0.15))

    def _learning_rate(self) -> float:
        progress = min(1.0, self.step_count / self.total_steps)
        warm = min(1.0, (self.step_count + 1) / 200)
        return self.options.learning_rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))

    def _rebuilding(self, z: Float[Tensor, "b z"], target: Float[Tensor, "b 22 3 3"]) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        """Return the loss of decoding to a target, from joints [cm] and rotations, and the mean joint error [mm]."""
        body = columns_to_rotations(self.network.decode(z))
        root, skeleton, origin = torch.eye(3).expand(len(z), 1, 3, 3), self.poses.skeleton, torch.zeros(len(z), 3)
        miss = skeleton.forward(torch.cat((root, body), 1), origin) - skeleton.forward(torch.cat((root, target[:, 1:]), 1), origin)
        squares = (100 * miss).square().sum((-1, -2)) + self.options.rotations * (body - target[:, 1:]).square().sum((-1, -2, -3))
        # Grows like a root beyond some centimetres, so that the hopeless do not drown the others.
        return 2 * ROBUST * ((1 + squares / ROBUST).sqrt() - 1), miss.detach().norm(dim=-1).mean(-1) * 1000

    def step(self) -> dict[str, float]:
        """Take one step on recorded and disturbed poses; return the parts of the loss."""
        options, half = self.options, self.options.batch
        # Shaken poses are rebuilt as they are: new people differ from those recorded in small ways that are theirs.
        natural, other = shaken(self.poses.draw(2 * half, self.rng), self.shake, self.rng).split(half)
        wrong = disturbed(other, self.range, self.rng)
        q, target = torch.cat((natural, wrong.q)), torch.cat((natural, wrong.target))
        z = self.network.encode(flatten_pose(q, self.network.shape))
        norm = z.norm(dim=-1)
        blur = options.blur * torch.randn(z.shape, generator=self.rng) / math.sqrt(z.shape[-1])
        loss, error = self._rebuilding(nn.functional.normalize(z, dim=-1) + blur, target)
        unnatural = wrong.beyond > 0
        needed = torch.where(unnatural, LIMIT + 0.5 + 2.5 * (wrong.beyond / (math.pi / 4)).clamp(max=1), 0.0)
        parts = {
            "rebuilt": loss[:half].mean(),
            "returned": 0.3 * loss[half:].mean(),
            "inside": options.inside * (norm[:half] - options.natural_norm).clamp(min=0).square().mean(),
            "outside": 5 * (needed - norm[half:]).clamp(min=0).square().mean(),
        }
        self._descend(torch.stack(list(parts.values())).sum())
        self.step_count += 1
        missed = (norm[half:] < LIMIT)[unnatural].float().mean()
        return {k: float(v.detach()) for k, v in parts.items()} | {
            "error_mm": float(error[:half].mean()), "returned_mm": float(error[half:].mean()),
            "missed": float(missed), "refused": float((norm[:half] > LIMIT).float().mean()),
        }  # fmt: skip

    def prior(self) -> PosePrior:
        """Return a prior on a copy of the average weights, its norms shifted so that the wanted share of the recorded poses is in range."""
        network = PoseNetwork(self.average.shape)
        network.load_state_dict(self.average.state_dict())
        prior = PosePrior(network)
        recorded = prior.norm(self.poses.draw(20000, torch.Generator().manual_seed(self.options.seed)))
        assert network.radius is not None
        # At the limit, softplus is linear to 0.3 %.
        cast(nn.Linear, network.radius[-1]).bias.data -= torch.quantile(recorded, self.options.in_range) - LIMIT
        return prior

    def _descend(self, loss: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.zero_grad()
        loss.backward()
        if not nn.utils.clip_grad_norm_(self.network.parameters(), 1000.0).isfinite():
            raise ValueError(f"training diverged at step {self.step_count}: start again with a smaller learning rate")
        self.optimizer.step()
        with torch.no_grad():
            keep = min(self.options.ema, (1 + self.step_count) / (10 + self.step_count))
            for old, new in zip(self.average.parameters(), self.network.parameters(), strict=True):
                old.lerp_(new, 1 - keep)


def impossible(q: Float[Tensor, "n 22 3 3"], skeleton: Skeleton, rng: torch.Generator) -> dict[str, Float[Tensor, "n 22 3 3"]]:
    """Return poses that no human can take, by what is wrong with them, each made from a recorded one; training never sees them."""
    x, y, _ = torch.eye(3)

    def posed(**joints: Tensor) -> Tensor:
        pose = q.clone()
        for name, rotation in joints.items():
            pose[:, joint_index(name)] = rotation
        return pose

    def turned(name: str, axis: Tensor, degrees: int) -> Tensor:
        return posed(**{name: q[:, joint_index(name)] @ exp(math.radians(degrees) * axis)})

    def bent(name: str, axis: Tensor, degrees: int) -> Tensor:
        return posed(**{name: exp(math.radians(degrees) * axis)})

    return {
        "knee 40 back": bent("left_knee", -x, 40),
        "elbow 40 back": bent("left_elbow", ELBOW_AXIS, -40),
        "head turned 150": bent("neck", y, 150),
        "trunk bent 70 back": bent("spine2", -x, 70),
        "thigh twisted 120": turned("left_hip", y, 120),
        "arm twisted 150": turned("left_shoulder", x, 150),
        "foot turned 150": bent("left_ankle", y, 150),
        "wrist in the chest": posed(left_elbow=exp(math.radians(145) * ELBOW_AXIS), left_shoulder=_wrist_to_chest(q, skeleton, rng)),
        "all at random": torch.cat((q[:, :1], random_rotations((len(q), NUM_BODY), rng)), 1),
    }


def _wrist_to_chest(q: Float[Tensor, "n 22 3 3"], skeleton: Skeleton, rng: torch.Generator) -> Float[Tensor, "n 3 3"]:
    """Return rotations of the left shoulder that put the wrist of an arm bent by 145 degrees into the chest, the elbow anywhere."""
    joints = skeleton.forward(q, torch.zeros(len(q), 3))
    shoulder, elbow, wrist, collar = (joint_index(f"left_{part}") for part in ("shoulder", "elbow", "wrist", "collar"))
    R_collar = skeleton.global_rotations(q)[:, collar]
    chest = nn.functional.normalize((joints[:, joint_index("spine3")] - joints[:, shoulder]).unsqueeze(-2) @ R_collar, dim=-1).squeeze(-2)
    hand = skeleton.offsets[elbow] + exp(math.radians(145) * ELBOW_AXIS) @ skeleton.offsets[wrist]
    about = 2 * math.pi * torch.rand(len(q), 1, generator=rng)
    return exp(about * chest) @ swing(hand, chest)


def pose_quality(prior: PosePrior, q: Float[Tensor, "n 22 3 3"], wrong: dict[str, Tensor], skeleton: Skeleton) -> dict[str, float]:
    """Measure recorded and impossible poses: what is in range, how well poses are rebuilt, and one number to choose weights by."""
    inside = float((prior.norm(q) < prior.limit).double().mean())
    outside = [float((prior.norm(pose) > prior.limit).double().mean()) for pose in wrong.values()]
    origin = torch.zeros(len(q), 3)
    rebuilt = torch.cat((q[:, :1], prior.decode(prior.encode(q))), 1)
    error = float((skeleton.forward(rebuilt, origin) - skeleton.forward(q, origin)).norm(dim=-1).mean() * 1000)
    found = sum(outside) / len(outside)
    return {"in_range": inside, "caught": found, "rebuilt_mm": error, "score": found - 10 * max(0.0, 0.99 - inside) - error / 100}


def _save(trainer: PoseTrainer, out: Path, best: float) -> None:
    """Write everything that a resumed run needs."""
    state = {
        "network": trainer.network.state_dict(), "average": trainer.average.state_dict(), "optimizer": trainer.optimizer.state_dict(),
        "step": trainer.step_count, "total": trainer.total_steps, "rng": trainer.rng.get_state(), "options": asdict(trainer.options),
        "best": best,
    }  # fmt: skip
    with atomic_path(out / "checkpoint.pt") as temporary:
        torch.save(state, temporary)


def _resume(poses: Poses, path: Path) -> tuple[PoseTrainer, float]:
    with resuming(path):
        state: dict[str, Any] = torch.load(path, weights_only=True)
        trainer = PoseTrainer(poses, PoseOptions(**state["options"]), state["total"])
        trainer.network.load_state_dict(state["network"])
        trainer.average.load_state_dict(state["average"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.step_count = state["step"]
        trainer.rng.set_state(state["rng"])
        return trainer, state["best"]


def train_pose(
    data: Path,
    out: Path,
    *,
    minutes: float,
    resume: bool,
    options: PoseOptions,
    steps: int = 0,
    watch: Callable[[Progress], None] | None = None,
) -> Path:
    """Train until the budget is spent and return the path of the best weights.

    As with the motion prior, `steps` fixes the schedule and makes a run reproducible by its seed; otherwise it is estimated.
    """
    deadline = time.monotonic() + 60 * minutes
    poses, held_out = Poses.of(load(data, held_out=False)), Poses.of(load(data, held_out=True))
    out.mkdir(parents=True, exist_ok=True)
    best = -1e9
    if resume and (out / "checkpoint.pt").exists():
        trainer, best = _resume(poses, out / "checkpoint.pt")
    else:
        trainer = PoseTrainer(poses, options, steps or 10**6)
        if not steps:
            trainer.total_steps = steps_for(trainer, minutes)
    rng = torch.Generator().manual_seed(1)
    seen = held_out.q[torch.randperm(len(held_out.q), generator=rng)[:QUALITY_POSES]]
    wrong = impossible(seen, poses.skeleton, rng)

    def checkpoint() -> dict[str, float]:
        nonlocal best
        prior = trainer.prior()
        quality = pose_quality(prior, seen, wrong, poses.skeleton)
        if quality["score"] > best:
            best = quality["score"]
            prior.save(out / "pose.safetensors")
        _save(trainer, out, best)
        return quality

    run(trainer, out, deadline=deadline, checkpoint=checkpoint, watch=watch)
    return out / "pose.safetensors"
