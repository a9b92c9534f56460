"""Getting up, for priors that have never seen people on the ground: the shipped motion field proposes until people are on their feet."""

import functools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from dropsim.body.skeleton import Skeleton
from dropsim.compute.random import Streams
from dropsim.physics import metrics
from dropsim.physics.step import Stage
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import MotionField
from dropsim.priors.prior import Candidates, Prior, State

ON_FEET = 0.9
"""Share of their standing heights above which pelvis and head are of somebody who is up again."""


@functools.lru_cache(maxsize=4)
def field_of(skeleton: Skeleton, fps: float) -> MotionField | None:
    """Return the shipped field for a body; None if it has another frame rate."""
    field = MotionField.shipped()
    return replace(field, skeleton=skeleton) if field.fps == fps else None


@dataclass(frozen=True, eq=False)
class RiseStage(Stage):
    """Put proposals of the field in the place of the prior's, for people who lie or rise."""

    who: Int[np.ndarray, "n"]
    """People, counted through all batch dimensions."""
    found: Candidates
    """Proposals for each of them, the mode first, with the memory of the people's own prior."""

    def change(self, candidates: Candidates) -> Candidates:
        batch, num = candidates.x.shape[:-3], candidates.x.shape[-3]
        order = np.arange(num) % self.found.x.shape[1]

        def put(own: np.ndarray, new: np.ndarray) -> np.ndarray:
            out = own.reshape(-1, *own.shape[len(batch) :]).copy()
            out[self.who] = new[:, order]
            return out.reshape(own.shape)

        pairs = ((getattr(candidates, name), getattr(self.found, name)) for name in ("x", "q", "memory", "cost"))
        return Candidates(*(put(*pair) for pair in pairs))


def get_up(
    remembered: Float[np.ndarray, "*b m"] | None, seen: State, prior: Prior, rng: Streams, intent: Intent | None
) -> tuple[Float[np.ndarray, "*b m"] | None, RiseStage | None]:
    """Return what the field remembers of people who lie or rise, NaN for others, and the change of the proposals; None if nobody does.

    People are as the prior sees them, on a floor at height zero.
    """
    x, skeleton = seen.x, prior.skeleton
    rises = metrics.lying(x, skeleton)
    if remembered is not None:
        rises |= ~np.isnan(remembered[..., 0]) & ~metrics.above(x, skeleton, ON_FEET).all(-1)
    if not rises.any() or (field := field_of(skeleton, prior.fps)) is None:
        return None, None
    fresh = field.recall(seen, x, seen.q)
    memory = np.array(fresh) if remembered is None else np.where(np.isnan(remembered), fresh, remembered)
    # Only people who lie draw random numbers: the others must not notice who else is in the batch.
    who, own = np.flatnonzero(rises), seen.flat()
    asked = replace(own[who], memory=memory.reshape(-1, memory.shape[-1])[who])
    wanted = Intent.merged([Intent.toward(np.zeros((len(who), 2))), None if intent is None else intent.pick(who)])
    found = field.propose(asked, field.num_samples, rng.pick(who.tolist()), wanted)
    memory[...] = np.nan
    memory[rises] = found.memory[:, 0]
    before = own[who].map(lambda values: np.repeat(values[:, None], found.x.shape[1], axis=1))
    # The mode, which the field remembers, is followed.
    cost = np.where(np.arange(found.x.shape[1]) == 0, -np.inf, found.cost)
    return memory, RiseStage(who, Candidates(found.x, found.q, prior.recall(before, found.x, found.q), cost))
