"""Leaning against a load: recorded people have empty hands."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dropsim.body.rotations import exp, heading
from dropsim.body.skeleton import PARENTS, Skeleton, joint_index
from dropsim.physics.step import Stage
from dropsim.priors.prior import Candidates, State

WAIST = joint_index("spine1")
"""Joint about which the trunk leans; it hangs on the pelvis."""
HAND_OUT = 0.3
"""Distance from the middle of the body to a hand that hangs [m]."""
SHARE = 0.3
"""Share of a load's moment that the trunk makes up for by leaning; for the rest the feet shift the pressure."""


def _moved_by(joint: int) -> list[int]:
    """Return the joints that a joint moves."""
    children = [child for child, parent in enumerate(PARENTS) if parent == joint]
    return sorted([*children, *(moved for child in children for moved in _moved_by(child))])


_ABOVE = _moved_by(WAIST)


def lean_against(mass: float, skeleton: Skeleton) -> float:
    """Return how far people lean away from a load in one hand [rad]: the trunk's moment makes up for the load's."""
    upper = float(skeleton.masses[_ABOVE].sum())
    arm = float((skeleton.masses[_ABOVE] * (skeleton.rest[_ABOVE, 1] - skeleton.rest[WAIST, 1])).sum()) / upper
    return float(np.arctan2(SHARE * mass * HAND_OUT, upper * arm))


@dataclass(frozen=True, eq=False)
class LeanStage(Stage):
    """Ask the prior as if people did not lean, and tilt the trunks of its proposals."""

    lean: Float[np.ndarray, "*b"]
    """Angle to the left [rad]."""
    facing: Float[np.ndarray, "*b 3"]
    """Horizontal unit vector along which people face."""

    def query(self, state: State) -> State:
        turn = exp(self.lean[..., None] * self.facing)
        return replace(state, x=self._joints(state.x, turn), q=self._rotations(state.q, turn))

    def change(self, candidates: Candidates) -> Candidates:
        turn = exp(-self.lean[..., None] * self.facing)[..., None, :, :]
        return replace(candidates, x=self._joints(candidates.x, turn), q=self._rotations(candidates.q, turn))

    def _joints(self, x: np.ndarray, turn: Float[np.ndarray, "*b 3 3"]) -> np.ndarray:
        """Turn the joints above the waist."""
        tilted, waist = np.array(x), x[..., [WAIST], :]
        tilted[..., _ABOVE, :] = waist + (x[..., _ABOVE, :] - waist) @ turn.swapaxes(-1, -2)
        return self._of_those_who_lean(tilted, x)

    def _rotations(self, q: np.ndarray, turn: Float[np.ndarray, "*b 3 3"]) -> np.ndarray:
        """Turn the waist so that everything above it turns in the world."""
        tilted, pelvis = np.array(q), q[..., 0, :, :]
        tilted[..., WAIST, :, :] = pelvis.swapaxes(-1, -2) @ turn @ pelvis @ q[..., WAIST, :, :]
        return self._of_those_who_lean(tilted, q)

    def _of_those_who_lean(self, tilted: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Leave everybody else exactly as they are."""
        return np.where((self.lean != 0.0)[(..., *(None,) * (values.ndim - self.lean.ndim))], tilted, values)


def leaning(lean: Float[np.ndarray, "*b"], state: State) -> LeanStage:
    """Tilt the trunks of people to the left [rad]."""
    return LeanStage(lean, heading(state.q[..., 0, :, :])[..., 1, :])
