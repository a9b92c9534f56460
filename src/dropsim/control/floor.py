"""Ground at another height than zero: priors know people on a floor at z = 0."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates, State


def lowered(state: State, floor: Float[np.ndarray, "*b"]) -> State:
    """Return people with their ground at height zero."""
    return replace(state, x=state.x - np.stack((0 * floor, 0 * floor, floor), -1)[..., None, :])


def raised(candidates: Candidates, floor: Float[np.ndarray, "*b"]) -> Candidates:
    """Return candidates on their ground again."""
    return replace(candidates, x=candidates.x + np.stack((0 * floor, 0 * floor, floor), -1)[..., None, None, :])


@dataclass(frozen=True, eq=False)
class FloorStage(Stage):
    """Ask the prior as if the ground under each person were at height zero."""

    height: Float[np.ndarray, "*b"]
    """Of the ground under each person [m]."""

    def query(self, state: State) -> State:
        return lowered(state, self.height)

    def change(self, candidates: Candidates, reference: int) -> Candidates:
        del reference
        return raised(candidates, self.height)
