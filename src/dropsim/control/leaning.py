"""Leaning against a load: recordings are of people with empty hands, so their trunks are tilted away from what is carried."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp, heading, transpose
from dropsim.body.skeleton import PARENTS, Skeleton, joint_index
from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates, State

WAIST = joint_index("spine1")
_TRUNK = [WAIST]
for _joint in range(WAIST + 1, len(PARENTS)):
    if PARENTS[_joint] in _TRUNK:
        _TRUNK.append(_joint)
_ABOVE = np.array(_TRUNK[1:])
"""Joints that the waist moves."""
HAND_OUT = 0.3
"""From the middle of the body to a hand that hangs [m]."""
SHARE = 0.3
"""Of a load's moment that the trunk makes up for by leaning; for the rest the feet shift the pressure."""


def lean_against(mass: float, skeleton: Skeleton) -> float:
    """Return how far people lean away from a load in one hand [rad]: the trunk's moment about the waist makes up for the load's."""
    upper = float(skeleton.masses[_ABOVE].sum())
    arm = float((skeleton.masses[_ABOVE] * (skeleton.rest[_ABOVE, 1] - skeleton.rest[WAIST, 1])).sum()) / upper
    return float(np.arctan2(SHARE * mass * HAND_OUT, upper * arm))


@dataclass(frozen=True, eq=False)
class LeanStage(Stage):
    """Ask the prior as if people stood upright, and tilt the trunks that it proposes to the left."""

    lean: Float[np.ndarray, "*b"]
    """To the left [rad]."""

    def query(self, state: State) -> State:
        x, q = _tilted(state.x, state.q, -self.lean)
        return replace(state, x=x, q=q)

    def change(self, candidates: Candidates, reference: int) -> Candidates:
        del reference
        x, q = _tilted(candidates.x, candidates.q, np.broadcast_to(self.lean[..., None], candidates.x.shape[:-2]))
        return Candidates(x, q, candidates.memory)


def _tilted(
    x: Float[np.ndarray, "*c 22 3"], q: Float[np.ndarray, "*c 22 3 3"], lean: Float[np.ndarray, "*c"]
) -> tuple[Float[np.ndarray, "*c 22 3"], Float[np.ndarray, "*c 22 3 3"]]:
    """Turn everything above the waist to the left, about the way that the body faces."""
    pelvis = q[..., 0, :, :]
    turn = exp(-lean[..., None] * heading(pelvis)[..., 1, :])
    x, q = np.array(x), np.array(q)
    waist = x[..., WAIST, None, :]
    x[..., _ABOVE, :] = waist + (x[..., _ABOVE, :] - waist) @ transpose(turn)
    q[..., WAIST, :, :] = transpose(pelvis) @ turn @ pelvis @ q[..., WAIST, :, :]
    return x, q
