"""Getting up, for priors that never saw people on the ground: the shipped motion field proposes until they stand."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from dropsim.compute.random import Streams
from dropsim.physics import metrics
from dropsim.physics.step import Stage
from dropsim.priors.intent import Intent
from dropsim.priors.motion_field import shipped_field
from dropsim.priors.prior import Candidates, Prior, State

ON_FEET = 0.9
"""Share of their standing heights above which pelvis and head are of somebody who is up again."""


@dataclass(frozen=True, eq=False)
class RiseStage(Stage):
    """Put proposals of the field in the place of the prior's, for people who lie or rise."""

    who: Int[np.ndarray, "n"]
    """People, counted through all batch dimensions."""
    proposals: Candidates
    """Proposals for each of them, the mode first, with the memory of the people's own prior."""
    memory: Float[np.ndarray, "n k m"]
    """Memory of the field for each proposal."""

    def change(self, candidates: Candidates) -> Candidates:
        batch, order = candidates.x.shape[:-3], self._order(candidates.x.shape[-3])

        def put(own: np.ndarray, new: np.ndarray) -> np.ndarray:
            out = own.reshape(-1, *own.shape[len(batch) :]).copy()
            out[self.who] = new[:, order]
            return out.reshape(own.shape)

        pairs = ((getattr(candidates, name), getattr(self.proposals, name)) for name in ("x", "q", "memory", "cost"))
        return Candidates(*(put(*pair) for pair in pairs))

    def _order(self, num: int) -> Int[np.ndarray, "num"]:
        """Return the proposal behind each candidate: the mode first, and all of them again behind it."""
        return np.concatenate(([0], np.arange(num - 1) % self.proposals.x.shape[1]))

    def remember(self, chosen: Int[np.ndarray, "*b"], num: int) -> Float[np.ndarray, "*b m"]:
        """Return the field's memory of the proposals that were followed; NaN for people who do not rise."""
        memory = np.full((*chosen.shape, self.memory.shape[-1]), np.nan)
        followed = self._order(num)[chosen.reshape(-1)[self.who]]
        memory.reshape(chosen.size, -1)[self.who] = self.memory[np.arange(len(self.who)), followed]
        return memory


def get_up(
    remembered: Float[np.ndarray, "*b m"] | None, seen: State, prior: Prior, rng: Streams, intent: Intent | None
) -> RiseStage | None:
    """Return the change of the proposals for people who lie or rise; None if nobody does.

    `remembered` is the field's memory of people who rose before, NaN for others. People are as the prior sees them, on
    a floor at height zero.
    """
    x, skeleton = seen.x, prior.skeleton
    rises = metrics.lying(x, skeleton)
    if remembered is not None:
        rises |= ~np.isnan(remembered[..., 0]) & ~metrics.above(x, skeleton, ON_FEET).all(-1)
    if not rises.any() or prior.fps != (field := shipped_field(skeleton)).fps:
        return None
    fresh = field.recall(seen, x, seen.q)
    memory = np.array(fresh) if remembered is None else np.where(np.isnan(remembered), fresh, remembered)
    # Only people who lie draw random numbers: the others must not notice who else is in the batch.
    who, own = np.flatnonzero(rises), seen.flat()
    asked = replace(own[who], memory=memory.reshape(-1, memory.shape[-1])[who])
    wanted = Intent.merged([Intent.toward(np.zeros((len(who), 2))), None if intent is None else intent.pick(who)])
    proposals = field.propose(asked, field.num_samples, rng.pick(who.tolist()), wanted)
    before = own[who].map(lambda values: np.repeat(values[:, None], proposals.x.shape[1], axis=1))
    recalled = prior.recall(before, proposals.x, proposals.q)
    return RiseStage(who, Candidates(proposals.x, proposals.q, recalled, proposals.cost), proposals.memory)
