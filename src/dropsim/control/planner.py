"""Steering for priors that take no intent: of many rollouts of the prior's samples, the cheapest is followed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dropsim.body.joints import joint_index
from dropsim.body.rotations import normalize
from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.physics.step import Stage
from dropsim.priors.intent import Intent
from dropsim.priors.prior import Candidates, Prior, State

Cost = Callable[[Float[np.ndarray, "n r t 22 3"]], Float[np.ndarray, "n r"]]
"""Takes the joints of r rollouts of t frames of n people; the smallest wins."""
WALKING_HEIGHT = 0.87
"""Share of the pelvis' rest height below which somebody who walks sinks."""
_WRISTS, _SHOULDERS = ([joint_index(f"{side}_{part}") for side in ("left", "right")] for part in ("wrist", "shoulder"))


@dataclass(frozen=True)
class Planner:
    """How far and how often one looks ahead."""

    num_rollouts: int = 64
    horizon: int = 16
    """Frames that each rollout lasts."""
    every: int = 4
    """Frames after which one looks again."""

    def __post_init__(self) -> None:
        if min(self.num_rollouts, self.horizon, self.every) < 1 or self.every > self.horizon:
            raise ValueError(
                "a planner needs at least one rollout of one frame, and a horizon as long as it keeps to a plan"
            )

    def plan(self, prior: Prior, state: State, cost: Cost, rng: Streams) -> Candidates:
        """Return the first frames of each person's best rollout, `every` of them along the candidates' dimension."""
        count, n = self.num_rollouts, len(state.x)
        many = state.map(lambda values: np.broadcast_to(values[:, None], (n, count, *values.shape[1:])))
        streams, frames = rng.copies(count), list[Candidates]()
        for _ in range(self.horizon):
            chosen = prior.explore(many, streams)
            frames.append(Candidates(chosen.x, chosen.q, chosen.memory))
            v = (chosen.x - many.x) * prior.fps
            many = State(chosen.x, v, chosen.q, prior.commit(chosen, chosen.x, chosen.q))
        costs = cost(np.stack([f.x for f in frames], 2))
        best, rows = np.nan_to_num(costs, nan=np.inf).argmin(1), np.arange(n)
        chosen = [(f.x[rows, best], f.q[rows, best], f.memory[rows, best]) for f in frames[: self.every]]
        return Candidates(*(np.stack(parts, 1) for parts in zip(*chosen, strict=True)))


@dataclass(frozen=True, eq=False)
class IntentCost:
    """How far a rollout is from an intent and from an upright carriage."""

    intent: Intent
    """Of n people."""
    skeleton: Skeleton
    fps: float
    """[Hz]"""
    facing: float = 0.5
    """Weight of one less the cosine of the angle to the wanted facing."""
    upright: float = 4.0
    """Weight of sinking below walking height [1/m]."""
    lean: float = 4.0
    """Weight of one less the cosine of the trunk's angle with the vertical."""
    arms: float = 2.0
    """Weight of wrists above shoulders: people who stand in the recordings wave about [1/m]."""

    def __call__(self, joints: Float[np.ndarray, "n r t 22 3"]) -> Float[np.ndarray, "n r"]:
        root, last = joints[..., 0, :2], joints[:, :, -1]
        mean = (root[:, :, -1] - root[:, :, 0]) * self.fps / max(1, joints.shape[2] - 1)
        cost = np.nan_to_num(((mean - self.intent.velocity[:, None]) ** 2).sum(-1))
        across = (last[..., 1, :] - last[..., 2, :])[..., :2]  # from the right hip to the left
        ahead = np.stack((across[..., 1], -across[..., 0]), -1)
        ahead /= np.maximum(np.linalg.norm(ahead, axis=-1, keepdims=True), 1e-12)
        cost += self.facing * np.nan_to_num(1 - (ahead * self.intent.facing[:, None]).sum(-1))
        trunk = normalize(last[..., joint_index("neck"), :] - last[..., 0, :])
        raised = np.maximum(last[..., _WRISTS, 2] - last[..., _SHOULDERS, 2], 0).mean(-1)
        cost += self.lean * (1 - trunk[..., 2]) + self.arms * raised
        height = WALKING_HEIGHT * self.skeleton.standing_height
        lowest = np.where(np.isnan(self.intent.height), height, np.minimum(self.intent.height, height))[:, None]
        return cost + self.upright * np.maximum(lowest - joints[..., 0, 2].min(-1), 0)


@dataclass(frozen=True, eq=False)
class Plan:
    """Frames that people have decided on."""

    frames: Candidates
    """Along the candidates' dimension."""
    people: Bool[np.ndarray, "*b"]
    """People who have a plan."""
    since: int
    """Frame at which it was made."""

    def stage(self, frame: int) -> "PlanStage":
        """Return the change of the proposals at a frame."""
        return PlanStage(self, frame - self.since)


@dataclass(frozen=True, eq=False)
class PlanStage(Stage):
    """Lead people along a frame of their plan."""

    plan: Plan
    at: int

    def change(self, candidates: Candidates) -> Candidates:
        return candidates.led_by(self.plan.frames.pick(self.at), self.plan.people)


def make_plan(planner: Planner, prior: Prior, people: State, intent: Intent, frame: int, rng: Streams) -> Plan | None:
    """Look ahead for everyone who wants something; people stand on a floor at height zero."""
    wanted, batch = intent.known, people.x.shape[:-2]
    index = np.flatnonzero(wanted)
    if not len(index):
        return None
    cost = IntentCost(intent.pick(index), prior.skeleton, prior.fps)
    best = planner.plan(prior, people.flat()[index], cost, rng.pick(index.tolist()))

    def spread(values: np.ndarray) -> np.ndarray:
        whole = np.zeros((wanted.size, *values.shape[1:]))
        whole[index] = values
        return whole.reshape(*batch, *values.shape[1:])

    return Plan(Candidates(spread(best.x), spread(best.q), spread(best.memory)), wanted, frame)
